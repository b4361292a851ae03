/* Calling a graph of ONNX (run.c), and what the files of operations (ops_*.c) use for it. */
#ifndef WB__ONNX_RUN_H
#define WB__ONNX_RUN_H

#include "base/options.h"
#include "engine/evaluate.h"
#include "io/onnx/model.h"

typedef struct wb__onnx_call wb__onnx_call;

/* What an operator has from an opset on, up to its next form (forms.c) */
enum { WB__ONNX_FORMS = 6, WB__ONNX_ANY = UINT8_MAX };
typedef struct {
    uint8_t since;                      /* the first opset; 0: no form */
    uint8_t in[2], out[2];              /* inputs and outputs: so many are needed, and the most */
    const char *attributes;             /* names, separated by blanks; "name!" is needed */
} wb__onnx_form;

/* A row of ops.def or ops_ml.def.  In `constants` and `statistics` bit i is input i. */
typedef struct wb__onnx_operator {
    const char *name, *domain;          /* domain "": ONNX's own */
    bool (*function)(wb__onnx_call *c); /* computes the outputs; false: failed, the error is set */
    wb__onnx_form forms[WB__ONNX_FORMS];    /* that of the first opset in which it is read, ... */
    int removed;                        /* the first opset that has it no longer, or 0 */
    unsigned constants;                 /* inputs that are no data: read as numbers, or scales and
                                           zero points; initializers there are no parameters */
    unsigned statistics;                /* inputs that are running statistics */
    bool calls_graphs;                  /* If and Loop */
    bool reads_sizes;                   /* the results are sizes of the input */
    bool is_random;                     /* the results vary from call to call */
} wb__onnx_operator;

/* The call of a node.  in[i] is NULL where an input is left out; out[i] is computed if the node
 * names it (wb__onnx_wants). */
struct wb__onnx_call {
    const wb__onnx_node *node;
    int n_in, n_out;
    wb_tensor **in, **out;
    struct wb__onnx_run *run;
};

static inline bool wb__onnx_wants(const wb__onnx_call *c, int i)
{
    return i < c->node->n_out && c->node->out[i] >= 0;
}
static inline wb_tensor *wb__onnx_in(const wb__onnx_call *c, int i)
{
    return i < c->n_in ? c->in[i] : NULL;
}

/* Attributes of the node, or `otherwise` if it has none of this name.  An attribute of another type
 * makes the call of the node fail. */
const wb__onnx_attr *wb__onnx_attribute(const wb__onnx_call *c, const char *name);
int64_t wb__onnx_int(const wb__onnx_call *c, const char *name, int64_t otherwise);
double wb__onnx_real(const wb__onnx_call *c, const char *name, double otherwise);
const char *wb__onnx_text(const wb__onnx_call *c, const char *name, const char *otherwise);
/* Sets *list to the numbers of a list; returns their count, or -1 without the attribute. */
int wb__onnx_ints(const wb__onnx_call *c, const char *name, const int64_t **list);

/* Sets *list to the elements of input i, which is an integer tensor such as a shape, axes or
 * starts; returns their count, -1 if the input is left out, or -2 with the error set.  The numbers
 * are known from the file and the sizes of the inputs, or are evaluated now, which cannot be
 * recorded.  The list is valid until the call of the graph ends. */
int wb__onnx_input_ints(const wb__onnx_call *c, int i, const int64_t **list);
/* As wb__onnx_input_ints, for a floating or integer input (the scales of Resize). */
int wb__onnx_input_reals(const wb__onnx_call *c, int i, const double **list);
/* Set *value to the number in an input of one element, which is an integer, or for
 * wb__onnx_input_real floating or an integer.  If the input is left out, *value stays as it is.
 * Return false with the error set. */
bool wb__onnx_input_int(const wb__onnx_call *c, int i, int64_t *value);
bool wb__onnx_input_real(const wb__onnx_call *c, int i, double *value);

/* Fails with "onnx: FILE: Conv 'name': ..."; returns false. */
bool wb__onnx_refuse(const wb__onnx_call *c, wb_status code, const char *format, ...)
    WB__PRINTF(3, 4);
/* Fails unless the first n inputs are given. */
static inline bool wb__onnx_has(const wb__onnx_call *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!wb__onnx_in(c, i))
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "input %d is left out, which the operator "
                                   "needs", i);
    return true;
}
/* Makes an axis of -ndim to ndim - 1 positive; -1 with the error set. */
int wb__onnx_axis(const wb__onnx_call *c, int64_t axis, int ndim);
/* A constant tensor of the file, as a tensor of Weber on the device of the call. */
wb_tensor *wb__onnx_constant(const wb__onnx_call *c, const wb__onnx_tensor *t);
/* Sets out[0]; false if y is NULL. */
static inline bool wb__onnx_give(wb__onnx_call *c, wb_tensor *y)
{
    c->out[0] = y;
    return y != NULL;
}
/* The operator of a node with this version of its domain; NULL: not supported. */
const wb__onnx_operator *wb__onnx_find(const char *domain, const char *op, int64_t opset);

#define ONNX_OP(name, function, ...) bool wb__onnx_##function(wb__onnx_call *c);
#include "io/onnx/ops.def"
#include "io/onnx/ops_ml.def"
#undef ONNX_OP

#endif
