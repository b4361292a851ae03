/* A plan: the kernels and buffers of one evaluation.  It is built once and run many times.
 * request.c fills requests, plan/plan.c builds plans, cache.c keeps and runs them. */
#ifndef WB__PLAN_H
#define WB__PLAN_H

#include "backend/backend.h"
#include "engine/graph.h"

/* A tensor that a plan reads, or a slice of it that is read in place (leaf_slice.c). */
typedef struct {
    wb_tensor *tensor;
    int64_t at, bytes;              /* first byte read, counted from the tensor's first; number of
                                       bytes */
    int granule;                    /* of a slice: a power of two that divides `at`, in bytes
                                       and at most WB__ALIGNED, as in wb__view; of a whole tensor:
                                       0 */
    bool scattered;                 /* the kernels read less than half of these bytes (wb__buffer in
                                       backend.h) */
} wb__plan_leaf;

/* A chain of views from a slice (the first link) down to an evaluated tensor, the base. */
enum { WB__MOST_LINKS = 8, WB__ALIGNED = 64 };
typedef struct {
    wb_tensor *base;
    int n, granule;
    struct {
        const wb_tensor *x;
        int64_t attr[2 * WB_MAX_DIMS];      /* of a slice: its starts and steps; the starts count
                                               from the lowest element that the chain reads */
    } link[WB__MOST_LINKS];
    int64_t at, bytes;              /* the bytes of the base that are read, as in wb__plan_leaf */
} wb__leaf_slice;

/* Whether x, a slice, can be read in place: it is a chain of at most WB__MOST_LINKS views of an
 * evaluated tensor that this evaluation does not write, strides express the chain, and a slice in
 * it leaves out elements.  If so, fills w. */
bool wb__leaf_slice_of(wb_tensor *x, wb__leaf_slice *w);

/* The input of the plan builder: a walked graph.  `words` encodes its structure and is the key of
 * the plan cache. */
typedef struct {
    const wb_device *device;
    wb__order order;
    uint64_t *words;
    int n_words, words_capacity;
    wb__number *numbers;
    int n_numbers, numbers_capacity;
    wb__plan_leaf *leaves;
    int n_leaves, leaves_capacity;
    bool *is_result;                /* for each tensor of the order: whether it is a result */
    int n_is_result, is_result_capacity;
    wb_tensor **results;            /* tensors that get storage */
    int n_results, results_capacity;
    wb_tensor **writes;             /* pending assigns, oldest first */
    int n_writes, writes_capacity;
    int *targets; /* for each write: the index of its variable's buffer; -1: a later write to the
                     variable replaces it */
    int targets_capacity, n_targets;
    int *leaf_of; /* for each tensor of the order: index of its leaf (a slice that is read in place
                     is a leaf, too); -1: it is no leaf */
    int leaf_of_capacity;
    bool refused;                   /* a requested tensor cannot be computed: it was computed from a
                                       version that is gone.  The pending writes are not the
                                       cause. */
    uint8_t precision;              /* wb__precision at the time of the request */
    bool deterministic;
} wb__request;

/* A plan may run as one command (graph) of the device.  With a guard it is two commands, since the
 * host reads the guard's number before variables are written. */
typedef enum { WB__PHASE_WHOLE, WB__PHASE_COMPUTE, WB__PHASE_WRITES, WB__PHASES } wb__phase_kind;
typedef struct {
    wb__sequence sequence;
    wb__graph *graph;               /* NULL: the kernels are launched one by one */
    bool tried;
} wb__plan_phase;

/* A plan.  The buffers of a run are in this order: leaves, variables that are no leaf, results, the
 * arena. */
typedef struct {
    uint64_t hash;
    uint64_t *words;
    int n_words;
    const wb_device *device;
    int n_steps, n_compute;         /* steps before n_compute write no variable */
    wb__kernel **kernels;
    char **text;                    /* one line for each step, for WEBER_DEBUG=plan */
    int arena;                      /* index of the arena's buffer */
    int64_t arena_bytes, workspace_bytes, result_bytes, input_bytes;
    wb__number *constants;          /* fixed literals; in the numbers of a run they come after the
                                       request's numbers */
    int n_constants;
    wb__buffer *buffers;            /* kind and size of each buffer */
    /* lower bounds of the number of launches when no graph is used: n_launches for all steps,
     * n_final_launches for the steps that write variables */
    int n_launches, n_final_launches;
    _Atomic int runs;
    wb__plan_phase phase[WB__PHASES];
    int uses;                       /* references: of the cache, of runs under way and of
                                       recordings of wb_compile */
    uint64_t last_used;
} wb__plan;

wb__plan *wb__plan_make(const wb__request *r, uint64_t hash);
void wb__plan_free(wb__plan *p);
void wb__plan_print(const wb__plan *p);

bool wb__literal_fixed(const wb_tensor *x);      /* whether a literal's value is part of the plan's
                                                    structure, and so of its key in the cache; else
                                                    it is a run-time number */

#endif
