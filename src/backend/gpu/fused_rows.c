/* Kernels without reductions: one item per element.  Kernels with reductions along columns: a row
 * per item, or a row per several items of a group.  Long rows that several loops load are kept in
 * local memory. */
#include "backend/gpu/fused.h"

#include <stdio.h>
#include <string.h>

int wb__fuse_log(int64_t n, int most)
{
    int log = 0;
    while (log < most && ((int64_t)1 << log) < n) log++;
    return log;
}

/* ---- one item per element -------------------------------------------------------------------- */

/* Rows of at least LONG_ROW elements have groups of their own; shorter rows share groups.  The
 * limit for rows of vectors, which need fewer indices, is LONG_LINE. */
enum { LONG_ROW = 128, LONG_LINE = 1024, MAX_GROUPS_Y = 32768 };

/* Emits the values and stores of the element or vector of an item. */
static void fused_rows_emit_element(wb__fuse *k, const bool *stores)
{
    wb__fuse_emit_offsets(k, k->needed);
    if (k->vector > 1) {
        wb__fuse_load_vectors(k, k->needed);
        wb__fuse_find_lane_levels(k);
        wb__fuse_emit_values(k, k->needed, WB__LEVEL_PER_ROW);
        wb__fuse_open_lanes(k);
    }
    wb__fuse_emit_values(k, k->needed, WB__LEVEL_FULL);
    for (int i = 0; i < k->program->n_instr; i++)
        if (stores[i]) wb__fuse_emit_store(k, i);
    if (k->vector > 1) {
        wb__fuse_close(k);
        wb__fuse_store_vectors(k, k->needed);
    }
    wb__fuse_close(k);
}

/* Returns the number of items that a kernel needs: its elements or its vectors. */
static int64_t items_of(const wb__fuse *k)
{
    int64_t n = 1;
    for (int d = 0; d < k->n_dims; d++) n *= k->dim[d];
    return n;
}

/* Whether each line along the last dimension has groups of its own. */
static bool fused_rows_has_lines(const wb__fuse *k)
{
    const int64_t line = k->n_dims > 1 ? k->dim[k->n_dims - 1] : 0;
    return k->vector > 1 ? line >= LONG_LINE || (line && line % WB__GROUP_ITEMS == 0)
                         : line >= LONG_ROW;
}

/* Finishes a kernel with an item for each element or vector. */
static int fused_rows_emit_by_element(wb__fuse *k, const bool *stores)
{
    const int64_t n = items_of(k);
    k->inner = ~0u;
    k->impl = k->vector > 1 ? "some elements an item" : "one item an element";
    wb__fuse_uint(k, n, "n");
    wb__fuse_emit_bases(k);
    wb__fuse_line(k, "const uint i = GID(0);");
    wb__fuse_open(k, "if (i < a.n)");
    wb__fuse_emit_indices(k, "i", 0, k->n_dims);
    fused_rows_emit_element(k, stores);
    return wb__fuse_finish(k, wb__quotient_up(n, WB__GROUP_ITEMS), 1, 1);
}

static int fused_rows_emit_by_line(wb__fuse *k, const bool *stores)
{
    const int last = k->n_dims - 1;
    const int64_t cols = k->dim[last], rows = items_of(k) / cols;
    const int64_t y = WB__MIN(rows, MAX_GROUPS_Y);
    k->inner = 1u << last;
    k->impl = k->vector > 1 ? "some elements an item, by lines" : "one item an element, by lines";
    wb__fuse_uint(k, cols, "n");
    wb__fuse_uint(k, rows, "rows");
    wb__fuse_uint(k, y, "high");
    wb__fuse_line(k, "const uint r = GRP(1) + GRP(2) * a.high, i%d = GID(0);", last);
    wb__fuse_emit_indices(k, "r", 0, last);
    wb__fuse_emit_bases(k);
    wb__fuse_open(k, "if (r < a.rows && i%d < a.n)", last);
    fused_rows_emit_element(k, stores);
    return wb__fuse_finish(k, wb__quotient_up(cols, WB__GROUP_ITEMS), y, wb__quotient_up(rows, y));
}

/* The arguments of the functions that create the kernel of a piece. */
typedef struct {
    const bool *stores;
    wb__gpu_work *work;
} fused_rows_piece_arguments;

static int fused_rows_each_of_piece(const wb__gpu_target *t, const wb__fuse_program *p,
                                    int64_t first, void *context)
{
    const fused_rows_piece_arguments *m = context;
    const bool *stores = m->stores;
    wb__fuse k;
    (void)first;
    const int e = wb__fuse_start(&k, t, m->work, p);
    if (e) return e;
    for (int i = 0; i < p->n_instr; i++) k.needed[i] = stores[i];
    wb__fuse_mark_needed(p, k.needed, true);
    if (wb__fuse_has_products(p, k.needed)) {
        wb__fuse_make_loops(&k, WB__ANY_ORDER, WB__NO_VECTORS);
        return wb__fused_products(&k, stores);
    }
    k.once = true;
    wb__fuse_make_loops(&k, WB__ANY_ORDER, WB__VECTORS);
    return fused_rows_has_lines(&k) ? fused_rows_emit_by_line(&k, stores)
        : fused_rows_emit_by_element(&k, stores);
}

int wb__fused_each(const wb__gpu_target *t, const wb__fuse_program *p, const bool *stores,
                   wb__gpu_work *work)
{
    return wb__fused_pieces(t, p, ~0u, fused_rows_each_of_piece,
                            &(fused_rows_piece_arguments){stores, work});
}

/* ---- reductions along columns ---------------------------------------------------------------- */

typedef struct {
    wb__fuse k;
    const bool *stores;
    bool by_item;                   /* an item processes whole rows */
    wb__reduction *reductions;
    int *phase, store_phase;        /* the phase (loop) of each reduction; that of the stores */
    int n_reductions, n_phases;
    bool *needed;                   /* the instructions of one phase */
} fused_rows;

/* Whether instruction i, a store, stores one value per row. */
static bool fused_rows_stores_row(const fused_rows *r, int i)
{
    const wb__fuse_program *p = r->k.program;
    return !wb__fuse_varies(p, &p->views[p->instr[i].arg])
        && r->k.level[p->instr[i].a] <= WB__LEVEL_PER_ROW;
}

static bool is_op(const wb__fuse_program *p, int i, wb__op op)
{
    return p->instr[i].kind == WB__ELEMENTWISE_OP && p->instr[i].op == op;
}

/* Instruction i is a reduction along columns.  If it adds exp(x - m), where m is the maximum of x
 * along columns, and 1 where x is m (also if that is infinite), returns the instruction of m; else
 * -1.  Softmax adds where(x == m, 1, exp(x - m)), and logsoftmax exp(where(x == m, 0, x - m)). */
static int maximum_of(const wb__fuse_program *p, int i)
{
    const wb__instr *all = p->instr;
    const bool log = is_op(p, all[i].a, WB__OP_exp);
    const int at = log ? all[all[i].a].a : all[i].a;
    if (all[i].op != WB__OP_sum || all[i].reg != WB__REG_F32 || !is_op(p, at, WB__OP_where))
        return -1;
    const wb__instr *where = &all[at], *one = &all[where->b];
    if (one->kind != WB__NUMBER || one->scale != 1 || one->shift != !log) return -1;
    if (!log && !is_op(p, where->c, WB__OP_exp)) return -1;
    const int sub = log ? where->c : all[where->c].a;
    if (!is_op(p, sub, WB__OP_sub) || !is_op(p, where->a, WB__OP_eq)) return -1;
    const int x = all[sub].a, m = all[sub].b;
    const wb__instr *eq = &all[where->a], *max = &all[m];
    const bool same = (eq->a == x && eq->b == m) || (eq->a == m && eq->b == x);
    return same && max->kind == WB__REDUCE_COLUMNS && max->op == WB__OP_max && max->a == x &&
           max->reg == WB__REG_F32 && all[x].reg == WB__REG_F32 ? m : -1;
}

/* Assigns each reduction to a loop over the columns (phase).  after[i] receives the first phase in
 * which instruction i can be computed.  Stores along the columns are in the last loop, because they
 * may overwrite operands of earlier loops. */
static void fused_rows_find_phases(fused_rows *r, int *after)
{
    const wb__fuse_program *p = r->k.program;
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        const int of[3] = {in->a, in->b, in->c};
        const bool source = wb__instr_is_source((wb__instr_kind)in->kind);
        after[i] = 0;
        for (int j = 0; j < 3 && !source; j++)
            if (of[j] >= 0) after[i] = WB__MAX(after[i], after[of[j]]);
        if (in->kind == WB__REDUCE_COLUMNS && r->k.needed[i]) {
            int slot = 0;
            const int top = maximum_of(p, i);
            if (top >= 0) after[i] = after[top] - 1;
            for (int j = 0; j < r->n_reductions; j++) slot += r->phase[j] == after[i];
            r->reductions[r->n_reductions] = wb__reduction_of(p, i, r->n_reductions, slot);
            r->reductions[r->n_reductions].top = top;
            r->phase[r->n_reductions++] = after[i]++;
            r->n_phases = WB__MAX(r->n_phases, after[i]);
        }
    }
    r->store_phase = -1;
    for (int i = 0; i < p->n_instr; i++)
        if (r->stores[i] && !fused_rows_stores_row(r, i))
            r->store_phase = WB__MAX(r->store_phase, WB__MAX(after[p->instr[i].a],
                                                             r->n_phases - 1));
    r->n_phases = WB__MAX(r->n_phases, r->store_phase + 1);
}

/* Emits the heads of the loops over the columns, and returns the number of loops.  `index` receives
 * the expression of the column index. */
static int fused_rows_open_columns(fused_rows *r, bool indices, char index[40])
{
    wb__fuse *k = &r->k;
    const int from = k->first[WB__COLS], to = k->first[WB__COLS + 1];
    if (!r->by_item) {
        if (k->target->in_turn) wb__fuse_open(k, "for (uint j = from; j < to; j++)");
        else
            wb__fuse_open(k, "for (uint j = from; j < to; j += a.lanes)");
        wb__fuse_emit_indices(k, "j", from, to);
        if (k->vector > 1) snprintf(index, 40, "(j * %du + lane)", k->vector);
        else strcpy(index, "j");
        return 1;
    }
    strcpy(index, to == from ? "0" : "j");
    if (indices && to > from + 1) wb__fuse_line(k, "j = 0;");
    for (int d = from; d < to; d++) {
        if (!(k->struct_dims >> (d + 16) & 1)) wb__fuse_uint(k, k->dim[d], "e%d", d);
        k->struct_dims |= 1u << (d + 16);
        wb__fuse_open(k, "for (uint i%d = 0; i%d < a.e%d; i%d++)", d, d, d, d);
    }
    if (to == from + 1) snprintf(index, 40, "i%d", from);
    return to - from;
}

/* Emits the values of n reductions of one loop. */
static void emit_reduction_values(fused_rows *r, const wb__reduction *of, int n)
{
    wb__fuse *k = &r->k;
    if (!r->by_item && n) {
        wb__reduction_emit_local(k, of, n);
        wb__reduction_emit_tree(k, of, n, "lane", "a.lanes / 2", "1");
    }
    for (int i = 0; i < n; i++) {
        wb__reduction_emit_value(k, &of[i], r->by_item ? NULL : "l - lane");
        k->emitted[of[i].instr] = WB__EMITTED_PER_ROW;
    }
}

/* Marks what the loop of a phase needs. */
static void mark_phase(fused_rows *r, int phase)
{
    const wb__fuse_program *p = r->k.program;
    memset(r->needed, 0, (size_t)p->n_instr * sizeof *r->needed);
    for (int i = 0; i < p->n_instr; i++)
        if (phase == r->store_phase && r->stores[i] && !fused_rows_stores_row(r, i))
            r->needed[i] = true;
    for (int i = 0; i < r->n_reductions; i++) {
        const wb__reduction *f = &r->reductions[i];
        if (r->phase[i] == phase) r->needed[p->instr[f->top < 0 ? f->instr : f->top].a] = true;
    }
    wb__fuse_mark_needed(p, r->needed, false);
}

/* The operand that instruction i loads in the loop of the marked phase, or NULL. */
static wb__fuse_operand *fused_rows_loaded(const fused_rows *r, int i)
{
    const wb__fuse *k = &r->k;
    return r->needed[i] && k->program->instr[i].kind == WB__LOAD ? &k->operands[k->operand[i]]
                                                                 : NULL;
}

/* Marks what the loop of the marked phase kept as found in local memory by later loops. */
static void fused_rows_find_kept(fused_rows *r)
{
    wb__fuse *k = &r->k;
    for (int i = 0; i < k->program->n_instr; i++) {
        const wb__fuse_operand *p = fused_rows_loaded(r, i);
        for (int j = 0; p && p->kept && j < k->n_operands; j++) {
            wb__fuse_operand *same = &k->operands[j];
            if (same->used && same->id == p->id) same->kept = WB__LOAD_KEPT;
        }
    }
}

static void fused_rows_emit_phase(fused_rows *r, int phase, bool argmax)
{
    wb__fuse *k = &r->k;
    const wb__fuse_program *p = k->program;
    char index[40];
    int first = r->n_reductions, n = 0, n_sums = 0;
    for (int i = r->n_reductions - 1; i >= 0; i--)
        if (r->phase[i] == phase) first = i, n++, n_sums += r->reductions[i].top >= 0;
    mark_phase(r, phase);
    wb__fuse_emit_values(k, r->needed, WB__LEVEL_PER_ROW);
    for (int i = 0; i < r->n_reductions; i++)
        if (r->phase[i] == phase) wb__reduction_declare(k, &r->reductions[i]);
    int open = fused_rows_open_columns(r, argmax, index);
    wb__fuse_emit_offsets(k, r->needed);
    if (k->vector > 1) {
        wb__fuse_load_vectors(k, r->needed);
        wb__fuse_open_lanes(k);
    }
    wb__fuse_emit_values(k, r->needed, WB__LEVEL_FULL);
    for (int i = 0; i < r->n_reductions; i++)
        if (r->phase[i] == phase) wb__reduction_emit_add(k, &r->reductions[i], index);
    for (int i = 0; i < p->n_instr && phase == r->store_phase; i++)
        if (r->stores[i] && !fused_rows_stores_row(r, i)) wb__fuse_emit_store(k, i);
    if (k->vector > 1) {
        wb__fuse_close(k);
        wb__fuse_store_vectors(k, r->needed);
    }
    if (r->by_item && argmax && open > 1) wb__fuse_line(k, "j++;");
    while (open--) wb__fuse_close(k);
    fused_rows_find_kept(r);
    wb__fuse_forget_values(k);
    if (!n) return;
    if (!r->by_item && first && r->phase[0] != phase) wb__fuse_line(k, "BARRIER;");
    emit_reduction_values(r, r->reductions + first, n - n_sums);
    first += n - n_sums;
    for (int i = 0; i < n_sums; i++) wb__reduction_emit_scale(k, &r->reductions[first + i]);
    emit_reduction_values(r, r->reductions + first, n_sums);
}

/* Stores the values per row after all loops. */
static void fused_rows_emit_stores(fused_rows *r)
{
    wb__fuse *k = &r->k;
    const wb__fuse_program *p = k->program;
    bool any = false;
    memset(r->needed, 0, (size_t)p->n_instr * sizeof *r->needed);
    for (int i = 0; i < p->n_instr; i++)
        if (r->stores[i] && fused_rows_stores_row(r, i)) any = r->needed[i] = true;
    if (!any) return;
    wb__fuse_mark_needed(p, r->needed, false);
    wb__fuse_emit_values(k, r->needed, WB__LEVEL_PER_ROW);
    if (!r->by_item) {
        wb__fuse_line(k, "BARRIER;");           /* other items may still read this memory */
        wb__fuse_open(k, "if (lane == 0 && r0 < a.rows)");
    }
    for (int i = 0; i < p->n_instr; i++)
        if (r->stores[i] && fused_rows_stores_row(r, i)) wb__fuse_emit_store(k, i);
    if (!r->by_item) wb__fuse_close(k);
}

/* Whether reduction i comes before reduction j: its phase does, or it needs no maximum. */
static bool comes_before(const fused_rows *r, int i, int j)
{
    if (r->phase[i] != r->phase[j]) return r->phase[i] < r->phase[j];
    return r->reductions[i].top < 0 && r->reductions[j].top >= 0;
}

/* Sorts the reductions by phase. */
static void sort_reductions(fused_rows *r)
{
    for (int i = 1; i < r->n_reductions; i++)
        for (int j = i; j > 0 && comes_before(r, j, j - 1); j--) {
            const wb__reduction f = r->reductions[j];
            const int phase = r->phase[j];
            r->reductions[j] = r->reductions[j - 1], r->phase[j] = r->phase[j - 1];
            r->reductions[j - 1] = f, r->phase[j - 1] = phase;
        }
    for (int i = 0; i < r->n_reductions; i++) r->reductions[i].n = i;
}

/* ---- rows that are kept ---------------------------------------------------------------------- */

/* Each loop over the columns of a row loads what it needs.  A row of at least LONG_ROW_BYTES is not
 * taken to be in the L1 cache still when the next loop comes, so an operand with such rows that
 * several loops load is kept in local memory by the first of them, as it was loaded.
 *
 * Rows in local memory leave room for few groups on a processor, which need more items then: a
 * processor loads as fast as memory delivers when about MANY_ITEMS each load 16 bytes. */
enum {
    LONG_ROW_BYTES = 16384,
    MANY_ITEMS = 1024,
    RESERVED = 1024             /* bytes of local memory that a group takes beside its own */
};
_Static_assert(LONG_ROW_BYTES / WB__CHUNK >= MANY_ITEMS,
               "a group keeps elements of one row, so the column is an element's place");

/* The bytes of an operand that a loop over the columns loads, if it has elements of its own for
 * each row and column; else 0. */
static int64_t bytes_of_row(const wb__fuse *k, const wb__fuse_operand *p)
{
    bool of_row = false, good = p->used && p->view && p->view->buffer != WB__NO_BUFFER;
    for (int d = 0; d < k->first[WB__COLS]; d++) of_row |= p->stride[d] != 0;
    for (int d = k->first[WB__COLS]; d < k->n_dims; d++) good &= p->stride[d] != 0;
    if (!good || !of_row || p->padded || (k->vector > 1 && !p->vector)) return 0;
    return k->points[WB__COLS] * k->vector * (int64_t)wb__dtype_size(p->view->dtype);
}

/* How many loops load the operand with this id. */
static int loops_of(fused_rows *r, int id)
{
    int n = 0;
    for (int phase = 0; phase < r->n_phases; phase++) {
        bool loads = false;
        mark_phase(r, phase);
        for (int i = 0; i < r->k.program->n_instr; i++) {
            const wb__fuse_operand *p = fused_rows_loaded(r, i);
            loads |= p && p->id == id;
        }
        n += loads;
    }
    return n;
}

/* Chooses the items of a group that keeps so many bytes; false: they are too many. */
static bool choose_items(fused_rows *r, int64_t kept)
{
    wb__fuse *k = &r->k;
    const wb__gpu_target *t = k->target;
    const int64_t most = (int64_t)t->launch_bytes;
    const int64_t all = t->processor_bytes ? (int64_t)t->processor_bytes : most;
    bool fits = false;
    for (int items = WB__GROUP_ITEMS; items <= WB__MIN(MANY_ITEMS, t->max_items); items *= 2) {
        const int64_t own = wb__reduction_arrays(NULL, r->reductions, r->n_reductions, items);
        const int64_t groups = WB__MAX(all / (kept + own + RESERVED), 1);
        if (kept + own > most || own > (int64_t)t->local_bytes) break;
        fits = true;
        k->items = items;
        k->resident = items == WB__GROUP_ITEMS ? 0 : (int)WB__MIN(groups, MANY_ITEMS / items);
        if (groups * items >= MANY_ITEMS) break;
    }
    return fits;
}

/* Whether operand i is the first with its id. */
static bool fused_rows_is_first(const wb__fuse *k, int i)
{
    for (int j = 0; j < i; j++)
        if (k->operands[j].used && k->operands[j].id == k->operands[i].id) return false;
    return k->operands[i].used;
}

/* Decides which operands are kept: in their order, as long as they fit. */
static void fused_rows_choose_kept(fused_rows *r)
{
    wb__fuse *k = &r->k;
    if (r->by_item || k->target->in_turn) return;
    for (int i = 0; i < k->n_operands; i++) {
        const int64_t bytes = fused_rows_is_first(k, i) ? bytes_of_row(k, &k->operands[i]) : 0;
        const int id = k->operands[i].id, loops = bytes >= LONG_ROW_BYTES ? loops_of(r, id) : 0;
        const int64_t kept = k->local + wb__quotient_up(bytes, WB__CHUNK) * WB__CHUNK;
        if (loops < 2) continue;
        if (!choose_items(r, kept)) {
            k->work->reloaded += (loops - 1) * bytes * k->points[WB__ROWS];
            continue;
        }
        for (int j = i; j < k->n_operands; j++) {
            wb__fuse_operand *p = &k->operands[j];
            if (!p->used || p->id != id) continue;
            p->kept = WB__LOAD_AND_KEEP;
            p->kept_at = k->local / WB__CHUNK;
        }
        k->local = kept;
    }
}

/* Emits the pointers to what is kept. */
static void emit_kept_pointers(wb__fuse *k)
{
    if (k->local) wb__fuse_line(k, "LAUNCH_LOCAL(kept)");
    for (int i = 0; i < k->n_operands; i++) {
        const wb__fuse_operand *p = &k->operands[i];
        if (!p->kept || !fused_rows_is_first(k, i)) continue;
        const char *stored = wb__gpu_types[p->view->dtype].stored;
        char type[16];
        if (k->vector > 1) snprintf(type, sizeof type, "%sx%d", stored, k->vector);
        else snprintf(type, sizeof type, "%s", stored);
        wb__fuse_uint(k, p->kept_at, "k%d", p->id);
        wb__fuse_line(k, "LOCALP %s *k%d = (LOCALP %s *)(kept + a.k%d);", type, p->id, type, p->id);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int fused_rows_emit_kernel(fused_rows *r)
{
    wb__fuse *k = &r->k;
    const int64_t n = k->points[WB__ROWS], cols = k->points[WB__COLS];
    bool argmax = false;
    for (int i = 0; i < r->n_reductions; i++) argmax |= r->reductions[i].op == WB__OP_argmax;
    const int log = k->target->in_turn ? 8 : wb__fuse_log(cols, wb__fuse_log(k->items, 10));
    for (int d = k->first[WB__COLS]; d < k->n_dims; d++) k->inner |= 1u << d;
    wb__fuse_uint(k, n, "rows");
    if (r->by_item) {
        k->impl = "one item a row";
        wb__fuse_line(k, "const uint r = GID(0);");
        wb__fuse_open(k, "if (r < a.rows)");
    } else {
        k->impl = k->local ? "a group a row, which it keeps" : "a group or part of one a row";
        emit_kept_pointers(k);
        wb__reduction_arrays(k, r->reductions, r->n_reductions, k->items);
        wb__fuse_uint(k, cols, "cols");
        wb__fuse_uint(k, 1 << log, "lanes");
        wb__fuse_uint(k, log, "log");
        wb__fuse_line(k, "const uint l = LID(0), lane = l & (a.lanes - 1);");
        wb__fuse_line(k, "const uint r0 = GRP(0) * (%du >> a.log) + (l >> a.log);", k->items);
        if (k->first[WB__COLS] > k->first[WB__ROWS])
            wb__fuse_line(k, "const uint r = r0 < a.rows ? r0 : 0;");
        wb__fuse_line(k, "const uint cols = r0 < a.rows ? a.cols : 0;");
        if (k->target->in_turn) {  /* each item gets contiguous columns */
            wb__fuse_uint(k, wb__quotient_up(cols, 1 << log), "piece");
            wb__fuse_line(k, "const uint from = lane * a.piece < cols ? lane * a.piece : cols;");
            wb__fuse_line(k, "const uint to = cols - from < a.piece ? cols : from + a.piece;");
        } else {
            wb__fuse_line(k, "const uint from = lane, to = cols;");
        }
    }
    wb__fuse_emit_indices(k, "r", k->first[WB__ROWS], k->first[WB__COLS]);
    wb__fuse_emit_bases(k);
    if (r->by_item && argmax && k->n_dims - k->first[WB__COLS] > 1) wb__fuse_line(k, "uint j;");
    for (int phase = 0; phase < r->n_phases; phase++) fused_rows_emit_phase(r, phase, argmax);
    fused_rows_emit_stores(r);
    if (r->by_item) wb__fuse_close(k);
    return wb__fuse_finish(k, wb__quotient_up(n, k->items >> (r->by_item ? 0 : log)), 1, 1);
}

/* Whether an item processes whole rows: they are short, or local memory is too small. */
static bool is_by_item(const fused_rows *r, const wb__gpu_target *t, const wb__space *s)
{
    int64_t cols = 1, n = 1;
    for (int d = 0; d < s->ndim; d++) *(d < s->ndim - s->col_dims ? &n : &cols) *= s->dims[d];
    return (t->in_turn ? n >= 512 || cols <= 64 : cols <= 4)
        || wb__reduction_arrays(NULL, r->reductions, r->n_reductions, WB__GROUP_ITEMS)
            > (int64_t)t->local_bytes;
}

static int fused_rows_of_piece(const wb__gpu_target *t, const wb__fuse_program *p, int64_t first,
                               void *context)
{
    const fused_rows_piece_arguments *m = context;
    const bool *stores = m->stores;
    const size_t n = (size_t)p->n_instr;
    fused_rows r = {.stores = stores};
    (void)first;
    r.reductions = wb__alloc_zero(n, sizeof *r.reductions);
    r.phase = wb__alloc_zero(2 * n, sizeof *r.phase);
    r.needed = wb__alloc_zero(n, sizeof *r.needed);
    int e =
        r.reductions && r.phase && r.needed ? wb__fuse_start(&r.k, t, m->work, p) : WB_ERROR_MEMORY;
    if (!e) {
        for (size_t i = 0; i < n; i++) r.k.needed[i] = stores[i];
        wb__fuse_mark_needed(p, r.k.needed, true);
        wb__fuse_find_levels(p, r.k.level);
        fused_rows_find_phases(&r, r.phase + n);
        sort_reductions(&r);
        r.by_item = is_by_item(&r, t, &p->space);
        wb__fuse_make_loops(&r.k, WB__BY_ROW, r.by_item ? WB__NO_VECTORS : WB__VECTORS);
        fused_rows_choose_kept(&r);
        e = fused_rows_emit_kernel(&r);
    }
    wb__free(r.reductions);
    wb__free(r.phase);
    wb__free(r.needed);
    return e;
}

/* Adds the kernels of stores that depend on reductions.  A large space is split between rows. */
int wb__fused_rows(const wb__gpu_target *t, const wb__fuse_program *p, const bool *stores,
                   wb__gpu_work *work)
{
    const unsigned rows = (1u << (p->space.ndim - p->space.col_dims)) - 1;
    return wb__fused_pieces(t, p, rows, fused_rows_of_piece,
                            &(fused_rows_piece_arguments){stores, work});
}
