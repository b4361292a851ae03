/* Reads TensorProto.  raw_data, and float_data and double_data in one packed list, stay in the
 * file's memory.  Other values are copied into the arena, little-endian. */
#include "io/onnx/read.h"

#include <stdio.h>

/* A type of ONNX.  `bits` is the size of an element, 0 if not fixed.  `field` is the field of the
 * values, 0: raw_data only.  `least` and `most` are bounds of the numbers in int32_data. */
typedef struct {
    const char *name;
    uint8_t bits, field;
    wb_dtype dtype;
    int32_t least, most;
} type_row;
/* clang-format off */
static const type_row onnx_tensor_types[] = {
    {"unknown",          0, 0,               0,       0, 0},
    {"float32",         32, TENSOR_FLOATS,   WB_F32,  0, 0},
    {"uint8",            8, TENSOR_INT32S,   WB_U8,   0, UINT8_MAX},
    {"int8",             8, TENSOR_INT32S,   WB_I8,   INT8_MIN, INT8_MAX},
    {"uint16",          16, TENSOR_INT32S,   0,       0, UINT16_MAX},
    {"int16",           16, TENSOR_INT32S,   0,       INT16_MIN, INT16_MAX},
    {"int32",           32, TENSOR_INT32S,   WB_I32,  INT32_MIN, INT32_MAX},
    {"int64",           64, TENSOR_INT64S,   WB_I64,  0, 0},
    {"string",           0, TENSOR_STRINGS,  0,       0, 0},
    {"bool",             8, TENSOR_INT32S,   WB_BOOL, 0, 1},
    {"float16",         16, TENSOR_INT32S,   WB_F16,  0, UINT16_MAX},
    {"float64",         64, TENSOR_DOUBLES,  WB_F64,  0, 0},
    {"uint32",          32, TENSOR_UINT64S,  0,       0, 0},
    {"uint64",          64, TENSOR_UINT64S,  0,       0, 0},
    {"complex64",       64, TENSOR_FLOATS,   0,       0, 0},
    {"complex128",     128, TENSOR_DOUBLES,  0,       0, 0},
    {"bfloat16",        16, TENSOR_INT32S,   WB_BF16, 0, UINT16_MAX},
    {"float8e4m3fn",     8, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"float8e4m3fnuz",   8, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"float8e5m2",       8, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"float8e5m2fnuz",   8, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"uint4",            4, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"int4",             4, TENSOR_INT32S,   0,       INT8_MIN, UINT8_MAX},
    {"float4e2m1",       4, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"float8e8m0",       8, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"uint2",            2, TENSOR_INT32S,   0,       0, UINT8_MAX},
    {"int2",             2, TENSOR_INT32S,   0,       INT8_MIN, UINT8_MAX},
    {"float6e2m3",       6, 0,               0,       0, 0},
    {"float6e3m2",       6, 0,               0,       0, 0},
};
/* clang-format on */

static const type_row *onnx_tensor_row_of(wb__onnx_type t)
{
    return &onnx_tensor_types[(unsigned)t < WB__COUNT(onnx_tensor_types) ? t : WB__ONNX_UNDEFINED];
}

wb_dtype wb__onnx_dtype(wb__onnx_type t) { return onnx_tensor_row_of(t)->dtype; }

const char *wb__onnx_type_name(wb__onnx_type t) { return onnx_tensor_row_of(t)->name; }

wb__onnx_type wb__onnx_type_of(int64_t number)
{
    return number > 0 && number < (int64_t)WB__COUNT(onnx_tensor_types) ? (wb__onnx_type)number
                                                             : WB__ONNX_UNDEFINED;
}

int64_t wb__onnx_tensor_bytes(const wb__onnx_tensor *t)
{
    const int bits = onnx_tensor_row_of(t->type)->bits;
    return !bits ? -1 : bits < 8 ? (t->size / 8) * bits + (t->size % 8 * bits + 7) / 8
                                 : t->size * (bits / 8);
}

/* ---- dimensions ------------------------------------------------------------------------------ */

/* A tensor while it is read. */
typedef struct {
    wb__onnx_reader *r;                 /* the file */
    wb__wire in;                        /* the message from its beginning */
    wb__onnx_tensor *t;
    wb__span raw, name;
    bool has_raw, external;
    int field;                          /* the field of typed values, or 0 */
    int64_t n_numbers;                  /* number of the typed values */
} onnx_tensor_reading;

static int onnx_tensor_fail(const onnx_tensor_reading *x, int code, const char *format, ...)
    WB__PRINTF(3, 4);
static int onnx_tensor_fail(const onnx_tensor_reading *x, int code, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__onnx_fail(x->r, code, "byte %lld: tensor \"%.*s\": %s",
                         (long long)(x->in.at - x->r->file.data), (int)WB__MIN(x->name.n, 200),
                         x->name.n ? x->name.at : "", reason);
}

static void onnx_tensor_read_dims(onnx_tensor_reading *x, wb__wire *in, const wb__wire_field *f)
{
    wb__wire list;
    uint64_t dim;
    if (!wb__wire_list(in, f, WB__WIRE_VARINT, &list)) return;
    while (wb__wire_number(&list, WB__WIRE_VARINT, &dim)) {
        if (x->t->ndim == WB_MAX_DIMS)
            wb__wire_fail(in, f->at, "a tensor has more than %d dimensions", WB_MAX_DIMS);
        else if (dim > INT64_MAX)
            wb__wire_fail(in, f->at, "a tensor has dimension %lld", (long long)dim);
        if (in->status) return;
        x->t->dims[x->t->ndim++] = (int64_t)dim;
    }
    if (list.status) in->status = list.status;
}

/* Sets the number of elements.  The number must fit into 63 bits with the 16 bytes of the largest
 * type, also if dimensions of 0 are counted as 1. */
static int onnx_tensor_find_size(onnx_tensor_reading *x)
{
    int64_t size = 1;
    x->t->size = 1;
    for (int i = 0; i < x->t->ndim; i++) {
        const int64_t dim = x->t->dims[i];
        if (dim && size > INT64_MAX / 16 / dim)
            return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has %lld times %lld elements or more, "
                                    "which no address can count", (long long)size, (long long)dim);
        size *= WB__MAX(dim, 1);
        x->t->size *= dim;
    }
    return 0;
}

/* ---- values in typed fields ------------------------------------------------------------------ */

static wb__wire_kind onnx_tensor_kind_of(int field)
{
    return field == TENSOR_FLOATS    ? WB__WIRE_FIXED32
           : field == TENSOR_DOUBLES ? WB__WIRE_FIXED64
                                     : WB__WIRE_VARINT;
}

/* Writes the numbers of one field to `to`, `width` bytes each.  Returns their number; -1 with the
 * error set. */
static int64_t onnx_tensor_put_numbers(onnx_tensor_reading *x, wb__wire *list, int width,
                                       uint8_t *to)
{
    const type_row *row = onnx_tensor_row_of(x->t->type);
    int64_t n = 0;
    uint64_t value;
    for (; wb__wire_number(list, onnx_tensor_kind_of(x->field), &value); n++) {
        const int32_t low = (int32_t)(uint32_t)value;
        if (x->field == TENSOR_INT32S && (low < row->least || low > row->most))
            return onnx_tensor_fail(x, WB_ERROR_FORMAT, "element %lld of int32_data is %d, and the "
                                    "type is %s", (long long)n, (int)low, row->name), -1;
        if (x->t->type == WB__ONNX_UINT32 && value > UINT32_MAX)
            return onnx_tensor_fail(x, WB_ERROR_FORMAT, "element %lld of uint64_data is %llu, and "
                                    "the type is uint32", (long long)n, (unsigned long long)value),
                   -1;
        for (int i = 0; i < width; i++) to[n * width + i] = (uint8_t)(value >> (8 * i));
    }
    return list->status ? -1 : n;
}

/* Sets the data to a copy of the numbers of all fields in the arena. */
static int onnx_tensor_copy_numbers(onnx_tensor_reading *x, int width)
{
    wb__wire in = x->in, list;
    wb__wire_field f;
    uint8_t *to = wb__onnx_alloc(x->r->m, (size_t)x->n_numbers, (size_t)width);
    if (!to) return wb_error_code();
    x->t->data = to;
    while (wb__wire_next(&in, &f)) {
        if ((int)f.number != x->field ||
            !wb__wire_list(&in, &f, onnx_tensor_kind_of(x->field), &list))
            continue;
        const int64_t n = onnx_tensor_put_numbers(x, &list, width, to);
        if (n < 0) return list.status ? list.status : (int)wb_error_code();
        to += n * width;
    }
    return in.status;
}

/* Sets the data to copies of the texts, as a list of pointers. */
static int onnx_tensor_copy_texts(onnx_tensor_reading *x)
{
    wb__wire in = x->in;
    wb__wire_field f;
    wb__span text;
    const char **list = wb__onnx_alloc(x->r->m, (size_t)x->n_numbers, sizeof *list);
    if (!list) return wb_error_code();
    x->t->data = list;
    while (wb__wire_next(&in, &f)) {
        if (f.number != TENSOR_STRINGS || !wb__wire_bytes(&in, &f, &text)) continue;
        if (!(*list++ = wb__onnx_copy(x->r->m, text))) return wb_error_code();
    }
    return in.status;
}

/* Whether all floats or doubles are in one packed list; then sets the data to this list. */
static bool onnx_tensor_use_in_place(onnx_tensor_reading *x)
{
    wb__wire in = x->in;
    wb__wire_field f;
    const int64_t bytes = x->n_numbers * (x->field == TENSOR_FLOATS ? 4 : 8);
    if (x->field != TENSOR_FLOATS && x->field != TENSOR_DOUBLES) return false;
    while (wb__wire_next(&in, &f))
        if ((int)f.number == x->field && (int64_t)f.n == bytes) {
            x->t->data = f.bytes;
            return true;
        }
    return false;
}

static int onnx_tensor_set_numbers(onnx_tensor_reading *x)
{
    wb__onnx_tensor *t = x->t;
    const type_row *row = onnx_tensor_row_of(t->type);
    const int64_t n = t->type == WB__ONNX_COMPLEX64 || t->type == WB__ONNX_COMPLEX128 ? 2 * t->size
                      : row->bits && row->bits < 8 ? wb__onnx_tensor_bytes(t) : t->size;
    if (x->field != row->field)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has type %s, and its values are in field %d",
                                row->name, x->field);
    if (x->n_numbers != n)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has %lld values; its shape needs %lld",
                                (long long)x->n_numbers, (long long)n);
    if (!n || onnx_tensor_use_in_place(x)) return 0;
    if (t->type == WB__ONNX_STRING) return onnx_tensor_copy_texts(x);
    return onnx_tensor_copy_numbers(x, (int)(wb__onnx_tensor_bytes(t) / n));
}

static void onnx_tensor_count_values(onnx_tensor_reading *x, wb__wire *in, const wb__wire_field *f)
{
    wb__wire list;
    if (f->number == TENSOR_STRINGS) {
        x->n_numbers++;
    } else {
        if (!wb__wire_list(in, f, onnx_tensor_kind_of((int)f->number), &list)) return;
        x->n_numbers += wb__wire_count(&list, onnx_tensor_kind_of((int)f->number));
        if (!f->n) return;              /* an empty list of a type that the tensor does not have */
    }
    if (x->field && x->field != (int)f->number)
        wb__wire_fail(in, f->at, "a tensor has values in fields %d and %d", x->field,
                      (int)f->number);
    x->field = (int)f->number;
}

static int onnx_tensor_read_fields(onnx_tensor_reading *x)
{
    wb__wire in = x->in;
    wb__wire_field f;
    int64_t type = 0, place = 0;
    while (wb__wire_next(&in, &f))
        switch (f.number) {
        case TENSOR_DIMS: onnx_tensor_read_dims(x, &in, &f); break;
        case TENSOR_TYPE: wb__wire_int(&in, &f, &type); break;
        case TENSOR_SEGMENT:
            wb__wire_fail(&in, f.at, "a tensor is a segment of another one; segments are not read");
            break;
        case TENSOR_FLOATS: case TENSOR_INT32S: case TENSOR_STRINGS: case TENSOR_INT64S:
        case TENSOR_DOUBLES: case TENSOR_UINT64S:
            onnx_tensor_count_values(x, &in, &f);
            break;
        case TENSOR_NAME: wb__wire_text(&in, &f, &x->name); break;
        case TENSOR_RAW: x->has_raw = wb__wire_bytes(&in, &f, &x->raw); break;
        case TENSOR_LOCATION: wb__wire_int(&in, &f, &place); break;
        default: break;
        }
    if (in.status) return in.status;
    if (place != 0 && place != LOCATION_EXTERNAL)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has data_location %lld", (long long)place);
    x->external = place == LOCATION_EXTERNAL;
    x->t->type = wb__onnx_type_of(type);
    return x->t->type ? 0
                      : onnx_tensor_fail(x, WB_ERROR_FORMAT,
                                         "has type %lld, which is none of ONNX's", (long long)type);
}

static int onnx_tensor_set_raw(onnx_tensor_reading *x, int64_t bytes)
{
    if ((int64_t)x->raw.n != bytes)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has %zu bytes; its shape and type %s need "
                                "%lld", x->raw.n, wb__onnx_type_name(x->t->type), (long long)bytes);
    x->t->data = bytes ? x->raw.at : NULL;
    return 0;
}

/* Returns 0 if bools are 0 or 1: others would be true in one operation and not in another. */
static int onnx_tensor_check_bools(const onnx_tensor_reading *x)
{
    const uint8_t *data = x->t->data;
    for (int64_t i = 0; x->t->type == WB__ONNX_BOOL && data && i < x->t->size; i++)
        if (data[i] > 1)
            return onnx_tensor_fail(x, WB_ERROR_FORMAT, "element %lld of type bool is %d",
                                    (long long)i, data[i]);
    return 0;
}

static int onnx_tensor_set_values(onnx_tensor_reading *x, bool bare)
{
    const int64_t bytes = wb__onnx_tensor_bytes(x->t);
    if ((x->external || x->has_raw) && bytes < 0)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has type %s, whose values are in string_data "
                                "only", wb__onnx_type_name(x->t->type));
    if (x->external) return wb__onnx_external(x->r, x->in, bytes, x->t);
    if (x->has_raw && x->field)
        return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has raw_data and values in field %d",
                                x->field);
    if (x->has_raw) return onnx_tensor_set_raw(x, bytes);
    if (x->field) return onnx_tensor_set_numbers(x);
    if (!x->t->size || bare) return 0;
    return onnx_tensor_fail(x, WB_ERROR_FORMAT, "has no values; its shape needs %lld",
                            (long long)x->t->size);
}

int wb__onnx_read_tensor(wb__onnx_reader *r, wb__wire in, bool bare, wb__onnx_tensor *t)
{
    onnx_tensor_reading x = {.r = r, .in = in, .t = t, .name = {"", 0}};
    *t = (wb__onnx_tensor){0};
    int status = onnx_tensor_read_fields(&x);
    if (!status && !(t->name = wb__onnx_copy(r->m, x.name))) status = wb_error_code();
    if (!status) status = onnx_tensor_find_size(&x);
    if (!status) status = onnx_tensor_set_values(&x, bare);
    return status ? status : onnx_tensor_check_bools(&x);
}
