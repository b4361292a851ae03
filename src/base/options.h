/* Structs of options: their first fields are .size, the struct's size in the caller's header, and
 * .given, the text of the options in the program (include/weber/base.h). */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

#define WB__ZERO (-1.0e-300)        /* the number 0, in fields in which 0 means "not given" */

/* The options that a program gives, in the order of its text. */
typedef struct {
    bool all;                       /* from C++: every field is meant as it is */
    bool known;                     /* from a macro or from C++, not from .given of a program */
    int n;
    struct {
        const char *name;           /* not ended by 0; NULL: given by position */
        int length;                 /* of the name */
        int numbers;                /* in braces; -1: the value is not in braces */
    } option[32];
} wb__given;

/* Copies a caller's struct, whose first field is its size, to `to`, which has `capacity` bytes.
 * Fields that the caller's version does not have become zero.  NULL: all fields are zero.  False,
 * with the error set: .size is too small, or a field that this library does not have is not
 * zero. */
bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from);
/* The same for a struct of options.  `names`: the options whose default is not 0, "eps momentum",
 * which a program may name in .given; `given` may be NULL where there are none.  False, with the
 * error set, also if the text cannot be read, or an option by position follows one by name: C would
 * put its value into the field behind the named field. */
bool wb__read_options(const char *what, void *to, size_t capacity, const void *from,
                      const char *names, wb__given *given);
/* Whether an option is given, by name or by position; position -1: by name only. */
bool wb__is_given(const wb__given *given, const char *name, int position);
/* How many options are given by position; they come first. */
int wb__by_place(const wb__given *given);
/* How many numbers in braces the option has; -1: it is not given in braces. */
int wb__numbers_given(const wb__given *given, const char *name);
/* Returns the value of an option whose default is not 0: `value` if it is given, else
 * `by_default`. */
int64_t wb__int_option(const wb__given *given, const char *name, int position, int64_t value,
                       int64_t by_default);
/* Returns the value of a number as wb__real expects it: 0 if it is not given or is WB_DEFAULT,
 * WB__ZERO if it is given as 0, else `value`. */
double wb__real_option(const wb__given *given, const char *name, int position, double value);

/* Reads a list of integers: list[0] becomes its length, at most `most`, and the numbers follow.
 * An option that is not given is an empty list.  A list must be read only once.  False, with the
 * error set: it is too long, empty in the text, or filled without WB_INTS. */
bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most);
/* Copies the list that a layer's macro passed by pointer into its field. */
static inline void wb__sizes_take(wb_ints list, const int64_t **passed)
{
    if (*passed) memcpy(list, *passed, sizeof(wb_ints));
    *passed = NULL;
}

/* Returns the number that a value of an option means: 0 means the default, WB__ZERO means 0. */
static inline double wb__real(double value, double by_default)
{
    return value == 0 ? by_default : value == WB__ZERO ? 0 : value;
}

#endif
