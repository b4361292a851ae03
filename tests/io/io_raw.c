/* Files without a header as datasets. */
#include "folder.h"

#include <stdlib.h>
#include <string.h>

static void write_bytes(const char *name, const void *data, size_t bytes, off_t at, off_t total)
{
    int file = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && ftruncate(file, total) == 0);
    assert_true(pwrite(file, data, bytes, at) == (ssize_t)bytes);
    close(file);
}

static wb_raw_file raw(const char *name, wb_dtype dtype, int64_t offset, int ndim, int64_t d0,
                       int64_t d1)
{
    return (wb_raw_file){.size = sizeof(wb_raw_file), .path = in_folder(name), .dtype = dtype,
                         .offset = offset, .ndim = ndim, .dims = {d0, d1}};
}

TEST_IN_SCOPE(two_files)
{
    float x[1 + 5 * 6];
    uint8_t y[5] = {0x1f, 0x8b, 7, 8, 9};           /* begins like gzip */
    for (int i = 0; i < 31; i++) x[i] = (float)i;
    write_bytes("x", x, sizeof x, 0, sizeof x);
    write_bytes("y", y, sizeof y, 0, sizeof y);
    wb_raw_file fx = raw("x", 0, 4, 2, 2, 3), fy = raw("y", WB_U8, 0, 0, 0, 0);
    wb_dataset *d = wb_dataset_map(&fx, &fy);
    assert_int_equal(wb_dataset_length(d), 5);
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[5,2,3] f32");
    assert_true(wb_at(wb_dataset_x(d), 1, 0, 2) == 9 && wb_at(wb_dataset_x(d), 4, 1, 2) == 30);
    assert_true(wb_at(wb_dataset_y(d), 0) == 0x1f && wb_at(wb_dataset_y(d), 4) == 9);
    int64_t n = 0;
    WB_EACH_BATCH(b, wb_dataloader(d, 2, .shuffle = true, .seed = 1))
        for (int64_t i = 0; i < b.n; i++) n += (int64_t)wb_at(b.x, i, 0, 0);
    assert_int_equal(n, 1 + 7 + 13 + 19 + 25);
    d = wb_dataset_map(&fx, NULL);
    assert_true(wb_is_none(wb_dataset_y(d)) && wb_dataset_length(d) == 5);
    fx.offset = 0;
    REFUSED(wb_dataset_map(&fx, NULL), WB_ERROR_FORMAT, "124 bytes", "24 bytes");
    fx.offset = 2;
    REFUSED(wb_dataset_map(&fx, NULL), WB_ERROR_ARGUMENT, "offset 2");
    fx.offset = 28;
    REFUSED(wb_dataset_map(&fx, &fy), WB_ERROR_FORMAT, "4 observations", "5");
    fx.offset = 4000;
    assert_null(wb_dataset_map(&fx, NULL));
    fx.path = in_folder("missing");
    REFUSED(wb_dataset_map(&fx, NULL), WB_ERROR_FILE, "missing");
    fx.size = 0;
    assert_null(wb_dataset_map(&fx, NULL));
}

/* 2 GiB and 1 MiB, of which the file system stores one page. */
TEST_IN_SCOPE(a_file_larger_than_a_part)
{
    const off_t mib = 1 << 20, total = 2049 * mib;
    write_bytes("large", "\7\5", 2, total - 2, total);
    wb_raw_file f = raw("large", WB_U8, 0, 1, mib, 0);
    wb_dataset *d = wb_dataset_map(&f, NULL);
    assert_int_equal(wb_dataset_length(d), 2049);
    wb_tensor *last = wb_dataset_x(wb_obsview(d, 2, (int64_t[]){2048, 3}));
    assert_true(wb_at(last, 0, mib - 2) == 7 && wb_at(last, 0, mib - 1) == 5);
    assert_true(wb_at(last, 1, mib - 1) == 0);
}

TEST_IN_SCOPE(cifar10)
{
    enum { IMAGE = 3073 };
    static uint8_t two[2 * IMAGE], bad[IMAGE];
    two[0] = 7;
    two[1] = 255;                                   /* red, row 0, column 0 */
    two[IMAGE] = 9;
    two[IMAGE + 1 + 1024 + 32 + 2] = 51;            /* green, row 1, column 2 */
    two[2 * IMAGE - 1] = 102;                       /* blue, the last one */
    bad[0] = 10;
    write_bytes("two", two, sizeof two, 0, sizeof two);
    write_bytes("bad", bad, sizeof bad, 0, sizeof bad);
    write_bytes("short", two, IMAGE + 5, 0, IMAGE + 5);
    const char *paths[] = {in_folder("two"), in_folder("two")};
    wb_dataset *d = wb_load_cifar10(2, paths);
    assert_int_equal(wb_dataset_length(d), 4);
    wb_tensor *x = wb_dataset_x(d), *y = wb_dataset_y(d);
    assert_string_equal(wb_describe(x), "[4,3,32,32] f32");
    assert_true(wb_at(x, 0, 0, 0, 0) == 1 && wb_at(y, 2) == 7 && wb_at(y, 3) == 9);
    assert_float_equal(wb_at(x, 3, 1, 1, 2), 0.2, 1e-7);
    assert_float_equal(wb_at(x, 1, 2, 31, 31), 0.4, 1e-7);
    assert_true(wb_item(wb_sum(wb_astype(wb_gt(x, 0), WB_F32))) == 6);
    paths[1] = in_folder("bad");
    REFUSED(wb_load_cifar10(2, paths), WB_ERROR_FORMAT, "bad", "label 10");
    paths[0] = in_folder("short");
    REFUSED(wb_load_cifar10(1, paths), WB_ERROR_FORMAT, "short", "3078");
    paths[0] = in_folder("missing");
    assert_null(wb_load_cifar10(1, paths));
    assert_null(wb_load_cifar10(0, paths));
}

TEST_IN_SCOPE(every_allocation_may_fail)
{
    write_bytes("few", "\1\2\3", 3, 0, 3);
    wb_raw_file f = raw("few", WB_U8, 0, 0, 0, 0);
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__alloc_fail_at(n);
        wb_dataset *d = wb_dataset_map(&f, &f);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (d != NULL));
    }
}

int main(void) { return run_cases(make_folder, remove_folder); }
