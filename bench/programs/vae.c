/* A variational autoencoder of pictures of digits; the twin of vae.py.
 *
 *   vae [FILE]       begins with the weights in FILE, which vae.py writes */

enum { SIDE = 28, PICTURES = 1280, BATCH = 64, EPOCHS = 6, LATENT = 16 };
enum { STEPS = EPOCHS * PICTURES / BATCH };
#include "history.h"

/* The seven segments, and the segments of each digit. */
static const struct { int row, column, height, width; } segments[7] = {
    {0, 0, 2, 10}, {0, 8, 9, 2}, {8, 8, 9, 2}, {15, 0, 2, 10}, {8, 0, 9, 2}, {0, 0, 9, 2},
    {7, 0, 2, 10},
};
static const int shapes[10] = {0x3F, 0x06, 0x5B, 0x4F, 0x66, 0x6D, 0x7D, 0x07, 0x7F, 0x6F};

/* Digits of seven segments at different places, in 0..1. */
static wb_dataset *digits(void)
{
    static float pictures[PICTURES][SIDE][SIDE];
    for (int i = 0; i < PICTURES; i++)
        for (int k = 0; k < 7; k++) {
            if (!(shapes[i % 10] >> k & 1)) continue;
            int top = 2 + i * 3 % 8 + segments[k].row, left = 4 + i * 7 % 11 + segments[k].column;
            for (int row = top; row < top + segments[k].height; row++)
                for (int column = left; column < left + segments[k].width; column++)
                    pictures[i][row][column] = 0.6f + (float)(i % 5) / 10;
        }
    return wb_dataset_of(wb_from(pictures, WB_F32, 4, (int64_t[]){PICTURES, 1, SIDE, SIDE}),
                         WB_NONE);
}

typedef struct {
    wb_layer *encoder, *decoder;
} vae;

/* Pictures to scores of their pixels, and to means and logarithms of variances of their codes. */
static int call(const vae *m, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1 || wb_split(wb_call(m->encoder, in[0]), 1, 2, out + 1)) return -1;
    wb_tensor *noise = wb_randn(wb_dim(in[0], 0), LATENT);
    out[0] = wb_call(m->decoder, wb_add(out[1], wb_mul(wb_exp(wb_div(out[2], 2)), noise)));
    return out[0] ? 3 : -1;
}
WB_LAYER(vae, call, encoder, decoder)

static wb_tensor *unflatten(wb_tensor *x) { return wb_reshape(x, -1, 64, 7, 7); }

static wb_layer *new_vae(void)
{
    return wb_layer_of(
        vae,
        .encoder = wb_Chain(wb_Conv(1, 32, {4}, wb_relu, .stride = {2}, .pad = {1}),
                            wb_Conv(32, 64, {4}, wb_relu, .stride = {2}, .pad = {1}),
                            wb_Flatten(), wb_Dense(64 * 49, 2 * LATENT)),
        .decoder = wb_Chain(wb_Dense(LATENT, 64 * 49, wb_relu), unflatten,
                            wb_ConvTranspose(64, 32, {4}, wb_relu, .stride = {2}, .pad = {1}),
                            wb_ConvTranspose(32, 1, {4}, .stride = {2}, .pad = {1})));
}

/* The negative evidence lower bound of a picture, in nats. */
static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *out[3];
    if (wb_call_outputs(model, 1, &batch.x, 3, out)) return NULL;
    wb_tensor *reconstruction = wb_logitbinarycrossentropy(out[0], batch.x, .agg = WB_AGG_SUM);
    wb_tensor *spread = wb_sub(wb_sub(wb_exp(out[2]), 1), out[2]);
    wb_tensor *divergence = wb_mul(wb_sum(wb_add(wb_square(out[1]), spread)), 0.5);
    return wb_div(wb_add(reconstruction, divergence), batch.n);
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = new_vae();
    wb_loader *loader = wb_dataloader(digits(), BATCH);
    wb_opt_state *state = wb_setup(wb_Adam(1e-3), model);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &h))
        return failed();
    printf("vae: loss %.2f -> %.2f, %.2f ms a step\n", h.losses[0], h.losses[STEPS - 1],
           1e3 * median(&h));
    return 0;
}
