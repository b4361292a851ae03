/* A residual network learns the angles of stripes; then its frozen body gets a new head, which
 * learns their widths; the twin of fine_tune.py.
 *
 *   fine_tune [FILE]      begins with the weights in FILE, which fine_tune.py writes */
#include <math.h>

enum { SIDE = 32, PICTURES = 384, BATCH = 32, EPOCHS = 4, ANGLES = 4, WIDTHS = 3 };
enum { STEPS = EPOCHS * PICTURES / BATCH };
#include "history.h"

/* Noisy pictures [PICTURES,1,SIDE,SIDE] of stripes, and the classes of angle and width. */
static void stripes(wb_tensor **pictures, wb_tensor **angles, wb_tensor **widths)
{
    static float picture[PICTURES][SIDE][SIDE];
    static int32_t angle[PICTURES], width[PICTURES];
    const double pi = 3.14159265358979;
    for (int64_t i = 0; i < PICTURES; i++) {
        angle[i] = i % ANGLES;
        width[i] = i / ANGLES % WIDTHS;
        double turn = pi * angle[i] / ANGLES;
        for (int64_t row = 0; row < SIDE; row++)
            for (int64_t column = 0; column < SIDE; column++) {
                double place = cos(turn) * column + sin(turn) * row;
                int64_t number = (i * SIDE + row) * SIDE + column;
                double noise = number * number % 1009 / 1009.0;
                picture[i][row][column] = sin(2 * pi * place / (4 + 3 * width[i]) + i) + noise;
            }
    }
    *pictures = wb_from(picture, WB_F32, 4, (int64_t[]){PICTURES, 1, SIDE, SIDE});
    *angles = wb_from(angle, WB_I32, 1, (int64_t[]){PICTURES});
    *widths = wb_from(width, WB_I32, 1, (int64_t[]){PICTURES});
}

/* A residual block, which halves the size of pictures. */
static wb_layer *block(int64_t inputs, int64_t outputs)
{
    wb_layer *straight =
        wb_Chain(wb_Conv(inputs, outputs, {3}, .stride = {2}, .pad = {1}, .bias = false),
                 wb_BatchNorm(outputs, wb_relu),
                 wb_Conv(outputs, outputs, {3}, .pad = {1}, .bias = false),
                 wb_BatchNorm(outputs));
    wb_layer *shortcut = wb_Chain(wb_Conv(inputs, outputs, {1}, .stride = {2}, .bias = false),
                                  wb_BatchNorm(outputs));
    return wb_Chain(wb_Parallel(wb_add, straight, shortcut), wb_relu);
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

static int train(const char *name, wb_layer *model, wb_opt_state *state, wb_loader *loader)
{
    history h = {0};
    int status = wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &h);
    if (!status)
        printf("%s: loss %.4f -> %.4f, %.2f ms a step\n", name, h.losses[0], h.losses[STEPS - 1],
               1e3 * median(&h));
    return status;
}

int main(int argc, char **argv)
{
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *body = wb_Chain(wb_Conv(1, 16, {3}, .pad = {1}, .bias = false),
                              wb_BatchNorm(16, wb_relu), block(16, 32), block(32, 64),
                              wb_GlobalMeanPool(), wb_Flatten());
    wb_layer *model = wb_Chain(body, wb_Dense(64, ANGLES)), *head = wb_Dense(64, WIDTHS);
    if (argc > 1 && (wb_load_state(argv[1], model, .prefix = "model.") ||
                     wb_load_state(argv[1], head, .prefix = "head.")))
        return failed();
    wb_tensor *pictures, *angles, *widths;
    stripes(&pictures, &angles, &widths);

    wb_loader *loader = wb_dataloader(wb_dataset_of(pictures, angles), BATCH);
    if (train("train", model, wb_setup(wb_Adam(1e-3), model), loader)) return failed();

    wb_layer *tuned = wb_Chain(wb_testmode(body), head);
    wb_opt_state *state = wb_setup(wb_Adam(1e-2), tuned);
    loader = wb_dataloader(wb_dataset_of(pictures, widths), BATCH);
    if (wb_freeze(state, "layers.0") || train("fine_tune", tuned, state, loader)) return failed();
    wb_tensor *right = wb_eq(wb_onecold(wb_call(tuned, pictures)), widths);
    printf("%.1f %% of the widths are right\n", 100 * wb_item(wb_mean(wb_astype(right, WB_F32))));
    return wb_error_code() ? failed() : 0;
}
