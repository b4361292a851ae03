/* ModelProto: versions, functions, the graph; the memory of a model, and sets of names.
 *
 * No file makes the arena larger than MOST_TIMES its size and MOST_MORE bytes, so a file whose
 * graphs share names through many depths, or whose functions call each other twice and twice again,
 * is refused before it needs much memory. */
#include "io/onnx/read.h"

#include <stdio.h>

enum {
    FIRST_IR = 3, LAST_IR = 14, FIRST_OPSET = 1, LAST_OPSET = 28, LAST_ML = 5,
    BLOCK_LEAST = 4 << 10, BLOCK_MOST = 256 << 10, ONNX_MODEL_ALIGN = 16,
    MOST_TIMES = 96, MOST_MORE = 512 << 10, MOST_OF_FUNCTIONS = 32 << 20
};

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct onnx_model_block { struct onnx_model_block *next; size_t used,
                                  size; } onnx_model_block;

/* The memory of a model. */
struct wb__onnx_arena {
    onnx_model_block *blocks;
    size_t held, most;                  /* bytes of all blocks; the limit of these bytes */
    wb__mapping **files;                /* mappings of files of external data */
    int n_files, file_capacity;
};

enum {
    ONNX_MODEL_HEADER = (sizeof(onnx_model_block) + ONNX_MODEL_ALIGN - 1) / ONNX_MODEL_ALIGN *
                        ONNX_MODEL_ALIGN
};

static onnx_model_block *onnx_model_add_block(wb__onnx_model *m, size_t bytes)
{
    struct wb__onnx_arena *a = m->arena;
    size_t size = WB__MIN(WB__MAX(a->held / 2, BLOCK_LEAST), BLOCK_MOST);
    if (bytes > size) size = bytes;
    if (size > a->most - WB__MIN(a->held, a->most)) {
        wb__fail(WB_ERROR_FORMAT, "%s: its tables would need more than %zu bytes, which no model "
                 "of its size does", m->path, a->most);
        return NULL;
    }
    onnx_model_block *b = wb__alloc(ONNX_MODEL_HEADER + size);
    if (!b) return NULL;
    *b = (onnx_model_block){a->blocks, 0, size};
    a->blocks = b;
    a->held += size;
    return b;
}

void *wb__onnx_alloc(wb__onnx_model *m, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / 4 / size)
        return wb__fail_null(WB_ERROR_MEMORY, "%s: out of memory: %zu times %zu bytes asked for",
                             m->path, n, size);
    const size_t bytes = (n * size + ONNX_MODEL_ALIGN - 1) / ONNX_MODEL_ALIGN * ONNX_MODEL_ALIGN;
    onnx_model_block *b = m->arena->blocks;
    if (!b || bytes > b->size - b->used) b = onnx_model_add_block(m, bytes);
    if (!b) return NULL;
    void *result = (char *)b + ONNX_MODEL_HEADER + b->used;
    b->used += bytes;
    return memset(result, 0, bytes);
}

bool wb__onnx_reserve(wb__onnx_model *m, void *list, int *capacity, int n, size_t each)
{
    void *old;
    if (n <= *capacity) return true;
    const int most = *capacity > INT32_MAX / 2 ? INT32_MAX : WB__MAX(2 * *capacity, 8);
    const int grown = WB__MAX(n, most);
    void *new = wb__onnx_alloc(m, (size_t)grown, each);
    if (!new) return false;
    memcpy(&old, list, sizeof old);
    if (old) memcpy(new, old, (size_t)*capacity * each);
    memcpy(list, &new, sizeof new);
    *capacity = grown;
    return true;
}

const char *wb__onnx_copy(wb__onnx_model *m, wb__span text)
{
    char *to = wb__onnx_alloc(m, text.n + 1, 1);
    if (to && text.n) memcpy(to, text.at, text.n);
    return to;
}

int wb__onnx_add_mapping(wb__onnx_model *m, wb__mapping *file)
{
    struct wb__onnx_arena *a = m->arena;
    if (!wb__reserve(&a->files, &a->file_capacity, a->n_files + 1, sizeof *a->files))
        return WB_ERROR_MEMORY;
    a->files[a->n_files++] = file;
    return 0;
}

wb__mapping *wb__onnx_find_mapping(const wb__onnx_model *m, const char *path)
{
    for (int i = 0; i < m->arena->n_files; i++)
        if (!strcmp(m->arena->files[i]->path, path)) return m->arena->files[i];
    return NULL;
}

void wb__onnx_free(wb__onnx_model *m)
{
    if (!m) return;
    struct wb__onnx_arena *a = m->arena;
    for (int i = 0; a && i < a->n_files; i++) wb__unmap(a->files[i]);
    for (onnx_model_block *b = a ? a->blocks : NULL, *next; b; b = next) {
        next = b->next;
        wb__free(b);
    }
    if (a) wb__free(a->files);
    wb__free(a);
    wb__free(m);
}

/* Returns the place of a text in the table.  The hash depends on the set's address, so that no file
 * can have names that all collide. */
static int onnx_model_place_of(const wb__name_set *s, wb__span text)
{
    int i = wb__name_hash((uint64_t)(uintptr_t)s->table, text) & (s->size - 1);
    while (s->table[i] && !wb__span_is(text, s->list[s->table[i] - 1])) i = (i + 1) & (s->size - 1);
    return i;
}

int wb__name_set_find(const wb__name_set *s, wb__span text)
{
    return s->n ? s->table[onnx_model_place_of(s, text)] - 1 : -1;
}

static bool onnx_model_grow_table(wb__onnx_model *m, wb__name_set *s)
{
    if (2 * (s->n + 1) <= s->size) return true;
    if (s->size > INT32_MAX / 4)
        return wb__fail(WB_ERROR_MEMORY, "%s: out of memory", m->path), false;
    const int size = WB__MAX(16, 4 * s->size);
    int *table = wb__onnx_alloc(m, (size_t)size, sizeof *table);
    if (!table) return false;
    s->table = table;
    s->size = size;
    for (int i = 0; i < s->n; i++)
        s->table[onnx_model_place_of(s, wb__span_of(s->list[i]))] = i + 1;
    return true;
}

int wb__name_set_add(wb__onnx_model *m, wb__name_set *s, wb__span text, bool *is_new)
{
    int i = wb__name_set_find(s, text);
    *is_new = i < 0;
    if (i >= 0) return i;
    if (!onnx_model_grow_table(m, s) ||
        !wb__onnx_reserve(m, &s->list, &s->capacity, s->n + 1, sizeof *s->list))
        return -1;
    const char *copy = wb__onnx_copy(m, text);
    if (!copy) return -1;
    i = onnx_model_place_of(s, text);
    s->list[s->n] = copy;
    s->table[i] = ++s->n;
    return s->n - 1;
}

/* ---- versions -------------------------------------------------------------------------------- */

int wb__onnx_fail(const wb__onnx_reader *r, int code, const char *format, ...)
{
    char reason[1024];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(code, "%s: %s", r->file.path, reason);
}

wb__span wb__onnx_domain(wb__span domain)
{
    return wb__span_is(domain, "ai.onnx") ? (wb__span){"", 0} : domain;
}

/* Reads an OperatorSetIdProto. */
int wb__onnx_read_opset(wb__onnx_reader *r, wb__wire in, wb__opsets *to)
{
    wb__wire_field f;
    wb__span domain = {"", 0};
    int64_t version = 0;
    bool is_new;
    while (wb__wire_next(&in, &f)) {
        if (f.number == OPSET_DOMAIN) wb__wire_text(&in, &f, &domain);
        else if (f.number == OPSET_VERSION) wb__wire_int(&in, &f, &version);
    }
    if (in.status) return in.status;
    const int capacity = to->domains.capacity;
    const int i = wb__name_set_add(r->m, &to->domains, wb__onnx_domain(domain), &is_new);
    if (i < 0) return wb_error_code();
    if (to->domains.capacity > capacity) {
        int old = capacity;
        if (!wb__onnx_reserve(r->m, &to->versions, &old, to->domains.capacity,
                              sizeof *to->versions))
            return wb_error_code();
    }
    if (!is_new && to->versions[i] != version)
        return wb__onnx_fail(r, WB_ERROR_FORMAT, "uses versions %lld and %lld of \"%.100s\"",
                             (long long)to->versions[i], (long long)version, to->domains.list[i]);
    to->versions[i] = version;
    return 0;
}

int wb__onnx_check_opset(const wb__onnx_reader *r, const wb__opsets *s, int64_t *opset)
{
    const int i = wb__name_set_find(&s->domains, (wb__span){"", 0});
    const int ml = wb__name_set_find(&s->domains, wb__span_of(WB__ONNX_ML));
    *opset = i < 0 ? 0 : s->versions[i];
    if (ml >= 0 && s->versions[ml] > LAST_ML)
        return wb__onnx_fail(r, WB_ERROR_UNSUPPORTED, "uses version %lld of %s; versions up to %d "
                             "are read", (long long)s->versions[ml], WB__ONNX_ML, LAST_ML);
    if (i < 0 || (*opset >= FIRST_OPSET && *opset <= LAST_OPSET)) return 0;
    return wb__onnx_fail(r, WB_ERROR_UNSUPPORTED, "uses opset %lld; opsets %d to %d are read: "
                         "convert the file, for example with onnx.version_converter, or export it "
                         "with opset 17", (long long)*opset, FIRST_OPSET, LAST_OPSET);
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Reads all fields but the graph, which *graph becomes, and functions, which *n_functions
 * counts. */
static int onnx_model_read_head(wb__onnx_reader *r, wb__wire in, wb__wire *graph, int *n_functions)
{
    wb__wire_field f;
    wb__wire inside;
    wb__span producer = {"", 0};
    *graph = wb__wire_of(NULL, NULL, 0);
    while (wb__wire_next(&in, &f)) {
        if (f.number == MODEL_IR_VERSION) wb__wire_int(&in, &f, &r->m->ir_version);
        else if (f.number == MODEL_PRODUCER) wb__wire_text(&in, &f, &producer);
        else if (f.number == MODEL_GRAPH && graph->at) wb__wire_fail(&in, f.at, "a second graph");
        else if (f.number == MODEL_GRAPH) wb__wire_message(&in, &f, graph);
        else if (f.number == MODEL_OPSET && wb__wire_message(&in, &f, &inside))
            in.status = wb__onnx_read_opset(r, inside, &r->opsets);
        *n_functions += f.number == MODEL_FUNCTION;
    }
    if (in.status) return in.status;
    if (!graph->at)
        return wb__onnx_fail(r, WB_ERROR_FORMAT, "no model of ONNX: it has no graph");
    r->m->producer = wb__onnx_copy(r->m, producer);
    if (!r->m->producer) return wb_error_code();
    if (r->m->ir_version < FIRST_IR || r->m->ir_version > LAST_IR)
        return wb__onnx_fail(r, WB_ERROR_UNSUPPORTED,
                             "has version %lld of ONNX's file format (ir_version); versions %d to "
                             "%d are read", (long long)r->m->ir_version, FIRST_IR, LAST_IR);
    return wb__onnx_check_opset(r, &r->opsets, &r->m->opset);
}

static int onnx_model_read_functions(wb__onnx_reader *r, wb__wire in, int n)
{
    wb__wire_field f;
    wb__wire inside;
    if (!n) return 0;
    r->m->arena->most += MOST_OF_FUNCTIONS;
    r->locals = wb__onnx_alloc(r->m, (size_t)n, sizeof *r->locals);
    if (!r->locals) return wb_error_code();
    while (wb__wire_next(&in, &f))
        if (f.number == MODEL_FUNCTION && wb__wire_message(&in, &f, &inside))
            in.status = wb__onnx_read_local(r, inside);
    return in.status;
}

static int onnx_model_read(wb__onnx_reader *r, wb__wire in)
{
    wb__wire graph;
    int n_functions = 0;
    int status = onnx_model_read_head(r, in, &graph, &n_functions);
    if (!status) status = onnx_model_read_functions(r, in, n_functions);
    if (!status) status = wb__onnx_read_graph(r, graph, NULL, NULL, &r->m->graph);
    if (!status && !r->m->graph->n_outputs)
        status = wb__onnx_fail(r, WB_ERROR_FORMAT, "the graph has no outputs");
    return status;
}

int wb__onnx_read(const char *path, const void *data, size_t bytes, wb__onnx_model **model)
{
    wb__onnx_model *m = wb__alloc_zero(1, sizeof *m);
    *model = NULL;
    if (!m) return WB_ERROR_MEMORY;
    if (!(m->arena = wb__alloc_zero(1, sizeof *m->arena))) return wb__onnx_free(m), WB_ERROR_MEMORY;
    const char *name = path ? path : "the graph of a layer";
    m->path = name;
    m->arena->most = MOST_MORE + strlen(name) + MOST_TIMES * WB__MIN(bytes, (size_t)INT32_MAX);
    wb__onnx_reader r = {.m = m, .bare = !path, .file = {name, data}};
    int status = bytes > INT32_MAX
                     ? wb__onnx_fail(&r, WB_ERROR_FORMAT, "has %zu bytes; files of ONNX have less "
                                     "than 2 GiB, and larger tensors are in files beside them",
                                     bytes)
                     : 0;
    if (!status && !(m->path = wb__onnx_copy(m, wb__span_of(name)))) status = wb_error_code();
    if (!status) status = onnx_model_read(&r, wb__wire_of(&r.file, data, bytes));
    if (status) return wb__onnx_free(m), status;
    m->arena->most = SIZE_MAX;          /* later allocations have limits of their own */
    *model = m;
    return 0;
}
