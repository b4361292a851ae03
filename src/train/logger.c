/* Logs of numbers by step: a file of events for TensorBoard, and a CSV file with the same numbers.
 *
 * A file of events is a list of records of TensorFlow (TFRecord): the length of the data, 8 bytes,
 * little-endian as all numbers are; a checksum of these, 4 bytes; the data; their checksum.  The
 * data are a message Event of protobuf (tensorflow/core/util/event.proto): wall_time = 1,
 * step = 2, file_version = 3, summary = 5; a Summary has values = 1, each with tag = 1 and
 * simple_value = 2.  The first event has the version alone.
 *
 * The stream's buffer is the buffer of the log, so that exit writes what a program has not
 * flushed.  A child that is forked has a copy of the buffer, and its exit would write that too: so
 * fork writes the buffers of all open logs before. */
#include "train/logger.h"

#include "base/files/file.h"
#include "base/mutex.h"
#include "base/text.h"
#include "engine/compiled/recording.h"
#include "io/protobuf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_MOST = 1023 };
static const double flush_after = 5;    /* seconds */

struct wb_logger {
    wb__object object;
    wb_logger *next;                    /* the next open log; `logs_mutex` guards the list */
    wb__mutex mutex;                    /* guards the fields below */
    FILE *events, *csv;                 /* NULL: closed */
    char *events_path, *csv_path;
    double flushed;                     /* time of the last flush, in seconds of wb__now */
    int error;                          /* errno of the first failure, or 0 */
    const char *failed;                 /* the path of the file that failed */
};

static wb__mutex logs_mutex = WB__MUTEX_INIT;
static wb_logger *logger_logs;

/* ---- records --------------------------------------------------------------------------------- */

/* Returns the CRC-32C (Castagnoli) of the data, rotated and shifted so that checksums of data with
 * checksums differ. */
static uint32_t masked_crc32c(const uint8_t *data, size_t n)
{
    uint32_t sum = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0);
    }
    sum = ~sum;
    return (sum >> 15 | sum << 17) + 0xA282EAD8u;
}

static void logger_write_little(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static void logger_add_wall_time(wb__wire_out *o, double seconds)
{
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    wb__wire_put_fixed(o, 1, WB__WIRE_FIXED64, bits);
}

/* Completes a record: writes the length and the checksums around the data, which begin at byte
 * `begun`, behind 12 reserved bytes. */
static void logger_end_record(wb__wire_out *o, size_t begun)
{
    uint8_t sum[4] = {0};
    if (!o->failed)
        logger_write_little(sum, masked_crc32c(o->data + begun, o->n - begun), sizeof sum);
    wb__wire_put_raw(o, sum, sizeof sum);
    if (o->failed) return;
    uint8_t *head = o->data + begun - 12;
    logger_write_little(head, o->n - sizeof sum - begun, 8);
    logger_write_little(head + 8, masked_crc32c(head, 8), 4);
}

static size_t logger_begin_record(wb__wire_out *o)
{
    wb__wire_put_raw(o, (const uint8_t[12]){0}, 12);
    return o->n;
}

void wb__event_version(wb__wire_out *o, double wall_time)
{
    const size_t begun = logger_begin_record(o);
    logger_add_wall_time(o, wall_time);
    wb__wire_put_text(o, 3, "brain.Event:2");
    logger_end_record(o, begun);
}

void wb__event_scalar(wb__wire_out *o, double wall_time, int64_t step, const char *tag, float value)
{
    const size_t begun = logger_begin_record(o);
    logger_add_wall_time(o, wall_time);
    wb__wire_put_int(o, 2, step);
    const size_t summary = wb__wire_begin(o, 5), inside = wb__wire_begin(o, 1);
    wb__wire_put_text(o, 1, tag);
    wb__wire_put_float(o, 2, value);
    wb__wire_end(o, inside);
    wb__wire_end(o, summary);
    logger_end_record(o, begun);
}

/* Writes the shortest text of 15 to 17 digits that has this value, with a point in every locale. */
static void logger_write_number(FILE *f, double value)
{
    char text[40];
    if (isnan(value)) {                 /* printf may write a sign */
        fputs("nan", f);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        wb__plain(text, sizeof text, "%.*g", digits, value);
        if (wb__plain_number(text, NULL) == value) break;
    }
    fputs(text, f);
}

/* Writes a field of RFC 4180, in quotation marks if it needs them. */
static void logger_write_field(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void logger_write_line(FILE *f, double wall_time, int64_t step, const char *tag,
                              double value)
{
    fprintf(f, "%lld.%06d,%lld,", (long long)wall_time,
            (int)((wall_time - (double)(long long)wall_time) * 1e6), (long long)step);
    logger_write_field(f, tag);
    fputc(',', f);
    logger_write_number(f, value);
    fputc('\n', f);
}

/* ---- logs ------------------------------------------------------------------------------------ */

static double wall_time(void)
{
    return 1e-9 * (double)wb__os_clock(WB__OS_WALL);
}

static void logger_set_failure(wb_logger *l, const char *path)
{
    if (l->error) return;
    l->error = wb__os_error() ? wb__os_error() : WB__OS_BROKEN;
    l->failed = path;
}

static int logger_report(const wb_logger *l)
{
    return l->error ? wb__fail(WB_ERROR_FILE, "%s: cannot be written: %s", l->failed,
                               wb__os_text(l->error))
                    : 0;
}

/* Writes what the buffers of both files have. */
static void logger_flush(wb_logger *l)
{
    l->flushed = wb__now();
    if (fflush(l->events) || ferror(l->events)) logger_set_failure(l, l->events_path);
    if (fflush(l->csv) || ferror(l->csv)) logger_set_failure(l, l->csv_path);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* Locks all logs before a fork, except those that stay locked for good, and flushes them.  A
 * failure of the flush is reported by the next flush. */
static void logger_before_fork(void)
{
    for (wb_logger *l = logger_logs; l && logs_mutex.at_fork; l = l->next) {
        if (!l->mutex.at_fork || !l->events || !l->csv) continue;
        fflush(l->events);
        fflush(l->csv);
    }
}

static void logger_add_to_list(wb_logger *l)
{
    static wb__fork_handler flush = {.f = logger_before_fork};
    wb__before_fork(&flush);
    wb__mutex_lock(&logs_mutex);
    l->next = logger_logs;
    logger_logs = l;
    wb__mutex_unlock(&logs_mutex);
}

static void logger_remove_from_list(const wb_logger *l)
{
    wb__mutex_lock(&logs_mutex);
    wb_logger **at = &logger_logs;
    while (*at && *at != l) at = &(*at)->next;
    if (*at) *at = l->next;
    wb__mutex_unlock(&logs_mutex);
}

static void logger_close_files(wb_logger *l)
{
    if (l->events && l->csv) logger_flush(l);
    if (l->events && fclose(l->events)) logger_set_failure(l, l->events_path);
    if (l->csv && fclose(l->csv)) logger_set_failure(l, l->csv_path);
    l->events = l->csv = NULL;
}

static void logger_destroy(void *object)
{
    wb_logger *l = object;
    logger_remove_from_list(l);
    const bool open = l->events && l->csv;
    logger_close_files(l);
    if (open && l->error)
        wb__log(WB_LOG_WARN, "logger: %s: cannot be written: %s", l->failed, wb__os_text(l->error));
    wb__mutex_destroy(&l->mutex);
    wb__free(l->events_path);
    wb__free(l->csv_path);
    wb__object_end(l, sizeof *l);
}

static char *logger_format(void *object)
{
    const wb_logger *l = object;
    return wb__printf("Logger of %s and %s%s\n", l->events_path, l->csv_path,
                      l->events ? "" : ", closed");
}

const wb__class wb__logger_class = {.name = "logger", .destroy = logger_destroy,
                                    .format = logger_format};

static int logger_make_folders(const char *folder)
{
    char *path = wb__strdup(folder);
    if (!path) return wb_error_code();
    int status = 0;
    for (char *slash = path + 1; !status && *slash; slash++) {
        if (*slash != '/' || slash[-1] == '/') continue;
        *slash = 0;
        status = wb__folder_make(path);
        *slash = '/';
    }
    wb__free(path);
    return status ? status : wb__folder_make(folder);
}

static int logger_open_events(wb_logger *l)
{
    wb__wire_out first = {0};
    wb__event_version(&first, wall_time());
    if (first.failed) return wb__wire_free(&first), wb__error_or(WB_ERROR_MEMORY);
    l->events = fopen(l->events_path, "abe");
    if (!l->events || fwrite(first.data, 1, first.n, l->events) != first.n)
        logger_set_failure(l, l->events_path);
    wb__wire_free(&first);
    return logger_report(l);
}

/* Opens the CSV file and continues after its last complete line: a killed process may have left a
 * part of a line. */
static int logger_open_csv(wb_logger *l)
{
    l->csv = fopen(l->csv_path, "a+e");
    if (!l->csv) return logger_set_failure(l, l->csv_path), logger_report(l);
    const bool any = fseek(l->csv, -1, SEEK_END) == 0;
    const int last = any ? fgetc(l->csv) : '\n';
    fseek(l->csv, 0, SEEK_END);
    if (!any) fputs("wall_time,step,tag,value\n", l->csv);
    else if (last != '\n') fputc('\n', l->csv);
    return 0;
}

static int logger_open_files(wb_logger *l, const char *folder)
{
    static _Atomic int logs;
    char host[256];
    wb__os_host(host, sizeof host);
    l->events_path = wb__printf("%s/events.out.tfevents.%lld.%s.%ld.%d", folder,
                                (long long)wall_time(), host, wb__os_process(), logs++);
    l->csv_path = wb__printf("%s/scalars.csv", folder);
    if (!l->events_path || !l->csv_path) return wb_error_code();
    int status = logger_make_folders(folder);
    if (!status) status = logger_open_events(l);
    if (!status) status = logger_open_csv(l);
    if (!status) logger_flush(l);
    return status ? status : logger_report(l);
}

wb_logger *wb_logger_open(const char *folder)
{
    if (!folder || !*folder) return wb__fail_null(WB_ERROR_ARGUMENT, "logger_open: no path");
    wb_logger *l = wb__object_new_owned(&wb__logger_class, sizeof *l);
    if (!l) return NULL;
    wb__mutex_init(&l->mutex);
    logger_add_to_list(l);
    if (logger_open_files(l, folder)) {
        logger_close_files(l);
        wb__unref(l);
        return NULL;
    }
    return wb__scope_give(l);
}

/* Locks the log; false, with the error set: `l` is no log, or is closed. */
static bool logger_lock(const char *what, wb_logger *l)
{
    if (!wb__expect(what, l, &wb__logger_class)) return false;
    wb__mutex_lock(&l->mutex);
    if (l->events) return true;
    wb__mutex_unlock(&l->mutex);
    wb__fail(WB_ERROR_ARGUMENT, "%s: the log %s is closed", what, l->csv_path);
    return false;
}

int wb_log_scalar(wb_logger *log, const char *tag, double value, int64_t step)
{
    WB__FIRST(wb_log_scalar, wb_error_code());
    if (!tag || !*tag || strlen(tag) > TAG_MOST || !wb__is_utf8(tag))
        return wb__fail(WB_ERROR_ARGUMENT, "log_scalar: %s; it is UTF-8 of 1 to %d bytes",
                        tag && *tag ? "the tag is too long or not UTF-8" : "no tag", TAG_MOST);
    if (!logger_lock("log_scalar", log)) return wb_error_code();
    wb__wire_out record = {0};
    const double at = wall_time();
    wb__event_scalar(&record, at, step, tag, (float)value);
    int status = record.failed ? WB_ERROR_MEMORY : 0;
    if (!status && fwrite(record.data, 1, record.n, log->events) != record.n)
        logger_set_failure(log, log->events_path);
    wb__wire_free(&record);
    if (!status) logger_write_line(log->csv, at, step, tag, value);
    if (!status && wb__now() - log->flushed > flush_after) logger_flush(log);
    if (!status) status = logger_report(log);
    wb__mutex_unlock(&log->mutex);
    return status;
}

int wb_logger_flush(wb_logger *log)
{
    if (!logger_lock("logger_flush", log)) return wb_error_code();
    logger_flush(log);
    const int status = logger_report(log);
    wb__mutex_unlock(&log->mutex);
    return status;
}

int wb_logger_close(wb_logger *log)
{
    if (!logger_lock("logger_close", log)) return wb_error_code();
    logger_close_files(log);
    const int status = logger_report(log);
    wb__mutex_unlock(&log->mutex);
    return status;
}
