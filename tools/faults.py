"""What tools/mutate.py knows about the sources: the tests of each file, accepted mutants, and the
faults that no mutation of one place makes.
"""
import re

ALL_MPI = "ranks_openmpi_3 order_openmpi_2 shard_openmpi_3 accumulate_openmpi_2 ends_openmpi"
LAYERS = "nn_layers nn_more_layers nn_sequences"
PLANS = "engine_plans engine_epilogues engine_placement engine_values conformance_graph graph_fuzz"
GPU = "gpu_library gpu_fused runtime_commands runtime_graph cuda_graph"

# The first row whose text begins a file's name has the tests of ctest that reach the file.
REACH = [
    ("src/backend/amdgpu/miopen", "amdgpu_miopen amdgpu_libraries"),
    ("src/backend/amdgpu/rccl", "ranks_rccl_2 amdgpu_libraries"),
    ("src/backend/amdgpu/", "amdgpu_runtime amdgpu_rocm amdgpu_libraries amdgpu_faults"
                            " conformance_product_amdgpu"),
    ("src/backend/collective", "collective_queue ranks_openmpi_3"),
    ("src/backend/cpu/cpu_attention", "cpu_attention cpu_attention_cached conformance_product"),
    ("src/backend/cpu/conv/", "cpu_lib cpu_winograd conformance_product"),
    ("src/backend/cpu/onednn/", "cpu_lib cpu_products engine_forms conformance_product"),
    ("src/backend/cpu/product/int8", "cpu_int8 nn_quantised"),
    ("src/backend/cpu/product/", "cpu_products engine_plans conformance_product"),
    ("src/backend/cpu/tile/", "cpu_tile cpu_tile_rows engine_values engine_halves conformance"
                              " graph_fuzz conformance_graph gpt_golden faults"),
    ("src/backend/cpu/", "cpu_lib cpu_tile conformance conformance_product indexed parts linalg"
                         " graph_fuzz"),
    ("src/backend/cuda/dnn", "cuda_dnn cuda_plans cuda_timing cuda_libraries"),
    ("src/backend/cuda/", "cuda_runtime cuda_libraries cuda_product cuda_timing cuda_graph"
                          " cuda_faults cuda_versions"),
    ("src/backend/gpu/kernels/attention", "gpu_attention"),
    ("src/backend/gpu/kernels/fragments", "cuda_fragments"),
    ("src/backend/gpu/kernels/", "gpu_library indexed_opencl cuda_fragments"
                                 " conformance_product_opencl parts_opencl"),
    ("src/backend/gpu/fused", "gpu_fused gpu_fused_rows gpu_fused_products cuda_folds cuda_rows"
                              " engine_values_opencl graph_fuzz_opencl"),
    ("src/backend/gpu/runtime/collective", "aware_openmpi ranks_nccl_2"),
    ("src/backend/gpu/runtime/", "runtime_commands runtime_graph runtime_memory runtime_faults"
                                 " cuda_graph cuda_branches cuda_timing cuda_guard ranks_nccl_2"),
    ("src/backend/gpu/", f"gpu_texts {GPU} cuda_product cuda_tiles conformance_product_opencl"),
    ("src/backend/kernel_cache", "kernel_cache"),
    ("src/backend/metal/mps", "metal_libraries conformance_product_mps"),
    ("src/backend/metal/", "metal_runtime metal_faults metal_libraries conformance_metal"),
    ("src/backend/nccl/", "cuda_ranks ranks_nccl_2 ends_nccl"),
    ("src/backend/opencl/", "opencl_runtime opencl_faults opencl_memory opencl_intel"),
    ("src/backend/", f"{PLANS} {GPU}"),
    ("src/base/files/", "base_file io_memory io_npy io_safetensors"),
    ("src/base/lapack", "linalg"),
    ("src/base/mutex", "base_mutex data_loader"),
    ("src/base/numbers/", "base_dtype conformance cpu_tile_rows base_philox scalar"),
    ("src/base/options", "api_forms api_misuse older_headers"),
    ("src/base/parallel", "base_parallel engine_embedded cpu_tile"),
    ("src/base/toml", "toml device_preferences fuzz_toml"),
    ("src/base/", "base_core base_parallel base_mutex api_forms api_misuse notices plain_numbers"
                  " io_npy io_idx hashes"),
    ("src/cli/doctor", "doctor"),
    ("src/cli/explain", "errors"),
    ("src/cli/launch", "launch rendezvous"),
    ("src/cli/", "cli_files device_command launch doctor errors"),
    ("src/data/image_folder", "io_images"),
    ("src/data/", "data_loader data_workers data_views data_streams data_sets data_fields"
                  " data_unlabelled data_sequences io_raw ranks_openmpi_3"),
    ("src/device/", "device_registry device_preferences device_move"),
    ("src/dist/mpi/", f"{ALL_MPI} aware_openmpi"),
    ("src/dist/nccl", "cuda_ranks ranks_nccl_2 ends_nccl ends_rccl"),
    ("src/dist/place", "rendezvous launch"),
    ("src/dist/rendezvous", "rendezvous strangers launch"),
    ("src/dist/", f"ranks_alone cuda_ranks {ALL_MPI}"),
    ("src/engine/claims", "engine_claims engine_semantics cuda_ranks"),
    ("src/engine/compiled/", "engine_compile engine_compile_state engine_compile_calls"
                             " engine_claims engine_slices onnx_models"),
    ("src/engine/forms", "engine_forms"),
    ("src/engine/gradient/", "conformance composed faults engine_check"),
    ("src/engine/ops/attention", "conformance_product engine_epilogues engine_halves nn_layers"),
    ("src/engine/ops/collective", "ranks_openmpi_3 buckets_openmpi_2"),
    ("src/engine/ops/custom", "engine_custom"),
    ("src/engine/ops/linalg", "linalg"),
    ("src/engine/ops/", "conformance_shape conformance conformance_graph conformance_product"
                        " composed parts indexed engine_values limits"),
    ("src/engine/plan/", f"{PLANS} engine_halves conformance_shape padded_opencl cuda_branches"
                         " small_products_opencl graph_rules_opencl buckets_openmpi_2"),
    ("src/engine/", "engine_semantics engine_loops engine_scopes engine_check engine_reading"
                    " engine_slices engine_numerics device_move wrong_kinds optim_guard_cuda"),
    ("src/io/bson/", "io_flux_read io_flux_write io_flux_travel io_flux_hostile io_memory"),
    ("src/io/dataset/", "io_csv io_csv_text io_idx"),
    ("src/io/dlpack", "io_dlpack device_dlpack"),
    ("src/io/flux/", "io_flux_read io_flux_travel io_flux_kinds io_flux_write io_flux_tables"
                     " io_flux_hostile"),
    ("src/io/image/", "io_images"),
    ("src/io/jld2/", "io_jld2"),
    ("src/io/json", "io_json text_errors"),
    ("src/io/model/", "io_model io_torch checkpoints nn_lora own_layers train_failures"),
    ("src/io/numpy/", "io_npy io_npz"),
    ("src/io/onnx/", "onnx_models onnx_graphs onnx_hostile onnx_files onnx_ml onnx_control"
                     " onnx_write onnx_batch onnx_written"),
    ("src/io/pretrained/", "pretrained_files pretrained_models"),
    ("src/io/protobuf", "onnx_files onnx_hostile"),
    ("src/io/safetensors/", "io_safetensors checkpoints"),
    ("src/io/text/", "text_tokens text_errors"),
    ("src/io/torch/", "io_pt io_torch io_unfold"),
    ("src/io/wav", "io_wav"),
    ("src/io/", "io_npz io_pt io_safetensors io_model io_flux_tables cli_files io_json"),
    ("src/nn/loss", "nn_losses nn_loss_options nn_loss_weights"),
    ("src/nn/ctc", "nn_loss_options"),
    ("src/nn/lora", "nn_lora"),
    ("src/nn/metrics", "metrics"),
    ("src/nn/own", "own_layers"),
    ("src/nn/quantised", "nn_quantised"),
    ("src/nn/recompute", "recompute"),
    ("src/nn/recurrence", "nn_recurrence nn_sequences"),
    ("src/nn/s", "signals nn_show nn_sequences nn_more_layers pretrained_models"),
    ("src/nn/transformer", "nn_layers pretrained_models pretrained_files"),
    ("src/nn/", f"{LAYERS} nn_activations nn_faults model_tools nn_lora io_torch"),
    ("src/ops/", "conformance engine_values"),
    ("src/optim/accumulate", "optim_accumulate accumulate_openmpi_2"),
    ("src/optim/ranks", "shard_openmpi_3 buckets_openmpi_2 ranks_openmpi_3 order_openmpi_2"),
    ("src/optim/schedules", "schedules"),
    ("src/optim/", "optim_formulas optim_rules optim_groups optim_whole optim_mixed optim_guard"
                   " optim_accumulate schedules optim_frozen"),
    ("src/train/logger", "logger"),
    ("src/train/svg", "pictures logger"),
    ("src/train/checkpoint", "checkpoints train_loop optim_mixed_training optim_mixed"),
    ("src/train/", "train_loop train_extras train_failures logger notices model_tools checkpoints"
                   " optim_accumulate order_openmpi_2"),
    ("src/tree/", "tree_walk model_tools nn_show own_layers limits device_move"),
]

# Functions whose surviving mutants are accepted: {(file, function): the reason}.
ACCEPTED = {
    ("src/backend/cpu/tile/plan.c", "tile_plan_value_of"):
        "no long row that was tried has another result",
    ("src/backend/cuda/driver.c", "is_pool_function"): "the doubles of drivers have all functions",
    ("src/device/select.c", "fail_without_gpu"):
        "the reasons of all backends are shorter than its buffer",
    ("src/engine/ops/conv.c", "wb_conv_transpose_with"): "x and w change places in a message",
    ("src/engine/plan/arena.c", "arena_choose_branch"):
        "a plan without branches computes the same bits",
    ("src/io/bson/bson_write.c", "wb__doc_real"): "no test lets its allocation fail",
}

# What is wrong; the file and the function, table, macro or type; a regular expression that occurs
# in it once, and its replacement; the tests of which one must fail.  A fault is here if it needs
# two places, another name, a text or a line of the preprocessor, or if its file is not in C.
FAULTS = [
    ("a function may be gone", "tools/abi.py", "changes", r"removed\|changed", "changed", "abi"),
    ("the two files keep names that two sources have", "tools/amalgamate.py", "section",
     r"\{own\}__", "", "amalgamation"),
    ("the two files' AVX2 kernels are compiled for all processors", "tools/amalgamate.py",
     "section", r"\{isa\}(?=\"\)\)\), apply_to)", "sse2", "amalgamation"),
    ("the hash in the recipes is not the archive's", "tools/dist.py", "make_recipes",
     r"sha256\(content\)", "sha256(content[:-1])", "recipes"),
    ("the modes in the archive depend on git's settings", "tools/dist.py", "",
     r'"-c", "tar.umask=0022", ', "", "recipes"),
    ("a recipe sets an option that CMakeLists.txt does not have", "packaging/nix/package.nix", "",
     "-DWEBER_UTF8PROC=ON", "-DWEBER_UTF8=ON", "recipes"),
    ("a page of the guide has another number than its block prints",
     "docs/site/guide/gradients.md", "", "(?<=1.00 -2.00 3.0)0", "1", "docs_blocks"),
    ("an example of the reference fails", "docs/site/examples.c", "algebra",
     r"wb_solve\(a, b\)", "wb_solve(a, wb_ones(4))", "docs_blocks"),
    ("a function of the reference has no example", "docs/site/examples.c", "elementwise",
     r"y = wb_tanhshrink\(x\);", "", "docs_reference"),

    # Texts and macros
    ("the two files may assume finite numbers", "src/base/base.h", "",
     "(?<=__FINITE_MATH_ONLY__ > )0", "9", "amalgamation"),
    ("a solution is of the transposed matrix", "src/engine/ops/linalg.c", "solve_each",
     '"T"', '"N"', "linalg"),
    ("a type's parameters are in another order", "src/io/flux/fields.c", "wb__flux_structs",
     "attn_drop out_proj", "out_proj attn_drop", "io_flux_travel"),
    ("a program that ends with an error counts as one that runs", "src/cli/doctor_program.c",
     "doctor_program_scripts", r"program \|\| exit 14(?=.n\",)", "program", "doctor"),
    ("a process of srun trains alone", "src/dist/mpi/mpi.c", "check_launcher", "STEP_NUM_TASKS",
     "STEP_TASKS", "ends_openmpi"),
    ("MPI gets a GPU's memory although a preference says no", "src/dist/mpi/mpi.c",
     "ask_for_gpu_support", "MPICUDAAware", "MPIROCMAware", "aware_openmpi"),
    ("the first row with an index is set", "src/backend/gpu/kernels/rows.k", "TAKE_LAST",
     r"s = \(v\);", "", "indexed_opencl"),
    ("a query sees the key after it", "src/backend/gpu/kernels/attention.k", "SEEN",
     r"\+ shift", "+ shift + 1", "gpu_attention"),
    ("a stage of keys is read while it is loaded", "src/backend/gpu/kernels/attention_fragments.k",
     "KEPT", "(?<=KEPT )BARRIER", "(void)0", "gpu_attention"),
    ("a sum of integers overflows before the weight's scale is in it", "src/backend/kinds.h",
     "WB__INT8_DOWN", "-25", "-0", "nn_quantised"),
    ("exponentials are added that are too large for a sum", "src/backend/gpu/prelude.k",
     "TAKE_EXP", r"\(v\) > r \+ 8.0f", "r == -INFINITE", "engine_values_opencl"),
    ("the last of equal maxima gets the gradient", "src/backend/gpu/kernels/pool.k", "BEATS",
     r"\(x\) > \(m\)", "(x) >= (m)", "gpu_library"),
    ("Winograd: a point is rounded to four digits", "src/backend/cpu/conv/winograd_kernel.h",
     "ROOT_2", "1.4142[0-9]*f", "1.4142f", "cpu_winograd"),
    ("the group of the last chunk combines all chunks", "src/backend/gpu/fused_reductions.c",
     "reductions_emit_combine", "ticket == a.chunks - 1", "GRP(1) == a.chunks - 1", "cuda_folds"),
    ("tiles share a counter", "src/backend/gpu/fused_reductions.c", "reductions_emit_combine",
     r"counters \+ GRP\(0\)", "counters", "cuda_folds"),
    ("a loop over four rows at once leaves the others out", "src/backend/gpu/fused_reductions.c",
     "reductions_over_rows", r"%d \* lanes;", "%d * 0;", "gpu_fused"),
    ("vectors of columns have one sum", "src/backend/gpu/fused_reduction_text.c",
     "wb__reduction_emit_local", r"%du \+ lane", "%du", "gpu_fused"),
    ("CUDA: a thread block takes the row before its own", "src/backend/gpu/runtime/table.c",
     "gpu_table_text", "<= blockIdx.x", "< blockIdx.x", "cuda_graph"),
    ("ranks with RCCL are not watched while they wait", "src/backend/amdgpu/amdgpu.c", "API_WAIT",
     r"wb__nccl_wait_begins\(\)", "(void)0", "ends_rccl"),

    # What happens in another order, at another time, or under another lock
    ("a step has the workspace of cuDNN's first engine", "src/backend/cuda/dnn.c", "cudnn_prepare",
     r"(cudnn_choose_plan\(d, prepared\);)\s*(prepared->base.workspace = [^;]*;)", r"\2 \1",
     "cuda_timing cuda_dnn"),
    ("a routine beside the compute queue is joined at once", "src/backend/gpu/runtime/aside.c",
     "wb__gpu_aside_fork", r"code = [^;]*(?=aside->after)[^;]*;",
     r"\g<0> if (!code) code = d->driver->wait_event(d, WB__GPU_COMPUTE, k->aside->after);",
     "ranks_nccl_2"),
    ("memory of a collective is free before it is complete", "src/engine/plan/arena.c",
     "arena_find_waits", r"WB__MIN\(end, s->n - 1\)", "i", "shard_nccl_3"),
    ("RCCL's operations are on the compute queue", "src/backend/amdgpu/rccl.c", "rccl_stream",
     r"\[q\]", "[q == WB__GPU_ASIDE ? WB__GPU_COMPUTE : q]", "ranks_rccl_1 ranks_rccl_2"),
    ("a tensor is read from a device under the lock of all tensors", "src/engine/tensor.c",
     "wb__storage_read", r"if \(copy && (b->download\([^)]*\))\)",
     r"wb__mutex_lock(&tensor_mirrors); const int bad = copy ? \1 : 0;"
     " wb__mutex_unlock(&tensor_mirrors); if (bad)", "cuda_ranks"),
    ("the queues of the ranks are one", "src/backend/collective.c", "own_queue",
     r"\[wb__thread_rank\]", "[0]", "cuda_ranks"),
    ("parts of a moment are written in another order", "src/dist/divided.c", "wb__divided_read",
     r"share_part\(s, slot, k, r, p\)", "share_part(s, slot, k, s->parts - 1 - r, p)",
     "shard_openmpi_3"),
    ("a rank updates the part of another", "src/optim/ranks.c", "wb__own_part",
     r"s->part \* length", "(s->parts - 1 - s->part) * length", "shard_openmpi_3"),
    ("each rank guards its update by its own loss", "src/optim/update.c", "update_average",
     r"u->g, &u->loss", "u->g, &(wb_tensor *){u->loss}", "ranks_openmpi_3"),
    ("wb_set replaces what another thread trains", "src/tree/fmap.c", "fmap_replace",
     r"wb__claim\(v, what\)", "(v->claims++, what == NULL)", "engine_claims"),
    ("a copy assigns leaves before it has checked the others", "src/train/average.c",
     "average_prepare_leaf", r"c->all\[c->n\+\+\] = [^;]*;\s*return 0;",
     "c->same++; return wb_assign(to, value);", "model_tools"),
    ("random numbers of a map depend on the thread", "src/data/prefetcher.c", "prefetcher_prepare",
     r"wb__rng_exchange\(\(wb__rng_state\)[^;]*;", "wb__rng_get_state();", "data_workers"),
    ("a replay looks at the wrong guard before", "src/engine/guard.c", "wb__guard_before",
     r"(if \(guard_has_type_of\(t->late.guard, d, guard\)\)) return 0;",
     r"\1 return !(*before = wb__guard_finite(d, guard));", "optim_guard_cuda"),
    ("variables of MPI's launcher are read before those of weber launch", "src/dist/place.c",
     "place_variables",
     r"place_weber\)\) return &place_weber;(\s*if \(is_any_set\(&)open_mpi\)\) return &open_mpi;",
     r"open_mpi)) return &open_mpi;\1place_weber)) return &place_weber;", "rendezvous"),

    # Another name, size or place
    ("all launches have one token", "src/cli/launch.c", "launch_set_token",
     r"if \(!wb__os_random\(number, sizeof number\)\) return false;",
     "memset(number, 7, sizeof number);", "launch"),
    ("folders of kernels are for all users", "src/backend/kernel_cache.c",
     "kernel_cache_make_folders", "path, true", "path, false", "kernel_cache"),
    ("the device of a rank is that of its number among all ranks", "src/device/select.c",
     "first_device_of", "c->local_rank", "c->rank", "device_registry"),
    ("permute's gradient permutes in the same direction", "src/engine/ops/shape.c", "permute",
     r"back\[node->attr\[i\]\] = i;", "back[i] = node->attr[i];", "conformance_graph"),
    ("a stale version is bound", "src/engine/tensor.h", "wb__bind", "x->current", "x->live",
     "engine_semantics conformance_graph"),
    ("AVX2 takes i8 weights as unsigned", "src/backend/cpu/product/int8_avx2.c", "int8_load_weight",
     "cvtepi8_epi16", "cvtepu8_epi16", "cpu_int8"),
    ("16-bit integers without a sign have one", "src/io/table.c", "wb__widen_ints",
     r"(\+ 2 \* i, 2\), )u\)", r"\1(int16_t)u)", "io_safetensors io_pt io_flux_tables"),
    ("the sums of gradients go on after a step", "src/optim/accumulate.c", "add_slot",
     r"wb__zeros_like\(slot->sum\)", "wb__unchanged(slot->sum)", "optim_accumulate"),
    ("the rows of A are its inner indices, for Intel", "src/backend/gpu/kernels/fragments.k",
     "frag_load_a", r"\(short\)p\[i \* row \+ lane \* inner\]",
     "(short)p[lane * row + i * inner]", "cuda_fragments"),
    ("a Bilinear's weight has two axes in the wrong order", "src/io/model/transpose.h",
     "wb__to_rows", r"\(k \* dims\[1\] \+ j\)", "(j * dims[2] + k)", "io_flux_kinds"),
    ("the gradient of gathered tensors is not scattered", "src/engine/ops/collective.c",
     "collective", r"(\[WB__COLLECT_ALLGATHER\] = )WB__COLLECT_REDUCE_SCATTER",
     r"\1WB__COLLECT_ALLREDUCE", "ranks_openmpi_3"),
]


def part(text, name):
    """(begin, end) of every definition of a function, table, macro or type of that name"""
    if not name:
        return [(0, len(text))]
    macro = rf"^#define {name}\b(?:\\\n|[^\n])*"
    python = rf"^def {name}\(.*?(?=^\S(?<!\))|\Z)"
    c = rf"^(?![\s#/*}}])[^\n;]*\b{name}\b(?:[^;{{]*\{{.*?^\}}|[^;{{]*\{{[^\n]*\}};?$)"
    return [m.span() for m in re.finditer(f"{macro}|{python}|{c}", text, re.M | re.S)]


def changes(root, word=""):
    """What mutate.try_all takes, for the faults whose file or description contains the word."""
    rows, wrong = [], []
    for what, file, name, pattern, new, tests in FAULTS:
        path = root / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        hits = [(m, begin) for begin, end in part(text, name)
                for m in re.finditer(pattern, text[begin:end], re.S)]
        if len(hits) != 1:
            wrong.append(f"{file}: {name or 'the file'} has {len(hits)} times {pattern}: {what}")
        elif word in what or word in file:
            hit, at = hits[0]
            begin, end = at + hit.start(), at + hit.end()
            rows.append((file, text[:begin] + hit.expand(new) + text[end:],
                         f"{file} {name}: {what}", tests.split(), (file, name)))
    if wrong:
        raise SystemExit("\n".join(wrong))
    return rows
