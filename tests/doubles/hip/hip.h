/* Test doubles of AMD's HIP runtime, hiprtc and comgr, for machines without a GPU; never installed.
 *
 * They are shared objects with the names and functions of the real libraries.  The kernels run on
 * the engine of the doubles of CUDA (../cuda/vgpu.h, whose environment variables apply), so that a
 * wrong use that one double counts, the other counts too.  What is HIP's own is here: one current
 * device per thread instead of a stack of contexts, the layouts of hipDeviceProp_t, the options and
 * instruction sets of hiprtc, and the largest grid.
 *
 *   hip.c        libamdhip64 and, for ROCm 5, the hiprtc in it
 *   hiprtc.c     libhiprtc
 *   comgr.c      libamd_comgr: the list of instruction sets
 *   rocblas.c    librocblas: products in plain loops
 *   miopen.c     libMIOpen: convolutions in plain loops, in immediate mode
 *
 * Environment variables:
 *   VGPU_GFX=name          the instruction set of the devices (gfx90a:sramecc+:xnack-)
 *   HIP_VISIBLE_DEVICES    as in the driver: device numbers */
#ifndef VGPU_HIP_H
#define VGPU_HIP_H

#include "../cuda/driver.h"
#include "../cuda/vgpu.h"

#include <stdio.h>
#include <stdlib.h>

static inline const char *vgpu_gfx(void)
{
    const char *name = getenv("VGPU_GFX");
    return name && *name ? name : "gfx90a:sramecc+:xnack-";
}

/* The instruction sets that the doubles' compiler knows: some of comgr 2.4 (ROCm 5.2) and, for
 * ROCm 7, some later ones. */
#define VGPU_ISAS                                                                                  \
    "gfx700", "gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx1010", "gfx1030"
#define VGPU_LATER_ISAS "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1201"

#endif
