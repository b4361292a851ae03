/* Weber, chapter 4: structs of the program as trees and as layers. */
#ifndef WEBER_STRUCTS_H
#define WEBER_STRUCTS_H

#include "weber/nn.h"

#ifdef __cplusplus
#include <type_traits>

extern "C" {
#endif

/** The type of a field of a struct.  WB_FUNCTOR and WB_LAYER choose it by the C type of the field:
 * WB_FIELD_OBJECT for wb_tensor *, wb_layer * and wb_tree *; WB_FIELD_INT32 for int and enums;
 * WB_FIELD_FUNCTION for wb_function; WB_FIELD_CONNECTION for wb_connection; the others for int64_t,
 * uint64_t, unsigned, double, float and bool. */
typedef enum {
    WB_FIELD_OBJECT, WB_FIELD_INT64, WB_FIELD_INT32, WB_FIELD_DOUBLE, WB_FIELD_FLOAT, WB_FIELD_BOOL,
    WB_FIELD_FUNCTION, WB_FIELD_CONNECTION, WB_FIELD_UINT64, WB_FIELD_UINT32
} wb_field_type;
/** A field of a struct: its name, its offset in bytes, its type. */
typedef struct { const char *name; size_t offset; wb_field_type type; } wb_field;
/** Calls a struct as a layer with n inputs.  It sets outputs[0], outputs[1], ..., at most 16, and
 * returns how many it set; a negative number means failure. */
typedef int (*wb_struct_call)(const void *self, int n, wb_tensor *const *inputs,
                              wb_tensor **outputs);
/** The description of a struct of the program, which WB_FUNCTOR or WB_LAYER defines.  It must exist
 * as long as the library is used. */
typedef struct {
    const char *name;
    size_t size;
    int n_fields;
    const wb_field *fields;
    wb_struct_call call;                    /* the layer's function; NULL: only a WB_FUNCTOR */
} wb_struct_type;

/** A struct of the program as a layer:
 *
 *     typedef struct { wb_tensor *gain; wb_layer *inner; double slope; } scaled;
 *     static wb_tensor *call_scaled(const scaled *s, wb_tensor *x)
 *     {
 *         return wb_mul(s->gain, wb_add(wb_call(s->inner, x), wb_mul(x, s->slope)));
 *     }
 *     WB_LAYER(scaled, call_scaled, gain, inner, slope)
 *
 *     wb_layer *m = wb_Chain(wb_Dense(4, 8), wb_layer_of(scaled, .gain = wb_variable(wb_ones(8)),
 *                                                        .inner = wb_Dense(8, 8), .slope = 0.1));
 *
 * WB_LAYER, at file scope, names the function and the fields that the library must know: tensors,
 * layers, trees, numbers and functions (wb_field_type), at least one.  Other fields are copied, but
 * a file does not have them: wb_load sets them to 0, pointers to NULL.
 *
 * A tensor of wb_variable is a parameter.  Any other tensor becomes a variable that is not trained,
 * such as a running statistic; it is moved and saved, and the function may wb_assign to it.  A
 * field may be WB_NONE; NULL is an error.  The layer is one like any other
 * (docs/site/guide/layers.md); wb_struct_get reads the struct back.
 *
 * The function has one of two forms.  `self` is a copy of the struct with the layer's current
 * tensors, valid during the call.
 *   wb_tensor *f(const T *self, wb_tensor *x)              one input, one output; NULL on failure
 *   int f(const T *self, int n, wb_tensor *const *inputs, wb_tensor **outputs)
 *       n inputs.  It sets outputs[0], ..., at most 16, and returns their number, or a negative
 *       number on failure.  With several outputs the layer is called by wb_call_outputs; in a
 *       Chain the outputs are the inputs of the next layer.
 * It sets the reason of a failure of its own with wb_fail; wb_in_trainmode() returns the mode.
 *
 * Errors of wb_layer_of: a field is NULL, or no object of the library; a struct with other fields,
 * or a layer of the library, has the name.  A call that gives an object that is no tensor fails. */
WB_API wb_layer *wb_layer_typed(const wb_struct_type *type, const void *value);

/** Registers a struct of WB_LAYER or WB_FUNCTOR by its name, so that wb_load knows it, for the
 * whole process: wb_name_struct(scaled).  wb_layer_of does the same.  Returns 0 or an error code.
 * Errors: another struct, or a layer of the library, has the name; the type has no name, or
 * a number of fields without their array. */
WB_API int wb_name_struct_typed(const wb_struct_type *type);

/** Whether the layer of WB_LAYER that is being called is in train mode; outside of such calls,
 * whether the thread is inside wb_withgradient or wb_train. */
WB_API bool wb_in_trainmode(void);

/** A struct of the program as a tree, whose children are the struct's tensors, layers and trees:
 *
 *     typedef struct { wb_layer *actor, *critic; double gamma; } agent;
 *     WB_FUNCTOR(agent, actor, critic)         the fields that the library must know
 *     wb_tree *t = wb_struct(agent, &a);       for wb_gradient, wb_setup, wb_fmap, wb_to, wb_save
 *     wb_struct_get(agent, t, &moved);         0, or an error code
 *
 * The tree has a copy of the other fields.  wb_withgradient and wb_train take the tree as a model;
 * the loss function casts its argument back to wb_tree *.  For wb_trainmode, wb_testmode,
 * wb_automode, wb_set and wb_tie a tree may be cast to wb_layer *.  The tree cannot be called; a
 * struct of WB_LAYER can.  wb_load_tree creates such a tree from a file, if the program has
 * registered the struct (wb_name_struct); wb_load_state loads values into an existing tree.  The
 * tree and the struct share the tensors; the tree holds references.  A field
 * may be WB_NONE; NULL is an error. */
WB_API wb_tree *wb_struct_typed(const wb_struct_type *type, const void *value);
/** Fills in a struct from a tree of wb_struct, from a layer of wb_layer_of, or from what wb_fmap or
 * wb_to made of one of these.  The fields that are objects get the objects of the tree or layer;
 * the other fields get the values that they had when it was made.  The objects belong to the
 * current scope.  Returns 0 or an error code.  Error: the object is of another struct. */
WB_API int wb_struct_get_typed(const wb_struct_type *type, void *object, void *value);
/** A tree without children that holds a pointer of the program.  The library neither follows nor
 * frees the pointer. */
WB_API wb_tree *wb_opaque(void *p);
/** The pointer in a tree of wb_opaque.  NULL with the error set: the tree is not of wb_opaque. */
WB_API void *wb_opaque_get(wb_tree *tree);

#ifdef __cplusplus
}

template <class F> constexpr wb_field_type wb_field_type_of_()
{
    using T = std::remove_cv_t<F>;
    constexpr bool object = std::is_same_v<T, wb_tensor *> || std::is_same_v<T, wb_layer *> ||
                            std::is_same_v<T, wb_tree *>;
    constexpr bool int64 = std::is_integral_v<T> && sizeof(T) == 8;
    constexpr bool int32 = (std::is_integral_v<T> || std::is_enum_v<T>) && sizeof(T) == 4;
    constexpr bool natural = std::is_unsigned_v<T>;
    static_assert(object || int64 || int32 || std::is_same_v<T, bool> ||
                      std::is_same_v<T, double> || std::is_same_v<T, float> ||
                      std::is_same_v<T, wb_function> || std::is_same_v<T, wb_connection>,
                  "fields are tensors, layers, trees, numbers and functions");
    return object                               ? WB_FIELD_OBJECT
           : std::is_same_v<T, bool>            ? WB_FIELD_BOOL
           : int64 && natural                   ? WB_FIELD_UINT64
           : int64                              ? WB_FIELD_INT64
           : int32 && natural                   ? WB_FIELD_UINT32
           : int32                              ? WB_FIELD_INT32
           : std::is_same_v<T, double>          ? WB_FIELD_DOUBLE
           : std::is_same_v<T, float>           ? WB_FIELD_FLOAT
           : std::is_same_v<T, wb_function>     ? WB_FIELD_FUNCTION
                                                : WB_FIELD_CONNECTION;
}
template <class T>
inline int wb_call_struct_(const char *name, wb_tensor *(*f)(const T *, wb_tensor *),
                           const T *self, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    if (n != 1) return wb_fail(WB_ERROR_ARGUMENT, "%s: takes one input, got %d", name, n), -1;
    outputs[0] = f(self, inputs[0]);
    return outputs[0] ? 1 : -1;
}
template <class T>
inline int wb_call_struct_(const char *, int (*f)(const T *, int, wb_tensor *const *, wb_tensor **),
                           const T *self, int n, wb_tensor *const *inputs, wb_tensor **outputs)
{
    return f(self, n, inputs, outputs);
}
#define WB_FIELD_(T, f) {#f, offsetof(T, f), wb_field_type_of_<decltype(T::f)>()},
#define WB_LAYER_CALL_(T, f)                                                                \
    static int T##_wb_call(const void *self, int n, wb_tensor *const *in, wb_tensor **out)  \
    {                                                                                       \
        return wb_call_struct_<T>(#T, f, static_cast<const T *>(self), n, in, out);             \
    }
#define wb_struct(T, p) wb_struct_typed(&T##_wb_type, static_cast<const T *>(p))
#define wb_struct_get(T, object, p) \
    wb_struct_get_typed(&T##_wb_type, (object), static_cast<T *>(p))
template <class T> inline wb_layer *wb_layer_of_(const wb_struct_type *type, const T &value)
{
    return wb_layer_typed(type, &value);
}
#define wb_layer_of(T, ...) wb_layer_of_(&T##_wb_type, T{__VA_ARGS__})
#else
/* A field of another type does not compile: the size of its WB_FIELD_TYPED_ is unknown. */
#define WB_FIELD_(T, f)                                                                     \
    {#f, offsetof(T, f) + 0 * sizeof(WB_FIELD_TYPED_(((T *)0)->f)),                         \
     WB_FIELD_TYPE_(((T *)0)->f)},
#define WB_FIELD_TYPED_(x)                                                                  \
    *_Generic(x, wb_tensor *: "", wb_layer *: "", wb_tree *: "", bool: "", int: "",         \
              unsigned: "", int64_t: "", uint64_t: "", double: "", float: "",               \
              wb_function: "", wb_connection: "",                                           \
              default: (struct wb_fields_are_tensors_layers_trees_numbers_and_functions *)0)
#define WB_FIELD_TYPE_(x)                                                                   \
    _Generic(x, wb_tensor *: WB_FIELD_OBJECT, wb_layer *: WB_FIELD_OBJECT,                  \
        wb_tree *: WB_FIELD_OBJECT, bool: WB_FIELD_BOOL, int: WB_FIELD_INT32,               \
        unsigned: WB_FIELD_UINT32, int64_t: WB_FIELD_INT64, uint64_t: WB_FIELD_UINT64,      \
        double: WB_FIELD_DOUBLE, float: WB_FIELD_FLOAT, wb_function: WB_FIELD_FUNCTION,     \
        default: WB_FIELD_CONNECTION)
/* Calls f, which has one of the forms of WB_LAYER; _Generic chooses by the type of f.  A function
 * of another type does not compile. */
#define WB_LAYER_CALL_(T, f)                                                                \
    __attribute__((unused)) static int T##_wb_one(                                          \
        wb_tensor *(*call)(const T *, wb_tensor *), const T *self, int n,                   \
        wb_tensor *const *in, wb_tensor **out)                                              \
    {                                                                                       \
        if (n != 1)                                                                         \
            return wb_fail(WB_ERROR_ARGUMENT, #T ": takes one input, got %d", n), -1;       \
        out[0] = call(self, in[0]);                                                         \
        return out[0] ? 1 : -1;                                                             \
    }                                                                                       \
    __attribute__((unused)) static int T##_wb_many(                                         \
        int (*call)(const T *, int, wb_tensor *const *, wb_tensor **), const T *self,       \
        int n, wb_tensor *const *in, wb_tensor **out)                                       \
    {                                                                                       \
        return call(self, n, in, out);                                                      \
    }                                                                                       \
    static int T##_wb_call(const void *self, int n, wb_tensor *const *in, wb_tensor **out)  \
    {                                                                                       \
        return _Generic((f), wb_tensor *(*)(const T *, wb_tensor *): T##_wb_one,            \
                int (*)(const T *, int, wb_tensor *const *, wb_tensor **): T##_wb_many,     \
                default: wb_this_function_has_no_form_of_WB_LAYER)                          \
            ((f), (const T *)self, n, in, out);                                             \
    }
typedef struct { int none; } wb_form_of_WB_LAYER_expected;
int wb_this_function_has_no_form_of_WB_LAYER(wb_form_of_WB_LAYER_expected, const void *, int,
                                             wb_tensor *const *, wb_tensor **);
#define wb_struct(T, p) \
    wb_struct_typed(&T##_wb_type, _Generic((p), T *: (p), const T *: (p)))
#define wb_struct_get(T, object, p) \
    wb_struct_get_typed(&T##_wb_type, (object), _Generic((p), T *: (p)))
#define wb_layer_of(T, ...) wb_layer_typed(&T##_wb_type, &(T){__VA_ARGS__})
#endif
#define WB_FIELDS_(T, ...) \
    static const wb_field T##_wb_fields[] = {WB_EACH_WITH_(WB_FIELD_, T, __VA_ARGS__)};
#define WB_FUNCTOR(T, ...)                                                                  \
    WB_FIELDS_(T, __VA_ARGS__)                                                              \
    static const wb_struct_type T##_wb_type = {#T, sizeof(T), WB_NARGS_(__VA_ARGS__),       \
                                               T##_wb_fields, NULL};
#define WB_LAYER(T, f, ...)                                                                 \
    WB_FIELDS_(T, __VA_ARGS__)                                                              \
    WB_LAYER_CALL_(T, f)                                                                    \
    static const wb_struct_type T##_wb_type = {#T, sizeof(T), WB_NARGS_(__VA_ARGS__),       \
                                               T##_wb_fields, T##_wb_call};
#define wb_name_struct(T) wb_name_struct_typed(&T##_wb_type)

#endif
