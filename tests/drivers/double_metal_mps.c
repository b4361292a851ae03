/* The test doubles of MPS and MPSGraph, by themselves: each wrong use must be found.  What they
 * compute is compared in metal_libraries.c. */
#include "test.h"

#include "backend/metal/mps.h"
#include "tests/doubles/metal/vgpu_metal.h"

void objc_msgSend(void);
SEL sel_registerName(const char *name);
id objc_getClass(const char *name);
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);
id MTLCopyAllDevices(void);

static id device, other, queue, memory, far_memory;

static int64_t wrong(void)
{
    vgpu_books found;
    vgpu_read_books(&found);
    return found.wrong;
}

/* The call is found to be a wrong use, or not. */
#define IS(times, ...)                                                                             \
    do {                                                                                           \
        const int64_t before = wrong();                                                            \
        __VA_ARGS__;                                                                               \
        if ((wrong() > before) != (times)) fail_msg("%s: not %d", #__VA_ARGS__, times);            \
    } while (0)
#define WRONG(...) IS(1, __VA_ARGS__)
#define RIGHT(...) IS(0, __VA_ARGS__)
#define CLASS(name) objc_getClass(name)

static int begin(void **state)
{
#define REGISTER(result, n, name, text, ...) wb__selector.name = sel_registerName(text);
    WB__OBJC_METHODS(REGISTER)
#undef REGISTER
    static const char *const classes[] = {"MPSMatrix", "MPSGraph"};
    char reason[100];
    setenv("VGPU_MACOS", "15", 1);
    unsetenv("VGPU_STRICT");
    wb__objc = (wb__objc_functions){objc_msgSend, sel_registerName, objc_getClass,
                                    objc_autoreleasePoolPush, objc_autoreleasePoolPop};
    objc_autoreleasePoolPush();
    const id all = MTLCopyAllDevices();
    device = mtl_objectAtIndex(all, 0), other = mtl_objectAtIndex(all, 1);
    queue = mtl_newCommandQueue(device);
    memory = mtl_newBuffer(device, 4096, 0), far_memory = mtl_newBuffer(other, 4096, 0);
    return !wb__mps_classes(classes, 2, reason, sizeof reason) || !far_memory;
}

/* ---- products -------------------------------------------------------------------------------- */

static id sizes(NSUInteger rows, NSUInteger columns, NSUInteger matrices, NSUInteger row,
                NSUInteger matrix, uint32_t type)
{
    return mtl_matrices(CLASS("MPSMatrixDescriptor"), rows, columns, matrices, row, matrix, type);
}

static id matrix(id buffer, NSUInteger at, id descriptor)
{
    return mtl_newWithBuffer(mtl_alloc(CLASS("MPSMatrix")), buffer, at, descriptor);
}

TEST(matrices)
{
    RIGHT(sizes(4, 6, 2, 24, 96, MPSDataTypeFloat32));
    WRONG(sizes(4, 6, 2, 20, 80, MPSDataTypeFloat32));          /* a row has 24 bytes */
    WRONG(sizes(4, 6, 2, 26, 104, MPSDataTypeFloat32));         /* no whole elements */
    WRONG(sizes(4, 6, 2, 24, 72, MPSDataTypeFloat32));          /* 4 rows have 96 bytes */
    WRONG(sizes(4, 6, 2, 24, 100, MPSDataTypeFloat32));         /* no whole rows */
    WRONG(sizes(0, 6, 1, 24, 24, MPSDataTypeFloat32));
    WRONG(sizes(4, 6, 1, 24, 96, 7));
    const id d = sizes(4, 6, 1, 24, 96, MPSDataTypeFloat32);
    RIGHT(matrix(memory, 4000, d));
    WRONG(matrix(memory, 4004, d));
    WRONG(matrix(memory, 2, d));
    WRONG(matrix(NULL, 0, d));
    WRONG(matrix(memory, 0, device));
}

static id product(id on, BOOL left, NSUInteger m, NSUInteger n, NSUInteger k)
{
    return mtl_newProduct(mtl_alloc(CLASS("MPSMatrixMultiplication")), on, left, 0, m, n, k, 1, 0);
}

static id square(id buffer, NSUInteger n, uint32_t type, NSUInteger matrices)
{
    const NSUInteger row = n * (type & 0xffff) / 8;
    return matrix(buffer, 0, sizes(n, n, matrices, row, n * row, type));
}

TEST(products)
{
    const id c = mtl_commandBuffer(queue), p = product(device, 0, 4, 4, 4);
    const id x = square(memory, 4, MPSDataTypeFloat32, 1);
    RIGHT(mtl_encodeProduct(p, c, x, x, x));
    WRONG(product(device, 0, 4, 0, 4));
    WRONG(mtl_encodeProduct(product(other, 0, 4, 4, 4), c, x, x, x));
    WRONG(mtl_encodeProduct(mtl_alloc(CLASS("MPSMatrixMultiplication")), c, x, x, x));
    WRONG(mtl_encodeProduct(product(device, 0, 4, 4, 5), c, x, x, x));
    WRONG(mtl_encodeProduct(p, c, square(far_memory, 4, MPSDataTypeFloat32, 1), x, x));
    WRONG(mtl_encodeProduct(p, c, square(memory, 4, MPSDataTypeFloat16, 1), x, x));
    WRONG(mtl_encodeProduct(p, c, x, square(memory, 4, MPSDataTypeFloat32, 2), x));
    WRONG(mtl_encodeProduct(p, c, mtl_alloc(CLASS("MPSMatrix")), x, x));
    const id e = mtl_computeCommandEncoder(c);
    WRONG(mtl_encodeProduct(p, c, x, x, x));                    /* an encoder is open */
    mtl_endEncoding(e);
    mtl_commit(c);
    WRONG(mtl_encodeProduct(p, c, x, x, x));
    mtl_release(x);
    WRONG(mtl_encodeProduct(p, mtl_commandBuffer(queue), x, x, x));
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static id list(const NSUInteger size[4])
{
    id items[4];
    for (int i = 0; i < 4; i++) items[i] = mtl_number(CLASS("NSNumber"), size[i]);
    return mtl_arrayWithObjects(CLASS("NSArray"), items, 4);
}
#define SHAPE(...) list((const NSUInteger[4]){__VA_ARGS__})

static id array(id buffer, NSUInteger at, id shape, BOOL packed)
{
    const id d = mtl_arrayOf(CLASS("MPSNDArrayDescriptor"), MPSDataTypeFloat32, shape);
    if (packed) mtl_setPreferPackedRows(d, 1);
    return mtl_newWithBuffer(mtl_alloc(CLASS("MPSNDArray")), buffer, at, d);
}

static id data(id buffer, id shape)
{
    return mtl_newTensorData(mtl_alloc(CLASS("MPSGraphTensorData")), array(buffer, 0, shape, 1));
}

static id how(NSUInteger stride, NSUInteger groups, NSUInteger style, NSUInteger weights)
{
    return mtl_convolution(CLASS("MPSGraphConvolution2DOpDescriptor"), stride, 1, 1, 1, groups, 0,
                           0, 0, 0, style, MPSGraphTensorNamedDataLayoutNCHW, weights);
}

TEST(arrays)
{
    const id shape = SHAPE(1, 2, 3, 4);
    RIGHT(array(memory, 4000, shape, 1));
    WRONG(array(memory, 4004, shape, 1));
    WRONG(array(memory, 2, shape, 1));
    WRONG(array(memory, 0, shape, 0));
    WRONG(array(memory, 0, SHAPE(1, 0, 3, 4), 1));
    WRONG(array(memory, 0, SHAPE(1 << 16, 1 << 15, 1, 1), 1));
    WRONG(mtl_newTensorData(mtl_alloc(CLASS("MPSGraphTensorData")),
                            mtl_alloc(CLASS("MPSNDArray"))));
}

static id compiled(id graph, const id input[2], id shape, id target)
{
    id type[2];
    for (int i = 0; i < 2; i++)
        type[i] = mtl_newShapedType(mtl_alloc(CLASS("MPSGraphShapedType")),
                                    i ? SHAPE(5, 3, 1, 1) : shape, MPSDataTypeFloat32);
    return mtl_compile(graph, mtl_graphDevice(CLASS("MPSGraphDevice"), device),
                       mtl_dictionary(CLASS("NSDictionary"), type, input, 2),
                       mtl_arrayWithObjects(CLASS("NSArray"), &target, 1), NULL, NULL);
}

TEST(graphs)
{
    const NSUInteger oihw = MPSGraphTensorNamedDataLayoutOIHW;
    const id graph = mtl_newObject(CLASS("MPSGraph")), strange = mtl_newObject(CLASS("MPSGraph"));
    const id shape = SHAPE(2, 3, 4, 4), good = how(1, 1, 0, oihw);
    const id input[2] = {mtl_placeholder(graph, shape, MPSDataTypeFloat32, NULL),
                         mtl_placeholder(graph, SHAPE(5, 3, 1, 1), MPSDataTypeFloat32, NULL)};
    const id same[2] = {input[0], input[0]};
    WRONG(mtl_placeholder(graph, shape, 7, NULL));
    WRONG(mtl_setOptions(graph, 9));
    WRONG(how(0, 1, 0, oihw));
    WRONG(how(1, 1, 9, oihw));
    WRONG(how(1, 1, 0, MPSGraphTensorNamedDataLayoutNCHW));
    WRONG(mtl_convolve(graph, input[0], input[1], how(1, 3, 0, oihw), NULL));
    WRONG(mtl_convolve(graph, input[1], input[0], good, NULL));
    WRONG(mtl_convolve(strange, input[0], input[1], good, NULL));
    WRONG(mtl_dataGradient(graph, input[0], input[1], SHAPE(2, 3, 4, 4), good, NULL));
    WRONG(mtl_weightsGradient(graph, input[0], input[1], SHAPE(9, 9, 1, 1), good, NULL));
    const id y = mtl_convolve(graph, input[0], input[1], good, NULL);
    WRONG(compiled(graph, input, SHAPE(2, 3, 4, 5), y));
    WRONG(compiled(graph, same, shape, y));
    WRONG(compiled(strange, input, shape, y));
    RIGHT(compiled(graph, input, shape, y));
    mtl_release(graph);
    WRONG(mtl_convolve(graph, input[0], input[1], good, NULL));
}

TEST(executables)
{
    const id graph = mtl_newObject(CLASS("MPSGraph")), shape = SHAPE(2, 3, 4, 4);
    const id input[2] = {mtl_placeholder(graph, shape, MPSDataTypeFloat32, NULL),
                         mtl_placeholder(graph, SHAPE(5, 3, 1, 1), MPSDataTypeFloat32, NULL)};
    const id y = mtl_convolve(graph, input[0], input[1],
                              how(1, 1, 0, MPSGraphTensorNamedDataLayoutOIHW), NULL);
    const id e = compiled(graph, input, shape, y), root = mtl_commandBuffer(queue);
    const bool first = mtl_objectAtIndex(mtl_feedTensors(e), 0) == input[0];
    const id x = data(memory, shape), w = data(memory, SHAPE(5, 3, 1, 1));
    const id inputs[2] = {first ? x : w, first ? w : x}, turned[2] = {inputs[1], inputs[0]};
    const id results[1] = {data(memory, SHAPE(2, 5, 4, 4))};
    const id far_results[1] = {data(far_memory, SHAPE(2, 5, 4, 4))};
    const id all = mtl_arrayWithObjects(CLASS("NSArray"), inputs, 2);
    const id result = mtl_arrayWithObjects(CLASS("NSArray"), results, 1);
    const id c = mtl_wrap(CLASS("MPSCommandBuffer"), root);
    WRONG(mtl_encodeGraph(e, root, all, result, NULL));         /* no MPSCommandBuffer */
    WRONG(mtl_encodeGraph(e, c, mtl_arrayWithObjects(CLASS("NSArray"), turned, 2), result, NULL));
    WRONG(mtl_encodeGraph(e, c, mtl_arrayWithObjects(CLASS("NSArray"), inputs, 1), result, NULL));
    WRONG(mtl_encodeGraph(e, c, all, mtl_arrayWithObjects(CLASS("NSArray"), far_results, 1), NULL));
    const id encoder = mtl_computeCommandEncoder(root);
    WRONG(mtl_encodeGraph(e, c, all, result, NULL));
    mtl_endEncoding(encoder);
    WRONG(mtl_encodeGraph(e, c, all, result, NULL));    /* with the options at first */
    mtl_setOptions(e, MPSGraphOptionsNone);
    RIGHT(mtl_encodeGraph(e, c, all, result, NULL));
    mtl_commit(mtl_root(c));
    WRONG(mtl_encodeGraph(e, c, all, result, NULL));
    mtl_waitUntilCompleted(root);
    mtl_release(graph);
}

int main(void) { return run_cases(begin, NULL); }
