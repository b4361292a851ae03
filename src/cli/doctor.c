/* `weber doctor`: what is installed, what is missing and how to get it, which settings are in
 * force, and how fast a small training is.  The exit status is 1 if a problem was found that the
 * user can solve: a libweber.so that cannot be loaded, an installation with which programs are not
 * built or do not run, a variable that does not exist or has a value without effect, a preference
 * that cannot be read, a build for debugging, a training that fails.  A missing library and a slow
 * machine are not problems. */
#include "backend/cpu/isa.h"
#include "base/environment.h"
#include "base/lapack.h"
#include "base/os.h"
#include "base/packages.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "device/device.h"
#include "device/registry.h"
#include "io/formats.h"
#include "io/image/codecs.h"
#include "io/jld2/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static int doctor_problems;
#define PROBLEM(...) (doctor_problems++, printf("PROBLEM: " __VA_ARGS__))

/* ---- libraries ------------------------------------------------------------------------------- */

/* Returns the package of the library that the dynamic linker's message names; NULL: unknown. */
static const char *package_of(const char *reason)
{
    for (int i = 0; i < WB__PACKAGES; i++)
        if (!wb__packages[i].variable && strstr(reason, wb__packages[i].file))
            return wb__packages[i].debian;
    return NULL;
}

static bool doctor_opens(wb__package_id id)
{
    switch (id) {
    case WB__PACKAGE_LAPACK: return wb__lapack_open("doctor", false) != NULL;
    case WB__PACKAGE_HDF5: return wb__hdf5_open("doctor") != NULL;
    case WB__PACKAGE_PNG: return !wb__png_open("doctor");
    case WB__PACKAGE_JPEG: return !wb__jpeg_open("doctor");
    default: return wb__package_built(id);
    }
}

static void print_packages(bool opened)
{
    for (int i = 0; i < WB__PACKAGES; i++) {
        const wb__package *p = &wb__packages[i];
        if (opened != (p->variable != NULL)) continue;
        printf("  %-14s ", p->name);
        if (doctor_opens((wb__package_id)i)) printf("yes, for %s\n", p->purpose);
        else
            printf("no; needed for %s: install %s (Debian, Ubuntu) or %s (Homebrew)%s\n",
                   p->purpose, p->debian, p->homebrew, opened ? "" : " and build Weber again");
        wb_clear_error();
    }
}

/* Prints the formats of files, with the words of README.md. */
static void print_formats(void)
{
    printf("\nformats of files\n");
    for (int i = 1; i < WB__FORMATS; i++) {
        const wb__format_row *f = &wb__formats[i];
        const bool models = f->flags & (WB__HAS_MODELS | WB__HAS_CALLS);
        const bool written = f->flags & (WB__HAS_MODELS | WB__WRITES_TENSORS | WB__WRITES_ARRAYS);
        printf("  %-14s %s%s%s: %stensors read%s%s%s\n", f->name, f->endings[0],
               f->endings[1] ? ", " : "", f->endings[1] ? f->endings[1] : "",
               models ? "models read, written; " : "", written ? ", written" : "",
               f->package < WB__PACKAGES ? "; reading needs " : "",
               f->package < WB__PACKAGES ? wb__packages[f->package].name : "");
    }
}

static void doctor_print_libraries(const char *self)
{
    printf("libraries that this Weber is built with\n");
    print_packages(false);
    doctor_problems += wb__cli_check_library(self, package_of);
    printf("\nlibraries that are opened when they are needed\n");
    print_packages(true);
    print_formats();
    doctor_problems += wb__cli_check_programs(self);
}

static void print_preferences(void)
{
    wb__registry_lock();
    const wb__preference *p = wb__preference_read();
    const bool failed = p->failed;
    const char *missing = wb__os_is_there(p->path) ? "" : ", no file";
    if (*p->path) printf("preferences: %s%s\n", p->path, missing);
    wb__registry_unlock();
    if (failed) PROBLEM("the preferences cannot be read; the warning above has the reason\n");
}

static void doctor_report_unknown(const char *name)
{
    enum { MOST = 255 };
    const char *known[MOST + 1] = {0};
    for (int i = 0; i < MOST && (known[i] = wb__environment_name(i)); i++)
        if (!strcmp(name, known[i])) return;
    /* a name that differs in more than 3 characters is another name */
    const char *nearest = wb__cli_nearest(name, known, 3);
    PROBLEM("Weber reads no variable %s%s%s\n", name, nearest ? "; perhaps it is " : "",
            nearest ? nearest : "");
}

/* Prints a variable of the environment.  WEBER_TOKEN is a secret, and the output of this command
 * goes into reports, so its value is not printed. */
static void print_variable(const char *name, const char *value)
{
    wb__text clean = {0};
    wb__text_foreign(&clean, name);
    wb__text_raw(&clean, "=", 1);
    wb__text_foreign(&clean, strcmp(name, "WEBER_RENDEZVOUS_TOKEN") ? value : "(not shown)");
    char *text = wb__text_take(&clean);
    printf("  %s\n", text ? text : name);
    wb__free(text);
}

static void print_variables(void)
{
    bool any = false;
    for (char **e = environ; *e; e++) {
        char name[128];
        if (!wb__begins(*e, "WEBER_")) continue;
        if (!any) printf("\nvariables of the environment\n");
        any = true;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        const char *value = *e + strcspn(*e, "=");
        print_variable(name, value + (*value == '='));
        char why[320];
        if (!wb__begins(name, "WEBER_TEST_")) doctor_report_unknown(name);
        if (!wb__environment_takes(name, value + (*value == '='), why, sizeof why))
            PROBLEM("%s\n", why);
    }
}

/* Writes the rest of a file's first line that begins with `word`, behind its ':', to `to`. */
static void doctor_read_line(const char *path, const char *word, char *to, size_t n)
{
    char line[512];
    FILE *f = fopen(path, "re");
    *to = 0;
    while (f && !*to && fgets(line, sizeof line, f)) {
        if (!wb__begins(line, word)) continue;
        const char *value = *word ? strchr(line, ':') : line;
        if (value) value += strspn(value, ": \t");
        snprintf(to, n, "%.*s", value ? (int)strcspn(value, "\n") : 0, value ? value : "");
    }
    if (f) fclose(f);
}

static void print_processor(void)
{
    char model[256], limit[64];
    int64_t total, free;
    doctor_read_line("/proc/cpuinfo", "model name", model, sizeof model);
    doctor_read_line("/sys/fs/cgroup/memory.max", "", limit, sizeof limit);
    wb__os_memory(&total, &free);
    const int all = wb__os_all_processors();
    const int usable = wb__os_processors();
    printf("\nprocessor: %s%sinstruction set %s%s\n", model, *model ? ", " : "",
           wb__cli_isa_name(wb__isa_here()),
           wb__environment_text("WEBER_ISA") ? " (WEBER_ISA limits it)" : "");
    printf("  %d of %d processors may be used%s, by %d thread%s%s\n", usable, all,
           usable < all ? " (the rest is forbidden by affinity or a cgroup)" : "", wb_threads(),
           wb_threads() == 1 ? "" : "s", wb_threads() > usable ? ": more than processors" : "");
    if (total > 0)
        printf("  memory %.1f GiB, %.1f GiB free", (double)total / (1 << 30),
               (double)free / (1 << 30));
    if (total > 0 && *limit && strcmp(limit, "max"))
        printf(", and a cgroup allows %.1f GiB", strtod(limit, NULL) / (1 << 30));
    if (total > 0) printf("\n");
}

static void print_build(void)
{
    printf("weber %s, build type %s%s%s\n\n", wb_version(),
           *WB__BUILD_TYPE ? WB__BUILD_TYPE : "without a name",
           *WB__SANITIZE ? ", with sanitizers: " : "", WB__SANITIZE);
    if (!strcmp(WB__BUILD_TYPE, "Debug"))
        PROBLEM("the build type is Debug, which is several times slower: build with"
                " -DCMAKE_BUILD_TYPE=Release\n\n");
}

int wb__cli_doctor(int n, char **words, const char *self)
{
    (void)words;
    if (n) return -1;
    print_build();
    doctor_print_libraries(self);
    printf("\n");
    const int status = wb__cli_devices(0, NULL, self);
    if (status) return status;
    print_preferences();
    print_variables();
    print_processor();
    bool threads_are_slow = false;
    if (wb__cli_time_training(&threads_are_slow)) PROBLEM("a training fails: %s\n", wb_error());
    if (doctor_problems)
        printf("\n%d problem%s found\n", doctor_problems, doctor_problems == 1 ? " was" : "s were");
    else printf("\nno problem was found%s\n", threads_are_slow
                ? "; threads are slower than one, as said above" : "");
    return doctor_problems > 0;
}
