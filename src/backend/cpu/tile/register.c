/* Assigns scratch offsets to the values of a tile program.  Most values get a register of one tile,
 * which is reused after the value's last use, so that the working set stays in the L1 cache.
 * Values of other sizes, and values that several tiles or phases read, have memory of their own. */
#include "backend/cpu/tile/plan.h"

#include <string.h>

typedef struct {
    tile_program *p;
    const tile_segment *s;
    int64_t register_bytes, end;
    int *last;                          /* the last call that reads each value */
    int64_t *free_registers;
    int n_free;
} tile_register_allocator;

static int64_t tile_reserve_bytes(tile_register_allocator *w, int64_t bytes)
{
    const int64_t at = w->end;
    w->end += (bytes + 63) / 64 * 64;
    return at;
}

static int64_t tile_register_allocate(tile_register_allocator *w)
{
    if (w->n_free) return w->free_registers[--w->n_free];
    w->p->n_registers++;
    return tile_reserve_bytes(w, w->register_bytes);
}

static bool tile_register_is_value(const tile_call *call, int k) { return call->value[k] >= 0; }

static void tile_register_free_operands(tile_register_allocator *w, int k, const bool *in_register)
{
    const tile_call *call = &w->p->calls[k];
    for (int i = 1; i < 4; i++) {
        const int v = call->value[i];
        bool seen = v < 0;
        for (int j = 1; j < i; j++) seen |= call->value[j] == v;
        if (!seen && w->last[v] == k && in_register[v])
            w->free_registers[w->n_free++] = w->p->at[v];
    }
}

/* Assigns offsets to the values that a phase computes for each chunk. */
static void allocate_phase(tile_register_allocator *w, const tile_phase *phase, bool *in_register)
{
    tile_program *p = w->p;
    for (int k = phase->from; k < phase->to; k++) {
        const tile_call *call = &p->calls[k];
        const bool same = (call->kind == CALL_PLAIN || call->kind == CALL_BY_ROW) && !call->row;
        bool in_place = same;
        for (int i = 1; i < 4; i++)
            if (tile_register_is_value(call, i) && call->size[i] != call->size[0]) in_place = false;
        if (in_place) tile_register_free_operands(w, k, in_register);
        if (tile_register_is_value(call,
                                   0) && call->kind != CALL_BIND && p->at[call->value[0]] < 0) {
            const int d = call->value[0];
            if (call->level[0] == LEVEL_PER_ROW) {
                p->at[d] = tile_reserve_bytes(w, w->s->tile_rows * 8);
            } else if (w->last[d] >= phase->to) {
                p->at[d] = tile_reserve_bytes(w, w->s->tile_rows * w->s->n[COLS] * call->size[0]);
                p->wide[d] = call->size[0];
                p->wides = true;
            } else if (w->last[d] > k) {
                p->at[d] = tile_register_allocate(w);
                in_register[d] = true;
            } else {
                p->at[d] = tile_register_allocate(w);           /* the value is never read */
                w->free_registers[w->n_free++] = p->at[d];
            }
        }
        if (!in_place) tile_register_free_operands(w, k, in_register);
    }
}

/* Assigns offsets to the accumulators of the reductions. */
static void place_reductions(tile_register_allocator *w)
{
    tile_program *p = w->p;
    const tile_segment *s = w->s;
    for (int i = 0; i < p->n_reductions; i++) {
        tile_reduction *f = &p->reductions[i];
        const bool sum = f->op == 0, cols = f->kind == REDUCE_COLUMNS;
        const bool wide = cols || (sum && f->reg == WB__REG_I32);
        f->length = s->tile_rows;
        if (!cols) f->length *= p->chunked && f->kind == REDUCE_ROWS ? s->n[COLS] : s->tile_cols;
        f->acc = tile_reserve_bytes(w, f->length * (wide ? 8 : wb__reg_size(f->reg)));
        if (f->op == 3 || (sum && f->reg == WB__REG_F32))
            f->more = tile_reserve_bytes(w, f->length * 8);
    }
}

int tile_allocate_values(tile_program *p, const tile_segment *s, int64_t register_bytes)
{
    const size_t n = (size_t)WB__MAX(p->n_values, 1);
    tile_register_allocator w = {.p = p, .s = s, .register_bytes = register_bytes};
    p->at = wb__alloc(n * sizeof *p->at);
    p->wide = wb__alloc_zero(n, 1);
    w.last = wb__alloc_zero(n, sizeof *w.last);
    w.free_registers = wb__alloc(n * sizeof *w.free_registers);
    bool *in_register = wb__alloc_zero(n, sizeof *in_register);
    const int e =
        p->at && p->wide && w.last && w.free_registers && in_register ? 0 : WB_ERROR_MEMORY;
    if (!e) {
        /* the scratch begins with the addresses of the values (run.c) */
        w.end = ((int64_t)n * (int64_t)sizeof(void *) + 63) / 64 * 64;
        for (size_t i = 0; i < n; i++) p->at[i] = -1;
        for (int k = 0; k < p->n_calls; k++)
            for (int i = 1; i < 4; i++)
                if (tile_register_is_value(&p->calls[k], i)) w.last[p->calls[k].value[i]] = k;
        for (int k = 0; k < p->n_calls; k++) {
            const tile_call *call = &p->calls[k];
            if (!tile_register_is_value(call, 0) || call->kind == CALL_BIND) continue;
            int64_t *at = &p->at[call->value[0]];
            if (k < p->once_to) *at = tile_reserve_bytes(&w, 16);
            else if (k < p->hoist_to) *at = tile_reserve_bytes(&w, register_bytes);
            else if (call->row || call->level[0] == LEVEL_PER_ROW)
                *at = tile_reserve_bytes(&w, s->tile_rows * 8);
        }
        for (int i = 0; i < p->n_phases; i++) allocate_phase(&w, &p->phases[i], in_register);
        place_reductions(&w);
        p->scratch = w.end;
    }
    wb__free(w.last);
    wb__free(w.free_registers);
    wb__free(in_register);
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

/* Whether two compiled programs are equal, so that their segments can share one of them. */
bool tile_program_same(const tile_program *a, const tile_program *b)
{
    return a->n_values == b->n_values && a->n_calls == b->n_calls && a->n_phases == b->n_phases &&
           a->n_reductions == b->n_reductions && a->once_to == b->once_to &&
           a->hoist_to == b->hoist_to && a->last_from == b->last_from && a->scratch == b->scratch &&
           a->chunked == b->chunked &&
           same_bytes(a->calls, b->calls, (size_t)a->n_calls * sizeof *a->calls) &&
           same_bytes(a->at, b->at, (size_t)a->n_values * sizeof *a->at) &&
           same_bytes(a->wide, b->wide, (size_t)a->n_values) &&
           same_bytes(a->phases, b->phases, (size_t)a->n_phases * sizeof *a->phases) &&
           same_bytes(a->reductions, b->reductions,
                      (size_t)a->n_reductions * sizeof *a->reductions);
}
