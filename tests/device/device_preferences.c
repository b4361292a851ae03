/* LocalPreferences.toml: how it is found, read and written, and how it affects the choice of a
 * device.  Each case runs in a child process, whose whole output is compared. */
#include "folder.h"

#include "base/files/file.h"
#include "device/device.h"
#include "device/registry.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTHING ENVIRONMENT(NULL)
#define BOTH ENVIRONMENT("FAKES=two,one")
#define PREFERS(name) "[Flux]\ngpu_backend = \"" name "\"\n"
#define RESTART "└ Restart your session for this change to take effect!\n"

static process p;

/* Compares what the process printed with patterns, in which '*' matches any text (is_like). */
static void printed(const char *out, const char *err)
{
    if (!is_like(p.err, err)) assert_string_equal(p.err, err);
    if (!is_like(p.out, out)) assert_string_equal(p.out, out);
    assert_int_equal(p.status, 0);
}

static void local(const char *text) { process_file(folder, "LocalPreferences.toml", text); }
static const char *written(void) { return process_text(folder, "LocalPreferences.toml"); }

static const char *below(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make(const char *name)
{
    if (mkdir(below(name), 0777)) fail_msg("%s: %s", below(name), strerror(errno));
}

/* ---- finding --------------------------------------------------------------------------------- */

TEST(test_found_upwards)
{
    make("a");
    make("a/b");
    SCRIPT(&p, below("a/b"), NOTHING, "preference");
    printed("none\n", "");
    local(PREFERS("Metal"));
    SCRIPT(&p, below("a/b"), NOTHING, "preference");
    printed("Metal\n", "");
    process_file(folder, "JuliaLocalPreferences.toml", PREFERS("AMDGPU"));  /* first in a folder */
    SCRIPT(&p, below("a/b"), NOTHING, "preference");
    printed("AMDGPU\n", "");
    process_file(folder, "a/LocalPreferences.toml", PREFERS("OpenCL"));     /* the nearest folder */
    SCRIPT(&p, below("a/b"), NOTHING, "preference");
    printed("OpenCL\n", "");
    process_file(folder, "a/b/Project.toml", "");       /* a project file ends the search */
    SCRIPT(&p, below("a/b"), NOTHING, "preference");
    printed("none\n", "");
}

TEST(test_tables)
{
    local("[LuxDeviceUtils]\ngpu_backend = \"Metal\"\n");
    SCRIPT(&p, folder, NOTHING, "preference");
    printed("Metal\n", "");
    local("[LuxDeviceUtils]\ngpu_backend = \"Metal\"\n[MLDataDevices]\ngpu_backend = \"AMDGPU\"\n");
    SCRIPT(&p, folder, NOTHING, "preference");
    printed("AMDGPU\n", "");
    local("MLDataDevices.gpu_backend = \"AMDGPU\"\nFlux = { gpu_backend = 'CPU' }\n");
    SCRIPT(&p, folder, NOTHING, "preference");
    printed("CPU\n", "");
    local("gpu_backend = \"CUDA\"\n[Flux]\nother = 1\n");
    SCRIPT(&p, folder, NOTHING, "preference");
    printed("none\n", "");
    local("[Flux]\ngpu_backend = ''\n");
    SCRIPT(&p, folder, BOTH, "preference", "get:verbose");
    printed("none\nCPUDevice()\n", "[ Info: Using backend: CPU.\n");
}

/* The file is read once per process; later writes affect the next process. */
TEST(test_read_once)
{
    SCRIPT(&p, folder, NOTHING, "preference", "set:AMDGPU", "preference", "shutdown", "preference");
    printed("none\nok\nnone\nnone\n", "┌ Info: New GPU backend set: AMDGPU.\n" RESTART);
    SCRIPT(&p, folder, NOTHING, "set:Metal", "preference");
    printed("ok\nAMDGPU\n", "┌ Info: New GPU backend set: Metal.\n" RESTART);
    SCRIPT(&p, folder, NOTHING, "preference");
    printed("Metal\n", "");
}

/* ---- obeying --------------------------------------------------------------------------------- */

#define USING(name) "[ Info: Using backend set in preferences: " name ".\n"
#define CHOSE(name) "[ Info: Using backend: " name ".\n"
#define NOT_LOADED(name)                                                                         \
    "┌ Warning: Trying to use backend: " name " but it's trigger package is not loaded.\n"       \
    "└ Please load the package and call this function again to respect the preferences backend:" \
    " wb_using(\"" name "\").\n"

TEST(test_preferred)
{
    local(PREFERS("AMDGPU"));
    SCRIPT(&p, folder, BOTH, "using:CUDA", "using:AMDGPU", "get:verbose", "get", "gpu", "move");
    printed("ok\nok\nAMDGPUDevice(0): Test GPU 0\nAMDGPUDevice(0): Test GPU 0\n"
            "AMDGPUDevice(0): Test GPU 0\ngoes to AMDGPUDevice(0): Test GPU 0 3\n",
            USING("AMDGPU"));
}

TEST(test_not_loaded)
{
    local(PREFERS("AMDGPU"));
    SCRIPT(&p, folder, BOTH, "using:CUDA", "get:verbose", "get");
    printed("ok\nCUDADevice(0): Test GPU 0\nCUDADevice(0): Test GPU 0\n",
            USING("AMDGPU") NOT_LOADED("AMDGPU") CHOSE("CUDA") NOT_LOADED("AMDGPU"));
    SCRIPT(&p, folder, BOTH, "get:verbose", "using:AMDGPU", "get");
    printed("CPUDevice()\nok\nAMDGPUDevice(0): Test GPU 0\n",
            USING("AMDGPU") NOT_LOADED("AMDGPU") CHOSE("CPU"));
    SCRIPT(&p, folder, BOTH, "using:CUDA", "gpu", "reset", "gpu", "move", "gpu");
    printed("ok\nCUDADevice(0): Test GPU 0\nCUDADevice(0): Test GPU 0\n"
            "goes to CUDADevice(0): Test GPU 0 3\nCUDADevice(0): Test GPU 0\n",
            NOT_LOADED("AMDGPU") NOT_LOADED("AMDGPU"));
    SCRIPT(&p, folder, BOTH, "move", "move");
    printed("stays on CPUDevice() 3\nstays on CPUDevice() 3\n",
            "[ Info: The AMDGPU functionality is being called but the backend AMDGPU must be "
            "loaded to access it: wb_using(\"AMDGPU\").\n");
}

TEST(test_not_functional)
{
    const char *const *surroundings = ENVIRONMENT("FAKES=none,one");
    static const char warning[] =
        "┌ Warning: Backend: CUDA from the set preferences is not functional. Defaulting to "
        "automatic device selection.\n"
        "└ CUDA driver not found: libfake.so.1. Install the driver of your GPU.\n";
    char expected[1024];
    local(PREFERS("CUDA"));
    SCRIPT(&p, folder, surroundings, "using:CUDA", "using:AMDGPU", "get:verbose", "gpu", "gpu");
    snprintf(expected, sizeof expected, USING("CUDA") "%s" CHOSE("AMDGPU"), warning);
    printed("ok\nok\nAMDGPUDevice(0): Test GPU 0\nAMDGPUDevice(0): Test GPU 0\n"
            "AMDGPUDevice(0): Test GPU 0\n", expected);
    SCRIPT(&p, folder, surroundings, "using:CUDA", "get");
    printed("ok\nCPUDevice()\n", warning);
    SCRIPT(&p, folder, surroundings, "using:CUDA", "move", "move");
    printed("ok\nstays on CPUDevice() 3\nstays on CPUDevice() 3\n",
            "┌ Info: The CUDA function is being called but CUDA is not functional.\n"
            "└ Defaulting back to the CPU. (No action is required if you want to run on the "
            "CPU).\n");
}

#define NOT_ALLOWED(name)                                                                \
    "┌ Warning: gpu_backend preference is set to " name ", which is not allowed.\n" \
    "└ Defaulting to automatic device selection.\n"

TEST(test_not_allowed)
{
    local(PREFERS("Voodoo"));
    SCRIPT(&p, folder, BOTH, "preference", "get:verbose", "get", "using:CUDA", "get", "move");
    printed("none\nCPUDevice()\nCPUDevice()\nok\nCUDADevice(0): Test GPU 0\n"
            "goes to CUDADevice(0): Test GPU 0 3\n", NOT_ALLOWED("Voodoo") CHOSE("CPU"));
    local("[Flux]\ngpu_backend = [ 3 ]\n");
    SCRIPT(&p, folder, NOTHING, "gpu", "gpu");
    printed("CPUDevice()\nCPUDevice()\n", NOT_ALLOWED("[ 3 ]"));
    local("[Flux.gpu_backend]\n");
    SCRIPT(&p, folder, NOTHING, "move");
    printed("stays on CPUDevice() 3\n", NOT_ALLOWED("a table")
            "[ Info: The CUDA functionality is being called but the backend CUDA must be loaded to "
            "access it: wb_using(\"CUDA\").\n");
}

/* With a preference for the CPU no GPU is used, although one works. */
TEST(test_cpu_preferred)
{
    local(PREFERS("CPU"));
    SCRIPT(&p, folder, BOTH, "using:CUDA", "get:verbose", "gpu", "move", "at:CUDA:1", "gpu:force");
    printed("ok\nCPUDevice()\nCPUDevice()\nstays on CPUDevice() 3\nCUDADevice(1): Test GPU 1\n"
            "error: No functional GPU device found!\n"
            "The gpu_backend preference is CPU: no other backend is used.\n"
            "AMDGPU is not loaded: wb_using(\"AMDGPU\").\n"
            "Metal is not loaded: wb_using(\"Metal\").\n"
            "OpenCL is not loaded: wb_using(\"OpenCL\").\n", USING("CPU"));
}

TEST(test_old_name)
{
    local(PREFERS("AMD"));
    SCRIPT(&p, folder, BOTH, "using:CUDA", "using:AMDGPU", "preference", "get", "get");
    printed("ok\nok\nAMDGPU\nAMDGPUDevice(0): Test GPU 0\nAMDGPUDevice(0): Test GPU 0\n",
            "[ Warning: \"AMD\" backend is deprecated. Please use \"AMDGPU\" instead.\n");
}

/* ---- what is wrong with the file ------------------------------------------------------------- */

TEST(test_malformed)
{
    static const char text[] = "[Flux]\n# remark\ngpu_backend = CUDA\n";
    char where[256], expected[1024];
    snprintf(where, sizeof where, "%s/LocalPreferences.toml:3:15: *value*", folder);
    local(text);
    SCRIPT(&p, folder, BOTH, "get", "preference", "using:AMDGPU", "get");
    snprintf(expected, sizeof expected, "┌ Warning: %s\n"
             "└ Defaulting to automatic device selection.\n", where);
    printed("CPUDevice()\nnone\nok\nAMDGPUDevice(0): Test GPU 0\n", expected);
    char out[1024];
    SCRIPT(&p, folder, BOTH, "set:CUDA", "unset");
    snprintf(out, sizeof out, "error: %s\nerror: %s\n", where, where);
    printed(out, expected);
    assert_string_equal(written(), text);
}

TEST(test_not_a_file)
{
    char out[1024], err[1024];
    const char *path = strdup(below("LocalPreferences.toml"));
    for (int kind = 0; kind < 4; kind++) {      /* a folder, a pipe, an endless file, a long one */
        if (kind == 0) make("LocalPreferences.toml");
        else if (kind == 1) assert_int_equal(mkfifo(path, 0600), 0);
        else if (kind == 2) assert_int_equal(symlink("/dev/zero", path), 0);
        else {
            local("");
            assert_int_equal(truncate(path, (256 << 10) + 1), 0);
        }
        const char *what = kind < 3 ? "*file*" : "*262145*256 KiB*";
        SCRIPT(&p, folder, NOTHING, "get", "set:CUDA");
        snprintf(out, sizeof out, "CPUDevice()\nerror: %s: %s\n", path, what);
        snprintf(err, sizeof err, "┌ Warning: %s: %s\n"
                 "└ Defaulting to automatic device selection.\n", path, what);
        printed(out, err);
        assert_int_equal(remove(path), 0);
    }
    free((char *)(uintptr_t)path);
}

/* ---- writing --------------------------------------------------------------------------------- */

TEST(test_set)
{
    SCRIPT(&p, folder, NOTHING, "set:AMDGPU", "set:AMDGPU", "set:CPU", "set:OpenCL", "set:Voodoo",
           "set:AMD", "set:cuda", "set:");
    printed("ok\nok\nok\nok\n"
#define UNSUPPORTED(name) "error: Unsupported GPU backend: " name ".\n" \
    "Supported backends are: CUDA, AMDGPU, Metal, OpenCL, CPU.\n"
            UNSUPPORTED("Voodoo") UNSUPPORTED("AMD") UNSUPPORTED("cuda") UNSUPPORTED(""),
            "┌ Info: New GPU backend set: AMDGPU.\n" RESTART
            "┌ Info: GPU backend is already set to: AMDGPU.\n└ No need to do anything else.\n"
            "┌ Info: New GPU backend set: CPU.\n" RESTART
            "┌ Info: New GPU backend set: OpenCL.\n" RESTART);
    assert_string_equal(written(), PREFERS("OpenCL"));
}

TEST(test_unset)
{
    SCRIPT(&p, folder, NOTHING, "unset");
    printed("ok\n", "┌ Info: No GPU backend is set.\n└ No need to do anything else.\n");
    assert_string_equal(written(), "");
    local("# mine\n[Flux]\ngpu_backend = \"CUDA\"\nx = 1\n[MLDataDevices]\n"
          "gpu_backend = 'Metal'\n");
    SCRIPT(&p, folder, NOTHING, "unset", "unset");
    char err[1024];
    snprintf(err, sizeof err, "┌ Info: The GPU backend of [Flux] is no longer set; it is now Metal "
             "by [MLDataDevices].\n" RESTART "[ Info: The GPU backend is set to Metal by "
             "[MLDataDevices], which is left alone: %s/LocalPreferences.toml.\n", folder);
    printed("ok\nok\n", err);
    assert_string_equal(written(),
                        "# mine\n[Flux]\nx = 1\n[MLDataDevices]\ngpu_backend = 'Metal'\n");
    local(PREFERS("CUDA"));
    SCRIPT(&p, folder, NOTHING, "unset");
    printed("ok\n", "┌ Info: The GPU backend of [Flux] is no longer set.\n" RESTART);
    assert_string_equal(written(), "[Flux]\n");
}

/* Everything else stays as it was, byte for byte: comments, order, blanks, ends of lines. */
TEST(test_keeps_the_rest)
{
    local("# mine\r\n[b]\r\nz = 1   # last letter\r\na = [ 2,\r\n 1 ]\r\n\r\n[Flux]   \r\n"
          "  gpu_backend='CUDA'# here\r\n[ 'a' ]\r\nx.y=0x1F");
    SCRIPT(&p, folder, NOTHING, "set:Metal");
    assert_string_equal(written(), "# mine\r\n[b]\r\nz = 1   # last letter\r\na = [ 2,\r\n 1 ]\r\n"
                        "\r\n[Flux]   \r\n  gpu_backend=\"Metal\"# here\r\n[ 'a' ]\r\nx.y=0x1F");
}

/* Writing keeps the file's permissions, and a symbolic link remains a link. */
TEST(test_keeps_the_file)
{
    struct stat about;
    char real[300];
    process_file(folder, "real.toml", "[Flux]\n");
    strcpy(real, below("real.toml"));
    assert_int_equal(chmod(real, 0640), 0);
    assert_int_equal(symlink("real.toml", below("LocalPreferences.toml")), 0);
    SCRIPT(&p, folder, NOTHING, "set:Metal");
    assert_int_equal(p.status, 0);
    assert_int_equal(lstat(below("LocalPreferences.toml"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(real, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_string_equal(process_text(folder, "real.toml"), PREFERS("Metal"));
}

/* The preference goes to the file that was found, else to one beside the project file, else to one
 * in the working directory. */
TEST(test_where_it_is_written)
{
    make("a");
    SCRIPT(&p, below("a"), NOTHING, "set:Metal");
    assert_string_equal(written(), PREFERS("Metal"));
    process_file(folder, "JuliaLocalPreferences.toml", "# Julia's\n");
    SCRIPT(&p, below("a"), NOTHING, "set:CUDA");
    assert_string_equal(process_text(folder, "JuliaLocalPreferences.toml"),
                        "# Julia's\n\n" PREFERS("CUDA"));
    assert_string_equal(written(), PREFERS("Metal"));
    assert_string_equal(process_text(folder, "a/LocalPreferences.toml"), "");
}

/* No folder above has a project.  (Skipped where a folder above /tmp has one.) */
TEST(test_without_project)
{
    static const char *const names[] = {"JuliaLocalPreferences.toml", "LocalPreferences.toml",
                                        "Project.toml"};
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        char up[64], top[64];
        snprintf(up, sizeof up, "/tmp/%s", names[i]);
        snprintf(top, sizeof top, "/%s", names[i]);
        if (access(up, F_OK) == 0 || access(top, F_OK) == 0) {
            print_message("SKIP: %s or %s is there\n", up, top);
            skip();
        }
    }
    make("a");
    unlink(below("Project.toml"));
    SCRIPT(&p, below("a"), NOTHING, "preference", "set:Metal");
    printed("none\nok\n", "┌ Info: New GPU backend set: Metal.\n" RESTART);
    assert_string_equal(process_text(folder, "a/LocalPreferences.toml"), PREFERS("Metal"));
}

TEST(test_read_only)
{
    char out[512];
    local("[Flux]\n");
    assert_int_equal(chmod(below("LocalPreferences.toml"), 0444), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    SCRIPT(&p, folder, NOTHING, "nobody", "set:Metal");
    snprintf(out, sizeof out, "error: %s/LocalPreferences.toml: byte 0: cannot be written: "
             "Permission denied\n", folder);
    printed(out, "");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void quiet(wb_log_level level, const char *text, void *context)
{
}

/* In this process: the n-th allocation, or the n-th call for a file, fails while the preference is
 * read and written, for each n.  The file is then the old or the new one, whole; nothing leaks; and
 * the next attempt succeeds. */
static void every_fault(void (*fail_at)(int64_t n), const char *what)
{
    const int64_t held = wb_memory_used();
    int failures = 0;
    for (int n = 1, done = 0; !done; n++) {
        local(PREFERS("CUDA"));
        wb__device_forget();
        wb_clear_error();
        fail_at(n);
        const char *found = wb_gpu_backend();
        int status = wb_set_gpu_backend("Metal");
        fail_at(0);
        if (found) assert_string_equal(found, "CUDA");
        assert_int_equal(status != 0, *wb_error() != 0);
        const char *now = written();
        if (strcmp(now, PREFERS("Metal")) != 0) {
            assert_string_equal(now, PREFERS("CUDA"));
            assert_true(status != 0);
            assert_int_equal(wb_set_gpu_backend("Metal"), 0);
            assert_string_equal(written(), PREFERS("Metal"));
        }
        done = found && !status;
        failures += !done;
        assert_int_equal(wb_memory_used(), held);
        if (n > 1000) fail_msg("%s: no end", what);
    }
    print_message("%d %s failed\n", failures, what);
    assert_true(failures >= 5);
}

TEST(test_faults)
{
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    wb_set_log(quiet, NULL);
    wb_gpu_backend();
    every_fault(wb__alloc_fail_at, "allocations");
    every_fault(wb__io_fail_at, "calls for files");
    wb_set_log(NULL, NULL);
    wb_clear_error();
    assert_int_equal(chdir(here), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "script")) return device_script(argc - 2, argv + 2);
    return run_cases_each(make_folder, remove_folder);
}
