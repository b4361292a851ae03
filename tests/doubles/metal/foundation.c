/* The part of Foundation that callers of Metal need.  See objc.h.  All objects are immutable. */
#include "objc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { struct objc_object object; char *text; } string;      /* also a file's URL */
typedef struct { struct objc_object object; size_t n; id *items; } array;
typedef struct { struct objc_object object; array *keys, *values; } dictionary;
typedef struct { struct objc_object object; uint64_t value; } number;
typedef struct { struct objc_object object; string *domain, *text; long code; } error;

/* ---- NSString, NSURL ------------------------------------------------------------------------- */

static string *make_text(objc_class *c, const char *text)
{
    string *s = objc_make(c);
    if (!(s->text = strdup(text))) abort();
    return s;
}

static void end_text(id o) { free(((string *)o)->text); }

id ns_text(const char *text) { return objc_autorelease(make_text(&ns_string, text)); }
const char *ns_chars(const void *s) { return ((const string *)s)->text; }
const char *ns_path(const void *url) { return ((const string *)url)->text; }

static id string_of(objc_class *c, SEL s, const char *text)
{
    (void)c, (void)s;
    if (text) return ns_text(text);
    vgpu_wrong("stringWithUTF8String: the text is NULL");
    return NULL;
}

static const char *string_text(string *o, SEL s)
{
    (void)s;
    return o->text;
}

static NSUInteger string_length(string *o, SEL s)
{
    (void)s;
    return strlen(o->text);
}

static id url_of(objc_class *c, SEL s, string *path)
{
    (void)c, (void)s;
    if (!objc_is(path, &ns_string, "fileURLWithPath:")) return NULL;
    return objc_autorelease(make_text(&ns_url, path->text));
}

static id url_path(string *o, SEL s)
{
    (void)s;
    return ns_text(o->text);
}

static const objc_method string_methods[] = {METHOD("UTF8String", "*@:", string_text),
                                             METHOD("length", "Q@:", string_length), {0}};
static const objc_method string_makers[] = {METHOD("stringWithUTF8String:", "@#:*", string_of),
                                            {0}};
objc_class ns_string = {.name = "NSString", .bytes = sizeof(string), .methods = string_methods,
                        .class_methods = string_makers, .end = end_text};

static const objc_method url_methods[] = {METHOD("path", "@@:", url_path), {0}};
static const objc_method url_makers[] = {METHOD("fileURLWithPath:", "@#:@", url_of), {0}};
objc_class ns_url = {.name = "NSURL", .bytes = sizeof(string), .methods = url_methods,
                     .class_methods = url_makers, .end = end_text};

/* ---- NSArray, NSDictionary ------------------------------------------------------------------- */

static array *make_list(const id *items, size_t n)
{
    array *a = objc_make(&ns_array);
    a->items = vgpu_zeroed(n * sizeof *a->items);
    for (a->n = 0; a->n < n; a->n++) a->items[a->n] = objc_retain(items[a->n]);
    return a;
}

static void end_list(id o)
{
    array *a = (array *)o;
    for (size_t i = 0; i < a->n; i++) objc_release(a->items[i]);
    free(a->items);
}

id ns_list(const id *items, size_t n) { return objc_autorelease(make_list(items, n)); }
size_t ns_count(const void *a) { return ((const array *)a)->n; }
id ns_item(const void *a, size_t i) { return ((const array *)a)->items[i]; }

static bool are_objects(const id *items, NSUInteger n, const char *where)
{
    for (NSUInteger i = 0; i < n; i++) {
        if (items[i] && vgpu_known(items[i]) && !items[i]->dead) continue;
        vgpu_wrong("%s: item %lu is nil or no living object", where, i);
        return false;
    }
    return true;
}

static id list_of(objc_class *c, SEL s, const id *items, NSUInteger n)
{
    (void)c;
    return are_objects(items, n, sel_getName(s)) ? ns_list(items, n) : NULL;
}

static NSUInteger list_count(array *a, SEL s)
{
    (void)s;
    return a->n;
}

static id list_item(array *a, SEL s, NSUInteger i)
{
    if (i < a->n) return a->items[i];
    vgpu_wrong("%s %lu of an NSArray with %zu objects", sel_getName(s), i, a->n);
    return NULL;
}

static id dictionary_of(objc_class *c, SEL s, const id *values, const id *keys, NSUInteger n)
{
    (void)c;
    if (!are_objects(values, n, sel_getName(s)) || !are_objects(keys, n, sel_getName(s)))
        return NULL;
    dictionary *d = objc_make(&ns_dictionary);
    d->keys = make_list(keys, n);
    d->values = make_list(values, n);
    return objc_autorelease(d);
}

static void end_dictionary(id o)
{
    objc_release(((dictionary *)o)->keys);
    objc_release(((dictionary *)o)->values);
}

static NSUInteger dictionary_count(dictionary *d, SEL s)
{
    (void)s;
    return d->keys->n;
}

id ns_keys(const void *o) { return &((const dictionary *)o)->keys->object; }
id ns_values(const void *o) { return &((const dictionary *)o)->values->object; }

void ns_each(const void *o, void (*visit)(const char *key, const char *value, void *to), void *to)
{
    const dictionary *d = o;
    for (size_t i = 0; i < d->keys->n; i++) {
        char text[24];
        id key = d->keys->items[i], value = d->values->items[i];
        if (key->isa != &ns_string || (value->isa != &ns_string && value->isa != &ns_number)) {
            vgpu_wrong("an NSDictionary: a key is no NSString, or a value neither that nor an"
                       " NSNumber");
            continue;
        }
        if (value->isa == &ns_number)
            snprintf(text, sizeof text, "%llu", (unsigned long long)((number *)value)->value);
        visit(ns_chars(key), value->isa == &ns_number ? text : ns_chars(value), to);
    }
}

static const objc_method array_methods[] = {METHOD("count", "Q@:", list_count),
                                            METHOD("objectAtIndex:", "@@:Q", list_item), {0}};
static const objc_method array_makers[] = {METHOD("arrayWithObjects:count:", "@#:^@Q", list_of),
                                           {0}};
objc_class ns_array = {.name = "NSArray", .bytes = sizeof(array), .methods = array_methods,
                       .class_methods = array_makers, .end = end_list};

static const objc_method dictionary_methods[] = {METHOD("count", "Q@:", dictionary_count), {0}};
static const objc_method dictionary_makers[] = {
    METHOD("dictionaryWithObjects:forKeys:count:", "@#:^@^@Q", dictionary_of), {0}};
objc_class ns_dictionary = {.name = "NSDictionary", .bytes = sizeof(dictionary),
                            .methods = dictionary_methods, .class_methods = dictionary_makers,
                            .end = end_dictionary};

/* ---- NSNumber -------------------------------------------------------------------------------- */

static id number_of(objc_class *c, SEL s, NSUInteger value)
{
    (void)c, (void)s;
    number *n = objc_make(&ns_number);
    n->value = value;
    return objc_autorelease(n);
}

static NSUInteger number_value(number *n, SEL s)
{
    (void)s;
    return n->value;
}

uint64_t ns_value(const void *o) { return ((const number *)o)->value; }

static const objc_method number_methods[] = {
    METHOD("unsignedIntegerValue", "Q@:", number_value),
    METHOD("unsignedLongValue", "Q@:", number_value), {0}};
static const objc_method number_makers[] = {
    METHOD("numberWithUnsignedInteger:", "@#:Q", number_of),
    METHOD("numberWithUnsignedLong:", "@#:Q", number_of), {0}};
objc_class ns_number = {.name = "NSNumber", .bytes = sizeof(number), .methods = number_methods,
                        .class_methods = number_makers};

/* ---- NSError --------------------------------------------------------------------------------- */

id ns_error_of(const char *domain, long code, const char *text)
{
    error *e = objc_make(&ns_error);
    e->domain = make_text(&ns_string, domain);
    e->text = make_text(&ns_string, text);
    e->code = code;
    return objc_autorelease(e);
}

void ns_fail(id *to, const char *domain, long code, const char *text)
{
    if (to) *to = ns_error_of(domain, code, text);
}

static void end_error(id o)
{
    objc_release(((error *)o)->domain);
    objc_release(((error *)o)->text);
}

static id error_text(error *e, SEL s)
{
    (void)s;
    return (id)e->text;
}

static id error_domain(error *e, SEL s)
{
    (void)s;
    return (id)e->domain;
}

static long error_code(error *e, SEL s)
{
    (void)s;
    return e->code;
}

static const objc_method error_methods[] = {METHOD("localizedDescription", "@@:", error_text),
                                            METHOD("domain", "@@:", error_domain),
                                            METHOD("code", "q@:", error_code), {0}};
objc_class ns_error = {.name = "NSError", .bytes = sizeof(error), .methods = error_methods,
                       .end = end_error};

/* ---- NSProcessInfo --------------------------------------------------------------------------- */

static objc_class ns_process_info;
static id process_info(objc_class *c, SEL s)
{
    static struct objc_object *info;
    LOCKED;
    (void)c, (void)s;
    if (!info) {
        vgpu_remember(info = vgpu_zeroed(sizeof *info));
        *info = (struct objc_object){.isa = &ns_process_info, .count = 1, .stays = true};
    }
    return info;
}

static id system_version(id o, SEL s)
{
    char text[60];
    (void)o, (void)s;
    snprintf(text, sizeof text, "Version %d.5 (Build 2%dF79)", objc_macos(), objc_macos() - 11);
    return ns_text(text);
}

typedef struct { long major, minor, patch; } version;          /* NSOperatingSystemVersion */
static objc_bool is_at_least(id o, SEL s, version v)
{
    (void)o, (void)s;
    const long now[3] = {objc_macos(), 5, 0}, wanted[3] = {v.major, v.minor, v.patch};
    int i = 0;
    while (i < 2 && now[i] == wanted[i]) i++;
    return objc_yes(now[i] >= wanted[i]);
}

static const objc_method info_methods[] = {
    METHOD("isOperatingSystemAtLeastVersion:", "B@:{?=qqq}", is_at_least),
    METHOD("operatingSystemVersionString", "@@:", system_version), {0}};
static const objc_method info_makers[] = {METHOD("processInfo", "@#:", process_info), {0}};
static objc_class ns_process_info = {.name = "NSProcessInfo", .bytes = sizeof(struct objc_object),
                                     .methods = info_methods, .class_methods = info_makers};

__attribute__((constructor)) static void begin(void)
{
    objc_class *const all[] = {&ns_string, &ns_url, &ns_array, &ns_dictionary, &ns_number,
                               &ns_error, &ns_process_info};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) objc_add_class(all[i]);
}
