/* Shared declarations of read_layers.c, which reads the fields of Flux's structs, and read_kinds.c,
 * which has what differs between the kinds of layers. */
#ifndef WB__FLUX_KINDS_H
#define WB__FLUX_KINDS_H

#include "io/flux/read.h"

/* An array of the file that becomes the child `child` of a layer. */
typedef struct {
    const char *child;
    wb__flux_field_kind kind;
    wb__jl_array a;             /* the array; data NULL: it is missing */
    void *made;                 /* a block, freed after reading, to which a.data points; or NULL */
} wb__flux_child;

/* A struct while it is read. */
typedef struct {
    wb__flux_reader *r;                 /* the file */
    const wb__jl *v;                    /* the struct */
    const wb__flux_struct *row;
    const wb__layer_type *type;         /* type of the layer */
    union {
        wb_Dense_options dense;
        wb_Conv_options conv;
        wb_Pool_options pool;
        wb_AdaptivePool_options adaptive;
        wb_Upsample_options upsample;
        wb_PixelShuffle_options shuffle;
        wb_BatchNorm_options batchnorm;
        wb_InstanceNorm_options instancenorm;
        wb_GroupNorm_options groupnorm;
        wb_LayerNorm_options layernorm;
        wb_Scale_options scale;
        wb_Bilinear_options bilinear;
        wb_Dropout_options dropout;
        wb_AlphaDropout_options alphadropout;
        wb_Embedding_options embedding;
        wb_EmbeddingBag_options bag;
        wb_Recurrent_options recurrent;
        wb_MultiHeadAttention_options attention;
    } o;                                /* the options of the layer, of `type` */
    /* n_typed: the first n_typed arrays of `s` determine the dtype; 0: all n do */
    int mode, n_typed, n;
    wb__flux_child s[8];                /* the arrays */
} wb__flux_reading;

/* How a layer changes r->channels, which is 0 without images.  KEEPS: not.  ENDS: to 0.  STARTS: to
 * the number of output channels.  POOLS: from 0 to 1; other numbers stay. */
typedef enum { WB__IMAGES_KEEPS, WB__IMAGES_ENDS, WB__IMAGES_STARTS, WB__IMAGES_POOLS } wb__images;

/* How a kind of layer is read. */
typedef struct {
    const char *layer;          /* Weber's type of layer, for 2 axes of space if it has variants */
    wb__images images;
    /* `sizes` is called after the arrays are read, `last` after the options are read; NULL: none */
    bool (*sizes)(wb__flux_reading *x), (*last)(wb__flux_reading *x);
    bool projections;           /* the arrays belong to the layer's 4 Dense layers */
} wb__flux_kind;
/* Returns how a layer is read; NULL if there is no row for it. */
const wb__flux_kind *wb__flux_kind_of(const char *layer);

/* Returns the layout, for the type of v, with as many fields as v; if there is none, the newest
 * layout of the type.  NULL: v is no struct of Flux. */
const wb__flux_struct *wb__flux_row_of(wb__flux_reader *r, const wb__jl *v);
/* Sets *x to the arrays in the fields of v, which has the layout `row`.  False with r->reason set:
 * a value is no array of floats, or a required array is missing.  False with r->f.status set:
 * another failure, such as an array in GPU memory. */
bool wb__flux_take_all(wb__flux_reading *x, const wb__jl *v, const wb__flux_struct *row);
/* Whether an array has these dimensions, or ndim positive dimensions.  If not, sets r->reason.  An
 * array that is missing has any shape. */
bool wb__flux_has_shape(wb__flux_reader *r, const wb__flux_child *s, int ndim, const int64_t *dims);
bool wb__flux_positive(wb__flux_reader *r, const wb__flux_child *s, int ndim);

#endif
