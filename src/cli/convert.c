/* `weber convert IN OUT` converts a file.  The ending of OUT chooses the format.  A model in IN is
 * loaded and saved if OUT's format can hold models or --torch is given.  Otherwise the tensors of
 * IN are copied under their names, from the mapped file. */
#include "cli/cli.h"

#include "io/formats.h"
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

/* The arguments of the command. */
typedef struct {
    const char *in, *out, *key, *tensor;
    wb__format from, to;
    wb_save_options save;
} conversion;

static int convert_read_arguments(conversion *c, int n, char **words)
{
    for (int i = 0; i < n; i++) {
        const char *word = words[i], *value = i + 1 < n ? words[i + 1] : NULL;
        if (!strcmp(word, "--structs")) c->save.structs = true;
        else if (!strcmp(word, "--torch")) c->save.names = WB_NAMES_TORCH;
        else if (!strcmp(word, "--key") && value) c->key = words[++i];
        else if (!strcmp(word, "--flux") && value) c->save.flux = words[++i];
        else if (!strcmp(word, "--tensor") && value) c->tensor = words[++i];
        else if (word[0] == '-') return -1;
        else if (!c->in) c->in = word;
        else if (!c->out) c->out = word;
        else return -1;
    }
    return c->out ? 0 : -1;
}

static int convert_find_formats(conversion *c)
{
    wb__mapping *m = wb__map(c->in);
    if (!m) return wb__cli_print_error();
    c->from = wb__format_in(m);
    wb__unmap(m);
    c->to = wb__format_named(c->out);
    char endings[WB__FORMAT_WORDS];
    const int take = WB__HAS_MODELS | WB__WRITES_TENSORS | WB__WRITES_ARRAYS;
    if (!c->from) wb__format_fail(c->in);
    else if (c->to == WB__FORMAT_ONNX)
        wb__fail(WB_ERROR_ARGUMENT, "%s: an ONNX file needs example inputs, which a program has: "
                 "wb_save(path, model, .inputs = {x})", c->out);
    else if (!(wb__formats[c->to].flags & take))
        wb__fail(WB_ERROR_ARGUMENT, "%s: its ending must be one of %s", c->out,
                 wb__format_endings(take, endings));
    else if (c->to != WB__FORMAT_BSON && (c->save.structs || c->save.flux))
        wb__fail(WB_ERROR_ARGUMENT, "%s: --structs and --flux are for BSON files", c->out);
    else return 0;
    return wb__cli_print_error();
}

static bool has_models(wb__format f) { return wb__formats[f].flags & WB__HAS_MODELS; }

/* ---- a model --------------------------------------------------------------------------------- */

static bool convert_may_be_model(const conversion *c)
{
    if (c->tensor || !has_models(c->from)) return false;
    if (!has_models(c->to) && c->save.names != WB_NAMES_TORCH) return false;
    if (c->from == WB__FORMAT_BSON) return true;
    wb__table t;
    if (wb__st_load(c->in, false, &t)) return false;
    const bool layer = wb__cli_describes_layer(&t);
    wb__table_free(&t);
    return layer;
}

/* Returns 0 if the model was converted, 1 if no model could be loaded, and -1 if the model could
 * not be saved.  The error is set for 1 and -1. */
static int convert_model(const conversion *c)
{
    wb_layer *model = wb_load(c->in, .key = c->key);
    if (!model) return 1;
    if (wb_save_with(c->out, model, &c->save)) return -1;
    printf("%s: a model\n", c->out);
    return 0;
}

/* Returns a tensor of the values of an entry.  The tensor borrows the memory of the mapped file if
 * the values are aligned there and need no decoding, else it has a copy.  The table must outlive
 * the tensor.  NULL with the error set. */
static wb_tensor *convert_tensor_of(const wb__entry *e)
{
    void *block;
    const void *values = wb__entry_values(e, &block);
    if (!values && e->bytes) return NULL;
    const bool in_place = e->bytes && !block && (uintptr_t)values % wb__dtype_size(e->dtype) == 0;
    if (in_place)
        return wb_borrow((void *)(uintptr_t)values, e->dtype, e->ndim, e->dims, NULL, NULL);
    wb_tensor *x = wb_from(values, e->dtype, e->ndim, e->dims);
    wb__free(block);
    return x;
}

static wb_tree *convert_tree_of(const wb__table *t)
{
    wb_tree *tree = wb__tree_new(t->n);
    for (int i = 0; tree && i < t->n; i++) {
        wb_tensor *x = convert_tensor_of(&t->entries[i]);
        if (!x || !wb__branch_put_copy(&tree->node, i, t->entries[i].name, x)) return NULL;
    }
    return tree;
}

/* Saves one array: the tensor of --tensor, or the only tensor of the file. */
static int convert_save_one(const conversion *c, const wb__table *t)
{
    const wb__entry *e = t->n == 1 ? t->entries : NULL;
    if (c->tensor) e = wb__table_find(t, c->tensor);
    if (!e && c->tensor)
        wb__fail(WB_ERROR_ARGUMENT, "%s: holds no tensor \"%s\"", c->in, c->tensor);
    if (!e && !c->tensor)
        wb__fail(WB_ERROR_ARGUMENT, "%s: an NPY file holds one array, and %s has %d: choose one "
                 "with --tensor NAME", c->out, c->in, t->n);
    if (!e) return -1;
    wb__table one = *t;
    one.n = 1;
    one.entries = (wb__entry *)(uintptr_t)e;
    if (wb__table_check(c->in, &one)) return -1;
    return wb_save_npy(c->out, convert_tensor_of(e));
}

static int convert_save_all(const conversion *c, const wb__table *t)
{
    if (wb__table_check(c->in, t)) return -1;
    wb_tree *tree = convert_tree_of(t);
    return tree ? wb_save_with(c->out, tree, &c->save) : -1;
}

static int convert_tensors(const conversion *c)
{
    wb__table t;
    const char *key = c->key ? c->key : wb__all_variables;
    if (wb__table_load(c->in, key, true, &t)) return -1;
    const bool one = c->to == WB__FORMAT_NPY, layers = wb__cli_describes_layer(&t);
    const int n = one ? 1 : t.n;
    const int status = one ? convert_save_one(c, &t) : convert_save_all(c, &t);
    if (!status && layers && !has_models(c->to))
        fprintf(stderr, "weber: %s: only the tensors; %s files cannot hold layers\n", c->out,
                wb__format_name(c->to));
    const char *by_name = one || t.nameless ? "" : " by name";
    if (!status) printf("%s: %d tensor%s%s\n", c->out, n, n == 1 ? "" : "s", by_name);
    wb__table_free(&t);
    return status;
}

int wb__cli_convert(int n, char **words)
{
    conversion c = {.save = WB_OPTIONS_OF(wb_save_options)};
    if (convert_read_arguments(&c, n, words)) return -1;
    if (convert_find_formats(&c)) return 1;
    /* --key names a top-level entry of a BSON file, both of IN and of OUT.  A key with a dot is a
     * path inside a top-level entry of IN, and OUT then gets the default name. */
    c.save.key = c.key && !strchr(c.key, '.') ? c.key : NULL;
    int status = 1;
    if (convert_may_be_model(&c)) {
        if ((status = convert_model(&c)) < 0) return wb__cli_print_error();
        if (status > 0) {
            wb__cli_print_error();
            fprintf(stderr, "weber: %s: converting its tensors by name\n", c.in);
            wb_clear_error();
        }
    } else if (c.save.names == WB_NAMES_TORCH) {
        wb__fail(WB_ERROR_ARGUMENT,
                 "%s: no model: only a model's tensors have other names with --torch", c.in);
        return wb__cli_print_error();
    }
    if (status > 0 && convert_tensors(&c)) return wb__cli_print_error();
    return 0;
}
