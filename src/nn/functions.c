/* The names of functions (activations, and functions used as layers) and of connections.  Names are
 * printed and stored in files.  One registry holds functions, another holds connections.  Each
 * registry lists the library's names and the names that the program has added. */
#include "base/mutex.h"
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

/* FUNCTIONS_LIST has the functions that are not operations of ops.def with one operand. */
#define FUNCTIONS_LIST(X)                                                                       \
    X(identity) X(softmax) X(logsoftmax) X(glu) X(rrelu) X(flatten) X(transpose)               \
    WB__COMPOSED_ACTIVATIONS(X)
#define CONNECTIONS(X) X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum) X(matmul) \
    X(separate)

/* A pointer to a wb_function or a wb__connection, which is cast back to its type before the
 * call. */
typedef void (*any)(void);
enum { FUNCTIONS_NAME = 64, CAPACITY = 256 };
typedef struct { char name[FUNCTIONS_NAME]; any f; } functions_entry;
typedef struct {
    const char *kind;
    const functions_entry *own;         /* the library's functions or connections */
    int n_own;
    functions_entry *added;
    int n_added;
} functions_registry;

/* Julia's vcat joins features, which are the last axis in Weber. */
static wb_tensor *functions_vcat(wb_tensor *y, wb_tensor *x) { return wb_concat(-1, y, x); }

#define ROW(name) {#name, (any)wb_##name},
#define WB_UNARY(name, accepts, expression, gradient) ROW(name)
static const functions_entry functions_own_functions[] = {
    FUNCTIONS_LIST(ROW)
#include "ops/ops.def"
};
static const functions_entry own_connections[] = {CONNECTIONS(ROW){"vcat", (any)functions_vcat}};
#undef ROW
static functions_entry added_functions[CAPACITY], added_connections[CAPACITY];
static functions_registry functions_of_layers = {"function", functions_own_functions,
                                                 WB__COUNT(functions_own_functions),
                                                 added_functions, 0};
static functions_registry functions_connections = {"connection", own_connections,
                                                   WB__COUNT(own_connections), added_connections,
                                                   0};
static wb__mutex functions_lock = WB__MUTEX_INIT;

/* Returns the entry with this name or, if `name` is NULL, with this function; NULL: none. */
static const functions_entry *functions_find(const functions_registry *r, const char *name, any f)
{
    for (int i = 0; i < r->n_own + r->n_added; i++) {
        const functions_entry *e = i < r->n_own ? &r->own[i] : &r->added[i - r->n_own];
        if (name ? !strcmp(e->name, name) : e->f == f) return e;
    }
    return NULL;
}

/* Returns the result of functions_find, under the lock. */
static const functions_entry *look_up(const functions_registry *r, const char *name, any f)
{
    wb__mutex_lock(&functions_lock);
    const functions_entry *e = functions_find(r, name, f);
    wb__mutex_unlock(&functions_lock);
    return e;
}

static int functions_add(functions_registry *r, const char *name, any f)
{
    if (!name || !*name || strlen(name) >= FUNCTIONS_NAME || !f)
        return wb__fail(WB_ERROR_ARGUMENT, "name_%s: %s", r->kind,
                        !f ? "no function" : "a name has 1 to 63 characters");
    int status = 0;
    wb__mutex_lock(&functions_lock);
    const functions_entry *e = functions_find(r, name, NULL);
    if (e && e->f != f)
        status = wb__fail(WB_ERROR_ARGUMENT, "name_%s: another %s is named \"%s\"", r->kind,
                          r->kind, name);
    else if (!e && r->n_added == CAPACITY)
        status = wb__fail(WB_ERROR_ARGUMENT, "name_%s: there are %d names already", r->kind,
                          CAPACITY);
    else if (!e) {
        snprintf(r->added[r->n_added].name, FUNCTIONS_NAME, "%s", name);
        r->added[r->n_added++].f = f;
    }
    wb__mutex_unlock(&functions_lock);
    return status;
}

int wb_name_function(const char *name, wb_function f) { return functions_add(&functions_of_layers,
                                                                             name, (any)f); }
int wb_name_connection(const char *name, wb__connection f)
{
    return functions_add(&functions_connections, name, (any)f);
}

const char *wb__function_name(wb_function f)
{
    const functions_entry *e = f ? look_up(&functions_of_layers, NULL, (any)f) : NULL;
    return e ? e->name : NULL;
}

wb_function wb__function_by_name(const char *name)
{
    const functions_entry *e = look_up(&functions_of_layers, name, NULL);
    return e ? (wb_function)e->f : NULL;
}

const char *wb__connection_name(wb__connection f)
{
    const functions_entry *e = f ? look_up(&functions_connections, NULL, (any)f) : NULL;
    return e ? e->name : NULL;
}

wb__connection wb__connection_by_name(const char *name)
{
    const functions_entry *e = look_up(&functions_connections, name, NULL);
    return e ? (wb__connection)e->f : NULL;
}

static const functions_registry *functions_registry_of(const wb__option *o)
{
    return o->kind == WB__OPTION_CONNECTION ? &functions_connections : &functions_of_layers;
}

const char *wb__option_name(const wb__option *o, const void *at, bool *set)
{
    any f;
    memcpy(&f, at, sizeof f);
    *set = f != NULL;
    const functions_entry *e = f ? look_up(functions_registry_of(o), NULL, f) : NULL;
    return e ? e->name : NULL;
}

bool wb__option_named(const wb__option *o, void *at, const char *name)
{
    const functions_entry *e = look_up(functions_registry_of(o), name, NULL);
    if (e) memcpy(at, &e->f, sizeof e->f);
    return e;
}

/* Adds 1 to wb__thread.program_calls if f is not in `own`, the library's functions.  This runs at
 * every call of a layer with an activation or a connection, so `known` caches library functions of
 * this thread. */
static bool functions_count_call(const functions_entry *own, size_t n, any f)
{
    enum { LAST = 16 };
    static _Thread_local any known[LAST];
    const size_t index = ((uintptr_t)f >> 4) % LAST;
    if (wb__likely(known[index] == f)) return false;
    for (size_t i = 0; i < n; i++) {
        if (own[i].f != f) continue;
        known[index] = f;
        return false;
    }
    wb__this_thread()->program_calls++;
    return true;
}

WB__PROGRAM_CALL(function_call, function_run, wb_tensor *, wb_function f; wb_tensor *x;, c->f(c->x))

wb_tensor *wb__activate(wb_function f, wb_tensor *x)
{
    if (!f || !x) return x;
    if (!functions_count_call(functions_own_functions, WB__COUNT(functions_own_functions), (any)f))
        return f(x);
    function_call c = {f, x, NULL};
    return wb__call_program(function_run, &c) ? c.result : NULL;
}

WB__PROGRAM_CALL(connection_call, connection_run, wb_tensor *,
                 wb_connection f; wb_tensor *y; wb_tensor *x;,
                 c->f(c->y, c->x))

wb_tensor *wb__connect(wb__connection f, wb_tensor *y, wb_tensor *x)
{
    if (!functions_count_call(own_connections, WB__COUNT(own_connections), (any)f)) return f(y, x);
    connection_call c = {f, y, x, NULL};
    return wb__call_program(connection_run, &c) ? c.result : NULL;
}

void wb__print_activation(wb_function f, wb__text *t)
{
    if (!f || f == wb_identity) return;
    const char *name = wb__function_name(f);
    wb__text_add(t, ", %s", name ? name : "function");
}

/* ---- a function as a layer ------------------------------------------------------------------- */

typedef struct { size_t size; wb_function f; } function_options;
#define FUNCTION_OPTIONS(X) X(function_options, f, FUNCTION, 1)
static const wb__option functions_table[] = {FUNCTION_OPTIONS(WB__OPTION_ROW)};

static wb_tensor *functions_call(wb_layer *l, int n, wb_tensor *const *x)
{
    if (!wb__one_input(l, n)) return NULL;
    return wb__activate(((function_options *)l->options)->f, x[0]);
}

static void functions_print(const wb_layer *l, wb__text *t)
{
    const char *name = wb__function_name(((function_options *)l->options)->f);
    wb__text_add(t, "%s", name ? name : "function");
}

static wb_layer *functions_from_options(const void *options)
{
    return wb_layer_from_function(((const function_options *)options)->f);
}

const wb__layer_type wb__function_type = {
    .name = "Function", WB__LAYER_OPTIONS(function_options, functions_table),
    .make = functions_from_options, .call = functions_call, .print = functions_print};

wb_layer *wb_layer_from_function(wb_function f)
{
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "a layer from a function: no function");
    return wb__layer_new(&wb__function_type, &(function_options){sizeof(function_options), f}, 0);
}

wb_layer *wb_function_layer(const char *name, wb_function f)
{
    return wb_name_function(name, f) ? NULL : wb_layer_from_function(f);
}
