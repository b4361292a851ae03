/* Opens libraries of other projects (library.h). */
#include "base/library.h"

#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

/* Sets the table.  Returns the name of a function that the library does not have, or NULL. */
static const char *library_find_functions(void *library, const char *const *names, char *table)
{
    for (; *names; names++) {
        void *found = wb__os_library_find(library, *names);
        if (!found) return *names;
        memcpy(table, &found, sizeof found);
        table += sizeof found;
    }
    return NULL;
}

bool wb__library_open(const char *variable, const char *const *files, const char *const *names,
                      const char *(*check)(void *library), void *table,
                      char reason[WB__LIBRARY_REASON])
{
    const char *own = wb__environment_path(variable), *const only[] = {own, NULL};
    *reason = 0;
    for (const char *const *file = own && *own ? only : files; *file; file++) {
        void *library = wb__os_library_open(*file, WB__OS_FOR_HANDLE);
        const char *missing = library ? library_find_functions(library, names, table) : NULL;
        const char *wrong = !library ? wb__os_library_reason() : missing ? missing
                          : check ? check(library) : NULL;
        if (!wrong) return true;
        if (!*reason)
            snprintf(reason, WB__LIBRARY_REASON, "%s%s%s", *file,
                     missing ? " has no " : library ? " " : ": ", wrong);
        if (missing) wb__os_library_close(library);
    }
    return false;
}
