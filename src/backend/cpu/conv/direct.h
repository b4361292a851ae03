/* Our direct convolution, for the shapes it suits.  Next: direct.c. */
#ifndef WB__DIRECT_H
#define WB__DIRECT_H

#include "backend/cpu/lib.h"

/* Prepares a gradient of the input with a bias or an epilogue (conv_epilogue.c).  Returns 0 and the
 * operation in *op, or an error code and NULL. */
int wb__conv_epilogue(const wb__conv_desc *d, wb__cpu_op **op);
/* Returns 0 and an operation, 0 and NULL if the shape is not suitable, or an error code. */
int wb__direct_conv(const wb__conv_desc *d, wb__cpu_op **op);

#endif
