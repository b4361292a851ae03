/* Flux's structs, functions and connections, with their counterparts here. */
#include "io/flux_fields.h"

#include <string.h>

#define LAYOUT(type, since, before, ...)                              \
    {type, since, before,                                             \
     (int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *)),     \
     (const char *const[]){__VA_ARGS__}},

#define CONV "σ", "weight", "bias", "stride", "pad", "dilation"
#define NORM "λ", "β", "γ", "μ", "σ²", "ϵ", "momentum"

static const wb__flux_struct layouts[] = {
    LAYOUT("Chain", 0, 0, "layers")
    LAYOUT("Dense", 0, 0, "weight", "bias", "σ")
    LAYOUT("Diagonal", 0, 1300, "scale", "bias")
    LAYOUT("Scale", 1300, 0, "scale", "bias", "σ")
    LAYOUT("Bilinear", 1200, 0, "weight", "bias", "σ")
    LAYOUT("Conv", 1612, 0, CONV, "groups", "pad_mode")
    LAYOUT("Conv", 1205, 1612, CONV, "groups")
    LAYOUT("Conv", 0, 1205, CONV)
    LAYOUT("ConvTranspose", 1417, 0, "σ", "weight", "bias", "stride", "pad", "outpad", "dilation",
           "groups")
    LAYOUT("ConvTranspose", 1205, 1417, CONV, "groups")
    LAYOUT("ConvTranspose", 0, 1205, CONV)
    LAYOUT("CrossCor", 1612, 0, CONV, "pad_mode")
    LAYOUT("CrossCor", 0, 1612, CONV)
    LAYOUT("DepthwiseConv", 0, 1300, CONV)
    LAYOUT("MaxPool", 0, 0, "k", "pad", "stride")
    LAYOUT("MeanPool", 0, 0, "k", "pad", "stride")
    LAYOUT("AdaptiveMaxPool", 1100, 0, "out")
    LAYOUT("AdaptiveMeanPool", 1100, 0, "out")
    LAYOUT("BatchNorm", 1200, 0, NORM, "affine", "track_stats", "active", "chs")
    LAYOUT("BatchNorm", 0, 1200, NORM, "active")
    LAYOUT("InstanceNorm", 1200, 0, NORM, "affine", "track_stats", "active", "chs")
    LAYOUT("InstanceNorm", 0, 1200, NORM, "active")
    LAYOUT("GroupNorm", 1200, 0, "G", NORM, "affine", "track_stats", "active", "chs")
    LAYOUT("GroupNorm", 0, 1200, "G", NORM, "active")
    LAYOUT("LayerNorm", 1200, 0, "λ", "diag", "ϵ", "size", "affine")
    LAYOUT("LayerNorm", 0, 1200, "diag")
    LAYOUT("Dropout", 1210, 0, "p", "dims", "active", "rng")
    LAYOUT("Dropout", 0, 1210, "p", "dims", "active")
    LAYOUT("AlphaDropout", 1210, 0, "p", "active", "rng")
    LAYOUT("AlphaDropout", 0, 1210, "p", "active")
    LAYOUT("Embedding", 1611, 0, "weight", "padding_idx")
    LAYOUT("Embedding", 1204, 1611, "weight")
    LAYOUT("EmbeddingBag", 1315, 0, "weight", "reduction")
    LAYOUT("Recur", 1200, 1500, "cell", "state")
    LAYOUT("Recur", 0, 1200, "cell", "init", "state")
    LAYOUT("RNNCell", 1500, 0, "σ", "Wi", "Wh", "bias")
    LAYOUT("RNNCell", 1200, 1500, "σ", "Wi", "Wh", "bias", "state0")
    LAYOUT("RNNCell", 0, 1200, "σ", "Wi", "Wh", "bias", "h")
    LAYOUT("LSTMCell", 1500, 0, "Wi", "Wh", "bias")
    LAYOUT("LSTMCell", 1200, 1500, "Wi", "Wh", "bias", "state0")
    LAYOUT("LSTMCell", 0, 1200, "Wi", "Wh", "bias", "h", "c")
    LAYOUT("GRUCell", 1500, 0, "Wi", "Wh", "bias")
    LAYOUT("GRUCell", 1200, 1500, "Wi", "Wh", "bias", "state0")
    LAYOUT("GRUCell", 0, 1200, "Wi", "Wh", "bias", "h")
    LAYOUT("RNN", 1500, 0, "cell")
    LAYOUT("LSTM", 1500, 0, "cell")
    LAYOUT("GRU", 1500, 0, "cell")
    LAYOUT("MultiHeadAttention", 1315, 0, "nheads", "q_proj", "k_proj", "v_proj", "attn_drop",
           "out_proj")
    LAYOUT("Parallel", 1200, 0, "connection", "layers")
    LAYOUT("SkipConnection", 0, 0, "layers", "connection")
    LAYOUT("Maxout", 0, 0, "layers")
    LAYOUT("TrackedArray", 0, 0, "tracker", "data", "grad")
};

bool wb__flux_struct_known(const char *type)
{
    for (size_t i = 0; i < WB__COUNT(layouts); i++)
        if (!strcmp(layouts[i].type, type)) return true;
    return false;
}

const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields)
{
    for (size_t i = 0; i < WB__COUNT(layouts); i++)
        if (layouts[i].n == n_fields && !strcmp(layouts[i].type, type)) return &layouts[i];
    return NULL;
}

const wb__flux_struct *wb__flux_struct_of(const char *type, int version)
{
    for (size_t i = 0; i < WB__COUNT(layouts); i++) {
        const wb__flux_struct *s = &layouts[i];
        if (version >= s->since && (!s->before || version < s->before) && !strcmp(s->type, type))
            return s;
    }
    return NULL;
}

int wb__flux_field(const wb__flux_struct *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->fields[i], name)) return i;
    return -1;
}

/* ---- functions and connections --------------------------------------------------------------- */

#define OF_ARRAYS(path, here, since) {path, here, false, false, since}
#define OF_ELEMENTS(path, here, since) {path, here, true, false, since}
#define NNLIB(name, since) OF_ELEMENTS("Flux.NNlib.#" name, name, since)
#define BASE(name) OF_ELEMENTS("Base.#" name, name, 0)
#define ALIAS(julia, here) {"#" julia, here, true, false, 0}

/* Writing takes the first row of a name that the version has; aliases stand last, for reading. */
static const wb__flux_name functions[] = {
    OF_ARRAYS("Base.#identity", "identity", 0),
    OF_ARRAYS("Flux.NNlib.#softmax", "softmax", 0),
    OF_ARRAYS("Flux.NNlib.#logsoftmax", "logsoftmax", 0),
    OF_ARRAYS("Flux.MLUtils.#flatten", "flatten", 1300),
    OF_ARRAYS("Flux.#flatten", "flatten", 1000),
    OF_ELEMENTS("Flux.NNlib.#σ", "sigmoid", 0),
    OF_ELEMENTS("Flux.NNlib.#logσ", "logsigmoid", 0),
    OF_ELEMENTS("Flux.NNlib.#hardσ", "hardsigmoid", 1300),
    NNLIB("relu", 0), NNLIB("leakyrelu", 0), NNLIB("elu", 0), NNLIB("selu", 0),
    NNLIB("softplus", 0), NNLIB("swish", 0), NNLIB("gelu", 0), NNLIB("gelu_erf", 1600),
    NNLIB("relu6", 1300), NNLIB("hardtanh", 1300), NNLIB("hardswish", 1300), NNLIB("mish", 1300),
    NNLIB("softsign", 1300), NNLIB("softshrink", 1300), NNLIB("tanhshrink", 1300),
    NNLIB("trelu", 1300), NNLIB("lisht", 1300), NNLIB("logcosh", 1300),
    BASE("tanh"), BASE("exp"), BASE("log"), BASE("log1p"), BASE("sin"), BASE("cos"), BASE("sqrt"),
    BASE("abs"), BASE("sign"),
    OF_ELEMENTS("Base.#-", "neg", 0),
    OF_ELEMENTS("Base.#inv", "reciprocal", 0),
    ALIAS("sigmoid_fast", "sigmoid"), ALIAS("tanh_fast", "tanh"), ALIAS("gelu_tanh", "gelu"),
    ALIAS("gelu_sigmoid", "gelu"), ALIAS("celu", "elu"), ALIAS("silu", "swish"),
    ALIAS("gpu", "identity"), ALIAS("cpu", "identity"), ALIAS("f32", "identity"),
};

/* Julia's * multiplies matrices, so that only its broadcast is Weber's. */
static const wb__flux_name connections[] = {
    {"Base.#+", "add", false, false, 0},   {"Base.#-", "sub", false, true, 0},
    {"Base.#vcat", "vcat", false, false, 0}, {"Base.#*", "mul", true, false, 0},
    {"Base.#/", "div", true, true, 0},     {"Base.#^", "pow", true, true, 0},
    {"Base.#max", "maximum", true, false, 0}, {"Base.#min", "minimum", true, false, 0},
};

const wb__flux_name *wb__flux_function_here(const char *here, int version)
{
    for (size_t i = 0; here && i < WB__COUNT(functions); i++)
        if (!strcmp(functions[i].here, here) && version >= functions[i].since) return &functions[i];
    return NULL;
}

const wb__flux_name *wb__flux_connection_here(const char *here, int n)
{
    for (size_t i = 0; here && i < WB__COUNT(connections); i++)
        if (!strcmp(connections[i].here, here) && (n == 2 || !connections[i].pairs))
            return &connections[i];
    return NULL;
}

static const wb__flux_name *there(const wb__flux_name *list, size_t n, const char *julia)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(strchr(list[i].path, '#') + 1, julia)) return &list[i];
    return NULL;
}

const wb__flux_name *wb__flux_function_there(const char *julia)
{
    return there(functions, WB__COUNT(functions), julia);
}

const wb__flux_name *wb__flux_connection_there(const char *julia)
{
    return there(connections, WB__COUNT(connections), julia);
}
