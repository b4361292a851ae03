/* Reads streams; see stream.h. */
#include "data/stream.h"

#include "data/buffers.h"
#include "data/random.h"

#include <stdio.h>
#include <string.h>

/* A loader's position in a stream, and the buffer from which a shuffle draws. */
struct wb__stream {
    const wb_dataset *root;
    int64_t capacity, count;            /* rows that the shuffle's buffer can hold, and holds */
    char *rows[WB__FIELDS];             /* the buffer: rows of each field */
    bool begun, ended;                  /* this epoch has restarted the stream; its end was read */
    int64_t epoch, skip;                /* skip: observations to pass over at the beginning */
    int64_t number;                     /* observations read in this epoch */
    wb__draws draws;
};

wb__stream *wb__stream_new(const wb_dataset *root, int64_t buffer)
{
    wb__stream *s = wb__alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->root = root;
    s->capacity = buffer;
    for (int k = 0; buffer && k < root->n_fields; k++) {
        if (!root->field[k].present) continue;
        s->rows[k] = wb__alloc_aligned((size_t)(buffer * root->field[k].bytes));
        if (s->rows[k]) continue;
        wb__stream_free(s);
        return NULL;
    }
    return s;
}

void wb__stream_free(wb__stream *s)
{
    for (int k = 0; s && k < WB__FIELDS; k++) wb__free(s->rows[k]);
    wb__free(s);
}

int wb__stream_begin(wb__stream *s, uint64_t key, int64_t epoch, int64_t skip)
{
    wb_dataset *root = (wb_dataset *)(uintptr_t)s->root;
    wb__data_lock();
    const bool available = !root->reader || root->reader == s;
    if (available) root->reader = s;
    wb__data_unlock();
    if (!available)
        return wb__fail(WB_ERROR_ARGUMENT, "loader: another loader is reading this stream: end its "
                        "epoch first (wb_loader_stop)");
    s->begun = s->ended = false;
    s->count = s->number = 0;
    s->epoch = epoch;
    s->skip = skip;
    s->draws = (wb__draws){.key = key};
    return 0;
}

void wb__stream_release(wb__stream *s)
{
    wb_dataset *root = (wb_dataset *)(uintptr_t)s->root;
    wb__data_lock();
    if (root->reader == s) root->reader = NULL;
    wb__data_unlock();
}

/* Sets at[k] to the address of row i of field k. */
static void data_stream_rows_at(const wb__stream *s, void *const *to, int64_t i, void **at)
{
    for (int k = 0; k < WB__FIELDS; k++) {
        const wb__field *f = &s->root->field[k];
        at[k] = k < s->root->n_fields && f->present ? (char *)to[k] + i * f->bytes : NULL;
    }
}

WB__PROGRAM_CALL(next_call, next_run, int,
                 const wb_dataset *d; void *const *at;,
                 c->d->next(c->at, c->d->ctx))
WB__PROGRAM_CALL(restart_call, restart_run, int,
                 const wb_dataset *d; int64_t epoch;,
                 c->d->restart(c->epoch, c->d->ctx))

/* Calls the program's function for one more observation.  Returns 0 or an error code; at the end of
 * the stream sets s->ended. */
static int data_stream_call(wb__stream *s, void *const *at)
{
    wb_clear_error();
    next_call c = {s->root, at, 0};
    if (!wb__call_program(next_run, &c)) return wb_error_code();
    const int code = c.result;
    if (code == 1) s->number++;
    if (code == 0) s->ended = true;
    if (code == 0 || code == 1) return 0;
    if (wb_error_code())
        return wb__fail(wb_error_code(), "observation %lld of the stream: %s",
                        (long long)s->number, wb_error());
    return wb__fail(code, "observation %lld of the stream: its function returned %d",
                    (long long)s->number, code);
}

static int data_stream_restart(wb__stream *s)
{
    wb_clear_error();
    restart_call c = {s->root, s->epoch, 0};
    s->begun = true;
    if (!wb__call_program(restart_run, &c)) return wb_error_code();
    const int code = c.result;
    if (!code) return 0;
    if (wb_error_code())
        return wb__fail(wb_error_code(), ".restart of the stream: %s", wb_error());
    return wb__fail(code, ".restart of the stream returned %d", code);
}

static void data_stream_copy_row(const wb__stream *s, void *const *to, void *const *from)
{
    for (int k = 0; k < s->root->n_fields; k++)
        if (to[k]) memcpy(to[k], from[k], (size_t)s->root->field[k].bytes);
}

/* Draws one observation from the buffer and puts the next one of the stream in its place, or at the
 * end of the stream the last one of the buffer.  Sets *got to false if there is none. */
static int data_stream_draw(wb__stream *s, void *const *at, bool *got)
{
    void *row[WB__FIELDS], *last[WB__FIELDS];
    int status = 0;
    while (!status && !s->ended && s->count < s->capacity) {
        data_stream_rows_at(s, (void *const *)s->rows, s->count, row);
        status = data_stream_call(s, row);
        s->count += !status && !s->ended;
    }
    *got = !status && s->count > 0;
    if (!*got) return status;
    const int64_t i = wb__draw_below(&s->draws, s->count--);
    data_stream_rows_at(s, (void *const *)s->rows, i, row);
    data_stream_copy_row(s, at, row);
    data_stream_rows_at(s, (void *const *)s->rows, s->count, last);
    if (i != s->count) data_stream_copy_row(s, row, last);
    return 0;
}

static int data_stream_read_one(wb__stream *s, void *const *at, bool *got)
{
    if (s->capacity) return data_stream_draw(s, at, got);
    const int status = s->ended ? 0 : data_stream_call(s, at);
    *got = !status && !s->ended;
    return status;
}

int wb__stream_read(wb__stream *s, int64_t n, void *const *to, int64_t *read)
{
    void *at[WB__FIELDS];
    bool got = true;
    int status = s->begun ? 0 : data_stream_restart(s);
    *read = 0;
    data_stream_rows_at(s, to, 0, at);
    for (; !status && got && s->skip > 0; s->skip--) status = data_stream_read_one(s, at, &got);
    while (!status && got && *read < n) {
        data_stream_rows_at(s, to, *read, at);
        status = data_stream_read_one(s, at, &got);
        *read += !status && got;
    }
    return status;
}
