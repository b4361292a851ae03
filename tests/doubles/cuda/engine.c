/* Executes a kernel, one group after another.  See vgpu.h.
 *
 * A fiber executes a group's items in a loop.  At a barrier the item's fiber stops, and another
 * fiber continues with the remaining items.  So a kernel without barriers costs one call for each
 * item, and a kernel with barriers one fiber for each item.  All items must stop at the same
 * barrier before any continues.
 *
 * With VGPU_ORDER=backward groups and items run in the opposite order: if a barrier is missing, or
 * a group reads elements that another group writes, the result is different.  With
 * VGPU_ORDER=shuffled groups run in another order at each launch.
 *
 * A ticket (atomicInc) means that other groups may read what the group has written.  All its items
 * must have executed __threadfence before, and again after the last ticket. */
#include "inside.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = 128 << 10, PAGE = 4096, MOST_ITEMS = 1024 };

/* ---- switching from one stack to another ----------------------------------------------------- */

static void body(void);

#if defined(__x86_64__)
typedef struct { void *at; } saved_stack;

/* Saves the registers that a callee must preserve on this stack, and continues on the other one. */
void vgpu_switch(saved_stack *from, const saved_stack *to);
__asm__(".text\n.globl vgpu_switch\n.hidden vgpu_switch\n.type vgpu_switch,@function\n"
        "vgpu_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov (%rsi), %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size vgpu_switch, .-vgpu_switch\n");

static void prepare(saved_stack *p, char *stack)
{
    void **top = (void **)(stack + STACK);
    *--top = NULL;                      /* the return address of `body`, which never returns */
    *--top = (void *)(uintptr_t)body;
    for (int i = 0; i < 6; i++) *--top = NULL;
    p->at = top;
}
#else
#include <ucontext.h>
typedef ucontext_t saved_stack;
static void vgpu_switch(saved_stack *from, const saved_stack *to) { swapcontext(from, to); }

static void prepare(saved_stack *p, char *stack)
{
    getcontext(p);
    p->uc_stack.ss_sp = stack;
    p->uc_stack.ss_size = STACK;
    p->uc_link = NULL;
    makecontext(p, body, 0);
}
#endif

/* ---- groups ---------------------------------------------------------------------------------- */

static struct {
    saved_stack at;
    char *stack;
    bool waits;                         /* at a barrier; else no item is left for it */
    int line;
    unsigned item;
} fibers[MOST_ITEMS];
static saved_stack home;
static int current, n_prepared;

static const vgpu_grid *grid;
static unsigned n_items, next_item, n_finished, n_fences, fences_due;
static bool backward;

static void go_to_item(unsigned i)
{
    const unsigned *size = grid->items;
    if (backward) i = n_items - 1 - i;
    grid->here->item.x = i % size[0];
    grid->here->item.y = i / size[0] % size[1];
    grid->here->item.z = i / (size[0] * size[1]);
}

static void body(void)
{
    for (;;) {
        while (next_item < n_items) {
            const unsigned i = fibers[current].item = next_item++;
            go_to_item(i);
            grid->kernel->call(grid->arguments);
            n_finished++;
        }
        fibers[current].waits = false;
        vgpu_switch(&fibers[current].at, &home);
    }
}

static void barrier(int line)
{
    const int me = current;
    fibers[me].waits = true;
    fibers[me].line = line;
    vgpu_switch(&fibers[me].at, &home);
    go_to_item(fibers[me].item);
}

static void fence(void) { n_fences++; }

static unsigned ticket(unsigned *counter, unsigned most)
{
    const unsigned was = *counter;
    *counter = was >= most ? 0 : was + 1;
    if (n_fences < n_items)
        vgpu_wrong("%s: a group takes a ticket after the fences of %u of its %u items", grid->name,
                   n_fences, n_items);
    fences_due = was >= most ? n_fences + n_items : 0;
    return was;
}

/* Runs fiber f until its next barrier, or until no item is left. */
static void resume(int f)
{
    for (; n_prepared <= f; n_prepared++) {
        if (!fibers[n_prepared].stack) {
            char *p = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
            if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE)) {
                perror("vgpu: a stack");
                abort();
            }
            fibers[n_prepared].stack = p + PAGE;
        }
        prepare(&fibers[n_prepared].at, fibers[n_prepared].stack);
    }
    current = f;
    vgpu_switch(&home, &fibers[f].at);
}

static bool at_one_barrier(int waiting)
{
    for (int i = 1; i < waiting; i++) {
        if (fibers[i].line == fibers[0].line) continue;
        vgpu_wrong("%s: items of one group wait at different barriers, lines %d and %d", grid->name,
                   fibers[0].line, fibers[i].line);
        return false;
    }
    return true;
}

/* The shared memory that a launch asks for, with a page behind it that nothing may access. */
static char *launch_local_of(size_t bytes)
{
    enum { MOST = 256 << 10 };
    static char *block;
    if (!block) {
        block = mmap(NULL, MOST + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED || mprotect(block + MOST, PAGE, PROT_NONE)) {
            perror("vgpu: shared memory");
            abort();
        }
    }
    return block + MOST - (bytes + 15) / 16 * 16;
}

static bool run_group(void)
{
    int waiting = 0;
    next_item = n_finished = n_fences = fences_due = 0;
    if (grid->shared_end - grid->shared > 16)
        memset(grid->shared, 0xff, (size_t)(grid->shared_end - grid->shared));
    grid->here->launch_local = launch_local_of(grid->launch_local);
    memset(grid->here->launch_local, 0xff, grid->launch_local);
    while (next_item < n_items) {
        resume(waiting);
        waiting += fibers[waiting].waits;
    }
    while (waiting) {
        if (n_finished) {
            vgpu_wrong("%s: %u items of a group have ended, %d wait at the barrier in line %d",
                       grid->name, n_finished, waiting, fibers[0].line);
            return false;
        }
        if (!at_one_barrier(waiting)) return false;
        int still = 0;
        for (int i = 0; i < waiting; i++) {
            resume(i);
            still += fibers[i].waits;
        }
        if (still && still < waiting) continue;     /* n_finished > 0: an error above */
        waiting = still;
    }
    if (n_fences < fences_due)
        vgpu_wrong("%s: after the last ticket, %u items have no fence", grid->name,
                   fences_due - n_fences);
    return true;
}

/* The k-th of n groups to run, of the launch with this number. */
static uint64_t group_at(const char *order, uint64_t k, uint64_t n, uint64_t launched)
{
    const uint64_t prime = 7919;
    if (!strcmp(order, "backward")) return n - 1 - k;
    if (strcmp(order, "shuffled")) return k;
    return (k * (n % prime ? prime : 1) + launched * 31) % n;
}

/* Sets all that the items of group i need: another kernel may have run since the last group. */
static void begin_group(const vgpu_grid *g, const char *order, uint64_t i)
{
    grid = g;
    backward = !strcmp(order, "backward");
    n_items = g->items[0] * g->items[1] * g->items[2];
    memcpy(&g->here->items, g->items, sizeof g->here->items);
    memcpy(&g->here->groups, g->groups, sizeof g->here->groups);
    g->here->barrier = barrier;
    g->here->fence = fence;
    g->here->ticket = ticket;
    g->here->group.x = (unsigned)(i % g->groups[0]);
    g->here->group.y = (unsigned)(i / g->groups[0] % g->groups[1]);
    g->here->group.z = (unsigned)(i / g->groups[0] / g->groups[1]);
}

bool vgpu_run_grid(const vgpu_grid *g)
{
    const uint64_t n = (uint64_t)g->groups[0] * g->groups[1] * g->groups[2];
    const char *order = vgpu_env("VGPU_ORDER", "forward");
    static uint64_t launches;
    const uint64_t launched = ++launches;
    bool good = true;
    for (uint64_t k = 0; k < n && good; k++) {
        if (k && k == n / 2) vgpu_meanwhile();
        begin_group(g, order, group_at(order, k, n, launched));
        good = run_group();
    }
    if (!good) n_prepared = 0;          /* some fibers have stopped within an item */
    grid = NULL;
    return good;
}

/* ---- faults ---------------------------------------------------------------------------------- */

void *vgpu_fault_address;
static sigjmp_buf *recovery;
static struct sigaction before_segv, before_bus;
static _Thread_local bool guarded_here;
static _Thread_local char signal_stack[64 << 10];

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (recovery && guarded_here) {
        vgpu_fault_address = info->si_addr;
        siglongjmp(*recovery, 1);
    }
    /* not in a kernel: the handler that was there before gets the signal */
    sigaction(number, number == SIGSEGV ? &before_segv : &before_bus, NULL);
}

/* Installs the handlers, only while a kernel runs: a test framework has handlers of its own. */
static void catch_faults(void)
{
    static _Thread_local bool has_stack;
    if (!has_stack) {
        stack_t old, own = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
        if (!sigaltstack(NULL, &old) && old.ss_flags & SS_DISABLE) sigaltstack(&own, NULL);
        has_stack = true;
    }
    struct sigaction a = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    a.sa_sigaction = on_fault;
    sigemptyset(&a.sa_mask);
    sigaction(SIGSEGV, &a, &before_segv);
    sigaction(SIGBUS, &a, &before_bus);
}

bool vgpu_guarded(CUresult (*run)(vgpu_work *w), vgpu_work *w, CUresult *result)
{
    sigjmp_buf here, *const outer = recovery;
    const bool outer_here = guarded_here;
    bool good = true;
    if (!outer) catch_faults();
    if (!sigsetjmp(here, 0)) {
        recovery = &here;
        guarded_here = true;
        *result = run(w);
    } else {
        good = false;
        n_prepared = 0;
        grid = NULL;
    }
    recovery = outer;
    guarded_here = outer_here;
    if (outer) return good;
    sigaction(SIGSEGV, &before_segv, NULL);
    sigaction(SIGBUS, &before_bus, NULL);
    return good;
}
