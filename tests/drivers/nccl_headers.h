/* Weber's own declarations (src/backend/nccl/api.h) are compared with the header of NCCL or RCCL,
 * which the including file has included.  Without HAS_HEADER it is not installed. */
#include "test.h"

#ifdef HAS_HEADER

#define WB__NCCL_NO_TYPES
#include "backend/nccl/api.h"

#define EQUAL(a, b) _Static_assert((long long)(a) == (long long)(b), #a " differs")
#define CONSTANT(name, value) EQUAL(name, value);
WB__NCCL_CONSTANTS(CONSTANT)

EQUAL(sizeof(wb__nccl_id), sizeof(ncclUniqueId));
EQUAL(WB__NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);

#define FIELD(field)                                                                               \
    EQUAL(offsetof(wb__nccl_config, field), offsetof(ncclConfig_t, field));                        \
    EQUAL(sizeof ((wb__nccl_config *)0)->field, sizeof ((ncclConfig_t *)0)->field)
FIELD(size);
FIELD(magic);
FIELD(version);
FIELD(blocking);
FIELD(cgaClusterSize);
FIELD(minCTAs);
FIELD(maxCTAs);
FIELD(netName);

TEST(test_initial_configuration)
{
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(initial.magic, WB__NCCL_MAGIC);
    assert_int_equal(NCCL_VERSION(2, 17, 0), WB__NCCL_OLDEST);
}

#define SAME(field, function) _Generic(&(function), __typeof__(field): true, default: false)
#define NCCL(type, name, parameters)                                                               \
    {"nccl" #name, SAME(((wb__nccl_functions *)0)->name, nccl##name)},
static const struct { const char *name; bool same; } functions[] = {WB__NCCL_FUNCTIONS(NCCL)};

TEST(test_functions)
{
    int different = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (functions[i].same) continue;
        print_error("%s is declared otherwise in the header\n", functions[i].name);
        different++;
    }
    assert_int_equal(different, 0);
}

static int compare(void) { return run_all_cases(); }

#else

static int compare(void)
{
    printf("SKIP: the library's header is not installed\n");
    return 77;
}

#endif
