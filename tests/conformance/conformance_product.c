/* Matrix products, convolutions, pools, softmax, normalise and attention against references, in
 * every floating dtype; their first and second gradients against finite differences along random
 * directions, in f64. */
#include "reference.h"

#include "engine/tensor.h"

/* ---- gradients ------------------------------------------------------------------------------- */

typedef wb_tensor *(*function)(wb_tensor *const *x, const void *setting);

enum { MOST = 3 };

static wb_tensor *scalar_of(wb_tensor *y)
{
    array w = ref_new(wb_ndim(y), wb_dims(y));
    for (int64_t i = 0; i < w.size; i++) w.at[i] = cos(0.9 * (double)i);
    return wb_sum(wb_mul(wb_mul(y, wb_add(y, wb_scalar(1))),
                         tensor_of(w, (wb_dtype)y->dtype, 0))); /* quadratic in y: the second
                                                                 * derivative is not 0 */
}

/* The derivative of this order (0: the loss itself) along the direction d, at x + h d. */
static double along(function f, const void *setting, int n, const array *x, const array *d,
                    double h, int order)
{
    wb_tensor *in[MOST], *g;
    double sum = 0;
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < n; i++) {
        array p = ref_new(x[i].ndim, x[i].dims);
        for (int64_t j = 0; j < p.size; j++) p.at[j] = x[i].at[j] + h * d[i].at[j];
        in[i] = tensor_of(p, WB_F64, i);
    }
    wb_tensor *loss = scalar_of(f(in, setting));
    if (!loss) fail_msg("%s", wb_error());
    if (order == 0) sum = wb_item(loss);
    for (int i = 0; i < n && order; i++) {
        wb_tensor *total = NULL;
        if (order == 1) {
            g = wb_gradient(loss, in[i]);
        } else {
            for (int k = 0; k < n; k++) {
                wb_tensor *part =
                    wb_sum(wb_mul(wb_gradient(loss, in[k]), tensor_of(d[k], WB_F64, 0)));
                total = total ? wb_add(total, part) : part;
            }
            g = wb_gradient(total, in[i]);
        }
        array v = values_of(g);
        for (int64_t j = 0; j < v.size; j++) sum += v.at[j] * d[i].at[j];
    }
    assert_int_equal(wb_scope_close(scope), 0);
    return sum;
}

static void check_gradients(const char *what, function f, const void *setting, int n,
                            const array *x)
{
    array d[MOST];
    double h = 1e-5;
    for (int i = 0; i < n; i++) d[i] = draw_array(x[i].ndim, x[i].dims, -1, 1);
    for (int order = 1; order <= 2; order++) {
        double up = along(f, setting, n, x, d, h, order - 1),
               down = along(f, setting, n, x, d, -h, order - 1);
        double want = (up - down) / (2 * h), got = along(f, setting, n, x, d, 0, order);
        double middle = along(f, setting, n, x, d, 0, order - 1);
        if (fabs((up - middle) - (middle - down)) > 1e-3 * (fabs(up - down) + h))
            continue; /* a kink: the maximum moves to another element */
        if (!(fabs(got - want) <= 2e-6 * (fabs(want) + fabs(up) + 1)))
            fail_msg("%s: derivative %d along a direction is %.10g, finite differences give %.10g",
                     what, order, got, want);
    }
}

/* ---- matrix products ------------------------------------------------------------------------- */

static wb_tensor *matmul(wb_tensor *const *x, const void *s)
{
    return wb_matmul(x[0], x[1]);
}
static wb_tensor *linear(wb_tensor *const *x, const void *s)
{
    return wb_linear(x[0], x[1], x[2]);
}

/* A tensor with the elements of x whose memory is a random view: dense, strided or transposed. */
static wb_tensor *laid_out(array x, wb_dtype t)
{
    int kind = (int)draw_int(0, 6);
    if (kind < 6) return tensor_of(x, t, kind);
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < x.ndim; i++) order[i] = i;
    order[x.ndim - 1] = x.ndim - 2;
    order[x.ndim - 2] = x.ndim - 1;
    return wb_transpose(tensor_of(ref_permute(x, order), t, 0));
}

TEST(matmuls)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 17, 33, 64, 100, 1, 7, 130};
    for (int round = 0; round < 200; round += fewer() > 5 ? 3 : 1) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + round % 4);
        int64_t m = sizes[draw_int(0, 11)], k = sizes[draw_int(0, 11)], n = sizes[draw_int(0, 11)],
                da[4], db[4];
        if (round % 23 == 0) k = 0;
        if (round % 29 == 0) m = 0;
        int lead = (int)draw_int(0, 2), la = (int)draw_int(0, lead), lb = (int)draw_int(0, lead);
        int64_t dims[2] = {draw_int(1, 3), draw_int(1, 3)};
        for (int i = 0; i < la; i++) da[i] = draw_int(0, 2) ? dims[2 - la + i] : 1;
        for (int i = 0; i < lb; i++) db[i] = draw_int(0, 2) ? dims[2 - lb + i] : 1;
        da[la] = m, da[la + 1] = k, db[lb] = k, db[lb + 1] = n;
        array a = draw_array(la + 2, da, -1, 1), b = draw_array(lb + 2, db, -1, 1);
        round_to(a, t);
        round_to(b, t);
        double e = tolerance(t == WB_F64 ? t : WB_F32) * (double)(k + 2);
        check(wb_matmul(laid_out(a, t), laid_out(b, t)), ref_matmul(a, b), 2 * tolerance(t), 2 * e,
              "matmul of %s, round %d: %lldx%lldx%lld", wb_dtype_name(t), round, (long long)m,
              (long long)k, (long long)n);
        if (t == WB_F64 && a.size && b.size && m * k * n < 40000 && round % fewer() == 0)
            check_gradients("matmul", matmul, NULL, 2, (array[]){a, b});
        ref_forget();
    }
    array v = draw_array(1, (int64_t[]){5}, -1, 1), m = draw_array(2, (int64_t[]){5, 3}, -1, 1),
          row = ref_reshape(v, 2, (int64_t[]){1, 5});
    check(wb_matmul(tensor_of(v, WB_F64, 0), tensor_of(m, WB_F64, 0)),
          ref_reshape(ref_matmul(row, m), 1, (int64_t[]){3}), 1e-14, 1e-14, "vector times matrix");
    check(wb_matmul(wb_transpose(tensor_of(m, WB_F64, 0)), tensor_of(v, WB_F64, 0)),
          ref_reshape(ref_matmul(row, m), 1, (int64_t[]){3}), 1e-14, 1e-14, "matrix times vector");
    array x = draw_array(3, (int64_t[]){2, 3, 4}, -1, 1),
          w = draw_array(2, (int64_t[]){6, 4}, -1, 1), b = draw_array(1, (int64_t[]){6}, -1, 1);
    array want = ref_map2(ref_binary("add"), ref_matmul(x, ref_permute(w, (int64_t[]){1, 0})), b);
    check(wb_linear(tensor_of(x, WB_F64, 0), tensor_of(w, WB_F64, 0), tensor_of(b, WB_F64, 0)),
          want, 1e-13, 1e-13, "linear");
    check_gradients("linear", linear, NULL, 3, (array[]){x, w, b});
    /* activations that the product's epilogue computes */
    static const struct {
        const char *name;
        wb_tensor *(*f)(wb_tensor *);
    } after[] = {{"relu", wb_relu}, {"tanh", wb_tanh}, {"sigmoid", wb_sigmoid}, {"gelu", wb_gelu}};
    for (int i = 0; i < 4; i++)
        check(after[i].f(wb_linear(tensor_of(x, WB_F32, 0), tensor_of(w, WB_F32, 0),
                                   tensor_of(b, WB_F32, 0))),
              ref_map(ref_unary(after[i].name), want), 1e-5, 1e-5, "%s of linear", after[i].name);
}

/* ---- convolutions and pools ------------------------------------------------------------------ */

/* The options of a convolution or a pool as plain numbers. */
typedef struct { int64_t window[2], stride[2], pad[4], dilation[2], outpad[2], groups; } windows;

static wb_conv_options conv_options(const windows *s)
{
    wb_conv_options o = WB_OPTIONS_OF(wb_conv_options, .groups = s->groups);
    wb_ints_set(o.stride, 2, s->stride);
    wb_ints_set(o.pad, 4, s->pad);
    wb_ints_set(o.dilation, 2, s->dilation);
    wb_ints_set(o.outpad, 2, s->outpad);
    return o;
}

static wb_pool_options pool_options(const windows *s)
{
    wb_pool_options o = WB_OPTIONS_OF(wb_pool_options);
    wb_ints_set(o.window, 2, s->window);
    wb_ints_set(o.stride, 2, s->stride);
    wb_ints_set(o.pad, 4, s->pad);
    return o;
}

static wb_tensor *conv(wb_tensor *const *x, const void *s)
{
    const wb_conv_options o = conv_options(s);
    return wb_conv_with(x[0], x[1], x[2], &o);
}

TEST(convolutions)
{
    for (int round = 0; round < 120; round++) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + (round % 6 > 3 ? 1 : round % 6));
        windows s = {.groups = draw_int(0, 2) ? 1 : 2};
        int64_t per = draw_int(1, 3), out = draw_int(1, 3) * s.groups, kh = draw_int(1, 3),
                kw = draw_int(1, 3);
        for (int i = 0; i < 2; i++) {
            s.stride[i] = draw_int(1, 2);
            s.dilation[i] = draw_int(1, 2);
        }
        for (int i = 0; i < 4; i++) s.pad[i] = draw_int(0, 2);
        if (round % 5 == 0) s.groups = per = 1;
        if (round % 7 == 0) s.groups = out = 4, per = 1;        /* one channel a group */
        int64_t dx[4] = {draw_int(1, 3), per * s.groups, draw_int(5, 9), draw_int(5, 8)},
                dw[4] = {out, per, kh, kw};
        if (round % 40 == 39) dx[0] = 0;
        array x = draw_array(4, dx, -1, 1), w = draw_array(4, dw, -1, 1),
              b = draw_array(1, &out, -1, 1);
        round_to(x, t);
        round_to(w, t);
        round_to(b, t);
        array want =
            ref_map2(ref_binary("add"), ref_conv(x, w, s.stride, s.pad, s.dilation, s.groups),
                     ref_reshape(b, 3, (int64_t[]){out, 1, 1}));
        const wb_conv_options o = conv_options(&s);
        check(wb_conv_with(tensor_of(x, t, (int)draw_int(0, 5)),
                           tensor_of(w, t, (int)draw_int(0, 5)), tensor_of(b, t, 0), &o),
              want, 4 * tolerance(t), 60 * tolerance(t == WB_F64 ? t : WB_F32) + 2 * tolerance(t),
              "conv of %s, round %d", wb_dtype_name(t), round);
        if (t == WB_F64 && x.size && round % fewer() == 0)
            check_gradients("conv", conv, &s, 3, (array[]){x, w, b});
        ref_forget();
    }
    int64_t big[4] = {2, 16, 30, 31}, filters[4] = {24, 16, 3, 3};
    array x = draw_array(4, big, -1, 1), w = draw_array(4, filters, -1, 1);
    round_to(x, WB_F32);
    round_to(w, WB_F32);
    check(wb_conv(tensor_of(x, WB_F32, 0), tensor_of(w, WB_F32, 0), WB_NONE, .pad = {1, 1, 1, 1}),
          ref_conv(x, w, (int64_t[]){1, 1}, (int64_t[]){1, 1, 1, 1}, (int64_t[]){1, 1}, 1), 1e-5,
          2e-4, "a larger convolution");
}

/* Each element of x times the filters is added to the elements of the result under its window. */
static array ref_conv_transpose(array x, array w, const windows *s)
{
    const int64_t groups = s->groups, cg = x.dims[1] / groups, kg = w.dims[1];
    int64_t dims[4] = {x.dims[0], kg * groups};
    for (int i = 0; i < 2; i++)
        dims[2 + i] = (x.dims[2 + i] - 1) * s->stride[i] - s->pad[2 * i] - s->pad[2 * i + 1] +
                      (w.dims[2 + i] - 1) * s->dilation[i] + 1 + s->outpad[i];
    array y = ref_new(4, dims);
    for (int64_t i = 0; i < x.size; i++) {
        const int64_t q = i % x.dims[3], p = i / x.dims[3] % x.dims[2];
        const int64_t c = i / x.dims[3] / x.dims[2] % x.dims[1],
                      n = i / x.dims[3] / x.dims[2] / x.dims[1];
        for (int64_t k = 0; k < kg; k++)
            for (int64_t a = 0; a < w.dims[2]; a++)
                for (int64_t b = 0; b < w.dims[3]; b++) {
                    const int64_t h = p * s->stride[0] - s->pad[0] + a * s->dilation[0];
                    const int64_t v = q * s->stride[1] - s->pad[2] + b * s->dilation[1];
                    if (h < 0 || h >= dims[2] || v < 0 || v >= dims[3]) continue;
                    y.at[((n * dims[1] + c / cg * kg + k) * dims[2] + h) * dims[3] + v] +=
                        x.at[i] * w.at[((c * kg + k) * w.dims[2] + a) * w.dims[3] + b];
                }
    }
    return y;
}

static wb_tensor *conv_transpose(wb_tensor *const *x, const void *s)
{
    const wb_conv_options o = conv_options(s);
    return wb_conv_transpose_with(x[0], x[1], x[2], &o);
}

TEST(transposed_convolutions)
{
    static const struct { const char *name; wb_tensor *(*f)(wb_tensor *); } after[] = {
        {"relu", wb_relu}, {"tanh", wb_tanh}, {"gelu", wb_gelu}};
    for (int round = 0; round < 120 / fewer(); round++) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + (round % 6 > 3 ? 1 : round % 6));
        windows s = {.groups = draw_int(0, 2) ? 1 : 2};
        int64_t per = draw_int(1, 3), in = draw_int(1, 3) * s.groups;
        if (round % 9 == 0) per = 12, in = 18;
        int64_t dx[4] = {draw_int(1, 3), in, draw_int(3, 6), draw_int(3, 7)};
        int64_t dw[4] = {in, per, draw_int(1, 4), draw_int(1, 4)}, out = per * s.groups;
        for (int i = 0; i < 2; i++) {
            s.stride[i] = draw_int(1, 3);
            s.dilation[i] = draw_int(1, 2);
            s.outpad[i] = draw_int(0, s.stride[i] - 1);
        }
        for (int i = 0; i < 4; i++) s.pad[i] = draw_int(0, 1);
        if (round % 40 == 39) dx[0] = 0;
        array x = draw_array(4, dx, -1, 1), w = draw_array(4, dw, -1, 1),
              b = draw_array(1, &out, -1, 1);
        round_to(x, t);
        round_to(w, t);
        round_to(b, t);
        array want = ref_map2(ref_binary("add"), ref_conv_transpose(x, w, &s),
                              ref_reshape(b, 3, (int64_t[]){out, 1, 1}));
        const double each = 6 * tolerance(t),
                     all = 60 * tolerance(t == WB_F64 ? t : WB_F32) + 6 * tolerance(t);
        const wb_conv_options o = conv_options(&s);
        wb_tensor *y =
            wb_conv_transpose_with(tensor_of(x, t, (int)draw_int(0, 5)),
                                   tensor_of(w, t, (int)draw_int(0, 5)), tensor_of(b, t, 0), &o);
        if (round % 2)
            check(y, want, each, all, "conv_transpose of %s, round %d", wb_dtype_name(t), round);
        else
            check(after[round % 3].f(y), ref_map(ref_unary(after[round % 3].name), want), each, all,
                  "%s of conv_transpose of %s, round %d", after[round % 3].name, wb_dtype_name(t),
                  round);
        if (t == WB_F64 && x.size && round % fewer() == 0)
            check_gradients("conv_transpose", conv_transpose, &s, 3, (array[]){x, w, b});
        ref_forget();
    }
}

static wb_tensor *pool(bool max, wb_tensor *x, const windows *s)
{
    const wb_pool_options o = pool_options(s);
    return max ? wb_maxpool_with(x, &o) : wb_meanpool_with(x, &o);
}
static wb_tensor *maxpool(wb_tensor *const *x, const void *s) { return pool(true, x[0], s); }
static wb_tensor *meanpool(wb_tensor *const *x, const void *s) { return pool(false, x[0], s); }

TEST(pools)
{
    for (int round = 0; round < 120 / fewer(); round++) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + round % 4);
        bool max = draw_int(0, 1);
        windows s = {.groups = 0};
        for (int i = 0; i < 2; i++) {
            s.window[i] = draw_int(1, 3);
            s.stride[i] = draw_int(1, 3);
        }
        for (int i = 0; i < 4; i++) s.pad[i] = draw_int(0, s.window[i / 2] - 1);
        int64_t dims[4] = {draw_int(1, 2), draw_int(1, 3), draw_int(4, 9), draw_int(4, 9)};
        array x = draw_array(4, dims, -1, 1);
        round_to(x, t);
        if (t == WB_F32 && max && round % 3 == 0) x.at[3] = NAN;
        wb_tensor *p = tensor_of(x, t, (int)draw_int(0, 5));
        check(pool(max, p, &s),
              ref_pool(x, max, s.window, s.stride, s.pad), 4 * tolerance(t), 4 * tolerance(t),
              "%s of %s, round %d", max ? "maxpool" : "meanpool", wb_dtype_name(t), round);
        if (t == WB_F64)
            check_gradients(max ? "maxpool" : "meanpool", max ? maxpool : meanpool, &s, 1, &x);
        ref_forget();
    }
    /* the first of equal elements gets the gradient */
    wb_tensor *x = wb_zeros(1, 1, 2, 2);
    array g = values_of(wb_gradient(wb_sum(wb_maxpool(x, .window = {2})), x));
    assert_true(g.at[0] == 1 && g.at[1] == 0 && g.at[2] == 0 && g.at[3] == 0);
}

/* Pools of images without elements: one dimension is 0.  Windows then contain only padding, whose
 * mean is 0. */
TEST(pools_of_nothing)
{
    const windows s = {.window = {2, 3}, .stride = {1, 2}, .pad = {1, 1, 2, 1}};
    for (int axis = 0; axis < 4; axis++) {
        int64_t dims[4] = {2, 3, 4, 5};
        dims[axis] = 0;
        array x = ref_new(4, dims);
        wb_tensor *p = tensor_of(x, WB_F32, 0);
        for (int max = 0; max <= (axis < 2); max++) {
            wb_tensor *y = pool(max, p, &s);
            check(y, ref_pool(x, max, s.window, s.stride, s.pad), 0, 0, "pool without axis %d",
                  axis);
            check(wb_gradient(wb_sum(y), p), x, 0, 0, "its gradient");
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static wb_tensor *softmax(wb_tensor *const *x, const void *s) { (void)s; return wb_softmax(x[0]); }
static wb_tensor *logsoftmax(wb_tensor *const *x, const void *s)
{
    return wb_logsoftmax(x[0]);
}
static wb_tensor *normalise(wb_tensor *const *x, const void *s)
{
    return wb_normalize(x[0], *(const int *)s, 0.01);
}
static wb_tensor *scaled(wb_tensor *const *x, const void *s)
{
    return wb_mul(x[1], wb_normalize(x[0], *(const int *)s, 0.01));
}
static wb_tensor *softmax_over(wb_tensor *const *x, const void *s)
{
    return wb_softmax_over(x[0], *(const int *)s);
}

TEST(rows)
{
    int64_t dims[WB_MAX_DIMS];
    int ndim;
    for (int round = 0; round < 96 / fewer(); round++) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + round % 4);
        draw_shape(2 + round % 6, &ndim, dims);
        array x = draw_array(ndim, dims, -4, 4);
        round_to(x, t);
        if (!x.size) continue;
        int n_axes = (int)draw_int(1, ndim);
        wb_tensor *p = tensor_of(x, t, (int)draw_int(0, 5));
        check(wb_softmax(p), ref_softmax(x), 16 * tolerance(t), tolerance(t),
              "softmax of %s, round %d", wb_dtype_name(t), round);
        check(wb_logsoftmax(p), ref_logsoftmax(x), 8 * tolerance(t), 16 * tolerance(t),
              "logsoftmax of %s, round %d", wb_dtype_name(t), round);
        check(wb_normalize(p, n_axes, 0.01), ref_normalise(x, n_axes, 0.01), 16 * tolerance(t),
              64 * tolerance(t), "normalise of %s, round %d", wb_dtype_name(t), round);
        if (t == WB_F64 && x.size < 500) {
            check_gradients("softmax", softmax, NULL, 1, &x);
            check_gradients("logsoftmax", logsoftmax, NULL, 1, &x);
            check_gradients("normalize", normalise, &n_axes, 1, &x);
            for (int i = 0; i < ndim; i++) /* mostly a scale of each normalised row */
                if (draw_int(0, 5) < (i < ndim - n_axes ? 1 : 5)) dims[i] = 1;
            const array with_scale[] = {x, draw_array(ndim, dims, -2, 2)};
            check_gradients("normalise, scaled", scaled, &n_axes, 2, with_scale);
            check_gradients("softmax_over", softmax_over, &(int){(int)draw_int(0, ndim - 1)}, 1,
                            &x);
        }
        ref_forget();
    }
    array x = ref_new(2, (int64_t[]){5, 3});
    static const double odd[] = {INFINITY, 1,   INFINITY, -INFINITY, 2,         3,        NAN, 1, 2,
                                 1000,     999, -1000,    -INFINITY, -INFINITY, -INFINITY};
    memcpy(x.at, odd, sizeof odd);
    array s = ref_softmax(x);
    for (int i = 12; i < 15; i++) s.at[i] = 1.0 / 3;
    for (int i = 6; i < 9; i++) s.at[i] = NAN;
    check(wb_softmax(tensor_of(x, WB_F32, 0)), s, 1e-6, 0,
          "softmax of infinities, NaN and large numbers");
}

/* A gradient that a function of the program returns: a product that was evaluated, and whose inputs
 * are gone. */
static int given(wb_tensor *g, wb_tensor *y, int n, wb_tensor *const *x, wb_tensor **dx, void *ctx)
{
    (void)g, (void)y, (void)n, (void)x;
    dx[0] = ctx;
    return 0;
}

static wb_tensor *after_normalise(wb_tensor *x, wb_tensor *g)
{
    wb_tensor *y = wb_normalize(x, 1, 1e-5);
    return wb_gradient(wb_sum(wb_custom_gradient(wb_neg(y), given, g, y)), x);
}

TEST(normalise_of_a_product_without_inputs)
{
    for (int n = 0; n < 8; n++) IN_SCOPE {
        wb_tensor *x = wb_from((float[]){1, 2, 4, 8}, WB_F32, 2, (int64_t[]){1, 4});
        wb_scope *s = wb_scope_open();
        wb_tensor *g = wb_keep(wb_mul(wb_add(wb_full(1, 1, 1), wb_full(1, 1, 1)), wb_sin(x)));
        assert_int_equal(wb_eval(g), 0);
        wb_scope_close(s);
        for (int i = 0; i < n; i++) wb_full(5, 1, i % 2 ? 1 : 4);   /* where its inputs were */
        wb_tensor *same = wb_from(wb_data(g), WB_F32, 2, (int64_t[]){1, 4});
        wb_tensor *got = after_normalise(x, g), *want = after_normalise(x, same);
        assert_non_null(got);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(wb_at(got, 0, i) - wb_at(want, 0, i)) < 1e-5);
    }
}

static wb_tensor *attention(wb_tensor *const *x, const void *mask)
{
    return wb_attention(x[0], x[1], x[2], *(wb_tensor *const *)mask);
}

/* out[0..2]: the gradients to q, k and v in dtype t; out[3..5]: the gradients of their scalar
 * product with x. */
static void attention_gradients(wb_dtype t, wb_tensor *mask, const array *x, array *out)
{
    wb_tensor *in[3], *g[3], *total = NULL;
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < 3; i++) in[i] = tensor_of(x[i], t, i);
    wb_tensor *loss = scalar_of(wb_attention(in[0], in[1], in[2], mask));
    for (int i = 0; i < 3; i++) {
        g[i] = wb_gradient(loss, in[i]);
        if (!g[i]) fail_msg("%s", wb_error());
        wb_tensor *part = wb_sum(wb_mul(g[i], tensor_of(x[i], t, 0)));
        total = total ? wb_add(total, part) : part;
        out[i] = values_of(g[i]);
    }
    for (int i = 0; i < 3; i++) {
        wb_tensor *second = wb_gradient(total, in[i]);
        if (!second) fail_msg("%s", wb_error());
        out[3 + i] = values_of(second);
    }
    assert_int_equal(wb_scope_close(scope), 0);
}

/* The gradients in f32, which a device may compute with its own attention kernels, against those in
 * f64, which are composed of other operations, on the CPU if the device has no f64. */
static void same_gradients(wb_tensor *mask, const array *x)
{
    array got[6], want[6];
    const wb_device *d = wb_default_device();
    attention_gradients(WB_F32, mask, x, got);
    if (!has_dtype(WB_F64)) {
        wb_set_default_device(wb_cpu_device());
        mask = mask ? wb_cpu(mask) : NULL;
    }
    attention_gradients(WB_F64, mask, x, want);
    wb_set_default_device(d);
    for (int i = 0; i < 6; i++)
        for (int64_t j = 0; j < want[i].size; j++)
            if (!(fabs(got[i].at[j] - want[i].at[j]) <= 2e-5 * (1 + fabs(want[i].at[j]))))
                fail_msg("attention: gradient %d, element %lld: %.9g in f32, %.9g in f64", i,
                         (long long)j, got[i].at[j], want[i].at[j]);
}

TEST(attentions)
{
    for (int round = 0; round < 32; round += fewer() > 5 ? 3 : 1) IN_SCOPE {
        wb_dtype t = (wb_dtype)(WB_F32 + round % 4);
        if (!has_dtype(t)) t = WB_F32;
        int64_t n = draw_int(1, 2), h = draw_int(1, 3), q = draw_int(1, 9), k = draw_int(1, 9),
                d = draw_int(1, 8), e = draw_int(1, 5);
        const bool causal = round & 4 && round & 8;
        if (causal) k = q;
        array Q = draw_array(4, (int64_t[]){n, h, q, d}, -1, 1),
              K = draw_array(4, (int64_t[]){n, h, k, d}, -1, 1),
              V = draw_array(4, (int64_t[]){n, h, k, e}, -1, 1);
        array mask = draw_array(2, (int64_t[]){q, k}, 0, 1);
        for (int64_t i = 0; i < mask.size; i++)
            mask.at[i] = causal ? i % k <= i / k
                                : mask.at[i] > 0.4 && (i / k) % 4 != 3; /* some rows are empty */
        round_to(Q, t);
        round_to(K, t);
        round_to(V, t);
        wb_tensor *m = causal      ? wb_causal_mask(q, k)
                       : round & 4 ? WB_NONE
                                   : tensor_of(mask, WB_BOOL, 0);
        check(wb_attention(tensor_of(Q, t, 0), tensor_of(K, t, 2), tensor_of(V, t, 1), m),
              ref_attention(Q, K, V, round & 4 && !causal ? NULL : &mask), 8 * tolerance(t),
              16 * tolerance(t), "attention in %s, round %d", wb_dtype_name(t), round);
        if (t == WB_F64 && round % fewer() == 0)
            check_gradients("attention", attention, &m, 3, (array[]){Q, K, V});
        if (t == WB_F32) same_gradients(m, (array[]){Q, K, V});
        ref_forget();
    }
}

/* Sizes for which the CPU has a kernel, and others of which blocks are not whole. */
TEST(attentions_by_blocks)
{
    static const int64_t sizes[][6] = {         /* n, heads, queries, keys, depth, width */
        {1, 4, 33, 37, 9, 5}, {2, 3, 70, 70, 16, 16}, {1, 5, 40, 40, 8, 11}};
    for (int i = 0; i < 6; i++) IN_SCOPE {
        const int64_t *s = sizes[i / 2];
        const array q = draw_array(4, (int64_t[]){s[0], s[1], s[2], s[4]}, -1, 1),
                    k = draw_array(4, (int64_t[]){s[0], s[1], s[3], s[4]}, -1, 1),
                    v = draw_array(4, (int64_t[]){s[0], s[1], s[3], s[5]}, -1, 1);
        same_gradients(i % 2 ? wb_causal_mask(s[2], s[3]) : WB_NONE, (array[]){q, k, v});
        ref_forget();
    }
}

/* A device's own attention kernels never store the scores [heads, T, T] in memory. */
TEST_IN_SCOPE(attention_memory)
{
    enum { HEADS = 2, T = 256, D = 8, SCORES = HEADS * T * T * 4 };
    const char *forced = getenv("WEBER_OPENCL_ATTENTION"), *on = getenv("WEBER_TEST_DEVICE");
    const bool own = (forced && !strcmp(forced, "1")) || (on && strcmp(on, "OpenCL"));
    wb_tensor *x = wb_rand_array(WB_F32, 4, (int64_t[]){1, HEADS, T, D});
    if (!x || wb_eval(x)) fail_msg("%s", wb_error());
    wb_tensor *loss = wb_sum(wb_square(wb_attention(x, x, x, wb_causal_mask(T, T))));
    wb_tensor *g = wb_gradient(loss, x);
    wb_memory need;
    if (!g || wb_estimate_memory(1, &g, &need)) fail_msg("%s", wb_error());
    if (own) assert_in_range(need.peak, 1, SCORES / 2);
    else assert_true(need.peak > SCORES);
}

/* conformance_product [--attention] [...]            --attention: the tests of attention alone */
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--attention")) cases_named = "attention";
    read_options(argc, argv);
    return run_all_cases();
}
