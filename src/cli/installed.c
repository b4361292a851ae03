/* Finds the files that are installed with this program. */
#include "base/base.h"
#include "base/os.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool wb__cli_installed(const char *self, const char *name, char *path, size_t size)
{
    static const char *const folders[] = {".", WB__LIBDIR};
    char program[WB__OS_PATH], at[WB__OS_PATH], real[WB__OS_PATH], folder[2 * WB__OS_PATH];
    if (wb__os_program(program, sizeof program)) self = program;
    /* /proc/self/exe is a link */
    char *slash = wb__os_real_path(self, at) ? strrchr(at, '/') : NULL;
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < WB__COUNT(folders); i++) {
        const bool whole = *folders[i] == '/';
        snprintf(folder, sizeof folder, "%s%s%s", whole ? "" : at, whole ? "" : "/", folders[i]);
        if (wb__os_real_path(folder, real) &&
            (size_t)snprintf(path, size, "%s/%s", real, name) < size && wb__os_is_there(path))
            return true;
    }
    return false;
}
