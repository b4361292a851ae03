/* Programs: a text is compiled once per device, and its image is kept on disk for the next process.
 * Of the programs without users, the most recently used ones are kept in memory. */
#include "backend/gpu/runtime/runtime.h"

#include "backend/kernel_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_IDLE = 128, GPU_PROGRAM_OPTIONS = 256 };

/* ---- compiling ------------------------------------------------------------------------------- */

void wb__gpu_log_build(const wb__gpu_device *d, const char *text, const char *message)
{
    if (wb__debug("kernel"))
        wb__log(WB_LOG_ERROR, "kernel: %s:%d: does not compile:\n%s\n%s", d->driver->backend->tag,
                d->base.ordinal, text, message ? message : "");
}

/* The text for the compiler: definitions, the prelude, the kernel. */
static char *gpu_program_whole_text(const char *text, int flags)
{
    return wb__printf("%s%s%s\n%s", flags & WB__GPU_F64 ? "#define WB_F64\n" : "",
                      flags & WB__GPU_TABLE ? "#define WB_TABLE\n" : "", wb__gpu_prelude, text);
}

/* Loads a program from disk, or compiles it and saves the image.  Returns 0, or an error;
 * WB_ERROR_UNSUPPORTED: other options may work.  If the driver rejects the image on disk, the text
 * is compiled again. */
static int gpu_program_make_with(wb__gpu_device *d, const char *whole, const char *options,
                                 void **program)
{
    const wb__gpu_driver *v = d->driver;
    size_t key_bytes = 0, bytes = 0;
    char *key = d->keeps_images ? wb__printf("%s\n%s\n%s", d->maker, options, whole) : NULL;
    if (d->keeps_images && !key) return WB_ERROR_MEMORY;
    if (key) key_bytes = strlen(key);
    void *image = key ? wb__kernel_cache_read(v->backend->tag, key, key_bytes, &bytes) : NULL;
    int status = 0;
    if (image && v->load_image(d, image, bytes, options, program)) *program = NULL;
    wb__free(image);
    image = NULL;
    if (!*program) {
        status = v->compile(d, whole, options, program, &image, &bytes);
        if (!status && key && image)
            wb__kernel_cache_write(v->backend->tag, key, key_bytes, image, bytes);
        wb__free(image);
    }
    wb__free(key);
    return status;
}

/* Makes a program, with the first of the driver's sets of options that works.  NULL: the error is
 * set; if no set works, it is the error of the first set. */
static void *gpu_program_make(wb__gpu_device *d, const char *text, int flags)
{
    char options[GPU_PROGRAM_OPTIONS], first[600] = "";
    void *program = NULL;
    char *whole = gpu_program_whole_text(text, flags);
    int status = whole ? WB_ERROR_UNSUPPORTED : WB_ERROR_MEMORY;
    while (status == WB_ERROR_UNSUPPORTED && d->driver->options(d, flags, options,
                                                                GPU_PROGRAM_OPTIONS)) {
        if (wb__debug("kernel"))
            wb__log(WB_LOG_DEBUG, "kernel: %s:%d: %s (text %016" PRIx64 ")\n%s",
                    d->driver->backend->tag, d->base.ordinal, options,
                    wb__gpu_text_hash(text, flags), text);
        status = gpu_program_make_with(d, whole, options, &program);
        if (program && *first) {
            wb__log(WB_LOG_INFO, "%s; %s with %.*s does", first, d->maker,
                    (int)strcspn(options, " "), options);
            wb_clear_error();
        }
        if (status && !*first) snprintf(first, sizeof first, "%s", wb_error());
    }
    if (status == WB_ERROR_UNSUPPORTED && *first) wb__fail(WB_ERROR_DEVICE, "%s", first);
    wb__free(whole);
    return status ? NULL : program;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void gpu_program_drop(wb__gpu_device *d, wb__gpu_program *p)
{
    wb__gpu_programs *all = &d->programs;
    wb__gpu_program **at = &all->program[p->hash % WB__GPU_BUCKETS];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    d->driver->unload(d, p->object);
    wb__free(p);
}

/* Unloads the least recently used program without users. */
static void gpu_program_drop_oldest(wb__gpu_device *d)
{
    wb__gpu_programs *all = &d->programs;
    wb__gpu_program *oldest = NULL;
    for (int b = 0; b < WB__GPU_BUCKETS; b++)
        for (wb__gpu_program *p = all->program[b]; p; p = p->next)
            if (!p->users && (!oldest || p->last < oldest->last)) oldest = p;
    if (oldest) gpu_program_drop(d, oldest);
    all->idle -= oldest != NULL;
}

static wb__gpu_program *gpu_program_add(wb__gpu_device *d, const char *text, int flags,
                                        uint64_t hash)
{
    wb__gpu_program **list = &d->programs.program[hash % WB__GPU_BUCKETS];
    const size_t bytes = strlen(text) + 1;
    wb__gpu_program *p = wb__alloc(sizeof *p + bytes);
    if (!p) return NULL;
    *p = (wb__gpu_program){.hash = hash, .users = 1, .flags = flags};
    memcpy(p->text, text, bytes);
    p->object = gpu_program_make(d, text, flags);
    if (!p->object) {
        wb__free(p);
        return NULL;
    }
    p->next = *list;
    return *list = p;
}

wb__gpu_program *wb__gpu_program_get(wb__gpu_device *d, const char *text, int flags)
{
    wb__gpu_programs *all = &d->programs;
    if (!strstr(text, "COUNTERS(")) flags &= ~WB__GPU_APART;
    const uint64_t hash = wb__gpu_text_hash(text, flags);
    wb__mutex_lock(&all->lock);
    wb__gpu_program *p = all->program[hash % WB__GPU_BUCKETS];
    while (p && !(p->hash == hash && p->flags == flags && !strcmp(p->text, text))) p = p->next;
    if (!p) p = gpu_program_add(d, text, flags, hash);
    else if (!p->users++) all->idle--;
    wb__mutex_unlock(&all->lock);
    return p;
}

void wb__gpu_program_release(wb__gpu_device *d, wb__gpu_program *p)
{
    wb__gpu_programs *all = &d->programs;
    if (!p) return;
    wb__mutex_lock(&all->lock);
    p->last = ++all->clock;
    if (!--p->users && ++all->idle > MAX_IDLE) gpu_program_drop_oldest(d);
    wb__mutex_unlock(&all->lock);
}

void wb__gpu_programs_free(wb__gpu_device *d)
{
    wb__gpu_programs *all = &d->programs;
    for (int b = 0; b < WB__GPU_BUCKETS; b++)
        while (all->program[b]) gpu_program_drop(d, all->program[b]);
    all->idle = 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

int wb__gpu_function_of(wb__gpu_device *d, const wb__gpu_program *p, const char *entry,
                        const uint32_t items[3], size_t local, void **function)
{
    size_t most = 0;
    const size_t wanted = (size_t)items[0] * items[1] * items[2];
    const int code = d->driver->function(d, p->object, entry, local, function, &most);
    if (code) return wb__gpu_fail(d->driver, d, code, "kernel %s", entry);
    if (wanted <= most) return 0;
    return wb__fail(WB_ERROR_DEVICE, "%s:%d: kernel %s needs %zu items per group; %s allows"
                    " %zu", d->driver->backend->tag, d->base.ordinal, entry, wanted, d->name, most);
}
