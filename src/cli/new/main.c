/* Trains a small network that finds the class of a point, saves it, loads it again and measures
 * it on points that it has not seen.
 *
 *   @NAME@              points of two spirals, made here
 *   @NAME@ FILE.csv     a file with a heading, numbers, and the class in the last column */
#include <math.h>
#include <stdio.h>
#include <weber.h>

enum { POINTS = 2000, EPOCHS = 40 };

static int failed(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static wb_dataset *spirals(void)
{
    static float x[POINTS][2];
    static int32_t y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        const double t = (double)(i / 2) / (POINTS / 2), turn = 9 * t + 3.14159265 * (i % 2);
        x[i][0] = (float)((0.1 + t) * cos(turn));
        x[i][1] = (float)((0.1 + t) * sin(turn));
        y[i] = i % 2;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){POINTS, 2}),
                         wb_from(y, WB_I32, 1, (int64_t[]){POINTS}));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

/* Returns the fraction of the points whose class the model finds. */
static double accuracy(wb_layer *model, wb_dataset *data)
{
    wb_tensor *right = wb_eq(wb_onecold(wb_call(model, wb_dataset_x(data))), wb_dataset_y(data));
    return wb_item(wb_mean(wb_astype(right, WB_F32)));
}

int main(int argc, char **argv)
{
    wb_seed(1);
    wb_dataset *all = argc > 1 ? wb_load_csv(argv[1], true, .label = -1)
                               : spirals();
    wb_dataset *train, *held_out;
    if (wb_splitobs(all, 0.8, &train, &held_out, .shuffle = true)) return failed();
    const int64_t features = wb_dim(wb_dataset_x(all), 1);
    const int64_t classes = 1 + (int64_t)wb_item(wb_max(wb_dataset_y(all)));

    wb_layer *model = wb_Chain(wb_BatchNorm(features), wb_Dense(features, 64, wb_relu),
                               wb_Dense(64, 64, wb_relu), wb_Dense(64, classes));
    wb_loader *batches = wb_dataloader(train, .batchsize = 64, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 3e-3), model);
    if (wb_train(loss, model, batches, state, .epochs = EPOCHS, .progress = true)) return failed();

    if (wb_save("model.safetensors", model)) return failed();
    wb_layer *loaded = wb_load("model.safetensors");
    const double right = accuracy(loaded, held_out);
    if (wb_error_code()) return failed();
    printf("%lld points of %lld classes held out: %.1f %% right\n",
           (long long)wb_dataset_length(held_out), (long long)classes, 100 * right);
    return 0;
}
