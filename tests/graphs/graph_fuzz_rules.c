/* Each rule by which the planner replaces values (engine/plan/values.c), alone, and other decisions
 * of its stages: padded views (window.c), products in the kernels that read them (products.c),
 * values that are computed again (remake.c).  Programs in which the rule's pattern occurs, and
 * programs that lack one of its conditions: the plan must have applied the rule or not, and the
 * values are those of the interpreter.  Rules that are for GPUs must not be applied elsewhere. */
#include "graph_fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "engine/request.h"

/* ---- programs -------------------------------------------------------------------------------- */

static drawing d;
static program p;
static bool good;                       /* no instruction was refused so far */

static int add(instruction s)
{
    const int i = good ? add_step(&d, &s) : -1;
    good = i >= 0;
    return good ? i : 0;
}

static int leaf(int ndim, const int64_t *dims)
{
    const int i = good ? operand_leaf(&d, d.main, ndim, dims) : -1;
    good = i >= 0;
    return good ? i : 0;
}

static int unary(int f, int x)
{
    return add((instruction){.op = OP_UNARY, .row = f, .n_in = 1, .in = {x}});
}
static int binary(int f, int x, int y)
{
    return add((instruction){.op = OP_BINARY, .row = f, .n_in = 2, .in = {x, y}});
}
static int product(int x, int y)
{
    return add((instruction){.op = OP_MATMUL, .n_in = 2, .in = {x, y}});
}
static int slice(int x, int axis, int64_t from, int64_t to)
{
    return add((instruction){.op = OP_SLICE, .n_in = 1, .in = {x}, .n = 3, .p = {axis, from, to}});
}
static int reshape(int x, int ndim, const int64_t *dims)
{
    instruction s = {.op = OP_RESHAPE, .n_in = 1, .in = {x}, .n = ndim};
    memcpy(s.p, dims, (size_t)ndim * sizeof *dims);
    return add(s);
}
/* Over the n axes; all if n is 0. */
static int reduce(int f, int x, int n, const int64_t *axes, bool keep)
{
    instruction s = {.op = OP_REDUCE, .row = f, .n_in = 1, .in = {x}, .n = n, .flag = keep};
    if (n) memcpy(s.p, axes, (size_t)n * sizeof *axes);
    return add(s);
}
static void result(int x) { p.results[p.n_results++] = x; }

#define DIMS(...) (int64_t[]){__VA_ARGS__}
#define LEAF(...) leaf(sizeof DIMS(__VA_ARGS__) / sizeof(int64_t), DIMS(__VA_ARGS__))

/* ---- the rules ------------------------------------------------------------------------------- */

/* The ways in which a pattern occurs, and in which it does not.  DEEP: no fused kernel computes
 * products of 8 dimensions. */
enum {
    HOLDS, TWICE, KEPT, ALL_READ, SUMMED, OVERLAP, SINGLE, OTHER_AXIS, DEEP, FULL, TWO_GAPS, ALONE,
    AT_START, AT_END, COMPUTED, WIDE, RESHAPED, OF_CONV, NORMED, DIRECT, OTHER_COLUMNS, BROADCAST,
    MULTIPLIED, FLIPPED
};

/* Slices of tanh(x + y). */
static void slices(int how)
{
    const int64_t n = draw_between(2, 5), m = draw_between(3, 9), at = draw_between(1, m - 1);
    int f = binary(B_add, LEAF(n, m), draw_chance(2) ? LEAF(m) : LEAF(n, m));
    f = how == COMPUTED ? product(f, LEAF(m, m)) : unary(U_tanh, f);
    if (how == TWICE) f = binary(B_mul, unary(U_sigmoid, f), LEAF(n, 1));
    if (how == SINGLE) {
        result(slice(slice(f, 0, 0, 1), 1, at, at + 1));
        return;
    }
    result(slice(f, 1, 0, how == OVERLAP ? m - 1 : at));
    result(unary(U_square, slice(f, 1, how == OVERLAP ? 1 : at, m)));
    if (how == KEPT) result(f);
    if (how == SUMMED) result(reduce(R_sum, f, 1, DIMS(1), false));
}

/* tanh and sigmoid of the halves of the columns of a product, multiplied. */
static void sliced_products(int how)
{
    const int64_t n = draw_between(2, 4), k = draw_between(2, 6), m = draw_between(2, 5);
    const int x = how == DEEP ? LEAF(1, 1, 1, 1, 1, 1, n, k) : LEAF(n, k);
    const int y = product(x, LEAF(k, m * 2));
    const int axis = d.v[x].ndim - 1 - (how == OTHER_AXIS);
    const int64_t half = how == OTHER_AXIS ? 1 : m;
    const int a = slice(y, axis, 0, half), b = slice(y, axis, half, 2 * half);
    const int gated = binary(B_mul, unary(U_tanh, a), unary(U_sigmoid, b));
    result(how == SUMMED ? reduce(R_sum, gated, 1, DIMS(1), false) : gated);
    if (how == KEPT) result(y);
    if (how == ALL_READ) result(unary(U_relu, y));
}

/* The gradient of a loss of slices: zero where no slice is. */
static void gaps(int how)
{
    static const int64_t parts[][4] = {
        [HOLDS] = {0, 2, 3, 6}, [AT_START] = {1, 3, 3, 6}, [AT_END] = {0, 2, 2, 5},
        [FULL] = {0, 2, 2, 6}, [TWO_GAPS] = {1, 2, 4, 6}, [ALONE] = {1, 4, 4, 4}};
    const int64_t n = draw_between(2, 4), *at = parts[how];
    const int axis = (int)draw_between(0, 1), x = axis ? LEAF(n, 6) : LEAF(6, n);
    int loss = reduce(R_sum, unary(U_square, slice(x, axis, at[0], at[1])), 0, NULL, false);
    if (how != ALONE)
        loss = binary(B_add, loss,
                      reduce(R_sum, unary(U_tanh, slice(x, axis, at[2], at[3])), 0, NULL, false));
    result(add((instruction){.op = OP_GRADIENT, .n_in = 2, .in = {loss, x}}));
}

/* Variances over rows of a tensor that is in memory. */
static void variances(int how)
{
    const int64_t n = draw_between(3, 6), c = draw_between(2, 4), h = draw_between(2, 4);
    if (how == WIDE) d.main = WB_F64;
    int x = how == HOLDS || how == OTHER_AXIS ? LEAF(n, c) : LEAF(n, c, h, h);
    if (how == OF_CONV)
        x = add((instruction){.op = OP_CONV, .n_in = 2, .in = {x, LEAF(3, c, 2, 2)}, .n = 9,
                              .p = {1, 1, 0, 0, 0, 0, 1, 1, 1}});
    if (how == COMPUTED) x = unary(U_tanh, x);
    if (how == NORMED)
        result(add((instruction){.op = OP_BATCHNORM, .n_in = 3, .in = {x, LEAF(c), LEAF(c)}}));
    else if (how == HOLDS || how == OTHER_AXIS)
        result(reduce(R_variance, x, 1, DIMS(how == OTHER_AXIS), true));
    else result(reduce(R_variance, x, 3, DIMS(0, 2, 3), how != RESHAPED));
}

/* The sum of the rows of a product, of which another value reads a reshape. */
static void sums_in_a_shape(int how)
{
    const int64_t a = draw_between(2, 3), b = draw_between(2, 3), c = draw_between(2, 4) * 2;
    const int64_t k = draw_between(2, 5);
    const int y = product(LEAF(a * b, k), LEAF(k, c));
    const int z = how == OTHER_COLUMNS ? reshape(y, 3, DIMS(a * b, 2, c / 2))
                                       : reshape(y, 3, DIMS(a, b, c));
    result(unary(U_tanh, binary(B_mul, z, LEAF(d.v[z].dims[1], 1))));
    result(reduce(R_sum, y, 1, DIMS(how == OTHER_AXIS), how == TWICE));
    if (how == DIRECT) result(unary(U_sigmoid, y));
}

/* A tensor among zeros. */
static void windows(int how)
{
    const int64_t n = draw_between(2, 4), m = draw_between(2, 4);
    int x = how == COMPUTED ? add((instruction){.op = OP_FULL, .dtype = WB_F32, .n = 2, .p = {n, m},
                                                .number = 2}) : LEAF(n, m);
    if (how == TWICE) x = unary(U_tanh, x);
    x = add((instruction){.op = OP_PAD, .n_in = 1, .in = {x}, .n = 3, .p = {0, 1, 2}});
    if (how == KEPT) result(x);
    if (how == MULTIPLIED) result(product(x, LEAF(m, 2)));
    if (how == FLIPPED) x = add((instruction){.op = OP_FLIP, .n_in = 1, .in = {x}, .n = 1});
    result(binary(B_mul, x, LEAF(n + 3, m)));
    result(reduce(R_sum, binary(B_add, x, LEAF(m)), 1, DIMS(1), false));
}

/* tanh of a small product. */
static void products(int how)
{
    const int64_t n = draw_between(2, 4), k = draw_between(2, 6), m = draw_between(2, 5);
    const int y = product(LEAF(n, k), LEAF(k, m));
    const int z = how == BROADCAST ? binary(B_add, y, LEAF(3, n, m)) : unary(U_tanh, y);
    result(how == SUMMED ? reduce(R_sum, z, 1, DIMS(1), false) : z);
    if (how == KEPT) result(y);
}

/* The slope of tanh, which is read behind a product of the tanh. */
static void slopes(int how)
{
    const int64_t n = draw_between(16, 32), m = draw_between(3, 5);
    const int t = unary(U_tanh, LEAF(n, m)), back = product(t, LEAF(m, m));
    const int s = how == COMPUTED ? unary(U_exp, t)
                                  : add((instruction){.op = OP_BINARY_NUMBER, .row = B_sub,
                                                      .n_in = 1, .in = {unary(U_square, t)},
                                                      .number = 1, .flag = true});
    result(binary(B_mul, back, s));
    if (how == KEPT) result(s);
}

static const struct {
    const char *rule;
    void (*make)(int how);
    int how;
    bool applies;
} cases[] = {
    {"slices", slices, HOLDS, true}, {"slices", slices, TWICE, true},
    {"slices", slices, KEPT, false}, {"slices", slices, SUMMED, false},
    {"slices", slices, OVERLAP, false}, {"slices", slices, SINGLE, false},
    {"slices", slices, COMPUTED, false},
    {"sliced products", sliced_products, HOLDS, true},
    {"sliced products", sliced_products, KEPT, false},
    {"sliced products", sliced_products, ALL_READ, false},
    {"sliced products", sliced_products, SUMMED, false},
    {"sliced products", sliced_products, OTHER_AXIS, false},
    {"sliced products", sliced_products, DEEP, false},
    {"gaps", gaps, HOLDS, true}, {"gaps", gaps, AT_START, true}, {"gaps", gaps, AT_END, true},
    {"gaps", gaps, FULL, false}, {"gaps", gaps, TWO_GAPS, false}, {"gaps", gaps, ALONE, false},
    {"variances", variances, HOLDS, true}, {"variances", variances, OF_CONV, true},
    {"variances", variances, OTHER_AXIS, false}, {"variances", variances, COMPUTED, false},
    {"variances", variances, WIDE, false},
    {"reshaped variances", variances, RESHAPED, true},
    {"reshaped variances", variances, NORMED, true},
    {"reshaped variances", variances, HOLDS, false},
    {"sums in a shape", sums_in_a_shape, HOLDS, true},
    {"sums in a shape", sums_in_a_shape, TWICE, true},
    {"sums in a shape", sums_in_a_shape, OTHER_AXIS, false},
    {"sums in a shape", sums_in_a_shape, DIRECT, false},
    {"sums in a shape", sums_in_a_shape, OTHER_COLUMNS, false},
    {"padded view of", windows, HOLDS, true}, {"padded view of", windows, TWICE, true},
    {"padded view of", windows, KEPT, false}, {"padded view of", windows, MULTIPLIED, false},
    {"padded view of", windows, FLIPPED, false}, {"padded view of", windows, COMPUTED, false},
    {"in the kernel that reads it", products, HOLDS, true},
    {"in the kernel that reads it", products, BROADCAST, false},
    {"in the kernel that reads it", products, SUMMED, false},
    {"in the kernel that reads it", products, KEPT, false},
    {"rematerialised:", slopes, HOLDS, true}, {"rematerialised:", slopes, COMPUTED, false},
    {"rematerialised:", slopes, KEPT, false}};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- running --------------------------------------------------------------------------------- */

static char rules[512];                 /* ", RULE TIMES, RULE TIMES," of the last plan */
static char stages[1 << 14];            /* what its other stages logged */

static void listen(wb_log_level level, const char *message, void *ctx)
{
    (void)level, (void)ctx;
    const char *at = strstr(message, "rules:");
    const size_t n = strlen(stages);
    if (at) snprintf(rules, sizeof rules, ",%s,", at + strlen("rules:"));
    else snprintf(stages + n, sizeof stages - n, "%s\n", message);
}

/* How often the last plan has applied a rule, or whether a stage has logged its name; -1: there is
 * no plan. */
static int times(const char *rule)
{
    char word[64];
    snprintf(word, sizeof word, ", %s ", rule);
    const char *at = strstr(rules, word);
    return !rules[0] ? -1 : at ? atoi(at + strlen(word)) : strstr(stages, rule) != NULL;
}

/* Whether each rule of the last plan has a case in which it is applied. */
static bool all_have_cases(void)
{
    bool all = rules[0];
    for (const char *at = rules; *at && at[1]; at = strchr(at + 1, ',')) {
        const char *end = strchr(at + 1, ',');
        bool found = false;
        while (*--end != ' ') {}        /* the number */
        for (int i = 0; i < CASES; i++)
            found |= cases[i].applies && (int)strlen(cases[i].rule) == end - at - 2 &&
                     !strncmp(cases[i].rule, at + 2, strlen(cases[i].rule));
        if (!found) printf("no case has the rule \"%.*s\"\n", (int)(end - at - 2), at + 2);
        all &= found;
    }
    return all;
}

static void draw_case(int i, uint64_t seed)
{
    memset(&p, 0, sizeof p);
    memset(&d, 0, sizeof d);
    draw_seed(seed);
    interpret_forget();
    good = true;
    p.seed = 2 * seed;                  /* an even seed: nothing else is evaluated (ask) */
    d.p = &p;
    d.main = WB_F32;
    d.grid = draw_chance(2);
    cases[i].make(cases[i].how);
    p.way = (manner){.threads = 1, .calls = 1, .n_first = p.n_results};
}

/* Runs a case with a seed.  Returns the number of failures; -1: its values cannot be compared. */
static int run_case(int i, uint64_t seed, bool dear)
{
    verdict v = {0};
    draw_case(i, seed);
    if (!good) {
        free_program(&p);
        return -1;
    }
    wb__cache_clear();
    rules[0] = stages[0] = 0;
    const bool valid = run_program(&p, &v);
    const bool everywhere = cases[i].make == slices || cases[i].make == slopes;
    const int n = times(cases[i].rule);
    const bool expected = cases[i].applies && (dear || everywhere);
    const bool failed = !valid || v.failed || n < 0 || (n > 0) != expected;
    if (failed) {
        printf("case %d, seed %d: \"%s\" was applied %d times, and is to be applied%s; %s\n", i,
               (int)seed, cases[i].rule, n, expected ? "" : " never",
               v.failed ? v.text : valid ? "the values are right" : "the program is not valid");
        print_program(stdout, &p, &v);
    }
    free_program(&p);
    return failed;
}

int test_rules(int seeds)
{
    const bool dear = wb_default_device()->backend->dear_launches;
    int failures = 0, runs = 0;
    wb_set_log(listen, NULL);
    for (int i = 0; i < CASES; i++) {
        int done = 0;
        for (uint64_t seed = 1; done < seeds && seed < 20 * (uint64_t)seeds; seed++) {
            const int outcome = run_case(i, seed, dear);
            done += outcome >= 0;
            failures += outcome > 0;
        }
        if (done < seeds) printf("case %d: its values cannot be compared\n", i), failures++;
        runs += done;
    }
    failures += !all_have_cases();
    printf("%d programs of %d cases of rules, %d failures\n", runs, (int)CASES, failures);
    wb_set_log(NULL, NULL);
    interpret_forget();
    wb_shutdown();
    return failures != 0;
}
