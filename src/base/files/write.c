/* Writes a file to a temporary file in the same folder, which replaces the old file at the end or
 * not at all.  See file.h.
 *
 * Temporary files are PATH.0.part, PATH.1.part, ...: a writer takes the first that no process is
 * writing.  It holds a lock on this file, and the lock ends with the process.  So a file that a
 * killed process left can be distinguished from a file that is being written, and the next writer
 * of the same path removes it.  On a file system without locks every existing temporary file counts
 * as being written; after SLOTS of them, unique names are used. */
#include "base/files/file.h"

#include "base/files/file_calls.h"
#include "base/files/packed.h"
#include "base/os.h"
#include "base/parallel.h"

#include <stdatomic.h>
#include <stdio.h>

enum { WRITER_BUFFER = 1 << 16, SLOTS = 16, ATTEMPTS = 100, PIECE = 4 << 20 };

struct wb__writer {
    char *path, *temporary;     /* temporary: the file that is written; NULL: `path` is */
    int file, status;           /* status: code of the first error, or 0 */
    int64_t offset, started;    /* started: bytes that go to the disk already */
    bool summing;               /* a checksum of the bytes is computed */
    uint32_t sum;               /* CRC-32 of the bytes put since wb__writer_sum */
    size_t held;                /* number of bytes in `buffer` */
    unsigned char buffer[WRITER_BUFFER];
};

int64_t wb__writer_offset(const wb__writer *w) { return w->offset; }

static int writer_fail(wb__writer *w, const char *what)
{
    return w->status = wb__fail(WB_ERROR_FILE, "%s: byte %lld: %s: %s",
                                *w->path ? w->path : "the path \"\"", (long long)w->offset, what,
                                wb__os_reason());
}

/* Locks `file` and returns it if `path` still names it.  Otherwise, or if another process holds the
 * lock, closes it and returns -1. */
static int writer_lock_file(const char *path, int file)
{
    wb__os_about own, named;
    if (file >= 0 && wb__os_lock(file, false) && wb__os_look_at(file, &own) &&
        wb__os_look(path, false, &named) && own.device == named.device &&
        own.number == named.number)
        return file;
    if (file >= 0) wb__os_close(file);
    return -1;
}

bool wb__writer_sweep(const char *temporary)
{
    wb__os_about about;
    if (!wb__os_look(temporary, false, &about)) return wb__os_error() == WB__OS_ABSENT;
    if (about.kind != WB__OS_PLAIN) return false;
    const int file = writer_lock_file(temporary, wb__os_open(temporary, WB__OS_WRITE_PLAIN));
    if (file < 0) return false;
    const bool gone = !wb__io_must_fail() && wb__os_remove(temporary);  /* while the lock is held */
    wb__os_close(file);
    return gone;
}

/* Creates the file and locks it.  If another process removes it in between as a leftover, creates
 * it again. */
static int writer_create(const char *path)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const int file = wb__io_must_fail() ? -1 : wb__os_open(path, WB__OS_CREATE);
        if (file < 0) return -1;
        wb__os_about about;
        wb__os_lock(file, true);
        if (!wb__os_look_at(file, &about) || !about.gone) return file;
        wb__os_close(file);
        wb__os_set_error(WB__OS_TAKEN);
    }
    return -1;
}

/* Creates this writer's temporary file, with the mode of the old file or the default mode. */
static int open_temporary(wb__writer *w, const wb__os_about *old)
{
    static _Atomic unsigned serial;
    for (int slot = 0; slot < ATTEMPTS; slot++) {
        wb__free(w->temporary);
        w->temporary = slot < SLOTS ? wb__printf("%s.%d.part", w->path, slot)
                                    : wb__printf("%s.%ld-%u.part", w->path, wb__os_process(),
                                                 atomic_fetch_add(&serial, 1));
        if (!w->temporary) return WB_ERROR_MEMORY;
        w->file = writer_create(w->temporary);
        if (w->file < 0 && wb__os_error() == WB__OS_TAKEN) {
            w->file = wb__writer_sweep(w->temporary) ? writer_create(w->temporary) : -1;
            if (w->file < 0) continue;
        }
        if (w->file < 0) break;
        if (old)
            /* if the mode cannot be changed, the default mode stays */
            wb__os_set_mode(w->file, old->mode);
        return 0;
    }
    int code = writer_fail(w, "cannot be created");
    wb__free(w->temporary);
    w->temporary = NULL;
    return code;
}

static int open_target(wb__writer *w, const char *path)
{
    wb__os_about old;
    const bool link = wb__os_look(path, false, &old) && old.kind == WB__OS_LINK;
    const bool exists = wb__os_look(path, true, &old);
    if (exists && old.kind == WB__OS_FOLDER) {
        wb__os_set_error(WB__OS_IS_FOLDER);
        return writer_fail(w, "cannot be written");
    }
    if (exists && old.kind != WB__OS_PLAIN) {
        w->file = wb__io_must_fail() ? -1 : wb__os_open(path, WB__OS_WRITE);
        return w->file < 0 ? writer_fail(w, "cannot be opened") : 0;
    }
    if (exists && !link && !wb__os_may_write(path))
        /* a read-only file is not replaced, although its folder may permit that */
        return writer_fail(w, "cannot be written");
    /* a link is replaced, not followed */
    return open_temporary(w, exists && !link ? &old : NULL);
}

wb__writer *wb__writer_open(const char *path)
{
    if (!path || !*path) return wb__fail_null(WB_ERROR_ARGUMENT, "a file to write has no name");
    wb__writer *w = wb__alloc(sizeof *w);
    if (!w) return NULL;
    memset(w, 0, offsetof(wb__writer, buffer));
    w->file = -1;
    w->path = wb__strdup(path);
    if (w->path && open_target(w, path) == 0) return w;
    wb__writer_drop(w);
    return NULL;
}

void wb__writer_drop(wb__writer *w)
{
    if (!w) return;
    /* removed while this process holds the lock: afterwards another process may use the name */
    if (w->temporary) wb__os_remove(w->temporary);
    if (w->file >= 0) wb__os_close(w->file);
    wb__free(w->temporary);
    wb__free(w->path);
    wb__free(w);
}

/* Asks the system to write to the disk while more bytes are put, so that the final sync is
 * short. */
static void start_disk_write(wb__writer *w)
{
    if (!w->temporary || w->offset - w->started < PIECE) return;
    wb__os_start_writing(w->file, w->started, w->offset - w->started);
    w->started = w->offset;
}

/* Writes n bytes and returns 0 or the system's error.  Sets no error message, since it may run on
 * another thread. */
static int writer_write_bytes(wb__writer *w, const unsigned char *data, size_t n)
{
    while (n) {
        const int64_t some =
            wb__io_must_fail() ? -1 : wb__os_write(w->file, data, WB__MIN(n, (size_t)PIECE));
        if (some < 0) return wb__os_error();
        data += some;
        n -= (size_t)some;
        w->offset += some;
        start_disk_write(w);
    }
    return 0;
}

typedef struct { wb__writer *w; const unsigned char *data; size_t n; int code; } writer_piece;

/* Runs half 0, which writes the piece, or half 1, which computes the checksum of the piece. */
static void writer_run_half(void *ctx, int64_t half)
{
    writer_piece *p = ctx;
    if (half == 0) p->code = writer_write_bytes(p->w, p->data, p->n);
    else if (p->w->summing) p->w->sum = wb__crc32(p->w->sum, p->data, p->n);
}

static int writer_write_out(wb__writer *w, const unsigned char *data, size_t n, bool sum)
{
    writer_piece p = {w, data, n, 0};
    if (sum && w->summing) wb__parallel_waiting(2, writer_run_half, &p);
    else writer_run_half(&p, 0);
    wb__os_set_error(p.code);
    return p.code ? writer_fail(w, "cannot be written") : 0;
}

/* Writes the buffer.  w->offset counts its bytes already, and writer_write_out counts them again,
 * so they are subtracted first. */
static int writer_flush(wb__writer *w)
{
    w->offset -= (int64_t)w->held;
    size_t n = w->held;
    w->held = 0;
    return writer_write_out(w, w->buffer, n, false);
}

uint32_t wb__writer_sum(wb__writer *w)
{
    uint32_t sum = w->sum;
    w->summing = true;
    w->sum = 0;
    return sum;
}

bool wb__writer_patches(const wb__writer *w) { return w->temporary; }

int wb__writer_patch(wb__writer *w, int64_t offset, const void *data, int64_t n)
{
    if (w->status || writer_flush(w)) return w->status;
    if (!w->temporary || offset < 0 || n < 0 || offset > w->offset - n)
        return w->status = wb__fail(WB_ERROR_INTERNAL,
                                    "%s: bytes %lld to %lld cannot be written again", w->path,
                                    (long long)offset, (long long)(offset + n));
    const char *from = data;
    while (n) {
        const int64_t some =
            wb__io_must_fail() ? -1 : wb__os_write_at(w->file, from, (size_t)n, offset);
        if (some < 0) return writer_fail(w, "cannot be written");
        from += some;
        offset += some;
        n -= some;
    }
    return 0;
}

int wb__writer_put(wb__writer *w, const void *data, int64_t n)
{
    if (w->status || n <= 0) return w->status;
    if ((size_t)n > WRITER_BUFFER - w->held && writer_flush(w)) return w->status;
    if (n >= WRITER_BUFFER) return writer_write_out(w, data, (size_t)n, true);
    if (w->summing) w->sum = wb__crc32(w->sum, data, (size_t)n);
    memcpy(w->buffer + w->held, data, (size_t)n);
    w->held += (size_t)n;
    w->offset += n;
    return 0;
}

/* Syncs the folder, without which the new name is not durable. */
static int sync_folder(wb__writer *w)
{
    char *folder = wb__strdup(w->path);
    if (!folder) return w->status = WB_ERROR_MEMORY;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    if (wb__io_must_fail() || !wb__os_sync_folder(slash ? folder : "."))
        writer_fail(w, "the folder cannot be made durable");
    wb__free(folder);
    return w->status;
}

static int writer_make_durable(wb__writer *w)
{
    if (wb__io_must_fail() || !wb__os_sync(w->file))
        return writer_fail(w, "cannot be made durable");
    /* The file is still open and locked, so no other process removes it as a leftover. */
    if (wb__io_must_fail() || !wb__os_rename(w->temporary, w->path))
        return writer_fail(w, "cannot be given its name");
    wb__free(w->temporary);
    w->temporary = NULL;
    return sync_folder(w);
}

int wb__writer_close(wb__writer *w)
{
    int status = w->status ? w->status : writer_flush(w);
    if (!status && w->temporary) status = writer_make_durable(w);
    wb__writer_drop(w);
    return status;
}

int wb__file_write(const char *path, const void *data, int64_t bytes)
{
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    wb__writer_put(w, data, bytes);
    return wb__writer_close(w);
}
