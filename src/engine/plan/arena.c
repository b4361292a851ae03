/* Where in the arena each piece of memory is: pieces that are not used at the same time share it. */
#include "engine/plan/stages.h"

#include <string.h>

typedef struct { int64_t offset, bytes; } hole;

/* The smallest hole that is large enough, else the end of the arena. */
static int64_t take(hole *holes, int *n, int64_t bytes, int64_t *end)
{
    int best = -1;
    for (int i = 0; i < *n; i++)
        if (holes[i].bytes >= bytes && (best < 0 || holes[i].bytes < holes[best].bytes)) best = i;
    if (best < 0 && *n &&
        holes[*n - 1].offset + holes[*n - 1].bytes == *end) { /* the last hole grows */
        best = *n - 1;
        *end += bytes - holes[best].bytes;
        holes[best].bytes = bytes;
    }
    if (best < 0) {
        *end += bytes;
        return *end - bytes;
    }
    int64_t at = holes[best].offset;
    holes[best].offset += bytes;
    holes[best].bytes -= bytes;
    if (!holes[best].bytes) {
        memmove(&holes[best], &holes[best + 1], (size_t)(*n - best - 1) * sizeof *holes);
        --*n;
    }
    return at;
}

static void give_back(hole *holes, int *n, int64_t offset, int64_t bytes)
{
    int i = 0, high = *n;
    while (i < high) {
        int mid = (i + high) / 2;
        if (holes[mid].offset < offset) i = mid + 1;
        else high = mid;
    }
    bool before = i > 0 && holes[i - 1].offset + holes[i - 1].bytes == offset;
    bool after = i < *n && offset + bytes == holes[i].offset;
    if (before && after) {
        holes[i - 1].bytes += bytes + holes[i].bytes;
        memmove(&holes[i], &holes[i + 1], (size_t)(*n - i - 1) * sizeof *holes);
        --*n;
    } else if (before) {
        holes[i - 1].bytes += bytes;
    } else if (after) {
        holes[i] = (hole){offset, bytes + holes[i].bytes};
    } else {
        memmove(&holes[i + 1], &holes[i], (size_t)(*n - i) * sizeof *holes);
        holes[i] = (hole){offset, bytes};
        ++*n;
    }
}

static void lives_at(wb__making *m, int tenant, int draft)
{
    if (tenant < 0) return;
    wb__tenant *t = &m->tenant[tenant];
    if (t->born < 0) t->born = draft;
    t->dies = draft;
}

static void find_lives(wb__making *m)
{
    for (int i = 0; i < m->n_drafts; i++) {
        const wb__draft *d = &m->draft[i];
        for (int v = 0; v < d->n_owners; v++) lives_at(m, d->owners[v], i);
        lives_at(m, d->aux_owner, i);
        lives_at(m, d->sums_owner, i);
    }
}

/* Step by step: what is born gets a place, what dies gives it back. */
bool wb__lay_out(wb__making *m, wb__plan *p)
{
    size_t n = (size_t)m->n_tenants;
    int *at = wb__alloc_zero((size_t)m->n_drafts + 2, sizeof *at),
        *by_birth = wb__alloc((n + 1) * sizeof *by_birth);
    int *next_dead = wb__alloc((n + 1) * sizeof *next_dead),
        *dead = wb__alloc(((size_t)m->n_drafts + 1) * sizeof *dead);
    hole *holes = wb__alloc((n + 2) * sizeof *holes);
    int n_holes = 0;
    int64_t end = 0;
    bool good = at && by_birth && next_dead && dead && holes;
    find_lives(m);
    if (good) {
        for (int i = 0; i < m->n_drafts; i++) dead[i] = -1;
        for (size_t t = 0; t < n; t++)
            if (m->tenant[t].born >= 0) at[m->tenant[t].born + 1]++;
        for (int i = 0; i < m->n_drafts; i++) at[i + 1] += at[i];
        for (size_t t = 0; t < n; t++) {
            if (m->tenant[t].born < 0) continue;
            by_birth[at[m->tenant[t].born]++] = (int)t;
            next_dead[t] = dead[m->tenant[t].dies];
            dead[m->tenant[t].dies] = (int)t;
        }
        for (int i = 0, next = 0; i < m->n_drafts; i++) {
            for (; next < at[i]; next++) {
                wb__tenant *t = &m->tenant[by_birth[next]];
                t->bytes = (t->bytes + 63) / 64 * 64;
                t->offset = t->bytes ? take(holes, &n_holes, t->bytes, &end) : 0;
            }
            for (int t = dead[i]; t >= 0; t = next_dead[t])
                if (m->tenant[t].bytes)
                    give_back(holes, &n_holes, m->tenant[t].offset, m->tenant[t].bytes);
        }
        const int64_t unit = WB__WORKSPACE_ALIGN;
        p->arena_bytes = (end + unit - 1) / unit * unit;
    }
    wb__free(at);
    wb__free(by_birth);
    wb__free(next_dead);
    wb__free(dead);
    wb__free(holes);
    return good;
}
