/* JSON as text of ours: jansson's own would have to be given back to malloc. */
#ifndef WB__JSON_TEXT_H
#define WB__JSON_TEXT_H

#include "tree/tree.h"

#include <jansson.h>

static inline int wb__json_piece(const char *bytes, size_t n, void *text)
{
    wb__text_raw(text, bytes, n);
    return ((wb__text *)text)->failed ? -1 : 0;
}

/* For wb__free; NULL with the error set. */
static inline char *wb__json_text(const json_t *json)
{
    wb__text t = {0};
    if (json && !json_dump_callback(json, wb__json_piece, &t, JSON_COMPACT))
        return wb__text_take(&t);
    bool memory = !json || t.failed;
    wb__free(wb__text_take(&t));
    return wb__fail_null(memory ? WB_ERROR_MEMORY : WB_ERROR_ARGUMENT, "%s",
                         memory ? "out of memory" : "a name or a note is not UTF-8");
}

#endif
