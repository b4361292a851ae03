/* The tile of our own product kernels: where several suit (wb__gpu_work.tiles), it is chosen by
 * timing (timing.c), unless the step must be deterministic or is too short. */
#include "backend/gpu/runtime/runtime.h"

typedef struct {
    wb__gpu_device *d;
    wb__step step;                      /* with its operands in scratch memory */
    wb__gpu_work *work[WB__GPU_CANDIDATES];
    wb__gpu_kernel *kernel[WB__GPU_CANDIDATES];
    wb__gpu_candidates c;
} trial;

static bool has_views(const wb__step *s)
{
    for (int i = 0; i < s->n_views; i++)
        for (int k = 0; k < s->views[i].ndim; k++)
            if (s->views[i].strides[k] < 0) return false;
    return s->n_views < WB__GPU_PIECES;
}

/* The bytes of a buffer up to the last element of a view. */
static size_t bytes_of(const wb__view *v)
{
    int64_t last = v->offset;
    for (int i = 0; i < v->ndim; i++) last += (v->dims[i] - 1) * v->strides[i];
    return (size_t)(last + 1) * wb__dtype_size(v->dtype);
}

static bool is_worth_timing(const wb__gpu_device *d, const wb__step *s)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    double bytes = 0, flop = 2;
    for (int i = 0; i < s->n_views; i++) bytes += (double)bytes_of(&s->views[i]);
    for (int i = 0; i < c->ndim; i++) flop *= (double)c->dims[i];
    if (s->kind == WB__STEP_MATMUL) flop *= (double)a->dims[a->ndim - 1];
    else for (int i = 1; i < b->ndim; i++) flop *= (double)b->dims[i];
    return wb__gpu_worth_timing(d, wb__dtype_size(a->dtype), false, flop, bytes);
}

/* A hash of the texts and arguments of launches. */
static uint64_t mark_of(const wb__gpu_work *w)
{
    uint64_t mark = 1;
    for (int i = 0; i < w->n; i++) {
        const wb__gpu_launch *l = &w->launch[i];
        for (const char *at = l->text; *at; at++) mark = wb__mix(mark, (unsigned char)*at);
        for (size_t k = 0; k < l->args_bytes; k++) mark = wb__mix(mark, l->args[k]);
    }
    return mark;
}

/* Creates the launches for each tile: the candidates.  Returns whether this succeeds. */
static bool list(trial *t, int n)
{
    size_t *workspace = &t->c.bytes[t->step.n_views];
    wb__gpu_target target = t->d->target;
    for (; t->c.n < n; t->c.n++) {
        target.tile = t->c.n;
        if (wb__gpu_step(&target, &t->step, &t->work[t->c.n])) return false;
        t->c.mark[t->c.n] = mark_of(t->work[t->c.n]);
        *workspace = WB__MAX(*workspace, t->work[t->c.n]->workspace);
    }
    for (int i = 0; i < t->step.n_views; i++) t->c.bytes[i] = bytes_of(&t->step.views[i]);
    t->c.problem = t->c.mark;
    t->c.problem_bytes = (size_t)n * sizeof *t->c.mark;
    return true;
}

/* Compiles the candidates, unless the disk names one.  Returns whether one can be chosen. */
static bool ready(trial *t)
{
    wb__gpu_device *d = t->d;
    const uint64_t kept = wb__gpu_kept(d, &t->c);
    for (int i = 0; i < t->c.n; i++)
        if (t->c.mark[i] == kept) return true;
    bool good = wb__gpu_may_time(d);
    for (int i = 0; i < t->c.n && good; i++) {
        good = !wb__gpu_kernel_of(d, &t->step, t->work[i], &t->kernel[i]);
        t->work[i] = NULL;                      /* the kernel has it */
    }
    return good;
}

static int try_one(void *ctx, int i)
{
    trial *t = ctx;
    wb__gpu_kernel *k = t->kernel[i];
    const wb__gpu_addresses at = {.address = t->c.at, .workspace = t->c.at[t->step.n_views]};
    int status = 0;
    for (int j = 0; j < k->n && !status; j++)
        status = wb__gpu_enqueue(t->d, k, &k->launches[j], WB__GPU_COMPUTE, &at);
    return status;
}

/* Returns the tile that is the fastest for a step; 0: that of wb__gpu_step's estimate. */
static int best_of(wb__gpu_device *d, const wb__step *step, int n)
{
    int best = 0;
    trial *t = wb__alloc_zero(1, sizeof *t);
    if (!t) return 0;
    t->d = d;
    t->step = *step;
    t->c = (wb__gpu_candidates){.library = "Weber", .run = try_one, .ctx = t};
    for (int i = 0; i < step->n_views; i++) {
        t->step.views[i].buffer = i;
        t->step.views[i].offset %= 64;          /* as aligned as it is */
    }
    if (list(t, n) && ready(t)) {
        pthread_mutex_lock(&d->lock);
        best = wb__gpu_fastest(d, &t->c);
        pthread_mutex_unlock(&d->lock);
    }
    for (int i = 0; i < n; i++) {
        wb__gpu_kernel_free(d, t->kernel[i]);
        wb__gpu_work_free(t->work[i]);
    }
    wb__free(t);
    return best;
}

void wb__gpu_choose_tile(wb__gpu_device *d, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target target = d->target;
    wb__gpu_work *other = NULL;
    const int n = WB__MIN((*work)->tiles, WB__GPU_CANDIDATES);
    if (n < 2 || step->deterministic || !has_views(step) || !is_worth_timing(d, step)) return;
    target.tile = best_of(d, step, n);
    if (target.tile && !wb__gpu_step(&target, step, &other)) {
        wb__gpu_work_free(*work);
        *work = other;
    }
    wb_clear_error();
}
