/* Any bytes as a file of torch.save, and as the pickle in one: read or refused. */
#include "file.h"

#include "io/torch/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    wb_set_unpack_limit(1 << 24);
    wb_scope *scope = wb_scope_open();
    wb_load_tensors(path);
    wb_scope_close(scope);
    wb__pickle p;
    wb__pickle_read(path, data, (int64_t)size, &p);
    int64_t sum = 0;
    for (int i = 0; i < p.n; i++)               /* every item is a value */
        for (int k = 0; p.values[i].items && k < p.values[i].n; k++)
            sum += p.values[p.values[i].items[k]].number & 1;
    if (sum < 0) abort();
    wb__pickle_free(&p);
    return 0;
}
