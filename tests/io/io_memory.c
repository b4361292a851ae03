/* The memory that a reader allocates is at most a small multiple of the file's size plus a
 * constant, for hostile files too.  Every block of the process is counted, including those of zlib
 * and libzip.
 *
 *   io_memory --table       also prints how much memory each file took */
#include "test.h"

#include "every_block.h"

#include "base/files/file.h"
#include "base/files/packed.h"
#include "base/text.h"
#include "base/toml.h"
#include "io/flux/flux.h"
#include "io/formats.h"
#include "io/dataset/idx.h"
#include "io/numpy/npz.h"

#include <unistd.h>

#ifdef WB_HAVE_ZLIB
#include <zlib.h>
#endif

/* ---- the readers ----------------------------------------------------------------------------- */

/* A reader may allocate `multiple` bytes for each byte of the file, and BESIDE bytes more.  A row
 * of a table, a layer or a value of JSON takes hundreds of bytes in memory and at least a dozen in
 * a file. */
enum { TABLE = 32, MODEL = 96, TEXT = 32, VALUES = 4, BESIDE = 1 << 20 };

static char path[128];
static bool table;

static void read_header(void)
{
    wb__table t;
    if (!wb__st_load(path, false, &t)) wb__table_free(&t);
}

static void read_tensors(void)
{
    wb__table t;
    if (!wb__st_load(path, true, &t)) wb__table_free(&t);
}

static void load_idx_tensor(void) { wb_load_idx_tensor(path); }
static void read_idx_table(void)
{
    wb__table t;
    wb__mapping *m = wb__map(path);
    if (m && wb__idx_table(m, false, &t)) wb__unmap(m);
    else if (m) wb__table_free(&t);
}
static void read_npy(void) { wb_load_npy(path); }
static void read_csv(void) { wb_load_csv(path); }
static void read_model(void) { wb_load(path); }
static void read_checkpoint(void)
{
    wb_checkpoint c = {0};
    wb_load_checkpoint(path, &c);
}

static void read_toml(void)
{
    int64_t n;
    char *text = wb__file_read(path, &n);
    const char *at;
    size_t bytes;
    wb__toml_kind kind;
    if (text) wb__toml_get((wb__toml){path, text, (size_t)n}, "Flux", "a", &kind, &at, &bytes);
    wb__free(text);
}

typedef struct { const char *name; void (*read)(void); int64_t multiple; } reader;
static const reader header_of_tensors = {"safetensors, header", read_header, TABLE},
                    tensors = {"safetensors", read_tensors, TABLE},
                    model = {"wb_load", read_model, MODEL},
                    checkpoint = {"checkpoint", read_checkpoint, MODEL},
                    idx = {"IDX", load_idx_tensor, VALUES},
                    idx_table = {"IDX, header", read_idx_table, VALUES},
                    npy = {"NPY", read_npy, VALUES}, csv = {"CSV", read_csv, TEXT},
                    toml = {"TOML", read_toml, TEXT};

static void quiet(wb_log_level level, const char *text, void *context)
{
    (void)level, (void)text, (void)context;
}

static void read_table(void)
{
    wb__table t;
    if (!wb__table_load(path, NULL, true, &t)) wb__table_free(&t);
}

static int ignore_row(const wb__flux_row *r, void *context) { return (void)r, (void)context, 0; }
static void read_outline(void)
{
    wb__mapping *m = wb__map(path);
    if (m) wb__flux_outline(m, ignore_row, NULL);
    wb__unmap(m);
}

#ifdef WB_HAVE_ZIP
static void read_npz(void)
{
    wb__table t;
    wb__mapping *m = wb__map(path);
    if (!m) return;
    if (wb__npz_table(m, true, &t)) wb__unmap(m);
    else wb__table_free(&t);
}
static const reader npz = {"NPZ", read_npz, TABLE};
#endif

/* Writes the file and reads it.  Frees `contents`. */
static void check(const reader *r, const char *what, wb__text *contents)
{
    const size_t n = contents->length;
    char *text = wb__text_take(contents);
    assert_non_null(text);
    assert_int_equal(wb__file_write(path, text, (int64_t)n), 0);
    wb__free(text);
    wb_scope *scope = wb_scope_open();
    wb_clear_error();
    const int64_t before = atomic_load(&live);
    atomic_store(&peak, before);
    r->read();
    const int64_t taken = atomic_load(&peak) - before;
    wb_scope_close(scope);
    if (table)
        printf("%-20s %-34s %9zu bytes: %10lld, %6.1f times  %.90s\n", r->name, what, n,
               (long long)taken, (double)taken / (double)n, wb_error());
    if (taken > r->multiple * (int64_t)n + BESIDE)
        fail_msg("%s, %s: %lld bytes for a file of %zu: more than %lld times and %d", r->name, what,
                 (long long)taken, n, (long long)r->multiple, BESIDE);
}

/* ---- hostile files --------------------------------------------------------------------------- */

static const wb__text none;

static void repeat(wb__text *t, const char *text, int n)
{
    for (int i = 0; i < n; i++) wb__text_raw(t, text, strlen(text));
}

/* A safetensors file with this header, then `bytes` zeros.  Frees the header. */
static wb__text with_header(wb__text *header, int64_t bytes)
{
    wb__text t = none;
    char length[8];
    for (int i = 0; i < 8; i++) length[i] = (char)((uint64_t)header->length >> (8 * i));
    wb__text_raw(&t, length, 8);
    wb__text_raw(&t, header->text, header->length);
    for (int64_t i = 0; i < bytes; i++) wb__text_raw(&t, "", 1);
    wb__free(wb__text_take(header));
    return t;
}

static void check_header(const char *what, wb__text *header, int64_t bytes)
{
    wb__text t = with_header(header, bytes), again = none;
    wb__text_raw(&again, t.text, t.length);
    check(&header_of_tensors, what, &t);
    t = none;
    wb__text_raw(&t, again.text, again.length);
    check(&tensors, what, &t);
    check(&model, what, &again);
}

/* A file with `text`, its quotes escaped, as a note under `key`, and one tensor of `bytes` bytes.
 * Frees the text. */
static wb__text with_note(const char *key, wb__text *text, int64_t bytes)
{
    wb__text h = none;
    wb__text_add(&h, "{\"__metadata__\":{\"format\":\"weber\",\"%s\":\"", key);
    for (size_t i = 0; i < text->length; i++) {
        if (text->text[i] == '"') wb__text_raw(&h, "\\", 1);
        wb__text_raw(&h, &text->text[i], 1);
    }
    wb__text_add(&h, "\"},\"x\":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}}",
                 (long long)bytes, (long long)bytes);
    wb__free(wb__text_take(text));
    return with_header(&h, bytes);
}

TEST(tables_of_tensors)
{
    wb__text t = none;
    wb__text_add(&t, "{");
    for (int i = 0; i < 20000; i++)
        wb__text_add(&t, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                     i ? "," : "", i);
    wb__text_add(&t, "}");
    check_header("many tensors without elements", &t, 0);
    wb__text_add(&t, "{\"__metadata__\":{");
    for (int i = 0; i < 100000; i++) wb__text_add(&t, "%s\"%x\":\"\"", i ? "," : "", i);
    wb__text_add(&t, "}}");
    check_header("many empty notes", &t, 0);
    for (int i = 0; i < 100000; i++) wb__text_add(&t, "%s\"%x\":{}", i ? "," : "{", i);
    wb__text_add(&t, "}");
    check_header("many empty objects", &t, 0);
    wb__text_add(&t, "{\"a\":[");
    repeat(&t, "[],", 300000);
    wb__text_add(&t, "0]}");
    check_header("a dense list", &t, 0);
    wb__text_add(&t, "{\"a\":[");
    repeat(&t, "{},", 300000);
    wb__text_add(&t, "0]}");
    check_header("a list of empty objects", &t, 0);
    wb__text_add(&t, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[");
    repeat(&t, "1,", 300000);
    wb__text_add(&t, "0]}}");
    check_header("a long shape", &t, 0);
    wb__text_add(&t, "{\"a\":");
    repeat(&t, "[", 1000000);
    check_header("a million brackets", &t, 0);
    repeat(&t, "{\"\":", 300000);
    check_header("deep objects", &t, 0);
    wb__text_add(&t, "{\"");
    repeat(&t, "\\u0001", 200000);
    wb__text_add(&t, "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    check_header("a long name", &t, 1);
    wb__text_add(
        &t, "{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967295],\"data_offsets\":[0,34359738360]}}");
    check_header("values that are not there", &t, 1000);
}

TEST(descriptions_of_models)
{
    static const char *const parts[] = {
        "{\"name\":\"%d\",\"layer\":\"Dropout\"}", "{\"name\":\"%d\",\"layer\":\"GlobalMeanPool\"}",
        "{\"name\":\"%d\",\"layer\":\"Dense\",\"options\":{\"in\":1,\"out\":1}}"};
    for (size_t k = 0; k < WB__COUNT(parts); k++) {
        wb__text t = none, file;
        wb__text_add(&t, "{\"version\":1,\"model\":{\"layer\":\"Chain\",\"parts\":[");
        for (int i = 0; i < 5000; i++) {
            char part[128];
            int n = snprintf(part, sizeof part, "%s", i ? "," : "");
            snprintf(part + n, sizeof part - (size_t)n, parts[k], i);
            wb__text_raw(&t, part, strlen(part));
        }
        wb__text_add(&t, "]}}");
        file = with_note("weber", &t, 16);
        check(&model, parts[k] + 23, &file);
    }
    static const char *const dense[] = {"[],", "{},", "1,", "\"\",", "{\"a\":1},"};
    for (size_t k = 0; k < WB__COUNT(dense); k++) {
        wb__text t = none, file;
        wb__text_add(&t, "{\"version\":1,\"epoch\":0,\"random\":[\"0\",\"0\"],"
                         "\"model\":{\"layer\":\"Chain\",\"parts\":[");
        repeat(&t, dense[k], 200000);
        wb__text_add(&t, "0]}}");
        char *text = wb__strdup(t.text);
        file = with_note("weber", &t, 16);
        check(&model, dense[k], &file);
        wb__text_add(&t, "%s", text);
        wb__free(text);
        file = with_note("weber_checkpoint", &t, 16);
        check(&checkpoint, dense[k], &file);
    }
    wb__text t = none, file;
    wb__text_add(&t, "{\"version\":1,\"model\":{\"layer\":\"Chain\",\"parts\":[");
    for (int i = 0; i < 100; i++)
        wb__text_add(
            &t, "%s{\"name\":\"%d\",\"layer\":\"Dense\",\"options\":{\"in\":3000,\"out\":3000}}",
            i ? "," : "", i);
    wb__text_add(&t, "]}}");
    file = with_note("weber", &t, 16);
    check(&model, "large layers without values", &file);
}

TEST(arrays)
{
    wb__text t = none;
    wb__text_raw(&t, "\0\0\x0e\2\xff\xff\0\0\0\0\xff\xff", 12);
    check(&idx, "values that are not there", &t);
    wb__text_raw(&t, "\0\0\x0b\1\0\x0f\x42\x40", 8);
    repeat(&t, "ab", 1000000);
    check(&idx, "widened", &t);
    wb__text_raw(&t, "\0\0\x0e\1\0\1\xe8\x48", 8);
    repeat(&t, "abcdefgh", 125000);
    check(&idx, "doubles", &t);
    wb__text_raw(&t, "\0\0\x0e\1\0\1\xe8\x48", 8);
    repeat(&t, "abcdefgh", 125000);
    check(&idx_table, "doubles", &t);
    static const struct { const char *type; int bytes, order; } kinds[] = {
        {"<f8", 8, 0}, {"<u2", 2, 0}, {"<u4", 4, 0}, {"|b1", 1, 0}, {"<f8", 8, 1}, {"<u2", 2, 1}};
    for (size_t i = 0; i < WB__COUNT(kinds) + 1; i++) {
        const bool absent = i == WB__COUNT(kinds);
        wb__text h = none;
        wb__text_add(&h, "{'descr': '%s', 'fortran_order': %s, 'shape': (1000, %d), }",
                     absent ? "<f8" : kinds[i].type, !absent && kinds[i].order ? "True" : "False",
                     absent ? 4000000 : 100);
        wb__text_raw(&t, "\x93NUMPY\1\0", 8);
        wb__text_raw(&t, (char[]){(char)h.length, 0}, 2);
        wb__text_raw(&t, h.text, h.length);
        wb__free(wb__text_take(&h));
        repeat(&t, "\1", absent ? 100000 : 100000 * kinds[i].bytes);
        check(&npy, absent ? "values that are not there" : kinds[i].type, &t);
    }
}

TEST(texts)
{
    wb__text t = none;
    repeat(&t, "1\n", 500000);
    check(&csv, "one column", &t);
    repeat(&t, "1,", 500000);
    check(&csv, "one row", &t);
    repeat(&t, ",", 1000000);
    check(&csv, "commas", &t);
    repeat(&t, "\n", 1000000);
    check(&csv, "empty lines", &t);
    wb__text_raw(&t, "\"", 1);
    repeat(&t, "a", 1000000);
    check(&csv, "a quote without an end", &t);
    for (int i = 0; i < 20000; i++) wb__text_add(&t, "%d=1\n", i);
    check(&toml, "many keys", &t);
    for (int i = 0; i < 20000; i++) wb__text_add(&t, "[a%d]\n", i);
    check(&toml, "many tables", &t);
    wb__text_add(&t, "a=[");
    repeat(&t, "[],", 70000);
    check(&toml, "a dense list", &t);
    wb__text_add(&t, "a=");
    repeat(&t, "{a=", 60000);
    check(&toml, "deep tables", &t);
    repeat(&t, "a.", 100000);
    check(&toml, "a long key", &t);
}

/* ---- BSON ------------------------------------------------------------------------------------ */

static void little(wb__text *t, uint64_t value, int bytes)
{
    for (; bytes; bytes--, value >>= 8) wb__text_raw(t, (char[]){(char)value}, 1);
}

/* Begins a document and returns the position of its length, which end() fills in. */
static size_t begin(wb__text *t, char kind, const char *key)
{
    if (key) wb__text_raw(t, &kind, 1);
    if (key) wb__text_raw(t, key, strlen(key) + 1);
    little(t, 0, 4);
    return t->length - 4;
}

static void end(wb__text *t, size_t at)
{
    wb__text_raw(t, "", 1);
    for (int i = 0; i < 4; i++) t->text[at + (size_t)i] = (char)((t->length - at) >> (8 * i));
}

static void add_string(wb__text *t, const char *key, const char *value)
{
    wb__text_raw(t, "\2", 1);
    wb__text_raw(t, key, strlen(key) + 1);
    little(t, strlen(value) + 1, 4);
    wb__text_raw(t, value, strlen(value) + 1);
}

static void add_type(wb__text *t, const char *module, const char *name)
{
    size_t type = begin(t, 3, "type"), list;
    add_string(t, "tag", "datatype");
    list = begin(t, 4, "params");
    end(t, list);
    list = begin(t, 4, "name");
    add_string(t, "0", module);
    add_string(t, "1", name);
    end(t, list);
    end(t, type);
}

/* An f32 array with n numbers, which announces `claimed` numbers. */
static void add_array(wb__text *t, const char *key, int n, int64_t claimed)
{
    size_t array = begin(t, 3, key), list;
    add_string(t, "tag", "array");
    add_type(t, "Core", "Float32");
    list = begin(t, 4, "size");
    wb__text_raw(t, "\x12" "0", 3);
    little(t, (uint64_t)claimed, 8);
    end(t, list);
    wb__text_raw(t, "\5data", 6);
    little(t, 4 * (uint64_t)n, 4);
    little(t, 0, 1 + 4 * n);
    end(t, array);
}

/* A struct Flux.NAME with n fields, each added by `part`. */
static void add_layer(wb__text *t, const char *key, const char *name, int n,
                      void (*part)(wb__text *t, const char *key))
{
    size_t layer = begin(t, 3, key), list;
    add_string(t, "tag", "struct");
    add_type(t, "Flux", name);
    list = begin(t, 4, "data");
    if (!strcmp(name, "Chain")) {
        size_t inner = begin(t, 4, "0");
        for (int i = 0; i < n; i++) part(t, "0");
        end(t, inner);
    } else {
        for (int i = 0; i < n; i++) part(t, "0");
    }
    end(t, list);
    end(t, layer);
}

static void no_numbers(wb__text *t, const char *key) { add_array(t, key, 0, 0); }
static void one_number(wb__text *t, const char *key) { add_array(t, key, 1, 1); }
static void many_numbers(wb__text *t, const char *key) { add_array(t, key, 1, 1000000000); }
static void null(wb__text *t, const char *key)
{
    wb__text_raw(t, "\12", 1), wb__text_raw(t, key, strlen(key) + 1);
}

static void empty(wb__text *t, const char *key) { end(t, begin(t, 3, key)); }
static void backref(wb__text *t, const char *key)
{
    size_t at = begin(t, 3, key);
    add_string(t, "tag", "backref");
    wb__text_raw(t, "\x12ref", 5);
    little(t, 1, 8);
    end(t, at);
}
static void relu(wb__text *t, const char *key) { add_layer(t, key, "#relu", 0, NULL); }
static void pool(wb__text *t, const char *key) { add_layer(t, key, "GlobalMaxPool", 0, NULL); }
static void unknown(wb__text *t, const char *key) { add_layer(t, key, "Stranger", 1, null); }
static void norm(wb__text *t, const char *key) { add_layer(t, key, "BatchNorm", 8, one_number); }

static void check_document(const char *what, const wb__text *contents)
{
    static const reader readers[] = {{"BSON, model", read_model, MODEL},
                                     {"BSON, tensors", read_table, TABLE},
                                     {"BSON, outline", read_outline, TABLE}};
    for (size_t i = 0; i < WB__COUNT(readers); i++) {
        wb__text t = none;
        wb__text_raw(&t, contents->text, contents->length);
        check(&readers[i], what, &t);
    }
}

TEST(documents)
{
#ifndef WB_HAVE_BSON
    printf("SKIP: built without libbson\n");
    fflush(stdout);
    skip();
#endif
    typedef void add_part(wb__text *t, const char *key);
    static const struct { const char *what; add_part *part; } parts[] = {
        {"nothing, many times", null}, {"many empty documents", empty},
        {"many empty arrays", no_numbers}, {"many small arrays", one_number},
        {"arrays that are not there", many_numbers}, {"many functions", relu},
        {"many layers without values", pool}, {"many unknown parts", unknown},
        {"layers of another make", norm}, {"many references", backref}};
    for (size_t k = 0; k < WB__COUNT(parts); k++) {
        wb__text t = none;
        size_t all = begin(&t, 0, NULL), list = begin(&t, 4, "_backrefs");
        add_layer(&t, "0", "Chain", 1000, pool);
        end(&t, list);
        add_layer(&t, "model", "Chain", 4000, parts[k].part);
        end(&t, all);
        check_document(parts[k].what, &t);
        wb__free(wb__text_take(&t));
    }
    wb__text t = none;
    size_t open[20000], all = begin(&t, 0, NULL);
    for (size_t i = 0; i < WB__COUNT(open); i++) open[i] = begin(&t, 4, i ? "0" : "model");
    for (size_t i = WB__COUNT(open); i-- > 0;) end(&t, open[i]);
    end(&t, all);
    check_document("deep lists", &t);
    wb__free(wb__text_take(&t));
}

/* ---- archives -------------------------------------------------------------------------------- */

#ifdef WB_HAVE_ZIP
/* An archive of n uncompressed members with the same contents.  Their headers announce `claimed`
 * bytes. */
static void make_archive(wb__text *t, int n, const char *contents, uint32_t size, uint32_t claimed,
                         uint32_t crc)
{
    wb__text list = none;
    for (int i = 0; i < n; i++) {
        char name[16];
        const int length = snprintf(name, sizeof name, "%x.npy", i);
        wb__text_raw(&list, "PK\1\2\24\0", 6);
        for (wb__text *to = t; to; to = to == t ? &list : NULL) {
            if (to == t) wb__text_raw(t, "PK\3\4", 4);
            wb__text_raw(to, "\24\0\0\0\0\0\0\0\41\0", 10);
            little(to, crc, 4);
            little(to, claimed, 4);
            little(to, claimed, 4);
            little(to, (uint64_t)length, 2);
            little(to, 0, 2);
            if (to == t) wb__text_raw(t, name, (size_t)length);
        }
        little(&list, 0, 10);
        little(&list, t->length - (size_t)length - 30, 4);
        wb__text_raw(&list, name, (size_t)length);
        wb__text_raw(t, contents, size);
    }
    const uint64_t begin = t->length;
    wb__text_raw(t, list.text ? list.text : "", list.length);
    wb__text_raw(t, "PK\5\6\0\0\0\0", 8);
    little(t, (uint64_t)n, 2);
    little(t, (uint64_t)n, 2);
    little(t, t->length - 12 - begin, 4);
    little(t, begin, 4);
    little(t, 0, 2);
    wb__free(wb__text_take(&list));
}

TEST(archives)
{
    wb__text t = none;
    make_archive(&t, 20000, "", 0, 0, 0);
    check(&npz, "many empty members", &t);
    make_archive(&t, 1, "\x93NUMPY\1\0", 8, 2000000000, 0);
    check(&npz, "values that are not there", &t);
    static const char cut[] = "\x93NUMPY\1\0\xff\xff";
    make_archive(&t, 20000, cut, 10, 10, wb__crc32(0, cut, 10));
    check(&npz, "headers that are not there", &t);
    static const char array[] =
        "\x93NUMPY\1\0\x35\0{'descr':'|u1','fortran_order':False,'shape':(1,)}  \n";
    const uint32_t size = sizeof array;             /* its one element is the terminating zero */
    make_archive(&t, 20000, array, size, size, wb__crc32(0, array, size));
    check(&npz, "many small arrays", &t);
}
#else
TEST(archives)
{
    printf("SKIP: built without libzip\n");
    fflush(stdout);
    skip();
}
#endif

#ifdef WB_HAVE_ZLIB
/* A file may decompress to at most the limit that wb_set_unpack_limit sets. */
TEST(bombs)
{
    enum { LIMIT = 1 << 20 };
    const reader limited = {"IDX", load_idx_tensor, 3 * LIMIT / 1000};
    gzFile f = gzopen(path, "wb9");
    static char zeros[1 << 16];
    gzwrite(f, "\0\0\x08\1\x40\0\0\0", 8);
    for (int i = 0; i < 1000; i++) gzwrite(f, zeros, sizeof zeros);
    gzclose(f);
    int64_t n;
    char *bytes = NULL;
    FILE *raw = fopen(path, "rb");
    wb__text t = none;
    char block[4096];
    for (size_t some; (some = fread(block, 1, sizeof block, raw)) > 0;)
        wb__text_raw(&t, block, some);
    fclose(raw);
    wb_set_unpack_limit(LIMIT);
    REFUSED(wb_load_idx_tensor(path), WB_ERROR_FORMAT, "1048576", "decompressed");
    const wb__text copy = t;
    t = none;
    wb__text_raw(&t, copy.text, copy.length);
    assert_true(copy.length < 100000);
    check(&limited, "a bomb of 64 MB", &t);
    wb__free(copy.text);
    bytes = wb__file_read(path, &n);
    assert_null(bytes);
    wb_set_unpack_limit((int64_t)4 << 30);
}
#endif

static int make_name(void **state)
{
    snprintf(path, sizeof path, "/tmp/weber-memory-%ld", (long)getpid());
    wb_set_log(quiet, NULL);
    /* Allocates the memory that the library keeps, so that no test counts it. */
    wb_mean(wb_add(wb_ones(2, 2), wb_ones(2, 2)));
    return 0;
}

static int remove_file(void **state)
{
    remove(path);
    return 0;
}

int main(int argc, char **argv)
{
    table = argc > 1 && !strcmp(argv[1], "--table");
    if (!begin_counting()) {
        printf("SKIP: the blocks of this C library cannot be counted\n");
        return 77;
    }
    return run_cases(make_name, remove_file);
}
