/* Instructions of fused kernels as text: v12 is the value of instruction 12. */
#include "backend/gpu/fused.h"

#include <stdio.h>

#define FUSED_VALUE_KIND(reg) wb__fuse_kinds[reg]

/* ---- needed instructions and their levels ---------------------------------------------------- */

bool wb__fuse_varies(const wb__fuse_program *p, const wb__view *v)
{
    const wb__space *s = &p->space;
    for (int d = s->ndim - s->col_dims; d < s->ndim; d++)
        if (v->strides[d] && s->dims[d] != 1) return true;
    return false;
}

/* Whether the window of a padded load makes the load vary along the columns. */
static bool window_varies(const wb__fuse_program *p, const wb__instr *in)
{
    const wb__space *s = &p->space;
    for (int d = s->ndim - s->col_dims; d < s->ndim && in->a >= 0; d++)
        if (!wb__window_is_whole(&p->windows[in->a], d, s->dims[d])) return true;
    return false;
}

/* Writes the instructions that `in` reads to `list`, and returns their number. */
static int fused_value_operands(const wb__instr *in, int list[3])
{
    int n = 0;
    switch ((wb__instr_kind)in->kind) {
    case WB__LOAD: case WB__NUMBER: case WB__IOTA: case WB__UNIFORM: case WB__GAUSSIAN:
    case WB__PRODUCT:
        return 0;
    default: break;
    }
    if (in->a >= 0) list[n++] = in->a;
    if (in->b >= 0) list[n++] = in->b;
    if (in->c >= 0) list[n++] = in->c;
    return n;
}

void wb__fuse_find_levels(const wb__fuse_program *p, uint8_t *level)
{
    for (int i = 0; i < p->n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        int of[3], n = fused_value_operands(in, of);
        level[i] = WB__LEVEL_ONE;
        for (int j = 0; j < n; j++) level[i] = WB__MAX(level[i], level[of[j]]);
        bool full = false;
        switch ((wb__instr_kind)in->kind) {
        case WB__LOAD:
            full = wb__fuse_varies(p, &p->views[in->arg]) || window_varies(p, in);
            break;
        case WB__UNIFORM: case WB__GAUSSIAN:
            full = wb__fuse_varies(p, &p->views[in->c]);
            break;
        case WB__IOTA: full = in->arg >= p->space.ndim - p->space.col_dims; break;
        case WB__PRODUCT: full = true; break;
        case WB__REDUCE_COLUMNS: break;
        default: continue;
        }
        level[i] = full ? WB__LEVEL_FULL : WB__LEVEL_PER_ROW;
    }
}

void wb__fuse_find_lane_levels(wb__fuse *k)
{
    for (int i = 0; i < k->program->n_instr; i++) {
        int of[3], n = fused_value_operands(&k->program->instr[i], of);
        const int p = k->operand[i];
        const bool by_lane = p >= 0 && k->operands[p].stride[k->n_dims - 1];
        k->level[i] = by_lane ? WB__LEVEL_FULL : WB__LEVEL_ONE;
        while (n--) k->level[i] = WB__MAX(k->level[i], k->level[of[n]]);
    }
}

void wb__fuse_mark_needed(const wb__fuse_program *p, bool *needed, bool past_reductions)
{
    for (int i = p->n_instr - 1; i >= 0; i--) {
        int of[3];
        if (!needed[i] || (p->instr[i].kind == WB__REDUCE_COLUMNS && !past_reductions)) continue;
        for (int n = fused_value_operands(&p->instr[i], of); n > 0; n--) needed[of[n - 1]] = true;
    }
}

/* ---- functions of operations ----------------------------------------------------------------- */

/* Whether an operation may overflow for integers.  Its arguments are then unsigned, because only
 * unsigned integers wrap around in C. */
static bool fused_value_wraps(wb__op op)
{
    return op == WB__OP_neg || op == WB__OP_square || op == WB__OP_add || op == WB__OP_sub
        || op == WB__OP_mul;
}

void wb__fuse_emit_functions(const wb__fuse *k, wb__text *to)
{
    for (int reg = 0; reg < 4; reg++) {
        bool defined = reg == WB__REG_F32;
        for (int op = 0; op < WB__OP_COUNT; op++) {
            if (!k->used[op][reg]) continue;
            const wb__op_info *info = &wb__ops[op];
            const bool test = info->class == WB__COMPARE || info->class == WB__TEST;
            const bool two = info->class == WB__BINARY || info->class == WB__COMPARE;
            const char *kind = FUSED_VALUE_KIND(reg), *out = test ? "i32" : kind;
            const char *in = !fused_value_wraps(op) ? kind : reg == WB__REG_I32 ? "u32"
                           : reg == WB__REG_I64 ? "u64" : kind;
            if (!defined) wb__text_add(to, "#undef KIND\n#define KIND %s\n", kind);
            defined = true;
            wb__text_add(to, "FN %s op_%s_%s(%s x", out, info->name, kind, in);
            if (two) wb__text_add(to, ", %s y", in);
            wb__text_add(to, ") { return (%s)(%s); }\n", out, info->expression);
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void fused_value_emit_load(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    wb__fuse_operand *p = &k->operands[k->operand[i]];
    char at[48], from[WB__FUSE_FROM];
    wb__fuse_write_offset(k, p, at);
    wb__fuse_write_load(p, at, from);
    if (p->padded && !p->vector) {
        wb__fuse_emit_window(k, p);
        wb__fuse_line(k, "const %s v%d = OF_%s(in%d ? p%d[at%d] : (%s)0);",
                      FUSED_VALUE_KIND(in->reg), i, wb__gpu_types[p->view->dtype].name, p->id,
                      p->id, p->id, wb__gpu_types[p->view->dtype].stored);
    } else if (p->vector)
        wb__fuse_line(k, "const %s v%d = OF_%s(l%d.at[lane]);", FUSED_VALUE_KIND(in->reg), i,
                      wb__gpu_types[p->view->dtype].name, p->id);
    else
        wb__fuse_line(k, "const %s v%d = OF_%s(%s);", FUSED_VALUE_KIND(in->reg), i,
                      wb__gpu_types[p->view->dtype].name, from);
}

/* Emits v<i>, the value of instruction i, as the expression `text`. */
void wb__fuse_emit_value(wb__fuse *k, int i, const char *text)
{
    const wb__instr *in = &k->program->instr[i];
    const char *kind = FUSED_VALUE_KIND(in->reg), *t = wb__gpu_types[in->dtype].name;
    if (wb__is_narrow(in)) wb__fuse_line(k, "const i32 v%d = OF_%s(TO_%s_i32(%s));", i, t, t, text);
    else
        wb__fuse_line(k, "const %s v%d = %s;", kind, i, text);
}

static void fused_value_emit_number(wb__fuse *k, int i)
{
    static const wb__gpu_number_type type[] = {WB__GPU_NUMBER_F32, WB__GPU_NUMBER_F64,
                                               WB__GPU_NUMBER_I32, WB__GPU_NUMBER_I64};
    const wb__instr *in = &k->program->instr[i];
    char name[24], text[96];
    const bool half = wb__is_half(in->dtype);
    wb__fuse_number_field(k, in->arg, half ? WB__GPU_NUMBER_ODD : type[in->reg], name);
    if (in->reg == WB__REG_F64 || in->reg == WB__REG_I64)
        snprintf(text, sizeof text, "%s(a.%s, a.%sh)", in->reg == WB__REG_F64 ? "F64" : "I64", name,
                 name);
    else
        snprintf(text, sizeof text, "a.%s", name);
    wb__fuse_emit_value(k, i, text);
}

static void fused_value_emit_iota(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    wb__fuse_operand *p = &k->operands[k->operand[i]];
    char at[48], text[192];
    wb__fuse_write_offset(k, p, at);
    if (in->scale == 1 && !in->shift) {
        snprintf(text, sizeof text, "(%s)(e%d + %s)", FUSED_VALUE_KIND(in->reg), p->id, at);
        wb__fuse_emit_value(k, i, text);
        return;
    }
    if (!p->in_struct) {  /* an earlier loop may have added the fields */
        wb__fuse_pair(k, in->scale, "scale%d", i);
        wb__fuse_pair(k, in->shift, "shift%d", i);
        p->in_struct = true;
    }
    snprintf(text, sizeof text,
             "(%s)((e%d + %s) * I64(a.scale%d, a.scale%dh) + I64(a.shift%d, a.shift%dh))",
             FUSED_VALUE_KIND(in->reg), p->id, at, i, i, i, i);
    wb__fuse_emit_value(k, i, text);
}

static void fused_value_emit_draw(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    const wb__fuse_operand *p = &k->operands[k->operand[i]];
    char at[48], key[24], counter[24];
    wb__fuse_write_offset(k, p, at);
    wb__fuse_number_field(k, in->arg, WB__GPU_NUMBER_U64, key);
    wb__fuse_number_field(k, in->arg + 1, WB__GPU_NUMBER_U64, counter);
    wb__fuse_line(k, "const %s v%d = %s_%s(U64(a.%s, a.%sh), U64(a.%s, a.%sh), (u64)(e%d + %s));",
                  FUSED_VALUE_KIND(in->reg), i, in->kind == WB__UNIFORM ? "uniform" : "gaussian",
                  FUSED_VALUE_KIND(in->reg), key, key, counter, counter, p->id, at);
}

static void fused_value_emit_row(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i], *a = &k->program->instr[in->a];
    if (in->op == WB__OP_where) {
        wb__fuse_line(k, "const %s v%d = v%d ? v%d : v%d;", FUSED_VALUE_KIND(in->reg), i, in->a,
                      in->b, in->c);
        return;
    }
    k->used[in->op][a->reg] = true;
    char call[96];
    if (in->b >= 0)
        snprintf(call, sizeof call, "op_%s_%s(v%d, v%d)", wb__ops[in->op].name,
                 FUSED_VALUE_KIND(a->reg), in->a, in->b);
    else
        snprintf(call, sizeof call, "op_%s_%s(v%d)", wb__ops[in->op].name, FUSED_VALUE_KIND(a->reg),
                 in->a);
    wb__fuse_emit_value(k, i, call);
}

static void fused_value_emit(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    k->f64 |= in->reg == WB__REG_F64;
    switch ((wb__instr_kind)in->kind) {
    case WB__LOAD: fused_value_emit_load(k, i); break;
    case WB__NUMBER: fused_value_emit_number(k, i); break;
    case WB__IOTA: fused_value_emit_iota(k, i); break;
    case WB__UNIFORM: case WB__GAUSSIAN: fused_value_emit_draw(k, i); break;
    case WB__ELEMENTWISE_OP: fused_value_emit_row(k, i); break;
    case WB__CAST: {
        const char *t = wb__gpu_types[in->dtype].name;
        wb__fuse_line(k, "const %s v%d = OF_%s(TO_%s_%s(v%d));", FUSED_VALUE_KIND(in->reg), i, t, t,
                      FUSED_VALUE_KIND(k->program->instr[in->a].reg), in->a);
        break;
    }
    default: break;
    }
}

void wb__fuse_emit_values(wb__fuse *k, const bool *needed, int level)
{
    for (int i = 0; i < k->program->n_instr; i++) {
        const wb__instr_kind kind = (wb__instr_kind)k->program->instr[i].kind;
        if (!needed[i] || k->emitted[i] || k->level[i] > level || kind == WB__REDUCE_COLUMNS ||
            wb__instr_writes(kind))
            continue;
        fused_value_emit(k, i);
        k->emitted[i] = level == WB__LEVEL_FULL ? WB__EMITTED_FULL : WB__EMITTED_PER_ROW;
    }
}

void wb__fuse_forget_values(wb__fuse *k)
{
    for (int i = 0; i < k->program->n_instr; i++)
        if (k->emitted[i] == WB__EMITTED_FULL) k->emitted[i] = WB__EMITTED_NOT;
}

const char *wb__fuse_once_condition(const wb__fuse *k, const wb__fuse_operand *p,
                                    char text[WB__FUSE_ONCE])
{
    int n = 0;
    *text = 0;
    for (int d = 0; d < k->n_dims && k->once; d++)
        if (!p->stride[d])
            n += snprintf(text + n, (size_t)(WB__FUSE_ONCE - n), "%si%d == 0", n ? " && " : "if (",
                          d);
    if (n) snprintf(text + n, (size_t)(WB__FUSE_ONCE - n), ") ");
    return text;
}

void wb__fuse_emit_store(wb__fuse *k, int i)
{
    const wb__instr *in = &k->program->instr[i];
    const wb__fuse_operand *p = &k->operands[k->operand[i]];
    char at[48], once[WB__FUSE_ONCE];
    wb__fuse_write_offset(k, p, at);
    if (p->vector)
        wb__fuse_line(k, "m%d.at[lane] = TO_%s_%s(v%d);", p->id,
                      wb__gpu_types[p->view->dtype].name,
                      FUSED_VALUE_KIND(k->program->instr[in->a].reg), in->a);
    else
        wb__fuse_line(k, "%sp%d[%s] = TO_%s_%s(v%d);", wb__fuse_once_condition(k, p, once), p->id,
                      at, wb__gpu_types[p->view->dtype].name,
                      FUSED_VALUE_KIND(k->program->instr[in->a].reg), in->a);
}
