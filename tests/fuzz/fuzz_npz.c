/* Any bytes as an NPZ or NPY file: read or refused; their headers alone too. */
#include "file.h"

#include "io/numpy/npz.h"

static void read_table(const char *path, bool values)
{
    wb__mapping *m = wb__map(path);
    wb__table t;
    if (!m) return;
    if (wb__npz_table(m, values, &t)) {
        wb__unmap(m);
        return;
    }
    int64_t sum = 0;
    for (int i = 0; values && i < t.n; i++)             /* every byte of an entry can be read */
        for (int64_t k = 0; t.entries[i].dtype && k < t.entries[i].bytes; k += 64)
            sum += ((const uint8_t *)t.entries[i].data)[k];
    if (sum < 0) abort();
    wb__table_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    wb_set_unpack_limit(1 << 24);
    read_table(path, false);
    read_table(path, true);
    wb_scope *scope = wb_scope_open();
    wb_load_tensors(path);
    wb_scope_close(scope);
    return 0;
}
