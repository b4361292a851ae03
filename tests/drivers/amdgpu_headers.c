/* The AMDGPU backend has its own declarations of HIP's and hiprtc's interfaces, in
 * src/backend/amdgpu/hip.h: each constant, function and field is compared with ROCm's headers.  The
 * installed headers describe the layout of hipDeviceProp_t of their version alone: the other layout
 * is in doubles/hip/hip.c, from the declaration in ROCm 6's hip_runtime_api.h. */
#include "test.h"

#ifdef WB_TEST_HIP_HEADERS

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

/* The names that both headers define as different, though compatible, types. */
#define hiprtcResult wb_hiprtc_result
#define WB__HIP_NO_CONSTANTS
#include "backend/amdgpu/hip.h"
#undef hiprtcResult

#define EQUAL(a, b) _Static_assert((long long)(a) == (long long)(b), #a " differs")
#define CONSTANT(name, value) EQUAL(name, value);
WB__HIP_CONSTANTS(CONSTANT)

/* Enumerations are passed and returned as HIPenum. */
#define IS_ENUM(type) _Static_assert(_Generic((type *)0, HIPenum *: 1, default: 0), #type)
IS_ENUM(hipError_t);
IS_ENUM(hiprtcResult);
IS_ENUM(hipFunction_attribute);
IS_ENUM(hipStreamCaptureMode);

#if HIP_VERSION_MAJOR >= 6
#define PROPERTY(field, five, six) EQUAL(offsetof(hipDeviceProp_t, field), six);
#else
#define PROPERTY(field, five, six) EQUAL(offsetof(hipDeviceProp_t, field), five);
#endif
WB__HIP_PROPERTIES(PROPERTY)
EQUAL(sizeof(hipDeviceProp_t) <= WB__HIP_PROPERTIES_BYTES, 1);

#define SAME(field, function) _Generic(&(function), __typeof__(field): true, default: false)
#define HIP(field, name, parameters)                                                               \
    {"hip" #name, SAME(((wb__hip_functions *)0)->field, hip##name)},
#define HIPRTC(name, parameters)                                                                   \
    {"hiprtc" #name, SAME(((wb__hiprtc_functions *)0)->name, hiprtc##name)},
static const struct { const char *name; bool same; } functions[] = {
    WB__HIP_FUNCTIONS(HIP)
    WB__HIP_GRAPH_FUNCTIONS(HIP)
    WB__HIPRTC_FUNCTIONS(HIPRTC)
    {"hipGetErrorName", SAME(((wb__hip_functions *)0)->GetErrorName, hipGetErrorName)},
    {"hipGetErrorString", SAME(((wb__hip_functions *)0)->GetErrorString, hipGetErrorString)},
    {"hiprtcGetErrorString",
     SAME(((wb__hiprtc_functions *)0)->GetErrorString, hiprtcGetErrorString)},
};

/* In the headers of ROCm 7 some pointers are to const; calls are the same. */
static bool is_const_since_7(const char *name)
{
    static const char *const names[] = {"hipMemcpyHtoDAsync", "hiprtcCreateProgram",
                                        "hiprtcCompileProgram"};
    for (size_t i = 0; i < sizeof names / sizeof *names && HIP_VERSION_MAJOR >= 7; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

TEST(test_functions)
{
    int different = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (functions[i].same || is_const_since_7(functions[i].name)) continue;
        print_error("%s is declared otherwise in ROCm's headers\n", functions[i].name);
        different++;
    }
    assert_int_equal(different, 0);
}

int main(void) { return run_all_cases(); }

#else

int main(void)
{
    printf("SKIP: ROCm's headers are not here (Debian: libamdhip64-dev)\n");
    return 77;
}

#endif
