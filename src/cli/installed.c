/* Where the files are that are installed with this program. */
#define _XOPEN_SOURCE 700       /* realpath */
#include "base/base.h"
#include "base/os.h"
#include "cli/cli.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool wb__cli_installed(const char *self, const char *name, char *path, size_t size)
{
    static const char *const folders[] = {".", WB__LIBDIR};
    char program[PATH_MAX], at[PATH_MAX], real[PATH_MAX], folder[2 * PATH_MAX];
    if (wb__os_program(program, sizeof program)) self = program;
    char *slash = realpath(self, at) ? strrchr(at, '/') : NULL;       /* /proc/self/exe is a link */
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < WB__COUNT(folders); i++) {
        const bool whole = *folders[i] == '/';
        snprintf(folder, sizeof folder, "%s%s%s", whole ? "" : at, whole ? "" : "/", folders[i]);
        const int n = realpath(folder, real) ? snprintf(path, size, "%s/%s", real, name) : -1;
        if (n >= 0 && (size_t)n < size && !access(path, F_OK)) return true;
    }
    return false;
}
