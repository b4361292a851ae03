/* Printed models, compared exactly. */
#include "golden.h"

TEST(single_layers)
{
    assert_shows(wb_Dense(2, 3), "Dense(2 => 3)       # 9 parameters");
    assert_shows(wb_Dense(10, 5), "Dense(10 => 5)      # 55 parameters");
    assert_shows(wb_Dense(10, 5, wb_relu, .bias = false),
                 "Dense(10 => 5, relu; bias=false)  # 50 parameters");
    assert_shows(wb_Conv(3, 6, {3}, wb_relu, .pad = {1}, .stride = {2}, .dilation = {2},
                         .groups = 3, .bias = false),
                 "Conv((3, 3), 3 => 6, relu, pad=1, stride=2, dilation=2, groups=3, bias=false)  # "
                 "54 parameters");
    assert_shows(wb_Conv(1, 1, {2, 3}, .pad = {1, 2}, .flip = true),
                 "Conv((2, 3), 1 => 1, pad=(1, 2), flip=true)  # 7 parameters");
    assert_shows(wb_Conv(1, 1, {3}, .pad = {1, 2, 3, 4}),
                 "Conv((3, 3), 1 => 1, pad=(1, 2, 3, 4))  # 10 parameters");
    assert_shows(wb_Conv(1, 1, {3}, .pad = {1, 0}),
                 "Conv((3, 3), 1 => 1, pad=(1, 0))  # 10 parameters");
    assert_shows(wb_ConvTranspose(4, 6, {3}, wb_relu, .pad = {1}, .stride = {2}, .outpad = {1, 0},
                                  .groups = 2),
                 "ConvTranspose((3, 3), 4 => 6, relu, pad=1, stride=2, outpad=(1, 0), groups=2)  # "
                 "114 parameters");
    assert_shows(wb_MaxPool({2}), "MaxPool((2, 2))");
    assert_shows(wb_MaxPool({2}, .pad = {1}, .stride = {3}), "MaxPool((2, 2), pad=1, stride=3)");
    assert_shows(wb_GlobalMeanPool(), "GlobalMeanPool()");
    assert_shows(wb_Flatten(), "Flatten()");
    assert_shows(wb_BatchNorm(2, wb_relu),
                 "BatchNorm(2, relu)  # 4 parameters, plus 4 non-trainable");
    assert_shows(
        wb_testmode(wb_BatchNorm(2, wb_relu, .affine = false)),
        "BatchNorm(2, relu, affine=false, active=false)  # 0 parameters, plus 4 non-trainable");
    assert_shows(wb_Dropout(0.5), "Dropout(0.5)");
    assert_shows(wb_trainmode(wb_Dropout(0.5, .axes = WB_INTS(1))),
                 "Dropout(0.5, axes=1, active=true)");
    assert_shows(wb_LayerNorm({10}, wb_relu, .affine = false),
                 "LayerNorm(10, relu, affine=false)");
    assert_shows(wb_LayerNorm({3, 4}), "LayerNorm(3, 4)     # 24 parameters");
    assert_shows(wb_LayerNorm({3, 4}, .bias = false),
                 "LayerNorm(3, 4, bias=false)  # 12 parameters");
    assert_shows(wb_Embedding(26, 4), "Embedding(26 => 4)  # 104 parameters");
    assert_shows(wb_MultiHeadAttention(64),
                 "MultiHeadAttention(64; nheads=8)  # 16_384 parameters");
    assert_shows(wb_MultiHeadAttention(6, 2, .k_in = 5, .out = 3, .rotary = 100, .weights = true,
                                       .qk_dim = 4, .kv_heads = 1),
                 "MultiHeadAttention((6, 5, 6) => (4, 6) => 3; nheads=2, kv_heads=1, rotary=100, "
                 "weights=true)  # 70 parameters");
    assert_shows(wb_RNN(3, 5), "RNN(3 => 5, tanh)   # 45 parameters");
    assert_shows(wb_LSTM(3, 5), "LSTM(3 => 5)        # 180 parameters");
    assert_shows(wb_GRUv3(3, 5, .layers = 2, .bidirectional = true),
                 "GRUv3(3 => 5; layers=2, bidirectional=true)  # 750 parameters");
    assert_shows(wb_GRUCell(3, 5, .bias = false),
                 "GRUCell(3 => 5; bias=false)  # 120 parameters");
    assert_shows(wb_Dense(2, 3, .init = wb_init_zeros),
                 "Dense(2 => 3)       # 9 parameters  (all zero)");
    wb_layer *d = wb_Dense(1, 2);
    wb_set(d, "bias", wb_from((float[]){NAN, 1}, WB_F32, 1, (int64_t[]){2}));
    assert_shows(d, "Dense(1 => 2)       # 4 parameters  (some NaN)");
    wb_set(d, "bias", wb_from((float[]){-INFINITY, 1}, WB_F32, 1, (int64_t[]){2}));
    assert_shows(d, "Dense(1 => 2)       # 4 parameters  (some Inf)");
}

TEST(tables)
{
    assert_shows(wb_Chain(wb_Dense(1, 256, wb_tanh), wb_Dense(256, 1)),
                 "Chain(\n"
                 "  Dense(1 => 256, tanh),                # 512 parameters\n"
                 "  Dense(256 => 1),                      # 257 parameters\n"
                 ")                   # Total: 4 arrays, 769 parameters, 3.004 KiB.");
    assert_shows(wb_Chain(wb_Dense(2, 2), wb_softmax), "Chain(\n"
                 "  Dense(2 => 2),                        # 6 parameters\n"
                 "  softmax,\n"
                 ")");
    assert_shows(wb_Chain(wb_named("conv", wb_Conv(1, 2, {3})), wb_named("norm", wb_BatchNorm(2)),
                          wb_SkipConnection(wb_Chain(wb_Dense(4, 4), wb_relu), wb_add),
                          wb_Parallel(wb_mul, wb_Dense(4, 2), wb_named("b", wb_Dense(4, 2)))),
                 "Chain(\n"
                 "  conv = Conv((3, 3), 1 => 2),          # 20 parameters\n"
                 "  norm = BatchNorm(2),                  # 4 parameters, plus 4\n"
                 "  SkipConnection(\n"
                 "    Chain(\n"
                 "      Dense(4 => 4),                    # 20 parameters\n"
                 "      relu,\n"
                 "    ),\n"
                 "    add,\n"
                 "  ),\n"
                 "  Parallel(\n"
                 "    mul,\n"
                 "    Dense(4 => 2),                      # 10 parameters\n"
                 "    b = Dense(4 => 2),                  # 10 parameters\n"
                 "  ),\n"
                 ")         # Total: 10 trainable arrays, 64 parameters,\n"
                 "          # plus 2 non-trainable, 4 parameters, summarysize 272 bytes.");
    wb_layer *l = wb_Chain(wb_named("lay", wb_Dense(2, 3)), wb_relu);
    wb__text t = {0};
    wb__print_layer(l, &t);
    char *text = wb__text_take(&t);
    assert_string_equal(text, "Chain(lay = Dense(2 => 3), relu)");
    wb__free(text);
}

/* A layer that is used twice counts once in the total. */
TEST(shared_layers)
{
    wb_layer *d = wb_Dense(2, 2);
    assert_shows(wb_Chain(d, wb_Dense(2, 2), d), "Chain(\n"
                 "  Dense(2 => 2),                        # 6 parameters\n"
                 "  Dense(2 => 2),                        # 6 parameters\n"
                 "  Dense(2 => 2),                        # 6 parameters\n"
                 ")                   # Total: 4 arrays, 12 parameters, 48 bytes.");
}

TEST(tensors)
{
    assert_shows(wb_from((float[]){1, 2.5f, -3, 0.125f, NAN, INFINITY}, WB_F32, 2,
                         (int64_t[]){2, 3}),
                 "[2,3] f32\n"
                 "      1  2.5   -3\n"
                 "  0.125  NaN  Inf");
    assert_shows(wb_full_array(7, WB_I64, 0, NULL), "[] i64\n  7");
    assert_shows(wb_from((uint8_t[]){1, 0}, WB_BOOL, 1, (int64_t[]){2}), "[2] bool\n  true  false");
    assert_shows(wb_zeros(0, 3), "[0,3] f32");
    assert_shows(WB_NONE, "none");
    assert_shows(wb_arange(20, WB_I32), "[20] i32\n  0  1  2  3  ...  16  17  18  19");
    assert_shows(wb_reshape(wb_arange(8, WB_F32), 2, 2, 2),
                 "[2,2,2] f32\n[0,:,:]\n  0  1\n  2  3\n[1,:,:]\n  4  5\n  6  7");
    assert_shows(wb_reshape(wb_arange(20, WB_I32), 20, 1),
                 "[20,1] i32\n   0\n   1\n   2\n   3\n   :\n  16\n  17\n  18\n  19");
}

TEST(trees)
{
    wb_layer *m = wb_Chain(wb_Dense(2, 3), wb_relu);
    wb_tree *t = wb_named_tuple(3, (const char *[]){"model", "x", "rest"},
                                (void *[]){m, wb_zeros(4), wb_tuple(WB_NONE, wb_opaque(NULL))});
    assert_shows(t, "(\n"
                    "  model = Chain(\n"
                    "    Dense(2 => 3),                        # 9 parameters\n"
                    "    relu,\n"
                    "  ),\n"
                    "  x = [4] f32,\n"
                    "  rest = (\n"
                    "    0 = none,\n"
                    "    1 = opaque,\n"
                    "  ),\n"
                    ")");
    wb_rule *rule = wb_OptimizerChain(wb_ClipNorm(.omega = 1), wb_Adam(.eta = 0.01));
    assert_shows(rule,
                 "OptimizerChain(ClipNorm(omega=1), Adam(eta=0.01, beta=(0.9, 0.999), eps=1e-08))");
    wb_opt_state *s = wb_setup(wb_Momentum(), m);
    wb_freeze(s, "layers.0.bias");
    assert_shows(s, "Momentum(eta=0.01, rho=0.9)\n"
                    "  layers.0.weight  [3,2] f32, 1 moment, 0 steps\n"
                    "  layers.0.bias    [3] f32, 1 moment, 0 steps, frozen");
}

int main(void)
{
    wb_seed(1);
    return run_all_cases();
}
