/* Curves of the guide: tanh with its derivatives, schedules, and the training on two spirals.
 *
 *   curves FOLDER */
#include <math.h>
#include <stdio.h>
#include <weber.h>

enum { N = 121, STEPS = 1000, POINTS = 2000, EPOCHS = 30 };

static int plot(const char *folder, const char *name, const char *title, const char *x_label,
                const char *y_label, int n, const wb_series *series)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.svg", folder, name);
    return wb_save_curves(path, title, x_label, y_label, n, series);
}

static void to_doubles(wb_tensor *x, double *out)
{
    wb_copy_out(wb_astype(x, WB_F64), out, N * sizeof *out);
}

static int derivatives(const char *folder)
{
    static double at[N], value[N], slope[N], curvature[N];
    wb_tensor *x = wb_linspace(-3, 3, N, WB_F32), *y = wb_tanh(x);
    wb_tensor *first = wb_gradient(wb_sum(y), x), *second = wb_gradient(wb_sum(first), x);
    to_doubles(x, at);
    to_doubles(y, value);
    to_doubles(first, slope);
    to_doubles(second, curvature);
    return plot(folder, "derivatives", "tanh and its derivatives", "x", "", 3, (wb_series[]){
        {"tanh", N, at, value}, {"first", N, at, slope}, {"second", N, at, curvature}});
}

static int activations(const char *folder)
{
    static double at[N], value[6][N];
    static const char *const names[] = {"relu", "elu", "gelu", "swish", "tanh", "sigmoid"};
    wb_function all[] = {wb_relu, wb_elu, wb_gelu, wb_swish, wb_tanh, wb_sigmoid};
    wb_tensor *x = wb_linspace(-3, 3, N, WB_F32);
    wb_series series[6];
    to_doubles(x, at);
    for (int k = 0; k < 6; k++) {
        to_doubles(all[k](x), value[k]);
        series[k] = (wb_series){names[k], N, at, value[k]};
    }
    return plot(folder, "activations", "Activations", "x", "", 6, series);
}

/* The error of differences as derivatives of exp(sin(x)), by the size of the step. */
static int differences(const char *folder)
{
    enum { SIZES = 29 };
    static double at[SIZES], error[2][SIZES];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < SIZES; i++) {
            wb_scope *scope = wb_scope_open();
            double h = pow(10, at[i] = -7 + i / 4.0);
            wb_tensor *x = wb_full_array(1, k ? WB_F64 : WB_F32, 0, NULL);
            double exact = cos(1) * exp(sin(1));
            wb_tensor *up = wb_exp(wb_sin(wb_add(x, h))), *down = wb_exp(wb_sin(wb_sub(x, h)));
            double slope = (wb_item(up) - wb_item(down)) / (2 * h);
            error[k][i] = log10(fmax(fabs(slope - exact), 1e-14));
            if (wb_scope_close(scope)) return 1;
        }
    return plot(folder, "differences", "Error of differences, log10", "log10 of the step h", "", 2,
                (wb_series[]){{"f32", SIZES, at, error[0]}, {"f64", SIZES, at, error[1]}});
}

static int schedules(const char *folder)
{
    static double at[STEPS], rate[4][STEPS];
    wb_schedule *all[] = {wb_ScheduleOneCycle(STEPS, 0.01),
                          wb_ScheduleCosAnneal(0.01, 0, STEPS / 2),
                          wb_ScheduleExp(0.01, 0.997), wb_ScheduleWarmup(0, 0.008, STEPS / 4)};
    for (int i = 0; i < STEPS; i++) {
        at[i] = i + 1;
        for (int k = 0; k < 4; k++) rate[k][i] = wb_schedule_at(all[k], i + 1);
    }
    return plot(folder, "schedules", "Learning rates", "step", "", 4, (wb_series[]){
        {"OneCycle", STEPS, at, rate[0]}, {"CosAnneal", STEPS, at, rate[1]},
        {"Exp", STEPS, at, rate[2]}, {"Warmup", STEPS, at, rate[3]}});
}

static wb_dataset *spirals(void)
{
    static float x[POINTS][2];
    static int32_t y[POINTS];
    const float *noise = wb_data(wb_randn(POINTS, 2));
    for (int i = 0; noise && i < POINTS; i++) {
        double t = i / 2 / (POINTS / 2.0), radius = 0.1 + 0.9 * t;
        double angle = 9 * t + 3.14159265 * (i % 2);
        x[i][0] = (float)(radius * cos(angle)) + 0.015f * noise[2 * i];
        x[i][1] = (float)(radius * sin(angle)) + 0.015f * noise[2 * i + 1];
        y[i] = i % 2;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){POINTS, 2}),
                         wb_from(y, WB_I32, 1, (int64_t[]){POINTS}));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

static double test_error(wb_layer *model, int epoch, void *ctx)
{
    (void)epoch;
    wb_dataset *test = ctx;
    wb_tensor *guess = wb_onecold(wb_call(model, wb_dataset_x(test)));
    return wb_item(wb_mean(wb_astype(wb_ne(guess, wb_dataset_y(test)), WB_F32)));
}

static int training(const char *folder)
{
    static double at[EPOCHS], losses[EPOCHS], errors[EPOCHS];
    wb_dataset *train, *test;
    wb_seed(1);
    if (wb_splitobs(spirals(), 0.8, &train, &test, .shuffle = true)) return 1;
    wb_layer *model = wb_Chain(wb_Dense(2, 64, wb_relu), wb_Dense(64, 64, wb_relu),
                               wb_Dense(64, 2));
    wb_opt_state *state = wb_setup(wb_AdamW(.eta = 5e-3), model);
    wb_loader *loader = wb_dataloader(train, .batchsize = 64, .shuffle = true);
    if (wb_train(loss, model, loader, state, .epochs = EPOCHS, .losses = losses, .ctx = test,
                 .metric = test_error, .metrics = errors))
        return 1;
    for (int i = 0; i < EPOCHS; i++) at[i] = i + 1;
    return plot(folder, "training", "Two spirals", "epoch", "", 2, (wb_series[]){
        {"loss", EPOCHS, at, losses}, {"error on held-out points", EPOCHS, at, errors}});
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    if (derivatives(argv[1]) || activations(argv[1]) || differences(argv[1]) ||
        schedules(argv[1]) || training(argv[1]))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
