/* Tile functions for x86 with AVX2; see rows.h. */
#define WB__ISA avx2
#include "backend/cpu/tile/rows.h"
