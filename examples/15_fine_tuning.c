/* Step 15: a model of others is fitted to a small set of data. An encoder, a transformer over the
 * patches of an image, learns the digits 0 to 4 from many images, and is saved. Then the file
 * alone is the start: the encoder, which has never seen the digits 5 to 9, must recognise them
 * after 5 images of each. Compared are
 *   - the same network from random weights;
 *   - a new head on the frozen encoder;
 *   - the head and the encoder's last block;
 *   - the head and low-rank adapters of all layers of the encoder, whose file is small;
 *   - the latter with the adapters merged into the weights, and with weights of 8 bits.
 *
 *   15_fine_tuning FOLDER [--seed N] [--epochs N] [--steps N]
 *
 * The folder has MNIST's t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz, of which the last
 * 2,000 are for testing.
 *
 * Tested with: {shared}/mnist-t10k
 * Prints:
 *   digits 0 to 4: 4103 images; held out 9... % right
 *   encoder.safetensors: 71_296 parameters, 286 KiB
 *   digits 5 to 9: 25 images, 5 of each; 964 are held out
 *   from random weights     71_621 trained   ... % right
 *   head alone                 325 trained   ... % right
 *   head and last block     33_797 trained   7... % right
 *   head and adapters        8_265 trained   7... % right
 *   adapters.safetensors: 37 KiB; loaded onto the encoder again: the same predictions
 *   merged                                   7... % right
 *   8 bits                                   7... % right, 101 KiB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weber.h>

enum { SIDE = 28, PATCH = 7, GRID = SIDE / PATCH, PATCHES = GRID * GRID, WIDTH = 64 };
enum { CLASSES = 5, EACH = 5, BATCH = 64, SMALL_BATCH = 25 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

/* ---- the network ----------------------------------------------------------------------------- */

/* [N,1,28,28] to the patches [N,16,49]. */
static wb_tensor *patches(wb_tensor *x)
{
    wb_tensor *y = wb_reshape(x, -1, GRID, PATCH, GRID, PATCH);
    return y ? wb_reshape(wb_permute(y, 0, 1, 3, 2, 4), -1, PATCHES, PATCH * PATCH) : NULL;
}

static wb_tensor *places(wb_tensor *x) { return x ? wb_arange(PATCHES, WB_I32) : NULL; }
static wb_tensor *mean_of_patches(wb_tensor *x) { return x ? wb_mean(x, 1) : NULL; }

static wb_layer *block(void)
{
    wb_layer *attend = wb_Chain(wb_LayerNorm({WIDTH}),
                                wb_MultiHeadAttention(WIDTH, 4, .bias = true));
    wb_layer *perceptron = wb_Chain(wb_LayerNorm({WIDTH}), wb_Dense(WIDTH, 2 * WIDTH, wb_gelu),
                                    wb_Dense(2 * WIDTH, WIDTH));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(perceptron, wb_add));
}

static wb_layer *new_encoder(void)
{
    wb_layer *words = wb_Dense(PATCH * PATCH, WIDTH);
    wb_layer *where = wb_Chain(wb_function_layer("places", places), wb_Embedding(PATCHES, WIDTH));
    return wb_Chain(wb_function_layer("patches", patches),
                    wb_Parallel(wb_add, words, where), block(), block(), wb_LayerNorm({WIDTH}),
                    wb_function_layer("mean_of_patches", mean_of_patches));
}

/* The encoder is "layers.0", the head "layers.1". */
static wb_layer *with_head(wb_layer *encoder)
{
    return wb_Chain(encoder, wb_Dense(WIDTH, CLASSES));
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Which digits: `ctx` is the first of five. */
static int is_among(wb_batch observation, void *ctx)
{
    const int digit = (int)wb_item(observation.y), first = *(int *)ctx;
    return digit >= first && digit < first + CLASSES;
}

/* The first EACH images of each of the five digits from `first` on. */
static wb_dataset *few(wb_dataset *all, int first)
{
    int64_t chosen[CLASSES * EACH];
    int n = 0, count[CLASSES] = {0};
    wb_tensor *y = wb_dataset_y(all);
    const int64_t length = wb_dataset_length(all);
    for (int64_t i = 0; i < length && n < CLASSES * EACH; i++) {
        const int class = (int)wb_at(y, i) - first;
        if (class < 0 || class >= CLASSES || count[class] == EACH) continue;
        count[class]++;
        chosen[n++] = i;
    }
    return wb_obsview(all, n, chosen);
}

/* ---- training -------------------------------------------------------------------------------- */

static wb_tensor *classes(wb_tensor *digits, int first)
{
    return wb_sub(wb_astype(digits, WB_I32), wb_scalar_int(first));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *first)
{
    return wb_logitcrossentropy(wb_call(model, batch.x), classes(batch.y, *(int *)first));
}

/* The percentage of digits that the model recognises; negative on failure. */
static double right(wb_layer *model, wb_dataset *data, int first)
{
    double sum = 0;
    wb_loader *batches = wb_dataloader(data, .batchsize = 250);
    WB_EACH_BATCH(b, batches) {
        wb_tensor *guess = wb_argmax(wb_call(model, b.x), 1);
        wb_tensor *same = wb_eq(wb_astype(guess, WB_I32), classes(b.y, first));
        sum += wb_item(wb_sum(wb_astype(same, WB_F32)));
    }
    return wb_loader_status(batches) || wb_error_code()
               ? -1 : 100 * sum / (double)wb_dataset_length(data);
}

static void with_commas(char *text, size_t bytes, int64_t n)
{
    if (n < 1000) snprintf(text, bytes, "%lld", (long long)n);
    else snprintf(text, bytes, "%lld_%03lld", (long long)n / 1000, (long long)n % 1000);
}

static double kibibytes(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    const double bytes = fseek(f, 0, SEEK_END) ? -1024 : (double)ftell(f);
    fclose(f);
    return bytes / 1024;
}

typedef struct { wb_dataset *few, *test; int first, epochs; } task;

/* Trains the parameters that are not frozen, and prints what came of it. */
static bool fit(const char *what, wb_layer *model, const task *t, const char *frozen,
                const char *thawed)
{
    char count[32];
    int first = t->first;
    int64_t trained = wb_parameter_count(model);
    wb_loader *loader = wb_dataloader(t->few, .batchsize = SMALL_BATCH, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_AdamW(2e-3, .lambda = 0.01), model);
    if (frozen) {
        trained -= wb_parameter_count(wb_layer_at(model, frozen));
        if (wb_freeze(state, frozen)) return false;
    }
    if (thawed) {
        trained += wb_parameter_count(wb_layer_at(model, thawed));
        if (wb_thaw(state, thawed)) return false;
    }
    if (wb_train(loss, model, loader, state, t->epochs, .ctx = &first)) return false;
    const double share = right(model, t->test, first);
    with_commas(count, sizeof count, trained);
    printf("%-22s %7s trained   %.1f %% right\n", what, count, share);
    return share >= 0;
}

/* Trains an encoder on the digits 0 to 4, and saves it without its head. */
static bool make_encoder(wb_dataset *many, wb_dataset *test, int epochs, const char *path)
{
    int first = 0;
    char count[32];
    wb_layer *encoder = new_encoder(), *model = with_head(encoder);
    wb_loader *loader = wb_dataloader(many, .batchsize = BATCH, .shuffle = true);
    wb_opt_state *state = wb_setup(wb_AdamW(2e-3, .lambda = 0.01), model);
    if (wb_train(loss, model, loader, state, epochs, .ctx = &first)) return false;
    printf("digits 0 to 4: %lld images; held out %.1f %% right\n",
           (long long)wb_dataset_length(many), right(model, test, first));
    if (wb_save(path, wb_layer_at(model, "layers.0"))) return false;
    with_commas(count, sizeof count, wb_parameter_count(wb_layer_at(model, "layers.0")));
    printf("%s: %s parameters, %.0f KiB\n", path, count, kibibytes(path));
    return true;
}

/* The head and adapters: their file, the merged model, and that with weights of 8 bits. */
static bool adapt(const task *t, const char *encoder)
{
    const char *file = "adapters.safetensors", *small = "small.safetensors";
    wb_layer *model = wb_add_lora(with_head(wb_load(encoder)), "layers.0", .rank = 4, .alpha = 8,
                                  .train = "layers.1");
    if (!model || !fit("head and adapters", model, t, NULL, NULL) || wb_save_lora(file, model))
        return false;
    wb_layer *again = wb_load_lora(file, with_head(wb_load(encoder)));
    wb_tensor *x = wb_dataset_x(wb_subset(t->test, 0, 200));
    wb_tensor *apart = wb_max(wb_abs(wb_sub(wb_call(model, x), wb_call(again, x))));
    if (!apart) return false;
    printf("%s: %.0f KiB; loaded onto the encoder again: %s predictions\n", file, kibibytes(file),
           wb_item(apart) == 0 ? "the same" : "other");
    wb_layer *merged = wb_merge_lora(model), *quantised = wb_quantize(merged);
    if (!quantised || wb_save(small, quantised)) return false;
    printf("%-22s                   %.1f %% right\n", "merged", right(merged, t->test, t->first));
    printf("%-22s                   %.1f %% right, %.0f KiB\n", "8 bits",
           right(quantised, t->test, t->first), kibibytes(small));
    return true;
}

static bool run(const char *folder, int epochs, int steps)
{
    char images[1024], labels[1024];
    const char *file = "encoder.safetensors";
    int low = 0, high = 5;
    snprintf(images, sizeof images, "%s/t10k-images-idx3-ubyte.gz", folder);
    snprintf(labels, sizeof labels, "%s/t10k-labels-idx1-ubyte.gz", folder);
    wb_dataset *all = wb_load_idx(images, labels);
    wb_dataset *many = wb_subset(all, 0, 8000), *rest = wb_subset(all, 8000, 10000);
    wb_dataset *seen = wb_filterobs(many, is_among, &low);
    if (!make_encoder(seen, wb_filterobs(rest, is_among, &low), epochs, file)) return false;
    const task t = {few(many, high), wb_filterobs(rest, is_among, &high), high, steps};
    if (!t.few || !t.test) return false;
    printf("digits 5 to 9: %lld images, %d of each; %lld are held out\n",
           (long long)wb_dataset_length(t.few), EACH, (long long)wb_dataset_length(t.test));
    return fit("from random weights", with_head(new_encoder()), &t, NULL, NULL) &&
           fit("head alone", with_head(wb_load(file)), &t, "layers.0", NULL) &&
           fit("head and last block", with_head(wb_load(file)), &t, "layers.0",
               "layers.0.layers.3") &&
           adapt(&t, file);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    int epochs = 12, steps = 60;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--epochs")) epochs = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--steps")) steps = atoi(argv[i + 1]);
        else argc = 0;
    }
    if (argc < 2 || argc % 2) {
        fprintf(stderr, "usage: %s FOLDER [--seed N] [--epochs N] [--steps N]\n", argv[0]);
        return 2;
    }
    wb_seed(seed);
    return run(argv[1], epochs, steps) ? 0 : complain();
}
