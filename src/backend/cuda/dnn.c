/* Convolutions and attention by cuDNN.  The library is opened for the first such step.  cuDNN's
 * execution plan for a problem is created at the first use and cached.  For a problem that takes
 * long, several plans are created and timed, and the fastest stays.
 *
 *   WEBER_CUDA_CUDNN   0: cuDNN is not used */
#include "backend/cuda/cuda.h"
#include "backend/cuda/dnn.h"

#include <math.h>
#include <stdio.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__dnn_functions cudnn;

/* The cached execution plan for a problem, or the plans of which timing will choose one. */
typedef struct {
    wb__gpu_entry base;
    wb__dnn_problem problem;
    wb__dnn_plans plans;
} cudnn_entry;
_Static_assert(offsetof(cudnn_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

enum { MAX_POINTERS = 9 + 3 + 2 };   /* views, scalars by value, tensors in the workspace */
typedef struct {
    wb__gpu_routine base;
    cudnn_entry *entry;
    cudnnHandle_t handle;
    wb__dnn_desc pack;                  /* cuDNN's variant pack: the ids with their pointers */
    /* n: number of elements of `ids` and `pointers`.  The first n_views are for views, the last
     * n_extras for tensors in the workspace. */
    int n, n_views, n_extras;
    struct { int buffer; size_t at; } operands[9];  /* of each view: index in the plan; bytes */
    size_t extras[2];                   /* offsets in the workspace of its tensors, in bytes */
    int64_t ids[MAX_POINTERS];          /* unique ids of the tensors */
    void *pointers[MAX_POINTERS];       /* the pointers of cuDNN's variant pack */
    void *workspace;
    float numbers[3];                   /* values of the scalars */
} cudnn_routine;

/* Whether the library is cuDNN 9, has all functions, and was built for the same major version of
 * CUDA as the cuBLASLt in use, if any.  If not, sets `reason`.  cuDNN loads cuBLASLt of the version
 * for which it was built, and two versions of cuBLASLt in one process are incompatible. */
static bool cudnn_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__dnn_functions *f = table;
    const int built = missing ? 0 : (int)(f->GetCudartVersion() / 1000), beside = wb__cu_lt_major();
    if (missing) snprintf(reason, capacity, "libcudnn has no %s: install cuDNN 9", missing);
    else if (f->GetVersion() / 10000 != 9)
        snprintf(reason, capacity, "version %zu is not of cuDNN 9", f->GetVersion());
    else if (beside && built != beside)
        snprintf(reason, capacity, "it is built for CUDA %d, and cuBLASLt, which is used too, for"
                 " CUDA %d: install both for one of these", built, beside);
    else return true;
    return false;
}

static int cudnn_create_handle(void **handle)
{
    cudnnHandle_t created = NULL;
    const int status = (int)cudnn.Create(&created);
    *handle = created;
    return status;
}

static void cudnn_destroy_handle(void *handle) { cudnn.Destroy(handle); }
static const char *cudnn_status_name(int status)
{
    return cudnn.GetErrorString((wb__dnn_enum)status);
}
static void cudnn_write_last_error(char *text, size_t n) { cudnn.GetLastErrorString(text, n); }

static bool cudnn_is_memory_error(int status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/* The plans of an entry as candidates of timing.c. */
static wb__gpu_candidates candidates_of(const wb__gpu_vendor *l, const cudnn_entry *e)
{
    wb__gpu_candidates c = {.library = l->name, .version = cudnn.GetVersion(), .n = e->plans.n,
                            .problem = &e->problem, .problem_bytes = sizeof e->problem};
    for (int i = 0; i < c.n; i++) c.fingerprint[i] = e->plans.list[i].fingerprint;
    return c;
}

/* Creates the execution plan of a problem.  If its engine is chosen by timing, creates the plan
 * that was chosen in an earlier process, or plans of some engines. */
static int cudnn_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                            wb__gpu_entry *base)
{
    const wb__dnn_target target = {.f = &cudnn, .handle = handle, .memory = d->total};
    cudnn_entry *e = (cudnn_entry *)base;
    const wb__gpu_candidates none = candidates_of(l, e);
    const uint64_t kept = e->problem.by_timing ? wb__gpu_kept_fingerprint(d, &none) : 0;
    const bool several = kept || (e->problem.by_timing && wb__gpu_may_time(d));
    wb__dnn_graph *g = wb__alloc(sizeof *g);
    if (!g) return WB_ERROR_MEMORY;
    const double begun = wb__now();
    const int error = wb__dnn_plans_of(g, &target, &e->problem, several ? WB__DNN_PLANS : 1, kept,
                                       &e->plans);
    if (e->plans.n > 1) d->timing_seconds += wb__now() - begun;
    if (g->status) wb__gpu_vendor_log_failure(d, l, g->status, g->call);
    wb__free(g);
    base->found = !error;
    return error == WB_ERROR_UNSUPPORTED ? 0 : error;
}

static void cudnn_drop_entry(wb__gpu_entry *e)
{
    wb__dnn_plans_free(&cudnn, &((cudnn_entry *)e)->plans);
}

#define NAME(type, name, parameters) {"cudnn" #name, offsetof(wb__dnn_functions, name)},
static const wb__gpu_function cudnn_functions[] = {WB__DNN_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(WB__COUNT(cudnn_functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

static wb__gpu_vendor cudnn_library = {
    .name = "cuDNN", .variable = "WEBER_CUDA_CUDNN",
    .advice = "install cuDNN 9, or name its folder by WEBER_CUDA_PATH", .search = &wb__cu_search,
    .files = (const wb__gpu_file[]){{"libcudnn.so.9", 0}, {"libcudnn_graph.so.9", 0},
                                    {"libcudnn.so", 0}, {NULL, 0}},
    .functions = cudnn_functions, .n_functions = WB__COUNT(cudnn_functions), .table = &cudnn,
    .suits = cudnn_is_usable, .creating = "cudnnCreate", .create = cudnn_create_handle,
    .destroy = cudnn_destroy_handle, .status_name = cudnn_status_name,
        .is_memory = cudnn_is_memory_error,
    .last_message = cudnn_write_last_error, .entry_bytes = sizeof(cudnn_entry),
    .problem_bytes = sizeof(wb__dnn_problem), .find = cudnn_fill_entry, .drop = cudnn_drop_entry,
    .reasons = {"cuDNN is not used", "cuDNN: it does not work here", "cuDNN: it has no engine",
                "cuDNN: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__cu_dnn_works(void) { return wb__gpu_vendor_works(&cudnn_library); }

/* ---- launching ------------------------------------------------------------------------------- */

static void drop_pack(cudnn_routine *r)
{
    if (r->pack) cudnn.BackendDestroyDescriptor(r->pack);
    r->pack = NULL;
}

/* Creates cuDNN's variant pack of the pointers of r, for an execution plan. */
static int set_pack(cudnn_routine *r, const wb__dnn_plan *plan, const char **call)
{
    int status = 0;
    void *lent = plan->workspace ? r->workspace : NULL;
    *call = "cudnnBackendSetAttribute";
    drop_pack(r);
    if ((status = cudnn.BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &r->pack))) {
        *call = "cudnnBackendCreateDescriptor";
        r->pack = NULL;
        return status;
    }
    if ((status = cudnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                            CUDNN_TYPE_INT64, r->n, r->ids)) ||
        (status = cudnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                            CUDNN_TYPE_VOID_PTR, r->n, r->pointers)) ||
        (status = cudnn.BackendSetAttribute(r->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                            CUDNN_TYPE_VOID_PTR, 1, &lent)))
        return status;
    *call = "cudnnBackendFinalize";
    return cudnn.BackendFinalize(r->pack);
}

static int cudnn_set_stream(wb__cu_device *d, const cudnn_routine *r, CUstream stream)
{
    if (d->dnn_stream == stream) return 0;
    const int status = (int)cudnn.SetStream(r->handle, stream);
    if (!status) d->dnn_stream = stream;
    return status;
}

/* Enqueues an execution plan on the handle's stream.  Returns cuDNN's status, and sets *call to the
 * function that failed.  moved: the pointers of r have changed since the last call. */
static int cudnn_execute(cudnn_routine *r, const wb__dnn_plan *plan, bool moved, const char **call)
{
    const int status = moved ? set_pack(r, plan, call) : 0;
    if (status) return status;
    *call = "cudnnBackendExecute";
    return (int)cudnn.BackendExecute(r->handle, plan->plan, r->pack);
}

static int cudnn_launch(wb__gpu_device *gpu, wb__gpu_routine *base, wb__gpu_queue q,
                        const wb__gpu_addresses *addresses)
{
    wb__cu_device *d = wb__cu_of(gpu);
    const uint64_t *buffers = addresses->address;
    const uint64_t workspace = addresses->workspace + addresses->workspace_at;
    cudnn_routine *r = (cudnn_routine *)base;
    const char *call = NULL;
    bool moved = !r->pack || r->workspace != (void *)(uintptr_t)workspace;
    r->workspace = (void *)(uintptr_t)workspace;
    for (int i = 0; i < r->n_views; i++) {
        void *at = (void *)(uintptr_t)(buffers[r->operands[i].buffer] + r->operands[i].at);
        moved |= at != r->pointers[i];
        r->pointers[i] = at;
    }
    for (int i = 0; i < r->n_extras; i++)
        r->pointers[r->n - r->n_extras + i] = (char *)r->workspace + r->extras[i];
    const int stream = cudnn_set_stream(d, r, d->stream[q]);
    const int status = stream ? stream : cudnn_execute(r, &r->entry->plans.list[0], moved, &call);
    if (status) drop_pack(r);
    if (stream) return wb__gpu_vendor_fail(gpu, &cudnn_library, status, "cudnnSetStream");
    if (status) return wb__gpu_refuse_entry(gpu, &cudnn_library, &r->entry->base, status, call);
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(gpu, NULL);
    return 0;
}

static void cudnn_destroy_routine(wb__gpu_device *d, wb__gpu_routine *base)
{
    (void)d;
    drop_pack((cudnn_routine *)base);
}

/* ---- timing ---------------------------------------------------------------------------------- */

_Static_assert((int)WB__DNN_PLANS <= (int)WB__GPU_CANDIDATES &&
                   WB__COUNT(((cudnn_routine *)0)->operands) < WB__GPU_SCRATCH,
               "room for the plans, the views and the workspace");

static size_t cudnn_size_of(const wb__dnn_view *v) { return v->type == CUDNN_DATA_FLOAT ? 4 : 2; }

static size_t cudnn_bytes_of(const wb__dnn_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++) last += (v->dims[i] - 1) * v->strides[i];
    return (size_t)(last + 1) * cudnn_size_of(v);
}

/* Whether timing repays for a problem.  It does not for attention: cuDNN compiles each plan for
 * about a second, and has few engines. */
static bool cudnn_is_worth_timing(const wb__gpu_device *d, const wb__dnn_problem *p)
{
    const bool rounded = !(p->forbidden >> CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1);
    double bytes = 0, flop = 2;
    for (int i = 0; i < p->n_views; i++) bytes += (double)cudnn_bytes_of(&p->views[i]);
    for (int i = 0; i < 4; i++) flop *= (double)p->views[2].dims[i];
    for (int i = 1; i < 4; i++) flop *= (double)p->views[1].dims[i];
    return p->kind == WB__STEP_CONV &&
           wb__gpu_worth_timing(d, cudnn_size_of(&p->views[0]), rounded, flop, bytes);
}

typedef struct {
    wb__gpu_device *d;
    cudnn_routine *r;
    int packed;             /* index of the plan for which the routine's pack was made; -1: none */
    wb__gpu_candidates c;
} cudnn_trial;

static int cudnn_run_candidate(void *ctx, int i)
{
    cudnn_trial *t = ctx;
    wb__cu_device *d = wb__cu_of(t->d);
    cudnn_routine *r = t->r;
    const char *call = NULL;
    int status = cudnn_set_stream(d, r, d->stream[WB__GPU_COMPUTE]);
    if (status) return status;
    for (int v = 0; v < r->n_views; v++) r->pointers[v] = (void *)(uintptr_t)t->c.at[v];
    r->workspace = (void *)(uintptr_t)t->c.at[r->n_views];
    status = cudnn_execute(r, &r->entry->plans.list[i], t->packed != i, &call);
    t->packed = status ? -1 : i;
    return status;
}

/* Chooses among the plans of an entry by timing, before any step uses it. */
static void cudnn_choose_plan(wb__gpu_device *d, cudnn_routine *r)
{
    cudnn_entry *e = r->entry;
    cudnn_trial t = {.d = d, .r = r, .packed = -1, .c = candidates_of(&cudnn_library, e)};
    if (e->plans.n < 2) return;
    t.c.run = cudnn_run_candidate;
    t.c.ctx = &t;
    for (int i = 0; i < r->n_views; i++) t.c.bytes[i] = cudnn_bytes_of(&e->problem.views[i]);
    for (int i = 0; i < e->plans.n; i++)
        t.c.bytes[r->n_views] = WB__MAX(t.c.bytes[r->n_views], e->plans.list[i].workspace);
    wb__dnn_plans_keep(&cudnn, &e->plans, wb__gpu_fastest(d, &t.c));
    drop_pack(r);
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns why this cuDNN is too old for the problem, or NULL.  cuDNN supports masks with minus
 * infinity since 9.10.  Before 9.16 its gradients of attention were wrong if the number of keys was
 * not a multiple of 128. */
static const char *too_old(const wb__dnn_problem *p)
{
    const size_t version = cudnn.GetVersion();
    const bool back = p->variant == WB__ATTENTION_GRAD, fills = p->views[1].dims[2] % 128 == 0;
    return version < (back && !fills ? 91600 : 91000) ? "cuDNN: too old for attention" : NULL;
}

/* Returns the cache entry of a step's problem, which is created if it is new.  NULL: *error is the
 * error code.  If cuDNN cannot execute the step, *error is WB_ERROR_UNSUPPORTED, and *reason is a
 * short reason. */
static cudnn_entry *cudnn_entry_of(wb__gpu_device *d, const wb__step *step, const char **reason,
                                   int *error)
{
    wb__dnn_problem p;
    *error = WB_ERROR_UNSUPPORTED;
    *reason = wb__dnn_problem_of(step, &p);
    if (!*reason && step->kind == WB__STEP_ATTENTION && wb__gpu_vendor_handle(d, &cudnn_library))
        *reason = too_old(&p);
    p.by_timing = !*reason && !step->deterministic && cudnn_is_worth_timing(d, &p);
    return *reason ? NULL : (cudnn_entry *)wb__gpu_entry_of(d, &cudnn_library, &p, reason, error);
}

static const char *cudnn_name_of(const wb__step *step)
{
    if (step->kind == WB__STEP_ATTENTION) return "cuDNN flash";
    return wb__dnn_epilogue_of(step->epilogue)->name[step->n_views > 3];
}

/* Adds to the routine the scalars passed by value, and the tensors behind cuDNN's workspace. */
static void cudnn_add_attention(cudnn_routine *r, const wb__step *step)
{
    const bool back = step->variant == WB__ATTENTION_GRAD;
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
    r->n_extras = wb__dnn_list_extras(&r->entry->problem, extras);
    for (int i = 0; i < r->n_extras; i++) {
        r->extras[i] = (r->base.workspace + 255) / 256 * 256;
        r->base.workspace = r->extras[i] + extras[i].bytes;
        r->ids[r->n++] = extras[i].id;
    }
}

static int cudnn_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                         const char **reason)
{
    int error = 0;
    *r = NULL;
    cudnn_entry *e = cudnn_entry_of(d, step, reason, &error);
    if (!e) return error;
    cudnn_routine *prepared = wb__alloc_zero(1, sizeof *prepared);
    if (!prepared) return WB_ERROR_MEMORY;
    e->base.holders++;
    prepared->base = (wb__gpu_routine){
        .library = &wb__cu_dnn, .impl = cudnn_name_of(step), .held = &e->base};
    prepared->handle = wb__gpu_vendor_handle(d, &cudnn_library);
    prepared->entry = e;
    prepared->n = prepared->n_views = step->n_views;
    for (int i = 0; i < step->n_views; i++) {
        const wb__view *v = &step->views[i];
        prepared->ids[i] = i + 1;
        prepared->operands[i].buffer = v->buffer;
        prepared->operands[i].at = (size_t)v->offset * wb__dtype_size(v->dtype);
    }
    cudnn_choose_plan(d, prepared);
    prepared->base.workspace = e->plans.list[0].workspace;
    if (step->kind == WB__STEP_ATTENTION) cudnn_add_attention(prepared, step);
    *r = &prepared->base;
    return 0;
}

static bool cudnn_supports(wb__gpu_device *d, const wb__step *step)
{
    const char *reason = NULL;
    int error = 0;
    if (step->kind != WB__STEP_ATTENTION) return false;
    const cudnn_entry *e = cudnn_entry_of(d, step, &reason, &error);
    if (!e && !reason) wb_clear_error();
    return e;
}

/* Whether a convolution is faster with channels last (NHWC): tensor cores read vectors of 16 bytes
 * of channels.  cuDNN itself pads an input of up to 4 channels. */
static bool prefers_channels_last(wb__gpu_device *base, const wb__step *conv)
{
    const wb__cu_device *d = wb__cu_of(base);
    const wb__view *x = &conv->views[0], *y = &conv->views[2];
    const bool half = wb__is_half(x->dtype);
    const bool rounded = x->dtype == WB_F32 && conv->precision != WB__PRECISION_HIGHEST;
    const int64_t vector = half ? 8 : 4, c = x->dims[1], k = y->dims[1];
    if (conv->kind != WB__STEP_CONV || !(half || (rounded && d->arch >= 90))) return false;
    if (k % vector || (c % vector && c > 4)) return false;
    return wb__gpu_vendor_handle(base, &cudnn_library) != NULL;
}

const wb__gpu_hook wb__cu_dnn = {
    .kinds = 1u << WB__STEP_CONV | 1u << WB__STEP_ATTENTION, .vendor = &cudnn_library,
    .supports = cudnn_supports, .prepare = cudnn_prepare, .launch = cudnn_launch,
    .destroy = cudnn_destroy_routine, .prefers_channels_last = prefers_channels_last,
};
