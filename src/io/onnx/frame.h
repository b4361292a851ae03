/* The state of a model of ONNX and of one call of it.  layer.c makes the state, run.c calls graphs,
 * known.c keeps the values that the sizes of the inputs determine, and ops_control.c has the
 * operators that call subgraphs. */
#ifndef WB__ONNX_FRAME_H
#define WB__ONNX_FRAME_H

#include "base/mutex.h"
#include "base/table.h"
#include "engine/compiled/apart.h"
#include "io/onnx/run.h"

/* What a value depends on.  A value that depends on several kinds has the least one.  Nodes whose
 * results do not vary are computed on the CPU, outside of recordings of wb_compile. */
typedef enum {
    WB__ONNX_VARIES,        /* the values of inputs or parameters, or random numbers */
    WB__ONNX_BY_SIZES,      /* sizes that Shape and Size read, and constants of the file */
    WB__ONNX_BY_FILE        /* constants of the file alone */
} wb__onnx_known;

/* ---- the state of a model -------------------------------------------------------------------- */

/* What a call reads.  A trace lists these events in the order in which they happen. */
typedef enum {
    WB__ONNX_SIZES,         /* Shape or Size read these `n` sizes */
    WB__ONNX_INTS,          /* the numbers of a value that does not vary were read: int64_t[n] */
    WB__ONNX_REALS,         /* WB__ONNX_INTS with numbers of double[n] */
    WB__ONNX_DATA           /* a value that does not vary went into a node that does: `x` */
} wb__onnx_event_kind;
/* An event of a call. */
typedef struct {
    wb__onnx_event_kind kind;
    const wb__onnx_value *value;
    int n;
    void *numbers;                      /* the numbers or sizes, in a block that the event owns */
    wb_tensor *x;                       /* a constant on the device of the call (reference) */
} wb__onnx_event;

/* The events of the last call with these sizes of the inputs.  What a call reads follows from the
 * sizes that Shape and Size have read before.  So a call with the same events so far uses the
 * numbers of the next event and evaluates nothing; where its events differ, the rest is dropped. */
typedef struct {
    const wb_device *device;
    int n_key;
    int64_t *key;                       /* number and sizes of the dimensions of each input */
    wb__onnx_event *events;
    int n, capacity;
    int at;                             /* index of the next event */
} wb__onnx_trace;

enum { WB__ONNX_DEVICES = 8, WB__ONNX_TRACES = 8 };
/* The state of a model, which the copies of a layer share. */
typedef struct {
    wb__onnx_model *model;
    char file[128];                     /* the name of the file, for messages */
    int n_parameters;
    int *parameters;                    /* indices of the graph's values that are children */
    bool *frozen;                       /* for each parameter: whether it is a running statistic */
    wb__mutex lock;                     /* guards the fields below */
    /* constants by device, and by the address of the wb__onnx_tensor, wb__onnx_value or
     * wb__onnx_attr whose value they are (references) */
    struct { const wb_device *device; wb__pointer_map tensors; } constants[WB__ONNX_DEVICES];
    wb__onnx_trace *traces[WB__ONNX_TRACES];    /* traces that no call is using, or NULL */
    int next_trace;                     /* index of the trace that is replaced next */
} wb__onnx_state;

bool wb__onnx_state_init(wb__onnx_state *s);
void wb__onnx_state_clear(wb__onnx_state *s);   /* frees constants, traces, the lock */

/* Returns the constant that is cached for the key, or NULL.  The state owns it. */
wb_tensor *wb__onnx_cached(wb__onnx_state *s, const wb_device *d, const void *key);
/* Caches x, an evaluated constant on d, unless the key has a constant.  Returns the cached
 * constant, or x if there is no cache for d.  NULL: failed, or x is NULL. */
wb_tensor *wb__onnx_cache(wb__onnx_state *s, const wb_device *d, const void *key, wb_tensor *x);

/* Returns the trace for these inputs; wb__trace_give returns it to the state.  NULL with the error
 * set. */
wb__onnx_trace *wb__trace_take(wb__onnx_state *s, const wb_device *d, int n,
                                    wb_tensor *const *inputs);
void wb__trace_give(wb__onnx_state *s, wb__onnx_trace *t);
/* wb__trace_next returns the next event, if it has this kind and value.  Otherwise it drops the
 * events from there on and returns NULL: then wb__trace_add adds the event.  wb__trace_add takes
 * over e.numbers, also on failure, when it returns NULL. */
const wb__onnx_event *wb__trace_next(wb__onnx_trace *t, wb__onnx_event_kind kind,
                                    const wb__onnx_value *value);
const wb__onnx_event *wb__trace_add(wb__onnx_trace *t, wb__onnx_event e);
/* Drops the event that wb__trace_next returned, and all events after it. */
void wb__trace_forget(wb__onnx_trace *t);

/* Returns a constant on d with the value of x, which does not vary.  NULL with the error set. */
wb_tensor *wb__onnx_evaluated_on(wb_tensor *x, const wb_device *d);
/* Returns the values of x, which does not vary, in host memory.  Valid as long as x. */
const void *wb__onnx_host(wb_tensor *x);

/* ---- one call -------------------------------------------------------------------------------- */

/* A value in a call.  `x` is NULL until it is computed; if it does not vary, it is on the CPU or
 * has no device.  `data` is the same value on the call's device, for nodes that vary; NULL until
 * needed. */
typedef struct { wb_tensor *x, *data; wb__onnx_known known; } wb__onnx_call_value;

/* A graph while it is called. */
typedef struct wb__onnx_frame {
    const wb__onnx_graph *graph;
    struct wb__onnx_frame *outer;
    wb__onnx_call_value *values;  /* values of this graph; elements of outer graphs are unused */
} wb__onnx_frame;

/* A call of the model. */
typedef struct wb__onnx_run {
    wb__onnx_state *state;
    const wb_device *device;            /* device of the inputs and parameters */
    wb__onnx_trace *trace;
    wb__onnx_frame *frame;              /* the innermost graph that is called */
    wb__onnx_known *out_known;          /* for If and Loop, which set it: what the outputs of the
                                           node that is called depend on */
    int iterations;                     /* number of iterations of all loops together */
    void **blocks;                      /* blocks that are freed when the call ends */
    int n_blocks, blocks_capacity;
} wb__onnx_run;

/* Sets `out` to the outputs of the model's graph, in the current scope.  `in` has the inputs in the
 * order of the file, `parameters` the layer's children.  Returns false with the error set. */
bool wb__onnx_run_graph(wb__onnx_state *s, wb_tensor *const *parameters, wb_tensor *const *in,
                        wb_tensor **out);
/* Sets `out` to the outputs of a subgraph of the node for n inputs.  False with the error set. */
bool wb__onnx_subgraph(wb__onnx_call *c, const wb__onnx_graph *g, int n, wb_tensor *const *in,
                       const wb__onnx_known *in_known, wb_tensor **out, wb__onnx_known *out_known);
/* Returns what input i of the node depends on. */
wb__onnx_known wb__onnx_known_of(const wb__onnx_call *c, int i);
/* Sets *list to the numbers of x, an integer value; returns their count, or -2 with the error set.
 * `what` names x in messages, as in "the condition".  The list is valid until the call of the graph
 * ends. */
int wb__onnx_numbers(const wb__onnx_call *c, const char *what, const wb__onnx_value *value,
                     wb_tensor *x, wb__onnx_known known, const int64_t **list);
/* Copies the elements of x, which is computed from input i alone, to `to`, as `dtype`.  False with
 * the error set.  While the thread records, it is an error if the elements depend on the values of
 * the model's inputs. */
bool wb__onnx_copy_values(const wb__onnx_call *c, int i, wb_tensor *x, void *to, wb_dtype dtype);
/* Returns x for nodes that vary, on the device of the call.  NULL with the error set. */
wb_tensor *wb__onnx_data(wb__onnx_run *r, const wb__onnx_value *value, wb_tensor *x,
                         wb__onnx_known known);

/* Sets the operators of all nodes.  Returns 0, or an error code: the message lists the operators
 * that are not supported, with their nodes. */
int wb__onnx_find_operators(const wb__onnx_model *m);
/* forms.c: returns 0 if inputs, outputs and attributes of a node of g are those of its operator,
 * which is found, in the node's opset; else an error code. */
int wb__onnx_check_form(const wb__onnx_model *m, const wb__onnx_graph *g, const wb__onnx_node *n);

#endif
