/* Large matrix products by MPSMatrixMultiplication.  The library is opened for the first product.
 * The kernel object of a problem, and the descriptors of its matrices, are made once and kept; a
 * launch wraps the operands' memory in matrices.  The library adds no bias and no epilogue; a
 * kernel of ours applies these.
 *
 *   WEBER_METAL_MPS   0: MPS is not used; 1: also for small products */
#include "backend/metal/mps.h"

#include "base/environment.h"

#include <stdio.h>
#include <string.h>

wb__mps_selectors wb__mps_selector;

/* ---- what both libraries share --------------------------------------------------------------- */

bool wb__mps_always(const char *variable) { return wb__environment_switch(variable, false); }

uint32_t wb__mps_type(wb_dtype t)
{
    return t == WB_F32 ? MPSDataTypeFloat32 : t == WB_F16 ? MPSDataTypeFloat16 : 0;
}

static void register_selectors(void)
{
#define REGISTER(result, n, name, text, ...) wb__mps_selector.name = wb__objc.registerName(text);
    WB__MPS_METHODS(REGISTER)
#undef REGISTER
}

bool wb__mps_classes(const char *const *names, size_t n, char *reason, size_t capacity)
{
    static wb__once once = WB__ONCE_INIT;
    wb__once_run(&once, register_selectors);
    for (size_t i = 0; i < n; i++)
        if (!wb__mtl_class(names[i])) {
            snprintf(reason, capacity, "it has no class %s: it is too old", names[i]);
            return false;
        }
    return true;
}

const char *wb__mps_status_name(int status) { return wb__mtl_error_name(status); }
bool wb__mps_is_memory_error(int status) { return status == WB__MTL_NO_MEMORY; }

wb__mps_place wb__mps_place_of(const wb__gpu_addresses *a, int buffer, size_t at)
{
    const wb__gpu_memory *m = a->buffers[buffer];
    return (wb__mps_place){wb__mtl_object(m->at), at + (a->offsets ? a->offsets[buffer] : 0)};
}

/* ---- the library ----------------------------------------------------------------------------- */

typedef struct { BOOL (*supports)(id device); } mps_functions;
static mps_functions mps;
static const wb__gpu_function mps_names[] = {
    {"MPSSupportsMTLDevice", offsetof(mps_functions, supports)}};

/* A product without its memory: the problem (vendor.h) of its entry.  It is initialised with zeros,
 * since problems are compared byte by byte.  rows, columns: the sizes of each matrix in memory.
 * apart: the bytes from one row, and from one matrix, to the next. */
typedef struct {
    int64_t m, n, k, batch, rows[3], columns[3], apart[3][2];
    int32_t transposed[2];
    uint32_t type;                      /* MPSDataType of all operands */
} mps_problem;

typedef struct {
    wb__gpu_entry base;
    mps_problem problem;
    id kernel, matrix[3];       /* the MPSMatrixMultiplication; descriptors of A, B and C */
} mps_entry;
_Static_assert(offsetof(mps_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

typedef struct {
    wb__gpu_routine base;
    mps_entry *entry;
    int buffer[3];                      /* indices, in the plan, of the buffers of A, B and C */
    size_t at[3];                       /* the operands' offsets in their buffers, in bytes */
} mps_routine;

static bool mps_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    static const char *const classes[] = {"MPSMatrixMultiplication", "MPSMatrix",
                                          "MPSMatrixDescriptor"};
    (void)table;
    if (!missing) return wb__mps_classes(classes, WB__COUNT(classes), reason, capacity);
    snprintf(reason, capacity, "MetalPerformanceShaders has no %s", missing);
    return false;
}

/* Registers the selectors in place of creating a handle, of which MPS has none. */
static int mps_create_handle(void **handle)
{
    *handle = wb__mtl_class("MPSMatrixMultiplication");
    return 0;
}


static void mps_drop_entry(wb__gpu_entry *base)
{
    mps_entry *e = (mps_entry *)base;
    for (int j = 0; j < 3; j++)
        if (e->matrix[j]) mtl_release(e->matrix[j]);
    if (e->kernel) mtl_release(e->kernel);
}

static int mps_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                          wb__gpu_entry *base)
{
    mps_entry *e = (mps_entry *)base;
    const mps_problem *p = &e->problem;
    bool all = true;
    for (int j = 0; j < 3; j++) {
        e->matrix[j] = MAKE(matrices, wb__mtl_class("MPSMatrixDescriptor"), (NSUInteger)p->rows[j],
                            (NSUInteger)p->columns[j], (NSUInteger)p->batch,
                            (NSUInteger)p->apart[j][0], (NSUInteger)p->apart[j][1], p->type);
        if (e->matrix[j]) mtl_retain(e->matrix[j]);
        all &= e->matrix[j] != NULL;
    }
    if (all)
        e->kernel = MAKE(newProduct, mtl_alloc(handle), wb__mtl_of(d)->device,
                         (BOOL)p->transposed[0], (BOOL)p->transposed[1], (NSUInteger)p->m,
                         (NSUInteger)p->n, (NSUInteger)p->k, 1, 0);
    base->found = e->kernel != NULL;
    if (base->found) return 0;
    wb__gpu_vendor_log_failure(d, l, WB__MTL_NO_OBJECT, wb__gpu_call);
    mps_drop_entry(base);
    e->matrix[0] = e->matrix[1] = e->matrix[2] = NULL;
    return 0;
}

static wb__gpu_vendor mps_library = {
    .name = "MPS", .variable = "WEBER_METAL_MPS",
    .advice = "Metal Performance Shaders is part of macOS, and is in /System/Library/Frameworks",
    .search = &(const wb__gpu_search){
        .tag = "metal", .variable = "WEBER_METAL_PATH",
        .folders = {"/System/Library/Frameworks/MetalPerformanceShaders.framework"}},
    .files = (const wb__gpu_file[]){{"MetalPerformanceShaders", 0}, {NULL, 0}},
    .functions = mps_names, .n_functions = WB__COUNT(mps_names), .table = &mps,
        .suits = mps_is_usable,
    .creating = "MPS", .create = mps_create_handle, .status_name = wb__mps_status_name,
    .is_memory = wb__mps_is_memory_error, .entry_bytes = sizeof(mps_entry),
    .problem_bytes = sizeof(mps_problem), .find = mps_fill_entry, .drop = mps_drop_entry,
    .reasons = {"MPS is not used", "MPS: it does not work here",
                "MPS: it does not take this product", "MPS: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__mtl_mps_works(void) { return wb__gpu_vendor_works(&mps_library); }

/* ---- preparing ------------------------------------------------------------------------------- */

/* Sets operand j of a product.  Returns NULL or a short reason. */
static const char *mps_operand_of(const wb__step *step, int j, mps_problem *p, mps_routine *r)
{
    const wb__view *v = &step->views[j];
    const int64_t *dims = v->dims + v->ndim - 2, size = (int64_t)wb__dtype_size(v->dtype);
    bool transposed = false;
    int64_t row = 0;
    if (v->ndim != step->views[2].ndim || !wb__gpu_is_matrix(v, &transposed, &row))
        return "MPS: strides";
    if (j == 2 && transposed) return "MPS: the result is transposed";
    if (j < 2) p->transposed[j] = transposed;
    p->rows[j] = dims[transposed];
    p->columns[j] = dims[!transposed];
    p->apart[j][0] = row * size;
    p->apart[j][1] = row * size * p->rows[j];
    r->buffer[j] = v->buffer;
    r->at[j] = (size_t)v->offset * (size_t)size;
    return NULL;
}

/* Sets the batch of a product.  Returns NULL, or a short reason: MPS demands that the matrices of a
 * batch be whole rows apart and do not overlap. */
static const char *mps_batch_of(const wb__step *step, mps_problem *p)
{
    const int64_t size = (int64_t)wb__dtype_size(step->views[2].dtype);
    int64_t steps[3];
    if (!wb__gpu_merge_batch(step->views, steps, &p->batch) || !p->batch)
        return "MPS: strides of the batch";
    for (int j = 0; j < 3 && p->batch > 1; j++) {
        const int64_t apart = steps[j] * size;
        if (apart < p->apart[j][1] || apart % p->apart[j][0]) return "MPS: strides of the batch";
        p->apart[j][1] = apart;
    }
    return NULL;
}

/* Whether MPS may fail for the size of a product.  It counts bytes with 32 bits and a sign, and
 * reaches up to 2 k rows beyond the last matrix of C:
 * larger results contain NaN (JuliaGPU/Metal.jl, issue 381).  Products of Apple's libraries with an
 * inner size of about 2^15 or more have read memory beyond the operands (pytorch/pytorch, issue
 * 195163, for MPSGraph). */
enum { MAX_INNER = 32766 };
static bool mps_is_too_large(const mps_problem *p)
{
    const double most = (double)(INT32_MAX / 16 * 15);      /* the limit is known roughly */
    const double last = ((double)p->batch - 1) * (double)p->apart[2][1];
    bool large = last + ((double)p->m + 2 * (double)p->k) * (double)p->apart[2][0] > most;
    for (int j = 0; j < 3; j++) large |= (double)p->batch * (double)p->apart[j][1] > most;
    return large || p->k > MAX_INNER;
}

/* Sets *p and r's operands from a step.  Returns NULL, or a short reason not to use MPS. */
static const char *mps_problem_of(const wb__gpu_device *d, const wb__step *step, mps_problem *p,
                                  mps_routine *r)
{
    const wb__view *a = &step->views[0], *c = &step->views[2];
    const char *reason = NULL;
    memset(p, 0, sizeof *p);
    if (wb__step_is_special(step)) return "MPS: sums or operands beside the product";
    if (step->n_views > 3 || step->epilogue) return "MPS: bias or epilogue";
    p->type = wb__mps_type(c->dtype);
    if (!p->type || a->dtype != c->dtype || step->views[1].dtype != c->dtype) return "MPS: dtype";
    if (wb__mps_maybe_f16(step)) return "MPS: f16, at the highest precision";
    /* Apple does not promise the same bits at every run */
    if (step->deterministic) return "MPS: not known to be deterministic";
    p->m = c->dims[c->ndim - 2], p->n = c->dims[c->ndim - 1], p->k = a->dims[a->ndim - 1];
    if (!p->m || !p->n || !p->k) return "MPS: nothing to multiply";
    for (int j = 0; j < 3 && !reason; j++) reason = mps_operand_of(step, j, p, r);
    if (!reason) reason = mps_batch_of(step, p);
    if (reason) return reason;
    const double work = (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
    if (work < WB__MPS_MIN_WORK && !wb__mps_always("WEBER_METAL_MPS")) return "MPS: too small";
    if (mps_is_too_large(p)) return "MPS: too large";
    return mps.supports(wb__mtl_of((wb__gpu_device *)d)->device) ? NULL : "MPS: not for this GPU";
}

static int mps_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                       const char **reason)
{
    mps_problem p;
    mps_routine made = {.base = {.library = &wb__mtl_mps, .impl = "MPS"}};
    int error = WB_ERROR_UNSUPPORTED;
    *reason = mps_problem_of(d, step, &p, &made);
    if (*reason) return error;
    made.entry = (mps_entry *)wb__gpu_entry_of(d, &mps_library, &p, reason, &error);
    if (!made.entry) return error;
    return wb__gpu_keep_routine(&made.base, sizeof made, &made.entry->base, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Makes the matrices of the operands.  The caller releases all that are not NULL. */
static bool make_matrices(const mps_routine *r, const wb__gpu_addresses *a, id matrix[3])
{
    for (int j = 0; j < 3; j++) {
        const wb__mps_place at = wb__mps_place_of(a, r->buffer[j], r->at[j]);
        matrix[j] = MAKE(newWithBuffer, mtl_alloc(wb__mtl_class("MPSMatrix")), at.buffer, at.at,
                         r->entry->matrix[j]);
        if (!matrix[j]) return false;
    }
    return true;
}

static int mps_encode(wb__gpu_device *d, const mps_entry *e, wb__gpu_queue q, const id matrix[3])
{
    void **event = q == WB__GPU_COMPUTE ? wb__gpu_next_event(d) : NULL;
    wb__mtl_encoding to;
    const int code = wb__mtl_encode_begin(d, q, event, &to);
    if (code)
        return wb__gpu_fail(d->driver, d, code, "%lld products of %lld x %lld x %lld by MPS",
                            (long long)e->problem.batch, (long long)e->problem.m,
                            (long long)e->problem.n, (long long)e->problem.k);
    mtl_encodeProduct(e->kernel, to.buffer, matrix[0], matrix[1], matrix[2]);
    wb__mtl_encode_end(d, &to, to.buffer, true);
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(d, event);
    return 0;
}

static int mps_launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                      const wb__gpu_addresses *addresses)
{
    mps_routine *r = (mps_routine *)base;
    id matrix[3] = {NULL, NULL, NULL};
    const bool made = make_matrices(r, addresses, matrix);
    const int status = made ? mps_encode(d, r->entry, q, matrix)
                            : wb__gpu_refuse_entry(d, &mps_library, &r->entry->base,
                                                   WB__MTL_NO_OBJECT, wb__gpu_call);
    for (int j = 0; j < 3; j++)
        if (matrix[j]) mtl_release(matrix[j]);
    return status;
}

const wb__gpu_hook wb__mtl_mps = {
    .kinds = 1u << WB__STEP_MATMUL, .bare = true, .vendor = &mps_library, .prepare = mps_prepare,
    .launch = mps_launch,
};
