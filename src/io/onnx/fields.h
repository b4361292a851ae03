/* The numbers of those fields in onnx.proto that are read or written: an enum for each message,
 * with the message's name without "Proto". */
#ifndef WB__ONNX_FIELDS_H
#define WB__ONNX_FIELDS_H

/* clang-format off */
enum {
    MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_DOMAIN = 4,
    MODEL_VERSION = 5, MODEL_DOC = 6, MODEL_GRAPH = 7, MODEL_OPSET = 8, MODEL_METADATA = 14,
    MODEL_TRAINING = 20, MODEL_FUNCTION = 25, MODEL_CONFIGURATION = 26
};
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };                           /* OperatorSetId */
enum {
    GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_DOC = 10, GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12, GRAPH_INFO = 13, GRAPH_SPARSE = 15
};
enum {
    NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTR = 5, NODE_DOMAIN = 7,
    NODE_OVERLOAD = 8
};
enum {
    FUNCTION_NAME = 1, FUNCTION_INPUT = 4, FUNCTION_OUTPUT = 5, FUNCTION_NODE = 7,
    FUNCTION_OPSET = 9, FUNCTION_DOMAIN = 10, FUNCTION_DEFAULT = 11, FUNCTION_OVERLOAD = 13
};
enum {                                                                  /* Attribute */
    ATTR_NAME = 1, ATTR_FLOAT = 2, ATTR_INT = 3, ATTR_STRING = 4, ATTR_TENSOR = 5, ATTR_GRAPH = 6,
    ATTR_FLOATS = 7, ATTR_INTS = 8, ATTR_STRINGS = 9, ATTR_TENSORS = 10, ATTR_GRAPHS = 11,
    ATTR_TYPE_PROTO = 14, ATTR_TYPE_PROTOS = 15, ATTR_TYPE = 20, ATTR_REF = 21, ATTR_SPARSE = 22,
    ATTR_SPARSES = 23, ATTR_FIELDS
};
enum {
    TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_SEGMENT = 3, TENSOR_FLOATS = 4, TENSOR_INT32S = 5,
    TENSOR_STRINGS = 6, TENSOR_INT64S = 7, TENSOR_NAME = 8, TENSOR_RAW = 9, TENSOR_DOUBLES = 10,
    TENSOR_UINT64S = 11, TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14
};
enum { LOCATION_EXTERNAL = 1 };                                         /* in TENSOR_LOCATION */
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };                                /* StringStringEntry */
enum { INFO_NAME = 1, INFO_TYPE = 2 };                                  /* ValueInfo */
enum {
    TYPE_TENSOR = 1, TYPE_SEQUENCE = 4, TYPE_MAP = 5, TYPE_OPAQUE = 7, TYPE_SPARSE = 8,
    TYPE_OPTIONAL = 9, TYPE_FIELDS
};
enum { TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE = 2 };                /* Type.Tensor */
enum { SHAPE_DIM = 1 };                                                 /* TensorShape */
enum { DIM_VALUE = 1, DIM_NAME = 2 };                                   /* TensorShape.Dimension */
/* clang-format on */

#endif
