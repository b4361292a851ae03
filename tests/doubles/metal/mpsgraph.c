/* A test double of MetalPerformanceShadersGraph: graphs of one convolution or gradient of it.  See
 * mps.h.  An executable's feedTensors are in the order of the feeds, or in the opposite one: in
 * turn, since a dictionary has no order. */
#include "mps.h"

#include <stdio.h>
#include <stdlib.h>

enum { NCHW, NHWC, OIHW, HWIO };
typedef enum { PLACEHOLDER, FORWARD, DATA_GRADIENT, WEIGHTS_GRADIENT } tensor_kind;

typedef struct {
    NSUInteger stride[2], dilation[2], groups, pad[4], style, data, weights;    /* y before x */
} how;

typedef struct {
    struct objc_object object;
    how how;
} convolution;

typedef struct {
    struct objc_object object;
    metal_device *device;
} graph_device;

typedef struct {
    struct objc_object object;
    mps_shape shape;
    uint32_t type;                      /* 0: not initialised */
} shaped_type;

typedef struct {
    struct objc_object object;
    id tensors[16];
    size_t n;
} graph;

typedef struct tensor {
    struct objc_object object;
    const graph *graph;
    tensor_kind kind;
    mps_shape shape;
    uint32_t type;
    how how;
    struct tensor *input[2];            /* of the graph too */
} tensor;

typedef struct {
    struct objc_object object;
    metal_device *device;
    id feeds, targets;                  /* NSArrays */
    uint64_t options;                   /* MPSGraphOptions */
} executable;

typedef struct {
    struct objc_object object;
    mps_array *array;                   /* NULL: not initialised */
} tensor_data;

static objc_class convolution_class, device_class, type_class, graph_class, tensor_class,
    executable_class, data_class;

static void set_up(id o) { (void)o; }
static id failed_init(void *o)
{
    objc_release(o);
    return NULL;
}

/* ---- devices, types, descriptors, data ------------------------------------------------------- */

static id device_of(objc_class *c, SEL s, metal_device *d)
{
    LOCKED;
    (void)c;
    if (!objc_is(d, &metal_device_class, sel_getName(s))) return NULL;
    graph_device *made = objc_make(&device_class);
    made->device = d;
    return objc_autorelease(made);
}

static const objc_method device_makers[] = {METHOD("deviceWithMTLDevice:", "@#:@", device_of), {0}};
static objc_class device_class = {.name = "MPSGraphDevice", .bytes = sizeof(graph_device),
                                  .class_methods = device_makers};

static id type_with(shaped_type *t, SEL s, id list, uint32_t type)
{
    LOCKED;
    if (!mps_read_shape(list, &t->shape, sel_getName(s))) return failed_init(t);
    t->type = type;
    return &t->object;
}

static const objc_method type_methods[] = {METHOD("initWithShape:dataType:", "@@:@I", type_with),
                                           {0}};
static objc_class type_class = {.name = "MPSGraphShapedType", .bytes = sizeof(shaped_type),
                                .methods = type_methods, .set_up = set_up};

static id convolution_of(objc_class *c, SEL s, NSUInteger stride_x, NSUInteger stride_y,
                         NSUInteger dilation_x, NSUInteger dilation_y, NSUInteger groups,
                         NSUInteger left, NSUInteger right, NSUInteger top, NSUInteger bottom,
                         NSUInteger style, NSUInteger data, NSUInteger weights)
{
    LOCKED;
    const char *name = sel_getName(s);
    const how h = {{stride_y, stride_x}, {dilation_y, dilation_x}, groups,
                   {top, bottom, left, right}, style, data, weights};
    (void)c;
    if (vgpu_fails(name)) return NULL;
    if (!stride_x || !stride_y || !dilation_x || !dilation_y || !groups)
        vgpu_wrong("%s: a stride, a dilation or the number of groups is 0", name);
    else if (style) vgpu_wrong("%s: a padding style that is not known here", name);
    else if (data > NHWC || weights < OIHW || weights > HWIO)
        vgpu_wrong("%s: the layouts %lu and %lu", name, data, weights);
    else {
        convolution *made = objc_make(&convolution_class);
        made->how = h;
        return objc_autorelease(made);
    }
    return NULL;
}

static const objc_method convolution_makers[] = {
    METHOD("descriptorWithStrideInX:strideInY:dilationRateInX:dilationRateInY:groups:paddingLeft:"
           "paddingRight:paddingTop:paddingBottom:paddingStyle:dataLayout:weightsLayout:",
           "@#:QQQQQQQQQQQQ", convolution_of), {0}};
static objc_class convolution_class = {.name = "MPSGraphConvolution2DOpDescriptor",
                                       .bytes = sizeof(convolution),
                                       .class_methods = convolution_makers};

static id data_with(tensor_data *d, SEL s, mps_array *a)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (vgpu_fails(name) || !objc_is(a, &mps_array_class, name)) return failed_init(d);
    if (!a->buffer) {
        vgpu_wrong("%s: the array is not initialised", name);
        return failed_init(d);
    }
    d->array = objc_retain(a);
    return &d->object;
}

static void end_data(id o) { objc_release(((tensor_data *)o)->array); }

static const objc_method data_methods[] = {METHOD("initWithMPSNDArray:", "@@:@", data_with), {0}};
static objc_class data_class = {.name = "MPSGraphTensorData", .bytes = sizeof(tensor_data),
                                .methods = data_methods, .set_up = set_up, .end = end_data};

/* ---- graphs ---------------------------------------------------------------------------------- */

static id add(graph *g, tensor_kind kind, const mps_shape *shape, uint32_t type)
{
    if (g->n == sizeof g->tensors / sizeof *g->tensors) abort();
    tensor *t = objc_make(&tensor_class);
    t->graph = g;
    t->kind = kind;
    t->shape = *shape;
    t->type = type;
    return g->tensors[g->n++] = &t->object;
}

static void end_graph(id o)
{
    graph *g = (graph *)o;
    while (g->n) objc_release(g->tensors[--g->n]);
}

static void set_options(graph *g, SEL s, uint64_t options)
{
    (void)g;
    if (options > 2) vgpu_wrong("%s: %llu", sel_getName(s), (unsigned long long)options);
}

static id placeholder(graph *g, SEL s, id list, uint32_t type, id name)
{
    LOCKED;
    mps_shape shape;
    (void)name;
    if (!mps_read_shape(list, &shape, sel_getName(s))) return NULL;
    if (mps_is_type(type)) return add(g, PLACEHOLDER, &shape, type);
    vgpu_wrong("%s: the type %x is not known", sel_getName(s), type);
    return NULL;
}

/* The sizes of a tensor as N, C, H, W or O, I, H, W, and the strides of each. */
typedef struct { int64_t size[4], stride[4]; } logical;

static logical logical_of(const mps_shape *s, NSUInteger layout)
{
    static const int places[4][4] = {
        [NCHW] = {0, 1, 2, 3}, [NHWC] = {0, 2, 3, 1}, [OIHW] = {0, 1, 2, 3}, [HWIO] = {2, 3, 1, 0}};
    logical l;
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        const int at = places[layout][i];
        l.size[at] = s->size[i];
        l.stride[at] = stride;
        stride *= s->size[i];
    }
    return l;
}

/* True if a convolution of x with w gives y; fills y if it has no dimensions. */
static bool fits(const how *h, const mps_shape *x, const mps_shape *w, mps_shape *y,
                 const char *where)
{
    int64_t size[4];
    if (x->n != 4 || w->n != 4) {
        vgpu_wrong("%s: not 4 dimensions", where);
        return false;
    }
    const logical a = logical_of(x, h->data), b = logical_of(w, h->weights);
    const int64_t groups = (int64_t)h->groups;
    if (a.size[1] != b.size[1] * groups || b.size[0] % groups) {
        vgpu_wrong("%s: %lld channels and %lld filters of %lld, in %lld groups", where,
                   (long long)a.size[1], (long long)b.size[0], (long long)b.size[1],
                   (long long)groups);
        return false;
    }
    size[0] = a.size[0];
    size[1] = b.size[0];
    for (int i = 0; i < 2; i++) {
        const int64_t wide = (int64_t)h->dilation[i] * (b.size[2 + i] - 1) + 1;
        const int64_t room = a.size[2 + i] + (int64_t)(h->pad[2 * i] + h->pad[2 * i + 1]);
        if (room < wide) {
            vgpu_wrong("%s: the filter is larger than the source", where);
            return false;
        }
        size[2 + i] = (room - wide) / (int64_t)h->stride[i] + 1;
    }
    const mps_shape made = {4, {size[0], h->data == NHWC ? size[2] : size[1],
                                h->data == NHWC ? size[3] : size[2],
                                h->data == NHWC ? size[1] : size[3]}};
    if (!y->n) *y = made;
    if (mps_same(y, &made)) return true;
    vgpu_wrong("%s: the shapes of source, weights and result do not fit", where);
    return false;
}

/* Adds a convolution or a gradient: a and b are its tensors, and `shape` the result's if it is a
 * gradient. */
static id add_convolution(graph *g, tensor_kind kind, tensor *a, tensor *b, id list, convolution *c,
                          const char *where)
{
    mps_shape made = {.n = 0};
    if (!objc_is(a, &tensor_class, where) || !objc_is(b, &tensor_class, where) ||
        !objc_is(c, &convolution_class, where))
        return NULL;
    if (a->graph != g || b->graph != g || a->type != b->type) {
        vgpu_wrong("%s: a tensor of another graph, or of another type", where);
        return NULL;
    }
    if (kind != FORWARD && !mps_read_shape(list, &made, where)) return NULL;
    if (!(kind == FORWARD ? fits(&c->how, &a->shape, &b->shape, &made, where)
          : kind == DATA_GRADIENT ? fits(&c->how, &made, &b->shape, &a->shape, where)
                                  : fits(&c->how, &b->shape, &made, &a->shape, where)))
        return NULL;
    tensor *t = (tensor *)add(g, kind, &made, a->type);
    t->how = c->how;
    t->input[0] = a;
    t->input[1] = b;
    return &t->object;
}

static id convolve(graph *g, SEL s, tensor *x, tensor *w, convolution *c, id name)
{
    LOCKED;
    (void)name;
    return add_convolution(g, FORWARD, x, w, NULL, c, sel_getName(s));
}

static id data_gradient(graph *g, SEL s, tensor *dy, tensor *w, id shape, convolution *c, id name)
{
    LOCKED;
    (void)name;
    return add_convolution(g, DATA_GRADIENT, dy, w, shape, c, sel_getName(s));
}

static id weights_gradient(graph *g, SEL s, tensor *dy, tensor *x, id shape, convolution *c,
                           id name)
{
    LOCKED;
    (void)name;
    return add_convolution(g, WEIGHTS_GRADIENT, dy, x, shape, c, sel_getName(s));
}

/* True if the feeds are the graph's inputs of the target, with their types. */
static bool are_feeds(const graph *g, id feeds, const tensor *target, const char *where)
{
    id keys = ns_keys(feeds), values = ns_values(feeds);
    bool found[2] = {false, false};
    for (size_t i = 0; i < ns_count(keys); i++) {
        const tensor *t = (const tensor *)ns_item(keys, i);
        const shaped_type *type = (const shaped_type *)ns_item(values, i);
        if (!objc_is(t, &tensor_class, where) || !objc_is(type, &type_class, where)) return false;
        if (t->graph != g || t->kind != PLACEHOLDER || t->type != type->type ||
            !mps_same(&t->shape, &type->shape)) {
            vgpu_wrong("%s: a feed is no placeholder of the graph, or has another type", where);
            return false;
        }
        for (int j = 0; j < 2; j++) found[j] |= t == target->input[j];
    }
    if (found[0] && found[1] && ns_count(keys) == 2) return true;
    vgpu_wrong("%s: the feeds are not what the target needs", where);
    return false;
}

static id compile(graph *g, SEL s, graph_device *d, id feeds, id targets, id operations, id options)
{
    static int turn;
    LOCKED;
    const char *name = sel_getName(s);
    if (vgpu_fails(name)) return NULL;
    if (!objc_is(d, &device_class, name) || !objc_is(feeds, &ns_dictionary, name) ||
        !objc_is(targets, &ns_array, name))
        return NULL;
    const tensor *target = ns_count(targets) == 1 ? (const tensor *)ns_item(targets, 0) : NULL;
    if (operations || options || !target) vgpu_wrong("%s: not known here", name);
    if (!objc_is(target, &tensor_class, name) || !are_feeds(g, feeds, target, name)) return NULL;
    id keys = ns_keys(feeds);
    const id order[2] = {ns_item(keys, (size_t)turn), ns_item(keys, !turn)};
    turn = !turn;
    executable *e = objc_make(&executable_class);
    e->device = d->device;
    e->feeds = objc_retain(ns_list(order, 2));
    e->targets = objc_retain(targets);
    e->options = 1;                     /* MPSGraphOptionsDefault: results are synchronised */
    return objc_autorelease(e);
}

static const objc_method graph_methods[] = {
    METHOD("setOptions:", "v@:Q", set_options),
    METHOD("placeholderWithShape:dataType:name:", "@@:@I@", placeholder),
    METHOD("convolution2DWithSourceTensor:weightsTensor:descriptor:name:", "@@:@@@@", convolve),
    METHOD("convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:"
           "forwardConvolutionDescriptor:name:", "@@:@@@@@", data_gradient),
    METHOD("convolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:"
           "forwardConvolutionDescriptor:name:", "@@:@@@@@", weights_gradient),
    METHOD("compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:",
           "@@:@@@@@", compile), {0}};
static objc_class graph_class = {.name = "MPSGraph", .bytes = sizeof(graph),
                                 .methods = graph_methods, .set_up = set_up, .end = end_graph};
static objc_class tensor_class = {.name = "MPSGraphTensor", .bytes = sizeof(tensor)};

/* ---- executables ----------------------------------------------------------------------------- */

typedef struct {
    tensor_kind kind;
    how how;
    int type;
    logical x, w, y;
    char *at[3];                        /* of x, w and y */
} work;

/* Adds x times w to y, or the products of the gradients, for one filter element of one result. */
static void step(const work *k, double *sums, const int64_t p[4], int64_t c, int64_t r, int64_t s)
{
    const int64_t h = p[2] * (int64_t)k->how.stride[0] + r * (int64_t)k->how.dilation[0] -
                      (int64_t)k->how.pad[0];
    const int64_t v = p[3] * (int64_t)k->how.stride[1] + s * (int64_t)k->how.dilation[1] -
                      (int64_t)k->how.pad[2];
    const int64_t filters = k->w.size[0] / (int64_t)k->how.groups;
    const int64_t channel = p[1] / filters * k->w.size[1] + c;
    if (h < 0 || h >= k->x.size[2] || v < 0 || v >= k->x.size[3]) return;
    const int64_t x = p[0] * k->x.stride[0] + channel * k->x.stride[1] + h * k->x.stride[2] +
                      v * k->x.stride[3];
    const int64_t w = p[1] * k->w.stride[0] + c * k->w.stride[1] + r * k->w.stride[2] +
                      s * k->w.stride[3];
    const int64_t y = p[0] * k->y.stride[0] + p[1] * k->y.stride[1] + p[2] * k->y.stride[2] +
                      p[3] * k->y.stride[3];
    if (k->kind == FORWARD)
        sums[y] += vgpu_load(k->at[0], k->type, x) * vgpu_load(k->at[1], k->type, w);
    else if (k->kind == DATA_GRADIENT)
        sums[x] += vgpu_load(k->at[2], k->type, y) * vgpu_load(k->at[1], k->type, w);
    else sums[w] += vgpu_load(k->at[2], k->type, y) * vgpu_load(k->at[0], k->type, x);
}

static CUresult run(vgpu_work *payload)
{
    const work *k = (const work *)payload->payload;
    const int which = k->kind == FORWARD ? 2 : k->kind == DATA_GRADIENT ? 0 : 1;
    const logical *result = which == 2 ? &k->y : which ? &k->w : &k->x;
    const int64_t n = result->size[0] * result->size[1] * result->size[2] * result->size[3];
    const int64_t *y = k->y.size, *w = k->w.size;
    double *sums = calloc((size_t)n, sizeof *sums);
    if (!sums) abort();
    for (int64_t i = 0; i < y[0] * y[1] * y[2] * y[3]; i++) {
        const int64_t p[4] = {i / (y[3] * y[2] * y[1]), i / (y[3] * y[2]) % y[1],
                              i / y[3] % y[2], i % y[3]};
        for (int64_t j = 0; j < w[1] * w[2] * w[3]; j++)
            step(k, sums, p, j / (w[3] * w[2]), j / w[3] % w[2], j % w[3]);
    }
    for (int64_t i = 0; i < n; i++) vgpu_store(k->at[which], k->type, i, sums[i]);
    free(sums);
    return CUDA_SUCCESS;
}

static id feed_tensors(executable *e, SEL s)
{
    (void)s;
    return e->feeds;
}

static id target_tensors(executable *e, SEL s)
{
    (void)s;
    return e->targets;
}

/* True if these are the data of these tensors, on the executable's device. */
static bool are_data(const executable *e, id list, id tensors, const char *where)
{
    if (!objc_is(list, &ns_array, where)) return false;
    if (ns_count(list) != ns_count(tensors)) {
        vgpu_wrong("%s: %zu data for %zu tensors", where, ns_count(list), ns_count(tensors));
        return false;
    }
    for (size_t i = 0; i < ns_count(list); i++) {
        const tensor *t = (const tensor *)ns_item(tensors, i);
        const tensor_data *d = (const tensor_data *)ns_item(list, i);
        if (!objc_is(d, &data_class, where)) return false;
        const mps_array *a = d->array;
        if (a && mps_same(&a->shape, &t->shape) && a->type == t->type &&
            a->buffer->device == e->device)
            continue;
        vgpu_wrong("%s: data %zu has another shape, type or device than the tensor", where, i);
        return false;
    }
    return true;
}

static char *data_for(const tensor *t, id list, id tensors, id commands)
{
    size_t i = 0;
    while (ns_item(tensors, i) != &t->object) i++;
    mps_array *a = ((tensor_data *)ns_item(list, i))->array;
    metal_keep((metal_commands *)commands, a->buffer);
    return a->at;
}

static id encode(executable *e, SEL s, mps_commands *c, id inputs, id results, id descriptor)
{
    LOCKED;
    const char *name = sel_getName(s);
    const long long commits = vgpu_env_number("VGPU_MPS_COMMITS", 0);
    if (!objc_is(c, &mps_commands_class, name)) return NULL;
    if (!metal_is_open((metal_commands *)c->root, name) || !are_data(e, inputs, e->feeds, name) ||
        !are_data(e, results, e->targets, name))
        return NULL;
    if (descriptor || metal_device_of((metal_commands *)c->root) != e->device) {
        vgpu_wrong("%s: another device, or a descriptor, which is not known here", name);
        return NULL;
    }
    if (e->options)
        vgpu_wrong("%s: with these options the results are also copied to the host", name);
    if (commits & 1) mps_commit_and_continue(c);
    const tensor *t = (const tensor *)ns_item(e->targets, 0);
    const int place[4][3] = {                       /* of each input and the result: x, w or y */
        [FORWARD] = {0, 1, 2}, [DATA_GRADIENT] = {2, 1, 0}, [WEIGHTS_GRADIENT] = {2, 0, 1}};
    work w = {.kind = t->kind, .how = t->how, .type = mps_number(t->type)};
    const mps_shape *shape[3];
    for (int i = 0; i < 3; i++) {
        const tensor *of = i < 2 ? t->input[i] : t;
        const int at = place[t->kind][i];
        shape[at] = &of->shape;
        w.at[at] = data_for(of, i < 2 ? inputs : results, i < 2 ? e->feeds : e->targets, c->root);
    }
    w.x = logical_of(shape[0], t->how.data);
    w.w = logical_of(shape[1], t->how.weights);
    w.y = logical_of(shape[2], t->how.data);
    metal_encode((metal_commands *)c->root, "MPSGraph", run, &w, sizeof w);
    if (commits & 2) mps_commit_and_continue(c);
    return results;
}

static void end_executable(id o)
{
    objc_release(((executable *)o)->feeds);
    objc_release(((executable *)o)->targets);
}

static void set_executable_options(executable *e, SEL s, uint64_t options)
{
    e->options = options;
    set_options(NULL, s, options);
}

static const objc_method executable_methods[] = {
    METHOD("setOptions:", "v@:Q", set_executable_options),
    METHOD("feedTensors", "@@:", feed_tensors), METHOD("targetTensors", "@@:", target_tensors),
    METHOD("encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:", "@@:@@@@",
           encode), {0}};
static objc_class executable_class = {.name = "MPSGraphExecutable", .bytes = sizeof(executable),
                                      .methods = executable_methods, .end = end_executable};

__attribute__((constructor)) static void begin(void)
{
    objc_class *const all[] = {&convolution_class, &device_class, &type_class, &graph_class,
                               &tensor_class, &executable_class, &data_class};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) objc_add_class(all[i]);
}
