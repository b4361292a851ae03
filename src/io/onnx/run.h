/* Calling a graph of ONNX (run.c), and what the files of operations (ops_*.c) use for it. */
#ifndef WB__ONNX_RUN_H
#define WB__ONNX_RUN_H

#include "base/options.h"
#include "engine/evaluate.h"
#include "io/onnx/model.h"

typedef struct wb__onnx_call wb__onnx_call;

/* An attribute of an operator.  If it has neither `is_needed` nor `has_default`, it may be left
 * out, and the operator's function handles that. */
typedef struct {
    wb__onnx_attr_type type;            /* 0: the end of the list */
    bool is_needed, has_default;
    const char *name;
    uint8_t from, before;               /* the opsets that have it; 0: no bound */
    const char *words;                  /* the known words of a STRING, separated by blanks, with
                                           '=' between words of one meaning; the first one is the
                                           default.  NULL: any text */
    double number;  /* the default of an INT or FLOAT; of a FLOAT also the number that `op` uses */
} wb__onnx_attr_row;

/* What a formula accepts as input 0: any dtype, reals, reals of which f16 and bf16 are computed in
 * f32, or bools. */
typedef enum {
    WB__ONNX_OF_ALL, WB__ONNX_OF_REALS, WB__ONNX_OF_WIDE, WB__ONNX_OF_TRUTHS
} wb__onnx_accepted;
/* A formula: an operator as an expression of its first inputs and its first numbers (a, b). */
typedef wb_tensor *wb__onnx_formula(const wb__onnx_call *c, wb_tensor *x, wb_tensor *y,
                                    wb_tensor *z, double a, double b);

/* The least and the most inputs and outputs, from an opset on. */
enum { WB__ONNX_PORTS = 4, WB__ONNX_ANY = UINT8_MAX };
typedef struct { uint8_t since, in[2], out[2]; } wb__onnx_ports;

/* A row of ops.def, ops_microsoft.def or ops_ml.def.  Bit i of `constants` and `statistics` is
 * input i. */
typedef struct wb__onnx_operator {
    const char *name, *domain;          /* domain "": ONNX's own */
    bool (*function)(wb__onnx_call *c); /* computes the outputs; false: failed, the error is set */
    wb__op op;                          /* the operation that its default attributes make it, by
                                           which the writer finds it; WB__OP_NONE: none */
    wb__onnx_formula *formula;          /* for a row that is an expression: what `function` calls */
    wb__onnx_accepted accepts;          /* what the formula takes as input 0 */
    wb__onnx_ports ports[WB__ONNX_PORTS];   /* counts of inputs and outputs; the first: of the first
                                               opset that is read */
    const wb__onnx_attr_row *attributes;    /* sorted by name; NULL: none */
    int removed;                        /* the first opset that lacks the operator, or 0 */
    unsigned constants;                 /* inputs that are no data but numbers, scales or zero
                                           points; their initializers are no parameters */
    unsigned statistics;                /* inputs that are running statistics */
    bool calls_graphs;                  /* If and Loop */
    bool reads_sizes;                   /* the results are sizes of the input */
    bool is_random;                     /* the results vary from call to call */
} wb__onnx_operator;

/* The call of a node.  in[i] is NULL if the node leaves out an input that is not needed (forms.c
 * checks that).  out[i] is computed if the node names it (wb__onnx_wants). */
struct wb__onnx_call {
    const wb__onnx_node *node;
    int n_in, n_out;
    wb_tensor **in, **out;              /* the inputs and outputs */
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

/* Returns an attribute of the node, or NULL if the node does not give it. */
const wb__onnx_attr *wb__onnx_attribute(const wb__onnx_call *c, const char *name);
/* wb__onnx_int, wb__onnx_real and wb__onnx_text return the value of an attribute, of the node or
 * else the default in the operator's row; 0 or "" if there is none.  wb__onnx_word_index returns
 * the index of the text in the row's words. */
int64_t wb__onnx_int(const wb__onnx_call *c, const char *name);
double wb__onnx_real(const wb__onnx_call *c, const char *name);
const char *wb__onnx_text(const wb__onnx_call *c, const char *name);
int wb__onnx_word_index(const wb__onnx_call *c, const char *name);
/* Returns the INT, FLOAT or word that an attribute of a row has in the node. */
double wb__onnx_number_of(const wb__onnx_call *c, const wb__onnx_attr_row *row);
/* Returns the integer that the node gives, or `otherwise`. */
static inline int64_t wb__onnx_int_or(const wb__onnx_call *c, const char *name, int64_t otherwise)
{
    return wb__onnx_attribute(c, name) ? wb__onnx_int(c, name) : otherwise;
}
/* Sets *list to the numbers of a list attribute; returns their count, or -1 if it is not given. */
int wb__onnx_ints(const wb__onnx_call *c, const char *name, const int64_t **list);

/* Sets *list to the elements of input i, which is an integer tensor such as a shape, axes or
 * starts; returns their count, -1 if the input is left out, or -2 with the error set.  The numbers
 * are known from the file and the sizes of the inputs, or are evaluated now, which cannot be
 * recorded.  The list is valid until the call of the graph ends. */
int wb__onnx_input_ints(const wb__onnx_call *c, int i, const int64_t **list);
/* Like wb__onnx_input_ints for an input that earlier opsets have as the attribute `name`: sets
 * *list to what the node gives, and returns the number of its elements. */
int wb__onnx_list(const wb__onnx_call *c, const char *name, int i, const int64_t **list);
/* Like wb__onnx_input_ints, for a floating or integer input (the scales of Resize). */
int wb__onnx_input_reals(const wb__onnx_call *c, int i, const double **list);
/* wb__onnx_input_int and wb__onnx_input_real set *value to the number in an input of one element,
 * which is an integer, or for wb__onnx_input_real floating or an integer.  If the input is left
 * out, *value stays.  Return false with the error set. */
bool wb__onnx_input_int(const wb__onnx_call *c, int i, int64_t *value);
bool wb__onnx_input_real(const wb__onnx_call *c, int i, double *value);

/* Sets the error "onnx: FILE: Conv 'name': ..."; returns false. */
bool wb__onnx_refuse(const wb__onnx_call *c, wb_status code, const char *format, ...)
    WB__PRINTF(3, 4);
/* Whether none of the first n inputs is left out, for operators with any number of inputs.  If one
 * is, sets the error. */
static inline bool wb__onnx_has(const wb__onnx_call *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!wb__onnx_in(c, i))
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "input %d is left out, which the operator "
                                   "needs", i);
    return true;
}
/* Returns an axis from -ndim to ndim - 1 as one from 0; -1 with the error set. */
int wb__onnx_axis(const wb__onnx_call *c, int64_t axis, int ndim);
/* Returns a tensor of the file as a constant on the device of the call. */
wb_tensor *wb__onnx_constant(const wb__onnx_call *c, const wb__onnx_tensor *t);
/* Sets out[0] to y.  Returns false if y is NULL. */
static inline bool wb__onnx_give(wb__onnx_call *c, wb_tensor *y)
{
    c->out[0] = y;
    return y != NULL;
}
/* Returns the table of the operators (operators.c), and sets *n to its length. */
const wb__onnx_operator *wb__onnx_operators(int *n);
/* Returns the operator for an operation in the opset, or NULL. */
const wb__onnx_operator *wb__onnx_operator_of(wb__op op, int64_t opset);
/* Returns the operator of a node in this version of its domain; NULL: not supported. */
const wb__onnx_operator *wb__onnx_find(const char *domain, const char *op, int64_t opset);
/* Whether the operator has the attribute in the opset. */
static inline bool wb__onnx_in_opset(const wb__onnx_attr_row *a, int64_t opset)
{
    return opset >= a->from && (!a->before || opset < a->before);
}
/* Returns the row of the attribute in the opset, or else in another opset; NULL: there is none. */
const wb__onnx_attr_row *wb__onnx_attr_row_of(const wb__onnx_operator *o, const char *name,
                                              int64_t opset);
/* Returns the index of the text among the words; -1 if it is none of them. */
int wb__onnx_word_in(const char *words, const char *text);

/* Computes the operation of the row.  An operation of two operands joins any number of inputs
 * pairwise. */
bool wb__onnx_operation(wb__onnx_call *c);

#define ONNX_OP(name, function, ...) bool wb__onnx_##function(wb__onnx_call *c);
#define ONNX_IS(name, op, ...)
#define ONNX_FORMULA(name, kind, expression, ...)
#include "io/onnx/ops.def"
#include "io/onnx/ops_microsoft.def"
#include "io/onnx/ops_ml.def"
#undef ONNX_OP
#undef ONNX_IS
#undef ONNX_FORMULA

#endif
