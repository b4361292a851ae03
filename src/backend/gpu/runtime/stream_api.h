/* Functions of wb__gpu_driver for an API with streams, events and modules.  The APIs of two vendors
 * have the same functions, with other prefixes and types.  A driver's file includes this text after
 * it has defined:
 *
 *   API              the table of the API's functions; its fields have the names used here
 *   API_STREAM, API_EVENT, API_MODULE, API_FUNCTION, API_GRAPH, API_EXEC     types of handles
 *   API_DEVICE       the driver's device struct, which begins with wb__gpu_device and has an
 *                    array `stream` with a stream for each queue
 *   API_AT(at), API_FROM(from)   a device address (uint64_t) and a host pointer that is read, in
 *                    the parameter types of the API's copies
 *   API_INSTANTIATE(made, graph)   calls the function that instantiates a graph
 *   API_NON_BLOCKING, API_NO_TIMING, API_PORTABLE, API_THREAD_LOCAL, API_MOST_ITEMS   constants:
 *                    flags of a stream, an event, pinned memory and a capture; a function's
 *                    attribute
 *   API_ALLOW_LOCAL(d, function)   lets launches of a function ask for all local memory that a
 *                    group can have, also if that is more than the default; returns a code
 *   API_BEFORE_DROP()   called before a graph is destroyed, which may still be running
 *   API_PEER(d), API_ENABLE_PEER(d, source)   for copies between devices: the parameter that
 *                    names a device; enables direct access and returns a code
 *   API_BEGIN(d), API_OPENED(d)   what a driver does before and after the streams of a device are
 *                    created; each returns a code.  API_CLOSING(d), API_END(d) release both.
 *   API_ENTER, API_LEAVE   the driver's functions enter and leave
 *   API_WAIT(call)   surrounds a call in which the host waits for the device
 *   CALL(name, ...)  calls API.name, and sets wb__gpu_call
 *
 * The device struct also has `id`, the API's number of the device, and `reached`, in which a bit
 * is set for each device whose memory this device has access to, or cannot have. */

static API_STREAM stream_of(wb__gpu_device *d, wb__gpu_queue q)
{
    return ((API_DEVICE *)d)->stream[q];
}

/* Returns a code.  Streams that were not created are NULL. */
static int create_streams(API_DEVICE *d)
{
    int code = 0;
    for (int i = 0; i <= WB__GPU_RECORDING && !code; i++)
        code = CALL(StreamCreate, &d->stream[i], API_NON_BLOCKING);
    return code;
}

static int open_queue(wb__gpu_device *d, wb__gpu_queue q)
{
    API_STREAM *stream = &((API_DEVICE *)d)->stream[q];
    return *stream ? 0 : CALL(StreamCreate, stream, API_NON_BLOCKING);
}

static void destroy_streams(API_DEVICE *d)
{
    for (int i = 0; i < WB__GPU_QUEUES; i++) {
        if (d->stream[i]) API.StreamDestroy(d->stream[i]);
        d->stream[i] = NULL;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Closes a device.  If the device is lost, this frees what the driver still accepts. */
static void close_device(wb__gpu_device *base)
{
    API_DEVICE *d = (API_DEVICE *)base;
    const bool entered = !API_ENTER(base);
    destroy_streams(d);
    API_CLOSING(d);
    if (entered) API_LEAVE();
    API_END(d);
}

static int open_device(wb__gpu_device *base)
{
    API_DEVICE *d = (API_DEVICE *)base;
    int code = API_BEGIN(d);
    if (code) return wb__gpu_fail(base->driver, base, code, "%s", base->name);
    if (!(code = API_ENTER(base))) {
        code = create_streams(d);
        if (!code) code = API_OPENED(d);
        API_LEAVE();
    }
    if (!code) return 0;
    const int status = wb__gpu_fail(base->driver, base, code, "%s", base->name);
    close_device(base);
    return status;
}

/* ---- memory and transfers -------------------------------------------------------------------- */

static int memory_left(wb__gpu_device *d, size_t *bytes)
{
    size_t total = 0;
    (void)d;
    return CALL(MemGetInfo, bytes, &total);
}

static int pin(wb__gpu_device *d, wb__gpu_staging *s, size_t bytes)
{
    void *at = NULL;
    (void)d;
    const int code = CALL(MemHostAlloc, &at, bytes, API_PORTABLE);
    if (!code) s->at = at;
    return code;
}

static void unpin(wb__gpu_device *d, wb__gpu_staging *s)
{
    (void)d;
    API.MemFreeHost(s->at);
}

static int up(wb__gpu_device *d, wb__gpu_queue q, uint64_t to, size_t at, const void *from,
              size_t bytes, bool wait)
{
    const int code = CALL(MemcpyHtoDAsync, API_AT(to + at), API_FROM(from), bytes, stream_of(d, q));
    return code || !wait ? code : API_WAIT(CALL(StreamSynchronize, stream_of(d, q)));
}

static int down(wb__gpu_device *d, wb__gpu_queue q, void *to, uint64_t from, size_t at,
                size_t bytes, bool wait)
{
    const int code = CALL(MemcpyDtoHAsync, to, API_AT(from + at), bytes, stream_of(d, q));
    return code || !wait ? code : API_WAIT(CALL(StreamSynchronize, stream_of(d, q)));
}

/* Enables direct access from `d` to the memory of `source`, if the hardware supports it.  Without
 * direct access the driver copies through the host. */
static int enable_access(API_DEVICE *d, const API_DEVICE *source)
{
    int can = 0;
    const uint64_t bit = (uint64_t)1 << source->gpu.base.ordinal;
    if (d->reached & bit) return 0;
    int code = CALL(DeviceCanAccessPeer, &can, d->id, source->id);
    if (!code && can) code = API_ENABLE_PEER(d, source);
    if (!code) d->reached |= bit;
    return code;
}

static int copy(wb__gpu_device *base, uint64_t to, size_t to_at, wb__gpu_device *from_base,
                uint64_t from, size_t from_at, size_t bytes, void **event)
{
    API_DEVICE *d = (API_DEVICE *)base, *source = (API_DEVICE *)from_base;
    API_STREAM stream = d->stream[WB__GPU_COMPUTE];
    (void)event;
    if (d == source)
        return CALL(MemcpyDtoDAsync, API_AT(to + to_at), API_AT(from + from_at), bytes, stream);
    const int code = enable_access(d, source);
    return code ? code : CALL(MemcpyPeerAsync, API_AT(to + to_at), API_PEER(d),
                              API_AT(from + from_at), API_PEER(source), bytes, stream);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int new_event(void **event)
{
    API_EVENT made = NULL;
    const int code = CALL(EventCreate, &made, API_NO_TIMING);
    if (!code) *event = made;
    return code;
}

static void drop_event(void *event) { API.EventDestroy(event); }

static int record(wb__gpu_device *d, wb__gpu_queue q, void **event)
{
    return CALL(EventRecord, *event, stream_of(d, q));
}

static int wait_event(wb__gpu_device *d, wb__gpu_queue q, void *event)
{
    return CALL(StreamWaitEvent, stream_of(d, q), event, 0);
}

static int sync_event(void *event) { return API_WAIT(CALL(EventSynchronize, event)); }

static int sync_queue(wb__gpu_device *d, wb__gpu_queue q)
{
    return API_WAIT(CALL(StreamSynchronize, stream_of(d, q)));
}

static int elapsed(wb__gpu_device *d, int (*work)(void *ctx), void *ctx, float *ms)
{
    API_STREAM stream = stream_of(d, WB__GPU_COMPUTE);
    API_EVENT begin = NULL, end = NULL;
    int code = CALL(EventCreate, &begin, 0);
    if (!code) code = CALL(EventCreate, &end, 0);
    if (!code) code = CALL(EventRecord, begin, stream);
    if (!code) code = work(ctx);
    if (!code) code = CALL(EventRecord, end, stream);
    if (!code) code = sync_queue(d, WB__GPU_COMPUTE);
    else sync_queue(d, WB__GPU_COMPUTE);        /* part of the work may be enqueued */
    if (!code) code = CALL(EventElapsedTime, ms, begin, end);
    if (begin) API.EventDestroy(begin);
    if (end) API.EventDestroy(end);
    return code;
}

/* ---- programs and launches ------------------------------------------------------------------- */

static int load_image(wb__gpu_device *d, const void *image, size_t bytes, const char *options,
                      void **program)
{
    API_MODULE module = NULL;
    (void)d, (void)bytes, (void)options;
    const int code = CALL(ModuleLoadData, &module, image);
    *program = module;
    return code;
}

/* Unloads a module, after a wait for the stream: unloading aborts the module's kernels, and some
 * may still be in the queue. */
static void unload(wb__gpu_device *d, void *program)
{
    API.StreamSynchronize(stream_of(d, WB__GPU_COMPUTE));
    API.ModuleUnload(program);
}

static int function(wb__gpu_device *d, void *program, const char *entry, size_t local, void **to,
                    size_t *max_items)
{
    API_FUNCTION made = NULL;
    int most = 0, code = CALL(ModuleGetFunction, &made, program, entry);
    (void)d;
    *to = made;
    if (!code) code = CALL(FuncGetAttribute, &most, API_MOST_ITEMS, made);
    if (!code && local) code = API_ALLOW_LOCAL(d, made);
    *max_items = (size_t)most;
    return code;
}

static int launch(wb__gpu_device *d, wb__gpu_queue q, void *kernel, const uint32_t groups[3],
                  const uint32_t items[3], size_t local, void **arguments, void **event)
{
    (void)event;
    return CALL(LaunchKernel, kernel, groups[0], groups[1], groups[2], items[0], items[1], items[2],
                (unsigned)local, stream_of(d, q), arguments, NULL);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int record_begin(wb__gpu_device *d)
{
    return CALL(StreamBeginCapture, stream_of(d, WB__GPU_RECORDING), API_THREAD_LOCAL);
}

static int record_end(wb__gpu_device *d, void **recorded)
{
    API_GRAPH made = NULL;
    const int code = CALL(StreamEndCapture, stream_of(d, WB__GPU_RECORDING), &made);
    *recorded = made;
    return code;
}

static int instantiate(void *recorded, void **graph)
{
    API_EXEC made = NULL;
    const int code = API_INSTANTIATE(&made, recorded);
    *graph = made;
    return code;
}

static int run(wb__gpu_device *d, void *graph)
{
    return CALL(GraphLaunch, graph, stream_of(d, WB__GPU_COMPUTE));
}

static void drop_recorded(void *recorded) { API.GraphDestroy(recorded); }

static void drop_graph(void *graph)
{
    API_BEFORE_DROP();
    API.GraphExecDestroy(graph);
}

/* The entries of the table for the functions above. */
#define WB__GPU_STREAM_FUNCTIONS                                                                   \
    .open = open_device, .close = close_device, .enter = API_ENTER, .leave = API_LEAVE,            \
    .memory_left = memory_left, .pin = pin, .unpin = unpin, .up = up, .down = down, .copy = copy,  \
    .open_queue = open_queue, .new_event = new_event, .drop_event = drop_event,                    \
    .record = record, .elapsed = elapsed,                                                          \
    .wait_event = wait_event, .sync_event = sync_event, .sync = sync_queue,                        \
    .load_image = load_image, .unload = unload, .function = function, .launch = launch,            \
    .record_begin = record_begin, .record_end = record_end, .instantiate = instantiate,            \
    .run = run, .drop_recorded = drop_recorded, .drop_graph = drop_graph
