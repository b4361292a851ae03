/* Where in the arena each piece of memory is: pieces that are not used at the same time share. */
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

/* ---- pieces in the order of the steps -------------------------------------------------------- */

typedef struct {
    int last_use;                       /* a step; -1: none */
    int next;                           /* of the pieces with the same last use; -1: none */
    bool placed;
    int64_t bytes;
} life;

typedef struct {
    life *lives;
    int64_t *offsets, end;
    hole *holes;
    int n_holes;
} arena;

static void begin(arena *a, int piece)
{
    if (piece < 0 || a->lives[piece].placed) return;
    life *l = &a->lives[piece];
    l->placed = true;
    if (l->bytes) a->offsets[piece] = take(a->holes, &a->n_holes, l->bytes, &a->end);
}

static void use(arena *a, int piece, int step)
{
    if (piece >= 0) a->lives[piece].last_use = step;
}

static void find_lives(arena *a, const wb__placement *l, const wb__programs *s)
{
    for (int i = 0; i < l->n_memory + s->n_memory; i++) {
        const int64_t bytes = i < l->n_memory ? l->bytes[i] : s->bytes[i - l->n_memory];
        a->lives[i] = (life){.last_use = -1, .next = -1, .bytes = (bytes + 63) / 64 * 64};
    }
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        for (int v = 0; v < d->n_places; v++) use(a, d->place[v].memory, i);
        use(a, d->aux.memory, i);
        use(a, d->sums.memory, i);
    }
}

/* Step by step: what is first used gets a place, what is last used gives it back. */
static void lay_out(arena *a, const wb__programs *s, int n, int *ending)
{
    for (int i = 0; i < s->n; i++) ending[i] = -1;
    for (int piece = 0; piece < n; piece++) {
        life *l = &a->lives[piece];
        if (l->last_use < 0) continue;
        l->next = ending[l->last_use];
        ending[l->last_use] = piece;
    }
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        for (int v = 0; v < d->n_places; v++) begin(a, d->place[v].memory);
        begin(a, d->aux.memory);
        begin(a, d->sums.memory);
        for (int piece = ending[i]; piece >= 0; piece = a->lives[piece].next)
            if (a->lives[piece].bytes)
                give_back(a->holes, &a->n_holes, a->offsets[piece], a->lives[piece].bytes);
    }
}

/* ---- views that count from the beginning of the arena ---------------------------------------- */

static wb__view settled(const arena *a, const wb__place *at)
{
    wb__view v = at->view;
    if (at->memory >= 0) v.offset += a->offsets[at->memory] / (int64_t)wb__dtype_size(v.dtype);
    return v;
}

/* The views of a step, from its places; false without memory. */
static bool settle(const arena *a, wb__plan_step *d)
{
    wb__step *s = &d->step;
    wb__view *views = s->views;
    if (s->kind == WB__STEP_FUSED)
        views = d->views = wb__alloc(((size_t)d->n_places + 1) * sizeof *views);
    else s->n_views = d->n_places;
    for (int i = 0; views && i < d->n_places; i++) views[i] = settled(a, &d->place[i]);
    s->aux = settled(a, &d->aux);
    s->sums = settled(a, &d->sums);
    s->fused.instr = d->instr;
    s->fused.views = d->views;
    s->fused.spaces = d->spaces;
    return views;
}

bool wb__lay_out(const wb__placement *l, wb__programs *s)
{
    const int n = l->n_memory + s->n_memory, unit = WB__WORKSPACE_ALIGN;
    int *ending = wb__alloc(((size_t)s->n + 1) * sizeof *ending);
    arena a = {.lives = wb__alloc(((size_t)n + 1) * sizeof *a.lives),
               .offsets = wb__alloc_zero((size_t)n + 1, sizeof *a.offsets),
               .holes = wb__alloc(((size_t)n + 2) * sizeof *a.holes)};
    bool good = ending && a.lives && a.offsets && a.holes;
    if (good) {
        find_lives(&a, l, s);
        lay_out(&a, s, n, ending);
        for (int i = 0; good && i < s->n; i++) good = settle(&a, &s->step[i]);
        s->arena_bytes = (a.end + unit - 1) / unit * unit;
    }
    wb__free(ending);
    wb__free(a.lives);
    wb__free(a.offsets);
    wb__free(a.holes);
    return good;
}
