/* Memory of devices, and pinned memory of the host.  See vgpu.h.
 *
 * Each device has a range of addresses that the process uses for nothing else.  A block ends at an
 * inaccessible page, and no address is used twice, so that a kernel's access beyond a block, before
 * its allocation or after its release is a fault. */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_THREAD__              /* whose own memory leaves less room */
enum { RANGE = 36 };
#else
enum { RANGE = 40 };
#endif
static const size_t range = (size_t)1 << RANGE, page = 4096, poisoned = 1 << 20;

static struct {
    char *first;
    size_t next;                        /* the offset of the next unused address */
    size_t used;                        /* bytes of cuMemAlloc, without pools */
    vgpu_block *blocks;                 /* in the order of their addresses */
    int n, capacity;
} devices[VGPU_MOST_DEVICES];
static vgpu_host_block *host_blocks;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ---- blocks ---------------------------------------------------------------------------------- */

static int device_of(CUdeviceptr at)
{
    for (int d = 0; d < VGPU_MOST_DEVICES; d++)
        if (devices[d].first && (char *)(uintptr_t)at >= devices[d].first
            && (char *)(uintptr_t)at < devices[d].first + range)
            return d;
    return -1;
}

/* The index of the device's first block that ends after the address. */
static int index_of(int d, CUdeviceptr at)
{
    int low = 0, high = devices[d].n;
    while (low < high) {
        const int middle = (low + high) / 2;
        const vgpu_block *b = &devices[d].blocks[middle];
        if (b->at + b->bytes <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

vgpu_block *vgpu_block_of(CUdeviceptr at)
{
    const int d = device_of(at), i = d < 0 ? 0 : index_of(d, at);
    if (d < 0 || i == devices[d].n || devices[d].blocks[i].at > at) return NULL;
    return &devices[d].blocks[i];
}

bool vgpu_holds(CUdeviceptr at, size_t bytes)
{
    const vgpu_block *b = vgpu_block_of(at);
    return b && !b->freed && at + bytes <= b->at + b->bytes;
}

bool vgpu_reaches(CUcontext c, CUdeviceptr at)
{
    const vgpu_block *b = vgpu_block_of(at);
    if (!b) return vgpu_pinned((void *)(uintptr_t)at, 1);
    if (b->device == c->device) return true;
    return b->pool ? b->pool->access[c->device] : c->peers[b->device];
}

size_t vgpu_span(uint64_t at)
{
    CUcontext c = vgpu_current();
    const vgpu_block *b = vgpu_block_of(at);
    return c && b && !b->freed && vgpu_reaches(c, at) ? b->at + b->bytes - at : 0;
}

/* Fills fresh memory with bytes that are NaN in every floating dtype; of long blocks the start. */
static void poison(char *at, size_t bytes)
{
    memset(at, 0xff, bytes < poisoned ? bytes : poisoned);
}

static void make_accessible(vgpu_block *b)
{
    char *first = (char *)((uintptr_t)b->at & ~(uintptr_t)(page - 1));
    if (mprotect(first, b->mapped, PROT_READ | PROT_WRITE)) {
        perror("vgpu: mprotect");
        abort();
    }
    poison((char *)(uintptr_t)b->at, b->bytes);
    b->accessible = true;
}

/* Reserves addresses for a block, which is not accessible yet.  It ends at the end of a page (but
 * for its alignment), and the next page remains inaccessible. */
static CUdeviceptr new_block(int d, size_t bytes, CUmemoryPool pool)
{
    if (!devices[d].first) {
        void *p = mmap(NULL, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            perror("vgpu: mmap");
            abort();
        }
        devices[d].first = p;
    }
    if (devices[d].n == devices[d].capacity) {
        devices[d].capacity = devices[d].capacity ? 2 * devices[d].capacity : 64;
        vgpu_block *b = realloc(devices[d].blocks, (size_t)devices[d].capacity * sizeof *b);
        if (!b) abort();
        devices[d].blocks = b;
    }
    const size_t taken = round_up(bytes, VGPU_ALIGNMENT), mapped = round_up(taken, page);
    if (devices[d].next + mapped + page > range) {
        fprintf(stderr, "vgpu: no addresses are left\n");
        abort();
    }
    char *end = devices[d].first + devices[d].next + mapped;
    devices[d].next += mapped + page;
    devices[d].blocks[devices[d].n++] = (vgpu_block){.at = (uintptr_t)(end - taken), .bytes = bytes,
                                                     .mapped = mapped, .device = d, .pool = pool};
    return (uintptr_t)(end - taken);
}

static void remove_block(vgpu_block *b)
{
    const int d = b->device;
    char *first = (char *)((uintptr_t)b->at & ~(uintptr_t)(page - 1));
    if (b->accessible) {                /* a new mapping releases the pages */
        mmap(first, b->mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    vgpu_block *last = devices[d].blocks + --devices[d].n;
    memmove(b, b + 1, (size_t)(last - b) * sizeof *b);
}

/* ---- free memory ----------------------------------------------------------------------------- */

static size_t total_bytes(void) { return (size_t)vgpu_env_number("VGPU_MEMORY", 4ll << 30); }

static int summed_device;
static size_t summed;
static void sum_pool(void *pool)
{
    const CUmemoryPool p = pool;
    if (p->device == summed_device) summed += p->reserved;
}

/* Sets `summed` to the bytes that are taken. */
static size_t free_bytes(int d)
{
    summed_device = d;
    summed = devices[d].used;
    vgpu_each(&vgpu_contexts[d], VGPU_POOL, sum_pool);
    const size_t total = total_bytes();
    return summed < total ? total - summed : 0;
}

API(cuMemGetInfo_v2, (size_t *left, size_t *total), (left, total))
{
    CONTEXT(c);
    if (left) *left = free_bytes(c->device);
    if (total) *total = total_bytes();
    return CUDA_SUCCESS;
}

CUresult vgpu_take(int device, size_t bytes, CUdeviceptr *at)
{
    if (round_up(bytes, VGPU_ALIGNMENT) > free_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = new_block(device, bytes, NULL);
    make_accessible(vgpu_block_of(*at));
    devices[device].used += round_up(bytes, VGPU_ALIGNMENT);
    vgpu_note_memory(summed + round_up(bytes, VGPU_ALIGNMENT));
    return CUDA_SUCCESS;
}

void vgpu_give(CUdeviceptr at)
{
    vgpu_block *b = vgpu_block_of(at);
    if (b->pool) b->pool->used -= round_up(b->bytes, VGPU_ALIGNMENT);
    else devices[b->device].used -= round_up(b->bytes, VGPU_ALIGNMENT);
    remove_block(b);
}

size_t vgpu_taken(int device) { return devices[device].used; }

API(cuMemAlloc_v2, (CUdeviceptr *at, size_t bytes), (at, bytes))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!at || !bytes) return CUDA_ERROR_INVALID_VALUE;
    return vgpu_take(c->device, bytes, at);
}

API(cuMemFree_v2, (CUdeviceptr at), (at))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!at) return CUDA_SUCCESS;
    vgpu_block *b = vgpu_block_of(at);
    if (!b || b->at != at || b->freed) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_wait_context(&vgpu_contexts[b->device]));
    vgpu_give(at);
    return CUDA_SUCCESS;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static CUresult run_allocation(vgpu_work *w)
{
    vgpu_block *b = vgpu_block_of(*(CUdeviceptr *)w->payload);
    if (b) make_accessible(b);
    return CUDA_SUCCESS;
}

static CUresult run_release(vgpu_work *w)
{
    vgpu_block *b = vgpu_block_of(*(CUdeviceptr *)w->payload);
    if (!b) return CUDA_SUCCESS;
    if (!b->accessible)
        vgpu_fault(w->context, CUDA_ERROR_ILLEGAL_ADDRESS,
                   "cuMemFreeAsync: the stream does not wait for the memory's allocation");
    if (b->pool) b->pool->used -= round_up(b->bytes, VGPU_ALIGNMENT);
    remove_block(b);
    return CUDA_SUCCESS;
}

API(cuMemAllocFromPoolAsync, (CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream s),
    (at, bytes, pool, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!vgpu_is(pool, VGPU_POOL) || !at || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!vgpu_env_number("VGPU_POOLS", 1)) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(vgpu_not_captured(s));
    const size_t taken = round_up(bytes, VGPU_ALIGNMENT);
    for (int tries = 0; pool->used + taken > pool->reserved; tries++) {
        const size_t more = pool->used + taken - pool->reserved;
        if (more <= free_bytes(pool->device)) {
            pool->reserved += more;
            vgpu_note_memory(summed + more);
        } else if (tries) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            TRY(vgpu_wait_context(&vgpu_contexts[pool->device]));       /* executes releases */
        }
    }
    pool->used += taken;
    *at = new_block(pool->device, bytes, pool);
    return vgpu_put(s, vgpu_work_new(c, "allocation", run_allocation, at, sizeof *at));
}

API(cuMemFreeAsync, (CUdeviceptr at, CUstream s), (at, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    TRY(vgpu_not_captured(s));
    vgpu_block *b = vgpu_block_of(at);
    if (!b || b->at != at || b->freed || !b->pool) return CUDA_ERROR_INVALID_VALUE;
    b->freed = true;
    return vgpu_put(s, vgpu_work_new(c, "release", run_release, &at, sizeof at));
}

API(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *p), (pool, p))
{
    if (!vgpu_started()) return CUDA_ERROR_NOT_INITIALIZED;
    if (!pool || !p || p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->handleTypes
        || p->location.id < 0 || p->location.id >= vgpu_devices())
        return CUDA_ERROR_INVALID_VALUE;
    if (!vgpu_env_number("VGPU_POOLS", 1)) return CUDA_ERROR_NOT_SUPPORTED;
    *pool = vgpu_new(VGPU_POOL, sizeof **pool, &vgpu_contexts[p->location.id]);
    (*pool)->device = p->location.id;
    return CUDA_SUCCESS;
}

API(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
{
    if (!vgpu_is(pool, VGPU_POOL)) return CUDA_ERROR_INVALID_VALUE;
    TRY(vgpu_wait_context(pool->object.context));
    if (pool->used) vgpu_wrong("cuMemPoolDestroy: %zu bytes of it are in use", pool->used);
    pool->reserved = 0;
    vgpu_end(pool);
    return CUDA_SUCCESS;
}

static void trim(CUmemoryPool pool, size_t keep)
{
    const size_t to = pool->used > keep ? pool->used : keep;
    if (pool->reserved > to) pool->reserved = to;
}

static void trim_to_threshold(void *pool)
{
    const CUmemoryPool p = pool;
    trim(p, p->threshold > SIZE_MAX ? SIZE_MAX : (size_t)p->threshold);
}
void vgpu_trim_pools(int d) { vgpu_each(&vgpu_contexts[d], VGPU_POOL, trim_to_threshold); }

API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), (pool, keep))
{
    if (!vgpu_is(pool, VGPU_POOL)) return CUDA_ERROR_INVALID_VALUE;
    trim(pool, keep);
    return CUDA_SUCCESS;
}

API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
    (pool, which, value))
{
    if (!vgpu_is(pool, VGPU_POOL) || !value) return CUDA_ERROR_INVALID_VALUE;
    if (which != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&pool->threshold, value, sizeof pool->threshold);
    return CUDA_SUCCESS;
}

API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t n),
    (pool, access, n))
{
    if (!vgpu_is(pool, VGPU_POOL) || (n && !access)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        const int d = access[i].location.id;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || d < 0 || d >= vgpu_devices())
            return CUDA_ERROR_INVALID_VALUE;
        if (d != pool->device && !vgpu_env_number("VGPU_PEERS", 1))
            return CUDA_ERROR_INVALID_DEVICE;
        if (d == pool->device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        pool->access[d] = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return CUDA_SUCCESS;
}

/* ---- pinned host memory ---------------------------------------------------------------------- */

bool vgpu_pinned(const void *at, size_t bytes)
{
    for (const vgpu_host_block *h = host_blocks; h; h = h->next)
        if ((const char *)at >= h->at && (const char *)at + bytes <= h->at + h->bytes) return true;
    return false;
}

API(cuMemHostAlloc, (void **at, size_t bytes, unsigned flags), (at, bytes, flags))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!at || !bytes || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    if (!(*at = aligned_alloc(page, round_up(bytes, page)))) return CUDA_ERROR_OUT_OF_MEMORY;
    poison(*at, bytes);
    vgpu_host_block *h = vgpu_zeroed(sizeof *h);
    *h = (vgpu_host_block){.context = c, .at = *at, .bytes = bytes, .next = host_blocks};
    host_blocks = h;
    return CUDA_SUCCESS;
}

API(cuMemFreeHost, (void *at), (at))
{
    CONTEXT(c);
    SAFE_ONLY;
    vgpu_host_block **h = &host_blocks;
    while (*h && (*h)->at != at) h = &(*h)->next;
    if (!*h) return CUDA_ERROR_INVALID_VALUE;
    vgpu_wait_all();
    vgpu_host_block *gone = *h;
    *h = gone->next;
    free(gone->at);
    free(gone);
    return CUDA_SUCCESS;
}

/* ---- counts, the end of a context ------------------------------------------------------------ */

void vgpu_memory_books(vgpu_books *b)
{
    for (int d = 0; d < VGPU_MOST_DEVICES; d++) {
        for (int i = 0; i < devices[d].n; i++) {
            if (devices[d].blocks[i].freed) continue;
            b->blocks++;
            b->bytes += (int64_t)devices[d].blocks[i].bytes;
        }
    }
    for (const vgpu_host_block *h = host_blocks; h; h = h->next) {
        b->host_blocks++;
        b->host_bytes += (int64_t)h->bytes;
    }
}

void vgpu_free_context_memory(CUcontext c)
{
    const int d = c->device;
    int left = devices[d].n;
    for (vgpu_host_block **h = &host_blocks; *h;) {
        vgpu_host_block *block = *h;
        if (block->context == c) {
            *h = block->next;
            free(block->at);
            free(block);
            left++;
        } else {
            h = &block->next;
        }
    }
    if (left && !c->fault)              /* after a fault no call can release memory */
        vgpu_wrong("context of device %d: ends with %d blocks of memory", d, left);
    while (devices[d].n) remove_block(&devices[d].blocks[devices[d].n - 1]);
    devices[d].used = 0;
}
