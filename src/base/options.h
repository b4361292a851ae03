/* Structs of options: their first fields are .size, the struct's size in the caller's header, and
 * .given, the text of the options in the program (include/weber/base.h). */
#ifndef WB__OPTIONS_H
#define WB__OPTIONS_H

#include "base/base.h"

#include <string.h>

#define WB__ZERO (-1.0e-300)        /* the number 0, in fields in which 0 means "not given" */

/* The options that a program gives, in the order in which it gives them. */
typedef struct {
    bool all;                       /* every field counts as given, as in C++ */
    bool known;                     /* a macro or C++ has set .given; false: the program has set
                                       .given by hand, or .given is NULL */
    size_t size;                    /* of the program's struct: no field behind it is given */
    int n;
    struct {
        const char *name;           /* not ended by 0; NULL: the option is given by position */
        int length;                 /* of `name` */
        int numbers;                /* length of the list in braces; -1: the value is no such
                                       list */
    } option[32];
} wb__given;

/* Copies a caller's struct, whose first field is its size, to `to`, which has `capacity` bytes.
 * Fields that the struct of an older header lacks become zero, all of them if `from` is NULL; the
 * size becomes the smaller of the two.  Returns false, with the error set, if .size is no size of
 * such a struct, or if a byte of the caller's struct behind `capacity` is not zero. */
bool wb__read_struct(const char *what, void *to, size_t capacity, const void *from);
/* Returns false, with the error set, if the reserve at the end of a caller's struct is not zero. */
bool wb__reserve_is_empty(const char *what, const void *reserve, size_t bytes);
/* Reads a struct of options as wb__read_struct does.  Also sets *given to the options that the
 * program gives, unless `given` is NULL.  `names` lists the options whose default is not 0,
 * separated by blanks: "eps momentum".  A program may name these in .given.  Returns false too if
 * the text of the options cannot be read, or if an option by position follows an option by name. */
bool wb__read_options(const char *what, void *to, size_t capacity, const void *from,
                      const char *names, wb__given *given);
/* Whether an option that is an object is given by its name as NULL, as by a call that failed.  If
 * so, sets the error, unless that call has set one. */
bool wb__is_given_null(const char *what, const wb__given *given, const char *name,
                       const void *object);
/* Whether the option is given by its name, or as the argument number `position`, counted from 0.
 * With position -1 only the name counts. */
bool wb__is_given(const wb__given *given, const char *name, int position);
/* Returns the number of options given by position.  They precede those given by name. */
int wb__by_place(const wb__given *given);
/* Returns the length of the list in braces that is given for an option; -1: none is given. */
int wb__numbers_given(const wb__given *given, const char *name);
/* Returns the value of an option whose default is not 0: `value` if it is given, else
 * `by_default`. */
int64_t wb__int_option(const wb__given *given, const char *name, int position, int64_t value,
                       int64_t by_default);
/* Returns the value of an option that is a number, as wb__real expects it: 0 if it is not given or
 * is WB_DEFAULT, WB__ZERO if it is given as 0, else `value`. */
double wb__real_option(const wb__given *given, const char *name, int position, double value);

/* Reads an option that is a list of integers: list[0] becomes the length, at most `most`, and the
 * numbers follow.  An option that is not given is an empty list.  A list must be read only once.
 * Returns false, with the error set, if the list is too long, if the program names it without
 * numbers in braces, or if the program filled it without WB_INTS. */
bool wb__ints_read(const char *what, const wb__given *given, const char *name, int position,
                   wb_ints list, int most);
/* Copies the list *passed to `list`, unless *passed is NULL, and sets *passed to NULL.  *passed is
 * the field .sizes_ of a layer's options. */
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
