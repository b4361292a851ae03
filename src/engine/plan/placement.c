/* Placement: gives each stored value its memory (a leaf, a result, a variable, a part of a concat
 * or an arena allocation) and finds the groups that write variables, which run at the end. */
#include "engine/plan/stages.h"

#include "backend/collective.h"

#include <string.h>

typedef struct {
    const wb__request *request;
    const wb__values *values;
    const wb__patterns *patterns;
    const wb__groups *groups;
    const wb__backend *backend;
    wb__placement *out;
} placer;

static int placement_group_of(const placer *p, int x) { return p->groups->of[x].group; }
static int placement_base_of(const placer *p, const wb__value *v, int i)
{
    return p->values->base[wb__input(p->values, v, i)];
}

int wb__same_memory(const wb__values *s, int x)
{
    int at = x;
    while (wb__is_view(s, at) && wb__value_at(s, at)->op == WB__OP_reshape)
        at = wb__input(s, wb__value_at(s, at), 0);
    return wb__is_view(s, at) || wb__value_at(s, at)->layout == WB__CHANNELS_LAST ? x : at;
}

/* Places a computed value that is a result in the memory of that result, unless the value's layout
 * is channels last.  If the value is several results, chooses the first. */
static void choose_results(placer *p)
{
    for (int i = 0; i < p->request->n_results; i++) {
        const int x = wb__same_memory(p->values, wb__root(p->values, p->request->results[i]));
        wb__role *r = &p->out->role[x];
        if (placement_group_of(p, x) >= 0 && r->result < 0 &&
            wb__value_at(p->values, x)->layout != WB__CHANNELS_LAST)
            r->result = i;
    }
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* Returns the value that write i computes: reshapes of it have the same memory. */
static int value_of_write(const placer *p, int i)
{
    return wb__same_memory(p->values, wb__root(p->values, p->request->writes[i]));
}

/* Returns the operand whose memory can become that of the result of v: the one that an allreduce
 * reduces, the one of which scatter_set sets rows.  -1: none can. */
static int operand_replaced_by(const placer *p, const wb__value *v)
{
    const bool reduces = v->op == WB__OP_collective &&
                         p->values->ir.attrs[v->attr] == WB__COLLECT_ALLREDUCE;
    return reduces || v->op == WB__OP_scatter_set ? wb__input(p->values, v, v->n_in - 1) : -1;
}

/* Whether group g can write a variable in place. */
static bool can_write_in_place(const placer *p, int g)
{
    const wb__group *group = &p->groups->group[g];
    return group->kind == WB__GROUP_FUSED ||
           (group->kind == WB__GROUP_LIBRARY &&
            wb__value_at(p->values, p->patterns->product[group->product].value)->op ==
                WB__OP_scatter_set);
}

/* Finds the final groups: groups that compute values for writes, and whose values are neither
 * results nor read by other groups.  They run last and can write variables in place. */
static void find_final(placer *p)
{
    bool *is_final = p->out->is_final;
    for (int i = 0; i < p->request->n_writes; i++) {
        const int g = placement_group_of(p, value_of_write(p, i));
        if (p->request->targets[i] >= 0 && g >= 0 && can_write_in_place(p, g)) is_final[g] = true;
    }
    for (int x = 0; x < p->values->ir.n; x++) {
        const wb__value *v = wb__value_at(p->values, x);
        for (int j = 0; j < v->n_in && !wb__is_view(p->values, x); j++) {
            const int g = placement_group_of(p, placement_base_of(p, v, j));
            if (g >= 0 && g != placement_group_of(p, x)) is_final[g] = false;
        }
    }
    for (int i = 0; i < p->request->n_results; i++) {
        const int g = placement_group_of(
            p, p->values->base[wb__root(p->values, p->request->results[i])]);
        if (g >= 0) is_final[g] = false;
    }
}

/* Whether each value of group g that reads the leaf reads it element by element, not through a
 * view, not broadcast and not as the operand of a product; or sets rows of it. */
static bool reads_by_element(const placer *p, int g, int leaf)
{
    for (int x = p->groups->group[g].first; x >= 0; x = p->groups->of[x].next) {
        const wb__value *v = wb__value_at(p->values, x);
        for (int j = 0; j < v->n_in; j++) {
            const int in = wb__input(p->values, v, j);
            const wb__value *base = wb__value_at(p->values, p->values->base[in]);
            if (base->op != WB__OP_constant || base->leaf != leaf) continue;
            if (v->op == WB__OP_matmul) return false;
            const bool alike = p->groups->group[g].kind == WB__GROUP_LIBRARY
                                   ? in == operand_replaced_by(p, v) && j == v->n_in - 1 &&
                                     base == wb__value_at(p->values, wb__same_memory(p->values, in))
                                   : base == wb__value_at(p->values, in);
            if (!alike || base->size != v->size) return false;
        }
    }
    return true;
}

/* Sets reader[i] to the index of the final group that reads leaf i; -1: none does; -2: several
 * do. */
static void find_final_readers(const placer *p, int *reader)
{
    for (int i = 0; i < p->out->result_buffer; i++) reader[i] = -1;
    for (int x = 0; x < p->values->ir.n; x++) {
        const wb__value *v = wb__value_at(p->values, x);
        const int g = placement_group_of(p, x);
        for (int j = 0; j < v->n_in && g >= 0 && p->out->is_final[g]; j++) {
            const wb__value *b = wb__value_at(p->values, placement_base_of(p, v, j));
            if (b->op == WB__OP_constant)
                reader[b->leaf] = reader[b->leaf] == -1 || reader[b->leaf] == g ? g : -2;
        }
    }
}

/* Chooses the writes that are made in place: a final group computes the value in the variable's
 * memory.  This group may read the variable only element by element, and no other final group may
 * read it. */
static bool choose_writes(placer *p)
{
    const wb__request *r = p->request;
    int *reader = wb__alloc(((size_t)p->out->result_buffer + 1) * sizeof *reader);
    if (!reader) return false;
    find_final_readers(p, reader);
    for (int i = 0; i < r->n_writes; i++) {
        const int x = value_of_write(p, i), g = placement_group_of(p, x), to = r->targets[i];
        wb__role *role = &p->out->role[x];
        if (to < 0 || g < 0 || !p->out->is_final[g] || role->write >= 0 || role->result >= 0 ||
            p->groups->of[x].ends || wb__value_at(p->values, x)->layout != WB__ROW_MAJOR)
            continue;
        if ((reader[to] == -1 || reader[to] == g) && reads_by_element(p, g, to)) role->write = i;
    }
    wb__free(reader);
    return true;
}

/* ---- concats --------------------------------------------------------------------------------- */

/* Whether a reshape only adds or drops dimensions of size 1. */
static bool moves_only_units(const wb__values *s, const wb__value *v)
{
    const wb__value *x = wb__ir_in(&s->ir, v, 0);
    int i = 0, k = 0;
    while (i < v->ndim || k < x->ndim) {
        while (i < v->ndim && v->dims[i] == 1) i++;
        while (k < x->ndim && x->dims[k] == 1) k++;
        if (i == v->ndim || k == x->ndim) break;
        if (v->dims[i++] != x->dims[k++]) return false;
    }
    return i == v->ndim && k == x->ndim;
}

/* Whether the inputs of a concat follow one another along its first dimension that is not 1. */
static bool parts_are_adjacent(const wb__values *s, const wb__value *a)
{
    int first = 0;
    while (first < a->ndim - 1 && a->dims[first] == 1) first++;
    for (int j = 0; j < a->n_in; j++)
        for (int i = first + 1; i < a->ndim; i++)
            if (wb__ir_in(&s->ir, a, j)->dims[i] != a->dims[i]) return false;
    return true;
}

/* Whether the parts of a concat are dense in its memory. */
static bool has_dense_parts(const wb__placement *l, int concat)
{
    for (; concat >= 0; concat = l->role[concat].concat)
        if (l->role[concat].dense != 1) return false;
    return true;
}

/* Follows reshapes from x to the value that they reshape; unless `any`, only those that add or drop
 * dimensions of size 1. */
static int skip_reshapes(const wb__values *s, int x, bool any)
{
    while (wb__is_view(s, x) && wb__value_at(s, x)->op == WB__OP_reshape &&
           (any || moves_only_units(s, wb__value_at(s, x))))
        x = wb__input(s, wb__value_at(s, x), 0);
    return x;
}

int wb__content(const wb__values *s, const wb__placement *l, int concat, int x)
{
    return skip_reshapes(s, x, has_dense_parts(l, concat));
}

/* Where a value would be in the memory of a concat.  dense: its elements are adjacent.  aligned:
 * they also begin at a multiple of the backend's part_align.  units: reshapes between the value and
 * the concat's input only add or drop dimensions of size 1. */
typedef struct { bool dense, aligned, units; } part_place;

/* Whether x can be computed in the memory of a concat.  All readers of x then read x there. */
static bool may_be_part(const placer *p, int x, const part_place *at)
{
    const wb__role *r = &p->out->role[x];
    const wb__value *v = wb__value_at(p->values, x);
    const int group = placement_group_of(p, x);
    if (group < 0 || r->concat >= 0 || r->result >= 0 || r->write >= 0 ||
        (p->groups->of[x].ends && !at->dense) || v->layout != WB__ROW_MAJOR)
        return false;
    if (wb__ops[v->op].class == WB__MOVE) return v->op == WB__OP_concat || at->dense;
    const wb__group *g = &p->groups->group[group];
    if (g->kind != WB__GROUP_LIBRARY) return true;
    const wb__product *by = &p->patterns->product[g->product];
    const bool product = wb__value_at(p->values, by->value)->op == WB__OP_matmul && at->units;
    return (product || at->aligned) && !by->aux_kind && by->result == x &&
           by->sums_of != WB__SUMS_OF_C;
}

/* Where input j of the concat a begins, in elements of the concat. */
static int64_t placement_start_of(const placer *p, const wb__value *a, int j)
{
    const int64_t *start = p->values->ir.attrs + a->attr + j * a->ndim;
    int64_t at = 0;
    for (int i = 0; i < a->ndim; i++) at = at * a->dims[i] + start[i];
    return at;
}

/* Sets *out to the view of x, with the layout BTHD, in the memory `part` of a concat's input that
 * has x's elements in the order of x's memory.  False: strides cannot express it. */
static bool view_in_part(const wb__value *x, const wb__view *part, wb__view *out)
{
    int64_t dims[WB_MAX_DIMS];
    wb__view in_order;
    for (int i = 0; i < x->ndim; i++) dims[i] = x->dims[wb__layout_axis(WB__BTHD, i)];
    if (!wb__view_through(WB__OP_reshape, x->ndim, dims, NULL, part, &in_order)) return false;
    for (int i = 0; i < x->ndim; i++)
        out->strides[wb__layout_axis(WB__BTHD, i)] = in_order.strides[i];
    return true;
}

/* Returns the view of input j in the memory of the dense concat a. */
static wb__view view_of_part(const placer *p, const wb__value *a, int j)
{
    wb__view v;
    wb__contiguous(a, &v);
    memcpy(v.dims, wb__ir_in(&p->values->ir, a, j)->dims, sizeof v.dims);
    v.offset = placement_start_of(p, a, j);
    return v;
}

/* Whether attention can write its result x, with good alignment, as input j of the concat a. */
static bool placement_attention_fits(const placer *p, const wb__value *x, const wb__value *a, int j)
{
    const wb__view part = view_of_part(p, a, j);
    const int64_t each = (int64_t)wb__dtype_size((wb_dtype)a->dtype);
    wb__view v = part;
    if (!view_in_part(x, &part, &v) || part.offset * each % p->backend->part_align) return false;
    for (int i = 0; i < x->ndim - 1; i++)
        if (x->dims[i] > 1 && v.strides[i] * each % p->backend->part_align) return false;
    return x->dims[x->ndim - 1] == 1 || v.strides[x->ndim - 1] == 1;
}

/* Input j of the concat may be a view of a result of attention, by permutations and reshapes that
 * leave its elements in the order of memory.  Returns this result, if attention can write it in the
 * memory of the concat, and if nothing else reads it; else -1. */
static int placement_attention_part(const placer *p, int concat, int j, const int *n_readers)
{
    const wb__value *a = wb__value_at(p->values, concat);
    const int in = wb__input(p->values, a, j);
    int x = in;
    const wb__view *v = &p->values->view[in];
    for (; wb__is_view(p->values, x); x = wb__input(p->values, wb__value_at(p->values, x), 0))
        if (n_readers[x] != 1) return -1;
    const wb__value *base = wb__value_at(p->values, x);
    const wb__role *r = &p->out->role[x];
    if (!p->backend->dear_launches || p->out->role[concat].concat >= 0 || x == in ||
        n_readers[x] != 1 || placement_group_of(p, x) < 0 || r->concat >= 0 || r->result >= 0 ||
        r->write >= 0 || base->op == WB__OP_attention_lse || base->layout != WB__BTHD ||
        !base->size || !wb__is_step((wb__op)base->op, WB__STEP_ATTENTION) ||
        base->size != wb__value_at(p->values, in)->size)
        return -1;
    int64_t stride = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->dims[i] != 1 && v->strides[i] != stride) return -1;
        stride *= v->dims[i];
    }
    return placement_attention_fits(p, base, a, j) ? x : -1;
}

/* How a value is read.  RESHAPED: by a reshape that strides might not express in the memory of a
 * concat.  OPERAND: by a library operation other than a matrix product. */
enum { RESHAPED = 1, OPERAND = 2 };
/* Sets readers[x] to how x is read, and n_readers[x] to by how many values. */
static void find_readers_of_parts(const placer *p, uint8_t *readers, int *n_readers)
{
    for (int i = 0; i < p->values->ir.n; i++) {
        const wb__value *v = wb__value_at(p->values, i);
        for (int j = 0; j < v->n_in && !wb__is_further_result(v->op); j++)
            n_readers[wb__input(p->values, v, j)]++;
        if (v->op == WB__OP_reshape && wb__is_view(p->values, i) && !moves_only_units(p->values, v))
            readers[p->values->base[i]] |= RESHAPED;
        if (wb__ops[v->op].class == WB__LIBRARY && v->op != WB__OP_matmul)
            for (int j = 0; j < v->n_in; j++) readers[placement_base_of(p, v, j)] |= OPERAND;
    }
    for (int i = 0; i < p->patterns->n; i++)  /* an addend is read with the strides of the result */
        if (p->patterns->product[i].aux_kind == WB__AUX_ADDEND)
            readers[p->patterns->product[i].aux] |= OPERAND;
}

bool wb__is_covered(const wb__values *s, const wb__value *a)
{
    int64_t size = 0;
    for (int i = 0; i < a->n_in; i++) size += wb__ir_in(&s->ir, a, i)->size;
    return size == a->size;
}

/* Places the concat x, whose inputs are dense parts of another concat and follow one another there
 * too, in the memory of these parts. */
static void place_inner_concat(placer *p, int x)
{
    const wb__value *a = wb__value_at(p->values, x);
    wb__role *r = &p->out->role[x];
    if (r->concat >= 0 || r->result >= 0 || r->write >= 0 || !a->n_in || r->dense != 1) return;
    const wb__role *first = NULL;
    for (int j = 0; j < a->n_in; j++) {
        const wb__role *in =
            &p->out->role[wb__content(p->values, p->out, x, wb__input(p->values, a, j))];
        if (!first) first = in;
        if (in->concat < 0 || in->concat == x || in->concat != first->concat ||
            !has_dense_parts(p->out, in->concat))
            return;
        const wb__value *whole = wb__value_at(p->values, in->concat);
        if (placement_start_of(p, whole, in->part) - placement_start_of(p, whole, first->part) !=
            placement_start_of(p, a, j))
            return;
    }
    const int64_t begin =
        placement_start_of(p, wb__value_at(p->values, first->concat), first->part);
    if (begin * (int64_t)wb__dtype_size((wb_dtype)a->dtype) % p->backend->part_align) return;
    r->concat = first->concat;
    r->part = first->part;
}

/* Chooses the inputs of the concat that are computed in its memory. */
static void choose_parts_of(placer *p, int concat, const uint8_t *readers, const int *n_readers)
{
    const wb__value *a = wb__value_at(p->values, concat);
    const bool dense = has_dense_parts(p->out, concat);
    for (int j = 0; j < a->n_in; j++) {
        const int in = wb__input(p->values, a, j);
        const int attention = placement_attention_part(p, concat, j, n_readers);
        const int x = attention >= 0 ? attention : skip_reshapes(p->values, in, dense);
        const int64_t byte = placement_start_of(p, a, j) *
                             (int64_t)wb__dtype_size((wb_dtype)a->dtype);
        const part_place at = {.dense = dense, .units = x == skip_reshapes(p->values, in,
                                                                           false),
                               .aligned = dense && byte % p->backend->part_align == 0};
        const int apart = at.aligned ? 0 : dense ? OPERAND : OPERAND | RESHAPED;
        if (attention < 0 && (!may_be_part(p, x, &at) || readers[x] & apart)) continue;
        p->out->role[x].concat = concat;
        p->out->role[x].part = j;
    }
}

static bool placement_choose_parts(placer *p)
{
    const size_t n = (size_t)p->values->ir.n + 1;
    uint8_t *readers = wb__alloc_zero(n, sizeof *readers);
    int *n_readers = wb__alloc_zero(n, sizeof *n_readers);
    const bool good = readers && n_readers;
    if (good) find_readers_of_parts(p, readers, n_readers);
    for (int i = p->values->ir.n - 1; good && i >= 0; i--) {  /* a concat comes before its inputs */
        const wb__value *a = wb__value_at(p->values, i);
        if (a->op != WB__OP_concat || !wb__is_covered(p->values, a)) continue;
        p->out->role[i].dense = parts_are_adjacent(p->values, a);
        choose_parts_of(p, i, readers, n_readers);
        place_inner_concat(p, i);
    }
    wb__free(readers);
    wb__free(n_readers);
    return good;
}

/* ---- operands in the memory of the result ---------------------------------------------------- */

/* Whether only the value `reader` reads the memory of x: x has one use, and so have the values that
 * are parts of x, if x is a concat. */
static bool is_read_once(const placer *p, int x)
{
    const wb__value *v = wb__value_at(p->values, x);
    bool once = v->uses == 1;
    for (int j = 0; v->op == WB__OP_concat && j < v->n_in && once; j++) {
        int part = wb__input(p->values, v, j);
        const int content = wb__content(p->values, p->out, x, part);
        if (p->out->role[content].concat != x) continue;
        for (; part != content && once;
             part = wb__input(p->values, wb__value_at(p->values, part), 0))
            once = wb__value_at(p->values, part)->uses == 1;
        once = once && is_read_once(p, content);
    }
    return once;
}

/* Chooses the operands that are computed in the memory of the result (wb__role.replaced), because
 * nothing else reads them.  A variable is written last, so its memory is not free before. */
static void choose_replaced(placer *p)
{
    for (int i = 0; i < p->values->ir.n; i++) {
        int x = operand_replaced_by(p, wb__value_at(p->values, i));
        if (x < 0 || p->out->role[i].write >= 0) continue;
        while (wb__is_view(p->values, x) && wb__value_at(p->values, x)->op == WB__OP_reshape &&
               wb__value_at(p->values, x)->uses == 1)
            x = wb__input(p->values, wb__value_at(p->values, x), 0);
        wb__role *r = &p->out->role[x];
        if (placement_group_of(p, x) >= 0 && r->result < 0 && r->write < 0 && r->concat < 0 &&
            wb__value_at(p->values, x)->layout == WB__ROW_MAJOR && is_read_once(p, x))
            r->replaced = i;
    }
}

/* Sets *at to the view of v in the memory of the concat r->concat, which is already placed.  v and
 * input r->part of the concat may differ in dimensions of size 1, or in all dimensions if the parts
 * are dense; a result of attention has the part's elements in the order of its layout. */
static void view_of_role(const placer *p, const wb__value *v, const wb__role *r,
                         wb__step_operand *at)
{
    const wb__value *a = wb__value_at(p->values, r->concat),
                    *part = wb__ir_in(&p->values->ir, a, r->part);
    const wb__step_operand *whole = &p->out->operand[p->out->role[r->concat].operand];
    const int64_t *start = p->values->ir.attrs + a->attr + r->part * a->ndim;
    wb__contiguous(v, &at->view);
    at->allocation = whole->allocation;
    at->view.buffer = whole->view.buffer;
    at->view.offset = whole->view.offset;
    for (int k = 0; k < part->ndim; k++) at->view.offset += start[k] * whole->view.strides[k];
    if (has_dense_parts(p->out, r->concat)) return;
    if (v->layout == WB__BTHD) {
        const wb__view part = view_of_part(p, a, r->part);
        view_in_part(v, &part, &at->view);      /* succeeds, as in placement_attention_part */
        return;
    }
    for (int i = 0, k = 0; k < part->ndim; k++) {
        while (i < v->ndim && v->dims[i] == 1 && part->dims[k] != 1) at->view.strides[i++] = 0;
        if (i < v->ndim && v->dims[i] == part->dims[k])
            at->view.strides[i++] = whole->view.strides[k];
    }
}

/* Sets *at to the memory of the stored value x, by its role. */
static void placement_choose_operand(placer *p, int x, wb__step_operand *at)
{
    const wb__value *v = wb__value_at(p->values, x);
    const wb__role *r = &p->out->role[x];
    if (r->concat >= 0) {
        view_of_role(p, v, r, at);
        return;
    }
    wb__contiguous(v, &at->view);
    at->allocation = -1;
    if (r->replaced >= 0) {
        const wb__step_operand *to = &p->out->operand[p->out->role[r->replaced].operand];
        at->allocation = to->allocation;
        at->view.buffer = to->view.buffer;
        at->view.offset = to->view.offset;
    } else if (v->op == WB__OP_constant) {
        at->view.buffer = v->leaf;
        at->view.granule = p->request->leaves[v->leaf].granule;
    } else if (r->write >= 0) {
        at->view.buffer = p->request->targets[r->write];
    } else if (r->result >= 0) {
        at->view.buffer = p->out->result_buffer + r->result;
    } else {
        at->view.buffer = p->out->arena_buffer;
        at->allocation = p->out->n_allocations;
        p->out->bytes[p->out->n_allocations++] = wb__value_bytes(v);
    }
}

static bool placement_choose_operands(placer *p)
{
    wb__placement *o = p->out;
    size_t n = 0;
    for (int x = 0; x < p->values->ir.n; x++)
        n += wb__value_at(p->values, x)->op == WB__OP_constant || p->groups->of[x].stored;
    o->operand = wb__alloc((n + 1) * sizeof *o->operand);
    o->bytes = wb__alloc((n + 1) * sizeof *o->bytes);
    if (!o->operand || !o->bytes) return false;
    for (int x = p->values->ir.n - 1; x >= 0; x--) {        /* a concat comes before its inputs */
        if (wb__value_at(p->values, x)->op != WB__OP_constant && !p->groups->of[x].stored) continue;
        o->role[x].operand = o->n_operands;
        placement_choose_operand(p, x, &o->operand[o->n_operands++]);
    }
    return true;
}

bool wb__placement_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                        const wb__groups *g, wb__placement *l)
{
    placer by = {.request = a->request, .values = s, .patterns = p, .groups = g,
                 .backend = a->device->backend, .out = l};
    const size_t n = (size_t)s->ir.n + 1;
    l->role = wb__alloc(n * sizeof *l->role);
    l->is_final = wb__alloc_zero((size_t)g->n + 1, sizeof *l->is_final);
    if (!l->role || !l->is_final) return false;
    memset(l->role, -1, n * sizeof *l->role);
    l->result_buffer = a->request->n_leaves + a->request->n_targets;
    l->arena_buffer = l->result_buffer + a->request->n_results;
    find_final(&by);
    choose_results(&by);
    if (!choose_writes(&by) || !placement_choose_parts(&by)) return false;
    choose_replaced(&by);
    return placement_choose_operands(&by);
}

void wb__placement_free(wb__placement *l)
{
    wb__free(l->operand);
    wb__free(l->role);
    wb__free(l->is_final);
    wb__free(l->bytes);
}
