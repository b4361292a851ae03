/* Compares our declarations of Apple's methods, the rows of METHODS, with Apple's types, the table
 * `apple`.  The file that includes this header has both, and type_in_c. */
#ifndef APPLE_METHODS_H
#define APPLE_METHODS_H

#include "base/base.h"

/* Writes Apple's types as C types: the result, and "id, NSUInteger". */
static void types_in_c(const char *types, char *result, char *arguments)
{
    char list[300];
    snprintf(list, sizeof list, "%s", types);
    *result = *arguments = 0;
    int n = 0;
    for (char *rest = list, *type; (type = strtok_r(rest, ";", &rest)); n++) {
        type += *type == ' ';
        if (!n) strcpy(result, type_in_c(type));
        else sprintf(arguments + strlen(arguments), "%s%s", n > 1 ? ", " : "", type_in_c(type));
    }
    if (n == 1) strcpy(arguments, "void");
}

#define ROW(result, n, name, selector, ...) {selector, #n, #result, #__VA_ARGS__},
static const struct { const char *selector, *n, *result, *arguments; } ours[] = {
    METHODS(ROW)
};

TEST(methods_have_apples_types)
{
    for (size_t i = 0; i < WB__COUNT(ours); i++) {
        char result[40], arguments[300];
        size_t k = 0;
        while (k < WB__COUNT(apple) && strcmp(apple[k].selector, ours[i].selector)) k++;
        if (k == WB__COUNT(apple)) fail_msg("%s is not listed", ours[i].selector);
        types_in_c(apple[k].types, result, arguments);
        if (strcmp(result, ours[i].result) || strcmp(arguments, ours[i].arguments))
            fail_msg("%s: Apple's types are %s (%s), ours %s (%s)", ours[i].selector, result,
                     arguments, ours[i].result, ours[i].arguments);
        assert_int_equal(*ours[i].n == 'V', !strcmp(ours[i].result, "void"));
    }
    assert_int_equal(WB__COUNT(ours), WB__COUNT(apple));
}

/* A selector has as many colons as arguments. */
TEST(selectors_have_their_arguments)
{
    for (size_t i = 0; i < WB__COUNT(ours); i++) {
        int colons = 0;
        for (const char *c = ours[i].selector; *c; c++) colons += *c == ':';
        const char *n = ours[i].n + (*ours[i].n == 'V');
        if (colons != atoi(n)) fail_msg("%s has %s arguments", ours[i].selector, n);
    }
}

#endif
