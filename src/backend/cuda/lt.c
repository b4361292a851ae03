/* Matrix products by cuBLASLt.  The library is opened for the first product.  Its heuristics choose
 * an algorithm for a problem at the first use, and the algorithm is cached.
 *
 *   WEBER_CUDA_CUBLASLT   0: cuBLASLt is not used */
#include "backend/cuda/cuda.h"
#include "backend/cuda/lt.h"

#include <stdio.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__lt_functions lt;

/* A cached algorithm for a problem. */
typedef struct {
    wb__gpu_entry base;
    wb__lt_problem problem;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
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

static int find(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle, wb__gpu_entry *base)
{
    entry *e = (entry *)base;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    wb__lt_descriptors of;
    const char *call = NULL;
    int n = 0, status = wb__lt_describe(&lt, &e->problem, &of, &call);
    if (!status && !(status = wb__lt_preference(&lt, &e->problem, &preference, &call))) {
        call = "cublasLtMatmulAlgoGetHeuristic";
        status = (int)lt.MatmulAlgoGetHeuristic(handle, of.desc, of.layout[0], of.layout[1],
                                                of.layout[2], of.layout[2], preference, 1, &result,
                                                &n);
        lt.MatmulPreferenceDestroy(preference);
    }
    wb__lt_undescribe(&lt, &of);
    if (status) wb__gpu_vendor_note(d, l, status, call);
    base->found = !status && n > 0 && !result.state && result.workspaceSize <= WB__LT_WORKSPACE;
    e->algo = result.algo;
    e->workspace = base->found ? result.workspaceSize : 0;
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
