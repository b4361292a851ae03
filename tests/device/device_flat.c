/* Memory that does not grow during training: device memory is constant from step 3 on (some
 * steps later if plans become one command), host memory is bounded, and wb_estimate_memory
 * returns what is used.  Runs on every device of every backend that works here; on a device
 * without a cache only the estimates are tested. */
#include "device_numbers.h"

#include "engine/request.h"

#include <unistd.h>

enum { STEPS = 100, SETTLED = 2, INSTANCES = 16, BATCH = 16, BATCHES = 5 };
enum { FEATURES = 96, CLASSES = 10 };
enum { COPY = BATCH * FEATURES * 4 + 2048 };    /* bytes of a batch, and for rounding up */

typedef struct { int64_t device[STEPS], host[STEPS]; } record;

static int64_t held_of(const wb_device *d)
{
    wb_device_memory m;
    if (wb_device_memory_of(d, &m)) fail_msg("%s", wb_error());
    return m.used + m.cached;
}

/* Records the memory after step i.  The first steps pause so that the loader can prefetch as many
 * batches as it may.  This thread frees the small blocks that the loader's thread allocated, and
 * keeps them in a list of bounded length: the trim excludes them. */
static void note(record *r, int i, const wb_device *d)
{
    if (i < SETTLED) usleep(50000);
    r->device[i] = held_of(d);
    wb__pool_trim();
    r->host[i] = wb_memory_used();
}

/* Host memory varies with the number of prefetched batches.  A plan that is one command has a
 * bounded number of instances, one for each set of addresses.  When batches come at more addresses
 * than that, it allocates memory for a copy of a batch, once, at a step that depends on the timing
 * of the threads. */
static void check_flat(const record *r, int64_t slack, const wb_device *d, const char *what)
{
    const int settled = d->backend->graph ? SETTLED + INSTANCES : SETTLED;
    if (d->backend->graph) slack += COPY;
    int64_t least = r->host[10], most = r->host[10];
    for (int i = settled; i < STEPS; i++)
        if (llabs(r->device[i] - r->device[settled]) > slack)
            fail_msg("%s, %s: after step %d %lld bytes of the device are held, after step %d %lld",
                     wb_device_describe(d), what, i + 1, (long long)r->device[i], settled + 1,
                     (long long)r->device[settled]);
    for (int i = 10; i < STEPS; i++) {
        least = WB__MIN(least, r->host[i]);
        most = WB__MAX(most, r->host[i]);
    }
    const int64_t grown = r->host[STEPS - 1] - r->host[10];
    print_message("%s, %s: %lld bytes of the device; of the host %lld and %lld more at times\n",
                  wb_device_describe(d), what, (long long)r->device[STEPS - 1], (long long)least,
                  (long long)(most - least));
    if (grown > 4096)
        fail_msg("%s, %s: the host holds %lld bytes more after step %d than after step 10",
                 wb_device_describe(d), what, (long long)grown, STEPS);
}

static wb_loader *make_loader(const wb_device *d, bool whole, int ahead)
{
    static float x[BATCH * BATCHES * FEATURES];
    int32_t y[BATCH * BATCHES];
    for (size_t i = 0; i < WB__COUNT(x); i++) x[i] = sinf((float)i);
    for (int i = 0; i < BATCH * BATCHES; i++) y[i] = i % CLASSES;
    wb_dataset *data = wb_dataset_of(
        wb_from(x, WB_F32, 2, (int64_t[]){BATCH * BATCHES, FEATURES}),
        wb_from(y, WB_I32, 1, (int64_t[]){BATCH * BATCHES}));
    if (whole) data = wb_to(data, d);
    wb_loader *l = wb_dataloader(data, .batchsize = BATCH, .shuffle = true, .ahead = ahead);
    return wb_to(l, d);
}

/* ---- layers and wb_train --------------------------------------------------------------------- */

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), wb_onehotbatch(b.y, CLASSES));
}

static wb_layer *make_model(void)
{
    wb_seed(2);
    return wb_Chain(wb_Dense(FEATURES, 40, wb_tanh), wb_BatchNorm(40), wb_Dropout(0.2),
                    wb_Dense(40, CLASSES));
}

typedef struct { record r; const wb_device *d; } watched;

static int each(int epoch, int64_t batch, wb_tensor *loss, void *ctx)
{
    watched *w = ctx;
    const int i = (epoch - 1) * BATCHES + (int)batch - 1;
    const double v = wb_item(loss);
    if (!(v == v)) return 1;
    note(&w->r, i, w->d);
    return 0;
}

TEST(training_by_the_library)
{
    static watched w;
    for (int i = 1; i < n_places; i++)
        for (int whole = 0; whole < 3; whole++) IN_SCOPE {
            w.d = places[i];
            wb_layer *m = wb_to(make_model(), w.d);
            wb_opt_state *o = wb_setup(wb_Adam(), m);
            wb_loader *l = make_loader(w.d, whole > 0, whole == 1 ? 0 : 2);
            if (wb_train(loss_of, m, l, o, .epochs = STEPS / BATCHES, .each = each, .ctx = &w))
                fail_msg("%s", wb_error());
            /* the loader's thread runs a small plan that gathers a batch, sometimes at the same
             * time as a plan of this thread: 4096 bytes for it */
            check_flat(&w.r, whole == 2 ? 4096 : 0, w.d,
                       whole == 2 ? "data there, ahead" : whole ? "data there" : "loader moved");
        }
}

/* ---- a model and a loop of the program's own ------------------------------------------------- */

typedef struct { wb_tensor *in, *out; double scale; } net;
WB_FUNCTOR(net, in, out)

static wb_tensor *loss_of_net(const net *n, wb_batch b)
{
    wb_tensor *h = wb_relu(wb_mul(wb_matmul(b.x, n->in), wb_scalar(n->scale)));
    return wb_logitcrossentropy(wb_matmul(h, n->out), wb_onehotbatch(b.y, CLASSES));
}

TEST(training_by_the_program)
{
    static record r;
    for (int k = 1; k < n_places; k++) IN_SCOPE {
        const wb_device *d = places[k];
        wb_seed(3);
        net n = {wb_variable(wb_randn(FEATURES, 30)), wb_variable(wb_randn(30, CLASSES)), 0.1};
        wb_tree *tree = wb_to(wb_struct(net, &n), d);
        if (!tree || wb_struct_get(net, tree, &n)) fail_msg("%s", wb_error());
        wb_opt_state *o = wb_setup(wb_Momentum(.eta = 0.05), tree);
        wb_loader *l = make_loader(d, false, 2);
        int i = 0;
        double first = 0, last = 0;
        while (i < STEPS) {
            WB_EACH_BATCH(b, l) {
                wb_tensor *loss = loss_of_net(&n, b);
                if (wb_update(o, tree, wb_gradient(loss, tree)) || wb_eval(loss))
                    fail_msg("%s", wb_error());
                last = wb_item(loss);
                if (!i) first = last;
                note(&r, i++, d);
            }
            if (wb_loader_status(l)) fail_msg("%s", wb_error());
        }
        if (!(last < first)) fail_msg("%g, and then %g", first, last);
        check_flat(&r, 0, d, "a struct of the program's");
    }
}

/* ---- estimates ------------------------------------------------------------------------------- */

/* Backends allocate blocks that are up to an eighth larger than requested. */
static void check_estimate(const wb_device *d, wb_tensor *x)
{
    wb_memory m;
    wb_device_memory start, end;
    wb__cache_clear();                  /* frees the arenas of earlier plans */
    if (wb_estimate_memory(1, &x, &m)) fail_msg("%s", wb_error());
    if (wb_device_memory_of(d, &start)) fail_msg("%s", wb_error());
    assert_true(m.peak == m.arena + m.inputs + m.outputs && m.arena > 4096 && m.inputs > 4096);
    if (wb_eval(x) || wb_device_memory_of(d, &end)) fail_msg("%s", wb_error());
    const int64_t used = end.used - start.used, estimated = m.arena + m.outputs;
    if (used < estimated || used > estimated + estimated / 8 + 512)
        fail_msg("%s: %lld bytes estimated, %lld used", wb_device_describe(d), (long long)estimated,
                 (long long)used);
    if (end.peak >= 0 && end.peak < start.used + estimated)
        fail_msg("%s: a peak of %lld bytes, %lld of them estimated", wb_device_describe(d),
                 (long long)end.peak, (long long)estimated);
    if (start.used < m.inputs)
        fail_msg("%s: inputs of %lld bytes are estimated, %lld are used in all",
                 wb_device_describe(d), (long long)m.inputs, (long long)start.used);
}

TEST(estimates_are_what_is_used)
{
    for (int k = 0; k < n_places; k++) IN_SCOPE {
        const wb_device *d = places[k];
        wb_tensor *x = wb_to(wb_randn(300, 40), d), *w = wb_to(wb_randn(40, 50), d);
        wb_tensor *y = wb_matmul(wb_softmax(wb_matmul(x, w)), wb_transpose(w));
        check_estimate(d, wb_square(y));
        wb_layer *m = wb_to(make_model(), d);       /* a step: loss, gradient, update */
        wb_opt_state *o = wb_setup(wb_Adam(), m);
        wb_loader *l = make_loader(d, true, 0);
        WB_EACH_BATCH(b, l) {
            wb_tree *g;
            wb_tensor *loss = wb_withgradient(loss_of, m, b, &g);
            if (!loss || wb_eval(b.x, b.y) || wb_update(o, m, g)) fail_msg("%s", wb_error());
            check_estimate(d, loss);
        }
    }
}

int main(void)
{
    places[n_places++] = far_device();
    for (const char *const *name = wb_supported_gpu_backends(); *name; name++) {
        if (wb_using(*name)) continue;
        for (int i = 0; i < wb_devices(*name).n && n_places < MOST_PLACES; i++)
            places[n_places++] = wb_device_at(*name, i);
    }
    if (n_places == 1) printf("only the device of these tests: no GPU's backend works here\n");
    wb_clear_error();
    return run_all_cases();
}
