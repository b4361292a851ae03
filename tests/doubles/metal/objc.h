/* The runtime of Objective-C in the double of Metal: how a class is defined.  See vgpu_metal.h.
 *
 * A class is a table of methods.  A method is a C function whose first parameters are the object
 * and the selector.  The selector's receiver is a living object of the class when the function is
 * called; for its other objects the function must call objc_is.
 *
 *   static const objc_method methods[] = {
 *       METHOD("length", "Q@:", buffer_length),
 *       METHOD("setLength:", "v@:Q", buffer_set_length), {0}};
 *   objc_class buffer_class = {.name = "MTLBuffer", .bytes = sizeof(buffer), .methods = methods};
 *
 * Further shared objects may define classes in the same way, and call objc_add_class for those that
 * objc_getClass must find. */
#ifndef VGPU_OBJC_H
#define VGPU_OBJC_H

#include "../cuda/inside.h"

typedef struct objc_class objc_class;
typedef struct objc_object {
    const objc_class *isa;
    int64_t count;                      /* of references */
    bool dead;
    bool stays;                         /* it is never released, and not counted */
} *id;
typedef struct objc_selector *SEL;
typedef unsigned long NSUInteger;

typedef struct {
    const char *selector;
    const char *types;                  /* of the result and all parameters, as in Objective-C */
    void (*function)(void);
    int since;                          /* the version of macOS; 0: all */
} objc_method;
#define METHOD(selector, types, function) {selector, types, (void (*)(void))(function), 0}
#define METHOD_SINCE(macos, selector, types, function)                                             \
    {selector, types, (void (*)(void))(function), macos}

struct objc_class {
    struct objc_object object;          /* a class is an object too */
    const char *name;
    size_t bytes;                       /* of an object, which begins with struct objc_object */
    const objc_method *methods, *class_methods;
    void (*set_up)(id made);            /* of +alloc; NULL: programs cannot allocate objects */
    void (*end)(id object);             /* releases what an object owns; may be NULL */
    int64_t alive;
    objc_class *next;
};

VGPU_API void objc_add_class(objc_class *c);
/* An object with one reference, all other bytes 0. */
VGPU_API void *objc_make(objc_class *c);
/* True if the object is a living one of this class; otherwise counts a wrong use of `where`. */
VGPU_API bool objc_is(const void *object, const objc_class *c, const char *where);

/* The functions of the real runtime. */
VGPU_API void *objc_retain(void *object);
VGPU_API void objc_release(void *object);
VGPU_API void *objc_autorelease(void *object);
VGPU_API void *objc_autoreleasePoolPush(void);
VGPU_API void objc_autoreleasePoolPop(void *pool);
VGPU_API id objc_getClass(const char *name);
VGPU_API const objc_class *object_getClass(id object);
VGPU_API const char *class_getName(const objc_class *c);
VGPU_API bool class_respondsToSelector(const objc_class *c, SEL selector);
VGPU_API SEL sel_registerName(const char *name);
VGPU_API const char *sel_getName(SEL selector);
VGPU_API void objc_msgSend(void);

int64_t objc_alive(void);
int objc_macos(void);                   /* its major version */

/* Holds the lock of the doubles until the end of the function or block. */
static inline void objc_unlock(const int *held)
{
    (void)held;
    vgpu_let_go();
}
#define LOCKED                                                                                     \
    __attribute__((cleanup(objc_unlock))) const int locked_ = (vgpu_hold(), 0);                    \
    (void)locked_

/* The BOOL of Objective-C is one byte: the others of a result's register are arbitrary. */
typedef uint64_t objc_bool;
static inline objc_bool objc_yes(bool is) { return 0x5a5a5a5a5a5a5a00u | is; }

/* ---- Foundation ------------------------------------------------------------------------------ */

VGPU_API extern objc_class ns_string, ns_array, ns_dictionary, ns_number, ns_error, ns_url;

/* Autoreleased, as all results of functions below. */
VGPU_API id ns_text(const char *text);
VGPU_API id ns_list(const id *items, size_t n);
const char *ns_chars(const void *string);
const char *ns_path(const void *url);
VGPU_API size_t ns_count(const void *array);
VGPU_API id ns_item(const void *array, size_t i);
VGPU_API id ns_keys(const void *dictionary);            /* an NSArray, not retained */
VGPU_API id ns_values(const void *dictionary);
VGPU_API uint64_t ns_value(const void *number);
/* Calls visit with the text of each key and of its value, a string or a number. */
void ns_each(const void *dictionary, void (*visit)(const char *key, const char *value, void *to),
             void *to);
/* Sets *error, unless error is NULL, to a new NSError. */
VGPU_API void ns_fail(id *error, const char *domain, long code, const char *text);
VGPU_API id ns_error_of(const char *domain, long code, const char *text);

#endif
