/* Counts of handles, calls and wrong uses; the lock of the double.  See vgpu.h. */
#include "inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static vgpu_counter *counters;
static vgpu_object *objects[VGPU_KINDS];
static int64_t alive[VGPU_KINDS], held, wrong;
static char first_wrong[256];

static void set_up(void)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &a);
    pthread_mutexattr_destroy(&a);
}

void vgpu_hold(void)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
}

void vgpu_let_go(void) { pthread_mutex_unlock(&lock); }

void vgpu_nap(void)
{
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){0, 100000}, NULL);
    pthread_mutex_lock(&lock);
}

const char *vgpu_env(const char *name, const char *otherwise)
{
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

long long vgpu_env_number(const char *name, long long otherwise)
{
    const char *v = vgpu_env(name, NULL);
    return v ? atoll(v) : otherwise;
}

void *vgpu_zeroed(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "vgpu: no memory for %zu bytes\n", bytes);
        abort();
    }
    return p;
}

/* ---- calls ----------------------------------------------------------------------------------- */

void vgpu_count(vgpu_counter *c)
{
    bool known = false;
    for (vgpu_counter *k = counters; k && !known; k = k->next) known = k == c;
    if (!known) {
        c->next = counters;
        counters = c;
    }
    c->calls++;
}

static int64_t entered;                 /* how often a function was called */
int64_t vgpu_entered(void) { return entered; }

void vgpu_enter(vgpu_counter *c)
{
    vgpu_hold();
    entered++;
    if (c->calls) c->calls++;
    else vgpu_count(c);
}

/* True for results that a correct program never gets.  Others, such as OUT_OF_MEMORY and faults of
 * kernels (which vgpu_fault counts), are not mistakes of the call. */
static bool is_mistake(CUresult r)
{
    switch ((int)r) {
    case CUDA_ERROR_INVALID_VALUE: case CUDA_ERROR_NOT_INITIALIZED: case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT: case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return true;
    default:
        return false;
    }
}

CUresult vgpu_leave(vgpu_counter *c, CUresult result)
{
    if (is_mistake(result)) vgpu_wrong("%s: error %d", c->name, (int)result);
    pthread_mutex_unlock(&lock);
    return result;
}

int64_t vgpu_calls(const char *name)
{
    int64_t calls = 0;
    vgpu_hold();
    for (vgpu_counter *k = counters; k; k = k->next)
        if (!name || !strcmp(k->name, name)) calls += k->calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static int64_t attempts, failed, all_failed, fail_at;
static bool fail_all;                   /* the later calls fail too */
static char first_failed[200];

static void read_variable(void)
{
    const char *text = vgpu_env("VGPU_FAIL", "0");
    char *end = NULL;
    attempts = 0;
    fail_at = strtoll(text, &end, 10);
    fail_all = *end == '+';
}

void vgpu_fail_from_here(void)
{
    vgpu_hold();
    read_variable();
    vgpu_let_go();
}

bool vgpu_fails(const char *name)
{
    static const char *const never[] = {"Destroy", "Release", "Free", "Unload", "Push", "Pop",
                                        "CtxSynchronize",
                                        "GetError", "GetProgramLog"};
    bool may = true, fails = false;
    vgpu_hold();
    if (!strcmp(name, "cuInit")) read_variable();
    for (size_t i = 0; i < sizeof never / sizeof *never && fail_at; i++)
        may &= !strstr(name, never[i]);
    if (fail_at && may) {
        attempts++;
        fails = fail_all ? attempts >= fail_at : attempts == fail_at;
    }
    all_failed += fails;
    if (fails && !failed++)
        snprintf(first_failed, sizeof first_failed, "call %lld, %s", (long long)attempts, name);
    pthread_mutex_unlock(&lock);
    return fails;
}

int64_t vgpu_all_failed(void) { return all_failed; }

int64_t vgpu_failed(char text[200])
{
    vgpu_hold();
    const int64_t n = failed;
    memcpy(text, first_failed, sizeof first_failed);
    failed = 0;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- wrong uses ------------------------------------------------------------------------------ */

void vgpu_held(int change)
{
    vgpu_hold();
    held += change;
    vgpu_let_go();
}

void vgpu_wrong(const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    vgpu_hold();
    if (!wrong++) memcpy(first_wrong, text, sizeof text);
    pthread_mutex_unlock(&lock);
    if (vgpu_env_number("VGPU_VERBOSE", 0)) fprintf(stderr, "vgpu: %s\n", text);
}

void vgpu_forget(void)
{
    vgpu_hold();
    for (vgpu_counter *k = counters; k; k = k->next) k->calls = 0;
    counters = NULL;
    wrong = 0;
    first_wrong[0] = 0;
    pthread_mutex_unlock(&lock);
}

/* ---- dry processes --------------------------------------------------------------------------- */

static int most_nodes, longest_chain, last_nodes, last_chain;
static size_t most_bytes;

bool vgpu_dry(void)
{
    static int dry = -1;
    if (dry < 0) dry = vgpu_env_number("VGPU_DRY", 0) != 0;
    return dry;
}

void vgpu_note_nodes(int n, int chain)
{
    last_nodes = n;
    last_chain = chain;
    if (n <= most_nodes) return;
    most_nodes = n;
    longest_chain = chain;
}

void vgpu_note_memory(size_t bytes)
{
    if (bytes > most_bytes) most_bytes = bytes;
}

__attribute__((destructor)) static void end(void)
{
    if (vgpu_dry() && most_bytes)
        fprintf(stderr, "vgpu: %d nodes in the largest graph, %zu bytes of memory at most,"
                " %d nodes in the longest chain of that graph\n",
                most_nodes, most_bytes, longest_chain);
    if (!wrong || !vgpu_env_number("VGPU_STRICT", 0)) return;
    fprintf(stderr, "vgpu: %lld wrong uses, the first: %s\n", (long long)wrong, first_wrong);
    fflush(NULL);
    _exit(99);
}

/* ---- handles --------------------------------------------------------------------------------- */

/* A hash table of all addresses that were ever handles, so that any number can be checked before it
 * is used as a pointer. */
static struct {
    uintptr_t *slots;
    size_t capacity, n;
} handles;

static size_t slot_of(uintptr_t address)
{
    size_t i = (address >> 4) * 0x9e3779b97f4a7c15u & (handles.capacity - 1);
    while (handles.slots[i] && handles.slots[i] != address) i = (i + 1) & (handles.capacity - 1);
    return i;
}

void vgpu_remember(const void *handle)
{
    const uintptr_t address = (uintptr_t)handle;
    if (2 * (handles.n + 1) > handles.capacity) {
        uintptr_t *old = handles.slots;
        const size_t n = handles.capacity;
        handles.capacity = n ? 2 * n : 1024;
        handles.slots = vgpu_zeroed(handles.capacity * sizeof *handles.slots);
        for (size_t i = 0; i < n; i++)
            if (old[i]) handles.slots[slot_of(old[i])] = old[i];
        free(old);
    }
    handles.slots[slot_of(address)] = address;
    handles.n++;
}

void *vgpu_new(vgpu_kind kind, size_t bytes, CUcontext context)
{
    vgpu_object *o = vgpu_zeroed(bytes);
    o->kind = kind;
    o->context = context;
    o->next = objects[kind];
    objects[kind] = o;
    alive[kind]++;
    vgpu_remember(o);
    return o;
}

void vgpu_end(void *object)
{
    vgpu_object *o = object;
    if (!o->dead) alive[o->kind]--;
    o->dead = true;
}

bool vgpu_known(const void *handle)
{
    return handle && handles.capacity && handles.slots[slot_of((uintptr_t)handle)];
}

bool vgpu_is(const void *handle, vgpu_kind kind)
{
    const vgpu_object *o = handle;
    return vgpu_known(handle) && o->kind == kind && !o->dead;
}

void vgpu_each(CUcontext context, vgpu_kind kind, void (*visit)(void *object))
{
    for (vgpu_object *o = objects[kind], *next; o; o = next) {
        next = o->next;
        if (!o->dead && o->context == context) visit(o);
    }
}

static bool contexts_stay;
void vgpu_contexts_stay(void) { contexts_stay = true; }

void vgpu_read_books(vgpu_books *b)
{
    vgpu_hold();
    memset(b, 0, sizeof *b);
    for (int i = 0; i < VGPU_MOST_DEVICES && !contexts_stay; i++)
        b->contexts += vgpu_contexts[i].retained > 0;
    b->streams = alive[VGPU_STREAM];
    b->events = alive[VGPU_EVENT];
    b->modules = alive[VGPU_MODULE];
    b->pools = alive[VGPU_POOL];
    b->graphs = alive[VGPU_GRAPH];
    b->execs = alive[VGPU_EXEC];
    vgpu_memory_books(b);
    b->commands = vgpu_recorded();
    b->nodes = last_nodes;
    b->chain = last_chain;
    b->held = held;
    b->wrong = wrong;
    memcpy(b->first_wrong, first_wrong, sizeof first_wrong);
    pthread_mutex_unlock(&lock);
}
