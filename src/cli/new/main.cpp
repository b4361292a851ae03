// Trains a small network that finds the class of a point, saves it, loads it again and measures
// it on points that it has not seen.
//
//   @NAME@              points of two spirals, made here
//   @NAME@ FILE.csv     a file with a heading, numbers, and the class in the last column
#include <cmath>
#include <cstdio>
#include <vector>
#include <weber.h>

namespace {

constexpr int64_t points = 2000;
constexpr int epochs = 40;

int failed()
{
    std::fprintf(stderr, "%s\n", wb_error());
    return 1;
}

wb_dataset *spirals()
{
    std::vector<float> x;
    std::vector<int32_t> y;
    for (int64_t i = 0; i < points; i++) {
        const double t = double(i / 2) / (points / 2), turn = 9 * t + 3.14159265 * double(i % 2);
        x.push_back(float((0.1 + t) * std::cos(turn)));
        x.push_back(float((0.1 + t) * std::sin(turn)));
        y.push_back(int32_t(i % 2));
    }
    const int64_t dims[] = {points, 2};
    return wb_dataset_of(wb_from(x.data(), WB_F32, 2, dims), wb_from(y.data(), WB_I32, 1, dims));
}

wb_tensor *loss(wb_layer *model, wb_batch batch, void *)
{
    return wb_logitcrossentropy(wb_call(model, batch.x), batch.y);
}

// The part of the points whose class the model finds.
double accuracy(wb_layer *model, wb_dataset *data)
{
    wb_tensor *right = wb_eq(wb_onecold(wb_call(model, wb_dataset_x(data))), wb_dataset_y(data));
    return wb_item(wb_mean(wb_astype(right, WB_F32)));
}

wb_dataset *from_csv(const char *path)
{
    wb_load_csv_options o;
    o.header = true;
    o.label = -1;
    return wb_load_csv(path, o);
}

}  // namespace

int main(int argc, char **argv)
{
    wb_seed(1);
    wb_dataset *all = argc > 1 ? from_csv(argv[1]) : spirals(), *train, *held_out;
    wb_splitobs_options split;
    split.shuffle = true;
    if (wb_splitobs(all, 0.8, &train, &held_out, split)) return failed();
    const int64_t features = wb_dim(wb_dataset_x(all), 1);
    const int64_t classes = 1 + int64_t(wb_item(wb_max(wb_dataset_y(all))));

    wb_layer *model = wb_Chain(wb_BatchNorm(features), wb_Dense(features, 64, wb_relu),
                               wb_Dense(64, 64, wb_relu), wb_Dense(64, classes));
    wb_dataloader_options batches;
    batches.batchsize = 64;
    batches.shuffle = true;
    wb_train_options o;
    o.progress = true;
    if (wb_train(loss, model, wb_dataloader(train, batches), wb_setup(wb_Adam(3e-3), model), epochs,
                 o))
        return failed();

    if (wb_save("model.safetensors", model)) return failed();
    wb_layer *loaded = wb_load("model.safetensors");
    const double right = accuracy(loaded, held_out);
    if (wb_error_code()) return failed();
    std::printf("%lld points of %lld classes held out: %.1f %% right\n",
                static_cast<long long>(wb_dataset_length(held_out)),
                static_cast<long long>(classes), 100 * right);
}
