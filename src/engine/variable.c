/* Creates variables, and assigns to them.  evaluate.c performs the writes; claims.c has which
 * thread trains a variable. */
#include "engine/evaluate.h"

wb_tensor *wb_variable(wb_tensor *x)
{
    WB__PUBLIC(wb_variable, NULL);
    if (!wb__operand("variable", x)) return NULL;
    return wb__variable_on(x, wb__device_of(x));
}

/* Returns a variable on d whose version is `version`, a new constant; drops the current scope's
 * reference to this constant.  NULL: `version` is NULL, or memory ran out. */
static wb_tensor *variable_of(wb_tensor *version, const wb_device *d)
{
    if (!version) return NULL;
    wb_tensor *v = wb__node(WB__OP_variable, version->dtype, version->ndim, version->dims, 0, NULL,
                            0, NULL);
    if (!v) return NULL;
    v->device = d;
    v->current = wb__ref(version);
    v->live = wb__ref(version);
    v->storage = wb__storage_ref(version->storage);
    version->variable = v;
    wb_object_free(version);
    return v;
}

wb_tensor *wb__variable_on(wb_tensor *x, const wb_device *d)
{
    wb_tensor *v = variable_of(wb__copied(x, d), d);
    if (v) v->flags |= wb__kept_flags(x);
    return v;
}

wb_tensor *wb__variable_empty(wb_dtype dtype, int ndim, const int64_t *dims)
{
    const wb_device *d = wb_default_device();
    return variable_of(wb__empty_on(d, dtype, ndim, dims), d);
}

wb__setting wb__retyped;

void wb__retype(wb_tensor *v, wb_tensor *version)
{
    v->live->variable = NULL;
    wb__unref(v->live);
    wb__unref(v->current);
    wb__storage_unref(v->storage);
    v->dtype = version->dtype;
    v->storage = wb__storage_ref(version->storage);
    v->live = wb__ref(version);
    v->current = wb__ref(version);
    version->variable = v;
    wb__setting_count(&wb__retyped);
}

int wb_assign(wb_tensor *x, wb_tensor *value)
{
    WB__EDGE;
    if (!wb__operand("assign", x) || !wb__operand("assign", value))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (x->op != WB__OP_variable)
        return wb__fail(WB_ERROR_ARGUMENT, "assign: %s is not a variable: make one of it "
                        "first, as in x = wb_variable(x)", wb_describe(x));
    if (value->op != WB__OP_variable && wb__is_gone(value)) return wb__gone(value);
    if (!wb__same_dims(x, value) || x->dtype != value->dtype)
        return wb__fail(WB_ERROR_SHAPE, "assign: %s to a variable %s", wb_describe(value),
                        wb_describe(x));
    if (value->device && value->device != x->device)
        return wb__fail(WB_ERROR_DEVICE,
                        "assign: %s to a variable %s of another device: move it first, as in "
                        "wb_assign(x, wb_to(value, wb_device_of(x)))",
                        wb_describe(value), wb_describe(x));
    wb__thread *t = wb__this_thread();
    if (wb__unlikely(wb__in_root(t) && !t->busy && wb__is_claimed(x)) &&
        x->current->flags & WB__PENDING && !(x->flags & WB__FROZEN)) {
        int status = wb__end_step(t, 1, &value);
        if (status) return status;
    }
    if (!wb__assign(x, value)) return wb__error_or(WB_ERROR_MEMORY);
    return t->eager && !t->recording ? wb__evaluate(0, NULL, NULL) : 0;
}
