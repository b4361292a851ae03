/* Transposes matrices and arrays of three axes, for files whose arrays are column-major, as
 * Julia's. */
#ifndef WB__TRANSPOSE_H
#define WB__TRANSPOSE_H

#include "base/base.h"

#include <string.h>

/* Sets to[j][i] to from[i][j], in tiles that fit in the cache.  `from`, which may be a mapped file,
 * is read in bands of 32 rows, from the first to the last. */
#define WB__TRANSPOSE(each)                                                                        \
    for (int64_t i0 = 0; i0 < rows; i0 += 32)                                                      \
        for (int64_t j0 = 0; j0 < columns; j0 += 32)                                               \
            for (int64_t j = j0; j < WB__MIN(columns, j0 + 32); j++)                               \
                for (int64_t i = i0; i < WB__MIN(rows, i0 + 32); i++)                              \
                    memcpy((char *)to + (j * rows + i) * (each),                                   \
                           (const char *)from + (i * stride + j) * (each), (each))

/* Writes the transpose of rows x columns elements of 1, 2, 4 or 8 bytes to `to`.  Rows of `from`
 * begin `stride` elements apart. */
static inline void wb__transpose(void *to, const void *from, size_t each, int64_t rows,
                                 int64_t columns, int64_t stride)
{
    switch (each) {
    case 1: WB__TRANSPOSE(1); break;
    case 2: WB__TRANSPOSE(2); break;
    case 4: WB__TRANSPOSE(4); break;
    case 8: WB__TRANSPOSE(8); break;
    default: break;             /* no dtype has this size */
    }
}

/* Sets `to`, a row-major array of 2 or 3 dimensions `dims`, to the elements of `from`, a
 * column-major array of the same dimensions. */
static inline void wb__to_rows(void *to, const void *from, size_t each, int ndim,
                               const int64_t *dims)
{
    if (ndim == 2) wb__transpose(to, from, each, dims[1], dims[0], dims[0]);
    for (int64_t i = 0; ndim == 3 && i < dims[0]; i++)
        for (int64_t j = 0; j < dims[1]; j++)
            for (int64_t k = 0; k < dims[2]; k++)
                memcpy((char *)to + ((i * dims[1] + j) * dims[2] + k) * (int64_t)each,
                       (const char *)from + ((k * dims[1] + j) * dims[0] + i) * (int64_t)each,
                       each);
}

#endif
