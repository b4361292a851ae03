/* A test double of cuDNN's graph interface: descriptors, and plans that plain loops execute
 * (cudnn_run.c).  See vgpu.h.
 *
 * It accepts the graphs that the backend builds; tests/drivers/cuda_plans.c tests whether the real
 * cuDNN accepts them.  An attribute must belong to its kind of descriptor and be set before the
 * descriptor is finalized.  Tensors must be in the variant pack, have the alignment that they
 * declare, and be within one block of memory.  The workspace is filled with NaN.
 *
 *   VGPU_DNN_DECLINES=n   finalizing every n-th plan fails
 *   VGPU_DNN_REFUSES=n    the launch of every n-th plan fails
 *   VGPU_DNN_NOTES=bits   each graph has two engines, the first with these numerical notes
 *   VGPU_DNN_TIMES=list   each graph has as many engine configurations, two of an engine, which
 *                         take so many microseconds; -1: its plan cannot be finalized; -2: its
 *                         launch fails
 *   VGPU_DNN_WORKSPACE    the bytes of workspace that the first configuration needs; the i-th needs
 *                         i times as much */
#include "cudnn.h"
#include "number.h"

#include <stdlib.h>

#define DNN(type, name, parameters)                                                                \
    VGPU_API type cudnn##name parameters;                                                          \
    VGPU_API type cudnn##name parameters

enum { MOST_ATTRIBUTES = 16 };

typedef struct {
    int name, type;
    int64_t n;
    char *data;
} attribute;

typedef struct {
    uint32_t magic;
    int type, n;
    bool finished;
    attribute list[MOST_ATTRIBUTES];
} descriptor;

static const uint32_t alive = 0xcd99, dead = 0xdead;
static int64_t noted;                   /* runs of engines with numerical notes, see below */

/* The number of runs of engines with numerical notes since the library was opened. */
VGPU_API int64_t vgpu_dnn_noted(void);
VGPU_API int64_t vgpu_dnn_noted(void) { return __atomic_load_n(&noted, __ATOMIC_RELAXED); }

static int64_t from_environment(const char *variable, int64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? atoll(value) : otherwise;
}

/* The number of engine configurations of each graph, which are numbered from 0. */
static int64_t configurations(void)
{
    const char *list = getenv("VGPU_DNN_TIMES");
    int64_t n = 1;
    if (!list || !*list) return from_environment("VGPU_DNN_NOTES", 0) ? 2 : 1;
    while ((list = strchr(list, ','))) list++, n++;
    return n;
}

static double time_of(int64_t configuration)
{
    const char *list = getenv("VGPU_DNN_TIMES");
    for (; list && configuration > 0; configuration--)
        if ((list = strchr(list, ','))) list++;
    return list && *list ? atof(list) : 0;
}

static int64_t workspace_of(int64_t configuration)
{
    return (configuration + 1) * from_environment("VGPU_DNN_WORKSPACE", 4096);
}

/* How often plans of a configuration were launched. */
static int64_t times_run[16];
VGPU_API int64_t vgpu_dnn_runs(int configuration);
VGPU_API int64_t vgpu_dnn_runs(int configuration) { return times_run[configuration % 16]; }

/* Counts a call; true if it is an n-th one, where n is the value of the environment variable. */
static bool is_turn(const char *variable, int64_t *calls)
{
    const int64_t n = from_environment(variable, 0);
    return n > 0 && __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) % n == 0;
}

DNN(size_t, GetVersion, (void)) { return 91900; }
DNN(size_t, GetCudartVersion, (void)) { return VGPU_MAJOR * 1000; }

DNN(const char *, GetErrorString, (wb__dnn_enum status))
{
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
                                                : "CUDNN_STATUS_BAD_PARAM";
}

DNN(void, GetLastErrorString, (char *message, size_t size))
{
    if (size) *message = 0;
}

/* ---- handles --------------------------------------------------------------------------------- */

struct cudnnContext { struct CUstream_st *stream; };

DNN(wb__dnn_enum, Create, (cudnnHandle_t *handle))
{
    if (from_environment("VGPU_DRIVER", 13000) / 1000 < VGPU_MAJOR)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    vgpu_held(*handle ? 1 : 0);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

DNN(wb__dnn_enum, Destroy, (cudnnHandle_t handle))
{
    free(handle);
    vgpu_held(-1);
    return CUDNN_STATUS_SUCCESS;
}

DNN(wb__dnn_enum, SetStream, (cudnnHandle_t handle, struct CUstream_st *stream))
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

DNN(wb__dnn_enum, BackendCreateDescriptor, (wb__dnn_enum type, cudnnBackendDescriptor_t *made))
{
    descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->magic = alive;
    d->type = (int)type;
    *made = d;
    vgpu_held(1);
    return CUDNN_STATUS_SUCCESS;
}

/* The descriptor if it has not been destroyed; else NULL, and a wrong use of `call`. */
static descriptor *valid(cudnnBackendDescriptor_t opaque, const char *call)
{
    descriptor *d = opaque;
    if (d && d->magic == alive) return d;
    vgpu_wrong("%s: no descriptor, or a destroyed one", call);
    return NULL;
}

DNN(wb__dnn_enum, BackendDestroyDescriptor, (cudnnBackendDescriptor_t opaque))
{
    descriptor *d = valid(opaque, "cudnnBackendDestroyDescriptor");
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < d->n; i++) free(d->list[i].data);
    d->magic = dead;
    free(d);
    vgpu_held(-1);
    return CUDNN_STATUS_SUCCESS;
}

/* True if descriptors of this type have the attribute `name`, as ranges of attribute numbers. */
static bool belongs(int type, int name)
{
    static const struct { int type, first, last; } ranges[] = {
        {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0, 9},
        {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 100, 106},
        {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 200, 204},
        {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 400, 407},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 700, 705},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 706, 711},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 712, 717},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 750, 758},
        {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 800, 804},
        {CUDNN_BACKEND_TENSOR_DESCRIPTOR, 900, 913},
        {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 1000, 1003},
        {CUDNN_BACKEND_MATMUL_DESCRIPTOR, 1500, 1503},
        {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 1520, 1527},
        {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 1600, 1602},
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 1610, 1612},
        {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 2200, 2201}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].type == type) return name >= ranges[i].first && name <= ranges[i].last;
    return false;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64: case CUDNN_TYPE_VOID_PTR: case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
    }
}

DNN(wb__dnn_enum, BackendSetAttribute,
    (cudnnBackendDescriptor_t opaque, wb__dnn_enum name, wb__dnn_enum type, int64_t n,
     const void *values))
{
    descriptor *d = valid(opaque, "cudnnBackendSetAttribute");
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    if (d->finished || !values || n < 1 || !belongs(d->type, (int)name) ||
        d->n == MOST_ATTRIBUTES) {
        vgpu_wrong("cudnnBackendSetAttribute: %u of a descriptor of kind %d%s", name, d->type,
                   d->finished ? ", which is finished" : "");
        return CUDNN_STATUS_BAD_PARAM;
    }
    const size_t bytes = (size_t)n * bytes_of((int)type);
    char *data = malloc(bytes);
    if (!data) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(data, values, bytes);
    d->list[d->n++] = (attribute){(int)name, (int)type, n, data};
    return CUDNN_STATUS_SUCCESS;
}

static const attribute *find(const descriptor *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->list[i].name == name) return &d->list[i];
    return NULL;
}

static int64_t number(const descriptor *d, int name, int64_t otherwise)
{
    const attribute *a = find(d, name);
    int64_t wide = 0;
    int narrow = 0;
    if (!a) return otherwise;
    if (bytes_of(a->type) == 8) memcpy(&wide, a->data, 8);
    else if (bytes_of(a->type) == 4) memcpy(&narrow, a->data, 4);
    else narrow = *a->data;
    return bytes_of(a->type) == 8 ? wide : narrow;
}

static descriptor *linked(const descriptor *d, int name)
{
    const attribute *a = find(d, name);
    descriptor *to = NULL;
    if (a) memcpy(&to, a->data, sizeof to);
    return to ? valid(to, "a descriptor within another") : NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool numbers(const descriptor *d, int name, int64_t *to, int64_t n)
{
    const attribute *a = find(d, name);
    if (!a || a->type != CUDNN_TYPE_INT64 || a->n != n) return false;
    memcpy(to, a->data, (size_t)n * sizeof *to);
    return true;
}

/* The index of the tensor in the program, to which it is added if it is new; -1: there is none;
 * -2: it is invalid. */
static int tensor(cudnn_program *p, const descriptor *of, int name)
{
    const descriptor *d = linked(of, name);
    cudnn_tensor t = {0};
    if (!d) return -1;
    t.id = number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
    t.align = number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
    t.type = (int32_t)number(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
    t.is_virtual = (uint8_t)number(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
    t.by_value = (uint8_t)number(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
    if (!d->finished || t.id < 0 || t.type < 0 ||
        !numbers(d, CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims, 4) ||
        !numbers(d, CUDNN_ATTR_TENSOR_STRIDES, t.strides, 4))
        return -2;
    for (int i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].id == t.id) return i;
    if (p->n_tensors == CUDNN_MOST_TENSORS) return -2;
    p->tensor[p->n_tensors] = t;
    return p->n_tensors++;
}

static const struct { int kind, x, b, t, y, how, optional; } kinds[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 704, 703, -1, 705, 702, 0},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 710, 709, -1, 711, 708, 0},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 716, 715, -1, 717, 714, 0},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 751, 752, 758, 753, 750, 1},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 1520, 1521, -1, 1522, 1523, 0},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 1610, -1, -1, 1611, 1612, 1},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 2200, -1, -1, 2201, -1, 1}};

static bool operation(cudnn_program *p, const descriptor *d)
{
    size_t k = 0;
    while (k < sizeof kinds / sizeof *kinds && kinds[k].kind != d->type) k++;
    if (k == sizeof kinds / sizeof *kinds || !d->finished || p->n_ops == CUDNN_MOST_OPS)
        return false;
    const descriptor *how = kinds[k].how < 0 ? NULL : linked(d, kinds[k].how);
    cudnn_op o = {.kind = d->type, .b = -1, .t = -1, .axis = -1};
    if (kinds[k].how >= 0 && (!how || !how->finished)) return false;
    o.x = tensor(p, d, kinds[k].x);
    o.y = tensor(p, d, kinds[k].y);
    if (kinds[k].b >= 0) o.b = tensor(p, d, kinds[k].b);
    if (kinds[k].t >= 0) o.t = tensor(p, d, kinds[k].t);
    if (o.x < 0 || o.y < 0 || o.b < -1 || o.t < -1 || (o.b < 0 && !kinds[k].optional)) return false;
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        o.mode = (int32_t)number(how, CUDNN_ATTR_POINTWISE_MODE, -1);
        o.axis = (int32_t)number(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
    } else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        o.mode = (int32_t)number(how, CUDNN_ATTR_REDUCTION_OPERATOR, -1);
    } else if (kinds[k].x > 700 && kinds[k].x < 720 &&
               !(numbers(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, o.before, 2) &&
                 numbers(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, o.behind, 2) &&
                 numbers(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, o.dilation, 2) &&
                 numbers(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, o.stride, 2) &&
                 number(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0) == CUDNN_CROSS_CORRELATION)) {
        return false;
    }
    p->op[p->n_ops++] = o;
    return true;
}

static bool program_of(const descriptor *graph, cudnn_program *p)
{
    const attribute *ops = graph ? find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS) : NULL;
    memset(p, 0, sizeof *p);
    for (int64_t i = 0; ops && i < ops->n; i++) {
        descriptor *d;
        memcpy(&d, ops->data + i * 8, sizeof d);
        if (!valid(d, "an operation of a graph") || !operation(p, d)) return false;
    }
    return p->n_ops > 0;
}

/* ---- engines and plans ----------------------------------------------------------------------- */

/* The graph of a plan.  Engine configurations have it as an attribute, and the index of their
 * engine, and their number as the value of a knob. */
static const descriptor *graph_of(const descriptor *plan)
{
    const descriptor *config = linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return config ? linked(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : NULL;
}

static int64_t configuration_of(const descriptor *plan)
{
    const descriptor *config = linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return config ? number(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0) : 0;
}

DNN(wb__dnn_enum, BackendFinalize, (cudnnBackendDescriptor_t opaque))
{
    static int64_t plans;
    descriptor *d = valid(opaque, "cudnnBackendFinalize");
    if (d && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        (is_turn("VGPU_DNN_DECLINES", &plans) || time_of(configuration_of(d)) == -1))
        return CUDNN_STATUS_NOT_SUPPORTED;
    cudnn_program *p = malloc(sizeof *p);
    bool good = d && p && !d->finished;
    if (good && d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        good = program_of(d, p) && find(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    if (good && d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        good = linked(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) != NULL;
    if (good && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        good = graph_of(d) && find(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    free(p);
    if (!good) {
        vgpu_wrong("cudnnBackendFinalize: of a descriptor of kind %d", d ? d->type : -1);
        return CUDNN_STATUS_BAD_PARAM;
    }
    d->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

static bool add_attribute(descriptor *d, int name, int type, const void *value)
{
    char *data = malloc(8);
    if (!data) return false;
    memcpy(data, value, 8);
    d->list[d->n++] = (attribute){name, type, 1, data};
    return true;
}

/* The engine configurations of a graph. */
static wb__dnn_enum results(const descriptor *heuristic, int64_t most, int64_t *n, void *values)
{
    const attribute *graph = find(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const bool pairs = configurations() > 2;
    *n = configurations();
    for (int64_t i = 0; i < *n && i < most; i++) {
        const int64_t engine = pairs ? i / 2 : i;
        descriptor *config;
        memcpy(&config, (char *)values + i * 8, sizeof config);
        if (!valid(config, "cudnnBackendGetAttribute") || config->n ||
            config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return CUDNN_STATUS_BAD_PARAM;
        if (!add_attribute(config, graph->name, graph->type, graph->data) ||
            !add_attribute(config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &engine) ||
            !add_attribute(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, &i))
            return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        config->finished = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Copies the index of a configuration's engine to its engine descriptor. */
static wb__dnn_enum engine_of(const descriptor *config, int64_t *n, void *values)
{
    const int64_t number_of = number(config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
    descriptor *engine;
    *n = 1;
    memcpy(&engine, values, sizeof engine);
    if (!valid(engine, "cudnnBackendGetAttribute") || engine->n ||
        engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return CUDNN_STATUS_BAD_PARAM;
    engine->finished = true;
    return add_attribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &number_of)
               ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* The choices for a configuration's knobs: two, of which the second differs among the
 * configurations of an engine.  Like cuDNN it counts only those that it returns. */
static wb__dnn_enum knobs_of(const descriptor *config, int64_t most, int64_t *n, void *values)
{
    *n = most < 2 ? most : 2;
    for (int64_t i = 0; i < *n; i++) {
        const int64_t type = 2 + i, value = i ? number(config, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0)
                                              : 7;
        descriptor *knob;
        memcpy(&knob, (char *)values + i * 8, sizeof knob);
        if (!valid(knob, "cudnnBackendGetAttribute") || knob->n ||
            knob->type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
            return CUDNN_STATUS_BAD_PARAM;
        if (!add_attribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_INT64, &type) ||
            !add_attribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, &value))
            return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        knob->finished = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static wb__dnn_enum notes_of(const descriptor *engine, int64_t most, int64_t *n, void *values)
{
    const int64_t bits = from_environment("VGPU_DNN_NOTES", 0);
    int *to = values;
    *n = 0;
    for (int i = 0; i < 32 && !number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0); i++)
        if (bits >> i & 1 && *n < most) to[(*n)++] = i;
    return CUDNN_STATUS_SUCCESS;
}

/* True if finished descriptors of this kind have the attribute, with values of this type. */
static bool readable(const descriptor *d, int name, int type)
{
    static const struct { int name, of, type; } list[] = {
        {CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
         CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
         CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
         CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_BACKEND_ENGINE_DESCRIPTOR,
         CUDNN_TYPE_NUMERICAL_NOTE},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
         CUDNN_TYPE_KNOB_TYPE},
        {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
         CUDNN_TYPE_INT64},
        {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
         CUDNN_TYPE_INT64}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].name == name && list[i].of == d->type && list[i].type == type)
            return d->finished;
    return false;
}

static wb__dnn_enum one_number(int64_t value, size_t bytes, int64_t most, int64_t *n, void *values)
{
    const int narrow = (int)value;
    *n = 1;
    if (most > 0) memcpy(values, bytes == 8 ? (const void *)&value : &narrow, bytes);
    return CUDNN_STATUS_SUCCESS;
}

DNN(wb__dnn_enum, BackendGetAttribute,
    (cudnnBackendDescriptor_t opaque, wb__dnn_enum name, wb__dnn_enum type, int64_t most,
     int64_t *n, void *values))
{
    const descriptor *d = valid(opaque, "cudnnBackendGetAttribute");
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    if (!readable(d, (int)name, (int)type) || (most > 0 && !values)) {
        vgpu_wrong("cudnnBackendGetAttribute: %u, of type %u, of a descriptor of kind %d%s", name,
                   type, d->type, d->finished ? "" : ", which is not finished");
        return CUDNN_STATUS_BAD_PARAM;
    }
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return results(d, most, n, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return engine_of(d, n, values);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: return knobs_of(d, most, n, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return notes_of(d, most, n, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return one_number(workspace_of(configuration_of(d)), 8, most, n, values);
    default: return one_number(number(d, (int)name, 0), bytes_of((int)type), most, n, values);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static bool has_notes(const descriptor *plan)
{
    const descriptor *config = linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return from_environment("VGPU_DNN_NOTES", 0) && config &&
           !number(config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
}

/* Sets a tensor's address from the variant pack, or its value if it is passed by value.  False: it
 * is not in the pack, or its memory is too small or not aligned. */
static bool set_address(cudnn_tensor *t, const attribute *ids, const attribute *pointers)
{
    int64_t reach = 1;
    const int64_t each = t->type == CUDNN_DATA_FLOAT ? 4 : 2;
    void *at = NULL;
    if (t->is_virtual) return true;
    for (int64_t i = 0; i < ids->n; i++) {
        int64_t id;
        memcpy(&id, ids->data + i * 8, sizeof id);
        if (id == t->id) memcpy(&at, pointers->data + i * 8, sizeof at);
    }
    if (t->by_value) {
        if (at) t->value = vgpu_load(at, VGPU_F32, 0);
        return at;
    }
    for (int d = 0; d < 4; d++) reach += (t->dims[d] - 1) * t->strides[d];
    t->address = (uint64_t)(uintptr_t)at;
    if (at && t->address % (uint64_t)t->align == 0 &&
        vgpu_span(t->address) >= (size_t)(reach * each))
        return true;
    vgpu_wrong("cudnnBackendExecute: tensor %lld at %p: of %lld bytes %zu are there; to be aligned"
               " to %lld", (long long)t->id, at, (long long)(reach * each),
               at ? vgpu_span(t->address) : 0, (long long)t->align);
    return false;
}

DNN(wb__dnn_enum, BackendExecute,
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t opaque))
{
    static int64_t plans;
    if (is_turn("VGPU_DNN_REFUSES", &plans)) return CUDNN_STATUS_EXECUTION_FAILED;
    const descriptor *pack = valid(opaque, "cudnnBackendExecute");
    const descriptor *d = valid(plan, "cudnnBackendExecute");
    const int64_t which = d ? configuration_of(d) : 0;
    if (time_of(which) == -2) return CUDNN_STATUS_EXECUTION_FAILED;
    cudnn_program *p = malloc(sizeof *p);
    const attribute *ids = pack ? find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) : NULL;
    const attribute *pointers = pack ? find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) : NULL;
    bool good = p && d && pack && pack->finished && d->finished && ids && pointers &&
                ids->n == pointers->n && program_of(graph_of(d), p);
    for (int i = 0; good && i < p->n_tensors; i++)
        good = set_address(&p->tensor[i], ids, pointers);
    if (good) {
        p->workspace = (void *)(intptr_t)number(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
        p->workspace_bytes = (size_t)workspace_of(which);
        const uint64_t at = (uint64_t)(uintptr_t)p->workspace;
        good = p->workspace_bytes ? vgpu_span(at) >= p->workspace_bytes && at % 256 == 0 : !at;
    }
    if (good && has_notes(d)) __atomic_add_fetch(&noted, 1, __ATOMIC_RELAXED);
    if (!good) vgpu_wrong("cudnnBackendExecute: a plan, a pack or a workspace is wrong");
    const int e =
        good ? vgpu_enqueue(handle->stream, "cudnnBackendExecute", cudnn_run, p, sizeof *p) : 1;
    if (!e) vgpu_spend(handle->stream, time_of(which));
    if (!e) __atomic_add_fetch(&times_run[which % 16], 1, __ATOMIC_RELAXED);
    free(p);
    return e ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
