/* The text of CSV files: ends of lines, UTF-16. */
#include "folder.h"

#include "io/dataset/csv.h"

#ifdef WB_HAVE_ZLIB
#include <zlib.h>
#endif

static char path[96];

static wb_tensor *x_of(const void *text, size_t n)
{
    put_file(path, text, n);
    wb_dataset *d = wb_load_csv(path, .header = true);
    if (!d) fail_msg("%s", wb_error());
    return wb_dataset_x(d);
}

/* Whether the file is a, b; 1, 2; 3, 4. */
static void is_table(const void *text, size_t n)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = x_of(text, n);
    assert_string_equal(wb_describe(x), "[2,2] f32");
    for (int i = 0; i < 4; i++) assert_true(wb_at(x, i / 2, i % 2) == i + 1);
    wb_scope_close(s);
}
#define IS_TABLE(text) is_table((text), sizeof(text) - 1)

TEST(ends_of_lines)
{
    IS_TABLE("a,b\r1,2\r3,4\r");
    IS_TABLE("a,b\r1,2\r3,4");
    IS_TABLE("a,b\r1,2\n3,4\r\n");
    IS_TABLE("a,b\r\n1,2\r\n3,4\r");
    IS_TABLE("a,b\r\r\n1,2\r\r\n3,4\r\r\n");
    IS_TABLE("\r\ra,b\r \r1,2\r\r3,\"4\"\r\r");
    IS_TABLE("\xef\xbb\xbf" "a,b\r1,2\r3,4\r");
    IS_TABLE("\"a\",\"b\"\r1 , 2\r\"3\", 4 \r");
}

/* A \r within quotation marks belongs to the word, and one mark within a word opens nothing. */
TEST_IN_SCOPE(returns_in_words)
{
    static const char text[] = "\"k\r\"\"i\",5\" tube,n\r\"x\ry\",2\",1\rz,3\",2\r\"x\ry\",4\",3\r";
    wb_columns *columns;
    put_file(path, text, sizeof text - 1);
    wb_dataset *d = wb_load_csv(path, .header = true, .one_hot = "*", .columns = &columns);
    if (!d) fail_msg("%s", wb_error());
    assert_string_equal(wb_columns_name(columns, 0), "k\r\"i");
    assert_string_equal(wb_columns_word(columns, "k\r\"i", 0), "x\ry");
    assert_string_equal(wb_columns_word(columns, "5\" tube", 2), "4\"");
    assert_int_equal(wb_columns_words(columns, "k\r\"i"), 2);
    assert_true(wb_at(wb_dataset_x(d), 2, 5) == 3);
}

TEST_IN_SCOPE(lines_in_messages)
{
    static const char text[] = "a,b\r1,2\r3,c\r";
    put_file(path, text, sizeof text - 1);
    REFUSED(wb_load_csv(path, .header = true), WB_ERROR_FORMAT, "byte 10", "line 3, column 2",
            "\"c\" is not a number");
}

/* Writes UTF-8 as UTF-16.  Returns the number of bytes. */
static size_t utf_16(const char *text, bool big, bool mark, unsigned char *to)
{
    size_t n = 0;
    uint32_t c = 0xfeff;
    int left = 0;
    for (bool first = mark; first || *text; first = false) {
        if (!first) {
            const unsigned char byte = (unsigned char)*text++;
            if (left) c = c << 6 | (byte & 0x3f), left--;
            else if (byte < 0x80) c = byte;
            else left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3, c = byte & (0x3f >> left);
            if (left) continue;
        }
        const uint32_t high = c < 0x10000 ? c : 0xd800 + ((c - 0x10000) >> 10);
        for (int part = 0; part < (c < 0x10000 ? 1 : 2); part++) {
            const uint32_t unit = part ? 0xdc00 + (c & 0x3ff) : high;
            to[n + big] = (unsigned char)unit;
            to[n + !big] = (unsigned char)(unit >> 8);
            n += 2;
        }
    }
    return n;
}

TEST_IN_SCOPE(utf_16_files)
{
    static const char *const tables[] = {"a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4\r",
                                         "a,b\n1,2\n3,4",
                                         "h\xc3\xb6he,\xe6\x97\xa5\xf0\x9f\x98\x80\n1,2\n3,4\n"};
    unsigned char made[200];
    for (int i = 0; i < 16; i++)
        is_table(made, utf_16(tables[i / 4], i & 1, i & 2, made));
    const char *words = "k,n\n\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80,1\n\xd0\xb4\xd0\xb0,2\n";
    for (int i = 0; i < 4; i++) {
        wb_columns *columns;
        put_file(path, made, utf_16(words, i & 1, i & 2, made));
        MADE(wb_load_csv(path, .header = true, .one_hot = "k", .columns = &columns));
        assert_string_equal(wb_columns_word(columns, "k", 0), "\xd0\xb4\xd0\xb0");
        assert_string_equal(wb_columns_word(columns, "k", 1),
                            "\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80");
    }
}

/* A text ends with a 0, in each encoding. */
TEST(a_zero_behind_the_text)
{
    static const char text[] = "h\xc3\xb6he,\xe6\x97\xa5\xf0\x9f\x98\x80\n1,2\n";
    unsigned char made[100];
    for (int i = 0; i < 5; i++) {
        int64_t bytes;
        bool unpacked;
        put_file(path, i < 4 ? (const void *)made : text,
                 i < 4 ? utf_16(text, i & 1, i & 2, made) : sizeof text - 1);
        char *read = wb__csv_text(path, ',', &bytes, &unpacked);
        MADE(read);
        assert_int_equal(bytes, sizeof text - 1);
        assert_memory_equal(read, text, sizeof text);
        wb__free(read);
    }
}

#define IS_REFUSED(text, ...)                                                                  \
    do {                                                                                       \
        put_file(path, (text), sizeof(text) - 1);                                              \
        REFUSED(wb_load_csv(path, .header = true), WB_ERROR_FORMAT, path, __VA_ARGS__);        \
    } while (0)

TEST_IN_SCOPE(damaged_texts)
{
    IS_REFUSED("\xff\xfe" "a\0,\0b\0\n\0" "1\0,\0" "2", "UTF-16", "odd", "byte 15");
    IS_REFUSED("\xff\xfe" "a\0\n\0\0\xd8" "1\0", "UTF-16", "pair", "byte 6");
    IS_REFUSED("\xfe\xff" "\0a\0\n\xdc\0", "UTF-16", "pair", "byte 6");
    IS_REFUSED("\xfe\xff" "\0a\0\n\xd8\0", "UTF-16", "pair", "byte 6");
    IS_REFUSED("\xff\xfe\0\0" "a\0\0\0\n\0\0\0" "1\0\0\0", "UTF-32", "UTF-8");
    IS_REFUSED("\0\0\xfe\xff" "\0\0\0a", "UTF-32", "UTF-8");
    IS_REFUSED("\xff\xfe", "no rows");
    IS_REFUSED("a,b\n1,2\0\n", "is not a number");
}

#ifdef WB_HAVE_ZLIB
/* Names and cells of columns count against the limit for a compressed file, and a heading whose
 * row is missing makes no columns. */
TEST_IN_SCOPE(many_names)
{
    enum { NAMES = 100000 };
    wb_set_unpack_limit(1 << 20);
    for (int rows = 0; rows < 2; rows++) {
        gzFile f = gzopen(path, "wb9");
        for (int i = 0; i < NAMES; i++) gzwrite(f, i ? ",a" : "a", i ? 2 : 1);
        gzwrite(f, "\n", 1);
        for (int i = 0; rows && i < NAMES; i++) gzwrite(f, i ? ",1" : "1", i ? 2 : 1);
        assert_int_equal(gzclose(f), Z_OK);
        REFUSED(wb_load_csv(path, .header = true), WB_ERROR_FORMAT, path,
                rows ? "wb_set_unpack_limit" : "no rows", rows ? "100000 columns" : "line 2");
    }
    wb_set_unpack_limit(8 << 20);
    MADE(wb_load_csv(path, .header = true));
    wb_set_unpack_limit((int64_t)4 << 30);
}
#endif

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/a.csv", folder);
    return 0;
}

int main(void) { return run_cases(make, remove_folder); }
