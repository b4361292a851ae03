/* For the tests of the test double of Metal: messages, and wrong uses.  The compiler passes the
 * arguments of a message as it does on macOS. */
#ifndef WB_TEST_DOUBLE_METAL_H
#define WB_TEST_DOUBLE_METAL_H

#include "tests/doubles/metal/vgpu_metal.h"

#include "test.h"

typedef struct objc_object *id;
typedef unsigned long word;                             /* NSUInteger */
typedef struct { word width, height, depth; } size3;    /* MTLSize */
typedef struct { word at, length; } range;              /* NSRange */

void objc_msgSend(void);
id objc_getClass(const char *name);
void *object_getClass(id o);
const char *class_getName(void *c);
bool class_respondsToSelector(void *c, void *selector);
void *sel_registerName(const char *name);
const char *sel_getName(void *selector);
id objc_retain(id o);
void objc_release(id o);
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);
id MTLCopyAllDevices(void);
id MTLCreateSystemDefaultDevice(void);

/* SEND(result, (types), receiver, selector, arguments): `types` are those of the arguments, each
 * after a comma. */
static void (*const volatile message)(void) = objc_msgSend;    /* gcc warns of a direct cast */
#define UNPACK(...) __VA_ARGS__
#define SEND(result, types, o, ...) ((result (*)(id, void *UNPACK types))message)(o, __VA_ARGS__)
#define SEL(name) sel_registerName(name)

static inline id get(id o, const char *s) { return SEND(id, (), o, SEL(s)); }
static inline id get1(id o, const char *s, const void *a)
{
    return SEND(id, (, const void *), o, SEL(s), a);
}
static inline id get2(id o, const char *s, const void *a, const void *b)
{
    return SEND(id, (, const void *, const void *), o, SEL(s), a, b);
}
static inline id get3(id o, const char *s, const void *a, const void *b, const void *c)
{
    return SEND(id, (, const void *, const void *, const void *), o, SEL(s), a, b, c);
}
static inline word number(id o, const char *s) { return SEND(word, (), o, SEL(s)); }
static inline bool yes(id o, const char *s) { return SEND(signed char, (), o, SEL(s)); }
static inline double real(id o, const char *s) { return SEND(double, (), o, SEL(s)); }
static inline void tell(id o, const char *s) { SEND(void, (), o, SEL(s)); }
static inline void tell1(id o, const char *s, const void *a)
{
    SEND(void, (, const void *), o, SEL(s), a);
}
static inline void set(id o, const char *s, word a) { SEND(void, (, word), o, SEL(s), a); }
static inline void set2(id o, const char *s, const void *a, word b)
{
    SEND(void, (, const void *, word), o, SEL(s), a, b);
}

static inline id new_object(const char *name) { return get(objc_getClass(name), "new"); }
static inline id string(const char *t)
{
    return get1(objc_getClass("NSString"), "stringWithUTF8String:", t);
}
static inline const char *chars(id s) { return SEND(const char *, (), s, SEL("UTF8String")); }
static inline const char *reason(id error) { return chars(get(error, "localizedDescription")); }
static inline long code(id error) { return SEND(long, (), error, SEL("code")); }

/* ---- devices, buffers, kernels --------------------------------------------------------------- */

static inline id new_buffer(id device, word bytes, word options)
{
    return SEND(id, (, word, word), device, SEL("newBufferWithLength:options:"), bytes, options);
}
static inline void *contents(id buffer) { return get(buffer, "contents"); }

/* A library without fast math.  NULL: *error is set. */
static inline id new_library(id device, const char *source, id *error)
{
    id options = new_object("MTLCompileOptions");
    SEND(void, (, bool), options, SEL("setFastMathEnabled:"), false);
    id made = get3(device, "newLibraryWithSource:options:error:", string(source), options, error);
    objc_release(options);
    return made;
}
static inline id new_pipeline(id device, id library, const char *name)
{
    id error = NULL, f = get1(library, "newFunctionWithName:", string(name));
    id made = f ? get2(device, "newComputePipelineStateWithFunction:error:", f, &error) : NULL;
    objc_release(f);
    if (!made) fail_msg("no pipeline of %s: %s", name, error ? reason(error) : "no function");
    return made;
}

static inline void bind(id encoder, id buffer, word offset, word index)
{
    SEND(void, (, id, word, word), encoder, SEL("setBuffer:offset:atIndex:"), buffer, offset,
         index);
}
static inline void bind_bytes(id encoder, const void *bytes, word length, word index)
{
    SEND(void, (, const void *, word, word), encoder, SEL("setBytes:length:atIndex:"), bytes,
         length, index);
}
static inline void dispatch3(id encoder, size3 groups, size3 items)
{
    SEND(void, (, size3, size3), encoder, SEL("dispatchThreadgroups:threadsPerThreadgroup:"),
         groups, items);
}
static inline void dispatch(id encoder, word groups, word items)
{
    dispatch3(encoder, (size3){groups, 1, 1}, (size3){items, 1, 1});
}
static inline void copy(id encoder, id from, word from_at, id to, word to_at, word bytes)
{
    SEND(void, (, id, word, id, word, word), encoder,
         SEL("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"), from, from_at, to,
         to_at, bytes);
}
static inline void fill(id encoder, id buffer, word at, word length, unsigned char value)
{
    SEND(void, (, id, range, unsigned char), encoder, SEL("fillBuffer:range:value:"), buffer,
         ((range){at, length}), value);
}

/* ---- what the double has counted ------------------------------------------------------------- */

static inline vgpu_metal_books metal_books(void)
{
    vgpu_metal_books b;
    vgpu_read_metal_books(&b);
    return b;
}

/* The double must have counted n wrong uses, the first with this text.  They are then cleared. */
static inline void expect_wrong(int64_t n, const char *part)
{
    vgpu_books b;
    vgpu_read_books(&b);
    if (b.wrong != n || !strstr(b.first_wrong, part))
        fail_msg("%lld wrong uses, not %lld; the first: %s; not: %s", (long long)b.wrong,
                 (long long)n, b.first_wrong, part);
    vgpu_forget();
}
/* WRONG(statement, text): the statement is a wrong use. */
#define WRONG(statement, part)                                                                     \
    do {                                                                                           \
        statement;                                                                                 \
        expect_wrong(1, part);                                                                     \
    } while (0)

/* Each test has a pool of its own, and must leave no object and no wrong use. */
static inline void nothing_left(void)
{
    const vgpu_metal_books b = metal_books();
    vgpu_books memory;
    vgpu_read_books(&memory);
    if (memory.wrong) fail_msg("a wrong use: %s", memory.first_wrong);
    if (b.objects || memory.blocks || b.commands)
        fail_msg("%lld objects are left: %lld buffers, %lld command buffers, %lld strings;"
                 " %lld commands", (long long)b.objects, (long long)b.buffers,
                 (long long)b.command_buffers, (long long)b.strings, (long long)b.commands);
}
#define CLEAN_TEST(name)                                                                           \
    static void name##_in_pool(void);                                                              \
    TEST(name)                                                                                     \
    {                                                                                              \
        void *pool = objc_autoreleasePoolPush();                                                   \
        name##_in_pool();                                                                          \
        objc_autoreleasePoolPop(pool);                                                             \
        nothing_left();                                                                            \
    }                                                                                              \
    static void name##_in_pool(void)

#endif
