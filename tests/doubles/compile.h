/* Compiling the texts of kernels with a C++ compiler, and the cache of what was compiled: for the
 * doubles of NVRTC and of Metal. */
#ifndef VGPU_COMPILE_H
#define VGPU_COMPILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

char *vgpu_read_file(const char *path, size_t *bytes);          /* allocated; NULL: no such file */
bool vgpu_write_file(const char *path, const void *data, size_t bytes);
/* Runs a command; its output goes to the file `log`.  False: it failed. */
bool vgpu_run_command(char *const words[], const char *log);
const char *vgpu_compiler(void);

typedef struct {
    const char *shim;           /* a file for the first #include of the text */
    char *const *expand;        /* options of the preprocessor; the last is NULL */
    char *const *compile;       /* further options of the compiler; the last is NULL */
    /* Writes the preprocessed text, which it may change, and the tables of its kernels.  False:
     * *log, allocated, has the error. */
    bool (*translate)(FILE *out, char *text, char **log);
} vgpu_language;

/* The shared object of a text, allocated; NULL: *log, allocated, is the compiler's output. */
char *vgpu_compile(const vgpu_language *l, const char *text, size_t *bytes, char **log);

/* The path of a text's object in VGPU_CACHE; false: there is no cache.  `shim` is the hash of the
 * files that are included, `variant` a number for whatever else the object depends on. */
bool vgpu_cache_path(const char *text, uint64_t shim, uint64_t variant, char *path, size_t size);
void vgpu_cache_keep(const char *path, const char *object, size_t bytes);
/* Waits while another process or thread has the lock of this path, so that one compiles a text and
 * the others read its object.  Returns the lock, for vgpu_cache_unlock; -1: there is none. */
int vgpu_cache_lock(const char *path);
void vgpu_cache_unlock(int lock);

#endif
