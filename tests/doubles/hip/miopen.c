/* A test double of MIOpen's convolutions in immediate mode: plain loops.  See hip.h.
 *
 * Numbers and rules are those of miopen.h of ROCm 5 to 7 and of "Using the find APIs and immediate
 * mode" in MIOpen's documentation.  Solutions are listed, the fastest first:
 *
 *   Winograd        for windows of 3 x 3, without strides and groups, in NCHW
 *   implicit GEMM   not deterministic for the gradient of the weights; NHWC and NCHW
 *   GEMM            by rocBLAS, with workspace for the unfolded picture; NCHW
 *   direct          NCHW
 *
 * It counts as wrong what the real library does without a word, or does not define: a launch on a
 * stream that was not set, of a solution that was not compiled (it is compiled then, which takes
 * long and must not happen while commands are recorded), with too small a workspace or tensors that
 * are not in one block; and destroyed or incomplete descriptors.
 *
 *   VGPU_MIOPEN_SOLUTIONS   letters of the solutions that exist (wigd)
 *   VGPU_MIOPEN_WORKSPACE   the bytes of workspace that each solution needs
 *   VGPU_MIOPEN_DECLINES=n  every n-th solution cannot be compiled
 *   VGPU_MIOPEN_REFUSES=n   every n-th launch fails */
#include "hip.h"

#include "../cuda/number.h"

enum { SUCCESS = 0, INVALID_VALUE = 2, BAD_PARAMETER = 3, NO_MEMORY = 4, INTERNAL_ERROR = 5,
       NOT_IMPLEMENTED = 6 };
enum { HALF = 0, FLOAT = 1, BFLOAT16 = 5 };
enum { NCHW = 0, NHWC = 1 };
enum { CONVOLUTION = 0, DETERMINISTIC = 1 };
enum { GEMM = 0, DIRECT = 1, WINOGRAD = 3, IMPLICIT_GEMM = 5 };
typedef enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS } direction;

/* ---- objects --------------------------------------------------------------------------------- */

static const uint32_t alive = 0x310a, dead = 0xdead;

typedef struct {
    uint32_t magic;
    bool is_set;
    int type, layout, dims[4];
} *tensor;

typedef struct {
    uint32_t magic;
    bool is_set;
    int pad[2], stride[2], dilation[2], groups, deterministic;
} *convolution;

/* A problem without its addresses; x, w and y are as in the forward direction. */
typedef struct {
    direction way;
    int type, layout, x[4], w[4], y[4];
    int pad[2], stride[2], dilation[2], groups, deterministic;
} problem;

typedef struct compiled {
    struct compiled *next;
    problem problem;
    uint64_t id;
} compiled;

typedef struct {
    uint32_t magic;
    CUstream stream;
    bool has_stream;
    compiled *first;
} *handle;

VGPU_API const char *miopenGetErrorString(int status)
{
    static const char *const names[] = {"miopenStatusSuccess", "miopenStatusNotInitialized",
                                        "miopenStatusInvalidValue", "miopenStatusBadParm",
                                        "miopenStatusAllocFailed", "miopenStatusInternalError",
                                        "miopenStatusNotImplemented"};
    return status >= 0 && status < 7 ? names[status] : "Unknown error status";
}

/* Whether an object exists.  Each begins with its magic number. */
static bool exists(const void *object, const char *call)
{
    if (object && *(const uint32_t *)object == alive) return true;
    vgpu_wrong("%s: an object that does not exist, or is destroyed", call);
    return false;
}

static int make(void **made, size_t bytes, const char *call)
{
    if (!made) return BAD_PARAMETER;
    if (vgpu_fails(call)) return NO_MEMORY;
    void *object = calloc(1, bytes);
    if (!object) return NO_MEMORY;
    *(uint32_t *)object = alive;
    *made = object;
    vgpu_held(1);
    return SUCCESS;
}

static int destroy(void *object, const char *call)
{
    if (!exists(object, call)) return BAD_PARAMETER;
    *(uint32_t *)object = dead;
    free(object);
    vgpu_held(-1);
    return SUCCESS;
}

VGPU_API int miopenCreate(handle *made)
{
    return make((void **)made, sizeof **made, "miopenCreate");
}

VGPU_API int miopenDestroy(handle h)
{
    if (!exists(h, "miopenDestroy")) return BAD_PARAMETER;
    while (h->first) {
        compiled *next = h->first->next;
        free(h->first);
        h->first = next;
    }
    return destroy(h, "miopenDestroy");
}

VGPU_API int miopenSetStream(handle h, CUstream stream)
{
    if (!exists(h, "miopenSetStream")) return BAD_PARAMETER;
    if (vgpu_fails("miopenSetStream")) return INTERNAL_ERROR;
    h->stream = stream;
    h->has_stream = true;
    return SUCCESS;
}

VGPU_API int miopenCreateTensorDescriptor(tensor *made)
{
    return make((void **)made, sizeof **made, "miopenCreateTensorDescriptor");
}

VGPU_API int miopenDestroyTensorDescriptor(tensor t)
{
    return destroy(t, "miopenDestroyTensorDescriptor");
}

/* The dimensions are N, C, H, W in both layouts; the tensor is packed. */
VGPU_API int miopenSetNdTensorDescriptorWithLayout(tensor t, int type, int layout, const int *dims,
                                                   int n)
{
    if (!exists(t, "miopenSetNdTensorDescriptorWithLayout") || !dims) return BAD_PARAMETER;
    if (n != 4 || (layout != NCHW && layout != NHWC)) return BAD_PARAMETER;
    if (type != HALF && type != FLOAT && type != BFLOAT16) return BAD_PARAMETER;
    for (int i = 0; i < n; i++)
        if (dims[i] < 1) return BAD_PARAMETER;
    t->type = type;
    t->layout = layout;
    memcpy(t->dims, dims, sizeof t->dims);
    t->is_set = true;
    return SUCCESS;
}

VGPU_API int miopenCreateConvolutionDescriptor(convolution *made)
{
    const int status = make((void **)made, sizeof **made, "miopenCreateConvolutionDescriptor");
    if (!status) (*made)->groups = 1;
    return status;
}

VGPU_API int miopenDestroyConvolutionDescriptor(convolution c)
{
    return destroy(c, "miopenDestroyConvolutionDescriptor");
}

VGPU_API int miopenInitConvolutionNdDescriptor(convolution c, int n, const int *pad,
                                               const int *stride, const int *dilation, int mode)
{
    if (!exists(c, "miopenInitConvolutionNdDescriptor") || n != 2 || mode != CONVOLUTION)
        return BAD_PARAMETER;
    for (int i = 0; i < 2; i++)
        if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1) return BAD_PARAMETER;
    memcpy(c->pad, pad, sizeof c->pad);
    memcpy(c->stride, stride, sizeof c->stride);
    memcpy(c->dilation, dilation, sizeof c->dilation);
    c->is_set = true;
    return SUCCESS;
}

VGPU_API int miopenSetConvolutionGroupCount(convolution c, int groups)
{
    if (!exists(c, "miopenSetConvolutionGroupCount") || groups < 1) return BAD_PARAMETER;
    if (!c->is_set) vgpu_wrong("miopenSetConvolutionGroupCount: before the initialisation");
    c->groups = groups;
    return SUCCESS;
}

VGPU_API int miopenSetConvolutionAttribute(convolution c, int what, int value)
{
    if (!exists(c, "miopenSetConvolutionAttribute") || what != DETERMINISTIC) return BAD_PARAMETER;
    c->deterministic = value;
    return SUCCESS;
}

/* ---- problems -------------------------------------------------------------------------------- */

/* Sets *p to the problem of three descriptors in the order of the direction's functions. */
static int problem_of(problem *p, direction way, handle h, tensor a, tensor b, convolution how,
                      tensor c, const char *call)
{
    const tensor x = way == BACKWARD_DATA ? c : b, w = way == FORWARD ? a :
                 way == BACKWARD_DATA ? b : c, y = way == FORWARD ? c : a;
    if (!exists(h, call) || !exists(a, call) || !exists(b, call) || !exists(how, call) ||
        !exists(c, call))
        return BAD_PARAMETER;
    if (!a->is_set || !b->is_set || !c->is_set || !how->is_set) {
        vgpu_wrong("%s: a descriptor that was not set", call);
        return BAD_PARAMETER;
    }
    memset(p, 0, sizeof *p);
    p->way = way, p->type = x->type, p->layout = x->layout;
    p->groups = how->groups, p->deterministic = how->deterministic;
    memcpy(p->x, x->dims, sizeof p->x);
    memcpy(p->w, w->dims, sizeof p->w);
    memcpy(p->y, y->dims, sizeof p->y);
    memcpy(p->pad, how->pad, sizeof p->pad);
    memcpy(p->stride, how->stride, sizeof p->stride);
    memcpy(p->dilation, how->dilation, sizeof p->dilation);
    bool fits = w->type == x->type && y->type == x->type && p->x[0] == p->y[0] &&
                p->x[1] == p->w[1] * p->groups && p->y[1] == p->w[0] && p->w[0] % p->groups == 0;
    for (int i = 0; i < 2; i++) {
        const int wide = p->dilation[i] * (p->w[2 + i] - 1) + 1;
        fits &= p->y[2 + i] == (p->x[2 + i] + 2 * p->pad[i] - wide) / p->stride[i] + 1;
        if (p->groups > 1 && p->dilation[i] > 1)
            vgpu_wrong("%s: groups with dilation, which the documentation excludes", call);
    }
    if (!fits) {
        vgpu_wrong("%s: the sizes do not fit", call);
        return BAD_PARAMETER;
    }
    return w->layout == x->layout && y->layout == x->layout ? SUCCESS : NOT_IMPLEMENTED;
}

/* ---- solutions ------------------------------------------------------------------------------- */

/* As miopenConvSolution_t. */
typedef struct {
    float time;
    size_t workspace;
    uint64_t id;
    int algorithm;
} solution;

static const struct { char letter; int algorithm; uint64_t id; } known[] = {
    {'w', WINOGRAD, 53}, {'i', IMPLICIT_GEMM, 98}, {'g', GEMM, 91}, {'d', DIRECT, 85}};
enum { KNOWN = sizeof known / sizeof *known };

static int64_t from_environment(const char *variable, int64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? atoll(value) : otherwise;
}

/* Counts a call; true if it is an n-th one, where n is the value of the environment variable. */
static bool is_turn(const char *variable, int64_t *calls)
{
    const int64_t n = from_environment(variable, 0);
    return n > 0 && __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) % n == 0;
}

static bool applies(const problem *p, int i)
{
    const char *letters = getenv("VGPU_MIOPEN_SOLUTIONS");
    if (letters && !strchr(letters, known[i].letter)) return false;
    switch (known[i].algorithm) {
    case WINOGRAD:
        return p->layout == NCHW && p->w[2] == 3 && p->w[3] == 3 && p->groups == 1 &&
               p->stride[0] == 1 && p->stride[1] == 1 && p->dilation[0] == 1 && p->dilation[1] == 1;
    case IMPLICIT_GEMM: return !p->deterministic || p->way != BACKWARD_WEIGHTS;
    default: return p->layout == NCHW;
    }
}

static size_t workspace_of(const problem *p, int i)
{
    const size_t unfolded = (size_t)p->x[1] * (size_t)(p->w[2] * p->w[3] * p->y[2] * p->y[3]) * 4;
    return (size_t)from_environment("VGPU_MIOPEN_WORKSPACE",
                                    known[i].algorithm == GEMM ? (int64_t)unfolded
                                    : known[i].algorithm == IMPLICIT_GEMM ? 512 : 0);
}

/* The index of a solution that applies; -1: none. */
static int index_of(const problem *p, uint64_t id, const char *call)
{
    for (int i = 0; i < KNOWN; i++)
        if (known[i].id == id && applies(p, i)) return i;
    vgpu_wrong("%s: solution %llu does not apply", call, (unsigned long long)id);
    return -1;
}

/* The largest number, which may be more than there are.  No solution is an error. */
static int count(const problem *p, size_t *n)
{
    for (int i = 0; i < KNOWN; i++)
        if (applies(p, i)) {
            *n = KNOWN + 1;
            return SUCCESS;
        }
    return NOT_IMPLEMENTED;
}

static int list(const problem *p, size_t capacity, size_t *n, solution *to)
{
    *n = 0;
    for (int i = 0; i < KNOWN && *n < capacity; i++)
        if (applies(p, i)) {
            to[*n] = (solution){(float)(1 + i), workspace_of(p, i), known[i].id,
                                known[i].algorithm};
            ++*n;
        }
    return *n ? SUCCESS : NOT_IMPLEMENTED;
}

static const compiled *find(handle h, const problem *p, uint64_t id)
{
    const compiled *c = h->first;
    while (c && (c->id != id || memcmp(&c->problem, p, sizeof *p))) c = c->next;
    return c;
}

static int compile(handle h, const problem *p, uint64_t id, const char *call)
{
    static int64_t calls;
    if (index_of(p, id, call) < 0) return BAD_PARAMETER;
    if (is_turn("VGPU_MIOPEN_DECLINES", &calls)) return INTERNAL_ERROR;
    compiled *c = find(h, p, id) ? NULL : malloc(sizeof *c);
    if (!c) return find(h, p, id) ? SUCCESS : NO_MEMORY;
    *c = (compiled){h->first, *p, id};
    h->first = c;
    return SUCCESS;
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef struct {
    problem p;
    const char *x, *w, *y;
    void *workspace;
    size_t bytes;
} task;

static int number_type(int type)
{
    return type == FLOAT ? VGPU_F32 : type == HALF ? VGPU_F16 : VGPU_BF16;
}

static int64_t at(const problem *p, const int dims[4], int n, int c, int h, int w)
{
    if (p->layout == NHWC)
        return (((int64_t)n * dims[2] + h) * dims[3] + w) * dims[1] + c;
    return (((int64_t)n * dims[1] + c) * dims[2] + h) * dims[3] + w;
}

/* Adds the products of one element of y to the sums of the direction's result. */
static void add(const task *t, double *sums, int n, int k, int oh, int ow)
{
    const problem *p = &t->p;
    const int type = number_type(p->type), first = k / (p->w[0] / p->groups) * p->w[1];
    const int64_t to = at(p, p->y, n, k, oh, ow);
    for (int c = 0; c < p->w[1]; c++)
        for (int r = 0; r < p->w[2]; r++)
            for (int s = 0; s < p->w[3]; s++) {
                const int h = oh * p->stride[0] + r * p->dilation[0] - p->pad[0];
                const int w = ow * p->stride[1] + s * p->dilation[1] - p->pad[1];
                if (h < 0 || w < 0 || h >= p->x[2] || w >= p->x[3]) continue;
                const int64_t x = at(p, p->x, n, first + c, h, w), of = at(p, p->w, k, c, r, s);
                if (p->way == FORWARD)
                    sums[to] += vgpu_load(t->x, type, x) * vgpu_load(t->w, type, of);
                else if (p->way == BACKWARD_DATA)
                    sums[x] += vgpu_load(t->y, type, to) * vgpu_load(t->w, type, of);
                else
                    sums[of] += vgpu_load(t->y, type, to) * vgpu_load(t->x, type, x);
            }
}

static size_t size_of(const int dims[4])
{
    return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3];
}

static int run(void *payload)
{
    const task *t = payload;
    const problem *p = &t->p;
    const int *made = p->way == FORWARD ? p->y : p->way == BACKWARD_DATA ? p->x : p->w;
    const char *to = p->way == FORWARD ? t->y : p->way == BACKWARD_DATA ? t->x : t->w;
    double *sums = calloc(size_of(made), sizeof *sums);
    if (!sums) return CUDA_ERROR_OUT_OF_MEMORY;
    if (t->bytes) memset(t->workspace, 0xff, t->bytes);
    for (int n = 0; n < p->y[0]; n++)
        for (int k = 0; k < p->y[1]; k++)
            for (int h = 0; h < p->y[2]; h++)
                for (int w = 0; w < p->y[3]; w++) add(t, sums, n, k, h, w);
    for (size_t i = 0; i < size_of(made); i++)
        vgpu_store((void *)(uintptr_t)to, number_type(p->type), (int64_t)i, sums[i]);
    free(sums);
    return 0;
}

static bool is_there(const void *at, size_t bytes) { return vgpu_span((uintptr_t)at) >= bytes; }

static int launch(handle h, const problem *p, const void *a, const void *b, void *c,
                  void *workspace, size_t bytes, uint64_t id, const char *call)
{
    static int64_t calls;
    const int i = index_of(p, id, call);
    if (i < 0) return BAD_PARAMETER;
    const size_t needed = workspace_of(p, i), one = vgpu_size(number_type(p->type));
    task t = {.p = *p, .workspace = workspace, .bytes = needed,
              .x = p->way == BACKWARD_DATA ? c : b, .y = p->way == FORWARD ? c : a,
              .w = p->way == FORWARD ? a : p->way == BACKWARD_DATA ? b : c};
    if (is_turn("VGPU_MIOPEN_REFUSES", &calls)) return INTERNAL_ERROR;
    if (!find(h, p, id)) vgpu_wrong("%s: the solution was not compiled", call);
    if (!h->has_stream) vgpu_wrong("%s: no stream was set", call);
    if (bytes < needed || (needed && !is_there(workspace, needed)) || (uintptr_t)workspace % 256)
        vgpu_wrong("%s: %zu bytes of workspace at %p, %zu are needed", call, bytes, workspace,
                   needed);
    if (!is_there(t.x, size_of(p->x) * one) || !is_there(t.w, size_of(p->w) * one) ||
        !is_there(t.y, size_of(p->y) * one))
        vgpu_wrong("%s: a tensor is not in one block", call);
    return vgpu_enqueue(h->stream, call, run, &t, sizeof t) ? INTERNAL_ERROR : SUCCESS;
}

/* ---- the functions of each direction --------------------------------------------------------- */

#define PROBLEM handle h, tensor a, tensor b, convolution how, tensor c
#define BEGIN(Name, which, name)                                                                   \
    static const char call[] = "miopenConvolution" #Name #name;                                    \
    problem p;                                                                                     \
    const int status = problem_of(&p, which, h, a, b, how, c, call);                               \
    if (status) return status;                                                                     \
    if (vgpu_fails(call)) return INTERNAL_ERROR

#define FUNCTIONS(Name, which)                                                                     \
    VGPU_API int miopenConvolution##Name##GetSolutionCount(PROBLEM, size_t *n)                     \
    {                                                                                              \
        BEGIN(Name, which, GetSolutionCount);                                                      \
        return count(&p, n);                                                                       \
    }                                                                                              \
    VGPU_API int miopenConvolution##Name##GetSolution(PROBLEM, size_t capacity, size_t *n,         \
                                                      solution *to)                                \
    {                                                                                              \
        BEGIN(Name, which, GetSolution);                                                           \
        return list(&p, capacity, n, to);                                                          \
    }                                                                                              \
    VGPU_API int miopenConvolution##Name##GetSolutionWorkspaceSize(PROBLEM, uint64_t id,           \
                                                                   size_t *bytes)                  \
    {                                                                                              \
        BEGIN(Name, which, GetSolutionWorkspaceSize);                                              \
        const int i = index_of(&p, id, call);                                                      \
        if (i >= 0) *bytes = workspace_of(&p, i);                                                  \
        return i < 0 ? BAD_PARAMETER : SUCCESS;                                                    \
    }                                                                                              \
    VGPU_API int miopenConvolution##Name##CompileSolution(PROBLEM, uint64_t id)                    \
    {                                                                                              \
        BEGIN(Name, which, CompileSolution);                                                       \
        return compile(h, &p, id, call);                                                           \
    }                                                                                              \
    VGPU_API int miopenConvolution##Name##Immediate(                                               \
        handle h, tensor a, const void *a_at, tensor b, const void *b_at, convolution how,         \
        tensor c, void *c_at, void *workspace, size_t bytes, uint64_t id)                          \
    {                                                                                              \
        BEGIN(Name, which, Immediate);                                                             \
        return launch(h, &p, a_at, b_at, c_at, workspace, bytes, id, call);                        \
    }
FUNCTIONS(Forward, FORWARD)
FUNCTIONS(BackwardData, BACKWARD_DATA)
FUNCTIONS(BackwardWeights, BACKWARD_WEIGHTS)
