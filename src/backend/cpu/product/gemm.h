/* Our matrix product on one thread, for use inside parallel loops.  Next: gemm.c, isa.h. */
#ifndef WB__GEMM_H
#define WB__GEMM_H

#include "backend/cpu/isa.h"

/* Computes all of *g on the calling thread.  scratch: wb__gemm_scratch bytes, aligned to 64. */
size_t wb__gemm_scratch(const wb__gemm *g);
void wb__gemm_run(const wb__gemm *g, void *scratch);

#endif
