/* Encodes batches of sentences with a pretrained encoder:
 *
 *   sentences_bench FOLDER|FILE.onnx BATCHES.safetensors OUT.safetensors [--repeats N]
 *                   [--threads N]
 *
 * BATCHES has the tokens and masks of each batch, i32 [N,T]: "ids0", "mask0", "ids1", ...  Prints a
 * line of JSON, the seconds of each repeat, behind one that is not measured; writes the vectors of
 * the last one, [all sentences, width], as "vectors".  sentences.py writes the batches, runs this
 * program and compares it with PyTorch and ONNX Runtime. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weber.h>

enum { MOST = 1000 };

typedef struct {
    wb_layer *encoder;
    int n;
    wb_tensor *ids[MOST], *mask[MOST];
} work;

static int failed(void) { return fprintf(stderr, "sentences_bench: %s\n", wb_error()), 1; }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the batches; inputs of ONNX files are i64. False on failure. */
static bool read_batches(work *w, const char *path, bool onnx)
{
    wb_tree *all = wb_load_tensors(path);
    for (; all && w->n < MOST; w->n++) {
        char name[16];
        wb_tensor **to[2] = {&w->ids[w->n], &w->mask[w->n]};
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, k ? "mask%d" : "ids%d", w->n);
            *to[k] = wb_get(all, name);
            if (!*to[k]) return wb_clear_error(), w->n > 0;
            if (onnx) *to[k] = wb_astype(*to[k], WB_I64);
            if (wb_eval(*to[k])) return false;
        }
    }
    return false;
}

/* Encodes all batches. The vectors go into `out`, if it is not NULL. False on failure. */
static bool encode(const work *w, wb_tensor **out)
{
    for (int i = 0; i < w->n; i++) {
        wb_scope *scope = wb_scope_open();
        wb_tensor *y = wb_call(w->encoder, w->ids[i], w->mask[i]);
        const bool good = y && wb_data(y);
        if (out) out[i] = wb_keep(y);
        if (wb_scope_close(scope) || !good) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static work w;
    static wb_tensor *vectors[MOST];
    int repeats = 5, threads = 1;
    for (int i = 4; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--repeats")) repeats = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
    }
    if (argc < 4 || repeats < 1 || threads < 1)
        return fprintf(stderr, "sentences_bench FOLDER|FILE.onnx BATCHES OUT [--repeats N] "
                               "[--threads N]\n"), 2;
    wb_set_threads(threads);
    const char *dot = strrchr(argv[1], '.');
    const bool onnx = dot && !strcmp(dot, ".onnx");
    w.encoder = onnx ? wb_load(argv[1])
                     : wb_load_pretrained(argv[1], .output = WB_PRETRAINED_SENTENCES);
    if (!w.encoder || !read_batches(&w, argv[2], onnx) || !encode(&w, NULL)) return failed();
    printf("{\"seconds\": [");
    for (int i = 0; i < repeats; i++) {
        const double start = now();
        if (!encode(&w, i == repeats - 1 ? vectors : NULL)) return failed();
        printf("%s%.6f", i ? ", " : "", now() - start);
    }
    printf("]}\n");
    wb_tree *out = wb_named_tuple(1, (const char *[]){"vectors"},
                                  (void *[]){wb_concat_array(0, w.n, vectors)});
    return !out || wb_save(argv[3], out) ? failed() : 0;
}
