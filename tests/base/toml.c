/* TOML: accepted and refused texts, the positions of errors, values, and edits that change one
 * value and no other byte. */
#include "test.h"

#include "base/toml.h"

static void accepts(const char *text)
{
    wb_clear_error();
    wb__toml *t = wb__toml_parse("t", text, strlen(text));
    if (!t) fail_msg("refused: %s\n%s", wb_error(), text);
    wb__toml_free(t);
}

static void refuses(const char *text, const char *const *facts)
{
    wb_clear_error();
    wb__toml *t = wb__toml_parse("t", text, strlen(text));
    if (t) fail_msg("accepted:\n%s", text);
    if (!failed_with(WB_ERROR_FORMAT, facts)) fail_msg("%s, in:\n%s", wb_error(), text);
}

TEST(test_well_formed)
{
    static const char *const texts[] = {
        "", "\n", "\r\n", " \t\n# comment", ("\xef\xbb\xbf" "a = 1"),
        "# \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
        "a = 1", "a=1 # one", "a.b.c = 1\na.b.d = 2", "\"a b\" = 1\n'c d' = 2\n\"\" = 3",
        "3.14159 = 'pi'", "a . b = 1", "1979-05-27 = 1", "-_- = 1",
        "a = 0\nb = +0\nc = -0\nd = 1_000\ne = 9223372036854775807\nf = -9223372036854775808",
        "a = 0xDEAD_beef\nb = 0o755\nc = 0b1101\nd = 0x7fffffffffffffff",
        "a = 1.5\nb = -0.0\nc = 1e10\nd = 6.626e-34\ne = +1E+06\nf = 1_0.0_1\ng = 1e1_0",
        "a = 1.5e-3\nb = 123e-5",
        "a = inf\nb = +inf\nc = -inf\nd = nan\ne = -nan\nf = true\ng = false",
        "a = 1979-05-27T07:32:00Z\nb = 1979-05-27t00:32:00.999999-07:00\nc = 1979-05-27 07:32:00",
        "a = 1979-05-27\nb = 07:32:00\nc = 00:32:00.5\nd = 2024-02-29\ne = 23:59:60\n"
        "f = 2000-02-29",
        "a = \"\\b\\t\\n\\f\\r\\\"\\\\\\u00e9\\U0001F600\"", "a = 'C:\\x'",
        "a = \"\"\"\nx\n \"y\" \"\"z\\\n   w\"\"\"",
        "a = \"\"\"x\"\"\"\"\"", "a = '''\r\nx'y''z'''''",
        "a = []", "a = [1, 'x', [2.0, true], {b = 1}]", "a = [\n  1, # one\n\n  2,\n]",
        "a = {}", "a = {b = 1, c.d = 2, \"e\" = {f = [1,\n2]}}",
        "[a]\n[a.b]\n[c.d.e]\nx = 1\n[c.d]\ny = 2\n[c]", "[ a . 'b' ]",
        "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 1\n[[a.c]]\n[[a.c]]",
        "[a]\nb.c = 1\nb.d.e = 2\n[a.b.f]\ng = 1", "a.b = 1\n[c]\na.b = 1",
    };
    for (size_t i = 0; i < WB__COUNT(texts); i++) accepts(texts[i]);
}

TEST(test_ill_formed)
{
    static const struct { const char *text, *facts[6]; } cases[] = {
        {"a", {"t:1:2", "=", "key"}},
        {"a = ", {"t:1:5", "value"}},
        {"= 1", {"t:1:1", "key"}},
        {"a. = 1", {"t:1:4", "key"}},
        {"\n\n  a = 1 b = 2", {"t:3:9", "line"}},
        {"a = 1\ra = 2", {"t:1:6", "line"}},
        {"a = 1\na = 2", {"t:2:1", "\"a\""}},
        {"a = 1\n\"a\" = 2", {"t:2:1", "\"a\""}},
        {"a = 1\na.b = 2", {"t:2:1", "\"a\""}},
        {"a = {b = 1}\na.c = 2", {"t:2:1", "\"a\""}},
        {"[a.b]\nx = 1\n[a]\nb.c = 2", {"t:4:1", "\"b\""}},
        {"[a]\n[b]\n[a]", {"t:3:2", "\"a\""}},
        {"a.b = 1\n[a]", {"t:2:2", "\"a\""}},
        {"[x]\na.b = 1\n[x.a]", {"t:3:4", "\"a\""}},
        {"a = 1\n[a.b]", {"t:2:2", "\"a\"", "value", "table"}},
        {"a = {b = 1}\n[a.c]", {"t:2:2", "\"a\"", "value", "table"}},
        {"a = [1]\n[[a]]", {"t:2:3", "\"a\"", "array"}},
        {"[a]\n[[a]]", {"t:2:3", "\"a\"", "array"}},
        {"[[a]]\n[a]", {"t:2:2", "\"a\""}},
        {"[a", {"t:1:3", "]", "table"}},
        {"[[a]", {"t:1:4", "]]", "table"}},
        {"[]", {"t:1:2", "key"}},
        {"[a] x = 1", {"t:1:5", "line"}},
        {"a = \"x", {"t:1:5", "string"}},
        {"a = \"x\ny\"", {"t:1:5", "string"}},
        {"a = '''x''", {"t:1:5", "string"}},
        {"\"\"\"a\"\"\" = 1", {"t:1:3", "=", "key"}},
        {"a = \"\\q\"", {"t:1:6", "escape"}},
        {"a = \"\\u12\"", {"t:1:6", "escape", "4"}},
        {"a = \"\\ud800\"", {"t:1:6", "d800", "character", "Unicode"}},
        {"a = \"\\U00110000\"", {"t:1:6", "110000", "character", "Unicode"}},
        {"a = \"\x01\"", {"t:1:6", "control", "character", "1", "string"}},
        {"# \x7f", {"t:1:3", "control", "character", "127", "comment"}},
        {"a = \xff", {"t:1:5", "ff", "UTF-8"}},
        {"# \xe2\x82\xac\xc0\x80", {"t:1:4", "c0", "UTF-8"}},
        {"# \xed\xa0\x80", {"t:1:3", "ed", "UTF-8"}},
        {"# \xf0\x9f", {"t:1:3", "f0", "UTF-8"}},
        {"\xc3\xa9 = 1", {"t:1:1", "key"}},
        {"# \xc3\xa9\n'\xc3\xa9' = x", {"t:2:7", "value"}},
        {"a = CUDA", {"t:1:5", "value"}},
        {"a = 01", {"t:1:5", "number", "0"}},
        {"a = -00.1", {"t:1:5", "number", "0"}},
        {"a = 1__0", {"t:1:5", "number"}},
        {"a = 1_", {"t:1:5", "number"}},
        {"a = 1.", {"t:1:5", "number"}},
        {"a = 1.e5", {"t:1:5", "number"}},
        {"a = 1e", {"t:1:5", "number"}},
        {"a = 1.2.3", {"t:1:5", "number"}},
        {"a = 0x", {"t:1:5", "number"}},
        {"a = 0xg", {"t:1:5", "number"}},
        {"a = -0x1", {"t:1:5", "number"}},
        {"a = 0o8", {"t:1:5", "number"}},
        {"a = 9223372036854775808", {"t:1:5", "number", "64"}},
        {"a = -9223372036854775809", {"t:1:5", "number", "64"}},
        {"a = 0x8000000000000000", {"t:1:5", "number", "64"}},
        {"a = True", {"t:1:5", "value"}},
        {"a = 2023-02-29", {"t:1:5", "date", "time"}},
        {"a = 1900-02-29", {"t:1:5", "date", "time"}},
        {"a = 1979-13-01", {"t:1:5", "date", "time"}},
        {"a = 1979-05-27T", {"t:1:5", "date", "time"}},
        {"a = 1979-05-27T25:00:00", {"t:1:5", "date", "time"}},
        {"a = 07:32", {"t:1:5", "date", "time"}},
        {"a = 07:32:00.", {"t:1:5", "date", "time"}},
        {"a = 1979-05-27T07:32:00+24:00", {"t:1:5", "date", "time"}},
        {"a = [1, 2", {"t:1:5", "array"}},
        {"a = [1 2]", {"t:1:8", "]", "array"}},
        {"a = [,]", {"t:1:6", "value"}},
        {"a = {b = 1", {"t:1:5", "table", "line"}},
        {"a = {b = 1\n}", {"t:1:5", "table", "line"}},
        {"a = {b = 1,}", {"t:1:12", "key"}},
        {"a = {b = 1, b = 2}", {"t:1:13", "\"b\""}},
        {"a = {b = 1; c = 2}", {"t:1:11", "}", "table"}},
        {"a = [{b = 1, b = 2}]", {"t:1:14", "\"b\""}},
    };
    for (size_t i = 0; i < WB__COUNT(cases); i++) refuses(cases[i].text, cases[i].facts);
}

TEST(test_limits)
{
    char text[512] = "a = ";
    memset(text + 4, '[', 63);
    memset(text + 67, ']', 63);
    accepts(text);
    memset(text + 4, '[', 100);
    refuses(text, FACTS("t:1:69", "64"));
    memset(text, 0, sizeof text);
    for (int i = 0; i < 65; i++) memcpy(text + 2 * i, "a.", 2);
    refuses(text, FACTS("t:1:129", "key", "64"));
    static char large[(256 << 10) + 1];
    memset(large, ' ', sizeof large);
    assert_null(wb__toml_parse("t", large, sizeof large));
    FAILED(WB_ERROR_FORMAT, "t:1:1", "262145", "256", "KiB");
    assert_null(wb__toml_parse("t", "a = \"x\0y\"", 9));
    FAILED(WB_ERROR_FORMAT, "t:1:7", "control", "character", "0", "string");
}

static void reads(const char *text, wb__toml_kind kind, const char *value)
{
    const char *at;
    size_t n;
    wb__toml *t = wb__toml_parse("t", text, strlen(text));
    if (!t) fail_msg("%s", wb_error());
    assert_int_equal(wb__toml_get(t, "Flux", "gpu", &at, &n), kind);
    if (value) {
        if (n != strlen(value) || memcmp(at, value, n) != 0)
            fail_msg("\"%.*s\", not \"%s\", in:\n%s", (int)n, at, value, text);
    } else {
        assert_null(at);
    }
    wb__toml_free(t);
}

TEST(test_values)
{
    reads("", WB__TOML_ABSENT, NULL);
    reads("gpu = 'x'\n[Flux]\n[Flux.gpu2]\ngpu = 'y'", WB__TOML_ABSENT, NULL);
    reads("Flux = 1", WB__TOML_ABSENT, NULL);
    reads("[[Flux]]\ngpu = 'x'", WB__TOML_ABSENT, NULL);
    reads("[a]\nx = 1\n[Flux]\ngpu = \"CUDA\" # here", WB__TOML_STRING, "CUDA");
    reads("Flux.gpu = 'CUDA'", WB__TOML_STRING, "CUDA");
    reads("Flux = { other = 1, gpu = 'CUDA' }", WB__TOML_STRING, "CUDA");
    reads("['Flux']\n\"g\\u0070u\" = \"\"\"\nCU\\\n   DA\"\"\"", WB__TOML_STRING, "CUDA");
    reads("[Flux]\ngpu = \"\\u00e9\\U0001f600\\t\\\\\"", WB__TOML_STRING,
          "\xc3\xa9\xf0\x9f\x98\x80\t\\");
    reads("[Flux]\ngpu = ''''a''b'''''", WB__TOML_STRING, "'a''b''");
    reads("[Flux]\ngpu = '''\r\na\r\nb'''", WB__TOML_STRING, "a\r\nb");
    reads("[Flux]\ngpu = ''", WB__TOML_STRING, "");
    reads("[Flux]\ngpu =  12_3 # number", WB__TOML_OTHER, "12_3");
    reads("[Flux]\ngpu = [ 1,\n 2 ]", WB__TOML_OTHER, "[ 1,\n 2 ]");
    reads("[Flux]\ngpu = 1979-05-27 07:32:00", WB__TOML_OTHER, "1979-05-27 07:32:00");
    reads("[Flux]\ngpu = {a = 1}", WB__TOML_TABLE, "{a = 1}");
    reads("[Flux.gpu]", WB__TOML_TABLE, NULL);
    reads("[Flux]\ngpu.a = 1", WB__TOML_TABLE, NULL);
}

static void becomes(const char *before, const char *value, const char *after)
{
    size_t n = 0;
    char *text = wb__toml_edit("t", before, strlen(before), "Flux", "gpu", value, &n);
    if (!text) fail_msg("%s, in:\n%s", wb_error(), before);
    assert_string_equal(text, after);
    assert_int_equal(n, strlen(after));
    wb__free(text);
}

TEST(test_setting)
{
    becomes("", "X", "[Flux]\ngpu = \"X\"\n");
    becomes("# only a remark", "X", "# only a remark\n\n[Flux]\ngpu = \"X\"\n");
    becomes("a = 1\n\n", "X", "a = 1\n\n[Flux]\ngpu = \"X\"\n");
    becomes("a = 1\r\n", "X", "a = 1\r\n\r\n[Flux]\r\ngpu = \"X\"\r\n");
    becomes("[Flux]", "X", "[Flux]\ngpu = \"X\"\n");
    becomes("[Flux] # it\n\n[b]\nc = 1\n", "X", "[Flux] # it\ngpu = \"X\"\n\n[b]\nc = 1\n");
    becomes("[Flux]\na = 1 # one\n# end\n\n[b]", "X",
            "[Flux]\na = 1 # one\ngpu = \"X\"\n# end\n\n[b]");
    becomes("[Flux]\na = [1,\n2]", "X", "[Flux]\na = [1,\n2]\ngpu = \"X\"\n");
    becomes("[Flux]\na.b = 1\n[c]", "X", "[Flux]\na.b = 1\ngpu = \"X\"\n[c]");
    becomes("[Flux]\n  gpu  =  'Y'   # why\nz = 1", "X", "[Flux]\n  gpu  =  \"X\"   # why\nz = 1");
    becomes("[Flux]\ngpu = [\n1 ]\n", "X", "[Flux]\ngpu = \"X\"\n");
    becomes("[Flux.sub]\na = 1\n", "X", "[Flux.sub]\na = 1\n\n[Flux]\ngpu = \"X\"\n");
    becomes("Flux.a = 1\nb = 2\n[c]\n", "X", "Flux.a = 1\nFlux.gpu = \"X\"\nb = 2\n[c]\n");
    becomes("Flux.gpu = 'Y'\n", "X", "Flux.gpu = \"X\"\n");
    becomes("Flux = {}\n", "X", "Flux = { gpu = \"X\" }\n");
    becomes("Flux = { a = 1 } # c\n", "X", "Flux = { a = 1, gpu = \"X\" } # c\n");
    becomes("Flux = {gpu = 'Y', a = 1}", "X", "Flux = {gpu = \"X\", a = 1}");
    becomes("\xef\xbb\xbf[Flux]\n", "X", "\xef\xbb\xbf[Flux]\ngpu = \"X\"\n");
    becomes("[Flux]\r\na = 1\r\n[b]\r\n", "X", "[Flux]\r\na = 1\r\ngpu = \"X\"\r\n[b]\r\n");
}

TEST(test_removing)
{
    becomes("a = 1", NULL, "a = 1");
    becomes("[Flux]\ngpu = 'X'\nb = 1\n", NULL, "[Flux]\nb = 1\n");
    becomes("[Flux]\na = 1\n  gpu = 'X'", NULL, "[Flux]\na = 1\n");
    becomes("[Flux]\r\ngpu = 'X'\r\nb = 1\r\n", NULL, "[Flux]\r\nb = 1\r\n");
    becomes("[Flux]\ngpu = 'X' # why\nb = 1\n", NULL, "[Flux]\n# why\nb = 1\n");
    becomes("[Flux]\ngpu = '''\nX\n'''\nb = 1\n", NULL, "[Flux]\nb = 1\n");
    becomes("Flux.gpu = 'X'\nb = 1\n", NULL, "b = 1\n");
    becomes("Flux = { gpu = 'X' }\n", NULL, "Flux = {  }\n");
    becomes("Flux = { gpu = 'X', b = 1 }\n", NULL, "Flux = { b = 1 }\n");
    becomes("Flux = { b = 1, gpu = 'X' }\n", NULL, "Flux = { b = 1 }\n");
    becomes("Flux = { b = 1, gpu = 'X', c = 2 }\n", NULL, "Flux = { b = 1, c = 2 }\n");
}

static void refuses_edit(const char *before, const char *const *facts)
{
    size_t n;
    wb_clear_error();
    assert_null(wb__toml_edit("t", before, strlen(before), "Flux", "gpu", "X", &n));
    if (!failed_with(WB_ERROR_FORMAT, facts)) fail_msg("%s, in:\n%s", wb_error(), before);
}

TEST(test_not_to_be_changed)
{
    refuses_edit("a = \n", FACTS("t:1:5", "value"));
    refuses_edit("b = 1\nFlux = 3\n", FACTS("t:2:1", "Flux", "table"));
    refuses_edit("[[Flux]]\n", FACTS("t:1:1", "Flux", "table"));
    refuses_edit("[Flux.gpu]\n", FACTS("t:1:1", "Flux.gpu", "table"));
    refuses_edit("[Flux]\ngpu.a = 1\n", FACTS("t:2:1", "Flux.gpu", "table"));
    refuses_edit("[Flux]\ngpu = {a = 1}\n", FACTS("t:2:1", "Flux.gpu", "table"));
}

/* One allocation after the other fails: the call reports an error and leaves no memory held. */
TEST(test_memory)
{
    static const char text[] = "[a]\nb = 1\n[Flux]\nc = { d = [{e = 1}] }\n[[x]]\n[x.y]\n";
    const int64_t held = wb_memory_used();
    int failures = 0;
    for (int n = 1;; n++) {
        size_t bytes;
        wb_clear_error();
        wb__alloc_fail_at(n);
        char *changed = wb__toml_edit("t", text, strlen(text), "Flux", "gpu", "X", &bytes);
        wb__alloc_fail_at(0);
        if (!changed) {
            assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
            failures++;
        }
        wb__free(changed);
        assert_int_equal(wb_memory_used(), held);
        if (changed) break;
    }
    assert_in_range(failures, 5, 1000);
}

int main(void) { return run_all_cases(); }
