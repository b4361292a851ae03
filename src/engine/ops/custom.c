/* Operations that the program defines: a gradient of its own for a value, and a C function that
 * computes a value on the CPU. */
#include "engine/ops/op.h"

/* Order of the attributes, as in ops.def.  `host` has the first two. */
enum { CUSTOM_FUNCTION, CTX, CUSTOM_END, CUSTOM_ATTRS };

wb_tensor *wb__custom_gradient(wb_tensor *y, wb_gradient_function f, void *ctx,
                               void (*end)(void *ctx), int n, wb_tensor *const *x)
{
    wb_tensor **in = wb__alloc((size_t)(n + 1) * sizeof *in);
    if (!in) return NULL;
    in[0] = y;
    for (int i = 0; i < n; i++) in[i + 1] = x[i];
    const int64_t attr[CUSTOM_ATTRS] = {[CUSTOM_FUNCTION] = (int64_t)(uintptr_t)f,
                                        [CTX] = (int64_t)(uintptr_t)ctx,
                                        [CUSTOM_END] = (int64_t)(uintptr_t)end};
    wb_tensor *z = wb__node(WB__OP_custom, (wb_dtype)y->dtype, y->ndim, y->dims, n + 1, in,
                            CUSTOM_ATTRS, attr);
    wb__free(in);
    return z;
}

void wb__custom_end(wb_tensor *node)
{
    void (*end)(void *) = (void (*)(void *))(uintptr_t)node->attr[CUSTOM_END];
    node->attr[CUSTOM_END] = 0;
    if (end) end((void *)(uintptr_t)node->attr[CTX]);
}

wb_tensor *wb_custom_gradient_array(wb_tensor *y, wb_gradient_function f, void *ctx, int n,
                                    wb_tensor *const *x)
{
    if (!wb__floating("custom_gradient", y)) return NULL;
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "custom_gradient: no function");
    if (n < 1 || !x) return wb__fail_null(WB_ERROR_ARGUMENT, "custom_gradient: no x");
    for (int i = 0; i < n; i++)
        if (!wb__floating("custom_gradient", x[i])) return NULL;
    return wb__custom_gradient(y, f, ctx, NULL, n, x);
}

/* Returns dx, the gradient with respect to x that the program computed, if it fits. */
static wb_tensor *check_custom_gradient(int i, wb_tensor *dx, const wb_tensor *x)
{
    if (!dx || wb_is_none(dx)) return WB_NONE;
    if (!wb__operand("custom_gradient", dx)) return NULL;
    if (wb__same_dims(dx, x) && dx->dtype == x->dtype) return dx;
    return wb__fail_null(dx->dtype == x->dtype ? WB_ERROR_SHAPE : WB_ERROR_DTYPE,
                         "custom_gradient: the function gave %s as gradient with respect to input "
                         "%d, %s", wb_describe(dx), i, wb_describe(x));
}

WB__PROGRAM_CALL(gradient_call, gradient_run, int,
                 wb_gradient_function f; wb_tensor *g; wb_tensor *y; int n; wb_tensor *const *x;
                 wb_tensor **dx; void *ctx;,
                 c->f(c->g, c->y, c->n, c->x, c->dx, c->ctx))

GRADIENT(custom)
{
    const wb_gradient_function f = (wb_gradient_function)(uintptr_t)node->attr[CUSTOM_FUNCTION];
    const int n = (int)node->n_in - 1;
    wb_tensor **dx = wb__alloc_zero((size_t)n, sizeof *dx);
    if (!dx) return;
    for (int i = 0; i < n; i++) dx[i] = wanted[i + 1] ? NULL : WB_NONE;
    if (!node->attr[CUSTOM_END]) wb__this_thread()->program_calls++; /* f is the program's */
    const unsigned failures = wb__failures();
    gradient_call c = {f, g, node, n, (wb_tensor *const *)node->in + 1, dx,
                       (void *)(uintptr_t)node->attr[CTX], 0};
    int status = wb__call_program(gradient_run, &c) ? c.result : (int)wb_error_code();
    if (status && !wb_error_code())
        wb__fail(WB_ERROR_ARGUMENT, "custom_gradient: the function returned %d", status);
    for (int i = 0; i < n && !status; i++)      /* a failed operation gives NULL, which is not 0 */
        if (wanted[i + 1] && !dx[i] && failures != wb__failures())
            status = wb__error_or(WB_ERROR_ARGUMENT);
    out[0] = WB_NONE;
    for (int i = 0; i < n; i++)
        if (wanted[i + 1])
            out[i + 1] = status ? NULL : check_custom_gradient(i, dx[i], node->in[i + 1]);
    wb__free(dx);
}

enum { CUSTOM_INPUTS = 8 };

wb_tensor *wb_host_operation(wb_host_function f, void *ctx, wb_dtype dtype, int ndim,
                             const int64_t *dims, int n, wb_tensor *const *inputs)
{
    int64_t size;
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "host_operation: no function");
    if (n < 1 || n > CUSTOM_INPUTS || !inputs)
        return wb__fail_null(WB_ERROR_ARGUMENT, "host_operation: %d inputs; it has 1 to %d", n,
                             CUSTOM_INPUTS);
    if (!wb__is_dtype("host_operation", dtype) ||
        !wb__check_dims("host_operation", ndim, dims, &size))
        return NULL;
    for (int i = 0; i < n; i++) {
        if (!wb__operand("host_operation", inputs[i])) return NULL;
        const wb_device *d = wb__device_of(inputs[i]);
        if (d->backend != wb__cpu.backend)
            return wb__fail_null(WB_ERROR_DEVICE, "host_operation: input %d, %s, is on %s:%d, and "
                                 "the function runs on the CPU: wb_cpu(x) moves it", i,
                                 wb_describe(inputs[i]), d->backend->tag, d->ordinal);
    }
    const int64_t attr[CUSTOM_END] = {[CUSTOM_FUNCTION] = (int64_t)(uintptr_t)f,
                                      [CTX] = (int64_t)(uintptr_t)ctx};
    return wb__node(WB__OP_host, dtype, ndim, dims, n, inputs, CUSTOM_END, attr);
}

GRADIENT(host)
{
    (void)out;
    wb__fail(WB_ERROR_UNSUPPORTED, "gradient: a host_operation has none: wb_custom_gradient gives "
             "it one, and wb_stop_gradient makes its result a constant");
}

FILL(HOST)
{
    const int64_t *attr = wb__attrs_of(m, v);
    for (int i = 0; i < v->n_in; i++) wb__add_dense(m, wb__operand_of(m, v, i), false);
    wb__add_any(m, p->result);
    wb__step *s = &wb__last_step(m)->step;
    s->host = (wb_host_function)(uintptr_t)attr[CUSTOM_FUNCTION];
    s->host_ctx = (void *)(uintptr_t)attr[CTX];
}
