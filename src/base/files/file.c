/* Reading a whole file, plain or gzip.  Writing is write.c. */
#include "base/files/file.h"

#include "base/files/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { FIRST_ROOM = 1 << 16, MOST_AT_ONCE = 1 << 30 };

static _Atomic int64_t unpack_limit = (int64_t)4 << 30;

void wb_set_unpack_limit(int64_t bytes) { unpack_limit = WB__MAX(bytes, 0); }
int64_t wb__unpack_limit(void) { return unpack_limit; }

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

/* ---- growing contents ------------------------------------------------------------------------ */

/* Contents as they come, with room for more behind them. */
typedef struct { const char *path; char *bytes; int64_t n, room; bool unpacked; } contents;

static int fail(const contents *c, const char *format, ...) WB__PRINTF(2, 3);
static int fail(const contents *c, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld%s: %s", c->path, (long long)c->n,
                    c->unpacked ? " of the decompressed contents" : "", reason);
}

/* Room for one byte more at least. */
static int grow(contents *c, int64_t first)
{
    if (c->n < c->room) return 0;
    const int64_t room = c->room ? 2 * c->room : first;
    char *larger = wb__realloc(c->bytes, (size_t)room);
    if (!larger) return WB_ERROR_MEMORY;
    c->bytes = larger;
    c->room = room;
    return 0;
}

/* ---- a plain file ---------------------------------------------------------------------------- */

static int open_file(const char *path, struct stat *about)
{
    int file = wb__io_must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, about) == 0 && S_ISDIR(about->st_mode)) {
        close(file);
        file = -1;
        errno = EISDIR;
    }
    if (file < 0) wb__fail(WB_ERROR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
    return file;
}

static bool is_gzip(const contents *c)
{
    return c->n >= 2 && (unsigned char)c->bytes[0] == 0x1f && (unsigned char)c->bytes[1] == 0x8b;
}

/* All that the system gives.  `size`: of a plain file, -1: not known. */
static int read_raw(contents *c, int file, int64_t size)
{
    for (;;) {
        int status = grow(c, size > 0 ? WB__MIN(size + 1, WB__FILE_MOST) : FIRST_ROOM);
        if (status) return status;
        const size_t most = (size_t)WB__MIN(c->room - c->n, MOST_AT_ONCE);
        ssize_t got = wb__io_must_fail() ? -1 : read(file, c->bytes + c->n, most);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return wb__fail(WB_ERROR_FILE, "%s: byte %lld: cannot be read: %s", c->path,
                            (long long)c->n, strerror(errno));
        if (got == 0) return 0;
        c->n += got;
        if (size > WB__FILE_MOST && c->n > 1 && !is_gzip(c))
            return fail(&(contents){.path = c->path}, "%lld bytes; the limit is 4 GiB",
                        (long long)size);
        if (size < 0 && c->n > unpack_limit)            /* a device may go on for ever */
            return fail(c, "more than %lld bytes, and it is no plain file, whose size is known: "
                        "the limit of wb_set_unpack_limit", (long long)unpack_limit);
    }
}

/* ---- gzip ------------------------------------------------------------------------------------ */

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

/* Compressed bytes for zlib, which counts them in 32 bits; false: there are no more. */
static bool feed(z_stream *z, const contents *raw, int64_t *given)
{
    if (z->avail_in) return true;
    z->next_in = (unsigned char *)raw->bytes + *given;
    z->avail_in = (uInt)WB__MIN(raw->n - *given, MOST_AT_ONCE);
    *given += z->avail_in;
    return z->avail_in > 0;
}

/* After one compressed stream: another may follow, or zeros that pad the file. */
static int next_stream(const contents *c, z_stream *z, const contents *raw, int64_t *given,
                       bool *ended)
{
    while (feed(z, raw, given) && !*z->next_in) z->next_in++, z->avail_in--;
    *ended = !z->avail_in;
    if (*ended || (*z->next_in == 0x1f && inflateReset(z) == Z_OK)) return 0;
    return fail(c, "something that is not gzip follows the compressed data");
}

static int inflate_all(contents *c, z_stream *z, const contents *raw)
{
    int64_t given = 0;
    for (bool ended = false; !ended;) {
        int status = grow(c, FIRST_ROOM);
        if (status) return status;
        if (!feed(z, raw, &given)) return fail(c, "the compressed data end too early");
        const uInt room = (uInt)WB__MIN(c->room - c->n, MOST_AT_ONCE);
        z->next_out = (unsigned char *)c->bytes + c->n;
        z->avail_out = room;
        const int outcome = inflate(z, Z_NO_FLUSH);
        c->n += room - z->avail_out;
        if (outcome == Z_MEM_ERROR)
            return wb__fail(WB_ERROR_MEMORY, "%s: no memory to decompress it", c->path);
        if (outcome != Z_OK && outcome != Z_BUF_ERROR && outcome != Z_STREAM_END)
            return fail(c, "the compressed data are damaged: %s",
                        z->msg ? z->msg : "wrong checksum");
        if (outcome == Z_STREAM_END) status = next_stream(c, z, raw, &given, &ended);
        if (status) return status;
        if (c->n > unpack_limit)
            return fail(c, "more than %lld bytes when decompressed: the limit of "
                        "wb_set_unpack_limit", (long long)unpack_limit);
    }
    return grow(c, FIRST_ROOM);
}

static int unpack(contents *c, const contents *raw)
{
    z_stream z = {.zalloc = z_allocate, .zfree = z_free};
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return wb__fail(WB_ERROR_MEMORY, "%s: no memory to decompress it", c->path);
    const int status = inflate_all(c, &z, raw);
    inflateEnd(&z);
    return status;
}

/* ---- a whole file ---------------------------------------------------------------------------- */

char *wb__file_read_all(const char *path, int64_t *bytes, bool *unpacked)
{
    struct stat about = {0};
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "a file to read has no name");
    const int file = open_file(path, &about);
    if (file < 0) return NULL;
    contents raw = {.path = path}, made = {.path = path, .unpacked = true}, *c = &raw;
    int status = read_raw(&raw, file, S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1);
    close(file);
    *unpacked = !status && is_gzip(&raw);
    if (*unpacked) {
        status = unpack(c = &made, &raw);
        wb__free(raw.bytes);
    }
    if (!status) c->bytes[*bytes = c->n] = 0;
    else wb__free(c->bytes);
    return status ? NULL : c->bytes;
}

char *wb__file_read(const char *path, int64_t *bytes)
{
    bool unpacked;
    return wb__file_read_all(path, bytes, &unpacked);
}
