/* Creates and lists folders, and removes files. */
#include "base/files/file.h"
#include "base/files/file_calls.h"
#include "base/os.h"

static int folder_fail(const char *path, const char *what)
{
    return wb__fail(WB_ERROR_FILE, "%s: %s: %s", path, what, wb__os_reason());
}

bool wb__is_folder(const char *path)
{
    wb__os_about about;
    return wb__os_look(path, true, &about) && about.kind == WB__OS_FOLDER;
}

int wb__folder_make(const char *path)
{
    if (!wb__io_must_fail() &&
        (wb__os_make_folder(path, false) || wb__os_error() == WB__OS_TAKEN)) {
        if (wb__is_folder(path)) return 0;
        wb__os_set_error(WB__OS_NO_FOLDER);
    }
    return folder_fail(path, "the folder cannot be made");
}

int wb__folder_each(const char *path, int (*each)(const char *name, void *ctx), void *ctx)
{
    wb__os_folder *folder = wb__io_must_fail() ? NULL : wb__os_folder_open(path);
    if (!folder) return folder_fail(path, "the folder cannot be opened");
    int status = 0;
    while (!status) {
        const char *name = wb__io_must_fail() ? NULL : wb__os_folder_next(folder);
        if (name) status = each(name, ctx);
        else if (!wb__os_error()) break;
        else status = folder_fail(path, "the folder cannot be read");
    }
    wb__os_folder_close(folder);
    return status;
}

int wb__file_remove(const char *path)
{
    if (wb__io_must_fail() || !wb__os_remove(path)) return folder_fail(path, "cannot be removed");
    return 0;
}
