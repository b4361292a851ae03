/* BSON documents to be written: a tree of values with known sizes, then written as a stream.
 *
 *   a document is      int32 its bytes, elements, 0
 *   an element is      type, name, 0, value
 *   a list is          a document whose names are "0", "1", ...
 *
 * Values of tensors stay on their devices until they are written. julia.h makes Julia's values of
 * such documents. */
#ifndef WB__BSON_WRITE_H
#define WB__BSON_WRITE_H

#include "base/files/file.h"

/* The largest document, and so the largest file. */
#define WB__DOC_MAX ((int64_t)INT32_MAX)

/* The arena of the values, {0} at first; wb__doc_drop frees all values. If memory is short,
 * `failed` is set and values are NULL, which wb__doc_put and wb__doc_push accept. */
typedef struct { void *blocks; char *at; size_t left; bool failed; } wb__doc_arena;
typedef struct wb__doc wb__doc;
void wb__doc_drop(wb__doc_arena *r);
void *wb__doc_memory(wb__doc_arena *r, size_t bytes);

wb__doc *wb__doc_null(wb__doc_arena *r);
wb__doc *wb__doc_bool(wb__doc_arena *r, bool value);
wb__doc *wb__doc_int(wb__doc_arena *r, int64_t value);
wb__doc *wb__doc_real(wb__doc_arena *r, double value);
wb__doc *wb__doc_text(wb__doc_arena *r, const char *text);
wb__doc *wb__doc_bytes(wb__doc_arena *r, const void *bytes, int64_t n);
wb__doc *wb__doc_zeros(wb__doc_arena *r, int64_t n);
/* A binary with the elements of an evaluated tensor, in one of three orders: WB__ROWS row-major;
 * WB__FLIPPED with each kernel (the last two axes) flipped along both axes; WB__COLUMNS a matrix
 * column-major. The tensor must live until the document is written. */
typedef enum { WB__ROWS, WB__FLIPPED, WB__COLUMNS, WB__ORDERS } wb__order;
wb__doc *wb__doc_tensor(wb__doc_arena *r, wb_tensor *x, wb__order order);

/* Documents and lists. A value must be complete before it is added, because its size is counted
 * then. A value may be added several times. */
wb__doc *wb__doc_document(wb__doc_arena *r);
wb__doc *wb__doc_list(wb__doc_arena *r);
void wb__doc_put(wb__doc_arena *r, wb__doc *document, const char *name, wb__doc *value);
void wb__doc_push(wb__doc_arena *r, wb__doc *list, wb__doc *value);

int64_t wb__doc_size(const wb__doc *value);         /* bytes */
int64_t wb__doc_count(const wb__doc *list);
/* Writes a document of at most WB__DOC_MAX bytes. */
int wb__doc_write(const wb__doc *document, wb__writer *w);

#endif
