/* Opening a backend's shared object: where it is looked for, and what it must be like.  An object
 * that is there and unusable is told as such, and the next folder is tried. */
#include "device/registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <link.h>
#endif

#ifndef WB_LIBDIR
#define WB_LIBDIR "/usr/local/lib"      /* where the build says that it installs libraries */
#define WB_LIBDIR_BESIDE "lib"          /* the same below its prefix */
#endif

/* ---- is it a backend ----------------------------------------------------------------------- */

/* Whatever version it is of, the symbol's name tells. */
static void tell_version(void *object, char *why, size_t room)
{
    for (int version = 0; version < 100; version++) {
        char symbol[32];
        snprintf(symbol, sizeof symbol, "wb_backend_%d", version);
        if (!dlsym(object, symbol)) continue;
        snprintf(why, room, "is for version %d of the interface to backends; this Weber has %d",
                 version, WB__BACKEND_VERSION);
        return;
    }
    snprintf(why, room, "is no backend of Weber: it has no symbol %s", WB__BACKEND_SYMBOL);
}

/* The name of a function that the table lacks, or NULL. */
static const char *lacking(const wb__backend *b)
{
#define NEED(f) if (!b->f) return #f;
    NEED(tag) NEED(start) NEED(stop) NEED(count) NEED(device) NEED(part) NEED(has_dtype)
    NEED(memory) NEED(allocate) NEED(release) NEED(trim) NEED(upload) NEED(download) NEED(copy)
    NEED(prepare) NEED(destroy) NEED(launch) NEED(wait) NEED(prefers_nhwc)
#undef NEED
    return NULL;
}

static const wb__backend *enter(const wb__row *row, wb__backend_entry entry, char *why,
                                size_t room)
{
    wb_clear_error();
    const wb__backend *b = entry(&wb__host_table);
    if (!b)
        snprintf(why, room, "declined%s%s", *wb_error() ? ": " : "", wb_error());
    else if (b->version != WB__BACKEND_VERSION)
        snprintf(why, room, "gave a table of version %d; this Weber has %d", b->version,
                 WB__BACKEND_VERSION);
    else if (!b->name || strcmp(b->name, row->name) != 0)
        snprintf(why, room, "is the backend %s, not %s", b->name ? b->name : "(no name)",
                 row->name);
    else if (lacking(b))
        snprintf(why, room, "gave a table without \"%s\"", lacking(b));
    else
        return b;
    return NULL;
}

static const wb__backend *open_object(const wb__row *row, const char *path, char *why,
                                      size_t room)
{
    if (access(path, F_OK) != 0) {
        snprintf(why, room, "%s", strerror(errno));
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *text = dlerror();
        size_t n = strlen(path);
        if (text && !strncmp(text, path, n) && !strncmp(text + n, ": ", 2)) text += n + 2;
        snprintf(why, room, "%s", text ? text : "cannot be opened");
        return NULL;
    }
    void *symbol = dlsym(object, WB__BACKEND_SYMBOL);
    const wb__backend *b = NULL;
    if (symbol) {
        wb__backend_entry entry;
        memcpy(&entry, &symbol, sizeof entry);
        b = enter(row, entry, why, room);
    } else {
        tell_version(object, why, room);
    }
    if (!b) dlclose(object);            /* else it stays: drivers do not like to be unloaded */
    return b;
}

/* ---- where it is --------------------------------------------------------------------------- */

static bool folder_of(const char *file, char *folder)
{
    char *slash = realpath(file, folder) ? strrchr(folder, '/') : NULL;
    if (slash) slash[slash == folder] = 0;
    return slash != NULL;
}

/* The folder of this very library, or of the program where it is linked in. */
static bool own_folder(char *folder, bool *linked_in)
{
    static const char here;
    Dl_info info;
    const char *name = NULL;
#ifdef __GLIBC__
    struct link_map *map = NULL;
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) && map && *map->l_name)
        name = map->l_name;             /* of the program itself it is empty */
#else
    if (dladdr(&here, &info)) name = info.dli_fname;
#endif
    *linked_in = !name;
    return (name && folder_of(name, folder)) || folder_of("/proc/self/exe", folder);
}

/* Where an installation that was moved has its libraries, seen from its programs. */
static bool beside_programs(const char *programs, char *folder)
{
    char path[2 * PATH_MAX];
    if (WB_LIBDIR_BESIDE[0] == '/') return false;
    snprintf(path, sizeof path, "%s/../%s", programs, WB_LIBDIR_BESIDE);
    return realpath(path, folder) != NULL;
}

static const wb__backend *try_folder(const wb__row *row, const char *folder, wb__load *l)
{
    char why[512];
    int n = snprintf(l->path, sizeof l->path, "%s/%s.so", folder, row->file);
    const wb__backend *b = NULL;
    if (n >= (int)sizeof l->path) snprintf(why, sizeof why, "the path is too long");
    else b = open_object(row, l->path, why, sizeof why);
    if (b || access(l->path, F_OK) == 0) l->present = true;
    if (wb__debug("load")) wb__log(WB_LOG_DEBUG, "load: %s: %s", l->path, b ? "opened" : why);
    if (b) return b;
    size_t used = strlen(l->tried), room = sizeof l->tried - used;
    n = snprintf(l->tried + used, room, "%s: %s\n", l->path, why);
    if (n >= (int)room) memcpy(l->tried + sizeof l->tried - 5, "...\n", 5);
    return NULL;
}

/* A program that runs with more rights than its user takes no files from where that user says. */
static const char *search_path(void)
{
    if (getuid() != geteuid() || getgid() != getegid()) return NULL;
    return getenv("WEBER_BACKEND_PATH");
}

const wb__backend *wb__load_backend(const wb__row *row, wb__load *l)
{
    char folder[PATH_MAX], own[PATH_MAX];
    const wb__backend *b = NULL;
    for (const char *at = search_path(); at && *at && !b;) {
        size_t n = strcspn(at, ":");
        if (n && n < sizeof folder) {
            memcpy(folder, at, n);
            folder[n] = 0;
            b = try_folder(row, folder, l);
        }
        at += n + (at[n] == ':');
    }
    bool linked_in = false, have_own = !b && own_folder(own, &linked_in);
    if (have_own) b = try_folder(row, own, l);
    bool moved = have_own && !b && linked_in && beside_programs(own, folder) &&
                 strcmp(folder, WB_LIBDIR) != 0;
    if (moved) b = try_folder(row, folder, l);
    if (!b && !(have_own && !strcmp(own, WB_LIBDIR))) b = try_folder(row, WB_LIBDIR, l);
    return b;
}

const wb__backend *wb__load_linked(const wb__row *row, wb__load *l)
{
    const wb__backend *b = enter(row, row->linked, l->tried, sizeof l->tried - 1);
    l->present = true;
    snprintf(l->path, sizeof l->path, "linked in");
    if (wb__debug("load"))
        wb__log(WB_LOG_DEBUG, "load: %s: %s", row->name, b ? l->path : l->tried);
    if (!b) strcat(l->tried, "\n");
    return b;
}
