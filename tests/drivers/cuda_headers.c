/* The CUDA backend has its own declarations of the driver's and NVRTC's interfaces, in
 * src/backend/cuda/cu.h: each type, number and function is compared with the toolkit's headers. */
#include "test.h"

#ifdef WB_TEST_CUDA_HEADERS

#include <cuda.h>
#include <nvrtc.h>

/* The names that both headers define as different, though compatible, types. */
#define CUresult wb_result
#define nvrtcResult wb_nvrtc_result
#define WB__CU_NO_CONSTANTS
#include "backend/cuda/cu.h"
#undef CUresult
#undef nvrtcResult

#define EQUAL(a, b) _Static_assert((long long)(a) == (long long)(b), #a " differs")
#define CONSTANT(name, value) EQUAL(name, value);
WB__CU_CONSTANTS(CONSTANT)

/* Enumerations are passed and returned as CUenum. */
#define IS_CUENUM(type) _Static_assert(_Generic((type *)0, CUenum *: 1, default: 0), #type)
IS_CUENUM(CUresult);
IS_CUENUM(nvrtcResult);
IS_CUENUM(CUmemLocationType);
IS_CUENUM(CUmemAccess_flags);
IS_CUENUM(CUmemAllocationType);
IS_CUENUM(CUmemAllocationHandleType);

#define FIELD(ours, our_field, theirs, their_field)                                                \
    EQUAL(offsetof(ours, our_field), offsetof(theirs, their_field));                               \
    EQUAL(sizeof ((ours *)0)->our_field, sizeof ((theirs *)0)->their_field)
EQUAL(sizeof(wb__cu_location), sizeof(CUmemLocation));
FIELD(wb__cu_location, type, CUmemLocation, type);
FIELD(wb__cu_location, id, CUmemLocation, id);
EQUAL(sizeof(wb__cu_access), sizeof(CUmemAccessDesc));
FIELD(wb__cu_access, location, CUmemAccessDesc, location);
FIELD(wb__cu_access, flags, CUmemAccessDesc, flags);
EQUAL(sizeof(wb__cu_pool_props), sizeof(CUmemPoolProps));
FIELD(wb__cu_pool_props, type, CUmemPoolProps, allocType);
FIELD(wb__cu_pool_props, handles, CUmemPoolProps, handleTypes);
FIELD(wb__cu_pool_props, location, CUmemPoolProps, location);
FIELD(wb__cu_pool_props, security, CUmemPoolProps, win32SecurityAttributes);
FIELD(wb__cu_pool_props, most, CUmemPoolProps, maxSize);

#define SAME(field, function) _Generic(&(function), __typeof__(field): true, default: false)
#define DRIVER(name, version, parameters)                                                          \
    {"cu" #name, SAME(((wb__cu_functions *)0)->name, cu##name##version)},
#define NVRTC(name, parameters)                                                                    \
    {"nvrtc" #name, SAME(((wb__nvrtc_functions *)0)->name, nvrtc##name)},
static const struct { const char *name; bool same; } functions[] = {
    WB__CU_FUNCTIONS(DRIVER)
    WB__NVRTC_FUNCTIONS(NVRTC)
    {"nvrtcGetErrorString", SAME(((wb__nvrtc_functions *)0)->GetErrorString, nvrtcGetErrorString)},
};

/* These functions have parameters that are structs of cu.h, which are compared above; here the rest
 * of their types is. */
#define IS(function, type) _Static_assert(_Generic(&(function), type: 1, default: 0), #function)
IS(cuMemPoolCreate, CUresult (*)(CUmemoryPool *, const CUmemPoolProps *));
IS(cuMemPoolSetAccess, CUresult (*)(CUmemoryPool, const CUmemAccessDesc *, size_t));

TEST(test_functions)
{
    int different = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *name = functions[i].name;
        const bool structs =
            !strcmp(name, "cuMemPoolCreate") || !strcmp(name, "cuMemPoolSetAccess");
        if (functions[i].same == !structs) continue;
        print_error("%s is declared otherwise in cuda.h or nvrtc.h\n", name);
        different++;
    }
    assert_int_equal(different, 0);
}

int main(void) { return run_all_cases(); }

#else

int main(void)
{
    printf("SKIP: the CUDA toolkit's headers are not here\n");
    return 77;
}

#endif
