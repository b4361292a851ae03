/* See test_gpu.h. */
#include "test_gpu_inside.h"

static const char *const codes[] = {"NOTHING", "NO_MEMORY", "FAILS", "NO_SUCH_NAME", "BAD_IMAGE",
                                    "LOST"};

/* ---- objects and their counts ---------------------------------------------------------------- */

static const char *const kind_names[] = {"events",     "programs", "kernels", "pinned blocks",
                                         "recordings", "graphs",   "blocks",  "open devices"};
static _Atomic int64_t alive[KINDS], wrong;
static char first_wrong[200];

machine gpu_places[2];
block *gpu_memory;
static _Thread_local machine *entered[8];        /* a stack of devices; the last is current */
static _Thread_local int depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void is_wrong(const char *what)
{
    if (!wrong++) snprintf(first_wrong, sizeof first_wrong, "%s", what);
}

static void *made(kind k, size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) abort();
    alive[k]++;
    return p;
}

void gpu_ended(kind k, void *p)
{
    alive[k]--;
    free(p);
}

/* ---- calls, and those that fail -------------------------------------------------------------- */

enum { MOST_NAMES = 64 };
static struct { const char *name; int64_t n; } counts[MOST_NAMES];
static int64_t n_asked, n_failed, fail_at;
static bool fail_on;
static char first_failed[200];

const char *gpu_variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int64_t number(const char *name, int64_t otherwise)
{
    return gpu_variable(name) ? atoll(gpu_variable(name)) : otherwise;
}

/* Counts a call; returns 0 or the code with which it fails.  The caller holds the lock. */
static int counted(const char *name)
{
    int i = 0;
    wb__gpu_call = name;
    while (counts[i].name && strcmp(counts[i].name, name)) i++;
    counts[i].name = name;
    counts[i].n++;
    n_asked++;
    if (!fail_at || (fail_on ? n_asked < fail_at : n_asked != fail_at)) return 0;
    if (!n_failed++)
        snprintf(first_failed, sizeof first_failed, "call %lld, %s", (long long)n_asked, name);
    return CODE_FAILS;
}

/* Takes the lock, which end_call releases. */
static int begin_call(const char *name, const machine *d)
{
    pthread_mutex_lock(&lock);
    if (d && gpu_driver.enter && (!depth || entered[depth - 1] != d)) is_wrong(name);
    return d && d->fault ? d->fault : counted(name);
}

static int end_call(int code)
{
    pthread_mutex_unlock(&lock);
    return code;
}

#define CALL(name, d, ...)                                                                         \
    do {                                                                                           \
        int code = begin_call(name, d);                                                            \
        if (!code) {                                                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        return end_call(code);                                                                     \
    } while (0)
#define GIVEN_BACK(...)                                                                            \
    do {                                                                                           \
        pthread_mutex_lock(&lock);                                                                 \
        __VA_ARGS__;                                                                               \
        pthread_mutex_unlock(&lock);                                                               \
    } while (0)

int64_t gpu_calls(const char *name)
{
    int64_t n = 0;
    for (int i = 0; i < MOST_NAMES && counts[i].name; i++)
        if (!name || !strcmp(counts[i].name, name)) n += counts[i].n;
    return n;
}

void gpu_forget(void)
{
    memset(counts, 0, sizeof counts);
    wrong = 0;
}

int64_t gpu_failed(char text[200])
{
    const int64_t n = n_failed;
    memcpy(text, first_failed, sizeof first_failed);
    n_failed = 0;
    return n;
}

int gpu_left(void)
{
    int found = 0;
    for (int i = 0; i < KINDS; i++) {
        if (!alive[i]) continue;
        print_error("left: %lld %s\n", (long long)alive[i], kind_names[i]);
        found = 1;
    }
    if (wrong) print_error("%lld wrong uses, the first: %s\n", (long long)wrong, first_wrong);
    return found || wrong;
}

int64_t gpu_blocks(void) { return alive[BLOCKS]; }
int64_t gpu_graphs(void) { return alive[GRAPHS]; }

/* ---- starting -------------------------------------------------------------------------------- */

static machine *of(wb__gpu_device *d) { return (machine *)d; }
static queue *queue_of(wb__gpu_device *d, wb__gpu_queue q) { return &of(d)->queues[q]; }

static int fails(wb__gpu_device *d, int code, const char *what)
{
    return wb__gpu_fail(&gpu_driver, d, code, "%s", what);
}

static const wb__gpu_driver addresses, objects;

static int load(void)
{
    const char *fail = gpu_variable("TEST_GPU_FAIL");
    char *end = NULL;
    n_asked = 0;
    fail_at = fail ? strtoll(fail, &end, 10) : 0;
    fail_on = end && *end == '+';
    gpu_driver = number("TEST_GPU_OBJECTS", 0) ? objects : addresses;
    const int code = end_call(begin_call("load", NULL));
    if (code) return fails(NULL, code, "the library");
    return gpu_variable("TEST_GPU_NONE")
               ? wb__fail(WB_ERROR_DEVICE, "memory: %s", gpu_variable("TEST_GPU_NONE")) : 0;
}

static int find(wb__gpu_device **list, int *n)
{
    const int code = end_call(begin_call("find", NULL));
    if (code) return fails(NULL, code, "the devices");
    for (int i = 0; i < 2; i++) {
        machine *d = &gpu_places[i];
        memset(d, 0, sizeof *d);
        for (int q = 0; q < WB__GPU_QUEUES; q++) d->queues[q].device = d;
        snprintf(d->gpu.name, sizeof d->gpu.name, "device %d in memory", i);
        snprintf(d->gpu.maker, sizeof d->gpu.maker, "a test");
        d->gpu.kind = i ? "gpu" : "cpu";
        d->gpu.target = (wb__gpu_target){
            .f64 = true, .in_turn = !i, .composes = !i, .max_items = 1024, .local_bytes = 48 << 10,
            .max_args_bytes = (size_t)number("TEST_GPU_ARGS", 4096),
            .buffer_bytes = gpu_driver.objects ? 0 : 8,
            .max_buffers = (int)number("TEST_GPU_BUFFERS", 0),
            .max_groups = {INT32_MAX, UINT16_MAX, UINT16_MAX}};
        d->gpu.total = number("TEST_GPU_MEMORY", (int64_t)4 << 30);
        d->gpu.most = number("TEST_GPU_MOST", 0);
        d->gpu.staged = number("TEST_GPU_STAGED", 1) != 0;
        d->gpu.keeps_images = number("TEST_GPU_IMAGES", 1) != 0;
        d->gpu.graphs = !gpu_driver.objects && number("TEST_GPU_GRAPHS", 1);
        d->gpu.allocates_in_order = !gpu_driver.objects;
        list[(*n)++] = &d->gpu;
    }
    return 0;
}

static int open_device(wb__gpu_device *d)
{
    const int code = end_call(begin_call("open", NULL));
    if (code) return fails(d, code, d->name);
    alive[OPEN]++;
    return 0;
}

/* Memory of both devices: a device may read the other device's memory. */
static void run_all(void)
{
    for (int d = 0; d < 2; d++)
        for (int q = 0; q < WB__GPU_QUEUES; q++) gpu_run_queue(&gpu_places[d].queues[q]);
}

static void close_device(wb__gpu_device *d)
{
    (void)d;
    GIVEN_BACK(run_all(); alive[OPEN]--);
}

static int enter(wb__gpu_device *d)
{
    if (depth == (int)WB__COUNT(entered)) abort();
    entered[depth++] = of(d);
    return 0;
}

static void leave(void)
{
    if (!depth) is_wrong("leave: no device is entered");
    depth -= depth > 0;
}

static const char *error_name(int code) { return codes[code]; }

static int error_kind(int code)
{
    return code == CODE_MEMORY ? WB__GPU_ERROR_MEMORY | WB__GPU_ERROR_FULL
           : code == CODE_LOST ? WB__GPU_ERROR_LOST : 0;
}

static void error_text(wb__gpu_device *d, int code, char *text, size_t capacity)
{
    if (code == CODE_IMAGE) snprintf(text, capacity, "%s does not know it", d ? d->name : "nobody");
}

/* ---- memory and transfers -------------------------------------------------------------------- */

static int allocate(wb__gpu_device *d, size_t bytes, uint64_t *at)
{
    int code = begin_call("allocate", of(d));
    if (!code && of(d)->used + bytes > (size_t)d->total) {
        gpu_run_queue(queue_of(d, WB__GPU_COMPUTE));        /* runs the queued frees */
        if (of(d)->used + bytes > (size_t)d->total) code = CODE_MEMORY;
    }
    if (!code) {
        block *m = made(BLOCKS, sizeof *m);
        *m = (block){of(d), calloc(1, bytes), bytes, !d->allocates_in_order, gpu_memory};
        if (!m->data) abort();
        gpu_memory = m;
        of(d)->used += bytes;
        if (!m->there) gpu_put(queue_of(d, WB__GPU_COMPUTE), (command){.action = MAKE, .block = m});
        *at = (uint64_t)(uintptr_t)(gpu_driver.objects ? (void *)m : m->data);
    }
    return end_call(code);
}

static void release(wb__gpu_device *d, uint64_t at)
{
    pthread_mutex_lock(&lock);
    block *m = gpu_memory;
    while (m && at != (uint64_t)(uintptr_t)(gpu_driver.objects ? (void *)m : m->data)) m = m->next;
    if (m) gpu_put(queue_of(d, WB__GPU_COMPUTE), (command){.action = FREE, .block = m});
    else is_wrong("release");
    pthread_mutex_unlock(&lock);
}

static void trim(wb__gpu_device *d) { GIVEN_BACK(gpu_run_queue(queue_of(d, WB__GPU_COMPUTE))); }

static int memory_left(wb__gpu_device *d, size_t *bytes)
{
    CALL("memory_left", of(d), *bytes = (size_t)d->total - of(d)->used);
}

static struct { unsigned char *at; size_t bytes; } pins[4];

static int pin(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes)
{
    CALL("pin", of(d), int i = 0; while (pins[i].at) i++; s->at = pins[i].at = made(PINNED, bytes);
         pins[i].bytes = bytes);
}

static void unpin(wb__gpu_device *d, wb__gpu_staging *s)
{
    (void)d;
    GIVEN_BACK(int i = 0; run_all(); while (pins[i].at != s->at) i++; pins[i].at = NULL;
               gpu_ended(PINNED, s->at));
}

static bool is_pinned(const unsigned char *at, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        if (pins[i].at && at >= pins[i].at && at + bytes <= pins[i].at + pins[i].bytes) return true;
    return false;
}

/* Queues a copy, under the lock; one whose host memory is not pinned has run at the return. */
static int move(const char *name, machine *d, wb__gpu_queue q, unsigned char *to,
                const unsigned char *from, size_t bytes, const void *host, bool wait)
{
    if (!to || !from || (!wait && !is_pinned(host, bytes))) is_wrong(name);
    else gpu_put(&d->queues[q], (command){COPY, .to = to, .from = from, .host = host,
                                          .bytes = bytes});
    if (wait) gpu_run_queue(&d->queues[q]);
    return d->fault;
}

static int up(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait)
{
    CALL("up", of(d),
         code = move("up", of(d), q, gpu_reach(to, at, bytes), from, bytes, from, wait));
}

static int down(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait)
{
    CALL("down", of(d),
         code = move("down", of(d), q, to, gpu_reach(from, at, bytes), bytes, to, wait));
}

static bool reaches(const wb__gpu_device *d, const wb__gpu_device *source)
{
    return d == source || !number("TEST_GPU_APART", 0);
}

static int new_event(void **e)
{
    CALL("new_event", NULL, *e = made(EVENTS, sizeof(event)));
}

static void mark(queue *q, event *e)
{
    gpu_drop_ticket(e->last);
    e->last = calloc(1, sizeof *e->last);
    if (!e->last) abort();
    *e->last = (ticket){.users = 2, .queue = q};
    gpu_put(q, (command){.action = MARK, .ticket = e->last});
}

/* The event of a command, if the caller asks for it. */
static void make_event(queue *q, void **wanted)
{
    if (!wanted) return;
    if (!gpu_driver.objects) is_wrong("an event is asked for");
    *wanted = made(EVENTS, sizeof(event));
    mark(q, *wanted);
}

static int copy(wb__gpu_device *d, uint64_t to, size_t to_at, wb__gpu_device *source, uint64_t from,
                size_t from_at, size_t bytes, void **wanted)
{
    queue *q = queue_of(d, WB__GPU_COMPUTE);
    CALL("copy", of(d),
         unsigned char *t = gpu_reach(to, to_at, bytes), *f = gpu_reach(from, from_at, bytes);
         if (!t || !f || !reaches(d, source)) is_wrong("copy");
         else gpu_put(q, (command){.action = COPY, .to = t, .from = f, .bytes = bytes});
         make_event(q, wanted));
}

/* ---- events ---------------------------------------------------------------------------------- */

static void drop_event(void *e)
{
    GIVEN_BACK(gpu_drop_ticket(((event *)e)->last); gpu_ended(EVENTS, e));
}

static int record(wb__gpu_device *d, wb__gpu_queue q, void **e)
{
    CALL("record", of(d), if (!*e) *e = made(EVENTS, sizeof(event)); mark(queue_of(d, q), *e));
}

static int wait_event(wb__gpu_device *d, wb__gpu_queue q, void *e)
{
    CALL("wait_event", of(d), ticket *t = ((event *)e)->last; if (t && !t->reached) {
        t->users++;
        gpu_put(queue_of(d, q), (command){.action = WAIT, .ticket = t});
    });
}

static int sync_event(void *e)
{
    CALL("sync_event", NULL, ticket *t = ((event *)e)->last;
         while (t && !t->reached) gpu_run_one(t->queue));
}

static bool done(void *e, int *how)
{
    bool reached;
    GIVEN_BACK(*how = 0; reached = ((event *)e)->last->reached);
    return reached;
}

static int flush(wb__gpu_device *d)
{
    CALL("flush", of(d), );
}

static int sync_queue(wb__gpu_device *d, wb__gpu_queue q)
{
    CALL("sync", of(d), gpu_run_queue(queue_of(d, q)); code = of(d)->fault);
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool options(wb__gpu_device *d, int flags, char *text, size_t capacity)
{
    (void)flags;
    const int code = end_call(begin_call("options", NULL));
    if (code) fails(d, code, "the compiler");
    snprintf(text, capacity, "-plain");
    return !code;
}

/* The program of a kernel text; wb_put's text also has its number of words. */
static program *program_of(wb__gpu_device *d, const char *text)
{
    const char *words = strstr(text, "uint words[");
    program *p = made(PROGRAMS, sizeof *p);
    *p = (program){.text = strdup(text), .words = words ? (size_t)atoi(words + 11) : 0,
                   .device = of(d)};
    if (!p->text) abort();
    while (p->step < STEPS_BY_HAND && !strstr(text, test_texts[p->step])) p->step++;
    return p;
}

static const char magic[] = "in memory\n";

static int load_image(wb__gpu_device *d, const void *image, size_t bytes, const char *with,
                      void **p)
{
    (void)with;
    CALL("load_image", of(d),
         if (bytes < sizeof magic || memcmp(image, magic, sizeof magic - 1)) code = CODE_IMAGE;
         else *p = program_of(d, (const char *)image + sizeof magic - 1));
}

static int compile(wb__gpu_device *d, const char *text, const char *with, void **p, void **image,
                   size_t *bytes)
{
    const int code = end_call(begin_call("compile", of(d)));
    (void)with;
    if (code) return fails(d, code, "a kernel");
    if (strstr(text, "there is no such_word"))
        return wb__fail(WB_ERROR_DEVICE, "memory: compile: error: no such_word");
    *bytes = sizeof magic + strlen(text);
    *image = d->keeps_images ? wb__printf("%s%s", magic, text) : NULL;
    if (d->keeps_images && !*image) return WB_ERROR_MEMORY;
    *p = program_of(d, text);
    return 0;
}

static void unload(wb__gpu_device *d, void *p)
{
    program *gone = p;
    pthread_mutex_lock(&lock);
    gpu_run_queue(queue_of(d, WB__GPU_COMPUTE));
    for (function *f; (f = gone->functions) != NULL;) {
        gone->functions = f->next;
        gpu_ended(FUNCTIONS, f);
    }
    free(gone->text);
    gpu_ended(PROGRAMS, gone);
    pthread_mutex_unlock(&lock);
}

static int function_of(wb__gpu_device *d, void *p, const char *entry, size_t local, void **f,
                       size_t *max_items)
{
    char text[64];
    program *from = p;
    const bool table = !strcmp(entry, "wb_table");
    snprintf(text, sizeof text, "KERNEL %s(", entry);
    int code = local ? CODE_NAME : begin_call("function", of(d));
    if (!code && !table && !strstr(from->text, text)) code = CODE_NAME;
    if (!code) {
        const size_t last = from->words ? 16 + 4 * from->words : sizeof(test_args);
        function *new = made(FUNCTIONS, sizeof *new);
        *new = (function){.program = from, .n = table ? 2 : 3, .bytes = {8, table ? 4 : 8, last}};
        new->adds = !strcmp(entry, "add") || (table && strstr(from->text, "    add((u8 *)rows"));
        snprintf(new->entry, sizeof new->entry, "%s", entry);
        if (!gpu_driver.drop_function) {
            new->next = from->functions;
            from->functions = new;
        }
        *f = new;
        *max_items = 1024;
    }
    return end_call(code);
}

static void drop_function(void *f) { GIVEN_BACK(gpu_ended(FUNCTIONS, f)); }

static int bind(void *f, int index, bool memory, size_t bytes, const void *value)
{
    function *to = f;
    const bool is_struct = index == to->n - 1;
    CALL("bind", NULL,
         if (index >= to->n || bytes != to->bytes[index] || memory == is_struct) is_wrong("bind");
         else memcpy(to->bound[index], value, bytes));
}

/* ---- launches and graphs --------------------------------------------------------------------- */

static int launch_on(wb__gpu_device *d, wb__gpu_queue q, void *f, const uint32_t groups[3],
                     const uint32_t items[3], size_t local, void **arguments, void **wanted)
{
    graph *g = of(d)->recording;
    int code = local ? CODE_NAME : begin_call("launch", of(d));
    if (!code) {
        launched *l = malloc(sizeof *l);
        if (!l) abort();
        l->f = *(function *)f;
        l->groups = groups[0];
        l->items = items[0];
        l->device = of(d);
        for (int i = 0; i < l->f.n && !gpu_driver.bind; i++)
            memcpy(l->f.bound[i], arguments[i], l->f.bytes[i]);
        if (l->f.program->device != of(d)) is_wrong("launch: a kernel of another device");
        if (q == WB__GPU_RECORDING) {
            if (!g || !wb__reserve(&g->launch, &g->capacity, g->n + 1, sizeof *g->launch)) abort();
            g->launch[g->n++] = l;
        } else {
            gpu_put(queue_of(d, q), (command){.action = RUN, .launch = l});
        }
        make_event(queue_of(d, q), wanted);
    }
    return end_call(code);
}

static int record_begin(wb__gpu_device *d)
{
    CALL("record_begin", of(d), of(d)->recording = made(RECORDED, sizeof(graph));
         of(d)->recording->users = 1);
}

static void drop_recorded(void *g) { GIVEN_BACK(alive[RECORDED]--; gpu_drop_graph(g)); }

/* Also if the call fails, the recording has ended. */
static int record_end(wb__gpu_device *d, void **g)
{
    *g = of(d)->recording;
    of(d)->recording = NULL;
    const int code = end_call(begin_call("record_end", of(d)));
    if (code) drop_recorded(*g);
    return code;
}

static int instantiate(void *recorded, void **g)
{
    CALL("instantiate", NULL, ((graph *)(*g = recorded))->users++; alive[GRAPHS]++);
}

static int run_graph(wb__gpu_device *d, void *g)
{
    CALL("run", of(d), ((graph *)g)->users++;
         gpu_put(queue_of(d, WB__GPU_COMPUTE), (command){.action = REPLAY, .graph = g}));
}

static void drop_graph(void *g) { GIVEN_BACK(alive[GRAPHS]--; gpu_drop_graph(g)); }

/* ---- tables ---------------------------------------------------------------------------------- */

static wb__gpu_state state = {.starting = WB__MUTEX_INIT};

#define ALL_DRIVERS                                                                                \
    .backend = &test_gpu, .state = &state, .dlpack = 1, .choosing = "TEST_GPU_CHOSEN",             \
    .load = load, .find = find, .open = open_device, .close = close_device,                        \
    .error_name = error_name, .error_kind = error_kind, .error_text = error_text,                  \
    .allocate = allocate, .release = release, .pin = pin, .unpin = unpin, .up = up, .down = down,  \
    .copy = copy, .drop_event = drop_event, .record = record, .wait_event = wait_event,            \
    .sync_event = sync_event, .sync = sync_queue, .options = options, .compile = compile,          \
    .load_image = load_image, .unload = unload, .function = function_of, .launch = launch_on

static const wb__gpu_driver addresses = {
    ALL_DRIVERS, .enter = enter, .leave = leave, .trim = trim, .memory_left = memory_left,
    .new_event = new_event, .record_begin = record_begin, .record_end = record_end,
    .instantiate = instantiate, .run = run_graph, .drop_recorded = drop_recorded,
    .drop_graph = drop_graph};
static const wb__gpu_driver objects = {
    ALL_DRIVERS, .objects = true, .oldest_first = true, .reaches = reaches, .done = done,
    .flush = flush, .bind = bind, .drop_function = drop_function};
wb__gpu_driver gpu_driver = {ALL_DRIVERS};

static int part(const char *name)
{
    (void)name;
    return -1;
}

WB__GPU_WRAPPERS(gpu_driver)

const wb__backend test_gpu = {
    .name = "Memory", .tag = "memory", .part = part, WB__GPU_FUNCTIONS,
    .graph = wb__gpu_record_graph,
    .graph_free = wb__gpu_graph_free, .graph_run = wb__gpu_graph_run, .adopt = wb__gpu_adopt,
    .disown = wb__gpu_disown};
