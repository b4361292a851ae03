/* Merges kernels that differ only in their operands into one kernel with several segments.  If
 * `numbers`, they may also differ in their numbers, such as the number of elements of a mean. */
#include "engine/plan/stages.h"

#include <string.h>

/* Whether two kernels differ only in operands and, if `numbers`, in numbers. */
static bool segments_same_program(const wb__plan_step *p, const wb__plan_step *q, bool numbers)
{
    const wb__fused *a = &p->step.fused, *b = &q->step.fused;
    if (a->n_instr != b->n_instr || a->n_views != b->n_views || p->n_windows || q->n_windows)
        return false;
    for (int i = 0; i < a->n_instr; i++) {
        const wb__instr *x = &p->instr[i], *y = &q->instr[i];
        if (x->kind != y->kind || x->reg != y->reg || x->level != y->level ||
            x->dtype != y->dtype || x->op != y->op || x->a != y->a || x->b != y->b ||
            x->c != y->c || x->scale != y->scale || x->shift != y->shift)
            return false;
        if (x->arg != y->arg && !(numbers && x->kind == WB__NUMBER)) return false;
    }
    for (int i = 0; i < a->n_views; i++)
        if (p->operand[i].view.dtype != q->operand[i].view.dtype) return false;
    const wb__space *s = &p->spaces[0], *t = &q->spaces[0];
    return s->ndim == t->ndim && s->row_dims == t->row_dims && s->col_dims == t->col_dims;
}

/* Makes the space of an elementwise kernel one-dimensional, if each view of the kernel is dense in
 * the order of the space or has stride 0 along all dimensions. */
static void segments_flatten(wb__plan_step *d)
{
    const wb__space *s = &d->spaces[0];
    int64_t size = 1, stride[WB_MAX_DIMS];
    for (int i = s->ndim - 1; i >= 0; i--) {
        stride[i] = size;
        size *= s->dims[i];
    }
    for (int i = 0; i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind != WB__LOAD && d->instr[i].kind != WB__STORE &&
            d->instr[i].kind != WB__ELEMENTWISE_OP && d->instr[i].kind != WB__NUMBER &&
            d->instr[i].kind != WB__CAST)
            return;
    if (d->n_windows) return;
    for (int v = 0; v < d->n_operands; v++) {
        bool any = false, all = true;
        for (int i = 0; i < s->ndim; i++) {
            const int64_t step = d->operand[v].view.strides[i];
            if (s->dims[i] == 1) continue;
            if (step && step != stride[i]) return;
            any |= step != 0;
            all &= step != 0;
        }
        if (any != all && size != 1) return;
    }
    for (int v = 0; v < d->n_operands; v++) {
        wb__view *w = &d->operand[v].view;
        int64_t step = size == 1;
        for (int i = 0; i < s->ndim; i++) step |= s->dims[i] != 1 && w->strides[i];
        w->ndim = 1;
        w->dims[0] = size;
        w->strides[0] = step;
    }
    d->spaces[0] = (wb__space){.ndim = 1, .row_dims = 0, .col_dims = 1, .dims = {size}};
}

/* Adds the args of q's instructions to those of p's segments.  False: out of memory. */
static bool append_args(wb__plan_step *p, const wb__plan_step *q)
{
    const int n = p->step.fused.n_instr, segments = p->step.fused.n_segments;
    const bool first = !p->args;
    int32_t *args = wb__realloc(p->args, (size_t)(segments + 1) * (size_t)n * sizeof *args);
    if (!args) return false;
    for (int i = 0; i < n; i++) {
        if (first) args[i] = p->instr[i].arg;
        args[segments * n + i] = q->instr[i].arg;
    }
    p->args = args;
    return true;
}

/* Adds q's operands and spaces to p as one more segment.  False: out of memory. */
static bool append_segment(wb__plan_step *p, const wb__plan_step *q, bool numbers)
{
    if (numbers && !append_args(p, q)) return false;
    const int n = p->step.fused.n_segments, views = q->n_operands;
    wb__space *spaces = wb__realloc(p->spaces, (size_t)(n + 1) * sizeof *spaces);
    if (spaces) p->spaces = spaces;
    if (!spaces ||
        !wb__reserve(&p->operand, &p->capacity, p->n_operands + views, sizeof *p->operand))
        return false;
    spaces[n] = q->spaces[0];
    if (views) memcpy(p->operand + p->n_operands, q->operand, (size_t)views * sizeof *q->operand);
    p->n_operands += views;
    p->step.fused.n_segments++;
    return true;
}

/* Turns the kernels after kernel i, before `end`, with the same program into segments of kernel i,
 * and marks them in `gone`.  False: out of memory. */
static bool segments_merge_into(wb__programs *m, int i, int end, bool numbers, bool *gone)
{
    bool good = true;
    for (int j = i + 1; good && j < end; j++) {
        const wb__plan_step *d = &m->step[j];
        if (d->step.kind != WB__STEP_FUSED) break;
        if (gone[j] || !segments_same_program(&m->step[i], d, numbers)) continue;
        gone[j] = true;
        good = append_segment(&m->step[i], d, numbers);
    }
    return good;
}

/* Merges the kernels from step `begin` to before step `end`.  False: out of memory. */
static bool segments_merge_range(wb__programs *m, int begin, int end, bool numbers, bool *gone)
{
    bool good = true;
    for (int i = begin; i < end; i++)
        if (m->step[i].step.kind == WB__STEP_FUSED) segments_flatten(&m->step[i]);
    for (int i = begin; good && i < end; i++)
        if (m->step[i].step.kind == WB__STEP_FUSED && !gone[i])
            good = segments_merge_into(m, i, end, numbers, gone);
    return good;
}

/* Frees the steps that are marked as gone, and closes the gaps between the others. */
static void segments_remove(wb__programs *m, const bool *gone)
{
    int n = 0, n_compute = 0;
    for (int i = 0; i < m->n; i++) {
        n_compute += i < m->n_compute && !gone[i];
        if (gone[i]) wb__step_free(&m->step[i]);
        else m->step[n++] = m->step[i];
    }
    m->n = n;
    m->n_compute = n_compute;
}

/* Moves the steps marked `first` to the beginning and returns how many there are; negative: out of
 * memory. */
static int segments_move_first(wb__programs *m)
{
    int n = 0;
    for (int i = 0; i < m->n_compute; i++) n += m->step[i].first;
    if (!n) return 0;
    wb__plan_step *all = wb__alloc((size_t)m->n_compute * sizeof *all);
    if (!all) return -1;
    for (int i = 0, first = 0, rest = n; i < m->n_compute; i++)
        all[m->step[i].first ? first++ : rest++] = m->step[i];
    memcpy(m->step, all, (size_t)m->n_compute * sizeof *all);
    wb__free(all);
    return n;
}

/* Merges kernels that write variables: an optimiser has many, which are small and alike.  Their
 * order does not matter, since none reads a value or a variable that another one writes
 * (placement.c).  Copies of leaves read nothing that a kernel before them writes. */
bool wb__merge_segments(wb__programs *m, bool numbers)
{
    const int n_first = segments_move_first(m);
    bool *gone = n_first < 0 ? NULL : wb__alloc_zero((size_t)m->n + 1, sizeof *gone);
    const bool good = gone && segments_merge_range(m, 0, n_first, numbers, gone) &&
                      segments_merge_range(m, m->n_compute, m->n, numbers, gone);
    if (gone) segments_remove(m, gone);
    wb__free(gone);
    return good;
}
