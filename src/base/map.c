/* Reads files in place.  See map.h. */
#include "base/map.h"

#include "base/files/file.h"
#include "base/files/file_calls.h"
#include "base/os.h"

#include <stdio.h>

#define AHEAD_MOST ((int64_t)1 << 30)

/* Maps a plain file that is not compressed, or, if `raw` is set, any file of one byte at least.
 * Returns false, without an error, if the file cannot be mapped.  stat comes before open, so that a
 * pipe is never opened here: closing the pipe again could end the process that writes to it. */
static bool map_plain(wb__mapping *m, bool raw)
{
    wb__os_about about;
    if (!wb__os_look(m->path, true, &about) || about.kind != WB__OS_PLAIN) return false;
    const int file = wb__os_open(m->path, WB__OS_READ);
    if (file < 0) return false;
    const bool plain =
        wb__os_look_at(file, &about) && about.kind == WB__OS_PLAIN && about.bytes > !raw;
    const uint8_t *data = plain ? wb__os_map(file, (size_t)about.bytes) : NULL;
    wb__os_close(file);
    if (!data) return false;
    if (!raw && data[0] == 0x1f && data[1] == 0x8b) {
        wb__os_unmap(data, (size_t)about.bytes);
        return false;
    }
    m->mapped = true;
    m->data = data;
    m->bytes = about.bytes;
    return true;
}

static wb__mapping *map_begin(const char *path, bool raw)
{
    if (!path) return wb__fail_null(WB_ERROR_ARGUMENT, "the path of a file to read is NULL");
    wb__mapping *m = wb__alloc_zero(1, sizeof *m);
    if (!m) return NULL;
    m->path = wb__strdup(path);
    if (m->path && !wb__io_must_fail() && map_plain(m, raw)) return m;
    if (m->path && raw)
        wb__fail(WB_ERROR_FILE, "%s: the file is missing, empty or not mappable", path);
    else if (m->path && (m->rest = wb__reader_open(path))) {
        m->unpacked = wb__reader_unpacks(m->rest);
        return m;
    }
    wb__unmap(m);
    return NULL;
}

wb__mapping *wb__map_begin(const char *path) { return map_begin(path, false); }
wb__mapping *wb__map_raw(const char *path) { return map_begin(path, true); }

/* Ends reading: takes over the block of the reader, and closes the reader. */
static int map_read_rest(wb__mapping *m)
{
    if (!m->rest) return 0;
    m->data = (uint8_t *)wb__reader_take(m->rest);
    m->rest = NULL;
    return m->data ? 0 : WB_ERROR_MEMORY;
}

wb__mapping *wb__map(const char *path)
{
    wb__mapping *m = wb__map_begin(path);
    if (!m || (!wb__map_more(m, INT64_MAX) && !map_read_rest(m))) return m;
    wb__unmap(m);
    return NULL;
}

int wb__map_more(wb__mapping *m, int64_t n)
{
    if (!m->rest || n <= m->bytes) return 0;
    int status = wb__reader_fill(m->rest, n);
    m->data = (const uint8_t *)wb__reader_contents(m->rest, &m->bytes);
    return status;
}

void wb__unmap(wb__mapping *m)
{
    if (!m) return;
    if (m->mapped) wb__os_unmap(m->data, (size_t)m->bytes);
    else if (m->rest) wb__reader_close(m->rest);
    else wb__free((void *)(uintptr_t)m->data);
    wb__free(m->path);
    wb__free(m);
}

void wb__map_ahead(const wb__mapping *m, const void *from, int64_t bytes)
{
    if (m->mapped) wb__os_map_ahead(from, (size_t)WB__MIN(bytes, AHEAD_MOST));
}

const uint8_t *wb__map_take(wb__mapping *m, int64_t *at, int64_t n, const char *what)
{
    const int64_t from = *at;
    if (m->rest && n > WB__FILE_MOST - from) {
        wb__map_fail(m, from, "%s would need %lld bytes; the limit is 4 GiB", what, (long long)n);
        return NULL;
    }
    if (m->rest && wb__map_more(m, from + n)) return NULL;
    if (n <= m->bytes - from) return *at += n, m->data + from;
    wb__map_fail(m, from, "the file ends after %lld of the %lld bytes of %s",
                 (long long)(m->bytes - from), (long long)n, what);
    return NULL;
}

int wb__map_end(wb__mapping *m, int64_t at)
{
    bool ended = true;
    int status = m->rest && at == m->bytes ? wb__reader_at_end(m->rest, &ended) : 0;
    if (status) return status;
    if (ended && at == m->bytes) return map_read_rest(m);
    return wb__map_fail(m, at, "the contents should end here, but go on");
}

int wb__map_fail(const wb__mapping *m, int64_t offset, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    wb__plain_list(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return wb__fail(WB_ERROR_FORMAT, "%s: byte %lld%s: %s", m->path, (long long)offset,
                    m->unpacked ? " of the decompressed contents" : "", reason);
}
