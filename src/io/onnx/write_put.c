/* Writes nodes and constants of a model of ONNX. */
#include "io/onnx/writer.h"

#include <string.h>

int wb__export_type_of(wb_dtype dtype)
{
    static const int types[WB_DTYPE_COUNT] = {
        [WB_F32] = WB__ONNX_FLOAT, [WB_F64] = WB__ONNX_DOUBLE, [WB_F16] = WB__ONNX_FLOAT16,
        [WB_BF16] = WB__ONNX_BFLOAT16, [WB_I8] = WB__ONNX_INT8, [WB_U8] = WB__ONNX_UINT8,
        [WB_I32] = WB__ONNX_INT32, [WB_I64] = WB__ONNX_INT64, [WB_BOOL] = WB__ONNX_BOOL};
    return types[dtype];
}

/* ---- failures -------------------------------------------------------------------------------- */

const char *wb__export_failed(wb__exporter *w, int code)
{
    if (!w->status) w->status = code;
    return "";
}

const char *wb__export_cannot(wb__exporter *w, const char *format, ...)
{
    if (w->status) return "";
    const wb__export_step *s = w->at < 0 ? NULL : &w->steps[w->at];
    wb__text t = {0};
    if (s) wb__text_add(&t, "%s ", wb__ops[s->x[0]->op].name);
    if (s && s->type) wb__text_add(&t, "in %s%s(%s) ", s->layer, *s->layer ? " " : "", s->type);
    va_list arguments;
    va_start(arguments, format);
    wb__text_list(&t, format, arguments);
    va_end(arguments);
    char *text = wb__text_take(&t);
    w->status = text ? wb__fail(WB_ERROR_UNSUPPORTED, "save: %s: %s", w->path, text)
                     : WB_ERROR_MEMORY;
    wb__free(text);
    return "";
}

/* Adds a text of wb__alloc to the texts that the writer owns, and returns it; "" after a
 * failure. */
static const char *onnx_writer_keep(wb__exporter *w, char *name)
{
    if (name && wb__reserve(&w->names, &w->names_capacity, w->n_names + 1, sizeof *w->names))
        return w->names[w->n_names++] = name;
    wb__free(name);
    return wb__export_failed(w, WB_ERROR_MEMORY);
}

/* Returns a new name, such as "/layers.0/Gemm_3": layer, operator, and a unique number. */
static const char *onnx_writer_new_name(wb__exporter *w, const char *op)
{
    const char *layer = w->at < 0 ? "" : w->steps[w->at].layer;
    return onnx_writer_keep(w, wb__printf("%s%s%s%s_%d", w->prefix, layer, *layer ? "/" : "", op,
                                          w->n_written));
}

void wb__export_second_result(wb__exporter *w) { w->second = true; }

void wb__export_call_it(wb__exporter *w, const char *name) { w->result = name; }

void wb__export_begin(wb__exporter *w, const char *op, int n, const char *const *in)
{
    const char *made = onnx_writer_new_name(w, op), *result = w->result ? w->result : made;
    w->n_written++;
    w->begun = wb__wire_begin(&w->nodes, GRAPH_NODE);
    for (int i = 0; i < n; i++) wb__wire_put_text(&w->nodes, NODE_INPUT, in[i] ? in[i] : "");
    if (w->second)
        wb__wire_put_text(&w->nodes, NODE_OUTPUT,
                          onnx_writer_keep(w, wb__printf("%s_values", made)));
    w->second = false;
    wb__wire_put_text(&w->nodes, NODE_OUTPUT, result);
    wb__wire_put_text(&w->nodes, NODE_NAME, made);
    wb__wire_put_text(&w->nodes, NODE_OP, op);
    w->result = result;
}

static size_t onnx_writer_begin_attr(wb__exporter *w, const char *name, int type)
{
    const size_t at = wb__wire_begin(&w->nodes, NODE_ATTR);
    wb__wire_put_text(&w->nodes, ATTR_NAME, name);
    wb__wire_put_int(&w->nodes, ATTR_TYPE, type);
    return at;
}

void wb__export_put_int(wb__exporter *w, const char *name, int64_t value)
{
    const size_t at = onnx_writer_begin_attr(w, name, WB__ONNX_IS_INT);
    wb__wire_put_int(&w->nodes, ATTR_INT, value);
    wb__wire_end(&w->nodes, at);
}

void wb__export_put_float(wb__exporter *w, const char *name, double value)
{
    const size_t at = onnx_writer_begin_attr(w, name, WB__ONNX_IS_FLOAT);
    wb__wire_put_float(&w->nodes, ATTR_FLOAT, (float)value);
    wb__wire_end(&w->nodes, at);
}

void wb__export_put_text(wb__exporter *w, const char *name, const char *value)
{
    const size_t at = onnx_writer_begin_attr(w, name, WB__ONNX_IS_STRING);
    wb__wire_put_text(&w->nodes, ATTR_STRING, value);
    wb__wire_end(&w->nodes, at);
}

/* Writes a list attribute.  Its field is a repeated one that is not packed. */
void wb__export_put_ints(wb__exporter *w, const char *name, int n, const int64_t *values)
{
    const size_t at = onnx_writer_begin_attr(w, name, WB__ONNX_IS_INTS);
    for (int i = 0; i < n; i++) wb__wire_put_int(&w->nodes, ATTR_INTS, values[i]);
    wb__wire_end(&w->nodes, at);
}

const char *wb__export_end(wb__exporter *w)
{
    const char *result = w->result;
    wb__wire_end(&w->nodes, w->begun);
    w->result = NULL;
    if (w->nodes.failed) return wb__export_failed(w, WB_ERROR_MEMORY);
    return w->status ? "" : result;
}

const char *wb__export_put(wb__exporter *w, const char *op, int n, const char *const *in)
{
    wb__export_begin(w, op, n, in);
    return wb__export_end(w);
}

/* Returns the name of an equal constant that was written before, or NULL. */
static const char *onnx_writer_find_kept(const wb__exporter *w, const wb__export_kept *k)
{
    for (int i = 0; i < w->n_kept; i++) {
        const wb__export_kept *other = &w->kept[i];
        if (other->dtype == k->dtype && other->ndim == k->ndim && other->bytes == k->bytes &&
            !memcmp(other->data, k->data, k->bytes))
            return other->name;
    }
    return NULL;
}

static void onnx_writer_put_tensor(wb__wire_out *o, wb_dtype dtype, int ndim, const int64_t *dims,
                                   const void *values, size_t bytes)
{
    const size_t tensor = wb__wire_begin(o, ATTR_TENSOR);
    for (int i = 0; i < ndim; i++) wb__wire_put_int(o, TENSOR_DIMS, dims[i]);
    wb__wire_put_int(o, TENSOR_TYPE, wb__export_type_of(dtype));
    wb__wire_put_bytes(o, TENSOR_RAW, values, bytes);
    wb__wire_end(o, tensor);
}

const char *wb__export_constant(wb__exporter *w, wb_dtype dtype, int ndim, const int64_t *dims,
                                const void *values)
{
    size_t bytes = wb__dtype_size(dtype);
    for (int i = 0; i < ndim; i++) bytes *= (size_t)dims[i];
    wb__export_kept k = {.dtype = dtype, .ndim = ndim, .bytes = bytes};
    const bool small = ndim < 2 && bytes <= sizeof k.data;
    if (small && bytes) memcpy(k.data, values, bytes);
    const char *known = small ? onnx_writer_find_kept(w, &k) : NULL;
    if (known) return known;
    wb__export_begin(w, "Constant", 0, NULL);
    const size_t at = onnx_writer_begin_attr(w, "value", WB__ONNX_IS_TENSOR);
    onnx_writer_put_tensor(&w->nodes, dtype, ndim, dims, values, bytes);
    wb__wire_end(&w->nodes, at);
    k.name = wb__export_end(w);
    if (!small || w->status) return k.name;
    if (!wb__reserve(&w->kept, &w->kept_capacity, w->n_kept + 1, sizeof *w->kept))
        return wb__export_failed(w, WB_ERROR_MEMORY);
    w->kept[w->n_kept++] = k;
    return k.name;
}

const char *wb__export_number(wb__exporter *w, wb_dtype dtype, double value)
{
    char bytes[8];
    wb__convert(bytes, dtype, &value, WB_F64, 1);
    return wb__export_constant(w, dtype, 0, NULL, bytes);
}

const char *wb__export_list(wb__exporter *w, int n, const int64_t *values)
{
    return wb__export_constant(w, WB_I64, 1, (int64_t[]){n}, values);
}

/* Writes the size of the batch, i64 [1], of the first input that has a batch. */
static const char *onnx_writer_batch_of(wb__exporter *w)
{
    if (w->batch_name) return w->batch_name;
    int i = 0;
    while (w->inputs[i].batch_axis < 0) i++;
    const int axis = w->inputs[i].batch_axis, at = w->at;
    w->at = -1;
    wb__export_begin(w, "Shape", 1, (const char *[]){w->inputs[i].name});
    wb__export_put_int(w, "start", axis);
    wb__export_put_int(w, "end", axis + 1);
    w->batch_name = wb__export_end(w);
    w->at = at;
    return w->batch_name;
}

const char *wb__export_sizes(wb__exporter *w, int n, const wb__export_size *sizes)
{
    int64_t k[2 * WB_MAX_DIMS], c[2 * WB_MAX_DIMS];
    bool varies = false, plain = n == 1, shifted = false;
    for (int i = 0; i < n; i++) {
        k[i] = sizes[i].k;
        c[i] = sizes[i].c;
        varies |= k[i] != 0;
        plain &= k[i] == 1;
        shifted |= c[i] != 0;
    }
    if (!varies) return wb__export_list(w, n, c);
    const char *y = onnx_writer_batch_of(w);
    if (!plain) y = WB__PUT(w, "Mul", y, wb__export_list(w, n, k));
    return shifted ? WB__PUT(w, "Add", y, wb__export_list(w, n, c)) : y;
}

const char *wb__export_size_number(wb__exporter *w, wb__export_size n)
{
    if (!n.k) return wb__export_constant(w, WB_I64, 0, NULL, &n.c);
    const char *one = wb__export_sizes(w, 1, &n);
    return WB__PUT(w, "Squeeze", one, wb__export_list(w, 1, (int64_t[]){0}));
}

/* Writes 0, ..., n - 1: as a constant, if these numbers are few. */
const char *wb__export_range(wb__exporter *w, wb__export_size n)
{
    enum { FEW = 256 };
    if (n.k || n.c > FEW) {
        const char *in[3] = {wb__export_number(w, WB_I64, 0), wb__export_size_number(w, n),
                             wb__export_number(w, WB_I64, 1)};
        return wb__export_put(w, "Range", 3, in);
    }
    int64_t list[FEW];
    for (int i = 0; i < n.c; i++) list[i] = i;
    return wb__export_list(w, (int)n.c, list);
}

static const char *onnx_writer_cast(wb__exporter *w, const char *x, wb_dtype to)
{
    wb__export_begin(w, "Cast", 1, &x);
    wb__export_put_int(w, "to", wb__export_type_of(to));
    return wb__export_end(w);
}

/* Sets *low and *high to the least and the greatest number of the floating dtype that the integer
 * dtype can hold. */
static void onnx_writer_bounds(wb_dtype from, wb_dtype to, double *low, double *high)
{
    const int bits = 8 * (int)wb__dtype_size(to) - (to != WB_U8);
    const int digits = from == WB_F64 ? 53 : 24;
    const double end = (double)((uint64_t)1 << bits);
    *low = to == WB_U8 ? 0 : -end;
    *high = bits > digits ? end - (double)((uint64_t)1 << (bits - digits)) : end - 1;
}

/* Writes a cast of floats to integers: truncated, the nearest integer if out of range, and 0 if
 * NaN.  ONNX leaves the latter two to the runtime. */
static const char *onnx_writer_cast_to_integer(wb__exporter *w, const char *x, wb_dtype from,
                                               wb_dtype to)
{
    double low, high;
    if (from == WB_F16) {
        x = onnx_writer_cast(w, x, WB_F32);
        from = WB_F32;
    }
    onnx_writer_bounds(from, to, &low, &high);
    x = WB__PUT(w, "Where", WB__PUT(w, "IsNaN", x), wb__export_number(w, from, 0), x);
    x = WB__PUT(w, "Clip", x, wb__export_number(w, from, low), wb__export_number(w, from, high));
    return onnx_writer_cast(w, x, to);
}

const char *wb__export_cast(wb__exporter *w, const char *x, wb_dtype from, wb_dtype to)
{
    if (from == to) return x;
    if (wb__dtype_float(from) && !wb__dtype_float(to) && to != WB_BOOL)
        return onnx_writer_cast_to_integer(w, x, wb__export_carried(from), to);
    return onnx_writer_cast(w, x, to);
}

const char *wb__export_where(wb__exporter *w, const char *condition, const char *x, const char *y,
                             wb_dtype t)
{
    if (t == WB_BOOL) {
        const char *otherwise = WB__PUT(w, "And", WB__PUT(w, "Not", condition), y);
        return WB__PUT(w, "Or", WB__PUT(w, "And", condition, x), otherwise);
    }
    const wb_dtype wide = t == WB_I8 ? WB_I32 : t;
    x = wb__export_cast(w, x, t, wide);
    y = wb__export_cast(w, y, t, wide);
    return wb__export_cast(w, WB__PUT(w, "Where", condition, x, y), wide, t);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Returns the value of a tensor of the model, which has the model's name in the file.  A bf16
 * tensor is cast to f32. */
static const char *onnx_writer_parameter(wb__exporter *w, int i)
{
    wb__export_initializer *p = &w->parameters[i];
    if (p->name) return p->name;
    const wb_dtype t = (wb_dtype)p->x->dtype;
    p->name = wb__export_cast(w, p->path, t, wb__export_carried(t));
    return p->name;
}

/* Writes an evaluated tensor that is no parameter. */
static const char *onnx_writer_evaluated(wb__exporter *w, const wb__export_step *s)
{
    wb_tensor *x = wb__export_row(s);
    if (!x) return wb__export_failed(w, (int)wb_error_code());
    const wb_dtype t = (wb_dtype)x->dtype;
    const size_t bytes = (size_t)x->size * wb__dtype_size(t);
    void *values = wb__alloc(bytes + 1);
    const char *name = "";
    if (!values || wb_copy_out(x, values, bytes))
        wb__export_failed(w, wb__error_or(WB_ERROR_MEMORY));
    else
        name = wb__export_cast(w, wb__export_constant(w, t, x->ndim, x->dims, values), t,
                               wb__export_carried(t));
    wb__free(values);
    return x == s->x[0] || w->status ? name : wb__export_filled(w, name, x->ndim, s->dims);
}

static const char *onnx_writer_leaf(wb__exporter *w, int step)
{
    const wb__export_step *s = &w->steps[step];
    if (s->input >= 0) {
        const wb__export_port *p = &w->inputs[s->input];
        return wb__export_cast(w, p->name, p->dtype, wb__export_carried(p->dtype));
    }
    if (s->parameter >= 0) return onnx_writer_parameter(w, s->parameter);
    const int op = s->x[0]->op;
    if (op == WB__OP_literal) return wb__export_literal(w, step);
    if (op == WB__OP_iota) return wb__export_iota(w, step);
    if (wb__known(s->x[0])) return onnx_writer_evaluated(w, s);
    if (op == WB__OP_uniform || op == WB__OP_gaussian)
        return wb__export_cannot(w, "draws random numbers, and a file of ONNX would draw others: "
                                 "leave the layer out, or pass the numbers as an input");
    return wb__export_cannot(w, "has no value: %s", wb_describe(s->x[0]));
}

const char *wb__export_value(wb__exporter *w, int step)
{
    wb__export_step *s = &w->steps[step];
    if (s->name || w->status) return s->name ? s->name : "";
    const int at = w->at;
    w->at = step;
    if (!s->n_in) s->name = onnx_writer_leaf(w, step);
    else wb__export_write_step(w, step);
    w->at = at;
    return s->name && !w->status ? s->name : "";
}
