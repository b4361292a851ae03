/* Step 1: tensors: creating, computing, reading; scopes; errors.
 *
 * Prints:
 *   x is [2,3] f32
 *   1 2 3
 *   4 5 6
 *   sums of the columns: 5 7 9
 *   x times its transpose: 14 32 32 77
 *   rows as probabilities: 0.0900 0.2447 0.6652 | 0.0900 0.2447 0.6652
 *   a thousand steps of a random walk end at ...
 *   error: matmul: inner sizes differ: ... */
#include <stdio.h>
#include <weber.h>

int main(void)
{
    /* A tensor has elements, a shape and a dtype. */
    float numbers[] = {1, 2, 3, 4, 5, 6};
    wb_tensor *x = wb_from(numbers, WB_F32, 2, (int64_t[]){2, 3});
    printf("x is %s\n", wb_describe(x));
    for (int row = 0; row < 2; row++)
        printf("%g %g %g\n", wb_at(x, row, 0), wb_at(x, row, 1), wb_at(x, row, 2));

    /* An operation is only recorded. Reading a result computes it and all that it depends on, as
     * one plan. */
    wb_tensor *columns = wb_sum(x, .axes = WB_INTS(0));
    printf("sums of the columns: %g %g %g\n", wb_at(columns, 0), wb_at(columns, 1),
           wb_at(columns, 2));

    const float *square = wb_data(wb_matmul(x, wb_transpose(x)));
    if (square)
        printf("x times its transpose: %g %g %g %g\n", square[0], square[1], square[2], square[3]);

    const float *p = wb_data(wb_softmax(x));
    if (p)
        printf("rows as probabilities: %.4f %.4f %.4f | %.4f %.4f %.4f\n", p[0], p[1], p[2], p[3],
               p[4], p[5]);

    /* A scope frees the objects created in it when it closes; wb_keep moves an object to the
     * enclosing scope. */
    wb_seed(1);
    wb_tensor *place = wb_zeros(2);
    for (int step = 0; step < 1000; step++) {
        wb_scope *scope = wb_scope_open();
        place = wb_keep(wb_add(place, wb_randn(2)));
        wb_scope_close(scope);
    }
    printf("a thousand steps of a random walk end at %.3f %.3f\n", wb_at(place, 0),
           wb_at(place, 1));

    /* NULL means failure. Calls with NULL return NULL, so one check at the end is enough. */
    wb_tensor *wrong = wb_relu(wb_add(wb_matmul(x, x), x));
    if (!wrong) printf("error: %s\n", wb_error());
    return 0;
}
