/* Shrinks a failing program: leaves out instructions, replaces them by their values and makes
 * shapes smaller, as long as the program still fails. */
#include "graph_fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t size_of(const instruction *s)
{
    int64_t size = 1;
    for (int i = 0; i < s->n; i++) size *= s->p[i];
    return size;
}

bool copy_program(program *to, const program *from)
{
    *to = *from;
    for (int i = 0; i < to->n; i++) {
        instruction *s = &to->step[i];
        if (s->op > OP_VARIABLE) continue;
        size_t bytes = ((size_t)size_of(s) + 1) * sizeof(element);
        if (!(s->data = malloc(bytes))) abort();
        memcpy(s->data, from->step[i].data, bytes - sizeof(element));
    }
    return true;
}

void free_program(program *p)
{
    for (int i = 0; i < p->n; i++) free(p->step[i].data);
    p->n = 0;
}

/* Removes instructions that neither a result nor an assignment needs. */
void prune_program(program *p)
{
    bool needed[MOST_INSTRUCTIONS] = {false};
    int to[MOST_INSTRUCTIONS], n = 0;
    for (int k = 0; k < p->n_results; k++) needed[p->results[k]] = true;
    for (int i = p->n - 1; i >= 0; i--) {
        needed[i] |= p->step[i].op == OP_ASSIGN;
        for (int k = 0; needed[i] && k < p->step[i].n_in; k++) needed[p->step[i].in[k]] = true;
    }
    for (int i = 0; i < p->n; i++) {
        to[i] = n;
        if (!needed[i]) {
            free(p->step[i].data);
            continue;
        }
        instruction s = p->step[i];
        for (int k = 0; k < s.n_in; k++) s.in[k] = to[s.in[k]];
        p->step[n++] = s;
    }
    for (int i = n; i < p->n; i++) p->step[i].data = NULL;
    for (int k = 0; k < p->n_results; k++) p->results[k] = to[p->results[k]];
    p->n = n;
}

/* ---- attempts -------------------------------------------------------------------------------- */

typedef bool (*test)(const program *p, verdict *v);

/* Keeps `smaller` in place of p where it still fails. */
static bool attempt(program *p, program *smaller, test fails, verdict *v)
{
    verdict w = {0};
    prune_program(smaller);
    if (!fails(smaller, &w)) {
        free_program(smaller);
        return false;
    }
    free_program(p);
    *p = *smaller;
    *v = w;
    return true;
}

static bool fewer_results(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int k = p->n_results - 1; k >= 0 && p->n_results > 1; k--) {
        program q;
        copy_program(&q, p);
        memmove(q.results + k, q.results + k + 1, (size_t)(--q.n_results - k) * sizeof *q.results);
        if (q.way.n_first > k) q.way.n_first--;
        any |= attempt(p, &q, fails, v);
        if (k > p->n_results) k = p->n_results;
    }
    return any;
}

static bool plainer_manner(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int k = 0; k < 7; k++) {
        program q;
        copy_program(&q, p);
        manner *w = &q.way;
        if (k == 0) w->threads = 1;
        if (k == 1) w->compiled = false;
        if (k == 2) w->eager = false;
        if (k == 3) w->inner_scope = false;
        if (k == 4) w->free_some = false;
        if (k == 5) w->n_first = q.n_results;
        if (k == 6 && w->compiled) w->calls--;
        bool same = !memcmp(w, &p->way, sizeof *w) || !w->calls;
        if (same) free_program(&q);
        else any |= attempt(p, &q, fails, v);
    }
    return any;
}

static bool without_assignments(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int i = p->n - 1; i >= 0; i--) {
        if (i >= p->n || p->step[i].op != OP_ASSIGN) continue;
        program q;
        copy_program(&q, p);
        q.step[i] = (instruction){.op = OP_FULL, .dtype = WB_F32};      /* no instruction uses it */
        any |= attempt(p, &q, fails, v);
    }
    return any;
}

/* Replaces instruction i by a leaf with the interpreter's values. */
static bool leaf_of(program *q, int i)
{
    static value v[MOST_INSTRUCTIONS];
    wb_seed(q->seed);
    if (q->step[i].op == OP_ASSIGN || !interpret(q, v)) return false;
    const value *x = &v[i];
    instruction s = {.op = OP_LEAF, .dtype = x->dtype, .n = x->ndim};
    memcpy(s.p, x->dims, sizeof x->dims);
    s.data = malloc(((size_t)x->size + 1) * sizeof *s.data);
    if (!s.data) abort();
    for (int64_t k = 0; k < x->size; k++) {
        const number *n = &numbers[x->at[k]];
        if (is_float(x->dtype)) s.data[k].v = rounded(x->dtype, n->v);
        else s.data[k].i = n->i;
    }
    free(q->step[i].data);
    q->step[i] = s;
    return true;
}

static bool instructions_to_leaves(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int i = p->n - 1; i >= 0; i--) {
        if (i >= p->n || p->step[i].op == OP_LEAF || p->step[i].op == OP_ASSIGN) continue;
        program q;
        copy_program(&q, p);
        if (leaf_of(&q, i)) any |= attempt(p, &q, fails, v);
        else free_program(&q);
    }
    return any;
}

/* The users of instruction i get one of its operands, or any earlier value, instead. */
static bool shortcuts(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int i = p->n - 1; i > 0; i--) {
        for (int by = i - 1; by >= 0 && i < p->n; by--) {
            bool operand = false;
            for (int k = 0; k < p->step[i].n_in; k++) operand |= p->step[i].in[k] == by;
            if (p->step[i].op <= OP_VARIABLE || p->step[i].op == OP_ASSIGN ||
                (!operand && p->n > 10))
                continue;
            program q;
            bool changed = false;
            copy_program(&q, p);
            for (int j = i + 1; j < q.n; j++)
                for (int k = 0; k < q.step[j].n_in; k++)
                    if (q.step[j].in[k] == i) q.step[j].in[k] = by, changed = true;
            if (!changed) free_program(&q);
            else any |= attempt(p, &q, fails, v);
        }
    }
    return any;
}

static bool fewer_parts(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int i = p->n - 1; i >= 0; i--)
        for (int k = i < p->n ? p->step[i].n_in - 1 : -1; k >= 0; k--) {
            op_kind op = i < p->n ? p->step[i].op : OP_LEAF;
            bool joins = (op == OP_CONCAT || op == OP_STACK) && p->step[i].n_in > 2;
            bool bias = (op == OP_LINEAR || op == OP_CONV) && k == 2 && p->step[i].n_in > 2;
            if (!joins && !bias && !(op == OP_ATTENTION && k == 3 && p->step[i].n_in > 3)) continue;
            program q;
            copy_program(&q, p);
            instruction *s = &q.step[i];
            memmove(s->in + k, s->in + k + 1, (size_t)(--s->n_in - k) * sizeof *s->in);
            any |= attempt(p, &q, fails, v);
        }
    return any;
}

/* ---- sizes and numbers ----------------------------------------------------------------------- */

static void resize_leaf(instruction *s, int64_t old, int64_t size, const int64_t *was)
{
    element *data = malloc(((size_t)size + 1) * sizeof *data);
    int64_t index[WB_MAX_DIMS] = {0};
    if (!data) abort();
    for (int64_t k = 0; k < size; k++, next_index(s->n, s->p, index)) {
        int64_t at = 0;
        for (int i = 0; i < s->n; i++) at = at * was[i] + index[i] % (was[i] ? was[i] : 1);
        data[k] = s->data[old ? at % old : 0];
    }
    free(s->data);
    s->data = data;
}

/* Replaces every size `from` by `to`, in leaves and in other instructions with sizes. */
static bool resize(program *p, int64_t from, int64_t to, test fails, verdict *v)
{
    program q;
    copy_program(&q, p);
    for (int i = 0; i < q.n; i++) {
        instruction *s = &q.step[i];
        bool sized = s->op <= OP_RANDN || s->op == OP_RESHAPE || s->op == OP_EXPAND;
        int64_t was[MOST_PARAMETERS], old = s->op <= OP_VARIABLE ? size_of(s) : 0;
        memcpy(was, s->p, sizeof was);
        for (int k = s->op == OP_SLICE || s->op == OP_ONEHOT ? s->op == OP_SLICE
                     : sized                                 ? 0
                                                             : s->n;
             k < s->n; k++)
            if (s->p[k] == from) s->p[k] = to;
        if (s->op <= OP_VARIABLE && memcmp(was, s->p, sizeof was)) {
            if (!old) {
                free_program(&q);
                return false;
            }
            resize_leaf(s, old, size_of(s), was);
        }
    }
    return attempt(p, &q, fails, v);
}

static bool smaller_sizes(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int64_t from = 40; from > 1; from--)
        for (int64_t to = 1; to < from; to++) {
            bool there = false;
            for (int i = 0; i < p->n; i++)
                for (int k = 0; k < p->step[i].n; k++) there |= p->step[i].p[k] == from;
            if (there && (to < 4 || to == from - 1) && resize(p, from, to, fails, v)) any = true;
        }
    return any;
}

/* Replaces the data of leaves by small integers. */
static bool simpler_data(program *p, test fails, verdict *v)
{
    bool any = false;
    for (int i = 0; i < p->n; i++)
        for (int how = 0; how < 2 && i < p->n && p->step[i].op <= OP_VARIABLE; how++) {
            program q;
            copy_program(&q, p);
            instruction *s = &q.step[i];
            bool changed = false;
            for (int64_t k = 0; k < size_of(s); k++) {
                element e = s->data[k];
                if (is_float(s->dtype)) s->data[k].v = how ? nearbyint(e.v) : (double)(k % 5);
                else if (s->dtype != WB_BOOL) s->data[k].i = how ? e.i : k % 5;
                changed |= memcmp(&e, &s->data[k], sizeof e) != 0;
            }
            if (!changed) free_program(&q);
            else if (attempt(p, &q, fails, v)) {
                any = true;
                break;
            }
        }
    return any;
}

void shrink_program(program *p, test fails, verdict *v)
{
    bool more = true;
    for (int round = 0; more && round < 8; round++) {
        more = fewer_results(p, fails, v);
        more |= plainer_manner(p, fails, v);
        more |= without_assignments(p, fails, v);
        more |= instructions_to_leaves(p, fails, v);
        more |= fewer_parts(p, fails, v);
        more |= shortcuts(p, fails, v);
        more |= smaller_sizes(p, fails, v);
        if (!more) more = simpler_data(p, fails, v) && round < 6;
    }
}
