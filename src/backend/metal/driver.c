/* Opens Metal at run time, describes errors, keeps autorelease pools, and finds devices.  The
 * framework is never closed, because its threads may still run. */
#include "backend/metal/metal.h"
#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__objc_functions wb__objc;
wb__objc_selectors wb__selector;

/* ---- opening --------------------------------------------------------------------------------- */

/* Functions of the runtime, on which Metal depends, and of Metal itself. */
static const wb__gpu_function metal_driver_functions[] = {
    {"objc_msgSend", offsetof(wb__objc_functions, send)},
    {"sel_registerName", offsetof(wb__objc_functions, registerName)},
    {"objc_getClass", offsetof(wb__objc_functions, getClass)},
    {"objc_autoreleasePoolPush", offsetof(wb__objc_functions, pushPool)},
    {"objc_autoreleasePoolPop", offsetof(wb__objc_functions, popPool)},
};
static struct { id (*copy_all)(void), (*create_default)(void); } metal;
static const wb__gpu_function metal_functions[] = {
    {"MTLCopyAllDevices", offsetof(__typeof__(metal), copy_all)},
    {"MTLCreateSystemDefaultDevice", offsetof(__typeof__(metal), create_default)},
};

#define FRAMEWORK(name) "/System/Library/Frameworks/" name ".framework/" name
static const char metal_driver_needs[] = "Metal is part of macOS 13 and newer";
#ifdef __APPLE__
enum { IS_MACOS = 1 };
#else
enum { IS_MACOS = 0 };                  /* only tests have a library to open */
#endif

int wb__mtl_load(void)
{
    const char *file = wb__environment_path("WEBER_METAL_LIBRARY");
    if (!IS_MACOS && (!file || !*file))
        return wb__fail(WB_ERROR_DEVICE, "metal: %s, and this is another system",
                        metal_driver_needs);
    void *library = wb__gpu_open_library("metal", "WEBER_METAL_LIBRARY", FRAMEWORK("Metal"),
                                         "MTLCreateSystemDefaultDevice", metal_driver_needs, &file);
    if (!library) return WB_ERROR_DEVICE;
    const char *missing = wb__gpu_find_functions(library, metal_driver_functions,
                                                 WB__COUNT(metal_driver_functions), &wb__objc);
    if (!missing)
        missing = wb__gpu_find_functions(library, metal_functions, WB__COUNT(metal_functions),
                                         &metal);
    if (missing) {
        wb__os_library_close(library);
        return wb__fail(WB_ERROR_DEVICE, "metal: %s has no %s: %s", file, missing,
                        metal_driver_needs);
    }
    /* without this framework a command-line program has no default device */
    wb__os_library_open(FRAMEWORK("CoreGraphics"), WB__OS_FOR_ALL);
#define REGISTER(result, n, name, text, ...) wb__selector.name = wb__objc.registerName(text);
    WB__OBJC_METHODS(REGISTER)
#undef REGISTER
    return 0;
}

id wb__mtl_class(const char *name) { return wb__objc.getClass(name); }

id wb__mtl_string(const char *text)
{
    return mtl_stringWithUTF8String(wb__mtl_class("NSString"), text);
}

/* Copies a string of Foundation; `text` receives "" if it is NULL. */
static void copy_string(id string, char *text, size_t capacity)
{
    const char *utf8 = mtl_UTF8String(string);
    snprintf(text, capacity, "%s", utf8 ? utf8 : "");
}

/* ---- autorelease pools ----------------------------------------------------------------------- */

enum { METAL_DRIVER_NESTING = 4 };
static _Thread_local void *metal_driver_pools[METAL_DRIVER_NESTING];
static _Thread_local int metal_driver_depth;

int wb__mtl_enter(wb__gpu_device *d)
{
    (void)d;
    if (metal_driver_depth == METAL_DRIVER_NESTING) return WB__MTL_NESTING;
    metal_driver_pools[metal_driver_depth++] = wb__objc.pushPool();
    return 0;
}

void wb__mtl_leave(void) { wb__objc.popPool(metal_driver_pools[--metal_driver_depth]); }

/* ---- errors ---------------------------------------------------------------------------------- */

static _Thread_local int metal_driver_described; /* code that the text WB__TEXT_DRIVER belongs to */

int wb__mtl_failed(int code, id error)
{
    metal_driver_described = code;
    copy_string(error ? mtl_localizedDescription(error) : NULL, wb__thread_text(WB__TEXT_DRIVER),
                WB__THREAD_TEXT_BYTES);
    return code;
}

int wb__mtl_failed_because(int code, const char *reason)
{
    metal_driver_described = code;
    snprintf(wb__thread_text(WB__TEXT_DRIVER), WB__THREAD_TEXT_BYTES, "%s", reason);
    return code;
}

const char *wb__mtl_error_name(int code)
{
    static const struct { int code; const char *name; } names[] = {
        {MTLCommandBufferErrorInternal, "MTLCommandBufferErrorInternal"},
        {MTLCommandBufferErrorTimeout, "MTLCommandBufferErrorTimeout"},
        {MTLCommandBufferErrorPageFault, "MTLCommandBufferErrorPageFault"},
        {MTLCommandBufferErrorAccessRevoked, "MTLCommandBufferErrorAccessRevoked"},
        {MTLCommandBufferErrorNotPermitted, "MTLCommandBufferErrorNotPermitted"},
        {MTLCommandBufferErrorOutOfMemory, "MTLCommandBufferErrorOutOfMemory"},
        {MTLCommandBufferErrorInvalidResource, "MTLCommandBufferErrorInvalidResource"},
        {MTLCommandBufferErrorMemoryless, "MTLCommandBufferErrorMemoryless"},
        {MTLCommandBufferErrorDeviceRemoved, "MTLCommandBufferErrorDeviceRemoved"},
        {MTLCommandBufferErrorStackOverflow, "MTLCommandBufferErrorStackOverflow"},
        {WB__MTL_NO_OBJECT, "nil"}, {WB__MTL_NO_MEMORY, "no memory"},
        {WB__MTL_NOT_COMPILED, "the text does not compile"},
        {WB__MTL_NO_KERNEL, "no kernel of this name"}, {WB__MTL_NESTING, "too many nested calls"}};
    for (size_t i = 0; i < WB__COUNT(names); i++)
        if (names[i].code == code) return names[i].name;
    return "an unknown error";
}

int wb__mtl_error_kind(int code)
{
    if (code == WB__MTL_NO_MEMORY) return WB__GPU_ERROR_MEMORY | WB__GPU_ERROR_FULL;
    if (code >= WB__MTL_NO_OBJECT) return 0;
    return code == MTLCommandBufferErrorOutOfMemory ? WB__GPU_ERROR_LOST | WB__GPU_ERROR_MEMORY
                                                    : WB__GPU_ERROR_LOST;
}

void wb__mtl_error_text(wb__gpu_device *d, int code, char *text, size_t capacity)
{
    (void)d;
    char *description = wb__thread_text(WB__TEXT_DRIVER);
    snprintf(text, capacity, "%s", code == metal_driver_described ? description : "");
    *description = 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Devices have fixed positions, since a program may keep a device's address: if Metal lists the
 * same devices again, each gets its old position. */
static wb__mtl_device metal_driver_devices[WB__GPU_MAX_DEVICES];
static int metal_driver_n_devices;

/* Sets the device's properties.  false: Weber does not support the GPU. */
static bool metal_driver_describe(wb__mtl_device *d)
{
    const id device = d->device;
    char name[sizeof d->gpu.name], version[80];
    const bool unified = mtl_hasUnifiedMemory(device);
    copy_string(mtl_name(device), name, sizeof name);
    copy_string(mtl_operatingSystemVersionString(mtl_processInfo(wb__mtl_class("NSProcessInfo"))),
                version, sizeof version);
    d->gpu.kind = "gpu";
    d->gpu.total = (int64_t)mtl_recommendedMaxWorkingSetSize(device);
    d->gpu.most = (int64_t)mtl_maxBufferLength(device);
    d->gpu.staged = wb__environment_switch("WEBER_METAL_STAGING", !unified);
    d->gpu.keeps_images = true;
    /* Positions in a grid have 32 bits, and no kernel has more than 256 items in a group. */
    d->gpu.target = (wb__gpu_target){.max_items = 256, .max_args_bytes = MTL_MAX_BYTES,
                                     .max_buffers = MTL_MAX_BUFFERS - 1,
                                     .local_bytes = mtl_maxThreadgroupMemoryLength(device),
                                     .max_groups = {UINT32_MAX / 256, UINT16_MAX, UINT16_MAX}};
    if (mtl_supportsFamily(device, MTLGPUFamilyApple7)) d->gpu.target.fragments_f16 = 32;
    snprintf(d->gpu.about, sizeof d->gpu.about, "%s memory, macOS %s",
             unified ? "unified" : "separate", version);
    snprintf(d->gpu.maker, sizeof d->gpu.maker, "%s, macOS %s", name, version);
    memcpy(d->gpu.name, name, sizeof name);
    /* a virtual machine's GPU has what Weber needs, but is not of the family */
    return mtl_supportsFamily(device, MTLGPUFamilyMetal3) || strstr(name, "aravirtual");
}

static void metal_driver_add_device(id device, wb__gpu_device **list, int *n_list)
{
    wb__mtl_device *d = &metal_driver_devices[metal_driver_n_devices];
    memset(d, 0, sizeof *d);
    d->device = mtl_retain(device);
    metal_driver_n_devices++;
    if (metal_driver_describe(d)) {
        list[(*n_list)++] = &d->gpu;
    } else {
        wb__log(WB_LOG_WARN, "metal: %s is not of the family Metal 3: skipped", d->gpu.name);
        mtl_release(d->device);
        metal_driver_n_devices--;
    }
}

/* Lists Metal's devices, the system's default device `first` before the others. */
static int metal_driver_list_devices(id all, id first, wb__gpu_device **list, int *n_list)
{
    const NSUInteger n = mtl_count(all);
    const uint64_t number = first ? mtl_registryID(first) : 0;
    for (int turn = 0; turn < 2; turn++)
        for (NSUInteger i = 0; i < n && metal_driver_n_devices < (int)WB__GPU_MAX_DEVICES; i++) {
            const id device = mtl_objectAtIndex(all, i);
            const bool is_first = first && mtl_registryID(device) == number;
            if (is_first == !turn) metal_driver_add_device(device, list, n_list);
        }
    if (n > WB__GPU_MAX_DEVICES)
        wb__log(WB_LOG_WARN, "metal: only the first %d of %lu GPUs are used",
                (int)WB__GPU_MAX_DEVICES, n);
    if (*n_list) return 0;
    if (!n)
        return wb__fail(WB_ERROR_DEVICE, "metal: Metal lists no GPU: a virtual machine or a session"
                        " without a graphical login may have none");
    return wb__fail(WB_ERROR_DEVICE, "metal: none of %lu GPUs is of the family Metal 3, as all"
                    " GPUs of Apple's processors are", n);
}

int wb__mtl_find(wb__gpu_device **list, int *n_list)
{
    int status = wb__mtl_enter(NULL);
    if (status) return wb__fail(WB_ERROR_DEVICE, "metal: %s", wb__mtl_error_name(status));
    const id all = metal.copy_all(), first = metal.create_default();
    if (all) status = metal_driver_list_devices(all, first, list, n_list);
    else status = wb__fail(WB_ERROR_DEVICE, "metal: MTLCopyAllDevices returned nil");
    if (all) mtl_release(all);
    if (first) mtl_release(first);
    wb__mtl_leave();
    if (status) wb__mtl_forget();
    return status;
}

void wb__mtl_forget(void)
{
    for (int i = 0; i < metal_driver_n_devices; i++) mtl_release(metal_driver_devices[i].device);
    metal_driver_n_devices = 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

int wb__mtl_open(wb__gpu_device *base)
{
    wb__mtl_device *d = wb__mtl_of(base);
    int code = wb__mtl_enter(base);
    const int n = base->staged ? WB__GPU_RECORDING : 1;
    const bool entered = !code;
    wb__mutex_init(&d->copying);
    for (int i = 0; i < n && !code; i++) {
        wb__mtl_queue *q = &d->queue[i];
        memset(q, 0, sizeof *q);
        wb__mutex_init(&q->lock);
        q->queue = MAKE(newCommandQueue, d->device);
        if (q->queue && n > 1) q->event = MAKE(newEvent, d->device);
        if (!q->queue || (n > 1 && !q->event)) code = wb__mtl_failed(WB__MTL_NO_OBJECT, NULL);
    }
    if (entered) wb__mtl_leave();
    if (!code) return 0;
    const int status = wb__gpu_fail(&wb__mtl_driver, base, code, "%s", base->name);
    wb__mtl_close(base);
    return status;
}

void wb__mtl_close(wb__gpu_device *base)
{
    wb__mtl_device *d = wb__mtl_of(base);
    const bool entered = !wb__mtl_enter(base);
    /* releases of memory may have left waits for uploads in a command buffer */
    for (int q = WB__GPU_RECORDING - 1; q >= 0; q--) wb__mtl_driver.sync(base, (wb__gpu_queue)q);
    if (d->copy_pipeline) mtl_release(d->copy_pipeline);
    d->copy_pipeline = NULL;
    wb__mutex_destroy(&d->copying);
    for (size_t i = 0; i < WB__COUNT(d->queue); i++) {
        wb__mtl_queue *q = &d->queue[i];
        if (q->queue) wb__mutex_destroy(&q->lock);
        if (q->event) mtl_release(q->event);
        if (q->queue) mtl_release(q->queue);
        q->queue = q->event = NULL;
    }
    if (entered) wb__mtl_leave();
}
