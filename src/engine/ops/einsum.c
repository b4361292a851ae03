/* wb_einsum.  Operands are contracted from left to right, each pair by one batched product
 * [batch, rows, inner] · [batch, inner, columns]. */
#include "engine/ops/op.h"

#include <string.h>

enum { EINSUM_LETTERS = 128, EINSUM_MOST = 32 };

typedef struct {
    const char *text;
    int64_t size[EINSUM_LETTERS];               /* size of each letter; -1: it is not used yet */
    int uses[EINSUM_LETTERS];           /* for each letter: number of operands left that have it */
    bool wanted[EINSUM_LETTERS];                /* for each letter: it is in the result */
    char result[WB_MAX_DIMS];
    int n_result;
} notation;

/* A tensor whose axes have letters. */
typedef struct {
    wb_tensor *x;
    int n;
    char letter[WB_MAX_DIMS];
} einsum_term;

static int index_of_letter(const einsum_term *t, char c)
{
    for (int i = 0; i < t->n; i++)
        if (t->letter[i] == c) return i;
    return -1;
}

static bool einsum_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Takes the diagonal of two axes of x, which becomes its last axis. */
static bool take_diagonal(einsum_term *t, int i, int j)
{
    int64_t order[WB_MAX_DIMS], dims[WB_MAX_DIMS];
    const char c = t->letter[i];
    const int64_t n = t->x->dims[i];
    int m = 0;
    for (int k = 0; k < t->n; k++)
        if (k != i && k != j) {
            t->letter[m] = t->letter[k];
            dims[m] = t->x->dims[k];
            order[m++] = k;
        }
    order[m] = i;
    order[m + 1] = j;
    dims[m] = n * n;
    t->letter[m] = c;
    t->x = wb_permute_array(t->x, t->n, order);
    t->x = t->x ? wb_reshape_array(t->x, m + 1, dims) : NULL;
    t->x = t->x && n ? wb_slice(t->x, m, 0, n * n, n + 1) : t->x;
    t->n = m + 1;
    return t->x;
}

/* Reads the letters of an operand from *at on, up to a comma, "->" or the end. */
static bool einsum_read_term(notation *e, const char **at, wb_tensor *x, einsum_term *t)
{
    t->x = x;
    t->n = 0;
    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        const char c = **at;
        if (c == ' ') continue;
        if (!einsum_is_letter(c))
            return !wb__fail(WB_ERROR_ARGUMENT, "einsum: '%c' in \"%s\" is no letter%s", c, e->text,
                             c == '.' ? "; \"...\" is not supported" : "");
        if (t->n == x->ndim) break;
        if (e->size[(int)c] >= 0 && e->size[(int)c] != x->dims[t->n])
            return !wb__fail(WB_ERROR_SHAPE, "einsum: '%c' in \"%s\" has the sizes %lld and %lld",
                             c, e->text, (long long)e->size[(int)c], (long long)x->dims[t->n]);
        e->size[(int)c] = x->dims[t->n];
        e->uses[(int)c]++;
        t->letter[t->n++] = c;
    }
    if (t->n == x->ndim && (!**at || **at == ',' || **at == '-')) return true;
    return !wb__fail(WB_ERROR_SHAPE, "einsum: an operand in \"%s\" has other axes than %s", e->text,
                     wb_describe(x));
}

/* Reads the result's letters from `at`, after "->"; NULL: letters that occur once, in order. */
static bool einsum_read_result(notation *e, const char *at)
{
    for (int c = 'A'; c <= 'z' && !at; c++)
        if (e->uses[c] == 1) {
            if (e->n_result == WB_MAX_DIMS) break;
            e->result[e->n_result++] = (char)c;
            e->wanted[c] = true;
        }
    for (; at && *at; at++) {
        if (*at == ' ') continue;
        if (!einsum_is_letter(*at) || e->size[(int)*at] < 0 || e->wanted[(int)*at])
            return !wb__fail(WB_ERROR_ARGUMENT, "einsum: '%c' in the result of \"%s\" %s", *at,
                             e->text, !einsum_is_letter(*at) ? "is no letter"
                             : e->size[(int)*at] < 0  ? "is in no operand" : "occurs twice");
        if (e->n_result == WB_MAX_DIMS)
            return !wb__fail(WB_ERROR_SHAPE, "einsum: the result of \"%s\" has more than %d axes",
                             e->text, WB_MAX_DIMS);
        e->result[e->n_result++] = *at;
        e->wanted[(int)*at] = true;
    }
    return true;
}

/* Takes diagonals of letters that the operand has twice, and sums over letters that only it has. */
static bool einsum_reduce_alone(notation *e, einsum_term *t)
{
    for (int j = 1; j < t->n; j++) {
        const int i = index_of_letter(t, t->letter[j]);
        if (i == j) continue;
        e->uses[(int)t->letter[j]]--;
        if (!take_diagonal(t, i, j)) return false;
        j = 0;
    }
    unsigned mask = 0;
    int m = 0;
    for (int i = 0; i < t->n; i++)
        if (e->uses[(int)t->letter[i]] == 1 && !e->wanted[(int)t->letter[i]]) mask |= 1u << i;
        else t->letter[m++] = t->letter[i];
    t->n = m;
    if (mask) t->x = wb__reduce(WB__OP_sum, t->x, mask, false);
    return t->x;
}

/* Appends the letters of t that are (or are not) in `other`, and that (if `kept`) are in the result
 * or a later operand.  Multiplies *size by their sizes. */
static void einsum_append_letters(const notation *e, const einsum_term *t, const einsum_term *other,
                                  bool shared, bool kept, int64_t *size, int *n, char *chosen)
{
    for (int i = 0; i < t->n; i++) {
        const int c = t->letter[i];
        const bool both = index_of_letter(other, t->letter[i]) >= 0;
        if (both != shared || (both && (e->wanted[c] || e->uses[c] > 2) != kept)) continue;
        chosen[(*n)++] = t->letter[i];
        *size *= e->size[c];
    }
}

/* Returns t with its axes in the order of `letters`, reshaped to [a, b, c]. */
static wb_tensor *einsum_permuted(const einsum_term *t, const char *letters, int64_t a, int64_t b,
                                  int64_t c)
{
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < t->n; i++) order[i] = index_of_letter(t, letters[i]);
    wb_tensor *x = wb_permute_array(t->x, t->n, order);
    return x ? wb_reshape_array(x, 3, (int64_t[]){a, b, c}) : NULL;
}

/* Replaces p by the product of p and q. */
static bool einsum_contract(notation *e, einsum_term *p, const einsum_term *q)
{
    char batch[2 * WB_MAX_DIMS], inner[WB_MAX_DIMS], rows[2 * WB_MAX_DIMS], columns[WB_MAX_DIMS];
    int n_batch = 0, n_inner = 0, n_rows = 0, n_columns = 0;
    int64_t b = 1, k = 1, m = 1, n = 1, dims[2 * WB_MAX_DIMS];
    einsum_append_letters(e, p, q, true, true, &b, &n_batch, batch);
    einsum_append_letters(e, p, q, true, false, &k, &n_inner, inner);
    einsum_append_letters(e, p, q, false, false, &m, &n_rows, rows);
    einsum_append_letters(e, q, p, false, false, &n, &n_columns, columns);
    char of_p[2 * WB_MAX_DIMS], of_q[2 * WB_MAX_DIMS], made[4 * WB_MAX_DIMS];
    memcpy(of_p, batch, (size_t)n_batch);
    memcpy(of_p + n_batch, rows, (size_t)n_rows);
    memcpy(of_p + n_batch + n_rows, inner, (size_t)n_inner);
    memcpy(of_q, batch, (size_t)n_batch);
    memcpy(of_q + n_batch, inner, (size_t)n_inner);
    memcpy(of_q + n_batch + n_inner, columns, (size_t)n_columns);
    wb_tensor *x = einsum_permuted(p, of_p, b, m, k), *y = einsum_permuted(q, of_q, b, k, n);
    if (!x || !y) return false;
    if (n_inner && wb__dtype_float((wb_dtype)x->dtype)) x = wb_matmul(x, y);
    else {
        x = wb_mul(wb_reshape_array(x, 4, (int64_t[]){b, m, k, 1}),
                   wb_reshape_array(y, 4, (int64_t[]){b, 1, k, n}));
        x = wb__reduce(WB__OP_sum, x, 1u << 2, false);
    }
    const int ndim = n_batch + n_rows + n_columns;
    memcpy(made, batch, (size_t)n_batch);
    memcpy(made + n_batch, rows, (size_t)n_rows);
    memcpy(made + n_batch + n_rows, columns, (size_t)n_columns);
    if (ndim > WB_MAX_DIMS)
        return !wb__fail(WB_ERROR_SHAPE, "einsum: a product in \"%s\" has %d axes; a tensor has at "
                         "most %d", e->text, ndim, WB_MAX_DIMS);
    for (int i = 0; i < ndim; i++) dims[i] = e->size[(int)made[i]];
    for (int i = 0; i < n_batch; i++) e->uses[(int)batch[i]]--;
    for (int i = 0; i < n_inner; i++) e->uses[(int)inner[i]] -= 2;
    memcpy(p->letter, made, (size_t)ndim);
    p->n = ndim;
    p->x = x ? wb_reshape_array(x, ndim, dims) : NULL;
    return p->x;
}

static bool einsum_read_operands(notation *e, int n, wb_tensor *const *x, einsum_term *terms)
{
    const char *at = e->text;
    for (int i = 0; i < n; i++) {
        if (!wb__operand("einsum", x[i]) || !wb__one_device("einsum", x[0], x[i])) return false;
        if (x[i]->dtype == WB_BOOL || x[i]->dtype != x[0]->dtype)
            return !wb__fail(WB_ERROR_DTYPE, "einsum: operands have one dtype, not bool: %s · %s",
                             wb_describe(x[0]), wb_describe(x[i]));
        if (!einsum_read_term(e, &at, x[i], &terms[i])) return false;
        if (i + 1 < n ? *at != ',' : *at == ',')
            return !wb__fail(WB_ERROR_ARGUMENT, "einsum: \"%s\" is not for %d operands", e->text,
                             n);
        if (*at == ',') at++;
    }
    if (*at && at[1] != '>')
        return !wb__fail(WB_ERROR_ARGUMENT, "einsum: \"%s\" has no \"->\" after the operands",
                         e->text);
    return einsum_read_result(e, *at ? at + 2 : NULL);
}

static wb_tensor *einsum(const char *text, int n, wb_tensor *const *x)
{
    notation e = {.text = text};
    einsum_term terms[EINSUM_MOST];
    for (int i = 0; i < EINSUM_LETTERS; i++) e.size[i] = -1;
    if (!text || !x || n < 1 || n > EINSUM_MOST)
        return wb__fail_null(WB_ERROR_ARGUMENT, "einsum: %s", !text ? "no text" : !x || n < 1
                             ? "no operands" : "more than 32 operands");
    if (!einsum_read_operands(&e, n, x, terms)) return NULL;
    for (int i = 0; i < n; i++)
        if (!einsum_reduce_alone(&e, &terms[i])) return NULL;
    for (int i = 1; i < n; i++)
        if (!einsum_contract(&e, &terms[0], &terms[i])) return NULL;
    int64_t order[WB_MAX_DIMS];
    for (int i = 0; i < e.n_result; i++) order[i] = index_of_letter(&terms[0], e.result[i]);
    return wb_permute_array(terms[0].x, e.n_result, order);
}

wb_tensor *wb_einsum_array(const char *text, int n, wb_tensor *const *operands)
{
    const wb__frame f = wb__frame_begin();
    return wb__frame_end(f, einsum(text, n, operands));
}
