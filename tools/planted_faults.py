#!/usr/bin/env python3
"""Tests the tests: plants each fault of the table alone in a copy of the sources, and checks that
one of the tests named beside it fails.

    planted_faults.py [--only N,N...] [--list] [--build FOLDER]

A fault replaces a text that must occur exactly once: a row that no longer fits the sources is a
failure.  Prints a line for each fault.  The exit status is 1 if a fault survives, cannot be planted
or does not compile.  The copy is built without oneDNN, so that Weber's own kernels and thread pool
are tested.  It takes some minutes and is part of ./run test --all.
"""
import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GRAPH, ROWS, SHAPE, PRODUCT = "conformance_graph", "conformance", "conformance_shape", "conformance_product"
SEMANTICS, COMPILE, FAULTS = "engine_semantics", "engine_compile", "faults"
CALLS, CHANGES = "engine_compile_calls", "engine_compile_state"
SLICES = "engine_slices"
SUMS = "optim_accumulate"
FORMULAS = "optim_formulas"
LOOPS, SCOPES, CHECK = "engine_loops", "engine_scopes", "engine_check"
REGISTRY, PREFERENCES = "device_registry", "device_preferences"
MOVE, STATE, DATA, TRAINING = "device_move", "device_optim", "device_data", "device_training"
QUEUE, MEETING, RANKS = "collective_queue", "rendezvous", "ranks*3"
ENDS, LAUNCH, AWARE = "check_ends.py", "check_launch.py", "check_aware.py"
CHOICE = "check_nccl.py"          # with RCCL
CUDA_GRAPH, THREADS = "cuda_graph", "cuda_ranks"    # run on the double of CUDA
# These run on a driver in memory.
ORDER, RECORDED, MEMORY = "runtime_commands", "runtime_graph", "runtime_memory"
FUSED, WRITTEN = "gpu_fused", "gpu_library"         # these and TRAINING need an OpenCL driver

# The fault; the file; the text; its replacement; the tests of which at least one must fail.
# A test is "NAME[@DEVICE] [OPTION...]"; "NAME*N" is NAME_openmpi, run by N ranks of Open MPI;
# "NAME.py" is a script of tests/dist with the words that SCRIPTS has for it.
TABLE = [
    ("a layer of a struct has the tensors of its creation", "src/nn/own.c", "    for (int i = 0; i < own->n_objects; i++)\n        memcpy((char *)value",
     "    for (int i = 0; i < 0; i++)\n        memcpy((char *)value", ["own_layers"]),
    ("a failure of the program has no code of its own", "src/base/error.c", "c > WB_OK && c < WB_ERROR_COUNT ? (int)c", "c != WB_OK ? (int)c", ["own_layers"]),
    ("a gradient of the program's own reaches the operations of the value too", "src/engine/ops/custom.c", "    out[0] = WB_NONE;", "    out[0] = g;", ["engine_custom"]),
    ("a C function gets an operand that is not dense", "src/engine/ops/custom.c", "wb__add_dense(m, wb__operand_of(m, v, i), false);",
     "wb__add_any(m, wb__operand_of(m, v, i));", ["engine_custom"]),
    ("the second call of a checkpointed layer draws other random numbers", "src/nn/recompute.c", "wb__rng_exchange(a->before);", "wb__rng_get_state();", ["recompute"]),
    ("the second call of a checkpointed layer does not wait for the gradient", "src/nn/recompute.c", "g->size ? true_after(g) : NULL;", "NULL;", ["recompute"]),
    ("further tensors of a batch stay on their device", "src/data/prefetcher.c", "for (int k = wb__batch_fields(batch) - 1; !status", "for (int k = 1; !status", ["data_fields"]),
    ("a struct's numbers are not saved", "src/io/model/structure.c", "    if (own) put_options(w, own, t->copy);", "    if (own) {}", ["own_layers"]),
    ("a flat vector has its parts in another order", "src/nn/tools.c", "at[i + 1] = at[i] + p.x[i]->size;", "at[i + 1] = at[p.n - 1 - i] + p.x[i]->size;", ["model_tools"]),
    ("a reflected margin repeats the last element", "src/engine/ops/pad_modes.c", "skipped = o->mode == WB_PAD_REFLECT;",
     "skipped = o->mode != WB_PAD_REFLECT;", ["parts"]),
    ("a strided slice's gradient is beside its places", "src/engine/ops/shape.c", "2, 0, step - 1);", "2, step - 1, 0);", ["parts"]),
    ("the far end of lerp is rounded", "src/engine/ops/powers.c", "wb_lt(wb_abs(t), wb_scalar(0.5))", "wb_lt(wb_abs(t), wb_scalar(5))", ["composed"]),
    ("argmin of integers negates the least one", "src/engine/ops/reduce.c", "t == WB_U8 ? 255 : -1", "0", ["composed"]),
    ("masked keys of a query have equal weights", "src/nn/attention.c", "return wb_is_none(mask) ? weights :", "return !wb_is_none(mask) ? weights :", ["composed"]),
    ("NaN is put before all numbers", "src/engine/ops/sort.c", "equal ? nan : wb_and(nan, wb_eq(a, a))", "equal ? nan : wb_and(nan, wb_ne(a, a))", ["indexed"]),
    ("a derivative in a direction is that in the direction of ones", "src/engine/gradient/jacobian.c", "wb_sum(wb_mul(g, dx))", "wb_sum(g)", ["composed"]),
    ("einsum sums over a letter that a later operand has", "src/engine/ops/einsum.c", "(e->wanted[c] || e->uses[c] > 2) != kept", "e->wanted[c] != kept", ["composed"]),
    ("the gradient of a wide qr forgets the columns behind the square", "src/engine/ops/linalg.c", "dq = wb_add(dq, wb_matmul(w, turned(dv)));",
     "dq = wb_add(dq, wb_mul(wb_matmul(w, turned(dv)), wb_scalar(0)));", ["linalg"]),
    ("a solution is of the transposed matrix", "src/engine/ops/linalg.c", "getrs(\"T\"", "getrs(\"N\"", ["linalg"]),
    ("halves of positions are rounded up", "src/nn/sampling.c", "wb_eq(wb_sub(up, x), wb_scalar(0.5))", "wb_eq(wb_sub(up, x), wb_scalar(2))", ["signals"]),
    ("frequencies of the second half are not conjugated", "src/nn/signal.c", "wb_neg(wb_slice(turned, 0, 1, 2))", "wb_slice(turned, 0, 1, 2)", ["signals"]),
    ("frequencies of the second half are not conjugated on the way back", "src/nn/signal.c", "wb_where(direct, real, wb_neg(real))", "wb_where(direct, real, real)", ["signals"]),
    ("overlapping frames are not divided by their windows", "src/nn/signal.c", "wb_where(wb_gt(sum, wb_scalar(1e-11)), sum, wb_scalar(1))",
     "wb_where(wb_gt(sum, wb_scalar(1e11)), sum, wb_scalar(1))", ["signals"]),
    ("any function in a file of PyTorch is taken", "src/io/torch/pickle.c", "if (wb__pickle_is(v, rebuild) ||", "if (v->length || wb__pickle_is(v, rebuild) ||", ["io_pt"]),
    ("a view of a storage begins at its start", "src/io/torch/pt.c", "a->block + (size_t)v->number * size", "a->block + (size_t)v->number * 0", ["io_pt"]),
    ("blocks of an orthogonal matrix are not orthogonal", "src/nn/init.c", "rest = along ? wb_sub(b, wb_matmul(along, q)) : NULL", "rest = along ? wb_add(b, wb_mul(wb_matmul(along, q), 0)) : NULL", ["nn_more_layers"]),
    ("a mask makes more scores", "src/nn/attention.c", "    if (scores && !all)\n", "    if (scores && !all && !scores)\n", ["composed"]),
    ("a checkpointed layer loses a gradient", "src/nn/recompute.c", "differentiable(o.node[at])) lost = o.node[at];", "at < 0) lost = o.node[at];", ["recompute"]),
    ("rows of an orthogonal matrix are not orthogonal", "src/nn/init.c", "x[k] -= along * y[k];", "x[k] -= along * y[k] / 2;", ["nn_more_layers"]),
    ("a product's gradient counts the row's own zero", "src/engine/ops/indexed.c", "wb_sub(wb_take(zeros, index), wb_astype(none, WB_I32))",
     "wb_take(zeros, index)", ["indexed"]),
    ("a descending order is ascending", "src/backend/cpu/cpu_sort.c", "k->x.strides[0]) ^ flip, i}", "k->x.strides[0]), i}", ["indexed"]),
    ("merged runs exchange equal elements", "src/backend/gpu/kernels/sort.k", "second ? !PRECEDES(own, other) : PRECEDES(other, own)", "PRECEDES(other, own)",
     ["indexed@OpenCL"]),
    ("the first row with an index is set", "src/backend/gpu/kernels/rows.k", "#define TAKE_LAST(s, v) { s = (v); }", "#define TAKE_LAST(s, v) { }",
     ["indexed@OpenCL"]),
    ("cumsum's gradient runs in the same direction", "src/engine/ops/cumsum.c", ".reverse = attr[REVERSE] == 0", ".reverse = attr[REVERSE] != 0",
     [ROWS]),
    ("cumsum drops its rounding errors", "src/backend/cpu/cpu_cumsum.c", "*c = lost - (total - sum);", "*c = lost - lost;", [ROWS]),
    ("neg's gradient has the wrong sign", "src/ops/ops.def", "-x,                                      NEG(g))",
     "-x,                                      g)", [ROWS]),
    ("tanh's gradient without the square", "src/ops/ops.def", "MUL(g, SUB(NUM(1), SQUARE(y))))", "MUL(g, SUB(NUM(1), y)))", [ROWS]),
    ("div's gradient to its second operand without the square", "src/ops/ops.def", "NEG(DIV(MUL(g, x), SQUARE(y))))", "NEG(DIV(MUL(g, x), y)))", [ROWS]),
    ("lt is true for equal operands", "src/ops/ops.def", "WB_COMPARE(lt,  NUMBERS, x < y)", "WB_COMPARE(lt,  NUMBERS, x <= y)", [ROWS]),
    ("maximum drops NaN", "src/ops/ops.def", "(x >= y || x != x ? x : y),", "(x >= y ? x : y),", [ROWS]),
    ("permute's gradient permutes in the same direction", "src/engine/ops/shape.c", "back[node->attr[i]] = i;", "back[i] = node->attr[i];", [GRAPH]),
    ("a slice's gradient is one element off", "src/engine/ops/shape.c", "node->attr[i] + n * step[i]", "node->attr[i] + (n + 1) * step[i]", [GRAPH]),
    ("softmax's gradient has a maximum in place of the sum", "src/engine/ops/softmax.c", "wb__reduce(WB__OP_sum, wb_mul(g, node), last, true)",
     "wb__reduce(WB__OP_max, wb_mul(g, node), last, true)", [PRODUCT, GRAPH]),
    ("normalise's gradient without the mean of g", "src/engine/ops/normalise.c", "wb_sub(wb_sub(g, wb__mean(g, mask, true)), along)",
     "wb_sub(g, along)", [PRODUCT]),
    ("a broadcast axis of size 1 is not summed", "src/engine/ops/reduce.c", "if (i < lead || (dims[i - lead] == 1 && g->dims[i] != 1)) mask",
     "if (i < lead) mask", [ROWS, GRAPH]),
    ("a slice starts one element late", "src/engine/ops/shape.c", "starts[a] = from;", "starts[a] = from + (from > 0 && to < n);", [SHAPE, GRAPH]),
    ("a flip starts in the middle", "src/engine/ops/shape.c", "starts[a] = WB__MAX(x->dims[a] - 1, 0);", "starts[a] = WB__MAX(x->dims[a] - 1, 0) / 2;", [SHAPE]),
    ("padding on the other side", "src/engine/ops/concat.c", "starts[a] = before;", "starts[a] = after;", [SHAPE, GRAPH]),
    ("two merged reductions reduce only the axes of the first", "src/engine/plan/ir.c",
     "mask | (unsigned)ir->attrs[p.attr])", "(unsigned)ir->attrs[p.attr])", [GRAPH, SHAPE]),
    ("a slice of a slice ignores the step", "src/engine/plan/ir.c", "ir->attrs[p.attr + i] + step * attr[i];", "ir->attrs[p.attr + i] + attr[i];", [GRAPH, SHAPE]),
    ("a sum over the whole space reads a per-row value once per row", "src/engine/plan/spaces.c", "(v->op == WB__OP_max || v->op == WB__OP_min) && is_per_row(g, x)", "is_per_row(g, x)", [GRAPH]),
    ("a value computed in place in another variable is copied too early", "src/engine/plan/programs.c", "\n           m->placement->role[m->values->base[x]].write < 0;", "\n           true;", [SEMANTICS]),
    ("a bias of the wrong column", "src/backend/cpu/product/gemm.c", "g.bias = shift(g.bias, j0, size);", "g.bias = shift(g.bias, 0, size);", ["cpu_lib"]),
    ("a pool without elements is not dense", "src/backend/cpu/cpu_library.c", "size *= WB__MAX(v->dims[axis], 1);", "size *= v->dims[axis];",
     [PRODUCT, "graph_fuzz --seeds 6000"]),
    ("a slice is taken of a broadcast axis", "src/engine/plan/values.c", "bool whole = p->dims[i] == 1;",
     "bool whole = p->dims[i] == 1 && s->dims[lead + i] == 1;", ["graph_fuzz --seeds 6000"]),
    ("a bias is read as if it were contiguous", "src/engine/plan/library.c", ".strides = {v->strides[v->ndim - from_end]}",
     ".strides = {from_end > 0}", ["engine_placement"]),
    ("a maximum over a space without elements reads a per-row value", "src/engine/plan/spaces.c", " && has_points(g) &&", " && (has_points(g) || true) &&", ["engine_values"]),
    ("a sum of bytes does not wrap in its kernel", "src/backend/cpu/tile/plan.c", "in->op == WB__OP_sum && wb__is_narrow(in)",
     "in->op == WB__OP_max && wb__is_narrow(in)", ["engine_values", "cpu_tile"]),
    ("an iota does not wrap in its kernel", "src/backend/cpu/tile/plan.c", "in->kind == WB__IOTA && wb__is_narrow(in)",
     "in->kind == WB__LOAD && wb__is_narrow(in)", ["engine_values", "cpu_tile"]),
    ("a tiny negative double is NaN in 16 bits", "src/base/numbers/formulas.h", "past = d < 0 ?", "past = f < 0 ?", ["cpu_tile_rows", ROWS]),
    ("argmax accepts an axis whose indices do not fit into i32", "src/engine/ops/reduce.c", "x->dims[a] - 1 <= INT32_MAX", "x->dims[a] - 1 <= INT64_MAX - 1", [SHAPE]),
    ("a number that an integer dtype cannot represent is accepted", "src/engine/ops/elementwise.c", "return back == v && ", "return true || ",
     ["engine_values"]),
    ("the arena frees memory one step early", "src/engine/plan/arena.c", "if (allocation >= 0) a->lifetimes[allocation].last_use = step;", "if (allocation >= 0) a->lifetimes[allocation].last_use = a->lifetimes[allocation].last_use < 0 ? step : step - 1;", [GRAPH]),
    ("a deferred bias is not computed before its product", "src/engine/plan/groups.c",
     "if (p->bias >= 0) end_deferral(f, f->values->base[p->bias]);", "(void)end_deferral;", ["engine_placement"]),
    ("further results of a product have no memory of their own", "src/engine/plan/arena.c", "        use(a, d->aux.allocation, i);\n        use(a, d->sums.allocation, i);\n", "", ["engine_epilogues"]),
    ("deferred values are not counted if a device limits the size of kernels", "src/engine/plan/groups.c",
     "    if (count_below(f, v) > f->attempt->most_values ||\n        !deferred_fit(", "    if (!deferred_fit(",
     ["device_out_of_memory"]),
    ("an inline table is replaced by a string", "src/base/toml.c", "    if (n->kind >= WB__AT_INLINE)\n        return wb__toml_fail(t, n->key_at, \"%s.%s is",
     "    if (n->kind >= WB__AT_IMPLICIT)\n        return wb__toml_fail(t, n->key_at, \"%s.%s is", ["toml"]),
    ("a second gradient of attention without the sums of rows", "src/engine/ops/attention.c",
     "return wb_mul(p, wb_sub(x, row_sum(wb_mul(p, x))));", "return wb_mul(p, x);", [PRODUCT]),
    ("attention's gradient of the keys is that of the values", "src/engine/ops/attention.c",
     "add_result(m, g, WB__OP_attention_dk, wb__ir_in(&m->values->ir, v, 1));", "add_result(m, g, WB__OP_attention_dv, wb__ir_in(&m->values->ir, v, 1));",
     ["engine_epilogues"]),
    ("a query sees the key after it", "src/backend/gpu/kernels/attention.k", "(key) <= (query) + shift))", "(key) <= (query) + shift + 1))",
     ["gpu_attention"]),
    ("fragments: a query sees the key after it", "src/backend/gpu/kernels/attention_fragments.k", "least(keys, (i) + shift + 1) : keys)", "least(keys, (i) + shift + 2) : keys)",
     ["gpu_attention"]),
    ("fragments: a new largest score leaves the old sum", "src/backend/gpu/kernels/attention_fragments.k", "total[u].x[r] *= top[u].x[r];", "total[u].x[r] *= 1.0f;", ["gpu_attention"]),
    ("fragments: a stage of keys is read while it is loaded", "src/backend/gpu/kernels/attention_fragments.k", "#define KEPT BARRIER\n", "#define KEPT (void)0\n", ["gpu_attention"]),
    ("weights in the order of inner indices are those of the next tap", "src/backend/gpu/kernels/product.k", "PLACE(STORED, B, a.b_at) + z * (n * k) + t;",
     "PLACE(STORED, B, a.b_at) + z * (n * k) + (t + 1) % (k / inner);", [WRITTEN]),
    ("every slice begins at the start of its tensor", "src/engine/request.c", ".at = slice.at,", ".at = 0,", [SLICES]),
    ("the start of a slice is part of its plan", "src/engine/request.c", "for (int i = in_place ? x->ndim : 0; i", "for (int i = 0; i", [SLICES]),
    ("a slice is read in place though its plan writes the tensor", "src/engine/leaf_slice.c", "    if (wb__overwritten(w->base)) return false;\n", "", [SLICES]),
    ("a flipped slice begins at its last element", "src/engine/leaf_slice.c",
     "return step > 0 ? n - 1 - span : n - 1;", "return step > 0 ? 0 : n - 1;", [SLICES]),
    ("a recording forgets the offsets of its slices", "src/engine/compiled/compile.c", ".at = q->leaves[i].at};", ".at = 0};", [SLICES]),
    ("a slice's offset is in bytes, not in elements", "src/backend/gpu/gpu.c", "offsets[l->origins[i].buffer] / l->origins[i].size",
     "offsets[l->origins[i].buffer]", [WRITTEN, SLICES + "@OpenCL"]),
    ("a graph of CUDA ignores the offsets of slices", "src/backend/gpu/runtime/graph.c", "m->at + (at->offsets ? at->offsets[i] : 0)", "m->at",
     [SLICES + "@CUDA"]),
    ("an update is lost", "src/engine/evaluate.c", "    t->pending[t->n_pending++] = wb__ref(a);", "    if (t->n_pending < 3) t->pending[t->n_pending++] = wb__ref(a);", [SEMANTICS]),
    ("a stale version is bound", "src/engine/tensor.h", "return x->op == WB__OP_variable ? x->current : x;", "return x->op == WB__OP_variable ? x->live : x;", [SEMANTICS, GRAPH]),
    ("an unconsumed result that reads an overwritten version is not computed", "src/engine/evaluate.c", "if (!status && reads == (READS | VERSIONS)) status",
     "if (!status && reads > (READS | LOST | VERSIONS)) status", [SEMANTICS]),
    ("functions of the library leave their intermediate results in the scope", "src/engine/scope.c", "if (!s || !still_inside(t, &f)) return;", "if (!s || !still_inside(t, &f) || s->n) return;", [LOOPS, SCOPES]),
    ("InstanceNorm's running variance is the biased one", "src/nn/norm.c", "!move(wb__layer_child(l, VAR), var, momentum, (double)each / (double)(each - 1));", "!move(wb__layer_child(l, VAR), var, momentum, 1);", ["nn_more_layers"]),
    ("a row of padding has a gradient", "src/nn/embedding.c", "return wb_where(padding, wb_stop_gradient(y), y);", "return padding ? y : NULL;", ["nn_more_layers"]),
    ("a bag begins behind its offset", "src/nn/embedding.c", "wb_sub(wb_cumsum(wb_astype(begun, WB_I32), 0), wb_scalar_int(1))", "wb_cumsum(wb_astype(begun, WB_I32), 0)", ["nn_more_layers"]),
    ("a step of the cache sees its old key", "src/nn/attention.c", "if (!wb_is_none(x->here)) scores =", "if (!x->here) scores =", ["nn_sequences"]),
    ("the second half is rotated the other way", "src/nn/rotary.c", "wb_add(wb_mul(b, c), wb_mul(a, s))", "wb_sub(wb_mul(b, c), wb_mul(a, s))", ["nn_sequences"]),
    ("the state goes on behind a sequence's length", "src/nn/sequence.c", "wb_gt(lengths, wb_scalar_int(t))", "wb_ge(lengths, wb_scalar_int(t))", ["nn_sequences"]),
    ("the second direction begins with the first step", "src/nn/sequence.c", "reverse ? steps - 1 - i : i", "reverse ? i : i", ["nn_sequences"]),
    ("GRUv3 resets the product, as a GRU", "src/nn/recurrent.c", "wb_linear(wb_mul(gate(p, both, 0), h), wb_slice(w, 0, 2 * out, 3 * out),", "wb_linear(h, wb_slice(w, 0, 2 * out, 3 * out),", ["nn_sequences"]),
    ("a layer behind the first has the first one's names in PyTorch", "src/io/model/torch_names.c", "kind->suffix && strncmp(end, \"_l\", 2) ? kind->suffix", "kind->suffix ? kind->suffix", ["io_torch"]),
    ("a recurrent layer gives its first state", "src/nn/recurrent.c", "if (count == 1) return states[0][i];", "if (count == 1) return room[0];", ["nn_sequences"]),
    ("all passes give the state of the first one", "src/nn/recurrent.c", "room[k] = states[k][i];", "room[k] = states[0][i];", ["nn_sequences"]),
    ("the states of a cell of the program are lost", "src/nn/recurrence.c", "memcpy(states, outputs + 1, (size_t)*n * sizeof *states);", "", ["nn_recurrence"]),
    ("a shorter sequence ends with the output of the last step", "src/nn/recurrence.c", "lengths && !o->reverse ? last_of", "lengths && o->reverse ? last_of", ["nn_recurrence"]),
    ("the first states of all passes are one", "src/nn/recurrent.c", "all[k] = child(&p, MORE + o->hidden_bias + i);", "all[k] = child(&p, MORE + o->hidden_bias + i), all[k] = all[0];", ["nn_recurrence"]),
    ("a WeightNorm has the lengths of other axes", "src/nn/weight_norm.c", "all & ~(1u << axis)", "1u << axis", ["nn_more_layers"]),
    ("a WeightNorm in another one is left out", "src/nn/weight_norm.c", "for (; made && is_norm(l); l = wb__layer_child(l, LAYER)) {", "for (; made && is_norm(l); l = base) {", ["nn_more_layers"]),
    ("a row of zeros has a norm of zero", "src/nn/weight_norm.c", "wb_where(wb_eq(sum, wb_scalar(0)), wb_scalar(1), sum)", "wb_add(sum, 0)", ["nn_more_layers"]),
    ("a tied norm becomes two weights", "src/nn/weight_norm.c", "r->done[i].v == v && r->done[i].g == g", "r->done[i].v != v && r->done[i].g == g", ["nn_more_layers"]),
    ("g has the name of v in PyTorch", "src/io/model/torch_names.c", "is_g ? 0 : 1) : NULL", "is_g ? 1 : 0) : NULL", ["io_torch"]),
    ("offsets of bags may decrease", "src/engine/check.c", "(at ? value < c->before : value != 0)", "(at ? value < 0 : value != 0)", ["nn_more_layers"]),
    ("a gain is forgotten", "src/nn/init.c", "uniform, sqrt(2), gain * sqrt(3 / in)", "uniform, sqrt(2), sqrt(6 / in) + 0 * gain", ["nn_more_layers"]),
    ("the average of a tree shares its tensors", "src/train/average.c", "if (x->op != WB__OP_variable) return x;", "if (x->op != WB__OP_variable || x->ndim < 2) return x;", ["train_extras"]),
    ("corners are aligned with .no_align_corners", "src/nn/upsample.c", "interpolation(in, out[a - 2], !o->no_align_corners, wide)", "interpolation(in, out[a - 2], true, wide)", ["nn_more_layers"]),
    ("adaptive windows do not overlap", "src/nn/adaptive.c", "((i + 1) * n + m - 1) / m;", "(i + 1) * n / m;", ["nn_more_layers"]),
    ("a convolution of three axes ignores the dilation of the depth", "src/engine/ops/space.c", "const int64_t start = p * s->dilation[0];", "const int64_t start = p;", ["nn_more_layers"]),
    ("a transposed convolution of three axes adds at undilated positions", "src/engine/ops/space.c", "const int64_t before = p * s->dilation[0];", "const int64_t before = p;", ["nn_more_layers"]),
    ("a Conv pads with zeros whatever .pad_mode is", "src/nn/conv.c", ".mode = (wb_pad_mode)o->pad_mode}", ".mode = WB_PAD_CONSTANT}", ["nn_more_layers"]),
    ("a pool by a norm forgets the number of elements", "src/nn/unfold.c", "wb_pow(wb_mul(y, wb_scalar(n)), wb_scalar(1 / p))", "wb_pow(y, wb_scalar(n > 0 ? 1 / p : 0))", ["nn_more_layers"]),
    ("the results of a function of the program are dropped", "src/nn/functions.c", "    wb__this_thread()->program_calls++;\n", "", [LOOPS, SCOPES]),
    ("the end of a step forgets the tensors that the next step uses", "src/engine/automatic.c", "if (reads[i] && !is_made(x) && is_held(x))",
     "if (!reads[i] && !is_made(x) && is_held(x))", [LOOPS, SCOPES]),
    ("old steps keep their graphs", "src/engine/automatic.c", "if (x->storage || p[i].state & LOST) cut(x, &p[i]);", "if (!x->storage && !p[i].state) cut(x, &p[i]);", [LOOPS, SCOPES]),
    ("an evaluation overwrites versions that unconsumed results read", "src/engine/automatic.c", "if (t->pending[i]->variable) status = wb__keep_version(t->pending[i]->variable);",
     "if (!t->pending[i]) status = wb__keep_version(t->pending[i]->variable);", [LOOPS, SCOPES]),
    ("tensors that survive their scope are not computed", "src/engine/scope.c", "if (!round) add_kept(s, &list);", "if (round > 1) add_kept(s, &list);", [LOOPS, SCOPES]),
    ("a computed tensor keeps its graph beyond its scope", "src/engine/scope.c", "return !x->storage || x->n_in;", "return !x->storage;", [LOOPS, SCOPES]),
    ("an impossible write stays pending", "src/engine/evaluate.c", "mine.request.refused && !pending_is_lost(t)",
     "(mine.request.refused || pending_is_lost(t))", [LOOPS, SCOPES]),
    ("unconsumed results that read no version are searched each time", "src/engine/evaluate.c", "if (x->variable) reads |= VERSIONS;", "reads |= VERSIONS;", [LOOPS, SCOPES]),
    ("a gradient that is used twice is lost", "src/engine/automatic.c", "if (x->flags & WB__PENDING) return x->variable && x->variable->current != x;",
     "if (x->flags & WB__PENDING) return false;", [LOOPS, SCOPES]),
    ("running statistics keep a growing graph", "src/engine/automatic.c", "if (good && order.n > MOST_OF_STEPS) {", "if (!good) {", [LOOPS, SCOPES]),
    ("a retained result is lost when a loss is read", "src/engine/tensor.c", "(bound->flags & (WB__IS_UNCONSUMED | WB__HELD)) == WB__IS_UNCONSUMED",
     "bound->flags & WB__IS_UNCONSUMED", [LOOPS, SCOPES]),
    ("a scope inside a step keeps the graphs of old steps", "src/engine/automatic.c", "while (s && s->outer) s = s->outer;", "if (s && s->outer) return;", [LOOPS, SCOPES]),
    ("mapped gradients lose their finite-loss guard", "src/tree/branch.c", "t->loss = wb__ref(from->loss);", "t->loss = NULL;", ["optim_rules"]),
    ("lists of objects are never compacted", "src/engine/scope.c", "s->holes < FEW_HOLES || 2 * s->holes < s->n", "s->holes >= 0", [LOOPS, SCOPES]),
    ("a freed object has the class of a live one", "src/engine/object.c", "    ((wb__object *)object)->class = &wb__freed_class;\n", "", [LOOPS, SCOPES]),
    ("a freed object does not know its scope", "src/engine/freed.c", "f->scope = wb__this_thread()->closing;", "f->scope = 0;", [CHECK]),
    ("the queue of freed objects has no bound", "src/engine/freed.c", "while (queue.bytes > QUEUE_BYTES) leave_queue();", "", [CHECK]),
    ("an index equal to the bound passes", "src/engine/check.c", "value < 0 || value >= c->bound", "value < 0 || value > c->bound", [CHECK]),
    ("a label that is ignored is out of range", "src/engine/check.c", "!(c->except && value == *c->except)", "!(c->except && value)", ["nn_loss_options", CHECK]),
    ("labels are checked with WEBER_DEBUG=check only", "src/engine/check.c", "if (!x->storage || t->recording) return true;",
     "if (x->storage || t->recording) return true;", ["nn_loss_options"]),
    ("a class number out of range has a finite loss", "src/nn/losses.c", "wb_neg(sum_over_classes(l, terms)), wb_scalar(NAN))",
     "wb_neg(sum_over_classes(l, terms)), wb_scalar(0))", ["nn_loss_options"]),
    ("ignored rows count in the mean", "src/nn/losses.c", "counts = w ? wb_mul(counts, kept) : kept;", "counts = w ? counts : kept;", ["nn_loss_options"]),
    ("a loss takes options that it does not use", "src/nn/losses.c", "if (!uses(what, used, name)) return false;", "uses(what, used, name);", ["nn_loss_options"]),
    ("a path of CTC joins equal labels", "src/nn/ctc.c", "wb_and(wb_ne(states, before),", "wb_and(wb_ge(states, before),", ["nn_loss_options"]),
    ("steps behind a sequence's length count", "src/nn/ctc.c", "wb_gt(l->o.input_lengths, wb_scalar_int(t))", "wb_ge(l->o.input_lengths, wb_scalar_int(t))", ["nn_loss_options"]),
    ("log 0 times 0 is NaN", "src/nn/losses.c", "return wb_log(wb_where(counts, x, wb_scalar(1)));", "return counts ? wb_log(x) : NULL;", ["nn_loss_options"]),
    ("dropout without its scale", "src/engine/ops/source.c", "p < 1 ? 1 / (1 - p) : 0", "p < 1 ? 1 : 0", [SEMANTICS]),
    ("a replay draws the same random numbers again", "src/engine/compiled/compile.c", "wb__rng_take(r->blocks, &key, &counter);", "wb__rng_take(0, &key, &counter);", [COMPILE]),
    ("the last failure of a recording is reported, not the first", "src/engine/compiled/recording.c", "    if (r->failed) return;\n", "", [CALLS]),
    ("a recording whose function called wb_seed is kept", "src/engine/compiled/compile.c",
     'if (wb__rng_seedings() != seedings) wb__unrecordable("seed", WB__ACTS);', "(void)seedings;", [CALLS]),
    ("a tensor that a recorded function retains is not an error", "src/engine/compiled/recording.c",
     "if (first == n || r->scope || r->failed) return 0;", "if (n >= 0) return 0;", [CALLS]),
    ("a recording does not notice another mode", "src/engine/compiled/recording.c", "if (n->read && *n->at != n->before)",
     "if (n->read && n->counts && *n->at != n->before)", [CHANGES]),
    ("a recording does not notice a replaced child", "src/tree/fmap.c", "    if (old != x) wb__setting_count(&of->replaced);\n", "    (void)of;\n", [CHANGES]),
    ("a recording does not notice a frozen parameter", "src/optim/update.c", "wb__setting_read(u->state, &slot->frozen)", "slot->frozen", [CHANGES]),
    ("parameters with different step counts share the numbers of a step", "src/optim/update.c",
     "if (c->stepped[i] == STEPPED_ALIKE && steps != before) return WB__FITS_NEVER;", "(void)before;", [CHANGES]),
    ("a mode that a recorded function sets is not set by replays", "src/engine/compiled/recording.c",
     "if (r->noted[i].set) change(r->noted[i].at, r->noted[i].after);", "(void)r->noted[i];", [CHANGES]),
    ("values from before a recording are computed again by each replay", "src/engine/compiled/compile.c",
     "order.node[n_captured++] = x;", "(void)x;", [CHANGES]),
    ("a number as an input keeps its first value", "src/engine/compiled/compile.c", "if (n->hook == OF_INPUT) to->f", "if (!n) to->f", [CHANGES]),
    ("a recording is replayed with another default device", "src/engine/compiled/compile.c", "r->default_device == wb_default_device() &&", "", [CHANGES]),
    ("a recording made outside wb_withgradient is replayed inside", "src/engine/compiled/compile.c", "r->training == (t->training > 0);",
     "(t->training >= 0);", [CHANGES]),
    ("a recorded function is replayed while its caller is recorded", "src/engine/compiled/compile.c",
     "    if (t->recording) return call_inside(c, n_in, in, n_out, out);\n", "    if (0) return call_inside(c, n_in, in, n_out, out);\n", [CHANGES]),
    ("a replay does not count its step", "src/optim/update.c", "steps += c->stepped[i] != NOT_STEPPED;", "steps += 0 * c->stepped[i];", [COMPILE]),
    ("a frozen parameter's gradient is computed with the update", "src/optim/update.c", "wb__unconsumed_remove(g);", "(void)g;", ["optim_frozen"]),
    ("a step is made of k + 1 batches", "src/optim/accumulate.c", "s->accumulated + 1 >= s->rule->accumulate", "s->accumulated >= s->rule->accumulate", [SUMS]),
    ("the sums of gradients go on after a step", "src/optim/accumulate.c", "(*next = wb__zeros_like(slot->sum))", "(*next = wb__unchanged(slot->sum))", [SUMS]),
    ("a step of fewer batches is divided by k", "src/optim/update.c", "u->batches = s->accumulated + (grads != NULL);", "u->batches = s->rule->accumulate;", [SUMS]),
    ("a batch that failed counts as accumulated", "src/optim/accumulate.c", "s->accumulated = s->accumulated_before;", "(void)s;", [SUMS]),
    ("a recorded step uses the sums of other gradients", "src/optim/accumulate.c", "c->slot[i].summed == c->state->slots[i].summed", "true", [SUMS]),
    ("a recording is made again for each accumulated batch", "src/optim/accumulate.c", "WB__FITS_NOT_NOW;", "WB__FITS_NEVER;", [SUMS]),
    ("a gradient that is not finite stays in the sums", "src/optim/update.c", "u->adds && !status && !s->scaling", "u->adds && status && !s->scaling", [SUMS]),
    ("a checkpoint has a part of a step", "src/train/checkpoint.c", 'wb__sums_whole(what, s)', "0", [SUMS]),
    ("loading a checkpoint keeps what is accumulated", "src/train/checkpoint.c", "int status = wb__sums_drop(s);", "int status = 0;", [SUMS]),
    ("a moved state forgets how many batches it has", "src/optim/move.c", "to->accumulated = from->accumulated;", "to->accumulated = 0;", [SUMS]),
    ("what is accumulated is left when .each ends the training", "src/train/train.c", "if (!status) status = apply_rest(t);", "", [SUMS]),
    ("the mean loss of several batches counts as one", "src/train/train.c", "wb_item(before) * (double)before_of", "wb_item(before)", [SUMS]),
    ("each batch of several is communicated", "src/optim/update.c", "u->adds = !u->last && !wb__sums_apply_next(s);", "u->adds = false;", ["accumulate*2"]),
    ("ranks wait for one whose loss is not finite", "src/train/train.c", "if (status == WB_ERROR_NUMBER && adds && distributed(t) &&", "if (status == WB_ERROR_NUMBER && adds && !t &&",
     ["accumulate*2"]),
    ("ranks cannot go on after a loss that is not finite", "src/train/train.c", "if (status) drop_rest(t);", "if (status > 99) drop_rest(t);", ["accumulate*2"]),
    ("a part of a step is shared with other ranks", "src/dist/synchronise.c", "c->state ? c->state->accumulated : 0", "0", ["accumulate*2"]),
    ("gradients are copied into their bucket", "src/engine/plan/placement.c", "(product || at->aligned) &&", "product &&", ["engine_placement"]),
    ("parts of a row that is itself a column are dense", "src/engine/plan/placement.c", "concat = l->role[concat].concat)", "concat = -1)",
     ["engine_placement"]),
    ("a variance in one pass is not shifted", "src/engine/plan/variance.c", "wb__ir_elementwise(to, WB__OP_sub, map[s->x], first);", "map[first ? s->x : 0];", ["engine_values@OpenCL"]),
    ("copies of leaves run before the zeros around them", "src/engine/plan/programs.c", "        covered && m->attempt->device", "        m->attempt->device", ["conformance_graph@CUDA"]),
    ("values of joined projections begin at the keys", "src/nn/attention.c", "o->qk_dim + (i - 1) * shared_keys : 0", "o->qk_dim : 0", ["nn_sequences@OpenCL"]),
    ("attention writes where strides cannot express its result", "src/engine/plan/placement.c", "if (!view_in_window(x, &window, &v) ||", "if ((view_in_window(x, &window, &v), false) ||", ["engine_placement@CUDA"]),
    ("a concat is read where other parts are", "src/engine/plan/placement.c", "- start_of(p, whole, first->part) != start_of(p, a, j)", "< 0", ["engine_placement"]),
    ("a product adds a result that is not computed yet", "src/engine/plan/patterns.c", "ready_at(f, y) >= p->made_at)", "0)", ["engine_epilogues"]),
    ("rows of a transposed variable are set in place", "src/engine/plan/placement.c", "base == value(p, wb__same_memory(p->values, in))", "base",
     ["engine_placement"]),
    ("values are computed again from rounded ones", "src/engine/plan/remake.c", "c->scales || !own ||", "1 || !own ||", ["cuda_libraries"]),
    ("a host function's code is that of a loss that is not finite", "src/backend/cpu/cpu_host.c", "code == WB_ERROR_UNSUPPORTED || code == WB_ERROR_NUMBER;", "0;", ["own_layers"]),
    ("set rows do not begin with the operand", "src/engine/ops/gather.c", "wb__emit_copy(m, &from, &to, \"rows to be set\");", ";", ["engine_placement"]),
    ("an allreduce has memory of its own", "src/engine/plan/placement.c", "r->replaced = i;", "r->replaced = -1;", ["buckets*2"]),
    ("an allreduce overwrites a value that is read later", "src/engine/plan/placement.c", "bool once = v->uses == 1;", "bool once = true;", ["buckets*2"]),
    ("an allreduce overwrites a part that is read later", "src/engine/plan/placement.c", "once = once && is_read_once(p, content);", "", ["buckets*2"]),
    ("means of gradients are computed before the updates", "src/engine/plan/ir.c", "return y->op != WB__OP_collective &&", "return", ["buckets*2"]),
    ("the update of each parameter is a kernel", "src/optim/ranks.c", "own = wb_mul(own, b->scale);", "own = wb_mul(own, wb_scalar(1.0 / wb__world()->size));", ["buckets*2"]),
    ("a loss without parameters trains", "src/train/train.c", "if (g && state && !reaches) {", "if (g && state && !reaches && !g) {", ["train_loop"]),
    ("wb_train builds gradients of frozen parameters", "src/train/train.c", "state ? is_frozen : NULL", "state && 0 ? is_frozen : NULL", ["optim_frozen"]),
    ("a scope drops a tree after the tensors that it holds", "src/engine/scope.c",
     "if (!object || wb__is(object, &wb__tensor_class)) continue;", "if (object) continue;", [LOOPS, SCOPES]),
    ("Adam's second moment is of g, not g^2", "src/optim/formulas.c", "s->g, number[3], true)", "s->g, number[3], false)", ["optim_rules"]),
    ("moments that begin with eps begin with 0", "src/optim/rules.c", "return part->o.eps;", "return 0;", [FORMULAS]),
    ("moments of a chain begin as those of its first rule", "src/optim/rules.c",
     "moment >= part->kind->moments; part++) moment -= part->kind->moments;", "0;) moment++;", [FORMULAS]),
    ("with f16 RAdam is rectified from rho_t = 5", "src/optim/formulas.c", "*rectified = wb_gt(r, wb_scalar(4));", "*rectified = wb_gt(r, wb_scalar(5));", [FORMULAS]),
    ("Rprop moves where the gradient turns", "src/optim/formulas.c", "wb_where(turns, zero, s->g);", "s->g;", [FORMULAS]),
    ("a variance below 0 has a root", "src/optim/formulas.c", "    variance = wb_maximum(variance, wb_scalar(0));\n", "", [FORMULAS]),
    ("with f16 NAdam corrects m as Adam does", "src/optim/formulas.c", "wb_add(t, wb_scalar(1))", "t", [FORMULAS]),
    ("adjust changes the eta of Rprop, without effect", "src/optim/adjust.c", "if (i == WB__ETA && !wb", "if (i < WB__ETA && !wb", [FORMULAS]),
    ("a schedule begins with its second step", "src/optim/numbers.c", "o->eta = wb_schedule_at(at->schedule, (double)(s->updates + 1));",
     "o->eta = wb_schedule_at(at->schedule, (double)(s->updates + 2));", ["schedules"]),
    ("a failed update counts for schedules", "src/optim/state.c", "    if (failed) s->updates -= s->unsure_updates;\n", "", ["schedules"]),
    ("replays do not count for schedules", "src/optim/update.c", "    c->state->updates++;\n", "", ["schedules"]),
    ("the amplitude of SinDecay2 does not decay", "src/optim/schedules.c", "wave(k, t) * halved(k, t)", "wave(k, t)", ["schedules"]),
    ("a part of a model has the numbers of the part before", "src/optim/update.c", "wb__next_step(s, b) && wb__slots_alike(s, p, a, b);", "wb__next_step(s, b) && p >= 0;", ["optim_groups"]),
    ("a recording keeps the numbers of its parts", "src/optim/adjust.c", "    s->changes++;\n    wb__free(below);", "    wb__free(below);", ["optim_groups"]),
    ("a rule of the program's own has the step of another number", "src/optim/formulas.c", "if (kind->own) out[n++] = t;", "if (kind->own) out[n++] = t + 1;", ["optim_groups"]),
    ("ranks keep different numbers of parts", "src/dist/synchronise.c", "status = share_numbers(&slot->own[p], root);", "status = 0;", [RANKS]),
    ("LAMB multiplies by the norm of zeros", "src/optim/whole.c", "wb_where(wb_gt(of_x, zero), ratio, one);", "ratio;", ["optim_whole"]),
    ("Adafactor's column is not divided by the mean of its row", "src/optim/whole.c", "wb_mul(wb_div(s->next[0], mean), s->next[1])", "wb_mul(s->next[0], s->next[1])", ["optim_whole"]),
    ("an average takes too much of the model", "src/train/average.c", "wb_full_array(1 - a->decay", "wb_full_array(a->decay", ["train_extras"]),
    ("the history has the loss of the last batch", "src/train/train.c", "    return t->sum / (double)t->batches;", "    return t->sum;", ["train_extras"]),
    ("early stopping counts better scores", "src/train/average.c", "!(gain >= w->min_dist)", "gain >= w->min_dist", ["train_extras"]),
    ("a resumed training forgets its watched numbers", "src/train/checkpoint.c", "if (!status && c->stop) *c->stop = stop;", "(void)stop;", ["train_extras"]),
    ("a failed step is counted", "src/optim/state.c", "slot->steps -= slot->unsure;", "slot->steps -= 0;", [FAULTS]),
    ("a gradient ignores that memory ran out", "src/engine/gradient/gradient.c", "if (good && !w.failed) return 0;", "if (good) return 0;", [FAULTS]),
    ("a convolution padded on the wrong side", "src/engine/ops/conv.c", "memcpy(a->pad, s->pad + 1, sizeof a->pad);",
     "for (int i = 0; i < 4; i++) a->pad[i] = s->pad[1 + (i ^ 1)];", [PRODUCT]),
    ("strides and dilations are exchanged", "src/engine/ops/conv.c", "memcpy(a->dilation, s->dilation + 1, sizeof a->dilation);",
     "memcpy(a->dilation, s->stride + 1, sizeof a->dilation);", [PRODUCT]),
    ("a comma at the end of a list counts as a number", "src/base/options.c", "if (*at == ',') at = after_blanks(at + 1);",
     "if (*at == ',') at = after_blanks(at + 1), n += *at == '}';", ["api_forms"]),
    ("a list written by the program itself is not checked", "src/base/options.c", "        if (list[i])\n", "        if (list[i] < 0)\n", ["api_misuse"]),
    ("commas in parentheses end an option", "src/base/options.c", "case '(': case '[': case '{': depth++; break;", "case '[': case '{': depth++; break; case '(': break;", ["api_forms"]),
    ("quotes in an option are not skipped", "src/base/options.c", "at = literal_end(at); if", "if", ["api_forms"]),
    ("an option by position may follow one by name", "src/base/options.c", "} else if (given->n && given->option[given->n - 1].name) {", "} else if (given->n > 31) {", ["api_forms"]),
    ("an option given as 0 is its default", "src/base/options.c", "return value || wb__is_given(given, name, position) ? value : by_default;",
     "return value ? value : by_default;", ["api_forms"]),
    ("fields of a later version are ignored", "src/base/options.c", "if (((const char *)from)[i])", "if (((const char *)from)[i] && i == 0)", ["api_forms"]),
    ("a number that no rule has is ignored by adjust", "src/optim/adjust.c", "if (!taken) return has_no_number", "if (!taken && !i) return has_no_number", ["api_forms"]),
    ("an output padding is ignored", "src/engine/ops/conv.c", "reach + outpad[i];", "reach;", [PRODUCT]),
    ("a bias after a data gradient starts again in every chunk", "src/backend/cpu/conv/conv_epilogue.c", "[(at + i) % c]",
     "[i % c]", ["cpu_lib"]),
    ("a mean divides by the wrong count", "src/engine/ops/reduce.c", "if (mask >> i & 1) n *= (double)x->dims[i];",
     "if (mask >> i & 1) n = (double)x->dims[i];", [SHAPE]),
    ("the caller does not wait for the pool", "src/base/parallel.c", "atomic_load(&pool.state) & INSIDE; spins++", "spins < 0; spins++", ["base_core", COMPILE, "cpu_lib"]),
    ("the reason for which a backend cannot be used is forgotten", "src/device/registry.c",
     "        snprintf(state[row].reason, WB__REASON_BYTES, \"%s\", wb_error());\n    }", "    }", [REGISTRY]),
    ("a backend starts at every query", "src/device/registry.c", "if (state[row].condition == NOT_STARTED) start(row);",
     "if (state[row].condition != WORKS) start(row);", [REGISTRY]),
    ("a query changes the error", "src/device/registry.c", "state[row].n ? \"\" : state[row].reason);\n    wb__error_restore(&kept);",
     "state[row].n ? \"\" : state[row].reason);", [REGISTRY]),
    ("wb_get_device returns the last device that was requested", "src/device/select.c", "return list.device[ordinal];",
     "return remembered = list.device[ordinal];", [REGISTRY]),
    ("shutting down stops no backend", "src/device/registry.c", "if (state[i].started) state[i].backend->stop();",
     "(void)0;", [REGISTRY]),
    ("a preference for the CPU is ignored", "src/device/select.c", "if (prefers_cpu()) return NULL;", "if (0) return NULL;", [PREFERENCES]),
    ("the preferences of the farthest folder win", "src/device/preference.c", "if (p->exists) return 0;\n        if (is_there",
     "if (p->exists && !strrchr(folder + 1, '/')) return 0;\n        if (is_there", [PREFERENCES]),
    ("the preferences are read again", "src/device/preference.c", "was_read = e != WB_ERROR_MEMORY;", "was_read = false;", [PREFERENCES]),
    ("a key is inserted at the end of the file", "src/base/toml.c", "n->end - 1 : n->insert_at;",
     "n->end - 1 : t->bytes;", ["toml"]),
    ("a table may be defined twice", "src/base/toml.c", "if (!several && before != WB__AT_IMPLICIT)", "if (0)", ["toml"]),
    ("tensors of two devices are mixed", "src/engine/tensor.c", "if (first && !wb__one_device(", "if (first && 0 && !wb__one_device(", [MOVE]),
    ("a plan is used for every device", "src/engine/request.c", "*w++ = (uint64_t)(uintptr_t)device;", "*w++ = 0;", [MOVE]),
    ("a value that the host has read is not updated", "src/engine/evaluate.c", "        wb__storage_written(s);\n        wb__set_storage(a, wb__storage_ref(s), 0);",
     "        wb__set_storage(a, wb__storage_ref(s), 0);", [MOVE, STATE, TRAINING]),
    ("gradients end at wb_to", "src/engine/move.c", "if (wanted[0]) out[0] = wb__tensor_to(", "if (wanted[0] && !node) out[0] = wb__tensor_to(", [MOVE]),
    ("f64 tensors are moved to a device without f64", "src/engine/move.c", "else if (from == WB_F64 && d->backend->is_gpu) t = WB_F32;",
     "else if (0) t = WB_F32;", [MOVE, DATA]),
    ("an object that is already on the device is copied", "src/tree/move.c", "    if (!status) return object;", "    if (!status && !object) return object;", [MOVE]),
    ("moments on the default device", "src/optim/state.c", "new_moment(s, slot, k, x->device)", "new_moment(s, slot, k, wb_default_device())", [STATE]),
    ("a tree of partial results without its barrier", "src/backend/gpu/fused_reduction_text.c",
     "    wb__fuse_close(k);\n    wb__fuse_line(k, \"BARRIER;\");\n    wb__fuse_close(k);\n}", "    wb__fuse_close(k);\n    wb__fuse_close(k);\n}",
     [FUSED, "gpu_fused_rows"]),
    ("the group of the last chunk combines all chunks", "src/backend/gpu/fused_reductions.c", "if (ticket == a.chunks - 1)", "if (GRP(1) == a.chunks - 1)", ["cuda_folds"]),
    ("a counter is not set back to 0", "src/backend/gpu/fused_reductions.c", "GRP(0), a.chunks - 1);", "GRP(0), a.chunks);", ["cuda_folds"]),
    ("tiles share a counter", "src/backend/gpu/fused_reductions.c", "TICKET(counters + GRP(0),", "TICKET(counters,", ["cuda_folds"]),
    ("a group takes a ticket before its results can be read", "src/backend/gpu/fused_reductions.c", "    wb__fuse_line(k, \"FENCE;\");\n    wb__fuse_line(k, \"BARRIER;\");\n    wb__fuse_line(k, \"if (l",
     "    wb__fuse_line(k, \"BARRIER;\");\n    wb__fuse_line(k, \"if (l", ["cuda_folds"]),
    ("the elements of a vector that is cut off are not moved", "src/backend/gpu/fused_vectors.c", "    move_all(k, needed, kind, false);\n", "", [FUSED]),
    ("vectors begin at any offset", "src/backend/gpu/fused_vectors.c", "p->view->offset % n || ", "", ["gpu_texts"]),
    ("an index is divided by a dimension of one vector", "src/backend/gpu/fused_vectors.c", "(last ? 2 * n : n)", "n", [FUSED]),
    ("the elements of a vector have one index", "src/backend/gpu/fused_loops.c", "(y%d + lane)", "(y%d)", ["gpu_fused_rows"]),
    ("the largest element is at its vector's beginning", "src/backend/gpu/fused_rows.c", "(j * %du + lane)", "(j * %du)", [FUSED]),
    ("a loop over four rows at once leaves the others out", "src/backend/gpu/fused_reductions.c", "to - next > %d * lanes;", "to - next > %d * 0;", [FUSED]),
    ("a long row has one group", "src/backend/gpu/fused.c", "&& rows <= 2 * processors", "&& rows < processors", ["cuda_folds"]),
    ("a reduction of long rows does not wait for the one before it", "src/backend/gpu/fused.c", "if (!columns || waits) continue;", "if (!columns) continue;", ["cuda_folds"]),
    ("a workspace begins at the arena's start", "src/backend/gpu/gpu.c", "put_word(to + l->workspace_at, workspace_at);", "put_word(to + l->workspace_at, 0);", [TRAINING]),
    ("bf16 is truncated, not rounded", "src/base/numbers/formulas.h", "r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;", "r = u >> 16;", ["base_dtype"]),
    ("adjacent rows are copied with their padding", "src/backend/gpu/kernels/product.k", "run.a != origin + r || run.low > e || run.high < e + count", "run.a != origin + r", [WRITTEN]),
    ("a step's elements of A replace those of the step before", "src/backend/gpu/kernels/product.k", "left + deep * INNER_APART(&a), x, row", "left, x, row", [WRITTEN]),
    ("the last of equal maxima gets the gradient", "src/backend/gpu/kernels/pool.k", "((x) > (m) || ((x) != (x) && (m) == (m)))", "((x) >= (m) || ((x) != (x) && (m) == (m)))", [WRITTEN]),
    ("a launch keeps the argument of the launch before", "src/backend/gpu/runtime/kernel.c", "if (m->serial == p->address[i]) continue;", "if (p->address[i]) continue;", [ORDER]),
    ("more memory is used than is allowed", "src/backend/gpu/runtime/memory.c", "const bool fits = c->used + c->cached + (int64_t)bytes <= c->limit;", "const bool fits = true;", [MEMORY]),
    ("the checksum of a cached kernel is not compared", "src/backend/kernel_cache.c", "hash(0, all + front, (size_t)h.data_bytes) != h.checksum", "0", ["kernel_cache"]),
    ("a product is computed before the bias that it adds", "src/engine/plan/patterns.c",
     "if (ready_at(f, with.bias) > p->value) with.made_at = x;", "", ["graph_fuzz --seeds 6000"]),
    ("a factor is not computed though a gradient reads it", "src/engine/plan/patterns.c",
     "f->out->of[s.factor].unused = false;", "f->out->of[s.factor].unused |= false;", ["engine_epilogues"]),
    ("a product computes a sum on which it depends", "src/engine/plan/patterns.c",
     "        if (with.made_at >= f->of[x].first_reader) continue;\n", "", ["engine_epilogues"]),
    ("a product with sums of rows is computed within a concat", "src/engine/plan/placement.c",
     " &&\n           by->sums_of != WB__SUMS_OF_C;", ";", ["engine_epilogues"]),
    ("a bias's gradient is summed from the wrong operand", "src/engine/plan/patterns.c", "if (is_matrix(m, &v, j, i)) return WB__SUMS_OF_A;", "if (is_matrix(m, &v, j, i)) return WB__SUMS_OF_B;", ["engine_epilogues"]),
    ("a group is merged into a later one though a group between them reads it", "src/engine/plan/merge.c", "if (g >= 0 && g != a && g < b) return false;",
     "if (g >= 0 && g != a && g < a) return false;", [GRAPH]),
    ("a rematerialised value reads a value that is not in memory", "src/engine/plan/groups.c", "if (g < 0 && !of[x].rematerialised) continue;", "if (g < 0) continue;",
     [GRAPH + "@OpenCL --count 12"]),
    ("a tile of a convolution passes the last tap of a row", "src/backend/gpu/kernels/conv.k", "    if (w.x >= STEPS(s)) {", "    if (w.x > STEPS(s)) {", [WRITTEN]),
    ("the columns of a fragment are its inner indices", "src/backend/gpu/kernels/tile.k", "INNER_b, ROW_b, INNER_b, lane)", "INNER_b, INNER_b, ROW_b, lane)", [WRITTEN]),
    ("vectors are loaded from any address", "src/backend/gpu/kernels/tile.k", "% (sizeof(STORED) * V) == 0", "% sizeof(STORED) == 0", [WRITTEN]),
    ("gather's gradient ranks an index after itself", "src/backend/gpu/kernels/rows.k", "before += other == row && base + u < i;",
     "before += other == row && base + u <= i;", [WRITTEN]),
    ("kernels do not wait for uploads", "src/backend/gpu/runtime/transfer.c", "if (wb__likely(m->uploaded <= d->awaited)) return 0;",
     "if (m->uploaded <= d->awaited || d) return 0;", [ORDER, RECORDED]),
    ("an upload does not wait for the kernels before it", "src/backend/gpu/runtime/transfer.c",
     "const int code = d->driver->wait_event(d, WB__GPU_UP, behind->event);", "const int code = behind ? 0 : 1;", [ORDER, RECORDED]),
    ("a graph keeps the numbers of its first run", "src/backend/gpu/runtime/table.c", "if (!t->n_targets) return 0;", "if (t) return 0;", [RECORDED]),
    ("CUDA: a thread block takes the row before its own", "src/backend/gpu/runtime/table.c", "rows[middle].first <= blockIdx.x", "rows[middle].first < blockIdx.x",
     [CUDA_GRAPH]),
    ("a graph runs with other addresses than it was made for", "src/backend/gpu/runtime/graph.c",
     "return in->recorded && !memcmp(in->address, g->now, (size_t)g->s->n_buffers * sizeof *g->now);", "return in->recorded && g->s->n_buffers;", [RECORDED]),
    ("results stay in the graph's own memory", "src/backend/gpu/runtime/graph.c",
     "if (copying) status = copy_own(d, g, at, WB__BUFFER_RESULT);", "if (copying) status = 0;", [RECORDED]),
    ("too few instances of a graph for a loader's batches", "src/backend/gpu/runtime/graph.c", "INSTANCES = 16,", "INSTANCES = 4,", [RECORDED]),
    ("CUDA: a workspace is aligned to 64 bytes", "src/backend/backend.h", "WB__WORKSPACE_ALIGN = 1024", "WB__WORKSPACE_ALIGN = 64", ["cuda_libraries"]),
    ("CUDA: a declined step is computed without its epilogue", "src/backend/gpu/runtime/kernel.c", "status == WB_ERROR_UNSUPPORTED && wb__step_is_special(step)",
     "status == WB_ERROR_INTERNAL && wb__step_is_special(step)", ["cuda_product"]),
    ("a step with an epilogue that no kernel has is accepted", "src/backend/gpu/library_product.c", "if (wb__step_is_special(s))\n        return wb__fail(WB_ERROR_INTERNAL",
     "if (s->epilogue > 99)\n        return wb__fail(WB_ERROR_INTERNAL", ["cuda_product"]),
    ("a plan is kept without its declined steps", "src/engine/plan/prepare.c", "declined |= status != 0;", "declined |= status < 0;", ["engine_epilogues"]),
    ("a replay that is repeated draws other numbers", "src/engine/compiled/compile.c", "if (status == WB__PLAN_AGAIN) wb__rng_set_state(rng);", "", ["engine_epilogues"]),
    ("CUDA: a library newer than the driver comes first", "src/backend/gpu/runtime/files.c", "driver && files[i].major > driver;", "driver < 0;", ["cuda_versions"]),
    ("CUDA: an image that the driver refuses is an error", "src/backend/cuda/program.c", "if (!is_foreign(code))", "if (code || !is_foreign(code))",
     ["cuda_versions"]),
    ("HIP: another device stays current after a call", "src/backend/amdgpu/amdgpu.c", "hip.SetDevice(before[--depth]);", "--depth;",
     ["amdgpu_runtime"]),
    ("HIP: the layouts of ROCm 5 and 6 are exchanged", "src/backend/amdgpu/driver.c", "wb__hip_properties = old ? &of_rocm_5 : &of_rocm_6;",
     "wb__hip_properties = old ? &of_rocm_6 : &of_rocm_5;", ["amdgpu_rocm"]),
    ("HIP: a GPU that the compiler does not know is used", "src/backend/amdgpu/amdgpu.c", "if (!wb__hip_check_arch(&devices[i])) list",
     "if (wb__hip_check_arch(&devices[i]) < 99) list", ["amdgpu_rocm"]),
    ("rocBLAS: the operations of the operands are exchanged", "src/backend/amdgpu/blas.c", "p->op[j] = transposed", "p->op[1 - j] = transposed",
     ["conformance_product@AMDGPU"]),
    ("rocBLAS: the handle keeps memory of its own", "src/backend/amdgpu/blas.c", "if (!status) status = (int)blas.set_workspace(made, NULL, 0);", "",
     ["conformance_product@AMDGPU"]),
    ("rocBLAS works without kernels for any GPU", "src/backend/amdgpu/blas.c", "works = has_kernels(wb__hip_of(s->device[i]));",
     "works = s->device[i]->open;", ["amdgpu_libraries"]),
    ("an unusable file with HIP's name is the last one", "src/backend/gpu/runtime/files.c", "(missing = wb__gpu_find_functions(file, list, n, table))) &&",
     "(missing = wb__gpu_find_functions(file, list, n, table))) && !missing &&", ["amdgpu_libraries"]),
    ("a library of another HIP is used", "src/backend/gpu/runtime/files.c", "const bool same = file && dlsym(file, name) == ours;",
     "const bool same = file && ours;", ["amdgpu_libraries"]),
    ("the reason is that of the step with its bias", "src/backend/gpu/runtime/kernel.c", "library->bare ? reason : &other", "&other", ["amdgpu_miopen"]),
    ("MIOpen: the operands of a gradient are exchanged", "src/backend/amdgpu/miopen.c", "[WB__CONV_GRAD_INPUT] = {2, 1, 0}", "[WB__CONV_GRAD_INPUT] = {1, 2, 0}", ["amdgpu_miopen"]),
    ("MIOpen: Winograd in full precision", "src/backend/amdgpu/miopen.c", "return !s->entry->problem.accurate;", "return true;", ["amdgpu_miopen"]),
    ("MIOpen: a solution is compiled at its launch", "src/backend/amdgpu/miopen.c", "if (!*status) *status = MI_DIRECTION(s, CompileSolution, chosen.solution_id);", "",
     ["amdgpu_miopen"]),
    ("MIOpen: any solution in deterministic mode", "src/backend/amdgpu/miopen.c", "if (!status && p->deterministic)", "if (!status && p->deterministic > 1)", ["amdgpu_miopen"]),
    ("MIOpen: GEMM without rocBLAS", "src/backend/amdgpu/miopen.c", "return wb__hip_blas_serves(s->device);", "return true;", ["amdgpu_miopen"]),
    ("MIOpen: descriptors stay", "src/backend/amdgpu/miopen.c", "if (!e->found) drop(e);", "", ["amdgpu_miopen"]),
    ("MIOpen: the stream of another launch", "src/backend/amdgpu/miopen.c", "if (d->miopen_stream != d->stream[q]) {", "if (!d->miopen_stream) {", ["amdgpu_libraries"]),
    ("MIOpen: padding on one side only", "src/backend/amdgpu/miopen.c", "pad < 0 || pad != a->pad[2 * k + 1]", "pad < 0 || pad > a->pad[2 * k + 1]", ["amdgpu_miopen"]),
    ("MIOpen: the workspace has no limit", "src/backend/amdgpu/miopen.c", "if (!*status && chosen.workspace_size > MAX_WORKSPACE) continue;", "", ["amdgpu_miopen"]),
    ("a library that refuses a recorded step waits for the device", "src/backend/gpu/runtime/vendor.c", "d->recording ? 0 : d->driver->sync",
     "d->driver->sync", ["amdgpu_libraries"]),
    ("MPS: the transpositions are exchanged", "src/backend/metal/mps.c", "if (j < 2) p->transposed[j] = transposed;", "if (j < 2) p->transposed[1 - j] = transposed;",
     ["metal_libraries"]),
    ("MPS: matrices of a batch overlap", "src/backend/metal/mps.c", "if (apart < p->apart[j][1] || apart", "if (apart",
     ["metal_libraries"]),
    ("MPS: results that are too large", "src/backend/metal/mps.c", "+ 2 * (double)p->k)", ")",
     ["metal_libraries"]),
    ("MPS and MPSGraph: the offset of a buffer in its memory is lost", "src/backend/metal/mps.c", "at + (a->offsets ? a->offsets[buffer] : 0)", "at",
     ["metal_libraries"]),
    ("MPSGraph: the executable's inputs in any order", "src/backend/metal/mpsgraph.c", "e->swapped = mtl_objectAtIndex(feeds, 0) == input[1];", "e->swapped = false;",
     ["metal_libraries"]),
    ("MPSGraph: padding on the other side", "src/backend/metal/mpsgraph.c", "(NSUInteger)p->pad[2], (NSUInteger)p->pad[3],", "(NSUInteger)p->pad[3], (NSUInteger)p->pad[2],",
     ["metal_libraries"]),
    ("MPSGraph: Winograd at the highest precision", "src/backend/metal/mpsgraph.c", "step->precision == WB__PRECISION_HIGHEST &&", "step->precision > WB__PRECISION_MEDIUM &&",
     ["metal_libraries"]),
    ("MPSGraph: executables stay", "src/backend/metal/mpsgraph.c", "if (e->executable) mtl_release(e->executable);", "",
     ["metal_libraries"]),
    ("MPSGraph: a command buffer that it committed is used again", "src/backend/metal/metal.c", "if (now != q->buffer) {", "if (now == NULL) {",
     ["metal_libraries"]),
    ("MPSGraph: the strides are exchanged", "src/backend/metal/mpsgraph.c", "(NSUInteger)p->stride[1], (NSUInteger)p->stride[0],",
     "(NSUInteger)p->stride[0], (NSUInteger)p->stride[1],", ["conformance_product@Metal"]),
    ("Metal: an upload does not wait for the commands that use its memory", "src/backend/metal/metal.c", "q == WB__GPU_COMPUTE ? sync_queue(d, q) : 0;", "0;",
     ["metal_runtime"]),
    ("Metal: a download does not wait", "src/backend/metal/metal.c", "const int code = sync_queue(d, q);\n    if (!code) memcpy(to,", "const int code = 0;\n    if (!code) memcpy(to,",
     ["metal_runtime"]),
    ("Metal: a queue does not wait for another one's event", "src/backend/metal/metal.c", "mtl_encodeWaitForEvent(q->buffer, p->queue->event, p->value);", "",
     ["metal_runtime"]),
    ("Metal: fast math", "src/backend/metal/program.c", "else mtl_setFastMathEnabled(options, 0);", "", ["metal_runtime"]),
    ("Metal: any bytes are copied like multiples of 4", "src/backend/metal/metal.c", "if ((to_at | from_at | bytes) % 4) {", "if (bytes > (size_t)INT64_MAX) {",
     ["metal_runtime"]),
    ("Metal: an encoder is not released", "src/backend/metal/metal.c", "mtl_endEncoding(q->encoder);\n    mtl_release(q->encoder);", "mtl_endEncoding(q->encoder);",
     ["metal_runtime"]),
    ("Metal: archives are not used", "src/backend/metal/program.c", "        if (archive)\n", "        if (!library)\n", ["metal_runtime"]),
    ("Metal: the failure of a command buffer is lost", "src/backend/metal/metal.c", "        q->failed = code;", "", ["metal_faults"]),
    ("Metal: shared memory is read before the kernels have written it", "src/backend/gpu/runtime/transfer.c",
     "const int code = d->driver->sync(d, WB__GPU_COMPUTE);\n    status = code ? fail(d, code, \"before reading\")", "const int code = 0;\n    status = code ? fail(d, code, \"before reading\")",
     ["metal_runtime"]),
    ("cuBLASLt: only the first version is tried", "src/backend/gpu/runtime/vendor.c", "!l->version_fixed && open_next(l))",
     "l->version_fixed && open_next(l))", ["cuda_versions"]),
    ("cuDNN is loaded for another version of CUDA than cuBLASLt", "src/backend/cuda/dnn.c", "else if (beside && built != beside)", "else if (beside < 0)", ["cuda_versions"]),
    ("cuDNN: Winograd in full precision", "src/backend/cuda/dnn_conv.c", "if (!f32 || step->precision == WB__PRECISION_HIGHEST)", "if (!f32)", ["cuda_dnn"]),
    ("cuDNN: attention gets no more workspace than a convolution", "src/backend/cuda/dnn.h", "? WB__MAX(least, share) : least", "? WB__MIN(least, share) : least",
     ["cuda_dnn"]),
    ("a part of a space begins at the first element", "src/backend/gpu/fused.c", "offset += start * p->views[i].strides[d];", "offset += 0;", [FUSED]),
    ("a part of a space counts from its own beginning", "src/backend/gpu/fused.c", "in->shift += in->scale * start;", "in->shift += 0;", [FUSED]),
    ("cuBLASLt: sums of the other operand", "src/backend/cuda/lt_problem.c", "const bool of_rows = of_a == c_transposed;", "const bool of_rows = of_a != c_transposed;",
     ["cuda_product"]),
    ("lent memory is written", "src/engine/tensor.h",
     "if (wb__likely(!atomic_load_explicit(&variable->storage->lent, memory_order_relaxed))) return 0;", "if (variable) return 0;", ["io_dlpack"]),
    ("a deleter is called for a refused tensor", "src/io/dlpack.c", "if (check(t, &in)) return NULL;", "if (check(t, &in)) return end_owner(&o), NULL;", ["io_dlpack"]),
    ("members of an archive may share bytes", "src/io/numpy/npz.c", "s.comp_size > (uint64_t)a->m->bytes - held", "s.comp_size > (uint64_t)a->m->bytes", ["io_npz"]),
    ("a member's checksum is not compared", "src/io/numpy/npz.c", "return member_end(f);", "return 0;", ["io_npz"]),
    ("more is decompressed than is allowed", "src/io/numpy/npz.c", "got) > wb__unpack_limit())", "got) < 0)", ["io_npz"]),
    ("a compressed file has no limit", "src/base/files/file.c", "r->gzip ? unpack_limit : pipe_limit", "pipe_limit", ["io_memory"]),
    ("a pipe has the limit of compressed files", "src/base/files/file.c", "r->gzip ? unpack_limit : pipe_limit", "unpack_limit", ["base_file", "io_npy"]),
    ("a file is read beyond the data of its header", "src/base/map.c", "wb__reader_fill(m->rest, n)", "wb__reader_fill(m->rest, INT64_MAX)", ["io_npy", "io_idx"]),
    ("columns are read as rows", "src/io/numpy/npy.c", "column_major = h->fortran && h->ndim > 1", "column_major = h->fortran && h->ndim > 2", ["io_npy"]),
    ("a producer's deleter is called twice", "src/io/dlpack.c", "    end_owner(o);\n    return x;", "    end_owner(o);\n    end_owner(o);\n    return x;",
     ["io_dlpack"]),
    ("a tensor's checksum is not compared", "src/io/safetensors/checksums.c", "if (sum != e->sum)", "if (sum != e->sum && !e->bytes)", ["checkpoints"]),
    ("holes between tensors are accepted", "src/io/safetensors/header.c", "if (t->begin == end) continue;", "if (t->begin >= end) continue;",
     ["io_safetensors"]),
    ("missing tensors are accepted without .lenient", "src/io/model/load_state.c", "        if (!o->lenient)\n", "        if (!o->lenient && !m.lacking)\n", ["io_model"]),
    ("'*' loses the first character that it matches", "src/io/model/load_state.c", "(int)(m - 1), model, name + n - 1);", "(int)(m - 1), model, name + n);", ["io_model", "io_torch"]),
    ("a kernel is not flipped", "src/io/model/load_state.c", "(wb__flip)(uintptr_t)*at != e->flip", "(wb__flip)(uintptr_t)*at == e->flip", ["io_flux_travel"]),
    ("a GRU's second bias need not be zero", "src/io/model/torch_names.c",
     "row->zeros = row->x->dims[0] / other->unused;", "row->zeros = 0;",
     ["io_torch"]),
    ("Julia's sizes are not reversed", "src/io/flux/value.c", "for (int i = 0; i < a->ndim / 2; i++) {", "for (int i = 0; i < a->ndim / 4; i++) {",
     ["io_flux_read"]),
    ("a Dense's weight is not transposed", "src/io/flux/read_layers.c", "if (f->kind <= WB__FIELD_LAST_GATE) wb__jl_transpose(&s->a);",
     "if (f->kind == WB__FIELD_DEPTHWISE) wb__jl_transpose(&s->a);", ["io_flux_read"]),
    ("a field of Flux's table is another option", "src/io/flux/fields.c", 'FIELD("k", "window", AXES_OF_SPACE)', 'FIELD("k", "stride", AXES_OF_SPACE)',
     ["io_flux_travel"]),
    ("a type's parameters are in another order", "src/io/flux/fields.c", '"q_proj attn_drop out_proj"', '"q_proj out_proj attn_drop"',
     ["io_flux_travel"]),
    ("a JLD2 array of a Dense is not transposed", "src/io/jld2/jld2.c", "if (bias && !stride) marks |=", "if (bias && stride) marks |=", ["io_jld2"]),
    ("a conversion is made on a device that lacks the dtype", "src/engine/move.c", "if (!x->device || x->device->backend->has_dtype(x->device, t)) return wb_astype(x, t);",
     "return wb_astype(x, t);", ["device_move"]),
    ("a loader goes on in the order of another one", "src/data/loader.c", "i < WB__LOADER_WORDS; i++)\n        if (state[i] != own[i]",
     "i < WB__LOADER_SHUFFLE; i++)\n        if (state[i] != own[i]", ["data_loader", "data_streams"]),
    ("a PNG file may lack its end", "src/io/image/codecs.c", "if (good && !status && whole) return 0;", "if (good && !status) return 0;", ["io_images"]),
    ("JLD2 leaves out bools and what Weber lacks", "src/io/jld2/jld2.c", "if (!many || class == WB__H5T_STRING ||", "if (!many || class == WB__H5T_ENUM || class == WB__H5T_STRING ||", ["io_jld2"]),
    ("JLD2 gives bools that are neither 0 nor 1", "src/io/jld2/jld2.c", "a->data[bad - 1] <= 1", "a->data[bad - 1] <= 2", ["io_jld2"]),
    ("JLD2 follows links to other files", "src/io/jld2/hdf5.c", "(void)data;\n    return -1;", "(void)data;\n    return 0;", ["io_jld2"]),
    ("JLD2 reads values of other files", "src/io/jld2/jld2.c", "r->h->H5Pget_external_count(made) == 0", "r->h->H5Pget_external_count(made) >= 0", ["io_jld2"]),
    ("the gates of a GRUv3 are joined in the other order", "src/io/flux/read_kinds.c", "memcpy(all, upper, 2 * bytes);\n        memcpy(all + 2 * bytes, lower, bytes);",
     "memcpy(all, lower, bytes);\n        memcpy(all + bytes, upper, 2 * bytes);", ["io_flux_kinds"]),
    ("a Bilinear's weight has two axes in the wrong order", "src/io/model/transpose.h", "((k * dims[1] + j) * dims[0] + i)", "((j * dims[2] + k) * dims[0] + i)",
     ["io_flux_kinds"]),
    ("the paddings of Flux's axes are not reversed", "src/io/flux/read_layers.c", "const int from = axes - 1 - i;", "const int from = i;", ["io_flux_read"]),
    ("a tied array of a cell renames its child", "src/io/flux/read_layers.c", "wb__branch_put(&l->node, i, name, *shared);", "wb__branch_put(&l->node, i, s->child, *shared);",
     ["io_flux_read"]),
    ("an option that only later versions of Flux have is dropped", "src/io/flux/save_layers.c", "case WB__FIELD_PAD_MODE: return *value != WB_PAD_CONSTANT;",
     "case WB__FIELD_PAD_MODE: return false;", ["io_flux_write"]),
    ("a kernel of Flux's Conv is not marked as flipped", "src/io/flux/table.c", "kind == WB__FIELD_KERNEL ? WB__FLIP_NO", "kind != WB__FIELD_DEPTHWISE ? WB__FLIP_NO",
     ["io_flux_travel"]),
    ("a back-reference is one off", "src/io/bson/bson.c", ".next = f->ref_at[k - 1]}", ".next = f->ref_at[k % f->n_refs]}", ["io_flux_read"]),
    ("references to references are followed without limit", "src/io/bson/bson.c", "    f->unfold_left -= n;\n", "    f->unfold_left -= n ? 0 : n;\n", ["io_flux_hostile", "io_memory"]),
    ("the best checkpoint is removed with the old ones", "src/train/keep.c", "if ((i != best || !o->best) && wb__file_remove(k->files[i].path))",
     "if (i && wb__file_remove(k->files[i].path))", ["checkpoints"]),
    ("a resumed loader starts from the beginning", "src/train/checkpoint.c", "if (!status && c->loader) status = wb__loader_restore(",
     "if (!status && c->loader && !c->model) status = wb__loader_restore(", ["checkpoints", "train_loop"]),
    ("a checkpoint without its random counters", "src/train/checkpoint.c", "wb__rng_set_state((wb__rng_state){r->random[0], r->random[1]});",
     "wb__rng_set_state((wb__rng_state){r->random[0], 0});", ["checkpoints", "train_loop"]),
    ("WB_NONE is added to a scope", "src/engine/scope.c", "wb_scope *s = wb_is_none(object) ? NULL : current(", "wb_scope *s = current(",
     [LOOPS, SCOPES]),
    ("a batch function may wait for its own loader", "src/data/prefetcher.c", "{ return preparing == f; }", "{ return preparing == f && !f; }",
     ["data_unlabelled"]),
    ("the first folds are not longer than the others", "src/data/folds.c", "*start + n / k + (i < n % k);", "*start + n / k;", ["data_views"]),
    ("random numbers of a map depend on the thread", "src/data/prefetcher.c", "wb__rng_exchange((wb__rng_state){f->key, (uint64_t)number << 32});", "wb__rng_get_state();", ["data_workers"]),
    ("workers read a stream at the same time", "src/data/prefetcher.c", "while (f->turn != fetched->index && fetched->index < f->last)", "while (f->turn > fetched->index && fetched->index < f->last)", ["data_streams"]),
    ("the first failure in time counts, not the first in order", "src/data/prefetcher.c", "if (status && number < f->failed) {", "if (status && f->failed == INT64_MAX) {", ["data_workers"]),
    ("a map of one observation gets its number in the root", "src/data/fetch.c", "    translate_one(d, n, below);\n    const int status = wb__dataset_apply", "    translate(d, n, below);\n    const int status = wb__dataset_apply", ["data_workers"]),
    ("the buffer of a stream loses its last observation", "src/data/stream.c", "if (i != s->count) copy_row(s, row, last);", "if (i > s->count) copy_row(s, row, last);", ["data_streams"]),
    ("16 bits of a PNG file count as linear light", "src/io/image/codecs.c", "p.flags |= PNG_16_BIT_SRGB;", "p.flags |= 0;", ["io_images"]),
    ("alpha is taken for a colour", "src/io/image/image.c", "if (c == (wanted ? 3 : 1)) return", "if (c == 3) return", ["io_images"]),
    ("classes of images are in the order of the folder", "src/data/image_folder.c", "if (!status && found->n > first)\n        qsort", "if (!status && found->n < first)\n        qsort", ["io_images"]),
    ("a fractional number of observations is rounded", "src/data/folds.c", "o.counts && sizes[k] != nearbyint(sizes[k])", "o.counts && sizes[k] != sizes[k]", ["data_views"]),
    ("windows begin one after the other", "src/data/parts.c", "rows[i * root->window + j] = index[i] * root->stride + j;", "rows[i * root->window + j] = index[i] + j;", ["data_views"]),
    ("joined datasets begin with their second observation", "src/data/parts.c", "if (root->first[middle] <= i) low = middle;", "if (root->first[middle] < i) low = middle;", ["data_views"]),
    ("a mapped file is read from its first byte", "src/data/mapped.c", "r->file.offset + first * r->row;", "first * r->row;", ["io_raw"]),
    ("the lengths of padded sequences are all the greatest", "src/data/sequences.c", "length[i] = (int32_t)size;\n        longest", "length[i] = 3;\n        longest", ["data_sequences"]),
    ("negative labels are sorted like positive ones", "src/data/groups.c", "bits[i] = -(bits[i] & INT64_MAX);", "bits[i] &= INT64_MAX;", ["data_views"]),
    ("training continues in a loader that was stopped", "src/train/train.c", "        if (ended) break;",
     "if (running < 0) break;", ["train_loop"]),
    ("of a tied parameter only the first path is frozen", "src/optim/adjust.c", "is_below(s->paths[i].path, path)",
     "is_below(s->slots[s->paths[i].slot].path, path)", ["optim_rules"]),
    ("a loss that guards an update counts as consumed", "src/engine/evaluate.c", "if (x_waits) wb__unconsumed_add(t, x);",
     "(void)x_waits;", ["optim_rules"]),
    ("of two finite-loss guards only the second counts", "src/engine/evaluate.c", "wb_where(wb_isfinite(x), y, other)",
     "wb_where(wb_isfinite(y), y, other)", ["optim_rules"]),
    ("an opaque part has an empty gradient", "src/tree/walk.c", "->is_opaque) return WB_NONE;", "->is_opaque && !m) return WB_NONE;", ["tree_walk"]),
    ("a tie takes the first of two different values", "src/io/model/load_state.c", "else if (memcmp(a, b, bytes_of(l->x)))", "else if (a != b && !m)", ["io_model"]),
    ("preferences are read from a pipe", "src/device/preference.c", "if (!S_ISREG(about.st_mode))", "if (S_ISDIR(about.st_mode))", [PREFERENCES]),
    ("a dimension of 2^32 elements", "src/engine/check.c", "if (dims[i] > WB__MAX_DIM || (dims[i]", "if ((dims[i]", ["limits"]),
    ("a count of 2^32 elements in 32 bits", "src/engine/ops/powers.c", "x->size > UINT32_MAX ? WB_I64 : WB_I32", "x->size < 0 ? WB_I64 : WB_I32", ["limits"]),
    ("a size of zero hides the other sizes", "src/engine/check.c", "bound *= WB__MAX(dims[i], 1);", "bound *= dims[i];", ["limits"]),
    ("a list of tensors may be NULL", "src/engine/ops/concat.c", "if (n < 1 || !x) {", "if (n < 1) {", ["limits"]),
    ("a tree may have any depth", "src/tree/branch.c", "if (node->depth <= WB__MAX_DEPTH) return true;", "if (node) return true;", ["limits"]),
    ("kernels of several programs are merged", "src/engine/plan/segments.c", "gone[j] || !same_program(&m->step[i], d)",
     "gone[j]", [SEMANTICS, GRAPH]),
    ("no kernels are merged", "src/engine/plan/segments.c", "gone[j] || !same_program(&m->step[i], d)",
     "gone[j] || j > 0", ["optim_mixed_training"]),
    ("a variable that others read is written in place", "src/engine/plan/placement.c", "(reader[to] == -1 || reader[to] == g)", "(reader[to] != g || true)",
     [SEMANTICS, GRAPH, "optim_mixed_training"]),
    ("a key twice in an object of JSON", "src/io/json.c", "if (!strcmp(texts[i - 1], texts[i])) return texts[i];",
     "if (texts[i - 1] == texts[i]) return texts[i];", ["io_json"]),
    ("the number of nodes of JSON does not include keys", "src/io/json.c", "(*text == ',' || *text == ':' || ", "(*text == ',' || ",
     ["io_json"]),
    ("an escaped quote ends a text of JSON", "src/io/json.c", "if (inside && *text == '\\\\' && text[1]) text++;",
     "if (0) text++;", ["io_json"]),
    ("a member's key is returned as its value", "src/io/json.c", "return v + (v->kind == WB__JSON_KEY);", "return v;", ["io_json"]),
    ("a graph joins collectives only at its end", "src/backend/gpu/runtime/graph.c", "return s->waits ? s->waits[i].waits_for + 1 - s->first : 0;",
     "return s->waits ? 0 * i : 0;", ["ranks_nccl"]),
    ("a routine beside the compute queue does not wait for what is before it", "src/backend/gpu/runtime/aside.c",
     "    if (!code) code = d->driver->wait_event(d, WB__GPU_ASIDE, k->aside->before);\n", "", ["ranks_nccl"]),
    ("the compute queue does not wait for a routine beside it", "src/backend/gpu/runtime/graph.c",
     "const int code = wb__gpu_join(d, (const wb__gpu_kernel *)s->kernels[*complete]);", "const int code = 0 * d->recording;", ["ranks_nccl"]),
    ("a routine beside the compute queue is joined at once", "src/backend/gpu/runtime/aside.c", "    code = d->driver->record(d, WB__GPU_ASIDE, &k->aside->after);",
     "    code = d->driver->record(d, WB__GPU_ASIDE, &k->aside->after);\n    if (!code) code = d->driver->wait_event(d, WB__GPU_COMPUTE, k->aside->after);", ["ranks_nccl"]),
    ("memory of a collective is free before it is complete", "src/engine/plan/arena.c", "*last = WB__MAX(*last, WB__MIN(end, s->n - 1));", "*last = WB__MAX(*last, i);", ["ranks_nccl"]),
    ("operations on the host's memory pass through NCCL in spite of .through", "src/dist/nccl.c", "    c->perform = host.perform;", "    if (status) c->perform = host.perform;", ["ranks_nccl*2"]),
    ("an MPI that is there is not shown", "src/cli/ranks.c", "        found++;\n", "", ["device_command"]),
    ("weber devices does not ask for NCCL", "src/cli/ranks.c", "const char *text = b->library(i);", "const char *text = i ? NULL : b->library(i);", ["device_command"]),
    ("a rank updates the part of another", "src/optim/ranks.c", "WB__MIN(s->part * length, n), end", "WB__MIN((s->parts - 1 - s->part) * length, n), end", ["shard*3"]),
    ("the norm of a divided state is that of the own part", "src/optim/update.c", "if (sum && u->state->parts > 1) sum = wb__ranks_sum(sum, &u->before);", "", ["shard*3"]),
    ("a pending update comes after a function of all ranks", "src/dist/tensors.c", "return !t->exchanged || t->recording || !wb__evaluate_keeping(1, &x);", "return t || x;", ["order*2"]),
    ("the last update of a rank that is a thread stays pending", "src/dist/run.c", "if (!status) status = wb__end_pending_exchange();", "", [THREADS + " reads_its_last_loss"]),
    ("a rendezvous removes files of the program", "src/dist/rendezvous_file.c", "if (n == (ssize_t)sizeof head && !memcmp(head, magic, sizeof head)) return 0;", "if (n >= 0 || memcmp(head, magic, sizeof head)) return 0;", [MEETING]),
    ("a barrier overtakes a pending update", "src/dist/tensors.c", "return t->exchanged && !t->recording ? wb__evaluate_keeping(0, NULL) : 0;", "return t && 0;", ["order*2"]),
    ("pending updates of two states mix their operations", "src/optim/ranks.c", "    *before = t->exchanged;\n    return 0;", "    return before == NULL;", ["order*2"]),
    ("ranks do not agree on gradients that are not finite", "src/optim/update.c", "if (total && s->parts > 1) total = wb__ranks_sum(total, &u->before);", "", ["shard*3"]),
    ("moments of a divided state are whole", "src/optim/state.c", "if (s->parts > 1) dims[0] = wb__part_length(s, slot);", "if (s->parts > 99) dims[0] = wb__part_length(s, slot);", ["shard*3"]),
    ("a state of other ranks is used", "src/optim/ranks.c", "if (!s->rule->shard || (", "if (s->parts || (", ["shard*3"]),
    ("the ranks keep their own hyperparameters", "src/dist/synchronise.c", "*wb__rule_number(o, i) = numbers[i];", "numbers[i] = 0;", ["shard*3"]),
    ("a state that one rank has loaded is synchronised", "src/dist/synchronise.c", "if (!status && wb__is_divided(c->state)) status = compare_steps", "if (status && wb__is_divided(c->state)) status = compare_steps", ["shard*3"]),
    ("parts of a moment are written in another order", "src/dist/divided.c", "const int sent = send_part(s, slot, k, r, p);\n        if (!status) status = sent;\n        if (!status) status = f(", "const int sent = send_part(s, slot, k, s->parts - 1 - r, p);\n        if (!status) status = sent;\n        if (!status) status = f(", ["shard*3"]),
    ("the gradient of gathered tensors is not scattered", "src/engine/ops/collective.c", "[WB__COLLECT_ALLGATHER] = WB__COLLECT_REDUCE_SCATTER}",
     "[WB__COLLECT_ALLGATHER] = WB__COLLECT_ALLREDUCE}", ["ranks*3"]),
    ("parts of a reduction that is scattered are not counted from the result", "src/backend/collective.c",
     "s->collective == WB__COLLECT_REDUCE_SCATTER ? out : in", "s->collective == WB__COLLECT_REDUCE_SCATTER ? out / 2 : in", ["ranks*3"]),
    # Ranks that are threads of one process.
    ("a tensor is read from a device under the lock of all tensors", "src/engine/tensor.c", "if (copy && b->download(s->device, copy, s->data, 0, s->bytes)) {",
     "pthread_mutex_lock(&mirrors);\n    const int bad = copy ? b->download(s->device, copy, s->data, 0, s->bytes) : 0;\n    pthread_mutex_unlock(&mirrors);\n    if (bad) {",
     [THREADS + " while_another"]),
    ("a loader's thread belongs to no rank", "src/data/prefetcher.c", "wb__thread_rank = f->rank;", "", [THREADS + " are_threads"]),
    ("threads of the pool belong to no rank", "src/base/parallel.c", "wb__thread_rank = pool.rank;", "", [THREADS + " are_threads"]),
    ("each rank that is a thread logs notes", "src/base/log.c", "without_info || wb__thread_rank > 1", "without_info", [THREADS + " are_threads"]),
    ("ranks do not begin with the caller's random numbers", "src/dist/run.c", "if (r->seeded) wb__rng", "if (!r->seeded) wb__rng", [THREADS + " are_threads"]),
    ("all ranks of a process use its first GPU", "src/device/select.c", "c->local_rank % all.n", "0 * c->local_rank", [THREADS + " are_threads"]),
    ("the queues of the ranks are one", "src/backend/collective.c", "return &queues[wb__thread_rank];", "return &queues[0];", [THREADS + " are_threads"]),
    ("a compiled function of another rank runs", "src/engine/compiled/compile.c", "if (c->rank != wb__thread_rank)", "if (c->rank > 100)", [THREADS + " wrong_uses"]),
    ("a thread that is no rank trains as rank 0", "src/dist/dist.c", "communicator.perform = refuse;", "if (!n_ranks) communicator.perform = refuse;", [THREADS + " wrong_uses"]),
    ("all ranks share the room for the plans of one", "src/engine/cache.c", "limit * WB__MAX(wb__ranks_here(), 1) - 1", "limit - 1",
     [THREADS + " room_for_its_plans"]),
    ("ranks wait for one that has failed", "src/backend/nccl/ranks.c", "if (r->waiting && is_over(r->since)) abort_rank(r);", "if (r->waiting > 99) abort_rank(r);", [THREADS + " a_rank_that_fails"]),
    ("ranks get no time to end", "src/backend/nccl/ranks.c", "enum { GRACE = 1 };", "enum { GRACE = 0 };", [THREADS + " time_to_end"]),
    ("a wait that was ended has succeeded", "src/backend/nccl/ranks.c", "return r->aborted ? lost : code;", "return code;",
     [THREADS + " a_rank_that_fails"]),
    ("ranks wait for one that cannot be connected", "src/backend/nccl/ranks.c", "if (status && n_ranks > 1) wb__nccl_ranks_give_up(wb_error());", "",
     [THREADS + " cannot_be_connected"]),
    ("processes have different numbers of ranks", "src/dist/nccl.c", "if (!status && i->devices != devices)", "if (!status && i->devices > 99)",
     [THREADS + " other_numbers"]),
    ("the others do not learn why rank 0 has no id", "src/dist/nccl.c", "const int status = p->size > 1 ?", "const int status = p->size > 1 && !i->status ?",
     [THREADS + " without_an_id"]),
    # RCCL
    ("ranks with RCCL are not watched while they wait", "src/backend/amdgpu/amdgpu.c", "#define API_WAIT(call) (wb__nccl_wait_begins(), ", "#define API_WAIT(call) ((void)0, ", [CHOICE]),
    ("a wait of RCCL that was ended has succeeded", "src/backend/amdgpu/amdgpu.c", "wb__nccl_wait_ends(call, hipErrorLaunchFailure)", "wb__nccl_wait_ends(call, 0)",
     ["cuda_ranks@AMDGPU a_rank_that_fails"]),
    ("RCCL's operations are on the compute queue", "src/backend/amdgpu/rccl.c", "return wb__hip_of(d)->stream[q];", "return wb__hip_of(d)->stream[q == WB__GPU_ASIDE ? WB__GPU_COMPUTE : q];", ["ranks_nccl@AMDGPU"]),
    ("an RCCL with another HIP is used", "src/backend/amdgpu/rccl.c", "return !ours || wb__gpu_shares(", "return !ours || f || wb__gpu_shares(", ["amdgpu_libraries"]),
    ("NCCL is used for GPUs of AMD", "src/dist/nccl.c", "const char *in_use = wb__gpu_backend_in_use();", "const char *in_use = \"CUDA\";", [CHOICE]),
    ("a preferred backend that is not loaded chooses no library", "src/device/select.c", "    if (row < 0) row = named;\n    wb__registry_unlock();", "    wb__registry_unlock();", [CHOICE]),
    ("GPUs of AMD are not tried", "src/dist/nccl.c", "if (wb__nccl_ranks_devices(used = libraries[i])) return 0;", "if (wb__nccl_ranks_devices(used = libraries[i]) && (named || !i)) return 0;", [CHOICE]),
    ("ranks use NCCL and RCCL", "src/dist/nccl.c", "if (!strcmp(used->name, name)) return 0;", "if (*name) return 0;", [CHOICE]),
    # Ranks
    ("a rank that fails leaves the others waiting", "src/dist/dist.c", "    if (!failed) {", "    if (true) {", [ENDS]),
    ("all ranks print notes", "src/dist/dist.c", "wb__log_without_info(communicator.rank > 0);", "wb__log_without_info(false);", [ENDS]),
    ("ranks are connected twice", "src/dist/dist.c", "    if (backend)\n        return", "    if (backend && false)\n        return", [RANKS]),
    ("the values of rank 0, whatever root is given", "src/dist/synchronise.c", "status = share_variable(c->variable[i], root);",
     "status = share_variable(c->variable[i], 0);", [RANKS]),
    ("objects of other shapes are taken for the same", "src/dist/synchronise.c", "wb__mix(h, (uint64_t)x->dims[k]);", "wb__mix(h, 0);", [RANKS]),
    ("the moments of a state stay those of each rank", "src/dist/synchronise.c", "k < c->state->n_moments && !status", "k < 0 && !status", [RANKS]),
    ("the step counts of a state stay those of each rank", "src/dist/synchronise.c", "slot->steps = words[0];", "",
     [RANKS, "shard*3"]),
    ("the checksum of a tensor leaves its first word out", "src/dist/synchronise.c", "for (size_t i = 0; i < bytes; i += sizeof h) {",
     "for (size_t i = 8; i < bytes; i += sizeof h) {", [ENDS]),
    ("an extreme over the ranks drops NaN", "src/dist/tensors.c", "return how >= WB_RANKS_MIN &&", "return how > WB_RANKS_MAX &&", [RANKS]),
    ("MPI is initialised again after its end", "src/dist/mpi/mpi.c", "    if (is_finalised())\n        return services->fail(WB_ERROR_ARGUMENT, \"distributed_initialise",
     "    if (level < 0)\n        return services->fail(WB_ERROR_ARGUMENT, \"distributed_initialise", [ENDS]),
    ("a mean over the ranks is a sum", "src/dist/tensors.c", "if (y && how == WB_RANKS_MEAN)", "if (y && false)", [RANKS]),
    ("a reduction is returned on the wrong ranks", "src/dist/tensors.c", "return wb_distributed_rank() == root ?", "return wb_distributed_rank() != root ?", [RANKS]),
    ("the seed of rank 0 is not shared", "src/dist/dataset.c", "return wb__from_rank(seed, WB_I64, 1, 0);", "return 0;", [RANKS]),
    ("the last share is short", "src/data/dataset.c", "(d->n + ranks - 1) / ranks", "d->n / ranks", [RANKS]),
    ("shares begin at observation 0", "src/data/dataset.h", "(share->rank + i * share->ranks) %", "(i * share->ranks) %", [RANKS]),
    ("the last observation of a shuffled share is another one", "src/data/loader.c", "order[last] = at_last;", "order[last] = order[0];", [RANKS]),
    ("a share's loader draws a seed of its own", "src/data/loader.c", "share_of(d) ? share_of(d)->seed : draw_seed()", "draw_seed()", [RANKS]),
    ("the minimum over the ranks is their maximum", "src/dist/mpi/mpi.c", "op == WB__RANKS_MIN ? MPI_MIN : MPI_MAX", "op == WB__RANKS_MIN ? MPI_MAX : MPI_MAX", [RANKS]),
    ("a broadcast comes from rank 0", "src/dist/mpi/mpi.c", "MPI_Bcast(to, n * (int)size, MPI_BYTE, c->root, comm)", "MPI_Bcast(to, n * (int)size, MPI_BYTE, 0, comm)", [RANKS]),
    ("a process of weber launch trains alone", "src/dist/mpi/mpi.c", "if (c->size > 1 || n <= 1) return 0;", "if (c->size > 0 || n <= 1) return 0;", [ENDS]),
    ("a process of srun trains alone", "src/dist/mpi/mpi.c", "\"SLURM_STEP_NUM_TASKS\"};", "\"SLURM_STEP_TASKS\"};", [ENDS]),
    ("a distributed rule prints like any other", "src/optim/rules.c", "if (rule->bucket) wb__text_add(t, \"DistributedOptimiser(\");", "", ["guides*3"]),
    ("a rank waits in MPI_Finalize for ever", "src/dist/mpi/mpi.c", "begin_watch(\"MPI_Finalize\", 0);", "end_watch();", [ENDS]),
    ("a rank waits a thousand times as long", "src/dist/mpi/mpi.c", "services->timeout * 1e9", "services->timeout * 1e12", [ENDS]),
    ("operations run in another order", "src/backend/collective.c", "q->waiting[i] = q->waiting[i + 1];", "q->waiting[i] = q->waiting[q->n];", [QUEUE]),
    ("the failure of an operation is forgotten", "src/backend/collective.c", "q->status = status;", "q->status = 0;", [QUEUE]),
    ("operations go on after a failure", "src/backend/collective.c", "    if (!status) {\n        const double start", "    if (true) {\n        const double start", [QUEUE]),
    ("an operation is begun before those that wait", "src/backend/collective.c", "if (!q->overlap && !q->n) return false;", "if (!q->overlap) return false;", [QUEUE]),
    ("a report counts the operations of the one before", "src/backend/collective.c", "    q->totals = (wb__collective_totals){0};", "", [QUEUE]),
    ("a step of several batches has their sum", "src/optim/ranks.c", "(double)wb__world()->size * (double)batches)", "(double)wb__world()->size * (batches > 0))", ["accumulate*2"]),
    ("gradients are sums over the ranks", "src/optim/ranks.c", "1 / ((double)wb__world()->size * (double)batches)", "1 / (double)batches", [RANKS]),
    ("each rank guards its update by its own loss", "src/optim/update.c", "wb__ranks_mean(s, u->batches, u->g, &u->loss, &u->before);",
     "wb__ranks_mean(s, u->batches, u->g, &(wb_tensor *){u->loss}, &u->before);", [RANKS]),
    ("loaders of the ranks have different lengths", "src/train/train.c", "if (least[i] != most[i])", "if (least[i] != most[i] && i)", [RANKS]),
    ("ranks train different numbers of epochs", "src/train/train.c", "if (least[i] != most[i])", "if (least[i] != most[i] && i != 1)", ["order*2"]),
    (".each of one rank stops the training of that rank", "src/train/train.c", "    t->stop |= most[0] != 0;\n", "", ["order*2"]),
    (".each of one rank ends the epoch of that rank", "src/train/train.c", "    if (!*ended && most[1]) wb_loader_stop(t->data);\n    *ended |= most[1] != 0;\n", "", ["order*2"]),
    ("a rank alone has gradients of other parameters", "src/optim/ranks.c", "same = same && sum == c->size * mine;", "same = same && (sum || !sum);", ["order*2"]),
    ("a rank waits for others after the program has finalised MPI", "src/dist/mpi/mpi.c", "    if (is_finalised()) {               /* by", "    if (0) {               /* by", [ENDS]),
    ("ranks compare what they exchange only once", "src/optim/ranks.c", "if (mine == s->agreed) return 0;", "if (mine == s->agreed || s->agreed) return 0;", [ENDS]),
    ("a recording exchanges other gradients than the other ranks", "src/optim/update.c", "c->agreed != c->state->agreed || c->changes", "c->changes", [ENDS]),
    ("the ranks draw the same random numbers", "src/train/train.c", "(uint64_t)wb__world()->rank * 0x9E3779B97F4A7C15u", "0", [RANKS]),
    ("the order of batches does not go on where the checkpoint was", "src/train/train.c", "    at[1] = (uint64_t)words[1];\n    return wb__loader_restore(t->data, at);", "    return 0;", [RANKS]),
    ("each rank writes checkpoints", "src/train/train.c", "    if (!is_first(t) && !wb__is_divided(t->state)) return 0;\n", "", [RANKS]),
    ("the device of a rank is that of its number among all ranks", "src/device/select.c", "c ? c->local_rank % all.n : 0", "c ? c->rank % all.n : 0", [REGISTRY]),
    # Ranks with GPUs
    ("MPI reads a GPU's memory before the GPU has written it", "src/backend/gpu/runtime/collective.c", "c->ready ? d->driver->sync_event(c->ready) : 0;", "0;", [AWARE]),
    ("MPI gets a GPU's memory although a preference says no", "src/dist/mpi/mpi.c", "\"FluxDistributedMPICUDAAware\", &takes_cuda);", "\"FluxDistributedMPIROCMAware\", &takes_cuda);", [AWARE]),
    ("AMDGPU's memory is taken for CUDA's", "src/dist/mpi/mpi.c", "!strcmp(name, \"AMDGPU\") ? takes_rocm", "!strcmp(name, \"AMDGPU\") ? takes_cuda", [AWARE]),
    ("the result of the ranks does not come back to the GPU", "src/backend/gpu/runtime/collective.c",
     "        status = wb__gpu_upload_pinned(base, a->y_memory, a->y_at, a->result, a->to_bytes);", "        status = 0;", [AWARE]),
    ("pinned memory is read before an upload from it has ended", "src/backend/gpu/runtime/transfer.c", "    status = wait_half(d, s, 0);\n    if (!status) status = download_queue(d, m, bytes, &queue);\n    const",
     "    status = download_queue(d, m, bytes, &queue);\n    const", [ORDER]),
    ("a tensor is broadcast on a GPU before it is copied", "src/dist/tensors.c", "if (!status) status = d->backend->wait(d);", "", [AWARE]),
    ("a preference that is neither true nor false is ignored", "src/device/preference.c", "else if (kind != WB__TOML_ABSENT)\n        e = wb__fail(WB_ERROR_FORMAT, \"%s: %s of", "else if (kind == WB__TOML_TABLE)\n        e = wb__fail(WB_ERROR_FORMAT, \"%s: %s of", [AWARE]),
    # Rendezvous and places
    ("the local rank is the rank", "src/dist/place.c", "read_number(n->local_rank, n, 0, p->local_size - 1,", "read_number(n->rank, n, 0, p->size - 1,", [MEETING]),
    ("a group of Slurm's machines counts as one", "src/dist/place.c", "first += (int)times;", "first += 1;", [MEETING]),
    ("variables of MPI's launcher are read before those of weber launch", "src/dist/place.c", "    if (any_set(&weber)) return &weber;\n    if (any_set(&open_mpi)) return &open_mpi;",
     "    if (any_set(&open_mpi)) return &open_mpi;\n    if (any_set(&weber)) return &weber;", [MEETING]),
    ("numbers of ranks are not compared", "src/dist/rendezvous.c", "if (size != (uint32_t)o->size)", "if (size < (uint32_t)o->size)", [MEETING]),
    ("a rank may come twice", "src/dist/rendezvous.c", "    if (h->come[rank])      ", "    if (!h->come[0])        ", [MEETING]),
    ("a rank that has gone counts as come", "src/dist/rendezvous.c", "        h->missing++;\n", "", [MEETING]),
    ("rank 0 does not wait for receipts", "src/dist/rendezvous.c", "if (c->rank > 0 && !receive_all(c->file, &receipt, 1, until))", "if (c->rank < 0)", [MEETING]),
    ("an answer to the call of another run counts", "src/dist/rendezvous_file.c", "return n == ANSWER && !memcmp(answer, magic, 8) && !memcmp(answer + 20, number, NUMBER);",
     "return n == ANSWER && !memcmp(answer, magic, 8);", [MEETING]),
    ("a file of the rendezvous that is too long is taken", "src/dist/rendezvous_file.c", "length - begin != n ||", "length - begin < n ||", [MEETING]),
    # weber launch
    ("more ranks are polled than the process may open files", "src/cli/launch.c", "const int n = l->started;", "const int n = l->n;", [LAUNCH]),
    ("the lines of all ranks begin with 0", "src/cli/launch.c", "fprintf(s->to, \"[%d] \", rank);", "fprintf(s->to, \"[%d] \", 0 * rank);", [LAUNCH]),
    ("a rank that fails leaves the others running", "src/cli/launch.c", "    if (l->failed >= 0) end_all(l);\n", "", [LAUNCH]),
    ("a signal is not added to 128", "src/cli/launch.c", "p->signal ? STATUS_SIGNAL + p->signal : p->status", "p->signal ? p->signal : p->status", [LAUNCH]),
    ("a given address of the rendezvous is replaced", "src/cli/launch.c", "if (!is_set(\"WEBER_RENDEZVOUS\")) {", "if (true) {", [LAUNCH]),
    ("each rank has as many threads as the machine has processors", "src/cli/launch.c", "wb__system_processors() / n", "wb__system_processors()", [LAUNCH]),
    ("all ranks are rank 0", "src/cli/launch.c", "set_number(\"WEBER_RANK\", rank)", "set_number(\"WEBER_RANK\", 0)", [LAUNCH]),
    ("what a rank has left running goes on", "src/cli/launch.c", "        end_rank(p);\n        if (l->failed < 0", "        if (l->failed < 0", [LAUNCH]),
    ("a second signal is passed on like the first", "src/cli/launch.c", "if (l->passed) kill_rank", "if (false) kill_rank", [LAUNCH]),
]

# The words of a script, and what is built for it; programs are paths in the folder of the build.
SCRIPTS = {
    ENDS: (["mpirun.openmpi", "tests/ends_openmpi"], ["ends_openmpi"]),
    AWARE: (["mpirun.openmpi", "tests/aware_openmpi"], ["aware_openmpi"]),
    LAUNCH: (["weber", "tests/rendezvous"], ["weber_cli", "rendezvous"]),
    CHOICE: (["weber", "tests/ends_nccl"], ["weber_cli", "ends_nccl"]),
}


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **more)


def program(test):
    """The program of a test NAME[@DEVICE] [OPTION...]; DEVICE becomes the default device."""
    name, ranks, _ = test.split()[0].partition("@")[0].partition("*")
    return name + "_openmpi" if ranks else name


def targets(tests):
    """What is built for tests."""
    return sorted({name for test in tests for name in
                   (SCRIPTS[test][1] if test in SCRIPTS else [program(test)])})


class Copy:
    """A copy of the sources and its build, in a folder of their own."""

    def __init__(self, folder):
        self.root, self.build = folder / "tree", folder / "build"
        listing = run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"])
        for name in filter(None, listing.stdout.split("\n")):
            source, target = ROOT / name, self.root / name
            # A file of an earlier run that is the same keeps its time, which is later than that of
            # an object with a fault.
            if source.is_file() and not (target.is_file() and filecmp.cmp(source, target, False)):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def configure(self):
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        return run(["cmake", "-S", str(self.root), "-B", str(self.build), *generator,
                    "-DCMAKE_BUILD_TYPE=Release", "-DWEBER_ONEDNN=OFF", "-DWEBER_EXAMPLES=OFF",
                    "-DWEBER_BENCH=OFF", "-DWEBER_TESTS=ON"])

    def make(self, tests):
        return run(["cmake", "--build", str(self.build), "-j", str(os.cpu_count() or 2),
                    "--target", *tests])

    def fails(self, test):
        """A text that describes how the test fails, or None if it passes."""
        name, *options = test.split()
        name, _, device = name.partition("@")
        name, _, ranks = name.partition("*")
        command = [str(self.build / "tests" / program(test)), *options]
        if ranks:
            command = ["mpirun.openmpi", "-np", ranks, *command]
        if test in SCRIPTS:
            words = SCRIPTS[test][0]
            paths = [str(self.build / word) for word in words]
            command = [sys.executable, str(self.root / "tests" / "dist" / test),
                       *(path if os.path.exists(path) else word
                         for path, word in zip(paths, words))]
        double = self.build / "tests" / "vgpu"
        environment = dict(os.environ, WEBER_CACHE_DIR=str(self.build / "cache"),
                           POCL_CACHE_DIR=str(self.build / "pocl"),
                           VGPU_CACHE=str(self.build / "vgpu"), WEBER_CUDA_PATH=str(double),
                           WEBER_CUDA_LIBRARY=str(double / "libcuda.so.1"),
                           WEBER_ROCM_PATH=str(double) + "_hip", VGPU_STRICT="1")
        metal = Path(str(double) + "_metal")
        environment.update(WEBER_METAL_LIBRARY=str(metal / "Metal"), WEBER_METAL_PATH=str(metal),
                           VGPU_LIBRARY=str(double / "libcuda.so.1"))
        if device:
            environment["WEBER_TEST_DEVICE"] = device
        if ranks or test in (ENDS, AWARE):
            environment.update(WEBER_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                               VGPU_NCCL_FAIL="Broadcast:1")
        if test == CHOICE:
            environment.update(WEBER_BACKENDS="AMDGPU", VGPU_DEVICES="3")
        elif device and name in ("ranks_nccl", "cuda_ranks"):
            environment["WEBER_BACKENDS"] = device
        if device == "Metal":           # by MPS and MPSGraph
            environment.update(WEBER_METAL_MPS="1", WEBER_METAL_MPSGRAPH="1", VGPU_MACOS="15",
                               WEBER_MATMUL_PRECISION="high")
        try:
            done = run(command, timeout=300, env=environment)
            return test if done.returncode else None
        except subprocess.TimeoutExpired:
            return test + ", which does not end within 300 s"


def try_fault(copy, fault):
    """(the test that found the fault, ""), or (None, the reason)"""
    _, name, old, new, tests = fault
    path = copy.root / name
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return None, f"CANNOT BE PLANTED: the text occurs {text.count(old)} times"
    path.write_text(text.replace(old, new), encoding="utf-8")
    try:
        made = copy.make(targets(tests))
        if made.returncode:
            return None, "DOES NOT COMPILE: " + made.stdout[-300:]
        for test in tests:
            failure = copy.fails(test)
            if failure:
                return failure, ""
        return None, "SURVIVES " + ", ".join(tests)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="numbers of faults, separated by commas")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--build", help="a folder for the copy and its build, which is kept")
    options = parser.parse_args()
    chosen = [int(n) for n in options.only.split(",")] if options.only else range(len(TABLE))
    if options.list:
        for number in chosen:
            print(f"{number:3} {TABLE[number][0]:72} {TABLE[number][1]}")
        return 0
    folder = Path(options.build or tempfile.mkdtemp(prefix="weber-faults-"))
    survivors = 0
    try:
        copy = Copy(folder)
        made = copy.configure()
        tests = sorted({test for number in chosen for test in TABLE[number][4]})
        if not made.returncode:
            made = copy.make(targets(tests))
        if made.returncode:
            print(made.stdout[-3000:])
            return 1
        for test in tests:
            if copy.fails(test):
                print(f"{test} fails without any fault: no fault can be tested")
                return 1
        for number in chosen:
            test, reason = try_fault(copy, TABLE[number])
            survivors += test is None
            result = "caught by " + test if test else reason
            print(f"{number:3} {TABLE[number][0]:72} {result}", flush=True)
    finally:
        if not options.build:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(list(chosen)) - survivors} of {len(list(chosen))} planted faults were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
