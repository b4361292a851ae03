/* The losses of a training by several processes: four ranks with batches of 16 learn as one process
 * with batches of 64.  Run alone, it writes the losses of one process into losses.txt; on ranks of
 * MPI it reads them, trains, and rank 0 draws the picture.
 *
 *   ranks FOLDER WORK_FOLDER */
#include <math.h>
#include <stdio.h>
#include <weber.h>

enum { POINTS = 1024, STEPS = 160 };

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

/* Trains a network on y = sin(3 a) b; the losses are those of all data after each step. */
static int train(int batch_size, double *losses)
{
    wb_seed(1);
    wb_tensor *x = wb_sub(wb_mul(wb_rand(POINTS, 2), 2), 1);
    wb_tensor *y = wb_mul(wb_sin(wb_mul(wb_slice(x, 1, 0, 1), 3)), wb_slice(x, 1, 1, 2));
    wb_dataset *data = wb_dataset_of(x, y);
    wb_layer *model = wb_Chain(wb_Dense(2, 32, wb_tanh), wb_Dense(32, 1));
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01)), model);
    wb_loader *loader = wb_dataloader(wb_distributed_dataset(data), batch_size);
    for (int step = 0; step < STEPS;)
        WB_EACH_BATCH(batch, loader) {
            wb_tree *grads;
            if (step == STEPS) continue;
            wb_withgradient(loss, model, batch, &grads);
            if (wb_update(state, model, grads)) return 1;
            losses[step++] = wb_item(wb_mse(wb_call(model, x), y));
        }
    return wb_error_code() != 0;
}

static int draw(const char *folder, const double *small, const double *large, const double *ranks)
{
    static double at[STEPS], logarithm[3][STEPS];
    const double *all[] = {ranks, large, small};
    char path[1024];
    for (int i = 0; i < STEPS; i++) {
        at[i] = i + 1;
        for (int k = 0; k < 3; k++) logarithm[k][i] = log10(all[k][i]);
        if (i % 8 > 3) logarithm[0][i] = NAN;               /* a dashed line over another one */
    }
    snprintf(path, sizeof path, "%s/ranks.svg", folder);
    return wb_save_curves(path, "Loss, log10", "step", "", 3, (wb_series[]){
        {"4 ranks, 16 each (dashed)", STEPS, at, logarithm[0]},
        {"1 process, 64", STEPS, at, logarithm[1]},
        {"1 process, 16", STEPS, at, logarithm[2]}});
}

int main(int argc, char **argv)
{
    static double small[STEPS], large[STEPS], ranks[STEPS];
    char path[1024];
    if (argc != 3) return 2;
    snprintf(path, sizeof path, "%s/losses.txt", argv[2]);
    if (wb_distributed_initialize(WB_MPI)) return fprintf(stderr, "%s\n", wb_error()), 1;
    if (wb_distributed_size() == 1) {
        FILE *f = fopen(path, "w");
        if (!f || train(16, small) || train(64, large)) return 1;
        for (int i = 0; i < STEPS; i++) fprintf(f, "%.17g %.17g\n", small[i], large[i]);
        return fclose(f) != 0;
    }
    FILE *f = fopen(path, "r");
    for (int i = 0; i < STEPS; i++)
        if (!f || fscanf(f, "%lf %lf", &small[i], &large[i]) != 2) return 1;
    fclose(f);
    if (train(16, ranks)) return fprintf(stderr, "%s\n", wb_error()), 1;
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(ranks[i] - large[i]) < 1e-3 * large[i]))
            return fprintf(stderr, "step %d: %g on ranks, %g alone\n", i, ranks[i], large[i]), 1;
    if (wb_distributed_rank() == 0 && draw(argv[1], small, large, ranks))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    return wb_distributed_finalize();
}
