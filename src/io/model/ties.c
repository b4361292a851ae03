#include "io/model/ties.h"

int wb__ties_add(wb__ties *t, const wb__leaf *leaf, bool *is_first)
{
    void **at = wb__pointer_map_at(&t->first, leaf->x);
    if (!at) return WB_ERROR_MEMORY;
    *is_first = !*at;
    if (*at) {
        wb__json_put_pair(&t->out, leaf->path, *at);
        return t->out.status;
    }
    *at = wb__strdup(leaf->path);
    return *at ? 0 : WB_ERROR_MEMORY;
}

char *wb__ties_take(wb__ties *t)
{
    for (int i = 0; i < t->first.capacity; i++) wb__free(t->first.slots[i].pointer);
    wb__pointer_map_free(&t->first);
    return wb__json_take(&t->out);
}

int wb__ties_make(const char *file, void *model, const wb__json *ties)
{
    const wb__json *same;
    if (ties && !wb__json_is(ties, WB__JSON_OBJECT))
        return wb__fail(WB_ERROR_FORMAT, "%s: the model's ties are no object", file);
    WB__JSON_EACH_MEMBER(ties, same, i) {
        const char *path = wb__json_key(same), *first = wb__json_text(same);
        if (!first)
            return wb__fail(WB_ERROR_FORMAT, "%s: the tie of \"%.100s\" is wrong", file, path);
        if (wb_tie(model, path, first))
            return wb__fail((int)wb_error_code(), "%s: %s", file, wb_error());
    }
    return 0;
}
