/* Prepared weights: results have the same bits with and without them, they follow every change of
 * the weights, and their memory is freed. */
#include "reference.h"

#include "weber/device.h"
#include "weber/files.h"
#include "weber/nn.h"
#include "weber/train.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/lib.h"
#include "io/dlpack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 6 };

typedef struct {
    const char *name;
    wb_layer *(*make)(void);
    int ndim;
    int64_t dims[4];
    bool by_onednn;                     /* no kernel of ours keeps prepared weights for it */
} model;

static wb_layer *rows(void) { return wb_Dense(40, 24, wb_relu); }
static wb_layer *plain(void) { return wb_Conv(24, 32, {3, 3}, wb_tanh, .stride = {2, 2}); }
static wb_layer *winograd(void) { return wb_Conv(32, 32, {3, 3}, .pad = {1, 1}); }
static wb_layer *transposed(void) { return wb_ConvTranspose(24, 32, {3, 3}, .stride = {2, 2}); }
static wb_layer *several(void)
{
    return wb_Chain(wb_Conv(3, 32, {3, 3}, wb_relu, .pad = {1, 1}), wb_GlobalMeanPool(),
                    wb_Flatten(), wb_Dense(32, 16, wb_relu), wb_Dense(16, 4));
}

static const model models[] = {
    {"rows", rows, 2, {8, 40}, false},
    {"plain", plain, 4, {2, 24, 11, 9}, true},
    {"winograd", winograd, 4, {2, 32, 16, 16}, false},
    {"transposed", transposed, 4, {1, 24, 7, 5}, true},
    {"several", several, 4, {4, 3, 12, 12}, false},
};

static int64_t prepared(void) { return wb_stats().prepared_bytes; }
#ifdef WB_HAVE_DNNL
static const bool has_onednn = true;
#else
static const bool has_onednn = false;
#endif
static bool on_cpu(void) { return !strcmp(wb_device_backend(wb_default_device()), "CPU"); }

/* The elements of m(x), in memory that the caller frees. */
static float *call(wb_layer *m, wb_tensor *x, int64_t *n)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *y = wb_call(m, x);
    assert_non_null(y);
    *n = wb_size(y);
    float *values = malloc((size_t)*n * sizeof *values);
    assert_int_equal(wb_copy_out(y, values, (size_t)*n * sizeof *values), 0);
    assert_int_equal(wb_scope_close(s), 0);
    return values;
}

static void same(const char *name, const char *what, wb_layer *m, wb_tensor *x, const float *want)
{
    int64_t n;
    float *got = call(m, x, &n);
    if (memcmp(got, want, (size_t)n * sizeof *got)) fail_msg("%s: %s", name, what);
    free(got);
}

static wb_tensor *input_of(const model *k)
{
    wb_tensor *x = wb_randn_array(WB_F32, k->ndim, k->dims);
    assert_int_equal(wb_eval(x), 0);
    return x;
}

/* A model with the parameters of m, which no evaluation has read. */
static wb_layer *fresh(wb_layer *m) { return wb_clone(m); }

static int write_tensor(wb_tensor *w, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return wb_assign(w, wb_add(wb_mul(w, wb_scalar(-0.5)), wb_scalar(0.25))) || wb_eval(w);
}

TEST_IN_SCOPE(the_same_bits)
{
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        const model *k = &models[i];
        wb_scope *s = wb_scope_open();
        wb_tensor *x = input_of(k);
        wb_layer *m = k->make();
        int64_t n, before = prepared();
        float *want = call(m, x, &n);
        same(k->name, "the second call", m, x, want);
        assert_int_equal(prepared(), before);           /* the third reading prepares */
        for (int j = 2; j < CALLS; j++) same(k->name, "a later call", m, x, want);
        if (on_cpu() && (has_onednn || !k->by_onednn) && prepared() <= before)
            fail_msg("%s: nothing was prepared", k->name);
        free(want);
        assert_int_equal(wb_scope_close(s), 0);
        assert_int_equal(prepared(), before);           /* with the model */
    }
}

TEST_IN_SCOPE(written_weights)
{
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        const model *k = &models[i];
        wb_tensor *x = input_of(k);
        wb_layer *m = k->make();
        int64_t n;
        for (int round = 0; round < 3; round++) {
            for (int j = 0; j < CALLS; j++) free(call(m, x, &n));
            assert_int_equal(wb_each_tensor(m, write_tensor, NULL), 0);
            float *want = call(fresh(m), x, &n);
            for (int j = 0; j < CALLS; j++) same(k->name, "after an assignment", m, x, want);
            free(want);
        }
        wb_object_free(m);
    }
}

/* The weights are loaded from a file, which writes their memory at once. */
TEST_IN_SCOPE(loaded_weights)
{
    char folder[] = "/tmp/weber-forms-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    const model *k = &models[4];
    wb_tensor *x = input_of(k);
    wb_layer *m = k->make(), *other = k->make();
    int64_t n;
    float *want = call(other, x, &n);
    assert_int_equal(wb_save(path, other), 0);
    for (int j = 0; j < CALLS; j++) free(call(m, x, &n));
    assert_int_equal(wb_load_state(path, m), 0);
    for (int j = 0; j < CALLS; j++) same(k->name, "after loading", m, x, want);
    free(want);
    remove(path);
    remove(folder);
}

/* Two models with one plan, in turn. */
TEST_IN_SCOPE(two_models)
{
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        const model *k = &models[i];
        wb_tensor *x = input_of(k);
        wb_layer *a = k->make(), *b = k->make();
        int64_t n;
        float *of_a = call(a, x, &n), *of_b = call(b, x, &n);
        assert_true(memcmp(of_a, of_b, (size_t)n * sizeof *of_a));
        for (int j = 0; j < CALLS; j++) {
            same(k->name, "the first of two", a, x, of_a);
            same(k->name, "the second of two", b, x, of_b);
        }
        free(of_a);
        free(of_b);
    }
}

static int call_first(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_call(ctx, in[0]);
    return out[0] ? 1 : -1;
}

TEST_IN_SCOPE(recordings)
{
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        const model *k = &models[i];
        wb_tensor *x = input_of(k);
        wb_layer *m = k->make();
        wb_compiled *c = wb_compile(call_first, m);
        for (int round = 0; round < 2; round++) {
            int64_t n;
            float *want = call(fresh(m), x, &n);
            for (int j = 0; j < CALLS; j++) {
                wb_tensor *y = NULL;
                assert_int_equal(wb_call_compiled(c, 1, &x, 1, &y), 0);
                if (memcmp(wb_data(y), want, (size_t)n * sizeof *want))
                    fail_msg("%s: replay %d of round %d", k->name, j, round);
                wb_object_free(y);
            }
            free(want);
            assert_int_equal(wb_each_tensor(m, write_tensor, NULL), 0);
        }
        wb_object_free(c);
    }
}

/* y = x·w, where w is an input of the recording: each call may have another. */
static int product(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_matmul(in[0], in[1]);
    return out[0] ? 1 : -1;
}

TEST_IN_SCOPE(weights_as_inputs)
{
    wb_compiled *c = wb_compile(product, NULL);
    wb_tensor *x = wb_randn(6, 20), *w[2] = {wb_randn(20, 12), wb_randn(20, 12)}, *want[2];
    wb_eval(x, w[0], w[1]);
    for (int i = 0; i < 2; i++) want[i] = wb_matmul(wb_add(x, wb_scalar(0)), w[i]);
    assert_int_equal(wb_eval(want[0], want[1]), 0);
    for (int j = 0; j < 4 * CALLS; j++) {
        const int i = j < CALLS ? 0 : j % 2;
        wb_tensor *y = NULL;
        assert_int_equal(wb_call_compiled(c, 2, (wb_tensor *[]){x, w[i]}, 1, &y), 0);
        for (int e = 0; e < 6 * 12; e++)
            assert_float_equal(wb_at(y, e / 12, e % 12), wb_at(want[i], e / 12, e % 12), 1e-4);
        wb_object_free(y);
    }
    wb_object_free(c);
}

/* Two kernels read the same matrix, one of them transposed: each has a form of its own. */
TEST_IN_SCOPE(two_orders)
{
    wb_tensor *w = wb_variable(wb_randn(48, 48)), *x = wb_randn(8, 48), *wants[2] = {NULL};
    wb_eval(w, x);
    for (int j = 0; j < CALLS; j++) {
        wb_tensor *y[2] = {wb_matmul(x, w), wb_matmul(x, wb_transpose(w))};
        assert_int_equal(wb_eval(y[0], y[1]), 0);
        for (int i = 0; i < 2; i++) {
            if (!j) wants[i] = y[i];
            else assert_memory_equal(wb_data(y[i]), wb_data(wants[i]), 8 * 48 * sizeof(float));
        }
    }
}

/* The program may write memory that it lends to the library at any time. */
TEST_IN_SCOPE(borrowed_weights)
{
    static _Alignas(64) float values[20 * 12];
    for (int i = 0; i < 20 * 12; i++) values[i] = (float)(i % 7);
    wb_tensor *w = wb_borrow(values, WB_F32, 2, (int64_t[]){20, 12}, NULL, NULL);
    wb_tensor *x = wb_ones(6, 20);
    for (int j = 0; j < 2 * CALLS; j++) IN_SCOPE {
        if (j == CALLS) memset(values, 0, sizeof values);
        wb_tensor *y = wb_matmul(x, w);
        assert_true(j < CALLS ? wb_at(y, 0, 0) > 0 : wb_at(y, 0, 0) == 0);
    }
}

/* A consumer may write the memory that is lent to it, though it is read-only. */
TEST_IN_SCOPE(lent_weights)
{
    wb_tensor *w = wb_variable(wb_ones(20, 12)), *x = wb_ones(6, 20);
    const int64_t before = prepared();
    int written = 1;
    for (int j = 0; j < 4 * CALLS; j++) IN_SCOPE {
        if (j % CALLS == CALLS - 1) {
            struct DLManagedTensor *m = wb_to_dlpack_unversioned(w);
            *(float *)m->tensor.data = (float)(written = j);
            m->deleter(m);
        }
        wb_tensor *y = wb_matmul(x, w);
        assert_true(wb_at(y, 0, 0) == 19 + written);
    }
    assert_int_equal(wb_assign(w, wb_zeros(20, 12)), 0);
    for (int j = 0; j < CALLS; j++) assert_true(wb_at(wb_matmul(x, w), 0, 0) == 0);
    assert_true(!on_cpu() || prepared() > before);
}

TEST_IN_SCOPE(the_limit)
{
    const model *k = &models[2];
    wb_tensor *x = input_of(k);
    wb_layer *m = k->make();
    int64_t n;
    const int64_t before = prepared();
    wb_set_prepared_weights(0);
    float *want = call(m, x, &n);
    for (int j = 0; j < CALLS; j++) same(k->name, "without prepared weights", m, x, want);
    assert_int_equal(prepared(), before);
    wb_set_prepared_weights(INT64_MAX);
    same(k->name, "with prepared weights", m, x, want);
    assert_true(!on_cpu() || prepared() > before);
    free(want);
    wb_object_free(m);
}

/* One layer is trained; the other has weights that stay, in the same plan. */
static float trained(bool prepares)
{
    wb_set_prepared_weights(prepares ? INT64_MAX : 0);
    wb_scope *s = wb_scope_open();
    wb_seed(3);
    wb_layer *m = wb_Chain(wb_Dense(20, 32, wb_tanh), wb_Dense(32, 4));
    wb_tensor *x = wb_randn(8, 20), *y = wb_randn(8, 4);
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    assert_int_equal(wb_freeze(o, "layers.0"), 0);
    float last = 0;
    for (int i = 0; i < 20; i++) IN_SCOPE {
        wb_tensor *l = wb_mse(wb_call(m, x), y);
        assert_int_equal(wb_update(o, m, wb_gradient(l, m)), 0);
        last = (float)wb_item(l);
    }
    wb_scope_close(s);
    wb_set_prepared_weights(INT64_MAX);
    return last;
}

TEST_IN_SCOPE(frozen_layers)
{
    const float with = trained(true), without = trained(false);
    assert_true(with == without);
}

/* A product has a form if the processor does not multiply its operands faster as bf16, and if the
 * form is no more than 32 MiB. */
TEST(products_with_forms)
{
    const struct { int64_t n; bool round, has; } cases[] = {
        {64, false, true}, {64, true, !wb__isa_gemm_bf16()}, {1 << 20, false, false}};
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        const int64_t n = cases[i].n, k = 16;
        const wb__matmul_desc d = {.dtype = WB_F32, .batch = {1, 1}, .m = 16, .n = n, .k = k,
                                   .a_s = {k, 1}, .b_s = {1, k}, .c_s = {n, 1}, .kept = true,
                                   .round = cases[i].round};
        wb__cpu_op *op = NULL;
        assert_int_equal(wb__cpu_matmul(&d, &op), 0);
        assert_int_equal(op->form_bytes > 0, cases[i].has);
        op->destroy(op);
    }
}

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 4 };
typedef struct { wb_layer *m; wb_tensor *x; const float *want; bool good; } shared;

static void *calls(void *ctx)
{
    shared *s = ctx;
    s->good = true;
    for (int j = 0; j < 20; j++) IN_SCOPE {
        wb_tensor *y = wb_call(s->m, s->x);
        const void *got = y ? wb_data(y) : NULL;
        s->good &= got && !memcmp(got, s->want, (size_t)wb_size(y) * sizeof(float));
    }
    return NULL;
}

static int lend(wb_tensor *w, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    struct DLManagedTensorVersioned *m = wb_to_dlpack(w);
    if (m) m->deleter(m);
    return !m;
}

/* Several threads call a model, while another exports its weights. */
TEST_IN_SCOPE(threads)
{
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        const model *k = &models[i];
        wb_tensor *x = input_of(k);
        wb_layer *m = k->make();
        int64_t n;
        float *want = call(fresh(m), x, &n);
        pthread_t all[THREADS];
        shared of[THREADS];
        for (int t = 0; t < THREADS; t++) {
            of[t] = (shared){m, x, want, false};
            assert_int_equal(pthread_create(&all[t], NULL, calls, &of[t]), 0);
        }
        for (int j = 0; j < 100; j++) wb_each_tensor(m, lend, NULL);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(all[t], NULL);
            if (!of[t].good) fail_msg("%s: thread %d", k->name, t);
        }
        free(want);
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
