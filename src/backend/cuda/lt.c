/* Matrix products by cuBLASLt.  The library is opened for the first product.  Its heuristics choose
 * an algorithm for a problem at the first use, or list some that are timed, if the problem takes
 * long; the algorithm is cached.
 *
 *   WEBER_CUDA_CUBLASLT   0: cuBLASLt is not used */
#include "backend/cuda/cuda.h"
#include "backend/cuda/lt.h"

#include <stdio.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__lt_functions lt;

/* A cached algorithm for a problem. */
typedef struct {
    wb__gpu_entry base;
    wb__lt_problem problem;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool timed;                         /* the choice by timing is made */
} entry;
_Static_assert(offsetof(entry, problem) == sizeof(wb__gpu_entry), "the problem is behind the head");

typedef struct {
    wb__gpu_routine base;
    entry *entry;
    cublasLtHandle_t handle;
    wb__lt_operands operands;
    wb__lt_descriptors d;
    uint64_t vector, aux;               /* the addresses that were last set in `d` */
} routine;

static bool suits(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__lt_functions *f = table;
    if (!missing && f->GetVersion() >= 120000) return true;
    if (missing) snprintf(reason, capacity, "libcublasLt has no %s: too old or too new", missing);
    else
        snprintf(reason, capacity, "version %zu is too old: install cuBLAS 12 or newer",
                 f->GetVersion());
    return false;
}

static int create(void **handle)
{
    cublasLtHandle_t made = NULL;
    const int status = (int)lt.Create(&made);
    *handle = made;
    return status;
}

static void destroy_handle(void *handle) { lt.Destroy(handle); }
static const char *status_name(int status) { return lt.GetStatusName((wb__lt_enum)status); }
static bool is_memory(int status) { return status == CUBLAS_STATUS_ALLOC_FAILED; }

/* Asks the heuristics for at most `most` algorithms of a problem with these descriptors.  Returns
 * their number, which are those that work and whose workspace is not too large; 0 and the status of
 * the call that failed. */
static int algorithms(void *handle, const wb__lt_problem *p, const wb__lt_descriptors *of,
                      cublasLtMatmulHeuristicResult_t *list, int most, int *status,
                      const char **call)
{
    cublasLtMatmulPreference_t preference;
    int n = 0, good = 0;
    memset(list, 0, (size_t)most * sizeof *list);
    if ((*status = wb__lt_preference(&lt, p, &preference, call))) return 0;
    *call = "cublasLtMatmulAlgoGetHeuristic";
    *status = (int)lt.MatmulAlgoGetHeuristic(handle, of->desc, of->layout[0], of->layout[1],
                                             of->layout[2], of->layout[2], preference, most, list,
                                             &n);
    lt.MatmulPreferenceDestroy(preference);
    for (int i = 0; i < n && !*status; i++)
        if (!list[i].state && list[i].workspaceSize <= WB__LT_WORKSPACE) list[good++] = list[i];
    return good;
}

static int find(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle, wb__gpu_entry *base)
{
    entry *e = (entry *)base;
    cublasLtMatmulHeuristicResult_t result;
    wb__lt_descriptors of;
    const char *call = NULL;
    int status = wb__lt_describe(&lt, &e->problem, &of, &call);
    if (!status)
        base->found = algorithms(handle, &e->problem, &of, &result, 1, &status, &call) > 0;
    wb__lt_undescribe(&lt, &of);
    if (status) wb__gpu_vendor_note(d, l, status, call);
    if (!base->found) return 0;
    e->algo = result.algo;
    e->workspace = result.workspaceSize;
    return 0;
}

#define NAME(type, name, parameters) {"cublasLt" #name, offsetof(wb__lt_functions, name)},
static const wb__gpu_function functions[] = {WB__LT_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(WB__COUNT(functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

static wb__gpu_vendor library = {
    .name = "cuBLASLt", .variable = "WEBER_CUDA_CUBLASLT",
    .advice = "install cuBLAS 12 or newer, which CUDA's toolkit has, or name its folder by"
              " WEBER_CUDA_PATH",
    .search = &wb__cu_search,
    .files = (const wb__gpu_file[]){{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12},
                                    {"libcublasLt.so", 0}, {NULL, 0}},
    .functions = functions, .n_functions = WB__COUNT(functions), .table = &lt, .suits = suits,
    .creating = "cublasLtCreate", .create = create, .destroy = destroy_handle,
    .status_name = status_name, .is_memory = is_memory, .entry_bytes = sizeof(entry),
    .problem_bytes = sizeof(wb__lt_problem), .find = find,
    .reasons = {"cuBLASLt is not used", "cuBLASLt: it does not work here",
                "cuBLASLt: it has no algorithm", "cuBLASLt: it refused this one"},
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

bool wb__cu_lt_works(void) { return wb__gpu_vendor_works(&library); }

int wb__cu_lt_major(void)
{
    if (wb__cu_lt_works()) return (int)(lt.GetVersion() / 10000);
    wb_clear_error();
    return 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Sets an address in the descriptor, unless it is the address of the previous launch. */
static int point(routine *r, int attribute, wb__lt_operand operand, const uint64_t *buffers,
                 uint64_t *last)
{
    if (operand.buffer < 0) return 0;
    const uint64_t address = (uint64_t)buffers[operand.buffer] + operand.at;
    if (address == *last) return 0;
    *last = address;
    return lt.MatmulDescSetAttribute(r->d.desc, attribute, &address, sizeof address);
}

static int launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                  const wb__gpu_addresses *addresses)
{
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const uint64_t *buffers = addresses->address;
    routine *r = (routine *)base;
    const bool f64 = r->entry->problem.type == CUDA_R_64F;
    const char *call = "cublasLtMatmulDescSetAttribute";
    const bool adds = r->entry->problem.addend_align != 0;
    const wb__lt_operand *const operands[] = {
        &r->operands.operand[0], &r->operands.operand[1], &r->operands.operand[2],
        adds ? &r->operands.addend : &r->operands.operand[2]};
    void *at[WB__COUNT(operands)];
    for (size_t j = 0; j < WB__COUNT(operands); j++)
        at[j] = (void *)(uintptr_t)(buffers[operands[j]->buffer] + operands[j]->at);
    int status =
        point(r, CUBLASLT_MATMUL_DESC_BIAS_POINTER, r->operands.vector, buffers, &r->vector);
    if (!status)
        status = point(r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, r->operands.aux, buffers,
                       &r->aux);
    if (!status) {
        const uint64_t workspace = addresses->workspace + addresses->workspace_at;
        void *lent = base->workspace ? (void *)(uintptr_t)workspace : NULL;
        call = "cublasLtMatmul";
        const void *alpha = f64 ? (const void *)&one_f64 : &one;
        const void *beta = adds ? alpha : f64 ? (const void *)&zero_f64 : &zero;
        status = (int)lt.Matmul(r->handle, r->d.desc, alpha, at[0], r->d.layout[0], at[1],
                                r->d.layout[1], beta, at[3], r->d.layout[2], at[2],
                                r->d.layout[2], &r->entry->algo, lent, base->workspace,
                                wb__cu_of(d)->stream[q]);
    }
    if (status) return wb__gpu_entry_refused(d, &library, &r->entry->base, status, call);
    if (q == WB__GPU_COMPUTE) wb__gpu_issued(d, NULL);
    return 0;
}

static void destroy(wb__gpu_device *d, wb__gpu_routine *base)
{
    routine *r = (routine *)base;
    (void)d;
    wb__lt_undescribe(&lt, &r->d);
    r->entry->base.holders--;
    wb__free(r);
}

/* ---- timing ---------------------------------------------------------------------------------- */

enum { CANDIDATES = 8 };

/* Scratch operands of a problem: A, B, the addend, D, the vector, aux, the workspace. */
enum { SCRATCH = 7, ADDEND = 2, RESULT, VECTOR, AUX, LENT };
typedef struct {
    wb__gpu_device *d;
    const wb__lt_problem *p;
    void *handle;
    wb__lt_descriptors of;
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    size_t bytes[SCRATCH];
    uint64_t at[SCRATCH];
} trial;

static size_t size_of(int type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

/* Sets the sizes of the scratch operands.  Returns their sum without the workspace, in bytes. */
static double measure(const wb__lt_problem *p, size_t bytes[SCRATCH])
{
    const int64_t cols[3] = {p->op[0] == CUBLAS_OP_T ? p->rows : p->k,
                             p->op[1] == CUBLAS_OP_T ? p->k : p->cols, p->cols};
    const int64_t each = (int64_t)size_of(p->type), places[3] = {0, 1, RESULT};
    double sum = 0;
    memset(bytes, 0, SCRATCH * sizeof *bytes);
    for (int j = 0; j < 3; j++)
        bytes[places[j]] = (size_t)((cols[j] * p->ld[j] + (p->batch - 1) * p->step[j]) * each);
    if (p->addend_align) bytes[ADDEND] = bytes[RESULT];
    if (p->vector_align) bytes[VECTOR] = (size_t)(WB__MAX(p->rows, p->cols) * each);
    if (p->aux_align) bytes[AUX] = (size_t)(p->aux_ld * p->cols * each);
    for (int i = 0; i < SCRATCH; i++) sum += (double)bytes[i];
    return sum;
}

/* FLOP a second of one processor, roughly. */
static double rate_of(const wb__lt_problem *p)
{
    return p->type == CUDA_R_64F ? 2e11 : p->type != CUDA_R_32F ? 4e12
         : p->compute == CUBLAS_COMPUTE_32F ? 4e11 : 2e12;
}

static bool is_worth_timing(const wb__gpu_device *d, const wb__lt_problem *p)
{
    size_t bytes[SCRATCH];
    const double flop = 2.0 * (double)p->rows * (double)p->cols * (double)p->k * p->batch;
    return wb__gpu_worth_timing(d, flop, rate_of(p), measure(p, bytes));
}

static uint64_t mark_of(void *ctx, int i)
{
    const trial *t = ctx;
    uint64_t mark = 14695981039346656037u;
    const unsigned char *p = (const unsigned char *)&t->list[i].algo;
    for (size_t k = 0; k < sizeof t->list[i].algo; k++) mark = (mark ^ p[k]) * 1099511628211u;
    return mark;
}

static void *pointer(uint64_t at) { return (void *)(uintptr_t)at; }

static int try_one(void *ctx, int i)
{
    static const double one = 1, zero = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const trial *t = ctx;
    const bool f64 = t->p->type == CUDA_R_64F, adds = t->p->addend_align != 0;
    const void *alpha = f64 ? (const void *)&one : &one_f32;
    const void *none = f64 ? (const void *)&zero : &zero_f32;
    const cublasLtMatmulHeuristicResult_t *r = &t->list[i];
    return (int)lt.Matmul(t->handle, t->of.desc, alpha, pointer(t->at[0]), t->of.layout[0],
                          pointer(t->at[1]), t->of.layout[1], adds ? alpha : none,
                          pointer(t->at[adds ? ADDEND : RESULT]), t->of.layout[2],
                          pointer(t->at[RESULT]), t->of.layout[2], &r->algo,
                          r->workspaceSize ? pointer(t->at[LENT]) : NULL, r->workspaceSize,
                          wb__cu_of(t->d)->stream[WB__GPU_COMPUTE]);
}

/* Chooses among n algorithms on scratch memory; 0 if there is none. */
static int try_all(trial *t, int n)
{
    struct { size_t version; char device[sizeof t->d->name]; wb__lt_problem problem; } key;
    uint64_t scratch = 0;
    size_t all = 0;
    memset(&key, 0, sizeof key);
    key.version = lt.GetVersion();
    memcpy(key.device, t->d->name, sizeof key.device);
    key.problem = *t->p;
    measure(t->p, t->bytes);
    for (int i = 0; i < n; i++) t->bytes[LENT] = WB__MAX(t->bytes[LENT], t->list[i].workspaceSize);
    for (int i = 0; i < SCRATCH; i++) {
        t->at[i] = all;
        all += (t->bytes[i] + 511) / 256 * 256;
    }
    const wb__gpu_cache *c = &t->d->cache;
    if (c->used + c->cached + (int64_t)all > c->limit ||
        t->d->driver->allocate(t->d, all, &scratch))
        return 0;
    for (int i = 0; i < SCRATCH; i++) t->at[i] += scratch;
    int status = 0, best = 0;
    if (t->p->vector_align)
        status = (int)lt.MatmulDescSetAttribute(t->of.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &t->at[VECTOR], sizeof t->at[VECTOR]);
    if (!status && t->p->aux_align)
        status = (int)lt.MatmulDescSetAttribute(t->of.desc,
                                                CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &t->at[AUX], sizeof t->at[AUX]);
    const wb__gpu_candidates all_of = {
        .library = "cuBLASLt", .key = &key, .key_bytes = sizeof key, .n = n, .mark = mark_of,
        .run = try_one, .ctx = t};
    if (!status) best = wb__gpu_fastest(t->d, &all_of);
    t->d->driver->release(t->d, scratch);
    return best;
}

/* Chooses the algorithm of an entry by timing, before any step uses it.  If that fails, the entry
 * keeps the heuristics' first. */
static void choose(wb__gpu_device *d, entry *e)
{
    const char *call = NULL;
    int status = 0;
    if (e->timed || !e->problem.timed) return;
    e->timed = true;
    trial *t = wb__alloc_zero(1, sizeof *t);
    if (!t) {
        wb_clear_error();
        return;
    }
    t->d = d;
    t->p = &e->problem;
    t->handle = wb__gpu_vendor_handle(d, &library);
    if (!wb__lt_describe(&lt, t->p, &t->of, &call)) {
        const int n = algorithms(t->handle, t->p, &t->of, t->list, CANDIDATES, &status, &call);
        const int best = n > 1 ? try_all(t, n) : 0;
        if (best) {
            e->algo = t->list[best].algo;
            e->workspace = t->list[best].workspaceSize;
        }
    }
    wb__lt_undescribe(&lt, &t->of);
    wb__free(t);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns the cache entry of a step's problem, which is created if it is new, and sets *operands.
 * NULL: *error is the error code.  If cuBLASLt cannot execute the step, *error is
 * WB_ERROR_UNSUPPORTED, and *reason is a short reason. */
static entry *entry_of(wb__gpu_device *d, const wb__step *step, wb__lt_operands *operands,
                       const char **reason, int *error)
{
    wb__lt_problem p;
    *error = WB_ERROR_UNSUPPORTED;
    *reason = wb__lt_problem_of(step, &p, operands);
    p.timed = !*reason && !step->deterministic && is_worth_timing(d, &p);
    return *reason ? NULL : (entry *)wb__gpu_entry_of(d, &library, &p, reason, error);
}

static int prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                   const char **reason)
{
    wb__lt_operands operands;
    const char *call = NULL;
    int error = 0;
    entry *e = entry_of(d, step, &operands, reason, &error);
    if (!e) return error;
    choose(d, e);
    routine *made = wb__alloc_zero(1, sizeof *made);
    if (!made) return WB_ERROR_MEMORY;
    *made = (routine){.base = {.library = &wb__cu_lt, .impl = wb__lt_name(&e->problem),
                               .workspace = e->workspace},
                      .entry = e, .handle = wb__gpu_vendor_handle(d, &library),
                      .operands = operands};
    const int status = wb__lt_describe(&lt, &e->problem, &made->d, &call);
    if (status) {
        wb__gpu_vendor_note(d, &library, status, call);
        wb__free(made);
        *reason = library.reasons[WB__GPU_NOTHING];
        return WB_ERROR_UNSUPPORTED;
    }
    e->base.holders++;
    *r = &made->base;
    return 0;
}

static bool supports(wb__gpu_device *d, const wb__step *step)
{
    wb__lt_operands operands;
    const char *reason = NULL;
    int error = 0;
    const entry *e = entry_of(d, step, &operands, &reason, &error);
    if (!e && !reason) wb_clear_error();
    return e;
}

const wb__gpu_hook wb__cu_lt = {
    .kinds = 1u << WB__STEP_MATMUL, .vendor = &library, .supports = supports, .prepare = prepare,
    .launch = launch, .destroy = destroy,
};
