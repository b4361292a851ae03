/* The rendezvous by TCP (rendezvous.h).  A rank that connects sends a greeting; rank 0 answers when
 * all ranks have greeted, or when it gives up:
 *
 *     greeting    magic (8 bytes), version, rank, size, number of bytes; a random number (16
 *                 bytes); the seal of all this (32 bytes)
 *     answer      magic (8 bytes), 0 or an error code, number of bytes; the seal of the rank's
 *                 random number, this head and what follows; the bytes, or a message
 *     receipt     one byte, when the rank has the bytes
 *
 * A seal is the HMAC-SHA256 with the token of the job as key: WEBER_RENDEZVOUS_TOKEN, or no
 * bytes.  So a process without the token neither takes the place of a rank nor gives a rank its
 * bytes, and the token itself is not sent.  Who reads the network can send a greeting once more,
 * and so takes a place in a rendezvous with the same token.  A connection whose greeting has
 * another version or seal, or is not whole in time, is dropped without an answer. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE             /* getaddrinfo and MSG_NOSIGNAL of strict C */
#endif
#include "dist/rendezvous.h"

#include "base/environment.h"
#include "base/sha256.h"
#include "base/os.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    NUMBER = 16,                    /* bytes of a random number */
    VERSIONED = 12,                 /* of magic and version */
    GREETING_HEAD = 24, GREETING = GREETING_HEAD + NUMBER + WB__SHA256,
    ANSWER_HEAD = 16, ANSWER = ANSWER_HEAD + WB__SHA256,
    MOST_TEXT = 1000,               /* of a message */
    GREETING_SECONDS = 2,           /* from a connection to its greeting */
    MOST_STRANGERS = 64             /* connections that have not greeted */
};
static const char magic[] = "weber-rv";     /* 8 characters */

#ifdef MSG_NOSIGNAL
enum { SEND_FLAGS = MSG_NOSIGNAL };
#else
enum { SEND_FLAGS = 0 };            /* SO_NOSIGPIPE is set */
#endif

/* ---- shared ---------------------------------------------------------------------------------- */

void wb__rendezvous_put(unsigned char *to, uint32_t x)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> (24 - 8 * i));
}

uint32_t wb__rendezvous_get(const unsigned char *from)
{
    uint32_t x = 0;
    for (int i = 0; i < 4; i++) x = x << 8 | from[i];
    return x;
}

int wb__rendezvous_random(unsigned char *number, size_t n)
{
    if (wb__os_random(number, n)) return 0;
    return wb__fail(WB_ERROR_FILE, "rendezvous: /dev/urandom cannot be read: %s", strerror(errno));
}

static void begin_seal(wb__hmac *h)
{
    const char *token = wb__environment_path("WEBER_RENDEZVOUS_TOKEN");
    wb__hmac_begin(h, token, token ? strlen(token) : 0);
}

static void seal_greeting(const unsigned char *greeting, unsigned char to[WB__SHA256])
{
    wb__hmac h;
    begin_seal(&h);
    wb__hmac_add(&h, greeting, GREETING - WB__SHA256);
    wb__hmac_end(&h, to);
}

static void seal_answer(const unsigned char *greeting, const unsigned char *answer,
                        const void *bytes, size_t n, unsigned char to[WB__SHA256])
{
    wb__hmac h;
    begin_seal(&h);
    wb__hmac_add(&h, greeting + GREETING_HEAD, NUMBER);
    wb__hmac_add(&h, answer, ANSWER_HEAD);
    wb__hmac_add(&h, bytes, n);
    wb__hmac_end(&h, to);
}

int wb__rendezvous_missing(const wb__rendezvous_options *o, const bool *come, const char *also)
{
    enum { SHOWN = 16 };
    wb__text list = {0};
    int missing = 0;
    for (int r = 0; r < o->size; r++) {
        if (come[r]) continue;
        if (missing++ < SHOWN) wb__text_add(&list, "%s%d", missing > 1 ? ", " : "", r);
    }
    if (missing > SHOWN) wb__text_add(&list, " and %d more", missing - SHOWN);
    char *ranks = wb__text_take(&list);
    const int status =
        wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank 0 of %d has waited %g s for %s %s%s",
                 o->address, o->size, o->timeout, missing > 1 ? "the ranks" : "rank",
                 ranks ? ranks : "?", also);
    wb__free(ranks);
    return status;
}

int wb__rendezvous_refused(const wb__rendezvous_options *o, const void *text, size_t n)
{
    wb__text clean = {0};
    char *copy = wb__alloc(n + 1);
    if (!copy) return wb_error_code();
    memcpy(copy, text, n);
    copy[n] = 0;
    wb__text_foreign(&clean, copy);
    char *message = wb__text_take(&clean);
    const int status = wb__fail(WB_ERROR_DEVICE, "rank %d of %d: rank 0 has ended the rendezvous:"
                                " %s", o->rank, o->size, message ? message : "?");
    wb__free(message);
    wb__free(copy);
    return status;
}

/* ---- addresses ------------------------------------------------------------------------------- */

typedef struct { char host[256], port[8]; } address;

static int wrong_address(const char *text)
{
    return wb__fail(WB_ERROR_ARGUMENT, "rendezvous: the address \"%s\" is none of HOST:PORT,"
                    " [IPV6]:PORT and file:PATH", text);
}

static int read_address(const char *text, address *a)
{
    const bool brackets = *text == '[';
    const char *begin = text + brackets;
    const char *end = strchr(begin, brackets ? ']' : ':');
    if (!end || end == begin || (size_t)(end - begin) >= sizeof a->host) return wrong_address(text);
    memcpy(a->host, begin, (size_t)(end - begin));
    a->host[end - begin] = 0;
    end += brackets;
    const size_t digits = strspn(end + (*end == ':'), "0123456789");
    if (*end != ':' || !digits || digits > 5 || end[1 + digits]) return wrong_address(text);
    const long port = strtol(end + 1, NULL, 10);
    if (port < 1 || port > 65535) return wrong_address(text);
    memcpy(a->port, end + 1, digits + 1);
    return 0;
}

static bool is_numeric(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    const bool numeric = !getaddrinfo(host, NULL, &hints, &found);
    if (found) freeaddrinfo(found);
    return numeric;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void prepare(int file)
{
    fcntl(file, F_SETFD, FD_CLOEXEC);
    fcntl(file, F_SETFL, O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    const int yes = 1;
    setsockopt(file, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
}

/* Waits until the socket is ready; false: the time is over. */
static bool wait_for(int file, short events, double until)
{
    for (;;) {
        const double left = until - wb__now();
        struct pollfd p = {.fd = file, .events = events};
        if (left <= 0) return false;
        const int ready = poll(&p, 1, (int)(WB__MIN(left, 1000) * 1000) + 1);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

static bool again(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static bool send_all(int file, const void *bytes, size_t n, double until)
{
    for (const char *at = bytes; n;) {
        const ssize_t done = send(file, at, n, SEND_FLAGS);
        if (done < 0 && !(again() && wait_for(file, POLLOUT, until))) return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

static bool receive_all(int file, void *bytes, size_t n, double until)
{
    for (char *at = bytes; n;) {
        const ssize_t done = recv(file, at, n, 0);
        if (!done || (done < 0 && !(again() && wait_for(file, POLLIN, until)))) return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

typedef struct {
    int file;
    int rank;                           /* -1: it has not greeted yet */
    double until;                       /* when the greeting must be whole */
    int length;                         /* of the part of the greeting that has arrived */
    unsigned char greeting[GREETING];
} connection;

typedef struct {
    const wb__rendezvous_options *o;
    size_t n;
    int listener;
    connection *connections;
    struct pollfd *polled;              /* one more than connections; the last is the listener */
    int count, capacity, polled_capacity;
    bool *come;
    int missing;
    bool refused;                       /* a greeting had another version or seal */
} host;

static int listen_at(const struct addrinfo *a, bool every_address)
{
    const int yes = 1, no = 0;
    const int file = socket(a->ai_family, SOCK_STREAM, 0);
    if (file < 0) return -1;
    prepare(file);
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (every_address && a->ai_family == AF_INET6)
        setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (!bind(file, a->ai_addr, a->ai_addrlen) && !listen(file, 128)) return file;
    const int why = errno;
    close(file);
    errno = why;
    return -1;
}

/* A host that is a name may be known under another address to this machine than to the others, so
 * rank 0 then listens at all addresses of this machine. */
static int open_listener(host *h, const address *a)
{
    const bool every = !is_numeric(a->host) && strcmp(a->host, "localhost");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    if (every) hints.ai_family = AF_INET6;
    for (;;) {
        const int failed = getaddrinfo(every ? NULL : a->host, a->port, &hints, &found);
        const char *why = failed ? gai_strerror(failed) : "";
        for (struct addrinfo *at = failed ? NULL : found; at && h->listener < 0; at = at->ai_next) {
            h->listener = listen_at(at, every);
            if (h->listener < 0) why = strerror(errno);
        }
        if (found) freeaddrinfo(found);
        found = NULL;
        if (h->listener >= 0) return 0;
        if (hints.ai_family != AF_INET6)
            return wb__fail(WB_ERROR_DEVICE, "rendezvous: rank 0 cannot listen at %s: %s",
                            h->o->address, why);
        hints.ai_family = AF_INET;      /* a machine without IPv6 */
    }
}

static void drop(host *h, int i)
{
    connection *c = &h->connections[i];
    if (c->rank > 0) {
        h->come[c->rank] = false;
        h->missing++;
    }
    close(c->file);
    *c = h->connections[--h->count];
}

/* Drops connections whose time to greet is over.  Returns the seconds until that of the next one,
 * or `left`. */
static double drop_late(host *h, double left)
{
    for (int i = h->count - 1; i >= 0; i--) {
        const double rest = h->connections[i].until - wb__now();
        if (h->connections[i].rank >= 0) continue;
        if (rest <= 0) drop(h, i);
        else left = WB__MIN(left, rest);
    }
    return left;
}

/* Drops connections that have not greeted until `most` are left. */
static void drop_strangers(host *h, int most)
{
    int strangers = 0;
    for (int i = h->count - 1; i >= 0; i--)
        if (h->connections[i].rank < 0 && ++strangers > most) drop(h, i);
}

static int accept_connections(host *h)
{
    for (;;) {
        const int file = accept(h->listener, NULL, NULL);
        if (file < 0) return 0;
        prepare(file);
        drop_strangers(h, MOST_STRANGERS - 1);
        if (!wb__reserve(&h->connections, &h->capacity, h->count + 1, sizeof(connection))) {
            close(file);
            return wb_error_code();
        }
        h->connections[h->count++] = (connection){
            .file = file, .rank = -1, .until = wb__now() + GREETING_SECONDS};
    }
}

/* Whether a greeting that is not whole may be one of a rank. */
static bool may_be_ours(host *h, const connection *c)
{
    unsigned char versioned[VERSIONED];
    memcpy(versioned, magic, 8);
    wb__rendezvous_put(versioned + 8, WB__RENDEZVOUS_VERSION);
    if (!memcmp(c->greeting, versioned, (size_t)WB__MIN(c->length, VERSIONED))) return true;
    h->refused |= c->length >= VERSIONED && !memcmp(c->greeting, magic, 8);
    return false;
}

/* Whether a whole greeting comes from a process that has the token. */
static bool is_sealed(host *h, const connection *c)
{
    unsigned char right[WB__SHA256];
    seal_greeting(c->greeting, right);
    if (wb__same_secret(c->greeting + GREETING - WB__SHA256, right, sizeof right)) return true;
    h->refused = true;
    return false;
}

/* Judges a whole greeting that is sealed.  *ours: whether it comes from a rank. */
static int judge(host *h, connection *c, bool *ours)
{
    const wb__rendezvous_options *o = h->o;
    const uint32_t rank = wb__rendezvous_get(c->greeting + 12);
    const uint32_t size = wb__rendezvous_get(c->greeting + 16);
    const uint32_t n = wb__rendezvous_get(c->greeting + 20);
    if (n != h->n)
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %u has another version of Weber"
                        " than rank 0", o->address, rank);
    if (size != (uint32_t)o->size)
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %u is one of %u ranks, rank 0 one"
                        " of %d", o->address, rank, size, o->size);
    *ours = rank < size;
    if (!*ours) return 0;
    if (h->come[rank])                  /* rank 0 is this process */
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: two processes are rank %u of %d",
                        o->address, rank, o->size);
    h->come[rank] = true;
    h->missing--;
    c->rank = (int)rank;
    return 0;
}

/* Reads what has arrived on connection i.  A rank that has greeted sends nothing more. */
static int read_connection(host *h, int i)
{
    connection *c = &h->connections[i];
    char more;
    bool ours = true;
    const ssize_t got = c->rank > 0 ? recv(c->file, &more, 1, 0)
                      : recv(c->file, c->greeting + c->length, (size_t)(GREETING - c->length), 0);
    if (got < 0 && again()) return 0;
    if (got <= 0 || c->rank > 0) {
        drop(h, i);
        return 0;
    }
    c->length += (int)got;
    const bool whole = c->length == GREETING;
    ours = may_be_ours(h, c) && (!whole || is_sealed(h, c));
    const int status = ours && whole ? judge(h, c, &ours) : 0;
    if (!ours) drop(h, i);
    return status;
}

static int gather(host *h, double until)
{
    int status = 0;
    while (!status && h->missing) {
        const double left = drop_late(h, until - wb__now());
        if (wb__now() >= until)
            return wb__rendezvous_missing(
                h->o, h->come, h->refused ? "; a process was refused, since it has another"
                " WEBER_RENDEZVOUS_TOKEN or another version of Weber" : "");
        if (!wb__reserve(&h->polled, &h->polled_capacity, h->count + 1, sizeof *h->polled))
            return wb_error_code();
        const int count = h->count;
        for (int i = 0; i < count; i++)
            h->polled[i] = (struct pollfd){.fd = h->connections[i].file, .events = POLLIN};
        h->polled[count] = (struct pollfd){.fd = h->listener, .events = POLLIN};
        const int wait = (int)(WB__MIN(left, 1000) * 1000) + 1;
        if (poll(h->polled, (nfds_t)count + 1, wait) <= 0) continue;
        for (int i = count - 1; i >= 0 && !status; i--)     /* drop() moves later ones only */
            if (h->polled[i].revents) status = read_connection(h, i);
        if (!status && h->polled[count].revents) status = accept_connections(h);
    }
    return status;
}

/* Answers a connection whose greeting is sealed. */
static void answer(const connection *c, int status, const void *bytes, size_t n, double until)
{
    unsigned char head[ANSWER];
    memcpy(head, magic, 8);
    wb__rendezvous_put(head + 8, (uint32_t)status);
    wb__rendezvous_put(head + 12, (uint32_t)n);
    seal_answer(c->greeting, head, bytes, n, head + ANSWER_HEAD);
    if (send_all(c->file, head, ANSWER, until)) send_all(c->file, bytes, n, until);
}

/* Sends the bytes, or the message of the error that is set, and waits for the receipts. */
static int answer_all(host *h, int status, const void *bytes, double until)
{
    if (status) bytes = wb_error();
    const size_t n = status ? WB__MIN(strlen(bytes), MOST_TEXT) : h->n;
    for (int i = 0; i < h->count; i++) {
        const connection *c = &h->connections[i];
        const bool greeted = c->length == GREETING;         /* with a rank that may be wrong */
        if (c->rank > 0 || (status && greeted)) answer(c, status, bytes, n, until);
    }
    for (int i = 0; i < h->count && !status; i++) {
        char receipt;
        const connection *c = &h->connections[i];
        if (c->rank > 0 && !receive_all(c->file, &receipt, 1, until))
            return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has ended before it"
                            " had the bytes of rank 0", h->o->address, c->rank, h->o->size);
    }
    return status;
}

static int host_ranks(const wb__rendezvous_options *o, const address *a, const void *bytes,
                      size_t n, double until)
{
    host h = {.o = o, .n = n, .listener = -1, .missing = o->size - 1};
    h.come = wb__alloc_zero((size_t)o->size, sizeof *h.come);
    if (!h.come) return wb_error_code();
    h.come[0] = true;
    int status = open_listener(&h, a);
    if (!status) {
        status = gather(&h, until);
        status = answer_all(&h, status, bytes, WB__MAX(until, wb__now() + WB__RENDEZVOUS_GRACE));
    }
    for (int i = 0; i < h.count; i++) close(h.connections[i].file);
    if (h.listener >= 0) close(h.listener);
    wb__free(h.connections);
    wb__free(h.polled);
    wb__free(h.come);
    return status;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* How an attempt ended.  CONNECTED: rank 0 has been reached and has not answered. */
typedef enum { DONE, FAILED, UNREACHED, CONNECTED } outcome;

static int connect_to(const struct addrinfo *a, double until)
{
    const int file = socket(a->ai_family, SOCK_STREAM, 0);
    int why = 0;
    socklen_t size = sizeof why;
    if (file < 0) return -1;
    prepare(file);
    if (!connect(file, a->ai_addr, a->ai_addrlen)) return file;
    why = errno;
    if (why == EINPROGRESS || why == EINTR) {
        if (!wait_for(file, POLLOUT, until)) why = ETIMEDOUT;
        else if (getsockopt(file, SOL_SOCKET, SO_ERROR, &why, &size)) why = errno;
        if (!why) return file;
    }
    close(file);
    errno = why;
    return -1;
}

/* Greets rank 0 and reads its answer. */
static outcome talk(const wb__rendezvous_options *o, int file, void *bytes, size_t n, double until)
{
    unsigned char greeting[GREETING], head[ANSWER], right[WB__SHA256];
    char text[MOST_TEXT];
    memcpy(greeting, magic, 8);
    wb__rendezvous_put(greeting + 8, WB__RENDEZVOUS_VERSION);
    wb__rendezvous_put(greeting + 12, (uint32_t)o->rank);
    wb__rendezvous_put(greeting + 16, (uint32_t)o->size);
    wb__rendezvous_put(greeting + 20, (uint32_t)n);
    if (wb__rendezvous_random(greeting + GREETING_HEAD, NUMBER)) return FAILED;
    seal_greeting(greeting, greeting + GREETING - WB__SHA256);
    if (!send_all(file, greeting, GREETING, until)) return CONNECTED;
    if (!receive_all(file, head, ANSWER, until) || memcmp(head, magic, 8)) return CONNECTED;
    const uint32_t length = wb__rendezvous_get(head + 12);
    const bool refused = wb__rendezvous_get(head + 8) != 0;
    void *to = refused ? text : bytes;
    if (refused ? length > MOST_TEXT : length != n) return CONNECTED;
    if (!receive_all(file, to, length, until)) return CONNECTED;
    seal_answer(greeting, head, to, length, right);
    if (!wb__same_secret(head + ANSWER_HEAD, right, sizeof right)) return CONNECTED;
    if (refused) {
        wb__rendezvous_refused(o, text, length);
        return FAILED;
    }
    send_all(file, "", 1, until);
    return DONE;
}

static outcome attempt(const wb__rendezvous_options *o, const address *a, void *bytes, size_t n,
                       double until, char *why, size_t capacity)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    outcome end = UNREACHED;
    const int failed = getaddrinfo(a->host, a->port, &hints, &found);
    if (failed) snprintf(why, capacity, "%s", gai_strerror(failed));
    for (struct addrinfo *at = failed ? NULL : found; at && end == UNREACHED; at = at->ai_next) {
        const double soon = WB__MIN(until, wb__now() + 5);      /* the next address may work */
        const int file = connect_to(at, soon);
        if (file < 0) {                 /* an attempt that time has cut short has no new reason */
            if (errno != ETIMEDOUT || !*why) snprintf(why, capacity, "%s", strerror(errno));
            continue;
        }
        end = talk(o, file, bytes, n, until + WB__RENDEZVOUS_GRACE);
        close(file);
    }
    if (found) freeaddrinfo(found);
    return end;
}

static int join(const wb__rendezvous_options *o, const address *a, void *bytes, size_t n,
                double until)
{
    char why[256] = "";
    for (int pause = 10;; pause = WB__MIN(2 * pause, 500)) {
        const outcome end = attempt(o, a, bytes, n, until, why, sizeof why);
        if (end == DONE) return 0;
        if (end == FAILED) return wb_error_code();
        if (end == CONNECTED) snprintf(why, sizeof why, "what listens there gave no answer: not all"
                                       " ranks have come, or it is not rank 0, or has another"
                                       " WEBER_RENDEZVOUS_TOKEN or version of Weber");
        const double left = until - wb__now();
        if (left <= 0)
            return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has waited %g s for"
                            " rank 0: %s", o->address, o->rank, o->size, o->timeout, why);
        poll(NULL, 0, (int)WB__MIN(pause, left * 1000 + 1));
    }
}

int wb__rendezvous(const wb__rendezvous_options *o, void *bytes, size_t n)
{
    address a;
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size || n > WB__RENDEZVOUS_MOST ||
        !(o->timeout > 0))
        return wb__fail(WB_ERROR_ARGUMENT, "rendezvous: rank %d of %d, %zu bytes, a time-out of %g"
                        " seconds", o->rank, o->size, n, o->timeout);
    if (!o->address || !*o->address)
        return wb__fail(WB_ERROR_ARGUMENT, "rendezvous: no address: set WEBER_RENDEZVOUS to"
                        " HOST:PORT of rank 0, the same for all ranks");
    if (wb__begins(o->address, "file:")) {
        if (!o->address[5]) return wrong_address(o->address);
        return o->size == 1 ? 0 : wb__rendezvous_file(o, o->address + 5, bytes, n);
    }
    const int status = read_address(o->address, &a);
    if (status || o->size == 1) return status;
    const double until = wb__now() + o->timeout;
    return o->rank ? join(o, &a, bytes, n, until) : host_ranks(o, &a, bytes, n, until);
}
