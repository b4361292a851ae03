/* `weber doctor`: whether programs find the libraries that the installed libweber.so needs.  The
 * command itself is linked with the static library.  WB__SONAME is the soname of the shared one. */
#include "base/base.h"
#include "base/os.h"
#include "cli/cli.h"
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>

enum { REASON = 512 };
typedef enum { LOADED, REFUSED, DOCTOR_LIBRARY_UNKNOWN } doctor_library_outcome;

int wb__cli_open(const char *path)
{
    fputs(wb__os_library_open(path, WB__OS_FOR_HANDLE) ? "+" : wb__os_library_reason(), stdout);
    _Exit(fflush(stdout) != 0);         /* skips the functions of the library that run at exit */
}

/* Sets `reason` and returns the outcome of loading the library in another process, since this one
 * has functions of the same names, and a library may crash while it is loaded.  The process prints
 * "+", or the dynamic linker's message.  With REFUSED and DOCTOR_LIBRARY_UNKNOWN `reason` has the
 * cause. */
static doctor_library_outcome doctor_library_load(const char *self, const char *path, char *reason)
{
    char program[WB__OS_PATH];
    const char *const words[] = {
        wb__os_program(program, sizeof program) ? program : self, "open", path, NULL};
    wb__os_end end;
    if (!wb__cli_capture(words, NULL, false, reason, REASON, &end)) {
        snprintf(reason, REASON, "no process could be started");
        return DOCTOR_LIBRARY_UNKNOWN;
    }
    if (end.signal)
        snprintf(reason, REASON, "the process that loaded it ended with signal %d (%s)",
                 end.signal, wb__os_signal_text(end.signal));
    else if (!*reason || end.status)
        snprintf(reason, REASON, "the process that loaded it ended with status %d", end.status);
    else return strcmp(reason, "+") ? REFUSED : LOADED;
    return REFUSED;
}

static int doctor_library_check(const char *self, const char *path,
                                const char *(*package)(const char *reason))
{
    char reason[REASON], real[WB__OS_PATH];
    const doctor_library_outcome found = doctor_library_load(self, path, reason);
    printf("  %s", wb__os_real_path(path, real) ? real : path);
    if (found == LOADED) return printf(": programs can load it\n"), 0;
    if (found == DOCTOR_LIBRARY_UNKNOWN) return printf(": could not be checked: %s\n", reason), 0;
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
    char path[WB__OS_PATH];
    if (wb__cli_installed(self, WB__SONAME, path, sizeof path))
        return doctor_library_check(self, path, package);
    printf("  " WB__SONAME ": not beside this program\n");
    return 0;
}
