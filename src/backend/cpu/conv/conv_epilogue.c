/* An input gradient with a bias or an epilogue.  Another operation computes the gradient; this file
 * then adds the bias and applies the epilogue in place. */
#include "backend/cpu/product/gemm.h"

#include "backend/cpu/conv/direct.h"

#include <string.h>

enum { EPILOGUE_CHUNK = 1024, EPILOGUE_SERIAL = 1 << 15 };

typedef struct {
    wb__cpu_op op, *inner;              /* inner: computes the gradient alone */
    wb__conv_desc d;
    wb_dtype wide;                      /* the computed type */
    wb__elementwise_fn *row;        /* applies the epilogue in place; NULL: it is relu or none */
} epilogue_form;

typedef struct {
    const epilogue_form *p;
    char *x;
    const char *bias;
    int64_t each;                       /* elements of dx that a task processes */
} epilogue_job;

#define ADD_BIAS(T)                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
        ((T *)wide)[i] += ((const T *)bias)[(at + i) % c]

static void epilogue_add_bias(const epilogue_form *p, void *wide, const void *bias, int64_t at,
                              int64_t n)
{
    const int64_t c = p->d.c;
    if (p->wide == WB_F64) ADD_BIAS(double);
    else ADD_BIAS(float);
}

static void epilogue_one_part(void *ctx, int64_t part)
{
    const epilogue_job *j = ctx;
    const epilogue_form *p = j->p;
    const size_t size = wb__dtype_size(p->d.dtype);
    const int64_t all = p->d.n * p->d.c * p->d.h * p->d.w;
    const int64_t end = WB__MIN((part + 1) * j->each, all);
    double room[EPILOGUE_CHUNK];
    for (int64_t at = part * j->each; at < end; at += EPILOGUE_CHUNK) {
        const int64_t n = WB__MIN(end - at, EPILOGUE_CHUNK);
        char *stored = j->x + (size_t)at * size;
        void *wide = p->wide == p->d.dtype ? (void *)stored : room;
        if (wide == room) wb__widen(wide, stored, p->d.dtype, n);
        if (j->bias) epilogue_add_bias(p, wide, j->bias, at, n);
        if (p->row) p->row(wide, wide, NULL, NULL, n);
        if (wide == room) wb__narrow(stored, p->d.dtype, wide, n);
    }
}

static void epilogue_run_form(const wb__cpu_op *op, void *const *buffers, const void *form,
                              void *workspace)
{
    const epilogue_form *p = (const epilogue_form *)op;
    const int64_t size = p->d.n * p->d.c * p->d.h * p->d.w;
    const int64_t parts = size < EPILOGUE_SERIAL ? 1 : wb__threads();
    char *bias = p->d.has_bias ? buffers[3] : NULL;
    if (form) p->inner->run_form(p->inner, buffers, form, workspace);
    else p->inner->run(p->inner, buffers, workspace);
    if (bias && p->wide != p->d.dtype) {
        bias = (char *)workspace + p->inner->workspace;
        wb__widen(bias, buffers[3], p->d.dtype, p->d.c);
    }
    epilogue_job j = {p, buffers[0], bias, (size + parts - 1) / parts};
    wb__parallel(parts, epilogue_one_part, &j);
}

static void epilogue_run(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    epilogue_run_form(op, buffers, NULL, workspace);
}

static int epilogue_make_form(const wb__cpu_op *op, const void *from, void *form)
{
    const wb__cpu_op *inner = ((const epilogue_form *)op)->inner;
    return inner->make_form(inner, from, form);
}

static void epilogue_destroy(wb__cpu_op *op)
{
    epilogue_form *p = (epilogue_form *)op;
    p->inner->destroy(p->inner);
    wb__free(p);
}

int wb__conv_epilogue(const wb__conv_desc *d, wb__cpu_op **op, const char **reason)
{
    (void)reason;
    wb__conv_desc bare = *d;
    bare.has_bias = false;
    bare.act = WB__OP_NONE;
    *op = NULL;
    epilogue_form *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    const int error = wb__cpu_conv(&bare, &p->inner);
    if (error) {
        wb__free(p);
        return error;
    }
    p->d = *d;
    p->wide = d->dtype == WB_F64 ? WB_F64 : WB_F32;
    if (d->act) p->row = wb__tile_unary(wb__tile_table_here(), d->act, (int)wb__reg_of(p->wide));
    p->op = *p->inner;
    p->op.run = epilogue_run;
    p->op.run_form = epilogue_run_form;
    p->op.make_form = epilogue_make_form;
    p->op.destroy = epilogue_destroy;
    p->op.workspace = wb__aligned(p->inner->workspace);
    p->inner->workspace = p->op.workspace;
    if (d->has_bias && p->wide != d->dtype) p->op.workspace += (size_t)d->c * sizeof(float);
    *op = &p->op;
    return 0;
}
