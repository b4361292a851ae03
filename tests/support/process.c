/* See process.h. */
#include "process.h"

#include "test.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *folder, const char *const *environment,
                   const char *const *arguments, int out, int err)
{
    static const char *const ours[] = {"WEBER_BACKENDS", "FAKES", "WEBER_DEBUG",
                                       "WEBER_CPU_DEVICES", "WEBER_TEST_DEVICE", "FAKE_TRACE"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) unsetenv(ours[i]);
    for (; *environment; environment++) putenv((char *)(uintptr_t)*environment);
    dup2(out, 1);
    dup2(err, 2);
    alarm(60);
    if (folder && chdir(folder) != 0) _exit(126);
    execv(*arguments, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* Reads both outputs until the child has closed them. */
static void collect(process *p, int out, int err)
{
    struct pollfd ends[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    char *texts[2] = {p->out, p->err};
    size_t n[2] = {0, 0};
    for (int open = 2; open;) {
        if (poll(ends, 2, -1) < 0) {
            if (errno == EINTR) continue;
            fail_msg("poll: %s", strerror(errno));
        }
        for (int i = 0; i < 2; i++) {
            if (ends[i].fd < 0 || !ends[i].revents) continue;
            ssize_t got = read(ends[i].fd, texts[i] + n[i], sizeof p->out - 1 - n[i]);
            if (got > 0) {
                n[i] += (size_t)got;
                continue;
            }
            ends[i].fd = -1;
            open--;
        }
    }
}

void process_run(process *p, const char *folder, const char *const *environment,
                 const char *const *arguments)
{
    int out[2], err[2], status;
    memset(p, 0, sizeof *p);
    fflush(NULL);
    if (pipe(out) || pipe(err)) fail_msg("pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
        fcntl(err[i], F_SETFD, FD_CLOEXEC);
    }
    pid_t child = fork();
    if (child < 0) fail_msg("fork: %s", strerror(errno));
    if (!child) become(folder, environment, arguments, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    collect(p, out[0], err[0]);
    close(out[0]);
    close(err[0]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail_msg("waitpid: %s", strerror(errno));
    p->status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

const char *process_self(void)
{
    static char path[4096];
    if (!wb__os_program(path, sizeof path)) fail_msg("the program's path is unknown");
    return path;
}

/* ---- folders --------------------------------------------------------------------------------- */

const char *process_folder(void)
{
    static char name[64];
    strcpy(name, "/tmp/weber-test-XXXXXX");
    if (!mkdtemp(name)) fail_msg("%s: %s", name, strerror(errno));
    process_file(name, "Project.toml", "");
    return name;
}

void process_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fputs(text, file) < 0 || fclose(file)) fail_msg("%s: %s", path, strerror(errno));
}

const char *process_text(const char *folder, const char *name)
{
    static char text[8192];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    return text;
}

void process_remove(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (strncmp(folder, "/tmp/weber-test-", 16) || system(command)) fail_msg("%s", command);
}
