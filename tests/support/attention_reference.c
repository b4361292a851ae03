/* See attention_reference.h. */
#include "attention_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += factor * x[i];
}

/* Adds the contributions of query i to the gradients.  p: its softmax weights of the first `seen`
 * keys. */
static void gradients(const attention_shape *s, double *const view[], int64_t i, const double *p,
                      int64_t seen)
{
    const double *q = view[ATTENTION_Q] + i * s->depth, *g = view[ATTENTION_DO] + i * s->width;
    const double delta = dot(view[ATTENTION_O] + i * s->width, g, s->width);
    for (int64_t j = 0; j < seen; j++) {
        const double a = dot(g, view[ATTENTION_V] + j * s->width, s->width);
        const double ds = p[j] * (a - delta) * s->scale;
        add(view[ATTENTION_DV] + j * s->width, p[j], g, s->width);
        add(view[ATTENTION_DQ] + i * s->depth, ds, view[ATTENTION_K] + j * s->depth, s->depth);
        add(view[ATTENTION_DK] + j * s->depth, ds, q, s->depth);
    }
}

void attention_head(const attention_shape *s, double *const view[ATTENTION_VIEWS])
{
    const double *g = view[ATTENTION_DO];
    double *p = malloc((size_t)s->keys * sizeof *p);
    if (!p) abort();
    memset(view[ATTENTION_O], 0, (size_t)(s->queries * s->width) * sizeof *p);
    if (g) memset(view[ATTENTION_DQ], 0, (size_t)(s->queries * s->depth) * sizeof *p);
    if (g) memset(view[ATTENTION_DK], 0, (size_t)(s->keys * s->depth) * sizeof *p);
    if (g) memset(view[ATTENTION_DV], 0, (size_t)(s->keys * s->width) * sizeof *p);
    for (int64_t i = 0; i < s->queries; i++) {
        const int64_t seen = s->causal ? i + 1 + s->keys - s->queries : s->keys;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < seen; j++) {
            p[j] = s->scale * dot(view[ATTENTION_Q] + i * s->depth,
                                  view[ATTENTION_K] + j * s->depth, s->depth);
            top = fmax(top, p[j]);
        }
        for (int64_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - top);
        view[ATTENTION_LSE][i] = top + log(sum);
        for (int64_t j = 0; j < seen; j++) {
            p[j] /= sum;
            add(view[ATTENTION_O] + i * s->width, p[j], view[ATTENTION_V] + j * s->width, s->width);
        }
        if (g) gradients(s, view, i, p, seen);
    }
    free(p);
}
