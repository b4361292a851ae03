/* The initializers of an ONNX file as a table, and how such a file is recognised. */
#include "io/onnx/table.h"

#include "io/onnx/read.h"

#include <stdio.h>

/* Whether a field has its kind in ModelProto; a file with other fields is not one of ONNX. */
static bool onnx_table_has_kind(const wb__wire_field *f)
{
    switch (f->number) {
    case MODEL_IR_VERSION: case MODEL_VERSION: return f->kind == WB__WIRE_VARINT;
    case MODEL_PRODUCER: case MODEL_PRODUCER_VERSION: case MODEL_DOMAIN: case MODEL_DOC:
    case MODEL_GRAPH: case MODEL_OPSET: case MODEL_METADATA: case MODEL_TRAINING:
    case MODEL_FUNCTION: case MODEL_CONFIGURATION:
        return f->kind == WB__WIRE_BYTES;
    default: return false;
    }
}

bool wb__onnx_is(const wb__mapping *m)
{
    enum { VERSION = 0x08, FIRST = 3, LAST = 14 };
    wb__wire_field f;
    bool has_graph = false;
    if (m->bytes < 4 || m->data[0] != VERSION || m->data[1] < FIRST || m->data[1] > LAST)
        return false;
    wb__wire in = wb__wire_of(NULL, m->data, (size_t)m->bytes);
    while (wb__wire_next(&in, &f)) {
        if (!onnx_table_has_kind(&f)) return false;
        has_graph = has_graph || f.number == MODEL_GRAPH;
    }
    return has_graph && !in.status;
}

/* Sets e->data to the values: in the mapping, or in a block that the entry owns, since the model is
 * freed. */
static int onnx_table_set_values(const wb__mapping *m, const wb__onnx_tensor *t, bool values,
                                 wb__entry *e)
{
    const uintptr_t from = (uintptr_t)t->data - (uintptr_t)m->data;
    const bool inside = t->data && from < (uintptr_t)m->bytes;
    if (inside) e->begin = (int64_t)from;
    if (!values || !t->data || !e->dtype) return 0;
    if (inside) return e->data = t->data, 0;
    void *block = wb__alloc_aligned((size_t)e->bytes);
    if (!block) return WB_ERROR_MEMORY;
    memcpy(block, t->data, (size_t)e->bytes);
    e->data = block;
    e->owned = true;
    return 0;
}

static int onnx_table_add_tensor(const wb__mapping *m, const wb__onnx_tensor *t, bool values,
                                 wb__table *out)
{
    wb__entry *e = wb__table_add(out, t->name);
    if (!e) return WB_ERROR_MEMORY;
    e->dtype = wb__onnx_dtype(t->type);
    snprintf(e->type, sizeof e->type, "%s", wb__onnx_type_name(t->type));
    e->ndim = t->ndim;
    memcpy(e->dims, t->dims, sizeof e->dims);
    e->bytes = WB__MAX(wb__onnx_tensor_bytes(t), 0);
    return onnx_table_set_values(m, t, values, e);
}

int wb__onnx_table(wb__mapping *m, bool values, wb__table *out)
{
    wb__onnx_model *model;
    *out = (wb__table){0};
    int status = wb__onnx_read(m->path, m->data, (size_t)m->bytes, &model);
    if (status) return status;
    for (int i = 0; !status && i < model->n_tensors; i++)
        status = onnx_table_add_tensor(m, &model->tensors[i], values, out);
    wb__onnx_free(model);
    if (status) return wb__table_free(out), status;
    wb__table_sort(out);
    out->mapping = m;
    return 0;
}
