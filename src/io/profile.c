/* wb_profile_end: a table of kernels, and a file in the JSON format of Chrome's tracing. */
#include "engine/profile.h"

#include "base/files/file.h"
#include "engine/compiled/recording.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

/* All launches of one kernel. */
typedef struct { const char *name; int calls; double seconds; } profile_file_row;

static int profile_file_by_name(const void *a, const void *b)
{
    return strcmp(((const profile_file_row *)a)->name, ((const profile_file_row *)b)->name);
}

static int profile_file_by_time(const void *a, const void *b)
{
    const double x = ((const profile_file_row *)a)->seconds,
                 y = ((const profile_file_row *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : profile_file_by_name(a, b);
}

/* Returns the sums of the launches of each kernel, and sets *n.  The caller frees the rows.  NULL:
 * out of memory. */
static profile_file_row *profile_file_rows_of(const wb__profile *p, int *n)
{
    profile_file_row *rows = wb__alloc((size_t)WB__MAX(p->n, 1) * sizeof *rows);
    *n = 0;
    if (!rows) return NULL;
    for (int i = 0; i < p->n; i++)
        rows[i] = (profile_file_row){p->launches[i].name, 1, p->launches[i].duration};
    qsort(rows, (size_t)p->n, sizeof *rows, profile_file_by_name);
    for (int i = 0; i < p->n; i++) {
        if (*n && !strcmp(rows[*n - 1].name, rows[i].name)) {
            rows[*n - 1].calls++;
            rows[*n - 1].seconds += rows[i].seconds;
        } else rows[(*n)++] = rows[i];
    }
    qsort(rows, (size_t)*n, sizeof *rows, profile_file_by_time);
    return rows;
}

static char *profile_file_table(const wb__profile *p)
{
    int n;
    double all = 0;
    wb__text t = {0};
    profile_file_row *rows = profile_file_rows_of(p, &n);
    if (!rows) return NULL;
    for (int i = 0; i < n; i++) all += rows[i].seconds;
    wb__text_add(&t, "  share       ms    calls  kernel\n");
    for (int i = 0; i < n; i++)
        wb__text_add(&t, "%6.1f%% %8.3f %8d  %s\n", all > 0 ? 100 * rows[i].seconds / all : 0,
                     1e3 * rows[i].seconds, rows[i].calls, rows[i].name);
    wb__text_add(&t, "%6.1f%% %8.3f %8d  all", 100.0, 1e3 * all, p->n);
    wb__free(rows);
    return wb__text_take(&t);
}

static int profile_file_write_trace(const char *path, const wb__profile *p)
{
    wb__json_out out = {0};
    wb__json_open(&out, '{');
    wb__json_put_key(&out, "traceEvents");
    wb__json_open(&out, '[');
    for (int i = 0; i < p->n; i++) {
        const wb__launch_time *l = &p->launches[i];
        char *device = wb__printf("%s:%d", l->device->backend->tag, l->device->ordinal);
        wb__json_open(&out, '{');
        wb__json_put_pair(&out, "name", l->name);
        wb__json_put_pair(&out, "ph", "X");                     /* an event with a duration */
        wb__json_put_pair(&out, "pid", device ? device : "");
        wb__json_put_key(&out, "tid");
        wb__json_put_integer(&out, l->thread);
        wb__json_put_key(&out, "ts");                           /* microseconds */
        wb__json_put_real(&out, 1e6 * l->start);
        wb__json_put_key(&out, "dur");
        wb__json_put_real(&out, 1e6 * l->duration);
        wb__json_close(&out, '}');
        wb__free(device);
    }
    wb__json_close(&out, ']');
    wb__json_close(&out, '}');
    char *text = wb__json_take(&out);
    if (!text) return wb__error_or(WB_ERROR_MEMORY);
    const int status = wb__file_write(path, text, (int64_t)strlen(text));
    wb__free(text);
    return status;
}

char *wb_profile_end(const char *trace)
{
    WB__FIRST(wb_profile_end, NULL);
    wb__profile p;
    if (!wb__profile_take(&p)) return NULL;
    const int status = trace ? profile_file_write_trace(trace, &p) : 0;
    char *text = status ? NULL : profile_file_table(&p);
    wb__profile_free(&p);
    return text;
}
