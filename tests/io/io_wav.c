/* WAV files: all kinds of samples, files of Python, every kind of damage. */
#include "folder.h"

#include "python.h"

/* A file that is being written */
static struct { unsigned char data[4096]; size_t n; } f;

static void put_bytes(const void *bytes, size_t n)
{
    assert_true(f.n + n <= sizeof f.data);
    memcpy(f.data + f.n, bytes, n);
    f.n += n;
}

static void put_number(uint64_t number, int bytes)
{
    for (; bytes--; number >>= 8) put_bytes(&(unsigned char){(unsigned char)number}, 1);
}

static void put_chunk(const char *name, const void *data, size_t n)
{
    put_bytes(name, 4);
    put_number(n, 4);
    put_bytes(data, n);
    if (n & 1) put_number(0, 1);
}

/* Writes the header of a file of two channels, with a chunk between that no reader knows. */
static void begin(int format, int bits, bool extensible)
{
    static const unsigned char guid[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b,
                                           0x71};
    const int bytes = (bits + 7) / 8;
    f.n = 0;
    put_bytes("RIFF\0\0\0\0WAVE", 12);
    put_bytes("fmt ", 4);
    put_number(extensible ? 40 : 16, 4);
    put_number(extensible ? 0xfffe : (unsigned)format, 2);
    put_number(2, 2);
    put_number(44100, 4);
    put_number(44100u * 2 * (unsigned)bytes, 4);
    put_number(2 * (unsigned)bytes, 2);
    put_number((unsigned)bits, 2);
    if (extensible) {
        put_number(22, 2);
        put_number((unsigned)bits, 2);
        put_number(3, 4);
        put_number((unsigned)format, 2);
        put_bytes(guid, sizeof guid);
    }
    put_chunk("LIST", "odd", 3);
}

static const char *write_file(void)
{
    put_file(in_folder("a.wav"), f.data, f.n);
    return in_folder("a.wav");
}

static wb_tensor *load(int *rate)
{
    wb_tensor *x = wb_load_wav(write_file(), rate);
    if (!x) fail_msg("%s", wb_error());
    return x;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* A row: the bits of one sample, and its value */
static const struct { int format, bits; uint64_t sample; double value; } samples[] = {
    {1, 8, 0, -1},           {1, 8, 128, 0},           {1, 8, 192, 0.5},
    {1, 16, 0x8000, -1},     {1, 16, 0x4000, 0.5},     {1, 16, 0xffff, -1.0 / 32768},
    {1, 24, 0x800000, -1},   {1, 24, 0x400000, 0.5},   {1, 24, 0xffffff, -1.0 / 8388608},
    {1, 32, 0x80000000, -1}, {1, 32, 0x20000000, 0.25}, {1, 32, 0x7fffffff, 1},
    {1, 12, 0x4000, 0.5},    {3, 32, 0x40200000, 2.5},  {3, 64, 0xbff8000000000000, -1.5}};

TEST_IN_SCOPE(every_kind_of_sample)
{
    for (size_t i = 0; i < WB__COUNT(samples); i++)
        for (int extensible = 0; extensible < 2; extensible++) {
            const size_t bytes = (size_t)(samples[i].bits + 7) / 8;
            unsigned char data[4 * 8] = {0};
            for (size_t b = 0; b < bytes; b++)          /* the last of channel 1 */
                data[3 * bytes + b] = (unsigned char)(samples[i].sample >> 8 * b);
            begin(samples[i].format, samples[i].bits, extensible);
            put_chunk("data", data, 4 * bytes);
            int rate = 0;
            wb_tensor *x = load(&rate);
            assert_string_equal(wb_describe(x), "[2,2] f32");
            assert_int_equal(rate, 44100);
            assert_true(wb_at(x, 1, 1) == (float)samples[i].value);
            assert_true(wb_at(x, 0, 1) == (samples[i].bits == 8 ? -1 : 0));
        }
}

TEST_IN_SCOPE(length_of_the_chunk)
{
    begin(1, 16, false);
    put_chunk("data", "", 0);
    assert_string_equal(wb_describe(load(NULL)), "[2,0] f32");
    put_chunk("tail", "more", 4);
    assert_string_equal(wb_describe(load(NULL)), "[2,0] f32");
    begin(1, 16, false);
    put_bytes("data\xff\xff\xff\xff", 8);       /* by a program that wrote to a pipe */
    put_bytes("\0\100\0\140\0\0\0\0", 8);
    wb_tensor *x = load(NULL);
    assert_true(wb_at(x, 0, 0) == 0.5 && wb_at(x, 1, 0) == 0.75 && wb_dim(x, 1) == 2);
    begin(1, 8, false);
    put_chunk("data", "\0\377", 2);
    put_chunk("tail", "more", 4);
    assert_true(wb_at(load(NULL), 1, 0) == 127.0 / 128);
}

TEST_IN_SCOPE(as_a_tree)
{
    begin(3, 32, false);
    put_chunk("data", (float[]){1, 2, 3, 4, 5, 6}, 24);
    wb_tree *tree = wb_load_tensors(write_file());
    assert_non_null(tree);
    assert_int_equal(wb_item(wb_get(tree, "rate")), 44100);
    wb_tensor *x = wb_get(tree, "samples");
    assert_string_equal(wb_describe(x), "[2,3] f32");
    assert_true(wb_at(x, 0, 2) == 5 && wb_at(x, 1, 0) == 2);
}

/* wav_files.py writes files by Python's own module, and what they have as f32. */
TEST_IN_SCOPE(files_of_python)
{
    static const char *const names[] = {"pcm8", "pcm16", "pcm24", "pcm32"};
    if (!python_has("wave") || python_script("io/wav_files.py", folder)) skip();
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        char name[40];
        int rate = 0;
        snprintf(name, sizeof name, "%s.wav", names[i]);
        wb_tensor *x = wb_load_wav(in_folder(name), &rate);
        if (!x) fail_msg("%s", wb_error());
        snprintf(name, sizeof name, "%s.npy", names[i]);
        wb_tensor *want = wb_load_npy(in_folder(name));
        assert_true(rate == 8000 + (int)i && want && wb_size(x) == wb_size(want));
        assert_memory_equal(wb_data(x), wb_data(want), (size_t)wb_size(x) * sizeof(float));
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

#define IS_REFUSED(...) REFUSED(wb_load_wav(write_file(), NULL), WB_ERROR_FORMAT, __VA_ARGS__)

TEST_IN_SCOPE(what_is_refused)
{
    begin(2, 16, false);
    IS_REFUSED("a.wav", "0x0002", "PCM", "ffmpeg");
    begin(1, 33, false);
    IS_REFUSED("33 bits");
    begin(3, 16, true);
    IS_REFUSED("16 bits");
    begin(1, 16, true);
    f.data[12 + 8 + 30] ^= 1;                           /* of the GUID */
    IS_REFUSED("0x0001");
    begin(1, 16, false);
    f.data[12 + 8 + 12] = 3;                            /* the bytes of a block */
    IS_REFUSED("2 channels", "blocks of 3");
    begin(1, 16, false);
    f.data[12 + 8 + 2] = f.data[12 + 8 + 12] = 0;
    IS_REFUSED("0 channels");
    begin(1, 16, false);
    f.data[12 + 8 + 7] = 0xff;
    IS_REFUSED("rate 4278234180");
    begin(1, 16, false);
    put_chunk("data", "abc", 3);
    IS_REFUSED("3 bytes", "4 bytes");
    f.n = 0;
    put_bytes("RIFF\0\0\0\0WAVE", 12);
    put_chunk("data", "abcd", 4);
    IS_REFUSED("no \"fmt \"");
    f.data[3] = 'X';
    IS_REFUSED("no WAV file");
    begin(1, 16, false);
    put_chunk("data", "", 0);
    put_bytes("\1\0\2\0\3\0\4\0", 8);              /* of a program that ended early */
    IS_REFUSED("length 0", "ended early");
    begin(1, 16, false);
    memset(f.data + 12 + 8 + 4, 0, 4);
    IS_REFUSED("rate 0");
    begin(1, 16, false);
    put_chunk("fmt ", f.data + 20, 16);
    IS_REFUSED("two chunks");
    begin(1, 16, false);
    put_bytes("data\xfe\xff\xff\xff", 8);
    IS_REFUSED("ends");
}

TEST_IN_SCOPE(every_end)
{
    begin(1, 16, true);
    put_chunk("data", "abcd", 4);
    for (const size_t whole = f.n; f.n-- > 0 && f.n < whole;)
        REFUSED(wb_load_wav(write_file(), NULL), WB_ERROR_FORMAT, "a.wav");
}

TEST(every_failure)
{
    begin(1, 24, false);
    put_chunk("data", "abcdefghijkl", 12);
    const char *path = write_file();
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__alloc_fail_at(n);
        wb_clear_error();
        wb_tensor *x = wb_load_wav(path, NULL);
        wb_tree *tree = x ? wb_load_tensors(path) : NULL;
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (tree != NULL));
        if (!tree) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
    }
}

int main(void) { return run_cases(make_folder, remove_folder); }
