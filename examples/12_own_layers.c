/* Step 12: layers of the program's own. An actor-critic for a bandit of ten arms: a struct with two
 * heads is one layer with two outputs, and a residual block is another layer inside it. The model
 * is trained, saved, loaded and shown like any other.
 *
 * Prints:
 *   actor_critic(
 *     body = Chain(
 *       Dense(4 => 16, tanh),               # 80 parameters
 *       residual(
 *         gain = [16] f32,
 *         inner = Dense(16 => 16, tanh),    # 272 parameters
 *       ),
 *     ),
 *     actor = Dense(16 => 10),              # 170 parameters
 *     critic = Dense(16 => 1),              # 17 parameters
 *     temperature = 1,
 *   )                   # Total: 9 arrays, 555 parameters, 2.168 KiB.
 *   the best arm is 7; the actor chooses it with probability 0.99...
 *   the critic expects 1.00...
 *   loaded: the same outputs */
#include <stdio.h>
#include <weber.h>

enum { STATE = 4, ARMS = 10, BATCH = 64, BEST = 7 };

/* y = x + gain · inner(x) */
typedef struct { wb_tensor *gain; wb_layer *inner; } residual;
static wb_tensor *call_residual(const residual *r, wb_tensor *x)
{
    return wb_add(x, wb_mul(r->gain, wb_call(r->inner, x)));
}
WB_LAYER(residual, call_residual, gain, inner)

/* Two outputs: the logarithms of the arms' probabilities, and the expected reward. */
typedef struct { wb_layer *body, *actor, *critic; double temperature; } actor_critic;
static int call_actor_critic(const actor_critic *m, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 1) return -1;
    wb_tensor *h = wb_call(m->body, in[0]);
    out[0] = wb_logsoftmax(wb_div(wb_call(m->actor, h), m->temperature));
    out[1] = wb_call(m->critic, h);
    return out[0] && out[1] ? 2 : -1;
}
WB_LAYER(actor_critic, call_actor_critic, body, actor, critic, temperature)

/* The loss of a batch of states, chosen arms and rewards: the tensors of the batch by name. */
static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    wb_tensor *out[2], *reward = wb_batch_get(batch, "reward");
    if (wb_call_outputs(model, 1, &batch.x, 2, out)) return NULL;
    wb_tensor *value = wb_squeeze(out[1], 1), *advantage = wb_sub(reward, wb_stop_gradient(value));
    wb_tensor *arm = wb_unsqueeze(wb_batch_get(batch, "arm"), 1);
    wb_tensor *chosen = wb_squeeze(wb_take_along(out[0], arm, 1), 1);
    return wb_sub(wb_mse(value, reward), wb_mean(wb_mul(chosen, advantage)));
}

static int failed(void) { return fprintf(stderr, "%s\n", wb_error()), 1; }

int main(void)
{
    wb_seed(1);
    wb_layer *model = wb_layer_of(actor_critic,
        .body = wb_Chain(wb_Dense(STATE, 16, wb_tanh),
                         wb_layer_of(residual, .gain = wb_variable(wb_full(0.1, 16)),
                                     .inner = wb_Dense(16, 16, wb_tanh))),
        .actor = wb_Dense(16, ARMS), .critic = wb_Dense(16, 1), .temperature = 1);
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 0.01), model);
    wb_tensor *states = wb_ones(BATCH, STATE), *out[2];

    for (int step = 0; step < 300; step++) {
        wb_scope *scope = wb_scope_open();
        if (wb_call_outputs(model, 1, &states, 2, out)) return failed();
        wb_tensor *arm = wb_multinomial(wb_exp(out[0]), 1, true);
        arm = wb_squeeze(arm, 1);
        wb_tensor *reward = wb_astype(wb_eq(arm, wb_full_array(BEST, wb_dtype_of(arm), 0, NULL)),
                                      WB_F32);
        if (wb_eval(arm, reward)) return failed();
        wb_tree *grads;
        wb_tree *parts = wb_named_tuple(3, (const char *[]){"state", "arm", "reward"},
                                        (void *[]){states, arm, reward});
        wb_loader *loader = wb_dataloader(wb_dataset_of_tree(parts), BATCH);
        WB_EACH_BATCH(batch, loader) {
            if (!wb_withgradient(loss, model, batch, &grads)) return failed();
            if (wb_update(state, model, grads)) return failed();
        }
        if (wb_loader_status(loader)) return failed();
        if (wb_scope_close(scope)) return failed();
    }
    wb_tensor *one = wb_ones(1, STATE);
    if (wb_call_outputs(model, 1, &one, 2, out)) return failed();
    wb_show(model);
    printf("the best arm is %d; the actor chooses it with probability %.4f\n", BEST,
           wb_item(wb_slice(wb_exp(out[0]), 1, BEST, BEST + 1)));
    printf("the critic expects %.4f\n", wb_item(out[1]));

    wb_tensor *again[2];
    const char *file = "actor_critic.safetensors";
    wb_layer *loaded = wb_save(file, model) ? NULL : wb_load(file);
    if (!loaded || wb_call_outputs(loaded, 1, &one, 2, again)) return failed();
    printf("loaded: %s\n", wb_item(again[1]) == wb_item(out[1]) &&
                               wb_at(again[0], 0, BEST) == wb_at(out[0], 0, BEST)
                           ? "the same outputs" : "others");
    remove(file);
    return 0;
}
