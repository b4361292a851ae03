/* Pictures at positions and signals in time: numbers of PyTorch 2.15; for rotations, mel filters
 * and decibels those of the published formulas in Python, and examples of NNlib's manual; gradients
 * against differences. */
#include "literal.h"

static const double mixed[18] = {5, 2, 9, 0.5, 1, 7, 3, 8, 6, 4, 2.5, 10, -1, 2, 3, -4, 1, 2};
static const double counts[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const double places[12] = {-1, -1, 0.25, 0.5, 1.5, -0.75, -0.375, 0.875, 0.125, -1.75,
                                   0.75, 1};
static const double inner[12] = {-0.875, -0.8125, 0.25, 0.5, 0.5, -0.75,
                                 -0.375, 0.875, 0.125, -0.25, 0.75, 0.6875};
/* Positions outside of a picture of 2 x 3 pixels, and inside.  None is a whole pixel. */
static const double outer[12] = {-1.625, -0.25, 0.25, 1.5, 1.75, -0.5,
                                 -0.375, 0.25, 0.625, -1.5, 1.25, 0.75};
static const double wave[14] = {1, 2, -1, 0.5, 3, 1, 1, -1, 2, 2, 0, 1, 0.5, -2};
static const double powers[4] = {0, 0.125, 0.5, 20};

static wb_tensor *made(wb_tensor *like, const double *v, int ndim, const int64_t *dims)
{
    float f[18];
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= dims[i];
    for (int64_t i = 0; i < n; i++) f[i] = (float)v[i];
    return wb_astype(wb_from(f, WB_F32, ndim, dims), wb_dtype_of(like));
}
#define MADE_OF(v, ...) \
    made(x, v, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define GRID MADE_OF(places, 1, 2, 3, 2)
#define PICTURES MADE_OF(mixed, 1, 2, 2, 3)
#define HANN wb_hann_window(4, wb_dtype_of(x))

CASE(bilinear, wb_grid_sample(x, GRID))
CASE(nearest, wb_grid_sample(x, GRID, .nearest = true))
CASE(border, wb_grid_sample(x, GRID, .border = true))
CASE(edges, wb_grid_sample(x, GRID, .align_corners = false))
CASE(edges_nearest, wb_grid_sample(x, GRID, .align_corners = false, .nearest = true))
CASE(edges_border, wb_grid_sample(x, GRID, .align_corners = false, .border = true))
CASE(edges_both, wb_grid_sample(x, GRID, .align_corners = false, .border = true, .nearest = true))
CASE(positions, wb_grid_sample(PICTURES, x))
CASE(positions_edges, wb_grid_sample(PICTURES, wb_mul(x, 0.5), .align_corners = false))
CASE(beyond, wb_grid_sample(PICTURES, x))
CASE(beyond_border, wb_grid_sample(PICTURES, x, .border = true))
CASE(rotated, wb_imrotate(x, 0.4))
CASE(rotated_point, wb_imrotate(x, -1, .row = 0.5, .column = 1.25))
CASE(rotated_nearest, wb_imrotate(x, 0.4, .nearest = true))
CASE(quarter, wb_imrotate(x, 1.5707963267948966, .column = 1))
CASE(half_turn, wb_imrotate(x, (float)3.14159265358979, .row = 1, .column = 1.5))
CASE(manual, wb_imrotate(x, 0.78539816339744831))
CASE(manual_nearest, wb_imrotate(x, 0.78539816339744831, .nearest = true))
CASE(transform, wb_stft(x, .n_fft = 5, .hop_length = 2, .window = HANN, .normalized = true))
CASE(plain, wb_stft(x, .n_fft = 4, .hop_length = 2, .window = HANN, .center = false))
CASE(power, wb_spectrogram(x, .n_fft = 5, .hop_length = 2, .window = HANN))
CASE(magnitude, wb_spectrogram(x, .n_fft = 5, .hop_length = 2, .window = HANN, .power = 1))
CASE(scaled, wb_spectrogram(x, .n_fft = 5, .hop_length = 2, .window = HANN, .power = 1.5,
                            .window_normalized = true))
CASE(padded, wb_spectrogram(x, .n_fft = 5, .hop_length = 2, .window = HANN, .pad = 2))
CASE(complex, wb_spectrogram(x, .n_fft = 4, .hop_length = 2, .window = HANN, .center = false,
                             .power = 0))
CASE(inverse, wb_istft(x, .n_fft = 4, .hop_length = 1, .window = wb_add(HANN, 0.5)))
CASE(inverse_length, wb_istft(x, .n_fft = 5, .hop_length = 2, .normalized = true, .length = 5,
                              .window = wb_hamming_window(5, wb_dtype_of(x))))
CASE(decibels, wb_power_to_db(x, 2, 60))
CASE(of_decibels, wb_db_to_power(wb_power_to_db(x, 2, 90), 2))

static const double corner[9] = {0, 0, 0, 1};

static const literal rows[] = {
    {"bilinear", bilinear, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 2.8125, 4.375, 0.95703125, 1.796875, 5.5, 3, 5.15625, 3.25, 3.25390625, 4.84375,
      8.125)},
    {"nearest", nearest, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 1, 9, 1, 2, 7, 3, 2.5, 6, 2.5, 8, 10)},
    {"border", border, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 2.8125, 8.75, 0.95703125, 2.875, 5.5, 3, 5.15625, 6.5, 3.25390625, 7.75, 8.125)},
    {"edges", edges, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(1.25, 3.25, 0, 0.44921875, 0, 3.0625, 0.75, 5.3125, 0, 2.08984375, 0, 4.375)},
    {"edges_nearest", edges_nearest, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 1, 0, 0.5, 0, 0, 3, 2.5, 0, 4, 0, 0)},
    {"edges_border", edges_border, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 3.25, 9, 0.71875, 3.3125, 7, 3, 5.3125, 6, 3.34375, 7.625, 10)},
    {"edges_both", edges_both, mixed, {1, 2, 2, 3}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(5, 1, 9, 0.5, 2, 7, 3, 2.5, 6, 4, 8, 10)},
    {"positions", positions, inner, {1, 2, 3, 2}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(4.244140625, 2.8125, 5.3125, 0.95703125, 2.453125, 5.7734375, 3.642578125, 5.15625,
      6.90625, 3.25390625, 6.1328125, 7.87109375)},
    {"positions_edges", positions_edges, inner, {1, 2, 3, 2}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(3.65966796875, 2.421875, 4.453125, 0.9833984375, 2.24609375, 4.619140625, 4.60302734375,
      4.8359375, 7.0078125, 3.1513671875, 6.083984375, 6.7431640625)},
    {"beyond", beyond, outer, {1, 2, 3, 2}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(1.2421875, 1.875, 2.125, 1.6796875, 4.78125, 5.4375, 1.265625, 3.28125, 1.75, 4.2109375,
      5.0625, 7.125)},
    {"beyond_border", beyond_border, outer, {1, 2, 3, 2}, SMOOTH | FLOATS, {1, 2, 2, 3},
     VALUES(3.3125, 2.5, 8.5, 1.6796875, 6.375, 7.25, 3.375, 4.375, 7, 4.2109375, 6.75, 9.5)},
    {"rotated", rotated, counts, {1, 1, 3, 4}, SMOOTH | FLOATS, {1, 1, 3, 4},
     VALUES(0, 0, 3.7051743663, 0, 2.04253127353, 4.52126563676, 7, 9.47873436324, 0, 7.81609127047,
      10.2948256337, 0)},
    {"rotated_point", rotated_point, counts, {1, 1, 3, 4}, SMOOTH | FLOATS, {1, 1, 3, 4},
     VALUES(6.28063693756, 3.4550553042, 0, 0, 9.28331714584, 6.45773551248, 3.63215387912, 0, 0,
      9.46041572076, 6.6348340874, 0)},
    {"rotated_nearest", rotated_nearest, counts, {1, 1, 3, 4}, SMOOTH | FLOATS, {1, 1, 3, 4},
     VALUES(0, 2, 3, 4, 1, 6, 7, 8, 5, 10, 11, 12)},
    {"quarter", quarter, counts, {1, 1, 3, 4}, SMOOTH | FLOATS, {1, 1, 3, 4},
     VALUES(3, 7, 11, 0, 2, 6, 10, 0, 1, 5, 9, 0)},
    {"half_turn", half_turn, counts, {1, 1, 3, 4}, SMOOTH | FLOATS, {1, 1, 3, 4},
     VALUES(12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)},
    {"manual", manual, corner, {1, 1, 3, 3}, FLOATS, {1, 1, 3, 3},
     VALUES(0, 0, 0, 0.207106781187, 0, 0, 0, 0.207106781187, 0)},
    {"manual_nearest", manual_nearest, corner, {1, 1, 3, 3}, FLOATS, {1, 1, 3, 3},
     VALUES(0, 0, 0, 0, 0, 0, 1, 0, 0)},
    {"transform", transform, wave, {7}, SMOOTH | FLOATS, {4, 3, 2},
     VALUES(1.3416407865, 0, -0.585410196625, -0.425325404176, -0.085410196625, -0.26286555606,
      0.111803398875, 0, 0.409549150281, -0.0967434591016, -0.465450849719, -0.79452231128,
      1.67705098312, 0, -1.23176274578, -0.763495241193, 0.393237254219, 0.997597121425,
      0.894427191, 0, -0.47360679775, -0.344095480118, 0.02639320225, 0.0812299240582)},
    {"plain", plain, wave, {2, 7}, SMOOTH | FLOATS, {2, 2, 3, 2},
     VALUES(0.25, 0, 1, -0.75, -2.25, 0, 3.75, 0, -3, 0.25, 2.25, 0, 3, 0, -2, -1, 1, 0, 1.25, 0,
      -1, 0.25, 0.75, 0)},
    {"power", power, wave, {2, 7}, SMOOTH | FLOATS, {2, 4, 3},
     VALUES(9, 2.61803398875, 0.38196601125, 0.0625, 0.885449016875, 4.23955098312, 14.0625,
      10.5008222261, 5.74917777391, 4, 1.71352549156, 0.0364745084376, 1, 0.14589803375,
      6.85410196625, 9, 6.2360679775, 1.7639320225, 1.5625, 1.21700849719, 0.657991502813, 2.25,
      3.40583888695, 5.78166111305)},
    {"magnitude", magnitude, wave, {2, 7}, SMOOTH | FLOATS, {2, 4, 3},
     VALUES(3, 1.61803398875, 0.61803398875, 0.25, 0.940983005625, 2.05901699437, 3.75,
      3.24049721896, 2.39774430953, 2, 1.30901699437, 0.190983005625, 1, 0.38196601125,
      2.61803398875, 3, 2.49721204096, 1.3281310261, 1.25, 1.10318108087, 0.811166754011, 1.5,
      1.84549150281, 2.40450849719)},
    {"scaled", scaled, wave, {2, 7}, SMOOTH | FLOATS, {2, 4, 3},
     VALUES(3.83365862548, 1.51849377569, 0.358467754473, 0.0922234933084, 0.673448245431,
      2.17982411312, 5.35770080569, 4.30376981562, 2.73927642066, 2.0867794401, 1.10496744529,
      0.061577725239, 0.737787946467, 0.174168108346, 3.12531989421, 3.83365862548, 2.91148586642,
      1.12925738419, 1.0310900008, 0.854873320622, 0.53900993437, 1.35540300541, 1.84969290446,
      2.75087609878)},
    {"padded", padded, wave, {2, 7}, SMOOTH | FLOATS, {2, 6, 3},
     VALUES(0, 0, 0, 4, 2.61803398875, 0.38196601125, 0.0625, 0.885449016875, 4.23955098312,
      14.0625, 10.5008222261, 5.74917777391, 2.25, 1.55901699437, 0.440983005625, 0, 0, 0, 0, 0, 0,
      0, 1.38196601125, 3.61803398875, 9, 6.2360679775, 1.7639320225, 1.5625, 1.21700849719,
      0.657991502813, 3.0625, 3.75348300563, 4.87151699437, 0, 0, 0)},
    {"complex", complex, wave, {2, 7}, SMOOTH | FLOATS, {2, 2, 3, 2},
     VALUES(0.25, 0, 1, -0.75, -2.25, 0, 3.75, 0, -3, 0.25, 2.25, 0, 3, 0, -2, -1, 1, 0, 1.25, 0,
      -1, 0.25, 0.75, 0)},
    {"inverse", inverse, mixed, {3, 3, 2}, SMOOTH | FLOATS, {2}, VALUES(-1.60714285714,
      0.0735294117647)},
    {"inverse_length", inverse_length, mixed, {3, 3, 2}, SMOOTH | FLOATS, {5},
     VALUES(2.6939127389, -11.9274811802, 7.23392987017, -7.21770736, 5.30475107032)},
    {"decibels", decibels, powers, {4}, SMOOTH | FLOATS, {4},
     VALUES(-50, -12.0411998266, -6.02059991328, 10)},
    {"of_decibels", of_decibels, powers + 1, {3}, SMOOTH | FLOATS, {3}, VALUES(0.125, 0.5, 20)},
};

TEST(values) { literal_values(rows, sizeof rows / sizeof *rows); }
TEST(gradients) { literal_gradients(rows, sizeof rows / sizeof *rows); }

static void equal(wb_tensor *x, int n, const double *want)
{
    MADE(x);
    assert_int_equal(wb_size(x), n);
    const array got = values_of(x);
    for (int i = 0; i < n; i++)
        if (!(fabs(got.at[i] - want[i]) <= 1e-5)) fail_msg("%d: %g, not %g", i, got.at[i], want[i]);
}
#define EQUAL(x, ...) \
    equal((x), sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

TEST_IN_SCOPE(windows_and_filters)
{
    EQUAL(wb_hann_window(5, WB_F32), 0, 0.345491502813, 0.904508497187, 0.904508497187,
          0.345491502813);
    EQUAL(wb_hann_window(5, WB_F32, .symmetric = true), 0, 0.5, 1, 0.5, 0);
    EQUAL(wb_hamming_window(4, WB_F32), 0.08, 0.54, 1, 0.54);
    EQUAL(wb_hamming_window(4, WB_F32, .symmetric = true, .alpha = 0.6, .beta = 0.3), 0.3, 0.75,
          0.75, 0.3);
    EQUAL(wb_hann_window(1, WB_F32, .symmetric = true), 1);
    EQUAL(wb_melscale_filterbanks(9, 3, 16000), 0, 0.665639620613, 0, 0, 0, 0, 0, 0, 0, 0,
          0.334360379387, 0.892782382815, 0.431050381314, 0, 0, 0, 0, 0, 0, 0, 0.107217617185,
          0.568949618686, 0.983659212353, 0.737744409264, 0.491829606176, 0.245914803088, 0);
    EQUAL(wb_melscale_filterbanks(6, 2, 8001, .fmin = 100, .fmax = 3000), 0, 0.811780222581, 0, 0,
          0, 0, 0, 0.188219777419, 0.9464194714, 0.405608344886, 0, 0);
    ref_forget();
}

/* Signals of some length come back, also where many frames overlap, and long ones without loss. */
TEST_IN_SCOPE(there_and_back)
{
    wb_tensor *x = wb_randn(2, 3, 1000), *y;
    MADE(y = wb_stft(x, .n_fft = 64, .window = wb_hann_window(50, WB_F32)));
    assert_true(wb_ndim(y) == 5 && wb_dim(y, 2) == 63 && wb_dim(y, 3) == 33);
    MADE(y = wb_istft(y, .n_fft = 64, .window = wb_hann_window(50, WB_F32), .length = 1000));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(y, x)))) < 1e-5);
    /* a tone has all its power at its frequency: 16² */
    wb_tensor *tone = wb_cos(wb_mul(wb_arange(256, WB_F32), 2 * 3.14159265358979 * 4 / 32));
    MADE(y = wb_spectrogram(tone, .n_fft = 32, .center = false));
    assert_true(fabs(wb_at(y, 7, 4) - 256) < 1e-2 && wb_at(y, 7, 5) < 1e-2);
    /* a turn of a whole picture is none */
    wb_tensor *p = wb_rand(1, 2, 5, 6);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_imrotate(p, 2 * 3.14159265358979), p)))) == 0);
    /* positions that are no number */
    wb_tensor *nan = wb_full(NAN, 1, 1, 1, 2);
    assert_true(isnan(wb_at(wb_grid_sample(p, nan), 0, 1, 0, 0)));
    assert_true(wb_at(wb_grid_sample(p, nan, .nearest = true), 0, 1, 0, 0) == 0);
}

/* ---- transforms in two steps ----------------------------------------------------------------- */

static const double turn = 2 * 3.14159265358979323846;

/* The formula of wb_stft in double, without padding: x [L], w [n], y [T, F, 2]. */
static void plain_stft(int64_t n, int64_t hop, int64_t frames, const float *x, const float *w,
                       double by, double *y)
{
    for (int64_t t = 0; t < frames; t++)
        for (int64_t f = 0; f <= n / 2; f++) {
            double sum[2] = {0};
            for (int64_t k = 0; k < n; k++) {
                const double angle = turn * (double)(f * k % n) / (double)n;
                sum[0] += by * w[k] * x[t * hop + k] * cos(angle);
                sum[1] -= by * w[k] * x[t * hop + k] * sin(angle);
            }
            memcpy(y + (t * (n / 2 + 1) + f) * 2, sum, sizeof sum);
        }
}

/* The formula of wb_istft in double, without padding: y [T, F, 2], x [(T - 1) hop + n]. */
static void plain_istft(int64_t n, int64_t hop, int64_t frames, const float *y, const float *w,
                        double by, double *x)
{
    const int64_t all = (frames - 1) * hop + n;
    for (int64_t i = 0; i < all; i++) {
        double sum = 0, squares = 0;
        for (int64_t t = 0; t < frames; t++) {
            const int64_t k = i - t * hop;
            if (k < 0 || k >= n) continue;
            const float *at = y + t * (n / 2 + 1) * 2;
            for (int64_t f = 0; f <= n / 2; f++) {
                const double angle = turn * (double)(f * k % n) / (double)n;
                const double twice = f && 2 * f != n ? 2 : 1;
                sum += by * twice * w[k] * (at[2 * f] * cos(angle) - at[2 * f + 1] * sin(angle));
            }
            squares += w[k] * w[k];
        }
        x[i] = sum / (squares > 1e-11 ? squares : 1);
    }
}

static void near(wb_tensor *y, const double *want, int64_t n, double within)
{
    if (!y) fail_msg("%s", wb_error());
    assert_int_equal(wb_size(y), n);
    float *got = malloc((size_t)n * sizeof *got);
    WORKS(wb_copy_out(y, got, (size_t)n * sizeof *got));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= within))
            fail_msg("%s [%d] is %g, not %g", wb_describe(y), (int)i, got[i], want[i]);
    free(got);
}

/* `linear` is linear in x: its sum over c is the product of x and its gradient. */
static void has_gradient(wb_tensor *linear, wb_tensor *x)
{
    wb_tensor *c = wb_cos(wb_arange(wb_size(linear), WB_F32));
    wb_tensor *sum = wb_sum(wb_mul(wb_reshape(linear, -1), c));
    wb_tensor *g = wb_gradient(sum, x);
    MADE(g);
    const double want = wb_item(sum), got = wb_item(wb_sum(wb_mul(g, x)));
    if (!(fabs(got - want) <= 1e-4 * fmax(1, fabs(want)))) fail_msg("%g, not %g", got, want);
}

/* n with even and odd factors and without factors; frames of slices of a signal, of slices with
 * steps and of single elements. */
TEST_IN_SCOPE(two_steps)
{
    static const int64_t sizes[][3] = {{256, 64, 4}, {300, 90, 3}, {315, 105, 3}, {315, 8, 3},
                                       {330, 165, 2}, {202, 50, 2}, {289, 34, 2}, {304, 76, 1}};
    wb_seed(4);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i][0], hop = sizes[i][1], frames = sizes[i][2];
        const int64_t all = (frames - 1) * hop + n, size = frames * (n / 2 + 1) * 2;
        const bool normalized = i % 2;
        double *want = malloc((size_t)(size + all) * 2 * sizeof *want);
        wb_tensor *x = wb_randn(2, all + hop - 1), *w = wb_add(wb_hann_window(n, WB_F32), 0.1);
        const float *at = wb_data(wb_cpu(x)), *of_w = wb_data(wb_cpu(w));
        for (int64_t b = 0; b < 2; b++)
            plain_stft(n, hop, frames, at + b * (all + hop - 1), of_w,
                       normalized ? 1 / sqrt((double)n) : 1, want + b * size);
        wb_tensor *y = wb_stft(x, .n_fft = n, .hop_length = hop, .window = w, .center = false,
                               .normalized = normalized);
        near(y, want, 2 * size, 2e-5 * sqrt((double)n));
        assert_int_equal(wb_dim(y, 1), frames);
        for (int64_t k = 0; k < size; k++)
            want[k] = want[2 * k] * want[2 * k] + want[2 * k + 1] * want[2 * k + 1];
        wb_tensor *p = wb_spectrogram(x, .n_fft = n, .hop_length = hop, .window = w,
                                      .center = false, .normalized = normalized);
        near(p, want, size, 2e-5 * (double)n);
        has_gradient(y, x);
        has_gradient(y, w);

        wb_tensor *z = wb_randn(2, frames, n / 2 + 1, 2);
        at = wb_data(wb_cpu(z));
        for (int64_t b = 0; b < 2; b++)
            plain_istft(n, hop, frames, at + b * size, of_w,
                        normalized ? 1 / sqrt((double)n) : 1 / (double)n, want + b * all);
        y = wb_istft(z, .n_fft = n, .hop_length = hop, .window = w, .center = false,
                     .normalized = normalized);
        near(y, want, 2 * all, 1e-4);
        has_gradient(y, z);
        free(want);
    }
    wb_tensor *x = wb_randn(1000), *v = wb_randn(1000), *y;
    MADE(y = wb_istft(wb_stft(x, .n_fft = 256), .n_fft = 256, .length = 1000));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(y, x)))) < 1e-5);
    /* a derivative of squares */
    wb_tensor *g = wb_gradient(wb_mean(wb_spectrogram(x, .n_fft = 256)), x);
    const double slope = wb_item(wb_sum(wb_mul(g, v)));
    const double above = wb_item(wb_mean(wb_spectrogram(wb_add(x, v), .n_fft = 256)));
    const double below = wb_item(wb_mean(wb_spectrogram(wb_sub(x, v), .n_fft = 256)));
    assert_true(fabs(slope - (above - below) / 2) < 1e-3 * fmax(1, fabs(above)));
    MADE(y = wb_stft(wb_astype(x, WB_F16), .n_fft = 256));
    assert_int_equal(wb_dtype_of(y), WB_F16);
    wb_tensor *wide = wb_stft(wb_astype(wb_astype(x, WB_F16), WB_F32), .n_fft = 256);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_astype(y, WB_F32), wide)))) < 0.05);
}

TEST_IN_SCOPE(wrong_uses)
{
    wb_tensor *x = wb_ones(1, 1, 2, 2), *grid = wb_zeros(1, 3, 3, 2), *w = wb_ones(8);
    REFUSED(wb_grid_sample(x, wb_zeros(2, 3, 3, 2)), WB_ERROR_SHAPE, "grid_sample", "[1,1,2,2] f32",
            "[2,3,3,2] f32");
    REFUSED(wb_grid_sample(wb_ones(2, 2), grid), WB_ERROR_SHAPE, "grid_sample", "[2,2] f32");
    REFUSED(wb_grid_sample(x, wb_astype(grid, WB_F16)), WB_ERROR_DTYPE, "grid_sample", "f16");
    REFUSED(wb_grid_sample(x, grid, .row = 1), WB_ERROR_ARGUMENT, "grid_sample", ".row");
    REFUSED(wb_imrotate(x, 1, .border = true), WB_ERROR_ARGUMENT, "imrotate", ".border");
    REFUSED(wb_imrotate(x, NAN), WB_ERROR_ARGUMENT, "imrotate", "nan");
    REFUSED(wb_stft(w, .n_fft = 32), WB_ERROR_SHAPE, "stft", "[8] f32", "32");
    REFUSED(wb_stft(w, .n_fft = 0), WB_ERROR_ARGUMENT, "stft", ".n_fft");
    REFUSED(wb_stft(w, .n_fft = 4, .window = w), WB_ERROR_SHAPE, "stft", "[8] f32");
    REFUSED(wb_stft(w, .n_fft = 4, .length = 8), WB_ERROR_ARGUMENT, "stft", ".length");
    REFUSED(wb_stft(w, .n_fft = 4, .power = 1), WB_ERROR_ARGUMENT, "stft", ".power");
    REFUSED(wb_spectrogram(w, .n_fft = 4, .power = -1), WB_ERROR_ARGUMENT, "spectrogram", "-1");
    REFUSED(wb_istft(wb_ones(3, 4, 2), .n_fft = 4), WB_ERROR_SHAPE, "istft", "[3,4,2] f32", "4");
    REFUSED(wb_istft(wb_ones(3, 3, 2), .n_fft = 4, .length = 9), WB_ERROR_SHAPE, "istft", "9");
    REFUSED(wb_hann_window(0, WB_F32), WB_ERROR_ARGUMENT, "hann_window", "0");
    REFUSED(wb_hann_window(4, WB_I32), WB_ERROR_DTYPE, "hann_window", "i32");
    REFUSED(wb_hann_window(4, WB_F32, .alpha = 1), WB_ERROR_ARGUMENT, "hann_window", ".alpha");
    REFUSED(wb_melscale_filterbanks(9, 3, 16000, .fmin = 9000), WB_ERROR_ARGUMENT,
            "melscale_filterbanks", "9000");
    REFUSED(wb_power_to_db(w, 0, 80), WB_ERROR_ARGUMENT, "power_to_db", "0");
}
