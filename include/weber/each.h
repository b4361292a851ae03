/* Weber: counting and mapping macro arguments (at most 32).  Included by base.h; programs do not
 * use these macros. */
#ifndef WEBER_EACH_H
#define WEBER_EACH_H

/* This pragma keeps compilers from printing a line for each macro of this file that a wrong
 * argument passed through.  Their messages about the arguments, warnings too, stay. */
#if defined(__GNUC__)
#pragma GCC system_header
#endif

#define WB_NARGS_(...) WB_NARGS_PICK_(__VA_ARGS__, WB_MORE_THAN_32_, 32, 31, 30, 29, 28, 27,   \
    26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3,   \
    2, 1, 0)
#define WB_MORE_THAN_32_ at_most_32_arguments, at_most_32_arguments, at_most_32_arguments,     \
    at_most_32_arguments, at_most_32_arguments, at_most_32_arguments, at_most_32_arguments,    \
    at_most_32_arguments, at_most_32_arguments, at_most_32_arguments, at_most_32_arguments,    \
    at_most_32_arguments, at_most_32_arguments, at_most_32_arguments, at_most_32_arguments,    \
    at_most_32_arguments
#define WB_NARGS_PICK_(...) WB_NARGS_PICK_2_(__VA_ARGS__)
#define WB_NARGS_PICK_2_(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,     \
    a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32,       \
    a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48,            \
    count, ...) count

/* 1 for one argument, 2 for more. */
#define WB_ONE_OR_MORE_(...) WB_NARGS_PICK_(__VA_ARGS__, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,   \
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,   \
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0)

#define WB_PASTE_(a, b) WB_PASTE_2_(a, b)
#define WB_PASTE_2_(a, b) a##b
#define WB_EACH_(f, ...) WB_EACH_WITH_(WB_CALL_, f, __VA_ARGS__)
#define WB_CALL_(f, x) f(x)
#define WB_EACH_WITH_(f, c, ...) WB_PASTE_(WB_EACH_WITH_, WB_NARGS_(__VA_ARGS__))(f, c, __VA_ARGS__)
#define WB_EACH_WITH_at_most_32_arguments(...) at_most_32_arguments
#define WB_EACH_WITH_1(f, c, x) f(c, x)
#define WB_EACH_WITH_2(f, c, x, ...) f(c, x) WB_EACH_WITH_1(f, c, __VA_ARGS__)
#define WB_EACH_WITH_3(f, c, x, ...) f(c, x) WB_EACH_WITH_2(f, c, __VA_ARGS__)
#define WB_EACH_WITH_4(f, c, x, ...) f(c, x) WB_EACH_WITH_3(f, c, __VA_ARGS__)
#define WB_EACH_WITH_5(f, c, x, ...) f(c, x) WB_EACH_WITH_4(f, c, __VA_ARGS__)
#define WB_EACH_WITH_6(f, c, x, ...) f(c, x) WB_EACH_WITH_5(f, c, __VA_ARGS__)
#define WB_EACH_WITH_7(f, c, x, ...) f(c, x) WB_EACH_WITH_6(f, c, __VA_ARGS__)
#define WB_EACH_WITH_8(f, c, x, ...) f(c, x) WB_EACH_WITH_7(f, c, __VA_ARGS__)
#define WB_EACH_WITH_9(f, c, x, ...) f(c, x) WB_EACH_WITH_8(f, c, __VA_ARGS__)
#define WB_EACH_WITH_10(f, c, x, ...) f(c, x) WB_EACH_WITH_9(f, c, __VA_ARGS__)
#define WB_EACH_WITH_11(f, c, x, ...) f(c, x) WB_EACH_WITH_10(f, c, __VA_ARGS__)
#define WB_EACH_WITH_12(f, c, x, ...) f(c, x) WB_EACH_WITH_11(f, c, __VA_ARGS__)
#define WB_EACH_WITH_13(f, c, x, ...) f(c, x) WB_EACH_WITH_12(f, c, __VA_ARGS__)
#define WB_EACH_WITH_14(f, c, x, ...) f(c, x) WB_EACH_WITH_13(f, c, __VA_ARGS__)
#define WB_EACH_WITH_15(f, c, x, ...) f(c, x) WB_EACH_WITH_14(f, c, __VA_ARGS__)
#define WB_EACH_WITH_16(f, c, x, ...) f(c, x) WB_EACH_WITH_15(f, c, __VA_ARGS__)
#define WB_EACH_WITH_17(f, c, x, ...) f(c, x) WB_EACH_WITH_16(f, c, __VA_ARGS__)
#define WB_EACH_WITH_18(f, c, x, ...) f(c, x) WB_EACH_WITH_17(f, c, __VA_ARGS__)
#define WB_EACH_WITH_19(f, c, x, ...) f(c, x) WB_EACH_WITH_18(f, c, __VA_ARGS__)
#define WB_EACH_WITH_20(f, c, x, ...) f(c, x) WB_EACH_WITH_19(f, c, __VA_ARGS__)
#define WB_EACH_WITH_21(f, c, x, ...) f(c, x) WB_EACH_WITH_20(f, c, __VA_ARGS__)
#define WB_EACH_WITH_22(f, c, x, ...) f(c, x) WB_EACH_WITH_21(f, c, __VA_ARGS__)
#define WB_EACH_WITH_23(f, c, x, ...) f(c, x) WB_EACH_WITH_22(f, c, __VA_ARGS__)
#define WB_EACH_WITH_24(f, c, x, ...) f(c, x) WB_EACH_WITH_23(f, c, __VA_ARGS__)
#define WB_EACH_WITH_25(f, c, x, ...) f(c, x) WB_EACH_WITH_24(f, c, __VA_ARGS__)
#define WB_EACH_WITH_26(f, c, x, ...) f(c, x) WB_EACH_WITH_25(f, c, __VA_ARGS__)
#define WB_EACH_WITH_27(f, c, x, ...) f(c, x) WB_EACH_WITH_26(f, c, __VA_ARGS__)
#define WB_EACH_WITH_28(f, c, x, ...) f(c, x) WB_EACH_WITH_27(f, c, __VA_ARGS__)
#define WB_EACH_WITH_29(f, c, x, ...) f(c, x) WB_EACH_WITH_28(f, c, __VA_ARGS__)
#define WB_EACH_WITH_30(f, c, x, ...) f(c, x) WB_EACH_WITH_29(f, c, __VA_ARGS__)
#define WB_EACH_WITH_31(f, c, x, ...) f(c, x) WB_EACH_WITH_30(f, c, __VA_ARGS__)
#define WB_EACH_WITH_32(f, c, x, ...) f(c, x) WB_EACH_WITH_31(f, c, __VA_ARGS__)

/* GENERIC(v, ...), where v is a variable with the value of x.  The expansion contains x once: x is
 * evaluated once, and nested macros do not grow exponentially. */
#define WB_ONCE_(GENERIC, x, ...) \
    WB_ONCE_2_(GENERIC, x, WB_PASTE_(wb_once_, __COUNTER__), __VA_ARGS__)
#define WB_ONCE_2_(GENERIC, x, v, ...) \
    __extension__({ __auto_type v = (x); GENERIC(v, __VA_ARGS__); })

/* A call with options, whose arguments initialise fields once more, after the defaults.  The call
 * is in no block of its own, so what `&(T){...}` in an argument points to lives as long as the
 * block of the program. */
#define WB_CALL_WITH_(...)                                                                  \
    __builtin_choose_expr(0, __extension__({                                                \
        _Pragma("GCC diagnostic push")                                                      \
        _Pragma("GCC diagnostic ignored \"-Woverride-init\"") 0;                            \
    }), __builtin_choose_expr(1, __VA_ARGS__, __extension__({                               \
        _Pragma("GCC diagnostic pop") 0;                                                    \
    })))

/* The layer for an argument x of wb_Chain and others: x itself, or the layer of a function.  Other
 * arguments fail the assertion; their value is a layer, so that macros around it add no error. */
#define WB_LAYER_(x) WB_ONCE_(WB_LAYER_OF_, x, )
#define WB_LAYER_OF_(x, _)                                                                  \
    _Static_assert(_Generic(x, wb_layer *: 1, void *: 1, wb_function: 1, default: 0),       \
                   "this takes layers and functions of one tensor");                        \
    _Generic(x, wb_function: wb_layer_from_function, default: wb_as_layer_)                 \
        (_Generic(x, wb_layer *: x, void *: x, wb_function: x, default: (void *)0))
#define WB_LAYER_ROW_(x) WB_LAYER_(x),
#define WB_LAYERS_(...) (wb_layer *[]){WB_EACH_(WB_LAYER_ROW_, __VA_ARGS__)}
/* The first argument of wb_named, which must be a text. */
#define WB_NAME_(x) WB_ONCE_(WB_NAME_OF_, x, )
#define WB_NAME_OF_(x, _)                                                                   \
    _Static_assert(_Generic(x, char *: 1, const char *: 1, void *: 1, default: 0),          \
                   "wb_named takes a name and a layer: wb_named(\"encoder\", layer)");      \
    _Generic(x, char *: x, const char *: x, default: (const char *)0)
#define WB_NAMED_1(x) WB_NAMED_2(WB_NAME_(0 * sizeof(x)), (wb_layer *)0)

/* Names of other libraries, which do not compile: .lr = 0.1 initialises a pointer to a struct that
 * is named after Weber's option. */
#define WB_FOREIGN_NUMBERS_                                                                 \
    struct wb_the_learning_rate_is_eta *lr, *learning_rate;                                 \
    struct wb_the_momentum_is_rho *momentum;                                                \
    struct wb_the_weight_decay_is_lambda *weight_decay;

#endif
