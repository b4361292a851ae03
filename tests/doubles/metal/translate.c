/* From Metal's language to C++.  See vgpu_metal.h.
 *
 * The text comes from the preprocessor.  Words and attributes that C++ does not have are replaced
 * in place by words or blanks of the same length, so that the compiler's errors name the places of
 * the caller's text:
 *   device, thread, threadgroup of a pointer, and `kernel`   nothing
 *   constant                                                 const
 *   threadgroup of a variable                                VGPU_G<kernel>, memory of the group
 * A table for each kernel, and a function that calls it with an array of arguments, follow. */
#include "metal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 200, MOST_PARAMETERS = 64 };

typedef enum { BUFFER, GROUP, POSITION } parameter_kind;
typedef struct {
    parameter_kind kind;
    int index;
    char position[40];                  /* the attribute */
} parameter;

typedef struct {
    char name[128];
    int n;
    bool has_group;                     /* memory of a group */
    parameter parameters[MOST_PARAMETERS];
} kernel;

typedef struct {
    kernel kernels[MOST_KERNELS];
    int n;
    char *line_start;
    char file[200];
    int line;                           /* of line_start, in that file */
    char **log;
} translation;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Sets the log; returns false. */
__attribute__((format(printf, 3, 4)))
static bool refuse(const translation *t, const char *at, const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    *t->log = malloc(600);
    if (*t->log)
        snprintf(*t->log, 600, "%s:%d:%d: error: %s\n", t->file, t->line,
                 (int)(at - t->line_start) + 1, text);
    return false;
}

static void blank(char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (from[i] != '\n') from[i] = ' ';
}

/* Past a line that begins with '#'; `# 12 "file"` is the place of the next line. */
static char *pass_directive(translation *t, char *p)
{
    int line = 0;
    char *end = p + strcspn(p, "\n");
    char file[200];
    if (sscanf(p, "# %d \"%199[^\"]\"", &line, file) == 2) {
        t->line = line - 1;
        memcpy(t->file, file, sizeof file);
    }
    return end;
}

/* Past a literal in quotes. */
static char *pass_literal(char *p)
{
    const char quote = *p++;
    while (*p && *p != quote && *p != '\n') p += *p == '\\' && p[1] ? 2 : 1;
    return *p == quote ? p + 1 : p;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static bool is_position(const char *name)
{
    static const char *const known[] = {
        "thread_position_in_threadgroup", "threadgroup_position_in_grid",
        "threads_per_threadgroup", "threadgroups_per_grid", "thread_position_in_grid",
        "threads_per_grid", "thread_index_in_threadgroup"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], name)) return true;
    return false;
}

/* Reads a parameter from..end of a kernel, and blanks its attribute. */
static bool read_parameter(translation *t, kernel *k, char *from, char *end)
{
    char name[40] = "", after[4] = "";
    parameter p = {.index = -1};
    char *open = strstr(from, "[["), *close = open ? strstr(open, "]]") : NULL;
    while (from < end && isspace((unsigned char)*from)) from++;
    if (!close || close >= end)
        return refuse(t, from, "a parameter of kernel '%s' has no attribute", k->name);
    const int n = sscanf(open + 2, " %39[a-z_] ( %d %3[)]", name, &p.index, after);
    if (n == 3 && (!strcmp(name, "buffer") || !strcmp(name, "threadgroup"))) {
        p.kind = *name == 'b' ? BUFFER : GROUP;
        if (p.index < 0 || p.index >= METAL_ARGUMENTS)
            return refuse(t, open, "'%s' attribute parameter is out of bounds: must be between 0"
                          " and 30", name);
        for (int i = 0; i < k->n; i++)
            if (k->parameters[i].kind == p.kind && k->parameters[i].index == p.index)
                return refuse(t, open, "two parameters of kernel '%s' have the index %d", k->name,
                              p.index);
        k->has_group |= p.kind == GROUP;
    } else if (n == 1 && is_position(name)) {
        p.kind = POSITION;
        memcpy(p.position, name, sizeof name);
    } else {
        return refuse(t, open, "unknown attribute '%s'", name);
    }
    blank(open, (size_t)(close + 2 - open));
    if (k->n == MOST_PARAMETERS) return refuse(t, from, "too many parameters");
    k->parameters[k->n++] = p;
    return true;
}

/* Reads the signature behind the word `kernel`. */
static bool read_kernel(translation *t, char *p)
{
    kernel *k = &t->kernels[t->n];
    if (t->n == MOST_KERNELS) return refuse(t, p, "too many kernels");
    char *open = p + strcspn(p, "(;{"), *name = open;
    while (name > p && isspace((unsigned char)name[-1])) name--;
    char *name_end = name;
    while (name > p && is_word(name[-1])) name--;
    if (*open != '(' || name == name_end) return refuse(t, p, "a kernel is a function");
    *k = (kernel){.n = 0};
    snprintf(k->name, sizeof k->name, "%.*s", (int)(name_end - name), name);
    t->n++;
    char *from = open + 1;
    int depth = 0;
    for (char *q = from; *q; q++) {
        if (*q == '(' || *q == '[' || *q == '<') depth++;
        else if ((*q == ')' || *q == ']' || *q == '>') && depth) depth--;
        else if ((*q == ',' || *q == ')') && !depth) {
            const bool last = *q == ')';
            if (last && !k->n && strspn(from, " \t\n") == (size_t)(q - from)) return true;
            if (!read_parameter(t, k, from, q)) return false;
            if (last) return true;
            from = q + 1;
        }
    }
    return refuse(t, p, "the parameters of kernel '%s' do not end", k->name);
}

/* ---- words ----------------------------------------------------------------------------------- */

static bool is(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(p, word, n);
}

/* The word `threadgroup`: the beginning of a variable, or part of a pointer's type. */
static bool group_word(translation *t, char *p, bool statement, int depth)
{
    const char *name = p + strlen("threadgroup");
    const char *end = name + strcspn(name, "*&;=[(,)");
    if (!statement || *end == '*' || *end == '&' || *end == '(' || *end == ')') {
        blank(p, strlen("threadgroup"));
        return true;
    }
    if (!depth || !t->n)
        return refuse(t, p, "a variable in threadgroup memory must be in a kernel");
    if (name[strcspn(name, ";=")] == '=')
        return refuse(t, p, "a variable in threadgroup memory cannot be initialized");
    char word[24];
    snprintf(word, sizeof word, "VGPU_G%03d  ", t->n - 1);
    memcpy(p, word, strlen("threadgroup"));
    t->kernels[t->n - 1].has_group = true;
    return true;
}

/* `statement`: it begins a statement; `depth`: of braces, 0 outside of kernels. */
static bool read_word(translation *t, char *p, size_t n, bool statement, int depth)
{
    static const char *const none[] = {"double", "goto", "throw", "try", "catch", "virtual", "new",
                                       "delete", "dynamic_cast", "typeid", "thread_local"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (is(p, n, none[i])) return refuse(t, p, "'%s' is not supported in Metal", none[i]);
    if (is(p, n, "long")) {
        const char *next = p + n + strspn(p + n, " ");
        if (!strncmp(next, "long", 4) && !is_word(next[4]))
            return refuse(t, p, "'long long' is not supported in Metal");
    }
    if (is(p, n, "device") || is(p, n, "thread")) blank(p, n);
    else if (is(p, n, "constant")) memcpy(p, "const   ", n);
    else if (is(p, n, "threadgroup")) return group_word(t, p, statement, depth);
    else if (is(p, n, "kernel")) {
        blank(p, n);
        return read_kernel(t, p);
    }
    return true;
}

static bool read_text(translation *t, char *text)
{
    char last = ';';                    /* before the word, without blanks and directives */
    int depth = 0, outside = 0;         /* of braces; of those before the kernel */
    int seen = 0;                       /* kernels whose body has begun */
    t->line_start = text;
    for (char *p = text; *p;) {
        if (*p == '\n') {
            t->line++;
            t->line_start = ++p;
        } else if (*p == '#' && p == t->line_start) {
            p = pass_directive(t, p);
        } else if (*p == '"' || *p == '\'') {
            p = pass_literal(p);
            last = '"';
        } else if (is_word(*p)) {
            size_t n = 0;
            while (is_word(p[n])) n++;
            const bool statement = last == ';' || last == '{' || last == '}';
            if (!isdigit((unsigned char)*p)
                && !read_word(t, p, n, statement, seen == t->n ? depth - outside : 0)) return false;
            last = 'a';
            p += n;
        } else {
            if (*p == '{') {
                if (seen < t->n) outside = depth;
                seen = t->n;
                depth++;
            }
            depth -= *p == '}';
            if (depth <= outside && *p == '}') outside = depth;
            if (!isspace((unsigned char)*p)) last = *p;
            p++;
        }
    }
    return true;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void write_table(FILE *out, const kernel *k, int number)
{
    bool dynamic = false;
    int n = 0;
    for (int i = 0; i < k->n; i++) dynamic |= k->parameters[i].kind == GROUP;
    if (k->has_group)
        fprintf(out, "VGPU_GROUP_PARTS(vgpu_group%d)\n", number);
    if (dynamic) fprintf(out, "VGPU_G%03d char vgpu_dynamic_%d[%d];\n", number, number,
                         METAL_GROUP_MEMORY);
    fprintf(out, "static void vgpu_call_%d(void **p)\n{\n    (void)p;\n    %s(", number, k->name);
    for (int i = 0; i < k->n; i++) {
        const parameter *p = &k->parameters[i];
        fprintf(out, "%s", i ? ",\n        " : "");
        if (p->kind == POSITION)
            fprintf(out, "vgpu_at<vgpu_type<decltype(%s), %d>>::of(vgpu_%s())", k->name, i,
                    p->position);
        else
            fprintf(out, "vgpu_from<vgpu_type<decltype(%s), %d>>::of(p[%d])", k->name, i, n++);
    }
    fprintf(out, ");\n}\nstatic const vgpu_argument vgpu_arguments_%d[] = {\n", number);
    for (int i = 0; i < k->n; i++) {
        const parameter *p = &k->parameters[i];
        if (p->kind != POSITION)
            fprintf(out, "    VGPU_ARGUMENT(%d, %d, %s, %d),\n", p->index, p->kind == GROUP,
                    k->name, i);
    }
    fprintf(out, "    {}};\nstatic const vgpu_kernel vgpu_kernel_%d = {vgpu_call_%d, %d, 0, 0,"
            " \"%s\", vgpu_arguments_%d, ", number, number, n, k->name, number);
    if (k->has_group) fprintf(out, "__start_vgpu_group%d, __stop_vgpu_group%d, ", number, number);
    else fprintf(out, "0, 0, ");
    if (dynamic) fprintf(out, "vgpu_dynamic_%d};\n", number);
    else fprintf(out, "0};\n");
}

bool metal_translate(FILE *out, char *text, char **log)
{
    translation *t = vgpu_zeroed(sizeof *t);
    t->log = log;
    t->line = 1;
    const bool good = read_text(t, text);
    for (int i = 0; good && i < t->n; i++)
        fprintf(out, "#define VGPU_G%03d static __attribute__((section(\"vgpu_group%d\"),"
                " aligned(16), used))\n", i, i);
    if (good) fprintf(out, "%s\n", text);
    for (int i = 0; good && i < t->n; i++) write_table(out, &t->kernels[i], i);
    if (good) fprintf(out, "VGPU_KERNELS\n");
    for (int i = 0; good && i < t->n; i++) fprintf(out, "    &vgpu_kernel_%d,\n", i);
    if (good) fprintf(out, "    0};\n");
    free(t);
    return good;
}
