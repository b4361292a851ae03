/* Weber, chapter 6: schedules of the learning rate.  train.h includes this header. */
#ifndef WEBER_SCHEDULES_H
#define WEBER_SCHEDULES_H

#include "weber/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A schedule is a function of the step t, which counts from 1, with the names and formulas of
 * ParameterSchedulers.jl.  It is an object like a rule: scopes own it, wb_keep keeps it, wb_show
 * prints it.  A schedule never changes: the step belongs to the optimiser's state, which counts its
 * updates.  wb_setup(rule, model, .schedule = s), wb_train(..., .schedule = s) and wb_set_schedule
 * (train.h) give the learning rate of each update to a schedule.
 *
 *     wb_schedule *s = wb_ScheduleSequence({wb_ScheduleWarmup(0, 0.1, 100), 100},
 *                                          {wb_ScheduleCosAnneal(0.1, 0, 900), 900});
 *     wb_train(loss, model, loader, state, .epochs = 10, .schedule = s);
 *
 * A function that makes a schedule returns NULL if an argument is wrong or memory is short.  Errors
 * of all: a number that is not finite; a period, or a number of steps, that is not positive;
 * schedules nested more than 64 deep. */

/** The value of a schedule in step t, where t may be fractional.  On failure NaN, with the error
 * set.  Errors: t below 1; a step after the last one of a wb_SchedulePoly, wb_ScheduleShortened or
 * wb_ScheduleOneCycle; a value that is not finite. */
WB_API double wb_schedule_at(wb_schedule *s, double t);

/** The number `value` in each step. */
WB_API wb_schedule *wb_ScheduleConstant(double value);
/** start decay^i, where i is the number of stages that ended before t: wb_ScheduleStep(start,
 * decay, ...).  With one size all stages have it; with several, the stages have these, and the one
 * after them is endless.  wb_ScheduleStep(0.1, 0.5, 10) halves after each 10 steps,
 * wb_ScheduleStep(0.1, 0.5, 10, 20) after steps 10 and 30.  Error: no size. */
WB_API wb_schedule *wb_ScheduleStep_array(double start, double decay, int n, const int64_t *sizes);
/** start decay^(t - 1). */
WB_API wb_schedule *wb_ScheduleExp(double start, double decay);
/** start (1 - (t - 1) / max_iter)^degree, in the steps 1 to max_iter. */
WB_API wb_schedule *wb_SchedulePoly(double start, double degree, double max_iter);
/** start / (1 + (t - 1) decay)^degree. */
WB_API wb_schedule *wb_ScheduleInv(double start, double decay, double degree);

/* The next seven schedules are waves between two numbers, in any order: Triangle and Sin begin at
 * the smaller, CosAnneal at the larger.  With low and high for the smaller and the larger, their
 * value is low + (high - low) w(t). */

/** w(t) = 2/pi |asin(sin(pi (t - 1) / period))|: from 0 in step 1 to 1 and back in each period. */
WB_API wb_schedule *wb_ScheduleTriangle(double range0, double range1, double period);
/** w(t) of wb_ScheduleTriangle, divided by 2^floor((t - 1) / period). */
WB_API wb_schedule *wb_ScheduleTriangleDecay2(double range0, double range1, double period);
/** w(t) of wb_ScheduleTriangle, times decay^(t - 1). */
WB_API wb_schedule *wb_ScheduleTriangleExp(double range0, double range1, double period,
                                           double decay);
/** w(t) = |sin(pi (t - 1) / period)|. */
WB_API wb_schedule *wb_ScheduleSin(double range0, double range1, double period);
/** w(t) of wb_ScheduleSin, divided by 2^floor((t - 1) / period). */
WB_API wb_schedule *wb_ScheduleSinDecay2(double range0, double range1, double period);
/** w(t) of wb_ScheduleSin, times decay^(t - 1). */
WB_API wb_schedule *wb_ScheduleSinExp(double range0, double range1, double period, double decay);
/** Options of wb_ScheduleCosAnneal. */
#define wb_ScheduleCosAnneal_options_(OPT, ARG)                                                    \
    OPT(bool, restart, true)                /* each period begins anew; false: it rises again */
WB_OPTIONS(wb_ScheduleCosAnneal_options);
/** w(t) = (1 + cos(pi u / period)) / 2, with u = (t - 1) mod period, or u = t - 1 without .restart:
 * wb_ScheduleCosAnneal(range0, range1, period).  w is 1 in step 1.  (Loshchilov & Hutter 2017) */
WB_API wb_schedule *wb_ScheduleCosAnneal_with(double range0, double range1, double period,
                                              const wb_ScheduleCosAnneal_options *o);
/** Options of wb_ScheduleOneCycle. */
#define wb_ScheduleOneCycle_options_(OPT, ARG)                                                     \
    OPT(double, startval, WB_DEFAULT)       /* default: maxval / 25 */                             \
    OPT(double, endval, WB_DEFAULT)         /* default: maxval / 1e5 */                            \
    OPT(double, percent_start, 0.25)        /* above 0 and below 1 */
WB_OPTIONS(wb_ScheduleOneCycle_options);
/** Half a cosine from startval up to maxval in ceil(percent_start nsteps) steps, then another down
 * to endval in the steps that remain: wb_ScheduleOneCycle(nsteps, maxval).  A step above nsteps is
 * an error.  (Smith & Topin 2017) */
WB_API wb_schedule *wb_ScheduleOneCycle_with(int64_t nsteps, double maxval,
                                             const wb_ScheduleOneCycle_options *o);
/** A line from `start` in step 1 to `end` in step `steps` + 1, and `end` from then on. */
WB_API wb_schedule *wb_ScheduleWarmup(double start, double end, double steps);

/** A stage of a wb_ScheduleSequence: a schedule and the number of its steps. */
typedef struct {
    wb_schedule *schedule;
    int64_t steps;
} wb_stage;
/** Schedules one after the other: wb_ScheduleSequence({a, 100}, {b, 900}), in C++
 * wb_ScheduleSequence({{a, 100}, {b, 900}}).  Each begins with its own step 1.  The last one goes
 * on after its steps.  Error: no stages. */
WB_API wb_schedule *wb_ScheduleSequence_array(int n, const wb_stage *stages);
/** Steps 1 to `period` of s, again and again. */
WB_API wb_schedule *wb_ScheduleLoop(wb_schedule *s, int64_t period);
/** s in step ceil(t / rate): with the number of batches of an epoch as the rate, s is a schedule of
 * epochs. */
WB_API wb_schedule *wb_ScheduleInterpolator(wb_schedule *s, double rate);
/** s in step t - 1 + offset: it begins with step `offset` of s.  Error: offset is below 1. */
WB_API wb_schedule *wb_ScheduleShifted(wb_schedule *s, int64_t offset);
/** s in the steps 1 to nsteps.  A step above nsteps is an error. */
WB_API wb_schedule *wb_ScheduleShortened(wb_schedule *s, int64_t nsteps);
/** A schedule whose numbers are schedules: wb_ScheduleComposed(wb_ScheduleTriangle(0, 1, 10),
 * wb_ScheduleConstant(0), wb_ScheduleExp(1, 0.9), wb_ScheduleConstant(10)).  Of the first argument
 * only the kind counts; as many others follow as this kind has numbers, in their order.  Errors:
 * wb_ScheduleStep, wb_ScheduleOneCycle or a schedule that is made of others as the first; another
 * number of schedules; in wb_schedule_at, a number that the kind does not take. */
WB_API wb_schedule *wb_ScheduleComposed_array(wb_schedule *kind, int n,
                                              wb_schedule *const *numbers);
/** f(t, ctx) as a schedule.  `ctx` must live as long as the schedule.  f may be called several
 * times for a step, and must give the same value each time. */
WB_API wb_schedule *wb_schedule_from_function(double (*f)(double t, void *ctx), void *ctx);

#ifndef __cplusplus
#define wb_ScheduleStep(start, decay, ...) \
    wb_ScheduleStep_array((start), (decay), WB_DIMS_(__VA_ARGS__))
#define wb_ScheduleCosAnneal(...) WB_COSANNEAL_(__VA_ARGS__, )
#define WB_COSANNEAL_(range0, range1, period, ...) \
    WB_CALL_WITH_(wb_ScheduleCosAnneal_with((range0), (range1), (period), \
                                            WB_GET_(wb_ScheduleCosAnneal_options, __VA_ARGS__)))
#define wb_ScheduleOneCycle(...) WB_ONECYCLE_(__VA_ARGS__, )
#define WB_ONECYCLE_(nsteps, maxval, ...) \
    WB_CALL_WITH_(wb_ScheduleOneCycle_with((nsteps), (maxval), \
                                           WB_GET_(wb_ScheduleOneCycle_options, __VA_ARGS__)))
#define wb_ScheduleSequence(...)                                                   \
    wb_ScheduleSequence_array((int)(sizeof((wb_stage[]){__VA_ARGS__}) / sizeof(wb_stage)), \
                              (const wb_stage[]){__VA_ARGS__})
#define wb_ScheduleComposed(kind, ...)                        \
    wb_ScheduleComposed_array((kind), WB_NARGS_(__VA_ARGS__), \
                              (wb_schedule *[WB_NARGS_(__VA_ARGS__)]){__VA_ARGS__})
#endif

#ifdef __cplusplus
}
#endif
#endif
