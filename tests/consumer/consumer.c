/* A program that uses the installed library, in C11: it builds, trains, saves and loads a model. */
#include <stdio.h>
#include <weber.h>

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

int main(void)
{
    wb_seed(1);
    wb_layer *model =
        wb_Chain(wb_Dense(3, 8, wb_tanh), wb_Dense(8, 1, .bias = false), wb_identity);
    wb_tensor *x = wb_randn(64, 3), *y = wb_sum(x, .axes = WB_INTS(-1), .keep = true);
    wb_loader *loader = wb_dataloader(wb_dataset_of(x, y), .batchsize = 16, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 0.02), model);

    double first = -1, last = -1;
    for (int epoch = 0; epoch < 30; epoch++)
        WB_EACH_BATCH(batch, loader) {
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
            if (wb_update(state, model, gradients)) break;
            last = wb_item(l);
            if (first < 0) first = last;
        }
    wb_layer *copy =
        wb_save("consumer.safetensors", model) ? NULL : wb_load("consumer.safetensors");
    double apart = wb_item(wb_sum(wb_abs(wb_sub(wb_call(model, x), wb_call(copy, x)))));
    remove("consumer.safetensors");
    printf("%s: loss %.4f to %.4f, copy apart by %g: %s\n", wb_version(), first, last, apart,
           wb_error());
    return !(last < first / 2 && apart == 0);
}
