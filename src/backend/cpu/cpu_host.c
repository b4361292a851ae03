/* A C function of the program as a step. */
#include "backend/cpu/cpu.h"

typedef struct {
    wb__cpu_kernel head;
    wb_host_function f;
    void *ctx;
    int n;                              /* number of inputs; views[n] is the output */
    wb__view views[9];
} host_kernel;

WB__PROGRAM_CALL(host_call, host_run, int, const host_kernel *k; const wb_host_array *arrays;,
                 c->k->f(c->k->n, c->arrays, &c->arrays[c->k->n], c->k->ctx))

static int cpu_host_launch(const wb__cpu_kernel *kernel, void *const *buffers, void *workspace,
                           const wb__number *numbers)
{
    (void)workspace, (void)numbers;
    const host_kernel *k = (const host_kernel *)kernel;
    wb_host_array arrays[9];
    for (int i = 0; i <= k->n; i++) {
        const wb__view *v = &k->views[i];
        arrays[i] = (wb_host_array){wb__cpu_at(v, buffers), v->dtype, v->ndim, v->dims};
    }
    const unsigned failures = wb__failures();
    host_call c = {k, arrays, 0};
    const int status = wb__backend_calls(host_run, &c) ? c.result : (int)wb_error_code();
    if (!status) return 0;
    const int code = wb__failures() != failures ? wb_error_code() : 0;
    if (!code)
        return wb__fail(WB_ERROR_ARGUMENT, "host_operation: the function returned %d", status);
    /* As the status of a step these codes have meanings of their own: the step is declined
     * (wb__backend.launch), and the guard of the run is not finite (wb__guard_check). */
    const bool meant = code == WB_ERROR_UNSUPPORTED || code == WB_ERROR_NUMBER;
    return meant ? wb__fail(WB_ERROR_ARGUMENT, "%s", wb_error()) : code;
}

int wb__cpu_host(const wb__step *s, wb__cpu_kernel **kernel)
{
    host_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->f = s->host;
    k->ctx = s->host_ctx;
    k->n = s->n_views - 1;
    for (int i = 0; i <= k->n; i++) k->views[i] = s->views[i];
    k->head.launch = cpu_host_launch;
    k->head.destroy = wb__cpu_kernel_free;
    k->head.base.impl = "the program's function";
    *kernel = &k->head;
    return 0;
}
