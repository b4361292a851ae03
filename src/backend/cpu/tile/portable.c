/* Tile functions for any processor; see rows.h. */
#define WB__ISA portable
#include "backend/cpu/tile/rows.h"
