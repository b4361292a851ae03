/* Declarations that all layers share. Each kind of layer is one wb__layer_type in one file of
 * this folder, listed in layer.c. Saving, loading and printing use its option table. */
#ifndef WB__LAYER_H
#define WB__LAYER_H

#include "base/options.h"
#include "tree/tree.h"

enum { WB__MODE_AUTO, WB__MODE_TRAIN, WB__MODE_TEST };

typedef wb_tensor *(*wb__connection)(wb_tensor *, wb_tensor *);

/* One field of a layer's options, for files. Each kind lists its fields in one X-macro:
 *   #define OPTIONS(X) X(wb_Dense_options, in, INT, 1) X(wb_Dense_options, out, INT, 1) ... */
typedef enum {
    WB__OPTION_INT,             /* int64_t */
    WB__OPTION_INTS,            /* wb_ints after wb__ints_read; `count` integers, 0: any number */
    WB__OPTION_REAL,            /* double */
    WB__OPTION_BOOL,
    WB__OPTION_FUNCTION,        /* wb_function, by name */
    WB__OPTION_CONNECTION,      /* a function of two tensors, by name */
    WB__OPTION_DTYPE,
    WB__OPTION_INITIALISER      /* not stored: a loaded model needs no initialiser */
} wb__option_kind;
typedef struct { const char *name; wb__option_kind kind; size_t offset; int count; } wb__option;
#define WB__OPTION_ROW(T, field, kind, count) \
    {#field, WB__OPTION_##kind, offsetof(T, field), count},
/* A child that has another name in PyTorch. */

typedef struct {
    const char *child;
    /* The name in PyTorch; "": PyTorch has no level for this child, only its children's names. */
    const char *name;
    const char *second;         /* a second bias in PyTorch, added to this one; NULL: none */
    /* The last 1/unused of the second bias has no counterpart in this layer and must be zero; 0:
     * all of it has. */
    int unused;
} wb__torch_child;

/* How PyTorch splits and names the tensors of a kind of layer. */
typedef struct {
    const wb__torch_child *children;
    int n_children;
    bool joined;                /* in_proj_weight and in_proj_bias hold the first 3 children */
    bool counts_batches;        /* has num_batches_tracked, except with .no_track_stats */
    bool inner_activation;      /* .activation is part of the layer, not a module after it */
    bool numbered;              /* Sequential: children are numbered, activations included */
} wb__torch_kind;

typedef struct {
    const char *name;                   /* "Dense" */
    size_t options_size;
    int n_options;
    const wb__option *options;
    /* Calls the layer with n inputs; NULL with the error set on failure. */
    wb_tensor *(*call)(wb_layer *layer, int n, wb_tensor *const *inputs);
    /* Prints "Dense(784 => 256, relu)"; NULL: prints "name()". */
    void (*print)(const wb_layer *layer, wb__text *text);
    /* Each kind has one of the two, except Named (container.c): `make` creates a plain layer from
     * its options, `assemble` a container from its options and inner layers. */
    wb_layer *(*make)(const void *options);
    wb_layer *(*assemble)(const void *options, int n, const char *const *names,
                          wb_layer *const *layers);
    /* more data of the type, such as the cell_kind of a recurrent layer (recurrent.c) */
    const void *detail;
    const wb__torch_kind *torch;        /* NULL: the names in PyTorch are the same */
} wb__layer_type;

/* Initialises the option fields of a wb__layer_type: options struct T, its option table. */
#define WB__LAYER_OPTIONS(T, table) \
    .options_size = sizeof(T), .options = (table), .n_options = WB__COUNT(table)
/* Initialises the children of a wb__torch_kind. */
#define WB__TORCH_CHILDREN(rows) .children = (rows), .n_children = WB__COUNT(rows)
/* Defines wb__<id>_type, a plain layer type; maker(const T *options) creates a layer. Further
 * arguments are initialisers such as .call, .print, .detail. */
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


/* Returns the layer type with this name; NULL: none. */
const wb__layer_type *wb__layer_type_named(const char *name);
/* Returns the address of an option in `options`, a struct of this type; NULL: no option has this
 * name. */
void *wb__layer_option(const wb__layer_type *type, const void *options, const char *name);

/* Makes a layer in the current scope with a copy of the options and n_children empty children. */
wb_layer *wb__layer_new(const wb__layer_type *type, const void *options, int n_children);
/* Makes `object` child i. `name` must be a constant string. If object is NULL or the tree becomes
 * too deep, frees the layer and returns false. */
bool wb__layer_put(wb_layer *l, int i, const char *name, void *object);
/* Makes a new parameter child i, or WB_NONE if `has` is false. On failure frees the layer and
 * returns false; false for l == NULL too. */
bool wb__layer_put_parameter(wb_layer *l, int i, const char *name, bool has, wb_initialiser init,
                             wb_dtype dtype, int ndim, const int64_t *dims);
static inline void *wb__layer_child(const wb_layer *l, int i) { return l->node.children[i].object; }

/* Returns the name of a container's connection, "function" if it has no name; NULL: l has none. */
const char *wb__layer_connection(const wb_layer *l);
/* Sets *layers to the inner layers of a container with their names, and returns their number; 0: l
 * is not a container. */
int wb__container_layers(const wb_layer *l, wb__child **layers);
/* Returns the layer inside wb_named, or l itself. Sets *name, unless `name` is NULL, to the name
 * given by wb_named, or to NULL. */
wb_layer *wb__layer_unnamed(wb_layer *l, const char **name);
/* Makes the tree "layers" of a container; see container.c. */
wb_tree *wb__layer_list(const char *what, int n, const char *const *names, wb_layer *const *layers);

/* Makes an evaluated variable with the initialiser's values. NULL with the error set. */
wb_tensor *wb__parameter(const char *what, const char *name, wb_initialiser init, wb_dtype dtype,
                         int ndim, const int64_t *dims);
/* The same for a vector [n] that is frozen, so that no update changes it. */
wb_tensor *wb__statistic(const char *what, const char *name, wb_initialiser init, wb_dtype dtype,
                         int64_t n);
/* Limits the bytes of all parameters that this thread creates from this call on; negative: no
 * limit. Readers of files use it, since a malformed file may describe a huge model. */
void wb__parameters_limit(int64_t bytes);
/* An initialiser for parameters that are overwritten next: it does not touch their memory. */
wb_tensor *wb__init_empty(wb_dtype dtype, int ndim, const int64_t *dims);

/* Replaces the default dtype by f32; fails for dtypes that are not floating. */
bool wb__layer_dtype(const char *what, wb_dtype *dtype);
/* Returns x converted to the dtype of the parameter. The first conversion from another floating
 * dtype in the process logs a warning, except in mixed precision training. */
wb_tensor *wb__layer_input(const wb_layer *l, wb_tensor *x, const wb_tensor *parameter);
/* Whether n is 1; otherwise sets the error. */
bool wb__one_input(const wb_layer *l, int n);


/* Whether the layer acts as in training. Sets *automatic to true if it does not, but would inside
 * wb_withgradient, because its mode is automatic; else to false. */
bool wb__train_mode(wb_layer *l, bool *automatic);

/* Activations that have names in files and are composed of other operations (activations.c). */
#define WB__COMPOSED_ACTIVATIONS(X)                                                             \
    X(relu6) X(hardtanh) X(hardsigmoid) X(softsign) X(softshrink) X(tanhshrink) X(trelu)        \
    X(lisht) X(logcosh)
#define WB__COMPOSED_ACTIVATION(name) wb_tensor *wb__##name(wb_tensor *x);
WB__COMPOSED_ACTIVATIONS(WB__COMPOSED_ACTIVATION)
#undef WB__COMPOSED_ACTIVATION
/* Names of functions and functions by name; NULL if there is none. */
const char *wb__function_name(wb_function f);
wb_function wb__function_by_name(const char *name);
const char *wb__connection_name(wb__connection f);
wb__connection wb__connection_by_name(const char *name);
/* The same for an option that holds a function or a connection. wb__option_name returns the name,
 * or NULL if the function has no name or the option is not set (*set). wb__option_named sets the
 * option by name; false: no such name. */
const char *wb__option_name(const wb__option *o, const void *at, bool *set);
bool wb__option_named(const wb__option *o, void *at, const char *name);
/* Call a function or a connection. Calls of the program's functions are counted, because the
 * tensors that they create must stay in the scope. */
wb_tensor *wb__activate(wb_function f, wb_tensor *x);       /* x if f is NULL */
wb_tensor *wb__connect(wb__connection f, wb_tensor *y, wb_tensor *x);

/* Printing. wb__print_layer prints the short form on one line, wb__print_activation ", relu" or
 * nothing, wb__format_layer returns the table of wb_show. */
void wb__print_layer(const wb_layer *l, wb__text *t);
void wb__print_activation(wb_function f, wb__text *t);
char *wb__format_layer(void *layer);

#endif
