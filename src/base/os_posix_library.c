/* Dynamic libraries (os.h): systems with POSIX. */
#include "base/os.h"

#include "base/base.h"

#include <dlfcn.h>
#include <stdatomic.h>
#ifdef __linux__
#include <link.h>
#endif

void *wb__os_library_open(const char *file, wb__os_library_how how)
{
    int flags = RTLD_NOW | (how == WB__OS_FOR_ALL ? RTLD_GLOBAL : RTLD_LOCAL);
#ifdef RTLD_DEEPBIND
    if (how == WB__OS_OWN_FIRST) flags |= RTLD_DEEPBIND;
#endif
    return dlopen(file, flags);
}

void wb__os_library_close(void *library) { dlclose(library); }

const char *wb__os_library_reason(void)
{
    const char *reason = dlerror();
    return reason ? reason : "no reason given";
}

void *wb__os_library_find(void *library, const char *name)
{
    return dlsym(library ? library : RTLD_DEFAULT, name);
}

const char *wb__os_library_file(const void *address)
{
    Dl_info about;
    return dladdr(address, &about) ? about.dli_fname : NULL;
}

void *wb__os_library_of(const void *address)
{
    const char *file = wb__os_library_file(address);
    return file ? dlopen(file, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

#ifdef __linux__

/* Sets the address *given to NULL if it is in the first file of the list, which is the program. */
static int find_in_first(struct dl_phdr_info *file, size_t size, void *given)
{
    (void)size;
    const void **at = given;
    for (int i = 0; i < file->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &file->dlpi_phdr[i];
        const uintptr_t first = (uintptr_t)file->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (uintptr_t)*at - first < part->p_memsz) *at = NULL;
    }
    return 1;
}

/* Whether `at` is in the program, which stays loaded; false: in a file that dlclose may remove, or
 * not known. */
static bool posix_library_in_program(const void *at)
{
    dl_iterate_phdr(find_in_first, &at);
    return !at;
}

#else

static bool posix_library_in_program(const void *at)
{
    (void)at;
    return false;
}

#endif

void wb__os_stay_loaded(void)
{
#ifdef RTLD_NODELETE
    static atomic_bool done;
    if (atomic_exchange(&done, true) || posix_library_in_program(&done)) return;
    /* the handle is not closed, so that the file stays; after -z nodelete it changes nothing */
    const char *file = wb__os_library_file(&done);
    if (file && dlopen(file, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)) return;
    wb__log(WB_LOG_WARN, "Weber's library is not kept loaded (%s): do not close it (dlclose), "
            "since its threads and handlers of fork stay.",
            file ? wb__os_library_reason() : "its file is not known");
#endif
}
