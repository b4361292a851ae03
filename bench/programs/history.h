/* What the programs of this folder have in common: the losses of a training of STEPS steps, and
 * when each step ended.  A program defines STEPS before it includes this header. */
#include <stdio.h>
#include <time.h>
#include <weber.h>

typedef struct {
    int steps;
    double losses[STEPS], ends[STEPS];
} history;

static inline double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void record(history *h, double loss)
{
    h->losses[h->steps] = loss;
    h->ends[h->steps++] = seconds();
}

/* The option .each of wb_train, where .ctx is a history or begins with one. */
static inline int note(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    (void)epoch, (void)batch;
    record(ctx, wb_item(loss));
    return 0;
}

/* The mean of the last n losses. */
static inline double last_losses(const history *h, int n)
{
    return wb_item(wb_mean(wb_from(h->losses + STEPS - n, WB_F64, 1, (int64_t[]){n})));
}

/* The median time between two steps, in seconds; the first five steps do not count. */
static inline double median(const history *h)
{
    wb_tensor *ends = wb_from(h->ends, WB_F64, 1, (int64_t[]){STEPS});
    wb_tensor *took = wb_sub(wb_slice(ends, 0, 6, STEPS), wb_slice(ends, 0, 5, STEPS - 1));
    return wb_at(wb_sort(took, 0), (STEPS - 6) / 2);
}

static inline int failed(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}
