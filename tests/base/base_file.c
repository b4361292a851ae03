/* Files: gzip is decompressed, damage is detected, and a write leaves the whole file or none. */
#include "test.h"

#include "base/files/file.h"
#include "base/files/packed.h"
#include "base/map.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef WB_HAVE_ZLIB
#include <zlib.h>
#endif

static char folder[] = "/tmp/weber-file-XXXXXX", path[64], other[64];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(other, sizeof other, "%s/b", folder);
    return 0;
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int empty_folder(void **state)
{
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

static void put(const char *to, const void *data, size_t n)
{
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

#ifdef WB_HAVE_ZLIB
enum { FORMS = 2 };                 /* plain and gzip */

static size_t gzip(unsigned char *to, size_t capacity, const void *data, size_t n)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = to;
    z.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t out = z.total_out;
    deflateEnd(&z);
    return out;
}
#else
enum { FORMS = 1 };

static size_t gzip(unsigned char *to, size_t capacity, const void *data, size_t n)
{
    assert_true(n <= capacity);
    memcpy(to, data, n);
    return n;
}
#endif

static const char text[] =
    "Observations by number: 0 1 2 3 4 5 6 7 8 9, and again 0 1 2 3 4 5 6 7 8 9.";

static void expect_text(const char *from)
{
    int64_t n = -1;
    char *got = wb__file_read(from, &n);
    assert_non_null(got);
    assert_int_equal(n, sizeof text);
    assert_memory_equal(got, text, sizeof text);
    wb__free(got);
}

TEST(checksums)
{
    enum { N = 70001 };
    static uint8_t data[N];
    for (int i = 0; i < N; i++) data[i] = (uint8_t)((uint32_t)i * (uint32_t)i >> 5);
    assert_int_equal(wb__crc32(0, "", 0), 0);
    assert_int_equal(wb__crc32(0, "123456789", 9), 0xcbf43926);     /* the check value of CRC-32 */
    assert_int_equal(wb__crc32(0, "a", 1), 0xe8b7be43);
    uint32_t by_bytes = 0;
    for (int i = 0; i < N; i++) by_bytes = wb__crc32(by_bytes, data + i, 1);
    assert_int_equal(wb__crc32(0, data, N), by_bytes);
    for (int cut = 0; cut <= N; cut = cut < 20 ? cut + 1 : cut * 2 + 1) {
        const uint32_t first = wb__crc32(0, data, (size_t)cut);
        const uint32_t second = wb__crc32(0, data + cut, (size_t)(N - cut));
        assert_int_equal(wb__crc32(first, data + cut, (size_t)(N - cut)), by_bytes);
        assert_int_equal(wb__crc32_join(first, second, N - cut), by_bytes);
    }
}

#ifdef WB_HAVE_ZLIB
TEST(plain_and_gzip)
{
    unsigned char packed[400];
    size_t n = gzip(packed, sizeof packed, text, sizeof text);
    put(path, text, sizeof text);
    expect_text(path);
    put(path, packed, n);
    expect_text(path);
    memset(packed + n, 0, 100);                     /* zeros after the stream, as on tapes */
    put(path, packed, n + 100);
    expect_text(path);
    packed[n + 20] = 'x';
    put(path, packed, n + 100);
    int64_t length;
    REFUSED(wb__file_read(path, &length), WB_ERROR_FORMAT, path, "gzip");

    n = gzip(packed, sizeof packed, text, 30);      /* two streams, one after the other */
    n += gzip(packed + n, sizeof packed - n, text + 30, sizeof text - 30);
    put(path, packed, n);
    expect_text(path);
}
#else
TEST(gzip_without_zlib)
{
    put(path, "\x1f\x8b\x08 and the rest", 16);
    int64_t length;
    assert_null(wb__file_read(path, &length));
    FAILED(WB_ERROR_UNSUPPORTED, path, "gzip", "zlib1g-dev", "-DWEBER_ZLIB=ON");
}
#endif

TEST(short_files)
{
    int64_t length;
    const char *short_ones[] = {"", "\x1f", "x", "\x1f\x8c"};
    for (size_t i = 0; i < 4; i++) {
        put(path, short_ones[i], strlen(short_ones[i]));
        char *got = wb__file_read(path, &length);
        assert_int_equal(length, strlen(short_ones[i]));
        assert_string_equal(got, short_ones[i]);
        wb__free(got);
    }
}

TEST(long_files)
{
    size_t n = 3000017, capacity = 4000000;
    unsigned char *data = malloc(n), *packed = malloc(capacity);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * i >> 7);
    for (int zipped = 0; zipped < FORMS; zipped++) {
        if (zipped) put(path, packed, gzip(packed, capacity, data, n));
        else put(path, data, n);
        int64_t length;
        char *got = wb__file_read(path, &length);
        assert_int_equal(length, n);
        assert_memory_equal(got, data, n);
        wb__free(got);
        wb__mapping *m = wb__map(path);
        int64_t at = 0;
        const uint8_t *head = wb__map_take(m, &at, 10, "the header");
        const uint8_t *rest = wb__map_take(m, &at, (int64_t)n - 10, "the data");
        assert_non_null(head);
        assert_non_null(rest);
        assert_memory_equal(rest, data + 10, n - 10);
        assert_int_equal(at, n);
        assert_int_equal(wb__map_end(m, at), 0);
        assert_int_equal(wb__map_end(m, at - 1), WB_ERROR_FORMAT);
        wb__unmap(m);
    }
    free(data);
    free(packed);
}

#ifdef WB_HAVE_ZLIB
TEST(damage_is_found)
{
    unsigned char packed[400], hurt[400];
    size_t n = gzip(packed, sizeof packed, text, sizeof text);
    int64_t length;
    for (size_t cut = 2; cut < n; cut++) {
        put(path, packed, cut);
        REFUSED(wb__file_read(path, &length), WB_ERROR_FORMAT, path);
    }
    for (size_t at = 2; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(hurt, packed, n);
            hurt[at] ^= (unsigned char)(1 << bit);
            put(path, hurt, n);
            char *got = wb__file_read(path, &length);
            assert_true(!got || (length == sizeof text && !memcmp(got, text, sizeof text)));
            wb__free(got);
        }
}
#endif

TEST(wrong_lengths_cost_no_memory)
{
    unsigned char packed[400];
    size_t n = gzip(packed, sizeof packed, text, sizeof text);
    int64_t lengths[] = {sizeof text + 1, (int64_t)1 << 31, INT64_MAX};
    for (int zipped = 0; zipped < FORMS; zipped++)
        for (size_t i = 0; i < WB__COUNT(lengths); i++) {
            put(path, zipped ? packed : (const unsigned char *)text, zipped ? n : sizeof text);
            int64_t before = wb_memory_peak(), at = 0;
            wb__mapping *m = wb__map(path);
            assert_null(wb__map_take(m, &at, lengths[i], "the images"));
            assert_int_equal(at, 0);
            assert_true(wb_memory_peak() < before + 3000000);
            FAILED(WB_ERROR_FORMAT, path, "the images");
            assert_true(zipped == (strstr(wb_error(), "decompressed") != NULL));
            wb__unmap(m);
        }
    assert_int_equal(wb_memory_used(), 0);
}

TEST(names_that_cannot_be_read)
{
    int64_t n;
    assert_null(wb__file_read(NULL, &n));
    assert_null(wb__map(NULL));
    assert_null(wb__map(WB_TEST_NOWHERE "/file"));
    assert_null(wb__file_read(WB_TEST_NOWHERE "/file", &n));
    FAILED(WB_ERROR_FILE, WB_TEST_NOWHERE "/file", "No such file");
    REFUSED(wb__file_read(folder, &n), WB_ERROR_FILE, "directory");
    assert_null(wb__map(folder));
}

/* /dev/zero has no end: the reader stops at the limit. */
TEST(endless_files)
{
    int64_t n;
    const int64_t before = wb_memory_peak();
    wb__pipe_limit(3 << 20);
    wb_set_unpack_limit(1 << 20);                   /* limits compressed files only */
    assert_null(wb__file_read("/dev/zero", &n));
    FAILED(WB_ERROR_FORMAT, "/dev/zero", "byte 3145729", "3145728");
    assert_null(wb__map("/dev/zero"));
    assert_true(wb_memory_peak() < WB__MAX(before + 1, (3 << 20) + 300000));
    wb__pipe_limit(WB__FILE_MOST);
    wb_set_unpack_limit((int64_t)4 << 30);
}

TEST(what_is_written_is_there)
{
    put(path, "old", 3);
    chmod(path, 0640);
    wb__writer *w = wb__writer_open(path);
    for (size_t i = 0; i < sizeof text; i++) assert_int_equal(wb__writer_put(w, text + i, 1), 0);
    assert_int_equal(wb__writer_offset(w), sizeof text);
    int64_t n;
    char *old = wb__file_read(path, &n);
    assert_string_equal(old, "old");                /* the new file is not complete yet */
    wb__free(old);
    assert_int_equal(wb__writer_close(w), 0);
    expect_text(path);
    struct stat about;
    stat(path, &about);
    assert_int_equal(about.st_mode & 0777, 0640);

    assert_int_equal(symlink(path, other), 0);      /* a link is replaced, not followed */
    assert_int_equal(wb__file_write(other, "new", 3), 0);
    assert_int_equal(lstat(other, &about), 0);
    assert_true(S_ISREG(about.st_mode));
    expect_text(path);
    char *now = wb__file_read(other, &n);
    assert_string_equal(now, "new");
    wb__free(now);
    unlink(other);

    w = wb__writer_open(path);
    wb__writer_put(w, "x", 1);
    wb__writer_drop(w);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(wb__file_write("/dev/null", text, sizeof text), 0);
    assert_int_equal(wb__file_write(folder, text, 1), WB_ERROR_FILE);
    assert_int_equal(wb__file_write(WB_TEST_NOWHERE "/x", text, 1), WB_ERROR_FILE);
    assert_int_equal(wb__file_write("", text, 1), WB_ERROR_ARGUMENT);
}

TEST(every_call_may_fail)
{
    size_t n = 200000;
    char *data = malloc(n);
    memset(data, 'n', n);
    bool finished = false;
    for (int64_t k = 1; !finished; k++) {
        put(path, text, sizeof text);
        wb__io_fail_at(k);
        int status = wb__file_write(path, data, (int64_t)n);
        finished = wb__io_count() < k;
        wb__io_fail_at(0);
        assert_int_equal(status, finished ? 0 : WB_ERROR_FILE);
        assert_int_equal(files_in_folder(), 1);
        int64_t length;
        char *now = wb__file_read(path, &length);
        assert_true((length == sizeof text && status) || length == (int64_t)n);
        wb__free(now);
        assert_true(k < 100);
    }
    finished = false;
    for (int64_t k = 1; !finished; k++) {
        wb__io_fail_at(k);
        int64_t length;
        char *now = wb__file_read(path, &length);
        finished = wb__io_count() < k;
        wb__io_fail_at(0);
        assert_true(finished == (now != NULL));
        wb__free(now);
    }
    free(data);
}

TEST(every_allocation_may_fail)
{
    unsigned char packed[400];
    size_t size = gzip(packed, sizeof packed, text, sizeof text);
    bool finished = false;
    for (int64_t k = 1; !finished; k++) {
        put(path, packed, size);
        int64_t length, before = wb_memory_used();
        wb__alloc_fail_at(k);
        char *now = wb__file_read(path, &length);
        int status = wb__file_write(path, "x", 1);
        finished = wb__alloc_count() < k;
        wb__alloc_fail_at(0);
        assert_true(finished ? now && !status : !now || status);
        assert_true(finished || wb_error_code() == WB_ERROR_MEMORY);
        wb__free(now);
        assert_int_equal(wb_memory_used(), before);
        assert_int_equal(files_in_folder(), 1);
    }
}

int main(void) { return run_cases(make_folder, empty_folder); }
