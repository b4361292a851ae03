/* All that the library asks of the operating system.  Only this header and its implementations know
 * the system: base/os_posix*.c are for Linux (glibc or musl), macOS, and others with POSIX. */
#ifndef WB__OS_H
#define WB__OS_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- threads --------------------------------------------------------------------------------- */

typedef pthread_t wb__os_thread;
/* Starts a thread that calls f(arg) and drops its result.  With `quiet` the thread gets no signals,
 * so that only the program's threads get them.  Returns false if there can be no more threads. */
bool wb__os_thread_start(wb__os_thread *t, void *(*f)(void *), void *arg, bool quiet);
void wb__os_thread_join(wb__os_thread t);       /* returns when the thread has ended */

long wb__os_process(void);                      /* the number of this process */
/* The number of the calling thread: on Linux that of debuggers and of top, elsewhere a count. */
long wb__os_thread_number(void);
/* How often the calling thread has lost its processor to another one; 0 where that is unknown. */
int64_t wb__os_preemptions(void);
void wb__os_yield(void);                        /* lets other threads have the processor */
void wb__os_sleep(int64_t nanoseconds);         /* ends earlier if a signal arrives */
void wb__os_end_after(int seconds);             /* ends the process by a signal */

/* Makes all threads of the process see what this thread wrote before, and lets it see what they did
 * (membarrier of Linux); `begins`: announces that, once.  False: the system has no such call. */
bool wb__os_barrier(bool begins);

/* A value that each thread has of its own.  wb__os_key_make returns false if there can be no more
 * keys.  wb__os_key_set returns false if there is no memory.  When a thread ends whose value is not
 * NULL, `end` gets that value. */
typedef pthread_key_t wb__os_key;
bool wb__os_key_make(wb__os_key *key, void (*end)(void *value));
bool wb__os_key_set(wb__os_key key, void *value);

/* Locks of the system, of which base/mutex.h makes locks that fork knows.  wb__os_mutex_init
 * returns false if there can be no more locks. */
typedef pthread_mutex_t wb__os_mutex;
#define WB__OS_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
static inline bool wb__os_mutex_init(wb__os_mutex *m) { return !pthread_mutex_init(m, NULL); }
static inline void wb__os_mutex_destroy(wb__os_mutex *m) { pthread_mutex_destroy(m); }
static inline void wb__os_mutex_lock(wb__os_mutex *m) { pthread_mutex_lock(m); }
static inline bool wb__os_mutex_try(wb__os_mutex *m) { return !pthread_mutex_trylock(m); }
static inline void wb__os_mutex_unlock(wb__os_mutex *m) { pthread_mutex_unlock(m); }

/* Condition variables.  wb__os_cond_wait_for returns false after so many seconds. */
typedef pthread_cond_t wb__os_cond;
#define WB__OS_COND_INIT PTHREAD_COND_INITIALIZER
static inline void wb__os_cond_init(wb__os_cond *c) { pthread_cond_init(c, NULL); }
static inline void wb__os_cond_destroy(wb__os_cond *c) { pthread_cond_destroy(c); }
static inline void wb__os_cond_wake_one(wb__os_cond *c) { pthread_cond_signal(c); }
static inline void wb__os_cond_wake(wb__os_cond *c) { pthread_cond_broadcast(c); }
static inline void wb__os_cond_wait(wb__os_cond *c, wb__os_mutex *m) { pthread_cond_wait(c, m); }
bool wb__os_cond_wait_for(wb__os_cond *c, wb__os_mutex *m, double seconds);

/* Makes each fork call these functions: `before` and `parent` in the thread that forks, `child` in
 * the child.  Returns false if there is no memory. */
bool wb__os_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Nanoseconds: since some moment in the past; since 1970; of processor time of this thread. */
typedef enum { WB__OS_STEADY, WB__OS_WALL, WB__OS_WORK } wb__os_clock_kind;
int64_t wb__os_clock(wb__os_clock_kind kind);

/* ---- dynamic libraries ----------------------------------------------------------------------- */

/* Which code finds the functions of a library: callers with its handle alone, or all libraries that
 * are opened later.  WB__OS_OWN_FIRST: the handle alone, and the library finds its own functions
 * before those of the process, where the system supports that. */
typedef enum { WB__OS_FOR_HANDLE, WB__OS_FOR_ALL, WB__OS_OWN_FIRST } wb__os_library_how;
/* Opens a file, which the system searches for if the name has no '/'.  Returns NULL if it cannot;
 * wb__os_library_reason has the system's message, until this thread calls the system again. */
void *wb__os_library_open(const char *file, wb__os_library_how how);
const char *wb__os_library_reason(void);
void wb__os_library_close(void *library);
/* The address of a function or a variable, or NULL.  library NULL: searches all libraries of the
 * process. */
void *wb__os_library_find(void *library, const char *name);
/* The file that has this address, and its handle, which the caller closes; NULL: not known. */
const char *wb__os_library_file(const void *address);
void *wb__os_library_of(const void *address);

/* Keeps the file that has this code, a shared library or a plugin, in the process until it ends,
 * also after it is closed: threads, handlers of fork and destructors of threads' data go on to call
 * it.  Later calls do nothing. */
void wb__os_stay_loaded(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/* The functions below fail by returning false, -1 or NULL.  A function that fails leaves the reason
 * on its thread, in errno as functions of C do: one of these numbers, or another with a text. */
enum {
    WB__OS_ABSENT = ENOENT, WB__OS_TAKEN = EEXIST, WB__OS_IS_FOLDER = EISDIR,
    WB__OS_NO_FOLDER = ENOTDIR, WB__OS_BROKEN = EIO, WB__OS_LATE = ETIMEDOUT
};
static inline int wb__os_error(void) { return errno; }
static inline void wb__os_set_error(int error) { errno = error; }
static inline const char *wb__os_text(int error) { return strerror(error); }
static inline const char *wb__os_reason(void) { return strerror(errno); }   /* of wb__os_error */

/* ---- files ----------------------------------------------------------------------------------- */

enum { WB__OS_PATH = PATH_MAX };        /* bytes that have room for any path */

/* A file is a number; -1: none.  Programs that this process starts do not inherit the file. */
typedef enum {
    WB__OS_READ,                        /* waits for the other end of a pipe */
    WB__OS_READ_NOW,                    /* does not wait */
    WB__OS_WRITE,                       /* a file that exists */
    WB__OS_WRITE_PLAIN,                 /* a file that exists, and no symbolic link */
    WB__OS_CREATE,                      /* a new file; else WB__OS_TAKEN */
    WB__OS_REPLACE                      /* empties a file, which is no symbolic link, or makes one
                                           that other users cannot read */
} wb__os_opening;
int wb__os_open(const char *path, wb__os_opening how);
bool wb__os_close(int file);

/* Reads at most n bytes, and returns their number, 0 at the end of the file, or -1. */
int64_t wb__os_read(int file, void *to, size_t n);
int64_t wb__os_write(int file, const void *from, size_t n);
int64_t wb__os_write_at(int file, const void *from, size_t n, int64_t offset);

/* Starts to write a part of a file to the disk, and does not wait. */
void wb__os_start_writing(int file, int64_t from, int64_t bytes);
/* Return when all bytes written to a file, or all names in a folder, are on the disk. */
bool wb__os_sync(int file);
bool wb__os_sync_folder(const char *path);
/* Locks a file: one process can have the lock, until it closes the file or ends. */
bool wb__os_lock(int file, bool wait);

typedef enum { WB__OS_PLAIN, WB__OS_FOLDER, WB__OS_LINK, WB__OS_OTHER } wb__os_kind;
typedef struct {
    wb__os_kind kind;
    bool gone;                          /* the open file has no name any more */
    unsigned mode;                      /* permissions, as of chmod */
    int64_t bytes, changed;  /* changed: time of the last change of the contents, as WB__OS_WALL */
    int64_t owner;                      /* user, as returned by wb__os_user */
    uint64_t device, number;            /* two paths with the same pair are one file */
} wb__os_about;
/* Sets *about to what the file or folder at a path is; of a symbolic link if `follow`: its
 * target. */
bool wb__os_look(const char *path, bool follow, wb__os_about *about);
bool wb__os_look_at(int file, wb__os_about *about);
bool wb__os_is_there(const char *path);
bool wb__os_may_write(const char *path);                /* whether this process may write it */
int64_t wb__os_user(void);                      /* the user with whose rights this process runs */

bool wb__os_remove(const char *path);                   /* removes a file or a link */
bool wb__os_rename(const char *from, const char *to);   /* replaces `to` */
bool wb__os_set_mode(int file, unsigned mode);
bool wb__os_touch(const char *path);                /* sets the time of its last change to now */
/* Sets `real` to the path without symbolic links. */
bool wb__os_real_path(const char *path, char real[WB__OS_PATH]);
bool wb__os_working_folder(char path[WB__OS_PATH]);

/* Makes a folder; `own`: other users have no access to it.  wb__os_make_temporary replaces XXXXXX
 * at the end of the path so that the folder is new. */
bool wb__os_make_folder(const char *path, bool own);
bool wb__os_make_temporary(char *path);
bool wb__os_remove_folder(const char *path);            /* an empty folder */
/* Lists a folder.  wb__os_folder_next returns a name, but neither . nor .., that is valid until the
 * next call; NULL: there is none, and the error is 0, or there is an error. */
typedef struct wb__os_folder wb__os_folder;
wb__os_folder *wb__os_folder_open(const char *path);    /* NULL: it cannot be opened */
const char *wb__os_folder_next(wb__os_folder *f);
void wb__os_folder_close(wb__os_folder *f);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Maps the first n bytes of a file, to be read; NULL: it cannot be mapped. */
const void *wb__os_map(int file, size_t n);
void wb__os_unmap(const void *map, size_t n);
/* Asks the system to read a part of a mapped file before it is used.  Returns at once. */
void wb__os_map_ahead(const void *from, size_t n);

/* The memory of the machine in bytes, and the part of it that no program uses; -1: unknown. */
void wb__os_memory(int64_t *total, int64_t *free);
/* Asks for huge pages for a block from malloc, which makes the first access to it faster. */
void wb__os_huge_pages(void *block, size_t bytes);
/* Whether the process may make code of n bytes at run time; else the error is set.  And whether
 * that may change later, since the process's memory is limited. */
bool wb__os_may_make_code(size_t n);
bool wb__os_memory_is_limited(void);

/* ---- programs that this process starts ------------------------------------------------------- */

bool wb__os_set_variable(const char *name, const char *value);  /* NULL: removes it */
/* Keeps the numbers of standard files that a program was started without, so that no other file of
 * this program gets them.  Reading from or writing to such a file stays an error. */
bool wb__os_keep_standard_files(void);
/* Makes a pipe: bytes written to the second file can be read from the first one. */
bool wb__os_pipe(int ends[2]);

enum { WB__OS_FILES = 4 };
typedef struct {
    const char *const *words;  /* program, which is found as in a shell, and arguments; then NULL */
    const char *folder;                 /* folder in which it starts; NULL: that of this process */
    int files[WB__OS_FILES];    /* the program's files 0, 1, ...; -1: an empty one, or no file 3 */
    bool leads;                         /* it and its children are a group, which is asked to end
                                           when this process ends, where the system supports that */
} wb__os_program_start;
/* Starts a program and returns its number.  0: it could not be started or, with *executed, not be
 * executed. */
long wb__os_start(const wb__os_program_start *s, bool *executed);

/* How a process has ended: by itself with a status, or by a signal. */
typedef struct { int status, signal; } wb__os_end;
/* Whether a process has ended.  Its number is not given to another process before wb__os_wait. */
bool wb__os_has_ended(long process, wb__os_end *end);
/* Waits until a process has ended.  `end` may be NULL.  false: the process is not known. */
bool wb__os_wait(long process, wb__os_end *end);
void wb__os_kill(long process);         /* ends the process at once */
/* Asks the processes of a group to end.  The functions below end them at once, send them a signal,
 * and return whether one of them runs. */
void wb__os_end_group(long process);
void wb__os_kill_group(long process);
void wb__os_signal_group(long process, int number);
bool wb__os_group_runs(long process);

/* Prepares this process to lead others: their ends, and signals by which the user ends this
 * process, are noted instead of acted on.  Returns a file that can be read when one is noted, or
 * -1. */
int wb__os_lead(void);
int wb__os_next_signal(void);           /* a signal that was noted; 0: none */
const char *wb__os_signal_name(int number);     /* "SIGSEGV" */
const char *wb__os_signal_text(int number);     /* "Segmentation fault" */

typedef struct { int file; bool writes, ready; } wb__os_watched;        /* file -1: none */
/* Waits until something can be read from, or written to, one of the files, and sets `ready`, or
 * until so many seconds are over (below 0: for ever).  Returns the number of ready files; 0, too
 * early, after a signal; or -1. */
int wb__os_poll(wb__os_watched *all, int n, double seconds);

/* ---- sockets --------------------------------------------------------------------------------- */

/* A socket is a file on which only wb__os_poll waits, and which wb__os_hang_up closes.  `why` gets
 * the reason of a failure. */
enum { WB__OS_NOT_NOW = -2 };
/* Listens at a host's address or, if `host` is a name, at all addresses of this machine, since
 * other machines may know the name under another address.  Returns the socket, or -1. */
int wb__os_listen(const char *host, const char *port, const char **why);
int wb__os_accept(int listener);        /* -1: there is no new connection */
/* The addresses of a host, one after the other; NULL: none, or no further one. */
typedef struct wb__os_address wb__os_address;
wb__os_address *wb__os_addresses(const char *host, const char *port, const char **why);
wb__os_address *wb__os_next_address(wb__os_address *a);
void wb__os_free_addresses(wb__os_address *first);
/* Connects within so many seconds; -1: the error may be WB__OS_LATE. */
int wb__os_connect(wb__os_address *to, double seconds);
/* Sends at most n bytes, as wb__os_receive receives them.  Returns their number, WB__OS_NOT_NOW, or
 * -1.  wb__os_receive returns 0 when the other end is closed. */
int64_t wb__os_send(int socket, const void *bytes, size_t n);
int64_t wb__os_receive(int socket, void *bytes, size_t n);
void wb__os_hang_up(int socket);
int wb__os_free_port(void);             /* a free port of the loopback interface; 0: none */

/* ---- facts ----------------------------------------------------------------------------------- */

/* The number of processors that this process may use, at least 1.  On Linux the process's affinity
 * and the quotas of its cgroups limit the number.  On macOS the slower processors of a chip with
 * two kinds do not count: threads get equal parts, and the fast processors would wait. */
int wb__os_processors(void);
int wb__os_all_processors(void);        /* processors of the machine that are in operation */

/* Whether the program was started with rights that its caller lacks: it is set-user-ID or
 * set-group-ID, or its file has capabilities. */
bool wb__os_has_more_rights(void);

bool wb__os_is_terminal(int file);
int wb__os_columns(int file);           /* columns of a terminal; 0: not known */

/* Writes the name of this machine, or "localhost". */
void wb__os_host(char *name, size_t capacity);

/* Writes n random bytes that nobody can guess; false: the system gives none. */
bool wb__os_random(void *bytes, size_t n);

/* Writes a path from which this process can start its own program to `path`; false: unknown. */
bool wb__os_program(char *path, size_t capacity);

#endif
