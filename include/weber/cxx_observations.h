/* Weber for C++17: the forms of weber/observations.h.  cxx.h includes this header. */
#ifndef WEBER_CXX_OBSERVATIONS_H
#define WEBER_CXX_OBSERVATIONS_H

#include "weber/observations.h"

template <class... D> inline wb_dataset *wb_joinobs(wb_dataset *first, D... rest)
{
    wb_dataset *all[] = {first, rest...};
    return wb_joinobs_array(int(sizeof all / sizeof *all), all);
}
inline int wb_splitobs(wb_dataset *d, double at, wb_dataset **first, wb_dataset **second,
                       wb_splitobs_options o = {})
{
    return wb_splitobs_with(d, at, first, second, &o);
}
inline int wb_splitobs_array(wb_dataset *d, int n, const double *at, wb_dataset **parts,
                             wb_splitobs_options o = {})
{
    return wb_splitobs_array_with(d, n, at, parts, &o);
}
inline int wb_kfolds(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                     wb_dataset **validation, wb_kfolds_options o = {})
{
    return wb_kfolds_with(d, k, i, train, validation, &o);
}
inline int wb_timeseries_kfolds(wb_dataset *d, int64_t k, int64_t i, wb_dataset **train,
                                wb_dataset **validation, wb_timeseries_kfolds_options o = {})
{
    return wb_timeseries_kfolds_with(d, k, i, train, validation, &o);
}
inline wb_dataset *wb_oversample(wb_dataset *d, wb_resample_options o = {})
{
    return wb_oversample_with(d, &o);
}
inline wb_dataset *wb_undersample(wb_dataset *d, wb_resample_options o = {})
{
    return wb_undersample_with(d, &o);
}

#endif
