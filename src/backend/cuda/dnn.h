/* Operations as graphs of cuDNN's, and their plans.
 *
 * dnn_graph.c       descriptors put together, and an engine chosen for them
 * dnn_conv.c        convolutions as graphs
 * dnn_attention.c   attention as graphs
 * dnn.c             opening, plans kept for each device, launches
 *
 * Only the last knows devices, so that a test can have plans made for GPUs that are not there. */
#ifndef WB__CU_DNN_H
#define WB__CU_DNN_H

#include "backend/cuda/dnn_api.h"
#include "backend/backend.h"

typedef cudnnBackendDescriptor_t wb__dnn_desc;

/* For which device plans are made: a handle's, or the one that a descriptor of properties tells. */
typedef struct {
    const wb__dnn_functions *f;
    cudnnHandle_t handle;
    wb__dnn_desc properties;
    int64_t memory;                     /* bytes of the device */
} wb__dnn_target;

/* ---- problems -------------------------------------------------------------------------------- */

/* A step without its places: what plans are made of, and kept under.  Filled from zeros, so that its
 * bytes are a key. */
typedef struct {
    int64_t dims[4], strides[4];
    int32_t type, align;                /* cuDNN's data type; bytes, 16 at most */
} wb__dnn_view;
typedef struct {
    int32_t kind, variant, epilogue, n_views, causal, forbidden;
    double scale;
    wb__conv_attr conv;
    wb__dnn_view views[9];              /* tensor i has the unique id i + 1 */
} wb__dnn_problem;

/* An epilogue that cuDNN has, and what a forward convolution with it is called, with a bias too. */
typedef struct {
    wb__op op;
    int mode;
    const char *name[2];
} wb__dnn_epilogue;
const wb__dnn_epilogue *wb__dnn_epilogue_of(wb__op op);     /* NULL: it has none */

/* NULL, or in a few words why cuDNN cannot do the step; the latter two fill in what is their own. */
const char *wb__dnn_problem_of(const wb__step *step, wb__dnn_problem *p);
const char *wb__dnn_conv_problem(const wb__step *step, wb__dnn_problem *p);
const char *wb__dnn_attention_problem(const wb__step *step, wb__dnn_problem *p);

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A graph while it is put together.  What fails first is kept, and all that follows does nothing. */
enum { WB__DNN_MOST_MADE = 256, WB__DNN_MOST_OPS = 48 };
typedef struct {
    const wb__dnn_target *target;
    int n_made, n_ops;
    wb__dnn_desc made[WB__DNN_MOST_MADE], ops[WB__DNN_MOST_OPS];
    int64_t last_id;                    /* of tensors that are only between operations */
    int status;
    const char *call;
} wb__dnn_graph;

typedef struct {
    wb__dnn_desc plan;
    size_t workspace;
    int engine;                         /* cuDNN's number of it */
    int n_made;
    wb__dnn_desc *made;                 /* all that it is made of */
} wb__dnn_plan;

void wb__dnn_begin(wb__dnn_graph *g, const wb__dnn_target *target);
/* Releases what was put together, unless a plan was chosen. */
void wb__dnn_end(wb__dnn_graph *g);
/* The first engine that the heuristics name, has none of the forbidden numerical notes (bits), and
 * wants no more workspace than that.  0; WB_ERROR_UNSUPPORTED, without a message, if there is none or
 * something failed (`status` and `call` say what); WB_ERROR_MEMORY. */
int wb__dnn_choose(wb__dnn_graph *g, int forbidden, size_t most, wb__dnn_plan *plan);
void wb__dnn_plan_free(const wb__dnn_functions *f, wb__dnn_plan *plan);

wb__dnn_desc wb__dnn_make(wb__dnn_graph *g, int type);
void wb__dnn_set(wb__dnn_graph *g, wb__dnn_desc d, int name, int type, int64_t n,
                 const void *values);
void wb__dnn_finish(wb__dnn_graph *g, wb__dnn_desc d);
/* The operation's last touch: it becomes one of the graph's. */
void wb__dnn_operation(wb__dnn_graph *g, wb__dnn_desc d);

/* Tensors: in memory, between operations (strides NULL: dense), and one number handed over by value. */
wb__dnn_desc wb__dnn_tensor(wb__dnn_graph *g, int64_t id, const wb__dnn_view *v);
wb__dnn_desc wb__dnn_between(wb__dnn_graph *g, int type, const int64_t dims[4],
                             const int64_t strides[4]);
wb__dnn_desc wb__dnn_number(wb__dnn_graph *g, int64_t id, int type);

enum { WB__DNN_NO_AXIS = -1 };
/* y = mode(x), mode(x, b), or where t: x, else b; b and t may be NULL. */
void wb__dnn_pointwise(wb__dnn_graph *g, int mode, int axis, wb__dnn_desc x, wb__dnn_desc b,
                       wb__dnn_desc t, wb__dnn_desc y);
/* y = mode(x, b), of truth values */
void wb__dnn_compare(wb__dnn_graph *g, int mode, wb__dnn_desc x, wb__dnn_desc b, wb__dnn_desc y);
void wb__dnn_reshape(wb__dnn_graph *g, wb__dnn_desc x, wb__dnn_desc y);
void wb__dnn_matmul(wb__dnn_graph *g, wb__dnn_desc a, wb__dnn_desc b, wb__dnn_desc c);
void wb__dnn_reduce(wb__dnn_graph *g, int op, wb__dnn_desc x, wb__dnn_desc y);

/* ---- steps as graphs ------------------------------------------------------------------------- */

void wb__dnn_conv(wb__dnn_graph *g, const wb__dnn_problem *p);
void wb__dnn_attention(wb__dnn_graph *g, const wb__dnn_problem *p);
/* A problem's plan; as wb__dnn_choose. */
int wb__dnn_plan_of(wb__dnn_graph *g, const wb__dnn_target *target, const wb__dnn_problem *p,
                    wb__dnn_plan *plan);

/* Bytes of workspace that a plan may want.  Gradients of attention whose bits repeat have no plan
 * with less than the scores of some rows, 402 MB for GPT-2 with a batch of 16. */
enum { WB__DNN_WORKSPACE = 256 << 20 };
static inline size_t wb__dnn_most_workspace(const wb__dnn_target *t, const wb__dnn_problem *p)
{
    const size_t least = WB__DNN_WORKSPACE, share = (size_t)t->memory / 20;
    return p->kind == WB__STEP_ATTENTION ? WB__MAX(least, share) : least;
}

/* Unique ids beside those of the step's views: numbers that attention is handed by value, and
 * tensors of its own that are in memory. */
enum { WB__DNN_SCALE = 100, WB__DNN_MINUS_INFINITY, WB__DNN_ONE, WB__DNN_DELTA, WB__DNN_DQ };
typedef struct { int64_t id; size_t bytes; } wb__dnn_extra;
/* The tensors that a problem has beside the step's; gives their number. */
int wb__dnn_extras(const wb__dnn_problem *p, wb__dnn_extra extras[2]);

#endif
