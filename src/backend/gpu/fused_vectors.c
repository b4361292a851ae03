/* Vectors: an item processes several adjacent elements at once, which it loads and stores as one
 * vector of up to 16 bytes.  The space is then one of vectors: the innermost dimension is divided
 * by the length of a vector, and so are the offsets and other strides of the operands that are
 * vectors.  Operands that do not vary along that dimension stay scalars.
 *
 *     const u16x8 l0 = p0[i0];
 *     u16x8 m1;
 *     UNROLL for (uint lane = 0; lane < 8u; lane++) {
 *         const f32 v0 = OF_BF16(l0.at[lane]);
 *         ...
 *         m1.at[lane] = TO_BF16_f32(v2);
 *     }
 *     p1[i0] = m1; */
#include "backend/gpu/fused.h"

enum {
    LARGEST = 16,               /* bytes of a vector; memory is aligned to as many */
    LARGEST_ONCE = 32,      /* bytes of a vector that an item loads before its loop, in two loads */
    VECTORS_LONGEST = 8,        /* elements of the longest vector */
    LONG_PROGRAM = 64           /* instructions of a program that gets no longest vectors */
};

static bool vectors_in_memory(const wb__fuse_operand *p)
{
    return p->view && p->view->buffer != WB__NO_BUFFER;
}

/* Whether vectors of n elements along the last dimension suit an operand. */
static bool vectors_suits(const wb__fuse *k, const wb__fuse_operand *p, int n)
{
    const int last = k->n_dims - 1;
    if (!p->stride[last]) return true;
    if (p->stride[last] != 1) return false;
    if (!vectors_in_memory(p)) return true;
    const int64_t bytes = (int64_t)wb__dtype_size(p->view->dtype) * n;
    if (bytes > (k->columns && p->place == WB__BEFORE_LOOP ? LARGEST_ONCE : LARGEST) ||
        p->view->offset % n || p->view->granule % bytes)
        return false;
    for (int d = 0; d < last; d++)
        if (p->stride[d] % n) return false;
    return true;
}

/* Returns the length of the longest vectors that suit all operands and leave an item to each thread
 * of the device; 1: there are none.  may_cut: the last vector of a line may be cut off.  A loop
 * over rows has fewer items anyway. */
static int vectors_longest(const wb__fuse *k, bool may_cut)
{
    const int last = k->n_dims - 1;
    const int64_t items = (int64_t)WB__GROUP_ITEMS * k->target->processors;
    int instructions = 0;
    if (k->target->in_turn || last < 0) return 1;
    for (int i = 0; i < k->program->n_instr; i++)
        instructions += k->needed[i] && k->program->instr[i].kind != WB__REDUCE_ROWS;
    int most = instructions > LONG_PROGRAM ? VECTORS_LONGEST / 2 : VECTORS_LONGEST;
    if (k->longest) most = WB__MIN(most, k->longest);
    for (int n = most; n > 1; n /= 2) {
        /* a line of one vector would be a dimension of size 1, which no index is divided by */
        bool good = k->dim[last] >= (last && !k->columns ? 2 * n : n), some = false;
        good &= may_cut || k->dim[last] % n == 0;
        good &= k->columns || k->program->points / n >= items;
        for (int i = 0; i < k->n_operands; i++) {
            const wb__fuse_operand *p = &k->operands[i];
            if (!p->used || p->place == WB__BEHIND_LOOP) continue;
            good &= vectors_suits(k, p, n) && (!p->padded || wb__fuse_window_suits(k, p, n));
            some |= vectors_in_memory(p) && p->stride[last];
        }
        if (good && some) return n;
    }
    return 1;
}

void wb__fuse_make_vectors(wb__fuse *k, bool may_cut)
{
    const int last = k->n_dims - 1, n = k->vector = vectors_longest(k, may_cut);
    if (n == 1) return;
    k->elements = k->dim[last] % n ? k->dim[last] : 0;
    k->dim[last] = wb__quotient_up(k->dim[last], n);
    for (int i = 0; i < k->n_operands; i++) {
        wb__fuse_operand *p = &k->operands[i];
        p->window.begin[last] /= n;         /* divides without remainder (wb__fuse_window_suits) */
        p->window.size[last] /= n;
        if (!p->used || !p->stride[last] || p->place == WB__BEHIND_LOOP) continue;
        p->vector = vectors_in_memory(p);
        for (int d = 0; d < last && p->vector; d++) p->stride[d] /= n;
        if (!p->vector) p->stride[last] = n;
    }
}

/* Whether instruction i is needed, is of this kind and moves a vector at the place k->place, and no
 * needed instruction before it does so for the same operand. */
static bool vectors_moves(const wb__fuse *k, const bool *needed, int i, wb__instr_kind kind)
{
    const wb__instr *instr = k->program->instr;
    if (!needed[i] || instr[i].kind != kind || !k->operands[k->operand[i]].vector ||
        (k->columns && k->operands[k->operand[i]].place != k->place))
        return false;
    for (int j = 0; j < i; j++)
        if (needed[j] && instr[j].kind == kind
            && k->operands[k->operand[j]].id == k->operands[k->operand[i]].id)
            return false;
    return true;
}

/* Emits the loads or stores of all vectors; `whole` false: of one element, unless it is cut off. */
static void vectors_move_all(wb__fuse *k, const bool *needed, wb__instr_kind kind, bool whole)
{
    for (int i = 0; i < k->program->n_instr; i++) {
        char at[48], from[WB__FUSE_FROM], once[WB__FUSE_ONCE];
        if (!vectors_moves(k, needed, i, kind)) continue;
        const wb__fuse_operand *p = &k->operands[k->operand[i]];
        const char *type = wb__gpu_types[p->view->dtype].stored;
        wb__fuse_write_offset(k, p, at);
        wb__fuse_write_load(p, at, from);
        if (p->padded) {                        /* no vector of its space is cut off */
            wb__fuse_emit_window(k, &k->operands[k->operand[i]]);
            wb__fuse_line(k, "if (in%d) l%d = p%d[at%d];", p->id, p->id, p->id, p->id);
            wb__fuse_line(k, "else UNROLL for (uint lane = 0; lane < %du; lane++) "
                          "l%d.at[lane] = 0;", k->vector, p->id);
        } else if (kind == WB__LOAD && whole) wb__fuse_line(k, "l%d = %s;", p->id, from);
        else if (kind == WB__LOAD)
            wb__fuse_line(k, "l%d.at[lane] = lane < left ? ((GLOBAL %s *)(p%d + %s))[lane] : 0;",
                          p->id, type, p->id, at);
        else if (whole)
            wb__fuse_line(k, "%sp%d[%s] = m%d;", wb__fuse_once_condition(k, p, once), p->id, at,
                          p->id);
        else
            wb__fuse_line(k, "%sif (lane < left) ((GLOBAL %s *)(p%d + %s))[lane] = m%d.at[lane];",
                          wb__fuse_once_condition(k, p, once), type, p->id, at, p->id);
    }
}

void wb__fuse_open_lanes(wb__fuse *k)
{
    wb__fuse_open(k, "UNROLL for (uint lane = 0; lane < %du; lane++)", k->vector);
}

/* Emits code that loads or stores all vectors.  The last vector of a space may be cut off: then its
 * elements are moved one by one. */
static void move_vectors(wb__fuse *k, const bool *needed, wb__instr_kind kind)
{
    if (!k->elements) {
        vectors_move_all(k, needed, kind, true);
        return;
    }
    wb__fuse_open(k, "if (left >= %du)", k->vector);
    vectors_move_all(k, needed, kind, true);
    wb__fuse_close(k);
    wb__fuse_open(k, "else");
    wb__fuse_open_lanes(k);
    vectors_move_all(k, needed, kind, false);
    wb__fuse_close(k);
    wb__fuse_close(k);
}

void wb__fuse_load_vectors(wb__fuse *k, const bool *needed)
{
    for (int i = 0; i < k->program->n_instr; i++)
        for (int store = 0; store < 2; store++) {
            if (!vectors_moves(k, needed, i, store ? WB__STORE : WB__LOAD)) continue;
            const wb__fuse_operand *o = &k->operands[k->operand[i]];
            wb__fuse_line(k, "%sx%d %s%d;", wb__gpu_types[o->view->dtype].stored, k->vector,
                          store ? "m" : "l", o->id);
        }
    if (k->elements) {
        wb__fuse_uint(k, k->elements, "elements");
        wb__fuse_line(k, "const uint left = a.elements - i0 * %du;", k->vector);
    }
    move_vectors(k, needed, WB__LOAD);
}

void wb__fuse_store_vectors(wb__fuse *k, const bool *needed) { move_vectors(k, needed, WB__STORE); }
