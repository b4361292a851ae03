// The program of consumer.c in C++17.
#include <cstdio>
#include <weber.h>

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *)
{
    return wb_mse(wb_call(model, batch.x), batch.y);
}

int main()
{
    wb_seed(1);
    wb_using("CUDA");
    const wb_device *device = wb_get_device();
    wb_Dense_options plain = {};
    plain.no_bias = true;
    wb_layer *model =
        wb_Chain(wb_Dense(3, 8, wb_tanh), wb_Dense(8, 1, nullptr, plain), wb_identity);
    wb_Conv_options wide = {};
    wide.stride = {2};
    wide.outpad = {1, 0};
    wb_layer *transposed = wb_ConvTranspose(1, 2, {3}, wb_relu, wide);
    if (wb_dims(wb_call(transposed, wb_ones(1, 1, 4, 4)))[2] != 10) return 1;
    model = wb_to(model, device);
    if (wb_device_of(model) != device) return 1;
    wb_reduce_options rows = {};
    const int64_t last_axis = -1;
    wb_ints_set(rows.axes, 1, &last_axis);
    rows.keep = true;
    wb_tensor *x = wb_randn(64, 3), *y = wb_mul(wb_sum(x, rows), 1);
    if (wb_ndim(wb_sum(x, {1})) != 1 || wb_ndim(wb_where(wb_gt(x, 0), 0, x)) != 2) return 1;
    wb_loader *loader = wb_dataloader(wb_dataset_of(x, y), 16, true);
    wb_opt_state *state = wb_setup(wb_Adam(0.02), model);

    double first = -1, last = -1;
    for (int epoch = 0; epoch < 30; epoch++)
        for (wb_batch batch; wb_loader_next(loader, &batch);) {
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
            if (wb_update(state, model, gradients)) break;
            last = wb_item(l);
            if (first < 0) first = last;
        }
    const char *file = "consumer.safetensors";
    wb_layer *copy = wb_save(file, model) ? nullptr : wb_load(file);
    double difference = wb_item(wb_sum(wb_abs(wb_sub(wb_call(model, x), wb_call(copy, x)))));
    std::remove(file);
    std::printf("%s: loss %.4f to %.4f, the copy differs by %g: %s\n", wb_version(), first, last,
                difference, wb_error());
    return !(last < first / 2 && difference == 0);
}
