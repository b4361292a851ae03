/* Operations that oneDNN can execute, if it is built in.  Each call returns 0 and an operation; or
 * 0 and NULL if oneDNN is absent, unsuitable or disabled (WEBER_ONEDNN=0), explained in *reason;
 * or an error code.
 *
 * Next: dnnl.c. */
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
