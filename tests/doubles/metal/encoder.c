/* Encoders of kernels and of copies.  See vgpu_metal.h. */
#include "metal.h"

#include <stdlib.h>
#include <string.h>

typedef struct { NSUInteger width, height, depth; } size3;     /* MTLSize */
typedef struct { NSUInteger at, length; } range;               /* NSRange */

typedef struct {
    struct objc_object object;
    metal_commands *commands;           /* NULL: ended */
} encoder;

/* What is bound to an index of the arguments: a part of a buffer, or bytes. */
typedef struct {
    metal_buffer *buffer;
    size_t offset, length;
    void *bytes;
} binding;

typedef struct launch {
    vgpu_grid grid;
    void *pointers[METAL_ARGUMENTS];    /* NULL: `bytes` + the offset beside it */
    size_t offsets[METAL_ARGUMENTS];
    _Alignas(16) unsigned char bytes[];
} launch;

typedef struct { launch *what; size_t bytes; } pending;

typedef struct {
    encoder head;
    metal_pipeline *pipeline;
    binding bound[METAL_ARGUMENTS];
    size_t group_bytes[METAL_ARGUMENTS];
    bool concurrent;
    pending *pending;                   /* concurrent launches since the last barrier */
    size_t n_pending, capacity;
} compute;

/* True unless the encoder has ended. */
static bool is_open(void *e, SEL s)
{
    if (((encoder *)e)->commands) return true;
    vgpu_wrong("%s: the encoder has ended", sel_getName(s));
    return false;
}

static void begin(void *made, metal_commands *c) { ((encoder *)made)->commands = objc_retain(c); }

static void finish(encoder *e)
{
    metal_encoder_ended(e->commands, &e->object);
    objc_release(e->commands);
    e->commands = NULL;
}

static bool is_buffer(metal_buffer *b, const encoder *e, const char *where)
{
    if (!objc_is(b, &metal_buffer_class, where)) return false;
    if (b->device == metal_device_of(e->commands)) return true;
    vgpu_wrong("%s: a buffer of another device", where);
    return false;
}

/* ---- the arguments of kernels ---------------------------------------------------------------- */

static void set_pipeline(compute *e, SEL s, metal_pipeline *p)
{
    LOCKED;
    if (!is_open(e, s) || !objc_is(p, &metal_pipeline_class, sel_getName(s))) return;
    if (p->function->library->device != metal_device_of(e->head.commands)) {
        vgpu_wrong("%s: a pipeline of another device", sel_getName(s));
        return;
    }
    metal_keep(e->head.commands, p);
    e->pipeline = p;
}

static bool good_index(NSUInteger i, SEL s)
{
    if (i < METAL_ARGUMENTS) return true;
    vgpu_wrong("%s: index %lu, the last is 30", sel_getName(s), i);
    return false;
}

static void bind(compute *e, NSUInteger i, binding b)
{
    free(e->bound[i].bytes);
    e->bound[i] = b;
}

static void set_buffer(compute *e, SEL s, metal_buffer *b, NSUInteger offset, NSUInteger i)
{
    LOCKED;
    if (!is_open(e, s) || !good_index(i, s)) return;
    if (!b) {                           /* removes what is bound */
        bind(e, i, (binding){0});
        return;
    }
    if (!is_buffer(b, &e->head, sel_getName(s))) return;
    if (offset >= b->length) {
        vgpu_wrong("%s: offset %lu of a buffer of %zu bytes", sel_getName(s), offset, b->length);
        return;
    }
    metal_keep(e->head.commands, b);
    bind(e, i, (binding){.buffer = b, .offset = offset, .length = b->length - offset});
}

static void set_bytes(compute *e, SEL s, const void *bytes, NSUInteger length, NSUInteger i)
{
    LOCKED;
    if (!is_open(e, s) || !good_index(i, s)) return;
    if (!bytes || !length || length > METAL_BYTES) {
        vgpu_wrong("%s: %lu bytes, not 1 to 4096", sel_getName(s), length);
        return;
    }
    binding b = {.bytes = vgpu_zeroed(length), .length = length};
    memcpy(b.bytes, bytes, length);
    bind(e, i, b);
}

static void set_group_memory(compute *e, SEL s, NSUInteger length, NSUInteger i)
{
    LOCKED;
    if (!is_open(e, s) || !good_index(i, s)) return;
    if (length % 16) vgpu_wrong("%s: %lu bytes, not a multiple of 16", sel_getName(s), length);
    else e->group_bytes[i] = length;
}

static void use_resource(compute *e, SEL s, metal_buffer *b, NSUInteger usage)
{
    LOCKED;
    if (!is_open(e, s) || !is_buffer(b, &e->head, sel_getName(s))) return;
    if (!usage || usage > 7) vgpu_wrong("%s: usage %lu", sel_getName(s), usage);
    metal_keep(e->head.commands, b);
}

/* ---- launches -------------------------------------------------------------------------------- */

static CUresult run_launch(vgpu_work *w)
{
    launch *l = (launch *)w->payload;
    void *pointers[METAL_ARGUMENTS];
    for (int i = 0; i < l->grid.kernel->n; i++)
        pointers[i] = l->pointers[i] ? l->pointers[i] : l->bytes + l->offsets[i];
    l->grid.arguments = pointers;
    return vgpu_run_grid(&l->grid) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

static bool good_sizes(const compute *e, SEL s, size3 groups, size3 items)
{
    const NSUInteger most = e->pipeline->most_items, all = items.width * items.height * items.depth;
    const char *name = sel_getName(s);
    if (!groups.width || !groups.height || !groups.depth || !all)
        vgpu_wrong("%s: a size is 0: %lu x %lu x %lu groups of %lu x %lu x %lu", name, groups.width,
                   groups.height, groups.depth, items.width, items.height, items.depth);
    else if (groups.width > UINT32_MAX || groups.height > UINT32_MAX || groups.depth > UINT32_MAX)
        vgpu_wrong("%s: more than 2^32 groups along an axis", name);
    else if (items.width > 1024 || items.height > 1024 || items.depth > 1024 || all > most)
        vgpu_wrong("%s: %lu x %lu x %lu items in a group; the pipeline's most is %lu", name,
                   items.width, items.height, items.depth, most);
    else if (e->pipeline->whole_waves && all % 32)
        vgpu_wrong("%s: %lu items in a group, not a multiple of 32 as promised", name, all);
    else return true;
    return false;
}

/* The memory of a group that argument `a` gets, behind the `used` bytes of others. */
static bool place_group_memory(const compute *e, const metal_kernel *k, const metal_argument *a,
                               size_t *used, void **pointer)
{
    const size_t bytes = e->group_bytes[a->index];
    if (!bytes) {
        vgpu_wrong("%s: no length is set for threadgroup(%d)", k->name, a->index);
        return false;
    }
    if (metal_group_memory(k) + *used + bytes > METAL_GROUP_MEMORY) {
        vgpu_wrong("%s: %zu bytes of a group's memory, the most is %d", k->name,
                   metal_group_memory(k) + *used + bytes, METAL_GROUP_MEMORY);
        return false;
    }
    *pointer = k->dynamic + *used;
    *used += bytes;
    return true;
}

static bool place_arguments(const compute *e, const metal_kernel *k, launch *l)
{
    size_t used = 0, copied = 0;
    for (int i = 0; i < k->kernel.n; i++) {
        const metal_argument *a = &k->arguments[i];
        const binding *b = &e->bound[a->index];
        if (a->is_group) {
            if (!place_group_memory(e, k, a, &used, &l->pointers[i])) return false;
        } else if (!b->buffer && !b->bytes) {
            vgpu_wrong("%s: nothing is bound to buffer(%d)", k->name, a->index);
            return false;
        } else if (b->length < a->bytes) {
            vgpu_wrong("%s: buffer(%d) has %zu bytes, its type has %u", k->name, a->index,
                       b->length, a->bytes);
            return false;
        } else if (b->offset % a->alignment) {
            vgpu_wrong("%s: offset %zu of buffer(%d) is not a multiple of %u", k->name, b->offset,
                       a->index, a->alignment);
            return false;
        } else if (b->buffer) {
            l->pointers[i] = b->buffer->at + b->offset;
        } else {
            memcpy(l->bytes + copied, b->bytes, b->length);
            l->offsets[i] = copied;
            copied += (b->length + 15) / 16 * 16;
        }
    }
    return true;
}

static void flush(compute *e)
{
    while (e->n_pending) {
        const pending p = e->pending[--e->n_pending];
        metal_encode(e->head.commands, p.what->grid.name, run_launch, p.what, p.bytes);
        free(p.what);
    }
}

static void dispatch(compute *e, SEL s, size3 groups, size3 items)
{
    LOCKED;
    if (!is_open(e, s)) return;
    if (!e->pipeline) {
        vgpu_wrong("%s: no pipeline is set", sel_getName(s));
        return;
    }
    if (!good_sizes(e, s, groups, items)) return;
    const metal_function *f = e->pipeline->function;
    const metal_kernel *k = f->kernel;
    size_t bytes = sizeof(launch);
    for (int i = 0; i < METAL_ARGUMENTS; i++)
        if (e->bound[i].bytes) bytes += (e->bound[i].length + 15) / 16 * 16;
    launch *l = vgpu_zeroed(bytes);
    l->grid = (vgpu_grid){
        .name = k->name, .kernel = &k->kernel, .here = f->library->here, .shared = k->group,
        .shared_end = k->group_end,
        .groups = {(unsigned)groups.width, (unsigned)groups.height, (unsigned)groups.depth},
        .items = {(unsigned)items.width, (unsigned)items.height, (unsigned)items.depth}};
    if (!place_arguments(e, k, l)) {
        free(l);
        return;
    }
    if (e->n_pending == e->capacity) {
        e->capacity = e->capacity ? 2 * e->capacity : 4;
        e->pending = realloc(e->pending, e->capacity * sizeof *e->pending);
        if (!e->pending) abort();
    }
    e->pending[e->n_pending++] = (pending){l, bytes};
    if (!e->concurrent) flush(e);
}

/* Concurrent launches run from the last to the first, so that a missing barrier is found. */
static void barrier(compute *e, SEL s, NSUInteger scope)
{
    LOCKED;
    if (!is_open(e, s)) return;
    if (!scope || scope > 3) vgpu_wrong("%s: scope %lu", sel_getName(s), scope);
    flush(e);
}

static void end_encoding(encoder *e, SEL s)
{
    LOCKED;
    if (!is_open(e, s)) return;
    if (e->object.isa == &metal_compute_class) flush((compute *)e);
    finish(e);
}

static void end_encoder(id o)
{
    encoder *e = (encoder *)o;
    if (e->commands) {
        vgpu_wrong("an encoder is released before endEncoding");
        finish(e);
    }
    if (o->isa != &metal_compute_class) return;
    compute *c = (compute *)o;
    for (int i = 0; i < METAL_ARGUMENTS; i++) bind(c, (NSUInteger)i, (binding){0});
    while (c->n_pending) free(c->pending[--c->n_pending].what);
    free(c->pending);
}

static void set_label(encoder *e, SEL s, id text)
{
    (void)e;
    if (text) objc_is(text, &ns_string, sel_getName(s));
}

id metal_new_compute(metal_commands *c, bool concurrent)
{
    compute *e = objc_make(&metal_compute_class);
    begin(e, c);
    e->concurrent = concurrent;
    return &e->head.object;
}

static const objc_method compute_methods[] = {
    METHOD("setComputePipelineState:", "v@:@", set_pipeline),
    METHOD("setBuffer:offset:atIndex:", "v@:@QQ", set_buffer),
    METHOD("setBytes:length:atIndex:", "v@:^vQQ", set_bytes),
    METHOD("setThreadgroupMemoryLength:atIndex:", "v@:QQ", set_group_memory),
    METHOD("useResource:usage:", "v@:@Q", use_resource),
    METHOD("dispatchThreadgroups:threadsPerThreadgroup:", "v@:{MTLSize=QQQ}{MTLSize=QQQ}",
           dispatch),
    METHOD("memoryBarrierWithScope:", "v@:Q", barrier), METHOD("setLabel:", "v@:@", set_label),
    METHOD("endEncoding", "v@:", end_encoding), {0}};
objc_class metal_compute_class = {.name = "VGPUComputeCommandEncoder", .bytes = sizeof(compute),
                                  .methods = compute_methods, .end = end_encoder};

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct { char *to; const char *from; size_t bytes; int value; } copy;

static CUresult run_copy(vgpu_work *w)
{
    const copy *c = (const copy *)w->payload;
    if (c->from) memcpy(c->to, c->from, c->bytes);
    else memset(c->to, c->value, c->bytes);
    return CUDA_SUCCESS;
}

/* True if the part is in the buffer; on macOS its place and length are multiples of 4. */
static bool is_part(encoder *e, SEL s, metal_buffer *b, NSUInteger at, NSUInteger bytes)
{
    const char *name = sel_getName(s);
    if (!is_buffer(b, e, name)) return false;
    if (!bytes || at > b->length || bytes > b->length - at)
        vgpu_wrong("%s: %lu bytes at %lu of a buffer of %zu", name, bytes, at, b->length);
    else if (at % 4 || bytes % 4)
        vgpu_wrong("%s: %lu bytes at %lu are not multiples of 4", name, bytes, at);
    else return true;
    return false;
}

static void copy_buffer(encoder *e, SEL s, metal_buffer *from, NSUInteger from_at,
                        metal_buffer *to, NSUInteger to_at, NSUInteger bytes)
{
    LOCKED;
    if (!is_open(e, s) || !is_part(e, s, from, from_at, bytes) || !is_part(e, s, to, to_at, bytes))
        return;
    if (from == to && from_at < to_at + bytes && to_at < from_at + bytes) {
        vgpu_wrong("%s: the parts overlap", sel_getName(s));
        return;
    }
    const copy c = {.to = to->at + to_at, .from = from->at + from_at, .bytes = bytes};
    metal_keep(e->commands, from);
    metal_keep(e->commands, to);
    metal_encode(e->commands, "copyFromBuffer", run_copy, &c, sizeof c);
}

static void fill_buffer(encoder *e, SEL s, metal_buffer *b, range part, uint8_t value)
{
    LOCKED;
    if (!is_open(e, s) || !is_part(e, s, b, part.at, part.length)) return;
    const copy c = {.to = b->at + part.at, .bytes = part.length, .value = value};
    metal_keep(e->commands, b);
    metal_encode(e->commands, "fillBuffer", run_copy, &c, sizeof c);
}

static void synchronize(encoder *e, SEL s, metal_buffer *b)
{
    LOCKED;
    if (is_open(e, s) && is_buffer(b, e, sel_getName(s)))
        vgpu_wrong("%s: the storage mode is not managed", sel_getName(s));
}

id metal_new_blit(metal_commands *c)
{
    encoder *e = objc_make(&metal_blit_class);
    begin(e, c);
    return &e->object;
}

static const objc_method blit_methods[] = {
    METHOD("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", "v@:@Q@QQ",
           copy_buffer),
    METHOD("fillBuffer:range:value:", "v@:@{NSRange=QQ}C", fill_buffer),
    METHOD("synchronizeResource:", "v@:@", synchronize), METHOD("setLabel:", "v@:@", set_label),
    METHOD("endEncoding", "v@:", end_encoding), {0}};
objc_class metal_blit_class = {.name = "VGPUBlitCommandEncoder", .bytes = sizeof(encoder),
                               .methods = blit_methods, .end = end_encoder};
