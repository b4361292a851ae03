/* Matrix products, convolutions and pools: a plan's strided views as the library's descriptors
 * (lib.h).  A product with more batch dimensions than the library's two runs it over the rest. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct {
    wb__cpu_kernel head;
    wb__cpu_op *op;
    int n_views, n_loops;
    wb__view views[4];
    /* batch dimensions beyond the library's; bytes */
    int64_t loop[WB_MAX_DIMS], step[WB_MAX_DIMS][3];
} library_kernel;

static int run_once(const library_kernel *k, void *const *at, void *workspace)
{
    k->op->run(k->op, at, workspace);
    return 0;
}

static int launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                  const wb__number *numbers)
{
    const library_kernel *k = (const library_kernel *)kernel;
    (void)numbers;
    if (!k->op) return 0;                                   /* nothing to compute */
    void *at[4] = {NULL};
    for (int i = 0; i < k->n_views; i++) at[i] = wb__cpu_at(&k->views[i], buffers);
    if (!k->n_loops) return run_once(k, at, workspace);
    int64_t index[WB_MAX_DIMS] = {0};
    for (;;) {
        void *now[4] = {at[0], at[1], at[2], at[3]};
        for (int i = 0; i < k->n_loops; i++)
            for (int j = 0; j < 3; j++) now[j] = (char *)now[j] + index[i] * k->step[i][j];
        run_once(k, now, workspace);
        int i = k->n_loops - 1;
        while (i >= 0 && ++index[i] == k->loop[i]) index[i--] = 0;
        if (i < 0) return 0;
    }
}

static void destroy(wb__cpu_kernel *kernel)
{
    library_kernel *k = (library_kernel *)kernel;
    if (k->op) k->op->destroy(k->op);
    wb__free(k);
}

/* ---- products -------------------------------------------------------------------------------- */

static int matmul(const wb__step *s, library_kernel *k)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    const wb__view *v[3] = {a, b, c};
    if (!wb__dtype_float(a->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "matmul: products of %s are not computed",
                        wb_dtype_name(a->dtype));
    const int last = c->ndim - 1;
    wb__matmul_desc d = {
        .dtype = a->dtype, .batch = {1, 1}, .m = c->dims[last - 1], .n = c->dims[last],
        .k = a->dims[a->ndim - 1], .has_bias = s->n_views > 3, .act = s->epilogue,
    };
    int64_t dim[WB_MAX_DIMS], stride[WB_MAX_DIMS][3];
    int n = 0;
    for (int i = 0; i < c->ndim - 2; i++) {
        int64_t here[3];
        bool merges = n > 0;
        if (c->dims[i] == 0) return 0;
        if (c->dims[i] == 1) continue;
        for (int j = 0; j < 3; j++) {
            here[j] = v[j]->strides[i];
            merges = merges && stride[n - 1][j] == here[j] * c->dims[i];
        }
        if (merges) dim[n - 1] *= c->dims[i];
        else dim[n++] = c->dims[i];
        memcpy(stride[n - 1], here, sizeof here);
    }
    if (!d.m || !d.n) return 0;
    k->n_loops = n > 2 ? n - 2 : 0;
    for (int i = 0; i < n; i++) {
        const int to = 2 - (n - i);
        for (int j = 0; j < 3; j++) {
            int64_t *batch[3] = {d.a_b, d.b_b, d.c_b};
            if (to >= 0) batch[j][to] = stride[i][j];
            else k->step[i][j] = stride[i][j] * (int64_t)wb__dtype_size(a->dtype);
        }
        if (to >= 0) d.batch[to] = dim[i];
        else k->loop[i] = dim[i];
    }
    for (int j = 0; j < 2; j++) {
        d.a_s[j] = a->strides[a->ndim - 2 + j];
        d.b_s[j] = b->strides[b->ndim - 2 + j];
        d.c_s[j] = c->strides[last - 1 + j];
    }
    return wb__cpu_matmul(&d, &k->op);
}

/* ---- convolutions and pools ------------------------------------------------------------------ */

/* Whether a view of logical shape [N, C, H, W] stands as NCHW (bit 0), as NHWC (bit 1). */
static int layouts(const wb__view *v)
{
    static const int order[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
    int fits = 0;
    for (int l = 0; l < 2; l++) {
        int64_t size = 1;
        bool dense = v->ndim == 4;
        for (int i = 3; dense && i >= 0; i--) {
            const int axis = order[l][i];
            if (v->dims[axis] != 1 && v->strides[axis] != size) dense = false;
            size *= WB__MAX(v->dims[axis], 1);
        }
        if (dense) fits |= 1 << l;
    }
    return fits;
}

bool wb__cpu_conv_desc(const wb__step *s, wb__conv_desc *d)
{
    const wb__view *x = &s->views[0], *w = &s->views[1], *y = &s->views[2];
    const int xs = layouts(x), ys = layouts(y);
    if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4) return false;
    memset(d, 0, sizeof *d);
    d->dtype = x->dtype;
    d->kind = (wb__conv_kind)s->variant;
    d->n = x->dims[0], d->c = x->dims[1], d->h = x->dims[2], d->w = x->dims[3];
    d->k = w->dims[0], d->kh = w->dims[2], d->kw = w->dims[3];
    d->oh = y->dims[2], d->ow = y->dims[3];
    memcpy(d->stride, s->conv.stride, sizeof d->stride);
    memcpy(d->dilation, s->conv.dilation, sizeof d->dilation);
    memcpy(d->pad, s->conv.pad, sizeof d->pad);
    d->groups = s->conv.groups;
    /* where both fit, as the other operand stands */
    d->x_nhwc = xs == 2 || (xs == 3 && ys == 2);
    d->y_nhwc = ys == 2 || (ys == 3 && xs == 2);
    d->has_bias = s->n_views > 3;
    d->act = s->epilogue;
    return true;
}

static int conv(const wb__step *s, library_kernel *k)
{
    wb__conv_desc d;
    if (!wb__cpu_conv_desc(s, &d) || !layouts(&s->views[0]) || !layouts(&s->views[2])
        || !(layouts(&s->views[1]) & 1))
        return wb__fail(WB_ERROR_INTERNAL, "conv: operands must be dense");
    return wb__cpu_conv(&d, &k->op);
}

static int pool(const wb__step *s, library_kernel *k)
{
    const bool back = s->variant == WB__POOL_MEAN_BACK;
    const wb__view *x = &s->views[back];
    const wb__view *y = &s->views[back ? 0 : s->variant == WB__POOL_MAX_TAKE ? 2 : 1];
    int fits = 3;
    for (int i = 0; i < s->n_views; i++) fits &= layouts(&s->views[i]);
    if (!fits) return wb__fail(WB_ERROR_INTERNAL, "pool: operands must be dense and of one layout");
    wb__pool_desc d = {
        .dtype = x->dtype, .kind = (wb__pool_kind)s->variant, .n = x->dims[0], .c = x->dims[1],
        .h = x->dims[2], .w = x->dims[3], .kh = s->pool.window[0], .kw = s->pool.window[1],
        .oh = y->dims[2], .ow = y->dims[3], .nhwc = !(fits & 1),
    };
    memcpy(d.stride, s->pool.stride, sizeof d.stride);
    memcpy(d.pad, s->pool.pad, sizeof d.pad);
    return wb__cpu_pool(&d, &k->op);
}

int wb__cpu_library(const wb__step *s, wb__cpu_kernel **kernel)
{
    library_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->head.launch = launch;
    k->head.destroy = destroy;
    k->n_views = s->n_views;
    memcpy(k->views, s->views, sizeof k->views);
    const int e = s->kind == WB__STEP_MATMUL ? matmul(s, k)
                : s->kind == WB__STEP_CONV ? conv(s, k) : pool(s, k);
    if (e) {
        wb__free(k);
        return e;
    }
    k->head.base.impl = k->op ? k->op->impl : "nothing";
    k->head.base.why = k->op ? k->op->why : NULL;
    k->head.base.workspace = k->op ? k->op->workspace : 0;
    *kernel = &k->head;
    return 0;
}
