/* Convolutions and attention by cuDNN: opened when the first one comes, a plan for each problem made
 * when one of the engine's is made, and kept for the next.
 *
 *   WEBER_CUDA_CUDNN   0: never */
#include "backend/cuda/cuda.h"
#include "backend/cuda/dnn.h"

#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static wb__dnn_functions dnn;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[600];

/* Why a library cannot be used; NULL: it can.  cuDNN brings a cuBLASLt of its own major version of
 * CUDA with it; two of them in one process do not go together. */
static const char *fault_of(const wb__dnn_functions *f, const char *missing, char *why, size_t room)
{
    const int built = missing ? 0 : (int)(f->GetCudartVersion() / 1000), beside = wb__cu_lt_major();
    if (missing) snprintf(why, room, "libcudnn has no %s: install cuDNN 9", missing);
    else if (f->GetVersion() / 10000 != 9)
        snprintf(why, room, "version %zu is not of cuDNN 9", f->GetVersion());
    else if (beside && built != beside)
        snprintf(why, room, "it is built for CUDA %d, and cuBLASLt, which is used too, for CUDA %d:"
                 " install both for one of these", built, beside);
    else return NULL;
    return why;
}

/* The next version that is there; NULL, or why there is none.  `dnn` then is the one before. */
static const char *open_next(void)
{
    static const wb__cu_file files[] = {{"libcudnn.so.9", 0}, {"libcudnn_graph.so.9", 0},
                                        {"libcudnn.so", 0}, {0}};
    static const wb__gpu_function functions[] = {
#define NAME(type, name, parameters) {"cudnn" #name, offsetof(wb__dnn_functions, name)},
        WB__DNN_FUNCTIONS(NAME)
#undef NAME
    };
    static char why[600];
    static int from;
    char said[400];
    void *library;
    *why = 0;
    while ((library = wb__cu_open_library(files, &from, said, sizeof said))) {
        wb__dnn_functions f;
        const char *missing =
            wb__gpu_find_functions(library, functions, WB__COUNT(functions), &f);
        if (!fault_of(&f, missing, why, sizeof why)) {
            dnn = f;
            return NULL;
        }
        if (wb__debug("load")) wb__log(WB_LOG_INFO, "cuda: cuDNN: %s", why);
    }
    if (!*why)
        snprintf(why, sizeof why, "%s; install cuDNN 9, or name its folder by WEBER_CUDA_PATH",
                 said);
    return why;
}

static void open_once(void)
{
    const char *why = open_next();
    if (why) snprintf(why_not, sizeof why_not, "%s", why);
}

bool wb__cu_dnn_works(void)
{
    const char *wish = getenv("WEBER_CUDA_CUDNN");
    if (wish && *wish == '0') {
        wb__fail(WB_ERROR_UNSUPPORTED, "cuda: cuDNN: WEBER_CUDA_CUDNN=0 says not to use it");
        return false;
    }
    pthread_once(&once, open_once);
    if (!*why_not) return true;
    wb__fail(WB_ERROR_UNSUPPORTED, "cuda: cuDNN: %s", why_not);
    return false;
}

/* ---- one device ------------------------------------------------------------------------------ */

/* A plan that is kept, or that there is none.  Those in use are held by routines; the others go when
 * there are many, the oldest first. */
typedef struct entry entry;
struct entry {
    entry *next;
    int holders;
    bool refused;                       /* when it was launched: not asked for again */
    wb__dnn_problem problem;
    wb__dnn_plan plan;                  /* .plan NULL: cuDNN has no engine for it */
};
enum { MOST_ENTRIES = 512 };

typedef struct {
    cudnnHandle_t handle;               /* NULL: none could be had */
    CUstream stream;                    /* that the handle has */
    entry *first;                       /* newest first */
    int n;
    bool told;                          /* that plans were refused */
} state;

enum { MOST_POINTERS = 9 + 3 + 2 };     /* views, numbers by value, tensors in the workspace */
typedef struct {
    wb__gpu_routine base;
    entry *entry;
    wb__dnn_desc pack;
    int n, n_views, n_extras;           /* pointers; of these, views' first and extras' last */
    struct { int buffer; size_t at; } places[9];
    size_t extras[2];                   /* bytes of the workspace in front of them */
    int64_t ids[MOST_POINTERS];
    void *pointers[MOST_POINTERS];      /* as the pack has them */
    void *workspace;
    float numbers[3];
} routine;

static int fail(const wb__cu_device *d, int status, const char *call)
{
    char said[256] = "";
    dnn.GetLastErrorString(said, sizeof said);
    const bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return wb__fail(memory ? WB_ERROR_MEMORY : WB_ERROR_DEVICE, "cuda:%d: %s: %s (%d)%s%s",
                    d->gpu.base.ordinal, call, dnn.GetErrorString(status), status,
                    *said ? ": " : "", said);
}

/* What fails while a plan is made is no error: our own kernels take over. */
static void note(const wb__cu_device *d, int status, const char *call)
{
    if (wb__debug("dispatch"))
        wb__log(WB_LOG_INFO, "cuda:%d: %s: %s (%d)", d->gpu.base.ordinal, call,
                dnn.GetErrorString(status), status);
}

/* A handle; a version that gives none is followed by the next, while no device has a handle. */
static int create(cudnnHandle_t *handle)
{
    static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;
    static bool settled;
    pthread_mutex_lock(&creating);
    const int first = (int)dnn.Create(handle);
    int status = first;
    while (status && !settled && !open_next()) status = (int)dnn.Create(handle);
    settled |= !status;
    pthread_mutex_unlock(&creating);
    return status ? first : 0;
}

/* The device's state, made when it is first wanted.  That there is no handle to be had is remembered,
 * and said once. */
static state *state_of(wb__cu_device *d)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (d->dnn) return d->dnn;
    state *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    const int status = create(&s->handle);
    if (status) {
        s->handle = NULL;
        if (!atomic_flag_test_and_set(&said))
            wb__log(WB_LOG_WARN, "cuda:%d: cuDNN is not used, our own kernels are: cudnnCreate:"
                    " %s (%d)", d->gpu.base.ordinal, dnn.GetErrorString(status), status);
    }
    return d->dnn = s;
}

static void drop(entry *e)
{
    wb__dnn_plan_free(&dnn, &e->plan);
    wb__free(e);
}

static void close_device(wb__gpu_device *base)
{
    wb__cu_device *d = wb__cu_of(base);
    state *s = d->dnn;
    if (!s) return;
    for (entry *e = s->first, *next; e; e = next) {
        next = e->next;
        drop(e);
    }
    if (s->handle) dnn.Destroy(s->handle);
    wb__free(s);
    d->dnn = NULL;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void make_room(state *s)
{
    entry **oldest = NULL;
    if (s->n < MOST_ENTRIES) return;
    for (entry **at = &s->first; *at; at = &(*at)->next)
        if (!(*at)->holders && !(*at)->refused) oldest = at;
    if (!oldest) return;
    entry *e = *oldest;
    *oldest = e->next;
    s->n--;
    drop(e);
}

/* The entry of a problem, its plan made if it is new; NULL with the error set. */
static entry *entry_of(wb__cu_device *d, const wb__dnn_problem *p)
{
    state *s = d->dnn;
    for (entry *e = s->first; e; e = e->next)
        if (memcmp(&e->problem, p, sizeof *p) == 0) return e;
    make_room(s);
    entry *e = wb__alloc_zero(1, sizeof *e);
    wb__dnn_graph *g = e ? wb__alloc(sizeof *g) : NULL;
    int error = WB_ERROR_MEMORY;
    if (g) {
        const wb__dnn_target target = {.f = &dnn, .handle = s->handle, .memory = d->gpu.total};
        error = wb__dnn_plan_of(g, &target, p, &e->plan);
        if (g->status) note(d, g->status, g->call);
        if (error == WB_ERROR_UNSUPPORTED) error = 0;
    }
    wb__free(g);
    if (error) {
        wb__free(e);
        return NULL;
    }
    e->problem = *p;
    e->next = s->first;
    s->first = e;
    s->n++;
    return e;
}

/* ---- launching ------------------------------------------------------------------------------- */

static int set_pack(routine *r, const char **call)
{
    int status = 0;
    void *lent = r->entry->plan.workspace ? r->workspace : NULL;
    *call = "cudnnBackendSetAttribute";
    if (r->pack) dnn.BackendDestroyDescriptor(r->pack);
    r->pack = NULL;
    if ((status = dnn.BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &r->pack))) {
        *call = "cudnnBackendCreateDescriptor";
        r->pack = NULL;
        return status;
    }
    if ((status = dnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, r->n, r->ids)) ||
        (status = dnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, r->n, r->pointers)) ||
        (status = dnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &lent)))
        return status;
    *call = "cudnnBackendFinalize";
    return dnn.BackendFinalize(r->pack);
}

static int refused(wb__cu_device *d, routine *r, int status, const char *call)
{
    state *s = d->dnn;
    fail(d, status, call);
    if (r->pack) dnn.BackendDestroyDescriptor(r->pack);
    r->pack = NULL;
    const int error = wb__gpu_refused(&d->gpu, &s->told);
    r->entry->refused |= error == WB_ERROR_UNSUPPORTED;
    return error;
}

static int launch(wb__gpu_device *gpu, wb__gpu_routine *base, wb__gpu_queue q,
                  const wb__gpu_places *places)
{
    wb__cu_device *d = wb__cu_of(gpu);
    CUstream stream = d->stream[q];
    const uint64_t *buffers = places->address;
    const uint64_t workspace = places->workspace + places->workspace_at;
    routine *r = (routine *)base;
    state *s = d->dnn;
    const char *call = "cudnnSetStream";
    int status = 0;
    bool moved = !r->pack || r->workspace != (void *)(uintptr_t)workspace;
    r->workspace = (void *)(uintptr_t)workspace;
    for (int i = 0; i < r->n_views; i++) {
        void *at = (void *)(uintptr_t)(buffers[r->places[i].buffer] + r->places[i].at);
        moved |= at != r->pointers[i];
        r->pointers[i] = at;
    }
    for (int i = 0; i < r->n_extras; i++)
        r->pointers[r->n - r->n_extras + i] = (char *)r->workspace + r->extras[i];
    if (s->stream != stream) {
        if ((status = (int)dnn.SetStream(s->handle, stream))) return fail(d, status, call);
        s->stream = stream;
    }
    if (moved && (status = set_pack(r, &call))) return refused(d, r, status, call);
    status = dnn.BackendExecute(s->handle, r->entry->plan.plan, r->pack);
    if (status) return refused(d, r, status, "cudnnBackendExecute");
    if (q == WB__GPU_COMPUTE) wb__gpu_issued(gpu, NULL);
    return 0;
}

static void destroy(wb__gpu_device *d, wb__gpu_routine *base)
{
    routine *r = (routine *)base;
    (void)d;
    if (r->pack) dnn.BackendDestroyDescriptor(r->pack);
    r->entry->holders--;
    wb__free(r);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Masks of minus infinity are known since 9.10; before 9.16 gradients were wrong where the keys do not
 * fill blocks of 128. */
static const char *too_old(const wb__dnn_problem *p)
{
    const size_t version = dnn.GetVersion();
    const bool back = p->variant == WB__ATTENTION_BACK, fills = p->views[1].dims[2] % 128 == 0;
    return version < (back && !fills ? 91600 : 91000) ? "cuDNN: too old for attention" : NULL;
}

/* As a library's `prepare`; NULL with *error 0 cannot be. */
static entry *find(wb__cu_device *d, const wb__step *step, const char **why, int *error)
{
    wb__dnn_problem p;
    *error = WB_ERROR_UNSUPPORTED;
    *why = wb__dnn_problem_of(step, &p);
    if (*why) return NULL;
    if (!wb__cu_dnn_works()) {
        wb_clear_error();
        *why = "cuDNN: not there";
        return NULL;
    }
    const state *s = state_of(d);
    if (s && !s->handle) {
        *why = "cuDNN: it does not work here";
        return NULL;
    }
    if (step->kind == WB__STEP_ATTENTION && (*why = too_old(&p))) return NULL;
    entry *e = s ? entry_of(d, &p) : NULL;
    if (!e) {
        *error = (int)wb_error_code();
        return NULL;
    }
    if (!e->plan.plan || e->refused) {
        *why = e->refused ? "cuDNN: it refused this one" : "cuDNN: it has no engine";
        return NULL;
    }
    *error = 0;
    return e;
}

static const char *name_of(const wb__step *step)
{
    if (step->kind == WB__STEP_ATTENTION) return "cuDNN flash";
    return wb__dnn_epilogue_of(step->epilogue)->name[step->n_views > 3];
}

/* Numbers handed over by value, and tensors behind cuDNN's own workspace. */
static void add_attention(routine *r, const wb__step *step)
{
    const bool back = step->variant == WB__ATTENTION_BACK;
    const struct { int64_t id; float value; bool used; } numbers[] = {
        {WB__DNN_SCALE, (float)step->attention.scale, true},
        {WB__DNN_MINUS_INFINITY, -INFINITY, step->attention.causal}, {WB__DNN_ONE, 1, back}};
    wb__dnn_extra extras[2];
    for (size_t i = 0; i < WB__COUNT(numbers); i++) {
        r->numbers[i] = numbers[i].value;
        if (!numbers[i].used) continue;
        r->ids[r->n] = numbers[i].id;
        r->pointers[r->n++] = &r->numbers[i];
    }
    r->n_extras = wb__dnn_extras(&r->entry->problem, extras);
    for (int i = 0; i < r->n_extras; i++) {
        r->extras[i] = (r->base.workspace + 255) / 256 * 256;
        r->base.workspace = r->extras[i] + extras[i].bytes;
        r->ids[r->n++] = extras[i].id;
    }
}

static int prepare(wb__gpu_device *base, const wb__step *step, wb__gpu_routine **r,
                   const char **why)
{
    wb__cu_device *d = wb__cu_of(base);
    int error = 0;
    *r = NULL;
    entry *e = find(d, step, why, &error);
    if (!e) return error;
    routine *made = wb__alloc_zero(1, sizeof *made);
    if (!made) return WB_ERROR_MEMORY;
    e->holders++;
    made->base = (wb__gpu_routine){.library = &wb__cu_dnn, .impl = name_of(step),
                                   .workspace = e->plan.workspace};
    made->entry = e;
    made->n = made->n_views = step->n_views;
    for (int i = 0; i < step->n_views; i++) {
        const wb__view *v = &step->views[i];
        made->ids[i] = i + 1;
        made->places[i].buffer = v->buffer;
        made->places[i].at = (size_t)v->offset * wb__dtype_size(v->dtype);
    }
    if (step->kind == WB__STEP_ATTENTION) add_attention(made, step);
    *r = &made->base;
    return 0;
}

static bool takes(wb__gpu_device *base, const wb__step *step)
{
    wb__cu_device *d = wb__cu_of(base);
    const char *why = NULL;
    int error = 0;
    if (step->kind != WB__STEP_ATTENTION) return false;
    const entry *e = find(d, step, &why, &error);
    if (!e && !why) wb_clear_error();
    return e;
}

/* Tensor cores read channels in vectors of 16 bytes.  A picture's few channels are widened by cuDNN
 * on the way. */
static bool prefers_nhwc(wb__gpu_device *base, const wb__step *conv)
{
    wb__cu_device *d = wb__cu_of(base);
    const wb__view *x = &conv->views[0], *y = &conv->views[2];
    const bool half = x->dtype == WB_F16 || x->dtype == WB_BF16;
    const bool rounded = x->dtype == WB_F32 && conv->precision != WB__PRECISION_HIGHEST;
    const int64_t vector = half ? 8 : 4, c = x->dims[1], k = y->dims[1];
    if (conv->kind != WB__STEP_CONV || !(half || (rounded && d->arch >= 90))) return false;
    if (k % vector || (c % vector && c > 4)) return false;
    const state *s = wb__cu_dnn_works() ? state_of(d) : NULL;
    if (!s) wb_clear_error();
    return s && s->handle;
}

const wb__gpu_hook wb__cu_dnn = {
    .name = "cuDNN", .kinds = 1u << WB__STEP_CONV | 1u << WB__STEP_ATTENTION,
    .variable = "WEBER_CUDA_CUDNN", .unused = "cuDNN is not used", .works = wb__cu_dnn_works,
    .takes = takes, .prepare = prepare, .launch = launch, .destroy = destroy,
    .prefers_nhwc = prefers_nhwc, .close = close_device,
};
