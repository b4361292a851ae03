/* Libraries of NVIDIA's, opened when they are first wanted and never closed. */
#include "backend/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *wb__cu_open_library(const char *const *names, char *why, size_t room)
{
    const char *first = getenv("WEBER_CUDA_PATH");
    const char *const folders[] = {first && *first ? first : NULL, "",
                                   "/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
    *why = 0;
    for (size_t f = 0; f < WB__COUNT(folders); f++)
        for (int i = 0; folders[f] && names[i]; i++) {
            char file[1024];
            const int n = snprintf(file, sizeof file, "%s%s%s", folders[f], *folders[f] ? "/" : "",
                                   names[i]);
            if (n < 0 || (size_t)n >= sizeof file) continue;
            void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (library) {
                if (host->debug("load")) host->log(WB_LOG_INFO, "cuda: %s opened", file);
                return library;
            }
            const char *said = dlerror();
            if (host->debug("load"))
                host->log(WB_LOG_INFO, "cuda: %s: %s", file, said ? said : "not opened");
            if (!*folders[f] && i == 0) snprintf(why, room, "%s", said ? said : names[i]);
        }
    return NULL;
}
