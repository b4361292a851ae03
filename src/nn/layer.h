/* What every layer has in common.  A kind of layer is one wb__layer_type, in one file of this folder. */
#ifndef WB__LAYER_H
#define WB__LAYER_H

#include "tree/tree.h"

enum { WB__MODE_AUTO, WB__MODE_TRAIN, WB__MODE_TEST };

/* One field of a layer's options, for files and printing; from one list a type. */
typedef enum { WB__OPTION_INT, WB__OPTION_REAL, WB__OPTION_BOOL, WB__OPTION_FUNCTION, WB__OPTION_CONNECTION,
               WB__OPTION_DTYPE, WB__OPTION_INITIALISER } wb__option_kind;
typedef struct { const char *name; wb__option_kind kind; size_t offset; int count; } wb__option;

typedef struct {
    const char *name;                   /* "Dense" */
    size_t options_size;
    int n_options;
    const wb__option *options;
    /* 1 + states inputs; sets the error and returns NULL on failure */
    wb_tensor *(*call)(wb_layer *layer, int n, wb_tensor *const *inputs);
    /* "Dense(784 => 256, relu; bias=false)", into text */
    void (*print)(const wb_layer *layer, char *text, size_t room);
    /* Makes one from options alone, with fresh parameters (loading): children are given for containers. */
    wb_layer *(*make)(const void *options, int n_children, void *const *children, const char *const *names);
    bool container;                     /* printed with its children indented */
} wb__layer_type;

struct wb_layer {
    wb__object object;
    const wb__layer_type *type;
    int mode;
    int n;
    wb__child *children;                /* parameters (variables, or WB_NONE) and inner layers */
    void *options;                      /* type->options_size bytes */
    const char *function_name;          /* of function layers */
};

extern const wb__layer_type *const wb__layer_types[];   /* all kinds, NULL at the end */

/* A layer with n empty children and a copy of its options, in the current scope. */
wb_layer *wb__layer_new(const wb__layer_type *type, const void *options, int n_children);
int wb__layer_put(wb_layer *l, int i, const char *name, void *object);  /* takes a reference */

bool wb__train_mode(const wb_layer *l, bool *automatic);    /* is it to act as in training now? */
const char *wb__function_name(wb_function f);               /* NULL if it has none */
wb_function wb__function_by_name(const char *name);

#endif
