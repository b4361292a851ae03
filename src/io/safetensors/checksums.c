/* Checksums in safetensors files. */
#include "io/safetensors/checksums.h"

#include "base/files/packed.h"
#include "base/map.h"
#include "base/parallel.h"

#include <stdlib.h>
#include <string.h>

#define CURE                                                                                    \
    " (if a program changed them on purpose, it should leave out the note \"" WB__SUMS_KEY "\")"

enum { DIGITS = 8, CHECKSUMS_CHUNK = 4 << 20, AHEAD = 8 };

static const char checksums_front[] = "{\"__metadata__\":{\"" WB__SUMS_KEY "\":\"";

char *wb__sums_blank(int n)
{
    size_t digits = ((size_t)n + 1) * DIGITS;
    char *text = wb__alloc(digits + 1);
    if (!text) return NULL;
    memset(text, '0', digits);
    text[digits] = 0;
    return text;
}

static void checksums_write_digits(char *to, uint32_t sum)
{
    for (int i = 0; i < DIGITS; i++) to[i] = "0123456789abcdef"[sum >> (28 - 4 * i) & 15];
}

/* Returns the offset of the note's digits in the header, and sets *digits to their number.  Returns
 * 0 if the header does not begin with the note. */
static size_t checksums_digits_at(const char *header, size_t length, size_t *digits)
{
    const size_t at = sizeof checksums_front - 1;
    *digits = 0;
    if (length < at || memcmp(header, checksums_front, at)) return 0;
    while (at + *digits < length && header[at + *digits] != '"') ++*digits;
    return at;
}

/* Returns the checksum of the header.  The digits of the note, at offset `at`, count as zeros. */
static uint32_t checksums_sum_of(const char *header, size_t length, size_t at, size_t digits)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    uint32_t sum = wb__crc32(0, header, at);
    for (size_t left = digits, some; left; left -= some) {
        some = WB__MIN(left, sizeof zeros - 1);
        sum = wb__crc32(sum, zeros, some);
    }
    return wb__crc32(sum, header + at + digits, length - at - digits);
}

void wb__sums_fill(char *header, size_t length, int n, const uint32_t *sums)
{
    size_t digits, at = checksums_digits_at(header, length, &digits);
    if (!at || digits != ((size_t)n + 1) * DIGITS) return;
    checksums_write_digits(header + at, checksums_sum_of(header, length, at, digits));
    for (int i = 0; i < n; i++)
        checksums_write_digits(header + at + (size_t)(i + 1) * DIGITS, sums[i]);
}

static bool checksums_read_digits(const char *from, uint32_t *sum)
{
    *sum = 0;
    for (int i = 0; i < DIGITS; i++) {
        char c = from[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        *sum = *sum << 4 | (uint32_t)digit;
    }
    return true;
}

/* Sets the checksums of the entries.  Ignores a note whose number of digits does not match the
 * number of tensors, because another program may have added or removed tensors. */
int wb__sums_read(wb__table *t, const char *path, const char *header, size_t length)
{
    size_t digits, at = checksums_digits_at(header, length, &digits);
    uint32_t sum;
    if (!at || digits != ((size_t)t->n + 1) * DIGITS) return 0;
    bool good = checksums_read_digits(header + at, &sum) &&
                sum == checksums_sum_of(header, length, at, digits);
    for (int i = 0; good && i < t->n; i++)
        good = checksums_read_digits(header + at + (size_t)(i + 1) * DIGITS, &t->entries[i].sum);
    t->summed = good;
    if (good) return 0;
    return wb__fail(WB_ERROR_FORMAT,
                    "%s: is damaged: the header does not have the checksum that was written with "
                    "it" CURE,
                    path);
}

/* A part of a tensor's values.  The values are summed in chunks by several threads, and the
 * checksums of a tensor's chunks are combined.  The system is asked to read the next chunks
 * ahead. */
typedef struct { const wb__entry *entry; int64_t at, bytes; uint32_t sum; } checksums_chunk;
typedef struct { const wb__table *table; checksums_chunk *chunks; int64_t n; } summing;

static const uint8_t *checksums_bytes_of(const checksums_chunk *p)
{
    return (const uint8_t *)p->entry->data + p->at;
}

static int checksums_by_position(const void *a, const void *b)
{
    const uint8_t *x = checksums_bytes_of(a), *y = checksums_bytes_of(b);
    return x < y ? -1 : x > y;
}

static void checksums_sum_chunk(void *ctx, int64_t i)
{
    const summing *s = ctx;
    checksums_chunk *p = &s->chunks[i];
    for (int64_t k = i ? i + AHEAD : 0; k <= i + AHEAD && k < s->n; k++)
        if (s->table->mapping)
            wb__map_ahead(s->table->mapping, checksums_bytes_of(&s->chunks[k]), s->chunks[k].bytes);
    p->sum = wb__crc32(0, checksums_bytes_of(p), (size_t)p->bytes);
}

static int64_t checksums_cut_into_chunks(const wb__table *t, checksums_chunk *into)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++) {
        const wb__entry *e = &t->entries[i];
        for (int64_t at = 0; e->data && at < e->bytes; at += CHECKSUMS_CHUNK, n++)
            if (into) into[n] = (checksums_chunk){e, at, WB__MIN(CHECKSUMS_CHUNK, e->bytes - at),
                                                  0};
    }
    return n;
}

int wb__sums_check(const wb__table *t, const char *path)
{
    int64_t n = t->summed ? checksums_cut_into_chunks(t, NULL) : 0;
    if (!n) return 0;
    checksums_chunk *chunks = wb__alloc_zero((size_t)n, sizeof *chunks);
    if (!chunks) return WB_ERROR_MEMORY;
    checksums_cut_into_chunks(t, chunks);
    qsort(chunks, (size_t)n, sizeof *chunks, checksums_by_position);
    wb__parallel_waiting(n, checksums_sum_chunk, &(summing){t, chunks, n});
    int status = 0;
    for (int64_t i = 0; !status && i < n;) {
        const wb__entry *e = chunks[i].entry;
        uint32_t sum = chunks[i++].sum;
        for (; i < n && chunks[i].entry == e; i++)
            sum = wb__crc32_join(sum, chunks[i].sum, chunks[i].bytes);
        if (sum != e->sum)
            status = wb__fail(WB_ERROR_FORMAT,
                              "%s: is damaged: the values of \"%s\" do not have the checksum that "
                              "was written with them" CURE,
                              path, e->name);
    }
    wb__free(chunks);
    return status;
}
