/* Finds the matrix products that the fused kernels that read them compute, if launches are dear.
 *
 * A step of a recurrent layer multiplies a few rows by a matrix, and a cell reads the product.  Two
 * kernels take longer to start, one after the other, than the product takes.  So the kernel of the
 * cell computes the elements of the product that it reads, and nothing stores them.  The backend
 * knows up to which size this is faster (`supports`).
 *
 * The gates of a cell are slices of one product.  A slice of a product along its columns is the
 * product with a slice of the second operand, so each gate becomes a product of its own, with the
 * shape of the cell.  Such products are made only where the cell's kernel computes them.
 *
 * A kernel with a reduction computes an element several times or by several items, so it computes
 * no products. */
#include "engine/plan/stages.h"

#include <string.h>

enum {
    NEAR = 4,               /* most operations from a value to a reduction that joins its kernel */
    MOST_SLICES = WB__MOST_PRODUCTS     /* of a product that become products */
};

/* How the values of `ir` are read. */
typedef struct {
    int *in_place;          /* of each value: number of elementwise readers of its size */
    uint8_t *distance;      /* of each value: number of operations that lead from it to a result, of
                               which the last is a reduction and the others are elementwise; NEAR +
                               1: more, or none do */
} products_reading;

static bool is_same_size(const wb__ir *ir, const wb__value *reader, int x)
{
    const wb__value *v = &ir->value[x];
    return reader->ndim == v->ndim && !memcmp(reader->dims, v->dims, v->ndim * sizeof v->dims[0]);
}

/* Records how value i reads its inputs. */
static void count_reads(const wb__ir *ir, int i, products_reading *r)
{
    const wb__value *v = &ir->value[i];
    const bool reduces = wb__ops[v->op].class == WB__REDUCE;
    if (!(reduces || wb__is_elementwise((wb__op)v->op))) return;
    const int distance = reduces ? 1 : WB__MIN(r->distance[i] + 1, NEAR + 1);
    for (int j = 0; j < v->n_in; j++) {
        const int x = ir->inputs[v->in + j];
        r->distance[x] = (uint8_t)WB__MIN(r->distance[x], distance);
        r->in_place[x] += !reduces && is_same_size(ir, v, x);
    }
}

/* Fills r.  all: also counts reads by values that nothing uses. */
static bool products_find_reads(const wb__ir *ir, bool all, products_reading *r)
{
    const size_t n = (size_t)ir->n + 1;
    r->in_place = wb__alloc_zero(n, sizeof *r->in_place);
    r->distance = wb__alloc(n);
    if (!r->in_place || !r->distance) return false;
    memset(r->distance, NEAR + 1, n);
    for (int i = ir->n - 1; i >= 0; i--)
        if (all || ir->value[i].uses) count_reads(ir, i, r);
    return true;
}

static void reading_free(products_reading *r)
{
    wb__free(r->in_place);
    wb__free(r->distance);
}

/* Whether only elementwise values of the size of x read x, and no reduction joins their kernel. */
static bool is_read_in_place(const products_reading *r, int x, int uses)
{
    return r->in_place[x] && r->in_place[x] == uses && r->distance[x] > NEAR;
}

/* Whether the backend computes the product v faster in the kernel that reads it. */
static bool is_faster_in_reader(const wb__attempt *a, const wb__ir *ir, const wb__value *v)
{
    if (!a->device->backend->dear_launches || v->op != WB__OP_matmul || v->ndim == WB_MAX_DIMS ||
        !v->size)
        return false;
    wb__step s = wb__step_blank(a, WB__STEP_FUSED);
    s.n_views = 3;
    for (int i = 0; i < 2; i++) {
        wb__value in = *wb__ir_in(ir, v, i);
        in.layout = WB__ROW_MAJOR;
        wb__contiguous(&in, &s.views[i]);
        s.views[i] = wb__matrix_view(s.views[i], ir->attrs[v->attr + i] != 0, v);
    }
    wb__contiguous(v, &s.views[2]);
    return wb__supported(a, &s);
}

/* Whether the slice v cuts only the last axis of x, without changing the order of elements. */
static bool cuts_columns(const wb__ir *ir, const wb__value *v, const wb__value *x)
{
    for (int i = 0; i < x->ndim - 1; i++)
        if (v->dims[i] != x->dims[i] || ir->attrs[v->attr + i] ||
            ir->attrs[v->attr + x->ndim + i] != 1)
            return false;
    return v->size && ir->attrs[v->attr + 2 * x->ndim - 1] > 0;
}

void wb__find_sliced(const wb__attempt *a, const wb__rewrite *w)
{
    const wb__ir *ir = w->from;
    products_reading r = {0};
    wb__slices *slices = wb__alloc_zero((size_t)ir->n + 1, sizeof *slices);
    const bool good = slices && products_find_reads(ir, false, &r);
    for (int i = 0; good && i < ir->n; i++) {
        const wb__value *v = &ir->value[i];
        if (v->op == WB__OP_slice && v->uses && wb__ir_in(ir, v, 0)->op == WB__OP_matmul &&
            cuts_columns(ir, v, wb__ir_in(ir, v, 0)) && is_read_in_place(&r, i, v->uses))
            wb__slices_add(slices, ir, i);
    }
    for (int x = 0; good && x < ir->n; x++)
        w->of[x].gone = wb__slices_are_all(&slices[x], &ir->value[x]) &&
                        slices[x].n <= MOST_SLICES && is_faster_in_reader(a, ir, &ir->value[x]);
    reading_free(&r);
    wb__free(slices);
}

int wb__slice_product(const wb__rewrite *w, int i)
{
    const wb__ir *from = w->from;
    wb__ir *to = w->to;
    const wb__value *v = &from->value[i], *x = wb__ir_in(from, v, 0);
    if (!w->of[from->inputs[v->in]].gone) return -1;        /* x is a product */
    const int64_t *cut = from->attrs + v->attr, *transposed = from->attrs + x->attr;
    const int last = x->ndim - 1, b = w->of[from->inputs[x->in + 1]].to;
    if (to->failed) return 0;
    const int ndim = to->value[b].ndim, axis = ndim - 1 - (transposed[1] != 0);
    int64_t dims[WB_MAX_DIMS], attrs[2 * WB_MAX_DIMS];
    memcpy(dims, to->value[b].dims, sizeof dims);
    for (int d = 0; d < ndim; d++) {
        attrs[d] = d == axis ? cut[last] : 0;
        attrs[ndim + d] = d == axis ? cut[x->ndim + last] : 1;
    }
    dims[axis] = v->dims[last];
    const int in[2] = {w->of[from->inputs[x->in]].to,
                       wb__ir_move(to, WB__OP_slice, b, ndim, dims, 2 * ndim, attrs)};
    wb__value part = *x;
    memcpy(part.dims, v->dims, sizeof part.dims);
    part.in_reader = true;
    return wb__ir_make(to, part, 2, in, x->n_attr, transposed);
}

/* Marks the values that values fused into products read. */
static void mark_read_by_products(const wb__values *s, const wb__patterns *p, bool *read_by_product)
{
    for (int i = 0; i < s->ir.n; i++) {
        const wb__value *v = wb__value_at(s, i);
        for (int j = 0; j < v->n_in && (p->of[i].product >= 0 || p->of[i].unused); j++)
            read_by_product[wb__input(s, v, j)] = true;
    }
}

/* Whether the kernel that reads the product p is to compute it. */
static bool belongs_to_reader(const wb__attempt *a, const wb__values *s, const wb__product *p,
                              const products_reading *r, const bool *read_by_product)
{
    const wb__value *v = wb__value_at(s, p->value), *y = wb__value_at(s, p->result);
    if (v->op != WB__OP_matmul || v->layout != WB__ROW_MAJOR || s->needed[p->result]) return false;
    if (v->in_reader) return true;
    return !p->aux_kind && p->sums < 0 && !read_by_product[p->result] &&
           is_read_in_place(r, p->result, y->uses) && is_faster_in_reader(a, &s->ir, v);
}

bool wb__products_choose(const wb__attempt *a, const wb__values *s, wb__patterns *p)
{
    products_reading r = {0};
    bool *read_by_product = wb__alloc_zero((size_t)s->ir.n + 1, sizeof *read_by_product);
    const bool good = read_by_product && products_find_reads(&s->ir, true, &r);
    if (good) mark_read_by_products(s, p, read_by_product);
    for (int i = 0; good && i < p->n; i++) {
        wb__product *d = &p->product[i];
        d->in_reader = belongs_to_reader(a, s, d, &r, read_by_product);
        if (d->in_reader)
            *d = (wb__product){.value = d->value, .made_at = d->value, .result = d->value,
                               .bias = -1, .aux = -1, .bits = -1, .sums = -1, .in_reader = true};
    }
    for (int x = 0; good && x < s->ir.n; x++) {
        const int of = p->of[x].product;
        if (of >= 0 && p->product[of].in_reader && p->product[of].value != x) p->of[x].product = -1;
    }
    reading_free(&r);
    wb__free(read_by_product);
    return good;
}
