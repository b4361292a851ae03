/* LocalPreferences.toml: finds the file, reads the preferred backend once and writes it, and reads
 * other preferences. */
#include "device/device.h"
#include "device/registry.h"

#include "base/files/file.h"
#include "base/os.h"
#include "base/text.h"
#include "base/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char preference_key[] = "gpu_backend";
static const char *const preference_tables[] = {"Flux", "MLDataDevices", "LuxDeviceUtils"};

/* ---- the file ------------------------------------------------------------------------------ */

typedef struct { char path[WB__OS_PATH]; bool exists; } location;

static bool join_path(char *path, const char *folder, const char *name)
{
    const char *between = folder[strlen(folder) - 1] == '/' ? "" : "/";
    return snprintf(path, WB__OS_PATH, "%s%s%s", folder, between, name) < WB__OS_PATH;
}

static bool preference_is_there(char *path, const char *folder, const char *name)
{
    return join_path(path, folder, name) && wb__os_is_there(path);
}

/* Finds the preferences file.  Searches from the working directory upwards, and stops at the first
 * folder with the file, under either name, or with a Project.toml.  If there is no file, p->path is
 * in the folder with Project.toml, or else in the working directory.  Returns 0 or an error
 * code. */
static int preference_find(location *p)
{
    char folder[WB__OS_PATH], here[WB__OS_PATH];
    if (!wb__os_working_folder(here))
        return wb__fail(WB_ERROR_FILE, "the working directory cannot be found: %s",
                        wb__os_reason());
    strcpy(folder, here);
    for (;;) {
        p->exists = preference_is_there(p->path, folder, "JuliaLocalPreferences.toml") ||
                    preference_is_there(p->path, folder, "LocalPreferences.toml");
        if (p->exists) return 0;
        if (preference_is_there(p->path, folder, "Project.toml")) break;
        char *slash = strrchr(folder, '/');
        if (!slash || !folder[1]) {
            strcpy(folder, here);
            break;
        }
        slash[slash == folder] = 0;
    }
    if (!join_path(p->path, folder, "LocalPreferences.toml"))
        return wb__fail(WB_ERROR_FILE, "%s: the path is too long", folder);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Copies a name from the file to p->name.  Escapes control characters, since the name is logged to
 * a terminal.  Returns 0 or an error code. */
static int name_preference(wb__preference *p, const char *name, size_t n)
{
    char bytes[sizeof p->name];
    wb__text t = {0};
    snprintf(bytes, sizeof bytes, "%.*s", (int)WB__MIN(n, sizeof bytes), name);
    wb__text_foreign(&t, bytes);
    char *text = wb__text_take(&t);
    if (text) snprintf(p->name, sizeof p->name, "%s", text);
    wb__free(text);
    return text ? 0 : WB_ERROR_MEMORY;
}

/* Reads the preference from the first of `tables` that has one. */
static int preference_parse(wb__preference *p, const char *path, const char *text, size_t bytes)
{
    int e = 0;
    for (size_t i = 0; i < WB__COUNT(preference_tables) && !p->set && !e; i++) {
        const char *at;
        size_t n;
        wb__toml_kind kind;
        e = wb__toml_get((wb__toml){path, text, bytes}, preference_tables[i], preference_key, &kind,
                         &at, &n);
        if (e || !kind || (at && !n)) continue;
        p->set = true;
        e = name_preference(p, at ? at : "a table", at ? n : 7);
        snprintf(p->table, sizeof p->table, "%s", preference_tables[i]);
    }
    return e;
}

/* Returns an error code for a file that is too large, a pipe or a device (its reading may not
 * end). */
static int preference_check_file(const char *path)
{
    wb__os_about about;
    if (!wb__os_look(path, true, &about))
        return wb__fail(WB_ERROR_FILE, "%s: cannot be read: %s", path, wb__os_reason());
    if (about.kind != WB__OS_PLAIN)
        return wb__fail(WB_ERROR_FILE, "%s: is not a plain file", path);
    if (about.bytes > WB__TOML_MOST_BYTES)
        return wb__fail(WB_ERROR_FORMAT, "%s: %lld bytes; the limit is %d KiB", path,
                        (long long)about.bytes, WB__TOML_MOST_BYTES >> 10);
    return 0;
}

static int preference_read_text(const location *where, char **text, int64_t *bytes)
{
    int e = where->exists ? preference_check_file(where->path) : 0;
    if (e) return e;
    *text = where->exists ? wb__file_read(where->path, bytes) : wb__strdup("");
    if (!*text) return wb_error_code();
    if (!where->exists) *bytes = 0;
    return 0;
}

static int preference_read_file(const location *where, wb__preference *p, char **text,
                                int64_t *bytes)
{
    const int e = preference_read_text(where, text, bytes);
    return e ? e : preference_parse(p, where->path, *text, (size_t)*bytes);
}

static int preference_parse_bool(const char *name, const char *path, const char *text, size_t bytes,
                                 bool *value)
{
    const char *at;
    size_t n;
    wb__toml_kind kind;
    int e = wb__toml_get((wb__toml){path, text, bytes}, preference_tables[0], name, &kind, &at, &n);
    if (e) return e;
    if (kind == WB__TOML_OTHER && n == 4 && !memcmp(at, "true", 4)) *value = true;
    else if (kind == WB__TOML_OTHER && n == 5 && !memcmp(at, "false", 5)) *value = false;
    else if (kind != WB__TOML_ABSENT)
        e = wb__fail(WB_ERROR_FORMAT, "%s: %s of [%s] is neither true nor false: write one of them,"
                     " without quotes", path, name, preference_tables[0]);
    return e;
}

int wb__preference_bool(const char *name, bool *value)
{
    location where;
    char *text = NULL;
    int64_t bytes = 0;
    int e = preference_find(&where);
    if (e || !where.exists) return e;
    e = preference_read_text(&where, &text, &bytes);
    if (!e) e = preference_parse_bool(name, where.path, text, (size_t)bytes, value);
    wb__free(text);
    return e;
}

static wb__preference preference_chosen;
static bool was_read;

void wb__preference_forget(void)
{
    was_read = false;
    preference_chosen = (wb__preference){0};
}

static void preference_read_once(void)
{
    wb__error_kept kept;
    location where;
    char *text = NULL;
    int64_t bytes = 0;
    wb__error_keep(&kept);
    preference_chosen = (wb__preference){0};
    int e = preference_find(&where);
    if (!e && where.exists) e = preference_read_file(&where, &preference_chosen, &text, &bytes);
    wb__free(text);
    was_read = e != WB_ERROR_MEMORY;    /* out of memory: the next call tries again */
    if (!e && where.exists) memcpy(preference_chosen.path, where.path, sizeof where.path);
    preference_chosen.failed = e != 0;
    if (e && e != WB_ERROR_MEMORY)
        wb__log(WB_LOG_WARN, "%s\nDefaulting to automatic device selection.", wb_error());
    if (preference_chosen.set) preference_chosen.row = wb__row_find(preference_chosen.name);
    wb__error_restore(&kept);
}

const wb__preference *wb__preference_read(void)
{
    if (!was_read) preference_read_once();
    return &preference_chosen;
}

const char *wb_gpu_backend(void)
{
    wb__registry_lock();
    const wb__preference *p = wb__preference_read();
    const char *name = p->set && p->row >= 0 ? wb__rows[p->row].name : NULL;
    wb__registry_unlock();
    return name;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int preference_write_file(const location *where, const char *text, int64_t bytes,
                                 const char *value, wb__preference *after)
{
    size_t changed_bytes;
    char *changed = wb__toml_edit((wb__toml){where->path, text, (size_t)bytes},
                                  preference_tables[0], preference_key, value, &changed_bytes);
    if (!changed) return wb_error_code();
    char real[WB__OS_PATH];             /* the file itself, so that no link is replaced */
    int e = preference_parse(after, where->path, changed, changed_bytes);
    const bool ours = after->set && !strcmp(after->table, preference_tables[0]);
    if (!e && (ours != (value != NULL) || (value && strcmp(after->name, value) != 0)))
        e = wb__fail(WB_ERROR_FORMAT, "%s: %s.%s cannot be changed there", where->path,
                     preference_tables[0], preference_key);
    if (!e)
        e = wb__file_write(wb__os_real_path(where->path, real) ? real : where->path, changed,
                           (int64_t)changed_bytes);
    wb__free(changed);
    return e;
}

/* Sets the preference in the file to `backend`; NULL: removes the preference.  Changes only the
 * first of `tables`; the others belong to other libraries. */
static int preference_set(const location *where, const char *backend)
{
    wb__preference before = {0}, after = {0};
    char *text = NULL;
    int64_t bytes = 0;
    int e = preference_read_file(where, &before, &text, &bytes);
    const bool same = backend ? before.set && !strcmp(before.name, backend)
                              : !before.set || strcmp(before.table, preference_tables[0]) != 0;
    if (!e && !same) e = preference_write_file(where, text, bytes, backend, &after);
    wb__free(text);
    if (e) return e;
    if (same && backend)
        wb__log(WB_LOG_INFO, "GPU backend is already set to: %s.\nNo need to do anything else.",
                backend);
    else if (same && before.set)
        wb__log(WB_LOG_INFO, "The GPU backend is set to %s by [%s], which is left alone: %s.",
                before.name, before.table, where->path);
    else if (same)
        wb__log(WB_LOG_INFO, "No GPU backend is set.\nNo need to do anything else.");
    else if (backend)
        wb__log(WB_LOG_INFO, "New GPU backend set: %s.\nRestart your session for this change to "
                "take effect!", backend);
    else
        wb__log(WB_LOG_INFO, "The GPU backend of [%s] is no longer set%s%s%s%s%s.\nRestart your "
                "session for this change to take effect!", preference_tables[0],
                after.set ? "; it is now " : "", after.set ? after.name : "",
                after.set ? " by [" : "", after.set ? after.table : "", after.set ? "]" : "");
    return 0;
}

int wb_set_gpu_backend(const char *backend)
{
    location where;
    if (backend && wb__row_exact(backend) < 0) return wb_error_code();
    wb__registry_lock();
    int e = preference_find(&where);
    if (!e) {
        wb__preference_read();          /* so that the value in use does not change */
        e = preference_set(&where, backend);
    }
    wb__registry_unlock();
    return e;
}
