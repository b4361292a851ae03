/* A training that stops and continues: from a checkpoint with the same losses, and from the model's
 * weights alone, without the state of the rule and the place in the data.
 *
 *   files FOLDER WORK_FOLDER */
#include <math.h>
#include <stdio.h>
#include <weber.h>

enum { POINTS = 512, EPOCHS = 60, STOP = 30 };

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

static wb_layer *new_model(void)
{
    wb_seed(1);
    return wb_Chain(wb_Dense(1, 64, wb_tanh), wb_Dense(64, 64, wb_tanh), wb_Dense(64, 1));
}

/* Trains up to the epoch `last`; keeps a checkpoint in the file `path`, and continues from it. */
static int train(wb_layer *model, int last, const char *path, double *losses)
{
    wb_tensor *x = wb_reshape(wb_linspace(-3, 3, POINTS, WB_F32), -1, 1);
    wb_loader *loader = wb_dataloader(wb_dataset_of(x, wb_sin(wb_mul(x, 2))), .batchsize = 64,
                                      .shuffle = true, .seed = 1);
    wb_opt_state *state = wb_setup(wb_Adam(1e-3), model);
    if (!path) return wb_train(loss, model, loader, state, .epochs = last, .losses = losses);
    return wb_train(loss, model, loader, state, .epochs = last, .losses = losses,
                    .checkpoint = path, .resume = true);
}

int main(int argc, char **argv)
{
    static double at[EPOCHS], whole[EPOCHS], parts[EPOCHS], bare[EPOCHS];
    char checkpoint[1024], weights[1024], picture[1024];
    if (argc != 3) return 2;
    snprintf(checkpoint, sizeof checkpoint, "%s/run.safetensors", argv[2]);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", argv[2]);
    snprintf(picture, sizeof picture, "%s/checkpoint.svg", argv[1]);
    remove(checkpoint);
    wb_layer *first = new_model(), *model = new_model();
    bool bad = train(new_model(), EPOCHS, NULL, whole) ||
               train(first, STOP, checkpoint, parts) || wb_save(weights, first) ||
               train(model, EPOCHS, checkpoint, parts) ||
               train(wb_load(weights), EPOCHS - STOP, NULL, bare + STOP);
    if (bad) return fprintf(stderr, "%s\n", wb_error()), 1;
    for (int i = STOP; i < EPOCHS; i++)
        if (parts[i] != whole[i])
            return fprintf(stderr, "epoch %d: %g, not %g\n", i, parts[i], whole[i]), 1;
    for (int i = 0; i < EPOCHS; i++) {
        at[i] = i + 1;
        whole[i] = log10(whole[i]);
        bare[i] = i < STOP ? NAN : log10(bare[i]);
        parts[i] = i < STOP || i % 4 > 1 ? NAN : whole[i];  /* a dashed line over another one */
    }
    return wb_save_curves(picture, "Loss of an epoch, log10", "epoch", "", 3, (wb_series[]){
        {"from the checkpoint of epoch 30 (dashed)", EPOCHS, at, parts},
        {"without a stop", EPOCHS, at, whole},
        {"weights of epoch 30 alone", EPOCHS, at, bare}});
}
