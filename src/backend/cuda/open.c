/* Libraries of NVIDIA's, opened when they are first wanted and never closed. */
#include "backend/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Versions in the order in which they suit the driver: its own, older ones, newer ones. */
static int order_of(const wb__cu_file *files, int place)
{
    const int driver = wb__cu_driver_version / 1000;
    for (int turn = 0, at = 0; turn < 2; turn++)
        for (int i = 0; files[i].name; i++) {
            const bool newer = driver && files[i].major > driver;
            if (newer == (turn > 0) && at++ == place) return i;
        }
    return 0;
}

void *wb__cu_open_library(const wb__cu_file *files, int *from, char *why, size_t room)
{
    const char *first = getenv("WEBER_CUDA_PATH");
    const char *const folders[] = {first && *first ? first : NULL, "",
                                   "/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
    int n = 0;
    while (files[n].name) n++;
    *why = 0;
    for (; *from < n * (int)WB__COUNT(folders); ++*from) {
        char file[1024];
        const char *folder = folders[*from / n], *name = files[order_of(files, *from % n)].name;
        if (!folder) continue;
        const int length =
            snprintf(file, sizeof file, "%s%s%s", folder, *folder ? "/" : "", name);
        if (length < 0 || (size_t)length >= sizeof file) continue;
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        const char *said = library ? "opened" : dlerror();
        if (wb__debug("load"))
            wb__log(WB_LOG_INFO, "cuda: %s: %s", file, said ? said : "not opened");
        if (!library && !*folder && !*why) snprintf(why, room, "%s", said ? said : name);
        if (!library) continue;
        ++*from;
        return library;
    }
    return NULL;
}
