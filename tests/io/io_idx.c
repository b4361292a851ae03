/* IDX files: valid files, and every kind of invalid file. */
#include "folder.h"

#include "shared_data.h"

#ifdef WB_HAVE_ZLIB
#include <zlib.h>
#endif

static char path[96], other[96];

static const unsigned char bytes_3x2[] = {0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 255};

TEST_IN_SCOPE(every_type)
{
    put_file(path, bytes_3x2, sizeof bytes_3x2);
    wb_tensor *x = wb_load_idx_tensor(path);
    assert_string_equal(wb_describe(x), "[3,2] u8");
    assert_memory_equal(wb_data(x), bytes_3x2 + 12, 6);

    struct { unsigned char code, n, data[8]; wb_dtype dtype; double value; } one[] = {
        {0x09, 1, {0xfe}, WB_I8, -2},
        {0x0b, 2, {0xff, 0x00}, WB_I32, -256},
        {0x0c, 4, {0x01, 0x02, 0x03, 0x04}, WB_I32, 0x01020304},
        {0x0d, 4, {0xc0, 0x20, 0, 0}, WB_F32, -2.5},
        {0x0e, 8, {0x3f, 0xf8, 0, 0, 0, 0, 0, 0}, WB_F64, 1.5},
    };
    for (size_t i = 0; i < WB__COUNT(one); i++) {
        unsigned char file[16] = {0, 0, one[i].code, 1, 0, 0, 0, 1};
        memcpy(file + 8, one[i].data, one[i].n);
        put_file(path, file, 8u + one[i].n);
        x = wb_load_idx_tensor(path);
        assert_int_equal(wb_dtype_of(x), one[i].dtype);
        assert_true(wb_at(x, 0) == one[i].value);
    }
    unsigned char scalar[] = {0, 0, 8, 0, 7},
                  empty[] = {0, 0, 8, 2, 0, 0, 0, 0, 255, 255, 255, 255};
    put_file(path, scalar, sizeof scalar);
    assert_true(wb_item(wb_load_idx_tensor(path)) == 7);
    put_file(path, empty, sizeof empty);
    assert_int_equal(wb_size(wb_load_idx_tensor(path)), 0);
}

/* The file is refused; the error names it, the offset and the facts of the reason. */
#define IS_REFUSED(data, n, ...)                                                                   \
    do {                                                                                           \
        put_file(path, data, n);                                                                   \
        REFUSED(wb_load_idx_tensor(path), WB_ERROR_FORMAT, path, __VA_ARGS__);                     \
    } while (0)

TEST(wrong_headers)
{
    unsigned char f[sizeof bytes_3x2 + 1];
    for (size_t n = 0; n < sizeof bytes_3x2; n++)
        IS_REFUSED(bytes_3x2, n,
                   n < 4    ? "byte 0"
                   : n < 8  ? "byte 4"
                   : n < 12 ? "byte 8"
                            : "byte 12",
                   "ends");
    memcpy(f, bytes_3x2, sizeof bytes_3x2);
    IS_REFUSED(f, sizeof f, "byte 18", "end");
    f[2] = 0x0a;
    IS_REFUSED(f, sizeof bytes_3x2, "byte 0", "header");
    f[2] = 8;
    f[3] = 9;
    IS_REFUSED(f, sizeof bytes_3x2, "byte 3", "9", "dimensions");
    unsigned char huge[] = {0, 0, 0x0e, 2, 255, 255, 255, 255, 255, 255, 255, 255, 1};
    IS_REFUSED(huge, sizeof huge, "byte 8", "2^32");
    unsigned char none[] = {0, 0, 8, 3, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255};
    IS_REFUSED(none, sizeof none, "byte 12", "2^32");
    int64_t before = wb_memory_peak();
    unsigned char large[] = {0, 0, 0x0e, 2, 0, 0, 255, 255, 0, 0, 255, 255, 1};
    IS_REFUSED(large, sizeof large, "byte 12", "34358689800");
    unsigned char less[] = {0, 0, 8, 2, 0, 0, 255, 255, 0, 0, 255, 255, 1};
    IS_REFUSED(less, sizeof less, "byte 12", "ends", "1");
    assert_true(wb_memory_peak() < before + 200000);
}

#ifdef WB_HAVE_ZLIB
/* Of a compressed file, only the bytes that the header announces are decompressed and held.  A file
 * with more bytes is refused. */
TEST(compressed_files_cost_what_their_header_announces)
{
    enum { MANY = 5 << 20, SOME = 300000 };
    static const unsigned char header[] = {0, 0, 8, 1, 0, 0x50, 0, 0};
    char *data = calloc(1, MANY);
    data[MANY - 1] = 7;
    for (int more = 0; more < 2; more++) {
        gzFile z = gzopen(path, "wb1");
        gzwrite(z, header, sizeof header);
        gzwrite(z, data, MANY);
        for (int i = 0; more && i < 8; i++) gzwrite(z, data, MANY);
        gzclose(z);
        wb_scope *s = wb_scope_open();
        const int64_t peak = wb_memory_peak(), before = wb_memory_used();
        wb_tensor *x = wb_load_idx_tensor(path);
        assert_true(wb_memory_peak() < WB__MAX(peak + 1, before + MANY + SOME));
        if (more) {
            assert_null(x);
            FAILED(WB_ERROR_FORMAT, path, "byte 5242888", "decompressed");
        } else {
            if (!x) fail_msg("%s", wb_error());
            assert_memory_equal(wb_data(x), data, MANY);
            assert_true(wb_memory_used() < before + MANY + 10000);
        }
        wb_scope_close(s);
    }
    free(data);
}
#endif

/* Each byte of the file gets each value: the file is refused, or the tensor is no larger than
 * it. */
TEST(every_byte_flipped)
{
    for (size_t at = 0; at < sizeof bytes_3x2; at++)
        for (int value = 0; value < 256; value++) IN_SCOPE {
            unsigned char f[sizeof bytes_3x2];
            memcpy(f, bytes_3x2, sizeof f);
            f[at] = (unsigned char)value;
            put_file(path, f, sizeof f);
            wb_tensor *x = wb_load_idx_tensor(path);
            if (x) assert_true(wb_size(x) * (int64_t)wb_dtype_bytes(wb_dtype_of(x)) <= 14);
        }
}

TEST_IN_SCOPE(images_and_labels)
{
    unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 51, 102, 255};
    unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};
    put_file(path, images, sizeof images);
    put_file(other, labels, sizeof labels);
    wb_dataset *d = wb_load_idx(path, other);
    assert_int_equal(wb_dataset_length(d), 2);
    wb_tensor *x = wb_dataset_x(d), *y = wb_dataset_y(d);
    assert_string_equal(wb_describe(x), "[2,1,1,2] f32");
    assert_string_equal(wb_describe(y), "[2] i32");
    assert_true(wb_at(x, 0, 0, 0, 1) == (double)0.2f && wb_at(x, 1, 0, 0, 1) == 1 &&
                wb_at(y, 0) == 7);
    REFUSED(wb_load_idx(other, path), WB_ERROR_FORMAT, "images");
    REFUSED(wb_load_idx(path, path), WB_ERROR_FORMAT, "labels");
    labels[7] = 1;
    put_file(other, labels, sizeof labels - 1);
    REFUSED(wb_load_idx(path, other), WB_ERROR_FORMAT, "2", "images", "1", "labels");
    assert_null(wb_load_idx(WB_TEST_NOWHERE, other));
    assert_null(wb_load_idx_tensor(NULL));
}

TEST_IN_SCOPE(mnist)
{
    char images[512], labels[512];
    if (!shared_file(images, sizeof images, "mnist-t10k/t10k-images-idx3-ubyte.gz") ||
        !shared_file(labels, sizeof labels, "mnist-t10k/t10k-labels-idx1-ubyte.gz")) skip();
    wb_dataset *d = wb_load_idx(images, labels);
    if (!d) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[10000,1,28,28] f32");
    const int32_t *y = wb_data(wb_dataset_y(d));
    const int32_t first[] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    assert_memory_equal(y, first, sizeof first);
    int counts[10] = {0};
    for (int i = 0; i < 10000; i++) counts[y[i]]++;
    assert_int_equal(counts[0], 980);
    assert_int_equal(counts[1], 1135);
    const float *x = wb_data(wb_dataset_x(d));
    double sum = 0;
    for (int i = 0; i < 10000 * 784; i++) sum += x[i];
    assert_true(sum / 7840000 > 0.1325 && sum / 7840000 < 0.1326);
}

TEST(every_failure)
{
    unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 51, 102, 255};
    unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};
    put_file(path, images, sizeof images);
    put_file(other, labels, sizeof labels);
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        int64_t before = wb_memory_used();
        wb__alloc_fail_at(n);
        wb_clear_error();
        wb_dataset *d = wb_load_idx(path, other);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (d != NULL));
        if (!d) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb_object_free(d);
        wb__pool_trim();
        assert_true(wb_memory_used() <= before + 2048);       /* for the scope's list */
    }
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/a.idx", folder);
    snprintf(other, sizeof other, "%s/b.idx", folder);
    return 0;
}

int main(void) { return run_cases(make, remove_folder); }
