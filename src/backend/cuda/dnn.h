/* Convolutions and attention as graphs of cuDNN, and their plans.
 *
 *   dnn_graph.c       creates descriptors, and chooses an engine for a graph
 *   dnn_conv.c        convolutions as graphs
 *   dnn_attention.c   attention as graphs
 *   dnn.c             opens the library, caches plans per device, launches
 *
 * Only dnn.c depends on devices, so that a test can create plans for GPUs that are not
 * installed. */
#ifndef WB__CU_DNN_H
#define WB__CU_DNN_H

#include "backend/cuda/dnn_api.h"
#include "backend/backend.h"

typedef cudnnBackendDescriptor_t wb__dnn_desc;

/* The device for which plans are created: the device of `handle` or, if `handle` is NULL, the
 * device that `properties` describes. */
typedef struct {
    const wb__dnn_functions *f;         /* cuDNN's functions */
    cudnnHandle_t handle;
    wb__dnn_desc properties;
    int64_t memory;                     /* the size of the device's memory, in bytes */
} wb__dnn_target;

/* ---- problems -------------------------------------------------------------------------------- */

/* A tensor as cuDNN describes it. */
typedef struct {
    int64_t dims[4], strides[4];
    int32_t type, align;                /* cuDNN's data type; alignment in bytes, at most 16 */
} wb__dnn_view;
/* The problem of a step: the step without its addresses, under which its plans are cached.  It is
 * initialised with zeros, since problems are compared byte by byte. */
typedef struct {
    int32_t kind, variant, epilogue, n_views, causal;   /* fields of wb__step of the same names */
    int32_t forbidden;                  /* bit set of the numerical notes that no engine may have */
    int32_t by_timing, unused;              /* by_timing: 1: the engine is chosen by timing */
    double scale;
    wb__conv_attr conv;
    wb__dnn_view views[9];              /* views[i] has the unique id i + 1 */
} wb__dnn_problem;

/* An epilogue that cuDNN supports.  `mode` is its pointwise mode in cuDNN.  name[0] and name[1]
 * name a convolution with this epilogue, without and with a bias. */
typedef struct {
    wb__op op;
    int mode;
    const char *name[2];
} wb__dnn_epilogue;
const wb__dnn_epilogue *wb__dnn_epilogue_of(wb__op op);     /* NULL: not supported */

/* Set *p to the problem of a step.  Return NULL, or a short reason why cuDNN cannot execute the
 * step.  wb__dnn_problem_of sets the common fields, and calls one of the other two functions for
 * the rest. */
const char *wb__dnn_problem_of(const wb__step *step, wb__dnn_problem *p);
const char *wb__dnn_conv_problem(const wb__step *step, wb__dnn_problem *p);
const char *wb__dnn_attention_problem(const wb__step *step, wb__dnn_problem *p);

/* ---- graphs ---------------------------------------------------------------------------------- */

enum { WB__DNN_MAX_DESCRIPTORS = 256, WB__DNN_MAX_OPS = 48 };
/* A graph under construction.  `status` and `call` describe the first failure, after which the
 * functions that extend the graph do nothing. */
typedef struct {
    const wb__dnn_target *target;
    int n_descriptors, n_ops;
    wb__dnn_desc descriptors[WB__DNN_MAX_DESCRIPTORS], ops[WB__DNN_MAX_OPS];
    int64_t last_id;  /* id of the virtual tensor that was created last */
    int status;
    const char *call;                   /* name of the function that failed */
} wb__dnn_graph;

/* An execution plan of an engine configuration.  The fingerprint identifies it in each process: it
 * is a hash of the engine's index and the choices for its knobs; 0 if there is only one plan. */
typedef struct {
    wb__dnn_desc plan;                  /* cuDNN's descriptor of the plan */
    size_t workspace;                   /* bytes of its workspace */
    int64_t engine;                     /* cuDNN's index of the engine */
    uint64_t fingerprint;
} wb__dnn_plan;

/* n plans of a graph, in the order of cuDNN's heuristics, and the descriptors of the graph, which
 * they own together. */
enum { WB__DNN_PLANS = 5 };
typedef struct {
    int n, n_descriptors;               /* number of plans, and of descriptors */
    wb__dnn_plan list[WB__DNN_PLANS];
    wb__dnn_desc *descriptors;
} wb__dnn_plans;

/* Starts an empty graph. */
void wb__dnn_graph_start(wb__dnn_graph *g, const wb__dnn_target *target);
/* Frees the descriptors of the graph, unless plans own them. */
void wb__dnn_graph_free(wb__dnn_graph *g);
/* Frees all plans but plans->list[which], which becomes the first. */
void wb__dnn_plans_keep(const wb__dnn_functions *f, wb__dnn_plans *plans, int which);
void wb__dnn_plans_free(const wb__dnn_functions *f, wb__dnn_plans *plans);

wb__dnn_desc wb__dnn_new_desc(wb__dnn_graph *g, int type);
void wb__dnn_set_attr(wb__dnn_graph *g, wb__dnn_desc d, int name, int type, int64_t n,
                      const void *values);
void wb__dnn_finalize(wb__dnn_graph *g, wb__dnn_desc d);
/* Finalizes the descriptor of an operation and adds the operation to the graph. */
void wb__dnn_add_operation(wb__dnn_graph *g, wb__dnn_desc d);

/* Create tensors of three kinds.  wb__dnn_new_tensor is in memory.  wb__dnn_new_virtual is virtual:
 * the result of an operation of the graph, for another operation; it is dense if strides is NULL.
 * wb__dnn_new_scalar is a scalar passed by value. */
wb__dnn_desc wb__dnn_new_tensor(wb__dnn_graph *g, int64_t id, const wb__dnn_view *v);
wb__dnn_desc wb__dnn_new_virtual(wb__dnn_graph *g, int type, const int64_t dims[4],
                                 const int64_t strides[4]);
wb__dnn_desc wb__dnn_new_scalar(wb__dnn_graph *g, int64_t id, int type);

enum { WB__DNN_NO_AXIS = -1 };
/* Adds the operation y = mode(x), y = mode(x, b) if b is not NULL, or y = t ? x : b if t is not
 * NULL.  `axis` is the axis of CUDNN_POINTWISE_GEN_INDEX. */
void wb__dnn_add_pointwise(wb__dnn_graph *g, int mode, int axis, wb__dnn_desc x, wb__dnn_desc b,
                           wb__dnn_desc t, wb__dnn_desc y);
/* Adds the comparison y = mode(x, b), where y is a tensor of booleans. */
void wb__dnn_add_comparison(wb__dnn_graph *g, int mode, wb__dnn_desc x, wb__dnn_desc b,
                            wb__dnn_desc y);
void wb__dnn_add_reshape(wb__dnn_graph *g, wb__dnn_desc x, wb__dnn_desc y);
void wb__dnn_add_matmul(wb__dnn_graph *g, wb__dnn_desc a, wb__dnn_desc b, wb__dnn_desc c);
void wb__dnn_add_reduction(wb__dnn_graph *g, int op, wb__dnn_desc x, wb__dnn_desc y);

/* ---- steps as graphs ------------------------------------------------------------------------- */

void wb__dnn_add_conv(wb__dnn_graph *g, const wb__dnn_problem *p);
void wb__dnn_add_attention(wb__dnn_graph *g, const wb__dnn_problem *p);
/* Creates plans for a problem, of the first engine configurations, in the order of cuDNN's
 * heuristics, that need at most wb__dnn_max_workspace and have no numerical note of the bit set
 * p->forbidden: at most `most` plans, or only the plan with the fingerprint `kept` (0: none), if it
 * is among them.  Returns 0, WB_ERROR_MEMORY, or WB_ERROR_UNSUPPORTED, without a message, if there
 * is no such plan or a call failed and set g->status. */
int wb__dnn_plans_of(wb__dnn_graph *g, const wb__dnn_target *target, const wb__dnn_problem *p,
                     int most, uint64_t kept, wb__dnn_plans *plans);

/* The maximal workspace of a plan, in bytes; for attention at least a twentieth of the memory. */
enum { WB__DNN_WORKSPACE = 256 << 20 };
static inline size_t wb__dnn_max_workspace(const wb__dnn_target *t, const wb__dnn_problem *p)
{
    const size_t least = WB__DNN_WORKSPACE, share = (size_t)t->memory / 20;
    return p->kind == WB__STEP_ATTENTION ? WB__MAX(least, share) : least;
}

/* Unique ids of the tensors of attention that are not views of the step: first scalars passed by
 * value, then two tensors in the workspace. */
enum { WB__DNN_SCALE = 100, WB__DNN_MINUS_INFINITY, WB__DNN_ONE, WB__DNN_DELTA, WB__DNN_DQ };
typedef struct { int64_t id; size_t bytes; } wb__dnn_extra;
/* Sets `extras` to the tensors that attention needs in the workspace, beside cuDNN's own workspace.
 * Returns their number. */
int wb__dnn_list_extras(const wb__dnn_problem *p, wb__dnn_extra extras[2]);

#endif
