/* The runtime: classes, messages, counts of references, autorelease pools.  See objc.h. */
#include "objc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- selectors and classes ------------------------------------------------------------------- */

struct objc_selector {
    vgpu_counter counter;               /* its name, and the messages with it */
    struct objc_selector *next;
};

static struct objc_selector *selectors[256];
static objc_class *classes;
static int64_t n_alive;
static const objc_class meta = {.name = "a class"};     /* the class of classes */

__attribute__((format(printf, 1, 2), noreturn)) static void end_process(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "vgpu: objc_msgSend: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    fflush(NULL);
    _exit(99);
}

SEL sel_registerName(const char *name)
{
    LOCKED;
    SEL *s = &selectors[vgpu_hash(name, strlen(name)) % 256];
    while (*s && strcmp((*s)->counter.name, name)) s = &(*s)->next;
    if (!*s) {
        *s = vgpu_zeroed(sizeof **s);
        (*s)->counter.name = strdup(name);
        vgpu_remember(*s);
    }
    return *s;
}

const char *sel_getName(SEL s) { return s ? s->counter.name : "<null selector>"; }

static objc_class ns_object;
static bool is_class(const void *o) { return ((id)(uintptr_t)o)->isa == &meta; }

/* Makes the class a receiver of messages. */
static void know(objc_class *c)
{
    if (c->object.isa) return;
    c->object = (struct objc_object){.isa = &meta, .count = 1, .stays = true};
    vgpu_remember(c);
}

void objc_add_class(objc_class *c)
{
    LOCKED;
    know(c);
    c->next = classes;
    classes = c;
}

id objc_getClass(const char *name)
{
    LOCKED;
    for (objc_class *c = classes; c; c = c->next)
        if (!strcmp(c->name, name)) return &c->object;
    return NULL;
}

const objc_class *object_getClass(id o) { return o ? o->isa : NULL; }
const char *class_getName(const objc_class *c) { return c ? c->name : "nil"; }
int objc_macos(void) { return (int)vgpu_env_number("VGPU_MACOS", 13); }

static const objc_method *find_in(const objc_method *methods, const char *name)
{
    for (; methods && methods->selector; methods++)
        if (!strcmp(methods->selector, name) && methods->since <= objc_macos()) return methods;
    return NULL;
}

static const objc_method *method_of(const objc_class *c, const char *name)
{
    const objc_method *m = find_in(c->methods, name);
    return m ? m : find_in(ns_object.methods, name);
}

static const objc_method *class_method_of(const objc_class *c, const char *name)
{
    const objc_method *m = find_in(c->class_methods, name);
    return m ? m : find_in(ns_object.class_methods, name);
}

bool class_respondsToSelector(const objc_class *c, SEL s)
{
    return c && s && method_of(c, s->counter.name) != NULL;
}

/* ---- references ------------------------------------------------------------------------------ */

void *objc_make(objc_class *c)
{
    LOCKED;
    id o = vgpu_zeroed(c->bytes);
    know(c);
    o->isa = c;
    o->count = 1;
    c->alive++;
    n_alive++;
    vgpu_remember(o);
    return o;
}

int64_t objc_alive(void) { return n_alive; }

static const char *name_of(const void *o)
{
    return !vgpu_known(o) ? "no object" : is_class(o) ? "a class" : ((id)(uintptr_t)o)->isa->name;
}

bool objc_is(const void *object, const objc_class *c, const char *where)
{
    LOCKED;
    const struct objc_object *o = object;
    if (!object) vgpu_wrong("%s: nil in the place of %s", where, c->name);
    else if (!vgpu_known(object)) vgpu_wrong("%s: %p is no object", where, object);
    else if (o->dead) vgpu_wrong("%s: this %s is released already", where, name_of(object));
    else if (o->isa != c) vgpu_wrong("%s: %s in the place of %s", where, name_of(object), c->name);
    else return true;
    return false;
}

void *objc_retain(void *object)
{
    LOCKED;
    id o = object;
    if (!o) return NULL;
    if (!vgpu_known(o)) end_process("retain of %p, which is no object", object);
    if (o->dead) vgpu_wrong("retain: this %s is released already", name_of(o));
    o->count++;
    return o;
}

void objc_release(void *object)
{
    LOCKED;
    id o = object;
    if (!o) return;
    if (!vgpu_known(o)) end_process("release of %p, which is no object", object);
    if (o->dead || (o->stays && o->count == 1 && !is_class(o))) {
        vgpu_wrong("release: this %s is released once too often", name_of(o));
        return;
    }
    if (is_class(o) || --o->count) return;
    objc_class *c = (objc_class *)(uintptr_t)o->isa;
    o->dead = true;
    c->alive--;
    n_alive--;
    if (c->end) c->end(o);
}

/* Each thread's pools: the objects of all of them, and NULL where a pool begins. */
static _Thread_local struct { id *objects; size_t n, capacity; } pool;

static void push(id o)
{
    if (pool.n == pool.capacity) {
        pool.capacity = pool.capacity ? 2 * pool.capacity : 64;
        pool.objects = realloc(pool.objects, pool.capacity * sizeof *pool.objects);
        if (!pool.objects) abort();
    }
    pool.objects[pool.n++] = o;
}

void *objc_autoreleasePoolPush(void)
{
    push(NULL);
    return (void *)(uintptr_t)(pool.n << 4);
}

void objc_autoreleasePoolPop(void *token)
{
    const size_t at = (size_t)(uintptr_t)token >> 4;
    if (!at || at > pool.n || pool.objects[at - 1]) {
        vgpu_wrong("objc_autoreleasePoolPop: %p is no pool of this thread", token);
        return;
    }
    while (pool.n >= at) {
        id o = pool.objects[--pool.n];
        if (o) objc_release(o);
    }
    if (pool.n) return;
    free(pool.objects);
    pool.objects = NULL;
    pool.capacity = 0;
}

void *objc_autorelease(void *object)
{
    id o = object;
    if (!o) return NULL;
    if (pool.n) push(o);
    else vgpu_wrong("autorelease: a %s is leaked, since this thread has no pool", name_of(o));
    return o;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The function of a message; NULL: the result is 0. */
__attribute__((used, visibility("hidden"))) void (*vgpu_objc_find(id o, SEL s))(void)
{
    LOCKED;
    if (!vgpu_known(s)) end_process("%p is no selector", (void *)s);
    const char *name = s->counter.name;
    if (s->counter.calls) s->counter.calls++;
    else vgpu_count(&s->counter);
    if (!o) return NULL;
    if (!vgpu_known(o)) end_process("%s is sent to %p, which is no object", name, (void *)o);
    if (o->dead) {
        vgpu_wrong("%s is sent to a released %s", name, name_of(o));
        return NULL;
    }
    const bool of_class = is_class(o);
    const objc_class *c = of_class ? (const objc_class *)o : o->isa;
    const objc_method *m = of_class ? class_method_of(c, name) : method_of(c, name);
    if (!m) end_process("%c[%s %s]: unknown selector", of_class ? '+' : '-', c->name, name);
    return m->function;
}

/* objc_msgSend saves the registers of all arguments, finds the function, restores them and jumps.
 * To an object that is nil or released it returns 0, in the registers of numbers too. */
#if defined(__x86_64__)
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend,@function\n"
        "objc_msgSend:\n"
        "    push %rbp\n    mov %rsp, %rbp\n    sub $192, %rsp\n"
        "    mov %rdi, -8(%rbp)\n    mov %rsi, -16(%rbp)\n    mov %rdx, -24(%rbp)\n"
        "    mov %rcx, -32(%rbp)\n    mov %r8, -40(%rbp)\n    mov %r9, -48(%rbp)\n"
        "    mov %rax, -56(%rbp)\n"
        "    movups %xmm0, -80(%rbp)\n    movups %xmm1, -96(%rbp)\n"
        "    movups %xmm2, -112(%rbp)\n    movups %xmm3, -128(%rbp)\n"
        "    movups %xmm4, -144(%rbp)\n    movups %xmm5, -160(%rbp)\n"
        "    movups %xmm6, -176(%rbp)\n    movups %xmm7, -192(%rbp)\n"
        "    call vgpu_objc_find\n    mov %rax, %r11\n"
        "    mov -8(%rbp), %rdi\n    mov -16(%rbp), %rsi\n    mov -24(%rbp), %rdx\n"
        "    mov -32(%rbp), %rcx\n    mov -40(%rbp), %r8\n    mov -48(%rbp), %r9\n"
        "    mov -56(%rbp), %rax\n"
        "    movups -80(%rbp), %xmm0\n    movups -96(%rbp), %xmm1\n"
        "    movups -112(%rbp), %xmm2\n    movups -128(%rbp), %xmm3\n"
        "    movups -144(%rbp), %xmm4\n    movups -160(%rbp), %xmm5\n"
        "    movups -176(%rbp), %xmm6\n    movups -192(%rbp), %xmm7\n"
        "    leave\n    test %r11, %r11\n    je 1f\n    jmp *%r11\n"
        "1:  xor %eax, %eax\n    xor %edx, %edx\n    pxor %xmm0, %xmm0\n    pxor %xmm1, %xmm1\n"
        "    ret\n"
        ".size objc_msgSend, .-objc_msgSend\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend,%function\n"
        "objc_msgSend:\n"
        "    stp x29, x30, [sp, #-224]!\n    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n    stp x2, x3, [sp, #32]\n    stp x4, x5, [sp, #48]\n"
        "    stp x6, x7, [sp, #64]\n    str x8, [sp, #80]\n"
        "    stp q0, q1, [sp, #96]\n    stp q2, q3, [sp, #128]\n    stp q4, q5, [sp, #160]\n"
        "    stp q6, q7, [sp, #192]\n"
        "    bl vgpu_objc_find\n    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n    ldp x2, x3, [sp, #32]\n    ldp x4, x5, [sp, #48]\n"
        "    ldp x6, x7, [sp, #64]\n    ldr x8, [sp, #80]\n"
        "    ldp q0, q1, [sp, #96]\n    ldp q2, q3, [sp, #128]\n    ldp q4, q5, [sp, #160]\n"
        "    ldp q6, q7, [sp, #192]\n    ldp x29, x30, [sp], #224\n"
        "    cbz x16, 1f\n    br x16\n"
        "1:  mov x0, #0\n    mov x1, #0\n    movi v0.2d, #0\n    movi v1.2d, #0\n    ret\n"
        ".size objc_msgSend, .-objc_msgSend\n");
#else
#error objc_msgSend is written for x86-64 and aarch64
#endif

/* ---- NSObject -------------------------------------------------------------------------------- */

static id allocate(objc_class *c, SEL s)
{
    if (!c->set_up) end_process("+[%s %s]: methods make such objects", c->name, sel_getName(s));
    id made = objc_make(c);
    c->set_up(made);
    return made;
}

static id same(id o, SEL s)
{
    (void)s;
    return o;
}

static id retain(id o, SEL s)
{
    (void)s;
    return objc_retain(o);
}

static void release(id o, SEL s)
{
    (void)s;
    objc_release(o);
}

static id autorelease(id o, SEL s)
{
    (void)s;
    return objc_autorelease(o);
}

static NSUInteger retain_count(id o, SEL s)
{
    (void)s;
    return (NSUInteger)o->count;
}

static id class_of(id o, SEL s)
{
    (void)s;
    return is_class(o) ? o : (id)(uintptr_t)o->isa;
}

static objc_bool responds(id o, SEL s, SEL asked)
{
    (void)s;
    const char *name = sel_getName(asked);
    return objc_yes(is_class(o) ? class_method_of((const objc_class *)o, name) != NULL
                                : method_of(o->isa, name) != NULL);
}

static void set_up_nothing(id o) { (void)o; }

static const objc_method object_methods[] = {
    METHOD("init", "@@:", same), METHOD("self", "@@:", same), METHOD("retain", "@@:", retain),
    METHOD("release", "v@:", release), METHOD("autorelease", "@@:", autorelease),
    METHOD("retainCount", "Q@:", retain_count), METHOD("class", "#@:", class_of),
    METHOD("respondsToSelector:", "B@::", responds), {0}};
static const objc_method class_methods[] = {
    METHOD("alloc", "@#:", allocate), METHOD("new", "@#:", allocate),
    METHOD("class", "##:", class_of), METHOD("retain", "@#:", same),
    METHOD("respondsToSelector:", "B#::", responds), {0}};
static objc_class ns_object = {.name = "NSObject", .bytes = sizeof(struct objc_object),
                               .methods = object_methods, .class_methods = class_methods,
                               .set_up = set_up_nothing};

__attribute__((constructor)) static void begin(void) { objc_add_class(&ns_object); }
