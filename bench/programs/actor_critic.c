/* An actor with noisy weights and a critic learn to balance poles; the twin of actor_critic.py.
 *
 *   actor_critic [FILE]      begins with the weights in FILE, which actor_critic.py writes */
#include <math.h>

enum { POLES = 16, MOVES = 32, STEPS = 300, WIDTH = 64 };
#include "history.h"
static const float GAMMA = 0.99f, LAMBDA = 0.95f;

/* ---- poles on carts -------------------------------------------------------------------------- */

typedef struct {
    float place, speed, angle, spin;
} state;

typedef struct {
    state now[POLES];
    int age[POLES], begun;
} cart_poles;

static void begin(cart_poles *c, int i)
{
    float start[4];
    for (int k = 0; k < 4; k++) start[k] = (float)(0.05 * sin(37 * (4 * c->begun + k)));
    c->now[i] = (state){start[0], start[1], start[2], start[3]};
    c->age[i] = 0;
    c->begun++;
}

/* Moves pole i. Whether it goes on: one that falls, or is up for 500 moves, begins again. */
static bool move(cart_poles *c, int i, int action)
{
    state *s = &c->now[i];
    float cosine = cosf(s->angle), sine = sinf(s->angle);
    float push = ((action ? 10 : -10) + 0.05f * s->spin * s->spin * sine) / 1.1f;
    float turn = (9.8f * sine - cosine * push) / (2 / 3.0f - 0.05f * cosine * cosine / 1.1f);
    s->place += 0.02f * s->speed;
    s->speed += 0.02f * (push - 0.05f * turn * cosine / 1.1f);
    s->angle += 0.02f * s->spin;
    s->spin += 0.02f * turn;
    if (fabsf(s->place) <= 2.4f && fabsf(s->angle) <= 0.2095f && ++c->age[i] < 500) return true;
    begin(c, i);
    return false;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* A linear layer whose weights have noise of a size that it learns. */
typedef struct {
    wb_tensor *weight, *bias, *weight_size, *bias_size, *noise_in, *noise_out;
} noisy_linear;

static wb_tensor *call_noisy(const noisy_linear *l, wb_tensor *x)
{
    wb_tensor *noise = wb_mul(wb_unsqueeze(l->noise_out, 1), l->noise_in);
    return wb_linear(x, wb_add(l->weight, wb_mul(l->weight_size, noise)),
                     wb_add(l->bias, wb_mul(l->bias_size, l->noise_out)));
}
WB_LAYER(noisy_linear, call_noisy, weight, bias, weight_size, bias_size, noise_in, noise_out)

static wb_layer *new_noisy(int64_t in, int64_t out)
{
    double bound = 1 / sqrt((double)in);
    return wb_layer_of(noisy_linear,
                       .weight = wb_variable(wb_mul(wb_sub(wb_rand(out, in), 0.5), 2 * bound)),
                       .bias = wb_variable(wb_mul(wb_sub(wb_rand(out), 0.5), 2 * bound)),
                       .weight_size = wb_variable(wb_full(0.5 * bound, out, in)),
                       .bias_size = wb_variable(wb_full(0.5 * bound, out)),
                       .noise_in = wb_zeros(in), .noise_out = wb_zeros(out));
}

static int draw(wb_tensor *noise)
{
    wb_tensor *z = wb_randn(wb_dim(noise, 0));
    return wb_assign(noise, wb_mul(wb_sign(z), wb_sqrt(wb_abs(z))));
}

typedef struct {
    wb_layer *body, *actor, *critic;
} agent;

/* States to logarithms of the actions' probabilities, and values. */
static int call_agent(const agent *a, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1) return -1;
    wb_tensor *h = wb_call(a->body, in[0]);
    out[0] = wb_logsoftmax(wb_call(a->actor, h));
    out[1] = wb_squeeze(wb_call(a->critic, h), -1);
    return out[0] && out[1] ? 2 : -1;
}
WB_LAYER(agent, call_agent, body, actor, critic)

/* ---- playing and learning -------------------------------------------------------------------- */

typedef struct {
    state states[MOVES][POLES];
    int32_t actions[MOVES][POLES];
    float values[MOVES + 1][POLES], advantages[MOVES][POLES], returns[MOVES][POLES];
    bool alive[MOVES][POLES];
    int ended;
} moves;

/* The agent chooses actions in the states of the poles; `actions` may be NULL. */
static int act(wb_layer *model, const cart_poles *c, int32_t *actions, float *values)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *x = wb_from(c->now, WB_F32, 2, (int64_t[]){POLES, 4}), *out[2];
    if (wb_call_outputs(model, 1, &x, 2, out)) return 1;
    wb_tensor *chosen = wb_multinomial(wb_exp(out[0]), 1, true);
    if (wb_eval(chosen, out[1]) || wb_copy_out(out[1], values, POLES * sizeof *values)) return 1;
    if (actions && wb_copy_out(chosen, actions, POLES * sizeof *actions)) return 1;
    return wb_scope_close(scope);
}

static int play(wb_layer *model, cart_poles *c, moves *m)
{
    m->ended = 0;
    for (int t = 0; t < MOVES; t++) {
        for (int i = 0; i < POLES; i++) m->states[t][i] = c->now[i];
        if (act(model, c, m->actions[t], m->values[t])) return 1;
        for (int i = 0; i < POLES; i++) {
            m->alive[t][i] = move(c, i, m->actions[t][i]);
            m->ended += !m->alive[t][i];
        }
    }
    if (act(model, c, NULL, m->values[MOVES])) return 1;
    for (int i = 0; i < POLES; i++) {
        float advantage = 0;
        for (int t = MOVES - 1; t >= 0; t--) {
            float ahead = m->alive[t][i] ? GAMMA : 0;
            float surprise = 1 + ahead * m->values[t + 1][i] - m->values[t][i];
            advantage = surprise + LAMBDA * ahead * advantage;
            m->advantages[t][i] = advantage;
            m->returns[t][i] = advantage + m->values[t][i];
        }
    }
    return 0;
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *out[2];
    if (wb_call_outputs(model, 1, &batch.x, 2, out)) return NULL;
    wb_tensor *chosen = wb_squeeze(wb_take_along(out[0], wb_unsqueeze(batch.y, 1), 1), 1);
    wb_tensor *advantages = wb_normalize(batch.more[0], 1, 0), *returns = batch.more[1];
    wb_tensor *negative_entropy = wb_mean(wb_sum(wb_mul(wb_exp(out[0]), out[0]), 1));
    wb_tensor *actor = wb_mean(wb_mul(chosen, advantages));
    wb_tensor *rest = wb_add(wb_mse(out[1], returns), negative_entropy);
    return wb_sub(wb_mul(rest, 0.01), actor);
}

int main(int argc, char **argv)
{
    static cart_poles poles;
    static moves m;
    static history h;
    double first = 0, last = 0;
    wb_set_threads(2);
    wb_seed(1);
    for (int i = 0; i < POLES; i++) begin(&poles, i);
    wb_layer *model = wb_layer_of(
        agent, .body = wb_Chain(wb_Dense(4, WIDTH, wb_tanh), wb_Dense(WIDTH, WIDTH, wb_tanh)),
        .actor = new_noisy(WIDTH, 2), .critic = wb_Dense(WIDTH, 1));
    wb_opt_state *adam =
        wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Adam(3e-3)), model);
    if (argc > 1 && wb_load_state(argv[1], model)) return failed();

    const int64_t dims[] = {MOVES * POLES, 4};
    for (int update = 0; update < STEPS; update++) {
        wb_scope *scope = wb_scope_open();
        if (draw(wb_get(model, "actor.noise_in")) || draw(wb_get(model, "actor.noise_out")) ||
            play(model, &poles, &m))
            return failed();
        wb_batch batch = wb_batch_of(wb_from(m.states, WB_F32, 2, dims),
                                     wb_from(m.actions, WB_I32, 1, dims));
        batch.more[0] = wb_from(m.advantages, WB_F32, 1, dims);
        batch.more[1] = wb_from(m.returns, WB_F32, 1, dims);
        wb_tree *gradients;
        wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
        if (wb_update(adam, model, gradients)) return failed();
        record(&h, wb_item(l));
        if (wb_scope_close(scope)) return failed();
        double length = (double)(MOVES * POLES) / (m.ended ? m.ended : 1);
        if (update < 50) first += length / 50;
        if (update >= STEPS - 50) last += length / 50;
    }

    printf("actor_critic: loss %.4f, moves of a pole %.0f -> %.0f, %.2f ms a step\n",
           h.losses[STEPS - 1], first, last, 1e3 * median(&h));
    return 0;
}
