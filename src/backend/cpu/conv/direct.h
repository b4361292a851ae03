/* Convolutions of direct.c, strips.c, winograd.c and conv_epilogue.c. */
#ifndef WB__DIRECT_H
#define WB__DIRECT_H

#include "backend/cpu/lib.h"

/* Prepares an input gradient with a bias or an epilogue (conv_epilogue.c).  Returns 0 with the
 * operation in *op, or an error code with *op NULL. */
int wb__conv_epilogue(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);
/* Prepares a convolution without patches (direct.c).  Returns 0 with the operation in *op, 0 with
 * *op NULL if direct.c does not support the convolution, or an error code. */
int wb__direct_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);
/* Prepares the gradient of an input by strips (strips.c); returns as wb__direct_conv. */
int wb__strips_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);
/* Prepares Winograd's algorithm (winograd.c), if that is faster; returns as wb__direct_conv. */
int wb__winograd_conv(const wb__conv_desc *d, wb__cpu_op **op, const char **reason);

#endif
