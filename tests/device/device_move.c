/* Moves of tensors, layers and trees between devices, and operands on different devices.  Three
 * CPU devices are always present (WEBER_CPU_DEVICES); the devices of GPU backends that work take
 * part. */
#include "reference.h"

#include "engine/evaluate.h"
#include "weber/train.h"

enum { MOST = 8 };
static const wb_device *devices[MOST];
static int n_devices, n_cpus;

static bool same_bits(wb_tensor *x, wb_tensor *y)
{
    if (!x || !y || wb_ndim(x) != wb_ndim(y) || wb_dtype_of(x) != wb_dtype_of(y) ||
        memcmp(wb_dims(x), wb_dims(y), (size_t)wb_ndim(x) * sizeof(int64_t)))
        return false;
    size_t bytes = (size_t)wb_size(x) * wb_dtype_bytes(wb_dtype_of(x));
    const void *a = wb_data(x), *b = wb_data(y);
    return a && b && !memcmp(a, b, bytes);
}

/* ---- tensors --------------------------------------------------------------------------------- */

TEST(every_dtype_there_and_back)
{
    unsigned char bytes[8 * 24];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 % 251);
    for (int t = 1; t < WB_DTYPE_COUNT; t++)
        for (int d = 0; d < n_devices; d++) {
            if (!devices[d]->backend->has_dtype(devices[d], (wb_dtype)t)) continue;
            wb_tensor *x = wb_from(bytes, (wb_dtype)t, 3, (int64_t[]){2, 3, 4});
            wb_tensor *y = wb_to(x, devices[d], .dtype = WB_DTYPE_KEEP);
            if (!y) fail_msg("%s", wb_error());
            assert_ptr_equal(wb_device_of(y), devices[d]);
            assert_ptr_equal(wb_to(y, devices[d]), y);          /* already there: the same object */
            wb_tensor *next = wb_to(y, devices[(d + 1) % n_devices], .dtype = WB_DTYPE_KEEP);
            assert_true(!next || same_bits(next, x));   /* the next device may lack the dtype */
            wb_tensor *back = wb_cpu(y);
            assert_ptr_equal(wb_device_of(back), wb_cpu_device());
            assert_true(same_bits(back, x) && same_bits(y, x));
        }
    wb_tensor *empty = wb_to(wb_from(NULL, WB_F32, 2, (int64_t[]){0, 3}), devices[1]);
    assert_int_equal(wb_size(empty), 0);
    assert_ptr_equal(wb_to(WB_NONE, devices[1]), WB_NONE);
    assert_null(wb_to((wb_tensor *)NULL, devices[1]));
}

TEST(doubles_become_floats_on_a_gpu)
{
    wb_tensor *x = wb_from((double[]){0.1, 0.2}, WB_F64, 1, (int64_t[]){2});
    wb_tensor *same = wb_to(x, devices[1]);
    assert_int_equal(wb_dtype_of(same), WB_F64);
    assert_int_equal(wb_dtype_of(wb_to(x, devices[1], .dtype = WB_F16)), WB_F16);
    wb_tensor *again = wb_to(same, devices[1], .dtype = WB_F16);    /* there already: F64 */
    assert_int_equal(wb_dtype_of(again), WB_F16);
    REFUSED(wb_to(x, devices[1], .dtype = WB_I32), WB_ERROR_DTYPE, "floating");
    wb_tensor *i = wb_from((int64_t[]){1, 2}, WB_I64, 1, (int64_t[]){2});
    assert_int_equal(wb_dtype_of(wb_to(i, devices[1], .dtype = WB_F16)), WB_I64);
    if (n_devices == n_cpus) return;
    wb_tensor *y = wb_to(x, devices[n_cpus]);
    assert_int_equal(wb_dtype_of(y), WB_F32);
    assert_int_equal(wb_dtype_of(wb_cpu(y)), WB_F32);           /* not F64 again */
    assert_true(wb_item(wb_sum(wb_cpu(y))) != wb_item(wb_sum(x)));
}

/* Metal has no f64: the conversion is made where it is. */
TEST(floats_become_doubles_where_there_are_doubles)
{
    for (int d = 0; d < n_devices; d++) {
        wb_layer *m = wb_to(wb_Dense(3, 2), devices[d]);
        wb_tensor *w = wb_get(m, "weight"), *x = wb_to(w, devices[0], .dtype = WB_F64);
        wb_layer *there = wb_to(m, devices[0], .dtype = WB_F64);
        if (!x || !there) fail_msg("%s", wb_error());
        assert_int_equal(wb_dtype_of(x), WB_F64);
        assert_true(same_bits(x, wb_astype(wb_cpu(w), WB_F64)));
        assert_true(same_bits(x, wb_get(there, "weight")));
        wb_opt_state *s = wb_to(wb_setup(wb_Adam(), m), devices[0], .dtype = WB_F64);
        if (!s || wb_update(s, there, wb_gradient(wb_sum(wb_call(there, x)), there)))
            fail_msg("%s", wb_error());
        wb_tensor *g = wb_gradient(wb_sum(wb_square(x)), w);
        if (!g) fail_msg("%s", wb_error());
        assert_ptr_equal(wb_device_of(g), devices[d]);
        assert_true(same_bits(wb_cpu(g), wb_mul(wb_cpu(w), 2)));
    }
}

TEST(mixing_is_an_error)
{
    wb_tensor *x = wb_ones(2, 3), *y;
    assert_int_equal(wb_eval(x), 0);
    for (int d = 1; d < n_devices; d++) {
        char there[64];
        snprintf(there, sizeof there, "[2,3] f32 %s:%d", devices[d]->backend->tag,
                 devices[d]->ordinal);
        y = wb_to(x, devices[d]);
        assert_string_equal(wb_describe(y), there);
        REFUSED(wb_add(x, y), WB_ERROR_DEVICE, "add", "[2,3] f32", there, "wb_to");
        REFUSED(wb_matmul(x, wb_transpose(y)), WB_ERROR_DEVICE, "matmul");
        REFUSED(wb_concat(0, wb_ones(2, 3), x, y), WB_ERROR_DEVICE, "concat", there);
        REFUSED(wb_stack(0, y, x), WB_ERROR_DEVICE, "stack", there);
        REFUSED(wb_mse(x, y), WB_ERROR_DEVICE, "mse", there);
        REFUSED(wb_logitcrossentropy(x, y), WB_ERROR_DEVICE, "logitcrossentropy", there);
        wb_tensor *v = wb_variable(x);
        FAILS(wb_assign(v, y), WB_ERROR_DEVICE, "wb_to");
        assert_int_equal(wb_assign(v, wb_to(y, devices[0])), 0);
        wb_layer *layer = wb_to(wb_Dense(3, 2), devices[d]);
        FAILS(wb_set(layer, "weight", wb_cpu(x)), WB_ERROR_DEVICE, "set", "\"weight\"", "wb_to");
        assert_int_equal(wb_set(layer, "weight", y), 0);
        /* scalars and constant tensors are not bound to a device */
        assert_true(same_bits(wb_cpu(wb_mul(y, wb_scalar(2))), wb_mul(x, wb_scalar(2))));
        assert_true(same_bits(wb_cpu(wb_add(y, wb_zeros(2, 3))), x));
        wb_tensor *counted = wb_mul(y, wb_astype(wb_arange(3, WB_I32), WB_F32));
        assert_ptr_equal(wb_device_of(counted), devices[d]);
        assert_true(same_bits(wb_cpu(counted), wb_mul(x, wb_astype(wb_arange(3, WB_I32), WB_F32))));
    }
}

TEST(a_number_that_was_read_still_fits_everywhere)
{
    wb_tensor *two = wb_scalar(2);
    assert_true(wb_item(two) == 2);
    for (int d = 0; d < n_devices; d++) {
        wb_tensor *x = wb_to(wb_from((float[]){3}, WB_F32, 1, (int64_t[]){1}), devices[d]);
        assert_true(wb_item(wb_mul(x, two)) == 6);
    }
}

/* A move does not bind the original constant tensor to a device: it is still usable anywhere. */
TEST(numbers_that_were_moved_still_fit_everywhere)
{
    for (int d = 0; d < n_devices; d++) {
        wb_tensor *x = wb_ones(3), *counted = wb_exp(wb_arange(3, WB_F32));
        wb_tensor *in_a_tuple = wb_ones(3);
        wb_tensor *there = wb_to(x, devices[d]), *half = wb_to(x, devices[d], .dtype = WB_F16);
        wb_tensor *also = wb_to(counted, devices[d]);
        wb_tree *t = wb_to(wb_tuple(in_a_tuple), devices[d]);
        if (!there || !half || !also || !t) fail_msg("%s", wb_error());
        assert_ptr_equal(wb_device_of(wb_get(t, "0")), devices[d]);
        assert_ptr_equal(wb_device_of(also), devices[d]);
        for (int e = 0; e < n_devices; e++) {
            wb_tensor *y = wb_to(wb_rand(3), devices[e]);
            wb_tensor *like[] = {wb_full_like(y, 2), wb_rand_like(y), wb_randn_like(y)};
            for (int k = 0; k < 3; k++) assert_ptr_equal(wb_device_of(like[k]), devices[e]);
            wb_tensor *sum = wb_add(wb_add(y, x), wb_add(counted, in_a_tuple));
            if (!sum) fail_msg("%s", wb_error());
            assert_ptr_equal(wb_device_of(sum), devices[e]);
            assert_true(fabs(wb_item(wb_sum(wb_sub(sum, y))) - 17.1073) < 1e-3);
        }
        assert_true(wb_item(wb_sum(there)) == 3 && wb_item(wb_sum(half)) == 3);
        wb_tensor *g = wb_gradient(wb_sum(wb_square(there)), x);
        assert_true(g && wb_item(wb_sum(g)) == 6);
    }
}

/* A value without operands is read on one device while another device still needs it. */
TEST(numbers_in_use_belong_to_nobody)
{
    for (int d = 0; d < n_devices; d++)
        for (int e = 0; e < n_devices; e++) IN_SCOPE {
            wb_tensor *x = wb_ones(2, 3), *y = wb_add(x, x);
            wb_tensor *fives = wb_full_array(5, WB_F32, 2, (int64_t[]){2, 3});
            wb_tensor *here = wb_add(wb_to(fives, devices[d]), y);
            wb_tensor *there = wb_to(y, devices[e]);
            assert_ptr_equal(wb_device_of(here), devices[d]);
            assert_ptr_equal(wb_device_of(there), devices[e]);
            assert_true(wb_item(wb_sum(there)) == 12 && wb_item(wb_sum(x)) == 6);
            assert_true(wb_item(wb_sum(here)) == 42);
        }
}

TEST(gradients_pass_through_moves)
{
    for (int d = 0; d < n_devices; d++) {
        wb_tensor *w = wb_variable(wb_from((float[]){1, 2, 3}, WB_F32, 1, (int64_t[]){3}));
        wb_tensor *there = wb_to(wb_mul(w, w), devices[d]);
        wb_tensor *loss = wb_sum(wb_mul(there, wb_scalar(5)));
        wb_tensor *g = wb_gradient(loss, w);
        if (!g) fail_msg("%s", wb_error());
        assert_ptr_equal(wb_device_of(g), devices[0]);
        const float *at = wb_data(g);
        assert_true(at[0] == 10 && at[1] == 20 && at[2] == 30);
    }
}

/* A moved tensor is also used on its first device: the gradient's walk gets one contribution there
 * and another through the move, which it passes before tensors that are older. */
TEST(gradients_pass_beside_moves)
{
    for (int d = 0; d < n_devices; d++) {
        wb_tensor *w = wb_variable(wb_from((float[]){0.5f, 0.7f, 0.9f}, WB_F32, 1, (int64_t[]){3}));
        wb_tensor *h = wb_exp(w), *there = wb_to(wb_mul(h, h), devices[d]);
        wb_tensor *g = wb_gradient(wb_sum(wb_mul(h, wb_to(there, devices[0]))), w);
        wb_tensor *gg = wb_gradient(wb_sum(wb_square(g)), w), *ggg = wb_gradient(wb_sum(gg), w);
        if (!ggg) fail_msg("%s", wb_error());
        const float *x = wb_data(w), *at = wb_data(g), *at2 = wb_data(gg), *at3 = wb_data(ggg);
        for (int i = 0; i < 3; i++) {
            double e = exp(x[i]), e6 = e * e * e * e * e * e;
            assert_true(fabs(at[i] - 3 * e * e * e) < 1e-5 * 3 * e * e * e);
            assert_true(fabs(at2[i] - 54 * e6) < 1e-5 * 54 * e6);
            assert_true(fabs(at3[i] - 324 * e6) < 1e-5 * 324 * e6);
        }
    }
}

/* A gradient is on its parameter's device, even one that depends on constants alone and was read
 * before the update. */
TEST(gradients_are_beside_their_parameters)
{
    for (int d = 0; d < n_devices; d++) {
        wb_layer *m = wb_to(wb_Dense(3, 2), devices[d]);
        wb_tensor *x = wb_to(wb_ones(4, 3), devices[d]);
        wb_opt_state *s = wb_setup(wb_Descent(.eta = 1), m);
        wb_tree *g = wb_gradient(wb_mean(wb_call(m, x)), m);
        wb_tensor *of_bias = wb_get(g, "bias");
        assert_ptr_equal(wb_device_of(of_bias), devices[d]);
        wb_allow_scalar(true);
        assert_true(wb_at(of_bias, 1) == 0.5);
        assert_ptr_equal(wb_device_of(g), devices[d]);
        assert_int_equal(wb_update(s, m, g), 0);
        assert_true(wb_at(wb_get(m, "bias"), 0) == -0.5);
        wb_tensor *scalar = wb_variable(wb_to(wb_full_array(3, WB_F32, 0, NULL), devices[d]));
        wb_tensor *one = wb_gradient(wb_add(scalar, wb_scalar(1)), scalar);
        wb_tensor *none = wb_gradient(wb_sum(wb_get(m, "bias")), scalar);
        assert_true(wb_item(one) == 1 && wb_item(none) == 0);
        assert_ptr_equal(wb_device_of(one), devices[d]);
        assert_ptr_equal(wb_device_of(none), devices[d]);
        assert_int_equal(wb_assign(scalar, wb_sub(scalar, wb_sub(one, none))), 0);
        assert_true(wb_item(scalar) == 2);
        wb_tensor *h = wb_hessian(wb_sum(wb_get(m, "weight")), wb_get(m, "weight"));
        assert_ptr_equal(wb_device_of(h), devices[d]);
        assert_true(wb_item(wb_sum(h)) == 0);
    }
}

TEST(a_variable_by_itself_and_in_a_tuple)
{
    for (int d = 1; d < n_devices; d++) {
        wb_tensor *w = wb_variable(wb_ones(3)), *there = wb_to(w, devices[d]);
        FAILS(wb_assign(there, wb_zeros(3)), WB_ERROR_ARGUMENT, "variable", "wb_variable");
        wb_tensor *g = wb_gradient(wb_sum(there), w);
        assert_true(g && wb_item(wb_sum(g)) == 3);
        wb_tensor *also = wb_variable(there);
        wb_tensor *in_a_tuple = wb_get(wb_to(wb_tuple(w), devices[d]), "0");
        assert_int_equal(wb_assign(also, wb_zeros(3)), 0);
        assert_int_equal(wb_assign(in_a_tuple, wb_zeros(3)), 0);
        assert_true(wb_item(wb_sum(also)) == 0 && wb_item(wb_sum(in_a_tuple)) == 0);
        assert_true(wb_item(wb_sum(w)) == 3);
    }
}

static int moves_inside(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_to(in[0], ctx ? devices[1] : devices[0]);
    out[0] = wb_exp(out[0]);
    return out[0] ? 1 : -1;
}

TEST(recordings_belong_to_a_device)
{
    wb_compiled *f = wb_compile(moves_inside, NULL), *g = wb_compile(moves_inside, "move");
    wb_tensor *x = wb_from((float[]){1, 2}, WB_F32, 1, (int64_t[]){2}), *y = NULL;
    assert_int_equal(wb_call_compiled(f, 1, &x, 1, &y), 0);
    assert_true(same_bits(y, wb_exp(x)));
    assert_int_not_equal(wb_call_compiled(g, 1, &x, 1, &y), 0);
    FAILED(WB_ERROR_ARGUMENT, "to:", "wb_compile");
    x = wb_to(x, devices[1]);               /* the same shape, but recorded again for the device */
    assert_int_equal(wb_call_compiled(g, 1, &x, 1, &y), 0);
    assert_ptr_equal(wb_device_of(y), devices[1]);
}

TEST(reading_single_elements)
{
    wb_tensor *x = wb_from((float[]){1, 2, 3, 4}, WB_F32, 2, (int64_t[]){2, 2});
    wb_allow_scalar(false);
    assert_true(wb_at(wb_to(x, devices[1]), 1, 0) == 3);        /* the host's own memory */
    if (n_devices > n_cpus) {
        wb_tensor *y = wb_to(x, devices[n_cpus]);
        assert_true(isnan(wb_at(y, 1, 0)));
        FAILED(WB_ERROR_DEVICE, "Scalar indexing");
        wb_allow_scalar(true);
        assert_true(wb_at(y, 1, 0) == 3);
    }
    wb_allow_scalar(true);
}

/* After an update the host reads the new values of a variable that it read before. */
TEST(reading_again_after_an_update)
{
    for (int d = 0; d < n_devices; d++) {
        wb_tensor *start = wb_from((float[]){1, 2}, WB_F32, 1, (int64_t[]){2});
        wb_tensor *v = wb_variable(wb_to(start, devices[d]));
        for (int step = 0; step < 3; step++) {
            const float *at = wb_data(v);
            assert_true(at && at[0] == (float)(1 + step) && at[1] == (float)(2 + step));
            assert_int_equal(wb_assign(v, wb_add(v, wb_scalar(1))), 0);
            assert_int_equal(wb_eval(v), 0);
        }
    }
}

TEST(the_default_device)
{
    for (int d = n_devices - 1; d >= 0; d--) {
        wb_set_default_device(devices[d]);
        assert_ptr_equal(wb_default_device(), devices[d]);
        wb_seed(7);
        wb_tensor *x = wb_rand(3, 4), *z = wb_from((float[]){1}, WB_F32, 1, (int64_t[]){1});
        wb_layer *m = wb_Dense(4, 2);
        assert_ptr_equal(wb_device_of(x), devices[d]);
        assert_ptr_equal(wb_device_of(z), devices[d]);
        assert_ptr_equal(wb_device_of(m), devices[d]);
        wb_tensor *y = wb_call(m, x);
        assert_int_equal(wb_eval(y), 0);
        assert_ptr_equal(wb_device_of(wb_zeros(2)), devices[d]);
    }
    wb_set_default_device(NULL);
    assert_ptr_equal(wb_default_device(), wb_cpu_device());
}

/* ---- layers and trees ------------------------------------------------------------------------ */

TEST(a_model_moves_whole)
{
    wb_seed(3);
    wb_layer *m = wb_Chain(wb_Conv(1, 3, {3}, wb_relu), wb_BatchNorm(3), wb_Flatten(),
                           wb_Dense(48, 4, wb_tanh), wb_Dense(4, 4), wb_softmax);
    assert_int_equal(wb_tie(m, "layers.4.bias", "layers.3.bias"), 0);
    wb_tensor *x = wb_randn(2, 1, 6, 6), *want = wb_call(m, x);
    for (int d = 1; d < n_devices; d++) {
        wb_layer *there = wb_to(m, devices[d]);
        if (!there) fail_msg("%s", wb_error());
        assert_ptr_not_equal(there, m);
        assert_ptr_equal(wb_device_of(m), devices[0]);      /* the original stays where it was */
        assert_ptr_equal(wb_device_of(there), devices[d]);
        assert_ptr_equal(wb_to(there, devices[d]), there);
        assert_ptr_equal(wb_get(there, "layers.4.bias"), wb_get(there, "layers.3.bias"));
        assert_int_equal(wb_parameter_count(there), wb_parameter_count(m));
        assert_shown_alike(m, there);                           /* printing works anywhere */
        wb_clear_error();
        assert_null(wb_call(there, x));
        assert_int_equal(wb_error_code(), WB_ERROR_DEVICE);
        wb_tensor *y = wb_call(there, wb_to(x, devices[d]));
        assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_cpu(y), want)))) < 1e-5);
        wb_layer *back = wb_cpu(there);
        assert_true(same_bits(wb_get(back, "layers.0.weight"), wb_get(m, "layers.0.weight")));
        assert_ptr_equal(wb_get(back, "layers.4.bias"), wb_get(back, "layers.3.bias"));
    }
}

TEST(a_tree_on_two_devices_is_an_error)
{
    wb_tensor *x = wb_ones(2), *y = wb_to(wb_ones(3), devices[1]);
    assert_int_equal(wb_eval(x), 0);
    wb_tree *mixed = wb_tuple(x, wb_tuple(wb_scalar(1), y));
    REFUSED(wb_device_of(mixed), WB_ERROR_DEVICE, "\"0\"", "cpu:0", "\"1.1\"", "cpu:1");
    wb_tree *one = wb_to(mixed, devices[1]);
    assert_ptr_equal(wb_device_of(one), devices[1]);
    assert_ptr_equal(wb_get(one, "1.1"), y);                    /* not moved: the same object */
    int outside = 5;
    wb_tree *opaque = wb_tuple(wb_opaque(&outside));
    assert_ptr_equal(wb_device_of(opaque), wb_cpu_device());
    assert_ptr_equal(wb_to(opaque, devices[1]), opaque);
}

/* Random trees with ties are moved through all devices and back: values and ties are unchanged. */
static uint64_t chance = 1;
static int below(int n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int)((chance >> 33) % (uint64_t)n);
}

static void *random_tree(int depth, void **made, int *n_made)
{
    if (*n_made && !below(5)) return made[below(*n_made)];      /* a tie */
    void *object;
    if (depth && below(3)) {
        void *parts[4];
        int n = 1 + below(4);
        for (int i = 0; i < n; i++) parts[i] = random_tree(depth - 1, made, n_made);
        object = wb_tuple_array(n, parts);
    } else if (!below(4)) {
        object = wb_Dense(1 + below(4), 1 + below(4));
    } else {
        static const wb_dtype dtypes[] = {WB_F32, WB_F16, WB_BF16, WB_I32,
                                          WB_I64, WB_U8,  WB_I8,   WB_BOOL};
        unsigned char bytes[8 * 16];
        wb_dtype t = dtypes[below(8)];
        for (int i = 0; i < 8 * 16; i++) bytes[i] = (unsigned char)below(t == WB_BOOL ? 2 : 256);
        object = wb_from(bytes, t, 2, (int64_t[]){below(5), below(4)});
    }
    if (*n_made < 16) made[(*n_made)++] = object;
    return object;
}

typedef struct { wb_tensor *leaf[256]; int n; } leaves;
static int list_leaf(wb_tensor *x, const char *path, void *ctx)
{
    leaves *l = ctx;
    if (l->n < 256) l->leaf[l->n++] = x;
    return 0;
}

TEST(a_thousand_random_trees)
{
    for (int round = 0; round < 1000; round++) IN_SCOPE {
        void *made[16], *part = NULL;
        int n_made = 0;
        chance = (uint64_t)round + 1;
        part = random_tree(3, made, &n_made);
        wb_tree *tree = wb_tuple(part, random_tree(2, made, &n_made)), *moved = tree;
        for (int step = 0, at = below(n_devices); step < 3; step++, at += 1 + below(2)) {
            moved = wb_to(moved, devices[at % n_devices], .dtype = WB_DTYPE_KEEP);
            if (!moved) fail_msg("round %d: %s", round, wb_error());
        }
        leaves a = {0}, b = {0};
        wb_each_tensor(tree, list_leaf, &a);
        wb_each_tensor(moved, list_leaf, &b);
        if (a.n != b.n) fail_msg("round %d: %d distinct tensors became %d", round, a.n, b.n);
        for (int i = 0; i < a.n; i++)
            if (!same_bits(a.leaf[i], b.leaf[i])) fail_msg("round %d: tensor %d differs", round, i);
    }
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static double train_on(const wb_device *d, wb_layer **result)
{
    wb_set_default_device(d);
    wb_seed(11);
    wb_layer *m = wb_Chain(wb_Dense(5, 16, wb_tanh), wb_Dropout(0.2), wb_Dense(16, 1));
    wb_tensor *x = wb_rand(32, 5), *y = wb_rand(32, 1);
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    double last = 0;
    for (int i = 0; i < 10; i++) IN_SCOPE {
        wb_tree *g;
        wb_tensor *l = wb_withgradient(loss_of, m, ((wb_batch){.x = x, .y = y, .n = 32}), &g);
        if (!l || wb_update(o, m, g)) fail_msg("%s", wb_error());
        last = wb_item(l);
    }
    wb_set_default_device(NULL);
    *result = m;
    return last;
}

TEST(training_is_the_same_everywhere)
{
    wb_layer *m, *other;
    double want = train_on(devices[0], &m);
    for (int d = 1; d < n_devices; d++) {
        double got = train_on(devices[d], &other);
        assert_ptr_equal(wb_device_of(other), devices[d]);
        if (d < n_cpus) assert_true(got == want);
        else if (fabs(got - want) > 1e-4 * fabs(want)) fail_msg("%.9g, not %.9g", got, want);
        wb_tensor *a = wb_get(wb_cpu(other), "layers.0.weight"), *b = wb_get(m, "layers.0.weight");
        assert_true(wb_item(wb_max(wb_abs(wb_sub(a, b)))) < (d < n_cpus ? 1e-30 : 1e-4));
    }
}

/* Two models on two devices are updated in one scope; a loss that is not finite stops both. */
TEST(one_evaluation_on_several_devices)
{
    for (int d = 1; d < n_devices; d++) IN_SCOPE {
        wb_tensor *a = wb_variable(wb_from((float[]){1, 2}, WB_F32, 1, (int64_t[]){2}));
        wb_tensor *start = wb_from((float[]){3, 4}, WB_F32, 1, (int64_t[]){2});
        wb_tensor *b = wb_variable(wb_to(start, devices[d]));
        assert_ptr_equal(wb_device_of(b), devices[d]);
        wb_tensor *old = wb_mul(b, wb_scalar(10));
        assert_int_equal(wb_assign(a, wb_add(a, wb_scalar(1))), 0);
        assert_int_equal(wb_assign(b, wb_add(b, wb_scalar(1))), 0);
        wb_tensor *sum_a = wb_sum(a), *sum_b = wb_sum(b);
        assert_int_equal(wb_eval(sum_a, sum_b), 0);
        assert_true(wb_item(sum_a) == 5 && wb_item(sum_b) == 9 && wb_item(wb_sum(old)) == 70);
        wb_tensor *bad = wb_div(wb_sub(wb_sum(b), wb_sum(b)), wb_sub(wb_sum(b), wb_sum(b)));
        assert_int_equal(wb_assign(a, wb_add(a, wb_scalar(1))), 0);
        assert_int_equal(wb_assign(b, wb_add(b, wb_scalar(1))), 0);
        assert_int_equal(wb__evaluate(1, &bad, bad), WB_ERROR_NUMBER);
        assert_true(wb_item(wb_sum(a)) == 5 && wb_item(wb_sum(b)) == 9);
    }
}

int main(void)
{
    setenv("WEBER_CPU_DEVICES", "3", 1);
    n_cpus = wb_devices("CPU").n;
    for (int i = 0; i < n_cpus; i++) devices[n_devices++] = wb_device_at("CPU", i);
    const char *const *names = wb_supported_gpu_backends();
    for (int k = 0; names[k]; k++)
        for (int i = 0; !wb_using(names[k]) && i < wb_devices(names[k]).n && n_devices < MOST; i++)
            devices[n_devices++] = wb_device_at(names[k], i);
    wb_clear_error();
    print_message("on %d devices, %d of them the CPU's\n", n_devices, n_cpus);
    int failed = n_cpus == 3 ? run_all_cases() : 1;
    wb_shutdown();
    return failed;
}
