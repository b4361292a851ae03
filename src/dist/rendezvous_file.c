/* The rendezvous by files in a folder that all ranks see (rendezvous.h).  Files of an earlier run
 * may still be there, so each process draws a random number, and only a file with the numbers of
 * this run counts:
 *
 *     PATH.0      rank 0's call: its number
 *     PATH.R      rank R's answer: rank 0's number and its own
 *     PATH        the result: the numbers of all ranks that have answered, and the bytes or a
 *                 message
 *
 * A rank that finds its own number in the result takes the bytes and removes its answer; then rank
 * 0 removes the call and the result.  Files are renamed when they are complete. */
#include "dist/rendezvous.h"

#include "base/files/file.h"
#include "base/os.h"

#include <stdio.h>

enum {
    MEETING_NUMBER = 16,                /* bytes of a random number */
    MOST_PATH = 4096,
    MEETING_CALL = 16 + MEETING_NUMBER, /* magic, version, size; number */
    MEETING_ANSWER = 20 + 2 * MEETING_NUMBER,   /* magic, version, size, bytes; two numbers */
    HEAD = 20,                          /* bytes of the result's head: magic, error code, size,
                                           bytes; then a number for each rank but 0 */
    MEETING_MOST_TEXT = 1000
};
static const char meeting_magic[] = "weber-rf"; /* 8 characters */

typedef struct {
    const wb__rendezvous_options *o;
    const char *path;
    size_t n;                             /* bytes of the rendezvous */
    double until;                         /* end of the time-out */
    unsigned char number[MEETING_NUMBER]; /* random number of this process */
    unsigned char *numbers;             /* rank 0: the numbers of all ranks */
    bool *come;                         /* rank 0: for each rank, whether it has answered */
} meeting;

/* ---- files ----------------------------------------------------------------------------------- */

/* Writes the path of the call (rank 0), of an answer, or of the result (rank -1). */
static const char *meeting_path_of(const meeting *m, int rank, char to[MOST_PATH])
{
    if (rank < 0) snprintf(to, MOST_PATH, "%s", m->path);
    else snprintf(to, MOST_PATH, "%s.%d", m->path, rank);
    return to;
}

static int fail_with_file(const meeting *m, const char *what, const char *path)
{
    return wb__fail(WB_ERROR_FILE, "rendezvous: rank %d of %d cannot %s %s: %s", m->o->rank,
                    m->o->size, what, path, wb__os_reason());
}

/* Fails if a file with this name is none of a rendezvous: it is neither removed nor replaced. */
static int meeting_check_own(const meeting *m, const char *path)
{
    char head[sizeof meeting_magic - 1];
    const int file = wb__os_open(path, WB__OS_READ_NOW);
    if (file < 0) return wb__os_error() == WB__OS_ABSENT ? 0 : fail_with_file(m, "read", path);
    const int64_t n = wb__os_read(file, head, sizeof head);
    wb__os_close(file);
    if (n == (int64_t)sizeof head && !memcmp(head, meeting_magic, sizeof head)) return 0;
    return wb__fail(WB_ERROR_FILE, "rendezvous: %s is there, and is not a file of a rendezvous:"
                    " give WEBER_RENDEZVOUS another path", path);
}

/* Checks the folder on rank 0, which alone writes before it has read: others would wait for it. */
static int meeting_check_folder(const meeting *m)
{
    char folder[MOST_PATH];
    const char *end = strrchr(m->path, '/');
    snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - m->path) + 1 : 1,
             end ? m->path : ".");
    if (wb__is_folder(folder)) return 0;
    if (wb__os_is_there(folder)) wb__os_set_error(WB__OS_NO_FOLDER);
    return fail_with_file(m, "find", folder);
}

static int remove_file(const meeting *m, int rank)
{
    char path[MOST_PATH];
    const int status = meeting_check_own(m, meeting_path_of(m, rank, path));
    if (status) return status;
    return wb__os_remove(path) || wb__os_error() == WB__OS_ABSENT ? 0 : fail_with_file(m, "remove",
                                                                                       path);
}

static int meeting_write_file(const meeting *m, int rank, const void *bytes, size_t n)
{
    char path[MOST_PATH], part[MOST_PATH + 32];
    const char *at = bytes;
    const int taken = meeting_check_own(m, meeting_path_of(m, rank, path));
    if (taken) return taken;
    snprintf(part, sizeof part, "%s.%02x%02x%02x%02x.tmp", path, m->number[0], m->number[1],
             m->number[2], m->number[3]);
    const int file = wb__os_open(part, WB__OS_REPLACE);
    if (file < 0) return fail_with_file(m, "write", path);
    for (int64_t done; n && (done = wb__os_write(file, at, n)) >= 0; n -= (size_t)done) at += done;
    if (!wb__os_close(file) || n || !wb__os_rename(part, path)) {
        const int status = fail_with_file(m, "write", path);
        wb__os_remove(part);
        return status;
    }
    return 0;
}

/* Reads at most `capacity` bytes of a file.  Returns their number; 0 if there is no such file. */
static size_t meeting_read_file(const meeting *m, int rank, void *bytes, size_t capacity)
{
    char path[MOST_PATH];
    size_t n = 0;
    const int file = wb__os_open(meeting_path_of(m, rank, path), WB__OS_READ_NOW);
    if (file < 0) return 0;
    for (int64_t got; (got = wb__os_read(file, (char *)bytes + n, capacity - n)) > 0;)
        n += (size_t)got;
    wb__os_close(file);
    return n;
}

/* Sleeps a little, longer each time; false: the time is over. */
static bool pause_until(double until, int *milliseconds)
{
    if (wb__now() >= until) return false;
    wb__os_sleep(*milliseconds * (int64_t)1000000);
    *milliseconds = WB__MIN(2 * *milliseconds, 200);
    return true;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static int meeting_write_call(const meeting *m)
{
    unsigned char call[MEETING_CALL];
    memcpy(call, meeting_magic, 8);
    wb__rendezvous_put(call + 8, WB__RENDEZVOUS_VERSION);
    wb__rendezvous_put(call + 12, (uint32_t)m->o->size);
    memcpy(call + 16, m->number, MEETING_NUMBER);
    return meeting_write_file(m, 0, call, MEETING_CALL);
}

/* Whether a file is a whole answer to the call with this number. */
static bool is_answer_to(const unsigned char *answer, size_t n, const unsigned char *number)
{
    return n == MEETING_ANSWER && !memcmp(answer, meeting_magic, 8) &&
           !memcmp(answer + 20, number, MEETING_NUMBER);
}

/* Looks for the answer of a rank, and notes its number. */
static int look_for_answer(meeting *m, int rank)
{
    const wb__rendezvous_options *o = m->o;
    unsigned char answer[MEETING_ANSWER + 1], *number = m->numbers + (size_t)rank * MEETING_NUMBER;
    if (!is_answer_to(answer, meeting_read_file(m, rank, answer, sizeof answer), m->number))
        return 0;
    if (m->come[rank] && memcmp(answer + 20 + MEETING_NUMBER, number, MEETING_NUMBER))
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: two processes are rank %d of %d",
                        o->address, rank, o->size);
    memcpy(number, answer + 20 + MEETING_NUMBER, MEETING_NUMBER);
    m->come[rank] = true;
    if (wb__rendezvous_get(answer + 12) != (uint32_t)o->size)
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d is one of %u ranks, rank 0 one"
                        " of %d", o->address, rank, wb__rendezvous_get(answer + 12), o->size);
    if (wb__rendezvous_get(answer + 8) != WB__RENDEZVOUS_VERSION ||
        wb__rendezvous_get(answer + 16) != m->n)
        return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d has another version of Weber"
                        " than rank 0", o->address, rank);
    return 0;
}

static int gather_answers(meeting *m)
{
    int milliseconds = 5;
    do {
        int come = 1;
        for (int r = 1; r < m->o->size; r++) {
            const int status = look_for_answer(m, r);
            if (status) return status;
            come += m->come[r];
        }
        if (come == m->o->size) return 0;
    } while (pause_until(m->until, &milliseconds));
    return wb__rendezvous_missing(m->o, m->come, "");
}

/* Writes the result: the bytes, or the message of the error that is set. */
static int meeting_write_result(const meeting *m, int status, const void *bytes)
{
    if (status) bytes = wb_error();
    const size_t n = status ? WB__MIN(strlen(bytes), MEETING_MOST_TEXT) : m->n;
    const size_t numbers = (size_t)(m->o->size - 1) * MEETING_NUMBER;
    unsigned char *result = wb__alloc(HEAD + numbers + n);
    if (!result) return wb_error_code();
    memcpy(result, meeting_magic, 8);
    wb__rendezvous_put(result + 8, (uint32_t)status);
    wb__rendezvous_put(result + 12, (uint32_t)m->o->size);
    wb__rendezvous_put(result + 16, (uint32_t)n);
    memcpy(result + HEAD, m->numbers + MEETING_NUMBER, numbers);
    memcpy(result + HEAD + numbers, bytes, n);
    const int failed = meeting_write_file(m, -1, result, HEAD + numbers + n);
    wb__free(result);
    return failed;
}

/* Whether a rank that has answered has removed its answer. */
static bool has_taken_result(const meeting *m, int rank)
{
    unsigned char answer[MEETING_ANSWER + 1];
    return !m->come[rank] ||
           !is_answer_to(answer, meeting_read_file(m, rank, answer, sizeof answer), m->number);
}

static int wait_for_receipts(const meeting *m, double until)
{
    int milliseconds = 5;
    for (int r = 1; r < m->o->size; r++)
        while (!has_taken_result(m, r))
            if (!pause_until(until, &milliseconds))
                return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has ended before"
                                " it had the bytes of rank 0", m->o->address, r, m->o->size);
    return 0;
}

static int meeting_host_ranks(meeting *m, const void *bytes)
{
    wb__error_kept kept;
    int status = remove_file(m, -1);    /* removes the result of an earlier run */
    if (!status) status = meeting_write_call(m);
    if (status) return status;
    status = gather_answers(m);
    if (status) {                       /* ranks that have come get the message */
        wb__error_keep(&kept);
        if (!meeting_write_result(m, status, NULL))
            wait_for_receipts(m, wb__now() + WB__RENDEZVOUS_GRACE);
        wb__error_restore(&kept);
    } else {
        status = meeting_write_result(m, 0, bytes);
        const double until = WB__MAX(m->until, wb__now() + WB__RENDEZVOUS_GRACE);
        if (!status) status = wait_for_receipts(m, until);
    }
    wb__error_keep(&kept);
    for (int r = -1; r < m->o->size; r++)
        if (r <= 0 || !has_taken_result(m, r)) remove_file(m, r);
    wb__error_restore(&kept);
    return status;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* Answers the call of rank 0, once.  `answered` has the number of the call that was answered
 * last. */
static int answer_call(const meeting *m, unsigned char answered[MEETING_NUMBER])
{
    unsigned char call[MEETING_CALL + 1], answer[MEETING_ANSWER + 1];
    if (meeting_read_file(m, 0, call, sizeof call) != MEETING_CALL ||
        memcmp(call, meeting_magic, 8))
        return 0;
    if (!memcmp(call + 16, answered, MEETING_NUMBER)) {
        if (is_answer_to(answer, meeting_read_file(m, m->o->rank, answer, sizeof answer),
                         answered) &&
            memcmp(answer + 20 + MEETING_NUMBER, m->number, MEETING_NUMBER))
            return wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: two processes are rank %d of %d",
                            m->o->address, m->o->rank, m->o->size);
        return 0;
    }
    memcpy(answered, call + 16, MEETING_NUMBER);
    memcpy(answer, meeting_magic, 8);
    wb__rendezvous_put(answer + 8, WB__RENDEZVOUS_VERSION);
    wb__rendezvous_put(answer + 12, (uint32_t)m->o->size);
    wb__rendezvous_put(answer + 16, (uint32_t)m->n);
    memcpy(answer + 20, answered, MEETING_NUMBER);
    memcpy(answer + 20 + MEETING_NUMBER, m->number, MEETING_NUMBER);
    return meeting_write_file(m, m->o->rank, answer, MEETING_ANSWER);
}

/* Copies the bytes if the result has this process's number.  *done: whether it has; then returns 0
 * or the error of rank 0. */
static int meeting_take_result(const meeting *m, unsigned char *result, size_t capacity,
                               void *bytes, bool *done)
{
    const size_t length = meeting_read_file(m, -1, result, capacity);
    const size_t mine = HEAD + (size_t)(m->o->rank - 1) * MEETING_NUMBER;
    if (length < HEAD || memcmp(result, meeting_magic, 8)) return 0;
    const size_t size = wb__rendezvous_get(result + 12), n = wb__rendezvous_get(result + 16);
    const size_t begin = HEAD + (size - 1) * MEETING_NUMBER;
    if ((size_t)m->o->rank >= size || size > (size_t)INT32_MAX / MEETING_NUMBER || length < begin ||
        length - begin != n || memcmp(result + mine, m->number, MEETING_NUMBER))
        return 0;
    *done = true;
    if (wb__rendezvous_get(result + 8)) return wb__rendezvous_refused(m->o, result + begin, n);
    if (n != m->n) return wb__rendezvous_refused(m->o, "another number of bytes", 23);
    memcpy(bytes, result + begin, n);
    return 0;
}

static int join_by_files(const meeting *m, void *bytes)
{
    static const unsigned char none[MEETING_NUMBER];
    unsigned char answered[MEETING_NUMBER] = {0};
    /* rank 0 may expect more ranks, and its message is about that */
    const size_t numbers = (size_t)WB__MAX(m->o->size, 1 << 16) * MEETING_NUMBER;
    const size_t capacity = HEAD + numbers + WB__MAX(m->n, MEETING_MOST_TEXT) + 1;
    unsigned char *result = wb__alloc(capacity);
    bool done = false, in_time = true;
    int milliseconds = 5;
    int status = result ? 0 : wb_error_code();
    while (!status && !done && in_time) {
        status = answer_call(m, answered);
        if (!status) status = meeting_take_result(m, result, capacity, bytes, &done);
        const double grace = memcmp(answered, none, MEETING_NUMBER) ? WB__RENDEZVOUS_GRACE : 0;
        if (!status && !done) in_time = pause_until(m->until + grace, &milliseconds);
    }
    wb__free(result);
    if (!in_time)
        status = wb__fail(WB_ERROR_DEVICE, "rendezvous at %s: rank %d of %d has waited %g s for"
                          " rank 0: %s", m->o->address, m->o->rank, m->o->size, m->o->timeout,
                          memcmp(answered, none, MEETING_NUMBER)
                          ? "it has not answered: not all ranks have come, or it has ended"
                          : "it has written no file");
    unsigned char mine[MEETING_ANSWER + 1]; /* another process's, if two have one rank */
    if (is_answer_to(mine, meeting_read_file(m, m->o->rank, mine, sizeof mine), answered) &&
        !memcmp(mine + 20 + MEETING_NUMBER, m->number, MEETING_NUMBER)) {
        const int failed = remove_file(m, m->o->rank);
        if (!status) status = failed;
    }
    return status;
}

int wb__rendezvous_file(const wb__rendezvous_options *o, const char *path, void *bytes, size_t n)
{
    meeting m = {.o = o, .path = path, .n = n, .until = wb__now() + o->timeout};
    if (strlen(path) > MOST_PATH - 32)
        return wb__fail(WB_ERROR_ARGUMENT, "rendezvous: the path of %s is too long", o->address);
    int status = wb__rendezvous_random(m.number, MEETING_NUMBER);
    if (!status && o->rank) status = meeting_check_folder(&m);
    if (status) return status;
    if (o->rank) return join_by_files(&m, bytes);
    m.come = wb__alloc_zero((size_t)o->size, sizeof *m.come);
    m.numbers = wb__alloc_zero((size_t)o->size, MEETING_NUMBER);
    if (m.come && m.numbers) {
        m.come[0] = true;
        status = meeting_host_ranks(&m, bytes);
    } else {
        status = wb_error_code();
    }
    wb__free(m.come);
    wb__free(m.numbers);
    return status;
}
