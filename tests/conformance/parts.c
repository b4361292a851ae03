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
CASE(every_other, wb_slice(x, 1, 0, 4, 2))
CASE(every_third, wb_slice(x, -1, 1, -1, .step = 2))
CASE(rows_by_two, wb_slice(x, 0, 0, 3, 2))
CASE(strided_back, wb_slice(wb_flip(x, 1), 1, 0, 4, 3))
CASE(strided_twice, wb_slice(wb_slice(wb_reshape(x, -1), 0, 1, 12, 2), 0, 0, 6, 2))
CASE(set_columns, wb_set_slice(x, 1, 1, 3, wb_slice(wb_neg(wb_neg(x)), 1, 2, 4)))
CASE(set_row, wb_set_slice(x, 0, 1, 2, wb_slice(x, 0, 2, 3)))
CASE(set_rows, wb_set_slice(x, 0, 1, 3, wb_reshape(wb_slice(x, 0, 0, 1), 4)))
CASE(set_number, wb_set_slice(x, -1, -2, 4, wb_scalar(7)))
CASE(rolled, wb_roll(x, 1, 1))
CASE(rolled_back, wb_roll(x, 0, -4))
CASE(repeated, wb_repeat(x, 1, 2))
CASE(repeated_rows, wb_repeat(x, 0, 3))
CASE(tiled, wb_tile(x, 2))
CASE(tiled_rows, wb_tile(x, 3, 1, 1))
CASE(tril, wb_tril(x, 0))
CASE(tril_shifted, wb_tril(x, -1))
CASE(triu, wb_triu(x, 1))
CASE(triu_shifted, wb_triu(x, -1))

static const literal rows[] = {
    {"constant", constant, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 7},
     VALUES(7, 7, 1, 2, 3, 4, 7, 7, 7, 5, 6, 7, 8, 7, 7, 7, 9, 10, 11, 12, 7)},
    {"reflect", reflect, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     VALUES(3, 2, 1, 2, 3, 4, 3, 2, 1, 7, 6, 5, 6, 7, 8, 7, 6, 5, 11, 10, 9, 10, 11, 12, 11, 10,
      9)},
    {"replicate", replicate, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     VALUES(1, 1, 1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7, 8, 8, 8, 8, 9, 9, 9, 10, 11, 12, 12, 12, 12)},
    {"symmetric", symmetric, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     VALUES(2, 1, 1, 2, 3, 4, 4, 3, 2, 6, 5, 5, 6, 7, 8, 8, 7, 6, 10, 9, 9, 10, 11, 12, 12, 11,
      10)},
    {"circular", circular, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 9},
     VALUES(3, 4, 1, 2, 3, 4, 1, 2, 3, 7, 8, 5, 6, 7, 8, 5, 6, 7, 11, 12, 9, 10, 11, 12, 9, 10,
      11)},
    {"circular_rows", circular_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {6, 4},
     VALUES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
    {"reflect_rows", reflect_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {4, 4},
     VALUES(5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
    {"every_other", every_other, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 2},
     VALUES(1, 3, 5, 7, 9, 11)},
    {"every_third", every_third, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 1},
     VALUES(2, 6, 10)},
    {"rows_by_two", rows_by_two, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {2, 4},
     VALUES(1, 2, 3, 4, 9, 10, 11, 12)},
    {"strided_back", strided_back, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 2},
     VALUES(4, 1, 8, 5, 12, 9)},
    {"strided_twice", strided_twice, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3},
     VALUES(2, 6, 10)},
    {"set_columns", set_columns, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 3, 4, 4, 5, 7, 8, 8, 9, 11, 12, 12)},
    {"set_row", set_row, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 2, 3, 4, 9, 10, 11, 12, 9, 10, 11, 12)},
    {"set_rows", set_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)},
    {"set_number", set_number, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 2, 7, 7, 5, 6, 7, 7, 9, 10, 7, 7)},
    {"rolled", rolled, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(4, 1, 2, 3, 8, 5, 6, 7, 12, 9, 10, 11)},
    {"rolled_back", rolled_back, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4)},
    {"repeated", repeated, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 8},
     VALUES(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12)},
    {"repeated_rows", repeated_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {9, 4},
     VALUES(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12,
      9, 10, 11, 12, 9, 10, 11, 12)},
    {"tiled", tiled, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 8},
     VALUES(1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12, 9, 10, 11, 12)},
    {"tiled_rows", tiled_rows, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 3, 4},
     VALUES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3,
      4, 5, 6, 7, 8, 9, 10, 11, 12)},
    {"tril", tril, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0)},
    {"tril_shifted", tril_shifted, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(0, 0, 0, 0, 5, 0, 0, 0, 9, 10, 0, 0)},
    {"triu", triu, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(0, 2, 3, 4, 0, 0, 7, 8, 0, 0, 0, 12)},
    {"triu_shifted", triu_shifted, counts, {3, 4}, SMOOTH | FLOATS | INTEGERS, {3, 4},
     VALUES(1, 2, 3, 4, 5, 6, 7, 8, 0, 10, 11, 12)},
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
}

TEST_IN_SCOPE(splits)
{
    wb_tensor *x = wb_reshape(wb_arange(12, WB_F32), 3, 4), *part[3], *slope;
    assert_int_equal(wb_split(x, 1, 2, part), 0);
    assert_true(wb_dim(part[1], 1) == 2 && wb_at(part[1], 2, 0) == 10);
    assert_int_equal(wb_split(x, -1, 3, part, .sizes = (int64_t[]){1, 0, 3}), 0);
    assert_true(wb_dim(part[0], 1) == 1 && wb_dim(part[1], 1) == 0 && wb_at(part[2], 1, 0) == 5);
    slope = wb_gradient(wb_sum(wb_square(part[2])), x);
    assert_true(wb_at(slope, 1, 0) == 0 && wb_at(slope, 2, 3) == 22);
    FAILS(wb_split(x, 1, 3, part), WB_ERROR_SHAPE, "split", "[3,4] f32", "3", ".sizes");
    assert_true(!part[0] && !part[2]);
    FAILS(wb_split(x, 1, 2, part, .sizes = (int64_t[]){1, 2}), WB_ERROR_SHAPE, "split", "3",
          "[3,4] f32");
    FAILS(wb_split(x, 1, 2, part, .sizes = (int64_t[]){3, 2}), WB_ERROR_SHAPE, "split", "2", "1");
    FAILS(wb_split(x, 1, 1, NULL, .sizes = (int64_t[]){4}), WB_ERROR_ARGUMENT, "split", "parts");
    FAILS(wb_split(x, 1, 2, part, .sizes = NULL), WB_ERROR_ARGUMENT, "split", "sizes");
    FAILS(wb_split(x, 3, 1, part), WB_ERROR_SHAPE, "split", "3", "[3,4] f32");
}

/* A window with a step, and rows that are set one by one, have one plan. */
TEST(one_plan)
{
    wb_tensor *table = wb_zeros(6, 2), *far = wb_reshape(wb_arange(40, WB_F32), 40);
    WORKS(wb_eval(table, far));
    int64_t built = 0;
    for (int i = 0; i < 6; i++) {
        wb_scope *scope = wb_scope_open();
        table = wb_keep(wb_set_slice(table, 0, i, i + 1, wb_full(i, 2)));
        WORKS(wb_eval(table));
        assert_true(wb_item(wb_sum(wb_slice(far, 0, i, i + 9, 4))) == 3 * i + 12);
        assert_int_equal(wb_scope_close(scope), 0);
        if (i == 2) built = wb_stats().plans_built;     /* 0, 1 and -1 have plans of their own */
    }
    assert_int_equal(wb_stats().plans_built, built);
    for (int i = 0; i < 6; i++) assert_true(wb_at(table, i, 1) == i);
}

TEST_IN_SCOPE(arrange_errors)
{
    wb_tensor *x = wb_ones(2, 3), *k = wb_arange(3, WB_U8);
    REFUSED(wb_slice(x, 1, 0, 3, 0), WB_ERROR_ARGUMENT, "slice", "0", "wb_flip");
    REFUSED(wb_slice(x, 1, 0, 4, 2), WB_ERROR_SHAPE, "slice", "4", "[2,3] f32");
    REFUSED(wb_set_slice(x, 1, 1, 0, x), WB_ERROR_SHAPE, "set_slice", "1", "0", "[2,3] f32");
    REFUSED(wb_set_slice(x, 1, 0, 2, wb_ones(2, 3)), WB_ERROR_SHAPE, "[2,3] f32", "[2,2]");
    REFUSED(wb_set_slice(x, 1, 0, 2, k), WB_ERROR_DTYPE, "set_slice", "[2,3] f32", "[3] u8");
    REFUSED(wb_set_slice(k, 0, 0, 2, wb_scalar(256)), WB_ERROR_DTYPE, "256", "[3] u8");
    REFUSED(wb_roll(x, 2, 1), WB_ERROR_SHAPE, "roll", "2", "[2,3] f32");
    REFUSED(wb_repeat(x, 0, -1), WB_ERROR_ARGUMENT, "repeat", "-1");
    REFUSED(wb_tile(x, 2, -3), WB_ERROR_ARGUMENT, "tile", "-3");
    REFUSED(wb_tril(k, 0), WB_ERROR_SHAPE, "tril", "[3] u8");
    REFUSED(wb_repeat(x, 0, (int64_t)1 << 31), WB_ERROR_SHAPE, "repeat", "2^32");
    REFUSED(wb_repeat(x, 1, 5000000000), WB_ERROR_SHAPE, "repeat", "5000000000", "[2,3] f32");
    REFUSED(wb_tile(x, INT64_MAX / 2), WB_ERROR_SHAPE, "tile", "4611686018427387903", "[2,3] f32");
    wb_tensor *y = wb_roll(wb_arange(3, WB_F32), 0, INT64_MIN);   /* a roll by 1 */
    for (int i = 0; i < 3; i++) assert_true(wb_at(y, i) == (i + 2) % 3);
    assert_int_equal(wb_size(wb_repeat(x, 1, 0)), 0);
    assert_int_equal(wb_size(wb_roll(wb_zeros(0, 2), 0, 3)), 0);
    assert_true(wb_at(wb_triu(wb_ones(2, 2), 900), 0, 1) == 0);
    assert_int_equal(wb_dtype_of(wb_tril(wb_gt(x, wb_scalar(0)), 0)), WB_BOOL);
}

int main(int argc, char **argv) { return run_with_options(argc, argv); }
