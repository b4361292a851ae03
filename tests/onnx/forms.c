/* What each operator has in each opset: the rows of ops.def and ops_ml.def against the schemas of
 * the Python package onnx, and against docs/onnx.md.  forms.py compares them and writes models of
 * one node, which the reader must accept if they are right, and refuse if they are not.  Without
 * the package only the page is compared. */
#include "test.h"

#include "io/onnx/frame.h"
#include "python.h"

#include <sys/stat.h>

static const char *folder = "onnx-forms";

/* Writes the rows as lines of words, separated by tabs, in the file of this name in the folder. */
static void write_rows(void)
{
    char path[1100];
    int n;
    const wb__onnx_operator *o = wb__onnx_operators(&n);
    snprintf(path, sizeof path, "%s/rows", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (; n--; o++) {
        fprintf(f, "operator\t%s\t%s\t%d\t%s\n", o->name, o->domain, o->removed,
                o->op ? wb__ops[o->op].name : "");
        for (const wb__onnx_ports *p = o->ports; p < o->ports + WB__ONNX_PORTS && p->since; p++)
            fprintf(f, "ports\t%d\t%d\t%d\t%d\t%d\n", p->since, p->in[0], p->in[1], p->out[0],
                    p->out[1]);
        for (const wb__onnx_attr_row *a = o->attributes; a && a->type; a++) {
            fprintf(f, "attribute\t%s\t%s\t%d\t%d\t%d\t", a->name,
                    wb__onnx_attr_type_name(a->type), a->is_needed, a->from, a->before);
            if (a->words) fprintf(f, "%s\n", a->words);
            else if (a->has_default) fprintf(f, "%.9g\n", a->number);
            else fprintf(f, "\n");
        }
    }
    assert_int_equal(fclose(f), 0);
}

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
    mkdir(folder, 0777);
    write_rows();
    if (python_script("onnx/forms.py check", folder)) fail_msg("docs/onnx.md is not of ops.def");
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
