/* Assigns scratch offsets to the values of a tile program.  Most values get a register of one tile,
 * which is reused after the value's last use, so that the working set stays in the L1 cache.
 * Values kept for a whole row or task get larger buffers. */
#include "backend/cpu/tile/plan.h"

#include <string.h>

typedef struct {
    tile_program *p;
    const tile_segment *s;
    int64_t slot, end;
    int *last;                          /* the last call that reads each value */
    int64_t *free_slots;
    int n_free;
} placer;

static int64_t take(placer *w, int64_t bytes)
{
    const int64_t at = w->end;
    w->end += (bytes + 63) / 64 * 64;
    return at;
}

static int64_t take_slot(placer *w)
{
    if (w->n_free) return w->free_slots[--w->n_free];
    w->p->slots++;
    return take(w, w->slot);
}

static bool is_value(const tile_call *call, int k) { return call->value[k] >= 0; }

static void free_operands(placer *w, int k, const bool *in_slot)
{
    const tile_call *call = &w->p->calls[k];
    for (int i = 1; i < 4; i++) {
        const int v = call->value[i];
        bool seen = v < 0;
        for (int j = 1; j < i; j++) seen |= call->value[j] == v;
        if (!seen && w->last[v] == k && in_slot[v]) w->free_slots[w->n_free++] = w->p->at[v];
    }
}

/* Assigns offsets to the values of one phase's chunks. */
static void place_phase(placer *w, const tile_phase *phase, bool *in_slot)
{
    tile_program *p = w->p;
    for (int k = phase->from; k < phase->to; k++) {
        const tile_call *call = &p->calls[k];
        const bool same = (call->kind == CALL_PLAIN || call->kind == CALL_BY_ROW) && !call->row;
        bool in_place = same;
        for (int i = 1; i < 4; i++)
            if (is_value(call, i) && call->size[i] != call->size[0]) in_place = false;
        if (in_place) free_operands(w, k, in_slot);
        if (is_value(call, 0) && call->kind != CALL_BIND && p->at[call->value[0]] < 0) {
            const int d = call->value[0];
            if (call->level[0] == LEVEL_ROW) {
                p->at[d] = take(w, w->s->tile_rows * 8);
            } else if (w->last[d] >= phase->to) {
                p->at[d] = take(w, w->s->tile_rows * w->s->n[COLS] * call->size[0]);
                p->wide[d] = call->size[0];
                p->wides = true;
            } else if (w->last[d] > k) {
                p->at[d] = take_slot(w);
                in_slot[d] = true;
            } else {
                p->at[d] = take_slot(w);                    /* the value is never read */
                w->free_slots[w->n_free++] = p->at[d];
            }
        }
        if (!in_place) free_operands(w, k, in_slot);
    }
}

static void place_reductions(placer *w)
{
    tile_program *p = w->p;
    const tile_segment *s = w->s;
    for (int i = 0; i < p->n_reductions; i++) {
        tile_reduction *f = &p->reductions[i];
        const bool sum = f->op == 0, cols = f->kind == REDUCE_COLUMNS;
        const bool wide = cols || (sum && f->reg == WB__REG_I32);
        f->length = s->tile_rows;
        if (!cols) f->length *= p->pieces && f->kind == REDUCE_ROWS ? s->n[COLS] : s->tile_cols;
        f->acc = take(w, f->length * (wide ? 8 : wb__reg_size(f->reg)));
        if (f->op == 3 || (sum && f->reg == WB__REG_F32)) f->more = take(w, f->length * 8);
    }
}

int tile_place_values(tile_program *p, const tile_segment *s, int64_t slot)
{
    const size_t n = (size_t)WB__MAX(p->n_values, 1);
    placer w = {.p = p, .s = s, .slot = slot};
    p->at = wb__alloc(n * sizeof *p->at);
    p->wide = wb__alloc_zero(n, 1);
    w.last = wb__alloc_zero(n, sizeof *w.last);
    w.free_slots = wb__alloc(n * sizeof *w.free_slots);
    bool *in_slot = wb__alloc_zero(n, sizeof *in_slot);
    const int e = p->at && p->wide && w.last && w.free_slots && in_slot ? 0 : WB_ERROR_MEMORY;
    if (!e) {
        /* the table of pointers is at the beginning */
        w.end = ((int64_t)n * (int64_t)sizeof(void *) + 63) / 64 * 64;
        for (size_t i = 0; i < n; i++) p->at[i] = -1;
        for (int k = 0; k < p->n_calls; k++)
            for (int i = 1; i < 4; i++)
                if (is_value(&p->calls[k], i)) w.last[p->calls[k].value[i]] = k;
        for (int k = 0; k < p->n_calls; k++) {
            const tile_call *call = &p->calls[k];
            if (!is_value(call, 0) || call->kind == CALL_BIND) continue;
            int64_t *at = &p->at[call->value[0]];
            if (k < p->once_to) *at = take(&w, 16);
            else if (k < p->hoist_to) *at = take(&w, slot);
            else if (call->row || call->level[0] == LEVEL_ROW) *at = take(&w, s->tile_rows * 8);
        }
        for (int i = 0; i < p->n_phases; i++) place_phase(&w, &p->phases[i], in_slot);
        place_reductions(&w);
        p->scratch = w.end;
    }
    wb__free(w.last);
    wb__free(w.free_slots);
    wb__free(in_slot);
    return e;
}

void tile_program_free(tile_program *p)
{
    wb__free(p->calls);
    wb__free(p->at);
    wb__free(p->wide);
    wb__free(p->phases);
    wb__free(p->reductions);
    memset(p, 0, sizeof *p);
}

static bool same_bytes(const void *a, const void *b, size_t n) { return !n || !memcmp(a, b, n); }

/* Whether two segments can share a program. */
bool tile_program_same(const tile_program *a, const tile_program *b)
{
    return a->n_values == b->n_values && a->n_calls == b->n_calls && a->n_phases == b->n_phases
        && a->n_reductions == b->n_reductions && a->once_to == b->once_to && a->hoist_to == b->hoist_to
        && a->last_from == b->last_from
        && a->scratch == b->scratch && a->pieces == b->pieces
        && same_bytes(a->calls, b->calls, (size_t)a->n_calls * sizeof *a->calls)
        && same_bytes(a->at, b->at, (size_t)a->n_values * sizeof *a->at)
        && same_bytes(a->wide, b->wide, (size_t)a->n_values)
        && same_bytes(a->phases, b->phases, (size_t)a->n_phases * sizeof *a->phases)
        && same_bytes(a->reductions, b->reductions, (size_t)a->n_reductions * sizeof *a->reductions);
}
