/* A plugin that contains the library: what a host opens, calls and closes (engine_embedded.c). */
#include "weber.h"

/* Computes with two threads, and returns 1 + ... + 1 of the product of two matrices of ones. */
__attribute__((visibility("default"))) double plugin_compute(void)
{
    wb_set_threads(2);
    wb_scope *s = wb_scope_open();
    const double sum = wb_item(wb_sum(wb_matmul(wb_ones(300, 300), wb_ones(300, 300))));
    wb_scope_close(s);
    return sum;
}
