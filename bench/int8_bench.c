/* Times products with weights in f32, bf16 and i8 at the sizes of GPT-2 124M, without activations:
 *
 *   int8_bench [--threads N] [--rows N] [--repeats N]
 *
 * A model is a chain of Dense whose f32 weights exceed the caches, as those of a transformer do:
 * attention (768 to 768), perceptron (768 to 3072 and back), head (768 to 50257). Prints a line of
 * JSON for each model: the seconds of each repeat and dtype. The dtypes take turns. int8.py runs
 * this program beside PyTorch and ONNX Runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { MOST = 64, KINDS = 3, MOST_REPEATS = 1000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int failed(void) { return fprintf(stderr, "int8_bench: %s\n", wb_error()), 1; }

static int call(wb_tensor *const *inputs, wb_tensor **outputs, void *model)
{
    outputs[0] = wb_call(model, inputs[0]);
    return outputs[0] ? 1 : -1;
}

typedef struct { const char *name; int layers; int64_t sizes[2]; } chain;
static const chain chains[] = {{"attention", 48, {768, 768}}, {"perceptron", 24, {768, 3072}},
                               {"head", 1, {768, 50257}}};

static wb_layer *make(const chain *c)
{
    wb_layer *layers[MOST];
    for (int i = 0; i < c->layers; i++)
        layers[i] = wb_Dense(c->sizes[i % 2], c->sizes[(i + 1) % 2]);
    return wb_Chain_array(c->layers, layers);
}

static double seconds(wb_compiled *f, wb_tensor *x)
{
    wb_tensor *y;
    wb_scope *scope = wb_scope_open();
    const double start = now();
    if (wb_call_compiled(f, 1, &x, 1, &y) || wb_eval(y)) return -1;
    const double took = now() - start;
    return wb_scope_close(scope) ? -1 : took;
}

static int measure(const chain *c, int64_t rows, int repeats)
{
    static const char *const names[KINDS] = {"f32", "bf16", "int8"};
    static double times[KINDS][MOST_REPEATS];
    const wb_device *cpu = wb_device_at("CPU", 0);
    wb_layer *model[KINDS];
    wb_compiled *f[KINDS];
    wb_tensor *x[KINDS];
    model[0] = make(c);
    model[1] = wb_to(model[0], cpu, .dtype = WB_BF16);
    model[2] = wb_quantize(model[0]);
    x[0] = wb_keep(wb_randn(rows, c->sizes[0]));
    x[1] = wb_astype(x[0], WB_BF16);
    x[2] = x[0];
    if (!model[1] || !model[2] || !x[1] || wb_eval(x[0], x[1])) return failed();
    for (int k = 0; k < KINDS; k++) {
        f[k] = wb_compile(call, model[k]);
        for (int i = 0; i < 3; i++)
            if (seconds(f[k], x[k]) < 0) return failed();
    }
    for (int i = 0; i < repeats; i++)
        for (int k = 0; k < KINDS; k++)
            if ((times[k][i] = seconds(f[k], x[k])) < 0) return failed();
    printf("{\"model\": \"%s\", \"layers\": %d", c->name, c->layers);
    for (int k = 0; k < KINDS; k++) {
        printf(", \"%s\": [", names[k]);
        for (int i = 0; i < repeats; i++) printf("%s%.7f", i ? ", " : "", times[k][i]);
        printf("]");
    }
    printf("}\n");
    return 0;
}

int main(int argc, char **argv)
{
    int threads = 1, repeats = 15;
    int64_t rows = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rows")) rows = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--repeats")) repeats = atoi(argv[i + 1]);
        else argc = 0;
    }
    if (!(argc % 2) || threads < 1 || rows < 1 || repeats < 1 || repeats > MOST_REPEATS)
        return fprintf(stderr, "int8_bench [--threads N] [--rows N] [--repeats N]\n"), 2;
    wb_set_threads(threads);
    int status = 0;
    for (size_t i = 0; !status && i < sizeof chains / sizeof *chains; i++) {
        wb_scope *scope = wb_scope_open();
        status = measure(&chains[i], rows, repeats);
        wb_scope_close(scope);
    }
    return status;
}
