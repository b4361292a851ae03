/* The last message as it would be on the CPU: without the device behind each tensor, where the
 * tests run on another one (device/on_device.c). */
#ifndef PLAIN_ERROR_H
#define PLAIN_ERROR_H

#include "weber.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static inline const char *plain_error(void)
{
    static char text[2048];
    char device[64];
    const wb_device *d = wb_default_device();
    int n = snprintf(device, sizeof device, " %s:%d", wb_device_backend(d), wb_device_ordinal(d));
    for (int i = 0; i < n; i++) device[i] = (char)tolower((unsigned char)device[i]);
    snprintf(text, sizeof text, "%s", wb_error());
    for (char *at; (at = strstr(text, device)) != NULL;) memmove(at, at + n, strlen(at + n) + 1);
    return text;
}

#endif
