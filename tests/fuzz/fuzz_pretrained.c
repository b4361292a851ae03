/* Any bytes as config.json of a model hub's folder with the tensors of a small BERT or GPT-2: a
 * model or an error. */
#include "file.h"

#include "weber/pretrained.h"

#include <string.h>

static char folder[2][64];

static void remove_folders(void)
{
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/config.json", folder[i]);
        unlink(path);
        snprintf(path, sizeof path, "%s/model.safetensors", folder[i]);
        unlink(path);
        rmdir(folder[i]);
    }
}

/* Makes two folders whose config.json is the input. */
static void make_folders(const char *config)
{
    static const char *const from[] = {WB_TEST_DATA "/pretrained/bert/model.safetensors",
                                       WB_TEST_DATA "/pretrained/gpt2/model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(folder[i], sizeof folder[i], "/tmp/weber-fuzz-XXXXXX");
        if (!mkdtemp(folder[i])) abort();
        snprintf(path, sizeof path, "%s/config.json", folder[i]);
        if (symlink(config, path)) abort();
        snprintf(path, sizeof path, "%s/model.safetensors", folder[i]);
        if (symlink(from[i], path)) abort();
    }
    atexit(remove_folders);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *config = fuzz_file(data, size);
    if (!*folder[0]) make_folders(config);
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < 2; i++) {
        wb_layer *model = wb_load_pretrained(folder[i]);
        if (!model && !wb_error_code()) abort();
        wb_clear_error();
    }
    wb_scope_close(scope);
    return 0;
}
