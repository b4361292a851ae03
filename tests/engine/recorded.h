/* Helpers for tests of wb_compile: another device, a loss. */
#ifndef TEST_RECORDED_H
#define TEST_RECORDED_H

#include "reference.h"

#include "folder.h"
#include "weber/files.h"
#include "weber/train.h"

/* A CPU device that is not the default device. */
static inline const wb_device *elsewhere(void)
{
    const wb_device *d = wb_cpu_device();
    return wb_default_device() == d ? wb_device_at("CPU", 1) : d;
}

static inline wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

#endif
