/* A convolution and a GRU in both directions transcribe sequences of tones, trained with CTC; the
 * twin of speech_ctc.py.
 *
 *   speech_ctc [FILE]      begins with the weights in FILE, which speech_ctc.py writes */
#include <math.h>
#include <string.h>

enum { RATE = 8000, TONE = 640, MOST = 6, TONES = 8, SOUNDS = 256, BATCH = 32, EPOCHS = 25 };
enum { SAMPLES = TONE * MOST, FRAME = 128, HOP = 64, WIDTH = 64, STEPS = EPOCHS * SOUNDS / BATCH };
#include "history.h"

/* Sounds [SOUNDS,SAMPLES] of 3 to 6 tones under noise, their labels [SOUNDS,MOST] with 0 behind
 * the last tone, and the numbers of tones. */
static wb_tree *speech(void)
{
    static float sound[SOUNDS][SAMPLES];
    static int32_t labels[SOUNDS][MOST], lengths[SOUNDS];
    for (int64_t i = 0; i < SOUNDS; i++) {
        lengths[i] = 3 + i % 4;
        for (int64_t k = 0; k < lengths[i]; k++)
            labels[i][k] = 1 + (i * 5 + i * k + k * k * 3) % TONES;
        for (int64_t sample = 0; sample < SAMPLES; sample++) {
            int64_t label = labels[i][sample / TONE], number = i * SAMPLES + sample;
            double turns = (300 + 350 * label) * sample % RATE / (double)RATE;
            double noise = number * number % 1009 / 1009.0 - 0.5;
            sound[i][sample] = (label > 0) * sin(2 * 3.14159265358979 * turns) + noise;
        }
    }
    return wb_named_tuple(3, (const char *[]){"sounds", "labels", "lengths"},
                          (void *[]){wb_from(sound, WB_F32, 2, (int64_t[]){SOUNDS, SAMPLES}),
                                     wb_from(labels, WB_I32, 2, (int64_t[]){SOUNDS, MOST}),
                                     wb_from(lengths, WB_I32, 1, (int64_t[]){SOUNDS})});
}

/* Sounds [N,SAMPLES] -> the logarithms of their powers [N,F,T]. */
static wb_tensor *spectrum(wb_tensor *sounds)
{
    wb_tensor *window = wb_hann_window(FRAME, WB_F32);
    wb_tensor *power = wb_spectrogram(sounds, .n_fft = FRAME, .hop_length = HOP,
                                       .window = window);
    return wb_transpose(wb_log(wb_add(power, 1e-3)));
}

/* Sounds [N,SAMPLES] -> the scores [N,T,1 + TONES] of the blank and the tones. */
static wb_layer *recogniser(void)
{
    wb_layer *conv = wb_Conv1d(FRAME / 2 + 1, WIDTH, {5}, wb_relu, .pad = {2});
    wb_layer *gru = wb_GRU(WIDTH, WIDTH, .bidirectional = true, .hidden_bias = true);
    return wb_Chain(spectrum, wb_named("norm", wb_BatchNorm(FRAME / 2 + 1)),
                    wb_named("conv", conv), wb_transpose, wb_named("gru", gru),
                    wb_named("output", wb_Dense(2 * WIDTH, 1 + TONES)));
}

static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_ctc_loss(wb_call(model, batch.x), batch.y, .target_lengths = batch.more[0]);
}

/* The fraction of sounds whose most probable path becomes their labels. */
static double right(wb_layer *model, wb_tree *speech)
{
    wb_tensor *paths = wb_onecold(wb_call(model, wb_get(speech, "sounds")));
    const int32_t *path = wb_data(paths), *label = wb_data(wb_get(speech, "labels"));
    const int64_t frames = wb_dim(paths, 1);
    int count = 0;
    for (int i = 0; path && i < SOUNDS; i++, path += frames, label += MOST) {
        int32_t text[MOST + 1] = {0};
        int length = 0;
        for (int64_t t = 0; t < frames && length <= MOST; t++)
            if (path[t] && (t == 0 || path[t] != path[t - 1])) text[length++] = path[t];
        count += !memcmp(text, label, MOST * sizeof *label) && !text[MOST];
    }
    return (double)count / SOUNDS;
}

int main(int argc, char **argv)
{
    static history h;
    wb_set_threads(2);
    wb_seed(1);
    wb_layer *model = recogniser();
    wb_tree *data = speech();
    wb_loader *loader = wb_dataloader(wb_dataset_of_tree(data), BATCH);
    wb_opt_state *state = wb_setup(wb_Adam(5e-3), model);
    if ((argc > 1 && wb_load_state(argv[1], model)) ||
        wb_train(loss, model, loader, state, EPOCHS, .each = note, .ctx = &h))
        return failed();
    printf("speech_ctc: loss %.4f -> %.4f, %.2f ms a step\n", h.losses[0], h.losses[STEPS - 1],
           1e3 * median(&h));
    printf("%.1f %% of the sounds are transcribed without an error\n", 100 * right(model, data));
    return 0;
}
