/* The wire format of protobuf (protobuf.dev/programming-guides/encoding): a reader that stays in
 * the file's bytes, and a writer into a buffer that grows.
 *
 * A message is a list of fields.  A field is a varint with its number and kind, then its value.
 * Reading checks every length against the end of the message that has it.  A repeated field of
 * numbers may be packed into one value or not; the reader accepts both. */
#ifndef WB__PROTOBUF_H
#define WB__PROTOBUF_H

#include "base/base.h"

/* How a value is written.  The kinds 3 and 4, groups, are refused. */
typedef enum {
    WB__WIRE_VARINT = 0, WB__WIRE_FIXED64 = 1, WB__WIRE_BYTES = 2, WB__WIRE_FIXED32 = 5
} wb__wire_kind;

/* ---- reading --------------------------------------------------------------------------------- */

/* The file that is read, for messages: path and first byte. */
typedef struct { const char *path; const uint8_t *data; } wb__wire_file;

/* The rest of a message or of a packed list: from the next byte that is read to the end. */
typedef struct {
    const wb__wire_file *file;          /* NULL: a failure sets `status` alone, and no error */
    const uint8_t *at, *end;
    int status;                         /* 0, or the code of the first failure */
} wb__wire;

typedef struct {
    uint32_t number;
    wb__wire_kind kind;
    uint64_t value;                     /* value of a varint, or the bits of a fixed number */
    const uint8_t *at;                  /* where the field begins */
    const uint8_t *bytes;               /* the value of a text, bytes or a message: `n` bytes */
    size_t n;
} wb__wire_field;

/* A text in the file, which no 0 ends. */
typedef struct { const char *at; size_t n; } wb__span;

static inline wb__wire wb__wire_of(const wb__wire_file *file, const void *data, size_t n)
{
    return (wb__wire){file, data, n ? (const uint8_t *)data + n : data, 0};
}

/* Sets *f to the next field.  False: the message ends, or status is set. */
bool wb__wire_next(wb__wire *w, wb__wire_field *f);

/* These functions set the value from a field of one kind.  False: the field has another kind, and
 * status is set. */
bool wb__wire_int(wb__wire *w, const wb__wire_field *f, int64_t *value);
bool wb__wire_float(wb__wire *w, const wb__wire_field *f, float *value);
bool wb__wire_bytes(wb__wire *w, const wb__wire_field *f, wb__span *value);
bool wb__wire_text(wb__wire *w, const wb__wire_field *f, wb__span *value);  /* without zero bytes */
bool wb__wire_message(wb__wire *w, const wb__wire_field *f, wb__wire *inside);

/* Functions for the numbers of a repeated field, packed or a single one: wb__wire_list begins to
 * read them, wb__wire_number reads the next one, and wb__wire_count counts them without
 * checking. */
bool wb__wire_list(wb__wire *w, const wb__wire_field *f, wb__wire_kind kind, wb__wire *list);
bool wb__wire_number(wb__wire *list, wb__wire_kind kind, uint64_t *value);
int64_t wb__wire_count(const wb__wire *list, wb__wire_kind kind);

/* Sets the error WB_ERROR_FORMAT with a message such as "path: byte 16: reason", and w->status.
 * Returns the code. */
int wb__wire_fail(wb__wire *w, const uint8_t *at, const char *format, ...) WB__PRINTF(3, 4);

/* ---- writing --------------------------------------------------------------------------------- */

/* A message that is being written; initialise it with {0}.  `failed` means that memory is short;
 * then nothing more is added. */
typedef struct { uint8_t *data; size_t n, capacity; bool failed; } wb__wire_out;

void wb__wire_put_int(wb__wire_out *o, uint32_t number, int64_t value);
void wb__wire_put_float(wb__wire_out *o, uint32_t number, float value);
/* Adds the bits of a number of kind WB__WIRE_FIXED32 or WB__WIRE_FIXED64. */
void wb__wire_put_fixed(wb__wire_out *o, uint32_t number, wb__wire_kind kind, uint64_t bits);
void wb__wire_put_bytes(wb__wire_out *o, uint32_t number, const void *data, size_t n);
void wb__wire_put_text(wb__wire_out *o, uint32_t number, const char *text);
/* Adds the tag and length of a value of n bytes, which wb__wire_put_raw adds, or the file
 * elsewhere. */
void wb__wire_put_length(wb__wire_out *o, uint32_t number, uint64_t n);
void wb__wire_put_raw(wb__wire_out *o, const void *data, size_t n);
/* wb__wire_put_ints and wb__wire_put_floats add packed lists. */
void wb__wire_put_ints(wb__wire_out *o, uint32_t number, int n, const int64_t *values);
void wb__wire_put_floats(wb__wire_out *o, uint32_t number, int n, const float *values);
/* wb__wire_begin begins a field whose value is the message that is put up to wb__wire_end, which
 * gets the result of wb__wire_begin. */
size_t wb__wire_begin(wb__wire_out *o, uint32_t number);
void wb__wire_end(wb__wire_out *o, size_t begun);
void wb__wire_free(wb__wire_out *o);

#endif
