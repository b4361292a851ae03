/* Facts about the machine and the process (os.h): systems with POSIX. */
#include "base/os.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__linux__)

#include <sched.h>
#include <sys/auxv.h>

/* ---- Linux ----------------------------------------------------------------------------------- */

/* Returns the quota of a cgroup in processors (quota / period, rounded up); 0: no limit. */
static int quota_of(const char *folder)
{
    char path[PATH_MAX + 32];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *f = fopen(path, "re");
    if (f) {
        int got = fscanf(f, "%lld %lld", &quota, &period);  /* of "max 100000" it reads nothing */
        fclose(f);
        if (got != 2) return 0;
    } else {                                                    /* version 1 of cgroups */
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (!(f = fopen(path, "re"))) return 0;
        int got = fscanf(f, "%lld", &quota);
        fclose(f);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (got != 1 || !(f = fopen(path, "re"))) return 0;
        got = fscanf(f, "%lld", &period);
        fclose(f);
        if (got != 1) return 0;
    }
    if (quota <= 0 || period <= 0) return 0;
    long long n = (quota + period - 1) / period;
    return n > INT_MAX ? INT_MAX : (int)n;
}

/* Whether a list such as "cpu,cpuacct" has the controller "cpu". */
static bool has_cpu(const char *list)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == 3 && wb__begins(list, "cpu")) return true;
    }
    return false;
}

/* Returns the smallest quota of this process's cgroup and its parents, in processors; 0: no
 * limit. */
static int posix_quota(void)
{
    int least = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return 0;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        controllers++;
        const char *mount = !*controllers ? "/sys/fs/cgroup"
                          : has_cpu(controllers) ? "/sys/fs/cgroup/cpu" : NULL;
        if (!mount) continue;
        for (;;) {
            char folder[PATH_MAX];
            if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder) break;
            int n = quota_of(folder);
            if (n && (!least || n < least)) least = n;
            char *slash = strrchr(path, '/');
            if (!slash || !path[1]) break;
            if (slash == path) path[1] = 0;
            else *slash = 0;
        }
    }
    fclose(f);
    return least;
}

int wb__os_processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    const int q = posix_quota();
    if (q && (!n || q < n)) n = q;
    return n < 1 ? wb__os_all_processors() : n;
}

void wb__os_memory(int64_t *total, int64_t *free)
{
    const int64_t page = sysconf(_SC_PAGESIZE), all = sysconf(_SC_PHYS_PAGES),
                  idle = sysconf(_SC_AVPHYS_PAGES);
    *total = all > 0 ? page * all : -1;
    *free = idle > 0 ? page * idle : -1;
}

void wb__os_huge_pages(void *block, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                    begin = ((uintptr_t)block + page - 1) & ~(page - 1),
                    end = ((uintptr_t)block + bytes) & ~(page - 1);
    (void)!madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

bool wb__os_program(char *path, size_t capacity)
{
    static const char self[] = "/proc/self/exe";        /* also for a file that has been removed */
    if (capacity < sizeof self || access(self, X_OK)) return false;
    memcpy(path, self, sizeof self);
    return true;
}

bool wb__os_has_more_rights(void) { return getauxval(AT_SECURE) != 0; }

#elif defined(__APPLE__)

#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/sysctl.h>

/* ---- macOS ----------------------------------------------------------------------------------- */

/* Returns an integer of sysctl, of 4 or 8 bytes; 0: sysctl has none of this name. */
static int64_t posix_number(const char *name)
{
    union { int32_t narrow; int64_t wide; } value = {.wide = 0};
    size_t n = sizeof value;
    if (sysctlbyname(name, &value, &n, NULL, 0)) return 0;
    return n == sizeof value.narrow ? value.narrow : value.wide;
}

int wb__os_processors(void)
{
    int64_t n = posix_number("hw.perflevel0.logicalcpu"); /* the fast processors of Apple's chips */
    if (n < 1) n = posix_number("hw.logicalcpu");
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n;
}

/* Inactive pages count as free: the system gives them to the first program that asks. */
void wb__os_memory(int64_t *total, int64_t *free)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    const int64_t all = posix_number("hw.memsize");
    const bool known =
        host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&pages, &n) == KERN_SUCCESS;
    mach_port_deallocate(mach_task_self(), host);
    *total = all > 0 ? all : -1;
    *free = known ? ((int64_t)pages.free_count + pages.inactive_count) * sysconf(_SC_PAGESIZE) : -1;
}

/* The kernel of macOS has no huge pages for blocks of malloc. */
void wb__os_huge_pages(void *block, size_t bytes) { (void)block, (void)bytes; }

bool wb__os_program(char *path, size_t capacity)
{
    uint32_t n = capacity > UINT32_MAX ? UINT32_MAX : (uint32_t)capacity;
    return _NSGetExecutablePath(path, &n) == 0;
}

bool wb__os_has_more_rights(void) { return issetugid() != 0; }

#else

/* ---- other systems --------------------------------------------------------------------------- */

int wb__os_processors(void) { return wb__os_all_processors(); }

void wb__os_memory(int64_t *total, int64_t *free) { *total = *free = -1; }
void wb__os_huge_pages(void *block, size_t bytes) { (void)block, (void)bytes; }

bool wb__os_program(char *path, size_t capacity)
{
    (void)path, (void)capacity;
    return false;
}

bool wb__os_has_more_rights(void) { return getuid() != geteuid() || getgid() != getegid(); }

#endif

/* ---- all systems ----------------------------------------------------------------------------- */

int wb__os_all_processors(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n;
}

bool wb__os_is_terminal(int file) { return isatty(file); }

int wb__os_columns(int file)
{
    struct winsize size;
    return ioctl(file, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

void wb__os_host(char *name, size_t capacity)
{
    *name = 0;
    if (gethostname(name, capacity - 1) || !*name) snprintf(name, capacity, "localhost");
    name[capacity - 1] = 0;
}

bool wb__os_random(void *bytes, size_t n)
{
    const int file = wb__os_open("/dev/urandom", WB__OS_READ);
    char *at = bytes;
    while (file >= 0 && n) {
        const int64_t got = wb__os_read(file, at, n);
        if (got <= 0) break;
        at += got, n -= (size_t)got;
    }
    if (file >= 0) wb__os_close(file);
    return file >= 0 && !n;
}
