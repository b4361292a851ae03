/* Training steps by the size of the batch, on each device of the machine.
 *
 *   devices FOLDER */
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <weber.h>

enum { FEATURES = 64, SIZES = 10, REPEATS = 15, MOST_DEVICES = 4 };

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

/* log10 of the rows a second of the fastest of REPEATS steps with batches of 2^i rows. */
static int measure(const wb_device *device, double *rates)
{
    for (int i = 0; i < SIZES; i++) {
        wb_layer *model = wb_to(wb_Chain(wb_Dense(FEATURES, 256, wb_relu), wb_Dense(256, 10)),
                                device);
        wb_opt_state *state = wb_setup(wb_Adam(), model);
        wb_batch batch = wb_to(wb_batch_of(wb_rand(1 << i, FEATURES), wb_randint(0, 10, 1 << i)),
                               device);
        double best = INFINITY;
        for (int k = 0; k < REPEATS; k++) {
            wb_scope *scope = wb_scope_open();
            wb_tree *grads;
            double begin = now();
            wb_withgradient(loss, model, batch, &grads);
            if (wb_update(state, model, grads) || wb_synchronize(device)) return 1;
            best = fmin(best, now() - begin);
            if (wb_scope_close(scope)) return 1;
        }
        rates[i] = log10((1 << i) / best);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const backends[] = {"CUDA", "AMDGPU", "Metal", "OpenCL"};
    static double at[SIZES], rates[MOST_DEVICES + 1][SIZES];
    static char names[MOST_DEVICES + 1][64];
    wb_series series[MOST_DEVICES + 1];
    const wb_device *devices[MOST_DEVICES + 1] = {wb_cpu_device()};
    char path[1024];
    int n = 1;
    if (argc != 2) return 2;
    for (int i = 0; i < SIZES; i++) at[i] = i;
    for (int k = 0; k < MOST_DEVICES; k++)
        if (!wb_using(backends[k]) && wb_functional(backends[k]))
            devices[n++] = wb_device_at(backends[k], 0);
    wb_clear_error();
    for (int k = 0; k < n; k++) {
        if (measure(devices[k], rates[k])) return fprintf(stderr, "%s\n", wb_error()), 1;
        snprintf(names[k], sizeof names[k], "%s", wb_device_describe(devices[k]));
        series[k] = (wb_series){names[k], SIZES, at, rates[k]};
    }
    snprintf(path, sizeof path, "%s/devices.svg", argv[1]);
    if (wb_save_curves(path, "Rows a second, log10", "log2 of the rows of a batch", "", n, series))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
