/* One workload of the benchmark on Weber: one run, one line of JSON.  torch_twin.py and jax_twin.py
 * do the same with PyTorch and JAX; run.py and gpu.py run them alternately.
 *
 *   weber_bench --workload W3 [--mode weber|weber-compiled] [--device CPU|CUDA|OpenCL|...]
 *               [--dtype f32|tf32|medium|bf16|f64] [--threads 1] [--seconds 2] [--batch N]
 *               [--length N] [--losses N] [--hold] [--ranks] [--save FILE.safetensors]
 *
 * A training step computes forward pass, loss, gradient and update on one of a few batches created
 * beforehand; an inference step computes the forward pass.  On the CPU, every step reads the loss
 * (or the result); on other devices, only the last step of a block reads it and waits.
 *
 * --dtype: tf32 allows TF32 in products, and medium bf16; bf16 is mixed precision with f32 masters;
 * f64 converts model and data, from the same initial values.  --length: tokens per sequence.
 * --losses: trains this many steps with fixed seeds, and prints each loss and a checksum of the
 * parameters' bits, to compare devices and runs.  --hold: prints a line when it is ready; then, for
 * each line with a number of seconds that it reads, prints a line of figures.  --ranks: connects
 * the processes of `weber launch` by NCCL, and averages the gradients of all; each has the same
 * batches, so the losses are those of one process.  With --losses it also measures an allreduce of
 * 25 MB.  --save: only writes the initial model and the batches, for the twins (twins.py).
 *
 * The losses of the first two steps let run.py check that all sides do the same work; for an
 * inference they are the sums of the absolute results. */
#include "workloads.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BLOCKS = 4096, MOST_LOSSES = 10000 };

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double clock_now(void) { return now(CLOCK_MONOTONIC); }

static void fail(const char *what)
{
    fprintf(stderr, "weber_bench: %s: %s\n", what, wb_error());
    exit(1);
}

/* ---- arguments ------------------------------------------------------------------------------- */

typedef struct {
    const char *workload, *mode, *device, *dtype, *save;
    int threads, losses;
    int64_t batch, length;          /* 0: the workload's default */
    double seconds;
    bool hold, ranks;
} arguments;

static int usage(const char *wrong)
{
    if (wrong) fprintf(stderr, "weber_bench: %s\n", wrong);
    fprintf(stderr,
            "weber_bench --workload W1..W7b|G1|G2 [--mode weber|weber-compiled] [--device NAME]\n"
             "            [--dtype f32|tf32|medium|bf16|f64] [--threads N] [--seconds S]\n"
             "            [--batch N] [--length N] [--losses N] [--hold] [--ranks]\n"
             "            [--save FILE]\n");
    return 2;
}

static bool read_wishes(int argc, char **argv, arguments *w)
{
    for (int i = 1; i < argc; i++) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(key, "--hold") || !strcmp(key, "--ranks")) {
            *(key[2] == 'h' ? &w->hold : &w->ranks) = true;
            continue;
        }
        if (!value) return false;
        if (!strcmp(key, "--workload")) w->workload = value;
        else if (!strcmp(key, "--mode")) w->mode = value;
        else if (!strcmp(key, "--device")) w->device = value;
        else if (!strcmp(key, "--dtype")) w->dtype = value;
        else if (!strcmp(key, "--threads")) w->threads = atoi(value);
        else if (!strcmp(key, "--losses")) w->losses = atoi(value);
        else if (!strcmp(key, "--save")) w->save = value;
        else if (!strcmp(key, "--batch")) w->batch = atoll(value);
        else if (!strcmp(key, "--length")) w->length = atoll(value);
        else if (!strcmp(key, "--seconds")) w->seconds = atof(value);
        else return false;
        i++;
    }
    return w->losses <= MOST_LOSSES;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* By then, every batch has been used with every alternating set of buffers. */
enum { STEADY = 20 };

typedef struct {
    workload work;
    const wb_device *device;
    bool waits;  /* steps are asynchronous: only the last step of a block is read */
    wb_layer *model;
    wb_opt_state *state;
    wb_compiled *compiled;          /* NULL: builds the graph at every step */
    wb_batch batches[MOST_BATCHES];
    int64_t steps;                  /* completed so far */
    double first_loss, second_loss, last_loss, first_step;
    int64_t held;  /* device memory in use after STEADY steps, in bytes; 0 before */
} run;

typedef struct {
    double checksum;                /* sum of absolute values */
    uint64_t bits;                  /* FNV-1a of all bytes */
} sums;

static int add_up(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    sums *s = ctx;
    wb_scope *scope = wb_scope_open();
    /* exact for f32 and narrower dtypes; on the CPU, so that no more of a GPU's memory is used */
    wb_tensor *exact = wb_astype(wb_cpu(x), WB_F32);
    const float *p = wb_data(exact);
    const unsigned char *byte = (const void *)p;
    for (int64_t i = 0; p && i < wb_size(x); i++) s->checksum += fabs((double)p[i]);
    for (int64_t i = 0; p && i < 4 * wb_size(x); i++)
        s->bits = (s->bits ^ byte[i]) * 0x100000001B3u;
    return wb_scope_close(scope) || !p;
}

/* Records a step; the output is the loss, or the result of an inference. */
static int record(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    run *r = ctx;
    if (!r->state) {
        outputs[0] = wb_call(r->model, inputs[0]);
        return outputs[0] ? 1 : -1;
    }
    wb_batch batch = {.x = inputs[0], .y = inputs[1], .n = r->work.dims[0]};
    wb_tree *gradients;
    outputs[0] = wb_withgradient(workload_loss, r->model, batch, &gradients, &r->work);
    return outputs[0] && wb_update(r->state, r->model, gradients) == 0 ? 1 : -1;
}

static double absolute_sum(wb_tensor *x)
{
    sums s = {0, 0};
    if (add_up(x, "", &s)) fail("reading a result");
    return s.checksum;
}

static void step(run *r, bool read)
{
    const wb_batch *b = &r->batches[r->steps++ % r->work.batches];
    wb_tensor *inputs[2] = {b->x, b->y}, *out = NULL;
    wb_scope *scope = wb_scope_open();
    if (r->compiled) {
        if (wb_call_compiled(r->compiled, r->state ? 2 : 1, inputs, 1, &out))
            fail("a compiled step");
    } else if (record(inputs, &out, r) < 0) {
        fail("a step");
    }
    if (read && r->state) r->last_loss = wb_item(out);
    else if (read ? !wb_data(out) : wb_eval(out)) fail("a step");
    if (!r->state && r->steps <= 2) r->last_loss = absolute_sum(out);
    if (wb_scope_close(scope)) fail("a step");
}

static void wait_for(run *r)
{
    if (r->waits && wb_synchronize(r->device)) fail("waiting for the device");
}

static wb_device_memory device_memory(const run *r)
{
    wb_device_memory m;
    if (wb_device_memory_of(r->device, &m)) fail("asking for the device's memory");
    return m;
}

/* Runs steps; the last is read and waited for. */
static void block_of(run *r, int64_t steps)
{
    for (int64_t k = 1; k <= steps; k++) step(r, !r->waits || k == steps);
    wait_for(r);
    if (!r->waits || r->held || r->steps < STEADY) return;
    const wb_device_memory m = device_memory(r);
    r->held = m.used + m.cached;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Seconds since the process began: from the environment, to the microsecond, or from the kernel, to
 * 10 ms. */
static double age(void)
{
    const char *born = getenv("BENCH_STARTED_AT");      /* CLOCK_MONOTONIC, seconds */
    if (born) return clock_now() - strtod(born, NULL);
    char stat[1024] = "";
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(stat, 1, sizeof stat - 1, f) : 0;
    if (f) fclose(f);
    stat[n] = 0;
    char *field = strrchr(stat, ')');
    for (int k = 0; field && k < 20; k++) field = strchr(field + 1, ' ');
    return field ? now(CLOCK_BOOTTIME) - strtod(field, NULL) / (double)sysconf(_SC_CLK_TCK) : NAN;
}

static double peak_mb(void)
{
    char line[256];
    double kb = NAN;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6)) kb = strtod(line + 6, NULL);
    if (f) fclose(f);
    return kb / 1024;
}

static sums parameter_sums(run *r)
{
    sums s = {0, 0xCBF29CE484222325u};
    if (wb_each_parameter(r->model, add_up, &s)) fail("reading the parameters");
    return s;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time that one step occupies the host, in microseconds, starting from an idle
 * device. */
static double host_us(run *r)
{
    enum { MOST = 51 };
    double times[MOST], begun = clock_now();
    int n = 0;
    while (n < MOST && (n < 5 || clock_now() < begun + 0.2)) {
        wait_for(r);
        double t = clock_now();
        step(r, false);
        times[n++] = clock_now() - t;
    }
    wait_for(r);
    qsort(times, (size_t)n, sizeof *times, by_size);
    return times[n / 2] * 1e6;
}

typedef struct {
    double step, p10, host, faults;             /* seconds; microseconds; page faults per step */
    double cores;                               /* processor time divided by time */
    int64_t steps;
} figures;

static double used(const struct rusage *r)
{
    return (double)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) +
           1e-6 * (double)(r->ru_utime.tv_usec + r->ru_stime.tv_usec);
}

/* Warms up, then times blocks of about 20 ms, each of at least one step. */
static figures measure(run *r, double seconds, double warm)
{
    static double times[MOST_BLOCKS];
    memset(times, 0, sizeof times);             /* touches its pages before the measurement */
    figures f = {.host = NAN};
    struct rusage before, after;
    double begun = clock_now();
    int64_t warmed = 0;
    for (; clock_now() < begun + warm || warmed < 5; warmed++) block_of(r, 1);
    double each = (clock_now() - begun) / (double)warmed;
    int64_t block = (int64_t)fmax(1, 0.02 / each);
    if (r->waits) {                             /* without waiting, steps are shorter */
        begun = clock_now();
        block_of(r, block);
        block = (int64_t)fmax(1, 0.02 / ((clock_now() - begun) / (double)block));
    }
    int n = 0;
    getrusage(RUSAGE_SELF, &before);
    begun = clock_now();
    while ((clock_now() < begun + seconds || n < 7) && n < MOST_BLOCKS) {
        double t = clock_now();
        block_of(r, block);
        times[n++] = (clock_now() - t) / (double)block;
    }
    getrusage(RUSAGE_SELF, &after);
    f.cores = (used(&after) - used(&before)) / (clock_now() - begun);
    qsort(times, (size_t)n, sizeof *times, by_size);
    f.step = times[n / 2];
    f.p10 = times[n / 10];
    f.steps = n * block;
    f.faults = (double)(after.ru_minflt - before.ru_minflt) / (double)f.steps;
    if (r->waits) f.host = host_us(r);
    return f;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_number(const char *key, double value, int digits)
{
    if (isfinite(value)) printf(", \"%s\": %.*f", key, digits, value);
    else printf(", \"%s\": null", key);
}

static void print_head(const run *r, const arguments *w)
{
    printf("{\"workload\": \"%s\", \"side\": \"%s\", \"device\": \"%s\", \"dtype\": \"%s\", "
           "\"threads\": %d, \"batch\": %lld", w->workload, w->mode, w->device, w->dtype,
           w->threads, (long long)r->work.dims[0]);
    printf(", \"parameters\": %lld", (long long)wb_parameter_count(r->model));
}

static void print_figures(run *r, const arguments *w, const figures *f)
{
    wb_device_memory m = device_memory(r);
    double a_step = (double)(r->work.tokens ? r->work.dims[0] * r->work.dims[1] : r->work.dims[0]);
    print_head(r, w);
    print_number("step_us", f->step * 1e6, 2);
    print_number("step_us_p10", f->p10 * 1e6, 2);
    print_number(r->work.tokens ? "tokens_per_s" : "samples_per_s", a_step / f->step, 1);
    if (r->waits) {
        print_number("host_us", f->host, 2);
        print_number("peak_gpu_mb", m.peak < 0 ? NAN : (double)m.peak / 1048576, 2);
        const int64_t growth = m.used + m.cached - r->held;
        print_number("growth_mb", r->held ? (double)growth / 1048576 : NAN, 3);
    }
    print_number("peak_mb", peak_mb(), 1);
    print_number("first_step_ms", r->first_step * 1e3, 1);
    print_number("first_loss", r->first_loss, 6);
    print_number("second_loss", r->second_loss, 6);
    print_number("last_loss", r->state ? r->last_loss : NAN, 6);
    if (!w->hold) print_number("checksum", parameter_sums(r).checksum, 6);
    print_number("faults_a_step", f->faults, 3);
    print_number("cores", f->cores, 2);
    printf(", \"steps\": %lld}\n", (long long)f->steps);
    fflush(stdout);
}

enum { BUCKET = 25000000, ALLREDUCES = 20 };

/* Microseconds of one of several allreduces, each of which needs the one before. */
static double allreduce_us(const run *r)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_to(wb_zeros(BUCKET / 4), r->device);
    double begun = 0;
    for (int i = -3; i < ALLREDUCES; i++) {             /* the first ones are not counted */
        if (!(x = wb_distributed_allreduce(x, WB_RANKS_MEAN))) fail("wb_distributed_allreduce");
        if (i == -1 && wb_synchronize(r->device)) fail("waiting for the device");
        if (i == -1) begun = clock_now();
    }
    if (wb_synchronize(r->device)) fail("waiting for the device");
    const double us = (clock_now() - begun) / ALLREDUCES * 1e6;
    if (wb_scope_close(s)) fail("an allreduce");
    return us;
}

static void print_losses(run *r, const arguments *w)
{
    print_head(r, w);
    printf(", \"losses\": [");
    for (int i = 0; i < w->losses; i++) {
        block_of(r, 1);
        printf(isfinite(r->last_loss) ? "%s%.9g" : "%snull", i ? ", " : "", r->last_loss);
    }
    printf("], \"bits\": \"%016" PRIx64 "\"", parameter_sums(r).bits);
    if (w->ranks)
        printf(", \"rank\": %d, \"ranks\": %d, \"allreduce_us\": %.1f", wb_distributed_rank(),
               wb_distributed_size(), allreduce_us(r));
    printf("}\n");
}

/* ---- setup ----------------------------------------------------------------------------------- */

static int open_device(run *r, const arguments *w)
{
    wb_using(w->device);
    r->device = wb_device_at(w->device, wb_distributed_local_rank());
    r->waits = r->device && wb_device_is_gpu(r->device);
    return r->device ? 0 : 1;
}

/* Initial values and batches are created on the CPU, so that they are the same on every device. */
static void make(run *r, const arguments *w)
{
    wb_dtype mixed = strcmp(w->dtype, "bf16") ? WB_DTYPE_DEFAULT : WB_BF16;
    const bool wide = !strcmp(w->dtype, "f64");
    const wb_dtype dtype = wide ? WB_F64 : WB_DTYPE_DEFAULT;
    if (wb_set_matmul_precision(wide || !strcmp(w->dtype, "f32") ? "highest"
                                : !strcmp(w->dtype, "medium") ? "medium" : "high"))
        fail("wb_set_matmul_precision");
    wb_seed(1);
    r->model = wb_to(r->work.model(), r->device, .dtype = dtype);
    if (!r->model) fail("making the model");
    for (int k = 0; k < r->work.batches; k++) {
        r->batches[k] = wb_to(workload_batch(&r->work), r->device, .dtype = dtype);
        if (!r->batches[k].x) fail("making batches");
    }
    wb_rule *rule = r->work.rule ? r->work.rule() : NULL;
    if (rule && w->ranks) rule = wb_DistributedOptimizer(rule);
    if (r->work.rule && !(r->state = wb_setup(rule, r->model, .mixed = mixed))) fail("wb_setup");
    if (!strcmp(w->mode, "weber-compiled") && !(r->compiled = wb_compile(record, r)))
        fail("wb_compile");
}

static void save(const run *r, const char *path)
{
    void *data[2 * MOST_BATCHES];
    int n = 0;
    for (int k = 0; k < r->work.batches; k++) {
        data[n++] = r->batches[k].x;
        data[n++] = r->batches[k].y;
    }
    if (wb_save(path, wb_tuple(r->model, wb_tuple_array(n, data)))) fail("saving");
}

static void first_steps(run *r)
{
    block_of(r, 1);
    r->first_loss = r->last_loss;
    r->first_step = age();
    block_of(r, 1);
    r->second_loss = r->last_loss;
}

/* Answers each input line with a line of figures. */
static void serve(run *r, const arguments *w)
{
    char line[64];
    double warm = 0.2;
    print_head(r, w);
    print_number("first_step_ms", r->first_step * 1e3, 1);
    printf(", \"ready\": true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        double seconds = strtod(line, NULL);
        figures f = measure(r, seconds, warm);
        print_figures(r, w, &f);
        warm = 0.02;
    }
}

int main(int argc, char **argv)
{
    arguments w = {.workload = "", .mode = "weber", .device = "CPU", .dtype = "f32", .threads = 1,
                   .seconds = 2};
    if (!read_wishes(argc, argv, &w)) return usage(NULL);
    const workload *work = workload_named(w.workload);
    if (!work) return usage("no such workload");
    if (strcmp(w.mode, "weber") && strcmp(w.mode, "weber-compiled")) return usage("no such mode");
    if (strcmp(w.dtype, "f32") && strcmp(w.dtype, "tf32") && strcmp(w.dtype, "bf16") &&
        strcmp(w.dtype, "medium") &&
        strcmp(w.dtype, "f64"))
        return usage("no such dtype");
    run r = {.work = *work, .first_loss = NAN, .second_loss = NAN, .last_loss = NAN};
    if (w.batch > 0) r.work.dims[0] = w.batch;
    if (w.length > 0 && work->tokens) r.work.dims[1] = w.length;

    wb_set_threads(w.threads);
    if (w.ranks && wb_distributed_initialize(WB_NCCL, .timeout = 60)) fail("connecting the ranks");
    if (open_device(&r, &w)) fail(w.device);
    make(&r, &w);
    if (w.save) {
        save(&r, w.save);
    } else if (w.losses > 0) {
        print_losses(&r, &w);
    } else {
        first_steps(&r);
        if (w.hold) {
            serve(&r, &w);
        } else {
            figures f = measure(&r, w.seconds, fmax(0.2, w.seconds / 5));
            print_figures(&r, &w, &f);
        }
    }
    if (wb_distributed_finalize()) fail("disconnecting the ranks");
    wb_shutdown();
    return wb_error_code() != WB_OK;
}
