/* Operations on integers, and the remainder of floating numbers, that no operation of Weber
 * computes exactly: C functions that the CPU runs as steps of the plan (wb_host_operation).  On
 * another device the node fails, and the message names the cure. */
#include "io/onnx/ops_common.h"

#include <math.h>
#include <string.h>

/* A function that sets *z to the result for x and y, integers of `bits` bits; it wraps around in
 * their dtype.  False: x and y have no result. */
typedef bool integer_function(int64_t x, int64_t y, int bits, int64_t *z);
typedef struct { integer_function *f; const char *fault; } integer_op;

enum { ONNX_BITS_CHUNK = 256 };

static int64_t onnx_bits_elements(const wb_host_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++) n *= a->dims[i];
    return n;
}

/* Computes an operation on integers: a wb_host_function; ctx is an integer_op.  All arrays have one
 * shape and dtype. */
static int run_integers(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    const integer_op *op = ctx;
    const int64_t size = onnx_bits_elements(out);
    const size_t bytes = wb_dtype_bytes(out->dtype);
    int64_t x[ONNX_BITS_CHUNK], y[ONNX_BITS_CHUNK];
    for (int64_t at = 0; at < size; at += ONNX_BITS_CHUNK) {
        const int64_t m = WB__MIN(ONNX_BITS_CHUNK, size - at);
        const size_t from = (size_t)at * bytes;
        wb__convert(x, WB_I64, (const char *)in[0].data + from, out->dtype, m);
        wb__convert(y, WB_I64, (const char *)in[n - 1].data + from, out->dtype, m);
        for (int64_t i = 0; i < m; i++)
            if (!op->f(x[i], y[i], (int)bytes * 8, &x[i]))
                return wb__fail(WB_ERROR_ARGUMENT, "onnx: %s", op->fault);
        wb__convert((char *)out->data + from, out->dtype, x, WB_I64, m);
    }
    return 0;
}

/* Sets xy[] to the two inputs, broadcast to one shape. */
static bool onnx_bits_broadcast_inputs(wb__onnx_call *c, wb_tensor *xy[2])
{
    int ndim;
    int64_t dims[WB_MAX_DIMS];
    if (!wb__onnx_alike(c, 1) ||
        !wb__broadcast(c->node->op, c->in[0], c->in[1], &ndim, dims))
        return false;
    for (int i = 0; i < 2; i++)
        if (!(xy[i] = wb_expand_array(c->in[i], ndim, dims))) return false;
    return true;
}

/* Gives the node the result for n operands, integers of one shape. */
static bool onnx_bits_give_result(wb__onnx_call *c, const integer_op *op, int n,
                                  wb_tensor *const *x)
{
    const wb_dtype t = (wb_dtype)x[0]->dtype;
    if (wb__dtype_float(t) || t == WB_BOOL)
        return wb__onnx_refuse(c, WB_ERROR_DTYPE, "the input is %s; it must be of integers",
                               wb_describe(x[0]));
    return wb__onnx_give(c, wb_host_operation(run_integers, (void *)op, t, x[0]->ndim, x[0]->dims,
                                              n, x));
}

/* Computes an operator of two integers. */
static bool of_two(wb__onnx_call *c, const integer_op *op)
{
    wb_tensor *xy[2];
    return onnx_bits_broadcast_inputs(c, xy) && onnx_bits_give_result(c, op, 2, xy);
}

/* ---- bits ------------------------------------------------------------------------------------ */

#define WB__UNUSED __attribute__((unused))
#define ONNX_BITS_BITS(name, value)                                                                \
    static bool name(int64_t x, WB__UNUSED int64_t y, WB__UNUSED int bits, int64_t *z)             \
    {                                                                                              \
        *z = value;                                                                                \
        return true;                                                                               \
    }
ONNX_BITS_BITS(bits_and, x & y)
ONNX_BITS_BITS(bits_or, x | y)
ONNX_BITS_BITS(bits_xor, x ^ y)
ONNX_BITS_BITS(bits_not, ~x)
/* Returns x shifted.  A shift by a negative number, or by all bits or more, moves all bits out. */
ONNX_BITS_BITS(shift_left, y < 0 || y >= bits ? 0 : (int64_t)((uint64_t)x << y))
ONNX_BITS_BITS(shift_right, y < 0 || y >= bits ? x < 0 ? -1 : 0 : x >> y)

#define OF_TWO(name, function)                                                                     \
    bool wb__onnx_##name(wb__onnx_call *c)                                                         \
    {                                                                                              \
        static const integer_op op = {function, NULL};                                             \
        return of_two(c, &op);                                                                     \
    }
OF_TWO(bitwise_and, bits_and)
OF_TWO(bitwise_or, bits_or)
OF_TWO(bitwise_xor, bits_xor)

bool wb__onnx_bitwise_not(wb__onnx_call *c)
{
    static const integer_op op = {bits_not, NULL};
    return onnx_bits_give_result(c, &op, 1, c->in);
}

bool wb__onnx_bit_shift(wb__onnx_call *c)
{
    static const integer_op left = {shift_left, NULL}, right = {shift_right, NULL};
    return of_two(c, wb__onnx_word_index(c, "direction") ? &right : &left);
}

/* ---- powers ---------------------------------------------------------------------------------- */

static bool onnx_bits_power(int64_t x, int64_t y, WB__UNUSED int bits, int64_t *z)
{
    uint64_t factor = (uint64_t)x, product = 1;
    if (y < 0) return false;
    for (; y; y >>= 1) {
        if (y & 1) product *= factor;
        factor *= factor;
    }
    *z = (int64_t)product;
    return true;
}

/* Computes Pow of integers.  The power has x's dtype.  An i64 has each y of another dtype. */
bool wb__onnx_integer_power(wb__onnx_call *c)
{
    static const integer_op op = {onnx_bits_power, "Pow: an integer to a negative power"};
    int ndim;
    int64_t dims[WB_MAX_DIMS];
    wb_tensor *x = c->in[0], *y = c->in[1];
    const wb_dtype dtype = (wb_dtype)x->dtype;
    if (!wb__broadcast("Pow", x, y, &ndim, dims)) return false;
    wb_tensor *xy[2] = {wb_expand_array(wb__as(x, WB_I64), ndim, dims),
                        wb_expand_array(wb__as(y, WB_I64), ndim, dims)};
    if (!xy[0] || !xy[1] || !onnx_bits_give_result(c, &op, 2, xy)) return false;
    return wb__onnx_give(c, wb__as(c->out[0], dtype));
}

/* ---- Mod ------------------------------------------------------------------------------------- */

/* Returns the remainder of x / y.  With the quotient rounded towards 0 it has the sign of x
 * (`of_x`); with the quotient rounded down it has the sign of y. */
static double onnx_bits_remainder(double x, double y, bool of_x)
{
    const double r = fmod(x, y);
    if (of_x || y == 0 || r != r) return r;
    if (r == 0) return copysign(0, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

/* Computes Mod: a wb_host_function; ctx is not NULL if the remainder has the sign of x. */
static int run_remainder(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    (void)n;
    const int64_t size = onnx_bits_elements(out);
    const size_t bytes = wb_dtype_bytes(out->dtype);
    double x[ONNX_BITS_CHUNK], y[ONNX_BITS_CHUNK];
    for (int64_t at = 0; at < size; at += ONNX_BITS_CHUNK) {
        const int64_t m = WB__MIN(ONNX_BITS_CHUNK, size - at);
        const size_t from = (size_t)at * bytes;
        wb__convert(x, WB_F64, (const char *)in[0].data + from, out->dtype, m);
        wb__convert(y, WB_F64, (const char *)in[1].data + from, out->dtype, m);
        for (int64_t i = 0; i < m; i++) x[i] = onnx_bits_remainder(x[i], y[i], ctx != NULL);
        wb__convert((char *)out->data + from, out->dtype, x, WB_F64, m);
    }
    return 0;
}

/* Sets dx to the gradients of the remainder, x - q y with a whole q, which is a constant. */
static int onnx_bits_mod_gradient(wb_tensor *g, wb_tensor *r, int n, wb_tensor *const *xy,
                                  wb_tensor **dx, void *ctx)
{
    (void)n, (void)ctx;
    if (!wb_is_none(dx[0])) dx[0] = g;
    if (wb_is_none(dx[1])) return 0;
    wb_tensor *q = wb_stop_gradient(wb_div(wb_sub(xy[0], r), xy[1]));
    dx[1] = wb_neg(wb_mul(g, q));
    return dx[1] ? 0 : wb_error_code();
}

/* Does nothing, since the gradient needs no memory that is to be freed; that it has this function
 * makes it one of the library. */
static void onnx_bits_free_nothing(void *ctx) { (void)ctx; }

bool wb__onnx_mod(wb__onnx_call *c)
{
    static const char yes = 1;
    wb_tensor *xy[2];
    if (!onnx_bits_broadcast_inputs(c, xy)) return false;
    const bool of_x = wb__onnx_int(c, "fmod") != 0;
    wb_tensor *x = xy[0], *y = xy[1];
    if (!wb__dtype_float((wb_dtype)x->dtype)) {
        wb_tensor *r = wb_sub(x, wb_mul(wb_div(x, y), y)), *zero = wb__number_of(0);
        if (of_x) return wb__onnx_give(c, r);
        wb_tensor *other = wb_ne(wb_lt(r, zero), wb_lt(y, zero));
        return wb__onnx_give(c, wb_where(wb_and(wb_ne(r, zero), other), wb_add(r, y), r));
    }
    wb_tensor *r = wb_host_operation(run_remainder, of_x ? (void *)&yes : NULL, (wb_dtype)x->dtype,
                                     x->ndim, x->dims, 2, xy);
    if (r) r = wb__custom_gradient(r, onnx_bits_mod_gradient, NULL, onnx_bits_free_nothing, 2, xy);
    return wb__onnx_give(c, r);
}
