/* Several threads on one device: inference with one model, training while other threads load
 * data and infer, and a trim of the device's cache meanwhile.  Each result equals that of the
 * same work done alone.  Runs on the CPU, on a device whose memory the host cannot address, and
 * on two devices of CUDA or OpenCL if one works here. */
#include "device_numbers.h"

#include "engine/request.h"

#include <pthread.h>

enum { THREADS = 4, TURNS = 25, INPUTS = 6, SIDE = 8, CLASSES = 5, STEPS = 12 };
static const int batch_sizes[INPUTS] = {1, 2, 3, 5, 8, 13};

/* ---- one model, many threads ----------------------------------------------------------------- */

static wb_layer *make_model(void)
{
    wb_seed(4);
    return wb_Chain(wb_Conv(1, 3, {3}, wb_relu), wb_BatchNorm(3), wb_MaxPool({2}), wb_Flatten(),
                    wb_Dense(27, 16, wb_tanh), wb_LayerNorm({16}), wb_Dropout(0.5),
                    wb_Dense(16, CLASSES), wb_softmax);
}

static wb_tensor *images(int which, const wb_device *d)
{
    float x[13 * SIDE * SIDE];
    const int n = batch_sizes[which];
    for (int i = 0; i < n * SIDE * SIDE; i++) x[i] = cosf((float)(i * (which + 2)));
    return wb_to(wb_from(x, WB_F32, 4, (int64_t[]){n, 1, SIDE, SIDE}), d);
}

static int recorded(wb_tensor *const *in, wb_tensor **out, void *model)
{
    out[0] = wb_call(model, in[0]);
    return out[0] ? 1 : -1;
}

/* Writes the model's result for an input to out, by a call or a recording; false: an error. */
static bool infer(wb_layer *m, wb_compiled *c, const wb_device *d, int which, float *out)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = images(which, d), *y = NULL;
    if (x && !c) y = wb_call(m, x);
    if (x && c && wb_call_compiled(c, 1, &x, 1, &y)) y = NULL;
    const bool good =
        y && !wb_copy_out(y, out, (size_t)(batch_sizes[which] * CLASSES) * sizeof *out);
    return !wb_scope_close(s) && good;
}

typedef struct {
    int id;
    const wb_device *d;
    wb_layer *m;
    wb_compiled *compiled;              /* NULL: the model is called */
    float (*want)[13 * CLASSES];
    const char *wrong;                  /* NULL: no error */
    char text[400];
} job;

static void *infer_often(void *given)
{
    job *j = given;
    float out[13 * CLASSES];
    for (int turn = 0; turn < TURNS && !j->wrong; turn++) {
        const int which = (turn + j->id) % INPUTS;
        const size_t bytes = (size_t)(batch_sizes[which] * CLASSES) * sizeof *out;
        if (!infer(j->m, j->compiled, j->d, which, out)) {
            snprintf(j->text, sizeof j->text, "%s", wb_error());
            j->wrong = j->text;
        } else if (memcmp(out, j->want[which], bytes)) {
            j->wrong = "other numbers than alone";
        }
        if (turn % 8 == j->id) wb_device_trim(j->d);
    }
    return NULL;
}

static void answers_alone(wb_layer *m, const wb_device *d, float (*want)[13 * CLASSES])
{
    for (int i = 0; i < INPUTS; i++)
        if (!infer(m, NULL, d, i, want[i])) fail_msg("%s", wb_error());
}

static void start(pthread_t *thread, void *(*f)(void *), void *job)
{
    assert_int_equal(pthread_create(thread, NULL, f, job), 0);
}

static void finish(pthread_t thread, const job *j)
{
    pthread_join(thread, NULL);
    if (j->wrong) fail_msg("%s, thread %d: %s", wb_device_describe(j->d), j->id, j->wrong);
}

TEST(one_model_serves_many_threads)
{
    static float want[INPUTS][13 * CLASSES];
    for (int k = 0; k < n_places; k++)
        for (int known = 0; known < 2; known++) {       /* the plan: built at once; found */
            wb_scope *s = wb_scope_open();
            wb_layer *m = wb_to(make_model(), places[k]);
            pthread_t thread[THREADS];
            job jobs[THREADS];
            answers_alone(m, places[k], want);
            if (!known) wb__cache_clear();
            for (int i = 0; i < THREADS; i++) {
                jobs[i] = (job){.id = i, .d = places[k], .m = m, .want = want};
                start(&thread[i], infer_often, &jobs[i]);
            }
            for (int i = 0; i < THREADS; i++) finish(thread[i], &jobs[i]);
            assert_int_equal(wb_scope_close(s), 0);
        }
}

/* Threads call one compiled function at the same time, and its first calls, which record, too. */
TEST(one_recording_serves_many_threads)
{
    static float want[INPUTS][13 * CLASSES];
    for (int k = 0; k < n_places; k++) IN_SCOPE {
        wb_layer *m = wb_to(make_model(), places[k]);
        wb_compiled *c = wb_compile(recorded, m);
        pthread_t thread[THREADS];
        job jobs[THREADS];
        answers_alone(m, places[k], want);
        for (int i = 0; i < THREADS; i++) {
            jobs[i] = (job){.id = i, .d = places[k], .m = m, .compiled = c, .want = want};
            start(&thread[i], infer_often, &jobs[i]);
        }
        for (int i = 0; i < THREADS; i++) finish(thread[i], &jobs[i]);
    }
}

/* ---- training beside others ------------------------------------------------------------------ */

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), wb_onehotbatch(b.y, CLASSES));
}

static void train(const wb_device *d, double *losses)
{
    static float x[4 * STEPS * 10];
    int32_t y[4 * STEPS];
    wb_scope *s = wb_scope_open();
    wb_seed(8);
    wb_layer *m = wb_to(
        wb_Chain(wb_Dense(10, 12, wb_relu), wb_BatchNorm(12), wb_Dense(12, CLASSES)), d);
    for (size_t i = 0; i < WB__COUNT(x); i++) x[i] = sinf((float)i);
    for (int i = 0; i < 4 * STEPS; i++) y[i] = i % CLASSES;
    wb_dataset *data = wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){4 * STEPS, 10}),
                                     wb_from(y, WB_I32, 1, (int64_t[]){4 * STEPS}));
    wb_loader *l =
        wb_to(wb_dataloader(data, .batchsize = 4, .shuffle = true, .seed = 2), d);
    wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.01), m);
    for (int epoch = 0, i = 0; epoch < 3; epoch++) {
        WB_EACH_BATCH(b, l) {
            wb_tree *g;
            wb_tensor *loss = wb_withgradient(loss_of, m, b, &g);
            if (!loss || wb_update(o, m, g) || wb_eval(loss)) fail_msg("%s", wb_error());
            losses[i++] = wb_item(loss);
        }
        if (wb_loader_status(l)) fail_msg("%s", wb_error());
    }
    assert_int_equal(wb_scope_close(s), 0);
}

/* Whole epochs, moved to the device, of samples whose values are their indices. */
static void *load_often(void *given)
{
    job *j = given;
    wb_scope *s = wb_scope_open();
    wb_loader *l = wb_to(wb_dataloader(numbers(60), .batchsize = 7, .shuffle = true), j->d);
    for (int epoch = 0; epoch < 6 && !j->wrong; epoch++) {
        int64_t sum = 0;
        float x[14];
        int32_t y[7];
        wb_batch b;
        while (wb_loader_next(l, &b)) {
            if (wb_copy_out(b.x, x, (size_t)b.n * 8) || wb_copy_out(b.y, y, (size_t)b.n * 4)) {
                snprintf(j->text, sizeof j->text, "%s", wb_error());
                j->wrong = j->text;
            }
            for (int i = 0; i < b.n; i++) {
                if (x[2 * i] != (float)y[i] || x[2 * i + 1] != (float)y[i] + 0.5f)
                    j->wrong = "an observation that is none";
                sum += y[i];
            }
        }
        if (!j->wrong && (wb_loader_status(l) || sum != 59 * 60 / 2))
            j->wrong = "not all of the data";
    }
    wb_scope_close(s);
    return NULL;
}

TEST(one_trains_while_others_load_and_infer)
{
    static float want[INPUTS][13 * CLASSES];
    for (int k = 0; k < n_places; k++) IN_SCOPE {
        double alone[3 * STEPS], beside[3 * STEPS];
        wb_layer *m = wb_to(make_model(), places[k]);
        pthread_t thread[3];
        job jobs[3];
        answers_alone(m, places[k], want);
        train(places[k], alone);
        for (int i = 0; i < 3; i++) jobs[i] = (job){.id = i, .d = places[k], .m = m, .want = want};
        start(&thread[0], load_often, &jobs[0]);
        start(&thread[1], load_often, &jobs[1]);
        start(&thread[2], infer_often, &jobs[2]);
        train(places[k], beside);
        for (int i = 0; i < 3; i++) finish(thread[i], &jobs[i]);
        assert_memory_equal(alone, beside, sizeof alone);
        assert_true(alone[3 * STEPS - 1] < alone[0]);
    }
}

int main(void)
{
    setenv("WEBER_CPU_DEVICES", "2", 1);
    setenv("POCL_DEVICES", "pthread pthread", 1);
    wb_set_threads(1);                  /* the bits of a sum depend on the number of threads */
    places[n_places++] = wb_device_at("CPU", 1);
    places[n_places++] = far_device();
    const char *const *names = wb_supported_gpu_backends();
    for (int k = 0; names[k] && n_places < 4; k++)
        for (int i = 0; !wb_using(names[k]) && i < wb_devices(names[k]).n && n_places < 4; i++)
            places[n_places++] = wb_device_at(names[k], i);
    if (n_places == 2) printf("without a GPU\n");
    wb_clear_error();
    return run_all_cases();
}
