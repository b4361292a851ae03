/* Any bytes as a safetensors file and as a model: read or refused. */
#include "io/safetensors.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) return 0;
    wb__table st;
    if (wb__st_load(path, true, &st)) return 0;
    wb__table_free(&st);
    wb_scope *scope = wb_scope_open();
    wb_load(path);
    wb_scope_close(scope);
    return 0;
}
