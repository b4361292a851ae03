/* The way of a divided state's moments (wb_opt_state.parts) to a file and back.  Rank 0 writes and
 * reads files with whole moments.  It names the next moment, and the parts of that moment travel
 * one after the other, so that no rank ever has a whole moment. */
#include "dist/dist.h"

#include "optim/optim.h"

#include <string.h>

/* KEY: all ranks send it in wb__divided_agree, so that another function is noticed. */
enum { DIVIDED_ROOT = 0, DIVIDED_END = -1, KEY = 0x5A7ED };

/* A part of a moment that travels: the status of the rank that sends it, and the elements. */
typedef struct { int64_t status; char elements[]; } parcel;

static int64_t bytes_of_parcel(const wb_opt_state *s, int slot)
{
    const wb_dtype t = wb__moment_dtype(s->slots[slot].dtype);
    return (int64_t)sizeof(parcel) +
           wb__part_length(s, &s->slots[slot]) * (int64_t)wb__dtype_size(t);
}

static parcel *parcel_new(const wb_opt_state *s)
{
    int64_t most = sizeof(parcel);
    for (int i = 0; i < s->n; i++) most = WB__MAX(most, bytes_of_parcel(s, i));
    return wb__alloc_aligned((size_t)most);
}

bool wb__is_divided(const wb_opt_state *s) { return s && s->parts > 1; }

int wb__divided_agree(const wb_opt_state *s, const char *what, int status)
{
    int64_t least[2] = {0}, most[2] = {0};
    const int64_t mine[] = {KEY, status};
    const wb__communicator *c = wb__world();
    if (!wb__is_divided(s)) return status;
    if (!c || c->size != s->parts)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: the state is divided over %d ranks, which are not"
                        " connected any more", what, s->parts);
    const int failed = wb__extremes(2, mine, least, most);
    if (failed) return failed;
    if (least[0] != KEY || most[0] != KEY)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: all ranks must call it, since the state is divided"
                        " over them", what);
    if (status || !most[1]) return status;
    return wb__fail((int)most[1], "%s: failed on another rank, whose message has the reason", what);
}

/* ---- to a file ------------------------------------------------------------------------------- */

typedef struct { char *to; size_t each; } divided_copying;

static int divided_copy_part(const void *part, int64_t n, void *ctx)
{
    divided_copying *c = ctx;
    memcpy(c->to, part, (size_t)n * c->each);
    c->to += (size_t)n * c->each;
    return 0;
}

/* Gives all ranks part r of the moment in *p.  Returns 0 or the error code of rank r. */
static int share_part(const wb_opt_state *s, int slot, int k, int r, parcel *p)
{
    wb_tensor *moment = s->slots[slot].moments[k];
    divided_copying c = {p->elements, wb__dtype_size((wb_dtype)moment->dtype)};
    if (r == s->part) p->status = wb__read_in_parts(moment, divided_copy_part, &c);
    const int status = wb__from_rank(p, WB_U8, bytes_of_parcel(s, slot), r);
    if (status || !p->status) return status;
    return r == s->part ? (int)p->status
                        : wb__fail((int)p->status, "the moments of \"%s\" cannot be read on rank"
                                   " %d", s->slots[slot].path, r);
}

int wb__divided_read(const wb_opt_state *s, int slot, int k, wb__divided_reader *f, void *ctx)
{
    const wb__slot *at = &s->slots[slot];
    const int64_t each = (int64_t)wb__dtype_size(wb__moment_dtype(at->dtype));
    const int64_t length = wb__part_length(s, at);
    int64_t left = 1, next = (int64_t)slot * s->n_moments + k;
    for (int i = 0; i < at->ndim; i++) left *= at->dims[i];
    parcel *p = parcel_new(s);
    if (!p) return WB_ERROR_MEMORY;
    int status = wb__from_rank(&next, WB_I64, 1, DIVIDED_ROOT);
    /* after a failure, parts that other ranks expect still travel */
    for (int r = 0; r < s->parts; r++, left -= WB__MIN(left, length)) {
        const int sent = share_part(s, slot, k, r, p);
        if (!status) status = sent;
        if (!status) status = f(p->elements, WB__MIN(left, length) * each, ctx);
    }
    wb__free(p);
    return status;
}

int wb__divided_end(int status)
{
    int64_t word = DIVIDED_END - (int64_t)status;
    const int failed = wb__from_rank(&word, WB_I64, 1, DIVIDED_ROOT);
    return status ? status : failed;
}

/* Receives the next moment's number.  False: there is none, and *status is 0 or an error code. */
static bool receive_next(const wb_opt_state *s, const char *what, int *slot, int *k, int *status)
{
    int64_t next = DIVIDED_END;
    *status = wb__from_rank(&next, WB_I64, 1, DIVIDED_ROOT);
    if (*status) return false;
    *slot = (int)(next / s->n_moments);
    *k = (int)(next % s->n_moments);
    if (next >= 0) return true;
    if (next != DIVIDED_END)
        *status = wb__fail((int)(DIVIDED_END - next),
                           "%s: failed on rank 0, whose message has the reason", what);
    return false;
}

int wb__divided_serve(const wb_opt_state *s, const char *what)
{
    int slot, k, status = 0;
    parcel *p = parcel_new(s);
    if (!p) return WB_ERROR_MEMORY;
    while (receive_next(s, what, &slot, &k, &status))
        for (int r = 0; r < s->parts; r++) (void)share_part(s, slot, k, r, p);
    wb__free(p);
    return status;
}

/* ---- from a file ----------------------------------------------------------------------------- */

int wb__divided_set(const wb_opt_state *s, int slot, int k, int r, const void *whole)
{
    const wb__slot *at = &s->slots[slot];
    const int64_t each = (int64_t)wb__dtype_size(wb__moment_dtype(at->dtype));
    const int64_t length = wb__part_length(s, at) * each;
    int64_t bytes = each;
    for (int i = 0; i < at->ndim; i++) bytes *= at->dims[i];
    const int64_t first = WB__MIN(r * length, bytes), n = WB__MIN(length, bytes - first);
    parcel *p = parcel_new(s);
    if (!p) return WB_ERROR_MEMORY;
    memset(p, 0, (size_t)bytes_of_parcel(s, slot));
    if (n) memcpy(p->elements, (const char *)whole + first, (size_t)n);
    const int status =
        r == s->part ? wb__overwrite(at->moments[k], p->elements, (size_t)length)
                     : wb__from_rank(p, WB_U8, bytes_of_parcel(s, slot), DIVIDED_ROOT);
    wb__free(p);
    return status;
}

int wb__divided_give(const wb_opt_state *s, int slot, int k, const void *whole)
{
    int64_t next = (int64_t)slot * s->n_moments + k;
    int status = wb__from_rank(&next, WB_I64, 1, DIVIDED_ROOT);
    for (int r = 0; r < s->parts; r++) {
        const int sent = wb__divided_set(s, slot, k, r, whole);
        if (!status) status = sent;
    }
    return status;
}

int wb__divided_take(const wb_opt_state *s, const char *what)
{
    int slot, k, status = 0, failed = 0;
    parcel *p = parcel_new(s);
    if (!p) return WB_ERROR_MEMORY;
    while (receive_next(s, what, &slot, &k, &status))
        for (int r = 1; r < s->parts; r++) {
            const int64_t bytes = bytes_of_parcel(s, slot);
            const int got = wb__from_rank(p, WB_U8, bytes, DIVIDED_ROOT);
            if (!failed) failed = got;
            if (!failed && r == s->part)
                failed = wb__overwrite(s->slots[slot].moments[k], p->elements,
                                       (size_t)bytes - sizeof *p);
        }
    wb__free(p);
    return status ? status : failed;
}
