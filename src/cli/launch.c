/* `weber launch -np N PROGRAM ...` starts N processes of a program on this machine, the ranks of a
 * training.  Each rank leads a process group, so that the processes it starts end with it. */
#include "base/environment.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_RANKS = 4096,
    MOST_LINE = 1 << 20,        /* bytes; a longer line is written as several */
    STATUS_USE = 2, STATUS_NO_PROGRAM = 127, STATUS_SIGNAL = 128
};
#define LAUNCH_GRACE 3.0        /* seconds from SIGTERM to SIGKILL */
#define CLOSING 1.0             /* seconds after SIGKILL in which output may still arrive */

/* The standard output or the standard error of a rank. */
typedef struct {
    int file;                   /* -1: closed */
    FILE *to;                   /* the stream of this command to which the lines are written */
    char *text;                 /* the beginning of a line whose end has not arrived */
    int length, capacity;
} launch_stream;

/* The stages of ending the processes of a rank. */
typedef enum { RUNS, HAS_SIGTERM, HAS_SIGKILL } stage;

/* A rank. */
typedef struct {
    long pid;  /* number of the process and of its group; reaped last, so that it stays unique */
    bool ended;
    wb__os_end end;             /* how the process has ended, if `ended` */
    stage stage;
    double until;               /* time at which the next stage begins, unless the stage is RUNS */
    launch_stream out, err;
    char last[400];             /* the last line on standard error that is not empty */
} launch_process;

typedef struct {
    int n, started;
    char **program;             /* with its arguments; ends with NULL */
    launch_process *ranks;
    wb__os_watched *polled;     /* 2 n + 1: the outputs of the ranks, and `signals` */
    int failed;                 /* the rank that failed first; -1: none */
    int signals;                /* a file that is readable after a signal or the end of a rank */
    int passed;                 /* the first signal that was passed on to the ranks, or 0 */
} launch_job;

/* ---- output ---------------------------------------------------------------------------------- */

static int output_error;                /* the error of writing to standard output; 0: none */

static void launch_set_output_error(FILE *to, bool failed)
{
    if (failed && to == stdout && !output_error) output_error = wb__os_error();
}

static void launch_flush(FILE *to) { launch_set_output_error(to, fflush(to) != 0); }

/* Writes the line s->text.  A line of standard error is also kept, cut, in p->last. */
static void launch_write_line(launch_process *p, int rank, launch_stream *s)
{
    fprintf(s->to, "[%d] ", rank);
    fwrite(s->text, 1, (size_t)s->length, s->to);
    fputc('\n', s->to);
    launch_set_output_error(s->to, ferror(s->to) != 0);
    if (s == &p->err && s->length) {
        const int n = WB__MIN(s->length, (int)sizeof p->last - 1);
        memcpy(p->last, s->text, (size_t)n);
        p->last[n] = 0;
    }
    s->length = 0;
}

static void launch_add_output(launch_process *p, int rank, launch_stream *s, const char *bytes,
                              size_t n)
{
    while (n) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) : n;
        if (part > (size_t)(MOST_LINE - s->length)) {
            part = (size_t)(MOST_LINE - s->length);
            end = NULL;
        }
        if (!wb__reserve(&s->text, &s->capacity, s->length + (int)part + 1, 1)) {
            wb__cli_print_error();
            return;
        }
        memcpy(s->text + s->length, bytes, part);
        s->length += (int)part;
        if (end || s->length == MOST_LINE) launch_write_line(p, rank, s);
        part += end != NULL;
        bytes += part;
        n -= part;
    }
}

static void launch_close_stream(launch_process *p, int rank, launch_stream *s)
{
    if (s->file < 0) return;
    wb__os_close(s->file);
    s->file = -1;
    if (s->length) launch_write_line(p, rank, s);
    launch_flush(s->to);
}

/* Reads the output that has arrived. */
static void launch_read_stream(launch_process *p, int rank, launch_stream *s)
{
    static char bytes[1 << 16];
    const int64_t got = wb__os_read(s->file, bytes, sizeof bytes);
    if (got <= 0) {
        launch_close_stream(p, rank, s);
        return;
    }
    launch_add_output(p, rank, s, bytes, (size_t)got);
    launch_flush(s->to);
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool launch_set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return wb__os_set_variable(name, text);
}

static bool launch_is_set(const char *name)
{
    const char *value = wb__environment_text(name);
    return value && *value;
}

/* Sets a token that other processes of this machine cannot guess. */
static bool launch_set_token(void)
{
    unsigned char number[16];
    char text[2 * sizeof number + 1];
    if (!wb__os_random(number, sizeof number)) return false;
    for (size_t i = 0; i < sizeof number; i++) snprintf(text + 2 * i, 3, "%02x", number[i]);
    return wb__os_set_variable("WEBER_RENDEZVOUS_TOKEN", text);
}

/* Sets the variables of the environment that are the same for all ranks. */
static bool launch_set_environment(int n)
{
    if (!launch_is_set("WEBER_RENDEZVOUS")) {
        char address[32];
        const int port = wb__os_free_port();
        if (!port) return false;
        snprintf(address, sizeof address, "127.0.0.1:%d", port);
        if (!wb__os_set_variable("WEBER_RENDEZVOUS", address)) return false;
    }
    if (!launch_is_set("WEBER_RENDEZVOUS_TOKEN") && !launch_set_token()) return false;
    if (!launch_is_set("WEBER_NUM_THREADS") && !launch_is_set("OMP_NUM_THREADS") &&
        !launch_set_number("WEBER_NUM_THREADS", WB__MAX(1, wb__os_processors() / n)))
        return false;
    return launch_set_number("WEBER_SIZE", n) && launch_set_number("WEBER_LOCAL_SIZE", n);
}

/* Starts one rank.  False with the error set: *exec_failed is true if a process was started and
 * could not execute the program. */
static bool launch_start_rank(launch_job *l, int rank, bool *exec_failed)
{
    launch_process *p = &l->ranks[rank];
    int out[2], err[2];
    *exec_failed = false;
    if (!launch_set_number("WEBER_RANK", rank) || !launch_set_number("WEBER_LOCAL_RANK", rank) ||
        !wb__os_pipe(out) || !wb__os_pipe(err))
        return false;
    const wb__os_program_start s = {.words = (const char *const *)l->program,
                                    .files = {-1, out[1], err[1], -1}, .leads = true};
    p->pid = wb__os_start(&s, exec_failed);
    const int why = wb__os_error();
    wb__os_close(out[1]);
    wb__os_close(err[1]);
    if (p->pid) {
        p->out.file = out[0];
        p->err.file = err[0];
        l->started++;
    } else {
        wb__os_close(out[0]);
        wb__os_close(err[0]);
        wb__os_set_error(why);
    }
    return p->pid;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Starts to end the processes of a rank: by SIGTERM, later by SIGKILL (launch_next_stages). */
static void launch_end_rank(launch_process *p)
{
    if (p->stage != RUNS) return;
    if (p->pid) wb__os_end_group(p->pid);
    p->stage = HAS_SIGTERM;
    p->until = wb__now() + LAUNCH_GRACE;
}

static void launch_kill_rank(launch_process *p)
{
    if (p->stage == HAS_SIGKILL) return;
    if (p->pid) wb__os_kill_group(p->pid);
    p->stage = HAS_SIGKILL;
    p->until = wb__now() + CLOSING;
}

/* Starts to end the processes of all ranks. */
static void launch_end_all(launch_job *l)
{
    for (int i = 0; i < l->n; i++) launch_end_rank(&l->ranks[i]);
}

/* Sets `ended` of ranks that have ended, and ends the processes that they have left running. */
static void launch_find_ended(launch_job *l)
{
    for (int i = 0; i < l->n; i++) {
        launch_process *p = &l->ranks[i];
        if (!p->pid || p->ended || !wb__os_has_ended(p->pid, &p->end)) continue;
        p->ended = true;
        launch_end_rank(p);
        if (l->failed < 0 && !output_error && (p->end.status || p->end.signal)) l->failed = i;
    }
    if (l->failed >= 0) launch_end_all(l);
}

/* Sends signals that have arrived to the ranks.  A second signal kills the ranks. */
static void launch_send_signals(launch_job *l)
{
    for (int number; (number = wb__os_next_signal());) {
        for (int i = 0; i < l->n; i++) {
            if (l->passed) launch_kill_rank(&l->ranks[i]);
            else if (l->ranks[i].pid) wb__os_signal_group(l->ranks[i].pid, number);
        }
        if (!l->passed) l->passed = number;
    }
}

static bool launch_is_over(const launch_process *p)
{
    return (p->ended || !p->pid) && p->out.file < 0 && p->err.file < 0;
}

/* Starts the next stages whose time has come.  Returns the seconds until the next one; -1: none. */
static double launch_next_stages(launch_job *l)
{
    double soonest = -1;
    for (int i = 0; i < l->n; i++) {
        launch_process *p = &l->ranks[i];
        if (p->stage == RUNS || launch_is_over(p)) continue;
        if (wb__now() >= p->until) {
            if (p->stage == HAS_SIGKILL && p->ended) {  /* another group's process holds them */
                launch_close_stream(p, i, &p->out);
                launch_close_stream(p, i, &p->err);
                continue;
            }
            if (p->stage == HAS_SIGTERM) launch_kill_rank(p);
            else p->until = wb__now() + CLOSING;
        }
        if (soonest < 0 || p->until < soonest) soonest = p->until;
    }
    return soonest < 0 ? -1 : WB__MAX(0, soonest - wb__now());
}

static bool launch_all_over(const launch_job *l)
{
    for (int i = 0; i < l->n; i++)
        if (!launch_is_over(&l->ranks[i])) return false;
    return true;
}

/* Copies the ranks' output and sends signals on until all ranks have ended. */
static void launch_watch(launch_job *l)
{
    const int n = l->started;           /* entries: poll refuses more than files may be open */
    for (;;) {
        launch_find_ended(l);
        const double wait = launch_next_stages(l);
        if (launch_all_over(l)) return;
        for (int i = 0; i < n; i++) {
            l->polled[2 * i] = (wb__os_watched){.file = l->ranks[i].out.file};
            l->polled[2 * i + 1] = (wb__os_watched){.file = l->ranks[i].err.file};
        }
        l->polled[2 * n] = (wb__os_watched){.file = l->signals};
        if (wb__os_poll(l->polled, 2 * n + 1, wait) < 0) continue;
        for (int i = 0; i < n; i++) {
            launch_process *p = &l->ranks[i];
            if (l->polled[2 * i].ready) launch_read_stream(p, i, &p->out);
            if (l->polled[2 * i + 1].ready) launch_read_stream(p, i, &p->err);
        }
        launch_send_signals(l);
        if (output_error) launch_end_all(l);    /* main prints the error */
    }
}

/* Reaps the ranks, and waits for the processes that they have left running. */
static void launch_reap(launch_job *l)
{
    for (int i = 0; i < l->n; i++) {
        launch_process *p = &l->ranks[i];
        if (!p->pid) continue;
        wb__os_wait(p->pid, NULL);
        while (wb__os_group_runs(p->pid)) {
            if (wb__now() < p->until) wb__os_sleep(10 * 1000 * 1000);
            else if (p->stage == HAS_SIGTERM) launch_kill_rank(p);
            else break;
        }
    }
}

static int launch_report_failure(const launch_job *l)
{
    const launch_process *p = &l->ranks[l->failed];
    fputs("weber launch: ", stderr);
    if (l->passed)
        fprintf(stderr, "%s was passed on to all ranks; ", wb__os_signal_name(l->passed));
    fprintf(stderr, "rank %d of %d ", l->failed, l->n);
    if (p->end.signal) fprintf(stderr, "was ended by %s", wb__os_signal_name(p->end.signal));
    else fprintf(stderr, "ended with status %d", p->end.status);
    if (l->n > 1 && !l->passed) fputs(", so all ranks were ended", stderr);
    if (*p->last) {
        wb__text last = {0};
        wb__text_foreign(&last, p->last);
        char *text = wb__text_take(&last);
        fprintf(stderr, "; its last line on stderr: %s\n", text ? text : "?");
        wb__free(text);
    } else {
        fputs("; it wrote nothing to stderr\n", stderr);
    }
    return p->end.signal ? STATUS_SIGNAL + p->end.signal : p->end.status;
}

/* Starts the ranks and waits for their ends.  Returns the exit status. */
static int launch_run(launch_job *l)
{
    int status = 0;
    l->signals = wb__os_lead();
    if (l->signals < 0 || !launch_set_environment(l->n)) {
        fprintf(stderr, "weber launch: %s\n", wb__os_reason());
        return 1;
    }
    for (int i = 0; i < l->n && !status; i++) {
        bool exec_failed;
        if (launch_start_rank(l, i, &exec_failed)) continue;
        const char *why = wb__os_reason();
        if (exec_failed)
            fprintf(stderr, "weber launch: %s cannot be executed: %s\n", l->program[0], why);
        else fprintf(stderr, "weber launch: rank %d cannot be started: %s\n", i, why);
        status = exec_failed ? STATUS_NO_PROGRAM : 1;
        l->failed = i;
    }
    launch_watch(l);
    launch_reap(l);
    return status ? status : l->failed < 0 ? 0 : launch_report_failure(l);
}

static int launch_help(FILE *to, int status)
{
    fputs("weber launch -np N [--] PROGRAM [ARGUMENT...]\n"
          "  starts N processes of the program on this machine: the ranks 0 to N - 1\n"
          "  - each line of output begins with the rank: [2] ...\n"
          "  - when a rank fails, all ranks are ended; the exit status is that of the rank, or\n"
          "    128 + the number of its signal; 127: the program cannot be executed\n"
          "  - SIGINT and SIGTERM are passed on; a second one kills all ranks\n"
          "  - each rank gets WEBER_RANK, WEBER_SIZE, WEBER_LOCAL_RANK, WEBER_LOCAL_SIZE;\n"
          "    WEBER_RENDEZVOUS (a free port of 127.0.0.1), WEBER_RENDEZVOUS_TOKEN (a random\n"
          "    secret, which the ranks prove to have) and WEBER_NUM_THREADS (processors / N)\n"
          "    unless they are set\n", to);
    return status;
}

static int launch_fail_use(const char *text, const char *what)
{
    fprintf(stderr, "weber launch: ");
    fprintf(stderr, text, what);
    fputs("; `weber launch --help` shows the use\n", stderr);
    return STATUS_USE;
}

/* Returns the number of ranks; 0: the text is no such number. */
static int launch_read_number(const char *text)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && n <= MOST_RANKS ? (int)n : 0;
}

int wb__cli_launch(int n, char **words)
{
    launch_job l = {.failed = -1};
    int i = 0;
    for (; i < n && words[i][0] == '-'; i++) {
        if (!strcmp(words[i], "--help") || !strcmp(words[i], "-h")) return launch_help(stdout, 0);
        if (!strcmp(words[i], "--")) {
            i++;
            break;
        }
        if (strcmp(words[i], "-np")) return launch_fail_use("unknown option %s", words[i]);
        if (++i == n) return launch_fail_use("%s needs the number of processes", "-np");
        l.n = launch_read_number(words[i]);
        if (!l.n) return launch_fail_use("-np %s: it must be a number from 1 to 4096", words[i]);
    }
    if (!l.n) return launch_fail_use("%s is missing: the number of processes", "-np N");
    if (i == n) return launch_fail_use("%s is missing", "the program");
    l.program = words + i;              /* main's argv ends with NULL */
    l.ranks = wb__alloc_zero((size_t)l.n, sizeof *l.ranks);
    l.polled = wb__alloc_zero(2 * (size_t)l.n + 1, sizeof *l.polled);
    int status = 1;
    if (!l.ranks || !l.polled) {
        wb__cli_print_error();
    } else {
        for (int k = 0; k < l.n; k++) {
            l.ranks[k].out = (launch_stream){.file = -1, .to = stdout};
            l.ranks[k].err = (launch_stream){.file = -1, .to = stderr};
        }
        status = launch_run(&l);
    }
    for (int k = 0; k < l.n && l.ranks; k++) {
        wb__free(l.ranks[k].out.text);
        wb__free(l.ranks[k].err.text);
    }
    wb__free(l.ranks);
    wb__free(l.polled);
    if (output_error) wb__os_set_error(output_error);   /* main prints it */
    return status;
}
