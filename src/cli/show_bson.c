/* `weber show` of BSON files: prints the outline from io/flux/flux.h, one line for each value.
 *
 *   model.bson: BSON, 84.324 KiB
 *     model: Chain                                  # 79.422 KiB
 *       0: Conv, relu                               # 640 bytes
 *         weight: Array{Float32,4}                  # f32 [16,1,3,3], 576 bytes
 *
 * Shapes are row-major, which is the reverse of Julia's dimensions. */
#include "cli/cli.h"

#include "base/map.h"
#include "base/text.h"
#include "io/flux/flux.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN = 48, SHOW_BSON_LISTED = 20, SHOW_BSON_LONGEST = 100 };

typedef struct { int n_unknown; wb__text unknown; } showing;

/* Adds at most SHOW_BSON_LONGEST bytes of a text to t, without splitting a character. */
static void show_bson_add_short(wb__text *t, const char *text)
{
    char some[SHOW_BSON_LONGEST + 1];
    size_t n = strlen(text);
    if (n > SHOW_BSON_LONGEST) {
        n = SHOW_BSON_LONGEST;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    }
    memcpy(some, text, n);
    some[n] = 0;
    wb__text_foreign(t, some);
    if (text[n]) wb__text_add(t, "...");
}

static void show_bson_add_remark(wb__text *t, const wb__flux_row *r)
{
    const bool unknown = r->kind == WB__FLUX_UNKNOWN;
    wb__text_add(t, "# %s", unknown ? "unknown here, " : "");
    if (r->kind == WB__FLUX_ARRAY) {
        wb__text_add(t, r->dtype ? "%s [" : "no dtype of Weber's, [", wb_dtype_name(r->dtype));
        for (int i = 0; i < r->ndim; i++)
            wb__text_add(t, i ? ",%lld" : "%lld", (long long)r->dims[i]);
        wb__text_add(t, "], ");
    } else if (unknown || r->kind == WB__FLUX_LIST) {
        wb__text_add(t, r->fields == 1 ? "1 part, " : "%d parts, ", r->fields);
    }
    wb__text_bytes(t, r->bytes);
}

static int show_bson_print_row(const wb__flux_row *r, void *ctx)
{
    showing *s = ctx;
    wb__text t = {0};
    wb__text_spaces(&t, 2 + 2 * WB__MIN(r->depth, 40));
    show_bson_add_short(&t, r->name);
    wb__text_add(&t, ": ");
    const bool value = r->kind == WB__FLUX_VALUE && r->value;
    show_bson_add_short(&t, value ? r->value : r->type);
    if (r->value && !value) {
        wb__text_add(&t, ", ");
        show_bson_add_short(&t, r->value);
    }
    if (r->kind == WB__FLUX_ARRAY || r->kind == WB__FLUX_UNKNOWN || r->bytes) {
        wb__text_spaces(&t, WB__MAX(2, COLUMN - (t.text ? wb__characters(t.text) : 0)));
        show_bson_add_remark(&t, r);
    }
    char *line = wb__text_take(&t);
    if (!line) return WB_ERROR_MEMORY;
    puts(line);
    wb__free(line);
    if (r->kind == WB__FLUX_UNKNOWN && s->n_unknown++ < SHOW_BSON_LISTED) {
        wb__text_add(&s->unknown, "  ");
        wb__text_foreign(&s->unknown, r->path);
        wb__text_add(&s->unknown, ": ");
        wb__text_foreign(&s->unknown, r->type);
        wb__text_add(&s->unknown, "\n");
    }
    return 0;
}

int wb__cli_show_bson(const wb__mapping *m)
{
    showing s = {0};
    wb__text head = {0};
    wb__text_foreign(&head, m->path);
    wb__text_add(&head, ": BSON, ");
    wb__text_bytes(&head, m->bytes);
    char *line = wb__text_take(&head);
    if (line) puts(line);
    int status = line ? wb__flux_outline(m, show_bson_print_row, &s) : WB_ERROR_MEMORY;
    wb__free(line);
    line = wb__text_take(&s.unknown);
    if (!status && s.n_unknown) {
        printf("%d part%s unknown here.  A program that loads this can give layers for %s "
               "(.substitute of wb_load), which takes\na closure between images and a Dense for "
               "the flattening that it nearly always is:\n%s", s.n_unknown,
               s.n_unknown == 1 ? " is" : "s are", s.n_unknown == 1 ? "it" : "them",
               line ? line : "");
        if (s.n_unknown > SHOW_BSON_LISTED)
            printf("  and %d more\n", s.n_unknown - SHOW_BSON_LISTED);
    }
    wb__free(line);
    return status ? wb__cli_print_error() : 0;
}
