/* Matrix products by cuBLASLt: opened when the first one comes, an algorithm for each problem chosen
 * by its heuristics when a plan is made.
 *
 *   WEBER_CUDA_CUBLASLT   0: never */
#include "backend/cuda/cuda.h"
#include "backend/cuda/lt.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static wb__lt_functions lt;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[600];

/* The next version that is there; NULL, or why there is none.  `lt` then is the one before. */
static const char *open_next(void)
{
    static const wb__cu_file files[] = {{"libcublasLt.so.13", 13}, {"libcublasLt.so.12", 12},
                                        {"libcublasLt.so", 0}, {0}};
    static const wb__gpu_function functions[] = {
#define NAME(type, name, parameters) {"cublasLt" #name, offsetof(wb__lt_functions, name)},
        WB__LT_FUNCTIONS(NAME)
#undef NAME
    };
    static char why[600];
    static int from;
    char said[400];
    void *library;
    *why = 0;
    while ((library = wb__cu_open_library(files, &from, said, sizeof said))) {
        wb__lt_functions f;
        const char *missing =
            wb__gpu_find_functions(library, functions, WB__COUNT(functions), &f);
        if (!missing && f.GetVersion() >= 120000) {
            lt = f;
            return NULL;
        }
        if (missing)
            snprintf(why, sizeof why, "libcublasLt has no %s: too old or too new", missing);
        else
            snprintf(why, sizeof why, "version %zu is too old: install cuBLAS 12 or newer",
                     f.GetVersion());
        if (wb__debug("load")) wb__log(WB_LOG_INFO, "cuda: cuBLASLt: %s", why);
    }
    if (!*why)
        snprintf(why, sizeof why, "%s; install cuBLAS 12 or newer, which CUDA's toolkit has,"
                 " or name its folder by WEBER_CUDA_PATH", said);
    return why;
}

static void open_once(void)
{
    const char *why = open_next();
    if (why) snprintf(why_not, sizeof why_not, "%s", why);
}

bool wb__cu_lt_works(void)
{
    const char *wish = getenv("WEBER_CUDA_CUBLASLT");
    if (wish && *wish == '0') {
        wb__fail(WB_ERROR_UNSUPPORTED, "cuda: cuBLASLt: WEBER_CUDA_CUBLASLT=0 says not to use it");
        return false;
    }
    pthread_once(&once, open_once);
    if (!*why_not) return true;
    wb__fail(WB_ERROR_UNSUPPORTED, "cuda: cuBLASLt: %s", why_not);
    return false;
}

int wb__cu_lt_major(void)
{
    if (wb__cu_lt_works()) return (int)(lt.GetVersion() / 10000);
    wb_clear_error();
    return 0;
}

/* ---- one device ------------------------------------------------------------------------------ */

/* Algorithms by problem; a newer one takes the place of an older one that falls on it. */
enum { SLOTS = 512 };
typedef struct {
    bool used, found;                   /* found: there is one */
    wb__lt_problem problem;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
} slot;

typedef struct {
    cublasLtHandle_t handle;            /* NULL: none could be had */
    slot slots[SLOTS];
    wb__lt_problem *refused;            /* when they were launched: not asked for again */
    int n_refused, room;
    bool told;                          /* that there are such */
} state;

typedef struct {
    wb__gpu_routine base;
    wb__lt_problem problem;
    wb__lt_places places;
    wb__lt_descriptors d;
    cublasLtMatmulAlgo_t algo;
    uint64_t vector, aux;               /* the addresses that its descriptor has */
    bool f64;
} routine;

static int fail(const wb__cu_device *d, int status, const char *call)
{
    return wb__fail(status == CUBLAS_STATUS_ALLOC_FAILED ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "cuda:%d: %s: %s (%d)", d->gpu.base.ordinal, call, lt.GetStatusName(status),
                    status);
}

/* What fails while a plan is made is no error: our own kernels take over. */
static void note(const wb__cu_device *d, int status, const char *call)
{
    if (wb__debug("dispatch"))
        wb__log(WB_LOG_INFO, "cuda:%d: %s: %s (%d)", d->gpu.base.ordinal, call,
                lt.GetStatusName(status), status);
}

/* A handle; a version that gives none, as one that is newer than the driver, is followed by the
 * next, while no device has a handle. */
static int create(cublasLtHandle_t *handle)
{
    static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;
    static bool settled;
    pthread_mutex_lock(&creating);
    const int first = lt.Create(handle);
    int status = first;
    while (status && !settled && !open_next()) status = lt.Create(handle);
    settled |= !status;
    pthread_mutex_unlock(&creating);
    return status ? first : 0;
}

/* The device's state, made when it is first wanted.  That there is no handle to be had is remembered,
 * and said once. */
static state *state_of(wb__cu_device *d)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (d->lt) return d->lt;
    state *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    const int status = create(&s->handle);
    if (status) {
        s->handle = NULL;
        if (!atomic_flag_test_and_set(&said))
            wb__log(WB_LOG_WARN, "cuda:%d: cuBLASLt is not used, our own kernels are:"
                    " cublasLtCreate: %s (%d)", d->gpu.base.ordinal, lt.GetStatusName(status),
                    status);
    }
    return d->lt = s;
}

static void close_device(wb__gpu_device *base)
{
    wb__cu_device *d = wb__cu_of(base);
    state *s = d->lt;
    if (!s) return;
    if (s->handle) lt.Destroy(s->handle);
    wb__free(s->refused);
    wb__free(s);
    d->lt = NULL;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

static uint64_t hash(const wb__lt_problem *p)
{
    uint64_t words[sizeof *p / 8], h = 0;
    _Static_assert(sizeof *p % 8 == 0, "no rest");
    memcpy(words, p, sizeof words);
    for (size_t i = 0; i < WB__COUNT(words); i++) {
        h = (h ^ words[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

static void ask(const wb__cu_device *d, const wb__lt_descriptors *of, slot *to)
{
    const state *s = d->lt;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    const char *call = NULL;
    int n = 0, status = wb__lt_preference(&lt, &to->problem, &preference, &call);
    if (!status) {
        call = "cublasLtMatmulAlgoGetHeuristic";
        status = lt.MatmulAlgoGetHeuristic(s->handle, of->desc, of->layout[0], of->layout[1],
                                           of->layout[2], of->layout[2], preference, 1, &result,
                                           &n);
        lt.MatmulPreferenceDestroy(preference);
    }
    if (status) note(d, status, call);
    to->found = !status && n > 0 && !result.state && result.workspaceSize <= WB__LT_WORKSPACE;
    to->algo = result.algo;
    to->workspace = to->found ? result.workspaceSize : 0;
    to->used = true;
}

static bool was_refused(const state *s, const wb__lt_problem *p)
{
    for (int i = 0; i < s->n_refused; i++)
        if (memcmp(&s->refused[i], p, sizeof *p) == 0) return true;
    return false;
}

/* The slot of a problem, its algorithm looked for; with the problem's descriptors, which the caller
 * releases.  NULL: there is no algorithm. */
static const slot *choose(wb__cu_device *d, const wb__lt_problem *p, wb__lt_descriptors *of)
{
    const char *call = NULL;
    state *s = d->lt;
    slot *at = &s->slots[hash(p) % SLOTS];
    const bool known = at->used && memcmp(&at->problem, p, sizeof *p) == 0;
    if ((known && !at->found) || was_refused(s, p)) return NULL;
    const int status = wb__lt_describe(&lt, p, of, &call);
    if (status) {
        note(d, status, call);
        return NULL;
    }
    if (!known) {
        *at = (slot){.problem = *p};
        ask(d, of, at);
    }
    if (at->found) return at;
    wb__lt_undescribe(&lt, of);
    return NULL;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* An address of the descriptor's, set where it is not the one of last time. */
static int point(routine *r, int attribute, wb__lt_place place, const uint64_t *buffers,
                 uint64_t *last)
{
    if (place.buffer < 0) return 0;
    const uint64_t address = (uint64_t)buffers[place.buffer] + place.at;
    if (address == *last) return 0;
    *last = address;
    return lt.MatmulDescSetAttribute(r->d.desc, attribute, &address, sizeof address);
}

static int refused(wb__cu_device *d, const routine *r, int status, const char *call)
{
    state *s = d->lt;
    fail(d, status, call);
    const int error = wb__gpu_refused(&d->gpu, &s->told);
    if (error != WB_ERROR_UNSUPPORTED || was_refused(s, &r->problem)) return error;
    if (!wb__make_room(&s->refused, &s->room, s->n_refused + 1, sizeof *s->refused))
        return WB_ERROR_MEMORY;
    s->refused[s->n_refused++] = r->problem;
    return error;
}

static int launch(wb__gpu_device *gpu, wb__gpu_routine *base, wb__gpu_queue q,
                  const wb__gpu_places *places)
{
    wb__cu_device *d = wb__cu_of(gpu);
    CUstream stream = d->stream[q];
    const uint64_t *buffers = places->address;
    const uint64_t workspace = places->workspace + places->workspace_at;
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    routine *r = (routine *)base;
    const state *s = d->lt;
    void *at[3];
    for (int j = 0; j < 3; j++) {
        const wb__lt_place *p = &r->places.operand[j];
        at[j] = (void *)(uintptr_t)(buffers[p->buffer] + p->at);
    }
    int status = point(r, CUBLASLT_MATMUL_DESC_BIAS_POINTER, r->places.vector, buffers, &r->vector);
    if (!status)
        status = point(r, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, r->places.aux, buffers,
                       &r->aux);
    if (status) return refused(d, r, status, "cublasLtMatmulDescSetAttribute");
    void *lent = base->workspace ? (void *)(uintptr_t)workspace : NULL;
    status = lt.Matmul(s->handle, r->d.desc, r->f64 ? (const void *)&one_f64 : &one, at[0],
                       r->d.layout[0], at[1], r->d.layout[1],
                       r->f64 ? (const void *)&zero_f64 : &zero, at[2], r->d.layout[2], at[2],
                       r->d.layout[2], &r->algo, lent, base->workspace, stream);
    if (status) return refused(d, r, status, "cublasLtMatmul");
    if (q == WB__GPU_COMPUTE) wb__gpu_issued(gpu, NULL);
    return 0;
}

static void destroy(wb__gpu_device *d, wb__gpu_routine *base)
{
    routine *r = (routine *)base;
    (void)d;
    wb__lt_undescribe(&lt, &r->d);
    wb__free(r);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* With `r` NULL nothing is made. */
static int prepare(wb__gpu_device *base, const wb__step *step, wb__gpu_routine **r,
                   const char **why)
{
    wb__cu_device *d = wb__cu_of(base);
    wb__lt_problem p;
    wb__lt_places places;
    wb__lt_descriptors of;
    *why = wb__lt_problem_of(step, &p, &places);
    if (*why) return WB_ERROR_UNSUPPORTED;
    if (!wb__cu_lt_works()) {
        wb_clear_error();
        *why = "cuBLASLt: not there";
        return WB_ERROR_UNSUPPORTED;
    }
    const state *s = state_of(d);
    if (!s) return WB_ERROR_MEMORY;
    const slot *found = s->handle ? choose(d, &p, &of) : NULL;
    if (!found) {
        *why = s->handle ? "cuBLASLt: it has no algorithm" : "cuBLASLt: it does not work here";
        return WB_ERROR_UNSUPPORTED;
    }
    routine *made = r ? wb__alloc_zero(1, sizeof *made) : NULL;
    if (!made) {
        wb__lt_undescribe(&lt, &of);
        return r ? WB_ERROR_MEMORY : 0;
    }
    *made = (routine){.base = {.library = &wb__cu_lt, .impl = wb__lt_name(&p),
                               .workspace = found->workspace},
                      .problem = p, .places = places, .d = of, .algo = found->algo,
                      .f64 = p.type == CUDA_R_64F};
    *r = &made->base;
    return 0;
}

static bool takes(wb__gpu_device *d, const wb__step *step)
{
    const char *why = NULL;
    const int error = prepare(d, step, NULL, &why);
    if (error && !why) wb_clear_error();
    return !error;
}

const wb__gpu_hook wb__cu_lt = {
    .name = "cuBLASLt", .kinds = 1u << WB__STEP_MATMUL, .variable = "WEBER_CUDA_CUBLASLT",
    .unused = "cuBLASLt is not used", .works = wb__cu_lt_works, .takes = takes, .prepare = prepare,
    .launch = launch, .destroy = destroy, .close = close_device,
};
