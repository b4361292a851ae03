/* DLPack on the devices of every backend that works here: memory is exported and imported
 * without copies. */
#include "test.h"

#include "tests/io/dlpack_abi.h"
#include "far_device.h"

enum { MOST = 8 };
static const wb_device *devices[MOST];
static int n_devices;
static const float six[] = {0, 1, 2, 3, 4, 5};

static wb_tensor *on(const wb_device *d)
{
    wb_tensor *x = wb_to(wb_from(six, WB_F32, 2, (int64_t[]){2, 3}), d);
    if (!x) fail_msg("%s", wb_error());
    return x;
}

static void is_sequence(wb_tensor *x, float first, float step)
{
    const float *values = wb_data(x);
    if (!values) fail_msg("%s", wb_error());
    for (int i = 0; i < 6; i++) assert_true(values[i] == first + step * (float)i);
}

static DLDeviceType dlpack_type(const wb_device *d)
{
    const char *backend = wb_device_backend(d);
    return !strcmp(backend, "CUDA")   ? kDLCUDA
         : !strcmp(backend, "AMDGPU") ? kDLROCM
         : !strcmp(backend, "Metal")  ? kDLMetal : kDLOpenCL;
}

static bool takes(const wb_device *d) { return d->backend->adopt != NULL; }

/* An exported parameter is updated: the exported memory keeps the old values. */
TEST(lent_and_updated)
{
    for (int i = 0; i < n_devices; i++) IN_SCOPE {
        const wb_device *d = devices[i];
        wb_tensor *v = wb_variable(on(d));
        DLManagedTensorVersioned *m = wb_to_dlpack(v);
        if (!m) fail_msg("%s", wb_error());
        assert_true(m->dl_tensor.data && m->flags == DLPACK_FLAG_READ_ONLY);
        assert_int_equal(m->dl_tensor.device.device_type, dlpack_type(d));
        assert_int_equal(m->dl_tensor.device.device_id, d->ordinal);
        const void *data = m->dl_tensor.data;
        assert_int_equal(wb_assign(v, wb_mul(v, wb_scalar(3))), 0);
        is_sequence(v, 0, 3);
        DLManagedTensorVersioned *now = wb_to_dlpack(v);
        assert_ptr_not_equal(now->dl_tensor.data, data);
        assert_ptr_equal(m->dl_tensor.data, data);
        now->deleter(now);
        if (takes(d)) {
            wb_tensor *x = wb_from_dlpack(m);               /* x owns m now */
            if (!x) fail_msg("%s", wb_error());
            assert_ptr_equal(wb_device_of(x), d);
            is_sequence(x, 0, 1);
            is_sequence(wb_add(x, v), 0, 4);
        } else {
            REFUSED(wb_from_dlpack(m), WB_ERROR_DEVICE, "CPU");
            m->deleter(m);
        }
    }
}

static int deleted;
static DLManagedTensorVersioned *below;         /* owns the memory that `made` refers to */
static void count_deleted(DLManagedTensorVersioned *m)
{
    deleted++;
    memset(m, 0xee, sizeof *m);
    below->deleter(below);
}

static DLManagedTensorVersioned made;
static DLManagedTensorVersioned *part_of(const wb_device *d, int64_t *shape, int64_t *strides,
                                         uint64_t offset)
{
    wb_scope *s = wb_scope_open();
    below = wb_to_dlpack(wb_reshape(wb_to(wb_arange(1024, WB_F32), d), 32, 32));
    assert_non_null(below);
    wb_scope_close(s);
    made = (DLManagedTensorVersioned){
        .version = {1, 1}, .deleter = count_deleted, .dl_tensor = below->dl_tensor};
    made.dl_tensor.shape = shape;
    made.dl_tensor.strides = strides;
    made.dl_tensor.byte_offset += offset;
    deleted = 0;
    return &made;
}

TEST(taken_in_place_or_copied)
{
    for (int i = 0; i < n_devices; i++) {
        const wb_device *d = devices[i];
        if (!takes(d)) continue;
        int64_t shape[] = {2, 3}, strides[] = {3, 1}, turned[] = {1, 2};
        wb_scope *s = wb_scope_open();
        wb_tensor *x = wb_from_dlpack(part_of(d, shape, strides, 256));
        if (!x) fail_msg("%s", wb_error());
        wb_tensor *y = wb_add(x, x);
        wb_object_free(x);
        assert_int_equal(deleted, 0);                       /* y is not computed yet, and reads x */
        is_sequence(y, 128, 2);
        wb_scope_close(s);
        assert_int_equal(deleted, 1);

        s = wb_scope_open();
        x = wb_from_dlpack(part_of(d, shape, NULL, 4));     /* misaligned for kernels: a copy */
        assert_int_equal(deleted, 1);
        is_sequence(x, 1, 1);
        shape[0] = 0;
        x = wb_from_dlpack(part_of(d, shape, strides, 0));
        assert_int_equal(deleted, 1);
        assert_true(wb_size(x) == 0 && wb_device_of(x) == d);
        shape[0] = 2;
        DLManagedTensorVersioned *m = part_of(d, shape, turned, 0);
        REFUSED(wb_from_dlpack(m), WB_ERROR_ARGUMENT, "from_dlpack", "contiguous");
        m->dl_tensor.strides = strides;
        m->dl_tensor.device.device_id = 63;
        REFUSED(wb_from_dlpack(m), WB_ERROR_DEVICE, "from_dlpack", "63");
        assert_int_equal(deleted, 0);
        m->deleter(m);
        wb_scope_close(s);
        assert_int_equal(deleted, 1);
    }
}

TEST(every_allocation_fails)
{
    for (int i = 0; i < n_devices; i++) {
        if (!takes(devices[i])) continue;
        for (int odd = 0; odd < 2; odd++) {
            bool finished = false;
            for (int64_t n = 1; !finished; n++) {
                int64_t shape[] = {2, 3}, strides[] = {3, 1};
                wb_scope *s = wb_scope_open();
                DLManagedTensorVersioned *m = part_of(devices[i], shape, strides, odd ? 8 : 0);
                wb__alloc_fail_at(n);
                wb_tensor *x = wb_from_dlpack(m);
                finished = wb__alloc_count() < n;
                wb__alloc_fail_at(0);
                assert_true(finished == (x != NULL));
                assert_int_equal(deleted, x && odd);
                if (!x) m->deleter(m);
                wb_scope_close(s);
                assert_int_equal(deleted, 1);
            }
        }
    }
}

/* Exported values stay valid after wb_shutdown, and their holder can be deleted later. */
TEST(lent_past_the_end)
{
    for (int i = 0; i < n_devices; i++) {
        const wb_device *d = devices[i];
        if (!takes(d)) continue;
        wb_scope *s = wb_scope_open();
        DLManagedTensorVersioned *m = wb_to_dlpack(wb_add(on(d), on(d)));
        assert_non_null(m);
        wb_scope_close(s);
        wb_shutdown();
        s = wb_scope_open();
        wb_tensor *x = wb_from_dlpack(m);
        if (!x) fail_msg("%s", wb_error());
        is_sequence(x, 0, 2);
        wb_scope_close(s);
        wb_shutdown();
    }
}

/* A backend without a DLPack device type. */
TEST_IN_SCOPE(nobody_knows_it)
{
    REFUSED(wb_to_dlpack(on(far_device())), WB_ERROR_UNSUPPORTED, "wb_cpu");
}

static int find(void **state)
{
    const char *const *names = wb_supported_gpu_backends();
    for (int k = 0; names[k]; k++) {
        if (wb_using(names[k]) || !wb_functional(names[k])) {
            printf("without %s, since: %s\n", names[k], wb_why_not(names[k]));
            continue;
        }
        const wb_device_list list = wb_devices(names[k]);
        for (int i = 0; i < list.n && n_devices < MOST; i++) devices[n_devices++] = list.device[i];
    }
    fflush(stdout);
    wb_clear_error();
    return 0;
}

int main(void) { return run_cases(find, NULL); }
