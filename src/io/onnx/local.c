/* FunctionProto: functions of the file, as PyTorch's exporter writes them.  A call becomes the
 * function's nodes when it is read: names of inputs and outputs are those of the call, other names
 * get a prefix of the call, and attributes that refer to those of the function have the values of
 * the call or the defaults. */
#include "io/onnx/read.h"

#include <stdio.h>

enum { EXPANDED_MOST = 64 << 20 };

/* Adds a message to a list under its name.  Returns 0 or an error code. */
static int onnx_local_put(wb__onnx_model *m, wb__name_set *s, wb__span **list, wb__span name,
                          wb__span message, bool *is_new)
{
    int capacity = s->capacity;
    const int i = wb__name_set_add(m, s, name, is_new);
    if (i < 0) return wb_error_code();
    if (s->capacity > capacity && !wb__onnx_reserve(m, list, &capacity, s->capacity, sizeof **list))
        return wb_error_code();
    (*list)[i] = message;
    return 0;
}

/* Adds an AttributeProto to a list under its name.  Returns 0 or an error code. */
static int onnx_local_add_attr(wb__onnx_reader *r, wb__name_set *s, wb__span **list, wb__wire in)
{
    const wb__span message = {(const char *)in.at, (size_t)(in.end - in.at)};
    wb__wire_field f;
    wb__span name = {"", 0};
    bool is_new = true;
    while (wb__wire_next(&in, &f))
        if (f.number == ATTR_NAME) wb__wire_text(&in, &f, &name);
    int status = in.status ? in.status : onnx_local_put(r->m, s, list, name, message, &is_new);
    if (status || is_new) return status;
    return wb__onnx_fail(r, WB_ERROR_FORMAT, "byte %lld: two attributes are named \"%.*s\"",
                         (long long)((const uint8_t *)message.at - r->file.data),
                         (int)WB__MIN(name.n, 100), name.at);
}

/* Returns the key of a function, a text that the caller frees; NULL: out of memory. */
static char *onnx_local_key_of(wb__span domain, wb__span name, wb__span overload)
{
    return wb__printf("%.*s\n%.*s\n%.*s", (int)domain.n, domain.at, (int)name.n, name.at,
                      (int)overload.n, overload.at);
}

static int onnx_local_add_formal(wb__onnx_reader *r, wb__local *f, wb__wire *in,
                                 const wb__wire_field *field)
{
    wb__span name;
    bool is_new;
    if (!wb__wire_text(in, field, &name)) return in->status;
    if (wb__name_set_add(r->m, &f->formals, name, &is_new) < 0) return wb_error_code();
    return is_new ? 0 : wb__wire_fail(in, field->at, "two inputs or outputs of a function are "
                                      "named \"%.*s\"", (int)WB__MIN(name.n, 200), name.at);
}

/* Reads all fields of a function but its outputs and nodes. */
static int onnx_local_read_head(wb__onnx_reader *r, wb__wire in, wb__local *to, wb__span *domain,
                                wb__span *name, wb__span *overload)
{
    wb__wire_field f;
    wb__wire inside;
    *domain = *name = *overload = (wb__span){"", 0};
    while (wb__wire_next(&in, &f))
        switch (f.number) {
        case FUNCTION_NAME: wb__wire_text(&in, &f, name); break;
        case FUNCTION_INPUT: in.status = onnx_local_add_formal(r, to, &in, &f); break;
        case FUNCTION_OPSET:
            if (wb__wire_message(&in, &f, &inside))
                in.status = wb__onnx_read_opset(r, inside, &to->opsets);
            break;
        case FUNCTION_DOMAIN: wb__wire_text(&in, &f, domain); break;
        case FUNCTION_DEFAULT:
            if (wb__wire_message(&in, &f, &inside))
                in.status = onnx_local_add_attr(r, &to->defaults, &to->default_at, inside);
            break;
        case FUNCTION_OVERLOAD: wb__wire_text(&in, &f, overload); break;
        default: break;
        }
    *domain = wb__onnx_domain(*domain);
    to->n_inputs = to->formals.n;
    return in.status;
}

int wb__onnx_read_local(wb__onnx_reader *r, wb__wire in)
{
    wb__local *to = &r->locals[r->functions.n];
    wb__span domain, name, overload;
    wb__wire_field f;
    int64_t opset;
    bool is_new;
    *to = (wb__local){.at = in.at, .end = in.end};
    int status = onnx_local_read_head(r, in, to, &domain, &name, &overload);
    while (!status && wb__wire_next(&in, &f))
        if (f.number == FUNCTION_OUTPUT) status = onnx_local_add_formal(r, to, &in, &f);
    if (!status) status = in.status;
    if (!status) status = wb__onnx_check_opset(r, &to->opsets, &opset);
    if (status) return status;
    char *key = onnx_local_key_of(domain, name, overload);
    const int i = key ? wb__name_set_add(r->m, &r->functions, wb__span_of(key), &is_new) : -1;
    wb__free(key);
    if (i < 0 || !(to->name = wb__onnx_copy(r->m, name))) return wb_error_code();
    return is_new ? 0 : wb__onnx_fail(r, WB_ERROR_FORMAT, "two functions are named \"%.200s\"",
                                      to->name);
}

int wb__onnx_called(wb__onnx_reader *r, const wb__node_head *h, const wb__local **f)
{
    *f = NULL;
    if (r->functions.n) {
        char *key = onnx_local_key_of(h->domain, h->op, h->overload);
        if (!key) return wb_error_code();
        const int i = wb__name_set_find(&r->functions, wb__span_of(key));
        wb__free(key);
        if (i >= 0) *f = &r->locals[i];
    }
    if (*f || !h->overload.n) return 0;
    return wb__onnx_fail(r, WB_ERROR_FORMAT, "node \"%.*s\" calls overload \"%.*s\" of function "
                         "\"%.*s\", which the file does not have", (int)WB__MIN(h->name.n, 150),
                         h->name.at, (int)WB__MIN(h->overload.n, 100), h->overload.at,
                         (int)WB__MIN(h->op.n, 100), h->op.at);
}

int wb__onnx_count_expanded(wb__onnx_reader *r, size_t bytes)
{
    r->expanded += bytes;
    if (r->expanded <= EXPANDED_MOST) return 0;
    return wb__onnx_fail(r, WB_ERROR_FORMAT, "the calls of its functions need more than %d MiB of "
                         "nodes", EXPANDED_MOST >> 20);
}

/* Sets `actual` to the call's names of the function's inputs and outputs, and the call's
 * attributes. */
static int onnx_local_read_call(wb__onnx_reader *r, wb__onnx_scope *s, wb__span *actual,
                                wb__wire in)
{
    const wb__local *called = s->function;
    int next[2] = {0, called->n_inputs};
    const int end[2] = {called->n_inputs, called->formals.n};
    wb__wire_field f;
    wb__wire inside;
    while (wb__wire_next(&in, &f)) {
        wb__span name;
        if (f.number == NODE_ATTR && wb__wire_message(&in, &f, &inside))
            in.status = onnx_local_add_attr(r, &s->attrs, &s->attr_at, inside);
        const bool is_in = f.number == NODE_INPUT, is_out = f.number == NODE_OUTPUT;
        if ((!is_in && !is_out) || !wb__wire_text(&in, &f, &name)) continue;
        if (next[is_out] == end[is_out])
            return wb__wire_fail(&in, f.at, "a call of function \"%.200s\" has more than its %d %s",
                                 called->name, end[is_out] - (is_out ? end[0] : 0),
                                 is_out ? "outputs" : "inputs");
        name = wb__onnx_name(r, s->outer, name);
        if (!name.at) return wb_error_code();
        actual[next[is_out]++] = name;
    }
    return in.status;
}

int wb__onnx_enter(wb__onnx_reader *r, const wb__local *f, wb__wire node,
                   const wb__onnx_scope *outer, wb__onnx_scope **out)
{
    const int depth = outer ? outer->depth + 1 : 1;
    if (depth > WB__ONNX_DEPTH)
        return wb__onnx_fail(r, WB_ERROR_FORMAT, "function \"%.200s\" calls itself, or calls are "
                             "more than %d deep", f->name, WB__ONNX_DEPTH);
    int status = wb__onnx_count_expanded(r, (size_t)(f->end - f->at));
    if (status) return status;
    const size_t n = strlen(f->name) + 16;
    char *prefix = wb__onnx_alloc(r->m, n, 1);
    wb__span *actual = wb__onnx_alloc(r->m, (size_t)f->formals.n, sizeof *actual);
    wb__onnx_scope *s = *out = wb__onnx_alloc(r->m, 1, sizeof *s);
    if (!prefix || !actual || !s) return wb_error_code();
    snprintf(prefix, n, "%s#%d/", f->name, ++r->n_calls);
    for (int i = 0; i < f->formals.n; i++) actual[i] = (wb__span){"", 0};
    *s = (wb__onnx_scope){.function = f, .outer = outer, .depth = depth, .prefix = prefix,
                          .actual = actual};
    return onnx_local_read_call(r, s, actual, node);
}

wb__span wb__onnx_prefixed(wb__onnx_reader *r, const wb__onnx_scope *scope, wb__span name)
{
    if (!scope || !name.n) return name;
    const size_t n = strlen(scope->prefix);
    char *text = wb__onnx_alloc(r->m, n + name.n + 1, 1);
    if (!text) return (wb__span){NULL, 0};
    memcpy(text, scope->prefix, n);
    memcpy(text + n, name.at, name.n);
    return (wb__span){text, n + name.n};
}

/* Returns the name in the graph.  An output that the call leaves out is named as an inner value. */
wb__span wb__onnx_name(wb__onnx_reader *r, const wb__onnx_scope *scope, wb__span name)
{
    if (!scope || !name.n) return name;
    const int i = wb__name_set_find(&scope->function->formals, name);
    if (i >= 0 && (i < scope->function->n_inputs || scope->actual[i].n)) return scope->actual[i];
    return wb__onnx_prefixed(r, scope, name);
}

bool wb__onnx_referred(const wb__onnx_scope *scope, wb__span ref, bool is_default,
                       wb__span *message, const wb__onnx_scope **read_in)
{
    const wb__local *f = scope->function;
    const int i = wb__name_set_find(is_default ? &f->defaults : &scope->attrs, ref);
    *read_in = is_default ? NULL : scope->outer;        /* a default refers to no attribute */
    if (i < 0) return false;
    *message = is_default ? f->default_at[i] : scope->attr_at[i];
    return true;
}
