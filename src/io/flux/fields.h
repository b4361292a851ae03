/* Flux's structs by version, and the child or option of Weber's layer for each of their fields. One
 * table is used for reading and for writing. BSON.jl writes the fields of a struct by position,
 * without names: a reader finds the version by the number of fields, and a writer must write
 * exactly the fields of the version that will read the file. */
#ifndef WB__FLUX_FIELDS_H
#define WB__FLUX_FIELDS_H

#include "base/base.h"

enum { WB__FLUX_FIELDS = 12 };

/* The kind of a field: how it becomes a child or an option of Weber's layer. Fields are written in
 * this order. Sizes in parentheses are Julia's; sizes in brackets or braces are Weber's. */
typedef enum {
    WB__FIELD_NONE,             /* neither child nor option */
    WB__FIELD_TANH,             /* a function; tanh becomes NULL */
    WB__FIELD_FIRST_FUNCTION,   /* a function, written before the arrays; NULL is identity */
    /* children */
    WB__FIELD_MATRIX,           /* (out, in): column-major [out, in] */
    WB__FIELD_KERNEL,           /* (kw, kh, in, out), the same bytes as [out, in, kh, kw] */
    WB__FIELD_FLIPPED,          /* as KERNEL, for a convolution that flips kernels */
    WB__FIELD_DEPTHWISE,        /* (kw, kh, multiplier, in): [in·multiplier, 1, kh, kw] */
    WB__FIELD_WEIGHT,           /* an array with the same bytes */
    WB__FIELD_SCALE,            /* an array with the same bytes, or `nothing` */
    WB__FIELD_SHIFT,
    WB__FIELD_STATISTIC,
    WB__FIELD_BIAS,             /* a vector, or false: .no_bias */
    WB__FIELD_AFFINE,           /* a Diagonal or Scale, whose arrays are the layer's children */
    WB__FIELD_LAYER,            /* a layer */
    WB__FIELD_CONNECTION,
    WB__FIELD_LAYERS,           /* a tuple or named tuple of layers */
    WB__FIELD_CELL,             /* a struct of a cell, which has the layer's arrays */
    WB__FIELD_STATE,            /* (out) or (out, 1): [out] */
    WB__FIELD_STATES,           /* an initial state; for an LSTM a tuple of two */
    WB__FIELD_CALLED,           /* the states after the last call */
    /* options */
    WB__FIELD_INT,
    WB__FIELD_FLOAT64,
    WB__FIELD_FLOAT32,
    WB__FIELD_NOT,              /* a bool, negated */
    WB__FIELD_PAIR,             /* (w, h): {h, w}, at least 1 */
    WB__FIELD_COUNTS,           /* (w, h): {h, w}, at least 0 */
    WB__FIELD_PAD,              /* (left, right, top, bottom): {top, bottom, left, right} */
    WB__FIELD_PLACES,           /* must be (1, 1) */
    WB__FIELD_SIZES,            /* reversed */
    WB__FIELD_AXES,             /* counted from 1 in reversed order */
    WB__FIELD_DROPOUT,          /* a Dropout: its probability */
    WB__FIELD_FUNCTION,         /* a function; identity: NULL */
    WB__FIELD_ZEROS,            /* the symbol :zeros */
    WB__FIELD_MODE,             /* nothing, or a bool: whether in train mode */
    WB__FIELD_TRAINING,         /* as WB__FIELD_MODE, but true means automatic */
    WB__FIELD_RANDOM            /* TaskLocalRNG */
} wb__flux_field_kind;

typedef struct {
    const char *name;                   /* Flux's newest name: "weight" (formerly W) */
    const char *weber;                   /* Weber's name of the child or option */
    wb__flux_field_kind kind;
    const char *written;                /* name in named tuples, if different: "b" */
    /* the first version in which a missing bias is `false`; before, it is zeros */
    int since;
    double by_default;                   /* the default of a number */
} wb__flux_field;

/* Versions are minor*100 + patch of 0.minor.patch: 1612 is 0.16.12. */
typedef struct {
    const char *type;                   /* last part of the type's name: "Conv" */
    /* Weber's layer; for a type whose first field is a cell, the layer of the cell ("": of any
     * cell); NULL: none */
    const char *layer;
    int since, before;                  /* versions since <= v < before; 0: no limit */
    /* parameters of the type, with blanks between: a field name (for the type of that field) or a
     * value; NULL: unknown */
    const char *parameters;
    int n;
    wb__flux_field fields[WB__FLUX_FIELDS];
} wb__flux_struct;

/* Newest first for each type; the list ends with a row without type. */
extern const wb__flux_struct wb__flux_structs[];

/* Returns the newest layout of a type that has n_fields fields; NULL: no version has one. */
const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields);
/* Returns the layout of a type in a version; NULL: that version does not have the type. */
const wb__flux_struct *wb__flux_struct_of(const char *type, int version);
/* Returns the newest layout of a type; NULL: no version has the type. */
const wb__flux_struct *wb__flux_struct_named(const char *type);
/* Whether some version of Flux has the type, and the newest of these with fields. */
bool wb__flux_struct_known(const char *type);
/* The position of a field; -1: none. */
int wb__flux_field_at(const wb__flux_struct *s, const char *name);
/* Iterates over the fields in the order of their kinds. `last` NULL: returns the first field; NULL
 * is returned after the last. */
const wb__flux_field *wb__flux_field_after(const wb__flux_struct *s, const wb__flux_field *last);
/* Finds a field of any version of a type by its name in named tuples; NULL: none. */
const wb__flux_field *wb__flux_field_named(const char *type, const char *name);

/* A function of Julia and its name in Weber, for reading and writing. */
typedef struct {
    const char *path, *weber;            /* "Flux.NNlib.#σ" (an alias is "#silu") and
                                         * "sigmoid" */
    bool elements;                      /* elementwise: Julia broadcasts it over arrays */
    bool pairs;                         /* a connection of exactly two arrays */
    int since;                          /* first version that has it */
} wb__flux_name;

/* Each list ends with a row without path. */
extern const wb__flux_name wb__flux_functions[], wb__flux_connections[];

/* Finds the row of Weber's name; n is the number of arrays that a connection joins. NULL: that
 * version of Flux has no such function. */
const wb__flux_name *wb__flux_name_weber(const wb__flux_name *rows, const char *weber, int n,
                                        int version);
/* Finds the row of Julia's name, given without its module, such as "σ"; NULL: not in the list. */
const wb__flux_name *wb__flux_name_julia(const wb__flux_name *rows, const char *julia);

#endif
