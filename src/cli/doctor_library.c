/* `weber doctor`: whether programs find what the installed libweber.so needs.  This program itself
 * is linked with the static library.  WB__SONAME is the soname of the other, which programs
 * load. */
#define _XOPEN_SOURCE 700       /* realpath, strsignal */
#include "base/base.h"
#include "cli/cli.h"
#include "cli/doctor.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REASON = 512 };
typedef enum { LOADED, REFUSED, UNKNOWN } outcome;

/* Loads the library in a process of its own, since it has the names that this program has, and a
 * library may crash while it is loaded.  The process writes "+", or the dynamic linker's message.
 * REFUSED, UNKNOWN: `reason` has the cause. */
static outcome load(const char *path, char *reason)
{
    int ends[2], status = 0;
    snprintf(reason, REASON, "no process could be started");
    if (pipe(ends)) return UNKNOWN;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const char *message = dlopen(path, RTLD_NOW | RTLD_LOCAL) ? "+" : dlerror();
        const size_t n = WB__MIN(strlen(message), (size_t)REASON - 1);
        _exit(write(ends[1], message, n) != (ssize_t)n);
    }
    close(ends[1]);
    ssize_t got = 0;
    size_t n = 0;
    while (child > 0 && (got = read(ends[0], reason + n, REASON - 1 - n)) > 0) n += (size_t)got;
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) < 0) return UNKNOWN;
    reason[n] = 0;
    if (WIFSIGNALED(status)) {
        snprintf(reason, REASON, "the process that loaded it ended with signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
        return REFUSED;
    }
    if (!n || status) {
        snprintf(reason, REASON, "the process that loaded it ended with status %d",
                 WEXITSTATUS(status));
        return REFUSED;
    }
    return strcmp(reason, "+") ? REFUSED : LOADED;
}

static int check(const char *path, const char *(*package)(const char *reason))
{
    char reason[REASON], real[PATH_MAX];
    const outcome found = load(path, reason);
    printf("  %s", realpath(path, real) ? real : path);
    if (found == LOADED) return printf(": programs can load it\n"), 0;
    if (found == UNKNOWN) return printf(": could not be checked: %s\n", reason), 0;
    const char *name = package(reason);
    printf("\nPROBLEM: programs cannot load it: %s%s%s%s\n", reason, name ? "; install " : "",
           name ? name : "", name ? " (Debian, Ubuntu)" : "");
    if (name)
        printf("  If the file that is missing has another number there, this library was built for"
               " another release: build Weber on this machine\n");
    return 1;
}

int wb__cli_check_library(const char *self, const char *(*package)(const char *reason))
{
    char path[PATH_MAX];
    if (wb__cli_installed(self, WB__SONAME, path, sizeof path)) return check(path, package);
    printf("  " WB__SONAME ": not beside this program\n");
    return 0;
}
