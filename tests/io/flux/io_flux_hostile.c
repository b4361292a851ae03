/* Hostile BSON files: truncated, changed at any byte, with circular references, with references
 * that expand exponentially, nested deeply, with wrong sizes.  Every reader reads such a file or
 * fails with an error that names it, in bounded time and memory. */
#include "test.h"

#include "bson_maker.h"
#include "io/flux/flux.h"
#include "nn/layer.h"

/* ---- the readers ----------------------------------------------------------------------------- */

enum { MULTIPLE = 64, BESIDE = 1 << 20 };
typedef struct { int table, outline, model, substituted; } outcome;
static char refusal[1000];              /* the error of loading without .substitute */

static int row(const wb__flux_row *r, void *ctx)
{
    assert_true(strlen(r->path) < 4096 && r->type && r->ndim <= WB_MAX_DIMS && r->bytes >= 0);
    return 0;
}

static wb_layer *substitute(const wb_unknown *part, void *ctx)
{
    if (ctx) return ctx;
    return part->fields ? wb_layer_from_function(wb_relu) : NULL;
}

static int status_of(bool failed)
{
    if (!failed) return 0;
    const bool unsupported = wb_error_code() == WB_ERROR_UNSUPPORTED;
    FAILED(unsupported ? WB_ERROR_UNSUPPORTED : WB_ERROR_FORMAT, "hostile.bson");
    return (int)wb_error_code();
}

/* Reads the bytes with each reader.  They are copied to a block of their own, so that a sanitizer
 * reports a read after their end. */
static outcome read_bytes(const uint8_t *bytes, size_t n)
{
    outcome out;
    wb__table t;
    uint8_t *copy = malloc(n + !n);
    memcpy(copy, bytes, n);
    wb__mapping m = {.path = (char *)(uintptr_t)"hostile.bson", .data = copy, .bytes = (int64_t)n};
    int64_t used = wb_memory_used(), peak = wb_memory_peak();
    out.table = status_of(wb__flux_table(&m, NULL, &t));
    if (!out.table) wb__table_free(&t);
    assert_int_equal(wb_memory_used(), used);
    out.outline = status_of(wb__flux_outline(&m, row, NULL));
    for (int i = 0; i < 2; i++) {
        wb_load_options o = WB_OPTIONS_OF(wb_load_options, .substitute = i ? substitute : NULL);
        wb_scope *s = wb_scope_open();
        int status = status_of(!wb__flux_load(&m, &o));
        wb_scope_close(s);
        if (i) {
            out.substituted = status;
            continue;
        }
        out.model = status;
        snprintf(refusal, sizeof refusal, "%s", status ? wb_error() : "");
    }
    if (wb_memory_peak() > peak) assert_in_range(wb_memory_peak() - used, 0, MULTIPLE * n + BESIDE);
    free(copy);
    return out;
}

static outcome read_made(bson_maker *m)
{
    bm_finish(m);
    outcome out = read_bytes(m->bytes, m->n);
    bm_free(m);
    return out;
}

static void expect_refusal(bson_maker *m, const char *const *facts)
{
    outcome out = read_made(m);
    assert_true(out.table && out.outline && out.model);
    if (!has_facts(refusal, facts)) fail_msg("the refusal is: %s", refusal);
}
#define EXPECT_REFUSAL(m, ...) expect_refusal(m, FACTS(__VA_ARGS__))

/* ---- a file with every kind of value --------------------------------------------------------- */

static bson_maker begun(void)
{
    bson_maker m = {0};
    bm_document(&m);
    bm_key(&m, "model");
    return m;
}

static void dense(bson_maker *m, int in, int out)
{
    bm_struct(m, "Flux.Dense");
    bm_array(m, 2, out, in);
    bm_array(m, 1, out);
    bm_function(m, "NNlib.#relu");
    bm_end(m);
}

static bson_maker everything(void)
{
    bson_maker m = begun();
    bm_struct(&m, "Flux.Chain");
    bm_named(&m, 7, "a", "b", "c", "d", "e", "f", "g");
    bm_struct(&m, "Flux.Conv");
    bm_function(&m, "NNlib.#relu");
    bm_array(&m, 4, 1, 2, 1, 2), bm_bool(&m, 0);
    bm_integers(&m, 2, 1, 1), bm_integers(&m, 4, 1, 0, 0, 1), bm_integers(&m, 2, 1, 1);
    bm_integer(&m, 1);
    bm_end(&m);
    bm_closure(&m, "#1#2"), bm_end(&m);
    bm_ref(&m, 1);
    bm_ref(&m, 2);
    bm_struct(&m, "Flux.Recur");
    bm_struct(&m, "Flux.LSTMCell");
    bm_array(&m, 2, 4, 1), bm_array(&m, 2, 4, 1), bm_array(&m, 1, 4), bm_array(&m, 1, 1),
        bm_array(&m, 1, 1);
    bm_end(&m);
    bm_null(&m), bm_null(&m);
    bm_end(&m);
    bm_struct(&m, "Main.Own");
    bm_array(&m, 1, 2), bm_real(&m, 0.5), bm_float(&m, 1), bm_ref(&m, 3);
    bm_end(&m);
    bm_function(&m, "NNlib.#softmax");
    bm_end(&m), bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    dense(&m, 2, 2);
    bm_struct(&m, "Flux.BatchNorm");
    bm_function(&m, "Base.#identity");
    for (int i = 0; i < 4; i++) bm_array(&m, 1, 2);
    bm_float(&m, 1e-5f), bm_float(&m, 0.1f), bm_null(&m);
    bm_end(&m);
    bm_ref(&m, 1);
    bm_finish(&m);
    return m;
}

/* A file with layers that join, transpose and check more than one field. */
static bson_maker more(void)
{
    bson_maker m = begun();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    bm_struct(&m, "Flux.GRUv3Cell");
    bm_array(&m, 2, 3, 1), bm_array(&m, 2, 2, 1), bm_array(&m, 1, 3), bm_array(&m, 2, 1, 1);
    bm_end(&m);
    bm_struct(&m, "Flux.Bilinear");
    bm_array(&m, 3, 2, 1, 2), bm_array(&m, 1, 2), bm_function(&m, "NNlib.#relu");
    bm_end(&m);
    bm_struct(&m, "Flux.GroupNorm");
    bm_integer(&m, 1), bm_function(&m, "NNlib.#relu");
    for (int i = 0; i < 2; i++) bm_array(&m, 1, 1);
    bm_null(&m), bm_null(&m), bm_float(&m, 1e-5f), bm_float(&m, 0.1f);
    bm_bool(&m, 1), bm_bool(&m, 0), bm_null(&m), bm_integer(&m, 1);
    bm_end(&m);
    bm_struct(&m, "Flux.AdaptiveMaxPool"), bm_integers(&m, 2, 1, 2), bm_end(&m);
    bm_struct(&m, "Flux.Embedding"), bm_array(&m, 2, 1, 2), bm_integer(&m, 2), bm_end(&m);
    bm_struct(&m, "Flux.EmbeddingBag");
    bm_array(&m, 2, 1, 2), bm_function(&m, "Statistics.#mean");
    bm_end(&m);
    bm_end(&m), bm_end(&m);
    bm_finish(&m);
    return m;
}

static void set_length(uint8_t *bytes, size_t n)
{
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(n >> (8 * i));
}

TEST(cut_anywhere)
{
    bson_maker m = everything();
    wb_set_log(NULL, NULL);
    outcome whole = read_bytes(m.bytes, m.n);
    assert_true(!whole.table && !whole.outline && !whole.substituted);
    for (size_t n = 0; n < m.n; n++) {
        uint8_t *copy = malloc(n + 8);
        memcpy(copy, m.bytes, n);
        outcome out = read_bytes(copy, n);
        assert_true(out.table && out.outline && out.model);
        set_length(copy, n + 1);                    /* with the right length and an end */
        copy[n] = 0;
        if (n > 3) read_bytes(copy, n + 1);
        free(copy);
    }
    bm_free(&m);
}

TEST(changed_anywhere)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x02, 0x10};
    bson_maker m = everything();
    for (size_t i = 0; i < m.n; i++)
        for (size_t k = 0; k < WB__COUNT(masks); k++) {
            m.bytes[i] ^= masks[k];
            read_bytes(m.bytes, m.n);
            m.bytes[i] ^= masks[k];
        }
    bm_free(&m);
    m = more();
    outcome whole = read_bytes(m.bytes, m.n);
    if (whole.table || whole.outline || whole.model) fail_msg("%s", wb_error());
    for (size_t i = 0; i < m.n; i++)
        for (size_t k = 0; k < 2; k++) {
            m.bytes[i] ^= masks[k];
            read_bytes(m.bytes, m.n);
            m.bytes[i] ^= masks[k];
        }
    bm_free(&m);
}

/* ---- references ------------------------------------------------------------------------------ */

TEST(circles)
{
    bson_maker m = begun();
    bm_ref(&m, 1);
    bm_key(&m, "_backrefs");
    bm_list(&m), bm_ref(&m, 2), bm_ref(&m, 1);
    EXPECT_REFUSAL(&m, "references");

    m = begun();                                    /* a chain that contains itself */
    bm_ref(&m, 1);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m), bm_ref(&m, 1), bm_ref(&m, 1), bm_end(&m);
    bm_end(&m);
    outcome out = read_made(&m);
    assert_true(out.table && out.outline && out.model);

    m = begun();                                    /* an unknown struct that contains itself */
    bm_ref(&m, 1);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    bm_struct(&m, "Main.Own");
    bm_list(&m), bm_ref(&m, 1), bm_ref(&m, 1), bm_close(&m);
    bm_end(&m);
    out = read_made(&m);
    assert_true(out.table && out.outline && out.model);

    m = begun();                                    /* a reference to itself as a type */
    bm_tag(&m, "struct"), bm_key(&m, "type"), bm_ref(&m, 1), bm_key(&m, "data"), bm_list(&m),
        bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m), bm_ref(&m, 1);
    EXPECT_REFUSAL(&m, "references");

    m = begun();
    bm_ref(&m, 3);
    bm_key(&m, "_backrefs"), bm_list(&m), bm_null(&m);
    EXPECT_REFUSAL(&m, "3", "\"_backrefs\"", "1");
    m = begun();
    bm_ref(&m, -1);
    EXPECT_REFUSAL(&m, "-1", "\"_backrefs\"", "0");
    m = begun();
    bm_null(&m);
    bm_key(&m, "_backrefs"), bm_integer(&m, 1);
    EXPECT_REFUSAL(&m, "\"_backrefs\"", "list");
}

/* Each entry of _backrefs refers to the next one twice: 2^60 layers in a file of 6 KB. */
TEST(unfolding)
{
    for (int kind = 0; kind < 3; kind++) {
        bson_maker m = begun();
        bm_ref(&m, 1);
        bm_key(&m, "_backrefs");
        bm_list(&m);
        for (int i = 0; i < 60; i++) {
            if (kind == 0) bm_struct(&m, "Flux.Chain"), bm_tuple(&m);
            else if (kind == 1) bm_struct(&m, "Main.Own");
            else bm_document(&m);
            if (kind == 2) bm_key(&m, "a");
            bm_ref(&m, i + 2);
            if (kind == 2) bm_key(&m, "b");
            bm_ref(&m, i + 2);
            if (kind == 0) bm_end(&m);
            if (kind < 2) bm_end(&m);
            else bm_close(&m);
        }
        dense(&m, 2, 2);
        outcome out = read_made(&m);
        assert_true(out.table && out.outline && out.model);
    }
    /* One layer of a megabyte, a thousand times in one chain */
    bson_maker m = begun();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    for (int i = 0; i < 1000; i++) bm_ref(&m, 1);
    bm_end(&m), bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    dense(&m, 500, 500);
    outcome out = read_made(&m);
    assert_true(out.model && HAS_FACTS(refusal, "hostile.bson", "parts"));
    assert_true(out.table);
}

/* A GRUv3 of a megabyte, whose weights are joined, a thousand times in one chain. */
TEST(joined_again_and_again)
{
    bson_maker m = begun();
    bm_struct(&m, "Flux.Chain");
    bm_tuple(&m);
    for (int i = 0; i < 1000; i++) {
        bm_struct(&m, "Flux.GRUv3Cell");
        for (int k = 1; k < 5; k++) bm_ref(&m, k);
        bm_end(&m);
    }
    bm_end(&m), bm_end(&m);
    bm_key(&m, "_backrefs");
    bm_list(&m);
    bm_array(&m, 2, 750, 1), bm_array(&m, 2, 750, 250), bm_array(&m, 1, 750);
    bm_array(&m, 2, 250, 250);
    outcome out = read_made(&m);
    assert_true(out.model && HAS_FACTS(refusal, "hostile.bson", "parts"));
    assert_true(out.table);
}

TEST(wide)
{
    for (int kind = 0; kind < 3; kind++) {
        bson_maker m = begun();
        if (kind) bm_struct(&m, kind == 1 ? "Flux.Chain" : "Main.Own");
        bm_list(&m);
        for (int i = 0; i < 20000; i++) {
            if (kind == 0) bm_null(&m);
            else if (kind == 1) bm_function(&m, "NNlib.#relu");
            else bm_ref(&m, 1);
        }
        bm_close(&m);
        if (kind) bm_end(&m);
        bm_key(&m, "_backrefs");
        bm_list(&m);
        bm_array(&m, 1, 1);
        outcome out = read_made(&m);
        assert_true(out.model);
        assert_false(out.table && kind < 2);
    }
}

/* ---- nesting --------------------------------------------------------------------------------- */

TEST(deep)
{
    static const char *const types[] = {
        "Flux.Chain",           "Flux.SkipConnection",   "Main.Own",
        "Tracker.TrackedArray", "LinearAlgebra.Adjoint", "Base.Fix1"};
    for (size_t kind = 0; kind < WB__COUNT(types) + 2; kind++) {
        bson_maker m = begun();
        for (int i = 0; i < 10000; i++) {
            if (kind == WB__COUNT(types)) bm_list(&m);
            else if (kind > WB__COUNT(types)) bm_document(&m), bm_key(&m, "layers");
            else bm_struct(&m, types[kind]);
            if (kind == 0) bm_list(&m);
            if (kind == 3) bm_null(&m);
        }
        bm_null(&m);
        outcome out = read_made(&m);
        assert_true(out.model);
        assert_true(out.table || kind == 4);
    }
}

/* ---- wrong numbers --------------------------------------------------------------------------- */

TEST(arrays_of_wrong_sizes)
{
    static const struct { int n; int64_t sizes[3]; size_t bytes; const char *facts[5]; } wrong[] = {
        {2, {3, 3}, 35, {"9", "Float32", "35", "bytes"}},
        {2, {1000000, 1000000}, 4, {"1000000000000", "Float32", "4", "bytes"}},
        {3, {(int64_t)1 << 31, (int64_t)1 << 31, 4}, 0, {"Float32", "sizes"}},
        {2, {(int64_t)1 << 62, 1}, 0, {"4611686018427387904", "Float32", "0", "bytes"}},
        {2, {-3, -3}, 36, {"Float32", "sizes"}},
        {2, {0, INT64_MAX}, 4, {"0", "Float32", "4", "bytes"}}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        bson_maker m = begun();
        char data[64] = {0};
        bm_struct(&m, "Flux.Embedding");
        bm_bytes(&m, "Core.Float32", wrong[i].n, wrong[i].sizes, data, wrong[i].bytes);
        expect_refusal(&m, wrong[i].facts);
    }
    bson_maker m = begun();
    bm_struct(&m, "Flux.Embedding"), bm_bytes(&m, "Core.Bool", 1, (int64_t[]){3}, "\1\0\2", 3);
    EXPECT_REFUSAL(&m, "array", "Bool", "2");
    /* An array with more axes than a tensor may have is an entry without a dtype. */
    m = begun();
    bm_list(&m);
    bm_bytes(&m, "Core.Float32", 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, "abcd", 4);
    assert_false(read_made(&m).table);
}

/* Layers whose options are invalid or do not fit their arrays: the table is read, the model is
 * not. */
TEST(layers_that_do_not_fit)
{
    for (int kind = 0; kind < 8; kind++) {
        bson_maker m = begun();
        switch (kind) {
        case 0: case 1: case 2:
            bm_struct(&m, "Flux.Conv");
            bm_function(&m, "Base.#identity");
            bm_array(&m, 4, 1, 1, 1, 2), bm_array(&m, 1, 2);
            bm_integers(&m, 2, kind == 0 ? 0 : 1, 1), bm_integers(&m, 2, kind == 1 ? -1 : 0, 0),
                bm_integers(&m, 2, 1, 1);
            bm_integer(&m, kind == 2 ? INT64_MAX : 1);
            break;
        case 3:
            bm_struct(&m, "Flux.LayerNorm");
            bm_function(&m, "Base.#identity"), bm_function(&m, "Base.#identity"), bm_float(&m, 1);
            bm_integers(&m, 2, -4, 5), bm_bool(&m, 0);
            break;
        case 4:
            bm_struct(&m, "Flux.Dropout");
            bm_real(&m, 7), bm_function(&m, "Core.Colon"), bm_null(&m);
            break;
        case 5:
            bm_struct(&m, "Flux.LSTMCell");
            bm_array(&m, 2, 8, 2), bm_array(&m, 2, 8, 3), bm_array(&m, 1, 8);
            break;
        case 6:
            bm_struct(&m, "Flux.Dense");
            bm_array(&m, 2, 3, 2), bm_array(&m, 1, 4), bm_function(&m, "Base.#identity");
            break;
        case 7:
            bm_struct(&m, "Flux.BatchNorm");
            bm_function(&m, "Base.#identity");
            for (int i = 0; i < 4; i++) bm_array(&m, 1, 3);
            bm_float(&m, -1), bm_float(&m, 5), bm_null(&m);
            break;
        }
        assert_true(read_made(&m).table == 0);
        if (!HAS_FACTS(refusal, "hostile.bson", "unknown", "\"model\""))
            fail_msg("%d: %s", kind, refusal);
    }
}

TEST(other_bytes)
{
    bson_maker m = begun();
    bm_element(&m, 9), bm_raw(&m, "12345678", 8);
    EXPECT_REFUSAL(&m, "element", "0x09", "BSON.jl");
    m = begun();
    bm_element(&m, 0x77);
    EXPECT_REFUSAL(&m, "BSON", "element", "0x77");
    outcome out = read_bytes((const uint8_t *)"\5\0\0\0\0", 5);
    assert_true(out.table && out.model && !out.outline);
    out = read_bytes((const uint8_t *)"\xff\xff\xff\xff\0", 5);
    assert_true(out.table && out.model && out.outline);
    m = begun();                                    /* names of a megabyte, and an empty one */
    char *name = malloc(1 << 20);
    memset(name, 'n', 1 << 20);
    name[(1 << 20) - 1] = 0;
    bm_document(&m);
    for (int i = 0; i < 3; i++) {
        name[0] = (char)('a' + i);
        bm_key(&m, name), bm_array(&m, 1, 1);
    }
    bm_key(&m, "\xff\xfe\x01."), bm_array(&m, 1, 1);
    bm_key(&m, ""), bm_array(&m, 1, 1);
    free(name);
    assert_false(read_made(&m).table);
}

/* Each allocation fails in turn: the reader fails, and holds no memory afterwards. */
TEST(without_memory)
{
    bson_maker m = everything();
    wb__mapping map = {.path = (char *)(uintptr_t)"hostile.bson", .data = m.bytes,
                       .bytes = (int64_t)m.n};
    for (int reader = 0; reader < 3; reader++)
        for (int64_t n = 1;; n++) {
            wb_scope *s = wb_scope_open();
            wb_load_options o = WB_OPTIONS_OF(wb_load_options, .substitute = substitute,
                                              .ctx = wb_layer_from_function(wb_relu));
            int64_t used = wb_memory_used();
            wb__table t;
            wb_clear_error();
            wb__alloc_fail_at(n);
            bool ok = reader == 0   ? !wb__flux_table(&map, NULL, &t)
                      : reader == 1 ? !wb__flux_outline(&map, row, NULL)
                                    : wb__flux_load(&map, &o) != NULL;
            bool failed = wb__alloc_count() >= n;
            wb__alloc_fail_at(0);
            if (ok && reader == 0) wb__table_free(&t);
            if (!ok && wb_error_code() != WB_ERROR_MEMORY)
                fail_msg("%d, %d: %s", reader, (int)n, wb_error());
            if (reader < 2) assert_int_equal(wb_memory_used(), used);
            wb_scope_close(s);
            if (!failed) {
                assert_true(ok);
                break;
            }
            if (ok) fail_msg("%d, %d: nothing failed: %s", reader, (int)n, wb_error());
        }
    bm_free(&m);
}

int main(void)
{
    outcome none = read_bytes((const uint8_t *)"\5\0\0\0", 5);
    if (none.table == WB_ERROR_UNSUPPORTED) return printf("SKIP: %s\n", wb_error()), 0;
    return run_all_cases();
}
