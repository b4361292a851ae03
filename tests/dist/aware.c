/* Ranks of MPI with tensors on GPUs; for check_aware.py.
 *
 *   aware BACKEND direct|staged|asked
 *
 * direct: MPI must get addresses of the GPU's memory; staged: the host's memory; asked: whichever
 * MPI has answered.  The program counts the operations in the log, so WEBER_DEBUG must be dist. */
#include "rank_cases.h"

#include "backend/collective.h"

#define EXPECT(condition) \
    do { if (!(condition)) stop(__LINE__, #condition); } while (0)

enum { ROWS = 6, COLUMNS = 500 };       /* of the part of a rank */
static int reports, direct;             /* all, and those that name a device's memory */

static void stop(int line, const char *what)
{
    fprintf(stderr, "aware.c:%d: rank %d: %s: %s\n", line, rank, what, wb_error());
    exit(1);
}

static void count(wb_log_level level, const char *text, void *ctx)
{
    if (level != WB_LOG_DEBUG) fprintf(stderr, "%s\n", text);
    reports += strstr(text, " operation") != NULL;
    direct += strstr(text, "on a device's memory") != NULL;
}

/* Element i of rank r: computed by the device, so it is not there before the device has run. */
static wb_tensor *of_rank(int r, wb_dtype t)
{
    wb_tensor *x = wb_reshape(wb_arange(ROWS * size * COLUMNS, WB_F32), ROWS * size, COLUMNS);
    x = wb_sub(x, wb_mul(wb_floor(wb_div(x, wb_scalar(7))), wb_scalar(7)));
    return wb_astype(wb_add(x, wb_scalar(r)), t);
}

static double element(int r, int64_t i) { return (double)(i % 7 + r); }

/* y is `times` element i + `first` of the rank r, plus `more`. */
static void expect(int line, wb_tensor *y, int64_t n, int64_t first, double times, int r,
                   double more)
{
    const float *is = y ? wb_data(wb_astype(y, WB_F32)) : NULL;
    if (!is || wb_size(y) != n) stop(line, "the result");
    for (int64_t i = 0; i < n; i++)
        if (fabs(is[i] - times * element(r, first + i) - more) > 1e-4) stop(line, "a value");
}

static void tensors(wb_dtype t)
{
    wb_scope *s = wb_scope_open();
    const int64_t part = ROWS * COLUMNS, n = part * size;
    const double ranks = size * (size - 1) / 2.0;       /* the sum of all ranks' numbers */
    wb_tensor *x = of_rank(rank, t);
    /* a consumer on the device; the next operation's producer reads what came back */
    wb_tensor *sum = wb_distributed_allreduce(x, WB_RANKS_SUM);
    expect(__LINE__, wb_add(sum, sum), n, 0, 2.0 * size, 0, 2 * ranks);
    wb_tensor *most = wb_distributed_allreduce(wb_add(sum, sum), WB_RANKS_MAX);
    expect(__LINE__, most, n, 0, 2.0 * size, 0, 2 * ranks);
    expect(__LINE__, wb_distributed_reduce_scatter(x, WB_RANKS_SUM), part, part * rank, size, 0,
           ranks);
    wb_tensor *all = wb_distributed_allgather(x);
    for (int r = 0; r < size; r++)
        expect(__LINE__, wb_slice(all, 0, r * ROWS * size, (r + 1) * ROWS * size), n, 0, 1, r, 0);
    for (int root = 0; root < size; root++) {
        expect(__LINE__, wb_distributed_broadcast(of_rank(rank, t), root), n, 0, 1, root, 0);
        wb_tensor *y = wb_distributed_reduce(of_rank(rank, t), WB_RANKS_SUM, root);
        if (rank == root) expect(__LINE__, y, n, 0, size, 0, ranks);
        else EXPECT(y == WB_NONE);
    }
    EXPECT(wb_size(wb_distributed_allreduce(wb_zeros(0, 3), WB_RANKS_SUM)) == 0);
    EXPECT(!wb_scope_close(s));
}

/* The largest difference between the first weights after a training here and on the CPU. */
static void training(const wb_device *device)
{
    wb_tensor *weight[2];
    wb_scope *s = wb_scope_open();
    for (int i = 0; i < 2; i++) {
        const wb_device *d = i ? wb_cpu_device() : device;
        wb_set_default_device(d);
        wb_seed(5);
        wb_layer *m = wb_Chain(wb_Dense(8, 40, wb_relu), wb_Dense(40, 33), wb_Dense(33, 2));
        wb_seed(10 + (uint64_t)rank);
        wb_dataset *data = wb_dataset_of(wb_randn(64, 8), wb_randn(64, 2));
        wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.01), .bucket = 2000), m);
        EXPECT(!wb_train(mse_loss, m, wb_to(wb_dataloader(data, 16), d), state, .epochs = 3));
        weight[i] = wb_cpu(wb_get(m, "layers.0.weight"));
    }
    EXPECT(wb_item(wb_max(wb_abs(wb_sub(weight[0], weight[1])))) < 2e-5);
    wb_set_default_device(device);
    EXPECT(!wb_scope_close(s));
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    wb_set_log(count, NULL);
    if (!ranks_begin(connect_ranks(60))) return 1;
    wb_using(argv[1]);
    const wb_device *device = wb_gpu_device(.force = true);
    if (!device) stop(__LINE__, argv[1]);
    EXPECT(!strcmp(wb_device_backend(device), argv[1]));
    wb_set_default_device(device);
    const bool asked = wb__collective_takes_addresses_of(wb__world(), device);
    const bool wanted = !strcmp(argv[2], "asked") ? asked : !strcmp(argv[2], "direct");
    wb__collective_report("connecting");
    reports = direct = 0;
    tensors(WB_F32);
    tensors(WB_F16);
    tensors(WB_I32);
    EXPECT(reports > 0 && direct == (wanted ? reports : 0));
    const int before = direct;
    training(device);
    EXPECT(wanted ? direct > before : direct == 0);
    if (rank == 0)
        printf("%s: %d of %d reports name a device's memory\n", argv[1], direct, reports);
    return 0;
}
