/* Compiles programs, and makes pipelines of their kernels.  Metal compiles a text to a library, and
 * a kernel of the library to a pipeline, the code for one GPU.  An image is the text, followed by a
 * binary archive with the pipelines of the text's kernels. */
#include "backend/metal/metal.h"

#include "base/files/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* path: the archive's file, in a folder of its own, which must exist as long as the archive; "":
 * there is none. */
typedef struct {
    id library, archive;
    char path[200];
} program_of;

typedef struct { char magic[8]; uint64_t text_bytes; } image_head;
static const char magic[8] = "WBMTL01";

/* The optimisations that Metal calls fast math would break the sums with error terms of the
 * prelude. */
bool wb__mtl_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    (void)base, (void)flags;
    snprintf(text, capacity, "MSL 3.0, safe math");
    return true;
}

/* ---- libraries ------------------------------------------------------------------------------- */

/* Returns the library of a text; NULL: *error receives the reason. */
static id library_of(wb__mtl_device *d, const char *text, id *error)
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

/* A descriptor for the pipeline of a kernel, which the caller releases.  Returns a code. */
static int descriptor_of(const program_of *p, id name, id *descriptor)
{
    const id function = MAKE(newFunction, p->library, name);
    if (!function) return wb__mtl_failed(WB__MTL_NO_KERNEL, NULL);
    *descriptor = MAKE(newObject, wb__mtl_class("MTLComputePipelineDescriptor"));
    if (*descriptor) {
        mtl_setComputeFunction(*descriptor, function);
        mtl_setMaxTotalThreads(*descriptor, 256);
        if (p->archive)
            mtl_setBinaryArchives(*descriptor, mtl_arrayWithObjects(wb__mtl_class("NSArray"),
                                                                    &p->archive, 1));
    }
    mtl_release(function);
    return *descriptor ? 0 : wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
}

int wb__mtl_pipeline(wb__gpu_device *base, void *program, const char *entry, id *pipeline)
{
    id descriptor = NULL, error = NULL;
    int code = descriptor_of(program, wb__mtl_string(entry), &descriptor);
    if (code) return code;
    *pipeline = MAKE(newPipeline, wb__mtl_of(base)->device, descriptor, 0, NULL, &error);
    if (!*pipeline) code = wb__mtl_failed(WB__MTL_NOT_COMPILED, error);
    mtl_release(descriptor);
    return code;
}

/* ---- archives --------------------------------------------------------------------------------
 *
 * Archives only save time, so their failures are not errors. */

static id url_of(const char *path)
{
    return mtl_fileURLWithPath(wb__mtl_class("NSURL"), wb__mtl_string(path));
}

/* Creates a folder with a new name for the archive's file. */
static bool make_folder(program_of *p)
{
    const char *parent = getenv("TMPDIR");
    const int n = snprintf(p->path, sizeof p->path, "%s/weber-XXXXXX",
                           parent && *parent ? parent : "/tmp");
    const bool made = n + sizeof "/archive" <= sizeof p->path && mkdtemp(p->path);
    strcpy(p->path + (made ? n : 0), made ? "/archive" : "");
    return made;
}

static bool write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    const bool written = fwrite(data, 1, bytes, f) == bytes;
    return !fclose(f) && written;
}

/* Opens the archive in the file p->path; if `empty` is true, creates one without a file. */
static void open_archive(const wb__mtl_device *d, program_of *p, bool empty)
{
    id error = NULL;
    const id descriptor = mtl_newObject(wb__mtl_class("MTLBinaryArchiveDescriptor"));
    if (!descriptor) return;
    if (!empty) mtl_setUrl(descriptor, url_of(p->path));
    p->archive = mtl_newBinaryArchive(d->device, descriptor, &error);
    mtl_release(descriptor);
}

/* Puts the pipelines of all kernels of the program into a new archive, and the archive into the
 * file p->path.  The program then uses the archive. */
static bool fill_archive(const wb__mtl_device *d, program_of *p)
{
    const id names = mtl_functionNames(p->library);
    const NSUInteger n = names ? mtl_count(names) : 0;
    if (n && make_folder(p)) open_archive(d, p, true);
    for (NSUInteger i = 0; i < n && p->archive; i++) {
        const program_of bare = {.library = p->library};
        id descriptor = NULL, error = NULL;
        const bool added = !descriptor_of(&bare, mtl_objectAtIndex(names, i), &descriptor) &&
                           mtl_addPipeline(p->archive, descriptor, &error);
        if (descriptor) mtl_release(descriptor);
        if (!added) return false;
    }
    id error = NULL;
    return p->archive && mtl_serialize(p->archive, url_of(p->path), &error);
}

static void drop_archive(program_of *p)
{
    if (p->archive) mtl_release(p->archive);
    p->archive = NULL;
    if (!*p->path) return;
    unlink(p->path);
    *strrchr(p->path, '/') = 0;
    rmdir(p->path);
    *p->path = 0;
}

/* Returns the image of a program, which the caller frees; NULL, without an error: there is none. */
static void *image_of(program_of *p, const char *text, size_t *bytes)
{
    int64_t n = 0;
    char *archive = wb__file_read(p->path, &n);
    image_head head = {.text_bytes = strlen(text) + 1};
    memcpy(head.magic, magic, sizeof magic);
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
    drop_archive(p);
    mtl_release(p->library);
    wb__free(p);
}

int wb__mtl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                    void **image, size_t *bytes)
{
    wb__mtl_device *d = wb__mtl_of(base);
    id error = NULL;
    (void)options;
    program_of *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB_ERROR_MEMORY;
    p->library = library_of(d, text, &error);
    if (!p->library) {
        wb__free(p);
        const char *log = error ? mtl_UTF8String(mtl_localizedDescription(error)) : NULL;
        wb__gpu_log_build(base, text, log);
        return wb__gpu_fail(&wb__mtl_driver, base, WB__MTL_NOT_COMPILED, "%s",
                            log ? log : "the compiler gave no reason");
    }
    if (base->keeps_images) {
        if (fill_archive(d, p)) *image = image_of(p, text, bytes);
        else drop_archive(p);
    }
    *program = p;
    return 0;
}

int wb__mtl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                       void **program)
{
    wb__mtl_device *d = wb__mtl_of(base);
    const char *text = (const char *)image + sizeof(image_head);
    image_head head;
    id error = NULL;
    (void)options;
    if (bytes < sizeof head) return WB__MTL_NO_OBJECT;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) || !head.text_bytes ||
        head.text_bytes > bytes - sizeof head || text[head.text_bytes - 1])
        return WB__MTL_NO_OBJECT;
    program_of *p = wb__alloc_zero(1, sizeof *p);
    if (!p) return WB__MTL_NO_MEMORY;
    p->library = library_of(d, text, &error);
    if (!p->library) {
        wb__free(p);
        return wb__mtl_failed(WB__MTL_NOT_COMPILED, error);
    }
    if (make_folder(p) && write_file(p->path, text + head.text_bytes,
                                     bytes - sizeof head - (size_t)head.text_bytes))
        open_archive(d, p, false);
    if (!p->archive) drop_archive(p);
    *program = p;
    return 0;
}
