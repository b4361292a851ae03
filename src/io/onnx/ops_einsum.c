/* Einsum.  wb_einsum has no "...": letters that the equation does not use replace it, as many as
 * the operand with the most axes there needs. */
#include "io/onnx/ops_common.h"

#include <string.h>

enum { ONNX_EINSUM_LETTERS = 128, OPERANDS = 32 };

/* Letters for the axes of "...", of which an operand with fewer axes there has the last ones. */
typedef struct {
    int n;
    char letter[WB_MAX_DIMS];
    int64_t size[WB_MAX_DIMS];
    bool used[ONNX_EINSUM_LETTERS];     /* the equation has the letter */
} ellipsis;

/* An operand's part of the equation, from `text` on: its length and its number of letters, the
 * place of the dots or NULL, and the number of letters before the dots. */
typedef struct { const char *text, *dots; int length, letters, before; } onnx_einsum_term;

static bool onnx_einsum_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Sets *t to the term from `text` on, up to a comma, "->" or the end. */
static bool onnx_einsum_read_term(const wb__onnx_call *c, const char *text, ellipsis *e,
                                  onnx_einsum_term *t)
{
    *t = (onnx_einsum_term){.text = text};
    const char *at = text;
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (onnx_einsum_is_letter(*at)) e->used[(int)*at] = true;
        if (onnx_einsum_is_letter(*at)) t->letters++;
        if (*at != '.') continue;
        if (t->dots || !wb__begins(at, "..."))
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "the dots in \"%s\"", text);
        t->dots = at;
        t->before = t->letters;
        at += 2;
    }
    t->length = (int)(at - text);
    return true;
}

/* Sets `terms` to the terms of all operands; *rest is the text behind them. */
static bool onnx_einsum_read_terms(const wb__onnx_call *c, const char *text, ellipsis *e,
                                   onnx_einsum_term *terms, const char **rest)
{
    for (int i = 0; i < c->n_in; i++) {
        if (!onnx_einsum_read_term(c, text, e, &terms[i])) return false;
        text += terms[i].length;
        if (i + 1 < c->n_in ? *text != ',' : *text == ',')
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "the equation \"%s\" is not for %d inputs",
                                   wb__onnx_text(c, "equation"), c->n_in);
        if (*text == ',') text++;
    }
    *rest = text;
    return true;
}

/* Sets the letters of the dots, and the sizes to which these axes broadcast. */
static bool onnx_einsum_set_letters(const wb__onnx_call *c, const onnx_einsum_term *terms,
                                    ellipsis *e)
{
    for (int i = 0; i < c->n_in; i++)
        if (terms[i].dots) e->n = WB__MAX(e->n, c->in[i]->ndim - terms[i].letters);
    int n = 0;
    for (int k = 'z'; n < e->n && k >= 'A'; k--)
        if (onnx_einsum_is_letter((char)k) && !e->used[k]) e->letter[n++] = (char)k;
    if (n < e->n) return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "the equation uses all letters");
    for (int i = 0; i < e->n; i++) e->size[i] = 1;
    for (int i = 0; i < c->n_in; i++) {
        const int m = c->in[i]->ndim - terms[i].letters;
        for (int k = 0; terms[i].dots && k < m; k++) {
            const int64_t size = c->in[i]->dims[terms[i].before + k];
            if (size != 1) e->size[e->n - m + k] = size;
        }
    }
    return true;
}

/* Returns operand i with the axes of its dots broadcast. */
static wb_tensor *onnx_einsum_broadcast(const wb__onnx_call *c, const onnx_einsum_term *t,
                                        const ellipsis *e, int i)
{
    wb_tensor *x = c->in[i];
    const int m = x->ndim - t->letters;
    int64_t dims[WB_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    for (int k = 0; t->dots && k < m; k++) dims[t->before + k] = e->size[e->n - m + k];
    return wb_expand_array(x, x->ndim, dims);
}

/* Appends a term in which the last m letters replace the dots. */
static char *onnx_einsum_add_term(char *to, const onnx_einsum_term *t, const ellipsis *e, int m)
{
    for (const char *at = t->text; at < t->text + t->length; at++) {
        if (at == t->dots) {
            memcpy(to, e->letter + (e->n - m), (size_t)m);
            to += m;
        }
        if (*at != '.') *to++ = *at;
    }
    return to;
}

/* Appends the result: the letters of the file, or those of the dots and then the letters that occur
 * once, in alphabetical order.  NULL with the error set. */
static char *onnx_einsum_add_result(const wb__onnx_call *c, char *to, const char *rest,
                                    const onnx_einsum_term *terms, ellipsis *e)
{
    onnx_einsum_term result;
    *to++ = '-';
    *to++ = '>';
    if (*rest) {
        if (rest[1] == '>' && onnx_einsum_read_term(c, rest + 2, e, &result) &&
            !rest[2 + result.length] && (result.dots || !e->n))
            return onnx_einsum_add_term(to, &result, e, e->n);
        wb__onnx_refuse(c, WB_ERROR_FORMAT, "the result \"%s\" of its equation", rest);
        return NULL;
    }
    memcpy(to, e->letter, (size_t)e->n);
    to += e->n;
    for (int k = 'A'; k <= 'z'; k++) {
        int uses = 0;
        for (int i = 0; i < c->n_in; i++)
            for (int j = 0; j < terms[i].length; j++) uses += terms[i].text[j] == k;
        if (onnx_einsum_is_letter((char)k) && uses == 1) *to++ = (char)k;
    }
    return to;
}

/* Sets operands[] to the inputs, and returns the equation without dots, which the caller frees.
 * NULL with the error set. */
static char *onnx_einsum_without_dots(const wb__onnx_call *c, const char *text,
                                      wb_tensor **operands)
{
    ellipsis e = {0};
    onnx_einsum_term terms[OPERANDS];
    const char *rest = "";
    if (!onnx_einsum_read_terms(c, text, &e, terms, &rest) ||
        !onnx_einsum_set_letters(c, terms, &e)) return NULL;
    char *made = wb__alloc(strlen(text) + (OPERANDS + 2) * WB_MAX_DIMS + ONNX_EINSUM_LETTERS),
         *to = made;
    for (int i = 0; made && i < c->n_in; i++) {
        const int m = c->in[i]->ndim - terms[i].letters;
        if (terms[i].dots ? m < 0 : m != 0) {
            wb__onnx_refuse(c, WB_ERROR_SHAPE, "part %d of \"%s\" has other axes than %s", i, text,
                            wb_describe(c->in[i]));
            return wb__free(made), NULL;
        }
        if (!(operands[i] = onnx_einsum_broadcast(c, &terms[i], &e, i)))
            return wb__free(made), NULL;
        if (i) *to++ = ',';
        to = onnx_einsum_add_term(to, &terms[i], &e, terms[i].dots ? m : 0);
    }
    to = made ? onnx_einsum_add_result(c, to, rest, terms, &e) : NULL;
    if (to) *to = 0;
    else wb__free(made);
    return to ? made : NULL;
}

bool wb__onnx_einsum(wb__onnx_call *c)
{
    wb_tensor *operands[OPERANDS];
    if (!wb__onnx_has(c, WB__MAX(c->n_in, 1))) return false;
    const char *text = wb__onnx_text(c, "equation");
    if (!strchr(text, '.')) return wb__onnx_give(c, wb_einsum_array(text, c->n_in, c->in));
    if (c->n_in > OPERANDS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%d inputs; Einsum has at most %d here",
                               c->n_in, OPERANDS);
    char *plain = onnx_einsum_without_dots(c, text, operands);
    if (!plain) return false;
    wb_tensor *y = wb_einsum_array(plain, c->n_in, operands);
    wb__free(plain);
    return wb__onnx_give(c, y);
}
