/* Writing: to a temporary file beside the old one, which is replaced at the end or not at all.  See
 * file.h. */
#if !defined(_XOPEN_SOURCE) && !defined(_GNU_SOURCE)
#define _XOPEN_SOURCE 700       /* realpath */
#endif
#include "base/file.h"

#include "base/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 16 };

struct wb__writer {
    char *path, *temporary;     /* temporary: NULL when the path is written directly */
    int file, status;           /* the first failure */
    int64_t offset;
    size_t held;
    unsigned char buffer[BUFFER];
};

int64_t wb__writer_offset(const wb__writer *w) { return w->offset; }

static int fail(wb__writer *w, const char *what)
{
    return w->status = wb__fail(WB_ERROR_FILE, "%s: byte %lld: %s: %s", w->path,
                                (long long)w->offset, what, strerror(errno));
}

/* A name in the same folder that nobody has, created.  The file's mode is the old one's, or the
 * usual one. */
static int open_temporary(wb__writer *w, const struct stat *old)
{
    static _Atomic unsigned serial;
    for (int attempt = 0; attempt < 100; attempt++) {
        wb__free(w->temporary);
        w->temporary =
            wb__printf("%s.%ld-%u.part", w->path, (long)getpid(), atomic_fetch_add(&serial, 1));
        if (!w->temporary) return WB_ERROR_MEMORY;
        w->file = wb__io_must_fail()
                      ? -1
                      : open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->file >= 0) {
            if (old)
                (void)!fchmod(w->file,
                              old->st_mode & 07777); /* not ours to change: then the usual one */
            return 0;
        }
        if (errno != EEXIST) break;
    }
    int code = fail(w, "cannot be created");
    wb__free(w->temporary);
    w->temporary = NULL;
    return code;
}

static int open_target(wb__writer *w, const char *path)
{
    struct stat old;
    bool exists = stat(path, &old) == 0;
    if (exists && S_ISDIR(old.st_mode)) {
        errno = EISDIR;
        return fail(w, "cannot be written");
    }
    if (exists && !S_ISREG(old.st_mode)) {
        w->file = wb__io_must_fail() ? -1 : open(path, O_WRONLY | O_CLOEXEC);
        return w->file < 0 ? fail(w, "cannot be opened") : 0;
    }
    if (exists && access(path, W_OK) != 0)
        return fail(w, "cannot be written"); /* though its name could be taken */
    char real[PATH_MAX];
    if (exists && realpath(path, real)) {
        char *followed = wb__strdup(real);
        if (!followed) return WB_ERROR_MEMORY;
        wb__free(w->path);
        w->path = followed;
    }
    return open_temporary(w, exists ? &old : NULL);
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
    if (w->file >= 0) close(w->file);
    if (w->temporary) unlink(w->temporary);
    wb__free(w->temporary);
    wb__free(w->path);
    wb__free(w);
}

static int write_out(wb__writer *w, const unsigned char *data, size_t n)
{
    while (n) {
        ssize_t some = wb__io_must_fail() ? -1 : write(w->file, data, WB__MIN(n, (size_t)1 << 30));
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return fail(w, "cannot be written");
        data += some;
        n -= (size_t)some;
        w->offset += some;
    }
    return 0;
}

/* `offset` is what the system has; what is held comes on top. */
static int flush(wb__writer *w)
{
    w->offset -= (int64_t)w->held;
    size_t n = w->held;
    w->held = 0;
    return write_out(w, w->buffer, n);
}

int wb__writer_put(wb__writer *w, const void *data, int64_t n)
{
    if (w->status || n <= 0) return w->status;
    if ((size_t)n > BUFFER - w->held && flush(w)) return w->status;
    if (n >= BUFFER) return write_out(w, data, (size_t)n);
    memcpy(w->buffer + w->held, data, (size_t)n);
    w->held += (size_t)n;
    w->offset += n;
    return 0;
}

/* The name itself is only durable once its folder is. */
static int sync_folder(wb__writer *w)
{
    char *folder = wb__strdup(w->path);
    if (!folder) return w->status = WB_ERROR_MEMORY;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int f = wb__io_must_fail() ? -1 : open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
    bool failed = f < 0 || wb__io_must_fail() || (fsync(f) != 0 && errno != EINVAL);
    if (failed) fail(w, "the folder cannot be made durable");
    if (f >= 0) close(f);
    wb__free(folder);
    return w->status;
}

static int make_durable(wb__writer *w)
{
    if (wb__io_must_fail() || fsync(w->file) != 0) return fail(w, "cannot be made durable");
    int file = w->file;
    w->file = -1;
    if (close(file) != 0 || wb__io_must_fail()) return fail(w, "cannot be closed");
    if (wb__io_must_fail() || rename(w->temporary, w->path) != 0)
        return fail(w, "cannot be given its name");
    wb__free(w->temporary);
    w->temporary = NULL;
    return sync_folder(w);
}

int wb__writer_close(wb__writer *w)
{
    int status = w->status ? w->status : flush(w);
    if (!status && w->temporary) status = make_durable(w);
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
