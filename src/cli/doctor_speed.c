/* Times the training step of a small network: 784-256-10, a batch of 64, Adam; it is the workload
 * W2 of bench/. */
#include "base/base.h"
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, BATCHES = 16, DOCTOR_SPEED_MOST = 20000 };
static const double warm_up = 0.1, doctor_speed_seconds = 0.4;

/* Usual microseconds of a training step on one thread, by instruction set: measured by this
 * program on an Intel Xeon with AVX-512, in a virtual machine, with WEBER_ONEDNN=0 and WEBER_ISA;
 * the least of five runs, rounded up.  bench/results/cpu-epyc-2.md has 648 us for an AMD EPYC with
 * AVX-512 and oneDNN.  Processors of one instruction set differ by about 2 times. */
static const struct { const char *name; double usual; } doctor_speed_levels[] = {
    [WB__ISA_PORTABLE] = {"portable", 3100},
    [WB__ISA_AVX2] = {"AVX2", 1100},
    [WB__ISA_AVX512] = {"AVX-512", 700},
};
static const double slower_than_usual = 2.5;
/* More threads are slow if they take this many times the time of one thread. */
static const double slower_by_threads = 1.5;

const char *wb__cli_isa_name(wb__isa_level level) { return doctor_speed_levels[level].name; }

typedef struct {
    wb_layer *model;
    wb_opt_state *state;
    wb_batch batches[BATCHES];
    double loss;                        /* loss of the latest step */
    int steps;
} doctor_speed_training;

static wb_tensor *doctor_speed_loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

static int doctor_speed_step(doctor_speed_training *t)
{
    const wb_batch batch = t->batches[t->steps++ % BATCHES];
    wb_scope *scope = wb_scope_open();
    if (!scope) return wb_error_code();
    wb_tree *gradients;
    wb_tensor *l = wb_withgradient(doctor_speed_loss, t->model, batch, &gradients);
    int status = l ? wb_update(t->state, t->model, gradients) : (int)wb_error_code();
    if (!status) t->loss = wb_item(l);
    const int closed = wb_scope_close(scope);
    return status ? status : closed;
}

static int doctor_speed_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Trains for some time, and sets *median to the median time of a step, in seconds. */
static int doctor_speed_train(doctor_speed_training *t, double *median)
{
    static double times[DOCTOR_SPEED_MOST];
    int n = 0, status = 0;
    const double begun = wb__now();
    while (!status && wb__now() - begun < warm_up) status = doctor_speed_step(t);
    const double warm = wb__now();
    while (!status && n < DOCTOR_SPEED_MOST && (!n || wb__now() - warm < doctor_speed_seconds)) {
        const double before = wb__now();
        status = doctor_speed_step(t);
        times[n++] = wb__now() - before;
    }
    if (status) return status;
    qsort(times, (size_t)n, sizeof *times, doctor_speed_by_size);
    *median = times[n / 2];
    return 0;
}

static void doctor_speed_compare(double microseconds)
{
    const double usual = doctor_speed_levels[wb__isa_here()].usual;
    printf(", about %.0f us usual for %s", usual, doctor_speed_levels[wb__isa_here()].name);
    if (microseconds <= slower_than_usual * usual) {
        printf("\n");
        return;
    }
    printf(": slower than usual.  Look at\n    - other processes that keep the processor busy "
           "(top)\n    - the quota of a cgroup or a virtual machine, and the clock rate\n    - the "
           "build type above: Release\n    - variables above: WEBER_ISA, WEBER_EAGER, WEBER_DEBUG, "
           "WEBER_ONEDNN\n");
}

int wb__cli_time_training(bool *threads_are_slow)
{
    const int threads = wb_threads();
    double one, all, first;
    wb_seed(1);
    doctor_speed_training t = {.model = wb_Chain(wb_Dense(784, 256, wb_relu), wb_Dense(256, 10))};
    t.state = wb_setup(wb_Adam(), t.model);
    wb_set_threads(1);
    int status = 0;
    for (int i = 0; i < BATCHES && !status; i++) {
        wb_batch *b = &t.batches[i];
        *b = (wb_batch){.x = wb_rand(BATCH, 784), .y = wb_randint(0, 10, BATCH), .n = BATCH};
        status = wb_eval(b->x, b->y);
    }
    if (!status) status = doctor_speed_step(&t);
    first = t.loss;
    if (!status) status = doctor_speed_train(&t, &one);
    wb_set_threads(threads);
    if (status) return status;
    if (!(t.loss < first))
        return wb__fail(WB_ERROR_INTERNAL, "doctor: the loss is %g after %g", t.loss, first);
    printf("  a training step of 784-256-10, batch 64: %.0f us on one thread", 1e6 * one);
    doctor_speed_compare(1e6 * one);
    if (threads == 1) return 0;
    status = doctor_speed_train(&t, &all);
    if (status) return status;
    printf("    on %d threads %.0f us", threads, 1e6 * all);
    if (all <= slower_by_threads * one) {
        printf("\n");
        return 0;
    }
    printf(": slower than on one.  Threads wait for each other where other programs keep the\n"
           "    processors busy (top), or where a quota allows fewer processors than threads:\n"
           "    WEBER_NUM_THREADS=1 uses one\n");
    *threads_are_slow = true;
    return 0;
}
