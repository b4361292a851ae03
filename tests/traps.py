"""What must not compile, beside its like that must: traps.py INCLUDE COMPILER...

Each trap is an argument that would go to the wrong option.  It is refused without any warning being asked for; its twin
compiles without a warning, with all of them asked for.  Compilers whose name has "++" are given the rows of C++."""
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
    ("wb_Dense(3, 4, wb_relu, true);", "wb_Dense(3, 4, wb_relu, .no_bias = true);"),
    ("wb_Embedding(3, 4, wb_init_ones);", "wb_Embedding(3, 4, .init = wb_init_ones);"),
    ("wb_MultiHeadAttention(8, 2, true);", "wb_MultiHeadAttention(8, 2, .causal = true);"),
    ("wb_GRU(3, 4, wb_tanh, true);", "wb_GRU(3, 4, .last = true);"),
    ("wb_Dropout(0.5, true);", "wb_Dropout(0.5); wb_Dropout(0.5, .axes = WB_AXES(1, 0)); wb_Dropout(0.5, .axes = {1});"),
    ("wb_conv(x, x, x, 2);", "wb_conv(x, x, x, .stride = {2}); wb_conv(x, x, x);"),
    ("wb_maxpool(x, 3, 2);", "wb_maxpool(x, .window = {3}, .stride = {2});"),
    ("wb_sum(x, .axis = 1);", "wb_sum(x, .axes = {1}); wb_sum(x, .axes = WB_AXES(0, -1), .keep = true); wb_sum(x);"),
    ("wb_dataloader(d, 32, true, 7);", "wb_dataloader(d, 32, true); wb_dataloader(d, .batchsize = 32, .seed = 7);"),
    ("wb_load_csv(p, true, -1);", "wb_load_csv(p, true); wb_load_csv(p, .label = -1, .has_label = true);"),
    ("wb_load_state(p, m, p);", "wb_load_state(p, m, .prefix = p); wb_load_state(p, m);"),
    ("wb_load(p, p);", "wb_load(p, .key = p); wb_load(p);"),
    ("wb_save(p, m, WB_NAMES_TORCH);", "wb_save(p, m, .names = WB_NAMES_TORCH);"),
    ("wb_train(f, m, l, s, 5, true);", "wb_train(f, m, l, s, 5); wb_train(f, m, l, s, .epochs = 5, .progress = true);"),
    ("wb_setup(r, m, WB_F16, true);", "wb_setup(r, m); wb_setup(r, m, .mixed = WB_F16);"),
    ("wb_Adam(0.1, 0.9, 0.99);", "wb_Adam(.eta = 0.0, .beta = {0.9, 0.0}); wb_Adam(); wb_Momentum(0.1, 0.9);"),
    ("wb_adjust(s, 0.1, 0.9, 0.99);", "wb_adjust(s, .eta = 0.0); wb_adjust(s, 0.1);"),
    ("wb_to(x, wb_cpu_device(), WB_F16, 1);", "wb_to(x, wb_cpu_device(), .dtype = WB_F16); wb_gpu(x);"),
    ("wb_get_device(true, true);", "wb_get_device(); wb_get_device(.verbose = true);"),
]
CXX = [
    ("wb_MaxPool(3, 2);", "wb_MaxPool({3}); wb_MaxPool({3, 2});"),
    ("wb_Conv(1, 6, 5, wb_relu);", "wb_Conv(1, 6, {5, 5}, wb_relu); wb_Conv(1, 6, {5});"),
    ("wb_sum(x, 1);", "wb_reduce_options o = {}; o.axes = wb_axes_of(1); wb_sum(x, o);"),
    ("wb_load_csv(p, true);", "wb_csv_options o = {}; o.header = true; wb_load_csv(p, o);"),
    ("wb_Adam(0.1, 0.9);", "wb_rule_options o = {}; o.beta[0] = 0.0; wb_Adam(0.0, o); wb_dataloader(d, 32, true);"),
]
PROGRAM = """#include <weber.h>
void f_(wb_tensor *x, wb_dataset *d, wb_layer *m, wb_loader *l, wb_opt_state *s, wb_rule *r, wb_loss f, const char *p);
void f_(wb_tensor *x, wb_dataset *d, wb_layer *m, wb_loader *l, wb_opt_state *s, wb_rule *r, wb_loss f, const char *p)
{
    (void)x, (void)d, (void)m, (void)l, (void)s, (void)r, (void)f, (void)p;
    %s
}
"""


def compiles(compiler, include, body, *flags):
    cxx = "++" in compiler
    command = [compiler, "-x", "c++" if cxx else "c", "-std=c++17" if cxx else "-std=c11", "-I", include,
               "-fsyntax-only", *flags, "-"]
    done = subprocess.run(command, input=PROGRAM % body, capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main(include, *compilers):
    wrong = looked = 0
    for compiler in filter(shutil.which, compilers):
        for bad, good in CXX if "++" in compiler else C:
            looked += 1
            if compiles(compiler, include, bad)[0]:
                wrong += 1
                print(f"{compiler}: compiles: {bad}")
            ok, said = compiles(compiler, include, good, "-Wall", "-Wextra", "-Wpedantic",
                                  "-Wno-missing-field-initializers", "-Werror")   # clang: .axes = {1}
            if not ok:
                wrong += 1
                print(f"{compiler}: does not compile: {good}\n{said}")
    print(f"{looked} pairs, {wrong} wrong")
    return 1 if wrong or not looked else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
