/* The memory of test_gpu.h's devices, their kernels, and their queues. */
#include "test_gpu_inside.h"

/* ---- memory ---------------------------------------------------------------------------------- */

unsigned char *gpu_reach(uint64_t at, size_t from, size_t bytes)
{
    for (const block *m = gpu_memory; m; m = m->next) {
        const size_t begins = !gpu_driver.objects ? at + from - (uint64_t)(uintptr_t)m->data
                              : (uint64_t)(uintptr_t)m == at ? from
                                                             : m->bytes + 1;
        if (begins <= m->bytes && bytes <= m->bytes - begins) return m->data + begins;
    }
    return NULL;
}

static void drop_block(block *m)
{
    block **p = &gpu_memory;
    while (*p != m) p = &(*p)->next;
    *p = m->next;
    m->device->used -= m->bytes;
    free(m->data);
    gpu_ended(BLOCKS, m);
}

static bool is_there(const unsigned char *data)
{
    const block *m = gpu_memory;
    while (m && (data < m->data || data >= m->data + m->bytes)) m = m->next;
    return m && m->there;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* An element of a kernel's buffer; an access out of bounds makes the device unusable. */
static float *element(const launched *l, int buffer, uint64_t i)
{
    static float nowhere;
    uint64_t at;
    memcpy(&at, l->f.bound[buffer], sizeof at);
    float *p = (float *)(void *)gpu_reach(at, 4 * i, 4);
    if (p && is_there((unsigned char *)p)) return p;
    l->device->fault = CODE_LOST;
    return &nowhere;
}

static void run_item(const launched *l, uint64_t i)
{
    test_args a;
    memcpy(&a, l->f.bound[2], sizeof a);
    if (i >= a.n) return;
    const bool add = l->f.adds;
    const uint64_t shift = l->f.program->step == STEP_PARTS ? a.at[0] : 0;
    const uint64_t from = l->f.program->step == STEP_TWICE && !add ? i + a.at[0] / 4 : i + shift;
    const uint64_t to = add ? i + a.at[0] / 4 : i + shift;
    const float x = *element(l, 0, from);
    float *y = element(l, 1, to);
    switch (l->f.program->step) {
    case STEP_SLOW: *y = x + 1; break;
    case STEP_F64:
        *y = strstr(l->f.program->text, "#define WB_F64\n") ? (float)(1 + 0x1p-40 - (double)x) : 0;
        break;
    default: *y = add ? x + 1 : a.factor * x;
    }
}

static void run_groups(const launched *l, uint64_t first, uint64_t n)
{
    test_args a;
    memcpy(&a, l->f.bound[2], sizeof a);
    for (uint64_t i = first * l->items; i < WB__MIN((first + n) * l->items, a.n); i++) {
        run_item(l, i);
        if (l->device->fault) return;
    }
}

/* One launch of a table of rows: each has its buffers' addresses, its arguments and its first
 * group. */
static void run_table(const launched *l)
{
    typedef struct { uint64_t at[2]; test_args a; uint32_t first, unused; } row;
    uint64_t at;
    uint32_t n;
    memcpy(&at, l->f.bound[0], sizeof at);
    memcpy(&n, l->f.bound[1], sizeof n);
    const row *rows = n ? (const row *)(void *)gpu_reach(at, 0, n * sizeof *rows) : NULL;
    if (n && !rows) l->device->fault = CODE_LOST;
    for (uint32_t r = 0; r < n && rows; r++) {
        launched one = *l;
        const uint32_t end = r + 1 < n ? rows[r + 1].first : l->groups;
        for (int i = 0; i < 2; i++) memcpy(one.f.bound[i], &rows[r].at[i], sizeof rows[r].at[i]);
        memcpy(one.f.bound[2], &rows[r].a, sizeof rows[r].a);
        run_groups(&one, 0, end - rows[r].first);
    }
}

/* Writes each word to its position, as table.c lists them. */
static void run_put(const launched *l)
{
    struct { uint32_t n, from, word, unused; } head;
    memcpy(&head, l->f.bound[2], sizeof head);
    for (uint32_t i = head.from; i < head.from + head.n; i++) {
        uint32_t place, word;
        memcpy(&place, element(l, 1, 2 * (uint64_t)i), sizeof place);
        memcpy(&word, element(l, 1, 2 * (uint64_t)i + 1), sizeof word);
        memcpy(element(l, 0, place), l->f.bound[2] + sizeof head + 4 * (word - head.word),
               sizeof word);
    }
}

static void run_launch(const launched *l)
{
    if (l->device->fault) return;
    if (!strcmp(l->f.entry, "wb_table")) run_table(l);
    else if (!strcmp(l->f.entry, "wb_put")) run_put(l);
    else run_groups(l, 0, l->groups);
}

/* ---- queues ---------------------------------------------------------------------------------- */

int64_t gpu_commands(void)
{
    int64_t n = 0;
    for (size_t i = 0; i < 2 * WB__GPU_QUEUES; i++)
        for (const command *c = gpu_places[i / WB__GPU_QUEUES].queues[i % WB__GPU_QUEUES].first; c;
             c = c->next)
            n++;
    return n;
}

void gpu_drop_ticket(ticket *t)
{
    if (t && !--t->users) free(t);
}

void gpu_drop_graph(graph *g)
{
    if (--g->users) return;
    for (int i = 0; i < g->n; i++) free(g->launch[i]);
    wb__free(g->launch);
    free(g);
}

void gpu_put(queue *q, command c)
{
    command *new = calloc(1, sizeof *new);
    if (!new) abort();
    *new = c;
    if (!q->last) q->last = &q->first;
    *q->last = new;
    q->last = &new->next;
}

static void run_copy(const queue *q, const command *c)
{
    if ((c->to != c->host && !is_there(c->to)) || (c->from != c->host && !is_there(c->from)))
        q->device->fault = CODE_LOST;   /* the memory is not allocated, or freed */
    else memmove(c->to, c->from, c->bytes);
}

static void run_first(queue *q)
{
    command *c = q->first;
    if (!(q->first = c->next)) q->last = &q->first;
    switch (c->action) {
    case RUN: run_launch(c->launch); break;
    case COPY: run_copy(q, c); break;
    case MARK: c->ticket->reached = true; break;
    case WAIT: break;
    case MAKE:
        memset(c->block->data, 0xff, WB__MIN(c->block->bytes, (size_t)1 << 20));
        c->block->there = true;
        break;
    case FREE: drop_block(c->block); break;
    case REPLAY:
        for (int i = 0; i < c->graph->n; i++) run_launch(c->graph->launch[i]);
        gpu_drop_graph(c->graph);
        break;
    }
    free(c->launch);
    gpu_drop_ticket(c->ticket);
    free(c);
}

static bool is_ready(const queue *q)
{
    return q->first && !(q->first->action == WAIT && !q->first->ticket->reached);
}

static int pick(int n)
{
    static uint64_t state, turn;
    const char *how = gpu_variable("TEST_GPU_SCHEDULE");
    if (how && !strcmp(how, "latest")) return n - 1;
    if (!how || strncmp(how, "random", 6)) return (int)(++turn % (uint64_t)n);
    state = (state ? state : strtoull(how + 7, NULL, 10)) * 6364136223846793005u +
            1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

void gpu_run_one(queue *awaited)
{
    queue *ready[2 * WB__GPU_QUEUES];
    int n = 0;
    const char *how = gpu_variable("TEST_GPU_SCHEDULE");
    if (how && !strcmp(how, "lazy"))
        for (; n < 2 * WB__GPU_QUEUES && !is_ready(awaited); n++)
            awaited = awaited->first->ticket->queue;
    if (how && !strcmp(how, "lazy")) {
        run_first(awaited);
        return;
    }
    for (int d = 0; d < 2; d++)
        for (int q = 0; q < WB__GPU_QUEUES; q++)
            if (is_ready(&gpu_places[d].queues[q])) ready[n++] = &gpu_places[d].queues[q];
    if (!n) abort();                    /* queues wait for each other */
    run_first(ready[pick(n)]);
}

void gpu_run_queue(queue *q)
{
    while (q->first) gpu_run_one(q);
}

/* ---- kinds of drivers ------------------------------------------------------------------------ */

void gpu_each(void (*test)(void))
{
    for (int i = 0; i < 3; i++) {
        setenv("TEST_GPU_STAGED", i < 2 ? "1" : "0", 1);
        WORKS(restart("TEST_GPU_OBJECTS", i ? "1" : NULL));
        test();
    }
    unsetenv("TEST_GPU_STAGED");
    WORKS(restart("TEST_GPU_OBJECTS", NULL));
}
