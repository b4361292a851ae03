/* Measures training by several ranks; ranks.py runs it.
 *
 *   mpirun -np N ranks_bench allreduce BYTES SECONDS
 *       An allreduce of f32, in turn: MPI_Allreduce itself, the operation of a plan, and
 *       wb_distributed_allreduce, which builds a graph and evaluates it.
 *   mpirun -np N ranks_bench step WORKLOAD SECONDS
 *       A training step of a workload of workloads.h, whose batch the ranks share.
 *   mpirun -np N ranks_bench losses WORKLOAD STEPS
 *       The loss of each step, the mean over the ranks.
 *   ranks_bench data WORKLOAD FOLDER
 *       Writes what the training begins with: model.safetensors, and the batches 0.x (f32), 0.y
 *       (i32), ...
 *
 * The kinds of allreduce run in turn.  The first two have the same buffers, and that of a plan
 * comes after the bare one, so neither finds them colder.
 *
 * Rank 0 prints a line of JSON.  Times are medians, in microseconds; that of a step is the longest
 * of the ranks.  It uses internal functions of the library. */
#include "backend/collective.h"
#include "workloads.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1 << 20 };
static double samples[3][MOST];

static int fail(const char *what)
{
    fprintf(stderr, "ranks_bench: %s: %s\n", what, wb_error());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n ? x[n / 2] : NAN;
}

/* The decision of rank 0, for all: whether the time is over. */
static bool goes_on(double until)
{
    int more = now() < until;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return more;
}

/* ---- one allreduce --------------------------------------------------------------------------- */

static float *from, *to;
static int count;

static void bare(void) { MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static void of_a_plan(void)
{
    const wb__collective c = {.communicator = wb__world(), .kind = WB__COLLECT_ALLREDUCE,
                              .op = WB__RANKS_SUM, .dtype = WB_F32, .n = count, .from = from,
                              .to = to};
    if (wb__collective_end(wb__collective_begin(&c))) fail("allreduce");
}

static wb_tensor *operand;
static void of_a_tensor(void)
{
    wb_scope *s = wb_scope_open();
    if (!wb_data(wb_distributed_allreduce(operand, WB_RANKS_SUM))) fail("wb_distributed_allreduce");
    wb_scope_close(s);
}

static void measure_allreduce(long bytes, double seconds)
{
    static void (*const kinds[])(void) = {bare, of_a_plan, of_a_tensor};
    const int rank = wb_distributed_rank();
    count = (int)(bytes / (long)sizeof *from);
    from = calloc((size_t)count + 16, sizeof *from);
    to = calloc((size_t)count + 16, sizeof *to);
    operand = wb_zeros(count);
    if (!from || !to || !wb_data(operand)) fail("memory");
    int n = -3;                         /* the first ones are not counted */
    for (const double until = now() + seconds * 1e6; n < MOST && (n < 3 || goes_on(until)); n++)
        for (int i = 0; i < 3; i++) {
            const int kind = (i + n + 3) % 3;
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = now();
            kinds[kind]();
            if (n >= 0) samples[kind][n] = now() - start;
        }
    if (rank == 0)
        printf("{\"ranks\": %d, \"bytes\": %ld, \"n\": %d, \"bare_us\": %.2f, \"plan_us\": %.2f,"
               " \"tensor_us\": %.2f}\n", wb_distributed_size(), bytes, n, median(samples[0], n),
               median(samples[1], n), median(samples[2], n));
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct {
    workload work;
    wb_layer *model;
    wb_opt_state *state;
    wb_batch batch[MOST_BATCHES];
} training;

/* The rows of this rank of a batch that all ranks make from one seed. */
static wb_tensor *share(wb_tensor *x)
{
    const int64_t n = wb_dim(x, 0) / wb_distributed_size(), at = n * wb_distributed_rank();
    wb_tensor *part = wb_slice(x, 0, at, at + n);
    return wb_eval(part) ? NULL : part;
}

static void make(training *t, const char *name)
{
    const workload *w = workload_named(name);
    if (!w || !w->rule) fail("no such workload, or one of inference");
    t->work = *w;
    if (w->dims[0] % wb_distributed_size()) fail("the ranks cannot share the batch evenly");
    wb_seed(1);
    t->model = w->model();
    t->state = wb_setup(wb_DistributedOptimiser(w->rule()), t->model);
    for (int i = 0; i < w->batches; i++) {
        const wb_batch whole = workload_batch(w);
        if (!whole.x) fail("a batch");
        t->batch[i] = (wb_batch){share(whole.x), share(whole.y),
                                 w->dims[0] / wb_distributed_size(), i};
    }
    if (!t->state || wb_distributed_synchronise(t->model)) fail("the model");
}

/* Returns the mean of the loss over the ranks if `read`, else that of this rank. */
static double step(training *t, int i, bool read)
{
    wb_tree *gradients;
    wb_scope *s = wb_scope_open();
    wb_tensor *loss = wb_withgradient(workload_loss, t->model, t->batch[i % t->work.batches],
                                      &gradients, &t->work);
    if (!loss || wb_update(t->state, t->model, gradients)) fail("a step");
    const double own = wb_item(loss);
    const double value = read ? wb_item(wb_distributed_allreduce(wb_scalar(own), WB_RANKS_MEAN))
                              : own;
    if (wb_scope_close(s) || wb_error_code()) fail("a step");
    return value;
}

static void measure_steps(const char *name, double seconds)
{
    training t;
    make(&t, name);
    int n = -5;
    for (const double until = now() + seconds * 1e6; n < MOST && (n < 5 || goes_on(until)); n++) {
        const double start = now();
        step(&t, n + 5, false);
        if (n >= 0) samples[0][n] = now() - start;
    }
    double mine = median(samples[0], n), most = mine;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (wb_distributed_rank() == 0)
        printf("{\"ranks\": %d, \"workload\": \"%s\", \"n\": %d, \"step_us\": %.1f}\n",
               wb_distributed_size(), name, n, most);
}

static void print_losses(const char *name, int steps)
{
    training t;
    make(&t, name);
    for (int i = 0; i < steps; i++) {
        const double loss = step(&t, i, true);
        if (wb_distributed_rank() == 0) printf(i ? ", %.9g" : "[%.9g", loss);
    }
    if (wb_distributed_rank() == 0) printf("]\n");
}

static void write_values(const char *folder, int i, const char *name, wb_tensor *x, size_t each)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%d.%s", folder, i, name);
    FILE *f = fopen(path, "wb");
    const size_t n = (size_t)wb_size(x);
    if (!f || fwrite(wb_data(x), each, n, f) != n || fclose(f)) fail(path);
}

static void write_data(const char *name, const char *folder)
{
    training t;
    char path[1024];
    make(&t, name);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (wb_save(path, t.model)) fail(path);
    for (int i = 0; i < t.work.batches; i++) {
        write_values(folder, i, "x", t.batch[i].x, sizeof(float));
        write_values(folder, i, "y", t.batch[i].y, sizeof(int32_t));
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: see the head of ranks_bench.c\n"), 2;
    if (wb_distributed_initialise(WB_MPI)) fail("wb_distributed_initialise");
    if (!strcmp(argv[1], "allreduce")) measure_allreduce(atol(argv[2]), atof(argv[3]));
    else if (!strcmp(argv[1], "step")) measure_steps(argv[2], atof(argv[3]));
    else if (!strcmp(argv[1], "losses")) print_losses(argv[2], atoi(argv[3]));
    else if (!strcmp(argv[1], "data")) write_data(argv[2], argv[3]);
    else fail(argv[1]);
    return 0;
}
