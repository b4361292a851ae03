/* JSON from the text of a file, and as text of ours: jansson's own would have to be given back to malloc. */
#ifndef WB__JSON_TEXT_H
#define WB__JSON_TEXT_H

#include "tree/tree.h"

#include <jansson.h>

static inline int wb__json_piece(const char *bytes, size_t n, void *text)
{
    wb__text_raw(text, bytes, n);
    return ((wb__text *)text)->failed ? -1 : 0;
}

/* NULL with the reason in `error`.  An object takes a tree of jansson hundreds of bytes, "{}," only three of text: a text of
 * hardly anything but brackets is refused, so that none costs more than 32 times its length. */
static inline json_t *wb__json_load(const char *text, json_error_t *error)
{
    enum { OBJECT = 240, LIST = 128, VALUE = 40, MOST = 24, BESIDE = 1 << 16 };
    int64_t cost = 0;
    size_t n = 0;
    for (; text[n]; n++)
        cost += text[n] == '{' ? OBJECT : text[n] == '[' ? LIST : text[n] == ',' ? VALUE : 0;
    if (cost <= (int64_t)n * MOST + BESIDE) return json_loadb(text, n, JSON_REJECT_DUPLICATES, error);
    *error = (json_error_t){.line = 1, .text = "far too many lists and objects for so short a text"};
    return NULL;
}

/* NULL with the error set. */
static inline json_t *wb__json_string(const char *text)
{
    json_t *value = json_string(text);
    if (value) return value;
    if (wb__is_utf8(text)) return wb__fail_null(WB_ERROR_MEMORY, NULL);
    return wb__fail_null(WB_ERROR_ARGUMENT, "save: the name or note \"%.200s\" is not UTF-8", text);
}

/* A value into a list, into an object; all of it is freed where that fails, and nothing goes into NULL. */
static inline json_t *wb__json_append(json_t *list, json_t *value)
{
    if (!json_array_append_new(list, value)) return list;
    json_decref(list);
    return NULL;
}

static inline json_t *wb__json_put(json_t *object, const char *key, json_t *value)
{
    if (!json_object_set_new(object, key, value)) return object;
    json_decref(object);
    return NULL;
}

/* For wb__free; NULL with the error set. */
static inline char *wb__json_text(const json_t *json)
{
    wb__text t = {0};
    if (json && !json_dump_callback(json, wb__json_piece, &t, JSON_COMPACT))
        return wb__text_take(&t);
    const bool memory = t.failed;
    wb__free(wb__text_take(&t));
    if (memory) return wb__fail_null(WB_ERROR_MEMORY, NULL);
    return wb__fail_null(WB_ERROR_ARGUMENT, "save: a name is not UTF-8%s", json ? "" : ", or memory ran out");
}

#endif
