/* NPZ archives: those of Python and NumPy, those of Weber, and invalid ones; trees of tensors
 * from files. */
#include "folder.h"
#include "python.h"

#include "base/files/file.h"
#include "engine/tensor.h"
#include "io/formats.h"
#include "io/numpy/npz.h"

#include <unistd.h>

static char archive[96];
static bool has_python;

#ifndef WB_HAVE_ZIP

TEST_IN_SCOPE(without_libzip)
{
    wb__saving list = {0};
    assert_int_equal(wb__saving_add(&list, "", "x", wb_ones(3)), 0);
    assert_int_equal(wb__npz_save(archive, &list), 0);
    wb__saving_free(&list);
    REFUSED(wb_load_tensors(archive), WB_ERROR_UNSUPPORTED, "libzip-dev");
}

#else

static int load(const char *path, bool values, wb__table *out)
{
    wb__mapping *m = wb__map(path);
    assert_non_null(m);
    int status = wb__npz_table(m, values, out);
    if (status) wb__unmap(m);
    return status;
}

static const wb__entry *entry(const wb__table *t, const char *name, const char *type,
                              wb_dtype dtype)
{
    const wb__entry *e = wb__table_find(t, name);
    if (!e) fail_msg("no member %s", name);
    assert_string_equal(e->type, type);
    assert_int_equal(e->dtype, dtype);
    return e;
}

TEST(what_python_writes)
{
    if (!has_python) skip();
    const float six[] = {0, 1, 2, 3, 4, 5}, turned[] = {0, 2, 4, 1, 3, 5};
    for (int i = 0; i < 4; i++) {
        wb__table t;
        const bool values = i < 2;
        if (load(in_folder(i % 2 ? "deflated.npz" : "stored.npz"), values, &t))
            fail_msg("%s", wb_error());
        assert_int_equal(t.n, 7);
        const wb__entry *e = entry(&t, "layers.0.weight", "<f4", WB_F32);
        assert_true(e->ndim == 2 && e->dims[0] == 2 && e->dims[1] == 3 && e->bytes == 24);
        if (values) assert_memory_equal(e->data, six, 24);
        else assert_null(e->data);
        e = entry(&t, "turned", "<f4", WB_F32);
        if (values) assert_memory_equal(e->data, turned, 24);
        e = entry(&t, "deep/er", "<i2", WB_I32);
        assert_int_equal(e->bytes, 12);
        if (values) assert_memory_equal(e->data, ((int32_t[]){-1, 2, -32768}), 12);
        e = entry(&t, "flags", "|b1", WB_BOOL);
        if (values) assert_memory_equal(e->data, "\0\1\1\1", 4);
        e = entry(&t, "a number", "<f8", WB_F64);
        assert_int_equal(e->ndim, 0);
        if (values) assert_memory_equal(e->data, &(double){2.5}, 8);
        e = entry(&t, "empty", "<f2", WB_F16);
        assert_true(e->dims[0] == 0 && e->dims[1] == 7 && e->bytes == 0);
        entry(&t, "gr\xc3\xb6\xc3\x9f" "e", "|u1", WB_U8);
        wb__table_free(&t);
    }
    wb__table t;
    if (load(in_folder("others.npz"), true, &t)) fail_msg("%s", wb_error());
    assert_int_equal(t.n, 7);
    entry(&t, "f4", "<f4", WB_F32);
    assert_int_equal(entry(&t, "notes.txt", "no array", 0)->bytes, 5);
    assert_int_equal(entry(&t, "big", ">f4", 0)->bytes, 4);
    entry(&t, "record", "record", 0);
    entry(&t, "object", "|O", 0);
    assert_int_equal(entry(&t, "nine", "|u1", 0)->axes, 9);
    entry(&t, "huge", "too large", 0);
    wb__table_free(&t);
    REFUSED(wb_load_tensors(in_folder("others.npz")), WB_ERROR_DTYPE, in_folder("others.npz"));
    assert_true(HAS_LINE(wb_error(), "\"big\"", ">f4"));
    assert_true(HAS_LINE(wb_error(), "\"notes.txt\"", "array"));
    assert_int_equal(load(in_folder("nothing.npz"), true, &t), 0);
    assert_int_equal(t.n, 0);
    wb__table_free(&t);
    if (load(in_folder("many.npz"), true, &t)) fail_msg("%s", wb_error());
    assert_int_equal(t.n, 70000);
    assert_int_equal(*(const uint8_t *)entry(&t, "69999", "|u1", WB_U8)->data, 69999 % 251);
    wb__table_free(&t);
}

TEST_IN_SCOPE(what_numpy_writes)
{
    if (!has_python || !python_has("numpy")) skip();
    for (int i = 0; i < 2; i++) {
        wb_tree *t = wb_load_tensors(in_folder(i ? "numpy.npz" : "numpy-packed.npz"));
        if (!t) fail_msg("%s", wb_error());
        assert_string_equal(wb_describe(wb_get(t, "x.y")), "[3,4] f32");
        assert_true(wb_at(wb_get(t, "x.y"), 2, 1) == 9);
        assert_memory_equal(wb_data(wb_get(t, "bool")), "\1\0", 2);
        assert_true(wb_at(wb_get(t, "f"), 1, 0) == 3);
    }
    wb_tree *t = wb_load_tensors(in_folder("numpy.npy"));
    assert_true(wb_at(wb_get(t, "0"), 0, 2) == 2);
}

/* Tensors of several dtypes and names: "a.b" is one name with a dot, not b within a. */
static wb__saving some(void)
{
    const float six[] = {0, 1, 2, 3, 4, 5}, two[] = {1, 2};
    wb__saving list = {0};
    uint16_t brain[2];
    wb__convert(brain, WB_BF16, two, WB_F32, 2);
    wb_tensor *x = wb_from(six, WB_F32, 2, (int64_t[]){2, 3});
    int status = wb__saving_add(&list, "a.", "b", x);
    status |= wb__saving_add(&list, "", "gr\xc3\xb6\xc3\x9f" "e",
                             wb_from("\1\0", WB_BOOL, 1, (int64_t[]){2}));
    status |= wb__saving_add(&list, "", "half", wb_astype(x, WB_F16));
    status |= wb__saving_add(&list, "", "brain", wb_from(brain, WB_BF16, 1, (int64_t[]){2}));
    status |= wb__saving_add(&list, "", "number", wb_full_array(7, WB_I64, 0, NULL));
    status |= wb__saving_add(&list, "", "empty", wb_zeros(0, 5));
    assert_int_equal(status, 0);
    return list;
}

TEST_IN_SCOPE(what_we_write)
{
    /* form 0: sizes and offsets of 32 bits; 1: both of 64 bits; 2: only the offsets of 64 bits */
    for (int form = 0; form < 3; form++) {
        wb__npz_limit = form == 0 ? UINT32_MAX : form == 1 ? 1 : 300;
        wb__saving list = some();
        if (wb__npz_save(archive, &list)) fail_msg("%s", wb_error());
        wb__npz_limit = UINT32_MAX;
        wb__saving_free(&list);
        wb_tree *t = wb_load_tensors(archive);
        if (!t) fail_msg("%s", wb_error());
        assert_string_equal(wb_describe(wb_get(t, "a.b")), "[2,3] f32");
        assert_true(wb_at(wb_get(t, "a.b"), 1, 2) == 5);
        assert_memory_equal(wb_data(wb_get(t, "gr\xc3\xb6\xc3\x9f" "e")), "\1\0", 2);
        assert_string_equal(wb_describe(wb_get(t, "half")), "[2,3] f16");
        assert_string_equal(wb_describe(wb_get(t, "brain")), "[2] f32");
        assert_true(wb_item(wb_get(t, "number")) == 7);
        assert_string_equal(wb_describe(wb_get(t, "empty")), "[0,5] f32");
        assert_null(wb_get(t, "a"));
        assert_null(wb_get(t, "a.b.c"));
        if (has_python) assert_int_equal(python_script("io/npz_files.py check", archive), 0);
    }
    wb__saving list = {0};
    assert_int_equal(wb__npz_save(archive, &list), 0);     /* an empty archive */
    wb__table t;
    assert_int_equal(load(archive, true, &t), 0);
    assert_int_equal(t.n, 0);
    wb__table_free(&t);
    assert_int_equal(wb__saving_add(&list, "", "x", wb_ones(3)), 0);
    assert_int_equal(wb__saving_add(&list, "", "x", wb_ones(3)), 0);
    FAILS(wb__npz_save(archive, &list), WB_ERROR_ARGUMENT, "tensors", "\"x\"");
    wb__saving_free(&list);
    list = (wb__saving){0};
    char name[70001];
    memset(name, 'n', 70000);
    name[70000] = 0;
    assert_int_equal(wb__saving_add(&list, "", name, wb_ones(3)), 0);
    assert_int_equal(wb__npz_save(archive, &list), WB_ERROR_ARGUMENT);
    wb__saving_free(&list);
    list = (wb__saving){0};
    wb_tensor *one = wb_ones(1);
    for (int i = 0; i < 66000; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(wb__saving_add(&list, "", name, one), 0);
    }
    assert_int_equal(wb__npz_save(archive, &list), 0);
    wb__saving_free(&list);
    assert_int_equal(load(archive, true, &t), 0);
    assert_int_equal(t.n, 66000);
    wb__table_free(&t);
    if (has_python) assert_int_equal(python_script("io/npz_files.py check", archive), 0);
}

/* A tree is saved and loaded in one format after the other; names with dots stay single names. */
TEST_IN_SCOPE(trees_from_format_to_format)
{
    static const char *const endings[] = {"safetensors", "npz", "bson", "npz"};
    wb__saving list = {0};
    const float six[] = {0, 1, 2, 3, 4, 5};
    wb_tensor *x = wb_from(six, WB_F32, 2, (int64_t[]){2, 3});
    assert_int_equal(wb__saving_add(&list, "layers.0.", "weight", x), 0);
    assert_int_equal(wb__saving_add(&list, "layers.0.", "bias", wb_astype(x, WB_F64)), 0);
    assert_int_equal(wb__saving_add(&list, "", "layers", wb_astype(x, WB_I64)), 0);
    assert_int_equal(wb__npz_save(archive, &list), 0);
    wb__saving_free(&list);
    wb_tree *t = wb_load_tensors(archive);
    for (size_t i = 0; i < WB__COUNT(endings); i++) {
#ifndef WB_HAVE_BSON
        if (!strcmp(endings[i], "bson")) continue;
#endif
        char path[128];
        snprintf(path, sizeof path, "%s/tree.%s", folder, endings[i]);
        if (!t || wb_save(path, t)) fail_msg("%s", wb_error());
        t = wb_load_tensors(path);
        if (!t) fail_msg("%s", wb_error());
        assert_string_equal(wb_describe(wb_get(t, "layers.0.bias")), "[2,3] f64");
        assert_string_equal(wb_describe(wb_get(t, "layers")), "[2,3] i64");
        assert_memory_equal(wb_data(wb_get(t, "layers.0.weight")), six, 24);
        unlink(path);
    }
    wb_layer *model = wb_Chain(wb_Dense(3, 4, wb_relu), wb_BatchNorm(4), wb_Dense(4, 2));
    wb_layer *other = wb_Chain(wb_Dense(3, 4, wb_relu), wb_BatchNorm(4), wb_Dense(4, 2));
    if (wb_save(archive, model) || wb_load_state(archive, other)) fail_msg("%s", wb_error());
    assert_memory_equal(wb_data(wb_get(model, "layers.0.weight")),
                        wb_data(wb_get(other, "layers.0.weight")), 48);
}

/* A member that is larger than any buffer of the writer and reader keeps its values. */
TEST_IN_SCOPE(large_members)
{
    wb__saving list = {0};
    wb_tensor *x = wb_reshape(wb_arange(3 << 20, WB_F32), 3, 1 << 20);
    assert_int_equal(wb__saving_add(&list, "", "x", x), 0);
    assert_int_equal(wb__npz_save(archive, &list), 0);
    wb__saving_free(&list);
    wb_tree *t = wb_load_tensors(archive);
    assert_memory_equal(wb_data(wb_get(t, "x")), wb_data(x), 12 << 20);
}

TEST(what_is_not_read)
{
    if (!has_python) skip();
    static const struct { const char *file, *facts[6]; } wrong[] = {
        {"twice.npz", {"\"a\""}},
        {"nameless.npz", {"0", "name"}},
        {"bzip2.npz", {"\"a.npy\"", "byte 0", "compressed"}},
        {"locked.npz", {"\"a.npy\"", "byte 0", "encrypted"}},
        {"short.npz", {"\"a.npy\"", "byte 128", "20", "24", "elements"}},
        {"long.npz", {"\"a.npy\"", "byte 128", "25", "24", "elements"}},
        {"wrong.npz", {"\"a.npy\"", "byte 0", "NPY"}},
        {"checksum.npz", {"\"a.npy\"", "byte 152", "CRC"}},
        {"claims.npz", {"0", "bytes"}},
        {"overlap.npz", {"1", "bytes"}},
        {"liar.npz", {"\"a.npy\"", "byte 128", "100", "4000000000"}},
        {"bomb.npz", {"5242880", "wb_set_unpack_limit"}},
        {"bombs.npz", {"5242880", "wb_set_unpack_limit"}},
    };
    wb_set_unpack_limit(5 << 20);
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        wb__table t;
        const int64_t before = wb_memory_used();
        assert_int_equal(load(in_folder(wrong[i].file), true, &t), WB_ERROR_FORMAT);
        if (!failed_with(WB_ERROR_FORMAT, wrong[i].facts) ||
            !HAS_FACTS(wb_error(), in_folder(wrong[i].file)))
            fail_msg("%s: %s", wrong[i].file, wb_error());
        assert_int_equal(wb_memory_used(), before);
    }
    wb__table t;
    assert_int_equal(load(in_folder("bomb.npz"), false, &t), 0);    /* reads headers only */
    assert_int_equal(t.entries[0].bytes, 50000000);
    wb__table_free(&t);
    wb_set_unpack_limit((int64_t)4 << 30);
    assert_int_equal(load(in_folder("bombs.npz"), true, &t), 0);
    assert_int_equal(t.n, 12);
    wb__table_free(&t);
}

/* A changed archive is refused, or read with at most 1000 bytes in each entry. */
static void read_or_refuse(const void *data, size_t n)
{
    put_file(archive, data, n);
    wb__table t;
    wb__mapping *m = wb__map(archive);
    assert_non_null(m);
    wb_clear_error();
    if (wb__npz_table(m, true, &t)) {
        assert_int_equal(wb_error_code(), WB_ERROR_FORMAT);
        wb__unmap(m);
        return;
    }
    for (int i = 0; i < t.n; i++)
        if (t.entries[i].dtype) assert_true(t.entries[i].bytes <= 1000);
    wb__table_free(&t);
}

TEST(every_length_and_every_byte)
{
    if (!has_python) skip();
    static const char *const files[] = {"one.npz", "packed.npz"};
    for (int i = 0; i < 2; i++) {
        int64_t n;
        char *whole = wb__file_read(in_folder(files[i]), &n);
        for (int64_t cut = 0; cut < n; cut++) {
            put_file(archive, whole, (size_t)cut);
            wb__table t;
            if (load(archive, true, &t) != WB_ERROR_FORMAT)
                fail_msg("%s, %lld bytes", files[i], (long long)cut);
        }
        for (int64_t at = 0; at < n; at++) {
            const char was = whole[at];
            for (int value = 0; value < 256; value += value < 8 || value > 247 ? 1 : 40) {
                whole[at] = (char)value;
                read_or_refuse(whole, (size_t)n);
            }
            whole[at] = was;
        }
        wb__free(whole);
    }
}

TEST(every_failure)
{
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__saving list = some();
        wb__alloc_fail_at(n);
        int status = wb__npz_save(archive, &list);
        wb_tree *t = status ? NULL : wb_load_tensors(archive);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        if (finished != (t != NULL)) fail_msg("allocation %lld: %d", (long long)n, status);
        if (!t) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb__saving_free(&list);
    }
    finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb__saving list = some();
        wb__io_fail_at(n);
        int status = wb__npz_save(archive, &list);
        finished = wb__io_count() < n;
        wb__io_fail_at(0);
        assert_int_equal(status, finished ? 0 : WB_ERROR_FILE);
        wb__saving_free(&list);
    }
}

#endif

/* An NPY file is a table with one entry, whose values are in the mapped file. */
TEST_IN_SCOPE(npy_in_place)
{
    wb_tensor *x = wb_reshape(wb_arange(6, WB_F32), 2, 3);
    assert_int_equal(wb_save_npy(archive, x), 0);
    wb__table t;
    assert_int_equal(wb__table_load(archive, NULL, true, &t), 0);
    assert_true(t.n == 1 && t.mapping && !t.entries[0].owned);
    assert_string_equal(t.entries[0].name, "0");
    assert_true(t.entries[0].begin == 128 && t.entries[0].bytes == 24);
    assert_ptr_equal(t.entries[0].data, t.mapping->data + 128);
    assert_memory_equal(t.entries[0].data, wb_data(x), 24);
    wb__table_free(&t);
    wb_tree *tree = wb_load_tensors(archive);
    assert_memory_equal(wb_data(wb_get(tree, "0")), wb_data(x), 24);
    assert_null(wb_load_tensors(WB_TEST_NOWHERE));
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(archive, sizeof archive, "%s/archive.npz", folder);
    has_python = python_has("zlib");
    return has_python && python_script("io/npz_files.py write", folder) != 0;
}

int main(void) { return run_cases(make, remove_folder); }
