/* Small problems for tests of mixed precision: models, data, steps, and checks of the state. */
#ifndef OPTIM_MIXED_H
#define OPTIM_MIXED_H

#include "far_device.h"
#include "reference.h"

#include "optim/optim.h"

#include <unistd.h>

static const wb_dtype halves[2] = {WB_BF16, WB_F16};

/* ---- small problems -------------------------------------------------------------------------- */

enum { CLASSES = 4, ROWS = 64 };
typedef struct {
    wb_layer *model;
    wb_opt_state *state;
    wb_tensor *x, *y;
    double loss_factor;
} problem;

static inline wb_layer *mlp(void)
{
    return wb_Chain(wb_Dense(10, 24, wb_relu), wb_LayerNorm({24}), wb_Dense(24, 16, wb_gelu),
                    wb_Dense(16, CLASSES));
}

static inline wb_layer *convnet(void)
{
    return wb_Chain(wb_Conv(1, 6, {3, 3}, wb_relu, .same = true), wb_BatchNorm(6),
                    wb_MaxPool({2, 2}), wb_Conv(6, 8, {3, 3}, wb_relu), wb_Flatten(),
                    wb_Dense(32, CLASSES));
}

/* Random inputs.  The label is the class whose inputs have the largest sum. */
static inline void make(problem *p, bool conv)
{
    float x[ROWS * 64], y[ROWS * CLASSES] = {0};
    const int n = conv ? 64 : 10;
    draw_state = 7;
    for (int i = 0; i < ROWS; i++) {
        float sum[CLASSES] = {0};
        for (int j = 0; j < n; j++) {
            x[i * n + j] = (float)draw_real(-1, 1);
            sum[j % CLASSES] += x[i * n + j];
        }
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (sum[c] > sum[best]) best = c;
        y[i * CLASSES + best] = 1;
    }
    wb_seed(5);
    p->model = conv ? convnet() : mlp();
    p->x = conv ? wb_from(x, WB_F32, 4, (int64_t[]){ROWS, 1, 8, 8})
                : wb_from(x, WB_F32, 2, (int64_t[]){ROWS, 10});
    p->y = wb_from(y, WB_F32, 2, (int64_t[]){ROWS, CLASSES});
    p->loss_factor = 1;
}

static inline wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), b.y);
}

/* A loss for wb_withgradient, scaled as in an explicit loop.  A large loss_factor makes it
 * overflow. */
static inline wb_tensor *scaled_loss(wb_layer *m, wb_batch b, void *ctx)
{
    problem *p = ctx;
    wb_tensor *loss = loss_of(m, b, NULL);
    return loss ? wb_scale_loss(p->state, wb_mul(loss, wb_scalar(p->loss_factor))) : NULL;
}

static inline bool step(problem *p)
{
    wb_tree *g;
    wb_scope *s = wb_scope_open();
    wb_tensor *l = wb_withgradient(scaled_loss, p->model, ((wb_batch){.x = p->x, .y = p->y}), &g,
                                   p);
    bool good = l && !wb_update(p->state, p->model, g);
    return !wb_scope_close(s) && good;
}

static inline double loss_now(problem *p)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *l = loss_of(wb_testmode(p->model), (wb_batch){.x = p->x, .y = p->y}, NULL);
    MADE(l && wb_dtype_of(l) == WB_F32);
    double v = wb_item(l);
    wb_automode(p->model);
    wb_scope_close(s);
    return v;
}

static inline double scale_of(const problem *p) { return wb_item(p->state->scaling[WB__SCALE]); }

static inline wb_tensor *master_of(const wb_opt_state *s, int slot)
{
    return s->slots[slot].moments[s->n_moments - 1];
}

static inline wb_tensor *parameter_of(const problem *p, int slot)
{
    return wb_get(p->model, p->state->slots[slot].path);
}

/* Checks that each parameter is its master rounded to the narrow dtype.  Returns how many elements
 * of the masters rounding changes. */
static inline int64_t check_masters(const problem *p)
{
    int64_t between = 0;
    for (int i = 0; i < p->state->n; i++) {
        array master = values_of(master_of(p->state, i)), x = values_of(parameter_of(p, i));
        assert_int_equal(wb_dtype_of(master_of(p->state, i)), WB_F32);
        assert_int_equal(wb_dtype_of(parameter_of(p, i)), p->state->mixed);
        for (int64_t k = 0; k < x.size; k++) {
            float m = (float)master.at[k];
            float rounded = p->state->mixed == WB_F16 ? wb__f16_to_f32(wb__f32_to_f16(m))
                                                      : wb__bf16_to_f32(wb__f32_to_bf16(m));
            assert_true((float)x.at[k] == rounded);
            between += rounded != m;
        }
    }
    ref_forget();
    return between;
}

/* All parameters and moments in one array. */
static inline array snapshot(const problem *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->state->n; i++)
        n += (p->state->n_moments + 1) * wb_size(parameter_of(p, i));
    array all = ref_new(1, &n);
    double *at = all.at;
    for (int i = 0; i < p->state->n; i++)
        for (int k = 0; k <= p->state->n_moments; k++) {
            array x = values_of(k ? p->state->slots[i].moments[k - 1] : parameter_of(p, i));
            memcpy(at, x.at, (size_t)x.size * sizeof(double));
            at += x.size;
        }
    return all;
}

#endif
