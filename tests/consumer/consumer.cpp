// The program of consumer.c in C++17, with more of the forms that differ from C.
#include <cstdio>
#include <cstring>
#include <weber.h>

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *)
{
    return wb_mse(wb_call(model, batch.x), batch.y);
}

// A struct of the program as a layer, and an operation with a gradient of the program's own.
struct affine {
    wb_tensor *gain;
    wb_layer *inner;
    float shift;
    static wb_tensor *call(const affine *a, wb_tensor *x)
    {
        if (wb_ndim(x) > 2) return wb_fail(WB_ERROR_SHAPE, "affine: %d axes", wb_ndim(x)), nullptr;
        return wb_add(wb_mul(a->gain, wb_call(a->inner, x)), a->shift);
    }
};
WB_LAYER(affine, affine::call, gain, inner, shift)

static int twice(wb_tensor *g, wb_tensor *, int, wb_tensor *const *, wb_tensor **dx, void *)
{
    dx[0] = wb_mul(g, 2);
    return 0;
}

WB_INITIALIZER(twice_orthogonal, wb_orthogonal, 2)

static bool own_layer()
{
    wb_layer *m = wb_Chain(wb_Dense(3, 2), wb_layer_of(affine, wb_variable(wb_ones(2)),
                                                       wb_Dense(2, 2), 0.5f));
    affine a;
    if (!wb_call(m, wb_ones(4, 3)) || wb_struct_get(affine, wb_layer_at(m, "layers.1"), &a) ||
        a.shift != 0.5f || wb_parameter_count(m) != 16 || wb_name_struct(affine))
        return false;
    if (wb_call(m, wb_ones(4, 3, 3)) || std::strcmp(wb_error(), "layers.1: affine: 3 axes"))
        return false;
    wb_clear_error();
    wb_tensor *x = wb_variable(wb_ones(2));
    wb_tensor *y = wb_sum(wb_custom_gradient(wb_neg(x), twice, nullptr, x));
    return wb_item(wb_sum(wb_gradient(y, x))) == 4;
}

/* Compiled only: what reads a tokenizer takes a constant one. */
[[maybe_unused]] static char *texts(const wb_tokenizer *words, const char *const *list)
{
    if (!wb_encode(words, list[0]) || !wb_decoder_begin(words)) return nullptr;
    return wb_decode(words, wb_encode_batch(words, 2, list).ids);
}

int main()
{
    wb_seed(1);
    if (!own_layer()) return std::fprintf(stderr, "%s\n", wb_error()), 1;
    wb_using("CUDA");
    const wb_device *device = wb_get_device();
    wb_Dense_options plain;
    plain.bias = false;
    plain.activation = wb_relu;             // an argument that is not given leaves the field
    wb_layer *model = wb_Chain(wb_Dense(3, 8, wb_tanh), wb_Dense(8, 1, wb_identity, plain),
                               wb_identity);
    wb_tensor *relu = wb_call(wb_Dense(3, 8, nullptr, plain), wb_randn(9, 3));
    if (wb_item(wb_min(relu)) < 0) return 1;
    plain.dtype = WB_F64;
    if (wb_dtype_of(wb_get(wb_Dense(2, 2, nullptr, plain), "weight")) != WB_F64) return 1;
    wb_load_csv_options unseparated;
    unseparated.separator = 0;
    if (wb_load_csv("none.csv", unseparated) || !std::strstr(wb_error(), "separator")) return 1;
    wb_conv_options none;                   // a 0 that the program sets is 0
    none.groups = 0;
    wb_Rule_options still;
    still.eta = 0;
    still.beta = {0.5, 0};
    char *rule = wb_object_format(wb_Adam(still));
    if (std::strcmp(rule, "Adam(eta=0, beta=(0.5, 0), eps=1e-08)")) return 1;
    wb_free_text(rule);
    rule = wb_object_format(wb_Nesterov(0.1, 0.8));
    if (std::strcmp(rule, "Nesterov(eta=0.1, rho=0.8)")) return 1;
    wb_free_text(rule);
    wb_huber_options sum;
    sum.agg = WB_AGG_SUM;
    if (wb_item(wb_huber(wb_ones(2), wb_zeros(2), 0.5, sum)) != 0.75) return 1;
    if (wb_item(wb_huber(wb_ones(2), wb_zeros(2), 0.5)) != 0.375) return 1;
    wb_schedule *schedule = wb_ScheduleSequence({{wb_ScheduleStep(8, 0.5, 1, 2), 4},
                                                 {wb_ScheduleCosAnneal(1, 0, 4), 4}});
    schedule = wb_ScheduleComposed(wb_ScheduleExp(1, 1), schedule, wb_ScheduleConstant(2));
    if (wb_schedule_at(schedule, 2) != 8 || wb_schedule_at(wb_ScheduleOneCycle(8, 1), 3) != 1)
        return 1;
    wb_rule_type twice = {};
    twice.name = "Twice";
    twice.apply = [](wb_rule_step *s, void *) { return wb_mul(s->g, 2); };
    twice.eta = 1;
    static const wb_rule_type kept = twice;
    if (!wb_OptimizerChain(wb_AccumGrad(2), wb_CustomRule(&kept), wb_Muon(0.1, 0.9))) return 1;
    if (wb_conv(wb_ones(1, 1, 4, 4), wb_ones(1, 1, 3, 3), WB_NONE, none)) return 1;
    if (wb_MultiHeadAttention(8, 0)) return 1;
    wb_clear_error();
    wb_Conv_options wide;
    wide.stride = {2};
    wide.outpad = {1, 0};
    if (wb_dims(wb_call(wb_ConvTranspose(1, 2, {3}, wb_relu, wide), wb_ones(1, 1, 4, 4)))[2] != 10)
        return 1;
    model = wb_to(model, device);
    if (wb_device_of(model) != device) return 1;
    wb_reduce_options rows;
    const int64_t last_axis = -1;
    wb_ints_set(rows.axes, 1, &last_axis);
    rows.keep = true;
    wb_tensor *x = wb_randn(64, 3), *y = wb_mul(wb_sum(x, rows), 1);
    wb_searchsorted_options behind;
    behind.right = true;
    wb_tensor *ones = wb_ones(3);
    if (wb_at(wb_searchsorted(ones, ones), 0) != 0) return 1;
    if (wb_at(wb_searchsorted(ones, ones, behind), 0) != 3) return 1;
    wb_tensor *part[2], *six = wb_reshape(wb_arange(6, WB_F32), 2, 3);
    if (wb_at(wb_slice(six, 1, 0, 3, 2), 1, 1) != 5) return 1;
    if (wb_dim(wb_pad(six, 0, 1, 1), 0) != 4) return 1;
    if (wb_at(wb_take(six, wb_arange(2, WB_I32), 1), 1, 1) != 4) return 1;
    const int64_t sizes[] = {1, 2};
    wb_split_options uneven;
    uneven.sizes = sizes;
    if (wb_split(six, 1, 2, part, uneven) || wb_dim(part[1], 1) != 2) return 1;
    if (wb_ndim(wb_sum(x, {1})) != 1 || wb_ndim(wb_where(wb_gt(x, 0), 0, x)) != 2) return 1;
    wb_loss_options first_class;            // class 0 is ignored, so no row is left
    first_class.ignore_index = 0;
    first_class.agg = WB_AGG_SUM;
    if (wb_item(wb_logitcrossentropy(x, wb_argmax(wb_zeros(64, 3), -1), first_class)) != 0)
        return 1;
    wb_loss_options weighted;
    weighted.sample_weight = wb_ones(64);
    weighted.mask = wb_lt(wb_arange(64, WB_I32), 8);
    if (wb_item(wb_mse(wb_zeros(64, 3), wb_ones(64, 3), weighted)) != 1) return 1;
    if (wb_item(wb_quantile_loss(wb_zeros(2), wb_ones(2), 0.75)) != 0.75) return 1;
    if (wb_item(wb_f1(wb_gt(ones, 0), ones)) != 1 || wb_item(wb_iou(wb_gt(ones, 0), ones)) != 1)
        return 1;
    wb_metric_options classes;
    classes.classes = 2;
    wb_tensor *zeros = wb_argmax(wb_zeros(3, 2), -1);
    if (wb_at(wb_confusion(zeros, zeros, classes), 0, 0) != 3) return 1;
    if (!wb_item(wb_isnan(wb_roc_auc(ones, ones)))) return 1;
    if (wb_item(wb_nanmean(ones)) != 1 || wb_at(wb_nansum(ones, {0})) != 3) return 1;
    if (wb_item(wb_sum(wb_nan_to_num(ones))) != 3) return 1;
    wb_layer *twin = wb_clone(model);
    if (wb_copy(twin, model)) return 1;
    wb_dataloader_options now;
    now.batchsize = 32;
    now.ahead = 0;
    if (wb_loader_length(wb_dataloader(wb_dataset_of(x, y), now)) != 2) return 1;
    wb_dataset *joined = wb_joinobs(wb_dataset_of(x, y), wb_dataset_of(x, y)), *train, *held;
    if (wb_kfolds(joined, 4, 0, &train, &held) || wb_dataset_length(held) != 32) return 1;
    wb_loader *loader = wb_dataloader(wb_dataset_of(x, y), 16, true);
    wb_opt_state *state = wb_setup(wb_Adam(0.02), model);
    if (wb_item(wb_lerp(1, 3, wb_scalar(0.25))) != 1.5) return 1;
    if (wb_item(wb_max(wb_abs(wb_sub(wb_lerp(x, 1, 0), x)))) != 0) return 1;
    double losses[2] = {-1, -1};
    wb_train_options history;
    history.losses = losses;
    wb_logger *log = wb_logger_open("consumer-log");
    history.logger = wb_keep(log);
    if (wb_train(loss, model, loader, state, 2, history) || !(losses[0] > 0 && losses[1] > 0))
        return 1;
    if (wb_log_scalar(log, "loss", losses[1], 9) || wb_logger_flush(log) || wb_logger_close(log))
        return 1;
    wb_layer *cell = wb_WeightNorm(wb_LSTMCell(3, 2), "weight_hidden"), *over = wb_Recurrence(cell);
    wb_tensor *first_states[2];
    if (wb_initial_states(cell, 4, 2, first_states) || wb_dim(first_states[1], 1) != 2) return 1;
    if (wb_ndim(wb_call(over, wb_randn(4, 5, 3), first_states[0], first_states[1])) != 3) return 1;
    if (!wb_call(wb_remove_weight_norms(over), wb_randn(4, 5, 3))) return 1;
    wb_add_lora_options adapters;
    adapters.rank = 1;
    adapters.train = "layers.1";
    wb_layer *two = wb_Chain(wb_Dense(3, 64), wb_Dense(64, 2));
    wb_layer *small = wb_quantize(wb_add_lora(two, "layers.0", adapters));
    if (!small || !wb_call(small, wb_randn(4, 3)) || wb_parameter_count(two) != 130) return 1;
    char *shown = wb_object_format(wb_LoRA(wb_Dense(8, 8)));
    if (!shown || std::strstr(shown, "alpha")) return 1;    // it is the rank
    wb_free_text(shown);
    wb_LoRA_options low;
    low.rank = 2;
    if (!wb_merge_lora(wb_LoRA(wb_Dense(4, 4), low)) || wb_load_lora("no-file", two)) return 1;
    wb_clear_error();
    wb_Dense_options doubled;
    doubled.init = twice_orthogonal;
    if (!wb_Dense(3, 3, nullptr, doubled)) return 1;
    wb_tree *pair = wb_tuple(model, over), *mean = wb_average_of(pair);
    if (wb_average(mean, pair, 0.5)) return 1;
    if (wb_adjust_at(state, "*.bias", 0.03) || wb_average(wb_average_of(model), model, 0.5))
        return 1;

    double first = -1, last = -1;
    for (int epoch = 0; epoch < 30; epoch++)
        for (wb_batch batch; wb_loader_next(loader, &batch);) {
            wb_tree *gradients;
            wb_tensor *l = wb_withgradient(loss, model, batch, &gradients);
            if (wb_update(state, model, gradients)) break;
            last = wb_item(l);
            if (first < 0) first = last;
        }
    wb_layer *copy = wb_save("consumer.safetensors", model) ? nullptr
                                                            : wb_load("consumer.safetensors");
    double difference = wb_item(wb_sum(wb_abs(wb_sub(wb_call(model, x), wb_call(copy, x)))));
    std::remove("consumer.safetensors");
    wb_save_options example;
    example.inputs = {x};
    example.input_names = {"x"};
    wb_layer *read = wb_save("consumer.onnx", model, example) ? nullptr : wb_load("consumer.onnx");
    double apart = wb_item(wb_max(wb_abs(wb_sub(wb_call(model, x), wb_call(read, x)))));
    std::remove("consumer.onnx");
    std::printf("%s: loss %.4f to %.4f, the copies differ by %g and %g: %s\n", wb_version(), first,
                last, difference, apart, wb_error());
    return !(last < first / 2 && difference == 0 && apart < 1e-5);
}
