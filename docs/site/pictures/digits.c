/* Pictures of handwritten digits of 8x8 pixels, the file digits.csv.gz of scikit-learn: digits
 * before and after random moves, the confusion matrix of a network that reads them, and digits
 * that a variational autoencoder generates.
 *
 *   digits FOLDER FILE */
#include <stdio.h>
#include <weber.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, LATENT = 8, SCALE = 5 };

/* Writes rows of digits x [rows * columns, 1, 8, 8], dark on white, enlarged. */
static int write_grid(const char *folder, const char *name, wb_tensor *x, int rows, int columns)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.png", folder, name);
    x = wb_pad(x, 3, 1, 1);
    x = wb_pad(x, 2, 1, 1);
    x = wb_upsample(x, .scale = {SCALE}, .mode = WB_UPSAMPLE_LINEAR);
    int side = (SIDE + 2) * SCALE;
    x = wb_permute(wb_reshape(x, rows, columns, side, side), 0, 2, 1, 3);
    x = wb_reshape(x, 1, rows * side, columns * side);
    x = wb_mul(wb_sub(1, wb_clamp(x, 0, 1)), 255);
    return wb_save_image(path, wb_astype(x, WB_U8));
}

/* Moves each digit by up to one pixel and turns it by up to 20 degrees. */
static wb_tensor *moved(wb_tensor *x)
{
    int64_t n = wb_dim(x, 0);
    wb_tensor *angle = wb_mul(wb_sub(wb_rand(n, 1, 1), 0.5), 0.6);
    wb_tensor *shift = wb_mul(wb_sub(wb_rand(n, 2, 1), 0.5), 0.35);
    wb_tensor *c = wb_cos(angle), *s = wb_sin(angle);
    wb_tensor *turn = wb_concat(1, wb_concat(2, c, wb_neg(s)), wb_concat(2, s, c));
    wb_tensor *at = wb_sub(wb_div(wb_arange(SIDE, WB_F32), (SIDE - 1) / 2.0), 1);
    wb_tensor *grid_x = wb_expand(wb_reshape(at, 1, SIDE), SIDE, SIDE);
    wb_tensor *grid = wb_stack(0, wb_reshape(grid_x, PIXELS),
                               wb_reshape(wb_transpose(grid_x), PIXELS));
    grid = wb_add(wb_matmul(turn, grid), shift);                    /* [n, 2, 64] */
    return wb_grid_sample(x, wb_permute(wb_reshape(grid, -1, 2, SIDE, SIDE), 0, 2, 3, 1));
}

static int augment(wb_batch *batch, void *ctx)
{
    (void)ctx;
    batch->x = moved(batch->x);
    return wb_error_code();
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

/* Writes an SVG of counts[truth][guess]. */
static int write_confusion(const char *folder, int counts[10][10], int right, int n)
{
    enum { CELL = 34, LEFT = 40, TOP = 50 };
    char path[1024];
    snprintf(path, sizeof path, "%s/confusion.svg", folder);
    FILE *f = fopen(path, "w");
    if (!f) return wb_fail(WB_ERROR_FILE, "%s cannot be written", path);
    int size = 10 * CELL;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
               "<text x=\"%d\" y=\"20\">%d of %d held-out digits are read right</text>\n",
            LEFT + size + 10, TOP + size + 10, LEFT + size + 10, LEFT + size / 2, right, n);
    for (int i = 0; i < 10; i++) {
        int at = i * CELL + CELL / 2;
        fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"#555555\">%d</text>\n", LEFT + at, TOP - 8, i);
        fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"#555555\">%d</text>\n", LEFT - 16, TOP + at + 5,
                i);
        for (int k = 0; k < 10; k++) {
            int count = counts[i][k], most = 40;
            double share = count > most ? 1 : (double)count / most;
            int blue = 255 - (int)(75 * share), other = 255 - (int)(200 * share);
            if (count && i != k) blue = 180, other = 190;
            fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                       "fill=\"rgb(%d,%d,%d)\"/>\n",
                    LEFT + k * CELL + 1, TOP + i * CELL + 1, CELL - 2, CELL - 2,
                    i == k ? other : count ? 250 : 247, i == k ? other : count ? other : 247,
                    i == k ? blue : count ? blue : 247);
            if (count)
                fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%d</text>\n",
                        LEFT + k * CELL + CELL / 2, TOP + at + 5,
                        i == k && share > 0.5 ? "#ffffff" : "#222222", count);
        }
    }
    fprintf(f, "</svg>\n");
    return fclose(f) ? wb_fail(WB_ERROR_FILE, "%s cannot be written", path) : 0;
}

static int reading(const char *folder, wb_dataset *train, wb_dataset *test)
{
    wb_layer *model = wb_Chain(wb_Conv(1, 16, {3}, wb_relu, .pad = {1}), wb_MaxPool({2}),
                               wb_Conv(16, 32, {3}, wb_relu, .pad = {1}), wb_Flatten(),
                               wb_Dense(32 * 16, 10));
    wb_opt_state *state = wb_setup(wb_Adam(2e-3), model);
    wb_loader *loader = wb_dataloader(wb_mapobs(train, augment, NULL), 64, .shuffle = true,
                                      .seed = 1);
    if (wb_train(loss, model, loader, state, .epochs = 40)) return 1;
    const int32_t *guess = wb_data(wb_onecold(wb_call(model, wb_dataset_x(test))));
    const int32_t *truth = wb_data(wb_dataset_y(test));
    int counts[10][10] = {{0}}, n = (int)wb_dataset_length(test), right = 0;
    for (int i = 0; guess && truth && i < n; i++) {
        counts[truth[i]][guess[i]]++;
        right += truth[i] == guess[i];
    }
    return guess && truth ? write_confusion(folder, counts, right, n) : 1;
}

typedef struct { wb_layer *encoder, *decoder; } vae;

/* Digits [N, 64] to scores of their pixels, and to means and logarithms of variances. */
static int call_vae(const vae *m, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1 || wb_split(wb_call(m->encoder, in[0]), 1, 2, out + 1)) return -1;
    wb_tensor *noise = wb_randn(wb_dim(in[0], 0), LATENT);
    out[0] = wb_call(m->decoder, wb_add(out[1], wb_mul(wb_exp(wb_div(out[2], 2)), noise)));
    return out[0] ? 3 : -1;
}
WB_LAYER(vae, call_vae, encoder, decoder)

static wb_tensor *bound(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *out[3], *x = wb_flatten(batch.x);
    if (wb_call_outputs(model, 1, &x, 3, out)) return NULL;
    wb_tensor *seen = wb_logitbinarycrossentropy(out[0], x, .agg = WB_AGG_SUM);
    wb_tensor *kl = wb_sub(wb_add(wb_square(out[1]), wb_exp(out[2])), wb_add(out[2], 1));
    return wb_div(wb_add(seen, wb_mul(wb_sum(kl), 0.5)), (double)batch.n);
}

static int generating(const char *folder, wb_dataset *all)
{
    wb_layer *decoder = wb_Chain(wb_Dense(LATENT, 256, wb_relu), wb_Dense(256, 256, wb_relu),
                                 wb_Dense(256, PIXELS));
    wb_layer *model = wb_layer_of(vae, .encoder = wb_Chain(wb_Dense(PIXELS, 256, wb_relu),
                                                           wb_Dense(256, 2 * LATENT)),
                                  .decoder = decoder);
    wb_opt_state *state = wb_setup(wb_Adam(1e-3), model,
                                   .schedule = wb_ScheduleOneCycle(29 * 300, 3e-3));
    wb_loader *loader = wb_dataloader(all, 64, .shuffle = true, .seed = 1);
    if (wb_train(bound, model, loader, state, .epochs = 300)) return 1;
    wb_tensor *x = wb_sigmoid(wb_call(decoder, wb_randn(60, LATENT)));
    return write_grid(folder, "generated", wb_reshape(x, 60, 1, SIDE, SIDE), 4, 15);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    wb_seed(1);
    wb_dataset *flat = wb_load_csv(argv[2], .label = -1), *train, *test;
    wb_tensor *x = wb_reshape(wb_div(wb_dataset_x(flat), 16), -1, 1, SIDE, SIDE);
    wb_dataset *all = wb_dataset_of(x, wb_dataset_y(flat));
    wb_tensor *first = wb_slice(x, 0, 0, 15);
    if (wb_splitobs(all, 0.8, &train, &test, .shuffle = true) ||
        write_grid(argv[1], "augmented",
                   wb_concat(0, first, moved(first), moved(first)), 3, 15) ||
        reading(argv[1], train, test) || generating(argv[1], all))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
