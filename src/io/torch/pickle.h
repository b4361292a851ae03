/* Pickles of PyTorch's files, protocols 1 to 5, read as data: nothing is executed.  The reader
 * knows the opcodes that torch.save writes for tensors in dicts, lists and tuples, and the globals
 * of tensors; anything else is an error. */
#ifndef WB__PICKLE_H
#define WB__PICKLE_H

#include "base/base.h"

typedef enum {
    WB__PICKLE_NONE, WB__PICKLE_NUMBER, WB__PICKLE_TEXT, WB__PICKLE_LIST, WB__PICKLE_DICT,
    WB__PICKLE_GLOBAL, WB__PICKLE_STORAGE, WB__PICKLE_TENSOR, WB__PICKLE_MARK
} wb__pickle_kind;

/* A value.  `items` are indices of other values.  For a list or tuple they are its elements; for a
 * dict key, value, key, ...; for a storage its key in the archive and its class; for a tensor its
 * storage, the lists of sizes and strides, and the dtype, if the class of the storage does not have
 * it.  A pickle may have a value for each of its bytes, so this struct is small. */
typedef struct {
    union {
        int64_t number;                 /* also the offset of a tensor, the elements of a storage */
        const char *text;  /* a text of n bytes, in the file; of a global its name alone */
    };
    int *items;                         /* its capacity is the next power of two */
    int n;
    uint8_t kind;                       /* a wb__pickle_kind */
} wb__pickle_value;

typedef struct {
    wb__pickle_value *values;
    int n, capacity, root;
} wb__pickle;

/* Sets *out to the values in `bytes` bytes.  Returns 0 or an error code, whose message begins with
 * `path`.  The caller frees the result with wb__pickle_free, also after an error. */
int wb__pickle_read(const char *path, const uint8_t *data, int64_t bytes, wb__pickle *out);
void wb__pickle_free(wb__pickle *p);
/* Whether a value is this text, or a global of this name. */
bool wb__pickle_is(const wb__pickle_value *v, const char *text);

#endif
