/* Looking at a backend in a process of its own: a driver that crashes or hangs takes nobody with
 * it, and two drivers that cannot live in one process never meet. */
#include "cli/cli.h"
#include "device/registry.h"
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the one that looks -------------------------------------------------------------------- */

/* A word and a text a line; "end" is the last. */
static void tell(FILE *to, const char *word, const char *text)
{
    do {
        const size_t n = strcspn(text, "\n");
        fprintf(to, "%s %.*s\n", word, (int)n, text);
        text += n + (text[n] == '\n');
    } while (*text);
}

static const char *size_text(int64_t bytes, char text[32])
{
    if (bytes < 0) snprintf(text, 32, "unknown");
    else if (bytes < 1 << 20) snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < 1 << 30) snprintf(text, 32, "%.1f MiB", (double)bytes / (1 << 20));
    else snprintf(text, 32, "%.1f GiB", (double)bytes / (1 << 30));
    return text;
}

/* In this process, which has only looked: what it holds is what starting the backend takes. */
static void tell_memory(FILE *to, int i, const wb_device_memory *m)
{
    char all[32], free[32], used[32], cached[32], line[256];
    snprintf(line, sizeof line, "%d: memory %s in all, %s free, %s used by this process, %s cached", i,
             size_text(m->total, all), size_text(m->free, free), size_text(m->used, used),
             size_text(m->cached, cached));
    tell(to, "part", line);
}

static void tell_devices(FILE *to, int row)
{
    wb_device_list list = wb__row_devices(row);
    for (int i = 0; i < list.n; i++) {
        const wb_device *d = list.device[i];
        wb_device_memory m;
        char size[64] = "", threads[64], line[512];
        const bool told = !wb_device_memory_of(d, &m);
        if (told) tell_memory(to, i, &m);
        if (told && m.total >= 0)
            snprintf(size, sizeof size, ", %.1f GiB", (double)m.total / ((int64_t)1 << 30));
        snprintf(threads, sizeof threads, "%d thread%s", wb_threads(),
                 wb_threads() == 1 ? "" : "s");
        snprintf(line, sizeof line, "%d. %s%s", i, row == WB__CPU_ROW ? threads : d->name, size);
        tell(to, "device", line);
    }
}

static void tell_parts(FILE *to, int row)
{
    for (const char *const *part = wb__rows[row].libraries; *part; part++) {
        const int have = wb__row_backend(row)->part(*part);
        char line[WB__REASON_BYTES];
        if (have < 0) continue;
        snprintf(line, sizeof line, "%s: %s", *part, have ? "works" : wb_error());
        tell(to, "part", line);
    }
}

int wb__cli_probe(const char *backend)
{
    const int row = wb__row_exactly(backend);
    FILE *to = row < 0 ? NULL : fdopen(PROBE_FILE, "w");
    if (!to) return 2;
    unsetenv("WEBER_BACKENDS");         /* this one alone */
    wb_using(backend);
    wb__registry_lock();
    if (wb__row_loaded(row)) tell(to, "loaded", "yes");
    fflush(to);
    if (wb__row_works(row)) {
        tell(to, "works", "yes");
        tell_devices(to, row);
        tell_parts(to, row);
    } else {
        tell(to, "why", wb__row_reason(row));
    }
    wb__registry_unlock();
    tell(to, "end", "");
    fflush(to);
    _Exit(0);                           /* what a driver does at the end is not looked at */
}

/* ---- the one that asks --------------------------------------------------------------------- */

static void become(const char *self, const char *backend, int pipe_end, bool noisy)
{
    const int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(noisy ? 2 : nowhere, 1);
    if (!noisy) dup2(nowhere, 2);
    if (pipe_end != PROBE_FILE) dup2(pipe_end, PROBE_FILE);
    else fcntl(pipe_end, F_SETFD, 0);
    execl(self, self, "probe", backend, (char *)NULL);
    _Exit(127);
}

static void add_line(wb__text *t, const char *text) { wb__text_add(t, "%s\n", text); }

typedef struct { wb__text devices, parts, why; } answer;

static void hear(wb__probe *p, answer *a, char *line)
{
    char *text = strchr(line, ' ');
    if (!text) return;
    *text++ = 0;
    if (!strcmp(line, "loaded")) p->loaded = true;
    else if (!strcmp(line, "works")) p->works = true;
    else if (!strcmp(line, "device")) add_line(&a->devices, text);
    else if (!strcmp(line, "part")) add_line(&a->parts, text);
    else if (!strcmp(line, "why")) add_line(&a->why, text);
    else if (!strcmp(line, "end")) p->answered = true;
}

/* Lines until "end", the end of the pipe, or the time; false: the time was up. */
static bool listen_to(int file, wb__probe *p, answer *a, double seconds)
{
    const double until = wb__now() + seconds;
    char line[WB__REASON_BYTES + 16];
    size_t n = 0;
    while (!p->answered) {
        const double left = until - wb__now();
        struct pollfd end = {.fd = file, .events = POLLIN};
        const int ready = left > 0 ? poll(&end, 1, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        char c;
        const ssize_t got = read(file, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        if (c == '\n') {
            line[n] = 0;
            n = 0;
            hear(p, a, line);
        } else if (n < sizeof line - 1) {
            line[n++] = c;
        }
    }
    return true;
}

static void judge(wb__probe *p, bool in_time, int status, double seconds)
{
    const char *state = p->works ? "works" : p->loaded ? "no device" : "not built in";
    if (p->answered) snprintf(p->state, sizeof p->state, "%s", state);
    else if (!in_time) snprintf(p->state, sizeof p->state, "no answer in %g s", seconds);
    else if (WIFSIGNALED(status))
        snprintf(p->state, sizeof p->state, "crashed (%s)", strsignal(WTERMSIG(status)));
    else snprintf(p->state, sizeof p->state, "ended the process (%d)", WEXITSTATUS(status));
    if (!p->answered) p->works = false;
}

void wb__cli_ask(wb__probe *p, const char *self, const char *backend, double seconds, bool noisy)
{
    int ends[2], status = 0;
    answer a = {0};
    *p = (wb__probe){.state = "cannot be looked at"};
    if (pipe(ends)) return;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) become(self, backend, ends[1], noisy);
    close(ends[1]);
    if (child > 0) {
        const bool in_time = listen_to(ends[0], p, &a, seconds);
        if (!in_time) kill(child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        judge(p, in_time, status, seconds);
    }
    close(ends[0]);
    p->devices = wb__text_take(&a.devices);
    p->parts = wb__text_take(&a.parts);
    p->why = wb__text_take(&a.why);
}

void wb__probe_free(wb__probe *p)
{
    wb__free(p->devices);
    wb__free(p->parts);
    wb__free(p->why);
}
