/* wb_gpu, which moves objects as wb_to does.  If wb__gpu_for_move returns no device, wb_gpu returns
 * the object itself. */
#include "device/device.h"

#include "engine/object.h"

void *wb_object_gpu(void *x, const wb_to_options *o)
{
    WB__EDGE;
    if (!x || wb_is_none(x)) return x;
    const wb_device *d = wb__gpu_for_move();
    return d ? wb_object_to(x, d, o) : x;
}

wb_batch wb_batch_gpu(wb_batch b, const wb_to_options *o)
{
    WB__EDGE;
    const wb_device *d = b.x || b.y ? wb__gpu_for_move() : NULL;
    return d ? wb_batch_to(b, d, o) : b;
}
