/* The commands of the `weber` program.  The function of a command returns the exit status of the
 * program; after -1 main prints the usage. */
#ifndef WB__CLI_H
#define WB__CLI_H

#include "base/base.h"
#include "io/table.h"

/* show.c: `weber show FILE`. */
int wb__cli_show(const char *path);
/* Prints the library's error to standard error and returns 1. */
int wb__cli_print_error(void);

/* Whether a safetensors file written by Weber describes a layer.  (A BSON file must be loaded to
 * find out.) */
bool wb__cli_describes_layer(const wb__table *table);

/* show_bson.c: prints a BSON file of Flux as a tree, a line for each value. */
struct wb__mapping;
int wb__cli_show_bson(const struct wb__mapping *m);

/* show_onnx.c: prints the nodes of an ONNX file. */
int wb__cli_show_onnx(const struct wb__mapping *m);

/* convert.c: `weber convert IN OUT [...]`. */
int wb__cli_convert(int n, char **words);

/* devices.c: `weber devices [--verbose] [--wait SECONDS]`. */
int wb__cli_devices(int n, char **arguments, const char *self);

/* explain.c: `weber explain [PAGE|MESSAGE|WORDS]`. */
int wb__cli_explain(int n, char **words);

/* installed.c: writes the path of a file that is installed with this program, in the folder of
 * programs or of libraries, to `path`; false: the file is not there.  `self` is argv[0]; `name` may
 * have folders, as in "pkgconfig/weber.pc". */
bool wb__cli_installed(const char *self, const char *name, char *path, size_t size);

/* new.c: `weber new [--cxx] NAME`. */
int wb__cli_new(int n, char **words, const char *self);

/* doctor.c: `weber doctor`. */
int wb__cli_doctor(int n, char **words, const char *self);

/* nearest.c: returns the name in `known`, a list that ends with NULL, that differs least from
 * `name`; NULL: all differ in more than `most` characters. */
const char *wb__cli_nearest(const char *name, const char *const *known, int most);

/* launch.c: `weber launch -np N PROGRAM ...`. */
int wb__cli_launch(int n, char **words);

/* probe.c: starts one backend in this process and writes the result to file descriptor
 * PROBE_FILE. */
enum { PROBE_FILE = 3 };
int wb__cli_probe(const char *backend);

/* doctor_library.c: opens a library in this process and prints "+", or the message. */
int wb__cli_open(const char *path);

/* The result of a probing process.  `state` is the result in words, or how the process ended
 * without an answer. */
typedef struct {
    bool answered, loaded, works;
    char state[64];                     /* such as "works", "crashed (...)" */
    char *devices, *libraries, *reason; /* a line for each item, or NULL; allocated */
} wb__probe;
/* Starts the program `self` as a probing process and reads its result into *p, for at most
 * `seconds`.  With `noisy` the output of drivers is shown.  The caller frees *p with
 * wb__probe_free. */
void wb__cli_run_probe(wb__probe *p, const char *self, const char *backend, double seconds,
                       bool noisy);
void wb__probe_free(wb__probe *p);

/* ranks.c: prints a line for each library that connects ranks.  `program` is the path of this
 * program. */
void wb__cli_print_ranks(const char *program);

#endif
