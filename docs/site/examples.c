/* Examples of the reference for functions that no program in examples/ uses.  The tests compile and
 * run this file; the reference quotes its statements. */
#include <math.h>
#include <stdio.h>
#include <weber.h>

static void elementwise(void)
{
    wb_tensor *x = wb_linspace(-3, 3, 7, WB_F32), *y = x;
    y = wb_identity(x);
    y = wb_leakyrelu(x);
    y = wb_elu(x);
    y = wb_selu(x);
    y = wb_logsigmoid(x);
    y = wb_softplus(x);
    y = wb_swish(x);
    y = wb_gelu_erf(x);
    y = wb_mish(x);
    y = wb_hardswish(x);
    y = wb_hardtanh(x);
    y = wb_hardsigmoid(x);
    y = wb_softsign(x);
    y = wb_softshrink(x);
    y = wb_tanhshrink(x);
    y = wb_trelu(x);
    y = wb_lisht(x);
    y = wb_logcosh(x);
    y = wb_celu(x);
    y = wb_elu_of(x, 0.5);
    y = wb_trelu_of(x, 1.5);
    y = wb_erf(wb_div(x, sqrt(2)));
    y = wb_reciprocal(wb_add(x, 4));
    y = wb_log1p(wb_square(x));
    wb_tensor *outside = wb_or(wb_lt(x, -1), wb_gt(x, 1));
    wb_eval(y, outside);
    wb_tensor *scores = wb_randn(4, 10);
    wb_tensor *normaliser = wb_logsumexp(scores, -1, .keep = true);
    wb_tensor *logs = wb_logsoftmax_over(scores, 0);
    wb_tensor *power = wb_db_to_power(wb_full(-20, 3), 1);
    wb_eval(normaliser, logs, power);
}

static void gradients(void)
{
    wb_tensor *x = wb_randn(3);
    wb_tensor *squares = wb_square(x), *loss = wb_sum(squares);
    wb_layer *model = wb_Dense(3, 1);
    wb_tensor *error = wb_sum(wb_square(wb_call(model, x)));
    wb_tree *pair = wb_tuple(model, x);
    wb_tensor *slope = wb_gradient_tensor(loss, x);
    wb_tree *of_model = wb_gradient_layer(error, model);
    wb_tree *of_pair = wb_gradient_tree(error, pair);
    wb_tensor *jacobian = wb_jacobian(squares, x);
    wb_eval(slope, jacobian, wb_get(of_model, "weight"), wb_get(of_pair, "1"));
    wb_object_show(model);
}

WB_INITIALISER(small_uniform, wb_glorot_uniform, 0.1)
WB_INITIALISER(small_normal, wb_glorot_normal, 0.1)
WB_INITIALISER(linear_uniform, wb_kaiming_uniform, 1)
WB_INITIALISER(linear_normal, wb_kaiming_normal, 1)
WB_INITIALISER(half_lecun, wb_lecun_normal, 0.5)
WB_INITIALISER(half_identity, wb_identity_init, 0.5)
WB_INITIALISER(wide_orthogonal, wb_orthogonal, 1.41)

static wb_tensor *halved(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return wb_mul(x, 0.5);
}

static void layers(void)
{
    wb_layer *zeros = wb_Dense(4, 2, .init = wb_init_zeros);
    wb_layer *ones = wb_Dense(4, 2, .init = wb_init_ones);
    wb_layer *normal = wb_Dense(4, 2, .init = wb_init_normal);
    wb_layer *uniform = wb_Dense(4, 2, .init = wb_init_uniform);
    wb_layer *all = wb_Chain(wb_Dense(4, 4, .init = small_uniform),
                             wb_Dense(4, 4, .init = small_normal),
                             wb_Dense(4, 4, .init = linear_uniform),
                             wb_Dense(4, 4, .init = linear_normal),
                             wb_Dense(4, 4, .init = half_lecun),
                             wb_Dense(4, 4, .init = half_identity),
                             wb_Dense(4, 4, .init = wide_orthogonal));
    wb_layer *half = wb_fmap_layer(halved, all, NULL);
    wb_tree *pair = wb_fmap_tree(halved, wb_tuple(zeros, ones), NULL);
    wb_layer *longer = wb_ConvTranspose1d(3, 8, {4}, wb_relu, .stride = {2}, .pad = {1});
    wb_tensor *y = wb_call(longer, wb_randn(2, 3, 16));             /* [2,8,32] */
    wb_tensor *x = wb_randn(2, 4);
    wb_summary(half, x);
    wb_eval(y, wb_call(normal, x), wb_call(uniform, x), wb_get(pair, "0.weight"));
}

static void training(void)
{
    wb_tensor *margins = wb_randn(8), *signs = wb_sign(wb_randn(8));
    wb_tensor *loss = wb_squared_hinge_loss(margins, signs);
    wb_eval(loss);
    double scores[] = {1, 0.5, 0.6, 0.7, 0.7};
    wb_watch worse = {.wait = 2}, stop = {.wait = 2}, flat = {.wait = 1, .min_dist = 1e-6};
    for (int i = 0; i < 5; i++) {
        if (wb_patience(&worse, i && scores[i] > scores[i - 1])) printf("worse twice: %d\n", i);
        if (wb_early_stopping(&stop, scores[i])) printf("no better for two epochs: %d\n", i);
        if (wb_plateau(&flat, scores[i])) printf("unchanged: %d\n", i);
    }
}

static void devices(void)
{
    for (const char *const *name = wb_supported_devices(); *name; name++) printf("%s\n", *name);
    wb_batch batch = wb_batch_of(wb_rand(8, 4), wb_zeros(8));
    wb_batch there = wb_batch_to(batch, wb_get_device(), NULL);
    wb_batch on_gpu = wb_batch_gpu(there, NULL);
    wb_batch back = wb_batch_cpu(on_gpu);
    const wb_device *device = wb_device_of(back.x);
    printf("%s\n", wb_device_describe(device));
}

int main(void)
{
    wb_seed(1);
    elementwise();
    gradients();
    layers();
    training();
    devices();
    if (wb_error_code()) return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
