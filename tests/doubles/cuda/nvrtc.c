/* A test double of NVRTC: a C++ compiler compiles the text, after shim.h, to a shared object, which
 * is the "cubin".  See vgpu.h.
 *
 * compile.c compiles it. */
#include "inside.h"

#include "../compile.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !defined(VGPU_SHIM) || !defined(VGPU_RTC)
#error VGPU_SHIM is the folder of shim.h, VGPU_RTC the program made of tools/kernels/rtc.c
#endif

struct _nvrtcProgram {
    char *text, *log;
    char *image;                        /* a vgpu_image and the object */
    size_t image_bytes;
    int arch;
    bool ptx_only;
    char defined[512];                  /* #define lines of the options, before the text */
};

#if VGPU_MAJOR >= 13
static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
#else
static const int archs[] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90};
#endif
enum { N_ARCHS = sizeof archs / sizeof *archs };

/* ---- from text to object --------------------------------------------------------------------- */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Writes a preprocessed text and a table for each function with "__global__" in it. */
static bool add_tables(FILE *out, char *text, char **log)
{
    (void)log;
    fputs(text, out);
    fputs("\n", out);
    for (const char *p = text; (p = strstr(p, "__global__"));) {
        p += strlen("__global__");
        const char *end = p + strcspn(p, "({;");
        if (*end != '(') continue;
        while (end > p && isspace((unsigned char)end[-1])) end--;
        const char *name = end;
        while (name > p && is_word(name[-1])) name--;
        fprintf(out, "VGPU_KERNEL(%.*s)\n", (int)(end - name), name);
    }
    return true;
}

static char *build(const char *text, int arch, size_t *bytes, char **log)
{
    char define[40];
    char *const expand[] = {"-D__CUDACC__=1", "-D__CUDACC_RTC__=1", "-nostdinc", NULL};
    char *const compile[] = {"-ffp-contract=off", define, "-I" VGPU_SHIM, NULL};
    const vgpu_language cuda = {"shim.h", expand, compile, add_tables};
    snprintf(define, sizeof define, "-DVGPU_CUDA_ARCH=%d0", arch);
    return vgpu_compile(&cuda, text, bytes, log);
}

static uint64_t shim_hash(void)
{
    static uint64_t hash;
    if (!hash) {
        size_t n;
        char *s = vgpu_read_file(VGPU_SHIM "/shim.h", &n);
        hash = s ? vgpu_hash(s, n) : 1;
        free(s);
    }
    return hash;
}

/* ---- the real NVRTC -------------------------------------------------------------------------- */

/* If VGPU_REAL_NVRTC names the real library's file, that must compile, in a process of its own and
 * for two architectures, all texts with tables of launches and one of twenty of the others. */
static bool needs_real(const char *text)
{
    const char *path = getenv("VGPU_REAL_NVRTC");
    return path && *path
           && (strstr(text, "#define WB_TABLE") || vgpu_hash(text, strlen(text)) % 20 == 0);
}

static bool real_compiles(const char *text, char **log)
{
    static const char *const real_archs[] = {"--gpu-architecture=sm_80",
                                             "--gpu-architecture=sm_90"};
    char in[] = "/tmp/vgpu-real-XXXXXX", output[40];
    size_t n;
    bool good = true;
    const int file = mkstemp(in);
    if (file < 0) return false;
    close(file);
    snprintf(output, sizeof output, "%s.log", in);
    good = vgpu_write_file(in, text, strlen(text));
    for (int i = 0; i < 2 && good; i++) {
        char *words[] = {VGPU_RTC, getenv("VGPU_REAL_NVRTC"), "nvrtc", (char *)real_archs[i],
                         "--fmad=false", "-default-device", "--", in, NULL};
        good = vgpu_run_command(words, output);
    }
    if (!good) *log = vgpu_read_file(output, &n);
    unlink(in);
    unlink(output);
    return good;
}

/* ---- the interface --------------------------------------------------------------------------- */

/* vgpu_fails of the driver's double, which counts the calls of both libraries. */
static bool fails(const char *name)
{
    static bool (*in_driver)(const char *);
    if (!in_driver) {
        const char *file = getenv("VGPU_LIBRARY");
        if (!file) file = getenv("WEBER_CUDA_LIBRARY");
        void *driver = file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;
        if (driver) *(void **)&in_driver = dlsym(driver, "vgpu_fails");
    }
    return in_driver && in_driver(name);
}
#define MAY_FAIL(name) if (fails(name)) return NVRTC_ERROR_OUT_OF_MEMORY

VGPU_API nvrtcResult nvrtcVersion(int *major, int *minor)
{
    MAY_FAIL("nvrtcVersion");
    *major = VGPU_MAJOR;
    *minor = 0;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetNumSupportedArchs(int *n)
{
    MAY_FAIL("nvrtcGetNumSupportedArchs");
    *n = N_ARCHS;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetSupportedArchs(int *list)
{
    MAY_FAIL("nvrtcGetSupportedArchs");
    memcpy(list, archs, sizeof archs);
    return NVRTC_SUCCESS;
}

VGPU_API const char *nvrtcGetErrorString(nvrtcResult r)
{
    switch (r) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: break;
    }
    return "NVRTC_ERROR unknown";
}

VGPU_API nvrtcResult nvrtcCreateProgram(nvrtcProgram *made, const char *text, const char *name,
                                        int n, const char *const *headers, const char *const *names)
{
    MAY_FAIL("nvrtcCreateProgram");
    (void)name, (void)headers, (void)names;
    if (!made || !text || n) return NVRTC_ERROR_INVALID_INPUT;  /* n: headers, not supported */
    nvrtcProgram p = calloc(1, sizeof *p);
    if (!p || !(p->text = strdup(text))) return NVRTC_ERROR_OUT_OF_MEMORY;
    *made = p;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    free((*program)->text);
    free((*program)->log);
    free((*program)->image);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

static bool read_arch(nvrtcProgram p, const char *value)
{
    p->ptx_only = !strncmp(value, "compute_", 8);
    if (!p->ptx_only && strncmp(value, "sm_", 3)) return false;
    p->arch = atoi(strchr(value, '_') + 1);
    for (int i = 0; i < N_ARCHS; i++)
        if (archs[i] == p->arch) return true;
    return false;
}

/* Options without an effect here; products and sums are never contracted. */
static bool is_known(const char *option)
{
    static const char *const known[] = {"--fmad=false", "-fmad=false", "-default-device",
                                        "--device-as-default-execution-space", "-w", "-lineinfo",
                                        "--generate-line-info", "--std=c++14", "-std=c++14",
                                        "--std=c++17", "-std=c++17", "--disable-warnings"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(option, known[i])) return true;
    return false;
}

/* -DNAME, -DNAME=VALUE */
static bool define(nvrtcProgram p, const char *what)
{
    const size_t at = strlen(p->defined);
    const char *equals = strchr(what, '=');
    const int name = equals ? (int)(equals - what) : (int)strlen(what);
    const int n = snprintf(p->defined + at, sizeof p->defined - at, "#define %.*s %s\n", name, what,
                           equals ? equals + 1 : "1");
    return n > 0 && (size_t)n < sizeof p->defined - at;
}

static nvrtcResult read_options(nvrtcProgram p, int n, const char *const *options)
{
    p->arch = 75;
    p->defined[0] = 0;
    p->ptx_only = true;
    for (int i = 0; i < n; i++) {
        const char *o = options[i], *equals = strchr(o, '=');
        bool good;
        if (!strncmp(o, "--gpu-architecture=", 19) || !strncmp(o, "-arch=", 6))
            good = read_arch(p, equals + 1);
        else if ((!strcmp(o, "-arch") || !strcmp(o, "--gpu-architecture")) && i + 1 < n)
            good = read_arch(p, options[++i]);
        else if (!strncmp(o, "-D", 2))
            good = define(p, o + 2);
        else good = is_known(o);
        if (good) continue;
        p->log = malloc(200);
        if (p->log) snprintf(p->log, 200, "nvrtc: error: invalid option '%s'\n", o);
        return NVRTC_ERROR_INVALID_OPTION;
    }
    return NVRTC_SUCCESS;
}

static nvrtcResult keep_image(nvrtcProgram p, const char *object, size_t bytes)
{
    vgpu_image head = {.toolkit = VGPU_MAJOR, .arch = (uint32_t)p->arch, .bytes = (uint32_t)bytes,
                       .hash = vgpu_hash(object, bytes)};
    memcpy(head.magic, p->ptx_only ? "VGPUPTX" : "VGPUBIN", 8);
    snprintf(head.flags, sizeof head.flags, "%s", vgpu_machine_flags());
    free(p->image);
    p->image_bytes = sizeof head + bytes;
    p->image = malloc(p->image_bytes);
    if (!p->image) return NVRTC_ERROR_OUT_OF_MEMORY;
    memcpy(p->image, &head, sizeof head);
    memcpy(p->image + sizeof head, object, bytes);
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
    MAY_FAIL("nvrtcCompileProgram");
    char path[520] = "";
    size_t bytes = 0;
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    free(p->log);
    p->log = NULL;
    const nvrtcResult result = read_options(p, n, options);
    if (result) return result;
    char *text = malloc(strlen(p->defined) + strlen(p->text) + 1);
    if (!text) return NVRTC_ERROR_OUT_OF_MEMORY;
    strcat(strcpy(text, p->defined), p->text);
    const char *dry = getenv("VGPU_DRY");
    if (dry && atoi(dry)) {             /* an image without code */
        free(text);
        return keep_image(p, "", 0);
    }
    const bool cached = vgpu_cache_path(text, shim_hash(), (uint64_t)p->arch, path, 512);
    char *object = cached ? vgpu_read_file(path, &bytes) : NULL;
    const int lock = cached && !object ? vgpu_cache_lock(path) : -1;
    if (lock >= 0) object = vgpu_read_file(path, &bytes);
    if (!object) {
        object = build(text, p->arch, &bytes, &p->log);
        if (object && cached) vgpu_cache_keep(path, object, bytes);
    }
    if (object && needs_real(text)) {
        strcat(path, ".real");          /* an empty file: the real NVRTC has compiled the text */
        const bool known = cached && !access(path, F_OK);
        if (!known && !real_compiles(text, &p->log)) {
            fprintf(stderr, "vgpu: the real NVRTC does not compile a text: %s\n",
                    p->log ? p->log : "");
            fflush(NULL);
            if (getenv("VGPU_STRICT")) _exit(99);       /* an error here could go unnoticed */
            free(object);
            object = NULL;
        } else if (!known && cached) {
            vgpu_cache_keep(path, "", 0);
        }
    }
    vgpu_cache_unlock(lock);
    free(text);
    if (!object) return NVRTC_ERROR_COMPILATION;
    const nvrtcResult kept = keep_image(p, object, bytes);
    free(object);
    return kept;
}

VGPU_API nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes)
{
    MAY_FAIL("nvrtcGetCUBINSize");
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->ptx_only ? 0 : p->image_bytes;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *image)
{
    MAY_FAIL("nvrtcGetCUBIN");
    if (!p || !p->image || p->ptx_only) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(image, p->image, p->image_bytes);
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes)
{
    MAY_FAIL("nvrtcGetPTXSize");
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->image_bytes;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *image)
{
    MAY_FAIL("nvrtcGetPTX");
    if (!p || !p->image) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(image, p->image, p->image_bytes);
    if (!p->ptx_only) memcpy(image, "VGPUPTX", 8);
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes)
{
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->log ? strlen(p->log) + 1 : 1;
    return NVRTC_SUCCESS;
}

VGPU_API nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
    strcpy(log, p->log ? p->log : "");
    return NVRTC_SUCCESS;
}
