/* Any bytes as an WAV file: read or refused. */
#include "file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    wb_scope *scope = wb_scope_open();
    wb_load_wav(path, NULL);
    wb_scope_close(scope);
    return 0;
}
