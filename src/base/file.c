/* Reading a whole file, plain or gzip.  Writing is write.c. */
#include "base/file.h"

#include "base/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { BUFFER = 1 << 16 };

typedef struct {
    char *path;
    int file;
    bool gzip, ended;           /* ended: the last compressed stream */
    int64_t size;               /* of a plain file's contents; -1: not known */
    int64_t offset;
    z_stream z;
    size_t from, to;            /* what is left of the buffer: not yet given out or decompressed */
    unsigned char buffer[BUFFER];
} reader;

static _Atomic int64_t unpack_limit = (int64_t)4 << 30;

void wb_set_unpack_limit(int64_t bytes) { unpack_limit = WB__MAX(bytes, 0); }
int64_t wb__unpack_limit(void) { return unpack_limit; }

/* The error of the place in the contents that is read next. */
static int fail(const reader *r, const char *format, ...) WB__PRINTF(2, 3);
static int fail(const reader *r, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld%s: %s", r->path, (long long)r->offset,
                    r->gzip ? " of the decompressed contents" : "", reason);
}

/* ---- the system, and a test that stands in for its failing ----------------------------------- */

static _Atomic int64_t calls, fail_at;

void wb__io_fail_at(int64_t n)
{
    calls = 0;
    fail_at = n;
}

int64_t wb__io_count(void) { return calls; }

bool wb__io_must_fail(void)
{
    int64_t n = ++calls;
    if (n != fail_at) return false;
    errno = EIO;
    return true;
}

/* Bytes read, 0 at the end, -1 with the error set. */
static int64_t raw_read(reader *r, void *to, size_t n)
{
    for (;;) {
        ssize_t got = wb__io_must_fail() ? -1 : read(r->file, to, n);
        if (got >= 0) return got;
        if (errno == EINTR) continue;
        wb__fail(WB_ERROR_FILE, "%s: byte %lld: cannot be read: %s", r->path, (long long)r->offset,
                 strerror(errno));
        return -1;
    }
}

/* Fills the empty buffer.  1, 0 at the end, -1 on error. */
static int refill(reader *r)
{
    r->from = r->to = 0;
    int64_t got = raw_read(r, r->buffer, BUFFER);
    if (got > 0) r->to = (size_t)got;
    return got > 0 ? 1 : (int)got;
}

static voidpf z_allocate(voidpf opaque, uInt items, uInt size)
{
    (void)opaque;
    return wb__alloc_zero(items, size);
}

static void z_free(voidpf opaque, voidpf block)
{
    (void)opaque;
    wb__free(block);
}

/* Looks at the first bytes: 1f 8b begins gzip. */
static int look(reader *r)
{
    while (r->to < 2) {
        int64_t got = raw_read(r, r->buffer + r->to, BUFFER - r->to);
        if (got < 0) return WB_ERROR_FILE;
        if (got == 0) break;
        r->to += (size_t)got;
    }
    if (r->to < 2 || r->buffer[0] != 0x1f || r->buffer[1] != 0x8b) return 0;
    r->z.zalloc = z_allocate;
    r->z.zfree = z_free;
    if (inflateInit2(&r->z, 15 + 16) != Z_OK)
        return wb__fail(WB_ERROR_MEMORY, "%s: no memory to decompress it", r->path);
    r->gzip = true;
    r->size = -1;
    return 0;
}

static void close_reader(reader *r)
{
    if (r->gzip) inflateEnd(&r->z);
    if (r->file >= 0) close(r->file);
    wb__free(r->path);
    wb__free(r);
}

static reader *open_reader(const char *path)
{
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "a file to read has no name");
    reader *r = wb__alloc(sizeof *r);
    if (!r) return NULL;
    memset(r, 0, offsetof(reader, buffer));
    r->file = -1;
    struct stat about;
    if (!(r->path = wb__strdup(path))) goto failed;
    r->file = wb__io_must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (r->file >= 0 && fstat(r->file, &about) == 0 && S_ISDIR(about.st_mode)) {
        close(r->file);
        r->file = -1;
        errno = EISDIR;
    }
    if (r->file < 0) {
        wb__fail(WB_ERROR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
        goto failed;
    }
    r->size = S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1;
    if (look(r) == 0) return r;
failed:
    close_reader(r);
    return NULL;
}

/* ---- contents -------------------------------------------------------------------------------- */

static int64_t read_plain(reader *r, unsigned char *to, int64_t n)
{
    int64_t done = 0;
    while (done < n) {
        size_t left = (size_t)(n - done), some = WB__MIN(left, r->to - r->from);
        if (some) {
            memcpy(to + done, r->buffer + r->from, some);
            r->from += some;
        } else if (left >= BUFFER) {        /* much: past the buffer */
            int64_t got = raw_read(r, to + done, WB__MIN(left, (size_t)1 << 30));
            if (got < 0) return -1;
            if (got == 0) break;
            some = (size_t)got;
        } else {
            int more = refill(r);
            if (more < 0) return -1;
            if (more == 0) break;
        }
        done += (int64_t)some;
        r->offset += (int64_t)some;
    }
    return done;
}

/* After one compressed stream: another may follow, or zeros that pad the file; 1: go on, 0: the
 * end, -1: an error. */
static int next_stream(reader *r)
{
    for (;;) {
        if (r->from == r->to) {
            int more = refill(r);
            if (more <= 0) return more;
        }
        if (r->buffer[r->from] == 0x1f) return inflateReset(&r->z) == Z_OK ? 1 : -1;
        if (r->buffer[r->from++] != 0) {
            fail(r, "something that is not gzip follows the compressed data");
            return -1;
        }
    }
}

static int64_t read_gzip(reader *r, unsigned char *to, int64_t n)
{
    int64_t done = 0;
    while (done < n && !r->ended) {
        int more = r->from == r->to ? refill(r) : 1;
        if (more < 0) return -1;
        if (more == 0) return fail(r, "the compressed data end too early"), -1;
        r->z.next_in = r->buffer + r->from;
        r->z.avail_in = (uInt)(r->to - r->from);
        uInt room = (uInt)WB__MIN(n - done, (int64_t)1 << 30);
        r->z.next_out = to + done;
        r->z.avail_out = room;
        int outcome = inflate(&r->z, Z_NO_FLUSH);
        r->from = r->to - r->z.avail_in;
        done += room - r->z.avail_out;
        r->offset += room - r->z.avail_out;
        if (outcome == Z_STREAM_END) {
            more = next_stream(r);
            if (more < 0) return -1;
            r->ended = more == 0;
        } else if (outcome == Z_MEM_ERROR) {
            return wb__fail(WB_ERROR_MEMORY, "%s: no memory to decompress it", r->path), -1;
        } else if (outcome != Z_OK && outcome != Z_BUF_ERROR) {
            return fail(r, "the compressed data are damaged: %s",
                                   r->z.msg ? r->z.msg : "wrong checksum"),
                   -1;
        }
        if (r->offset > unpack_limit)
            return fail(r, "more than %lld bytes when decompressed: the limit of "
                                      "wb_set_unpack_limit", (long long)unpack_limit), -1;
    }
    return done;
}

char *wb__file_read(const char *path, int64_t *bytes)
{
    bool unpacked;
    return wb__file_read_all(path, bytes, &unpacked);
}

char *wb__file_read_all(const char *path, int64_t *bytes, bool *unpacked)
{
    reader *r = open_reader(path);
    if (!r) return NULL;
    *unpacked = r->gzip;
    int64_t room = r->size > 0 ? r->size + 1 : BUFFER, n = 0;
    char *text = NULL;
    if (room > WB__FILE_MOST)
        fail(r, "%lld bytes; the limit is 4 GiB", (long long)r->size);
    else text = wb__alloc((size_t)room);
    while (text) {
        unsigned char *to = (unsigned char *)text + n;
        int64_t got = r->gzip ? read_gzip(r, to, room - n) : read_plain(r, to, room - n);
        if (got >= 0 && (n += got) < room) break;
        if (got >= 0 && r->size < 0 && n > unpack_limit)    /* a device may go on for ever */
            fail(r, "more than %lld bytes, and it is no plain file, whose size is known: the limit of "
                               "wb_set_unpack_limit", (long long)unpack_limit), got = -1;
        char *larger = got < 0 ? NULL : wb__realloc(text, (size_t)(room *= 2));
        if (!larger) {
            wb__free(text);
            text = NULL;
        } else {
            text = larger;
        }
    }
    if (text) text[*bytes = n] = 0;
    close_reader(r);
    return text;
}
