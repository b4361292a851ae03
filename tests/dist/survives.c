/* A training that is killed at a random moment and goes on from its checkpoint; for
 * check_survives.py.
 *
 *   survives CHECKPOINT EPOCHS RANK SECONDS
 *
 * The rank RANK is killed after SECONDS; no rank is, if RANK is -1.  Rank 0 prints each epoch that
 * it begins, and at the end the loss. */
#include "rank_cases.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

static double seconds;

static void *kill_later(void *unused)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * fmod(seconds, 1))};
    nanosleep(&t, NULL);
    raise(SIGKILL);
    return NULL;
}

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    if (batch == 1 && !rank) printf("epoch %d\n", epoch);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 5 || connect_ranks(5)) return 2;
    seconds = atof(argv[4]);
    if (rank == atoi(argv[3]) && pthread_create(&thread, NULL, kill_later, NULL))
        return 2;
    wb_seed(7);
    wb_layer *m = wb_Chain(wb_Dense(16, 64, wb_relu), wb_Dense(64, 2));
    wb_tensor *x = wb_randn(960, 16);
    wb_dataset *d = wb_distributed_dataset(wb_dataset_of(x, wb_slice(x, 1, 0, 2)));
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(wb_Momentum(1e-4)), m);
    wb_loader *l = wb_dataloader(d, 24 / size, true);
    const int epochs = atoi(argv[2]);
    if (wb_train(mse_loss, m, l, s, .epochs = epochs, .each = each, .checkpoint = argv[1],
                 .resume = true))
        return 1;
    wb_tensor *loss = wb_mse(wb_call(m, x), wb_slice(x, 1, 0, 2));
    if (!rank) printf("loss %.9g\n", wb_item(loss));
    return 0;
}
