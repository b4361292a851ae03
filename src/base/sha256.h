/* SHA-256 (FIPS 180-4), and with a key as HMAC (RFC 2104): a seal that only those who have the key
 * can make. */
#ifndef WB__SHA256_H
#define WB__SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WB__SHA256 = 32 };               /* bytes of a sum */

typedef struct {
    uint32_t h[8];                      /* the sum so far */
    uint64_t n;                         /* bytes added */
    unsigned char block[64];            /* the last n % 64 bytes added */
} wb__sha256;

void wb__sha256_begin(wb__sha256 *s);
void wb__sha256_add(wb__sha256 *s, const void *bytes, size_t n);
void wb__sha256_end(wb__sha256 *s, unsigned char sum[WB__SHA256]);

typedef struct { wb__sha256 inner, outer; } wb__hmac;

void wb__hmac_begin(wb__hmac *m, const void *key, size_t n);
void wb__hmac_add(wb__hmac *m, const void *bytes, size_t n);
void wb__hmac_end(wb__hmac *m, unsigned char sum[WB__SHA256]);

/* Whether two secrets of n bytes are equal.  The time of the comparison depends on n only. */
bool wb__same_secret(const void *a, const void *b, size_t n);

#endif
