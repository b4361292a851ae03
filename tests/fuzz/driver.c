/* Runs a fuzz target where the compiler has no libFuzzer.  A target that is linked with it reads
 * every file of a corpus, and then `-runs` changed ones, which are the same each time.  The driver
 * does not measure what the target covers, so it finds less than libFuzzer; its purpose is that
 * every build, with any compiler's sanitizers, reads the same many thousand broken files.
 *
 *   fuzz_bson [-runs=20000] [-seed=1] [-max_len=16384] [-artifact_prefix=FOLDER/] FILE|FOLDER...
 *
 * Other options of libFuzzer are ignored.  The input that ends the process is written to a file
 * "crash-SEED-RUN". */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*f)(void)) __attribute__((weak));

enum { SEEDS = 4096, SECONDS = 60, PATH = 4096 };

typedef struct { uint8_t *data; size_t size; } seed;
static seed seeds[SEEDS];
static int n_seeds;
static const char *prefix = "";
static long run, first_seed = 1;
static uint8_t *input;                  /* of the current run */
static size_t input_size, longest = 16384;

/* ---- failures -------------------------------------------------------------------------------- */

static void write_input(void)
{
    char path[PATH];
    snprintf(path, sizeof path, "%scrash-%ld-%ld", prefix, first_seed, run);
    FILE *f = fopen(path, "wb");
    if (!f) return;
    fwrite(input, 1, input_size, f);
    fclose(f);
    fprintf(stderr, "the input is in %s\n", path);
}

static void on_signal(int number)
{
    signal(number, SIG_DFL);
    if (number == SIGALRM) fprintf(stderr, "run %ld: no end after %d s\n", run, SECONDS);
    write_input();
    raise(number == SIGALRM ? SIGABRT : number);
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static void read_path(const char *path)
{
    struct stat about;
    if (stat(path, &about)) {
        perror(path);
        exit(2);
    }
    if (S_ISDIR(about.st_mode)) {
        struct dirent **entries;
        int n = scandir(path, &entries, NULL, alphasort);       /* in the same order each time */
        for (int i = 0; i < n; i++) {
            char inside[PATH];
            snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
            if (entries[i]->d_name[0] != '.') read_path(inside);
            free(entries[i]);
        }
        if (n >= 0) free(entries);
        return;
    }
    FILE *f = fopen(path, "rb");
    seed s = {malloc((size_t)about.st_size + 1), (size_t)about.st_size};
    if (!f || !s.data || n_seeds == SEEDS || fread(s.data, 1, s.size, f) != s.size) {
        fprintf(stderr, "%s: cannot be read, or is one too many\n", path);
        exit(2);
    }
    fclose(f);
    seeds[n_seeds++] = s;
}

/* ---- changes --------------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t draw(void)              /* xorshift64* (Vigna 2016) */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

static size_t below(size_t n) { return n ? (size_t)((draw() >> 11) % n) : 0; }

static void insert(size_t at, const uint8_t *from, size_t n)
{
    if (n > longest - input_size) n = longest - input_size;
    memmove(input + at + n, input + at, input_size - at);
    memmove(input + at, from, n);
    input_size += n;
}

static void erase(size_t at, size_t n)
{
    memmove(input + at, input + at + n, input_size - at - n);
    input_size -= n;
}

/* Changes a number of 1, 2, 4 or 8 bytes by at most 16, or to a limit of a length or count. */
static void change_number(void)
{
    static const uint64_t values[] = {0, 1, 2, 7, 8, 9, 127, 128, 255, 256, 32767, 65535, 65536,
                                      0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
                                      0x7fffffffffffffff, 0x8000000000000000, UINT64_MAX};
    size_t wide = (size_t)1 << below(4), at = below(input_size);
    if (input_size - at < wide) return;
    uint64_t value = 0;
    for (size_t i = 0; i < wide; i++) value |= (uint64_t)input[at + i] << (8 * i);
    if (draw() & 1) value += below(33) - 16;
    else value = values[below(sizeof values / sizeof *values)];
    bool big = below(4) == 0;
    for (size_t i = 0; i < wide; i++)
        input[at + (big ? wide - 1 - i : i)] = (uint8_t)(value >> (8 * i));
}

/* Replaces a number that is written in digits. */
static void change_digits(void)
{
    static const char *const texts[] = {"0", "-1", "1", "9", "65536", "4294967295", "4294967296",
                                        "9223372036854775807", "9223372036854775808",
                                        "18446744073709551616", "1e9", "0.5"};
    size_t at = below(input_size), n = 0;
    while (at < input_size && (input[at] < '0' || input[at] > '9')) at++;
    while (at + n < input_size && input[at + n] >= '0' && input[at + n] <= '9') n++;
    if (!n) return;
    const char *text = texts[below(sizeof texts / sizeof *texts)];
    erase(at, n);
    insert(at, (const uint8_t *)text, strlen(text));
}

/* Makes one change.  `in_place`: no byte moves, so that lengths and offsets elsewhere stay
 * right. */
static void change(bool in_place)
{
    uint8_t some[16];
    const seed *other = &seeds[below((size_t)n_seeds)];
    size_t at = below(input_size + 1), left = input_size - at, n = 1 + below(below(2) ? 8 : 64),
           from;
    switch (below(in_place ? 4 : 9)) {
        case 0: if (left) input[at] ^= (uint8_t)(1 << below(8)); break;
        case 1: if (left) input[at] = (uint8_t)draw(); break;
        case 2:
        case 3: change_number(); break;
        case 4: change_digits(); break;
        case 5: erase(at, n < left ? n : left); break;
        case 6:
            for (size_t i = 0; i < sizeof some; i++) some[i] = (uint8_t)draw();
            insert(at, some, n < sizeof some ? n : sizeof some);
            break;
        case 7:                                             /* a part of any file of the corpus */
            from = below(other->size);
            n = below(other->size - from + 1);
            insert(at, other->data + from, n < 256 ? n : 256);
            break;
        default: if (!below(4)) input_size = at;            /* truncated */
    }
}

static void try_input(void)
{
    /* A block of the input's size, so that a sanitizer reports a read after its end */
    uint8_t *exact = malloc(input_size ? input_size : 1);
    if (!exact) exit(2);
    memcpy(exact, input, input_size);
    alarm(SECONDS);
    LLVMFuzzerTestOneInput(exact, input_size);
    alarm(0);
    free(exact);
}

int main(int argc, char **argv)
{
    long runs = 0;
    for (int i = 1; i < argc; i++) {
        sscanf(argv[i], "-runs=%ld", &runs);
        sscanf(argv[i], "-seed=%ld", &first_seed);
        sscanf(argv[i], "-max_len=%zu", &longest);
        if (!strncmp(argv[i], "-artifact_prefix=", 17)) prefix = argv[i] + 17;
        if (argv[i][0] != '-') read_path(argv[i]);
    }
    if (!n_seeds) {
        fprintf(stderr, "no corpus: name files or folders\n");
        return 2;
    }
    size_t capacity = longest;
    for (int i = 0; i < n_seeds; i++)
        if (seeds[i].size > capacity) capacity = seeds[i].size;
    if (!(input = malloc(capacity + 1))) return 2;
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(write_input);
    else signal(SIGSEGV, on_signal), signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    const time_t begun = time(NULL);
    for (run = -n_seeds; run < runs; run++) {
        state = ((uint64_t)first_seed << 32 | (uint64_t)(run + n_seeds)) * 0x9e3779b97f4a7c15ull |
                1;
        const seed *s = &seeds[run < 0 ? (size_t)(run + n_seeds) : below((size_t)n_seeds)];
        input_size = s->size;
        memcpy(input, s->data, s->size);
        const bool in_place = below(2) || input_size > longest;
        for (size_t n = run < 0 ? 0 : 1 + below(6); n > 0; n--) change(in_place);
        try_input();
    }
    printf("%d files of the corpus and %ld changes of them, in %ld s: none of them did harm\n",
           n_seeds, runs, (long)(time(NULL) - begun));
    for (int i = 0; i < n_seeds; i++) free(seeds[i].data);
    free(input);
    return 0;
}
