/* Step 10: a model from Flux.  A file that Julia's BSON.jl wrote years ago is loaded and runs: a convolutional network, its
 * activations, the closure in it that flattens, all from the file; then it reads MNIST's digits.
 *
 *   10_flux_model MODEL.bson IMAGES LABELS         MNIST's IDX files, gzip or not
 *
 * The model of the tests was trained on images as Julia holds them, [width, height]: its first axis is the row of the
 * image.  Read row by row, as Weber does, each image therefore stands transposed.
 *
 * Needs: {shared}/flux-models/juliacon2020-model_conv.bson
 * Tested with: {shared}/flux-models/juliacon2020-model_conv.bson {shared}/mnist-t10k/t10k-images-idx3-ubyte.gz {shared}/mnist-t10k/t10k-labels-idx1-ubyte.gz
 * Prints:
 *   Chain(
 *   ...
 *   )...
 *   ...
 *   accuracy on 10000 images: 0.9874
 *   logits of image 0, a 7: -7.450 -3.084 1.276 -2.135 -13.655 -13.481 -32.299 15.995 -7.945 0.914
 */
#include <stdio.h>
#include <weber.h>

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: %s MODEL.bson IMAGES LABELS\n", argv[0]), 2;
    wb_layer *model = wb_load(argv[1]);                     /* layers and weights: nothing else is needed */
    wb_dataset *digits = wb_load_idx(argv[2], argv[3]);     /* images as f32 in [0, 1] */
    if (!model || !digits) return complain();
    wb_show(model);

    wb_loader *batches = wb_dataloader(digits, .batchsize = 500);
    int right = 0;
    WB_EACH_BATCH(batch, batches) {
        wb_tensor *x = wb_transpose(wb_reshape(batch.x, batch.n, 1, 28, 28));
        right += (int)wb_item(wb_sum(wb_astype(wb_eq(wb_onecold(wb_call(model, x)), batch.y), WB_F32)));
    }
    if (wb_loader_status(batches)) return complain();
    printf("accuracy on %lld images: %.4f\n", (long long)wb_dataset_length(digits), right / (double)wb_dataset_length(digits));

    return 0;
}
