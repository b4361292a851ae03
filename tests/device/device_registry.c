/* Loading of backends and choice of devices.  Each case runs in a child process with test
 * backends in place of the library's (backends/fake.c), and the whole output is compared. */
#include "folder.h"

#include "test.h"

#include "device/device.h"
#include "device/registry.h"

#include <pthread.h>
#include <unistd.h>

#define ONLY(name) ENVIRONMENT("FAKES=" name)
#define MISSING(name, option) \
    "This Weber was built without the backend " name ": cmake -D" option "=ON builds it in."
#define BUILT_WITHOUT MISSING("CUDA", "WEBER_CUDA")

static process p;

/* The script's standard output and error are exactly these. */
static void printed(const char *out, const char *err)
{
    assert_string_equal(p.err, err);
    assert_string_equal(p.out, out);
    assert_int_equal(p.status, 0);
}

/* ---- names and order ------------------------------------------------------------------------- */

TEST(test_names)
{
    static const char *const all[] = {"CUDA", "AMDGPU", "Metal", "OpenCL", "CPU"};
    const char *const *names = wb_supported_devices(), *const *gpus = wb_supported_gpu_backends();
    for (int i = 0; i < 5; i++) {
        assert_string_equal(names[i], all[i]);
        assert_string_equal(wb__rows[i].name, all[i]);
        if (i < 4) assert_string_equal(gpus[i], all[i]);
    }
    assert_null(names[5]);
    assert_null(gpus[4]);
}

TEST(test_unknown_names)
{
    const char *const *facts = FACTS("cuda", "CUDA", "AMDGPU", "Metal", "OpenCL", "CPU");
    assert_int_equal(wb_using("cuda"), WB_ERROR_ARGUMENT);
    assert_true(failed_with(WB_ERROR_ARGUMENT, facts));
    wb_clear_error();
    assert_null(wb_device_at("cuda", 0));
    assert_true(failed_with(WB_ERROR_ARGUMENT, facts));
    wb_clear_error();
    assert_false(wb_functional("cuda"));
    assert_true(failed_with(WB_ERROR_ARGUMENT, facts));
    assert_false(wb_loaded("cuda"));
    assert_int_equal(wb_devices("cuda").n, 0);
    assert_true(has_facts(wb_why_not("cuda"), facts));
    assert_int_equal(wb_using(NULL), WB_ERROR_ARGUMENT);
    assert_null(wb_device_at(NULL, 0));
    wb_clear_error();
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Only requested backends are started. */
TEST(test_nothing_unasked)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one", "WEBER_DEBUG=load", "FAKE_TRACE=t"),
           "loaded:CUDA", "functional:CUDA", "get:verbose", "gpu", "move", "show:CUDA",
           "at:CUDA:0");
    assert_non_null(strstr(p.err, "[ Info: Using backend: CPU.\n"));
    assert_null(strstr(p.err, "load: CUDA"));
    assert_string_equal(p.out, "no\nno\nCPUDevice()\nCPUDevice()\nstays on CPUDevice() 3\n"
                        "CUDA: 0 devices\nerror: Unavailable backend: CUDA. Try loading it with "
                        "wb_using(\"CUDA\").\n");
    assert_string_equal(process_text(folder, "t"), "");
}

TEST(test_loads)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one"),
           "using:CUDA", "loaded:CUDA", "loaded:AMDGPU", "why:CUDA", "show:CUDA", "using:CUDA");
    printed("ok\nyes\nno\nwhy: \nCUDA: 2 devices:\n0. Test GPU 0\n1. Test GPU 1\nok\n", "");
}

TEST(test_loads_from_environment)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one", "WEBER_BACKENDS= AMDGPU ,CUDA,"),
           "loaded:CUDA", "loaded:AMDGPU", "loaded:Metal", "show:AMDGPU");
    printed("yes\nyes\nno\nAMDGPU: 1 device:\n0. Test GPU 0\n", "");
    SCRIPT(&p, folder, ENVIRONMENT("WEBER_BACKENDS=Voodoo"), "get");
    printed("CPUDevice()\n", "┌ Warning: WEBER_BACKENDS: Unsupported GPU backend: Voodoo.\n"
            "└ Supported backends are: CUDA, AMDGPU, Metal, OpenCL, CPU.\n");
}

TEST(test_debug_logs_devices)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two", "WEBER_DEBUG=load"), "using:CUDA", "count:CUDA");
    printed("ok\n2\n", "[ Debug: load: CUDA: 2 devices\n");
}

TEST(test_not_built_in)
{
    SCRIPT(&p, folder, ONLY("absent"), "why:CUDA", "using:CUDA", "loaded:CUDA", "functional:CUDA",
           "why:CUDA", "at:CUDA:0", "gpu:force");
    printed("why: CUDA is not loaded: wb_using(\"CUDA\").\n"
            "error: " BUILT_WITHOUT "\nno\nno\nwhy: " BUILT_WITHOUT "\n"
            "error: Unavailable backend: CUDA. Try loading it with wb_using(\"CUDA\").\n"
            "error: No functional GPU device found!\nCUDA: " BUILT_WITHOUT "\n"
            "AMDGPU is not loaded: wb_using(\"AMDGPU\").\n"
            "Metal is not loaded: wb_using(\"Metal\").\n"
            "OpenCL is not loaded: wb_using(\"OpenCL\").\n", "");
    SCRIPT(&p, folder, ENVIRONMENT("WEBER_BACKENDS=Metal"), "get", "why:Metal");
    printed("CPUDevice()\nwhy: " MISSING("Metal", "WEBER_METAL") "\n",
            "[ Warning: WEBER_BACKENDS: " MISSING("Metal", "WEBER_METAL") "\n");
}

/* ---- loaded, but ----------------------------------------------------------------------------- */

TEST(test_no_device)
{
    SCRIPT(&p, folder, ONLY("none"), "using:CUDA", "loaded:CUDA", "functional:CUDA",
           "functional:CUDA:cuDNN", "why:CUDA", "at:CUDA:0", "count:CUDA", "get:verbose");
    printed("ok\nyes\nno\nno\n"
            "why: CUDA driver not found: libfake.so.1. Install the driver of your GPU.\n"
            "error: Backend: CUDA is not functional.\n"
            "CUDA driver not found: libfake.so.1. Install the driver of your GPU.\n0\n"
            "CPUDevice()\n", "[ Info: Using backend: CPU.\n");
    SCRIPT(&p, folder, ONLY("empty"), "using:CUDA", "functional:CUDA", "why:CUDA");
    printed("ok\nno\nwhy: CUDA found no device. It needs an NVIDIA GPU, its driver, and "
            "CUDA_VISIBLE_DEVICES not to hide it.\n", "");
}

/* A backend starts once, whichever function needs it, and once more after wb_shutdown.  Each later
 * wb_shutdown stops a backend that was ever started, since memory that the program held at the
 * first one is released at the next. */
TEST(test_starts_once)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two", "FAKE_TRACE=t"), "using:CUDA", "loaded:CUDA");
    assert_string_equal(process_text(folder, "t"), "");
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two", "FAKE_TRACE=t"), "using:CUDA", "count:CUDA",
           "get", "functional:CUDA", "shutdown", "shutdown", "loaded:CUDA", "at:CUDA:1", "gpu");
    printed("ok\n2\nCUDADevice(0): Test GPU 0\nyes\nyes\nCUDADevice(1): Test GPU 1\n"
            "CUDADevice(0): Test GPU 0\n", "");
    assert_string_equal(process_text(folder, "t"), "seese");
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=none", "FAKE_TRACE=u"), "using:CUDA", "count:CUDA",
           "get", "functional:CUDA", "why:CUDA");
    assert_string_equal(process_text(folder, "u"), "s");
}

TEST(test_parts)
{
    SCRIPT(&p, folder, ONLY("two"), "functional:CUDA:cuDNN", "using:CUDA", "functional:CUDA:cuDNN",
           "functional:CUDA:NCCL", "functional:CUDA:tea", "functional:CPU:tea");
    printed("no\nok\nyes\nno: NCCL not found: libfakeccl.so.2\n"
            "no: CUDA has no part called \"tea\"\nno: CPU has no part called \"tea\"\n", "");
}

/* ---- devices by number ----------------------------------------------------------------------- */

TEST(test_by_number)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one"), "at:CUDA:0", "using:CUDA",
           "using:AMDGPU", "at:CUDA:1", "at:CUDA:2", "at:CUDA:-1", "at:AMDGPU:0", "at:AMDGPU:1",
           "at:Voodoo:0", "memory:CUDA:1", "wait:CUDA:0", "wait:CUDA:1");
    printed("error: Unavailable backend: CUDA. Try loading it with wb_using(\"CUDA\").\nok\nok\n"
            "CUDADevice(1): Test GPU 1\n"
            "error: CUDA has no device 2: there are 2, numbered from 0.\n"
            "error: CUDA has no device -1: there are 2, numbered from 0.\n"
            "AMDGPUDevice(0): Test GPU 0\n"
            "error: AMDGPU has no device 1: there is 1, numbered from 0.\n"
            "error: Unsupported GPU backend: Voodoo.\n"
            "Supported backends are: CUDA, AMDGPU, Metal, OpenCL, CPU.\n"
            "used 0 peak 0 total 25769803776\nok\nerror: Test GPU 1 fell off the bus\n", "");
}

TEST(test_old_name)
{
    SCRIPT(&p, folder, ONLY("one"), "using:AMD", "at:AMD:0", "functional:AMD");
    printed("ok\nAMDGPUDevice(0): Test GPU 0\nyes\n",
            "[ Warning: \"AMD\" backend is deprecated. Please use \"AMDGPU\" instead.\n");
}

TEST(test_several_cpus)
{
    SCRIPT(&p, folder, ENVIRONMENT("WEBER_CPU_DEVICES=3"), "show:CPU", "at:CPU:2", "at:CPU:3",
           "cpu", "get");
    printed("CPU: 3 devices:\n0. CPU\n1. CPU\n2. CPU\nCPUDevice(2)\n"
            "error: CPU has no device 3: there are 3, numbered from 0.\n"
            "CPUDevice(0)\nCPUDevice(0)\n", "");
    SCRIPT(&p, folder, ENVIRONMENT(NULL), "at:CPU:0", "at:CPU:1", "functional:CPU", "loaded:CPU",
           "using:CPU", "why:CPU");
    printed("CPUDevice()\nerror: CPU has no device 1: there is 1, numbered from 0.\nyes\nyes\nok\n"
            "why: \n", "");
}

TEST(test_accessors)
{
    const wb_device *d = wb_device_at("CPU", 0);
    assert_ptr_equal(d, wb_cpu_device());
    assert_int_equal(wb_device_ordinal(d), 0);
    assert_string_equal(wb_device_name(d), "CPU");
    assert_string_equal(wb_device_backend(d), "CPU");
    assert_false(wb_device_is_gpu(d));
    wb_device_memory m;
    assert_int_equal(wb_device_memory_of(d, &m), 0);
    assert_true(m.total > 0 && m.used >= 0 && m.peak >= m.used && m.cached >= 0);
    assert_int_equal(wb_synchronize(d), 0);
    wb_tensor *x = wb_zeros(1 << 16);
    assert_int_equal(wb_eval(x), 0);
    wb_free(x);
    assert_int_equal(wb_device_memory_of(d, &m), 0);
    assert_true(m.cached >= 1 << 18);
    wb_device_trim(d);
    assert_int_equal(wb_device_memory_of(d, &m), 0);
    assert_int_equal(m.cached, 0);

    const char *texts[8];               /* the last eight texts stay valid */
    for (int i = 0; i < 8; i++) texts[i] = wb_device_describe(d);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(texts[i], "CPUDevice()");
        for (int k = 0; k < i; k++) assert_ptr_not_equal(texts[i], texts[k]);
    }
    assert_int_equal(wb_device_ordinal(NULL), -1);
    assert_string_equal(wb_device_name(NULL), "");
    assert_string_equal(wb_device_backend(NULL), "");
    assert_string_equal(wb_device_describe(NULL), "");
    assert_false(wb_device_is_gpu(NULL));
    wb_clear_error();
    assert_int_equal(wb_device_memory_of(NULL, &m), WB_ERROR_ARGUMENT);
    assert_int_equal(m.total, -1);
    assert_int_equal(wb_device_memory_of(d, NULL), WB_ERROR_ARGUMENT);
    wb_clear_error();
    assert_int_equal(wb_synchronize(NULL), WB_ERROR_ARGUMENT);
    wb_device_trim(NULL);
    wb_clear_error();
}

/* ---- choosing without a preference ----------------------------------------------------------- */

TEST(test_order)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one"), "get:verbose", "using:AMDGPU",
           "get:verbose", "using:CUDA", "get:verbose", "get");
    printed("CPUDevice()\nok\nAMDGPUDevice(0): Test GPU 0\nok\nCUDADevice(0): Test GPU 0\n"
            "CUDADevice(0): Test GPU 0\n",
            "[ Info: Using backend: CPU.\n[ Info: Using backend: AMDGPU.\n"
            "[ Info: Using backend: CUDA.\n");
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=none,one"), "using:AMDGPU", "using:CUDA",
           "get:verbose");
    printed("ok\nok\nAMDGPUDevice(0): Test GPU 0\n", "[ Info: Using backend: AMDGPU.\n");
}

/* The device of the first call is kept: a backend that is loaded later does not change it until
 * wb_reset_gpu_device.  The absence of a device is not kept. */
TEST(test_gpu_device)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two,one"), "gpu", "using:AMDGPU", "gpu",
           "using:CUDA", "gpu", "at:CUDA:1", "gpu", "reset", "gpu", "gpu:force");
    printed("CPUDevice()\nok\nAMDGPUDevice(0): Test GPU 0\nok\nAMDGPUDevice(0): Test GPU 0\n"
            "CUDADevice(1): Test GPU 1\nAMDGPUDevice(0): Test GPU 0\nCUDADevice(0): Test GPU 0\n"
            "CUDADevice(0): Test GPU 0\n", "");
}

/* A rank has the device of its number among the ranks of its machine, again from the first one if
 * there are more ranks than devices. */
TEST(test_gpu_of_a_rank)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=two"), "using:CUDA", "rank:4:1", "gpu", "reset",
           "rank:5:0", "gpu", "reset", "rank:6:3", "gpu");
    printed("ok\nCUDADevice(1): Test GPU 1\nCUDADevice(0): Test GPU 0\nCUDADevice(1): Test GPU 1\n",
            "");
}

TEST(test_gpu_forced)
{
    SCRIPT(&p, folder, ONLY("none"), "using:CUDA", "gpu:force", "gpu");
    printed("ok\nerror: No functional GPU device found!\n"
            "CUDA driver not found: libfake.so.1. Install the driver of your GPU.\n"
            "AMDGPU is not loaded: wb_using(\"AMDGPU\").\n"
            "Metal is not loaded: wb_using(\"Metal\").\n"
            "OpenCL is not loaded: wb_using(\"OpenCL\").\nCPUDevice()\n", "");
}

/* ---- wb_gpu ---------------------------------------------------------------------------------- */

TEST(test_moves_nowhere)
{
    SCRIPT(&p, folder, ENVIRONMENT(NULL), "move", "move");
    printed("stays on CPUDevice() 3\nstays on CPUDevice() 3\n",
            "[ Info: The CUDA functionality is being called but the backend CUDA must be loaded to "
            "access it: wb_using(\"CUDA\").\n");
    SCRIPT(&p, folder, ONLY("none"), "move", "using:CUDA", "move", "move");
    printed("stays on CPUDevice() 3\nok\nstays on CPUDevice() 3\nstays on CPUDevice() 3\n",
            "[ Info: The CUDA functionality is being called but the backend CUDA must be loaded to "
            "access it: wb_using(\"CUDA\").\n"
            "┌ Info: The CUDA function is being called but CUDA is not functional.\n"
            "└ Defaulting back to the CPU. (No action is required if you want to run on the "
            "CPU).\n");
}

TEST(test_moves)
{
    SCRIPT(&p, folder, ENVIRONMENT("FAKES=none,one"), "using:CUDA", "using:AMDGPU", "move",
           "log", "move");
    printed("ok\nok\ngoes to AMDGPUDevice(0): Test GPU 0 3\n"
            "goes to AMDGPUDevice(0): Test GPU 0 3\n",
            "");
}

/* ---- a real driver --------------------------------------------------------------------------- */

/* PoCL creates as many devices as POCL_DEVICES lists. */
TEST(test_real_devices)
{
    const char *const *surroundings = ENVIRONMENT("POCL_DEVICES=pthread pthread");
    SCRIPT(&p, folder, surroundings, "using:OpenCL", "why:OpenCL", "count:OpenCL");
    if (strcmp(p.out, "ok\nwhy: \n2\n") != 0) {
        print_message("SKIP: no two devices of PoCL: %s\n", p.out);
        skip();
    }
    SCRIPT(&p, folder, surroundings, "using:OpenCL", "at:OpenCL:0", "at:OpenCL:1", "at:OpenCL:2",
           "functional:OpenCL", "get:verbose", "move", "shutdown", "at:OpenCL:1", "move");
    const char *name = strstr(p.out, "OpenCLDevice(0): ");
    assert_non_null(name);
    name += strlen("OpenCLDevice(0): ");
    const int n = (int)strcspn(name, "\n");
    char expected[2048];
    snprintf(expected, sizeof expected, "ok\nOpenCLDevice(0): %.*s\nOpenCLDevice(1): %.*s\n"
             "error: OpenCL has no device 2: there are 2, numbered from 0.\nyes\n"
             "OpenCLDevice(0): %.*s\ngoes to OpenCLDevice(0): %.*s 3\nOpenCLDevice(1): %.*s\n"
             "goes to OpenCLDevice(0): %.*s 3\n", n, name, n, name, n, name, n, name, n, name, n,
             name);
    printed(expected, "[ Info: Using backend: OpenCL.\n");
}

/* ---- threads, a log handler that calls the library, memory ----------------------------------- */

enum { THREADS = 8 };

static void *ask(void *context)
{
    for (int i = 0; i < 200; i++) {
        if (wb_functional("CPU") + wb_devices("CPU").n < 2) return "no CPU";
        if (wb_get_device() != wb_cpu_device()) return "not the CPU";
        if (!*wb_why_not("Metal")) return "Metal works";
        if (wb_using("Metal") == 0) return "Metal is loaded";
        if (wb_gpu_device() != wb_cpu_device()) return "not the CPU";
        wb_reset_gpu_device();
        wb_clear_error();
    }
    return NULL;
}

TEST(test_threads)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong) fail_msg("%s", (const char *)wrong);
    }
}

static void asks_again(wb_log_level level, const char *text, void *context)
{
    *(bool *)context = wb_functional("CPU") && wb_gpu_device() == wb_cpu_device();
}

TEST(test_handler_asks)
{
    bool answered = false;
    wb_set_log(asks_again, &answered);
    wb_get_device(.verbose = true);
    wb_set_log(NULL, NULL);
    assert_true(answered);
}

/* Functions that never fail do not change the thread's error. */
TEST(test_error_stays)
{
    wb__fail(WB_ERROR_SHAPE, "an earlier error");
    wb_shutdown();
    assert_true(wb_functional("CPU"));
    assert_false(wb_functional("CUDA"));
    wb_get_device();
    wb_gpu_device();
    wb_why_not("CUDA");
    wb_gpu_backend();
    assert_string_equal(wb_error(), "an earlier error (W0200)");
    assert_int_equal(wb_error_code(), WB_ERROR_SHAPE);
    wb_clear_error();
}

/* Every allocation fails once: functions that never fail still return a result, and the next calls
 * return the right one. */
TEST(test_memory)
{
    wb_shutdown();
    const int64_t held = wb_memory_used();
    for (int n = 1; n <= 6; n++) {
        wb__device_forget();
        wb__alloc_fail_at(n);
        const wb_device *d = wb_get_device();
        wb_device_list list = wb_devices("CPU");
        const wb_device *at = wb_device_at("CPU", 0);
        wb__alloc_fail_at(0);
        assert_ptr_equal(d, wb_cpu_device());
        if (list.n) assert_int_equal(list.n, 1);
        if (!at) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb_clear_error();
        assert_int_equal(wb_devices("CPU").n, 1);
        assert_ptr_equal(wb_device_at("CPU", 0), wb_cpu_device());
        wb_shutdown();
        assert_int_equal(wb_memory_used(), held);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "script")) return device_script(argc - 2, argv + 2);
    return run_cases_each(make_folder, remove_folder);
}
