/* Models from the folder of a model hub.  config.c reads the settings, weights.c the tensors,
 * load.c makes the model.  Sizes in the settings allocate nothing before the tensors of the file
 * are known to have these sizes. */
#ifndef WB__PRETRAINED_H
#define WB__PRETRAINED_H

#include "io/json.h"
#include "io/table.h"
#include "nn/transformer.h"
#include "weber/pretrained.h"

/* ---- settings -------------------------------------------------------------------------------- */

/* The kind of layer whose tensors a wb__hub_row names. */
typedef enum {
    WB__HUB_TABLE,                      /* an Embedding */
    WB__HUB_NORM,                       /* a LayerNorm */
    WB__HUB_DENSE,                      /* a Dense, whose weight is [out, in] in the file */
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

/* A family of models, such as BERT, whose settings and tensors have the same names. */
typedef struct {
    const char *type;                   /* "model_type" */
    const char *prefix;                 /* which names of tensors may begin with */
    bool causal, norm_first;
    bool drops_attention;               /* there is dropout behind attention too */
    const wb__hub_row *rows;            /* ends with a row without `file` */
    const char *const *buffers;         /* names of tensors that are no parameters, and NULL */
} wb__hub_family;

/* The settings of a model. */
typedef struct {
    const wb__hub_family *family;
    int64_t sizes[WB__HUB_SIZES];       /* 0: the model lacks this part */
    int64_t blocks, heads;
    double eps, embed_dropout, dropout, attention_dropout;
    wb_function activation;
    bool head, untied;
    const char *left_out;               /* names of tensors of a head that is not built begin so */
    wb__token_pool_kind pooling;        /* pooling of a sentence encoder; WB__TOKENS_KINDS: none */
    bool normalise, pooler;
} wb__hub_config;

/* Returns the root node of a file of JSON in a folder; the caller frees it.  NULL with the error
 * set. */
wb__json *wb__hub_json(const char *folder, const char *name);
/* Sets *c from FOLDER/config.json.  Returns 0 or an error code. */
int wb__hub_config_read(const char *folder, wb__hub_config *c);
/* Sets *base to the folder of the model itself, which modules.json names and the caller frees, and
 * the pooling of c.  Returns 0 or an error code. */
int wb__hub_sentences_read(const char *folder, char **base, wb__hub_config *c);
/* Whether a name in a file of the folder is the name of a file in it, so that the path stays in the
 * folder. */
bool wb__hub_is_plain(const char *name);

/* ---- tensors --------------------------------------------------------------------------------- */

/* The tensors of all files of a folder, sorted by name. */
typedef struct {
    int n_files, n;
    wb__table *files;
    const wb__entry **entries;
    bool *used;                         /* for each entry: whether a parameter has its values */
} wb__hub_weights;

/* Sets *w to the headers, and maps the values.  Returns 0 or an error code; the caller frees the
 * weights with wb__hub_weights_free in both cases. */
int wb__hub_weights_read(const char *folder, wb__hub_weights *w);
void wb__hub_weights_free(wb__hub_weights *w);
/* Returns the index of the tensor `name`, with or without the prefix; -1 if there is none. */
int wb__hub_find(const wb__hub_weights *w, const char *prefix, const char *name);

/* A parameter of the model, and the tensor of the file that has its values: all of it, or block
 * `part` of `parts` along its last axis. */
typedef struct {
    char *file, *path;
    int ndim, part, parts;
    int64_t dims[2];                    /* the dimensions in the file */
    bool turned;                        /* the parameter is the transpose of the file's matrix */
    const wb__entry *entry;
} wb__hub_parameter;
typedef struct { int n, capacity; wb__hub_parameter *rows; } wb__hub_parameters;

/* Sets *out to the parameters of the model of c, each with its tensor in the weights, and *dtype to
 * their dtype.  Returns 0 or an error code, with all differences in the message. */
int wb__hub_match(const char *folder, const wb__hub_config *c, wb__hub_weights *w,
                  wb__hub_parameters *out, wb_dtype *dtype);
void wb__hub_parameters_free(wb__hub_parameters *p);

#endif
