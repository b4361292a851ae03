/* What tile_compile knows of each instruction.  Private to plan.c and analysis.c. */
#ifndef WB__CPU_TILE_COMPILER_H
#define WB__CPU_TILE_COMPILER_H

#include "backend/cpu/tile/plan.h"

typedef struct {
    const wb__fused *f;
    const wb__view *views;
    const int *pseudo;                  /* the view of each IOTA or draw */
    const tile_segment *s;
    const wb__tile_table *t;
    tile_program *p;
    bool chunked, failed;
    int n, phase, phases, capacity;     /* instructions; current phase, phases; capacity of calls */
    /* By instruction: its level, its phase `when`, its value and the phase of that value, the value
     * that is spread over a tile and its phase, its users, and the instruction whose call also
     * computes this one, or -1. */
    int *level, *when, *value, *value_phase, *spread, *spread_phase, *users, *into;
    /* late: stores deferred to the end; done: stores already emitted; copied: loads that must be
     * copied to the scratch */
    bool *late, *done, *copied;
} tile_compiler;

static inline const wb__instr *instr(const tile_compiler *c, int i) { return &c->f->instr[i]; }

static inline bool is_source(const wb__instr *i)
{
    return i->kind == WB__LOAD || i->kind == WB__IOTA || i->kind == WB__UNIFORM
        || i->kind == WB__GAUSSIAN;
}

static inline const tile_view *view_of(const tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    return &c->s->views[in->kind == WB__IOTA || in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN
                        ? c->pseudo[i] : in->arg];
}

static inline bool uses(const wb__instr *in, int i)
{
    return !is_source(in) && in->kind != WB__NUMBER && (in->a == i || in->b == i || in->c == i);
}

static inline bool is_vector(const tile_compiler *c, int i)
{
    return c->level[i] >= LEVEL_PER_COLUMN;
}

/* Returns the number of an operation in wb__tile_table.pair; -1: no pair has the operation. */
static inline int pair_number(const wb__instr *in)
{
    if (in->kind != WB__ELEMENTWISE_OP || in->reg != WB__REG_F32) return -1;
    switch (in->op) {
    case WB__OP_add: return WB__PAIR_ADD;
    case WB__OP_sub: return WB__PAIR_SUB;
    case WB__OP_mul: case WB__OP_square: return WB__PAIR_MUL;
    default: return -1;
    }
}

/* Returns the second operand of a pair's first operation; that of a square is its only operand. */
static inline int second_operand(const wb__instr *in)
{
    return in->op == WB__OP_square ? in->a : in->b;
}

/* Finds levels, phases and pairs, and the stores to defer (analysis.c). */
void tile_analyse(tile_compiler *c);
/* Whether store `s`, if it is written when instruction `now` runs, would overwrite memory that is
 * loaded for a later instruction. */
bool tile_would_overwrite(const tile_compiler *c, int s, int now);

#endif
