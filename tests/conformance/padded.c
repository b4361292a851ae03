/* Tensors among zeros that elementwise operations and reductions read: on a GPU they are never
 * stored, and kernels compare indices with the bounds of the part (engine/plan/window.c). */
#include "reference.h"

#include "engine/tensor.h"

static array operand(wb_dtype t, int ndim, const int64_t *dims)
{
    const bool whole = t > WB_BF16;
    array x = draw_array(ndim, dims, whole ? 0 : -2, whole ? 4 : 2);
    round_to(x, t);
    return x;
}

static double larger(double x, double y) { return x > y ? x : y; }
static double plus(double x, double y) { return x + y; }

/* Changes x and y, which are equal, in one way.  A pad comes more often than others. */
static void change(array *x, wb_tensor **y, char *what)
{
    const int axis = (int)draw_int(0, x->ndim - 1), kind = (int)draw_int(0, 10);
    const int64_t n = x->dims[axis], a = draw_int(0, n - 1), b = draw_int(a + 1, n);
    int64_t dims[WB_MAX_DIMS], order[WB_MAX_DIMS];
    sprintf(what + strlen(what), " %d:%d", kind, axis);
    memcpy(dims, x->dims, sizeof dims);
    switch (kind) {
    case 0: *x = ref_slice(*x, axis, a, b); *y = wb_slice(*y, axis, a, b); break;
    case 1: *x = ref_flip(*x, axis); *y = wb_flip(*y, axis); break;
    case 2:
        for (int d = 0; d < x->ndim; d++) order[d] = (d + axis) % x->ndim;
        *x = ref_permute(*x, order);
        *y = wb_permute_array(*y, x->ndim, order);
        break;
    case 3:                                     /* joins an axis with the next one */
        if (axis + 1 == x->ndim) break;
        dims[axis] *= dims[axis + 1];
        memmove(dims + axis + 1, dims + axis + 2, (size_t)(x->ndim - axis - 2) * sizeof *dims);
        *x = ref_reshape(*x, x->ndim - 1, dims);
        *y = wb_reshape_array(*y, x->ndim, dims);
        break;
    case 4:                                     /* spreads an axis out: its indices in steps */
        if (x->ndim > 4) break;
        memmove(dims + axis + 2, dims + axis + 1, (size_t)(x->ndim - axis - 1) * sizeof *dims);
        dims[axis + 1] = 1;
        *x = ref_pad(ref_reshape(*x, x->ndim + 1, dims), axis + 1, a % 2, 1);
        *y = wb_pad(wb_reshape_array(*y, x->ndim, dims), axis + 1, a % 2, 1);
        memcpy(dims, x->dims, sizeof dims);
        dims[axis] *= dims[axis + 1];
        memmove(dims + axis + 1, dims + axis + 2, (size_t)(x->ndim - axis - 2) * sizeof *dims);
        *x = ref_reshape(*x, x->ndim - 1, dims);
        *y = wb_reshape_array(*y, x->ndim, dims);
        break;
    case 5:
        if (x->ndim > 4) break;
        memcpy(dims + 1, x->dims, (size_t)x->ndim * sizeof *dims);
        dims[0] = 2;
        *x = ref_expand(*x, x->ndim + 1, dims);
        *y = wb_expand_array(*y, x->ndim, dims);
        break;
    case 6: {                                   /* a strided slice */
        array part[16];
        int parts = 0;
        if (n > 16) break;
        for (int64_t i = a; i < n; i += 2) part[parts++] = ref_slice(*x, axis, i, i + 1);
        *x = ref_concat(parts, part, axis);
        *y = wb_slice(*y, axis, a, n, 2);
        break;
    }
    default:
        *x = ref_pad(*x, axis, a % 3, b % 4);
        *y = wb_pad(*y, axis, a % 3, b % 4);
        break;
    }
}

/* Reads the padded tensor in several ways at once: beside another tensor, broadcast, in sums over
 * some axes, all in one plan. */
static void read_all(array x, wb_tensor *y, wb_dtype t, const char *what)
{
    int64_t line[WB_MAX_DIMS];
    for (int d = 0; d < x.ndim; d++) line[d] = d == x.ndim - 1 ? x.dims[d] : 1;
    const array other = operand(t, x.ndim, x.dims), row = operand(t, x.ndim, line);
    const unsigned mask = (unsigned)draw_int(1, (1 << x.ndim) - 1);
    int axes[WB_MAX_DIMS], n = 0;
    for (int d = 0; d < x.ndim; d++)
        if (mask >> d & 1) axes[n++] = d;
    wb_tensor *beside = wb_maximum(y, tensor_of(other, t, 0));
    wb_tensor *with_row = wb_maximum(tensor_of(row, t, 0), y);
    wb_tensor *most = wb_maximum(y, y);
    for (int i = n - 1; i >= 0; i--) most = wb_max(most, .axes = {axes[i]}, .keep = true);
    assert_int_equal(wb_eval(beside, with_row, most), 0);
    check(beside, ref_map2(larger, x, other), 0, 0, "beside another,%s", what);
    check(with_row, ref_map2(larger, row, x), 0, 0, "beside a row,%s", what);
    check(most, ref_max(x, mask, true), 0, 0, "maxima over axes %x,%s", mask, what);
}

TEST(padded_views)
{
    for (int round = 0; round < 400 / fewer(); round++) IN_SCOPE {
        const wb_dtype t = (wb_dtype)(WB_F32 + round % 8);
        int64_t dims[WB_MAX_DIMS];
        const int ndim = (int)draw_int(1, 4);
        char what[300] = "";
        if (!has_dtype(t)) continue;
        for (int d = 0; d < ndim; d++) dims[d] = draw_int(1, round % 3 ? 4 : 9);
        array x = operand(t, ndim, dims);
        wb_tensor *y = tensor_of(x, t, 0);
        if (round & 1) {                        /* a part that another kernel computes */
            x = ref_pad(ref_slice(x, 0, 0, 1), 0, 0, dims[0] - 1);
            y = wb_maximum(wb_pad(wb_slice(y, 0, 0, 1), 0, 0, dims[0] - 1), 0);
            for (int64_t i = 0; i < x.size; i++) x.at[i] = larger(x.at[i], 0);
        }
        for (int k = (int)draw_int(1, 6); k > 0 && x.size < 3000; k--) change(&x, &y, what);
        snprintf(what + strlen(what), 40, " of %s, round %d", wb_dtype_name(t), round);
        read_all(x, y, t, what);
        ref_forget();
    }
}

/* The bias of a product is padded; a product reads a matrix of which other rows are summed. */
TEST(beside_products)
{
    const array a = operand(WB_F32, 2, (int64_t[]){6, 2});
    const array b = operand(WB_F32, 2, (int64_t[]){6, 3});
    const array part = operand(WB_F32, 1, (int64_t[]){2});
    array ones = ref_new(2, (int64_t[]){6, 2}), most = ref_map2(larger, b, ref_number(0));
    for (int i = 0; i < 12; i++) ones.at[i] = 1;
    wb_tensor *x = wb_maximum(tensor_of(b, WB_F32, 0), 0);
    wb_tensor *turned = wb_transpose(tensor_of(a, WB_F32, 0));
    wb_tensor *product = wb_matmul(turned, x);
    wb_tensor *sum = wb_sum(wb_pad(wb_slice(x, 0, 0, 4), 0, 0, 2), .axes = {0}, .keep = true);
    wb_tensor *biased = wb_linear(tensor_of(ones, WB_F32, 0), tensor_of(a, WB_F32, 0),
                                  wb_pad(tensor_of(part, WB_F32, 0), 0, 1, 3));
    assert_int_equal(wb_eval(product, sum, biased), 0);
    check(product, ref_matmul(ref_permute(a, (int64_t[]){1, 0}), most), 1e-5, 1e-5, "a product");
    check(sum, ref_sum(ref_slice(most, 0, 0, 4), 1, true), 1e-5, 1e-5, "a sum of some rows");
    check(biased, ref_map2(plus, ref_matmul(ones, ref_permute(a, (int64_t[]){1, 0})),
                           ref_pad(part, 0, 1, 3)), 1e-5, 1e-5, "a padded bias");
}

/* Zeros between two parts, which are leaves, are not written after the parts. */
TEST(several_parts)
{
    const array a = operand(WB_F32, 2, (int64_t[]){2, 3});
    const array b = operand(WB_F32, 2, (int64_t[]){1, 3});
    array zeros = ref_new(2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++) zeros.at[i] = 0;
    wb_tensor *x = tensor_of(ref_concat(3, (array[]){a, zeros, b}, 0), WB_F32, 0);
    wb_tensor *first = wb_mul(wb_slice(x, 0, 0, 2), tensor_of(a, WB_F32, 0));
    wb_tensor *last = wb_mul(wb_slice(x, 0, 4, 5), tensor_of(b, WB_F32, 0));
    check(wb_gradient(wb_add(wb_sum(first), wb_sum(last)), x),
          ref_concat(3, (array[]){a, zeros, b}, 0), 0, 0, "a gradient of two slices");
}

/* The gradient of a strided slice is spread out among zeros, and an update reads it. */
TEST(strided_gradients)
{
    for (int round = 0; round < 40 / fewer(); round++) IN_SCOPE {
        const wb_dtype t = round % 2 ? WB_F32 : widest_float();
        const int64_t step = draw_int(1, 4), from = draw_int(0, 3);
        const int64_t dims[4] = {draw_int(1, 3), draw_int(1, 7), from + draw_int(1, 12),
                                 draw_int(1, 9)};
        const int axis = 2;
        array x = operand(t, 4, dims), want = ref_new(4, dims);
        wb_tensor *v = tensor_of(x, t, 0);
        wb_tensor *part = wb_slice(v, axis, from, dims[axis], step);
        wb_tensor *g = wb_gradient(wb_sum(wb_square(part)), v);
        for (int64_t i = 0; i < x.size; i++) {
            const int64_t at = i / dims[3] % dims[2] - from;
            want.at[i] = x.at[i] - (at >= 0 && at % step == 0 ? x.at[i] : 0);
        }
        check(wb_sub(v, wb_mul(g, 0.5)), want, 1e-6, 1e-6,
              "steps of %d from %d, round %d", (int)step, (int)from, round);
        ref_forget();
    }
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
