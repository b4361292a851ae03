/* What differs between operating systems: Linux (glibc or musl), macOS, and others with POSIX. */
#ifndef WB__SYSTEM_H
#define WB__SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The number of processors that this process may use, at least 1.  On Linux its affinity and the
 * quotas of its cgroups limit it.  On macOS the slower processors of a chip with two kinds do not
 * count: threads get equal parts, and the fast ones would wait. */
int wb__system_processors(void);

/* Keeps the file that has this code, a shared library or a plugin, in the process until it ends,
 * also after dlclose: threads, handlers of fork and destructors of threads' data go on to call it.
 * Later calls do nothing. */
void wb__system_stay_loaded(void);

/* How often the calling thread has lost its processor to another one; 0 where that is unknown. */
int64_t wb__system_preemptions(void);

/* The number of the calling thread: on Linux that of debuggers and of top, elsewhere a count. */
long wb__system_thread(void);
/* Makes all threads of the process see what this thread wrote before, and lets it see what they did
 * (membarrier of Linux); `begins`: announces that, once.  False: the system has no such call. */
bool wb__system_barrier(bool begins);

/* The memory of the machine in bytes, and the part of it that no program uses; -1: unknown. */
void wb__system_memory(int64_t *total, int64_t *free);

/* Asks for huge pages for a block from malloc, which makes the first access to it faster. */
void wb__system_huge_pages(void *block, size_t bytes);

/* Starts to write a part of a file to the disk, and does not wait. */
void wb__system_start_writing(int file, int64_t from, int64_t bytes);

/* Returns when all that was written to a file is on the disk; else -1 with errno. */
int wb__system_sync(int file);

/* The time when the contents of a file changed last, in nanoseconds. */
int64_t wb__system_changed(const struct stat *about);

/* Whether the program was started with rights that its caller lacks: it is set-user-ID or
 * set-group-ID, or its file has capabilities. */
bool wb__system_has_more_rights(void);

/* Writes n random bytes that nobody can guess; false: the system gives none. */
bool wb__system_random(void *bytes, size_t n);

/* Writes a path from which this process can start its own program to `path`; false: unknown. */
bool wb__system_program(char *path, size_t capacity);

#endif
