/* Splits, folds and samples: views whose observations follow from sizes, labels and random
 * numbers. */
#include "data/groups.h"

#include "base/options.h"
#include "data/random.h"

#include <math.h>
#include <stdlib.h>

/* A list of observation indices, allocated with the exact size that it will have, since a view
 * keeps the block.  `data` is NULL after a failure. */
typedef struct { int64_t n; uint32_t *data; } folds_list;

/* Sets *l to an empty list with memory for `size` indices.  False: out of memory. */
static bool folds_list_begin(folds_list *l, int64_t size)
{
    *l = (folds_list){0, wb__alloc((size_t)size * sizeof *l->data + 1)};
    return l->data != NULL;
}

static int folds_by_number(const void *a, const void *b)
{
    const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return p < q ? -1 : p > q;
}

/* Returns a view of the list's observations, sorted if `ascending`; the view takes over the
 * list. */
static wb_dataset *folds_list_view(wb_dataset *d, folds_list *l, bool ascending)
{
    if (l->data && ascending) qsort(l->data, (size_t)l->n, sizeof *l->data, folds_by_number);
    wb_dataset *view = wb__dataset_ordered(d, l->n, l->data);
    l->data = NULL;
    return view;
}

static int folds_fail_too_many(const char *what, const wb_dataset *d)
{
    if (d->n <= UINT32_MAX) return 0;
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: %lld observations are too many", what,
                    (long long)d->n);
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* Sets sizes[0] .. sizes[n_at], which add up to n.  sizes[k] is the fraction at[k] of n, rounded
 * half to even; as in MLUtils.jl, it is computed from the observations that are left. */
static int folds_split_sizes(int64_t n, int n_at, const double *at, int64_t *sizes)
{
    int64_t left = n;
    for (int k = 0; k < n_at; k++) {
        double f = k && left ? at[k] * (double)n / (double)left : at[k];
        if (!left) f = 0;
        if (!(at[k] >= 0 && f <= 1 + 1e-9))
            return wb__fail(WB_ERROR_ARGUMENT, "splitobs: part %d is %g of %lld observations, of "
                            "which %lld are left; the parts must be in [0, 1] and add up to 1 at "
                            "most", k, at[k], (long long)n, (long long)left);
        sizes[k] = (int64_t)nearbyint(WB__MIN(f, 1) * (double)left);
        left -= sizes[k];
    }
    sizes[n_at] = left;
    return 0;
}

/* Sets parts[k] to views of consecutive observations. */
static int folds_split_consecutive(wb_dataset *d, int n_at, const double *at, wb_dataset **parts)
{
    int64_t sizes[WB_SPLIT_PARTS], first = 0;
    const int status = folds_split_sizes(d->n, n_at, at, sizes);
    for (int k = 0; !status && k <= n_at; first += sizes[k++])
        if (!(parts[k] = wb_subset(d, first, first + sizes[k]))) return wb_error_code();
    return status;
}

static int64_t folds_size_of(const wb__grouping *g,
                             int64_t k) { return g->start[k + 1] - g->start[k]; }

/* Allocates each list with the total size of its parts of all groups. */
static int folds_begin_parts(const wb__grouping *g, int n_at, const double *at, folds_list *lists)
{
    int64_t sizes[WB_SPLIT_PARTS], total[WB_SPLIT_PARTS] = {0};
    for (int64_t i = 0; i < g->groups; i++) {
        const int status = folds_split_sizes(folds_size_of(g, i), n_at, at, sizes);
        if (status) return status;
        for (int k = 0; k <= n_at; k++) total[k] += sizes[k];
    }
    for (int k = 0; k <= n_at; k++)
        if (!folds_list_begin(&lists[k], total[k])) return WB_ERROR_MEMORY;
    return 0;
}

/* Adds to each list its part of the observations of each group. */
static int folds_split_groups(const wb__grouping *g, int n_at, const double *at, folds_list *lists)
{
    int64_t sizes[WB_SPLIT_PARTS];
    for (int64_t i = 0; i < g->groups; i++) {
        const int64_t *index = g->index + g->start[i];
        const int status = folds_split_sizes(folds_size_of(g, i), n_at, at, sizes);
        if (status) return status;
        for (int k = 0; k <= n_at; k++)
            for (int64_t j = 0; j < sizes[k]; j++)
                lists[k].data[lists[k].n++] = (uint32_t)*index++;
    }
    return 0;
}

/* Changes n indices to a random order. */
static void folds_mix_group(int64_t *index, int64_t n)
{
    wb__draws draws = wb__draws_begin(n);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = wb__draw_below(&draws, i + 1), other = index[j];
        index[j] = index[i];
        index[i] = other;
    }
}

/* Changes the list to a random order. */
static void folds_mix_list(folds_list *l)
{
    wb__draws draws = wb__draws_begin(l->n);
    for (int64_t i = l->n - 1; i > 0; i--) {
        const int64_t j = wb__draw_below(&draws, i + 1);
        const uint32_t other = l->data[j];
        l->data[j] = l->data[i];
        l->data[i] = other;
    }
}

static int folds_split_stratified(wb_dataset *d, wb__grouping *g, bool shuffle, int n_at,
                                  const double *at, wb_dataset **parts)
{
    folds_list lists[WB_SPLIT_PARTS] = {{0}};
    int status = folds_begin_parts(g, n_at, at, lists);
    for (int64_t i = 0; !status && shuffle && i < g->groups; i++)
        folds_mix_group(g->index + g->start[i], folds_size_of(g, i));
    if (!status) status = folds_split_groups(g, n_at, at, lists);
    for (int k = 0; !status && k <= n_at; k++) {
        if (shuffle) folds_mix_list(&lists[k]);
        if (!(parts[k] = folds_list_view(d, &lists[k], !shuffle))) status = wb_error_code();
    }
    for (int k = 0; k <= n_at; k++) wb__free(lists[k].data);
    return status;
}

static int folds_split_parts(wb_dataset *d, int n_at, const double *at, wb_dataset **parts,
                             const wb_splitobs_options *o)
{
    wb__grouping g;
    if (!o->stratified && !o->labels) {
        wb_dataset *from = o->shuffle ? wb_shuffleobs(d) : d;
        return from ? folds_split_consecutive(from, n_at, at, parts) : (int)wb_error_code();
    }
    WB__FIRST(wb_splitobs_array_with, wb_error_code());
    int status = folds_fail_too_many("splitobs", d);
    if (!status) status = wb__group_dataset("splitobs", d, o->labels, &g);
    if (status) return status;
    status = folds_split_stratified(d, &g, o->shuffle, n_at, at, parts);
    wb__group_free(&g);
    return status;
}

static int folds_splitobs(const char *what, wb_dataset *d, int n, const double *sizes,
                          wb_dataset **parts, const wb_splitobs_options *given)
{
    double at[WB_SPLIT_PARTS];
    wb_splitobs_options o;
    const bool fits = n >= 1 && n < WB_SPLIT_PARTS && sizes && parts;
    for (int k = 0; fits && k <= n; k++) parts[k] = NULL;
    if (!wb__read_options(what, wb_splitobs_options, &o, given, NULL) || !wb__is_dataset(d, what))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!fits)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %d sizes; there are 1 to %d, and a place for one "
                        "more", what, n, WB_SPLIT_PARTS - 1);
    for (int k = 0; k < n; k++) {
        if (o.counts && sizes[k] != nearbyint(sizes[k]))
            return wb__fail(WB_ERROR_ARGUMENT, "%s: part %d has %g observations; with .counts the "
                            "sizes are whole numbers, without it fractions", what, k, sizes[k]);
        at[k] = o.counts ? (d->n ? sizes[k] / (double)d->n : sizes[k] > 0) : sizes[k];
    }
    const int status = folds_split_parts(d, n, at, parts, &o);
    for (int k = 0; status && k <= n; k++) parts[k] = NULL;
    return status;
}

int wb_splitobs_array_with(wb_dataset *d, int n, const double *at, wb_dataset **parts,
                           const wb_splitobs_options *o)
{
    WB__EDGE;
    return folds_splitobs("splitobs_array", d, n, at, parts, o);
}

int wb_splitobs_with(wb_dataset *d, double at, wb_dataset **first, wb_dataset **second,
                     const wb_splitobs_options *o)
{
    WB__EDGE;
    wb_dataset *parts[2] = {NULL, NULL};
    if (first) *first = NULL;
    if (second) *second = NULL;
    if (!first || !second)
        return wb__fail(WB_ERROR_ARGUMENT, "splitobs: no place for the %s part",
                        first ? "second" : "first");
    const int status = folds_splitobs("splitobs", d, 1, &at, parts, o);
    *first = parts[0];
    *second = parts[1];
    return status;
}

/* ---- folds ----------------------------------------------------------------------------------- */

/* Sets *start and *stop to the observations, *start .. *stop - 1, of fold i of k.  The first n mod
 * k folds have one observation more than the others. */
static void folds_range_of(int64_t n, int64_t k, int64_t i, int64_t *start, int64_t *stop)
{
    *start = i * (n / k) + WB__MIN(i, n % k);
    *stop = *start + n / k + (i < n % k);
}

/* Divides the observations of each group into k folds, and makes the views of fold i. */
static int folds_make_grouped(wb_dataset *d, const wb__grouping *g, int64_t k, int64_t i,
                              wb_dataset **train, wb_dataset **validation)
{
    folds_list rest = {0}, fold = {0};
    int64_t start, stop, size = 0;
    for (int64_t j = 0; j < g->groups; j++, size += stop - start)
        folds_range_of(folds_size_of(g, j), k, i, &start, &stop);
    if (!folds_list_begin(&rest, d->n - size) || !folds_list_begin(&fold, size)) {
        wb__free(rest.data);
        return WB_ERROR_MEMORY;
    }
    for (int64_t j = 0; j < g->groups; j++) {
        folds_range_of(folds_size_of(g, j), k, i, &start, &stop);
        for (int64_t m = 0; m < folds_size_of(g, j); m++) {
            folds_list *l = m >= start && m < stop ? &fold : &rest;
            l->data[l->n++] = (uint32_t)g->index[g->start[j] + m];
        }
    }
    wb_dataset *t = folds_list_view(d, &rest, true), *v = folds_list_view(d, &fold, true);
    if (!t || !v) return wb_error_code();
    *train = t;
    *validation = v;
    return 0;
}

/* Makes fold i like folds_make_grouped, with all observations as one group. */
static int folds_make_consecutive(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                                  wb_dataset **validation)
{
    folds_list rest;
    int64_t start, stop;
    folds_range_of(d->n, k, i, &start, &stop);
    wb_dataset *v = wb_subset(d, start, stop);
    if (!v || !folds_list_begin(&rest, d->n - (stop - start))) return wb_error_code();
    for (int64_t m = 0; m < start; m++) rest.data[rest.n++] = (uint32_t)m;
    for (int64_t m = stop; m < d->n; m++) rest.data[rest.n++] = (uint32_t)m;
    wb_dataset *t = folds_list_view(d, &rest, false);
    if (!t) return wb_error_code();
    *train = t;
    *validation = v;
    return 0;
}

/* Checks the arguments of all functions that make folds, and clears the results. */
static int folds_check(const char *what, wb_dataset *d, int64_t i, int64_t k, wb_dataset **train,
                       wb_dataset **validation)
{
    if (train) *train = NULL;
    if (validation) *validation = NULL;
    if (!wb__is_dataset(d, what)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!train || !validation || i < 0 || i >= k)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: fold %lld of %lld%s", what, (long long)i,
                        (long long)k, train && validation ? "" : ", and a NULL for a result");
    return folds_fail_too_many(what, d);
}

static int folds_make(const char *what, wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                      wb_dataset **validation, const wb_kfolds_options *o)
{
    wb__grouping g;
    if (!o->stratified && !o->labels) return folds_make_consecutive(d, k, i, train, validation);
    WB__FIRST(wb_kfolds_with, wb_error_code());
    int status = wb__group_dataset(what, d, o->labels, &g);
    if (status) return status;
    for (int64_t j = 0; !status && j < g.groups; j++)
        if (folds_size_of(&g, j) < k)
            status = wb__fail(WB_ERROR_ARGUMENT, "%s: the label of observation %lld occurs %lld "
                              "times; with .stratified each label occurs at least k = %lld times",
                              what, (long long)g.index[g.start[j]], (long long)folds_size_of(&g, j),
                              (long long)k);
    if (!status) status = folds_make_grouped(d, &g, k, i, train, validation);
    wb__group_free(&g);
    return status;
}

int wb_kfolds_with(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                   wb_dataset **validation, const wb_kfolds_options *given)
{
    WB__EDGE;
    wb_kfolds_options o;
    wb__given g;
    const int status = folds_check("kfolds", d, i, k, train, validation);
    if (status) return status;
    if (!wb__read_options("kfolds", wb_kfolds_options, &o, given, &g)) return wb_error_code();
    if (k < 2 || k > d->n)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "kfolds: %lld folds of %lld observations; there are at least 2 folds, and "
                        "at most as many as observations", (long long)k, (long long)d->n);
    return folds_make("kfolds", d, k, i, train, validation, &o);
}

int wb_leavepout(wb_dataset *d, int64_t p, int64_t i, wb_dataset **train, wb_dataset **validation)
{
    const bool known = wb__is_dataset(d, "leavepout");
    const int64_t n = known ? d->n : 0;
    if (known && (p < 1 || p > n / 2)) {
        if (train) *train = NULL;
        if (validation) *validation = NULL;
        return wb__fail(WB_ERROR_ARGUMENT,
                        "leavepout: %lld of %lld observations are left out; there are at least 1, "
                        "and at most half of them", (long long)p, (long long)n);
    }
    const int status = folds_check("leavepout", d, i, known ? n / p : 0, train, validation);
    return status ? status : folds_make_consecutive(d, n / p, i, train, validation);
}

int wb_timeseries_kfolds_with(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                              wb_dataset **validation, const wb_timeseries_kfolds_options *given)
{
    wb_timeseries_kfolds_options o;
    wb__given g;
    const int status = folds_check("timeseries_kfolds", d, i, k, train, validation);
    if (status) return status;
    if (!wb__read_options("timeseries_kfolds", wb_timeseries_kfolds_options, &o, given, &g))
        return wb_error_code();
    if (k < 2 || k >= d->n || o.gap < 0 || o.max_train_size < 0)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "timeseries_kfolds: %lld folds of %lld observations, with .gap = %lld and "
                        ".max_train_size = %lld; there are at least 2 folds and fewer than "
                        "observations, and the options are not negative", (long long)k,
                        (long long)d->n, (long long)o.gap, (long long)o.max_train_size);
    const int64_t size = d->n / (k + 1), start = d->n - (k - i) * size, stop = start - o.gap;
    if (d->n - k * size - o.gap < 1)
        return wb__fail(WB_ERROR_ARGUMENT, "timeseries_kfolds: a .gap of %lld leaves nothing to "
                        "train on before the first of %lld folds of %lld observations",
                        (long long)o.gap, (long long)k, (long long)size);
    const int64_t from = o.max_train_size ? WB__MAX(0, stop - o.max_train_size) : 0;
    wb_dataset *t = wb_subset(d, from, stop), *v = t ? wb_subset(d, start, start + size) : NULL;
    if (!v) return wb_error_code();
    *train = t;
    *validation = v;
    return 0;
}

/* ---- classes of equal size ------------------------------------------------------------------- */

/* Adds n observations of group k, which folds_mix_group has put in random order, to the list. */
static void folds_list_add_of_group(folds_list *l, const wb__grouping *g, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < n; i++) l->data[l->n++] = (uint32_t)g->index[g->start[k] + i];
}

/* Returns a view of all observations, where observations are repeated until each group has at least
 * `most`. */
static wb_dataset *folds_repeat_groups(wb_dataset *d, wb__grouping *g, int64_t most, bool shuffle)
{
    folds_list l;
    int64_t total = d->n;
    for (int64_t k = 0; k < g->groups; k++) total += WB__MAX(0, most - folds_size_of(g, k));
    if (!folds_list_begin(&l, total)) return NULL;
    for (int64_t i = 0; i < d->n; i++) l.data[l.n++] = (uint32_t)i;
    for (int64_t k = 0; k < g->groups; k++) {
        const int64_t size = folds_size_of(g, k);
        int64_t extra = most - size;
        for (; extra > size; extra -= size) folds_list_add_of_group(&l, g, k, size);
        if (extra <= 0) continue;
        folds_mix_group(g->index + g->start[k], size);
        folds_list_add_of_group(&l, g, k, extra);
    }
    if (shuffle) folds_mix_list(&l);
    return folds_list_view(d, &l, false);
}

static int folds_read_resample(const char *what, wb_dataset *d, const wb_resample_options *given,
                               wb_resample_options *o, wb__grouping *g)
{
    if (!wb__is_dataset(d, what)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__read_options(what, wb_resample_options, o, given, NULL)) return wb_error_code();
    if (!(o->fraction >= 0 && o->fraction <= 1e6))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .fraction = %g", what, o->fraction);
    const int status = folds_fail_too_many(what, d);
    return status ? status : wb__group_dataset(what, d, o->labels, g);
}

wb_dataset *wb_oversample_with(wb_dataset *d, const wb_resample_options *given)
{
    WB__PUBLIC(wb_oversample_with, NULL);
    wb__grouping g;
    wb_resample_options o;
    if (folds_read_resample("oversample", d, given, &o, &g)) return NULL;
    int64_t most = 0;
    for (int64_t k = 0; k < g.groups; k++) most = WB__MAX(most, folds_size_of(&g, k));
    most = (int64_t)nearbyint(o.fraction * (double)most);
    wb_dataset *view = folds_repeat_groups(d, &g, most, o.shuffle);
    wb__group_free(&g);
    return view;
}

wb_dataset *wb_undersample_with(wb_dataset *d, const wb_resample_options *given)
{
    WB__PUBLIC(wb_undersample_with, NULL);
    folds_list l;
    wb__grouping g;
    wb_resample_options o;
    if (folds_read_resample("undersample", d, given, &o, &g)) return NULL;
    int64_t least = g.groups ? d->n : 0;
    for (int64_t k = 0; k < g.groups; k++) least = WB__MIN(least, folds_size_of(&g, k));
    const bool ok = folds_list_begin(&l, g.groups * least);
    for (int64_t k = 0; ok && k < g.groups; k++) {
        folds_mix_group(g.index + g.start[k], folds_size_of(&g, k));
        folds_list_add_of_group(&l, &g, k, least);
    }
    wb__group_free(&g);
    if (ok && o.shuffle) folds_mix_list(&l);
    return ok ? folds_list_view(d, &l, !o.shuffle) : NULL;
}
