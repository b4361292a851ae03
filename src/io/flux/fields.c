/* The tables of Flux's structs, functions and connections with their counterparts in Weber.  A
 * connection is the function that joins the branches of a Parallel or SkipConnection. */
#include "io/flux/fields.h"

#include <string.h>

#define STRUCT(type, layer, since, before, parameters, ...)                                \
    {type, layer, since, before, parameters,                                               \
     (int)(sizeof(wb__flux_field[]){__VA_ARGS__} / sizeof(wb__flux_field)), {__VA_ARGS__}},
#define FIELD(name, here, kind) {name, here, WB__FIELD_##kind, NULL, 0, 0}
#define SAME(name, kind) FIELD(name, name, kind)
#define NUMBER(name, here, kind, by_default) {name, here, WB__FIELD_##kind, NULL, 0, by_default}
#define BIAS(since) {"bias", "bias", WB__FIELD_BIAS, NULL, since, 0}
#define OLD_BIAS {"bias", "bias", WB__FIELD_BIAS, "b", 1500, 0}
#define OTHER(name) FIELD(name, NULL, NONE)

#define SIGMA FIELD("σ", "activation", FUNCTION)
#define CONV(kernel)                                                                       \
    FIELD("σ", "activation", FIRST_FUNCTION), SAME("weight", kernel), BIAS(1300),          \
        SAME("stride", AXES_OF_SPACE), SAME("pad", PAD), SAME("dilation", AXES_OF_SPACE)
#define CONV_GROUPS SAME("groups", INT)
#define PAD_MODE SAME("pad_mode", PAD_MODE)
#define POOL                                                                               \
    FIELD("k", "window", AXES_OF_SPACE), SAME("pad", PAD), SAME("stride", AXES_OF_SPACE)
#define ADAPTIVE(type)                                                                     \
    STRUCT(type, type, 1100, 0, "2+axes axes", SAME("out", AXES_OF_SPACE))
#define NORM                                                                               \
    FIELD("λ", "activation", FUNCTION), FIELD("β", "bias", SHIFT),                         \
        FIELD("γ", "scale", SCALE), FIELD("μ", "mean", STATISTIC),                         \
        FIELD("σ²", "var", STATISTIC), FIELD("ϵ", "eps", FLOAT32),                         \
        SAME("momentum", FLOAT32)
#define TRACKED(affine, track_stats)                                                       \
    NORM, affine, track_stats, FIELD("active", NULL, MODE), FIELD("chs", "channels", INT)
#define UNTRACKED NORM, FIELD("active", NULL, TRAINING)
/* Flux's GroupNorm had statistics; later versions have fields for them, which are `nothing`. */
#define GROUPED                                                                            \
    FIELD("G", "groups", INT), FIELD("λ", "activation", FUNCTION),                         \
        FIELD("β", "bias", SHIFT), FIELD("γ", "scale", SCALE), OTHER("μ"), OTHER("σ²"),    \
        FIELD("ϵ", "eps", FLOAT32), NUMBER("momentum", NULL, FLOAT32, 0.1)
#define GROUPED_NOW                                                                        \
    GROUPED, FIELD("affine", "affine", BOOL), FIELD("track_stats", NULL, FALSE),         \
        FIELD("active", NULL, MODE), FIELD("chs", "channels", INT)
#define CHANCE NUMBER("p", "p", FLOAT64, 2)
#define DROP CHANCE, FIELD("dims", "axes", AXES)
#define ACTIVE FIELD("active", NULL, MODE)
#define RNG FIELD("rng", NULL, RANDOM)
#define GATES FIELD("Wi", "weight_input", MATRIX), FIELD("Wh", "weight_hidden", MATRIX)
#define TANH_GATES FIELD("σ", "activation", TANH), GATES
#define STATE0 FIELD("state0", "initial_hidden", STATES)
#define HIDDEN FIELD("h", "initial_hidden", STATE)
#define MEMORY FIELD("c", "initial_cell", STATE)
#define CELL FIELD("cell", NULL, CELL)
#define CALLED(name) FIELD(name, "initial_hidden", CALLED)
#define CELLS(type, function, gates, bias, ...)                                            \
    STRUCT(type, type, 1500, 0, function "Wi Wh bias", gates, bias)                        \
    STRUCT(type, type, 1307, 1500, function "Wi Wh bias state0", gates, OLD_BIAS, STATE0)  \
    STRUCT(type, type, 1200, 1307, function "Wi bias state0", gates, OLD_BIAS, STATE0)     \
    STRUCT(type, type, 0, 1200, function "Wi bias", gates, OLD_BIAS, __VA_ARGS__)
#define GATES_OF_3                                                                         \
    FIELD("Wi", "weight_input", MATRIX), FIELD("Wh", "weight_hidden", GATES), OLD_BIAS,    \
        FIELD("Wh_h̃", "weight_hidden", LAST_GATE)
#define SEQUENCE(type)                                                                     \
    STRUCT(type, type "Cell", 1601, 0, "return_state cell", CELL)                          \
    STRUCT(type, type "Cell", 1500, 1601, "cell", CELL)

/* For each type the newest version comes first. */
const wb__flux_struct wb__flux_structs[] = {
    STRUCT("Chain", "Chain", 0, 0, "layers", SAME("layers", LAYERS))
    STRUCT("Dense", "Dense", 0, 0, "σ weight bias", SAME("weight", MATRIX), BIAS(1300), SIGMA)
    STRUCT("Diagonal", "Scale", 0, 1300, "scale", SAME("scale", WEIGHT), BIAS(0))
    STRUCT("Scale", "Scale", 1300, 0, "σ scale bias", SAME("scale", WEIGHT), BIAS(0), SIGMA)
    STRUCT("Bilinear", "Bilinear", 1200, 0, "σ weight bias", SAME("weight", MATRIX), BIAS(1300),
           SIGMA)
    STRUCT("Conv", "Conv", 1612, 0, NULL, CONV(FLIPPED), CONV_GROUPS, PAD_MODE)
    STRUCT("Conv", "Conv", 1205, 1612, "axes 2axes σ weight bias", CONV(FLIPPED), CONV_GROUPS)
    STRUCT("Conv", "Conv", 0, 1205, "axes 2axes σ weight bias", CONV(FLIPPED))
    STRUCT("ConvTranspose", "ConvTranspose", 1417, 0, "axes 2axes σ weight bias",
           FIELD("σ", "activation", FIRST_FUNCTION), SAME("weight", FLIPPED), BIAS(1300),
           SAME("stride", AXES_OF_SPACE), SAME("pad", PAD), SAME("outpad", COUNTS),
           SAME("dilation", AXES_OF_SPACE), CONV_GROUPS)
    STRUCT("ConvTranspose", "ConvTranspose", 1205, 1417, "axes 2axes σ weight bias",
           CONV(FLIPPED), CONV_GROUPS)
    STRUCT("ConvTranspose", "ConvTranspose", 0, 1205, "axes 2axes σ weight bias", CONV(FLIPPED))
    STRUCT("CrossCor", "Conv", 1612, 0, NULL, CONV(KERNEL), PAD_MODE)
    STRUCT("CrossCor", "Conv", 0, 1612, "axes 2axes σ weight bias", CONV(KERNEL))
    STRUCT("DepthwiseConv", "Conv", 0, 1300, NULL, CONV(DEPTHWISE))
    STRUCT("MaxPool", "MaxPool", 0, 0, "axes 2axes", POOL)
    STRUCT("MeanPool", "MeanPool", 0, 0, "axes 2axes", POOL)
    {"GlobalMaxPool", "GlobalMaxPool", 1100, 0, "", 0, {{0}}},
    {"GlobalMeanPool", "GlobalMeanPool", 1100, 0, "", 0, {{0}}},
    ADAPTIVE("AdaptiveMaxPool") ADAPTIVE("AdaptiveMeanPool")
    STRUCT("Upsample", "Upsample", 1200, 0, "mode scale size", FIELD("scale", "scale", FACTORS),
           FIELD("size", "sizes", FACTORS))
    STRUCT("PixelShuffle", "PixelShuffle", 1200, 0, "", SAME("r", INT))
    STRUCT("BatchNorm", "BatchNorm", 1200, 0, "λ β ϵ μ",
           TRACKED(FIELD("affine", "affine", BOOL), FIELD("track_stats", "track_stats", BOOL)))
    STRUCT("BatchNorm", "BatchNorm", 0, 1200, "λ β μ ϵ", UNTRACKED)
    STRUCT("InstanceNorm", "InstanceNorm", 1200, 0, "λ β ϵ μ",
           TRACKED(SAME("affine", BOOL), SAME("track_stats", BOOL)))
    STRUCT("InstanceNorm", "InstanceNorm", 0, 1200, "λ β μ ϵ", UNTRACKED)
    STRUCT("GroupNorm", "GroupNorm", 1400, 0, "λ β ϵ", GROUPED_NOW)
    STRUCT("GroupNorm", "GroupNorm", 1200, 1400, "λ β ϵ μ", GROUPED_NOW)
    STRUCT("GroupNorm", "GroupNorm", 0, 1200, NULL, GROUPED, FIELD("active", NULL, TRAINING))
    STRUCT("LayerNorm", "LayerNorm", 1200, 0, "λ diag ϵ axes", FIELD("λ", "activation", FUNCTION),
           FIELD("diag", NULL, AFFINE), FIELD("ϵ", "eps", FLOAT32),
           FIELD("size", "shape", SIZES), FIELD("affine", "affine", BOOL))
    STRUCT("LayerNorm", "LayerNorm", 0, 1200, "array", FIELD("diag", NULL, AFFINE))
    STRUCT("Dropout", "Dropout", 1210, 0, "p dims rng", DROP, ACTIVE, RNG)
    STRUCT("Dropout", "Dropout", 0, 1210, "p dims", DROP, FIELD("active", NULL, TRAINING))
    STRUCT("AlphaDropout", "AlphaDropout", 1210, 0, "p rng", CHANCE, ACTIVE, RNG)
    STRUCT("AlphaDropout", "AlphaDropout", 0, 1210, "p", CHANCE, FIELD("active", NULL, TRAINING))
    STRUCT("Embedding", "Embedding", 1611, 0, NULL, SAME("weight", WEIGHT),
           FIELD("padding_idx", "padding_index", INDEX))
    STRUCT("Embedding", "Embedding", 1204, 1611, "weight", SAME("weight", WEIGHT))
    STRUCT("EmbeddingBag", "EmbeddingBag", 1315, 0, "reduction weight", SAME("weight", WEIGHT),
           FIELD("reduction", "mode", REDUCTION))
    STRUCT("Recur", "", 1200, 1500, "cell state", CELL, CALLED("state"))
    STRUCT("Recur", "", 0, 1200, "cell", CELL, CALLED("init"), CALLED("state"))
    CELLS("RNNCell", "σ ", TANH_GATES, BIAS(1500), HIDDEN)
    CELLS("LSTMCell", "", GATES, BIAS(1500), HIDDEN, MEMORY)
    CELLS("GRUCell", "", GATES, OLD_BIAS, HIDDEN)
    STRUCT("GRUv3Cell", "GRUv3Cell", 1500, 0, "Wi Wh bias Wh_h̃", GATES_OF_3)
    STRUCT("GRUv3Cell", "GRUv3Cell", 1307, 1500, "Wi Wh bias Wh_h̃ state0", GATES_OF_3, STATE0)
    STRUCT("GRUv3Cell", "GRUv3Cell", 1207, 1307, "Wi bias state0", GATES_OF_3, STATE0)
    SEQUENCE("RNN") SEQUENCE("LSTM") SEQUENCE("GRU") SEQUENCE("GRUv3")
    STRUCT("Recurrence", "", 1600, 0, NULL, CELL)
    STRUCT("MultiHeadAttention", "MultiHeadAttention", 1315, 0, "q_proj attn_drop out_proj",
           FIELD("nheads", "heads", INT), SAME("q_proj", LAYER), SAME("k_proj", LAYER),
           SAME("v_proj", LAYER), FIELD("attn_drop", "dropout", DROPOUT), SAME("out_proj", LAYER))
    STRUCT("Parallel", "Parallel", 1200, 0, "connection layers", SAME("connection", CONNECTION),
           SAME("layers", LAYERS))
    STRUCT("SkipConnection", "SkipConnection", 1204, 0, "layers connection",
           SAME("layers", LAYER), SAME("connection", CONNECTION))
    STRUCT("SkipConnection", "SkipConnection", 0, 1204, "", SAME("layers", LAYER),
           SAME("connection", CONNECTION))
    STRUCT("PairwiseFusion", "PairwiseFusion", 1304, 0, "connection layers",
           SAME("connection", CONNECTION), SAME("layers", LAYERS))
    STRUCT("Maxout", "Maxout", 0, 0, "layers", SAME("layers", LAYERS))
    STRUCT("WeightNorm", NULL, 1600, 0, NULL, OTHER("layer"), OTHER("g"), OTHER("which"),
           OTHER("dims"))
    STRUCT("TrackedArray", NULL, 0, 0, NULL, OTHER("tracker"), OTHER("data"), OTHER("grad"))
    {0}};

const wb__flux_struct *wb__flux_struct_named(const char *type)
{
    const wb__flux_struct *s = wb__flux_structs;
    while (s->type && strcmp(s->type, type)) s++;
    return s->type ? s : NULL;
}

bool wb__flux_struct_known(const char *type)
{
    const wb__flux_struct *s = wb__flux_struct_named(type);
    return s && s->n;
}

const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields)
{
    for (const wb__flux_struct *s = wb__flux_structs; s->type; s++)
        if (s->n == n_fields && !strcmp(s->type, type)) return s;
    return NULL;
}

const wb__flux_struct *wb__flux_struct_of(const char *type, int version)
{
    for (const wb__flux_struct *s = wb__flux_structs; s->type; s++)
        if (version >= s->since && (!s->before || version < s->before) && !strcmp(s->type, type))
            return s;
    return NULL;
}

int wb__flux_field_at(const wb__flux_struct *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->fields[i].name, name)) return i;
    return -1;
}

const wb__flux_field *wb__flux_field_after(const wb__flux_struct *s, const wb__flux_field *last)
{
    const wb__flux_field *next = NULL;
    for (const wb__flux_field *f = s->fields; f < s->fields + s->n; f++) {
        bool later = !last || f->kind > last->kind || (f->kind == last->kind && f > last);
        if (later && (!next || f->kind < next->kind)) next = f;
    }
    return next;
}

const wb__flux_field *wb__flux_field_named(const char *type, const char *name)
{
    for (const wb__flux_struct *s = wb__flux_structs; s->type; s++)
        for (int i = 0; i < s->n && !strcmp(s->type, type); i++) {
            const wb__flux_field *f = &s->fields[i];
            if (!strcmp(f->name, name) || (f->written && !strcmp(f->written, name))) return f;
        }
    return NULL;
}

const wb__flux_field *wb__flux_child_field(const char *type, const char *name)
{
    const wb__flux_field *f = type ? wb__flux_field_named(type, name) : NULL;
    return f && f->kind >= WB__FIELD_MATRIX && f->kind <= WB__FIELD_STATES ? f : NULL;
}

static const char *const flux_marks[] = {"γ", "β", "Wi", "Wh", "diag", "affine", "weight", "σ",
                                         "stride", "groups", "Wh_h̃"};
enum {
    HAS_NORM = 3, HAS_CELL = 3 << 2, HAS_DIAG = 1 << 4, HAS_AFFINE = 1 << 5, HAS_WEIGHT = 1 << 6,
    HAS_SIGMA = 1 << 7, HAS_STRIDE = 1 << 8, HAS_GROUPS = 1 << 9, HAS_LAST_GATE = 1 << 10
};

unsigned wb__flux_mark(const char *name)
{
    for (size_t i = 0; i < WB__COUNT(flux_marks); i++)
        if (!strcmp(name, flux_marks[i])) return 1u << i;
    return 0;
}

const char *wb__flux_like(unsigned has)
{
    if ((has & HAS_NORM) == HAS_NORM) return "BatchNorm";
    if ((has & HAS_CELL) == HAS_CELL) return has & HAS_LAST_GATE ? "GRUv3Cell" : "LSTMCell";
    if (has & HAS_DIAG && has & HAS_AFFINE) return "LayerNorm";
    if (!(has & HAS_WEIGHT)) return NULL;
    if (!(has & HAS_STRIDE)) return has & HAS_SIGMA ? "Dense" : NULL;
    return has & HAS_GROUPS ? "Conv" : "CrossCor";  /* a CrossCor has no groups */
}

/* ---- functions and connections --------------------------------------------------------------- */

#define OF_ARRAYS(path, here, since) {path, here, false, false, since}
#define OF_ELEMENTS(path, here, since) {path, here, true, false, since}
#define NNLIB(name, since) OF_ELEMENTS("Flux.NNlib.#" name, name, since)
#define BASE(name) OF_ELEMENTS("Base.#" name, name, 0)
#define ALIAS(julia, here) {"#" julia, here, true, false, 0}

/* Functions.  A writer uses the first row that the version has.  Aliases come last, because only
 * readers use them. */
const wb__flux_name wb__flux_functions[] = {
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
    NNLIB("celu", 1300), NNLIB("trelu", 1300), NNLIB("lisht", 1300), NNLIB("logcosh", 1300),
    BASE("tanh"), BASE("exp"), BASE("log"), BASE("log1p"), BASE("sin"), BASE("cos"), BASE("sqrt"),
    BASE("abs"), BASE("sign"),
    OF_ELEMENTS("Base.#-", "neg", 0),
    OF_ELEMENTS("Base.#inv", "reciprocal", 0),
    ALIAS("sigmoid_fast", "sigmoid"), ALIAS("tanh_fast", "tanh"), ALIAS("gelu_tanh", "gelu"),
    ALIAS("gelu_sigmoid", "gelu"), ALIAS("silu", "swish"),
    ALIAS("gpu", "identity"), ALIAS("cpu", "identity"), ALIAS("f32", "identity"),
    {0}};

/* Connections.  Julia's * of two matrices is the matrix product.  Only its broadcast, .*, is
 * wb_mul. */
const wb__flux_name wb__flux_connections[] = {
    {"Base.#+", "add", false, false, 0},   {"Base.#-", "sub", false, true, 0},
    {"Base.#vcat", "vcat", false, false, 0}, {"Base.#*", "mul", true, false, 0},
    {"Base.#/", "div", true, true, 0},     {"Base.#^", "pow", true, true, 0},
    {"Base.#max", "maximum", true, false, 0}, {"Base.#min", "minimum", true, false, 0},
    {"Core.#tuple", "separate", false, false, 0},
    {0}};

const wb__flux_name *wb__flux_name_weber(const wb__flux_name *row, const char *weber, int n,
                                        int version)
{
    for (; weber && row->path; row++)
        if (!strcmp(row->weber, weber) && version >= row->since && (n == 2 || !row->pairs))
            return row;
    return NULL;
}

const wb__flux_name *wb__flux_name_julia(const wb__flux_name *row, const char *julia)
{
    while (row->path && strcmp(strchr(row->path, '#') + 1, julia)) row++;
    return row->path ? row : NULL;
}

const wb__flux_value_name wb__flux_pad_modes[] = {
    {"zeros", WB_PAD_CONSTANT}, {"reflect", WB_PAD_REFLECT}, {"repeat", WB_PAD_REPLICATE},
    {"replicate", WB_PAD_REPLICATE}, {"symmetric", WB_PAD_SYMMETRIC},
    {"circular", WB_PAD_CIRCULAR}, {0}};
const wb__flux_value_name wb__flux_reductions[] = {
    {"Flux.Statistics.#mean", WB_BAG_MEAN}, {"Base.#sum", WB_BAG_SUM},
    {"Base.#maximum", WB_BAG_MAX}, {0}};

const char *wb__flux_value_julia(const wb__flux_value_name *row, int64_t value)
{
    while (row->julia && row->value != value) row++;
    return row->julia;
}
