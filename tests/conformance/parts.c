/* Parts of tensors: padding, slices, rows by index.  The numbers are those of PyTorch 2.15, or of
 * NumPy where PyTorch has no such function; gradients against differences. */
#include "literal.h"

static const double counts[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

CASE(constant, wb_pad(x, 1, 2, 1, .value = 7))
CASE(reflect, wb_pad(x, -1, 2, 3, .mode = WB_PAD_REFLECT))
CASE(replicate, wb_pad(x, 1, 2, 3, .mode = WB_PAD_REPLICATE))
CASE(symmetric, wb_pad(x, 1, 2, 3, .mode = WB_PAD_SYMMETRIC))
CASE(circular, wb_pad(x, 1, 2, 3, .mode = WB_PAD_CIRCULAR))
CASE(circular_rows, wb_pad(x, 0, 0, 3, .mode = WB_PAD_CIRCULAR))
CASE(reflect_rows, wb_pad(x, 0, 1, 0, .mode = WB_PAD_REFLECT))

static const literal rows[] = {
    {"constant", constant, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 7},
     {7, 7, 1, 2, 3, 4, 7, 7, 7, 5, 6, 7, 8, 7, 7, 7, 9, 10, 11, 12, 7}},
    {"reflect", reflect, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     {3, 2, 1, 2, 3, 4, 3, 2, 1, 7, 6, 5, 6, 7, 8, 7, 6, 5, 11, 10, 9, 10, 11, 12, 11, 10, 9}},
    {"replicate", replicate, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     {1, 1, 1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7, 8, 8, 8, 8, 9, 9, 9, 10, 11, 12, 12, 12, 12}},
    {"symmetric", symmetric, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     {2, 1, 1, 2, 3, 4, 4, 3, 2, 6, 5, 5, 6, 7, 8, 8, 7, 6, 10, 9, 9, 10, 11, 12, 12, 11, 10}},
    {"circular", circular, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     {3, 4, 1, 2, 3, 4, 1, 2, 3, 7, 8, 5, 6, 7, 8, 5, 6, 7, 11, 12, 9, 10, 11, 12, 9, 10, 11}},
    {"circular_rows", circular_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {6, 4},
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
    {"reflect_rows", reflect_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4, 4},
     {5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
};
enum { ROWS = sizeof rows / sizeof *rows };

TEST(values) { literal_values(rows, ROWS); }
TEST(gradients) { literal_gradients(rows, ROWS); }

TEST_IN_SCOPE(pad_errors)
{
    wb_tensor *x = wb_ones(2, 3), *k = wb_arange(3, WB_I32);
    REFUSED(wb_pad(x, 1, 3, 0, .mode = WB_PAD_REFLECT), WB_ERROR_SHAPE, "pad", "3", "[2,3] f32",
            "WB_PAD_REFLECT", "2");
    REFUSED(wb_pad(x, 1, 0, 4, .mode = WB_PAD_CIRCULAR), WB_ERROR_SHAPE, "4", "WB_PAD_CIRCULAR");
    REFUSED(wb_pad(x, 0, 0, 3, .mode = WB_PAD_SYMMETRIC), WB_ERROR_SHAPE, "3", "WB_PAD_SYMMETRIC");
    REFUSED(wb_pad(x, 0, -1, 0, .mode = WB_PAD_REPLICATE), WB_ERROR_SHAPE, "-1");
    REFUSED(wb_pad(wb_zeros(0, 2), 0, 1, 0, .mode = WB_PAD_REPLICATE), WB_ERROR_SHAPE, "[0,2] f32");
    REFUSED(wb_pad(x, 2, 1, 0, .value = 1), WB_ERROR_SHAPE, "pad", "2", "[2,3] f32");
    REFUSED(wb_pad(x, 1, 1, 0, .mode = (wb_pad_mode)9), WB_ERROR_ARGUMENT, "mode", "9");
    REFUSED(wb_pad(x, 1, 1, 0, .mode = WB_PAD_CIRCULAR, .value = 2), WB_ERROR_ARGUMENT, "value",
            "2");
    REFUSED(wb_pad(k, 0, 1, 1, .value = 0.5), WB_ERROR_DTYPE, "0.5", "[3] i32");
    assert_true(wb_pad(x, 1, 0, 0, .mode = WB_PAD_REFLECT) == x);
    assert_int_equal(wb_dim(wb_pad(x, 0, 5, 0), 0), 7);
    assert_int_equal(wb_dim((wb_pad)(x, 0, 5, 0), 0), 7);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    return run_all_cases();
}
