/* Our matrix product on one thread, for use inside parallel loops. */
#ifndef WB__GEMM_H
#define WB__GEMM_H

#include "backend/cpu/isa.h"

/* The bytes of scratch memory that wb__gemm_run needs for *g. */
size_t wb__gemm_scratch(const wb__gemm *g);
/* Computes all of *g on the calling thread.  scratch: wb__gemm_scratch bytes, aligned to 64. */
void wb__gemm_run(const wb__gemm *g, void *scratch);

#endif
