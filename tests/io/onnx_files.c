/* Files of ONNX: protobuf's wire format, tensors and their values, external data, tables. */
#include "onnx_file.h"

#include <sys/stat.h>

/* ---- the wire format ------------------------------------------------------------------------- */

TEST(fields_come_back_as_they_were_written)
{
    const int64_t ints[] = {0, 1, -1, INT64_MAX, INT64_MIN, 300};
    const float floats[] = {1.5f, -0.f, 1e30f};
    wb__wire_free(&o);
    wb__wire_put_int(&o, 1, -5);
    wb__wire_put_float(&o, 2, 0.25f);
    wb__wire_put_text(&o, 16, "text");
    const size_t outer = wb__wire_begin(&o, 3), inner = wb__wire_begin(&o, 4);
    for (int i = 0; i < 40; i++) wb__wire_put_text(&o, 1, "more than one byte of length");
    wb__wire_end(&o, inner);
    wb__wire_end(&o, outer);
    wb__wire_put_ints(&o, 5, 6, ints);
    wb__wire_put_floats(&o, (1 << 29) - 1, 3, floats);
    wb__wire_put_float(&o, 7, 2);
    assert_false(o.failed);

    const wb__wire_file file = {"wire", o.data};
    wb__wire w = wb__wire_of(&file, o.data, o.n), inside, list;
    wb__wire_field f;
    int64_t i;
    float x;
    wb__span text;
    uint64_t number;
    assert_true(wb__wire_next(&w, &f) && f.number == 1 && wb__wire_int(&w, &f, &i) && i == -5);
    assert_true(wb__wire_next(&w, &f) && wb__wire_float(&w, &f, &x) && x == 0.25f);
    assert_true(wb__wire_next(&w, &f) && f.number == 16 && wb__wire_text(&w, &f, &text));
    assert_true(text.n == 4 && !memcmp(text.at, "text", 4));
    assert_true(wb__wire_next(&w, &f) && f.number == 3 && wb__wire_message(&w, &f, &inside));
    assert_true(wb__wire_next(&inside, &f) && f.number == 4 && f.n == 40 * 30);
    assert_false(wb__wire_next(&inside, &f) || inside.status);
    assert_true(wb__wire_next(&w, &f) && wb__wire_list(&w, &f, WB__WIRE_VARINT, &list));
    assert_int_equal(wb__wire_count(&list, WB__WIRE_VARINT), 6);
    for (int k = 0; k < 6; k++)
        assert_true(wb__wire_number(&list, WB__WIRE_VARINT, &number) && (int64_t)number == ints[k]);
    assert_false(wb__wire_number(&list, WB__WIRE_VARINT, &number) || list.status);
    assert_true(wb__wire_next(&w, &f) && wb__wire_list(&w, &f, WB__WIRE_FIXED32, &list));
    assert_true(f.number == (1 << 29) - 1 && wb__wire_count(&list, WB__WIRE_FIXED32) == 3);
    assert_memory_equal(f.bytes, floats, sizeof floats);
    assert_true(wb__wire_next(&w, &f) && wb__wire_list(&w, &f, WB__WIRE_FIXED32, &list));
    assert_true(wb__wire_count(&list, WB__WIRE_FIXED32) == 1);      /* one that is not packed */
    assert_false(wb__wire_next(&w, &f) || w.status);
}

/* The bytes are no message; the error names the offset and the facts. */
#define NO_MESSAGE(bytes, ...)                                                                     \
    do {                                                                                           \
        const uint8_t data[] = bytes;                                                              \
        const wb__wire_file file = {"wire", data};                                                 \
        wb__wire w = wb__wire_of(&file, data, sizeof data);                                        \
        wb__wire_field f;                                                                          \
        wb_clear_error();                                                                          \
        while (wb__wire_next(&w, &f)) {}                                                           \
        assert_int_equal(w.status, WB_ERROR_FORMAT);                                               \
        FAILED(WB_ERROR_FORMAT, "wire", __VA_ARGS__);                                              \
    } while (0)
#define BYTES(...) {__VA_ARGS__}

TEST(broken_messages)
{
    NO_MESSAGE(BYTES(0x08), "byte 0", "field 1", "no value");
    NO_MESSAGE(BYTES(0x08, 1, 0x88), "byte 2", "ends");
    NO_MESSAGE(BYTES(0x08, 0x80, 0x80), "byte 1", "ends");
    NO_MESSAGE(BYTES(0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2), "byte 1", "64");
    NO_MESSAGE(BYTES(0x08, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0), "byte 1", "64");
    NO_MESSAGE(BYTES(0x00, 1), "byte 0", "number 0");
    NO_MESSAGE(BYTES(0x80, 0x80, 0x80, 0x80, 0x10, 1), "byte 0", "number 536870912");
    NO_MESSAGE(BYTES(0x10, 1, 0x0b, 0x0c), "byte 2", "field 1", "group");
    NO_MESSAGE(BYTES(0x0c), "byte 0", "group");
    NO_MESSAGE(BYTES(0x0e), "byte 0", "kind 6");
    NO_MESSAGE(BYTES(0x0f), "byte 0", "kind 7");
    NO_MESSAGE(BYTES(0x0d, 1, 2, 3), "byte 1", "4");
    NO_MESSAGE(BYTES(0x09, 1, 2, 3, 4, 5, 6, 7), "byte 1", "8");
    NO_MESSAGE(BYTES(0x10, 0, 0x0a, 3, 1, 2), "byte 2", "3", "2");
    NO_MESSAGE(BYTES(0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), "byte 0",
               "18446744073709551615");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Puts numbers in a field of a tensor: as varints if `width` is 0, else as they are, packed or one
 * field each. */
static void put_numbers(uint32_t field, int width, bool packed, int n, const int64_t *numbers)
{
    uint8_t bytes[128];
    for (int i = 0; i < n * width; i++) bytes[i] = (uint8_t)(numbers[i / width] >> (i % width * 8));
    if (packed && width) wb__wire_put_bytes(&o, field, bytes, (size_t)(n * width));
    else if (packed) wb__wire_put_ints(&o, field, n, numbers);
    const wb__wire_kind kind = width == 4 ? WB__WIRE_FIXED32 : WB__WIRE_FIXED64;
    for (int i = 0; !packed && i < n; i++) {
        if (width) wb__wire_put_fixed(&o, field, kind, (uint64_t)numbers[i]);
        else wb__wire_put_int(&o, field, numbers[i]);
    }
}

/* One initializer "t" of one dimension, with numbers in a field */
static void typed_file(int type, uint32_t field, int width, bool packed, int dim, int n,
                       const int64_t *numbers)
{
    start();
    const size_t at = begin_tensor(INITIALIZER, "t", type, 1, (int64_t[]){dim});
    put_numbers(field, width, packed, n, numbers);
    end_result(at, "t");
    finish();
}

TEST(values_of_every_field)
{
    const struct { int type, field, width, dim, n, bytes; int64_t numbers[4], first; } rows[] = {
        {WB__ONNX_FLOAT, 4, 4, 2, 2, 8, {0x3fc00000, 0x40000000}, 0x400000003fc00000},
        {WB__ONNX_COMPLEX64, 4, 4, 1, 2, 8, {0x3fc00000, 0x40000000}, 0x400000003fc00000},
        {WB__ONNX_DOUBLE, 10, 8, 2, 2, 16, {1, 0x3ff8000000000000}, 1},
        {WB__ONNX_COMPLEX128, 10, 8, 1, 2, 16, {1, 0x3ff8000000000000}, 1},
        {WB__ONNX_INT32, 5, 0, 2, 2, 8, {-2, 3}, 0x3fffffffe},
        {WB__ONNX_INT16, 5, 0, 2, 2, 4, {-2, 3}, 0x3fffe},
        {WB__ONNX_INT8, 5, 0, 4, 4, 4, {-128, 127, -1, 0}, 0xff7f80},
        {WB__ONNX_UINT8, 5, 0, 2, 2, 2, {255, 1}, 0x1ff},
        {WB__ONNX_UINT16, 5, 0, 2, 2, 4, {65535, 1}, 0x1ffff},
        {WB__ONNX_BOOL, 5, 0, 3, 3, 3, {1, 0, 1}, 0x10001},
        {WB__ONNX_FLOAT16, 5, 0, 2, 2, 4, {0x3c00, 0xbc00}, 0xbc003c00},
        {WB__ONNX_BFLOAT16, 5, 0, 2, 2, 4, {0x3f80, 0xbf80}, 0xbf803f80},
        {17, 5, 0, 2, 2, 2, {0x38, 0xb8}, 0xb838},
        {22, 5, 0, 3, 2, 2, {0x21, 0x03}, 0x0321},          /* int4: two elements a number */
        {WB__ONNX_INT64, 7, 0, 2, 2, 16, {-7, 9}, -7},
        {WB__ONNX_UINT32, 11, 0, 2, 2, 8, {0xffffffff, 1}, 0x1ffffffff},
        {WB__ONNX_UINT64, 11, 0, 2, 2, 16, {-1, 1}, -1},
    };
    for (size_t i = 0; i < WB__COUNT(rows); i++)
        for (int packed = 0; packed < 2; packed++) {
            int64_t first = 0;
            typed_file(rows[i].type, (uint32_t)rows[i].field, rows[i].width, packed, rows[i].dim,
                       rows[i].n, rows[i].numbers);
            READS();
            const wb__onnx_tensor *t = m->tensors;
            assert_true((int)t->type == rows[i].type && t->size == rows[i].dim);
            memcpy(&first, t->data, (size_t)WB__MIN(rows[i].bytes, 8));
            assert_true(first == rows[i].first);
            typed_file(rows[i].type, (uint32_t)rows[i].field, rows[i].width, packed,
                       rows[i].dim + 2, rows[i].n, rows[i].numbers);
            IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "shape");
            typed_file(WB__ONNX_STRING, (uint32_t)rows[i].field, rows[i].width, packed, rows[i].n,
                       rows[i].n, rows[i].numbers);
            IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "string", "field");
        }
}

TEST(texts_and_empty_tensors)
{
    start();
    size_t at = begin_tensor(INITIALIZER, "t", WB__ONNX_STRING, 2, (int64_t[]){1, 2});
    wb__wire_put_text(&o, 6, "one");
    wb__wire_put_text(&o, 6, "");
    wb__wire_end(&o, at);
    at = begin_tensor(INITIALIZER, "none", WB__ONNX_FLOAT, 2, (int64_t[]){0, INT64_MAX / 16});
    wb__wire_end(&o, at);
    at = begin_tensor(INITIALIZER, "scalar", WB__ONNX_FLOAT, 0, NULL);
    wb__wire_put_floats(&o, 4, 1, (float[]){3});
    end_result(at, "t");
    finish();
    READS();
    const char *const *texts = m->tensors[0].data;
    assert_string_equal(texts[0], "one");
    assert_string_equal(texts[1], "");
    assert_true(m->tensors[1].size == 0 && !m->tensors[1].data);
    assert_int_equal(m->tensors[2].size, 1);
    assert_memory_equal(m->tensors[2].data, &(float){3}, 4);
}

TEST(tensors_that_are_refused)
{
    const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, huge[] = {1 << 30, 1 << 30, 1 << 30};
    const int64_t none[] = {0, INT64_MAX, INT64_MAX}, negative[] = {2, -1}, two[] = {2};
    tensor_file(WB__ONNX_FLOAT, 1, two, 7);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "7", "8");
    tensor_file(WB__ONNX_FLOAT, 1, two, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "no values");
    tensor_file(WB__ONNX_FLOAT, 9, nine, 4);
    IS_REFUSED(WB_ERROR_FORMAT, "8", "dimensions");
    tensor_file(WB__ONNX_FLOAT, 3, huge, 4);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "1073741824", "1073741824");
    tensor_file(WB__ONNX_FLOAT, 3, none, 0);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "9223372036854775807");
    tensor_file(WB__ONNX_FLOAT, 2, negative, 4);
    IS_REFUSED(WB_ERROR_FORMAT, "dimension -1");
    tensor_file(0, 1, two, 8);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "type 0");
    tensor_file(29, 1, two, 8);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "type 29");
    tensor_file(WB__ONNX_STRING, 1, two, 8);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "string");
    tensor_file(WB__ONNX_BOOL, 1, (int64_t[]){8}, 8);
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "bool", "7", "2");
    const struct { int type, field; int64_t number; } out_of_range[] = {
        {WB__ONNX_INT8, 5, 128}, {WB__ONNX_INT8, 5, -129}, {WB__ONNX_UINT8, 5, -1},
        {WB__ONNX_BOOL, 5, 2}, {WB__ONNX_FLOAT16, 5, 65536}, {WB__ONNX_INT16, 5, 32768},
        {WB__ONNX_UINT32, 11, 1ll << 32}};
    for (size_t i = 0; i < WB__COUNT(out_of_range); i++) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)out_of_range[i].number);
        typed_file(out_of_range[i].type, (uint32_t)out_of_range[i].field, 0, true, 1, 1,
                   &out_of_range[i].number);
        IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", number);
    }
    start();
    size_t at = begin_tensor(INITIALIZER, "t", WB__ONNX_FLOAT, 1, two);
    wb__wire_put_floats(&o, 4, 2, (float[]){1, 2});
    wb__wire_put_bytes(&o, 9, "12345678", 8);
    wb__wire_end(&o, at);
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "\"t\"", "raw_data", "field 4");
    start();
    at = begin_tensor(INITIALIZER, "t", WB__ONNX_FLOAT, 1, two);
    wb__wire_put_text(&o, 3, "");
    wb__wire_end(&o, at);
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "segment");
    start();
    wb__wire_put_text(&o, 15, "");
    finish();
    IS_REFUSED(WB_ERROR_UNSUPPORTED, "sparse", "SparseTensorProto");
    start();
    put_floats("t", 1, (float[]){1});
    put_floats("t", 1, (float[]){1});
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "two", "\"t\"");
    start();
    put_floats("", 1, (float[]){1});
    finish();
    IS_REFUSED(WB_ERROR_FORMAT, "initializer", "name");
}

/* A layer keeps the graph without the values of its parameters. */
TEST(a_graph_in_memory_may_lack_values)
{
    tensor_file(WB__ONNX_FLOAT, 1, (int64_t[]){2}, 0);
    WORKS(wb__onnx_read(NULL, o.data, o.n, &m));
    assert_true(m->n_tensors == 1 && m->tensors->size == 2 && !m->tensors->data);
}

/* ---- external data --------------------------------------------------------------------------- */

/* A file with two floats at the place; NULL: no such entry. */
static int read_external(const char *location, const char *offset, const char *length)
{
    start();
    const size_t at = begin_tensor(INITIALIZER, "t", WB__ONNX_FLOAT, 1, (int64_t[]){2});
    if (location) put_entry("location", location);
    if (offset) put_entry("offset", offset);
    if (length) put_entry("length", length);
    put_entry("checksum", "of no meaning");
    wb__wire_put_int(&o, 14, 1);
    end_result(at, "t");
    finish();
    return wb__onnx_read(path, o.data, o.n, &m);
}

#define EXTERNAL_IS_REFUSED(location, offset, length, ...)                                         \
    FAILS(read_external(location, offset, length), WB_ERROR_FORMAT, path, "\"t\"", __VA_ARGS__)

TEST(values_in_other_files)
{
    const float data[] = {1, 2, 3, 4};
    put_file(in_folder("w.bin"), data, sizeof data);
    mkdir(in_folder("inner"), 0777);
    mkdir(in_folder("beside"), 0777);
    put_file(in_folder("inner/w.bin"), data, sizeof data);
    put_file(in_folder("beside/secret"), data, sizeof data);
    snprintf(path, sizeof path, "%s/inner/m.onnx", folder);
    assert_int_equal(symlink("../beside/secret", in_folder("inner/out")), 0);
    assert_int_equal(symlink("w.bin", in_folder("inner/in")), 0);
    assert_int_equal(symlink("..", in_folder("inner/up")), 0);

    const char *const good[] = {"w.bin", "./w.bin", "in", ".//in"};
    for (int i = 0; i < 4; i++) {
        WORKS(read_external(good[i], "4", "8"));
        assert_memory_equal(m->tensors->data, data + 1, 8);
        WORKS(read_external(good[i], "8", NULL));
        assert_memory_equal(m->tensors->data, data + 2, 8);
        WORKS(read_external(good[i], NULL, NULL));
        assert_memory_equal(m->tensors->data, data, 8);
    }
    EXTERNAL_IS_REFUSED(NULL, NULL, NULL, "location");
    EXTERNAL_IS_REFUSED("../beside/secret", NULL, NULL, "inside");
    EXTERNAL_IS_REFUSED("up/../inner/w.bin", NULL, NULL, "inside");
    EXTERNAL_IS_REFUSED("..", NULL, NULL, "inside");
    EXTERNAL_IS_REFUSED(in_folder("inner/w.bin"), NULL, NULL, "inside");
    EXTERNAL_IS_REFUSED("out", NULL, NULL, "link");
    EXTERNAL_IS_REFUSED("up/w.bin", NULL, NULL, "link");
    EXTERNAL_IS_REFUSED("up/beside/secret", NULL, NULL, "link");
    EXTERNAL_IS_REFUSED("w.bi", NULL, NULL, "w.bi");
    EXTERNAL_IS_REFUSED("w.bin", "9", NULL, "16", "9");
    EXTERNAL_IS_REFUSED("w.bin", "17", NULL, "16", "17");
    EXTERNAL_IS_REFUSED("w.bin", "9223372036854775807", NULL, "16", "9223372036854775807");
    EXTERNAL_IS_REFUSED("w.bin", "9223372036854775808", NULL, "offset");
    EXTERNAL_IS_REFUSED("w.bin", "-4", NULL, "offset", "-4");
    EXTERNAL_IS_REFUSED("w.bin", "0x4", NULL, "offset");
    EXTERNAL_IS_REFUSED("w.bin", "", NULL, "offset");
    EXTERNAL_IS_REFUSED("w.bin", NULL, "12", "12", "8");
    wb_clear_error();
    assert_int_equal(read_external(".", NULL, NULL), WB_ERROR_FORMAT);      /* the folder itself */
    wb__onnx_free(m);
    assert_int_equal(wb__onnx_read(NULL, o.data, o.n, &m), WB_ERROR_FORMAT);
}

/* Tensors may share bytes of another file, and what they have beyond it counts. */
TEST(values_that_overlap)
{
    const float data[] = {1, 2, 3, 4};
    put_file(in_folder("w.bin"), data, sizeof data);
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    for (int limit = 31; limit < 33; limit++) {
        start();
        for (int i = 0; i < 3; i++) {
            const size_t at = begin_tensor(INITIALIZER, (const char *[]){"a", "b", "t"}[i],
                                           WB__ONNX_FLOAT, 1, (int64_t[]){4});
            put_entry("location", "w.bin");
            wb__wire_put_int(&o, 14, 1);
            wb__wire_end(&o, at);
        }
        put_name(OUTPUT, "t");
        finish();
        wb_set_unpack_limit(limit);
        wb_clear_error();
        const int status = wb__onnx_read(path, o.data, o.n, &m);
        assert_int_equal(status, limit < 32 ? WB_ERROR_FORMAT : 0);
        if (status) FAILED(WB_ERROR_FORMAT, path, "\"t\"", "overlap", "wb_set_unpack_limit");
        else assert_memory_equal(m->tensors[1].data, data, 16);
        m = (wb__onnx_free(m), NULL);
        wb_clear_error();
    }
    wb_set_unpack_limit((int64_t)4 << 30);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void put_file_as(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_file(path, o.data, o.n);
}

TEST_IN_SCOPE(initializers_as_tensors)
{
    put_everything();
    const char *const names[] = {"m.onnx", "m.dat"};
    for (int i = 0; i < 2; i++) {                       /* by the contents, without the ending */
        put_file_as(names[i]);
        wb_tree *tree = wb_load_tensors(path);
        if (!tree) fail_msg("%s", wb_error());
        assert_int_equal(wb_child_count(tree), 3);
        assert_string_equal(wb_describe(wb_get(tree, "w")), "[2] f32");
        assert_string_equal(wb_describe(wb_get(tree, "i")), "[3] i64");
        assert_true(wb_at(wb_get(tree, "i"), 1) == 300);
        assert_true(wb_at(wb_get(tree, "w"), 1) == 2);
        assert_true(wb_at(wb_get(tree, "e"), 0) == 3);
    }
    wb__table t;
    WORKS(wb__table_load(path, NULL, false, &t));
    assert_true(t.n == 3 && !t.entries[2].data && t.entries[2].bytes == 8);
    assert_memory_equal(t.mapping->data + t.entries[2].begin, ((float[]){1, 2}), 8);
    wb__table_free(&t);
}

TEST(what_is_taken_for_a_file_of_onnx)
{
    put_everything();
    put_file_as("m.dat");
    wb__mapping *file = wb__map(path);
    assert_int_equal(wb__format_of(file), WB__FORMAT_ONNX);
    wb__unmap(file);
    wb__wire_put_int(&o, 99, 1);                        /* a field that no model has */
    put_file_as("m.dat");
    file = wb__map(path);
    assert_int_equal(wb__format_of(file), WB__FORMAT_UNKNOWN);
    wb__unmap(file);
    put_file_as("m.onnx");
    wb__table t;
    WORKS(wb__table_load(path, NULL, true, &t));
    wb__table_free(&t);
    put_file(path, "\x08\x08", 2);
    FAILS(wb__table_load(path, NULL, true, &t), WB_ERROR_FORMAT, path, "graph");
    tensor_file(WB__ONNX_UINT16, 1, (int64_t[]){4}, 8);
    put_file_as("m.onnx");
    REFUSED(wb_load_tensors(path), WB_ERROR_DTYPE, path, "\"t\"", "uint16");
}

TEST(every_failure)
{
    put_everything();
    put_file_as("m.onnx");
    bool finished = false;
    wb__pool_trim();
    for (int64_t n = 1; !finished; n++) {
        wb__table t;
        const int64_t before = wb_memory_used();
        wb__alloc_fail_at(n);
        wb_clear_error();
        const int status = wb__table_load(path, NULL, true, &t);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_int_equal(status, finished ? 0 : WB_ERROR_MEMORY);
        if (!finished) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb__table_free(&t);
        wb__pool_trim();
        assert_true(wb_memory_used() == before);
    }
}

int main(void) { return run_cases(make_folder, clean); }
