/* Creates datasets and returns their properties.  fetch.c fetches observations, loader.c iterates
 * over batches, move.c moves datasets between devices. */
#include "data/dataset.h"

#include "base/options.h"
#include "base/numbers/philox.h"
#include "io/borrow.h"
#include "tree/tree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DATASET_X, DATASET_Y };
static const int64_t most_shuffled = UINT32_MAX;

static void dataset_destroy(void *object)
{
    wb_dataset *d = object;
    wb__unref(d->below);
    for (int k = 0; k < d->n_fields; k++) wb__unref(d->tensor[k]);
    for (int k = 0; k < d->n_parts; k++) wb__unref(d->parts[k]);
    wb__free(d->parts);
    wb__free(d->first);
    wb__free(d->names);
    wb__free(d->order);
    if (d->free_ctx) d->free_ctx(d->ctx);
    wb__object_end(d, sizeof *d);
}

static const char *dataset_describe_field(const wb__field *f, char *text, size_t bytes)
{
    if (!f->present) return "none";
    size_t n = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < f->ndim && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, i ? ",%lld" : "%lld", (long long)f->dims[i]);
    if (n < bytes) snprintf(text + n, bytes - n, "] %s", wb_dtype_name(f->dtype));
    return text;
}

static const char *field_name(const wb_dataset *root, int k)
{
    return root->names ? root->names[k] : k == DATASET_X ? "x" : "y";
}

static char *dataset_format(void *object)
{
    const wb_dataset *d = object, *root = wb__dataset_root(d);
    char field[160];
    wb__text t = {0};
    if (wb__is_stream(d)) wb__text_add(&t, "Dataset(stream");
    else wb__text_add(&t, "Dataset(%lld observations", (long long)d->n);
    wb__text_add(&t, "%s: ", wb__dataset_mapped(d) ? ", mapped" : "");
    for (int k = 0; k < root->n_fields; k++)
        if (!root->names || root->field[k].present)
            wb__text_add(&t, "%s%s %s", k ? ", " : "", field_name(root, k),
                         dataset_describe_field(&root->field[k], field, sizeof field));
    if (root->device != &wb__cpu)
        wb__text_add(&t, ", on %s:%d", root->device->backend->tag, root->device->ordinal);
    wb__text_add(&t, ")");
    return wb__text_take(&t);
}

const wb__class wb__dataset_class = {.name = "dataset", .destroy = dataset_destroy,
                                     .format = dataset_format, .to = wb__dataset_to,
                                     .device_of = wb__dataset_device};

bool wb__is_any_dataset(const wb_dataset *d, const char *what)
{
    return wb__expect(what, d, &wb__dataset_class);
}

bool wb__is_dataset(const wb_dataset *d, const char *what)
{
    if (!wb__is_any_dataset(d, what)) return false;
    if (!wb__is_stream(d)) return true;
    wb__fail(WB_ERROR_UNSUPPORTED, "%s: the dataset is a stream, whose observations have no "
             "numbers; loaders, wb_mapobs and wb_mapobs_each take streams", what);
    return false;
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* Returns the number of bytes of field f in one observation; -1 with the error set. */
static int64_t dataset_field_bytes(const char *what, const char *name, const wb__field *f)
{
    if (f->ndim < 0 || f->ndim >= WB_MAX_DIMS || !wb__dtype_size(f->dtype)) {
        wb__fail(WB_ERROR_SHAPE, "%s: %s has %d dimensions and dtype %s; with the batch axis there "
                 "may be %d", what, name, f->ndim, wb_dtype_name(f->dtype), WB_MAX_DIMS);
        return -1;
    }
    int64_t size = 1;
    for (int i = 0; i < f->ndim; i++) {
        if (f->dims[i] < 0 || (f->dims[i] && size > UINT32_MAX / f->dims[i])) {
            wb__fail(WB_ERROR_SHAPE, "%s: dimension %d of %s is %lld", what, i, name,
                     (long long)f->dims[i]);
            return -1;
        }
        size *= f->dims[i];
    }
    return size * (int64_t)wb__dtype_size(f->dtype);
}

/* Stores x in the dataset and adds a reference.  Stores a copy of a variable, which may change, and
 * for a tensor with inputs a tensor on the same memory, so that the inputs can be freed. */
static bool dataset_store_array(const char *what, wb_dataset *d, int k, wb_tensor *x)
{
    wb__field *f = &d->field[k];
    if (wb_eval_array(1, &x)) return false;
    if (x->op == WB__OP_variable || x->variable) x = wb__copied(x, wb__device_of(x));
    else if (x->n_in || !x->device) x = wb__as_constant(x);
    if (!x) return false;
    if (k > DATASET_X && x->device != d->device) {
        const char *name = field_name(d, k), *first = field_name(d, DATASET_X);
        wb__fail(WB_ERROR_DEVICE, "%s: %s is on %s:%d and %s on %s:%d: move one to the other, as "
                 "in %s = wb_to(%s, wb_device_of(%s))", what, first, d->device->backend->tag,
                 d->device->ordinal, name, x->device->backend->tag, x->device->ordinal, name, name,
                 first);
        return false;
    }
    d->device = x->device;
    if (d->device == &wb__cpu && !(d->data[k] = wb_data(x))) return false;
    *f = (wb__field){.present = true, .dtype = (wb_dtype)x->dtype, .ndim = x->ndim - 1};
    memcpy(f->dims, x->dims + 1, (size_t)f->ndim * sizeof *f->dims);
    f->bytes = dataset_field_bytes(what, field_name(d, k), f);
    if (f->bytes < 0) return false;
    d->tensor[k] = wb__ref(x);
    return true;
}

/* Returns a block with copies of the names.  NULL with the error set. */
static const char **dataset_copy_names(int n, const char *const *names)
{
    size_t bytes = 0, list = WB__FIELDS * sizeof *names;
    for (int k = 0; k < n; k++) bytes += strlen(names[k]) + 1;
    const char **copy = wb__alloc_zero(1, list + bytes);
    char *at = (char *)copy + list;
    for (int k = 0; copy && k < n; k++) {
        copy[k] = strcpy(at, names[k]);
        at += strlen(at) + 1;
    }
    return copy;
}

wb_dataset *wb__dataset_of_arrays(const char *what, int n, wb_tensor *const *x,
                                  const char *const *names)
{
    for (int k = 0; k < n; k++) {
        const char *name = names ? names[k] : k ? "y" : "x",
        *first = names ? names[DATASET_X] : "x";
        if (k == DATASET_Y && wb_is_none(x[k])) continue;
        if (!wb__operand(what, x[k])) return NULL;
        if (wb_ndim(x[k]) > 0 && wb_dim(x[DATASET_X], 0) == wb_dim(x[k], 0)) continue;
        return wb__fail_null(WB_ERROR_SHAPE, "%s: %s %s and %s %s do not have observations along a "
                             "first axis of the same length", what, first,
                             wb_describe(x[DATASET_X]), name, wb_describe(x[k]));
    }
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = WB__DATA_ARRAYS;
    d->device = &wb__cpu;
    d->n = wb_dim(x[DATASET_X], 0);
    d->n_fields = WB__MAX(n, 2);
    bool ok = !names || (d->names = dataset_copy_names(n, names)) != NULL;
    for (int k = 0; ok && k < n; k++)
        if (!wb_is_none(x[k])) ok = dataset_store_array(what, d, k, x[k]);
    if (ok) return d;
    wb_object_free(d);
    return NULL;
}

wb_dataset *wb_dataset_of(wb_tensor *x, wb_tensor *y)
{
    WB__PUBLIC(wb_dataset_of, NULL);
    if (WB__NULL(x) || WB__NULL(y)) return NULL;
    return wb__dataset_of_arrays("dataset_of", 2, (wb_tensor *[]){x, y}, NULL);
}

typedef struct {
    int n;
    wb_tensor *x[WB__FIELDS];
    char *names[WB__FIELDS];
} dataset_leaves;

static int dataset_add_leaf(const wb__leaf *leaf, void *ctx)
{
    dataset_leaves *l = ctx;
    if (l->n == WB__FIELDS)
        return wb__fail(WB_ERROR_ARGUMENT, "dataset_of_tree: the tree has more than %d tensors",
                        WB__FIELDS);
    l->x[l->n] = leaf->x;
    l->names[l->n] = wb__strdup(leaf->path);
    return l->names[l->n] && ++l->n ? 0 : WB_ERROR_MEMORY;
}

static bool dataset_has_layer(const wb__branch *node)
{
    for (int i = 0; i < node->n; i++) {
        const void *child = node->children[i].object;
        if (wb__is(child, &wb__layer_class)) return true;
        if (wb__is(child, &wb__tree_class) && dataset_has_layer(child)) return true;
    }
    return false;
}

wb_dataset *wb_dataset_of_tree(wb_tree *arrays)
{
    WB__PUBLIC(wb_dataset_of_tree, NULL);
    dataset_leaves l = {0};
    wb_dataset *d = NULL;
    if (WB__NULL(arrays)) return NULL;
    if (!wb__is(arrays, &wb__tree_class) || dataset_has_layer(&arrays->node))
        return wb__fail_null(WB_ERROR_ARGUMENT, "dataset_of_tree: a %s; it takes a tree of tensors",
                             wb__is(arrays, &wb__tree_class) ? "tree with a layer"
                                                             : wb__kind(arrays));
    int status = wb__walk("dataset_of_tree", arrays, NULL, 0, dataset_add_leaf, &l);
    if (!status && !l.n)
        status = wb__fail(WB_ERROR_ARGUMENT, "dataset_of_tree: the tree has no tensor");
    if (!status)
        d = wb__dataset_of_arrays("dataset_of_tree", l.n, l.x, (const char *const *)l.names);
    for (int k = 0; k < l.n; k++) wb__free(l.names[k]);
    return d;
}

/* Copies the names of a source's fields to the dataset, unless they are x and y. */
static bool dataset_name_source(wb_dataset *d, const wb_dataset_source *s)
{
    static const char *const plain[WB__FIELDS] = {"x", "y", "2", "3", "4", "5", "6", "7"};
    if (!s->n_more && !s->names) return true;
    for (int k = 0; s->names && k < d->n_fields; k++)
        if (!s->names[k])
            return wb__fail(WB_ERROR_ARGUMENT, "dataset_from: field %d has no name", k), false;
    d->names = dataset_copy_names(d->n_fields, s->names ? s->names : plain);
    return d->names != NULL;
}

/* Whether the functions and numbers of a source are valid.  If not, sets the error. */
static bool dataset_check_source(const wb_dataset_source *s)
{
    if (s->next || s->restart) {
        if (s->next && s->restart && !s->get && !s->get_all && !s->n && s->n_more >= 0 &&
            s->n_more <= WB_BATCH_MORE)
            return true;
        wb__fail(WB_ERROR_ARGUMENT, "dataset_from: %s%s%s, %lld observations, %d further fields: a "
                 "stream has .next and .restart, without .get, .get_all and .n",
                 s->next ? ".next " : "", s->restart ? ".restart" : "",
                 s->get || s->get_all ? " and .get or .get_all" : "", (long long)s->n, s->n_more);
        return false;
    }
    if (!s->get != !s->get_all && s->n >= 0 && s->n_more >= 0 && s->n_more <= WB_BATCH_MORE &&
        (!s->n_more || s->get_all))
        return true;
    wb__fail(WB_ERROR_ARGUMENT,
             "dataset_from: %s, %lld observations, %d further fields: one of .get and .get_all is "
             "given, .get_all with further fields",
             s->get ? s->get_all ? "two functions" : ".get"
                    : s->get_all ? ".get_all" : "no function",
             (long long)s->n, s->n_more);
    return false;
}

wb_dataset *wb_dataset_from(const wb_dataset_source *given)
{
    wb_dataset_source s;
    if (!wb__read_struct("dataset_from", &s, sizeof s, given)) return NULL;
    if (!dataset_check_source(&s)) return NULL;
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = s.next ? WB__DATA_STREAM : WB__DATA_SOURCE;
    d->device = &wb__cpu;
    d->n = s.n;
    d->n_fields = 2 + s.n_more;
    d->get = s.get;
    d->get_all = s.get_all;
    d->next = s.next;
    d->restart = s.restart;
    d->ctx = s.ctx;
    d->field[DATASET_X] = (wb__field){true, s.x_dtype ? s.x_dtype : WB_F32, s.x_ndim, {0}, 0};
    d->field[DATASET_Y] =
        (wb__field){s.y_dtype || s.y_ndim, s.y_dtype ? s.y_dtype : WB_F32, s.y_ndim, {0}, 0};
    memcpy(d->field[DATASET_X].dims, s.x_dims, sizeof s.x_dims);
    memcpy(d->field[DATASET_Y].dims, s.y_dims, sizeof s.y_dims);
    for (int k = 0; k < s.n_more; k++) {
        d->field[2 + k] = (wb__field){
            true, s.more_dtype[k] ? s.more_dtype[k] : WB_F32, s.more_ndim[k], {0}, 0};
        memcpy(d->field[2 + k].dims, s.more_dims[k], sizeof s.more_dims[k]);
    }
    if (dataset_name_source(d, &s) && !wb__dataset_measure(d, "dataset_from")) return d;
    wb_object_free(d);
    return NULL;
}

int wb__dataset_measure(wb_dataset *root, const char *what)
{
    for (int k = 0; k < root->n_fields; k++) {
        if (!root->field[k].present) continue;
        root->field[k].bytes = dataset_field_bytes(what, field_name(root, k), &root->field[k]);
        if (root->field[k].bytes < 0) return wb_error_code();
    }
    return 0;
}

wb_dataset *wb__dataset_like(const wb_dataset *root, wb__data_kind kind, int n_parts)
{
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = kind;
    d->device = root->device;
    d->n_fields = root->n_fields;
    memcpy(d->field, root->field, sizeof d->field);
    d->parts = wb__alloc_zero((size_t)n_parts, sizeof *d->parts);
    d->first = wb__alloc_zero((size_t)n_parts + 1, sizeof *d->first);
    int names = 0;
    while (root->names && names < WB__FIELDS && root->names[names]) names++;
    if (d->parts && d->first &&
        (!root->names || (d->names = dataset_copy_names(names, root->names))))
        return d;
    wb_object_free(d);
    return NULL;
}

/* ---- views and maps -------------------------------------------------------------------------- */

wb_dataset *wb__dataset_over(wb_dataset *below, wb__data_kind kind, int64_t n)
{
    wb_dataset *d = wb__object_new(&wb__dataset_class, sizeof *d);
    if (!d) return NULL;
    d->kind = kind;
    d->n = n;
    d->below = wb__ref(below);
    return d;
}

wb_dataset *wb__dataset_ordered(wb_dataset *below, int64_t n, uint32_t *order)
{
    wb_dataset *view = order ? wb__dataset_over(below, WB__DATA_VIEW, n) : NULL;
    if (view) view->order = order;
    else wb__free(order);
    return view;
}

wb_dataset *wb__dataset_share(wb_dataset *d, int rank, int ranks, uint64_t seed)
{
    wb_dataset *share = wb__dataset_over(d, WB__DATA_SHARE, (d->n + ranks - 1) / ranks);
    if (!share) return NULL;
    share->rank = rank;
    share->ranks = ranks;
    share->seed = seed;
    return share;
}

wb_dataset *wb_subset(wb_dataset *d, int64_t start, int64_t stop)
{
    if (!wb__is_dataset(d, "subset")) return NULL;
    if (start < 0 || stop < start || stop > d->n)
        return wb__fail_null(WB_ERROR_ARGUMENT, "subset: %lld .. %lld of %lld observations",
                             (long long)start, (long long)stop, (long long)d->n);
    wb_dataset *view = wb__dataset_over(d, WB__DATA_VIEW, stop - start);
    if (view) view->start = start;
    return view;
}

uint32_t *wb__random_order(const char *what, int64_t n)
{
    if (n > most_shuffled)
        return wb__fail_null(WB_ERROR_UNSUPPORTED,
                             "%s: %lld observations are too many to shuffle", what, (long long)n);
    uint32_t *order = wb__alloc((size_t)n * sizeof *order + 1);
    uint64_t key, counter;
    wb__rng_take(1, &key, &counter);
    if (order) wb__shuffle(order, n, key, counter);
    return order;
}

static wb_dataset *dataset_map(const char *what, wb_dataset *d, wb_collate f, void *ctx, bool each)
{
    if (!wb__is_any_dataset(d, what)) return NULL;
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "%s: no function", what);
    wb_dataset *mapped = wb__dataset_over(d, WB__DATA_MAP, d->n);
    if (!mapped) return NULL;
    mapped->map = f;
    mapped->ctx = ctx;
    mapped->maps_single = each;
    return mapped;
}

wb_dataset *wb_mapobs(wb_dataset *d, wb_collate f, void *ctx)
{
    return dataset_map("mapobs", d, f, ctx, false);
}
wb_dataset *wb_mapobs_each(wb_dataset *d, wb_collate f, void *ctx)
{
    return dataset_map("mapobs_each", d, f, ctx, true);
}

/* ---- properties ------------------------------------------------------------------------------ */

int64_t wb_dataset_length(const wb_dataset *d)
{
    return wb__is_any_dataset(d, "dataset_length") && !wb__is_stream(d) ? d->n : -1;
}

/* Sets *batch to a batch of all observations, on memory that its tensors own.  Arrays are copied.
 * The function of a source is called for each observation. */
static int dataset_fill_all(const wb_dataset *d, const wb_dataset *root, int64_t *index,
                            wb_batch *batch)
{
    void *to[WB__FIELDS] = {NULL};
    int made = 0, status = 0;
    for (int k = 0; k < root->n_fields && !status; k++) {
        int64_t bytes = root->field[k].present ? root->field[k].bytes : 0;
        if (bytes && d->n > INT64_MAX / bytes)
            status =
                wb__fail(WB_ERROR_MEMORY, "the whole dataset: %lld observations", (long long)d->n);
        else if (root->field[k].present && !(to[k] = wb__alloc_aligned((size_t)(d->n * bytes))))
            status = WB_ERROR_MEMORY;
    }
    if (!status) status = wb__dataset_fill(d, d->n, index, to, true);
    if (!status) status = wb__dataset_wrap(root, d->n, to, wb__free_block, NULL, batch, &made);
    for (int k = 0; k < root->n_fields; k++)
        if (root->field[k].present && made-- <= 0) wb__free(to[k]);
    return status;
}

int wb__dataset_all(const wb_dataset *d, wb_batch *batch)
{
    const wb_dataset *root = wb__dataset_root(d);
    int64_t *index = wb__alloc_zero((size_t)d->n + 1, sizeof *index);
    if (!index) return WB_ERROR_MEMORY;
    for (int64_t i = 0; i < d->n; i++) index[i] = i;
    int status = wb__dataset_on_host(d) ? dataset_fill_all(d, root, index, batch)
                                        : wb__dataset_gather(d, d->n, index, batch);
    for (int64_t i = 0; i < d->n; i++) index[i] = i;
    const wb_device *was = wb__use_device(root->device);
    if (!status) status = wb__dataset_apply(d, d->n, index, batch);
    if (!status) status = wb__batch_evaluate(batch);
    wb__use_device(was);
    wb__free(index);
    return status;
}

/* Returns field k of all observations for f, the public function that was called. */
static wb_tensor *dataset_whole(wb_dataset *d, int k, wb__public f)
{
    const wb_dataset *root = wb__dataset_root(d);
    if (!root->field[k].present && !wb__dataset_mapped(d)) return WB_NONE;
    if (d->kind == WB__DATA_ARRAYS) return wb__scope_give(wb__ref(d->tensor[k]));
    if (wb__duty_fails(f)) return NULL;
    wb_scope *s = wb_scope_open();
    if (!s) return NULL;
    wb_batch batch;
    int status = wb__dataset_all(d, &batch);
    wb_tensor *result = status ? NULL : *wb__batch_at(&batch, k);
    if (!status && !result)
        wb__fail(WB_ERROR_ARGUMENT, "%s: the maps leave no such tensor", wb__public_name(f));
    if (result) result = wb_object_keep(result);
    return wb_scope_close(s) ? NULL : result;
}

wb_tensor *wb_dataset_x(wb_dataset *d)
{
    WB__EDGE;
    return wb__is_dataset(d, "dataset_x") ? dataset_whole(d, DATASET_X, WB__OF_wb_dataset_x) : NULL;
}
wb_tensor *wb_dataset_y(wb_dataset *d)
{
    WB__EDGE;
    return wb__is_dataset(d, "dataset_y") ? dataset_whole(d, DATASET_Y, WB__OF_wb_dataset_y) : NULL;
}

/* Returns the index of the field with this name among n fields, of which the first n_named have
 * names; -1 with the error set.  Fields without names are called x, y, 2, 3, ... */
static int dataset_index_named(const char *what, int n, int n_named, const char *const *names,
                               const char *name)
{
    char list[200] = "";
    size_t used = 0;
    if (!name) return wb__fail(WB_ERROR_ARGUMENT, "%s: no name", what), -1;
    for (int k = 0; k < n_named; k++)
        if (!strcmp(names[k], name)) return k;
    if (!strcmp(name, "x")) return DATASET_X;
    if (!strcmp(name, "y") && n > DATASET_Y) return DATASET_Y;
    for (int k = 0; k < n && used < sizeof list - 1; k++) {
        char number[12];
        snprintf(number, sizeof number, "%d", k);
        const char *own = k < n_named      ? names[k]
                          : k == DATASET_X ? "x"
                          : k == DATASET_Y ? "y"
                                           : number;
        if (k >= n_named && !strcmp(own, name)) return k;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", k ? ", " : "", own);
    }
    return wb__fail(WB_ERROR_ARGUMENT, "%s: no \"%s\": there is %s", what, name, list), -1;
}

/* Returns the length of a list of names that ends with NULL; 0 if `names` is NULL. */
static int dataset_count_names(const char *const *names)
{
    int n = 0;
    while (names && n < WB__FIELDS && names[n]) n++;
    return n;
}

wb_tensor *wb_dataset_get(wb_dataset *d, const char *name)
{
    WB__EDGE;
    if (!wb__is_dataset(d, "dataset_get")) return NULL;
    const wb_dataset *root = wb__dataset_root(d);
    const int named = dataset_count_names(root->names);
    const int k = dataset_index_named("dataset_get", named ? named : 2, named, root->names, name);
    return k < 0 ? NULL : dataset_whole(d, k, WB__OF_wb_dataset_get);
}

wb_tensor *wb_batch_get(wb_batch batch, const char *name)
{
    const int named = dataset_count_names(batch.names), more = wb__batch_fields(&batch);
    const int n = !named || more > 2 ? WB__MAX(named, more) : named;
    const int k = dataset_index_named("batch_get", n, named, batch.names, name);
    wb_tensor *x = k < 0 ? NULL : *wb__batch_at(&batch, k);
    if (k >= 0 && !x && wb__null("batch_get", name)) return NULL;
    return x;
}

wb_batch wb_batch_of(wb_tensor *x, wb_tensor *y)
{
    if (x && !wb__operand("batch_of", x)) return (wb_batch){0};
    if (y && !wb_is_none(y) && !wb__operand("batch_of", y)) return (wb_batch){0};
    return (wb_batch){.x = y ? x : NULL, .y = y, .n = wb_ndim(x) > 0 ? wb_dim(x, 0) : 0};
}
