/* The folder of data files that are not part of the project: WEBER_SHARED, else ../shared beside
 * the sources. */
#ifndef SHARED_DATA_H
#define SHARED_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of a file in it.  If the file is absent, prints the reason and returns false. */
static inline bool shared_file(char *path, size_t capacity, const char *name)
{
#ifndef WB_HAVE_ZLIB
    if (strstr(name, ".gz")) {
        printf("SKIP: built without zlib, which decompresses %s\n", name);
        fflush(stdout);
        return false;
    }
#endif
    const char *folder = getenv("WEBER_SHARED");
    snprintf(path, capacity, "%s/data/%s", folder ? folder : WB_TEST_DATA "/../../../shared", name);
    if (access(path, R_OK) == 0) return true;
    printf("SKIP: no %s (set WEBER_SHARED to the folder that holds data/)\n", path);
    fflush(stdout);                             /* before cmocka's own line */
    return false;
}

#endif
