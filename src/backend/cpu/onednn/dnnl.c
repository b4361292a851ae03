/* oneDNN's matrix product and convolution as prepared operations.
 *
 * x and y keep the layout that they have in the engine.  A run reorders the weights of a
 * convolution to the layout that oneDNN chooses, unless it gets them in this layout, as a prepared
 * form.  oneDNN's scratch memory is in the operation's workspace.
 *
 * Each run needs a run_set: memory objects of oneDNN for its pointers.  Up to SETS idle sets are
 * kept in a list without a lock.  A run creates a set only if the list is empty.
 *
 * oneDNN must keep no state between runs, as is the case in version 2.6.  oneDNN computes the
 * epilogues tanh and sigmoid; this file computes the others in a separate pass.  oneDNN's relu is
 * not used, because it turns NaN into 0, which would hide a diverged network. */
#include "backend/cpu/onednn/dnnl_piece.h"

#include "backend/cpu/onednn/dnnl_api.h"
#include "backend/cpu/tile/tile.h"
#include "base/environment.h"
#include "base/mutex.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* SETS: concurrent runs of an operation that allocate nothing. */
enum { MAX_ARGS = 6, SETS = 64, NOT_A_BUFFER = -1 };

/* An operand of a primitive or a reorder: its argument number in oneDNN, place and layout. */
typedef struct {
    int arg;
    int buffer; /* index into the run's buffers; NOT_A_BUFFER: at `offset` in the workspace */
    size_t offset;
    wb__md_ref desc;
} dnnl_operand;

typedef struct {
    dnnl_memory_t memory[MAX_ARGS];
    void *pointer[MAX_ARGS];
    dnnl_exec_arg_t args[MAX_ARGS], reorder_args[3];
    dnnl_stream_t stream;
} run_set;

typedef struct {
    wb__cpu_op op;
    dnnl_primitive_desc_t pd, reorder_pd;  /* of the operation, and of the reorder of weights */
    dnnl_primitive_t primitive, reorder;
    wb__md mds[5];                   /* descriptors that this operation owns */
    dnnl_operand operands[MAX_ARGS]; /* those of the primitive, then others of the reorder */
    int count, used_by_primitive, from, to;  /* operands; from, to: those of the reorder */
    int threads_before;         /* the caller's number of threads before dnnl_begin changed it */
    bool reorder_first;  /* the reorder runs before the primitive; false: after it (GRAD_WEIGHT) */
    wb__elementwise_fn *row;            /* the epilogue as a separate pass; NULL: none */
    wb_dtype dtype;
    int64_t rows, columns, stride;      /* shape of the result, for the epilogue */
    _Atomic(run_set *) sets[SETS];
    char impl[64];
} dnnl_op;

static dnnl_engine_t dnnl_engine;
static wb__once dnnl_once = WB__ONCE_INIT;
static wb__mutex dnnl_creating = WB__MUTEX_INIT; /* around oneDNN's own locks, for fork */
static int (*omp_threads)(void);        /* functions of oneDNN's OpenMP; NULL: it has none */
static void (*omp_set_threads)(int n);

static void make_engine(void)
{
    if (dnnl_engine_create(&dnnl_engine, dnnl_cpu, 0)) dnnl_engine = NULL;
    /* the process may have loaded several OpenMPs; a handle of oneDNN finds that of oneDNN */
    void *at;
    memcpy(&at, &(dnnl_status_t (*[1])(dnnl_engine_t *, dnnl_engine_kind_t, size_t)){
                    dnnl_engine_create}, sizeof at);
    void *library = wb__os_library_of(at);
    *(void **)&omp_threads = wb__os_library_find(library, "omp_get_max_threads");
    *(void **)&omp_set_threads = wb__os_library_find(library, "omp_set_num_threads");
}

static bool is_enabled(const char **reason)
{
    if (!wb__environment_switch("WEBER_ONEDNN", true)) {
        *reason = "oneDNN is turned off (WEBER_ONEDNN=0)";
        return false;
    }
    if (!wb__dnnl_has_memory(reason)) return false;
    wb__once_run(&dnnl_once, make_engine);
    if (!dnnl_engine) *reason = "oneDNN has no CPU engine";
    return dnnl_engine;
}

/* Makes oneDNN compute on the calling thread alone, since the pool divides the work (dnnl_split.c),
 * and returns the calling thread's number of threads before.  oneDNN's own threads, which wait for
 * each other by spinning, would starve where other programs keep the processors busy. */
static int use_one_thread(void)
{
    const int before = omp_threads && omp_set_threads ? omp_threads() : 1;
    if (before != 1) omp_set_threads(1);
    return before;
}

static void restore_threads(int n) { if (n != 1) omp_set_threads(n); }

static void dnnl_drop_set(run_set *s)
{
    if (!s) return;
    for (int i = 0; i < MAX_ARGS; i++)
        if (s->memory[i]) dnnl_memory_destroy(s->memory[i]);
    if (s->stream) dnnl_stream_destroy(s->stream);
    wb__free(s);
}

static run_set *dnnl_make_set(const dnnl_op *p)
{
    run_set *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    bool bad = dnnl_stream_create(&s->stream, dnnl_engine, dnnl_stream_default_flags);
    for (int i = 0; i < p->count; i++) {
        bad = bad || dnnl_memory_create(&s->memory[i], p->operands[i].desc, dnnl_engine,
                                        DNNL_MEMORY_NONE);
        s->args[i] = (dnnl_exec_arg_t){ p->operands[i].arg, s->memory[i] };
    }
    if (p->reorder) {
        s->reorder_args[0] = (dnnl_exec_arg_t){ DNNL_ARG_FROM, s->memory[p->from] };
        s->reorder_args[1] = (dnnl_exec_arg_t){ DNNL_ARG_TO, s->memory[p->to] };
    }
    if (!bad) return s;
    dnnl_drop_set(s);
    return wb__fail_null(WB_ERROR_MEMORY, "oneDNN: out of memory for a run of %s", p->impl);
}

/* Takes an idle run_set of p, or makes one; NULL: out of memory. */
static run_set *dnnl_take_set(dnnl_op *p)
{
    for (int k = 0; k < 2 * SETS; k++) {        /* twice: another run may have given a set back */
        const int i = k % SETS;
        run_set *s = atomic_load(&p->sets[i]);
        if (s) s = atomic_exchange(&p->sets[i], NULL);
        if (s) return s;
    }
    return dnnl_make_set(p);            /* all sets are used by concurrent runs */
}

/* Gives a run_set back to p's idle sets, or drops it if they are full. */
static void dnnl_give_set(dnnl_op *p, run_set *s)
{
    for (int i = 0; i < SETS; i++) {
        run_set *none = NULL;
        if (atomic_compare_exchange_strong(&p->sets[i], &none, s)) return;
    }
    dnnl_drop_set(s);
}

int wb__dnnl_piece_reserve(wb__cpu_op *op, int n)
{
    dnnl_op *p = (dnnl_op *)op;
    for (int i = 0; i < WB__MIN(n, SETS); i++) {
        if (atomic_load(&p->sets[i])) continue;
        run_set *s = dnnl_make_set(p);
        if (!s) return WB_ERROR_MEMORY;
        atomic_store(&p->sets[i], s);
    }
    return 0;
}

/* The arguments of dnnl_one_part.  at: the result; rows: number of rows per part. */
typedef struct { const dnnl_op *p; void *at; int64_t rows; } row_part;

static void dnnl_one_part(void *ctx, int64_t part)
{
    enum { CHUNK = 1024 };
    const row_part *r = ctx;
    const dnnl_op *p = r->p;
    const wb__tile_table *t = wb__tile_table_here();
    const int64_t first = part * r->rows, end = WB__MIN(first + r->rows, p->rows);
    const int64_t step = p->stride == p->columns ? WB__MAX(end - first, 1) : 1;  /* rows per call */
    for (int64_t i = first; i < end; i += step) {
        if (p->dtype == WB_F32) {
            float *y = (float *)r->at + i * p->stride;
            p->row(y, y, NULL, NULL, step * p->columns);
            continue;
        }
        uint16_t *y = (uint16_t *)r->at + i * p->stride;
        for (int64_t j = 0; j < step * p->columns; j += CHUNK) {
            const int64_t n = WB__MIN(step * p->columns - j, CHUNK);
            float wide[CHUNK];
            t->load[p->dtype](wide, CHUNK, y + j, 1, n, 0, 1);
            p->row(wide, wide, NULL, NULL, n);
            t->store[p->dtype](wide, CHUNK, y + j, 1, n, 0, 1);
        }
    }
}

/* Applies the epilogue p->row to the result at `at`. */
static void apply_row_after(const dnnl_op *p, void *at)
{
    enum { SERIAL = 1 << 15 };
    const int64_t size = p->rows * p->columns;
    const int64_t parts = size < SERIAL ? 1 : WB__MIN(wb__threads(), p->rows);
    row_part r = { p, at, (p->rows + parts - 1) / parts };
    wb__parallel(parts, dnnl_one_part, &r);
}

static void set_address(run_set *s, int i, const void *at)
{
    if (at == s->pointer[i]) return;
    s->pointer[i] = (void *)at;
    dnnl_memory_set_data_handle(s->memory[i], s->pointer[i]);
}

static void dnnl_run_form(const wb__cpu_op *op, void *const *buffers, const void *form,
                          void *workspace)
{
    dnnl_op *p = (dnnl_op *)op;         /* only the list of sets changes, atomically */
    run_set *s = dnnl_take_set(p);
    if (!s) return;
    const int before = use_one_thread();
    for (int i = 0; i < p->count; i++) {
        const dnnl_operand *o = &p->operands[i];
        set_address(s, i, o->buffer >= 0 ? buffers[o->buffer] : (char *)workspace + o->offset);
    }
    if (form) set_address(s, p->to, form);
    dnnl_status_t bad = 0;
    if (p->reorder && p->reorder_first && !form)
        bad = dnnl_primitive_execute(p->reorder, s->stream, 2, s->reorder_args);
    if (!bad) bad = dnnl_primitive_execute(p->primitive, s->stream, p->used_by_primitive, s->args);
    if (!bad && p->reorder && !p->reorder_first)
        bad = dnnl_primitive_execute(p->reorder, s->stream, 2, s->reorder_args);
    if (!bad) bad = dnnl_stream_wait(s->stream);
    if (bad) wb__fail(WB_ERROR_INTERNAL, "oneDNN: %s failed with status %d", p->impl, (int)bad);
    restore_threads(before);
    dnnl_give_set(p, s);
    if (p->row && !bad) apply_row_after(p, buffers[2]);
}

static void dnnl_run(const wb__cpu_op *op, void *const *buffers, void *workspace)
{
    dnnl_run_form(op, buffers, NULL, workspace);
}

/* Reorders weights to the layout of the primitive. */
static int dnnl_make_form(const wb__cpu_op *op, const void *from, void *form)
{
    dnnl_op *p = (dnnl_op *)op;
    run_set *s = dnnl_take_set(p);
    if (!s) return WB_ERROR_MEMORY;
    const int before = use_one_thread();
    set_address(s, p->from, from);
    set_address(s, p->to, form);
    const dnnl_status_t bad = dnnl_primitive_execute(p->reorder, s->stream, 2, s->reorder_args)
                           || dnnl_stream_wait(s->stream);
    restore_threads(before);
    dnnl_give_set(p, s);
    return bad ? wb__fail(WB_ERROR_INTERNAL, "oneDNN: reordering for %s failed", p->impl) : 0;
}

/* Lets the operation read its reordered weights as a prepared form, if their layout has bytes. */
static void dnnl_enable_form(dnnl_op *p)
{
    uint64_t about[256] = {0};
    wb__md_ref layout = p->operands[p->to].desc;
    const size_t bytes = wb__md_bytes(layout, about, sizeof about);
    if (!bytes) return;
    p->op.form_bytes = dnnl_memory_desc_get_size(layout);
    p->op.form_key = wb__cpu_form_key(WB__CPU_FORM_DNNL, bytes, about);
    p->op.make_form = dnnl_make_form;
    p->op.run_form = dnnl_run_form;
}

static void dnnl_destroy(wb__cpu_op *op)
{
    dnnl_op *p = (dnnl_op *)op;
    for (int i = 0; i < SETS; i++) dnnl_drop_set(atomic_load(&p->sets[i]));
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->reorder) dnnl_primitive_destroy(p->reorder);
    if (p->pd) dnnl_primitive_desc_destroy(p->pd);
    if (p->reorder_pd) dnnl_primitive_desc_destroy(p->reorder_pd);
    for (size_t i = 0; i < WB__COUNT(p->mds); i++) wb__md_drop(&p->mds[i]);
    wb__free(p);
}

/* Adds an operand and returns its index.  If `buffer` is NOT_A_BUFFER, extends the workspace to
 * hold the operand. */
static int dnnl_add_operand(dnnl_op *p, int arg, int buffer, wb__md_ref desc)
{
    dnnl_operand *o = &p->operands[p->count];
    *o = (dnnl_operand){ arg, buffer, p->op.workspace, desc };
    if (buffer < 0) p->op.workspace += wb__aligned(dnnl_memory_desc_get_size(desc));
    return p->count++;
}

static void add_scratch(dnnl_op *p)
{
    wb__md_ref scratch = dnnl_primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0);
    if (scratch && dnnl_memory_desc_get_size(scratch) > 0)
        dnnl_add_operand(p, DNNL_ARG_SCRATCHPAD, NOT_A_BUFFER, scratch);
}

/* Returns the attributes of a primitive, which the caller destroys; NULL: a call of oneDNN failed.
 * Each run provides the scratch memory.  An epilogue that oneDNN does not compute is stored in
 * p->row instead. */
static dnnl_primitive_attr_t make_attr(dnnl_op *p, wb__op act)
{
    const bool supported = act == WB__OP_tanh || act == WB__OP_sigmoid;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(&attr)) return NULL;
    bool bad = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (act && !supported) p->row = wb__tile_unary(wb__tile_table_here(), act, WB__REG_F32);
    if (supported) {
        const dnnl_alg_kind_t kind = act == WB__OP_tanh ? dnnl_eltwise_tanh : dnnl_eltwise_logistic;
        bad = bad || dnnl_post_ops_create(&ops) || wb__append_eltwise(ops, kind)
           || dnnl_primitive_attr_set_post_ops(attr, ops);
        if (ops) dnnl_post_ops_destroy(ops);
    }
    if (!bad) return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

static bool dnnl_type_of(wb_dtype t, dnnl_data_type_t *type)
{
    *type = t == WB_F32 ? dnnl_f32 : dnnl_bf16;
    return t == WB_F32 || t == WB_BF16;
}

/* Whether this is an x86 processor with bf16 arithmetic.  Without it, oneDNN emulates bf16 on x86,
 * which is slower than f32. */
static bool has_bf16(void)
{
#if defined(__x86_64__)
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
#else
    return false;
#endif
}

static dnnl_op *dnnl_begin(void)
{
    dnnl_op *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return NULL;
    p->op.run = dnnl_run;
    p->op.destroy = dnnl_destroy;
    p->threads_before = use_one_thread();
    wb__mutex_lock(&dnnl_creating);     /* dnnl_finish unlocks it */
    return p;
}

/* Creates the primitives and the first run_set of `p`, sets *op to the operation and returns 0.  If
 * `refusal` is not NULL, or oneDNN cannot create a primitive, frees `p`, sets *reason and returns
 * 0.  If memory is exhausted, frees `p` and returns an error code. */
static int dnnl_finish(dnnl_op *p, const char *refusal, wb__cpu_op **op, const char **reason)
{
    if (!refusal) {
        const char *name = NULL;
        dnnl_primitive_desc_query(p->pd, dnnl_query_impl_info_str, 0, &name);
        if (!name || strstr(name, "ref"))
            refusal = "oneDNN has only its reference code for this shape";
        else snprintf(p->impl, sizeof p->impl, "dnnl %s", name);
    }
    if (!refusal && (dnnl_primitive_create(&p->primitive, p->pd)
                     || (p->reorder_pd && dnnl_primitive_create(&p->reorder, p->reorder_pd))))
        refusal = "oneDNN could not make the primitive";
    wb__mutex_unlock(&dnnl_creating);
    restore_threads(p->threads_before);
    if (!refusal) {
        if (wb__dnnl_piece_reserve(&p->op, 1)) {
            dnnl_destroy(&p->op);
            return WB_ERROR_MEMORY;
        }
        p->op.impl = p->impl;
        if (p->reorder && p->reorder_first) dnnl_enable_form(p);
        *op = &p->op;
        return 0;
    }
    dnnl_destroy(&p->op);
    *reason = refusal;
    return 0;
}

/* Merges two batch dimensions into one; false: the strides do not allow it. */
static bool merge_batch(const int64_t batch[2], const int64_t s[2], int64_t *stride)
{
    *stride = batch[1] == 1 ? s[0] : s[1];
    return batch[0] == 1 || batch[1] == 1 || s[0] == s[1] * batch[1];
}

/* Replaces the stride of a dimension of size 1, which is arbitrary, by the stride in a dense
 * matrix, because oneDNN also reads that stride. */
static void normalise_strides(int64_t rows, int64_t columns, int64_t s[2])
{
    if (columns == 1) s[1] = s[0] == 1 ? WB__MAX(rows, 1) : 1;
    if (rows == 1) s[0] = s[1] == 1 ? columns : 1;
}

/* Returns the reason why oneDNN does not support these operands, or NULL.  Sets `stride` to the
 * distances between the matrices of A, B and C in the batch. */
static const char *matmul_lacks(const wb__matmul_desc *d, dnnl_data_type_t type, int64_t stride[3])
{
    if (type == dnnl_bf16 && !has_bf16()) return "this processor has no bf16 arithmetic";
    if (!d->batch[0] || !d->batch[1] || !d->m || !d->n || !d->k) return "an empty product";
    if (!merge_batch(d->batch, d->a_b, &stride[0]) || !merge_batch(d->batch, d->b_b, &stride[1])
        || !merge_batch(d->batch, d->c_b, &stride[2]))
        return "the batch's strides do not fold into one";
    if ((d->a_s[0] != 1 && d->a_s[1] != 1) || (d->b_s[0] != 1 && d->b_s[1] != 1) || d->c_s[1] != 1)
        return "no stride of 1";
    return d->batch[0] * d->batch[1] > 1 && !stride[2] ? "C is broadcast" : NULL;
}

/* Creates the descriptors of A, B, C, bias and the primitive; false: not supported. */
static bool matmul_pd(dnnl_op *p, const wb__matmul_desc *d, dnnl_data_type_t type,
                      const int64_t stride[3], dnnl_primitive_attr_t attr)
{
    const int64_t batch = d->batch[0] * d->batch[1];
    const int first = batch > 1 ? 0 : 1, rank = 3 - first;
    const bool share_a = batch > 1 && !stride[0], share_b = batch > 1 && !stride[1];
    const int64_t a_dims[] = { share_a ? 1 : batch, d->m, d->k },
                  a_s[] = { share_a ? d->m * d->k : stride[0], d->a_s[0], d->a_s[1] };
    const int64_t b_dims[] = { share_b ? 1 : batch, d->k, d->n },
                  b_s[] = { share_b ? d->k * d->n : stride[1], d->b_s[0], d->b_s[1] };
    const int64_t c_dims[] = { batch, d->m, d->n }, c_s[] = { stride[2], d->c_s[0], d->c_s[1] };
    const int64_t bias_dims[] = { 1, 1, d->n }, bias_s[] = { d->n, d->n, 1 };
    return !wb__md_strided(&p->mds[0], rank, a_dims + first, type, a_s + first)
        && !wb__md_strided(&p->mds[1], rank, b_dims + first, type, b_s + first)
        && !wb__md_strided(&p->mds[2], rank, c_dims + first, type, c_s + first)
        && (!d->has_bias
            || !wb__md_strided(&p->mds[3], rank, bias_dims + first, type, bias_s + first))
        && !wb__matmul_pd(&p->pd, dnnl_engine, wb__md_of(&p->mds[0]), wb__md_of(&p->mds[1]),
                          d->has_bias ? wb__md_of(&p->mds[3]) : NULL, wb__md_of(&p->mds[2]), attr);
}

int wb__dnnl_matmul_piece(const wb__matmul_desc *asked, wb__cpu_op **op, const char **reason)
{
    dnnl_data_type_t type;
    wb__matmul_desc settled = *asked, *d = &settled;
    normalise_strides(d->m, d->k, d->a_s);
    normalise_strides(d->k, d->n, d->b_s);
    if (d->m == 1) d->c_s[0] = d->n * d->c_s[1];
    if (d->n == 1) d->c_s[1] = 1;
    int64_t stride[3];
    *op = NULL;
    if (!is_enabled(reason)) return 0;
    const char *lacks = dnnl_type_of(d->dtype, &type) ? matmul_lacks(d, type, stride)
                                                      : "oneDNN takes f32 and bf16";
    if (lacks) {
        *reason = lacks;
        return 0;
    }
    dnnl_op *p = dnnl_begin();
    if (!p) return WB_ERROR_MEMORY;
    const int64_t batch = d->batch[0] * d->batch[1];
    const char *refusal = NULL;
    dnnl_primitive_attr_t attr = make_attr(p, d->act);
    p->dtype = d->dtype;
    p->rows = batch > 1 && stride[2] != d->m * d->c_s[0] ? 0 : batch * d->m;
    p->columns = d->n;
    p->stride = d->c_s[0];
    if (p->row && !p->rows) refusal = "the rows of C do not follow each other";
    else if (!attr || !matmul_pd(p, d, type, stride, attr))
        refusal = "oneDNN has no product for these strides";
    else {
        dnnl_add_operand(p, DNNL_ARG_SRC, 0, wb__md_of(&p->mds[0]));
        dnnl_add_operand(p, DNNL_ARG_WEIGHTS, 1, wb__md_of(&p->mds[1]));
        dnnl_add_operand(p, DNNL_ARG_DST, 2, wb__md_of(&p->mds[2]));
        if (d->has_bias) dnnl_add_operand(p, DNNL_ARG_BIAS, 3, wb__md_of(&p->mds[3]));
        add_scratch(p);
        p->used_by_primitive = p->count;
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    return dnnl_finish(p, refusal, op, reason);
}

/* Creates the primitive descriptor of a convolution; oneDNN chooses the layout of the weights.
 * hint: the descriptor of the forward convolution, which gradients need, else NULL. */
static dnnl_primitive_desc_t conv_pd(const wb__conv_desc *d, dnnl_op *p, wb__conv_kind kind,
                                     dnnl_primitive_desc_t hint)
{
    dnnl_dims_t strides, dilates, low, high;
    const int64_t side[] = { d->h, d->w }, out[] = { d->oh, d->ow }, taps[] = { d->kh, d->kw };
    for (int i = 0; i < 2; i++) {
        strides[i] = d->stride[i];
        dilates[i] = d->dilation[i] - 1;
        low[i] = d->pad[2 * i];
        /* The padding at the end follows from the output size.  It is negative if no window reaches
         * the last rows or columns of x. */
        high[i] =
            (out[i] - 1) * d->stride[i] + (taps[i] - 1) * d->dilation[i] + 1 - side[i] - low[i];
    }
    const bool forward = kind == WB__CONV_FORWARD;
    dnnl_primitive_attr_t attr = make_attr(p, forward ? d->act : WB__OP_NONE);
    p->dtype = d->dtype;
    p->rows = d->n * d->oh;
    p->columns = p->stride = d->k * d->ow;
    dnnl_primitive_desc_t pd = NULL;
    if (attr
        && wb__conv_pd(&pd, dnnl_engine, kind, wb__md_of(&p->mds[0]), wb__md_of(&p->mds[1]),
                       forward && d->has_bias ? wb__md_of(&p->mds[3]) : NULL,
                       wb__md_of(&p->mds[2]), strides, dilates, low, high, hint, attr))
        pd = NULL;
    if (attr) dnnl_primitive_attr_destroy(attr);
    return pd;
}

/* Creates the descriptors of images, weights and the primitive; false: not supported. */
static bool dnnl_describe_conv(dnnl_op *p, const wb__conv_desc *d, dnnl_data_type_t type,
                               dnnl_data_type_t w_type)
{
    const int first = d->groups > 1 ? 0 : 1;
    const int64_t cg = d->c / d->groups, kg = d->k / d->groups;
    const int64_t x[] = { d->n, d->c, d->h, d->w }, y[] = { d->n, d->k, d->oh, d->ow };
    const int64_t w[] = { d->groups, kg, cg, d->kh, d->kw };
    const int64_t w_s[] = { kg * cg * d->kh * d->kw, cg * d->kh * d->kw, d->kh * d->kw, d->kw, 1 };
    const bool nchw = wb__conv_is_plain(d);
    const int64_t xc = nchw ? 1 : d->c, yc = nchw ? 1 : d->k, one[] = { 1 };
    const int64_t x_s[] = { d->c * d->h * d->w, nchw ? d->h * d->w : 1, d->w * xc, xc };
    const int64_t y_s[] = { d->k * d->oh * d->ow, nchw ? d->oh * d->ow : 1, d->ow * yc, yc };
    if (wb__md_strided(&p->mds[0], 4, x, type, x_s)
        || wb__md_any(&p->mds[1], 5 - first, w + first, w_type)
        || wb__md_strided(&p->mds[2], 4, y, type, y_s)
        || wb__md_strided(&p->mds[3], 1, &d->k, type, one)
        || wb__md_strided(&p->mds[4], 5 - first, w + first, w_type, w_s + first))
        return false;
    const bool forward = d->kind == WB__CONV_FORWARD;
    dnnl_primitive_desc_t hint = forward ? NULL : conv_pd(d, p, WB__CONV_FORWARD, NULL);
    if (forward || hint) p->pd = conv_pd(d, p, d->kind, hint);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return p->pd != NULL;
}

/* Adds the primitive's operands.  If the primitive uses another layout for the weights than the
 * engine, also adds a reorder; false: oneDNN does not support the reorder. */
static bool add_conv_operands(dnnl_op *p, const wb__conv_desc *d)
{
    static const int args[3][3] = {     /* arguments x, w, y of each kind */
        [WB__CONV_FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
        [WB__CONV_GRAD_INPUT] = { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
        [WB__CONV_GRAD_WEIGHT] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
    };
    const bool weights = d->kind == WB__CONV_GRAD_WEIGHT;
    wb__md_ref inner = dnnl_primitive_desc_query_md(
        p->pd, weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    wb__md_ref plain = wb__md_of(&p->mds[4]);
    const bool same = dnnl_memory_desc_equal(inner, plain);
    dnnl_add_operand(p, args[d->kind][0], 0, wb__md_of(&p->mds[0]));
    const int inside = dnnl_add_operand(p, args[d->kind][1], same ? 1 : NOT_A_BUFFER, inner);
    dnnl_add_operand(p, args[d->kind][2], 2, wb__md_of(&p->mds[2]));
    if (d->kind == WB__CONV_FORWARD && d->has_bias)
        dnnl_add_operand(p, DNNL_ARG_BIAS, 3, wb__md_of(&p->mds[3]));
    add_scratch(p);
    p->used_by_primitive = p->count;
    if (same) return true;
    const int outside = dnnl_add_operand(p, 0, 1, plain);
    p->reorder_first = !weights;
    p->from = p->reorder_first ? outside : inside;
    p->to = p->reorder_first ? inside : outside;
    return !dnnl_reorder_primitive_desc_create(&p->reorder_pd, p->operands[p->from].desc,
                                               dnnl_engine, p->operands[p->to].desc, dnnl_engine,
                                               NULL);
}

/* Whether oneDNN 2.6 computes a wrong gradient in bf16.  Comparisons of random shapes with f64
 * found: weights of groups with dilation; weights, with a stride, of a column that meets padding
 * only, which oneDNN does not write; the input of 1 by 1 windows with an odd number of channels. */
static bool computes_wrongly(const wb__conv_desc *d)
{
    if (d->kind == WB__CONV_GRAD_INPUT) return d->kh == 1 && d->kw == 1 && d->k / d->groups % 2;
    if (d->kind != WB__CONV_GRAD_WEIGHT) return false;
    if (d->groups > 1 && (d->dilation[0] > 1 || d->dilation[1] > 1)) return true;
    for (int64_t b = 0; b < d->kw && d->stride[1] > 1; b++) {
        const int64_t first = b * d->dilation[1] - d->pad[2];   /* column of x that b meets */
        int64_t at = first;
        if (at < 0) at += (-at + d->stride[1] - 1) / d->stride[1] * d->stride[1];
        if (at >= d->w || at > first + (d->ow - 1) * d->stride[1]) return true;
    }
    return false;
}

int wb__dnnl_conv_piece(const wb__conv_desc *d, bool wide_weights, wb__cpu_op **op,
                        const char **reason)
{
    dnnl_data_type_t type;
    *op = NULL;
    if (!is_enabled(reason)) return 0;
    if (!dnnl_type_of(d->dtype, &type)) *reason = "oneDNN takes f32 and bf16";
    else if (type == dnnl_bf16 && !has_bf16()) *reason = "this processor has no bf16 arithmetic";
    else if (!d->n || !d->c || !d->h || !d->w || !d->k || !d->kh || !d->kw || !d->oh || !d->ow)
        *reason = "an empty convolution";
    else if (type == dnnl_bf16 && computes_wrongly(d))
        *reason = "oneDNN 2.6 computes this gradient wrongly in bf16";
    else if (d->groups < 1 || d->c % d->groups || d->k % d->groups) return 0;
    else {
        dnnl_op *p = dnnl_begin();
        if (!p) return WB_ERROR_MEMORY;
        const char *refusal = NULL;
        if (!dnnl_describe_conv(p, d, type, wide_weights ? dnnl_f32 : type))
            refusal = "oneDNN has no convolution for this shape and layout";
        else if (!add_conv_operands(p, d)) refusal = "oneDNN has no reorder for these weights";
        return dnnl_finish(p, refusal, op, reason);
    }
    return 0;
}
