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
#include "dist/rendezvous.h"

#include "base/environment.h"
#include "base/sha256.h"
#include "base/os.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    RENDEZVOUS_NUMBER = 16,         /* bytes of a random number */
    VERSIONED = 12,                 /* bytes of magic and version */
    GREETING_HEAD = 24, GREETING = GREETING_HEAD + RENDEZVOUS_NUMBER + WB__SHA256,
    ANSWER_HEAD = 16, RENDEZVOUS_ANSWER = ANSWER_HEAD + WB__SHA256,
    RENDEZVOUS_MOST_TEXT = 1000,    /* bytes of a message */
    GREETING_SECONDS = 2,           /* seconds from a connection to its greeting */
    MOST_STRANGERS = 64             /* connections that have not greeted */
};
static const char rendezvous_magic[] = "weber-rv"; /* 8 characters */

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
    return wb__fail(WB_ERROR_FILE, "rendezvous: /dev/urandom cannot be read: %s", wb__os_reason());
}

static void seal_begin(wb__hmac *h)
{
    const char *token = wb__environment_path("WEBER_RENDEZVOUS_TOKEN");
    wb__hmac_begin(h, token, token ? strlen(token) : 0);
}

static void seal_greeting(const unsigned char *greeting, unsigned char to[WB__SHA256])
{
    wb__hmac h;
    seal_begin(&h);
    wb__hmac_add(&h, greeting, GREETING - WB__SHA256);
    wb__hmac_end(&h, to);
}

static void seal_answer(const unsigned char *greeting, const unsigned char *answer,
                        const void *bytes, size_t n, unsigned char to[WB__SHA256])
{
    wb__hmac h;
    seal_begin(&h);
    wb__hmac_add(&h, greeting + GREETING_HEAD, RENDEZVOUS_NUMBER);
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

static int fail_address(const char *text)
{
    return wb__fail(WB_ERROR_ARGUMENT, "rendezvous: the address \"%s\" is none of HOST:PORT,"
                    " [IPV6]:PORT and file:PATH", text);
}

static int read_address(const char *text, address *a)
{
    const bool brackets = *text == '[';
    const char *begin = text + brackets;
    const char *end = strchr(begin, brackets ? ']' : ':');
    if (!end || end == begin || (size_t)(end - begin) >= sizeof a->host) return fail_address(text);
    memcpy(a->host, begin, (size_t)(end - begin));
    a->host[end - begin] = 0;
    end += brackets;
    const size_t digits = strspn(end + (*end == ':'), "0123456789");
    if (*end != ':' || !digits || digits > 5 || end[1 + digits]) return fail_address(text);
    const long port = strtol(end + 1, NULL, 10);
    if (port < 1 || port > 65535) return fail_address(text);
    memcpy(a->port, end + 1, digits + 1);
    return 0;
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Waits until the socket is ready; false: the time is over. */
static bool rendezvous_wait_for(int file, bool writes, double until)
{
    for (wb__os_watched w = {.file = file, .writes = writes}; !w.ready;) {
        const double left = until - wb__now();
        if (left <= 0 || wb__os_poll(&w, 1, left) < 0) return false;
    }
    return true;
}

static bool send_all(int file, const void *bytes, size_t n, double until)
{
    for (const char *at = bytes; n;) {
        const int64_t done = wb__os_send(file, at, n);
        if (done < 0 && !(done == WB__OS_NOT_NOW && rendezvous_wait_for(file, true, until)))
            return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

static bool receive_all(int file, void *bytes, size_t n, double until)
{
    for (char *at = bytes; n;) {
        const int64_t done = wb__os_receive(file, at, n);
        if (done <= 0 && !(done == WB__OS_NOT_NOW && rendezvous_wait_for(file, false, until)))
            return false;
        if (done > 0) at += done, n -= (size_t)done;
    }
    return true;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

typedef struct {
    int file;                           /* the socket */
    int rank;                           /* -1: it has not greeted yet */
    double until;                       /* when the greeting must be whole */
    int length;                         /* bytes of the greeting that have arrived */
    unsigned char greeting[GREETING];
} rendezvous_connection;

typedef struct {
    const wb__rendezvous_options *o;
    size_t n;                           /* bytes that rank 0 gives to the others */
    int listener;
    rendezvous_connection *connections;
    wb__os_watched *polled;             /* what is waited for: each connection, then the listener */
    int count, capacity, polled_capacity;
    bool *come;                         /* for each rank: whether it has greeted */
    int missing;                        /* number of ranks that have not greeted */
    bool refused;                       /* a greeting had another version or seal */
} rendezvous_host;

static void drop_connection(rendezvous_host *h, int i)
{
    rendezvous_connection *c = &h->connections[i];
    if (c->rank > 0) {
        h->come[c->rank] = false;
        h->missing++;
    }
    wb__os_hang_up(c->file);
    *c = h->connections[--h->count];
}

/* Drops connections whose time to greet is over.  Returns the seconds until the next one's time is
 * over, or `left` if that is less. */
static double drop_late(rendezvous_host *h, double left)
{
    for (int i = h->count - 1; i >= 0; i--) {
        const double rest = h->connections[i].until - wb__now();
        if (h->connections[i].rank >= 0) continue;
        if (rest <= 0) drop_connection(h, i);
        else left = WB__MIN(left, rest);
    }
    return left;
}

/* Drops connections that have not greeted until `most` are left. */
static void drop_strangers(rendezvous_host *h, int most)
{
    int strangers = 0;
    for (int i = h->count - 1; i >= 0; i--)
        if (h->connections[i].rank < 0 && ++strangers > most) drop_connection(h, i);
}

static int accept_connections(rendezvous_host *h)
{
    for (;;) {
        const int file = wb__os_accept(h->listener);
        if (file < 0) return 0;
        drop_strangers(h, MOST_STRANGERS - 1);
        if (!wb__reserve(&h->connections, &h->capacity, h->count + 1,
                         sizeof(rendezvous_connection))) {
            wb__os_hang_up(file);
            return wb_error_code();
        }
        h->connections[h->count++] = (rendezvous_connection){
            .file = file, .rank = -1, .until = wb__now() + GREETING_SECONDS};
    }
}

/* Whether a greeting that is not whole yet may be that of a rank. */
static bool may_be_rank(rendezvous_host *h, const rendezvous_connection *c)
{
    unsigned char versioned[VERSIONED];
    memcpy(versioned, rendezvous_magic, 8);
    wb__rendezvous_put(versioned + 8, WB__RENDEZVOUS_VERSION);
    if (!memcmp(c->greeting, versioned, (size_t)WB__MIN(c->length, VERSIONED))) return true;
    h->refused |= c->length >= VERSIONED && !memcmp(c->greeting, rendezvous_magic, 8);
    return false;
}

/* Whether a whole greeting comes from a process that has the token. */
static bool is_sealed(rendezvous_host *h, const rendezvous_connection *c)
{
    unsigned char right[WB__SHA256];
    seal_greeting(c->greeting, right);
    if (wb__same_secret(c->greeting + GREETING - WB__SHA256, right, sizeof right)) return true;
    h->refused = true;
    return false;
}

/* Enters the rank that has sent a whole, sealed greeting.  *ours: false if no rank has sent it.
 * Fails if the rank differs in size or bytes, or has come already. */
static int check_greeting(rendezvous_host *h, rendezvous_connection *c, bool *ours)
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
static int read_connection(rendezvous_host *h, int i)
{
    rendezvous_connection *c = &h->connections[i];
    char more;
    bool ours = true;
    const int64_t got =
        c->rank > 0 ? wb__os_receive(c->file, &more, 1)
        : wb__os_receive(c->file, c->greeting + c->length, (size_t)(GREETING - c->length));
    if (got == WB__OS_NOT_NOW) return 0;
    if (got <= 0 || c->rank > 0) {
        drop_connection(h, i);
        return 0;
    }
    c->length += (int)got;
    const bool whole = c->length == GREETING;
    ours = may_be_rank(h, c) && (!whole || is_sealed(h, c));
    const int status = ours && whole ? check_greeting(h, c, &ours) : 0;
    if (!ours) drop_connection(h, i);
    return status;
}

static int gather_greetings(rendezvous_host *h, double until)
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
            h->polled[i] = (wb__os_watched){.file = h->connections[i].file};
        h->polled[count] = (wb__os_watched){.file = h->listener};
        if (wb__os_poll(h->polled, count + 1, WB__MAX(left, 0)) <= 0) continue;
        for (int i = count - 1; i >= 0 && !status; i--)   /* drop_connection moves later ones */
            if (h->polled[i].ready) status = read_connection(h, i);
        if (!status && h->polled[count].ready) status = accept_connections(h);
    }
    return status;
}

/* Answers a connection whose greeting is sealed. */
static void send_answer(const rendezvous_connection *c, int status, const void *bytes,
                        size_t n, double until)
{
    unsigned char head[RENDEZVOUS_ANSWER];
    memcpy(head, rendezvous_magic, 8);
    wb__rendezvous_put(head + 8, (uint32_t)status);
    wb__rendezvous_put(head + 12, (uint32_t)n);
    seal_answer(c->greeting, head, bytes, n, head + ANSWER_HEAD);
    if (send_all(c->file, head, RENDEZVOUS_ANSWER, until)) send_all(c->file, bytes, n, until);
}

/* Sends the bytes, or the message of the error that is set, and waits for the receipts. */
static int answer_all(rendezvous_host *h, int status, const void *bytes, double until)
{
    if (status) bytes = wb_error();
    const size_t n = status ? WB__MIN(strlen(bytes), RENDEZVOUS_MOST_TEXT) : h->n;
    for (int i = 0; i < h->count; i++) {
        const rendezvous_connection *c = &h->connections[i];
        const bool greeted = c->length == GREETING;         /* also with a wrong rank */
        if (c->rank > 0 || (status && greeted)) send_answer(c, status, bytes, n, until);
    }
    for (int i = 0; i < h->count && !status; i++) {
        char receipt;
        const rendezvous_connection *c = &h->connections[i];
        if (c->rank > 0 && !receive_all(c->file, &receipt, 1, until))
            return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has ended before it"
                            " had the bytes of rank 0", h->o->address, c->rank, h->o->size);
    }
    return status;
}

static int rendezvous_host_ranks(const wb__rendezvous_options *o, const address *a,
                                 const void *bytes, size_t n, double until)
{
    rendezvous_host h = {.o = o, .n = n, .listener = -1, .missing = o->size - 1};
    h.come = wb__alloc_zero((size_t)o->size, sizeof *h.come);
    if (!h.come) return wb_error_code();
    h.come[0] = true;
    const char *why;
    int status = 0;
    h.listener = wb__os_listen(a->host, a->port, &why);
    if (h.listener < 0)
        status = wb__fail(WB_ERROR_DEVICE, "rendezvous: rank 0 cannot listen at %s: %s",
                          o->address, why);
    else {
        status = gather_greetings(&h, until);
        status = answer_all(&h, status, bytes, WB__MAX(until, wb__now() + WB__RENDEZVOUS_GRACE));
    }
    for (int i = 0; i < h.count; i++) wb__os_hang_up(h.connections[i].file);
    if (h.listener >= 0) wb__os_hang_up(h.listener);
    wb__free(h.connections);
    wb__free(h.polled);
    wb__free(h.come);
    return status;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* How an attempt ended.  CONNECTED: rank 0 has been reached and has not answered. */
typedef enum { RENDEZVOUS_DONE, RENDEZVOUS_FAILED, UNREACHED, CONNECTED } rendezvous_outcome;

/* Greets rank 0 and reads its answer. */
static rendezvous_outcome greet_rank_0(const wb__rendezvous_options *o, int file, void *bytes,
                                       size_t n, double until)
{
    unsigned char greeting[GREETING], head[RENDEZVOUS_ANSWER], right[WB__SHA256];
    char text[RENDEZVOUS_MOST_TEXT];
    memcpy(greeting, rendezvous_magic, 8);
    wb__rendezvous_put(greeting + 8, WB__RENDEZVOUS_VERSION);
    wb__rendezvous_put(greeting + 12, (uint32_t)o->rank);
    wb__rendezvous_put(greeting + 16, (uint32_t)o->size);
    wb__rendezvous_put(greeting + 20, (uint32_t)n);
    if (wb__rendezvous_random(greeting + GREETING_HEAD, RENDEZVOUS_NUMBER))
        return RENDEZVOUS_FAILED;
    seal_greeting(greeting, greeting + GREETING - WB__SHA256);
    if (!send_all(file, greeting, GREETING, until)) return CONNECTED;
    if (!receive_all(file, head, RENDEZVOUS_ANSWER, until) || memcmp(head, rendezvous_magic, 8))
        return CONNECTED;
    const uint32_t length = wb__rendezvous_get(head + 12);
    const bool refused = wb__rendezvous_get(head + 8) != 0;
    void *to = refused ? text : bytes;
    if (refused ? length > RENDEZVOUS_MOST_TEXT : length != n) return CONNECTED;
    if (!receive_all(file, to, length, until)) return CONNECTED;
    seal_answer(greeting, head, to, length, right);
    if (!wb__same_secret(head + ANSWER_HEAD, right, sizeof right)) return CONNECTED;
    if (refused) {
        wb__rendezvous_refused(o, text, length);
        return RENDEZVOUS_FAILED;
    }
    send_all(file, "", 1, until);
    return RENDEZVOUS_DONE;
}

static rendezvous_outcome try_rank_0(const wb__rendezvous_options *o, const address *a,
                                     void *bytes, size_t n, double until, char *why,
                                     size_t capacity)
{
    const char *unknown;
    rendezvous_outcome end = UNREACHED;
    wb__os_address *const first = wb__os_addresses(a->host, a->port, &unknown);
    if (!first) snprintf(why, capacity, "%s", unknown);
    for (wb__os_address *at = first; at && end == UNREACHED; at = wb__os_next_address(at)) {
        const double left = until - wb__now();
        const int file = wb__os_connect(at, WB__MIN(left, 5));  /* the next address may work */
        if (file < 0) {                 /* an attempt that is cut short has no new reason */
            if (wb__os_error() != WB__OS_LATE || !*why)
                snprintf(why, capacity, "%s", wb__os_reason());
            continue;
        }
        end = greet_rank_0(o, file, bytes, n, until + WB__RENDEZVOUS_GRACE);
        wb__os_hang_up(file);
    }
    if (first) wb__os_free_addresses(first);
    return end;
}

static int join_by_tcp(const wb__rendezvous_options *o, const address *a, void *bytes, size_t n,
                       double until)
{
    char why[256] = "";
    for (int pause = 10;; pause = WB__MIN(2 * pause, 500)) {
        const rendezvous_outcome end = try_rank_0(o, a, bytes, n, until, why, sizeof why);
        if (end == RENDEZVOUS_DONE) return 0;
        if (end == RENDEZVOUS_FAILED) return wb_error_code();
        if (end == CONNECTED) snprintf(why, sizeof why, "what listens there gave no answer: not all"
                                       " ranks have come, or it is not rank 0, or has another"
                                       " WEBER_RENDEZVOUS_TOKEN or version of Weber");
        const double left = until - wb__now();
        if (left <= 0)
            return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has waited %g s for"
                            " rank 0: %s", o->address, o->rank, o->size, o->timeout, why);
        wb__os_sleep((int64_t)(WB__MIN(pause, left * 1000 + 1) * 1e6));
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
        if (!o->address[5]) return fail_address(o->address);
        return o->size == 1 ? 0 : wb__rendezvous_file(o, o->address + 5, bytes, n);
    }
    const int status = read_address(o->address, &a);
    if (status || o->size == 1) return status;
    const double until = wb__now() + o->timeout;
    return o->rank ? join_by_tcp(o, &a, bytes, n, until)
                   : rendezvous_host_ranks(o, &a, bytes, n, until);
}
