/* Reductions as text.  An item's variables have the suffix `n` of wb__reduction.  For n 0: s0 is
 * the sum or best element so far, c0 the rounding error of the sum, w0 the index of the best
 * element.  The arrays of a group have the suffix `slot`.  For slot 0: t0_f32 has the sums or best
 * elements of the items, if they are f32, and z0 has the indices of the best elements. */
#include "backend/gpu/fused.h"

#include <stdio.h>

#define REDUCTION_TEXT_KIND(reg) wb__fuse_kinds[reg]
#define REDUCTION_TEXT_DTYPE(reg) wb__gpu_types[wb__fuse_whole[reg]].name

static bool reduction_text_is_float(wb__reg reg)
{
    return reg == WB__REG_F32 || reg == WB__REG_F64;
}

wb__reduction wb__reduction_of(const wb__fuse_program *p, int instr, int n, int slot)
{
    const wb__instr *in = &p->instr[instr];
    const wb__reg from = (wb__reg)p->instr[in->a].reg, out = (wb__reg)in->reg;
    wb__reg acc = from;
    if (in->op == WB__OP_sum && reduction_text_is_float(from))
        acc = from == WB__REG_F64 || out == WB__REG_F64 ? WB__REG_F64 : WB__REG_F32;
    else if (in->op == WB__OP_sum) acc = reduction_text_is_float(out) ? WB__REG_I64 : out;
    return (wb__reduction){.instr = instr, .n = n, .slot = slot, .top = -1, .lanes = 1,
                           .from = from, .acc = acc, .out = out, .op = in->op};
}

static bool reduction_text_lossy(const wb__reduction *f)
{
    return f->op == WB__OP_sum && f->acc == WB__REG_F32;
}

/* Emits a variable of an item, or of each of its lanes, with its first value. */
static void reduction_text_declare(wb__fuse *k, const wb__reduction *f, const char *type, char name,
                                   const char *first)
{
    if (f->lanes == 1) {
        wb__fuse_line(k, "%s %c%d = %s;", type, name, f->n, first);
        return;
    }
    wb__fuse_line(k, "%s %c%d[%d];", type, name, f->n, f->lanes);
    wb__fuse_open_lanes(k);
    wb__fuse_line(k, "%c%d[lane] = %s;", name, f->n, first);
    wb__fuse_close(k);
}

void wb__reduction_declare(wb__fuse *k, const wb__reduction *f)
{
    static const char *lowest[] = {"-INFINITE", "-INFINITE", "-0x7fffffff - 1",
                                   "-(i64)(~(u64)0 >> 1) - 1"};
    static const char *highest[] = {"INFINITE", "INFINITE", "0x7fffffff", "(i64)(~(u64)0 >> 1)"};
    const char *kind = REDUCTION_TEXT_KIND(f->acc);
    k->f64 |= f->acc == WB__REG_F64;
    reduction_text_declare(k, f, kind, 's', f->op == WB__OP_max ? lowest[f->acc]
                                            : f->op == WB__OP_min ? highest[f->acc] : "0");
    if (f->op == WB__OP_argmax) reduction_text_declare(k, f, "uint", 'w', "NOWHERE");
    if (reduction_text_lossy(f)) reduction_text_declare(k, f, kind, 'c', "0");
    if (f->top >= 0) reduction_text_declare(k, f, kind, 'r', "-INFINITE");
}

/* Returns the index of a lane behind the name of an item's variable; "": it is no array. */
static const char *lane_of(const wb__reduction *f) { return f->lanes > 1 ? "[lane]" : ""; }

/* Emits code that adds the expression v to an item's result. */
static void reduction_text_add_value(wb__fuse *k, const wb__reduction *f, const char *v)
{
    const char *of = lane_of(f), *kind = REDUCTION_TEXT_KIND(f->acc);
    const int n = f->n;
    switch (f->op) {
    case WB__OP_max: wb__fuse_line(k, "TAKE_MAX(s%d%s, %s)", n, of, v); break;
    case WB__OP_min: wb__fuse_line(k, "TAKE_MIN(s%d%s, %s)", n, of, v); break;
    default:
        if (reduction_text_lossy(f))
            wb__fuse_line(k, "TAKE_SUM(s%d%s, c%d%s, %s)", n, of, n, of, v);
        else if (reduction_text_is_float(f->acc)) wb__fuse_line(k, "s%d%s += %s;", n, of, v);
        else wb__fuse_line(k, "s%d%s = (%s)((u64)s%d%s + (u64)%s);", n, of, kind, n, of, v);
    }
}

void wb__reduction_emit_add(wb__fuse *k, const wb__reduction *f, const char *index)
{
    char v[24];
    const int a = k->program->instr[f->instr].a;
    if (f->top >= 0) {
        wb__fuse_line(k, "TAKE_EXP(s%d, c%d, r%d, v%d)", f->n, f->n, f->n,
                      k->program->instr[f->top].a);
        return;
    }
    snprintf(v, sizeof v, "v%d", a);
    if (f->acc != f->from) {
        wb__fuse_line(k, "const %s u%d = TO_%s_%s(v%d);", REDUCTION_TEXT_KIND(f->acc), f->n,
                      REDUCTION_TEXT_DTYPE(f->acc), REDUCTION_TEXT_KIND(f->from), a);
        snprintf(v, sizeof v, "u%d", f->n);
    }
    if (f->op == WB__OP_argmax)
        wb__fuse_line(k, "TAKE_ARGMAX(s%d%s, w%d%s, %s, %s)", f->n, lane_of(f), f->n, lane_of(f),
                      v, index);
    else
        reduction_text_add_value(k, f, v);
}

void wb__reduction_emit_scale(wb__fuse *k, const wb__reduction *f)
{
    wb__fuse_line(k, "SCALE_EXP(s%d, c%d, r%d, v%d)", f->n, f->n, f->n, f->top);
}

void wb__reduction_emit_merge(wb__fuse *k, const wb__reduction *f, const char *at)
{
    char v[24];
    snprintf(v, sizeof v, "u%d", f->n);
    wb__fuse_line(k, "const %s u%d = q%d[%s];", REDUCTION_TEXT_KIND(f->acc), f->n, f->n, at);
    if (f->op == WB__OP_argmax)
        wb__fuse_line(k, "const uint g%d = z%d_[%s]; MERGE_ARGMAX(s%d, w%d, u%d, g%d)", f->n,
                      f->n, at, f->n, f->n, f->n, f->n);
    else
        reduction_text_add_value(k, f, v);
}

int64_t wb__reduction_arrays(wb__fuse *k, const wb__reduction *f, int n, int items)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        bool had = false, had_place = f[i].op != WB__OP_argmax;
        for (int j = 0; j < i; j++) {
            had |= f[j].slot == f[i].slot && f[j].acc == f[i].acc;
            had_place |= f[j].slot == f[i].slot && f[j].op == WB__OP_argmax;
        }
        const int size = items * f[i].lanes;
        if (!had) sum += (int64_t)wb__dtype_size(wb__fuse_whole[f[i].acc]) * size;
        if (!had_place) sum += 4 * size;
        if (!had && k)
            wb__fuse_line(k, "LOCAL %s t%d_%s[%d];", REDUCTION_TEXT_KIND(f[i].acc), f[i].slot,
                          REDUCTION_TEXT_KIND(f[i].acc), size);
        if (!had_place && k) wb__fuse_line(k, "LOCAL uint z%d[%d];", f[i].slot, size);
    }
    return sum;
}

void wb__reduction_emit_local(wb__fuse *k, const wb__reduction *f, int n)
{
    const bool lanes = n && f->lanes > 1;
    char at[32] = "l";
    if (lanes) wb__fuse_open_lanes(k);
    if (lanes) snprintf(at, sizeof at, "l * %du + lane", f->lanes);
    for (int i = 0; i < n; i++, f++) {
        const char *of = lane_of(f);
        wb__fuse_line(k, reduction_text_lossy(f) ? "t%d_%s[%s] = TOTAL(s%d%s, c%d%s);"
                                                 : "t%d_%s[%s] = s%d%s;",
                      f->slot, REDUCTION_TEXT_KIND(f->acc), at, f->n, of, f->n, of);
        if (f->op == WB__OP_argmax) wb__fuse_line(k, "z%d[%s] = w%d%s;", f->slot, at, f->n, of);
    }
    if (lanes) wb__fuse_close(k);
}

/* Emits code that combines the results of two items in local memory. */
static void reduction_text_join(wb__fuse *k, const wb__reduction *f)
{
    const char *kind = REDUCTION_TEXT_KIND(f->acc);
    const int s = f->slot;
    char mine[24], other[32];
    snprintf(mine, sizeof mine, "t%d_%s[l]", s, kind);
    snprintf(other, sizeof other, "t%d_%s[l + h]", s, kind);
    switch (f->op) {
    case WB__OP_max: wb__fuse_line(k, "TAKE_MAX(%s, %s)", mine, other); break;
    case WB__OP_min: wb__fuse_line(k, "TAKE_MIN(%s, %s)", mine, other); break;
    case WB__OP_argmax:
        wb__fuse_line(k, "MERGE_ARGMAX(%s, z%d[l], %s, z%d[l + h])", mine, s, other, s);
        break;
    default:
        if (reduction_text_is_float(f->acc)) wb__fuse_line(k, "%s += %s;", mine, other);
        else wb__fuse_line(k, "%s = (%s)((u64)%s + (u64)%s);", mine, kind, mine, other);
    }
}

void wb__reduction_emit_tree(wb__fuse *k, const wb__reduction *f, int n, const char *item,
                             const char *from, const char *least)
{
    wb__fuse_line(k, "BARRIER;");
    if (f->lanes > 1) {
        wb__fuse_open(k, "for (uint h = %du; h < %du; h += %du)", WB__GROUP_ITEMS,
                      WB__GROUP_ITEMS * f->lanes, WB__GROUP_ITEMS);
        for (int i = 0; i < n; i++) reduction_text_join(k, &f[i]);
        wb__fuse_close(k);
        wb__fuse_line(k, "BARRIER;");
    }
    wb__fuse_open(k, "for (uint h = %s; h >= %s; h >>= 1)", from, least);
    wb__fuse_open(k, "if (%s < h)", item);
    for (int i = 0; i < n; i++) reduction_text_join(k, &f[i]);
    wb__fuse_close(k);
    wb__fuse_line(k, "BARRIER;");
    wb__fuse_close(k);
}

void wb__reduction_emit_value(wb__fuse *k, const wb__reduction *f, const char *at)
{
    const char *out = REDUCTION_TEXT_KIND(f->out), *acc = REDUCTION_TEXT_KIND(f->acc);
    char s[64], made[96];
    k->f64 |= f->out == WB__REG_F64;
    if (f->op == WB__OP_argmax) {
        if (at) snprintf(s, sizeof s, "z%d[%s]", f->slot, at);
        else snprintf(s, sizeof s, "w%d", f->n);
        /* NOWHERE is -1.  Intel's compiler for CPUs crashes on a comparison with NOWHERE here. */
        wb__fuse_line(k, "const %s v%d = (%s)((i32)%s < 0 ? 0 : %s);", out, f->instr, out, s, s);
        return;
    }
    if (at) snprintf(s, sizeof s, "t%d_%s[%s]", f->slot, acc, at);
    else if (reduction_text_lossy(f)) snprintf(s, sizeof s, "TOTAL(s%d, c%d)", f->n, f->n);
    else snprintf(s, sizeof s, "s%d", f->n);
    snprintf(made, sizeof made, "TO_%s_%s(%s)", REDUCTION_TEXT_DTYPE(f->out), acc, s);
    wb__fuse_emit_value(k, f->instr, made);
}
