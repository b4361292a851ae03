/* Files of images: PNG by libpng, JPEG by libjpeg-turbo; broken files; resizing; folders of
 * classes. Pillow 12 has written the files, and Pillow and PyTorch 2.15 have computed the numbers.
 * */
#include "folder.h"

#include "base/files/packed.h"

#include <sys/stat.h>

/* Files of tests/data/images.  Pixel (i, j) of 5 x 7 is R = 50 i + 3 j, G = 36 j,
 * B = 255 - 40 i - 5 j, alpha = 7 (7 i + j). */
static struct { const char *name; uint8_t data[512]; size_t bytes; } files[] = {
    {.name = "rgb.png"}, {.name = "rgba.png"}, {.name = "grey.png"}, {.name = "la.png"},
    {.name = "palette.png"}, {.name = "deep.png"}, {.name = "rgb.jpg"}, {.name = "grey.jpg"},
    {.name = "cmyk.jpg"}};
enum { FILES = sizeof files / sizeof *files };

static int read_files(void **state)
{
    for (int i = 0; i < FILES; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/images/%s", WB_TEST_DATA, files[i].name);
        FILE *f = fopen(path, "rb");
        if (!f) return print_error("no %s\n", path), 1;
        files[i].bytes = fread(files[i].data, 1, sizeof files[i].data, f);
        fclose(f);
    }
    return make_folder(state);
}

static wb_tensor *as_dtype(wb_tensor *x, wb_dtype dtype)
{
    char values[4096];
    assert_true(wb_size(x) <= 512 && wb_data(x));
    wb__convert(values, dtype, wb_data(x), wb_dtype_of(x), wb_size(x));
    return wb_from(values, dtype, wb_ndim(x), wb_dims(x));
}

static const char *file_of(const char *name)
{
    for (int i = 0; i < FILES; i++)
        if (!strcmp(files[i].name, name)) {
            const char *path = in_folder(name);
            put_file(path, files[i].data, files[i].bytes);
            return path;
        }
    fail_msg("no file %s", name);
    return NULL;
}

/* Whether a library is installed.  Without it tests are skipped, or fail if the environment
 * variable WEBER_REQUIRE_IMAGES is 1. */
static bool have(const char *name, const char *package)
{
    static bool said;
    wb_scope *s = wb_scope_open();
    const bool works = wb_load_image(file_of(name)) != NULL;
    if (!works) {
        const char *must = getenv("WEBER_REQUIRE_IMAGES");
        if (must && !strcmp(must, "1")) fail_msg("WEBER_REQUIRE_IMAGES=1: %s", wb_error());
        FAILED(WB_ERROR_UNSUPPORTED, "load_image", package);
        if (!said) print_message("SKIP: %s\n", wb_error());
        said = true;
    }
    wb_scope_close(s);
    return works;
}
static bool have_png(void) { return have("rgb.png", "libpng16-16"); }
static bool have_jpeg(void) { return have("rgb.jpg", "libturbojpeg0"); }

/* The first test: the libraries are not open yet. */
TEST_IN_SCOPE(without_the_libraries)
{
    static const char *const cases[][3] = {
        {"rgb.png", "WEBER_PNG_LIBRARY", "libpng16-16"},
        {"rgb.jpg", "WEBER_JPEG_LIBRARY", "libturbojpeg0"}};
    for (int i = 0; i < 2; i++) {
        const char *name = cases[i][1], *set = getenv(name);
        char *before = set ? strdup(set) : NULL;
        setenv(name, WB_TEST_NOWHERE "/images.so", 1);
        REFUSED(wb_load_image(file_of(cases[i][0])), WB_ERROR_UNSUPPORTED, "load_image",
                WB_TEST_NOWHERE "/images.so", cases[i][2], name);
        if (!access(WB_TEST_LIBRARY, R_OK)) {       /* a library without these functions */
            setenv(name, WB_TEST_LIBRARY, 1);
            REFUSED(wb_load_image(file_of(cases[i][0])), WB_ERROR_UNSUPPORTED, WB_TEST_LIBRARY,
                    i ? "tjInitDecompress" : "png_image_begin_read_from_memory");
        }
        if (before) setenv(name, before, 1);
        else unsetenv(name);
        free(before);
    }
}

/* Element [c, i, j] of the picture with all four channels. */
static int picture(int c, int i, int j)
{
    const int value[] = {i * 50 + j * 3, j * 36, 255 - i * 40 - j * 5, (i * 7 + j) * 7};
    return value[c];
}
static int grey(int i, int j)
{
    return (int)floor(0.299 * picture(0, i, j) + 0.587 * picture(1, i, j) +
                      0.114 * picture(2, i, j) + 0.5);
}

static void expect_shape(wb_tensor *x, int64_t channels)
{
    MADE(x);
    assert_int_equal(wb_dtype_of(x), WB_U8);
    assert_int_equal(wb_ndim(x), 3);
    assert_true(wb_dim(x, 0) == channels && wb_dim(x, 1) == 5 && wb_dim(x, 2) == 7);
}

/* Checks an image of `channels` channels; `alpha` is -1 if the file has alpha, or its value. */
static void expect_picture(wb_tensor *x, int channels, bool grey_file, int alpha)
{
    expect_shape(x, channels);
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 7; j++) {
                const bool a = c == (channels > 2 ? 3 : 1);
                const int want = a ? alpha < 0 ? picture(3, i, j) : alpha
                                 : grey_file || channels < 3 ? grey(i, j)
                                                             : picture(c, i, j);
                const int got = (int)wb_at(x, c, i, j);
                if (got < want - (grey_file || channels < 3) || got > want + 1)
                    fail_msg("[%d,%d,%d] of %d channels is %d, not %d", c, i, j, channels, got,
                             want);
                if (!grey_file && channels > 2) assert_int_equal(got, want);
            }
}

TEST_IN_SCOPE(png_files)
{
    if (!have_png()) skip();
    expect_picture(wb_load_image(file_of("rgb.png")), 3, false, 255);
    expect_picture(wb_load_image(file_of("rgba.png")), 4, false, -1);
    expect_picture(wb_load_image(file_of("grey.png")), 1, true, 255);
    expect_picture(wb_load_image(file_of("la.png")), 2, true, -1);
    for (int channels = 1; channels <= 4; channels++) {
        expect_picture(wb_load_image(file_of("rgb.png"), .channels = channels), channels, false,
                       255);
        expect_picture(wb_load_image(file_of("rgba.png"), .channels = channels), channels, false,
                       -1);
        expect_picture(wb_load_image(file_of("la.png"), .channels = channels), channels, true, -1);
    }
    wb_tensor *x = wb_load_image(file_of("palette.png"));
    expect_shape(x, 3);
    static const int palette[2][3] = {{38, 31, 222}, {115, 180, 150}};
    for (int c = 0; c < 3; c++)
        assert_true(wb_at(x, c, 0, 4) == palette[0][c] && wb_at(x, c, 0, 5) == palette[1][c]);
    x = wb_load_image(file_of("deep.png"));         /* 16 bits: 1800 times the index */
    expect_shape(x, 1);
    for (int i = 0; i < 35; i++)
        assert_true(fabs(wb_at(x, 0, i / 7, i % 7) - 1800.0 * i / 257) <= 0.51);
    assert_true(wb_at(wb_load_image(file_of("grey.png")), 0, 0, 0) == 29);
    assert_true(wb_at(wb_load_image(file_of("rgb.png"), .channels = 1), 0, 4, 6) == 199);
}

TEST_IN_SCOPE(jpeg_files)
{
    if (!have_jpeg()) skip();
    static const int rgb[7][3] = {{103, 0, 177},  {103, 35, 170},  {104, 74, 164}, {112, 107, 163},
                                  {114, 142, 156}, {112, 184, 146}, {118, 215, 146}};
    static const int row[] = {51, 71, 93, 115, 135, 158, 178};
    wb_tensor *x = wb_load_image(file_of("rgb.jpg")), *y = wb_load_image(file_of("grey.jpg"));
    wb_tensor *rgba = wb_load_image(file_of("grey.jpg"), .channels = 4);
    expect_shape(x, 3);
    expect_shape(y, 1);
    expect_shape(rgba, 4);
    for (int j = 0; j < 7; j++) {                       /* decoders may differ by 1 */
        for (int c = 0; c < 3; c++) assert_true(fabs(wb_at(x, c, 2, j) - rgb[j][c]) <= 1);
        assert_true(fabs(wb_at(y, 0, 2, j) - row[j]) <= 1);
        assert_true(wb_at(rgba, 1, 2, j) == wb_at(y, 0, 2, j) && wb_at(rgba, 3, 2, j) == 255);
    }
    REFUSED(wb_load_image(file_of("cmyk.jpg")), WB_ERROR_FORMAT, "cmyk.jpg", "CMYK");
}

/* ---- orientations ---------------------------------------------------------------------------- */

/* The sizes, and R of the pixels (0, 0), (0, 1) and (1, 0), as ImageOps.exif_transpose of Pillow 13
 * makes them of the picture. */
static const struct { int64_t h, w; int red[3]; } upright[8] = {
    {5, 7, {0, 3, 50}},      {5, 7, {18, 15, 68}},    {5, 7, {218, 215, 168}},
    {5, 7, {200, 203, 150}}, {7, 5, {0, 50, 3}},      {7, 5, {200, 150, 203}},
    {7, 5, {218, 168, 215}}, {7, 5, {18, 68, 15}}};

/* Writes the Exif data of an orientation, 26 bytes. */
static void put_exif(uint8_t *to, int orientation, bool big)
{
    static const uint8_t data[2][26] = {
        {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 0, 0},
        {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 0}};
    memcpy(to, data[big], 26);
    to[18 + big] = (uint8_t)orientation;
}

/* The path of a file with Exif data: in JPEG behind the first two bytes, in PNG before the chunk
 * that begins at byte `at`. */
static const char *with_exif(const char *name, size_t at, const uint8_t exif[26])
{
    static uint8_t made[1024];
    size_t k = 0, n = 0;
    while (strcmp(files[k].name, name)) k++;
    const bool jpg = strstr(name, ".jpg") != NULL;
    memcpy(made, files[k].data, n = jpg ? 2 : at);
    memcpy(made + n, jpg ? "\xff\xe1\0\42Exif\0\0" : "\0\0\0\32eXIf", jpg ? 10 : 8);
    memcpy(made + n + (jpg ? 10 : 8), exif, 26);
    if (!jpg) {
        const uint32_t sum = wb__crc32(0, made + n + 4, 30);
        for (int i = 0; i < 4; i++) made[n + 34 + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    }
    const size_t end = n + (jpg ? 36 : 38);
    memcpy(made + end, files[k].data + n, files[k].bytes - n);
    put_file(in_folder(name), made, end + files[k].bytes - n);
    return in_folder(name);
}

/* Whether `turned` has the pixels of x in this orientation. */
static void expect_turned(wb_tensor *turned, wb_tensor *x, int orientation)
{
    MADE(turned);
    const int64_t h = wb_dim(x, 1), w = wb_dim(x, 2);
    assert_true(wb_dim(turned, 1) == upright[orientation - 1].h &&
                wb_dim(turned, 2) == upright[orientation - 1].w);
    for (int64_t c = 0; c < wb_dim(x, 0); c++)
        for (int64_t i = 0; i < wb_dim(turned, 1); i++)
            for (int64_t j = 0; j < wb_dim(turned, 2); j++) {
                const int64_t from[8][2] = {
                    {i, j}, {i, w - 1 - j}, {h - 1 - i, w - 1 - j}, {h - 1 - i, j},
                    {j, i}, {h - 1 - j, i}, {h - 1 - j, w - 1 - i}, {j, w - 1 - i}};
                const int64_t *at = from[orientation - 1];
                assert_true(wb_at(turned, c, i, j) == wb_at(x, c, at[0], at[1]));
            }
}

TEST_IN_SCOPE(orientations)
{
    static const char *const names[] = {"rgb.png", "rgba.png", "la.png", "rgb.jpg", "grey.jpg"};
    uint8_t exif[26];
    for (size_t k = 0; k < WB__COUNT(names); k++) {
        if (k < 3 ? !have_png() : !have_jpeg()) continue;
        wb_tensor *x = wb_load_image(file_of(names[k]));
        for (int o = 1; o <= 8; o++) {
            put_exif(exif, o, o & 1);
            const char *path = with_exif(names[k], 33, exif);
            expect_turned(wb_load_image(path), x, o);
            expect_turned(wb_load_image(path, .exif = true), x, o);
            expect_turned(wb_load_image(path, .exif = false), x, 1);
            wb_tensor *y = wb_load_image(path);
            for (int i = 0; k == 0 && i < 3; i++)
                assert_int_equal(wb_at(y, 0, i == 2, i == 1), upright[o - 1].red[i]);
        }
    }
}

/* So are the images of a folder, before they are resized. */
TEST_IN_SCOPE(orientations_in_folders)
{
    uint8_t exif[26];
    if (!have_png()) skip();
    wb_tensor *x = wb_load_image(file_of("rgb.png"));
    put_exif(exif, 6, false);
    const char *path = with_exif("rgb.png", 33, exif);
    mkdir(in_folder("photos"), 0777);
    mkdir(in_folder("photos/a"), 0777);
    assert_int_equal(rename(path, in_folder("photos/a/1.png")), 0);
    wb_dataset *d = wb_load_images(in_folder("photos"));
    MADE(d);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[1,3,7,5] f32");
    for (int c = 0; c < 3; c++)
        assert_true(fabs(wb_at(wb_dataset_x(d), 0, c, 6, 0) * 255 - wb_at(x, c, 4, 6)) < 1e-4);
    d = wb_load_images(in_folder("photos"), .exif = false);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[1,3,5,7] f32");
    d = wb_load_images(in_folder("photos"), .height = 14, .width = 10);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[1,3,14,10] f32");
}

/* Exif data that name no orientation, or are damaged, change nothing, nor does each cut or changed
 * byte fail. */
TEST_IN_SCOPE(odd_orientations)
{
    uint8_t exif[26];
    if (!have_png() || !have_jpeg()) skip();
    wb_tensor *x = wb_load_image(file_of("rgb.png")), *y = wb_load_image(file_of("rgb.jpg"));
    for (int i = 0; i < 7 + 26; i++) {
        put_exif(exif, i < 7 ? (int[]){0, 9, 255, 6, 6, 6, 6}[i] : 6, i & 1);
        if (i == 3) memset(exif + 4, 255, 4);           /* a directory far away */
        if (i == 4) exif[10] = exif[11] = 3;            /* another tag */
        if (i == 5) exif[12] = exif[13] = 2;            /* a text */
        if (i == 6) memset(exif + 8, 255, 2), exif[10] = 0;     /* 65535 entries */
        if (i >= 7) exif[i - 7] ^= 0x55;
        wb_tensor *png = wb_load_image(with_exif("rgb.png", 33, exif));
        wb_tensor *jpg = wb_load_image(with_exif("rgb.jpg", 0, exif));
        MADE(png);
        MADE(jpg);
        if (i < 7) expect_turned(png, x, 1);
        if (i < 7) expect_turned(jpg, y, 1);
    }
    put_exif(exif, 6, true);            /* behind the pixels */
    expect_turned(wb_load_image(with_exif("rgb.png", files[0].bytes - 12, exif)), x, 6);
}

TEST_IN_SCOPE(saved_images_are_read)
{
    if (!have_png()) skip();
    char path[400];
    snprintf(path, sizeof path, "%s", in_folder("saved.png"));
    for (int channels = 1; channels <= 4; channels++) {
        wb_tensor *x = as_dtype(wb_floor(wb_mul(wb_rand(channels, 9, 4), wb_scalar(256))), WB_U8);
        WORKS(wb_save_image(path, x));
        wb_tensor *y = wb_load_image(path);
        MADE(y);
        assert_int_equal(wb_dim(y, 0), channels);
        assert_memory_equal(wb_data(x), wb_data(y), (size_t)channels * 36);
    }
    WORKS(wb_save_image(path, as_dtype(wb_full(7, 3, 2), WB_U8)));
    assert_string_equal(wb_describe(wb_load_image(path)), "[1,3,2] u8");
    wb_tensor *x = wb_from((float[]){-1, 0.5, 1, 7, NAN, 0.1f}, WB_F32, 2, (int64_t[]){1, 6});
    WORKS(wb_save_image(path, x));                      /* f32 from 0 to 1 */
    static const int bytes[] = {0, 128, 255, 255, 0, 26};
    wb_tensor *y = wb_load_image(path);
    for (int i = 0; i < 6; i++) assert_int_equal(wb_at(y, 0, 0, i), bytes[i]);
    FAILS(wb_save_image(path, as_dtype(wb_zeros(3, 4, 4), WB_I32)), WB_ERROR_SHAPE, "save_image",
          "[3,4,4] i32");
    FAILS(wb_save_image(path, as_dtype(wb_zeros(5, 4, 4), WB_U8)), WB_ERROR_SHAPE, "[5,4,4]");
    FAILS(wb_save_image(path, as_dtype(wb_zeros(3, 0), WB_U8)), WB_ERROR_SHAPE, "[3,0]");
    FAILS(wb_save_image(in_folder("no/such.png"), as_dtype(wb_zeros(2, 2), WB_U8)),
          WB_ERROR_FILE, "no/such.png");
}

/* Each file cut off at each byte, and with each byte changed, is read or refused.  A file that is
 * cut off in its pixels is refused. */
TEST_IN_SCOPE(hostile_files)
{
    char path[400];
    uint8_t copy[512];
    snprintf(path, sizeof path, "%s", in_folder("hostile"));
    for (int f = 0; f < FILES; f++) {
        const bool jpg = strstr(files[f].name, ".jpg") != NULL;
        if (jpg ? !have_jpeg() : !have_png()) continue;
        for (size_t n = 0; n < 2 * files[f].bytes; n++) IN_SCOPE {
            const bool cut = n < files[f].bytes;
            const size_t at = cut ? n : n - files[f].bytes;
            memcpy(copy, files[f].data, files[f].bytes);
            if (!cut) copy[at] ^= (uint8_t)(1 << at % 8);
            put_file(path, copy, cut ? at : files[f].bytes);
            wb_clear_error();
            wb_tensor *x = wb_load_image(path);
            if (!x) assert_int_not_equal(wb_error_code(), 0);
            if (x && cut && n < files[f].bytes - (jpg ? 16 : 0))
                fail_msg("%s with %zu of %zu bytes is read", files[f].name, n, files[f].bytes);
        }
    }
    /* A few bytes that claim many pixels; the sum of the header's bytes is not looked at first. */
    static const uint8_t most[] = {0, 0, 0x40, 0, 0, 0, 0x40, 0};
    memcpy(copy, files[0].data, files[0].bytes);
    memcpy(copy + 16, most, sizeof most);
    put_file(path, copy, files[0].bytes);
    if (have_png()) REFUSED(wb_load_image(path), WB_ERROR_FORMAT, "hostile");
    put_file(path, "GIF89a", 6);
    REFUSED(wb_load_image(path), WB_ERROR_FORMAT, "hostile", "PNG", "JPEG");
    put_file(path, "", 0);
    REFUSED(wb_load_image(path), WB_ERROR_FORMAT, "hostile");
    REFUSED(wb_load_image(in_folder("missing.png")), WB_ERROR_FILE, "missing.png");
    assert_int_equal(mkfifo(in_folder("pipe.png"), 0600), 0);      /* nobody writes to it */
    REFUSED(wb_load_image(in_folder("pipe.png")), WB_ERROR_FILE, "pipe.png", "pipe");
    REFUSED(wb_load_image("/dev/zero"), WB_ERROR_FILE, "/dev/zero", "device");
    REFUSED(wb_load_image(path, .channels = 5), WB_ERROR_ARGUMENT, "load_image", "5 channels");
    REFUSED(wb_load_image(NULL), WB_ERROR_ARGUMENT, "load_image");
}

/* ---- resizing -------------------------------------------------------------------------------- */

TEST_IN_SCOPE(resizing)
{
    static const struct { int height, width; double value[12]; } cases[] = {
        {2, 3, {52.5714, 59, 65.4286, 152.5714, 159, 165.4286}},
        {9, 4, {1.5714, 6.24, 11.76, 16.4286, 18.2381, 22.9067, 28.4267, 33.0952, 46.0159, 50.6844,
                56.2044, 60.873}},
        {5, 7, {0, 3, 6, 9, 12, 15, 18, 50, 53, 56, 59, 62}},
        {1, 1, {109}},
        {4, 10, {12.5, 14.15, 16.25, 18.35, 20.45, 22.55, 24.65, 26.75, 28.85, 30.5, 70.8333,
                 72.4833}},
    };
    float x[2][35];
    for (int i = 0; i < 35; i++) {
        x[0][i] = (float)(i / 7 * 50 + i % 7 * 3);
        x[1][i] = 255 - x[0][i];
    }
    wb_tensor *f32 = wb_from(x, WB_F32, 3, (int64_t[]){2, 5, 7});
    wb_tensor *u8 = as_dtype(f32, WB_U8);
    for (size_t k = 0; k < WB__COUNT(cases); k++) {
        const int h = cases[k].height, w = cases[k].width;
        wb_tensor *y = wb_resize_image(f32, h, w), *z = wb_resize_image(u8, h, w);
        MADE(y);
        MADE(z);
        assert_int_equal(wb_dtype_of(z), WB_U8);
        assert_true(wb_dim(y, 0) == 2 && wb_dim(y, 1) == h && wb_dim(y, 2) == w);
        for (int i = 0; i < WB__MIN(12, h * w); i++) {
            const double want = cases[k].value[i];
            assert_true(fabs(wb_at(y, 0, i / w, i % w) - want) < 1e-4);
            assert_true(fabs(wb_at(y, 1, i / w, i % w) - 255 + want) < 1e-4);
            assert_true(fabs(wb_at(z, 0, i / w, i % w) - want) <= 0.5001);
        }
    }
    REFUSED(wb_resize_image(wb_ones(3), 2, 2), WB_ERROR_SHAPE, "resize_image", "[3] f32");
    REFUSED(wb_resize_image(as_dtype(wb_ones(3, 3), WB_I32), 2, 2), WB_ERROR_SHAPE, "i32");
    REFUSED(wb_resize_image(wb_ones(3, 3), 0, 2), WB_ERROR_SHAPE, "0 x 2");
    REFUSED(wb_resize_image(wb_ones(0, 3), 1, 2), WB_ERROR_SHAPE, "[0,3]");
    REFUSED(wb_resize_image(wb_ones(1, 2), INT64_MAX, 2), WB_ERROR_SHAPE, "resize_image");
}

/* ---- folders --------------------------------------------------------------------------------- */

static void put_image(const char *name, const char *file)
{
    for (int i = 0; i < FILES; i++)
        if (!strcmp(files[i].name, file)) put_file(in_folder(name), files[i].data, files[i].bytes);
}

/* Classes cat, Dog and eel with 2, 1 and 3 images; Dog comes first, as D is below c. */
static const char *make_classes(void)
{
    static const char *const folders[] = {"set", "set/cat", "set/Dog", "set/eel", "set/.hidden"};
    for (size_t i = 0; i < WB__COUNT(folders); i++) mkdir(in_folder(folders[i]), 0777);
    put_image("set/cat/b.png", "rgb.png");
    put_image("set/cat/a.PNG", "grey.png");
    put_image("set/Dog/x.png", "rgba.png");
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "set/eel/%d.png", i);
        put_image(name, "rgb.png");
    }
    put_file(in_folder("set/eel/notes.txt"), "x", 1);
    put_file(in_folder("set/list.txt"), "x", 1);
    return in_folder("set");
}

TEST_IN_SCOPE(a_folder_of_classes)
{
    if (!have_png()) skip();
    static const int labels[] = {0, 1, 1, 2, 2, 2};
    wb_dataset *d = wb_load_images(make_classes());
    MADE(d);
    int64_t n;
    const char *const *classes = wb_image_classes(wb_shuffleobs(d), &n);
    assert_int_equal(n, 3);
    assert_string_equal(classes[0], "Dog");
    assert_string_equal(classes[1], "cat");
    assert_string_equal(classes[2], "eel");
    for (int workers = 1; workers < 4; workers += 2) {
        wb_loader *l = wb_dataloader(d, 4, .workers = workers);
        int at = 0;
        WB_EACH_BATCH(b, l)
            for (int i = 0; i < b.n; i++, at++) {
                assert_true(wb_at(b.y, i) == labels[at]);
                const int want = at == 1 ? grey(3, 2) : picture(1, 3, 2);
                assert_true(fabs(wb_at(b.x, i, 1, 3, 2) * 255 - want) <= (at == 1 ? 1.001 : 1e-4));
            }
        if (wb_loader_status(l)) fail_msg("%s", wb_error());
        assert_int_equal(at, 6);
    }
    d = wb_load_images(in_folder("set"), .height = 2, .width = 3, .channels = 1);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[6,1,2,3] f32");
    wb_tensor *want = wb_resize_image(
        as_dtype(wb_load_image(in_folder("set/cat/a.PNG")), WB_F32), 2, 3);
    wb_tensor *x = wb_dataset_x(d);
    assert_true(fabs(wb_at(x, 1, 0, 1, 2) * 255 - wb_at(want, 0, 1, 2)) < 1e-3);
}

TEST_IN_SCOPE(wrong_folders)
{
    if (!have_png()) skip();
    char set[400];
    snprintf(set, sizeof set, "%s", make_classes());
    wb_dataset *d = wb_load_images(set);
    put_image("set/eel/1.png", "la.png");
    put_file(in_folder("set/eel/1.png"), files[0].data, files[0].bytes / 2);
    wb_loader *l = wb_dataloader(d, 2, .workers = 2);
    int batches = 0;
    WB_EACH_BATCH(b, l) batches++;
    assert_int_equal(batches, 2);
    assert_int_equal(wb_loader_status(l), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "batch 2", "observation 4", "eel/1.png");
    WORKS(wb_save_image(in_folder("set/eel/1.png"), as_dtype(wb_ones(4, 4), WB_U8)));
    WB_EACH_BATCH(b, l) (void)b;
    FAILED(WB_ERROR_SHAPE, "observation 4", "eel/1.png", "4 x 4", "5 x 7", ".height");
    REFUSED(wb_load_images(set, .height = 4), WB_ERROR_ARGUMENT, "load_images", "4 x 0");
    REFUSED(wb_load_images(set, .channels = 5), WB_ERROR_ARGUMENT, "load_images", "5 channels");
    REFUSED(wb_load_images(in_folder("set/cat")), WB_ERROR_FILE, "set/cat");
    mkdir(in_folder("set/fox"), 0777);
    REFUSED(wb_load_images(set), WB_ERROR_FILE, "set/fox", ".png");
    assert_int_equal(rmdir(in_folder("set/fox")), 0);
    REFUSED(wb_load_images(in_folder("nothing")), WB_ERROR_FILE, "nothing");
    REFUSED(wb_image_classes(wb_dataset_of(wb_ones(2, 2), WB_NONE), NULL), WB_ERROR_ARGUMENT,
            "image_classes", "wb_load_images");
}

TEST(every_allocation_may_fail)
{
    if (!have_png()) skip();
    char set[400], saved[400];
    snprintf(set, sizeof set, "%s", make_classes());
    snprintf(saved, sizeof saved, "%s", in_folder("failing.png"));
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__alloc_fail_at(n);
        wb_dataset *d = wb_load_images(set, .height = 3, .width = 3);
        wb_tensor *x = d ? wb_dataset_x(d) : NULL;
        wb_tensor *u8 = x ? wb_load_image(in_folder("set/cat/b.png")) : NULL;
        wb_tensor *small = u8 ? wb_resize_image(u8, 2, 2) : NULL;
        const bool ok = small && !wb_save_image(saved, small);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == ok);
        if (!ok) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
    }
}

int main(void) { return run_cases(read_files, remove_folder); }
