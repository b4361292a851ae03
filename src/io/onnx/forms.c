/* Checks the form of a node, that is its inputs, outputs and attributes, against its operator in
 * the node's opset, by the rows of ops.def.  Otherwise some would be ignored, and results be wrong:
 * Clip has bounds as attributes before opset 11, and as inputs from it on.  ONNX Runtime refuses
 * the same, and accepts attributes whose names begin with two underscores. */
#include "base/text.h"
#include "io/onnx/frame.h"
#include "io/onnx/read.h"

#include <string.h>

enum { ONNX_FORM_TEXT = 500 };

/* Returns the counts of inputs and outputs of the operator in the opset, which find.c has found to
 * exist. */
static const wb__onnx_ports *onnx_form_ports_of(const wb__onnx_operator *o, int64_t opset)
{
    const wb__onnx_ports *p = o->ports;
    while (p + 1 < o->ports + WB__ONNX_PORTS && p[1].since && p[1].since <= opset) p++;
    return p;
}

const wb__onnx_attr_row *wb__onnx_attr_row_of(const wb__onnx_operator *o, const char *name,
                                              int64_t opset)
{
    const wb__onnx_attr_row *other = NULL;
    for (const wb__onnx_attr_row *a = o->attributes; a && a->type; a++) {
        if (strcmp(a->name, name)) continue;
        if (wb__onnx_in_opset(a, opset)) return a;
        other = a;
    }
    return other;
}

int wb__onnx_word_in(const char *words, const char *text)
{
    int word = 0;
    for (const char *at = words; *at; word += *at == ' ', at += *at != 0) {
        const size_t n = strcspn(at, " =");
        if (!strncmp(text, at, n) && !text[n]) return word;
        at += n;
    }
    return -1;
}

/* Sets the error "FILE: node 3 (Clip): " and the reason, and returns its code.  `since` is the
 * first opset whose operator has what the node's opset lacks, or 0. */
static int onnx_form_fail(const wb__onnx_model *m, const wb__onnx_node *n, int since,
                          const char *format, ...) WB__PRINTF(4, 5);
static int onnx_form_fail(const wb__onnx_model *m, const wb__onnx_node *n, int since,
                          const char *format, ...)
{
    char node[ONNX_FORM_TEXT];
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

/* Returns the first opset in which the operator can have so many inputs or outputs, or 0. */
static int onnx_form_since(const wb__onnx_operator *o, bool is_in, int count)
{
    for (int i = 0; i < WB__ONNX_PORTS && o->ports[i].since; i++) {
        const int most = (is_in ? o->ports[i].in : o->ports[i].out)[1];
        if (count <= most || most == WB__ONNX_ANY) return o->ports[i].since;
    }
    return 0;
}

static int onnx_form_check_most(const wb__onnx_model *m, const wb__onnx_node *n,
                                const wb__onnx_ports *p, bool is_in)
{
    const int most = (is_in ? p->in : p->out)[1], count = is_in ? n->n_in : n->n_out;
    if (count <= most || most == WB__ONNX_ANY) return 0;
    return onnx_form_fail(m, n, onnx_form_since(n->operator, is_in, count),
                          "has %d %s%s, which %s of opset %lld " "does not take: it has %d at most",
                          count, is_in ? "input" : "output", count > 1 ? "s" : "", n->op,
                          (long long)n->opset, most);
}

static int onnx_form_check_least(const wb__onnx_model *m, const wb__onnx_node *n,
                                 const wb__onnx_ports *p, bool is_in)
{
    const int least = (is_in ? p->in : p->out)[0], count = is_in ? n->n_in : n->n_out;
    const int *list = is_in ? n->in : n->out;
    for (int i = 0; i < least; i++)
        if (i >= count || list[i] < 0)
            return onnx_form_fail(m, n, 0,
                                  i < count ? "its %s %d has no name, and %s of opset %lld needs it"
                                            : "has no %s %d, which %s of opset %lld needs",
                                  is_in ? "input" : "output", i, n->op, (long long)n->opset);
    return 0;
}

static const wb__onnx_attr *onnx_form_attribute(const wb__onnx_node *n, const char *name)
{
    for (int i = 0; i < n->n_attrs; i++)
        if (!strcmp(n->attrs[i].name, name)) return &n->attrs[i];
    return NULL;
}

/* Returns 0 if an attribute has the row's type, and its text is one of the row's words, else an
 * error code. */
static int onnx_form_check_value(const wb__onnx_model *m, const wb__onnx_node *n,
                                 const wb__onnx_attr *a, const wb__onnx_attr_row *row)
{
    char known[160];
    if (a->type != row->type)
        return onnx_form_fail(m, n, 0, "its attribute '%.100s' is of type %s, which in %s of opset "
                              "%lld is of type %s", a->name, wb__onnx_attr_type_name(a->type),
                              n->op, (long long)n->opset, wb__onnx_attr_type_name(row->type));
    if (!row->words || wb__onnx_word_in(row->words, a->s) >= 0) return 0;
    wb__list_words(known, sizeof known, row->words);
    return onnx_form_fail(m, n, 0, "its attribute '%.100s' is \"%.60s\"; it is %s", a->name, a->s,
                          known);
}

static int onnx_form_check_given(const wb__onnx_model *m, const wb__onnx_node *n)
{
    int status = 0;
    for (int i = 0; !status && i < n->n_attrs; i++) {
        const wb__onnx_attr *a = &n->attrs[i];
        const wb__onnx_attr_row *row = wb__onnx_attr_row_of(n->operator, a->name, n->opset);
        if (wb__begins(a->name, "__")) continue;
        if (!row || !wb__onnx_in_opset(row, n->opset))
            return onnx_form_fail(m, n, row ? WB__MAX(row->from, n->operator->ports[0].since) : 0,
                                  "has the attribute '%.100s', which %s of opset %lld does not "
                                  "have", a->name, n->op, (long long)n->opset);
        status = onnx_form_check_value(m, n, a, row);
    }
    return status;
}

static int onnx_form_check_needed(const wb__onnx_model *m, const wb__onnx_node *n)
{
    for (const wb__onnx_attr_row *a = n->operator->attributes; a && a->type; a++)
        if (a->is_needed && wb__onnx_in_opset(a, n->opset) && !onnx_form_attribute(n, a->name))
            return onnx_form_fail(m, n, 0, "has no attribute '%s', which %s of opset %lld needs",
                                  a->name, n->op, (long long)n->opset);
    return 0;
}

/* Returns 0 if the type of the first output in an attribute is the type that the graph declares,
 * else an error code. */
static int onnx_form_check_type(const wb__onnx_model *m, const wb__onnx_graph *g,
                                const wb__onnx_node *n)
{
    static const char *const names[] = {"to", "dtype", "output_datatype", "output_dtype"};
    const wb__onnx_value *v = n->n_out && n->out[0] >= 0 ? &g->values[n->out[0]] : NULL;
    for (size_t i = 0; v && v->type && i < WB__COUNT(names); i++) {
        const wb__onnx_attr *a = onnx_form_attribute(n, names[i]);
        if (a && a->type == WB__ONNX_IS_INT && a->i && a->i != (int64_t)v->type)
            return onnx_form_fail(m, n, 0, "its attribute '%s' says that \"%.200s\" is %s, and the "
                                  "graph that it is %s", names[i], v->name,
                                  wb__onnx_type_name(wb__onnx_type_of(a->i)),
                                  wb__onnx_type_name(v->type));
    }
    return 0;
}

int wb__onnx_check_form(const wb__onnx_model *m, const wb__onnx_graph *g, const wb__onnx_node *n)
{
    const wb__onnx_ports *p = onnx_form_ports_of(n->operator, n->opset);
    int status = onnx_form_check_most(m, n, p, true);
    if (!status) status = onnx_form_check_most(m, n, p, false);
    if (!status) status = onnx_form_check_given(m, n);
    if (!status) status = onnx_form_check_least(m, n, p, true);
    if (!status) status = onnx_form_check_least(m, n, p, false);
    if (!status) status = onnx_form_check_needed(m, n);
    return status ? status : onnx_form_check_type(m, g, n);
}
