/* Reduces the space of a fused kernel to as few dimensions as its views allow, and generates the
 * index computations. */
#include "backend/gpu/fused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- dimensions ------------------------------------------------------------------------------ */

/* Returns the loop (outer, rows or columns) that dimension d belongs to. */
static wb__loop loop_of(const wb__space *s, wb__walk walk, int d)
{
    const int outer = s->ndim - s->row_dims - s->col_dims;
    if (walk == WB__ANY_ORDER) return WB__COLS;
    if (walk == WB__IN_ORDER) return WB__ROWS;
    if (d >= s->ndim - s->col_dims) return WB__COLS;
    return d < outer && walk == WB__BY_GROUP ? WB__OUTER : WB__ROWS;
}

/* Fills k->operands with the views and iotas, and marks those that needed instructions use. */
static void loops_find_operands(wb__fuse *k)
{
    const wb__fuse_program *p = k->program;
    k->n_operands = p->n_views;
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        k->operand[i] = -1;
        switch ((wb__instr_kind)in->kind) {
        case WB__LOAD: case WB__STORE: k->operand[i] = in->arg; break;
        case WB__REDUCE_ROWS: case WB__REDUCE_ALL:
            k->operand[i] = k->n_operands++;        /* also if p does not load the view */
            k->operands[k->operand[i]].place = WB__BEHIND_LOOP;
            break;
        case WB__UNIFORM: case WB__GAUSSIAN: k->operand[i] = in->c; break;
        case WB__PRODUCT:                           /* the second operand; its first one follows */
            k->operands[in->c].used |= k->needed[i];
            k->operands[in->c].view = &p->views[in->c];
            k->operand[i] = in->arg;
            break;
        case WB__IOTA: k->operand[i] = k->n_operands++; break;
        default: break;
        }
        if (k->operand[i] < 0) continue;
        wb__fuse_operand *operand = &k->operands[k->operand[i]];
        operand->used |= k->needed[i];
        const bool iota = in->kind == WB__IOTA;
        if (iota) operand->stride[in->arg] = 1;
        else operand->view = &p->views[in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN
                                           ? in->c : in->arg];
        operand->padded = in->kind == WB__LOAD && in->a >= 0;
        if (!operand->padded) continue;
        operand->window = p->windows[in->a];
        for (int d = 0; d < p->space.ndim; d++) operand->outside |= !operand->window.size[d];
    }
}

static void swap_dims(wb__fuse *k, int a, int b)
{
    const int64_t d = k->dim[a];
    k->dim[a] = k->dim[b];
    k->dim[b] = d;
    for (int i = 0; i < k->n_operands; i++) {
        int64_t *s = k->operands[i].stride, t = s[a];
        s[a] = s[b];
        s[b] = t;
        wb__fuse_window_swap(&k->operands[i].window, a, b);
    }
}

/* Sorts the dimensions by their strides in one view, so that the smallest is innermost.  The view
 * is that of the first store or, if there is none, of the first load. */
static void loops_sort_dims(wb__fuse *k)
{
    const wb__fuse_operand *guide = NULL;
    for (int i = 0; i < k->program->n_instr; i++) {
        const int kind = k->program->instr[i].kind;
        if (!k->needed[i] || (kind != WB__STORE && kind != WB__LOAD)) continue;
        if (!guide || kind == WB__STORE) guide = &k->operands[k->operand[i]];
        if (kind == WB__STORE) break;
    }
    if (!guide) return;
    for (int i = 1; i < k->n_dims; i++)
        for (int j = i; j > 0; j--) {
            const int64_t in = llabs(guide->stride[j]), out = llabs(guide->stride[j - 1]);
            if (!in || in <= out) break;
            swap_dims(k, j, j - 1);
        }
}

/* Whether dimension d and the next inner one can be merged for every operand. */
static bool loops_mergeable(const wb__fuse *k, int d)
{
    for (int i = 0; i < k->n_operands; i++) {
        const wb__fuse_operand *p = &k->operands[i];
        if (p->used && p->stride[d] != p->stride[d + 1] * k->dim[d + 1]) return false;
        if (p->used && p->padded && !wb__fuse_window_merges(k, p, d)) return false;
    }
    return true;
}

static void remove_dim(wb__fuse *k, int d)
{
    for (int i = d; i + 1 < k->n_dims; i++) {
        k->dim[i] = k->dim[i + 1];
        for (int j = 0; j < k->n_operands; j++) {
            k->operands[j].stride[i] = k->operands[j].stride[i + 1];
            wb__fuse_window_swap(&k->operands[j].window, i, i + 1);
        }
    }
    k->n_dims--;
    for (int j = 0; j < k->n_operands; j++) k->operands[j].stride[k->n_dims] = 0;
}

static bool loops_same_operand(const wb__fuse_operand *a, const wb__fuse_operand *b)
{
    return a->view && b->view && a->view->buffer == b->view->buffer &&
           a->view->buffer != WB__NO_BUFFER && a->view->offset == b->view->offset &&
           a->view->dtype == b->view->dtype && !memcmp(a->stride, b->stride, sizeof a->stride) &&
           !a->padded && !b->padded && a->place == b->place;
}

/* Assigns ids to operands and stride patterns, in the order of the list of operands; equal operands
 * and equal patterns share an id.  Sets k->wide if offsets need 64 bits. */
static void assign_ids(wb__fuse *k)
{
    for (int i = 0; i < k->n_operands; i++) {
        wb__fuse_operand *p = &k->operands[i];
        if (!p->used) continue;
        p->id = p->pattern = -1;
        int64_t far = 0;
        for (int d = 0; d < k->n_dims; d++) far += llabs(p->stride[d]) * (k->dim[d] - 1);
        k->wide |= far > INT32_MAX;
        for (int j = 0; j < i; j++) {
            const wb__fuse_operand *q = &k->operands[j];
            if (!q->used) continue;
            if (p->pattern < 0 && !p->padded && !q->padded &&
                (p->place == WB__BEHIND_LOOP) == (q->place == WB__BEHIND_LOOP) &&
                !memcmp(p->stride, q->stride, sizeof p->stride))
                p->pattern = q->pattern;
            if (p->id < 0 && loops_same_operand(p, q)) p->id = q->id;
        }
        if (p->pattern < 0) p->pattern = k->n_patterns++;
        if (p->id < 0) p->id = k->n_ids++;
    }
}

/* Finds the operands whose vectors of columns are loaded before the loop over the rows. */
static void find_places(wb__fuse *k, const wb__loop *loop)
{
    for (int i = 0; i < k->n_operands; i++) {
        wb__fuse_operand *p = &k->operands[i];
        bool varies = p->padded;
        for (int d = 0; d < k->n_dims; d++) varies |= p->stride[d] && loop[d] == WB__ROWS;
        if (!varies && p->place == WB__IN_LOOP) p->place = WB__BEFORE_LOOP;
    }
    for (int i = 0; i < k->program->n_instr; i++)
        if (k->program->instr[i].kind == WB__STORE) k->operands[k->operand[i]].place = WB__IN_LOOP;
}

void wb__fuse_make_loops(wb__fuse *k, wb__walk walk, wb__fuse_vectors vectors)
{
    const wb__space *s = &k->program->space;
    wb__loop loop[WB_MAX_DIMS];
    loops_find_operands(k);
    for (int i = 0; i < k->n_operands; i++)
        if (k->operands[i].view)
            for (int d = 0; d < s->ndim; d++)
                k->operands[i].stride[d] = s->dims[d] == 1 ? 0 : k->operands[i].view->strides[d];
    k->n_dims = s->ndim;
    for (int d = 0; d < s->ndim; d++) {
        k->dim[d] = s->dims[d];
        loop[d] = loop_of(s, walk, d);
    }
    for (int g = 0; g < 3; g++) k->points[g] = 1;
    for (int d = 0; d < s->ndim; d++) k->points[loop[d]] *= s->dims[d];
    for (int d = k->n_dims - 1; d >= 0; d--) {
        if (k->dim[d] != 1) continue;
        for (int j = d; j + 1 < k->n_dims; j++) loop[j] = loop[j + 1];
        remove_dim(k, d);
    }
    if (walk == WB__ANY_ORDER) loops_sort_dims(k);
    for (int d = k->n_dims - 2; d >= 0; d--) {
        if (loop[d] != loop[d + 1] || !loops_mergeable(k, d)) continue;
        k->dim[d + 1] *= k->dim[d];
        for (int i = 0; i < k->n_operands; i++)     /* a whole window stays whole */
            k->operands[i].window.size[d + 1] *= k->operands[i].window.size[d];
        for (int j = d; j + 1 < k->n_dims; j++) loop[j] = loop[j + 1];
        remove_dim(k, d);
    }
    k->vector = 1;
    if (vectors && k->n_dims) {
        const int last = k->n_dims - 1;
        const wb__loop inner = loop[last];
        k->columns = vectors == WB__VECTORS_OF_COLUMNS;
        if (k->columns) find_places(k, loop);
        if (!k->columns || (inner == WB__COLS && (!last || loop[last - 1] != WB__COLS)))
            wb__fuse_make_vectors(k, walk == WB__ANY_ORDER && !last);
        k->columns &= k->vector > 1;
        k->points[inner] = wb__quotient_up(k->points[inner], k->vector);
    }
    for (int g = 0, d = 0; g < 4; g++) {
        k->first[g] = d;
        while (d < k->n_dims && (int)loop[d] == g) d++;
    }
    assign_ids(k);
}

/* ---- indices --------------------------------------------------------------------------------- */

void wb__fuse_add_divisor(wb__fuse *k, int64_t d, const char *suffix)
{
    int log = 0;
    d = WB__MAX(d, 2);                          /* 0: the space is empty */
    while (((uint64_t)1 << log) < (uint64_t)d) log++;
    const uint64_t factor = ((((uint64_t)1 << log) - (uint64_t)d) << 32) / (uint64_t)d + 1;
    wb__fuse_uint(k, d, "d%s", suffix);
    wb__fuse_uint(k, (int64_t)(uint32_t)factor, "f%s", suffix);
    wb__fuse_uint(k, log - 1, "h%s", suffix);
}

/* Adds the divisor of the size d of dimension n to the struct, if the struct lacks it. */
static void add_divisor(wb__fuse *k, int64_t d, int n)
{
    char suffix[12];
    if (k->struct_dims >> n & 1) return;
    k->struct_dims |= 1u << n;
    snprintf(suffix, sizeof suffix, "%d", n);
    wb__fuse_add_divisor(k, d, suffix);
}

void wb__fuse_emit_indices(wb__fuse *k, const char *count, int from, int to)
{
    char left[24];
    snprintf(left, sizeof left, "%s", count);
    for (int d = to - 1; d > from; d--) {
        add_divisor(k, k->dim[d], d);
        wb__fuse_line(k, "const uint q%d = divide(%s, a.f%d, a.h%d), i%d = %s - q%d * a.d%d;", d,
                      left, d, d, d, left, d, d);
        snprintf(left, sizeof left, "q%d", d);
    }
    if (to > from) wb__fuse_line(k, "const uint i%d = %s;", from, left);
}

const char *wb__fuse_index_type(const wb__fuse *k) { return k->wide ? "i64" : "int"; }

static void loops_add_stride_field(wb__fuse *k, wb__fuse_operand *p, int d)
{
    if (p->struct_strides >> d & 1) return;
    p->struct_strides |= 1u << d;
    if (k->wide) wb__fuse_pair(k, p->stride[d], "s%d_%d_", p->pattern, d);
    else wb__fuse_uint(k, p->stride[d], "s%d_%d", p->pattern, d);
}

/* Adds an operand's offset along dimension d to an expression.  In a padded view the index outside
 * the window is any number, so the arithmetic is unsigned, which wraps around. */
void wb__fuse_add_offset(wb__fuse *k, wb__fuse_operand *p, int d, const char *index, wb__text *to)
{
    const char *const type = !p->padded ? wb__fuse_index_type(k) : k->wide ? "u64" : "uint";
    if (!p->stride[d]) return;
    wb__text_add(to, "%s(%s)%s", to->length ? " + " : "", type, index);
    if (p->stride[d] == 1) return;
    loops_add_stride_field(k, p, d);
    if (!k->wide) wb__text_add(to, " * (%s)a.s%d_%d", type, p->pattern, d);
    else
        wb__text_add(to, " * %s(a.s%d_%d_, a.s%d_%d_h)", p->padded ? "U64" : "I64", p->pattern, d,
                     p->pattern, d);
}

/* Writes the sum of index times stride over the dimensions in the bit set `mask`; nothing if
 * all these strides are 0. */
static void offset_text(wb__fuse *k, wb__fuse_operand *p, unsigned mask, wb__text *t)
{
    for (int d = 0; d < k->n_dims; d++) {
        char index[12];
        snprintf(index, sizeof index, "i%d", d);
        if (mask >> d & 1) wb__fuse_add_offset(k, p, d, index, t);
    }
}

/* Returns the only dimension in the bit set `mask` along which p has a stride other than 0, if this
 * stride is 1; else -1. */
static int loops_single_dim(const wb__fuse *k, const wb__fuse_operand *p, unsigned mask)
{
    int found = -1;
    for (int d = 0; d < k->n_dims; d++) {
        if (!p->stride[d] || !(mask >> d & 1)) continue;
        if (found >= 0 || p->stride[d] != 1) return -1;
        found = d;
    }
    return found;
}

static bool loops_varies(const wb__fuse *k, const wb__fuse_operand *p, unsigned mask)
{
    for (int d = 0; d < k->n_dims; d++)
        if (p->stride[d] && (mask >> d & 1)) return true;
    return false;
}

/* Emits the pointer p<id> of an operand; `fixed` is the offset outside the inner loop. */
static void loops_emit_pointer(wb__fuse *k, const wb__fuse_operand *p, const char *fixed)
{
    const wb__view *v = p->view;
    const char *const stored = wb__gpu_types[v->dtype].stored;
    char type[16];
    const int b = wb__fuse_buffer_argument(k, v->buffer), s = p->id, n = p->vector ? k->vector : 1;
    if (n > 1) snprintf(type, sizeof type, "%sx%d", stored, n);
    else snprintf(type, sizeof type, "%s", stored);
    if (n > 1) k->vector_types |= 1u << v->dtype;
    if (wb__gpu_add_origin(&k->origins, &k->n_origins, v, 4 * (size_t)k->n_words)) {
        if (v->granule) k->origins[k->n_origins - 1].size *= (uint32_t)n;
    } else {
        k->failed = true;
    }
    wb__fuse_pair(k, v->offset / n, "o%d", s);
    k->f64 |= v->dtype == WB_F64;
    if (v->buffer == WB__GPU_WORKSPACE)
        wb__fuse_line(k, "GLOBAL %s *p%d = PTR(%s, PTR(u8, b%d, a.workspace, a.workspaceh), a.o%d, "
                      "a.o%dh)%s%s;", type, s, type, b, s, s, *fixed ? " + " : "", fixed);
    else
        wb__fuse_line(k, "GLOBAL %s *p%d = PTR(%s, b%d, a.o%d, a.o%dh)%s%s;", type, s, type, b, s,
                      s, *fixed ? " + " : "", fixed);
}

/* Emits the first element index of a draw or an iota. */
static void loops_emit_origin(wb__fuse *k, const wb__fuse_operand *p, const char *fixed)
{
    const int s = p->id;
    if (!p->view) {
        wb__fuse_line(k, "const i64 e%d = %s;", s, *fixed ? fixed : "0");
        return;
    }
    wb__fuse_pair(k, p->view->offset, "o%d", s);
    wb__fuse_line(k, "const i64 e%d = I64(a.o%d, a.o%dh)%s%s;", s, s, s, *fixed ? " + " : "",
                  fixed);
}

void wb__fuse_emit_bases(wb__fuse *k)
{
    const unsigned outside = ~k->inner;
    for (int i = 0; i < k->n_operands; i++) {
        wb__fuse_operand *p = &k->operands[i];
        const bool behind = p->place == WB__BEHIND_LOOP;
        if (!p->used || behind != (k->place == WB__BEHIND_LOOP)) continue;
        bool first_pattern = true, first_id = true;
        for (int j = 0; j < i; j++) {
            if (!k->operands[j].used) continue;
            first_pattern &= k->operands[j].pattern != p->pattern;
            first_id &= k->operands[j].id != p->id;
        }
        char fixed[24] = "";
        const int one = loops_single_dim(k, p, outside);
        if (p->padded) {}               /* wb__fuse_emit_window adds all offsets */
        else if (one >= 0) snprintf(fixed, sizeof fixed, "i%d", one);
        else if (loops_varies(k, p, outside)) snprintf(fixed, sizeof fixed, "x%d", p->pattern);
        if (first_pattern && *fixed == 'x') {
            wb__text t = {0};
            offset_text(k, p, outside, &t);
            k->failed |= t.failed;
            if (t.text)
                wb__fuse_line(k, "const %s x%d = %s;", wb__fuse_index_type(k), p->pattern, t.text);
            wb__free(t.text);
        }
        if (!first_id) continue;
        if (p->view && p->view->buffer != WB__NO_BUFFER) loops_emit_pointer(k, p, fixed);
        else loops_emit_origin(k, p, fixed);
    }
}

void wb__fuse_write_offset(const wb__fuse *k, const wb__fuse_operand *p, char text[48])
{
    const int one = loops_single_dim(k, p, k->inner), n = one >= 0 ? one : p->pattern;
    const bool by_lane = k->vector > 1 && !p->vector && p->stride[k->n_dims - 1];
    char at[24] = "0";
    if (one >= 0 || loops_varies(k, p, k->inner))
        snprintf(at, sizeof at, "%c%d", one >= 0 ? 'i' : 'y', n);
    snprintf(text, 48, by_lane ? "(%s + lane)" : "%s", at);
}

void wb__fuse_write_load(const wb__fuse_operand *p, const char *at, char text[WB__FUSE_FROM])
{
    const int id = p->id;
    if (p->kept == WB__LOAD_KEPT) snprintf(text, WB__FUSE_FROM, "k%d[j]", id);
    else if (p->kept) snprintf(text, WB__FUSE_FROM, "k%d[j] = p%d[%s]", id, id, at);
    else snprintf(text, WB__FUSE_FROM, "p%d[%s]", id, at);
}

void wb__fuse_emit_offsets(wb__fuse *k, const bool *needed)
{
    for (int i = 0; i < k->n_operands; i++) {
        wb__fuse_operand *p = &k->operands[i];
        bool wanted = false, first = true;
        for (int j = 0; j < k->program->n_instr; j++)
            wanted |=
                needed[j] && k->operand[j] >= 0 && k->operands[k->operand[j]].pattern == p->pattern;
        for (int j = 0; j < i; j++)
            first &= !k->operands[j].used || k->operands[j].pattern != p->pattern;
        if (!p->used || !wanted || !first || p->padded) continue;
        if (loops_single_dim(k, p, k->inner) >= 0 || !loops_varies(k, p, k->inner)) continue;
        wb__text t = {0};
        offset_text(k, p, k->inner, &t);
        k->failed |= t.failed;
        if (t.text)
            wb__fuse_line(k, "const %s y%d = %s;", wb__fuse_index_type(k), p->pattern, t.text);
        wb__free(t.text);
    }
}
