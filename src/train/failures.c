/* Messages of wb_train that name the cause of a step's failure.  The cause is looked for after the
 * failure, so a step that succeeds pays nothing. */
#include "backend/collective.h"
#include "dist/dist.h"
#include "engine/tensor.h"
#include "optim/optim.h"
#include "train/train.h"
#include "tree/tree.h"

#include <math.h>
#include <stdio.h>

/* ---- a loss that is not finite --------------------------------------------------------------- */

/* Writes the first element of x that is not finite, and its index, to `text`: "NaN at [3,5]".
 * False: all are finite, or x cannot be read. */
static bool failures_find_element(wb_tensor *x, char *text, size_t bytes)
{
    enum { BLOCK = 512 };
    double v[BLOCK];
    if (!x || !wb__is(x, &wb__tensor_class) || wb_is_none(x)) return false;
    const wb_dtype dtype = (wb_dtype)x->dtype;
    const size_t each = wb__dtype_size(dtype);
    char *values = wb__dtype_float(dtype) ? wb__alloc((size_t)x->size * each + 1) : NULL;
    int64_t at = x->size;
    if (values && !wb_copy_out(x, values, (size_t)x->size * each)) at = 0;
    for (int64_t i = at; at < x->size && i < x->size; i += BLOCK) {
        const int64_t n = WB__MIN(BLOCK, x->size - i), end = i + n;
        wb__convert(v, WB_F64, values + (size_t)i * each, dtype, n);
        for (at = i; at < end && isfinite(v[at - i]);) at++;
        if (at < end) break;
    }
    wb__free(values);
    if (!values || at >= x->size) return false;
    const double found = v[at % BLOCK];
    int n = snprintf(text, bytes, "%s at [", isnan(found) ? "NaN" : found > 0 ? "Inf" : "-Inf");
    int64_t rest = x->size;
    for (int i = 0; i < x->ndim && (size_t)n < bytes; i++) {
        rest /= x->dims[i];
        n += snprintf(text + n, bytes - (size_t)n, i ? ",%lld" : "%lld",
                      (long long)(at / rest % x->dims[i]));
    }
    if ((size_t)n < bytes) snprintf(text + n, bytes - (size_t)n, "]");
    return true;
}

enum { CAUSE = 400 };

static int find_parameter(const wb__leaf *leaf, void *cause)
{
    char found[CAUSE / 2];
    if (!failures_find_element(leaf->x, found, sizeof found)) return 0;
    snprintf(cause, CAUSE, "the parameter \"%.150s\" had %s before this step", leaf->path, found);
    return -1;
}

/* Writes the cause of a loss that is not finite to `text`, which has CAUSE bytes. */
static void find_cause(void *model, const wb_batch *batch, char *text)
{
    char found[CAUSE / 2];
    wb_tensor *const of[] = {batch->x, batch->y};
    for (int i = 0; i < 2; i++)
        if (failures_find_element(of[i], found, sizeof found)) {
            snprintf(text, CAUSE, "batch.%c has %s", "xy"[i], found);
            return;
        }
    *text = '\0';
    if (wb__is(batch->x, &wb__tensor_class) && !wb_is_none(batch->x) && !batch->x->size) {
        snprintf(text, CAUSE, "batch.x is %.150s, and the mean over 0 rows is NaN: leave the batch "
                 "out", wb_describe(batch->x));
        return;
    }
    wb__walk("train", model, NULL, WB__TRAINABLE | WB__DISTINCT, find_parameter, text);
    if (*text) return;
    const wb_tensor *y = batch->y;
    const bool numbers = y && !wb_is_none(y) && !wb__dtype_float((wb_dtype)y->dtype);
    snprintf(text, CAUSE, "the batch and the parameters are finite: the learning rate (eta) may be "
             "too large, inputs may not be scaled, a logarithm or root has no value, or a mean is "
             "one of 0 rows, as behind a mask%s",
             numbers ? "; if the loss takes class numbers, WEBER_DEBUG=check names one that is out"
                       " of range" : "");
}

int wb__not_finite(void *model, const wb_opt_state *state, wb_tensor *loss, const wb_batch *batch)
{
    wb_clear_error();
    const long long index = (long long)batch->index + 1;
    const double value = wb_item(loss);
    char cause[CAUSE];
    wb_clear_error();
    if (isfinite(value) && wb__world())
        return wb__fail(WB_ERROR_NUMBER, "another rank's loss or gradients are not finite on %s"
                        " %lld, or the ranks froze different parameters; training stopped",
                        state->loss_sum ? "one of the accumulated batches up to batch" : "batch",
                        index);
    if (isfinite(value))
        return wb__fail(WB_ERROR_NUMBER, "the norm of the gradients is not finite on batch %lld, "
                        "stopping training", index);
    find_cause(model, batch, cause);
    wb_clear_error();
    return wb__fail(WB_ERROR_NUMBER, "loss is %s on batch %lld, stopping training: %s",
                    isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf", index, cause);
}

/* ---- devices --------------------------------------------------------------------------------- */

int wb__on_two_devices(void *of, const wb_batch *batch)
{
    char message[1024];
    const int code = wb_error_code();
    snprintf(message, sizeof message, "%s", wb_error());
    const wb_device *model = wb_object_device(of), *data = wb_object_device(batch->x);
    if (!model || !data || model == data) return wb__fail(code, "%s", message);
    return wb__fail(code, "%s\nthe model is on %s:%d, the loader's batches on %s:%d: move the "
                    "loader, as in data = wb_to(data, wb_device_of(model))", message,
                    model->backend->tag, model->ordinal, data->backend->tag, data->ordinal);
}
