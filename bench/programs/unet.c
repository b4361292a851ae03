/* A U-Net finds circles in noisy pictures; the twin of unet.py.
 *
 *   unet [FILE]      begins with the weights in FILE, which unet.py writes */

enum { SIDE = 64, PICTURES = 128, BATCH = 8, EPOCHS = 6, WIDTH = 16, DEPTH = 3 };
enum { STEPS = EPOCHS * PICTURES / BATCH };
#include "history.h"

/* Pictures of brighter circles under noise, and their masks. */
static wb_dataset *circles(void)
{
    static float picture[PICTURES][SIDE][SIDE], mask[PICTURES][SIDE][SIDE];
    for (int64_t i = 0; i < PICTURES; i++)
        for (int64_t row = 0; row < SIDE; row++)
            for (int64_t column = 0; column < SIDE; column++) {
                int64_t down = row - 12 - i * 7 % 40, right = column - 12 - i * 11 % 40;
                int64_t radius = 6 + i % 9, number = (i * SIDE + row) * SIDE + column;
                bool inside = down * down + right * right < radius * radius;
                mask[i][row][column] = inside;
                picture[i][row][column] = 0.4f * inside + number * number % 1009 / 1009.0f;
            }
    const int64_t dims[] = {PICTURES, 1, SIDE, SIDE};
    return wb_dataset_of(wb_from(picture, WB_F32, 4, dims), wb_from(mask, WB_F32, 4, dims));
}

static wb_layer *convolutions(int64_t inputs, int64_t outputs)
{
    return wb_Chain(wb_Conv(inputs, outputs, {3}, .pad = {1}, .bias = false),
                    wb_BatchNorm(outputs, wb_relu),
                    wb_Conv(outputs, outputs, {3}, .pad = {1}, .bias = false),
                    wb_BatchNorm(outputs, wb_relu));
}

static wb_tensor *beside(wb_tensor *x, wb_tensor *y) { return wb_concat(1, x, y); }

/* Convolutions around a smaller U-Net for pictures of half the size. */
static wb_layer *unet(int64_t inputs, int64_t width, int depth)
{
    if (depth == 0) return convolutions(inputs, width);
    wb_layer *lower = wb_Chain(wb_MaxPool({2}), unet(width, 2 * width, depth - 1),
                               wb_ConvTranspose(2 * width, width, {2}, .stride = {2}));
    return wb_Chain(convolutions(inputs, width), wb_SkipConnection(lower, beside),
                    convolutions(2 * width, width));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *scores = wb_call(model, batch.x);
    return wb_add(wb_logitbinarycrossentropy(scores, batch.y),
                  wb_dice_coeff_loss(wb_sigmoid(scores), batch.y));
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = wb_Chain(unet(1, WIDTH, DEPTH), wb_Conv(WIDTH, 1, {1}));
    wb_loader *loader = wb_dataloader(circles(), BATCH);
    wb_opt_state *state = wb_setup(wb_Adam(1e-3), model);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &h))
        return failed();
    printf("unet: loss %.4f -> %.4f, %.2f ms a step\n", h.losses[0], h.losses[STEPS - 1],
           1e3 * median(&h));
    return 0;
}
