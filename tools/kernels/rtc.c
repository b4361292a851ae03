/* Compiles texts with a vendor's run-time compiler, without a device.
 *
 *   rtc LIBRARY PREFIX OPTION... -- FILE...
 *
 * PREFIX is "nvrtc" or "hiprtc": NVRTC and hiprtc have the same functions with these prefixes.
 * With RTC_CUBIN=1 NVRTC's code of FILE is written to FILE.cubin.
 * Prints for each FILE "ok FILE", or "failed FILE" and the messages of the compiler, each line
 * after "| ".  Exit status: 0 if all files were compiled, 1 if one failed, 3 if the library cannot
 * be used. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *program;

static int (*create)(program *, const char *text, const char *name, int, const char *const *,
                     const char *const *);
static int (*compile)(program, int n, const char *const *options);
static int (*log_size)(program, size_t *);
static int (*get_log)(program, char *);
static int (*destroy)(program *);
static int (*code_size)(program, size_t *), (*get_code)(program, char *);   /* NULL: not written */

static int find(void *library, const char *prefix, const char *name, void *to)
{
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s%s", prefix, name);
    void *found = dlsym(library, symbol);
    memcpy(to, &found, sizeof found);
    if (!found) printf("no %s\n", symbol);
    return found != NULL;
}

static char *contents(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long n = 0;
    if (f && !fseek(f, 0, SEEK_END) && (n = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET)
        && (text = calloc((size_t)n + 1, 1)) && fread(text, 1, (size_t)n, f) != (size_t)n) {
        free(text);
        text = NULL;
    }
    if (f) fclose(f);
    return text;
}

static int write_code(program p, const char *path)
{
    char name[4096];
    size_t size = 0;
    if (code_size(p, &size) || !size) return 1;
    snprintf(name, sizeof name, "%s.cubin", path);
    char *code = malloc(size);
    FILE *f = code && !get_code(p, code) ? fopen(name, "wb") : NULL;
    int failed = !f || fwrite(code, 1, size, f) != size;
    if (f) failed |= fclose(f) != 0;
    free(code);
    return failed;
}

static int compile_file(const char *path, int n, const char *const *options)
{
    char *text = contents(path);
    program p = NULL;
    size_t size = 0;
    int status = !text || create(&p, text, path, 0, NULL, NULL) || compile(p, n, options);
    if (!status && get_code) status = write_code(p, path);
    printf("%s %s\n", status ? "failed" : "ok", path);
    if (status && p && !log_size(p, &size) && size > 1) {
        char *messages = calloc(size + 1, 1);
        if (messages && !get_log(p, messages))
            for (char *line = strtok(messages, "\n"); line; line = strtok(NULL, "\n"))
                printf("| %s\n", line);
        free(messages);
    }
    if (p) destroy(&p);
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    int first = 3, failed = 0;
    while (first < argc && strcmp(argv[first], "--")) first++;
    if (first >= argc) {
        fprintf(stderr, "usage: rtc LIBRARY PREFIX OPTION... -- FILE...\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 3;
    }
    if (!find(library, argv[2], "CreateProgram", &create)
        || !find(library, argv[2], "CompileProgram", &compile)
        || !find(library, argv[2], "GetProgramLogSize", &log_size)
        || !find(library, argv[2], "GetProgramLog", &get_log)
        || !find(library, argv[2], "DestroyProgram", &destroy))
        return 3;
    const char *writes = getenv("RTC_CUBIN");
    if (writes && *writes == '1'
        && (!find(library, argv[2], "GetCUBINSize", &code_size)
            || !find(library, argv[2], "GetCUBIN", &get_code)))
        return 3;
    for (int i = first + 1; i < argc; i++) {
        failed |= compile_file(argv[i], first - 3, (const char *const *)argv + 3) != 0;
        fflush(stdout);
    }
    return failed;
}
