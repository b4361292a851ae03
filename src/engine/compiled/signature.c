#include "engine/compiled/signature.h"

#include <math.h>
#include <string.h>

wb__number_kind wb__number_kind_of(const wb_tensor *x)
{
    if (x->op != WB__OP_literal || x->ndim) return 0;
    const double v = x->number[0].f;
    if (!(x->flags & WB__WEAK) || v != trunc(v)) return 1;
    wb__number_kind kind = 2;
    for (int t = 1; t < WB_DTYPE_COUNT; t++)
        if (!wb__dtype_float((wb_dtype)t) && t != WB_BOOL && wb__holds((wb_dtype)t, v))
            kind |= 4u << t;
    return kind;
}

wb__signature wb__signature_of(const wb_tensor *x)
{
    wb__signature s = {.dtype = (wb_dtype)x->dtype, .number = wb__number_kind_of(x),
                       .ndim = x->ndim};
    if (s.number) s.weak = x->flags & WB__WEAK;
    else s.device = wb__device_of(x);
    memcpy(s.dims, x->dims, sizeof s.dims);
    return s;
}

bool wb__same_signature(const wb__signature *a, const wb__signature *b)
{
    return a->device == b->device && a->dtype == b->dtype && a->number == b->number &&
           a->weak == b->weak && a->ndim == b->ndim &&
           !memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims);
}
