/* A vision transformer learns ten kinds of waves; the twin of vit.py.
 *
 *   vit [FILE]       begins with the weights in FILE, which vit.py writes */
#include <math.h>

enum { CLASSES = 10, SIDE = 32, PATCH = 4, PICTURES = 320, BATCH = 16, EPOCHS = 5 };
enum { WIDTH = 128, HEADS = 4, DEPTH = 4, TOKENS = (SIDE / PATCH) * (SIDE / PATCH) };
enum { STEPS = EPOCHS * PICTURES / BATCH, WARMUP = 20 };
#include "history.h"

/* Pictures of waves under noise; the direction is the class. */
static wb_dataset *waves(void)
{
    static float x[PICTURES][3][SIDE][SIDE];
    static int32_t y[PICTURES];
    int64_t number = 0;
    for (int i = 0; i < PICTURES; i++) {
        y[i] = i % CLASSES;
        double angle = 3.14159265358979 * y[i] / CLASSES;
        for (int channel = 0; channel < 3; channel++)
            for (int row = 0; row < SIDE; row++)
                for (int column = 0; column < SIDE; column++, number++) {
                    double along = cos(angle) * column + sin(angle) * row;
                    double noise = 2 * ((double)(number * number % 1009) / 1009) - 1;
                    double wave = sin(0.8 * along + channel + 0.1 * i);
                    x[i][channel][row][column] = (float)(wave + noise);
                }
    }
    return wb_dataset_of(wb_from(x, WB_F32, 4, (int64_t[]){PICTURES, 3, SIDE, SIDE}),
                         wb_from(y, WB_I32, 1, (int64_t[]){PICTURES}));
}

/* A block of the transformer, with the names of PyTorch's TransformerEncoderLayer. */
typedef struct {
    wb_layer *norm1, *self_attn, *norm2, *linear1, *linear2;
} block;

static wb_tensor *call_block(const block *b, wb_tensor *x)
{
    x = wb_add(x, wb_call(b->self_attn, wb_call(b->norm1, x)));
    return wb_add(x, wb_call(b->linear2, wb_call(b->linear1, wb_call(b->norm2, x))));
}
WB_LAYER(block, call_block, norm1, self_attn, norm2, linear1, linear2)

typedef struct {
    wb_tensor *token, *places;
    wb_layer *patches, *blocks, *norm, *head;
} vision_transformer;

static wb_tensor *call(const vision_transformer *m, wb_tensor *x)
{
    x = wb_transpose(wb_reshape(wb_call(m->patches, x), wb_dim(x, 0), WIDTH, TOKENS));
    wb_tensor *token = wb_expand(m->token, wb_dim(x, 0), 1, WIDTH);
    x = wb_call(m->blocks, wb_add(wb_concat(1, token, x), m->places));
    return wb_call(m->head, wb_call(m->norm, wb_squeeze(wb_slice(x, 1, 0, 1), 1)));
}
WB_LAYER(vision_transformer, call, token, places, patches, blocks, norm, head)

static wb_layer *vit(void)
{
    wb_layer *blocks[DEPTH];
    for (int i = 0; i < DEPTH; i++)
        blocks[i] = wb_layer_of(block, .norm1 = wb_LayerNorm({WIDTH}),
                                .self_attn = wb_MultiHeadAttention(WIDTH, HEADS, .bias = true),
                                .norm2 = wb_LayerNorm({WIDTH}),
                                .linear1 = wb_Dense(WIDTH, 4 * WIDTH, wb_gelu_erf),
                                .linear2 = wb_Dense(4 * WIDTH, WIDTH));
    wb_tensor *places = wb_mul(wb_randn(TOKENS + 1, WIDTH), 0.02);
    return wb_layer_of(vision_transformer, .token = wb_variable(wb_zeros(1, 1, WIDTH)),
                       .places = wb_variable(places),
                       .patches = wb_Conv(3, WIDTH, {PATCH}, .stride = {PATCH}),
                       .blocks = wb_Chain_array(DEPTH, blocks), .norm = wb_LayerNorm({WIDTH}),
                       .head = wb_Dense(WIDTH, CLASSES));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y, .label_smoothing = 0.1);
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = vit();
    wb_loader *loader = wb_dataloader(waves(), BATCH);
    wb_schedule *rate = wb_ScheduleSequence({wb_ScheduleWarmup(1e-4, 1e-3, WARMUP), WARMUP},
                                            {wb_ScheduleCosAnneal(1e-3, 0, STEPS - WARMUP),
                                             STEPS - WARMUP});
    wb_opt_state *state = wb_setup(wb_AdamW(.lambda = 0.05), model, .schedule = rate);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &h))
        return failed();
    printf("vit: loss %.4f -> %.4f, %.2f ms a step\n", h.losses[0], h.losses[STEPS - 1],
           1e3 * median(&h));
    return 0;
}
