/* The hash tables of the library, filled with values like those that they get.  A good hash leaves
 * short runs with linear probing: of n entries in a table that is half full the longest has some
 * 3 ln(n) places.  Equal hashes of many values would make one run of all of them. */
#include "test.h"

#include "backend/gpu/runtime/runtime.h"
#include "base/table.h"
#include "engine/plan/ir.h"
#include "io/dataset/columns.h"
#include "io/onnx/read.h"
#include "io/text/tokenizer.h"

#include <math.h>

/* Checks the longest run of places in a table with n entries. */
static void check_runs(const char *what, int64_t n, const wb__hash_table *table)
{
    const int64_t size = table->capacity;
    int64_t longest = 0, run = 0, seen = 0;
    for (int64_t i = 0; i < 2 * size; i++) {            /* runs may go on at the beginning */
        const bool is = table->slots[i % size].key != 0;
        seen += is && i < size;
        run = is ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_int_equal(seen, n);
    const double free = 1 - (double)n / (double)size;       /* fuller tables have longer runs */
    if ((double)longest > (6 * log((double)n) + 40) / (4 * free * free))
        fail_msg("%s: %lld entries of %lld have a run of %lld", what, (long long)n, (long long)size,
                 (long long)longest);
}

/* Lists: with a good hash the longest of `lists` is near n / lists and 6 roots of it. */
static void check_lists(const char *what, int n, int lists, const int *length)
{
    const double mean = (double)n / lists;
    for (int i = 0; i < lists; i++)
        if (length[i] > mean + 6 * sqrt(mean) + 6)
            fail_msg("%s: %d of %d are in one of %d lists", what, length[i], n, lists);
}

static wb__value value_of(int op, int dtype)
{
    return (wb__value){.op = (uint16_t)op, .dtype = (uint8_t)dtype, .number = -1, .leaf = -1};
}

/* Run-time numbers and literals; leaves; long chains; slices; reshapes of many sizes. */
TEST(values_of_plans)
{
    enum { N = 20000 };
    for (int kind = 0; kind < 7; kind++) {
        wb__ir ir = {0};
        int x = 0;
        for (int i = 0; i < N; i++) {
            wb__value v = value_of(WB__OP_literal, WB_F32);
            const int leaf = i;
            switch (kind) {
            case 0: v.number = i; break;                            /* wb_scalar */
            case 1: v.fixed = true, v.value = i; break;
            case 2: v.fixed = true, v.value = 1.0 / (i + 1); break;
            case 3:
                v.op = WB__OP_constant, v.leaf = leaf, v.ndim = 2, v.dims[0] = v.dims[1] = 64;
                break;
            case 4: v.op = WB__OP_uniform, v.number = 2 * i, v.ndim = 1, v.dims[0] = 8; break;
            case 5:
                v.op = WB__OP_constant, v.leaf = 0, v.ndim = 2, v.dims[0] = i % 141 + 1;
                v.dims[1] = i / 141 + 1;
                break;
            default:                                                /* sin(sin(sin(x))) */
                v.ndim = 1, v.dims[0] = 4, v.op = i ? WB__OP_sin : WB__OP_constant;
                if (!i) v.leaf = 0;
            }
            x = wb__ir_make(&ir, v, kind == 6 && i, &x, 0, NULL);
        }
        assert_false(ir.failed);
        char what[40];
        snprintf(what, sizeof what, "values of kind %d", kind);
        check_runs(what, N, &ir.table);
        wb__ir_free(&ir);
    }
}

/* Addresses of objects that follow each other, and of pages. */
TEST(addresses)
{
    static const uintptr_t steps[] = {16, 48, 64, 192, 4096, 1 << 21};
    for (size_t k = 0; k < WB__COUNT(steps); k++) {
        wb__pointer_map m = {0};
        for (uintptr_t i = 1; i <= 20000; i++)
            assert_true(wb__pointer_map_put(&m, (void *)(0x7f0000000000u + i * steps[k]), 1));
        char what[40];
        snprintf(what, sizeof what, "addresses %zu apart", (size_t)steps[k]);
        check_runs(what, m.n, &m);
        wb__pointer_map_free(&m);
    }
}

static void name_of(int kind, int i, char text[48])
{
    static const char *const forms[] = {"%d", "w%d", "%08d", "layers.%d.weight",
                                        "/model/h.%d/Add_output_0", "2026-11-%d"};
    snprintf(text, 48, forms[kind], i);
}

TEST(words_of_columns_and_names_of_onnx)
{
    enum { N = 20000, LISTS = 4096 };
    for (int kind = 0; kind < 6; kind++) {
        wb__words w = {0};
        int length[LISTS] = {0};
        for (int i = 0; i < N; i++) {
            char text[48];
            name_of(kind, i, text);
            wb__cells cells = {0};
            const wb__cell cell = {text, (int)strlen(text), false};
            assert_int_equal(wb__words_add(&w, &cells, cell), i);
            const wb__span name = {text, strlen(text)};
            length[wb__name_hash(0x7f0012345678, name) & (LISTS - 1)]++;
        }
        char what[40];
        snprintf(what, sizeof what, "words of kind %d", kind);
        check_runs(what, N, &w.table);
        check_lists(what, N, LISTS, length);
        wb__words_clear(&w);
    }
}

TEST(words_of_tokenizers)
{
    for (int kind = 0; kind < 6; kind++) {
        wb__trie t = {0};
        for (int i = 0; i < 20000; i++) {
            char text[48];
            name_of(kind, i, text);
            int32_t *at = wb__trie_at(&t, text, strlen(text));
            assert_non_null(at);
            *at = i;
        }
        char what[40];
        snprintf(what, sizeof what, "tokens of kind %d", kind);
        check_runs(what, t.n_nodes - 1, &t.edges);
        wb__trie_free(&t);
    }
}

/* Pairs of letters, and of a letter with longer and longer tokens. */
TEST(merges_of_tokenizers)
{
    enum { SIDE = 120 };
    for (int kind = 0; kind < 2; kind++) {
        wb_tokenizer t = {.path = "test", .prefix = ""};
        char a[16], b[16], both[32];
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                snprintf(a, sizeof a, "a%d", kind ? i * SIDE + j : i);
                snprintf(b, sizeof b, "b%d", kind ? 0 : j);
                snprintf(both, sizeof both, "%s%s", a, b);
                const char *const text[3] = {a, b, both};
                for (int k = 0; k < 3; k++) {
                    int32_t *at = wb__trie_at(&t.vocabulary, text[k], strlen(text[k]));
                    if (*at < 0) *at = (int32_t)t.vocabulary.n_nodes;
                }
            }
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                snprintf(a, sizeof a, "a%d", kind ? i * SIDE + j : i);
                snprintf(b, sizeof b, "b%d", kind ? 0 : j);
                assert_int_equal(wb__merges_add(&t, a, b, i * SIDE + j), 0);
            }
        check_runs(kind ? "merges with one token" : "merges", SIDE * SIDE, &t.merges);
        wb__hash_free(&t.merges);
        wb__trie_free(&t.vocabulary);
    }
}

/* Texts of kernels that differ in a number, as generated ones do. */
TEST(texts_of_kernels)
{
    enum { N = 20000 };
    static const char *const forms[] = {"KERNEL f%d(a) { }",
                                        "const f32 v%d = a.n0 * v3;\nconst i32 x = 4;", "%d"};
    for (size_t kind = 0; kind < WB__COUNT(forms); kind++) {
        int length[WB__GPU_BUCKETS] = {0};
        for (int i = 0; i < N; i++) {
            char text[80];
            snprintf(text, sizeof text, forms[kind], i);
            length[wb__gpu_text_hash(text, 0) % WB__GPU_BUCKETS]++;
        }
        check_lists("texts of kernels", N, WB__GPU_BUCKETS, length);
    }
}
