/* Weber, chapter 7: models, tensors and checkpoints in files; memory of other libraries. */
#ifndef WEBER_FILES_H
#define WEBER_FILES_H

#include "weber/train.h"

/** The most elements of a wb_tensor_list and of a wb_text_list. */
enum { WB_MAX_LIST = 16 };
/** A list in an option, at most WB_MAX_LIST: .inputs = {x, mask}.  NULL ends a shorter list.  C++
 * assigns: o.inputs = {x, mask}. */
#ifndef __cplusplus
typedef wb_tensor *wb_tensor_list[WB_MAX_LIST];
typedef const char *wb_text_list[WB_MAX_LIST];
/** The default of such a list: no elements. */
#define WB_NO_LIST {NULL}
#else
#define WB_NO_LIST {}
template <class T> struct wb_list_ {
    T list[WB_MAX_LIST];
    wb_list_() : list() {}
    wb_list_(std::initializer_list<T> values) : list()
    {
        T *at = list;
        for (T value : values)
            if (at < list + WB_MAX_LIST) *at++ = value;
    }
};
typedef wb_list_<wb_tensor *> wb_tensor_list;
typedef wb_list_<const char *> wb_text_list;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Writing is atomic: the library writes a temporary file in the same folder, flushes it to the disk
 * and renames it, so a crash leaves the old file or the new one.
 *
 * Reading trusts no file.  A file that is missing, damaged, too short or of another format gives an
 * error with the file's name, the position and the reason (WB_ERROR_FILE, WB_ERROR_FORMAT).
 * Reading needs at most a small multiple of the file's size in memory, and what a file unfolds to
 * beyond that is limited by wb_set_unpack_limit: compressed contents, views that are larger than
 * what they are views of, and parts that the file has once and refers to often.  Safetensors files
 * of this library have checksums, which are compared.  A program must not change a file in place
 * while it is read. */

/* ---- models ---------------------------------------------------------------------------------- */

/** The names that tensors have in a file.
 *
 * WB_NAMES_WEBER: the paths of the model, "layers.0.weight".
 *
 * WB_NAMES_TORCH: the names of PyTorch's state_dict, which the matching module loads strictly:
 *   - BatchNorm and LayerNorm: "weight", "bias", "running_mean", "running_var"; also
 *     "num_batches_tracked", which is 0
 *   - recurrent layers: "weight_ih_l0", ...; the second of PyTorch's two biases is written as 0
 *   - attention: "in_proj_weight"
 *   - a chain is a Sequential, in which an activation is a layer with a number of its own:
 *     wb_Chain(wb_Dense(4, 8, wb_relu), wb_Dense(8, 2)) has "0.weight" and "2.weight"
 *   - a named layer: "encoder.0.weight"; SkipConnection and Parallel: "layers.0.weight"
 *   - kernels of a .flip convolution are flipped, since PyTorch's convolutions do not flip.
 * Loading also accepts the indices in the chain ("1.weight"), "q_proj.weight" in attention, and two
 * biases, which are added.  A GRU of PyTorch with a second bias other than 0 needs .hidden_bias.
 *
 * WB_NAMES_AUTO: saving uses Weber's names.  Loading uses the names with which Weber wrote the
 * file.  For files of other programs it uses the names with which fewer tensors are missing.  If
 * the same number is missing, it uses PyTorch's names if the file has the note "format": "pt", else
 * Weber's. */
typedef enum { WB_NAMES_AUTO, WB_NAMES_WEBER, WB_NAMES_TORCH } wb_names;

/** Options of wb_save. */
#define wb_save_options_(OPT, ARG)                                                                 \
    OPT(wb_names, names, WB_NAMES_AUTO)                                                            \
    /* BSON: the name of the Julia variable; default "model" */                                    \
    OPT(const char *, key, NULL)                                                                   \
    /* BSON: the version of Flux that will read the file, "0.9" to "0.16".  Default: "0.16". */    \
    OPT(const char *, flux, NULL)                                                                  \
    OPT(bool, structs, false)               /* BSON: saves Flux's layers instead of a state */     \
    /* ONNX: inputs of a call of the model, which are its example; required */                     \
    OPT(wb_tensor_list, inputs, WB_NO_LIST)                                                        \
    /* ONNX: names; by default "input", "input1", ... and "output", "output1", ... */              \
    OPT(wb_text_list, input_names, WB_NO_LIST)                                                     \
    OPT(wb_text_list, output_names, WB_NO_LIST)                                                    \
    /* ONNX: for each input, of at most 8, the axis that is the batch; -1: none.  By default the
     * first axis of the first input and of those inputs that have its size there. */              \
    OPT(wb_ints, batch_axes, WB_EMPTY)                                                             \
    OPT(bool, fixed, false)                 /* ONNX: the batch has the size of the example */
WB_OPTIONS(wb_save_options);
/** Saves a layer or a tree: wb_save("model.safetensors", model).  Pending assignments are evaluated
 * first.  The bytes do not depend on the device.  A symbolic link is replaced by the file.  Returns
 * 0 or an error code.
 *
 * The ending of the path selects the format:
 *   .safetensors   values, and the model's structure (layers, options, ties) in the metadata, so
 *                  that wb_load restores the model; unknown endings give this format too
 *   .bson          for Flux, in the format of Julia's BSON.jl, less than 2 GiB.  The Julia variable
 *                  named by .key is a state for Flux.loadmodel! (Flux 0.13 or later), and the Julia
 *                  variable "weber" is the model's structure for wb_load.  With .structs there is
 *                  only .key, which is Flux's own layers (docs/flux.md)
 *   .npz           for NumPy: the tensors by their paths; bf16 is written as f32
 *   .onnx          for programs that run models of ONNX (opset 17, version 8 of the format), less
 *                  than 2 GiB: the operations of a call of the layer in test mode
 * Errors: a layer that the format, or that version of Flux, does not have; a function without a
 * name (wb_name_function); the ending .npy, .idx, .pt or .jld2; a file that cannot be written; BSON
 * or NPZ where the library was built without libbson or libzip.
 *
 * ONNX: wb_save("model.onnx", model, .inputs = {x}) calls the layer on the example x, without an
 * evaluation, and writes what the call computes, of the library's layers and of the program's own;
 * the file takes batches of any size.  docs/onnx.md has the operators of each operation, and what
 * is refused (WB_ERROR_UNSUPPORTED), such as random numbers and sizes that the batch decides in
 * another way than k batch + c, unless .fixed writes the file for the sizes of the example. */
WB_API int wb_save_with(const char *path, void *model, const wb_save_options *o);

/** A part of a file that the library does not know: a struct of another program, a closure, or a
 * function that this program has not named (wb_name_function).  The struct is valid during the call
 * of .substitute.  Fields without a name are named "0", "1", ... */
typedef struct {
    const char *path;               /* "layers.3" */
    const char *type;               /* "Main.Attention", "closure #7#8", "function Main.f" */
    wb_tree *fields;                /* tensors and layers; WB_NONE for fields of other kinds */
} wb_unknown;

/** Returns a layer for an unknown part; NULL: the part stays unknown. */
typedef wb_layer *(*wb_substitute)(const wb_unknown *part, void *ctx);
/** Options of wb_load. */
#define wb_load_options_(OPT, ARG)                                                                 \
    OPT(wb_substitute, substitute, NULL)                                                           \
    OPT(void *, ctx, NULL)                  /* passed to .substitute */                            \
    /* BSON: the name of a Julia variable in the file, or a path in it, as `weber show` prints
     * them.  By default "model", else the only layer, else the only Julia variable. */            \
    OPT(const char *, key, NULL)
WB_OPTIONS(wb_load_options);
/** Loads a model, on the default device: wb_load("model.safetensors").  The file is a safetensors
 * file of wb_save, a BSON file of wb_save or of BSON.jl's @save for Flux 0.9 to 0.16, or an ONNX
 * file of opset 7 to 28 (older ones, if their operators have not changed since).
 *
 * An ONNX file becomes one layer, "Onnx", which is called, trained, moved and saved (as
 * safetensors) like any other.  Its inputs and outputs are in the order of the file, as wb_show
 * prints them; several outputs come from wb_call_outputs.  docs/onnx.md has more, and the
 * operators.
 *
 * An array of Julia has its dimensions in reverse order: [784,32] becomes [32,784], and images are
 * [N,C,H,W].  The weight of a Dense or recurrent layer keeps the shape [out,in] that it has in
 * Flux; its values are transposed in memory.  Flux's convolutions become .flip layers.  A closure
 * between a layer of images and a Dense becomes Flatten, with a message in the log.
 *
 * Errors: unknown parts that .substitute does not replace, listed in one message; operators of ONNX
 * that are not supported, listed with their nodes (`weber show` lists all nodes); a file without a
 * model, such as a saved tree (wb_load_tree) or an NPZ file (wb_load_state and wb_load_tensors read
 * its tensors); arrays in a GPU's memory; a struct of WB_LAYER that this program has not registered
 * (wb_name_struct), or that has other fields; a file that cannot be read or is damaged. */
WB_API wb_layer *wb_load_with(const char *path, const wb_load_options *o);
/** Loads a tree (wb_tuple, wb_named_tuple, wb_struct) that wb_save wrote as safetensors or BSON, on
 * the default device.  All tensors of the tree are variables.  wb_name_struct
 * registers structs of the program.  Errors: as wb_load; a file with a layer; a struct that is not
 * registered, or has other fields than in the file. */
WB_API wb_tree *wb_load_tree(const char *path);

/** A name in a file, and the path in the model that gets the value.  A '*' at the end of both means
 * the same rest: {"transformer.h.*", "layers.2.*"}. */
typedef struct { const char *file, *model; } wb_rename;

/** Options of wb_load_state. */
#define wb_load_state_options_(OPT, ARG)                                                           \
    OPT(bool, lenient, false)               /* loads what fits; the log lists the rest */          \
    /* With "encoder." only names that begin with "encoder." are read, without this prefix. */     \
    OPT(const char *, prefix, NULL)                                                                \
    OPT(wb_names, names, WB_NAMES_AUTO)                                                            \
    OPT(int, n_rename, 0)                   /* number of rows of .rename */                        \
    /* Renames names of the file, after .prefix is removed: the first row that matches is used. */ \
    OPT(const wb_rename *, rename, NULL)                                                           \
    /* BSON: see wb_load_options.key.  JLD2: the variable; by default the only one, else
     * "model_state", else "model". */                                                             \
    OPT(const char *, key, NULL)
WB_OPTIONS(wb_load_state_options);
/** Loads values by name into an existing layer or tree: wb_load_state("w.safetensors", model).  The
 * file is a safetensors file of any program, BSON (a whole model, Flux.state, or a list of
 * parameters, which is read in order), JLD2 (Flux.state), NPZ, or a state dict of PyTorch's (.pt,
 * .pth).  Returns 0 or an error code.
 *
 * Every tensor of the model must be a variable, as those of layers are, and be in the file with its
 * shape and dtype.  The file must have no other tensor.  Otherwise the error lists the
 * differences, and nothing is changed.  Values are not converted: convert the model with
 * wb_to(model, device, .dtype = ...), load, and convert it back.
 * Kernels of Flux (BSON, JLD2) are flipped where the layer is not a .flip layer.
 *
 * For a file with PyTorch's names a row of .rename needs to rename only the layer; the names inside
 * the layer may stay PyTorch's.  {"bn.*", "layers.1.*"} also renames "bn.running_mean".
 *
 * A damaged file is an error, also with .lenient. */
WB_API int wb_load_state_with(const char *path, void *model, const wb_load_state_options *o);

#ifndef __cplusplus
#define wb_save(...) WB_SAVE_(__VA_ARGS__, )
#define WB_SAVE_(path, model, ...) \
    WB_CALL_WITH_(wb_save_with((path), (model), WB_GET_(wb_save_options, __VA_ARGS__)))
#define wb_load(...) WB_LOAD_(__VA_ARGS__, )
#define WB_LOAD_(path, ...) \
    WB_CALL_WITH_(wb_load_with((path), WB_GET_(wb_load_options, __VA_ARGS__)))
#define wb_load_state(path, ...) WB_LOAD_STATE_((path), __VA_ARGS__, )
#define WB_LOAD_STATE_(path, model, ...) \
    WB_CALL_WITH_(wb_load_state_with((path), (model), WB_GET_(wb_load_state_options, __VA_ARGS__)))
#endif

/* ---- tensors --------------------------------------------------------------------------------- */

/** All tensors of a safetensors, BSON, NPZ, NPY, IDX, PT, JLD2 or ONNX file as a tree, by their
 * names in the file, which may have dots; the tensor of an NPY or IDX file is "0"; of an ONNX file
 * the initializers are read, of a BSON file the variable "model", else the only one, else all with
 * arrays.  They are constants on the default device.  wb_save writes such a tree.
 *
 * int16 and uint16 become i32, uint32 becomes i64, in files of all formats but ONNX; uint64 is an
 * error.
 *
 * A PT file is one of torch.save, of PyTorch 1.6 or newer and any pickle_protocol.  Nothing in the
 * file is executed: a class or function other than those of tensors is an error that names it.  A
 * JLD2 file is one of Julia's JLD2.jl, or another HDF5 file; libhdf5 reads it, and is opened when
 * the first such file is read.  The page "Files" of the site (docs/site/guide/files.md) has what
 * becomes of names, views and other values.
 *
 * Errors: tensors that cannot be read, such as tensors of a dtype that the library does not have,
 * or with more than 8 axes (the message lists them); a file that cannot be read or is damaged;
 * tensors that take more than wb_set_unpack_limit allows; JLD2 where libhdf5 1.10 or newer is not
 * installed. */
WB_API wb_tree *wb_load_tensors(const char *path);

/** The array in a file of NumPy's NPY format, versions 1 to 3, little-endian, in C or Fortran
 * order, on the CPU.  int16 and uint16 become i32, uint32 becomes i64.  The file may be gzip
 * (wb_set_unpack_limit) or a pipe of at most 4 GiB.  Errors: a dtype that the library does not
 * have, such as complex; more than 8 axes; 2^32 elements or more; a file that cannot be read or is
 * damaged. */
WB_API wb_tensor *wb_load_npy(const char *path);
/** Writes a tensor as an NPY file, whatever the ending of the path; bf16 is written as f32.
 * Returns 0 or an error code. */
WB_API int wb_save_npy(const char *path, wb_tensor *x);

/** Sets how many bytes a file may unfold to, for the whole process.  Before the first call the
 * limit is 4 GiB.  A file that unfolds to more is an error, before the memory is taken where the
 * file has its size.  The limit is for
 *   - the contents of a compressed file (gzip, a member of an NPZ file, an image), and for CSV also
 *     the names and cells of its columns
 *   - what the tensors of a PT, JLD2 or BSON file have beyond its size: a view with strides of 0
 *     (expand) or views of the same elements, arrays that are compressed, or named several times.
 *     In a PT file a tensor counts 1 KiB and its name beside its elements, as far as all of them
 *     take more than 64 times the file's description.
 * Without these, reading takes a small multiple of the size of the file, whatever is in it: a file
 * whose parts refer to each other so often that they unfold to many times their number is an error
 * below the limit too. */
WB_API void wb_set_unpack_limit(int64_t bytes);

/* ---- memory of other libraries --------------------------------------------------------------- */

/* DLPack, version 1, passes tensors between libraries of one process without a copy.  The structs
 * are those of dlpack.h, which programs that use them include. */
struct DLManagedTensorVersioned;
struct DLManagedTensor;

/** x, of any dtype, as a DLPack tensor: evaluated, row-major, on x's device, read-only.  The
 * receiver owns it, and calls its deleter once, from any thread; until then the values are valid
 * and do not change, whatever happens to x, its scope or the library.  A parameter that is updated
 * meanwhile moves to other memory.  NULL: the evaluation failed, x is WB_NONE, or other libraries
 * cannot use the memory of x's device. */
WB_API struct DLManagedTensorVersioned *wb_to_dlpack(wb_tensor *x);
/** wb_to_dlpack with the older struct, which has no read-only flag. */
WB_API struct DLManagedTensor *wb_to_dlpack_unversioned(wb_tensor *x);

/** A constant tensor that shares the memory of a DLPack tensor.  The values must be written before
 * the call, and must not change while the tensor exists.  The library calls the deleter once, when
 * no tensor needs the memory, on the thread where that happens.
 *
 * In these cases the values are copied instead, and the deleter is called before this function
 * returns:
 *   - in host memory: the tensor is not row-major, or its address is not a multiple of the
 *     element's size
 *   - in a GPU's memory: the address is not a multiple of 64 bytes.
 *
 * Host memory, also host memory that a GPU's driver allocated, gives a tensor on the CPU.  Memory
 * of a GPU gives a tensor on that GPU, if its backend is loaded.
 *
 * On failure the struct stays the caller's.  Errors: another major version; a dtype that the
 * library does not have; more than WB_MAX_DIMS dimensions; 2^32 elements or more; a device that no
 * loaded backend has; a tensor in a GPU's memory that is not row-major. */
WB_API wb_tensor *wb_from_dlpack(struct DLManagedTensorVersioned *m);
/** wb_from_dlpack with the older struct, which has no version. */
WB_API wb_tensor *wb_from_dlpack_unversioned(struct DLManagedTensor *m);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/** The objects that a checkpoint saves and restores.  Objects that are NULL are left out.  `model`
 * is a layer or tree.  The struct holds no references; the caller owns `name`, which distinguishes
 * the checkpoints of several trainings. */
typedef struct {
    void *model;
    wb_opt_state *state;
    wb_loader *loader;              /* only its position and its order are saved */
    int64_t epoch;
    const char *name;               /* 1 to 100 letters, digits, _ - . (no . in front); or NULL */
    double metric;                  /* valid if has_metric is set */
    bool has_metric;
    void *average;                  /* the result of wb_average_of, or NULL */
    wb_watch *stop, *reduce;        /* options of wb_train, whose counts are saved; or NULL */
    void *reserved_[8];             /* NULL: for fields of later versions */
} wb_checkpoint;
/** Saves model, optimiser state, loader and the state of this thread's random numbers in one
 * safetensors file with checksums, from any device.  Pending assignments are evaluated first.  A
 * training that continues from the checkpoint computes the same bits as one that never stopped.
 * Returns 0 or an error code. */
WB_API int wb_save_checkpoint(const char *path, const wb_checkpoint *c);
/** Restores a checkpoint into objects of the same structure, on any device: the model, the state
 * with the numbers of its rule, the loader, and this thread's random numbers.  It also sets epoch,
 * metric and has_metric of *c.  Returns 0, or an error code, and then nothing is changed.  Errors:
 * a damaged file (the message names the tensor); another structure or rule; a position within an
 * epoch, and a loader with another .batchsize, .shuffle or .buffer; c has a model, state, loader,
 * average or watched number that the file does not have; c->name is set and differs from the name
 * in the file. */
WB_API int wb_load_checkpoint(const char *path, wb_checkpoint *c);

/** Options of wb_keep_checkpoint. */
#define wb_keep_checkpoint_options_(OPT, ARG)                                                      \
    OPT(bool, best, false)                  /* also keeps the checkpoint with the best metric */   \
    OPT(bool, higher, false)                /* the best metric is the highest, not the lowest */   \
    ARG(int, last, 3)                       /* number of checkpoints to keep; negative: all */
WB_OPTIONS(wb_keep_checkpoint_options);
/** Saves a checkpoint as FOLDER/NAME-000012.safetensors, 12 being the epoch, and then removes older
 * checkpoints of the same name:
 *
 *     wb_checkpoint now = {model, state, loader, epoch, .metric = loss, .has_metric = true};
 *     wb_keep_checkpoint("run", &now, .best = true);
 *
 * NAME is c->name, or "checkpoint" if that is NULL.  The folder is created; other files in it are
 * not touched, and files of NAME that are damaged stay.  Of equal metrics the first is the best;
 * NaN is never the best.  Only one process may write to a name.  Returns 0 or an error code.
 * Errors: .best without a metric; a negative epoch; .last is 0. */
WB_API int wb_keep_checkpoint_with(const char *folder, const wb_checkpoint *c,
                                   const wb_keep_checkpoint_options *o);
#ifndef __cplusplus
#define wb_keep_checkpoint(...) WB_KEEP_CHECKPOINT_(__VA_ARGS__, )
#define WB_KEEP_CHECKPOINT_(folder, c, ...) \
    WB_CALL_WITH_(wb_keep_checkpoint_with((folder), (c), \
                                          WB_GET_(wb_keep_checkpoint_options, __VA_ARGS__)))
#endif

/** Restores the checkpoint named c->name (NULL: "checkpoint") that was written last, as
 * wb_load_checkpoint does.  The serial numbers in the files, not the epochs, give the order.  A
 * damaged checkpoint is skipped, with a warning.  Returns 0 or an error code.  Errors: no
 * checkpoint, no folder; the checkpoint belongs to another model, state or loader. */
WB_API int wb_load_latest_checkpoint(const char *folder, wb_checkpoint *c);
/** Restores the checkpoint named c->name (NULL: "checkpoint") with the best metric, as
 * wb_load_checkpoint does.  The best metric is the lowest, or the highest if the newest checkpoint
 * was kept with .best and .higher.  A damaged checkpoint is skipped, with a warning.  Returns 0 or
 * an error code.  Errors: no checkpoint has a metric, no folder; the checkpoint belongs to another
 * model, state or loader. */
WB_API int wb_load_best_checkpoint(const char *folder, wb_checkpoint *c);

#ifdef __cplusplus
}
#endif
#endif
