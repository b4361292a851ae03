/* Operations of the program: wb_custom_gradient and wb_host_operation. */
#include "test.h"

#include "weber.h"

#include "far_device.h"

static wb_tensor *numbers(int n, const float *values)
{
    return wb_from(values, WB_F32, 1, (int64_t[]){n});
}
#define NUMBERS(...) numbers(sizeof((float[]){__VA_ARGS__}) / sizeof(float), (float[]){__VA_ARGS__})

static void equal(wb_tensor *x, int n, const float *want, double tolerance)
{
    const float *got = wb_data(x);
    if (!got) fail_msg("%s", wb_error());
    assert_int_equal(wb_size(x), n);
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance))
            fail_msg("%d: %g, not %g", i, (double)got[i], (double)want[i]);
}
#define EQUAL(x, ...) \
    equal((x), sizeof((float[]){__VA_ARGS__}) / sizeof(float), (float[]){__VA_ARGS__}, 1e-6)

/* ---- gradients ------------------------------------------------------------------------------- */

static int calls;
static int pass(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx, void *ctx)
{
    calls++;
    dx[0] = g;
    return 0;
}

static wb_tensor *rounded(wb_tensor *x)
{
    return wb_custom_gradient(wb_floor(wb_add(x, 0.5)), pass, NULL, x);
}

TEST_IN_SCOPE(straight_through)
{
    wb_tensor *x = wb_variable(NUMBERS(0.2f, 1.7f, -2.4f));
    wb_tensor *loss = wb_sum(wb_square(rounded(x)));
    assert_true(wb_item(loss) == 0 + 4 + 4);
    calls = 0;
    EQUAL(wb_gradient(loss, x), 0, 4, -4);
    assert_int_equal(calls, 1);
    /* within other operations, and beside another path to x */
    EQUAL(wb_gradient(wb_sum(wb_add(wb_mul(rounded(x), 3), wb_square(x))), x), 3.4f, 6.4f, -1.8f);
    /* without a path to a parameter the function is not called */
    wb_tensor *w = wb_variable(wb_ones(3));
    calls = 0;
    EQUAL(wb_gradient(wb_sum(wb_mul(w, rounded(NUMBERS(0.2f, 1.7f, -2.4f)))), w), 0, 2, -2);
    assert_int_equal(calls, 0);
}

/* The hypotenuse of a and b, with ctx as a factor of the gradient. */
static int hypotenuse_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x,
                               wb_tensor **dx, void *ctx)
{
    for (int i = 0; i < n; i++)
        dx[i] = wb_mul(wb_mul(g, wb_div(x[i], y)), *(const double *)ctx);
    return 0;
}

static wb_tensor *hypotenuse(wb_tensor *a, wb_tensor *b, const double *factor)
{
    wb_tensor *y = wb_sqrt(wb_add(wb_square(a), wb_square(b)));
    return wb_custom_gradient(y, hypotenuse_gradient, (void *)(uintptr_t)factor, a, b);
}

TEST_IN_SCOPE(two_inputs)
{
    const double one = 1, two = 2;
    wb_tensor *a = wb_variable(NUMBERS(3)), *b = wb_variable(NUMBERS(4));
    wb_tensor *y = wb_sum(hypotenuse(a, b, &one));
    assert_true(wb_item(y) == 5);
    EQUAL(wb_gradient(y, a), 0.6f);
    EQUAL(wb_gradient(y, b), 0.8f);
    EQUAL(wb_gradient(wb_sum(hypotenuse(a, b, &two)), a), 1.2f);
    /* d²y/da² = b²/y³, and d²y/da db = -a b/y³, since y in the gradient is differentiated too */
    wb_tensor *da = wb_sum(wb_gradient(y, a));
    EQUAL(wb_gradient(da, a), 16.0f / 125);
    EQUAL(wb_gradient(da, b), -12.0f / 125);
}

static int nothing(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                   void *ctx)
{
    if (n == 2) dx[1] = g;
    return 0;
}
static int failing(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                   void *ctx)
{
    if (ctx) return wb_matmul(g, wb_ones(7)) ? 0 : 1;
    return 3;
}
static int careless(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                    void *ctx)
{
    dx[0] = wb_matmul(g, wb_ones(7));
    return 0;
}
static int misshapen(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                     void *ctx)
{
    dx[0] = ctx ? wb_astype(g, WB_F64) : wb_sum(g);
    return 0;
}

TEST_IN_SCOPE(wrong_gradients)
{
    wb_tensor *a = wb_variable(NUMBERS(3, 4)), *b = wb_variable(NUMBERS(1, 2));
    EQUAL(wb_gradient(wb_sum(wb_custom_gradient(wb_mul(a, b), nothing, NULL, a)), a), 0, 0);
    EQUAL(wb_gradient(wb_sum(wb_custom_gradient(wb_mul(a, b), nothing, NULL, a, b)), b), 1, 1);
    EQUAL(wb_gradient(wb_sum(wb_custom_gradient(wb_mul(a, b), nothing, NULL, a)), b), 0, 0);
    wb_tensor *y = wb_sum(wb_custom_gradient(wb_mul(a, b), failing, NULL, a));
    REFUSED(wb_gradient(y, a), WB_ERROR_ARGUMENT, "custom_gradient", "3");
    y = wb_sum(wb_custom_gradient(wb_mul(a, b), failing, &calls, a));
    REFUSED(wb_gradient(y, a), WB_ERROR_SHAPE, "matmul");
    y = wb_sum(wb_custom_gradient(wb_mul(a, b), careless, NULL, a));
    REFUSED(wb_gradient(y, a), WB_ERROR_SHAPE, "matmul");
    y = wb_sum(wb_custom_gradient(wb_mul(a, b), misshapen, NULL, a));
    REFUSED(wb_gradient(y, a), WB_ERROR_SHAPE, "custom_gradient", "[] f32", "0", "[2] f32");
    y = wb_sum(wb_custom_gradient(wb_mul(a, b), misshapen, &calls, a));
    REFUSED(wb_gradient(y, a), WB_ERROR_DTYPE, "custom_gradient", "[2] f64", "[2] f32");
    REFUSED(wb_custom_gradient(wb_argmax(a, 0), pass, NULL, a), WB_ERROR_DTYPE, "custom_gradient",
            "i32");
    REFUSED(wb_custom_gradient(a, pass, NULL, wb_argmax(a, 0)), WB_ERROR_DTYPE, "custom_gradient",
            "i32");
    REFUSED(wb_custom_gradient(a, NULL, NULL, b), WB_ERROR_ARGUMENT, "custom_gradient", "function");
    REFUSED(wb_custom_gradient_array(a, pass, NULL, 0, &b), WB_ERROR_ARGUMENT, "custom_gradient");
}

/* ---- C functions ----------------------------------------------------------------------------- */

/* y[i] = sum over j of x[i, j] w[j], computed in C; ctx counts the calls. */
static int rows(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    const float *x = in[0].data, *w = in[1].data;
    float *y = out->data;
    ++*(int *)ctx;
    if (n != 2 || in[0].ndim != 2 || out->ndim != 1 || out->dims[0] != in[0].dims[0] ||
        in[0].dtype != WB_F32)
        return 1;
    for (int64_t i = 0; i < in[0].dims[0]; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < in[0].dims[1]; j++) y[i] += x[i * in[0].dims[1] + j] * w[j];
    }
    return 0;
}

static wb_tensor *host_rows(wb_tensor *x, wb_tensor *w, int *count)
{
    return wb_host_operation(rows, count, WB_F32, 1, wb_dims(x), 2, (wb_tensor *[]){x, w});
}

TEST_IN_SCOPE(c_functions)
{
    int count = 0;
    wb_tensor *x = wb_from(((float[]){1, 2, 3, 4, 5, 6}), WB_F32, 2, (int64_t[]){2, 3});
    wb_tensor *w = NUMBERS(1, 10, 100);
    /* operands and result in the middle of other operations; a permuted operand is made dense */
    wb_tensor *y = wb_add(host_rows(wb_mul(x, 2), w, &count), 1);
    assert_int_equal(count, 0);
    EQUAL(y, 643, 1309);
    assert_int_equal(count, 1);
    wb_tensor *t = wb_transpose(wb_from(((float[]){1, 4, 2, 5, 3, 6}), WB_F32, 2,
                                        (int64_t[]){3, 2}));
    EQUAL(host_rows(t, w, &count), 321, 654);
}

static int rows_gradient(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx,
                         void *ctx)
{
    dx[0] = wb_mul(wb_unsqueeze(g, 1), x[1]);
    dx[1] = wb_matmul(g, x[0]);
    return 0;
}

static int step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_mul(host_rows(in[0], in[1], ctx), 2);
    return out[0] ? 1 : -1;
}

static int shuts_down(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    wb_shutdown();
    *(int *)ctx = strstr(wb_error(), "when that has returned") ? wb_error_code() : 0;
    wb_clear_error();
    return 0;
}

static int refuse(int n, const wb_host_array *in, const wb_host_array *out, void *ctx) { return 5; }

TEST_IN_SCOPE(c_functions_in_plans)
{
    int count = 0;
    wb_tensor *x = wb_variable(wb_from(((float[]){1, 2, 3, 4, 5, 6}), WB_F32, 2,
                                       (int64_t[]){2, 3}));
    wb_tensor *w = wb_variable(NUMBERS(1, 10, 100));
    wb_tensor *loss = wb_sum(wb_square(host_rows(x, w, &count)));
    REFUSED(wb_gradient(loss, w), WB_ERROR_UNSUPPORTED, "gradient", "host_operation",
            "wb_custom_gradient");
    wb_tensor *y = wb_custom_gradient(host_rows(x, w, &count), rows_gradient, NULL, x, w);
    EQUAL(wb_gradient(wb_sum(y), w), 5, 7, 9);
    EQUAL(wb_gradient(wb_sum(wb_mul(y, NUMBERS(1, 2))), x), 1, 10, 100, 2, 20, 200);

    wb_compiled *c = wb_compile(step, &count);
    count = 0;
    for (int i = 1; i <= 3; i++) {
        wb_tensor *in[] = {wb_full(i, 2, 3), w}, *out;
        assert_int_equal(wb_call_compiled(c, 2, in, 1, &out), 0);
        EQUAL(out, 222.0f * (float)i, 222.0f * (float)i);
        assert_int_equal(count, i);
    }
    const int64_t two = 2;
    wb_tensor *far = wb_to(w, far_device());
    REFUSED(wb_host_operation(refuse, NULL, WB_F32, 1, &two, 1, &far), WB_ERROR_DEVICE,
            "host_operation", "0", "wb_cpu(x)");
    REFUSED(wb_data(wb_host_operation(refuse, NULL, WB_F32, 1, &two, 1, &w)), WB_ERROR_ARGUMENT,
            "host_operation", "5");
    WORKS(wb_eval(wb_host_operation(shuts_down, &count, WB_F32, 1, &two, 1, &w)));
    assert_int_equal(count, WB_ERROR_ARGUMENT);
    REFUSED(wb_host_operation(refuse, NULL, WB_F32, 1, &two, 0, &w), WB_ERROR_ARGUMENT,
            "host_operation", "0", "8");
    wb_tensor *many[9] = {w, w, w, w, w, w, w, w, w};
    REFUSED(wb_host_operation(refuse, NULL, WB_F32, 1, &two, 9, many), WB_ERROR_ARGUMENT,
            "host_operation", "9");
    REFUSED(wb_host_operation(NULL, NULL, WB_F32, 1, &two, 1, &w), WB_ERROR_ARGUMENT,
            "host_operation", "function");
    REFUSED(wb_host_operation(refuse, NULL, WB_F32, 1, (int64_t[]){-1}, 1, &w), WB_ERROR_SHAPE,
            "host_operation", "-1");
}
