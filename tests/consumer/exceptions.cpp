// Exceptions leave functions of a C++ program that the library calls: each arrives behind the call
// of the program, and the library goes on.  Prints one line for each check, as cmocka does.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
#include <weber.h>

static int failures;
static void check(const char *name, bool good)
{
    std::printf(good ? "[       OK ] %s\n" : "[  FAILED  ] %s\n", name);
    failures += !good;
}

struct thrown : std::runtime_error {
    int number;
    explicit thrown(int n) : std::runtime_error("of the program"), number(n) {}
};

/* The number that f throws, or 0. */
template <class F> static int number_of(F f)
{
    try {
        f();
    } catch (const thrown &t) {
        return t.number;
    }
    return 0;
}

/* Whether f throws thrown(number), with the library's message. */
template <class F> static bool throws(int number, F f)
{
    wb_clear_error();
    return number_of(f) == number &&
           std::string(wb_error()).find("has thrown an exception: of the program") !=
               std::string::npos;
}

static wb_tensor *plain_loss(wb_layer *m, wb_batch b, void *)
{
    return wb_mse(wb_call(m, b.x), b.y);
}
static wb_tensor *loss(wb_layer *m, wb_batch b, void *)
{
    wb_scope_open();                                    // left open
    wb_call(m, b.x);
    throw thrown(1);
}
static int calls;
static wb_tensor *second_loss(wb_layer *m, wb_batch b, void *)
{
    if (++calls == 2) throw thrown(2);
    return wb_mse(wb_call(m, b.x), b.y);
}
static int each(int, int64_t, wb_tensor *, void *) { throw thrown(3); }
static double metric(wb_layer *, int, void *) { throw thrown(4); }
static double rate(double, void *) { throw thrown(5); }
static int collate(wb_batch *b, void *)
{
    if (b->index == 2) throw thrown(6);
    return 0;
}
static int get(int64_t i, void *x, void *, void *)
{
    if (i == 40) throw thrown(7);
    *static_cast<float *>(x) = float(i);
    return 0;
}
static int next(void *const *, void *) { throw thrown(8); }
static int restart(int64_t, void *) { return 0; }
static wb_tensor *leaf(wb_tensor *, const char *, void *) { throw thrown(9); }
static int visit(wb_tensor *, const char *, void *) { throw thrown(10); }
static int test(wb_batch, void *) { throw thrown(11); }
static int record(wb_tensor *const *, wb_tensor **, void *) { throw thrown(12); }
static int slope(wb_tensor *, wb_tensor *, int, wb_tensor *const *, wb_tensor **, void *)
{
    throw thrown(13);
}
static int host(int, const wb_host_array *, const wb_host_array *, void *)
{
    wb_scope_open();                                    // left open
    throw thrown(14);
}
/* A call of the library inside throws, too. */
static bool caught_in_host;
static int careful_host(int, const wb_host_array *, const wb_host_array *out, void *)
{
    try {
        wb_dataset_source source = {};
        source.size = sizeof source;
        source.next = next;
        source.restart = restart;
        wb_batch b;
        wb_loader_next(wb_dataloader(wb_dataset_from(&source), 8), &b);
    } catch (const thrown &t) {
        caught_in_host = t.number == 8;
    }
    static_cast<float *>(out->data)[0] = 5;
    return 0;
}
static wb_tensor *init(wb_dtype, int, const int64_t *) { throw thrown(15); }
static wb_tensor *apply(wb_rule_step *, void *) { throw thrown(16); }
static wb_tensor *activation(wb_tensor *) { throw thrown(17); }
static wb_tensor *connection(wb_tensor *, wb_tensor *) { throw thrown(18); }
struct layer {
    int n;
    static wb_tensor *call(const layer *, wb_tensor *) { throw thrown(19); }
};
WB_LAYER(layer, layer::call, n)
static int rank(void *) { throw thrown(20); }
static void handler(wb_log_level, const char *, void *) { throw thrown(21); }
/* Catches what its own call throws, and goes on. */
static bool caught;
static wb_tensor *careful_loss(wb_layer *m, wb_batch b, void *)
{
    try {
        wb_call(wb_layer_from_function(activation), b.x);
    } catch (const thrown &t) {
        caught = t.number == 17;
    }
    wb_clear_error();
    return wb_mse(wb_call(m, b.x), b.y);
}

static float memory[4] = {1, 2, 3, 4};
static void release(void *, void *) { throw thrown(22); }
/* Frees what has `release`: the exception is kept until the call of the program ends. */
static int reads;
static int next_and_free(void *const *at, void *)
{
    const int64_t four = 4;
    if (!reads++) wb_free(wb_borrow(memory, WB_F32, 1, &four, release, nullptr));
    *static_cast<float *>(at[0]) = float(reads);
    return reads < 17;
}
static wb_layer *substitute(const wb_unknown *, void *) { throw thrown(23); }
static bool refuses;
static void *reallocate(void *, void *block, size_t bytes)
{
    if (refuses && bytes > 1 << 20) throw thrown(24);
    if (bytes) return std::realloc(block, bytes);
    std::free(block);
    return nullptr;
}
static std::atomic<int> gets;
static int get_together(int64_t i, void *, void *, void *)
{
    for (++gets; gets < 3 && i < 24;) {}                // three threads are inside
    throw thrown(25);
}

static const char *file;                                // for one check
static wb_layer *model;
static wb_tensor *x;
/* Whether the model computes as in test mode, and can be trained. */
static bool in_order()
{
    const double a = wb_item(wb_sum(wb_call(model, x))), b = wb_item(wb_sum(wb_call(model, x)));
    wb_loader *l = wb_dataloader(wb_dataset_of(x, wb_zeros(64, 1)), 8);
    return std::isfinite(a) && a == b && !wb_in_trainmode() &&
           !wb_train(plain_loss, model, l, wb_setup(wb_Adam(0.001), model));
}

static void train_throws()
{
    wb_loader *l = wb_dataloader(wb_dataset_of(x, wb_zeros(64, 1)), 8);
    wb_opt_state *s = wb_setup(wb_Adam(0.001), model);
    wb_scope *scope = wb_scope_open();
    check("loss", throws(1, [&] { wb_train(loss, model, l, s, 2); }) && in_order());
    wb_tree *g;
    check("withgradient", throws(1, [&] { wb_withgradient(loss, model, wb_batch_of(x, x), &g); }) &&
                              in_order());
    check("second batch", throws(2, [&] { wb_train(second_loss, model, l, s); }) && in_order());
    wb_train_options o;
    o.each = each;
    check("each", throws(3, [&] { wb_train(plain_loss, model, l, s, o); }) && in_order());
    o = {};
    o.metric = metric;
    double metrics[1];
    o.metrics = metrics;
    check("metric", throws(4, [&] { wb_train(plain_loss, model, l, s, o); }) && in_order());
    o = {};
    o.schedule = wb_schedule_from_function(rate, nullptr);
    check("schedule", throws(5, [&] { wb_train(plain_loss, model, l, s, o); }) && in_order());
    check("caught inside", !wb_train(careful_loss, model, l, wb_setup(wb_Adam(), model)) && caught);
    wb_rule_type type = {};
    static wb_rule_type kept;
    type.name = "Thrower";
    type.apply = apply;
    type.eta = 1;
    kept = type;
    wb_opt_state *own = wb_setup(wb_CustomRule(&kept, 0.5), model);
    check("rule", throws(16, [&] { wb_train(plain_loss, model, l, own); }) && in_order());
    check("scope", !wb_scope_close(scope));
}

static void data_throws()
{
    for (int workers = 0; workers < 3; workers++) {
        wb_dataloader_options o;
        o.collate = collate;
        if (workers) o.workers = workers;
        else o.ahead = 0;
        wb_loader *l = wb_dataloader(wb_dataset_of(x, wb_zeros(64, 1)), 8, o);
        wb_batch b;
        int before = 0;
        check("collate", throws(6, [&] { while (wb_loader_next(l, &b)) before++; }) &&
                             before == 2 && in_order());
        wb_opt_state *s = wb_setup(wb_Adam(), model);
        check("collate in train", throws(6, [&] { wb_train(plain_loss, model, l, s); }));
        o.collate = nullptr;
        wb_dataset_source source = {};
        source.size = sizeof source;
        source.n = 64;
        source.get = get;
        l = wb_dataloader(wb_dataset_from(&source), 8, o);
        check("get", throws(7, [&] { while (wb_loader_next(l, &b)) {} }) && in_order());
    }
    wb_dataset_source source = {};
    source.size = sizeof source;
    source.next = next;
    source.restart = restart;
    wb_batch b;
    wb_loader *l = wb_dataloader(wb_dataset_from(&source), 8);
    check("next", throws(8, [&] { wb_loader_next(l, &b); }) && in_order());
    check("filterobs", throws(11, [&] { wb_filterobs(wb_dataset_of(x, x), test, nullptr); }));
    check("mapobs", throws(6, [&] {
              wb_loader *m = wb_dataloader(wb_mapobs(wb_dataset_of(x, x), collate, nullptr), 8);
              while (wb_loader_next(m, &b)) {}
          }) && in_order());
}

static void graph_throws()
{
    check("fmap", throws(9, [] { wb_fmap(leaf, model, nullptr); }) && in_order());
    check("each_tensor", throws(10, [] { wb_each_tensor(model, visit, nullptr); }));
    wb_compiled *c = wb_compile(record, nullptr);
    wb_tensor *out;
    check("compile", throws(12, [&] { wb_call_compiled(c, 1, &x, 1, &out); }) && in_order());
    wb_tensor *v = wb_variable(wb_ones(2));
    wb_tensor *y = wb_sum(wb_custom_gradient(wb_neg(v), slope, nullptr, v));
    check("custom_gradient", throws(13, [&] { wb_gradient(y, v); }) && in_order());
    const int64_t two = 2;
    wb_tensor *h = wb_host_operation(host, nullptr, WB_F32, 1, &two, 1, &v);
    wb_scope *scope = wb_scope_open();
    check("host_operation", throws(14, [&] { wb_data(h); }) && in_order());
    wb_tensor *kept = wb_keep(wb_ones(2));              // in the scope outside of `scope`
    check("scope of host_operation", !wb_scope_close(scope) && wb_ndim(kept) == 1);
    h = wb_host_operation(careful_host, nullptr, WB_F32, 1, &two, 1, &v);
    check("caught in host_operation", wb_at(h, 0) == 5 && caught_in_host);
    wb_Dense_options o;
    o.init = init;
    check("initialiser", throws(15, [&] { wb_Dense(2, 3, nullptr, o); }) && in_order());
    wb_layer *m = wb_Chain(wb_Dense(4, 4), wb_Dropout(0.5), activation);
    check("function", throws(17, [&] { wb_call(m, x); }) && in_order());
    m = wb_Parallel(connection, wb_Dense(4, 4), wb_Dense(4, 4));
    check("connection", throws(18, [&] { wb_call(m, x); }) && in_order());
    m = wb_Chain(wb_Dense(4, 4), wb_layer_of(layer, 1));
    check("layer", throws(19, [&] { wb_call(m, x); }) && in_order());
    wb_loader *l = wb_dataloader(wb_dataset_of(x, wb_zeros(64, 4)), 8);
    wb_opt_state *s = wb_setup(wb_Adam(), m);
    check("layer in train", throws(19, [&] { wb_train(plain_loss, m, l, s); }) && in_order());
    check("rank", throws(20, [] { wb_distributed_run(rank, nullptr); }));
    wb_set_log(handler, nullptr);
    check("log", throws(21, [&] {
              wb_dataloader_options few;
              few.drop_last = true;
              wb_dataloader(wb_dataset_of(x, x), 100, few);     // warns
              wb_item(wb_sum(x));
          }));
    wb_set_log(nullptr, nullptr);
}

static wb_tensor *borrowed()
{
    const int64_t four = 4;
    return wb_borrow(memory, WB_F32, 1, &four, release, nullptr);
}

/* Saves a model of layers that Flux does not have. */
static bool save_unknown()
{
    wb_save_options structs;
    structs.structs = true;
    if (wb_save(file, wb_Chain(wb_Dense(4, 4), wb_Dense(4, 4)), structs)) return false;
    std::ostringstream bytes;
    bytes << std::ifstream(file, std::ios::binary).rdbuf();
    std::string text = bytes.str();
    for (size_t at; (at = text.find("Dense")) != std::string::npos;) text.replace(at, 5, "Dunes");
    return bool(std::ofstream(file, std::ios::binary) << text);
}

static void others_throw()
{
    check("release", throws(22, [] {
              wb_free(borrowed());
              wb_item(wb_sum(x));
          }) && in_order());
    // the assigned value holds the last reference; in the root scope the copy makes the assignment
    wb_layer *to = wb_Chain(wb_Dense(4, 4)), *from = wb_Chain(wb_Dense(4, 4));
    wb_tensor *bias = wb_get(to, "layers.0.bias"), *ones = wb_get(from, "layers.0.bias");
    wb_assign(ones, wb_ones(4));
    wb_item(wb_sum(ones));
    wb_tensor *tensor = borrowed(), *sum = wb_mul(tensor, 2);
    wb_assign(bias, sum);
    wb_free(sum);
    wb_free(tensor);
    check("copy", throws(22, [&] { wb_copy(to, from); }) && in_order());
    check("after the copy", wb_at(bias, 3) == 1);
    wb_scope *scope = wb_scope_open();
    wb_tensor *v = wb_variable(wb_zeros(4));
    tensor = borrowed();
    sum = wb_mul(tensor, 2);
    wb_assign(v, sum);
    wb_free(sum);
    wb_free(tensor);
    check("release in eval", throws(22, [&] { wb_eval(v); }) && in_order() && wb_at(v, 3) == 8);
    wb_dataset_source source = {};
    source.size = sizeof source;
    source.next = next_and_free;
    source.restart = restart;
    wb_dataloader_options here;
    here.ahead = 0;
    wb_loader *l = wb_dataloader(wb_dataset_from(&source), 8, here);
    wb_batch b;
    const int number = number_of([&] { wb_loader_next(l, &b); });
    check("release in next", number == 22 && reads == 8);       // the others of the batch are read
    source = {};
    source.size = sizeof source;
    source.n = 24;
    source.get = get_together;
    wb_set_threads(4);
    wb_dataloader_options o;
    o.ahead = 0;
    l = wb_dataloader(wb_dataset_from(&source), 24, o);
    check("several threads", throws(25, [&] { wb_loader_next(l, &b); }) && in_order());
    wb_load_options unknown;
    unknown.substitute = substitute;
    check("substitute", save_unknown() && throws(23, [&] { wb_load(file, unknown); }) &&
                            in_order());
    refuses = true;
    check("allocator", number_of([] { wb_variable(wb_zeros(1024, 1024)); }) == 24);
    refuses = false;
    check("behind the allocator", in_order());
    check("scope of the others", !wb_scope_close(scope));
}

int main(int argc, char **argv)
{
    file = argc > 1 ? argv[1] : "exceptions.bson";
    const wb_allocator allocator = {reallocate, nullptr};
    wb_set_allocator(&allocator);
    wb_seed(1);
    model = wb_Chain(wb_Dense(4, 8, wb_relu), wb_BatchNorm(8), wb_Dropout(0.5), wb_Dense(8, 1));
    x = wb_rand(64, 4);
    train_throws();
    data_throws();
    graph_throws();
    others_throw();
    return failures != 0;
}
