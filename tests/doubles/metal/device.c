/* Devices, buffers, events.  See vgpu_metal.h. */
#include "metal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- devices --------------------------------------------------------------------------------- */

static metal_device devices[VGPU_MOST_DEVICES];

metal_kind metal_which(void)
{
    static const char *const names[] = {"unified", "discrete", "paravirtual", "none"};
    const char *name = vgpu_env("VGPU_METAL", names[0]);
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return (metal_kind)i;
    vgpu_wrong("VGPU_METAL=%s: not unified, discrete, paravirtual or none", name);
    return METAL_UNIFIED;
}

static int count_devices(void)
{
    const long long n = vgpu_env_number("VGPU_DEVICES", 2);
    if (metal_which() == METAL_NONE) return 0;
    return (int)(n < 0 ? 0 : n < VGPU_MOST_DEVICES ? n : VGPU_MOST_DEVICES);
}

static id device(int i)
{
    metal_device *d = &devices[i];
    if (!d->object.isa) {
        d->object = (struct objc_object){.isa = &metal_device_class, .count = 1, .stays = true};
        d->number = i;
        vgpu_remember(d);
    }
    return &d->object;
}

VGPU_API id MTLCopyAllDevices(void);
VGPU_API id MTLCopyAllDevices(void)
{
    id all[VGPU_MOST_DEVICES];
    LOCKED;
    vgpu_fail_from_here();
    const int n = count_devices();
    for (int i = 0; i < n; i++) all[i] = device(i);
    void *pool = objc_autoreleasePoolPush();
    id list = objc_retain(ns_list(all, (size_t)n));
    objc_autoreleasePoolPop(pool);
    return list;
}

VGPU_API id MTLCreateSystemDefaultDevice(void);
VGPU_API id MTLCreateSystemDefaultDevice(void)
{
    LOCKED;
    vgpu_fail_from_here();
    return count_devices() ? objc_retain(device(0)) : NULL;
}

const char *metal_device_name(const metal_device *d, char text[64])
{
    if (metal_which() == METAL_PARAVIRTUAL) return "Apple Paravirtual device";
    snprintf(text, 64, "Metal test double %d", d->number);
    return text;
}

static id device_name(metal_device *d, SEL s)
{
    char text[64];
    (void)s;
    return ns_text(metal_device_name(d, text));
}

static uint64_t registry_id(metal_device *d, SEL s)
{
    (void)s;
    return 0x100000300u + (uint64_t)d->number;
}

static objc_bool is_unified(metal_device *d, SEL s)
{
    (void)d, (void)s;
    return objc_yes(metal_which() != METAL_DISCRETE);
}

static objc_bool no(metal_device *d, SEL s)
{
    (void)d, (void)s;
    return objc_yes(false);
}

/* Families: Apple<n> is 1000 + n, Mac2 is 2002, Common<n> is 3000 + n, Metal3 is 5001. */
static objc_bool supports_family(metal_device *d, SEL s, long family)
{
    const metal_kind kind = metal_which();
    const long apple = vgpu_env_number("VGPU_METAL_FAMILY", kind == METAL_DISCRETE ? 0
                                                            : kind == METAL_PARAVIRTUAL ? 5 : 9);
    (void)d, (void)s;
    if (family > 1000 && family <= 1010) return objc_yes(family <= 1000 + apple);
    if (family == 5001) return objc_yes(kind == METAL_DISCRETE || apple >= 7);
    return objc_yes(family == 2001 || family == 2002 || (family > 3000 && family <= 3003));
}

static size_t memory(void) { return (size_t)vgpu_env_number("VGPU_MEMORY", 4ll << 30); }

static NSUInteger longest_buffer(metal_device *d, SEL s)
{
    (void)d, (void)s;
    return memory() / 2;
}

static uint64_t working_set(metal_device *d, SEL s)
{
    (void)d, (void)s;
    return memory() / 4 * 3;
}

static NSUInteger allocated(metal_device *d, SEL s)
{
    LOCKED;
    (void)s;
    return vgpu_taken(d->number);
}

static NSUInteger group_memory(metal_device *d, SEL s)
{
    (void)d, (void)s;
    return METAL_GROUP_MEMORY;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* MTLResourceOptions: 0 or 1, the processor's cache; 2 << 4, private storage; 1 << 8 or 2 << 8,
 * tracking of hazards. */
static bool good_options(NSUInteger options, SEL s)
{
    const NSUInteger storage = options >> 4 & 15, cache = options & 15;
    if (options >> 10 || options >> 8 == 3 || cache > 1 || (storage && storage != 2))
        vgpu_wrong("%s: options %#lx; this double knows shared and private storage", sel_getName(s),
                   options);
    else if (storage && cache)
        vgpu_wrong("%s: private storage with a mode of the processor's cache", sel_getName(s));
    else return true;
    return false;
}

static metal_buffer *make_buffer(metal_device *d, char *at, NSUInteger length, NSUInteger options)
{
    metal_buffer *b = objc_make(&metal_buffer_class);
    b->device = d;
    b->at = at;
    b->length = length;
    b->is_private = options >> 4 & 15;
    return b;
}

static id new_buffer(metal_device *d, SEL s, NSUInteger length, NSUInteger options)
{
    CUdeviceptr at;
    LOCKED;
    MAY_FAIL(s);
    if (!length) vgpu_wrong("%s: the length is 0", sel_getName(s));
    if (!length || !good_options(options, s) || length > longest_buffer(d, s)) return NULL;
    if (vgpu_take(d->number, length, &at)) return NULL;
    return &make_buffer(d, (char *)(uintptr_t)at, length, options)->object;
}

static id borrow_buffer(metal_device *d, SEL s, void *at, NSUInteger length, NSUInteger options,
                        id deallocator)
{
    LOCKED;
    MAY_FAIL(s);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!at || !length || (uintptr_t)at % page || length % page)
        vgpu_wrong("%s: %lu bytes at %p are not whole pages", sel_getName(s), length, at);
    else if (options >> 4 & 15 || !good_options(options, s))
        vgpu_wrong("%s: only shared storage has memory of the caller", sel_getName(s));
    else if (deallocator)
        vgpu_wrong("%s: this double knows no deallocator", sel_getName(s));
    else {
        metal_buffer *b = make_buffer(d, at, length, options);
        b->borrowed = true;
        return &b->object;
    }
    return NULL;
}

static void end_buffer(id o)
{
    const metal_buffer *b = (metal_buffer *)o;
    if (!b->borrowed) vgpu_give((CUdeviceptr)(uintptr_t)b->at);
}

static void *contents(metal_buffer *b, SEL s)
{
    (void)s;
    return b->is_private ? NULL : b->at;
}

static NSUInteger buffer_length(metal_buffer *b, SEL s)
{
    (void)s;
    return b->length;
}

static uint64_t gpu_address(metal_buffer *b, SEL s)
{
    (void)s;
    return (uintptr_t)b->at;
}

/* Of buffers, libraries, queues and so on. */
static id buffer_device(metal_buffer *b, SEL s)
{
    (void)s;
    return &b->device->object;
}

static const objc_method buffer_methods[] = {
    METHOD("contents", "^v@:", contents), METHOD("length", "Q@:", buffer_length),
    METHOD_SINCE(13, "gpuAddress", "Q@:", gpu_address), METHOD("device", "@@:", buffer_device),
    {0}};
objc_class metal_buffer_class = {.name = "VGPUBuffer", .bytes = sizeof(metal_buffer),
                                 .methods = buffer_methods, .end = end_buffer};

/* ---- events ---------------------------------------------------------------------------------- */

static id new_event(metal_device *d, SEL s)
{
    LOCKED;
    MAY_FAIL(s);
    metal_event *e = objc_make(strcmp(sel_getName(s), "newEvent") ? &metal_shared_event_class
                                                                  : &metal_event_class);
    e->device = d;
    return &e->object;
}

/* An event that is not shared belongs to one device. */
bool metal_is_event(const void *event, const metal_device *d, const char *where)
{
    const metal_event *e = event;
    if (e && vgpu_known(e) && e->object.isa == &metal_shared_event_class)
        return objc_is(e, &metal_shared_event_class, where);
    if (!objc_is(e, &metal_event_class, where)) return false;
    if (e->device == d) return true;
    vgpu_wrong("%s: an MTLEvent of another device", where);
    return false;
}

/* A program may read it in a loop, so that commands must run. */
static uint64_t signaled_value(metal_event *e, SEL s)
{
    LOCKED;
    (void)s;
    metal_run_some();
    return e->value;
}

static void set_signaled_value(metal_event *e, SEL s, uint64_t value)
{
    LOCKED;
    if (value > e->value) e->value = value;
    else vgpu_wrong("%s %llu: it is %llu already", sel_getName(s), (unsigned long long)value,
                    (unsigned long long)e->value);
}

static id event_device(metal_event *e, SEL s)
{
    (void)s;
    return &e->device->object;
}

static const objc_method event_methods[] = {METHOD("device", "@@:", event_device), {0}};
objc_class metal_event_class = {.name = "VGPUEvent", .bytes = sizeof(metal_event),
                                .methods = event_methods};
static const objc_method shared_event_methods[] = {
    METHOD("signaledValue", "Q@:", signaled_value),
    METHOD("setSignaledValue:", "v@:Q", set_signaled_value), {0}};
objc_class metal_shared_event_class = {.name = "VGPUSharedEvent", .bytes = sizeof(metal_event),
                                       .methods = shared_event_methods};

/* ---- the class of devices, counts ------------------------------------------------------------ */

static const objc_method device_methods[] = {
    METHOD("name", "@@:", device_name), METHOD("registryID", "Q@:", registry_id),
    METHOD("hasUnifiedMemory", "B@:", is_unified), METHOD("isLowPower", "B@:", no),
    METHOD("isRemovable", "B@:", no), METHOD("isHeadless", "B@:", no),
    METHOD("supportsFamily:", "B@:q", supports_family),
    METHOD("maxBufferLength", "Q@:", longest_buffer),
    METHOD("recommendedMaxWorkingSetSize", "Q@:", working_set),
    METHOD("currentAllocatedSize", "Q@:", allocated),
    METHOD("maxThreadgroupMemoryLength", "Q@:", group_memory),
    METHOD("newBufferWithLength:options:", "@@:QQ", new_buffer),
    METHOD("newBufferWithBytesNoCopy:length:options:deallocator:", "@@:^vQQ@?", borrow_buffer),
    METHOD("newEvent", "@@:", new_event), METHOD("newSharedEvent", "@@:", new_event),
    METHOD("newCommandQueue", "@@:", metal_new_queue),
    METHOD("newCommandQueueWithMaxCommandBufferCount:", "@@:Q", metal_new_queue_of),
    METHOD("newLibraryWithSource:options:error:", "@@:@@^@", metal_new_library),
    METHOD("newComputePipelineStateWithFunction:error:", "@@:@^@", metal_new_pipeline),
    METHOD("newComputePipelineStateWithDescriptor:options:reflection:error:", "@@:@Q^@^@",
           metal_new_pipeline_with),
    METHOD("newBinaryArchiveWithDescriptor:error:", "@@:@^@", metal_new_archive), {0}};
objc_class metal_device_class = {.name = "VGPUDevice", .bytes = sizeof(metal_device),
                                 .methods = device_methods};

void vgpu_read_metal_books(vgpu_metal_books *b)
{
    LOCKED;
    *b = (vgpu_metal_books){
        .objects = objc_alive(), .buffers = metal_buffer_class.alive,
        .queues = metal_queue_class.alive, .command_buffers = metal_commands_class.alive,
        .encoders = metal_compute_class.alive + metal_blit_class.alive,
        .libraries = metal_library_class.alive, .functions = metal_function_class.alive,
        .pipelines = metal_pipeline_class.alive,
        .events = metal_event_class.alive + metal_shared_event_class.alive,
        .archives = metal_archive_class.alive, .strings = ns_string.alive,
        .errors = ns_error.alive, .commands = metal_waiting(), .compiled = metal_compiled,
        .from_archives = metal_from_archives, .texts = metal_texts};
}
