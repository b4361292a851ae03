/* Shared by the files that write a model of ONNX.
 *
 * A model is called three times, with batches of different sizes, and nothing is evaluated
 * (write_record.c): each call gives a graph of tensors.  The three graphs have the same nodes, and
 * a size that differs is k · batch + c.  A fourth call, with a batch of 1, may have other nodes,
 * such as no expansion, but no other outputs.  Then each node becomes operators of ONNX
 * (write_ops.c and the files beside it), in the order in which inputs come before their readers;
 * some groups of nodes become one operator (write_match.c).  write_put.c writes nodes and
 * constants.
 *
 * bf16 is carried as f32: what is computed is cast where it is a result of the model. */
#ifndef WB__ONNX_WRITER_H
#define WB__ONNX_WRITER_H

#include "io/onnx/fields.h"
#include "io/onnx/model.h"
#include "io/protobuf.h"
#include "nn/layer.h"
#include "weber/files.h"

enum {
    WB__ONNX_RECORDS = 3,
    WB__ONNX_WRITTEN = 17               /* the opset of the files */
};

/* A size or number that depends on the size of the batch: k · batch + c. */
typedef struct { int64_t k, c; } wb__export_size;

static inline bool wb__export_same(wb__export_size a, wb__export_size b)
{
    return a.k == b.k && a.c == b.c;
}
static inline bool wb__export_is(wb__export_size a, int64_t c) { return !a.k && a.c == c; }

/* The kinds of groups, nodes that become one operator, and the inputs of this operator. */
typedef enum {
    WB__ONNX_ALONE,         /* no group: the node itself */
    WB__ONNX_GEMM,          /* a, b, bias */
    WB__ONNX_CONVOLVE,      /* x, kernel, bias; `of` is the node of the convolution */
    WB__ONNX_LAYER_NORM,    /* x, scale, bias; `of` is the node of the normalisation */
    WB__ONNX_BATCH_NORM,    /* x, scale, bias, mean, variance; `eps` */
    WB__ONNX_MEAN           /* x; `of` is the node of the sum */
} wb__export_group_kind;

typedef struct {
    wb__export_group_kind kind;
    int n, in[5], of;                   /* in: steps; -1: left out */
    double eps;
} wb__export_group;

/* A step of the writer: one tensor of the model's graph. */
typedef struct {
    wb_tensor *x[WB__ONNX_RECORDS];     /* the tensor in each recording */
    int n_in;
    int *in;                            /* indices of the steps that it reads */
    wb__export_size dims[WB_MAX_DIMS];
    int uses;                           /* number of readers and of outputs of the model */
    bool varies;                        /* the value depends on an input of the model */
    bool needed;                        /* the file needs the step */
    int input, parameter;               /* index of the input, or the model's tensor, or -1 */
    const char *layer;                  /* the path of the layer that made it, or "" */
    const char *type;                   /* the type of this layer, or NULL */
    wb__export_group group;
    const char *name;                   /* name of the value in the file; NULL: not yet written */
} wb__export_step;

/* An input or output of the model */
typedef struct {
    char *name;
    wb_dtype dtype;
    int ndim;
    wb__export_size dims[WB_MAX_DIMS];
    int batch_axis;                     /* batch axis of an input; -1: it has no batch */
    wb_tensor *x[WB__ONNX_RECORDS + 1]; /* for an input: the tensors that the model is called with
                                           */
    int step;                           /* for an output: the index of its step */
} wb__export_port;

/* A tensor of the model.  It is an initializer if `name`, the name of its value, is not NULL. */
typedef struct { char *path; wb_tensor *x; const char *name; } wb__export_initializer;

typedef struct { wb_layer *layer; int n_in, n_out; wb_tensor **tensors; } wb__export_layer_call;

typedef struct { wb_dtype dtype; int ndim; size_t bytes; char data[32]; const char *name; }
    wb__export_kept;

/* A model while it is written. */
typedef struct {
    const char *path;
    int records;                        /* 1 (.fixed) or WB__ONNX_RECORDS */
    int64_t batch[WB__ONNX_RECORDS + 1];    /* the sizes of the batch; the last one is 1 */
    int n_inputs, n_outputs, n_steps, n_parameters, parameters_capacity;
    wb__export_port inputs[WB__OUTPUTS], outputs[WB__OUTPUTS];
    wb__export_step *steps;
    wb__export_initializer *parameters;
    wb__pointer_map parameter_of;       /* index of the tensor of a version in `parameters` */
    wb__observer *observer;
    int n_calls, calls_capacity;        /* calls of layers, in the first recording */
    wb__export_layer_call *calls;
    /* the file that is being written */
    wb__wire_out nodes;                 /* fields of GraphProto */
    int n_written, at;                  /* number of nodes; the step that is written now, or -1 */
    size_t begun;
    bool second;                        /* the next node has a result before the one that is used */
    const char *result, *batch_name;    /* given name of the next result; the size of the batch */
    const char *prefix;                 /* prefix of the names of values; no parameter has it */
    int n_names, names_capacity;
    char **names;                       /* texts that the writer owns */
    int n_kept, kept_capacity;
    wb__export_kept *kept;              /* small constants, which are written once */
    int status;                         /* the code of the first failure, or 0 */
} wb__exporter;

/* Sets the error that the file cannot have the step that is being written, with its layer and
 * operation, and sets w->status.  Returns "". */
const char *wb__export_cannot(wb__exporter *w, const char *format, ...) WB__PRINTF(2, 3);
/* Sets w->status to the code, unless there was a failure before.  Returns "". */
const char *wb__export_failed(wb__exporter *w, int code);

/* ---- write_record.c -------------------------------------------------------------------------- */

/* Calls the model on the inputs of each recording and fills in the steps and outputs.  Returns 0 or
 * an error code. */
int wb__export_record(wb__exporter *w, wb_layer *model);
/* Returns the constant of a step with size 1 along the axes that depend on the batch, along which
 * its elements are equal.  NULL with the error set. */
wb_tensor *wb__export_row(const wb__export_step *s);
/* wb__export_attr returns attribute k of the step as a size; wb__export_fixed_attr as a number,
 * which must not depend on the batch. */
wb__export_size wb__export_attr(wb__exporter *w, int step, int k);
int64_t wb__export_fixed_attr(wb__exporter *w, int step, int k);

static inline wb_tensor *wb__export_x(const wb__exporter *w, int step)
{
    return w->steps[step].x[0];
}
static inline int wb__export_operand(const wb__exporter *w, int step, int i)
{
    return w->steps[step].in[i];
}
static inline const wb__export_size *wb__export_dims(const wb__exporter *w, int step)
{
    return w->steps[step].dims;
}
/* Returns the dtype that a value has in the file: f32 for bf16. */
static inline wb_dtype wb__export_carried(wb_dtype t) { return t == WB_BF16 ? WB_F32 : t; }
static inline wb_dtype wb__export_dtype_of(const wb__exporter *w, int step)
{
    return wb__export_carried((wb_dtype)w->steps[step].x[0]->dtype);
}
static inline bool wb__export_has_dims(const wb__exporter *w, int a, int b)
{
    const wb__export_step *p = &w->steps[a], *q = &w->steps[b];
    bool same = p->x[0]->ndim == q->x[0]->ndim;
    for (int i = 0; same && i < p->x[0]->ndim; i++) same = wb__export_same(p->dims[i], q->dims[i]);
    return same;
}

/* ---- write_match.c --------------------------------------------------------------------------- */

/* Finds groups, and the steps that are needed. */
void wb__export_match(wb__exporter *w);

/* ---- write_put.c ----------------------------------------------------------------------------- */

/* These functions return names of values, which the writer owns; "" after a failure. */

int wb__export_type_of(wb_dtype dtype);           /* TensorProto.DataType */
/* wb__export_begin, the attributes, and wb__export_end write a node with one result.  An input
 * whose name is NULL is left out. */
void wb__export_begin(wb__exporter *w, const char *op, int n, const char *const *in);
void wb__export_put_int(wb__exporter *w, const char *name, int64_t value);
void wb__export_put_ints(wb__exporter *w, const char *name, int n, const int64_t *values);
void wb__export_put_text(wb__exporter *w, const char *name, const char *value);
void wb__export_put_float(wb__exporter *w, const char *name, double value);
const char *wb__export_end(wb__exporter *w);
/* Makes the next node have another result before the one whose name is returned. */
void wb__export_second_result(wb__exporter *w);
/* Sets the name of the next node's result, which otherwise gets a new name. */
void wb__export_call_it(wb__exporter *w, const char *name);
const char *wb__export_put(wb__exporter *w, const char *op, int n, const char *const *in);
#define WB__PUT(w, op, ...) \
    wb__export_put(w, op, WB_NARGS_(__VA_ARGS__), (const char *[]){__VA_ARGS__})

const char *wb__export_constant(wb__exporter *w, wb_dtype dtype, int ndim, const int64_t *dims,
                                const void *values);
const char *wb__export_number(wb__exporter *w, wb_dtype dtype, double value);  /* 0-d */
const char *wb__export_list(wb__exporter *w, int n, const int64_t *values);    /* i64 [n] */
const char *wb__export_sizes(wb__exporter *w, int n, const wb__export_size *sizes);  /* i64 [n] */
const char *wb__export_size_number(wb__exporter *w, wb__export_size n);         /* i64, 0-d */
const char *wb__export_range(wb__exporter *w, wb__export_size n);   /* i64 [n]: 0, ..., n - 1 */
const char *wb__export_cast(wb__exporter *w, const char *x, wb_dtype from, wb_dtype to);

/* Writes x where the condition is true, else y, of dtype t: runtimes lack Where of bool and i8. */
const char *wb__export_where(wb__exporter *w, const char *condition, const char *x, const char *y,
                             wb_dtype t);

/* Returns the value of a step, after writing it if it is a constant, literal, input or
 * parameter. */
const char *wb__export_value(wb__exporter *w, int step);

/* ---- write_ops.c, write_shape.c, write_rows.c, write_product.c ------------------------------- */

/* Writes a step that is needed and not such a value. */
void wb__export_write_step(wb__exporter *w, int step);
/* These functions write a step and return the name of its result; NULL if the step is of another
 * file. */
const char *wb__export_write_elementwise(wb__exporter *w, int step);
const char *wb__export_write_move(wb__exporter *w, int step);
const char *wb__export_write_rows(wb__exporter *w, int step);
const char *wb__export_write_product(wb__exporter *w, int step);

/* Write a literal as a 0-d number; a literal with its dimensions; an iota. */
const char *wb__export_literal_number(wb__exporter *w, int step);
const char *wb__export_literal(wb__exporter *w, int step);
const char *wb__export_iota(wb__exporter *w, int step);
/* Write x with these dimensions: the same elements; broadcast; or filled with the 0-d number x. */
const char *wb__export_reshaped(wb__exporter *w, const char *x, int n, const wb__export_size *dims);
const char *wb__export_filled(wb__exporter *w, const char *x, int n, const wb__export_size *dims);
const char *wb__export_permuted(wb__exporter *w, const char *x, int n, const int64_t *order);

#endif
