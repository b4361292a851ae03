/* How a sentence encoder reduces the tokens of a text to one vector: modules.json lists the model,
 * the pooling and, if vectors have length 1, "Normalize". */
#include "io/pretrained/pretrained.h"

#include <stdio.h>
#include <string.h>

/* Returns the last word of a module's type, such as "Pooling" of
 * "sentence_transformers.models.Pooling"; "" if there is none. */
static const char *sentences_kind_of(const wb__json *module)
{
    const char *type = wb__json_text(wb__json_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type ? type : "";
}

static int sentences_fail_unknown(const char *file, const char *what, const char *name)
{
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: %s \"%.200s\"; a Transformer, Pooling (cls, mean, "
                    "max or mean_sqrt_len) and Normalize are known, in this order", file, what,
                    name);
}

/* Returns FOLDER/PATH, for the path of a module; the caller frees it.  NULL with the error set. */
static char *sentences_folder_of(const char *folder, const wb__json *module)
{
    const char *path = wb__json_text(wb__json_get(module, "path"));
    if (path && !*path) return wb__strdup(folder);
    if (wb__hub_is_plain(path)) return wb__printf("%s/%s", folder, path);
    return wb__fail_null(WB_ERROR_FORMAT, "%s/modules.json: the path of a module is \"%.200s\"; it "
                         "is a folder in this one", folder, path ? path : "");
}

/* Sets the pooling of c by a member of the file, `key`: v.  Returns 0 or an error code. */
static int sentences_read_member(const char *file, const char *key, const wb__json *v,
                                 wb__hub_config *c, int *chosen)
{
    static const struct { const char *key, *name; wb__token_pool_kind kind; } kinds[] = {
        {"pooling_mode_cls_token", "cls", WB__TOKENS_FIRST},
        {"pooling_mode_mean_tokens", "mean", WB__TOKENS_MEAN},
        {"pooling_mode_max_tokens", "max", WB__TOKENS_MAX},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", WB__TOKENS_ROOT}};
    const bool mode = !strcmp(key, "pooling_mode");
    if (!strcmp(key, "word_embedding_dimension") || !strcmp(key, "embedding_dimension"))
        return wb__json_integer(v) == c->sizes[WB__HUB_WIDTH]
                   ? 0
                   : wb__fail(WB_ERROR_FORMAT, "%s: \"%s\" is %lld, and the model has %lld", file,
                              key, (long long)wb__json_integer(v),
                              (long long)c->sizes[WB__HUB_WIDTH]);
    if (!strcmp(key, "include_prompt") && wb__json_is(v, WB__JSON_TRUE)) return 0;
    for (size_t i = 0; i < WB__COUNT(kinds); i++) {
        const char *text = wb__json_text(v);
        if (mode ? !text || strcmp(text, kinds[i].name) : strcmp(key, kinds[i].key) != 0) continue;
        if (!mode && wb__json_is(v, WB__JSON_FALSE)) return 0;
        c->pooling = kinds[i].kind;
        ++*chosen;
        return 0;
    }
    if (!mode && wb__json_is(v, WB__JSON_FALSE)) return 0;
    return sentences_fail_unknown(file, "the setting", key);
}

static int sentences_read_pooling(const char *folder, wb__hub_config *c)
{
    const wb__json *v;
    int chosen = 0, status = 0;
    wb__json *root = wb__hub_json(folder, "config.json");
    char *file = root ? wb__printf("%s/config.json", folder) : NULL;
    if (!file) status = wb__error_or(WB_ERROR_MEMORY);
    if (!status) WB__JSON_EACH_MEMBER(root, v, i) {
        status = sentences_read_member(file, wb__json_key(v), v, c, &chosen);
        if (status) break;
    }
    if (!status && chosen != 1)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "%s: has %d modes of pooling; one is computed",
                          file, chosen);
    wb__free(file);
    wb__free(root);
    return status;
}

int wb__hub_sentences_read(const char *folder, char **base, wb__hub_config *c)
{
    static const char *const order[] = {"Transformer", "Pooling", "Normalize"};
    const wb__json *module;
    int64_t n = 0;
    int status = 0;
    char file[600];
    *base = NULL;
    wb__json *root = wb__hub_json(folder, "modules.json");
    if (!root) return wb_error_code();
    snprintf(file, sizeof file, "%.500s/modules.json", folder);
    WB__JSON_EACH(root, module, i) {
        if (i > 2 || strcmp(sentences_kind_of(module), order[i])) {
            status = sentences_fail_unknown(file, "has a module", sentences_kind_of(module));
            break;
        }
        char *path = sentences_folder_of(folder, module);
        if (!path) status = wb_error_code();
        else if (!i && !(status = wb__hub_config_read(path, c))) *base = wb__strdup(path);
        else if (i == 1) status = sentences_read_pooling(path, c);
        wb__free(path);
        n = i + 1;
        if (status) break;
    }
    if (!status && n < 2)
        status = wb__fail(WB_ERROR_FORMAT, "%s: has %lld modules; a sentence encoder has a "
                          "Transformer and a Pooling", file, (long long)n);
    c->normalise = n == 3;
    wb__free(root);
    if (!status && !*base) status = WB_ERROR_MEMORY;
    return status;
}
