/* The second thread of a process begins while the first, which was alone until then, evaluates for
 * longer than the second waits for it: a claim of the second waits all the same. */
#include "test.h"

#include "weber.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_bool inside;
static wb_tensor *v;
static float before, after;

/* Reads its input twice, for longer than wb__claims_thread waits. */
static int reads_twice(int n, const wb_host_array *in, const wb_host_array *out, void *ctx)
{
    enum { LONGER = 1300 * 1000 };                      /* microseconds */
    const volatile float *x = in->data;
    (void)n, (void)ctx;
    before = x[0];
    atomic_store(&inside, true);
    usleep(LONGER);
    after = x[0];
    *(float *)out->data = after;
    return 0;
}

static void *assigns(void *status)
{
    while (!atomic_load(&inside)) usleep(1000);
    *(int *)status = wb_assign(v, wb_full(5, 4));
    if (!*(int *)status) *(int *)status = wb_eval(v);
    return NULL;
}

TEST(a_claim_waits_for_what_the_first_thread_began_alone)
{
    pthread_t second;
    int status = -1;
    v = wb_variable(wb_ones(4));
    assert_int_equal(wb_eval(v), 0);
    assert_int_equal(pthread_create(&second, NULL, assigns, &status), 0);
    wb_tensor *y = wb_host_operation(reads_twice, NULL, WB_F32, 0, NULL, 1, &v);
    assert_true(wb_item(y) == 1);
    assert_true(before == 1 && after == 1);
    pthread_join(second, NULL);
    assert_int_equal(status, 0);
    assert_true(wb_at(v, 0) == 5);
}
