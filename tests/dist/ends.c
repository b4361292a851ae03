/* A training in which rank 1 ends, stays away, or changes a bias (differ) in batch 3 of the first
 * epoch, or does not come back from MPI_Finalize; for check_ends.py.
 *
 *   ends kill|error|success|sleep|differ|frozen|frozen-large|frozen-shard|replayed
 *   ends finalise|again|own|none|vendors|forks
 *
 * With frozen, rank 1 alone freezes a weight in that batch, also of a large model in several
 * buckets or with a divided state; with replayed, it freezes another layer
 * than the others between calls of a compiled function.  With none and again, the ranks are
 * disconnected at the end; with again, they shall then be connected again.  With own, the program
 * initialises and finalises MPI.  With vendors, the ranks cannot be connected.  With forks,
 * children of rank 1 end by exit. */
#include "rank_cases.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static wb_layer *model;
static wb_opt_state *state;
static const char *how = "";

#ifndef WB_TEST_NCCL
/* Programs find it before MPI's own, which it calls. */
__attribute__((visibility("default"))) int MPI_Finalize(void);
int MPI_Finalize(void)
{
    int (*finalise)(void);
    void *symbol = dlsym(RTLD_NEXT, "MPI_Finalize");
    if (!strcmp(how, "finalise") && rank == 1) sleep(60);
    memcpy(&finalise, &symbol, sizeof finalise);
    return finalise();
}

static int initialise_mpi(void)
{
    enum { MULTIPLE = 3 };              /* MPI_THREAD_MULTIPLE, of both MPIs */
    int (*initialise)(int *, char ***, int, int *), level;
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
    memcpy(&initialise, &symbol, sizeof initialise);
    return initialise(NULL, NULL, MULTIPLE, &level);
}
#else
static int MPI_Finalize(void) { return 1; }
static int initialise_mpi(void) { return 1; }
#endif

/* A child of fork is no rank: the others go on, whether it fails or not. */
static int children_end(void)
{
    for (int code = 0; code < 2; code++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            exit(code);
        }
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == code) continue;
        fprintf(stderr, "a child that exits with %d ends with %d\n", code, status);
        return 1;
    }
    return 0;
}

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    if (batch != 3 || rank != 1) return 0;
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "error")) exit(1);
    if (!strcmp(how, "success")) exit(0);
    if (!strcmp(how, "sleep")) sleep(60);
    if (!strcmp(how, "forks")) return children_end();
    if (!strncmp(how, "frozen", 6)) return wb_freeze(state, "layers.0") != 0;
    if (strcmp(how, "differ")) return 0;
    return wb_assign(wb_get(model, "layers.1.bias"), wb_ones(2)) ? 1 : 0;
}

/* Short only where a rank waits so long: in the other ways the time-out must not end the ranks. */
static double timeout(void)
{
    static const char *const waits[] = {"success", "sleep", "finalise"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(how, waits[i])) return 1;
    return strcmp(how, "vendors") ? 60 : 3;
}

/* The layers have the same shapes, so MPI adds gradients of one to those of the other. */
static int replay(void)
{
    model = wb_Chain(wb_Dense(8, 8), wb_Dense(8, 8));
    state = wb_setup(wb_DistributedOptimizer(wb_Adam()), model);
    trained t = {.model = model, .state = state};
    wb_compiled *f = wb_compile(train_step, &t);
    wb_tensor *in[] = {wb_randn(4, 8), wb_randn(4, 8)}, *loss;
    int status = 0;
    for (int k = 0; k < 6 && !status; k++) {
        const bool first = k < 2 || (k > 3 && rank == 1);       /* which layer is frozen */
        if (k % 2 == 0)
            status = wb_thaw(state, "layers") || wb_freeze(state, first ? "layers.0" : "layers.1");
        if (!status) status = wb_call_compiled(f, 2, in, 1, &loss) || !wb_data(loss);
    }
    if (status) fprintf(stderr, "%s\n", wb_error());
    return status;
}

int main(int argc, char **argv)
{
    how = argc < 2 ? "" : argv[1];
    const bool own = !strcmp(how, "own");
    if (own && initialise_mpi()) return 2;
    if (!*how || connect_ranks(timeout())) {
        fprintf(stderr, "%s\n", wb_error());
        return 2;
    }
#ifdef WB_TEST_NCCL
    if (!getenv("WEBER_BACKENDS")) wb_using("CUDA");
#endif
    if (!strcmp(how, "replayed")) return replay();
    const int width = strcmp(how, "frozen-large") ? 32 : 8000;
    wb_layer *m = wb_Chain(wb_Dense(8, width, wb_relu), wb_Dense(width, 2));
    m = model = wb_gpu(m);         /* a note, where no GPU is in use */
    wb_dataset *d = wb_distributed_dataset(wb_dataset_of(wb_randn(800, 8), wb_randn(800, 2)));
    state = wb_setup(wb_DistributedOptimizer(wb_Adam(), .bucket = 100000,
                                             .shard = !strcmp(how, "frozen-shard")), m);
    const int status = wb_train(mse_loss, m, wb_gpu(wb_dataloader(d, 4)), state, .epochs = 2,
                                .each = each);
    const bool again = !strcmp(how, "again");
    if (!status && own) return MPI_Finalize();
    if (status || (strcmp(how, "none") && !again)) return status;
    if (!wb_distributed_finalize() && (!again || !connect_ranks(60))) return 0;
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}
