/* Creates graphs of cuDNN from descriptors, and chooses an engine for each graph. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/dnn.h"

#include <string.h>

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool cudnn_graph_succeeded(wb__dnn_graph *g, int status, const char *call)
{
    if (status && !g->status) {
        g->status = status;
        g->call = call;
    }
    return !g->status;
}

void wb__dnn_graph_start(wb__dnn_graph *g, const wb__dnn_target *target)
{
    memset(g, 0, sizeof *g);
    g->target = target;
    g->last_id = 1000;
}

static void cudnn_graph_release(const wb__dnn_functions *f, wb__dnn_desc *descriptors, int n)
{
    while (n > 0) f->BackendDestroyDescriptor(descriptors[--n]);
}

void wb__dnn_graph_free(wb__dnn_graph *g)
{
    cudnn_graph_release(g->target->f, g->descriptors, g->n_descriptors);
    g->n_descriptors = 0;
}

wb__dnn_desc wb__dnn_new_desc(wb__dnn_graph *g, int type)
{
    wb__dnn_desc d = NULL;
    if (g->status) return NULL;
    if (g->n_descriptors == WB__DNN_MAX_DESCRIPTORS) {
        cudnn_graph_succeeded(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph of too many descriptors");
        return NULL;
    }
    if (!cudnn_graph_succeeded(g, g->target->f->BackendCreateDescriptor(type, &d),
                               "cudnnBackendCreateDescriptor"))
        return NULL;
    return g->descriptors[g->n_descriptors++] = d;
}

void wb__dnn_set_attr(wb__dnn_graph *g, wb__dnn_desc d, int name, int type, int64_t n,
                      const void *values)
{
    if (!g->status)
        cudnn_graph_succeeded(g, g->target->f->BackendSetAttribute(d, name, type, n, values),
                              "cudnnBackendSetAttribute");
}

void wb__dnn_finalize(wb__dnn_graph *g, wb__dnn_desc d)
{
    if (!g->status)
        cudnn_graph_succeeded(g, g->target->f->BackendFinalize(d), "cudnnBackendFinalize");
}

void wb__dnn_add_operation(wb__dnn_graph *g, wb__dnn_desc d)
{
    wb__dnn_finalize(g, d);
    if (g->status) return;
    if (g->n_ops == WB__DNN_MAX_OPS)
        cudnn_graph_succeeded(g, CUDNN_STATUS_INTERNAL_ERROR, "a graph of too many operations");
    else
        g->ops[g->n_ops++] = d;
}

static void set_desc(wb__dnn_graph *g, wb__dnn_desc d, int name, wb__dnn_desc value)
{
    wb__dnn_set_attr(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void cudnn_graph_set_type(wb__dnn_graph *g, wb__dnn_desc d, int name, int type)
{
    wb__dnn_set_attr(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static wb__dnn_desc cudnn_graph_tensor(wb__dnn_graph *g, int64_t id, const wb__dnn_view *v,
                                       bool between, bool by_value)
{
    const int64_t align = v->align;
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnn_graph_set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, v->type);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, v->dims);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, v->strides);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (between)
        wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    if (by_value)
        wb__dnn_set_attr(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    wb__dnn_finalize(g, d);
    return d;
}

wb__dnn_desc wb__dnn_new_tensor(wb__dnn_graph *g, int64_t id, const wb__dnn_view *v)
{
    return cudnn_graph_tensor(g, id, v, false, false);
}

wb__dnn_desc wb__dnn_new_virtual(wb__dnn_graph *g, int type, const int64_t dims[4],
                                 const int64_t strides[4])
{
    wb__dnn_view v = {.type = type, .align = 16};
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        v.dims[i] = dims[i];
        v.strides[i] = strides ? strides[i] : stride;
        stride *= dims[i];
    }
    return cudnn_graph_tensor(g, ++g->last_id, &v, true, false);
}

wb__dnn_desc wb__dnn_new_scalar(wb__dnn_graph *g, int64_t id, int type)
{
    const wb__dnn_view v = {.dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .type = type,
                            .align = 4};
    return cudnn_graph_tensor(g, id, &v, false, true);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void cudnn_graph_pointwise(wb__dnn_graph *g, int mode, int type, int axis, wb__dnn_desc x,
                                  wb__dnn_desc b, wb__dnn_desc t, wb__dnn_desc y)
{
    const int64_t along = axis;
    wb__dnn_desc how = wb__dnn_new_desc(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    wb__dnn_set_attr(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    cudnn_graph_set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, type);
    if (axis != WB__DNN_NO_AXIS)
        wb__dnn_set_attr(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &along);
    wb__dnn_finalize(g, how);
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t) set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    wb__dnn_add_operation(g, d);
}

void wb__dnn_add_pointwise(wb__dnn_graph *g, int mode, int axis, wb__dnn_desc x, wb__dnn_desc b,
                           wb__dnn_desc t, wb__dnn_desc y)
{
    cudnn_graph_pointwise(g, mode, CUDNN_DATA_FLOAT, axis, x, b, t, y);
}

void wb__dnn_add_comparison(wb__dnn_graph *g, int mode, wb__dnn_desc x, wb__dnn_desc b,
                            wb__dnn_desc y)
{
    cudnn_graph_pointwise(g, mode, CUDNN_DATA_BOOLEAN, WB__DNN_NO_AXIS, x, b, NULL, y);
}

void wb__dnn_add_reshape(wb__dnn_graph *g, wb__dnn_desc x, wb__dnn_desc y)
{
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    wb__dnn_add_operation(g, d);
}

void wb__dnn_add_matmul(wb__dnn_graph *g, wb__dnn_desc a, wb__dnn_desc b, wb__dnn_desc c)
{
    wb__dnn_desc how = wb__dnn_new_desc(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnn_graph_set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    wb__dnn_finalize(g, how);
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    wb__dnn_add_operation(g, d);
}

void wb__dnn_add_reduction(wb__dnn_graph *g, int op, wb__dnn_desc x, wb__dnn_desc y)
{
    wb__dnn_desc how = wb__dnn_new_desc(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    wb__dnn_set_attr(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                     &op);
    cudnn_graph_set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    wb__dnn_finalize(g, how);
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    wb__dnn_add_operation(g, d);
}

/* ---- engines --------------------------------------------------------------------------------- */

enum { MAX_CONFIGS = 64, MAX_KNOBS = 44 };    /* cuDNN 9.19 has 44 types of knobs */

/* Frees all descriptors of g after the first n. */
static void cudnn_graph_free_after(wb__dnn_graph *g, int n)
{
    cudnn_graph_release(g->target->f, g->descriptors + n, g->n_descriptors - n);
    g->n_descriptors = n;
}

/* Reads at most `capacity` values of an attribute.  Returns the number of its values, which may be
 * more; 0: a call failed and set g->status. */
static int64_t cudnn_graph_get_attr(wb__dnn_graph *g, wb__dnn_desc d, int name, int type,
                                    int64_t capacity, void *values)
{
    int64_t n = 0;
    if (!g->status)
        cudnn_graph_succeeded(
            g, g->target->f->BackendGetAttribute(d, name, type, capacity, &n, values),
            "cudnnBackendGetAttribute");
    return g->status ? 0 : n;
}

/* Sets `list` to n new descriptors of this type, the first of which get the values of an attribute,
 * and returns the number of values. */
static int get_list(wb__dnn_graph *g, wb__dnn_desc d, int name, int type, int64_t n,
                    wb__dnn_desc *list)
{
    for (int i = 0; i < n; i++) list[i] = wb__dnn_new_desc(g, type);
    const int64_t got = n ? cudnn_graph_get_attr(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, list)
        : 0;
    return (int)WB__MIN(got, n);
}

static wb__dnn_desc cudnn_graph_create(wb__dnn_graph *g)
{
    const wb__dnn_target *t = g->target;
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (t->handle)
        wb__dnn_set_attr(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
                     g->ops);
    wb__dnn_finalize(g, d);
    return d;
}

/* Sets `list` to at most MAX_CONFIGS engine configurations for the graph, best first, and returns
 * their number.  0: there is none, or a call failed and set g->status. */
static int cudnn_graph_list_configs(wb__dnn_graph *g, wb__dnn_desc graph, int mode,
                                    wb__dnn_desc *list)
{
    const wb__dnn_target *t = g->target;
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    wb__dnn_set_attr(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!t->handle) set_desc(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, t->properties);
    wb__dnn_finalize(g, d);
    const int64_t n = cudnn_graph_get_attr(g, d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, NULL);
    return get_list(g, d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                    WB__MIN(n, MAX_CONFIGS), list);
}

/* Returns the fingerprint of a configuration of this engine.  cuDNN returns the number of choices
 * that it has written, not of all, so the arrays have room for each type of knob.  A failed call
 * sets g->status. */
static uint64_t cudnn_graph_fingerprint_of(wb__dnn_graph *g, wb__dnn_desc config, int64_t engine)
{
    wb__dnn_desc knobs[MAX_KNOBS];
    const int n = get_list(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                           CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MAX_KNOBS, knobs);
    uint64_t fingerprint = wb__mix(1, (uint64_t)engine);
    for (int i = 0; i < n; i++) {
        int type = 0;
        int64_t value = 0;
        cudnn_graph_get_attr(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                             &type);
        cudnn_graph_get_attr(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                             &value);
        fingerprint = wb__mix(wb__mix(fingerprint, (uint64_t)type), (uint64_t)value);
    }
    return fingerprint;
}

/* Returns the numerical notes of the configuration's engine as a bit set, and sets *number to
 * cuDNN's index of the engine.  A failed call sets g->status. */
static int notes_of(wb__dnn_graph *g, wb__dnn_desc config, int64_t *number)
{
    int notes[32], bits = 0;
    wb__dnn_desc engine = wb__dnn_new_desc(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnn_graph_get_attr(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                         &engine);
    cudnn_graph_get_attr(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, number);
    const int64_t n = cudnn_graph_get_attr(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                           CUDNN_TYPE_NUMERICAL_NOTE, (int64_t)WB__COUNT(notes),
                                           notes);
    for (int i = 0; i < n && i < (int)WB__COUNT(notes); i++) bits |= 1 << notes[i];
    return bits;
}

/* Creates the plan of an engine configuration, and sets *workspace to its workspace in bytes.
 * NULL: the device does not support the configuration, or a call failed and set g->status. */
static wb__dnn_desc plan_of(wb__dnn_graph *g, wb__dnn_desc config, size_t *workspace)
{
    const wb__dnn_target *t = g->target;
    int64_t bytes = 0;
    wb__dnn_desc d = wb__dnn_new_desc(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (t->handle)
        wb__dnn_set_attr(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    else
        set_desc(g, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, t->properties);
    if (g->status || t->f->BackendFinalize(d)) return NULL;
    cudnn_graph_get_attr(g, d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                         &bytes);
    *workspace = (size_t)bytes;
    return g->status ? NULL : d;
}

/* The plans that are asked for (wb__dnn_plans_of). */
typedef struct { int forbidden, most; size_t workspace; uint64_t kept; } plan_request;

/* Adds plans of the n configurations to `plans`; if w->kept is not 0, only its plan. */
static void cudnn_graph_add_plans(wb__dnn_graph *g, const wb__dnn_desc *list, int n,
                                  const plan_request *w, wb__dnn_plans *plans)
{
    const int before = g->n_descriptors;
    for (int i = 0; i < n && plans->n < w->most && !g->status; i++) {
        wb__dnn_plan p = {.engine = -1};
        const int notes = notes_of(g, list[i], &p.engine);
        if (w->kept || w->most > 1)
            p.fingerprint = cudnn_graph_fingerprint_of(g, list[i], p.engine);
        cudnn_graph_free_after(g, before);
        if (g->status || (notes & w->forbidden) || (w->kept && p.fingerprint != w->kept)) continue;
        p.plan = plan_of(g, list[i], &p.workspace);
        if (p.plan && p.workspace <= w->workspace) {
            plans->list[plans->n++] = p;
            g->n_descriptors = before;      /* plan_of made a descriptor, which `plans` owns now */
        }
        cudnn_graph_free_after(g, before);
    }
}

static int cudnn_graph_choose(wb__dnn_graph *g, const plan_request *w, wb__dnn_plans *plans)
{
    static const int modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    plan_request one = *w, any = *w;
    one.most = 1;
    any.kept = 0;
    wb__dnn_desc graph = cudnn_graph_create(g), list[MAX_CONFIGS];
    for (size_t i = 0; i < WB__COUNT(modes) && !plans->n && !g->status; i++) {
        const int n = cudnn_graph_list_configs(g, graph, modes[i], list);
        if (w->kept) cudnn_graph_add_plans(g, list, n, &one, plans);
        if (!plans->n) cudnn_graph_add_plans(g, list, n, &any, plans);
    }
    if (!plans->n) return WB_ERROR_UNSUPPORTED;
    plans->descriptors = wb__alloc((size_t)g->n_descriptors * sizeof *plans->descriptors);
    if (!plans->descriptors) {
        wb__dnn_plans_free(g->target->f, plans);
        return WB_ERROR_MEMORY;
    }
    memcpy(plans->descriptors, g->descriptors,
           (size_t)g->n_descriptors * sizeof *plans->descriptors);
    plans->n_descriptors = g->n_descriptors;
    g->n_descriptors = 0;
    return 0;
}

void wb__dnn_plans_keep(const wb__dnn_functions *f, wb__dnn_plans *plans, int which)
{
    for (int i = 0; i < plans->n; i++)
        if (i != which) f->BackendDestroyDescriptor(plans->list[i].plan);
    plans->list[0] = plans->list[which];
    plans->n = 1;
}

void wb__dnn_plans_free(const wb__dnn_functions *f, wb__dnn_plans *plans)
{
    while (plans->n > 0) f->BackendDestroyDescriptor(plans->list[--plans->n].plan);
    cudnn_graph_release(f, plans->descriptors, plans->n_descriptors);
    wb__free(plans->descriptors);
    *plans = (wb__dnn_plans){0};
}

/* ---- steps ----------------------------------------------------------------------------------- */

const char *wb__dnn_problem_of(const wb__step *step, wb__dnn_problem *p)
{
    static const int types[WB_DTYPE_COUNT] = {
        [WB_F32] = CUDNN_DATA_FLOAT, [WB_F16] = CUDNN_DATA_HALF, [WB_BF16] = CUDNN_DATA_BFLOAT16};
    memset(p, 0, sizeof *p);
    p->kind = step->kind;
    p->variant = step->variant;
    p->epilogue = step->epilogue;
    p->n_views = step->n_views;
    for (int i = 0; i < step->n_views; i++) {
        const wb__view *v = &step->views[i];
        if (v->dtype != WB_F32 && !wb__is_half(v->dtype)) return "cuDNN: not of f32, f16 or bf16";
        const uint64_t at =
            (uint64_t)v->offset * (v->dtype == WB_F32 ? 4 : 2) | (uint64_t)v->granule | 16;
        p->views[i].type = types[v->dtype];
        p->views[i].align = (int32_t)(at & (~at + 1));
        for (int k = 0; k < v->ndim && k < 4; k++) {
            p->views[i].dims[k] = v->dims[k];
            p->views[i].strides[k] = v->strides[k];
        }
    }
    return step->kind == WB__STEP_CONV ? wb__dnn_conv_problem(step, p)
         : step->kind == WB__STEP_ATTENTION ? wb__dnn_attention_problem(step, p)
         : "cuDNN: no such operation";
}

int wb__dnn_plans_of(wb__dnn_graph *g, const wb__dnn_target *target, const wb__dnn_problem *p,
                     int most, uint64_t kept, wb__dnn_plans *plans)
{
    const plan_request w = {.forbidden = p->forbidden, .most = WB__MIN(most, WB__DNN_PLANS),
                    .workspace = wb__dnn_max_workspace(target, p), .kept = kept};
    memset(plans, 0, sizeof *plans);
    wb__dnn_graph_start(g, target);
    if (p->kind == WB__STEP_CONV) wb__dnn_add_conv(g, p);
    else wb__dnn_add_attention(g, p);
    const int error = cudnn_graph_choose(g, &w, plans);
    wb__dnn_graph_free(g);
    return error;
}
