/* Step 10: a model from Flux. Loads and runs a file that a Julia program wrote in 2020 with
 * BSON.jl: layers, weights, activations and the closure that flattens all come from the file. The
 * model then classifies MNIST's 10,000 test digits.
 *
 *   10_flux_model MODEL.bson FOLDER      the folder has MNIST's t10k-images-idx3-ubyte.gz and
 *                                        t10k-labels-idx1-ubyte.gz
 *
 * A Julia array has the same bytes as Weber's array with reversed dimensions, so the first axis of
 * an image there is the last axis here. This model was trained on images whose first axis was the
 * row: they are transposed for it.
 *
 * Tested with: {shared}/flux-models/juliacon2020-model_conv.bson {shared}/mnist-t10k
 * Prints:
 *   Chain(
 *     Conv((3, 3), 1 => 16, relu, pad=1, flip=true),  # 160 parameters
 *   ...
 *     Flatten(),
 *     Dense(288 => 10),                     # 2_890 parameters
 *     softmax,
 *   )                   # Total: 8 arrays, 16_938 parameters, 66.164 KiB.
 *   right: 0.9874 of 10000 images
 *   logits of image 0, a 7: -7.450 -3.084 1.276 -2.135 -13.655 -13.481 -32.299 15.995 -7.945
 * 0.914 */
#include <stdio.h>
#include <weber.h>

/* The model's ninth layer, softmax, turns the logits into probabilities. */
enum { BATCH = 500, LOGITS = 8, CLASSES = 10 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static double accuracy(wb_layer *model, wb_dataset *digits)
{
    double right = 0;
    wb_loader *batches = wb_dataloader(digits, .batchsize = BATCH);
    WB_EACH_BATCH(batch, batches) {
        wb_tensor *class = wb_onecold(wb_call(model, wb_transpose(batch.x)));
        right += wb_item(wb_sum(wb_astype(wb_eq(class, batch.y), WB_F32)));
    }
    return right / (double)wb_dataset_length(digits);
}

/* The result of the first LOGITS layers: layers can also be called one by one. */
static wb_tensor *logits(wb_layer *model, wb_tensor *x)
{
    for (int i = 0; i < LOGITS; i++) {
        char path[32];
        snprintf(path, sizeof path, "layers.%d", i);
        x = wb_call(wb_layer_at(model, path), x);
    }
    return x;
}

int main(int argc, char **argv)
{
    char images[1024], labels[1024];
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL.bson FOLDER\n", argv[0]), 2;
    snprintf(images, sizeof images, "%s/t10k-images-idx3-ubyte.gz", argv[2]);
    snprintf(labels, sizeof labels, "%s/t10k-labels-idx1-ubyte.gz", argv[2]);

    wb_layer *model = wb_load(argv[1]);
    wb_dataset *digits = wb_load_idx(images, labels);   /* [10000,1,28,28], from 0 to 1 */
    if (!model || !digits) return complain();
    wb_show(model);
    printf("right: %.4f of %lld images\n", accuracy(model, digits),
           (long long)wb_dataset_length(digits));

    wb_dataset *first = wb_subset(digits, 0, 1);
    const float *values = wb_data(logits(model, wb_transpose(wb_dataset_x(first))));
    printf("logits of image 0, a %g:", wb_item(wb_dataset_y(first)));
    for (int i = 0; values && i < CLASSES; i++) printf(" %.3f", values[i]);
    printf("\n");
    return wb_error_code() ? complain() : 0;
}
