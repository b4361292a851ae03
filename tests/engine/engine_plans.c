/* Plans of the CPU.  Operands that several products of a plan read are packed once
 * (engine/plan/packs.c): the plans, and their values against products that are evaluated one by one
 * and against double precision.  Values that cost less to compute again than to load are not stored
 * (engine/plan/remake.c). */
#include "reference.h"

static int packs, products, slopes;

/* Counts the steps of the printed plans. */
static void count(wb_log_level level, const char *message, void *ctx)
{
    (void)level, (void)ctx;
    packs += strstr(message, " pack ") != NULL;
    products += strstr(message, "B packed once") != NULL;
    slopes += strstr(message, "tanh store square sub store") != NULL ||
              strstr(message, "sigmoid store sub mul store") != NULL;
}

static void forget(void) { packs = products = slopes = 0; }

/* n steps x = tanh(x w / 4) + x / 2, in one evaluation or, if `one_by_one`, in n. */
static wb_tensor *chain(wb_tensor *x, wb_tensor *w, int n, bool transposed, bool one_by_one)
{
    for (int i = 0; i < n; i++) {
        wb_tensor *z = wb_matmul(x, transposed ? wb_transpose(w) : w);
        x = wb_add(wb_tanh(wb_mul(z, 0.25)), wb_mul(x, 0.5));
        if (one_by_one) WORKS(wb_eval(x));
    }
    return x;
}

static void close_to(wb_tensor *got, wb_tensor *want, double allowed)
{
    MADE(got);
    MADE(want);
    wb_tensor *most = wb_max(wb_abs(wb_sub(wb_astype(got, WB_F64), wb_astype(want, WB_F64))));
    const double off = wb_item(most);
    if (!(off <= allowed)) fail_msg("off by %g", off);
}

TEST_IN_SCOPE(recurrent_products)
{
    static const struct { wb_dtype dtype; double allowed; } types[] = {
        {WB_F32, 1e-5}, {WB_F64, 1e-13}, {WB_F16, 2e-2}, {WB_BF16, 2e-1}};
    static const int64_t shapes[][2] = {{7, 33}, {2, 48}, {64, 17}, {3, 400}, {5, 1030}, {1, 20},
                                        {65, 20}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int transposed = 0; transposed < 2; transposed++) {
                const int64_t m = shapes[s][0], n = shapes[s][1];
                wb_tensor *x = wb_astype(wb_randn(m, n), types[t].dtype);
                wb_tensor *w = wb_astype(wb_div(wb_randn(n, n), sqrt((double)n)), types[t].dtype);
                WORKS(wb_eval(x, w));
                wb_tensor *exact = chain(wb_astype(x, WB_F64), wb_astype(w, WB_F64), 5, transposed,
                                         true);
                forget();
                wb_tensor *y = chain(x, w, 5, transposed, false);
                WORKS(wb_eval(y));
                const bool packed = m > 1 && m <= 64 && types[t].dtype != WB_BF16;
                assert_int_equal(packs, packed);
                assert_int_equal(products, packed ? 5 : 0);
                close_to(y, exact, types[t].allowed);
            }
}

/* Three products are too few. */
TEST_IN_SCOPE(few_products)
{
    wb_tensor *x = wb_randn(4, 20), *w = wb_randn(20, 20);
    WORKS(wb_eval(x, w));
    forget();
    WORKS(wb_eval(chain(x, w, 3, true, false)));
    assert_int_equal(packs, 0);
    WORKS(wb_eval(chain(x, w, 4, true, false)));
    assert_int_equal(packs, 1);
}

/* Each view of a matrix is packed by itself: its transpose, its slices. */
TEST_IN_SCOPE(views_of_one_matrix)
{
    wb_tensor *x = wb_randn(6, 20), *w = wb_mul(wb_randn(40, 20), 0.2);
    WORKS(wb_eval(x, w));
    wb_tensor *low = wb_slice(w, 0, 0, 20), *high = wb_slice(w, 0, 20, 40), *y[2];
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        y[one_by_one] = x;
        forget();
        for (int i = 0; i < 5; i++) {
            y[one_by_one] = chain(y[one_by_one], low, 1, true, one_by_one);
            y[one_by_one] = chain(y[one_by_one], high, 1, true, one_by_one);
            y[one_by_one] = chain(y[one_by_one], low, 1, false, one_by_one);
        }
        WORKS(wb_eval(y[one_by_one]));
        assert_int_equal(packs, one_by_one ? 0 : 3);
    }
    close_to(y[0], y[1], 1e-5);
}

/* More matrices than are compared at a time, leaves and others: products that are far apart find no
 * common one. */
TEST_IN_SCOPE(many_matrices)
{
    wb_tensor *x = wb_randn(6, 20), *leaf[12], *w[12], *y[2];
    for (int i = 0; i < 12; i++) leaf[i] = wb_mul(wb_randn(20, 20), 0.2);
    WORKS(wb_eval_array(12, leaf));
    WORKS(wb_eval(x));
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        y[one_by_one] = x;
        for (int i = 0; i < 12; i++) w[i] = i % 2 ? wb_mul(leaf[i], 1.1) : leaf[i];
        if (one_by_one) WORKS(wb_eval_array(12, w));
        forget();
        for (int i = 0; i < 48; i++) y[one_by_one] = chain(y[one_by_one], w[i % 12], 1, true,
                                                           one_by_one);
        for (int i = 0; i < 48; i++) y[one_by_one] = chain(y[one_by_one], w[i / 4], 1, true,
                                                           one_by_one);
        WORKS(wb_eval(y[one_by_one]));
        assert_int_equal(packs, one_by_one ? 0 : 12);
    }
    close_to(y[0], y[1], 1e-5);
}

/* The products of a plan that writes the matrix read its values from before, forwards and
 * backwards; the gradient's products read the matrix in the other order. */
TEST_IN_SCOPE(training)
{
    for (int threads = 1; threads <= 2; threads++) {
        wb_tensor *w = wb_variable(wb_mul(wb_randn(20, 20), 0.2)), *x = wb_randn(6, 20);
        wb_tensor *exact = wb_astype(w, WB_F64), *wide = wb_astype(x, WB_F64);
        wb_set_threads(threads);
        WORKS(wb_eval(exact, wide, x));
        exact = wb_variable(exact);
        for (int step = 0; step < 3; step++) {
            forget();
            wb_tensor *loss = wb_mean(wb_square(chain(x, w, 6, true, false)));
            WORKS(wb_assign(w, wb_sub(w, wb_mul(wb_gradient(loss, w), 0.5))));
            WORKS(wb_eval(loss));
            if (!step) assert_int_equal(packs, 2);
            wb_tensor *same = wb_mean(wb_square(chain(wide, exact, 6, true, false)));
            WORKS(wb_assign(exact, wb_sub(exact, wb_mul(wb_gradient(same, exact), 0.5))));
            WORKS(wb_eval(same));
            close_to(loss, same, 1e-5);
        }
        close_to(w, exact, 1e-5);
    }
}

/* The kernel of tanh and sigmoid keeps them, but not their slopes 1 - t * t and s * (1 - s). */
TEST_IN_SCOPE(slopes_are_computed_again)
{
    wb_tensor *w = wb_randn(3, 3), *y = wb_randn(64, 3), *v = wb_variable(wb_randn(64, 3));
    WORKS(wb_eval(w, y));
    forget();
    wb_tensor *t = wb_tanh(v), *s = wb_sigmoid(v);
    wb_tensor *loss = wb_sum(wb_mul(wb_add(wb_matmul(t, w), wb_matmul(s, w)), y));
    wb_tensor *g = wb_gradient(wb_square(loss), v);
    WORKS(wb_eval(g));
    assert_int_equal(slopes, 0);
    wb_tensor *back = wb_mul(wb_matmul(y, wb_transpose(w)), wb_mul(2, loss));
    wb_tensor *slope = wb_add(wb_sub(1, wb_square(t)), wb_mul(s, wb_sub(1, s)));
    close_to(g, wb_mul(back, slope), 1e-2);
}

int main(void)
{
    setenv("WEBER_DEBUG", "plan", 1);
    wb_set_log(count, NULL);
    return run_all_cases();
}
