/* Backends for tests of the registry.  They have no hardware, keep their tensors in the host's
 * memory and compute nothing.  The environment variable FAKES lists those that replace backends of
 * the library in a program that links this file:
 *
 *   two     CUDA with two devices           one     AMDGPU with one device
 *   none    CUDA, which does not start      empty   CUDA without a device
 *   crashes, hangs, leaves                  CUDA, whose start crashes, hangs or exits the process
 *   absent  CUDA is not built in
 *
 * Metal is never built in, so that the tests give the same results on macOS.
 *
 * If FAKE_TRACE names a file, each start appends an "s" to it and each stop an "e". */
#include "device/registry.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum { STARTS, FAILS, CRASHES, HANGS, LEAVES } beginning;
typedef struct {
    const char *name;
    int row;                            /* its index in tables, below */
    bool absent;
    int devices;
    beginning start;
} fake;
static const fake kinds[] = {
    {.name = "two", .devices = 2},
    {.name = "one", .row = 1, .devices = 1},
    {.name = "none", .devices = 2, .start = FAILS},
    {.name = "empty"},
    {.name = "crashes", .start = CRASHES},
    {.name = "hangs", .start = HANGS},
    {.name = "leaves", .start = LEAVES},
    {.name = "absent", .absent = true},
};

static const wb__backend tables[2];
static const fake *played[2];
static int64_t used[2], peak[2];

#define DEVICE(row, n)                                                                             \
    {.kind = wb__device_kind, .backend = &tables[row], .ordinal = n, .name = "Test GPU " #n}
static const wb_device devices[2][2] = {{DEVICE(0, 0), DEVICE(0, 1)}, {DEVICE(1, 0), DEVICE(1, 1)}};

static int row_of(const wb_device *d) { return d->backend == &tables[1]; }

static void trace(const char *letter)
{
    const char *path = getenv("FAKE_TRACE");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    if (file < 0) return;
    if (write(file, letter, 1) != 1) perror(path);
    close(file);
}

static int start(int row)
{
    trace("s");
    used[row] = peak[row] = 0;
    switch (played[row]->start) {
    case FAILS:
        return wb__fail(WB_ERROR_DEVICE, "%s driver not found: libfake.so.1. Install the driver of"
                        " your GPU.", tables[row].name);
    case CRASHES:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case HANGS:
        for (;;) pause();
    case LEAVES: _exit(3);
    default: break;
    }
    return 0;
}

static int start_0(void) { return start(0); }
static int start_1(void) { return start(1); }
static void stop(void) { trace("e"); }
static int count_0(void) { return played[0]->devices; }
static int count_1(void) { return played[1]->devices; }
static const wb_device *device_0(int n) { return n >= 0 && n < count_0() ? &devices[0][n] : NULL; }
static const wb_device *device_1(int n) { return n >= 0 && n < count_1() ? &devices[1][n] : NULL; }

static int part(const char *name)
{
    if (!strcmp(name, "cuDNN")) return 1;
    if (strcmp(name, "NCCL") != 0) return -1;
    wb__fail(WB_ERROR_DEVICE, "NCCL not found: libfakeccl.so.2");
    return 0;
}

static bool has_dtype(const wb_device *d, wb_dtype t)
{
    (void)d;
    return t != WB_F64;
}

static int memory(const wb_device *d, wb_device_memory *m)
{
    const int64_t all = (int64_t)24 << 30, held = used[row_of(d)];
    const int64_t most = peak[row_of(d)];
    *m = (wb_device_memory){.total = all, .free = all - held, .used = held, .peak = most};
    return 0;
}

static void *allocate(const wb_device *d, size_t bytes)
{
    const int row = row_of(d);
    void *block = wb__alloc(bytes ? bytes : 1);
    if (block && (used[row] += (int64_t)bytes) > peak[row]) peak[row] = used[row];
    return block;
}

static void release(const wb_device *d, void *block, size_t bytes)
{
    used[row_of(d)] -= (int64_t)bytes;
    wb__free(block);
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
    return wb__fail(WB_ERROR_UNSUPPORTED, "the test's backend computes nothing");
}

static void destroy(const wb_device *d, wb__kernel *kernel) { (void)d, (void)kernel; }

static int launch(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                  const size_t *offsets, void *workspace, size_t workspace_at,
                  const wb__number *numbers)
{
    (void)d, (void)kernel, (void)buffers, (void)offsets;
    (void)workspace, (void)workspace_at, (void)numbers;
    return wb__fail(WB_ERROR_UNSUPPORTED, "the test's backend computes nothing");
}

static int wait_for(const wb_device *d)
{
    return d->ordinal ? wb__fail(WB_ERROR_DEVICE, "Test GPU %d fell off the bus", d->ordinal) : 0;
}

static bool prefers_channels_last(const wb_device *d, const wb__step *conv)
{
    (void)d, (void)conv;
    return false;
}

#define TABLE(row, name_) \
    {.name = name_, .tag = "fake", WB__GPU_TRAITS, .start = start_##row, .stop = stop, \
     .count = count_##row, .device = device_##row, .part = part, .has_dtype = has_dtype, \
     .memory = memory, .allocate = allocate, .release = release, .trim = trim, .upload = upload, \
     .download = download, .copy = copy, .prepare = prepare, .destroy = destroy, \
     .launch = launch, .wait = wait_for, .prefers_channels_last = prefers_channels_last}
static const wb__backend tables[2] = {TABLE(0, "CUDA"), TABLE(1, "AMDGPU")};

/* Runs before main: the command `weber` has a main of its own. */
__attribute__((constructor)) static void install(void)
{
    const char *names = getenv("FAKES");
    wb__registry_put("Metal", NULL);
    for (size_t n; names && *names; names += n + (names[n] == ',')) {
        n = strcspn(names, ",");
        for (size_t i = 0; i < WB__COUNT(kinds); i++) {
            const fake *k = &kinds[i];
            if (strlen(k->name) != n || strncmp(k->name, names, n) != 0) continue;
            played[k->row] = k;
            wb__registry_put(tables[k->row].name, k->absent ? NULL : &tables[k->row]);
        }
    }
}
