/* Finds, for each instruction of a tile program, its level, its phase, whether one call computes it
 * together with its user, and which stores must wait until the end. */
#include "backend/cpu/tile/compiler.h"

/* ---- levels, phases -------------------------------------------------------------------------- */

/* Sets the level of each instruction. */
static void find_levels(tile_compiler *c)
{
    const tile_segment *s = c->s;
    for (int i = 0; i < c->n; i++) {
        const wb__instr *in = instr(c, i);
        const int operand[3] = {in->a, in->b, in->c};
        bool rows = false, cols = false;
        if (is_source(in)) {
            rows = view_of(c, i)->varies[ROWS];
            cols = view_of(c, i)->varies[COLS];
        } else if (in->kind == WB__REDUCE_COLUMNS) {
            rows = true;
        } else if (in->kind != WB__NUMBER) {
            for (int k = 0; k < 3; k++) {
                if (operand[k] < 0) continue;
                rows |= c->level[operand[k]] == LEVEL_PER_ROW || c->level[operand[k]] == LEVEL_FULL;
                cols |= c->level[operand[k]] >= LEVEL_PER_COLUMN;
            }
        }
        /* in these cases, PER_COLUMN or PER_ROW saves nothing, so the level is FULL */
        if (cols && (s->n[ROWS] == 1 || c->chunked)) rows = true;
        if (rows && s->n[COLS] == 1 && in->kind != WB__REDUCE_COLUMNS && !c->chunked) cols = true;
        c->level[i] = rows ? (cols ? LEVEL_FULL : LEVEL_PER_ROW)
                           : cols ? LEVEL_PER_COLUMN : LEVEL_ONE;
    }
}

/* Sets the phase `when` of each instruction.  Elementwise instructions and casts run as late as
 * their users allow, reductions as early as possible. */
static void tile_analysis_find_phases(tile_compiler *c)
{
    c->phases = 1;
    for (int i = 0; i < c->n; i++) {
        const wb__instr *in = instr(c, i);
        const int operand[3] = {in->a, in->b, in->c};
        c->when[i] = 0;
        if (is_source(in) || in->kind == WB__NUMBER || !c->chunked) continue;
        for (int k = 0; k < 3; k++)
            if (operand[k] >= 0) {
                const int after = c->when[operand[k]]
                    + (instr(c, operand[k])->kind == WB__REDUCE_COLUMNS);
                c->when[i] = WB__MAX(c->when[i], after);
            }
        c->phases = WB__MAX(c->phases, c->when[i] + 1);
    }
    if (!c->chunked) return;
    int *earliest_use = c->spread;              /* reuses the array */
    for (int i = 0; i < c->n; i++) earliest_use[i] = c->phases;
    for (int i = c->n - 1; i >= 0; i--) {
        const wb__instr *in = instr(c, i);
        const int operand[3] = {in->a, in->b, in->c};
        if (in->kind == WB__ELEMENTWISE_OP || in->kind == WB__CAST)
            if (c->level[i] == LEVEL_FULL && earliest_use[i] < c->phases)
                c->when[i] = WB__MAX(c->when[i], earliest_use[i]);
        if (in->kind == WB__STORE && c->late[i]) c->when[i] = c->phases - 1;
        if (is_source(in) || in->kind == WB__NUMBER) continue;
        for (int k = 0; k < 3; k++)
            if (operand[k] >= 0 && earliest_use[operand[k]] > c->when[i])
                earliest_use[operand[k]] = c->when[i];
    }
    for (int i = 0; i < c->n; i++) c->spread[i] = -1;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Whether a pair can read operand i, as a vector or as one number. */
static bool fits_pair(const tile_compiler *c, int i)
{
    return c->level[i] != LEVEL_PER_ROW && instr(c, i)->reg == WB__REG_F32;
}

/* Whether one call can compute instruction k and u, which reads it. */
static bool is_pair(const tile_compiler *c, int k, int u)
{
    const wb__instr *first = instr(c, k), *second = instr(c, u);
    if (pair_number(first) < 0 || pair_number(second) < 0 || c->users[k] != 1 ||
        c->level[k] != LEVEL_FULL || c->when[k] != c->when[u])
        return false;
    const int other = second->a == k ? second->b : second->a;
    if (!fits_pair(c, first->a) || !fits_pair(c, second_operand(first)) || !fits_pair(c, other))
        return false;
    return is_vector(c, first->a) || first->op != WB__OP_sub;
}

/* Finds the pairs of operations that one call computes.  The result of the first operation then
 * needs no register, which saves a store and a load. */
static void find_pairs(tile_compiler *c)
{
    for (int i = 0; i < c->n; i++) c->into[i] = -1;
    for (int u = 0; u < c->n; u++) {
        const wb__instr *in = instr(c, u);
        if (in->kind != WB__ELEMENTWISE_OP || in->b < 0) continue;
        for (int k = 0; k < 2; k++) {
            const int i = k ? in->b : in->a;
            if (c->into[i] >= 0 || c->into[u] >= 0 || !is_pair(c, i, u)) continue;
            if (instr(c, i)->kind == WB__ELEMENTWISE_OP &&
                (c->into[instr(c, i)->a] == i || c->into[instr(c, i)->b] == i))
                continue;               /* instruction i is the second of another pair */
            c->into[i] = u;
            break;
        }
    }
}

/* ---- stores that overwrite operands ---------------------------------------------------------- */

static bool tile_analysis_overlap(const wb__view *a, const wb__view *b)
{
    if (a->buffer != b->buffer) return false;
    int64_t low[2], high[2];
    const wb__view *v[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        low[k] = high[k] = v[k]->offset;
        for (int i = 0; i < v[k]->ndim; i++) {
            const int64_t far = (v[k]->dims[i] - 1) * v[k]->strides[i];
            if (far < 0) low[k] += far;
            else high[k] += far;
        }
        low[k] *= (int64_t)wb__dtype_size(v[k]->dtype);
        high[k] = (high[k] + 1) * (int64_t)wb__dtype_size(v[k]->dtype);
    }
    return low[0] < high[1] && low[1] < high[0];
}

bool tile_would_overwrite(const tile_compiler *c, int s, int now)
{
    for (int l = 0; l < c->n; l++) {
        if (instr(c, l)->kind != WB__LOAD ||
            !tile_analysis_overlap(&c->views[instr(c, l)->arg], &c->views[instr(c, s)->arg]))
            continue;
        for (int u = 0; u < c->n; u++) {
            const int at = c->into[u] >= 0 ? c->into[u] : u;
            if (u == s || at == now || !uses(instr(c, u), l)) continue;
            if (c->late[at] || c->when[at] > c->when[now]
                || (c->when[at] == c->when[now] && at > now)) return true;
        }
    }
    return false;
}

/* Marks the stores that must wait until the end, since they overwrite what is loaded later. */
static void find_late_stores(tile_compiler *c)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < c->n; i++) {
            if (instr(c, i)->kind != WB__STORE || c->late[i] || !tile_would_overwrite(c, i, i))
                continue;
            c->late[i] = changed = true;
        }
    }
    for (int i = 0; i < c->n; i++) {
        const wb__instr *in = instr(c, i);
        if (in->kind != WB__STORE || !c->late[i]) continue;
        c->when[i] = c->phases - 1;
        if (instr(c, in->a)->kind != WB__LOAD) continue;
        for (int k = 0; k < c->n; k++)
            if (k != i && instr(c, k)->kind == WB__STORE &&
                tile_analysis_overlap(&c->views[instr(c, k)->arg], &c->views[instr(c, in->a)->arg]))
                    c->copied[in->a] = true;
    }
}

void tile_analyse(tile_compiler *c)
{
    find_levels(c);
    tile_analysis_find_phases(c);
    find_pairs(c);
    find_late_stores(c);
    tile_analysis_find_phases(c);
    for (int i = 0; i < c->n; i++)
        if (c->into[i] >= 0 && c->when[i] != c->when[c->into[i]]) c->into[i] = -1;
}
