/* Weber, chapter 6: numbers of a training by step, in files.  train.h includes this header. */
#ifndef WEBER_LOGGER_H
#define WEBER_LOGGER_H

#include "weber/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Begins a log of numbers by step in a folder, which is created with its parents:
 *
 *     wb_logger *log = wb_logger_open("runs/1");
 *     wb_train(loss, model, loader, state, .epochs = 10, .logger = log);
 *     wb_log_scalar(log, "accuracy", accuracy, 10);
 *     if (wb_logger_close(log)) fprintf(stderr, "%s\n", wb_error());
 *
 * The folder gets two files with the same numbers: events.out.tfevents.*, which
 * `tensorboard --logdir runs` shows, and scalars.csv with the columns wall_time, step, tag and
 * value.  A log that is opened again in the same folder goes on: TensorBoard reads all files of
 * events, and lines are added to scalars.csv.  The result belongs to the current scope; a scope
 * that closes closes the log too.  Errors: no path; folder or files cannot be created. */
WB_API wb_logger *wb_logger_open(const char *folder);
/** Writes a number of a step: wb_log_scalar(log, "train/loss", wb_item(loss), step).  Tags with the
 * same text before a '/' are one group in TensorBoard.  Numbers may be NaN or infinite.  The file
 * of events has them in f32, the CSV file in f64.  The time is that of the call, in seconds since
 * 1970.  Numbers reach the files within about 5 seconds and a further call, or at wb_logger_flush,
 * wb_logger_close, the end of the process by exit, and before a fork: a child writes what it logs
 * itself.  Several threads may use one log.  Returns 0 or an error code.  Errors: `tag` is empty,
 * is not UTF-8 or has more than 1023 bytes; the log is closed; a file cannot be written. */
WB_API int wb_log_scalar(wb_logger *log, const char *tag, double value, int64_t step);
/** Hands what was written to the system, so that other processes can read it.  Returns 0 or an
 * error code.  Errors: the log is closed; a file cannot be written. */
WB_API int wb_logger_flush(wb_logger *log);
/** Completes the files and closes them.  Returns 0 or an error code.  Errors: the log is closed; a
 * file could not be written, now or in an earlier call. */
WB_API int wb_logger_close(wb_logger *log);

#ifdef __cplusplus
}
#endif
#endif
