/* Steps: compiled when a plan is made, launched at every run.  A launch looks nothing up and
 * allocates nothing; arguments are set where they differ from those of the launch before. */
#include "backend/opencl/opencl.h"

#include "backend/kinds.h"

#include <string.h>

/* One launch of a step, and the arguments that its kernel has now. */
typedef struct {
    const wb__gpu_launch *launch;
    wb__gpu_program *program;
    cl_kernel kernel;
    cl_uint dims;
    size_t global[3], local[3];
    bool changes;               /* the struct of arguments differs from launch to launch */
    bool set;                   /* it was set */
    unsigned char *args, *next; /* as it was set; as it will be */
    uint64_t *serial;           /* of the memory of each buffer; 0: none was set */
} part;

struct wb__cl_kernel {
    wb__kernel base;
    bool blast;                 /* a product by CLBlast comes first */
    wb__cl_product product;
    wb__gpu_work *work;         /* NULL: none */
    int n;
    part parts[];
};

/* ---- preparing ------------------------------------------------------------------------------- */

static void set_sizes(part *p)
{
    const wb__gpu_launch *l = p->launch;
    p->dims = 1;
    for (cl_uint i = 0; i < 3; i++) {
        p->local[i] = l->items[i];
        p->global[i] = (size_t)l->groups[i] * l->items[i];
        if (p->global[i] > 1) p->dims = i + 1;
    }
}

/* A kernel may be allowed fewer items than the device. */
static int check_items(wb__cl_device *d, const part *p)
{
    size_t most = 0;
    const size_t items = p->local[0] * p->local[1] * p->local[2];
    const char *entry = p->launch->entry;
    const cl_int code = cl.GetKernelWorkGroupInfo(p->kernel, d->id, CL_KERNEL_WORK_GROUP_SIZE,
                                                  sizeof most, &most, NULL);
    if (code) return wb__cl_fail(d, "clGetKernelWorkGroupInfo", code, "kernel %s", entry);
    if (items <= most) return 0;
    return wb__fail(WB_ERROR_DEVICE, "opencl:%d: kernel %s wants %zu items in a group; %s allows"
                    " it %zu", d->base.ordinal, entry, items, d->name, most);
}

static int prepare_part(wb__cl_device *d, part *p, const wb__gpu_launch *l)
{
    cl_int code = 0;
    p->launch = l;
    p->changes = l->n_numbers || l->n_origins || l->workspace_at >= 0;
    p->args = wb__alloc_zero(2 * l->args_bytes + 1, 1);
    p->serial = wb__alloc_zero((size_t)l->n_buffers + 1, sizeof *p->serial);
    if (!p->args || !p->serial) return WB_ERROR_MEMORY;
    p->next = p->args + l->args_bytes;
    set_sizes(p);
    p->program = wb__gpu_program_get(&d->programs, l->text, l->f64);
    if (!p->program) return wb_error_code();
    p->kernel = cl.CreateKernel(p->program->made, l->entry, &code);
    if (!code) return check_items(d, p);
    p->kernel = NULL;
    return wb__cl_fail(d, "clCreateKernel", code, "kernel %s", l->entry);
}

static wb__instr instruction(wb_dtype t, wb__instr_kind kind, wb__op op, int a, int b, int arg)
{
    return (wb__instr){.kind = (uint8_t)kind, .reg = t == WB_F64 ? WB__REG_F64 : WB__REG_F32,
                       .level = WB__LEVEL_FULL, .dtype = (uint8_t)t, .op = (uint16_t)op, .a = a,
                       .b = b, .c = -1, .arg = arg};
}

/* What is done to a product in place when it is there: c = act(c + bias). */
static int prepare_epilogue(wb__cl_device *d, const wb__step *step, wb__gpu_work **work)
{
    const wb__view *c = &step->views[2], *bias = step->n_views > 3 ? &step->views[3] : NULL;
    wb__view views[2] = {*c, *c};
    wb__instr program[5];
    int n = 0;
    program[n++] = instruction(c->dtype, WB__LOAD, 0, -1, -1, 0);
    if (bias) {
        views[1].buffer = bias->buffer;
        views[1].offset = bias->offset;
        views[1].granule = bias->granule;
        memset(views[1].strides, 0, sizeof views[1].strides);
        views[1].strides[c->ndim - 1] = bias->strides[0];
        program[n++] = instruction(c->dtype, WB__LOAD, 0, -1, -1, 1);
        program[n++] = instruction(c->dtype, WB__ROW, WB__OP_add, 0, 1, 0);
    }
    if (step->epilogue) {
        program[n] = instruction(c->dtype, WB__ROW, step->epilogue, n - 1, -1, 0);
        n++;
    }
    program[n] = instruction(c->dtype, WB__STORE, 0, n - 1, -1, 0);
    wb__space space = {.ndim = c->ndim, .col_dims = c->ndim};
    memcpy(space.dims, c->dims, sizeof space.dims);
    const wb__step pass = {.kind = WB__STEP_FUSED,
                           .fused = {.n_instr = n + 1, .n_views = bias ? 2 : 1, .n_segments = 1,
                                     .instr = program, .spaces = &space, .views = views}};
    return wb__gpu_step(&d->target, &pass, work);
}

static int prepare_parts(wb__cl_device *d, const wb__step *step, wb__cl_kernel **kernel)
{
    wb__gpu_work *work = NULL;
    wb__cl_product product = {0};
    const char *why = NULL;
    if (wb__step_is_special(step))
        return wb__fail(WB_ERROR_UNSUPPORTED, "opencl:%d: no kernel has epilogue %d with sums %d",
                        d->base.ordinal, step->aux_kind, step->sums_of);
    const bool blast = wb__cl_blast_takes(d, step, &product, &why);
    int status = !blast ? wb__gpu_step(&d->target, step, &work)
               : step->n_views > 3 || step->epilogue ? prepare_epilogue(d, step, &work) : 0;
    if (status) return status;
    const int n = work ? work->n : 0;
    wb__cl_kernel *k = wb__alloc_zero(1, sizeof *k + (size_t)n * sizeof *k->parts);
    if (!k) {
        wb__gpu_work_free(work);
        return WB_ERROR_MEMORY;
    }
    k->blast = blast;
    k->product = product;
    k->work = work;
    k->base.workspace = work ? work->workspace : 0;
    k->base.impl = blast ? "CLBlast" : work->impl;
    k->base.why = why;
    k->n = n;
    for (int i = 0; i < n && !status; i++)
        status = prepare_part(d, &k->parts[i], &work->launch[i]);
    *kernel = k;
    return status;
}

int wb__cl_prepare(const wb_device *base, const wb__step *step, wb__kernel **kernel)
{
    wb__cl_device *d = base->state;
    wb__cl_kernel *k = NULL;
    *kernel = NULL;
    if (wb__cl_check_fork() || wb__cl_open(d)) return wb_error_code();
    const int status = prepare_parts(d, step, &k);
    if (k) d->kernels++;
    if (status) wb__cl_destroy(base, k ? &k->base : NULL);
    else *kernel = &k->base;
    return status;
}

void wb__cl_destroy(const wb_device *base, wb__kernel *kernel)
{
    wb__cl_device *d = base->state;
    wb__cl_kernel *k = (wb__cl_kernel *)kernel;
    if (!k || wb__cl_is_child()) return;
    d->kernels--;
    for (int i = 0; i < k->n; i++) {
        part *p = &k->parts[i];
        if (p->kernel) cl.ReleaseKernel(p->kernel);
        wb__gpu_program_put(&d->programs, p->program);
        wb__free(p->args);
        wb__free(p->serial);
    }
    wb__gpu_work_free(k->work);
    wb__free(k);
}

/* ---- launching ------------------------------------------------------------------------------- */

static wb__cl_memory *buffer_of(const wb__gpu_launch *l, int i, void *const *buffers,
                                void *workspace)
{
    return l->buffer[i] == WB__GPU_WORKSPACE ? workspace : buffers[l->buffer[i]];
}

static int set_failed(wb__cl_device *d, const part *p, int argument, cl_int code)
{
    return wb__cl_fail(d, "clSetKernelArg", code, "kernel %s, argument %d", p->launch->entry,
                       argument);
}

static int set_struct(wb__cl_device *d, part *p, const size_t *places, size_t workspace_at,
                      const wb__number *numbers)
{
    const wb__gpu_launch *l = p->launch;
    wb__gpu_fill(l, numbers, places, workspace_at, p->next);
    if (p->set && !memcmp(p->next, p->args, l->args_bytes)) return 0;
    const cl_int code =
        cl.SetKernelArg(p->kernel, (cl_uint)l->n_buffers, l->args_bytes, p->next);
    if (code) return set_failed(d, p, l->n_buffers, code);
    memcpy(p->args, p->next, l->args_bytes);
    p->set = true;
    return 0;
}

static int launch_failed(wb__cl_device *d, const char *call, const part *p, cl_int code)
{
    const wb__gpu_launch *l = p->launch;
    return wb__cl_fail(d, call, code, "kernel %s, %u x %u x %u groups of %u x %u x %u items",
                       l->entry, l->groups[0], l->groups[1], l->groups[2], l->items[0],
                       l->items[1], l->items[2]);
}

/* With the lock. */
static int launch_part(wb__cl_device *d, part *p, void *const *buffers, const size_t *places,
                       void *workspace, size_t workspace_at, const wb__number *numbers)
{
    const wb__gpu_launch *l = p->launch;
    cl_int code = 0;
    const uint64_t next = d->issued + 1;
    for (int i = 0; i < l->n_buffers; i++) {
        wb__cl_memory *m = buffer_of(l, i, buffers, workspace);
        m->used = next;
        if (m->serial == p->serial[i]) continue;
        code = cl.SetKernelArg(p->kernel, (cl_uint)i, sizeof m->mem, &m->mem);
        if (code) return set_failed(d, p, i, code);
        p->serial[i] = m->serial;
    }
    if (p->changes || !p->set) {
        const int status = set_struct(d, p, places, workspace_at, numbers);
        if (status) return status;
    }
    cl_event event = NULL;
    code = cl.EnqueueNDRangeKernel(d->compute, p->kernel, p->dims, NULL, p->global, p->local, 0,
                                   NULL, wb__cl_wants_event(d) ? &event : NULL);
    if (code) return launch_failed(d, "clEnqueueNDRangeKernel", p, code);
    wb__cl_enqueued(d, event);
    if (!d->debug_sync) return 0;
    code = cl.Finish(d->compute);
    return code ? launch_failed(d, "clFinish", p, code) : 0;
}

int wb__cl_launch(const wb_device *base, const wb__kernel *kernel, void *const *buffers,
                  const size_t *places, void *workspace, size_t workspace_at,
                  const wb__number *numbers)
{
    wb__cl_device *d = base->state;
    wb__cl_kernel *k = (wb__cl_kernel *)kernel;
    if (wb__cl_check_fork()) return WB_ERROR_DEVICE;
    pthread_mutex_lock(&d->lock);
    int status = k->blast ? wb__cl_blast_launch(d, &k->product, buffers, places) : 0;
    for (int i = 0; i < k->n && !status; i++)
        status = launch_part(d, &k->parts[i], buffers, places, workspace, workspace_at, numbers);
    pthread_mutex_unlock(&d->lock);
    return status;
}
