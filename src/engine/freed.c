/* Detects programs that use freed objects.  The first word of an object is its class.  A freed
 * object has wb__freed_class until its memory is used again.  With WEBER_DEBUG=check the memory is
 * filled with a pattern and a description of the object, and waits in a queue before it is used
 * again. */
#include "base/mutex.h"
#include "engine/object.h"

#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

/* QUEUE_BYTES: most bytes in the queue.  WAS: most characters of a description.  PATTERN: each byte
 * of freed memory. */
enum { QUEUE_BYTES = 64 << 20, WAS = 160, PATTERN = 0xdb };

const wb__class wb__freed_class = {.name = "freed object"};
bool wb__checks;

typedef struct freed {
    wb__object object;
    struct freed *next;
    size_t bytes;
    int64_t scope;                      /* id of the scope whose closing freed the object, or 0 */
    char was[];                         /* description of the object */
} freed;

static wb__mutex freed_lock = WB__MUTEX_INIT;
static struct { freed *first, *last; size_t bytes; } freed_queue;

/* Returns the number of bytes of an object's block that remain for the description `was`. */
static size_t freed_description_bytes(size_t bytes)
{
    return bytes > sizeof(freed) ? bytes - sizeof(freed) : 0;
}

/* Frees the oldest object of the queue. */
static void free_oldest(void)
{
    freed *f = freed_queue.first;
    freed_queue.first = f->next;
    if (!freed_queue.first) freed_queue.last = NULL;
    freed_queue.bytes -= f->bytes;
    wb__pool_put(f, f->bytes);
}

void wb__quarantine(void *object, size_t bytes)
{
    const wb__class *class = ((wb__object *)object)->class;
    char was[WAS] = "", about[WAS] = "";
    if (class->brief) class->brief(object, about, sizeof about);
    snprintf(was, sizeof was, *about ? "%s, %s" : "%s", class->name, about);
    memset(object, PATTERN, bytes);
    freed *f = object;
    f->object.class = &wb__freed_class;
    f->next = NULL;
    f->bytes = bytes;
    f->scope = wb__this_thread()->closing;
    snprintf(f->was, freed_description_bytes(bytes), "%s", was);
    wb__mutex_lock(&freed_lock);
    if (freed_queue.last) freed_queue.last->next = f;
    else freed_queue.first = f;
    freed_queue.last = f;
    freed_queue.bytes += bytes;
    while (freed_queue.bytes > QUEUE_BYTES) free_oldest();
    wb__mutex_unlock(&freed_lock);
}

void wb__quarantine_empty(void)
{
    wb__mutex_lock(&freed_lock);
    while (freed_queue.first) free_oldest();
    wb__mutex_unlock(&freed_lock);
}

static int count_open_scopes(void)
{
    int n = 0;
    for (const wb_scope *s = wb__this_thread()->scope; s && s->outer; s = s->outer) n++;
    return n;
}

/* Returns the class whose address is the first word; NULL if it is no class. */
WB__READS_ANY static const wb__class *freed_class_of(const void *object)
{
    static const wb__class *const classes[] = {
        &wb__tensor_class, &wb__layer_class, &wb__tree_class, &wb__freed_class, &wb__rule_class,
        &wb__opt_state_class, &wb__dataset_class, &wb__loader_class, &wb__progress_class,
        &wb__compiled_class, &wb__tokenizer_class, &wb__decoder_class, &wb__schedule_class,
        &wb__logger_class, &wb__columns_class};
    if ((uintptr_t)object % _Alignof(wb__object)) return NULL;
    const wb__class *class = ((const wb__object *)object)->class;
    for (size_t i = 0; i < WB__COUNT(classes); i++)
        if (class == classes[i]) return class;
    return NULL;
}

/* Whether the memory has a device. */
WB__READS_ANY static bool freed_has_device(const void *d)
{
    return (uintptr_t)d % _Alignof(wb_device) == 0 && d &&
           ((const wb_device *)d)->kind == wb__device_kind;
}

bool wb__is_object(const void *object)
{
    const wb__class *class = object ? freed_class_of(object) : NULL;
    return class && class != &wb__freed_class;
}

const char *wb__kind(const void *object)
{
    static _Thread_local char text[2 * WAS];
    const freed *f = object;
    const wb__class *class = freed_class_of(object);
    if (freed_has_device(object)) return wb__device_kind;
    if (!class) return "pointer to no object";
    if (class != &wb__freed_class) return class->name;
    const int open = count_open_scopes();
    char when[64] = "freed by wb_free or wb_release";
    if (!wb__checks)
        return "freed object (its scope was closed, or wb_free or wb_release gave it back; "
               "WEBER_DEBUG=check names it)";
    if (f->scope)
        snprintf(when, sizeof when, "freed when scope %lld was closed", (long long)f->scope);
    snprintf(text, sizeof text, "freed object (%.*s; %s; %d scope%s open now)",
             (int)freed_description_bytes(f->bytes), f->was, when, open,
             open == 1 ? " is" : "s are");
    return text;
}

bool wb__alive(const char *what, const void *object)
{
    if (!object) return wb__null(what, "the object"), false;
    if (wb__likely(wb__is(object, &wb__tensor_class) || wb__is_object(object))) return true;
    if (freed_class_of(object) == &wb__freed_class)
        wb__fail(WB_ERROR_ARGUMENT,
                 "%s: received a %s: wb_keep or wb_retain keeps an object beyond its scope", what,
                 wb__kind(object));
    else wb__not_a(what, object, "Weber object");
    return false;
}

bool wb__not_a(const char *what, const void *object, const char *expected)
{
    char name[64];
    snprintf(name, sizeof name, "the %s", expected);
    if (!object) return !wb__null(what, name);
    return !wb__fail(WB_ERROR_ARGUMENT, "%s: a %s is not a %s", what, wb__kind(object), expected);
}

bool wb__is_device(const char *what, const wb_device *d)
{
    return !d || freed_has_device(d) || wb__not_a(what, d, wb__device_kind);
}
