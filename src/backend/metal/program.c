/* Compiles programs.  Metal compiles a text to a library, and each kernel of the library to a
 * pipeline, the code for one GPU.  An image is the text, followed by a binary archive with the
 * pipelines of the text's kernels. */
#include "backend/metal/metal.h"

#include "base/environment.h"
#include "base/files/file.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    id names;                           /* names of the kernels: an array of strings */
    NSUInteger n;
    id pipeline[];                      /* pipeline of each kernel */
} program_of;

typedef struct { char magic[8]; uint64_t text_bytes; } image_head;
static const char metal_program_magic[8] = "WBMTL01";

/* Writes the options, without Metal's fast math, which would break the prelude's exact sums. */
bool wb__mtl_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    (void)base, (void)flags;
    snprintf(text, capacity, "MSL 3.0, safe math");
    return true;
}

/* ---- libraries ------------------------------------------------------------------------------- */

/* Returns the library of a text; NULL: *error receives the reason. */
static id metal_program_library_of(wb__mtl_device *d, const char *text, id *error)
{
    const id options = MAKE(newObject, wb__mtl_class("MTLCompileOptions"));
    if (!options) return NULL;
    if (mtl_respondsToSelector(options, wb__selector.setMathMode))      /* since macOS 15 */
        mtl_setMathMode(options, MTLMathModeSafe);
    else mtl_setFastMathEnabled(options, 0);
    mtl_setLanguageVersion(options, MTLLanguageVersion3_0);
    const id library = MAKE(newLibrary, d->device, wb__mtl_string(text), options, error);
    mtl_release(options);
    return library;
}

/* Makes a descriptor for the pipeline of a kernel, which the caller releases.  Returns a code. */
static int descriptor_of(id library, id name, id archive, id *descriptor)
{
    const id function = MAKE(newFunction, library, name);
    if (!function) return wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
    *descriptor = MAKE(newObject, wb__mtl_class("MTLComputePipelineDescriptor"));
    if (*descriptor) {
        mtl_setComputeFunction(*descriptor, function);
        mtl_setMaxTotalThreads(*descriptor, 256);
        if (archive)
            mtl_setBinaryArchives(*descriptor,
                                  mtl_arrayWithObjects(wb__mtl_class("NSArray"), &archive, 1));
    }
    mtl_release(function);
    return *descriptor ? 0 : wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
}

int wb__mtl_pipeline(void *program, const char *entry, id *pipeline)
{
    const program_of *p = program;
    wb__gpu_call = "newFunction";
    for (NSUInteger i = 0; i < p->n; i++)
        if (!strcmp(mtl_UTF8String(mtl_objectAtIndex(p->names, i)), entry)) {
            *pipeline = mtl_retain(p->pipeline[i]);
            return 0;
        }
    return wb__mtl_failed(WB__MTL_NO_KERNEL, NULL);
}

/* ---- archives --------------------------------------------------------------------------------
 *
 * Archives only save time, so their failures are not errors.  An archive's file exists only while a
 * program is made. */

typedef struct {
    id archive;                         /* NULL: there is none */
    char path[200];                 /* path of its file, in a folder of its own; "": it has none */
} metal_program_file_of;

static id url_of(const char *path)
{
    return mtl_fileURLWithPath(wb__mtl_class("NSURL"), wb__mtl_string(path));
}

/* Creates a folder with a new name for the archive's file. */
static bool metal_program_make_folder(metal_program_file_of *f)
{
    const char *parent = wb__environment_path("TMPDIR");
    const int n = snprintf(f->path, sizeof f->path, "%s/weber-XXXXXX",
                           parent && *parent ? parent : "/tmp");
    const bool made = n + sizeof "/archive" <= sizeof f->path && wb__os_make_temporary(f->path);
    strcpy(f->path + (made ? n : 0), made ? "/archive" : "");
    return made;
}

/* Sets f->archive to the archive of these bytes, or to an empty one if `data` is NULL. */
static void open_archive(const wb__mtl_device *d, metal_program_file_of *f, const void *data,
                         size_t bytes)
{
    id error = NULL;
    if (!metal_program_make_folder(f)) return;
    FILE *to = data ? fopen(f->path, "wb") : NULL;
    bool written = !data || (to && fwrite(data, 1, bytes, to) == bytes);
    if (to) written &= !fclose(to);
    const id descriptor = written ? mtl_newObject(wb__mtl_class("MTLBinaryArchiveDescriptor"))
                                  : NULL;
    if (!descriptor) return;
    if (data) mtl_setUrl(descriptor, url_of(f->path));
    f->archive = mtl_newBinaryArchive(d->device, descriptor, &error);
    mtl_release(descriptor);
}

static void drop_archive(metal_program_file_of *f)
{
    if (f->archive) mtl_release(f->archive);
    if (!*f->path) return;
    wb__os_remove(f->path);
    *strrchr(f->path, '/') = 0;
    wb__os_remove_folder(f->path);
}

/* Returns the image of a program, which the caller frees; NULL, without an error: there is none. */
static void *metal_program_image_of(const metal_program_file_of *f, const char *text, size_t *bytes)
{
    id error = NULL;
    int64_t n = 0;
    if (!f->archive || !mtl_serialize(f->archive, url_of(f->path), &error)) return NULL;
    char *archive = wb__file_read(f->path, &n);
    image_head head = {.text_bytes = strlen(text) + 1};
    memcpy(head.magic, metal_program_magic, sizeof metal_program_magic);
    *bytes = sizeof head + (size_t)head.text_bytes + (size_t)n;
    char *image = archive ? wb__alloc(*bytes) : NULL;
    if (image) {
        memcpy(image, &head, sizeof head);
        memcpy(image + sizeof head, text, (size_t)head.text_bytes);
        memcpy(image + sizeof head + head.text_bytes, archive, (size_t)n);
    }
    wb__free(archive);
    if (!image) wb_clear_error();
    return image;
}

/* ---- programs -------------------------------------------------------------------------------- */

void wb__mtl_unload(wb__gpu_device *base, void *program)
{
    program_of *p = program;
    (void)base;
    for (NSUInteger i = 0; i < p->n; i++) mtl_release(p->pipeline[i]);
    mtl_release(p->names);
    wb__free(p);
}

/* Makes the pipelines of all kernels of a library, from the archive if it has them.  `add`: puts
 * the pipelines into the archive first, which is dropped if that fails. */
static int make_pipelines(const wb__mtl_device *d, id library, metal_program_file_of *f, bool add,
                          void **program)
{
    const id names = MAKE(functionNames, library);
    if (!names) return wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
    const NSUInteger n = mtl_count(names);
    program_of *p = wb__alloc_zero(1, sizeof *p + n * sizeof *p->pipeline);
    if (!p) return wb__mtl_failed(WB__MTL_NO_MEMORY, NULL);
    p->names = mtl_retain(names);
    int code = 0;
    while (p->n < n && !code) {
        id descriptor = NULL, error = NULL;
        code = descriptor_of(library, mtl_objectAtIndex(names, p->n), f->archive, &descriptor);
        if (code) break;
        if (add && f->archive && !mtl_addPipeline(f->archive, descriptor, &error)) {
            drop_archive(f);
            *f = (metal_program_file_of){0};
            error = NULL;
            mtl_setBinaryArchives(descriptor, NULL);
        }
        const id made = MAKE(newPipeline, d->device, descriptor, 0, NULL, &error);
        if (made) p->pipeline[p->n++] = made;
        else code = wb__mtl_failed(WB__MTL_NOT_COMPILED, error);
        mtl_release(descriptor);
    }
    if (code) wb__mtl_unload(NULL, p);
    else *program = p;
    return code;
}

int wb__mtl_pipeline_of(wb__mtl_device *d, const char *text, id *pipeline)
{
    id error = NULL;
    metal_program_file_of none = {0};
    void *program = NULL;
    const id library = metal_program_library_of(d, text, &error);
    if (!library) return wb__mtl_failed(WB__MTL_NOT_COMPILED, error);
    const int code = make_pipelines(d, library, &none, false, &program);
    mtl_release(library);
    if (code) return code;
    *pipeline = mtl_retain(((program_of *)program)->pipeline[0]);
    wb__mtl_unload(&d->gpu, program);
    return 0;
}

int wb__mtl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                    void **image, size_t *bytes)
{
    wb__mtl_device *d = wb__mtl_of(base);
    id error = NULL;
    metal_program_file_of f = {0};
    (void)options;
    const id library = metal_program_library_of(d, text, &error);
    if (!library) {
        const char *log = error ? mtl_UTF8String(mtl_localizedDescription(error)) : NULL;
        wb__gpu_log_build(base, text, log);
        return wb__gpu_fail(&wb__mtl_driver, base, WB__MTL_NOT_COMPILED, "%s",
                            log ? log : "the compiler gave no reason");
    }
    if (base->keeps_images) open_archive(d, &f, NULL, 0);
    const int code = make_pipelines(d, library, &f, true, program);
    const int status = code ? wb__gpu_fail(&wb__mtl_driver, base, code, "a kernel") : 0;
    if (!status) *image = metal_program_image_of(&f, text, bytes);
    drop_archive(&f);
    mtl_release(library);
    return status;
}

int wb__mtl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                       void **program)
{
    wb__mtl_device *d = wb__mtl_of(base);
    const char *text = (const char *)image + sizeof(image_head);
    image_head head;
    id error = NULL;
    metal_program_file_of f = {0};
    (void)options;
    if (bytes < sizeof head) return WB__MTL_NO_OBJECT;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.magic, metal_program_magic, sizeof metal_program_magic) || !head.text_bytes ||
        head.text_bytes > bytes - sizeof head || text[head.text_bytes - 1])
        return WB__MTL_NO_OBJECT;
    const id library = metal_program_library_of(d, text, &error);
    if (!library) return wb__mtl_failed(WB__MTL_NOT_COMPILED, error);
    open_archive(d, &f, text + head.text_bytes, bytes - sizeof head - (size_t)head.text_bytes);
    const int code = make_pipelines(d, library, &f, false, program);
    drop_archive(&f);
    mtl_release(library);
    return code;
}
