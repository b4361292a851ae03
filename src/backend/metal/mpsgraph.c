/* Convolutions by MPSGraph.  The library is opened for the first convolution.  A graph of one
 * convolution is compiled to an executable when the step is prepared; executables are cached.  A
 * launch encodes the executable into the queue's command buffer.  MPSGraph adds no bias and no
 * epilogue; a kernel of ours applies these.
 *
 * Operands begin anywhere in their memory, which MPSGraph accepts since macOS 15.
 *
 *   WEBER_METAL_MPSGRAPH   0: MPSGraph is not used; 1: also for small convolutions */
#include "backend/metal/mps.h"

#include <stdio.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

/* A convolution without its memory: the problem (vendor.h) of its entry.  It is initialised with
 * zeros, since problems are compared byte by byte.  dims: the sizes of x, w and y in their
 * views. */
typedef struct {
    int64_t dims[3][4], stride[2], dilation[2], pad[4], groups;
    int32_t variant, last, hwio;    /* last: x, y are NHWC, else NCHW; hwio: w is HWIO, else OIHW */
    uint32_t type;
} mpsgraph_problem;

typedef struct {
    wb__gpu_entry base;
    mpsgraph_problem problem;
    id executable, array[3];            /* array: the descriptors of x, w and y */
    bool swapped;                       /* the executable takes the second input first */
} mpsgraph_entry;
_Static_assert(offsetof(mpsgraph_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

typedef struct {
    wb__gpu_routine base;
    mpsgraph_entry *entry;
    int buffer[3];                      /* indices, in the plan, of the buffers of x, w and y */
    size_t at[3];                       /* the operands' offsets in their buffers, in bytes */
} mpsgraph_routine;

/* For each variant, the places among x, w and y of the two inputs of MPSGraph and of its result. */
static const int mpsgraph_operand[3][3] = {[WB__CONV_FORWARD] = {0, 1, 2},
                                           [WB__CONV_GRAD_INPUT] = {2, 1, 0},
                                           [WB__CONV_GRAD_WEIGHT] = {2, 0, 1}};
static const int mpsgraph_row_major[4] = {0, 1, 2, 3}, nhwc[4] = {0, 2, 3, 1}, hwio[4] = {2, 3, 1,
                                                                                          0};

/* Returns the dimensions of operand i in their order in memory, the outermost first. */
static const int *mpsgraph_order_of(const mpsgraph_problem *p, int i)
{
    if (i == 1) return p->hwio ? hwio : mpsgraph_row_major;
    return p->last ? nhwc : mpsgraph_row_major;
}

static bool mpsgraph_is_usable(const void *table, const char *missing, char *reason,
                               size_t capacity)
{
    static const char *const classes[] = {
        "MPSGraph", "MPSGraphDevice", "MPSGraphShapedType", "MPSGraphConvolution2DOpDescriptor",
        "MPSGraphTensorData", "MPSNDArray", "MPSNDArrayDescriptor", "MPSCommandBuffer"};
    const NSOperatingSystemVersion needed = {15, 0, 0};
    (void)table, (void)missing;
    if (!wb__mps_classes(classes, WB__COUNT(classes), reason, capacity)) return false;
    if (mtl_isAtLeast(mtl_processInfo(wb__mtl_class("NSProcessInfo")), needed)) return true;
    snprintf(reason, capacity, "MPSGraph takes operands at an offset only since macOS 15");
    return false;
}

/* Registers the selectors in place of creating a handle, of which MPSGraph has none. */
static int mpsgraph_create_handle(void **handle)
{
    *handle = wb__mtl_class("MPSGraph");
    return 0;
}


/* ---- graphs ---------------------------------------------------------------------------------- */

static id mpsgraph_list_of(const id *items, NSUInteger n)
{
    return MAKE(arrayWithObjects, wb__mtl_class("NSArray"), items, n);
}

/* Returns the shape of operand i as an array of numbers for MPSGraph. */
static id mpsgraph_shape_of(const mpsgraph_problem *p, int i)
{
    const int *order = mpsgraph_order_of(p, i);
    id size[4];
    for (int k = 0; k < 4; k++) {
        size[k] = MAKE(number, wb__mtl_class("NSNumber"), (NSUInteger)p->dims[i][order[k]]);
        if (!size[k]) return NULL;
    }
    return mpsgraph_list_of(size, 4);
}

/* Adds the convolution of a problem to a graph.  Returns the result's tensor, or NULL. */
static id add_convolution(const mpsgraph_problem *p, id graph, const id input[2], id result_shape)
{
    const NSUInteger data = p->last ? MPSGraphTensorNamedDataLayoutNHWC
                                    : MPSGraphTensorNamedDataLayoutNCHW;
    const NSUInteger weights = p->hwio ? MPSGraphTensorNamedDataLayoutHWIO
                                       : MPSGraphTensorNamedDataLayoutOIHW;
    /* MPSGraph's x counts columns, its y rows */
    const id how = MAKE(convolution, wb__mtl_class("MPSGraphConvolution2DOpDescriptor"),
                        (NSUInteger)p->stride[1], (NSUInteger)p->stride[0],
                        (NSUInteger)p->dilation[1], (NSUInteger)p->dilation[0],
                        (NSUInteger)p->groups, (NSUInteger)p->pad[2], (NSUInteger)p->pad[3],
                        (NSUInteger)p->pad[0], (NSUInteger)p->pad[1], MPSGraphPaddingStyleExplicit,
                        data, weights);
    if (!how) return NULL;
    if (p->variant == WB__CONV_FORWARD) return MAKE(convolve, graph, input[0], input[1], how, NULL);
    if (p->variant == WB__CONV_GRAD_INPUT)
        return MAKE(dataGradient, graph, input[0], input[1], result_shape, how, NULL);
    return MAKE(weightsGradient, graph, input[0], input[1], result_shape, how, NULL);
}

/* Compiles a graph whose inputs have these shapes.  Returns the executable or NULL. */
static id mpsgraph_compile(const wb__gpu_device *d, const mpsgraph_problem *p, id graph,
                           const id input[2], const id shape[2], id result)
{
    const id device = MAKE(graphDevice, wb__mtl_class("MPSGraphDevice"),
                           wb__mtl_of((wb__gpu_device *)d)->device);
    const id maker = wb__mtl_class("MPSGraphShapedType");
    id type[2] = {NULL, NULL}, executable = NULL;
    bool all = device != NULL;
    for (int i = 0; i < 2 && all; i++) {
        type[i] = MAKE(newShapedType, mtl_alloc(maker), shape[i], p->type);
        all = type[i] != NULL;
    }
    const id feeds = all ? MAKE(dictionary, wb__mtl_class("NSDictionary"), type, input, 2) : NULL;
    const id targets = feeds ? mpsgraph_list_of(&result, 1) : NULL;
    if (targets) executable = MAKE(compile, graph, device, feeds, targets, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (type[i]) mtl_release(type[i]);
    return executable;
}

/* Finds the order in which the executable takes the inputs.  false: it takes other inputs. */
static bool mpsgraph_find_order(mpsgraph_entry *e, const id input[2])
{
    const id feeds = MAKE(feedTensors, e->executable);
    if (!feeds || mtl_count(feeds) != 2) return false;
    e->swapped = mtl_objectAtIndex(feeds, 0) == input[1];
    return mtl_objectAtIndex(feeds, e->swapped) == input[0] &&
           mtl_objectAtIndex(feeds, !e->swapped) == input[1];
}

/* Makes the executable of an entry.  false: failed. */
static bool make_executable(const wb__gpu_device *d, mpsgraph_entry *e, id graph)
{
    const mpsgraph_problem *p = &e->problem;
    const int *which = mpsgraph_operand[p->variant];
    id shape[3], input[2], result;
    for (int i = 0; i < 3; i++)
        if (!(shape[i] = mpsgraph_shape_of(p, which[i]))) return false;
    /* results are not copied to the host; the executable has options of its own */
    mtl_setOptions(graph, MPSGraphOptionsNone);
    for (int i = 0; i < 2; i++)
        if (!(input[i] = MAKE(placeholder, graph, shape[i], p->type, NULL))) return false;
    if (!(result = add_convolution(p, graph, input, shape[2]))) return false;
    e->executable = mpsgraph_compile(d, p, graph, input, shape, result);
    if (!e->executable) return false;
    mtl_retain(e->executable);
    mtl_setOptions(e->executable, MPSGraphOptionsNone);
    return mpsgraph_find_order(e, input);
}

static bool make_descriptors(mpsgraph_entry *e)
{
    const id maker = wb__mtl_class("MPSNDArrayDescriptor");
    for (int i = 0; i < 3; i++) {
        const id shape = mpsgraph_shape_of(&e->problem, i);
        e->array[i] = shape ? MAKE(arrayOf, maker, e->problem.type, shape) : NULL;
        if (!e->array[i]) return false;
        mtl_retain(e->array[i]);
        mtl_setPreferPackedRows(e->array[i], 1);
    }
    return true;
}

static void mpsgraph_drop_entry(wb__gpu_entry *base)
{
    mpsgraph_entry *e = (mpsgraph_entry *)base;
    for (int i = 0; i < 3; i++)
        if (e->array[i]) mtl_release(e->array[i]);
    if (e->executable) mtl_release(e->executable);
    e->executable = e->array[0] = e->array[1] = e->array[2] = NULL;
}

static int mpsgraph_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                               wb__gpu_entry *base)
{
    mpsgraph_entry *e = (mpsgraph_entry *)base;
    const id graph = MAKE(newObject, handle);
    base->found = graph && make_executable(d, e, graph) && make_descriptors(e);
    if (graph) mtl_release(graph);
    if (base->found) return 0;
    wb__gpu_vendor_log_failure(d, l, WB__MTL_NO_OBJECT, wb__gpu_call);
    mpsgraph_drop_entry(base);
    return 0;
}

static wb__gpu_vendor mpsgraph_library = {
    .name = "MPSGraph", .variable = "WEBER_METAL_MPSGRAPH",
    .advice = "MPSGraph is part of macOS, and is in /System/Library/Frameworks",
    .search = &(const wb__gpu_search){
        .tag = "metal", .variable = "WEBER_METAL_PATH",
        .folders = {"/System/Library/Frameworks/MetalPerformanceShadersGraph.framework"}},
    .files = (const wb__gpu_file[]){{"MetalPerformanceShadersGraph", 0}, {NULL, 0}},
    .suits = mpsgraph_is_usable, .creating = "MPSGraph", .create = mpsgraph_create_handle,
    .status_name = wb__mps_status_name, .is_memory = wb__mps_is_memory_error,
    .entry_bytes = sizeof(mpsgraph_entry), .problem_bytes = sizeof(mpsgraph_problem),
    .find = mpsgraph_fill_entry, .drop = mpsgraph_drop_entry,
    .reasons = {"MPSGraph is not used", "MPSGraph: it does not work here",
                "MPSGraph: it does not take this one", "MPSGraph: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__mtl_mpsgraph_works(void) { return wb__gpu_vendor_works(&mpsgraph_library); }

/* ---- preparing ------------------------------------------------------------------------------- */

static bool mpsgraph_dense(const wb__view *v, const int order[4])
{
    int64_t size = 1;
    for (int i = 3; i >= 0; i--) {
        if (v->dims[order[i]] != 1 && v->strides[order[i]] != size) return false;
        size *= v->dims[order[i]];
    }
    return true;
}

/* Sets p->last and p->hwio from the three views.  false: MPSGraph has no name for their layouts. */
static bool mpsgraph_layouts(const wb__view *v, mpsgraph_problem *p)
{
    p->last = !mpsgraph_dense(&v[0], mpsgraph_row_major) ||
              !mpsgraph_dense(&v[2], mpsgraph_row_major);
    p->hwio = !mpsgraph_dense(&v[1], mpsgraph_row_major);
    return (!p->last || (mpsgraph_dense(&v[0], nhwc) && mpsgraph_dense(&v[2], nhwc))) &&
           (!p->hwio || mpsgraph_dense(&v[1], hwio));
}

/* Some versions of macOS compute wrong values if an operand has a size of 2^16 or more, or the
 * filter one of 256 or more, or, in batches and groups of f32, perhaps a smaller one (pytorch/
 * pytorch, issues 96225 and 188335).  An MPSNDArray has less than 2^31 elements. */
enum { MAX_SIZE = UINT16_MAX, MAX_FILTER = 255, MAX_GROUPED_FILTER = 15 };

/* Sets the sizes and the operands of a convolution.  Returns NULL or a short reason. */
static const char *mpsgraph_sizes_of(const wb__step *step, mpsgraph_problem *p, mpsgraph_routine *r)
{
    const wb__conv_attr *a = &step->conv;
    for (int i = 0; i < 3; i++) {
        const wb__view *v = &step->views[i];
        const int64_t filter = a->groups > 1 ? MAX_GROUPED_FILTER : MAX_FILTER;
        int64_t n = 1;
        if (v->dtype != step->views[0].dtype) return "MPSGraph: mixed dtypes";
        if (v->ndim != 4) return "MPSGraph: not of two dimensions";
        for (int k = 0; k < 4; k++) {
            if (v->dims[k] < 1) return "MPSGraph: nothing to do";
            const int64_t most = i == 1 && k > 1 ? filter : MAX_SIZE;
            if (v->dims[k] > WB__MIN(most, INT32_MAX / n)) return "MPSGraph: too large";
            n *= v->dims[k];
            p->dims[i][k] = v->dims[k];
        }
        r->buffer[i] = v->buffer;
        r->at[i] = (size_t)v->offset * wb__dtype_size(v->dtype);
    }
    for (int k = 0; k < 2; k++) {
        const int64_t *pad = &a->pad[2 * k], wide = a->dilation[k] * (p->dims[1][2 + k] - 1) + 1;
        if (pad[0] < 0 || pad[1] < 0) return "MPSGraph: negative padding";
        if ((p->dims[0][2 + k] + pad[0] + pad[1] - wide) / a->stride[k] + 1 != p->dims[2][2 + k])
            return "MPSGraph: the size of the result";
    }
    return mpsgraph_layouts(step->views, p) ? NULL : "MPSGraph: layouts";
}

/* Whether MPSGraph may choose Winograd's algorithm, which is for filters of more than one element
 * without stride, and less accurate than a sum of products. */
static bool maybe_winograd(const wb__step *step)
{
    const wb__conv_attr *a = &step->conv;
    const int64_t *w = step->views[1].dims;
    return step->precision == WB__PRECISION_HIGHEST && w[2] * w[3] > 1 &&
           a->stride[0] * a->stride[1] == 1 && a->dilation[0] * a->dilation[1] == 1;
}

/* Sets *p and r's operands from a step.  Returns NULL, or a short reason not to use MPSGraph. */
static const char *mpsgraph_problem_of(const wb__step *step, mpsgraph_problem *p,
                                       mpsgraph_routine *r)
{
    const wb__conv_attr *a = &step->conv;
    double work = 1;
    memset(p, 0, sizeof *p);
    if (step->n_views > 3 || step->epilogue) return "MPSGraph: bias or epilogue";
    p->type = wb__mps_type(step->views[0].dtype);
    if (!p->type) return "MPSGraph: neither f32 nor f16";
    /* Apple does not promise the same bits at every run */
    if (step->deterministic) return "MPSGraph: not known to be deterministic";
    const char *reason = mpsgraph_sizes_of(step, p, r);
    if (reason) return reason;
    if (wb__mps_maybe_f16(step)) return "MPSGraph: f16, at the highest precision";
    if (maybe_winograd(step)) return "MPSGraph: maybe Winograd, at the highest precision";
    for (int k = 0; k < 4; k++) work *= (double)p->dims[2][k] * (double)(k ? p->dims[1][k] : 1);
    if (work < WB__MPS_MIN_WORK && !wb__mps_always("WEBER_METAL_MPSGRAPH"))
        return "MPSGraph: too small";
    p->variant = step->variant;
    p->groups = a->groups;
    memcpy(p->stride, a->stride, sizeof p->stride);
    memcpy(p->dilation, a->dilation, sizeof p->dilation);
    memcpy(p->pad, a->pad, sizeof p->pad);
    return NULL;
}

static int mpsgraph_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                            const char **reason)
{
    mpsgraph_problem p;
    mpsgraph_routine made = {.base = {.library = &wb__mtl_mpsgraph, .impl = "MPSGraph"}};
    int error = WB_ERROR_UNSUPPORTED;
    *reason = mpsgraph_problem_of(step, &p, &made);
    if (*reason) return error;
    made.entry = (mpsgraph_entry *)wb__gpu_entry_of(d, &mpsgraph_library, &p, reason, &error);
    if (!made.entry) return error;
    return wb__gpu_keep_routine(&made.base, sizeof made, &made.entry->base, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Makes the tensor data of operand i.  Returns NULL on failure. */
static id mpsgraph_tensor_data(const mpsgraph_routine *r, const wb__gpu_addresses *a, int i)
{
    const wb__mps_place at = wb__mps_place_of(a, r->buffer[i], r->at[i]);
    const id array = MAKE(newWithBuffer, mtl_alloc(wb__mtl_class("MPSNDArray")), at.buffer, at.at,
                          r->entry->array[i]);
    if (!array) return NULL;
    const id data = MAKE(newTensorData, mtl_alloc(wb__mtl_class("MPSGraphTensorData")), array);
    mtl_release(array);
    return data;
}

/* Encodes the executable, sets *encoded to whether MPSGraph has done so, and returns a status.
 * MPSGraph may commit the command buffer and continue with another.  The queue records the errors
 * of the first and of the last command buffer; errors of others between them are lost. */
static int mpsgraph_encode(wb__gpu_device *d, const mpsgraph_entry *e, wb__gpu_queue q, id inputs,
                           id results, bool *encoded)
{
    void **event = q == WB__GPU_COMPUTE ? wb__gpu_next_event(d) : NULL;
    wb__mtl_encoding to;
    const int code = wb__mtl_encode_begin(d, q, event, &to);
    if (code) return wb__gpu_fail(d->driver, d, code, "a convolution by MPSGraph");
    const id wrapped = MAKE(wrap, wb__mtl_class("MPSCommandBuffer"), to.buffer);
    *encoded = wrapped && MAKE(encodeGraph, e->executable, wrapped, inputs, results, NULL);
    wb__mtl_encode_end(d, &to, wrapped ? mtl_root(wrapped) : to.buffer, *encoded);
    if (*encoded && q == WB__GPU_COMPUTE) wb__gpu_count_command(d, event);
    return 0;
}

static int mpsgraph_launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                           const wb__gpu_addresses *addresses)
{
    mpsgraph_routine *r = (mpsgraph_routine *)base;
    const int *which = mpsgraph_operand[r->entry->problem.variant];
    const bool swapped = r->entry->swapped;
    id data[3] = {NULL, NULL, NULL};
    bool made = true, encoded = false;
    int status = 0;
    for (int i = 0; i < 3 && made; i++) {
        data[i] = mpsgraph_tensor_data(r, addresses, which[i < 2 && swapped ? 1 - i : i]);
        made = data[i] != NULL;
    }
    const id inputs = made ? mpsgraph_list_of(data, 2) : NULL;
    const id results = inputs ? mpsgraph_list_of(data + 2, 1) : NULL;
    if (results) status = mpsgraph_encode(d, r->entry, q, inputs, results, &encoded);
    if (!status && !encoded)
        status = wb__gpu_refuse_entry(d, &mpsgraph_library, &r->entry->base, WB__MTL_NO_OBJECT,
                                      wb__gpu_call);
    for (int i = 0; i < 3; i++)
        if (data[i]) mtl_release(data[i]);
    return status;
}

const wb__gpu_hook wb__mtl_mpsgraph = {
    .kinds = 1u << WB__STEP_CONV, .bare = true, .vendor = &mpsgraph_library,
    .prepare = mpsgraph_prepare, .launch = mpsgraph_launch,
};
