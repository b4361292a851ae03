/* Files of torch.save: two of PyTorch 2.15 (data/make_pt.py), and broken and hostile ones. */
#include "folder.h"
#include "python.h"

#include "weber.h"

static bool has_python;

#ifndef WB_HAVE_ZIP

TEST(without_libzip)
{
    REFUSED(wb_load_tensors(WB_TEST_DATA "/state.pt"), WB_ERROR_UNSUPPORTED, "libzip-dev");
}

#else

static void equal(wb_tree *tree, const char *path, wb_dtype dtype, int ndim, const int64_t *dims,
                  int n, const double *want)
{
    wb_tensor *x = wb_get(tree, path);
    if (!x) fail_msg("%s: %s", path, wb_error());
    assert_int_equal(wb_dtype_of(x), dtype);
    assert_int_equal(wb_ndim(x), ndim);
    for (int i = 0; i < ndim; i++) assert_int_equal(wb_dim(x, i), dims[i]);
    assert_int_equal(wb_size(x), n);
    x = wb_reshape(x, -1);
    for (int i = 0; i < n; i++)
        if (wb_at(x, i) != want[i])
            fail_msg("%s [%d] is %g, not %g", path, i, wb_at(x, i), want[i]);
}
#define DIMS(...) \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}
#define EQUAL(path, dtype, dims, ...)                                                          \
    equal(t, path, dtype, dims, sizeof((double[]){__VA_ARGS__}) / sizeof(double),              \
          (double[]){__VA_ARGS__})

TEST_IN_SCOPE(a_state)
{
    wb_tree *t = wb_load_tensors(WB_TEST_DATA "/state.pt");
    if (!t) fail_msg("%s", wb_error());
    EQUAL("0.weight", WB_F32, DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    EQUAL("2.bias", WB_F32, DIMS(1), 30);
    wb_layer *m = wb_Chain(wb_Dense(3, 2, wb_relu), wb_Dense(2, 1));
    if (wb_load_state(WB_TEST_DATA "/state.pt", m, .names = WB_NAMES_TORCH))
        fail_msg("%s", wb_error());
    /* (1, 2, 3) -> (8 + 10, 26 + 11) -> 20 18 + 21 37 + 30 */
    wb_tensor *x = wb_from(((float[]){1, 2, 3}), WB_F32, 2, (int64_t[]){1, 3});
    assert_true(wb_item(wb_call(m, x)) == 20 * 18 + 21 * 37 + 30);
    REFUSED(wb_load(WB_TEST_DATA "/state.pt"), WB_ERROR_FORMAT, "state.pt");
    FAILS(wb_save(in_folder("x.pt"), m), WB_ERROR_ARGUMENT, "save", "PT");
}

TEST_IN_SCOPE(a_checkpoint)
{
    wb_tree *t = wb_load_tensors(WB_TEST_DATA "/checkpoint.pt");
    if (!t) fail_msg("%s", wb_error());
    EQUAL("whole", WB_F64, DIMS(3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    EQUAL("turned", WB_F64, DIMS(4, 3), 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
    EQUAL("slice", WB_F64, DIMS(2, 2), 5, 6, 9, 10);
    EQUAL("spread", WB_F64, DIMS(2, 4), 0, 1, 2, 3, 0, 1, 2, 3);
    EQUAL("parameter", WB_F32, DIMS(2), 1.5, 2.5);
    EQUAL("model.weight", WB_F32, DIMS(3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    EQUAL("list.0", WB_F16, DIMS(3), 1, -2, 3);
    EQUAL("list.1", WB_BF16, DIMS(3), 1, -2, 3);
    EQUAL("list.2", WB_I8, DIMS(3), 1, -2, 3);
    EQUAL("list.3", WB_I32, DIMS(3), 1, -2, 3);
    EQUAL("list.4", WB_I64, DIMS(3), 1, -2, 3);
    EQUAL("list.5", WB_BOOL, DIMS(3), 1, 1, 1);
    EQUAL("list.6.0", WB_U8, DIMS(1), 200);
    assert_true(wb_item(wb_get(t, "scalar")) == 2.5 && wb_ndim(wb_get(t, "scalar")) == 0);
    assert_true(wb_item(wb_get(t, "optimizer.state.0.step")) == 3);
    assert_int_equal(wb_dim(wb_get(t, "empty"), 1), 3);
    assert_null(wb_get(t, "epoch"));
    wb_clear_error();
}

/* The same contents in all protocols that torch.save writes, with integers that Weber widens. */
TEST_IN_SCOPE(protocols)
{
    static const char *const files[] = {"protocol1.pt", "protocol2.pt", "protocol4.pt",
                                        "protocol5.pt"};
    for (int i = 0; i < 4; i++) {
        char path[600];
        snprintf(path, sizeof path, WB_TEST_DATA "/%s", files[i]);
        wb_tree *t = wb_load_tensors(path);
        if (!t) fail_msg("%s", wb_error());
        EQUAL("whole", WB_F32, DIMS(2, 3), 0, 1, 2, 3, 4, 5);
        EQUAL("row", WB_F32, DIMS(3), 3, 4, 5);
        EQUAL("spread", WB_F32, DIMS(2, 3), 0, 1, 2, 0, 1, 2);
        EQUAL("i16", WB_I32, DIMS(2), -3, 300);
        EQUAL("u16", WB_I32, DIMS(2, 1), 65535, 1);
        EQUAL("turned", WB_I32, DIMS(2, 2), 1, -3, 2, 4);
        EQUAL("u32", WB_I64, DIMS(2), 4294967295, 2);
        EQUAL("parameter", WB_F32, DIMS(1), 1.5);
        EQUAL("list.0", WB_I64, DIMS(2), 1, 2);
        EQUAL("list.1.0", WB_BOOL, DIMS(2), 1, 0);
        EQUAL("ordered.weight", WB_F64, DIMS(2, 3), 0, 1, 2, 3, 4, 5);
        assert_null(wb_get(t, "others"));
        wb_clear_error();
    }
}

TEST_IN_SCOPE(hostile_files)
{
    static const struct { const char *file; int code; const char *facts[4]; } rows[] = {
        {"executes.pt", WB_ERROR_UNSUPPORTED, {"posix.system"}},
        {"class.pt", WB_ERROR_UNSUPPORTED, {"__main__.Net"}},
        {"object.pt", WB_ERROR_UNSUPPORTED, {"__main__.Net"}},
        {"opcode.pt", WB_ERROR_UNSUPPORTED, {"data.pkl", "0x81"}},
        {"beyond.pt", WB_ERROR_FORMAT, {"\"x\"", "storage"}},
        {"offset.pt", WB_ERROR_FORMAT, {"\"x\"", "storage"}},
        {"negative.pt", WB_ERROR_FORMAT, {"\"x\"", "strides"}},
        {"strides.pt", WB_ERROR_FORMAT, {"\"x\"", "strides"}},
        {"sizes.pt", WB_ERROR_SHAPE, {"x", "-4"}},
        {"large.pt", WB_ERROR_FORMAT, {"wb_set_unpack_limit"}},
        {"axes.pt", WB_ERROR_SHAPE, {"more than 8 axes", "\"x\": Float with 9 axes"}},
        {"missing.pt", WB_ERROR_FORMAT, {"a/data/1"}},
        {"outside.pt", WB_ERROR_FORMAT, {"a/data/../../x"}},
        {"elements.pt", WB_ERROR_FORMAT, {"16", "5"}},
        {"complex.pt", WB_ERROR_DTYPE, {"ComplexFloat"}},
        {"twice.pt", WB_ERROR_FORMAT, {"\"x\""}},
        {"itself.pt", WB_ERROR_FORMAT, {"64"}},
        {"many.pt", WB_ERROR_FORMAT, {"deeper than 64"}},
        {"frame.pt", WB_ERROR_UNSUPPORTED, {"torch.Thing", "model.state_dict()"}},
        {"global.pt", WB_ERROR_FORMAT, {"data.pkl", "class is no text"}},
        {"memoize.pt", WB_ERROR_FORMAT, {"data.pkl", "memo"}},
        {"bytes8.pt", WB_ERROR_FORMAT, {"data.pkl", "longer than the file"}},
        {"written.pt", WB_ERROR_FORMAT, {"data.pkl", "64 bits"}},
        {"ends.pt", WB_ERROR_FORMAT, {"data.pkl"}},
        {"stack.pt", WB_ERROR_FORMAT, {"data.pkl"}},
        {"nothing.pt", WB_ERROR_FORMAT, {"data.pkl"}},
        {"memo.pt", WB_ERROR_FORMAT, {"data.pkl", "memo"}},
        {"far.pt", WB_ERROR_FORMAT, {"data.pkl", "memo"}},
        {"longer.pt", WB_ERROR_FORMAT, {"\"x\"", "2 sizes", "0 strides"}},
        {"deflated.pt", WB_ERROR_FORMAT, {"compressed"}},
        {"big.pt", WB_ERROR_UNSUPPORTED, {"little-endian"}},
        {"damaged.pt", WB_ERROR_FORMAT, {"damaged"}},
        {"old.pt", WB_ERROR_FORMAT, {"1.6"}},
    };
    if (!has_python) skip();
    wb_set_unpack_limit(1 << 20);
    wb_tree *t = wb_load_tensors(in_folder("good.pt"));
    if (!t) fail_msg("%s", wb_error());
    EQUAL("x", WB_F32, DIMS(4), 1, 2, 3, 4);
    MADE(t = wb_load_tensors(in_folder("views.pt")));
    EQUAL("x", WB_F32, DIMS(2, 2), 2, 4, 2, 4);
    MADE(t = wb_load_tensors(in_folder("alone.pt")));
    EQUAL("0", WB_F32, DIMS(4), 1, 2, 3, 4);
    MADE(t = wb_load_tensors(in_folder("set.pt")));
    EQUAL("0", WB_F32, DIMS(4), 1, 2, 3, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (wb_load_tensors(in_folder(rows[i].file))) fail_msg("%s was read", rows[i].file);
        if (!failed_with(rows[i].code, rows[i].facts))
            fail_msg("%s: %s", rows[i].file, wb_error());
        wb_clear_error();
    }
}

#endif

static int make(void **state)
{
    if (make_folder(state)) return 1;
    has_python = python_has("zlib");
    return has_python && python_script("io/pt_files.py write", folder) != 0;
}

int main(void) { return run_cases(make, remove_folder); }
