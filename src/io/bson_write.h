/* BSON documents to be written: a tree of values that know their sizes, and then a stream of any length.
 *
 *   a document is      int32 its bytes, elements, 0
 *   an element is      type, name, 0, value
 *   a list is          a document whose names are "0", "1", ...
 *
 * Values of arrays stay on their devices until they are written.  What the values mean is julia.h's. */
#ifndef WB__BSON_WRITE_H
#define WB__BSON_WRITE_H

#include "base/file.h"

/* The most bytes that a document, and so a file, can have. */
#define WB__BSON_MOST ((int64_t)INT32_MAX)

/* Values live until the room that they were made in is dropped.  Without memory they are NULL, which
 * every function takes, and the room has failed. */
typedef struct { void *blocks; char *at; size_t left; bool failed; } wb__bson_room;
typedef struct wb__bson wb__bson;
void wb__bson_drop(wb__bson_room *r);
void *wb__bson_memory(wb__bson_room *r, size_t bytes);

wb__bson *wb__bson_null(wb__bson_room *r);
wb__bson *wb__bson_bool(wb__bson_room *r, bool value);
wb__bson *wb__bson_int(wb__bson_room *r, int64_t value);
wb__bson *wb__bson_real(wb__bson_room *r, double value);
wb__bson *wb__bson_text(wb__bson_room *r, const char *text);
wb__bson *wb__bson_bytes(wb__bson_room *r, const void *bytes, int64_t n);
wb__bson *wb__bson_zeros(wb__bson_room *r, int64_t n);
/* The values of an evaluated tensor, row-major.  `turned`: with each matrix of its last two axes turned
 * over (by half a turn), as kernels of convolutions are. */
wb__bson *wb__bson_tensor(wb__bson_room *r, wb_tensor *x, bool turned);

/* What is put into them must be complete: their sizes count it at once.  A value may stand in several places. */
wb__bson *wb__bson_document(wb__bson_room *r);
wb__bson *wb__bson_list(wb__bson_room *r);
void wb__bson_put(wb__bson_room *r, wb__bson *document, const char *name, wb__bson *value);
void wb__bson_push(wb__bson_room *r, wb__bson *list, wb__bson *value);

int64_t wb__bson_size(const wb__bson *value);
int64_t wb__bson_count(const wb__bson *list);
/* A document of at most WB__BSON_MOST bytes. */
int wb__bson_write(const wb__bson *document, wb__writer *w);

bool wb__is_utf8(const char *text);

#endif
