/* A program that trains on a device, through the public interface only, while calls of the driver
 * and allocations on the host fail: the n-th call, for n from the search for devices to the last
 * release; that call and all later ones; the n-th allocation.  Each run ends with an error that has
 * a message or with the right result, nothing leaks, and the next attempt gives the numbers of a
 * run without failures.
 *
 * Included by a program of each backend, which defines
 *   BACKEND   the backend's name
 *   TAG       the backend's name in messages
 * and includes the double of its driver (cuda_double.h, opencl_double.h), in which the calls fail
 * that the variable FAIL selects, and which counts the driver's objects; it may define
 *   TOLERANCE     the relative difference of numbers that is allowed; default 0
 *   LEAST_CALLS   the program must have more calls that can fail; default 300 */
#ifndef WB_TEST_TRAINING_FAULTS_H
#define WB_TEST_TRAINING_FAULTS_H

#include "reference.h"

#include "base/base.h"
#include "weber/device.h"

#include <unistd.h>

#ifndef LEAST_CALLS
#define LEAST_CALLS 300
#endif

enum { STEPS = 2, BATCH = 4, PIXELS = 36, CLASSES = 3 };

static char path[64];

/* The number of calls that failed in the double, and the first of them. */
static int64_t reached;
static char reached_text[200];

static void look(void)
{
    char text[200];
    const int64_t n = calls_failed(text);
    if (n && !reached) memcpy(reached_text, text, sizeof text);
    reached += n;
}

static void start_anew(void)
{
    look();
    reached = 0;
}

static void listen(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)text, (void)context;
}

/* ---- the program ----------------------------------------------------------------------------- */

static wb_layer *make_model(void)
{
    wb_seed(6);
    return wb_Chain(wb_Conv(1, 2, {3}, wb_relu), wb_BatchNorm(2), wb_MaxPool({2}), wb_Flatten(),
                    wb_Dense(8, CLASSES));
}

static wb_loader *make_loader(const wb_device *d)
{
    static float x[STEPS * BATCH * PIXELS];
    int32_t y[STEPS * BATCH];
    for (int i = 0; i < STEPS * BATCH * PIXELS; i++) x[i] = sinf((float)i);
    for (int i = 0; i < STEPS * BATCH; i++) y[i] = i % CLASSES;
    wb_tensor *images = wb_from(x, WB_F32, 4, (int64_t[]){STEPS * BATCH, 1, 6, 6});
    wb_tensor *labels = wb_from(y, WB_I32, 1, (int64_t[]){STEPS * BATCH});
    return wb_to(wb_dataloader(wb_dataset_of(images, labels), .batchsize = BATCH), d);
}

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), wb_onehotbatch(b.y, CLASSES));
}

typedef struct {
    double losses[STEPS], digest, saved;
} numbers;

/* The objects of the program.  It consists of parts, each of which can be repeated if it fails. */
typedef struct {
    const wb_device *d;
    wb_layer *m, *here;
    wb_loader *l;
    wb_opt_state *o;
    wb_batch b;
    wb_tensor *loss;
    int step;
    bool torn;
    numbers out;
} program;

static int error(void) { return wb_error_code() ? (int)wb_error_code() : -1; }

/* wb_get_device returns the CPU, without an error, where the device does not start; if the start
 * failed for lack of memory, a second call tries again. */
static int find(program *p)
{
    if (wb_using(BACKEND)) return error();
    p->d = wb_get_device();
    if (wb_device_is_gpu(p->d)) return 0;
    if (wb_functional(BACKEND)) p->d = wb_get_device();
    if (wb_device_is_gpu(p->d)) return 0;
    return wb__fail(WB_ERROR_DEVICE, "%s", wb_why_not(BACKEND));
}

static int build(program *p)
{
    wb_layer *m = make_model();
    if (!(p->m = wb_to(m, p->d))) return error();
    return 0;
}

static int set_up(program *p)
{
    return (p->o = wb_setup(wb_Adam(.eta = 0.01), p->m)) ? 0 : error();
}
static int load(program *p) { return (p->l = make_loader(p->d)) ? 0 : error(); }

/* Gets batch number p->step, also if the epoch ended with an error before it. */
static int fetch(program *p)
{
    for (int tries = 0; tries < 2 * STEPS; tries++) {
        if (wb_loader_next(p->l, &p->b)) {
            if (p->b.index == p->step) return 0;
        } else if (wb_loader_status(p->l)) {
            return error();
        }
    }
    fail_msg("no batch %d", p->step);
    return 0;
}

static int step(program *p)
{
    wb_tree *g;
    p->loss = wb_withgradient(loss_of, p->m, p->b, &g);
    if (!p->loss || wb_update(p->o, p->m, g) || wb_eval(p->loss)) return error();
    return 0;
}

static int read_loss(program *p)
{
    const double v = p->out.losses[p->step] = wb_item(p->loss);
    return v == v ? 0 : error();
}

static int sum_up(wb_tensor *x, const char *name, void *ctx)
{
    const float *v = wb_data(x);
    for (int64_t i = 0; v && i < wb_size(x); i++)
        *(double *)ctx = *(double *)ctx * 1.0000001 + (double)v[i] * (double)(1 + i % 7);
    return v ? 0 : 1;
}

static int read_parameters(program *p)
{
    p->out.digest = 0;
    return wb_each_parameter(p->m, sum_up, &p->out.digest) ? error() : 0;
}

static int move_back(program *p)
{
    if (!(p->here = wb_cpu(p->m))) return error();
    double digest = 0;
    if (wb_each_parameter(p->here, sum_up, &digest)) return error();
    if (digest != p->out.digest) fail_msg("moved back it is another model");
    return 0;
}

static int save(program *p) { return wb_save(path, p->m) ? error() : 0; }

static int load_saved(program *p)
{
    wb_layer *m = wb_load(path);
    p->out.saved = 0;
    return !m || wb_each_parameter(m, sum_up, &p->out.saved) ? error() : 0;
}

typedef int (*part)(program *p);
static const part before[] = {build, set_up, load}, each_step[] = {fetch, step, read_loss},
                  after[] = {read_parameters, move_back, save, load_saved};

/* ---- with faults ----------------------------------------------------------------------------- */

/* Runs a part; `again`: if it fails, a second attempt must succeed. */
static int attempt(program *p, part f, bool again)
{
    wb_clear_error();
    const int e = f(p);
    look();
    if (!e) return 0;
    if (!*wb_error()) fail_msg("%s: an error without a message", reached_text);
    p->torn |= HAS_LINE(wb_error(), "variables", "written");
    if (!again || p->torn) return e;
    wb_clear_error();
    if (!f(p)) return 0;
    p->torn = HAS_LINE(wb_error(), "device", "is lost");
    if (!p->torn) fail_msg("%s: and then: %s", reached_text, wb_error());
    return e;
}

static int do_parts(program *p, const part *parts, size_t n, bool again)
{
    int e = 0;
    for (size_t i = 0; i < n && !e; i++) e = attempt(p, parts[i], again);
    return e;
}

static int train(program *p, bool again)
{
    int e = do_parts(p, before, WB__COUNT(before), again);
    for (p->step = 0; p->step < STEPS && !e; p->step++)
        e = do_parts(p, each_step, WB__COUNT(each_step), again);
    return e ? e : do_parts(p, after, WB__COUNT(after), again);
}

static void forget(void)
{
    wb_shutdown();
    wb_clear_error();
    ref_forget();
}

/* Runs the program from the search for devices to wb_shutdown.  Returns 0, or the error that ended
 * it, whose message is kept. */
static int story(program *p, bool again)
{
    *p = (program){0};
    int e = attempt(p, find, false);
    if (e && again) {                   /* a driver that failed once is started again */
        forget();
        unsetenv(FAIL);
        if (attempt(p, find, false)) fail_msg("%s: and then: %s", reached_text, wb_error());
        e = 0;
    }
    wb_scope *s = e ? NULL : wb_scope_open();
    if (!e && !s && !(again && (s = wb_scope_open()))) e = error();
    if (!e) e = train(p, again);
    char text[300];
    snprintf(text, sizeof text, "%s", wb_error());
    wb_scope_close(s);
    forget();
    if (e) wb__fail(WB_ERROR_DEVICE, "%s", text);
    return e;
}

static numbers plain;
static int64_t base;

#ifndef TOLERANCE
#define TOLERANCE 0
#endif
static bool is_near(double x, double wanted)
{
    return fabs(x - wanted) <= TOLERANCE * fabs(wanted);
}

static bool is_plain(const numbers *n)
{
    return is_near(n->losses[0], plain.losses[0]) && is_near(n->losses[1], plain.losses[1])
           && is_near(n->digest, plain.digest) && is_near(n->saved, plain.saved);
}

static void check_same(const program *p, const char *what)
{
    if (!is_plain(&p->out))
        fail_msg("%s %s: losses %.9g %.9g, parameters %.9g, saved %.9g; undisturbed %.9g %.9g,"
                 " %.9g, %.9g", what, reached_text, p->out.losses[0], p->out.losses[1],
                 p->out.digest, p->out.saved, plain.losses[0], plain.losses[1], plain.digest,
                 plain.saved);
}

static void check_left(const char *what)
{
    if (!nothing_left()) fail_msg("%s %s: objects are left", what, reached_text);
    if (wb_memory_used() > base)
        fail_msg("%s %s: %lld bytes are left, undisturbed %lld", what, reached_text,
                 (long long)wb_memory_used(), (long long)base);
}

/* A run in which the n-th call of the driver fails; with `all`, all later calls too.  If the run
 * has no error, its numbers must be right. */
typedef struct { bool reached, failed, torn; } outcome;

static outcome one_call(int64_t n, bool all)
{
    char text[32];
    program p;
    start_anew();
    snprintf(text, sizeof text, "%lld%s", (long long)n, all ? "+" : "");
    setenv(FAIL, text, 1);
    const int e = story(&p, !all);
    look();
    unsetenv(FAIL);
    if (e && !reached) fail_msg("%s: without a reason: %s", text, wb_error());
    if (e && !strstr(wb_error(), TAG)) fail_msg("%s: \"%s\"", reached_text, wb_error());
    if (!e) check_same(&p, text);
    check_left(text);
    return (outcome){reached > 0, e != 0, p.torn};
}

/* A run without failures, whose numbers must be right. */
static void undisturbed(void)
{
    program p;
    if (story(&p, false)) fail_msg("%s: and then: %s", reached_text, wb_error());
    check_same(&p, "and then");
    check_left("and then");
}

/* The stride between the numbers of failing calls with which about this many of all calls fail. */
static int64_t spread(int64_t all, int64_t wanted)
{
#ifdef __SANITIZE_ADDRESS__
    wanted = 30;
#endif
    if (option_count) wanted = option_count;
    else if (getenv("WEBER_TEST_ALL")) wanted = all;
    return WB__MAX(all / WB__MAX(wanted, 1), 1);
}

static int64_t calls_of_story(void)
{
    int64_t low = 1, high = 1 << 14;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (one_call(middle, true).reached) low = middle + 1;
        else high = middle;
    }
    return low + 8;                     /* the number of calls varies a little with the timing */
}

/* A run in which the n-th and all later calls fail, then a run in which only the n-th does and the
 * part that failed is repeated; if that is not possible, a run without failures. */
static void calls_fail(int64_t wanted)
{
    const double began = wb__now();
    const int64_t calls = calls_of_story(), stride = spread(calls, wanted);
    int64_t done = 0, torn = 0;
    for (int64_t n = 1 + draw_int(0, stride - 1); n <= calls; n += stride, done++) {
        one_call(n, true);
        const outcome o = one_call(n, false);
        if (o.failed && !o.torn) fail_msg("%s: %s", reached_text, wb_error());
        if (o.failed) undisturbed();
        torn += o.torn;
    }
    print_message("%lld of %lld calls, %lld of them among the last of a step; %.1f s\n",
                  (long long)done, (long long)calls, (long long)torn, wb__now() - began);
    assert_true(calls > LEAST_CALLS);           /* fewer: the program does not reach the driver */
    assert_true(torn <= done / 4 + 1);
}

static int64_t most_allocations = 200;
static void test_an_allocation_fails(void **state)
{
    const double began = wb__now();
    program p;
    wb__alloc_fail_at(INT64_MAX);
    story(&p, false);
    const int64_t all = wb__alloc_count(), stride = spread(all, most_allocations);
    wb__alloc_fail_at(0);
    int64_t done = 0;
    for (int64_t n = 1 + draw_int(0, stride - 1); n <= all; n += stride, done++) {
        snprintf(reached_text, sizeof reached_text, "allocation %lld of %lld", (long long)n,
                 (long long)all);
        wb__alloc_fail_at(n);
        const int e = story(&p, true);
        wb__alloc_fail_at(0);
        if (e && !p.torn) fail_msg("%s: %s", reached_text, wb_error());
        if (e) undisturbed();
        else check_same(&p, "");
        check_left("");
    }
    print_message("%lld of %lld allocations; %.1f s\n", (long long)done, (long long)all,
                  wb__now() - began);
    assert_true(all > 1000);
}

static int begin(void **state)
{
    program p;
    snprintf(path, sizeof path, "%s", test_file("training-faults.safetensors"));
    wb_set_log(listen, NULL);
    wb_set_threads(1);
    for (int i = 0; i < 2; i++) {       /* the first run fills caches of the process */
        if (story(&p, false)) {
            print_error("%s\n", wb_error());
            return 1;
        }
        if (i && !is_plain(&p.out)) return 1;
        plain = p.out;
        base = wb_memory_used();
    }
    if (plain.digest != plain.saved || !(plain.losses[0] > 0)) return 1;
    return 0;
}

static int end(void **state)
{
    unlink(path);
    return 0;
}

#endif
