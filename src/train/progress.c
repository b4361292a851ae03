/* Progress on standard error: a bar on a terminal, elsewhere a plain line every few seconds.
 *
 * wb_progress_step keeps the tensor of a metric and reads the tensor at the next call with the same
 * name.  By then a training loop has normally computed the tensor.  A call with the name of the
 * first metric, or without a name, counts one step.  A call with another name only adds a value to
 * the line.
 *
 *   epoch 3  ━━━━━━━━━━━━━━╸            61%  572/938  1204/s  0:00 left  loss 0.0421 */
#include "base/environment.h"
#include "base/os.h"
#include "engine/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METRICS = 4, BAR = 24, PROGRESS_WIDTH = 512, STDERR = 2 };
static const double redraw_after = 0.1, line_after = 10;        /* seconds */

typedef struct {
    char name[24];
    wb_tensor *held;                /* latest tensor, not read yet (reference) */
    double last, sum;               /* the last value read; sum of all values read */
    int64_t n;                      /* number of values in `sum` */
} progress_metric;

struct wb_progress {
    wb__object object;
    char title[64];
    int64_t steps, total;           /* steps done; steps in all, 0: unknown */
    double begun, shown;            /* times of the begin and of the last drawing (wb__now) */
    bool terminal, utf8, ended;
    int n_metrics;
    progress_metric metrics[METRICS];
};

static void progress_destroy(void *object);
static char *progress_format(void *object);
const wb__class wb__progress_class = {.name = "progress", .destroy = progress_destroy,
                                      .format = progress_format};

static bool terminal_speaks_utf8(void)
{
    const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        const char *value = wb__environment_text(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

static int terminal_columns(void)
{
    const int columns = wb__os_columns(STDERR);
    return columns > 0 ? columns : 80;
}

static wb_progress *progress_new(int64_t total, const char *format, va_list arguments)
{
    wb_progress *p = wb__object_new(&wb__progress_class, sizeof *p);
    if (!p) return NULL;
    const char *kind = wb__environment_text("TERM");
    wb__plain_list(p->title, sizeof p->title, format ? format : "", arguments);
    p->total = total;
    p->begun = wb__now();
    p->shown = p->begun;
    p->terminal = wb__os_is_terminal(STDERR) && !(kind && strcmp(kind, "dumb") == 0);
    p->utf8 = terminal_speaks_utf8();
    return p;
}

wb_progress *wb_progress_begin(wb_loader *loader, const char *format, ...)
{
    va_list arguments;
    if (loader && !wb__expect("progress_begin", loader, &wb__loader_class)) return NULL;
    va_start(arguments, format);
    wb_progress *p = progress_new(loader ? WB__MAX(wb_loader_length(loader), 0) : 0, format,
                                  arguments);
    va_end(arguments);
    return p;
}

wb_progress *wb_progress_of(int64_t steps, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    wb_progress *p = progress_new(WB__MAX(steps, 0), format, arguments);
    va_end(arguments);
    return p;
}

/* Adds formatted text to a line, a buffer of PROGRESS_WIDTH bytes; text that does not fit is
 * cut. */
WB__PRINTF(2, 3) static void add(char *line, const char *format, ...)
{
    size_t n = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(line + n, PROGRESS_WIDTH - n, format, arguments);
    va_end(arguments);
}

static void add_time(char *line, double seconds)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        add(line, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    else add(line, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

static void add_metrics(char *line, const wb_progress *p, bool means)
{
    for (int i = 0; i < p->n_metrics; i++) {
        const progress_metric *m = &p->metrics[i];
        if (m->n)
            add(line, "  %s%s %.4g", means ? "mean " : "", m->name,
                means ? m->sum / (double)m->n : m->last);
    }
}

static void add_rate(char *line, const wb_progress *p, double elapsed)
{
    double rate = elapsed > 0 ? (double)p->steps / elapsed : 0;
    if (rate >= 1 || rate == 0) add(line, "  %.*f/s", rate < 10 ? 1 : 0, rate);
    else add(line, "  %.1f s each", 1 / rate);
}

static void add_bar(char *line, const wb_progress *p)
{
    static const char *const glyphs[2][3] = {{"=", ">", " "}, {"\u2501", "\u2578", " "}};
    int full = (int)(BAR * WB__MIN(p->steps, p->total) / p->total);
    for (int i = 0; i < BAR; i++)
        add(line, "%s", glyphs[p->utf8][i < full ? 0 : i == full ? 1 : 2]);
    add(line, "  %3d%%  %lld/%lld", (int)(100 * WB__MIN(p->steps, p->total) / p->total),
        (long long)p->steps, (long long)p->total);
}

/* Cuts a line to `columns` columns.  Each UTF-8 character counts as one column. */
static void progress_cut(char *line, int columns)
{
    for (char *c = line; *c; c++)
        if (((unsigned char)*c & 0xC0) != 0x80 && columns-- == 0) {
            *c = 0;
            return;
        }
}

static void progress_draw(wb_progress *p, double now)
{
    char line[PROGRESS_WIDTH] = "";
    double elapsed = now - p->begun;
    p->shown = now;
    add(line, "%s", p->title);
    if (p->total) {
        add(line, "  ");
        if (p->terminal) add_bar(line, p);
        else add(line, "%lld/%lld", (long long)p->steps, (long long)p->total);
    } else {
        add(line, "  %lld steps", (long long)p->steps);
    }
    add_rate(line, p, elapsed);
    if (p->total > p->steps && p->steps > 0) {
        add(line, "  ");
        add_time(line, elapsed / (double)p->steps * (double)(p->total - p->steps));
        add(line, " left");
    }
    add_metrics(line, p, false);
    if (p->terminal) {
        progress_cut(line, terminal_columns() - 1);
        fprintf(stderr, "\r%s\033[K", line);
    } else {
        fprintf(stderr, "%s\n", line);
    }
    fflush(stderr);
}

static void progress_read_held(progress_metric *m)
{
    if (!m->held) return;
    m->last = wb__item(m->held);
    m->sum += m->last;
    m->n++;
    wb__unref(m->held);
    m->held = NULL;
}

/* Returns the metric with this name, a new one if the name is new.  Returns NULL if the name is new
 * and there are METRICS metrics already. */
static progress_metric *metric_of(wb_progress *p, const char *name)
{
    for (int i = 0; i < p->n_metrics; i++)
        if (strncmp(p->metrics[i].name, name, sizeof p->metrics[i].name - 1) == 0)
            return &p->metrics[i];
    if (p->n_metrics == METRICS) return NULL;
    progress_metric *m = &p->metrics[p->n_metrics++];
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

void wb_progress_step(wb_progress *p, const char *name, wb_tensor *value)
{
    WB__EDGE;
    if (!p || !wb__expect("progress_step", p, &wb__progress_class) || p->ended) return;
    if (value && !wb__expect("progress_step", value, &wb__tensor_class)) return;
    WB__FIRST(wb_progress_step, );
    progress_metric *m = name ? metric_of(p, name) : NULL;
    if (name && !m) return;
    if (m) {
        progress_read_held(m);
        if (value && !wb_is_none(value)) m->held = wb__ref(value);
    }
    if (m && m != &p->metrics[0]) return;
    p->steps++;
    double now = wb__now();
    if (now - p->shown >= (p->terminal ? redraw_after : line_after)) progress_draw(p, now);
}

/* Prints the last line: title, steps, duration, rate, and the means of the metrics. */
static void progress_finish(wb_progress *p)
{
    char line[PROGRESS_WIDTH] = "";
    double elapsed = wb__now() - p->begun;
    p->ended = true;
    add(line, "%s  %lld steps in %.*f s", p->title, (long long)p->steps, elapsed < 10 ? 2 : 0,
        elapsed);
    add_rate(line, p, elapsed);
    add_metrics(line, p, true);
    if (p->terminal) progress_cut(line, terminal_columns() - 1);
    fprintf(stderr, "%s%s%s\n", p->terminal ? "\r" : "", line, p->terminal ? "\033[K" : "");
    fflush(stderr);
}

void wb_progress_end(wb_progress *p)
{
    if (!p || !wb__expect("progress_end", p, &wb__progress_class) || p->ended) return;
    WB__FIRST(wb_progress_end, );
    for (int i = 0; i < p->n_metrics; i++) progress_read_held(&p->metrics[i]);
    progress_finish(p);
}

/* Ends the progress when its scope closes.  No tensor may be evaluated then, so the mean of a
 * metric leaves out a last tensor that has not been computed. */
static void progress_destroy(void *object)
{
    wb_progress *p = object;
    for (int i = 0; i < p->n_metrics; i++) {
        progress_metric *m = &p->metrics[i];
        if (m->held && m->held->storage) progress_read_held(m);
        wb__unref(m->held);
    }
    if (!p->ended) progress_finish(p);
    wb__object_end(p, sizeof *p);
}

static char *progress_format(void *object)
{
    const wb_progress *p = object;
    return wb__printf("%s  %lld/%lld", p->title, (long long)p->steps, (long long)p->total);
}
