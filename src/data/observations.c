/* Views by index: given, random, or found by functions of the program that look at each
 * observation. */
#include "data/groups.h"

#include "base/numbers/philox.h"
#include "data/random.h"

#include <string.h>

/* Returns a block with n indices of observations of d, for a view.  NULL with the error set. */
static uint32_t *observations_order_of(const char *what, const wb_dataset *d, int64_t n,
                                       const int64_t *index)
{
    if (n < 0 || (n && !index) || d->n > UINT32_MAX)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: %lld indices%s of %lld observations", what,
                             (long long)n, index ? "" : " (NULL)", (long long)d->n);
    uint32_t *order = wb__alloc((size_t)n * sizeof *order + 1);
    for (int64_t i = 0; order && i < n; i++) {
        if (index[i] < 0 || index[i] >= d->n) {
            wb__free(order);
            return wb__fail_null(WB_ERROR_ARGUMENT,
                                 "%s: index %lld is %lld; there are %lld observations, from 0",
                                 what, (long long)i, (long long)index[i], (long long)d->n);
        }
        order[i] = (uint32_t)index[i];
    }
    return order;
}

wb_dataset *wb_obsview(wb_dataset *d, int64_t n, const int64_t *indices)
{
    if (!wb__is_dataset(d, "obsview")) return NULL;
    return wb__dataset_ordered(d, n, observations_order_of("obsview", d, n, indices));
}

wb_dataset *wb_shuffleobs(wb_dataset *d)
{
    if (!wb__is_dataset(d, "shuffleobs")) return NULL;
    return wb__dataset_ordered(d, d->n, wb__random_order("shuffleobs", d->n));
}

wb_dataset *wb_randobs(wb_dataset *d, int64_t n)
{
    if (!wb__is_dataset(d, "randobs")) return NULL;
    if (n < 0 || d->n > UINT32_MAX || (n && !d->n))
        return wb__fail_null(WB_ERROR_ARGUMENT, "randobs: %lld of %lld observations", (long long)n,
                             (long long)d->n);
    uint32_t *order = wb__alloc((size_t)n * sizeof *order + 1);
    wb__draws draws = wb__draws_begin(n);
    for (int64_t i = 0; order && i < n; i++) order[i] = (uint32_t)wb__draw_below(&draws, d->n);
    return wb__dataset_ordered(d, n, order);
}

/* ---- functions that look at observations ----------------------------------------------------- */

enum { OBSERVATIONS_CHUNK = 256 };  /* number of observations that are fetched as one batch */

typedef int (*visitor)(wb_batch observation, int64_t i, void *ctx);

/* Calls visit with a batch of the one observation `row` of the evaluated host tensors in `all`. */
static int observations_visit_row(const wb_batch *all, int64_t row, int64_t i, visitor visit,
                                  void *ctx)
{
    wb_batch one = {.n = 1, .index = i, .y = WB_NONE, .names = all->names};
    wb_batch from = *all;
    wb_scope *s = wb_scope_open();
    int status = s ? 0 : (int)wb_error_code();
    for (int k = 0; !status && k < wb__batch_fields(all); k++) {
        wb_tensor *x = *wb__batch_at(&from, k);
        if (wb_is_none(x)) continue;
        int64_t dims[WB_MAX_DIMS] = {1}, bytes = (int64_t)wb__dtype_size(wb_dtype_of(x));
        for (int a = 1; a < wb_ndim(x); a++) bytes *= dims[a] = wb_dim(x, a);
        const char *data = wb_data(x);
        wb_tensor *y = data ? wb_borrow((char *)(uintptr_t)data + row * bytes, wb_dtype_of(x),
                                        wb_ndim(x), dims, NULL, NULL)
                            : NULL;
        *wb__batch_at(&one, k) = y;
        if (!y) status = wb_error_code();
    }
    if (!status) status = visit(one, i, ctx);
    const int closed = s ? wb_scope_close(s) : 0;
    return status ? status : closed;
}

/* Calls visit for the observations first .. first + n - 1 of d. */
static int observations_visit_chunk(wb_dataset *d, int64_t first, int64_t n, visitor visit,
                                    void *ctx)
{
    wb_batch all;
    wb_dataset *chunk = wb_subset(d, first, first + n);
    if (!chunk || wb__dataset_all(chunk, &all)) return wb_error_code();
    for (int k = 0; k < wb__batch_fields(&all); k++) {
        wb_tensor **x = wb__batch_at(&all, k);
        if (!wb_is_none(*x) && !(*x = wb__tensor_to(*x, &wb__cpu, WB_DTYPE_KEEP)))
            return wb_error_code();
        if (!wb_is_none(*x) && (wb_ndim(*x) < 1 || wb_dim(*x, 0) != n))
            return wb__fail(WB_ERROR_SHAPE, "a map of wb_mapobs made %s of %lld observations: no "
                            "observation can be looked at alone", wb_describe(*x), (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        const int status = observations_visit_row(&all, i, first + i, visit, ctx);
        if (status) return status;
    }
    return 0;
}

/* Calls visit for each observation of d, as a batch of one on the CPU.  Returns 0 or the first code
 * that is not 0. */
static int observations_visit_all(wb_dataset *d, visitor visit, void *ctx)
{
    const wb_device *was = wb__use_device(&wb__cpu);
    int status = 0;
    for (int64_t first = 0; !status && first < d->n; first += OBSERVATIONS_CHUNK) {
        wb_scope *s = wb_scope_open();
        status = s ? observations_visit_chunk(d, first, WB__MIN(OBSERVATIONS_CHUNK, d->n - first),
                                              visit, ctx)
                   : (int)wb_error_code();
        const int closed = s ? wb_scope_close(s) : 0;
        if (!status) status = closed;
    }
    wb__use_device(was);
    return status;
}

/* Sets the error of a function that returned `code`, unless the function has set one. */
static int observations_fail_function(const char *what, int64_t i, int code)
{
    if (wb_error_code()) return wb_error_code();
    return wb__fail(WB_ERROR_ARGUMENT, "%s: observation %lld: its function returned %d", what,
                    (long long)i, code);
}

/* A search through a dataset with a function of the program: a test or a group function. */
typedef struct {
    wb_obs_test test;
    wb_obs_group group;
    void *ctx;
    uint32_t *order;                /* observations that the test keeps */
    int64_t *keys;                  /* the group of each observation */
    int64_t n;
} observations_search;

WB__PROGRAM_CALL(test_call, test_run, int,
                 const observations_search *s; wb_batch observation;,
                 c->s->test(c->observation, c->s->ctx))
WB__PROGRAM_CALL(group_call, group_run, int,
                 const observations_search *s; wb_batch observation; int64_t *label;,
                 c->s->group(c->observation, c->label, c->s->ctx))

static int observations_keep_one(wb_batch observation, int64_t i, void *ctx)
{
    observations_search *s = ctx;
    wb_clear_error();
    test_call c = {s, observation, 0};
    const int keep = wb__call_program(test_run, &c) ? c.result : -1;
    if (keep < 0) return observations_fail_function("filterobs", i, keep);
    if (keep) s->order[s->n++] = (uint32_t)i;
    return 0;
}

static int observations_group_one(wb_batch observation, int64_t i, void *ctx)
{
    observations_search *s = ctx;
    wb_clear_error();
    group_call c = {s, observation, &s->keys[i], 0};
    const int code = wb__call_program(group_run, &c) ? c.result : -1;
    return code ? observations_fail_function("groupobs", i, code) : 0;
}

wb_dataset *wb_filterobs(wb_dataset *d, wb_obs_test f, void *ctx)
{
    WB__PUBLIC(wb_filterobs, NULL);
    if (!wb__is_dataset(d, "filterobs")) return NULL;
    if (!f || d->n > UINT32_MAX)
        return wb__fail_null(WB_ERROR_ARGUMENT, "filterobs: %s, %lld observations",
                             f ? "a function" : "no function", (long long)d->n);
    observations_search s = {.test = f, .ctx = ctx,
                             .order = wb__alloc((size_t)d->n * sizeof *s.order + 1)};
    uint32_t *kept = NULL;          /* a copy of the list with its exact size */
    if (s.order && !observations_visit_all(d, observations_keep_one, &s))
        kept = wb__realloc(s.order, (size_t)s.n * sizeof *kept + 1);
    if (!kept) wb__free(s.order);
    return wb__dataset_ordered(d, s.n, kept);
}

/* Sets parts[k] to a view for each group.  Returns the number of groups, or -1 with the error
 * set. */
static int64_t observations_views_of(wb_dataset *d, const wb__grouping *g, int64_t most,
                                     int64_t *labels, wb_dataset **parts)
{
    if (g->groups > most)
        return wb__fail(WB_ERROR_ARGUMENT, "groupobs: there are %lld groups, and place for %lld",
                        (long long)g->groups, (long long)most), -1;
    for (int64_t k = 0; k < g->groups; k++) {
        parts[k] = wb_obsview(d, g->start[k + 1] - g->start[k], g->index + g->start[k]);
        if (!parts[k]) return -1;
        if (labels) labels[k] = g->key[k];
    }
    return g->groups;
}

/* Groups the observations by the program's function f, or if it is NULL by their integer labels
 * y. */
static int observations_find_groups(wb_dataset *d, wb_obs_group f, void *ctx, wb__grouping *g)
{
    if (!f) {
        const wb_dataset *root = wb__dataset_root(d);
        if (root->field[1].present && wb__dtype_float(root->field[1].dtype))
            return wb__fail(WB_ERROR_DTYPE, "groupobs: y is %s; labels are integers: give a "
                            "function", wb_dtype_name(root->field[1].dtype));
        return wb__group_dataset("groupobs", d, NULL, g);
    }
    observations_search s = {.group = f, .ctx = ctx, .keys = wb__alloc_zero((size_t)d->n + 1,
                                                                            sizeof *s.keys)};
    if (!s.keys) return WB_ERROR_MEMORY;
    const int status = observations_visit_all(d, observations_group_one, &s);
    if (!status) return wb__group_keys(d->n, s.keys, g);
    wb__free(s.keys);
    return status;
}

int64_t wb_groupobs(wb_dataset *d, wb_obs_group f, void *ctx, int64_t most, int64_t *labels,
                    wb_dataset **parts)
{
    WB__EDGE;
    for (int64_t k = 0; parts && k < most; k++) parts[k] = NULL;
    WB__FIRST(wb_groupobs, -1);
    wb__grouping g;
    if (!wb__is_dataset(d, "groupobs")) return -1;
    if (!parts || most < 0)
        return wb__fail(WB_ERROR_ARGUMENT, "groupobs: no place for the groups"), -1;
    if (observations_find_groups(d, f, ctx, &g)) return -1;
    const int64_t made = observations_views_of(d, &g, most, labels, parts);
    wb__group_free(&g);
    return made;
}
