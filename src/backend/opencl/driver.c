/* The driver and its error codes.  The driver is opened at run time; it is never closed, because
 * its threads may still run. */
#include "backend/opencl/opencl.h"

#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wb__cl_functions wb__cl;

/* ---- opening --------------------------------------------------------------------------------- */

#define LISTED(type, name, parameters) {"cl" #name, offsetof(wb__cl_functions, name)},
static const wb__gpu_function opencl_driver_functions[] = {WB__CL_FUNCTIONS(LISTED)};
#undef LISTED

#if defined(__APPLE__)
static const char opencl_driver_usual[] = "/System/Library/Frameworks/OpenCL.framework/OpenCL";
#else
static const char opencl_driver_usual[] = "libOpenCL.so.1";
#endif

bool wb__cl_usual_driver(void)
{
    const char *name = wb__environment_path("WEBER_OPENCL_LIBRARY");
    return !name || !*name || strcmp(name, opencl_driver_usual) == 0;
}

int wb__cl_load(void)
{
    const char *file;
    void *library = wb__gpu_open_library(
        "opencl", "WEBER_OPENCL_LIBRARY", opencl_driver_usual, "clGetPlatformIDs",
        "install an OpenCL driver:"
        " that of your GPU's vendor, or for any processor what Debian calls pocl-opencl-icd",
        &file);
    if (!library) return WB_ERROR_DEVICE;
    const char *missing = wb__gpu_find_functions(library, opencl_driver_functions,
                                                 WB__COUNT(opencl_driver_functions), &cl);
    if (!missing) return 0;
    wb__os_library_close(library);
    return wb__fail(WB_ERROR_DEVICE, "opencl: %s has no %s: a driver of OpenCL 1.2 or newer is"
                    " needed", file, missing);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#define ERROR_NAME(name, number) {number, "CL_" #name},
static const struct {
    cl_int code;
    const char *name;
} opencl_driver_errors[] = {WB__CL_ERRORS(ERROR_NAME)};
#undef ERROR_NAME

const char *wb__cl_error_name(int code)
{
    for (size_t i = 0; i < WB__COUNT(opencl_driver_errors); i++)
        if (opencl_driver_errors[i].code == code) return opencl_driver_errors[i].name;
    return "an error of the driver's own";
}

int wb__cl_error_kind(int code)
{
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: case CL_OUT_OF_HOST_MEMORY: return WB__GPU_ERROR_MEMORY;
    case CL_OUT_OF_RESOURCES: case CL_INVALID_BUFFER_SIZE: return WB__GPU_ERROR_FULL;
    default: return 0;
    }
}

void wb__cl_error_text(wb__gpu_device *d, int code, char *text, size_t capacity)
{
    wb__cl_platform *p = d ? wb__cl_of(d)->platform : NULL;
    (void)code;
    if (!p) return;
    wb__mutex_lock(&p->lock);
    snprintf(text, capacity, "%s", p->message);
    p->message[0] = 0;
    wb__mutex_unlock(&p->lock);
}
