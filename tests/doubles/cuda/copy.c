/* Copies and fills.  A test part: see vgpu.h.
 *
 * Host memory that is not pinned is read before a call returns, and written before it returns;
 * pinned memory is read and written when the stream comes to the copy. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    void *staged;                       /* a copy of what was at `from`; NULL: it is read there */
} copy;

static CUresult run_copy(vgpu_work *w)
{
    const copy *c = (const copy *)w->payload;
    memmove(c->to, c->staged ? c->staged : c->from, c->bytes);
    return CUDA_SUCCESS;
}

static void drop_copy(vgpu_work *w) { free(((copy *)w->payload)->staged); }

static void *pointer(CUdeviceptr at) { return (void *)(uintptr_t)at; }

static CUresult put_copy(CUstream s, CUcontext c, const copy *what)
{
    vgpu_work *w = vgpu_work_new(c, CU_GRAPH_NODE_TYPE_MEMCPY, "copy", run_copy, what, sizeof *what);
    w->drop = drop_copy;
    return vgpu_put(s, w);
}

/* A legacy call without a stream: done when it returns. */
static CUresult at_once(CUcontext c, CUresult put)
{
    TRY(put);
    return vgpu_wait_stream(c->null);
}

static CUresult upload(CUdeviceptr to, const void *from, size_t bytes, CUstream handle)
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
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

static CUresult download(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!bytes) return CUDA_SUCCESS;
    if (!to || !vgpu_holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const bool pinned = vgpu_pinned(to, bytes);
    if (!pinned) TRY(vgpu_not_captured(s));
    TRY(put_copy(s, c, &(copy){.to = to, .from = pointer(from), .bytes = bytes}));
    return pinned ? CUDA_SUCCESS : vgpu_wait_stream(s);
}

static CUresult between(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!bytes) return CUDA_SUCCESS;
    if (!vgpu_holds(to, bytes) || !vgpu_holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return put_copy(s, c, &(copy){.to = pointer(to), .from = pointer(from), .bytes = bytes});
}

API(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    return upload(to, from, bytes, s);
}
API(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    return download(to, from, bytes, s);
}
API(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s),
    (to, from, bytes, s))
{
    return between(to, from, bytes, s);
}
API(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
{
    CONTEXT(c);
    SAFE_ONLY;
    return at_once(c, upload(to, from, bytes, NULL));
}
API(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
    CONTEXT(c);
    SAFE_ONLY;
    return at_once(c, download(to, from, bytes, NULL));
}
API(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
    CONTEXT(c);
    SAFE_ONLY;
    return between(to, from, bytes, NULL);
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
    return between(to, from, bytes, s);
}

/* ---- fills ----------------------------------------------------------------------------------- */

typedef struct {
    unsigned char *to;
    size_t n, each;
    unsigned value;
} fill;

static CUresult run_fill(vgpu_work *w)
{
    const fill *f = (const fill *)w->payload;
    for (size_t i = 0; i < f->n; i++) memcpy(f->to + i * f->each, &f->value, f->each);
    return CUDA_SUCCESS;
}

static CUresult put_fill(CUdeviceptr to, unsigned value, size_t each, size_t n, CUstream handle)
{
    CUstream s;
    CONTEXT(c);
    TRY(vgpu_stream(handle, false, &s));
    if (!n) return CUDA_SUCCESS;
    if (to % each || !vgpu_holds(to, n * each)) return CUDA_ERROR_INVALID_VALUE;
    return vgpu_put(s, vgpu_work_new(c, CU_GRAPH_NODE_TYPE_MEMSET, "fill", run_fill,
                                     &(fill){pointer(to), n, each, value}, sizeof(fill)));
}

API(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream s), (to, value, n, s))
{
    return put_fill(to, value, 1, n, s);
}
API(cuMemsetD16Async, (CUdeviceptr to, unsigned short value, size_t n, CUstream s),
    (to, value, n, s))
{
    return put_fill(to, value, 2, n, s);
}
API(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t n, CUstream s), (to, value, n, s))
{
    return put_fill(to, value, 4, n, s);
}
API(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t n), (to, value, n))
{
    CONTEXT(c);
    SAFE_ONLY;
    return put_fill(to, value, 1, n, NULL);
}
API(cuMemsetD32_v2, (CUdeviceptr to, unsigned value, size_t n), (to, value, n))
{
    CONTEXT(c);
    SAFE_ONLY;
    return put_fill(to, value, 4, n, NULL);
}
