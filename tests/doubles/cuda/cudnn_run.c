/* The double of cuDNN: executes a graph's operations one after another, in plain loops in double.
 * Intermediate results of 16-bit types are rounded.  See vgpu.h. */
#include "cudnn.h"
#include "number.h"

#include <stdlib.h>

typedef struct { double *v[CUDNN_MOST_TENSORS]; } values;

static int type_of(const cudnn_tensor *t)
{
    return t->type == CUDNN_DATA_HALF ? VGPU_F16 : t->type == CUDNN_DATA_BFLOAT16 ? VGPU_BF16
         : t->type == CUDNN_DATA_DOUBLE ? VGPU_F64 : VGPU_F32;
}

static int64_t count(const cudnn_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

/* Sets at[] to the indices of element i in row-major order; returns its offset in memory. */
static int64_t split(const cudnn_tensor *t, int64_t i, int64_t at[4])
{
    int64_t offset = 0;
    for (int d = 3; d >= 0; d--) {
        at[d] = i % t->dims[d];
        i /= t->dims[d];
        offset += at[d] * t->strides[d];
    }
    return offset;
}

static int64_t join(const cudnn_tensor *t, const int64_t at[4])
{
    int64_t i = 0;
    for (int d = 0; d < 4; d++) i = i * t->dims[d] + (t->dims[d] == 1 ? 0 : at[d]);
    return i;
}

/* The values of an operand: of an earlier operation, or read from memory. */
static const double *read_tensor(const cudnn_program *p, values *all, int which)
{
    const cudnn_tensor *t = &p->tensor[which];
    int64_t at[4], n = count(t);
    if (all->v[which]) return all->v[which];
    double *v = malloc((size_t)n * sizeof *v);
    if (!v) abort();
    for (int64_t i = 0; i < n; i++)
        v[i] = t->by_value ? t->value
             : t->is_virtual ? NAN
                          : vgpu_load((void *)(uintptr_t)t->address, type_of(t), split(t, i, at));
    return all->v[which] = v;
}

static double *new_tensor(const cudnn_program *p, values *all, int which)
{
    free(all->v[which]);
    all->v[which] = malloc((size_t)count(&p->tensor[which]) * sizeof(double));
    if (!all->v[which]) abort();
    return all->v[which];
}

/* Rounds a virtual result, or writes a result to memory. */
static void write_tensor(const cudnn_program *p, values *all, int which)
{
    const cudnn_tensor *t = &p->tensor[which];
    double *v = all->v[which];
    int64_t at[4];
    for (int64_t i = 0; i < count(t); i++) {
        const int64_t offset = split(t, i, at);
        if (t->is_virtual && t->type == CUDNN_DATA_HALF) v[i] = vgpu_of_half(vgpu_to_half(v[i]));
        if (t->is_virtual && t->type == CUDNN_DATA_BFLOAT16) v[i] = vgpu_round(v[i], 8, -125);
        if (!t->is_virtual) vgpu_store((void *)(uintptr_t)t->address, type_of(t), offset, v[i]);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

static double apply(int mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_RELU_FWD: return x > 0 || x != x ? x : 0;
    case CUDNN_POINTWISE_TANH_FWD: return tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return 1 / (1 + exp(-x));
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    case CUDNN_POINTWISE_IDENTITY: return x;
    default: vgpu_wrong("cuDNN: this double does not know pointwise mode %d", mode); return NAN;
    }
}

static void pointwise(const cudnn_program *p, const cudnn_op *o, values *all)
{
    const cudnn_tensor *y = &p->tensor[o->y];
    const double *x = read_tensor(p, all, o->x), *b = o->b < 0 ? NULL : read_tensor(p, all, o->b);
    const double *t = o->t < 0 ? NULL : read_tensor(p, all, o->t);
    double *v = new_tensor(p, all, o->y);
    int64_t at[4];
    for (int64_t i = 0; i < count(y); i++) {
        split(y, i, at);
        v[i] = o->mode == CUDNN_POINTWISE_GEN_INDEX
             ? (double)at[o->axis]
             : apply(o->mode, x[join(&p->tensor[o->x], at)],
                     b ? b[join(&p->tensor[o->b], at)] : 0, t ? t[join(&p->tensor[o->t], at)] : 0);
    }
}

static void reduce(const cudnn_program *p, const cudnn_op *o, values *all)
{
    const cudnn_tensor *from = &p->tensor[o->x], *y = &p->tensor[o->y];
    const double *x = read_tensor(p, all, o->x);
    double *v = new_tensor(p, all, o->y);
    const bool max = o->mode == CUDNN_REDUCE_TENSOR_MAX;
    int64_t at[4];
    for (int64_t i = 0; i < count(y); i++) v[i] = max ? -INFINITY : 0;
    for (int64_t i = 0; i < count(from); i++) {
        split(from, i, at);
        double *to = &v[join(y, at)];
        *to = max ? (x[i] > *to || x[i] != x[i] ? x[i] : *to) : *to + x[i];
    }
}

static void matmul(const cudnn_program *p, const cudnn_op *o, values *all)
{
    const cudnn_tensor *ta = &p->tensor[o->x], *tb = &p->tensor[o->b], *ty = &p->tensor[o->y];
    const double *a = read_tensor(p, all, o->x), *b = read_tensor(p, all, o->b);
    double *v = new_tensor(p, all, o->y);
    int64_t at[4];
    for (int64_t i = 0; i < count(ty); i++) {
        double sum = 0;
        split(ty, i, at);
        for (int64_t k = 0; k < ta->dims[3]; k++)
            sum += a[join(ta, (int64_t[4]){at[0], at[1], at[2], k})] *
                   b[join(tb, (int64_t[4]){at[0], at[1], k, at[3]})];
        v[i] = sum;
    }
}

/* A reshape, of which only the transposition of the last two dimensions is supported. */
static void reshape(const cudnn_program *p, const cudnn_op *o, values *all)
{
    const cudnn_tensor *from = &p->tensor[o->x], *y = &p->tensor[o->y];
    const double *x = read_tensor(p, all, o->x);
    double *v = new_tensor(p, all, o->y);
    int64_t at[4];
    const bool transposes = from->dims[2] == y->dims[3] && from->dims[3] == y->dims[2] &&
                            from->strides[2] == y->strides[3] &&
                            from->strides[3] == y->strides[2] &&
                            from->strides[0] == y->strides[0] &&
                            from->strides[1] == y->strides[1];
    if (!transposes) vgpu_wrong("cuDNN: a reshape that is no transpose");
    for (int64_t i = 0; i < count(y); i++) {
        split(y, i, at);
        v[i] = x[join(from, (int64_t[4]){at[0], at[1], at[3], at[2]})];
    }
}

/* A convolution or one of its gradients.  For each triple of elements of x, w and y that belong
 * together, the product of two is added to the third, which is an element of the result. */
static void convolution(const cudnn_program *p, const cudnn_op *o, values *all)
{
    const cudnn_tensor *x = &p->tensor[o->x], *w = &p->tensor[o->b], *y = &p->tensor[o->y];
    const bool data = o->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const bool filter = o->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    const int result = data ? o->x : filter ? o->b : o->y;
    const double *vx = data ? NULL : read_tensor(p, all, o->x);
    const double *vw = filter ? NULL : read_tensor(p, all, o->b);
    const double *vy = data || filter ? read_tensor(p, all, o->y) : NULL;
    const int64_t groups = x->dims[1] / w->dims[1], per = w->dims[0] / groups;
    double *v = new_tensor(p, all, result);
    for (int64_t i = 0; i < count(&p->tensor[result]); i++) v[i] = 0;
    int64_t at[4], f[4];
    for (int64_t i = 0; i < count(y); i++) {
        split(y, i, at);
        const int64_t group = at[1] / per;
        for (int64_t c = 0; c < w->dims[1]; c++)
            for (int64_t tap = 0; tap < w->dims[2] * w->dims[3]; tap++) {
                f[2] = tap / w->dims[3], f[3] = tap % w->dims[3];
                const int64_t h = at[2] * o->stride[0] + f[2] * o->dilation[0] - o->before[0];
                const int64_t q = at[3] * o->stride[1] + f[3] * o->dilation[1] - o->before[1];
                if (h < 0 || q < 0 || h >= x->dims[2] || q >= x->dims[3]) continue;
                const int64_t ix =
                    join(x, (int64_t[4]){at[0], group * w->dims[1] + c, h, q});
                const int64_t iw = join(w, (int64_t[4]){at[1], c, f[2], f[3]});
                if (data) v[ix] += vw[iw] * vy[i];
                else if (filter) v[iw] += vx[ix] * vy[i];
                else v[i] += vx[ix] * vw[iw];
            }
    }
}

int cudnn_run(void *program)
{
    const cudnn_program *p = program;
    values all = {{NULL}};
    if (p->workspace_bytes) vgpu_scratch(p->workspace, p->workspace_bytes);
    for (int i = 0; i < p->n_ops; i++) {
        const cudnn_op *o = &p->op[i];
        int result = o->y;
        switch (o->kind) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise(p, o, &all); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(p, o, &all); break;
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul(p, o, &all); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(p, o, &all); break;
        default:
            convolution(p, o, &all);
            if (o->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
                result = o->x;
            if (o->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
                result = o->b;
        }
        write_tensor(p, &all, result);
    }
    for (int i = 0; i < CUDNN_MOST_TENSORS; i++) free(all.v[i]);
    return 0;
}
