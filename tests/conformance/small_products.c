/* Small matrix products whose readers are elementwise.  On a GPU the kernels of the readers compute
 * them, so the graphs here are compared with the same graphs in f64 on the CPU.  The readers are
 * all that can be in a kernel with a product, or must not be.  WEBER_OPENCL_PRODUCTS=1 has OpenCL
 * do so on a CPU, too. */
#include "reference.h"

#include "base/base.h"
#include "weber/device.h"

enum { M = 5, K = 6, N = 4, MOST = 8 };

/* Builds results from the inputs a [M,K], w [K,3N], x [M,N], s [N,N] (a variable), v [N]. */
enum { A, W, X, S, V, INPUTS };
typedef int graph(wb_tensor *const *in, wb_tensor **out);

static wb_tensor *part(wb_tensor *x, int i) { return wb_slice(x, -1, i * N, (i + 1) * N); }
static wb_tensor *product(wb_tensor *const *in) { return wb_matmul(in[A], part(in[W], 0)); }

static int residual(wb_tensor *const *in, wb_tensor **out)
{
    out[0] = wb_add(in[X], wb_mul(wb_tanh(wb_add(product(in), in[V])), wb_scalar(2)));
    return 1;
}

static int activated(wb_tensor *const *in, wb_tensor **out)
{
    out[0] = wb_mul(in[X], wb_relu(wb_add(product(in), in[V])));
    return 1;
}

static int gates(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *z = wb_matmul(in[A], in[W]), *r = wb_sigmoid(part(z, 0));
    out[0] = wb_mul(wb_sigmoid(part(z, 1)),
                    wb_tanh(wb_add(wb_mul(r, part(z, 2)), in[X])));
    return 1;
}

static int gates_that_are_results(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *z = wb_matmul(in[A], in[W]);
    out[0] = wb_mul(part(z, 0), wb_add(part(z, 1), in[X]));
    out[1] = wb_mul(part(z, 1), wb_scalar(3));
    out[2] = part(z, 2);
    return 3;
}

static int odd_slices(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *z = wb_matmul(in[A], in[W]);
    out[0] = wb_tanh(wb_mul(wb_slice(z, 1, 0, 8, 2), in[X]));
    out[1] = wb_mul(wb_slice(wb_slice(z, 1, 3, 7), 0, 1, 3), wb_slice(in[X], 0, 1, 3));
    return 2;
}

static int flipped(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *z = wb_matmul(in[A], in[W]);
    out[0] = wb_flip(wb_mul(product(in), in[X]), 0);
    out[1] = wb_flip(wb_tanh(part(z, 1)), 1);
    out[2] = wb_mul(wb_slice(wb_flip(part(z, 2), 0), 0, 1, 3), wb_slice(in[X], 0, 1, 3));
    return 3;
}

static int columns_of_one(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *z = wb_matmul(in[A], in[W]);
    out[0] = wb_mul(wb_slice(z, 1, 0, 1), wb_add(wb_slice(z, 1, 1, 2), wb_slice(in[X], 1, 0, 1)));
    return 1;
}

static int read_twice(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = product(in);
    out[0] = wb_mul(in[X], p);
    out[1] = wb_matmul(wb_tanh(p), in[S]);
    out[2] = wb_mul(wb_tanh(out[1]), p);
    return 3;
}

static int by_library(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = product(in);
    out[0] = wb_sub(wb_matmul(p, in[S]), wb_mul(p, in[X]));
    return 1;
}

static int reduced(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = product(in), *y = wb_mul(wb_add(p, in[V]), in[X]);
    out[0] = wb_sum(y, .axes = {0});
    out[1] = wb_softmax(y);
    out[2] = wb_mean(wb_square(wb_sub(wb_mul(product(in), in[X]), y)));
    return 3;
}

static int far_reduction(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *y = wb_mul(product(in), in[X]);
    for (int i = 0; i < 7; i++) y = wb_tanh(wb_add(y, in[X]));
    out[0] = wb_sum(y);
    out[1] = wb_sum(y, .axes = {1});
    return 2;
}

/* The product has the shape of its operand. */
static int square(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *h = wb_tanh(in[X]);
    for (int i = 0; i < 3; i++) h = wb_tanh(wb_add(h, wb_mul(wb_matmul(h, in[S]), h)));
    out[0] = h;
    return 1;
}

static int recurrence(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *h = NULL;
    for (int t = 0; t < 4; t++) {
        wb_tensor *x = wb_mul(in[X], wb_scalar(t + 1));
        h = wb_tanh(h ? wb_add(x, wb_matmul(h, in[S])) : x);
        out[t] = h;
    }
    return 4;
}

static int compared(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = product(in);
    out[0] = wb_where(wb_gt(p, wb_scalar(0)), in[X], wb_scalar(0));
    out[1] = wb_where(wb_gt(in[X], wb_scalar(0)), product(in), in[X]);
    return 2;
}

/* The product has fewer elements than its reader. */
static int broadcast(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = wb_matmul(in[A], wb_slice(in[W], 1, 0, 1));
    out[0] = wb_mul(in[X], wb_tanh(wb_add(p, wb_scalar(1))));
    out[1] = wb_mul(in[X], wb_slice(product(in), 0, 2, 3));
    return 2;
}

static int transposed(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *p = wb_matmul(wb_transpose(part(in[W], 1)), wb_transpose(in[A]));
    out[0] = wb_mul(wb_transpose(p), in[X]);
    out[1] = wb_tanh(wb_mul(p, wb_transpose(in[X])));
    out[2] = wb_mul(wb_linear(in[X], in[S], in[V]), in[X]);
    return 3;
}

static int batches(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *a = wb_stack_array(0, 3, (wb_tensor *[]){in[A], wb_neg(in[A]), wb_tanh(in[A])});
    wb_tensor *parts[] = {part(in[W], 0), part(in[W], 1), part(in[W], 2)};
    wb_tensor *w = wb_stack_array(0, 3, parts);
    out[0] = wb_mul(wb_matmul(a, w), in[X]);
    out[1] = wb_tanh(wb_add(wb_matmul(a, part(in[W], 1)), in[X]));
    wb_tensor *z = wb_matmul(a, in[W]);
    out[2] = wb_mul(wb_tanh(part(z, 0)), wb_add(part(z, 2), in[X]));
    return 3;
}

static int outer(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *column = wb_slice(in[X], 1, 0, 1), *row = wb_reshape(in[V], 1, N);
    out[0] = wb_mul(wb_matmul(column, row), in[X]);
    return 1;
}

/* A concat with a gap: the gradient of slices. */
static int gap(wb_tensor *const *in, wb_tensor **out)
{
    wb_tensor *y = wb_tanh(in[W]), *z = wb_mul(wb_slice(y, 0, 0, M), wb_scalar(1));
    wb_tensor *used = wb_add(wb_mul(part(z, 0), in[X]), wb_square(part(z, 2)));
    out[0] = wb_gradient(wb_sum(used), in[W]);
    out[1] = wb_gradient(wb_sum(wb_mul(part(z, 1), in[X])), in[W]);
    out[2] = wb_gradient(wb_sum(wb_mul(wb_tanh(product(in)), in[X])), in[A]);
    return 3;
}

static graph *const graphs[] = {
    residual, activated, gates, gates_that_are_results, odd_slices, columns_of_one, read_twice,
    by_library, reduced, far_reduction, flipped, square, recurrence, compared, broadcast,
    transposed, batches, outer, gap};

/* ---- comparing ------------------------------------------------------------------------------- */

static int run(graph *g, wb_dtype t, const array *x, array *out)
{
    wb_tensor *in[INPUTS], *y[MOST];
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < INPUTS; i++) in[i] = tensor_of(x[i], t, 0);
    const int n = g(in, y);
    for (int i = 0; i < n; i++)
        if (!y[i]) fail_msg("%s", wb_error());
    assert_int_equal(wb_eval_array(n, y), 0);
    for (int i = 0; i < n; i++) out[i] = values_of(y[i]);
    assert_int_equal(wb_scope_close(scope), 0);
    return n;
}

static void inputs(array *x, wb_dtype t, int64_t m, int64_t k, int64_t n)
{
    const int64_t dims[INPUTS][2] = {{m, k}, {k, 3 * n}, {m, n}, {n, n}, {n, 0}};
    for (int i = 0; i < INPUTS; i++) {
        x[i] = draw_array(i == V ? 1 : 2, dims[i], -1, 1);
        round_to(x[i], t);
    }
}

static void compare(wb_dtype t)
{
    const wb_device *device = wb_default_device();
    array x[INPUTS], want[MOST], got[MOST];
    need_dtype(t);
    for (size_t g = 0; g < WB__COUNT(graphs); g++) {
        inputs(x, t, M, K, N);
        const int n = run(graphs[g], t, x, got);
        wb_set_default_device(wb_cpu_device());
        assert_int_equal(run(graphs[g], WB_F64, x, want), n);
        wb_set_default_device(device);
        for (int i = 0; i < n; i++) {
            assert_int_equal(got[i].size, want[i].size);
            for (int64_t j = 0; j < got[i].size; j++)
                if (!(fabs(got[i].at[j] - want[i].at[j]) <=
                      16 * tolerance(t) * (1 + fabs(want[i].at[j]))))
                    fail_msg("graph %d in %s: element %lld of result %d is %.9g, not %.9g", (int)g,
                             wb_dtype_name(t), (long long)j, i, got[i].at[j], want[i].at[j]);
        }
        ref_forget();
    }
}

TEST(f32) { compare(WB_F32); }
TEST(f64) { compare(WB_F64); }
TEST(f16) { compare(WB_F16); }
TEST(bf16) { compare(WB_BF16); }

/* ---- variables ------------------------------------------------------------------------------- */

/* The kernel that writes a variable reads all of it as the operand of a product, so it cannot write
 * it in place. */
TEST(variable_in_its_own_product)
{
    const array x = draw_array(2, (int64_t[]){N, N}, -1, 1), product = ref_matmul(x, x);
    wb_tensor *w = wb_variable(tensor_of(x, WB_F32, 0));
    for (int64_t i = 0; i < x.size; i++) product.at[i] = 0.5 * x.at[i] + product.at[i];
    assert_int_equal(wb_assign(w, wb_add(wb_mul(w, wb_scalar(0.5)), wb_matmul(w, w))), 0);
    assert_int_equal(wb_eval(w), 0);
    check(w, product, 2e-6, 2e-6, "a variable plus its square");
    wb_free(w);
    ref_forget();
}

/* Two variables, each of which is changed by a product with the other one as it was before. */
TEST(variables_in_turn)
{
    const array x = draw_array(2, (int64_t[]){N, N}, -1, 1), y = draw_array(2, x.dims, -1, 1);
    array p = ref_matmul(x, y), q = ref_matmul(y, x);
    wb_tensor *a = wb_variable(tensor_of(x, WB_F32, 0)), *b = wb_variable(tensor_of(y, WB_F32, 0));
    wb_tensor *u = wb_add(a, wb_matmul(a, b)), *v = wb_sub(b, wb_matmul(b, a));
    for (int64_t i = 0; i < x.size; i++) p.at[i] += x.at[i], q.at[i] = y.at[i] - q.at[i];
    assert_int_equal(wb_assign(a, u), 0);
    assert_int_equal(wb_assign(b, v), 0);
    assert_int_equal(wb_eval_array(2, (wb_tensor *[]){a, b}), 0);
    check(a, p, 2e-6, 2e-6, "the first variable");
    check(b, q, 2e-6, 2e-6, "the second variable");
    wb_free(a);
    wb_free(b);
    ref_forget();
}

int main(void)
{
    setenv("WEBER_OPENCL_PRODUCTS", "1", 0);
    return run_all_cases();
}
