/* Weber for C++17, continued: rules, schedules, training.  cxx.h includes this header. */
#ifndef WEBER_CXX_TRAIN_H
#define WEBER_CXX_TRAIN_H

#include "weber/cxx.h"

/* The number by place is the one that WB_RULES_ names, as in C. */
#define WB_RULE_(Name, number)                                                                  \
    inline wb_rule *wb_##Name(wb_Rule_options o = {}) { return wb_##Name##_with(&o); }          \
    template <class N>                                                                          \
    inline wb_if_number_<N, wb_rule *> wb_##Name(N n, wb_Rule_options o = {})                   \
    {                                                                                           \
        o.number = double(n);                                                                   \
        return wb_##Name##_with(&o);                                                            \
    }
WB_RULES_(WB_RULE_)
#undef WB_RULE_
/* Rules with two numbers by place, as in C: eta, rho. */
#define WB_RULE_RHO_(name)                                                                      \
    template <class N, class R>                                                                 \
    inline wb_if_number_<R, wb_if_number_<N, wb_rule *>> name(N eta, R rho,                     \
                                                              wb_Rule_options o = {})           \
    {                                                                                           \
        o.rho = double(rho);                                                                    \
        return name(eta, o);                                                                    \
    }
WB_RULE_RHO_(wb_Momentum)
WB_RULE_RHO_(wb_Nesterov)
WB_RULE_RHO_(wb_RMSProp)
WB_RULE_RHO_(wb_Muon)
#undef WB_RULE_RHO_
inline wb_rule *wb_CustomRule(const wb_rule_type *type, wb_Rule_options o = {})
{
    return wb_CustomRule_with(type, &o);
}
template <class N> inline wb_if_number_<N, wb_rule *>
wb_CustomRule(const wb_rule_type *type, N eta, wb_Rule_options o = {})
{
    o.eta = double(eta);
    return wb_CustomRule_with(type, &o);
}

template <class... I> inline wb_schedule *wb_ScheduleStep(double start, double decay, I... sizes)
{
    return wb_with_dims_(
        [=](int n, const int64_t *d) { return wb_ScheduleStep_array(start, decay, n, d); },
        sizes...);
}
inline wb_schedule *wb_ScheduleCosAnneal(double range0, double range1, double period,
                                         wb_ScheduleCosAnneal_options o = {})
{
    return wb_ScheduleCosAnneal_with(range0, range1, period, &o);
}
inline wb_schedule *wb_ScheduleOneCycle(int64_t nsteps, double maxval,
                                        wb_ScheduleOneCycle_options o = {})
{
    return wb_ScheduleOneCycle_with(nsteps, maxval, &o);
}
inline wb_schedule *wb_ScheduleSequence(std::initializer_list<wb_stage> stages)
{
    return wb_ScheduleSequence_array(int(stages.size()), stages.begin());
}
template <class... S>
inline wb_schedule *wb_ScheduleComposed(wb_schedule *kind, S *...numbers)
{
    wb_schedule *const all[] = {numbers...};
    return wb_ScheduleComposed_array(kind, int(sizeof...(numbers)), all);
}

template <class... R> inline wb_rule *wb_OptimizerChain(R *...rules)
{
    wb_rule *const all[] = {rules...};
    return wb_OptimizerChain_array(int(sizeof...(rules)), all);
}
inline wb_opt_state *wb_setup(wb_rule *rule, void *model, wb_setup_options o = {})
{
    return wb_setup_with(rule, model, &o);
}
inline int wb_adjust(wb_opt_state *state, wb_Rule_options o) { return wb_adjust_with(state, &o); }
template <class N>
inline wb_if_number_<N, int> wb_adjust(wb_opt_state *state, N eta, wb_Rule_options o = {})
{
    o.eta = double(eta);
    return wb_adjust_with(state, &o);
}
template <class T> inline T *wb_average_of(T *model)
{
    return static_cast<T *>(wb_object_average_of(model));
}
inline int wb_average(void *average, void *model, wb_average_options o = {})
{
    return wb_average_with(average, model, &o);
}
inline int wb_average(void *average, void *model, double decay)
{
    wb_average_options o;
    o.decay = decay;
    return wb_average_with(average, model, &o);
}
inline int wb_adjust_at(wb_opt_state *state, const char *path, wb_Rule_options o)
{
    return wb_adjust_at_with(state, path, &o);
}
template <class N> inline wb_if_number_<N, int>
wb_adjust_at(wb_opt_state *state, const char *path, N eta, wb_Rule_options o = {})
{
    o.eta = double(eta);
    return wb_adjust_at_with(state, path, &o);
}
inline wb_tensor *wb_withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads)
{
    return wb_withgradient(loss, model, batch, grads, nullptr);
}
inline int wb_train(wb_loss loss, void *model, wb_loader *data, wb_opt_state *state,
                    wb_train_options o = {})
{
    return wb_train_with(loss, model, data, state, &o);
}
template <class I> inline wb_if_integer_<I, int>
wb_train(wb_loss loss, void *model, wb_loader *data, wb_opt_state *state, I epochs,
         wb_train_options o = {})
{
    o.epochs = int(epochs);
    return wb_train_with(loss, model, data, state, &o);
}

#endif
