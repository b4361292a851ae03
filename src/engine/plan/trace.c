/* Logs the results of the stages for WEBER_DEBUG=stages.  example.md explains an example. */
#include "engine/plan/stages.h"

#include "base/text.h"

static void trace_add_shape(wb__text *t, int ndim, const int64_t *dims, int dtype)
{
    wb__text_add(t, "[");
    for (int i = 0; i < ndim; i++) wb__text_add(t, i ? ",%lld" : "%lld", (long long)dims[i]);
    wb__text_add(t, "] %s", wb_dtype_name((wb_dtype)dtype));
}

static void trace_log_lines(const char *title, wb__text *t)
{
    if (t->length) wb__log(WB_LOG_DEBUG, "%s%s", title, t->text);
    wb__free(t->text);
}

/* Logs the tensors in the order of the walk, operands first.  Leaves are printed as "known". */
static void trace_graph(const wb__request *r)
{
    wb__text t = {0};
    for (int i = 0; i < r->order.n; i++) {
        const wb_tensor *x = r->order.node[i];
        const bool known = r->leaf_of[i] >= 0;
        wb__text_add(&t, "\n  t%-3d %-14s ", i, known ? "known" : wb__ops[x->op].name);
        trace_add_shape(&t, x->ndim, x->dims, x->dtype);
        for (uint32_t k = 0; !known && k < x->n_in; k++) {
            const int leaf = (int)wb__pointer_map_get(&r->order.leaves, x->in[k]);
            wb__text_add(&t, "%s t%d", k ? "," : "  of", leaf >= 0 ? leaf : (int)x->in[k]->index);
        }
    }
    trace_log_lines("graph:", &t);
}

static void trace_values(const wb__request *r, const wb__values *s)
{
    wb__text t = {0};
    for (int x = 0; x < s->ir.n; x++) {
        const wb__value *v = wb__value_at(s, x);
        const char *name = v->op == WB__OP_constant ? "leaf" : wb__ops[v->op].name;
        wb__text_add(&t, "\n  v%-3d %-14s ", x, name);
        trace_add_shape(&t, v->ndim, v->dims, v->dtype);
        for (int k = 0; k < v->n_in; k++)
            wb__text_add(&t, "%s v%d", k ? "," : "  of", wb__input(s, v, k));
        if (v->op == WB__OP_literal)
            wb__text_add(&t, "  %g%s", v->fixed ? v->value : r->numbers[v->number].f,
                         v->fixed ? "" : ", a run-time number");
        if (v->layout) wb__text_add(&t, "  layout %d", v->layout);
        if (wb__is_view(s, x))
            wb__text_add(&t, "  %sview of v%d", wb__window_of(s, x) ? "padded " : "", s->base[x]);
    }
    trace_log_lines("values:", &t);
}

static void trace_patterns(const wb__patterns *p)
{
    wb__text t = {0};
    for (int i = 0; i < p->n; i++) {
        const wb__product *d = &p->product[i];
        wb__text_add(&t, "\n  v%d", d->value);
        if (d->bias >= 0) wb__text_add(&t, " + bias v%d", d->bias);
        if (d->epilogue) wb__text_add(&t, ", then %s", wb__ops[d->epilogue].name);
        if (d->aux >= 0 && d->aux_kind) wb__text_add(&t, ", beside it v%d", d->aux);
        if (d->sums >= 0 && d->sums_of) wb__text_add(&t, ", sums of rows v%d", d->sums);
        if (d->result != d->value) wb__text_add(&t, ": makes v%d", d->result);
        if (d->in_reader) wb__text_add(&t, " in the kernel that reads it");
    }
    trace_log_lines("patterns:", &t);
}

static void trace_groups(const wb__values *s, const wb__groups *g)
{
    static const char *const kinds[] = {"fused", "library", "concat"};
    wb__text t = {0};
    for (int i = 0; i < g->n; i++) {
        const wb__group *group = &g->group[i];
        if (group->first < 0) continue;
        wb__text_add(&t, "\n  g%-3d %-8s", i, kinds[group->kind]);
        for (int x = group->first; x >= 0; x = g->of[x].next) wb__text_add(&t, " v%d", x);
    }
    for (int x = 0, n = 0; x < s->ir.n; x++)
        if (g->of[x].rematerialised)
            wb__text_add(&t, "%s v%d", n++ ? "," : "\n  rematerialised:", x);
    trace_log_lines("groups:", &t);
}

static void trace_memory(const wb__values *s, const wb__groups *g, const wb__placement *l)
{
    wb__text t = {0};
    for (int x = 0; x < s->ir.n; x++) {
        const wb__role *role = &l->role[x];
        const int allocation = role->operand >= 0 ? l->operand[role->operand].allocation : -1;
        const int64_t bytes = wb__value_bytes(wb__value_at(s, x));
        if (!g->of[x].stored) continue;
        wb__text_add(&t, "\n  v%-3d %lld bytes in ", x, (long long)bytes);
        if (role->result >= 0) wb__text_add(&t, "result %d", role->result);
        else if (role->write >= 0) wb__text_add(&t, "the variable of write %d", role->write);
        else if (role->concat >= 0) wb__text_add(&t, "part %d of v%d", role->part, role->concat);
        else wb__text_add(&t, "block %d of the arena", allocation);
    }
    trace_log_lines("memory:", &t);
}

void wb__trace(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
               const wb__groups *g, const wb__placement *l)
{
    trace_graph(a->request);
    trace_values(a->request, s);
    trace_patterns(p);
    trace_groups(s, g);
    trace_memory(s, g, l);
}
