/* Pickles of PyTorch's files, read as data: nothing is executed.  The reader knows the opcodes that
 * torch.save writes for tensors in dicts, lists and tuples, and the globals of tensors; anything
 * else is an error. */
#ifndef WB__PICKLE_H
#define WB__PICKLE_H

#include "base/base.h"

typedef enum {
    WB__PICKLE_NONE, WB__PICKLE_NUMBER, WB__PICKLE_TEXT, WB__PICKLE_LIST, WB__PICKLE_DICT,
    WB__PICKLE_GLOBAL, WB__PICKLE_STORAGE, WB__PICKLE_TENSOR, WB__PICKLE_MARK
} wb__pickle_kind;

/* A value.  Items are values by number: of a list or tuple its elements; of a dict key, value, key,
 * ...; of a storage its key in the archive, and its class; of a tensor the storage, and the lists
 * of sizes and strides. */
typedef struct {
    wb__pickle_kind kind;
    int64_t number;                     /* also the offset of a tensor, the elements of a storage */
    const char *text;                   /* not ended by 0; within the file */
    int length;
    int *items, n, capacity;
} wb__pickle_value;

typedef struct {
    wb__pickle_value *values;
    int n, capacity, root;
} wb__pickle;

/* Reads `bytes` bytes.  Returns 0 or an error code, whose message begins with `path`.  The caller
 * frees the result with wb__pickle_free, also after an error. */
int wb__pickle_read(const char *path, const uint8_t *data, int64_t bytes, wb__pickle *out);
void wb__pickle_free(wb__pickle *p);
/* Whether a value is this text. */
bool wb__pickle_is(const wb__pickle_value *v, const char *text);

#endif
