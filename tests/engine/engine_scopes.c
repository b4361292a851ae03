/* Lifetimes: objects that functions return, objects kept beyond a scope, and writes that fail. */
#include "engine/graph.h"
#include "reference.h"

#include "weber/nn.h"
#include "weber/train.h"

enum { IN = 8, OUT = 3, ROWS = 4, SETTLED = 3000 };

static wb_layer *net(void)
{
    wb_seed(3);
    return wb_Chain(wb_Dense(IN, 6, wb_tanh), wb_Dense(6, OUT));
}

/* ---- the objects that functions leave in the scope ------------------------------------------- */

static int objects_in_scope(void) { return wb__this_thread()->scope->n; }

static wb_tensor *stored;
static wb_tensor *storing(wb_tensor *x)
{
    stored = wb_mul(x, wb_scalar(2));       /* a global of the program, not a result */
    return wb_tanh(x);
}

TEST(only_results_are_handed_out)
{
    wb_layer *m = net(), *with = wb_Chain(wb_Dense(IN, OUT, storing), wb_identity);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    wb_tensor *x = wb_randn(ROWS, IN), *y = wb_randn(ROWS, OUT);
    wb_scope *scope = wb_scope_open();
    wb_tensor *yhat = wb_call(m, x);
    assert_int_equal(objects_in_scope(), 1);
    wb_tensor *l = wb_mse(yhat, y);
    assert_int_equal(objects_in_scope(), 2);
    wb_tree *g = wb_gradient(l, m);
    assert_int_equal(objects_in_scope(), 2 + 1 + 4);              /* the tree, and each gradient */
    assert_int_equal(wb_update(s, m, g), 0);
    assert_int_equal(objects_in_scope(), 7);
    wb_call(with, x);                   /* the tensors of the program's functions are not freed */
    wb_eval(stored);
    assert_int_equal(wb_ndim(stored), 2);
    assert_true(isfinite(wb_at(stored, 1, 1)));
    assert_int_equal(wb_scope_close(scope), 0);
    wb_shutdown();
}

/* ---- kept beyond a scope --------------------------------------------------------------------- */

TEST(kept_is_computed)
{
    wb_tensor *total = wb_zeros(100), *read = wb_retain(wb_zeros(100));
    int64_t held = 0;
    for (int i = 0; i <= 600; i++) {
        float batch[100] = {1, (float)i};
        wb_scope *s = wb_scope_open();
        wb_tensor *x = wb_from(batch, WB_F32, 1, (int64_t[]){100});
        wb_tensor *next = wb_keep(wb_add(total, x)), *other = wb_retain(wb_add(read, x));
        assert_true(isfinite(wb_at(other, 1)));         /* evaluated before the scope closes */
        assert_int_equal(wb_scope_close(s), 0);
        wb_free(total);
        wb_release(read);
        total = next;
        read = other;
        if (i == 100) held = wb_memory_used();
    }
    assert_true(wb_memory_used() - held < 1024);
    assert_true(wb_at(total, 0) == 601 && wb_at(total, 1) == 300 * 601);
    assert_true(wb_at(read, 1) == 300 * 601);
    wb_release(read);
    wb_shutdown();
}

TEST(what_was_kept_has_no_gradient)
{
    wb_tensor *v = wb_variable(wb_ones(3));
    for (int retained = 0; retained < 2; retained++) {
        wb_scope *s = wb_scope_open();
        wb_tensor *l = wb_sum(wb_square(v));
        if (retained) wb_retain(l);
        else l = wb_keep(l);
        wb_scope_close(s);
        assert_true(wb_item(l) == 3);
        wb_clear_error();
        assert_null(wb_gradient(l, v));                 /* not silently zeros */
        assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
        wb_tensor *g = wb_gradient(wb_sum(wb_mul(v, l)), v);
        assert_true(wb_at(g, 0) == 3);                  /* an operand that is a constant */
        if (retained) wb_release(l);
    }
    wb_shutdown();
}

typedef struct { wb_tensor *a, *b; } pair;
WB_FUNCTOR(pair, a, b)

static wb_tensor *exponential(wb_tensor *x, const char *path, void *ctx)
{
    return wb_exp(x);
}

TEST(none_is_in_no_scope)
{
    const uint32_t counted = wb__refs(WB_NONE);
    wb_scope *s = wb_scope_open();
    assert_ptr_equal(wb__scope_give(wb__ref(WB_NONE)), WB_NONE);
    assert_ptr_equal(wb_keep(WB_NONE), WB_NONE);
    assert_int_equal(s->n, 0);
    assert_int_equal(wb_scope_close(s), 0);
    assert_int_equal(wb__refs(WB_NONE), counted);
}

/* A tree may be created before the tensors that it holds.  They are freed with it, and closing the
 * scope does not evaluate them. */
TEST_IN_SCOPE(trees_die_before_what_they_hold)
{
    wb_tensor *x = wb_ones(3);
    assert_int_equal(wb_eval(x), 0);
    const int64_t evaluations = wb_stats().steps;
    wb_scope *s = wb_scope_open();
    wb_tree *t = wb_fmap(exponential, wb_tuple(x, wb_ones(4)), NULL);
    assert_true(wb__is(t, &wb__tree_class));
    assert_int_equal(wb_scope_close(s), 0);
    assert_int_equal(wb_stats().steps, evaluations);
}

TEST(kept_over_levels_and_in_trees)
{
    wb_layer *m = net();
    wb_tensor *v = wb_variable(wb_ones(4));
    wb_scope *one = wb_scope_open(), *two = wb_scope_open(), *three = wb_scope_open();
    wb_tensor *x = wb_keep(wb_mul(v, wb_scalar(3)));
    wb_tree *tuple = wb_keep(wb_tuple(wb_exp(v), wb_tuple(wb_neg(v))));
    wb_tree *record = wb_keep(wb_struct(pair, &((pair){wb_add(v, v), wb_square(v)})));
    wb_tree *g = wb_keep(wb_gradient(wb_sum(wb_square(wb_call(m, wb_ones(2, IN)))), m));
    wb_batch batch = {.x = wb_keep(wb_sub(v, wb_scalar(5))), .y = wb_keep(wb_mul(v, v))};
    const int64_t steps = wb_stats().steps;
    assert_int_equal(wb_scope_close(three), 0);
    assert_int_equal(wb_stats().steps, steps + 1);      /* one evaluation for all kept objects */
    wb_assign(v, wb_zeros(4));
    wb_eval(v);
    x = wb_keep(x);
    tuple = wb_keep(tuple);
    assert_int_equal(wb_scope_close(two), 0);
    assert_true(wb_at(x, 0) == 3 && wb_at(wb_get(tuple, "1.0"), 1) == -1);
    assert_int_equal(wb_stats().steps, steps + 2);
    (void)batch, (void)record, (void)g;
    assert_int_equal(wb_scope_close(one), 0);
    wb_scope *s = wb_scope_open();
    record = wb_keep(wb_struct(pair, &((pair){wb_add(v, v), wb_square(v)})));
    batch.y = wb_keep(wb_add(v, wb_scalar(7)));
    assert_int_equal(wb_scope_close(s), 0);
    wb_assign(v, wb_ones(4));
    wb_eval(v);
    pair p;
    assert_int_equal(wb_struct_get(pair, record, &p), 0);
    assert_true(wb_at(p.a, 0) == 0 && wb_at(batch.y, 2) == 7);
    wb_shutdown();
}

/* ---- writes that cannot be computed ---------------------------------------------------------- */

/* An unevaluated value that depends on an overwritten version of a variable. */
static wb_tensor *lost(void)
{
    wb_tensor *v = wb_variable(wb_ones(3)), *old = wb_add(v, v), *use = wb_neg(old);
    wb_eval(use);
    wb_assign(v, wb_zeros(3));
    wb_eval(v);
    return old;
}

TEST(a_write_that_cannot_be_made_is_taken_back)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *w = wb_variable(wb_full_array(4, WB_F32, 1, (int64_t[]){3})),
              *u = wb_variable(wb_ones(3));
    wb_tensor *old = lost();
    assert_int_equal(wb_assign(u, wb_zeros(3)), 0);
    int status = wb_assign(w, wb_mul(old, old));
    if (!status) {
        assert_true(isnan(wb_at(w, 0)));
        status = wb_error_code();
    }
    assert_int_equal(status, WB_ERROR_VERSION);
    wb_clear_error();
    assert_true(wb_at(w, 0) == 4 && wb_at(u, 0) == 1);  /* both have their old values */
    assert_string_equal(wb_error(), "");
    assert_int_equal(wb_assign(w, wb_ones(3)), 0);
    assert_true(wb_at(w, 2) == 1);
    /* reading a value that cannot be computed does not cancel a valid write */
    assert_int_equal(wb_assign(w, wb_zeros(3)), 0);
    assert_null(wb_data(old));
    assert_true(wb_at(w, 2) == 0);
    wb_scope_close(scope);
    wb_shutdown();
}

TEST(an_update_that_cannot_be_made_is_taken_back)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *w = wb_variable(wb_full_array(4, WB_F32, 1, (int64_t[]){3}));
    wb_tree *model = wb_tuple(w);
    wb_opt_state *s = wb_setup(wb_Momentum(.eta = 1), model);
    int status = wb_update(s, model, wb_tuple(lost()));
    if (!status) {
        assert_true(isnan(wb_at(w, 0)));
        status = wb_error_code();
    }
    assert_int_equal(status, WB_ERROR_VERSION);
    wb_clear_error();
    assert_true(wb_at(w, 1) == 4);
    assert_int_equal(wb_update(s, model, wb_tuple(wb_ones(3))), 0);
    assert_true(wb_at(w, 1) == 3);
    wb_scope_close(scope);
    wb_shutdown();
}

/* ---- lists ----------------------------------------------------------------------------------- */

TEST(lists_close_their_holes)
{
    enum { ALIVE = 50 };
    wb_tensor *ring[ALIVE] = {NULL};
    for (int scoped = 0; scoped < 2; scoped++) {
        wb_tensor *first = wb_ones(1);
        for (int i = 0; i < 20000; i++) {               /* freed in another order */
            wb_scope *s = scoped ? wb_scope_open() : NULL;
            wb_tensor *x = wb_full_array(i, WB_I32, 0, NULL);
            if (scoped) x = wb_keep(x);
            if (s) wb_scope_close(s);
            if (ring[i % ALIVE]) wb_free(ring[i % ALIVE]);
            ring[i % ALIVE] = x;
        }
        assert_true(objects_in_scope() < 4 * ALIVE);
        for (int i = 0; i < ALIVE; i++) {
            assert_true(wb_item(ring[i]) == 20000 - ALIVE + i);
            wb_free(ring[i]);
            ring[i] = NULL;
        }
        assert_true(wb_item(first) == 1);
        wb_free(first);
    }
    wb_shutdown();
}

static int released;
static wb_tensor *late;
static void release_data(void *data, void *ctx)
{
    free(data);
    released++;
    for (int i = 0; i < 100; i++) wb_ones(3);           /* in the scope that is closing */
    wb_tensor *x = wb_exp(wb_zeros(3));
    assert_true(wb_at(x, 1) == 1);
    if (released == 7) late = wb_retain(wb_add(x, x));
}

TEST(release_functions_may_make_tensors)
{
    const int64_t held = wb_memory_used();
    wb_scope *s = wb_scope_open();
    wb_tensor *kept[50];
    for (int i = 0; i < 50; i++) {
        float *data = calloc(3, sizeof *data);
        wb_tensor *b = wb_borrow(data, WB_F32, 1, (int64_t[]){3}, release_data, NULL);
        kept[i] = wb_retain(wb_mul(wb_ones(3), wb_scalar(i)));
        if (i % 3 == 0) wb_data(wb_add(b, b));
    }
    assert_int_equal(wb_scope_close(s), 0);
    assert_int_equal(released, 50);
    for (int i = 0; i < 50; i++) {
        assert_true(wb_at(kept[i], 0) == i);
        wb_release(kept[i]);
    }
    assert_true(wb_at(late, 2) == 2);
    wb_release(late);
    wb_shutdown();
    assert_true(wb_memory_used() <= held);
}

/* ---- freed objects --------------------------------------------------------------------------- */

/* The use of a freed object is an error without WEBER_DEBUG=check too, as long as its memory is not
 * reused. */
TEST(what_was_freed_is_found_out)
{
#if defined(__SANITIZE_ADDRESS__)
    printf("SKIP: AddressSanitizer ends a program that reads freed memory\n");
    skip();
#else
    wb_scope *s = wb_scope_open();
    wb_layer *m = net();
    wb_tensor *y = wb_call(m, wb_ones(1, IN));
    wb_scope_close(s);
    assert_true(isnan(wb_at(y, 0, 0)));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    REFUSED(wb_add(y, y), WB_ERROR_ARGUMENT, "freed");
    REFUSED(wb_call(m, wb_ones(1, IN)), WB_ERROR_ARGUMENT, "freed");
    wb_clear_error();
    assert_null(wb_retain(m));
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb_shutdown();
#endif
}
