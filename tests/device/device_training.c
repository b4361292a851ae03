/* Training on a GPU backend compared with the CPU: equal losses at each step, and device memory
 * that does not grow.  Runs on a second CPU device and on every device of every backend that
 * works here. */
#include "reference.h"

#include "weber/device.h"

enum { STEPS = 50 };

static const wb_device *devices[8];
static int n_devices;

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), wb_onehotbatch(b.y, 10));
}

/* Images of ten classes: noise with a bright bar, whose position is the class. */
static void draw_digits(int step, int n, float *x, int32_t *y)
{
    uint32_t seed = 12345u + 977u * (uint32_t)step;
    for (int i = 0; i < n; i++) {
        y[i] = (i * 7 + step) % 10;
        for (int p = 0; p < 784; p++) {
            seed = seed * 1664525u + 1013904223u;
            x[i * 784 + p] =
                (float)(seed >> 8) / (1 << 24) * 0.5f + (p / 28 / 2 == y[i] + 2 ? 0.5f : 0);
        }
    }
}

static wb_layer *lenet(void)
{
    wb_seed(5);
    return wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2, 2}),
                    wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
                    wb_Dense(256, 120, wb_relu), wb_Dense(120, 84, wb_relu), wb_Dense(84, 10));
}

/* NaN is the largest of all. */
static double larger(double a, double b) { return a >= b || a != a ? a : b; }

static void train(wb_layer *m, wb_rule *rule, double *losses, int64_t *held)
{
    enum { N = 16 };
    static float x[N * 784];
    int32_t y[N];
    const wb_device *d = wb_device_of(m);
    wb_opt_state *o = wb_setup(rule, m);
    for (int i = 0; i < STEPS; i++) {
        wb_scope *s = wb_scope_open();
        wb_tree *g;
        draw_digits(i, N, x, y);
        wb_batch b = {.x = wb_to(wb_from(x, WB_F32, 4, (int64_t[]){N, 1, 28, 28}), d),
                      .y = wb_to(wb_from(y, WB_I32, 1, (int64_t[]){N}), d),
                      .n = N};
        wb_tensor *l = wb_withgradient(loss_of, m, b, &g);
        if (!l || wb_update(o, m, g)) fail_msg("step %d: %s", i, wb_error());
        losses[i] = wb_item(l);
        if (wb_scope_close(s)) fail_msg("step %d: %s", i, wb_error());
        wb_device_memory memory;
        assert_int_equal(wb_device_memory_of(d, &memory), 0);
        held[i] = memory.used + memory.cached;
    }
}

TEST(lenet_has_the_losses_of_the_cpu)
{
    double want[STEPS], got[STEPS];
    int64_t held[STEPS];
    wb_layer *m = lenet();
    train(m, wb_Momentum(.eta = 0.01), want, held);
    assert_true(want[STEPS - 1] < want[0] / 2);
    for (int d = 0; d < n_devices; d++) {
        train(wb_to(lenet(), devices[d]), wb_Momentum(.eta = 0.01), got, held);
        double worst = 0;
        for (int i = 0; i < STEPS; i++) worst = larger(worst, fabs(got[i] - want[i]) / want[i]);
        print_message("%s: losses %.4f to %.4f, at most %.2g apart from the CPU's; %.2f MiB held\n",
                      wb_device_describe(devices[d]), got[0], got[STEPS - 1], worst,
                      (double)held[STEPS - 1] / 1048576);
        if (!(worst <= 1e-4)) fail_msg("%g", worst);
        for (int i = 2; i < STEPS; i++)
            if (held[i] != held[2])
                fail_msg("step %d holds %lld bytes of the device, step 2 held %lld", i,
                         (long long)held[i], (long long)held[2]);
    }
}

static wb_tensor *residual(wb_tensor *y, wb_tensor *x) { return wb_add(y, x); }

static wb_tensor *next_token(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), wb_onehotbatch(b.y, 32));
}

/* A small transformer: embedding, attention, layer norm, gelu. */
TEST(a_transformer_has_the_losses_of_the_cpu)
{
    enum { N = 4, T = 12, D = 16 };
    int32_t x[N * T], y[N * T];
    for (int i = 0; i < N * T; i++) x[i] = (i * i + 3 * i) % 32, y[i] = (x[i] * 5 + 1) % 32;
    wb_seed(9);
    wb_layer *m = wb_Chain(
        wb_Embedding(32, D),
        wb_SkipConnection(
            wb_Chain(wb_LayerNorm({D}), wb_MultiHeadAttention(D, 4, .causal = true)), residual),
        wb_SkipConnection(
            wb_Chain(wb_LayerNorm({D}), wb_Dense(D, 4 * D, wb_gelu), wb_Dense(4 * D, D)), residual),
        wb_Dense(D, 32));
    for (int d = -1; d < n_devices; d++) {
        static double want[STEPS];
        const wb_device *on = d < 0 ? wb_cpu_device() : devices[d];
        /* m itself stays untrained */
        wb_layer *copy = d < 0 ? wb_cpu(wb_to(m, wb_device_at("CPU", 1))) : wb_to(m, on);
        wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), copy);
        double worst = 0, last = 0;
        for (int i = 0; i < STEPS; i++) {
            wb_scope *s = wb_scope_open();
            wb_tree *g;
            wb_batch b = {.x = wb_to(wb_from(x, WB_I32, 2, (int64_t[]){N, T}), on),
                          .y = wb_to(wb_from(y, WB_I32, 2, (int64_t[]){N, T}), on), .n = N};
            wb_tensor *l = wb_withgradient(next_token, copy, b, &g);
            if (!l || wb_update(o, copy, g)) fail_msg("step %d: %s", i, wb_error());
            last = wb_item(l);
            if (d < 0) want[i] = last;
            worst = larger(worst, fabs(last - want[i]) / fabs(want[i]));
            if (wb_scope_close(s)) fail_msg("step %d: %s", i, wb_error());
        }
        if (d < 0) assert_true(want[STEPS - 1] < want[0] / 2);
        print_message("%s: loss %.4f, at most %.2g apart from the CPU's\n", wb_device_describe(on),
                      last, worst);
        if (!(worst <= 1e-3)) fail_msg("%g", worst);
    }
}

int main(void)
{
    setenv("WEBER_CPU_DEVICES", "2", 1);
    devices[n_devices++] = wb_device_at("CPU", 1);
    const char *const *names = wb_supported_gpu_backends();
    int gpus = 0;
    for (; *names; names++) {
        if (wb_using(*names)) continue;
        for (int i = 0; i < wb_devices(*names).n && n_devices < 8; i++, gpus++)
            devices[n_devices++] = wb_device_at(*names, i);
    }
    if (!gpus) printf("only the CPU's second device: no GPU's backend works here\n");
    return run_all_cases();
}
