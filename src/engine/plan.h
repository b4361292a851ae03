/* A plan: the kernels and buffers of one evaluation.  It is built once and run many times.
 * request.c fills requests, plan/plan.c builds plans, cache.c keeps and runs them. */
#ifndef WB__PLAN_H
#define WB__PLAN_H

#include "backend/backend.h"
#include "base/mutex.h"
#include "engine/graph.h"

/* A buffer that a plan reads: a tensor, or a slice of a tensor that is read in place
 * (leaf_slice.c). */
typedef struct {
    wb_tensor *tensor;
    int64_t at, bytes;              /* first byte that is read, in the tensor; number of bytes */
    int granule;    /* a power of two that divides the `at` of a slice, at most WB__ALIGNED; or 0 */
    bool scattered;                 /* the kernels read less than half of the `bytes` bytes */
} wb__plan_leaf;

/* A slice that is read in place: a chain of n views from the slice, link[0], down to an evaluated
 * tensor, the base. */
enum { WB__MOST_LINKS = 8, WB__ALIGNED = 64 };
typedef struct {
    wb_tensor *base;
    int n, granule;
    struct {
        const wb_tensor *x;
        int64_t attr[2 * WB_MAX_DIMS];      /* of a link that is a slice: starts and steps; the
                                               starts are changed so that the lowest element read is
                                               at the beginning of the leaf's buffer */
    } link[WB__MOST_LINKS];
    int64_t at, bytes;              /* the bytes of the base that are read */
} wb__leaf_slice;

/* Whether the slice x can be read in place.  If so, fills w.  The base must be evaluated, and no
 * pending write may replace it.  At most WB__MOST_LINKS views are allowed; strides must express
 * them, and one of them must leave out elements. */
bool wb__leaf_slice_of(wb_tensor *x, wb__leaf_slice *w);

/* The input of the plan builder: a graph in topological order, its results and its writes.  `words`
 * encodes the structure and is the key of the plan cache. */
typedef struct {
    const wb_device *device;
    wb__order order;
    uint64_t *words;                    /* structure of the graph: key of the plan cache */
    int n_words, words_capacity;
    wb__number *numbers;                /* numbers that may differ between runs */
    int n_numbers, numbers_capacity;
    wb__plan_leaf *leaves;
    int n_leaves, leaves_capacity;
    bool *is_result;                /* of each tensor of the order: whether it is a result */
    int n_is_result, is_result_capacity;
    wb_tensor **results;            /* tensors that get storage */
    int n_results, results_capacity;
    wb_tensor **writes;             /* pending assigns, oldest first */
    int n_writes, writes_capacity;
    int *targets; /* buffer index of each write's variable; -1: a later write replaces this write */
    int targets_capacity, n_targets;
    int *leaf_of; /* index of the leaf of each tensor of the order, also of slices; -1: none */
    int leaf_of_capacity;
    wb_tensor **reads;              /* variables that the evaluation reads (claims.c) */
    int n_reads, reads_capacity, forks;
    bool alone;                 /* no other thread could write the variables (wb__alone_begin) */
    /* Set by the caller of wb__request_fill: a result, and an evaluated number of its dtype and
     * shape.  The device itself writes variables only if both are finite.  NULL: all writes are
     * made. */
    wb_tensor *guard, *before;
    int before_leaf;                /* the leaf of `before` */
    bool refused;   /* a requested tensor (not only a pending write) needs an overwritten value */
    uint8_t precision;              /* wb__precision at the time of the request */
    bool deterministic;
} wb__request;

/* A plan may run as one command of the device, a wb__graph (backend.h).  A run with a guard, a
 * number that must be finite, has two phases: the host checks the number before the second phase
 * writes variables. */
typedef enum { WB__PHASE_WHOLE, WB__PHASE_COMPUTE, WB__PHASE_WRITES, WB__PHASES } wb__phase_kind;
typedef struct {
    wb__sequence sequence;          /* the phase's kernels */
    wb__graph *graph;               /* NULL: the kernels are launched one by one */
    bool tried;                     /* its graph was built, or could not be */
} wb__plan_phase;

/* The prepared form of a leaf, which a kernel may read in place of the leaf: indices of both. */
typedef struct { int leaf, kernel; } wb__plan_form;

/* A plan.  The buffers of a run are, in this order: leaves, written variables that are no leaf,
 * results, the arena, prepared forms. */
typedef struct {
    uint64_t hash;
    uint64_t *words;
    int n_words;
    const wb_device *device;
    int n_steps, n_compute;         /* steps before n_compute write no variable */
    wb__kernel **kernels;
    wb__plan_wait *waits;           /* of each step; NULL: no launch only begins its step */
    int *after;                     /* of each step, as in wb__sequence; NULL: one branch */
    bool by_host;                   /* the host takes part in a step */
    char **text;                    /* one line for each step, for WEBER_DEBUG=plan */
    int arena;                      /* index of the arena's buffer */
    int64_t arena_bytes, workspace_bytes, result_bytes, input_bytes;
    int64_t branch_at, branch_bytes;        /* the host takes part in a step of a COLLECTIVE */
    wb__number *constants;          /* values of fixed literals; the numbers of a run are the
                                       request's numbers and then these */
    int n_constants;
    wb__buffer *buffers;            /* kind and size of each buffer */
    /* lower bounds of the number of kernel launches of a run without graphs: n_launches for all
     * steps, n_final_launches for the steps that write variables */
    int n_launches, n_final_launches;
    wb__plan_form *forms;
    int n_forms, forms_capacity;
    bool library_writes;            /* one of the steps that write variables is not a fused one */
    _Atomic int runs;
    wb__mutex building;             /* guards the phases while their graphs are built */
    wb__plan_phase phase[WB__PHASES];
    int uses;               /* references of the cache, of runs in progress, and of recordings */
    uint64_t last_used;             /* the cache's clock */
} wb__plan;

/* The number of buffers of a run. */
static inline int wb__plan_buffers(const wb__plan *p) { return p->arena + 1 + p->n_forms; }

wb__plan *wb__plan_make(const wb__request *r, uint64_t hash);
void wb__plan_free(wb__plan *p);
void wb__plan_print(const wb__plan *p);

bool wb__literal_fixed(const wb_tensor *x);      /* whether the value of the literal x is part of
                                                    the plan and of its cache key; else each run
                                                    sets it */

#endif
