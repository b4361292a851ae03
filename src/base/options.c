/* Reads structs of options, and the text from which it follows which options are given. */
#include "base/options.h"

/* The first fields of each struct of options. */
typedef struct { size_t size; const char *given; } head;

bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from)
{
    size_t size = capacity;
    memset(to, 0, capacity);
    if (from) memcpy(&size, from, sizeof size);
    if (size < sizeof(head))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .size is %zu; set it to the size of the struct",
                        what, size),
               false;
    for (size_t i = capacity; i < size; i++)
        if (((const char *)from)[i])
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: .size is %zu, and the fields behind the %zu bytes that this "
                            "library (%s) knows are not zero: compile with its header",
                            what, size, capacity, wb_version()),
                   false;
    if (from) memcpy(to, from, WB__MIN(size, capacity));
    memcpy(to, &capacity, sizeof capacity);
    return true;
}

/* ---- the text of options --------------------------------------------------------------------- */

static const char *after_blanks(const char *at) { return at + strspn(at, " \t\n"); }

/* The end of the string or character literal that begins at `at`: its second quote. */
static const char *literal_end(const char *at)
{
    const char quote = *at;
    while (*++at && *at != quote) at += *at == '\\' && at[1];
    return at;
}

/* Returns the next comma outside brackets and literals, the brace that closes the list around `at`,
 * or the end of the text. */
static const char *argument_end(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        switch (*at) {
        case '(': case '[': case '{': depth++; break;
        case ')': case ']': depth--; break;
        case '}': if (!depth--) return at; break;
        case ',': if (!depth) return at; break;
        case '"': case '\'': at = literal_end(at); if (!*at) return at; break;
        }
    }
    return at;
}

/* How many numbers a list in braces has; -1: `at` is no list.  A comma may end it. */
static int numbers_in(const char *at)
{
    int n = 0;
    if (*at++ != '{') return -1;
    for (at = after_blanks(at); *at && *at != '}'; n++) {
        at = argument_end(at);
        if (*at == ',') at = after_blanks(at + 1);
    }
    return n;
}

/* Reads ".no_bias = true, .pad = {1, 0}" or "3, 4, wb_relu". */
static bool read_text(const char *what, const char *text, wb__given *given)
{
    bool named = false;
    for (const char *at = after_blanks(text), *end; *at; at = after_blanks(*end ? end + 1 : end)) {
        const char *value = at;
        end = argument_end(at);
        if (end == at) continue;                    /* the comma that a macro adds */
        const bool has_name = *at == '.' && strcspn(at + 1, "0123456789");     /* .5 is a number */
        if (named && !has_name)
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: %.*s follows an option with a name: name it too", what,
                            (int)(end - at), at),
                   false;
        named = has_name;
        const int length = named ? (int)strcspn(at + 1, " \t\n=,[") : 0;
        if (named && at[1 + length] == '[')
            return wb__fail(WB_ERROR_ARGUMENT, "%s: %.*s: give the whole list in braces", what,
                            (int)(end - at), at),
                   false;
        if (named) {
            value = at + strcspn(at, "=");
            value = value < end ? after_blanks(value + 1) : end;
        }
        if (given->n == WB__COUNT(given->option)) break;
        given->option[given->n].name = named ? at + 1 : NULL;
        given->option[given->n].length = length;
        given->option[given->n++].numbers = numbers_in(value);
    }
    return true;
}

bool wb__read_options(const char *what, void *to, size_t capacity, const void *from,
                      wb__given *given)
{
    wb__given local;
    if (!given) given = &local;
    given->all = given->known = false;
    given->n = 0;
    if (!wb__read_struct(what, to, capacity, from)) return false;
    head *h = to;
    const char *text = h->given;
    h->given = NULL;                                /* points to memory of the program */
    if (!text) return true;
    given->known = true;
    given->all = !strcmp(text, WB_ALL_);
    return given->all || read_text(what, text, given);
}

/* The index of an option in `given`; -1: it is not given. */
static int find(const wb__given *given, const char *name, int position)
{
    const size_t length = strlen(name);
    for (int i = 0; i < given->n; i++) {
        const char *written = given->option[i].name;
        if (written ? (size_t)given->option[i].length == length && !memcmp(written, name, length)
                    : i == position)
            return i;
    }
    return -1;
}

bool wb__is_given(const wb__given *given, const char *name, int position)
{
    return given->all || find(given, name, position) >= 0;
}

int wb__by_place(const wb__given *given)
{
    int n = 0;
    while (n < given->n && !given->option[n].name) n++;
    return n;
}

int wb__numbers_given(const wb__given *given, const char *name)
{
    const int at = find(given, name, -1);
    return at < 0 ? -1 : given->option[at].numbers;
}

int64_t wb__int_option(const wb__given *given, const char *name, int position, int64_t value,
                       int64_t by_default)
{
    return value || wb__is_given(given, name, position) ? value : by_default;
}

double wb__real_option(const wb__given *given, const char *name, int position, double value)
{
    if (value == WB_DEFAULT) return 0;
    return value == 0 && wb__is_given(given, name, position) ? WB__ZERO : value;
}

/* ---- lists ----------------------------------------------------------------------------------- */

void wb_ints_set(int64_t *list, int n, const int64_t *values)
{
    memset(list, 0, sizeof(wb_ints));
    list[0] = WB_INTS_ + n;
    for (int i = 0; i < n && i < WB_MAX_DIMS; i++) list[1 + i] = values[i];
}

/* How many numbers of a list the text has.  wb_MaxPool(2) gives one without braces. */
static int64_t length_in(const wb__given *given, const char *name, int position)
{
    const int at = find(given, name, position);
    if (at < 0) return 0;
    return given->option[at].numbers >= 0 ? given->option[at].numbers : !given->option[at].name;
}

bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most)
{
    const bool tagged = list[0] >= WB_INTS_ && list[0] <= WB_INTS_ + (int64_t)INT32_MAX;
    const int64_t n = tagged ? list[0] - WB_INTS_ : length_in(given, name, position);
    if (n > most)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %lld numbers; at most %d", what, name,
                        (long long)n, most),
               false;
    for (int64_t i = n; !tagged && i <= WB_MAX_DIMS; i++)
        if (list[i])
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: .%s is not a list: initialise it with WB_INTS(...)", what, name),
                   false;
    if (n == 0 && !tagged && find(given, name, position) >= 0)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is an empty list", what, name), false;
    if (!tagged) memmove(list + 1, list, (size_t)n * sizeof *list);
    list[0] = n;
    return true;
}
