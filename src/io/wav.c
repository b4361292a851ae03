/* WAV, sound without compression (Microsoft 1994, RIFF): after "RIFF", a length and "WAVE" come
 * chunks, each with four letters, its length as a little-endian u32, and contents that are padded
 * to an even length.  "fmt " describes the samples and "data" has them, the channels side by side;
 * other chunks are left aside.  Integers of 8 bits have no sign, others have; those with fewer bits
 * than their bytes begin at the highest bit. */
#include "io/wav.h"

#include "io/borrow.h"
#include "weber/signal.h"

#include <stdio.h>
#include <string.h>

enum { WAV_PCM = 1, WAV_FLOAT = 3, WAV_EXTENSIBLE = 0xfffe };

typedef struct {
    int format, channels, bytes;        /* bytes: size of a sample of one channel */
    int64_t rate, begin, size;          /* samples in a second; where "data" is (0: nowhere) */
} wav_header;

bool wb__wav_is(const wb__mapping *m)
{
    return m->bytes >= 12 && !memcmp(m->data, "RIFF", 4) && !memcmp(m->data + 8, "WAVE", 4);
}

static int64_t wav_read_number(const uint8_t *at, int bytes)
{
    int64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (int64_t)at[i] << (8 * i);
    return n;
}

/* Sets the fields of *h from the contents of "fmt ". */
static int wav_read_format(wb__mapping *m, int64_t at, int64_t size, wav_header *h)
{
    static const uint8_t guid[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    const uint8_t *b = m->data + at;
    if (size < 16 || (wav_read_number(b, 2) == WAV_EXTENSIBLE && size < 40))
        return wb__map_fail(m, at, "the chunk \"fmt \" has %lld bytes", (long long)size);
    const bool extended = wav_read_number(b, 2) == WAV_EXTENSIBLE;
    const int64_t bits = wav_read_number(b + 14, 2), block = wav_read_number(b + 12, 2);
    if (h->format) return wb__map_fail(m, at, "there are two chunks \"fmt \"");
    h->format = (int)wav_read_number(extended ? b + 24 : b, 2);
    h->channels = (int)wav_read_number(b + 2, 2);
    h->rate = wav_read_number(b + 4, 4);
    h->bytes = (int)(bits + 7) / 8;
    if ((extended && memcmp(b + 26, guid, sizeof guid)) ||
        (h->format != WAV_PCM && h->format != WAV_FLOAT))
        return wb__map_fail(m, at, "its samples are of format 0x%04x; PCM (1) and floats (3) are "
                            "read: convert the file, with ffmpeg -c:a pcm_s16le", h->format);
    if (h->format == WAV_PCM ? bits < 1 || bits > 32 : bits != 32 && bits != 64)
        return wb__map_fail(m, at + 14, "%s of %lld bits", h->format == WAV_PCM ? "PCM" : "floats",
                            (long long)bits);
    if (!h->channels || block != (int64_t)h->channels * h->bytes || !h->rate || h->rate > INT32_MAX)
        return wb__map_fail(m, at + 2, "%d channels of %d bytes in blocks of %lld, rate %lld",
                            h->channels, h->bytes, (long long)block, (long long)h->rate);
    return 0;
}

/* Whether a chunk is there: four printable letters, and a length within the file. */
static bool wav_is_chunk(const wb__mapping *m, int64_t at)
{
    const uint8_t *b = m->data + at;
    if (m->bytes - at < 8) return false;
    for (int i = 0; i < 4; i++)
        if (b[i] < ' ' || b[i] > '~') return false;
    return wav_read_number(b + 4, 4) <= m->bytes - at - 8;
}

/* Sets *h from the chunks up to "data".  A program that writes to a pipe does not know the length
 * of that chunk: its largest number means all that follows. */
static int wav_read_header(wb__mapping *m, wav_header *h)
{
    *h = (wav_header){0};
    int64_t at = 12;
    if (!wb__wav_is(m)) return wb__map_fail(m, 0, "this is no WAV file (RIFF, WAVE)");
    while (!h->begin) {
        const uint8_t *b = wb__map_take(m, &at, 8, h->format ? "the chunk \"data\""
                                                             : "the chunk \"fmt \"");
        if (!b) return wb_error_code();
        const bool is_data = !memcmp(b, "data", 4), is_format = !memcmp(b, "fmt ", 4);
        int64_t size = wav_read_number(b + 4, 4), end = at;
        if (is_data && size == UINT32_MAX) size = m->bytes - at;
        if (!wb__map_take(m, &end, size, is_data ? "samples" : "a chunk")) return wb_error_code();
        if (is_format) {
            const int status = wav_read_format(m, at, size, h);
            if (status) return status;
        } else if (is_data) {
            h->begin = at;
            h->size = size;
        }
        at = end + (size & 1);
    }
    if (!h->size && m->bytes > at && !wav_is_chunk(m, at))
        return wb__map_fail(m, h->begin - 4, "\"data\" has the length 0 and more behind it, as if "
                            "its program ended early: convert the file, with ffmpeg or sox");
    if (!h->format) return wb__map_fail(m, h->begin, "there is no \"fmt \" before \"data\"");
    if (h->size % ((int64_t)h->channels * h->bytes))
        return wb__map_fail(m, h->begin, "%lld bytes are no whole number of samples of %d bytes",
                            (long long)h->size, h->channels * h->bytes);
    return 0;
}

/* Returns a sample as a number of -1 to 1. */
static float wav_decode_sample(const uint8_t *at, const wav_header *h)
{
    if (h->bytes == 1) return ((float)*at - 128) / 128;
    if (h->format == WAV_PCM) {
        const int shift = 64 - 8 * h->bytes;
        const int64_t n = (int64_t)((uint64_t)wav_read_number(at, h->bytes) << shift) >> shift;
        return (float)((double)n / (double)(1ll << (8 * h->bytes - 1)));
    }
    const uint64_t bits = (uint64_t)wav_read_number(at, WB__MIN(h->bytes, 4)) |
                          (h->bytes == 8 ? (uint64_t)wav_read_number(at + 4, 4) << 32 : 0);
    const uint32_t low = (uint32_t)bits;
    float x;
    double wide;
    memcpy(&x, &low, sizeof x);
    memcpy(&wide, &bits, sizeof wide);
    return h->bytes == 8 ? (float)wide : x;
}

static int64_t wav_sample_count(const wav_header *h)
{
    return h->size / ((int64_t)h->channels * h->bytes);
}

/* Returns the samples, [channels, samples], in a block of wb__alloc_aligned.  NULL: out of
 * memory. */
static float *wav_read_samples(const wb__mapping *m, const wav_header *h)
{
    const int64_t n = wav_sample_count(h);
    float *x = wb__alloc_aligned((size_t)(n * h->channels) * sizeof *x + 1);
    const uint8_t *at = m->data + h->begin;
    for (int64_t i = 0; x && i < n; i++)
        for (int c = 0; c < h->channels; c++, at += h->bytes)
            x[c * n + i] = wav_decode_sample(at, h);
    return x;
}

wb_tensor *wb_load_wav(const char *path, int *rate)
{
    wav_header h;
    wb__mapping *m = wb__map(path);
    if (!m) return NULL;
    wb_tensor *x = NULL;
    if (!wav_read_header(m, &h)) {
        const int64_t dims[2] = {h.channels, wav_sample_count(&h)};
        x = wb__borrow_block(wav_read_samples(m, &h), WB_F32, 2, dims);
        if (x && rate) *rate = (int)h.rate;
    }
    wb__unmap(m);
    return x;
}

/* Adds an entry with a block that it owns; NULL: it has no data. */
static bool wav_add(wb__table *t, const char *name, wb_dtype dtype, int ndim, const int64_t *dims,
                    void *block)
{
    wb__entry *e = wb__table_add(t, name);
    if (!e) return wb__free(block), false;
    e->dtype = dtype;
    e->ndim = ndim;
    e->bytes = (int64_t)wb__dtype_size(dtype);
    for (int i = 0; i < ndim; i++) e->bytes *= e->dims[i] = dims[i];
    e->data = block;
    e->owned = block;
    return true;
}

int wb__wav_table(wb__mapping *m, bool values, wb__table *out)
{
    wav_header h;
    *out = (wb__table){0};
    const int status = wav_read_header(m, &h);
    if (status) return status;
    const int64_t dims[2] = {h.channels, wav_sample_count(&h)};
    int32_t *rate = values ? wb__alloc_aligned(sizeof *rate) : NULL;
    float *samples = values && rate ? wav_read_samples(m, &h) : NULL;
    if (rate) *rate = (int32_t)h.rate;
    bool ok = !values || (rate && samples);
    ok = wav_add(out, "rate", WB_I32, 0, NULL, rate) && ok;
    ok = wav_add(out, "samples", WB_F32, 2, dims, samples) && ok;
    if (!ok) return wb__table_free(out), WB_ERROR_MEMORY;
    snprintf(out->entries[1].type, sizeof out->entries[1].type, "%s%d",
             h.format == WAV_PCM ? "PCM" : "float", 8 * h.bytes);
    out->entries[1].begin = h.begin;
    out->mapping = m;
    return 0;
}
