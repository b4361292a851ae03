/* Compiled kernels on disk.  Each kernel has one file, named by a hash of its kind and key.  The
 * file contains a header, the kind, the key and the data; a damaged file counts as absent.  Files
 * are written under a temporary name and renamed, so several processes may share a folder.  When
 * the folder exceeds its limit, the least recently used files are removed.
 *
 * A kernel is a program that runs with the rights of its process, so only a folder is used that
 * belongs to the user of the process, and into which nobody else can write. */
#include "backend/kernel_cache.h"

#include "base/environment.h"
#include "base/files/file.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t kernel_cache_most = (int64_t)256 << 20; /* the limit of the folder, in bytes */

enum {
    KERNEL_CACHE_NAME = 32,             /* characters of a file's name, without the suffix */
    /* In seconds.  A use updates a file's time only if the time is older than a day.  Temporary
     * files older than a day are removed. */
    DAY = 24 * 60 * 60
};
static const char kernel_cache_ending[] = ".kernel", kernel_cache_unfinished[] = ".part";

/* A file is this header, the kind with its terminating 0, the key and the data. */
typedef struct {
    char magic[8];
    uint64_t kind_bytes, key_bytes, data_bytes, checksum;
} kernel_cache_header;
static const char kernel_cache_magic[8] = "WBKERN2";

void wb__kernel_cache_set_limit(int64_t bytes) { kernel_cache_most = bytes; }

/* ---- names ----------------------------------------------------------------------------------- */

/* Sets the two parts of the folder's path, `base` and `below`.  false: the cache is disabled. */
static bool folder_path(const char **base, const char **below)
{
    const char *chosen = wb__environment_path("WEBER_CACHE_DIR");
    const char *cache = wb__environment_path("XDG_CACHE_HOME");
    *base = chosen ? chosen : cache && *cache == '/' ? cache : wb__environment_path("HOME");
    *below = chosen ? "" : *base == cache ? "/weber/kernels" : "/.cache/weber/kernels";
    return *base && **base;
}

/* Logs, once in the process, why no kernels are kept on disk. */
static void kernel_cache_refuse(const char *folder, const wb__os_about *s)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&reported)) return;
    if (s->owner != wb__os_user())
        wb__log(WB_LOG_WARN, "The folder of compiled kernels %s belongs to user %lld, and this is "
                "user %lld, so no kernels are read or kept.\nWEBER_CACHE_DIR names another folder.",
                folder, (long long)s->owner, (long long)wb__os_user());
    else
        wb__log(WB_LOG_WARN, "Others can write into the folder of compiled kernels %s, so no "
                "kernels are read or kept.\nAfter `rm -r` of it a new folder is private; "
                "WEBER_CACHE_DIR names another one.", folder);
}

/* Whether nobody but the user can write into the folder, or the folder does not exist. */
static bool is_private(const char *folder)
{
    wb__os_about s;
    if (!wb__os_look(folder, true, &s) || s.kind != WB__OS_FOLDER) return true;
    if (s.owner == wb__os_user() && !(s.mode & 022)) return true;       /* group and others */
    kernel_cache_refuse(folder, &s);
    return false;
}

/* Returns the path of an entry's file, which the caller frees.  NULL without an error: the cache is
 * disabled, its folder is not private, or memory is exhausted. */
static char *file_path(const char *kind, const char *key, size_t key_bytes)
{
    const char *base, *below;
    if (!folder_path(&base, &below)) return NULL;
    uint64_t h[2] = {1, 2};
    for (int i = 0; i < 2; i++)
        h[i] = wb__hash(wb__hash(h[i], kind, strlen(kind) + 1), key, key_bytes);
    char *path = wb__printf("%s%s/%016llx%016llx%s", base, below, (unsigned long long)h[0],
                            (unsigned long long)h[1], kernel_cache_ending);
    char *name = path ? strrchr(path, '/') : NULL;
    if (!name) return path;
    *name = 0;
    const bool usable = is_private(*path ? path : "/");
    *name = '/';
    if (usable) return path;
    wb__free(path);
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Moves the data to the front of the file's contents, and sets *bytes to the size of the data.
 * false: the file has another key or is damaged. */
static bool find_data(char *all, uint64_t n, const char *kind, const char *key, size_t key_bytes,
                      size_t *bytes)
{
    kernel_cache_header h;
    const size_t kind_bytes = strlen(kind) + 1, front = sizeof h + kind_bytes + key_bytes;
    if (n < front) return false;
    memcpy(&h, all, sizeof h);
    if (memcmp(h.magic, kernel_cache_magic, sizeof kernel_cache_magic) ||
        h.kind_bytes != kind_bytes || h.key_bytes != key_bytes || h.data_bytes != n - front ||
        memcmp(all + sizeof h, kind, kind_bytes) ||
        memcmp(all + sizeof h + kind_bytes, key, key_bytes) ||
        wb__hash(0, all + front, (size_t)h.data_bytes) != h.checksum)
        return false;
    *bytes = (size_t)h.data_bytes;
    memmove(all, all + front, *bytes);
    return true;
}

static bool is_old(const wb__os_about *s)
{
    return wb__os_clock(WB__OS_WALL) - s->changed > (int64_t)DAY * 1000000000;
}

void *wb__kernel_cache_read(const char *kind, const char *key, size_t key_bytes, size_t *bytes)
{
    wb__os_about s;
    int64_t n = 0;
    wb__error_kept before;              /* a kernel that cannot be read is no error */
    *bytes = 0;
    wb__error_keep(&before);
    char *path = file_path(kind, key, key_bytes), *all = NULL;
    if (path && wb__os_look(path, true, &s) && s.kind == WB__OS_PLAIN && s.owner == wb__os_user())
        all = wb__file_read(path, &n);
    wb__error_restore(&before);
    if (all && !find_data(all, (uint64_t)n, kind, key, key_bytes, bytes)) {
        wb__free(all);
        all = NULL;
    }
    if (all && is_old(&s)) wb__os_touch(path);
    wb__free(path);
    return all;
}

/* ---- keeping the folder small ---------------------------------------------------------------- */

typedef struct {
    char name[KERNEL_CACHE_NAME + sizeof kernel_cache_ending];
    int64_t bytes, used;                /* size; time of the last use, in seconds */
} kernel_cache_entry;

static int kernel_cache_by_use(const void *a, const void *b)
{
    const kernel_cache_entry *x = a, *y = b;
    return x->used < y->used ? -1 : x->used > y->used;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Lists the files of kernels, adds their number to *n and their sizes to *bytes.  Removes temporary
 * files older than a day, which an interrupted process left.  The caller frees the list. */
static kernel_cache_entry *kernel_cache_list(const char *path, wb__os_folder *folder, int *n,
                                             int64_t *bytes)
{
    kernel_cache_entry *all = NULL;
    int room = 0;
    for (const char *name; (name = wb__os_folder_next(folder));) {
        wb__os_about s;
        char file[WB__OS_PATH];
        if (snprintf(file, sizeof file, "%s/%s", path, name) >= (int)sizeof file ||
            !wb__os_look(file, false, &s) || s.kind != WB__OS_PLAIN)
            continue;
        if (ends_with(name, kernel_cache_unfinished) && is_old(&s)) wb__os_remove(file);
        if (strlen(name) != KERNEL_CACHE_NAME + sizeof kernel_cache_ending - 1 ||
            !ends_with(name, kernel_cache_ending))
            continue;
        if (!wb__reserve(&all, &room, *n + 1, sizeof *all)) break;
        kernel_cache_entry *to = &all[(*n)++];
        memcpy(to->name, name, sizeof to->name);
        to->bytes = s.bytes;
        to->used = s.changed;                /* by wb__kernel_cache_read */
        *bytes += s.bytes;
    }
    return all;
}

static void kernel_cache_shrink(const char *path)
{
    wb__os_folder *folder = wb__os_folder_open(path);
    if (!folder) return;
    int n = 0;
    int64_t bytes = 0;
    kernel_cache_entry *all = kernel_cache_list(path, folder, &n, &bytes);
    if (bytes > kernel_cache_most) {
        qsort(all, (size_t)n, sizeof *all, kernel_cache_by_use);
        for (int i = 0; i < n && bytes > kernel_cache_most / 8 * 7; i++) {
            char file[WB__OS_PATH];
            snprintf(file, sizeof file, "%s/%s", path, all[i].name);
            if (wb__os_remove(file)) bytes -= all[i].bytes;
        }
    }
    wb__free(all);
    wb__os_folder_close(folder);
}

/* Whether to check the folder's size: at a process's first put, and then whenever it has written
 * another sixteenth of the limit. */
static bool time_to_shrink(int64_t bytes)
{
    static wb__mutex lock = WB__MUTEX_INIT;
    static int64_t since = INT64_MAX / 2;
    wb__mutex_lock(&lock);
    since += bytes;
    const bool now = since > kernel_cache_most / 16;
    if (now) since = 0;
    wb__mutex_unlock(&lock);
    return now;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Creates the folders of a file's path, for this user alone. */
static void kernel_cache_make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        wb__os_make_folder(path, true);
        *slash = '/';
    }
}

static int kernel_cache_write_file(char *path, const char *kind, const char *key, size_t key_bytes,
                                   const void *data, size_t bytes)
{
    kernel_cache_header h = {.kind_bytes = strlen(kind) + 1, .key_bytes = key_bytes,
                             .data_bytes = bytes, .checksum = wb__hash(0, data, bytes)};
    memcpy(h.magic, kernel_cache_magic, sizeof kernel_cache_magic);
    kernel_cache_make_folders(path);
    wb__writer *w = wb__writer_open(path);
    if (!w) return wb_error_code();
    wb__writer_put(w, &h, sizeof h);
    wb__writer_put(w, kind, (int64_t)h.kind_bytes);
    wb__writer_put(w, key, (int64_t)key_bytes);
    wb__writer_put(w, data, (int64_t)bytes);
    return wb__writer_close(w);
}

void wb__kernel_cache_write(const char *kind, const char *key, size_t key_bytes, const void *data,
                            size_t bytes)
{
    wb__error_kept before;              /* a kernel that cannot be kept is no error */
    wb__error_keep(&before);
    char *path = file_path(kind, key, key_bytes);
    if (!path) {
        wb__error_restore(&before);
        return;
    }
    if (kernel_cache_write_file(path, kind, key, key_bytes, data, bytes)) {
        if (wb__debug("load")) wb__log(WB_LOG_DEBUG, "load: a kernel is not kept: %s", wb_error());
    } else if (time_to_shrink((int64_t)bytes)) {
        *strrchr(path, '/') = 0;
        kernel_cache_shrink(*path ? path : "/");
    }
    wb__free(path);
    wb__error_restore(&before);
}
