/* A picture of the prices that a network predicts for a table of houses, beside the true ones.
 *
 *   table FOLDER */
#include <stdio.h>
#include <weber.h>

enum { HOUSES = 1200, SIDE = 360, LEFT = 60, TOP = 30 };
static const double most = 800;                             /* thousand */

/* The table of docs/site/guide/table.md. */
static int write_houses(const char *path)
{
    static const char *const districts[] = {"harbour", "north", "old town", "west"};
    static const float factor[] = {1.5f, 0.8f, 1.25f, 1};
    const float *u = wb_data(wb_rand(HOUSES, 6)), *noise = wb_data(wb_randn(HOUSES, 2));
    FILE *f = fopen(path, "w");
    if (!f || !u || !noise) return 1;
    fputs("rooms,size,district,age,price\n", f);
    for (int i = 0; i < HOUSES; i++, u += 6, noise += 2) {
        const int d = (int)(4 * u[0]), rooms = 1 + (int)(6 * u[1]);
        const float size = 15 + 20 * (float)rooms + 6 * noise[0], age = 80 * u[2];
        fprintf(f, "%d,", rooms);
        if (u[3] < 0.04f) fprintf(f, ",");
        else fprintf(f, "%.1f,", (double)size);
        fprintf(f, "%s,%.0f,", u[4] < 0.03f ? "?" : districts[d], (double)age);
        fprintf(f, "%.0f\n", (double)((60000 + 2600 * size) * factor[d] * (1.15f - 0.004f * age) *
                                      (1 + 0.08f * noise[1])));
    }
    return fclose(f);
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}

static double at_x(double price) { return LEFT + SIDE * price / most; }
static double at_y(double price) { return TOP + SIDE - SIDE * price / most; }

static int write_picture(const char *path, const float *guess, const float *truth, int n)
{
    FILE *f = fopen(path, "w");
    if (!f) return wb_fail(WB_ERROR_FILE, "%s cannot be written", path);
    const int width = LEFT + SIDE + 20, height = TOP + SIDE + 50;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", width, height, width);
    for (int tick = 0; tick <= most; tick += 200) {
        fprintf(f, "<path d=\"M%.1f %d V%d M%d %.1f H%d\" stroke=\"#e5e5e5\"/>\n", at_x(tick), TOP,
                TOP + SIDE, LEFT, at_y(tick), LEFT + SIDE);
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" fill=\"#555555\">%d</text>\n", at_x(tick),
                TOP + SIDE + 16, tick);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" fill=\"#555555\" text-anchor=\"end\">%d</text>\n",
                LEFT - 6, at_y(tick) + 4, tick);
    }
    fprintf(f, "<path d=\"M%d %d L%d %d\" stroke=\"#888888\" stroke-dasharray=\"4 3\"/>\n", LEFT,
            TOP + SIDE, LEFT + SIDE, TOP);
    for (int i = 0; i < n; i++) {
        const double x = (double)truth[i] / 1000, y = (double)guess[i] / 1000;
        if (x > 0 && x < most && y > 0 && y < most)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#4c78a8\" "
                       "fill-opacity=\"0.6\"/>\n", at_x(x), at_y(y));
    }
    fprintf(f, "<text x=\"%d\" y=\"18\">Prices of %d houses that were held out</text>\n",
            LEFT + SIDE / 2, n);
    fprintf(f, "<text x=\"%d\" y=\"%d\">true price, thousand</text>\n", LEFT + SIDE / 2,
            TOP + SIDE + 38);
    fprintf(f, "<text transform=\"translate(16 %d) rotate(-90)\">predicted price, thousand</text>\n"
               "</svg>\n", TOP + SIDE / 2);
    return fclose(f) ? wb_fail(WB_ERROR_FILE, "%s cannot be written", path) : 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    char table[1024], picture[1024];
    snprintf(table, sizeof table, "%s/houses.csv", argv[1]);
    snprintf(picture, sizeof picture, "%s/prices.svg", argv[1]);
    wb_seed(1);
    if (write_houses(table)) return 1;
    wb_dataset *all = wb_load_csv(table, .label_name = "price", .label_dtype = WB_F32,
                                  .one_hot = "*", .missing = WB_MISSING_MEDIAN), *train, *test;
    remove(table);
    wb_tensor *x = wb_dataset_x(all), *y = wb_dataset_y(all);
    wb_tensor *mean = wb_mean(y), *deviation = wb_std(y);
    x = wb_div(wb_sub(x, wb_mean(x, .axes = {0})), wb_std(x, .axes = {0}));
    y = wb_div(wb_sub(y, mean), deviation);
    if (wb_splitobs(wb_dataset_of(x, y), 0.8, &train, &test, .shuffle = true))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    wb_layer *model = wb_Chain(wb_Dense(wb_dim(x, 1), 64, wb_relu), wb_Dense(64, 1));
    wb_loader *loader = wb_dataloader(train, 64, .shuffle = true, .seed = 1);
    int failed = wb_train(loss, model, loader, wb_setup(wb_AdamW(5e-3), model), .epochs = 60);
    wb_tensor *guess = wb_call(model, wb_dataset_x(test)), *truth = wb_dataset_y(test);
    guess = wb_add(wb_mul(guess, deviation), mean);
    truth = wb_add(wb_mul(truth, deviation), mean);
    const float *of_guess = wb_data(guess), *of_truth = wb_data(truth);
    if (failed || !of_guess || !of_truth ||
        write_picture(picture, of_guess, of_truth, (int)wb_dataset_length(test)))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    return 0;
}
