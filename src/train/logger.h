/* Records of TensorBoard's files of events (logger.c), which tests compare byte by byte. */
#ifndef WB__LOGGER_H
#define WB__LOGGER_H

#include "io/protobuf.h"

/* wb__event_version adds the record with the version, which is the first of a file;
 * wb__event_scalar adds a number of a step.  `wall_time` is in seconds since 1970. */
void wb__event_version(wb__wire_out *o, double wall_time);
void wb__event_scalar(wb__wire_out *o, double wall_time, int64_t step, const char *tag,
                      float value);

#endif
