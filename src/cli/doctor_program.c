/* `weber doctor`: whether pkg-config and CMake find what a program needs, and whether it runs. */
#include "base/base.h"
#include "base/environment.h"
#include "base/files/file.h"
#include "cli/cli.h"
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCTOR_PROGRAM_TEXT_(x) #x
#define DOCTOR_PROGRAM_TEXT(x) DOCTOR_PROGRAM_TEXT_(x)

static const char
    doctor_program_source[] = "#include <stdio.h>\n#include <weber.h>\nint main(void)\n{\n"
                              "    return wb_item(wb_add(1, 1)) != 2 || puts(wb_version()) < 0;\n"
                              "}\n";
static const char doctor_program_lists
    [] = "cmake_minimum_required(VERSION 3.18)\n"
         "project(program LANGUAGES C)\n"
         "find_package(weber " DOCTOR_PROGRAM_TEXT(WB_VERSION_MAJOR) "." DOCTOR_PROGRAM_TEXT(
             WB_VERSION_MINOR) " REQUIRED)\n"
                               "add_executable(program program.c)\n"
                               "target_link_libraries(program weber::weber)\n";

/* The exit status of a script: the step that failed. */
enum { NO_COMPILER = 10, NO_TOOL, NOT_FOUND, NOT_COMPILED, NOT_RUN };
static const char *const doctor_program_scripts[] = {
    "${CC:-cc} --version >/dev/null 2>&1 || exit 10\n"
    "pkg-config --version >/dev/null 2>&1 || exit 11\n"
    "found=$(pkg-config --cflags --libs weber) || exit 12\n"
    "eval \"set -- $found\"\n"
    "${CC:-cc} program.c -o program \"$@\" || exit 13\n"
    "./program || exit 14\n",
    "${CC:-cc} --version >/dev/null 2>&1 || exit 10\n"
    "cmake --version >/dev/null 2>&1 || exit 11\n"
    "cmake . >/dev/null 2>log ||\n"
    "    { cat log; grep -q 'configuration file' log && exit 12; exit 13; }\n"
    "cmake --build . >log 2>&1 || { grep -iE 'error|cannot find' log; exit 13; }\n"
    "./program || exit 14\n"};
static const char *const doctor_program_tools[] = {"pkg-config", "CMake"};

/* The pkg-config and CMake files that are installed with this command; "" if they are missing. */
static char doctor_program_pc[WB__OS_PATH], doctor_program_cmake[WB__OS_PATH],
    doctor_program_library[WB__OS_PATH];
static int doctor_program_problems;

bool wb__cli_capture(const char *const *words, const char *folder, bool errors, char *text,
                     size_t size, wb__os_end *end)
{
    int ends[2];
    bool executed;
    size_t n = 0;
    int64_t got = 0;
    char rest[512];
    *text = 0;
    if (!wb__os_pipe(ends)) return false;
    const wb__os_program_start s = {.words = words, .folder = folder,
                                    .files = {0, ends[1], errors ? ends[1] : 2, -1}};
    const long child = wb__os_start(&s, &executed);
    wb__os_close(ends[1]);
    do {                                /* reads all output, and keeps what fits into `text` */
        const bool fits = n < size - 1;
        got = wb__os_read(ends[0], fits ? text + n : rest, fits ? size - 1 - n : sizeof rest);
        if (fits && got > 0) n += (size_t)got;
    } while (got > 0);
    wb__os_close(ends[0]);
    text[n] = 0;
    return child && wb__os_wait(child, end);
}

/* Runs a script in a folder, which is the script's $1.  `text` gets its output.  Returns its exit
 * status, or -1. */
static int doctor_program_run(const char *folder, const char *script, char *text, size_t size)
{
    wb__os_end end;
    const char *const words[] = {"/bin/sh", "-c", script, "sh", folder, NULL};
    return wb__cli_capture(words, folder, true, text, size, &end) && !end.signal ? end.status : -1;
}

/* Prints the first lines of a tool's output. */
static void doctor_program_print_lines(const char *text)
{
    for (int i = 0; i < 4 && *text; i++) {
        const size_t n = strcspn(text, "\n");
        if (n) printf("    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static const char *doctor_program_folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return path;
}

/* Prints that the tool does not find this command's installed files, and the cure. */
static void print_not_found(int tool)
{
    doctor_program_problems++;
    if (tool)
        printf("PROBLEM: CMake does not find %s/weber-config.cmake: cmake -Dweber_DIR=%s, or\n"
               "    export weber_DIR=%s\n",
               doctor_program_cmake, doctor_program_cmake, doctor_program_cmake);
    else
        printf("PROBLEM: pkg-config does not find %s/weber.pc:\n"
               "    export PKG_CONFIG_PATH=%s\n", doctor_program_pc, doctor_program_pc);
}

/* Prints why the program does not compile or run. */
static void print_failure(int tool, int status, const char *text)
{
    doctor_program_problems++;
    printf("PROBLEM: a program of five lines, by %s, %s:\n", doctor_program_tools[tool],
           status == NOT_COMPILED ? "is not built" : "is built and does not run");
    doctor_program_print_lines(text);
    if (status == NOT_COMPILED && (strstr(text, "weber.h") || strstr(text, "non-existent path")))
        printf("  The headers are not where %s: install Weber there again, or remove that file\n",
               tool ? "its weber-config.cmake is" : "`pkg-config --cflags weber` names");
    else if (status == NOT_RUN && strstr(text, "libweber"))
        printf("  The dynamic linker does not look in that folder: link with -Wl,-rpath,%s, as the"
               " Makefile of `weber new` does, or\n    export LD_LIBRARY_PATH=%s\n"
               "  or, for /usr/local/lib, run sudo ldconfig once\n",
               *doctor_program_library ? doctor_program_library : "FOLDER",
               *doctor_program_library ? doctor_program_library : "FOLDER");
    else if (strstr(text, "ld: cannot find") || strstr(text, "not found (try"))
        printf("  A library that Weber is linked with is missing here: see the list of libraries"
               " above\n");
}

/* Whether the tool finds a Weber, with which the program compiles and runs.  Prints what fails. */
static bool doctor_program_check(int tool, const char *folder)
{
    char text[4096];
    int status = doctor_program_run(folder, doctor_program_scripts[tool], text, sizeof text);
    if (status == NOT_FOUND && !*(tool ? doctor_program_cmake : doctor_program_pc)) {
        printf("  %s finds no Weber, and this command is installed with none: it is the package"
               " libweber-dev, or\n    cmake --install build\n", doctor_program_tools[tool]);
        return false;
    }
    if (status == NOT_FOUND) {
        print_not_found(tool);
        wb__os_set_variable(tool ? "weber_DIR" : "PKG_CONFIG_PATH",
                            tool ? doctor_program_cmake : doctor_program_pc);
        status = doctor_program_run(folder, doctor_program_scripts[tool], text, sizeof text);
    }
    text[status ? strlen(text) : strcspn(text, "\n")] = 0;
    if (status == NO_COMPILER)
        printf("  %s: not tried, since no C compiler was found: install gcc\n",
               doctor_program_tools[tool]);
    else if (status == NO_TOOL)
        printf("  %s: not tried, since it was not found: install %s\n", doctor_program_tools[tool],
               tool ? "cmake" : "pkg-config");
    else if (status == NOT_COMPILED || status == NOT_RUN) print_failure(tool, status, text);
    else if (status == 0 && strcmp(text, wb_version()))
        printf("  %s: a program is built and runs, with Weber %s: not that of this command, which"
               " is %s\n", doctor_program_tools[tool], text, wb_version());
    else if (status == 0) printf("  %s: a program is built and runs\n", doctor_program_tools[tool]);
    else if (status != NOT_FOUND)
        printf("  %s: not tried, since /bin/sh could not run the script\n",
               doctor_program_tools[tool]);
    return true;
}

int wb__cli_check_programs(const char *self)
{
    const char *temporary = wb__environment_path("TMPDIR");
    char folder[WB__OS_PATH], path[WB__OS_PATH + 32];
    if (!wb__cli_installed(self, WB__SONAME, doctor_program_library, sizeof doctor_program_library))
        *doctor_program_library = 0;
    if (!wb__cli_installed(self, "pkgconfig/weber.pc", doctor_program_pc, sizeof doctor_program_pc))
        *doctor_program_pc = 0;
    if (!wb__cli_installed(self, "cmake/weber/weber-config.cmake", doctor_program_cmake,
                           sizeof doctor_program_cmake))
        *doctor_program_cmake = 0;
    doctor_program_folder_of(doctor_program_library), doctor_program_folder_of(doctor_program_pc),
        doctor_program_folder_of(doctor_program_cmake);
    printf("\nprograms that are compiled here\n");
    snprintf(folder, sizeof folder, "%s/weber-doctor-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!wb__os_make_temporary(folder)) {
        printf("  not tried, since %s cannot be made\n", folder);
        return 0;
    }
    snprintf(path, sizeof path, "%s/program.c", folder);
    int status = wb__file_write(path, doctor_program_source,
                                (int64_t)strlen(doctor_program_source));
    snprintf(path, sizeof path, "%s/CMakeLists.txt", folder);
    if (!status)
        status = wb__file_write(path, doctor_program_lists, (int64_t)strlen(doctor_program_lists));
    if (status) printf("  not tried: %s\n", wb_error());
    char text[64];
    if (!status && doctor_program_check(0, folder)) doctor_program_check(1, folder);
    doctor_program_run(folder, "rm -rf -- \"$1\"", text, sizeof text);
    return doctor_program_problems;
}
