/* Programs that this process starts (os.h): systems with POSIX. */
#include "base/os.h"

#include "base/base.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

bool wb__os_set_variable(const char *name, const char *value)
{
    return !(value ? setenv(name, value, 1) : unsetenv(name));
}

bool wb__os_keep_standard_files(void)
{
    for (int file = 0; file < 3; file++) {
        if (fcntl(file, F_GETFD) != -1) continue;
        if (open("/dev/null", file ? O_RDONLY : O_WRONLY) != file) return false;
    }
    return true;
}

static bool make_private(int file) { return fcntl(file, F_SETFD, FD_CLOEXEC) != -1; }

bool wb__os_pipe(int ends[2])
{
    return !pipe(ends) && make_private(ends[0]) && make_private(ends[1]);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* The new process: becomes the program.  If that fails, it writes errno to `report`. */
static void exec_program(const wb__os_program_start *s, pid_t parent, int report)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    report = fcntl(report, F_DUPFD, WB__OS_FILES);
    make_private(report);
    if (s->leads) {
        setpgid(0, 0);
        signal(SIGPIPE, SIG_DFL);
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(128 + SIGTERM);
#endif
    }
    (void)parent;
    bool ready = nothing >= 0 && (!s->folder || !chdir(s->folder));
    for (int i = 0; i < WB__OS_FILES; i++) {
        const int from = s->files[i] >= 0 ? s->files[i] : i < 3 ? nothing : -1;
        if (from == i) ready = ready && fcntl(i, F_SETFD, 0) != -1;
        else if (from >= 0) ready = ready && dup2(from, i) == i;
    }
    if (ready) execvp(s->words[0], (char *const *)(uintptr_t)s->words);
    const int why = errno;
    (void)!write(report, &why, sizeof why);
    _exit(127);
}

long wb__os_start(const wb__os_program_start *s, bool *executed)
{
    int report[2], why = 0;
    const pid_t self = getpid();
    *executed = false;
    if (!wb__os_pipe(report)) return 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) exec_program(s, self, report[1]);
    if (child < 0) why = errno;
    close(report[1]);
    if (child > 0 && s->leads) setpgid(child, child);   /* here and there: the first one counts */
    if (child > 0 && wb__os_read(report[0], &why, sizeof why) == sizeof why) {
        *executed = true;
        wb__os_wait(child, NULL);
    }
    close(report[0]);
    errno = why;
    return why ? 0 : child;
}

/* ---- ending ---------------------------------------------------------------------------------- */

bool wb__os_has_ended(long process, wb__os_end *end)
{
    siginfo_t s = {0};
    if (waitid(P_PID, (id_t)process, &s, WEXITED | WNOHANG | WNOWAIT) || s.si_pid != process)
        return false;
    *end = (wb__os_end){0};
    if (s.si_code == CLD_EXITED) end->status = s.si_status;
    else end->signal = s.si_status;
    return true;
}

bool wb__os_wait(long process, wb__os_end *end)
{
    int status;
    pid_t got;
    while ((got = waitpid((pid_t)process, &status, 0)) < 0 && errno == EINTR) continue;
    if (got > 0 && end)
        *end = (wb__os_end){.status = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                            .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    return got > 0;
}

void wb__os_kill(long process) { kill((pid_t)process, SIGKILL); }
void wb__os_signal_group(long process, int number) { kill((pid_t)-process, number); }
void wb__os_kill_group(long process) { kill((pid_t)-process, SIGKILL); }

void wb__os_end_group(long process)
{
    kill((pid_t)-process, SIGTERM);
    kill((pid_t)-process, SIGCONT);     /* else a stopped process would not act on SIGTERM */
}

bool wb__os_group_runs(long process)
{
    while (waitpid((pid_t)-process, NULL, WNOHANG) > 0) continue;
    return !kill((pid_t)-process, 0);
}

/* ---- signals --------------------------------------------------------------------------------- */

static int posix_process_signals[2] = {-1, -1}; /* a pipe: signals that arrive, a byte for each */

static void on_signal(int number)
{
    const int kept = errno;
    const unsigned char byte = (unsigned char)number;
    (void)!write(posix_process_signals[1], &byte, 1);
    errno = kept;
}

int wb__os_lead(void)
{
    static const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    if (!wb__os_pipe(posix_process_signals)) return -1;
    for (int i = 0; i < 2; i++)
        if (fcntl(posix_process_signals[i], F_SETFL, O_NONBLOCK) == -1) return -1;
    for (size_t i = 0; i < WB__COUNT(caught); i++) {
        struct sigaction old, new = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&new.sa_mask);
        /* a signal that is ignored, as in a background job of a shell, stays ignored */
        if (i && !sigaction(caught[i], NULL, &old) && old.sa_handler == SIG_IGN) continue;
        sigaction(caught[i], &new, NULL);
    }
    signal(SIGPIPE, SIG_IGN);           /* write fails with EPIPE instead */
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);   /* a container's first process may reap too late */
#endif
    return posix_process_signals[0];
}

int wb__os_next_signal(void)
{
    unsigned char number;
    while (read(posix_process_signals[0], &number, 1) == 1)
        if (number != SIGCHLD) return number;
    return 0;
}

const char *wb__os_signal_text(int number) { return strsignal(number); }

const char *wb__os_signal_name(int number)
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
