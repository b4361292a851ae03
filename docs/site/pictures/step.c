/* A training step of a small network: with WEBER_DEBUG=stages,plan its plan is in plan.txt; the
 * trace of a step, in the format of Chrome's tracing, is in step.json.
 *
 *   step FOLDER */
#include <stdio.h>
#include <string.h>
#include <weber.h>

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

static int step(wb_layer *model, wb_opt_state *state, wb_batch batch)
{
    wb_scope *scope = wb_scope_open();
    wb_tree *grads;
    wb_withgradient(loss, model, batch, &grads);
    wb_update(state, model, grads);
    return wb_scope_close(scope);
}

static FILE *file;                     /* NULL: messages are dropped */
static void to_file(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)context;
    if (file) fprintf(file, "%s\n", text);
}

int main(int argc, char **argv)
{
    char path[1024];
    if (argc != 2) return 2;
    wb_set_log(to_file, NULL);
    wb_seed(1);
    wb_layer *mlp = wb_Chain(wb_Dense(64, 32, wb_relu), wb_Dense(32, 10));
    wb_opt_state *state = wb_setup(wb_Descent(0.1), mlp);
    wb_batch batch = wb_batch_of(wb_rand(64, 64), wb_randint(0, 10, 64));
    wb_eval(batch.x, batch.y);
    snprintf(path, sizeof path, "%s/plan.txt", argv[1]);
    file = fopen(path, "w");
    if (!file) return perror(path), 1;
    int failed = step(mlp, state, batch);
    fclose(file);
    file = NULL;

    wb_layer *lenet = wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu, .same = true), wb_MaxPool({2}),
                               wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2}), wb_Flatten(),
                               wb_Dense(400, 120, wb_relu), wb_Dense(120, 84, wb_relu),
                               wb_Dense(84, 10));
    state = wb_setup(wb_Adam(), lenet);
    batch = wb_batch_of(wb_rand(64, 1, 28, 28), wb_randint(0, 10, 64));
    wb_eval(batch.x, batch.y);
    if (wb_profile_begin()) failed = 1;
    for (int i = 0; !failed && i < 20; i++) failed = step(lenet, state, batch);
    snprintf(path, sizeof path, "%s/step.json", argv[1]);
    char *table = wb_profile_end(path);
    if (!table || failed) return fprintf(stderr, "%s\n", wb_error()), 1;
    wb_free_text(table);
    return 0;
}
