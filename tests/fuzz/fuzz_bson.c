/* Any bytes as a BSON file: models, tables, outlines; read or refused. */
#include "file.h"

#include "io/flux/flux.h"

static int row(const wb__flux_row *r, void *ctx)
{
    return r->bytes < 0 || r->ndim > WB_MAX_DIMS ? *(int *)ctx : 0;
}

static wb_layer *substitute(const wb_unknown *part, void *ctx)
{
    (void)ctx;
    return part->fields && part->path[0] == 'l' ? wb_layer_from_function(wb_relu) : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wb_set_log(fuzz_silence, NULL);
    wb__mapping m = {.path = (char *)(uintptr_t)"fuzz", .data = data, .bytes = (int64_t)size};
    wb_load_options o = WB_OPTIONS_OF(wb_load_options);
    wb__table t;
    if (!wb__flux_table(&m, NULL, &t)) wb__table_free(&t);
    if (wb__flux_outline(&m, row, &(int){1}) == 1) __builtin_trap();
    for (int i = 0; i < 2; i++) {
        wb_scope *scope = wb_scope_open();
        o.substitute = i ? substitute : NULL;
        wb__flux_load(&m, &o);
        wb_scope_close(scope);
    }
    return 0;
}
