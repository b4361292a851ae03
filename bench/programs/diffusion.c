/* A diffusion model learns to make pictures of discs out of noise; the twin of diffusion.py.
 *
 *   diffusion [FILE]      begins with the weights in FILE, which diffusion.py writes */
#include <math.h>

enum { SIDE = 8, PICTURES = 1024, BATCH = 64, EPOCHS = 25, TIMES = 100, WIDTH = 32, MADE = 256 };
enum { STEPS = EPOCHS * PICTURES / BATCH };
#include "history.h"

/* Pictures [PICTURES,1,SIDE,SIDE] that are 1 in a disc, and -1 around it. */
static wb_tensor *discs(void)
{
    static float picture[PICTURES][SIDE][SIDE];
    for (int i = 0; i < PICTURES; i++)
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++) {
                int down = row - 2 - i % 4, right = column - 2 - i / 4 % 4;
                picture[i][row][column] = down * down + right * right < 3 + i % 5 ? 1 : -1;
            }
    return wb_from(picture, WB_F32, 4, (int64_t[]){PICTURES, 1, SIDE, SIDE});
}

/* A residual block that also takes the embedding of the time. */
typedef struct { wb_layer *norm1, *conv1, *time, *norm2, *conv2; } block;
static int call_block(const block *b, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return -1;
    wb_tensor *h = wb_call(b->conv1, wb_call(b->norm1, in[0]));
    h = wb_add(h, wb_reshape(wb_call(b->time, in[1]), -1, WIDTH, 1, 1));
    out[0] = wb_add(in[0], wb_call(b->conv2, wb_call(b->norm2, h)));
    return out[0] ? 1 : -1;
}
WB_LAYER(block, call_block, norm1, conv1, time, norm2, conv2)

static wb_layer *new_block(void)
{
    return wb_layer_of(block, .norm1 = wb_GroupNorm(WIDTH, 8, wb_swish),
                       .conv1 = wb_Conv(WIDTH, WIDTH, {3}, .pad = {1}),
                       .time = wb_Dense(2 * WIDTH, WIDTH),
                       .norm2 = wb_GroupNorm(WIDTH, 8, wb_swish),
                       .conv2 = wb_Conv(WIDTH, WIDTH, {3}, .pad = {1}));
}

/* Noisy pictures [N,1,SIDE,SIDE] and their times [N] -> the noise in them. */
typedef struct { wb_layer *embed, *first, *block1, *block2, *last; } denoiser;
static int call_denoiser(const denoiser *d, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return -1;
    const int half = WIDTH / 2;
    wb_tensor *rate = wb_exp(wb_mul(wb_arange(half, WB_F32), -log(1000) / half));
    wb_tensor *angle = wb_mul(wb_unsqueeze(wb_astype(in[1], WB_F32), 1), rate);
    wb_tensor *time = wb_call(d->embed, wb_concat(1, wb_sin(angle), wb_cos(angle)));
    wb_tensor *x = wb_call(d->block1, wb_call(d->first, in[0]), time);
    out[0] = wb_call(d->last, wb_call(d->block2, x, time));
    return out[0] ? 1 : -1;
}
WB_LAYER(denoiser, call_denoiser, embed, first, block1, block2, last)

static wb_layer *new_denoiser(void)
{
    return wb_layer_of(denoiser, .embed = wb_Dense(WIDTH, 2 * WIDTH, wb_swish),
                       .first = wb_Conv(1, WIDTH, {3}, .pad = {1}), .block1 = new_block(),
                       .block2 = new_block(), .last = wb_Conv(WIDTH, 1, {3}, .pad = {1}));
}

typedef struct {
    history past;
    wb_tensor *kept;                /* [TIMES], the share of the picture that is left */
} training;

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    training *t = ctx;
    wb_tensor *time = wb_randint(0, TIMES, batch.n);
    wb_tensor *share = wb_reshape(wb_take(t->kept, time), -1, 1, 1, 1);
    wb_tensor *noise = wb_randn(batch.n, 1, SIDE, SIDE);
    wb_tensor *noisy = wb_add(wb_mul(wb_sqrt(share), batch.x),
                              wb_mul(wb_sqrt(wb_sub(1, share)), noise));
    return wb_mse(wb_call(model, noisy, time), noise);
}

/* New pictures [MADE,1,SIDE,SIDE]. */
static wb_tensor *make(wb_layer *model, wb_tensor *kept)
{
    wb_tensor *x = wb_randn(MADE, 1, SIDE, SIDE);
    for (int t = TIMES - 1; t >= 0; t--) {
        wb_scope *scope = wb_scope_open();
        double share = wb_at(kept, t), alpha = t > 0 ? share / wb_at(kept, t - 1) : share;
        wb_tensor *times = wb_full_array(t, WB_I32, 1, (int64_t[]){MADE});
        wb_tensor *noise = wb_mul(wb_call(model, x, times), (1 - alpha) / sqrt(1 - share));
        x = wb_div(wb_sub(x, noise), sqrt(alpha));
        if (t > 0) x = wb_add(x, wb_mul(wb_randn(MADE, 1, SIDE, SIDE), sqrt(1 - alpha)));
        wb_keep(x);
        if (wb_scope_close(scope)) return NULL;
    }
    return x;
}

int main(int argc, char **argv)
{
    static training t;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = new_denoiser();
    wb_tensor *pictures = discs();
    wb_tensor *beta = wb_add(wb_mul(wb_arange(TIMES, WB_F32), 0.199 / (TIMES - 1)), 0.001);
    t.kept = wb_cumprod(wb_sub(1, beta), 0);
    wb_loader *loader = wb_dataloader(wb_dataset_of(pictures, WB_NONE), BATCH, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_Adam(2e-3), model);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &t))
        return failed();

    printf("diffusion: loss %.4f -> %.4f, %.2f ms a step\n", t.past.losses[0],
           last_losses(&t.past, 50), 1e3 * median(&t.past));
    double start = seconds();
    wb_tensor *made = make(model, t.kept);
    if (!made) return failed();
    printf("%d pictures in %.2f s\n", MADE, seconds() - start);
    printf("mean %.3f, of the data %.3f; |x| %.3f\n", wb_item(wb_mean(made)),
           wb_item(wb_mean(pictures)), wb_item(wb_mean(wb_abs(made))));
    return 0;
}
