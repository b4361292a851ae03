/* What the guides of Flux and Lux promise for each GPU backend, with the backend itself on the test
 * double of its driver: functional, present without a device, and absent; the preference; moves.
 * Each case runs in a child process, whose output is compared. */
#include "folder.h"

#include "test.h"

#include "device/device.h"

#define ON_CUDA "WEBER_CUDA_LIBRARY=" WB_TEST_CUDA_DOUBLE "/libcuda.so.1", \
                "WEBER_CUDA_PATH=" WB_TEST_CUDA_DOUBLE
#define ON_HIP "WEBER_ROCM_PATH=" WB_TEST_HIP_DOUBLE, \
               "VGPU_LIBRARY=" WB_TEST_CUDA_DOUBLE "/libcuda.so.1"
#define ON_METAL "WEBER_METAL_LIBRARY=" WB_TEST_METAL_DOUBLE "/Metal"
#define NOT_OPENCL "OCL_ICD_VENDORS=" WB_TEST_NOWHERE

/* why: facts of the reason without a device, and when the library is absent. */
static const struct {
    const char *name, *device;          /* a device's name without its number */
    const char *const *works, *const *no_device, *const *absent;
    const char *const *why_no_device, *const *why_absent;
} backends[] = {
    {"CUDA", "CUDA test double ", ENVIRONMENT(ON_CUDA, NOT_OPENCL),
     ENVIRONMENT(ON_CUDA, NOT_OPENCL, "VGPU_DEVICES=0"),
     ENVIRONMENT("WEBER_CUDA_LIBRARY=" WB_TEST_NOWHERE, NOT_OPENCL), FACTS("GPU"),
     FACTS(WB_TEST_NOWHERE, "install the NVIDIA driver")},
    {"AMDGPU", "vgpu of AMD ", ENVIRONMENT(ON_HIP, NOT_OPENCL),
     ENVIRONMENT(ON_HIP, NOT_OPENCL, "VGPU_DEVICES=0"), NULL,
     FACTS("sees no GPU", "rocminfo", "render"), NULL},
    {"Metal", "Metal test double ", ENVIRONMENT(ON_METAL, NOT_OPENCL),
     ENVIRONMENT(ON_METAL, NOT_OPENCL, "VGPU_METAL=none"),
     ENVIRONMENT("WEBER_METAL_LIBRARY=" WB_TEST_NOWHERE, NOT_OPENCL), FACTS("no GPU"),
     FACTS(WB_TEST_NOWHERE, "macOS 13")},
};
enum { BACKENDS = sizeof backends / sizeof *backends };

static process p;
static char verb[6][40];

/* Runs a script whose words contain the backend's name after the first colon. */
static void run_script(const char *name, const char *const *environment, const char *const *words,
                       int n)
{
    const char *list[9] = {"/proc/self/exe", "script"};
    for (int i = 0; i < n; i++) {
        const char *rest = strchr(words[i], '%');
        if (rest) snprintf(verb[i], sizeof verb[i], "%.*s%s%s", (int)(rest - words[i]), words[i],
                           name, rest + 1);
        else snprintf(verb[i], sizeof verb[i], "%s", words[i]);
        list[2 + i] = verb[i];
    }
    process_run(&p, folder, environment, list);
    assert_int_equal(p.status, 0);
}
#define RUN(name, environment, ...) \
    run_script(name, environment, (const char *const[]){__VA_ARGS__}, \
               (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

static void prints(const char *text)
{
    if (!strstr(p.out, text)) fail_msg("no \"%s\" in:\n%s%s", text, p.out, p.err);
}

/* wb_functional, the devices by number, the first one too many, the choice and a move. */
TEST(functional)
{
    for (int i = 0; i < BACKENDS; i++) {
        char want[400];
        const char *name = backends[i].name, *of = backends[i].device;
        RUN(name, backends[i].works, "using:%", "functional:%", "at:%:1", "at:%:2", "get:verbose",
            "move");
        snprintf(want, sizeof want, "ok\nyes\n%sDevice(1): %s1\n"
                 "error: %s has no device 2: there are 2, numbered from 0.\n"
                 "%sDevice(0): %s0\ngoes to %sDevice(0): %s0 3\n", name, of, name, name, of, name,
                 of);
        assert_string_equal(p.out, want);
        snprintf(want, sizeof want, "[ Info: Using backend: %s.\n", name);
        assert_string_equal(p.err, want);
    }
}

TEST(preferred)
{
    for (int i = 0; i < BACKENDS; i++) {
        char text[120];
        const char *name = backends[i].name;
        snprintf(text, sizeof text, "[Flux]\ngpu_backend = \"%s\"\n", name);
        process_file(folder, "LocalPreferences.toml", text);
        RUN(name, backends[i].works, "using:%", "preference", "get:verbose");
        snprintf(text, sizeof text, "ok\n%s\n%sDevice(0): ", name, name);
        prints(text);
        snprintf(text, sizeof text, "[ Info: Using backend set in preferences: %s.\n", name);
        assert_string_equal(p.err, text);
    }
}

/* Loaded and not functional: the reason names the cure, and data stay on the CPU with one
 * message. */
static void stays_on_the_cpu(const char *name, const char *const *environment,
                             const char *const *why)
{
    char want[300];
    RUN(name, environment, "using:%", "functional:%", "why:%", "move", "move");
    prints("ok\nno\nwhy: ");
    prints("stays on CPUDevice() 3\nstays on CPUDevice() 3\n");
    if (!has_facts(p.out, why)) fail_msg("%s", p.out);
    snprintf(want, sizeof want, "┌ Info: The %s function is being called but %s is not functional."
             "\n└ Defaulting back to the CPU. (No action is required if you want to run on the "
             "CPU).\n", name, name);
    assert_string_equal(p.err, want);
}

TEST(without_a_device)
{
    for (int i = 0; i < BACKENDS; i++)
        stays_on_the_cpu(backends[i].name, backends[i].no_device, backends[i].why_no_device);
}

TEST(absent)
{
    for (int i = 0; i < BACKENDS; i++)
        if (backends[i].absent)
            stays_on_the_cpu(backends[i].name, backends[i].absent, backends[i].why_absent);
}

/* `weber devices --verbose`: names, memory, architecture, driver, parts. */
TEST(the_command)
{
    static const char *const rows[BACKENDS][3] = {
        {"CUDA     works   ", "CUDA, 0: compute capability 9.0, ", "CUDA, cuDNN: works"},
        {"AMDGPU   works   ", "AMDGPU, 0: gfx90a:sramecc+:xnack-, ", "AMDGPU, MIOpen: works"},
        {"Metal    works   ", "Metal, 0: unified memory, macOS Version 13", "Metal, 1: memory "}};
    for (int i = 0; i < BACKENDS; i++) {
        process_run(&p, folder, backends[i].works,
                    (const char *const[]){WB_TEST_COMMAND, "devices", "--verbose", NULL});
        assert_int_equal(p.status, 0);
        for (int k = 0; k < 3; k++) prints(rows[i][k]);
    }
}

/* Metal has no f64: a move makes f32 of it, or fails where the dtype is to stay.  Tensors go from
 * one GPU to the other. */
TEST(metal_in_this_process)
{
    setenv("WEBER_METAL_LIBRARY", WB_TEST_METAL_DOUBLE "/Metal", 1);
    assert_int_equal(wb_using("Metal"), 0);
    const wb_device *first = wb_device_at("Metal", 0), *second = wb_device_at("Metal", 1);
    wb_scope *scope = wb_scope_open();
    wb_tensor *x = wb_from((double[]){1, 2.5, -3}, WB_F64, 1, (int64_t[]){3});
    wb_tensor *there = wb_to(x, first);
    assert_int_equal(wb_dtype_of(there), WB_F32);
    assert_null(wb_to(x, first, .dtype = WB_DTYPE_KEEP));
    assert_true(failed_with(WB_ERROR_UNSUPPORTED, FACTS("metal:0", "no f64", "f32")));
    wb_clear_error();
    wb_tensor *beyond = wb_to(wb_mul(there, wb_to(wb_scalar(2), first)), second);
    assert_ptr_equal(wb_device_of(beyond), second);
    assert_true(wb_item(wb_sum(wb_cpu(beyond))) == 1);
    wb_scope_close(scope);
    wb_shutdown();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "script")) return device_script(argc - 2, argv + 2);
    return run_cases_each(make_folder, remove_folder);
}
