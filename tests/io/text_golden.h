/* tests/data/tokenizers.json: what the library `tokenizers` makes of texts (make_tokenizers.py). */
#ifndef TEXT_GOLDEN_H
#define TEXT_GOLDEN_H

#include "folder.h"

#include "base/files/file.h"
#include "io/json.h"

static wb__json *golden;

static inline int golden_open(void **state)
{
    const char *reason;
    int64_t bytes;
    char *text = wb__file_read(WB_TEST_DATA "/tokenizers.json", &bytes);
    golden = text ? wb__json_read(text, &reason) : NULL;
    wb__free(text);
    return golden && !make_folder(state) ? 0 : -1;
}

static inline int golden_close(void **state)
{
    wb__free(golden);
    return remove_folder(state);
}

static inline const wb__json *item(const wb__json *list, int64_t n)
{
    const wb__json *v;
    WB__JSON_EACH(list, v, i) if (i == n) return v;
    fail_msg("the golden file has no item %lld", (long long)n);
    return NULL;
}

/* The bytes of a text in hexadecimal, in a buffer that the next but one call reuses. */
static inline const char *from_hex(const wb__json *v)
{
    static char texts[2][2048];
    static int turn;
    const char *hex = wb__json_text(v);
    char *text = texts[turn ^= 1];
    size_t n = 0;
    for (; hex[2 * n]; n++) {
        unsigned byte;
        sscanf(hex + 2 * n, "%2x", &byte);
        text[n] = (char)byte;
    }
    text[n] = 0;
    return text;
}

/* Writes a tokenizer.json with these members beside "model", and loads it. */
static inline wb_tokenizer *load_parts(const char *parts, const char *model)
{
    const char *path = in_folder("tokenizer.json");
    char *text = wb__printf("{%s%s\"model\":%s}", parts, *parts ? "," : "", model);
    put_file(path, text, strlen(text));
    wb__free(text);
    return wb_load_tokenizer(path);
}

static inline const char *golden_model(const char *name)
{
    return wb__json_text(wb__json_get(wb__json_get(golden, "models"), name));
}

/* A case by its name. */
static inline const wb__json *golden_case(const char *name)
{
    const wb__json *v, *list = wb__json_get(golden, "cases");
    WB__JSON_EACH(list, v, i)
        if (!strcmp(wb__json_text(wb__json_get(v, "name")), name)) return v;
    fail_msg("the golden file has no case %s", name);
    return NULL;
}

static inline wb_tokenizer *load_case(const wb__json *c)
{
    return load_parts(wb__json_text(wb__json_get(c, "parts")),
                      golden_model(wb__json_text(wb__json_get(c, "model"))));
}

/* Whether the tensor of i32 has the numbers of the list; prints the first difference. */
static inline bool is_list(wb_tensor *x, const wb__json *list, const char *what, int64_t number)
{
    const int32_t *values = x ? wb_data(x) : NULL;
    const wb__json *v;
    if (!x) fail_msg("%s, text %lld: %s", what, (long long)number, wb_error());
    WB__JSON_EACH(list, v, i)
        if (i >= wb_size(x) || values[i] != wb__json_integer(v)) {
            printf("%s, text %lld: element %lld is %d, not %d\n", what, (long long)number,
                   (long long)i, i < wb_size(x) ? values[i] : -1, (int)wb__json_integer(v));
            return false;
        }
    if (wb__json_count(list) == wb_size(x)) return true;
    printf("%s, text %lld: %lld elements, not %lld\n", what, (long long)number,
           (long long)wb_size(x), (long long)wb__json_count(list));
    return false;
}

#endif
