/* The overhead of a GPU backend relative to the CPU and to its driver.  Both sides are measured
 * alternately in one run.
 *
 *   device_bench [BACKEND [ROUNDS]]        OpenCL, 9 rounds
 *
 * 1. bandwidth: a chain of elementwise operations over 64 MiB and 256 MiB, fused into one kernel,
 *    on the CPU and on the device: bytes read and written per second, and the ratio (median of
 *    the rounds).  On PoCL both are the same processor.
 * 2. host: a compiled function of many tiny kernels, in microseconds per kernel, and a bare loop of
 *    the driver's enqueue calls with a kernel of the same size (OpenCL only). */
#include "backend/opencl/cl.h"
#include "base/base.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 101, KERNELS = 256 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

static void must(bool good)
{
    if (good) return;
    fprintf(stderr, "%s\n", wb_error());
    exit(1);
}

/* ---- bandwidth ------------------------------------------------------------------------------- */

static int chain(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = wb_relu(wb_add(wb_mul(in[0], wb_scalar(1.5)), in[1]));
    out[0] = wb_sub(wb_mul(out[0], in[0]), wb_scalar(0.25));
    return out[0] ? 1 : -1;
}

typedef struct {
    const wb_device *device;
    wb_compiled *step;
    wb_tensor *in[2];
} side;

static side side_on(const wb_device *d, int64_t n)
{
    side s = {.device = d, .step = wb_compile(chain, NULL)};
    wb_seed(1);
    wb_tensor *x = wb_rand(n), *y = wb_rand(n);
    must(x && y && !wb_eval(x, y));
    s.in[0] = wb_to(x, d);
    s.in[1] = wb_to(y, d);
    must(s.in[0] && s.in[1]);
    return s;
}

static double seconds_of(side *s)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *out;
    double start = wb__now();
    must(!wb_call_compiled(s->step, 2, s->in, 1, &out) && !wb_synchronize(s->device));
    double took = wb__now() - start;
    wb_scope_close(scope);
    return took;
}

static void bandwidth(const wb_device *device, int64_t bytes, int rounds)
{
    wb_scope *scope = wb_scope_open();
    side cpu = side_on(wb_cpu_device(), bytes / 4), gpu = side_on(device, bytes / 4);
    double on_cpu[MOST_ROUNDS], on_gpu[MOST_ROUNDS], ratio[MOST_ROUNDS];
    for (int i = 0; i < 3; i++) seconds_of(&cpu), seconds_of(&gpu);
    for (int i = 0; i < rounds; i++) {
        on_cpu[i] = 3e-9 * (double)bytes / seconds_of(&cpu);
        on_gpu[i] = 3e-9 * (double)bytes / seconds_of(&gpu);
        ratio[i] = on_gpu[i] / on_cpu[i];
    }
    printf("elementwise chain, %lld MiB a tensor: CPU %.1f GB/s, %s %.1f GB/s, ratio %.2f\n",
           (long long)(bytes >> 20), median(on_cpu, rounds), wb_device_describe(device),
           median(on_gpu, rounds), median(ratio, rounds));
    wb_scope_close(scope);
}

/* ---- overhead on the host -------------------------------------------------------------------- */

static int many_kernels(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    (void)ctx;
    out[0] = in[0];
    for (int i = 0; i < KERNELS; i++) out[0] = wb_take(out[0], in[1]);
    return out[0] ? 1 : -1;
}

typedef struct {
    wb__cl_functions cl;
    cl_command_queue queue;
    cl_kernel kernel;
} bare;

static bool open_driver(wb__cl_functions *cl)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) return false;
#define OPEN(type, name, parameters) *(void **)&cl->name = dlsym(library, "cl" #name);
    WB__CL_FUNCTIONS(OPEN)
    return true;
}

/* Only the driver: a queue, and a kernel that copies 16 numbers.  false: not available. */
static bool bare_driver(bare *b, int ordinal)
{
    static const char *text =
        "__kernel void copy(__global const float *x, __global float *y)"
        "{ uint i = (uint)get_global_id(0); if (i < 16u) y[i] = x[i]; }";
    wb__cl_functions *cl = &b->cl;
    cl_platform_id platform;
    cl_device_id devices[16];
    cl_uint n = 0;
    cl_int e = 0;
    if (!open_driver(cl) || cl->GetPlatformIDs(1, &platform, NULL) ||
        cl->GetDeviceIDs(platform, 0xFFFFFFFF, 16, devices, &n) || (cl_uint)ordinal >= n)
        return false;
    cl_context context = cl->CreateContext(NULL, 1, &devices[ordinal], NULL, NULL, &e);
    b->queue = cl->CreateCommandQueue(context, devices[ordinal], 0, &e);
    cl_program program = cl->CreateProgramWithSource(context, 1, &text, NULL, &e);
    if (cl->BuildProgram(program, 1, &devices[ordinal], "", NULL, NULL)) return false;
    b->kernel = cl->CreateKernel(program, "copy", &e);
    cl_mem x = cl->CreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &e),
           y = cl->CreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &e);
    return !e && !cl->SetKernelArg(b->kernel, 0, sizeof x, &x) &&
           !cl->SetKernelArg(b->kernel, 1, sizeof y, &y);
}

static double bare_seconds(const bare *b)
{
    const size_t global = 256, local = 256;
    double start = wb__now();
    for (int i = 0; i < KERNELS; i++)
        b->cl.EnqueueNDRangeKernel(b->queue, b->kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    b->cl.Finish(b->queue);
    return wb__now() - start;
}

static void host(const wb_device *device, int rounds)
{
    bare b;
    if (!bare_driver(&b, wb_device_ordinal(device))) {
        printf("host: the driver cannot be asked by itself\n");
        return;
    }
    wb_scope *scope = wb_scope_open();
    side s = {.device = device, .step = wb_compile(many_kernels, NULL)};
    s.in[0] = wb_to(wb_rand(4, 4), device);
    s.in[1] = wb_to(wb_from((int32_t[]){3, 0, 1, 2}, WB_I32, 1, (int64_t[]){4}), device);
    must(s.in[0] && s.in[1]);
    double ours[MOST_ROUNDS], bare_loop[MOST_ROUNDS], more[MOST_ROUNDS];
    for (int i = 0; i < 3; i++) seconds_of(&s), bare_seconds(&b);
    for (int i = 0; i < rounds; i++) {
        ours[i] = 1e6 * seconds_of(&s) / KERNELS;
        bare_loop[i] = 1e6 * bare_seconds(&b) / KERNELS;
        more[i] = ours[i] - bare_loop[i];
    }
    printf("host, %d kernels: %.2f us a kernel, a bare loop of enqueue calls %.2f us,"
           " %.2f us more\n",
           KERNELS, median(ours, rounds), median(bare_loop, rounds), median(more, rounds));
    wb_scope_close(scope);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "OpenCL";
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    rounds = WB__MAX(1, WB__MIN(rounds, MOST_ROUNDS));
    wb_using(name);
    const wb_device *device = wb_device_at(name, 0);
    must(device != NULL);
    bandwidth(device, 64 << 20, rounds);
    bandwidth(device, 256 << 20, rounds);
    if (!strcmp(name, "OpenCL")) host(device, 3 * rounds);
    wb_shutdown();
    return 0;
}
