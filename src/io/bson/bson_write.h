/* BSON documents to be written: a tree of values that know their sizes, and then a stream of any length.
 *
 *   a document is      int32 its bytes, elements, 0
 *   an element is      type, name, 0, value
 *   a list is          a document whose names are "0", "1", ...
 *
 * Values of arrays stay on their devices until they are written.  What the values mean is julia.h's. */
#ifndef WB__BSON_WRITE_H
#define WB__BSON_WRITE_H

#include "base/files/file.h"

/* The most bytes that a document, and so a file, can have. */
#define WB__DOC_MOST ((int64_t)INT32_MAX)

/* Values live until the room that they were made in is dropped.  Without memory they are NULL, which
 * every function takes, and the room has failed. */
typedef struct { void *blocks; char *at; size_t left; bool failed; } wb__doc_room;
typedef struct wb__doc wb__doc;
void wb__doc_drop(wb__doc_room *r);
void *wb__doc_memory(wb__doc_room *r, size_t bytes);

wb__doc *wb__doc_null(wb__doc_room *r);
wb__doc *wb__doc_bool(wb__doc_room *r, bool value);
wb__doc *wb__doc_int(wb__doc_room *r, int64_t value);
wb__doc *wb__doc_real(wb__doc_room *r, double value);
wb__doc *wb__doc_text(wb__doc_room *r, const char *text);
wb__doc *wb__doc_bytes(wb__doc_room *r, const void *bytes, int64_t n);
wb__doc *wb__doc_zeros(wb__doc_room *r, int64_t n);
/* The values of an evaluated tensor: row by row; with each matrix of its last two axes turned over (by half a turn, as
 * kernels of convolutions are); or a matrix column by column. */
typedef enum { WB__ROWS, WB__TURNED, WB__COLUMNS, WB__ORDERS } wb__order;
wb__doc *wb__doc_tensor(wb__doc_room *r, wb_tensor *x, wb__order order);

/* What is put into them must be complete: their sizes count it at once.  A value may stand in several places. */
wb__doc *wb__doc_document(wb__doc_room *r);
wb__doc *wb__doc_list(wb__doc_room *r);
void wb__doc_put(wb__doc_room *r, wb__doc *document, const char *name, wb__doc *value);
void wb__doc_push(wb__doc_room *r, wb__doc *list, wb__doc *value);

int64_t wb__doc_size(const wb__doc *value);
int64_t wb__doc_count(const wb__doc *list);
/* A document of at most WB__DOC_MOST bytes. */
int wb__doc_write(const wb__doc *document, wb__writer *w);

#endif
