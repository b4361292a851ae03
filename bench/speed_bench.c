/* The speed of a device's components, as one line of JSON.  torch_parts.py measures the same with
 * PyTorch.
 *
 *   speed_bench [DEVICE [PRODUCTS [MIB]]]        CUDA, all, 1024
 *
 * "copy": a tensor copied within the device.  "chain": elementwise operations fused into one kernel
 * that reads two tensors and writes one.  Both are in GB/s, read and written.  The others are
 * matrix products in TFLOP/s, named by dtype and sizes: x [m,k] times w [n,k] transposed, as in a
 * dense layer.  PRODUCTS 0: no products.  MIB: size of the copied tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

static const wb_device *device;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "speed_bench: %s: %s\n", what, wb_error());
    exit(1);
}

/* ---- measurements ---------------------------------------------------------------------------- */

typedef struct {
    wb_compiled *step;              /* NULL: copies the first operand */
    wb_tensor *in[2];
} job;

static int chain(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_relu(wb_add(wb_mul(in[0], wb_scalar(1.5)), in[1]));
    out[0] = wb_sub(wb_mul(out[0], in[0]), wb_scalar(0.25));
    return out[0] ? 1 : -1;
}

static int product(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_matmul(in[0], wb_transpose(in[1]));
    return out[0] ? 1 : -1;
}

static void once(const job *j)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *out;
    if (j->step) must(!wb_call_compiled(j->step, 2, j->in, 1, &out), "a call");
    else must(wb_variable(j->in[0]) != NULL, "a copy");
    must(!wb_scope_close(scope), "a call");
}

/* Seconds per call: the least of five blocks of about 50 ms, after three blocks to warm up. */
static double time_of(const job *j)
{
    double best = 1e30;
    int calls = 1;
    for (int k = 0; k < 8; k++) {
        double begun = seconds();
        for (int i = 0; i < calls; i++) once(j);
        must(!wb_synchronize(device), "waiting");
        double each = (seconds() - begun) / calls;
        if (k >= 3 && each < best) best = each;
        if (k == 1 || k == 2) calls = (int)(0.05 / each) + 1;
    }
    return best;
}

/* Random numbers created on the device: large tensors would take long on the CPU. */
static wb_tensor *made(wb_dtype dtype, int64_t rows, int64_t columns)
{
    wb_tensor *x = wb_astype(wb_randn(rows, columns), dtype);
    must(x && !wb_eval(x), "making a tensor");
    return x;
}

static void bandwidth(int64_t mib)
{
    wb_scope *scope = wb_scope_open();
    int64_t n = mib << 18;
    job j = {NULL, {made(WB_F32, n >> 10, 1024), made(WB_F32, n >> 10, 1024)}};
    printf(", \"copy\": %.1f", 8e-9 * (double)n / time_of(&j));
    j.step = wb_compile(chain, NULL);
    must(j.step != NULL, "wb_compile");
    printf(", \"chain\": %.1f", 12e-9 * (double)n / time_of(&j));
    wb_scope_close(scope);
}

static void products(void)
{
    static const struct { const char *dtype; int64_t m, n, k; } shapes[] = {
        {"bf16", 8192, 8192, 8192}, {"bf16", 4096, 4096, 4096}, {"bf16", 16384, 3072, 768},
        {"bf16", 16384, 768, 3072}, {"bf16", 16384, 50304, 768}, {"tf32", 8192, 8192, 8192},
        {"f32", 4096, 4096, 4096},  {"f32", 64, 256, 784},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        wb_scope *scope = wb_scope_open();
        int64_t m = shapes[i].m, n = shapes[i].n, k = shapes[i].k;
        wb_dtype dtype = !strcmp(shapes[i].dtype, "bf16") ? WB_BF16 : WB_F32;
        must(!wb_set_matmul_precision(!strcmp(shapes[i].dtype, "f32") ? "highest" : "high"),
             "wb_set_matmul_precision");
        job j = {wb_compile(product, NULL), {made(dtype, m, k), made(dtype, n, k)}};
        must(j.step != NULL, "wb_compile");
        double flop = 2.0 * (double)m * (double)n * (double)k;
        printf(", \"%s %lldx%lldx%lld\": %.3f", shapes[i].dtype, (long long)m, (long long)n,
               (long long)k, 1e-12 * flop / time_of(&j));
        wb_scope_close(scope);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "CUDA";
    int64_t mib = argc > 3 ? atoll(argv[3]) : 1024;
    wb_using(name);
    device = wb_device_at(name, 0);
    must(device != NULL, name);
    wb_set_default_device(device);
    printf("{\"device\": \"%s\"", wb_device_describe(device));
    bandwidth(mib);
    if (argc < 3 || strcmp(argv[2], "0") != 0) products();
    printf("}\n");
    wb_shutdown();
    return 0;
}
