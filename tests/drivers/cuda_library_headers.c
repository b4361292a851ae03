/* The CUDA backend has its own declarations of cuBLASLt's and cuDNN's interfaces
 * (src/backend/cuda/lt_api.h and dnn_api.h): each number, struct and function is compared with the
 * libraries' headers. */
#include "test.h"

#ifdef WB_TEST_CUDA_HEADERS

#if __has_include(<cudnn_graph.h>)
#define HAS_CUDNN 1
#include <cudnn_graph.h>
#define WB__DNN_NO_TYPES
#include "backend/cuda/dnn_api.h"
#endif

#include <cublasLt.h>
#define WB__LT_NO_TYPES
#include "backend/cuda/lt_api.h"

#define EQUAL(a, b) _Static_assert((long long)(a) == (long long)(b), #a " differs")
#define CONSTANT(name, value) EQUAL(name, value);
WB__LT_CONSTANTS(CONSTANT)

#define FIELD(field)                                                                               \
    EQUAL(offsetof(wb__lt_result, field), offsetof(cublasLtMatmulHeuristicResult_t, field));       \
    EQUAL(sizeof ((wb__lt_result *)0)->field, sizeof ((cublasLtMatmulHeuristicResult_t *)0)->field)
EQUAL(sizeof(wb__lt_algo), sizeof(cublasLtMatmulAlgo_t));
EQUAL(sizeof(wb__lt_result), sizeof(cublasLtMatmulHeuristicResult_t));
FIELD(algo);
FIELD(workspaceSize);
FIELD(state);
FIELD(wavesCount);

#define SAME(field, function) _Generic(&(function), __typeof__(field): true, default: false)
#define LT(type, name, parameters)                                                                 \
    {"cublasLt" #name, SAME(((wb__lt_functions *)0)->name, cublasLt##name)},
#define DNN(type, name, parameters)                                                                \
    {"cudnn" #name, SAME(((wb__dnn_functions *)0)->name, cudnn##name)},
static const struct { const char *name; bool same; } functions[] = {
    WB__LT_FUNCTIONS(LT)
#ifdef HAS_CUDNN
    WB__DNN_FUNCTIONS(DNN)
#endif
};

#ifdef HAS_CUDNN
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
WB__DNN_CONSTANTS(CONSTANT)
#endif

TEST(test_functions)
{
    int different = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (functions[i].same) continue;
        print_error("%s is declared otherwise in cublasLt.h or cudnn_graph.h\n", functions[i].name);
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
