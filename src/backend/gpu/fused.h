/* A fused kernel in the making.  Private to fused*.c.
 *
 *   fused.c         programs taken apart into kernels of one shape each
 *   fused_loops.c   spaces as few dimensions, and what that means for views
 *   fused_values.c  instructions as text
 *   fused_text.c    text, the struct of arguments, the launch
 *   fused_reduction_text.c   folds as text
 *   fused_rows.c    kernels without folds, and with folds along columns
 *   fused_reductions.c   kernels that fold rows, or everything
 *
 * What a text says depends on the program, on the number of dimensions left, and on which strides
 * are 0 or 1; sizes, other strides, offsets and numbers are fields of the struct. */
#ifndef WB__GPU_FUSED_H
#define WB__GPU_FUSED_H

#include "backend/gpu/gpu.h"
#include "base/text.h"

enum {
    WB__GROUP_ITEMS = 256,                      /* in every group: few sizes are compiled */
    WB__NO_BUFFER = -2                          /* of a view that numbers a draw's elements */
};

/* A program on one space: a segment, or a part of one. */
typedef struct {
    int n_instr, n_views;
    wb__instr *instr;
    wb__view *views;
    wb__space space;
} wb__part;

typedef enum { WB__OUTER, WB__ROWS, WB__COLS } wb__loop;

/* Which dimensions of the space are walked together. */
typedef enum {
    WB__ANY_ORDER,          /* all are columns, in any order */
    WB__IN_ORDER,           /* all are rows */
    WB__BY_ROW,             /* the outer ones are rows too */
    WB__BY_GROUP
} wb__walk;

/* Something that has strides: a view, or the index of an iota. */
typedef struct {
    const wb__view *view;                       /* NULL: an iota */
    bool used;
    int slot, way;                              /* numbers in the text: of it, of its strides */
    unsigned put;                               /* strides that are in the struct */
    bool told;                                  /* an iota's numbers are in the struct */
    int64_t stride[WB_MAX_DIMS];
} wb__fuse_place;

typedef struct {
    const wb__gpu_target *target;
    wb__gpu_work *work;
    const wb__part *part;
    const char *impl;

    /* Per instruction: is it wanted, its level, its place (-1), where it was made. */
    bool *want;
    uint8_t *level, *made;
    int *place;
    wb__fuse_place *places;
    int n_places;

    /* What is left of the space. */
    int n_dims, first[4];                       /* dimensions of loop g: first[g] .. first[g + 1] */
    int64_t dim[WB_MAX_DIMS], points[3];        /* of each loop */
    bool wide;                                  /* places need 64 bits */
    unsigned put;                               /* dimensions that are in the struct */
    unsigned inner;                             /* bit mask: dimensions that change in the loop */

    wb__text fields, body;
    uint32_t *words;                            /* of the struct */
    int n_words, words_room;
    wb__gpu_number *numbers;
    wb__gpu_origin *origins;
    int n_numbers, n_origins;
    int *buffers, n_buffers, n_slots, n_ways, workspace_word;
    bool f64, failed, used[WB__OP_COUNT][4];
    int indent;
} wb__fuse;

/* fused_text.c */
/* 0, or an error, with nothing to free. */
int wb__fuse_start(wb__fuse *k, const wb__gpu_target *t, wb__gpu_work *work, const wb__part *part);
/* One line of the body. */
void wb__fuse_line(wb__fuse *k, const char *format, ...) WB__PRINTF(2, 3);
void wb__fuse_open(wb__fuse *k, const char *format, ...) WB__PRINTF(2, 3);     /* ... { */
void wb__fuse_close(wb__fuse *k);
void wb__fuse_uint(wb__fuse *k, int64_t v, const char *format, ...) WB__PRINTF(3, 4);
void wb__fuse_pair(wb__fuse *k, int64_t v, const char *format, ...) WB__PRINTF(3, 4);
/* Adds the launch and frees what was made on the way: to be called once for each start. */
int wb__fuse_finish(wb__fuse *k, int64_t groups_x, int64_t groups_y, int64_t groups_z);
/* Number `n` of the plan as field `name`, made once. */
void wb__fuse_number(wb__fuse *k, int n, wb__gpu_put put, char name[24]);
/* The number of the argument for a buffer, WB__GPU_WORKSPACE too. */
int wb__fuse_buffer(wb__fuse *k, int buffer);
void wb__fuse_free(wb__fuse *k);
extern const char *const wb__fuse_kinds[4];     /* of registers: "f32", ... */
extern const wb_dtype wb__fuse_whole[4];        /* what a register holds as it is */

/* fused_loops.c */
void wb__fuse_loops(wb__fuse *k, wb__walk walk);
/* Indices of the dimensions [from, to) out of a variable that counts all their points. */
void wb__fuse_unravel(wb__fuse *k, const char *count, int from, int to);
/* Pointers at the dimensions that are not inner, whose indices are known. */
void wb__fuse_bases(wb__fuse *k);
/* The rest of the way of what is wanted, inside the loop; `row`: of what does not vary there. */
void wb__fuse_ways(wb__fuse *k, const bool *want);
/* What to write behind a pointer, [...], or add to a number. */
void wb__fuse_at(const wb__fuse *k, const wb__fuse_place *p, char text[48]);

/* fused_values.c */
enum { WB__MADE_NOT, WB__MADE_ROW, WB__MADE_FULL };
/* The level of each instruction as its operands and views have it. */
void wb__part_levels(const wb__part *p, uint8_t *level);
/* Adds what the wanted instructions need; what folds along columns need, only if asked. */
void wb__part_want(const wb__part *p, bool *want, bool past_reductions);
/* Instructions of `want` that are not made yet, up to a level.  FULL ones are then forgotten where
 * their loop ends. */
void wb__fuse_values(wb__fuse *k, const bool *want, int level);
void wb__fuse_forget(wb__fuse *k);
void wb__fuse_made(wb__fuse *k, int i, const char *made);
void wb__fuse_store(wb__fuse *k, int i);
void wb__fuse_functions(const wb__fuse *k, wb__text *to);

/* fused_reduction_text.c: a fold as text.  `acc`: what it adds up in; s, c and w of its number `n` are
 * an item's own, t and z of its slot the group's. */
typedef struct { int instr, n, slot; wb__reg from, acc, out; uint16_t op; } wb__reduction;
wb__reduction wb__reduction_of(const wb__part *p, int instr, int n, int slot);
void wb__reduction_start(wb__fuse *k, const wb__reduction *f);
void wb__reduction_take(wb__fuse *k, const wb__reduction *f, const char *place);
/* From partial results q and z at `at`. */
void wb__reduction_merge(wb__fuse *k, const wb__reduction *f, const char *at);
/* The arrays that the group shares, each declared once; their bytes. */
int64_t wb__reduction_locals(wb__fuse *k, const wb__reduction *f, int n);
void wb__reduction_share(wb__fuse *k, const wb__reduction *f);
/* The group's results side by side in steps of 128, ..., `least`, which begin at item l. */
void wb__reduction_tree(wb__fuse *k, const wb__reduction *f, int n, const char *item, const char *from,
                   const char *least);
/* v, of the fold's register, from t[at]; or, with NULL, from the item's own. */
void wb__reduction_value(wb__fuse *k, const wb__reduction *f, const char *at);

/* fused.c: a part as pieces of at most so many points as one kernel walks, in order, cut along the
 * dimensions of a bit mask, the outermost first; `first` is the number of a piece's first point. */
typedef int wb__piece_maker(const wb__gpu_target *t, const wb__part *p, int64_t first,
                            void *context);
int wb__fused_pieces(const wb__gpu_target *t, const wb__part *p, unsigned dims,
                     wb__piece_maker *make, void *context);

/* fused_rows.c, fused_reductions.c: one kernel, or a few, for a part of one kind. */
int wb__fused_each(const wb__gpu_target *t, const wb__part *p, const bool *stores,
                   wb__gpu_work *work);
int wb__fused_rows(const wb__gpu_target *t, const wb__part *p, const bool *stores,
                   wb__gpu_work *work);
/* The folds of one kind; partial results go into the workspace from byte `at` on. */
int wb__fused_reductions(const wb__gpu_target *t, const wb__part *p, wb__instr_kind kind, size_t at,
                    wb__gpu_work *work);

static inline int64_t wb__quotient_up(int64_t n, int64_t d) { return (n + d - 1) / d; }
static inline size_t wb__gpu_aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* The least power of two that is not below n, as its exponent, at most `most`. */
int wb__fuse_log(int64_t n, int most);
/* Does a view step along the columns? */
bool wb__part_varies(const wb__part *p, const wb__view *v);

#endif
