/* Makes the name mappings of names.h.  The type of a layer has PyTorch's names of the layer's
 * children (wb__torch_kind in nn/layer.h). */
#include "io/model/names.h"

#include <stdio.h>
#include <string.h>

/* Adds a row for x at the end, with copies of both names.  NULL: out of memory. */
static wb__name_row *torch_names_add_row(wb__name_map *l, const char *name, const char *path,
                                         wb_tensor *x)
{
    if (!wb__reserve(&l->rows, &l->capacity, l->n + 1, sizeof *l->rows)) return NULL;
    wb__name_row *row = &l->rows[l->n];
    *row = (wb__name_row){.name = wb__strdup(name), .path = wb__strdup(path), .x = x, .parts = 1};
    if (row->name && row->path) return l->n++, row;
    wb__free(row->name);
    wb__free(row->path);
    return NULL;
}

void wb__name_map_free(wb__name_map *l)
{
    for (int i = 0; i < l->n; i++) {
        wb__free(l->rows[i].name);
        wb__free(l->rows[i].path);
    }
    wb__free(l->rows);
    *l = (wb__name_map){0};
}

static int torch_names_add_leaf(const wb__leaf *leaf, void *ctx)
{
    return torch_names_add_row(ctx, leaf->path, leaf->path, leaf->x) ? 0 : WB_ERROR_MEMORY;
}

int wb__name_map_weber(void *model, wb__name_map *out)
{
    *out = (wb__name_map){0};
    int status = wb__walk("names", model, NULL, 0, torch_names_add_leaf, out);
    if (status) wb__name_map_free(out);
    return status;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

static const wb__torch_kind *torch_names_kind_of(const wb_layer *l)
{
    static const wb__torch_kind same_names = {0};
    return l && l->type->torch ? l->type->torch : &same_names;
}

/* If the name `child` is `row` and an end, returns the end; else NULL.  The end is "", or such as
 * "_l1_reverse" in a layer whose kind has a suffix. */
static const char *torch_names_end_of(const wb__torch_kind *kind, const char *row,
                                      const char *child)
{
    const size_t n = strlen(row);
    if (strncmp(row, child, n)) return NULL;
    const char *end = child + n;
    const bool of_pass = kind->suffix && (wb__begins(end, "_l") || !strcmp(end, "_reverse"));
    return !*end || of_pass ? end : NULL;
}

/* Returns the row of a child that has another name in PyTorch; NULL if it has the same name. */
static const wb__torch_child *torch_names_child(const wb_layer *l, const char *child)
{
    const wb__torch_kind *kind = torch_names_kind_of(l);
    for (int i = 0; i < kind->n_children; i++)
        if (torch_names_end_of(kind, kind->children[i].child, child)) return &kind->children[i];
    return NULL;
}

static char *torch_names_join(const char *prefix, const char *name)
{
    return wb__printf("%s%s%s", prefix, *prefix && *name ? "." : "", name);
}

/* Returns PyTorch's whole name of a child with the row `other`; `name` is other->name or
 * other->second.  The caller frees it; NULL: out of memory. */
static char *torch_names_join_row(const wb_layer *l, const char *prefix,
                                  const wb__torch_child *other, const char *name, const char *child)
{
    const wb__torch_kind *kind = torch_names_kind_of(l);
    const char *end = torch_names_end_of(kind, other->child, child);
    const char *first = kind->suffix && !wb__begins(end, "_l") ? kind->suffix : "";
    char *own = wb__printf("%s%s%s", name, first, end),
         *full = own ? torch_names_join(prefix, own) : NULL;
    wb__free(own);
    return full;
}

/* Whether PyTorch's Sequential has the layer's activation as a separate module behind the layer. */
static bool torch_names_has_activation(void *object)
{
    if (!wb__is(object, &wb__layer_class)) return false;
    const wb_layer *l = object;
    int child;
    wb__normed_child(l, &l, &child);
    for (int i = 0; i < l->type->n_options; i++) {
        const wb__option *o = &l->type->options[i];
        wb_function f;
        if (o->kind != WB__OPTION_FUNCTION || strcmp(o->name, "activation")) continue;
        memcpy(&f, (const char *)l->options + o->offset, sizeof f);
        return f && !torch_names_kind_of(l)->inner_activation;
    }
    return false;
}

typedef struct { wb__name_map *out; bool numbered; } torch_names_walk;

/* Returns PyTorch's name of a child, as torch_names_name_child, for a layer outside of any
 * WeightNorm. */
static char *torch_names_plain_child(const torch_names_walk *w, const wb_layer *owner,
                                     const wb__branch *node, int i, const char *name)
{
    const wb__child *c = &node->children[i];
    const wb_layer *l = wb__is(node, &wb__layer_class) ? (const wb_layer *)node : NULL;
    const wb__torch_child *other = torch_names_child(l, c->name);
    int number = i;
    char own[16];
    snprintf(own, sizeof own, "%d", i);
    if (other) return torch_names_join_row(l, name, other, other->name, c->name);
    if (l || !torch_names_kind_of(owner)->numbered || w->numbered || strcmp(own, c->name))
        return torch_names_join(name, c->name);
    for (int j = 0; j < i; j++) number += torch_names_has_activation(node->children[j].object);
    snprintf(own, sizeof own, "%d", number);
    return torch_names_join(name, own);
}

/* Returns PyTorch's name of child i of `node`; `name` is PyTorch's name of `node`.  `owner` is the
 * layer that has `node` as a child, or NULL; of nested WeightNorms it is the outermost.  The
 * numbers in a Sequential count activations too, unless w->numbered is true.  The caller frees the
 * result; NULL: out of memory. */
static char *torch_names_name_child(const torch_names_walk *w, const wb_layer *owner,
                                    const wb__branch *node, int i, const char *name)
{
    const wb_layer *l = wb__is(node, &wb__layer_class) ? (const wb_layer *)node : NULL, *base = l;
    const char *child = node->children[i].name;
    int at = i;
    const bool is_g = !strcmp(child, "g") && l && wb__normed_child(l, &base, &at);
    if (!is_g && !(l && wb__is_normed(owner, child)))
        return torch_names_plain_child(w, owner, node, i, name);
    char *own = torch_names_plain_child(w, owner, &base->node, at, "");
    char *full = own ? wb__printf("%s%sparametrizations.%s.original%d", name, *name ? "." : "", own,
                                  is_g ? 0 : 1) : NULL;
    wb__free(own);
    return full;
}

static int torch_names_visit(torch_names_walk *w, const wb_layer *owner, void *object,
                             const char *name, const char *path);

static bool torch_names_has_child(const wb_layer *l, const char *name)
{
    for (int i = 0; l && i < l->node.n; i++)
        if (!strcmp(l->node.children[i].name, name)) return true;
    return false;
}

/* Adds the row for PyTorch's second bias of a recurrent layer that has one bias in Weber. */
static int torch_names_add_second(torch_names_walk *w, const wb_layer *l, const wb__child *c,
                                  const wb__torch_child *other, const char *name, const char *path)
{
    char *full = torch_names_join_row(l, name, other, other->second, c->name);
    wb__name_row *row = full ? torch_names_add_row(w->out, full, path, c->object) : NULL;
    if (row) row->kind = WB__NAME_ADDED;
    if (row && other->unused) row->zeros = row->x->dims[0] / other->unused;
    wb__free(full);
    return row ? 0 : WB_ERROR_MEMORY;
}

/* Returns the owner of the children of l, where `owner` is that of l. */
static const wb_layer *owner_inside(const wb_layer *owner, const wb_layer *l)
{
    const wb_layer *base;
    int i;
    const bool both = owner && l && wb__normed_child(owner, &base, &i) &&
                      wb__normed_child(l, &base, &i);
    return both ? owner : l;
}

static int torch_names_visit_child(torch_names_walk *w, const wb_layer *owner,
                                   const wb__branch *node, int i, const char *name,
                                   const char *path)
{
    const wb__child *c = &node->children[i];
    const wb_layer *l = wb__is(node, &wb__layer_class) ? (const wb_layer *)node : NULL;
    char *inner_name = torch_names_name_child(w, owner, node, i, name),
         *inner_path = torch_names_join(path, c->name);
    const wb__torch_child *other = torch_names_child(l, c->name);
    int status = WB_ERROR_MEMORY;
    if (inner_name && inner_path)
        status = torch_names_visit(w, owner_inside(owner, l), c->object, inner_name, inner_path);
    if (!status && other && other->second && !wb_is_none(c->object) &&
        !torch_names_has_child(l, "bias_hidden"))
        status = torch_names_add_second(w, l, c, other, name, inner_path);
    wb__free(inner_name);
    wb__free(inner_path);
    return status;
}

/* Whether the weights or the biases of an attention's first three projections have one shape. */
static bool torch_names_one_shape(const wb_layer *l, const char *what)
{
    const wb_tensor *x[3];
    for (int i = 0; i < 3; i++) {
        const wb__child *at = wb__child_at("names", wb__layer_child(l, i), what, NULL);
        x[i] = at ? at->object : NULL;
        if (!x[i] || wb_is_none(x[i]) || !wb__same_dims(x[0], x[i])) return false;
    }
    return true;
}

/* Adds two rows for the weight or bias (`what`) of each of the first three projections of an
 * attention.  A file has the three as blocks of one tensor, in_proj_..., or as three tensors.  If
 * their shapes differ, they are three tensors, q_proj_weight or q_proj.weight. */
static int torch_names_visit_projections(torch_names_walk *w, const wb_layer *l, const char *what,
                                         const char *name, const char *path)
{
    const bool one = torch_names_one_shape(l, what);
    int status = 0;
    for (int other = 0; other < 2; other++) {
        for (int i = 0; !status && i < 3; i++) {
            const char *child = l->node.children[i].name;
            wb__child *at = wb__child_at("names", wb__layer_child(l, i), what, NULL);
            if (!at) return wb_error_code();
            if (wb_is_none(at->object)) continue;
            char *own = wb__printf("%s%s%s.%s", name, *name ? "." : "", child, what);
            char *joint = wb__printf("%s%s%s_%s", name, *name ? "." : "", one ? "in_proj" : child,
                                     what);
            char *place = wb__printf("%s%s%s.%s", path, *path ? "." : "", child, what);
            wb__name_row *row = own && joint && place
                                    ? torch_names_add_row(w->out, other ? own : joint, place,
                                                          at->object)
                                    : NULL;
            if (!row) status = WB_ERROR_MEMORY;
            else if (other) row->other = true;
            else if (one) row->part = i, row->parts = 3;
            wb__free(own);
            wb__free(joint);
            wb__free(place);
        }
    }
    return status;
}

static int torch_names_visit_count(torch_names_walk *w, const wb_layer *l, const char *name)
{
    const bool *tracked = l ? wb__layer_option(l->type, l->options, "track_stats") : NULL;
    if (!torch_names_kind_of(l)->counts_batches || (tracked && !*tracked)) return 0;
    char *count = torch_names_join(name, "num_batches_tracked");
    wb__name_row *row = count ? torch_names_add_row(w->out, count, "", NULL) : NULL;
    if (row) row->kind = WB__NAME_COUNT;
    wb__free(count);
    return row ? 0 : WB_ERROR_MEMORY;
}

/* Whether PyTorch has the three projections of the attention as one tensor. */
static bool torch_names_is_joined(const wb_layer *l)
{
    bool joined = torch_names_kind_of(l)->joined;
    for (int i = 0; joined && i < 3; i++)
        joined = torch_names_has_child(wb__layer_child(l, i), "weight");
    return joined;
}

/* Adds rows for `object`, whose parent layer is `owner`. */
static int torch_names_visit(torch_names_walk *w, const wb_layer *owner, void *object,
                             const char *name, const char *path)
{
    if (wb_is_none(object)) return 0;
    if (!wb__is_branch(object)) {
        wb__name_row *row = torch_names_add_row(w->out, name, path, object);
        const bool *flip = owner ? wb__layer_option(owner->type, owner->options, "flip") : NULL;
        if (row && flip && *flip && row->x->ndim >= 3) row->kind = WB__NAME_FLIPPED;
        return row ? 0 : WB_ERROR_MEMORY;
    }
    const wb__branch *node = object;
    const wb_layer *l = wb__is(object, &wb__layer_class) ? object : NULL;
    const bool joined = torch_names_is_joined(l);
    int status = 0;
    if (joined) status = torch_names_visit_projections(w, l, "weight", name, path);
    if (joined && !status) status = torch_names_visit_projections(w, l, "bias", name, path);
    for (int i = joined ? 3 : 0; !status && i < node->n; i++)
        status = torch_names_visit_child(w, owner, node, i, name, path);
    return status ? status : torch_names_visit_count(w, l, name);
}

int wb__name_map_torch(void *model, bool numbered, wb__name_map *out)
{
    *out = (wb__name_map){0};
    torch_names_walk w = {out, numbered};
    int status = torch_names_visit(&w, NULL, model, "", "");
    if (status) wb__name_map_free(out);
    return status;
}

char *wb__torch_name(void *model, const char *path, bool numbered)
{
    const torch_names_walk w = {NULL, numbered};
    const wb_layer *owner = NULL;
    void *object = model;
    char *name = wb__strdup("");
    while (name && *path && wb__is_branch(object)) {
        const wb__branch *node = object;
        size_t n = strcspn(path, ".");
        int i = 0;
        while (i < node->n &&
               (strncmp(node->children[i].name, path, n) || node->children[i].name[n]))
            i++;
        if (i == node->n) break;
        char *longer = torch_names_name_child(&w, owner, node, i, name);
        wb__free(name);
        name = longer;
        owner = owner_inside(owner, wb__is(object, &wb__layer_class) ? object : NULL);
        object = node->children[i].object;
        path += n + (path[n] == '.');
    }
    char *whole = name ? torch_names_join(name, path) : NULL;
    wb__free(name);
    return whole;
}
