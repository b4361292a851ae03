/* Creates and lists folders, and removes files. */
#include "base/files/file.h"
#include "base/files/file_calls.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, const char *what)
{
    return wb__fail(WB_ERROR_FILE, "%s: %s: %s", path, what, strerror(errno));
}

bool wb__is_folder(const char *path)
{
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

int wb__folder_make(const char *path)
{
    if (!wb__io_must_fail() && (mkdir(path, 0777) == 0 || errno == EEXIST)) {
        if (wb__is_folder(path)) return 0;
        errno = ENOTDIR;
    }
    return fail(path, "the folder cannot be made");
}

int wb__folder_each(const char *path, int (*each)(const char *name, void *ctx), void *ctx)
{
    DIR *folder = wb__io_must_fail() ? NULL : opendir(path);
    if (!folder) return fail(path, "the folder cannot be opened");
    int status = 0;
    while (!status) {
        errno = 0;
        const struct dirent *e = wb__io_must_fail() ? NULL : readdir(folder);
        if (!e) {
            if (errno) status = fail(path, "the folder cannot be read");
            break;
        }
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) status = each(e->d_name, ctx);
    }
    closedir(folder);
    return status;
}

int wb__file_remove(const char *path)
{
    if (wb__io_must_fail() || unlink(path) != 0) return fail(path, "cannot be removed");
    return 0;
}
