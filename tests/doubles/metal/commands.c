/* Command queues and command buffers.  See vgpu_metal.h.
 *
 * Commands stay in their command buffer until a call waits.  Then commands are run, one after
 * another, of any queue whose first command buffer is committed and does not wait for an event,
 * until what the call waits for is done. */
#include "metal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOT_ENQUEUED, ENQUEUED, COMMITTED, SCHEDULED, COMPLETED, FAILED };      /* status */
enum { TIMEOUT = 2, PAGE_FAULT = 3, OUT_OF_MEMORY = 8 };                       /* of the error */

typedef struct command {
    vgpu_work *work;                    /* or an event */
    metal_event *event;
    uint64_t value;
    bool waits;                         /* for the event; else it signals it */
    struct command *next;
} command;

struct metal_commands {
    struct objc_object object;
    metal_queue *queue;
    int status;
    id encoder;                         /* the one that is open */
    command *first, **last;
    id *kept;
    size_t n_kept, capacity;
    long code;                          /* of its error; 0: none */
    char reason[160];
    double start, end;
    metal_commands *next;               /* in the queue */
};

struct metal_queue {
    struct objc_object object;
    metal_device *device;
    NSUInteger most, n;                 /* command buffers that are not completed */
    metal_commands *first;              /* those that are enqueued or committed */
    metal_queue *next;                  /* of all queues that are alive; the newest first */
};

static metal_queue *queues;
static int64_t n_waiting;
int64_t metal_waiting(void) { return n_waiting; }
metal_device *metal_device_of(const metal_commands *c) { return c->queue->device; }

/* ---- execution ------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((format(printf, 3, 4)))
static void fault(metal_commands *c, long code, const char *format, ...)
{
    va_list list;
    if (c->code) return;
    c->code = code;
    va_start(list, format);
    vsnprintf(c->reason, sizeof c->reason, format, list);
    va_end(list);
}

static void remove_first(metal_commands *c)
{
    command *gone = c->first;
    if (!(c->first = gone->next)) c->last = &c->first;
    if (c->status >= COMMITTED) n_waiting--;
    vgpu_work_drop(gone->work);
    free(gone);
}

static void release_kept(metal_commands *c)
{
    while (c->n_kept) objc_release(c->kept[--c->n_kept]);
    free(c->kept);
    c->kept = NULL;
    c->capacity = 0;
}

/* Completes the first command buffer of a queue, and releases it.  It signals its events even if
 * it has failed. */
static void complete(metal_commands *c)
{
    metal_queue *q = c->queue;
    for (; c->first; remove_first(c))
        if (c->first->event && !c->first->waits && c->first->event->value < c->first->value)
            c->first->event->value = c->first->value;
    c->end = now();
    c->status = c->code ? FAILED : COMPLETED;
    metal_commands **p = &q->first;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    q->n--;
    release_kept(c);
    objc_release(c);
}

static bool is_blocked(const command *first)
{
    return first && first->waits && first->event->value < first->value;
}

static bool is_ready(const metal_queue *q)
{
    return q->first && q->first->status >= COMMITTED
           && (q->first->code || !is_blocked(q->first->first));
}

static void run_work(metal_commands *c, vgpu_work *w)
{
    CUresult result = CUDA_SUCCESS;
    if (!vgpu_guarded(w->run, w, &result)) {
        vgpu_wrong("%s: device %d has nothing at %p", w->name, c->queue->device->number,
                   vgpu_fault_address);
        fault(c, PAGE_FAULT, "Caused GPU Address Fault Error (%s: nothing at %p)", w->name,
              vgpu_fault_address);
    } else if (result) {                /* which is counted as a wrong use */
        fault(c, TIMEOUT, "Caused GPU Timeout Error (%s: not all items reach the same barriers)",
              w->name);
    }
}

/* Runs one command of a queue that is ready. */
static void run_first(metal_queue *q)
{
    metal_commands *c = q->first;
    command *first = c->first;
    c->status = SCHEDULED;
    if (c->start == 0) c->start = now();
    if (first && !c->code) {
        if (first->work) run_work(c, first->work);
        else if (!first->waits && first->event->value < first->value)
            first->event->value = first->value;
        remove_first(c);
    }
    if (!c->first || c->code) complete(c);
}

/* The queue with a committed command that lets `blocked` go on; NULL: none. */
static metal_queue *signaller(const command *blocked)
{
    for (metal_queue *q = queues; q; q = q->next)
        for (metal_commands *c = q->first; c && c->status >= COMMITTED; c = c->next)
            for (const command *k = c->first; k; k = k->next)
                if (k->event == blocked->event && !k->waits && k->value >= blocked->value) return q;
    return NULL;
}

/* Runs one command; false: none can run.  With the schedule `lazy` it is a command of `target`, or
 * of a queue that `target` waits for. */
static bool run_one(metal_queue *target)
{
    metal_queue *ready[64];
    int n = 0;
    if (strcmp(vgpu_env("VGPU_SCHEDULE", ""), "lazy")) target = NULL;
    if (target) {
        for (int depth = 0; target && !is_ready(target) && depth < 64; depth++) {
            const metal_commands *c = target->first;
            target = c && c->status >= COMMITTED ? signaller(c->first) : NULL;
        }
        if (target && is_ready(target)) ready[n++] = target;
    }
    for (metal_queue *q = queues; q && !target && n < 64; q = q->next)
        if (is_ready(q)) ready[n++] = q;
    if (n) run_first(ready[n > 1 ? vgpu_pick(n) : 0]);
    return n > 0;
}

void metal_run_some(void) { run_one(NULL); }

/* No command can run: the command buffer that the others wait for fails. */
static void end_deadlock(metal_queue *q, metal_commands *wanted, const char *where)
{
    metal_commands *c = q->first;
    if (c->status < COMMITTED) {
        vgpu_wrong("%s: deadlock: a command buffer before it is enqueued, but not committed",
                   where);
        c = wanted;
    } else {
        vgpu_wrong("%s: deadlock: a command waits for value %llu of an event, which is %llu, and no"
                   " committed command signals it", where, (unsigned long long)c->first->value,
                   (unsigned long long)c->first->event->value);
    }
    fault(c, TIMEOUT, "Caused GPU Timeout Error (deadlock in %s)", where);
    complete(c);
}

static void wait_for(metal_commands *c, const char *where)
{
    objc_retain(c);
    while (c->status < COMPLETED)
        if (!run_one(c->queue)) end_deadlock(c->queue, c, where);
    objc_release(c);
}

/* ---- queues ---------------------------------------------------------------------------------- */

id metal_new_queue_of(metal_device *d, SEL s, NSUInteger most)
{
    LOCKED;
    MAY_FAIL(s);
    if (!most) {
        vgpu_wrong("%s 0", sel_getName(s));
        return NULL;
    }
    metal_queue *q = objc_make(&metal_queue_class);
    q->device = d;
    q->most = most;
    q->next = queues;
    queues = q;
    return &q->object;
}

id metal_new_queue(metal_device *d, SEL s) { return metal_new_queue_of(d, s, 64); }

static void end_queue(id o)
{
    metal_queue **p = &queues;
    while (*p != (metal_queue *)o) p = &(*p)->next;
    *p = (*p)->next;
}

static id new_commands(metal_queue *q, SEL s)
{
    LOCKED;
    MAY_FAIL(s);
    while (q->n >= q->most) {           /* the call waits until one is completed */
        if (!q->first || q->first->status < COMMITTED) {
            vgpu_wrong("%s: deadlock: the queue's %lu command buffers are not committed",
                       sel_getName(s), q->n);
            return NULL;
        }
        wait_for(q->first, sel_getName(s));
    }
    metal_commands *c = objc_make(&metal_commands_class);
    c->last = &c->first;
    c->queue = objc_retain(q);
    q->n++;
    return objc_autorelease(c);
}

static void set_label(id o, SEL s, id text)
{
    (void)o;
    if (text) objc_is(text, &ns_string, sel_getName(s));
}

static id queue_device(metal_queue *q, SEL s)
{
    (void)s;
    return &q->device->object;
}

static const objc_method queue_methods[] = {
    METHOD("commandBuffer", "@@:", new_commands), METHOD("setLabel:", "v@:@", set_label),
    METHOD("device", "@@:", queue_device), {0}};
objc_class metal_queue_class = {.name = "VGPUCommandQueue", .bytes = sizeof(metal_queue),
                                .methods = queue_methods, .end = end_queue};

/* ---- recording ------------------------------------------------------------------------------- */

bool metal_is_open(metal_commands *c, const char *where)
{
    if (c->status >= COMMITTED) vgpu_wrong("%s: the command buffer is committed already", where);
    else if (c->encoder) vgpu_wrong("%s: the encoder before has not ended", where);
    else return true;
    return false;
}

static void append(metal_commands *c, command what)
{
    command *made = vgpu_zeroed(sizeof *made);
    *made = what;
    *c->last = made;
    c->last = &made->next;
}

void metal_keep(metal_commands *c, void *used)
{
    if (c->n_kept == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->kept = realloc(c->kept, c->capacity * sizeof *c->kept);
        if (!c->kept) abort();
    }
    c->kept[c->n_kept++] = objc_retain(used);
}

void metal_encode(metal_commands *c, const char *name, CUresult (*run)(vgpu_work *w),
                  const void *payload, size_t bytes)
{
    LOCKED;
    append(c, (command){.work = vgpu_work_new(NULL, name, run, payload, bytes)});
}

static void encode_event(metal_commands *c, SEL s, metal_event *e, uint64_t value)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (!metal_is_open(c, name) || !metal_is_event(e, c->queue->device, name)) return;
    metal_keep(c, e);
    append(c, (command){.event = e, .value = value, .waits = !strncmp(name, "encodeWait", 10)});
}

static id encoder_of(metal_commands *c, SEL s, int kind)
{
    LOCKED;
    MAY_FAIL(s);
    if (!metal_is_open(c, sel_getName(s))) return NULL;
    c->encoder = kind < 2 ? metal_new_compute(c, kind) : metal_new_blit(c);
    return objc_autorelease(c->encoder);
}

static id compute_encoder(metal_commands *c, SEL s) { return encoder_of(c, s, 0); }
static id blit_encoder(metal_commands *c, SEL s) { return encoder_of(c, s, 2); }
static id compute_encoder_of(metal_commands *c, SEL s, NSUInteger type)
{
    if (type < 2) return encoder_of(c, s, (int)type);
    vgpu_wrong("%s %lu", sel_getName(s), type);
    return NULL;
}

void metal_encoder_ended(metal_commands *c, id encoder)
{
    if (c->encoder == encoder) c->encoder = NULL;
}

/* ---- command buffers ------------------------------------------------------------------------- */

static void enqueue(metal_commands *c, SEL s)
{
    LOCKED;
    if (c->status != NOT_ENQUEUED) {
        vgpu_wrong("%s: the command buffer is enqueued already", sel_getName(s));
        return;
    }
    metal_commands **p = &c->queue->first;
    while (*p) p = &(*p)->next;
    *p = objc_retain(c);
    c->status = ENQUEUED;
}

static void commit(metal_commands *c, SEL s)
{
    LOCKED;
    if (!metal_is_open(c, sel_getName(s))) return;
    if (c->status == NOT_ENQUEUED) enqueue(c, s);
    c->status = COMMITTED;
    for (const command *k = c->first; k; k = k->next) n_waiting++;
    if (vgpu_fails(sel_getName(s)))
        fault(c, OUT_OF_MEMORY, "Insufficient Memory (VGPU_FAIL selects this call)");
}

static bool is_committed(const metal_commands *c, SEL s)
{
    if (c->status >= COMMITTED) return true;
    vgpu_wrong("%s: the command buffer is not committed", sel_getName(s));
    return false;
}

static void wait_until_completed(metal_commands *c, SEL s)
{
    LOCKED;
    if (is_committed(c, s)) wait_for(c, sel_getName(s));
}

static void wait_until_scheduled(metal_commands *c, SEL s)
{
    LOCKED;
    if (is_committed(c, s) && c->status == COMMITTED) c->status = SCHEDULED;
}

/* A program may read it in a loop, so that commands must run. */
static NSUInteger status(metal_commands *c, SEL s)
{
    LOCKED;
    (void)s;
    objc_retain(c);
    if (c->status == COMMITTED || c->status == SCHEDULED) run_one(c->queue);
    const NSUInteger found = (NSUInteger)c->status;
    objc_release(c);
    return found;
}

static id error_of(metal_commands *c, SEL s)
{
    LOCKED;
    (void)s;
    return c->status == FAILED ? ns_error_of("MTLCommandBufferErrorDomain", c->code, c->reason)
                               : NULL;
}

static double time_of(metal_commands *c, SEL s)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (c->status < COMPLETED) {
        vgpu_wrong("%s: the command buffer is not completed", name);
        return 0;
    }
    return strcmp(name, "GPUStartTime") ? c->end : c->start;
}

static id queue_of(metal_commands *c, SEL s)
{
    (void)s;
    return &c->queue->object;
}

static void end_commands(id o)
{
    metal_commands *c = (metal_commands *)o;
    while (c->first) remove_first(c);
    if (c->status == NOT_ENQUEUED) c->queue->n--;
    release_kept(c);
    objc_release(c->queue);
}

static const objc_method commands_methods[] = {
    METHOD("computeCommandEncoder", "@@:", compute_encoder),
    METHOD("computeCommandEncoderWithDispatchType:", "@@:Q", compute_encoder_of),
    METHOD("blitCommandEncoder", "@@:", blit_encoder),
    METHOD("encodeSignalEvent:value:", "v@:@Q", encode_event),
    METHOD("encodeWaitForEvent:value:", "v@:@Q", encode_event),
    METHOD("enqueue", "v@:", enqueue), METHOD("commit", "v@:", commit),
    METHOD("waitUntilCompleted", "v@:", wait_until_completed),
    METHOD("waitUntilScheduled", "v@:", wait_until_scheduled), METHOD("status", "Q@:", status),
    METHOD("error", "@@:", error_of), METHOD("setLabel:", "v@:@", set_label),
    METHOD("GPUStartTime", "d@:", time_of), METHOD("GPUEndTime", "d@:", time_of),
    METHOD("commandQueue", "@@:", queue_of), {0}};
objc_class metal_commands_class = {.name = "VGPUCommandBuffer", .bytes = sizeof(metal_commands),
                                   .methods = commands_methods, .end = end_commands};
