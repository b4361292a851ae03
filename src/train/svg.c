/* Curves as an SVG file: axes with round ticks, a line for each series, a legend.  A line is
 * interrupted at points that are not finite.  Numbers have a decimal point in every locale. */
#include "base/base.h"
#include "base/files/file.h"
#include "base/text.h"
#include "engine/compiled/recording.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SVG_WIDTH = 720, HEIGHT = 440, LEFT = 72, RIGHT = 24, TOP = 56, BOTTOM = 56, TICKS = 6 };

/* The colours of Okabe & Ito, which colour-blind people can distinguish. */
static const char *const svg_colours[] = {"#0072b2", "#d55e00", "#009e73",
                                          "#cc79a7", "#e69f00", "#56b4e9"};

typedef struct { double low, high, step; } axis;

static double svg_round_step(double span)
{
    double raw = span / TICKS, power = pow(10, floor(log10(raw))), digit = raw / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* Returns the axis for the range of all finite points, or [0, 1] if there are none.  An empty range
 * is widened.  A vertical axis begins and ends at multiples of its step. */
static axis svg_axis_of(int n_series, const wb_series *series, bool vertical)
{
    double low = INFINITY, high = -INFINITY;
    for (int s = 0; s < n_series; s++)
        for (int i = 0; i < series[s].n; i++) {
            if (!isfinite(series[s].x[i]) || !isfinite(series[s].y[i])) continue;
            double v = vertical ? series[s].y[i] : series[s].x[i];
            low = fmin(low, v);
            high = fmax(high, v);
        }
    if (low > high) low = 0, high = 1;
    if (high - low < 1e-12 * fmax(fabs(low), fabs(high)) || high == low) {
        double half = low == 0 ? 0.5 : fabs(low) / 2;
        low -= half;
        high += half;
    }
    axis a = {low, high, svg_round_step(high - low)};
    if (vertical) {
        a.low = floor(low / a.step) * a.step;
        a.high = ceil(high / a.step) * a.step;
    }
    return a;
}

/* Returns the horizontal position of the number v in the picture. */
static double svg_x_of(axis a, double v)
{
    return LEFT + (v - a.low) / (a.high - a.low) * (SVG_WIDTH - LEFT - RIGHT);
}

/* Returns the vertical position of the number v in the picture. */
static double svg_y_of(axis a, double v)
{
    return HEIGHT - BOTTOM - (v - a.low) / (a.high - a.low) * (HEIGHT - TOP - BOTTOM);
}

static const char *svg_number(double v, const char *format, char *buffer, size_t size)
{
    wb__plain(buffer, size, format, v);
    return buffer;
}

static void svg_text(wb__text *to, double x, double y, const char *style, const char *s)
{
    char a[32], b[32];
    wb__text_add(to, "<text x=\"%s\" y=\"%s\" %s>", svg_number(x, "%.1f", a, sizeof a),
                 svg_number(y, "%.1f", b, sizeof b), style);
    wb__text t = {0};
    /* XML allows neither control characters nor invalid UTF-8, so these become escapes */
    wb__text_foreign(&t, s ? s : "");
    for (const char *c = t.text ? t.text : ""; *c; c++) {
        if (*c == '<') wb__text_add(to, "&lt;");
        else if (*c == '>') wb__text_add(to, "&gt;");
        else if (*c == '&') wb__text_add(to, "&amp;");
        else if (wb__begins(c, "\xef\xbf\xbe") || wb__begins(c, "\xef\xbf\xbf"))
            wb__text_raw(to, "?", 1), c += 2;       /* XML does not allow U+FFFE and U+FFFF */
        else wb__text_raw(to, c, 1);
    }
    to->failed |= t.failed;
    wb__free(wb__text_take(&t));
    wb__text_add(to, "</text>\n");
}

static void svg_line(wb__text *to, double x1, double y1, double x2, double y2, const char *stroke)
{
    char a[4][32];
    wb__text_add(to, "<line x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\" stroke=\"%s\"/>\n",
                 svg_number(x1, "%.1f", a[0], 32), svg_number(y1, "%.1f", a[1], 32),
                 svg_number(x2, "%.1f", a[2], 32), svg_number(y2, "%.1f", a[3], 32), stroke);
}

static void svg_add_axes(wb__text *to, axis x, axis y)
{
    char label[32];
    /* Adding 0.0 turns -0 into 0, so that no label is "-0". */
    for (double k = ceil(y.low / y.step - 1e-9) + 0.0; k * y.step <= y.high + 1e-9 * y.step; k++) {
        double at = svg_y_of(y, k * y.step);
        svg_line(to, LEFT, at, SVG_WIDTH - RIGHT, at, "#ddd");
        svg_text(to, LEFT - 8, at + 4, "text-anchor=\"end\"",
                 svg_number(k * y.step, "%.6g", label, sizeof label));
    }
    for (double k = ceil(x.low / x.step - 1e-9) + 0.0; k * x.step <= x.high + 1e-9 * x.step; k++) {
        double at = svg_x_of(x, k * x.step);
        svg_line(to, at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5, "#444");
        svg_text(to, at, HEIGHT - BOTTOM + 20, "text-anchor=\"middle\"",
                 svg_number(k * x.step, "%.6g", label, sizeof label));
    }
    svg_line(to, LEFT, HEIGHT - BOTTOM, SVG_WIDTH - RIGHT, HEIGHT - BOTTOM, "#444");
    svg_line(to, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#444");
}

static void svg_add_curve(wb__text *to, axis x, axis y, const wb_series *s, const char *colour)
{
    char a[32], b[32];
    bool open = false;
    for (int i = 0; i <= s->n; i++) {
        bool point = i < s->n && isfinite(s->x[i]) && isfinite(s->y[i]);
        if (point && !open)
            wb__text_add(to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" points=\"",
                         colour);
        if (point)
            wb__text_add(to, "%s,%s ", svg_number(svg_x_of(x, s->x[i]), "%.1f", a, sizeof a),
                         svg_number(svg_y_of(y, s->y[i]), "%.1f", b, sizeof b));
        else if (open) wb__text_add(to, "\"/>\n");
        open = point;
    }
}

int wb_save_curves(const char *path, const char *title, const char *x_label, const char *y_label,
                   int n_series, const wb_series *series)
{
    WB__FIRST(wb_save_curves, wb_error_code());
    if (!path) return wb__fail(WB_ERROR_ARGUMENT, "save_curves: no path");
    if (n_series < 1 || !series)
        return wb__fail(WB_ERROR_ARGUMENT, "save_curves: %d series%s", n_series,
                        series ? "" : ", and NULL in place of their array");
    for (int s = 0; s < n_series; s++)
        if (series[s].n < 0 || (series[s].n && (!series[s].x || !series[s].y)))
            return wb__fail(WB_ERROR_ARGUMENT, "save_curves: series %d has no points to read", s);
    wb__text picture = {0}, *to = &picture;
    axis x = svg_axis_of(n_series, series, false), y = svg_axis_of(n_series, series, true);
    wb__text_add(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                 "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect "
                 "width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", SVG_WIDTH, HEIGHT, SVG_WIDTH,
                 HEIGHT, SVG_WIDTH, HEIGHT);
    svg_text(to, LEFT, 24, "font-size=\"16\"", title);
    svg_text(to, (LEFT + SVG_WIDTH - RIGHT) / 2.0, HEIGHT - 14, "text-anchor=\"middle\"", x_label);
    svg_text(to, 8, TOP - 10, "text-anchor=\"start\"", y_label);
    svg_add_axes(to, x, y);
    double legend = SVG_WIDTH - RIGHT;
    for (int s = n_series - 1; s >= 0; s--) {
        const char *colour = svg_colours[(size_t)s % WB__COUNT(svg_colours)];
        svg_add_curve(to, x, y, &series[s], colour);
        if (!series[s].name) continue;
        svg_text(to, legend, TOP - 10, "text-anchor=\"end\"", series[s].name);
        legend -= 7 * (double)strlen(series[s].name) + 4;
        svg_line(to, legend - 18, TOP - 14, legend, TOP - 14, colour);
        legend -= 34;
    }
    wb__text_add(to, "</svg>\n");
    const size_t bytes = picture.length;
    char *all = wb__text_take(&picture);
    const int status = all ? wb__file_write(path, all, (int64_t)bytes) : (int)wb_error_code();
    wb__free(all);
    return status;
}
