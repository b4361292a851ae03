/* Flux's structs by version, and the child or option of Weber's layer for each of their fields.
 * One table is used for reading and for writing.  BSON.jl writes the fields of a struct by
 * position, without names: a reader finds the version by the number of fields, and a writer must
 * write exactly the fields of the version that will read the file. */
#ifndef WB__FLUX_FIELDS_H
#define WB__FLUX_FIELDS_H

#include "base/base.h"

enum { WB__FLUX_FIELDS = 12 };

/* The kinds of fields in Flux's structs.  The kind determines which child or option of Weber's
 * layer a field becomes.  read_layers.c and save_layers.c visit the fields of a struct in the order
 * of their kinds.  Below, A -> B means that A in Julia becomes B in Weber.  Sizes in () are
 * Julia's, sizes in [] or {} Weber's. */
typedef enum {
    WB__FIELD_NONE,             /* becomes neither a child nor an option */
    WB__FIELD_TANH,             /* a function -> an activation; tanh -> NULL */
    WB__FIELD_FIRST_FUNCTION,   /* as WB__FIELD_FUNCTION, but visited before the arrays */
    /* children */
    WB__FIELD_MATRIX,           /* (out, in) or (out, in1, in2) -> the same sizes, transposed */
    WB__FIELD_GATES,            /* (2 out or 3 out, out) -> the first 2 out rows of the child */
    WB__FIELD_LAST_GATE,        /* (out, out) -> the last rows of the child of WB__FIELD_GATES */
    WB__FIELD_KERNEL,           /* (kw, kh, in, out) -> [out, in, kh, kw], the same bytes */
    WB__FIELD_FLIPPED,          /* as WB__FIELD_KERNEL, of a layer that flips its kernels */
    WB__FIELD_DEPTHWISE,        /* (kw, kh, multiplier, in) -> [in·multiplier, 1, kh, kw] */
    WB__FIELD_WEIGHT,           /* an array with the same bytes */
    WB__FIELD_SCALE,            /* as WB__FIELD_WEIGHT, or `nothing` */
    WB__FIELD_SHIFT,
    WB__FIELD_STATISTIC,
    WB__FIELD_BIAS,             /* a vector; false -> .bias = false */
    WB__FIELD_AFFINE,           /* a Diagonal or Scale, whose arrays are the layer's children */
    WB__FIELD_LAYER,            /* a layer */
    WB__FIELD_CONNECTION,
    WB__FIELD_LAYERS,           /* a tuple or named tuple of layers */
    WB__FIELD_CELL,             /* a cell, whose arrays become the layer's children */
    WB__FIELD_STATE,            /* (out) or (out, 1) -> [out] */
    WB__FIELD_STATES,           /* one initial state; for an LSTM a tuple of two */
    WB__FIELD_CALLED,           /* the states after the last call */
    /* options */
    WB__FIELD_INT,
    WB__FIELD_FLOAT64,
    WB__FIELD_FLOAT32,
    WB__FIELD_BOOL,
    WB__FIELD_FALSE,            /* false */
    WB__FIELD_AXES_OF_SPACE,    /* (w, h) -> {h, w}, 1 to 3 numbers of at least 1 */
    WB__FIELD_COUNTS,           /* (w, h) -> {h, w}, 1 to 3 numbers of at least 0 */
    WB__FIELD_PAD,              /* (left, right, top, bottom) -> {top, bottom, left, right} */
    WB__FIELD_FACTORS,          /* nothing, s -> {s}, or (w, h) -> {h, w} */
    WB__FIELD_SIZES,            /* sizes -> the same in reverse order */
    WB__FIELD_INDEX,            /* nothing, or i, counted from 1 -> i - 1 - n */
    WB__FIELD_AXES,             /* axis i, counted from 1 -> axis -i */
    WB__FIELD_DROPOUT,          /* a Dropout -> its probability */
    WB__FIELD_FUNCTION,         /* a function -> an activation; identity -> NULL */
    WB__FIELD_REDUCTION,        /* mean, sum or maximum -> a wb_EmbeddingBag_options.mode */
    WB__FIELD_PAD_MODE,         /* a symbol, such as :reflect -> a wb_pad_mode */
    /* the mode of a layer: nothing -> wb_automode, true -> wb_trainmode, false -> wb_testmode */
    WB__FIELD_MODE,
    WB__FIELD_TRAINING,         /* the mode of a layer: true -> wb_automode, false -> wb_testmode */
    WB__FIELD_RANDOM            /* TaskLocalRNG */
} wb__flux_field_kind;

typedef struct {
    const char *name;                   /* Flux's newest name: "weight" (formerly W) */
    const char *weber;                   /* Weber's name of the child or option */
    wb__flux_field_kind kind;
    const char *written;                /* its name in named tuples, if that is not `name`: "b" */
    /* for a bias: the first version that writes a missing bias as `false` and not as zeros */
    int since;
    double by_default;                  /* default of a number whose option has none; else 0 */
} wb__flux_field;

/* A struct of Flux.  Versions are minor*100 + patch of 0.minor.patch: 1612 is 0.16.12. */
typedef struct {
    const char *type;                   /* last part of the type's name: "Conv" */
    /* Weber's layer for the struct; NULL: Weber has none.  For a struct with a cell, the type of
     * the cell, such as "LSTMCell", or "" if the cell may have any type. */
    const char *layer;
    int since, before;                  /* versions since <= v < before; 0: no limit */
    /* The type parameters of the struct, as words separated by blanks.  The name of a field means
     * the type of that field.  save_layers.c (`parameter`) explains other words.  NULL: unknown, or
     * the struct is only read. */
    const char *parameters;
    int n;
    wb__flux_field fields[WB__FLUX_FIELDS];
} wb__flux_struct;

/* The rows of a type go from its newest version to its oldest.  The list ends with a row without
 * type. */
extern const wb__flux_struct wb__flux_structs[];

/* Returns the newest layout of a type with n_fields fields; NULL if there is none. */
const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields);
/* Returns the layout of a type in a version; NULL: that version does not have the type. */
const wb__flux_struct *wb__flux_struct_of(const char *type, int version);
/* Returns the newest layout of a type; NULL: no version has the type. */
const wb__flux_struct *wb__flux_struct_named(const char *type);
/* Whether the type is in wb__flux_structs with fields in its newest layout. */
bool wb__flux_struct_known(const char *type);
/* Returns the index of a field in s->fields; -1: none. */
int wb__flux_field_at(const wb__flux_struct *s, const char *name);
/* Iterates over the fields in the order of their kinds.  Returns the field after `last`, or the
 * first field if `last` is NULL.  Returns NULL after the last field. */
const wb__flux_field *wb__flux_field_after(const wb__flux_struct *s, const wb__flux_field *last);
/* Returns a field in any version of a type, by `name` or `written`; NULL if there is none. */
const wb__flux_field *wb__flux_field_named(const char *type, const char *name);

/* Returns the field of a type that becomes a child of Weber's layer; NULL: `type` is NULL, or the
 * field keeps its name in a table. */
const wb__flux_field *wb__flux_child_field(const char *type, const char *name);
/* In a state, as Flux.state returns it, layers are recognised by the names of their fields.
 * wb__flux_mark returns a bit for a name, or 0.  wb__flux_like returns, for the bits of all fields
 * of a part, the name of a type of Flux whose fields become the same children: "BatchNorm" for
 * each norm with γ and β, "GRUv3Cell" or "LSTMCell" for each cell; NULL: no layer is known. */
unsigned wb__flux_mark(const char *name);
const char *wb__flux_like(unsigned marks);

/* A function of Julia and its name in Weber, for reading and writing. */
typedef struct {
    /* path: name in Julia, such as "Flux.NNlib.#σ", or "#silu" for an alias
     * weber: name in Weber, such as "sigmoid" */
    const char *path, *weber;
    bool elements;                      /* elementwise: Julia broadcasts it over arrays */
    bool pairs;                         /* a connection of exactly two arrays */
    int since;                          /* first version that has it */
} wb__flux_name;

/* Each list ends with a row without path. */
extern const wb__flux_name wb__flux_functions[], wb__flux_connections[];

/* Returns the row of a function or connection by its name in Weber; NULL if Flux's `version` lacks
 * it.  n is the number of arrays that a connection joins. */
const wb__flux_name *wb__flux_name_weber(const wb__flux_name *rows, const char *weber, int n,
                                        int version);
/* Returns the row of a function by its name in Julia without the module, such as "σ", or NULL. */
const wb__flux_name *wb__flux_name_julia(const wb__flux_name *rows, const char *julia);

/* A value of an option, of the kinds WB__FIELD_PAD_MODE and WB__FIELD_REDUCTION, and what Julia has
 * for it: a symbol, or the path of a function.  A list ends with a row without name; the first row
 * of a value is written. */
typedef struct { const char *julia; int64_t value; } wb__flux_value_name;
extern const wb__flux_value_name wb__flux_pad_modes[], wb__flux_reductions[];
const char *wb__flux_value_julia(const wb__flux_value_name *rows, int64_t value);

#endif
