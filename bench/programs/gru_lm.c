/* A GRU learns to continue a text of letters; the twin of gru_lm.py.
 *
 * The state is carried from each window of the text to the next one; gradients stay in a window.
 *
 *   gru_lm [FILE]    begins with the weights in FILE, which gru_lm.py writes */

enum { LETTERS = 31, STREAMS = 16, WINDOW = 32, WINDOWS = 20, WIDTH = 192, EPOCHS = 8 };
enum { STEPS = EPOCHS * WINDOWS, TEXT = STREAMS * WINDOWS * WINDOW + 1 };
#include "history.h"

/* Batch k has window k of each stream, and as labels the letters that follow. */
static wb_dataset *windows(void)
{
    static int32_t letters[TEXT] = {1, 2};
    int64_t seed = 1;
    for (int i = 2; i < TEXT; i++) {
        seed = (seed * 1103515245 + 12345) % (1LL << 31);
        int chance = (int)(seed / 65536 % 3);
        letters[i] = (11 * letters[i - 1] + letters[i - 2] % 3 + chance) % LETTERS;
    }
    wb_tensor *field[2];
    for (int k = 0; k < 2; k++) {
        wb_tensor *x = wb_from(letters + k, WB_I32, 3, (int64_t[]){STREAMS, WINDOWS, WINDOW});
        field[k] = wb_reshape(wb_permute(x, 1, 0, 2), -1, WINDOW);
    }
    return wb_dataset_of(field[0], field[1]);
}

typedef struct {
    wb_layer *embed, *gru, *head;
} language_model;

/* Letters and state to scores and state. */
static int call(const language_model *m, int n, wb_tensor *const *in, wb_tensor **out)
{
    if (n != 2) return -1;
    wb_tensor *x[] = {wb_call(m->embed, in[0]), in[1]};
    if (wb_call_outputs(m->gru, 2, x, 2, out)) return -1;
    out[0] = wb_call(m->head, out[0]);
    return out[0] ? 2 : -1;
}
WB_LAYER(language_model, call, embed, gru, head)

typedef struct {
    history past;
    wb_tensor *state;
} training;

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    training *t = ctx;
    wb_tensor *zeros = wb_zeros(2, STREAMS, WIDTH), *out[2];
    wb_tensor *in[] = {batch.x, batch.index == 0 ? zeros : t->state};
    if (wb_call_outputs(model, 2, in, 2, out) || wb_assign(t->state, out[1])) return NULL;
    return wb_logitcrossentropy(out[0], batch.y);
}

int main(int argc, char **argv)
{
    static training t;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = wb_layer_of(language_model, .embed = wb_Embedding(LETTERS, WIDTH),
                                  .gru = wb_GRU(WIDTH, WIDTH, .layers = 2, .hidden_bias = true,
                                                .return_state = true),
                                  .head = wb_Dense(WIDTH, LETTERS));
    wb_opt_state *state = wb_setup(wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_AdamW(2e-3)),
                                   model);
    wb_loader *loader = wb_dataloader(windows(), STREAMS);
    t.state = wb_variable(wb_zeros(2, STREAMS, WIDTH));
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &t))
        return failed();
    printf("gru_lm: loss %.4f -> %.4f, %.2f ms a step\n", t.past.losses[0],
           t.past.losses[STEPS - 1], 1e3 * median(&t.past));
    return 0;
}
