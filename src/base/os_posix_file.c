/* Files, folders and memory (os.h): systems with POSIX. */
#include "base/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------- */

int wb__os_open(const char *path, wb__os_opening how)
{
    static const int flags[] = {
        O_RDONLY, O_RDONLY | O_NONBLOCK, O_WRONLY, O_WRONLY | O_NOFOLLOW,
        O_WRONLY | O_CREAT | O_EXCL, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW};
    return open(path, flags[how] | O_CLOEXEC, how == WB__OS_REPLACE ? 0600 : 0666);
}

bool wb__os_close(int file) { return !close(file); }

int64_t wb__os_read(int file, void *to, size_t n)
{
    ssize_t done;
    while ((done = read(file, to, n)) < 0 && errno == EINTR) continue;
    return done;
}

int64_t wb__os_write(int file, const void *from, size_t n)
{
    ssize_t done;
    while ((done = write(file, from, n)) < 0 && errno == EINTR) continue;
    return done;
}

int64_t wb__os_write_at(int file, const void *from, size_t n, int64_t offset)
{
    ssize_t done;
    while ((done = pwrite(file, from, n, (off_t)offset)) < 0 && errno == EINTR) continue;
    return done;
}

void wb__os_start_writing(int file, int64_t from, int64_t bytes)
{
#ifdef __linux__
    (void)!sync_file_range(file, from, bytes, SYNC_FILE_RANGE_WRITE);
#else
    (void)file, (void)from, (void)bytes;
#endif
}

bool wb__os_sync(int file)
{
#ifdef F_FULLFSYNC              /* of macOS, where fsync leaves the data in the cache of the disk */
    if (fcntl(file, F_FULLFSYNC) != -1) return true;            /* not every file system has it */
#endif
    return !fsync(file);
}

bool wb__os_sync_folder(const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool done = file >= 0 && (!fsync(file) || errno == EINVAL);
    const int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return done;
}

bool wb__os_lock(int file, bool wait)
{
    int failed;
    while ((failed = flock(file, LOCK_EX | (wait ? 0 : LOCK_NB))) && wait && errno == EINTR)
        continue;
    return !failed;
}

static void posix_file_describe(const struct stat *s, wb__os_about *about)
{
#ifdef __APPLE__
    const struct timespec changed = s->st_mtimespec;
#else
    const struct timespec changed = s->st_mtim;
#endif
    *about = (wb__os_about){
        .kind = S_ISREG(s->st_mode) ? WB__OS_PLAIN : S_ISDIR(s->st_mode) ? WB__OS_FOLDER
              : S_ISLNK(s->st_mode) ? WB__OS_LINK : WB__OS_OTHER,
        .gone = !s->st_nlink, .mode = s->st_mode & 07777, .bytes = s->st_size,
        .changed = (int64_t)changed.tv_sec * 1000000000 + changed.tv_nsec, .owner = s->st_uid,
        .device = (uint64_t)s->st_dev, .number = s->st_ino};
}

bool wb__os_look(const char *path, bool follow, wb__os_about *about)
{
    struct stat s;
    if (follow ? stat(path, &s) : lstat(path, &s)) return false;
    posix_file_describe(&s, about);
    return true;
}

bool wb__os_look_at(int file, wb__os_about *about)
{
    struct stat s;
    if (fstat(file, &s)) return false;
    posix_file_describe(&s, about);
    return true;
}

bool wb__os_is_there(const char *path) { return !access(path, F_OK); }
bool wb__os_may_write(const char *path) { return !access(path, W_OK); }
int64_t wb__os_user(void) { return geteuid(); }

bool wb__os_remove(const char *path) { return !unlink(path); }
bool wb__os_rename(const char *from, const char *to) { return !rename(from, to); }
bool wb__os_set_mode(int file, unsigned mode) { return !fchmod(file, (mode_t)mode); }

bool wb__os_touch(const char *path)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    return !utimensat(AT_FDCWD, path, now, 0);
}

bool wb__os_real_path(const char *path, char real[WB__OS_PATH]) { return realpath(path, real); }
bool wb__os_working_folder(char path[WB__OS_PATH]) { return getcwd(path, WB__OS_PATH); }

/* ---- folders --------------------------------------------------------------------------------- */

bool wb__os_make_folder(const char *path, bool own) { return !mkdir(path, own ? 0700 : 0777); }
bool wb__os_make_temporary(char *path) { return mkdtemp(path); }
bool wb__os_remove_folder(const char *path) { return !rmdir(path); }

wb__os_folder *wb__os_folder_open(const char *path) { return (wb__os_folder *)opendir(path); }
void wb__os_folder_close(wb__os_folder *f) { closedir((DIR *)f); }

const char *wb__os_folder_next(wb__os_folder *f)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir((DIR *)f);
        if (!e) return NULL;
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) return e->d_name;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

const void *wb__os_map(int file, size_t n)
{
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, file, 0);
    return map == MAP_FAILED ? NULL : map;
}

void wb__os_unmap(const void *map, size_t n) { munmap((void *)(uintptr_t)map, n); }

void wb__os_map_ahead(const void *from, size_t n)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from & ~(page - 1);
    (void)posix_madvise((void *)first, (uintptr_t)from + n - first, POSIX_MADV_WILLNEED);
}

#ifdef __APPLE__                /* macOS has no limit of address space */

bool wb__os_may_make_code(size_t n) { return n || true; }
bool wb__os_memory_is_limited(void) { return false; }

#else

/* Maps memory for code and unmaps it; the memory is not touched. */
bool wb__os_may_make_code(size_t n)
{
    void *code = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return false;
    const bool may = !mprotect(code, n, PROT_READ | PROT_EXEC);
    const int why = errno;
    munmap(code, n);
    errno = why;
    return may;
}

static bool is_limited(int resource)
{
    struct rlimit l;
    return !getrlimit(resource, &l) && l.rlim_cur != RLIM_INFINITY;
}

bool wb__os_memory_is_limited(void) { return is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA); }

#endif
