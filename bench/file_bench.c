/* Times saving and loading in a process of its own; prints one line of JSON.  files.py runs it.
 *
 *   file_bench save PATH MB                 weights of MB megabytes; the suffix is the format
 *   file_bench load PATH                    a model, from a cold cache
 *   file_bench checkpoint PATH MB           a model and Adam's moments, MB in all
 *   file_bench resume PATH MB               loads into a new model and optimiser, from a cold cache
 *   file_bench cool PATH                    only makes the cache cold */
#include "base/base.h"
#include "base/map.h"
#include "io/formats.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAYERS = 8 };

static int tell(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, wb_error());
    return 1;
}

static wb_layer *weights(double megabytes)
{
    int n = (int)sqrt(megabytes * 1e6 / 4 / LAYERS);
    wb_layer *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++) layers[i] = wb_Dense(n, n, wb_relu, .bias = false);
    return wb_Chain_array(LAYERS, layers);
}

static int made(wb_tensor *x, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    return !wb_data(x);
}

/* Removes the file from the system's page cache. */
static int64_t cool(const char *path)
{
    struct stat about;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &about) || fsync(file) ||
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)) {
        perror(path);
        exit(1);
    }
    close(file);
    return about.st_size;
}

static double processor_time(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static bool is_of_its_format(const char *path)
{
    wb__mapping *m = wb__map(path);
    bool is = m && wb__format_of(m) == wb__format_named(path);
    wb__unmap(m);
    return is;
}

int main(int argc, char **argv)
{
    if (argc < 3) return fprintf(stderr, "file_bench save|load|checkpoint|resume PATH [MB]\n"), 2;
    const char *what = argv[1], *path = argv[2];
    if (!strcmp(what, "cool")) return cool(path), 0;
    const double megabytes = argc > 3 ? atof(argv[3]) : 500;
    const bool state = !strcmp(what, "checkpoint") || !strcmp(what, "resume");
    wb_checkpoint c = {.epoch = 1};
    wb_layer *model = NULL;
    if (strcmp(what, "load")) {
        model = weights(state ? megabytes / 3 : megabytes);
        if (!model || wb_each_tensor(model, made, NULL)) return tell("the model");
    }
    if (state) {
        c.model = model;
        c.state = wb_setup(wb_Adam(), model);
        if (!c.state) return tell("the state");
    }
    int64_t bytes = 0;
    if (!strcmp(what, "load") || !strcmp(what, "resume")) bytes = cool(path);
    double used = processor_time(), begun = wb__now();
    if (!strcmp(what, "save") && wb_save(path, model)) return tell("save");
    if (!strcmp(what, "load") && !wb_load(path)) return tell("load");
    if (!strcmp(what, "checkpoint") && wb_save_checkpoint(path, &c)) return tell("checkpoint");
    if (!strcmp(what, "resume") && wb_load_checkpoint(path, &c)) return tell("resume");
    double seconds = wb__now() - begun;
    used = processor_time() - used;
    if (!bytes) bytes = cool(path);
    printf("{\"seconds\": %.6f, \"processor\": %.6f, \"bytes\": %lld, \"right\": %s}\n", seconds,
           used, (long long)bytes,
           is_of_its_format(path) ? "true" : "false");
    return 0;
}
