/* Epilogues fused into products, and attention in one step, for backends that support them.  On the
 * near device (near_device.h), training must have the CPU's losses for every subset of supported
 * epilogues.  If no epilogue is supported, the plans must equal those of a backend without the
 * function `supports`. */
#include "near_device.h"
#include "reference.h"

#include "engine/request.h"
#include "engine/tensor.h"
#include "weber/device.h"

enum { STEPS = 6, ROWS = 12, IN = 20, CLASSES = 5, TOKENS = 6, DEPTH = 16, SYMBOLS = 11 };

enum {
    SUMS = 1, GELU = 1 << NEAR_GELU, GELU_AUX = 1 << NEAR_GELU_AUX,
    RELU_AUX = 1 << NEAR_RELU_AUX, GELU_GRAD = 1 << NEAR_GELU_GRAD,
    RELU_GRAD = 1 << NEAR_RELU_GRAD, ADDEND = 1 << NEAR_ADDEND,
    SUMS_OF_A = 1 << NEAR_SUMS_OF_A, SUMS_OF_B = 1 << NEAR_SUMS_OF_B,
    ATTENTION = 1 << NEAR_ATTENTION,
    ALL = ATTENTION | SUMS | GELU | GELU_AUX | RELU_AUX | GELU_GRAD | RELU_GRAD | ADDEND
};

typedef struct {
    const char *name;
    wb_layer *(*make)(void);
    wb_tensor *(*loss)(wb_layer *m, int step);
} model;

/* ---- models ---------------------------------------------------------------------------------- */

static wb_layer *mlp(void)
{
    return wb_Chain(wb_Dense(IN, 32, wb_gelu), wb_Dense(32, 24, wb_relu), wb_Dense(24, CLASSES));
}

static wb_tensor *mlp_loss(wb_layer *m, int step)
{
    float x[ROWS * IN];
    int32_t y[ROWS];
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)sin(1.7 * i + step);
    for (int i = 0; i < ROWS; i++) y[i] = (i * 3 + step) % CLASSES;
    wb_tensor *in = wb_from(x, WB_F32, 2, (int64_t[]){ROWS, IN});
    return wb_logitcrossentropy(wb_call(m, in),
                                wb_onehotbatch(wb_from(y, WB_I32, 1, (int64_t[]){ROWS}), CLASSES));
}

/* A loss that contains a gradient: slopes of activations are then operands of other operations. */
static wb_tensor *second_order_loss(wb_layer *m, int step)
{
    float x[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)cos(0.3 * i + step);
    wb_tensor *in = wb_from(x, WB_F32, 2, (int64_t[]){ROWS, IN});
    wb_tensor *g = wb_gradient(wb_sum(wb_square(wb_call(m, in))), in);
    return wb_mean(wb_square(g));
}

static wb_tensor *residual(wb_tensor *y, wb_tensor *x) { return wb_add(y, x); }

static wb_layer *transformer(void)
{
    return wb_Chain(
        wb_Embedding(SYMBOLS, DEPTH),
        wb_SkipConnection(wb_Chain(wb_LayerNorm({DEPTH}),
                                   wb_MultiHeadAttention(DEPTH, 4, .causal = true, .bias = true)),
                          residual),
        wb_SkipConnection(wb_Chain(wb_LayerNorm({DEPTH}), wb_Dense(DEPTH, 4 * DEPTH, wb_gelu),
                                   wb_Dense(4 * DEPTH, DEPTH)),
                          residual),
        wb_Dense(DEPTH, SYMBOLS));
}

static wb_tensor *transformer_loss(wb_layer *m, int step)
{
    int32_t x[ROWS * TOKENS], y[ROWS * TOKENS];
    for (int i = 0; i < ROWS * TOKENS; i++) {
        x[i] = (i * i + step) % SYMBOLS;
        y[i] = (x[i] * 5 + 1) % SYMBOLS;
    }
    wb_tensor *in = wb_from(x, WB_I32, 2, (int64_t[]){ROWS, TOKENS});
    return wb_logitcrossentropy(
        wb_call(m, in),
        wb_onehotbatch(wb_from(y, WB_I32, 2, (int64_t[]){ROWS, TOKENS}), SYMBOLS));
}

static const model models[] = {{"mlp", mlp, mlp_loss},
                               {"mlp, second order", mlp, second_order_loss},
                               {"transformer", transformer, transformer_loss}};

/* ---- training -------------------------------------------------------------------------------- */

static void train(const model *m, const wb_device *d, double losses[STEPS])
{
    const wb_device *before = wb__use_device(d);
    wb_scope *outer = wb_scope_open();
    wb__cache_clear();
    wb_seed(3);
    wb_layer *l = m->make();
    wb_trainmode(l);
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), l);
    for (int i = 0; i < STEPS; i++) {
        wb_scope *s = wb_scope_open();
        wb_tensor *loss = m->loss(l, i);
        wb_tree *g = loss ? wb_gradient(loss, l) : NULL;
        if (!g || wb_update(o, l, g)) fail_msg("%s, step %d: %s", m->name, i, wb_error());
        losses[i] = wb_item(loss);
        if (wb_scope_close(s)) fail_msg("%s, step %d: %s", m->name, i, wb_error());
    }
    if (wb_scope_close(outer)) fail_msg("%s", wb_error());
    wb__use_device(before);
}

static void compare(const model *m, const double *want, const double *got, unsigned allowed)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got[i] - want[i]) <= 2e-5 * fabs(want[i])))
            fail_msg("%s with %x allowed, step %d: the loss is %.9g, the CPU's %.9g", m->name,
                     allowed, i, got[i], want[i]);
}

TEST(every_part_trains_as_the_cpu_does)
{
    static const unsigned each[] = {SUMS,      GELU | ADDEND, GELU_AUX,                  RELU_AUX,
                                    GELU_GRAD, RELU_GRAD,     SUMS_OF_A | SUMS_OF_B, ATTENTION};
    double want[STEPS], got[STEPS];
    near_ask(true);
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        train(&models[i], wb_cpu_device(), want);
        for (unsigned n = 0; n < 1u << WB__COUNT(each); n += i ? 7 : 1) {
            const unsigned set = (1u << WB__COUNT(each)) - 1 - n;
            unsigned allowed = 0;
            for (size_t b = 0; b < WB__COUNT(each); b++)
                if (set >> b & 1) allowed |= each[b];
            near_allow(allowed);
            near_forget();
            train(&models[i], near_device(), got);
            compare(&models[i], want, got, allowed);
            for (int e = NEAR_GELU_AUX; e <= NEAR_ADDEND; e++)
                if (!(allowed >> e & 1)) assert_int_equal(near_count(e), 0);
            if (!(allowed & SUMS)) assert_int_equal(near_count(0), 0);
            const int attentions = i == 2 && allowed & ATTENTION ? 2 * STEPS : 0;
            assert_int_equal(near_count(NEAR_ATTENTION), attentions);
            if (!(allowed & SUMS_OF_A))
                assert_int_equal(near_count(NEAR_SUMS_OF_A) + near_count(NEAR_SUMS_OF_B), 0);
        }
    }
}

/* The number of fused epilogues and attentions in a training step. */
TEST(all_of_it_is_absorbed)
{
    double losses[STEPS];
    near_ask(true);
    near_allow(ALL);
    near_forget();
    train(&models[0], near_device(), losses);
    assert_int_equal(near_count(NEAR_GELU_AUX), STEPS);
    assert_int_equal(near_count(NEAR_RELU_AUX), STEPS);
    assert_int_equal(near_count(NEAR_GELU_GRAD), STEPS);
    assert_int_equal(near_count(NEAR_RELU_GRAD), STEPS);
    assert_int_equal(near_count(0), 2 * STEPS);         /* gradients of the two hidden biases */
    near_forget();
    train(&models[2], near_device(), losses);
    assert_int_equal(near_count(NEAR_GELU_AUX), STEPS);
    assert_int_equal(near_count(NEAR_GELU_GRAD), STEPS);
    assert_int_equal(near_count(NEAR_ADDEND), 2 * STEPS);       /* the input of queries, keys and
                                                                   values */
    assert_true(near_count(0) >= STEPS);
    assert_int_equal(near_count(NEAR_ATTENTION), 2 * STEPS);
    near_forget();
    wb_scope *s = wb_scope_open();                      /* no gradients: no aux results */
    const wb_device *before = wb__use_device(near_device());
    wb_layer *l = mlp();
    if (wb_eval(mlp_loss(l, 0))) fail_msg("%s", wb_error());
    wb__use_device(before);
    assert_int_equal(near_count(NEAR_GELU), 1);
    assert_int_equal(near_count(NEAR_GELU_AUX) + near_count(NEAR_RELU_AUX), 0);
    assert_int_equal(wb_scope_close(s), 0);
}

static wb_tensor *biased(wb_tensor *x, wb_tensor *w, wb_tensor *b)
{
    return wb_ndim(w) == 4 ? wb_conv(x, w, b) : wb_add(wb_matmul(x, w), b);
}

/* An elementwise operation is fused into the product or convolution before it, unless it can share
 * a kernel with an operation after it.  Its values equal those computed from the stored product. */
TEST(rows_behind_products)
{
    static wb_tensor *(*const rows[])(wb_tensor *) = {
        wb_swish, wb_gelu, wb_gelu_erf, wb_softplus, wb_elu, wb_sin, wb_neg, wb_square, wb_exp,
        wb_tanh, wb_sigmoid, wb_relu};
    near_ask(false);
    const wb_device *before = wb__use_device(near_device());
    for (size_t i = 0; i < 2 * WB__COUNT(rows); i++) IN_SCOPE {
        wb_tensor *(*row)(wb_tensor *) = rows[i / 2], *x, *w, *b, *z, *y, *after;
        x = i & 1 ? wb_randn(2, 3, 20, 20) : wb_randn(33, 40);
        w = i & 1 ? wb_randn(5, 3, 3, 3) : wb_randn(40, 24);
        b = i & 1 ? wb_randn(5) : wb_randn(24);
        if (wb_eval(x, w, b)) fail_msg("%s", wb_error());
        z = biased(x, w, b);
        near_forget();
        if (wb_eval(y = row(z))) fail_msg("%s", wb_error());
        if (strchr(near_steps(), 'f')) fail_msg("row %d: %s", (int)i / 2, near_steps());
        if (wb_eval(z)) fail_msg("%s", wb_error());
        const double far = wb_item(wb_max(wb_abs(wb_sub(y, row(z)))));
        const double size = 1 + wb_item(wb_max(wb_abs(y)));
        if (!(far <= 1e-6 * size)) fail_msg("row %d: %g of %g", (int)i / 2, far, size);
        near_forget();
        after = wb_mul(row(biased(x, w, b)), y);
        if (wb_eval(after)) fail_msg("%s", wb_error());
        assert_non_null(strchr(near_steps(), 'f'));
    }
    wb__use_device(before);
}

/* The product that computes a weight's gradient also computes the bias's gradient, as sums of an
 * operand. */
TEST(biases_are_summed_beside_weights)
{
    static const int biases[] = {3, 0, 7};
    double want[STEPS], got[STEPS];
    near_ask(true);
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        if (!biases[i]) continue;
        train(&models[i], wb_cpu_device(), want);
        near_allow(SUMS_OF_A | SUMS_OF_B);
        near_forget();
        train(&models[i], near_device(), got);
        compare(&models[i], want, got, SUMS_OF_A | SUMS_OF_B);
        assert_int_equal(near_count(NEAR_SUMS_OF_A) + near_count(NEAR_SUMS_OF_B),
                         biases[i] * STEPS);
    }
}

/* Computes f(x, w) of evaluated x and w on the CPU and on the near device, and copies the elements
 * of both results. */
static void both(wb_tensor *(*f)(wb_tensor *x, wb_tensor *w), unsigned allow, float *want,
                 float *got, size_t bytes)
{
    for (int near = 0; near < 2; near++) {
        const wb_device *before = wb__use_device(near ? near_device() : wb_cpu_device());
        wb_scope *s = wb_scope_open();
        near_ask(true);
        near_allow(allow);
        near_forget();
        wb_seed(4);
        wb_tensor *x = wb_randn(6, 8), *w = wb_randn(8, 8);
        if (wb_eval(x, w) || wb_copy_out(f(x, w), near ? got : want, bytes))
            fail_msg("%s", wb_error());
        if (wb_scope_close(s)) fail_msg("%s", wb_error());
        wb__use_device(before);
    }
}

static void alike(const float *want, const float *got, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5F * (1 + fabsf(want[i]))))
            fail_msg("number %d is %.9g, the CPU's %.9g", i, (double)got[i], (double)want[i]);
}

/* The only product that reads the summed tensor also reads the sum, so it cannot compute it. */
static wb_tensor *scaled_by_sums(wb_tensor *x, wb_tensor *w)
{
    return wb_matmul(wb_mul(x, wb_sum(w, .axes = {0})), w);
}

TEST(sums_are_not_made_beside_what_reads_them)
{
    float want[6 * 8], got[6 * 8];
    both(scaled_by_sums, SUMS_OF_A | SUMS_OF_B, want, got, sizeof want);
    alike(want, got, 6 * 8);
    assert_int_equal(near_count(NEAR_SUMS_OF_A) + near_count(NEAR_SUMS_OF_B), 0);
}

/* The result of a product can be stored within a concat, but not that of a product with sums:
 * `supports` was called with a dense result. */
static wb_tensor *joined(wb_tensor *x, wb_tensor *w)
{
    return wb_concat(1, wb_matmul(x, w), x);
}

static wb_tensor *joined_and_summed(wb_tensor *x, wb_tensor *w)
{
    wb_tensor *c = wb_matmul(x, w), *rows = wb_reshape(wb_sum(c, .axes = {0}), 1, 8);
    return wb_concat(1, wb_concat(0, c, rows), wb_concat(0, x, rows));
}

static int copies(void)
{
    int n = 0;
    for (const char *c = near_steps(); *c; c++) n += *c == 'c';
    return n;
}

TEST(a_product_with_sums_is_dense)
{
    float want[7 * 16], got[7 * 16];
    both(joined, SUMS, want, got, 6 * 16 * sizeof *want);
    alike(want, got, 6 * 16);
    assert_int_equal(copies(), 1);                      /* x alone */
    both(joined_and_summed, SUMS, want, got, sizeof want);
    alike(want, got, 7 * 16);
    assert_int_equal(near_count(0), 1);
    assert_int_equal(copies(), 4);                      /* c, x, and the rows twice */
}

/* If a device supports a step and then fails to prepare or to launch it, the engine builds a plan
 * without that step, and the results are the same. */
TEST(what_is_declined_is_done_otherwise)
{
    double want[STEPS], got[STEPS];
    int declined = 0, refused = 0;
    near_ask(true);
    near_allow(ALL | SUMS_OF_A | SUMS_OF_B);
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        train(&models[i], wb_cpu_device(), want);
        for (unsigned seed = 0; seed < 9; seed++) {
            near_forget();
            near_decline(seed % 4, seed % 3 ? (int)(seed % 5) : 0, seed);
            train(&models[i], near_device(), got);
            compare(&models[i], want, got, seed);
            declined += near_declined();
            refused += near_refused();
        }
        near_decline(1, 0, 0);                          /* every step */
        near_forget();
        train(&models[i], near_device(), got);
        compare(&models[i], want, got, 0);
        for (int e = NEAR_GELU_AUX; e <= NEAR_RELU_GRAD; e++) assert_int_equal(near_count(e), 0);
        assert_int_equal(near_count(NEAR_ATTENTION), 0);
    }
    near_decline(0, 0, 0);
    assert_true(declined > 15 && refused > 15);
}

/* The same in a recording: after a launch that failed, the random numbers are those of one run. */
static int recorded_step(wb_tensor *const *in, wb_tensor **out, void *context)
{
    wb_layer *l = context;
    wb_tensor *drawn = wb_rand_array(WB_F32, 2, (int64_t[]){ROWS, IN});
    wb_tensor *x = wb_mul(in[0], wb_add(drawn, wb_scalar(1)));
    out[0] = wb_mean(wb_square(wb_call(l, x)));
    return 1;
}

TEST(what_is_refused_in_a_recording)
{
    double losses[2][4];
    near_ask(true);
    near_allow(ALL);
    for (int turn = 0; turn < 2; turn++) {
        const wb_device *before = wb__use_device(near_device());
        wb_scope *s = wb_scope_open();
        wb__cache_clear();
        near_decline(0, turn, 5);
        wb_seed(3);
        wb_layer *l = mlp();
        wb_tensor *x = wb_full_array(0.5, WB_F32, 2, (int64_t[]){ROWS, IN}), *out[1];
        wb_compiled *c = wb_compile(recorded_step, l);
        for (int i = 0; i < 4; i++) {
            if (wb_call_compiled(c, 1, &x, 1, out)) fail_msg("%s", wb_error());
            losses[turn][i] = wb_item(out[0]);
        }
        assert_int_equal(near_refused() > 0, turn);
        if (wb_scope_close(s)) fail_msg("%s", wb_error());
        wb__use_device(before);
    }
    near_decline(0, 0, 0);
    for (int i = 0; i < 4; i++)
        if (!(fabs(losses[0][i] - losses[1][i]) <= 1e-5 * fabs(losses[0][i])))
            fail_msg("replay %d: %.9g, not %.9g", i, losses[1][i], losses[0][i]);
}

TEST(what_declines_sees_the_same_plans)
{
    static char unasked[4096];
    double losses[STEPS];
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        near_forget();
        near_ask(false);
        train(&models[i], near_device(), losses);
        snprintf(unasked, sizeof unasked, "%s", near_steps());
        assert_true(strlen(unasked) > 20);
        near_forget();
        near_ask(true);
        near_allow(0);
        train(&models[i], near_device(), losses);
        assert_string_equal(near_steps(), unasked);
    }
}

/* Attention with different sets of results: one gradient alone, a gradient after the forward pass
 * was evaluated by another plan, gradients of gradients. */
static wb_tensor *attended(wb_tensor *const *x)
{
    return wb_sum(wb_square(wb_attention(x[0], x[1], x[2], wb_causal_mask(TOKENS, TOKENS))));
}

static void attention_results(const wb_device *d, double *out)
{
    const wb_device *before = wb__use_device(d);
    wb_scope *s = wb_scope_open();
    wb_tensor *x[3];
    wb_seed(8);
    for (int i = 0; i < 3; i++)
        if (!(x[i] = wb_randn_array(WB_F32, 4, (int64_t[]){2, 3, TOKENS, 4})) || wb_eval(x[i]))
            fail_msg("%s", wb_error());
    for (int i = 0; i < 3; i++)
        *out++ = wb_item(wb_sum(wb_square(wb_gradient(attended(x), x[i]))));
    wb_tensor *loss = attended(x);
    *out++ = wb_item(loss);                             /* evaluated before its gradient is built */
    *out++ = wb_item(wb_sum(wb_square(wb_gradient(loss, x[1]))));
    for (int i = 0; i < 3; i++) {
        wb_tensor *g = wb_sum(wb_square(wb_gradient(attended(x), x[i])));
        for (int j = 0; j < 3; j++) *out++ = wb_item(wb_sum(wb_square(wb_gradient(g, x[j]))));
    }
    wb_tensor *g = wb_gradient(attended(x), x[2]), *y = wb_attention(x[2], x[0], x[1], WB_NONE);
    if (wb_eval(g, y)) fail_msg("%s", wb_error());      /* as results of an evaluation */
    *out++ = wb_item(wb_sum(wb_square(g)));
    *out++ = wb_item(wb_sum(wb_square(y)));
    if (wb_scope_close(s)) fail_msg("%s", wb_error());
    wb__use_device(before);
}

TEST(attention_in_every_way)
{
    enum { RESULTS = 3 + 2 + 9 + 2 };
    double want[RESULTS], got[RESULTS];
    wb__cache_clear();
    near_ask(true);
    near_allow(ALL);
    near_forget();
    attention_results(wb_cpu_device(), want);
    attention_results(near_device(), got);
    assert_true(near_count(NEAR_ATTENTION) >= 8);
    for (int i = 0; i < RESULTS; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-4 * (fabs(want[i]) + 1e-3)))
            fail_msg("number %d is %.9g, the CPU's %.9g", i, got[i], want[i]);
}

/* The loss after one training step, whose n-th allocation fails: the step must then fail with a
 * message, and succeed when it is repeated. */
static double faulty_step(const model *m, int64_t n, bool *failed)
{
    const wb_device *before = wb__use_device(near_device());
    wb_scope *s = wb_scope_open();
    wb__cache_clear();
    wb_seed(3);
    wb_layer *l = m->make();
    wb_opt_state *o = wb_setup(wb_Descent(.eta = 0.1), l);
    if (!o || !wb_trainmode(l)) fail_msg("%s", wb_error());
    for (int turn = 0; turn < 2; turn++) {
        wb_scope *inner = wb_scope_open();
        wb_clear_error();
        wb__alloc_fail_at(turn ? 0 : n);
        wb_tensor *loss = m->loss(l, 0);
        wb_tree *g = loss ? wb_gradient(loss, l) : NULL;
        int status = g ? wb_update(o, l, g) : 1;
        const int closed = wb_scope_close(inner);
        wb__alloc_fail_at(0);
        status = status ? status : closed;
        if (!status) break;
        if (turn || !wb_error()[0])
            fail_msg("%s, fault %lld: %s", m->name, (long long)n, wb_error());
        *failed = true;
    }
    const double after = wb_item(m->loss(l, 1));
    wb_scope_close(s);
    wb__use_device(before);
    return after;
}

TEST(allocations_that_fail)
{
    near_ask(true);
    near_allow(ALL);
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        bool failed = false;
        const double want = faulty_step(&models[i], 0, &failed);
        assert_false(failed);
        for (int64_t n = 1, quiet = 0; quiet < 4; n += 1 + n / 40) {
            failed = false;
            const double got = faulty_step(&models[i], n, &failed);
            if (got != want) fail_msg("%s: %.9g after fault %lld, not %.9g", models[i].name, got,
                                      (long long)n, want);
            quiet = failed ? 0 : quiet + 1;
        }
    }
}

int main(void)
{
    near_device();
    return run_all_cases();
}
