/* Trainings of any number of ranks that go on from one checkpoint; for check_resume.py.  The batch
 * of all ranks together has 12 observations.
 *
 *   resume train PATH EPOCHS shard|whole    trains, resuming from the checkpoint, and prints the
 *                                           mean loss of the last epoch and some parameters
 *   resume save PATH                        all ranks save a divided state, and print errors
 *   resume alone PATH                       rank 0 saves a divided state without the others */
#include "rank_cases.h"

#include <unistd.h>

static double sum;
static int n;

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    if (batch == 1) sum = n = 0;
    sum += wb_item(loss);
    n++;
    return 0;
}

static void print(wb_layer *m)
{
    static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.1.bias"};
    printf("%.9g", sum / n);
    for (int i = 0; i < 4; i++) {
        wb_tensor *x = wb_get(m, paths[i]);
        printf(" %.9g %.9g", wb_item(wb_sum(x)), wb_item(wb_sum(wb_square(x))));
    }
    printf("\n");
}

static int save(bool alone, const char *path, wb_layer *m, wb_opt_state *s)
{
    wb_checkpoint c = {.model = m, .state = s};
    if (alone && rank) return (int)sleep(6);
    const int status = wb_save_checkpoint(path, &c);
    if (status) printf("rank %d: %s\n", rank, wb_error());
    fflush(stdout);
    return wb_distributed_barrier();
}

int main(int argc, char **argv)
{
    const bool alone = argc > 1 && !strcmp(argv[1], "alone");
    if (argc < 3 || connect_ranks(alone ? 1 : 60)) return 2;
    wb_seed(1);
    wb_layer *m = wb_Chain(wb_Dense(7, 11, wb_tanh), wb_Dense(11, 1));
    wb_dataset *d = wb_dataset_of(wb_randn(60, 7), wb_randn(60, 1));
    wb_loader *l = wb_dataloader(wb_distributed_dataset(d), 12 / size, true, .seed = 3);
    wb_rule *rule = wb_DistributedOptimizer(wb_Adam(0.01),
                                            .shard = argc < 5 || !strcmp(argv[4], "shard"));
    wb_opt_state *s = wb_setup(rule, m);
    if (argc < 5) return save(alone, argv[2], m, s);
    const int status = wb_train(mse_loss, m, l, s, .epochs = atoi(argv[3]), .checkpoint = argv[2],
                                .resume = true, .each = each);
    if (status) fprintf(stderr, "rank %d: %s\n", rank, wb_error());
    else if (!rank) print(m);
    return status;
}
