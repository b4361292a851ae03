/* Step 7: a GPU: choosing a device, and moving tensors, a layer and a model to it.
 *
 * A program that moves its objects with wb_gpu runs with and without a GPU: where there is none,
 * wb_gpu returns its argument. If several backends work, LocalPreferences.toml beside the program
 * chooses one,
 *
 *   [Flux]
 *   gpu_backend = "OpenCL"
 *
 * which wb_set_gpu_backend("OpenCL") writes, for the next start.
 *
 * Prints:
 *   device: ...
 *   it is device 0 of its backend: yes
 *   loss before: 6.266, after 30 steps: 0.000
 *   Dense(10 => 5, sigmoid)  # 55 parameters
 *   weight [5,10] f32...
 *   Chain(
 *     Dense(10 => 5, sigmoid),              # 55 parameters
 *     Dense(5 => 2),                        # 12 parameters
 *     softmax,
 *   )                   # Total: 4 arrays, 67 parameters, 268 bytes.
 *   on the device: 0.627 + 0.373 = 1.000
 *   on the CPU the same, within 1e-5: yes */
#include <math.h>
#include <stdio.h>
#include <weber.h>

/* These functions work on any device. */
static wb_tensor *predict(wb_tensor *W, wb_tensor *b, wb_tensor *x)
{
    return wb_add(wb_matmul(W, x), b);
}

static wb_tensor *loss(wb_tensor *W, wb_tensor *b, wb_tensor *x, wb_tensor *y)
{
    return wb_sum(wb_square(wb_sub(predict(W, b, x), y)));
}

static int descend(wb_tensor *W, wb_tensor *b, wb_tensor *x, wb_tensor *y)
{
    wb_scope *scope = wb_scope_open();
    wb_tree *g = wb_gradient(loss(W, b, x, y), wb_tuple(W, b));
    wb_tensor *eta = wb_scalar(0.1);
    int status = wb_assign(W, wb_sub(W, wb_mul(eta, wb_get(g, "0"))));
    if (!status) status = wb_assign(b, wb_sub(b, wb_mul(eta, wb_get(g, "1"))));
    return wb_scope_close(scope) || status;
}

static wb_tensor *to_gpu(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return wb_gpu(x);
}

int main(void)
{
    wb_seed(1);
    wb_using("OpenCL");                 /* your GPU's backend; harmless where it is missing */
    const wb_device *dev = wb_get_device(.verbose = true);
    printf("device: %s\n", wb_device_describe(dev));
    printf("it is device 0 of its backend: %s\n",
           wb_device_at(wb_device_backend(dev), 0) == dev ? "yes" : "no");

    /* Tensors: parameters and data are moved, then training is as in step 2. */
    wb_tensor *W = wb_variable(wb_to(wb_rand(2, 5), dev)), *b = wb_variable(wb_to(wb_rand(2), dev));
    wb_tensor *x = wb_to(wb_rand(5), dev), *y = wb_to(wb_rand(2), dev);
    printf("loss before: %.3f", wb_item(loss(W, b, x, y)));
    for (int step = 0; step < 30; step++)
        if (descend(W, b, x, y)) return fprintf(stderr, "%s\n", wb_error()), 1;
    printf(", after 30 steps: %.3f\n", wb_item(loss(W, b, x, y)));

    /* A layer, by a function of each tensor. */
    wb_layer *d = wb_fmap(to_gpu, wb_Dense(10, 5, wb_sigmoid), NULL);
    wb_show(d);
    printf("weight %s\n", wb_describe(wb_get(d, "weight")));

    /* A whole model. wb_gpu returns a new model; `here` is unchanged. */
    wb_layer *here = wb_Chain(wb_Dense(10, 5, wb_sigmoid), wb_Dense(5, 2), wb_softmax);
    wb_layer *m = wb_gpu(here);
    wb_show(m);
    wb_tensor *input = wb_rand(1, 10);
    wb_tensor *p = wb_cpu(wb_call(m, wb_gpu(input))), *q = wb_call(here, input);
    if (!p || !q) return fprintf(stderr, "%s\n", wb_error()), 1;
    printf("on the device: %.3f + %.3f = %.3f\n", wb_at(p, 0, 0), wb_at(p, 0, 1),
           wb_at(p, 0, 0) + wb_at(p, 0, 1));
    printf("on the CPU the same, within 1e-5: %s\n",
           fabs(wb_at(p, 0, 0) - wb_at(q, 0, 0)) < 1e-5 ? "yes" : "no");
    return 0;
}
