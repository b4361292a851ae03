/* What each operator has in each opset: the rows of ops.def and ops_ml.def against the schemas of
 * the Python package onnx.  forms.py compares them and writes models of one node, which the reader
 * must accept if they are right, and refuse if they are not.  Skipped without the package. */
#include "test.h"

#include "io/onnx/frame.h"
#include "python.h"

static const char *folder = "onnx-forms";

/* Reads a model and checks its nodes; its name is for messages. */
static int read_model(const char *name, const void *data, size_t bytes)
{
    wb__onnx_model *m;
    int status = wb__onnx_read(name, data, bytes, &m);
    if (status) return status;
    status = wb__onnx_find_operators(m);
    wb__onnx_free(m);
    return status;
}

/* Reads the next model of the file; returns whether there is one. */
static bool next_model(FILE *f, int counts[2], int *failed)
{
    char kind[8], name[200];
    size_t bytes;
    if (fscanf(f, "%zu %7s", &bytes, kind) != 2 || !fgets(name, sizeof name, f)) return false;
    name[strcspn(name, "\n")] = 0;
    char *data = malloc(bytes + 1);
    assert_true(data && fread(data, 1, bytes, f) == bytes);
    const bool is_right = !strcmp(kind, "right");
    const int status = read_model(name, data, bytes);
    if ((status == 0) != is_right || (!is_right && status != WB_ERROR_FORMAT)) {
        print_error("%s, which is %s: %s\n", name, kind, status ? wb_error() : "read");
        ++*failed;
    }
    counts[is_right]++;
    free(data);
    return true;
}

TEST(forms_of_operators)
{
    int counts[2] = {0, 0}, failed = 0;
    char path[1100];
    if (!python_has("onnx")) skip();
    if (python_script("onnx/forms.py write", folder)) fail_msg("a row of ops.def is wrong");
    snprintf(path, sizeof path, "%s/models", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while (next_model(f, counts, &failed)) wb_clear_error();
    fclose(f);
    print_message("%d right, %d wrong\n", counts[1], counts[0]);
    assert_int_equal(failed, 0);
    assert_true(counts[0] > 1000 && counts[1] > 500);
}

int main(int argc, char **argv)
{
    if (argc > 1) folder = argv[1];
    return run_all_cases();
}
