/* One workload of the benchmark on Weber: one run, one JSON line.  torch_twin.py does the same on
 * PyTorch, and run.py runs the two in turn.
 *
 *   weber_bench --workload W3 [--threads 1] [--seconds 2] [--mode weber|weber-compiled]
 *
 * A training step is forward, loss, gradient, update on one of eight batches made beforehand, and
 * reading the loss; an inference is forward and reading the result.  float32 throughout. W1   MLP
 * 2-3(tanh)-2, batch 64, Adam 1e-2               W2   MLP 784-256(relu)-10, batch 64, Adam 1e-3 W3
 * LeNet-5, 28x28, batch 64, Adam 1e-3                W4a  VGG-like, 32x32x3, batch 32, SGD 0.01
 * momentum 0.9 W4b  ResNet-20 (He et al. 2015), batch 32, the same     W5   GPT: 4 layers, 4 heads,
 * d 128, T 128, 65 characters, W6   LSTM 64-128, T 50, batch 32, Adam 1e-3                  tied
 * head, batch 8, AdamW 3e-4 W7a  inference of W2, batch 1                           W7b  inference
 * of W3, batch 1 The loss is cross-entropy with class numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <weber.h>

enum { BATCHES = 8, MOST_BLOCKS = 4096 };

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "weber_bench: %s: %s\n", what, wb_error());
    exit(1);
}

/* ---- models ---------------------------------------------------------------------------------- */

static wb_layer *small_mlp(void) { return wb_Chain(wb_Dense(2, 3, wb_tanh), wb_Dense(3, 2)); }
static wb_layer *mlp(void) { return wb_Chain(wb_Dense(784, 256, wb_relu), wb_Dense(256, 10)); }

static wb_layer *lenet(void)
{
    return wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2, 2}),
                    wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
                    wb_Dense(256, 120, wb_relu), wb_Dense(120, 84, wb_relu), wb_Dense(84, 10));
}

static wb_layer *vgg(void)
{
    return wb_Chain(wb_Conv(3, 32, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(32, 32, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Conv(32, 64, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(64, 64, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Conv(64, 128, {3, 3}, wb_relu, .pad = {1}),
                    wb_Conv(128, 128, {3, 3}, wb_relu, .pad = {1}), wb_MaxPool({2, 2}),
                    wb_Flatten(), wb_Dense(2048, 256, wb_relu), wb_Dense(256, 10));
}

/* Every other pixel, and zeros for the channels that are new: the shortcut without parameters. */
static wb_tensor *halve(wb_tensor *x)
{
    if (!x) return NULL;
    int64_t n = wb_dim(x, 0), c = wb_dim(x, 1), h = wb_dim(x, 2) / 2, w = wb_dim(x, 3) / 2;
    wb_tensor *y = wb_slice(wb_slice(wb_reshape(x, n, c, h, 2, w, 2), 3, 0, 1), 5, 0, 1);
    return wb_pad(wb_reshape(y, n, c, h, w), 1, c / 2, c / 2);
}

static wb_layer *residual(int64_t in, int64_t out, int64_t stride)
{
    wb_layer *way =
        wb_Chain(wb_Conv(in, out, {3, 3}, .stride = {stride, stride}, .pad = {1}, .no_bias = true),
                 wb_BatchNorm(out, wb_relu), wb_Conv(out, out, {3, 3}, .pad = {1}, .no_bias = true),
                 wb_BatchNorm(out));
    wb_layer *shortcut =
        stride == 1 ? wb_layer_from_function(wb_identity) : wb_function_layer("halve", halve);
    return wb_Chain(wb_Parallel(wb_add, way, shortcut), wb_relu);
}

static wb_layer *resnet20(void)
{
    wb_layer *layers[16];
    int n = 0;
    layers[n++] = wb_Conv(3, 16, {3, 3}, .pad = {1}, .no_bias = true);
    layers[n++] = wb_BatchNorm(16, wb_relu);
    for (int64_t stage = 0, in = 16; stage < 3; stage++)
        for (int block = 0; block < 3; block++) {
            int64_t out = 16 << stage;
            layers[n++] = residual(in, out, in == out ? 1 : 2);
            in = out;
        }
    layers[n++] = wb_GlobalMeanPool();
    layers[n++] = wb_Flatten();
    layers[n++] = wb_Dense(64, 10);
    return wb_chain_of(n, layers);
}

static wb_tensor *small_normal(wb_dtype dtype, int ndim, const int64_t *dims)
{
    return wb_mul(wb_randn_of(dtype, ndim, dims), wb_scalar(0.02));
}
static wb_tensor *positions(wb_tensor *x) { return x ? wb_arange(wb_dim(x, -1), WB_I32) : NULL; }

static wb_layer *gpt(void)
{
    enum { D = 128, T = 128, V = 65, BLOCKS = 4 };
    wb_layer *layers[BLOCKS + 3];
    int n = 0;
    wb_layer *places = wb_Chain(wb_function_layer("positions", positions),
                                wb_Embedding(T, D, .init = small_normal));
    layers[n++] = wb_Parallel(wb_add, wb_Embedding(V, D, .init = small_normal), places);
    for (int i = 0; i < BLOCKS; i++) {
        wb_layer *attend =
            wb_Chain(wb_LayerNorm({D}), wb_MultiHeadAttention(D, 4, .causal = true, .bias = true));
        wb_layer *think =
            wb_Chain(wb_LayerNorm({D}), wb_Dense(D, 4 * D, wb_gelu), wb_Dense(4 * D, D));
        layers[n++] = wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(think, wb_add));
    }
    layers[n++] = wb_LayerNorm({D});
    layers[n++] = wb_Dense(D, V, .no_bias = true);
    wb_layer *model = wb_chain_of(n, layers);
    return model && wb_tie(model, "layers.6.weight", "layers.0.layers.0.weight") ? NULL : model;
}

/* One bias where PyTorch has two that are only ever added. */
static wb_layer *lstm(void) { return wb_Chain(wb_LSTM(64, 128, .last = true), wb_Dense(128, 10)); }

/* ---- workloads ------------------------------------------------------------------------------- */

static wb_rule *adam_fast(void) { return wb_Adam(.eta = 1e-2); }
static wb_rule *adam(void) { return wb_Adam(.eta = 1e-3); }
static wb_rule *adamw(void) { return wb_AdamW(.eta = 3e-4, .lambda = 0.01); }
static wb_rule *momentum(void) { return wb_Momentum(.eta = 0.01, .rho = 0.9); }

typedef struct {
    const char *name;
    wb_layer *(*model)(void);
    wb_rule *(*rule)(void);         /* NULL: inference */
    int ndim;
    int64_t dims[4];                /* of a batch */
    int64_t classes;
    bool tokens;                    /* x and y are class numbers, one a position */
} workload;

static const workload workloads[] = {
    {"W1", small_mlp, adam_fast, 2, {64, 2}, 2, false},
    {"W2", mlp, adam, 2, {64, 784}, 10, false},
    {"W3", lenet, adam, 4, {64, 1, 28, 28}, 10, false},
    {"W4a", vgg, momentum, 4, {32, 3, 32, 32}, 10, false},
    {"W4b", resnet20, momentum, 4, {32, 3, 32, 32}, 10, false},
    {"W5", gpt, adamw, 2, {8, 128}, 65, true},
    {"W6", lstm, adam, 3, {32, 50, 64}, 10, false},
    {"W7a", mlp, NULL, 2, {1, 784}, 10, false},
    {"W7b", lenet, NULL, 4, {1, 1, 28, 28}, 10, false},
};

static wb_tensor *classes_of(int64_t n, int64_t classes)
{
    static uint64_t state = 1;
    int32_t *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; y && i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        y[i] = (int32_t)((state >> 33) % (uint64_t)classes);
    }
    wb_tensor *t = y ? wb_from(y, WB_I32, 1, &n) : NULL;
    free(y);
    return t;
}

/* x and y of a batch, computed. */
static void make_batch(const workload *w, wb_batch *b)
{
    if (w->tokens) {
        int64_t n = w->dims[0] * w->dims[1];
        b->x = wb_reshape_to(classes_of(n, w->classes), w->ndim, w->dims);
        b->y = classes_of(n, w->classes);
    } else {
        b->x = wb_randn_of(WB_F32, w->ndim, w->dims);
        b->y = classes_of(w->dims[0], w->classes);
        if (!strcmp(w->name, "W1")) {               /* exactly one coordinate positive */
            const float *x = wb_data(b->x);
            int32_t y[64];
            for (int i = 0; x && i < 64; i++) y[i] = (x[2 * i] > 0) != (x[2 * i + 1] > 0);
            b->y = wb_from(y, WB_I32, 1, w->dims);
        }
    }
    b->n = w->dims[0];
    if (wb_eval(b->x, b->y)) fail("making batches");
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef struct {
    const workload *work;
    wb_layer *model;
    wb_opt_state *state;
    wb_compiled *compiled;          /* NULL: graph building at every step */
    wb_batch batches[BATCHES];
} run;

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    const workload *w = ctx;
    wb_tensor *scores = wb_call(model, batch.x);
    if (w->tokens) scores = wb_reshape(scores, -1, w->classes);
    return wb_logitcrossentropy(scores, wb_onehotbatch(batch.y, w->classes));
}

/* Records a step; what comes back is the loss, or the result of an inference. */
static int record(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    run *r = ctx;
    if (!r->state) {
        outputs[0] = wb_call(r->model, inputs[0]);
        return outputs[0] ? 1 : -1;
    }
    wb_batch batch = {inputs[0], inputs[1], r->work->dims[0], 0};
    wb_tree *gradients;
    outputs[0] = wb_withgradient(loss, r->model, batch, &gradients, (void *)r->work);
    return outputs[0] && wb_update(r->state, r->model, gradients) == 0 ? 1 : -1;
}

static double step(run *r, int64_t i)
{
    const wb_batch *b = &r->batches[i % BATCHES];
    wb_tensor *inputs[2] = {b->x, b->y}, *out = NULL;
    wb_scope *scope = wb_scope_open();
    if (r->compiled) {
        if (wb_call_compiled(r->compiled, r->state ? 2 : 1, inputs, 1, &out))
            fail("a compiled step");
    } else if (record(inputs, &out, r) < 0) {
        fail("a step");
    }
    double value = NAN;
    if (r->state) value = wb_item(out);
    else if (!wb_data(out)) fail("an inference");
    if (wb_scope_close(scope)) fail("a step");
    return value;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Seconds since the process began: by whoever started it, to the microsecond, else by the kernel,
 * to 10 ms. */
static double age(void)
{
    const char *born = getenv("BENCH_STARTED_AT");      /* CLOCK_MONOTONIC, seconds */
    if (born) return now(CLOCK_MONOTONIC) - strtod(born, NULL);
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

static int add_up(wb_tensor *x, const char *path, void *ctx)
{
    (void)path;
    const float *p = wb_data(x);
    for (int64_t i = 0; p && i < wb_size(x); i++) *(double *)ctx += fabs((double)p[i]);
    return p ? 0 : 1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_number(const char *key, double value, int digits)
{
    if (isfinite(value)) printf(", \"%s\": %.*f", key, digits, value);
    else printf(", \"%s\": null", key);
}

int main(int argc, char **argv)
{
    const char *name = "", *mode = "weber";
    int threads = 1;
    double budget = 2;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--workload")) name = argv[i + 1];
        else if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds")) budget = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--mode")) mode = argv[i + 1];
    }
    run r = {0};
    for (size_t k = 0; k < sizeof workloads / sizeof *workloads; k++)
        if (!strcmp(name, workloads[k].name)) r.work = &workloads[k];
    bool compiled = !strcmp(mode, "weber-compiled");
    if (!r.work || (!compiled && strcmp(mode, "weber")))
        return fprintf(stderr, "weber_bench --workload W1..W7b [--threads N] [--seconds S] "
                               "[--mode weber|weber-compiled]\n"), 2;

    wb_set_threads(threads);
    wb_seed(1);
    r.model = r.work->model();
    for (int k = 0; k < BATCHES; k++) make_batch(r.work, &r.batches[k]);
    if (!r.model) fail(name);
    if (r.work->rule && !(r.state = wb_setup(r.work->rule(), r.model))) fail(name);
    if (compiled && !(r.compiled = wb_compile(record, &r))) fail("wb_compile");

    double first_loss = step(&r, 0), first_step = age(), last_loss = NAN;

    /* Warm up for a fifth of the time, then time blocks of about 20 ms, each at least one step. */
    int64_t i = 1;
    double begun = now(CLOCK_MONOTONIC);
    while (now(CLOCK_MONOTONIC) < begun + fmax(0.2, budget / 5) || i < 6) step(&r, i++);
    int64_t block = (int64_t)fmax(1, 0.02 / ((now(CLOCK_MONOTONIC) - begun) / (double)(i - 1)));
    double *times = malloc(MOST_BLOCKS * sizeof *times);
    if (!times) fail("no memory");
    for (int k = 0; k < MOST_BLOCKS; k++) times[k] = 0; /* touch its pages now, not while timing */
    struct rusage before, after;
    int n = 0;
    getrusage(RUSAGE_SELF, &before);
    begun = now(CLOCK_MONOTONIC);
    while ((now(CLOCK_MONOTONIC) < begun + budget || n < 7) && n < MOST_BLOCKS) {
        double t = now(CLOCK_MONOTONIC);
        for (int64_t k = 0; k < block; k++) last_loss = step(&r, i++);
        times[n++] = (now(CLOCK_MONOTONIC) - t) / (double)block;
    }
    getrusage(RUSAGE_SELF, &after);
    qsort(times, (size_t)n, sizeof *times, by_size);
    double checksum = 0;
    wb_each_parameter(r.model, add_up, &checksum);

    printf("{\"workload\": \"%s\", \"side\": \"%s\", \"threads\": %d", name, mode, threads);
    print_number("step_us", times[n / 2] * 1e6, 2);
    print_number("step_us_p10", times[n / 10] * 1e6, 2);
    print_number("peak_mb", peak_mb(), 1);
    print_number("first_step_ms", first_step * 1e3, 1);
    print_number("first_loss", first_loss, 6);
    print_number("last_loss", last_loss, 6);
    print_number("checksum", checksum, 6);
    print_number("faults_a_step",
                 (double)(after.ru_minflt - before.ru_minflt) / ((double)n * (double)block), 3);
    printf(", \"steps\": %lld, \"parameters\": %lld}\n", (long long)n * block,
           (long long)wb_parameter_count(r.model));
    free(times);
    wb_shutdown();
    return wb_error_code() != WB_OK;
}
