/* The kernel of AVX-VNNI (backend/cpu/product/int8_vnni_avx2.c) with its instruction computed by
 * others, so that a processor without AVX-VNNI runs the rest of it.  The kernel is NULL where it
 * does not. */
#ifndef VNNI_AVX2_H
#define VNNI_AVX2_H

#include "backend/cpu/product/int8.h"

extern const wb__int8_kernel *const emulated_vnni_avx2;

#endif
