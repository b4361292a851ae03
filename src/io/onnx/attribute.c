/* AttributeProto.  A field has the type, and a value of another type is an error. */
#include "io/onnx/read.h"

#include <stdio.h>

/* The type of the value in each field, or 0. */
static const uint8_t onnx_attr_values[ATTR_FIELDS] = {
    [ATTR_FLOAT] = WB__ONNX_IS_FLOAT, [ATTR_INT] = WB__ONNX_IS_INT,
    [ATTR_STRING] = WB__ONNX_IS_STRING, [ATTR_TENSOR] = WB__ONNX_IS_TENSOR,
    [ATTR_GRAPH] = WB__ONNX_IS_GRAPH, [ATTR_FLOATS] = WB__ONNX_IS_FLOATS,
    [ATTR_INTS] = WB__ONNX_IS_INTS, [ATTR_STRINGS] = WB__ONNX_IS_STRINGS,
    [ATTR_TENSORS] = WB__ONNX_IS_TENSORS, [ATTR_GRAPHS] = WB__ONNX_IS_GRAPHS,
    [ATTR_SPARSE] = WB__ONNX_IS_SPARSE, [ATTR_SPARSES] = WB__ONNX_IS_SPARSES,
    [ATTR_TYPE_PROTO] = WB__ONNX_IS_TYPE, [ATTR_TYPE_PROTOS] = WB__ONNX_IS_TYPES};
static const char *const onnx_attr_type_names[] = {
    "undefined", "float", "int", "string", "tensor", "graph", "floats", "ints", "strings",
    "tensors", "graphs", "sparse tensor", "sparse tensors", "type", "types"};

static bool onnx_attr_is_type(int64_t type)
{
    return type > 0 && type < (int64_t)WB__COUNT(onnx_attr_type_names);
}

const char *wb__onnx_attr_type_name(int64_t type)
{
    return onnx_attr_type_names[onnx_attr_is_type(type) ? type : 0];
}

/* An attribute while it is read. */
typedef struct {
    wb__onnx_building *b;               /* the graph whose node has the attribute */
    const wb__onnx_node *node;
    const wb__onnx_scope *scope;
    wb__wire in;                        /* the message from its beginning */
    wb__span name, ref;
    int64_t type, n;                    /* n: number of elements of a list */
    unsigned seen;                      /* a bit for each type of which a value was found */
} onnx_attr_reading;

static int onnx_attr_fail(const onnx_attr_reading *x, int code, const char *format, ...)
    WB__PRINTF(3, 4);
static int onnx_attr_fail(const onnx_attr_reading *x, int code, const char *format, ...)
{
    char reason[400], text[400];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__onnx_fail(x->b->r, code, "%s: attribute \"%.*s\": %s",
                         wb__onnx_node_text(x->node, text, sizeof text),
                         (int)WB__MIN(x->name.n, 100), x->name.at, reason);
}

static wb__wire_kind onnx_attr_kind_of(uint32_t field)
{
    return field == ATTR_FLOATS ? WB__WIRE_FIXED32 : WB__WIRE_VARINT;
}

/* Reads name, type and the reference, and counts the values, into *x. */
static int onnx_attr_read_head(onnx_attr_reading *x)
{
    wb__wire in = x->in, list;
    wb__wire_field f;
    while (wb__wire_next(&in, &f)) {
        const int type = f.number < ATTR_FIELDS ? onnx_attr_values[f.number] : 0;
        if (type) x->seen |= 1u << type;
        if (f.number == ATTR_NAME) wb__wire_text(&in, &f, &x->name);
        else if (f.number == ATTR_TYPE) wb__wire_int(&in, &f, &x->type);
        else if (f.number == ATTR_REF) wb__wire_text(&in, &f, &x->ref);
        else if (f.number == ATTR_STRINGS) x->n++;
        else if ((f.number == ATTR_FLOATS || f.number == ATTR_INTS) &&
                 wb__wire_list(&in, &f, onnx_attr_kind_of(f.number), &list))
            x->n += wb__wire_count(&list, onnx_attr_kind_of(f.number));
    }
    if (in.status) return in.status;
    return x->name.n ? 0 : onnx_attr_fail(x, WB_ERROR_FORMAT, "it has no name");
}

/* Checks the type.  A file of the format's first version has no types; the number of the value's
 * field shows the type. */
static int onnx_attr_check_type(onnx_attr_reading *x)
{
    for (int type = 1; !x->type && type < (int)WB__COUNT(onnx_attr_type_names); type++)
        if (x->seen == 1u << type) x->type = type;
    if (!onnx_attr_is_type(x->type))
        return onnx_attr_fail(x, WB_ERROR_FORMAT, "it has type %lld, which is none of ONNX's",
                              (long long)x->type);
    if (x->seen & ~(1u << x->type))
        return onnx_attr_fail(x, WB_ERROR_FORMAT, "its type is %s, and it has a value of another "
                              "type", onnx_attr_type_names[x->type]);
    if (x->type == WB__ONNX_IS_SPARSE || x->type == WB__ONNX_IS_SPARSES)
        return onnx_attr_fail(x, WB_ERROR_UNSUPPORTED,
                              "a sparse tensor (SparseTensorProto), which is not " "read");
    if ((x->type == WB__ONNX_IS_TENSOR || x->type == WB__ONNX_IS_GRAPH) && !x->seen)
        return onnx_attr_fail(x, WB_ERROR_FORMAT, "it has no value");
    return 0;
}

/* The lists, each with memory for x->n elements; `at` is the index of the next element. */
typedef struct { int64_t *ints; float *floats; const char **strings; int64_t at; } onnx_attr_lists;

static int onnx_attr_make_lists(onnx_attr_reading *x, onnx_attr_lists *l, wb__onnx_attr *to)
{
    wb__onnx_model *m = x->b->r->m;
    const size_t n = (size_t)x->n;
    void *list = m;
    if (x->type == WB__ONNX_IS_INTS)
        to->ints = list = l->ints = wb__onnx_alloc(m, n, sizeof *l->ints);
    if (x->type == WB__ONNX_IS_FLOATS)
        to->floats = list = l->floats = wb__onnx_alloc(m, n, sizeof *l->floats);
    if (x->type == WB__ONNX_IS_STRINGS)
        to->strings = list = l->strings = wb__onnx_alloc(m, n, sizeof *l->strings);
    to->n = (int)x->n;
    return list ? 0 : (int)wb_error_code();
}

static void onnx_attr_read_numbers(wb__wire *in, const wb__wire_field *f, onnx_attr_lists *l)
{
    wb__wire list;
    uint64_t value;
    if (!wb__wire_list(in, f, onnx_attr_kind_of(f->number), &list)) return;
    while (wb__wire_number(&list, onnx_attr_kind_of(f->number), &value)) {
        const uint32_t bits = (uint32_t)value;
        if (l->ints) l->ints[l->at++] = (int64_t)value;
        else memcpy(&l->floats[l->at++], &bits, sizeof bits);
    }
    if (list.status) in->status = list.status;
}

static int put_string(onnx_attr_reading *x, wb__wire *in, const wb__wire_field *f, const char **to)
{
    wb__span text;
    if (!wb__wire_text(in, f, &text)) return in->status;
    *to = wb__onnx_copy(x->b->r->m, text);
    return *to ? 0 : (int)wb_error_code();
}

static int onnx_attr_read_tensor(onnx_attr_reading *x, wb__wire in, wb__onnx_attr *to)
{
    wb__onnx_tensor *t = wb__onnx_alloc(x->b->r->m, 1, sizeof *t);
    to->t = t;
    return t ? wb__onnx_read_tensor(x->b->r, in, false, t) : (int)wb_error_code();
}

/* Reads one value into the attribute. */
static void onnx_attr_read_value(onnx_attr_reading *x, wb__wire *in, const wb__wire_field *f,
                                 onnx_attr_lists *l, wb__onnx_attr *to)
{
    wb__wire inside;
    wb__span text;
    switch (f->number) {
    case ATTR_FLOAT: wb__wire_float(in, f, &to->f); break;
    case ATTR_INT: wb__wire_int(in, f, &to->i); break;
    case ATTR_STRING:
        if (!wb__wire_bytes(in, f, &text)) break;
        to->s_bytes = text.n;
        if (!(to->s = wb__onnx_copy(x->b->r->m, text))) in->status = wb_error_code();
        break;
    case ATTR_TENSOR:
        if (to->t) wb__wire_fail(in, f->at, "an attribute has two tensors");
        else if (wb__wire_message(in, f, &inside))
            in->status = onnx_attr_read_tensor(x, inside, to);
        break;
    case ATTR_GRAPH:
        if (to->g) wb__wire_fail(in, f->at, "an attribute has two graphs");
        else if (wb__wire_message(in, f, &inside))
            in->status = wb__onnx_read_graph(x->b->r, inside, x->scope, x->b, &to->g);
        break;
    case ATTR_FLOATS:
    case ATTR_INTS: onnx_attr_read_numbers(in, f, l); break;
    case ATTR_STRINGS: in->status = put_string(x, in, f, &l->strings[l->at++]); break;
    default: break;
    }
}

static int onnx_attr_read_values(onnx_attr_reading *x, wb__onnx_attr *to)
{
    onnx_attr_lists l = {0};
    wb__wire in = x->in;
    wb__wire_field f;
    int status = onnx_attr_make_lists(x, &l, to);
    if (status) return status;
    to->s = "";
    while (wb__wire_next(&in, &f)) onnx_attr_read_value(x, &in, &f, &l, to);
    return in.status;
}

/* Reads the attribute of the call, or the default, to which this attribute refers, into *to.  Sets
 * *none if there is neither, or if the call's attribute refers to one that is missing. */
static int read_either(onnx_attr_reading *x, bool is_default, wb__onnx_attr *to, bool *none)
{
    wb__span message;
    const wb__onnx_scope *scope;
    *none = !wb__onnx_referred(x->scope, x->ref, is_default, &message, &scope);
    if (*none) return 0;
    const int status = wb__onnx_count_expanded(x->b->r, message.n);
    if (status) return status;
    const wb__wire in = wb__wire_of(&x->b->r->file, message.at, message.n);
    return wb__onnx_read_attr(x->b, x->node, in, scope, to, none);
}

/* Reads the attribute to which this one refers into *to.  The name stays this attribute's own. */
static int onnx_attr_read_referred(onnx_attr_reading *x, wb__onnx_attr *to, bool *none)
{
    if (!x->scope)
        return onnx_attr_fail(x, WB_ERROR_FORMAT, "it refers to attribute \"%.*s\" of a function, "
                              "and is in none", (int)WB__MIN(x->ref.n, 100), x->ref.at);
    int status = read_either(x, false, to, none);
    if (!status && *none) status = read_either(x, true, to, none);
    if (status || *none) return status;
    if (x->type && x->type != to->type)
        return onnx_attr_fail(x, WB_ERROR_FORMAT,
                              "its type is %s, and that of \"%.*s\", to which it refers, " "is %s",
                              wb__onnx_attr_type_name(x->type), (int)WB__MIN(x->ref.n, 100),
                              x->ref.at, wb__onnx_attr_type_name(to->type));
    return (to->name = wb__onnx_copy(x->b->r->m, x->name)) ? 0 : (int)wb_error_code();
}

int wb__onnx_read_attr(wb__onnx_building *b, const wb__onnx_node *node, wb__wire in,
                       const wb__onnx_scope *scope, wb__onnx_attr *to, bool *none)
{
    onnx_attr_reading x = {.b = b, .node = node, .scope = scope, .in = in, .name = {"", 0},
                           .ref = {"", 0}};
    *to = (wb__onnx_attr){0};
    *none = false;
    int status = onnx_attr_read_head(&x);
    if (!status && x.ref.n) return onnx_attr_read_referred(&x, to, none);
    if (!status) status = onnx_attr_check_type(&x);
    if (status) return status;
    to->type = (wb__onnx_attr_type)x.type;
    if (!(to->name = wb__onnx_copy(b->r->m, x.name))) return wb_error_code();
    return onnx_attr_read_values(&x, to);
}
