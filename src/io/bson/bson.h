/* BSON files as BSON.jl writes them, read in place: a value is a pointer into the mapping; nothing
 * is copied.  libbson checks the bytes during each walk.
 *
 * Any failure (bytes that are not BSON, invalid references, cycles) sets the error and `status`.
 * After a failure all walks end and all values are absent, so readers check `status` once, at the
 * end.  flux/value.h reads Julia's values from such files. */
#ifndef WB__BSON_H
#define WB__BSON_H

#include "base/map.h"

/* Kinds of values: BSON's type bytes. */
enum {
    WB__BSON_ABSENT = 0,
    WB__BSON_DOUBLE = 1,
    WB__BSON_STRING = 2,
    WB__BSON_DOCUMENT = 3,
    WB__BSON_ARRAY = 4,
    WB__BSON_BINARY = 5,
    WB__BSON_BOOL = 8,
    WB__BSON_NULL = 10,
    WB__BSON_INT32 = 16,
    WB__BSON_INT64 = 18
};

typedef struct {
    const uint8_t *at;      /* the bytes of a document, or the contents of a string or binary */
    uint32_t bytes;
    uint8_t kind;
    union { double real; int64_t integer; };    /* `integer` also has bools */
} wb__bson;

typedef struct {
    const wb__mapping *map;
    wb__bson root, refs;        /* the document; its list "_backrefs" */
    uint32_t *ref_at;           /* offset, from refs.at, of each entry of refs */
    int n_refs;
    int64_t steps;              /* number of elements that may still be visited */
    int64_t unfold_left;        /* number of bytes that references may still read again */
    int status;
} wb__bson_file;

/* Opens a mapped file, which must outlive *f.  Returns 0 or an error code.  Without libbson it
 * always fails.  Call wb__bson_close in all cases. */
int wb__bson_open(wb__bson_file *f, const wb__mapping *m);
void wb__bson_close(wb__bson_file *f);

/* An iterator over the elements of a document or array, in order:
 *     for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);) use(w.key, w.value); */
typedef struct {
    wb__bson of, value;         /* the document; the element that wb__bson_next has found */
    const char *key;
    uint32_t next;              /* offset of the next element in `of` */
} wb__bson_walk;
wb__bson_walk wb__bson_walk_of(wb__bson doc);
bool wb__bson_next(wb__bson_file *f, wb__bson_walk *w);

wb__bson wb__bson_get(wb__bson_file *f, wb__bson doc, const char *key);
wb__bson wb__bson_at(wb__bson_file *f, wb__bson doc, int i);
int wb__bson_count(wb__bson_file *f, wb__bson doc);
wb__bson wb__bson_ref(wb__bson_file *f, int64_t k);     /* entry k of _backrefs, from 1 */

bool wb__bson_equals(wb__bson v, const char *text);     /* whether v is this string */
bool wb__bson_number(wb__bson v, double *out);
bool wb__bson_integer(wb__bson v, int64_t *out);
/* Copies a string to `out` for messages and names, cut to `size` bytes with the final 0.  Control
 * characters become '?'.  In a string that is not UTF-8 each byte above 127 becomes '?' too.  A
 * value of another kind gives "". */
void wb__bson_text(wb__bson v, char *out, size_t size);

/* Subtracts n from f->unfold_left.  Returns false, with the error set, if the result is negative or
 * a failure has occurred before. */
bool wb__bson_spend(wb__bson_file *f, int64_t n);
/* Sets f->status and the error, such as "path: byte 16: reason", unless there was a failure
 * before.  Returns f->status.  `at` is the address of the byte; NULL: the message names no byte. */
int wb__bson_fail(wb__bson_file *f, const void *at, const char *format, ...) WB__PRINTF(3, 4);

#endif
