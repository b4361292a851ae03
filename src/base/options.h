/* Structs of options, whose fields are rows of a list (include/weber/base.h). */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

/* The source text of the options in a call of a macro, in which the library counts the numbers of a
 * list in braces, and looks up whether an option that is NULL is named.  NULL: no macro of C made
 * the struct. */
typedef struct { const char *text; } wb__given;

/* A guard of a struct of options: the option before it, and its place in the struct. */
typedef struct { const char *name; size_t at; } wb__named_guard;

/* Copies a caller's struct, whose first field is its size, to `to`, which has `capacity` bytes.
 * Fields that the struct of an older header lacks become zero, all of them if `from` is NULL; the
 * size becomes the smaller of the two.  Returns false, with the error set, if .size is no size of
 * such a struct, or if a byte of the caller's struct behind `capacity` is not zero. */
bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from);
/* Returns false, with the error set, if the reserve at the end of a caller's struct is not zero. */
bool wb__reserve_is_empty(const char *what, const void *reserve, size_t bytes);
/* Reads a struct of options of the type T as wb__read_struct does, but an option that the caller's
 * struct lacks has its default.  Also sets texts->text, unless `texts` is NULL.  Returns false too
 * if an option by place follows one by name, or if an element of a list is given. */
#define wb__read_options(what, T, to, from, texts)                                          \
    __extension__({                                                                         \
        typedef T wb__options_;                                                             \
        static const wb__options_ wb__defaults_ = {.given = WB_CXX_MADE_, WB_DEFAULTS_(T)}; \
        static const wb__named_guard wb__guards_[] = {                                      \
            T##_(WB__GUARD_, WB_NO_ROW_){NULL, 0}};                                         \
        wb__options_ *const wb__to_ = (to);                                                 \
        const wb__options_ *const wb__from_ = (from);                                       \
        wb__read_rows((what), wb__to_, wb__from_, &wb__defaults_, wb__guards_, (texts));    \
    })
/* A struct of options of the library's own: WB__OPTIONS(wb_conv_options, .groups = 2). */
#define WB__OPTIONS(...) WB__OPTIONS_(__VA_ARGS__, )
#define WB__OPTIONS_(T, ...) \
    WB_CALL_WITH_((T){.given = WB_CXX_MADE_, WB_DEFAULTS_(T), __VA_ARGS__})
#define WB__GUARD_(type, name, ...) {#name, offsetof(wb__options_, name##_guard_)},
bool wb__read_rows(const char *what, void *to, const void *from, const void *defaults,
                   const wb__named_guard *guards, wb__given *given);
/* Whether an option that is an object is given by its name as NULL, as by a call that failed.  If
 * so, sets the error, unless that call has set one. */
bool wb__is_given_null(const char *what, const wb__given *given, const char *name,
                       const void *object);
/* Returns how many numbers in braces the call gives for an option; -1: it gives none. */
int wb__numbers_given(const wb__given *given, const char *name);
/* Returns the number that an option means: WB_DEFAULT means `by_default`. */
static inline double wb__or(double value, double by_default)
{
    return value == WB_DEFAULT ? by_default : value;
}

/* Reads an option that is a list of integers: list[0] becomes the length, at most `most`, and the
 * numbers follow.  `position` is that of a list that may be given by place, else -1.  A list is
 * read only once.  Returns false, with the error set, if the list is too long, if the program names
 * it without numbers in braces, or if the program filled it without WB_INTS. */
bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most);
/* Copies the list *passed to `list`, unless *passed is NULL, and sets *passed to NULL.  *passed is
 * the field .sizes_ of a layer's options. */
static inline void wb__sizes_take(wb_ints list, const int64_t **passed)
{
    if (*passed) memcpy(list, *passed, sizeof(wb_ints));
    *passed = NULL;
}

#endif
