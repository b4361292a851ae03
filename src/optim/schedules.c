/* Schedules: functions of the step, with the formulas of ParameterSchedulers.jl. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { SCHEDULE_NUMBERS = 5, SCHEDULE_DEEPEST = 64 };

/* A kind of schedule with n numbers.  `at` returns the value in step t from the numbers k.  Numbers
 * whose bit in `positive` is set must be positive, others finite. */
typedef struct {
    const char *name;
    int n, positive;                    /* count of the numbers; bits of those that are positive */
    double (*at)(const double *k, double t);
} schedule_kind;

struct wb_schedule {
    wb__object object;
    const schedule_kind *kind;
    double number[SCHEDULE_NUMBERS];
    int n, n_steps, depth;              /* depth: levels of schedules inside */
    wb_schedule **of;                   /* the n schedules that this one is made of (references) */
    int64_t *steps;                     /* the lengths of the n_steps stages */
    double (*f)(double t, void *ctx);   /* the program's function, and its argument */
    void *ctx;
};

/* ---- formulas -------------------------------------------------------------------------------- */

static double schedule_late(const char *name, double t, double last)
{
    wb__fail(WB_ERROR_ARGUMENT, "%s: step %g: its last step is %g: make it longer, or begin "
             "another schedule after it, in a wb_ScheduleSequence", name, t, last);
    return NAN;
}

static double schedule_between(double a, double b, double w) { return fabs(a - b) * w + fmin(a,
                                                                                             b); }

static double schedule_triangle(const double *k, double t)
{
    return 2 / PI * fabs(asin(sin(PI * (t - 1) / k[2])));
}

static double schedule_wave(const double *k, double t) { return fabs(sin(PI * (t - 1) / k[2])); }
static double schedule_halved(const double *k, double t) { return exp2(-floor((t - 1) / k[2])); }
static double schedule_falling(double u, double period) { return (1 + cos(PI * u / period)) / 2; }
/* Returns u modulo the period, at least 0 also for a negative u. */
static double schedule_modulo(double u, double period) { return u - period * floor(u / period); }

static double schedule_constant(const double *k, double t) { return (void)t, k[0]; }
static double schedule_exponential(const double *k, double t) { return k[0] * pow(k[1], t - 1); }
static double schedule_inverse(const double *k, double t) { return k[0] / pow(1 + (t - 1) * k[1],
                                                                              k[2]); }

static double schedule_poly(const double *k, double t)
{
    return t > k[2] ? schedule_late("SchedulePoly", t, k[2]) : k[0] * pow(1 - (t - 1) / k[2], k[1]);
}

static double schedule_warmup(const double *k, double t)
{
    return k[0] + (k[1] - k[0]) * fmin((t - 1) / k[2], 1);
}

#define WAVE(name, w) \
    static double name(const double *k, double t) { return schedule_between(k[0], k[1], (w)); }
WAVE(triangles, schedule_triangle(k, t))
WAVE(triangles_decay2, schedule_triangle(k, t) * schedule_halved(k, t))
WAVE(triangles_exp, schedule_triangle(k, t) * pow(k[3], t - 1))
WAVE(sines, schedule_wave(k, t))
WAVE(sines_decay2, schedule_wave(k, t) * schedule_halved(k, t))
WAVE(sines_exp, schedule_wave(k, t) * pow(k[3], t - 1))
WAVE(cosines, schedule_falling(schedule_modulo(t - 1, k[2]), k[2]))
WAVE(cosine, schedule_falling(t - 1, k[2]))

/* Returns the value of a one-cycle schedule.  k has nsteps, maxval, startval, endval,
 * percent_start. */
static double schedule_cycle(const double *k, double t)
{
    const double up = ceil(k[4] * k[0]), down = k[0] - up;
    if (t > k[0]) return schedule_late("ScheduleOneCycle", t, k[0]);
    return t <= up ? schedule_between(k[2], k[1], schedule_falling(t - 1 + up, up))
                   : schedule_between(k[1], k[3], schedule_falling(t - 1 - up, down));
}

/* Defines a row of a table of kinds.  The further arguments are n, positive, at. */
#define KIND_OF(name, ...) name = {"Schedule" #name, __VA_ARGS__}
static const schedule_kind
    KIND_OF(Constant, 1, 0, schedule_constant), KIND_OF(Step, 2, 0, NULL),
    KIND_OF(Exp, 2, 0, schedule_exponential), KIND_OF(Poly, 3, 4, schedule_poly),
    KIND_OF(Inv, 3, 0, schedule_inverse), KIND_OF(Triangle, 3, 4, triangles),
    KIND_OF(TriangleDecay2, 3, 4, triangles_decay2), KIND_OF(TriangleExp, 4, 4, triangles_exp),
    KIND_OF(Sin, 3, 4, sines), KIND_OF(SinDecay2, 3, 4, sines_decay2),
    KIND_OF(SinExp, 4, 4, sines_exp), KIND_OF(CosAnneal, 3, 4, cosines),
    CosOnce = {"ScheduleCosAnneal", 3, 4, cosine}, KIND_OF(OneCycle, 5, 1, schedule_cycle),
    KIND_OF(Warmup, 3, 4, schedule_warmup), KIND_OF(Sequence, 0, 0, NULL),
    KIND_OF(Loop, 1, 1, NULL), KIND_OF(Interpolator, 1, 1, NULL), KIND_OF(Shifted, 1, 0, NULL),
    KIND_OF(Shortened, 1, 1, NULL), KIND_OF(Composed, 0, 0, NULL),
    Function = {"schedule_from_function", 0, 0, NULL};

/* Whether the numbers are valid for the kind.  If not, sets the error. */
static bool schedule_check(const schedule_kind *k, const double *number)
{
    for (int i = 0; i < k->n; i++)
        if (!isfinite(number[i]) || (k->positive >> i & 1 && !(number[i] > 0)))
            return !wb__fail(WB_ERROR_ARGUMENT, "%s: argument %d is %g; it must be %s", k->name,
                             i + 1, number[i],
                             isfinite(number[i]) ? "positive" : "a finite number");
    return true;
}

/* Returns how many stages ended before step t, and subtracts their lengths from *t.  With
 * `last_goes_on` the last stage never ends. */
static int stages_before(const wb_schedule *s, bool last_goes_on, double *t)
{
    int i = 0;
    for (; i < s->n_steps - last_goes_on && *t > (double)s->steps[i]; i++)
        *t -= (double)s->steps[i];
    return i;
}

static double schedule_value(const wb_schedule *s, double t);

static double schedule_step(const wb_schedule *s, double t)
{
    const double size = (double)s->steps[0];
    const double i = s->n_steps > 1 ? stages_before(s, false, &t) : fmax(ceil(t / size) - 1, 0);
    return s->number[0] * pow(s->number[1], i);
}

static double schedule_composed(const wb_schedule *s, double t)
{
    double number[SCHEDULE_NUMBERS];
    for (int i = 1; i < s->n; i++) {
        number[i - 1] = schedule_value(s->of[i], t);
        if (isnan(number[i - 1])) return NAN;
    }
    return schedule_check(s->of[0]->kind, number) ? s->of[0]->kind->at(number, t) : NAN;
}

WB__PROGRAM_CALL(schedule_call, schedule_run, double,
                 const wb_schedule *s; double t;,
                 c->s->f(c->t, c->s->ctx))

static double schedule_of_function(const wb_schedule *s, double t)
{
    schedule_call c = {s, t, 0};
    if (!wb__call_program(schedule_run, &c)) return NAN;
    const double y = c.result;
    if (isfinite(y)) return y;
    wb__fail(WB_ERROR_NUMBER, "schedule_from_function: the function gave %g in step %g", y, t);
    return NAN;
}

static double schedule_value(const wb_schedule *s, double t)
{
    const schedule_kind *k = s->kind;
    const double first = s->number[0];
    if (k->at) return k->at(s->number, t);
    if (k == &Step) return schedule_step(s, t);
    if (k == &Loop) return schedule_value(s->of[0], t - first * (ceil(t / first) - 1));
    if (k == &Interpolator) return schedule_value(s->of[0], ceil(t / first));
    if (k == &Shifted) return schedule_value(s->of[0], t - 1 + first);
    if (k == &Shortened)
        return t > first ? schedule_late(k->name, t, first) : schedule_value(s->of[0], t);
    if (k == &Composed) return schedule_composed(s, t);
    if (k == &Function) return schedule_of_function(s, t);
    const int i = stages_before(s, true, &t);
    return schedule_value(s->of[i], t);
}

double wb_schedule_at(wb_schedule *s, double t)
{
    WB__EDGE;
    if (!wb__schedule_given("schedule_at", s)) return NAN;
    if (!(t >= 1))
        return wb__fail(WB_ERROR_ARGUMENT, "schedule_at: step %g: steps count from 1", t), NAN;
    const unsigned failures = wb__failures();
    const double y = schedule_value(s, t);
    if (isfinite(y) || (isnan(y) && failures != wb__failures())) return y;
    wb__fail(WB_ERROR_NUMBER, "%s: its value in step %g is %g", s->kind->name, t,
             isnan(y) ? (double)NAN : y);
    return NAN;
}

static void schedule_destroy(void *object)
{
    wb_schedule *s = object;
    for (int i = 0; i < s->n; i++) wb__unref(s->of[i]);
    wb__free(s->of);
    wb__free(s->steps);
    wb__object_end(s, sizeof *s);
}

/* Prints as in ScheduleSequence(ScheduleWarmup(0, 0.1, 100) => 100, ScheduleConstant(0.1) => 1). */
static void schedule_print(const wb_schedule *s, wb__text *t)
{
    const char *comma = "";
    wb__text_add(t, "%s(", s->kind->name);
    for (int i = 0; i < s->n; i++, comma = ", ") {
        wb__text_add(t, "%s", comma);
        schedule_print(s->of[i], t);
        if (s->kind == &Sequence) wb__text_add(t, " => %lld", (long long)s->steps[i]);
    }
    for (int i = 0; i < s->kind->n; i++, comma = ", ") wb__text_add(t, "%s%g", comma, s->number[i]);
    if (s->kind == &CosOnce) wb__text_add(t, ", restart=false");
    for (int i = 0; i < s->n_steps && s->kind == &Step; i++)
        wb__text_add(t, ", %lld", (long long)s->steps[i]);
    wb__text_add(t, ")");
}

static char *schedule_format(void *object)
{
    wb__text t = {0};
    schedule_print(object, &t);
    return wb__text_take(&t);
}

const wb__class wb__schedule_class = {.name = "schedule", .destroy = schedule_destroy,
                                      .format = schedule_format};

bool wb__schedule_given(const char *what, const wb_schedule *s)
{
    return wb__expect(what, s, &wb__schedule_class);
}

void wb__schedule_print(const wb_schedule *s, wb__text *t) { schedule_print(s, t); }

static wb_schedule *schedule_new(const schedule_kind *k, const double *number, int n,
                                 wb_schedule *const *of)
{
    int depth = 0;
    if (!schedule_check(k, number)) return NULL;
    for (int i = 0; i < n; i++) {
        if (!wb__schedule_given(k->name, of[i])) return NULL;
        depth = WB__MAX(depth, of[i]->depth + 1);
    }
    if (depth > SCHEDULE_DEEPEST)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: schedules nest at most %d deep", k->name,
                             SCHEDULE_DEEPEST);
    wb_schedule *s = wb__object_new(&wb__schedule_class, sizeof *s);
    if (!s) return NULL;
    s->kind = k;
    s->depth = depth;
    memcpy(s->number, number, (size_t)k->n * sizeof *number);
    s->of = wb__alloc_zero((size_t)n + 1, sizeof *s->of);
    for (; s->of && s->n < n; s->n++) s->of[s->n] = wb__ref(of[s->n]);
    if (s->of) return s;
    wb_object_free(s);
    return NULL;
}

static wb_schedule *schedule_with_steps(wb_schedule *s, int n, const int64_t *steps, size_t stride)
{
    if (!s) return NULL;
    s->steps = wb__alloc((size_t)n * sizeof *s->steps);
    for (; s->steps && s->n_steps < n; s->n_steps++) {
        s->steps[s->n_steps] = *steps;
        if (*steps < 1) {
            wb__fail(WB_ERROR_ARGUMENT, "%s: a stage of %lld steps; it has at least 1",
                     s->kind->name, (long long)*steps);
            break;
        }
        steps = (const int64_t *)((const char *)steps + stride);
    }
    if (s->steps && s->n_steps == n) return s;
    wb_object_free(s);
    return NULL;
}

/* ---- making schedules ------------------------------------------------------------------------ */

#define SCHEDULE(kind, ...) schedule_new(&(kind), (double[SCHEDULE_NUMBERS]){__VA_ARGS__}, 0, NULL)
#define SCHEDULE_MAKER(kind, parameters, ...) \
    wb_schedule *wb_Schedule##kind parameters { return SCHEDULE(kind, __VA_ARGS__); }
SCHEDULE_MAKER(Constant, (double a), a)
SCHEDULE_MAKER(Exp, (double a, double b), a, b)
SCHEDULE_MAKER(Poly, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(Inv, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(Triangle, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(TriangleDecay2, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(TriangleExp, (double a, double b, double c, double d), a, b, c, d)
SCHEDULE_MAKER(Sin, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(SinDecay2, (double a, double b, double c), a, b, c)
SCHEDULE_MAKER(SinExp, (double a, double b, double c, double d), a, b, c, d)
SCHEDULE_MAKER(Warmup, (double a, double b, double c), a, b, c)

wb_schedule *wb_ScheduleCosAnneal_with(double a, double b, double period,
                                       const wb_ScheduleCosAnneal_options *given)
{
    wb_ScheduleCosAnneal_options o;
    if (!wb__read_options("ScheduleCosAnneal", wb_ScheduleCosAnneal_options, &o, given, NULL))
        return NULL;
    return o.restart ? SCHEDULE(CosAnneal, a, b, period) : SCHEDULE(CosOnce, a, b, period);
}

wb_schedule *wb_ScheduleOneCycle_with(int64_t nsteps, double most,
                                      const wb_ScheduleOneCycle_options *given)
{
    wb_ScheduleOneCycle_options o;
    if (!wb__read_options("ScheduleOneCycle", wb_ScheduleOneCycle_options, &o, given, NULL))
        return NULL;
    const double n = (double)nsteps, up = o.percent_start;
    const double start = wb__or(o.startval, most / 25), end = wb__or(o.endval, most / 1e5);
    if (nsteps > 0 && !(up > 0 && ceil(up * n) < n))
        return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleOneCycle: .percent_start is %g, and %lld "
                             "steps: it must be above 0 and leave a step", up, (long long)nsteps);
    return SCHEDULE(OneCycle, n, most, start, end, up);
}

wb_schedule *wb_ScheduleStep_array(double start, double decay, int n, const int64_t *sizes)
{
    if (n < 1 || !sizes) return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleStep: no step sizes");
    return schedule_with_steps(SCHEDULE(Step, start, decay), n, sizes, sizeof *sizes);
}

wb_schedule *wb_ScheduleSequence_array(int n, const wb_stage *stages)
{
    if (n < 1 || !stages) return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleSequence: no stages");
    wb_schedule **of = wb__alloc((size_t)n * sizeof *of);
    for (int i = 0; of && i < n; i++) of[i] = stages[i].schedule;
    wb_schedule *s = of ? schedule_new(&Sequence, (double[SCHEDULE_NUMBERS]){0}, n, of) : NULL;
    wb__free(of);
    return schedule_with_steps(s, n, &stages->steps, sizeof *stages);
}

wb_schedule *wb_ScheduleLoop(wb_schedule *s, int64_t period)
{
    return schedule_new(&Loop, (double[SCHEDULE_NUMBERS]){(double)period}, 1, &s);
}

wb_schedule *wb_ScheduleInterpolator(wb_schedule *s, double rate)
{
    return schedule_new(&Interpolator, (double[SCHEDULE_NUMBERS]){rate}, 1, &s);
}

wb_schedule *wb_ScheduleShifted(wb_schedule *s, int64_t offset)
{
    if (offset < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleShifted: the offset is %lld; steps count "
                             "from 1", (long long)offset);
    return schedule_new(&Shifted, (double[SCHEDULE_NUMBERS]){(double)offset}, 1, &s);
}

wb_schedule *wb_ScheduleShortened(wb_schedule *s, int64_t nsteps)
{
    return schedule_new(&Shortened, (double[SCHEDULE_NUMBERS]){(double)nsteps}, 1, &s);
}

wb_schedule *wb_ScheduleComposed_array(wb_schedule *of, int n, wb_schedule *const *numbers)
{
    wb_schedule *all[SCHEDULE_NUMBERS + 1] = {of};
    if (!wb__schedule_given("ScheduleComposed", of)) return NULL;
    if (!of->kind->at || of->kind == &OneCycle)
        return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleComposed: it does not take a %s",
                             of->kind->name);
    if (n != of->kind->n || !numbers)
        return wb__fail_null(WB_ERROR_ARGUMENT, "ScheduleComposed: %d schedules; %s has %d numbers",
                             n, of->kind->name, of->kind->n);
    memcpy(all + 1, numbers, (size_t)n * sizeof *numbers);
    return schedule_new(&Composed, (double[SCHEDULE_NUMBERS]){0}, n + 1, all);
}

wb_schedule *wb_schedule_from_function(double (*f)(double t, void *ctx), void *ctx)
{
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "schedule_from_function: no function");
    wb_schedule *s = schedule_new(&Function, (double[SCHEDULE_NUMBERS]){0}, 0, NULL);
    if (s) s->f = f;
    if (s) s->ctx = ctx;
    return s;
}
