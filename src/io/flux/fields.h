/* Flux's structs by version, and the child or option of Weber's layer that each field becomes: one
 * table, by which files are read and written.  BSON.jl writes the fields of a struct by position
 * alone, so that their number tells which version of Flux wrote them; a writer must give exactly
 * the fields of the version that is to read. */
#ifndef WB__FLUX_FIELDS_H
#define WB__FLUX_FIELDS_H

#include "base/base.h"

enum { WB__FLUX_FIELDS = 12 };

/* How a field becomes a child or an option of Weber's layer, in the order of writing. */
typedef enum {
    WB__FIELD_NONE,             /* no child or option */
    WB__FIELD_TANH,             /* a function; tanh: NULL */
    WB__FIELD_FIRST_FUNCTION,   /* a function, written before the arrays; identity: NULL */
    /* children */
    WB__FIELD_MATRIX,           /* (out, in): [out, in] by columns */
    WB__FIELD_KERNEL,           /* (kw, kh, in, out): [out, in, kh, kw] as it lies */
    WB__FIELD_FLIPPED,          /* the same, of a convolution that turns it over */
    WB__FIELD_DEPTHWISE,        /* (kw, kh, multiplier, in): [in multiplier, 1, kh, kw] */
    WB__FIELD_WEIGHT,           /* as it lies */
    WB__FIELD_SCALE,            /* as it lies, or nothing */
    WB__FIELD_SHIFT,
    WB__FIELD_STATISTIC,
    WB__FIELD_BIAS,             /* a vector, or false: .no_bias */
    WB__FIELD_AFFINE,           /* a Diagonal or Scale that has the children */
    WB__FIELD_LAYER,            /* a layer */
    WB__FIELD_CONNECTION,
    WB__FIELD_LAYERS,           /* a tuple or a named tuple of layers */
    WB__FIELD_CELL,             /* a struct with the same layer's arrays */
    WB__FIELD_STATE,            /* (out) or (out, 1): [out] */
    WB__FIELD_STATES,           /* the same; of an LSTM both, as a tuple */
    WB__FIELD_CALLED,           /* the states after the last call */
    /* options */
    WB__FIELD_INT,
    WB__FIELD_FLOAT64,
    WB__FIELD_FLOAT32,
    WB__FIELD_NOT,              /* a bool, the other way round */
    WB__FIELD_PAIR,             /* (w, h): {h, w}, at least 1 */
    WB__FIELD_COUNTS,           /* the same, at least 0 */
    WB__FIELD_PAD,              /* (left, right, top, bottom): {top, bottom, left, right} */
    WB__FIELD_PLACES,           /* (1, 1) */
    WB__FIELD_SIZES,            /* reversed */
    WB__FIELD_AXES,             /* from 1, of the reversed */
    WB__FIELD_DROPOUT,          /* a Dropout: its probability */
    WB__FIELD_FUNCTION,         /* a function; identity: NULL */
    WB__FIELD_ZEROS,            /* the symbol :zeros */
    WB__FIELD_MODE,             /* nothing, or whether it acts as in training */
    WB__FIELD_TRAINING,         /* the same; true unless somebody said otherwise */
    WB__FIELD_RANDOM            /* TaskLocalRNG */
} wb__flux_how;

typedef struct {
    const char *name, *here;            /* Flux's newest name ("weight", once W), and Weber's */
    wb__flux_how how;
    const char *written;                /* the name in named tuples, where it is another: "b" */
    int since;                          /* a bias is false from that version on; before, zeros */
    double otherwise;                   /* the default of numbers */
} wb__flux_field;

/* Versions are minor*100 + patch of 0.minor.patch: 1612 is 0.16.12. */
typedef struct {
    const char *type;                   /* the last part of the type's name: "Conv" */
    const char *layer;                  /* Weber's; where a cell is first, the cell's; NULL: none */
    int since, before;                  /* versions since <= v < before; 0: from the oldest, until now */
    const char *parameters;             /* of the type: fields, whose types they are, and values */
    int n;
    wb__flux_field fields[WB__FLUX_FIELDS];
} wb__flux_struct;

/* Newest first for each type; a row without a type ends them. */
extern const wb__flux_struct wb__flux_structs[];

/* The newest layout of a type with that many fields; NULL: no version had one. */
const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields);
/* The layout of a version; NULL: that version has no such type. */
const wb__flux_struct *wb__flux_struct_of(const char *type, int version);
/* The newest of a type; NULL: no version has it. */
const wb__flux_struct *wb__flux_struct_named(const char *type);
/* Whether any version has such a type, with fields. */
bool wb__flux_struct_known(const char *type);
/* The position of a field; -1: none. */
int wb__flux_field_at(const wb__flux_struct *s, const char *name);
/* The fields in the order of their hows; `last` NULL: the first; NULL: there are no more. */
const wb__flux_field *wb__flux_field_after(const wb__flux_struct *s, const wb__flux_field *last);
/* A field of any version of a type by its name in named tuples; NULL: none. */
const wb__flux_field *wb__flux_field_named(const char *type, const char *name);

/* A function of Julia's and Weber's, by which files are read and written. */
typedef struct {
    const char *path, *here;            /* "Flux.NNlib.#σ", "sigmoid"; aliases have no module */
    bool elements;                      /* of elements: Julia broadcasts it over arrays */
    bool pairs;                         /* a connection of two arrays, not of more */
    int since;                          /* the version that has it */
} wb__flux_name;

/* A row without a path ends each. */
extern const wb__flux_name wb__flux_functions[], wb__flux_connections[];

/* By Weber's name, for n arrays and a version; NULL: that version has none. */
const wb__flux_name *wb__flux_name_here(const wb__flux_name *rows, const char *here, int n,
                                        int version);
/* By Julia's name, without its module: "σ"; NULL: Weber's is the same, or there is none. */
const wb__flux_name *wb__flux_name_there(const wb__flux_name *rows, const char *julia);

#endif
