/* What a call with options costs, in nanoseconds: a reduction and a convolution that are recorded,
 * with options by place, by name, and in a struct that the program made before.
 *
 *   options_bench */
#include <stdio.h>
#include <time.h>
#include <weber.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Prints the least time of a call, of 9 times 20,000 calls. */
#define TIME(call)                                                                          \
    do {                                                                                    \
        double least = 1;                                                                   \
        for (int round = 0; round < 9; round++) {                                           \
            const double begin = seconds();                                                 \
            for (int k = 0; k < 200; k++) {                                                 \
                wb_scope *scope = wb_scope_open();                                          \
                for (int i = 0; i < 100; i++) failed |= !(call);                            \
                wb_scope_close(scope);                                                      \
            }                                                                               \
            const double each = (seconds() - begin) / 20000;                                \
            if (each < least) least = each;                                                 \
        }                                                                                   \
        printf("%6.1f ns  %s\n", 1e9 * least, #call);                                       \
    } while (0)

int main(void)
{
    bool failed = false;
    wb_tensor *x = wb_ones(4, 4), *w = wb_ones(1, 1, 2, 2), *image = wb_ones(1, 1, 4, 4);
    const wb_reduce_options sum = WB_OPTIONS_OF(wb_reduce_options, .axes = WB_INTS(0),
                                                .keep = true);
    const wb_conv_options conv = WB_OPTIONS_OF(wb_conv_options, .stride = WB_INTS(2),
                                               .pad = WB_INTS(1));
    wb_eval(x, w, image);
    TIME(wb_neg(x));
    TIME(wb_sum(x));
    TIME(wb_sum(x, 0));
    TIME(wb_sum(x, .axes = {0}, .keep = true));
    TIME(wb_sum(x, .axes = WB_INTS(0), .keep = true));
    TIME(wb_sum_with(x, &sum));
    TIME(wb_conv(image, w, WB_NONE, .stride = {2}, .pad = {1}));
    TIME(wb_conv_with(image, w, WB_NONE, &conv));
    if (failed) fprintf(stderr, "options_bench: %s\n", wb_error());
    return failed;
}
