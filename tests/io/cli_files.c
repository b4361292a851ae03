/* `weber show` and `weber convert`, run as a user runs them. */
#include "folder.h"
#include "shared_data.h"

#include "base/files/file.h"
#include "io/safetensors/safetensors.h"
#include "tree/tree.h"

#include <sys/stat.h>
#include <unistd.h>

#define WEBER(...) \
    process_run(&p, folder, (const char *const[]){NULL}, \
                (const char *const[]){WB_TEST_COMMAND, __VA_ARGS__, NULL})

static process p;

static void succeeded(const char *out, const char *err)
{
    if (p.status) fail_msg("exit status %d: %s", p.status, p.err);
    assert_string_equal(p.out, out);
    assert_string_equal(p.err, err);
}

static void failed(const char *const *facts)
{
    assert_int_equal(p.status, 1);
    assert_string_equal(p.out, "");
    if (!has_facts(p.err, facts)) fail_msg("the message is: %s", p.err);
    assert_memory_equal(p.err, "weber: ", 7);
}
#define PRINTS_ERROR(...) failed(FACTS(__VA_ARGS__))

static void prints(const char *words)
{
    if (!strstr(p.out, words)) fail_msg("\"%s\" is not in:\n%s%s", words, p.out, p.err);
}

static wb_layer *make_model(void)
{
    wb_seed(5);
    return wb_Chain(wb_Conv(1, 3, {3, 2}, wb_relu, .flip = true), wb_BatchNorm(3), wb_Flatten(),
                    wb_Dense(24, 4, wb_tanh));
}

/* Checks that the model `other` has the leaf's tensor, bit by bit. */
static int same_leaf(const wb__leaf *leaf, void *other)
{
    wb_tensor *y = wb_get(other, leaf->path);
    assert_non_null(y);
    assert_string_equal(wb_describe(leaf->x), wb_describe(y));
    assert_memory_equal(wb_data(leaf->x), wb_data(y),
                        (size_t)leaf->x->size * wb__dtype_size((wb_dtype)leaf->x->dtype));
    return 0;
}

static void same(void *a, void *b)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(wb__walk("compare", a, NULL, 0, same_leaf, b), 0);
}

/* ---- show ------------------------------------------------------------------------------------ */

static void put_safetensors(const char *name, const char *header, int64_t bytes)
{
    wb__writer *w = wb__writer_open(in_folder(name));
    uint8_t length[8] = {(uint8_t)strlen(header), (uint8_t)(strlen(header) >> 8)};
    wb__writer_put(w, length, 8);
    wb__writer_put(w, header, (int64_t)strlen(header));
    for (int64_t i = 0; i < bytes; i++) wb__writer_put(w, "", 1);
    assert_int_equal(wb__writer_close(w), 0);
}

typedef struct { wb_tensor *mean; wb_layer *inner; } standardise;
static wb_tensor *call_standardise(const standardise *s, wb_tensor *x)
{
    return wb_call(s->inner, wb_sub(x, s->mean));
}
WB_LAYER(standardise, call_standardise, mean, inner)

/* The command cannot build parts of a program, and lists what it knows of them. */
TEST(shows_models_of_programs)
{
    wb_layer *own = wb_layer_of(standardise, .mean = wb_zeros(2), .inner = wb_Dense(2, 3));
    wb_layer *m = wb_Chain(own, wb_named("last", wb_Dense(3, 1)));
    WORKS(wb_save(in_folder("own.safetensors"), m));
    WEBER("show", "own.safetensors");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.err, "");
    prints("own.safetensors: a model, safetensors, 5 tensors, ");
    prints("It has parts of the program that saved it");
    prints("\n  Chain\n    0: standardise, a struct of the program\n      inner: Dense\n"
           "    last: Dense\n");
    prints("  layers.0.mean          f32    [2] ");
    WEBER("convert", "own.safetensors", "own.npz");
    succeeded("own.npz: 5 tensors by name\n",
              "weber: own.npz: only the tensors; NPZ files cannot hold layers\n");
    WEBER("convert", "own.safetensors", "own.bson");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.out, "own.bson: 5 tensors by name\n");
    assert_non_null(strstr(p.err, "converting its tensors by name"));
}

TEST(shows_models)
{
    assert_int_equal(
        wb_save(in_folder("m.safetensors"), wb_Chain(wb_Dense(2, 3, wb_relu), wb_Dense(3, 1))), 0);
    WEBER("show", "m.safetensors");
    succeeded("Chain(\n"
              "  Dense(2 => 3, relu),                  # 9 parameters\n"
              "  Dense(3 => 1),                        # 4 parameters\n"
              ")                   # Total: 4 arrays, 13 parameters, 52 bytes.\n", "");
    assert_int_equal(wb_save(in_folder("tree.safetensors"), wb_tuple(wb_zeros(300, 2), wb_ones(1))),
                     0);
    WEBER("show", "tree.safetensors");
    succeeded("tree.safetensors: safetensors, 2 tensors, 2.348 KiB\n"
              "  name  dtype  shape    bytes\n"
              "  0     f32    [300,2]  2.344 KiB\n"
              "  1     f32    [1]      4 bytes\n", "");
}

TEST(shows_what_others_wrote)
{
    put_safetensors("torch.safetensors", "{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"a\\u001b[31m\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],"
                    "\"data_offsets\":[0,6]},"
                    "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[6,8]}}", 8);
    WEBER("show", "torch.safetensors");
    succeeded("torch.safetensors: safetensors, 2 tensors, 8 bytes\n"
              "  format = pt\n"
              "  name       dtype    shape  bytes\n"
              "  a\\x1b[31m  F8_E4M3  [2,3]  6 bytes\n"
              "  b          bf16     []     2 bytes\n", "");
}

/* Integers that are widened have the wider dtype, nine axes are no dtype. */
TEST(shows_what_it_reads)
{
    put_safetensors("narrow.safetensors",
                    "{\"a\":{\"dtype\":\"I16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                    "\"b\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[12,16]}}", 16);
    WEBER("show", "narrow.safetensors");
    succeeded("narrow.safetensors: safetensors, 2 tensors, 32 bytes\n"
              "  name  dtype  shape  bytes\n"
              "  a     i32    [2,3]  24 bytes\n"
              "  b     i64    [1]    8 bytes\n", "");
    WEBER("convert", "narrow.safetensors", "narrow.npz");
    succeeded("narrow.npz: 2 tensors by name\n", "");
#ifdef WB_HAVE_ZIP                      /* without it NPZ files are written, and not read */
    WEBER("show", "narrow.npz");
    prints("  a     i32    [2,3]  24 bytes\n  b     i64    [1]    8 bytes\n");
#endif
    put_safetensors("nine.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],"
                    "\"data_offsets\":[0,8]}}", 8);
    WEBER("show", "nine.safetensors");
    prints("  a     F32    9 axes  8 bytes\n");
    WEBER("convert", "nine.safetensors", "nine.npz");
    PRINTS_ERROR("nine.safetensors", "more than 8 axes", "\"a\": F32 with 9 axes");
}

/* A sparse file of 10 GB: `weber show` reads only its header. */
TEST(shows_large_ones)
{
    put_safetensors("large.safetensors", "{\"x\":{\"dtype\":\"F32\",\"shape\":[50000,50000],"
                    "\"data_offsets\":[0,10000000000]}}", 0);
    struct stat about;
    assert_int_equal(stat(in_folder("large.safetensors"), &about), 0);
    assert_int_equal(truncate(in_folder("large.safetensors"), about.st_size + 10000000000), 0);
    WEBER("show", "large.safetensors");
    succeeded("large.safetensors: safetensors, 1 tensor, 9.313 GiB\n"
              "  name  dtype  shape          bytes\n"
              "  x     f32    [50000,50000]  9.313 GiB\n", "");
}

TEST(shows_checkpoints)
{
    wb_layer *model = wb_Dense(2, 1);
    wb_opt_state *s = wb_setup(wb_Adam(.eta = 0.25), model);
    wb_checkpoint c = {.model = model, .state = s, .epoch = 7, .name = "run"};
    assert_int_equal(wb_save_checkpoint(in_folder("c.safetensors"), &c), 0);
    WEBER("show", "c.safetensors");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.err, "");
    prints("c.safetensors: a checkpoint, safetensors, 6 tensors, 36 bytes\n");
    prints("  name = run\n");
    prints("  epoch = 7\n");
    prints("  rule = Adam(eta = 0.25, ");
    prints("  state = of 2 parameters\n");
    prints("  model.weight    f32    [1,2]  8 bytes\n");
}

TEST(shows_arrays)
{
    assert_int_equal(wb_save_npy(in_folder("x.npy"), wb_zeros(3, 5)), 0);
    WEBER("show", "x.npy");
    succeeded("x.npy: NPY, 1 tensor, 60 bytes\n"
              "  name  dtype  shape  bytes\n"
              "  0     f32    [3,5]  60 bytes\n", "");
    wb__file_write(in_folder("x.idx"), "\0\0\x0b\2\0\0\0\2\0\0\0\3abcdefghijkl", 24);
    WEBER("show", "x.idx");
    succeeded("x.idx: IDX, 1 tensor, 12 bytes\n"
              "  name  dtype  shape  bytes\n"
              "  0     i32    [2,3]  12 bytes\n", "");
}

TEST(shows_flux_models)
{
#ifndef WB_HAVE_BSON
    printf("SKIP: built without libbson\n");
    fflush(stdout);
    skip();
#else
    char path[512];
    if (!shared_file(path, sizeof path, "flux-models/juliacon2020-model_conv.bson")) skip();
    WEBER("show", path);
    assert_int_equal(p.status, 0);
    prints("    0: Conv, relu                               # 640 bytes\n");
    prints("      weight: Array{Float32,4}                  # f32 [16,1,3,3], 576 bytes\n");
    prints("    6: closure #3#4                             # unknown here");
    prints("1 part is unknown here");
    assert_true(shared_file(path, sizeof path, "flux-models/sjrodahl-dnc.bson"));
    WEBER("show", path);
    assert_int_equal(p.status, 0);
    prints("    cell: DNC.DNCCell                           # unknown here, 9 parts, ");
    prints("        cell: LSTMCell");
    prints("2 parts are unknown here");
    prints("  model.cell.8: DNC.State\n");
    assert_true(shared_file(path, sizeof path, "flux-models/tetsugps-mnist_conv.bson"));
    WEBER("show", path);
    prints("  acc: 0.9928\n");
    prints("    6: Array{Float32,2}                         # f32 [288,10], 11.250 KiB\n");
#endif
}

TEST(reports_what_is_wrong)
{
    WEBER("show", "absent.bson");
    PRINTS_ERROR("absent.bson", "No such file or directory");
    process_file(folder, "text.txt", "just text");
    WEBER("show", "text.txt");
    PRINTS_ERROR("text.txt", "safetensors", "BSON", "NPZ", "NPY", "IDX");
    wb__file_write(in_folder("cut.idx"), "\0\0\x0b\2\0\0\0\2\0\0\0\3abc", 15);
    WEBER("show", "cut.idx");
    PRINTS_ERROR("cut.idx", "byte 12", "3", "12", "bytes");
    static const char *const names[] = {"m.safetensors", "x.npy", "c.safetensors"};
    for (size_t i = 0; i < WB__COUNT(names); i++) {
        int64_t n;
        char *bytes = wb__file_read(in_folder(names[i]), &n), cut[64];
        assert_non_null(bytes);
        snprintf(cut, sizeof cut, "cut-%s", names[i]);
        for (int64_t at = 0; at < n; at += 1 + n / 16) {
            assert_int_equal(wb__file_write(in_folder(cut), bytes, at), 0);
            WEBER("show", cut);
            PRINTS_ERROR(cut);
        }
        wb__free(bytes);
    }
    WEBER("show");
    assert_int_equal(p.status, 2);
}

/* ---- convert --------------------------------------------------------------------------------- */

TEST(models_stay_models)
{
    wb_layer *model = make_model();
    assert_int_equal(wb_save(in_folder("a.safetensors"), model), 0);
    WEBER("convert", "a.safetensors", "b.bson");
    succeeded("b.bson: a model\n", "");
#ifdef WB_HAVE_BSON
    WEBER("convert", "b.bson", "c.safetensors");
    succeeded("c.safetensors: a model\n", "");
    same(model, wb_load(in_folder("c.safetensors")));
    WEBER("convert", "a.safetensors", "s.bson", "--structs", "--flux", "0.13", "--key", "net");
    succeeded("s.bson: a model\n", "");
    WEBER("convert", "s.bson", "d.safetensors");
    succeeded("d.safetensors: a model\n", "");
    same(model, wb_load(in_folder("d.safetensors")));
    WEBER("convert", "s.bson", "part.bson", "--key", "net.layers.0");
    succeeded("part.bson: a model\n", "");
    same(wb_layer_at(model, "layers.0"), wb_load(in_folder("part.bson"), .key = "model"));
    WEBER("convert", "s.bson", "d.safetensors", "--key", "other");
    assert_int_equal(p.status, 1);
    assert_true(HAS_FACTS(p.err, "\"other\"", "net"));
#endif
    WEBER("convert", "a.safetensors", "t.safetensors", "--torch");
    succeeded("t.safetensors: a model\n", "");
    wb__table t;
    assert_int_equal(wb__st_load(in_folder("t.safetensors"), false, &t), 0);
    /* BatchNorm is layer 2, since relu becomes layer 1 of PyTorch's Sequential. */
    assert_non_null(wb__table_find(&t, "2.running_mean"));
    wb__table_free(&t);
    same(model, wb_load(in_folder("t.safetensors")));
}

TEST(tensors_go_by_name)
{
#ifndef WB_HAVE_ZIP
    printf("SKIP: built without libzip\n");
    fflush(stdout);
    skip();
#else
    wb_layer *model = make_model();
    assert_int_equal(wb_save(in_folder("a.safetensors"), model), 0);
    WEBER("convert", "a.safetensors", "a.npz");
    succeeded("a.npz: 8 tensors by name\n",
              "weber: a.npz: only the tensors; NPZ files cannot hold layers\n");
    WEBER("convert", "a.npz", "back.safetensors");
    succeeded("back.safetensors: 8 tensors by name\n", "");
    wb_layer *other = wb_Chain(wb_Conv(1, 3, {3, 2}, wb_relu, .flip = true), wb_BatchNorm(3),
                               wb_Flatten(), wb_Dense(24, 4, wb_tanh));
    assert_int_equal(wb_load_state(in_folder("back.safetensors"), other), 0);
    same(model, other);
    WEBER("convert", "a.npz", "one.npy", "--tensor", "layers.3.weight");
    succeeded("one.npy: 1 tensor\n", "");
    wb_tensor *one = wb_load_npy(in_folder("one.npy"));
    assert_non_null(one);
    assert_string_equal(wb_describe(one), "[4,24] f32");
    assert_memory_equal(wb_data(one), wb_data(wb_get(model, "layers.3.weight")), 4 * 24 * 4);
    WEBER("convert", "one.npy", "one.npz");
    succeeded("one.npz: 1 tensor by name\n", "");
#endif
}

TEST(unknown_parts_go_as_tensors)
{
#ifndef WB_HAVE_BSON
    printf("SKIP: built without libbson\n");
    fflush(stdout);
    skip();
#else
    char path[512];
    if (!shared_file(path, sizeof path, "flux-models/sjrodahl-dnc.bson")) skip();
    WEBER("convert", path, "dnc.safetensors");
    assert_int_equal(p.status, 0);
    assert_true(HAS_FACTS(p.err, "DNC.DNCCell", "tensors"));
    prints("tensors by name");
    assert_true(shared_file(path, sizeof path, "flux-models/juliacon2020-model_conv.bson"));
    WEBER("convert", path, "conv.safetensors");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.out, "conv.safetensors: a model\n");
    WEBER("convert", "conv.safetensors", "conv.bson", "--structs");
    assert_int_equal(p.status, 0);
    same(wb_load(path), wb_load(in_folder("conv.bson")));
#endif
}

TEST(refuses)
{
    assert_int_equal(wb_save(in_folder("two.safetensors"), wb_tuple(wb_ones(2), wb_ones(3))), 0);
    WEBER("convert", "two.safetensors", "two.xyz");
    PRINTS_ERROR("two.xyz", ".safetensors", ".bson", ".npz", ".npy");
    WEBER("convert", "two.safetensors", "two.onnx");
    PRINTS_ERROR("two.onnx", ".inputs");
    WEBER("convert", "two.safetensors", "two.npy");
    PRINTS_ERROR("two.npy", "two.safetensors", "2", "--tensor NAME");
    WEBER("convert", "two.safetensors", "two.npy", "--tensor", "7");
    PRINTS_ERROR("two.safetensors", "\"7\"");
    WEBER("convert", "two.safetensors", "x.safetensors", "--torch");
    PRINTS_ERROR("two.safetensors", "model");
    WEBER("convert", "two.safetensors", "x.npz", "--structs");
    PRINTS_ERROR("x.npz", "--structs", "--flux", "BSON");
    put_safetensors("f8.safetensors",
                    "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    WEBER("convert", "f8.safetensors", "x.npz");
    PRINTS_ERROR("\"x\"", "F8_E4M3");
    assert_int_not_equal(access(in_folder("x.npz"), F_OK), 0);
    WEBER("convert", "two.safetensors");
    assert_int_equal(p.status, 2);
    WEBER("convert", "two.safetensors", "x.npz", "--unheard-of");
    assert_int_equal(p.status, 2);
}

TEST(idx_becomes_an_array)
{
    wb__file_write(in_folder("x.idx"), "\0\0\x0b\1\0\0\0\2\1\2\xff\xfe", 12);
    WEBER("convert", "x.idx", "x.npy");
    succeeded("x.npy: 1 tensor\n", "");
    wb_tensor *x = wb_load_npy(in_folder("x.npy"));
    assert_non_null(x);
    assert_memory_equal(wb_data(x), ((int32_t[]){258, -2}), 8);
    WEBER("convert", "x.idx", "x.safetensors");
    succeeded("x.safetensors: 1 tensor\n", "");
    static const char *const names[] = {"x.idx", "x.safetensors"};
    for (int i = 0; i < 2; i++) {
        wb_tree *t = wb_load_tensors(in_folder(names[i]));
        assert_non_null(t);
        assert_memory_equal(wb_data(wb_get(t, "0")), ((int32_t[]){258, -2}), 8);
    }
}

int main(void) { return run_cases(make_folder, remove_folder); }
