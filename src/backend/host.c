/* The table of host functions that backends in shared objects are given. */
#include "backend/host.h"
#include "backend/kernel_cache.h"

const wb__host wb__host_table = {
    .alloc = wb__alloc,
    .alloc_zero = wb__alloc_zero,
    .realloc = wb__realloc,
    .free = wb__free,
    .strdup = wb__strdup,
    .printf = wb__printf,
    .fail = wb__fail,
    .fail_null = wb__fail_null,
    .error = wb_error,
    .error_code = wb_error_code,
    .clear_error = wb_clear_error,
    .log = wb__log,
    .debug = wb__debug,
    .dtype_size = wb__dtype_size,
    .ops = wb__ops,
    .prelude = wb__gpu_prelude,
    .gpu_step = wb__gpu_step,
    .gpu_work_free = wb__gpu_work_free,
    .gpu_fill = wb__gpu_fill,
    .cache_get = wb__kernel_cache_get,
    .cache_put = wb__kernel_cache_put,
    .gpu_takes = wb__gpu_takes,
    .gpu_memory_limit = wb__gpu_memory_limit,
    .gpu_size_text = wb__gpu_size_text,
    .gpu_size_class = wb__gpu_size_class,
};
