/* The CPU as a device: memory from a cache, copies, and kernels.  Fused kernels are tile programs
 * (tile.h); products, convolutions and pools use the library (lib.h); rows by index and running
 * sums have their own files.  A launch computes at once, so there is nothing to wait for. */
#include "backend/cpu/cpu.h"

#include "base/environment.h"
#include "base/mutex.h"
#include "base/os.h"

#include <string.h>

/* ---- memory ----
 *
 * The sizes of blocks are rounded up to the next of four equal steps between a power of two and the
 * next power, so from 256 bytes on, at most a quarter is added.  A released block goes to the free
 * list of its size, so a program in a steady state makes no system calls for memory.  The link of
 * the list is stored in the free block. */

enum { CPU_LEAST = 8, CPU_OCTAVES = 48, CPU_A_CLASS = 4 }; /* the smallest block: 2^8 bytes */

typedef struct cpu_block { struct cpu_block *next; } cpu_block;

static struct {
    wb__mutex lock;
    cpu_block *free[CPU_OCTAVES * CPU_A_CLASS];
    int64_t bytes;                      /* total of all free blocks */
} cpu_cache = {.lock = WB__MUTEX_INIT};

/* The size class of a size, with the size of its blocks in *bytes; -1: too large. */
static int cpu_class_of(size_t size, size_t *bytes)
{
    int octave = 0;
    while (octave < CPU_OCTAVES && ((size_t)2 << (CPU_LEAST + octave)) < size) octave++;
    if (octave == CPU_OCTAVES) return -1;
    const size_t base = (size_t)1 << (CPU_LEAST + octave), step = base / CPU_A_CLASS;
    size_t k = size <= base ? 0 : (size - base + step - 1) / step;
    if (k == CPU_A_CLASS) octave++, k = 0, *bytes = 2 * base;
    else *bytes = base + k * step;
    return octave == CPU_OCTAVES ? -1 : octave * CPU_A_CLASS + (int)k;
}

static void cpu_empty_cache(void)
{
    wb__mutex_lock(&cpu_cache.lock);
    cpu_cache.bytes = 0;
    for (int c = 0; c < CPU_OCTAVES * CPU_A_CLASS; c++) {
        while (cpu_cache.free[c]) {
            cpu_block *b = cpu_cache.free[c];
            cpu_cache.free[c] = b->next;
            wb__free(b);
        }
    }
    wb__mutex_unlock(&cpu_cache.lock);
}

static void cpu_trim(const wb_device *d)
{
    (void)d;
    cpu_empty_cache();
}

static void *cpu_allocate(const wb_device *d, size_t size)
{
    (void)d;
    size_t bytes = 0;
    const int c = cpu_class_of(size, &bytes);
    if (c < 0)
        return wb__fail_null(WB_ERROR_MEMORY, "cpu: %zu bytes are more than can be allocated",
                             size);
    wb__mutex_lock(&cpu_cache.lock);
    cpu_block *b = cpu_cache.free[c];
    if (b) {
        cpu_cache.free[c] = b->next;
        cpu_cache.bytes -= (int64_t)bytes;
    }
    wb__mutex_unlock(&cpu_cache.lock);
    if (b) return b;
    b = wb__alloc_aligned(bytes);
    if (!b) {                               /* frees blocks of other sizes and tries again */
        cpu_empty_cache();
        wb_clear_error();
        b = wb__alloc_aligned(bytes);
    }
    return b;
}

static void cpu_release(const wb_device *d, void *memory, size_t size)
{
    (void)d;
    size_t bytes = 0;
    if (!memory) return;
    const int c = cpu_class_of(size, &bytes);
    cpu_block *b = memory;
    wb__mutex_lock(&cpu_cache.lock);
    b->next = cpu_cache.free[c];
    cpu_cache.free[c] = b;
    cpu_cache.bytes += (int64_t)bytes;
    wb__mutex_unlock(&cpu_cache.lock);
}

static int cpu_upload(const wb_device *d, void *to, size_t at, const void *from, size_t bytes)
{
    (void)d;
    if (bytes) memmove((char *)to + at, from, bytes);
    return 0;
}

static int cpu_download(const wb_device *d, void *to, const void *from, size_t at, size_t bytes)
{
    (void)d;
    if (bytes) memmove(to, (const char *)from + at, bytes);
    return 0;
}

static int cpu_copy(const wb_device *d, void *to, size_t to_at, const wb_device *from_device,
                    const void *from, size_t from_at, size_t bytes)
{
    (void)d, (void)from_device;
    if (bytes) memmove((char *)to + to_at, (const char *)from + from_at, bytes);
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Prepares a copy: a fused kernel of two instructions, a load and a store. */
int wb__cpu_copy(const wb__step *step, wb__cpu_kernel **kernel)
{
    const wb__view *from = &step->views[0];
    const wb__reg reg = wb__reg_of(from->dtype);
    const wb__instr program[2] = {
        {.kind = WB__LOAD, .reg = (uint8_t)reg, .level = WB__LEVEL_FULL,
         .dtype = (uint8_t)from->dtype, .a = -1,
         .b = -1, .c = -1, .arg = 0},
        {.kind = WB__STORE, .reg = (uint8_t)reg, .level = WB__LEVEL_FULL,
         .dtype = (uint8_t)from->dtype, .a = 0, .b = -1, .c = -1, .arg = 1}};
    wb__space space = {.ndim = from->ndim, .col_dims = from->ndim};
    memcpy(space.dims, from->dims, sizeof space.dims);
    return wb__cpu_fused(&(wb__fused){.n_instr = 2, .n_views = 2, .n_segments = 1,
                                      .instr = program, .spaces = &space,
                                      .views = step->views}, kernel);
}

#define wb__cpu_none NULL

static wb__cpu_preparer *const cpu_preparers[WB__STEP_COUNT] = {
#define WB_STEP(NAME, name, cpu, gpu) [WB__STEP_##NAME] = wb__cpu_##cpu,
#include "ops/ops.def"
};

static int cpu_prepare(const wb_device *d, const wb__step *step, wb__kernel **kernel)
{
    (void)d;
    wb__cpu_kernel *k = NULL;
    const int e = step->kind == WB__STEP_FUSED ? wb__cpu_fused(&step->fused, &k)
                  : cpu_preparers[step->kind]  ? cpu_preparers[step->kind](step, &k)
                                               : WB_ERROR_INTERNAL;
    *kernel = e ? NULL : &k->base;
    return e;
}

static void cpu_destroy(const wb_device *d, wb__kernel *kernel)
{
    (void)d;
    wb__cpu_kernel *k = (wb__cpu_kernel *)kernel;
    if (k) k->destroy(k);
}

static int cpu_launch(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                      const size_t *offsets, void *workspace, size_t workspace_at,
                      const wb__number *numbers)
{
    (void)d, (void)offsets;
    const wb__cpu_kernel *k = (const wb__cpu_kernel *)kernel;
    return k->launch(k, buffers, (char *)workspace + workspace_at, numbers);
}

static int cpu_finish(const wb_device *d, const wb__kernel *kernel)
{
    (void)d;
    const wb__cpu_kernel *k = (const wb__cpu_kernel *)kernel;
    return k->finish ? k->finish(k) : 0;
}

static int cpu_wait(const wb_device *d)
{
    (void)d;
    return 0;
}

static bool cpu_prefers_channels_last(const wb_device *d, const wb__step *conv)
{
    (void)d, (void)conv;
    return true;
}

/* ---- devices --------------------------------------------------------------------------------- */

static int cpu_start(void) { return 0; }
static void cpu_stop(void) {}

/* Returns the number of devices.  Several devices are for tests: they share the processor and its
 * memory, but count as different devices. */
static int cpu_count(void)
{
    static _Atomic int count;
    if (!count) {
        count = (int)WB__MIN(wb__environment_number("WEBER_CPU_DEVICES", 1), WB__MAX_CPU_DEVICES);
    }
    return count;
}

static const wb_device *cpu_device(int ordinal)
{
    return ordinal >= 0 && ordinal < cpu_count() ? &wb__cpu_devices[ordinal] : NULL;
}

static int cpu_part_state(const char *name)
{
    (void)name;
    return -1;
}

static bool cpu_has_dtype(const wb_device *d, wb_dtype t)
{
    (void)d, (void)t;
    return true;
}

static int cpu_memory(const wb_device *d, wb_device_memory *m)
{
    (void)d;
    int64_t total, free;
    wb__os_memory(&total, &free);
    wb__mutex_lock(&cpu_cache.lock);
    *m = (wb_device_memory){.total = total, .free = free,
                            .used = wb_memory_used() - cpu_cache.bytes, .peak = wb_memory_peak(),
                            .cached = cpu_cache.bytes};
    wb__mutex_unlock(&cpu_cache.lock);
    return 0;
}

const wb__backend wb__cpu_backend = {
    .name = "CPU",
    .tag = "cpu",
    .host_visible = true, .part_align = 1,
    .start = cpu_start,
    .stop = cpu_stop,
    .count = cpu_count,
    .device = cpu_device,
    .part = cpu_part_state,
    .has_dtype = cpu_has_dtype,
    .memory = cpu_memory,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .trim = cpu_trim,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .prepare = cpu_prepare,
    .destroy = cpu_destroy,
    .launch = cpu_launch,
    .finish = cpu_finish,
    .wait = cpu_wait,
    .prefers_channels_last = cpu_prefers_channels_last,
    .supports = wb__cpu_supports,
    .packed_bytes = wb__cpu_packed_bytes,
    .prepare_form = wb__cpu_prepare_form,
};

const char wb__device_kind[] = "device";
#define CPU(n)                                                                                     \
    {.kind = wb__device_kind, .backend = &wb__cpu_backend, .ordinal = n, .name = ""}
const wb_device wb__cpu_devices[WB__MAX_CPU_DEVICES] = {
    CPU(0), CPU(1), CPU(2),  CPU(3),  CPU(4),  CPU(5),  CPU(6),  CPU(7),
    CPU(8), CPU(9), CPU(10), CPU(11), CPU(12), CPU(13), CPU(14), CPU(15)};
