/* A replacement of the driver's library that can only load programs, so that cuDNN can finalize
 * plans of engines that it compiles at run time on a machine without a GPU.  Nothing can run. */
#include <stddef.h>

enum { NO_DEVICE = 100 };

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n)
{
    *n = 0;
    return NO_DEVICE;
}

int cuGetErrorString(int code, const char **text);
int cuGetErrorString(int code, const char **text)
{
    *text = code ? "there is no device: this is a test double" : "no error";
    return 0;
}

/* cuDNN looks these functions up but never calls them here. */
#define ABSENT(X)                                                                                  \
    X(cuCtxGetCurrent) X(cuCtxGetLimit) X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDeviceGet)      \
    X(cuDriverGetVersion) X(cuGetErrorName) X(cuKernelGetAttribute) X(cuKernelSetAttribute)        \
    X(cuLaunchCooperativeKernel) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLibraryLoadFromFile)    \
    X(cuLinkAddData) X(cuLinkComplete) X(cuLinkCreate) X(cuLinkDestroy)                            \
    X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetCtx)
#define DEFINE(name)                                                                               \
    int name(void);                                                                                \
    int name(void) { return NO_DEVICE; }
ABSENT(DEFINE)

static int loaded;

int cuLibraryLoadData(void **library, const void *code, const int *options, void *const *values,
                      unsigned n, const int *library_options, void *const *library_values,
                      unsigned n_library);
int cuLibraryLoadData(void **library, const void *code, const int *options, void *const *values,
                      unsigned n, const int *library_options, void *const *library_values,
                      unsigned n_library)
{
    (void)options, (void)values, (void)n;
    (void)library_options, (void)library_values, (void)n_library;
    *library = &loaded;
    loaded++;
    return code ? 0 : 1;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    *kernel = library;
    return name ? 0 : 1;
}

int cuLibraryUnload(void *library);
int cuLibraryUnload(void *library)
{
    loaded--;
    return library == &loaded ? 0 : 1;
}
