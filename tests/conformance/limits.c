/* Limits: shapes with zeros, lists that are NULL, deep chains of views and trees, and work that
 * grows linearly with its size. */
#include "reference.h"

#include "base/base.h"
#include "base/text.h"
#include "base/toml.h"
#include "engine/tensor.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

/* Sizes are limited even if another dimension is 0: the library multiplies subsets of the
 * dimensions, which must not overflow. */
TEST(zeros_beside_large_sizes)
{
    const int64_t wide = (int64_t)1 << 32;
    REFUSED(wb_zeros(0, wide, 1), WB_ERROR_SHAPE, "2^32 along");
    REFUSED(wb_zeros(1, 0, wide), WB_ERROR_SHAPE, "2^32 along");
    REFUSED(wb_zeros(0, wide / 2, 1 << 9), WB_ERROR_SHAPE, "2^40");
    REFUSED(wb_zeros(wide / 2, 1 << 9, 0), WB_ERROR_SHAPE, "2^40");
    REFUSED(wb_zeros(0, INT64_MAX), WB_ERROR_SHAPE, "2^32");
    REFUSED(wb_rand(0, wide), WB_ERROR_SHAPE, "2^32");
    wb_tensor *x = wb_zeros(0, 3, wide / 4);            /* flat, close to the limit of 2^32 */
    assert_int_equal(wb_dim(wb_flatten(x), 1), 3 * (wide / 4));
    x = wb_zeros(0, 768, wide / 4);                     /* close to the limit of 2^40 */
    assert_int_equal(wb_size(x), 0);
    assert_int_equal(wb_size(wb_sum(x, .axes = WB_INTS(0))), 768 * (wide / 4));
    REFUSED(wb_flatten(x), WB_ERROR_SHAPE, "reshape", "2^32 along");
    REFUSED(wb_reshape(wb_sum(x, .axes = WB_INTS(0)), -1), WB_ERROR_SHAPE, "reshape", "2^32 along");
    REFUSED(wb_reshape(x, 0, wide, wide), WB_ERROR_SHAPE, "reshape");
    REFUSED(wb_reshape(x, 0, 4 * wide), WB_ERROR_SHAPE, "reshape");
    REFUSED(wb_expand_array(wb_zeros(0, 1), 2, (int64_t[]){0, wide}), WB_ERROR_SHAPE, "expand");
    REFUSED(wb_pad(x, 2, wide / 2, 0), WB_ERROR_SHAPE, "2^40");
    REFUSED(wb_concat(1, x, x), WB_ERROR_SHAPE, "2^40");
    REFUSED(wb_matmul(wb_zeros(0, 1 << 20, 1), wb_zeros(1, 1 << 20)), WB_ERROR_SHAPE, "2^40");
    REFUSED(wb_maxpool(wb_zeros(0, 1, 2, 2), .window = {1 << 30, 1 << 30}, .stride = {1, 1},
                       .pad = {(1 << 30) - 1, (1 << 30) - 1, (1 << 30) - 1, (1 << 30) - 1}),
            WB_ERROR_SHAPE, "maxpool");
}

/* wb_any and wb_all count in 64 bits where 32 bits could come to 0 again. */
TEST(counts_of_many_elements)
{
    for (int64_t n = 65535; n <= 65536; n++)
        for (int all = 0; all < 2; all++) {
            wb_tensor *x = wb_expand(wb_ones(1, 1), n, 65537);
            const wb_tensor *y = all ? wb_all(x) : wb_any(x), *count = y->in[0];
            assert_int_equal(count->dtype, n > 65535 ? WB_I64 : WB_I32);
        }
}

TEST(lists_that_are_null)
{
    REFUSED(wb_concat_array(0, 2, NULL), WB_ERROR_ARGUMENT, "concat");
    REFUSED(wb_stack_array(0, 2, NULL), WB_ERROR_ARGUMENT, "stack");
    REFUSED(wb_glorot_uniform(WB_F32, 2, NULL), WB_ERROR_ARGUMENT, "glorot_uniform");
    REFUSED(wb_glorot_normal(WB_F32, 2, NULL), WB_ERROR_ARGUMENT, "glorot_normal");
    REFUSED(wb_kaiming_uniform(WB_F32, 2, NULL), WB_ERROR_ARGUMENT, "kaiming_uniform");
    REFUSED(wb_kaiming_normal(WB_F32, 2, NULL), WB_ERROR_ARGUMENT, "kaiming_normal");
    REFUSED(wb_Chain_array(0, NULL), WB_ERROR_ARGUMENT, "Chain");
    REFUSED(wb_tuple_array(2, NULL), WB_ERROR_ARGUMENT, "tuple");
    REFUSED(wb_named_tuple(2, NULL, NULL), WB_ERROR_ARGUMENT, "named_tuple");
}

/* ---- deep ------------------------------------------------------------------------------------ */

/* The stack that weber.h documents for a thread, and 32 KiB for the thread-local data of test.c,
 * which glibc places there; more under sanitizers, which enlarge each frame. */
#if defined(__SANITIZE_ADDRESS__)
enum { STACK = 1024 << 10 };
#else
enum { STACK = (128 + 32) << 10 };
#endif

/* 3,000 views on views. */
static void *views(void *ctx)
{
    wb_tensor *x = wb_from((float[]){1, 2, 3, 4}, WB_F32, 2, (int64_t[]){4, 1}), *y = x;
    for (int i = 0; i < 1000; i++)
        y = wb_transpose(wb_unsqueeze(wb_squeeze(y, wb_dim(y, 0) == 1 ? 0 : 1), 0));
    const float *values = wb_data(y);
    *(bool *)ctx = values && values[0] == 1 && values[3] == 4;
    return NULL;
}

/* 2,000 concatenations, each with the result of the one before. */
static void *concatenations(void *ctx)
{
    wb_tensor *x = wb_ones(2), *y = x;
    for (int i = 0; i < 2000; i++) y = wb_concat(0, y, x);
    *(bool *)ctx = wb_item(wb_sum(y)) == 4002;
    return NULL;
}

/* The deepest model that is allowed, through the functions that recurse over it. */
static void *model(void *ctx)
{
    wb_layer *m = wb_Dense(3, 3), *deepest = NULL;
    for (; m; m = wb_Chain_array(1, &m)) deepest = m;
    wb_clear_error();
    wb_tree *g = wb_gradient(wb_sum(wb_call(deepest, wb_ones(1, 3))), deepest);
    wb_opt_state *s = wb_setup(wb_Adam(), deepest);
    char *text = wb_object_format(deepest);
    *(bool *)ctx = !wb_update(s, deepest, g) && text &&
                   wb_to(deepest, wb_cpu_device(), .dtype = WB_F64);
    wb_free_text(text);
    return NULL;
}

/* The stacks are the test's own: in those of pthread_create, glibc counts the guard as a part of
 * the stack, and on aarch64 it takes 64 KiB of them. */
TEST(small_stacks)
{
    enum { GUARD = 64 << 10 };          /* a multiple of the page of every system */
    char *stack = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    assert_true(stack != MAP_FAILED);
    assert_int_equal(mprotect(stack, GUARD, PROT_NONE), 0);
    void *(*const rows[])(void *) = {views, concatenations, model};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        bool good = false;
        pthread_t thread;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        assert_int_equal(pthread_attr_setstack(&attr, stack + GUARD, STACK), 0);
        assert_int_equal(pthread_create(&thread, &attr, rows[i], &good), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
        if (!good) fail_msg("row %d", (int)i);
    }
    munmap(stack, GUARD + STACK);
}

TEST(trees_in_trees)
{
    wb_layer *m = wb_Dense(3, 3), *deepest = NULL;
    int n = 0;
    for (; m && n < 1000; n++) {
        deepest = m;
        m = wb_Chain_array(1, &m);
    }
    assert_null(m);
    FAILED(WB_ERROR_ARGUMENT, "nested");
    assert_int_equal(n, 65);
    assert_int_equal(wb_parameter_count(deepest), 12);
    assert_non_null(wb_call(deepest, wb_ones(1, 3)));
    wb_tree *t = wb_tuple(wb_ones(2));
    for (n = 0; t && n < 1000; n++) t = wb_tuple(t);
    assert_null(t);
    FAILED(WB_ERROR_ARGUMENT, "nested");
    assert_int_equal(n, 129);
    m = wb_Dense(3, 3);
    for (n = 0; m && n < 1000; n++) m = wb_SkipConnection(m, wb_add);
    assert_null(m);
    FAILED(WB_ERROR_ARGUMENT, "SkipConnection", "nested");
}

/* ---- how work grows -------------------------------------------------------------------------- */

static void many_results(int n)
{
    wb_tensor **x = wb__alloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] = wb_add(wb_full_array(i, WB_F32, 1, (int64_t[]){3}), wb_ones(3));
    assert_int_equal(wb_eval_array(n, x), 0);
    assert_true(wb_at(x[n - 1], 2) == n);
    wb__free(x);
}

static wb_layer *chain_of(int n)
{
    wb_layer **l = wb__alloc((size_t)n * sizeof *l);
    for (int i = 0; i < n; i++) l[i] = wb_Dense(2, 2, wb_tanh);
    wb_layer *m = wb_Chain_array(n, l);
    wb__free(l);
    return m;
}

static void long_chain(int n) { assert_non_null(chain_of(n)); }

static void first_update(int n)
{
    wb_layer *m = chain_of(n);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    assert_int_equal(wb_update(s, m, wb_gradient(wb_mean(wb_call(m, wb_ones(1, 2))), m)), 0);
    assert_int_equal(wb_eval_array(0, NULL), 0);
}

static void dropped_update(int n)
{
    wb_layer *m = chain_of(n);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    assert_int_equal(wb_update(s, m, wb_gradient(wb_mean(wb_call(m, wb_ones(1, 2))), m)), 0);
}

/* Slices of reshapes of slices: no view can be merged with the view before it. */
static void views_on_views(int n)
{
    wb_tensor *y = wb_rand(2 * n + 2, 2);
    for (int i = 0; i < n; i++) {
        y = wb_reshape(wb_slice(y, 0, 1, wb_dim(y, 0)), -1);
        y = wb_reshape(wb_slice(y, 0, 2, wb_dim(y, 0)), -1, 2);
    }
    assert_int_equal(wb_size(y), 4);
    assert_int_equal(wb_eval(y), 0);
}

static void read_toml(const char *format, int n)
{
    wb__text text = {0};
    for (int i = 0; i < n; i++) wb__text_add(&text, format, i);
    for (int i = 0; i < 8; i++) {
        const wb__toml t = {"t", text.text, text.length};
        wb__toml_kind kind;
        const char *at;
        size_t bytes;
        assert_int_equal(wb__toml_get(t, "Flux", "a", &kind, &at, &bytes), 0);
    }
    wb__free(text.text);
}

static void toml_keys(int n) { read_toml("k%05d=1\n", n); }

static void toml_tables(int n) { read_toml("k%05d=[{a=1},{a=1},{a=1},{a=1}]\n", n); }

/* The CPU time of this thread, the best of three runs. */
static double seconds(void (*f)(int n), int n)
{
    double best = HUGE_VAL;
    for (int i = 0; i < 3; i++) {
        struct timespec a, b;
        wb_scope *s = wb_scope_open();
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        f(n);
        assert_int_equal(wb_scope_close(s), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        best = fmin(best, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    }
    return best;
}

/* Eight times the size takes about eight times as long, not sixty-four times.  Both sizes exceed
 * the caches.  Other programs disturb a measurement, so that one of several attempts must pass. */
TEST(work_is_linear)
{
    const struct { const char *what; void (*f)(int n); int n; } rows[] = {
        {"results of one evaluation", many_results, 16000}, {"layers of a chain", long_chain, 4000},
        {"parameters of an update", first_update, 500}, {"updates dropped", dropped_update, 1000},
        {"views on views", views_on_views, 10000}, {"keys of a TOML file", toml_keys, 3500},
        {"inline tables of a TOML file", toml_tables, 900},
    };
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        double few, many;
        int attempts = 0;
        do {
            few = seconds(rows[i].f, rows[i].n);
            many = seconds(rows[i].f, 8 * rows[i].n);
        } while (many > 24 * few && ++attempts < 6);
        if (attempts == 6)
            fail_msg("%s: %g s, eight times as many %g s", rows[i].what, few, many);
    }
}
