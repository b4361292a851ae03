/* Declarations that all layers share.  Each kind of layer has a wb__layer_type in a file of this
 * folder, and layer.c lists the types.  Saving and loading use the option table of a type. */
#ifndef WB__LAYER_H
#define WB__LAYER_H

#include "base/numbers/philox.h"
#include "base/options.h"
#include "tree/tree.h"

enum { WB__MODE_AUTO, WB__MODE_TRAIN, WB__MODE_TEST };

typedef wb_tensor *(*wb__connection)(wb_tensor *, wb_tensor *);

/* The type of one field of a layer's options struct.  A layer type lists its fields in an X-macro,
 * from which WB__OPTION_ROW makes a table of wb__option:
 *   #define OPTIONS(X) X(wb_Dense_options, in, INT, 1) X(wb_Dense_options, out, INT, 1) ... */
typedef enum {
    WB__OPTION_INT,             /* int64_t */
    WB__OPTION_INT32,           /* int32_t: an int or an enum of a struct of the program */
    WB__OPTION_FLOAT,
    WB__OPTION_INTS,            /* wb_ints; files hold `count` numbers; 0: any number of them */
    WB__OPTION_REAL,            /* double */
    WB__OPTION_BOOL,
    WB__OPTION_FUNCTION,        /* wb_function; files hold its registered name */
    WB__OPTION_CONNECTION,      /* wb__connection; files hold its registered name */
    WB__OPTION_DTYPE,
    WB__OPTION_TEXT,            /* char[count], ended by 0 */
    WB__OPTION_BLOB,            /* wb__blob *; files hold its bytes in base64 */
    WB__OPTION_INITIALISER      /* not stored in files */
} wb__option_kind;
typedef struct { const char *name; wb__option_kind kind; size_t offset; int count; } wb__option;
#define WB__OPTION_ROW(T, field, kind, count) \
    {#field, WB__OPTION_##kind, offsetof(T, field), count},
enum { WB__OUTPUTS = 16 };      /* the most outputs of a layer */
typedef struct wb__layer_type wb__layer_type;

/* Bytes that the options of a layer and of its copies share, such as a graph of ONNX.  `n` is the
 * number of bytes, `made` the object that the layer type built from the bytes, or NULL; `drop`
 * frees it. */
typedef struct {
    _Atomic uint32_t refs;
    size_t n;
    void *made;
    void (*drop)(void *made);
    _Alignas(16) uint8_t bytes[];
} wb__blob;
wb__blob *wb__blob_new(size_t n);       /* with one reference; NULL with the error set */
void wb__blob_unref(wb__blob *b);       /* accepts NULL */
/* Adds or drops a reference to each blob of the options. */
void wb__blobs_ref(const wb__layer_type *type, const void *options);
void wb__blobs_unref(const wb__layer_type *type, const void *options);

/* A layer's child that has another name in PyTorch. */
typedef struct {
    const char *child;
    /* The child's name in PyTorch.  "" means that PyTorch's paths leave the child out.  For example
     * "layers.0.weight" of a Chain is "0.weight" in PyTorch. */
    const char *name;
    /* The name of a second bias that PyTorch has.  The child is the sum of PyTorch's two biases.
     * If `second` is NULL, PyTorch has one bias.  If the layer has a child "bias_hidden", `second`
     * is ignored. */
    const char *second;
    /* If not 0, the last 1/unused of the elements of PyTorch's second bias cannot be stored in the
     * child and must be zero.  For example 3 means the last third. */
    int unused;
} wb__torch_child;

/* How PyTorch names and joins the tensors of a layer type. */
typedef struct {
    const wb__torch_child *children;
    int n_children;
    /* If not NULL, the names of children may end with _l1, _l2, ... or _reverse, in Weber and in
     * PyTorch.  A child without _l<number> in Weber has `suffix`, "_l0", in PyTorch. */
    const char *suffix;
    /* The weights of the first 3 children are one tensor in_proj_weight in PyTorch, and the biases
     * are one tensor in_proj_bias. */
    bool joined;
    bool counts_batches;        /* PyTorch has num_batches_tracked, unless .track_stats is
                                   false */
    bool inner_activation;      /* in PyTorch the layer itself applies the activation */
    bool numbered;              /* PyTorch numbers the inner layers, and gives activations that are
                                   options in Weber a number of their own */
} wb__torch_kind;

struct wb__layer_type {
    const char *name;                   /* "Dense" */
    size_t options_size;
    const void *defaults;               /* options by default; NULL: the size, and zeros */
    int n_options;
    const wb__option *options;
    /* A type sets one of the two functions.  `call` returns the layer's output for n inputs; NULL
     * with the error set on failure.  `call_many` sets the first of WB__OUTPUTS elements of
     * `outputs` and returns how many; a negative number with the error set on failure. */
    wb_tensor *(*call)(wb_layer *layer, int n, wb_tensor *const *inputs);
    int (*call_many)(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor **outputs);
    /* Prints the layer, such as "Dense(784 => 256, relu)".  If `print` is NULL, wb__print_layer
     * prints "name()". */
    void (*print)(const wb_layer *layer, wb__text *text);
    /* `make` creates a layer from its options alone.  `assemble` creates a container from its
     * options and its inner layers.  A type sets one of the two functions; the type of wb_named
     * sets neither. */
    wb_layer *(*make)(const void *options);
    wb_layer *(*assemble)(const void *options, int n, const char *const *names,
                          wb_layer *const *layers);
    bool without_inputs;                /* the layer may be called without inputs */
    /* Whether the layer has a constant of this name and value.  A constant is no child, but a file
     * of PyTorch's state may contain it.  NULL: the layers have no constants. */
    bool (*has_constant)(const wb_layer *layer, const char *name, wb_dtype dtype, size_t bytes,
                         const void *value);
    /* The layer is a container of one layer that does more than call it, and is printed and
     * summarised as one layer. */
    bool one_row;
    /* data that only this type uses, such as the cell_kind of a recurrent layer (recurrent.c) */
    const void *detail;
    const wb__torch_kind *torch;        /* NULL: PyTorch uses the same names */
};

/* Initialises the fields of a wb__layer_type that describe its options struct T and the option
 * table.  WB__LAYER_ROWS: T has rows, in the header. */
#define WB__LAYER_OPTIONS(T, table) \
    .options_size = sizeof(T), .options = (table), .n_options = WB__COUNT(table)
#define WB__LAYER_ROWS(T, table) \
    WB__LAYER_OPTIONS(T, table), .defaults = &(const T){.given = WB_CXX_MADE_, WB_DEFAULTS_(T)}
/* Sets the fields of a wb__torch_kind that list its children. */
#define WB__TORCH_CHILDREN(rows) .children = (rows), .n_children = WB__COUNT(rows)
/* Defines wb__<id>_type, a layer type with `make`.  maker(const T *options) creates a layer.  The
 * further arguments initialise fields of the type, such as .call and .print. */
#define WB__PLAIN_LAYER(id, Name, T, table, maker, ...)                                         \
    static wb_layer *make_##id(const void *options) { return maker(options); }                  \
    const wb__layer_type wb__##id##_type = {                                                    \
        .name = Name, WB__LAYER_ROWS(T, table), .make = make_##id, __VA_ARGS__}

struct wb_layer {
    wb__branch node;     /* children: parameters (variables, or WB_NONE) and inner layers */
    const wb__layer_type *type;
    wb__setting mode;                   /* WB__MODE_... */
    wb__setting recomputed;             /* whether wb_checkpoint_layer was called; 0 or 1 */
    void *options;                      /* type->options_size bytes, defaults filled in */
};

/* Layers of structs of the program (own.c).  wb__own_type_named returns the type of the struct that
 * is registered by this name, or NULL; wb__own_type_of registers a struct, or returns NULL with the
 * error set.  wb__own_struct returns the struct's description if the type
 * is one of these, else NULL.  wb__own_assemble makes such a layer from a copy of the struct, whose
 * object fields are not read, and the objects.  wb__own_failed prepends the name of the failed
 * inner layer to the error, if the thread is calling a layer of this kind. */
const wb__layer_type *wb__own_type_named(const char *name);
const wb__layer_type *wb__own_type_of(const wb_struct_type *type);
const wb_struct_type *wb__own_struct(const wb__layer_type *type);
wb_layer *wb__own_assemble(const wb__layer_type *type, const void *value, void *const *objects);
void wb__own_failed(const wb_layer *inner);
/* Prints a field of such a layer that is a number or function, as in "slope = 0.1". */
void wb__print_option(const wb_layer *l, const wb__option *o, wb__text *t);
/* Returns the layer type with this name, or NULL if there is none. */
const wb__layer_type *wb__layer_type_named(const char *name);
/* Returns the address of the option `name` in `options`, an options struct of `type`.  NULL: the
 * type has no such option. */
void *wb__layer_option(const wb__layer_type *type, const void *options, const char *name);

/* Makes a layer in the current scope with a copy of the options and n_children empty children. */
wb_layer *wb__layer_new(const wb__layer_type *type, const void *options, int n_children);
/* Sets child i of l to `object`.  `name`, a constant string, is the name of the child.  If object
 * is NULL or the tree becomes too deep, frees l and returns false. */
bool wb__layer_put(wb_layer *l, int i, const char *name, void *object);
/* Sets child i of l to a new parameter, or to WB_NONE if `has` is false.  On failure frees l and
 * returns false.  If l is NULL, returns false. */
bool wb__layer_put_parameter(wb_layer *l, int i, const char *name, bool has, wb_initializer init,
                             wb_dtype dtype, int ndim, const int64_t *dims);
/* Calls a layer as wb_call_array does.  Sets the first of WB__OUTPUTS elements of `outputs` and
 * returns how many, 1 or more; a negative number with the error set on failure. */
int wb__call_layer(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor **outputs);
static inline void *wb__layer_child(const wb_layer *l, int i) { return l->node.children[i].object; }

/* Returns the registered name of the connection of l.  If the connection has no name, returns
 * "function".  If l has no connection, returns NULL. */
const char *wb__layer_connection(const wb_layer *l);
/* Sets *layers to the inner layers of the container l and returns their number.  Returns 0 if l is
 * not a container. */
int wb__container_layers(const wb_layer *l, wb__child **layers);
/* If l was made by wb_named, returns the layer inside l and sets *name to the given name.
 * Otherwise returns l and sets *name to NULL.  `name` may be NULL. */
wb_layer *wb__layer_unnamed(wb_layer *l, const char **name);
/* If l is a WeightNorm, returns a layer with the same results and without WeightNorms, in the
 * current scope; else l.  NULL with the error set. */
wb_layer *wb__with_weights(wb_layer *l);
/* If l is a WeightNorm, returns the name of the tensor that it normalises, and sets *base to the
 * layer with this tensor, and *i to its index there.  Otherwise returns NULL. */
const char *wb__normed_child(const wb_layer *l, const wb_layer **base, int *i);
/* Whether `owner` is a WeightNorm that normalises the tensor `child`, or contains such a one. */
bool wb__is_normed(const wb_layer *owner, const char *child);
/* Returns a copy of l, in the current scope, that shares all children but child i, which is
 * `object`.  NULL with the error set, also if object is NULL. */
wb_layer *wb__layer_with(wb_layer *l, int i, void *object);
/* Whether a path is below one of the paths, or matches one of the patterns with '*', in a list that
 * is separated by blanks (wb_add_lora_options). */
bool wb__path_matches(const char *patterns, const char *path);
/* Whether each of the patterns in an option matches a layer of the model.  NULL has no patterns.
 * Otherwise sets the error. */
bool wb__each_matches(const char *option, const char *patterns, void *model);
/* The children of a Quantized. */
enum { WB__QUANTISED_LAYER, WB__QUANTISED_SCALE, WB__QUANTISED_LIKE };
/* Whether l is a quantised layer (quantised.c) or a LoRA (lora.c). */
bool wb__is_quantised(const void *l);
bool wb__is_lora(const void *l);
/* dense.c: returns x·weightᵀ + bias of a Dense, which may be quantised, and sets *f to its
 * activation.  NULL with the error set, also if l is another layer. */
wb_tensor *wb__dense_linear(wb_layer *l, wb_tensor *x, wb_function *f);
/* lora.c: returns a tensor that has the dtype and device of the results of a Dense, which may be
 * quantised or adapted. */
wb_tensor *wb__dense_typed(const wb_layer *l);
/* embedding.c: returns rows of the weight of an Embedding, those with the indices x; like
 * wb__dense_linear. */
wb_tensor *wb__embedding_rows(wb_layer *l, wb_tensor *x);
/* Returns y, which has the rows x of Embedding l, so that rows of the padding get no gradient. */
wb_tensor *wb__without_padding(const wb_layer *l, wb_tensor *x, wb_tensor *y);
/* Makes a LoRA from its rank, alpha and dropout (lora.c); freezes the layer. */
wb_layer *wb__lora_empty(wb_layer *layer, int64_t rank, double alpha, double dropout);
void wb__lora_numbers(const wb_layer *l, int64_t *rank, double *alpha, double *dropout);
/* Makes the tree "layers" of a container from its n inner layers.  NULL with the error set. */
wb_tree *wb__layer_list(const char *what, int n, const char *const *names, wb_layer *const *layers);

/* Makes a variable of this dtype and shape with values from `init`.  NULL with the error set. */
wb_tensor *wb__parameter(const char *what, const char *name, wb_initializer init, wb_dtype dtype,
                         int ndim, const int64_t *dims);
/* Makes a frozen variable [n] with values from `init`.  wb_update does not change the variable.
 * NULL with the error set. */
wb_tensor *wb__statistic(const char *what, const char *name, wb_initializer init, wb_dtype dtype,
                         int64_t n);
/* Limits the total bytes of the parameters that this thread creates after this call.  A negative
 * number means no limit.  Readers of files set a limit, because a malformed file may describe a
 * huge model. */
void wb__parameters_limit(int64_t bytes);
/* An initialiser that leaves the elements unset, for parameters that are overwritten next. */
wb_tensor *wb__init_empty(wb_dtype dtype, int ndim, const int64_t *dims);

/* Reads the option .shape, a list of positive sizes; *passed comes from the macro. */
bool wb__read_shape(const char *what, const wb__given *g, int64_t *shape, const int64_t **passed);
/* Prints the sizes of such a shape, as in "2, 3". */
void wb__print_shape(const int64_t *shape, wb__text *t);
/* Sets *dtype to f32 if it is WB_DTYPE_DEFAULT.  False, with the error set, if *dtype is not
 * floating. */
bool wb__layer_dtype(const char *what, wb_dtype *dtype);
/* Returns x converted to the dtype of `parameter`.  Converting a floating x logs a warning once in
 * the process; in mixed precision training there is no warning. */
wb_tensor *wb__layer_input(const wb_layer *l, wb_tensor *x, const wb_tensor *parameter);
/* dense.c: sets *y to the results of n layers for the same x, side by side, as one product; NULL:
 * failed.  Returns false if one is no Dense as wb_Dense makes it, or if the layers are faster one
 * by one, as on a CPU, since the weights are copied side by side. */
bool wb__dense_together(int n, wb_layer *const *dense, wb_tensor *x, wb_tensor **y);
/* Whether n is 1; otherwise sets the error. */
bool wb__one_input(const wb_layer *l, int n);

/* An observer of this thread's calls of layers (summary.c, io/onnx/write_record.c), or NULL.  The
 * calls of layers for which wb__has_row is true are reported to it, but not the calls inside
 * these. */
typedef struct wb__observer {
    void (*called)(struct wb__observer *o, const wb_layer *l, int n, wb_tensor *const *inputs,
                   int n_out, wb_tensor **outputs);
} wb__observer;
extern _Thread_local wb__observer *wb__layer_observer;
bool wb__has_row(const wb_layer *l);

/* recompute.c, for a layer of wb_checkpoint_layer: returns y, the output of `layer` for these
 * inputs, with a gradient that computes the layer again.  `before` is the state of the random
 * numbers before the call.  NULL with the error set. */
wb_tensor *wb__recomputed(wb_layer *layer, int n, wb_tensor *const *inputs, wb_tensor *y,
                          wb__rng_state before);

/* Whether the layer is in train mode.  Sets *automatic to true if the layer is in test mode only
 * because wb_withgradient is not running, else to false. */
bool wb__train_mode(wb_layer *l, bool *automatic);

/* Activations that are composed of other operations (activations.c). */
#define WB__COMPOSED_ACTIVATIONS(X)                                                             \
    X(relu6) X(hardtanh) X(hardsigmoid) X(softsign) X(softshrink) X(tanhshrink) X(trelu)        \
    X(lisht) X(logcosh) X(celu)
/* wb__function_name and wb__connection_name return the registered name of f.  The _by_name
 * functions return what has this registered name.  All return NULL if nothing is registered. */
const char *wb__function_name(wb_function f);
wb_function wb__function_by_name(const char *name);
const char *wb__connection_name(wb__connection f);
wb__connection wb__connection_by_name(const char *name);
/* `at` is the address of a field that holds a function or a connection.  `o` describes the field.
 * wb__option_name returns the registered name of the function, or NULL if the function has no name.
 * It sets *set to whether the field is not NULL.  wb__option_named sets the field to the function
 * with this name, or returns false if no function has the name. */
const char *wb__option_name(const wb__option *o, const void *at, bool *set);
bool wb__option_named(const wb__option *o, void *at, const char *name);
/* wb__activate returns f(x), or x if f is NULL.  wb__connect returns f(y, x).  Both count the call
 * in wb__thread.program_calls unless f is a function of the library. */
wb_tensor *wb__activate(wb_function f, wb_tensor *x);
wb_tensor *wb__connect(wb__connection f, wb_tensor *y, wb_tensor *x);

/* wb__print_layer prints a layer on one line.  wb__print_activation prints a comma and the name,
 * such as ", relu", or nothing if there is no activation.  wb__format_layer returns the text that
 * wb_show prints. */
void wb__print_layer(const wb_layer *l, wb__text *t);
void wb__print_activation(wb_function f, wb__text *t);
char *wb__format_layer(void *layer);

#endif
