/* The reference result of each operation, element by element, without plans, strides or code of
 * the library.  Results of reshapes, slices and the like refer to the numbers of their operands. */
#include "graph_fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1500 };

static int *blocks[8 * MOST_INSTRUCTIONS * 16];
static int n_blocks;

static int *block(int64_t n)
{
    if (n_blocks == (int)(sizeof blocks / sizeof *blocks)) return NULL;
    return blocks[n_blocks++] = malloc(((size_t)n + 1) * sizeof(int));
}

void interpret_forget(void)
{
    while (n_blocks) free(blocks[--n_blocks]);
    num_forget();
}

bool new_value(value *y, wb_dtype t, int ndim, const int64_t *dims)
{
    *y = (value){.dtype = t, .ndim = ndim, .size = 1};
    if (ndim < 0 || ndim > WB_MAX_DIMS) return false;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0 || dims[i] > MOST_ELEMENTS) return false;
        y->dims[i] = dims[i];
        y->size *= dims[i];
        if (y->size > MOST_ELEMENTS) return false;
    }
    y->at = block(y->size);
    return y->at && n_numbers + y->size < MOST_NUMBERS;
}

int64_t at_index(const value *x, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < x->ndim; i++) at = at * x->dims[i] + index[i];
    return at;
}

/* The next index in row-major order; false after the last. */
bool next_index(int ndim, const int64_t *dims, int64_t *index)
{
    for (int i = ndim - 1; i >= 0; i--) {
        if (++index[i] < dims[i]) return true;
        index[i] = 0;
    }
    return false;
}

int normal_axis(const value *x, int64_t axis)
{
    int64_t a = axis < 0 ? axis + x->ndim : axis;
    return a >= 0 && a < x->ndim ? (int)a : -1;
}

wb_dtype wide(wb_dtype t) { return t == WB_F16 || t == WB_BF16 ? WB_F32 : t; }

bool broadcast(const value *x, const value *y, int *ndim, int64_t *dims)
{
    *ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    for (int i = 0; i < *ndim; i++) {
        int a = i - (*ndim - x->ndim), b = i - (*ndim - y->ndim);
        int64_t p = a < 0 ? 1 : x->dims[a], q = b < 0 ? 1 : y->dims[b];
        if (p != q && p != 1 && q != 1) return false;
        dims[i] = p == 1 ? q : p;
    }
    return true;
}

const int *spread(const value *x, int ndim, const int64_t *dims)
{
    value y;
    if (!new_value(&y, x->dtype, ndim, dims)) return NULL;
    int64_t index[WB_MAX_DIMS] = {0}, inner[WB_MAX_DIMS];
    for (int64_t k = 0; k < y.size; k++) {
        for (int i = 0; i < x->ndim; i++)
            inner[i] = x->dims[i] == 1 ? 0 : index[ndim - x->ndim + i];
        y.at[k] = x->at[at_index(x, inner)];
        next_index(ndim, dims, index);
    }
    return y.at;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static int literal(wb_dtype t, double v)
{
    return is_float(t) ? num_real(t, rounded(t, v)) : num_integer(t, (int64_t)v, true);
}

static bool two(const instruction *s, const value *x, const value *y, value *z, bool compare)
{
    int ndim;
    int64_t dims[WB_MAX_DIMS];
    if (x->dtype != y->dtype || !broadcast(x, y, &ndim, dims)) return false;
    if (x->dtype == WB_BOOL && !(compare && (s->row <= C_ne || s->row >= C_and))) return false;
    if (compare && s->row >= C_and && x->dtype != WB_BOOL) return false;
    if (!compare && s->row == B_pow && !is_float(x->dtype)) return false;
    if (!new_value(z, compare ? WB_BOOL : x->dtype, ndim, dims)) return false;
    const int *a = spread(x, ndim, dims), *b = spread(y, ndim, dims);
    if (!a || !b) return false;
    for (int64_t k = 0; k < z->size; k++)
        z->at[k] = compare ? num_compare(s->row, a[k], b[k])
                           : num_binary(s->row, z->dtype, a[k], b[k]);
    return true;
}

static bool with_number(const instruction *s, const value *x, value *y, bool compare)
{
    if (x->dtype == WB_BOOL || (!is_float(x->dtype) && s->number != floor(s->number))) return false;
    if (!is_float(x->dtype) && wrapped(x->dtype, (int64_t)s->number) != (int64_t)s->number)
        return false;
    value other;
    if (!new_value(&other, x->dtype, 0, NULL)) return false;
    other.at[0] = literal(x->dtype, s->number);
    return s->flag ? two(s, &other, x, y, compare) : two(s, x, &other, y, compare);
}

static bool select_of(const value *c, const value *x, const value *y, value *z)
{
    int ndim;
    int64_t dims[WB_MAX_DIMS] = {0};
    if (c->dtype != WB_BOOL || x->dtype != y->dtype || !broadcast(x, y, &ndim, dims)) return false;
    value both = {.ndim = ndim};
    memcpy(both.dims, dims, sizeof dims);
    if (!broadcast(c, &both, &ndim, dims) || !new_value(z, x->dtype, ndim, dims)) return false;
    const int *p = spread(c, ndim, dims), *a = spread(x, ndim, dims), *b = spread(y, ndim, dims);
    if (!p || !a || !b) return false;
    for (int64_t k = 0; k < z->size; k++) z->at[k] = num_select(p[k], a[k], b[k]);
    return true;
}

static bool elementwise(const instruction *s, const value *x, value *y)
{
    bool floats = is_float(x->dtype);
    if (s->op == OP_UNARY && !floats && (s->row > U_square || x->dtype == WB_BOOL)) return false;
    if (s->op == OP_NOT && x->dtype != WB_BOOL) return false;
    if (s->op == OP_ISFINITE && !floats) return false;
    bool test = s->op == OP_NOT || s->op == OP_ISFINITE;
    if (!new_value(y, s->op == OP_CAST ? s->dtype : test ? WB_BOOL : x->dtype, x->ndim, x->dims))
        return false;
    for (int64_t k = 0; k < y->size; k++) {
        const number n = numbers[x->at[k]];
        y->at[k] = s->op == OP_UNARY      ? num_unary(s->row, x->dtype, x->at[k])
                   : s->op == OP_NOT      ? num_integer(WB_BOOL, !n.i, n.error == 0)
                   : s->op == OP_ISFINITE ? num_integer(WB_BOOL, isfinite(n.v), isfinite(n.error))
                   : s->op == OP_CAST
                       ? s->dtype == x->dtype ? x->at[k] : num_cast(s->dtype, x->at[k])
                   : floats ? num_real_within(x->dtype, n.v, n.error) /* OP_STOP */
                            : x->at[k];
    }
    return true;
}

/* ---- sources --------------------------------------------------------------------------------- */

static bool leaf(const instruction *s, value *y)
{
    if (!new_value(y, s->dtype, s->n, s->p)) return false;
    for (int64_t k = 0; k < y->size; k++)
        y->at[k] = is_float(s->dtype) ? num_real(s->dtype, s->data[k].v)
                                      : num_integer(s->dtype, s->data[k].i, true);
    return true;
}

static bool source(const instruction *s, value *y)
{
    if (!new_value(y, s->op == OP_CAUSAL ? WB_BOOL : s->dtype, s->n, s->p)) return false;
    if (s->op == OP_EYE && s->p[0] != s->p[1]) return false;
    if (s->op == OP_FULL && !is_float(s->dtype) && s->number != floor(s->number)) return false;
    for (int64_t k = 0; k < y->size; k++) {
        int64_t last = s->n ? s->p[s->n - 1] : 1;
        y->at[k] = s->op == OP_FULL   ? literal(s->dtype, s->number)
                 : s->op == OP_ARANGE ? literal(s->dtype, (double)k)
                 : s->op == OP_EYE    ? literal(s->dtype, k / last == k % last)
                                      : num_integer(WB_BOOL, k % last <= k / last, true);
    }
    return true;
}

/* Random draws depend on the seed alone: each is computed by the library, evaluated by itself. */
static bool draws(const instruction *s, const value *x, value *y)
{
    int ndim = s->op == OP_DROPOUT ? x->ndim : s->n;
    const int64_t *dims = s->op == OP_DROPOUT ? x->dims : s->p;
    wb_dtype t = s->op == OP_DROPOUT ? x->dtype : s->dtype;
    if (!is_float(t) || !new_value(y, t, ndim, dims)) return false;
    wb_scope *scope = wb_scope_open();
    wb_tensor *d = s->op == OP_RAND    ? wb_rand_array(t, ndim, dims)
                 : s->op == OP_RANDN   ? wb_randn_array(t, ndim, dims)
                                       : wb_dropout(wb_full_array(1, t, ndim, dims), s->number);
    const double *v = wb_eval(d) ? NULL : wb_data(wb_astype(d, WB_F64));
    bool good = v || !y->size;
    for (int64_t k = 0; good && k < y->size; k++) {
        if (s->op != OP_DROPOUT)        /* the draw is rounded when it is stored */
            y->at[k] = num_real_within(
                t, v[k], t == wide(t) ? 0 : fabs(v[k]) * (t == WB_F16 ? 0x1p-11 : 0x1p-8));
        else if (s->number == 0) y->at[k] = x->at[k];
        else if (s->number == 1) y->at[k] = num_real(t, 0);
        else {
            double scale = 1 / (1 - s->number), off = fabs(rounded(t, scale) - scale);
            int kept = num_binary(B_mul, t, x->at[k], num_real_within(t, scale, off));
            y->at[k] = num_select(num_integer(WB_BOOL, v[k] != 0, true), kept, num_real(t, 0));
        }
    }
    wb_scope_close(scope);
    return good;
}

/* ---- reductions ------------------------------------------------------------------------------ */

int variance_of(wb_dtype t, int n, const int *x)
{
    static int d[MOST_ELEMENTS];
    int mean = num_mean(t, n, x, n);
    for (int i = 0; i < n; i++) d[i] = num_unary(U_square, t, num_binary(B_sub, t, x[i], mean));
    return num_mean(t, n, d, n);
}

static int log_sum_exp(wb_dtype t, int n, const int *x)
{
    static int d[MOST_ELEMENTS];
    double top = -INFINITY;
    for (int i = 0; i < n; i++) top = fmax(top, numbers[x[i]].v);
    int most = num_real(t, isfinite(top) ? top : 0);
    for (int i = 0; i < n; i++) d[i] = num_unary(U_exp, t, num_binary(B_sub, t, x[i], most));
    return num_binary(B_add, t, num_unary(U_log, t, num_sum(t, n, d)), most);
}

static int reduce_numbers(int row, wb_dtype t, int n, int *x)
{
    wb_dtype w = row == R_sum || row == R_max || row == R_min ? t : wide(t);
    for (int i = 0; i < n && w != t; i++) x[i] = num_cast(w, x[i]);
    int y = 0;
    switch (row) {
    case R_sum: return num_sum(t, n, x);
    case R_mean: y = num_mean(w, n, x, n); break;
    case R_max: return num_extreme(t, n, x, false, false);
    case R_min: return num_extreme(t, n, x, true, false);
    case R_variance: y = variance_of(w, n, x); break;
    default: y = log_sum_exp(w, n, x);
    }
    return w == t ? y : num_cast(t, y);
}

/* p: the axes; if empty, all axes */
static bool reduce(const instruction *s, const value *x, value *y)
{
    unsigned mask = s->n ? 0 : (1u << x->ndim) - 1;
    for (int i = 0; i < s->n; i++) {
        int axis = normal_axis(x, s->p[i]);
        if (axis < 0 || mask >> axis & 1) return false;
        mask |= 1u << axis;
    }
    bool real_only = s->row == R_mean || s->row >= R_variance;
    if (x->dtype == WB_BOOL || (real_only && !is_float(x->dtype))) return false;
    int64_t kept[WB_MAX_DIMS], shape[WB_MAX_DIMS], each = 1;
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        bool gone = mask >> i & 1;
        if (gone) each *= x->dims[i];
        kept[i] = gone ? 1 : x->dims[i];
        if (!gone || s->flag) shape[ndim++] = kept[i];
    }
    if (!each && s->row != R_sum) return false;
    if (!new_value(y, x->dtype, ndim, shape)) return false;
    static int list[MOST_ELEMENTS];
    int64_t outer[WB_MAX_DIMS] = {0};
    for (int64_t k = 0; k < y->size; k++, next_index(x->ndim, kept, outer)) {
        int n = 0;
        int64_t index[WB_MAX_DIMS] = {0}, inner[WB_MAX_DIMS], extent[WB_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++) extent[i] = mask >> i & 1 ? x->dims[i] : 1;
        do {
            for (int i = 0; i < x->ndim; i++) inner[i] = outer[i] + index[i];
            if (each) list[n++] = x->at[at_index(x, inner)];
        } while (next_index(x->ndim, extent, index));
        y->at[k] = reduce_numbers(s->row, x->dtype, n, list);
    }
    return true;
}

static bool argmax(const instruction *s, const value *x, value *y)
{
    int axis = normal_axis(x, s->op == OP_ONECOLD ? -1 : s->p[0]), ndim = 0;
    if (axis < 0 || !x->dims[axis] || x->dtype == WB_BOOL) return false;
    int64_t dims[WB_MAX_DIMS], inner = 1, n = x->dims[axis];
    for (int i = 0; i < x->ndim; i++) {
        if (i != axis) dims[ndim++] = x->dims[i];
        if (i > axis) inner *= x->dims[i];
    }
    if (!new_value(y, WB_I32, ndim, dims)) return false;
    static int list[MOST_ELEMENTS];
    for (int64_t k = 0; k < y->size; k++) {
        for (int64_t i = 0; i < n; i++) list[i] = x->at[(k / inner * n + i) * inner + k % inner];
        y->at[k] = num_argmax((int)n, list);
    }
    return true;
}

/* p: axis, exclusive, reverse; each element is computed as a separate sum */
static bool cumsum(const instruction *s, const value *x, value *y)
{
    const int axis = normal_axis(x, s->p[0]);
    if (axis < 0 || x->dtype == WB_BOOL || x->size * x->dims[axis] > MOST_NUMBERS) return false;
    int64_t inner = 1, n = x->dims[axis];
    for (int i = axis + 1; i < x->ndim; i++) inner *= x->dims[i];
    if (!new_value(y, x->dtype, x->ndim, x->dims)) return false;
    static int list[MOST_ELEMENTS];
    for (int64_t k = 0; k < y->size; k++) {
        const int64_t at = k / inner % n;
        const int64_t from = s->p[2] ? at + (s->p[1] != 0) : 0;
        const int64_t to = s->p[2] ? n : at + !s->p[1];
        for (int64_t i = from; i < to; i++) list[i - from] = x->at[k + (i - at) * inner];
        y->at[k] = num_sum(x->dtype, (int)(to - from), list);
    }
    return true;
}

/* ---- shape ----------------------------------------------------------------------------------- */

static bool same_order(const value *x, value *y, int ndim, const int64_t *dims)
{
    if (!new_value(y, x->dtype, ndim, dims) || y->size != x->size) return false;
    memcpy(y->at, x->at, (size_t)x->size * sizeof *y->at);
    return true;
}

static bool reshape(const instruction *s, const value *x, value *y)
{
    int64_t dims[WB_MAX_DIMS + 1] = {0}, rest = 1;
    int axis = 0, ndim = 0;
    switch (s->op) {
    case OP_RESHAPE: return same_order(x, y, s->n, s->p);
    case OP_FLATTEN:
        if (!x->ndim) return false;
        for (int i = 1; i < x->ndim; i++) rest *= x->dims[i];
        return same_order(x, y, 2, (int64_t[]){x->dims[0], rest});
    case OP_UNSQUEEZE:
        axis = (int)(s->p[0] < 0 ? s->p[0] + x->ndim + 1 : s->p[0]);
        if (axis < 0 || axis > x->ndim || x->ndim == WB_MAX_DIMS) return false;
        for (int i = 0; i <= x->ndim; i++)
            dims[i] = i < axis ? x->dims[i] : i == axis ? 1 : x->dims[i - 1];
        return same_order(x, y, x->ndim + 1, dims);
    default:
        axis = normal_axis(x, s->p[0]);
        if (axis < 0 || x->dims[axis] != 1) return false;
        for (int i = 0; i < x->ndim; i++)
            if (i != axis) dims[ndim++] = x->dims[i];
        return same_order(x, y, ndim, dims);
    }
}

static bool permute(const instruction *s, const value *x, value *y)
{
    int64_t order[WB_MAX_DIMS], dims[WB_MAX_DIMS];
    unsigned seen = 0;
    int n = x->ndim;
    if (s->op == OP_TRANSPOSE ? n < 2 : s->n != n) return false;
    for (int i = 0; i < n; i++) {
        order[i] = s->op == OP_PERMUTE ? s->p[i] : i < n - 2 ? i : i == n - 2 ? n - 1 : n - 2;
        if (order[i] < 0 || order[i] >= n) return false;
        seen |= 1u << order[i];
        dims[i] = x->dims[order[i]];
    }
    if (seen != (1u << n) - 1 || !new_value(y, x->dtype, n, dims)) return false;
    int64_t index[WB_MAX_DIMS] = {0}, from[WB_MAX_DIMS];
    for (int64_t k = 0; k < y->size; k++, next_index(n, dims, index)) {
        for (int i = 0; i < n; i++) from[order[i]] = index[i];
        y->at[k] = x->at[at_index(x, from)];
    }
    return true;
}

static bool expand(const instruction *s, const value *x, value *y)
{
    if (s->n < x->ndim) return false;
    for (int i = 1; i <= x->ndim; i++)
        if (x->dims[x->ndim - i] != s->p[s->n - i] && x->dims[x->ndim - i] != 1) return false;
    if (!new_value(y, x->dtype, s->n, s->p)) return false;
    const int *at = spread(x, s->n, s->p);
    if (at) memcpy(y->at, at, (size_t)y->size * sizeof *at);
    return at;
}

static int zero_of(wb_dtype t) { return is_float(t) ? num_real(t, 0) : num_integer(t, 0, true); }

/* p: axis; of slices start and stop; of pads the number of elements before and after */
static bool along_axis(const instruction *s, const value *x, value *y)
{
    int axis = normal_axis(x, s->p[0]);
    if (axis < 0) return false;
    int64_t dims[WB_MAX_DIMS], n = x->dims[axis], from = s->p[1], to = s->p[2];
    memcpy(dims, x->dims, sizeof dims);
    if (s->op == OP_SLICE) {
        from += from < 0 ? n : 0;
        to += to < 0 ? n : 0;
        if (from < 0 || to > n || from > to) return false;
        dims[axis] = to - from;
    } else if (s->op == OP_PAD) {
        if (from < 0 || to < 0) return false;
        dims[axis] = n + from + to;
    }
    if (!new_value(y, x->dtype, x->ndim, dims)) return false;
    int64_t index[WB_MAX_DIMS] = {0}, at[WB_MAX_DIMS];
    for (int64_t k = 0; k < y->size; k++, next_index(x->ndim, dims, index)) {
        memcpy(at, index, sizeof at);
        if (s->op == OP_SLICE) at[axis] += from;
        else if (s->op == OP_FLIP) at[axis] = n - 1 - at[axis];
        else at[axis] -= from;
        bool inside = at[axis] >= 0 && at[axis] < n;
        y->at[k] = inside ? x->at[at_index(x, at)] : zero_of(x->dtype);
    }
    return true;
}

/* p: axis */
static bool concat(const program *p, const instruction *s, const value *v, value *y)
{
    const value *x = &v[s->in[0]];
    value part[MOST_OPERANDS] = {{0}};
    int64_t dims[WB_MAX_DIMS];
    int ndim = x->ndim + (s->op == OP_STACK);
    int axis = (int)(s->p[0] < 0 ? s->p[0] + ndim : s->p[0]);
    (void)p;
    if (axis < 0 || axis >= ndim || ndim > WB_MAX_DIMS) return false;
    for (int i = 0; i < s->n_in; i++) {
        instruction wider = {.op = OP_UNSQUEEZE, .n = 1, .p = {axis}};
        if (s->op == OP_CONCAT) part[i] = v[s->in[i]];
        else if (!reshape(&wider, &v[s->in[i]], &part[i])) return false;
        if (part[i].ndim != ndim || part[i].dtype != x->dtype) return false;
        for (int d = 0; d < ndim; d++)
            if ((s->op == OP_STACK || d != axis) && part[i].dims[d] != part[0].dims[d])
                return false;
    }
    memcpy(dims, part[0].dims, sizeof dims);
    for (int i = 1; i < s->n_in; i++) dims[axis] += part[i].dims[axis];
    if (!new_value(y, x->dtype, ndim, dims)) return false;
    int64_t index[WB_MAX_DIMS] = {0};
    for (int64_t k = 0; k < y->size; k++, next_index(ndim, dims, index)) {
        int64_t inner[WB_MAX_DIMS];
        memcpy(inner, index, sizeof inner);
        int i = 0;
        while (inner[axis] >= part[i].dims[axis]) inner[axis] -= part[i++].dims[axis];
        y->at[k] = part[i].at[at_index(&part[i], inner)];
    }
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

bool interpret_step(const program *p, value *v, int i)
{
    const instruction *s = &p->step[i];
    value *y = &v[i];
    const value *x = s->n_in ? &v[s->in[0]] : NULL, *z = s->n_in > 1 ? &v[s->in[1]] : NULL;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] >= i || p->step[s->in[k]].op == OP_ASSIGN) return false;
    *y = (value){0};
    switch (s->op) {
    case OP_LEAF: case OP_VARIABLE: return leaf(s, y);
    case OP_FULL: case OP_ARANGE: case OP_EYE: case OP_CAUSAL: return source(s, y);
    case OP_RAND: case OP_RANDN: case OP_DROPOUT: return draws(s, x, y);
    case OP_UNARY: case OP_NOT: case OP_ISFINITE: case OP_CAST: case OP_STOP:
        return elementwise(s, x, y);
    case OP_BINARY: return two(s, x, z, y, false);
    case OP_BINARY_NUMBER: return with_number(s, x, y, false);
    case OP_COMPARE: return two(s, x, z, y, true);
    case OP_COMPARE_NUMBER: return with_number(s, x, y, true);
    case OP_WHERE: return select_of(x, z, &v[s->in[2]], y);
    case OP_REDUCE: return reduce(s, x, y);
    case OP_ARGMAX: case OP_ONECOLD: return argmax(s, x, y);
    case OP_CUMSUM: return cumsum(s, x, y);
    case OP_RESHAPE: case OP_FLATTEN: case OP_UNSQUEEZE: case OP_SQUEEZE: return reshape(s, x, y);
    case OP_PERMUTE: case OP_TRANSPOSE: return permute(s, x, y);
    case OP_EXPAND: return expand(s, x, y);
    case OP_SLICE: case OP_FLIP: case OP_PAD: return along_axis(s, x, y);
    case OP_CONCAT: case OP_STACK: return concat(p, s, v, y);
    default: return interpret_product(p, v, i);
    }
}

bool interpret(const program *p, value *v)
{
    interpret_forget();
    for (int i = 0; i < p->n; i++)
        if (!interpret_step(p, v, i)) return false;
    return true;
}
