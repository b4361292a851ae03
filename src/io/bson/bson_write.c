/* Makes BSON values in an arena, and writes them as a stream. */
#include "io/bson/bson_write.h"

#include "engine/evaluate.h"
#include "io/model/transpose.h"

#include <stdio.h>
#include <string.h>

enum { BSON_BLOCK = 32768, NAME_ROOM = 24, PART = 1 << 20 };

/* BSON's type bytes. */
typedef enum {
    BSON_REAL = 1, BSON_TEXT = 2, DOCUMENT = 3, BSON_LIST = 4, BSON_BYTES = 5, BOOL = 8,
    BSON_NOTHING = 10, INT = 18
} bson_type;

typedef struct bson_element bson_element;
/* name: NULL in a list */
struct bson_element { const char *name; wb__doc *value; bson_element *next; };

struct wb__doc {
    bson_type type;
    wb__doc_order order;
    int64_t size;               /* bytes of the value in the file, without type and name */
    int64_t n;                  /* bytes of a text or binary; else number of elements */
    union {
        bool truth;
        int64_t integer;
        double real;
        /* contents of a text or binary; NULL: the elements of `x`, or zeros if `x` is NULL */
        const void *bytes;
        struct { bson_element *first, *last; } elements;
    } as;
    wb_tensor *x;                       /* the tensor whose elements are the bytes, or NULL */
};

void *wb__doc_memory(wb__doc_arena *r, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (r->failed) return NULL;
    if (bytes > r->left) {
        size_t capacity = WB__MAX(bytes, (size_t)BSON_BLOCK);
        void **block = wb__alloc(16 + capacity);
        if (!block) {
            r->failed = true;
            return NULL;
        }
        *block = r->blocks;
        r->blocks = block;
        r->at = (char *)block + 16;
        r->left = capacity;
    }
    void *at = r->at;
    r->at += bytes;
    r->left -= bytes;
    return at;
}

void wb__doc_drop(wb__doc_arena *r)
{
    for (void *block = r->blocks, *next; block; block = next) {
        next = *(void **)block;
        wb__free(block);
    }
    *r = (wb__doc_arena){0};
}

static wb__doc *bson_new_value(wb__doc_arena *r, bson_type type, int64_t size)
{
    wb__doc *v = wb__doc_memory(r, sizeof *v);
    if (v) *v = (wb__doc){.type = type, .size = size};
    return v;
}

wb__doc *wb__doc_null(wb__doc_arena *r) { return bson_new_value(r, BSON_NOTHING, 0); }

wb__doc *wb__doc_bool(wb__doc_arena *r, bool value)
{
    wb__doc *v = bson_new_value(r, BOOL, 1);
    if (v) v->as.truth = value;
    return v;
}

wb__doc *wb__doc_int(wb__doc_arena *r, int64_t value)
{
    wb__doc *v = bson_new_value(r, INT, 8);
    if (v) v->as.integer = value;
    return v;
}

wb__doc *wb__doc_real(wb__doc_arena *r, double value)
{
    wb__doc *v = bson_new_value(r, BSON_REAL, 8);
    if (v) v->as.real = value;
    return v;
}

static const void *bson_copy(wb__doc_arena *r, const void *bytes, size_t n)
{
    void *to = wb__doc_memory(r, n ? n : 1);
    return to ? memcpy(to, bytes, n) : NULL;
}

wb__doc *wb__doc_text(wb__doc_arena *r, const char *text)
{
    int64_t n = (int64_t)strlen(text) + 1;
    wb__doc *v = bson_new_value(r, BSON_TEXT, 4 + n);
    if (!v) return NULL;
    v->n = n;
    v->as.bytes = bson_copy(r, text, (size_t)n);
    return v;
}

wb__doc *wb__doc_zeros(wb__doc_arena *r, int64_t n)
{
    wb__doc *v = bson_new_value(r, BSON_BYTES, 4 + 1 + n);
    if (v) v->n = n;
    return v;
}

wb__doc *wb__doc_bytes(wb__doc_arena *r, const void *bytes, int64_t n)
{
    wb__doc *v = wb__doc_zeros(r, n);
    if (v) v->as.bytes = bson_copy(r, bytes, (size_t)n);
    return v;
}

wb__doc *wb__doc_tensor(wb__doc_arena *r, wb_tensor *x, wb__doc_order order)
{
    wb__doc *v = wb__doc_zeros(r, x->size * (int64_t)wb__dtype_size((wb_dtype)x->dtype));
    if (!v) return NULL;
    v->x = x;
    v->order = order;
    return v;
}

wb__doc *wb__doc_document(wb__doc_arena *r) { return bson_new_value(r, DOCUMENT, 4 + 1); }
wb__doc *wb__doc_list(wb__doc_arena *r) { return bson_new_value(r, BSON_LIST, 4 + 1); }

static void bson_append(wb__doc_arena *r, wb__doc *to, const char *name, size_t length,
                        wb__doc *value)
{
    bson_element *e = to && value ? wb__doc_memory(r, sizeof *e) : NULL;
    if (!e) {
        r->failed = true;
        return;
    }
    *e = (bson_element){name, value, NULL};
    if (to->as.elements.last) to->as.elements.last->next = e;
    else to->as.elements.first = e;
    to->as.elements.last = e;
    to->n++;
    to->size += 1 + (int64_t)length + 1 + value->size;
}

void wb__doc_put(wb__doc_arena *r, wb__doc *document, const char *name, wb__doc *value)
{
    size_t length = strlen(name);
    const char *mine = bson_copy(r, name, length + 1);
    bson_append(r, mine ? document : NULL, mine, length, value);
}

void wb__doc_push(wb__doc_arena *r, wb__doc *list, wb__doc *value)
{
    char name[NAME_ROOM];
    int length = snprintf(name, sizeof name, "%lld", list ? (long long)list->n : 0);
    bson_append(r, list, NULL, (size_t)length, value);
}

int64_t wb__doc_size(const wb__doc *value) { return value->size; }
int64_t wb__doc_count(const wb__doc *list) { return list ? list->n : 0; }

typedef struct { wb__writer *w; size_t each; } bson_putting;

static int bson_write_part(const void *part, int64_t n, void *ctx)
{
    const bson_putting *p = ctx;
    return wb__writer_put(p->w, part, n * (int64_t)p->each);
}

/* The context of bson_write_reordered.  Values that come in several parts are collected in `copy`,
 * whose first `done` bytes are filled, and then reordered. */
typedef struct {
    wb__writer *w;              /* the file */
    const wb__doc *value;
    size_t each;                /* bytes of an element */
    char *copy;
    int64_t done;
} reordering;

/* Writes a tensor [a, b, c] in the order of the tensor [c, b, a] with its axes reversed. */
static int bson_write_reversed(const reordering *o, const char *from)
{
    const wb_tensor *x = o->value->x;
    const int64_t bytes = x->size * (int64_t)o->each;
    char *to = wb__alloc_aligned((size_t)bytes + 1);
    if (!to) return WB_ERROR_MEMORY;
    wb__to_rows(to, from, o->each, 3, (int64_t[]){x->dims[2], x->dims[1], x->dims[0]});
    const int status = wb__writer_put(o->w, to, bytes);
    wb__free(to);
    return status;
}

static int bson_write_columns(const reordering *o, const char *from)
{
    const wb_tensor *x = o->value->x;
    const int64_t rows = x->dims[0], columns = x->dims[1];
    if (x->ndim == 3) return bson_write_reversed(o, from);
    const int64_t most = WB__MIN(columns, WB__MAX(1, PART / (rows * (int64_t)o->each)));
    char *to = wb__alloc((size_t)(most * rows) * o->each);
    int status = to ? 0 : WB_ERROR_MEMORY;
    for (int64_t i = 0; !status && i < columns; i += most) {
        const int64_t n = WB__MIN(most, columns - i);
        wb__transpose(to, from + (size_t)i * o->each, o->each, rows, n, columns);
        status = wb__writer_put(o->w, to, n * rows * (int64_t)o->each);
    }
    wb__free(to);
    return status;
}

/* Writes kernels flipped along all their axes: the elements of each in reverse order. */
static int bson_write_flipped(const reordering *o, const char *from)
{
    const wb_tensor *x = o->value->x;
    int64_t kernel = 1;
    for (int i = 2; i < x->ndim; i++) kernel *= x->dims[i];
    char *to = wb__alloc((size_t)kernel * o->each);
    int status = to ? 0 : WB_ERROR_MEMORY;
    for (int64_t first = 0; !status && first < x->size; first += kernel) {
        for (int64_t i = 0; i < kernel; i++)
            memcpy(to + (size_t)i * o->each, from + (size_t)(first + kernel - 1 - i) * o->each,
                   o->each);
        status = wb__writer_put(o->w, to, kernel * (int64_t)o->each);
    }
    wb__free(to);
    return status;
}

static int bson_write_reordered(const void *part, int64_t n, void *ctx)
{
    reordering *o = ctx;
    const int64_t size = o->value->x->size;
    const char *from = part;
    if (n < size) {
        if (!o->copy && !(o->copy = wb__alloc_aligned((size_t)size * o->each)))
            return WB_ERROR_MEMORY;
        memcpy(o->copy + (size_t)o->done * o->each, part, (size_t)n * o->each);
        o->done += n;
        if (o->done < size) return 0;
        from = o->copy;
    }
    if (o->value->order == WB__DOC_COLUMNS) return bson_write_columns(o, from);
    return bson_write_flipped(o, from);
}

static int bson_write_tensor(wb__writer *w, const wb__doc *v)
{
    const size_t each = wb__dtype_size((wb_dtype)v->x->dtype);
    if (v->order == WB__DOC_ROWS)
        return wb__read_in_parts(v->x, bson_write_part, &(bson_putting){w, each});
    reordering o = {.w = w, .value = v, .each = each};
    int status = wb__read_in_parts(v->x, bson_write_reordered, &o);
    wb__free(o.copy);
    return status;
}

static int bson_write_zeros(wb__writer *w, int64_t n)
{
    static const char zeros[4096];
    int status = 0;
    for (; !status && n > 0; n -= (int64_t)sizeof zeros)
        status = wb__writer_put(w, zeros, WB__MIN(n, (int64_t)sizeof zeros));
    return status;
}

static int bson_write_little(wb__writer *w, uint64_t value, int n)
{
    uint8_t bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    return wb__writer_put(w, bytes, n);
}

static int bson_write_bytes(wb__writer *w, const wb__doc *v)
{
    int status = bson_write_little(w, (uint64_t)v->n, 4);
    if (!status && v->type == BSON_BYTES) status = bson_write_little(w, 0, 1);
    if (status || !v->n) return status;
    if (v->as.bytes) return wb__writer_put(w, v->as.bytes, v->n);
    if (!v->x) return bson_write_zeros(w, v->n);
    return bson_write_tensor(w, v);
}

static int bson_write_value(wb__writer *w, const wb__doc *v);

static int bson_write_elements(wb__writer *w, const wb__doc *v)
{
    int64_t i = 0;
    int status = bson_write_little(w, (uint64_t)v->size, 4);
    for (const bson_element *e = v->as.elements.first; !status && e; e = e->next, i++) {
        char number[NAME_ROOM];
        const char *name = e->name ? e->name : number;
        if (!e->name) snprintf(number, sizeof number, "%lld", (long long)i);
        status = bson_write_little(w, (uint64_t)e->value->type, 1);
        if (!status) status = wb__writer_put(w, name, (int64_t)strlen(name) + 1);
        if (!status) status = bson_write_value(w, e->value);
    }
    return status ? status : bson_write_little(w, 0, 1);
}

static int bson_write_value(wb__writer *w, const wb__doc *v)
{
    uint64_t bits;
    switch (v->type) {
    case BSON_NOTHING: return 0;
    case BOOL: return bson_write_little(w, v->as.truth, 1);
    case INT: return bson_write_little(w, (uint64_t)v->as.integer, 8);
    case BSON_REAL: memcpy(&bits, &v->as.real, sizeof bits); return bson_write_little(w, bits, 8);
    case BSON_TEXT: case BSON_BYTES: return bson_write_bytes(w, v);
    default: return bson_write_elements(w, v);
    }
}

int wb__doc_write(const wb__doc *document,
                  wb__writer *w) { return bson_write_elements(w, document); }
