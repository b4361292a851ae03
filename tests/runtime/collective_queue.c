/* The queue of collective operations (backend/collective.h), with a communicator of this file. */
#include "test.h"

#include "backend/collective.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weber.h>

static int64_t done[16];                /* n of each operation that was performed, in order */
static int n_done;
static int64_t fails_at;                /* n of the operation that fails; 0: none */
static pthread_t performer;             /* the thread of the last operation */
static wb__modes modes;                 /* in which it was performed */

/* Operations wait while it is shut. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opens;
    bool shut;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opens = PTHREAD_COND_INITIALIZER};

static void set_gate(bool shut)
{
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    pthread_cond_broadcast(&gate.opens);
    pthread_mutex_unlock(&gate.lock);
}

static int perform(const wb__collective *c)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.shut) pthread_cond_wait(&gate.opens, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    performer = pthread_self();
    modes = wb__modes_now();
    done[n_done++] = c->n;
    if (c->n != fails_at) return 0;
    return wb__fail(WB_ERROR_DEVICE, "operation %d fails", (int)c->n);
}

static const wb__communicator fake = {.name = "fake", .size = 1, .local_size = 1,
                                      .perform = perform};

static uint64_t begin(int64_t n)
{
    return wb__collective_begin(&(wb__collective){.communicator = &fake, .n = n,
                                                  .kind = WB__COLLECT_ALLREDUCE, .dtype = WB_F32});
}

static void start(bool overlap, int64_t failing)
{
    set_gate(false);
    wb__collective_stop();
    wb__collective_set_overlap(overlap);
    n_done = 0;
    fails_at = failing;
    set_gate(overlap);
}

/* Operations run in the order in which they were begun, here or in a thread of their own. */
TEST(operations_in_order)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        uint64_t last = 0;
        start(overlap, 0);
        for (int i = 1; i <= 8; i++) {
            const uint64_t number = begin(i);
            assert_true(i == 1 || number == last + 1);
            last = number;
        }
        assert_int_equal(wb__collective_busy(), overlap);
        set_gate(false);
        assert_int_equal(wb__collective_end(last), 0);
        assert_false(wb__collective_busy());
        assert_int_equal(n_done, 8);
        for (int i = 0; i < 8; i++) assert_int_equal(done[i], i + 1);
        assert_int_equal(pthread_equal(performer, pthread_self()) != 0, !overlap);
    }
}

/* An operation sums in the floating-point modes of the thread that began it. */
TEST(modes_of_the_caller)
{
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST};
    start(true, 0);
    set_gate(false);
    for (int i = 0; i < 3; i++) {
        fesetround(directions[i]);
        const wb__modes mine = wb__modes_now();
        const uint64_t number = begin(i + 1);
        fesetround(FE_TONEAREST);
        assert_int_equal(wb__collective_end(number), 0);
        assert_true(modes == mine);
        assert_false(pthread_equal(performer, pthread_self()));
    }
}

/* A child of fork is no rank: what its parent had begun is an error in it, and nothing waits. */
TEST(children_of_fork)
{
    start(true, 0);
    const uint64_t number = begin(1);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const bool right = wb__collective_end(number) == WB_ERROR_UNSUPPORTED &&
                           HAS_FACTS(wb_error(), "fork", "rank") && !wb__collective_busy();
        wb__collective_stop();
        _exit(!right);
    }
    set_gate(false);
    assert_int_equal(wb__collective_end(number), 0);
    int status = 1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

/* After a failure no later operation is performed, and each of them has the same error. */
TEST(an_operation_that_fails)
{
    for (int overlap = 0; overlap < 2; overlap++) {
        start(overlap, 3);
        uint64_t number[6];
        for (int i = 1; i <= 5; i++) number[i] = begin(i);
        set_gate(false);
        for (int i = 5; i > 2; i--) {
            FAILS(wb__collective_end(number[i]), WB_ERROR_DEVICE, "operation 3 fails");
            wb_clear_error();
        }
        assert_int_equal(n_done, 3);
        start(overlap, 0);              /* forgets the failure */
        set_gate(false);
        assert_int_equal(wb__collective_end(begin(7)), 0);
        assert_int_equal(n_done, 1);
    }
}

/* Operations that wait when the overlap ends are performed first. */
TEST(overlap_that_ends)
{
    start(true, 0);
    for (int i = 1; i <= 4; i++) begin(i);
    wb__collective_set_overlap(false);
    const uint64_t last = begin(5);     /* waits behind them, in the thread */
    assert_true(wb__collective_busy());
    set_gate(false);
    assert_int_equal(wb__collective_end(last), 0);
    assert_int_equal(n_done, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(done[i], i + 1);
}

static char logged[400];

static void keep(wb_log_level level, const char *message, void *ctx)
{
    snprintf(logged, sizeof logged, "%s", message);
}

/* The report counts the bytes since the last one. */
TEST(report)
{
    start(false, 0);
    wb__collective_report("before");
    wb_set_log(keep, NULL);
    wb__collective_end(begin(100));
    wb__collective_end(begin(11));
    wb__collective_report("this test");
    assert_true(HAS_FACTS(logged, "this test", "2 operations", "444 bytes"));
    *logged = 0;
    wb__collective_report("nothing");
    assert_string_equal(logged, "");
    wb_set_log(NULL, NULL);
    wb__collective_stop();
}

int main(void)
{
    setenv("WEBER_DEBUG", "dist", 1);
    alarm(60);                          /* ends a case that waits for ever */
    return run_all_cases();
}
