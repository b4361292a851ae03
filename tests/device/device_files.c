/* Files from and to any device: the bytes are the same for every device, and the host keeps no
 * copy. */
#include "far_device.h"
#include "reference.h"

#include "base/files/file.h"
#include "engine/request.h"
#include "optim/optim.h"
#include "tree/tree.h"

#include <unistd.h>

static const wb_device *places[MOST_PLACES];
static int n_places;
static char path[64];

/* A model with parameters, running statistics, a tied weight and an embedding. */
static wb_layer *make_model(void)
{
    wb_seed(3);
    wb_layer *m = wb_Chain(wb_Conv(1, 2, {3}, wb_relu), wb_BatchNorm(2), wb_Flatten(),
                           wb_Dense(32, 32), wb_Dense(32, 32), wb_Embedding(32, 3));
    if (!m || wb_tie(m, "layers.4.weight", "layers.3.weight")) fail_msg("%s", wb_error());
    return m;
}

static char *contents(int64_t *n)
{
    char *text = wb__file_read(path, n);
    if (!text) fail_msg("%s", wb_error());
    return text;
}

static void assert_same_file(const char *want, int64_t n_want)
{
    int64_t n;
    char *got = contents(&n);
    assert_int_equal(n, n_want);
    assert_memory_equal(got, want, (size_t)n);
    wb__free(got);
}

static int has_no_mirror(const wb__leaf *leaf, void *ctx)
{
    return leaf->x->storage && leaf->x->storage->mirror;
}

static void assert_no_mirrors(void *model)
{
    assert_int_equal(wb__walk("test", model, NULL, 0, has_no_mirror, NULL), 0);
}

static int compare(const wb__leaf *leaf, void *ctx)
{
    wb_tensor *x = leaf->x, *y = wb_get(ctx, leaf->path);
    const size_t bytes = (size_t)wb_size(x) * wb_dtype_bytes(wb_dtype_of(x));
    assert_int_equal(wb_dtype_of(x), wb_dtype_of(y));
    assert_memory_equal(wb_data(x), wb_data(y), bytes);
    return 0;
}

static void assert_same_values(void *a, void *b)
{
    assert_int_equal(wb__walk("test", a, NULL, 0, compare, b), 0);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void same_file_from_everywhere(wb_names names)
{
    char *want = NULL;
    int64_t n = 0;
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_layer *m = wb_to(make_model(), places[i]);
        if (wb_save(path, m, .names = names)) fail_msg("%s", wb_error());
        assert_no_mirrors(m);
        if (!i) want = contents(&n);
        else assert_same_file(want, n);
        assert_int_equal(wb_save(path, wb_cpu(m), .names = names), 0);  /* as in Flux's guides */
        assert_same_file(want, n);
    }
    wb__free(want);
}

TEST(a_model_is_the_same_file_from_everywhere)
{
    same_file_from_everywhere(WB_NAMES_WEBER);
    same_file_from_everywhere(WB_NAMES_TORCH);
}

/* PyTorch has one tensor where Weber has several, or a transposed one: loading to any device splits
 * or transposes them. */
TEST(other_names_to_everywhere)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_layer *make[2];
        for (int k = 0; k < 2; k++)
            make[k] = wb_Chain(wb_Conv(1, 2, {2}, .flip = true),
                               wb_MultiHeadAttention(4, 2, .bias = true), wb_GRU(2, 2));
        if (wb_save(path, wb_to(make[0], places[i]), .names = WB_NAMES_TORCH))
            fail_msg("%s", wb_error());
        for (int j = 0; j < n_places; j++) {
            wb_layer *there = wb_to(make[1], places[j]);
            if (wb_load_state(path, there, .names = WB_NAMES_TORCH)) fail_msg("%s", wb_error());
            assert_same_values(there, make[0]);
        }
    }
}

TEST(it_is_loaded_where_new_tensors_are_made)
{
    for (int i = 0; i < n_places; i++)
        for (int j = 0; j < n_places; j++) IN_SCOPE {
            wb_layer *m = wb_to(make_model(), places[i]);
            assert_int_equal(wb_save(path, m), 0);
            wb_set_default_device(places[j]);
            wb_layer *l = wb_load(path);
            if (!l) fail_msg("%s", wb_error());
            assert_int_equal(wb_save_npy(path, wb_get(l, "layers.3.weight")), 0);
            wb_tensor *data = wb_load_npy(path);        /* on the CPU */
            wb_set_default_device(NULL);
            assert_false(wb_device_is_gpu(wb_device_of(data)));
            assert_ptr_equal(wb_device_of(l), places[j]);
            assert_ptr_equal(wb_get(l, "layers.3.weight"), wb_get(l, "layers.4.weight"));
            assert_same_values(l, m);
        }
}

TEST(state_is_loaded_into_a_model_anywhere)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_layer *m = make_model(), *there = wb_to(make_model(), places[i]);
        assert_int_equal(wb_set(m, "layers.3.bias", wb_ones(32)), 0);
        assert_int_equal(wb_save(path, m), 0);
        wb_tensor *bias = wb_get(there, "layers.3.bias");
        assert_true(wb_item(wb_sum(bias)) == 0 && wb_data(bias));   /* a copy on the host exists */
        assert_int_equal(wb_load_state(path, there), 0);
        assert_ptr_equal(wb_device_of(there), places[i]);
        assert_ptr_equal(wb_get(there, "layers.3.bias"), bias);
        assert_true(wb_item(wb_sum(bias)) == 32 && ((const float *)wb_data(bias))[7] == 1);
        assert_same_values(there, m);
    }
}

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mean(wb_square(wb_sub(wb_call(m, b.x), b.y)));
}

static void step(wb_layer *m, wb_opt_state *o, int number)
{
    float x[12], y[6];
    for (int i = 0; i < 12; i++) x[i] = sinf((float)(i * (number + 1)));
    for (int i = 0; i < 6; i++) y[i] = cosf((float)(i + number));
    wb_scope *s = wb_scope_open();
    wb_batch b = {.x = wb_from(x, WB_F32, 2, (int64_t[]){3, 4}),
                  .y = wb_from(y, WB_F32, 2, (int64_t[]){3, 2}), .n = 3};
    wb_tree *g;
    if (!wb_withgradient(loss_of, m, wb_to(b, wb_device_of(m)), &g) || wb_update(o, m, g) ||
        wb_scope_close(s))
        fail_msg("%s", wb_error());
}

static wb_layer *small_model(void)
{
    wb_seed(2);
    return wb_Chain(wb_Dense(4, 8, wb_tanh), wb_Dense(8, 2));
}

TEST(what_was_trained_there_runs_here)
{
    for (int i = 1; i < n_places; i++) IN_SCOPE {
        wb_layer *m = wb_to(small_model(), places[i]);
        wb_opt_state *o = wb_setup(wb_Adam(), m);
        for (int k = 0; k < 3; k++) step(m, o, k);
        assert_int_equal(wb_save(path, m), 0);
        wb_layer *l = wb_load(path);
        assert_ptr_equal(wb_device_of(l), wb_cpu_device());
        assert_same_values(l, m);
        wb_tensor *x = wb_ones(1, 4);
        wb_tensor *here = wb_call(l, x), *there = wb_cpu(wb_call(m, wb_to(x, places[i])));
        const float *a = wb_data(here), *b = wb_data(there);
        for (int k = 0; k < 2; k++)
            assert_true(same_bits(places[i]) ? a[k] == b[k] : fabsf(a[k] - b[k]) < 1e-5f);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A checkpoint is saved on one device after two steps and restored on another: the third step has
 * the same result as without the restart. */
TEST_IN_SCOPE(training_goes_on_elsewhere)
{
    wb_layer *plain = small_model();
    wb_opt_state *p = wb_setup(wb_Adam(), plain);
    for (int k = 0; k < 3; k++) step(plain, p, k);
    char *want = NULL;
    int64_t n = 0;
    for (int i = 0; i < n_places; i++)
        for (int j = 0; j < n_places; j++) IN_SCOPE {
            wb_layer *m = wb_to(small_model(), places[i]), *l;
            wb_opt_state *o = wb_setup(wb_Adam(), m), *q;
            for (int k = 0; k < 2; k++) step(m, o, k);
            assert_int_equal(wb_freeze(o, "layers.1.bias"), 0);
            if (wb_save_checkpoint(path, &(wb_checkpoint){.model = m, .state = o, .epoch = 2}))
                fail_msg("%s", wb_error());
            assert_no_mirrors(m);
            for (int k = 0; k < o->n; k++)
                for (int a = 0; a < 2; a++) assert_null(o->slots[k].moments[a]->storage->mirror);
            if (!want) want = contents(&n);
            else if (same_bits(places[i])) assert_same_file(want, n);
            wb_set_default_device(places[j]);
            l = wb_Chain(wb_Dense(4, 8, wb_tanh), wb_Dense(8, 2));
            wb_set_default_device(NULL);
            q = wb_setup(wb_Adam(), l);
            wb_checkpoint c = {.model = l, .state = q};
            if (wb_load_checkpoint(path, &c)) fail_msg("%s", wb_error());
            assert_int_equal(c.epoch, 2);
            assert_ptr_equal(wb_device_of(l), places[j]);
            assert_ptr_equal(wb_device_of(q), places[j]);
            assert_int_equal(q->counts->slot[0].steps, 2);
            assert_true(q->slots[3].frozen);
            assert_int_equal(wb_thaw(q, ""), 0);
            step(l, q, 2);
            if (same_bits(places[i]) && same_bits(places[j])) assert_same_values(l, plain);
        }
    wb__free(want);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

TEST(arrays_are_the_same_file_from_everywhere)
{
    for (int t = 1; t < WB_DTYPE_COUNT; t++) {
        char *want = NULL;
        int64_t n = 0;
        for (int i = 0; i < n_places; i++) IN_SCOPE {
            if (!places[i]->backend->has_dtype(places[i], (wb_dtype)t)) continue;
            wb_tensor *x = wb_astype(wb_reshape(wb_arange(600, WB_I32), 20, 30), (wb_dtype)t);
            if (wb_eval(x)) fail_msg("%s", wb_error());
            x = wb_to(x, places[i], .dtype = WB_DTYPE_KEEP);
            assert_int_equal(wb_save_npy(path, x), 0);
            assert_null(x->storage->mirror);
            if (!i) want = contents(&n);
            else assert_same_file(want, n);
        }
        wb__free(want);
    }
}

/* An array of three megabytes is read through a buffer of one megabyte. */
TEST_IN_SCOPE(large_ones_are_read_in_parts)
{
    wb_tensor *x = wb_to(wb_rand(3 * 262144 + 5), far_device());
    wb_tree *tree = wb_tuple(x);
    wb_layer *m = wb_to(wb_Dense(600, 600), far_device());
    const int64_t before = wb_memory_used();
    far_forget();
    assert_int_equal(wb_save(path, tree), 0);
    assert_int_equal(far_count().downloads, 4);
    assert_int_equal(wb_save_npy(path, x), 0);
    assert_int_equal(far_count().downloads, 8);
    assert_int_equal(far_count().down_bytes, 2 * 4 * wb_size(x));
    wb_free_text(wb_object_format(m));
    assert_true(wb_memory_used() - before < 1 << 16);
    wb_tensor *back = wb_load_npy(path);
    assert_memory_equal(wb_data(back), wb_data(wb_cpu(x)), 4 * (size_t)wb_size(x));
}

/* ---- printing -------------------------------------------------------------------------------- */

TEST(printing_works_everywhere)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        wb_layer *here = make_model(), *m = wb_to(here, places[i]);
        char *want = wb_object_format(here), *got = wb_object_format(m);
        assert_string_equal(got, want);
        assert_no_mirrors(m);
        wb_free_text(want);
        wb_free_text(got);
        wb_layer *bad = wb_Dense(2, 2);                 /* printing reports NaN in parameters */
        wb_tensor *bias = wb_from((float[]){0, NAN}, WB_F32, 1, (int64_t[]){2});
        assert_int_equal(wb_set(bad, "bias", bias), 0);
        got = wb_object_format(wb_to(bad, places[i]));
        assert_non_null(strstr(got, "NaN"));
        wb_free_text(got);
        wb_tensor *x = wb_to(wb_reshape(wb_arange(40, WB_I32), 4, 10), places[i]);
        got = wb_object_format(x);
        want = wb_object_format(wb_reshape(wb_arange(40, WB_I32), 4, 10));
        assert_string_equal(strchr(got, '\n'), strchr(want, '\n'));
        assert_true(i == 0 || strstr(got, places[i]->backend->tag));
        if (x->storage) assert_null(x->storage->mirror);
        wb_free_text(want);
        wb_free_text(got);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static void assert_whole_file(const char *old, int64_t n_old, wb_layer *saved)
{
    int64_t n;
    char *now = contents(&n);
    if (n != n_old) assert_same_values(wb_load(path), saved);
    else assert_memory_equal(now, old, (size_t)n);
    wb__free(now);
}

/* The n-th call of the device, allocation or call for a file fails while saving and loading: the
 * path then has the old file or the new one, whole, and the next attempt works. */
static void failing_files(void (*fail_at)(int64_t), const char *what)
{
    int failures = 0;
    int64_t n_old;
    wb_scope *outer = wb_scope_open();
    wb_layer *other = small_model();
    assert_int_equal(wb_save(path, other), 0);
    char *old = contents(&n_old);
    for (int64_t n = 1;; n++) {
        wb_scope *s = wb_scope_open();
        const int before = failures;
        wb_layer *m = wb_to(make_model(), far_device()), *l = wb_to(make_model(), far_device());
        assert_int_equal(wb_set(m, "layers.3.bias", wb_to(wb_ones(32), far_device())), 0);
        wb__free(old);
        assert_int_equal(wb_save(path, other), 0);
        old = contents(&n_old);
        fail_at(n);
        if (wb_save(path, m)) {
            failures++;
            assert_true(wb_error()[0]);
            fail_at(0);
            assert_whole_file(old, n_old, m);
            assert_int_equal(wb_save(path, m), 0);
        }
        if (wb_load_state(path, l)) {
            failures++;
            assert_true(wb_error()[0]);
            fail_at(0);
            if (wb_load_state(path, l)) fail_msg("%s", wb_error());
        }
        fail_at(0);
        assert_same_values(l, m);
        assert_no_mirrors(other);
        assert_int_equal(wb_scope_close(s), 0);
        if (failures == before) break;
    }
    wb__free(old);
    assert_true(failures > 5);
    assert_int_equal(wb_scope_close(outer), 0);
    print_message("%s: %d places\n", what, failures);
}

TEST(failing_calls)
{
    failing_files(far_fail_at, "call of the device");
}

TEST(failing_allocations)
{
    failing_files(wb__alloc_fail_at, "allocation");
}

TEST(failing_io)
{
    failing_files(wb__io_fail_at, "file call");
}

TEST_IN_SCOPE(a_dtype_that_is_not_there)
{
    wb_layer *m = wb_to(small_model(), places[0], .dtype = WB_F64);
    assert_int_equal(wb_save(path, m), 0);
    assert_int_not_equal(wb_load_state(path, wb_to(m, far_device())), 0);   /* f32 there: strict */
    FAILED(WB_ERROR_FORMAT, "f64", "f32");
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/weber-files-%ld", (long)getpid());
    const int failed = run_everywhere(places, &n_places);
    unlink(path);
    return failed;
}
