/* wb_from and wb_borrow with the C type of the data, which the macros and C++ know. */
#include "engine/tensor.h"

#include <stdio.h>

/* Whether data of the C type with the number `type` can have `dtype`; else sets the error. */
static bool data_fit(const char *what, wb_dtype dtype, int type)
{
#define NAME(name, c_type, ...) [WB_C_ROW_##name##_] = #c_type " *",
    static const char *const names[] = {WB_C_TYPES_(NAME)};
#undef NAME
#define C_TYPE(NAME, type, ...) [WB_##NAME] = #type,
    static const char *const c_types[] = {WB_DTYPES(C_TYPE)};
#undef C_TYPE
    char own[64] = "";                      /* at most ", whose dtype is bf16 or bool" */
    size_t n = 0;
    if (!wb__is_dtype(what, dtype)) return false;
    if (type >> dtype & 1) return true;     /* true of -1, any type */
    const int row = type >> 16;             /* its row may be missing here: the header is newer */
    const char *name = row < (int)WB__COUNT(names) ? names[row] : "of another type";
    for (int t = WB_DTYPE_DEFAULT + 1; t < WB_DTYPE_COUNT; t++)
        if (type >> t & 1)
            n += (size_t)snprintf(own + n, sizeof own - n, "%s%s", n ? " or " : ", whose dtype is ",
                                  wb_dtype_name((wb_dtype)t));
    return !wb__fail(WB_ERROR_DTYPE, "%s: the data are %s%s; %s takes %s *: give the dtype of the"
                     " data, or convert them; (void *)data takes the bytes as they are",
                     what, name, *own ? own : ", which has no dtype", wb_dtype_name(dtype),
                     c_types[dtype]);
}

wb_tensor *wb_from_typed_(const void *data, wb_dtype dtype, int ndim, const int64_t *dims, int type)
{
    return data_fit("from", dtype, type) ? (wb_from)(data, dtype, ndim, dims) : NULL;
}

wb_tensor *wb_borrow_typed_(void *data, wb_dtype dtype, int ndim, const int64_t *dims,
                      void (*release)(void *data, void *context), void *context, int type)
{
    if (!data_fit("borrow", dtype, type)) return NULL;
    return (wb_borrow)(data, dtype, ndim, dims, release, context);
}
