/* Binary archives: files of compiled pipelines.  This double's have the keys of the functions.  See
 * vgpu_metal.h. */
#include "metal.h"

#include "../compile.h"

#include <stdlib.h>
#include <string.h>

enum { INVALID_FILE = 1, INTERNAL_ERROR = 4 };
static const char domain[] = "MTLBinaryArchiveDomain";

typedef struct {
    char magic[8];
    char machine[56];                   /* the device and macOS that the archive is for */
    uint64_t n, hash;                   /* of the keys that follow */
} head;

typedef struct {
    struct objc_object object;
    metal_device *device;
    uint64_t *keys;
    size_t n;
} archive;

typedef struct {
    struct objc_object object;
    id url;
} archive_descriptor;

static objc_class descriptor_class;

static head head_of(const archive *a)
{
    char name[64];
    head h = {.magic = "VGPUARCH", .n = a->n, .hash = vgpu_hash(a->keys, a->n * sizeof *a->keys)};
    snprintf(h.machine, sizeof h.machine, "%s, macOS %d", metal_device_name(a->device, name),
             objc_macos());
    return h;
}

bool metal_archive_has(id o, uint64_t key)
{
    const archive *a = (const archive *)o;
    for (size_t i = 0; i < a->n; i++)
        if (a->keys[i] == key) return true;
    return false;
}

static void add(archive *a, uint64_t key)
{
    if (metal_archive_has(&a->object, key)) return;
    a->keys = realloc(a->keys, (a->n + 1) * sizeof *a->keys);
    if (!a->keys) abort();
    a->keys[a->n++] = key;
}

/* Reads the keys of a file; otherwise returns what is wrong with it. */
static const char *load(archive *a, const char *path)
{
    size_t bytes = 0;
    char *file = vgpu_read_file(path, &bytes);
    const char *problem = NULL;
    head h = {0};
    if (!file) return "the file of the archive does not exist";
    if (bytes >= sizeof h) memcpy(&h, file, sizeof h);
    const size_t keys = bytes - sizeof h;
    if (memcmp(h.magic, "VGPUARCH", 8) || keys % 8 || h.n != keys / 8
        || vgpu_hash(file + sizeof h, keys) != h.hash)
        problem = "the file is damaged or no archive";
    else if (strcmp(h.machine, head_of(a).machine))
        problem = "the archive is of another device or macOS";
    for (size_t i = 0; !problem && i < h.n; i++) {
        uint64_t key;
        memcpy(&key, file + sizeof h + 8 * i, 8);
        add(a, key);
    }
    free(file);
    return problem;
}

id metal_new_archive(metal_device *d, SEL s, id o, id *error)
{
    LOCKED;
    MAY_FAIL_WITH(s, error, domain, INTERNAL_ERROR);
    if (!objc_is(o, &descriptor_class, sel_getName(s))) return NULL;
    const id url = ((archive_descriptor *)o)->url;
    archive *a = objc_make(&metal_archive_class);
    a->device = d;
    const char *problem = url ? load(a, ns_path(url)) : NULL;
    if (!problem) return &a->object;
    ns_fail(error, domain, INVALID_FILE, problem);
    objc_release(a);
    return NULL;
}

static void end_archive(id o) { free(((archive *)o)->keys); }

static objc_bool add_function(archive *a, SEL s, metal_pipeline_descriptor *d, id *error)
{
    LOCKED;
    MAY_FAIL_WITH(s, error, domain, INTERNAL_ERROR);
    if (!objc_is(d, &metal_pipeline_descriptor_class, sel_getName(s))) return objc_yes(false);
    if (!d->function || d->function->library->device != a->device) {
        vgpu_wrong("%s: the descriptor has no function, or one of another device", sel_getName(s));
        return objc_yes(false);
    }
    add(a, metal_function_key(d->function));
    return objc_yes(true);
}

static objc_bool serialize(archive *a, SEL s, id url, id *error)
{
    LOCKED;
    MAY_FAIL_WITH(s, error, domain, INTERNAL_ERROR);
    if (!objc_is(url, &ns_url, sel_getName(s))) return objc_yes(false);
    const head h = head_of(a);
    const size_t bytes = a->n * sizeof *a->keys;
    char *file = vgpu_zeroed(sizeof h + bytes);
    memcpy(file, &h, sizeof h);
    if (bytes) memcpy(file + sizeof h, a->keys, bytes);
    const bool good = bytes && vgpu_write_file(ns_path(url), file, sizeof h + bytes);
    free(file);
    if (!good) ns_fail(error, domain, INTERNAL_ERROR,
                       bytes ? "the file cannot be written" : "Nothing to serialize");
    return objc_yes(good);
}

static const objc_method archive_methods[] = {
    METHOD("addComputePipelineFunctionsWithDescriptor:error:", "B@:@^@", add_function),
    METHOD("serializeToURL:error:", "B@:@^@", serialize), {0}};
objc_class metal_archive_class = {.name = "VGPUBinaryArchive", .bytes = sizeof(archive),
                                  .methods = archive_methods, .end = end_archive};

static void set_up_descriptor(id o) { (void)o; }
static void end_descriptor(id o) { objc_release(((archive_descriptor *)o)->url); }

static void set_url(archive_descriptor *d, SEL s, id url)
{
    LOCKED;
    if (url && !objc_is(url, &ns_url, sel_getName(s))) return;
    objc_retain(url);
    objc_release(d->url);
    d->url = url;
}

static const objc_method descriptor_methods[] = {METHOD("setUrl:", "v@:@", set_url), {0}};
static objc_class descriptor_class = {
    .name = "MTLBinaryArchiveDescriptor", .bytes = sizeof(archive_descriptor),
    .methods = descriptor_methods, .set_up = set_up_descriptor, .end = end_descriptor};

__attribute__((constructor)) static void begin(void)
{
    objc_add_class(&descriptor_class);
}
