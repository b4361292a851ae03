/* The commands that are more than a few lines.  Each returns the status to exit with. */
#ifndef WB__CLI_H
#define WB__CLI_H

#include "base/base.h"
#include "io/table.h"

/* show.c: `weber show FILE`; and the library's error on standard error, for which it returns 1. */
int wb__cli_show(const char *path);
int wb__cli_complain(void);

/* Whether a safetensors file of ours describes a layer; of a BSON file only loading it tells. */
bool wb__cli_describes_layer(const wb__table *table);

/* show_bson.c: a BSON file of Flux's as a tree, a line a part; the status to exit with. */
struct wb__mapping;
int wb__cli_show_bson(const struct wb__mapping *m);

/* convert.c: `weber convert IN OUT [...]`. */
int wb__cli_convert(int n, char **words);

/* devices.c: `weber devices [--verbose] [--wait SECONDS]`. */
int wb__cli_devices(int n, char **arguments, const char *self);

/* probe.c: looks at one backend in this process, and tells the one that asked over PROBE_FILE. */
enum { PROBE_FILE = 3 };
int wb__cli_probe(const char *backend);

/* What such a process told, or what became of it. */
typedef struct {
    bool answered, loaded, works;
    char state[64];                     /* "works" */
    char *devices, *parts, *why;        /* a line each; allocated, or NULL: none */
} wb__probe;
void wb__cli_ask(wb__probe *p, const char *self, const char *backend, double seconds, bool noisy);
void wb__probe_free(wb__probe *p);

#endif
