/* Step 3: a first network.  Learns "exactly one of two": layers, a loss, a rule, wb_train.
 *
 * Prints:
 *   Chain(
 *   ...
 *   before: ...
 *   after: 0 xor 0 is 0 (1.00), 0 xor 1 is 1 (1.00), 1 xor 0 is 1 (1.00), 1 xor 1 is 0 (1.00)
 */
#include <stdio.h>
#include <weber.h>

static const float inputs[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
static const int32_t answers[4] = {0, 1, 1, 0};

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), wb_onehotbatch(batch.y, 2));
}

static void print_answers(const char *when, wb_layer *model, wb_tensor *x)
{
    wb_tensor *p = wb_softmax(wb_call(model, x));
    printf("%s:", when);
    for (int i = 0; i < 4; i++) {
        int answer = wb_at(p, i, 1) > wb_at(p, i, 0);
        printf("%s %g xor %g is %d (%.2f)", i ? "," : "", inputs[i][0], inputs[i][1], answer,
               wb_at(p, i, answer));
    }
    printf("\n");
}

int main(void)
{
    wb_seed(1);
    wb_layer *model = wb_Chain(wb_Dense(2, 8, wb_tanh), wb_Dense(8, 2));
    wb_show(model);

    wb_tensor *x = wb_from(inputs, WB_F32, 2, (int64_t[]){4, 2});
    wb_tensor *y = wb_from(answers, WB_I32, 1, (int64_t[]){4});
    wb_loader *loader = wb_dataloader(wb_dataset_of(x, y), .batchsize = 4, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 0.05), model);

    print_answers("before", model, x);
    if (wb_train(loss, model, loader, state, .epochs = 300))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    print_answers("after", model, x);
    return 0;
}
