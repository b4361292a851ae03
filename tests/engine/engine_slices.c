/* Slices of evaluated tensors (windows) whose starts change from step to step.  All starts use one
 * plan, and the results equal those of copied slices, whatever views are between the tensor and the
 * operation that reads it. */
#include "reference.h"

#include "engine/plan.h"

static int64_t built(void) { return wb_stats().plans_built; }

/* An array of the numbers 0, 1, ... modulo `most`. */
static array counted(int ndim, const int64_t *dims, int most)
{
    array x = ref_new(ndim, dims);
    for (int64_t i = 0; i < x.size; i++) x.at[i] = (double)(i % most);
    return x;
}

static wb_tensor *dense(array x, wb_dtype t)
{
    wb_tensor *y = tensor_of(x, t, 0);
    assert_int_equal(wb_eval(y), 0);
    return y;
}

/* Rows as an evaluated tensor of their own, not as a slice. */
static wb_tensor *rows_copied(array x, wb_dtype t, int64_t from, int64_t to)
{
    return dense(ref_slice(x, 0, from, to), t);
}

/* ---- training -------------------------------------------------------------------------------- */

enum { STEPS = 100, ROWS = 40, FEATURES = 6 };

/* The losses of training steps on batches of 4 rows, which are slices with changing starts;
 * `copies`: on copies of the slices. */
static array train(bool copies, int64_t *plans)
{
    wb_scope *s = wb_scope_open();
    wb_seed(5);
    const int64_t dims[3] = {ROWS, 2, FEATURES / 2}, labels[1] = {ROWS};
    array hx = counted(3, dims, 17), hy = counted(1, labels, 3);
    array loss = ref_new(1, (int64_t[]){STEPS});
    wb_tensor *x = wb_reshape(dense(hx, WB_F32), ROWS, FEATURES), *y = dense(hy, WB_I32);
    wb_layer *m = wb_Chain(wb_Dense(FEATURES, 8, wb_tanh), wb_Dense(8, 3));
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    const int64_t before = built();
    for (int i = 0; i < STEPS; i++) IN_SCOPE {
        const int64_t at = 7 * i % (ROWS - 3);
        wb_tensor *bx = copies ? wb_reshape(rows_copied(hx, WB_F32, at, at + 4), 4, FEATURES)
                               : wb_slice(x, 0, at, at + 4);
        wb_tensor *by = copies ? rows_copied(hy, WB_I32, at, at + 4) : wb_slice(y, 0, at, at + 4);
        wb_tensor *l = wb_logitcrossentropy(wb_call(m, bx), wb_onehotbatch(by, 3));
        assert_int_equal(wb_update(o, m, wb_gradient(l, m)), 0);
        loss.at[i] = wb_item(l);
    }
    *plans = built() - before;
    wb_scope_close(s);
    return loss;
}

TEST(training_is_one_plan)
{
    int64_t plans, others;
    array copied = train(true, &others), moved = train(false, &plans);
    assert_int_equal(plans, 1);
    for (int i = 0; i < STEPS; i++)
        if (fabs(copied.at[i] - moved.at[i]) > 1e-5 * fabs(copied.at[i]))
            fail_msg("step %d: loss %.9g on windows, %.9g on copies", i, moved.at[i], copied.at[i]);
    assert_true(moved.at[STEPS - 1] < moved.at[0]);
}

/* Windows of a text with any start, in dtypes of different sizes.  The input and the target, one
 * element later, overlap. */
TEST(texts_are_one_plan)
{
    static const wb_dtype types[] = {WB_U8, WB_I32, WB_I64};
    enum { LENGTH = 50, WINDOW = 7, SYMBOLS = 5 };
    for (int k = 0; k < 3; k++) IN_SCOPE {
        array text = counted(1, (int64_t[]){LENGTH}, SYMBOLS);
        array table = counted(2, (int64_t[]){SYMBOLS, 3}, 11);
        wb_tensor *t = dense(text, types[k]), *e = dense(table, WB_F32);
        const int64_t before = built();
        for (int64_t i = 0; i + WINDOW < LENGTH; i++) IN_SCOPE {
            wb_tensor *x = wb_slice(t, 0, i, i + WINDOW),
                      *y = wb_slice(t, 0, i + 1, i + 1 + WINDOW);
            wb_tensor *z = wb_mul(wb_take(e, x), wb_unsqueeze(wb_astype(y, WB_F32), 1));
            array a = ref_take(table, ref_slice(text, 0, i, i + WINDOW));
            array b = ref_reshape(ref_slice(text, 0, i + 1, i + 1 + WINDOW), 2,
                                  (int64_t[]){WINDOW, 1});
            check(z, ref_map2(ref_binary("mul"), a, b), 0, 0, "window %lld of %s", (long long)i,
                  wb_dtype_name(types[k]));
        }
        assert_int_equal(built() - before, 1);
        ref_forget();
    }
}

/* ---- chains of views ------------------------------------------------------------------------- */

typedef struct {
    wb_tensor *x;
    array want;
} pair;

static pair sliced(pair p, int axis, int64_t from, int64_t to)
{
    return (pair){wb_slice(p.x, axis, from, to), ref_slice(p.want, axis, from, to)};
}

static pair stepped(pair p, int axis, int64_t from, int64_t n, int64_t step)
{
    int64_t start[WB_MAX_DIMS] = {0}, dims[WB_MAX_DIMS], by[WB_MAX_DIMS];
    memcpy(dims, p.want.dims, sizeof dims);
    for (int i = 0; i < WB_MAX_DIMS; i++) by[i] = 1;
    start[axis] = from;
    dims[axis] = n;
    by[axis] = step;
    array parts[16];
    for (int64_t i = 0; i < n; i++)
        parts[i] = ref_slice(p.want, axis, from + i * step, from + i * step + 1);
    return (pair){wb__slice_at(p.x, start, dims, by), ref_concat((int)n, parts, axis)};
}

static pair flipped(pair p, int axis) { return (pair){wb_flip(p.x, axis), ref_flip(p.want, axis)}; }

static pair permuted(pair p, const int64_t *order)
{
    return (pair){wb_permute_array(p.x, p.want.ndim, order), ref_permute(p.want, order)};
}

static pair reshaped(pair p, int ndim, const int64_t *dims)
{
    return (pair){wb_reshape_array(p.x, ndim, dims), ref_reshape(p.want, ndim, dims)};
}

static pair expanded(pair p, int ndim, const int64_t *dims)
{
    return (pair){wb_expand_array(p.x, ndim, dims), ref_expand(p.want, ndim, dims)};
}

/* Chains of views of a tensor [6, 8, 10], with slices whose starts are computed from i, j and k
 * below 4. */
static pair rows(pair p, int i, int j, int k)
{
    return sliced(p, 0, i, i + 2);
}
static pair columns(pair p, int i, int j, int k)
{
    return sliced(p, 2, k, k + 5);
}
static pair corner(pair p, int i, int j, int k)
{
    return sliced(sliced(sliced(p, 0, i, i + 3), 1, j, j + 4), 2, k, k + 2);
}
static pair within(pair p, int i, int j, int k)
{
    return sliced(sliced(p, 0, i, i + 2 + 1), 0, j % 2, j % 2 + 2);
}
static pair backwards(pair p, int i, int j, int k)
{
    return flipped(flipped(corner(p, i, j, k), 1), 2);
}
static pair of_backwards(pair p, int i, int j, int k)
{
    return corner(flipped(flipped(p, 0), 2), i, j, k);
}
static pair of_steps(pair p, int i, int j, int k)
{
    return sliced(stepped(stepped(p, 2, 1 + k, 3, 2), 1, 7 - j, 3, -2), 0, i, i + 2);
}
static pair steps_of_steps(pair p, int i, int j, int k)
{
    return stepped(stepped(p, 2, 9 - k, 4, -2), 2, 2 + j % 2, 2, -1);
}
static pair transposed(pair p, int i, int j, int k)
{
    return corner(permuted(p, (int64_t[]){2, 0, 1}), i, j % 3, k);
}
static pair as_rows(pair p, int i, int j, int k)
{
    return reshaped(sliced(reshaped(p, 2, (int64_t[]){24, 20}), 0, 4 * i + j, 4 * i + j + 6), 3,
                    (int64_t[]){3, 2, 20});
}
static pair window_of_reshaped(pair p, int i, int j, int k)
{
    pair a = reshaped(sliced(p, 0, i, i + 2), 2, (int64_t[]){16, 10});
    return sliced(sliced(a, 0, j, j + 9), 1, k, k + 4);
}
static pair spread(pair p, int i, int j, int k)
{
    pair a = expanded(sliced(p, 0, i, i + 1), 3, (int64_t[]){5, 8, 10});
    return sliced(sliced(a, 0, k % 3, k % 3 + 2), 1, j, j + 3);
}
static pair nothing(pair p, int i, int j, int k)
{
    return sliced(sliced(p, 1, j, j), 2, k, k + i);
}
/* The reshape is no view: its result has to be copied.  So the second start is a part of the plan,
 * which exists once for each of the four starts. */
static pair copied_between(pair p, int i, int j, int k)
{
    return sliced(reshaped(sliced(p, 2, i, i + 5), 1, (int64_t[]){240}), 0, k, k + 30);
}

static const struct {
    const char *name;
    pair (*f)(pair p, int i, int j, int k);
    int plans;
} chains[] = {
    {"rows", rows, 1}, {"columns", columns, 1}, {"a corner", corner, 1},
    {"a slice of a slice", within, 1}, {"backwards", backwards, 1},
    {"of what is backwards", of_backwards, 1}, {"steps", of_steps, 1},
    {"steps of steps", steps_of_steps, 1}, {"transposed", transposed, 1}, {"reshaped", as_rows, 1},
    {"a slice of a reshaped one", window_of_reshaped, 1}, {"spread out", spread, 1},
    {"copied between", copied_between, 4},
};
enum { CHAINS = sizeof chains / sizeof *chains };

static pair base(array x, wb_dtype t) { return (pair){dense(x, t), x}; }

TEST(chains_are_one_plan)
{
    for (int c = 0; c < CHAINS; c++)
        for (int t = WB_F32; t < WB_BOOL; t++) IN_SCOPE {
            if (t != WB_F32 && (c + t) % 4) continue;
            pair p = base(counted(3, (int64_t[]){6, 8, 10}, 60), (wb_dtype)t);
            const int64_t before = built();
            for (int n = 0; n < 16; n++) IN_SCOPE {
                pair got = chains[c].f(p, n % 4, (n + n / 4) % 4, (3 * n) % 4);
                check(wb_add(got.x, got.x), ref_map2(ref_binary("add"), got.want, got.want), 0, 0,
                      "%s of %s", chains[c].name, wb_dtype_name((wb_dtype)t));
            }
            if (built() - before > chains[c].plans)
                fail_msg("%s of %s: %lld plans", chains[c].name, wb_dtype_name((wb_dtype)t),
                         (long long)(built() - before));
            for (int n = 0; n < 16; n++) {      /* the slice itself is the result */
                pair got = chains[c].f(p, n % 4, (n + n / 4) % 4, (3 * n) % 4);
                check(got.x, got.want, 0, 0, "%s of %s, alone", chains[c].name,
                      wb_dtype_name((wb_dtype)t));
            }
            ref_forget();
        }
}

TEST_IN_SCOPE(empty_windows)
{
    pair p = base(counted(3, (int64_t[]){6, 8, 10}, 60), WB_F32);
    const int64_t before = built();
    for (int n = 0; n < 9; n++) {
        pair got = nothing(p, 3, n % 9, n % 4);
        assert_true(wb_item(wb_add(wb_sum(got.x), wb_scalar(n + 2))) == n + 2);
    }
    assert_int_equal(built() - before, 1);
}

/* ---- operations that read windows ------------------------------------------------------------ */

typedef wb_tensor *(*use)(wb_tensor *const *x);
static wb_tensor *product(wb_tensor *const *x)
{
    return wb_relu(wb_linear(wb_reshape(x[0], 4, 8), wb_reshape(x[1], 6, 8),
                             wb_slice(x[2], 0, 0, 6)));
}
static wb_tensor *products(wb_tensor *const *x)
{
    return wb_matmul(wb_reshape(x[0], 2, 4, 4), wb_transpose(wb_reshape(x[1], 2, 6, 4)));
}
static wb_tensor *convolution(wb_tensor *const *x)
{
    return wb_conv(wb_reshape(x[0], 1, 2, 4, 4), wb_reshape(wb_slice(x[1], 0, 0, 36), 2, 2, 3, 3),
                   wb_slice(x[2], 0, 3, 5), .pad = {1, 1});
}
static wb_tensor *pooled(wb_tensor *const *x)
{
    return wb_maxpool(wb_reshape(x[0], 1, 2, 4, 4), .window = {2, 2});
}
static wb_tensor *attended(wb_tensor *const *x)
{
    return wb_attention(wb_reshape(x[0], 1, 2, 4, 4), wb_reshape(x[2], 1, 2, 6, 4),
                        wb_reshape(x[1], 1, 2, 6, 4), WB_NONE);
}
static wb_tensor *reduced(wb_tensor *const *x)
{
    return wb_add(wb_softmax(wb_reshape(x[1], 6, 8)),
                  wb_sum(wb_reshape(x[2], 6, 8), .axes = WB_INTS(0), .keep = true));
}
static wb_tensor *joined(wb_tensor *const *x)
{
    return wb_concat(0, wb_exp(x[0]), x[1], wb_pad(x[0], 0, 1, 2), x[2]);
}

static const struct { const char *name; use f; } uses[] = {
    {"a product", product}, {"products", products}, {"a convolution", convolution},
    {"a pool", pooled}, {"attention", attended}, {"reductions", reduced},
    {"a concatenation", joined},
};
enum { USES = sizeof uses / sizeof *uses };

TEST(reading_is_one_plan)
{
    static const int64_t sizes[3] = {32, 48, 48};
    for (int u = 0; u < USES; u++) IN_SCOPE {
        array x = draw_array(1, (int64_t[]){100}, -1, 1);
        round_to(x, WB_F32);
        wb_tensor *all = dense(x, WB_F32);
        int64_t before = 0;
        for (int n = 0; n < 6; n++) {
            wb_scope *step = wb_scope_open();
            wb_tensor *windows[3], *copies[3];
            for (int i = 0; i < 3; i++) {
                const int64_t at = (5 * n + 7 * i * n) % (100 - sizes[i]);
                windows[i] = wb_slice(all, 0, at, at + sizes[i]);
                copies[i] = rows_copied(x, WB_F32, at, at + sizes[i]);
            }
            array want = values_of(uses[u].f(copies));
            if (n < 2) before = built();
            check(uses[u].f(windows), want, 1e-5, 1e-5, "%s of windows, %d", uses[u].name, n);
            wb_scope_close(step);
            if (n == 1) assert_true(built() == before);
        }
        assert_int_equal(built(), before);
        ref_forget();
    }
}

/* Windows of the program's own memory, whose address is aligned to the element size only. */
TEST(borrowed_windows)
{
    const wb_device *was = wb_default_device();
    wb_set_default_device(wb_device_at("CPU", 0));
    static const wb_dtype types[] = {WB_F32, WB_F64, WB_I8, WB_F16};
    static double memory[64];
    for (int k = 0; k < 4; k++)
        for (int off = 0; off < 3; off++) IN_SCOPE {
            const size_t size = wb__dtype_size(types[k]);
            array x = counted(1, (int64_t[]){50}, 50);
            char *at = (char *)memory + (size_t)off * size;
            wb__convert(at, types[k], x.at, WB_F64, 50);
            wb_tensor *all = wb_borrow(at, types[k], 1, (int64_t[]){50}, NULL, NULL);
            const int64_t before = built();
            for (int64_t i = 0; i < 30; i++)
                check(wb_neg(wb_slice(all, 0, i, i + 19)),
                      ref_map(ref_unary("neg"), ref_slice(x, 0, i, i + 19)), 0, 0,
                      "%s borrowed, %lld", wb_dtype_name(types[k]), (long long)i);
            assert_true(built() - before <= 1);
            ref_forget();
        }
    wb_set_default_device(was);
}

/* ---- variables ------------------------------------------------------------------------------- */

static array numbers(int64_t from, int64_t n, double scale)
{
    array x = ref_new(1, &n);
    for (int64_t i = 0; i < n; i++) x.at[i] = scale * (double)(from + i);
    return x;
}

/* A window of a variable's old version has the old values, although the evaluation overwrites the
 * variable in place. */
TEST(versions)
{
    for (int64_t at = 0; at < 6; at++) IN_SCOPE {
        wb_tensor *v = wb_variable(dense(numbers(0, 10, 1), WB_F32));
        wb_tensor *old = wb_slice(v, 0, at, at + 4), *sum = wb_sum(old);
        assert_int_equal(wb_assign(v, wb_mul(v, wb_scalar(10))), 0);
        wb_tensor *fresh = wb_slice(v, 0, at, at + 4);
        wb_tensor *both = wb_add(fresh, old);
        assert_int_equal(wb_eval(old, both), 0);
        check(both, numbers(at, 4, 11), 0, 0, "both versions from %lld", (long long)at);
        check(old, numbers(at, 4, 1), 0, 0, "the old version from %lld", (long long)at);
        assert_true(wb_item(sum) == 4.0 * (double)at + 6);
        check(wb_slice(v, 0, at, at + 4), numbers(at, 4, 10), 0, 0, "the new version");
        /* assigned its own rotation, in which every element moves */
        wb_tensor *head = wb_slice(v, 0, 0, 7), *tail = wb_slice(v, 0, 7, 10);
        assert_int_equal(wb_assign(v, wb_concat(0, tail, head)), 0);
        array parts[2] = {numbers(7, 3, 10), numbers(0, 7, 10)};
        check(v, ref_concat(2, parts, 0), 0, 0, "rotated");
        ref_forget();
    }
}

/* A variable is assigned a window of another variable that the same evaluation overwrites, in both
 * orders. */
TEST(windows_of_what_is_written)
{
    for (int64_t at = 0; at < 64; at++) IN_SCOPE {
        wb_tensor *v = wb_variable(dense(numbers(0, 64, 1), WB_F32));
        wb_tensor *w = wb_variable(dense(numbers(0, 32, 0), WB_F32));
        wb_tensor *more = wb_mul(v, wb_scalar(10));
        wb_tensor *sum = wb_add(w, wb_slice(v, 0, at / 2, at / 2 + 32));
        assert_int_equal(wb_assign(v, more) | wb_assign(w, sum), 0);
        assert_int_equal(wb_eval(at % 2 ? v : w), 0);
        check(w, numbers(at / 2, 32, 1), 0, 0, "from %lld", (long long)at / 2);
        check(v, numbers(0, 64, 10), 0, 0, "the variable itself");
        ref_forget();
    }
}

/* wb__leaf_slice_of: the bytes from the lowest to the highest element of the slice, for any
 * strides. */
TEST_IN_SCOPE(windows_are_what_is_read)
{
    wb_tensor *x = dense(numbers(0, 20, 1), WB_F32), *backwards = wb_flip(x, 0);
    const struct { wb_tensor *x; int64_t first, last; } rows[] = {
        {wb_slice(x, 0, 2, 5), 2, 4},
        {wb_slice(backwards, 0, 2, 5), 15, 17},
        {wb_flip(wb_slice(backwards, 0, 2, 5), 0), 15, 17},
        {wb_slice(wb_slice(backwards, 0, 3, 15), 0, 1, 4), 13, 15},
    };
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        wb__leaf_slice w;
        assert_true(wb__leaf_slice_of(rows[i].x, &w));
        assert_ptr_equal(w.base, x);
        if (w.at != 4 * rows[i].first || w.bytes != 4 * (rows[i].last - rows[i].first + 1))
            fail_msg("row %d: bytes %lld to %lld", (int)i, (long long)w.at,
                     (long long)(w.at + w.bytes));
    }
}

/* If a plan only reads a variable, the starts of the variable's windows are run-time arguments. */
TEST_IN_SCOPE(read_variables)
{
    wb_tensor *v = wb_variable(dense(numbers(0, 40, 1), WB_F32));
    const int64_t before = built();
    for (int64_t i = 0; i < 30; i++)
        check(wb_neg(wb_slice(v, 0, i, i + 10)), numbers(i, 10, -1), 0, 0, "window %lld",
              (long long)i);
    assert_int_equal(built() - before, 1);
}

/* The gradient of a variable through a window is 0 outside the window. */
TEST_IN_SCOPE(gradients)
{
    wb_tensor *v = wb_variable(dense(numbers(0, 12, 1), WB_F32));
    wb_tensor *x = dense(numbers(0, 30, 1), WB_F32);
    array have = numbers(0, 12, 1);
    for (int64_t i = 0; i < 8; i++) {
        wb_scope *step = wb_scope_open();
        wb_tensor *w = wb_flip(wb_slice(v, 0, i, i + 5), 0), *grad[1];
        wb_tensor *loss = wb_sum(wb_mul(wb_square(w), wb_slice(x, 0, 2 * i, 2 * i + 5)));
        assert_int_equal(wb__gradients(loss, 1, &v, grad), 0);
        array want = ref_new(1, have.dims);
        for (int64_t k = 0; k < 12; k++)
            want.at[k] = k < i || k >= i + 5
                             ? 0
                             : 2 * have.at[k] * (double)(2 * i + (4 - (k - i)));
        check(grad[0], want, 1e-6, 0, "gradient of window %lld", (long long)i);
        assert_int_equal(wb_assign(v, wb_sub(v, wb_mul(grad[0], wb_scalar(1e-3)))), 0);
        assert_int_equal(wb_scope_close(step), 0);
        for (int64_t k = 0; k < 12; k++) {
            have.at[k] -= 1e-3 * want.at[k];
            round_to(have, WB_F32);
        }
        check(v, have, 1e-5, 1e-6, "after step %lld", (long long)i);
    }
}

/* ---- recordings ------------------------------------------------------------------------------ */

typedef struct {
    wb_tensor *constant, *variable, *written;
    int64_t at;
} captured;

/* Windows of an input, of a constant, of a variable that is read and of one that is written. */
static int recorded(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const captured *c = ctx;
    const int64_t at = c->at;
    out[0] = wb_add(wb_slice(in[0], 0, at, at + 3), wb_slice(c->constant, 0, 2 * at, 2 * at + 3));
    out[1] = wb_add(wb_slice(c->variable, 0, at, at + 3), wb_slice(c->written, 0, at, at + 3));
    return wb_assign(c->written, wb_add(c->written, wb_scalar(100))) ? -1 : 2;
}

TEST_IN_SCOPE(recordings)
{
    captured c = {dense(numbers(0, 20, 1000), WB_F32),
                  wb_variable(dense(numbers(0, 10, 1), WB_F32)),
                  wb_variable(dense(numbers(0, 10, 1), WB_F32)), 4};
    wb_compiled *f = wb_compile(recorded, &c);
    for (int i = 0; i < 5; i++) {
        wb_tensor *in = dense(numbers(i, 10, 1), WB_F32), *out[2];
        if (i == 3) assert_int_equal(wb_assign(c.variable, wb_mul(c.variable, wb_scalar(3))), 0);
        if (i == 4) in = c.written;                 /* the input is the variable that is written */
        c.at = 4 + (i > 0);                         /* the recording keeps the start of call 0 */
        assert_int_equal(wb_call_compiled(f, 1, &in, 2, out), 0);
        array want[2] = {ref_new(1, (int64_t[]){3}), ref_new(1, (int64_t[]){3})};
        for (int k = 0; k < 3; k++) {
            want[0].at[k] = (i == 4 ? 400 + 4 + k : i + 4 + k) + 1000 * (8 + k);
            want[1].at[k] = (4 + k) * (i >= 3 ? 3 : 1) + 4 + k + 100 * i;
        }
        check(out[0], want[0], 0, 0, "input and constant, call %d", i);
        check(out[1], want[1], 0, 0, "variables, call %d", i);
    }
    wb_object_free(f);
}

/* The memory estimate counts a tensor with two windows once. */
TEST_IN_SCOPE(estimates)
{
    wb_tensor *x = dense(numbers(0, 1000, 1), WB_F32);
    wb_tensor *y = wb_add(wb_slice(x, 0, 3, 203), wb_slice(x, 0, 700, 900));
    wb_memory m;
    assert_int_equal(wb_estimate_memory(1, &y, &m), 0);
    assert_int_equal(m.inputs, 4000);
    assert_int_equal(m.outputs, 800);
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
