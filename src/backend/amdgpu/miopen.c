/* Convolutions by MIOpen.  The library is opened for the first convolution.  Its immediate mode is
 * used: MIOpen lists solutions, the fastest first, from its database or an estimate, without
 * running any; the first solution that is allowed is compiled when the step is prepared.  MIOpen
 * keeps compiled kernels on disk.  It adds no bias and no epilogue; a kernel of ours applies these.
 *
 *   WEBER_AMDGPU_MIOPEN   0: MIOpen is not used */
#include "backend/amdgpu/amdgpu.h"
#include "backend/amdgpu/miopen.h"

#include <stdio.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__miopen_functions mi;

/* A convolution without its addresses: the problem (vendor.h) of its entry.  It is initialised with
 * zeros, since problems are compared byte by byte.  variant: a wb__conv_kind.  type, layout: codes
 * of MIOpen.  accurate: 1: neither FFT nor Winograd.  dims: N, C, H, W of x, w and y. */
typedef struct {
    int32_t variant, type, layout, groups, deterministic, accurate;
    int32_t dims[3][4], pad[2], stride[2], dilation[2];
} miopen_problem;

typedef struct {
    wb__gpu_entry base;
    miopen_problem problem;
    miopenTensorDescriptor_t tensor[3];         /* of x, w and y */
    miopenConvolutionDescriptor_t how;          /* padding, strides, dilation and groups */
    wb__miopen_solution solution;               /* a solution that has been compiled */
} miopen_entry;
_Static_assert(offsetof(miopen_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

typedef struct {
    wb__gpu_routine base;
    miopen_entry *entry;
    miopenHandle_t handle;
    int buffer[3];                      /* indices, in the plan, of the buffers of x, w and y */
    size_t at[3];                       /* the operands' offsets in their buffers, in bytes */
} miopen_routine;

/* The maximal workspace of a convolution, in bytes. */
enum { MAX_WORKSPACE = 256 << 20 };

/* The indices of a, b and c of each direction (miopen.h) among x, w and y. */
static const int miopen_operand[3][3] = {[WB__CONV_FORWARD] = {1, 0, 2},
                                         [WB__CONV_GRAD_INPUT] = {2, 1, 0},
                                         [WB__CONV_GRAD_WEIGHT] = {2, 0, 1}};

#define AT(name) offsetof(wb__miopen_functions, name)
#define NAME(name, parameters) {"miopen" #name, AT(name)},
#define NAMES(kind, which)                                                                         \
    {"miopenConvolution" #which "GetSolutionCount", AT(direction[kind].GetSolutionCount)},         \
    {"miopenConvolution" #which "GetSolution", AT(direction[kind].GetSolution)},                   \
    {"miopenConvolution" #which "GetSolutionWorkspaceSize",                                        \
     AT(direction[kind].GetSolutionWorkspaceSize)},                                                \
    {"miopenConvolution" #which "CompileSolution", AT(direction[kind].CompileSolution)},           \
    {"miopenConvolution" #which "Immediate", AT(direction[kind].Immediate)},
static const wb__gpu_function miopen_functions[] = {
    WB__MIOPEN_FUNCTIONS(NAME) WB__MIOPEN_DIRECTIONS(NAMES) NAME(GetErrorString, (HIPenum status))
};
#undef NAME
#undef NAMES
#undef AT
_Static_assert(WB__COUNT(miopen_functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");
_Static_assert(sizeof miopen_functions / sizeof *miopen_functions * sizeof(void *) == sizeof mi,
               "all of them");

/* Returns the name of the function of the entry's direction at this offset of its table. */
static const char *miopen_name_at(const miopen_entry *e, size_t offset)
{
    const wb__gpu_function *f = miopen_functions;
    while (f->at != offsetof(wb__miopen_functions, direction[e->problem.variant]) + offset) f++;
    return f->name;
}

/* Whether the library can be used: a MIOpen of another version of ROCm brings its own HIP. */
static bool miopen_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__miopen_functions *f = table;
    void *address = NULL, *ours = NULL;
    memcpy(&address, &f->Create, sizeof address);
    memcpy(&ours, &hip.Init, sizeof ours);
    if (!missing) return wb__gpu_shares_driver(address, "hipInit", ours, reason, capacity);
    snprintf(reason, capacity, "libMIOpen has no %s: it is too old", missing);
    return false;
}

static int miopen_create_handle(void **handle)
{
    miopenHandle_t made = NULL;
    const int status = (int)mi.Create(&made);
    *handle = made;
    return status;
}

static void miopen_destroy_handle(void *handle) { mi.Destroy(handle); }
static const char *miopen_status_name(int status) { return mi.GetErrorString((HIPenum)status); }
static bool miopen_is_memory_error(int status) { return status == miopenStatusAllocFailed; }

/* ---- solutions ------------------------------------------------------------------------------- */

/* A search for the solution of an entry.  `call` is the name of the call that was made last. */
typedef struct {
    wb__hip_device *device;
    miopenHandle_t handle;
    miopen_entry *entry;
    const char *call;
} miopen_search;

#define MI(s, name, ...) ((s)->call = "miopen" #name, (int)mi.name(__VA_ARGS__))
/* Calls a function of the entry's direction. */
#define MI_DIRECTION(s, name, ...)                                                                 \
    ((s)->call = miopen_name_at((s)->entry, offsetof(wb__miopen_direction, name)),                 \
     (int)mi.direction[(s)->entry->problem.variant].name(                                          \
         (s)->handle, miopen_tensor_of((s)->entry, 0), miopen_tensor_of((s)->entry,                \
                                                                        1), (s)->entry->how,       \
         miopen_tensor_of((s)->entry, 2), __VA_ARGS__))

static miopenTensorDescriptor_t miopen_tensor_of(const miopen_entry *e, int i)
{
    return e->tensor[miopen_operand[e->problem.variant][i]];
}

/* Frees the descriptors of an entry; those that were not created are NULL. */
static void miopen_drop_entry(wb__gpu_entry *base)
{
    miopen_entry *e = (miopen_entry *)base;
    for (int i = 0; i < 3; i++) {
        if (e->tensor[i]) mi.DestroyTensorDescriptor(e->tensor[i]);
        e->tensor[i] = NULL;
    }
    if (e->how) mi.DestroyConvolutionDescriptor(e->how);
    e->how = NULL;
}

/* Creates the descriptors of the entry.  Returns MIOpen's status. */
static int miopen_describe(miopen_search *s)
{
    miopen_entry *e = s->entry;
    const miopen_problem *p = &e->problem;
    int status = 0;
    for (int i = 0; i < 3 && !status; i++) {
        status = MI(s, CreateTensorDescriptor, &e->tensor[i]);
        if (status) e->tensor[i] = NULL;
        else
            status = MI(s, SetNdTensorDescriptorWithLayout, e->tensor[i], (HIPenum)p->type,
                        (HIPenum)p->layout, p->dims[i], 4);
    }
    if (status) return status;
    if ((status = MI(s, CreateConvolutionDescriptor, &e->how))) {
        e->how = NULL;
        return status;
    }
    status = MI(s, InitConvolutionNdDescriptor, e->how, 2, p->pad, p->stride, p->dilation,
                miopenConvolution);
    if (!status) status = MI(s, SetConvolutionGroupCount, e->how, p->groups);
    if (!status && p->deterministic)
        status = MI(s, SetConvolutionAttribute, e->how, MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC, 1);
    return status;
}

/* Whether a solution may be used.  FFT and Winograd are less accurate than a sum of products.  GEMM
 * calls rocBLAS, which ends the process if it has no kernels for the GPU. */
static bool is_allowed(const miopen_search *s, const wb__miopen_solution *solution)
{
    switch (solution->algorithm) {
    case miopenConvolutionAlgoFFT: case miopenConvolutionAlgoWinograd:
        return !s->entry->problem.accurate;
    case miopenConvolutionAlgoGEMM: return wb__hip_blas_serves(s->device);
    default: return true;
    }
}

/* Compiles the first allowed solution of n, which are sorted by time.  *status receives the status
 * of the last call that failed.  Returns whether a solution was compiled. */
static bool compile_first(miopen_search *s, const wb__miopen_solution *solutions, size_t n,
                          int *status)
{
    for (size_t i = 0; i < n; i++) {
        wb__miopen_solution chosen = solutions[i];
        if (!is_allowed(s, &chosen)) continue;
        /* the list may have sizes that an older version of MIOpen has kept in its database */
        *status = MI_DIRECTION(s, GetSolutionWorkspaceSize, chosen.solution_id,
                               &chosen.workspace_size);
        if (!*status && chosen.workspace_size > MAX_WORKSPACE) continue;
        if (!*status) *status = MI_DIRECTION(s, CompileSolution, chosen.solution_id);
        if (miopen_is_memory_error(*status)) return false;
        if (*status) continue;
        s->entry->solution = chosen;
        return true;
    }
    return false;
}

/* Sets the entry's solution.  Returns MIOpen's status.  0 and !found: no solution is allowed. */
static int miopen_choose_solution(miopen_search *s, bool *found)
{
    size_t capacity = 0, n = 0;
    int status = miopen_describe(s);
    if (!status) status = MI_DIRECTION(s, GetSolutionCount, &capacity);
    if (status || !capacity) return status;
    wb__miopen_solution *solutions = wb__alloc_zero(capacity, sizeof *solutions);
    if (!solutions) {
        s->call = "memory for the list of solutions";
        return miopenStatusAllocFailed;
    }
    status = MI_DIRECTION(s, GetSolution, capacity, &n, solutions);
    if (!status) *found = compile_first(s, solutions, WB__MIN(n, capacity), &status);
    wb__free(solutions);
    return status;
}

static int miopen_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                             wb__gpu_entry *e)
{
    miopen_search s = {.device = wb__hip_of(d), .handle = handle, .entry = (miopen_entry *)e};
    const int status = miopen_choose_solution(&s, &e->found);
    if (!e->found) miopen_drop_entry(e);
    if (!e->found && miopen_is_memory_error(status))
        return wb__gpu_vendor_fail(d, l, status, s.call);
    if (!e->found && status) wb__gpu_vendor_log_failure(d, l, status, s.call);
    return 0;
}

static wb__gpu_vendor miopen_library = {
    .name = "MIOpen", .variable = "WEBER_AMDGPU_MIOPEN",
    .advice = "install MIOpen (Debian 12 and 13 have none: AMD's packages for Debian and Ubuntu:"
              " miopen-hip; Ubuntu 25.10: libmiopen1; Fedora: miopen), or name its folder in"
              " WEBER_ROCM_PATH",
    .search = &wb__hip_search,
    .files = (const wb__gpu_file[]){{"libMIOpen.so.1", 0}, {"libMIOpen.so", 0}, {NULL, 0}},
    .functions = miopen_functions, .n_functions = WB__COUNT(miopen_functions), .table = &mi,
    .suits = miopen_is_usable, .creating = "miopenCreate", .create = miopen_create_handle,
    .destroy = miopen_destroy_handle, .status_name = miopen_status_name,
    .is_memory = miopen_is_memory_error, .entry_bytes = sizeof(miopen_entry),
    .problem_bytes = sizeof(miopen_problem), .find = miopen_fill_entry, .drop = miopen_drop_entry,
    .reasons = {"MIOpen is not used", "MIOpen: it does not work here", "MIOpen: it has no solution",
                "MIOpen: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__hip_miopen_works(void) { return wb__gpu_vendor_works(&miopen_library); }

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns the layout that x, w and y all have; -1: their layouts differ. */
static int layout_of(const wb__view views[3])
{
    for (int last = 0; last < 2; last++) {
        bool all = true;
        for (int i = 0; i < 3; i++) all &= wb__gpu_is_dense(&views[i], last);
        if (all) return last ? miopenTensorNHWC : miopenTensorNCHW;
    }
    return -1;
}

/* Sets *p and r's operands from a step.  Returns NULL, or a short reason not to use MIOpen. */
static const char *miopen_problem_of(wb__hip_device *d, const wb__step *step, miopen_problem *p,
                                     miopen_routine *r)
{
    const wb__conv_attr *a = &step->conv;
    const wb_dtype t = step->views[0].dtype;
    memset(p, 0, sizeof *p);
    if (step->n_views > 3 || step->epilogue) return "MIOpen: bias or epilogue";
    if (t != WB_F32 && !wb__is_half(t)) return "MIOpen: not of f32, f16 or bf16";
    /* the matrix units of gfx90a replace subnormal numbers by 0: those of bf16 are as small as
     * those of f32, but those of f16 begin at 6e-5, and their loss matters */
    if (t == WB_F16 && wb__begins(d->arch, "gfx90a")) return "MIOpen: f16 on gfx90a";
    for (int i = 0; i < 3; i++) {
        const wb__view *v = &step->views[i];
        int64_t n = 1;
        if (v->dtype != t) return "MIOpen: mixed dtypes";
        if (v->ndim != 4) return "MIOpen: not of two dimensions";
        for (int k = 0; k < 4; k++) {
            if (v->dims[k] < 1) return "MIOpen: nothing to do";
            if (v->dims[k] > INT32_MAX / n) return "MIOpen: too large";
            n *= v->dims[k];
            p->dims[i][k] = (int32_t)v->dims[k];
        }
        r->buffer[i] = v->buffer;
        r->at[i] = (size_t)v->offset * wb__dtype_size(t);
    }
    p->layout = layout_of(step->views);
    if (p->layout < 0) return "MIOpen: layouts";
    for (int k = 0; k < 2; k++) {
        const int64_t pad = a->pad[2 * k], wide = a->dilation[k] * (p->dims[1][2 + k] - 1) + 1;
        if (pad < 0 || pad != a->pad[2 * k + 1]) return "MIOpen: asymmetrical padding";
        if (a->groups > 1 && a->dilation[k] > 1) return "MIOpen: groups with dilation";
        if (WB__MAX(WB__MAX(pad, wide), a->stride[k]) > INT32_MAX) return "MIOpen: too large";
        if ((p->dims[0][2 + k] + 2 * pad - wide) / a->stride[k] + 1 != p->dims[2][2 + k])
            return "MIOpen: the size of the result";
        p->pad[k] = (int32_t)pad;
        p->stride[k] = (int32_t)a->stride[k];
        p->dilation[k] = (int32_t)a->dilation[k];
    }
    p->variant = step->variant;
    p->type = t == WB_F32 ? miopenFloat : t == WB_F16 ? miopenHalf : miopenBFloat16;
    p->groups = (int32_t)a->groups;
    p->deterministic = step->deterministic;
    p->accurate = t != WB_F32 || step->precision == WB__PRECISION_HIGHEST;
    return NULL;
}

static const char *miopen_name_of(const wb__miopen_solution *solution)
{
    switch (solution->algorithm) {
    case miopenConvolutionAlgoGEMM: return "MIOpen GEMM";
    case miopenConvolutionAlgoDirect: return "MIOpen direct";
    case miopenConvolutionAlgoFFT: return "MIOpen FFT";
    case miopenConvolutionAlgoWinograd: return "MIOpen Winograd";
    case miopenConvolutionAlgoImplicitGEMM: return "MIOpen implicit GEMM";
    default: return "MIOpen";
    }
}

static int miopen_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                          const char **reason)
{
    miopen_problem p;
    miopen_routine made = {.base = {.library = &wb__hip_miopen}};
    int error = WB_ERROR_UNSUPPORTED;
    *reason = miopen_problem_of(wb__hip_of(d), step, &p, &made);
    if (*reason) return error;
    made.entry = (miopen_entry *)wb__gpu_entry_of(d, &miopen_library, &p, reason, &error);
    if (!made.entry) return error;
    made.base.impl = miopen_name_of(&made.entry->solution);
    made.base.workspace = made.entry->solution.workspace_size;
    made.handle = wb__gpu_vendor_handle(d, &miopen_library);
    return wb__gpu_keep_routine(&made.base, sizeof made, &made.entry->base, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

static int miopen_launch(wb__gpu_device *base, wb__gpu_routine *of, wb__gpu_queue q,
                         const wb__gpu_addresses *addresses)
{
    wb__hip_device *d = wb__hip_of(base);
    miopen_routine *r = (miopen_routine *)of;
    miopen_entry *e = r->entry;
    const int *which = miopen_operand[e->problem.variant];
    void *at[3], *lent = (void *)(uintptr_t)(addresses->workspace + addresses->workspace_at);
    for (int j = 0; j < 3; j++)
        at[j] = (void *)(uintptr_t)(addresses->address[r->buffer[which[j]]] + r->at[which[j]]);
    if (!of->workspace) lent = NULL;
    if (d->miopen_stream != d->stream[q]) {
        d->miopen_stream = NULL;
        const int status = (int)mi.SetStream(r->handle, d->stream[q]);
        if (status) return wb__gpu_vendor_fail(base, &miopen_library, status, "miopenSetStream");
        d->miopen_stream = d->stream[q];
    }
    const int status = (int)mi.direction[e->problem.variant].Immediate(
        r->handle, miopen_tensor_of(e, 0), at[0], miopen_tensor_of(e, 1), at[1], e->how,
        miopen_tensor_of(e, 2), at[2], lent, of->workspace, e->solution.solution_id);
    if (status)
        return wb__gpu_refuse_entry(base, &miopen_library, &e->base, status,
                                    miopen_name_at(e, offsetof(wb__miopen_direction, Immediate)));
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(base, NULL);
    return 0;
}

const wb__gpu_hook wb__hip_miopen = {
    .kinds = 1u << WB__STEP_CONV, .bare = true, .vendor = &miopen_library,
    .prepare = miopen_prepare, .launch = miopen_launch,
};
