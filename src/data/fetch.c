/* From numbers of observations to a batch: views translated, arrays copied or functions called,
 * maps applied. */
#include "base/parallel.h"
#include "base/philox.h"
#include "data/dataset.h"
#include "engine/tensor.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { X, Y };

const wb_dataset *wb__dataset_root(const wb_dataset *d)
{
    while (d->under) d = d->under;
    return d;
}

bool wb__dataset_mapped(const wb_dataset *d)
{
    for (; d; d = d->under)
        if (d->kind == WB__DATA_MAP) return true;
    return false;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* One call of the program's function for each observation; of several failures the first in the
 * batch is told. */
typedef struct {
    const wb_dataset *root;
    const int64_t *index;
    char *to[2];
    pthread_mutex_t lock;
    _Atomic bool failed;
    int64_t first;                      /* position of the failure kept below */
    int code;
    char message[256];
} calls;

static void call_one(void *ctx, int64_t i)
{
    calls *c = ctx;
    const wb_dataset *d = c->root;
    if (c->failed) return;
    void *at[2];
    for (int part = X; part <= Y; part++)
        at[part] = d->field[part].present ? c->to[part] + i * d->field[part].bytes : NULL;
    wb_clear_error();
    int code = d->get(c->index[i], at[X], at[Y], d->ctx);
    if (!code) return;
    pthread_mutex_lock(&c->lock);
    if (!c->failed || i < c->first) {
        c->failed = true;
        c->first = i;
        c->code = code;
        snprintf(c->message, sizeof c->message, "%s", wb_error());
    }
    pthread_mutex_unlock(&c->lock);
}

static int call_all(const wb_dataset *root, int64_t n, const int64_t *index, void *const to[2],
                    bool parallel)
{
    calls c = {
        .root = root, .index = index, .to = {to[X], to[Y]}, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (parallel) wb__parallel(n, call_one, &c);
    else for (int64_t i = 0; i < n; i++) call_one(&c, i);
    pthread_mutex_destroy(&c.lock);
    if (!c.failed) return 0;
    if (c.message[0])
        return wb__fail(c.code, "observation %lld: %s", (long long)index[c.first], c.message);
    return wb__fail(c.code, "observation %lld: its function returned %d", (long long)index[c.first],
                    c.code);
}

int wb__dataset_fill(const wb_dataset *d, int64_t n, int64_t *index, void *const to[2],
                     bool parallel)
{
    for (; d->under; d = d->under) {
        if (d->kind != WB__DATA_VIEW) continue;
        for (int64_t i = 0; i < n; i++)
            index[i] = d->order ? (int64_t)d->order[index[i]] : d->start + index[i];
    }
    if (d->kind == WB__DATA_SOURCE) return call_all(d, n, index, to, parallel);
    for (int part = X; part <= Y; part++) {
        size_t bytes = (size_t)d->field[part].bytes;
        if (!d->field[part].present || !bytes) continue;
        for (int64_t i = 0, run; i < n; i += run) {         /* neighbours go together */
            for (run = 1; i + run < n && index[i + run] == index[i] + run;) run++;
            memcpy((char *)to[part] + (size_t)i * bytes, d->data[part] + (size_t)index[i] * bytes,
                   (size_t)run * bytes);
        }
    }
    return 0;
}

/* ---- batches --------------------------------------------------------------------------------- */

static wb_tensor *wrap(const wb__field *f, int64_t n, void *data, void (*release)(void *, void *),
                       void *context)
{
    int64_t dims[WB_MAX_DIMS] = {n};
    memcpy(dims + 1, f->dims, (size_t)f->ndim * sizeof *dims);
    return wb_borrow(data, f->dtype, f->ndim + 1, dims, release, context);
}

int wb__dataset_wrap(const wb_dataset *root, int64_t n, void *const to[2],
                     void (*release)(void *, void *), void *context, wb_batch *batch, int *made)
{
    *batch = (wb_batch){.y = WB_NONE, .n = n};
    *made = 0;
    batch->x = wrap(&root->field[X], n, to[X], release, context);
    if (!batch->x) return wb_error_code();
    *made = 1;
    if (!root->field[Y].present) return 0;
    batch->y = wrap(&root->field[Y], n, to[Y], release, context);
    if (!batch->y) return wb_error_code();
    *made = 2;
    return 0;
}

int wb__collate_call(wb_collate f, void *ctx, wb_batch *batch, const char *what)
{
    wb_clear_error();
    int code = f(batch, ctx);
    if (code) {
        char message[512];
        snprintf(message, sizeof message, "%s", wb_error());
        if (message[0]) return wb__fail(code, "%s: %s", what, message);
        return wb__fail(code, "%s: its function returned %d", what, code);
    }
    if (batch->x && batch->y) return 0;
    code = wb_error_code();
    return code ? code
                : wb__fail(WB_ERROR_ARGUMENT, "%s: its function left a batch without x or y", what);
}

int wb__dataset_apply(const wb_dataset *d, wb_batch *batch)
{
    if (!d->under) return 0;
    int status = wb__dataset_apply(d->under, batch);
    if (status || d->kind != WB__DATA_MAP) return status;
    return wb__collate_call(d->map, d->ctx, batch, "mapobs");
}

/* A variable is replaced by what it holds now: the batch must not change later. */
static wb_tensor *settled(wb_tensor *x)
{
    if (wb_is_none(x)) return x;
    if (x->op == WB__OP_variable || x->variable)
        return wb_from(wb_data(x), wb_dtype_of(x), wb_ndim(x), wb_dims(x));
    wb__tensor_detach(x);
    return x;
}

int wb__batch_evaluate(wb_batch *batch)
{
    wb_tensor *wanted[2];
    int n = 0;
    if (!wb_is_none(batch->x) && !batch->x->storage) wanted[n++] = batch->x;
    if (!wb_is_none(batch->y) && !batch->y->storage) wanted[n++] = batch->y;
    int status = n ? wb_eval_all(n, wanted) : 0;
    if (status) return status;
    batch->x = settled(batch->x);
    batch->y = batch->x ? settled(batch->y) : NULL;
    return batch->y ? 0 : (int)wb_error_code();
}

/* ---- order ----------------------------------------------------------------------------------- */

void wb__shuffle(uint32_t *order, int64_t n, uint64_t seed, uint64_t epoch)
{
    uint64_t key =
        seed ^ 0x73687566666c6521u; /* apart from the draws of a wb_seed of the same number */
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t step = (uint64_t)(n - 1 - i), room = (uint64_t)i + 1;
        if (step % 2 == 0) wb__philox_block(key, epoch << 32 | step / 2, words);
        const uint32_t *w = words + 2 * (step % 2);
        /* the upper half of 64 random bits times room: even to 2^-32 */
        uint64_t j = ((uint64_t)w[0] * room + ((uint64_t)w[1] * room >> 32)) >> 32;
        uint32_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}
