/* What every layer has in common.  A kind of layer is one wb__layer_type, in one file of this
 * folder, listed in layer.c; saving, loading and printing follow from its table of options. */
#ifndef WB__LAYER_H
#define WB__LAYER_H

#include "base/options.h"
#include "tree/tree.h"

enum { WB__MODE_AUTO, WB__MODE_TRAIN, WB__MODE_TEST };

typedef wb_tensor *(*wb__connection)(wb_tensor *, wb_tensor *);

/* One field of a layer's options, for files; from one X-macro list a kind:
 *   #define DENSE_OPTIONS(X) X(in, INT, 1) X(out, INT, 1) X(activation, FUNCTION, 1) ... */
typedef enum {
    WB__OPTION_INT,             /* int64_t */
    WB__OPTION_INTS,            /* wb_ints that has been read; n numbers, or `count` */
    WB__OPTION_REAL,            /* double */
    WB__OPTION_BOOL,
    WB__OPTION_FUNCTION,        /* wb_function, by name */
    WB__OPTION_CONNECTION,      /* of two tensors, by name */
    WB__OPTION_DTYPE,
    WB__OPTION_INITIALISER      /* not stored: a loaded model needs none */
} wb__option_kind;
typedef struct { const char *name; wb__option_kind kind; size_t offset; int count; } wb__option;
#define WB__OPTION_ROW(T, field, kind, count) {#field, WB__OPTION_##kind, offsetof(T, field), count},

/* A child that PyTorch names otherwise. */
typedef struct {
    const char *child;
    const char *name;           /* PyTorch's; "": the names of the child's own children follow instead */
    const char *second;         /* not NULL: PyTorch has a second bias, which is added to this one */
    int unused;                 /* the last 1/unused of the second bias has no place here; 0: all has */
} wb__torch_child;

/* How PyTorch divides a kind's tensors, and names them. */
typedef struct {
    const wb__torch_child *children;
    int n_children;
    bool joined;                /* in_proj_weight and in_proj_bias hold those of the first three children */
    bool counts_batches;        /* num_batches_tracked, but for .no_track_stats */
    bool inner_activation;      /* .activation is no module behind the layer */
    bool numbered;              /* Sequential: its children are numbered, activations too */
} wb__torch_kind;

typedef struct {
    const char *name;                   /* "Dense" */
    size_t options_size;
    int n_options;
    const wb__option *options;
    /* n inputs; NULL with the error set on failure */
    wb_tensor *(*call)(wb_layer *layer, int n, wb_tensor *const *inputs);
    /* "Dense(784 => 256, relu)"; NULL: name() */
    void (*print)(const wb_layer *layer, wb__text *text);
    /* A fresh one: a plain layer from options alone, a container from options and its parts.  One
     * of the two. */
    wb_layer *(*make)(const void *options);
    wb_layer *(*assemble)(const void *options, int n, const char *const *names,
                          wb_layer *const *parts);
    const void *detail;                 /* the kind's own */
    const wb__torch_kind *torch;        /* NULL: PyTorch has the same names */
} wb__layer_type;

/* Of a wb__layer_type: the struct of options T with its table. */
#define WB__LAYER_OPTIONS(T, table) \
    .options_size = sizeof(T), .options = (table), .n_options = WB__COUNT(table)
/* The children of a wb__torch_kind. */
#define WB__TORCH_CHILDREN(rows) .children = (rows), .n_children = WB__COUNT(rows)
/* wb__<id>_type of a plain layer, which maker(const T *options) makes; .call, .print, .detail. */
#define WB__PLAIN_LAYER(id, Name, T, table, maker, ...)                                         \
    static wb_layer *make_##id(const void *options) { return maker(options); }                  \
    const wb__layer_type wb__##id##_type = {                                                    \
        .name = Name, WB__LAYER_OPTIONS(T, table), .make = make_##id, __VA_ARGS__}

struct wb_layer {
    wb__branch node;     /* children: parameters (variables, or WB_NONE) and inner layers */
    const wb__layer_type *type;
    wb__setting mode;                   /* WB__MODE_... */
    void *options;                      /* type->options_size bytes, defaults filled in */
};

const wb__layer_type *wb__layer_type_named(const char *name);           /* NULL: no such kind */

/* Where an option lies in such a type's options; NULL: there is none of that name. */
void *wb__layer_option(const wb__layer_type *type, const void *options, const char *name);

/* A layer with n children still empty and a copy of its options, in the current scope. */
wb_layer *wb__layer_new(const wb__layer_type *type, const void *options, int n_children);
/* Puts an object that was just made: false (and the layer given up) if it is NULL.  The name is a
 * constant. */
bool wb__layer_put(wb_layer *l, int i, const char *name, void *object);
/* Puts a new parameter, or where `has` is false WB_NONE.  False, and the layer given up, on failure or
 * if l is NULL. */
bool wb__layer_put_parameter(wb_layer *l, int i, const char *name, bool has, wb_initialiser init,
                             wb_dtype dtype, int ndim, const int64_t *dims);
static inline void *wb__layer_child(const wb_layer *l, int i) { return l->node.children[i].object; }

/* The name of a container's connection, or "function" where that has none; NULL: no connection. */
const char *wb__layer_connection(const wb_layer *l);
/* The parts of a container: their number, and where they stand with their names. */
int wb__layer_parts(const wb_layer *l, wb__child **parts);
/* takes wb_named off; name NULL if none */
wb_layer *wb__layer_unnamed(wb_layer *l, const char **name);
/* The tree "layers" of a container: parts by name or number, wb_named taken off. */
wb_tree *wb__layer_list(const char *what, int n, const char *const *names, wb_layer *const *layers);

/* A new variable, made by an initialiser and evaluated. */
wb_tensor *wb__parameter(const char *what, const char *name, wb_initialiser init, wb_dtype dtype,
                         int ndim, const int64_t *dims);
/* frozen */
wb_tensor *wb__statistic(const char *what, const char *name, wb_initialiser init, wb_dtype dtype,
                         int64_t n);
/* What the layers that this thread makes from here on may take, all together; negative: what they like.  For readers of
 * files, whose descriptions may ask for anything. */
void wb__parameters_limit(int64_t bytes);
/* An initialiser for those who overwrite every parameter: its memory is not even touched. */
wb_tensor *wb__init_empty(wb_dtype dtype, int ndim, const int64_t *dims);
bool wb__layer_dtype(const char *what, wb_dtype *dtype);     /* fills in f32; floating only */

/* x in the dtype of the layer's parameters, with one warning if it was another floating one and they
 * are not trained in mixed precision. */
wb_tensor *wb__layer_input(const wb_layer *l, wb_tensor *x, const wb_tensor *parameter);
/* Exactly one input, or the error. */
bool wb__one_input(const wb_layer *l, int n);

bool wb__train_mode(wb_layer *l, bool *automatic);    /* is it to act as in training now? */

/* Activations that are known by name, and made of other operations. */
#define WB__MADE_ACTIVATIONS(X) \
    X(relu6) X(hardtanh) X(hardsigmoid) X(softsign) X(softshrink) X(tanhshrink) X(trelu) X(lisht) X(logcosh)
#define WB__MADE_ACTIVATION(name) wb_tensor *wb__##name(wb_tensor *x);
WB__MADE_ACTIVATIONS(WB__MADE_ACTIVATION)
#undef WB__MADE_ACTIVATION

/* Functions by name; NULL if there is none. */
const char *wb__function_name(wb_function f);
wb_function wb__function_by_name(const char *name);
const char *wb__connection_name(wb__connection f);
wb__connection wb__connection_by_name(const char *name);
/* The same of an option that holds a function or a connection: its name, NULL if it has none or the
 * option is not `set`; and the option by name, false if there is none. */
const char *wb__option_name(const wb__option *o, const void *at, bool *set);
bool wb__option_named(const wb__option *o, void *at, const char *name);
/* Calls of such; one of the program's is counted, so that all that it makes stays in the scope. */
wb_tensor *wb__activate(wb_function f, wb_tensor *x);       /* x where there is no f */
wb_tensor *wb__connect(wb__connection f, wb_tensor *y, wb_tensor *x);

/* Printing. */
void wb__print_layer(const wb_layer *l, wb__text *t);       /* the short form, on one line */
void wb__print_activation(wb_function f, wb__text *t);      /* ", relu", or nothing */
char *wb__format_layer(void *layer);                        /* the table */

#endif
