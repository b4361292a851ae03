/* Any bytes as a safetensors file, as a model, and as values for one by anybody's names: read or refused. */
#include "io/safetensors.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void silent(wb_log_level level, const char *text, void *ctx) { (void)level, (void)text, (void)ctx; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        wb_set_log(silent, NULL);
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) return 0;
    wb__table st;
    if (wb__st_load(path, true, &st)) return 0;
    wb__table_free(&st);
    wb_scope *scope = wb_scope_open();
    wb_load(path);
    wb_layer *m = wb_Chain(wb_Conv(1, 1, {1}, wb_relu, .flip = true), wb_BatchNorm(1), wb_MultiHeadAttention(1, 1),
                           wb_named("r", wb_GRU(1, 1)));
    const wb_rename rows[] = {{"a*", "layers.0*"}, {"b", "layers.r.bias"}};
    wb_load_state(path, m, .n_rename = 2, .rename = rows);
    wb_load_state(path, m, .lenient = true, .prefix = "0.");
    wb_scope_close(scope);
    return 0;
}
