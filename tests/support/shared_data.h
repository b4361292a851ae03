/* Data files that are not part of the project: in the folder WEBER_SHARED, else in ../shared beside
 * the sources. */
#ifndef SHARED_DATA_H
#define SHARED_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The path of a file in it.  If the file is absent, prints the reason and returns false. */
static inline bool shared_file(char *path, size_t size, const char *name)
{
    const char *folder = getenv("WEBER_SHARED");
    if (folder) {
        snprintf(path, size, "%s/data/%s", folder, name);
    } else {
        const char *end = __FILE__;             /* .../tests/support/shared_data.h */
        int length = 0, slashes = 0;
        for (const char *c = end; *c; c++) length++;
        while (length && slashes < 3) slashes += end[--length] == '/';
        snprintf(path, size, "%.*s/../shared/data/%s", length, end, name);
    }
    if (access(path, R_OK) == 0) return true;
    printf("SKIP: no %s (set WEBER_SHARED to the folder that holds data/)\n", path);
    fflush(stdout);                             /* before cmocka's own line */
    return false;
}

#endif
