/* A test double of MetalPerformanceShaders.  See mps.h. */
#include "mps.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct {
    NSUInteger rows, columns, matrices, row_bytes, matrix_bytes;
    uint32_t type;
} sizes;

typedef struct {
    struct objc_object object;
    sizes sizes;
} matrix_descriptor;

typedef struct {
    struct objc_object object;
    sizes sizes;
    metal_buffer *buffer;               /* NULL: not initialised */
    char *at;
} matrix;

static objc_class descriptor_class, matrix_class, product_class;

static id descriptor_of(objc_class *c, SEL s, NSUInteger rows, NSUInteger columns,
                        NSUInteger matrices, NSUInteger row_bytes, NSUInteger matrix_bytes,
                        uint32_t type)
{
    LOCKED;
    const char *name = sel_getName(s);
    const size_t element = mps_bytes(type);
    if (!mps_is_type(type)) vgpu_wrong("%s: the type %x is not known here", name, type);
    else if (!rows || !columns || !matrices) vgpu_wrong("%s: nothing", name);
    else if (row_bytes % element || row_bytes < columns * element)
        vgpu_wrong("%s: %lu bytes from row to row, for %lu elements of %zu", name, row_bytes,
                   columns, element);
    else if (matrix_bytes % row_bytes || matrix_bytes < rows * row_bytes)
        vgpu_wrong("%s: %lu bytes from matrix to matrix, for %lu rows of %lu", name, matrix_bytes,
                   rows, row_bytes);
    matrix_descriptor *d = objc_make(&descriptor_class);
    (void)c;
    d->sizes = (sizes){rows, columns, matrices, row_bytes, matrix_bytes, type};
    return objc_autorelease(d);
}

static const objc_method descriptor_makers[] = {
    METHOD("matrixDescriptorWithRows:columns:matrices:rowBytes:matrixBytes:dataType:",
           "@#:QQQQQI", descriptor_of), {0}};
static objc_class descriptor_class = {.name = "MPSMatrixDescriptor",
                                      .bytes = sizeof(matrix_descriptor),
                                      .class_methods = descriptor_makers};

/* True if the bytes are in the buffer, and begin at a whole element. */
static bool is_place(metal_buffer *b, NSUInteger offset, size_t bytes, size_t element,
                     const char *where)
{
    if (!objc_is(b, &metal_buffer_class, where)) return false;
    if (offset % element) vgpu_wrong("%s: %lu is not a multiple of %zu", where, offset, element);
    else if (offset > b->length || bytes > b->length - offset)
        vgpu_wrong("%s: %zu bytes at %lu of a buffer of %zu", where, bytes, offset, b->length);
    else return true;
    return false;
}

static void set_up(id o) { (void)o; }

static id failed_init(void *o)
{
    objc_release(o);
    return NULL;
}

static id matrix_at(matrix *m, SEL s, metal_buffer *b, NSUInteger offset, matrix_descriptor *d)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (vgpu_fails(name) || !objc_is(d, &descriptor_class, name)) return failed_init(m);
    const sizes *z = &d->sizes;
    const size_t element = mps_bytes(z->type);
    const size_t bytes = (z->matrices - 1) * z->matrix_bytes + (z->rows - 1) * z->row_bytes +
                         z->columns * element;
    if (!is_place(b, offset, bytes, element, name)) return failed_init(m);
    m->sizes = *z;
    m->buffer = objc_retain(b);
    m->at = b->at + offset;
    return &m->object;
}

static void end_matrix(id o) { objc_release(((matrix *)o)->buffer); }

static const objc_method matrix_methods[] = {
    METHOD("initWithBuffer:offset:descriptor:", "@@:@Q@", matrix_at), {0}};
static objc_class matrix_class = {.name = "MPSMatrix", .bytes = sizeof(matrix),
                                  .methods = matrix_methods, .set_up = set_up, .end = end_matrix};

/* ---- products -------------------------------------------------------------------------------- */

typedef struct {
    struct objc_object object;
    metal_device *device;               /* NULL: not initialised */
    bool transposed[2];
    NSUInteger m, n, k;
    double alpha, beta;
} product;

typedef struct {
    product how;
    struct { sizes sizes; char *at; } matrix[3];
} product_work;

static id product_on(product *p, SEL s, metal_device *d, signed char left, signed char right,
                     NSUInteger rows, NSUInteger columns, NSUInteger interior, double alpha,
                     double beta)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (vgpu_fails(name) || !objc_is(d, &metal_device_class, name)) return failed_init(p);
    if (!rows || !columns || !interior) vgpu_wrong("%s: nothing", name);
    p->device = d;
    p->transposed[0] = left;
    p->transposed[1] = right;
    p->m = rows, p->n = columns, p->k = interior;
    p->alpha = alpha, p->beta = beta;
    return &p->object;
}

static double element(const product_work *w, int which, size_t batch, size_t i, size_t j)
{
    const sizes *z = &w->matrix[which].sizes;
    const char *row = w->matrix[which].at + batch * z->matrix_bytes + i * z->row_bytes;
    return vgpu_load(row, mps_number(z->type), (int64_t)j);
}

static CUresult run_product(vgpu_work *work)
{
    const product_work *w = (const product_work *)work->payload;
    const product *p = &w->how;
    const sizes *z = &w->matrix[2].sizes;
    for (size_t batch = 0; batch < z->matrices; batch++)
        for (size_t i = 0; i < p->m; i++)
            for (size_t j = 0; j < p->n; j++) {
                char *row = w->matrix[2].at + batch * z->matrix_bytes + i * z->row_bytes;
                double sum = 0;
                for (size_t l = 0; l < p->k; l++)
                    sum += (p->transposed[0] ? element(w, 0, batch, l, i)
                                             : element(w, 0, batch, i, l)) *
                           (p->transposed[1] ? element(w, 1, batch, j, l)
                                             : element(w, 1, batch, l, j));
                sum *= p->alpha;
                if (p->beta) sum += p->beta * element(w, 2, batch, i, j);
                vgpu_store(row, mps_number(z->type), (int64_t)j, sum);
            }
    return CUDA_SUCCESS;
}

/* True if the matrix has at least these sizes, and suits the product. */
static bool suits(const matrix *m, const product *p, NSUInteger rows, NSUInteger columns,
                  const matrix *result, const char *where, const char *which)
{
    if (!objc_is(m, &matrix_class, where)) return false;
    if (!m->buffer) vgpu_wrong("%s: the %s matrix is not initialised", where, which);
    else if (m->buffer->device != p->device)
        vgpu_wrong("%s: the %s matrix is of another device", where, which);
    else if (m->sizes.rows < rows || m->sizes.columns < columns)
        vgpu_wrong("%s: the %s matrix has %lu x %lu elements, not %lu x %lu", where, which,
                   m->sizes.rows, m->sizes.columns, rows, columns);
    else if (m->sizes.type != result->sizes.type)
        vgpu_wrong("%s: the %s matrix has another type than the result", where, which);
    else if (m->sizes.matrices != result->sizes.matrices)
        vgpu_wrong("%s: %lu %s matrices, and %lu results", where, m->sizes.matrices, which,
                   result->sizes.matrices);
    else return true;
    return false;
}

static void encode_product(product *p, SEL s, metal_commands *c, matrix *left, matrix *right,
                           matrix *result)
{
    LOCKED;
    const char *name = sel_getName(s);
    matrix *const all[3] = {left, right, result};
    if (!objc_is(c, &metal_commands_class, name) || !metal_is_open(c, name)) return;
    if (!p->device || p->device != metal_device_of(c)) {
        vgpu_wrong("%s: the kernel is not one of this device", name);
        return;
    }
    if (!objc_is(result, &matrix_class, name) ||
        !suits(left, p, p->transposed[0] ? p->k : p->m, p->transposed[0] ? p->m : p->k, result,
               name, "left") ||
        !suits(right, p, p->transposed[1] ? p->n : p->k, p->transposed[1] ? p->k : p->n, result,
               name, "right") || !suits(result, p, p->m, p->n, result, name, "result"))
        return;
    product_work w = {.how = *p};
    for (int i = 0; i < 3; i++) {
        w.matrix[i].sizes = all[i]->sizes;
        w.matrix[i].at = all[i]->at;
        metal_keep(c, all[i]->buffer);
    }
    metal_encode(c, "MPSMatrixMultiplication", run_product, &w, sizeof w);
}

static const objc_method product_methods[] = {
    METHOD("initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:"
           "alpha:beta:", "@@:@BBQQQdd", product_on),
    METHOD("encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:", "v@:@@@@",
           encode_product), {0}};
static objc_class product_class = {.name = "MPSMatrixMultiplication", .bytes = sizeof(product),
                                   .methods = product_methods, .set_up = set_up};

/* The BOOL of a result is one byte: the others are arbitrary. */
VGPU_API objc_bool MPSSupportsMTLDevice(metal_device *d);
VGPU_API objc_bool MPSSupportsMTLDevice(metal_device *d)
{
    LOCKED;
    return objc_yes(objc_is(d, &metal_device_class, "MPSSupportsMTLDevice") &&
                    vgpu_env_number("VGPU_MPS_SUPPORTS", 1));
}

/* ---- MPSNDArray ------------------------------------------------------------------------------ */

static objc_class array_descriptor_class;

bool mps_read_shape(const void *list, mps_shape *shape, const char *where)
{
    if (!objc_is(list, &ns_array, where)) return false;
    shape->n = ns_count(list);
    if (!shape->n || shape->n > MPS_DIMS) {
        vgpu_wrong("%s: a shape of %zu dimensions, which is not known here", where, shape->n);
        return false;
    }
    for (size_t i = 0; i < shape->n; i++) {
        if (!objc_is(ns_item(list, i), &ns_number, where)) return false;
        shape->size[i] = (int64_t)ns_value(ns_item(list, i));
        if (shape->size[i] < 1 || shape->size[i] >= (int64_t)1 << 31) {
            vgpu_wrong("%s: a size of %lld", where, (long long)shape->size[i]);
            return false;
        }
    }
    if (mps_count(shape) < (int64_t)1 << 31) return true;
    vgpu_wrong("%s: %lld elements, 2^31 or more", where, (long long)mps_count(shape));
    return false;
}

static id array_descriptor_of(objc_class *c, SEL s, uint32_t type, id list)
{
    LOCKED;
    mps_shape shape;
    (void)c;
    if (!mps_read_shape(list, &shape, sel_getName(s))) return NULL;
    if (!mps_is_type(type)) vgpu_wrong("%s: the type %x is not known", sel_getName(s), type);
    mps_array_descriptor *d = objc_make(&array_descriptor_class);
    d->shape = shape;
    d->type = type;
    return objc_autorelease(d);
}

static void prefer_packed(mps_array_descriptor *d, SEL s, signed char yes)
{
    (void)s;
    d->packed = yes;
}

static const objc_method array_descriptor_methods[] = {
    METHOD_SINCE(15, "setPreferPackedRows:", "v@:B", prefer_packed), {0}};
static const objc_method array_descriptor_makers[] = {
    METHOD("descriptorWithDataType:shape:", "@#:I@", array_descriptor_of), {0}};
static objc_class array_descriptor_class = {
    .name = "MPSNDArrayDescriptor", .bytes = sizeof(mps_array_descriptor),
    .methods = array_descriptor_methods, .class_methods = array_descriptor_makers};

/* Without packed rows, rows of an array begin at multiples of 16 bytes, or of more. */
static id array_at(mps_array *a, SEL s, metal_buffer *b, NSUInteger offset,
                   mps_array_descriptor *d)
{
    LOCKED;
    const char *name = sel_getName(s);
    if (vgpu_fails(name) || !objc_is(d, &array_descriptor_class, name)) return failed_init(a);
    const size_t size = mps_bytes(d->type), bytes = (size_t)mps_count(&d->shape) * size;
    if (!d->packed) vgpu_wrong("%s: the rows are not packed, and no layout is defined", name);
    if (!d->packed || !is_place(b, offset, bytes, size, name)) return failed_init(a);
    a->buffer = objc_retain(b);
    a->at = b->at + offset;
    a->shape = d->shape;
    a->type = d->type;
    return &a->object;
}

static void end_array(id o) { objc_release(((mps_array *)o)->buffer); }

static const objc_method array_methods[] = {
    METHOD_SINCE(15, "initWithBuffer:offset:descriptor:", "@@:@Q@", array_at), {0}};
objc_class mps_array_class = {.name = "MPSNDArray", .bytes = sizeof(mps_array),
                              .methods = array_methods, .set_up = set_up, .end = end_array};

/* ---- MPSCommandBuffer ------------------------------------------------------------------------ */

static id wrap(objc_class *c, SEL s, id root)
{
    LOCKED;
    (void)c;
    if (!objc_is(root, &metal_commands_class, sel_getName(s))) return NULL;
    mps_commands *made = objc_make(&mps_commands_class);
    made->root = objc_retain(root);
    return objc_autorelease(made);
}

static id root_of(mps_commands *c, SEL s)
{
    (void)s;
    return c->root;
}

static id send(id o, const char *selector)
{
    void (*const sender)(void) = objc_msgSend;
    id (*function)(id o, SEL s);
    memcpy(&function, &sender, sizeof function);
    return function(o, sel_registerName(selector));
}

void mps_commit_and_continue(mps_commands *c)
{
    id queue = send(c->root, "commandQueue");
    send(c->root, "commit");
    id next = send(queue, "commandBuffer");
    if (!next) next = send(queue, "commandBuffer");     /* VGPU_FAIL selected the call */
    objc_retain(next);
    objc_release(c->root);
    c->root = next;
}

static void commit_and_continue(mps_commands *c, SEL s)
{
    LOCKED;
    (void)s;
    mps_commit_and_continue(c);
}

static void end_commands(id o) { objc_release(((mps_commands *)o)->root); }

static const objc_method commands_methods[] = {
    METHOD("rootCommandBuffer", "@@:", root_of), METHOD("commandBuffer", "@@:", root_of),
    METHOD("commitAndContinue", "v@:", commit_and_continue), {0}};
static const objc_method commands_makers[] = {
    METHOD("commandBufferWithCommandBuffer:", "@#:@", wrap), {0}};
objc_class mps_commands_class = {.name = "MPSCommandBuffer", .bytes = sizeof(mps_commands),
                                 .methods = commands_methods, .class_methods = commands_makers,
                                 .end = end_commands};

__attribute__((constructor)) static void begin(void)
{
    objc_class *const all[] = {&descriptor_class, &matrix_class, &product_class,
                               &array_descriptor_class, &mps_array_class, &mps_commands_class};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) objc_add_class(all[i]);
}
