/* `weber doctor`: whether programs find what the installed libweber.so needs.  This program itself
 * is linked with the static library. */
#define _XOPEN_SOURCE 700       /* realpath */
#include "base/base.h"
#include "cli/doctor.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __APPLE__
#define LIBRARY "libweber.dylib"
#else
#define LIBRARY "libweber.so"
#endif

enum { REASON = 512 };

/* Loads the library in a process of its own, since it has the names that this program has.  False:
 * it cannot be loaded; then `reason` is the dynamic linker's. */
static bool loads(const char *path, char *reason)
{
    int ends[2];
    *reason = 0;
    if (pipe(ends)) return true;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const char *message = dlopen(path, RTLD_NOW | RTLD_LOCAL) ? "" : dlerror();
        const size_t n = WB__MIN(strlen(message), (size_t)REASON - 1);
        _exit(write(ends[1], message, n) < 0);
    }
    close(ends[1]);
    ssize_t got = 0;
    for (size_t n = 0; child > 0; n += (size_t)got) {
        got = read(ends[0], reason + n, REASON - 1 - n);
        if (got <= 0) {
            reason[n] = 0;
            break;
        }
    }
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return !*reason;
}

static int check(const char *path, const char *(*package)(const char *reason))
{
    char reason[REASON];
    const bool good = loads(path, reason);
    printf("  %s%s\n", path, good ? ": programs can load it" : "");
    if (good) return 0;
    const char *name = package(reason);
    printf("PROBLEM: programs cannot load it: %s%s%s%s\n", reason, name ? "; install " : "",
           name ? name : "", name ? " (Debian, Ubuntu)" : "");
    return 1;
}

int wb__cli_check_library(const char *self, const char *(*package)(const char *reason))
{
    static const char *const beside[] = {"/", "/../" WB__LIBDIR "/"};
    char folder[PATH_MAX] = "", path[PATH_MAX + 128];
    const char *slash = realpath(self, folder) ? strrchr(folder, '/') : NULL;
    folder[slash ? slash - folder : 0] = 0;
    for (size_t i = 0; i < WB__COUNT(beside) && *folder; i++) {
        snprintf(path, sizeof path, "%s%s%s", folder, beside[i], LIBRARY);
        if (!access(path, F_OK)) return check(path, package);
    }
    printf("  " LIBRARY ": not beside this program\n");
    return 0;
}
