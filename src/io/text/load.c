/* wb_load_tokenizer: finds the files of a tokenizer and reads them. */
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include "base/files/file.h"
#include "base/os.h"
#include "base/packages.h"

#include "weber/text.h"

#include <string.h>

static bool text_load_is_file(const char *path)
{
    wb__os_about about;
    return wb__os_look(path, true, &about) && about.kind != WB__OS_FOLDER;
}

/* Returns the path of a file beside another one, in a block that the caller frees. */
static char *text_load_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return wb__printf("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
}

/* Sets *settings to the root of a file of settings beside another one, or to NULL if there is
 * none. */
static int text_load_read_settings(const char *path, const char *name, wb__json **settings)
{
    char *config = text_load_beside(path, name);
    *settings = config && text_load_is_file(config) ? wb__json_file(config) : NULL;
    const int status = !config || (text_load_is_file(config) && !*settings)
                           ? wb__error_or(WB_ERROR_MEMORY)
                           : 0;
    wb__free(config);
    return status;
}

static int text_load_read_txt(wb_tokenizer *t, char *text, int64_t bytes)
{
    wb__json *settings;
    int status = text_load_read_settings(t->path, "tokenizer_config.json", &settings);
    if (!status) status = wb__read_vocab_txt(t, text, bytes, settings);
    wb__free(settings);
    return status;
}

static int text_load_read_json(wb_tokenizer *t, const wb__json *vocabulary)
{
    wb__json *settings;
    int64_t bytes;
    int status = text_load_read_settings(t->path, "tokenizer_config.json", &settings);
    char *path = status ? NULL : text_load_beside(t->path, "merges.txt");
    char *merges = path ? wb__file_read(path, &bytes) : NULL;
    if (!status) status = merges ? wb__read_vocab_json(t, vocabulary, merges, bytes, settings)
                                 : wb__error_or(WB_ERROR_FILE);
    wb__free(merges);
    wb__free(path);
    wb__free(settings);
    return status;
}

/* Reads the tokenizer's file, which is one of three kinds: lines; an object of tokens and ids; or
 * tokenizer.json, whose member "model" is an object.  GPT-2's vocabulary has a token "model", with
 * an id. */
static int text_load_read_file(wb_tokenizer *t)
{
    int64_t bytes;
    int status = 0;
    char *text = wb__file_read(t->path, &bytes);
    const char *dot = strrchr(t->path, '.');
    const bool named = dot && !strcmp(dot, ".txt");
    const bool lines = text && (named || text[strspn(text, " \t\r\n")] != '{');
    wb__json *root = text && !lines ? wb__json_of(t->path, text, bytes) : NULL;
    const wb__json *value, *kind = wb__json_get(root, "model");
    WB__JSON_EACH_MEMBER(root, value, i) if (!kind) kind = value;
    if (lines) status = text_load_read_txt(t, text, bytes);
    else if (!root) status = wb__error_or(WB_ERROR_FILE);
    else status = wb__json_is(kind, WB__JSON_INTEGER) ? text_load_read_json(t, root)
                                                       : wb__read_tokenizer_json(t, root);
    wb__free(text);
    wb__free(root);
    return status;
}

/* Reads sentence_bert_config.json of a folder, if there is one. */
static int text_load_read_sentences(wb_tokenizer *t)
{
    wb__json *settings;
    int status = text_load_read_settings(t->path, "sentence_bert_config.json", &settings);
    if (settings) status = wb__read_sentences(t, settings);
    wb__free(settings);
    return status;
}

/* Returns the file of a folder that describes its tokenizer, or the path; the caller frees it. */
static char *text_load_file_of(const char *path)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "vocab.json"};
    if (!wb__is_folder(path)) return wb__strdup(path);
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        char *file = wb__printf("%s/%s", path, names[i]);
        if (!file || text_load_is_file(file)) return file;
        wb__free(file);
    }
    return wb__fail_null(WB_ERROR_FILE, "%s: no tokenizer.json, vocab.txt or vocab.json is in it",
                         path);
}

wb_tokenizer *wb_load_tokenizer(const char *path)
{
    if (WB__NULL(path)) return NULL;
    if (!wb__package_built(WB__PACKAGE_UTF8PROC))
        return wb__package_missing(WB__PACKAGE_UTF8PROC, "load_tokenizer", NULL), NULL;
    const wb__frame f = wb__frame_begin();
    char *file = text_load_file_of(path);
    wb_tokenizer *t = file ? wb__tokenizer_new(file) : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (t && !strcmp(slash ? slash + 1 : file, "merges.txt")) {
        char *vocabulary = text_load_beside(file, "vocab.json");
        wb__free(t->path);
        t->path = vocabulary;
        if (!vocabulary) t = NULL;
    }
    wb__free(file);
    if (t &&
        (text_load_read_file(t) || (wb__is_folder(path) && text_load_read_sentences(t)))) t = NULL;
    return wb__frame_end(f, t);
}
