/* The signatures of a recording's inputs and results. */
#ifndef WB__SIGNATURE_H
#define WB__SIGNATURE_H

#include "engine/tensor.h"

/* What is known of an input's value.  0: the input is no number.  1: the number is not integral, or
 * its dtype is fixed (WB__WEAK is not set).  Otherwise 2, plus the bit 4 << t for each integer
 * dtype t that can hold the number. */
typedef uint32_t wb__number_kind;
typedef struct {
    const wb_device *device;
    wb_dtype dtype;
    wb__number_kind number;
    bool weak;
    int ndim;
    int64_t dims[WB_MAX_DIMS];
} wb__signature;

wb__number_kind wb__number_kind_of(const wb_tensor *x);      /* of input x */
wb__signature wb__signature_of(const wb_tensor *x);
bool wb__same_signature(const wb__signature *a, const wb__signature *b);

#endif
