/* `weber new`: writes a program of the user's own and what builds it.  The files are those of
 * src/cli/new/, which CMake puts into this program; words such as @NAME@ in them are replaced. */
#include "base/files/file.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

extern const char wb__cli_new_main_c[], wb__cli_new_main_cpp[], wb__cli_new_CMakeLists_txt[],
    wb__cli_new_Makefile[], wb__cli_new_README_md[];

#define NEW_TEXT_(x) #x
#define NEW_TEXT(x) NEW_TEXT_(x)
#define NEW_VERSION NEW_TEXT(WB_VERSION_MAJOR) "." NEW_TEXT(WB_VERSION_MINOR)

typedef struct { const char *word, *in_c, *in_cxx; } new_replacement;
static const new_replacement new_replacements[] = {
    {"LANGUAGE", "C", "CXX"}, {"STANDARD", "11", "17"}, {"STD", "c11", "c++17"},
    {"COMPILER", "CC", "CXX"}, {"FLAGS", "CFLAGS", "CXXFLAGS"}, {"ENDING", "c", "cpp"},
    {"VERSION", NEW_VERSION, NEW_VERSION},
};

/* Names of targets that the CMake file or the Makefile already have. */
static const char *const new_targets[] = {
    "all", "ALL_BUILD", "clean", "edit_cache", "help", "install", "package", "package_source",
    "preinstall", "rebuild_cache", "RUN_TESTS", "test", "weber", "ZERO_CHECK"};
/* Names of files and folders that the builds make beside the program. */
static const char *const new_files[] = {"build", "CMakeFiles", "GNUmakefile", "Makefile"};

/* Prints why the command fails at the path, and returns 1. */
static int new_fail(const char *path, const char *reason)
{
    fprintf(stderr, "weber new: %s: %s\n", path, reason);
    return 1;
}

/* Returns the reason why `name` cannot be the name of a program, or NULL. */
static const char *new_reason_to_refuse(const char *name)
{
    if (!isalpha((unsigned char)*name)) return "a name begins with a letter";
    if (strlen(name) > 64) return "a name has at most 64 characters";
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
            return "a name has letters, digits, _ and -";
    for (size_t i = 0; i < WB__COUNT(new_targets); i++)
        if (!strcasecmp(name, new_targets[i])) return "the name is that of a target of every build";
    for (size_t i = 0; i < WB__COUNT(new_files); i++)
        if (!strcasecmp(name, new_files[i])) return "the name is that of a file of every build";
    return NULL;
}

/* The program, and the paths by which pkg-config and CMake find the Weber that this command belongs
 * to; "" if they find it without a path. */
typedef struct {
    const char *name;
    bool cxx;
    char pkg_config[WB__OS_PATH + 64], cmake[WB__OS_PATH + 64];
} new_program;

static bool new_is_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(text, word, n);
}

static const char *new_value_of(const char *word, size_t n, const new_program *p)
{
    if (new_is_word(word, n, "NAME")) return p->name;
    if (new_is_word(word, n, "PKG_CONFIG_PATH")) return p->pkg_config;
    if (new_is_word(word, n, "HINTS")) return p->cmake;
    for (size_t i = 0; i < WB__COUNT(new_replacements); i++) {
        const new_replacement *r = &new_replacements[i];
        if (new_is_word(word, n, r->word)) return p->cxx ? r->in_cxx : r->in_c;
    }
    return NULL;
}

/* Sets `folder` to the folder of a file that is installed with this command, unless the folder is
 * below a prefix that is always searched, or has characters special to make, the shell or CMake. */
static bool new_folder_of(const char *self, const char *file, char folder[WB__OS_PATH])
{
    if (!wb__cli_installed(self, file, folder, WB__OS_PATH)) return false;
    *strrchr(folder, '/') = 0;
    for (const char *c = folder; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._+-@~, ", *c) && !(*c & 0x80)) return false;
    return !wb__begins(folder, "/usr/lib") && !wb__begins(folder, "/usr/local/lib");
}

static void new_find_installation(new_program *p, const char *self)
{
    char folder[WB__OS_PATH];
    if (new_folder_of(self, "pkgconfig/weber.pc", folder))
        snprintf(p->pkg_config, sizeof p->pkg_config, "PKG_CONFIG_PATH=\"$(PKG_CONFIG_PATH):%s\" ",
                 folder);
    if (new_folder_of(self, "cmake/weber/weber-config.cmake", folder))
        snprintf(p->cmake, sizeof p->cmake, "\n             HINTS \"%s\"", folder);
}

/* Writes a file of the folder from the template `text`, with the words such as @NAME@ replaced. */
static int new_write_template(const char *folder, const char *file, const char *text,
                              const new_program *p)
{
    wb__text out = {0};
    while (*text) {
        const char *word = text + (*text == '@');
        const size_t n = *text == '@' ? strcspn(word, "@\n") : 0;
        const char *value = n && word[n] == '@' ? new_value_of(word, n, p) : NULL;
        const size_t plain = strcspn(text + 1, "@") + 1;
        if (value) wb__text_add(&out, "%s", value);
        else wb__text_raw(&out, text, plain);
        text = value ? word + n + 1 : text + plain;
    }
    char *path = wb__printf("%s/%s", folder, file);
    const size_t bytes = out.length;
    char *whole = wb__text_take(&out);
    const int status = path && whole ? wb__file_write(path, whole, (int64_t)bytes)
                                     : wb__error_or(WB_ERROR_MEMORY);
    wb__free(path);
    wb__free(whole);
    return status;
}

static int new_write_files(const char *folder, const new_program *p)
{
    int status = p->cxx ? new_write_template(folder, "main.cpp", wb__cli_new_main_cpp, p)
                        : new_write_template(folder, "main.c", wb__cli_new_main_c, p);
    if (!status)
        status = new_write_template(folder, "CMakeLists.txt", wb__cli_new_CMakeLists_txt, p);
    if (!status) status = new_write_template(folder, "Makefile", wb__cli_new_Makefile, p);
    return status ? status : new_write_template(folder, "README.md", wb__cli_new_README_md, p);
}

int wb__cli_new(int n, char **words, const char *self)
{
    const char *folder = NULL;
    new_program p = {0};
    for (int i = 0; i < n; i++) {
        if (!strcmp(words[i], "--cxx")) p.cxx = true;
        else if (folder || words[i][0] == '-') return -1;
        else folder = words[i];
    }
    if (!folder) return -1;
    const char *slash = strrchr(folder, '/');
    p.name = slash ? slash + 1 : folder;
    const char *reason = new_reason_to_refuse(p.name);
    if (reason) return new_fail(folder, reason);
    new_find_installation(&p, self);
    if (!wb__os_make_folder(folder, false)) return new_fail(folder, wb__os_reason());
    if (new_write_files(folder, &p)) return wb__cli_print_error();
    printf("%s has main.%s, CMakeLists.txt, a Makefile and a README.md.  Build and run it:\n"
           "    cd %s && make && ./%s\n", folder, p.cxx ? "cpp" : "c", folder, p.name);
    return 0;
}
