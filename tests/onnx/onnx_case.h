/* One case of a folder that cases.py has written: a model of ONNX, its inputs and outputs. */
#ifndef ONNX_CASE_H
#define ONNX_CASE_H

#include <stddef.h>

typedef enum { CASE_FAILED, CASE_PASSED, CASE_UNSUPPORTED } case_result;

/* A line of cases.txt, whose columns cases.py documents. */
typedef struct {
    const char *name, *flags, *inputs, *outputs;
    double rtol, atol;
} onnx_case;

/* Loads and calls the model, and compares the outputs.  The case is unsupported if Weber refuses it
 * with WB_ERROR_UNSUPPORTED, or if an input is no tensor or has no dtype of Weber; `reason` has the
 * message.  Any other difference is a failure. */
case_result run_onnx_case(const char *folder, const onnx_case *c, char *reason, size_t bytes);

/* From now on run_onnx_case writes each model to this file, and reads it again, before it calls it;
 * NULL: it does not.  A case whose model cannot be written is unsupported. */
void write_onnx_cases(const char *path);

#endif
