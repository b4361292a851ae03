/* Processes that meet at a rendezvous, for the tests of it. */
#ifndef TEST_MEETING_H
#define TEST_MEETING_H

#include "folder.h"

#include "dist/rendezvous.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MOST_RANKS = 8, MOST_BYTES = WB__RENDEZVOUS_MOST, ID = 128 };

/* One process of a rendezvous, and what became of it. */
typedef struct {
    int rank, size;
    double timeout;
    int delay;                  /* milliseconds before it begins */
    bool dies;                  /* is killed 300 ms after its beginning */
    int status;
    double took;
    char error[1000];
    unsigned char bytes[MOST_BYTES];
} member;

static member *members;         /* in memory that the processes share */
static char address[200];
static int n_members;

static inline unsigned char byte_of(size_t i) { return (unsigned char)(i * 7 + i / 251 + 3); }

static inline void add(int rank, int size, double timeout, int delay)
{
    assert_true(n_members < MOST_RANKS);
    members[n_members++] = (member){.rank = rank, .size = size, .timeout = timeout,
                                    .delay = delay, .status = -1};
}

static inline void be(member *m, size_t n)
{
    poll(NULL, 0, m->delay);
    for (size_t i = 0; i < n; i++) m->bytes[i] = m->rank ? 0 : byte_of(i);
    const wb__rendezvous_options o = {address, m->rank, m->size, m->timeout};
    const double begun = wb__now();
    m->status = wb__rendezvous(&o, m->bytes, n);
    m->took = wb__now() - begun;
    snprintf(m->error, sizeof m->error, "%s", wb_error());
}

/* Runs the processes that have been added. */
static inline void run(size_t n)
{
    pid_t pids[MOST_RANKS];
    fflush(NULL);
    for (int i = 0; i < n_members; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i]) continue;
        alarm(60);
        be(&members[i], n);
        _exit(0);
    }
    for (int i = 0; i < n_members; i++)
        if (members[i].dies) {
            poll(NULL, 0, members[i].delay + 300);
            kill(pids[i], SIGKILL);
        }
    for (int i = 0; i < n_members; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status && !members[i].dies) fail_msg("member %d ended with status %d", i, status);
    }
}

static inline void expect_bytes(const member *m, size_t n)
{
    if (m->status) fail_msg("rank %d: %s", m->rank, m->error);
    for (size_t i = 0; i < n; i++)
        if (m->bytes[i] != byte_of(i)) fail_msg("rank %d: byte %zu differs", m->rank, i);
}

/* A socket that is bound to a free port, whose number is written to `address`. */
static inline int bind_port(const char *host)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(file >= 0);
    assert_int_equal(bind(file, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(file, (struct sockaddr *)&at, &size), 0);
    snprintf(address, sizeof address, "%s:%d", host, ntohs(at.sin_port));
    return file;
}

typedef enum { TCP, FILES, FORMS } form;

/* Begins a test: a new address, and no processes. */
static inline void begin(form f)
{
    n_members = 0;
    if (f == TCP) close(bind_port("127.0.0.1"));
    else snprintf(address, sizeof address, "file:%s/meeting", folder);
}

static inline void expect_error(const member *m, const char *const *facts)
{
    if (m->status != WB_ERROR_DEVICE || !has_facts(m->error, facts))
        fail_msg("member of rank %d: %d: %s", m->rank, m->status, m->error);
}

static inline void write_whole(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A fixture: the folder, and the memory of the members. */
static inline int make_meeting(void **state)
{
    members = mmap(NULL, MOST_RANKS * sizeof *members, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return members == MAP_FAILED ? 1 : make_folder(state);
}

#endif
