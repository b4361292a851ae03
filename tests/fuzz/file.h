/* The input of a fuzz target as a file in memory. */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_silence(wb_log_level level, const char *text, void *ctx)
{
    (void)level, (void)text, (void)ctx;
}

/* Writes the input to the file and returns its path, the same in every call.  Turns the log off. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        wb_set_log(fuzz_silence, NULL);
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) {
        perror(path);
        abort();
    }
    return path;
}

#endif
