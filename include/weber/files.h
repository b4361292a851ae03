/* Weber, chapter 7: files - models, tensors, checkpoints - and memory shared with other libraries. */
#ifndef WEBER_FILES_H
#define WEBER_FILES_H

#include "weber/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is written appears whole or not at all: to a temporary file beside it, synced and renamed, so that a crash
 * leaves the old file or the new one.  What is read is trusted in nothing: errors name file, place and reason, and no
 * file makes a reader take more memory than a small multiple of its size. */

/* ---- models ----------------------------------------------------------------------------------- */

/* Whose names the tensors have in a file, and whose conventions.
 *   WB_NAMES_WEBER   "layers.0.weight"; values as the model holds them
 *   WB_NAMES_TORCH   PyTorch's state_dict, which the module that the layer is takes strictly: BatchNorm and LayerNorm
 *                    "weight", "bias", "running_mean", "running_var" (and "num_batches_tracked", 0); recurrent layers
 *                    "weight_ih_l0", ... with one bias of two, the other being zero; attention "in_proj_weight".  A chain
 *                    is a Sequential: "0.weight"; activations are layers of their own there, and are counted:
 *                    wb_Chain(wb_Dense(4, 8, wb_relu), wb_Dense(8, 2)) has "0.weight" and "2.weight".  Layers by name
 *                    "encoder.0.weight"; SkipConnection and Parallel "layers.0.weight".  The kernels of a .flip
 *                    convolution are turned over, since PyTorch's are never.  Loading also takes a chain's own numbers
 *                    ("1.weight"), attention with "q_proj.weight" and its like, and two biases, whose sum it is; the
 *                    GRU of PyTorch has one that no sum can stand for, and is refused unless that is zero.
 *   WB_NAMES_AUTO    saving: Weber's; loading: those of a file that Weber wrote, else those with which fewer are missing.
 *                    Where that is all the same, PyTorch's if it says so (the note "format": "pt"). */
typedef enum { WB_NAMES_AUTO, WB_NAMES_WEBER, WB_NAMES_TORCH } wb_names;

/* A layer or a tree into a file, from any device, with the same bytes from every one.  The format is by the path's ending:
 *   .safetensors   the structure (layers, options, ties) goes into the metadata, so that wb_load gives the model
 *   .bson          of Julia's BSON.jl, for Flux: under .key, a state document that Flux.loadmodel! takes, with Weber's
 *                  structure beside it; or with .structs the layers themselves, for the Flux of version .flux.
 *                  Refused at 2 GiB, BSON's limit: use safetensors.
 *   .npz           NumPy's: the tensors by their paths; bf16, which it has not, as f32
 * Any other ending: as .safetensors.  A symbolic link is replaced by the file, not followed.
 * Errors: a layer that the format or that version of Flux has not; what has no name in files (wb_name_function). */
typedef struct {
    size_t size;
    wb_names names;
    const char *key;                /* BSON: "model" */
    const char *flux;               /* BSON: "0.9" to "0.16" (a patch may follow), "0.16" unless given; see docs/flux.md */
    bool structs;                   /* without: for Flux 0.13 and newer */
    WB_BY_PLACE
    WB_NO_MORE
} wb_save_options;
WB_API int wb_save_with(const char *path, void *model, const wb_save_options *o);

/* A part of a file that Weber does not know: a struct of some program's own, a closure, a function without a name here.
 * `fields`: what could be read of it, "0", "1", ... or by name (tensors and layers), WB_NONE for the rest. */
typedef struct {
    const char *path;               /* "layers.3" */
    const char *type;               /* "Main.Attention", "closure #7#8", "function Main.normalise" */
    wb_tree *fields;
} wb_unknown;

/* A model from a file alone, ready to run on the default device: a safetensors file of wb_save's, or a BSON file that
 * BSON.jl's @save wrote for Flux 0.9 to 0.16, or wb_save.
 *
 * A Julia array is the same bytes with its dimensions reversed: [784,32] there is [32,784] here, and an image whose first
 * axis is its width is [N,C,H,W]; but a Dense's or a recurrent layer's weight is [out,in] on both sides, which turns its
 * values.  Flux's convolutions are true ones: they come as .flip.
 * What is unknown is named with its path, all at once, unless .substitute(part, ctx) gives a layer for it (NULL: it does
 * not).  A closure between layers of images and a Dense is taken for the flattening that it nearly always is, with a
 * word in the log.
 * Errors: a file of tensors alone (wb_load_state, wb_load_tensors); one that was saved from a GPU's memory. */
typedef struct {
    size_t size;
    wb_layer *(*substitute)(const wb_unknown *part, void *ctx);
    void *ctx;
    const char *key;                /* BSON: which variable; "model", or the only layer, or the only one.  A part of one
                                       goes by its path, as weber show names it: "checkpoint.model", "nets.0" */
    WB_BY_PLACE
    WB_NO_MORE
} wb_load_options;
WB_API wb_layer *wb_load_with(const char *path, const wb_load_options *o);

/* Values by name into a model that exists, from any file with tensors: safetensors of any program, BSON (a whole model,
 * Flux.state, or a list of parameters, which is taken in order), NPZ.  Strict: every tensor of the model must be there,
 * of its shape and dtype, and no other; all that is missing, unexpected or of another shape is listed at once, and then
 * nothing is changed.  Lenient: what fits is loaded, and the log tells the rest.  Values are never converted: for a file
 * of another dtype take a model of that dtype, wb_to(model, device, .dtype = WB_F16), load, and take it back.
 * Kernels from Flux are turned over where the convolution that they go into does not do what theirs did.
 * .prefix "encoder.": only what begins so in the file, and without that beginning.
 * .rename: names in the file (after .prefix) and the paths that they have in the model; a '*' at the end of both stands
 * for any rest: {"transformer.h.*", "layers.2.*"}.  The first row that fits counts; what fits none keeps its name.  With
 * PyTorch's names, what follows the path of a layer may be in its words: {"bn.*", "layers.1.*"} for "bn.running_mean". */
typedef struct { const char *file, *model; } wb_rename;
typedef struct {
    size_t size;
    bool lenient;
    const char *prefix;
    wb_names names;
    int n_rename;
    const wb_rename *rename;
    const char *key;                /* BSON, as above */
    WB_BY_PLACE
    WB_NO_MORE
} wb_load_state_options;
WB_API int wb_load_state_with(const char *path, void *model, const wb_load_state_options *o);

#ifndef __cplusplus
#define wb_save(...) WB_SAVE_(__VA_ARGS__, )
#define WB_SAVE_(path, model, ...) \
    wb_save_with((path), (model), WB_GET_(wb_save_options, __VA_ARGS__))
#define wb_load(...) WB_LOAD_(__VA_ARGS__, )
#define WB_LOAD_(path, ...) wb_load_with((path), WB_GET_(wb_load_options, __VA_ARGS__))
#define wb_load_state(path, ...) WB_LOAD_STATE_((path), __VA_ARGS__, )
#define WB_LOAD_STATE_(path, model, ...) \
    wb_load_state_with((path), (model), WB_GET_(wb_load_state_options, __VA_ARGS__))
#endif

/* ---- tensors ---------------------------------------------------------------------------------- */

/* All tensors of a safetensors, BSON, NPZ, NPY or IDX file by their names in it (of NPY and IDX "0"), dots and all:
 * wb_get(t, "layers.0.weight").  wb_save writes such a tree.
 * Errors: what is no tensor of Weber's, such as another dtype: all such are listed. */
WB_API wb_tree *wb_load_tensors(const char *path);

/* NumPy's format for one array, versions 1 to 3, either order, little-endian; from a pipe or a gzip file at most 4 GiB. */
WB_API wb_tensor *wb_load_npy(const char *path);
WB_API int wb_save_npy(const char *path, wb_tensor *x);

/* The most bytes that a compressed file (gzip, NPZ) may unfold to: 4 GiB unless set. */
WB_API void wb_set_unpack_limit(int64_t bytes);

/* ---- memory shared with other libraries ------------------------------------------------------- */

/* DLPack (version 1): tensors from one library to another within a process, without a copy.  The structs are those of
 * dlpack.h, which Weber neither needs nor brings.  All dtypes of Weber's have their like there.
 *
 * Out: x's value, computed and finished, row-major, where x is.  Whoever has the struct calls its deleter once, from any
 * thread, when nothing reads the values any more; until then they stand, whatever becomes of x, its scope, its model or
 * the library (wb_shutdown).  They never change either: a parameter that is updated meanwhile moves to other memory, at
 * the cost of one copy.  Nor may they be changed: the struct says that they are read-only (the older one cannot).
 * Errors: NULL; a device whose memory other libraries do not know. */
struct DLManagedTensorVersioned;
struct DLManagedTensor;
WB_API struct DLManagedTensorVersioned *wb_to_dlpack(wb_tensor *x);
WB_API struct DLManagedTensor *wb_to_dlpack_unversioned(wb_tensor *x);

/* In: a tensor of this memory, a constant.  What writes the values must have ended, and nothing may write to them while
 * the tensor lives.  The deleter is called once: when no tensor needs the memory any more, on the thread where that
 * happens; where the values had to be copied (strides; an address that is no multiple of the element's size, or of 64 in a
 * GPU's memory), before this returns.  On failure it is not called, and the struct stays the caller's.
 * The host's memory, a GPU's pinned one too, gives a tensor of the CPU; a GPU's one of its device, where the backend is
 * loaded and can.
 * Errors: another major version; a dtype that Weber has not; more than WB_MAX_DIMS dimensions; a device that no loaded
 * backend takes; strides in a GPU's memory. */
WB_API wb_tensor *wb_from_dlpack(struct DLManagedTensorVersioned *m);
WB_API wb_tensor *wb_from_dlpack_unversioned(struct DLManagedTensor *m);

/* ---- checkpoints ------------------------------------------------------------------------------ */

/* Model, optimiser state, random counters and loader position (each may be NULL) in one file, saved on any device and
 * restored on any into objects of the same structure.  Training on from one gives the bits that never stopping would
 * have given.  The file is a safetensors file, with a checksum of every tensor and of all else: what is damaged is an
 * error that names the tensor, and then nothing is changed.
 * .name: letters, digits and _ - . ; stored, and compared when loading, unless NULL.
 * .epoch, .metric (which counts if .has_metric): stored, and set by loading. */
typedef struct {
    wb_layer *model;
    wb_opt_state *state;
    wb_loader *loader;
    int64_t epoch;
    const char *name;
    double metric;
    bool has_metric;
} wb_checkpoint;
WB_API int wb_checkpoint_save(const char *path, const wb_checkpoint *c);
WB_API int wb_checkpoint_load(const char *path, wb_checkpoint *c);

/* A folder that keeps the last checkpoints of each name, and the best: FOLDER/NAME-000012.safetensors is that of epoch
 * 12.  Once the new one is on the disk older ones are removed, but for the .last n in the order in which they were
 * written and, with .best, that with the lowest metric (.higher: the highest; of equals the first; NaN never is).
 * Nothing else in the folder is touched; one process at a time writes to a name.  NAME is "checkpoint" unless given.
 *   wb_checkpoint now = {model, state, loader, epoch, .metric = loss, .has_metric = true};
 *   wb_checkpoint_keep("run", &now, .best = true);
 * The folder is made if it is not there.  Errors: .best without a metric; a negative epoch. */
typedef struct {
    size_t size;
    bool best; WB_HAS(best)
    bool higher; WB_HAS(higher)
    WB_BY_PLACE
    int last; WB_HAS(last)          /* 3; negative: all */
    WB_NO_MORE
} wb_checkpoint_keep_options;
WB_API int wb_checkpoint_keep_with(const char *folder, const wb_checkpoint *c, const wb_checkpoint_keep_options *o);
#ifndef __cplusplus
#define wb_checkpoint_keep(...) \
    WB_PASTE_(WB_CHECKPOINT_KEEP_, WB_AFTER_2_(__VA_ARGS__))(__VA_ARGS__)
#define WB_CHECKPOINT_KEEP_none(folder, c) wb_checkpoint_keep_with((folder), (c), NULL)
#define WB_CHECKPOINT_KEEP_more(folder, c, ...) \
    wb_checkpoint_keep_with((folder), (c),      \
                            WB_GET_(wb_checkpoint_keep_options, WB_GIVE_(__VA_ARGS__)))
#endif

/* The one written last, or the best of those there, of the name in c.  One that is damaged is passed over, with a
 * warning that says what is wrong with it.  Errors: there is none; it is of another model, state or loader. */
WB_API int wb_checkpoint_latest(const char *folder, wb_checkpoint *c);
WB_API int wb_checkpoint_best(const char *folder, wb_checkpoint *c);

#ifdef __cplusplus
}
#endif
#endif
