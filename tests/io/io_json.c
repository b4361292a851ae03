/* io/json.h: texts that are read, texts that are refused, and that written text reads back
 * equal. */
#include "test.h"

#include "base/base.h"
#include "io/json.h"

static wb__json *read(const char *text)
{
    const char *reason = "";
    wb__json *root = wb__json_read(text, &reason);
    if (!root) fail_msg("%s: %s", text, reason);
    return root;
}

static void refused(const char *text, const char *fact)
{
    const char *reason = "";
    wb__json *root = wb__json_read(text, &reason);
    if (root) fail_msg("%s was read", text);
    else if (!*reason || !HAS_FACTS(reason, fact)) fail_msg("%s: %s", text, reason);
}

TEST(values)
{
    wb__json *root = read(" {\"a\": [1, -2, [], {}, {\"b\": 3}, null], \"x\": 1.5e3, \"t\": "
                          "true,\n\"f\": false, \"\": \"\"}\t");
    assert_int_equal(wb__json_members(root), 5);
    assert_int_equal(wb__json_count(root), 0);
    const wb__json *list = wb__json_get(root, "a"), *value = NULL, *found[6] = {NULL};
    assert_true(wb__json_is(list, WB__JSON_LIST));
    WB__JSON_EACH(list, value, i) found[i] = value;
    assert_int_equal(wb__json_integer(found[0]), 1);
    assert_int_equal(wb__json_integer(found[1]), -2);
    assert_true(wb__json_is(found[2], WB__JSON_LIST) && !wb__json_count(found[2]));
    assert_true(wb__json_is(found[3], WB__JSON_OBJECT) && !wb__json_count(found[3]));
    assert_int_equal(wb__json_integer(wb__json_get(found[4], "b")), 3);
    assert_true(wb__json_is(found[5], WB__JSON_NULL));
    assert_true(wb__json_get(root, "x")->is.real == 1500);
    assert_true(wb__json_is(wb__json_get(root, "t"), WB__JSON_TRUE));
    assert_true(wb__json_is(wb__json_get(root, "f"), WB__JSON_FALSE));
    assert_string_equal(wb__json_text(wb__json_get(root, "")), "");
    const char *keys[] = {"a", "x", "t", "f", ""};
    WB__JSON_EACH_MEMBER(root, value, i) assert_string_equal(wb__json_key(value), keys[i]);
    assert_null(wb__json_get(root, "b"));
    assert_null(wb__json_get(list, "b"));
    assert_null(wb__json_get(NULL, "b"));
    assert_null(wb__json_text(list));
    assert_int_equal(wb__json_count(NULL), 0);
    wb__free(root);
}

TEST(texts)
{
    wb__json *root = read("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDe00\xc3\xa9,[{:\"");
    assert_string_equal(wb__json_text(root),
                        "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9,[{:");
    wb__free(root);
    root = read("[\"\\\"\", 1, 2, 3]");
    assert_int_equal(wb__json_count(root), 4);
    wb__free(root);
}

TEST(integers_and_reals)
{
    static const char *const whole[] = {"0", "-0", "9223372036854775807", "-9223372036854775808"};
    static const int64_t are[] = {0, 0, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < WB__COUNT(whole); i++) {
        wb__json *v = read(whole[i]);
        assert_true(wb__json_is(v, WB__JSON_INTEGER));
        assert_int_equal(wb__json_integer(v), are[i]);
        wb__free(v);
    }
    static const char *const wrong[] = {"01",  "-",   "+1",  ".5",  "1.", "1e",
                                        "1e+", "0x1", "inf", "NaN", "--1"};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) refused(wrong[i], "");
    refused("9223372036854775808", "number");
    refused("1e999", "number");
}

TEST(wrong_texts)
{
    static const char *const wrong[][2] = {{"", "ends"},
                                           {"[", "ends"},
                                           {"[1", "','"},
                                           {"[1,", "ends"},
                                           {"[1,]", "value"},
                                           {"[1 2]", "','"},
                                           {"[1}", "','"},
                                           {"{", "key"},
                                           {"{1", "key"},
                                           {"{\"a\"", "':'"},
                                           {"{\"a\":", "ends"},
                                           {"{\"a\":1", "'}'"},
                                           {"{\"a\":1,}", "key"},
                                           {"{\"a\":1]", "'}'"},
                                           {"{} {}", "value"},
                                           {"1 x", "value"},
                                           {"nul", "value"},
                                           {"]", "value"},
                                           {"\"a", "text"},
                                           {"\"\\x\"", "escape"},
                                           {"\"\\", "escape"},
                                           {"\"\\u12\"", "escape"},
                                           {"\"\\ud800\"", "escape"},
                                           {"\"\\udc00\"", "escape"},
                                           {"\"\\u0000\"", "zero"},
                                           {"\"\n\"", "control"},
                                           {"\"\xff\"", "UTF-8"},
                                           {"\"\xc3\"", "UTF-8"},
                                           {"{\"a\":1,\"b\":2,\"a\":3}", "key"},
                                           {"[{\"\":[],\"\":[]}]", "key"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) refused(wrong[i][0], wrong[i][1]);
}

/* A million nested arrays: the reader does not recurse, so that the stack does not overflow. */
TEST(depth)
{
    enum { DEEP = 1000000 };
    char *text = wb__alloc(2 * DEEP + 1);
    assert_non_null(text);
    memset(text, '[', DEEP);
    memset(text + DEEP, ']', DEEP);
    text[2 * DEEP] = 0;
    wb__json *root = read(text);
    assert_int_equal(root->span, DEEP);
    wb__free(root);
    text[DEEP] = 0;
    refused(text, "ends");
    wb__free(text);
}

TEST(written)
{
    wb__json_out out = {0};
    wb__json_open(&out, '{');
    wb__json_put_pair(&out, "a\"\\\n\x01\x7f", "\xc3\xa9");
    wb__json_put_key(&out, "numbers");
    wb__json_open(&out, '[');
    wb__json_put_integer(&out, INT64_MIN);
    wb__json_put_real(&out, 0.1);
    wb__json_put_real(&out, 3);
    wb__json_put_real(&out, -1e-300);
    wb__json_put_bool(&out, true);
    wb__json_open(&out, '{');
    wb__json_close(&out, '}');
    wb__json_close(&out, ']');
    wb__json_close(&out, '}');
    char *text = wb__json_take(&out);
    assert_string_equal(
        text, "{\"a\\\"\\\\\\n\\u0001\x7f\":\"\xc3\xa9\",\"numbers\":[-9223372036854775808,"
              "0.10000000000000001,3.0,-1e-300,true,{}]}");
    wb__json *root = read(text);
    const wb__json *numbers = wb__json_get(root, "numbers"), *value = NULL;
    static const double are[] = {0, 0.1, 3, -1e-300};
    WB__JSON_EACH(numbers, value, i)
        if (i && i < 4) assert_true(wb__json_is(value, WB__JSON_REAL) && value->is.real == are[i]);
    wb__free(root);
    wb__free(text);
}

TEST(not_written)
{
    wb__json_out out = {0};
    wb__json_put_text(&out, "caf\xe9");
    assert_null(wb__json_take(&out));
    FAILED(WB_ERROR_ARGUMENT, "UTF-8");
    wb__json_out other = {0};
    wb__json_put_real(&other, NAN);
    assert_null(wb__json_take(&other));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_clear_error();
}
