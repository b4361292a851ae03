/* `weber devices` and `weber backend`, run as a user runs them, with test backends
 * (backends/fake.c) that work, that have no device, that crash or hang, or are not built in. */
#include "folder.h"

#include <sys/stat.h>

#define NOTHING ENVIRONMENT(NULL)
#define ONLY(name) ENVIRONMENT("FAKES=" name)
#define WEBER(environment, ...) \
    process_run(&p, folder, environment, (const char *const[]){WB_TEST_COMMAND, __VA_ARGS__, NULL})
/* The same command with test backends. */
#define WITH_FAKES(environment, ...)     \
    process_run(&p, folder, environment, \
                (const char *const[]){WB_TEST_FAKE_COMMAND, __VA_ARGS__, NULL})

static process p;

/* One line of the output is these two texts. */
static void prints_row(const char *begin, const char *rest)
{
    char all[2048];
    snprintf(all, sizeof all, "%s%s\n", begin, rest);
    const char *at = strstr(p.out, all);
    if (!at || (at > p.out && at[-1] != '\n')) fail_msg("no line \"%s%s\" in:\n%s%s", begin, rest,
                                                        p.out, p.err);
}

TEST(test_table)
{
    WITH_FAKES(ONLY("two,one"), "devices");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.err, "");
    prints_row("backend  state ", "        devices");
    prints_row("CUDA     works         0. Test GPU 0, 24.0 GiB", "");
    prints_row("                       1. Test GPU 1, 24.0 GiB", "");
    prints_row("AMDGPU   works         0. Test GPU 0, 24.0 GiB", "");
    prints_row("Metal    not built in", "");
    assert_non_null(strstr(p.out, "CPU      works         0. "));
    prints_row("Metal: This Weber was built without the backend Metal: cmake -DWEBER_METAL=ON ",
               "builds it in.");
    assert_null(strstr(p.out, "\nCUDA: "));     /* no line about a missing library */
    prints_row("preference: none", "");
    assert_non_null(strstr(p.out, "\nranks: MPI: "));
}

TEST(test_each_trouble)
{
    static const struct { const char *fake, *state, *reason; } cases[] = {
        {"none", "no device", "CUDA driver not found: libfake.so.1. Install the driver of your "
                              "GPU."},
        {"empty", "no device", "CUDA found no device. It needs an NVIDIA GPU, its driver, and "
                               "CUDA_VISIBLE_DEVICES not to hide it."},
        {"absent", "not built in", "CUDA: This Weber was built without the backend CUDA: cmake "
                                   "-DWEBER_CUDA=ON builds it in."},
        {"crashes", "crashed (Segmentation fault)", NULL},
        {"leaves", "ended the process (3)", NULL},
        {"hangs", "no answer in 1.5 s", NULL},
    };
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        char fakes[64];
        snprintf(fakes, sizeof fakes, "FAKES=%s", cases[i].fake);
        WITH_FAKES(ENVIRONMENT(fakes), "devices", "--wait", "1.5");
        assert_int_equal(p.status, 0);
        assert_string_equal(p.err, "");
        prints_row("CUDA     ", cases[i].state);
        if (cases[i].reason) {
            prints_row(cases[i].reason, "");
        } else {
            prints_row("CUDA: ", "the process that probed it failed, and so would any "
                                 "process that uses it.");
            prints_row("    Another version of its driver may help.", "");
        }
        /* the trouble of one backend does not keep the others from the table */
        assert_non_null(strstr(p.out, "\nCPU      works"));
    }
}

TEST(test_verbose)
{
    process_file(folder, "LocalPreferences.toml", "[Flux]\ngpu_backend = \"CUDA\"\n");
    WITH_FAKES(ONLY("two"), "devices", "--verbose");
    assert_int_equal(p.status, 0);
    prints_row("CUDA, 0: memory 24.0 GiB in all, 24.0 GiB free, 0.0 KiB used by this process, ",
               "0.0 KiB cached");
    prints_row("CUDA, 1: memory ",
               "24.0 GiB in all, 24.0 GiB free, 0.0 KiB used by this process, 0.0 KiB cached");
    prints_row("CUDA, cuDNN: works", "");
    prints_row("CUDA, NCCL: NCCL not found: libfakeccl.so.2", "");
    prints_row("Metal    not built in", "");
    char preference[512];
    snprintf(preference, sizeof preference, "CUDA, by [Flux] in %s/LocalPreferences.toml", folder);
    prints_row("preference: ", preference);
    process_file(folder, "LocalPreferences.toml", "\n");
    WEBER(NOTHING, "devices", "--verbose");
    snprintf(preference, sizeof preference, "preference: none in %s/LocalPreferences.toml", folder);
    prints_row(preference, "");
}

/* NCCL and RCCL are opened at run time: their versions, or what is missing and the cure. */
TEST(test_ranks)
{
    WEBER(NOTHING, "devices");
    const char *line = strstr(p.out, "\nranks: NCCL: ");
    assert_non_null(line);
    assert_true(strstr(line, ", for ranks with a GPU each\n") || strstr(line, "install it") ||
                strstr(line, "-DWEBER_CUDA=ON"));
#ifdef WB_TEST_CUDA_DOUBLE
    WEBER(ENVIRONMENT("WEBER_CUDA_PATH=" WB_TEST_CUDA_DOUBLE), "devices", "--verbose");
    prints_row("ranks: NCCL: NCCL 2.27.3, for ranks with a GPU each", "");
    WEBER(ENVIRONMENT("WEBER_CUDA_NCCL=0"), "devices");
    prints_row("ranks: NCCL: WEBER_CUDA_NCCL=0 disables it", "");
    WEBER(ENVIRONMENT("WEBER_ROCM_PATH=" WB_TEST_HIP_DOUBLE), "devices", "--verbose");
    prints_row("ranks: RCCL: RCCL 2.27.3, for ranks with a GPU each", "");
    WEBER(ENVIRONMENT("WEBER_AMDGPU_RCCL=0"), "devices");
    prints_row("ranks: RCCL: WEBER_AMDGPU_RCCL=0 disables it", "");
#endif
}

/* A library of MPI beside the program, though it does not work, is one that is built in. */
TEST(test_ranks_of_mpi)
{
#ifdef __APPLE__
    static const char form[] = "libweber-mpi.%d.%d.dylib";
#else
    static const char form[] = "libweber-mpi.so.%d.%d";
#endif
    char library[80], row[512], part[4096], program[400];
    snprintf(library, sizeof library, form, WB_VERSION_MAJOR, WB_VERSION_MINOR);
    snprintf(program, sizeof program, "%s", in_folder("weber"));
    FILE *from = fopen(WB_TEST_COMMAND, "rb"), *to = fopen(program, "wb");
    assert_true(from && to);
    for (size_t n; (n = fread(part, 1, sizeof part, from));)
        assert_int_equal(fwrite(part, 1, n, to), n);
    assert_int_equal(fclose(from) | fclose(to) | chmod(program, 0755), 0);
    process_file(folder, library, "no library");
    process_run(&p, folder, NOTHING, (const char *const[]){program, "devices", NULL});
    assert_int_equal(p.status, 0);
    snprintf(row, sizeof row, "/%s does not work: ", library);
    assert_non_null(strstr(p.out, row));
    assert_null(strstr(p.out, "ranks: MPI: not built in"));
    assert_int_equal(unlink(program) | unlink(in_folder(library)), 0);
}

/* Each backend is probed alone, independently of the environment. */
TEST(test_alone)
{
    WITH_FAKES(ENVIRONMENT("FAKES=two,one", "WEBER_BACKENDS=CUDA,AMDGPU", "FAKE_TRACE=t"),
               "devices");
    assert_int_equal(p.status, 0);
    assert_string_equal(process_text(folder, "t"), "ss");
}

TEST(test_backend)
{
    char expected[512];
    WEBER(NOTHING, "backend");
    assert_string_equal(p.out, "none\n");
    WEBER(NOTHING, "backend", "OpenCL");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.err, "┌ Info: New GPU backend set: OpenCL.\n"
                        "└ Restart your session for this change to take effect!\n");
    WEBER(NOTHING, "backend");
    snprintf(expected, sizeof expected, "OpenCL, by [Flux] in %s/LocalPreferences.toml\n", folder);
    assert_string_equal(p.out, expected);
    WEBER(NOTHING, "backend", "OpenCL");
    assert_string_equal(p.err, "┌ Info: GPU backend is already set to: OpenCL.\n"
                        "└ No need to do anything else.\n");
    WEBER(NOTHING, "backend", "Voodoo");
    assert_int_equal(p.status, 1);
    assert_string_equal(p.err, "weber: Unsupported GPU backend: Voodoo.\n"
                        "Supported backends are: CUDA, AMDGPU, Metal, OpenCL, CPU. (W0400)\n");
    WEBER(NOTHING, "backend", "none");
    assert_int_equal(p.status, 0);
    assert_string_equal(process_text(folder, "LocalPreferences.toml"), "[Flux]\n");
    process_file(folder, "LocalPreferences.toml", "[Flux\n");
    WEBER(NOTHING, "backend");
    assert_int_equal(p.status, 1);
    assert_string_equal(p.out, "");
    snprintf(expected, sizeof expected, "┌ Warning: %s/LocalPreferences.toml:1:6: *]*table*\n"
             "└ Defaulting to automatic device selection.\n", folder);
    assert_true(is_like(p.err, expected));
}

/* Escape sequences in a preference, from a file of a folder above, do not reach the terminal. */
TEST(test_escapes)
{
    process_file(folder, "LocalPreferences.toml", "[Flux]\ngpu_backend = 'C\x1b[2J\x1b]0;x\x07'\n");
    static const char *const commands[] = {"backend", "devices"};
    for (size_t i = 0; i < WB__COUNT(commands); i++) {
        WEBER(NOTHING, commands[i]);
        assert_null(strchr(p.out, '\x1b'));
        assert_null(strchr(p.err, '\x1b'));
    }
}

TEST(test_help)
{
    WEBER(NOTHING, "help");
    assert_int_equal(p.status, 0);
    assert_non_null(strstr(p.out, "weber devices [--verbose] "));
    assert_non_null(strstr(p.out, "weber backend [NAME|none] "));
    static const char *const others[] = {"--help", "-h", "--version"};
    for (size_t i = 0; i < WB__COUNT(others); i++) {
        WEBER(NOTHING, others[i]);
        assert_int_equal(p.status, 0);
        assert_string_equal(p.err, "");
        assert_non_null(strstr(p.out, i < 2 ? "weber show FILE" : wb_version()));
    }
    static const char *const wrong[][3] = {
        {"devices", "--loud"}, {"devices", "--wait"}, {"backend", "A", "B"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        WEBER(NOTHING, wrong[i][0], wrong[i][1], wrong[i][2]);
        assert_int_equal(p.status, 2);
        assert_string_equal(p.out, "");
        assert_non_null(strstr(p.err, "weber show FILE"));
    }
}

/* A word that is no command is named, with the nearest one. */
TEST(test_unknown_command)
{
    static const struct { const char *word, *message; } rows[] = {
        {"foo", "there is no command \"foo\"; `weber help`"},
        {"shwo", "there is no command \"shwo\"; perhaps it is `weber show`; `weber help`"},
        {"docter", "perhaps it is `weber doctor`"}, {"explian", "perhaps it is `weber explain`"},
        {"--versoin", "perhaps it is `weber --version`"},
        {"a\x1b[2J\n", "there is no command \"a\\x1b[2J\\n\"; `weber help`"},
        {"", "\"\"; `weber help`"}};
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        WEBER(NOTHING, rows[i].word);
        assert_int_equal(p.status, 2);
        assert_string_equal(p.out, "");
        if (!strstr(p.err, rows[i].message)) fail_msg("%s: %s", rows[i].word, p.err);
        assert_ptr_equal(strchr(p.err, '\n'), strrchr(p.err, '\n'));
    }
}

/* The exit status is not 0 if the output cannot be written. */
TEST(test_full)
{
    static const char *const commands[] = {"devices", "backend", "version", "help"};
    for (size_t i = 0; i < WB__COUNT(commands); i++) {
        process_run(&p, folder, ONLY("none"), (const char *const[]){"/bin/sh", "-c",
                    "exec \"$0\" \"$1\" >/dev/full", WB_TEST_FAKE_COMMAND, commands[i], NULL});
        assert_int_equal(p.status, 1);
        assert_string_equal(p.err, "weber: standard output: No space left on device\n");
    }
}

int main(void) { return run_cases_each(make_folder, remove_folder); }
