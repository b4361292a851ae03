/* DLPack on the CPU: exported and imported memory, who frees it and when, and that its values do
 * not change. */
#include "test.h"

#include "base/base.h"
#include "dlpack_abi.h"
#include "python.h"

#include <pthread.h>
#include <unistd.h>

_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLManagedTensorVersioned, dl_tensor) == 32,
               "the layout");

/* ---- export ---------------------------------------------------------------------------------- */

static const float six[] = {0, 1, 2, 3, 4, 5};

static wb_tensor *two_by_three(void) { return wb_from(six, WB_F32, 2, (int64_t[]){2, 3}); }

TEST_IN_SCOPE(exports)
{
    wb_tensor *x = two_by_three();
    DLManagedTensorVersioned *m = wb_to_dlpack(x);
    assert_non_null(m);
    assert_int_equal(m->version.major, 1);
    assert_int_equal(m->flags, DLPACK_FLAG_READ_ONLY);
    const DLTensor *t = &m->dl_tensor;
    assert_true(t->device.device_type == kDLCPU && t->device.device_id == 0);
    assert_true(t->ndim == 2 && t->shape[0] == 2 && t->shape[1] == 3 && t->strides[0] == 3 &&
                t->strides[1] == 1);
    assert_true(t->dtype.code == kDLFloat && t->dtype.bits == 32 && t->dtype.lanes == 1);
    assert_ptr_equal((char *)t->data + t->byte_offset, wb_data(x));
    m->deleter(m);
    static const struct { wb_dtype dtype; int code, bits; } types[] = {
        {WB_F32, kDLFloat, 32}, {WB_F64, kDLFloat, 64}, {WB_F16, kDLFloat, 16},
        {WB_BF16, kDLBfloat, 16}, {WB_I8, kDLInt, 8}, {WB_I32, kDLInt, 32}, {WB_I64, kDLInt, 64},
        {WB_U8, kDLUInt, 8}, {WB_BOOL, kDLBool, 8}};
    assert_int_equal(WB__COUNT(types), WB_DTYPE_COUNT - 1);
    for (size_t i = 0; i < WB__COUNT(types); i++) {
        wb_tensor *y = wb_astype(x, types[i].dtype);            /* not computed yet */
        DLManagedTensor *old = wb_to_dlpack_unversioned(y);
        assert_int_equal(old->dl_tensor.dtype.code, types[i].code);
        assert_int_equal(old->dl_tensor.dtype.bits, types[i].bits);
        wb_tensor *back = wb_from_dlpack_unversioned(old);
        assert_int_equal(wb_dtype_of(back), types[i].dtype);
        assert_ptr_equal(wb_data(back), wb_data(y));
    }
    m = wb_to_dlpack(wb_scalar(2.5));
    assert_true(m->dl_tensor.ndim == 0 && *(float *)m->dl_tensor.data == 2.5f);
    m->deleter(m);
    m = wb_to_dlpack(wb_zeros(2, 0, 3));
    assert_true(m->dl_tensor.ndim == 3 && m->dl_tensor.shape[1] == 0);
    m->deleter(m);
    assert_null(wb_to_dlpack(NULL));
    assert_null(wb_to_dlpack(WB_NONE));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
}

TEST(values_outlive_their_scope)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = two_by_three();
    DLManagedTensorVersioned *m = wb_to_dlpack(wb_add(x, x)), *n = wb_to_dlpack(x);
    wb_scope_close(s);
    wb_shutdown();
    for (int i = 0; i < 6; i++) {
        assert_true(((float *)m->dl_tensor.data)[i] == 2 * six[i]);
        assert_true(((float *)n->dl_tensor.data)[i] == six[i]);
    }
    m->deleter(m);
    n->deleter(n);
    wb_shutdown();
    assert_int_equal(wb_memory_used(), 0);
}

static void *delete_it(void *m)
{
    ((DLManagedTensorVersioned *)m)->deleter(m);
    return NULL;
}

TEST_IN_SCOPE(ended_by_another_thread)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, delete_it, wb_to_dlpack(two_by_three())), 0);
    pthread_join(thread, NULL);
}

static void is_sequence(const float *values, float first, float step, int n)
{
    for (int i = 0; i < n; i++) assert_true(values[i] == first + step * (float)i);
}

static int add_one(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tensor *v = ctx;
    if (wb_assign(v, wb_add(v, in[0]))) return -1;
    out[0] = wb_sum(v);
    return 1;
}

/* Exported values never change, whatever writes the variable later: assignments with and without
 * its old value, a compiled step, a loaded file. */
TEST_IN_SCOPE(exported_values_do_not_change)
{
    wb_tensor *v = wb_variable(two_by_three());
    DLManagedTensorVersioned *m = wb_to_dlpack(v), *again = wb_to_dlpack(v);
    const float *exported = m->dl_tensor.data;
    assert_ptr_equal(exported, wb_data(v));
    assert_ptr_equal(exported, again->dl_tensor.data);
    assert_int_equal(wb_assign(v, wb_add(v, wb_scalar(10))), 0);
    assert_ptr_equal(exported, m->dl_tensor.data);
    is_sequence(wb_data(v), 10, 1, 6);
    is_sequence(exported, 0, 1, 6);
    again->deleter(again);
    const float *updated = wb_data(v);
    assert_int_equal(wb_assign(v, wb_mul(v, wb_scalar(2))), 0);
    is_sequence(wb_data(v), 20, 2, 6);
    assert_ptr_equal(updated, wb_data(v));                  /* in place: it is not exported */
    wb_tensor *before = wb_add(v, wb_scalar(0.5));          /* reads v before the next assignment */
    DLManagedTensorVersioned *second = wb_to_dlpack(v);
    assert_int_equal(wb_assign(v, wb_zeros(2, 3)), 0);
    is_sequence(wb_data(v), 0, 0, 6);
    is_sequence(wb_data(before), 20.5, 2, 6);
    is_sequence(second->dl_tensor.data, 20, 2, 6);
    is_sequence(exported, 0, 1, 6);
    second->deleter(second);

    wb_compiled *step = wb_compile(add_one, v);
    wb_tensor *one = wb_ones(1), *sum;
    for (int i = 1; i <= 4; i++) {
        DLManagedTensorVersioned *now = wb_to_dlpack(v);
        assert_int_equal(wb_call_compiled(step, 1, &one, 1, &sum), 0);
        assert_true(wb_item(sum) == 6 * i);
        is_sequence(wb_data(v), (float)i, 0, 6);
        is_sequence(now->dl_tensor.data, (float)(i - 1), 0, 6);
        now->deleter(now);
    }

    char path[] = "/tmp/weber-dlpack-XXXXXX";
    assert_int_equal(close(mkstemp(path)), 0);
    wb_tree *tree = wb_tuple(v);
    assert_int_equal(wb_save(path, tree), 0);
    assert_int_equal(wb_assign(v, wb_zeros(2, 3)), 0);
    DLManagedTensorVersioned *zeros = wb_to_dlpack(v);
    if (wb_load_state(path, tree)) fail_msg("%s", wb_error());
    is_sequence(wb_data(v), 4, 0, 6);
    is_sequence(zeros->dl_tensor.data, 0, 0, 6);
    zeros->deleter(zeros);
    unlink(path);

    DLManagedTensorVersioned *dropped = wb_to_dlpack(v);
    wb_object_free(v);
    is_sequence(dropped->dl_tensor.data, 4, 0, 6);
    dropped->deleter(dropped);
    m->deleter(m);
}

/* Trains a model for 5 steps and returns the loss; `first` receives the first weights.  With
 * `exported`, each parameter is exported before each step, and the exports must not change. */
static double train(bool exported, float *first)
{
    wb_scope *s = wb_scope_open();
    wb_seed(3);
    wb_layer *model = wb_Chain(wb_Dense(4, 8, wb_relu), wb_Dense(8, 2));
    wb_tensor *x = wb_randn(16, 4), *y = wb_randn(16, 2), *loss = NULL;
    wb_opt_state *state = wb_setup(wb_Adam(.eta = 0.05), model);
    DLManagedTensorVersioned *out[5][4] = {{NULL}};
    static const char *const names[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.1.bias"};
    float kept[5][32];
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 4 && exported; k++) out[i][k] = wb_to_dlpack(wb_get(model, names[k]));
        if (exported) memcpy(kept[i], out[i][0]->dl_tensor.data, sizeof kept[i]);
        loss = wb_mse(wb_call(model, x), y);
        assert_int_equal(wb_update(state, model, wb_gradient(loss, model)), 0);
        assert_false(wb_item(loss) != wb_item(loss));
    }
    memcpy(first, wb_data(wb_get(model, names[0])), 32 * sizeof *first);
    const double value = wb_item(loss);
    for (int i = 0; i < 5 && exported; i++) {
        assert_memory_equal(kept[i], out[i][0]->dl_tensor.data, sizeof kept[i]);
        for (int k = 0; k < 4; k++) out[i][k]->deleter(out[i][k]);
    }
    wb_scope_close(s);
    return value;
}

TEST(training_while_exported)
{
    float with[32], without[32];
    assert_true(train(true, with) == train(false, without));
    assert_memory_equal(with, without, sizeof with);
}

/* ---- import ---------------------------------------------------------------------------------- */

static int deleted;
static void count_deleted(DLManagedTensorVersioned *m)
{
    deleted++;
    free(m->manager_ctx);
    memset(m, 0xee, sizeof *m);                             /* later uses of it fail */
    free(m);
}

typedef struct { float values[24]; int64_t shape[10], strides[10]; } storage;

/* A [2,3] f32 tensor of another library, in heap blocks of its own.  Tests change its fields. */
static DLManagedTensorVersioned *foreign(void)
{
    storage *s = malloc(sizeof *s);
    DLManagedTensorVersioned *m = calloc(1, sizeof *m);
    assert_true(s && m);
    for (int i = 0; i < 24; i++) s->values[i] = (float)i;
    memcpy(s->shape, (int64_t[]){2, 3}, 2 * sizeof(int64_t));
    memcpy(s->strides, (int64_t[]){3, 1}, 2 * sizeof(int64_t));
    m->version = (DLPackVersion){1, 0};
    m->manager_ctx = s;
    m->deleter = count_deleted;
    m->dl_tensor = (DLTensor){.data = s->values, .device = {kDLCPU, 0}, .ndim = 2,
                              .dtype = {kDLFloat, 32, 1}, .shape = s->shape, .strides = s->strides};
    return m;
}

TEST(imports)
{
    deleted = 0;
    wb_scope *s = wb_scope_open();
    DLManagedTensorVersioned *m = foreign();
    const float *values = m->dl_tensor.data;
    wb_tensor *x = wb_from_dlpack(m);
    assert_string_equal(wb_describe(x), "[2,3] f32");
    assert_ptr_equal(wb_data(x), values);
    assert_true(wb_item(wb_sum(x)) == 15);
    wb_tensor *doubled = wb_add(x, x);                  /* not computed yet: it reads x's memory */
    wb_object_free(x);
    assert_int_equal(deleted, 0);
    is_sequence(wb_data(doubled), 0, 2, 6);
    wb_scope_close(s);
    assert_int_equal(deleted, 1);

    s = wb_scope_open();
    m = foreign();
    m->version.minor = 7;
    m->dl_tensor.strides = NULL;
    m->dl_tensor.byte_offset = 8;
    x = wb_from_dlpack(m);
    is_sequence(wb_data(x), 2, 1, 6);
    m = foreign();
    m->dl_tensor.device = (DLDevice){kDLCUDAHost, 1};
    m->deleter = NULL;                                      /* DLPack allows NULL */
    free(m->manager_ctx);
    free(m);
    m = foreign();
    m->dl_tensor.device = (DLDevice){kDLCUDAHost, 1};
    is_sequence(wb_data(wb_from_dlpack(m)), 0, 1, 6);
    m = foreign();
    m->dl_tensor.shape[0] = 1;                              /* the axis's stride is not used */
    m->dl_tensor.strides[0] = 99;
    values = m->dl_tensor.data;
    x = wb_from_dlpack(m);
    assert_ptr_equal(wb_data(x), values);
    wb_tensor *v = wb_variable(x);
    wb_object_free(x);
    assert_int_equal(deleted, 2);                           /* v has its own copy of the values */
    is_sequence(wb_data(v), 0, 1, 3);
    wb_scope_close(s);
    assert_int_equal(deleted, 4);
}

TEST(what_is_copied)
{
    wb_scope *s = wb_scope_open();
    deleted = 0;
    DLManagedTensorVersioned *m = foreign();
    memcpy(m->dl_tensor.strides, (int64_t[]){1, 2}, 2 * sizeof(int64_t));   /* transposed */
    wb_tensor *x = wb_from_dlpack(m);
    assert_int_equal(deleted, 1);
    assert_memory_equal(wb_data(x), ((float[]){0, 2, 4, 1, 3, 5}), 24);
    m = foreign();
    memcpy(m->dl_tensor.strides, (int64_t[]){-3, 0}, 2 * sizeof(int64_t));  /* reversed, repeated */
    m->dl_tensor.byte_offset = 20;
    assert_memory_equal(wb_data(wb_from_dlpack(m)), ((float[]){5, 5, 5, 2, 2, 2}), 24);
    assert_int_equal(deleted, 2);
    m = foreign();
    memmove((char *)m->dl_tensor.data + 1, m->dl_tensor.data, 80);
    m->dl_tensor.byte_offset = 1;                           /* not aligned for f32 */
    is_sequence(wb_data(wb_from_dlpack(m)), 0, 1, 6);
    assert_int_equal(deleted, 3);
    m = foreign();
    m->dl_tensor.shape[0] = 0;
    m->dl_tensor.data = NULL;
    assert_string_equal(wb_describe(wb_from_dlpack(m)), "[0,3] f32");
    assert_int_equal(deleted, 4);
    wb_scope_close(s);
    assert_int_equal(deleted, 4);
}

enum {
    VERSION, HIGHER, DIMS, MANY, NEGATIVE, HUGE_ONE, LANES, COMPLEX, BITS, DEVICE, NO_DATA,
    NO_SHAPE, WRONG
};

static void spoil(DLManagedTensorVersioned *m, int how)
{
    DLTensor *t = &m->dl_tensor;
    switch (how) {
    case VERSION: m->version.major = 0; break;
    case HIGHER: m->version.major = 2; break;
    case DIMS: t->ndim = -1; break;
    case MANY: t->ndim = 9; for (int i = 0; i < 9; i++) t->shape[i] = t->strides[i] = 1; break;
    case NEGATIVE: t->shape[0] = -2; break;
    case HUGE_ONE: t->shape[0] = INT64_MAX / 2; break;
    case LANES: t->dtype.lanes = 2; break;
    case COMPLEX: t->dtype = (DLDataType){kDLComplex, 64, 1}; break;
    case BITS: t->dtype = (DLDataType){kDLUInt, 16, 1}; break;
    case DEVICE: t->device = (DLDevice){(DLDeviceType)12, 3}; break;
    case NO_DATA: t->data = NULL; break;
    case NO_SHAPE: t->shape = NULL; break;
    default: break;
    }
}

TEST_IN_SCOPE(what_is_refused)
{
    enum { VERSION = WB_ERROR_UNSUPPORTED, BAD = WB_ERROR_ARGUMENT };
    static const struct { int code; const char *facts[4]; } all[WRONG] = {
        {VERSION, {"version", "0.0"}}, {VERSION, {"version", "2.0"}}, {BAD, {"shape"}},
        {BAD, {"8"}}, {BAD, {"negative"}}, {BAD, {"2^32"}}, {BAD, {"2", "lanes"}},
        {BAD, {"5", "64"}}, {BAD, {"1", "16"}}, {WB_ERROR_DEVICE, {"12", "3"}}, {BAD, {"data"}},
        {BAD, {"shape"}}};
    for (int how = 0; how < WRONG; how++) {
        DLManagedTensorVersioned *m = foreign();
        spoil(m, how);
        deleted = 0;
        wb_clear_error();
        assert_null(wb_from_dlpack(m));
        assert_int_equal(deleted, 0);                       /* the caller still owns it */
        if (!failed_with(all[how].code, all[how].facts)) fail_msg("%d: %s", how, wb_error());
        m->deleter(m);
        assert_int_equal(deleted, 1);
    }
    assert_null(wb_from_dlpack(NULL));
    assert_null(wb_from_dlpack_unversioned(NULL));
}

TEST(every_failure)
{
    for (int strided = 0; strided < 2; strided++) {
        bool finished = false;
        for (int64_t n = 1; !finished; n++) {
            wb_scope *s = wb_scope_open();
            DLManagedTensorVersioned *m = foreign();
            if (strided) m->dl_tensor.strides[0] = 4;
            deleted = 0;
            wb__alloc_fail_at(n);
            wb_tensor *x = wb_from_dlpack(m);
            DLManagedTensorVersioned *out = x ? wb_to_dlpack(x) : NULL;
            finished = wb__alloc_count() < n;
            wb__alloc_fail_at(0);
            assert_true(finished == (out != NULL));
            assert_int_equal(deleted, x && strided);
            if (out) out->deleter(out);
            if (!x) m->deleter(m);
            wb_scope_close(s);
            assert_int_equal(deleted, 1);
        }
    }
    /* An update of an exported variable allocates new memory, which may fail. */
    bool finished = false;
    for (int64_t n = 1; !finished; n++) IN_SCOPE {
        wb_tensor *v = wb_variable(two_by_three());
        DLManagedTensorVersioned *out = wb_to_dlpack(v);
        wb_tensor *sum = wb_add(v, wb_scalar(1));
        assert_int_equal(wb_assign(v, sum), 0);
        wb__alloc_fail_at(n);
        const int status = wb_eval(v);
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        is_sequence(out->dl_tensor.data, 0, 1, 6);
        if (!status) is_sequence(wb_data(v), 1, 1, 6);
        else is_sequence(wb_data(v), 0, 1, 6);
        out->deleter(out);
    }
}

/* ---- NumPy ----------------------------------------------------------------------------------- */

TEST(with_numpy)
{
#if defined(__SANITIZE_ADDRESS__)
    printf("SKIP: Python cannot load a library built with sanitizers\n");
    skip();
#endif
    if (access(WB_TEST_LIBRARY, R_OK)) {
        printf("SKIP: no %s\n", WB_TEST_LIBRARY);
        skip();
    }
    if (!python_has("numpy")) skip();
    assert_int_equal(python_script("io/dlpack_numpy.py", WB_TEST_LIBRARY), 0);
}
