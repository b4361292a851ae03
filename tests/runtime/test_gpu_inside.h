/* Declarations that test_gpu.c, the driver, and test_gpu_run.c, which runs its queues, share. */
#ifndef TEST_GPU_INSIDE_H
#define TEST_GPU_INSIDE_H

#include "by_hand.h"
#include "test_gpu.h"

#include "backend/gpu/runtime/runtime.h"

enum { CODE_MEMORY = 1, CODE_FAILS, CODE_NAME, CODE_IMAGE, CODE_LOST };

typedef enum { EVENTS, PROGRAMS, FUNCTIONS, PINNED, RECORDED, GRAPHS, BLOCKS, OPEN, KINDS } kind;

typedef struct { bool reached; int users; struct queue *queue; } ticket;
typedef struct { ticket *last; } event;

typedef struct block {
    struct machine *device;
    unsigned char *data;
    size_t bytes;
    bool there;                         /* the compute queue has run its allocation */
    struct block *next;
} block;

typedef struct {
    test_step step;
    char *text;
    size_t words;                       /* of wb_put: the words of its arguments */
    struct machine *device;
    struct function *functions;         /* freed with the program */
} program;
typedef struct function {
    struct function *next;
    const program *program;
    char entry[32];
    bool adds;                          /* the first kernel of STEP_TWICE, or its table */
    int n;
    size_t bytes[3];                    /* of each argument */
    unsigned char bound[3][4096];
} function;

typedef struct {
    function f;                         /* a copy, with the bound arguments */
    uint32_t groups, items;
    struct machine *device;
} launched;

typedef struct { int users, n, capacity; launched **launch; } graph;

typedef enum { RUN, COPY, MARK, WAIT, MAKE, FREE, REPLAY } action;
typedef struct command {
    action action;
    launched *launch;
    ticket *ticket;
    block *block;
    graph *graph;
    unsigned char *to;
    const unsigned char *from, *host;   /* host: `to` or `from` if in host memory, or NULL */
    size_t bytes;
    struct command *next;
} command;

typedef struct queue { struct machine *device; command *first, **last; } queue;
typedef struct machine {
    wb__gpu_device gpu;
    queue queues[WB__GPU_QUEUES];
    graph *recording;
    int fault;                          /* not 0: the code that every call returns */
    size_t used;
} machine;

extern wb__gpu_driver gpu_driver;
extern machine gpu_places[2];
extern block *gpu_memory;               /* a list of all blocks that were not freed */

/* Frees an object and counts it as freed. */
void gpu_ended(kind k, void *p);
/* The value of an environment variable; NULL: not set, or empty. */
const char *gpu_variable(const char *name);

/* ---- test_gpu_run.c: the caller holds the lock ----------------------------------------------- */

/* The host address of `bytes` bytes of device memory, `from` bytes after the handle `at`; NULL: no
 * block has them. */
unsigned char *gpu_reach(uint64_t at, size_t from, size_t bytes);
void gpu_drop_ticket(ticket *t);
void gpu_drop_graph(graph *g);
void gpu_put(queue *q, command c);
/* Runs one command.  With the lazy schedule it is a command of the queue `awaited`, or of a queue
 * whose event that queue waits for. */
void gpu_run_one(queue *awaited);
void gpu_run_queue(queue *q);

#endif
