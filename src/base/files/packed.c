/* Checksums and the decompression of gzip (packed.h). */
#include "base/files/packed.h"

#include "base/mutex.h"
#include "base/packages.h"

#ifdef WB_HAVE_ZLIB

#include <limits.h>
#include <zlib.h>

uint32_t wb__crc32(uint32_t sum, const void *data, size_t n)
{
    return (uint32_t)crc32_z(sum, data, n);
}

uint32_t wb__crc32_join(uint32_t first, uint32_t second, int64_t bytes)
{
    return (uint32_t)crc32_combine(first, second, (z_off_t)bytes);
}

struct wb__unpacker { z_stream z; };

static voidpf unpacker_allocate(voidpf opaque, uInt items, uInt size)
{
    (void)opaque;
    return wb__alloc_zero(items, size);
}

static void unpacker_release(voidpf opaque, voidpf block)
{
    (void)opaque;
    wb__free(block);
}

wb__unpacker *wb__unpacker_open(const char *path)
{
    enum { WINDOW = 15, GZIP = 16 };
    wb__unpacker *u = wb__alloc_zero(1, sizeof *u);
    if (!u) return NULL;
    u->z.zalloc = unpacker_allocate;
    u->z.zfree = unpacker_release;
    if (inflateInit2(&u->z, WINDOW + GZIP) == Z_OK) return u;
    wb__free(u);
    return wb__fail_null(WB_ERROR_MEMORY, "%s: no memory to decompress it", path);
}

void wb__unpacker_close(wb__unpacker *u)
{
    if (!u) return;
    inflateEnd(&u->z);
    wb__free(u);
}

bool wb__unpacker_next(wb__unpacker *u) { return inflateReset(&u->z) == Z_OK; }

wb__unpack_outcome wb__unpack(wb__unpacker *u, wb__unpacking *all)
{
    const uInt left = (uInt)WB__MIN(all->left, UINT_MAX), room = (uInt)WB__MIN(all->room, UINT_MAX);
    u->z.next_in = (Bytef *)(uintptr_t)all->from;       /* zlib does not write there */
    u->z.avail_in = left;
    u->z.next_out = all->to;
    u->z.avail_out = room;
    const int outcome = inflate(&u->z, Z_NO_FLUSH);
    all->from += left - u->z.avail_in;
    all->left -= left - u->z.avail_in;
    all->to += room - u->z.avail_out;
    all->room -= room - u->z.avail_out;
    if (outcome == Z_STREAM_END) return WB__UNPACK_END;
    if (outcome == Z_OK || outcome == Z_BUF_ERROR) return WB__UNPACK_MORE;
    if (outcome == Z_MEM_ERROR) return WB__UNPACK_MEMORY;
    all->why = u->z.msg ? u->z.msg : "wrong checksum";
    return WB__UNPACK_DAMAGED;
}

#else

/* CRC-32's polynomial.  Bits are reversed: the highest bit of a sum is the coefficient of x^0. */
#define POLYNOMIAL 0xedb88320u
#define UNPACKER_ONE 0x80000000u

/* table[k][b]: the checksum of byte b followed by k zero bytes, which starts from 0 and is not
 * inverted at the end. */
static uint32_t unpacker_table[8][256];
static wb__once unpacker_once = WB__ONCE_INIT;

static uint32_t times_x(uint32_t a) { return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0); }

static void unpacker_make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t sum = b;
        for (int i = 0; i < 8; i++) sum = times_x(sum);
        unpacker_table[0][b] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            unpacker_table[k][b] = unpacker_table[k - 1][b] >> 8 ^
                                   unpacker_table[0][unpacker_table[k - 1][b] & 255];
}

uint32_t wb__crc32(uint32_t sum, const void *data, size_t n)
{
    const uint8_t *p = data;
    wb__once_run(&unpacker_once, unpacker_make_table);
    sum = ~sum;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            next ^= unpacker_table[7 - i][p[i] ^ (sum >> 8 * i & 255)] ^
                    unpacker_table[3 - i][p[4 + i]];
        sum = next;
    }
    for (; n; n--, p++) sum = sum >> 8 ^ unpacker_table[0][(sum ^ *p) & 255];
    return ~sum;
}

/* Returns the product of two polynomials modulo POLYNOMIAL. */
static uint32_t unpacker_product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t bit = UNPACKER_ONE; bit; bit >>= 1, b = times_x(b))
        if (a & bit) sum ^= b;
    return sum;
}

uint32_t wb__crc32_join(uint32_t first, uint32_t second, int64_t bytes)
{
    /* `first` times x^(8 bytes), by squaring */
    uint32_t power = UNPACKER_ONE >> 8, sum = first;
    for (; bytes; bytes >>= 1, power = unpacker_product(power, power))
        if (bytes & 1) sum = unpacker_product(power, sum);
    return sum ^ second;
}

wb__unpacker *wb__unpacker_open(const char *path)
{
    return wb__package_missing(WB__PACKAGE_ZLIB, path, NULL), NULL;
}

void wb__unpacker_close(wb__unpacker *u) { (void)u; }
bool wb__unpacker_next(wb__unpacker *u) { return u; }

wb__unpack_outcome wb__unpack(wb__unpacker *u, wb__unpacking *all)
{
    (void)u;
    all->why = "no zlib";
    return WB__UNPACK_DAMAGED;
}

#endif
