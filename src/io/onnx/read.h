/* Shared by the files that read a model of ONNX: model.c (the model, its memory), tensor.c,
 * external.c (values in other files), graph.c (a graph), attribute.c, local.c (functions of the
 * file, which become their nodes), order.c. */
#ifndef WB__ONNX_READ_H
#define WB__ONNX_READ_H

#include "base/map.h"
#include "base/table.h"
#include "io/onnx/fields.h"
#include "io/onnx/model.h"
#include "io/protobuf.h"

#include <string.h>

enum { WB__ONNX_DEPTH = 64 };           /* levels of graphs in graphs, functions in functions */

/* A set of texts.  A text's number is its index in the order of addition. */
typedef struct {
    const char **list;                  /* the texts, ended by 0 */
    int n, capacity;
    int *table, size;                   /* hash table: number of a text plus 1, or 0 */
} wb__name_set;

/* The field opset_import: the version of each domain. */
typedef struct { wb__name_set domains; int64_t *versions; } wb__opsets;

/* A function of the file (FunctionProto). */
typedef struct {
    const uint8_t *at, *end;            /* the message */
    const char *name;
    int n_inputs;
    wb__name_set formals;               /* names of the inputs, then of the outputs */
    wb__name_set defaults;              /* names of attributes with a default value */
    wb__span *default_at;               /* the messages of these attributes */
    wb__opsets opsets;
} wb__local;

/* A call of a function of the file, which the function's nodes replace.  Names in the function
 * become names of the call, or get the prefix `prefix`. */
typedef struct wb__onnx_scope {
    const wb__local *function;
    const struct wb__onnx_scope *outer; /* call of the calling node; NULL: it is in no function */
    int depth;
    const char *prefix;
    wb__span *actual;                   /* the call's names for `formals`; n = 0: left out */
    wb__name_set attrs;                 /* names of the call's attributes */
    wb__span *attr_at;                  /* the messages of these attributes */
} wb__onnx_scope;

/* A file while it is read. */
typedef struct wb__onnx_reader {
    wb__onnx_model *m;                  /* the result */
    wb__wire_file file;
    bool bare;                          /* initializers may lack values (wb__onnx_read) */
    wb__opsets opsets;
    wb__name_set functions;             /* their definitions are `locals` */
    wb__local *locals;
    int n_calls;  /* number of calls of functions so far; prefixes have this number */
    size_t expanded;                    /* bytes of the functions' messages, once for each call */
    const char *folder;  /* folder of the file, without links; NULL: not yet needed */
    wb__span location;                  /* name of the external file that was opened last */
    const wb__mapping *located;         /* its mapping */
    int64_t mapped, external;           /* bytes of external files; bytes of tensors in them */
} wb__onnx_reader;

/* A node of the file that becomes a node of the graph. */
typedef struct {
    const uint8_t *at, *end;            /* the message */
    const wb__onnx_scope *scope;
} wb__raw_node;

/* A graph while it is read. */
typedef struct wb__onnx_building {
    wb__onnx_reader *r;                 /* the file */
    wb__onnx_graph *g;                  /* the result */
    struct wb__onnx_building *outer;
    const wb__onnx_scope *scope;
    int depth;
    wb__name_set names;  /* names of the values; a name's number is the value's index */
    int value_capacity;
    wb__raw_node *raw;
    int raw_capacity;
} wb__onnx_building;

/* The fields of a node that are read before its attributes. */
typedef struct {
    wb__span op, domain, name, overload;
    int n_in, n_out, n_attrs;
} wb__node_head;

/* model.c: sets the error "path: reason" and returns the code. */
int wb__onnx_fail(const wb__onnx_reader *r, int code, const char *format, ...) WB__PRINTF(3, 4);
/* Makes a list in the arena at least n elements long; new ones are zeros.  The old memory stays
 * unused.  False: out of memory. */
bool wb__onnx_reserve(wb__onnx_model *m, void *list, int *capacity, int n, size_t each);
const char *wb__onnx_copy(wb__onnx_model *m, wb__span text);    /* ended by 0 */
/* wb__onnx_add_mapping adds the mapping of a file of external data, which the model then owns;
 * returns 0 or an error code.  wb__onnx_find_mapping returns one by the path without links, or
 * NULL. */
int wb__onnx_add_mapping(wb__onnx_model *m, wb__mapping *file);
wb__mapping *wb__onnx_find_mapping(const wb__onnx_model *m, const char *path);
static inline int wb__name_hash(uint64_t seed, wb__span text)
{
    return (int)(wb__hash(seed, text.at, text.n) >> 33);
}
/* Returns the number of a text in the set; -1 if it is not there. */
int wb__name_set_find(const wb__name_set *s, wb__span text);
/* Returns the number of a text in the set, and adds a text that is not there; *is_new is whether it
 * was added.  -1: out of memory. */
int wb__name_set_add(wb__onnx_model *m, wb__name_set *s, wb__span text, bool *is_new);
int wb__onnx_read_opset(wb__onnx_reader *r, wb__wire in, wb__opsets *to);
/* Returns 0 if the versions of the domains are known, else an error code.  Sets *opset to the
 * version of ONNX's own operators, or 0. */
int wb__onnx_check_opset(const wb__onnx_reader *r, const wb__opsets *s, int64_t *opset);
wb__span wb__onnx_domain(wb__span domain);      /* "" for "ai.onnx" */
static inline wb__span wb__span_of(const char *text) { return (wb__span){text, strlen(text)}; }
static inline bool wb__span_is(wb__span s, const char *text)
{
    return s.n == strlen(text) && !memcmp(s.at, text, s.n);
}

/* tensor.c: sets *t from a TensorProto.  With `bare` its values may be missing. */
int wb__onnx_read_tensor(wb__onnx_reader *r, wb__wire in, bool bare, wb__onnx_tensor *t);
/* Returns the bytes of the values; -1: the type has no fixed size. */
int64_t wb__onnx_tensor_bytes(const wb__onnx_tensor *t);

/* external.c: sets t->data to `bytes` bytes of another file in the model's folder, as the
 * TensorProto `in` names them. */
int wb__onnx_external(wb__onnx_reader *r, wb__wire in, int64_t bytes, wb__onnx_tensor *t);

/* graph.c: sets the graph from a GraphProto. */
int wb__onnx_read_graph(wb__onnx_reader *r, wb__wire in, const wb__onnx_scope *scope,
                        wb__onnx_building *outer, wb__onnx_graph **out);
int wb__onnx_read_head(wb__wire in, wb__node_head *h);
/* Writes "node 'name' (Conv, number 3)" to `to`, n bytes, and returns it. */
const char *wb__onnx_node_text(const wb__onnx_node *node, char *to, size_t n);

/* attribute.c: sets *to from an AttributeProto of node `node`.  Sets *none if the attribute refers
 * to one that the call of the function leaves out. */
int wb__onnx_read_attr(wb__onnx_building *b, const wb__onnx_node *node, wb__wire in,
                       const wb__onnx_scope *scope, wb__onnx_attr *to, bool *none);

/* local.c: adds the function of a FunctionProto to r->locals. */
int wb__onnx_read_local(wb__onnx_reader *r, wb__wire in);
/* Sets *f to the function that a node calls, or to NULL if it calls none. */
int wb__onnx_called(wb__onnx_reader *r, const wb__node_head *h, const wb__local **f);
/* Sets *out to the scope (wb__onnx_scope) of a call. */
int wb__onnx_enter(wb__onnx_reader *r, const wb__local *f, wb__wire node,
                   const wb__onnx_scope *outer, wb__onnx_scope **out);
/* Adds bytes that are read again for a call of a function to r->expanded.  An error code if too
 * many. */
int wb__onnx_count_expanded(wb__onnx_reader *r, size_t bytes);
/* Returns the name in the graph for a name in the message; wb__onnx_prefixed does so for a node,
 * which is no value.  `at` is NULL if memory is short. */
wb__span wb__onnx_name(wb__onnx_reader *r, const wb__onnx_scope *scope, wb__span name);
wb__span wb__onnx_prefixed(wb__onnx_reader *r, const wb__onnx_scope *scope, wb__span name);
/* Sets *message to the message of the attribute to which `ref` refers, of the call or the default,
 * and *read_in to the scope in which it is read.  False: there is none. */
bool wb__onnx_referred(const wb__onnx_scope *scope, wb__span ref, bool is_default,
                       wb__span *message, const wb__onnx_scope **read_in);

/* order.c: sorts the nodes so that each follows those whose results it needs. */
int wb__onnx_order(const wb__onnx_reader *r, wb__onnx_graph *g);

#endif
