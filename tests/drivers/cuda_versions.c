/* Drivers and libraries of CUDA 12 and 13 installed together, on doubles of both: which libraries
 * are used, and what happens if two do not fit.  Each case runs in a child process. */
#include "test.h"

#include "process.h"
#include "weber.h"

#include <sys/wait.h>
#include <unistd.h>

#if defined(WB_TEST_CUDA_DOUBLE) && defined(WB_TEST_CUDA_12)
#define HAS_DOUBLES 1
#else
#undef WB_TEST_CUDA_DOUBLE
#undef WB_TEST_CUDA_12
#define WB_TEST_CUDA_DOUBLE ""
#define WB_TEST_CUDA_12 ""
#endif

/* ---- one case -------------------------------------------------------------------------------- */

/* A file in the folder of libraries: its name, and the double to which it is a link. */
typedef struct { const char *name; int major; const char *file; } library;
#define NVRTC_12 {"libnvrtc.so.12", 12, "libnvrtc.so.12"}
#define NVRTC_13 {"libnvrtc.so.13", 13, "libnvrtc.so.13"}
#define LT_12 {"libcublasLt.so.12", 12, "libcublasLt.so.12"}
#define LT_13 {"libcublasLt.so.13", 13, "libcublasLt.so.13"}
#define DNN_12 {"libcudnn.so.9", 12, "libcudnn.so.9"}
#define DNN_13 {"libcudnn.so.9", 13, "libcudnn.so.9"}

typedef struct {
    library files[7];
    const char *driver, *arch;          /* NULL: 13.0, 9.0 */
    const char *logged[4];              /* texts that the log must have */
    const char *not_logged[2];          /* texts that it must not have */
    bool from_disk;                     /* no compiler: an earlier case wrote the images to disk */
    bool ptx_only;
} versions;

static char logs[1 << 18];

static void listen(wb_log_level level, const char *text, void *context)
{
    const size_t at = strlen(logs), left = sizeof logs - at;
    if (!strncmp(text, "kernel:", 7)) snprintf(logs + at, left, "%.100s\n", text);
    else snprintf(logs + at, left, "%s\n", text);
}

static void enter(const versions *v, const char *folder)
{
    for (int i = 0; v->files[i].name; i++) {
        char from[600], to[600];
        const library *l = &v->files[i];
        snprintf(from, sizeof from, "%s/%s", l->major == 12 ? WB_TEST_CUDA_12 : WB_TEST_CUDA_DOUBLE,
                 l->file);
        snprintf(to, sizeof to, "%s/%s", folder, l->name);
        if (symlink(from, to)) perror(to);
    }
    setenv("WEBER_CUDA_PATH", folder, 1);
    setenv("WEBER_DEBUG", "load,dispatch,kernel", 1);
    if (v->driver) setenv("VGPU_DRIVER", v->driver, 1);
    if (v->arch) setenv("VGPU_ARCH", v->arch, 1);
    if (v->ptx_only) setenv("VGPU_PTX_ONLY", "1", 1);
    if (v->from_disk) setenv("VGPU_CXX", "/bin/false", 1), setenv("VGPU_CACHE", "", 1);
}

/* A product, a convolution and an elementwise operation; returns 0, or the step that failed. */
static int compute(void)
{
    const wb_device *gpu = wb_device_at("CUDA", 0);
    if (!gpu) return 2;
    wb_scope *scope = wb_scope_open();
    wb_tensor *x = wb_to(wb_full_array(0.5, WB_F32, 2, (int64_t[]){32, 32}), gpu);
    wb_tensor *y = wb_tanh(wb_matmul(x, x));
    const float *at = wb_data(wb_cpu(y));
    if (!at || fabs(at[77] - tanh(8.0)) > 1e-6) return 3;
    wb_layer *conv = wb_to(wb_Conv(4, 8, {3}), gpu);
    wb_tensor *p = wb_to(wb_full_array(0.25, WB_F32, 4, (int64_t[]){2, 4, 8, 8}), gpu);
    if (!wb_data(wb_cpu(wb_call(conv, p)))) return 4;
    return wb_scope_close(scope) ? 5 : 0;
}

static int in_child(const versions *v, const char *folder)
{
    enter(v, folder);
    wb_set_log(listen, NULL);
    int wrong = wb_using("CUDA") ? 1 : compute();
    if (wrong) fprintf(stderr, "step %d: %s\n", wrong, wb_error());
    for (size_t i = 0; i < sizeof v->logged / sizeof *v->logged && v->logged[i]; i++) {
        if (strstr(logs, v->logged[i])) continue;
        fprintf(stderr, "not logged: \"%s\"\n", v->logged[i]);
        wrong = 10;
    }
    for (size_t i = 0; i < sizeof v->not_logged / sizeof *v->not_logged && v->not_logged[i]; i++) {
        if (!strstr(logs, v->not_logged[i])) continue;
        fprintf(stderr, "logged: \"%s\"\n", v->not_logged[i]);
        wrong = 11;
    }
    if (wrong) fprintf(stderr, "%s", logs);
    wb_shutdown();
    return wrong;
}

static void with(const versions *v)
{
    char folder[200];
    int status = -1;
    snprintf(folder, sizeof folder, "%s", process_folder());
    fflush(NULL);
    const pid_t process = fork();
    if (!process) {
        alarm(200);
        const int wrong = in_child(v, folder);
        fflush(NULL);
        _exit(wrong);
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    process_remove(folder);
    assert_int_equal(status, 0);
}

/* ---- the cases ------------------------------------------------------------------------------- */

TEST(test_new_driver)
{
    with(&(versions){.files = {NVRTC_12, NVRTC_13, LT_12, LT_13, DNN_13},
                     .logged = {"load: cuda: NVRTC 13.0", "libcublasLt.so.13: opened",
                                "{cuBLASLt", "{cuDNN"},
                     .not_logged = {"NVRTC 12.0", "libcublasLt.so.12: opened"}});
}

TEST(test_old_driver)
{
    with(&(versions){.files = {NVRTC_12, NVRTC_13, LT_12, LT_13, DNN_12}, .driver = "12040",
                     .logged = {"load: cuda: NVRTC 12.0", "libcublasLt.so.12: opened",
                                "{cuBLASLt", "{cuDNN"},
                     .not_logged = {"NVRTC 13.0", "libcublasLt.so.13: opened"}});
}

/* If a version does not start, the next one is tried, whatever its file name is. */
TEST(test_falls_through)
{
    with(&(versions){.files = {NVRTC_12, {"libcublasLt.so.12", 13, "libcublasLt.so.13"},
                               {"libcublasLt.so.13", 12, "libcublasLt.so.12"}},
                     .driver = "12040", .logged = {"libcublasLt.so.12: opened",
                                                   "libcublasLt.so.13: opened", "{cuBLASLt"}});
}

/* No library fits the driver: Weber's own kernels run, and the log reports it. */
TEST(test_libraries_too_new)
{
    with(&(versions){.files = {NVRTC_12, LT_13}, .driver = "12040",
                     .logged = {"cuBLASLt", "cublasLtCreate:"},
                     .not_logged = {"{cuBLASLt"}});
}

TEST(test_device_that_is_dropped)
{
    with(&(versions){.files = {NVRTC_12, NVRTC_13, LT_13}, .arch = "70",
                     .logged = {"load: cuda: NVRTC 13.0", "load: cuda: NVRTC 12.0",
                                "--gpu-architecture=sm_70"}});
}

/* NVRTC 12 does not support the device, and the images of NVRTC 13 are too new for the driver: PTX
 * for an older device is used. */
TEST(test_device_too_new)
{
    with(&(versions){.files = {NVRTC_12, NVRTC_13}, .driver = "12080", .arch = "120",
                     .logged = {"--gpu-architecture=sm_120", "--gpu-architecture=compute_90",
                                "NVRTC 12.0 with --gpu-architecture=compute_90"}});
}

TEST(test_only_ptx)
{
    const versions v = {.files = {NVRTC_13, LT_13}, .ptx_only = true,
                        .logged = {"--gpu-architecture=sm_90", "--gpu-architecture=compute_90",
                                   "NVRTC 13.0 with --gpu-architecture=compute_90"}};
    char folder[200];
    snprintf(folder, sizeof folder, "%s", process_folder());
    setenv("WEBER_CACHE_DIR", folder, 1);
    with(&v);
    unsetenv("WEBER_CACHE_DIR");
    process_remove(folder);
}

/* Images of both kinds are cached on disk: the next process compiles nothing. */
TEST(test_kept)
{
    char folder[200];
    versions v = {.files = {NVRTC_12}, .driver = "12080", .arch = "120",
                  .logged = {"--gpu-architecture=compute_90"}};
    snprintf(folder, sizeof folder, "%s", process_folder());
    setenv("WEBER_CACHE_DIR", folder, 1);
    for (int ptx = 0; ptx < 2; ptx++) {
        v.arch = ptx ? "120" : "90";
        v.logged[0] = ptx ? "--gpu-architecture=compute_90" : "--gpu-architecture=sm_90";
        v.from_disk = false;
        with(&v);
        v.from_disk = true;
        with(&v);
    }
    unsetenv("WEBER_CACHE_DIR");
    process_remove(folder);
}

TEST(test_two_majors)
{
    with(&(versions){.files = {NVRTC_13, LT_13, DNN_12},
                     .logged = {"cuDNN:", "CUDA 12", "CUDA 13", "{cuBLASLt"},
                     .not_logged = {"{cuDNN"}});
    with(&(versions){.files = {NVRTC_13, DNN_12}, .logged = {"{product"}});
}

int main(void)
{
#ifndef HAS_DOUBLES
    printf("SKIP: the doubles of CUDA were not built\n");
    return 77;
#endif
    return run_all_cases();
}
