/* Functions that prepare an operation for oneDNN.  Each function returns 0 with the operation in
 * *op, 0 with *op NULL if oneDNN cannot be used, or an error code.  *reason becomes the reason why
 * not: oneDNN is not compiled in, is disabled (WEBER_ONEDNN=0), or lacks the operation. */
#ifndef WB__DNNL_H
#define WB__DNNL_H

#include "backend/cpu/lib.h"

#ifdef WB_HAVE_DNNL
int wb__dnnl_matmul(const wb__matmul_desc *d, wb__cpu_op **op, const char **reason);
int wb__dnnl_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);
#else
static inline int wb__dnnl_matmul(const wb__matmul_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)d;
    *op = NULL;
    *reason = "oneDNN is not built in";
    return 0;
}
static inline int wb__dnnl_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)d;
    *op = NULL;
    *reason = "oneDNN is not built in";
    return 0;
}
#endif


#endif
