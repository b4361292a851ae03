/* Converts a step of the engine to a problem of cuBLASLt and its descriptors, without a device. */
#include "backend/cuda/lt.h"

#include <string.h>

/* A product with fewer multiplications is left to our own kernel, unless the step has an aux tensor
 * or sums (wb__step_is_special). */
static const int64_t cublas_min_work = 1 << 12;

/* ---- layouts of operands --------------------------------------------------------------------- */

/* An operand: a view whose batch dimensions are merged into one.  `rows` is the number of rows of a
 * matrix.  `row` and `step` are the elements from one row, and one matrix, to the next. */
typedef struct {
    const wb__view *view;
    int64_t rows, row, step;
    bool transposed;
} cublas_operand;

/* Turns the batches into rows of one product, if all batches use the same b, and the rows of a and
 * of c have a constant stride over all batches. */
static void batch_to_rows(cublas_operand v[3], int32_t *batch)
{
    cublas_operand *const sides[2] = {&v[0], &v[2]};
    if (*batch == 1 || v[1].step != 0) return;
    for (int i = 0; i < 2; i++) {
        const cublas_operand *o = sides[i];
        const int64_t length = o->view->dims[o->view->ndim - 1];
        const bool runs = o->rows == 1 ? o->step >= length : o->step == o->rows * o->row;
        if (o->transposed || !runs) return;
    }
    for (int i = 0; i < 2; i++) {
        cublas_operand *o = sides[i];
        if (o->rows == 1) o->row = o->step;
        o->rows *= *batch;
        o->step = 0;
    }
    *batch = 1;
}

/* Whether a view's rows are contiguous and equally far apart: *row elements. */
static bool rows_are_even(const wb__view *v, int64_t *row)
{
    int64_t rows = 1;
    if (v->dims[v->ndim - 1] > 1 && v->strides[v->ndim - 1] != 1) return false;
    *row = v->dims[v->ndim - 1];
    for (int i = v->ndim - 2; i >= 0; i--) {
        if (v->dims[i] == 1) continue;
        if (rows == 1) *row = v->strides[i];
        if (v->strides[i] != rows * *row) return false;
        rows *= v->dims[i];
    }
    return *row >= v->dims[v->ndim - 1];
}

static size_t cublas_set_operand(const wb__view *v, wb__lt_operand *to)
{
    static const uint8_t bytes[WB_DTYPE_COUNT] = {
        [WB_F32] = 4, [WB_F64] = 8, [WB_F16] = 2, [WB_BF16] = 2, [WB_U8] = 1};
    *to = (wb__lt_operand){v->buffer, (size_t)v->offset * bytes[v->dtype]};
    return to->at;
}

/* Sets *to to the buffer and offset of a view.  Returns the alignment of the view's address in
 * bytes, at most 16. */
static int32_t cublas_alignment(const wb__view *v, wb__lt_operand *to)
{
    const size_t at = cublas_set_operand(v, to) | (size_t)v->granule | 16;
    return (int32_t)(at & (~at + 1));
}

/* ---- data types and precision ---------------------------------------------------------------- */

static const char *cublas_numbers(const wb__step *step, wb__lt_problem *p)
{
    static const int type[WB_DTYPE_COUNT] = {
        [WB_F32] = CUDA_R_32F, [WB_F64] = CUDA_R_64F, [WB_F16] = CUDA_R_16F,
        [WB_BF16] = CUDA_R_16BF};
    static const int compute[] = {
        [WB__PRECISION_HIGHEST] = CUBLAS_COMPUTE_32F,
        [WB__PRECISION_HIGH] = CUBLAS_COMPUTE_32F_FAST_TF32,
        [WB__PRECISION_MEDIUM] = CUBLAS_COMPUTE_32F_FAST_16BF};
    const wb_dtype t = step->views[2].dtype;
    if (t != WB_F32 && t != WB_F64 && !wb__is_half(t)) return "cuBLASLt: not of floats";
    if (step->views[0].dtype != t || step->views[1].dtype != t) return "cuBLASLt: mixed dtypes";
    p->type = type[t];
    p->scale = t == WB_F64 ? CUDA_R_64F : CUDA_R_32F;
    p->compute = t == WB_F64 ? CUBLAS_COMPUTE_64F
               : t == WB_F32 ? compute[step->precision] : CUBLAS_COMPUTE_32F;
    /* Partial sums of f16 and bf16 stay in f32.  In a deterministic step no partial sums are added
     * in place, since their order would vary. */
    p->reductions = step->deterministic || wb__is_half(t)
                  ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
    return NULL;
}

/* ---- epilogues ------------------------------------------------------------------------------- */

enum { WITH_SUMS = 16 };  /* the bit that _BGRAD adds to the code of an epilogue */
_Static_assert((CUBLASLT_EPILOGUE_RELU_AUX | CUBLASLT_EPILOGUE_BIAS) ==
               CUBLASLT_EPILOGUE_RELU_AUX_BIAS &&
               (CUBLASLT_EPILOGUE_DGELU | WITH_SUMS) == CUBLASLT_EPILOGUE_DGELU_BGRAD &&
               (CUBLASLT_EPILOGUE_DRELU | WITH_SUMS) == CUBLASLT_EPILOGUE_DRELU_BGRAD, "bits");

static const char *add_vector(const wb__view *v, int64_t length, wb__lt_problem *p,
                              wb__lt_operands *operands)
{
    if (v->ndim != 1 || (v->strides[0] != 1 && v->dims[0] > 1) || v->dims[0] != length)
        return "cuBLASLt: strides of the bias";
    p->vector_align = cublas_alignment(v, &operands->vector);
    return NULL;
}

static const char *add_aux(const wb__view *v, bool bits, const wb__step *step, wb__lt_problem *p,
                           wb__lt_operands *operands)
{
    const wb__view *c = &step->views[2];
    int64_t row = 0;
    if (p->batch > 1) return "cuBLASLt: an epilogue in batches";
    if (v->dtype != (bits ? WB_U8 : c->dtype)) return "cuBLASLt: the epilogue's dtype";
    if (v->ndim < 2 || !rows_are_even(v, &row)) return "cuBLASLt: strides of the epilogue";
    p->aux_ld = bits ? row * 8 : row;
    if (p->aux_ld % (bits ? 128 : 8) || p->aux_ld < p->rows)
        return "cuBLASLt: rows of the epilogue";
    p->aux_align = cublas_alignment(v, &operands->aux);
    return p->aux_align < 16 ? "cuBLASLt: the epilogue's alignment" : NULL;
}

/* Adds to the problem the matrix that the step adds to its product: cuBLASLt's C, in D's layout. */
static const char *add_addend(const wb__step *step, wb__lt_problem *p, wb__lt_operands *operands)
{
    const wb__view *v = &step->aux, *c = &step->views[2];
    if (v->dtype != c->dtype) return "cuBLASLt: the addend's dtype";
    for (int i = 0; i < c->ndim; i++)
        if (v->dims[i] != c->dims[i] || (c->dims[i] > 1 && v->strides[i] != c->strides[i]))
            return "cuBLASLt: strides of the addend";
    if (step->sums_of) return "cuBLASLt: sums beside an addend";
    p->addend_align = cublas_alignment(v, &operands->addend);
    return NULL;
}

/* Adds the sums of a step (wb__sums) to the problem.  cuBLASLt computes sums of c only with the
 * epilogue of a gradient, and sums of a or b only without any epilogue. */
static const char *cublas_add_sums(const wb__step *step, bool c_transposed, bool back,
                                   wb__lt_problem *p, wb__lt_operands *operands)
{
    const bool of_c = step->sums_of == WB__SUMS_OF_C, of_a = step->sums_of == WB__SUMS_OF_A;
    const bool of_rows = of_a == c_transposed;  /* as many sums as rows of D */
    if (step->views[2].ndim > 2) return "cuBLASLt: sums of batches";
    if (step->sums.dtype != step->views[2].dtype) return "cuBLASLt: the dtype of the sums";
    if (of_c ? !back : p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return "cuBLASLt: such sums with such an epilogue";
    if (of_c) p->epilogue |= WITH_SUMS;
    else p->epilogue = of_rows ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    return add_vector(&step->sums, of_rows ? p->rows : p->cols, p, operands);
}

/* Returns cuBLASLt's code for the epilogue and aux of a step; 0: cuBLASLt has none. */
static int16_t epilogue_code(const wb__step *step)
{
    static const struct { wb__op op; wb__aux aux; int16_t epilogue_code; } table[] = {
        {WB__OP_NONE, WB__AUX_NONE, CUBLASLT_EPILOGUE_DEFAULT},
        {WB__OP_NONE, WB__AUX_ADDEND, CUBLASLT_EPILOGUE_DEFAULT},
        {WB__OP_relu, WB__AUX_NONE, CUBLASLT_EPILOGUE_RELU},
        {WB__OP_gelu, WB__AUX_NONE, CUBLASLT_EPILOGUE_GELU},
        {WB__OP_gelu, WB__AUX_OPERAND, CUBLASLT_EPILOGUE_GELU_AUX},
        {WB__OP_relu, WB__AUX_SIGNS, CUBLASLT_EPILOGUE_RELU_AUX},
        {WB__OP_gelu_slope, WB__AUX_FACTOR, CUBLASLT_EPILOGUE_DGELU},
        {WB__OP_relu, WB__AUX_MASK, CUBLASLT_EPILOGUE_DRELU}};
    for (size_t i = 0; i < WB__COUNT(table); i++)
        if (table[i].op == step->epilogue && table[i].aux == step->aux_kind)
            return table[i].epilogue_code;
    return 0;
}

static const char *cublas_epilogue(const wb__step *step, bool c_transposed, wb__lt_problem *p,
                                   wb__lt_operands *operands)
{
    const char *reason = NULL;
    const bool bias = step->n_views > 3, plain = step->epilogue == WB__OP_NONE;
    const bool bits = step->aux_kind == WB__AUX_SIGNS || step->aux_kind == WB__AUX_MASK;
    const bool back = step->aux_kind == WB__AUX_FACTOR || step->aux_kind == WB__AUX_MASK;
    operands->vector.buffer = operands->aux.buffer = operands->addend.buffer = -1;
    p->epilogue = epilogue_code(step);
    if (!p->epilogue) return "cuBLASLt: no such epilogue";
    if (c_transposed && (bias || !plain)) return "cuBLASLt: an epilogue of a transposed result";
    if (bias && (back || step->sums_of)) return "cuBLASLt: a bias before a gradient";
    if (bias) {
        if (step->views[3].dtype != step->views[2].dtype) return "cuBLASLt: the bias's dtype";
        p->epilogue = plain ? CUBLASLT_EPILOGUE_BIAS : p->epilogue | CUBLASLT_EPILOGUE_BIAS;
        reason = add_vector(&step->views[3], p->rows, p, operands);
    }
    if (!reason && step->sums_of) reason = cublas_add_sums(step, c_transposed, back, p, operands);
    if (reason || !step->aux_kind) return reason;
    if (step->aux_kind == WB__AUX_ADDEND) return add_addend(step, p, operands);
    return add_aux(&step->aux, bits, step, p, operands);
}

/* ---- the whole problem ----------------------------------------------------------------------- */

const char *wb__lt_problem_of(const wb__step *step, wb__lt_problem *p, wb__lt_operands *operands)
{
    cublas_operand v[3];
    const wb__view *a = &step->views[0], *c = &step->views[2];
    memset(p, 0, sizeof *p);
    memset(operands, 0, sizeof *operands);
    const char *reason = cublas_numbers(step, p);
    if (reason) return reason;
    for (int j = 0; j < 3; j++) {
        const wb__view *view = &step->views[j];
        v[j] = (cublas_operand){.view = view, .rows = view->dims[view->ndim - 2]};
        if (view->ndim != c->ndim || !wb__gpu_is_matrix(view, &v[j].transposed, &v[j].row))
            return "cuBLASLt: strides";
    }
    int64_t batch = 1, steps[3] = {0};
    if (!wb__gpu_merge_batch(step->views, steps, &batch)) return "cuBLASLt: strides of the batch";
    p->batch = (int32_t)batch;
    for (int j = 0; j < 3; j++) v[j].step = steps[j];
    batch_to_rows(v, &p->batch);
    p->k = a->dims[a->ndim - 1];
    const int64_t m = v[2].rows, n = c->dims[c->ndim - 1];
    const double work = (double)p->batch * (double)m * (double)n * (double)p->k;
    if (work == 0) return "cuBLASLt: nothing to multiply";
    if (work < (double)cublas_min_work && !wb__step_is_special(step)) return "cuBLASLt: too small";
    if (p->batch > 1 && v[2].step == 0) return "cuBLASLt: strides of the batch";

    /* D is cᵀ = bᵀ·aᵀ if c is row-major, and c = a·b if c is column-major. */
    const bool c_transposed = v[2].transposed;
    const int from[3] = {c_transposed ? 0 : 1, c_transposed ? 1 : 0, 2};
    p->rows = c_transposed ? m : n;
    p->cols = c_transposed ? n : m;
    for (int j = 0; j < 3; j++) {
        const cublas_operand *o = &v[from[j]];
        p->ld[j] = o->row;
        p->step[j] = o->step;
        p->align[j] = cublas_alignment(o->view, &operands->operand[j]);
        if (j < 2) p->op[j] = o->transposed != c_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    }
    return cublas_epilogue(step, c_transposed, p, operands);
}

const char *wb__lt_name(const wb__lt_problem *p)
{
    switch (p->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return p->addend_align ? "cuBLASLt bias addend" : "cuBLASLt bias";
    case CUBLASLT_EPILOGUE_RELU: return "cuBLASLt relu";
    case CUBLASLT_EPILOGUE_RELU_BIAS: return "cuBLASLt bias relu";
    case CUBLASLT_EPILOGUE_GELU: case CUBLASLT_EPILOGUE_GELU_AUX: return "cuBLASLt gelu";
    case CUBLASLT_EPILOGUE_GELU_BIAS: case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return "cuBLASLt bias gelu";
    case CUBLASLT_EPILOGUE_RELU_AUX: return "cuBLASLt relu";
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS: return "cuBLASLt bias relu";
    case CUBLASLT_EPILOGUE_DRELU: return "cuBLASLt relu-back";
    case CUBLASLT_EPILOGUE_DRELU_BGRAD: return "cuBLASLt relu-back sums";
    case CUBLASLT_EPILOGUE_DGELU: return "cuBLASLt gelu-back";
    case CUBLASLT_EPILOGUE_BGRADA: case CUBLASLT_EPILOGUE_BGRADB: return "cuBLASLt sums";
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: return "cuBLASLt gelu-back sums";
    default: return p->addend_align ? "cuBLASLt addend" : "cuBLASLt";
    }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* The first status that is not 0, and the call that returned it. */
typedef struct { int status; const char *call; } cublas_outcome;

static bool cublas_succeeded(cublas_outcome *o, int status, const char *call)
{
    if (status && !o->status) *o = (cublas_outcome){status, call};
    return !o->status;
}

static void cublas_layout(const wb__lt_functions *f, const wb__lt_problem *p, int j,
                          cublasLtMatrixLayout_t *to, cublas_outcome *o)
{
    const uint64_t rows = (uint64_t)(j == 1 ? p->k : p->rows);
    const uint64_t cols = (uint64_t)(j == 0 ? p->k : p->cols);
    const bool flip = j < 2 && p->op[j] == CUBLAS_OP_T;
    if (!cublas_succeeded(
            o, f->MatrixLayoutCreate(to, p->type, flip ? cols : rows, flip ? rows : cols, p->ld[j]),
            "cublasLtMatrixLayoutCreate") ||
        p->batch == 1)
        return;
    cublas_succeeded(o,
                     f->MatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &p->batch,
                                                 sizeof p->batch),
                     "cublasLtMatrixLayoutSetAttribute");
    cublas_succeeded(o,
                     f->MatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &p->step[j], sizeof p->step[j]),
                     "cublasLtMatrixLayoutSetAttribute");
}

int wb__lt_describe(const wb__lt_functions *f, const wb__lt_problem *p, wb__lt_descriptors *d,
                    const char **call)
{
    cublas_outcome o = {0, NULL};
    const uint64_t base = 1 << 16, vector = base + (uint64_t)p->vector_align;
    const uint64_t aux = base + (uint64_t)p->aux_align;
    memset(d, 0, sizeof *d);
#define SET(attribute, value)                                                                      \
    cublas_succeeded(&o, f->MatmulDescSetAttribute(d->desc, attribute, &(value), sizeof(value)),   \
                     "cublasLtMatmulDescSetAttribute")
    if (cublas_succeeded(&o, f->MatmulDescCreate(&d->desc, p->compute, p->scale),
                         "cublasLtMatmulDescCreate")) {
        SET(CUBLASLT_MATMUL_DESC_TRANSA, p->op[0]);
        SET(CUBLASLT_MATMUL_DESC_TRANSB, p->op[1]);
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE, p->epilogue);
        if (p->vector_align) SET(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
        if (p->aux_align) SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
        if (p->aux_align) SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p->aux_ld);
    }
#undef SET
    for (int j = 0; j < 3 && !o.status; j++) cublas_layout(f, p, j, &d->layout[j], &o);
    if (o.status) wb__lt_undescribe(f, d);
    *call = o.call;
    return o.status;
}

void wb__lt_undescribe(const wb__lt_functions *f, wb__lt_descriptors *d)
{
    for (int j = 0; j < 3; j++)
        if (d->layout[j]) f->MatrixLayoutDestroy(d->layout[j]);
    if (d->desc) f->MatmulDescDestroy(d->desc);
    memset(d, 0, sizeof *d);
}

int wb__lt_preference(const wb__lt_functions *f, const wb__lt_problem *p,
                      cublasLtMatmulPreference_t *preference, const char **call)
{
    cublas_outcome o = {0, NULL};
    const size_t most = WB__LT_WORKSPACE;
    const uint32_t mask = (uint32_t)p->reductions;
    static const int which[] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    *preference = NULL;
#define SET(attribute, value)                                                                      \
    cublas_succeeded(&o,                                                                           \
                     f->MatmulPreferenceSetAttribute(*preference, attribute, &(value),             \
                                                     sizeof(value)),                               \
                     "cublasLtMatmulPreferenceSetAttribute")
    if (cublas_succeeded(&o, f->MatmulPreferenceCreate(preference),
                         "cublasLtMatmulPreferenceCreate")) {
        SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
        SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, mask);
        for (int i = 0; i < 4; i++) {
            const bool addend = i == 2 && p->addend_align;
            const uint32_t bytes = (uint32_t)(addend ? p->addend_align : p->align[WB__MIN(i, 2)]);
            SET(which[i], bytes);
        }
        if (o.status) f->MatmulPreferenceDestroy(*preference);
    }
#undef SET
    if (o.status) *preference = NULL;
    *call = o.call;
    return o.status;
}
