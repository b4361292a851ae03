/* rocBLAS and MIOpen through the public interface, on doubles, and whether RCCL is there: a model
 * is trained as on the CPU whether a library is there, missing, disabled, without kernels for the
 * GPU, of another HIP, or refuses steps.  Each case runs in a child process. */
#include "test.h"

#include "process.h"
#include "weber.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WB_TEST_CUDA_DOUBLE
#define HAS_DOUBLES 1
#endif

/* ---- one case -------------------------------------------------------------------------------- */

enum { MOST_FACTS = 5, HERE = 1, ABSENT = 0, UNCHECKED = -1 };

typedef struct {
    const char *variables[3][2];        /* set first; value NULL: unset */
    const char *links[6][2];            /* files of WEBER_ROCM_PATH: name, double; none: as it is */
    int miopen, blas, warnings;         /* wb_functional; how many warnings */
    const char *why_miopen, *why_blas;  /* in wb_error, where they do not work */
    const char *rccl;                   /* NULL: unchecked; "": it works; else in wb_error */
    const char *logged[MOST_FACTS], *not_logged[MOST_FACTS];
    bool deterministic;
} library_case;

static char logs[1 << 18];
static int warnings;

static void listen(wb_log_level level, const char *text, void *context)
{
    const size_t at = strlen(logs), left = sizeof logs - at;
    (void)context;
    /* a refusal while a plan is recorded also leaves the plan without a graph, which is logged */
    warnings += level >= WB_LOG_WARN && !strstr(text, "runs without a graph");
    snprintf(logs + at, left, "%s%s\n", level >= WB_LOG_WARN ? "warning: " : "", text);
}

/* Trains a model for some steps, and returns its loss; NAN after an error. */
static double train(const wb_device *d)
{
    enum { N = 2, C = 4, SIDE = 8, CLASSES = 3, STEPS = 5 };
    static float x[N * C * SIDE * SIDE];
    double loss = NAN;
    unsigned seed = 7;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    wb_seed(3);
    wb_scope *scope = wb_scope_open();
    wb_layer *m = wb_to(wb_Chain(wb_Conv(C, 6, {3}, wb_relu, .pad = {1}), wb_Conv(6, 4, {3}),
                                 wb_Flatten(), wb_Dense(4 * 36, CLASSES)), d);
    wb_tensor *in = wb_to(wb_from(x, WB_F32, 4, (int64_t[]){N, C, SIDE, SIDE}), d);
    wb_opt_state *rule = wb_setup(wb_Descent(0.01), m);
    for (int i = 0; i < STEPS && rule; i++) {
        wb_scope *inner = wb_scope_open();
        wb_tensor *y = wb_mean(wb_square(wb_call(m, in)));
        if (wb_update(rule, m, wb_gradient(y, m))) break;
        loss = wb_item(y);
        if (wb_scope_close(inner)) loss = NAN;
    }
    return wb_scope_close(scope) ? NAN : loss;
}

static int check_part(const char *name, int expected, const char *why)
{
    if (expected == UNCHECKED) return 0;
    wb_clear_error();
    if (wb_functional("AMDGPU", name) == (expected == HERE) &&
        (expected == HERE || !why || strstr(wb_error(), why)))
        return 0;
    fprintf(stderr, "%s: expected %d, \"%s\"; the error is \"%s\"\n", name, expected,
            why ? why : "", wb_error());
    return 20;
}

static int execute(const library_case *c)
{
    wb_set_log(listen, NULL);
    const double want = train(wb_device_at("CPU", 0));
    if (wb_using("AMDGPU") || !wb_device_at("AMDGPU", 0)) return 1;
    wb_set_deterministic(c->deterministic);
    for (int turn = 0; turn < 2; turn++) {
        const double got = train(wb_device_at("AMDGPU", 0));
        if (fabs(got - want) <= 1e-5 * fabs(want)) continue;
        fprintf(stderr, "the loss is %.9g, not %.9g\n", got, want);
        return 2;
    }
    int wrong = check_part("MIOpen", c->miopen, c->why_miopen);
    if (!wrong) wrong = check_part("rocBLAS", c->blas, c->why_blas);
    if (!wrong && c->rccl) wrong = check_part("RCCL", *c->rccl ? ABSENT : HERE, c->rccl);
    if (!wrong && warnings != c->warnings) {
        fprintf(stderr, "%d warnings, not %d\n", warnings, c->warnings);
        wrong = 21;
    }
    for (int i = 0; i < MOST_FACTS && !wrong; i++) {
        if (c->logged[i] && !strstr(logs, c->logged[i])) {
            fprintf(stderr, "not logged: \"%s\"\n", c->logged[i]);
            wrong = 22;
        }
        if (c->not_logged[i] && strstr(logs, c->not_logged[i])) {
            fprintf(stderr, "logged: \"%s\"\n", c->not_logged[i]);
            wrong = 23;
        }
    }
    wb_shutdown();
    return wrong;
}

static int in_child(const library_case *c, const char *folder)
{
    for (int i = 0; i < 6 && c->links[i][0]; i++) {
        char from[600], to[600];
        snprintf(from, sizeof from, "%s%s", WB_TEST_HIP_DOUBLE, c->links[i][1]);
        snprintf(to, sizeof to, "%s/%s", folder, c->links[i][0]);
        if (symlink(from, to)) perror(to);
    }
    if (c->links[0][0]) setenv("WEBER_ROCM_PATH", folder, 1);
    setenv("WEBER_DEBUG", "dispatch", 1);
    for (int i = 0; i < 3 && c->variables[i][0]; i++)
        setenv(c->variables[i][0], c->variables[i][1], 1);
    const int wrong = execute(c);
    if (wrong) fprintf(stderr, "%d: %s\n%s", wrong, wb_error(), logs);
    return wrong;
}

static void with(const library_case *c)
{
    char folder[200];
    int status = -1;
    snprintf(folder, sizeof folder, "%s", process_folder());
    fflush(NULL);
    const pid_t process = fork();
    if (!process) {
        alarm(200);
        signal(SIGSEGV, SIG_DFL);       /* cmocka's handler would go on with the next test */
        const int wrong = in_child(c, folder);
        fflush(NULL);
        exit(wrong);                    /* the double then reports wrong uses */
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    process_remove(folder);
    assert_int_equal(status, 0);
}

/* ---- the cases ------------------------------------------------------------------------------- */

TEST(test_both)
{
    with(&(library_case){.miopen = HERE, .blas = HERE, .rccl = "",
                         .logged = {"{MIOpen implicit GEMM}", "{rocBLAS}"},
                         .not_logged = {"warning:"}});
}

TEST(test_deterministic_training)
{
    with(&(library_case){.miopen = HERE, .blas = HERE, .deterministic = true,
                         .logged = {"{MIOpen implicit GEMM}", "{MIOpen GEMM}", "{rocBLAS}"}});
}

/* One warning for each library, with the packages that contain it. */
TEST(test_missing)
{
    with(&(library_case){.variables = {{"WEBER_ROCM_PATH", WB_TEST_HIP_DOUBLE "5"}},
                         .miopen = ABSENT, .why_miopen = "MIOpen", .blas = ABSENT,
                         .why_blas = "rocBLAS", .warnings = 2, .rccl = "Fedora: rccl",
                         .logged = {"warning: amdgpu: MIOpen is not used, our own kernels are",
                                    "miopen-hip", "Fedora: miopen", "MIOpen is not used}"},
                         .not_logged = {"{MIOpen"}});
}

TEST(test_disabled)
{
    with(&(library_case){.variables = {{"WEBER_AMDGPU_MIOPEN", "0"}, {"WEBER_AMDGPU_RCCL", "0"}},
                         .rccl = "WEBER_AMDGPU_RCCL=0 disables it",
                         .miopen = ABSENT, .why_miopen = "WEBER_AMDGPU_MIOPEN=0 disables it",
                         .blas = HERE, .logged = {"MIOpen is not used}", "{rocBLAS}"},
                         .not_logged = {"{MIOpen", "warning:"}});
    with(&(library_case){.variables = {{"WEBER_AMDGPU_ROCBLAS", "0"},
                                       {"VGPU_MIOPEN_SOLUTIONS", "g"}},
                         .miopen = HERE, .blas = ABSENT, .why_blas = "WEBER_AMDGPU_ROCBLAS=0",
                         .logged = {"MIOpen: it has no solution}"},
                         .not_logged = {"{MIOpen", "{rocBLAS", "warning:"}});
}

/* rocBLAS without kernels for the GPU would end the process: it does not count as working. */
TEST(test_no_kernels)
{
    with(&(library_case){.variables = {{"VGPU_GFX", "gfx1030"}},
                         .miopen = HERE, .blas = ABSENT, .why_blas = "no kernels for gfx1030 in ",
                         .warnings = 1,
                         .logged = {"warning: amdgpu:0: rocBLAS has no kernels for gfx1030",
                                    "rocBLAS: no kernels for this GPU}", "{MIOpen"},
                         .not_logged = {"{rocBLAS"}});
}

/* HIP of ROCm 5 with the libraries of ROCm 7, which bring their own. */
TEST(test_another_hip)
{
    with(&(library_case){.links = {{"libamdhip64.so.5", "5/libamdhip64.so.5"},
                                   {"libamd_comgr.so.2", "5/libamd_comgr.so.2"},
                                   {"libMIOpen.so.1", "/libMIOpen.so.1"},
                                   {"librocblas.so.5", "/librocblas.so.5"},
                                   {"librccl.so.1", "/librccl.so.1"}},
                         .miopen = ABSENT, .why_miopen = "has another hipInit", .blas = ABSENT,
                         .why_blas = "has another hipInit", .rccl = "has another hipInit",
                         .warnings = 2,
                         .not_logged = {"{MIOpen", "{rocBLAS"}});
}

/* A file with the name of HIP's newest version that is another library: the next one is used. */
TEST(test_unusable_hip)
{
    with(&(library_case){.links = {{"libamdhip64.so.7", "/libamd_comgr.so.3"},
                                   {"libamdhip64.so.5", "5/libamdhip64.so.5"},
                                   {"libamd_comgr.so.2", "5/libamd_comgr.so.2"}},
                         .miopen = UNCHECKED, .blas = UNCHECKED, .warnings = 2});
}

/* Solutions that cannot be compiled are passed over; after a launch that fails our kernels do the
 * step, with one warning. */
TEST(test_unreliable)
{
    static const char *const turns[] = {"1", "2", "3", "5"};
    for (int i = 0; i < 4; i++) {
        with(&(library_case){.variables = {{"VGPU_MIOPEN_DECLINES", turns[i]}},
                             .miopen = HERE, .blas = HERE, .not_logged = {"warning:"}});
        with(&(library_case){.variables = {{"VGPU_MIOPEN_REFUSES", turns[i]}},
                             .miopen = HERE, .blas = HERE, .warnings = 1,
                             .logged = {"Immediate: miopenStatusInternalError (5)",
                                        "MIOpen: it refused this one}"}});
    }
}

int main(void)
{
#ifndef HAS_DOUBLES
    printf("SKIP: the doubles of HIP were not built\n");
    return 77;
#endif
    return run_all_cases();
}
