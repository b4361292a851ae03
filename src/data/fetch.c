/* Makes batches from observation indices in three steps.  The first step translates the indices
 * through views.  The second copies or gathers rows of arrays, or calls the function of a source.
 * The third applies maps. */
#include "base/mutex.h"
#include "base/parallel.h"
#include "base/numbers/philox.h"
#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

enum { FETCH_X, FETCH_Y };

const wb_dataset *wb__dataset_root(const wb_dataset *d)
{
    while (d->below) d = d->below;
    return d;
}

bool wb__dataset_mapped(const wb_dataset *d)
{
    for (; d; d = d->below)
        if (d->kind == WB__DATA_MAP) return true;
    return false;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* Replaces the n indices of observations of d by indices into the dataset below d. */
static void fetch_translate_once(const wb_dataset *d, int64_t n, int64_t *index)
{
    if (d->kind == WB__DATA_SHARE)
        for (int64_t i = 0; i < n; i++) index[i] = wb__share_at(d, index[i]);
    if (d->kind != WB__DATA_VIEW) return;
    for (int64_t i = 0; i < n; i++)
        index[i] = d->order ? (int64_t)d->order[index[i]] : d->start + index[i];
}

/* Replaces the n indices of observations of d by indices into the root of d.  Returns the root. */
static const wb_dataset *fetch_translate(const wb_dataset *d, int64_t n, int64_t *index)
{
    for (; d->below; d = d->below) fetch_translate_once(d, n, index);
    return d;
}

/* Whether a root is a source, or a joined dataset whose parts are sources. */
static bool fetch_has_sources(const wb_dataset *root)
{
    if (root->kind != WB__DATA_JOIN) return root->kind == WB__DATA_SOURCE;
    for (int k = 0; k < root->n_parts; k++)
        if (!fetch_has_sources(wb__dataset_root(root->parts[k]))) return false;
    return true;
}

/* Returns the source with observation *i of a root of sources, and sets *i to its index there. */
static const wb_dataset *fetch_source_of(const wb_dataset *root, int64_t *i)
{
    while (root->kind == WB__DATA_JOIN) {
        const int part = wb__part_of(root, *i);
        *i -= root->first[part];
        root = fetch_translate(root->parts[part], 1, i);
    }
    return root;
}

/* Data shared by the calls that fill a batch: one call of a source's function for each observation.
 * After a failure no further call begins.  If several calls have failed, the error of the failed
 * observation that is first in the batch is reported. */
typedef struct {
    const wb_dataset *root;             /* a source, or a joined dataset of sources */
    const int64_t *index;
    void *const *to;                    /* memory of the batch for each field */
    _Atomic bool failed;                /* whether a call failed; fetch_failing guards writes of the
                                           fields from here */
    int64_t first;                      /* position in the batch of the first failed observation */
    int64_t observation;                /* the index of this observation in its source */
    int code;                           /* its error, which has the message */
    char message[256];
} fetch_calls;
static wb__mutex fetch_failing = WB__MUTEX_INIT; /* global: fork forbids locks on stacks */

WB__PROGRAM_CALL(get_call, get_run, int, const wb_dataset *d; int64_t i; void *const *at;
                 , c->d->get_all ? c->d->get_all(c->i, c->at, c->d->ctx)
                                 : c->d->get(c->i, c->at[FETCH_X], c->at[FETCH_Y], c->d->ctx))

/* Calls the source's function for observation i of the batch, unless a call has failed. */
static void fetch_call_one(void *ctx, int64_t i)
{
    fetch_calls *c = ctx;
    const wb_dataset *d = c->root;
    if (c->failed) return;
    void *at[WB__FIELDS] = {NULL};
    for (int k = 0; k < d->n_fields; k++)
        at[k] = d->field[k].present ? (char *)c->to[k] + i * d->field[k].bytes : NULL;
    int64_t observation = c->index[i];
    d = fetch_source_of(d, &observation);
    wb_clear_error();
    get_call get = {d, observation, at, 0};
    int code = wb__call_program(get_run, &get) ? get.result : (int)wb_error_code();
    if (!code) return;
    wb__mutex_lock(&fetch_failing);
    if (!c->failed || i < c->first) {
        c->failed = true;
        c->first = i;
        c->observation = observation;
        c->code = code;
        snprintf(c->message, sizeof c->message, "%s", wb_error());
    }
    wb__mutex_unlock(&fetch_failing);
}

/* Calls the source's function for all observations of a batch.  Returns 0 or an error code. */
static int fetch_call_all(const wb_dataset *root, int64_t n, const int64_t *index, void *const *to,
                          bool parallel)
{
    fetch_calls c = {.root = root, .index = index, .to = to};
    if (parallel) wb__parallel_waiting(n, fetch_call_one, &c);
    else for (int64_t i = 0; i < n; i++) fetch_call_one(&c, i);
    if (!c.failed) return 0;
    if (c.message[0])
        return wb__fail(c.code, "observation %lld: %s", (long long)c.observation, c.message);
    return wb__fail(c.code, "observation %lld: its function returned %d", (long long)c.observation,
                    c.code);
}

int wb__dataset_fill(const wb_dataset *d, int64_t n, int64_t *index, void *const *to,
                     bool parallel)
{
    d = fetch_translate(d, n, index);
    if (fetch_has_sources(d)) return fetch_call_all(d, n, index, to, parallel);
    if (d->n_parts) return wb__parts_fill(d, n, index, to, parallel);
    for (int k = 0; k < d->n_fields; k++) {
        size_t bytes = (size_t)d->field[k].bytes;
        if (!d->field[k].present || !bytes) continue;
        for (int64_t i = 0, run; i < n; i += run) {         /* consecutive rows at once */
            for (run = 1; i + run < n && index[i + run] == index[i] + run;) run++;
            memcpy((char *)to[k] + (size_t)i * bytes, d->data[k] + (size_t)index[i] * bytes,
                   (size_t)run * bytes);
        }
    }
    return 0;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Returns a tensor of the row indices on the device of the arrays, i32 if they fit, else i64. */
static wb_tensor *fetch_upload_index(const wb_dataset *root, int64_t n, const int64_t *index)
{
    const wb_dtype dtype = root->n > INT32_MAX ? WB_I64 : WB_I32;
    void *numbers = wb__alloc((size_t)n * wb__dtype_size(dtype));
    if (!numbers) return NULL;
    wb__convert(numbers, dtype, index, WB_I64, n);
    const wb_device *was = wb__use_device(root->device);
    wb_tensor *rows = wb_from(numbers, dtype, 1, &n);
    wb__use_device(was);
    wb__free(numbers);
    return rows;
}

/* Returns the bytes of an observation of x. */
static int64_t fetch_row_bytes(const wb_tensor *x)
{
    int64_t bytes = (int64_t)wb__dtype_size((wb_dtype)x->dtype);
    for (int i = 1; i < x->ndim; i++) bytes *= x->dims[i];
    return bytes;
}

static wb_tensor *fetch_copy_rows(const wb_tensor *x, int64_t first, int64_t n, int64_t bytes)
{
    const wb__storage *s = x->storage;
    int64_t dims[WB_MAX_DIMS] = {n};
    memcpy(dims + 1, x->dims + 1, (size_t)(x->ndim - 1) * sizeof *dims);
    wb_tensor *made = wb__empty_on(s->device, (wb_dtype)x->dtype, x->ndim, dims);
    if (!made || !wb__copy_bytes(s->device, made->storage->data, 0, s->device, s->data,
                                 (size_t)(x->offset + first * bytes), (size_t)(n * bytes)))
        return made;
    wb_object_free(made);
    return NULL;
}

/* Returns the rows of x, gathered from a new constant that shares the memory of x, because x may
 * belong to a graph on another thread. */
static wb_tensor *fetch_gather_rows(const wb_tensor *x, wb_tensor *rows)
{
    wb_tensor *mine = wb__as_constant(x);
    return mine ? wb_take(mine, rows) : NULL;
}

int wb__dataset_gather(const wb_dataset *d, int64_t n, int64_t *index, wb_batch *batch)
{
    const wb_dataset *root = fetch_translate(d, n, index);
    if (root->kind == WB__DATA_WINDOW) return wb__windows_gather(root, n, index, batch);
    wb_tensor *rows = NULL;
    int64_t run = 1;
    while (run < n && index[run] == index[0] + run) run++;
    const bool together = run >= n;
    *batch = (wb_batch){.y = WB_NONE, .n = n, .names = root->names};
    for (int k = 0; k < root->n_fields; k++) {
        const wb__field *f = &root->field[k];
        wb_tensor **x = wb__batch_at(batch, k);
        if (!f->present) continue;
        if (together || !f->bytes) {
            *x = fetch_copy_rows(root->tensor[k], n ? index[0] : 0, n, f->bytes);
        } else {
            if (!rows) rows = fetch_upload_index(root, n, index);
            *x = rows ? fetch_gather_rows(root->tensor[k], rows) : NULL;
        }
        if (!*x) return wb_error_code();
    }
    return 0;
}

/* ---- batches --------------------------------------------------------------------------------- */

static wb_tensor *fetch_wrap(const wb__field *f, int64_t n, void *data,
                             void (*release)(void *, void *), void *context)
{
    int64_t dims[WB_MAX_DIMS] = {n};
    memcpy(dims + 1, f->dims, (size_t)f->ndim * sizeof *dims);
    const wb_device *was = wb__use_device(&wb__cpu);
    wb_tensor *x = wb_borrow(data, f->dtype, f->ndim + 1, dims, release, context);
    wb__use_device(was);
    return x;
}

int wb__dataset_wrap(const wb_dataset *root, int64_t n, void *const *to,
                     void (*release)(void *, void *), void *context, wb_batch *batch, int *made)
{
    *batch = (wb_batch){.y = WB_NONE, .n = n, .names = root->names};
    *made = 0;
    for (int k = 0; k < root->n_fields; k++) {
        if (!root->field[k].present) continue;
        wb_tensor *x = fetch_wrap(&root->field[k], n, to[k], release, context);
        if (!x) return wb_error_code();
        *wb__batch_at(batch, k) = x;
        ++*made;
    }
    return 0;
}

int wb__batch_fields(const wb_batch *batch)
{
    int n = 2;
    while (n < WB__FIELDS && batch->more[n - 2]) n++;
    return n;
}

static int not_a_tensor(const char *what, int field, const void *found)
{
    char name[24] = ".x";
    if (field == 1) strcpy(name, ".y");
    if (field > 1) snprintf(name, sizeof name, ".more[%d]", field - 2);
    return wb__fail(WB_ERROR_ARGUMENT, "%s: its function left in %s of a batch a %s, and not a "
                    "tensor: the batch owns its tensors, so the function frees none that it "
                    "leaves there", what, name, wb__kind(found));
}

WB__PROGRAM_CALL(collate_call, collate_run, int,
                 wb_collate f; wb_batch *batch; void *ctx;,
                 c->f(c->batch, c->ctx))

int wb__collate_call(wb_collate f, void *ctx, wb_batch *batch, const char *what)
{
    wb_clear_error();
    collate_call c = {f, batch, ctx, 0};
    int code = wb__call_program(collate_run, &c) ? c.result : (int)wb_error_code();
    if (code) {
        if (wb_error_code()) return wb__fail(wb_error_code(), "%s: %s", what, wb_error());
        return wb__fail(code, "%s: its function returned %d", what, code);
    }
    for (int k = wb__batch_fields(batch); k < WB__FIELDS; k++)
        if (*wb__batch_at(batch, k))
            return wb__fail(WB_ERROR_ARGUMENT, "%s: its function set .more[%d] of a batch, and "
                            "left .more[%d] NULL", what, k - 2, wb__batch_fields(batch) - 2);
    for (int k = 0; k < wb__batch_fields(batch); k++) {
        const wb_tensor *x = *wb__batch_at(batch, k);
        if (x && !wb_is_none(x) && !wb__is(x, &wb__tensor_class)) return not_a_tensor(what, k, x);
    }
    if (batch->x && batch->y) return 0;
    code = wb_error_code();
    return code ? code
                : wb__fail(WB_ERROR_ARGUMENT, "%s: its function left a batch without x or y", what);
}

/* ---- maps of single observations ------------------------------------------------------------- */

/* Sets *one to a batch of one observation, row i of an evaluated batch.  Returns 0 or an error
 * code. */
static int fetch_row_as_batch(const wb_batch *all, int64_t i, wb_batch *one)
{
    wb_batch from = *all;
    *one = (wb_batch){.n = 1, .y = WB_NONE, .names = all->names};
    for (int k = 0; k < wb__batch_fields(all); k++) {
        const wb_tensor *x = *wb__batch_at(&from, k);
        wb_tensor **to = wb__batch_at(one, k);
        if (wb_is_none(x)) *to = WB_NONE;
        else if (!(*to = fetch_copy_rows(x, i, 1, fetch_row_bytes(x)))) return wb_error_code();
    }
    return 0;
}

/* Whether all tensors of a batch are evaluated and have `rows` rows.  Otherwise sets the error. */
static bool fetch_has_rows(const wb_batch *batch, int64_t rows, const char *made_by)
{
    wb_batch from = *batch;
    for (int k = 0; k < wb__batch_fields(batch); k++) {
        const wb_tensor *x = *wb__batch_at(&from, k);
        if (wb_is_none(x) || (wb_ndim(x) > 0 && wb_dim(x, 0) == rows)) continue;
        wb__fail(WB_ERROR_SHAPE, "%s made %s, whose first axis does not have %lld observations",
                 made_by, wb_describe(x), (long long)rows);
        return false;
    }
    return true;
}

/* Sets *out to tensors for n observations like the one in `one`, in the scope around the current
 * one. */
static int fetch_make_rows(const wb_batch *one, int64_t n, wb_batch *out)
{
    wb_batch from = *one;
    *out = (wb_batch){.n = n, .y = WB_NONE, .index = out->index, .names = one->names};
    for (int k = 0; k < wb__batch_fields(one); k++) {
        const wb_tensor *x = *wb__batch_at(&from, k);
        wb_tensor **to = wb__batch_at(out, k), *made = WB_NONE;
        int64_t dims[WB_MAX_DIMS] = {n};
        if (!wb_is_none(x)) {
            memcpy(dims + 1, x->dims + 1, (size_t)(x->ndim - 1) * sizeof *dims);
            made = wb__empty_on(x->storage->device, (wb_dtype)x->dtype, x->ndim, dims);
            if (made) made = wb_object_keep(made);
        }
        if (!(*to = made)) return wb_error_code();
    }
    return 0;
}

static bool fetch_same_row(const wb_tensor *a, const wb_tensor *b)
{
    if (wb_is_none(a) || wb_is_none(b)) return wb_is_none(a) && wb_is_none(b);
    return a->dtype == b->dtype && a->ndim == b->ndim && a->storage->device == b->storage->device &&
           !memcmp(a->dims + 1, b->dims + 1, (size_t)(a->ndim - 1) * sizeof *a->dims);
}

/* Copies the observation in `one` to row i of the batch. */
static int fetch_store_row(const wb_batch *one, int64_t i, const wb_batch *out)
{
    wb_batch from = *one, to = *out;
    if (wb__batch_fields(one) != wb__batch_fields(out))
        return wb__fail(WB_ERROR_SHAPE, "mapobs_each: its function made another number of tensors "
                        "than for the first observation of the batch");
    for (int k = 0; k < wb__batch_fields(one); k++) {
        const wb_tensor *x = *wb__batch_at(&from, k), *y = *wb__batch_at(&to, k);
        if (!fetch_same_row(x, y))
            return wb__fail(WB_ERROR_SHAPE, "mapobs_each: its function made %s, but the first "
                            "observation of the batch has shape, dtype and device of a row of %s",
                            wb_describe(x), wb_describe(y));
        const int64_t bytes = wb_is_none(x) ? 0 : fetch_row_bytes(x);
        if (bytes && wb__copy_bytes(y->storage->device, y->storage->data,
                                    (size_t)(y->offset + i * bytes), x->storage->device,
                                    x->storage->data, (size_t)x->offset, (size_t)bytes))
            return wb_error_code();
    }
    return 0;
}

/* Maps row i of the batch `all`, which is observation `number`, to row i of *out. */
static int fetch_map_row(const wb_dataset *d, const wb_batch *all, int64_t i, int64_t number,
                         wb_batch *out)
{
    wb_batch one;
    int status = fetch_row_as_batch(all, i, &one);
    one.index = number;
    if (!status) status = wb__collate_call(d->map, d->ctx, &one, "mapobs_each");
    if (!status) status = wb__batch_evaluate(&one);
    if (!status && !fetch_has_rows(&one, 1, "mapobs_each: its function")) status = wb_error_code();
    if (!status && i == 0) status = fetch_make_rows(&one, all->n, out);
    return status ? status : fetch_store_row(&one, i, out);
}

/* Applies the map of single observations to each row of a batch. */
static int fetch_apply_each(const wb_dataset *d, int64_t n, const int64_t *index, wb_batch *batch)
{
    wb_batch out = {.index = batch->index};
    int status = wb__batch_evaluate(batch);
    if (!status && !fetch_has_rows(batch, batch->n, "mapobs_each: a map below"))
        return wb_error_code();
    for (int64_t i = 0; !status && i < batch->n; i++) {
        const int64_t number = batch->n == n ? index[i] : i;
        wb_scope *s = wb_scope_open();
        status = s ? fetch_map_row(d, batch, i, number, &out) : (int)wb_error_code();
        if (status) {
            char message[512];
            snprintf(message, sizeof message, "%s", wb_error());
            wb__fail(status, "observation %lld: %s", (long long)number, message);
        }
        const int closed = s ? wb_scope_close(s) : 0;
        if (!status) status = closed;
    }
    if (!status && batch->n) *batch = out;
    return status;
}

static int fetch_apply_below(const wb_dataset *d, int64_t n, const int64_t *index, wb_batch *batch)
{
    if (d->kind == WB__DATA_MAP || !wb__dataset_mapped(d->below))
        return wb__dataset_apply(d->below, n, index, batch);
    int64_t *below = wb__alloc((size_t)n * sizeof *below + 1);
    if (!below) return WB_ERROR_MEMORY;
    if (n) memcpy(below, index, (size_t)n * sizeof *below);
    fetch_translate_once(d, n, below);
    const int status = wb__dataset_apply(d->below, n, below, batch);
    wb__free(below);
    return status;
}

int wb__dataset_apply(const wb_dataset *d, int64_t n, const int64_t *index, wb_batch *batch)
{
    if (!d->below) return 0;
    const int status = fetch_apply_below(d, n, index, batch);
    if (status || d->kind != WB__DATA_MAP) return status;
    if (d->maps_single) return fetch_apply_each(d, n, index, batch);
    return wb__collate_call(d->map, d->ctx, batch, "mapobs");
}

/* Returns x without its graph: detached, or for a variable a copy, because the program may assign
 * to the variable later. */
static wb_tensor *fetch_detached(wb_tensor *x)
{
    if (wb_is_none(x)) return x;
    if (x->op == WB__OP_variable || x->variable)
        return wb__copied(x, wb__device_of(x));
    wb__tensor_detach(x);
    return x;
}

int wb__batch_evaluate(wb_batch *batch)
{
    wb_tensor *pending[WB__FIELDS];
    int n = 0, fields = wb__batch_fields(batch);
    for (int k = 0; k < fields; k++) {
        wb_tensor *x = *wb__batch_at(batch, k);
        if (!wb_is_none(x) && !x->storage) pending[n++] = x;
    }
    int status = n ? wb_eval_array(n, pending) : 0;
    for (int k = 0; !status && k < fields; k++) {
        wb_tensor **x = wb__batch_at(batch, k);
        if (!(*x = fetch_detached(*x))) status = wb_error_code();
    }
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

void wb__shuffle(uint32_t *order, int64_t n, uint64_t seed, uint64_t epoch)
{
    /* The key differs from the key of wb_seed(seed), so that the two draw different numbers. */
    uint64_t key = seed ^ 0x73687566666c6521u;
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t step = (uint64_t)(n - 1 - i), range = (uint64_t)i + 1;
        if (step % 2 == 0) wb__philox_block(key, epoch << 32 | step / 2, words);
        const uint32_t *w = words + 2 * (step % 2);
        /* j is (64 random bits · range) >> 64, which is nearly uniform in [0, range). */
        uint64_t j = ((uint64_t)w[0] * range + ((uint64_t)w[1] * range >> 32)) >> 32;
        uint32_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}
