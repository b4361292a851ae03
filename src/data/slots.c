/* Buffers for batches.  See slots.h. */
#include "data/slots.h"

struct wb__slots {
    size_t bytes[2];
    int keep, unused, lent;
    bool closed;
    wb__slot *first;
};

pthread_mutex_t wb__data_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void prepare_fork(void) { pthread_atfork(wb__data_lock, wb__data_unlock, wb__data_unlock); }

void wb__data_lock(void) { pthread_mutex_lock(&wb__data_mutex); }
void wb__data_unlock(void) { pthread_mutex_unlock(&wb__data_mutex); }

wb__slots *wb__slots_new(size_t x_bytes, size_t y_bytes, int keep)
{
    pthread_once(&fork_once, prepare_fork);
    wb__slots *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->bytes[0] = x_bytes;
    s->bytes[1] = y_bytes;
    s->keep = keep;
    return s;
}

static void slot_free(wb__slot *slot)
{
    wb__free(slot->data[0]);
    wb__free(slot->data[1]);
    wb__free(slot);
}

static wb__slot *slot_new(wb__slots *s)
{
    wb__slot *slot = wb__alloc_zero(1, sizeof *slot);
    if (!slot) return NULL;
    slot->stock = s;
    slot->data[0] = wb__alloc_aligned(s->bytes[0]);
    slot->data[1] = slot->data[0] ? wb__alloc_aligned(s->bytes[1]) : NULL;
    if (slot->data[1]) return slot;
    slot_free(slot);
    return NULL;
}

wb__slot *wb__slot_take(wb__slots *s)
{
    wb__data_lock();
    wb__slot *slot = s->first;
    if (slot) {
        s->first = slot->next;
        s->unused--;
        s->lent++;
    }
    wb__data_unlock();
    if (slot) return slot;
    slot = slot_new(s);
    wb__data_lock();
    s->lent += slot != NULL;
    wb__data_unlock();
    return slot;
}

int wb__slots_fill(wb__slots *s)
{
    for (;;) {
        wb__data_lock();
        const bool full = s->unused + s->lent >= s->keep;
        if (!full) s->lent++;
        wb__data_unlock();
        if (full) return 0;
        wb__slot *slot = slot_new(s);
        if (slot) {
            wb__slot_give(slot);
            continue;
        }
        wb__data_lock();
        s->lent--;
        wb__data_unlock();
        return WB_ERROR_MEMORY;
    }
}

/* One less is lent.  Whether that was the last thing the closed stock waited for. */
static bool came_back(wb__slots *s)
{
    s->lent--;
    return s->closed && !s->lent;
}

void wb__slot_give(wb__slot *slot)
{
    if (!slot) return;
    wb__slots *s = slot->stock;
    wb__data_lock();
    bool keep = !s->closed && s->unused < s->keep;
    if (keep) {
        slot->next = s->first;
        s->first = slot;
        s->unused++;
    }
    bool last = came_back(s);
    wb__data_unlock();
    if (!keep) slot_free(slot);
    if (last) wb__free(s);
}

void wb__slot_release(void *data, void *context)
{
    (void)data;
    wb__slot *slot = context;
    wb__data_lock();
    bool last = --slot->holders == 0;
    wb__data_unlock();
    if (last) wb__slot_give(slot);
}

void wb__slots_close(wb__slots *s)
{
    if (!s) return;
    wb__data_lock();
    wb__slot *unused = s->first;
    s->first = NULL;
    s->closed = true;
    bool last = !s->lent;
    wb__data_unlock();
    while (unused) {
        wb__slot *next = unused->next;
        slot_free(unused);
        unused = next;
    }
    if (last) wb__free(s);
}
