/* A plan: what one evaluation does, as kernels over buffers, made once and run many times.
 * request.c fills requests, plan/plan.c makes plans, cache.c keeps and runs them. */
#ifndef WB__PLAN_H
#define WB__PLAN_H

#include "backend/backend.h"
#include "engine/graph.h"

/* A tensor that a plan reads, or a window of it (window.c). */
typedef struct {
    wb_tensor *tensor;
    int64_t at, bytes;              /* the first byte that is read, from the tensor's; how far */
    int granule;                    /* of a window: what divides `at`, as in wb__view; else 0 */
    bool scattered;                 /* as in wb__buffer */
} wb__plan_leaf;

/* A chain of views, the last one first, down to a known tensor. */
enum { WB__MOST_LINKS = 8, WB__ALIGNED = 64 };
typedef struct {
    wb_tensor *base;
    int n, granule;
    struct {
        const wb_tensor *x;
        int64_t attr[2 * WB_MAX_DIMS];      /* of a slice, from the window's own beginning */
    } link[WB__MOST_LINKS];
    int64_t at, bytes;              /* as in wb__plan_leaf */
} wb__window;

/* Is x, a slice, a window of a known tensor that this evaluation does not write to? */
bool wb__window_of(wb_tensor *x, wb__window *w);

/* What a plan is made from: a walked graph.  `words` is its structure, the key of the cache. */
typedef struct {
    const wb_device *device;
    wb__order order;
    uint64_t *words;
    int n_words, words_room;
    wb__number *numbers;
    int n_numbers, numbers_room;
    wb__plan_leaf *leaves;
    int n_leaves, leaves_room;
    bool *asked;                        /* of the order's tensors: is it a result? */
    int n_asked, asked_room;
    wb_tensor **results;            /* tensors that get storage */
    int n_results, results_room;
    wb_tensor **writes;             /* pending assigns, oldest first */
    int n_writes, writes_room;
    int *targets; /* of each write: the buffer of its variable, or -1 where a later write follows */
    int targets_room, n_targets;
    int *leaf_of; /* of each tensor of the order: its number among the leaves, as the window that
                     it is if it is not known; -1: neither */
    int leaf_of_room;
    bool refused;                   /* what was asked for cannot be had, whatever is pending */
    uint8_t precision;              /* wb__precision, as it was set when this was written down */
    bool deterministic;
} wb__request;

/* A plan may run as one command of the device's; with a gate it is two, since the host looks at the
 * gate's number before variables are written. */
typedef enum { WB__PART_WHOLE, WB__PART_COMPUTE, WB__PART_WRITES, WB__PARTS } wb__part_kind;
typedef struct {
    wb__sequence sequence;
    wb__graph *graph;               /* NULL: its kernels are launched one by one */
    bool tried;
} wb__plan_part;

/* Buffers of a running plan, in this order: leaves, memory of variables no leaf stands for,
 * results, the arena. */
typedef struct {
    uint64_t hash;
    uint64_t *words;
    int n_words;
    const wb_device *device;
    int n_steps, n_compute;         /* steps before n_compute write no variable */
    wb__kernel **kernels;
    char **text;                    /* one line a step, for WEBER_DEBUG=plan */
    int arena;                      /* its buffer number */
    int64_t arena_bytes, workspace_bytes, result_bytes, input_bytes;
    wb__number *constants;          /* behind the request's numbers */
    int n_constants;
    wb__buffer *buffers;            /* what each is for */
    int n_launches, n_final_launches;   /* at least so many, one by one; of those that write variables */
    _Atomic int runs;
    wb__plan_part part[WB__PARTS];
    int uses;                       /* runs under way, and the cache */
    uint64_t last_used;
} wb__plan;

wb__plan *wb__plan_make(const wb__request *r, uint64_t hash);
void wb__plan_free(wb__plan *p);
void wb__plan_print(const wb__plan *p);

bool wb__literal_fixed(const wb_tensor *x);      /* is a literal's value part of the structure? */

#endif
