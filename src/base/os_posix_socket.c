/* Sockets, and waiting for files (os.h): systems with POSIX. */
#include "base/os.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL
enum { SEND_FLAGS = MSG_NOSIGNAL };
#else
enum { SEND_FLAGS = 0 };                /* SO_NOSIGPIPE of the socket is set instead */
#endif

static void prepare_socket(int file)
{
    fcntl(file, F_SETFD, FD_CLOEXEC);
    fcntl(file, F_SETFL, O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    const int yes = 1;
    setsockopt(file, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
}

/* Closes a socket that does not work.  Returns -1 with the error. */
static int close_failed_socket(int file, int why)
{
    close(file);
    errno = why;
    return -1;
}

static int64_t result_of_call(int64_t done)
{
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    return done < 0 && later ? WB__OS_NOT_NOW : done;
}

void wb__os_hang_up(int socket) { close(socket); }

int64_t wb__os_send(int socket, const void *bytes, size_t n)
{
    return result_of_call(send(socket, bytes, n, SEND_FLAGS));
}

int64_t wb__os_receive(int socket, void *bytes, size_t n)
{
    return result_of_call(recv(socket, bytes, n, 0));
}

/* ---- listening ------------------------------------------------------------------------------- */

static bool is_numeric(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    const bool numeric = !getaddrinfo(host, NULL, &hints, &found);
    if (found) freeaddrinfo(found);
    return numeric;
}

static int listen_at(const struct addrinfo *a, bool every_address)
{
    const int yes = 1, no = 0;
    const int file = socket(a->ai_family, SOCK_STREAM, 0);
    if (file < 0) return -1;
    prepare_socket(file);
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (every_address && a->ai_family == AF_INET6)
        setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (!bind(file, a->ai_addr, a->ai_addrlen) && !listen(file, 128)) return file;
    return close_failed_socket(file, errno);
}

int wb__os_listen(const char *host, const char *port, const char **why)
{
    const bool every = !is_numeric(host) && strcmp(host, "localhost");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    if (every) hints.ai_family = AF_INET6;
    for (;;) {
        const int failed = getaddrinfo(every ? NULL : host, port, &hints, &found);
        int listener = -1;
        *why = failed ? gai_strerror(failed) : "";
        for (struct addrinfo *at = failed ? NULL : found; at && listener < 0; at = at->ai_next) {
            listener = listen_at(at, every);
            if (listener < 0) *why = wb__os_reason();
        }
        if (found) freeaddrinfo(found);
        found = NULL;
        if (listener >= 0 || hints.ai_family != AF_INET6) return listener;
        hints.ai_family = AF_INET;      /* for a machine without IPv6 */
    }
}

int wb__os_accept(int listener)
{
    const int file = accept(listener, NULL, NULL);
    if (file >= 0) prepare_socket(file);
    return file;
}

int wb__os_free_port(void)
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

/* ---- connecting ------------------------------------------------------------------------------ */

wb__os_address *wb__os_addresses(const char *host, const char *port, const char **why)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int failed = getaddrinfo(host, port, &hints, &found);
    if (!failed) return (wb__os_address *)found;
    *why = gai_strerror(failed);
    return NULL;
}

wb__os_address *wb__os_next_address(wb__os_address *a)
{
    return (wb__os_address *)((struct addrinfo *)a)->ai_next;
}

void wb__os_free_addresses(wb__os_address *a) { freeaddrinfo((struct addrinfo *)a); }

int wb__os_connect(wb__os_address *to, double seconds)
{
    const struct addrinfo *a = (const struct addrinfo *)to;
    const int64_t until = wb__os_clock(WB__OS_STEADY) + (int64_t)(seconds * 1e9);
    const int file = socket(a->ai_family, SOCK_STREAM, 0);
    int why = 0;
    socklen_t size = sizeof why;
    if (file < 0) return -1;
    prepare_socket(file);
    if (!connect(file, a->ai_addr, a->ai_addrlen)) return file;
    if (errno != EINPROGRESS && errno != EINTR) return close_failed_socket(file, errno);
    wb__os_watched w = {.file = file, .writes = true};
    while (!w.ready) {
        const double left = 1e-9 * (double)(until - wb__os_clock(WB__OS_STEADY));
        if (left <= 0) return close_failed_socket(file, WB__OS_LATE);
        if (wb__os_poll(&w, 1, left) < 0) return close_failed_socket(file, errno);
    }
    if (getsockopt(file, SOL_SOCKET, SO_ERROR, &why, &size)) why = errno;
    return why ? close_failed_socket(file, why) : file;
}

/* ---- waiting for files ----------------------------------------------------------------------- */

int wb__os_poll(wb__os_watched *all, int n, double seconds)
{
    struct pollfd polled[n + 1];
    const double most = 1e6, wait = seconds < most ? seconds : most;
    for (int i = 0; i < n; i++)
        polled[i] = (struct pollfd){.fd = all[i].file, .events = all[i].writes ? POLLOUT : POLLIN};
    const int ready = poll(polled, (nfds_t)n, seconds < 0 ? -1 : (int)(wait * 1000) + 1);
    for (int i = 0; i < n; i++) all[i].ready = ready > 0 && polled[i].revents;
    return ready < 0 && errno == EINTR ? 0 : ready;
}
