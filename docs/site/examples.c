/* Examples of the reference for functions that no program in examples/ uses.  The tests compile and
 * run this file; the reference quotes its statements. */
#include <math.h>
#include <stdio.h>
#include <weber.h>

static void elementwise(void)
{
    wb_tensor *x = wb_linspace(-3, 3, 7, WB_F32), *y = x;
    y = wb_identity(x);
    y = wb_leakyrelu(x);
    y = wb_elu(x);
    y = wb_selu(x);
    y = wb_logsigmoid(x);
    y = wb_softplus(x);
    y = wb_swish(x);
    y = wb_gelu_erf(x);
    y = wb_mish(x);
    y = wb_hardswish(x);
    y = wb_hardshrink(x);
    y = wb_hardtanh(x);
    y = wb_hardsigmoid(x);
    y = wb_softsign(x);
    y = wb_softshrink(x);
    y = wb_tanhshrink(x);
    y = wb_trelu(x);
    y = wb_lisht(x);
    y = wb_logcosh(x);
    y = wb_celu(x);
    y = wb_elu_of(x, 0.5);
    y = wb_nan_to_num(wb_log(x), .neginf = -100);
    wb_tensor *mean = wb_nanmean(wb_log(x)), *sum = wb_nansum(wb_sqrt(x), 0);
    wb_eval(mean, sum, wb_isnan(wb_log(x)));
    y = wb_trelu_of(x, 1.5);
    y = wb_erf(wb_div(x, sqrt(2)));
    y = wb_reciprocal(wb_add(x, 4));
    y = wb_log1p(wb_square(x));
    wb_tensor *outside = wb_or(wb_lt(x, -1), wb_gt(x, 1));
    wb_eval(y, outside);
    wb_tensor *scores = wb_randn(4, 10);
    wb_tensor *normaliser = wb_logsumexp(scores, -1, .keep = true);
    wb_tensor *logs = wb_logsoftmax_over(scores, 0);
    wb_tensor *power = wb_db_to_power(wb_full(-20, 3), 1);
    wb_eval(normaliser, logs, power);
}

static void basics(void)
{
    float numbers[] = {1, 2, 3, 4, 5, 6};
    wb_tensor *x = wb_from(numbers, WB_F32, 2, (int64_t[]){2, 3});
    wb_tensor *y = wb_randn(2, 3), *w = wb_randn(4, 3), *b = wb_zeros(4);
    wb_tensor *sum = wb_add(x, y), *less = wb_sub(x, 1), *twice = wb_mul(x, 2);
    wb_tensor *half = wb_div(x, 2), *cube = wb_pow(x, 3), *logs = wb_log(x);
    wb_tensor *products = wb_matmul(x, wb_transpose(w));
    wb_tensor *scores = wb_linear(x, w, b), *p = wb_softmax(scores);
    wb_tensor *of_columns = wb_sum(x, .axes = {0}), *mean = wb_mean(x, -1, .keep = true);
    wb_tensor *deviation = wb_std(x, 0, .correction = 1), *product = wb_prod(x, 1);
    wb_tensor *length = wb_norm(x, 2, -1), *least = wb_argmin(x, -1), *growth = wb_cumprod(x, 1);
    wb_tensor *bounded = wb_clamp(y, -1, 1), *between = wb_lerp(x, y, 0.25);
    wb_tensor *finite = wb_isfinite(y), *small = wb_le(y, 0), *large = wb_not(small);
    wb_tensor *positive = wb_where(large, y, 0);
    wb_eval(sum, less, twice, half, cube, logs, products, p, of_columns, mean, deviation, product);
    wb_eval(length, least, growth, bounded, between, finite, positive);
    printf("%s, linked with %s\n", wb_describe(x), wb_version());
}

static void activations(void)
{
    wb_tensor *x = wb_randn(2, 4, 3, 3), *y = x;
    y = wb_leakyrelu_of(x, 0.2);
    y = wb_celu_of(x, 2);
    y = wb_softshrink_of(x, 0.1);
    y = wb_rrelu_of(x, 0.1, 0.3);
    y = wb_prelu(x, wb_full(0.25, 4, 1, 1));                        /* a slope for each channel */
    y = wb_glu_over(x, 1);                                          /* [2,2,3,3] */
    wb_eval(y);
}

static void shapes(void)
{
    wb_tensor *x = wb_reshape(wb_arange(24, WB_F32), 2, 3, 4), *parts[4];
    wb_tensor *rows = wb_flatten(x);                                /* [2,12] */
    wb_tensor *turned = wb_permute(x, 2, 0, 1), *last = wb_slice(x, 2, -1, 4);
    wb_tensor *both = wb_concat(1, x, x), *apart = wb_stack(0, x, x);
    wb_tensor *sums = wb_einsum("bij,bkj->bik", x, x);
    if (wb_split(x, 2, 2, parts)) return;                           /* two of [2,3,2] */
    if (wb_split_sizes(x, 2, 2, (int64_t[]){1, 3}, parts)) return;
    int chunks = wb_chunk(x, 1, 2, parts);                          /* [2,2,4] and [2,1,4] */
    int slices = wb_unstack(x, 1, 4, parts);                        /* three of [2,4] */
    wb_tensor *repeated = wb_repeat(x, 0, 2), *tiled = wb_tile(x, 1, 2);
    wb_tensor *lower = wb_tril(wb_ones(3, 3), 0), *upper = wb_triu(wb_ones(3, 3), 1);
    wb_tensor *index = wb_from((int32_t[]){2, 0}, WB_I32, 1, (int64_t[]){2});
    wb_tensor *columns = wb_take_axis(x, index, 2);                 /* [2,3,2] */
    wb_tensor *sorted = wb_sort(x, -1, .descending = true);
    wb_tensor *longer = wb_rpad_constant(rows, 1, 16, -1), *scaled = wb_rescale(rows, 1, 1e-5);
    wb_tensor *places = wb_randint(0, 4, 2, 3, 1), *ones = wb_ones(2, 3, 1);
    wb_tensor *counted = wb_scatter_along(x, places, ones, 2);
    wb_eval(turned, last, both, apart, sums, repeated, tiled, lower, upper, columns, sorted);
    wb_eval(longer, scaled, counted);
    printf("%d chunks, %d slices\n", chunks, slices);
}

static void images_and_sound(void)
{
    wb_tensor *x = wb_rand(1, 4, 8, 8);
    wb_tensor *w = wb_randn(6, 4, 3, 3), *b = wb_zeros(6);
    wb_tensor *y = wb_conv(x, w, b, .pad = {1}, .stride = {2});     /* [1,6,4,4] */
    wb_tensor *means = wb_meanpool(x, .window = {2}), *shuffled = wb_pixel_shuffle(x, 2);
    wb_tensor *larger = wb_upsample(x, .sizes = {16, 16}, .mode = WB_UPSAMPLE_LINEAR);
    wb_tensor *there = wb_rand(1, 5, 5, 2), *sampled = wb_grid_sample(x, there);
    wb_tensor *rotated = wb_imrotate(x, 3.14159 / 6);
    wb_eval(y, means, shuffled, larger, sampled, rotated);
    wb_tensor *window = wb_hamming_window(256, WB_F32);
    wb_tensor *banks = wb_melscale_filterbanks(129, 40, 16000);
    wb_tensor *decibels = wb_power_to_db(wb_rand(40), 1, 80);
    wb_eval(window, banks, decibels);
    wb_tensor *q = wb_randn(2, 5, 16), *k = wb_randn(2, 7, 16);
    wb_tensor *weights = wb_attention_scores(q, k, WB_NONE);        /* [2,5,7] */
    wb_eval(weights);
}

static void algebra(void)
{
    wb_tensor *x = wb_randn(3, 3), *b = wb_ones(3);
    wb_tensor *a = wb_add(wb_matmul(x, wb_transpose(x)), wb_eye(3, WB_F32));
    wb_tensor *y = wb_solve(a, b);                                  /* a·y = b */
    wb_tensor *l = wb_cholesky(a);                                  /* l·lᵀ = a */
    wb_tensor *d = wb_determinant(a);
    wb_eval(y, l, d);
}

static void gradients(void)
{
    wb_tensor *x = wb_randn(3);
    wb_tensor *squares = wb_square(x), *loss = wb_sum(squares);
    wb_layer *model = wb_Dense(3, 1);
    wb_tensor *error = wb_sum(wb_square(wb_call(model, x)));
    wb_tree *pair = wb_tuple(model, x);
    wb_tensor *slope = wb_gradient_tensor(loss, x);
    wb_tree *of_model = wb_gradient_layer(error, model);
    wb_tree *of_pair = wb_gradient_tree(error, pair);
    wb_tensor *jacobian = wb_jacobian(squares, x);
    wb_tensor *along = wb_pushforward(squares, x, wb_ones(3));     /* J·dx */
    wb_eval(along);
    wb_eval(slope, jacobian, wb_get(of_model, "weight"), wb_get(of_pair, "1"));
    wb_object_show(model);
}

WB_INITIALISER(small_uniform, wb_glorot_uniform, 0.1)
WB_INITIALISER(small_normal, wb_glorot_normal, 0.1)
WB_INITIALISER(linear_uniform, wb_kaiming_uniform, 1)
WB_INITIALISER(linear_normal, wb_kaiming_normal, 1)
WB_INITIALISER(half_lecun, wb_lecun_normal, 0.5)
WB_INITIALISER(half_identity, wb_identity_init, 0.5)
WB_INITIALISER(wide_orthogonal, wb_orthogonal, 1.41)

static wb_tensor *halved(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return wb_mul(x, 0.5);
}

static void layers(void)
{
    wb_layer *zeros = wb_Dense(4, 2, .init = wb_init_zeros);
    wb_layer *ones = wb_Dense(4, 2, .init = wb_init_ones);
    wb_layer *normal = wb_Dense(4, 2, .init = wb_init_normal);
    wb_layer *uniform = wb_Dense(4, 2, .init = wb_init_uniform);
    wb_layer *all = wb_Chain(wb_Dense(4, 4, .init = small_uniform),
                             wb_Dense(4, 4, .init = small_normal),
                             wb_Dense(4, 4, .init = linear_uniform),
                             wb_Dense(4, 4, .init = linear_normal),
                             wb_Dense(4, 4, .init = half_lecun),
                             wb_Dense(4, 4, .init = half_identity),
                             wb_Dense(4, 4, .init = wide_orthogonal));
    wb_layer *half = wb_fmap_layer(halved, all, NULL);
    wb_tree *pair = wb_fmap_tree(halved, wb_tuple(zeros, ones), NULL);
    wb_layer *longer = wb_ConvTranspose1d(3, 8, {4}, wb_relu, .stride = {2}, .pad = {1});
    wb_tensor *y = wb_call(longer, wb_randn(2, 3, 16));             /* [2,8,32] */
    wb_tensor *x = wb_randn(2, 4);
    wb_summary(half, x);
    wb_eval(y, wb_call(normal, x), wb_call(uniform, x), wb_get(pair, "0.weight"));
}

static int print_layer(wb_layer *layer, const char *path, void *ctx)
{
    (void)ctx;
    printf("%s has %d layers inside\n", *path ? path : "the model", wb_layer_count(layer));
    return 0;
}

typedef struct { wb_tensor *gain; } scale;
static wb_tensor *call_scale(const scale *s, wb_tensor *x) { return wb_mul(s->gain, x); }
WB_LAYER(scale, call_scale, gain)

static void models(void)
{
    wb_tensor *x = wb_randn(2, 4, 8, 8), *sound = wb_randn(2, 4, 16);
    wb_layer *each = wb_DepthwiseConv(4, 8, {3, 3}, wb_relu, .pad = {1});
    wb_layer *halved = wb_Chain(each, wb_MeanPool({2}));
    wb_layer *short_sound = wb_MaxPool1d({4}), *mean_sound = wb_MeanPool1d({4});
    wb_layer *to_one = wb_AdaptiveMeanPool({1, 1}), *greatest = wb_GlobalMaxPool();
    wb_layer *maxout = wb_Maxout(wb_Dense(4, 3), wb_Dense(4, 3));
    wb_eval(wb_call(halved, x), wb_call(short_sound, sound), wb_call(mean_sound, sound),
            wb_call(to_one, x), wb_call(greatest, x), wb_call(maxout, wb_randn(2, 4)));

    wb_layer *cell = wb_LSTMCell(4, 8);
    wb_tensor *states[2], *outputs[2];
    if (wb_initial_states(cell, 2, 2, states)) return;              /* h and c, for 2 sequences */
    if (wb_cell_step(cell, wb_randn(2, 4), 2, states)) return;
    wb_eval(states[0]);

    int64_t size[WB_MAX_DIMS];
    int ndim = wb_output_size(halved, WB_F32, 4, (int64_t[]){1, 4, 32, 32}, size);
    if (wb_activations(halved, x, 2, outputs)) return;
    if (wb_each_layer(halved, print_layer, NULL)) return;
    printf("%d axes, %d children\n", ndim, wb_child_count(halved));
    if (wb_name_struct(scale)) return;
    int number = 5;
    int *pointer = wb_opaque_get(wb_opaque(&number));
    wb_tensor *q, *scales, *weight = wb_get(cell, "weight_hidden");
    if (wb_quantise_rows(weight, &q, &scales)) return;              /* q i8, a scale for each row */
    printf("%d, %s\n", *pointer, wb_describe(q));
}

static void losses(void)
{
    wb_tensor *yhat = wb_rand(8), *y = wb_astype(wb_gt(wb_rand(8), 0.5), WB_F32), *loss;
    wb_tensor *signs = wb_sub(wb_mul(y, 2), 1), *logits = wb_randn(8);
    loss = wb_mse(yhat, y);
    loss = wb_mae(yhat, y, .agg = WB_SUM);
    loss = wb_msle(yhat, y);
    loss = wb_binarycrossentropy(yhat, y);
    loss = wb_logitbinarycrossentropy(logits, y);
    loss = wb_hinge_loss(logits, signs);
    loss = wb_binary_focal_loss(yhat, y, .gamma = 2);
    loss = wb_siamese_contrastive_loss(yhat, y, .margin = 1);
    loss = wb_dice_coeff_loss(yhat, y);
    loss = wb_tversky_loss(yhat, y, .beta = 0.7);
    wb_tensor *scores = wb_randn(4, 10), *classes = wb_randint(0, 10, 4);
    wb_tensor *rows = wb_onehotbatch(classes, 10);
    loss = wb_logitcrossentropy(scores, classes, .label_smoothing = 0.1);
    loss = wb_crossentropy(wb_softmax(scores), classes);
    loss = wb_focal_loss(wb_softmax(scores), rows);
    wb_tensor *smooth = wb_label_smoothing(rows, 0.1);
    wb_eval(loss, smooth);
    wb_tensor *weights = wb_rand(4), *kept = wb_gt(weights, 0.1);
    loss = wb_logitcrossentropy(scores, classes, .sample_weight = weights, .mask = kept);
    loss = wb_quantile_loss(yhat, y, 0.9);
    wb_tensor *f1 = wb_f1(scores, classes), *auc = wb_roc_auc(logits, y);
    wb_tensor *table = wb_confusion(scores, classes), *iou = wb_iou(scores, classes);
    wb_eval(loss, f1, auc, table, iou);
}

static double halving(double t, void *ctx) { return *(double *)ctx / t; }

static void schedules(void)
{
    static double start = 0.1;
    wb_schedule *all[16];
    int n = 0;
    all[n++] = wb_Poly(0.1, 2, 1000);
    all[n++] = wb_Inv(0.1, 0.01, 1);
    all[n++] = wb_TriangleDecay2(0, 0.1, 100);
    all[n++] = wb_TriangleExp(0, 0.1, 100, 0.999);
    all[n++] = wb_Sin(0, 0.1, 100);
    all[n++] = wb_SinDecay2(0, 0.1, 100);
    all[n++] = wb_SinExp(0, 0.1, 100, 0.999);
    all[n++] = wb_OneCycle(1000, 0.1);
    wb_schedule *warm = wb_Warmup(0, 0.1, 100), *decay = wb_CosAnneal(0.1, 0, 900);
    all[n++] = wb_Sequence({warm, 100}, {decay, 900});
    all[n++] = wb_Loop(decay, 500);
    all[n++] = wb_Interpolator(wb_Exp(0.1, 0.9), 25);               /* 25 batches an epoch */
    all[n++] = wb_Shortened(decay, 500);
    all[n++] = wb_schedule_from_function(halving, &start);
    for (int i = 0; i < n; i++) printf("%g ", wb_schedule_at(all[i], 1));
    printf("\n");
}

static void data(void)
{
    wb_dataset *all = wb_dataset_of(wb_rand(20, 3), wb_zeros(20)), *train, *validation;
    if (wb_kfolds(all, 5, 0, &train, &validation)) return;          /* 16 and 4 observations */
    if (wb_leavepout(all, 2, 0, &train, &validation)) return;       /* 18 and 2 */
    if (wb_timeseries_kfolds(all, 3, 0, &train, &validation)) return;
}

static void tables(void)
{
    FILE *f = fopen("colours.csv", "w");
    if (!f) return;
    fputs("size,colour,kind\n1,red,b\n2,blue,a\n", f);
    fclose(f);
    wb_columns *columns;
    wb_dataset *d = wb_load_csv("colours.csv", .label_name = "kind", .one_hot = "*",
                                .columns = &columns);
    int64_t classes = wb_columns_words(columns, NULL);
    for (int64_t k = 0; k < classes; k++)
        printf("class %lld is %s\n", (long long)k, wb_columns_word(columns, NULL, k));
    for (int64_t k = 0; k < wb_columns_count(columns); k++)
        printf("column %lld of x: %s\n", (long long)k, wb_columns_name(columns, k));
    if (wb_columns_save("colours.columns", columns)) return;
    wb_dataset *again = wb_load_csv("colours.csv", .like = wb_columns_load("colours.columns"));
    printf("%lld rows, %s\n", (long long)wb_dataset_length(d), wb_describe(wb_dataset_x(again)));
    remove("colours.csv");
    remove("colours.columns");
}

static void words(void)
{
    FILE *f = fopen("vocab.txt", "w");
    if (!f) return;
    fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n", f);
    fclose(f);
    wb_tokenizer *tokens = wb_load_tokenizer("vocab.txt");
    if (!tokens && wb_error_code() == WB_ERROR_UNSUPPORTED) return wb_clear_error();
    int64_t rows = wb_vocabulary_size(tokens);                      /* of a table of embeddings */
    const char *fifth = wb_token_text(tokens, 4);
    printf("%d, %s\n", (int)rows, fifth ? fifth : wb_error());
}

static void profile(void)
{
    if (wb_profile_begin()) return;
    wb_item(wb_sum(wb_randn(1000)));
    char *table = wb_profile_end(NULL);
    if (table) printf("%s\n", table);
    wb_free_text(table);
}

static void training(void)
{
    wb_tensor *margins = wb_randn(8), *signs = wb_sign(wb_randn(8));
    wb_tensor *loss = wb_squared_hinge_loss(margins, signs);
    wb_eval(loss);
    wb_layer *model = wb_Dense(4, 2);
    wb_layer *average = wb_average_of(model);
    wb_opt_state *state = wb_setup(wb_Adam(1e-3), model);
    double eta, last = 0;
    if (wb_set_schedule(state, "", wb_Exp(0.1, 0.999))) return;     /* of all parameters */
    if (wb_rule_number(state, "", "eta", &eta)) return;
    if (wb_average(average, model, 0.99)) return;                   /* after wb_update */
    if (wb_copy(model, average)) return;                            /* same values */
    if (wb_throttle(&last, 10)) printf("at most once in 10 s: %g\n", eta);
    double scores[] = {1, 0.5, 0.6, 0.7, 0.7};
    wb_watch worse = {.wait = 2}, stop = {.wait = 2}, flat = {.wait = 1, .min_dist = 1e-6};
    for (int i = 0; i < 5; i++) {
        if (wb_patience(&worse, i && scores[i] > scores[i - 1])) printf("worse twice: %d\n", i);
        if (wb_early_stopping(&stop, scores[i])) printf("no better for two epochs: %d\n", i);
        if (wb_plateau(&flat, scores[i])) printf("unchanged: %d\n", i);
    }
    wb_logger *log = wb_logger_open("runs/1");
    for (int i = 0; i < 5; i++) wb_log_scalar(log, "score", scores[i], i);
    if (wb_logger_close(log)) return;                               /* a file cannot be written */
}

static void devices(void)
{
    for (const char *const *name = wb_supported_devices(); *name; name++) printf("%s\n", *name);
    wb_batch batch = wb_batch_of(wb_rand(8, 4), wb_zeros(8));
    wb_batch there = wb_batch_to(batch, wb_get_device(), NULL);
    wb_batch on_gpu = wb_batch_gpu(there, NULL);
    wb_batch back = wb_batch_cpu(on_gpu);
    const wb_device *device = wb_device_of(back.x);
    printf("%s\n", wb_device_describe(device));
    wb_show_devices("CPU");
    printf("%d, %s\n", wb_device_ordinal(device), wb_device_name(device));
    if (wb_loaded("CPU")) printf("always\n");
    printf("products are %s\n", wb_matmul_precision());
    bool same_bits = wb_deterministic();
    if (wb_distributed_synchronise(wb_Dense(2, 2), .root = 0)) return;  /* rank 0's values */
    printf("%d, rank %d of this machine\n", same_bits, wb_distributed_local_rank());
}

int main(void)
{
    wb_seed(1);
    basics();
    elementwise();
    activations();
    shapes();
    images_and_sound();
    algebra();
    gradients();
    layers();
    models();
    losses();
    schedules();
    data();
    tables();
    words();
    profile();
    training();
    devices();
    if (wb_error_code()) return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
