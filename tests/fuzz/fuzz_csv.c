/* Any bytes as a CSV file, and as a file of columns: read or refused.  The size and the first byte
 * choose the options. */
#include "file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {NULL, "*", "*,kind", "kind"};
    static const uint8_t table[] = "kind,b\nx,1\n,y\n";
    const char *path = fuzz_file(data, size);
    const unsigned choice = (unsigned)(size / 4 + (size ? data[0] : 0));
    wb_scope *scope = wb_scope_open();
    wb_columns *columns = NULL;
    wb_load_csv(path, .label = size & 1 ? -1 : INT32_MIN, .header = size & 2,
                .one_hot = words[choice & 3], .numbered = choice & 4 ? "*" : NULL,
                .missing = (wb_missing)(choice / 8 % 5), .columns = &columns,
                .label_dtype = choice & 64 ? WB_F32 : WB_I32);
    if (columns) wb_load_csv(path, .like = columns);
    columns = wb_load_columns(path);
    if (columns) wb_load_csv(fuzz_file(table, sizeof table - 1), .like = columns);
    wb_scope_close(scope);
    return 0;
}
