/* The files of vendors' libraries, which are opened at run time and not closed here. */
#include "backend/gpu/runtime/files.h"

#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool wb__gpu_is_off(const char *variable)
{
    return variable && !wb__environment_switch(variable, true);
}

const char *wb__gpu_find_functions(void *library, const wb__gpu_function *list, size_t n, void *to)
{
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        void *found = wb__os_library_find(library, list[i].name);
        memcpy((char *)to + list[i].at, &found, sizeof found);
        if (!found && !missing) missing = list[i].name;
    }
    return missing;
}

/* Whether the process has another function `entry`: a library must then find its own functions
 * before those of the process.  The process has such a function where a library that Weber is
 * linked with, such as oneDNN, is linked with the vendor's loader: an implementation that is opened
 * in the loader's place would call the loader, which calls the implementation.  A library with its
 * own functions sees no allocator that replaces malloc, and the dlopen of sanitizers refuses it. */
static bool must_find_own(const char *entry)
{
    return wb__os_library_find(NULL, entry) &&
           !wb__os_library_find(NULL, "__sanitizer_set_report_path");
}

void *wb__gpu_open_library(const char *tag, const char *variable, const char *usual,
                           const char *entry, const char *advice, const char **file)
{
    const char *name = wb__environment_path(variable);
    const bool named = name && *name && strcmp(name, usual) != 0;
    *file = named ? name : usual;
    const bool own = named && must_find_own(entry);
    void *library = wb__os_library_open(*file, own ? WB__OS_OWN_FIRST : WB__OS_FOR_HANDLE);
    if (library) return library;
    return wb__fail_null(WB_ERROR_DEVICE, "%s: %s was not found: %s; %s", tag, *file,
                         wb__os_library_reason(), advice);
}

/* Returns the index of the file to try as number `place`.  Files whose major version is not newer
 * than the driver's come first, then the others, both in the order of the list. */
static int gpu_files_order_of(const wb__gpu_search *s, const wb__gpu_file *files, int place)
{
    const int driver = s->version ? *s->version / 1000 : 0;
    for (int turn = 0, at = 0; turn < 2; turn++)
        for (int i = 0; files[i].name; i++) {
            const bool newer = driver && files[i].major > driver;
            if (newer == (turn > 0) && at++ == place) return i;
        }
    return 0;
}

void *wb__gpu_open_next(const wb__gpu_search *s, const wb__gpu_file *files, int *from, char *reason,
                        size_t capacity)
{
    const char *first = s->variable ? wb__environment_path(s->variable) : NULL;
    const char *const folders[] = {first && *first ? first : NULL, "", s->folders[0],
                                   s->folders[1]};
    int n = 0;
    bool named = false;
    while (files[n].name) n++;
    *reason = 0;
    for (; *from < n * (int)WB__COUNT(folders); ++*from) {
        char file[1024];
        const char *folder = folders[*from / n],
                   *name = files[gpu_files_order_of(s, files, *from % n)].name;
        if (!folder) continue;
        const int length = snprintf(file, sizeof file, "%s%s%s", folder, *folder ? "/" : "", name);
        if (length < 0 || (size_t)length >= sizeof file) continue;
        void *library = wb__os_library_open(file, WB__OS_FOR_HANDLE);
        const char *message = library ? "opened" : wb__os_library_reason();
        if (wb__debug("load")) wb__log(WB_LOG_INFO, "%s: %s: %s", s->tag, file, message);
        /* the reason of a file that exists precedes that of the first name */
        const bool there = !library && *folder && wb__os_is_there(file);
        if (!library && (there ? !named : !*folder && !*reason))
            snprintf(reason, capacity, "%s", message);
        named |= there;
        if (!library) continue;
        ++*from;
        return library;
    }
    return NULL;
}

void *wb__gpu_find_library(const wb__gpu_search *s, void *file, const wb__gpu_file *files,
                           const wb__gpu_function *list, size_t n, void *table, char *reason,
                           size_t capacity)
{
    const char *missing = NULL;
    int from = 0;
    *reason = 0;
    while ((!file || (missing = wb__gpu_find_functions(file, list, n, table))) &&
           (file = wb__gpu_open_next(s, files, &from, reason, capacity))) {}
    if (!file && missing)
        snprintf(reason, capacity, "one was opened, but it has no %s, so that it is too old, or"
                 " another library", missing);
    return file;
}

bool wb__gpu_shares_driver(void *function, const char *name, void *ours, char *reason,
                           size_t capacity)
{
    const char *path = wb__os_library_file(function);
    void *file = wb__os_library_of(function);
    const bool same = file && wb__os_library_find(file, name) == ours;
    if (!same)
        snprintf(reason, capacity, "%s has another %s than the driver in use",
                 path ? path : "its file", name);
    if (file) wb__os_library_close(file);
    return same;
}
