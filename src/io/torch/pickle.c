/* The opcodes of a pickle of tensors.  All values stay until the end, so they may refer to each
 * other; a list or dict may contain itself. */
#include "io/torch/pickle.h"

#include <string.h>

enum { PICKLE_MOST = 1 << 24 };         /* the most values, and entries of the memo */

/* A pickle while it is read. */
typedef struct {
    const char *path;
    const uint8_t *data;
    int64_t bytes, at;
    wb__pickle *p;                      /* the result */
    int *stack, *memo;                  /* indices of values */
    int n_stack, stack_capacity, n_memo, memo_capacity;
    /* 1 + the index of a value that never changes, and is therefore made once; 0: not yet made */
    int plain[WB__PICKLE_MARK + 1], small[256];
} pickle_reader;

static int pickle_fail(const pickle_reader *r, const char *reason)
{
    return wb__fail(WB_ERROR_FORMAT, "%s: data.pkl: byte %lld: %s", r->path, (long long)r->at,
                    reason);
}

static bool pickle_grow_stack(pickle_reader *r)
{
    return wb__reserve(&r->stack, &r->stack_capacity, r->n_stack + 1, sizeof *r->stack);
}

static wb__pickle_value *pickle_value(const pickle_reader *r, int i) { return &r->p->values[i]; }

/* Pushes a new value.  NULL: failed. */
static wb__pickle_value *pickle_push_new(pickle_reader *r, wb__pickle_kind kind)
{
    wb__pickle *p = r->p;
    if (p->n == PICKLE_MOST) return pickle_fail(r, "it has too many values"), NULL;
    if (!wb__reserve(&p->values, &p->capacity, p->n + 1, sizeof *p->values) ||
        !pickle_grow_stack(r))
        return NULL;
    p->values[p->n] = (wb__pickle_value){.kind = kind};
    r->stack[r->n_stack++] = p->n;
    return &p->values[p->n++];
}

static int pickle_push(pickle_reader *r, wb__pickle_kind kind) {
    return pickle_push_new(r, kind) ? 0 : wb_error_code();
}

static int pickle_push_known(pickle_reader *r, int i)
{
    if (!pickle_grow_stack(r)) return wb_error_code();
    r->stack[r->n_stack++] = i;
    return 0;
}

/* Pushes None or a mark, which begins the values of a list, dict or tuple, on the stack. */
static int pickle_push_plain(pickle_reader *r, wb__pickle_kind kind)
{
    if (r->plain[kind]) return pickle_push_known(r, r->plain[kind] - 1);
    if (pickle_push(r, kind)) return wb_error_code();
    r->plain[kind] = r->p->n;
    return 0;
}

static int pickle_push_number(pickle_reader *r, int64_t number)
{
    const bool is_small = number >= 0 && number < (int64_t)WB__COUNT(r->small);
    if (is_small && r->small[number]) return pickle_push_known(r, r->small[number] - 1);
    wb__pickle_value *v = pickle_push_new(r, WB__PICKLE_NUMBER);
    if (!v) return wb_error_code();
    v->number = number;
    if (is_small) r->small[number] = r->p->n;
    return 0;
}

static int pickle_append(pickle_reader *r, int list, int item)
{
    wb__pickle_value *v = pickle_value(r, list);
    if (!v->n || (v->n > 1 && !(v->n & (v->n - 1)))) {
        int *bigger = wb__realloc(v->items, (size_t)WB__MAX(2 * v->n, 2) * sizeof *bigger);
        if (!bigger) return wb_error_code();
        v->items = bigger;
    }
    v->items[v->n++] = item;
    return 0;
}

/* Sets *to to an unsigned number of n bytes. */
static int pickle_read_number(pickle_reader *r, int n, uint64_t *to)
{
    *to = 0;
    if (n > r->bytes - r->at) return pickle_fail(r, "it ends too early");
    for (int i = 0; i < n; i++) *to |= (uint64_t)r->data[r->at++] << (8 * i);
    return 0;
}

/* Returns the last value on the stack, which it removes.  -1: failed. */
static int pickle_pop(pickle_reader *r)
{
    if (r->n_stack && pickle_value(r, r->stack[r->n_stack - 1])->kind != WB__PICKLE_MARK)
        return r->stack[--r->n_stack];
    return pickle_fail(r, "an opcode has no operand"), -1;
}

/* Returns the position of the last mark on the stack.  -1: failed. */
static int pickle_mark(pickle_reader *r)
{
    for (int i = r->n_stack - 1; i >= 0; i--)
        if (pickle_value(r, r->stack[i])->kind == WB__PICKLE_MARK) return i;
    return pickle_fail(r, "an opcode has no mark"), -1;
}

/* Pushes a tuple of the values on the stack from `first` on, and removes them and the mark before
 * them. */
static int pickle_tuple(pickle_reader *r, int first, bool marked)
{
    if (first < 0) return pickle_fail(r, "an opcode has no operands");
    const int n = r->n_stack - first;
    if (pickle_push(r, WB__PICKLE_LIST)) return wb_error_code();
    const int made = r->stack[--r->n_stack];
    for (int i = 0; i < n; i++)
        if (pickle_append(r, made, r->stack[first + i])) return wb_error_code();
    r->n_stack = first - marked;
    r->stack[r->n_stack++] = made;
    return 0;
}

/* Moves the values behind the mark into the list or dict before it. */
static int pickle_extend(pickle_reader *r, wb__pickle_kind kind)
{
    const int at = pickle_mark(r);
    if (at < 0) return wb_error_code();
    const int n = r->n_stack - at - 1;
    if (!at || pickle_value(r, r->stack[at - 1])->kind != kind ||
        (kind == WB__PICKLE_DICT && n % 2))
        return pickle_fail(r, "items are appended to a value that takes none");
    for (int i = 0; i < n; i++)
        if (pickle_append(r, r->stack[at - 1], r->stack[at + 1 + i])) return wb_error_code();
    r->n_stack = at;
    return 0;
}

static int pickle_extend_by(pickle_reader *r, wb__pickle_kind kind, int n)
{
    if (r->n_stack <= n || pickle_value(r, r->stack[r->n_stack - n - 1])->kind != kind)
        return pickle_fail(r, "an item is appended to a value that takes none");
    const int to = r->stack[r->n_stack - n - 1];
    for (int i = 0; i < n; i++)
        if (pickle_append(r, to, r->stack[r->n_stack - n + i])) return wb_error_code();
    r->n_stack -= n;
    return 0;
}

static int pickle_text(pickle_reader *r, int bytes)
{
    uint64_t length;
    if (pickle_read_number(r, bytes, &length)) return wb_error_code();
    if (length > (uint64_t)(r->bytes - r->at) || length > 1 << 20)
        return pickle_fail(r, "a text is longer than the file, or than 1 MiB");
    wb__pickle_value *v = pickle_push_new(r, WB__PICKLE_TEXT);
    if (!v) return wb_error_code();
    v->text = (const char *)r->data + r->at;
    v->n = (int)length;
    r->at += (int64_t)length;
    return 0;
}

/* Skips bytes, which are part of no tensor. */
static int pickle_skip_bytes(pickle_reader *r, int bytes)
{
    uint64_t length;
    if (pickle_read_number(r, bytes, &length)) return wb_error_code();
    if (length > (uint64_t)(r->bytes - r->at))
        return pickle_fail(r, "bytes are longer than the file");
    r->at += (int64_t)length;
    return pickle_push_plain(r, WB__PICKLE_NONE);
}

/* ---- globals --------------------------------------------------------------------------------- */

bool wb__pickle_is(const wb__pickle_value *v, const char *text)
{
    return (v->kind == WB__PICKLE_TEXT || v->kind == WB__PICKLE_GLOBAL) &&
           v->n == (int)strlen(text) && !memcmp(v->text, text, (size_t)v->n);
}

/* The globals that tensors need.  '*' means any letters and digits. */
static const struct { const char *module, *before, *after; } pickle_globals[] = {
    {"torch._utils", "_rebuild_tensor_v", "2"}, {"torch._utils", "_rebuild_tensor_v", "3"},
    {"torch._utils", "_rebuild_parameter", ""}, {"collections", "OrderedDict", ""},
    {"torch", "*", "Storage"}, {"torch.storage", "Untyped", "Storage"},
    /* dtypes */
    {"torch", "float", "*"}, {"torch", "bfloat16", ""}, {"torch", "int", "*"},
    {"torch", "uint", "*"}, {"torch", "bool", ""}, {"torch", "complex", "*"}};

static bool pickle_is_word(const char *text, int n)
{
    for (int i = 0; i < n; i++)
        if (!((text[i] | 32) >= 'a' && (text[i] | 32) <= 'z') && text[i] != '_' &&
            !(text[i] >= '0' && text[i] <= '9'))
            return false;
    return n > 0;
}

static bool pickle_is_global(int i, const char *module, int m, const char *name, int n)
{
    const char *before = pickle_globals[i].before, *after = pickle_globals[i].after;
    const bool head = *before == '*', tail = *after == '*';
    const int a = head ? 0 : (int)strlen(before), b = tail ? 0 : (int)strlen(after);
    if (m != (int)strlen(pickle_globals[i].module) ||
        memcmp(module, pickle_globals[i].module, (size_t)m) || n < a + b ||
        memcmp(name, before, (size_t)a) || memcmp(name + n - b, after, (size_t)b))
        return false;
    return head || tail ? pickle_is_word(name, n) : n == a + b;
}

static bool pickle_is_storage_class(const wb__pickle_value *v)
{
    static const char tail[] = "Storage";
    const int n = (int)sizeof tail - 1;
    return v->kind == WB__PICKLE_GLOBAL && v->n > n && !memcmp(v->text + v->n - n, tail, (size_t)n);
}

static int pickle_push_global(pickle_reader *r, const char *module, int m, const char *name, int n)
{
    bool known = false;
    for (size_t i = 0; !known && i < WB__COUNT(pickle_globals); i++)
        known = pickle_is_global((int)i, module, m, name, n);
    if (!known)
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: it has a %.*s.%.*s, and only tensors in dicts, "
                        "lists and tuples are read: save model.state_dict()", r->path, m, module, n,
                        name);
    wb__pickle_value *v = pickle_push_new(r, WB__PICKLE_GLOBAL);
    if (!v) return wb_error_code();
    v->text = name;
    v->n = n;
    return 0;
}

/* Sets *from and *n to the bytes before the next newline, and skips the newline. */
static int pickle_read_line(pickle_reader *r, const char **from, int *n)
{
    enum { LONGEST = 1000 };
    const int64_t most = WB__MIN(r->bytes - r->at, LONGEST);
    *from = (const char *)r->data + r->at;
    const char *end = most ? memchr(*from, '\n', (size_t)most) : NULL;
    if (!end) return pickle_fail(r, "a name or a number does not end");
    *n = (int)(end - *from);
    r->at += *n + 1;
    return 0;
}

/* Reads a global, "module\nname\n". */
static int pickle_global(pickle_reader *r)
{
    const char *module = "", *name = "";
    int m = 0, n = 0;
    if (pickle_read_line(r, &module, &m) || pickle_read_line(r, &name, &n)) return wb_error_code();
    return pickle_push_global(r, module, m, name, n);
}

/* Replaces two texts on the stack, a module and a name, by the global. */
static int pickle_stack_global(pickle_reader *r)
{
    const int name = pickle_pop(r), module = name < 0 ? -1 : pickle_pop(r);
    if (module < 0) return wb_error_code();
    const wb__pickle_value m = *pickle_value(r, module), n = *pickle_value(r, name);
    if (m.kind != WB__PICKLE_TEXT || n.kind != WB__PICKLE_TEXT)
        return pickle_fail(r, "the name of a class is no text");
    return pickle_push_global(r, m.text, WB__MIN(m.n, 1000), n.text, WB__MIN(n.n, 1000));
}

/* Changes the value on the stack to a storage of ("storage", class, key, location, elements). */
static int pickle_storage(pickle_reader *r)
{
    const int id = pickle_pop(r);
    if (id < 0) return wb_error_code();
    const wb__pickle_value *t = pickle_value(r, id);
    const int *i = t->items;
    if (t->kind != WB__PICKLE_LIST || t->n != 5 ||
        !wb__pickle_is(pickle_value(r, i[0]), "storage") ||
        !pickle_is_storage_class(pickle_value(r, i[1])) ||
        pickle_value(r, i[2])->kind != WB__PICKLE_TEXT ||
        pickle_value(r, i[4])->kind != WB__PICKLE_NUMBER)
        return pickle_fail(r, "this is no storage of a tensor");
    const int key = i[2], class = i[1];
    const int64_t elements = pickle_value(r, i[4])->number;
    wb__pickle_value *v = pickle_push_new(r, WB__PICKLE_STORAGE);
    if (!v) return wb_error_code();
    v->number = elements;
    const int made = r->stack[r->n_stack - 1];
    return pickle_append(r, made, key) || pickle_append(r, made, class) ? wb_error_code() : 0;
}

/* Changes the value on the stack to a tensor of (storage, offset, sizes, strides, requires_grad,
 * hooks, ...).  With `third`, the form that PyTorch uses for dtypes without a class of storages,
 * the dtype follows. */
static int pickle_tensor(pickle_reader *r, int arguments, bool third)
{
    enum { DTYPE = 6 };
    const wb__pickle_value *t = pickle_value(r, arguments);
    if (t->n < 4 || pickle_value(r, t->items[0])->kind != WB__PICKLE_STORAGE ||
        pickle_value(r, t->items[1])->kind != WB__PICKLE_NUMBER ||
        pickle_value(r, t->items[2])->kind != WB__PICKLE_LIST ||
        pickle_value(r, t->items[3])->kind != WB__PICKLE_LIST ||
        pickle_value(r, t->items[2])->n != pickle_value(r, t->items[3])->n ||
        (third && (t->n <= DTYPE || pickle_value(r, t->items[DTYPE])->kind != WB__PICKLE_GLOBAL)))
        return pickle_fail(r, "these are no arguments of a tensor");
    const int parts[4] = {t->items[0], t->items[2], t->items[3], third ? t->items[DTYPE] : -1};
    const int64_t offset = pickle_value(r, t->items[1])->number;
    wb__pickle_value *v = pickle_push_new(r, WB__PICKLE_TENSOR);
    if (!v) return wb_error_code();
    v->number = offset;
    const int made = r->stack[r->n_stack - 1];
    for (int i = 0; i < 3 + third; i++)
        if (pickle_append(r, made, parts[i])) return wb_error_code();
    return 0;
}

/* Calls the function on the stack: pushes the dict, tensor or parameter that it would return. */
static int pickle_reduce(pickle_reader *r)
{
    const int arguments = pickle_pop(r), function = arguments < 0 ? -1 : pickle_pop(r);
    if (function < 0) return wb_error_code();
    const wb__pickle_value *f = pickle_value(r, function), *t = pickle_value(r, arguments);
    if (f->kind != WB__PICKLE_GLOBAL || t->kind != WB__PICKLE_LIST)
        return pickle_fail(r, "a value that is no function is called");
    if (wb__pickle_is(f, "OrderedDict") && !t->n) return pickle_push(r, WB__PICKLE_DICT);
    if (wb__pickle_is(f, "_rebuild_tensor_v2")) return pickle_tensor(r, arguments, false);
    if (wb__pickle_is(f, "_rebuild_tensor_v3")) return pickle_tensor(r, arguments, true);
    if (!wb__pickle_is(f, "_rebuild_parameter") || !t->n ||
        pickle_value(r, t->items[0])->kind != WB__PICKLE_TENSOR)
        return pickle_fail(r, "a function is called with other arguments than PyTorch's");
    r->stack[r->n_stack++] = t->items[0];           /* replaces the function on the stack */
    return 0;
}

/* ---- opcodes --------------------------------------------------------------------------------- */

/* Sets entry i of the memo.  Python numbers entries in their order; PyTorch's begin at 0 or 1. */
static int pickle_remember_as(pickle_reader *r, uint64_t i)
{
    if (!r->n_stack || i >= PICKLE_MOST || i > (uint64_t)r->bytes)
        return pickle_fail(r, "an entry of the memo is wrong");
    const int known = r->memo_capacity;
    if (!wb__reserve(&r->memo, &r->memo_capacity, (int)i + 1, sizeof *r->memo))
        return wb_error_code();
    for (int k = known; k < r->memo_capacity; k++) r->memo[k] = -1;
    r->n_memo += r->memo[i] < 0;
    r->memo[i] = r->stack[r->n_stack - 1];
    return 0;
}

static int pickle_remember(pickle_reader *r, int bytes)
{
    uint64_t i;
    return pickle_read_number(r, bytes, &i) ? (int)wb_error_code() : pickle_remember_as(r, i);
}

static int pickle_recall(pickle_reader *r, int bytes)
{
    uint64_t i;
    if (pickle_read_number(r, bytes, &i)) return wb_error_code();
    if (i >= (uint64_t)r->memo_capacity || r->memo[i] < 0)
        return pickle_fail(r, "the memo has no such entry");
    return pickle_push_known(r, r->memo[i]);
}

static int pickle_integer(pickle_reader *r, int bytes)
{
    uint64_t n;
    if (pickle_read_number(r, bytes, &n)) return wb_error_code();
    return pickle_push_number(r, bytes == 4 ? (int64_t)(int32_t)(uint32_t)n : (int64_t)n);
}

/* Pushes an integer.  The first `bytes` bytes are the number of bytes that the integer has. */
static int pickle_long_integer(pickle_reader *r, int bytes)
{
    uint64_t length, n;
    if (pickle_read_number(r, bytes, &length)) return wb_error_code();
    if (length > 8) return pickle_fail(r, "an integer has more than 64 bits");
    if (pickle_read_number(r, (int)length, &n)) return wb_error_code();
    if (length && length < 8 && n >> (8 * length - 1)) n |= UINT64_MAX << (8 * length);
    return pickle_push_number(r, (int64_t)n);
}

/* Pushes an integer that is written as text: "-12\n", "-12L\n"; "01\n" is True.  Protocol 1 writes
 * bools and long integers in this way. */
static int pickle_text_integer(pickle_reader *r)
{
    const char *from = "";
    int n = 0;
    if (pickle_read_line(r, &from, &n)) return wb_error_code();
    n -= n && from[n - 1] == 'L';
    const bool negative = n && *from == '-';
    int64_t number = 0;
    for (int i = negative; i < n; i++) {
        if (from[i] < '0' || from[i] > '9' || number > (INT64_MAX - 9) / 10)
            return pickle_fail(r, "an integer is none, or has more than 64 bits");
        number = 10 * number + (from[i] - '0');
    }
    return pickle_push_number(r, negative ? -number : number);
}

static int pickle_skip(pickle_reader *r, int bytes)
{
    uint64_t unused;
    return pickle_read_number(r, bytes, &unused);
}

/* Removes the state of a dict, which is its attribute _metadata. */
static int pickle_build(pickle_reader *r)
{
    if (pickle_pop(r) < 0) return wb_error_code();
    if (r->n_stack && pickle_value(r, r->stack[r->n_stack - 1])->kind == WB__PICKLE_DICT) return 0;
    return pickle_fail(r, "a value that is no dict has a state");
}

/* Executes an opcode of the protocols 3 to 5. */
static int pickle_step_of_protocol_3(pickle_reader *r, int opcode)
{
    int at;
    switch (opcode) {
    case 0x95: return pickle_skip(r, 8);                            /* the length of a frame */
    case 0x94: return pickle_remember_as(r, (uint64_t)r->n_memo);
    case 0x93: return pickle_stack_global(r);
    case 0x8c: return pickle_text(r, 1);
    case 0x8d: return pickle_text(r, 8);
    case 'C': return pickle_skip_bytes(r, 1);
    case 'B': return pickle_skip_bytes(r, 4);
    case 0x8e:
    case 0x96: return pickle_skip_bytes(r, 8);
    case 0x8f: return pickle_push(r, WB__PICKLE_LIST);              /* a set */
    case 0x90: return pickle_extend(r, WB__PICKLE_LIST);
    case 0x91:
        return (at = pickle_mark(r)) < 0 ? (int)wb_error_code() : pickle_tuple(r, at + 1, true);
    default: break;
    }
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: data.pkl: byte %lld: opcode 0x%02x, which files of "
                    "tensors do not have: save model.state_dict()", r->path, (long long)r->at - 1,
                    (unsigned)opcode);
}

static int pickle_step(pickle_reader *r, int opcode)
{
    int at;
    switch (opcode) {
    case 0x80: return pickle_skip(r, 1);                            /* the protocol */
    case '(': return pickle_push_plain(r, WB__PICKLE_MARK);
    case '}': return pickle_push(r, WB__PICKLE_DICT);
    case ']':
    case ')': return pickle_push(r, WB__PICKLE_LIST);
    case 'N': return pickle_push_plain(r, WB__PICKLE_NONE);
    case 0x88: return pickle_push_number(r, 1);
    case 0x89: return pickle_push_number(r, 0);
    case 'J': return pickle_integer(r, 4);
    case 'K': return pickle_integer(r, 1);
    case 'M': return pickle_integer(r, 2);
    case 'I':
    case 'L': return pickle_text_integer(r);
    case 0x8a: return pickle_long_integer(r, 1);
    case 0x8b: return pickle_long_integer(r, 4);
    case 'G': return pickle_skip(r, 8) ? (int)wb_error_code() : pickle_push_plain(r,
                                                                                  WB__PICKLE_NONE);
    case 'X': return pickle_text(r, 4);
    case 'c': return pickle_global(r);
    case 'Q': return pickle_storage(r);
    case 'R': return pickle_reduce(r);
    case 'b': return pickle_build(r);
    case 'q': return pickle_remember(r, 1);
    case 'r': return pickle_remember(r, 4);
    case 'h': return pickle_recall(r, 1);
    case 'j': return pickle_recall(r, 4);
    case 't':
        return (at = pickle_mark(r)) < 0 ? (int)wb_error_code() : pickle_tuple(r, at + 1, true);
    case 0x85:
    case 0x86:
    case 0x87: return pickle_tuple(r, r->n_stack - (opcode - 0x84), false);
    case 'a': return pickle_extend_by(r, WB__PICKLE_LIST, 1);
    case 's': return pickle_extend_by(r, WB__PICKLE_DICT, 2);
    case 'e': return pickle_extend(r, WB__PICKLE_LIST);
    case 'u': return pickle_extend(r, WB__PICKLE_DICT);
    default: return pickle_step_of_protocol_3(r, opcode);
    }
}

int wb__pickle_read(const char *path, const uint8_t *data, int64_t bytes, wb__pickle *out)
{
    pickle_reader r = {.path = path, .data = data, .bytes = bytes, .p = out};
    int status = 0;
    bool done = false;
    *out = (wb__pickle){0};
    while (!status && !done) {
        uint64_t opcode;
        status = pickle_read_number(&r, 1, &opcode);
        done = !status && opcode == '.';
        if (!status && !done) status = pickle_step(&r, (int)opcode);
    }
    if (!status) out->root = pickle_pop(&r);
    wb__free(r.stack);
    wb__free(r.memo);
    return status ? status : out->root < 0 ? (int)wb_error_code() : 0;
}

void wb__pickle_free(wb__pickle *p)
{
    for (int i = 0; i < p->n; i++) wb__free(p->values[i].items);
    wb__free(p->values);
    *p = (wb__pickle){0};
}
