/* Tile functions for x86 with AVX-512; see rows.h. */
#define WB__ISA avx512
#include "backend/cpu/tile/rows.h"
