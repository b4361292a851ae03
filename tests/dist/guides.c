/* What Flux's guide of distributed training does, on several numbers of ranks: the rows S80 to S97
 * of docs/guides.md that ranks.c does not show.  Each rank runs all cases; the output is that of
 * rank 0. */
#include "rank_cases.h"

typedef struct { wb_layer *actor; wb_tensor *gain; } agent;
WB_FUNCTOR(agent, actor, gain)

static double first_of(wb_tensor *x) { return wb_item(wb_slice(wb_reshape(x, -1), 0, 0, 1)); }

/* S82, S97 */
TEST(places)
{
    assert_true(wb_distributed_initialized());
    assert_in_range(rank, 0, size - 1);
    assert_in_range(wb_distributed_local_rank(), 0, rank);
    wb_scope *s = wb_scope_open();
    wb_tensor *ranks = wb_distributed_allgather(wb_full((double)rank, 1));
    const float *is = ranks ? wb_data(ranks) : NULL;
    assert_non_null(is);
    for (int r = 0; r < size; r++) assert_true(is[r] == (float)r);
    WORKS(wb_scope_close(s));
    WORKS(wb_distributed_barrier());
}

/* S97: reductions to all ranks and to one, and a copy; the operand is as it was. */
TEST_IN_SCOPE(reductions)
{
    wb_tensor *x = wb_full(rank + 1.0, 3);
    const double sum = size * (size + 1) / 2.0;
    wb_tensor *all = wb_distributed_allreduce(x, WB_RANKS_MEAN);
    wb_tensor *one = wb_distributed_reduce(x, WB_RANKS_SUM, size - 1);
    assert_true(fabs(first_of(all) - sum / size) < 1e-6);
    if (rank == size - 1) assert_true(first_of(one) == sum);
    else assert_ptr_equal(one, WB_NONE);
    assert_true(first_of(wb_distributed_broadcast(x, size - 1)) == size);
    assert_true(first_of(x) == rank + 1.0);
}

/* S87, S88: a model, a tree, a struct and a tensor get the values of any rank. */
TEST_IN_SCOPE(values_of_one_rank)
{
    const int root = size - 1;
    wb_seed(10 + (uint64_t)rank);
    wb_layer *model = wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 2));
    agent a = {wb_Dense(2, 2), wb_variable(wb_full(rank + 5.0, 2))};
    wb_tree *both = wb_tuple(model, wb_struct(agent, &a));
    wb_tensor *weight = wb_get(model, "layers.0.weight");
    const double from_root = first_of(wb_distributed_broadcast(weight, root));
    assert_true((first_of(weight) == from_root) == (rank == root));
    WORKS(wb_distributed_synchronize(both, .root = root));
    assert_true(first_of(wb_get(model, "layers.0.weight")) == from_root);
    assert_true(first_of(a.gain) == root + 5.0);
    wb_tensor *lone = wb_variable(wb_full((double)rank, 2));
    WORKS(wb_distributed_synchronize(lone, .root = root));
    assert_true(first_of(lone) == root);
    assert_int_equal(wb_distributed_synchronize(lone, .root = size), WB_ERROR_ARGUMENT);
    assert_true(HAS_FACTS(wb_error(), "distributed_synchronize", "rank"));
    wb_clear_error();
}

static wb_layer *small_model(void)
{
    wb_seed(1);
    return wb_Chain(wb_Dense(3, 4, wb_tanh), wb_Dense(4, 2));
}

static wb_batch batch_of(uint64_t seed)
{
    wb_seed(seed);
    return (wb_batch){.x = wb_randn(16, 3), .y = wb_randn(16, 2), .n = 16};
}

/* S91: each rank makes other steps, and another number of them; then all have the model and the
 * moments of rank 0, and the same step gives the same model. */
TEST_IN_SCOPE(states_of_rank_0)
{
    wb_layer *model = small_model();
    wb_opt_state *state = wb_setup(wb_Adam(0.01), model);
    wb_tree *gradients;
    for (int k = 0; k <= rank + 1; k++) {
        const bool last = k == rank + 1;
        if (last) WORKS(wb_distributed_synchronize(model));
        if (last) WORKS(wb_distributed_synchronize(state, .root = 0));
        const wb_batch b = batch_of(last ? 7 : 100 + (uint64_t)rank);
        wb_tensor *loss = wb_withgradient(mse_loss, model, b, &gradients);
        if (!loss || wb_update(state, model, gradients)) fail_msg("rank %d: %s", rank, wb_error());
    }
    expect_alike(model);
}

/* S89, S90, S92: a loop that gets a new model from each update. */
TEST_IN_SCOPE(a_loop_with_new_models)
{
    wb_layer *model = small_model();
    wb_opt_state *state = wb_setup(wb_DistributedOptimizer(wb_Adam(0.001)), model);
    char *text = wb_object_format(state);
    assert_non_null(text);
    if (!strstr(text, "DistributedOptimizer(Adam(eta=0.001")) fail_msg("%s", text);
    wb_free_text(text);
    for (int k = 0; k < 3; k++) {
        const wb_batch b = batch_of(100 * (uint64_t)k + (uint64_t)rank);
        wb_tree *gradients;
        wb_tensor *loss = wb_withgradient(mse_loss, model, b, &gradients);
        wb_layer *next = wb_update_new(state, model, gradients);
        if (!loss || !next) fail_msg("rank %d: %s", rank, wb_error());
        assert_true(first_of(wb_get(next, "layers.0.weight")) !=
                    first_of(wb_get(model, "layers.0.weight")));
        model = next;
        expect_alike(model);
    }
}

/* D4: 4 observations for 3 ranks, where Flux's last rank has none: each rank has the same number,
 * and together they have all. */
TEST_IN_SCOPE(shares_of_few_observations)
{
    enum { N = 4 };
    wb_dataset *d = wb_dataset_of(wb_arange(N, WB_F32), WB_NONE);
    wb_dataset *share = wb_distributed_dataset(d);
    const int64_t each = (N + size - 1) / size;
    assert_int_equal(wb_dataset_length(share), each);
    wb_batch b;
    wb_loader *loader = wb_dataloader(share, .batchsize = (int)each);
    assert_true(wb_loader_next(loader, &b));
    wb_tensor *all = wb_distributed_allgather(b.x);
    const float *is = all ? wb_data(all) : NULL;
    assert_non_null(is);
    int seen[N] = {0};
    for (int64_t i = 0; i < each * size; i++) seen[(int)is[i]]++;
    for (int i = 0; i < N; i++) assert_true(seen[i] >= 1);
    WORKS(wb_loader_status(loader));
}

int main(void)
{
    if (wb_distributed_initialized() || wb_distributed_rank() || wb_distributed_size() != 1)
        return 1;
    if (!ranks_begin(connect_ranks(60))) return 1;
    return run_all_cases();
}
