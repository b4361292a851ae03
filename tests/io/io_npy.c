/* NPY files: those of NumPy, those of Weber, and invalid ones. */
#include "folder.h"

#include "base/files/file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WB_HAVE_ZLIB
#include <zlib.h>
#endif

static char path[96];

/* Writes an NPY file of this version, header and elements to f; returns its length. */
static size_t npy(unsigned char *f, int version, const char *header, const void *data, size_t n)
{
    size_t length = strlen(header), at = version > 1 ? 12 : 10;
    memcpy(f, "\x93NUMPY", 6);
    f[6] = (unsigned char)version;
    f[7] = 0;
    f[8] = (unsigned char)length;
    f[9] = (unsigned char)(length >> 8);
    if (version > 1) f[10] = f[11] = 0;
    memcpy(f + at, header, length);
    memcpy(f + at + length, data, n);
    return at + length + n;
}

static wb_tensor *load(int version, const char *header, const void *data, size_t n)
{
    unsigned char f[600];
    put_file(path, f, npy(f, version, header, data, n));
    return wb_load_npy(path);
}

TEST_IN_SCOPE(what_numpy_writes)
{
    const float six[] = {0, 1, 2, 3, 4, 5};
    for (int version = 1; version <= 3; version++) {
        wb_tensor *x =
            load(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
                 six, 24);
        assert_string_equal(wb_describe(x), "[2,3] f32");
        assert_memory_equal(wb_data(x), six, 24);
        x = load(version, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", six, 24);
        const float turned[] = {0, 2, 4, 1, 3, 5};
        assert_memory_equal(wb_data(x), turned, 24);
    }
    wb_tensor *x = load(1, "{'shape': (3L,), \"descr\": \"=i2\", 'fortran_order': True}",
                        "\xff\xff\x02\x00\x00\x80", 6);
    assert_string_equal(wb_describe(x), "[3] i32");
    assert_true(wb_at(x, 0) == -1 && wb_at(x, 1) == 2 && wb_at(x, 2) == -32768);
    x = load(1, "{'descr': '<u2', 'fortran_order': False, 'shape': ()}", "\xff\xff", 2);
    assert_true(wb_ndim(x) == 0 && wb_item(x) == 65535);
    x = load(1, "{'descr': '<u4', 'fortran_order': True, 'shape': (1,2)}",
             "\xff\xff\xff\xff\1\0\0\0", 8);
    assert_string_equal(wb_describe(x), "[1,2] i64");
    assert_true(wb_at(x, 0, 0) == 4294967295.0 && wb_at(x, 0, 1) == 1);
    x = load(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", "\0\1\2\xff", 4);
    assert_memory_equal(wb_data(x), "\0\1\1\1", 4);
    x = load(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7)}", "", 0);
    assert_string_equal(wb_describe(x), "[0,7] f64");
    int8_t cube[24], expected[24];
    for (int i = 0; i < 24; i++) cube[i] = (int8_t)i;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) expected[12 * i + 4 * j + k] = (int8_t)(i + 2 * j + 6 * k);
    x = load(1, "{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3, 4)}", cube, 24);
    assert_memory_equal(wb_data(x), expected, 24);
}

TEST_IN_SCOPE(what_we_write)
{
    double values[24];
    for (int i = 0; i < 24; i++) values[i] = i % 2 ? i : -i;
    for (wb_dtype t = WB_F32; t < WB_DTYPE_COUNT; t++)
        for (int ndim = 0; ndim <= 3; ndim++) {
            int64_t dims[] = {2, 3, 4};
            char data[24 * 8];
            wb__convert(data, t, values, WB_F64, 24);
            wb_tensor *x = wb_from(data, t, ndim, dims);
            assert_int_equal(wb_save_npy(path, x), 0);
            wb_tensor *y = wb_load_npy(path);
            if (!y) fail_msg("%s", wb_error());
            assert_int_equal(wb_dtype_of(y), t == WB_BF16 ? WB_F32 : t);
            assert_int_equal(wb_ndim(y), ndim);
            assert_int_equal(wb_size(y), wb_size(x));
            if (t == WB_BF16) wb__convert(data, WB_F32, wb_data(x), t, wb_size(x));
            assert_memory_equal(wb_data(y), data,
                                (size_t)wb_size(y) * wb_dtype_bytes(wb_dtype_of(y)));
        }
    int64_t n;
    wb_save_npy(path, wb_from(values, WB_F64, 1, (int64_t[]){5}));
    char *text = wb__file_read(path, &n);
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }";
    assert_int_equal(n, 128 + 40);
    assert_memory_equal(text + 10, header, sizeof header - 1);
    assert_int_equal(text[127], '\n');
    wb__free(text);
    wb_save_npy(path, wb_from(values, WB_F64, 2, (int64_t[]){0, 5}));
    assert_string_equal(wb_describe(wb_load_npy(path)), "[0,5] f64");
    assert_int_equal(wb_save_npy(WB_TEST_NOWHERE "/x.npy", wb_from(values, WB_F64, 0, NULL)),
                     WB_ERROR_FILE);
    assert_int_equal(wb_save_npy(path, WB_NONE), WB_ERROR_ARGUMENT);
}

TEST_IN_SCOPE(what_is_not_read)
{
    static const struct { const char *header, *facts[6]; } wrong[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}",
         {"byte 25", "header", "'>f4'", "big-endian"}},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", {"byte 25", "header", "'<c8'"}},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", {"byte 24", "header", "'|O'"}},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", {"byte 22", "header", "''"}},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
         {"byte 20", "header", "records"}},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
         {"byte 44", "header", "True", "False"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
         {"byte 63", "header", "comma"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
         {"byte 61", "header", "dimension"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
         {"byte 60", "header", "shape", "parentheses"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         {"byte 78", "header", "8", "dimensions"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (65536,16777216)}",
         {"byte 75", "header", "2^40"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,65536,16777216)}",
         {"byte 77", "header", "2^40"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
         {"byte 70", "header", "2^32"}},
        {"{'descr': '<f4', 'fortran_order': False}",
         {"byte 50", "header", "descr", "fortran_order", "shape"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", {"byte 66", "header"}},
        {"{'descr': '<f4', 'other': 1}", {"byte 35", "header", "key"}},
        {"{'descr", {"byte 11", "header", "string"}},
        {"{'descr'", {"byte 18", "header", "':'"}},
        {"[]", {"byte 10", "header", "'{'"}},
        {"", {"byte 10", "header", "'{'"}},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}", {"byte 65", "4", "20"}},
    };
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        wb_clear_error();
        assert_null(load(1, wrong[i].header, "\0\0\0\0", 4));
        if (!failed_with(WB_ERROR_FORMAT, wrong[i].facts) || !HAS_FACTS(wb_error(), path))
            fail_msg("%zu: %s", i, wb_error());
    }
    REFUSED(load(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "\0\0\0\0\0", 5),
            WB_ERROR_FORMAT, path, "byte 69", "end");
    REFUSED(load(4, "", "", 0), WB_ERROR_FORMAT, path, "byte 6", "version", "4");
    unsigned char too_long[] = "\x93NUMPY\2\0\xff\xff\xff\xff";
    put_file(path, too_long, 12);
    REFUSED(wb_load_npy(path), WB_ERROR_FORMAT, path, "byte 8", "header", "4294967295", "65536");
    assert_null(wb_load_npy(WB_TEST_NOWHERE));
}

TEST(every_length_and_every_byte)
{
    unsigned char f[300], g[300];
    const float six[] = {0, 1, 2, 3, 4, 5};
    size_t n = npy(f, 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", six, 24);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(path, f, cut);
        wb_clear_error();
        assert_null(wb_load_npy(path));
        assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
    }
    for (size_t at = 0; at < n; at++)
        for (int value = 0; value < 256; value += 1) IN_SCOPE {
            memcpy(g, f, n);
            g[at] = (unsigned char)value;
            put_file(path, g, n);
            wb_tensor *x = wb_load_npy(path);
            if (x) assert_true(wb_size(x) <= 24);
            else assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
        }
}

enum { MANY = 8 << 20, SOME = 300000 };

static int64_t peak_of(const char *from)
{
    const int64_t before = wb_memory_peak(), used = wb_memory_used();
    wb_clear_error();
    assert_null(wb_load_npy(from));
    assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
    assert_int_equal(wb_memory_used(), used);
    return wb_memory_peak() - before;
}

/* The reader reads as many elements as the header announces: neither zeros after them nor a device
 * without an end cost memory. */
TEST(only_what_the_header_announces_is_read)
{
#ifdef WB_HAVE_ZLIB
    unsigned char f[600];
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}";
    const size_t n = npy(f, 1, header, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    static char zeros[1 << 20];
    char expected[64];
    gzFile z = gzopen(path, "wb1");
    gzwrite(z, f, (unsigned)n);
    for (int i = 0; i < 64; i++) gzwrite(z, zeros, sizeof zeros);
    gzclose(z);
    assert_true(peak_of(path) < SOME);
    snprintf(expected, sizeof expected, "byte %zu", n);
    FAILED(WB_ERROR_FORMAT, path, expected, "decompressed");
#endif
    assert_true(peak_of("/dev/zero") < SOME);
    FAILED(WB_ERROR_FORMAT, "/dev/zero", "byte 0", "NPY");
}

/* A pipe that stays open is refused after its first bytes if they are not those of an NPY file. */
TEST(pipes)
{
    const char *pipe = in_folder("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    int end = open(pipe, O_RDWR | O_CLOEXEC);
    assert_true(end >= 0);
    alarm(60);
    assert_int_equal(write(end, "this is nothing that anybody would read", 39), 39);
    assert_true(peak_of(pipe) < SOME);
    FAILED(WB_ERROR_FORMAT, "byte 0", "NPY");
    close(end);
    static unsigned char f[50200], data[50000];
    const size_t n = npy(f, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (50000,)}", data,
                         sizeof data);
    for (int turn = 0; turn < 20; turn++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            int to = open(pipe, O_WRONLY);
            _exit(to < 0 || write(to, f, n) != (ssize_t)n);
        }
        if (turn == 10) wb_set_unpack_limit(1000);      /* limits compressed files only */
        wb_scope *s = wb_scope_open();
        wb_tensor *x = wb_load_npy(pipe);
        if (!x) fail_msg("%s", wb_error());
        assert_int_equal(wb_size(x), 50000);
        wb_scope_close(s);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    alarm(0);
    wb_set_unpack_limit((int64_t)4 << 30);
    remove(pipe);
}

#ifdef WB_HAVE_ZLIB
/* The elements of a compressed file are held once, in the tensor, and nothing else is held. */
TEST(unpacked_elements_are_the_tensor)
{
    static const char header[] = "{'descr': '|i1', 'fortran_order': False, 'shape': (8388608,)}";
    unsigned char f[200];
    gzFile z = gzopen(path, "wb1");
    gzwrite(z, f, (unsigned)npy(f, 1, header, "", 0));
    char *data = malloc(MANY);
    for (int i = 0; i < MANY; i++) data[i] = (char)(i * 7 >> 3);
    gzwrite(z, data, MANY);
    gzclose(z);
    wb_scope *s = wb_scope_open();
    const int64_t peak = wb_memory_peak(), before = wb_memory_used();
    wb_tensor *x = wb_load_npy(path);
    if (!x) fail_msg("%s", wb_error());
    assert_memory_equal(wb_data(x), data, MANY);
    assert_true(wb_memory_used() < before + MANY + 10000);
    assert_true(wb_memory_peak() < WB__MAX(peak, before + MANY + SOME));
    wb_scope_close(s);
    free(data);
}
#endif

static void faults(void (*fail_at)(int64_t), int64_t (*calls)(void), wb_status code)
{
    const float six[] = {0, 1, 2, 3, 4, 5};
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_tensor *x = wb_from(six, WB_F32, 2, (int64_t[]){2, 3});
        fail_at(n);
        int status = wb_save_npy(path, x);
        wb_tensor *y = status ? NULL : wb_load_npy(path);
        finished = calls() < n;
        fail_at(0);
        /* If only the mapping of the file fails, the file is read instead, and y is valid. */
        assert_true(!finished || y);
        assert_true(finished || !y || (code == WB_ERROR_FILE && !status));
        if (!y) assert_int_equal(wb_error_code(), code);
        else assert_memory_equal(wb_data(y), six, sizeof six);
    }
}

TEST(every_failure)
{
    faults(wb__alloc_fail_at, wb__alloc_count, WB_ERROR_MEMORY);
    faults(wb__io_fail_at, wb__io_count, WB_ERROR_FILE);
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/a.npy", folder);
    return 0;
}

int main(void) { return run_cases(make, remove_folder); }
