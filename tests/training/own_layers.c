/* Structs of the program as layers (WB_LAYER), and layers with several outputs. */
#include "test.h"

#include "io/model/structure.h"

#include "folder.h"

static void close_to(wb_tensor *x, wb_tensor *y, double tolerance)
{
    const double apart = wb_item(wb_max(wb_abs(wb_sub(x, y))));
    if (!(apart <= tolerance)) fail_msg("apart: %g; %s", apart, wb_error());
}

static void same_bits(wb_tensor *x, wb_tensor *y)
{
    assert_string_equal(wb_describe(x), wb_describe(y));
    assert_memory_equal(wb_data(x), wb_data(y), (size_t)wb_size(x) * sizeof(float));
}

/* ---- a struct with a parameter, a layer and numbers ------------------------------------------ */

typedef struct {
    wb_tensor *gain;
    wb_layer *inner;
    double slope;
    int64_t power;
    wb_function after;
    void *not_listed;
} scaled;

static wb_tensor *call_scaled(const scaled *s, wb_tensor *x)
{
    wb_tensor *y = wb_add(wb_mul(s->gain, wb_call(s->inner, x)), wb_mul(x, s->slope));
    for (int64_t i = 1; i < s->power; i++) y = wb_mul(y, y);
    return s->after ? s->after(y) : y;
}
WB_LAYER(scaled, call_scaled, gain, inner, slope, power, after)

static wb_layer *new_scaled(int n, double slope)
{
    return wb_layer_of(scaled, .gain = wb_variable(wb_full(0.5, n)), .inner = wb_Dense(n, n),
                       .slope = slope, .power = 1, .after = wb_tanh);
}

/* ---- a struct that counts its calls in a statistic ------------------------------------------- */

typedef struct { wb_tensor *calls, *mean; } counter;
static wb_tensor *call_counter(const counter *c, wb_tensor *x)
{
    if (wb_in_trainmode() && wb_assign(c->calls, wb_add(c->calls, 1))) return NULL;
    return wb_sub(x, c->mean);
}
WB_LAYER(counter, call_counter, calls, mean)

static wb_layer *new_counter(double calls, double mean, int n)
{
    return wb_layer_of(counter, wb_full_array(calls, WB_F32, 0, NULL), wb_full(mean, n));
}

/* ---- a struct with two inputs and two outputs ------------------------------------------------ */

typedef struct { wb_layer *left, *right; } crossed;
static int call_crossed(const crossed *c, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    wb_tensor *second = inputs[n == 2];
    outputs[0] = wb_call(c->left, second);
    outputs[1] = wb_call(c->right, inputs[0]);
    return outputs[0] && outputs[1] ? 2 : -1;
}
WB_LAYER(crossed, call_crossed, left, right)

/* ---- a struct with numbers without a sign ---------------------------------------------------- */

typedef struct { uint64_t key; unsigned count; int64_t least; } keyed;
static wb_tensor *call_keyed(const keyed *k, wb_tensor *x) { return wb_mul(x, (double)k->count); }
WB_LAYER(keyed, call_keyed, key, count, least)

TEST_IN_SCOPE(numbers_without_a_sign)
{
    wb_layer *m = wb_Chain(wb_layer_of(keyed, UINT64_MAX, 3000000000u, -1), wb_relu);
    const char *path = in_folder("keyed.safetensors");
    assert_int_equal(wb_name_struct(keyed), 0);
    if (wb_save(path, m)) fail_msg("%s", wb_error());
    wb_layer *both[] = {m, wb_load(path)};
    for (int i = 0; i < 2; i++) {
        if (!both[i]) fail_msg("%s", wb_error());
        char *text = wb_object_format(both[i]);
        assert_non_null(strstr(text, "keyed(key = 18446744073709551615, count = 3000000000, "
                                     "least = -1)"));
        wb_free_text(text);
        assert_true(wb_item(wb_call(both[i], wb_ones(1))) == 3e9f);
    }
}

TEST_IN_SCOPE(calls_prints_and_counts)
{
    wb_seed(1);
    wb_layer *own = new_scaled(3, 0.25), *m = wb_Chain(wb_Dense(2, 3, wb_relu), own);
    wb_tensor *x = wb_randn(4, 2);
    wb_tensor *h = wb_call(wb_layer_at(m, "layers.0"), x);
    wb_tensor *inner = wb_linear(h, wb_get(m, "layers.1.inner.weight"),
                                 wb_get(m, "layers.1.inner.bias"));
    wb_tensor *expected = wb_tanh(wb_add(wb_mul(inner, 0.5), wb_mul(h, 0.25)));
    close_to(wb_call(m, x), expected, 1e-6);
    assert_int_equal(wb_parameter_count(m), 9 + 3 + 9 + 3);
    char *text = wb_object_format(m);
    assert_true(HAS_LINE(text, "scaled("));
    assert_true(HAS_LINE(text, "gain", "[3] f32"));
    assert_true(HAS_LINE(text, "inner", "Dense(3", "12", "parameters"));
    assert_true(HAS_LINE(text, "slope", "0.25"));
    assert_true(HAS_LINE(text, "power", "1"));
    assert_true(HAS_LINE(text, "after", "tanh"));
    assert_true(HAS_LINE(text, "Total:", "5 arrays"));
    wb_free_text(text);
    scaled s;
    assert_int_equal(wb_struct_get(scaled, own, &s), 0);
    assert_ptr_equal(s.gain, wb_get(m, "layers.1.gain"));
    assert_true(s.slope == 0.25 && s.power == 1 && s.after == wb_tanh);
}

static wb_tensor *squares(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

TEST_IN_SCOPE(trains_ties_and_moves)
{
    wb_seed(2);
    wb_layer *m = wb_Chain(wb_Dense(2, 3), new_scaled(3, 0.25), new_scaled(3, -0.5));
    assert_int_equal(wb_tie(m, "layers.2.gain", "layers.1.gain"), 0);
    assert_int_equal(wb_set(m, "layers.1.inner.bias", wb_full(0.125, 3)), 0);
    wb_tensor *x = wb_randn(8, 2), *y = wb_randn(8, 3);
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(squares, m, wb_batch_of(x, y), &grads);
    assert_non_null(loss);
    assert_ptr_equal(wb_get(m, "layers.1.gain"), wb_get(m, "layers.2.gain"));
    /* the gradient of the shared gain against a difference */
    const double before = wb_item(loss), slope = wb_at(wb_get(grads, "layers.1.gain"), 0);
    wb_tensor *gain = wb_get(m, "layers.1.gain");
    wb_assign(gain, wb_add(gain, wb_from(((float[]){1e-3f, 0, 0}), WB_F32, 1, (int64_t[]){3})));
    const double after = wb_item(wb_mse(wb_call(m, x), y));
    assert_true(fabs((after - before) / 1e-3 - slope) < 0.02 * fabs(slope) + 1e-3);
    wb_opt_state *state = wb_setup(wb_Adam(0.01), m);
    wb_loader *data = wb_dataloader(wb_dataset_of(x, y), 8);
    assert_int_equal(wb_train(squares, m, data, state, .epochs = 30), 0);
    assert_true(wb_item(wb_mse(wb_call(m, x), y)) < before);
    wb_layer *wide = wb_to(wb_cpu(m), wb_cpu_device(), .dtype = WB_F64);
    assert_int_equal(wb_dtype_of(wb_get(wide, "layers.1.gain")), WB_F64);
    wb_tensor *wide_x = wb_to(wb_cpu(x), wb_cpu_device(), .dtype = WB_F64);
    assert_int_equal(wb_dtype_of(wb_call(wide, wide_x)), WB_F64);
}

TEST_IN_SCOPE(statistics_and_modes)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 2), new_counter(0, 0.5, 2));
    assert_int_equal(wb_parameter_count(m), 6);
    wb_tensor *x = wb_ones(1, 2);
    wb_call(m, x);
    assert_true(wb_item(wb_get(m, "layers.1.calls")) == 0);
    assert_non_null(wb_withgradient(squares, m, wb_batch_of(x, x), NULL));
    assert_true(wb_item(wb_get(m, "layers.1.calls")) == 1);
    wb_testmode(m);
    assert_non_null(wb_withgradient(squares, m, wb_batch_of(x, x), NULL));
    assert_true(wb_item(wb_get(m, "layers.1.calls")) == 1);
    wb_trainmode(m);
    wb_call(m, x);
    assert_true(wb_item(wb_get(m, "layers.1.calls")) == 2);
    assert_false(wb_in_trainmode());
}

TEST_IN_SCOPE(files)
{
    wb_seed(3);
    wb_layer *m = wb_Chain(wb_Dense(2, 3), new_scaled(3, 0.1), new_counter(0, 0.5, 3));
    wb_testmode(wb_layer_at(m, "layers.2"));
    wb_tensor *x = wb_randn(4, 2);
    const char *path = in_folder("own.safetensors");
    if (wb_save(path, m)) fail_msg("%s", wb_error());
    wb_layer *read = wb_load(path);
    if (!read) fail_msg("%s", wb_error());
    same_bits(wb_call(read, x), wb_call(m, x));
    assert_int_equal(wb_parameter_count(read), wb_parameter_count(m));
    scaled s;
    assert_int_equal(wb_struct_get(scaled, wb_layer_at(read, "layers.1"), &s), 0);
    assert_true(s.slope == 0.1 && s.power == 1 && s.after == wb_tanh);
    assert_null(s.not_listed);
    assert_shown_alike(m, read);
    assert_int_equal(wb_save(in_folder("own.bson"), m), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "Flux", "layers.1", "scaled", "layers.2", "counter");

    wb_opt_state *state = wb_setup(wb_Momentum(0.1), m);
    path = in_folder("own_checkpoint.safetensors");
    assert_int_equal(wb_save_checkpoint(path, &(wb_checkpoint){.model = m, .state = state}), 0);
    wb_layer *other = wb_Chain(wb_Dense(2, 3), new_scaled(3, 0.1), new_counter(1, 1, 3));
    wb_opt_state *other_state = wb_setup(wb_Momentum(0.1), other);
    wb_checkpoint c = {.model = other, .state = other_state};
    if (wb_load_checkpoint(path, &c)) fail_msg("%s", wb_error());
    same_bits(wb_call(other, x), wb_call(m, x));
}

/* Builds a scaled from its description, in which `old` is replaced by `new`. */
static void *built_with(const char *old, const char *new)
{
    char *text = wb__structure_text(new_scaled(2, 0.5)), changed[2000];
    char *at = strstr(text, old);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    wb__free(text);
    return wb__structure_build("file", changed, 1000);
}

/* A program that has not registered the struct cannot load it; one whose struct has other fields
 * neither. */
TEST_IN_SCOPE(files_of_other_structs)
{
    assert_non_null(built_with("scaled", "scaled"));
    REFUSED(built_with("scaled", "shifted"), WB_ERROR_FORMAT, "file", "shifted",
            "wb_name_struct(shifted)");
    REFUSED(built_with("\"slope\"", "\"tilt\""), WB_ERROR_FORMAT, "file", "scaled", "\"tilt\"");
    REFUSED(built_with("\"slope\":0.5,", ""), WB_ERROR_FORMAT, "file", "scaled", "\"slope\"");
    REFUSED(built_with("\"name\":\"gain\"", "\"name\":\"gaim\""), WB_ERROR_FORMAT, "file",
            "scaled", "\"gain\"");
    REFUSED(built_with("\"power\":1", "\"power\":1.5"), WB_ERROR_FORMAT, "file", "power",
            "scaled");
    REFUSED(built_with("\"after\":\"tanh\"", "\"after\":\"tahn\""), WB_ERROR_FORMAT, "file",
            "tahn", "wb_name_function");
    REFUSED(built_with("\"shape\":[2]", "\"shape\":[2.5]"), WB_ERROR_FORMAT, "file", "shape");
    REFUSED(built_with("\"shape\":[2]", "\"shape\":[-2]"), WB_ERROR_SHAPE, "file", "-2");
    REFUSED(built_with("\"tensor\":\"f32\"", "\"tensor\":\"f31\""), WB_ERROR_FORMAT, "file",
            "dtype");
    REFUSED(built_with("\"parts\":[", "\"parts\":[{\"name\":\"more\",\"tensor\":\"none\"},"),
            WB_ERROR_FORMAT, "file", "scaled", "\"more\"");
}

/* Two structs of two source files may have one name and the same fields. */
static int call_doubled(const void *self, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    (void)n;
    outputs[0] = wb_mul(((const scaled *)self)->gain, wb_mul(inputs[0], 2));
    return 1;
}

TEST_IN_SCOPE(two_structs_of_one_name)
{
    static wb_struct_type other;
    other = scaled_wb_type;
    other.call = call_doubled;
    wb_layer *m = new_scaled(2, 0.5);
    scaled s;
    WORKS(wb_struct_get(scaled, m, &s));
    wb_layer *l = wb_layer_typed(&other, &s);
    MADE(l);
    wb_tensor *x = wb_ones(1, 2);
    assert_true(wb_at(wb_call(l, x), 0, 0) == 1);
    close_to(wb_call(m, x), call_scaled(&s, x), 1e-6);
    WORKS(wb_save(in_folder("one_name.safetensors"), l));
    close_to(wb_call(wb_load(in_folder("one_name.safetensors")), x), call_scaled(&s, x),
             1e-6);
}

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct { wb_layer *actor; wb_tensor *rate; int steps; } pair;
WB_FUNCTOR(pair, actor, rate, steps)

static wb_tensor *pair_loss(wb_layer *model, wb_batch b, void *ctx)
{
    pair p;
    if (wb_struct_get(pair, model, &p)) return NULL;
    return wb_mse(wb_mul(wb_call(p.actor, b.x), p.rate), b.y);
}

TEST_IN_SCOPE(trees_are_models)
{
    wb_tree *t = wb_struct(pair, &((pair){wb_Dense(2, 1), wb_variable(wb_ones(1)), 7}));
    wb_tensor *x = wb_randn(4, 2), *y = wb_zeros(4, 1);
    const wb_batch b = {.x = x, .y = y, .n = 4};
    wb_tree *grads;
    assert_non_null(wb_withgradient(pair_loss, t, b, &grads));
    assert_int_equal(wb_size(wb_get(grads, "actor.weight")), 2);
    wb_opt_state *state = wb_setup(wb_Descent(0.1), t);
    const double before = wb_item(pair_loss((wb_layer *)t, b, NULL));
    assert_int_equal(wb_train(pair_loss, t, wb_dataloader(wb_dataset_of(x, y), 4), state,
                              .epochs = 20), 0);
    assert_true(wb_item(pair_loss((wb_layer *)t, b, NULL)) < before);
    REFUSED(wb_withgradient(pair_loss, x, b, &grads), WB_ERROR_ARGUMENT,
            "withgradient", "tensor", "layer", "tree");

    wb_tree *both = wb_named_tuple(2, (const char *[]){"p", "m"},
                                   (void *[]){t, wb_Chain(wb_Dense(1, 1))});
    static const char *const names[] = {"tree.safetensors", "tree.bson"};
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        const char *path = in_folder(names[i]);
        assert_int_equal(wb_save(path, both), 0);
        wb_tree *read = wb_load_tree(path);
        if (!read) fail_msg("%s: %s", names[i], wb_error());
        pair p;
        assert_int_equal(wb_struct_get(pair, wb_child(read, "p"), &p), 0);
        assert_int_equal(p.steps, 7);
        same_bits(wb_call(p.actor, x), wb_call(wb_layer_at(t, "actor"), x));
        REFUSED(wb_load(path), WB_ERROR_FORMAT, "tree", "wb_load_tree");
        assert_int_equal(wb_save(path, wb_Dense(1, 1)), 0);
        REFUSED(wb_load_tree(path), WB_ERROR_FORMAT, "layer", "wb_load");
    }
}

/* ---- several outputs ------------------------------------------------------------------------- */

TEST_IN_SCOPE(several_outputs)
{
    wb_layer *a = wb_Dense(2, 2), *b = wb_Dense(2, 3);
    wb_layer *own = wb_layer_of(crossed, a, b), *m = wb_Chain(wb_Parallel(wb_separate, a, a), own);
    wb_tensor *x = wb_randn(4, 2), *y[3];
    assert_int_equal(wb_call_outputs(m, 1, &x, 2, y), 0);
    close_to(y[0], wb_call(a, wb_call(a, x)), 1e-6);
    close_to(y[1], wb_call(b, wb_call(a, x)), 1e-6);
    REFUSED(wb_call(m, x), WB_ERROR_ARGUMENT, "Chain", "2", "wb_call_outputs");
    FAILS(wb_call_outputs(m, 1, &x, 3, y), WB_ERROR_ARGUMENT, "call_outputs", "Chain", "2", "3");
    assert_null(y[0]);
    assert_int_equal(wb_call_outputs(wb_Dense(2, 1), 1, &x, 1, y), 0);
    REFUSED(wb_call(wb_SkipConnection(own, wb_add), x), WB_ERROR_ARGUMENT, "layers", "crossed",
            "2");
    REFUSED(wb_call(wb_Parallel(wb_add, own, own), x), WB_ERROR_ARGUMENT, "layers.0", "crossed");
    REFUSED(wb_separate(x, x), WB_ERROR_ARGUMENT, "separate", "Parallel");

    wb_layer *p = wb_PairwiseFusion(wb_add, a, a, b);
    wb_tensor *in[3] = {x, wb_square(x), wb_neg(x)};
    wb_tensor *first = wb_call(a, in[0]), *second = wb_call(a, wb_add(first, in[1]));
    assert_int_equal(wb_call_outputs(p, 3, in, 3, y), 0);
    close_to(y[0], first, 1e-6);
    close_to(y[1], second, 1e-6);
    close_to(y[2], wb_call(b, wb_add(second, in[2])), 1e-6);
    assert_int_equal(wb_call_outputs(p, 1, &x, 3, y), 0);
    close_to(y[1], wb_call(a, wb_add(first, x)), 1e-6);
    REFUSED(wb_call_array(p, 2, in), WB_ERROR_ARGUMENT, "PairwiseFusion", "3", "2");
    const char *path = in_folder("fusion.safetensors");
    assert_int_equal(wb_save(path, wb_Chain(p, m)), 0);
    assert_shown_alike(wb_Chain(p, m), wb_load(path));
}

/* ---- wrong uses ------------------------------------------------------------------------------ */

typedef struct { wb_layer *inner; } failing;
static int how;
static int call_failing(const failing *f, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    if (how == 0) return wb_call(f->inner, inputs[0]) ? 1 : -1;
    outputs[0] = how == 1 ? NULL : how == 2 ? (wb_tensor *)f->inner : inputs[0];
    return how == 3 ? 17 : how == 4 ? 0 : how == 5 ? -1 : 1;
}
WB_LAYER(failing, call_failing, inner)

typedef struct { int n; } Dense;
static wb_tensor *call_dense(const Dense *d, wb_tensor *x) { return x; }
WB_LAYER(Dense, call_dense, n)

static const wb_field other_fields[] = {{"gain", 0, WB_FIELD_OBJECT}};
static int call_other(const void *s, int n, wb_tensor *const *in, wb_tensor **out) { return -1; }

TEST_IN_SCOPE(wrong_uses)
{
    wb_tensor *x = wb_ones(1, 2);
    REFUSED(wb_layer_of(scaled, .inner = wb_Dense(2, 2)), WB_ERROR_ARGUMENT, "scaled", "gain",
            "NULL");
    REFUSED(wb_layer_of(failing, (wb_layer *)wb_Adam()), WB_ERROR_ARGUMENT, "failing", "inner",
            "rule");
    REFUSED(wb_layer_of(Dense, 1), WB_ERROR_ARGUMENT, "layer", "library", "Dense");
    REFUSED(wb_layer_typed(&pair_wb_type, &(pair){0}), WB_ERROR_ARGUMENT, "pair", "WB_LAYER");
    const wb_struct_type twin = {"scaled", sizeof(void *), 1, other_fields, call_other};
    assert_int_equal(wb_name_struct(scaled), 0);
    FAILS(wb_name_struct_typed(&twin), WB_ERROR_ARGUMENT, "name_struct", "scaled");
    static const wb_field nameless[] = {{NULL, 0, WB_FIELD_INT64}};
    static const wb_field far[] = {{"n", 64, WB_FIELD_INT64}};
    static const struct { wb_struct_type type; const char *fact; } none[] = {
        {{0}, "has no name"}, {{"", 8, 0, NULL, NULL}, "has no name"},
        {{"empty", 8, 2, NULL, call_other}, "2 fields"}, {{"less", 8, -1, far, NULL}, "-1 fields"},
        {{"nameless", 8, 1, nameless, call_other}, "has no name"},
        {{"far", 64, 1, far, call_other}, "behind its end"}};
    char value[64] = {0};
    wb_tree *tree = wb_tuple(x);
    for (size_t i = 0; i < WB__COUNT(none); i++) {
        const wb_struct_type *type = &none[i].type;
        REFUSED(!wb_name_struct_typed(type), WB_ERROR_ARGUMENT, "name_struct", none[i].fact);
        REFUSED(wb_layer_typed(type, value), WB_ERROR_ARGUMENT, "layer_of", none[i].fact);
        REFUSED(wb_struct_typed(type, value), WB_ERROR_ARGUMENT, "struct", none[i].fact);
        REFUSED(!wb_struct_get_typed(type, tree, value), WB_ERROR_ARGUMENT, "struct_get",
                none[i].fact);
    }
    REFUSED(!wb_name_struct_typed(NULL), WB_ERROR_ARGUMENT, "name_struct", "NULL");

    wb_layer *m = wb_Chain(wb_layer_of(failing, wb_Chain(wb_Dense(3, 3))));
    REFUSED(wb_call(m, x), WB_ERROR_SHAPE, "layers.0.inner.layers.0", "Dense", "3", "[1,2] f32");
    const char *facts[] = {"", "an operand is NULL", "an operand is a layer, not a tensor",
                           "gives 17 outputs", "gives 0 outputs", "for 1 input, and nothing"};
    for (how = 1; how <= 5; how++) {
        REFUSED(wb_call(m, x), WB_ERROR_ARGUMENT, "layers.0", "failing", facts[how]);
    }
    how = 0;
    wb_layer *own = new_scaled(2, 0);
    REFUSED(wb_call(own, x, x), WB_ERROR_ARGUMENT, "scaled", "one", "2");
    scaled s;
    FAILS(wb_struct_get(scaled, m, &s), WB_ERROR_ARGUMENT, "struct_get", "Chain", "scaled");
}

/* ---- failures of the program (wb_fail) ------------------------------------------------------- */

typedef struct { wb_layer *inner; } picky;
static wb_tensor *call_picky(const picky *p, wb_tensor *x)
{
    if (wb_dim(x, 1) > 2)
        return wb_fail(WB_ERROR_SHAPE, "picky: %d columns of %s", 7, wb_describe(x)), NULL;
    return wb_call(p->inner, x);
}
WB_LAYER(picky, call_picky, inner)

static wb_tensor *failing_loss(wb_layer *m, wb_batch b, void *ctx)
{
    return ctx ? (wb_fail(WB_ERROR_FILE, "no target for batch %d", 5), NULL) : NULL;
}

static int failing_source(int64_t i, void *x, void *y, void *ctx)
{
    if (i == 3) return wb_fail(WB_ERROR_FORMAT, "row %d is torn", 9);
    memset(x, 0, 2 * sizeof(float));
    memset(y, 0, 2 * sizeof(float));
    return 0;
}

static int failing_copy(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    return wb_fail(WB_ERROR_UNSUPPORTED, "copy: no licence %s", "key");
}

/* Fails with the code that a loss has which is not finite, or clears its own failure. */
static int diverging(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    wb_fail(WB_ERROR_NUMBER, "solver: did not converge");
    if (*(bool *)ctx) wb_clear_error();
    return 1;
}

static int diverging_record(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_host_operation(diverging, ctx, WB_F32, 1, (int64_t[]){2}, 1, in);
    return out[0] ? 1 : -1;
}

static wb_tensor *failing_rule(wb_rule_step *s, void *ctx)
{
    return *(int *)ctx ? (wb_fail(WB_ERROR_NUMBER, "halved: eta is %g", 0.5), NULL) : NULL;
}

static int failing_record(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    return wb_fail(WB_ERROR_SHAPE, "recorded: %d", 12), -1;
}

TEST_IN_SCOPE(failures_of_the_program)
{
    wb_tensor *x = wb_ones(4, 2), *wide = wb_ones(1, 3);
    wb_layer *own = wb_layer_of(picky, wb_layer_of(picky, wb_Dense(2, 2)));
    wb_layer *m = wb_Chain(wb_Dense(3, 3), wb_layer_of(picky, wb_Dense(2, 2)));
    REFUSED(wb_call(m, wide), WB_ERROR_SHAPE, "layers.1: picky: 7 columns of", "[1,3] f32");
    MADE(wb_call(own, x));
    m = wb_layer_of(picky, wb_Chain(wb_Dense(2, 3), own));
    REFUSED(wb_call(m, x), WB_ERROR_SHAPE, "inner.layers.1: picky: 7 columns");

    const wb_batch b = wb_batch_of(x, x);
    REFUSED(wb_withgradient(failing_loss, own, b, NULL, x), WB_ERROR_FILE, "batch 5");
    wb_tree *grads;
    REFUSED(wb_withgradient(failing_loss, own, b, &grads), WB_ERROR_ARGUMENT, "loss", "wb_fail");
    how = 5;
    REFUSED(wb_call(wb_layer_of(failing, own), x), WB_ERROR_ARGUMENT, "failing", "wb_fail");
    how = 0;
    const wb_dataset_source source = {.size = sizeof source, .n = 6, .get = failing_source,
                                      .x_ndim = 1, .x_dims = {2}, .y_ndim = 1, .y_dims = {2}};
    wb_loader *data = wb_to(wb_dataloader(wb_dataset_from(&source), 2), wb_device_of(x));
    FAILS(wb_train(squares, own, data, wb_setup(wb_Adam(), own)), WB_ERROR_FORMAT, "observation 3",
          "row 9 is torn");
    wb_tensor *near = wb_cpu(x);            /* host operations are on the CPU */
    wb_tensor *copy = wb_host_operation(failing_copy, NULL, WB_F32, 1, (int64_t[]){2}, 1, &near);
    FAILS(wb_eval(copy), WB_ERROR_ARGUMENT, "copy: no licence key");
    static bool clears;
    for (int i = 0; i < 2; i++, clears = true) {
        const char *what = clears ? "returned 1" : "did not converge";
        wb_tensor *y = wb_host_operation(diverging, &clears, WB_F32, 1, (int64_t[]){2}, 1, &near);
        FAILS(wb_eval(y), WB_ERROR_ARGUMENT, what);
        float numbers[2];
        FAILS(wb_copy_out(y, numbers, sizeof numbers), WB_ERROR_ARGUMENT, what);
        wb_compiled *step = wb_compile(diverging_record, &clears);
        FAILS(wb_call_compiled(step, 1, &near, 1, &y), WB_ERROR_ARGUMENT, what);
    }
    static int fails = 1;
    static const wb_rule_type halved = {"halved", failing_rule, .ctx = &fails, .eta = 0.5};
    for (; fails >= 0; fails--) {
        wb_opt_state *state = wb_setup(wb_CustomRule(&halved), own);
        data = wb_dataloader(wb_dataset_of(x, x), 4);
        FAILS(wb_train(squares, own, data, state), fails ? WB_ERROR_NUMBER : WB_ERROR_ARGUMENT,
              "halved", fails ? "eta is 0.5" : "wb_fail");
    }
    wb_tensor *out;
    wb_compiled *recorded = wb_compile(failing_record, NULL);
    FAILS(wb_call_compiled(recorded, 1, &x, 1, &out), WB_ERROR_SHAPE, "recorded: 12");
}

TEST_IN_SCOPE(any_code_and_text)
{
    FAILS(wb_fail(WB_ERROR_MEMORY, "%s of %d", "all", 2), WB_ERROR_MEMORY, "all of 2");
    FAILS(wb_fail(WB_OK, "%s", "zero"), WB_ERROR_ARGUMENT, "zero");
    FAILS(wb_fail((wb_status)-3, "negative"), WB_ERROR_ARGUMENT, "negative");
    FAILS(wb_fail(WB_ERROR_COUNT, "more"), WB_ERROR_ARGUMENT, "more");
    assert_int_equal(wb_fail(WB_ERROR_FILE, "outer: %s", wb_error()), WB_ERROR_FILE);
    FAILED(WB_ERROR_FILE, "outer: more");
    char long_text[9000];
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    wb_fail(WB_ERROR_FILE, "%s", long_text);
    assert_int_equal(strlen(wb_error()), 8191);
}

int main(void) { return run_cases(make_folder, remove_folder); }
