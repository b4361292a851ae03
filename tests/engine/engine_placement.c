/* The placement of values: a value may be stored within the result of a concat or stack, or in a
 * variable.  Each operand of each operation is computed in one plan that also contains a second
 * operation that reads it (a reader) and decides its placement.  The results are compared with
 * those of evaluated operands. */
#include "near_device.h"
#include "reference.h"

#include "engine/tensor.h"
#include "weber/device.h"

/* ---- operations and their operands ----------------------------------------------------------- */

enum { MOST_OPERANDS = 4 };
typedef enum { FLOATING, INDEX, MASK } operand_kind;
typedef struct {
    operand_kind kind;
    int ndim;
    int64_t dims[4];
} operand;

typedef struct {
    const char *name;
    wb_tensor *(*make)(wb_tensor *const *in);
    int n;
    operand operands[MOST_OPERANDS];
} operation;

static wb_tensor *product(wb_tensor *const *in) { return wb_matmul(in[0], in[1]); }
static wb_tensor *transposed_product(wb_tensor *const *in)
{
    return wb_matmul(wb_transpose(in[0]), wb_transpose(in[1]));
}
static wb_tensor *linear(wb_tensor *const *in) { return wb_linear(in[0], in[1], in[2]); }
static wb_tensor *linear_relu(wb_tensor *const *in) { return wb_relu(linear(in)); }
static wb_tensor *linear_tanh(wb_tensor *const *in) { return wb_tanh(linear(in)); }
static wb_tensor *linear_gelu(wb_tensor *const *in) { return wb_gelu(linear(in)); }
static wb_tensor *flat_bias(wb_tensor *const *in)
{
    return wb_linear(in[0], in[1], wb_reshape(in[2], wb_size(in[2])));
}
/* The comparison of a product's result is computed by the kernel of its reader, another product. */
static wb_tensor *compared_bias(wb_tensor *const *in)
{
    wb_tensor *above = wb_gt(wb_matmul(in[2], in[3]), wb_scalar(0));
    return wb_add(wb_matmul(in[0], in[1]), wb_astype(above, wb_dtype_of(in[0])));
}
static wb_tensor *conv(wb_tensor *const *in)
{
    return wb_conv(in[0], in[1], in[2], .pad = {1, 1, 1, 1});
}
static wb_tensor *conv_relu(wb_tensor *const *in) { return wb_relu(conv(in)); }
static wb_tensor *maxpool(wb_tensor *const *in) { return wb_maxpool(in[0], .window = {2, 2}); }
static wb_tensor *meanpool(wb_tensor *const *in) { return wb_meanpool(in[0], .window = {2, 2}); }
static wb_tensor *take(wb_tensor *const *in) { return wb_take(in[0], in[1]); }
static wb_tensor *set(wb_tensor *const *in)
{
    return wb_scatter(in[0], in[1], in[2], .reduce = WB_SCATTER_SET);
}
static wb_tensor *causal(wb_tensor *const *in)
{
    return wb_attention(in[0], in[1], in[2], wb_causal_mask(wb_dim(in[0], 2), wb_dim(in[1], 2)));
}
static wb_tensor *attention(wb_tensor *const *in)
{
    return wb_attention(in[0], in[1], in[2], WB_NONE);
}
static wb_tensor *masked(wb_tensor *const *in) { return wb_attention(in[0], in[1], in[2], in[3]); }
static wb_tensor *softmax(wb_tensor *const *in) { return wb_softmax(in[0]); }
static wb_tensor *normalise(wb_tensor *const *in) { return wb_normalize(in[0], 2, 0.1); }
static wb_tensor *sums(wb_tensor *const *in)
{
    return wb_sum(wb_mul(in[0], in[1]), .axes = WB_INTS(0));
}
static wb_tensor *gates(wb_tensor *const *in)
{
    wb_tensor *both = linear(in);
    return wb_mul(wb_sigmoid(wb_slice(both, 1, 0, 10)), wb_tanh(wb_slice(both, 1, 10, 20)));
}
static wb_tensor *batch_norm(wb_tensor *const *in)
{
    wb_tensor *centred = wb_sub(in[0], wb_mean(in[0], .axes = {0, 2, 3}, .keep = true));
    wb_tensor *var = wb_variance(in[0], .axes = {0, 2, 3}, .keep = true);
    wb_tensor *scaled = wb_mul(centred, wb_rsqrt(wb_add(var, wb_scalar(0.1))));
    return wb_add(wb_mul(scaled, wb_reshape(in[1], 3, 1, 1)), wb_reshape(in[2], 3, 1, 1));
}

#define F(...) {FLOATING, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}}
static const operation operations[] = {
    {"matmul", product, 2, {F(4, 6), F(6, 5)}},
    {"matmul of vectors", product, 2, {F(6), F(6, 5)}},
    {"matmul in batches", product, 2, {F(3, 4, 6), F(3, 6, 5)}},
    {"matmul of transposes", transposed_product, 2, {F(6, 4), F(5, 6)}},
    {"linear", linear, 3, {F(4, 6), F(19, 6), F(19)}},
    {"linear, relu", linear_relu, 3, {F(4, 6), F(19, 6), F(19)}},
    {"linear, tanh", linear_tanh, 3, {F(4, 6), F(19, 6), F(19)}},
    {"linear, gelu", linear_gelu, 3, {F(4, 6), F(24, 6), F(24)}},
    {"bias that is a comparison of another product", compared_bias, 4,
     {F(4, 6), F(6, 19), F(1, 7), F(7, 19)}},
    {"linear, bias of two axes", flat_bias, 3, {F(4, 6), F(19, 6), F(1, 19)}},
    {"linear in batches", linear, 3, {F(2, 4, 6), F(19, 6), F(19)}},
    {"conv", conv, 3, {F(2, 3, 8, 8), F(5, 3, 3, 3), F(5)}},
    {"conv, relu", conv_relu, 3, {F(2, 16, 8, 8), F(16, 16, 3, 3), F(16)}},
    {"maxpool", maxpool, 1, {F(2, 3, 6, 4)}},
    {"meanpool", meanpool, 1, {F(2, 3, 6, 4)}},
    {"take", take, 2, {F(7, 3), {INDEX, 2, {2, 3}}}},
    {"rows set", set, 3, {F(7, 3), {INDEX, 1, {4}}, F(4, 3)}},
    {"attention", attention, 3, {F(2, 2, 5, 8), F(2, 2, 6, 8), F(2, 2, 6, 8)}},
    {"attention, causal", causal, 3, {F(2, 2, 6, 8), F(2, 2, 6, 8), F(2, 2, 6, 8)}},
    {"attention, masked", masked, 4, {F(2, 5, 8), F(2, 6, 8), F(2, 6, 3), {MASK, 3, {2, 5, 6}}}},
    {"softmax", softmax, 1, {F(3, 4, 5)}},
    {"normalize", normalise, 1, {F(3, 4, 5)}},
    {"gates of a cell", gates, 3, {F(4, 6), F(20, 6), F(20)}},
    {"norm of a batch", batch_norm, 3, {F(2, 3, 4, 2), F(3), F(3)}},
    {"sum of products", sums, 2, {F(4, 3, 5), F(3, 5)}}};

/* ---- operands and their second readers ------------------------------------------------------- */

static wb_tensor *leaf(const operand *o, wb_dtype dtype, int seed)
{
    array x = ref_new(o->ndim, o->dims);
    for (int64_t i = 0; i < x.size; i++)
        x.at[i] = o->kind == FLOATING ? sin(1.3 * (double)i + seed)
                : o->kind == INDEX    ? (double)((i * 5 + seed) % 6) : i % 3 != 1;
    return tensor_of(x, o->kind == FLOATING ? dtype : o->kind == INDEX ? WB_I32 : WB_BOOL, 0);
}

static wb_tensor *computed(const operand *o, wb_tensor *x)
{
    return o->kind == FLOATING ? wb_tanh(x)
         : o->kind == INDEX    ? wb_add(x, wb_scalar(1)) : wb_not(x);
}

/* Assigns v, or a sum with v, to a variable, and reads the variable. */
static wb_tensor *assigned(wb_tensor *v, wb_tensor *other, bool add)
{
    if (wb_dtype_of(v) == WB_BOOL) return v;
    wb_tensor *p = wb_variable(other);
    if (wb_assign(p, add ? wb_add(wb_mul(p, wb_scalar(2)), v) : v)) fail_msg("%s", wb_error());
    return wb_neg(p);
}

/* Readers of v, by number: operations that may decide its placement.  `other` has v's shape. */
static int n_readers(int ndim) { return 2 * ndim + 11; }
static wb_tensor *read_by(int reader, wb_tensor *v, wb_tensor *other)
{
    const int n = wb_ndim(v);
    const int64_t size = wb_size(v);
    if (reader <= n) return wb_stack(reader, v, other);
    reader -= n + 1;
    if (reader < n) return wb_concat(reader, v, other);
    reader -= n;
    wb_tensor *column = reader < 4 ? wb_reshape(v, size, 1) : NULL;
    wb_tensor *odd = reader < 8 ? wb_astype(wb_ones(3), wb_dtype_of(v)) : NULL;
    switch (reader) {
    case 0: return wb_stack(n, other, v, v, v);
    case 1: return wb_concat(1, column, wb_astype(wb_ones(size, 2), wb_dtype_of(v)));
    case 2: return wb_pad(v, n - 1, 1, 2);
    case 3: return wb_stack(n, wb_concat(n - 1, v, other), wb_concat(n - 1, other, v));
    case 4: return v;
    case 5: return wb_flip(v, n - 1);
    case 6: return wb_concat(0, odd, wb_reshape(v, size), wb_reshape(other, size));
    case 7: return wb_concat(0, wb_concat(0, odd, wb_reshape(v, size)), wb_reshape(other, size));
    default: return assigned(v, other, reader == 9);
    }
}

static double allowed(wb_dtype t) { return t == WB_F64 ? 1e-11 : t == WB_F32 ? 2e-5 : 0.04; }

/* An operation's result, and the gradients to its operands. */
typedef struct { wb_tensor *y, *gradient[MOST_OPERANDS]; } outcome;

static outcome outcome_of(const operation *o, wb_tensor *const *in, bool gradients)
{
    outcome r = {.y = o->make(in)};
    if (!r.y) fail_msg("%s: %s", o->name, wb_error());
    wb_tensor *loss = gradients ? wb_sum(wb_square(r.y)) : NULL;
    for (int i = 0; i < o->n && gradients; i++)
        if (o->operands[i].kind == FLOATING && !(r.gradient[i] = wb_gradient(loss, in[i])))
            fail_msg("%s: %s", o->name, wb_error());
    return r;
}

/* Evaluates the outcome together with s, the result of a reader (`last`: as the last of the
 * results), and compares both with what they should be. */
static void compare(const operation *o, const outcome *got, const outcome *want, wb_tensor *s,
                    wb_tensor *s_want, bool last, wb_dtype dtype, int k, int reader)
{
    wb_tensor *all[2 + MOST_OPERANDS];
    int n = 0;
    if (!s || !s_want) fail_msg("%s, reader %d of operand %d: %s", o->name, reader, k, wb_error());
    if (!last) all[n++] = s;
    all[n++] = got->y;
    for (int i = 0; i < o->n; i++)
        if (got->gradient[i]) all[n++] = got->gradient[i];
    if (last) all[n++] = s;
    if (wb_eval_array(n, all))
        fail_msg("%s, reader %d of operand %d: %s", o->name, reader, k, wb_error());
    const double most = allowed(dtype);
    check(got->y, values_of(want->y), most, most, "%s of %s, reader %d of operand %d", o->name,
          wb_dtype_name(dtype), reader, k);
    check(s, values_of(s_want), most, most, "%s of %s, the result of reader %d of operand %d",
          o->name, wb_dtype_name(dtype), reader, k);
    for (int i = 0; i < o->n; i++)
        if (got->gradient[i])
            check(got->gradient[i], values_of(want->gradient[i]), most, 20 * most,
                  "%s of %s, reader %d of operand %d, gradient %d", o->name, wb_dtype_name(dtype),
                  reader, k, i);
}

/* True on a device that compiles kernels: a few cases must do. */
static bool compiles_kernels(void) { return getenv("WEBER_TEST_DEVICE") != NULL; }

/* The plan computes operand k, which has this second reader. */
static void check_operand(const operation *o, wb_dtype dtype, int k, int reader, bool gradients)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *in[MOST_OPERANDS], *ready[MOST_OPERANDS];
    for (int i = 0; i < o->n; i++) in[i] = ready[i] = leaf(&o->operands[i], dtype, i);
    wb_tensor *other = leaf(&o->operands[k], dtype, 7), *raw = in[k];
    ready[k] = computed(&o->operands[k], raw);
    assert_int_equal(wb_eval(ready[k]), 0);
    wb_tensor *s_want = read_by(reader, ready[k], other);
    const outcome want = outcome_of(o, ready, gradients);
    for (int last = 0; last < 2 - compiles_kernels(); last++) {
        in[k] = computed(&o->operands[k], raw);
        const outcome got = outcome_of(o, in, gradients);
        compare(o, &got, &want, read_by(reader, in[k], other), s_want, last, dtype, k, reader);
    }
    wb_scope_close(scope);
    ref_forget();
}

/* The operation's result (k = 0), or its gradient to operand k - 1, has this second reader, and
 * another operation uses it. */
static void check_result(const operation *o, wb_dtype dtype, int k, int reader)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *in[MOST_OPERANDS];
    for (int i = 0; i < o->n; i++) in[i] = leaf(&o->operands[i], dtype, i);
    outcome want = outcome_of(o, in, k > 0), got = outcome_of(o, in, k > 0);
    wb_tensor *v_want = k ? want.gradient[k - 1] : want.y, *v = k ? got.gradient[k - 1] : got.y;
    for (int i = 0; i < MOST_OPERANDS; i++) got.gradient[i] = want.gradient[i] = NULL;
    assert_int_equal(wb_eval(v_want), 0);
    wb_tensor *other = wb_neg(v_want);
    assert_int_equal(wb_eval(other), 0);
    want.y = wb_relu(wb_sub(wb_square(v_want), wb_scalar(0.25)));
    got.y = wb_relu(wb_sub(wb_square(v), wb_scalar(0.25)));
    compare(o, &got, &want, read_by(reader, v, other), read_by(reader, v_want, other), true, dtype,
            -k, reader);
    wb_scope_close(scope);
    ref_forget();
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int result_ndim(const operation *o, wb_dtype dtype)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *in[MOST_OPERANDS];
    for (int i = 0; i < o->n; i++) in[i] = leaf(&o->operands[i], dtype, i);
    const int n = wb_ndim(o->make(in));
    wb_scope_close(scope);
    ref_forget();
    return n;
}

static void all_readers(wb_dtype dtype, bool all)
{
    for (size_t i = 0; i < WB__COUNT(operations); i++) {
        const operation *o = &operations[i];
        for (int k = 0; k < o->n; k++)
            for (int reader = 0; reader < n_readers(o->operands[k].ndim); reader++)
                for (int gradients = 0; gradients <= all; gradients++)
                    check_operand(o, dtype, k, reader, gradients);
        for (int k = 0; k <= o->n && all; k++) {
            if (k && o->operands[k - 1].kind != FLOATING) continue;
            const int ndim = k ? o->operands[k - 1].ndim : result_ndim(o, dtype);
            for (int reader = 0; reader < n_readers(ndim); reader++)
                check_result(o, dtype, k, reader);
        }
    }
}

/* For devices that compile kernels: each operand is read by a stack along its last axis alone, and
 * by a concat of one dimension. */
static void one_reader(void)
{
    for (size_t i = 0; i < WB__COUNT(operations); i++) {
        const operation *o = &operations[i];
        for (int k = 0; k < o->n; k++) {
            check_operand(o, WB_F32, k, o->operands[k].ndim, false);
            check_operand(o, WB_F32, k, 2 * o->operands[k].ndim + 7, false);
        }
    }
}

TEST(each_dtype)
{
    if (compiles_kernels()) {
        one_reader();
        return;
    }
    all_readers(WB_F32, true);
    all_readers(WB_BF16, true);
    all_readers(WB_F64, false);
    all_readers(WB_F16, false);
}

/* On a device that supports every fused epilogue, sums and attention. */
TEST(where_all_is_absorbed)
{
    if (compiles_kernels()) return;
    const wb_device *before = wb__use_device(near_device());
    near_ask(true);
    near_allow(~0u);
    all_readers(WB_F32, true);
    wb__use_device(before);
}

/* A fused kernel, a sum over rows, a product, a convolution's gradient and a permuted copy write
 * their parts of a vector: there is a kernel for each, and none that copies.  On a GPU the product
 * and the gradient are copied, since their parts do not begin at multiples of 16 bytes. */
TEST_IN_SCOPE(parts_of_a_vector)
{
    wb_tensor *x = wb_ones(5, 3), *y = wb_ones(3, 7), *image = wb_ones(2, 3, 8, 8);
    wb_tensor *w = wb_variable(wb_ones(4, 3, 3, 3)), *rows = wb_exp(x);
    wb_tensor *c = wb_conv(image, w, WB_NONE);
    wb_tensor *part[] = {wb_sum(rows, 0), rows, wb_matmul(x, y), wb_gradient(wb_sum(c), w),
                         wb_permute(image, 3, 2, 1, 0)};
    const int n = (int)WB__COUNT(part);
    wb_tensor *flat[WB__COUNT(part)];
    wb_memory apart, together;
    for (int i = 0; i < n; i++) MADE(part[i]);
    WORKS(wb_eval(x, y, image));
    WORKS(wb_estimate_memory(n, part, &apart));
    for (int i = 0; i < n; i++) flat[i] = wb_reshape(part[i], wb_size(part[i]));
    wb_tensor *all = wb_concat_array(0, n, flat);
    WORKS(wb_estimate_memory(1, &all, &together));
    const bool gpu = compiles_kernels();
    assert_int_equal(together.kernels, apart.kernels + 2 * gpu);
    if (!gpu) assert_int_equal(together.arena, apart.arena);
    assert_int_equal(together.outputs, apart.outputs);
    const float *is = wb_data(all);
    for (int i = 0; i < n; i++) {
        const float *wanted = wb_data(part[i]);
        for (int64_t k = 0; k < wb_size(part[i]); k++) assert_true(is[k] == wanted[k]);
        is += wb_size(part[i]);
    }
}

/* ---- a concat of parts of another one -------------------------------------------------------- */

enum { PARTS = 5, PART_ROWS = 4, PART_WIDTH = 8 };

static double part_at(int part, int row, int column)
{
    return (part * 31 + row * 7 + column * 3) % 11 - 5;
}

/* Computes PARTS matrices, stacks them, and multiplies the concat of `n` of them, from left to
 * right in `order`, by itself.  Returns the number of kernels.  Checks the values. */
static int kernels_of_run(int n, const int *order, int axis)
{
    wb_tensor *part[PARTS], *some[PARTS], *results[2], *run;
    for (int i = 0; i < PARTS; i++) {
        float numbers[PART_ROWS * PART_WIDTH];
        for (int k = 0; k < PART_ROWS * PART_WIDTH; k++)
            numbers[k] = (float)part_at(i, k / PART_WIDTH, k % PART_WIDTH) - 1;
        MADE(part[i] = wb_from(numbers, WB_F32, 2, (int64_t[]){PART_ROWS, PART_WIDTH}));
        WORKS(wb_eval(part[i]));
        MADE(part[i] = wb_add(part[i], wb_scalar(1)));
    }
    for (int i = 0; i < n; i++) some[i] = part[order[i]];
    MADE(run = wb_concat_array(0, n, some));
    MADE(results[0] = wb_matmul(wb_transpose(run), run));
    MADE(results[1] = wb_stack_array(axis, PARTS, part));
    wb_memory m;
    WORKS(wb_estimate_memory(2, results, &m));
    WORKS(wb_eval_array(2, results));
    for (int i = 0; i < PARTS; i++)
        for (int k = 0; k < PART_ROWS * PART_WIDTH; k++) {
            const int row = k / PART_WIDTH, column = k % PART_WIDTH;
            const double is = axis ? wb_at(results[1], row, i, column)
                                   : wb_at(results[1], i, row, column);
            assert_true(is == part_at(i, row, column));
        }
    for (int i = 0; i < PART_WIDTH; i++)
        for (int j = 0; j < PART_WIDTH; j++) {
            double sum = 0;
            for (int k = 0; k < n * PART_ROWS; k++)
                sum += part_at(order[k / PART_ROWS], k % PART_ROWS, i) *
                       part_at(order[k / PART_ROWS], k % PART_ROWS, j);
            assert_true(wb_at(results[0], i, j) == sum);
        }
    return m.kernels;
}

/* A concat whose inputs follow one another in another concat is read there.  Any other one is
 * copied. */
TEST_IN_SCOPE(a_run_of_parts)
{
    const int all = kernels_of_run(PARTS, (int[]){0, 1, 2, 3, 4}, 0);
    assert_int_equal(kernels_of_run(3, (int[]){1, 2, 3}, 0), all);
    assert_int_equal(kernels_of_run(1, (int[]){4}, 0), all);
    assert_int_equal(kernels_of_run(3, (int[]){3, 2, 1}, 0), all + 3);
    assert_int_equal(kernels_of_run(3, (int[]){0, 1, 3}, 0), all + 3);
    assert_int_equal(kernels_of_run(3, (int[]){2, 2, 2}, 0), all + 3);
    assert_int_equal(kernels_of_run(3, (int[]){1, 2, 3}, 1), all + 3);
}

/* ---- attention beside other values ----------------------------------------------------------- */

/* Evaluates the concat of `ndim` dimensions, along `axis`, of `more` and of attention's result with
 * its heads behind the steps, in one plan and in parts.  Both are the same. */
static void beside(int64_t n, int ndim, const int64_t *dims, int axis, wb_tensor *more)
{
    enum { HEADS = 4, STEPS = 8, DEPTH = 8 };
    wb_tensor *x[3], *apart, *all;
    for (int i = 0; i < 3; i++) {
        x[i] = wb_sin(wb_add(wb_arange(n * HEADS * STEPS * DEPTH, WB_F32), wb_scalar(i)));
        MADE(x[i] = wb_reshape(x[i], n, HEADS, STEPS, DEPTH));
        WORKS(wb_eval(x[i]));
    }
    for (int i = 0; i < 2; i++) {
        wb_tensor *y = wb_attention(x[0], x[1], x[2], WB_NONE);
        if (i) WORKS(wb_eval(y));
        y = wb_reshape_array(wb_permute(y, 0, 2, 1, 3), ndim, dims);
        MADE(y = wb_concat(axis, more, y));
        WORKS(wb_eval(y));
        if (i) apart = y;
        else all = y;
    }
    assert_true(wb_item(wb_max(wb_abs(wb_sub(all, apart)))) < 1e-5);
}

TEST_IN_SCOPE(attention_in_a_concat)
{
    beside(2, 3, (int64_t[]){2, 8, 32}, 2, wb_zeros(2, 8, 32));
    beside(2, 3, (int64_t[]){2, 8, 32}, 2, wb_zeros(2, 8, 3));          /* not aligned */
    beside(2, 3, (int64_t[]){2, 8, 32}, 1, wb_zeros(2, 1, 32));
    beside(2, 2, (int64_t[]){16, 32}, 0, wb_zeros(3, 32));
    beside(2, 2, (int64_t[]){16, 32}, 1, wb_zeros(16, 8));
    beside(1, 3, (int64_t[]){4, 2, 32}, 1, wb_zeros(4, 1, 32));         /* strides cannot express */
    beside(2, 3, (int64_t[]){8, 2, 32}, 1, wb_zeros(8, 1, 32));
    beside(2, 4, (int64_t[]){2, 8, 2, 16}, 3, wb_zeros(2, 8, 2, 4));
    beside(2, 1, (int64_t[]){512}, 0, wb_zeros(8));
}

/* ---- rows of a variable ---------------------------------------------------------------------- */

enum { ROWS = 64, WIDTH = 6 };
static wb_tensor *numbered(void)
{
    return wb_reshape(wb_arange(ROWS * WIDTH, WB_F32), ROWS, WIDTH);
}

/* Returns v with rows 3 and 60 set to `value`; v is read as it is, transposed or reshaped. */
static wb_tensor *with_rows(wb_tensor *v, wb_tensor *index, float value)
{
    wb_tensor *rows = wb_full(value, 2, wb_dim(v, 1));
    return wb_scatter(v, index, rows, .reduce = WB_SCATTER_SET);
}

/* Checks that v has its numbers plus `more`, and `value` in rows 3 and 60 if `set`. */
static void check_rows(wb_tensor *v, float more, bool set, float value)
{
    const float *is = wb_data(v);
    assert_non_null(is);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const int row = i / WIDTH;
        const float want = set && (row == 3 || row == 60) ? value : (float)i + more;
        if (is[i] != want) fail_msg("element %d is %g, not %g", i, is[i], want);
    }
}

static int64_t arena_of_writes(wb_tensor *result)
{
    wb_memory m;
    WORKS(wb_estimate_memory(1, &result, &m));
    return m.arena;
}

/* A plan writes only the rows that are set, unless something else reads the variable's old numbers.
 * Then both have the right numbers. */
TEST_IN_SCOPE(rows_of_a_variable)
{
    wb_tensor *index = wb_from((int32_t[]){3, 60}, WB_I32, 1, (int64_t[]){2});
    wb_tensor *v = wb_variable(numbered()), *u = wb_variable(wb_zeros(ROWS, WIDTH)), *old, *sum;
    const int64_t copy = ROWS * WIDTH * 4;
    WORKS(wb_eval(v, u, index));
    WORKS(wb_assign(v, with_rows(v, index, -1)));
    assert_true(arena_of_writes(wb_ones(1)) < copy);
    check_rows(v, 0, true, -1);

    /* through reshapes, which have the same memory */
    MADE(old = wb_reshape(v, 1, ROWS, WIDTH));
    MADE(old = wb_reshape(old, ROWS, WIDTH));
    WORKS(wb_assign(v, wb_reshape(with_rows(old, index, -2), ROWS, WIDTH)));
    assert_true(arena_of_writes(wb_ones(1)) < copy);
    check_rows(v, 0, true, -2);

    /* a result that reads the old numbers, and one that is the old numbers */
    WORKS(wb_assign(v, numbered()));
    WORKS(wb_eval(v));
    MADE(sum = wb_sum(v));
    MADE(old = wb_transpose(v));
    WORKS(wb_assign(v, with_rows(v, index, -3)));
    WORKS(wb_eval(sum, old));
    assert_true(wb_item(sum) == ROWS * WIDTH * (ROWS * WIDTH - 1) / 2);
    check_rows(wb_transpose(old), 0, false, 0);
    check_rows(v, 0, true, -3);

    /* the rows read the variable; the target is another variable; two variables change places */
    WORKS(wb_assign(v, numbered()));
    WORKS(wb_eval(v));
    WORKS(wb_assign(v, wb_scatter(v, index, wb_slice(v, 0, 10, 12), .reduce = WB_SCATTER_SET)));
    const float *is = wb_data(v);
    for (int i = 0; i < 2 * WIDTH; i++)
        assert_true(is[(i < WIDTH ? 3 : 59) * WIDTH + i] == (float)(10 * WIDTH + i));
    WORKS(wb_assign(v, numbered()));
    WORKS(wb_eval(v));
    WORKS(wb_assign(u, with_rows(v, index, 7)));
    WORKS(wb_assign(v, wb_add(v, wb_scalar(1))));
    check_rows(u, 0, true, 7);
    check_rows(v, 1, false, 0);
    WORKS(wb_assign(u, numbered()));
    WORKS(wb_eval(u));
    wb_tensor *first = with_rows(u, index, 5), *second = with_rows(v, index, 6);
    WORKS(wb_assign(v, first));
    WORKS(wb_assign(u, second));
    check_rows(v, 0, true, 5);
    check_rows(u, 1, true, 6);

    /* the transpose of a variable */
    wb_tensor *w = wb_variable(wb_reshape(wb_arange(9, WB_F32), 3, 3));
    wb_tensor *one = wb_from((int32_t[]){1}, WB_I32, 1, (int64_t[]){1});
    WORKS(wb_eval(w));
    WORKS(wb_assign(w, wb_scatter(wb_transpose(w), one, wb_zeros(1, 3),
                                  .reduce = WB_SCATTER_SET)));
    assert_true(wb_at(w, 0, 1) == 3 && wb_at(w, 1, 1) == 0 && wb_at(w, 2, 0) == 2);
}

/* A computed value that nothing else reads is not copied before its rows are set. */
TEST_IN_SCOPE(rows_of_a_value)
{
    wb_tensor *index = wb_from((int32_t[]){3, 60}, WB_I32, 1, (int64_t[]){2});
    wb_tensor *x = numbered(), *once, *twice, *kept;
    wb_memory alone, both;
    WORKS(wb_eval(x, index));
    MADE(once = with_rows(wb_add(x, wb_scalar(2)), index, -1));
    WORKS(wb_estimate_memory(1, &once, &alone));
    MADE(kept = wb_add(x, wb_scalar(2)));
    MADE(twice = with_rows(kept, index, -1));
    wb_tensor *results[] = {twice, wb_mul(kept, kept)};
    WORKS(wb_estimate_memory(2, results, &both));
    assert_true(alone.arena < ROWS * WIDTH * 4);
    assert_int_equal(both.kernels, alone.kernels + 1);      /* a copy */
    check_rows(once, 2, true, -1);
    WORKS(wb_eval(results[0], results[1]));
    check_rows(twice, 2, true, -1);
    assert_true(wb_at(results[1], 3, 0) == 400);
}

int main(void)
{
    near_device();
    return run_all_cases();
}
