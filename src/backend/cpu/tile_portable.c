/* Tile functions for any processor: see tile_rows.h. */
#define WB__ISA portable
#include "backend/cpu/tile_rows.h"
