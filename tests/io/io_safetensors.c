/* The safetensors format: written files read back equal, and any wrong bytes are an error with a
 * reason. */
#include "folder.h"
#include "golden.h"

#include "base/files/file.h"

#include <fcntl.h>
#include <unistd.h>

static const char *file_name(void) { return test_file("safetensors"); }

static void put(const void *bytes, size_t n) { put_file(file_name(), bytes, n); }

/* Writes a file with this header and n zeros after it. */
static void put_header(const char *header, size_t n)
{
    size_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + n);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
    memcpy(bytes + 8, header, length);
    put(bytes, 8 + length + n);
    free(bytes);
}

static void refused(const char *header, size_t n, const char *const *facts)
{
    wb__table st;
    put_header(header, n);
    wb_clear_error();
    assert_int_equal(wb__st_load(file_name(), true, &st), WB_ERROR_FORMAT);
    if (!failed_with(WB_ERROR_FORMAT, facts) || !HAS_FACTS(wb_error(), file_name()))
        fail_msg("%s: %s", header, wb_error());
    assert_null(st.entries);
}
#define REFUSED_HEADER(header, n, ...) refused(header, n, FACTS(__VA_ARGS__))

/* One tensor's description. */
#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

TEST(wrong_headers)
{
    REFUSED_HEADER("[]", 0, "byte 8", "header", "{");
    REFUSED_HEADER(" {}", 0, "byte 8", "header", "{");
    REFUSED_HEADER("{\"a\"}", 0, "byte 12", "':'", "name", "'}'");
    REFUSED_HEADER("{\"a\":1}", 0, "byte 13", "'{'", "tensor", "'1'");
    REFUSED_HEADER("{}x", 0, "byte 10", "header", "}");
    REFUSED_HEADER("{\"a\":{},}", 0, "byte 13", "tensor", "\"a\"", "dtype", "shape",
                   "data_offsets");
    REFUSED_HEADER("{\"__metadata__\":{},}", 0, "byte 27", "'\"'", "name", "'}'");
    REFUSED_HEADER("{\"__metadata__\":{}", 0, "byte 26", "header", "'}'");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4") "," TENSOR("a", "F32", "1", "4,8") "}", 8,
                   "byte 62", "tensor", "\"a\"");
    REFUSED_HEADER("{" TENSOR("a", "F99", "1", "0,4") "}", 4, "byte 22", "tensor", "\"a\"", "dtype",
                   "\"F99\"");
    REFUSED_HEADER("{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "byte 22",
                   "'\"'", "dtype", "'3'");
    REFUSED_HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":7,\"data_offsets\":[0,4]}}", 4, "byte 36",
                   "'['", "shape");
    REFUSED_HEADER("{" TENSOR("a", "F32", "-1", "0,4") "}", 4, "byte 37", "dimension");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1.0", "0,4") "}", 4, "byte 37", "dimension");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1e3", "0,4") "}", 4, "byte 37", "dimension");
    REFUSED_HEADER("{" TENSOR("a", "F32", "01", "0,4") "}", 4, "byte 37", "dimension");
    REFUSED_HEADER("{" TENSOR("a", "F32", "true", "0,4") "}", 4, "byte 37", "dimension");
    REFUSED_HEADER("{" TENSOR("a", "F32", "99999999999999999999", "0,4") "}", 4, "byte 37",
                   "dimension", "2^63");
    REFUSED_HEADER("{" TENSOR("a", "F32", "4294967296,4294967297", "0,4") "}", 4, "byte 36",
                   "shape");
    REFUSED_HEADER("{" TENSOR("a", "F32", "9223372036854775807,2", "0,4") "}", 4, "byte 36",
                   "shape");
    REFUSED_HEADER("{" TENSOR("a", "F32", "2", "0,4") "}", 4, "byte 36", "tensor", "\"a\"", "shape",
                   "8", "bytes", "4");
    REFUSED_HEADER("{" TENSOR("a", "F4", "3", "0,2") "}", 2, "byte 35", "tensor", "\"a\"", "F4",
                   "bytes");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "4,0") "}", 4, "byte 59", "tensor", "\"a\"");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "-4,0") "}", 4, "byte 56", "offset");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4,8") "}", 4, "byte 59", "']'", "offsets");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "4,8") "}", 8, "byte 9", "tensor", "\"a\"");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4") "," TENSOR("b", "F32", "1", "2,6") "}", 8,
                   "byte 62", "tensor", "\"b\"");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4") "," TENSOR("b", "F32", "0", "2,2") "}", 4,
                   "byte 62", "tensor", "\"b\"");
    REFUSED_HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
                   "byte 61", "tensor", "\"a\"", "\"x\"", "dtype", "shape", "data_offsets");
    REFUSED_HEADER("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
                   "\"data_offsets\":[0,4]}}", 4, "byte 28", "tensor", "\"a\"", "dtype");
    REFUSED_HEADER("{\"__metadata__\":{\"a\":1}}", 0, "byte 29", "'\"'", "metadata");
    REFUSED_HEADER("{\"__metadata__\":[]}", 0, "byte 24", "'{'", "metadata");
    REFUSED_HEADER("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "byte 27", "__metadata__");
    REFUSED_HEADER("{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}", 0, "byte 25",
                   "__metadata__", "\"a\"");
    REFUSED_HEADER("{\"a\xff\":{}}", 0, "byte 11", "UTF-8");
    REFUSED_HEADER("{\"\xed\xa0\x80\":{}}", 0, "byte 10", "UTF-8");
    REFUSED_HEADER("{\"\xc0\xaf\":{}}", 0, "byte 10", "UTF-8");
    REFUSED_HEADER("{\"a\n\":{}}", 0, "byte 11", "control", "character", "text");
    REFUSED_HEADER("{\"\\ud800x\":{}}", 0, "byte 16", "\\u", "escape", "text");
    REFUSED_HEADER("{\"\\udc00\":{}}", 0, "byte 16", "\\u", "escape", "text");
    REFUSED_HEADER("{\"\\u00g0\":{}}", 0, "byte 12", "\\u", "escape", "text");
    REFUSED_HEADER("{\"\\x\":{}}", 0, "byte 11", "escape", "text");
    REFUSED_HEADER("{\"a\\u0000b\":{}}", 0, "byte 17", "zero", "text");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4") "}", 3, "byte 62", "3", "4", "bytes",
                   "tensor", "\"a\"");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1", "0,4") "}", 5, "byte 66", "1");
    REFUSED_HEADER("{" TENSOR("a", "F32", "1000000000", "0,4000000000") "}", 5, "byte 80", "5",
                   "4000000000", "bytes", "tensor", "\"a\"");
    put("\x10\0\0\0\0\0\0\0{}", 10);
    wb__table short_header;
    assert_int_equal(wb__st_load(file_name(), true, &short_header), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "byte 8", "2", "16", "header");
    put("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    wb__table st;
    assert_int_equal(wb__st_load(file_name(), true, &st), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "byte 0", "header", "18446744073709551615");
    assert_int_equal(wb__st_load(WB_TEST_NOWHERE "/at/all", true, &st), WB_ERROR_FILE);
    put_header("{}  ", 0);                              /* a file without tensors is valid */
    assert_int_equal(wb__st_load(file_name(), true, &st), 0);
    assert_int_equal(st.n, 0);
    wb__table_free(&st);
    unlink(file_name());
}

static void make_file(void)
{
    static const double f64[2] = {1.5, -2};
    static const float f32[3] = {1, 2, 3};
    static const uint16_t f16[1] = {0x3c00};
    static const int64_t i64[1] = {-5};
    static const int8_t i8[3] = {1, -1, 0};
    static const uint8_t flags[2] = {1, 0};
    const int64_t two[1] = {2}, three[1] = {3}, one[2] = {1, 1}, none[2] = {0, 7};
    wb__st_out out[] = {
        {"flags", WB_BOOL, 1, two, 2, flags, NULL},
        {"bytes", WB_I8, 1, three, 3, i8, NULL},
        {"half", WB_F16, 2, one, 2, f16, NULL},
        {"brain", WB_BF16, 0, NULL, 2, f16, NULL},
        {"single", WB_F32, 1, three, 12, f32, NULL},
        {"double", WB_F64, 1, two, 16, f64, NULL},
        {"long", WB_I64, 0, NULL, 8, i64, NULL},
        {"empty \"quoted\" \xc3\xa9", WB_I32, 2, none, 0, NULL, NULL},
        {"unsigned", WB_U8, 1, two, 2, flags, NULL},
    };
    wb__note notes[] = {{"about", "a \"test\"\n"}};
    if (wb__st_save(NULL, file_name(), WB__COUNT(out), out, 1, notes)) fail_msg("%s", wb_error());
}

TEST(what_is_written_is_read)
{
    wb__table st;
    make_file();
    if (wb__st_load(file_name(), true, &st)) fail_msg("%s", wb_error());
    assert_int_equal(st.n, 9);
    assert_string_equal(wb__table_note(&st, "about"), "a \"test\"\n");
    assert_null(wb__table_note(&st, "more"));
    assert_true(((double *)wb__table_find(&st, "double")->data)[1] == -2);
    assert_true(((float *)wb__table_find(&st, "single")->data)[2] == 3);
    assert_true(((int8_t *)wb__table_find(&st, "bytes")->data)[1] == -1);
    assert_int_equal(wb__table_find(&st, "brain")->ndim, 0);
    assert_int_equal(wb__table_find(&st, "empty \"quoted\" \xc3\xa9")->dims[1], 7);
    assert_null(wb__table_find(&st, "nobody"));
    wb__table_free(&st);
    if (wb__st_load(file_name(), false, &st)) fail_msg("%s", wb_error());
    assert_null(wb__table_find(&st, "single")->data);
    wb__table_free(&st);

    int64_t n;
    char *bytes = wb__file_read(file_name(), &n);
    assert_int_equal(bytes[0] & 7, 0);                  /* the data begin at a multiple of 8 */
    wb__free(bytes);
    wb__st_out twice[2] = {{"a", WB_U8, 0, NULL, 1, "x", NULL},
                           {"a", WB_U8, 0, NULL, 1, "y", NULL}};
    assert_int_equal(wb__st_save(NULL, file_name(), 2, twice, 0, NULL), WB_ERROR_ARGUMENT);
    FAILED(WB_ERROR_ARGUMENT, "save", "tensors", "\"a\"");
    unlink(file_name());
}

/* Tensors whose dtype or rank Weber does not have are listed in the table, without a dtype. */
TEST(foreign_tensors)
{
    static const struct { const char *dtype, *shape; int bytes; } rows[] = {
        {"F4", "2,3", 3},        {"F6_E2M3", "4", 3},     {"F6_E3M2", "4", 3},
        {"F8_E4M3", "3", 3},     {"F8_E5M2", "3", 3},     {"F8_E8M0", "3", 3},
        {"F8_E4M3FNUZ", "3", 3}, {"F8_E5M2FNUZ", "3", 3}, {"U64", "3", 24},
        {"C64", "3", 24},        {"U8", "1,1,1,1,1,1,1,1,2", 2},
        {"I16", "1,1,1,1,1,1,1,1,3", 6}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        char header[300];
        wb__table st;
        snprintf(header, sizeof header, "{" TENSOR("a", "%s", "%s", "0,%d") "}", rows[i].dtype,
                 rows[i].shape, rows[i].bytes);
        put_header(header, (size_t)rows[i].bytes);
        if (wb__st_load(file_name(), true, &st)) fail_msg("%s", wb_error());
        const wb__entry *e = wb__table_find(&st, "a");
        assert_int_equal(e->dtype, 0);
        assert_memory_equal(e->type, rows[i].dtype, strlen(rows[i].dtype));
        assert_int_equal(e->bytes, rows[i].bytes);
        assert_non_null(e->data);
        wb__table_free(&st);
        wb_layer *m = wb_Embedding(2, 3);
        const wb_rename row = {"a", "weight"};
        FAILS(wb_load_state(file_name(), m, .n_rename = 1, .rename = &row), WB_ERROR_FORMAT,
              rows[i].dtype);
        assert_int_equal(wb_load_state(file_name(), m, .lenient = true), 0);
    }
    unlink(file_name());
}

/* Integers of dtypes that Weber lacks are widened, at odd addresses too. */
TEST_IN_SCOPE(narrow_integers)
{
    static const char header[] =
        "{" TENSOR("a", "U8", "1", "0,1") "," TENSOR("i16", "I16", "3", "1,7") ","
        TENSOR("u16", "U16", "3,1", "7,13") "," TENSOR("u32", "U32", "2", "13,21") ","
        TENSOR("none", "U32", "0,2", "21,21") "}";
    static const uint8_t values[] = {7,    0xfd, 0xff, 0,    0x80, 0xff, 0x7f, 1, 0, 0,   0x80,
                                     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,    0, 0, 0x80};
    wb__text t = {0};
    for (int i = 0; i < 8; i++)
        wb__text_raw(&t, (char[]){(char)((sizeof header - 1) >> (8 * i))}, 1);
    wb__text_raw(&t, header, sizeof header - 1);
    wb__text_raw(&t, (const char *)values, sizeof values);
    assert_int_equal(wb__file_write(file_name(), t.text, (int64_t)t.length), 0);
    wb__free(wb__text_take(&t));
    static const struct { const char *name, *shape; double values[3]; } rows[] = {
        {"i16", "[3] i32", {-3, -32768, 32767}}, {"u16", "[3,1] i32", {1, 32768, 65535}},
        {"u32", "[2] i64", {4294967295.0, 2147483648.0}}, {"none", "[0,2] i64", {0}},
        {"a", "[1] u8", {7}}};
    wb_tree *tree = wb_load_tensors(file_name());
    if (!tree) fail_msg("%s", wb_error());
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        wb_tensor *x = wb_get(tree, rows[i].name);
        assert_string_equal(wb_describe(x), rows[i].shape);
        x = wb_reshape(x, -1);
        for (int64_t k = 0; k < wb_size(x); k++) assert_true(wb_at(x, k) == rows[i].values[k]);
    }
    unlink(file_name());
}

/* Nine axes, and too many elements, are reported as such, in one message with dtypes that Weber
 * lacks. */
TEST_IN_SCOPE(too_many_axes)
{
#define AXES "1,1,1,1,1,1,1,1,2"
    put_header("{" TENSOR("a", "F32", AXES, "0,8") "}", 8);
    REFUSED(wb_load_tensors(file_name()), WB_ERROR_SHAPE, "more than 8 axes",
            "\"a\": F32 with 9 axes");
    put_header("{" TENSOR("a", "F32", AXES, "0,8") "," TENSOR("b", "U64", "1", "8,16") "}", 16);
    REFUSED(wb_load_tensors(file_name()), WB_ERROR_DTYPE, "dtypes Weber lacks, with more than 8",
            "\"a\": F32 with 9 axes", "\"b\": U64");
    put_header("{" TENSOR("a", "F32", "5000000000,0", "0,0") "}", 0);
    REFUSED(wb_load_tensors(file_name()), WB_ERROR_SHAPE, "too large", "2^32",
            "\"a\": F32 [5000000000, 0]");
    unlink(file_name());
}

TEST(odd_but_right)
{
    wb__table st;
    put_header(
        "{\t\"__metadata__\" : { \"\\u00e9\\ud83d\\ude00\" : \"\\n\\\"\\/\" } , \r\n"
        "\"\":{\"data_offsets\":[ 0 , 2 ],\"shape\":[],\"dtype\":\"F16\"},"
        "\"e\":{\"dtype\":\"F64\",\"shape\":[0,9223372036854775807],\"data_offsets\":[2,2]}} \n",
        2);
    if (wb__st_load(file_name(), true, &st)) fail_msg("%s", wb_error());
    assert_int_equal(st.n, 2);
    assert_string_equal(wb__table_note(&st, "\xc3\xa9\xf0\x9f\x98\x80"), "\n\"/");
    assert_int_equal(wb__table_find(&st, "")->ndim, 0);
    assert_int_equal(wb__table_find(&st, "e")->ndim, 2);
    wb__table_free(&st);
    unlink(file_name());
}

/* Every truncated file is refused.  Every file with one changed byte is read or refused, without a
 * crash. */
TEST(any_damage)
{
    wb__table st;
    int64_t n;
    int refused_files = 0;
    make_file();
    char *bytes = wb__file_read(file_name(), &n);
    for (int64_t i = 0; i < n; i++) {
        put(bytes, (size_t)i);
        wb_clear_error();
        assert_int_not_equal(wb__st_load(file_name(), true, &st), 0);
        assert_string_not_equal(wb_error(), "");
    }
    for (int64_t i = 0; i < n; i++) {
        static const unsigned char flips[] = {0x01, 0x80, 0x20, 0xff};
        for (size_t k = 0; k < sizeof flips; k++) {
            bytes[i] ^= (char)flips[k];
            put(bytes, (size_t)n);
            if (wb__st_load(file_name(), true, &st)) refused_files++;
            else wb__table_free(&st);
            bytes[i] ^= (char)flips[k];
        }
    }
    assert_true(refused_files > n);
    wb__free(bytes);
    unlink(file_name());
}

/* A sparse file whose first tensor has 5 GiB, which are never read, with two tensors after it. */
TEST(beyond_four_gigabytes)
{
    wb__table st;
    const char *header = "{" TENSOR("big", "F32", "1342177280", "0,5368709120") ","
                         TENSOR("a", "F32", "2", "5368709120,5368709128") ","
                         TENSOR("flags", "BOOL", "2,2", "5368709128,5368709132") "}";
    const off_t end = 8 + (off_t)strlen(header) + 5368709132;
    const uint8_t values[12] = {0, 0, 128, 63, 0, 0, 0, 64, 2, 0, 255, 1};
    put_header(header, 0);
    int f = open(file_name(), O_WRONLY);
    if (ftruncate(f, end) || pwrite(f, values, 12, end - 12) != 12)
        fail_msg("no space for a sparse file");
    close(f);
    if (wb__st_load(file_name(), true, &st)) fail_msg("%s", wb_error());
    const wb__entry *e = wb__table_find(&st, "a");
    assert_memory_equal(e->data, values, 8);
    assert_int_equal(wb__table_find(&st, "big")->bytes, 5368709120);
    wb__table_free(&st);

    wb_layer *m = wb_Embedding(2, 1);       /* has none of the file's names */
    wb_tree *t = wb_named_tuple(
        2, (const char *[]){"a", "flags"},
        (void *[]){wb_variable(wb_zeros(2)),
                   wb_variable(wb_full_array(0, WB_BOOL, 2, (int64_t[]){2, 2}))});
    if (wb_load_state(file_name(), t, .lenient = true)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(t, "a"), 1) == 2);
    const uint8_t *flags = wb_data(wb_get(t, "flags")), want[4] = {1, 0, 1, 1};
    assert_memory_equal(flags, want, 4);    /* each byte other than 0 is true */
    FAILS(wb_load_state(file_name(), m), WB_ERROR_FORMAT, file_name());
    assert_true(HAS_LINE(wb_error(), "\"big\"", "[1342177280] f32", "model"));
    if (truncate(file_name(), end - 1)) fail_msg("not cut");
    assert_int_equal(wb_load_state(file_name(), t, .lenient = true), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "3", "4", "tensor", "\"flags\"");
    unlink(file_name());
}

/* The longest header that the format allows, and one byte more. */
TEST(hundred_megabytes)
{
    const size_t most = 100000000;
    char *bytes = malloc(8 + most + 1);
    wb__table st;
    assert_non_null(bytes);
    memset(bytes + 8, ' ', most + 1);
    memcpy(bytes + 8, "{}", 2);
    for (size_t more = 0; more < 2; more++) {
        for (int i = 0; i < 8; i++) bytes[i] = (char)((most + more) >> (8 * i));
        put(bytes, 8 + most + more);
        assert_int_equal(wb__st_load(file_name(), true, &st), more ? WB_ERROR_FORMAT : 0);
        if (!more) wb__table_free(&st);
    }
    FAILED(WB_ERROR_FORMAT, "byte 0", "header", "100000001", "2", "100000000");
    free(bytes);
    unlink(file_name());
}

#ifdef WB_HAVE_ZLIB
/* A file that the gzip command compressed. */
TEST(compressed)
{
    wb__table st;
    char command[200], packed[100];
    make_file();
    snprintf(packed, sizeof packed, "%s.gz", file_name());
    snprintf(command, sizeof command, "gzip -kf %s", file_name());
    if (system(command)) skip();
    if (wb__st_load(packed, true, &st)) fail_msg("%s", wb_error());
    assert_true(((const float *)wb__table_find(&st, "single")->data)[2] == 3);
    wb__table_free(&st);
    unlink(packed);
    unlink(file_name());
}
#endif

/* For each n, the n-th system call fails: then the path has the whole old file or the whole new
 * one. */
TEST(failing_writes)
{
    int failures = 0;
    for (int64_t fail = 1;; fail++) {
        put("old", 3);
        wb__io_fail_at(fail);
        wb__st_out out = {"a", WB_U8, 0, NULL, 1, "x", NULL};
        int status = wb__st_save(NULL, file_name(), 1, &out, 0, NULL);
        bool reached = wb__io_count() >= fail;
        wb__io_fail_at(0);
        if (!reached) {
            assert_int_equal(status, 0);
            break;
        }
        failures += status != 0;
        int64_t n;
        char *bytes = wb__file_read(file_name(), &n);
        wb__table st = {0};
        if (n == 3) assert_memory_equal(bytes, "old", 3);
        else assert_int_equal(wb__st_load(file_name(), true, &st), 0);
        wb__table_free(&st);
        wb__free(bytes);
    }
    assert_true(failures >= 3);
    unlink(file_name());
}
