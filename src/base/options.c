/* Reads structs of options. */
#include "base/options.h"

/* The first fields of each struct of options. */
typedef struct { size_t size; const char *given; } options_head;

/* No struct of a program is larger, in bytes: a larger .size was not initialised. */
enum { OPTIONS_MOST_BYTES = 4096 };

/* The text of the options in a call of a macro; NULL: no macro made the struct. */
static const char *options_text_of(const char *given)
{
    return given && *given != *WB_CXX_MADE_ ? given + 1 : NULL;
}

/* Fails because byte `at` of a struct, behind the bytes that the library knows, is not 0.  `given`
 * has the text of the options, if a macro wrote it. */
static bool fail_unknown_option(const char *what, const char *given, size_t at, size_t known)
{
    const char *text = options_text_of(given) ? options_text_of(given) : "...";
    int length = (int)WB__MIN(strlen(text), 500);
    while (length && strchr(", ", text[length - 1])) length--;     /* the comma that a macro adds */
    wb__fail(WB_ERROR_ARGUMENT,
             "%s: (%.*s) has an option that this library (%s) does not know: byte %zu of the "
             "struct is not 0, and the library knows %zu bytes; the program's header is newer, so "
             "install its library",
             what, length, text, wb_version(), at, known);
    return false;
}

/* Copies the caller's struct over the defaults in `to`, as wb__read_struct does. */
static bool options_read_fields(const char *what, void *to, size_t capacity, const void *from,
                                const char *given)
{
    size_t size = capacity;
    if (from) memcpy(&size, from, sizeof size);
    if (size < sizeof(options_head) || size > OPTIONS_MOST_BYTES || size % sizeof(size_t))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .size is %zu; set it to the size of the struct, as "
                        "WB_OPTIONS_OF(type) does for a struct of options", what, size),
               false;
    for (size_t i = capacity; i < size; i++)
        if (((const char *)from)[i]) return fail_unknown_option(what, given, i, capacity);
    size = WB__MIN(size, capacity);
    if (from) memcpy(to, from, size);
    memcpy(to, &size, sizeof size);
    return true;
}

bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from)
{
    memset(to, 0, capacity);
    return options_read_fields(what, to, capacity, from, NULL);
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

static const char *after_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n') at++;
    return at;
}

static bool is_word_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the apostrophe at `at` separates digits: 1'000. */
static bool separates_digits(const char *begin, const char *at)
{
    while (at > begin && (is_word_character(at[-1]) || at[-1] == '\'' || at[-1] == '.')) at--;
    return (*at >= '0' && *at <= '9') || (*at == '.' && at[1] >= '0' && at[1] <= '9');
}

/* Returns the end of the string or character literal that begins at `at`: its second quote. */
static const char *literal_end(const char *at)
{
    const char quote = *at;
    while (*++at && *at != quote) at += *at == '\\' && at[1];
    return at;
}

/* Returns the next comma outside brackets, literals and conditional expressions, or the end of the
 * text or of a bracket. */
static const char *argument_end(const char *begin)
{
    static const bool looked_at[256] = {
        [0] = 1, ['('] = 1, ['['] = 1, ['{'] = 1, [')'] = 1, [']'] = 1, ['}'] = 1, ['?'] = 1,
        [':'] = 1, [','] = 1, ['\''] = 1, ['"'] = 1};
    const char *at = begin;
    int depth = 0, conditions = 0;
    for (;; at++) {
        while (!looked_at[(unsigned char)*at]) at++;
        switch (*at) {
        case 0: return at;
        case '(': case '[': case '{': depth++; break;
        case ')': case ']': depth--; break;
        case '}': if (!depth--) return at; break;
        case '?': conditions++; break;
        case ':': conditions -= conditions > 0; break;
        case ',': if (!depth && !conditions) return at; break;
        case '\'': if (separates_digits(begin, at)) break; /* FALLTHROUGH */
        case '"': at = literal_end(at); if (!*at) return at; break;
        }
    }
}

/* Returns the length of a list in braces.  A comma may follow the last number.  -1: `at` is no such
 * list; -2: the list has designators. */
static int count_numbers_at(const char *at)
{
    int n = 0;
    if (*at++ != '{') return -1;
    for (at = after_blanks(at); *at && *at != '}'; n++) {
        if (*at == '[') return -2;
        at = argument_end(at);
        if (*at == ',') at = after_blanks(at + 1);
    }
    return n;
}

/* Returns the text behind the option's name, or its value if it is the argument number `position`,
 * where the option occurs last: C initialises a field that is named twice with the last value.
 * NULL: the option is not given.  `name` NULL: finds the element of a list, ".pad[1] = 2". */
static const char *find_option_text(const char *text, const char *name, int position)
{
    const char *found = NULL;
    if (!text) return NULL;
    text = after_blanks(text);
    for (int i = 0; *text; i++) {
        if (*text == '.' && !(text[1] >= '0' && text[1] <= '9')) {
            const char *end = after_blanks(text + 1), *letter = name ? name : "";
            while (*letter && *end == *letter) end++, letter++;
            while (!name && is_word_character(*end)) end++;
            if (name ? !*letter && !is_word_character(*end) : *after_blanks(end) == '[')
                found = after_blanks(end);
        } else if (i == position) {
            found = text;
        }
        text = argument_end(text);
        if (*text) text = after_blanks(text + 1);
    }
    return found;
}

/* Returns how many numbers in braces a call gives for a list, as count_numbers_at; -3: the list is
 * not given.  MaxPool(2) gives one number, without braces. */
static int count_numbers_of(const char *text, const char *name, int position)
{
    const char *at = find_option_text(text, name, position);
    if (!at) return -3;
    if (*at == '=') return count_numbers_at(after_blanks(at + 1));
    return *at == '{' ? count_numbers_at(at) : 1;
}

/* Whether the call gives an element of a list, ".pad[1] = 2". */
static bool gives_element(const char *text)
{
    for (const char *at = strchr(text, '['); at; at = strchr(at + 1, '[')) {
        const char *word = at;
        while (word > text && (is_word_character(word[-1]) || word[-1] == ' ')) word--;
        if (word > text && word[-1] == '.' && find_option_text(text, NULL, -1)) return true;
    }
    return false;
}

bool wb__read_rows(const char *what, void *to, const void *from, const void *defaults,
                   const wb__named_guard *guards, wb__given *given)
{
    options_head h;
    memcpy(&h, defaults, sizeof h);
    const size_t capacity = h.size;
    const char *const own = h.given;
    memcpy(to, defaults, capacity);
    if (from) memcpy(&h, from, sizeof h);
    const char *made = h.given;
    if (given) given->text = options_text_of(made);
    if (!from) return true;
    if (!options_read_fields(what, to, capacity, from, made)) return false;
    memcpy((char *)to + offsetof(options_head, given), &own, sizeof own);   /* our own */
    if (!made)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: the struct has no defaults: make it with "
                        "WB_OPTIONS_OF", what), false;
    for (uintptr_t mark = WB_MARK_; *made == *WB_GCC_MADE_ && guards->name; guards++)
        if (guards->at < h.size && memcmp((const char *)from + guards->at, &mark, sizeof mark))
            return wb__fail(WB_ERROR_ARGUMENT, "%s: (%.500s): an option without a name follows .%s:"
                            " name it too", what, made + 1, guards->name), false;
    if (options_text_of(made) && gives_element(made + 1))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: (%.500s): give a whole list in braces", what,
                        made + 1), false;
    return true;
}

bool wb__is_given_null(const char *what, const wb__given *given, const char *name,
                       const void *object)
{
    return !object && find_option_text(given->text, name, -1) && wb__null(what, name);
}

int wb__numbers_given(const wb__given *given, const char *name)
{
    return WB__MAX(count_numbers_of(given->text, name, -1), -1);
}

/* The first word of a list that wb_ints_set could not set, for lack of memory. */
#define WITHOUT_NUMBERS (WB_MARK_ - (int64_t)1)

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
    list[0] = WB_MARK_ + n;
    for (int i = 0; i < n && i < WB_MAX_DIMS; i++) list[1 + i] = values[i];
}

bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most)
{
    const bool tagged = list[0] >= WB_MARK_ && list[0] <= WB_MARK_ + (int64_t)INT32_MAX;
    const int64_t n = tagged ? list[0] - WB_MARK_ : count_numbers_of(given->text, name, position);
    const bool unset = list[0] == WITHOUT_NUMBERS;
    const char *wrong = unset             ? "has no numbers, since wb_ints_set got none for it"
                        : tagged || n > 0 ? NULL
                        : n == -2         ? "has its numbers in order"
                                          : "is a list with numbers, in braces: {...}";
    if (n == -3 && !unset)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "%s: .%s is not a list: initialise it with WB_INTS(...)", what, name),
               false;
    if (wrong) return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s %s", what, name, wrong), false;
    if (n > most)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: .%s has %lld numbers; at most %d", what, name,
                        (long long)n, most),
               false;
    if (!tagged) memmove(list + 1, list, (size_t)n * sizeof *list);
    list[0] = n;
    return true;
}
