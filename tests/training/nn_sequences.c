/* Attention and recurrent layers against PyTorch: sequences.safetensors, written by
 * make_golden_sequences.py; and the cache of keys and values against calls of the whole text. */
#define GOLDEN_FILE WB_TEST_DATA "/sequences.safetensors"
#include "golden_layer.h"
#include "own_cell.h"
#include "reference.h"

/* X(name in sequences.safetensors, layer) */
#define CASES(X)                                                                               \
    X(attention_sizes, wb_MultiHeadAttention(6, 2, .k_in = 5, .v_in = 4, .qk_dim = 4,          \
                                             .v_dim = 8, .out = 3, .bias = true,               \
                                             .weights = true))                                 \
    X(attention_groups, wb_MultiHeadAttention(8, 4, .kv_heads = 2, .causal = true,             \
                                              .rotary = 100))                                  \
    X(rnn_states, wb_RNN(2, 3, .return_state = true))                                          \
    X(lstm_states, wb_LSTM(2, 3, .return_state = true))                                        \
    X(gru_states, wb_GRU(2, 3, .return_state = true))                                          \
    X(lstm_deep, wb_LSTM(2, 3, .layers = 2, .bidirectional = true, .return_state = true))      \
    X(gru_deep, wb_GRU(2, 3, .layers = 2, .bidirectional = true, .hidden_bias = true,          \
                       .return_state = true))                                                  \
    X(rnn_deep, wb_RNN(2, 3, .layers = 3, .return_state = true))                               \
    X(rnn_both, wb_RNN(2, 3, .bidirectional = true))                                           \
    X(lstm_lengths, wb_LSTM(2, 3, .return_state = true))                                       \
    X(gruv3, wb_GRUv3(2, 3, .return_state = true))                                             \
    X(recurrence_own, wb_Recurrence(new_own_cell(), .return_state = true))

#define CASE(name, layer) TEST(name) { check_in(#name, layer, false); }
CASES(CASE)

static double difference(wb_tensor *x, wb_tensor *y)
{
    wb_tensor *most = wb_max(wb_abs(wb_sub(wb_astype(x, WB_F32), wb_astype(y, WB_F32))));
    if (!most) fail_msg("%s", wb_error());
    return wb_item(most);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* A text in two parts, with the state handed on, gives what the whole text gives. */
TEST_IN_SCOPE(carried_state)
{
    wb_layer *l = wb_LSTM(2, 3, .return_state = true);
    wb_tensor *x = wb_randn(2, 5, 2), *whole[3], *part[3], *rest[3];
    WORKS(wb_call_outputs(l, 1, &x, 3, whole));
    WORKS(wb_call_outputs(l, 1, (wb_tensor *[]){wb_slice(x, 1, 0, 2)}, 3, part));
    WORKS(wb_call_outputs(l, 3, (wb_tensor *[]){wb_slice(x, 1, 2, 5), part[1], part[2]}, 3, rest));
    assert_true(difference(wb_concat(1, part[0], rest[0]), whole[0]) < 1e-6);
    assert_true(difference(rest[1], whole[1]) < 1e-6 && difference(rest[2], whole[2]) < 1e-6);
    assert_true(difference(part[2], whole[2]) > 1e-4);
    wb_tensor *h = wb_zeros(2, 3);
    REFUSED(wb_call(l, x, h), WB_ERROR_ARGUMENT, "LSTM", "2");
    REFUSED(wb_call(wb_GRU(2, 3), x, wb_zeros(1, 3)), WB_ERROR_SHAPE, "GRU", "[2,3]", "[1,3] f32");
    REFUSED(wb_call(wb_GRU(2, 3), x, h, h), WB_ERROR_ARGUMENT, "GRU", "1", "3");
    REFUSED(wb_GRUCell(2, 3, .return_state = true), WB_ERROR_ARGUMENT, "GRUCell", ".return_state");
}

/* The last states of both directions; lengths of 0 and T; initial states; the other dtypes. */
TEST_IN_SCOPE(lengths)
{
    static const int32_t some[3] = {0, 4, 2};
    static const wb_dtype dtypes[3] = {WB_F32, WB_F16, WB_BF16};
    wb_tensor *n = wb_from(some, WB_I32, 1, (int64_t[]){3}), *y[3];
    for (int i = 0; i < 3; i++) {
        if (!has_dtype(dtypes[i])) continue;
        wb_layer *l = wb_LSTM(2, 3, .layers = 2, .bidirectional = true, .return_state = true,
                              .initial_state = true, .dtype = dtypes[i], .init = wb_init_normal);
        wb_tensor *x = wb_astype(wb_randn(3, 4, 2), dtypes[i]), *first = wb_full(0.5, 3);
        WORKS(wb_set(l, "initial_hidden_l1_reverse", wb_astype(first, dtypes[i])));
        WORKS(wb_call_outputs(l, 2, (wb_tensor *[]){x, wb_astype(n, WB_I64)}, 3, y));
        assert_true(wb_dtype_of(y[0]) == dtypes[i] && wb_dim(y[0], 2) == 6);
        assert_int_equal(wb_dim(y[1], 0), 4);
        /* nothing happens to a sequence without steps */
        assert_true(wb_item(wb_max(wb_abs(wb_slice(wb_astype(y[0], WB_F32), 0, 0, 1)))) == 0);
        assert_true(wb_at(y[1], 3, 0, 1) == 0.5 && wb_at(y[2], 3, 0, 1) == 0);
        assert_true(wb_item(wb_max(wb_abs(wb_slice(wb_slice(wb_astype(y[0], WB_F32), 0, 2, 3), 1, 2,
                                                   4)))) == 0);
        /* a sequence alone, without lengths, gives the same */
        wb_tensor *part = wb_slice(wb_slice(x, 0, 2, 3), 1, 0, 2), *alone[3];
        WORKS(wb_call_outputs(l, 1, &part, 3, alone));
        const double within = i ? 2e-2 : 1e-6;
        assert_true(difference(alone[0], wb_slice(wb_slice(y[0], 0, 2, 3), 1, 0, 2)) < within);
        assert_true(difference(alone[2], wb_slice(y[2], 1, 2, 3)) < within);
        assert_true(difference(alone[1], wb_slice(y[1], 1, 0, 1)) > 1e-3);
    }
    wb_tensor *x = wb_randn(3, 4, 2);
    wb_layer *both = wb_GRU(2, 3, .bidirectional = true, .last = true, .return_state = true);
    WORKS(wb_call_outputs(both, 2, (wb_tensor *[]){x, n}, 2, y));
    wb_tensor *want = wb_reshape(wb_permute(y[1], 1, 0, 2), 3, 6);
    assert_true(difference(y[0], want) == 0);
    WORKS(wb_call_outputs(both, 1, &x, 2, y));
    assert_true(difference(y[0], want) > 1e-4);
}

/* The cell and the layer are one formula. */
TEST_IN_SCOPE(gruv3_cell)
{
    wb_layer *l = wb_GRUv3(2, 3), *cell = wb_GRUv3Cell(2, 3);
    static const char *const names[3] = {"weight_input", "weight_hidden", "bias"};
    for (int i = 0; i < 3; i++) WORKS(wb_set(cell, names[i], wb_get(l, names[i])));
    wb_tensor *x = wb_randn(2, 3, 2), *y = wb_call(l, x), *h = WB_NONE;
    for (int t = 0; t < 3; t++) {
        WORKS(wb_cell_step(cell, wb_reshape(wb_slice(x, 1, t, t + 1), 2, 2), 1, &h));
        assert_true(difference(h, wb_reshape(wb_slice(y, 1, t, t + 1), 2, 3)) < 1e-6);
    }
}

TEST_IN_SCOPE(wrong_layers)
{
    wb_tensor *x = wb_zeros(2, 4, 2), *n = wb_astype(wb_zeros(2), WB_I32);
    wb_layer *l = wb_GRU(2, 3, .layers = 2);
    REFUSED(wb_call(l, x, wb_zeros(2, 3)), WB_ERROR_SHAPE, "GRU", "[2,2,3]", "[2,3] f32");
    REFUSED(wb_call(l, x, wb_astype(wb_zeros(3), WB_I32)), WB_ERROR_SHAPE, "GRU", "lengths [2]",
            "[3] i32");
    REFUSED(wb_call(l, x, n, n), WB_ERROR_SHAPE, "[2,2,3]", "[2] i32");
    REFUSED(wb_call(wb_LSTM(2, 3), x, wb_zeros(2, 3), n), WB_ERROR_ARGUMENT, "LSTM", "2", "3");
    REFUSED(wb_GRU(2, 3, .layers = 0), WB_ERROR_ARGUMENT, "GRU", ".layers", "0");
    REFUSED(wb_LSTM(2, 3, .layers = -1), WB_ERROR_ARGUMENT, "LSTM", ".layers", "-1");
    REFUSED(wb_GRUCell(2, 3, .layers = 2), WB_ERROR_ARGUMENT, "GRUCell", ".layers");
    REFUSED(wb_RNNCell(2, 3, .bidirectional = true), WB_ERROR_ARGUMENT, "RNNCell",
            ".bidirectional");
    REFUSED(wb_GRUv3(2, 3, .hidden_bias = true), WB_ERROR_ARGUMENT, "GRUv3", ".hidden_bias");
    REFUSED(wb_GRUv3(2, 3, wb_relu), WB_ERROR_ARGUMENT, "GRUv3", ".activation");
}

/* ---- masks and rotations --------------------------------------------------------------------- */

TEST_IN_SCOPE(masks)
{
    wb_layer *l = wb_MultiHeadAttention(4, 2, .bias = true);
    wb_tensor *x = wb_randn(2, 3, 4), *y;
    wb_tensor *keep = wb_causal_mask(3, 3);
    wb_layer *causal = wb_MultiHeadAttention(4, 2, .bias = true, .causal = true);
    for (int i = 0; i < 4; i++) {
        static const char *const names[4] = {"q_proj", "k_proj", "v_proj", "out_proj"};
        WORKS(wb_set(causal, NAME("%s.weight", names[i]), wb_get(l, NAME("%s.weight", names[i]))));
    }
    MADE(y = wb_call(l, x, x, x, keep));
    assert_true(difference(y, wb_call(causal, x)) < 1e-6);
    assert_true(difference(y, wb_call(l, x)) > 1e-3);
    wb_tensor *bias = wb_where(keep, wb_scalar(0), wb_scalar(-1e9));
    assert_true(difference(y, wb_call(l, x, x, x, bias)) < 1e-6);
    /* both masks hold; the mask of a sample */
    wb_tensor *first = wb_reshape(wb_lt(wb_arange(6, WB_I32), wb_scalar(5)), 2, 1, 1, 3);
    wb_tensor *both = wb_call(l, x, x, x, wb_and(first, keep));
    assert_true(difference(wb_call(causal, x, x, x, first), both) < 1e-6);
    assert_true(difference(both, y) > 1e-4);
}

/* Returns the largest difference between a and b, and counts what is not a number as infinite. */
static double apart(wb_tensor *a, wb_tensor *b)
{
    wb_tensor *difference = wb_max(wb_abs(wb_sub(a, b)));
    if (!difference) fail_msg("%s", wb_error());
    const double is = wb_item(difference);
    return is == is ? is : INFINITY;
}

/* The result and the gradients are the same whether the projections of one input are one product,
 * as they are on a GPU, or not, as when the three inputs are different tensors. */
static void projects_together(wb_layer *l, double tolerance)
{
    enum { N = 3, T = 43, D = 32 };
    wb_tensor *x[3], *apart_loss, *loss, *g[3], *together;
    for (int i = 0; i < 3; i++) {
        MADE(x[i] = wb_reshape(wb_sin(wb_arange(N * T * D, WB_F32)), N, T, D));
        MADE(x[i] = wb_variable(wb_astype(x[i], wb_dtype_of(wb_get(l, "q_proj.weight")))));
        WORKS(wb_eval(x[i]));
    }
    MADE(loss = wb_sum(wb_square(wb_call(l, x[0]))));
    MADE(apart_loss = wb_sum(wb_square(wb_call(l, x[0], x[1], x[2]))));
    wb_tree *of_one, *of_three;
    MADE(of_one = wb_gradient(loss, l));
    MADE(of_three = wb_gradient(apart_loss, l));
    MADE(together = wb_gradient(loss, x[0]));
    for (int i = 0; i < 3; i++) MADE(g[i] = wb_gradient(apart_loss, x[i]));
    wb_tensor *sum = wb_add(wb_add(g[0], g[1]), g[2]);
    static const char *const paths[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                        "out_proj.weight", "q_proj.bias", "k_proj.bias",
                                        "v_proj.bias"};
    for (size_t i = 0; i < WB__COUNT(paths); i++) {
        wb_tensor *a = wb_get(of_one, paths[i]), *b = wb_get(of_three, paths[i]);
        if (!b || wb_is_none(b)) continue;
        const double size = wb_item(wb_max(wb_abs(b))) + 1;
        if (!(apart(a, b) <= tolerance * size))
            fail_msg("%s: gradients %g apart, of %g", paths[i], apart(a, b), size);
    }
    const double size = wb_item(wb_max(wb_abs(sum))) + 1;
    if (!(apart(together, sum) <= tolerance * size))
        fail_msg("gradients of the input %g apart, of %g", apart(together, sum), size);
    assert_true(fabs(wb_item(loss) - wb_item(apart_loss)) <= tolerance * fabs(wb_item(loss)));
}

TEST_IN_SCOPE(projections)
{
    projects_together(wb_MultiHeadAttention(32, 4, .causal = true, .bias = true), 1e-5);
    projects_together(wb_MultiHeadAttention(32, 4, .kv_heads = 2, .rotary = 100), 1e-5);
}

/* Both orders of the features, and errors. */
TEST_IN_SCOPE(rotations)
{
    static const float row[4] = {1, 2, 3, 4};
    /* position 3, base 100: angles 3 and 0.3; computed in Python */
    static const double halves[4] = {-1.413352521, 0.728592126, -2.828857481, 4.412386369},
                        pairs[4] = {-1.272232513, -1.838864985, 1.683928641, 4.707906576};
    wb_tensor *x = wb_from(row, WB_F32, 2, (int64_t[]){1, 4}), *at = wb_full(3, 1);
    for (int i = 0; i < 2; i++) {
        wb_tensor *y = wb_rotary(x, at, .base = 100, .pairs = i);
        float got[4];
        WORKS(wb_copy_out(y, got, sizeof got));
        for (int k = 0; k < 4; k++)
            assert_true(fabs((double)got[k] - (i ? pairs : halves)[k]) < 1e-5);
    }
    wb_tensor *half = wb_rotary(wb_astype(x, WB_BF16), at, .base = 100);
    assert_true(wb_dtype_of(half) == WB_BF16);
    assert_true(difference(half, wb_rotary(x, at, .base = 100)) < 0.05);
    REFUSED(wb_rotary(wb_zeros(2, 3), wb_positions(2)), WB_ERROR_SHAPE, "rotary", "[2,3] f32");
    REFUSED(wb_rotary(x, wb_positions(2)), WB_ERROR_SHAPE, "rotary", "[2] i32");
    REFUSED(wb_rotary(x, at, .base = -1), WB_ERROR_ARGUMENT, "rotary", "base", "-1");
    REFUSED(wb_rotary(wb_astype(x, WB_I32), at), WB_ERROR_DTYPE, "rotary", "[1,4] i32");
}

/* ---- the cache ------------------------------------------------------------------------------- */

static wb_tensor *places(wb_tensor *x) { return wb_positions(wb_dim(x, 1)); }

static wb_layer *block(wb_dtype dtype)
{
    wb_layer *attention = wb_MultiHeadAttention(8, 4, .causal = true, .kv_heads = 2, .bias = true,
                                                .rotary = 100, .dtype = dtype);
    return wb_SkipConnection(wb_Chain(wb_LayerNorm({8}, .dtype = dtype), attention), wb_add);
}

/* A block is used twice, and so has two pairs in the cache. */
static wb_layer *text_model(wb_dtype dtype)
{
    wb_layer *table = wb_Chain(wb_function_layer("places", places),
                               wb_Embedding(6, 8, .dtype = dtype));
    wb_layer *twice = block(dtype);
    return wb_Chain(wb_Parallel(wb_add, wb_Embedding(5, 8, .dtype = dtype), table), twice,
                    block(dtype), twice);
}

typedef struct { wb_layer *model; wb_tree *cache; } writer;

static int next(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    writer *w = ctx;
    outputs[0] = wb_call_cached(w->model, w->cache, inputs[0]);
    return outputs[0] ? 1 : -1;
}

static wb_tensor *letters(int64_t from, int64_t n)
{
    static const int32_t text[2][6] = {{3, 1, 4, 1, 0, 2}, {2, 0, 2, 4, 3, 1}};
    wb_tensor *all = wb_from(text, WB_I32, 2, (int64_t[]){2, 6});
    return wb_slice(all, 1, from, from + n);
}

static void go_to(wb_tree *cache, int position)
{
    WORKS(wb_assign(wb_get(cache, "position"), wb_full_array(position, WB_I32, 1, (int64_t[]){1})));
}

static void writes_in(wb_dtype dtype, double within)
{
    writer w = {text_model(dtype), NULL};
    MADE(w.cache = wb_attention_cache(w.model, 2, 6));
    const wb_tensor *keys = wb_get(w.cache, "keys.2");
    assert_memory_equal(wb_dims(keys), ((int64_t[]){2, 2, 6, 2}), 4 * sizeof(int64_t));
    assert_true(wb_dtype_of(keys) == dtype);
    wb_tensor *want = wb_call(w.model, letters(0, 6)), *y;
    wb_compiled *step = wb_compile(next, &w);
    for (int compiled = 0; compiled < 2; compiled++) {
        static const int starts[] = {0, 3, 4, 2, 3, 4, 5};      /* at 4 back to 2 */
        for (int i = 0; i < 7; i++) {
            const int at = starts[i], n = i ? 1 : 3;
            wb_tensor *x = letters(at, n);
            if (i == 3 || !i) go_to(w.cache, at);
            if (compiled) WORKS(wb_call_compiled(step, 1, &x, 1, &y));
            else MADE(y = wb_call_cached(w.model, w.cache, x));
            assert_true(difference(y, wb_slice(want, 1, at, at + n)) < within);
            assert_int_equal((int)wb_item(wb_get(w.cache, "position")), at + n);
        }
    }
    wb_object_free(step);
}

TEST_IN_SCOPE(cache_f32) { writes_in(WB_F32, 1e-5); }
TEST_IN_SCOPE(cache_bf16) { writes_in(WB_BF16, 0.1); }

/* The last of six positions with a cache, without and with a mask: the output, and its gradient
 * with respect to the input at this position, on which earlier outputs do not depend. */
TEST_IN_SCOPE(cache_gradients)
{
    wb_layer *l = wb_MultiHeadAttention(8, 4, .causal = true, .kv_heads = 2, .rotary = 100);
    wb_tree *cache = wb_attention_cache(l, 2, 6);
    wb_tensor *x = wb_randn(2, 6, 8), *c = wb_randn(2, 1, 8), *got[2], *want[2];
    wb_tensor *mask = wb_ne(wb_arange(6, WB_I32), wb_scalar_int(2));
    WORKS(wb_eval(wb_call_cached(l, cache, wb_slice(x, 1, 0, 5))));
    for (int masked = 0; masked < 2; masked++) {
        wb_tensor *last = wb_stop_gradient(wb_slice(x, 1, 5, 6));
        wb_tensor *all = wb_concat(1, wb_slice(x, 1, 0, 5), last);
        go_to(cache, 5);
        got[0] = masked ? wb_call_cached(l, cache, last, last, last, mask)
                        : wb_call_cached(l, cache, last);
        want[0] = wb_slice(masked ? wb_call(l, all, all, all, mask) : wb_call(l, all), 1, 5, 6);
        got[1] = wb_gradient(wb_sum(wb_mul(got[0], c)), last);
        want[1] = wb_gradient(wb_sum(wb_mul(want[0], c)), last);
        for (int i = 0; i < 2; i++) assert_true(difference(got[i], want[i]) < 1e-5);
    }
}

static void skip_if(bool unfit, const char *reason)
{
    if (!unfit) return;
    print_message("SKIP: %s\n", reason);
    skip();
}

static const char eager[] = "with WEBER_EAGER each operation has a plan of its own";

/* After the first texts one plan serves all positions. */
TEST_IN_SCOPE(one_plan)
{
    skip_if(getenv("WEBER_EAGER") != NULL, eager);
    wb_layer *model = text_model(WB_F32);
    wb_tree *cache = wb_attention_cache(model, 2, 6);
    int64_t built = 0;
    for (int64_t at = 0; at < 6; at++) {
        WORKS(wb_eval(wb_call_cached(model, cache, letters(at, 1))));
        if (at == 1) built = wb_stats().plans_built;
    }
    assert_int_equal(wb_stats().plans_built, built);
}

/* A step writes its own key and value only: it has no memory for a copy of the cache. */
TEST_IN_SCOPE(written_in_place)
{
    skip_if(getenv("WEBER_EAGER") != NULL, eager);
    skip_if(wb_default_device() != wb_cpu_device(), "steps of other devices need workspace");
    enum { LENGTH = 4096, CACHE = 2 * LENGTH * 8 * 4 };
    wb_layer *l = wb_MultiHeadAttention(8, 4, .causal = true);
    wb_tree *cache = wb_attention_cache(l, 1, LENGTH);
    wb_memory need;
    wb_tensor *x = wb_rand(1, 1, 8), *y = wb_call_cached(l, cache, x);
    WORKS(wb_estimate_memory(1, &y, &need));
    assert_in_range(need.arena, 1, CACHE / 2);      /* keys or values alone are CACHE / 2 */
}

TEST_IN_SCOPE(wrong_uses)
{
    wb_layer *l = wb_MultiHeadAttention(4, 2, .k_in = 3), *plain = wb_MultiHeadAttention(4, 2);
    wb_tensor *x = wb_zeros(2, 3, 4), *k = wb_zeros(2, 5, 3), *v = wb_zeros(2, 5, 4);
    REFUSED(wb_call(l, x), WB_ERROR_SHAPE, "MultiHeadAttention", "[N,T,3]", "[2,3,4] f32");
    REFUSED(wb_call(l, x, k), WB_ERROR_ARGUMENT, "MultiHeadAttention", "mask", "2");
    REFUSED(wb_call(l, x, k, v, wb_zeros(4, 3)), WB_ERROR_SHAPE, "mask", "[4,3] f32", "[2,2,3,5]");
    REFUSED(wb_call(l, x, k, v, wb_zeros(1, 2, 2, 3, 5)), WB_ERROR_SHAPE, "[1,2,2,3,5] f32");
    REFUSED(wb_call(l, x, k, v, wb_astype(wb_zeros(3, 5), WB_I32)), WB_ERROR_SHAPE, "[3,5] i32");
    REFUSED(wb_MultiHeadAttention(8, 4, .kv_heads = 3), WB_ERROR_ARGUMENT, ".kv_heads", "3", "4");
    REFUSED(wb_MultiHeadAttention(8, 4, .v_dim = 6), WB_ERROR_ARGUMENT, "4", "6");
    REFUSED(wb_MultiHeadAttention(8, 4, .out = -1), WB_ERROR_ARGUMENT, ".out", "negative");
    REFUSED(wb_MultiHeadAttention(6, 2, .rotary = 100), WB_ERROR_ARGUMENT, ".rotary", "100", "3");
    REFUSED(wb_call(wb_MultiHeadAttention(4, 2, .weights = true), x), WB_ERROR_ARGUMENT, "2");

    REFUSED(wb_attention_cache(plain, 2, 6), WB_ERROR_ARGUMENT, "attention_cache", ".causal");
    wb_layer *causal = wb_MultiHeadAttention(4, 2, .causal = true), *two = wb_Chain(causal, causal);
    REFUSED(wb_attention_cache(causal, 0, 6), WB_ERROR_ARGUMENT, "0", "6");
    wb_tree *cache = wb_attention_cache(causal, 2, 6);
    REFUSED(wb_call_cached(two, cache, x), WB_ERROR_ARGUMENT, "call_cached", "attention_cache");
    wb_tree *of_two = wb_attention_cache(two, 2, 6);
    REFUSED(wb_call_cached(causal, of_two, x), WB_ERROR_ARGUMENT, "call_cached", "2 layers", "1",
            "attention_cache");
    REFUSED(wb_call_cached(plain, cache, x), WB_ERROR_ARGUMENT, "MultiHeadAttention", ".causal");
    REFUSED(wb_call_cached(causal, cache, wb_zeros(3, 1, 4)), WB_ERROR_SHAPE, "[3,2,1,2] f32",
            "[2,2,6,2] f32");
    REFUSED(wb_call_cached(causal, cache, wb_zeros(2, 7, 4)), WB_ERROR_SHAPE, "7 positions", "6",
            "attention_cache");
    wb_layer *model = text_model(WB_F32);       /* its table of positions has 6 rows */
    wb_tree *longer = wb_attention_cache(model, 2, 7);
    REFUSED(wb_call_cached(model, longer, letters(0, 1)), WB_ERROR_SHAPE, "7 positions", "6 rows",
            "attention_cache");
    wb_layer *table = wb_Chain(wb_function_layer("places", places), wb_Embedding(6, 64));
    wb_layer *small = wb_quantize(wb_Chain(wb_Parallel(wb_add, wb_Embedding(5, 64), table),
                                           wb_MultiHeadAttention(64, 2, .causal = true)));
    REFUSED(wb_call_cached(small, wb_attention_cache(small, 2, 7), letters(0, 1)), WB_ERROR_SHAPE,
            "7 positions", "6 rows");
    MADE(wb_call_cached(model, wb_attention_cache(model, 2, 6), letters(0, 1)));
    REFUSED(wb_call_cached(causal, wb_tuple(x), x), WB_ERROR_ARGUMENT, "call_cached", "tree",
            "attention_cache");
    REFUSED(wb_call_cached(wb_Dense(4, 4), cache, x), WB_ERROR_ARGUMENT, "call_cached", ".causal");
    assert_int_equal((int)wb_item(wb_max(wb_positions(3))), 2);
}

int main(void) { return run_cases(golden_open, golden_close); }
