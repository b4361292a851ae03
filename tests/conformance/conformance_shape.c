/* Reductions, changes of shape and gathers against references, in every dtype, over views; random
 * sources by their statistics.  conformance_graph.c tests mixtures of them and their gradients. */
#include "reference.h"

#include "engine/tensor.h"

static bool whole(wb_dtype t) { return t > WB_BF16; }

static array operand(wb_dtype t, int ndim, const int64_t *dims)
{
    array x = draw_array(ndim, dims, whole(t) ? 0 : -2, whole(t) ? 4 : 2);
    round_to(x, t);
    for (int64_t i = 0; t == WB_BOOL && i < x.size; i++) x.at[i] = draw_int(0, 1);
    return x;
}

static const struct {
    const char *name;
    array (*reference)(array, unsigned, bool);
    wb_tensor *(*f)(wb_tensor *, const wb_reduce_options *);
    bool floats, empty;
} reductions[] = {
    {"sum", ref_sum, wb_sum_with, false, true},
    {"mean", ref_mean, wb_mean_with, true, false},
    {"max", ref_max, wb_max_with, false, false},
    {"min", ref_min, wb_min_with, false, false},
    {"variance", ref_variance, wb_variance_with, true, false},
    {"logsumexp", ref_logsumexp, wb_logsumexp_with, true, false},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

TEST(reduces)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (int r = 0; r < REDUCTIONS; r++)
        for (wb_dtype t = WB_F32; t < WB_BOOL; t++)
            for (int shape = (r + (int)t) % fewer(); shape < 20; shape += fewer()) IN_SCOPE {
                if (reductions[r].floats && whole(t)) continue;
                draw_shape(shape, &ndim, dims);
                array x = operand(t, ndim, dims);
                if (!x.size && !reductions[r].empty) continue;
                unsigned mask = (unsigned)draw_int(1, (1 << ndim) - (ndim > 0));
                bool all = !draw_int(0, 3) || !ndim, keep = draw_int(0, 1);
                if (all) mask = (1u << ndim) - 1;
                wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options, .keep = keep);
                int64_t axes[WB_MAX_DIMS];
                int n_axes = 0;
                for (int d = 0; d < ndim && !all; d++)
                    if (mask >> d & 1) axes[n_axes++] = draw_int(0, 1) ? d : d - ndim;
                wb_ints_set(o.axes, n_axes, axes);
                wb_tensor *y = reductions[r].f(tensor_of(x, t, (int)draw_int(0, VIEWS - 1)), &o);
                array want = reductions[r].reference(x, mask, keep);
                double n = want.size ? (double)x.size / (double)want.size : 1,
                       e = tolerance(t == WB_F64 ? t : WB_F32);
                /* Sums are accumulated in f32 or wider with an error that grows like the square
                 * root of n; the result is rounded once. */
                double absolute =
                    whole(t) ? 0
                             : e * 4 * (2 + sqrt(n)) *
                                       (strcmp(reductions[r].name, "sum") ? 1 : sqrt(n) + 1) +
                                   4 * tolerance(t);
                for (int64_t i = 0; (t == WB_I8 || t == WB_U8) && i < want.size; i++)
                    want.at[i] = t == WB_U8 ? (double)(uint8_t)(int64_t)want.at[i]
                                            : (double)(int8_t)(int64_t)want.at[i];
                check(y, want, 4 * tolerance(t), absolute, "%s of %s, shape %d, axes %x",
                      reductions[r].name, wb_dtype_name(t), shape, mask);
                ref_forget();
            }
}

TEST(special_reductions)
{
    int64_t dims[2] = {5, 7};
    for (wb_dtype t = WB_F32; t <= WB_F64; t++)
        for (int axis = 0; axis < 2; axis++) {
            array x = draw_array(2, dims, -1, 1);
            round_to(x, t);
            x.at[3] = NAN;
            x.at[8] = INFINITY;
            x.at[16] = -INFINITY;
            for (int i = 28; i < 35; i++) x.at[i] = -INFINITY;
            wb_tensor *p = tensor_of(x, t, 2);
            wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options, .axes = WB_INTS(axis));
            for (int r = 0; r < REDUCTIONS; r++)
                if (strcmp(reductions[r].name, "variance") && strcmp(reductions[r].name, "mean"))
                    check(reductions[r].f(p, &o), reductions[r].reference(x, 1u << axis, false),
                          1e-5, 0, "%s along %d", reductions[r].name, axis);
            check(wb_argmax(p, axis), ref_argmax(x, axis), 0, 0,
                  "argmax along %d: NaN wins, the first of equals", axis);
            ref_forget();
        }
    REFUSED(wb_max(wb_zeros(0, 3)), WB_ERROR_SHAPE, "[0,3] f32");
    assert_true(wb_item(wb_sum(wb_zeros(0, 3))) == 0);
}

TEST(argmaxes)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (wb_dtype t = WB_F32; t < WB_BOOL; t++)
        for (int shape = 2 + (int)t % fewer(); shape < 16; shape += fewer()) IN_SCOPE {
            draw_shape(shape, &ndim, dims);
            array x = operand(t, ndim, dims);
            if (!ndim || !x.size) continue;
            int axis = (int)draw_int(0, ndim - 1);
            wb_tensor *y = wb_argmax(tensor_of(x, t, (int)draw_int(0, VIEWS - 1)),
                                     axis - (draw_int(0, 1) ? ndim : 0));
            assert_int_equal(wb_dtype_of(y), WB_I32);
            check(y, ref_argmax(x, axis), 0, 0, "argmax of %s, shape %d, axis %d", wb_dtype_name(t),
                  shape, axis);
            ref_forget();
        }
    /* Axes longer than an i32 index can address; no tensor of this size is ever computed. */
    const int64_t length = (1ll << 31) + 1, classes = (1ll << 32) - 1;
    wb_tensor *fits = wb_full_array(0, WB_U8, 1, (int64_t[]){length - 1});
    wb_tensor *over = wb_full_array(0, WB_U8, 2, (int64_t[]){1, length});
    assert_non_null(wb_argmax(fits, 0));
    REFUSED(wb_argmax(over, 1), WB_ERROR_SHAPE, "axis", "1");
    assert_null(wb_onecold(over));
    assert_non_null(wb_argmax(over, 0));
    wb_clear_error();
    wb_tensor *label = wb_full_array(-5, WB_I32, 1, (int64_t[]){1});
    wb_tensor *end = wb_slice(wb_onehotbatch(label, classes), 1, classes - 10, classes);
    check(end, ref_new(2, (int64_t[]){1, 10}), 0, 0, "labels below 0 beside classes beyond i32");
}

/* Random chains of slices, flips, pads, permutations, concatenations, reshapes, expansions and
 * gathers, in every dtype: the results are exact. */
TEST(moves)
{
    for (int round = 0; round < 270 / fewer(); round++) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + round % 9);
        if (!has_dtype(t)) t = WB_F32;
        int64_t dims[WB_MAX_DIMS], order[WB_MAX_DIMS];
        int ndim = (int)draw_int(1, 4);
        for (int d = 0; d < ndim; d++) dims[d] = draw_int(round % 10 ? 1 : 0, 5);
        array x = operand(t, ndim, dims);
        wb_tensor *y = tensor_of(x, t, 0);
        char what[200] = "";
        for (int k = (int)draw_int(1, 5); k > 0; k--) {
            int axis = (int)draw_int(0, x.ndim - 1), kind = (int)draw_int(0, 8);
            int64_t n = x.dims[axis], a = draw_int(0, n), b = draw_int(a, n);
            snprintf(what + strlen(what), sizeof what - strlen(what), " %d", kind);
            switch (kind) {
            case 0:
                x = ref_slice(x, axis, a, b);
                y = wb_slice(y, axis - (a & 1 ? x.ndim : 0), a && a < n ? a - n : a, b);
                break;
            case 1: x = ref_flip(x, axis); y = wb_flip(y, axis); break;
            case 2: x = ref_pad(x, axis, a % 3, b % 2); y = wb_pad(y, axis, a % 3, b % 2); break;
            case 3:
                for (int d = 0; d < x.ndim; d++) order[d] = (d + axis) % x.ndim;
                x = ref_permute(x, order);
                y = wb_permute_array(y, x.ndim, order);
                break;
            case 4:
                x = ref_concat(3, (array[]){x, ref_flip(x, axis), x}, axis);
                y = wb_concat(axis, y, wb_flip(y, axis), y);
                break;
            case 5: {
                int64_t flat[2] = {x.size / (n ? n : 1), n};
                if (!n) break;
                x = ref_reshape(x, 2, flat);
                y = wb_reshape_array(y, 2, (int64_t[]){-1, n});
                break;
            }
            case 6:
                if (x.ndim > 5) break;
                memcpy(dims + 1, x.dims, (size_t)x.ndim * sizeof *dims);
                dims[0] = 2;
                x = ref_expand(x, x.ndim + 1, dims);
                y = wb_expand_array(y, x.ndim, dims);
                break;
            case 7: {
                array index = ref_new(2, (int64_t[]){2, 2});
                for (int i = 0; i < 4; i++) index.at[i] = (double)draw_int(-1, x.dims[0]);
                if (x.ndim > 5) break;
                x = ref_take(x, index);
                y = wb_take(y, tensor_of(index, draw_int(0, 1) ? WB_I32 : WB_I64, 0));
                break;
            }
            default:
                if (x.ndim > 5) break;
                memcpy(dims, x.dims, sizeof dims);
                memmove(dims + axis + 1, dims + axis, (size_t)(x.ndim - axis) * sizeof *dims);
                dims[axis] = 1;
                x = ref_reshape(x, x.ndim + 1, dims);
                y = wb_unsqueeze(y, axis);
                break;
            }
        }
        check(y, x, 0, 0, "moves%s of %s, round %d", what, wb_dtype_name(t), round);
        ref_forget();
    }
}

static double product(double x, double y) { return x * y; }
static double plus(double x, double y) { return x + y; }
static double minus(double x, double y) { return x - y; }

/* Sums over any axes beside the elements that they sum, which are results too, and elements that
 * read a sum: a GPU computes them in one kernel, in an order of the axes that suits the sums. */
TEST(sums_beside_elements)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 0, 16, 33};
    static const wb_dtype types[] = {WB_F32, WB_F64, WB_BF16, WB_F16, WB_I32};
    for (int round = 0; round < 120 / fewer(); round++) IN_SCOPE {
        const wb_dtype t = types[round % 5];
        const unsigned mask = round % 3 ? (round % 3 == 1 ? 0xd : 0x7) : (unsigned)draw_int(1, 15);
        int64_t dims[4], line[4] = {1, 1, 1, 1};
        if (!has_dtype(t)) continue;
        for (int d = 0; d < 4; d++) dims[d] = sizes[draw_int(0, d == 1 ? 6 : round % 7 ? 3 : 4)];
        line[1] = dims[1];
        array x = draw_array(4, dims, -2.5, 2.5), row = draw_array(4, line, -2.5, 2.5);
        for (int64_t i = 0; i < x.size; i++) x.at[i] = floor(x.at[i]);
        for (int64_t i = 0; i < row.size; i++) row.at[i] = floor(row.at[i]);
        wb_tensor *a = tensor_of(x, t, 0), *y = wb_mul(a, tensor_of(row, t, 0)), *sum = y, *more;
        wb_tensor *lines = wb_sum(y, .axes = {3}, .keep = true);
        more = wb_add(y, a);
        for (int d = 0; d < 4; d++)
            if (mask >> d & 1) {
                sum = wb_sum(sum, .axes = {d}, .keep = true);
                more = wb_sum(more, .axes = {d}, .keep = true);
            }
        wb_tensor *rest = wb_sub(y, wb_maximum(wb_minimum(sum, 8), -8));
        assert_int_equal(wb_eval(y, lines, sum, more, rest), 0);
        const array want = ref_map2(product, x, row), total = ref_sum(want, mask, true);
        array near = ref_map2(plus, total, ref_number(0));
        for (int64_t i = 0; i < near.size; i++) near.at[i] = fmax(fmin(near.at[i], 8), -8);
        check(y, want, 0, 0, "elements of %s, round %d", wb_dtype_name(t), round);
        check(lines, ref_sum(want, 8, true), tolerance(t), 0, "sums of lines of %s, round %d",
              wb_dtype_name(t), round);
        check(sum, total, tolerance(t), 0, "sums over axes %x of %s, round %d", mask,
              wb_dtype_name(t), round);
        check(more, ref_sum(ref_map2(plus, want, x), mask, true), tolerance(t), 0,
              "more sums over axes %x of %s, round %d", mask, wb_dtype_name(t), round);
        check(rest, ref_map2(minus, want, near), 0, 0, "the rest, axes %x of %s, round %d", mask,
              wb_dtype_name(t), round);
        ref_forget();
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

TEST(sources)
{
    for (wb_dtype t = WB_F32; t < WB_BOOL; t++) {
        array range = ref_new(1, (int64_t[]){100}), eye = ref_new(2, (int64_t[]){7, 7}),
              full = ref_new(2, (int64_t[]){3, 0});
        if (!has_dtype(t)) continue;
        for (int i = 0; i < 100; i++) range.at[i] = i;
        for (int i = 0; i < 7; i++) eye.at[8 * i] = 1;
        check(wb_arange(100, t), range, 0, 0, "arange");
        check(wb_flip(wb_arange(100, t), 0), ref_flip(range, 0), 0, 0, "arange, flipped");
        check(wb_eye(7, t), eye, 0, 0, "eye");
        check(wb_full_array(3, t, 2, (int64_t[]){3, 0}), full, 0, 0, "full");
        ref_forget();
    }
    wb_seed(11);
    int64_t n = 200000;
    for (wb_dtype t = WB_F32; t <= WB_BF16; t++) {
        if (!has_dtype(t)) continue;
        array u = values_of(wb_rand_array(t, 1, &n)), g = values_of(wb_randn_array(t, 1, &n));
        double mean = 0, square = 0, low = 1, high = 0;
        for (int64_t i = 0; i < n; i++) {
            low = fmin(low, u.at[i]);
            high = fmax(high, u.at[i]);
            mean += g.at[i] / (double)n;
            square += g.at[i] * g.at[i] / (double)n;
        }
        double average = ref_mean(u, 1, false).at[0];
        if (!(low >= 0 && high < 1 + (t > WB_F64) && fabs(average - 0.5) < 0.004))
            fail_msg("uniform %s: %g to %g, mean %g", wb_dtype_name(t), low, high, average);
        if (!(fabs(mean) < 0.01 && fabs(square - 1) < 0.02))
            fail_msg("gaussian %s: mean %g, square %g", wb_dtype_name(t), mean, square);
        ref_forget();
    }
    /* A random tensor has the same elements through any view, whatever was evaluated before. */
    wb_seed(5);
    array plain = values_of(wb_rand(6, 5));
    wb_seed(5);
    wb_tensor *x = wb_rand(6, 5), *other = wb_rand(6, 5);
    array second = values_of(other);
    check(wb_permute(wb_flip(x, 1), 1, 0), ref_permute(ref_flip(plain, 1), (int64_t[]){1, 0}), 0, 0,
          "a draw, flipped and permuted");
    check(x, plain, 0, 0, "a draw");
    bool same = true;
    for (int i = 0; i < 30; i++) same &= second.at[i] == plain.at[i];
    assert_false(same);
}

/* An index that occurs twice gets the sum of both gradients; an index out of range gets none. */
TEST(take_gradient)
{
    array x = draw_array(2, (int64_t[]){4, 3}, -1, 1), index = ref_new(1, (int64_t[]){6}),
          want = ref_new(2, x.dims);
    static const double rows[] = {1, 1, 3, -1, 4, 1};
    memcpy(index.at, rows, sizeof rows);
    for (wb_dtype t = WB_F32; t <= widest_float(); t++) {
        wb_tensor *p = tensor_of(x, t, 0), *y = wb_take(p, tensor_of(index, WB_I32, 0));
        array w = draw_array(2, (int64_t[]){6, 3}, -1, 1);
        round_to(w, t);
        memset(want.at, 0, 12 * sizeof *want.at);
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 3; j++)
                if (rows[i] >= 0 && rows[i] < 4) want.at[(int)rows[i] * 3 + j] += w.at[i * 3 + j];
        check(wb_gradient(wb_sum(wb_mul(y, tensor_of(w, t, 0))), p), want, 0, 1e-6,
              "gradient of take");
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
