/* Tokenizer files that are wrong, hostile or not known: an error that names what was found; hostile
 * texts; memory that runs out. */
#include "text_golden.h"

#ifndef WB_HAVE_UTF8PROC

TEST(nothing_without_utf8proc) { print_message("SKIPPED: built without utf8proc\n"); }

#else

#define PIECES(vocab) "{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{" vocab "}}"
#define PAIRS(vocab, merges) "{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define SMALL PIECES("\"u\":0,\"a\":1,\"##b\":2")

/* Loads a tokenizer.json of these members and this model; it fails with the code and facts. */
#define REFUSED_PARTS(parts, model, code, ...) \
    REFUSED(load_parts(parts, model), code, "tokenizer.json", __VA_ARGS__)
#define UNKNOWN(parts, ...) REFUSED_PARTS(parts, SMALL, WB_ERROR_UNSUPPORTED, __VA_ARGS__)
#define WRONG(parts, ...) REFUSED_PARTS(parts, SMALL, WB_ERROR_FORMAT, __VA_ARGS__)

/* The first test: wb_memory_peak is that of the whole process. */
TEST(files_need_a_small_multiple_of_their_size)
{
    enum { SIZE = 3 << 20, MOST = 32 };
    for (int kind = 0; kind < 3; kind++) {
        wb__text text = {0};
        wb__text_add(&text, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
        for (int i = 1; text.length < SIZE; i++)    /* short tokens, long ones, merges */
            if (kind == 2 && i > 1) wb__text_add(&text, "%s\"a a\"", i > 2 ? "," : "");
            else if (kind == 2) wb__text_add(&text, ",\"aa\":1},\"merges\":[");
            else wb__text_add(&text, ",\"%0*x\":%d", kind ? 3000 : 1, (unsigned)i * 7919u, i);
        wb__text_add(&text, kind == 2 ? "]}}" : "},\"merges\":[]}}");
        put_file(in_folder("large.json"), text.text, text.length);
        wb__free(text.text);
        const int64_t before = wb_memory_used();
        wb_scope *scope = wb_scope_open();
        MADE(wb_load_tokenizer(in_folder("large.json")));
        wb_scope_close(scope);
        assert_true(wb_memory_peak() - before < (int64_t)MOST * SIZE);
        printf("kind %d: at most %.1f times its size\n", kind,
               (double)(wb_memory_peak() - before) / SIZE);
    }
}

TEST_IN_SCOPE(parts_that_are_not_known_are_named)
{
    MADE(load_parts("", SMALL));
    UNKNOWN("\"surprise\":1", "surprise");
    UNKNOWN("\"normalizer\":{\"type\":\"Nmt\"}", "normalizer", "Nmt");
    UNKNOWN("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA\"}",
            "Precompiled");
    UNKNOWN("\"normalizer\":{\"type\":\"NFC\",\"form\":3}", "normalizer", "form");
    UNKNOWN("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\","
            "\"normalizers\":[]}]}", "Sequence");
    UNKNOWN("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},"
            "\"content\":\"\"}", "a+");
    UNKNOWN("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},"
            "\"behavior\":\"Isolated\",\"invert\":false}", "pre_tokenizer", "Split");
    UNKNOWN("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
            "\"behavior\":\"Isolated\",\"invert\":true}", "pre_tokenizer", "invert");
    UNKNOWN("\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Both\"}", "Both");
    UNKNOWN("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}", "UnicodeScripts");
    UNKNOWN("\"decoder\":{\"type\":\"CTC\"}", "decoder", "CTC");
    UNKNOWN("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", "Strip");
    UNKNOWN("\"post_processor\":{\"type\":\"Mystery\"}", "post_processor", "Mystery");
    UNKNOWN("\"padding\":{\"strategy\":\"Shortest\"}", "padding", "Shortest");
    UNKNOWN("\"truncation\":{\"max_length\":4,\"strategy\":\"Middle\"}", "truncation", "Middle");
    REFUSED_PARTS("", "{\"type\":\"Unigram\",\"vocab\":[]}", WB_ERROR_UNSUPPORTED, "Unigram");
    REFUSED_PARTS("", "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}",
                  WB_ERROR_UNSUPPORTED, "dropout");
}

TEST_IN_SCOPE(wrong_members)
{
    WRONG("\"normalizer\":3", "normalizer");
    WRONG("\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":\"yes\"}", "lowercase");
    WRONG("\"normalizer\":{\"type\":\"Prepend\"}", "prepend");
    WRONG("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", "replacement");
    WRONG("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",9],\"cls\":[\"a\",1]}",
          "sep");
    WRONG("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[]}",
          "post_processor");
    WRONG("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":"
          "\"A\"}},{\"SpecialToken\":{\"id\":\"x\"}}],\"pair\":[]}", "x");
    WRONG("\"truncation\":{\"max_length\":0}", "max_length");
    WRONG("\"padding\":{\"strategy\":{\"Fixed\":-3}}", "padding");
    WRONG("\"added_tokens\":[{\"id\":1,\"content\":\"u\"}]", "u", "two");
    WRONG("\"added_tokens\":[{\"id\":1,\"content\":\"z\"}]", "z");
    WRONG("\"added_tokens\":[{\"id\":-1,\"content\":\"z\"}]", "-1");
}

TEST_IN_SCOPE(wrong_models)
{
    REFUSED_PARTS("", PIECES("\"a\":0"), WB_ERROR_FORMAT, "unk_token", "u");
    REFUSED_PARTS("", PIECES("\"u\":0,\"a\":0"), WB_ERROR_FORMAT, "0");
    REFUSED_PARTS("", PIECES("\"u\":1099511627776"), WB_ERROR_FORMAT, "1099511627776");
    REFUSED_PARTS("", PIECES("\"u\":0.5"), WB_ERROR_FORMAT, "u");
    REFUSED_PARTS("", PAIRS("\"a\":0,\"b\":1", "\"a b\""), WB_ERROR_FORMAT, "merge", "ab");
    REFUSED_PARTS("", PAIRS("\"a\":0", "\"a c\""), WB_ERROR_FORMAT, "merge", "c");
    REFUSED_PARTS("", PAIRS("\"a\":0", "\"a\""), WB_ERROR_FORMAT, "merge", "0");
    REFUSED_PARTS("", PAIRS("\"a\":0", "[\"a\"]"), WB_ERROR_FORMAT, "merge", "0");
    REFUSED_PARTS("", PAIRS("", ""), WB_ERROR_FORMAT, "empty");
    REFUSED_PARTS("\"added_tokens\":[{\"id\":0,\"content\":\"z\"}]", PAIRS("", ""),
                  WB_ERROR_FORMAT, "empty");
    REFUSED_PARTS("", "[]", WB_ERROR_FORMAT, "model");
    REFUSED(wb_load_tokenizer(in_folder("none.json")), WB_ERROR_FILE, "none.json");
    put_file(in_folder("cut.json"), "{\"model\":", 9);
    REFUSED(wb_load_tokenizer(in_folder("cut.json")), WB_ERROR_FORMAT, "cut.json");
    process_remove(folder);
    make_folder(NULL);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FILE, "tokenizer.json", "vocab.txt");
    put_file(in_folder("vocab.txt"), "[UNK]\n[CLS]\n", 12);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, "vocab.txt", "[SEP]");
    put_file(in_folder("vocab.txt"), "[UNK]\n\xff\n", 8);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, "2");
    put_file(in_folder("vocab.txt"), "[UNK]\n[\0C\0", 10);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, "vocab.txt", "byte 7 is zero", "UTF-16");
    put_file(in_folder("vocab.txt"), "[UNK]\na\na\n", 10);
    REFUSED(wb_load_tokenizer(folder), WB_ERROR_FORMAT, "3", "a");
}

TEST_IN_SCOPE(other_objects_are_refused)
{
    void *x = wb_ones(2);
    REFUSED(wb_encode(x, "a"), WB_ERROR_ARGUMENT, "encode", "tensor", "tokenizer");
    REFUSED(wb_decode(x, x), WB_ERROR_ARGUMENT, "decode", "tensor", "tokenizer");
    REFUSED(wb_decoder_begin(x), WB_ERROR_ARGUMENT, "decoder_begin", "tensor", "tokenizer");
    REFUSED(wb_decoder_next(x, 0), WB_ERROR_ARGUMENT, "decoder_next", "tensor", "decoder");
    assert_int_equal(wb_vocabulary_size(x), -1);
    FAILED(WB_ERROR_ARGUMENT, "vocabulary_size", "tensor");
}

TEST_IN_SCOPE(ids_need_not_be_dense)
{
    wb_tokenizer *t = load_parts("", PIECES("\"u\":900000000,\"a\":7,\"##b\":1073741824"));
    MADE(t);
    wb_tensor *x = wb_encode(t, "ab");
    const int32_t *ids = wb_data(x);
    assert_int_equal(wb_size(x), 2);
    assert_int_equal(ids[0], 7);
    assert_int_equal(ids[1], 1 << 30);
    assert_int_equal(wb_vocabulary_size(t), ((int64_t)1 << 30) + 1);
    assert_string_equal(wb_token_text(t, 900000000), "u");
    wb_tensor *none = wb_encode(t, "abc");
    assert_int_equal(wb_size(none), 1);
    assert_int_equal(wb_at(none, 0), 900000000);
}

/* ---- merges ---------------------------------------------------------------------------------- */

enum { TOKENS = 12, LETTERS = 2, MERGES = 30, LONGEST = 60 };
typedef struct {
    int n, n_merges;                    /* n: tokens */
    char text[TOKENS][16];
    int a[MERGES], b[MERGES], id[MERGES];           /* in the order of their ranks */
} random_merges;

static int drawn(uint32_t *state, int n)
{
    *state = *state * 1664525u + 1013904223u;
    return (int)((*state >> 8) % (uint32_t)n);
}

/* Adds a merge of two tokens that makes a new token, or one that is there. */
static void draw_merge(random_merges *m, uint32_t *state)
{
    const int a = drawn(state, m->n), b = drawn(state, m->n);
    char both[32];
    int id = 0;
    snprintf(both, sizeof both, "%s%s", m->text[a], m->text[b]);
    while (id < m->n && strcmp(m->text[id], both)) id++;
    if (id == TOKENS || strlen(both) >= sizeof m->text[0]) return;
    for (int k = 0; k < m->n_merges; k++)
        if (m->a[k] == a && m->b[k] == b) return;
    if (id == m->n) memcpy(m->text[m->n++], both, sizeof m->text[0]);
    /* at any rank, before merges that make its tokens */
    const int i = m->n_merges++, at = drawn(state, i + 1);
    m->a[i] = m->a[at], m->b[i] = m->b[at], m->id[i] = m->id[at];
    m->a[at] = a, m->b[at] = b, m->id[at] = id;
}

static wb_tokenizer *load_merges(const random_merges *m)
{
    wb__text all = {0};
    for (int i = 0; i < m->n; i++)
        wb__text_add(&all, "%s\"%s\":%d", i ? "," : "{\"type\":\"BPE\",\"vocab\":{", m->text[i],
                     i);
    for (int i = 0; i < m->n_merges; i++)
        wb__text_add(&all, "%s\"%s %s\"", i ? "," : "},\"merges\":[", m->text[m->a[i]],
                     m->text[m->b[i]]);
    wb__text_add(&all, "]}");
    wb_tokenizer *t = load_parts("", all.text);
    wb__free(all.text);
    MADE(t);
    return t;
}

/* Joins the leftmost pair of the lowest rank until there is none. Returns the number of tokens. */
static int merged(const random_merges *m, int n, int *ids)
{
    for (;;) {
        int best = m->n_merges, at = 0;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < best; k++)
                if (m->a[k] == ids[i] && m->b[k] == ids[i + 1]) {
                    best = k;
                    at = i;
                }
        if (best == m->n_merges) return n;
        ids[at] = m->id[best];
        n--;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 1) * sizeof *ids);
    }
}

/* A word gets the tokens of the definition, whatever the order of the ranks. */
TEST_IN_SCOPE(merges_follow_the_ranks)
{
    uint32_t state = 7;
    for (int round = 0; round < 300; round++) {
        random_merges m = {.n = LETTERS, .text = {"a", "b"}};
        for (int i = 0; i < 4 * MERGES && m.n_merges < MERGES; i++) draw_merge(&m, &state);
        wb_tokenizer *t = load_merges(&m);
        for (int k = 0; k < 30; k++) {
            const int n = 1 + drawn(&state, LONGEST), letters = 1 + drawn(&state, LETTERS);
            char text[LONGEST + 1];
            int ids[LONGEST];
            for (int i = 0; i < n; i++) text[i] = (char)('a' + (ids[i] = drawn(&state, letters)));
            text[n] = 0;
            const int want = merged(&m, n, ids);
            wb_tensor *x = wb_encode(t, text);
            assert_int_equal(wb_size(x), want);
            assert_memory_equal(wb_data(x), ids, (size_t)want * sizeof *ids);
        }
    }
}

/* ---- hostile texts --------------------------------------------------------------------------- */

/* The seconds in which a text of n copies of `part` is encoded. */
static double seconds(wb_tokenizer *t, const char *part, size_t n)
{
    const size_t each = strlen(part);
    char *text = wb__alloc(each * n + 1);
    for (size_t i = 0; i < n; i++) memcpy(text + i * each, part, each);
    text[n * each] = 0;
    const double begin = wb__now();
    wb_tensor *x = wb_encode(t, text);
    MADE(x);
    assert_true(wb_size(x) > 0);
    wb__free(text);
    return wb__now() - begin;
}

/* Not a measurement: what is quadratic would take minutes. */
TEST_IN_SCOPE(long_words_and_runs_of_marks_take_linear_time)
{
    wb_tokenizer *gpt = load_case(golden_case("gpt2")), *bert = load_case(golden_case("bert"));
    wb_tokenizer *nfc = load_case(golden_case("Removed"));
    assert_true(seconds(gpt, "a", 400000) < 20);
    assert_true(seconds(gpt, "in", 200000) < 20);
    assert_true(seconds(gpt, " ", 400000) < 20);
    assert_true(seconds(bert, "a", 400000) < 20);
    assert_true(seconds(nfc, "\xcc\xa3\xcc\x81", 200000) < 20);
    assert_true(seconds(nfc, "a\xcc\x81\xcc\xa3", 200000) < 20);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool all_works(const char *path)
{
    static const char *const texts[] = {"\xc3\xa9 new <mask> 12", "a"};
    wb_scope *scope = wb_scope_open();
    wb_tokenizer *t = scope ? wb_load_tokenizer(path) : NULL;
    const wb_encoded x = t ? wb_encode_batch(t, 2, texts, .pairs = texts) : (wb_encoded){0};
    wb_tensor *places = NULL, *one = x.ids ? wb_encode(t, texts[0], .offsets = &places) : NULL;
    char *text = one ? wb_decode(t, one) : NULL;
    wb_decoder *d = text ? wb_decoder_begin(t) : NULL;
    const bool ok = d && wb_decoder_next(d, 5) && wb_decoder_end(d);
    wb_free_text(text);
    if (scope) wb_scope_close(scope);
    return ok;
}

TEST(memory_that_runs_out_is_an_error)
{
    for (int k = 0; k < 2; k++) {
        const char *model = k ? PIECES("\"u\":0,\"a\":1,\"new\":5,\"[CLS]\":2")
                              : PAIRS("\"a\":0,\"b\":5,\"ab\":2", "\"a b\"");
        const char *parts =
            k ? "\"normalizer\":{\"type\":\"BertNormalizer\"},\"added_tokens\":"
              "[{\"id\":9,\"content\":\"New\"}],\"pre_tokenizer\":"
              "{\"type\":\"BertPreTokenizer\"},\"padding\":{\"strategy\":"
              "\"BatchLongest\"},\"decoder\":{\"type\":\"WordPiece\"}"
              : "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":"
                "{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}";
        int failures = 0;
        const char *path = in_folder("tokenizer.json");
        MADE(load_parts(parts, model));                     /* writes the file */
        assert_true(all_works(path));
        for (int n = 1; n < 4000; n++) {
            wb_clear_error();
            wb__alloc_fail_at(n);
            const bool ok = all_works(path);
            const int64_t made = wb__alloc_count();
            wb__alloc_fail_at(0);
            if (!ok) {
                assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
                failures++;
            }
            if (made < n) break;
            assert_true(n < 3999);
        }
        assert_true(failures > 20);
    }
}

TEST(files_that_cannot_be_read_are_an_error)
{
    for (int n = 1; n < 100; n++) {
        wb_scope *scope = wb_scope_open();
        put_file(in_folder("vocab.json"), "{\"a\":0,\"b\":1,\"ab\":2}", 20);
        put_file(in_folder("merges.txt"), "a b\n", 4);
        put_file(in_folder("tokenizer_config.json"), "{}", 2);
        wb_clear_error();
        wb__io_fail_at(n);
        wb_tokenizer *t = wb_load_tokenizer(in_folder("vocab.json"));
        const int64_t made = wb__io_count();
        wb__io_fail_at(0);
        if (!t) FAILED(WB_ERROR_FILE, "cannot");
        wb_scope_close(scope);
        if (made < n) return;
    }
    fail_msg("there are too many calls");
}

#endif

int main(void) { return run_cases(golden_open, golden_close); }
