/* Linear algebra by LAPACK: numbers of PyTorch 2.15, gradients against differences. */
#include "literal.h"

#include "far_device.h"

#include <unistd.h>

/* Whether LAPACK is installed.  Without it the numbers are skipped, or fail if the environment
 * variable WEBER_REQUIRE_LAPACK is 1. */
static bool have_lapack(void)
{
    wb_tensor *y = wb_inverse(wb_ones(1, 1));
    if (y) return true;
    const char *must = getenv("WEBER_REQUIRE_LAPACK");
    if (must && !strcmp(must, "1")) fail_msg("WEBER_REQUIRE_LAPACK=1: %s", wb_error());
    FAILED(WB_ERROR_UNSUPPORTED, "inverse", "LAPACK", "liblapack3");
    wb_clear_error();
    return false;
}

static const double two[18] = {4, 1, -2, 0.5, 3, 1, 1, -1, 2, 2, 0, 1, 1, 3, -1, 0, 2, 5};
static const double sides[6] = {1, 2, -1, 3, 0.5, 2};

static wb_tensor *like(wb_tensor *x, const double *v, int n, int m)
{
    wb_tensor *y = wb_from(v, WB_F64, 2, (int64_t[]){n, m});
    return wb_astype(y, wb_dtype_of(x));
}
/* A positive definite matrix. */
static wb_tensor *definite(wb_tensor *x)
{
    return wb_add(wb_matmul(x, wb_transpose(x)), wb_eye(3, wb_dtype_of(x)));
}
static wb_tensor *row_of(wb_tensor *x) { return wb_reshape(x, -1); }
static wb_tensor *factors(wb_tensor *x)
{
    wb_tensor *q, *r;
    return wb_qr(x, &q, &r) ? NULL : wb_concat(0, row_of(q), row_of(r));
}
/* Squares, because signs differ from one LAPACK to the other. */
static wb_tensor *singular(wb_tensor *x)
{
    wb_tensor *u, *s, *vt;
    if (wb_svd(x, &u, &s, &vt)) return NULL;
    return wb_concat(0, row_of(wb_square(u)), s, row_of(wb_square(vt)));
}

CASE(solved, wb_solve(x, like(x, sides, 3, 2)))
CASE(vector, wb_solve(x, wb_astype(wb_from(((float[]){1, -2, 4}), WB_F32, 1, (int64_t[]){3}),
                                   wb_dtype_of(x))))
CASE(right, wb_solve(wb_slice(wb_reshape(like(x, two, 6, 3), 2, 3, 3), 0, 0, 1), x))
CASE(inverse, wb_inverse(x))
CASE(determinant, wb_determinant(x))
CASE(cholesky, wb_cholesky(definite(x)))

static const literal rows[] = {
    {"solved", solved, two, {2, 3, 3}, SMOOTH | FLOATS, {2, 3, 2},
     VALUES(0.3, 0.8, -0.357142857143, 0.571428571429, -0.0785714285714, 0.885714285714, 0.375,
      0.944444444444, -0.375, 0.722222222222, 0.25, 0.111111111111)},
    {"vector", vector, two, {2, 3, 3}, SMOOTH | FLOATS, {2, 3},
     VALUES(1, -1.14285714286, 0.928571428571, 0.0277777777778, -0.361111111111, 0.944444444444)},
    {"right", right, sides, {3, 2}, SMOOTH | FLOATS, {1, 3, 2},
     VALUES(0.3, 0.8, -0.357142857143, 0.571428571429, -0.0785714285714, 0.885714285714)},
    {"inverse", inverse, two, {2, 3, 3}, SMOOTH | FLOATS, {2, 3, 3},
     VALUES(0.2, 0, 0.2, 0, 0.285714285714, -0.142857142857, -0.1, 0.142857142857, 0.328571428571,
      0.472222222222, 0.0555555555556, -0.0833333333333, -0.138888888889, 0.277777777778,
      0.0833333333333, 0.0555555555556, -0.111111111111, 0.166666666667)},
    {"determinant", determinant, two, {2, 3, 3}, SMOOTH | FLOATS, {2}, VALUES(35, 36)},
    {"cholesky", cholesky, two, {2, 3, 3}, SMOOTH | FLOATS, {2, 3, 3},
     VALUES(4.69041575982, 0, 0, 0.639602149067, 3.29255358209, 0, -0.213200716356, -0.110442048875,
      2.63483358267, 2.44948974278, 0, 0, 0.408248290464, 3.43996124009, 0, 2.04124145232,
      0.0484501583112, 5.08241929749)},
    {"factors, wide", factors, two, {3, 4}, SMOOTH | FLOATS, {21},
     VALUES(-0.742781352708, 0.38260824562, 0.549442255795, -0.557086014531, 0.102028865499,
      -0.824163383692, -0.371390676354, -0.918259789487, 0.137360563949, -5.38516480713,
      -2.04264871995, 0.928476690885, -0.185695338177, 0, -1.35188246786, -0.663187625741,
      -0.828984532176, 0, 0, -1.92304789528, 1.23624507554)},
    {"factors, tall", factors, two, {4, 3}, SMOOTH | FLOATS, {21},
     VALUES(-0.867721831275, -0.0482508484123, 0.435767798213, -0.108465228909, -0.913054516109,
      -0.377004014566, -0.216930457819, 0.382295183574, -0.695244245485, -0.433860915637,
      0.133617734065, -0.429662470042, -4.60977222865, -0.976187060184, 0.759256602365, 0,
      -3.16970958031, 0.0816552819284, 0, 0, -3.068690572)},
    {"singular, wide", singular, two, {3, 4}, SMOOTH | FLOATS, {24},
     VALUES(0.560857848943, 0.318732151065, 0.120409999992, 0.24085631764, 0.679592700261,
      0.0795509820999, 0.198285833417, 0.00167514867486, 0.800039017908, 5.86294028297,
      2.27084242141, 1.6490014965, 0.835330431592, 0.132018534349, 0.0295026164793,
      0.00314841757983, 0.0170739390854, 0.0226377682053, 0.740037106697, 0.220251186012,
      0.0729068326424, 0.494721290807, 0.0624104842924, 0.369961392259)},
    {"singular, tall", singular, two, {4, 3}, SMOOTH | FLOATS, {24},
     VALUES(0.836508694146, 0.0798048135019, 0.0288493871541, 0.0612372208389, 0.915311666955,
      0.0110163944739, 0.000179350849037, 0.000418155258737, 0.675975485685, 0.102074734166,
      0.0044653642841, 0.284158732687, 4.88804421863, 3.08109947032, 2.97722182088, 0.823051172096,
      0.113063524969, 0.0638853029347, 0.026075650975, 0.69424348487, 0.279680864155,
      0.150873176929, 0.192692990161, 0.65643383291)},
};

/* The first test: LAPACK is not open yet. */
TEST_IN_SCOPE(no_lapack)
{
    wb_tensor *x = wb_ones(2, 2);
    const char *set = getenv("WEBER_LAPACK_LIBRARY");
    char *before = set ? strdup(set) : NULL;
    setenv("WEBER_LAPACK_LIBRARY", WB_TEST_NOWHERE "/lapack.so", 1);
    REFUSED(wb_inverse(x), WB_ERROR_UNSUPPORTED, "inverse",
            WB_TEST_NOWHERE "/lapack.so", "liblapack3");
    if (!access(WB_TEST_LIBRARY, R_OK)) {       /* a library without these functions */
        setenv("WEBER_LAPACK_LIBRARY", WB_TEST_LIBRARY, 1);
        REFUSED(wb_solve(x, x), WB_ERROR_UNSUPPORTED, "solve", WB_TEST_LIBRARY, "sgetrf_");
    }
    if (before) setenv("WEBER_LAPACK_LIBRARY", before, 1);
    else unsetenv("WEBER_LAPACK_LIBRARY");
    free(before);
}

TEST(values)
{
    if (!have_lapack()) skip();
    literal_values(rows, sizeof rows / sizeof *rows);
}
TEST(gradients)
{
    if (!have_lapack()) skip();
    literal_gradients(rows, sizeof rows / sizeof *rows);
}

/* Products of the factors of larger matrices are the matrices. */
TEST_IN_SCOPE(products)
{
    enum { M = 70, N = 50 };
    if (!have_lapack()) skip();
    for (int turn = 0; turn < 2; turn++) {
        wb_tensor *x = wb_randn_array(WB_F64, 4, (int64_t[]){2, 3, turn ? N : M, turn ? M : N});
        wb_tensor *u, *s, *vt, *q, *r;
        MADE(x);
        assert_int_equal(wb_svd(x, &u, &s, &vt), 0);
        assert_int_equal(wb_qr(x, &q, &r), 0);
        wb_tensor *y = wb_matmul(wb_mul(u, wb_unsqueeze(s, -2)), vt);
        wb_tensor *one = wb_eye(N, WB_F64);
        assert_true(wb_item(wb_max(wb_abs(wb_sub(y, x)))) < 1e-12);
        assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_matmul(q, r), x)))) < 1e-12);
        assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_matmul(wb_transpose(q), q), one)))) < 1e-12);
        assert_true(wb_item(wb_min(wb_sub(wb_slice(s, -1, 0, N - 1), wb_slice(s, -1, 1, N)))) >= 0);
    }
    /* a transposed operand; no columns, no matrices, no elements */
    wb_tensor *a = wb_randn(4, 4), *b = wb_randn(4, 3), *y;
    MADE(y = wb_matmul(wb_transpose(a), wb_solve(wb_transpose(a), b)));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(y, b)))) < 1e-4);
    assert_int_equal(wb_size(wb_solve(a, wb_zeros(4, 0))), 0);
    assert_int_equal(wb_size(wb_inverse(wb_zeros(0, 2, 2))), 0);
    assert_true(wb_item(wb_determinant(wb_zeros(0, 0))) == 1);
    assert_true(wb_item(wb_determinant(wb_zeros(3, 3))) == 0);
}

/* Errors that are found before LAPACK is needed. */
TEST_IN_SCOPE(wrong_operands)
{
    wb_tensor *x = wb_ones(2, 2), *u, *s, *vt;
    REFUSED(wb_inverse(wb_ones(2, 3)), WB_ERROR_SHAPE, "inverse", "[2,3] f32");
    REFUSED(wb_solve(wb_ones(2, 3), x), WB_ERROR_SHAPE, "solve", "[2,3] f32");
    REFUSED(wb_determinant(wb_ones(2)), WB_ERROR_SHAPE, "determinant", "[2] f32");
    REFUSED(wb_inverse(wb_astype(x, WB_I32)), WB_ERROR_DTYPE, "inverse", "i32");
    REFUSED(wb_inverse(wb_to(x, far_device())), WB_ERROR_DEVICE, "inverse", "wb_cpu(x)");
    FAILS(wb_svd(wb_ones(2), &u, &s, &vt), WB_ERROR_SHAPE, "svd", "[2] f32");
    assert_true(!u && !s && !vt);
}

TEST_IN_SCOPE(wrong_uses)
{
    if (!have_lapack()) skip();
    wb_tensor *x = wb_ones(2, 2), *u, *s, *vt;
    REFUSED(wb_data(wb_solve(x, x)), WB_ERROR_ARGUMENT, "solve", "matrix 0", "singular", "pivot 1");
    REFUSED(wb_data(wb_inverse(wb_stack(0, wb_eye(2, WB_F32), x))), WB_ERROR_ARGUMENT, "inverse",
            "matrix 1");
    REFUSED(wb_data(wb_cholesky(wb_neg(x))), WB_ERROR_ARGUMENT, "cholesky", "matrix 0",
            "positive definite");
    REFUSED(wb_solve(x, wb_ones(3, 2)), WB_ERROR_SHAPE, "solve", "[2,2] f32", "[3,2] f32");
    REFUSED(wb_solve(wb_ones(2, 2, 2), wb_ones(3, 2, 2)), WB_ERROR_SHAPE, "solve", "[3,2,2] f32");
    REFUSED(wb_solve(x, wb_astype(x, WB_F64)), WB_ERROR_DTYPE, "solve", "[2,2] f32", "[2,2] f64");
    FAILS(wb_qr(wb_zeros(0, 2), &u, &s), WB_ERROR_SHAPE, "qr", "[0,2] f32");
    assert_int_equal(wb_svd(wb_full(NAN, 2, 2), &u, &s, &vt), 0);
    REFUSED(wb_data(u), WB_ERROR_ARGUMENT, "svd", "matrix 0", "NaN");
}
