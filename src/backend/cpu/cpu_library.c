/* Matrix products, convolutions and pools.  This file converts a plan's strided views to
 * descriptors of the library (lib.h).  The library supports two batch dimensions; this file loops
 * over the others. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct {
    wb__cpu_kernel head;
    wb__cpu_op *op;
    int n_views, n_loops;               /* views of the step; batch dimensions beyond two */
    int form;                           /* buffer of the prepared form of view 1; 0: none */
    wb__view views[4];
    /* copy[i]: the kernel that copies operand i of a convolution to or from NHWC; NULL: no copy.
     * The NHWC copy is at offset operand_at[i] in the workspace.  The operand `written` is copied
     * after the run, others before.  copies_at: offset of the workspace of the copy kernels. */
    wb__cpu_kernel *copy[3];
    size_t operand_at[3], copies_at;
    int written;
    /* batch dimensions beyond two: their sizes, and byte strides of a, b and c */
    int64_t loop[WB_MAX_DIMS], step[WB_MAX_DIMS][3];
} library_kernel;

static void cpu_library_run_copy(const library_kernel *k, int i, void *from, void *to,
                                 char *workspace)
{
    k->copy[i]->launch(k->copy[i], (void *[]){from, to}, workspace + k->copies_at, NULL);
}

static int cpu_library_run_once(const library_kernel *k, void *const *buffers, void *const *views,
                                char *workspace)
{
    void *at[4] = {views[0], views[1], views[2], views[3]};
    for (int i = 0; i < 3; i++) {
        if (!k->copy[i]) continue;
        at[i] = workspace + k->operand_at[i];
        if (i != k->written)
            cpu_library_run_copy(k, i, buffers[k->views[i].buffer], at[i], workspace);
    }
    const void *form = k->form ? buffers[k->form] : NULL;
    if (form) k->op->run_form(k->op, at, form, workspace);
    else k->op->run(k->op, at, workspace);
    const int i = k->written;
    if (k->copy[i]) cpu_library_run_copy(k, i, at[i], buffers[k->views[i].buffer], workspace);
    return 0;
}

static int cpu_library_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                              const wb__number *numbers)
{
    const library_kernel *k = (const library_kernel *)kernel;
    (void)numbers;
    if (!k->op) return 0;                                   /* nothing to compute */
    void *at[4] = {NULL};
    for (int i = 0; i < k->n_views; i++) at[i] = wb__cpu_at(&k->views[i], buffers);
    if (!k->n_loops) return cpu_library_run_once(k, buffers, at, workspace);
    int64_t index[WB_MAX_DIMS] = {0};
    for (;;) {
        void *now[4] = {at[0], at[1], at[2], at[3]};
        for (int i = 0; i < k->n_loops; i++)
            for (int j = 0; j < 3; j++) now[j] = (char *)now[j] + index[i] * k->step[i][j];
        k->op->run(k->op, now, workspace);
        int i = k->n_loops - 1;
        while (i >= 0 && ++index[i] == k->loop[i]) index[i--] = 0;
        if (i < 0) return 0;
    }
}

static void cpu_library_destroy(wb__cpu_kernel *kernel)
{
    library_kernel *k = (library_kernel *)kernel;
    if (k->op) k->op->destroy(k->op);
    for (int i = 0; i < 3; i++) if (k->copy[i]) k->copy[i]->destroy(k->copy[i]);
    wb__free(k);
}

/* ---- products -------------------------------------------------------------------------------- */

static int cpu_library_matmul(const wb__step *s, library_kernel *k)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    const wb__view *v[3] = {a, b, c};
    if (!wb__dtype_float(a->dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "matmul: products of %s are not computed",
                        wb_dtype_name(a->dtype));
    const int last = c->ndim - 1;
    wb__matmul_desc d = {
        .dtype = a->dtype, .batch = {1, 1}, .m = c->dims[last - 1], .n = c->dims[last],
        .k = a->dims[a->ndim - 1], .has_bias = s->n_views > 3, .packed = s->packed,
        .kept = s->form > 0, .act = s->epilogue,
        .round = s->precision == WB__PRECISION_MEDIUM && a->dtype == WB_F32,
    };
    int64_t dim[WB_MAX_DIMS], stride[WB_MAX_DIMS][3];
    int n = 0;
    for (int i = 0; i < c->ndim - 2; i++) {
        int64_t strides[3];
        bool merges = n > 0;
        if (c->dims[i] == 0) return 0;
        if (c->dims[i] == 1) continue;
        for (int j = 0; j < 3; j++) {
            strides[j] = v[j]->strides[i];
            merges = merges && stride[n - 1][j] == strides[j] * c->dims[i];
        }
        if (merges) dim[n - 1] *= c->dims[i];
        else dim[n++] = c->dims[i];
        memcpy(stride[n - 1], strides, sizeof strides);
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
        if (!d.packed) d.b_s[j] = b->strides[b->ndim - 2 + j];
        d.c_s[j] = c->strides[last - 1 + j];
    }
    return wb__cpu_matmul(&d, &k->op);
}

int64_t wb__cpu_packed_bytes(const wb_device *device, const wb__step *s)
{
    (void)device;
    const wb__view *a = &s->views[0], *c = &s->views[2];
    for (int i = 0; i < c->ndim - 2; i++) if (c->dims[i] != 1) return 0;
    return wb__cpu_matmul_packed(&(wb__matmul_desc){
        .dtype = a->dtype, .batch = {1, 1}, .m = c->dims[c->ndim - 2], .n = c->dims[c->ndim - 1],
        .k = a->dims[a->ndim - 1]});
}

static int cpu_library_pack(const wb__step *s, library_kernel *k)
{
    const wb__view *b = &s->views[0];
    const int rows = b->ndim - 2;
    return wb__cpu_matmul_pack(&(wb__matmul_desc){
        .dtype = b->dtype, .batch = {1, 1}, .n = b->dims[rows + 1], .k = b->dims[rows],
        .b_s = {b->strides[rows], b->strides[rows + 1]}}, &k->op);
}

/* ---- convolutions and pools ------------------------------------------------------------------ */

/* Returns the layouts of a view of logical shape [N, C, H, W]: bit 0: NCHW; bit 1: NHWC. */
static int cpu_library_layouts(const wb__view *v)
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

/* Adds a copy of operand i to or from an NHWC buffer in the workspace. */
static int cpu_library_add_copy(library_kernel *k, int i)
{
    const wb__view *v = &k->views[i];
    const int64_t c = v->dims[1], h = v->dims[2], w = v->dims[3];
    const bool written = i == k->written;
    wb__step copy = {.kind = WB__STEP_COPY, .n_views = 2, .views = {*v, *v}};
    wb__view *dense = &copy.views[!written];
    copy.views[0].buffer = 0, copy.views[1].buffer = 1;
    dense->offset = 0;
    memcpy(dense->strides, (int64_t[]){h * w * c, 1, w * c, c}, 4 * sizeof(int64_t));
    const int e = wb__cpu_copy(&copy, &k->copy[i]);
    if (e) return e;
    k->operand_at[i] = k->copies_at;
    k->copies_at += wb__aligned((size_t)(v->dims[0] * c * h * w) * wb__dtype_size(v->dtype));
    return 0;
}

static int cpu_library_conv(const wb__step *s, library_kernel *k)
{
    const wb__view *x = &s->views[0], *w = &s->views[1], *y = &s->views[2];
    if (!cpu_library_layouts(x) || !cpu_library_layouts(y) || !(cpu_library_layouts(w) & 1))
        return wb__fail(WB_ERROR_INTERNAL, "conv: operands must be dense");
    wb__conv_desc d = {
        .dtype = x->dtype, .kind = (wb__conv_kind)s->variant,
        .n = x->dims[0], .c = x->dims[1], .h = x->dims[2], .w = x->dims[3],
        .k = w->dims[0], .kh = w->dims[2], .kw = w->dims[3], .oh = y->dims[2], .ow = y->dims[3],
        .groups = s->conv.groups, .has_bias = s->n_views > 3, .act = s->epilogue,
    };
    memcpy(d.stride, s->conv.stride, sizeof d.stride);
    memcpy(d.dilation, s->conv.dilation, sizeof d.dilation);
    memcpy(d.pad, s->conv.pad, sizeof d.pad);
    int e = wb__cpu_conv(&d, &k->op);
    k->written = d.kind == WB__CONV_FORWARD ? 2 : d.kind == WB__CONV_GRAD_INPUT ? 0 : 1;
    k->copies_at = e ? 0 : wb__aligned(k->op->workspace);
    for (int i = 0; !e && i < 3; i += 2)
        if (!(cpu_library_layouts(&s->views[i]) & 2)) e = cpu_library_add_copy(k, i);
    return e;
}

static int cpu_library_pool(const wb__step *s, library_kernel *k)
{
    const bool back = s->variant == WB__POOL_MEAN_GRAD;
    const wb__view *x = &s->views[back];
    const wb__view *y = &s->views[back ? 0 : s->variant == WB__POOL_MAX_GATHER ? 2 : 1];
    int fits = 3;
    for (int i = 0; i < s->n_views; i++) fits &= cpu_library_layouts(&s->views[i]);
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

/* Lets the kernel read the prepared form of view 1, if its operation has such a form. */
static void cpu_library_enable_form(library_kernel *k, const wb__step *s)
{
    const int64_t about[] = {(int64_t)k->op->form_key, k->views[1].offset, k->views[1].dtype};
    k->form = s->form;
    k->head.base.form_bytes = k->op->form_bytes;
    k->head.base.form_key = wb__cpu_form_key(WB__CPU_FORM_STEP, sizeof about, about);
}

int wb__cpu_prepare_form(const wb_device *device, const wb__kernel *kernel, const void *leaf,
                         void *form)
{
    const library_kernel *k = (const library_kernel *)kernel;
    const wb__view *v = &k->views[1];
    (void)device;
    return k->op->make_form(
        k->op, (const char *)leaf + v->offset * (int64_t)wb__dtype_size(v->dtype), form);
}

int wb__cpu_library(const wb__step *s, wb__cpu_kernel **kernel)
{
    library_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->head.launch = cpu_library_launch;
    k->head.destroy = cpu_library_destroy;
    k->n_views = s->n_views;
    memcpy(k->views, s->views, sizeof k->views);
    const int e = s->kind == WB__STEP_MATMUL ? cpu_library_matmul(s, k)
                : s->kind == WB__STEP_PACK ? cpu_library_pack(s, k)
                : s->kind == WB__STEP_CONV ? cpu_library_conv(s, k) : cpu_library_pool(s, k);
    if (e) {
        cpu_library_destroy(&k->head);
        return e;
    }
    k->head.base.impl = k->op ? k->op->impl : "nothing";
    k->head.base.reason = k->op ? k->op->reason : NULL;
    k->head.base.workspace = WB__MAX(k->op ? k->op->workspace : 0, k->copies_at);
    if (s->form && k->op && k->op->form_bytes && !k->n_loops) cpu_library_enable_form(k, s);
    for (int i = 0; i < 3; i++)
        if (k->copy[i])
            k->head.base.workspace = WB__MAX(k->head.base.workspace,
                                             k->copies_at + k->copy[i]->base.workspace);
    *kernel = &k->head;
    return 0;
}
