/* A test double of Metal, of the part of Foundation that its callers need, and of the Objective-C
 * runtime, for machines without macOS; never installed.
 *
 * It is one shared object in plain C: objc_msgSend and the functions beside it, the C functions of
 * Metal, and classes as tables of selectors.  The kernels run on the engine of the doubles of CUDA
 * (../cuda/vgpu.h, whose VGPU_... variables apply): a text in Metal's language is translated to
 * C++, compiled, and kept in VGPU_CACHE.
 *
 *   objc.h objc.c          the runtime: classes, messages, counts of references, autorelease pools
 *   foundation.c           NSString, NSArray, NSDictionary, NSNumber, NSError, NSURL, NSProcessInfo
 *   metal.h                declarations that the files about Metal share
 *   device.c               devices, buffers, events
 *   library.c              libraries, functions, pipelines
 *   archive.c              binary archives
 *   translate.c            from Metal's language to C++
 *   msl.h metal_stdlib     what that C++ includes
 *   commands.c             command queues, command buffers, scheduling
 *   encoder.c              compute and blit encoders
 *
 * A wrong use is what the documentation forbids or Metal's validation layer reports.  It is counted
 * (vgpu_books.wrong), and the call has no effect.  Three mistakes end the process with status 99:
 * a message to something that is no object, a selector that the class does not have, and a class
 * that cannot be allocated.  Objects are never freed, so that the use of a released one is found.
 *
 * Environment variables, beside those of vgpu.h:
 *   VGPU_METAL=kind        the devices: unified (the default: Apple silicon), discrete,
 *                          paravirtual (a virtual machine's: Apple5, no Metal 3), none
 *   VGPU_METAL_FAMILY=n    the highest family Apple<n> (9; 5 if paravirtual; 0, none, if discrete)
 *   VGPU_METAL_ITEMS=n     maxTotalThreadsPerThreadgroup of the pipelines (1024)
 *   VGPU_MACOS=n           the major version of macOS (13)
 *   VGPU_FAIL              counts from MTLCopyAllDevices or MTLCreateSystemDefaultDevice on; if it
 *                          selects "commit", the command buffer ends with status 5 and does nothing
 * VGPU_QUEUE, VGPU_ARCH, VGPU_PEERS and VGPU_POOLS have no effect. */
#ifndef VGPU_METAL_H
#define VGPU_METAL_H

#include "../cuda/vgpu.h"

/* The objects that exist now.  vgpu_books, of vgpu_read_books, counts memory and wrong uses. */
typedef struct {
    int64_t objects;                    /* all but devices, classes and NSProcessInfo */
    int64_t buffers, queues, command_buffers, encoders, libraries, functions, pipelines, events,
            archives, strings, errors;
    int64_t commands;                   /* of committed command buffers, not yet run */
    int64_t compiled, from_archives;    /* pipelines made since the process began */
    int64_t texts;                      /* texts compiled, not found in VGPU_CACHE */
} vgpu_metal_books;
VGPU_API void vgpu_read_metal_books(vgpu_metal_books *books);

#endif
