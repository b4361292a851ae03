/* A Wasserstein GAN with gradient penalty learns a ring of eight blobs; the twin of wgan_gp.py.
 *
 *   wgan_gp [FILE]      begins with the weights in FILE, which wgan_gp.py writes */

enum { POINTS = 6400, BATCH = 128, EPOCHS = 40, NOISE = 8, WIDTH = 64, TURNS = 5 };
enum { STEPS = EPOCHS * POINTS / BATCH / TURNS };
#include "history.h"

/* Points [POINTS,2] around eight centres on the unit circle. */
static wb_dataset *ring(void)
{
    wb_tensor *angle = wb_mul(wb_arange(POINTS, WB_F32), 2 * 3.14159265358979 / 8);
    wb_tensor *centre = wb_stack(1, wb_cos(angle), wb_sin(angle));
    return wb_dataset_of(wb_add(centre, wb_mul(wb_randn(POINTS, 2), 0.05)), WB_NONE);
}

static wb_layer *perceptron(int64_t inputs, int64_t outputs)
{
    return wb_Chain(wb_Dense(inputs, WIDTH, wb_leakyrelu), wb_Dense(WIDTH, WIDTH, wb_leakyrelu),
                    wb_Dense(WIDTH, outputs));
}

static wb_tensor *critic_loss(wb_layer *critic, wb_batch batch, void *generator)
{
    wb_tensor *fake = wb_call(generator, wb_randn(batch.n, NOISE));
    wb_tensor *share = wb_rand(batch.n, 1);
    wb_tensor *between = wb_add(fake, wb_mul(share, wb_sub(batch.x, fake)));
    wb_tensor *slope = wb_gradient(wb_sum(wb_call(critic, between)), between);
    wb_tensor *penalty = wb_mean(wb_square(wb_sub(wb_norm(slope, 2, 1), 1)));
    wb_tensor *distance = wb_sub(wb_mean(wb_call(critic, batch.x)), wb_mean(wb_call(critic, fake)));
    return wb_sub(wb_mul(0.1, penalty), distance);
}

static wb_tensor *generator_loss(wb_layer *generator, wb_batch batch, void *critic)
{
    wb_tensor *fake = wb_call(generator, wb_randn(batch.n, NOISE));
    return wb_neg(wb_mean(wb_call(critic, fake)));
}

/* One update of a model, whose loss also depends on another model. */
static wb_tensor *train(wb_loss loss_of, wb_layer *model, wb_opt_state *state, wb_batch batch,
                        wb_layer *other)
{
    wb_tree *gradients;
    wb_tensor *loss = wb_withgradient(loss_of, model, batch, &gradients, other);
    return wb_update(state, model, gradients) ? NULL : loss;
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *critic = perceptron(2, 1), *generator = perceptron(NOISE, 2);
    if (argc > 1 && (wb_load_state(argv[1], critic, .prefix = "critic.") ||
                     wb_load_state(argv[1], generator, .prefix = "generator.")))
        return failed();
    wb_loader *loader = wb_dataloader(ring(), BATCH, .shuffle = true);
    wb_rule *rule = wb_Adam(1e-3, .beta = {0.5, 0.9});
    wb_opt_state *critic_state = wb_setup(rule, critic);
    wb_opt_state *generator_state = wb_setup(rule, generator);

    for (int epoch = 0; epoch < EPOCHS; epoch++)
        WB_EACH_BATCH(batch, loader) {
            wb_tensor *loss = train(critic_loss, critic, critic_state, batch, generator);
            if (!loss) return failed();
            if (batch.index % TURNS < TURNS - 1) continue;
            if (!train(generator_loss, generator, generator_state, batch, critic)) return failed();
            record(&h, wb_item(loss));
        }

    wb_tensor *radius = wb_norm(wb_call(generator, wb_randn(POINTS, NOISE)), 2, 1);
    printf("wgan_gp: loss %.4f -> %.4f, %.2f ms a step\n", h.losses[0], last_losses(&h, 100),
           1e3 * median(&h));
    printf("mean distance from the circle: %.4f\n",
           wb_item(wb_mean(wb_abs(wb_sub(radius, 1)))));
    return wb_error_code() ? failed() : 0;
}
