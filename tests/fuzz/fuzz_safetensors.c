/* Any bytes as a safetensors file, as a model, and as values for a model, with renamed and with
 * prefixed names: read or refused. */
#include "file.h"

#include "io/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    wb__table st;
    if (wb__st_load(path, true, &st)) return 0;
    wb__table_free(&st);
    wb_scope *scope = wb_scope_open();
    wb_load(path);
    wb_layer *m = wb_Chain(wb_Conv(1, 1, {1}, wb_relu, .flip = true), wb_BatchNorm(1),
                           wb_MultiHeadAttention(1, 1), wb_named("r", wb_GRU(1, 1)));
    const wb_rename rows[] = {{"a*", "layers.0*"}, {"b", "layers.r.bias"}};
    wb_load_state(path, m, .n_rename = 2, .rename = rows);
    wb_load_state(path, m, .lenient = true, .prefix = "0.");
    wb_scope_close(scope);
    return 0;
}
