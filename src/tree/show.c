/* wb_show.  This file formats trees; tensors are in show_tensor.c, layers in nn/show.c. */
#include "tree/tree.h"

#include <stdio.h>
#include <string.h>

static void show_child(wb__text *t, void *object, int indent);

static void show_lines(wb__text *t, const char *text, int indent)
{
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (line != text) wb__text_spaces(t, indent);
        wb__text_raw(t, line, n);
        if (line[n]) wb__text_raw(t, "\n", 1);
        line += n + (line[n] == '\n');
    }
}

/* Returns the position in `text`, a formatted layer, at which a comma can be inserted: after the
 * closing parenthesis, before the remark ("# 512 parameters"). */
static size_t before_remark(const char *text)
{
    const char *close = strstr(text, "\n)");
    size_t start = close ? (size_t)(close + 1 - text) : 0;
    size_t end = start + strcspn(text + start, "#\n");
    while (end > start && text[end - 1] == ' ') end--;
    return end;
}

static void show_tree(wb__text *t, wb_tree *tree, int indent)
{
    if (tree->is_opaque) {
        wb__text_add(t, "opaque");
        return;
    }
    wb__text_add(t, "%s(", tree->type ? tree->type->name : "");
    for (int i = 0; i < tree->node.n; i++) {
        wb__text_add(t, "\n");
        wb__text_spaces(t, indent + 2);
        wb__text_add(t, "%s = ", tree->node.children[i].name);
        show_child(t, tree->node.children[i].object, indent + 2);
    }
    if (tree->node.n) {
        wb__text_add(t, "\n");
        wb__text_spaces(t, indent);
    }
    wb__text_add(t, ")");
}

static void show_child(wb__text *t, void *object, int indent)
{
    const wb__object *o = object;
    if (wb__is(object, &wb__tree_class)) {
        show_tree(t, object, indent);
        wb__text_add(t, ",");
    } else if (wb__is(object, &wb__tensor_class)) {
        wb__text_add(t, "%s,", wb_describe(object));
    } else {
        char *text = o->class->format ? o->class->format(object) : NULL;
        size_t comma = text ? before_remark(text) : 0;
        char *with = text ? wb__printf("%.*s,%s", (int)comma, text, text + comma) : NULL;
        if (with) show_lines(t, with, indent);
        else t->failed = true;
        wb__free(text);
        wb__free(with);
    }
}

char *wb__format_tree(void *tree)
{
    wb__text t = {0};
    show_tree(&t, tree, 0);
    return wb__text_take(&t);
}

char *wb_object_format(void *object)
{
    WB__PUBLIC(wb_object_format, NULL);
    if (!wb__alive("show", object)) return NULL;
    const wb__class *class = ((const wb__object *)object)->class;
    if (class->format) return class->format(object);
    if (class == &wb__tensor_class) return wb__format_tensor(object);
    return wb__printf("%s", class->name);
}

void wb_object_show(void *object)
{
    WB__PUBLIC(wb_object_show, );
    char *text = wb_object_format(object);
    if (!text) return;
    size_t n = strlen(text);
    printf(n && text[n - 1] == '\n' ? "%s" : "%s\n", text);
    wb__free(text);
}

void wb_free_text(char *text) { wb__free(text); }
