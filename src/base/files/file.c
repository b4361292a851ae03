/* Reading files, plain or gzip, from the beginning as far as the caller asks.  Writing is in
 * write.c. */
#include "base/files/file.h"

#include "base/files/file_calls.h"
#include "base/files/packed.h"
#include "base/os.h"

#include <stdio.h>

enum { READER_BUFFER = 1 << 16, FIRST_CAPACITY = 1 << 16 };

struct wb__reader {
    char *path;
    int file;                   /* number of the open file */
    bool ended;                 /* no bytes are left */
    wb__unpacker *gzip;         /* NULL: a plain file */
    char *block;            /* contents read so far; one byte more is allocated, for a final zero */
    int64_t n, capacity, size;  /* size: size of a plain file; -1: unknown */
    size_t from, to;            /* the unread part of `buffer` */
    unsigned char buffer[READER_BUFFER];
};

static _Atomic int64_t unpack_limit = (int64_t)4 << 30, pipe_limit = WB__FILE_MOST;

void wb_set_unpack_limit(int64_t bytes) { unpack_limit = WB__MAX(bytes, 0); }
int64_t wb__unpack_limit(void) { return unpack_limit; }
void wb__pipe_limit(int64_t bytes) { pipe_limit = bytes; }

/* ---- failures for tests ---------------------------------------------------------------------- */

static _Atomic int64_t reader_calls, reader_fail_at;

void wb__io_fail_at(int64_t n)
{
    reader_calls = 0;
    reader_fail_at = n;
}

int64_t wb__io_count(void) { return reader_calls; }

bool wb__io_must_fail(void)
{
    int64_t n = ++reader_calls;
    if (n != reader_fail_at) return false;
    wb__os_set_error(WB__OS_BROKEN);
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int reader_fail(const wb__reader *r, const char *format, ...) WB__PRINTF(2, 3);
static int reader_fail(const wb__reader *r, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld%s: %s", r->path, (long long)r->n,
                    r->gzip ? " of the decompressed contents" : "", reason);
}

/* Reads more bytes of the file into the buffer; at the end of the file, none. */
static int reader_read_more(wb__reader *r)
{
    if (r->from == r->to) r->from = r->to = 0;
    const int64_t got =
        wb__io_must_fail() ? -1 : wb__os_read(r->file, r->buffer + r->to, READER_BUFFER - r->to);
    if (got >= 0) return r->to += (size_t)got, 0;
    return wb__fail(WB_ERROR_FILE, "%s: byte %lld: cannot be read: %s", r->path, (long long)r->n,
                    wb__os_reason());
}

/* Detects gzip by the first two bytes, 1f 8b, and prepares decompression.  Fails if a plain file is
 * too large. */
static int reader_detect_gzip(wb__reader *r)
{
    for (size_t before = 1; r->to < 2 && before != r->to;) {
        before = r->to;
        int status = reader_read_more(r);
        if (status) return status;
    }
    if (r->to < 2 || r->buffer[0] != 0x1f || r->buffer[1] != 0x8b) {
        if (r->size <= WB__FILE_MOST) return 0;
        return reader_fail(r, "%lld bytes; the limit is 4 GiB", (long long)r->size);
    }
    r->gzip = wb__unpacker_open(r->path);
    if (!r->gzip) return wb_error_code();
    r->size = -1;
    return 0;
}

static int reader_open_file(const char *path, wb__os_about *about)
{
    int file = wb__io_must_fail() ? -1 : wb__os_open(path, WB__OS_READ);
    if (file >= 0 && wb__os_look_at(file, about) && about->kind == WB__OS_FOLDER) {
        wb__os_close(file);
        file = -1;
        wb__os_set_error(WB__OS_IS_FOLDER);
    }
    if (file < 0)
        wb__fail(WB_ERROR_FILE, "%s: cannot be opened: %s", *path ? path : "the path \"\"",
                 wb__os_reason());
    return file;
}

wb__reader *wb__reader_open(const char *path)
{
    wb__os_about about = {.kind = WB__OS_OTHER};
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "the path of a file to read is NULL");
    wb__reader *r = wb__alloc(sizeof *r);
    if (!r) return NULL;
    memset(r, 0, offsetof(wb__reader, buffer));
    r->path = wb__strdup(path);
    r->file = r->path ? reader_open_file(path, &about) : -1;
    r->size = about.kind == WB__OS_PLAIN ? about.bytes : -1;
    if (r->file >= 0 && reader_detect_gzip(r) == 0) return r;
    wb__reader_close(r);
    return NULL;
}

void wb__reader_close(wb__reader *r)
{
    if (!r) return;
    wb__unpacker_close(r->gzip);
    if (r->file >= 0) wb__os_close(r->file);
    wb__free(r->block);
    wb__free(r->path);
    wb__free(r);
}

bool wb__reader_unpacks(const wb__reader *r) { return r->gzip; }

/* ---- contents -------------------------------------------------------------------------------- */

/* Moves to the next gzip stream of the file, after the end of one; if there is none, sets r->ended.
 * Skips zeros, which are padding. */
static int next_stream(wb__reader *r)
{
    for (;;) {
        int status = r->from == r->to ? reader_read_more(r) : 0;
        if (status) return status;
        r->ended = r->from == r->to;
        if (r->ended || (r->buffer[r->from] == 0x1f && wb__unpacker_next(r->gzip))) return 0;
        if (r->buffer[r->from++] != 0)
            return reader_fail(r, "something that is not gzip follows the compressed data");
    }
}

static int reader_unpack(wb__reader *r, void *to, int64_t n, int64_t *got)
{
    wb__unpacking u = {.from = r->buffer + r->from, .left = r->to - r->from, .to = to,
                       .room = (size_t)n};
    const wb__unpack_outcome outcome = wb__unpack(r->gzip, &u);
    r->from = r->to - u.left;
    r->n += *got = n - (int64_t)u.room;
    if (outcome == WB__UNPACK_END) return next_stream(r);
    if (outcome == WB__UNPACK_MORE) return 0;
    if (outcome == WB__UNPACK_MEMORY)
        return wb__fail(WB_ERROR_MEMORY, "%s: no memory to decompress it", r->path);
    return reader_fail(r, "the compressed data are damaged: %s", u.why);
}

/* Reads at most n bytes and adds their number to r->n.  May read none although the file has
 * more. */
static int reader_read_some(wb__reader *r, void *to, int64_t n, int64_t *got)
{
    *got = 0;
    int status = r->from == r->to ? reader_read_more(r) : 0;
    if (status) return status;
    if (r->gzip && r->from < r->to) return reader_unpack(r, to, n, got);
    if (r->gzip) return reader_fail(r, "the compressed data end too early");
    *got = WB__MIN(n, (int64_t)(r->to - r->from));
    memcpy(to, r->buffer + r->from, (size_t)*got);
    r->from += (size_t)*got;
    r->n += *got;
    r->ended = *got == 0;
    return 0;
}

/* Makes room for at least one more byte in the block, but for at most `most` bytes in all. */
static int reader_grow(wb__reader *r, int64_t most)
{
    if (r->n < r->capacity) return 0;
    const int64_t first = r->size > 0 ? r->size + 1 : FIRST_CAPACITY;
    const int64_t capacity = WB__MIN(most, WB__MAX(2 * r->capacity, first));
    char *larger = wb__realloc(r->block, (size_t)capacity + 1);
    if (!larger) return WB_ERROR_MEMORY;
    r->block = larger;
    r->capacity = capacity;
    return 0;
}

int wb__reader_fill(wb__reader *r, int64_t n)
{
    const int64_t limit = r->gzip ? unpack_limit : pipe_limit;
    while (!r->ended && r->n < n) {
        int64_t got;
        int status = reader_grow(r, WB__MIN(n - 1, limit) + 1);
        if (!status) status = reader_read_some(r, r->block + r->n, r->capacity - r->n, &got);
        if (status) return status;
        if (r->n <= limit) continue;
        return r->gzip ? reader_fail(r, "more than %lld bytes when decompressed: the limit of "
                                     "wb_set_unpack_limit", (long long)limit)
                       : reader_fail(r, "more than %lld bytes: the limit of a pipe or a device",
                                     (long long)limit);
    }
    return 0;
}

int wb__reader_at_end(wb__reader *r, bool *ended)
{
    int status = 0;
    char more;
    int64_t got = 0;
    while (!status && !r->ended && !got) status = reader_read_some(r, &more, 1, &got);
    r->n -= got;
    *ended = !got;
    return status;
}

const char *wb__reader_contents(const wb__reader *r, int64_t *bytes)
{
    *bytes = r->n;
    return r->block;
}

char *wb__reader_take(wb__reader *r)
{
    const bool fits = r->capacity == r->n && r->block;
    char *block = fits ? r->block : wb__realloc(r->block, (size_t)r->n + 1);
    if (block) r->block = NULL, block[r->n] = 0;
    wb__reader_close(r);
    return block;
}

char *wb__file_read(const char *path, int64_t *bytes)
{
    wb__reader *r = wb__reader_open(path);
    if (r && !wb__reader_fill(r, INT64_MAX)) {
        *bytes = r->n;
        return wb__reader_take(r);
    }
    wb__reader_close(r);
    return NULL;
}
