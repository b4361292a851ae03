/* Prints the messages for what the library as two files leaves out, one a line, each behind a name;
 * tests/amalgamation.py compares them.  The argument is a folder, in which it writes files. */
#include <stdio.h>
#include <weber.h>

static void message(const char *of)
{
    printf("%s: %s\n", of, wb_error_code() ? wb_error() : "no error");
    wb_clear_error();
}

/* Writes a file of `bytes` bytes that begins with the text; returns its path. */
static const char *file(const char *folder, const char *name, const char *begin, int bytes)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f && fputs(begin, f) >= 0) {
        while (ftell(f) < bytes) fputc(0, f);
        fclose(f);
    }
    return path;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    wb_load(file(folder, "model.bson", "\5", 5));
    message("bson");
    wb_load_tensors(file(folder, "arrays.npz", "PK\5\6", 22));
    message("npz");
    wb_load_tensors(file(folder, "state.pt", "PK\5\6", 22));
    message("pt");
    wb_load_idx(file(folder, "images.gz", "\x1f\x8b", 10), NULL);
    message("gzip");
    wb_load_tokenizer(file(folder, "tokenizer.json", "{}", 0));
    message("tokenizer");
    wb_using("CUDA");
    message("CUDA");
    wb_distributed_initialize(WB_NCCL);
    message("NCCL");
    return 0;
}
