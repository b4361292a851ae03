/* Whatever bytes a CSV file holds: a result or an error, never a crash. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char path[] = "/tmp/weber-fuzz-csv-XXXXXX";
    static FILE *file;
    if (!file) {
        int f = mkstemp(path);
        if (f < 0 || !(file = fdopen(f, "w+b"))) abort();
    }
    rewind(file);
    if (ftruncate(fileno(file), 0) || fwrite(data, 1, bytes, file) != bytes || fflush(file)) abort();
    wb_scope *scope = wb_scope_open();
    wb_load_csv(path, .has_label = bytes & 1, .label = -1, .header = bytes & 2);
    wb_scope_close(scope);
    return 0;
}
