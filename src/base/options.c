/* Reads structs of options.  The text in .given shows which options the program gives. */
#include "base/options.h"

/* The first fields of each struct of options. */
typedef struct { size_t size; const char *given; } head;

/* Bytes that no struct of a program exceeds: a larger .size was not initialised. */
enum { MOST_BYTES = 4096 };

static bool is_written(const char *given) { return given && *given == *WB_WRITTEN_; }

/* Fails since byte number `at` of a struct, behind those that the library knows, is not 0.  `given`
 * has the text of the options, if a macro wrote it. */
static bool unknown_option(const char *what, const char *given, size_t at, size_t known)
{
    const char *text = is_written(given) ? given + strlen(WB_WRITTEN_) : "...";
    int length = (int)WB__MIN(strlen(text), 500);
    while (length && strchr(", ", text[length - 1])) length--;     /* the comma that a macro adds */
    wb__fail(WB_ERROR_ARGUMENT,
             "%s: (%.*s) has an option that this library (%s) does not know: byte %zu of the "
             "struct is not 0, and the library knows %zu bytes; the program's header is newer, so "
             "install its library",
             what, length, text, wb_version(), at, known);
    return false;
}

/* Reads as wb__read_struct does.  `is_options`: the struct has .given. */
static bool read_fields(const char *what, void *to, size_t capacity, const void *from,
                        bool is_options)
{
    size_t size = capacity;
    memset(to, 0, capacity);
    if (from) memcpy(&size, from, sizeof size);
    if (size < sizeof(head) || size > MOST_BYTES || size % sizeof(size_t))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .size is %zu; set it to the size of the struct",
                        what, size),
               false;
    for (size_t i = capacity; i < size; i++)
        if (((const char *)from)[i])
            return unknown_option(what, is_options ? ((const head *)from)->given : NULL, i,
                                  capacity);
    size = WB__MIN(size, capacity);
    if (from) memcpy(to, from, size);
    memcpy(to, &size, sizeof size);
    return true;
}

bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from)
{
    return read_fields(what, to, capacity, from, false);
}

bool wb__reserve_is_empty(const char *what, const void *reserve, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)reserve)[i])
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: the struct has a field that this library (%s) does not know; the "
                            "program's header is newer, so install its library, or the struct was "
                            "not initialised", what, wb_version()),
                   false;
    return true;
}

/* ---- the text of options --------------------------------------------------------------------- */

static const char *after_blanks(const char *at) { return at + strspn(at, " \t\n"); }

static bool is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the apostrophe at `at` separates digits: 1'000. */
static bool separates_digits(const char *begin, const char *at)
{
    while (at > begin && (is_of_word(at[-1]) || at[-1] == '\'' || at[-1] == '.')) at--;
    return (*at >= '0' && *at <= '9') || (*at == '.' && at[1] >= '0' && at[1] <= '9');
}

/* The end of the string or character literal that begins at `at`: its second quote. */
static const char *literal_end(const char *at)
{
    const char quote = *at;
    while (*++at && *at != quote) at += *at == '\\' && at[1];
    return at;
}

/* Returns the next comma outside brackets, literals and conditional expressions, or the end of the
 * text or of a bracket.  NULL: a literal or a bracket has no end. */
static const char *argument_end(const char *begin)
{
    const char *at = begin;
    int depth = 0, conditions = 0;
    for (; *at; at++) {
        switch (*at) {
        case '(': case '[': case '{': depth++; break;
        case ')': case ']': depth--; break;
        case '}': if (!depth--) return at; break;
        case '?': conditions++; break;
        case ':': conditions -= conditions > 0; break;
        case ',': if (!depth && !conditions) return at; break;
        case '\'': if (separates_digits(begin, at)) break; /* FALLTHROUGH */
        case '"': at = literal_end(at); if (!*at) return NULL; break;
        }
    }
    return depth ? NULL : at;
}

/* Returns the length of a list in braces.  A comma may follow the last number.  -1: `at` is no such
 * list; -2: the list has designators, or brackets that do not match. */
static int numbers_in(const char *at)
{
    int n = 0;
    if (*at++ != '{') return -1;
    for (at = after_blanks(at); *at && *at != '}'; n++) {
        if (*at == '[') return -2;
        at = argument_end(at);
        if (!at) return -2;                         /* brackets that do not match */
        if (*at == ',') at = after_blanks(at + 1);
    }
    return n;
}

static bool not_read(const char *what, const char *at, const char *end, const char *reason)
{
    wb__fail(WB_ERROR_ARGUMENT, "%s: %.*s: %s", what, (int)(end - at), at, reason);
    return false;
}

/* Reads one option from `at` to `end`: ".pad = {1, 0}" or "3". */
static bool read_option(const char *what, const char *at, const char *end, wb__given *given)
{
    const char *name = *at == '.' ? after_blanks(at + 1) : NULL, *value = at;
    if (name && *name >= '0' && *name <= '9') name = NULL;          /* .5 is a number */
    int length = 0;
    if (name) {
        while (is_of_word(name[length])) length++;
        value = after_blanks(name + length);
        if (*value == '[') return not_read(what, at, end, "give the whole list in braces");
        if (*value == '=') value = after_blanks(value + 1);
    } else if (given->n && given->option[given->n - 1].name) {
        return not_read(what, at, end, "it follows an option with a name: name it too");
    } else {
        const char *after = at;
        while (is_of_word(*after)) after++;
        after = after_blanks(after);
        if (after < end && after[0] == ':' && after[1] != ':')
            return not_read(what, at, end, "write .name = value");
    }
    const int numbers = numbers_in(value);
    if (numbers < -1) return not_read(what, at, end, "a list has its numbers in order");
    if (given->n == WB__COUNT(given->option)) return not_read(what, at, end, "too many options");
    given->option[given->n].name = name;
    given->option[given->n].length = length;
    given->option[given->n++].numbers = numbers;
    return true;
}

/* Reads a text of options, such as ".no_bias = true, .pad = {1, 0}" or "3, 4, wb_relu". */
static bool read_text(const char *what, const char *text, wb__given *given)
{
    for (const char *at = after_blanks(text), *end; *at; at = after_blanks(*end ? end + 1 : end)) {
        end = argument_end(at);
        if (!end || *end == '}')
            return not_read(what, at, at + strlen(at), "a bracket or a literal has no end");
        if (end == at) continue;                    /* the comma that a macro adds */
        if (!read_option(what, at, end, given)) return false;
    }
    return true;
}

/* Whether `name`, of `length` characters, is in `names`, a list separated by blanks. */
static bool is_one_of(const char *names, const char *name, size_t length)
{
    for (const char *at = names; *at; at = after_blanks(at)) {
        const size_t n = strcspn(at, " ");
        if (n == length && !memcmp(at, name, n)) return true;
        at += n;
    }
    return false;
}

/* Reads a .given that a C program wrote itself, such as ".eta, .rho". */
static bool read_names(const char *what, const char *text, const char *names, wb__given *given)
{
    for (const char *at = text + strspn(text, " \t\n,"); *at; at += strspn(at, " \t\n,")) {
        const size_t n = strcspn(at, " \t\n,");
        if (*at != '.' || !is_one_of(names, at + 1, n - 1))
            return wb__fail(WB_ERROR_ARGUMENT, "%s: .given has \"%.*s\"; it may have %s%s", what,
                            (int)n, at, *names ? "these names, with dots: " : "no name", names),
                   false;
        if (!read_option(what, at, at + n, given)) return false;
        at += n;
    }
    return true;
}

bool wb__read_options(const char *what, void *to, size_t capacity, const void *from,
                      const char *names, wb__given *given)
{
    wb__given local;
    if (!given) given = &local;
    given->all = given->known = false;
    given->n = 0;
    if (!read_fields(what, to, capacity, from, true)) return false;
    head *h = to;
    const char *text = h->given;
    given->size = h->size;
    h->given = NULL;                                /* points to memory of the program */
    if (!text) return true;
    given->all = !strcmp(text, WB_ALL_);
    given->known = given->all || is_written(text);
    if (given->all) return true;
    return given->known ? read_text(what, text + strlen(WB_WRITTEN_), given)
                        : read_names(what, text, names, given);
}

/* Returns the index in given->option of the last mention of an option; -1: it is not given.  C
 * initialises a field that is named twice with the last value. */
static int find(const wb__given *given, const char *name, int position)
{
    const size_t length = strlen(name);
    for (int i = given->n - 1; i >= 0; i--) {
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

bool wb__is_given_null(const char *what, const wb__given *given, const char *name,
                       const void *object)
{
    return !object && !given->all && wb__is_given(given, name, -1) && wb__null(what, name);
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

/* The first word of a list that wb_ints_set could not set. */
#define WITHOUT_NUMBERS (WB_INTS_ - (int64_t)1)

void wb_ints_set(int64_t *list, int n, const int64_t *values)
{
    if (WB__NULL(list)) return;
    memset(list, 0, sizeof(wb_ints));
    if (n < 0 || (n > 0 && !values)) {
        wb__fail(WB_ERROR_ARGUMENT, "ints_set: %d numbers%s", n,
                 values ? "" : ", and NULL in place of their array");
        list[0] = WITHOUT_NUMBERS;
        return;
    }
    list[0] = WB_INTS_ + n;
    for (int i = 0; i < n && i < WB_MAX_DIMS; i++) list[1 + i] = values[i];
}

/* Returns how many numbers the program gives for a list; 0: the list is not given.  -1: the list is
 * given by name, but not in braces.  wb_MaxPool(2) gives one number, without braces. */
static int64_t length_in(const wb__given *given, const char *name, int position)
{
    const int at = find(given, name, position);
    if (at < 0) return 0;
    if (given->option[at].numbers >= 0) return given->option[at].numbers;
    return given->option[at].name ? -1 : 1;
}

bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most)
{
    if (list[0] == WITHOUT_NUMBERS)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has no numbers, since wb_ints_set got none for"
                        " it", what, name), false;
    const bool tagged = list[0] >= WB_INTS_ && list[0] <= WB_INTS_ + (int64_t)INT32_MAX;
    const int64_t n = tagged ? list[0] - WB_INTS_ : length_in(given, name, position);
    if (!tagged && given->known && n <= 0 && find(given, name, position) >= 0)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s is a list with numbers: .%s = {...}", what,
                        name, name),
               false;
    if (n > most)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %lld numbers; at most %d", what, name,
                        (long long)n, most),
               false;
    for (int64_t i = WB__MAX(n, 0); !tagged && i <= WB_MAX_DIMS; i++)
        if (list[i])
            return wb__fail(WB_ERROR_ARGUMENT,
                            "%s: .%s is not a list: initialise it with WB_INTS(...)", what, name),
                   false;
    if (!tagged && n > 0) memmove(list + 1, list, (size_t)n * sizeof *list);
    list[0] = WB__MAX(n, 0);
    return true;
}
