/* Measures training by several ranks; ranks.py runs it.
 *
 *   mpirun -np N ranks_bench allreduce BYTES SECONDS
 *       An allreduce of f32, in turn: MPI_Allreduce itself, the operation of a plan, and
 *       wb_distributed_allreduce, which builds a graph and evaluates it.
 *   mpirun -np N ranks_bench reduce BYTES SECONDS
 *       The operation of a plan alone, again and again without waiting in between.
 *   mpirun -np N ranks_bench step WORKLOAD SECONDS [BATCH]
 *       A training step of a workload of workloads.h, whose batch the ranks share, or of which each
 *       rank has BATCH observations.
 *   ranks_bench network WORKLOAD SECONDS BATCH LATENCY BYTES BUCKET
 *       A step of a rank whose network is simulated: an allreduce sleeps for LATENCY microseconds,
 *       and one for each BYTES bytes, in the thread of the queue, in buckets of BUCKET bytes.
 *   mpirun -np N ranks_bench losses WORKLOAD STEPS
 *       The loss of each step, the mean over the ranks.
 *   ranks_bench data WORKLOAD FOLDER
 *       Writes what the training begins with: model.safetensors, and the batches 0.x (f32), 0.y
 *       (i32), ...
 *
 * The kinds of allreduce run in turn.  The first two have the same buffers, and that of a plan
 * comes after the bare one, so neither finds them colder.
 *
 * Rank 0 prints a line of JSON.  Times are medians, in microseconds.  Those of `reduce`, `step` and
 * `network` are medians of blocks of at least 20 ms, of the slowest rank.  It uses internal
 * functions of the library. */
#include "backend/collective.h"
#include "workloads.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1 << 20, WARM = 5 };
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

/* Calls `once` in blocks. Returns the mean time of a call in a block: the median of the blocks, of
 * the slowest rank. */
static double time_blocks(void (*once)(void), double seconds, int *blocks)
{
    const double begun = now();
    for (int i = 0; i < WARM; i++) once();
    int each = (int)(2e4 * WARM / (now() - begun)) + 1, n = 0;
    MPI_Bcast(&each, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (const double until = now() + seconds * 1e6; n < MOST && (n < 3 || goes_on(until)); n++) {
        const double start = now();
        for (int i = 0; i < each; i++) once();
        samples[0][n] = (now() - start) / each;
    }
    double mine = median(samples[0], n), most = mine;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    *blocks = n;
    return most;
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

static void make_buffers(long bytes)
{
    count = (int)(bytes / (long)sizeof *from);
    from = calloc((size_t)count + 16, sizeof *from);
    to = calloc((size_t)count + 16, sizeof *to);
    operand = wb_zeros(count);
    if (!from || !to || !wb_data(operand)) fail("memory");
}

static void measure_reduce(long bytes, double seconds)
{
    int n;
    make_buffers(bytes);
    const double us = time_blocks(of_a_plan, seconds, &n);
    if (wb_distributed_rank() == 0)
        printf("{\"ranks\": %d, \"bytes\": %ld, \"n\": %d, \"us\": %.2f}\n",
               wb_distributed_size(), bytes, n, us);
}

static void measure_allreduce(long bytes, double seconds)
{
    static void (*const kinds[])(void) = {bare, of_a_plan, of_a_tensor};
    const int rank = wb_distributed_rank();
    make_buffers(bytes);
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
    int64_t rows, bucket;               /* 0: the rank's part of the batch; the bucket's default */
    wb_layer *model;
    wb_opt_state *state;
    wb_batch batch[MOST_BATCHES];
    int done;                           /* steps */
} training;

/* The rows of this rank of a batch that all ranks make from one seed; `n` observations, which may
 * be several rows each. */
static wb_tensor *share(wb_tensor *x, int64_t n, int64_t whole)
{
    const int64_t rows = wb_dim(x, 0) / whole * n, at = rows * wb_distributed_rank();
    wb_tensor *part = wb_slice(x, 0, at, at + rows);
    return wb_eval(part) ? NULL : part;
}

static void make(training *t, const char *name)
{
    const workload *w = workload_named(name);
    const int ranks = wb_distributed_size();
    if (!w || !w->rule) fail("no such workload, or one of inference");
    t->work = *w;
    const int64_t whole = w->dims[0];
    if (!t->rows && whole % ranks) fail("the ranks cannot share the batch evenly");
    if (!t->rows) t->rows = whole / ranks;
    if (t->rows < 1 || t->rows * ranks > whole) fail("the batch of a rank is too large");
    wb_seed(1);
    t->model = w->model();
    t->state = wb_setup(t->bucket ? wb_DistributedOptimizer(w->rule(), .bucket = t->bucket)
                                  : wb_DistributedOptimizer(w->rule()), t->model);
    for (int i = 0; i < w->batches; i++) {
        const wb_batch b = workload_batch(w);
        if (!b.x) fail("a batch");
        t->batch[i] = (wb_batch){.x = share(b.x, t->rows, whole),
                                 .y = share(b.y, t->rows, whole), .n = t->rows, .index = i};
    }
    if (!t->state || wb_distributed_synchronize(t->model)) fail("the model");
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

static training measured;
static void one_step(void) { step(&measured, measured.done++, false); }

static int measure_steps(const char *name, double seconds, int64_t rows, const char *more)
{
    int n;
    measured.rows = rows;
    make(&measured, name);
    const double us = time_blocks(one_step, seconds, &n);
    if (wb_distributed_rank() == 0)
        printf("{\"ranks\": %d, \"workload\": \"%s\", \"batch\": %lld, \"n\": %d,"
               " \"us\": %.2f%s}\n", wb_distributed_size(), name, (long long)measured.rows, n,
               us, more);
    return 0;
}

/* ---- a simulated network --------------------------------------------------------------------- */

static struct { double latency, bytes; } network;       /* us; bytes a us */

/* The values of the other ranks are taken to be zeros.  The last 0.1 ms are not slept, since the
 * system wakes late. */
static int perform_nothing(const wb__collective *c)
{
    const double bytes = (double)c->n * (double)wb__dtype_size(c->dtype);
    const double until = now() + network.latency + bytes / network.bytes;
    if (c->from && c->to && c->from != c->to) memcpy(c->to, c->from, (size_t)bytes);
    const double rest = until - now() - 100;
    if (rest > 0)
        nanosleep(&(struct timespec){(time_t)(rest / 1e6), (long)(fmod(rest, 1e6) * 1e3)}, NULL);
    while (now() < until) {}
    return 0;
}

static int measure_network(char **words)
{
    static const wb__communicator simulated = {.name = "a simulated network", .size = 1,
                                               .local_size = 1, .perform = perform_nothing};
    char more[160];
    network.latency = atof(words[3]);
    network.bytes = atof(words[4]);
    measured.bucket = atol(words[5]);
    if (MPI_Init(NULL, NULL) || !(network.bytes > 0)) fail("the network");
    wb__collective_set_overlap(true);
    wb__world_set(&simulated, NULL, 0);
    snprintf(more, sizeof more, ", \"latency\": %g, \"bytes\": %g, \"bucket\": %lld",
             network.latency, network.bytes, (long long)measured.bucket);
    const int status = measure_steps(words[0], atof(words[1]), atol(words[2]), more);
    wb__collective_stop();
    return MPI_Finalize() || status;
}

static void print_losses(const char *name, int steps)
{
    training t = {0};
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
    training t = {0};
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
    if (argc == 8 && !strcmp(argv[1], "network")) return measure_network(argv + 2);
    const bool with_batch = argc == 5 && !strcmp(argv[1], "step");
    if (argc != 4 && !with_batch)
        return fprintf(stderr, "usage: see the head of ranks_bench.c\n"), 2;
    if (wb_distributed_initialize(WB_MPI)) fail("wb_distributed_initialize");
    if (!strcmp(argv[1], "allreduce")) measure_allreduce(atol(argv[2]), atof(argv[3]));
    else if (!strcmp(argv[1], "reduce")) measure_reduce(atol(argv[2]), atof(argv[3]));
    else if (!strcmp(argv[1], "step"))
        return measure_steps(argv[2], atof(argv[3]), with_batch ? atol(argv[4]) : 0, "");
    else if (!strcmp(argv[1], "losses")) print_losses(argv[2], atoi(argv[3]));
    else if (!strcmp(argv[1], "data")) write_data(argv[2], argv[3]);
    else fail(argv[1]);
    return 0;
}
