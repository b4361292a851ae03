/* JLD2 files, read by libhdf5 where it is installed: states of Flux as JLD2.jl writes them
 * (data/make_jld2.py), and broken and hostile files. */
#include "folder.h"
#include "test.h"

#include "base/files/file.h"
#include "io/formats.h"

#include <unistd.h>

#include "weber.h"

#define STATE WB_TEST_DATA "/state.jld2"
#define LARGE WB_TEST_DATA "/large.jld2"

/* This is the first test, because the library stays open. */
TEST(without_libhdf5)
{
    setenv("WEBER_HDF5_LIBRARY", WB_TEST_NOWHERE "/libhdf5.so", 1);
    REFUSED(wb_load_tensors(STATE), WB_ERROR_UNSUPPORTED, "state.jld2",
            WB_TEST_NOWHERE "/libhdf5.so", "libhdf5-103-1", "WEBER_HDF5_LIBRARY");
    unsetenv("WEBER_HDF5_LIBRARY");
}

/* Skips the test where libhdf5 is not installed. */
static void needs_libhdf5(void)
{
    wb_scope *s = wb_scope_open();
    wb_tree *t = wb_load_tensors(STATE);
    const bool lacks = !t && wb_error_code() == WB_ERROR_UNSUPPORTED;
    if (!t && !lacks) fail_msg("%s", wb_error());
    wb_scope_close(s);
    if (!lacks) return;
    printf("SKIP: %s\n", wb_error());
    wb_clear_error();
    fflush(stdout);
    skip();
}

static void equal(void *model, const char *path, const char *shape, int n, const double *want)
{
    wb_tensor *x = wb_get(model, path);
    if (!x) fail_msg("%s: %s", path, wb_error());
    assert_string_equal(wb_describe(x), shape);
    assert_int_equal(wb_size(x), n);
    x = wb_reshape(x, -1);
    for (int i = 0; i < n; i++)
        if (wb_at(x, i) != want[i])
            fail_msg("%s [%d] is %g, not %g", path, i, wb_at(x, i), want[i]);
}
#define EQUAL(path, shape, ...)                                                                \
    equal(m, path, shape, sizeof((double[]){__VA_ARGS__}) / sizeof(double),                    \
          (double[]){__VA_ARGS__})

/* The elements of most arrays count up from 0 in the order of Julia's memory. */
TEST_IN_SCOPE(a_state)
{
    needs_libhdf5();
    wb_layer *m = wb_Chain(wb_Conv(1, 2, {2, 3}, .flip = true), wb_BatchNorm(2), wb_relu,
                           wb_Dense(3, 2), wb_Dense(2, 3, .bias = false), wb_LayerNorm({3}),
                           wb_GRUv3(1, 2), wb_Bilinear(1, 3, 2), wb_Embedding(3, 4));
    if (wb_load_state(STATE, m)) fail_msg("%s", wb_error());
    EQUAL("layers.0.weight", "[2,1,2,3] f32", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    EQUAL("layers.1.bias", "[2] f32", 0, 1);
    EQUAL("layers.1.scale", "[2] f32", 5, 6);
    EQUAL("layers.1.mean", "[2] f32", 1, 2);
    EQUAL("layers.1.var", "[2] f32", 3, 4);
    EQUAL("layers.3.weight", "[2,3] f32", 0, 2, 4, 1, 3, 5);
    EQUAL("layers.3.bias", "[2] f32", 0, 1);
    EQUAL("layers.4.weight", "[3,2] f32", 0, 3, 1, 4, 2, 5);
    EQUAL("layers.5.scale", "[3] f32", 0, 1, 2);
    EQUAL("layers.6.weight_input", "[6,1] f32", 0, 1, 2, 3, 4, 5);
    EQUAL("layers.6.weight_hidden", "[6,2] f32", 0, 6, 1, 7, 2, 8, 3, 9, 12, 14, 13, 15);
    EQUAL("layers.7.weight", "[2,1,3] f32", 0, 2, 4, 1, 3, 5);
    EQUAL("layers.8.weight", "[3,4] f32", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);

    /* Into a convolution that does not flip, the kernels are flipped. */
    wb_layer *plain = wb_Chain(wb_Conv(1, 2, {2, 3}));
    if (wb_load_state(STATE, plain, .lenient = true)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(plain, "layers.0.weight"), 0, 0, 0, 0) == 5);
    REFUSED(wb_load(STATE), WB_ERROR_FORMAT, "state.jld2");
    FAILS(wb_save(in_folder("x.jld2"), m), WB_ERROR_ARGUMENT, "save", "JLD2");
}

/* A struct of more than 1 KiB is a dataset; lists are datasets of references. */
TEST_IN_SCOPE(variables)
{
    needs_libhdf5();
    wb__table t;
    wb_tree *m = wb_load_tensors(LARGE);                /* "model_state", of three variables */
    if (!m) fail_msg("%s", wb_error());
    EQUAL("layers.1.weight", "[2,2] f32", 0, 2, 1, 3);
    if (wb__table_load(LARGE, "epoch", true, &t)) fail_msg("%s", wb_error());
    assert_true(t.n == 1 && !strcmp(t.entries[0].name, "epoch"));
    wb__table_free(&t);
    if (wb__table_load(LARGE, "kinds", true, &t)) fail_msg("%s", wb_error());
    char names[1000] = "";
    for (int i = 0; i < t.n; i++) {
        const wb__entry *e = &t.entries[i];
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s %s %lld; ", e->name,
                 e->dtype ? wb_dtype_name(e->dtype) : e->type, (long long)e->bytes);
    }
    assert_string_equal(names, "i2 i32 4; i4 i32 16; list.0 f64 16; list.1.a f16 4; "
                               "list.1.b bool 2; none f32 0; plain.mean f32 8; plain.var f32 8; ");
    wb__table_free(&t);
    assert_int_equal(wb__table_load(LARGE, "weights", true, &t), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "large.jld2", "\"weights\"", "model_state", "epoch", "kinds");
}

/* Bools of h5py are bools, and what Weber lacks is named. A dot in a name becomes _. */
TEST_IN_SCOPE(other_elements)
{
    needs_libhdf5();
    wb_tree *m = wb_load_tensors(WB_TEST_DATA "/bools.jld2");
    if (!m) fail_msg("%s", wb_error());
    EQUAL("flags", "[16] bool", 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1);
    EQUAL("fc_weight", "[2] f32", 3, 4);
    REFUSED(wb_load_tensors(WB_TEST_DATA "/dots.jld2"), WB_ERROR_FORMAT, "\"a_b\"", "dot");

    REFUSED(wb_load_tensors(WB_TEST_DATA "/kinds.jld2"), WB_ERROR_DTYPE, "\"colour\": Enum",
            "\"complex\": Complex", "\"point\": Struct");

    int64_t bytes, at = 0;
    uint8_t *whole = (uint8_t *)wb__file_read(WB_TEST_DATA "/bools.jld2", &bytes);
    static const uint8_t flags[8] = {1, 0, 1, 1, 0, 0, 0, 1};
    while (at + 8 < bytes && memcmp(whole + at, flags, 8)) at++;
    whole[at] = 2;
    assert_int_equal(wb__file_write(in_folder("two.jld2"), whole, bytes), 0);
    wb__free(whole);
    REFUSED(wb_load_tensors(in_folder("two.jld2")), WB_ERROR_FORMAT, "\"flags\"", "neither 0");
}

TEST_IN_SCOPE(hostile_files)
{
    needs_libhdf5();
    REFUSED(wb_load_tensors(WB_TEST_DATA "/link.jld2"), WB_ERROR_FORMAT, "model", "another file");
    REFUSED(wb_load_tensors(WB_TEST_DATA "/outside.jld2"), WB_ERROR_FORMAT, "x", "another file");
    REFUSED(wb_load_tensors(WB_TEST_DATA "/itself.jld2"), WB_ERROR_FORMAT, "deep");
    int64_t bytes;
    uint8_t *whole = (uint8_t *)wb__file_read(STATE, &bytes);
    assert_non_null(whole);
    for (int64_t n = 520; n < bytes; n += bytes / 13) {         /* cut off */
        assert_int_equal(wb__file_write(in_folder("cut.jld2"), whole, n), 0);
        REFUSED(wb_load_tensors(in_folder("cut.jld2")), WB_ERROR_FORMAT, "cut.jld2");
    }
    for (int64_t i = 512; i < bytes; i += 61) {                 /* changed: an error, or a tree */
        whole[i] ^= 0xff;
        assert_int_equal(wb__file_write(in_folder("changed.jld2"), whole, bytes), 0);
        wb_scope *s = wb_scope_open();
        if (!wb_load_tensors(in_folder("changed.jld2"))) assert_true(*wb_error());
        wb_scope_close(s);
        wb_clear_error();
        whole[i] ^= 0xff;
    }
    wb__free(whole);
}

TEST_IN_SCOPE(without_memory)
{
    needs_libhdf5();
    int64_t n = 1;
    for (;; n++) {
        wb_scope *s = wb_scope_open();
        wb__alloc_fail_at(n);
        const wb_tree *t = wb_load_tensors(STATE);
        wb__alloc_fail_at(0);
        const int code = (int)wb_error_code();
        wb_scope_close(s);
        if (t) break;
        assert_int_equal(code, WB_ERROR_MEMORY);
        wb_clear_error();
    }
    assert_true(n > 40);
}

int main(void) { return run_cases(make_folder, remove_folder); }
