/* Our direct convolution, for the shapes it suits.  Next: direct.c. */
#ifndef WB__DIRECT_H
#define WB__DIRECT_H

#include "backend/cpu/lib.h"

/* 0 and an operation, 0 and NULL where the shape does not suit, or an error code. */
/* conv_epilogue.c: a data gradient with a bias or an epilogue. */
int wb__conv_epilogue(const wb__conv_desc *d, wb__cpu_op **op);
int wb__direct_conv(const wb__conv_desc *d, wb__cpu_op **op);

#endif
