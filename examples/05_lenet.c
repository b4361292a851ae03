/* Step 5: a convolutional network that reads handwritten digits. LeNet-5 (LeCun et al. 1998, with
 * ReLU and max-pooling) is trained by Adam, with a learning rate that rises and falls, on randomly
 * shifted images. Then: accuracy, the confusion matrix, digits drawn in the terminal, the training
 * curve as SVG, the model saved and loaded, and its accuracy with weights of 8 bits.
 *
 *   05_lenet [--seed N] [--epochs N] [--drawn N] [--out FOLDER]
 *
 * The digits are the first of these that exists:
 *   $WEBER_DATA, a folder with MNIST's files (the 60,000 and the 10,000; or the 10,000 only, of
 *   which the first 8,000 are then for training and the last 2,000 for testing), or with
 *   digits.csv.gz (1,797 of 8x8 pixels), or that file itself;
 *   the cache, $XDG_CACHE_HOME/weber or ~/.cache/weber, with the same files;
 *   digits that this program draws (--drawn N asks for N of them).
 *
 * Tested with: --drawn 2500 --epochs 3
 * Prints:
 *   2500 digits drawn by this program: 2000 to learn from, 500 held out
 *   Chain(
 *   ...
 *   trained in ... s: 3 epochs, 93 steps of 64 images
 *   held out: ... % right (... of 500)
 *   ...
 *   read back from ./lenet.safetensors: all 500 predictions are the same
 *   its Dense with weights of 8 bits: ... % right (... of 500) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, BATCH = 64, SHIFT = 2, PATHS = 1024 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random numbers in [0, 1) for the data, from a counter (splitmix64); wb_seed is for the
 * network. */
static uint64_t chance;
static double random_unit(void)
{
    uint64_t z = chance += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}
static double between(double low, double high) { return low + (high - low) * random_unit(); }

/* ---- drawing digits -------------------------------------------------------------------------- */

/* Strokes in a unit square, y downwards: a line from (a, b) to (c, d), or an arc around (a, b) with
 * radii c and d between two angles, in turns clockwise from the right. */
typedef struct { char kind; float a, b, c, d, from, to; } stroke;
static const stroke shapes[10][4] = {
    {{'a', .50f, .50f, .30f, .45f, 0, 1}},
    {{'l', .35f, .20f, .55f, .05f, 0, 0}, {'l', .55f, .05f, .55f, .95f, 0, 0}},
    {{'a', .50f, .30f, .28f, .25f, .5f, 1.1f}, {'l', .73f, .45f, .22f, .95f, 0, 0},
     {'l', .22f, .95f, .80f, .95f, 0, 0}},
    {{'a', .47f, .28f, .26f, .23f, .55f, 1.25f}, {'a', .47f, .73f, .30f, .23f, .75f, 1.45f}},
    {{'l', .60f, .05f, .20f, .65f, 0, 0}, {'l', .20f, .65f, .85f, .65f, 0, 0},
     {'l', .65f, .35f, .65f, .95f, 0, 0}},
    {{'l', .75f, .06f, .30f, .06f, 0, 0}, {'l', .30f, .06f, .27f, .45f, 0, 0},
     {'a', .48f, .66f, .29f, .28f, .62f, 1.42f}},
    {{'a', .50f, .68f, .27f, .26f, 0, 1}, {'a', .76f, .66f, .53f, .58f, .5f, .72f}},
    {{'l', .20f, .07f, .80f, .07f, 0, 0}, {'l', .80f, .07f, .42f, .95f, 0, 0}},
    {{'a', .50f, .28f, .23f, .22f, 0, 1}, {'a', .50f, .72f, .28f, .24f, 0, 1}},
    {{'a', .48f, .32f, .27f, .26f, 0, 1}, {'a', .22f, .36f, .53f, .58f, 0, .22f}},
};

static void stamp(float *image, double x, double y, double thickness)
{
    for (int r = (int)(y - 3); r <= (int)(y + 3); r++)
        for (int c = (int)(x - 3); c <= (int)(x + 3); c++) {
            if (r < 0 || c < 0 || r >= SIDE || c >= SIDE) continue;
            double ink = 1.3 - hypot(c + 0.5 - x, r + 0.5 - y) / thickness;
            float *pixel = &image[r * SIDE + c];
            *pixel = fmaxf(*pixel, (float)fmin(1, fmax(0, ink)));
        }
}

static void draw(int digit, float *image)
{
    double turn = between(-.25, .25), lean = between(-.2, .2);
    double wide = between(13, 20), tall = between(16, 21);
    double left = 14 + between(-1.5, 1.5), top = 14 + between(-1.5, 1.5);
    double thickness = between(.9, 1.6);
    double wave = between(0, .03), phase = between(0, 6.28);
    memset(image, 0, PIXELS * sizeof *image);
    for (const stroke *s = shapes[digit]; s < shapes[digit] + 4 && s->kind; s++)
        for (int i = 0; i <= 48; i++) {
            double t = i / 48.0, angle = 6.283185 * (s->from + t * (s->to - s->from));
            double x = s->kind == 'l' ? s->a + t * (s->c - s->a) : s->a + s->c * cos(angle);
            double y = s->kind == 'l' ? s->b + t * (s->d - s->b) : s->b + s->d * sin(angle);
            x = (x - .5 + wave * sin(7 * y + phase) + lean * (.5 - y)) * wide;
            y = (y - .5 + wave * sin(9 * x / wide + phase)) * tall;
            stamp(image, left + x * cos(turn) - y * sin(turn),
                  top + x * sin(turn) + y * cos(turn), thickness);
        }
}

/* ---- finding digits -------------------------------------------------------------------------- */

typedef struct {
    wb_dataset *train, *test;       /* x [N,1,28,28] f32 in 0..1, y [N] i32 */
    int epochs;                     /* the number that suits the data */
} digits;

static bool found(char *path, const char *folder, const char *name)
{
    static const char *const endings[] = {".gz", ""};
    for (int i = 0; i < 2; i++) {
        snprintf(path, PATHS, "%s%s%s%s", folder, *name ? "/" : "", name, endings[i]);
        FILE *f = fopen(path, "rb");
        if (f && fgetc(f) != EOF) return fclose(f), true;
        if (f) fclose(f);
    }
    return false;
}

static void print_source(const digits *d, const char *what, const char *where)
{
    long long train = wb_dataset_length(d->train), test = wb_dataset_length(d->test);
    printf("%lld %s%s: %lld to learn from, %lld held out\n", train + test, what, where, train,
           test);
}

/* n grey images of any size, values 0..1, to 28 x 28: enlarged bilinearly to 20 x 20 with a margin
 * of 4. */
static void enlarge(const float *from, int64_t n, int side, float *to)
{
    enum { INNER = 20, MARGIN = (SIDE - INNER) / 2 };
    memset(to, 0, (size_t)n * PIXELS * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < INNER; r++)
            for (int c = 0; c < INNER; c++) {
                double y = fmin(side - 1, fmax(0, (r + .5) * side / INNER - .5));
                double x = fmin(side - 1, fmax(0, (c + .5) * side / INNER - .5));
                int y0 = (int)y, x0 = (int)x, y1 = y0 + (y0 < side - 1), x1 = x0 + (x0 < side - 1);
                const float *p = from + i * side * side;
                const float *upper = p + y0 * side, *lower = p + y1 * side;
                double a = upper[x0] + (x - x0) * (upper[x1] - upper[x0]);
                double b = lower[x0] + (x - x0) * (lower[x1] - lower[x0]);
                to[i * PIXELS + (r + MARGIN) * SIDE + c + MARGIN] =
                    (float)(a + (y - y0) * (b - a));
            }
}

static bool digits_from_csv(const char *path, digits *d)
{
    wb_dataset *all = wb_load_csv(path, .label = -1);
    wb_tensor *x = wb_dataset_x(all);
    int64_t n = wb_dim(x, 0);
    const float *small = wb_data(wb_div(x, wb_scalar(16)));
    float *large = small && wb_dim(x, 1) == 64 ? malloc((size_t)n * PIXELS * sizeof *large) : NULL;
    if (!large) return false;
    enlarge(small, n, 8, large);
    all = wb_dataset_of(wb_from(large, WB_F32, 4, (int64_t[]){n, 1, SIDE, SIDE}),
                        wb_dataset_y(all));
    free(large);
    /* A random fifth is held out. */
    if (wb_splitobs(all, 0.8, &d->train, &d->test, .shuffle = true)) return false;
    d->epochs = 60;
    print_source(d, "real digits of 8x8 pixels from ", path);
    return true;
}

/* Whether digits were found in a folder and read. False with the error set: found, but not
 * readable. */
static bool digits_from(const char *place, digits *d)
{
    char images[PATHS], labels[PATHS], csv[PATHS];
    if (found(images, place, "train-images-idx3-ubyte") &&
        found(labels, place, "train-labels-idx1-ubyte")) {
        d->train = wb_load_idx(images, labels);
        if (!found(images, place, "t10k-images-idx3-ubyte") ||
            !found(labels, place, "t10k-labels-idx1-ubyte"))
            return false;
        d->test = wb_load_idx(images, labels);
        d->epochs = 6;
        if (!d->train || !d->test) return false;
        print_source(d, "MNIST digits from ", place);
        return true;
    }
    if (found(images, place, "t10k-images-idx3-ubyte") &&
        found(labels, place, "t10k-labels-idx1-ubyte")) {
        wb_dataset *all = wb_load_idx(images, labels);
        d->train = wb_subset(all, 0, 8000);
        d->test = wb_subset(all, 8000, 10000);
        d->epochs = 40;
        if (!d->train || !d->test) return false;
        print_source(d, "digits of MNIST's test set alone, from ", place);
        return true;
    }
    if (found(csv, place, "digits.csv")) return digits_from_csv(csv, d);
    return strstr(place, ".csv") && found(csv, place, "") && digits_from_csv(csv, d);
}

static bool digits_drawn(int n, digits *d)
{
    float *x = malloc((size_t)n * PIXELS * sizeof *x);
    int32_t *y = malloc((size_t)n * sizeof *y);
    for (int i = 0; x && y && i < n; i++) {
        y[i] = (int32_t)(10 * random_unit());
        draw(y[i], x + (size_t)i * PIXELS);
    }
    if (!x || !y) return false;
    wb_dataset *all = wb_dataset_of(wb_from(x, WB_F32, 4, (int64_t[]){n, 1, SIDE, SIDE}),
                                    wb_from(y, WB_I32, 1, (int64_t[]){n}));
    free(x);
    free(y);
    if (wb_splitobs(all, 0.8, &d->train, &d->test)) return false;
    d->epochs = 10;
    print_source(d, "digits drawn by this program", "");
    return true;
}

static bool find_digits(int drawn, digits *d)
{
    char cache[PATHS];
    const char *asked = getenv("WEBER_DATA"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (drawn > 0) return digits_drawn(drawn, d);
    if (asked && *asked) {
        if (digits_from(asked, d)) return true;
        if (!wb_error_code())
            fprintf(stderr, "WEBER_DATA=%s: no MNIST files and no digits.csv.gz there\n", asked);
        return false;
    }
    if (base && *base) snprintf(cache, PATHS, "%s/weber", base);
    else snprintf(cache, PATHS, "%s/.cache/weber", home ? home : "");
    return digits_from(cache, d) || (!wb_error_code() && digits_drawn(12000, d));
}

/* ---- the network and its training ------------------------------------------------------------ */

static wb_layer *lenet(void)
{
    return wb_Chain(wb_Conv(1, 6, {5, 5}, wb_relu), wb_MaxPool({2, 2}),
                    wb_Conv(6, 16, {5, 5}, wb_relu), wb_MaxPool({2, 2}), wb_Flatten(),
                    wb_Dense(256, 120, wb_relu), wb_Dense(120, 84, wb_relu), wb_Dense(84, 10));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_logitcrossentropy(wb_call(model, batch.x), wb_onehotbatch(batch.y, 10));
}

/* Collate function of the loader: shifts each image of a batch by up to SHIFT pixels along each
 * axis. */
static int shift(wb_batch *batch, void *ctx)
{
    (void)ctx;
    static float moved[BATCH * PIXELS];
    const float *x = wb_data(batch->x);
    if (!x || batch->n > BATCH) return 1;
    for (int64_t i = 0; i < batch->n; i++) {
        int down = (int)between(-SHIFT, SHIFT + 1), right = (int)between(-SHIFT, SHIFT + 1);
        for (int r = 0; r < SIDE; r++)
            for (int c = 0; c < SIDE; c++) {
                int y = r - down, z = c - right;
                bool inside = y >= 0 && y < SIDE && z >= 0 && z < SIDE;
                moved[i * PIXELS + r * SIDE + c] = inside ? x[i * PIXELS + y * SIDE + z] : 0;
            }
    }
    batch->x = wb_from(moved, WB_F32, 4, (int64_t[]){batch->n, 1, SIDE, SIDE});
    return batch->x ? 0 : 1;
}

/* Rises over the first tenth of the training, then falls along a cosine. `done` is in [0, 1]. */
static double learning_rate(double done)
{
    const double peak = 3e-3;
    if (done < .1) return peak * fmax(.02, done / .1);
    return peak * fmax(.005, .5 * (1 + cos(3.14159265 * (done - .1) / .9)));
}

/* The network's predictions for a dataset. */
typedef struct {
    int64_t n, right;
    double loss;
    float *scores;                  /* [n,10] */
    int32_t *truth, *guess;         /* [n] */
} verdict;

static bool judge(wb_layer *model, wb_dataset *data, verdict *v)
{
    int64_t n = wb_dataset_length(data), at = 0;
    if (!v->scores) {
        v->scores = malloc((size_t)n * 10 * sizeof *v->scores);
        v->truth = malloc((size_t)n * sizeof *v->truth);
        v->guess = malloc((size_t)n * sizeof *v->guess);
    }
    wb_loader *loader = wb_dataloader(data, .batchsize = 500);
    if (!v->scores || !v->truth || !v->guess || !loader) return false;
    v->n = n;
    v->right = 0;
    v->loss = 0;
    WB_EACH_BATCH(b, loader) {
        wb_tensor *scores = wb_call(model, b.x), *guess = wb_onecold(scores);
        wb_tensor *l = wb_logitcrossentropy(scores, wb_onehotbatch(b.y, 10));
        size_t count = (size_t)b.n;
        if (wb_eval(scores, guess, l) ||
            wb_copy_out(scores, v->scores + 10 * at, 10 * count * sizeof(float)) ||
            wb_copy_out(guess, v->guess + at, count * sizeof(int32_t)) ||
            wb_copy_out(b.y, v->truth + at, count * sizeof(int32_t)))
            return false;
        for (int64_t i = at; i < at + b.n; i++) v->right += v->guess[i] == v->truth[i];
        v->loss += wb_item(l) * (double)b.n / (double)n;
        at += b.n;
    }
    return wb_loader_status(loader) == 0;
}

static void forget(verdict *v)
{
    free(v->scores);
    free(v->truth);
    free(v->guess);
}

/* ---- results --------------------------------------------------------------------------------- */

static void print_confusion(const verdict *v)
{
    int table[10][10] = {{0}};
    for (int64_t i = 0; i < v->n; i++) table[v->truth[i]][v->guess[i]]++;
    printf("\nconfusion matrix: a row is a digit, a column what it was taken for\n      ");
    for (int c = 0; c < 10; c++) printf("%5d", c);
    for (int r = 0; r < 10; r++) {
        printf("\n%5d ", r);
        for (int c = 0; c < 10; c++) table[r][c] ? printf("%5d", table[r][c]) : printf("    .");
    }
    printf("\n");
}

static double probability(const verdict *v, int64_t i)
{
    const float *s = v->scores + 10 * i;
    double sum = 0;
    for (int k = 0; k < 10; k++) sum += exp((double)s[k] - (double)s[v->guess[i]]);
    return 1 / sum;
}

/* Draws three digits side by side. Each line of text has two rows of pixels, drawn with
 * half-blocks. */
static void draw_three(const verdict *v, const float *x, const int64_t *which)
{
    enum { CROP = 2, SHOWN = SIDE - 2 * CROP };
    static const char *const blocks[4] = {" ", "\u2580", "\u2584", "\u2588"};
    for (int k = 0; k < 3; k++) {
        int64_t i = which[k];
        char text[40];
        if (v->truth[i] == v->guess[i])
            snprintf(text, sizeof text, "%d, sure to %.3f", v->guess[i], probability(v, i));
        else
            snprintf(text, sizeof text, "a %d, taken for %d (%.2f)", v->truth[i], v->guess[i],
                     probability(v, i));
        printf("%-*s", SHOWN + 2, text);
    }
    printf("\n");
    for (int r = CROP; r < SIDE - CROP; r += 2) {
        for (int k = 0; k < 3; k++) {
            const float *image = x + which[k] * PIXELS;
            for (int c = CROP; c < SIDE - CROP; c++)
                printf("%s", blocks[(image[r * SIDE + c] > .4f) +
                                    2 * (image[(r + 1) * SIDE + c] > .4f)]);
            printf("  ");
        }
        printf("\n");
    }
}

/* Draws six digits: up to three mistakes, then correct ones. */
static void draw_some(const verdict *v, wb_dataset *data)
{
    const float *x = wb_data(wb_dataset_x(data));
    int64_t which[6], n = 0;
    for (int64_t i = 0; i < v->n && n < 3; i++)
        if (v->truth[i] != v->guess[i]) which[n++] = i;
    for (int64_t i = 0; i < v->n && n < 6; i++)
        if (v->truth[i] == v->guess[i]) which[n++] = i;
    printf("\nwhat it made of some of them:\n");
    if (!x || n < 6) return;
    draw_three(v, x, which);
    draw_three(v, x, which + 3);
}

/* ---- main ------------------------------------------------------------------------------------ */

typedef struct { uint64_t seed; int epochs, drawn; const char *out; } settings;

static bool read_settings(int argc, char **argv, settings *s)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && !strcmp(argv[i], "--seed")) s->seed = strtoull(value, NULL, 10);
        else if (value && !strcmp(argv[i], "--epochs")) s->epochs = atoi(value);
        else if (value && !strcmp(argv[i], "--drawn")) s->drawn = atoi(value);
        else if (value && !strcmp(argv[i], "--out")) s->out = value;
        else return false;
    }
    return true;
}

static bool train(wb_layer *model, const digits *d, int epochs, const char *svg)
{
    wb_loader *loader = wb_dataloader(d->train, .batchsize = BATCH, .shuffle = true,
                                      .drop_last = true, .collate = shift);
    wb_opt_state *state = wb_setup(wb_Adam(), model);
    int64_t per_epoch = wb_loader_length(loader), steps = per_epoch * epochs, step = 0;
    double *curve = calloc(4 * (size_t)epochs, sizeof *curve);
    if (!loader || !state || !curve) return free(curve), false;
    double *at = curve, *learned = curve + epochs, *held_out = learned + epochs;
    verdict v = {0};
    bool good = true;

    double begun = seconds();
    wb_progress *bar = wb_progress_of(steps, "training");
    for (int epoch = 0; epoch < epochs && good; epoch++) {
        WB_EACH_BATCH(batch, loader) {
            wb_adjust(state, .eta = learning_rate((double)step++ / (double)steps));
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
            good = wb_update(state, model, gradients) == 0;
            if (!good) break;
            wb_progress_step(bar, "loss", l);
            learned[epoch] += wb_item(l) / (double)per_epoch;
        }
        good = good && wb_loader_status(loader) == 0 && judge(model, d->test, &v);
        at[epoch] = epoch + 1;
        held_out[epoch] = v.loss;
    }
    wb_progress_end(bar);
    forget(&v);
    if (good)
        printf("trained in %.1f s: %d epochs, %lld steps of %d images\n",
               seconds() - begun, epochs, (long long)steps, BATCH);
    wb_series lines[] = {{"learned from", epochs, at, learned}, {"held out", epochs, at, held_out}};
    good = good &&
           wb_save_curves(svg, "LeNet-5 on handwritten digits", "epoch", "loss", 2, lines) == 0;
    free(curve);
    return good;
}

int main(int argc, char **argv)
{
    settings s = {.seed = 1, .out = "."};
    digits d;
    char svg[PATHS], file[PATHS];
    if (!read_settings(argc, argv, &s))
        return fprintf(stderr, "05_lenet [--seed N] [--epochs N] [--drawn N] [--out FOLDER]\n"), 2;
    snprintf(svg, sizeof svg, "%s/lenet.svg", s.out);
    snprintf(file, sizeof file, "%s/lenet.safetensors", s.out);
    wb_seed(s.seed);
    chance = s.seed;
    if (!find_digits(s.drawn, &d)) return complain();

    wb_layer *model = lenet();
    wb_show(model);
    if (!model || !train(model, &d, s.epochs > 0 ? s.epochs : d.epochs, svg)) return complain();

    verdict v = {0}, again = {0};
    if (!judge(model, d.test, &v)) return complain();
    printf("held out: %.2f %% right (%lld of %lld)\n",
           100 * (double)v.right / (double)v.n, (long long)v.right, (long long)v.n);
    print_confusion(&v);
    draw_some(&v, d.test);
    printf("\ntraining curve: %s\n", svg);

    if (wb_save(file, model)) return complain();
    wb_layer *copy = wb_load(file);
    if (!copy || !judge(copy, d.test, &again)) return complain();
    int64_t same = 0;
    for (int64_t i = 0; i < v.n; i++)
        same += memcmp(v.scores + 10 * i, again.scores + 10 * i, 10 * sizeof(float)) == 0;
    if (same == v.n)
        printf("read back from %s: all %lld predictions are the same\n", file, (long long)v.n);
    else
        printf("read back from %s: only %lld of %lld are the same\n", file, (long long)same,
               (long long)v.n);

    wb_layer *small = wb_quantize(copy);
    if (!small || !judge(small, d.test, &again)) return complain();
    printf("its Dense with weights of 8 bits: %.2f %% right (%lld of %lld)\n",
           100 * (double)again.right / (double)again.n, (long long)again.right,
           (long long)again.n);
    forget(&v);
    forget(&again);
    return same == v.n ? 0 : 1;
}
