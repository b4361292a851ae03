/* Probes each backend in a process of its own, so that a driver that crashes or hangs affects no
 * other process.  Drivers that conflict are never loaded together. */
#include "base/mistakes.h"
#include "base/os.h"
#include "cli/cli.h"
#include "device/registry.h"
#include "tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the probing process ------------------------------------------------------------------- */

/* Writes a line "word text" for each line of the text. */
static void probe_write_lines(FILE *to, const char *word, const char *text)
{
    do {
        const size_t n = strcspn(text, "\n");
        fprintf(to, "%s %.*s\n", word, (int)n, text);
        text += n + (text[n] == '\n');
    } while (*text);
}

static const char *probe_size_text(int64_t bytes, char text[32])
{
    if (bytes < 0) snprintf(text, 32, "unknown");
    else if (bytes < 1 << 20) snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < 1 << 30) snprintf(text, 32, "%.1f MiB", (double)bytes / (1 << 20));
    else snprintf(text, 32, "%.1f GiB", (double)bytes / (1 << 30));
    return text;
}

/* Writes a line about the memory of device i.  This process has only started the backend, so the
 * memory that it uses is the cost of the start. */
static void probe_write_memory(FILE *to, int i, const wb_device_memory *m)
{
    char all[32], free[32], used[32], cached[32], line[256];
    snprintf(line, sizeof line, "%d: memory %s in all, %s free, %s used by this process, %s cached",
             i, probe_size_text(m->total, all), probe_size_text(m->free, free),
             probe_size_text(m->used, used), probe_size_text(m->cached, cached));
    probe_write_lines(to, "part", line);
}

static void probe_write_devices(FILE *to, int row)
{
    wb_device_list list = wb__row_devices(row);
    for (int i = 0; i < list.n; i++) {
        const wb_device *d = list.device[i];
        wb_device_memory m;
        char size[64] = "", threads[64], line[512];
        const bool known = !wb_device_memory_of(d, &m);
        snprintf(line, sizeof line, "%d: %s", i, d->about ? d->about : "");
        if (d->about) probe_write_lines(to, "part", line);
        if (known) probe_write_memory(to, i, &m);
        if (known && m.total >= 0)
            snprintf(size, sizeof size, ", %.1f GiB", (double)m.total / ((int64_t)1 << 30));
        snprintf(threads, sizeof threads, "%d thread%s", wb_threads(),
                 wb_threads() == 1 ? "" : "s");
        snprintf(line, sizeof line, "%d. %s%s", i, row == WB__CPU_ROW ? threads : d->name, size);
        probe_write_lines(to, "device", line);
    }
}

static void probe_write_libraries(FILE *to, int row)
{
    for (const char *const *library = wb__rows[row].libraries; *library; library++) {
        const int have = wb__row_backend(row)->part(*library);
        char line[WB__REASON_BYTES + 64], reason[WB__REASON_BYTES];
        if (have < 0) continue;
        wb__error_plain(reason, sizeof reason);
        snprintf(line, sizeof line, "%s: %s", *library, have ? "works" : reason);
        probe_write_lines(to, "part", line);
    }
}

int wb__cli_probe(const char *backend)
{
    const int row = wb__row_exact(backend);
    FILE *to = row < 0 ? NULL : fdopen(PROBE_FILE, "w");
    if (!to) return 2;
    wb__os_set_variable("WEBER_BACKENDS", NULL);        /* probe this backend only */
    wb_using(backend);
    wb__registry_lock();
    if (wb__row_loaded(row)) probe_write_lines(to, "loaded", "yes");
    fflush(to);
    if (wb__row_works(row)) {
        probe_write_lines(to, "works", "yes");
        probe_write_devices(to, row);
        probe_write_libraries(to, row);
    } else {
        probe_write_lines(to, "why", wb__row_reason(row));
    }
    wb__registry_unlock();
    probe_write_lines(to, "end", "");
    fflush(to);
    _Exit(0);                           /* skips whatever the driver does at exit */
}

/* ---- the parent process -------------------------------------------------------------------- */

static void probe_add_line(wb__text *t, const char *text) { wb__text_add(t, "%s\n", text); }

typedef struct { wb__text devices, libraries, reason; } probe_answer;

static void probe_parse_line(wb__probe *p, probe_answer *a, char *line)
{
    char *text = strchr(line, ' ');
    if (!text) return;
    *text++ = 0;
    if (!strcmp(line, "loaded")) p->loaded = true;
    else if (!strcmp(line, "works")) p->works = true;
    else if (!strcmp(line, "device")) probe_add_line(&a->devices, text);
    else if (!strcmp(line, "part")) probe_add_line(&a->libraries, text);
    else if (!strcmp(line, "why")) probe_add_line(&a->reason, text);
    else if (!strcmp(line, "end")) p->answered = true;
}

/* Reads lines until "end", the end of the pipe, or the time limit.  False: the time limit was
 * reached, or poll failed. */
static bool probe_read_answer(int file, wb__probe *p, probe_answer *a, double seconds)
{
    const double until = wb__now() + seconds;
    char line[WB__REASON_BYTES + 16];
    size_t n = 0;
    while (!p->answered) {
        const double left = until - wb__now();
        wb__os_watched end = {.file = file};
        if (left <= 0 || wb__os_poll(&end, 1, left) < 0) return false;
        if (!end.ready) continue;
        char c;
        if (wb__os_read(file, &c, 1) <= 0) return true;
        if (c == '\n') {
            line[n] = 0;
            n = 0;
            probe_parse_line(p, a, line);
        } else if (n < sizeof line - 1) {
            line[n++] = c;
        }
    }
    return true;
}

static void probe_set_state(wb__probe *p, bool in_time, const wb__os_end *end, double seconds)
{
    const char *state = p->works ? "works" : p->loaded ? "no device" : "not built in";
    if (p->answered) snprintf(p->state, sizeof p->state, "%s", state);
    else if (!in_time) snprintf(p->state, sizeof p->state, "no answer in %g s", seconds);
    else if (end->signal)
        snprintf(p->state, sizeof p->state, "crashed (%s)", wb__os_signal_text(end->signal));
    else snprintf(p->state, sizeof p->state, "ended the process (%d)", end->status);
    if (!p->answered) p->works = false;
}

void wb__cli_run_probe(wb__probe *p, const char *self, const char *backend, double seconds,
                       bool noisy)
{
    const char *const words[] = {self, "probe", backend, NULL};
    int ends[2];
    bool executed;
    probe_answer a = {0};
    *p = (wb__probe){.state = "cannot be looked at"};
    if (!wb__os_pipe(ends)) return;
    const int output = noisy ? 2 : -1;
    const long child = wb__os_start(
        &(wb__os_program_start){.words = words, .files = {-1, output, output, ends[1]}}, &executed);
    wb__os_close(ends[1]);
    if (child) {
        wb__os_end end = {0};
        const bool in_time = probe_read_answer(ends[0], p, &a, seconds);
        if (!in_time) wb__os_kill(child);
        wb__os_wait(child, &end);
        probe_set_state(p, in_time, &end, seconds);
    }
    wb__os_close(ends[0]);
    p->devices = wb__text_take(&a.devices);
    p->libraries = wb__text_take(&a.libraries);
    p->reason = wb__text_take(&a.reason);
}

void wb__probe_free(wb__probe *p)
{
    wb__free(p->devices);
    wb__free(p->libraries);
    wb__free(p->reason);
}
