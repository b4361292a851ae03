/* The test double of Metal, by itself: messages, references, devices, buffers, the compiler, binary
 * archives.  The other programs double_metal_* are about commands.  Each wrong use must be
 * found. */
#include "double_metal.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static id device(void)
{
    id list = MTLCopyAllDevices(), d = SEND(id, (, word), list, SEL("objectAtIndex:"), 0);
    objc_release(list);
    return d;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The exit status of a process in which this is called. */
static int status_of(void (*call)(void))
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        call();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void send_what_is_unknown(void) { tell(device(), "noSuchMessage"); }
static void send_to_a_class(void) { tell(objc_getClass("NSString"), "count"); }
static void send_to_no_object(void) { tell((id)(void *)"text", "retain"); }
static void send_no_selector(void) { SEND(void, (), device(), (void *)"name"); }
static void make_what_methods_make(void) { new_object("NSString"); }
static void send_what_is_known(void) { number(device(), "registryID"); }

TEST(wrong_messages_end_the_process)
{
    assert_int_equal(status_of(send_what_is_unknown), 99);
    assert_int_equal(status_of(send_to_a_class), 99);
    assert_int_equal(status_of(send_to_no_object), 99);
    assert_int_equal(status_of(send_no_selector), 99);
    assert_int_equal(status_of(make_what_methods_make), 99);
    assert_int_equal(status_of(send_what_is_known), 0);
}

CLEAN_TEST(nil_answers_zero)
{
    assert_null(get(NULL, "name"));
    assert_int_equal(number(NULL, "length"), 0);
    assert_true(real(NULL, "GPUStartTime") == 0);
    assert_null(objc_retain(NULL));
    objc_release(NULL);
}

CLEAN_TEST(classes_have_names_and_selectors)
{
    id s = string("abc");
    assert_string_equal(class_getName(object_getClass(s)), "NSString");
    assert_ptr_equal(get(s, "class"), objc_getClass("NSString"));
    assert_null(objc_getClass("NSNothing"));
    assert_null(objc_getClass("MTLBuffer"));            /* a protocol */
    assert_ptr_equal(SEL("a:b:"), SEL("a:b:"));
    assert_string_equal(sel_getName(SEL("a:b:")), "a:b:");
    assert_true(class_respondsToSelector(object_getClass(s), SEL("UTF8String")));
    assert_true(class_respondsToSelector(object_getClass(s), SEL("retain")));
    assert_false(class_respondsToSelector(object_getClass(s), SEL("count")));
    id options = new_object("MTLCompileOptions");
    for (int macos = 14; macos < 16; macos++) {
        setenv("VGPU_MACOS", macos == 14 ? "14" : "15", 1);
        const signed char has = SEND(signed char, (, void *), options, SEL("respondsToSelector:"),
                                     SEL("setMathMode:"));
        assert_int_equal(has, macos == 15);
    }
    unsetenv("VGPU_MACOS");
    objc_release(options);
}

CLEAN_TEST(foundation_keeps_values)
{
    id one = SEND(id, (, word), objc_getClass("NSNumber"), SEL("numberWithUnsignedInteger:"),
                  1ul << 40);
    assert_int_equal(number(one, "unsignedIntegerValue"), 1ul << 40);
    id items[] = {one, string("two")};
    id list = SEND(id, (, const id *, word), objc_getClass("NSArray"),
                   SEL("arrayWithObjects:count:"), items, 2);
    assert_int_equal(number(list, "count"), 2);
    assert_ptr_equal(SEND(id, (, word), list, SEL("objectAtIndex:"), 1), items[1]);
    WRONG(assert_null(SEND(id, (, word), list, SEL("objectAtIndex:"), 2)), "objectAtIndex: 2");
    items[1] = NULL;
    WRONG(SEND(id, (, const id *, word), objc_getClass("NSArray"), SEL("arrayWithObjects:count:"),
               items, 2), "item 1");
    WRONG(assert_null(string(NULL)), "NULL");
    assert_int_equal(number(string("four"), "length"), 4);
    id url = get1(objc_getClass("NSURL"), "fileURLWithPath:", string("/a/b"));
    assert_string_equal(chars(get(url, "path")), "/a/b");
    WRONG(get1(objc_getClass("NSURL"), "fileURLWithPath:", one), "NSNumber in the place of NSStr");
    setenv("VGPU_MACOS", "14", 1);
    id info = get(objc_getClass("NSProcessInfo"), "processInfo");
    assert_non_null(strstr(chars(get(info, "operatingSystemVersionString")), "Version 14."));
    unsetenv("VGPU_MACOS");
}

/* ---- references ------------------------------------------------------------------------------ */

CLEAN_TEST(released_objects_are_found)
{
    id d = device(), b = new_buffer(d, 16, 0);
    assert_ptr_equal(get(b, "retain"), b);
    tell(b, "release");
    assert_int_equal(number(b, "retainCount"), 1);
    assert_int_equal(metal_books().buffers, 1);
    objc_release(b);
    assert_int_equal(metal_books().buffers, 0);
    WRONG(assert_null(contents(b)), "contents is sent to a released VGPUBuffer");
    WRONG(objc_release(b), "once too often");
    WRONG(tell(b, "release"), "release is sent to a released VGPUBuffer");
    WRONG(objc_retain(b), "released already");
    WRONG(objc_release(d), "once too often");           /* nobody has retained the device */
}

static void *without_pool(void *unused)
{
    objc_release(string("leaked"));
    return unused;
}

TEST(pools_release)
{
    void *outer = objc_autoreleasePoolPush();
    id first = string("outer");
    void *inner = objc_autoreleasePoolPush();
    id second = string("inner"), kept = objc_retain(string("kept"));
    objc_autoreleasePoolPop(inner);
    assert_int_equal(metal_books().strings, 2);
    WRONG(chars(second), "released NSString");
    assert_string_equal(chars(first), "outer");
    assert_string_equal(chars(kept), "kept");
    get(kept, "autorelease");
    WRONG(objc_autoreleasePoolPop(inner), "no pool");
    objc_autoreleasePoolPush();
    string("in a pool that the outer one ends");
    objc_autoreleasePoolPop(outer);
    WRONG(objc_autoreleasePoolPop(outer), "no pool");
    pthread_t thread;
    WRONG(pthread_create(&thread, NULL, without_pool, NULL); pthread_join(thread, NULL),
          "NSString is leaked");
    nothing_left();
}

/* ---- devices --------------------------------------------------------------------------------- */

static bool has_family(id d, long family)
{
    return SEND(signed char, (, long), d, SEL("supportsFamily:"), family);
}

CLEAN_TEST(devices_are_of_their_kind)
{
    enum { APPLE5 = 1005, APPLE7 = 1007, APPLE9 = 1009, MAC2 = 2002, METAL3 = 5001 };
    id list = MTLCopyAllDevices(), other;
    assert_int_equal(number(list, "count"), 2);
    id d = SEND(id, (, word), list, SEL("objectAtIndex:"), 0);
    other = SEND(id, (, word), list, SEL("objectAtIndex:"), 1);
    objc_release(list);
    assert_int_not_equal(number(d, "registryID"), number(other, "registryID"));
    assert_string_not_equal(chars(get(d, "name")), chars(get(other, "name")));
    assert_true(yes(d, "hasUnifiedMemory"));
    assert_false(yes(d, "isLowPower") || yes(d, "isRemovable") || yes(d, "isHeadless"));
    assert_true(has_family(d, APPLE9) && has_family(d, METAL3) && has_family(d, MAC2));
    assert_false(has_family(d, APPLE9 + 1) || has_family(d, 4001));
    setenv("VGPU_METAL_FAMILY", "6", 1);
    assert_false(has_family(d, APPLE7) || has_family(d, METAL3));
    unsetenv("VGPU_METAL_FAMILY");
    setenv("VGPU_METAL", "discrete", 1);
    assert_false(yes(d, "hasUnifiedMemory") || has_family(d, APPLE5));
    assert_true(has_family(d, METAL3));
    setenv("VGPU_METAL", "paravirtual", 1);
    assert_true(has_family(d, APPLE5) && yes(d, "hasUnifiedMemory"));
    assert_false(has_family(d, APPLE5 + 1) || has_family(d, METAL3));
    assert_string_equal(chars(get(d, "name")), "Apple Paravirtual device");
    setenv("VGPU_METAL", "none", 1);
    list = MTLCopyAllDevices();
    assert_int_equal(number(list, "count"), 0);
    objc_release(list);
    assert_null(MTLCreateSystemDefaultDevice());
    setenv("VGPU_METAL", "something", 1);
    WRONG(has_family(d, APPLE5), "VGPU_METAL=something");
    unsetenv("VGPU_METAL");
    assert_ptr_equal(other = MTLCreateSystemDefaultDevice(), d);
    objc_release(other);
    assert_int_equal(number(d, "maxThreadgroupMemoryLength"), 32768);
}

CLEAN_TEST(buffers_are_garbage_of_limited_size)
{
    enum { PRIVATE = 2 << 4, UNTRACKED = 1 << 8 };
    id d = device(), b = new_buffer(d, 1000, UNTRACKED | 1), p = new_buffer(d, 1000, PRIVATE);
    assert_int_equal(number(b, "length"), 1000);
    assert_int_equal(((unsigned char *)contents(b))[999], 0xff);
    assert_null(contents(p));
    assert_int_not_equal(number(p, "gpuAddress"), 0);
    assert_int_equal(number(d, "currentAllocatedSize"), 2048);
    objc_release(b);
    objc_release(p);
    assert_int_equal(number(d, "currentAllocatedSize"), 0);
    setenv("VGPU_MEMORY", "1048576", 1);
    assert_int_equal(number(d, "maxBufferLength"), 524288);
    assert_int_equal(number(d, "recommendedMaxWorkingSetSize"), 786432);
    assert_null(new_buffer(d, 524289, 0));              /* too long */
    b = new_buffer(d, 524288, 0);
    p = new_buffer(d, 524288, PRIVATE);
    assert_true(b && p);
    assert_null(new_buffer(d, 1, 0));                   /* no memory is left */
    objc_release(b);
    objc_release(p);
    unsetenv("VGPU_MEMORY");
    WRONG(assert_null(new_buffer(d, 0, 0)), "length is 0");
    WRONG(assert_null(new_buffer(d, 4, 1 << 4)), "options 0x10");       /* managed */
    WRONG(assert_null(new_buffer(d, 4, 3 << 8)), "options 0x300");
    WRONG(assert_null(new_buffer(d, 4, PRIVATE | 1)), "private storage with a mode");
}

static id borrow(id d, void *at, word bytes, word options, void *deallocator)
{
    return SEND(id, (, void *, word, word, void *), d,
                SEL("newBufferWithBytesNoCopy:length:options:deallocator:"), at, bytes, options,
                deallocator);
}

CLEAN_TEST(buffers_can_borrow_whole_pages)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    id d = device(), b = borrow(d, at, page, 0, NULL);
    assert_ptr_equal(contents(b), at);
    objc_release(b);
    at[0] = 1;                          /* still there */
    WRONG(borrow(d, at + 64, page, 0, NULL), "not whole pages");
    WRONG(borrow(d, at, page + 64, 0, NULL), "not whole pages");
    WRONG(borrow(d, at, page, 2 << 4, NULL), "only shared");
    WRONG(borrow(d, at, page, 0, at), "deallocator");
    munmap(at, 2 * page);
}

/* ---- the compiler ---------------------------------------------------------------------------- */

#define BEGIN "#include <metal_stdlib>\nusing namespace metal;\n"

/* The text must not compile, with this error. */
static void refused(const char *source, const char *part)
{
    id error = NULL;
    if (new_library(device(), source, &error)) fail_msg("compiles: %s", source);
    assert_string_equal(chars(get(error, "domain")), "MTLLibraryErrorDomain");
    assert_int_equal(code(error), 3);
    if (!strstr(reason(error), part)) fail_msg("%s: %s", source, reason(error));
}

static void compiles(const char *source)
{
    id error = NULL, made = new_library(device(), source, &error);
    if (!made) fail_msg("%s: %s", source, reason(error));
    objc_release(made);
}

CLEAN_TEST(texts_that_are_not_metal_do_not_compile)
{
#define KERNEL(statement)                                                                          \
    BEGIN "kernel void f(device float *x [[buffer(0)]], constant uint &n [[buffer(1)]],\n"         \
          "  uint3 i [[thread_position_in_grid]])\n{ " statement " }\n"
    compiles(KERNEL("x[i.x] = n + 1.5 * exp(x[i.x]) + precise::sin(0.5f);"));
    refused(KERNEL("x[0] = y;"), "program_source:5:10: error: ");
    refused(KERNEL("double y = 1; x[0] = y;"), "program_source:5:3: error: 'double'");
    refused(KERNEL("long long y = 1; x[0] = y;"), "program_source:5:3: error: 'long long'");
    refused(KERNEL("x[0] = erf(x[1]);"), "program_source:5:10: error: ");
    refused(KERNEL("x[0] = expm1(x[1]);"), "expm1");
    refused(KERNEL("x[0] = sinf(x[1]);"), "sinf");
    refused(KERNEL("x[0] = log1p(x[1]);"), "log1p");
    refused(KERNEL("printf(\"x\");"), "printf");
    refused(KERNEL("n = 1;"), "read-only");
    refused(KERNEL("goto end; end: x[0] = 1;"), "'goto'");
    refused(KERNEL("threadgroup float s[4] = {0}; x[0] = s[0];"), "cannot be initialized");
    refused(BEGIN "kernel void f(device const float *x [[buffer(0)]])\n{ x[0] = 1; }\n",
            "program_source:4:8: error: ");
    refused("kernel void f(device float *x [[buffer(0)]]) { x[0] = metal::exp(1.0f); }\n",
            "metal");                   /* without metal_stdlib */
    refused(BEGIN "#include <math.h>\n", "math.h");
    refused(BEGIN "threadgroup float s[4];\n", "program_source:3:1: error: a variable in thread");
    compiles(BEGIN "kernel void f(device atomic_uint *x [[buffer(0)]])\n"
                   "{ atomic_fetch_add_explicit(x, 1, memory_order_relaxed); }\n");
    refused(BEGIN "kernel void f(device atomic_ulong *x [[buffer(0)]])\n{ }\n", "atomic_ulong");
    refused(BEGIN "#error no\n", "no");
}

CLEAN_TEST(signatures_are_checked)
{
#define SIGNATURE(parameters) BEGIN "kernel void f(" parameters ") { }\n"
    compiles(SIGNATURE(""));
    compiles(SIGNATURE("device void **x [[buffer(30)]], ushort2 i [[thread_position_in_grid]]"));
    refused(SIGNATURE("device float *x [[buffr(0)]]"), ":3:31: error: unknown attribute 'buffr'");
    refused(SIGNATURE("device float *x [[buffer]]"), "unknown attribute 'buffer'");
    refused(SIGNATURE("uint i [[thread_position_in_nothing]]"), "thread_position_in_nothing");
    refused(SIGNATURE("device float *x"), "no attribute");
    refused(SIGNATURE("device float *x [[buffer(31)]]"), "between 0 and 30");
    refused(SIGNATURE("device float *x [[buffer(1)]], device float *y [[buffer(1)]]"), "index 1");
    refused(SIGNATURE("float x [[buffer(0)]]"), "error");
    refused(SIGNATURE("float i [[thread_position_in_grid]]"), "error");
    refused(BEGIN "kernel f;\n", "a kernel is a function");
}

static id compile_as(word version, const char *source, id macros, id *error)
{
    id o = new_object("MTLCompileOptions");
    SEND(void, (, bool), o, SEL("setFastMathEnabled:"), false);
    set(o, "setLanguageVersion:", version);
    tell1(o, "setPreprocessorMacros:", macros);
    id made = get3(device(), "newLibraryWithSource:options:error:", string(source), o, error);
    objc_release(o);
    return made;
}

static id dictionary(const id *keys, const id *values)
{
    return SEND(id, (, const id *, const id *, word), objc_getClass("NSDictionary"),
                SEL("dictionaryWithObjects:forKeys:count:"), values, keys, 1);
}

CLEAN_TEST(options_of_the_compiler)
{
    static const char source[] = BEGIN "#if __METAL_VERSION__ != VERSION\n#error version\n#endif\n";
    id error = NULL, keys[] = {string("VERSION")}, values[] = {string("240")};
    id macros = dictionary(keys, values);
    assert_int_equal(number(macros, "count"), 1);
    id made = compile_as(2 << 16 | 4, source, macros, &error);
    assert_non_null(made);
    objc_release(made);
    values[0] = SEND(id, (, word), objc_getClass("NSNumber"), SEL("numberWithUnsignedLong:"), 300);
    made = compile_as(3 << 16, source, dictionary(keys, values), &error);
    assert_non_null(made);
    objc_release(made);
    WRONG(assert_null(compile_as(3 << 16, source, dictionary(keys, &macros), &error)),
          "a key is no NSString, or a value neither");
    WRONG(assert_null(dictionary(keys, (id[]){NULL})), "item 0");
    assert_null(compile_as(3 << 16, source, macros, &error));
    assert_non_null(strstr(reason(error), "version"));
    assert_null(compile_as(3 << 16 | 1, source, macros, &error));
    assert_int_equal(code(error), 1);                   /* macOS 13 has 3.0 */
    id o = new_object("MTLCompileOptions"), fast;
    WRONG(fast = get3(device(), "newLibraryWithSource:options:error:", string(BEGIN), o, &error),
          "fast math");
    objc_release(fast);
    WRONG(fast = get3(device(), "newLibraryWithSource:options:error:", string(BEGIN), NULL, NULL),
          "fast math");
    objc_release(fast);
    setenv("VGPU_MACOS", "15", 1);
    set(o, "setMathMode:", 0);          /* safe */
    made = get3(device(), "newLibraryWithSource:options:error:", string(BEGIN), o, &error);
    assert_non_null(made);
    objc_release(made);
    WRONG(set(o, "setMathMode:", 3), "setMathMode: 3");
    unsetenv("VGPU_MACOS");
    WRONG(tell1(o, "setPreprocessorMacros:", o), "in the place of NSDictionary");
    WRONG(assert_null(get3(device(), "newLibraryWithSource:options:error:", o, o, &error)),
          "in the place of NSString");
    objc_release(o);
}

CLEAN_TEST(functions_have_names)
{
    id error = NULL, d = device();
    id l = new_library(d, BEGIN "#define TWO(n) kernel void n##_1() { } kernel void n##_2() { }\n"
                                "static inline void helper() { }\nTWO(k)\n", &error);
    id names = get(l, "functionNames");
    assert_int_equal(number(names, "count"), 2);
    assert_string_equal(chars(SEND(id, (, word), names, SEL("objectAtIndex:"), 1)), "k_2");
    assert_null(get1(l, "newFunctionWithName:", string("helper")));
    id f = get1(l, "newFunctionWithName:", string("k_1"));
    assert_string_equal(chars(get(f, "name")), "k_1");
    objc_release(l);                    /* its function keeps it */
    assert_int_equal(metal_books().libraries, 1);
    WRONG(get2(d, "newComputePipelineStateWithFunction:error:", names, &error), "NSArray in the");
    setenv("VGPU_METAL_ITEMS", "256", 1);
    id p = get2(d, "newComputePipelineStateWithFunction:error:", f, &error);
    assert_int_equal(number(p, "maxTotalThreadsPerThreadgroup"), 256);
    assert_int_equal(number(p, "threadExecutionWidth"), 32);
    assert_int_equal(number(p, "staticThreadgroupMemoryLength"), 0);
    unsetenv("VGPU_METAL_ITEMS");
    objc_release(p);
    objc_release(f);
}

CLEAN_TEST(memory_of_groups_is_limited)
{
    id error = NULL, d = device();
    id l = new_library(d, BEGIN "kernel void f(device float *x [[buffer(0)]]) {\n"
                                "threadgroup float s[100]; x[0] = s[0]; }\n"
                                "kernel void g(device float *x [[buffer(0)]]) {\n"
                                "threadgroup float s[8193]; x[0] = s[0]; }\n", &error);
    id p = new_pipeline(d, l, "f"), g = get1(l, "newFunctionWithName:", string("g"));
    assert_int_equal(number(p, "staticThreadgroupMemoryLength"), 400);
    assert_null(get2(d, "newComputePipelineStateWithFunction:error:", g, &error));
    assert_non_null(strstr(reason(error), "32772"));
    objc_release(p);
    objc_release(g);
    objc_release(l);
}

CLEAN_TEST(the_cache_spares_the_compiler)
{
    char folder[] = "/tmp/vgpu-metal-XXXXXX", command[60];
    const char *outer = getenv("VGPU_CACHE");
    char *kept = outer ? strdup(outer) : NULL;
    assert_non_null(mkdtemp(folder));
    setenv("VGPU_CACHE", folder, 1);
    const int64_t before = metal_books().texts;
    for (int i = 0; i < 3; i++) compiles(BEGIN "kernel void f() { }\n");
    assert_int_equal(metal_books().texts, before + 1);
    if (kept) setenv("VGPU_CACHE", kept, 1);
    else unsetenv("VGPU_CACHE");
    free(kept);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- binary archives ------------------------------------------------------------------------- */

static id new_archive(id d, const char *path, id *error)
{
    id o = new_object("MTLBinaryArchiveDescriptor");
    if (path) tell1(o, "setUrl:", get1(objc_getClass("NSURL"), "fileURLWithPath:", string(path)));
    id made = get2(d, "newBinaryArchiveWithDescriptor:error:", o, error);
    objc_release(o);
    return made;
}

static bool serialize(id archive, const char *path, id *error)
{
    id url = get1(objc_getClass("NSURL"), "fileURLWithPath:", string(path));
    return SEND(signed char, (, id, id *), archive, SEL("serializeToURL:error:"), url, error);
}

static id pipeline_with(id d, id descriptor, word options, id *error)
{
    return SEND(id, (, id, word, id *, id *), d,
                SEL("newComputePipelineStateWithDescriptor:options:reflection:error:"), descriptor,
                options, NULL, error);
}

static void overwrite(const char *path, long at, char with)
{
    FILE *f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    fputc(with, f);
    fclose(f);
}

CLEAN_TEST(archives_have_pipelines)
{
    char path[] = "/tmp/vgpu-archive-XXXXXX";
    id error = NULL, d = device(), a = new_archive(d, NULL, &error);
    close(mkstemp(path));
    assert_false(serialize(a, path, &error));
    assert_string_equal(reason(error), "Nothing to serialize");
    id l = new_library(d, BEGIN "kernel void f() { }\nkernel void g() { }\n", &error);
    id f = get1(l, "newFunctionWithName:", string("f")), g = get1(l, "newFunctionWithName:",
                                                                  string("g"));
    id with = new_object("MTLComputePipelineDescriptor");
    WRONG(pipeline_with(d, with, 0, &error), "no function");
    WRONG(get2(a, "addComputePipelineFunctionsWithDescriptor:error:", with, &error), "no function");
    WRONG(tell1(with, "setComputeFunction:", l), "in the place of VGPUFunction");
    tell1(with, "setComputeFunction:", f);
    assert_true(SEND(signed char, (, id, id *), a,
                     SEL("addComputePipelineFunctionsWithDescriptor:error:"), with, &error));
    assert_true(serialize(a, path, &error));
    assert_false(serialize(a, WB_TEST_NOWHERE "/archive", &error));
    objc_release(a);
    a = new_archive(d, path, &error);
    WRONG(tell1(with, "setBinaryArchives:", a), "in the place of NSArray");
    id list = SEND(id, (, const id *, word), objc_getClass("NSArray"),
                   SEL("arrayWithObjects:count:"), &l, 1);
    WRONG(tell1(with, "setBinaryArchives:", list), "in the place of VGPUBinaryArchive");
    tell1(with, "setBinaryArchives:", SEND(id, (, const id *, word), objc_getClass("NSArray"),
                                           SEL("arrayWithObjects:count:"), &a, 1));
    const vgpu_metal_books before = metal_books();
    id p = pipeline_with(d, with, 4, &error);              /* fails unless an archive has it */
    assert_non_null(p);
    tell1(with, "setComputeFunction:", g);
    assert_null(pipeline_with(d, with, 4, &error));
    id q = pipeline_with(d, with, 0, &error);
    const vgpu_metal_books after = metal_books();
    assert_int_equal(after.from_archives, before.from_archives + 1);
    assert_int_equal(after.compiled, before.compiled + 1);
    WRONG(objc_release(pipeline_with(d, with, 8, &error)), "options 0x8");
    objc_release(p);
    objc_release(q);
    objc_release(a);
    setenv("VGPU_MACOS", "14", 1);
    assert_null(new_archive(d, path, &error));
    assert_non_null(strstr(reason(error), "another device or macOS"));
    unsetenv("VGPU_MACOS");
    overwrite(path, 80, 'x');           /* a key */
    assert_null(new_archive(d, path, &error));
    assert_int_equal(code(error), 1);
    assert_null(new_archive(d, WB_TEST_NOWHERE "/archive", &error));
    assert_string_equal(chars(get(error, "domain")), "MTLBinaryArchiveDomain");
    unlink(path);
    objc_release(with);
    objc_release(f);
    objc_release(g);
    objc_release(l);
}

/* ---- failures -------------------------------------------------------------------------------- */

CLEAN_TEST(calls_fail_on_demand)
{
    static const char *const names[] = {
        "newBufferWithLength:options:", "newCommandQueue", "newEvent", "newSharedEvent",
        "newLibraryWithSource:options:error:", "newFunctionWithName:",
        "newComputePipelineStateWithFunction:error:", "newBinaryArchiveWithDescriptor:error:",
        "addComputePipelineFunctionsWithDescriptor:error:", "serializeToURL:error:",
        "newComputePipelineStateWithDescriptor:options:reflection:error:"};
    id d = device(), error, l = new_library(d, BEGIN "kernel void f() { }\n", &error);
    id f = get1(l, "newFunctionWithName:", string("f")), a = new_archive(d, NULL, &error);
    id with = new_object("MTLComputePipelineDescriptor");
    tell1(with, "setComputeFunction:", f);
    for (int i = 0; i < 11; i++) {
        char which[20], told[200];
        snprintf(which, sizeof which, "%d", i + 1);
        setenv("VGPU_FAIL", which, 1);
        device();                       /* counts from here */
        id made[8] = {new_buffer(d, 4, 0)};
        made[1] = get(d, "newCommandQueue");
        made[2] = get(d, "newEvent");
        made[3] = get(d, "newSharedEvent");
        made[4] = new_library(d, BEGIN, &error);
        made[5] = get1(l, "newFunctionWithName:", string("f"));
        made[6] = get2(d, "newComputePipelineStateWithFunction:error:", f, &error);
        made[7] = new_archive(d, NULL, &error);
        const bool added = SEND(signed char, (, id, id *), a,
                                SEL("addComputePipelineFunctionsWithDescriptor:error:"), with,
                                &error);
        const bool written = serialize(a, "/dev/null", &error);
        id p = pipeline_with(d, with, 0, &error);
        for (int j = 0; j < 8; j++) {
            assert_int_equal(made[j] == NULL, i == j);
            objc_release(made[j]);
        }
        assert_int_equal(added, i != 8);
        assert_int_equal(written, i != 9);
        assert_int_equal(p == NULL, i == 10);
        objc_release(p);
        assert_int_equal(vgpu_failed(told), 1);
        assert_non_null(strstr(told, names[i]));
    }
    unsetenv("VGPU_FAIL");
    device();
    objc_release(with);
    objc_release(a);
    objc_release(f);
    objc_release(l);
}

static int begin(void **state)
{
    unsetenv("VGPU_STRICT");
    setenv("VGPU_DEVICES", "2", 1);
    return 0;
}

int main(void) { return run_cases(begin, NULL); }
