/* Step 11: several processes train one model. LeNet-5 learns MNIST's digits; each process, called a
 * rank, has a share of the images, and the ranks average their gradients after each batch. The
 * whole batch has 64 images for any number of ranks that divides 64, so the result hardly depends
 * on it. Rank 0 shows the progress and tests the model.
 *
 *   cc 11_ranks.c $(pkg-config --cflags --libs weber weber-mpi) -o 11_ranks
 *   mpirun -np 4 11_ranks FOLDER         the folder has MNIST's t10k-images-idx3-ubyte.gz and
 *                                        t10k-labels-idx1-ubyte.gz
 *
 * Lines that a program needs to train on several ranks are marked by "a rank".
 *
 * Tested with: {shared}/mnist-t10k
 * Prints:
 *   2 ranks of 32 images each, 8000 images to learn from
 *   loss of epoch 1: 0..., of epoch 2: 0...
 *   right: 0.9... of 2000 images that it has not seen
 *   the models of all ranks are equal */
#include <stdio.h>
#include <weber.h>

enum { BATCH = 64, EPOCHS = 2, CLASSES = 10 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), wb_onehotbatch(batch.y, CLASSES));
}

static double losses[EPOCHS + 1];       /* of the last batch of each epoch */
static int remember(int epoch, int64_t batch, wb_tensor *mean, void *ctx)
{
    (void)batch, (void)ctx;
    losses[epoch] = wb_item(mean);
    return wb_error_code() != 0;
}

static double accuracy(wb_layer *model, wb_dataset *digits)
{
    double right = 0;
    wb_loader *batches = wb_dataloader(digits, .batchsize = 500);
    WB_EACH_BATCH(batch, batches) {
        wb_tensor *class = wb_onecold(wb_call(model, batch.x));
        right += wb_item(wb_sum(wb_astype(wb_eq(class, batch.y), WB_F32)));
    }
    return right / (double)wb_dataset_length(digits);
}

/* Whether three of the parameters are the same on all ranks: their extremes over the ranks are
 * equal. */
static bool equal_on_all_ranks(wb_layer *model)
{
    static const char *const paths[] = {"layers.0.weight", "layers.5.weight", "layers.7.bias"};
    bool equal = true;
    for (int i = 0; i < 3; i++) {
        wb_tensor *x = wb_get(model, paths[i]);
        wb_tensor *least = wb_distributed_allreduce(x, WB_RANKS_MIN);
        wb_tensor *most = wb_distributed_allreduce(x, WB_RANKS_MAX);
        equal = wb_item(wb_max(wb_sub(most, least))) == 0 && equal;
    }
    return equal;
}

int main(int argc, char **argv)
{
    char images[1024], labels[1024];
    if (argc != 2) return fprintf(stderr, "usage: mpirun -np N %s FOLDER\n", argv[0]), 2;
    snprintf(images, sizeof images, "%s/t10k-images-idx3-ubyte.gz", argv[1]);
    snprintf(labels, sizeof labels, "%s/t10k-labels-idx1-ubyte.gz", argv[1]);

    if (wb_distributed_initialize(WB_MPI)) return complain();       /* a rank */
    const int ranks = wb_distributed_size();
    const bool first = wb_distributed_rank() == 0;
    if (BATCH % ranks) {
        if (first) fprintf(stderr, "%d images cannot be shared by %d ranks\n", BATCH, ranks);
        return 2;
    }
    wb_seed(1);

    wb_dataset *digits = wb_load_idx(images, labels);       /* [10000,1,28,28], from 0 to 1 */
    if (!digits) return complain();
    wb_dataset *train = wb_distributed_dataset(wb_subset(digits, 0, 8000));     /* a rank */
    wb_layer *model = wb_gpu(wb_Chain(
        wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2, 2}),
        wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
        wb_Dense(256, 120, wb_relu), wb_Dense(120, 84, wb_relu), wb_Dense(84, CLASSES)));
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam()), model);  /* a rank */
    wb_loader *loader = wb_gpu(wb_dataloader(train, BATCH / ranks, true));
    if (first)
        printf("%d ranks of %d images each, 8000 images to learn from\n", ranks, BATCH / ranks);

    if (wb_train(loss, model, loader, state, .epochs = EPOCHS, .progress = true, .each = remember))
        return complain();

    const bool equal = equal_on_all_ranks(model);           /* all ranks take part */
    if (first) {
        printf("loss of epoch 1: %.4f, of epoch 2: %.4f\n", losses[1], losses[2]);
        printf("right: %.4f of 2000 images that it has not seen\n",
               accuracy(wb_cpu(model), wb_subset(digits, 8000, 10000)));
        printf("the models of all ranks are %s\n", equal ? "equal" : "different");
    }
    return wb_error_code() ? complain() : 0;
}
