/* Writing BSON documents.  A document is first built as a tree of values with known sizes, then
 * written as a stream.
 *
 *   a document is      its size in bytes (int32), its elements, a zero byte
 *   an element is      its type, its name, a zero byte, its value
 *   a list is          a document whose names are "0", "1", ...
 *
 * The values of tensors stay on their devices until the document is written.  julia.h builds such
 * documents for values of Julia. */
#ifndef WB__BSON_WRITE_H
#define WB__BSON_WRITE_H

#include "base/files/file.h"

/* Maximum size, in bytes, of a document, and so of a file. */
#define WB__DOC_MAX ((int64_t)INT32_MAX)

/* The arena that holds all values.  Initialise it with {0} and free it with wb__doc_drop.  If
 * memory is short, `failed` is set, and functions that make values return NULL.  wb__doc_put and
 * wb__doc_push accept NULL. */
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
/* The order in which the elements of a tensor are written.  WB__DOC_ROWS: row-major.
 * WB__DOC_FLIPPED: row-major, with each kernel (the axes 2 and up) flipped along all its axes.
 * WB__DOC_COLUMNS: column-major, for tensors of 2 or 3 dimensions. */
typedef enum { WB__DOC_ROWS, WB__DOC_FLIPPED, WB__DOC_COLUMNS, WB__DOC_ORDERS } wb__doc_order;
/* Returns a binary of the elements of an evaluated tensor, which must live until the document is
 * written. */
wb__doc *wb__doc_tensor(wb__doc_arena *r, wb_tensor *x, wb__doc_order order);

/* wb__doc_put adds a value to a document, wb__doc_push to a list.  The value must be complete,
 * because its size is then added to the size of the document or list.  A value may be added several
 * times. */
wb__doc *wb__doc_document(wb__doc_arena *r);
wb__doc *wb__doc_list(wb__doc_arena *r);
void wb__doc_put(wb__doc_arena *r, wb__doc *document, const char *name, wb__doc *value);
void wb__doc_push(wb__doc_arena *r, wb__doc *list, wb__doc *value);

int64_t wb__doc_size(const wb__doc *value);         /* bytes */
int64_t wb__doc_count(const wb__doc *list);
/* Writes a document of at most WB__DOC_MAX bytes.  Returns 0 or an error code. */
int wb__doc_write(const wb__doc *document, wb__writer *w);

#endif
