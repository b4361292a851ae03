/* `weber show FILE` prints an overview of a file of any known format.  BSON files are read whole.
 * A model in a safetensors file of up to BUILT_MOST bytes is loaded, because wb_show looks at its
 * values.  Of other files only the headers are read. */
#include "cli/cli.h"

#include "io/formats.h"
#include "io/json.h"
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

/* A model with more bytes than this is shown as a list of its tensors. */
#define BUILT_MOST ((int64_t)1 << 30)
enum { SHOW_DEEPEST = 64 };             /* levels of nested layers that are listed */

/* Prints the error message, with control characters as escapes, because messages quote text from
 * files. */
int wb__cli_print_error(void)
{
    wb__text t = {0};
    char lines[4096];
    snprintf(lines, sizeof lines, "%s", wb_error());
    for (char *line = lines, *end; line; line = end) {
        if ((end = strchr(line, '\n'))) *end++ = 0;
        wb__text_foreign(&t, line);
        wb__text_add(&t, "\n");
    }
    char *text = wb__text_take(&t);
    fprintf(stderr, "weber: %s", text ? text : "out of memory\n");
    wb__free(text);
    return 1;
}

static int show_print(wb__text *t)
{
    char *text = wb__text_take(t);
    if (!text) return wb__cli_print_error();
    fputs(text, stdout);
    wb__free(text);
    return 0;
}

/* ---- tensors as a table ---------------------------------------------------------------------- */

typedef struct { char *cell[4]; } show_row;         /* name, dtype, shape, bytes */
enum { SHOW_NAME, SHOW_DTYPE, SHAPE, SHOW_BYTES, SHOW_COLUMNS };

static void show_add_shape(wb__text *t, const wb__entry *e)
{
    if (e->axes > WB_MAX_DIMS) {
        wb__text_add(t, "%d axes", e->axes);
        return;
    }
    wb__text_add(t, "[");
    for (int i = 0; i < e->ndim; i++) wb__text_add(t, i ? ",%lld" : "%lld", (long long)e->dims[i]);
    wb__text_add(t, "]");
}

static bool show_make_row(const wb__entry *e, show_row *r)
{
    wb__text cells[SHOW_COLUMNS] = {0};
    wb__text_foreign(&cells[SHOW_NAME], e->name);
    wb__text_foreign(&cells[SHOW_DTYPE], e->dtype ? wb_dtype_name(e->dtype) : e->type);
    show_add_shape(&cells[SHAPE], e);
    wb__text_bytes(&cells[SHOW_BYTES], e->bytes);
    bool good = true;
    for (int i = 0; i < SHOW_COLUMNS; i++) good = (r->cell[i] = wb__text_take(&cells[i])) && good;
    return good;
}

static void show_add_cell(wb__text *t, const char *cell, int width)
{
    wb__text_add(t, "  %s", cell);
    wb__text_spaces(t, width - wb__characters(cell));
}

static void show_add_table(wb__text *t, const wb__table *table)
{
    static char *const heads[SHOW_COLUMNS] = {"name", "dtype", "shape", "bytes"};
    int width[SHOW_COLUMNS] = {4, 5, 5, 0};
    show_row *rows = wb__alloc_zero((size_t)table->n + 1, sizeof *rows);
    bool good = rows != NULL;
    for (int i = 0; good && i < table->n; i++) {
        good = show_make_row(&table->entries[i], &rows[i]);
        for (int c = 0; good && c < SHOW_BYTES; c++)
            width[c] = WB__MAX(width[c], wb__characters(rows[i].cell[c]));
    }
    for (int i = -1; good && i < table->n; i++) {
        for (int c = 0; c < SHOW_COLUMNS; c++)
            show_add_cell(t, i < 0 ? heads[c] : rows[i].cell[c], width[c]);
        wb__text_add(t, "\n");
    }
    for (int i = 0; rows && i < table->n; i++)
        for (int c = 0; c < SHOW_COLUMNS; c++) wb__free(rows[i].cell[c]);
    wb__free(rows);
    t->failed = t->failed || !good;
}

static void show_add_head(wb__text *t, const char *path, const char *what, const wb__table *table)
{
    wb__text_foreign(t, path);
    wb__text_add(t, ": %s, ", what);
    wb__text_count(t, table->n);
    wb__text_add(t, table->n == 1 ? " tensor, " : " tensors, ");
    wb__text_bytes(t, wb__table_bytes(table));
    wb__text_add(t, "\n");
}

/* Adds the notes of a file to the text, one on each line.  A long note is cut. */
static void show_add_notes(wb__text *t, const wb__table *table)
{
    enum { LONGEST = 200 };
    for (int i = 0; i < table->n_notes; i++) {
        char value[LONGEST + 1];
        snprintf(value, sizeof value, "%s", table->notes[i].value);
        wb__text_add(t, "  ");
        wb__text_foreign(t, table->notes[i].key);
        wb__text_add(t, " = ");
        wb__text_foreign(t, value);
        wb__text_add(t, strlen(table->notes[i].value) > LONGEST ? " ...\n" : "\n");
    }
}

/* Prints the table and frees it. */
static int show_table(const char *path, const char *what, wb__table *table, bool notes)
{
    wb__text t = {0};
    show_add_head(&t, path, what, table);
    if (notes) show_add_notes(&t, table);
    if (table->n) show_add_table(&t, table);
    wb__table_free(table);
    return show_print(&t);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static wb__json *show_json_note(const wb__table *table, const char *key)
{
    const char *reason, *text = wb__table_note(table, key);
    return text ? wb__json_read(text, &reason) : NULL;
}

/* Adds a line for each layer and tree that a file describes to the text. */
static void show_add_parts(wb__text *t, const wb__json *node, int depth)
{
    const wb__json *part, *parts = wb__json_get(node, "parts");
    const char *name = wb__json_text(wb__json_get(node, "name")),
               *layer = wb__json_text(wb__json_get(node, "layer")),
               *tree = wb__json_text(wb__json_get(node, "tree")), *kind = layer ? layer : tree;
    if (!kind) return;                  /* the table has the tensors */
    const bool known = layer ? wb__layer_type_named(layer) != NULL
                             : !strcmp(tree, "tuple") || !strcmp(tree, "opaque");
    wb__text_spaces(t, 2 * depth + 2);
    if (name) wb__text_foreign(t, name);
    if (name) wb__text_add(t, ": ");
    wb__text_foreign(t, kind);
    wb__text_add(t, known ? "\n" : ", a struct of the program\n");
    if (wb__json_is(parts, WB__JSON_LIST) && depth < SHOW_DEEPEST)
        WB__JSON_EACH(parts, part, i) show_add_parts(t, part, depth + 1);
}

/* Lists the layers of a model that this command cannot build, since it has structs or functions of
 * a program. */
static int show_parts(const char *path)
{
    wb__text t = {0};
    wb__table table;
    if (wb__st_load(path, false, &table)) return wb__cli_print_error();
    wb__json *note = show_json_note(&table, "weber");
    show_add_head(&t, path, "a model, safetensors", &table);
    wb__text_add(&t, "It has parts of the program that saved it; wb_load needs these declared "
                 "(weber explain W0604).\n");
    show_add_parts(&t, wb__json_get(note, "model"), 0);
    wb__free(note);
    if (table.n) show_add_table(&t, &table);
    wb__table_free(&table);
    return show_print(&t);
}

static int show_model(const char *path)
{
    wb_layer *model = wb_load(path);
    if (!model) return strstr(wb_error(), "(W0604)") ? show_parts(path) : wb__cli_print_error();
    wb_show(model);
    return wb_error_code() == WB_OK ? 0 : wb__cli_print_error();
}

bool wb__cli_describes_layer(const wb__table *table)
{
    wb__json *note = show_json_note(table, "weber");
    const bool layer = wb__json_get(wb__json_get(note, "model"), "layer") != NULL;
    wb__free(note);
    return layer;
}

static void show_add_json(wb__text *t, const wb__json *value)
{
    if (wb__json_text(value)) wb__text_foreign(t, wb__json_text(value));
    else if (wb__json_is(value, WB__JSON_INTEGER))
        wb__text_add(t, "%lld", (long long)wb__json_integer(value));
    else if (wb__json_is(value, WB__JSON_REAL)) wb__text_add(t, "%g", value->is.real);
    else if (wb__json_is(value, WB__JSON_TRUE)) wb__text_add(t, "yes");
    else wb__text_add(t, wb__json_is(value, WB__JSON_FALSE) ? "no" : "?");
}

/* Adds a part of an optimisation rule to the text, such as "Adam(eta = 0.001, ...)". */
static void show_add_rule(wb__text *t, const wb__json *part)
{
    const wb__json *value;
    bool first = true;
    show_add_json(t, wb__json_get(part, "name"));
    wb__text_add(t, "(");
    WB__JSON_EACH_MEMBER(part, value, i) {
        if (!strcmp(wb__json_key(value), "name")) continue;
        wb__text_add(t, first ? "" : ", ");
        wb__text_foreign(t, wb__json_key(value));
        wb__text_add(t, " = ");
        show_add_json(t, value);
        first = false;
    }
    wb__text_add(t, ")");
}

static void show_add_checkpoint(wb__text *t, const wb__json *note)
{
    const wb__json *value, *part;
    WB__JSON_EACH_MEMBER(note, value, i) {
        const bool list = wb__json_is(value, WB__JSON_LIST);
        if (wb__json_is(value, WB__JSON_OBJECT) || (list && strcmp(wb__json_key(value), "rule")))
            continue;
        wb__text_add(t, "  ");
        wb__text_foreign(t, wb__json_key(value));
        wb__text_add(t, " = ");
        if (!list) show_add_json(t, value);
        WB__JSON_EACH(value, part, k) {
            wb__text_add(t, k ? ", " : "");
            show_add_rule(t, part);
        }
        wb__text_add(t, "\n");
    }
    const wb__json *loader = wb__json_get(note, "loader"), *slots = wb__json_get(note, "slots"),
                   *words[4], *word = NULL;
    if (wb__json_is(loader, WB__JSON_LIST) && wb__json_count(loader) == 4) {
        WB__JSON_EACH(loader, word, i) words[i] = word;
        wb__text_add(t, "  loader = ");
        show_add_json(t, words[2]);
        wb__text_add(t, " batches into epoch ");
        show_add_json(t, words[1]);
        wb__text_add(t, "\n");
    }
    if (slots) wb__text_add(t, "  state = of %lld parameters\n", (long long)wb__json_count(slots));
}

static int show_checkpoint(const char *path, wb__table *table)
{
    wb__text t = {0};
    wb__json *note = show_json_note(table, "weber_checkpoint");
    show_add_head(&t, path, "a checkpoint, safetensors", table);
    if (wb__json_is(note, WB__JSON_OBJECT)) show_add_checkpoint(&t, note);
    else wb__text_add(&t, "  (its note cannot be read)\n");
    wb__free(note);
    show_add_table(&t, table);
    wb__table_free(table);
    return show_print(&t);
}

static int show_safetensors(const char *path)
{
    wb__table table;
    if (wb__st_load(path, false, &table)) return wb__cli_print_error();
    if (wb__table_note(&table, "weber_checkpoint")) return show_checkpoint(path, &table);
    const bool own = wb__table_note(&table, "weber") != NULL;
    if (!own || !wb__cli_describes_layer(&table))
        return show_table(path, "safetensors", &table, !own);
    if (wb__table_bytes(&table) > BUILT_MOST)
        return show_table(path, "a model, safetensors", &table, false);
    wb__table_free(&table);
    return show_model(path);
}

/* ---- other formats --------------------------------------------------------------------------- */

/* Prints the arrays of a file and releases the mapping. */
static int show_arrays(const char *path, wb__format format, wb__mapping *m)
{
    wb__table table;
    if (!wb__table_of(m, NULL, false, &table))
        return show_table(path, wb__format_name(format), &table, false);
    wb__unmap(m);
    return wb__cli_print_error();
}

int wb__cli_show(const char *path)
{
    wb__mapping *m = wb__map(path);
    if (!m) return wb__cli_print_error();
    const wb__format format = wb__format_in(m);
    int status = 1;
    switch (format) {
    case WB__FORMAT_ONNX:
        if (!wb__cli_show_onnx(m)) return show_arrays(path, format, m);
        break;
    case WB__FORMAT_BSON: status = wb__cli_show_bson(m); break;
    case WB__FORMAT_SAFETENSORS: status = show_safetensors(path); break;
    case WB__FORMAT_UNKNOWN:
        wb__format_fail(path);
        wb__cli_print_error();
        break;
    default: return show_arrays(path, format, m);
    }
    wb__unmap(m);
    return status;
}
