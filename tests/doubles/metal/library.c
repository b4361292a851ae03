/* Libraries, functions and pipelines.  See vgpu_metal.h. */
#include "metal.h"

#include "../compile.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int64_t metal_compiled, metal_from_archives, metal_texts;

/* ---- options of the compiler ----------------------------------------------------------------- */

enum { SAFE = 0, FAST = 2, UNSUPPORTED = 1, COMPILE_FAILURE = 3 };

typedef struct {
    struct objc_object object;
    bool fast;
    NSUInteger version;                 /* of the language: major << 16 | minor; 0: the latest */
    id macros;                          /* NSDictionary, or nil */
} compile_options;

static void set_up_options(id o) { ((compile_options *)o)->fast = true; }
static void end_options(id o) { objc_release(((compile_options *)o)->macros); }

static void set_fast(compile_options *o, SEL s, bool fast)
{
    (void)s;
    o->fast = fast;
}

static void set_math_mode(compile_options *o, SEL s, long mode)
{
    if (mode < SAFE || mode > FAST) vgpu_wrong("%s %ld", sel_getName(s), mode);
    o->fast = mode != SAFE;
}

static void set_version(compile_options *o, SEL s, NSUInteger version)
{
    (void)s;
    o->version = version;
}

static void set_macros(compile_options *o, SEL s, id macros)
{
    LOCKED;
    if (macros && !objc_is(macros, &ns_dictionary, sel_getName(s))) return;
    objc_retain(macros);
    objc_release(o->macros);
    o->macros = macros;
}

static const objc_method option_methods[] = {
    METHOD("setFastMathEnabled:", "v@:B", set_fast),
    METHOD_SINCE(15, "setMathMode:", "v@:q", set_math_mode),
    METHOD("setLanguageVersion:", "v@:Q", set_version),
    METHOD("setPreprocessorMacros:", "v@:@", set_macros), {0}};
static objc_class options_class = {.name = "MTLCompileOptions", .bytes = sizeof(compile_options),
                                   .methods = option_methods, .set_up = set_up_options,
                                   .end = end_options};

/* ---- compiling ------------------------------------------------------------------------------- */

/* 300 for version 3.0; 0: this macOS does not know it.  macOS 13 has 3.0, 14 has 3.1, 15 3.2. */
static int language(NSUInteger version)
{
    const int macos = objc_macos(), latest = macos < 14 ? 300 : macos < 15 ? 310 : 320;
    const int asked = (int)(version >> 16) * 100 + (int)(version & 0xffff) * 10;
    return !version ? latest : asked < 110 || asked > latest ? 0 : asked;
}

static void add_macro(const char *key, const char *value, void *to)
{
    fprintf(to, "#define %s %s\n", key, value);
}

/* The text with the macros of the options, and the name that errors have. */
static char *whole_text(const char *text, const compile_options *o)
{
    char *whole = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&whole, &n);
    if (!f) abort();
    if (o && o->macros) ns_each(o->macros, add_macro, f);
    fprintf(f, "#line 1 \"program_source\"\n%s", text);
    fclose(f);
    return whole;
}

static uint64_t shim_hash(void)
{
    static const char *const names[] = {VGPU_METAL_SHIM "/msl.h", VGPU_METAL_SHIM "/metal_stdlib",
                                        VGPU_METAL_SHIM "/translate.c"};
    static uint64_t hash;
    for (int i = 0; i < 3 && !(i == 0 && hash); i++) {
        size_t n;
        char *s = vgpu_read_file(names[i], &n);
        hash = hash * 31 + (s ? vgpu_hash(s, n) : 1);
        free(s);
    }
    return hash;
}

static char *compile(const char *text, int version, size_t *bytes, char **log)
{
    char define[40], path[520];
    const bool contracts = !strstr(text, "#pragma METAL fp contract(off)");
    const bool clang = strstr(vgpu_compiler(), "clang");
    snprintf(define, sizeof define, "-D__METAL_VERSION__=%d", version);
    char *const expand[] = {define, "-nostdinc", "-I" VGPU_METAL_SHIM, NULL};
    /* a number like 1.5 is a float */
    char *const flags[] = {contracts ? "-ffp-contract=fast" : "-ffp-contract=off",
                           clang ? "-Xclang" : "-fsingle-precision-constant",
                           clang ? "-cl-single-precision-constant" : "-w", NULL};
    const vgpu_language metal = {VGPU_METAL_SHIM "/msl.h", expand, flags, metal_translate};
    const bool cached = vgpu_cache_path(text, shim_hash(), (uint64_t)version, path, 512);
    char *object = cached ? vgpu_read_file(path, bytes) : NULL;
    if (object) return object;
    metal_texts++;
    object = vgpu_compile(&metal, text, bytes, log);
    if (object && cached) vgpu_cache_keep(path, object, *bytes);
    return object;
}

id metal_new_library(metal_device *d, SEL s, id text, id options, id *error)
{
    static const char domain[] = "MTLLibraryErrorDomain";
    const compile_options *o = (const compile_options *)options;
    char *log = NULL;
    size_t bytes = 0;
    LOCKED;
    MAY_FAIL_WITH(s, error, domain, COMPILE_FAILURE);
    if (!objc_is(text, &ns_string, sel_getName(s))) return NULL;
    if (options && !objc_is(options, &options_class, sel_getName(s))) return NULL;
    if (!o || o->fast) vgpu_wrong("%s: fast math is enabled", sel_getName(s));
    const int version = language(o ? o->version : 0);
    if (!version) {
        ns_fail(error, domain, UNSUPPORTED, "the version of the language is not supported");
        return NULL;
    }
    char *whole = whole_text(ns_chars(text), o);
    char *object = compile(whole, version, &bytes, &log);
    const uint64_t hash = vgpu_hash(whole, strlen(whole)) + (uint64_t)version;
    free(whole);
    void *code = object ? vgpu_open_code(object, bytes) : NULL;
    free(object);
    if (!code) ns_fail(error, domain, COMPILE_FAILURE, log ? log : "the text does not load");
    free(log);
    if (!code) return NULL;
    metal_library *l = objc_make(&metal_library_class);
    l->device = d;
    l->code = code;
    l->here = dlsym(code, "vgpu_here");
    l->kernels = dlsym(code, "vgpu_kernels");
    l->hash = hash;
    return &l->object;
}

/* ---- libraries and functions ----------------------------------------------------------------- */

static void end_library(id o) { dlclose(((metal_library *)o)->code); }

static id function_names(metal_library *l, SEL s)
{
    id names[256];
    size_t n = 0;
    LOCKED;
    (void)s;
    for (; n < 256 && l->kernels[n]; n++) names[n] = ns_text(l->kernels[n]->name);
    return ns_list(names, n);
}

static id new_function(metal_library *l, SEL s, id name)
{
    LOCKED;
    MAY_FAIL(s);
    if (!objc_is(name, &ns_string, sel_getName(s))) return NULL;
    const metal_kernel *const *k = l->kernels;
    while (*k && strcmp((*k)->name, ns_chars(name))) k++;
    if (!*k) return NULL;
    metal_function *f = objc_make(&metal_function_class);
    f->library = objc_retain(l);
    f->kernel = *k;
    return &f->object;
}

static void end_function(id o) { objc_release(((metal_function *)o)->library); }

static id function_name(metal_function *f, SEL s)
{
    (void)s;
    return ns_text(f->kernel->name);
}

uint64_t metal_function_key(const metal_function *f)
{
    return f->library->hash * 31 + vgpu_hash(f->kernel->name, strlen(f->kernel->name));
}

static const objc_method library_methods[] = {
    METHOD("functionNames", "@@:", function_names),
    METHOD("newFunctionWithName:", "@@:@", new_function), {0}};
objc_class metal_library_class = {.name = "VGPULibrary", .bytes = sizeof(metal_library),
                                  .methods = library_methods, .end = end_library};
static const objc_method function_methods[] = {METHOD("name", "@@:", function_name), {0}};
objc_class metal_function_class = {.name = "VGPUFunction", .bytes = sizeof(metal_function),
                                   .methods = function_methods, .end = end_function};

/* ---- descriptors of pipelines ---------------------------------------------------------------- */

static void set_up_descriptor(id o) { (void)o; }

static void end_descriptor(id o)
{
    objc_release(((metal_pipeline_descriptor *)o)->function);
    objc_release(((metal_pipeline_descriptor *)o)->archives);
}

static void set_function(metal_pipeline_descriptor *d, SEL s, metal_function *f)
{
    LOCKED;
    if (f && !objc_is(f, &metal_function_class, sel_getName(s))) return;
    objc_retain(f);
    objc_release(d->function);
    d->function = f;
}

static void set_archives(metal_pipeline_descriptor *d, SEL s, id list)
{
    LOCKED;
    if (list && !objc_is(list, &ns_array, sel_getName(s))) return;
    for (size_t i = 0; list && i < ns_count(list); i++)
        if (!objc_is(ns_item(list, i), &metal_archive_class, sel_getName(s))) return;
    objc_retain(list);
    objc_release(d->archives);
    d->archives = list;
}

static void set_label(id o, SEL s, id text)
{
    (void)o;
    if (text) objc_is(text, &ns_string, sel_getName(s));
}

static void set_whole_waves(metal_pipeline_descriptor *d, SEL s, bool whole)
{
    (void)s;
    d->whole_waves = whole;
}

/* A pipeline is compiled for groups of up to this size. */
static void set_most_items(metal_pipeline_descriptor *d, SEL s, NSUInteger n)
{
    if (n > 1024) vgpu_wrong("%s: %lu items", sel_getName(s), n);
    else d->most_items = (unsigned)n;
}

static const objc_method descriptor_methods[] = {
    METHOD("setComputeFunction:", "v@:@", set_function),
    METHOD("setBinaryArchives:", "v@:@", set_archives), METHOD("setLabel:", "v@:@", set_label),
    METHOD("setMaxTotalThreadsPerThreadgroup:", "v@:Q", set_most_items),
    METHOD("setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", "v@:B", set_whole_waves), {0}};
objc_class metal_pipeline_descriptor_class = {
    .name = "MTLComputePipelineDescriptor", .bytes = sizeof(metal_pipeline_descriptor),
    .methods = descriptor_methods, .set_up = set_up_descriptor, .end = end_descriptor};

/* ---- pipelines ------------------------------------------------------------------------------- */

enum { FAIL_ON_MISS = 4, COMPILER_ERROR = 3 };
static const char pipeline_domain[] = "AGXMetalDouble";

size_t metal_group_memory(const metal_kernel *k)
{
    return (size_t)(k->group_end - k->group) - (k->dynamic ? METAL_GROUP_MEMORY : 0);
}

static id make_pipeline(metal_device *d, SEL s, metal_function *f, id *error)
{
    char text[120];
    if (f->library->device != d) {
        vgpu_wrong("%s: a function of another device", sel_getName(s));
        return NULL;
    }
    if (metal_group_memory(f->kernel) > METAL_GROUP_MEMORY) {
        snprintf(text, sizeof text, "Threadgroup memory size (%zu) exceeds the maximum threadgroup"
                 " memory allowed (%d)", metal_group_memory(f->kernel), METAL_GROUP_MEMORY);
        ns_fail(error, pipeline_domain, COMPILER_ERROR, text);
        return NULL;
    }
    metal_pipeline *p = objc_make(&metal_pipeline_class);
    p->function = objc_retain(f);
    p->most_items = (unsigned)vgpu_env_number("VGPU_METAL_ITEMS", 1024);
    return &p->object;
}

id metal_new_pipeline(metal_device *d, SEL s, id function, id *error)
{
    LOCKED;
    MAY_FAIL_WITH(s, error, pipeline_domain, COMPILER_ERROR);
    if (!objc_is(function, &metal_function_class, sel_getName(s))) return NULL;
    id made = make_pipeline(d, s, (metal_function *)function, error);
    metal_compiled += made != NULL;
    return made;
}

id metal_new_pipeline_with(metal_device *d, SEL s, id descriptor, NSUInteger options,
                           id *reflection, id *error)
{
    const metal_pipeline_descriptor *with = (const metal_pipeline_descriptor *)descriptor;
    bool found = false;
    LOCKED;
    MAY_FAIL_WITH(s, error, pipeline_domain, COMPILER_ERROR);
    if (!objc_is(with, &metal_pipeline_descriptor_class, sel_getName(s))) return NULL;
    if (options > 7) vgpu_wrong("%s: options %#lx", sel_getName(s), options);
    if (reflection) *reflection = NULL;
    if (!with->function) {
        vgpu_wrong("%s: the descriptor has no function", sel_getName(s));
        return NULL;
    }
    for (size_t i = 0; with->archives && i < ns_count(with->archives) && !found; i++)
        found = metal_archive_has(ns_item(with->archives, i), metal_function_key(with->function));
    if (!found && options & FAIL_ON_MISS) {
        ns_fail(error, pipeline_domain, COMPILER_ERROR, "no binary archive has the function");
        return NULL;
    }
    id made = make_pipeline(d, s, with->function, error);
    if (made) ((metal_pipeline *)made)->whole_waves = with->whole_waves;
    if (made && with->most_items) ((metal_pipeline *)made)->most_items = with->most_items;
    if (found) metal_from_archives += made != NULL;
    else metal_compiled += made != NULL;
    return made;
}

static void end_pipeline(id o) { objc_release(((metal_pipeline *)o)->function); }

static NSUInteger most_items(metal_pipeline *p, SEL s)
{
    (void)s;
    return p->most_items;
}

static NSUInteger width(metal_pipeline *p, SEL s)
{
    (void)p, (void)s;
    return 32;
}

static NSUInteger group_memory(metal_pipeline *p, SEL s)
{
    (void)s;
    return metal_group_memory(p->function->kernel);
}

static const objc_method pipeline_methods[] = {
    METHOD("maxTotalThreadsPerThreadgroup", "Q@:", most_items),
    METHOD("threadExecutionWidth", "Q@:", width),
    METHOD("staticThreadgroupMemoryLength", "Q@:", group_memory), {0}};
objc_class metal_pipeline_class = {.name = "VGPUComputePipelineState",
                                   .bytes = sizeof(metal_pipeline), .methods = pipeline_methods,
                                   .end = end_pipeline};

__attribute__((constructor)) static void begin(void)
{
    objc_add_class(&options_class);
    objc_add_class(&metal_pipeline_descriptor_class);
}
