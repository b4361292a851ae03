/* Declarations that the files about Metal share.  See vgpu_metal.h. */
#ifndef VGPU_METAL_INSIDE_H
#define VGPU_METAL_INSIDE_H

#include "objc.h"
#include "vgpu_metal.h"

#include <stdio.h>

enum { METAL_ARGUMENTS = 31, METAL_GROUP_MEMORY = 32 << 10, METAL_BYTES = 4096 };

/* A method that documents a failure begins with this: it fails if VGPU_FAIL selects it. */
#define MAY_FAIL(s) if (vgpu_fails(sel_getName(s))) return NULL
#define MAY_FAIL_WITH(s, error, domain, code)                                                      \
    if (vgpu_fails(sel_getName(s))) {                                                              \
        ns_fail(error, domain, code, "VGPU_FAIL selects this call");                               \
        return 0;                                                                                  \
    }

/* ---- devices, buffers, events ---------------------------------------------------------------- */

typedef struct {
    struct objc_object object;
    int number;
} metal_device;

typedef struct {
    struct objc_object object;
    metal_device *device;
    char *at;
    size_t length;
    bool is_private, borrowed;          /* borrowed: newBufferWithBytesNoCopy */
} metal_buffer;

typedef struct {
    struct objc_object object;
    metal_device *device;
    uint64_t value;
} metal_event;

typedef enum { METAL_UNIFIED, METAL_DISCRETE, METAL_PARAVIRTUAL, METAL_NONE } metal_kind;
metal_kind metal_which(void);
VGPU_API extern objc_class metal_device_class, metal_buffer_class, metal_event_class,
    metal_shared_event_class;
bool metal_is_event(const void *event, const metal_device *d, const char *where);
const char *metal_device_name(const metal_device *d, char text[64]);

/* Methods of the device that other files define. */
id metal_new_queue(metal_device *d, SEL s);
id metal_new_queue_of(metal_device *d, SEL s, NSUInteger most);
id metal_new_library(metal_device *d, SEL s, id text, id options, id *error);
id metal_new_pipeline(metal_device *d, SEL s, id function, id *error);
id metal_new_pipeline_with(metal_device *d, SEL s, id descriptor, NSUInteger options,
                           id *reflection, id *error);
id metal_new_archive(metal_device *d, SEL s, id descriptor, id *error);

/* ---- libraries and pipelines ----------------------------------------------------------------- */

/* The tables of a compiled text: msl.h has the same. */
typedef struct {
    unsigned char index, is_group, is_reference;    /* is_group: memory of a group */
    unsigned bytes, alignment;                      /* of what it refers to */
} metal_argument;

typedef struct {
    vgpu_kernel kernel;                 /* call, and the number of its arguments */
    const char *name;
    const metal_argument *arguments;
    char *group, *group_end;            /* the group's memory */
    char *dynamic;                      /* the part of it whose length the encoder sets */
} metal_kernel;

typedef struct {
    struct objc_object object;
    metal_device *device;
    void *code;
    vgpu_position *here;
    const metal_kernel *const *kernels; /* the last is NULL */
    uint64_t hash;                      /* of the text and its options */
} metal_library;

typedef struct {
    struct objc_object object;
    metal_library *library;
    const metal_kernel *kernel;
} metal_function;

typedef struct {
    struct objc_object object;
    metal_function *function;
    bool whole_waves;                   /* all groups must be multiples of 32 items */
    unsigned most_items;                /* of a group */
} metal_pipeline;

typedef struct {
    struct objc_object object;
    metal_function *function;
    id archives;
    bool whole_waves;
    unsigned most_items;                /* 0: the compiler chooses */
} metal_pipeline_descriptor;

extern objc_class metal_library_class, metal_function_class, metal_pipeline_class,
    metal_pipeline_descriptor_class, metal_archive_class;
size_t metal_group_memory(const metal_kernel *k);
extern int64_t metal_compiled, metal_from_archives, metal_texts;

/* What an archive knows a function by. */
uint64_t metal_function_key(const metal_function *f);
bool metal_archive_has(id archive, uint64_t key);

/* The C++ of a text of Metal's language after the preprocessor: changes the text and writes it and
 * its tables.  False: *log, allocated, has the error. */
bool metal_translate(FILE *out, char *text, char **log);

/* ---- commands -------------------------------------------------------------------------------- */

typedef struct metal_queue metal_queue;
typedef struct metal_commands metal_commands;   /* a command buffer */
VGPU_API extern objc_class metal_queue_class, metal_commands_class, metal_compute_class,
    metal_blit_class;

VGPU_API metal_device *metal_device_of(const metal_commands *c);
/* True if commands may be encoded now; otherwise counts a wrong use of `where`. */
VGPU_API bool metal_is_open(metal_commands *c, const char *where);
/* True if commands can be added: it is not committed, and no encoder is open.  Otherwise counts a
 * wrong use of `where`. */
VGPU_API bool metal_is_open(metal_commands *c, const char *where);
/* Appends a command, whose payload is copied.  The function returns 0, or 1 if the command cannot
 * end. */
VGPU_API void metal_encode(metal_commands *c, const char *name, CUresult (*run)(vgpu_work *w),
                           const void *payload, size_t bytes);
/* The command buffer keeps the object until it is complete. */
VGPU_API void metal_keep(metal_commands *c, void *used);
/* The encoder has ended. */
void metal_encoder_ended(metal_commands *c, id encoder);
id metal_new_compute(metal_commands *c, bool concurrent);
id metal_new_blit(metal_commands *c);
/* Runs a command of any queue. */
void metal_run_some(void);
/* The commands that are committed, but have not run. */
int64_t metal_waiting(void);

#endif
