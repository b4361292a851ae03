/* WEBER_DEBUG: the output of each topic, and no other output.  The variable is read once per
 * process, so each test runs in a child process. */
#include "reference.h"

#include "tests/doubles/opencl_double.h"
#include "process.h"
#include "weber/device.h"

#include <unistd.h>

static process p;
static bool have_opencl;

/* ---- the program whose log is read ----------------------------------------------------------- */

static int step_on(const wb_device *d)
{
    float y[6], half[8], quarter[12];
    for (int i = 0; i < 12; i++) half[i % 8] = 0.5f, quarter[i] = 0.25f;
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_to(wb_from(half, WB_F32, 2, (int64_t[]){2, 4}), d);
    wb_tensor *w = wb_to(wb_from(quarter, WB_F32, 2, (int64_t[]){4, 3}), d);
    int status = !x || !w || wb_copy_out(wb_exp(wb_matmul(x, w)), y, sizeof y);
    if (wb_scope_close(s) || status) return 1;
    for (int i = 0; i < 6; i++)
        if (fabsf(y[i] - expf(0.5f)) > 1e-6f) return 2;
    return 0;
}

/* The first call of the driver fails, then only the second, and so on, until the error is one of
 * waiting for a kernel, or until no call is left to fail and ten runs have succeeded. */
static int fail_in_turn(void)
{
    for (int n = 1, working = 0; working < 10; n++) {
        char text[16];
        snprintf(text, sizeof text, "%d", n);
        setenv(FAIL, text, 1);
        wb_clear_error();
        const wb_device *d = wb_device_at("OpenCL", 0);
        working = d && !step_on(d) ? working + 1 : 0;
        if (!working && strstr(wb_error(), "clFinish") && strstr(wb_error(), "groups of")) {
            puts(wb_error());
            return 0;
        }
        wb_shutdown();
    }
    puts("no kernel was waited for");
    return 0;
}

static int watched(const char *name, bool failing)
{
    if (!strcmp(name, "CPU")) return step_on(wb_cpu_device());
    if (failing) open_double();
    if (wb_using(name)) return 3;
    if (failing) return fail_in_turn();
    const wb_device *d = wb_device_at(name, 0);
    return d ? step_on(d) : 4;
}

/* ---- what is logged -------------------------------------------------------------------------- */

static const char *run(const char *topics, const char *backend, const char *how)
{
    static char debug[64];
    snprintf(debug, sizeof debug, "WEBER_DEBUG=%s", topics);
    process_run(&p, "/", ENVIRONMENT(debug),
                (const char *const[]){process_self(), "watched", backend, how, NULL});
    if (p.status) fail_msg("%s on %s: status %d\n%s", topics, backend, p.status, p.err);
    return p.err;
}

static void logs(const char *part)
{
    if (!strstr(p.err, part)) fail_msg("\"%s\" is not in the log:\n%s", part, p.err);
}

TEST(topics_of_the_cpu)
{
    assert_string_equal(run("", "CPU", ""), "");
    assert_string_equal(run("kernel,sync,load", "CPU", ""), "");
    run("plan", "CPU", "");
    logs("plan: ");
    logs("matmul   [2,3]");
    logs(", 48 FLOP");                  /* 2 x 4 by 4 x 3 */
    logs("  reads ");
    assert_null(strstr(p.err, "dispatch: "));
    run("stages", "CPU", "");
    logs("Debug: graph:");
    logs("Debug: values:");
    logs("matmul         [2,3] f32  of v");
    logs("Debug: groups:");
    logs("Debug: memory:");
    logs(" bytes in result 0");
    run("dispatch", "CPU", "");
    logs("[ Debug: dispatch: cpu:0: matmul   [2,3]");
    assert_null(strstr(p.err, "plan: "));
    run("all", "CPU", "");
    logs("plan: ");
    logs("dispatch: ");
}

TEST(topics_of_opencl)
{
    if (!have_opencl) skip();
    assert_string_equal(run("", "OpenCL", ""), "");
    run("load", "OpenCL", "");
    logs("[ Debug: load: opencl:0: ");
    logs("[ Debug: load: OpenCL: ");
    run("plan", "OpenCL", "");
    logs("plan: ");
    run("dispatch", "OpenCL", "");
    logs("[ Debug: dispatch: opencl:0: matmul   [2,3]");
    logs("CLBlast");                    /* the library that is used, or the reason it is not */
    assert_null(strstr(p.err, "KERNEL"));
    run("kernel", "OpenCL", "");
    logs("Debug: kernel: opencl:0: -cl-std=CL1.2");
    logs("KERNEL ");
    logs("Debug: kernel: opencl:0: step matmul [2,4] f32");
    logs("; text ");
    assert_null(strstr(p.err, "dispatch: "));
}

/* With `sync` each launch waits, so an error of the device names the kernel that caused it; without
 * it no launch waits. */
TEST(sync_waits_for_each_kernel)
{
    if (!have_opencl) skip();
    run("sync", "OpenCL", "failing");
    if (!strstr(p.out, "opencl:0: clFinish: CL_OUT_OF_RESOURCES (-5): ") ||
        !strstr(p.out, ": kernel "))
        fail_msg("%s", p.out);
    run("", "OpenCL", "failing");
    assert_string_equal(p.out, "no kernel was waited for\n");
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "watched")) {
        const int status = watched(argv[2], *argv[3]);
        wb_shutdown();
        return status;
    }
    have_opencl = !wb_using("OpenCL") && wb_functional("OpenCL");
    if (!have_opencl) printf("without OpenCL: %s\n", wb_why_not("OpenCL"));
    wb_clear_error();
    return run_all_cases();
}
