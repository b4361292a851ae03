/* The forms of the public macros: numbers as operands, lists, options by name and position, calls
 * with several inputs, nested calls, arguments with side effects. */
#include "reference.h"

#include "weber/train.h"

static double first(wb_tensor *x) { return wb_at_array(x, wb_ndim(x), (int64_t[WB_MAX_DIMS]){0}); }

TEST_IN_SCOPE(operands_may_be_numbers)
{
    wb_tensor *x = wb_full(3, 2, 2), *n = wb_full_array(7, WB_I32, 1, (int64_t[]){2});
    const int i = 2;
    const int64_t l = 2;
    const float f = 0.5f;
    const unsigned char c = 4;
    assert_true(first(wb_add(x, i)) == 5 && first(wb_sub(l, x)) == -1);
    assert_true(first(wb_mul(x, f)) == 1.5 && first(wb_div(x, c)) == 0.75);
    assert_true(first(wb_pow(2, x)) == 8 && first(wb_maximum(x, 4.0)) == 4);
    assert_true(first(wb_minimum(1u, x)) == 1 && first(wb_div(n, 2)) == 3);
    assert_true(first(wb_gt(x, 2)) == 1 && first(wb_le(x, 2)) == 0 && first(wb_eq(3, x)) == 1);
    assert_true(first(wb_ne(x, 3)) == 0 && first(wb_lt(x, 3)) == 0 && first(wb_ge(x, 3)) == 1);
    assert_true(first(wb_where(wb_gt(x, 2), 1, x)) == 1);
    assert_true(first(wb_where(wb_lt(x, 2), x, -1.5)) == -1.5);
    assert_int_equal(wb_dtype_of(wb_mul(n, 3)), WB_I32);
    assert_null(wb_mul(n, 0.5));                /* an integer dtype does not hold it */
    wb_clear_error();
    assert_null(wb_add(NULL, 1));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_true(first(wb_gradient(wb_sum(wb_mul(wb_square(x), 0.5)), x)) == 3);
}

TEST_IN_SCOPE(arguments_are_evaluated_once)
{
    wb_tensor *x[] = {wb_ones(2), wb_full(2, 2), wb_full(3, 2)};
    int i = 0;
    double d = 1;
    assert_true(first(wb_add(x[i++], d++)) == 2 && i == 1 && d == 2);
    i = 0;
    wb_tensor *kept = wb_keep(x[i++]);
    assert_true(kept == x[0] && i == 1);
    assert_true(first(wb_cpu(x[i++])) == 2 && i == 2);
}

/* Each level has the text of its operand once: 24 levels compile at once. */
TEST_IN_SCOPE(calls_nest)
{
    wb_tensor *x = wb_full(1, 3);
#define TWICE(x) wb_add(wb_mul(x, 0.5), wb_mul(x, 0.5))
#define FOUR(x) wb_add(wb_sub(wb_add(wb_sub(x, 1), 1), 1), 1)
    assert_true(first(TWICE(TWICE(TWICE(x)))) == 1);
    assert_true(first(FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(x))))))) == 1);
    wb_layer *deep = wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_Chain(wb_relu)))))));
    assert_true(first(wb_call(deep, x)) == 1);
}

TEST_IN_SCOPE(layers_take_several_inputs)
{
    wb_seed(2);
    wb_layer *attend = wb_MultiHeadAttention(8, 2), *cell = wb_LSTMCell(3, 4);
    wb_tensor *q = wb_randn(1, 2, 8), *k = wb_randn(1, 5, 8), *v = wb_randn(1, 5, 8);
    wb_tensor *want = wb_call_array(attend, 3, (wb_tensor *[]){q, k, v});
    wb_tensor *got = wb_call(attend, q, k, v);
    assert_true(wb_item(wb_sum(wb_abs(wb_sub(want, got)))) == 0);
    assert_non_null(wb_call(cell, wb_zeros(1, 3), wb_zeros(1, 4), wb_zeros(1, 4)));
    wb_tensor *(*call)(wb_layer *, wb_tensor *) = wb_call;      /* the function of the name */
    assert_non_null(call(attend, q));
    REFUSED(wb_call(attend, q, k, ), WB_ERROR_ARGUMENT, "NULL");
}

TEST_IN_SCOPE(lists_are_what_is_written)
{
    wb_tensor *x = wb_ones(1, 1, 4, 6), *w = wb_ones(1, 1, 3, 3);
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1, 0})), "[1,1,4,4] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {0, 1})), "[1,1,2,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1})), "[1,1,4,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {0, 0, 0, 2})), "[1,1,2,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .stride = {1, 2}, .pad = {1})),
                        "[1,1,4,3] f32");
    assert_string_equal(wb_describe(wb_call(wb_Conv(1, 2, {3}, .pad = {1, 0}), x)),
                        "[1,2,4,4] f32");
    assert_string_equal(wb_describe(wb_call(wb_MaxPool({2}, .pad = {1, 0}), x)), "[1,1,3,3] f32");
    wb_layer *up = wb_ConvTranspose(1, 2, {3}, .stride = {2}, .outpad = {1, 0});
    assert_string_equal(wb_describe(wb_call(up, x)), "[1,2,10,13] f32");
    REFUSED(wb_conv(x, w, WB_NONE, .pad = {1, 2, 3}), WB_ERROR_ARGUMENT, ".pad", "3");
    wb_clear_error();
    assert_null(wb_conv(x, w, WB_NONE, .stride = {2, 0}));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_null(wb_Conv(1, 2, {3}, .groups = 0));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    const wb_conv_options o = WB_OPTIONS_OF(wb_conv_options, .pad = WB_INTS(1, 0));
    assert_string_equal(wb_describe(wb_conv_with(x, w, WB_NONE, &o)), "[1,1,4,4] f32");
    wb_conv_options bare = WB_OPTIONS_OF(wb_conv_options);
    bare.pad[0] = 1;
    REFUSED(wb_conv_with(x, w, WB_NONE, &bare), WB_ERROR_ARGUMENT, ".pad", "WB_INTS");
    wb_clear_error();
    wb_ints_set(bare.pad, 2, (int64_t[]){0, 1});
    assert_string_equal(wb_describe(wb_conv_with(x, w, WB_NONE, &bare)), "[1,1,2,6] f32");
}

TEST_IN_SCOPE(zero_is_no_default)
{
    wb_tensor *x = wb_zeros(2, 3);
    assert_null(wb_huber(x, x, 0));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_true(isnan(wb_at(wb_normalize(x, 1, 0), 0, 0)));     /* 0/0 */
    assert_true(wb_at(wb_normalize(x, 1, 1e-5), 0, 0) == 0);
}

static int first_of(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    (void)epoch, (void)batch, (void)loss;
    return ((int *)ctx)[1];
}

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    assert_int_equal(((int *)ctx)[2], 9);
    return wb_mse(wb_call(m, b.x), b.y);
}

static int collate(wb_batch *b, void *ctx)
{
    (void)b;
    return ((int *)ctx)[0] == 7 && ((int *)ctx)[1] == 8 ? 0 : 1;
}

/* A value of an option may have commas, braces, quotes and names of other options in it. */
TEST_IN_SCOPE(values_are_left_alone)
{
    wb_dataset *d = wb_dataset_of(wb_ones(8, 2), wb_ones(8, 1));
    wb_loader *l = wb_dataloader(d, 4, .collate = collate, .collate_ctx = (int[]){7, 8});
    wb_batch b = {0};
    assert_true(wb_loader_next(l, &b));
    wb_layer *m = wb_Dense(2, 1);
    wb_opt_state *s = wb_setup(wb_Descent(.5), m);
    l = wb_dataloader(d, 4);
    struct { int a, b, c; } own = {1, 0, 9};
    assert_int_equal(wb_train(loss_of, m, l, s, .each = first_of, .ctx = &own), 0);
    assert_int_equal(wb_loader_epoch(l), 1);
    assert_int_equal(wb_train(loss_of, m, l, s, .ctx = &(int[3]){1, 0, 9}, .each = first_of), 0);
    assert_int_equal(wb_loader_epoch(l), 2);
    assert_int_equal(
        wb_train(loss_of, m, l, s, 2, .ctx = ", .epochs = 0, \"{'"[0] ? &own : NULL), 0);
    assert_int_equal(wb_loader_epoch(l), 4);
    assert_int_equal(wb_train(loss_of, m, l, s, .ctx = (int[]){1, 0, 9}, .epochs = 0), 0);
    assert_int_equal(wb_train(loss_of, m, l, s, 0, .ctx = (int[]){1, 0, 9}), 0);
    assert_int_equal(wb_loader_epoch(l), 4);
}

TEST_IN_SCOPE(options_by_position_come_first)
{
#ifndef __clang__                       /* which refuses it, as it and gcc refuse other numbers */
    REFUSED(wb_Embedding(3, .dtype = WB_F32, 0), WB_ERROR_ARGUMENT, "Embedding", ".dtype", "name");
    REFUSED(wb_AdamW(.eps = 1e-7, .centered = false, NULL), WB_ERROR_ARGUMENT, "AdamW",
            ".centered");
#endif
    REFUSED(wb_sum(wb_ones(2, 2), 0, .axes = {1}), WB_ERROR_ARGUMENT, "sum", ".axes");
    REFUSED(wb_Adam(.beta[0] = 0.5), WB_ERROR_ARGUMENT, "Adam", ".beta[0]");
}

TEST_IN_SCOPE(lists_in_text)
{
#define MINE {1, 0}
    wb_tensor *x = wb_ones(1, 1, 4, 6), *w = wb_ones(1, 1, 3, 3);
    const int one = 1;
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1,})), "[1,1,4,6] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = MINE)), "[1,1,4,4] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {(one), one > 0 ? 1 : 0})),
                        "[1,1,4,6] f32");
    assert_string_equal(wb_describe(wb_sum(x, .axes = {one + 1, 0}, .keep = one > 0)),
                        "[1,1,1,6] f32");
    REFUSED(wb_sum(x, .axes = {[1] = 3}), WB_ERROR_ARGUMENT, "sum", ".axes", "order");
}

/* Of an option that is given twice, the last counts, as in C; wrappers with defaults rely on it. */
TEST_IN_SCOPE(the_last_of_two_options_counts)
{
#define SAME(x, w, ...) wb_conv(x, w, WB_NONE, .pad = {1}, __VA_ARGS__)
    wb_tensor *x = wb_ones(1, 1, 4, 4), *w = wb_ones(1, 1, 3, 3);
    assert_string_equal(wb_describe(SAME(x, w, .pad = {1, 0})), "[1,1,4,2] f32");
    assert_string_equal(wb_describe(SAME(x, w, .stride = {1})), "[1,1,4,4] f32");
    assert_string_equal(wb_describe(wb_conv(x, w, WB_NONE, .pad = {1, 0}, .pad = {1})),
                        "[1,1,4,4] f32");
}

static void prints(wb_rule *rule, const char *expected)
{
    char *text = rule ? wb_object_format(rule) : NULL;
    assert_string_equal(text ? text : wb_error(), expected);
    wb_free_text(text);
}

TEST_IN_SCOPE(texts_of_options)
{
    prints(wb_Momentum(. eta = 0.0, ./* a comment */rho = 0), "Momentum(eta=0, rho=0)");
    prints(wb_Momentum(.5, .0), "Momentum(eta=0.5, rho=0)");
    /* Texts that a C11 compiler does not accept, or not without a warning. */
    wb_Rule_options o = WB_OPTIONS_OF(wb_Rule_options, .beta = {0.5, 0.25});
    static const char *const one[] = {
        WB_MADE_ ".beta = {x ? 10, 10 : 0}", WB_MADE_ "1'0, '}', .beta = {u8'\\''}",
        WB_MADE_ "x ? y ? 1, 1 : 0 : 3, L',', .beta = {(1, 2), }"};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        o.given = one[i];
        prints(wb_Adam_with(&o), "Adam(eta=0.001, beta=(0.5, 0.999), eps=1e-08)");
    }
    static const char *const bad[] = {WB_MADE_ ".beta [1] = 0.5", WB_MADE_ ".beta = {1, 2, 3}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.given = bad[i];
        REFUSED(wb_Adam_with(&o), WB_ERROR_ARGUMENT, "Adam", "beta");
    }
}

TEST_IN_SCOPE(integers_are_exact)
{
    const int64_t big = ((int64_t)1 << 53) + 1;
    wb_tensor *x = wb_from(&big, WB_I64, 0, NULL);
    REFUSED(wb_eq(x, big), WB_ERROR_ARGUMENT, "9007199254740993", "wb_from");
    REFUSED(wb_add(x, UINT64_MAX), WB_ERROR_ARGUMENT, "scalar");
    REFUSED(wb_add(x, 0x1p63), WB_ERROR_DTYPE, "9.22337e+18", "i64");
    assert_true(wb_item(wb_eq(wb_sub(x, big - 1), 1)) == 1);
    assert_true(wb_item(wb_gt(x, INT64_MIN)) == 1);
}

/* An option that would have no effect is an error. */
TEST_IN_SCOPE(options_without_effect)
{
    wb_layer *m = wb_Dense(2, 1);
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_ones(8, 2), wb_ones(8, 1)), 4);
    wb_opt_state *s = wb_setup(wb_Descent(), m);
    const wb_rename rows[1] = {{"a", "b"}};
    REFUSED(wb_RNNCell(2, 3, .last = true), WB_ERROR_ARGUMENT, "RNNCell", ".last");
    REFUSED(!wb_train(loss_of, m, l, s, .keep_best = true), WB_ERROR_ARGUMENT, "keep_best",
            ".folder");
    REFUSED(!wb_save("none.safetensors", m, .key = "m"), WB_ERROR_ARGUMENT, "BSON", ".key");
    REFUSED(!wb_save("none.safetensors", m, .names = 77), WB_ERROR_ARGUMENT, ".names", "77");
    REFUSED(!wb_load_state("none.safetensors", m, .rename = rows), WB_ERROR_ARGUMENT, ".n_rename");
    REFUSED(wb_load_csv("none.csv", .separator = 0), WB_ERROR_ARGUMENT, ".separator");
}

TEST_IN_SCOPE(seeds_may_be_zero)
{
    wb_dataset *d = wb_dataset_of(wb_randn(64, 2), WB_NONE);
    double first_value[2];
    for (int i = 0; i < 2; i++) {
        wb_seed((uint64_t)i);
        wb_batch b = {0};
        wb_loader *l = wb_dataloader(d, 4, true, .seed = 0);
        assert_true(wb_loader_next(l, &b));
        first_value[i] = wb_at(b.x, 0, 0);
    }
    assert_true(first_value[0] == first_value[1]);
    REFUSED(wb_Dropout(), WB_ERROR_ARGUMENT, "Dropout", "probability");
    REFUSED(wb_MultiHeadAttention(8, 0), WB_ERROR_ARGUMENT, "MultiHeadAttention", "0 heads");
    REFUSED(wb_MultiHeadAttention(8, .heads = 0), WB_ERROR_ARGUMENT, "0 heads");
}

/* Structs that a program fills itself. */
TEST_IN_SCOPE(own_structs)
{
    wb_tensor *x = wb_ones(2, 3);
    wb_Rule_options o = WB_OPTIONS_OF(wb_Rule_options);
    prints(wb_Momentum_with(&o), "Momentum(eta=0.01, rho=0.9)");
    o.eta = o.rho = 0;
    prints(wb_Momentum_with(&o), "Momentum(eta=0, rho=0)");
    o.given = NULL;
    REFUSED(wb_Momentum_with(&o), WB_ERROR_ARGUMENT, "Momentum", "WB_OPTIONS_OF");
    REFUSED(wb_sum_with(x, &(wb_reduce_options){.keep = true}), WB_ERROR_ARGUMENT, "sum", ".size");
    /* The struct of a later header, with one field more. */
    const wb_reduce_options all = WB_OPTIONS_OF(wb_reduce_options);
    int64_t newer[sizeof all / sizeof(int64_t) + 1] = {0};
    memcpy(newer, &all, sizeof all);
    newer[0] = sizeof newer;
    assert_string_equal(wb_describe(wb_sum_with(x, (void *)newer)), "[] f32");
    newer[sizeof newer / sizeof *newer - 1] = 1;
    REFUSED(wb_sum_with(x, (void *)newer), WB_ERROR_ARGUMENT, "sum", "does not know", wb_version());
}

TEST_IN_SCOPE(adjust_refuses_numbers_that_no_rule_has)
{
    wb_layer *m = wb_Dense(2, 1);
    wb_opt_state *s = wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 1), wb_Adam()), m);
    REFUSED(!wb_adjust(s, .rho = 0.5), WB_ERROR_ARGUMENT, "adjust", "Adam", "rho");
    REFUSED(!wb_adjust(s, .eta = 0.5, .rho = 0.5), WB_ERROR_ARGUMENT, "adjust", "Adam", "rho");
    char *text = wb_object_format(s);
    assert_non_null(strstr(text, "Adam(eta=0.001"));
    wb_free_text(text);
    assert_int_equal(wb_adjust(s, .eta = 0.5, .omega = 2), 0);
}
