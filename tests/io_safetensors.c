/* The safetensors format: what is written is read, what is wrong is refused with a reason, whatever
 * the bytes. */
#include "golden.h"

#include "base/file.h"

#include <unistd.h>

static const char *file_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/weber-safetensors-%ld", (long)getpid());
    return name;
}

static void put(const void *bytes, size_t n)
{
    assert_int_equal(wb__file_write(file_name(), bytes, (int64_t)n), 0);
}

/* A file of this header and n bytes of data. */
static void put_header(const char *header, size_t n)
{
    size_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + n);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
    memcpy(bytes + 8, header, length);
    put(bytes, 8 + length + n);
    free(bytes);
}

static void refused(const char *header, size_t n, const char *message)
{
    wb__table st;
    put_header(header, n);
    wb_clear_error();
    assert_int_equal(wb__st_load(file_name(), true, &st), WB_ERROR_FORMAT);
    if (!strstr(wb_error(), message)) fail_msg("\"%s\" is not in \"%s\"", message, wb_error());
    if (!strstr(wb_error(), file_name())) fail_msg("no file in \"%s\"", wb_error());
    assert_null(st.entries);
}

static void wrong_headers(void **state)
{
    (void)state;
    refused("[]", 0, "byte 8: the header does not begin with {");
    refused("{\"a\"}", 0, "byte 1");
    refused("{\"a\":1}", 0, "tensor \"a\": wants dtype, shape and data_offsets");
    refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
            "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
        8, "duplicate object key");
    refused("{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
            "unknown dtype \"F99\"");
    refused("{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":7,\"data_offsets\":[0,4]}}", 4, "has no shape");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
            "has a wrong dimension");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
            "has a wrong dimension");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
            "more than 8 dimensions");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],\"data_offsets\":[0,4]}}",
            4, "2^32 elements or more");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,4]}}",
            4, "2^32 elements or more");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}",
            4, "too big integer");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "its shape and its place do not agree");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
            "has a wrong place");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
            "has a wrong place");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
            "a hole is before it");
    refused(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
        8, "tensor \"b\": overlaps another");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
            "wants dtype, shape and data_offsets");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ holds more than text");
    refused("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "a tensor");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, file_name());
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1000000000],\"data_offsets\":[0,4000000000]}}", 5,
            "a tensor");
    put("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    wb__table st;
    assert_int_equal(wb__st_load(file_name(), true, &st), WB_ERROR_FORMAT);
    assert_non_null(strstr(wb_error(), "byte 0: a header of 18446744073709551615 bytes"));
    assert_int_equal(wb__st_load("/nowhere/at/all", true, &st), WB_ERROR_FILE);
    put_header("{}  ", 0);                              /* nothing at all is a file */
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
        {"flags", WB_BOOL, 1, two, 2, flags},
        {"bytes", WB_I8, 1, three, 3, i8},
        {"half", WB_F16, 2, one, 2, f16},
        {"brain", WB_BF16, 0, NULL, 2, f16},
        {"single", WB_F32, 1, three, 12, f32},
        {"double", WB_F64, 1, two, 16, f64},
        {"long", WB_I64, 0, NULL, 8, i64},
        {"empty \"quoted\" \xc3\xa9", WB_I32, 2, none, 0, NULL},
        {"unsigned", WB_U8, 1, two, 2, flags},
    };
    wb__note notes[] = {{"about", "a \"test\"\n"}};
    if (wb__st_save(file_name(), WB__COUNT(out), out, 1, notes)) fail_msg("%s", wb_error());
}

static void what_is_written_is_read(void **state)
{
    (void)state;
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
    wb__st_out twice[2] = {{"a", WB_U8, 0, NULL, 1, "x"}, {"a", WB_U8, 0, NULL, 1, "y"}};
    assert_int_equal(wb__st_save(file_name(), 2, twice, 0, NULL), WB_ERROR_ARGUMENT);
    assert_string_equal(wb_error(), "save: two tensors are named \"a\"");
    unlink(file_name());
}

/* Every file that is too short is refused; every file with one byte changed is read or refused, and
 * nothing else. */
static void any_damage(void **state)
{
    (void)state;
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

/* The n-th call of the system fails, for each n: the old file stands or the new one does. */
static void failing_writes(void **state)
{
    (void)state;
    int failures = 0;
    for (int64_t fail = 1;; fail++) {
        put("old", 3);
        wb__io_fail_at(fail);
        wb__st_out out = {"a", WB_U8, 0, NULL, 1, "x"};
        int status = wb__st_save(file_name(), 1, &out, 0, NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_headers),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(any_damage),
        cmocka_unit_test(failing_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
