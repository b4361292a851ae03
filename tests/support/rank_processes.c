/* See rank_processes.h. */
#include "rank_processes.h"

#include "process.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };

/* Becomes process i: this program with other arguments, whose output is the file `path`. */
static void become(int i, int processes, const char *folder, const char *path, const char *how,
                   const char *devices)
{
    char self[4096], number[12], size[12], meeting[200];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0 || !freopen(path, "w", stdout) || dup2(1, 2) < 0) _exit(3);
    self[n] = 0;
    snprintf(number, sizeof number, "%d", i);
    snprintf(size, sizeof size, "%d", processes);
    snprintf(meeting, sizeof meeting, "file:%s/ranks", folder);
    setenv("WEBER_RANK", number, 1);
    setenv("WEBER_SIZE", size, 1);
    setenv("WEBER_LOCAL_RANK", number, 1);
    setenv("WEBER_LOCAL_SIZE", size, 1);
    setenv("WEBER_RENDEZVOUS", meeting, 1);
    execl(self, self, "child", how, devices, (char *)NULL);
    _exit(3);
}

int run_processes(int processes, const char *how, const char *devices, char text[8192])
{
    char folder[64], path[200];
    pid_t child[MOST];
    int failed = 0;
    size_t n = 0;
    assert_true(processes <= MOST);
    snprintf(folder, sizeof folder, "%s", process_folder());
    for (int i = 0; i < processes; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        fflush(NULL);
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (!child[i]) become(i, processes, folder, path, how, devices);
    }
    for (int i = 0; i < processes; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        failed += status != 0;
        snprintf(path, sizeof path, "%s/%d", folder, i);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        n += fread(text + n, 1, 8191 - n, f);
        fclose(f);
    }
    text[n] = 0;
    process_remove(folder);
    return failed;
}
