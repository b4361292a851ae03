/* What Flux's structs are made of.  BSON.jl writes the fields of a struct by position alone, so that their number
 * tells which version of Flux wrote them; a writer must give exactly the fields of the version that is to read. */
#ifndef WB__FLUX_FIELDS_H
#define WB__FLUX_FIELDS_H

#include "base/base.h"

/* Versions are minor*100 + patch of 0.minor.patch: 1612 is 0.16.12.  Fields have Flux's newest names ("weight", which
 * was W before 0.12), as UTF-8. */
typedef struct {
    const char *type;                   /* the last part of the type's name: "Conv" */
    int since, before;                  /* versions since <= v < before; 0: from the oldest, until now */
    int n;
    const char *const *fields;
} wb__flux_struct;

/* The newest layout of a type with that many fields; NULL: no version had one. */
const wb__flux_struct *wb__flux_struct_by_count(const char *type, int n_fields);
/* The layout of a version; NULL: that version has no such type. */
const wb__flux_struct *wb__flux_struct_of(const char *type, int version);
/* Whether any version has such a type. */
bool wb__flux_struct_known(const char *type);
/* The position of a field; -1: none. */
int wb__flux_field(const wb__flux_struct *s, const char *name);

/* A function of Julia's and Weber's, by which files are read and written. */
typedef struct {
    const char *path, *here;            /* "Flux.NNlib.#σ", "sigmoid"; aliases have no module */
    bool elements;                      /* of elements: Julia broadcasts it over arrays */
    bool pairs;                         /* a connection of two arrays, not of more */
    int since;                          /* the version that has it */
} wb__flux_name;

/* By Weber's name, in a version; NULL: that version has none.  The second: of n arrays. */
const wb__flux_name *wb__flux_function_here(const char *here, int version);
const wb__flux_name *wb__flux_connection_here(const char *here, int n);
/* By Julia's name, without its module: "σ"; NULL: Weber's has the same name, or there is none. */
const wb__flux_name *wb__flux_function_there(const char *julia);
const wb__flux_name *wb__flux_connection_there(const char *julia);

#endif
