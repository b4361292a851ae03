/* The rendezvous: rank 0 gives all ranks the same bytes before they are connected otherwise.  The
 * ranks find each other by an address that all are given:
 *
 *     HOST:PORT, [IPV6]:PORT      rank 0 listens there, the others connect
 *     file:PATH                   files in a folder that all ranks see
 */
#ifndef WB__RENDEZVOUS_H
#define WB__RENDEZVOUS_H

#include "base/base.h"

typedef struct {
    const char *address;
    int rank, size;
    double timeout;             /* seconds that a rank waits for the others */
} wb__rendezvous_options;

/* Gives all ranks the n bytes of rank 0.  Returns on rank 0 when all ranks have the bytes, and on
 * another rank when that rank has them.  0 or an error code: a rank does not come in time, two
 * processes have one rank, ranks differ in `size` or `n`, or the address cannot be used.  After an
 * error of rank 0 the ranks that have come fail with the same message.
 *
 * If WEBER_RENDEZVOUS_TOKEN is set, only processes with the same token are ranks; other processes
 * are ignored.  If it is not set, a process of another version is ignored, but any process that
 * greets as a rank counts as that rank. */
int wb__rendezvous(const wb__rendezvous_options *o, void *bytes, size_t n);

/* ---- inside the rendezvous ------------------------------------------------------------------- */

enum {
    WB__RENDEZVOUS_VERSION = 2,
    WB__RENDEZVOUS_MOST = 1 << 20,      /* limit of the bytes */
    WB__RENDEZVOUS_GRACE = 2            /* seconds beyond the time-out: for rank 0's message to the
                                           ranks that have reached it, and for receipts */
};

/* Does what wb__rendezvous does for the address file:PATH (rendezvous_file.c). */
int wb__rendezvous_file(const wb__rendezvous_options *o, const char *path, void *bytes, size_t n);

/* Writes and reads numbers of 4 bytes, most significant byte first. */
void wb__rendezvous_put(unsigned char *to, uint32_t x);
uint32_t wb__rendezvous_get(const unsigned char *from);
/* Draws a random number of n bytes.  0 or an error code. */
int wb__rendezvous_random(unsigned char *number, size_t n);
/* Sets the error that ranks have not come; `come` has an element for each rank; `also` is added. */
int wb__rendezvous_missing(const wb__rendezvous_options *o, const bool *come, const char *also);
/* Sets the error that rank 0 has sent as text of n bytes, which need not end with 0. */
int wb__rendezvous_refused(const wb__rendezvous_options *o, const void *text, size_t n);

#endif
