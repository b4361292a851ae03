/* `weber launch -np N PROGRAM ...` starts N processes of a program on this machine, the ranks of a
 * training. Each rank is the leader of a process group, so that what it starts ends with it. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE             /* waitid of strict C */
#endif
#include "base/environment.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum {
    MOST_RANKS = 4096,
    MOST_LINE = 1 << 20,        /* bytes; a longer line is written as several */
    STATUS_USE = 2, STATUS_NO_PROGRAM = 127, STATUS_SIGNAL = 128
};
#define GRACE 3.0               /* seconds from SIGTERM to SIGKILL */
#define CLOSING 1.0             /* seconds from SIGKILL until output that stays open is given up */

/* One of the two outputs of a rank. */
typedef struct {
    int file;                   /* -1: closed */
    FILE *to;
    char *text;                 /* a line that has begun */
    int length, capacity;
} stream;

/* How far the end of a rank's processes has come. */
typedef enum { RUNS, HAS_SIGTERM, HAS_SIGKILL } stage;

typedef struct {
    pid_t pid;                  /* also the process group; reaped last, so that the number stays */
    bool ended;
    int status, signal;         /* of the process that has ended; signal 0: it ended by itself */
    stage stage;
    double until;               /* when the next stage begins, unless the stage is RUNS */
    stream out, err;
    char last[400];             /* the last line on standard error that is not empty */
} process;

typedef struct {
    int n, started;
    char **program;             /* with its arguments; ends with NULL */
    process *ranks;
    struct pollfd *polled;      /* 2 n + 1 */
    int failed;                 /* the rank that failed first; -1: none */
    int passed;                 /* the first signal that was passed on to the ranks, or 0 */
} launch;

/* ---- signals --------------------------------------------------------------------------------- */

static int signals[2] = {-1, -1};       /* a pipe: signals that arrive, a byte for each */

static void on_signal(int number)
{
    const int kept = errno;
    const unsigned char byte = (unsigned char)number;
    (void)!write(signals[1], &byte, 1);
    errno = kept;
}

/* A signal that is ignored, as in a background job of a shell, stays ignored. */
static void catch_signal(int number)
{
    struct sigaction old, new = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&new.sa_mask);
    if (number != SIGCHLD && !sigaction(number, NULL, &old) && old.sa_handler == SIG_IGN) return;
    sigaction(number, &new, NULL);
}

static bool set_flags(int file, bool wait)
{
    return fcntl(file, F_SETFD, FD_CLOEXEC) != -1 &&
           (wait || fcntl(file, F_SETFL, O_NONBLOCK) != -1);
}

/* A pipe whose two ends are not passed on. */
static bool make_pipe(int ends[2], bool wait)
{
    return !pipe(ends) && set_flags(ends[0], wait) && set_flags(ends[1], wait);
}

static bool catch_signals(void)
{
    if (!make_pipe(signals, false)) return false;
    catch_signal(SIGCHLD);
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);
    signal(SIGPIPE, SIG_IGN);           /* write fails with EPIPE instead */
    return true;
}

static const char *signal_name(int number)
{
    static const struct { int number; const char *name; } names[] = {
        {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"},
        {SIGPIPE, "SIGPIPE"}, {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
        {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
    static char other[32];
    for (size_t i = 0; i < WB__COUNT(names); i++)
        if (names[i].number == number) return names[i].name;
    snprintf(other, sizeof other, "signal %d", number);
    return other;
}

/* ---- output ---------------------------------------------------------------------------------- */

static int output_error;                /* errno of writing to standard output; 0: none */

static void note_error(FILE *to, bool failed)
{
    if (failed && to == stdout && !output_error) output_error = errno;
}

static void flush(FILE *to) { note_error(to, fflush(to) != 0); }

/* Writes the line that has begun.  Keeps its beginning in *p if it is one of standard error. */
static void write_line(process *p, int rank, stream *s)
{
    fprintf(s->to, "[%d] ", rank);
    fwrite(s->text, 1, (size_t)s->length, s->to);
    fputc('\n', s->to);
    note_error(s->to, ferror(s->to) != 0);
    if (s == &p->err && s->length) {
        const int n = WB__MIN(s->length, (int)sizeof p->last - 1);
        memcpy(p->last, s->text, (size_t)n);
        p->last[n] = 0;
    }
    s->length = 0;
}

static void add_output(process *p, int rank, stream *s, const char *bytes, size_t n)
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
        if (end || s->length == MOST_LINE) write_line(p, rank, s);
        part += end != NULL;
        bytes += part;
        n -= part;
    }
}

static void close_stream(process *p, int rank, stream *s)
{
    if (s->file < 0) return;
    close(s->file);
    s->file = -1;
    if (s->length) write_line(p, rank, s);
    flush(s->to);
}

/* Reads what has arrived. */
static void read_stream(process *p, int rank, stream *s)
{
    static char bytes[1 << 16];
    const ssize_t got = read(s->file, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        close_stream(p, rank, s);
        return;
    }
    add_output(p, rank, s, bytes, (size_t)got);
    flush(s->to);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* A free port of the loopback interface; 0: none. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    if (file < 0) return 0;
    const bool found = !bind(file, (struct sockaddr *)&at, size) &&
                       !getsockname(file, (struct sockaddr *)&at, &size);
    close(file);
    return found ? ntohs(at.sin_port) : 0;
}

static bool set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return !setenv(name, text, 1);
}

static bool is_set(const char *name)
{
    const char *value = wb__environment_text(name);
    return value && *value;
}

/* Sets a token that other processes of this machine cannot guess. */
static bool set_token(void)
{
    unsigned char number[16];
    char text[2 * sizeof number + 1];
    if (!wb__os_random(number, sizeof number)) return false;
    for (size_t i = 0; i < sizeof number; i++) snprintf(text + 2 * i, 3, "%02x", number[i]);
    return !setenv("WEBER_RENDEZVOUS_TOKEN", text, 1);
}

/* The variables that are the same for all ranks. */
static bool set_environment(int n)
{
    if (!is_set("WEBER_RENDEZVOUS")) {
        char address[32];
        const int port = free_port();
        if (!port) return false;
        snprintf(address, sizeof address, "127.0.0.1:%d", port);
        if (setenv("WEBER_RENDEZVOUS", address, 1)) return false;
    }
    if (!is_set("WEBER_RENDEZVOUS_TOKEN") && !set_token()) return false;
    if (!is_set("WEBER_NUM_THREADS") && !is_set("OMP_NUM_THREADS") &&
        !set_number("WEBER_NUM_THREADS", WB__MAX(1, wb__os_processors() / n)))
        return false;
    return set_number("WEBER_SIZE", n) && set_number("WEBER_LOCAL_SIZE", n);
}

/* The new process: becomes the program.  If that fails, it writes errno to `report`. */
static void become(const launch *l, int rank, pid_t launcher, int out, int err, int report)
{
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);           /* if the launcher is killed */
    if (getppid() != launcher) _exit(STATUS_SIGNAL + SIGTERM);
#else
    (void)launcher;
#endif
    const bool ready = nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(out, 1) >= 0 &&
                       dup2(err, 2) >= 0 && set_number("WEBER_RANK", rank) &&
                       set_number("WEBER_LOCAL_RANK", rank);
    if (ready) {
        close(nothing);
        execvp(l->program[0], l->program);
    }
    const int why = errno;
    (void)!write(report, &why, sizeof why);
    _exit(STATUS_NO_PROGRAM);
}

/* Starts one rank.  0, or errno; *executed: whether it failed in the new process. */
static int start_rank(launch *l, int rank, bool *executed)
{
    process *p = &l->ranks[rank];
    int out[2], err[2], report[2], why = 0;
    const pid_t self = getpid();
    *executed = false;
    if (!make_pipe(out, true) || !make_pipe(err, true) || !make_pipe(report, true)) return errno;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) become(l, rank, self, out[1], err[1], report[1]);
    why = child < 0 ? errno : 0;
    close(out[1]);
    close(err[1]);
    close(report[1]);
    p->out.file = out[0];
    p->err.file = err[0];
    if (child > 0) {
        setpgid(child, child);          /* here too: whichever process is first */
        p->pid = child;
        l->started++;
        ssize_t got;
        while ((got = read(report[0], &why, sizeof why)) < 0 && errno == EINTR) continue;
        if (got != sizeof why) why = 0;
        *executed = true;
    }
    close(report[0]);
    return why;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_rank(process *p, int number)
{
    if (p->pid) kill(-p->pid, number);
}

/* Ends the processes of a rank: by SIGTERM, and by SIGKILL if that is not enough. */
static void end_rank(process *p)
{
    if (p->stage != RUNS) return;
    signal_rank(p, SIGTERM);
    signal_rank(p, SIGCONT);                   /* a stopped process would not act on SIGTERM */
    p->stage = HAS_SIGTERM;
    p->until = wb__now() + GRACE;
}

static void kill_rank(process *p)
{
    if (p->stage == HAS_SIGKILL) return;
    signal_rank(p, SIGKILL);
    p->stage = HAS_SIGKILL;
    p->until = wb__now() + CLOSING;
}

static void end_all(launch *l)
{
    for (int i = 0; i < l->n; i++) end_rank(&l->ranks[i]);
}

/* Looks which ranks have ended.  What an ended rank has left running is ended too. */
static void find_ended(launch *l)
{
    for (int i = 0; i < l->n; i++) {
        process *p = &l->ranks[i];
        siginfo_t about = {0};
        if (!p->pid || p->ended || waitid(P_PID, (id_t)p->pid, &about, WEXITED | WNOHANG | WNOWAIT)
            || about.si_pid != p->pid)
            continue;
        p->ended = true;
        if (about.si_code == CLD_EXITED) p->status = about.si_status;
        else p->signal = about.si_status;
        end_rank(p);
        if (l->failed < 0 && !output_error && (p->status || p->signal)) l->failed = i;
    }
    if (l->failed >= 0) end_all(l);
}

/* Passes the signals that have arrived on to the ranks.  The second one kills them. */
static void pass_signals(launch *l)
{
    unsigned char number;
    while (read(signals[0], &number, 1) == 1) {
        if (number == SIGCHLD) continue;
        for (int i = 0; i < l->n; i++) {
            if (l->passed) kill_rank(&l->ranks[i]);
            else signal_rank(&l->ranks[i], number);
        }
        if (!l->passed) l->passed = number;
    }
}

static bool is_over(const process *p)
{
    return (p->ended || !p->pid) && p->out.file < 0 && p->err.file < 0;
}

/* Begins the next stages whose time has come.  Returns the milliseconds until the next one; -1:
 * none. */
static int next_stages(launch *l)
{
    double soonest = -1;
    for (int i = 0; i < l->n; i++) {
        process *p = &l->ranks[i];
        if (p->stage == RUNS || is_over(p)) continue;
        if (wb__now() >= p->until) {
            if (p->stage == HAS_SIGKILL && p->ended) {   /* a process of another group has them */
                close_stream(p, i, &p->out);
                close_stream(p, i, &p->err);
                continue;
            }
            if (p->stage == HAS_SIGTERM) kill_rank(p);
            else p->until = wb__now() + CLOSING;
        }
        if (soonest < 0 || p->until < soonest) soonest = p->until;
    }
    return soonest < 0 ? -1 : (int)(WB__MAX(0, soonest - wb__now()) * 1000) + 1;
}

static bool all_over(const launch *l)
{
    for (int i = 0; i < l->n; i++)
        if (!is_over(&l->ranks[i])) return false;
    return true;
}

/* Passes output and signals on until all ranks have ended. */
static void watch(launch *l)
{
    const int n = l->started;           /* poll refuses more than the process may open */
    for (;;) {
        find_ended(l);
        const int wait = next_stages(l);
        if (all_over(l)) return;
        for (int i = 0; i < n; i++) {
            l->polled[2 * i] = (struct pollfd){.fd = l->ranks[i].out.file, .events = POLLIN};
            l->polled[2 * i + 1] = (struct pollfd){.fd = l->ranks[i].err.file, .events = POLLIN};
        }
        l->polled[2 * n] = (struct pollfd){.fd = signals[0], .events = POLLIN};
        if (poll(l->polled, (nfds_t)(2 * n + 1), wait) < 0) continue;
        for (int i = 0; i < n; i++) {
            process *p = &l->ranks[i];
            if (l->polled[2 * i].revents) read_stream(p, i, &p->out);
            if (l->polled[2 * i + 1].revents) read_stream(p, i, &p->err);
        }
        pass_signals(l);
        if (output_error) end_all(l);           /* main prints the error */
    }
}

/* Reaps the ranks, and waits for what they have left running. */
static void reap(launch *l)
{
    for (int i = 0; i < l->n; i++) {
        process *p = &l->ranks[i];
        if (!p->pid) continue;
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
        while (!kill(-p->pid, 0)) {
            while (waitpid(-p->pid, NULL, WNOHANG) > 0) continue;
            if (wb__now() < p->until) poll(NULL, 0, 10);
            else if (p->stage == HAS_SIGTERM) kill_rank(p);
            else break;
        }
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static int report_failure(const launch *l)
{
    const process *p = &l->ranks[l->failed];
    fputs("weber launch: ", stderr);
    if (l->passed) fprintf(stderr, "%s was passed on to all ranks; ", signal_name(l->passed));
    fprintf(stderr, "rank %d of %d ", l->failed, l->n);
    if (p->signal) fprintf(stderr, "was ended by %s", signal_name(p->signal));
    else fprintf(stderr, "ended with status %d", p->status);
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
    return p->signal ? STATUS_SIGNAL + p->signal : p->status;
}

static int run(launch *l)
{
    int status = 0;
    if (!catch_signals() || !set_environment(l->n)) {
        fprintf(stderr, "weber launch: %s\n", strerror(errno));
        return 1;
    }
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);   /* the first process of a container may not reap in time */
#endif
    for (int i = 0; i < l->n && !status; i++) {
        bool executed;
        const int why = start_rank(l, i, &executed);
        if (!why) continue;
        if (executed)
            fprintf(stderr, "weber launch: %s cannot be executed: %s\n", l->program[0],
                    strerror(why));
        else fprintf(stderr, "weber launch: rank %d cannot be started: %s\n", i, strerror(why));
        status = executed ? STATUS_NO_PROGRAM : 1;
        l->failed = i;
    }
    watch(l);
    reap(l);
    return status ? status : l->failed < 0 ? 0 : report_failure(l);
}

static int help(FILE *to, int status)
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

static int wrong_use(const char *text, const char *what)
{
    fprintf(stderr, "weber launch: ");
    fprintf(stderr, text, what);
    fputs("; `weber launch --help` shows the use\n", stderr);
    return STATUS_USE;
}

/* Reads the number of ranks; 0: it is not one. */
static int read_number(const char *text)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && n <= MOST_RANKS ? (int)n : 0;
}

int wb__cli_launch(int n, char **words)
{
    launch l = {.failed = -1};
    int i = 0;
    for (; i < n && words[i][0] == '-'; i++) {
        if (!strcmp(words[i], "--help") || !strcmp(words[i], "-h")) return help(stdout, 0);
        if (!strcmp(words[i], "--")) {
            i++;
            break;
        }
        if (strcmp(words[i], "-np")) return wrong_use("unknown option %s", words[i]);
        if (++i == n) return wrong_use("%s needs the number of processes", "-np");
        l.n = read_number(words[i]);
        if (!l.n) return wrong_use("-np %s: it must be a number from 1 to 4096", words[i]);
    }
    if (!l.n) return wrong_use("%s is missing: the number of processes", "-np N");
    if (i == n) return wrong_use("%s is missing", "the program");
    l.program = words + i;              /* main's argv ends with NULL */
    l.ranks = wb__alloc_zero((size_t)l.n, sizeof *l.ranks);
    l.polled = wb__alloc_zero(2 * (size_t)l.n + 1, sizeof *l.polled);
    int status = 1;
    if (!l.ranks || !l.polled) {
        wb__cli_print_error();
    } else {
        for (int k = 0; k < l.n; k++) {
            l.ranks[k].out = (stream){.file = -1, .to = stdout};
            l.ranks[k].err = (stream){.file = -1, .to = stderr};
        }
        status = run(&l);
    }
    for (int k = 0; k < l.n && l.ranks; k++) {
        wb__free(l.ranks[k].out.text);
        wb__free(l.ranks[k].err.text);
    }
    wb__free(l.ranks);
    wb__free(l.polled);
    if (output_error) errno = output_error;     /* for main */
    return status;
}
