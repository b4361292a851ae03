/* Step 9: training on a GPU. The data is moved in one of three ways: batch by batch, by a loader
 * that moves batches ahead of their use, or all at once before. The results are the same; which is
 * fastest depends on the size of the data.
 *
 * Prints:
 *   batch by batch:  loss 0.00...
 *   by the loader:   loss 0.00...
 *   all data first:  loss 0.00...
 *   the same in the end: yes
 *   saved, and loaded on the CPU: 0.8 squared is 0.63... */
#include <math.h>
#include <stdio.h>
#include <weber.h>

enum { POINTS = 256, EPOCHS = 60 };

/* y = x^2 in [-1, 1) */
static wb_dataset *parabola(void)
{
    float x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = (float)(i - POINTS / 2) / (POINTS / 2);
        y[i] = x[i] * x[i];
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){POINTS, 1}),
                         wb_from(y, WB_F32, 2, (int64_t[]){POINTS, 1}));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

typedef enum { BY_BATCH, BY_LOADER, ALL_FIRST } style;

static wb_layer *train(style how)
{
    static const char *const names[] = {"batch by batch: ", "by the loader:  ", "all data first: "};
    wb_seed(4);
    wb_layer *model = wb_gpu(wb_Chain(wb_Dense(1, 16, wb_tanh), wb_Dense(16, 1)));
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 0.01), model);   /* on the model's device */

    wb_dataset *data = parabola();
    if (how == ALL_FIRST) data = wb_gpu(data);          /* batches are gathered on the GPU */
    wb_loader *loader = wb_dataloader(data, .batchsize = 32, .shuffle = true, .seed = 7);
    if (how == BY_LOADER) loader = wb_gpu(loader);      /* the next batches are moved ahead */

    double last = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        WB_EACH_BATCH(b, loader) {
            if (how == BY_BATCH) b = wb_gpu(b);         /* this batch is moved */
            wb_tree *grads;
            wb_tensor *l = wb_withgradient(loss, model, b, &grads);
            if (!l || wb_update(state, model, grads)) return NULL;
            if (b.index == wb_loader_length(loader) - 1) last = wb_item(l);
        }
        if (wb_loader_status(loader)) return NULL;
    }
    printf("%s loss %.4f\n", names[how], last);
    return model;
}

static double at(wb_layer *model, float x)
{
    wb_tensor *input = wb_to(wb_from(&x, WB_F32, 2, (int64_t[]){1, 1}), wb_device_of(model));
    return wb_item(wb_call(model, input));
}

int main(void)
{
    wb_using("OpenCL");                 /* your GPU's backend; harmless where it is missing */
    wb_layer *model[3];
    for (style how = BY_BATCH; how <= ALL_FIRST; how++)
        if (!(model[how] = train(how))) return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("the same in the end: %s\n", at(model[0], 0.3f) == at(model[1], 0.3f) &&
                                            at(model[1], 0.3f) == at(model[2], 0.3f)
                                        ? "yes" : "no");

    /* Files do not depend on devices: wb_save also works with a model on the GPU. Here the model is
     * moved back first, as a program does that goes on using it. */
    if (wb_save("parabola.safetensors", wb_cpu(model[0])))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    wb_layer *loaded = wb_load("parabola.safetensors");
    if (!loaded) return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("saved, and loaded on the CPU: 0.8 squared is %.3f\n", at(loaded, 0.8f));
    return 0;
}
