/* See rank_cases.h. */
#include "rank_cases.h"

int rank, size;

int connect_by(const wb_distributed_backend *backend, const wb_distributed_backend *through,
               double timeout)
{
    const int status = wb_distributed_initialize(backend, .through = through, .timeout = timeout);
    if (status) return status;
    rank = wb_distributed_rank();
    size = wb_distributed_size();
    return 0;
}

bool ranks_begin(int status)
{
    if (!status) return !rank || freopen("/dev/null", "w", stdout);
    fprintf(stderr, "%s\n", wb_error());
    return false;
}

bool use_own_gpu(void)
{
    const char *given = getenv("WEBER_BACKENDS"), *backend = given ? given : "CUDA";
    wb_using(backend);
    const wb_device *d = wb_gpu_device(.force = true);
    if (d && !strcmp(wb_device_backend(d), backend)) {
        wb_set_default_device(d);
        return true;
    }
    fprintf(stderr, "no device of %s: %s\n", backend, wb_error());
    return false;
}

wb_tensor *mse_loss(wb_layer *model, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(model, b.x), b.y);
}

int train_step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const trained *t = ctx;
    wb_tree *grads;
    const wb_batch b = {.x = in[0], .y = in[1], .n = wb_dim(in[0], 0)};
    out[0] = wb_withgradient(mse_loss, t->model, b, &grads);
    return out[0] && !wb_update(t->state, t->model, grads) ? 1 : -1;
}

enum { MOST = 16 };
typedef struct { wb_tensor *row[MOST]; int n; } parameters;

static int add_row(wb_tensor *x, const char *path, void *ctx)
{
    parameters *p = ctx;
    assert_true(p->n < MOST);
    p->row[p->n] = wb_reshape(x, 1, -1);
    return !p->row[p->n++];
}

void expect_alike(wb_layer *model)
{
    parameters p = {.n = 0};
    WORKS(wb_each_parameter(model, add_row, &p));
    wb_tensor *all = wb_distributed_allgather(wb_concat_array(1, p.n, p.row));
    wb_tensor *wide = all ? wb_astype(all, WB_F32) : NULL;      /* exact, also of halves */
    const float *x = wide ? wb_data(wide) : NULL;
    if (!x) fail_msg("rank %d: %s", rank, wb_error());
    const int64_t n = wb_dim(all, 1);
    for (int64_t i = n; i < n * size; i++)
        if (!(x[i] == x[i % n]))
            fail_msg("rank %d: parameter %lld is %g on rank 0, and %g on rank %d", rank,
                     (long long)(i % n), (double)x[i % n], (double)x[i], (int)(i / n));
}
