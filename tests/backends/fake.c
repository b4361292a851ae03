/* A backend for tests of the registry: it has no device behind it, keeps its tensors in the host's
 * memory and computes nothing.  The build makes several of it, each wrong in one way, under the names
 * that the registry looks for; they are installed nowhere.
 *
 *   FAKE_NAME "CUDA"   FAKE_DEVICES 2   FAKE_VERSION   FAKE_LACKS_LAUNCH
 *   FAKE_ENTRY         0: no entry; 1: of another version; 2 (default): right; 3: declines
 *   FAKE_START         0 (default): starts; 1: fails; 2: crashes; 3: hangs; 4: ends the process
 *
 * Where FAKE_TRACE names a file, starts and stops are written there, a letter each. */
#include "backend/host.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef FAKE_NAME
#define FAKE_NAME "CUDA"
#endif
#ifndef FAKE_DEVICES
#define FAKE_DEVICES 2
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION WB__BACKEND_VERSION
#endif
#ifndef FAKE_ENTRY
#define FAKE_ENTRY 2
#endif
#ifndef FAKE_START
#define FAKE_START 0
#endif

extern const wb__backend fake_backend;
static const wb__host *host;

#define DEVICE(n) {.backend = &fake_backend, .ordinal = n, .name = "Test GPU " #n}
static const wb_device devices[] = {DEVICE(0), DEVICE(1), DEVICE(2)};
static int64_t used, peak;

static void trace(const char *letter)
{
    const char *path = getenv("FAKE_TRACE");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    if (file < 0) return;
    if (write(file, letter, 1) != 1) perror(path);
    close(file);
}

static int start(void)
{
    trace("s");
    used = peak = 0;
    switch (FAKE_START) {
    case 1: return host->fail(WB_ERROR_DEVICE, FAKE_NAME " driver not found: libfake.so.1. "
                              "Install the driver of your GPU.");
    case 2:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case 3:
        for (;;) pause();
    case 4: _exit(3);
    default: break;
    }
    return 0;
}

static void stop(void) { trace("e"); }
static int count(void) { return FAKE_DEVICES; }
static const wb_device *device(int n) { return n >= 0 && n < FAKE_DEVICES ? &devices[n] : NULL; }

static int part(const char *name)
{
    if (!strcmp(name, "cuDNN")) return 1;
    if (strcmp(name, "NCCL") != 0) return -1;
    host->fail(WB_ERROR_DEVICE, "NCCL not found: libfakeccl.so.2");
    return 0;
}

static bool has_dtype(const wb_device *d, wb_dtype t)
{
    (void)d;
    return t != WB_F64;
}

static int memory(const wb_device *d, wb_device_memory *m)
{
    (void)d;
    *m = (wb_device_memory){.total = (int64_t)24 << 30, .free = ((int64_t)24 << 30) - used,
                            .used = used, .peak = peak};
    return 0;
}

static void *allocate(const wb_device *d, size_t bytes)
{
    (void)d;
    void *block = host->alloc(bytes ? bytes : 1);
    if (block && (used += (int64_t)bytes) > peak) peak = used;
    return block;
}

static void release(const wb_device *d, void *block, size_t bytes)
{
    (void)d;
    used -= (int64_t)bytes;
    host->free(block);
}

static void trim(const wb_device *d) { (void)d; }

static int upload(const wb_device *d, void *to, size_t at, const void *from, size_t bytes)
{
    (void)d;
    if (bytes) memcpy((char *)to + at, from, bytes);
    return 0;
}

static int download(const wb_device *d, void *to, const void *from, size_t at, size_t bytes)
{
    (void)d;
    if (bytes) memcpy(to, (const char *)from + at, bytes);
    return 0;
}

static int copy(const wb_device *d, void *to, size_t to_at, const wb_device *from_device,
                const void *from, size_t from_at, size_t bytes)
{
    (void)from_device;
    return upload(d, to, to_at, (const char *)from + from_at, bytes);
}

static int prepare(const wb_device *d, const wb__step *step, wb__kernel **kernel)
{
    (void)d, (void)step;
    *kernel = NULL;
    return host->fail(WB_ERROR_UNSUPPORTED, "the test's backend computes nothing");
}

static void destroy(const wb_device *d, wb__kernel *kernel) { (void)d, (void)kernel; }

static int launch(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers)
{
    (void)d, (void)kernel, (void)buffers, (void)places, (void)workspace, (void)workspace_at, (void)numbers;
    return host->fail(WB_ERROR_UNSUPPORTED, "the test's backend computes nothing");
}

static int wait_for(const wb_device *d)
{
    return d->ordinal ? host->fail(WB_ERROR_DEVICE, "Test GPU %d fell off the bus", d->ordinal) : 0;
}

static bool prefers_nhwc(const wb_device *d, const wb__step *conv)
{
    (void)d, (void)conv;
    return false;
}

const wb__backend fake_backend = {
    .version = FAKE_VERSION, .name = FAKE_NAME, .tag = "fake",
    .start = start, .stop = stop, .count = count, .device = device, .part = part,
    .has_dtype = has_dtype, .memory = memory, .allocate = allocate, .release = release,
    .trim = trim, .upload = upload, .download = download, .copy = copy, .prepare = prepare,
    .destroy = destroy, .wait = wait_for, .prefers_nhwc = prefers_nhwc,
#ifdef FAKE_LACKS_LAUNCH
    .launch = false ? launch : NULL,
#else
    .launch = launch,
#endif
};

#define EXPORTED __attribute__((visibility("default")))
#if FAKE_ENTRY == 1
EXPORTED const wb__backend *wb_backend_0(const wb__host *table);
EXPORTED const wb__backend *wb_backend_0(const wb__host *table)
#elif FAKE_ENTRY >= 2
EXPORTED const wb__backend *wb_backend_5(const wb__host *table);
EXPORTED const wb__backend *wb_backend_5(const wb__host *table)
#else
EXPORTED const wb__backend *fake_of_nobody(const wb__host *table);
EXPORTED const wb__backend *fake_of_nobody(const wb__host *table)
#endif
{
    host = table;
    if (FAKE_ENTRY == 3)
        return host->fail_null(WB_ERROR_UNSUPPORTED, "this processor is too old for " FAKE_NAME);
    return &fake_backend;
}
