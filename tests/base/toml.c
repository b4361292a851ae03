/* TOML: texts that are skipped and refused, the positions of errors, values, and edits that change
 * one value and no other byte. */
#include "test.h"

#include "base/toml.h"

static wb__toml toml(const char *text) { return (wb__toml){"t", text, strlen(text)}; }

static void reads(const char *text, wb__toml_kind kind, const char *value)
{
    const char *at;
    size_t n;
    wb__toml_kind found;
    wb_clear_error();
    if (wb__toml_get(toml(text), "Flux", "gpu", &found, &at, &n))
        fail_msg("%s, in:\n%s", wb_error(), text);
    if (found != kind) fail_msg("%d, not %d, in:\n%s", (int)found, (int)kind, text);
    if (!value) assert_null(at);
    else if (n != strlen(value) || memcmp(at, value, n) != 0)
        fail_msg("\"%.*s\", not \"%s\", in:\n%s", (int)n, at, value, text);
}

/* A key behind a text that is to be skipped is found. */
TEST(test_well_formed)
{
    static const char *const texts[] = {
        "", "\n", "\r\n", " \t\n# [Flux]", "\xef\xbb\xbf" "a = 1",
        "# \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
        "a = 1", "a=1 # one", "a.b.c = 1\na.b.d = 2", "\"a b\" = 1\n'c d' = 2\n\"\" = 3",
        "3.14159 = 'pi'", "a . b = 1", "1979-05-27 = 1", "-_- = 1",
        "a = 0xDEAD_beef\nb = -6.626e-34\nc = +inf\nd = nan\ne = true",
        "a = 1979-05-27T07:32:00Z\nb = 1979-05-27 07:32:00 # one\nc = 07:32:00",
        "a = \"\\b\\\"\\\\\"", "a = 'C:\\'", "a = \"#'\"\nb = '\"'",
        "a = \"\"\"\nx\n \"y\" \"\"z\\\n[Flux]\ngpu = 1 \\\"\"\"\"",
        "a = \"\"\"x\"\"\"\"\"", "a = \'\'\'\r\nx'y\'\'z\'\'\'\'\'",
        "a = []", "a = [1, ']', [2.0, true], {b = 1}]", "a = [\n  1, # ]\n\n  2,\n]",
        "a = {}", "a = {b = 1, Flux.gpu = 2, \"e\" = {f = [1,\n2]}}",
        "[a]\n[a.b]\n[c.d.e]\nx = 1\n[c.d]\ny = 2\n[c]", "[ a . 'b' ]",
        "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 1\n[[a.c]]\n[[a.c]]", "[a]\nFlux.gpu = 1",
        "[Flux.other]\ngpu = 1", "[Fluxes]\ngpu = 1", "[Flu]\ngpu = 1",
    };
    char text[512];
    for (size_t i = 0; i < WB__COUNT(texts); i++) {
        reads(texts[i], WB__TOML_ABSENT, NULL);
        snprintf(text, sizeof text, "%s\n[Flux]\ngpu = 'CUDA'", texts[i]);
        reads(text, WB__TOML_STRING, "CUDA");
    }
}

TEST(test_ill_formed)
{
    static const struct { const char *text, *facts[6]; } cases[] = {
        {"a", {"t:1:2", "=", "key"}},
        {"a = ", {"t:1:5", "value"}},
        {"= 1", {"t:1:1", "key"}},
        {"a. = 1", {"t:1:4", "key"}},
        {"\n\n  a = '1' b = 2", {"t:3:11", "line"}},
        {"[Flux]\ngpu = 1\n'gpu' = 2", {"t:3:1", "gpu", "twice"}},
        {"Flux.gpu = 1\nFlux.gpu = 2", {"t:2:1", "gpu", "twice"}},
        {"[Flux]\n[b]\n[Flux]", {"t:3:1", "Flux", "twice"}},
        {"Flux.b = 1\n[Flux]", {"t:2:1", "Flux", "twice"}},
        {"Flux = 1\n[Flux]", {"t:2:1", "Flux", "twice"}},
        {"Flux = {b = 1}\nFlux = 1", {"t:2:1", "Flux", "twice"}},
        {"Flux = {gpu = 1, gpu = 2}", {"t:1:18", "gpu", "twice"}},
        {"[a", {"t:1:3", "]", "table"}},
        {"[[a]", {"t:1:5", "]]", "table"}},
        {"[]", {"t:1:2", "key"}},
        {"[a] x = 1", {"t:1:5", "line"}},
        {"a = \"x", {"t:1:5", "string"}},
        {"a = \"x\ny\"", {"t:1:5", "string"}},
        {"a = \'\'\'x\'\'", {"t:1:5", "string"}},
        {"a = \"x\\\"", {"t:1:5", "string"}},
        {"\"\"\"a\"\"\" = 1", {"t:1:3", "=", "key"}},
        {"\xc3\xa9 = 1", {"t:1:1", "key"}},
        {"# \xc3\xa9\n'\xc3\xa9' = x", {"t:2:7", "value"}},
        {"a = CUDA", {"t:1:5", "value"}},
        {"a = True", {"t:1:5", "value"}},
        {"a = [1, 2", {"t:1:5", "bracket"}},
        {"Flux = {b = 1", {"t:1:8", "table", "line"}},
        {"Flux = {b = 1\n}", {"t:1:8", "table", "line"}},
        {"Flux = {b = 1,}", {"t:1:15", "key"}},
    };
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        const char *at;
        size_t n;
        wb__toml_kind kind;
        wb_clear_error();
        if (!wb__toml_get(toml(cases[i].text), "Flux", "gpu", &kind, &at, &n))
            fail_msg("accepted:\n%s", cases[i].text);
        if (!failed_with(WB_ERROR_FORMAT, cases[i].facts))
            fail_msg("%s, in:\n%s", wb_error(), cases[i].text);
    }
}

TEST(test_limits)
{
    static char text[(256 << 10) + 2];
    memset(text, '[', 256 << 10);
    memcpy(text, "a = ", 4);
    const char *at;
    size_t n;
    wb__toml_kind kind;
    assert_int_equal(wb__toml_get(toml(text), "Flux", "gpu", &kind, &at, &n), WB_ERROR_FORMAT);
    FAILED(WB_ERROR_FORMAT, "t:1:5", "bracket");
    text[256 << 10] = '[';
    FAILS(wb__toml_get(toml(text), "Flux", "gpu", &kind, &at, &n), WB_ERROR_FORMAT, "t:1:1",
          "262145", "256", "KiB");
}

TEST(test_values)
{
    reads("gpu = 'x'\n[Flux]\n[Flux.gpu2]\ngpu = 'y'", WB__TOML_ABSENT, NULL);
    reads("Flux = 1", WB__TOML_ABSENT, NULL);
    reads("[[Flux]]\ngpu = 'x'\n[[Flux]]\ngpu = 'x'", WB__TOML_ABSENT, NULL);
    reads("[a]\nx = 1\n[Flux]\ngpu = \"CUDA\" # here", WB__TOML_STRING, "CUDA");
    reads("Flux.gpu = 'CUDA'", WB__TOML_STRING, "CUDA");
    reads("Flux = { other = 1, gpu = 'CUDA' }", WB__TOML_STRING, "CUDA");
    reads("['Flux']\n\"gpu\" = \"\"\"CUDA\"\"\"", WB__TOML_STRING, "CUDA");
    reads("[Flux]\ngpu = \"\\u00e9\\\"\"", WB__TOML_STRING, "\\u00e9\\\"");
    reads("[Flux]\ngpu = \'\'\'\'a\'\'b\'\'\'\'\'", WB__TOML_STRING, "'a\'\'b\'\'");
    reads("[Flux]\ngpu = \'\'", WB__TOML_STRING, "");
    reads("[Flux]\ngpu =  12_3 # number", WB__TOML_OTHER, "12_3");
    reads("[Flux]\ngpu = true\n", WB__TOML_OTHER, "true");
    reads("[Flux]\ngpu = [ 1,\n 2 ]", WB__TOML_OTHER, "[ 1,\n 2 ]");
    reads("[Flux]\ngpu = 1979-05-27 07:32:00", WB__TOML_OTHER, "1979-05-27 07:32:00");
    reads("[Flux]\ngpu = {a = 1}", WB__TOML_TABLE, "{a = 1}");
    reads("[Flux.gpu]", WB__TOML_TABLE, NULL);
    reads("[Flux]\ngpu.a = 1", WB__TOML_TABLE, NULL);
}

static void becomes(const char *before, const char *value, const char *after)
{
    size_t n = 0;
    char *text = wb__toml_edit(toml(before), "Flux", "gpu", value, &n);
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
    assert_null(wb__toml_edit(toml(before), "Flux", "gpu", "X", &n));
    if (!failed_with(WB_ERROR_FORMAT, facts)) fail_msg("%s, in:\n%s", wb_error(), before);
}

TEST(test_not_to_be_changed)
{
    refuses_edit("a = \n", FACTS("t:1:5", "value"));
    refuses_edit("b = 1\nFlux = 3\n", FACTS("t:2:1", "Flux", "table"));
    refuses_edit("[[Flux]]\n", FACTS("t:1:1", "Flux", "table"));
    refuses_edit("[Flux.gpu]\n", FACTS("t:1:1", "gpu", "table"));
    refuses_edit("[Flux]\ngpu.a = 1\n", FACTS("t:2:1", "gpu", "table"));
    refuses_edit("[Flux]\ngpu = {a = 1}\n", FACTS("t:2:1", "gpu", "table"));
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
        char *changed = wb__toml_edit(toml(text), "Flux", "gpu", "X", &bytes);
        wb__alloc_fail_at(0);
        if (!changed) {
            assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
            failures++;
        }
        wb__free(changed);
        assert_int_equal(wb_memory_used(), held);
        if (changed) break;
    }
    assert_in_range(failures, 1, 1000);
}
