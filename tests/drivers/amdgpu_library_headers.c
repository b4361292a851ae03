/* The AMDGPU backend has its own declarations of MIOpen's interface
 * (src/backend/amdgpu/miopen.h).  They are compared with the list below, which was read from
 * include/miopen/miopen.h in the repository ROCm/MIOpen at commit 003eaf537b9b (ROCm 6), and again
 * from projects/miopen of ROCm/rocm-libraries at commit 01d724c531f0 (after ROCm 7.0), where it is
 * the same. */
#include "test.h"

#include "backend/amdgpu/miopen.h"
#include "backend/backend.h"

/* ---- numbers --------------------------------------------------------------------------------- */

static const struct { const char *name; int value; } numbers[] = {
    /* miopenStatus_t */
    {"miopenStatusAllocFailed", 4},
    /* miopenDataType_t */
    {"miopenHalf", 0}, {"miopenFloat", 1}, {"miopenBFloat16", 5},
    /* miopenTensorLayout_t */
    {"miopenTensorNCHW", 0}, {"miopenTensorNHWC", 1},
    /* miopenConvolutionMode_t */
    {"miopenConvolution", 0},
    /* miopenConvolutionAttrib_t */
    {"MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC", 1},
    /* miopenConvAlgorithm_t */
    {"miopenConvolutionAlgoGEMM", 0}, {"miopenConvolutionAlgoDirect", 1},
    {"miopenConvolutionAlgoFFT", 2}, {"miopenConvolutionAlgoWinograd", 3},
    {"miopenConvolutionAlgoImplicitGEMM", 5}};

TEST(test_numbers)
{
    static const struct { const char *name; int value; } ours[] = {
#define OURS(name, value) {#name, value},
        WB__MIOPEN_CONSTANTS(OURS)
    };
    for (size_t i = 0; i < WB__COUNT(ours); i++) {
        size_t k = 0;
        while (k < WB__COUNT(numbers) && strcmp(numbers[k].name, ours[i].name)) k++;
        if (k == WB__COUNT(numbers)) fail_msg("%s is not in the list", ours[i].name);
        if (numbers[k].value != ours[i].value)
            fail_msg("%s is %d, not %d", ours[i].name, numbers[k].value, ours[i].value);
    }
    assert_int_equal(WB__COUNT(ours), WB__COUNT(numbers));
}

/* ---- miopenConvSolution_t -------------------------------------------------------------------- */

typedef struct {
    float time;
    size_t workspace_size;
    uint64_t solution_id;
    enum { gemm = 0, implicit_gemm = 5 } algorithm;
} solution;

#define FIELD(field)                                                                               \
    _Static_assert(offsetof(solution, field) == offsetof(wb__miopen_solution, field) &&            \
                   sizeof ((solution *)0)->field == sizeof ((wb__miopen_solution *)0)->field,      \
                   #field " differs")
FIELD(time);
FIELD(workspace_size);
FIELD(solution_id);
FIELD(algorithm);
_Static_assert(sizeof(solution) == sizeof(wb__miopen_solution), "the size differs");

/* ---- functions ------------------------------------------------------------------------------- */

typedef unsigned status, data_type, layout, mode, attribute;    /* enumerations */
typedef miopenHandle_t h;
typedef miopenTensorDescriptor_t t;
typedef miopenConvolutionDescriptor_t c;
typedef hipStream_t queue;              /* miopenAcceleratorQueue_t */

const char *miopenGetErrorString(status);
status miopenCreate(h *);
status miopenDestroy(h);
status miopenSetStream(h, queue);
status miopenCreateTensorDescriptor(t *);
status miopenDestroyTensorDescriptor(t);
status miopenSetNdTensorDescriptorWithLayout(t, data_type, layout, const int *, int);
status miopenCreateConvolutionDescriptor(c *);
status miopenDestroyConvolutionDescriptor(c);
status miopenInitConvolutionNdDescriptor(c, int, const int *, const int *, const int *, mode);
status miopenSetConvolutionGroupCount(c, int);
status miopenSetConvolutionAttribute(c, const attribute, int);

/* w, x, convolution, y (Forward); dy, w, convolution, dx (BackwardData); dy, x, convolution, dw
 * (BackwardWeights) */
#define DIRECTION(Name)                                                                            \
    status miopenConvolution##Name##GetSolutionCount(h, const t, const t, const c, const t,        \
                                                     size_t *);                                    \
    status miopenConvolution##Name##GetSolution(h, const t, const t, const c, const t,             \
                                                const size_t, size_t *, wb__miopen_solution *);    \
    status miopenConvolution##Name##GetSolutionWorkspaceSize(h, const t, const t, const c,         \
                                                             const t, const uint64_t, size_t *);   \
    status miopenConvolution##Name##CompileSolution(h, const t, const t, const c, const t,         \
                                                    const uint64_t);                               \
    status miopenConvolution##Name##Immediate(h, const t, const void *, const t, const void *,     \
                                              const c, const t, void *, void *, size_t,            \
                                              const uint64_t);
DIRECTION(Forward)
DIRECTION(BackwardData)
DIRECTION(BackwardWeights)

#define SAME(field, function) _Generic(&(function), __typeof__(field): true, default: false)
#define FUNCTION(name, parameters)                                                                 \
    {"miopen" #name, SAME(((wb__miopen_functions *)0)->name, miopen##name)},
#define OF(Name, name)                                                                             \
    {"miopenConvolution" #Name #name,                                                              \
     SAME(((wb__miopen_direction *)0)->name, miopenConvolution##Name##name)},
#define OF_DIRECTION(kind, Name)                                                                   \
    OF(Name, GetSolutionCount) OF(Name, GetSolution) OF(Name, GetSolutionWorkspaceSize)            \
    OF(Name, CompileSolution) OF(Name, Immediate)
static const struct { const char *name; bool same; } functions[] = {
    WB__MIOPEN_FUNCTIONS(FUNCTION) FUNCTION(GetErrorString, (status))
    WB__MIOPEN_DIRECTIONS(OF_DIRECTION)
};

TEST(test_functions)
{
    int different = 0;
    for (size_t i = 0; i < WB__COUNT(functions); i++) {
        if (functions[i].same) continue;
        print_error("%s is declared otherwise in miopen.h\n", functions[i].name);
        different++;
    }
    assert_int_equal(different, 0);
    assert_int_equal(WB__COUNT(functions) * sizeof(void *), sizeof(wb__miopen_functions));
}
