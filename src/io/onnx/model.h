/* A model file of ONNX, read and checked (model.c): the protobuf message ModelProto as structs.
 *
 * All memory of a model is one arena; names are ended by 0, and values of tensors stay in the
 * file's bytes, which the caller keeps. */
#ifndef WB__ONNX_MODEL_H
#define WB__ONNX_MODEL_H

#include "base/base.h"

/* TensorProto.DataType.  Only wb__onnx_type_name knows the types with greater numbers. */
typedef enum {
    WB__ONNX_UNDEFINED, WB__ONNX_FLOAT, WB__ONNX_UINT8, WB__ONNX_INT8, WB__ONNX_UINT16,
    WB__ONNX_INT16, WB__ONNX_INT32, WB__ONNX_INT64, WB__ONNX_STRING, WB__ONNX_BOOL,
    WB__ONNX_FLOAT16, WB__ONNX_DOUBLE, WB__ONNX_UINT32, WB__ONNX_UINT64, WB__ONNX_COMPLEX64,
    WB__ONNX_COMPLEX128, WB__ONNX_BFLOAT16
} wb__onnx_type;

/* AttributeProto.AttributeType.  Values of types behind WB__ONNX_STRINGS are not read. */
typedef enum {
    WB__ONNX_IS_FLOAT = 1, WB__ONNX_IS_INT, WB__ONNX_IS_STRING, WB__ONNX_IS_TENSOR,
    WB__ONNX_IS_GRAPH, WB__ONNX_IS_FLOATS, WB__ONNX_IS_INTS, WB__ONNX_IS_STRINGS,
    WB__ONNX_IS_TENSORS, WB__ONNX_IS_GRAPHS, WB__ONNX_IS_SPARSE, WB__ONNX_IS_SPARSES,
    WB__ONNX_IS_TYPE, WB__ONNX_IS_TYPES
} wb__onnx_attr_type;

/* A tensor of the file. */
typedef struct {
    const char *name;
    wb__onnx_type type;
    int ndim;
    int64_t dims[WB_MAX_DIMS], size;    /* size: number of elements */
    /* the values, little-endian, row-major, maybe unaligned; strings are const char *, ended by 0;
     * NULL if the size is 0, and where wb__onnx_read allows it */
    const void *data;
} wb__onnx_tensor;

typedef struct wb__onnx_graph wb__onnx_graph;

typedef struct {
    const char *name;
    wb__onnx_attr_type type;
    int64_t i;                          /* value of an INT */
    float f;                            /* value of a FLOAT */
    const char *s;                      /* s_bytes bytes, and a final 0 */
    size_t s_bytes;
    const wb__onnx_tensor *t;           /* value of a TENSOR */
    wb__onnx_graph *g;                  /* value of a GRAPH */
    int n;                              /* number of elements of one of the lists below */
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
} wb__onnx_attr;

#define WB__ONNX_ML "ai.onnx.ml"       /* the domain of ops_ml.def */

typedef struct {
    const char *op, *domain, *name;     /* domain "": ONNX's own; name may be "" */
    int index;                          /* index of the node in its graph */
    int64_t opset;                      /* version of the domain that the model uses */
    int n_in, n_out, n_attrs;
    const int *in, *out;                /* indices of the graph's values; -1: left out */
    const wb__onnx_attr *attrs;
    const struct wb__onnx_operator *operator;   /* run.h; NULL: not yet found (find.c) */
} wb__onnx_node;

/* A value of a graph: an input, an initializer, a result of a node, or a value of an outer
 * graph. */
typedef struct {
    const char *name;
    wb__onnx_type type;                 /* UNDEFINED: the file does not declare it */
    int ndim;                           /* -1: the file does not declare the shape */
    int64_t dims[WB_MAX_DIMS];          /* -1: any size */
    const char *dim_names[WB_MAX_DIMS]; /* names of sizes; sizes with the same name are equal; NULL:
                                           no name */
    const char *kind;                   /* "a sequence", ...; NULL: a tensor */
    const wb__onnx_tensor *initializer; /* or NULL */
    int outer;                          /* this value's index in the outer graph, or -1 */
    int parameter;                      /* index of the layer's child (layer.c), or -1 */
} wb__onnx_value;

struct wb__onnx_graph {
    const char *name;
    wb__onnx_graph *outer;              /* graph that contains this subgraph; else NULL */
    int n_values, n_nodes, n_inputs, n_outputs;
    wb__onnx_value *values;
    wb__onnx_node *nodes;               /* each follows the nodes whose results it reads */
    const int *inputs, *outputs;        /* inputs: those without an initializer */
};

typedef struct {
    const char *path;                   /* path of the file, for messages */
    int64_t ir_version, opset;          /* opset: the version of ONNX's own operators */
    const char *producer;
    wb__onnx_graph *graph;
    int n_tensors;                      /* the graph's initializers with values */
    wb__onnx_tensor *tensors;
    struct wb__onnx_arena *arena;
} wb__onnx_model;

/* Sets *model to a model that is read.  `path` is for messages, and its folder has the external
 * data.  Returns 0 or an error code: the file is damaged, has a version of ONNX that is not read,
 * names a value that nothing computes, ...  With path NULL the bytes are the graph of a layer,
 * whose initializers may lack values, and nothing is in another file. */
int wb__onnx_read(const char *path, const void *data, size_t bytes, wb__onnx_model **model);
void wb__onnx_free(wb__onnx_model *m);

/* Returns the index of value v, an index or -1 in the graph *g, in the graph that owns it, and sets
 * *g to this graph. */
static inline int wb__onnx_owner(const wb__onnx_graph **g, int v)
{
    for (; v >= 0 && (*g)->values[v].outer >= 0; *g = (*g)->outer) v = (*g)->values[v].outer;
    return v;
}

/* Returns zeroed memory of the model's arena; NULL: out of memory. */
void *wb__onnx_alloc(wb__onnx_model *m, size_t n, size_t size);

/* Returns Weber's dtype for a type of ONNX; 0: Weber has none. */
wb_dtype wb__onnx_dtype(wb__onnx_type t);
const char *wb__onnx_type_name(wb__onnx_type t);        /* "float16" */
/* Returns the type with a number in the file; UNDEFINED: ONNX has none. */
wb__onnx_type wb__onnx_type_of(int64_t number);
const char *wb__onnx_attr_type_name(int64_t type);      /* "ints" */

#endif
