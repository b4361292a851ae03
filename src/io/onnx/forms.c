/* What the operator of a node has in the node's opset: inputs, outputs and attributes, by the forms
 * of ops.def.  What it does not have would be ignored, and the results be wrong: Clip has bounds as
 * attributes before opset 11, and as inputs from it on.  ONNX Runtime refuses the same, and lets
 * attributes pass whose names begin with two underscores. */
#include "base/text.h"
#include "io/onnx/frame.h"
#include "io/onnx/read.h"

#include <string.h>

enum { TEXT = 500 };

/* The form of the opset.  find.c has found that there is one. */
static const wb__onnx_form *form_of(const wb__onnx_operator *o, int64_t opset)
{
    const wb__onnx_form *f = o->forms;
    while (f + 1 < o->forms + WB__ONNX_FORMS && f[1].since && f[1].since <= opset) f++;
    return f;
}

/* Goes to the next name of a list.  Sets *name, *n, and whether the attribute is needed. */
static bool next_name(const char **list, const char **name, size_t *n, bool *needed)
{
    *name = *list + strspn(*list, " ");
    *n = strcspn(*name, " !");
    *needed = (*name)[*n] == '!';
    *list = *name + *n + *needed;
    return *n > 0;
}

static bool has_name(const wb__onnx_form *f, const char *attribute)
{
    const char *list = f->attributes, *name;
    size_t n;
    bool needed;
    while (next_name(&list, &name, &n, &needed))
        if (strlen(attribute) == n && !memcmp(attribute, name, n)) return true;
    return false;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Fails with "FILE: node 3 (Clip): " and the reason.  since: the first opset whose operator has
 * what this one lacks, or 0 */
static int fail(const wb__onnx_model *m, const wb__onnx_node *n, int since, const char *format, ...)
    WB__PRINTF(4, 5);
static int fail(const wb__onnx_model *m, const wb__onnx_node *n, int since, const char *format, ...)
{
    char node[TEXT];
    va_list arguments;
    wb__text t = {0};
    wb__text_add(&t, "%s: %s: ", m->path, wb__onnx_node_text(n, node, sizeof node));
    va_start(arguments, format);
    wb__text_list(&t, format, arguments);
    va_end(arguments);
    if (since)
        wb__text_add(&t, "; that of opset %d does: correct the file's opset_import, or export the "
                     "model again", since);
    char *text = wb__text_take(&t);
    const int status = text ? wb__fail(WB_ERROR_FORMAT, "%s", text) : WB_ERROR_MEMORY;
    wb__free(text);
    return status;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* The first opset in which the operator has so many inputs or outputs, or 0 */
static int since_ports(const wb__onnx_operator *o, bool is_in, int count)
{
    for (int i = 0; i < WB__ONNX_FORMS && o->forms[i].since; i++) {
        const int most = (is_in ? o->forms[i].in : o->forms[i].out)[1];
        if (count <= most || most == WB__ONNX_ANY) return o->forms[i].since;
    }
    return 0;
}

static int check_most(const wb__onnx_model *m, const wb__onnx_node *n, const wb__onnx_form *f,
                      bool is_in)
{
    const int most = (is_in ? f->in : f->out)[1], count = is_in ? n->n_in : n->n_out;
    if (count <= most || most == WB__ONNX_ANY) return 0;
    return fail(m, n, since_ports(n->operator, is_in, count), "has %d %s%s, which %s of opset %lld "
                "does not take: it has %d at most", count, is_in ? "input" : "output",
                count > 1 ? "s" : "", n->op, (long long)n->opset, most);
}

static int check_least(const wb__onnx_model *m, const wb__onnx_node *n, const wb__onnx_form *f,
                       bool is_in)
{
    const int least = (is_in ? f->in : f->out)[0], count = is_in ? n->n_in : n->n_out;
    const int *list = is_in ? n->in : n->out;
    for (int i = 0; i < least; i++)
        if (i >= count || list[i] < 0)
            return fail(m, n, 0, i < count ? "its %s %d has no name, and %s of opset %lld needs it"
                                           : "has no %s %d, which %s of opset %lld needs",
                        is_in ? "input" : "output", i, n->op, (long long)n->opset);
    return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* The first opset in which the operator has the attribute, or 0 */
static int since_attribute(const wb__onnx_operator *o, const char *attribute)
{
    for (int i = 0; i < WB__ONNX_FORMS && o->forms[i].since; i++)
        if (has_name(&o->forms[i], attribute)) return o->forms[i].since;
    return 0;
}

static const wb__onnx_attr *attribute_of(const wb__onnx_node *n, const char *name, size_t length)
{
    for (int i = 0; i < n->n_attrs; i++)
        if (strlen(n->attrs[i].name) == length && !memcmp(n->attrs[i].name, name, length))
            return &n->attrs[i];
    return NULL;
}

static int check_given(const wb__onnx_model *m, const wb__onnx_node *n, const wb__onnx_form *f)
{
    for (int i = 0; i < n->n_attrs; i++) {
        const char *given = n->attrs[i].name;
        if (!wb__begins(given, "__") && !has_name(f, given))
            return fail(m, n, since_attribute(n->operator, given), "has the attribute '%.100s', "
                        "which %s of opset %lld does not have", given, n->op, (long long)n->opset);
    }
    return 0;
}

static int check_needed(const wb__onnx_model *m, const wb__onnx_node *n, const wb__onnx_form *f)
{
    const char *list = f->attributes, *name;
    size_t length;
    bool needed;
    while (next_name(&list, &name, &length, &needed))
        if (needed && !attribute_of(n, name, length))
            return fail(m, n, 0, "has no attribute '%.*s', which %s of opset %lld needs",
                        (int)length, name, n->op, (long long)n->opset);
    return 0;
}

/* The types of the first output that attributes name and that the graph declares are the same. */
static int check_type(const wb__onnx_model *m, const wb__onnx_graph *g, const wb__onnx_node *n)
{
    static const char *const names[] = {"to", "dtype", "output_datatype", "output_dtype"};
    const wb__onnx_value *v = n->n_out && n->out[0] >= 0 ? &g->values[n->out[0]] : NULL;
    for (size_t i = 0; v && v->type && i < WB__COUNT(names); i++) {
        const wb__onnx_attr *a = attribute_of(n, names[i], strlen(names[i]));
        if (a && a->type == WB__ONNX_IS_INT && a->i && a->i != (int64_t)v->type)
            return fail(m, n, 0, "its attribute '%s' says that \"%.200s\" is %s, and the graph "
                        "that it is %s", names[i], v->name,
                        wb__onnx_type_name(wb__onnx_type_of(a->i)), wb__onnx_type_name(v->type));
    }
    return 0;
}

int wb__onnx_check_form(const wb__onnx_model *m, const wb__onnx_graph *g, const wb__onnx_node *n)
{
    const wb__onnx_form *f = form_of(n->operator, n->opset);
    int status = check_most(m, n, f, true);
    if (!status) status = check_most(m, n, f, false);
    if (!status) status = check_given(m, n, f);
    if (!status) status = check_least(m, n, f, true);
    if (!status) status = check_least(m, n, f, false);
    if (!status) status = check_needed(m, n, f);
    return status ? status : check_type(m, g, n);
}
