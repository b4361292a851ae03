/* Padded views: loads that compare the index of an element with the window of its operand, and give
 * 0 outside.
 *
 *     const uint u3_1 = i1 - a.b3_1;
 *     const uint u3_2 = i2 - a.b3_2, k3_2 = divide(u3_2, a.f3_2, a.h3_2);
 *     const bool in3 = u3_1 < a.n3_1 && u3_2 == k3_2 * a.d3_2 && k3_2 < a.n3_2;
 *     const int at3 = (int)((uint)i0 * (uint)a.s3_0 + (uint)u3_1 * (uint)a.s3_1 + (uint)k3_2);
 *     const f32 v7 = OF_BF16(in3 ? p3[at3] : (u16)0); */
#include "backend/gpu/fused.h"

#include <stdio.h>

void wb__fuse_window_swap(wb__window *w, int a, int b)
{
    int64_t *const each[] = {w->begin, w->step, w->size};
    for (size_t i = 0; i < WB__COUNT(each); i++) {
        const int64_t t = each[i][a];
        each[i][a] = each[i][b];
        each[i][b] = t;
    }
}

bool wb__fuse_window_merges(const wb__fuse *k, const wb__fuse_operand *p, int d)
{
    return wb__window_is_whole(&p->window, d, k->dim[d]) &&
           wb__window_is_whole(&p->window, d + 1, k->dim[d + 1]);
}

bool wb__fuse_window_suits(const wb__fuse *k, const wb__fuse_operand *p, int n)
{
    const int last = k->n_dims - 1;
    const wb__window *w = &p->window;
    return w->step[last] == 1 && w->begin[last] % n == 0 && w->size[last] % n == 0 &&
           k->dim[last] % n == 0;
}

/* Emits the index in memory that belongs to index i<d> of the padded view, and writes the name of
 * this variable to `name`.  Adds to `inside` the condition that the window has the index. */
static void emit_window_index(wb__fuse *k, const wb__fuse_operand *p, int d, char name[24],
                              wb__text *inside)
{
    const wb__window *w = &p->window;
    const int id = p->id;
    const char *const and = inside->length ? " && " : "";
    char suffix[20];
    snprintf(suffix, sizeof suffix, "%d_%d", id, d);
    snprintf(name, 24, "i%d", d);
    if (wb__window_is_whole(w, d, k->dim[d])) return;
    if (!p->in_struct) {
        wb__fuse_uint(k, w->begin[d], "b%s", suffix);
        wb__fuse_uint(k, w->size[d], "n%s", suffix);
        if (w->step[d] != 1) wb__fuse_add_divisor(k, w->step[d], suffix);
    }
    snprintf(name, 24, "%s%s", w->step[d] == 1 ? "u" : "k", suffix);
    wb__fuse_line(k, "const uint u%s = i%d - a.b%s;", suffix, d, suffix);
    if (w->step[d] == 1) {
        wb__text_add(inside, "%su%s < a.n%s", and, suffix, suffix);
        return;
    }
    wb__fuse_line(k, "const uint k%s = divide(u%s, a.f%s, a.h%s);", suffix, suffix, suffix, suffix);
    wb__text_add(inside, "%su%s == k%s * a.d%s && k%s < a.n%s", and, suffix, suffix, suffix, suffix,
                 suffix);
}

void wb__fuse_emit_window(wb__fuse *k, wb__fuse_operand *p)
{
    wb__text inside = {0}, at = {0};
    for (int d = 0; d < k->n_dims && !p->outside; d++) {
        char name[24];
        emit_window_index(k, p, d, name, &inside);
        wb__fuse_add_offset(k, p, d, name, &at);
    }
    p->in_struct = true;
    k->failed |= inside.failed || at.failed;
    wb__fuse_line(k, "const bool in%d = %s;", p->id,
                  inside.text ? inside.text : p->outside ? "false" : "true");
    wb__fuse_line(k, "const %s at%d = (%s)(%s);", wb__fuse_index_type(k), p->id,
                  wb__fuse_index_type(k), at.text ? at.text : "0");
    wb__free(inside.text);
    wb__free(at.text);
}
