/* What a backend's shared object is given, and what it gives.
 *
 * Such an object links nothing of this library: its entry function is handed a table of host
 * functions and returns its own table.  It exports exactly one symbol, whose name carries the
 * version, so that an old object is told from a broken one. */
#ifndef WB__HOST_H
#define WB__HOST_H

#include "backend/backend.h"
#include "backend/gpu/gpu.h"

typedef struct {
    int version;                        /* WB__BACKEND_VERSION */
    size_t size;                        /* of this struct: fields are only ever appended */
    /* base.h's, under these names */
    void *(*alloc)(size_t bytes);
    void *(*alloc_zero)(size_t count, size_t size);
    void *(*realloc)(void *block, size_t bytes);
    void (*free)(void *block);
    char *(*strdup)(const char *s);
    char *(*printf)(const char *format, ...) WB__PRINTF(1, 2);
    int (*fail)(int code, const char *format, ...) WB__PRINTF(2, 3);
    void *(*fail_null)(int code, const char *format, ...) WB__PRINTF(2, 3);
    const char *(*error)(void);
    wb_status (*error_code)(void);
    void (*clear_error)(void);
    void (*log)(wb_log_level level, const char *format, ...) WB__PRINTF(2, 3);
    bool (*debug)(const char *topic);   /* is WEBER_DEBUG asking for it? */
    size_t (*dtype_size)(wb_dtype t);
    const wb__op_info *ops;
    /* gpu.h: steps as kernels in the dialect */
    const char *prelude;
    int (*gpu_step)(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
    void (*gpu_work_free)(wb__gpu_work *work);
    void (*gpu_fill)(const wb__gpu_launch *l, const wb__number *numbers, const size_t *places,
                     size_t workspace_at, void *out);
    /* Compiled kernels kept on disk (WEBER_CACHE_DIR, else XDG_CACHE_HOME/weber, else ~/.cache/weber;
     * WEBER_CACHE_DIR="" keeps none): by a key of any text.  get: an allocated block, or NULL
     * without an error where there is none; put: written beside and renamed; failing is no error. */
    void *(*cache_get)(const char *kind, const char *key, size_t key_bytes, size_t *bytes);
    void (*cache_put)(const char *kind, const char *key, size_t key_bytes, const void *data,
                      size_t bytes);
    bool (*gpu_takes)(const wb__gpu_target *t, const wb__step *step);       /* gpu.h */
    /* gpu.h: sizes of memory */
    int (*gpu_memory_limit)(const char *tag, int64_t total, int64_t *limit);
    const char *(*gpu_size_text)(int64_t bytes, char room[32]);
    int (*gpu_size_class)(size_t size, size_t *bytes);
} wb__host;

extern const wb__host wb__host_table;

/* The exported symbol.  A backend that is linked in statically has the same function under a name
 * of its own, listed in the registry. */
#define WB__BACKEND_SYMBOL "wb_backend_5"
typedef const wb__backend *(*wb__backend_entry)(const wb__host *host);

#endif
