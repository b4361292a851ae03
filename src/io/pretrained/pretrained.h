/* Models from the folder of a model hub.  config.c reads the settings, weights.c the tensors,
 * load.c makes the model.  Nothing is allocated by the sizes of the settings before the tensors of
 * the file have these sizes. */
#ifndef WB__PRETRAINED_H
#define WB__PRETRAINED_H

#include "io/json.h"
#include "io/table.h"
#include "nn/transformer.h"
#include "weber/pretrained.h"

/* ---- settings -------------------------------------------------------------------------------- */

/* The layer that a row of tensors is. */
typedef enum {
    WB__HUB_TABLE,                      /* an Embedding */
    WB__HUB_NORM,                       /* a LayerNorm */
    WB__HUB_DENSE,                      /* a Dense */
    WB__HUB_TURNED,                     /* a Dense whose weight is [in, out] in the file */
    /* the projections q, k and v of attention, side by side in one weight, [in, 3 out] */
    WB__HUB_JOINED,
    WB__HUB_HEAD                        /* a Dense without a bias */
} wb__hub_kind;
typedef enum {
    WB__HUB_NONE, WB__HUB_VOCABULARY, WB__HUB_POSITIONS, WB__HUB_TYPES, WB__HUB_WIDTH,
    WB__HUB_INNER, WB__HUB_SIZES
} wb__hub_size;

/* The tensors of one layer.  "%d" in `file` is the number of the block; `layer` is the path behind
 * "layers." in the model or, if `file` has a number, in the block. */
typedef struct {
    const char *file, *layer;
    wb__hub_kind kind;
    wb__hub_size out, in;
} wb__hub_row;

typedef struct {
    const char *type;                   /* "model_type" */
    const char *prefix;                 /* that names of tensors may have */
    bool causal, norm_first;
    bool drops_attention;               /* there is dropout behind attention too */
    const wb__hub_row *rows;            /* the last has no file */
    const char *const *buffers;         /* names of tensors that are no parameters, and NULL */
} wb__hub_family;

typedef struct {
    const wb__hub_family *family;
    int64_t sizes[WB__HUB_SIZES];       /* 0: the model has none */
    int64_t blocks, heads;
    double eps, embed_dropout, dropout, attention_dropout;
    wb_function activation;
    bool head, untied;
    const char *left_out;               /* the beginning of the names of a head that is left out */
    /* the reduction to sentences, or WB__TOKENS_KINDS */
    wb__token_pool_kind pooling;
    bool normalise, pooler;
} wb__hub_config;

/* Reads a file of JSON in a folder; the caller frees the root node.  NULL with the error set. */
wb__json *wb__hub_json(const char *folder, const char *name);
/* Reads FOLDER/config.json.  Returns 0 or an error code. */
int wb__hub_config_read(const char *folder, wb__hub_config *c);
/* Reads modules.json, and sets *base to the folder of the model itself, which the caller frees, and
 * the pooling of c.  Returns 0 or an error code. */
int wb__hub_sentences_read(const char *folder, char **base, wb__hub_config *c);
/* Whether a name in a file of the folder is the name of a file or folder in it. */
bool wb__hub_is_plain(const char *name);

/* ---- tensors --------------------------------------------------------------------------------- */

/* The tensors of all files of a folder, sorted by name. */
typedef struct {
    int n_files, n;
    wb__table *files;
    const wb__entry **entries;
    bool *used;                         /* of each entry */
} wb__hub_weights;

/* Reads the headers, and maps the values.  Returns 0 or an error code; the caller frees the weights
 * with wb__hub_weights_free in both cases. */
int wb__hub_weights_read(const char *folder, wb__hub_weights *w);
void wb__hub_weights_free(wb__hub_weights *w);
/* Returns the index of the tensor `name`, which may have the prefix in the file; -1: none. */
int wb__hub_find(const wb__hub_weights *w, const char *prefix, const char *name);

/* A parameter of the model, and the tensor of the file that has its values: all of it, or block
 * `part` of `parts` along its last axis. */
typedef struct {
    char *file, *path;
    int ndim, part, parts;
    int64_t dims[2];                    /* in the file */
    bool turned;                        /* the parameter is the transpose */
    const wb__entry *entry;
} wb__hub_parameter;
typedef struct { int n, capacity; wb__hub_parameter *rows; } wb__hub_parameters;

/* Lists the parameters of the model of c, finds each in the weights, and sets *dtype to their
 * dtype.  Returns 0 or an error code, with all differences in the message. */
int wb__hub_match(const char *folder, const wb__hub_config *c, wb__hub_weights *w,
                  wb__hub_parameters *out, wb_dtype *dtype);
void wb__hub_parameters_free(wb__hub_parameters *p);

#endif
