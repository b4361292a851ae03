/* Matrix products by cuBLASLt.  The library is opened for the first product.  Its heuristics choose
 * an algorithm for a problem at the first use, or list some algorithms, which are timed, if the
 * problem takes long; the chosen algorithm is cached.
 *
 *   WEBER_CUDA_CUBLASLT   0: cuBLASLt is not used */
#include "backend/cuda/cuda.h"
#include "backend/cuda/lt.h"

#include <stdio.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__lt_functions cublas_lt;

/* The cached algorithms of a problem: one, or the algorithms of which timing will choose one. */
typedef struct {
    wb__gpu_entry base;
    wb__lt_problem problem;
    int n;                              /* number of algorithms in `list` */
    cublasLtMatmulHeuristicResult_t list[WB__GPU_CANDIDATES];
} cublas_entry;
_Static_assert(offsetof(cublas_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

typedef struct {
    wb__gpu_routine base;
    cublas_entry *entry;
    cublasLtHandle_t handle;
    wb__lt_operands operands;
    wb__lt_descriptors d;
    uint64_t vector, aux;               /* the addresses that were last set in `d` */
} cublas_routine;

static bool cublas_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__lt_functions *f = table;
    if (!missing && f->GetVersion() >= 120000) return true;
    if (missing) snprintf(reason, capacity, "libcublasLt has no %s: too old or too new", missing);
    else
        snprintf(reason, capacity, "version %zu is too old: install cuBLAS 12 or newer",
                 f->GetVersion());
    return false;
}

static int cublas_create_handle(void **handle)
{
    cublasLtHandle_t made = NULL;
    const int status = (int)cublas_lt.Create(&made);
    *handle = made;
    return status;
}

static void cublas_destroy_handle(void *handle) { cublas_lt.Destroy(handle); }
static const char *cublas_status_name(int status)
{
    return cublas_lt.GetStatusName((wb__lt_enum)status);
}
static bool cublas_is_memory_error(int status) { return status == CUBLAS_STATUS_ALLOC_FAILED; }

/* Asks the heuristics for at most `most` algorithms of a problem with these descriptors.  Returns
 * the number of algorithms that work and whose workspace is not too large; 0 and the status of the
 * call that failed. */
static int cublas_algorithms(void *handle, const wb__lt_problem *p, const wb__lt_descriptors *of,
                             cublasLtMatmulHeuristicResult_t *list, int most, int *status,
                             const char **call)
{
    cublasLtMatmulPreference_t preference;
    int n = 0, good = 0;
    memset(list, 0, (size_t)most * sizeof *list);
    if ((*status = wb__lt_preference(&cublas_lt, p, &preference, call))) return 0;
    *call = "cublasLtMatmulAlgoGetHeuristic";
    *status = (int)cublas_lt.MatmulAlgoGetHeuristic(handle, of->desc, of->layout[0], of->layout[1],
                                                    of->layout[2], of->layout[2], preference, most,
                                                    list, &n);
    cublas_lt.MatmulPreferenceDestroy(preference);
    for (int i = 0; i < n && !*status; i++)
        if (!list[i].state && list[i].workspaceSize <= WB__LT_WORKSPACE) list[good++] = list[i];
    return good;
}

static int cublas_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                             wb__gpu_entry *base)
{
    cublas_entry *e = (cublas_entry *)base;
    wb__lt_descriptors of;
    const char *call = NULL;
    const int most = e->problem.by_timing ? WB__GPU_CANDIDATES : 1;
    int status = wb__lt_describe(&cublas_lt, &e->problem, &of, &call);
    if (!status) e->n = cublas_algorithms(handle, &e->problem, &of, e->list, most, &status, &call);
    wb__lt_undescribe(&cublas_lt, &of);
    if (status) wb__gpu_vendor_log_failure(d, l, status, call);
    base->found = e->n > 0;
    return 0;
}

#define NAME(type, name, parameters) {"cublasLt" #name, offsetof(wb__lt_functions, name)},
static const wb__gpu_function cublas_functions[] = {WB__LT_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(WB__COUNT(cublas_functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

static wb__gpu_vendor cublas_library = {
    .name = "cuBLASLt", .variable = "WEBER_CUDA_CUBLASLT",
    .advice = "install cuBLAS 12 or newer, which CUDA's toolkit has, or name its folder by"
              " WEBER_CUDA_PATH",
    .search = &wb__cu_search,
    .files = (const wb__gpu_file[]){{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12},
                                    {"libcublasLt.so", 0}, {NULL, 0}},
    .functions = cublas_functions, .n_functions = WB__COUNT(cublas_functions), .table = &cublas_lt,
    .suits = cublas_is_usable, .creating = "cublasLtCreate", .create = cublas_create_handle,
    .destroy = cublas_destroy_handle, .status_name = cublas_status_name,
    .is_memory = cublas_is_memory_error, .entry_bytes = sizeof(cublas_entry),
    .problem_bytes = sizeof(wb__lt_problem), .find = cublas_fill_entry,
    .reasons = {"cuBLASLt is not used", "cuBLASLt: it does not work here",
                "cuBLASLt: it has no algorithm", "cuBLASLt: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__cu_lt_works(void) { return wb__gpu_vendor_works(&cublas_library); }

int wb__cu_lt_major(void)
{
    if (wb__cu_lt_works()) return (int)(cublas_lt.GetVersion() / 10000);
    wb_clear_error();
    return 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Sets an address in the descriptor, unless the previous launch has set the same one. */
static int cublas_set_address(cublas_routine *r, int attribute, wb__lt_operand operand,
                              const uint64_t *buffers, uint64_t *last)
{
    if (operand.buffer < 0) return 0;
    const uint64_t address = (uint64_t)buffers[operand.buffer] + operand.at;
    if (address == *last) return 0;
    *last = address;
    return cublas_lt.MatmulDescSetAttribute(r->d.desc, attribute, &address, sizeof address);
}

/* Enqueues the product of the operands `o` in `buffers`, by one of the entry's algorithms.  Returns
 * a status, and sets *call to the function that failed. */
static int cublas_multiply(cublas_routine *r, const wb__lt_operands *o, const uint64_t *buffers,
                           int algorithm, uint64_t workspace, struct CUstream_st *stream,
                           const char **call)
{
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const wb__lt_problem *p = &r->entry->problem;
    const cublasLtMatmulHeuristicResult_t *by = &r->entry->list[algorithm];
    const bool f64 = p->type == CUDA_R_64F, adds = p->addend_align != 0;
    const wb__lt_operand *const operands[] = {&o->operand[0], &o->operand[1], &o->operand[2],
                                              adds ? &o->addend : &o->operand[2]};
    const void *alpha = f64 ? (const void *)&one_f64 : &one;
    const void *beta = adds ? alpha : f64 ? (const void *)&zero_f64 : &zero;
    void *at[WB__COUNT(operands)];
    for (size_t j = 0; j < WB__COUNT(operands); j++)
        at[j] = (void *)(uintptr_t)(buffers[operands[j]->buffer] + operands[j]->at);
    *call = "cublasLtMatmulDescSetAttribute";
    int status = cublas_set_address(r, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o->vector, buffers,
                                    &r->vector);
    if (!status)
        status = cublas_set_address(r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o->aux, buffers,
                                    &r->aux);
    if (status) return status;
    *call = "cublasLtMatmul";
    return (int)cublas_lt.Matmul(r->handle, r->d.desc, alpha, at[0], r->d.layout[0], at[1],
                                 r->d.layout[1], beta, at[3], r->d.layout[2], at[2], r->d.layout[2],
                                 &by->algo, by->workspaceSize ? (void *)(uintptr_t)workspace : NULL,
                                 by->workspaceSize, stream);
}

static int cublas_launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                         const wb__gpu_addresses *addresses)
{
    cublas_routine *r = (cublas_routine *)base;
    const char *call = NULL;
    const int status = cublas_multiply(r, &r->operands, addresses->address, 0,
                                       addresses->workspace + addresses->workspace_at,
                                       wb__cu_of(d)->stream[q], &call);
    if (status) return wb__gpu_refuse_entry(d, &cublas_library, &r->entry->base, status, call);
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(d, NULL);
    return 0;
}

static void cublas_destroy_routine(wb__gpu_device *d, wb__gpu_routine *base)
{
    (void)d;
    wb__lt_undescribe(&cublas_lt, &((cublas_routine *)base)->d);
}

/* ---- timing ---------------------------------------------------------------------------------- */

/* Indices of the buffers in scratch memory. */
enum { CUBLAS_A, CUBLAS_B, ADDEND, RESULT, VECTOR, AUX, CUBLAS_LENT, SCRATCH };
_Static_assert((int)SCRATCH <= (int)WB__GPU_SCRATCH, "buffers in scratch memory");

static size_t cublas_size_of(int type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* Sets `bytes` to the sizes of a product's operands, and returns the sum of the sizes. */
static double cublas_scratch_sizes(const wb__lt_problem *p, size_t bytes[SCRATCH])
{
    const int64_t cols[3] = {p->op[0] == CUBLAS_OP_T ? p->rows : p->k,
                             p->op[1] == CUBLAS_OP_T ? p->k : p->cols, p->cols};
    const int64_t each = (int64_t)cublas_size_of(p->type), places[3] = {CUBLAS_A, CUBLAS_B, RESULT};
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

static bool cublas_is_worth_timing(const wb__gpu_device *d, const wb__lt_problem *p)
{
    size_t bytes[SCRATCH];
    const double flop = 2.0 * (double)p->rows * (double)p->cols * (double)p->k * p->batch;
    return wb__gpu_worth_timing(d, cublas_size_of(p->type), p->compute != CUBLAS_COMPUTE_32F, flop,
                                cublas_scratch_sizes(p, bytes));
}

/* A trial of the algorithms of an entry.  operands: those of the routine, in scratch memory. */
typedef struct {
    wb__gpu_device *d;
    cublas_routine *r;
    wb__lt_operands operands;
    wb__gpu_candidates c;
} cublas_trial;

static int cublas_run_candidate(void *ctx, int i)
{
    const cublas_trial *t = ctx;
    const char *call = NULL;
    return cublas_multiply(t->r, &t->operands, t->c.at, i, t->c.at[CUBLAS_LENT],
                           wb__cu_of(t->d)->stream[WB__GPU_COMPUTE], &call);
}

/* Chooses among the algorithms of an entry by timing, before any step uses it. */
static void cublas_choose_algorithm(wb__gpu_device *d, cublas_routine *r)
{
    cublas_entry *e = r->entry;
    cublas_trial t = {.d = d, .r = r, .operands = r->operands,
                      .c = {.library = cublas_library.name, .version = cublas_lt.GetVersion(),
                            .problem = &e->problem, .problem_bytes = sizeof e->problem, .n = e->n,
                            .run = cublas_run_candidate, .ctx = &t}};
    wb__lt_operand *const in[] = {
        [CUBLAS_A] = &t.operands.operand[0], [CUBLAS_B] = &t.operands.operand[1],
        [ADDEND] = &t.operands.addend, [RESULT] = &t.operands.operand[2],
        [VECTOR] = &t.operands.vector, [AUX] = &t.operands.aux};
    if (e->n < 2) return;
    for (int i = 0; i < CUBLAS_LENT; i++)
        if (in[i]->buffer >= 0) *in[i] = (wb__lt_operand){i, 0};
    cublas_scratch_sizes(&e->problem, t.c.bytes);
    for (int i = 0; i < e->n; i++) {
        t.c.fingerprint[i] = 1;
        for (size_t k = 0; k < WB__COUNT(e->list[i].algo.data); k++)
            t.c.fingerprint[i] = wb__mix(t.c.fingerprint[i], e->list[i].algo.data[k]);
        t.c.bytes[CUBLAS_LENT] = WB__MAX(t.c.bytes[CUBLAS_LENT], e->list[i].workspaceSize);
    }
    e->list[0] = e->list[wb__gpu_fastest(d, &t.c)];
    e->n = 1;
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns the cache entry of a step's problem, which is created if it is new, and sets *operands.
 * NULL: *error is the error code.  If cuBLASLt cannot execute the step, *error is
 * WB_ERROR_UNSUPPORTED, and *reason is a short reason. */
static cublas_entry *cublas_entry_of(wb__gpu_device *d, const wb__step *step,
                                     wb__lt_operands *operands, const char **reason, int *error)
{
    wb__lt_problem p;
    *error = WB_ERROR_UNSUPPORTED;
    *reason = wb__lt_problem_of(step, &p, operands);
    p.by_timing = !*reason && !step->deterministic && cublas_is_worth_timing(d, &p);
    return *reason ? NULL : (cublas_entry *)wb__gpu_entry_of(d, &cublas_library, &p, reason, error);
}

static int cublas_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                          const char **reason)
{
    wb__lt_operands operands;
    const char *call = NULL;
    int error = 0;
    cublas_entry *e = cublas_entry_of(d, step, &operands, reason, &error);
    if (!e) return error;
    cublas_routine *made = wb__alloc_zero(1, sizeof *made);
    if (!made) return WB_ERROR_MEMORY;
    *made = (cublas_routine){.base = {.library = &wb__cu_lt, .impl = wb__lt_name(&e->problem)},
                             .entry = e, .handle = wb__gpu_vendor_handle(d, &cublas_library),
                             .operands = operands};
    const int status = wb__lt_describe(&cublas_lt, &e->problem, &made->d, &call);
    if (status) {
        wb__gpu_vendor_log_failure(d, &cublas_library, status, call);
        wb__free(made);
        *reason = cublas_library.reasons[WB__GPU_NOTHING];
        return WB_ERROR_UNSUPPORTED;
    }
    cublas_choose_algorithm(d, made);
    made->base.workspace = e->list[0].workspaceSize;
    e->base.holders++;
    made->base.held = &e->base;
    *r = &made->base;
    return 0;
}

static bool cublas_supports(wb__gpu_device *d, const wb__step *step)
{
    wb__lt_operands operands;
    const char *reason = NULL;
    int error = 0;
    const cublas_entry *e = cublas_entry_of(d, step, &operands, &reason, &error);
    if (!e && !reason) wb_clear_error();
    return e;
}

const wb__gpu_hook wb__cu_lt = {
    .kinds = 1u << WB__STEP_MATMUL, .vendor = &cublas_library, .supports = cublas_supports,
    .prepare = cublas_prepare, .launch = cublas_launch, .destroy = cublas_destroy_routine,
};
