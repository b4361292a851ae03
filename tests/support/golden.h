/* Results of PyTorch: tests/data/nn.safetensors, written by make_golden.py, or another file, which
 * the test defines as GOLDEN_FILE before it includes this header. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "test.h"

#include "io/safetensors/safetensors.h"
#include "nn/layer.h"

#ifndef GOLDEN_FILE
#define GOLDEN_FILE WB_TEST_DATA "/nn.safetensors"
#endif
#define NAME(...) name_of(__VA_ARGS__)

static wb__table golden;

static inline const char *name_of(const char *format, ...)
{
    static char names[4][256];
    static int turn;
    char *name = names[turn++ & 3];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, 256, format, arguments);
    va_end(arguments);
    return name;
}

static inline int golden_open(void **state)
{
    return wb__st_load(GOLDEN_FILE, true, &golden);
}

static inline int golden_close(void **state)
{
    wb__table_free(&golden);
    wb_shutdown();
    return 0;
}

/* A tensor of the file, or NULL. */
static inline wb_tensor *golden_tensor(const char *name)
{
    const wb__entry *t = wb__table_find(&golden, name);
    return t ? wb_from(t->data, t->dtype, t->ndim, t->dims) : NULL;
}

static inline wb_tensor *golden_want(const char *name)
{
    wb_tensor *x = golden_tensor(name);
    if (!x) fail_msg("no %s in " GOLDEN_FILE, name);
    return x;
}

/* got equals the tensor of that name in the file: each element within `tolerance` times the
 * larger of 1 and the element's absolute value. */
static inline void assert_golden(wb_tensor *got, const char *name, double tolerance)
{
    const wb__entry *want = wb__table_find(&golden, name);
    if (!want) fail_msg("no %s in " GOLDEN_FILE, name);
    if (!got) fail_msg("%s: %s", name, wb_error());
    const float *g = wb_data(got);
    if (!g && wb_size(got)) fail_msg("%s: %s", name, wb_error());
    assert_int_equal(wb_ndim(got), want->ndim);
    for (int i = 0; i < want->ndim; i++)
        if (wb_dim(got, i) != want->dims[i]) fail_msg("%s: got %s", name, wb_describe(got));
    for (int64_t i = 0; i < wb_size(got); i++) {
        float w;                        /* the file's tensors are not aligned in memory */
        memcpy(&w, (const char *)want->data + (size_t)i * sizeof w, sizeof w);
        if (!(fabs((double)g[i] - (double)w) <= tolerance * fmax(1, fabs((double)w))))
            fail_msg("%s[%lld] is %.9g, PyTorch has %.9g", name, (long long)i, (double)g[i],
                     (double)w);
    }
}

/* Copies the parameters of a case into a model. */
static inline void golden_parameters(const char *name, wb_layer *model)
{
    if (!model) fail_msg("%s: %s", name, wb_error());
    if (wb_load_state(GOLDEN_FILE, model, .prefix = NAME("%s.param.", name)))
        fail_msg("%s", wb_error());
}

/* For wb_each_tensor: the tensor of that path in `other` has the same bits. */
static inline int same_bits_in(wb_tensor *x, const char *path, void *other)
{
    wb_tensor *y = wb_get(other, path);
    if (!y) fail_msg("%s: %s", path, wb_error());
    assert_string_equal(wb_describe(x), wb_describe(y));
    if (memcmp(wb_data(x), wb_data(y), (size_t)wb_size(x) * wb_dtype_bytes(wb_dtype_of(x))))
        fail_msg("%s differs", path);
    return 0;
}

#endif
