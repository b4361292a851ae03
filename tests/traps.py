"""Tests that calls with misplaced arguments do not compile.  traps.py INCLUDE COMPILER...

Each trap is a call whose argument would set the wrong option.  The compiler must refuse it without
options for warnings.  Beside it are similar calls that must compile with warnings as errors.  A
compiler whose name contains "++" gets the rows of CXX, the others those of C and NAMED.
"""
import re
import shutil
import subprocess
import sys

C = [  # must fail, must compile
    ("wb_MaxPool(3, 2);", "wb_MaxPool({3}, .stride = {2}); wb_MaxPool({3, 2});"),
    ("wb_MaxPool({3}, 2);", "wb_MaxPool({3, 3}, .pad = {1});"),
    ("wb_MeanPool(3, .stride = {2});", "wb_MeanPool({3}, .stride = {2});"),
    ("wb_Conv(1, 6, 5, wb_relu);", "wb_Conv(1, 6, {5, 5}, wb_relu); wb_Conv(1, 6, {5}, .pad = {2});"),
    ("wb_Conv(1, 6, 5, 2);", "wb_Conv(1, 6, {5}, wb_relu, .stride = {2});"),
    ("wb_Conv(1, 6, {5}, wb_relu, 2);", "wb_CrossCor(1, 6, {5, 3}, NULL, .groups = 1, .same = true);"),
    ("wb_LayerNorm(3, wb_relu);", "wb_LayerNorm({3}); wb_LayerNorm({3, 4}, wb_relu, .eps = 0.0);"),
    ("wb_BatchNorm(3, wb_relu, 0.1);", "wb_BatchNorm(3, wb_relu, .momentum = 0.0);"),
    ("wb_BatchNorm(3, 0.1);", "wb_BatchNorm(3);"),
    ("wb_Dense(3, 4, wb_relu, true);", "wb_Dense(3, 4, wb_relu, .bias = false);"),
    ("wb_Embedding(3, 4, wb_init_ones);", "wb_Embedding(3, 4, .init = wb_init_ones);"),
    ("wb_MultiHeadAttention(8, 2, true);", "wb_MultiHeadAttention(8, 2, .causal = true);"),
    ("wb_GRU(3, 4, wb_tanh, true);", "wb_GRU(3, 4, .last = true);"),
    ("wb_Recurrence(wb_GRUCell(3, 4), true);", "wb_Recurrence(wb_GRUCell(3, 4), .last = true);"),
    ('wb_WeightNorm(wb_GRUCell(3, 4), "bias", 1);', 'wb_WeightNorm(wb_GRUCell(3, 4), "bias", .dim = 0);'),
    ("wb_LoRA(wb_Dense(8, 8), 4);", "wb_LoRA(wb_Dense(8, 8), .rank = 4); wb_LoRA(wb_Dense(8, 8));"),
    ('wb_add_lora(m, "*", 4);', 'wb_add_lora(m, "*", .rank = 4); wb_add_lora(m);'),
    ("wb_quantize(m, 8);", "wb_quantize(m, .bits = 8); wb_quantize(m);"),
    ("wb_Dropout(0.5, true);", "wb_Dropout(0.5); wb_Dropout(0.5, .axes = WB_INTS(1, 0)); wb_Dropout(0.5, .axes = {1});"),
    ("wb_conv(x, x, x, 2);", "wb_conv(x, x, x, .stride = {2}); wb_conv(x, x, x);"),
    ("wb_maxpool(x, 3, 2);", "wb_maxpool(x, .window = {3}, .stride = {2});"),
    ("wb_sum(x, .axis = 1);", "wb_sum(x, .axes = {1}); wb_sum(x, .axes = WB_INTS(0, -1), .keep = true); wb_sum(x);"),
    ("wb_dataloader(d, 32, true, 7);", "wb_dataloader(d, 32, true); wb_dataloader(d, .batchsize = 32, .seed = 7);"),
    ("wb_load_csv(p, true, -1);", "wb_load_csv(p, true); wb_load_csv(p, .label = -1);"),
    ("wb_load_state(p, m, p);", "wb_load_state(p, m, .prefix = p); wb_load_state(p, m);"),
    ("wb_load(p, p);", "wb_load(p, .key = p); wb_load(p);"),
    ("wb_save(p, m, WB_NAMES_TORCH);", "wb_save(p, m, .names = WB_NAMES_TORCH);"),
    ("wb_train(f, m, l, s, 5, true);", "wb_train(f, m, l, s, 5); wb_train(f, m, l, s, .epochs = 5, .progress = true);"),
    ("wb_setup(r, m, WB_F16, true);", "wb_setup(r, m); wb_setup(r, m, .mixed = WB_F16);"),
    ("wb_AdamW(.eps = 1e-7, 0.1);", "wb_AdamW(0.1, .eps = 1e-7); wb_Adam(.eta = 0.1, .rho = WB_DEFAULT);"),
    ("wb_Adam(0.1, 0.9, 0.99);", "wb_Adam(.eta = 0.0, .beta = {0.9, 0.0}); wb_Adam(); wb_Momentum(0.1, 0.9);"),
    ("wb_adjust(s, 0.1, 0.9, 0.99);", "wb_adjust(s, .eta = 0.0); wb_adjust(s, 0.1);"),
    ("wb_to(x, wb_cpu_device(), WB_F16, 1);", "wb_to(x, wb_cpu_device(), .dtype = WB_F16); wb_gpu(x);"),
    ("wb_get_device(true, true);", "wb_get_device(); wb_get_device(.verbose = true);"),
    ("wb_keep_checkpoint(p, NULL, 3, true);", "wb_keep_checkpoint(p, NULL, 3); wb_keep_checkpoint(p, NULL, .best = true);"),
    ("wb_from((float[]){1, 2}, WB_F64, 1, dims);", "wb_from(fl, WB_F32, 1, dims); wb_from(fl + 1, WB_F32, 1, dims); wb_from(&fl[1], WB_F32, 1, dims); wb_from((const void *)fl, WB_I32, 1, dims);"),
    ("wb_from((int[]){1, 2}, WB_I64, 1, dims);", "wb_from(dims, WB_I64, 1, dims); wb_from((int64_t[]){1, 2}, WB_I64, 1, (int64_t[]){2}); wb_from((const int[]){1, 2}, WB_I32, 1, dims);"),
    ("wb_from(fl, WB_I32, 1, dims);", "wb_from(p, WB_I32, 1, dims); wb_from(p, WB_U8, 1, dims); wb_from((uint8_t[]){1}, WB_BOOL, 1, dims); wb_from((bool[]){1}, WB_U8, 1, dims);"),
    ("float mm[2][2] = {{1, 2}, {3, 4}}; wb_from(mm, WB_F64, 2, dims);", "float mm[2][2] = {{1, 2}, {3, 4}}; wb_from(mm, WB_F32, 2, dims); wb_from(&mm[1][0], WB_F32, 1, dims); wb_from(*mm, WB_F32, 1, dims);"),
    ("uint16_t h[2] = {0}; wb_from(h, WB_F32, 1, dims);", "uint16_t h[2] = {0}; wb_from(h, WB_F16, 1, dims); wb_from(h, WB_BF16, 1, dims);"),
    ("wb_from((short[]){1, 2}, WB_F16, 1, dims);", "wb_from((int8_t[]){1, 2}, WB_I8, 1, dims); wb_from(NULL, WB_F16, 1, dims);"),
    ("wb_from((unsigned[]){1, 2}, WB_I32, 1, dims);", "wb_dtype t = WB_F64; wb_from((float[]){1, 2}, t, 1, dims); wb_from(wb_data(x), WB_F64, 1, dims);"),
    ("wb_borrow((double[]){1, 2}, WB_F32, 1, dims, NULL, NULL);", "wb_borrow((double[]){1, 2}, WB_F64, 1, dims, NULL, NULL); wb_borrow((void *)dims, WB_F64, 1, dims, NULL, NULL);"),
    ("wb_from((double *)(void *)dims, WB_F32, 1, dims);", "wb_add(wb_from((double[]){1, 2}, WB_F64, 1, dims), wb_from(fl, WB_F32, 1, dims)); wb_from(wb_data(wb_from(fl, WB_F32, 1, dims)), WB_I32, 1, dims);"),
    ("wb_ClipNorm(1, 0.5, 2);", "wb_ClipNorm(1); wb_ClipGrad(0.5); wb_WeightDecay(1e-4); wb_AdaDelta(0.9, .eps = 1e-6);"),
    ("wb_ConvTranspose(1, 6, 5, wb_relu);", "wb_ConvTranspose(1, 6, {5}, wb_relu, .outpad = {1, 0});"),
    ("wb_mse(x, x, WB_AGG_SUM);", "wb_mse(x, x, .agg = WB_AGG_SUM); wb_tensor *(*g)(wb_tensor *, wb_tensor *) = wb_mse; (void)g;"),
    ("wb_huber(x, x, 0.5, WB_AGG_SUM);", "wb_huber(x, x); wb_huber(x, x, 0.5); wb_huber(x, x, 0.5, .agg = WB_AGG_SUM);"),
    ("wb_label_smoothing(x, 0.1, 0);", "wb_label_smoothing(x, 0.1); wb_label_smoothing(x, 0.1, .dims = 0);"),
]
# An argument by place behind one by name: clang must refuse it, gcc 12 with warnings as errors.
BEHIND = [
    ("wb_dataloader(d, .drop_last = true, 4);", "wb_dataloader(d, 4, .drop_last = true);"),
    ("wb_sum(x, .axes = {1}, true);", "wb_sum(x, .axes = {1}, .keep = true);"),
    ("wb_Dense(3, 4, .init = wb_init_ones, wb_relu);", "wb_Dense(3, 4, wb_relu, .init = wb_init_ones);"),
]
# The same with 0 and NULL, which gcc lets pass: then the call fails (api_forms).  clang only.
CLANG_C = [
    ("wb_dataloader(d, .drop_last = true, 0);", "wb_dataloader(d, .drop_last = true, .batchsize = 1);"),
    ("wb_train(f, m, l, s, .each = NULL, NULL);", "wb_train(f, m, l, s, .each = NULL, .checkpoint = NULL);"),
]
# A wrong call, a pattern that the first error of the compiler must match, and calls that compile.
NAMED = [
    ("wb_gradient(x, 3);", "gradient_takes_a_tensor_layer_or_tree|tensor_layer_or_tree_expected", "wb_gradient(x, wb_gradient(x, m));"),
    ("wb_keep(3);", "takes_an_object_of_the_library|wb_object_expected", "wb_keep(wb_keep(x)); wb_keep(m); wb_keep(s);"),
    ("wb_free(&x);", "takes_an_object_of_the_library|wb_object_expected", "wb_free(x); wb_free(d);"),
    ("wb_show(p);", "takes_an_object_of_the_library|wb_object_expected", "wb_show(r); wb_show(l);"),
    ("wb_fmap(NULL, x, NULL);", "fmap_takes_a_layer_or_tree|layer_or_tree_expected", "wb_fmap(NULL, m, NULL);"),
    ("wb_to(r, wb_cpu_device());", "moves_an_object_or_a_batch|object_or_batch_expected", "wb_to(wb_gpu(wb_cpu(x)), wb_cpu_device(), WB_DTYPE_KEEP);"),
    ("wb_gpu(3);", "moves_an_object_or_a_batch|object_or_batch_expected", "wb_gpu(s); wb_gpu(l, .dtype = WB_F16);"),
    ("wb_cpu(p);", "moves_an_object_or_a_batch|object_or_batch_expected", "wb_batch b = {.x = x, .y = x}; b = wb_cpu(b); (void)b;"),
    ("wb_device_of(3);", "takes_an_object_of_the_library|wb_object_expected", "wb_device_of(x);"),
    ("wb_mul(x, m);", "takes_a_tensor_or_a_number|double", "wb_mul(wb_add(1, wb_mul(x, 0.5)), 2.0f);"),
    ("wb_where(x, x, p);", "takes_a_tensor_or_a_number|double", "wb_where(x, 0, wb_gt(x, 1));"),
    ("wb_Chain(m, x);", "this takes layers and functions of one tensor", "wb_Chain(m, wb_relu, wb_Chain(wb_Dense(2, 3), wb_softmax));"),
    ("wb_Parallel(wb_add, wb_add);", "this takes layers and functions of one tensor", "wb_Parallel(wb_add, m, wb_relu);"),
    ("wb_Chain(m, wb_Chain(m, wb_Chain(wb_add, wb_relu)), m);", "this takes layers and functions of one tensor", "wb_Chain(m, wb_Chain(m, wb_Chain(wb_tanh, wb_relu)), m);"),
    ("wb_Maxout(m, x);", "this takes layers and functions of one tensor", "wb_Maxout(m, wb_relu);"),
    ('wb_named("a", x);', "this takes layers and functions of one tensor", 'wb_named("a", m); wb_named(p, wb_relu); wb_layer *(*g)(const char *, wb_layer *) = wb_named; (void)g;'),
    ("wb_named(x, m);", "wb_named takes a name and a layer", 'wb_Chain(wb_named("a", wb_Dense(2, 3)), wb_named("b", wb_tanh));'),
    ("wb_named(x);", "wb_named takes a name and a layer", 'char name[] = "a"; wb_named(name, m);'),
    ("wb_Adam(.lr = 0.1);", "learning_rate_is_eta", "wb_Adam(.eta = 0.1, .beta = {0.9, 0.99}); wb_Adam(0.1, .beta = {0.9});"),
    ("wb_Momentum(0.1, .momentum = 0.9);", "momentum_is_rho", "wb_Momentum(0.1, .rho = 0.9);"),
    ("wb_AdamW(.weight_decay = 0.1);", "weight_decay_is_lambda", "wb_AdamW(.lambda = 0.1);"),
    ("wb_SkipConnection(x, wb_add);", "this takes layers and functions of one tensor", "wb_SkipConnection(wb_relu, wb_add);"),
    ("wb_Dense(3, 4, .activaton = wb_relu);", "activaton", "wb_Dense(3, 4, .activation = wb_relu);"),
    ("wb_sum(x, .axis = 1);", "axis", "wb_sum(x, .axes = {1});"),
    ("wb_train(f, m, l, s, .epoch = 5);", "epoch", "wb_train(f, m, l, s, .epochs = 5, .keep_last = 2, .folder = p);"),
    ("wb_Dense(3, 4, wb_relu, true);", "too_many_arguments|flexible array member", "wb_Dense(3, 4, wb_relu);"),
    ("wb_tuple(x, p);", "takes_tensors_layers_and_trees|tensor_layer_or_tree_expected", "wb_tuple(x, m, wb_tuple(x));"),
    ("wb_tuple(l);", "takes_tensors_layers_and_trees|tensor_layer_or_tree_expected", "wb_tuple(m, m);"),
    ("wb_batch b = {.x = x, .y = x}; wb_withgradient(f, m, b, NULL, NULL, 1);", "too many arguments.*wb_withgradient|too many arguments to function",
     "wb_batch b = {.x = x, .y = x}; wb_tree *g; wb_withgradient(f, m, b, &g); wb_withgradient(f, m, b, &g, NULL);"),
    ('wb_functional("AMDGPU", "MIOpen", 3);', "too many arguments.*wb_functional|too many arguments to function",
     'wb_functional("CUDA"); wb_functional("AMDGPU", "MIOpen");'),
    ("wb_Chain(" + ", ".join(["m"] * 33) + ");", "at_most_32_arguments", "wb_Chain(" + ", ".join(["m"] * 32) + ");"),
    ("wb_tuple(" + ", ".join(["m"] * 40) + ");", "at_most_32_arguments", "wb_tuple(" + ", ".join(["m"] * 32) + ");"),
    ("typedef struct { wb_layer *m; char *g; } A; WB_FUNCTOR(A, m, g)", "fields_are_tensors_layers_trees_numbers_and_functions",
     "typedef struct { wb_layer *m; wb_tensor *const x; double g; } A; WB_FUNCTOR(A, m, x, g) A a = {m, x, 1}; wb_struct(A, &a);"),
    ("} typedef struct { int n; } A; static wb_tensor *f(const A *a, int n) { return a ? NULL : wb_zeros(n); } WB_LAYER(A, f, n) void g_(void); void g_(void) {", "form_of_WB_LAYER",
     "} typedef struct { int n; } A; static wb_tensor *f(const A *a, wb_tensor *y) { return a ? y : NULL; } WB_LAYER(A, f, n) void g_(void); void g_(void) { wb_layer_of(A, .n = 3); wb_name_struct(A);"),
    ("typedef struct { wb_layer *m; } A; WB_FUNCTOR(A, m) double b; wb_struct(A, &b);", "A|double",
     "typedef struct { wb_layer *m; } A; WB_FUNCTOR(A, m) A a = {m}; const A b = a; wb_tree *t = wb_struct(A, &b); wb_struct_get(A, t, &a);"),
    ("typedef struct { wb_layer *m[3]; } A; WB_FUNCTOR(A, m)", "fields_are_tensors_layers_trees_numbers_and_functions",
     "typedef struct { wb_tree *m; } A; WB_FUNCTOR(A, m) A a = {wb_tuple(x)}; wb_struct(A, &a);"),
]
# What a compiler prints has the pattern, though its first line has not: must fail, pattern.
SHOWN = [
    ("wb_Conv(1, 6, 5, wb_relu);", r"sizes are in braces: \{3, 3\}"),
    ("wb_MaxPool(3, .stride = {2});", r"sizes are in braces: \{3, 3\}"),
]
# What a compiler prints has at most so many lines, with the headers by -I and by -isystem.
SHORT = [("wb_Chain(m, wb_Chain(m, wb_Chain(m, wb_add), wb_tanh), m);", 30)]
# A call that no compiler may accept, or, where it is not known, an error at run time.  clang only.
CLANG_CXX = [
    ("double dd[2] = {1, 2}; wb_from(dd, WB_F32, 1, dims);", "double dd[2][1] = {{1}, {2}}; wb_from(dd, WB_F64, 1, dims); wb_from(&dd[0][0], WB_F64, 1, dims);"),
    ("wb_borrow(fl, WB_I32, 1, dims, nullptr, nullptr);", "wb_borrow(fl, WB_F32, 1, dims, nullptr, nullptr); wb_from(p, WB_F32, 1, dims); wb_from((const void *)fl, WB_I32, 1, dims);"),
    ("wb_from(dims, WB_I32, 1, dims);", "wb_from(dims, WB_I64, 1, dims); wb_dtype t = WB_F64; wb_from(fl, t, 1, dims); wb_from(nullptr, WB_F32, 1, dims);"),
]
CXX = [
    ("wb_MaxPool(3, 2);", "wb_MaxPool({3}); wb_MaxPool({3, 2});"),
    ("wb_Conv(1, 6, 5, wb_relu);", "wb_Conv(1, 6, {5, 5}, wb_relu); wb_Conv(1, 6, {5});"),
    ("wb_sum(x, 1.5);", "wb_sum(x, 1); wb_sum(x, {0, -1}); wb_reduce_options o = {}; o.axes = {1}; wb_sum(x, o);"),
    ("wb_load_csv(p, true);", "wb_load_csv_options o = {}; o.header = true; wb_load_csv(p, o);"),
    ("wb_tuple(l);", "wb_tuple(x, m, wb_tuple(x));"),
    ("wb_zeros(2, WB_F64);", "wb_zeros(2, 3); wb_reshape(x, 6L, -1);"),
    ("wb_ones(2.5);", "wb_at(x, 1, 2);"),
    ("struct A { wb_layer *m; char *g; }; WB_FUNCTOR(A, m, g)", "struct A { wb_layer *m; double g; }; WB_FUNCTOR(A, m, g) A a = {m, 1}; wb_struct(A, &a);"),
    ("} struct A { int n; static int f(const A *, wb_tensor *) { return 0; } }; WB_LAYER(A, A::f, n) void g_(); void g_() {",
     "} struct A { int n; wb_layer *m; static wb_tensor *f(const A *, wb_tensor *x) { return x; } }; WB_LAYER(A, A::f, n, m) void g_(); void g_() { wb_layer_of(A, 3, nullptr);"),
    ("wb_train(f, m, l, s, 2.5);", "wb_train(f, m, l, s, {}); wb_Adam({}); wb_dataloader(d, {});"),
    ("struct A { wb_layer *m; }; WB_FUNCTOR(A, m) double b; wb_struct(A, &b);", "struct A { wb_layer *m; }; WB_FUNCTOR(A, m) A a = {m}; wb_struct(A, &a);"),
    ("wb_train(f, m, l, s, 5, true);", "wb_train_options o; o.epochs = 5; wb_train(f, m, l, s, o); wb_train(f, m, l, s, 5, o);"),
    ("wb_mse(x, x, 2.0);", "wb_loss_options o; o.agg = WB_AGG_SUM; wb_mse(x, x, o); wb_mse(x, x); wb_huber(x, x); wb_huber(x, x, 0.5); wb_label_smoothing(x, 0.1);"),
    ("wb_mse(x, x, 2.0);", "wb_tensor *(*g)(wb_tensor *, wb_tensor *) = wb_mse; (void)g; wb_huber_options h; h.delta = 2; wb_huber(x, x, h);"),
    ("wb_ClipNorm(1, 0.5);", "wb_ClipNorm(1); wb_WeightDecay(1e-4); wb_AdaDelta(0.9f); wb_Muon(0.1, 0.9); wb_Momentum(1, 0.5);"),
    ("wb_Adam(0.1, 0.9);", "wb_Rule_options o; o.beta = {0.0, 0.5}; wb_Adam(0.0, o); wb_dataloader(d, 32, true);"),
]
PROGRAM = """#include <weber.h>
void f_(wb_tensor *x, wb_dataset *d, wb_layer *m, wb_loader *l, wb_opt_state *s, wb_rule *r, wb_loss f, const char *p, float *fl, int64_t *dims);
void f_(wb_tensor *x, wb_dataset *d, wb_layer *m, wb_loader *l, wb_opt_state *s, wb_rule *r, wb_loss f, const char *p, float *fl, int64_t *dims)
{
    (void)x, (void)d, (void)m, (void)l, (void)s, (void)r, (void)f, (void)p, (void)fl, (void)dims;
    %s
}
"""


def compiles(compiler, include, body, *flags, by="-I"):
    cxx = "++" in compiler
    command = [compiler, "-x", "c++" if cxx else "c", "-std=c++17" if cxx else "-std=c11", by, include,
               "-fsyntax-only", *flags, "-"]
    done = subprocess.run(command, input=PROGRAM % body, capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def misnamed(compiler, include, body, names):
    """None if the first error matches the pattern `names`; else that error."""
    ok, errors = compiles(compiler, include, body)
    first = next((line for line in errors.split("\n") if "error" in line), "")
    return None if not ok and re.search(names, first) else first or "no error"


def main(include, *compilers):
    wrong = looked = 0
    for compiler in filter(shutil.which, compilers):
        for body, most in () if "++" in compiler else SHORT:
            for by in ("-I", "-isystem"):
                looked += 1
                lines = compiles(compiler, include, body, by=by)[1].count("\n")
                if not 0 < lines <= most:
                    wrong += 1
                    print(f"{compiler} {by}: {lines} lines: {body}")
        for bad, good in (CXX + (CLANG_CXX if "clang" in compiler else [])
                          if "++" in compiler else C + BEHIND + CLANG_C * ("clang" in compiler)):
            looked += 1
            if compiles(compiler, include, bad, *["-Werror"] * ((bad, good) in BEHIND))[0]:
                wrong += 1
                print(f"{compiler}: compiles: {bad}")
            ok, errors = compiles(compiler, include, good, "-Wall", "-Wextra", "-Wpedantic",
                                  # clang reports `.axes = {1}` otherwise
                                  "-Wno-missing-field-initializers", "-Werror")
            if not ok:
                wrong += 1
                print(f"{compiler}: does not compile: {good}\n{errors}")
        for bad, names, good in () if "++" in compiler else NAMED:
            looked += 1
            first = misnamed(compiler, include, bad, names)
            ok, errors = compiles(compiler, include, good, "-Wall", "-Wextra", "-Wpedantic",
                                  "-Wconversion", "-Wshadow", "-Wno-missing-field-initializers",
                                  "-Werror")
            wrong += first is not None or not ok
            if first is not None:
                print(f"{compiler}: {bad} {first}")
            if not ok:
                print(f"{compiler}: does not compile: {good}\n{errors}")
        for bad, pattern in () if "++" in compiler else SHOWN:
            looked += 1
            ok, errors = compiles(compiler, include, bad)
            if ok or not re.search(pattern, errors):
                wrong += 1
                print(f"{compiler}: {bad} {errors}")
    print(f"{looked} pairs, {wrong} failed")
    return 1 if wrong or not looked else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
