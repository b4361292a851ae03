/* Step 2: gradients of a function of a number, of a function of a matrix, and gradients of
 * gradients.
 *
 * Prints:
 *   f(2) = 17, f'(2) = 14, f''(2) = 6
 *   gradient with respect to W: [2,5] f32, to b: [2] f32
 *   loss before 200 steps: ..., after: ...
 *   found: y = 2.000 x + -1.000
 *   Hessian of x0^2 x1 at (3, 5): 10 6 6 0 */
#include <stdio.h>
#include <weber.h>

int main(void)
{
    wb_seed(1);

    /* f(x) = 3x^2 + 2x + 1. A gradient is made of ordinary operations, so it has a gradient
     * itself. */
    wb_tensor *x = wb_variable(wb_scalar(2));
    wb_tensor *f =
        wb_add(wb_add(wb_mul(wb_scalar(3), wb_square(x)), wb_mul(wb_scalar(2), x)), wb_scalar(1));
    wb_tensor *slope = wb_gradient(f, x);
    printf("f(2) = %g, f'(2) = %g, f''(2) = %g\n", wb_item(f), wb_item(slope),
           wb_item(wb_gradient(slope, x)));

    /* A gradient with respect to several tensors is a tree with the structure of the tuple. */
    wb_tensor *W = wb_variable(wb_rand(2, 5)), *b = wb_variable(wb_rand(2));
    wb_tensor *error = wb_sub(wb_add(wb_matmul(W, wb_rand(5)), b), wb_rand(2));
    wb_tree *g = wb_gradient(wb_sum(wb_square(error)), wb_tuple(W, b));
    printf("gradient with respect to W: %s, to b: %s\n", wb_describe(wb_get(g, "0")),
           wb_describe(wb_get(g, "1")));

    /* Gradient descent by hand: fits a line to points of y = 2x - 1. */
    wb_tensor *xs = wb_rand(100), *ys = wb_sub(wb_mul(wb_scalar(2), xs), wb_scalar(1));
    wb_tensor *a = wb_variable(wb_zeros(1)), *c = wb_variable(wb_zeros(1));
    double first = 0, last = 0;
    for (int step = 0; step <= 200; step++) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *loss = wb_mse(wb_add(wb_mul(a, xs), c), ys);
        wb_tree *grads = wb_gradient(loss, wb_tuple(a, c));
        wb_tensor *eta = wb_scalar(0.7);
        if (wb_assign(a, wb_sub(a, wb_mul(eta, wb_get(grads, "0")))))
            return fprintf(stderr, "%s\n", wb_error()), 1;
        if (wb_assign(c, wb_sub(c, wb_mul(eta, wb_get(grads, "1")))))
            return fprintf(stderr, "%s\n", wb_error()), 1;
        if (step == 0) first = wb_item(loss);
        if (step == 200) last = wb_item(loss);
        if (wb_scope_close(scope)) return fprintf(stderr, "%s\n", wb_error()), 1;
    }
    printf("loss before 200 steps: %.3f, after: %.2e\n", first, last);
    printf("found: y = %.3f x + %.3f\n", wb_item(a), wb_item(c));

    wb_tensor *v = wb_variable(wb_from((float[]){3, 5}, WB_F32, 1, (int64_t[]){2}));
    wb_tensor *cubic = wb_mul(wb_square(wb_slice(v, 0, 0, 1)), wb_slice(v, 0, 1, 2));
    wb_tensor *h = wb_hessian(wb_sum(cubic), v);
    printf("Hessian of x0^2 x1 at (3, 5): %g %g %g %g\n",
           wb_at(h, 0, 0), wb_at(h, 0, 1), wb_at(h, 1, 0), wb_at(h, 1, 1));
    return 0;
}
