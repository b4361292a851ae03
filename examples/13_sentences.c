/* Step 13: a pretrained encoder of sentences finds the sentences that are nearest to a question.
 *
 *   13_sentences FOLDER [QUESTION]
 *   13_sentences FOLDER/MODEL.onnx [QUESTION]
 *
 * FOLDER is one of a model hub with a sentence encoder such as all-MiniLM-L6-v2: config.json,
 * model.safetensors, modules.json, and tokenizer.json or vocab.txt. The encoder gives each
 * sentence a vector of length 1; the nearest sentence has the greatest product with the question's.
 * An ONNX file is one of tools/export_encoder.py, whose outputs are such vectors too; the tokenizer
 * is that of its folder.
 *
 * Tested with: {shared}/all-MiniLM-L6-v2
 * Prints:
 *   100 sentences, 384 numbers each
 *   How do I keep bread from going stale?
 *     0.58...  Wrapped in a cloth, a loaf stays fresh for three days.
 *     0.26...  She whisks egg whites until they hold a peak.
 *     0.24...  She is allergic to nuts and to the dust of hay. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weber.h>

static const char *const sentences[] = {
    "A pinch of salt brings out the taste of chocolate.",
    "Wrapped in a cloth, a loaf stays fresh for three days.",
    "The soup needs another hour on a low flame.",
    "Ripe tomatoes should never be put into the fridge.",
    "She whisks egg whites until they hold a peak.",
    "Basil grows well on a sunny window sill.",
    "The recipe calls for two cups of flour and one of milk.",
    "Green tea turns bitter when the water boils.",
    "Onions make you weep less if the knife is sharp.",
    "He fries the potatoes twice, so that they are crisp.",
    "The moon has no air, and so no wind and no weather.",
    "Saturn's rings are pieces of ice, most of them small.",
    "Light takes eight minutes from the sun to the earth.",
    "A comet's tail always points away from the sun.",
    "The telescope showed four bright moons of Jupiter.",
    "Astronauts lose muscle because nothing weighs them down.",
    "Stars look as if they twinkle because the air moves.",
    "A day on Venus is longer than its year.",
    "The probe left the solar system after forty years.",
    "Eclipses happen when three bodies are in one line.",
    "Our cat sleeps on the warm lid of the printer.",
    "Swallows come back to the same barn every spring.",
    "An octopus has three hearts and blue blood.",
    "The dog barks at the postman but not at thieves.",
    "Bees dance to show the others where the flowers are.",
    "Elephants remember where they found water years ago.",
    "A hedgehog rolls up when it is frightened.",
    "Salmon swim up the river in which they were born.",
    "The owl turns its head almost all the way round.",
    "Whales sing songs that change from year to year.",
    "The train to the coast leaves from platform nine.",
    "We missed the ferry and slept in the harbour.",
    "Her passport expired two weeks before the journey.",
    "The hotel keeps luggage for guests until the evening.",
    "A narrow road climbs to the pass in forty bends.",
    "He learned the language by asking for directions.",
    "The museum is free on the first Sunday of the month.",
    "Take a sleeping bag: nights in the desert are cold.",
    "The flight was late because of fog over the island.",
    "They crossed the border on foot with two donkeys.",
    "The striker scored twice in the last ten minutes.",
    "Swimming is easy on the joints and hard on the lungs.",
    "She ran the marathon in under three hours.",
    "The referee showed him a red card for the foul.",
    "A good tennis serve begins with the toss of the ball.",
    "The chess club meets in the library on Fridays.",
    "Climbers check each other's knots before every route.",
    "His bicycle has a flat tyre again.",
    "The rowers train at dawn, when the lake is smooth.",
    "Stretch your legs after a long ride, not before.",
    "The violin is tuned in fifths.",
    "She plays the same scale slowly until it is even.",
    "The choir rehearses in a church without heating.",
    "A drummer keeps time for the whole band.",
    "The opera begins with a storm at sea.",
    "He bought a record player and his father's old discs.",
    "The painting shows a bridge in the mist.",
    "Watercolours dry lighter than they look when wet.",
    "The novel is told by a dog.",
    "The poet wrote only at night, with a pencil.",
    "The file was deleted, but there is a backup from Monday.",
    "A long password of four words is easy to remember.",
    "The program crashes when the list is empty.",
    "Restart the router if the connection is slow.",
    "The printer reports that there is no paper.",
    "Her phone's battery lasts two days.",
    "The search engine sorts pages by their links.",
    "A bug that nobody can repeat is hard to repair.",
    "Turn the screen's light down to read in bed.",
    "The old computer filled a whole room.",
    "The doctor advised him to walk half an hour a day.",
    "A fever is the body's way to fight an infection.",
    "She is allergic to nuts and to the dust of hay.",
    "Wash the wound with clean water before you bind it.",
    "Too little sleep makes people hungry.",
    "The nurse takes his blood pressure every morning.",
    "Vaccines teach the body to recognise a virus.",
    "Cold hands may be a sign of poor circulation.",
    "The dentist found a hole in a wisdom tooth.",
    "Drink enough water when it is hot.",
    "The bank lends money to people who want to build.",
    "Prices rise when too much money chases few goods.",
    "She saves a tenth of her wages every month.",
    "The shop takes back shoes that have not been worn.",
    "His firm sells screws to makers of furniture.",
    "The rent is due on the first of the month.",
    "An honest invoice lists every hour of work.",
    "The farmers sell their vegetables at the market.",
    "The strike ended after both sides gave way.",
    "Taxes pay for schools, roads and hospitals.",
    "It will rain in the north and be dry in the south.",
    "The storm tore tiles from the roof of the school.",
    "Snow fell until the gate could not be opened.",
    "Frost in May killed the blossoms of the cherry trees.",
    "The river rose two metres in one night.",
    "Thunder follows the lightning after some seconds.",
    "A dry summer turns the meadows yellow.",
    "The wind comes from the sea in the afternoon.",
    "Autumn leaves block the gutters.",
    "Fog makes the lights of the harbour look soft.",
};
enum { N = sizeof sentences / sizeof *sentences, BATCH = 20, NEAREST = 3 };

static int complain(void)
{
    fprintf(stderr, "%s\n", wb_error());
    return 1;
}

static bool is_onnx(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".onnx");
}

/* The folder of a file; NULL: no memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 1;
    char *folder = calloc(n + 1, 1);
    if (folder) memcpy(folder, slash ? path : ".", n);
    return folder;
}

/* The vectors [n, width] of n texts. Inputs of ONNX files of PyTorch are i64. */
static wb_tensor *vectors(wb_layer *encoder, const wb_tokenizer *words, bool onnx, int64_t n,
                          const char *const *texts)
{
    wb_encoded x = wb_encode_batch(words, n, texts);
    if (!x.ids) return NULL;
    if (!onnx) return wb_call(encoder, x.ids, x.mask);
    return wb_call(encoder, wb_astype(x.ids, WB_I64), wb_astype(x.mask, WB_I64));
}

int main(int argc, char **argv)
{
    const char *question = argc > 2 ? argv[2] : "How do I keep bread from going stale?";
    if (argc < 2 || argc > 3) return fprintf(stderr, "13_sentences FOLDER|ONNX [QUESTION]\n"), 2;
    const bool onnx = is_onnx(argv[1]);
    char *folder = onnx ? folder_of(argv[1]) : NULL;
    const wb_tokenizer *words = wb_load_tokenizer(folder ? folder : argv[1]);
    wb_layer *encoder = onnx ? wb_load(argv[1])
                             : wb_load_pretrained(argv[1], .output = WB_PRETRAINED_SENTENCES);
    free(folder);
    if (!words || !encoder) return complain();

    wb_tensor *parts[N / BATCH];
    for (int i = 0; i < N / BATCH; i++)
        parts[i] = vectors(encoder, words, onnx, BATCH, sentences + (ptrdiff_t)i * BATCH);
    wb_tensor *all = wb_concat_array(0, N / BATCH, parts);
    wb_tensor *asked = vectors(encoder, words, onnx, 1, &question);
    wb_tensor *index, *best = wb_topk(wb_matmul(asked, wb_transpose(all)), NEAREST, -1, &index);
    const float *nearness = wb_data(best);
    wb_tensor *rows = wb_astype(index, WB_I32);
    const int32_t *row = wb_data(rows);
    if (!nearness || !row) return complain();
    printf("%d sentences, %lld numbers each\n%s\n", N, (long long)wb_dim(all, 1), question);
    for (int i = 0; i < NEAREST; i++)
        printf("  %.4f  %s\n", (double)nearness[i], sentences[row[i]]);
    return 0;
}
