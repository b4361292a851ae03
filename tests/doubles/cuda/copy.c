/* Copies.  See vgpu.h.
 *
 * Host memory that is not pinned is read or written before the call returns; pinned memory when the
 * stream executes the copy. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    void *staged;                       /* a copy of the source that replaces it; NULL: none */
} copy;

static CUresult run_copy(vgpu_work *w)
{
    const copy *c = (const copy *)w->payload;
    if (vgpu_dry()) {
        if (!vgpu_block_of((CUdeviceptr)(uintptr_t)c->to)) memset(c->to, 0, c->bytes);
        return CUDA_SUCCESS;
    }
    memmove(c->to, c->staged ? c->staged : c->from, c->bytes);
    return CUDA_SUCCESS;
}

static void drop_copy(vgpu_work *w) { free(((copy *)w->payload)->staged); }

static void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

static CUresult put_copy(CUstream s, CUcontext c, const copy *what)
{
    vgpu_work *w = vgpu_work_new(c, "copy", run_copy, what, sizeof *what);
    w->drop = drop_copy;
    return vgpu_put(s, w);
}

API(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!bytes) return CUDA_SUCCESS;
    if (!from || !vgpu_holds(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    copy what = {.to = pointer(to), .from = from, .bytes = bytes};
    if (!vgpu_pinned(from, bytes)) {
        TRY(vgpu_not_captured(s));
        what.staged = vgpu_zeroed(bytes);
        memcpy(what.staged, from, bytes);
    }
    return put_copy(s, c, &what);
}

API(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!bytes) return CUDA_SUCCESS;
    if (!to || !vgpu_holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const bool pinned = vgpu_pinned(to, bytes);
    if (!pinned) TRY(vgpu_not_captured(s));
    TRY(put_copy(s, c, &(copy){.to = to, .from = pointer(from), .bytes = bytes}));
    return pinned ? CUDA_SUCCESS : vgpu_wait_stream(s);
}

static CUresult device_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    CONTEXT(c);
    TRY(vgpu_stream(s, false));
    if (!bytes) return CUDA_SUCCESS;
    if (!vgpu_holds(to, bytes) || !vgpu_holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return put_copy(s, c, &(copy){.to = pointer(to), .from = pointer(from), .bytes = bytes});
}

API(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    return device_copy(to, from, bytes, s);
}
API(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                        CUcontext from_context, size_t bytes, CUstream s),
    (to, to_context, from, from_context, bytes, s))
{
    CONTEXT(c);
    if (!to_context || !from_context || !to_context->retained || !from_context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (from_context->fault) return from_context->fault;
    const vgpu_block *a = vgpu_block_of(to), *b = vgpu_block_of(from);
    if (bytes && (!a || !b || a->device != to_context->device || b->device != from_context->device))
        return CUDA_ERROR_INVALID_VALUE;
    return device_copy(to, from, bytes, s);
}
