/* Tile functions for x86 with AVX512: see tile_rows.h. */
#define WB__ISA avx512
#include "backend/cpu/tile_rows.h"
