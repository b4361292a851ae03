/* BSON files as BSON.jl writes them, looked at where they lie: a value is a pointer into the
 * mapping, nothing is copied and nothing is built.  The bytes are checked by libbson, step by step
 * as they are walked over.
 *
 * What goes wrong (bytes that are no BSON, references to nothing, a file that leads in circles)
 * sets the error and stays in `status`: from then on every walk is over and every value is absent,
 * so that readers look once, at the end.  Next: flux/value.h, Julia's values in such files. */
#ifndef WB__BSON_H
#define WB__BSON_H

#include "base/map.h"

/* Kinds are BSON's own type bytes. */
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
    const uint8_t *at; /* a document from its length on; a string's or a binary's contents */
    uint32_t bytes;
    uint8_t kind;
    union { double real; int64_t integer; };    /* integers of both widths, and bool */
} wb__bson;

typedef struct {
    const wb__mapping *map;
    wb__bson root, refs;        /* the document, and its _backrefs */
    uint32_t *ref_at;           /* where each of those begins, in bytes from refs.at */
    int n_refs;
    int64_t steps; /* elements that may still be walked over: honest files need few a byte */
    int64_t room;               /* bytes that may still be read anew through references */
    int status;
} wb__bson_file;

/* The mapping must outlive it.  Without libbson: the error says how to get it. */
int wb__bson_open(wb__bson_file *f, const wb__mapping *m);
void wb__bson_close(wb__bson_file *f);

/* Elements in order; of an array too, whose keys are its readers' own affair.
 *     for (wb__bson_walk w = wb__bson_walk_of(doc); wb__bson_next(f, &w);) use(w.key, w.value); */
typedef struct {
    wb__bson of, value;
    const char *key;
    uint32_t next;
} wb__bson_walk;
wb__bson_walk wb__bson_walk_of(wb__bson doc);
bool wb__bson_next(wb__bson_file *f, wb__bson_walk *w);

wb__bson wb__bson_get(wb__bson_file *f, wb__bson doc, const char *key);
wb__bson wb__bson_at(wb__bson_file *f, wb__bson doc, int i);
int wb__bson_count(wb__bson_file *f, wb__bson doc);
wb__bson wb__bson_ref(wb__bson_file *f, int64_t k);     /* the k-th of _backrefs, from 1 */

bool wb__bson_says(wb__bson v, const char *text);       /* a string with just these characters */
bool wb__bson_number(wb__bson v, double *out);
bool wb__bson_integer(wb__bson v, int64_t *out);
/* A string for people and for names: cut at `size`, what is no printable UTF-8 replaced by '?'. */
void wb__bson_text(wb__bson v, char *out, size_t size);

/* Takes n bytes of `room`: false, with the error set, when the file refers to itself more often
 * than its size warrants. */
bool wb__bson_spend(wb__bson_file *f, int64_t n);
/* "path: byte 16: reason", into the error and `status`; at NULL: the whole file's. */
int wb__bson_fail(wb__bson_file *f, const void *at, const char *format, ...) WB__PRINTF(3, 4);

#endif
