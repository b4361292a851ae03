/* The input of a fuzz target as a file: on Linux in memory, else in /tmp. */
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

static char fuzz_path[64];

#ifndef __linux__
static void fuzz_remove(void) { unlink(fuzz_path); }
#endif

/* Writes the input to the file and returns its path, the same in every call.  Turns the log off. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char *const path = fuzz_path;
    if (fd < 0) {
        wb_set_log(fuzz_silence, NULL);
#ifdef __linux__
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof fuzz_path, "/proc/self/fd/%d", fd);
#else
        snprintf(path, sizeof fuzz_path, "/tmp/weber-fuzz-XXXXXX");
        fd = mkstemp(path);
        atexit(fuzz_remove);
#endif
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) {
        perror(path);
        abort();
    }
    return path;
}

#endif
