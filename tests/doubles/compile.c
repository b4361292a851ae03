/* Compiling the texts of kernels.  See compile.h.
 *
 * The preprocessor expands macros first, so that the names of the kernels are found; then the text
 * is compiled with a table for each kernel.  VGPU_CACHE keeps the objects. */
#include "compile.h"

#include "cuda/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef VGPU_DEFAULT_CXX
#define VGPU_DEFAULT_CXX "c++"
#endif

extern char **environ;

/* ---- files and processes --------------------------------------------------------------------- */

char *vgpu_read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    char *s = calloc(1, (size_t)n + 1);
    *bytes = s ? fread(s, 1, (size_t)n, f) : 0;
    fclose(f);
    return s;
}

bool vgpu_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    const bool good = fwrite(data, 1, bytes, f) == bytes;
    return !fclose(f) && good;
}

bool vgpu_run_command(char *const words[], const char *log)
{
    posix_spawn_file_actions_t a;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 1, log, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&a, 1, 2);
    const int failed = posix_spawnp(&child, words[0], &a, NULL, words, environ);
    posix_spawn_file_actions_destroy(&a);
    if (failed) {
        char text[300];
        vgpu_write_file(log, text, (size_t)snprintf(text, sizeof text, "%s: %s\n", words[0],
                                                    strerror(failed)));
        return false;
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

const char *vgpu_compiler(void)
{
    const char *c = getenv("VGPU_CXX");
    return c && *c ? c : VGPU_DEFAULT_CXX;
}

/* ---- from text to object --------------------------------------------------------------------- */

enum { MOST_WORDS = 48 };

typedef struct {
    char folder[64], in[80], expanded[80], out[80], object[80], log[80];
} paths;

static int append(char **words, int n, char *const *more)
{
    while (*more && n < MOST_WORDS - 1) words[n++] = *more++;
    words[n] = NULL;
    return n;
}

static bool expand(const vgpu_language *l, const paths *p, const char *text)
{
    char *words[MOST_WORDS] = {(char *)vgpu_compiler(), "-E", "-xc++", "-std=c++17"};
    char *const files[] = {(char *)p->in, "-o", (char *)p->expanded, NULL};
    append(words, append(words, 4, l->expand), files);
    return vgpu_write_file(p->in, text, strlen(text)) && vgpu_run_command(words, p->log);
}

static bool compile(const vgpu_language *l, const paths *p, char **log)
{
    size_t bytes;
    char *text = vgpu_read_file(p->expanded, &bytes);
    FILE *out = fopen(p->out, "w");
    if (!text || !out) return false;
    fprintf(out, "#include \"%s\"\n", l->shim);
    const bool good = l->translate(out, text, log);
    free(text);
    fclose(out);
    if (!good) return false;
    const char *machine = *vgpu_machine_flags() ? vgpu_machine_flags() : "-w";
    char *words[MOST_WORDS] = {(char *)vgpu_compiler(), "-std=c++17", "-O1", "-fPIC", "-shared",
                               "-nostdlib", "-w", "-fvisibility=hidden", "-fno-exceptions",
                               "-fno-rtti", "-fno-math-errno", "-fno-strict-aliasing",
                               "-fno-asynchronous-unwind-tables", (char *)machine};
    char *const files[] = {(char *)p->out, "-o", (char *)p->object, "-lm", NULL};
    append(words, append(words, 14, l->compile), files);
    return vgpu_run_command(words, p->log);
}

char *vgpu_compile(const vgpu_language *l, const char *text, size_t *bytes, char **log)
{
    paths p;
    const char *const names[] = {"in.cu", "in.ii", "out.cpp", "k.so", "log"};
    const char *tmp = getenv("TMPDIR");
    char *const files[] = {p.in, p.expanded, p.out, p.object, p.log};
    char *object = NULL;
    size_t n;
    snprintf(p.folder, sizeof p.folder, "%s/vgpu-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (!mkdtemp(p.folder)) return NULL;
    for (int i = 0; i < 5; i++) snprintf(files[i], sizeof p.in, "%s/%s", p.folder, names[i]);
    *log = NULL;
    if (expand(l, &p, text) && compile(l, &p, log)) object = vgpu_read_file(p.object, bytes);
    if (!object && !*log) *log = vgpu_read_file(p.log, &n);
    if (!getenv("VGPU_KEEP")) {
        for (int i = 0; i < 5; i++) unlink(files[i]);
        rmdir(p.folder);
    }
    return object;
}

/* ---- the cache ------------------------------------------------------------------------------- */

bool vgpu_cache_path(const char *text, uint64_t shim, uint64_t variant, char *path, size_t size)
{
    const char *folder = getenv("VGPU_CACHE");
    if (!folder || !*folder) return false;
    const uint64_t key[] = {vgpu_hash(text, strlen(text)), strlen(text), shim, variant,
                            vgpu_hash(vgpu_compiler(), strlen(vgpu_compiler())),
                            vgpu_hash(vgpu_machine_flags(), strlen(vgpu_machine_flags()))};
    snprintf(path, size, "%s/%016llx.so", folder, (unsigned long long)vgpu_hash(key, sizeof key));
    return true;
}

static void make_folder(void)
{
    const char *folder = getenv("VGPU_CACHE");
    for (const char *p = folder + 1; *p; p++) {         /* creates the parent folders */
        if (*p != '/') continue;
        char parent[500];
        snprintf(parent, sizeof parent, "%.*s", (int)(p - folder), folder);
        mkdir(parent, 0755);
    }
    mkdir(folder, 0755);
}

/* One of 64 files, which hundreds of paths share. */
int vgpu_cache_lock(const char *path)
{
    char file[560];
    make_folder();
    snprintf(file, sizeof file, "%s/lock-%02x", getenv("VGPU_CACHE"),
             (unsigned)(vgpu_hash(path, strlen(path)) % 64));
    const int lock = open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (lock >= 0)
        while (flock(lock, LOCK_EX) && errno == EINTR) {}
    return lock;
}

void vgpu_cache_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

void vgpu_cache_keep(const char *path, const char *object, size_t bytes)
{
    static int n;
    char beside[600];
    make_folder();
    snprintf(beside, sizeof beside, "%s.%ld.%d", path, (long)getpid(), __sync_fetch_and_add(&n, 1));
    if (!vgpu_write_file(beside, object, bytes) || rename(beside, path)) unlink(beside);
}
