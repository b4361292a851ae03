/* A pool of buffers for batches; see buffers.h. */
#include "data/buffers.h"

/* A pool with its unused buffers.  wb__data_mutex guards all fields but the first two. */
struct wb__buffer_pool {
    size_t *bytes;                      /* bytes of each of the n blocks of a buffer */
    int n;
    int keep, unused, lent;             /* buffers to keep at most; unused now; lent to tensors */
    bool closed;
    wb__batch_buffer *first;            /* the list of unused buffers */
};

wb__mutex wb__data_mutex = WB__MUTEX_INIT;

void wb__data_lock(void) { wb__mutex_lock(&wb__data_mutex); }
void wb__data_unlock(void) { wb__mutex_unlock(&wb__data_mutex); }

wb__buffer_pool *wb__buffer_pool_new(int n, const size_t *bytes, int keep)
{
    wb__buffer_pool *s = wb__alloc_zero(1, sizeof *s + (size_t)n * sizeof *bytes);
    if (!s) return NULL;
    s->bytes = (size_t *)(s + 1);
    s->n = n;
    for (int i = 0; i < n; i++) s->bytes[i] = bytes[i];
    s->keep = keep;
    return s;
}

static void buffer_free(wb__batch_buffer *buffer, int n)
{
    for (int i = 0; i < n; i++) wb__free(buffer->data[i]);
    wb__free(buffer);
}

static wb__batch_buffer *buffer_new(wb__buffer_pool *s)
{
    wb__batch_buffer *buffer =
        wb__alloc_zero(1, sizeof *buffer + (size_t)s->n * sizeof *buffer->data);
    if (!buffer) return NULL;
    buffer->pool = s;
    buffer->data = (void **)(buffer + 1);
    for (int i = 0; i < s->n; i++) {
        if ((buffer->data[i] = wb__alloc_aligned(s->bytes[i]))) continue;
        buffer_free(buffer, i);
        return NULL;
    }
    return buffer;
}

wb__batch_buffer *wb__buffer_take(wb__buffer_pool *s)
{
    wb__data_lock();
    wb__batch_buffer *buffer = s->first;
    if (buffer) {
        s->first = buffer->next;
        s->unused--;
        s->lent++;
    }
    wb__data_unlock();
    if (buffer) return buffer;
    buffer = buffer_new(s);
    wb__data_lock();
    s->lent += buffer != NULL;
    wb__data_unlock();
    return buffer;
}

int wb__buffer_pool_fill(wb__buffer_pool *s)
{
    for (;;) {
        wb__data_lock();
        const bool full = s->unused + s->lent >= s->keep;
        if (!full) s->lent++;
        wb__data_unlock();
        if (full) return 0;
        wb__batch_buffer *buffer = buffer_new(s);
        if (buffer) {
            wb__buffer_give(buffer);
            continue;
        }
        wb__data_lock();
        s->lent--;
        wb__data_unlock();
        return WB_ERROR_MEMORY;
    }
}

/* Adds 1 to the number of buffers given back.  Returns true if the pool is closed and no buffer is
 * lent any more; then the caller frees the pool. */
static bool buffer_pool_count_return(wb__buffer_pool *s)
{
    s->lent--;
    return s->closed && !s->lent;
}

void wb__buffer_give(wb__batch_buffer *buffer)
{
    if (!buffer) return;
    wb__buffer_pool *s = buffer->pool;
    wb__data_lock();
    const int n = s->n;             /* after the unlock another thread may free the pool */
    bool keep = !s->closed && s->unused < s->keep;
    if (keep) {
        buffer->next = s->first;
        s->first = buffer;
        s->unused++;
    }
    bool last = buffer_pool_count_return(s);
    wb__data_unlock();
    if (!keep) buffer_free(buffer, n);
    if (last) wb__free(s);
}

void wb__buffer_release(void *data, void *context)
{
    (void)data;
    wb__batch_buffer *buffer = context;
    wb__data_lock();
    bool last = --buffer->holders == 0;
    wb__data_unlock();
    if (last) wb__buffer_give(buffer);
}

void wb__buffer_pool_close(wb__buffer_pool *s)
{
    if (!s) return;
    wb__data_lock();
    const int n = s->n;             /* after the unlock another thread may free the pool */
    wb__batch_buffer *unused = s->first;
    s->first = NULL;
    s->closed = true;
    bool last = !s->lent;
    wb__data_unlock();
    while (unused) {
        wb__batch_buffer *next = unused->next;
        buffer_free(unused, n);
        unused = next;
    }
    if (last) wb__free(s);
}
