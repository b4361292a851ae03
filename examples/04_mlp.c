/* Step 4: a training loop written out. A multi-layer perceptron classifies points of two spirals:
 * batches, dropout, a decreasing learning rate, held-out data, and the best model saved.
 *
 *   04_mlp [EPOCHS]          60 unless given
 *
 * Prints:
 *   2000 points: 1600 to learn from, 400 held out
 *   epoch 20: loss ..., held out ... % right
 *   epoch 40: loss ..., held out ... % right
 *   epoch 60: loss ..., held out 100.0 % right
 *   ...
 *   the map that it learned (o and . are its two classes):
 *   ... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weber.h>

enum { POINTS = 2000 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

/* Points of two spirals around the origin with a little noise; the second spiral is rotated by half
 * a turn. */
static wb_dataset *spirals(void)
{
    static float x[POINTS][2];
    static int32_t y[POINTS];
    const float *noise = wb_data(wb_randn(POINTS, 2));
    if (!noise) return NULL;
    for (int i = 0; i < POINTS; i++) {
        double t = (double)(i / 2) / (POINTS / 2), radius = 0.1 + 0.9 * t,
               angle = 9 * t + 3.14159265 * (i % 2);
        x[i][0] = (float)(radius * cos(angle)) + 0.015f * noise[2 * i];
        x[i][1] = (float)(radius * sin(angle)) + 0.015f * noise[2 * i + 1];
        y[i] = i % 2;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){POINTS, 2}),
                         wb_from(y, WB_I32, 1, (int64_t[]){POINTS}));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), wb_onehotbatch(batch.y, 2));
}

/* The fraction of the dataset that the model classifies correctly. */
static double accuracy(wb_layer *model, wb_dataset *data)
{
    wb_tensor *right = wb_eq(wb_onecold(wb_call(model, wb_dataset_x(data))), wb_dataset_y(data));
    return wb_item(wb_mean(wb_astype(right, WB_F32)));
}

static void draw_map(wb_layer *model)
{
    enum { ROWS = 20, COLUMNS = 48 };
    float grid[ROWS][COLUMNS][2];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            grid[r][c][0] = 2.2f * (float)c / (COLUMNS - 1) - 1.1f;
            grid[r][c][1] = 1.1f - 2.2f * (float)r / (ROWS - 1);
        }
    wb_tensor *points = wb_from(grid, WB_F32, 2, (int64_t[]){ROWS * COLUMNS, 2});
    const int32_t *class = wb_data(wb_onecold(wb_call(model, points)));
    for (int i = 0; class && i < ROWS * COLUMNS; i++) {
        putchar(class[i] ? 'o' : '.');
        if (i % COLUMNS == COLUMNS - 1) putchar('\n');
    }
}

int main(int argc, char **argv)
{
    int epochs = argc > 1 ? atoi(argv[1]) : 60;
    wb_seed(1);
    wb_dataset *train, *held_out;
    if (wb_splitobs(spirals(), 0.8, &train, &held_out, .shuffle = true)) return complain();
    printf("%d points: %lld to learn from, %lld held out\n", POINTS,
           (long long)wb_dataset_length(train), (long long)wb_dataset_length(held_out));

    wb_layer *model = wb_Chain(wb_Dense(2, 64, wb_relu), wb_Dense(64, 64, wb_relu),
                               wb_Dropout(.p = 0.05), wb_Dense(64, 2));
    wb_opt_state *state = wb_setup(wb_AdamW(.eta = 5e-3), model);
    wb_loader *loader = wb_dataloader(train, .batchsize = 64, .shuffle = true);

    double best = 0;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        wb_adjust(state, .eta = 5e-3 * (1 - 0.95 * (epoch - 1) / epochs));
        double total = 0;
        WB_EACH_BATCH(batch, loader) {                  /* a scope for each batch */
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
            if (wb_update(state, model, gradients)) return complain();
            total += wb_item(l) * (double)batch.n;
        }
        if (wb_loader_status(loader)) return complain();
        if (epoch % 20) continue;

        wb_scope *scope = wb_scope_open();
        double now = accuracy(model, held_out);
        printf("epoch %d: loss %.4f, held out %.1f %% right\n",
               epoch, total / (double)wb_dataset_length(train), 100 * now);
        if (now > best && wb_save("spirals.safetensors", model)) return complain();
        best = fmax(best, now);
        wb_scope_close(scope);
    }
    if (best > 0) printf("the best of them is in spirals.safetensors\n");
    printf("the map that it learned (o and . are its two classes):\n");
    draw_map(model);
    return wb_error_code() ? complain() : 0;
}
