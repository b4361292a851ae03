/* Datasets whose values are the indices of their observations, and functions that check the epochs
 * of loaders on any device. */
#ifndef DEVICE_NUMBERS_H
#define DEVICE_NUMBERS_H

#include "far_device.h"
#include "reference.h"

#include "data/dataset.h"
#include "data/loader.h"
#include "weber/train.h"

#include <stdatomic.h>

static const wb_device *places[MOST_PLACES];
static int n_places;

/* Observation i is {i, i + 0.5}, its label i. */
static inline wb_dataset *numbers(int64_t n)
{
    float x[512];
    int32_t y[256];
    for (int i = 0; i < n; i++) {
        x[2 * i] = (float)i;
        x[2 * i + 1] = (float)i + 0.5f;
        y[i] = i;
    }
    return wb_dataset_of(wb_from(x, WB_F32, 2, (int64_t[]){n, 2}), wb_from(y, WB_I32, 1, &n));
}

static atomic_int asked;
static inline int get(int64_t i, void *x, void *y, void *ctx)
{
    atomic_fetch_add(&asked, 1);
    ((float *)x)[0] = (float)i;
    ((float *)x)[1] = (float)i + 0.5f;
    *(int32_t *)y = (int32_t)i;
    return 0;
}

static inline wb_dataset *computed(int64_t n)
{
    return wb_dataset_from(&(wb_dataset_source){.size = sizeof(wb_dataset_source), .n = n,
                                                .x_ndim = 1, .x_dims = {2}, .y_dtype = WB_I32,
                                                .get = get});
}

/* The labels of a batch of numbers, checked against its observations. */
static inline void read_batch(wb_batch b, int *out)
{
    float x[512];
    assert_int_equal(wb_dim(b.x, 0), b.n);
    assert_int_equal(wb_dim(b.y, 0), b.n);
    if (wb_copy_out(b.x, x, (size_t)b.n * 8) || wb_copy_out(b.y, out, (size_t)b.n * 4))
        fail_msg("%s", wb_error());
    for (int i = 0; i < b.n; i++)
        assert_true(x[2 * i] == (float)out[i] && x[2 * i + 1] == (float)out[i] + 0.5f);
}

/* The labels of an epoch, whose batches are on d. */
static inline int epoch_on(const wb_device *d, wb_loader *l, int *out)
{
    int n = 0;
    WB_EACH_BATCH(b, l) {
        assert_ptr_equal(wb_device_of(b.x), d);
        assert_ptr_equal(wb_device_of(b.y), d);
        read_batch(b, out + n);
        n += (int)b.n;
    }
    if (wb_loader_status(l)) fail_msg("%s", wb_error());
    return n;
}

/* Doubles the batch.  The factor is a tensor without operands: it must be created on the batch's
 * device. */
static inline int twice(wb_batch *b, void *ctx)
{
    *(const wb_device **)ctx = wb_device_of(b->x);
    b->x = wb_mul(b->x, wb_from((float[]){2, 2}, WB_F32, 1, (int64_t[]){2}));
    return 0;
}

#endif
