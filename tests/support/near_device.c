/* See near_device.h. */
#include "near_device.h"

#include "attention_reference.h"
#include "row_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static unsigned allowed;
static int counts[NEAR_KINDS];
static char steps[4096];
static size_t n_steps;
static wb__backend backend;

static bool own(const wb__step *s)
{
    return s->kind == WB__STEP_ATTENTION ||
           wb__step_is_special(s);
}

/* The NEAR_... kind of a step's epilogue and aux operand; 0: none, or none of these kinds. */
static int kind_of(const wb__step *s)
{
    static const struct { wb__op op; wb__aux aux; int kind; } names[] = {
        {WB__OP_relu, WB__AUX_NONE, NEAR_RELU}, {WB__OP_tanh, WB__AUX_NONE, NEAR_TANH},
        {WB__OP_sigmoid, WB__AUX_NONE, NEAR_SIGMOID}, {WB__OP_gelu, WB__AUX_NONE, NEAR_GELU},
        {WB__OP_gelu, WB__AUX_OPERAND, NEAR_GELU_AUX}, {WB__OP_relu, WB__AUX_SIGNS, NEAR_RELU_AUX},
        {WB__OP_gelu_slope, WB__AUX_FACTOR, NEAR_GELU_GRAD},
        {WB__OP_relu, WB__AUX_MASK, NEAR_RELU_GRAD}, {WB__OP_NONE, WB__AUX_ADDEND, NEAR_ADDEND}};
    for (size_t i = 0; i < WB__COUNT(names); i++)
        if (names[i].op == s->epilogue && names[i].aux == s->aux_kind) return names[i].kind;
    return 0;
}

/* The NEAR_... kind of a step's sums; 0: sums of the result, or none. */
static int sums_bit(const wb__step *s)
{
    return s->sums_of == WB__SUMS_OF_A   ? NEAR_SUMS_OF_A
           : s->sums_of == WB__SUMS_OF_B ? NEAR_SUMS_OF_B
                                         : 0;
}

static wb__step asked;
static bool near_supports(const wb_device *d, const wb__step *s)
{
    asked = *s;
    (void)d;
    if (s->kind == WB__STEP_ATTENTION)
        return allowed >> NEAR_ATTENTION & 1 && s->views[0].dtype == WB_F32;
    if (s->kind != WB__STEP_MATMUL || s->views[2].ndim != 2) return false;
    if (s->sums_of && !(allowed >> sums_bit(s) & 1)) return false;
    const int kind = kind_of(s);
    return kind >= NEAR_GELU ? allowed >> kind & 1 : !s->aux_kind && s->sums_of;
}

/* ---- products -------------------------------------------------------------------------------- */

static unsigned char *at(const wb__view *v, void *const *buffers, int64_t i, int64_t j)
{
    const int64_t element = v->offset + i * v->strides[0] + (v->ndim > 1 ? j * v->strides[1] : 0);
    return (unsigned char *)buffers[v->buffer] + (size_t)element * wb__dtype_size(v->dtype);
}

static double get(const wb__view *v, void *const *buffers, int64_t i, int64_t j)
{
    double x;
    wb__convert(&x, WB_F64, at(v, buffers, i, j), v->dtype, 1);
    return x;
}

static void put(const wb__view *v, void *const *buffers, int64_t i, int64_t j, double x)
{
    wb__convert(at(v, buffers, i, j), v->dtype, &x, WB_F64, 1);
}

/* The epilogue of element [i, j], whose sum is z. */
static double epilogue(const wb__step *s, void *const *buffers, int64_t i, int64_t j, double z)
{
    const bool has_bits = s->aux_kind == WB__AUX_SIGNS || s->aux_kind == WB__AUX_MASK;
    unsigned char *bits = has_bits ? at(&s->aux, buffers, i, j / 8) : NULL;
    const unsigned char bit = (unsigned char)(1 << j % 8);
    switch (s->aux_kind) {
    case WB__AUX_FACTOR: return z * row_value(s->epilogue, get(&s->aux, buffers, i, j));
    case WB__AUX_MASK: return *bits & bit ? z : 0;
    case WB__AUX_ADDEND: return z + get(&s->aux, buffers, i, j);
    case WB__AUX_OPERAND: put(&s->aux, buffers, i, j, z); break;
    case WB__AUX_SIGNS: *bits = (unsigned char)(z > 0 ? *bits | bit : *bits & ~bit); break;
    case WB__AUX_NONE: break;
    }
    return row_value(s->epilogue, z);
}

static void product(const wb__step *s, void *const *buffers)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    for (int64_t j = 0; j < c->dims[1]; j++) {
        double sum = 0;
        for (int64_t i = 0; i < c->dims[0]; i++) {
            double z = s->n_views > 3 ? get(&s->views[3], buffers, j, 0) : 0;
            for (int64_t p = 0; p < a->dims[1]; p++)
                z += get(a, buffers, i, p) * get(b, buffers, p, j);
            put(c, buffers, i, j, epilogue(s, buffers, i, j, z));
            sum += get(c, buffers, i, j);
        }
        if (s->sums_of == WB__SUMS_OF_C) put(&s->sums, buffers, j, 0, sum);
    }
    for (int64_t i = 0; s->sums_of == WB__SUMS_OF_A && i < a->dims[0]; i++) {
        double sum = 0;
        for (int64_t p = 0; p < a->dims[1]; p++) sum += get(a, buffers, i, p);
        put(&s->sums, buffers, i, 0, sum);
    }
    for (int64_t j = 0; s->sums_of == WB__SUMS_OF_B && j < b->dims[1]; j++) {
        double sum = 0;
        for (int64_t p = 0; p < b->dims[0]; p++) sum += get(b, buffers, p, j);
        put(&s->sums, buffers, j, 0, sum);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void copy_head(const wb__view *v, void *const *buffers, int64_t n, int64_t h, double *x,
                      bool out)
{
    const wb__view head = {.dtype = v->dtype, .buffer = v->buffer, .ndim = 2,
                           .offset = v->offset + n * v->strides[0] + h * v->strides[1],
                           .strides = {v->strides[2], v->strides[3]}};
    for (int64_t i = 0; i < v->dims[2]; i++)
        for (int64_t j = 0; j < v->dims[3]; j++) {
            double *to = &x[i * v->dims[3] + j];
            if (out) put(&head, buffers, i, j, *to);
            else *to = get(&head, buffers, i, j);
        }
}

/* NaN, which is added to the gradients, if an operand of the backward pass (o or lse) is not the
 * result of the forward pass; else 0. */
static double nan_if_wrong(const wb__view *v, const double *given, const double *right)
{
    for (int64_t i = 0; i < v->dims[2] * v->dims[3]; i++)
        if (!(fabs(given[i] - right[i]) <= 1e-4 * (1 + fabs(right[i])))) return NAN;
    return 0;
}

static void attention(const wb__step *s, void *const *buffers)
{
    const int64_t *q = s->views[0].dims, *v = s->views[2].dims;
    const attention_shape shape = {q[2], v[2], q[3], v[3], s->attention.scale, s->attention.causal};
    const int results = s->n_views == ATTENTION_VIEWS ? ATTENTION_DQ : ATTENTION_O;
    const int64_t size = WB__MAX(q[2], v[2]) * WB__MAX(q[3], v[3]);
    double *all = calloc((size_t)(11 * size), sizeof *all), *view[ATTENTION_VIEWS] = {NULL};
    if (!all) abort();
    for (int64_t z = 0; z < q[0] * q[1]; z++) {
        for (int i = 0; i < s->n_views; i++) {
            view[i] = all + i * size;
            if (i < results) copy_head(&s->views[i], buffers, z / q[1], z % q[1], view[i], false);
        }
        double *o = all + 9 * size, *lse = all + 10 * size, bad = 0;
        memcpy(o, view[ATTENTION_O], (size_t)size * sizeof *o);
        memcpy(lse, view[ATTENTION_LSE], (size_t)size * sizeof *lse);
        attention_head(&shape, view);
        if (results == ATTENTION_DQ)
            bad = nan_if_wrong(&s->views[ATTENTION_O], o, view[ATTENTION_O]) +
                  nan_if_wrong(&s->views[ATTENTION_LSE], lse, view[ATTENTION_LSE]);
        view[results][0] += bad;
        for (int i = results; i < s->n_views; i++)
            copy_head(&s->views[i], buffers, z / q[1], z % q[1], view[i], true);
    }
    free(all);
}

/* ---- injected failures ----------------------------------------------------------------------- */

static int one_in_declines, one_in_refuses, n_declined, n_refused;
static unsigned decline_seed;
static uint32_t refused_before[4096];
static int n_refused_before;

void near_decline(int one_in, int refused, unsigned seed)
{
    one_in_declines = one_in;
    one_in_refuses = refused;
    decline_seed = seed;
    n_declined = n_refused = n_refused_before = 0;
}

int near_declined(void) { return n_declined; }
int near_refused(void) { return n_refused; }

/* A hash of a step's problem: the operation and the shapes. */
static uint32_t problem_of(const wb__step *s)
{
    const int what = s->kind * 64 + kind_of(s) * 4 + s->sums_of;
    uint32_t h = decline_seed * 2654435761u + (uint32_t)what;
    for (int i = 0; i < s->n_views; i++)
        for (int k = 0; k < s->views[i].ndim; k++)
            h = (h ^ (uint32_t)s->views[i].dims[k]) * 16777619u;
    return h ^ h >> 15;
}

static bool was_refused(uint32_t problem)
{
    for (int i = 0; i < n_refused_before; i++)
        if (refused_before[i] == problem) return true;
    return false;
}

static bool refuses(const wb__step *s)
{
    const uint32_t problem = problem_of(s);
    if (s->kind == WB__STEP_FUSED || !one_in_refuses || problem / 8 % (uint32_t)one_in_refuses ||
        was_refused(problem) || n_refused_before == (int)WB__COUNT(refused_before))
        return false;
    refused_before[n_refused_before++] = problem;
    n_refused++;
    wb__fail(WB_ERROR_UNSUPPORTED, "the near device refuses a step");
    return true;
}

static bool declines(const wb__step *s)
{
    const uint32_t problem = problem_of(s);
    const bool drawn = one_in_declines && problem % (uint32_t)one_in_declines == 0;
    if (!drawn && !was_refused(problem)) return false;
    n_declined++;
    wb__fail(WB_ERROR_UNSUPPORTED, "the near device declines a step");
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct {
    wb__kernel base;
    wb__kernel *inner;                  /* the CPU's kernel; NULL: computed in this file */
    wb__step step;
} near_kernel;

/* The letter of a step in near_steps */
static char letter_of(wb__step_kind kind)
{
    switch (kind) {
    case WB__STEP_FUSED: return 'f';
    case WB__STEP_MATMUL: return 'm';
    case WB__STEP_CONV: case WB__STEP_COPY: return 'c';
    case WB__STEP_POOL: return 'p';
    case WB__STEP_GATHER: return 't';
    case WB__STEP_SCATTER_ADD: return 'a';
    case WB__STEP_ATTENTION: return 'A';
    default: return 'x';
    }
}

static int near_prepare(const wb_device *d, const wb__step *step, wb__kernel **kernel)
{
    (void)d;
    if (own(step) && declines(step)) return WB_ERROR_UNSUPPORTED;
    near_kernel *k = wb__alloc_zero(1, sizeof *k);
    if (!k) return WB_ERROR_MEMORY;
    k->step = *step;
    if (own(step)) {
        k->base.impl = "plain loops";
    } else {
        const int status = wb__cpu.backend->prepare(&wb__cpu, step, &k->inner);
        if (status) {
            wb__free(k);
            return status;
        }
        k->base = *k->inner;
    }
    if (n_steps + 2 < sizeof steps) {
        steps[n_steps++] = letter_of(step->kind);
        if (step->epilogue || step->sums_of)
            steps[n_steps++] = (char)('0' + kind_of(step) + (step->sums_of ? 32 : 0));
    }
    *kernel = &k->base;
    return 0;
}

static void near_destroy(const wb_device *d, wb__kernel *kernel)
{
    (void)d;
    near_kernel *k = (near_kernel *)kernel;
    if (!k) return;
    if (k->inner) wb__cpu.backend->destroy(&wb__cpu, k->inner);
    wb__free(k);
}

static int near_launch(const wb_device *d, const wb__kernel *kernel, void *const *buffers,
                       const size_t *offsets, void *workspace, size_t workspace_at,
                       const wb__number *numbers)
{
    (void)d;
    const near_kernel *k = (const near_kernel *)kernel;
    if (refuses(&k->step)) return WB_ERROR_UNSUPPORTED;
    if (kind_of(&k->step)) counts[kind_of(&k->step)]++;
    if (k->inner)
        return wb__cpu.backend->launch(&wb__cpu, k->inner, buffers, offsets, workspace,
                                       workspace_at, numbers);
    if (k->step.sums_of) counts[sums_bit(&k->step)]++;
    if (k->step.kind == WB__STEP_ATTENTION) {
        counts[NEAR_ATTENTION]++;
        attention(&k->step, buffers);
    } else {
        product(&k->step, buffers);
    }
    return 0;
}

/* ---- the device ------------------------------------------------------------------------------ */

static int near_count_devices(void) { return 1; }
static const wb_device *near_at(int ordinal) { return ordinal ? NULL : near_device(); }

const wb_device *near_device(void)
{
    static const wb_device device = {
        .kind = wb__device_kind, .backend = &backend, .name = "a near device"};
    if (backend.name) return &device;
    backend = wb__cpu_backend;
    backend.name = "Near";
    backend.tag = "near";
    backend.count = near_count_devices;
    backend.device = near_at;
    backend.prepare = near_prepare;
    backend.destroy = near_destroy;
    backend.launch = near_launch;
    backend.supports = near_supports;
    backend.packed_bytes = NULL;
    backend.prepare_form = NULL;
    return &device;
}

void near_allow(unsigned kinds) { allowed = kinds; }
const wb__step *near_asked(void) { return &asked; }
void near_ask(bool asked) { backend.supports = asked ? near_supports : NULL; }
int near_count(int kind) { return counts[kind]; }
const char *near_steps(void) { return steps; }

void near_forget(void)
{
    memset(counts, 0, sizeof counts);
    memset(steps, 0, sizeof steps);
    n_steps = 0;
}
