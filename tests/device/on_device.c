/* Runs a test program on another device than the CPU: WEBER_TEST_DEVICE names a backend, and the
 * tests' tensors and layers are made on its first device.  Linked into every test program; without
 * the variable it does nothing.  Where the backend does not work, the program is skipped. */
#include "weber.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose_device(void)
{
    const char *name = getenv("WEBER_TEST_DEVICE");
    if (!name || !*name) return;
    wb_using(name);
    if (!wb_functional(name)) {
        printf("SKIP: %s is not functional here: %s\n", name, wb_why_not(name));
        fflush(stdout);
        _Exit(77);
    }
    wb_set_default_device(wb_device_at(name, 0));
}
