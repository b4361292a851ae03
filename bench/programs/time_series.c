/* A transformer encoder forecasts a series from windows over its past; the twin of time_series.py.
 *
 *   time_series [FILE]      begins with the weights in FILE, which time_series.py writes */
#include <math.h>

enum { LENGTH = 4096, PAST = 64, FUTURE = 8, STRIDE = 4, BATCH = 32, EPOCHS = 8 };
enum { WIDTH = 32, HEADS = 4, LEARN = 800, STEPS = EPOCHS * LEARN / BATCH };
#include "history.h"

/* Two waves, the second of which grows and shrinks, and noise. */
static wb_dataset *series(void)
{
    static float x[LENGTH];
    for (int t = 0; t < LENGTH; t++) {
        double wave = sin(0.3 * t) + sin(0.0173 * t) * sin(0.9 * t);
        x[t] = wave + 0.2 * (t * t % 1009) / 1009;
    }
    wb_tensor *values = wb_from(x, WB_F32, 1, (int64_t[]){LENGTH});
    return wb_dataset_of(values, values);
}

/* A layer of PyTorch's transformer encoder, with norms first. */
typedef struct { wb_layer *norm1, *self_attn, *norm2, *linear1, *linear2; } encoder_layer;
static wb_tensor *call_encoder_layer(const encoder_layer *l, wb_tensor *x)
{
    x = wb_add(x, wb_call(l->self_attn, wb_call(l->norm1, x)));
    return wb_add(x, wb_call(l->linear2, wb_call(l->linear1, wb_call(l->norm2, x))));
}
WB_LAYER(encoder_layer, call_encoder_layer, norm1, self_attn, norm2, linear1, linear2)

static wb_layer *new_encoder_layer(void)
{
    return wb_layer_of(encoder_layer, .norm1 = wb_LayerNorm({WIDTH}),
                       .self_attn = wb_MultiHeadAttention(WIDTH, HEADS, .bias = true),
                       .norm2 = wb_LayerNorm({WIDTH}),
                       .linear1 = wb_Dense(WIDTH, 4 * WIDTH, wb_gelu_erf),
                       .linear2 = wb_Dense(4 * WIDTH, WIDTH));
}

/* The past [N,PAST] of a series -> its future [N,FUTURE]. */
typedef struct { wb_layer *embed, *encoder, *head; wb_tensor *place; } forecaster;
static wb_tensor *call_forecaster(const forecaster *f, wb_tensor *past)
{
    wb_tensor *x = wb_add(wb_call(f->embed, wb_unsqueeze(past, 2)), f->place);
    return wb_call(f->head, wb_flatten(wb_call(f->encoder, x)));
}
WB_LAYER(forecaster, call_forecaster, embed, encoder, head, place)

static wb_layer *new_forecaster(void)
{
    return wb_layer_of(forecaster, .embed = wb_Dense(1, WIDTH),
                       .place = wb_variable(wb_mul(0.1, wb_randn(PAST, WIDTH))),
                       .encoder = wb_Chain(new_encoder_layer(), new_encoder_layer()),
                       .head = wb_Dense(PAST * WIDTH, FUTURE));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *past = wb_slice(batch.x, 1, 0, PAST);
    return wb_mse(wb_call(model, past), wb_slice(batch.x, 1, PAST, PAST + FUTURE));
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = new_forecaster();
    wb_dataset *windows = wb_slidingwindow(series(), PAST + FUTURE, STRIDE);
    wb_dataset *learn = wb_subset(windows, 0, LEARN);
    wb_dataset *test = wb_subset(windows, LEARN, wb_dataset_length(windows));
    wb_opt_state *state = wb_setup(wb_AdamW(1e-3), model);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, wb_dataloader(learn, BATCH), state, EPOCHS, .each = note,
                 .ctx = &h))
        return failed();
    printf("time_series: loss %.4f -> %.4f, %.2f ms a step\n", h.losses[0], h.losses[STEPS - 1],
           1e3 * median(&h));
    wb_batch later = wb_batch_of(wb_dataset_x(test), WB_NONE);
    printf("on later windows: %.4f\n", wb_item(loss(model, later, NULL)));
    return 0;
}
