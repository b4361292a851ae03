/* wb_show_devices. */
#include "device/device.h"

#include <stdio.h>

void wb_show_devices(const char *backend)
{
    wb_device_list list = wb_devices(backend);
    if (!backend) return;
    printf("%s: %d device%s%s\n", backend, list.n, list.n == 1 ? "" : "s", list.n ? ":" : "");
    for (int i = 0; i < list.n; i++) printf("%d. %s\n", i, wb_device_name(list.device[i]));
}
