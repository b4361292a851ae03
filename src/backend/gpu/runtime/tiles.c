/* The tile of our own product kernels: where several suit (wb__gpu_work.tiles), it is chosen by
 * timing (timing.c), unless the step must be deterministic or is too short. */
#include "backend/gpu/runtime/runtime.h"

typedef struct {
    wb__gpu_device *d;
    wb__step step;                      /* with its operands in scratch memory */
    wb__gpu_work *work[WB__GPU_CANDIDATES];
    wb__gpu_kernel *kernel[WB__GPU_CANDIDATES];
    wb__gpu_candidates c;
} gpu_tiles_trial;

/* Whether the operands of a step can be in scratch memory. */
static bool fits_scratch(const wb__step *s)
{
    for (int i = 0; i < s->n_views; i++)
        for (int k = 0; k < s->views[i].ndim; k++)
            if (s->views[i].strides[k] < 0) return false;
    return s->n_views < WB__GPU_SCRATCH;
}

/* The bytes from the first element of a view to the last. */
static size_t gpu_tiles_bytes_of(const wb__view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->ndim; i++) last += (v->dims[i] - 1) * v->strides[i];
    return (size_t)(last + 1) * wb__dtype_size(v->dtype);
}

/* Whether the step takes long enough to time its tiles.  Views 0 to 2 are A, B and C, or a
 * convolution's x, weight and y. */
static bool gpu_tiles_is_worth_timing(const wb__gpu_device *d, const wb__step *s)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    double bytes = 0, flop = 2;
    for (int i = 0; i < s->n_views; i++) bytes += (double)gpu_tiles_bytes_of(&s->views[i]);
    for (int i = 0; i < c->ndim; i++) flop *= (double)c->dims[i];
    if (s->kind == WB__STEP_MATMUL) flop *= (double)a->dims[a->ndim - 1];
    else for (int i = 1; i < b->ndim; i++) flop *= (double)b->dims[i];
    return wb__gpu_worth_timing(d, wb__dtype_size(a->dtype), false, flop, bytes);
}

/* A hash of the texts and arguments of launches. */
static uint64_t gpu_tiles_fingerprint_of(const wb__gpu_work *w)
{
    uint64_t hash = 1;
    for (int i = 0; i < w->n; i++) {
        const wb__gpu_launch *l = &w->launch[i];
        hash = wb__hash(hash, l->text, strlen(l->text));
        hash = wb__hash(hash, l->args, l->args_bytes);
    }
    return hash;
}

/* Creates the launches for each tile: the candidates.  Returns whether this succeeds. */
static bool gpu_tiles_list(gpu_tiles_trial *t, int n)
{
    size_t *workspace = &t->c.bytes[t->step.n_views];
    wb__gpu_target target = t->d->target;
    for (; t->c.n < n; t->c.n++) {
        target.tile = t->c.n;
        if (wb__gpu_step(&target, &t->step, &t->work[t->c.n])) return false;
        t->c.fingerprint[t->c.n] = gpu_tiles_fingerprint_of(t->work[t->c.n]);
        *workspace = WB__MAX(*workspace, t->work[t->c.n]->workspace);
    }
    for (int i = 0; i < t->step.n_views; i++) {
        const wb__view *v = &t->step.views[i];
        t->c.bytes[i] = gpu_tiles_bytes_of(v) + (size_t)v->offset * wb__dtype_size(v->dtype);
    }
    t->c.problem = t->c.fingerprint;
    t->c.problem_bytes = (size_t)n * sizeof *t->c.fingerprint;
    return true;
}

/* Compiles the candidates.  Returns whether this succeeds. */
static bool gpu_tiles_compile(gpu_tiles_trial *t)
{
    const double begun = wb__now();
    bool good = true;
    for (int i = 0; i < t->c.n && good; i++) {
        good = !wb__gpu_kernel_of(t->d, &t->step, t->work[i], &t->kernel[i]);
        t->work[i] = NULL;                      /* the kernel owns the work now */
    }
    wb__mutex_lock(&t->d->lock);
    t->d->timing_seconds += wb__now() - begun;
    wb__mutex_unlock(&t->d->lock);
    return good;
}

static int gpu_tiles_run_candidate(void *ctx, int i)
{
    gpu_tiles_trial *t = ctx;
    wb__gpu_kernel *k = t->kernel[i];
    const wb__gpu_addresses at = {.address = t->c.at, .workspace = t->c.at[t->step.n_views]};
    int status = 0;
    for (int j = 0; j < k->n && !status; j++)
        status = wb__gpu_enqueue(t->d, k, &k->launches[j], WB__GPU_COMPUTE, &at);
    return status;
}

/* Returns the index of the candidate that the disk names, or of the fastest; 0: none is timed. */
static int gpu_tiles_choose(gpu_tiles_trial *t)
{
    wb__gpu_device *d = t->d;
    wb__mutex_lock(&d->lock);
    const uint64_t kept = wb__gpu_kept_fingerprint(d, &t->c);
    const bool may = wb__gpu_may_time(d);
    wb__mutex_unlock(&d->lock);
    for (int i = 0; i < t->c.n; i++)
        if (t->c.fingerprint[i] == kept) return i;
    if (!may || !gpu_tiles_compile(t)) return 0;
    wb__mutex_lock(&d->lock);
    const int best = wb__gpu_fastest(d, &t->c);
    wb__mutex_unlock(&d->lock);
    return best;
}

/* Returns the number of the fastest tile for a step; 0: the tile that wb__gpu_step estimates. */
static int best_of(wb__gpu_device *d, const wb__step *step, int n)
{
    gpu_tiles_trial *t = wb__alloc_zero(1, sizeof *t);
    if (!t) return 0;
    t->d = d;
    t->step = *step;
    t->c = (wb__gpu_candidates){.library = "Weber", .run = gpu_tiles_run_candidate, .ctx = t};
    for (int i = 0; i < step->n_views; i++) {
        t->step.views[i].buffer = i;
        t->step.views[i].offset %= 64;      /* the offset in scratch memory keeps the alignment */
    }
    const int best = gpu_tiles_list(t, n) ? gpu_tiles_choose(t) : 0;
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
    if (n < 2 || step->deterministic || !fits_scratch(step) || !gpu_tiles_is_worth_timing(d, step))
        return;
    target.tile = best_of(d, step, n);
    if (target.tile && !wb__gpu_step(&target, step, &other)) {
        wb__gpu_work_free(*work);
        *work = other;
    }
    wb_clear_error();
}
