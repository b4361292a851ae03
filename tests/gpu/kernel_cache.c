/* The folder of compiled kernels: an entry that was put is found again; if a file or the folder is
 * damaged, or another process interferes, the entry is found whole or not at all. */
#include "test.h"

#include "backend/kernel_cache.h"
#include "base/files/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/weber-kernels-XXXXXX", inner[64], only[400];
static const char key[] = "a text\nand a device";

static void put(const char *kind, const char *k, const void *data, size_t n)
{
    wb__kernel_cache_write(kind, k, strlen(k), data, n);
    assert_int_equal(wb_error_code(), WB_OK);
}

static void expect(const char *kind, const char *k, const void *data, size_t n)
{
    size_t bytes = 99;
    void *got = wb__kernel_cache_read(kind, k, strlen(k), &bytes);
    assert_non_null(got);
    assert_int_equal(bytes, n);
    assert_memory_equal(got, data, n);
    wb__free(got);
}

static void expect_none(const char *kind, const char *k)
{
    size_t bytes = 99;
    assert_null(wb__kernel_cache_read(kind, k, strlen(k), &bytes));
    assert_int_equal(bytes, 0);
    assert_int_equal(wb_error_code(), WB_OK);
}

/* Returns the number of files in the folder; `only` becomes the path of the last one. */
static int files(int64_t *bytes)
{
    int n = 0;
    struct stat s;
    DIR *d = opendir(inner);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(only, sizeof only, "%s/%s", inner, e->d_name);
        if (bytes && !stat(only, &s)) *bytes += s.st_size;
        n++;
    }
    closedir(d);
    return n;
}

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(inner, sizeof inner, "%s/made/for/this", folder);
    return setenv("WEBER_CACHE_DIR", inner, 1);
}

static int empty(void **state)
{
    while (files(NULL)) unlink(only);
    wb__kernel_cache_set_limit((int64_t)256 << 20);
    wb__io_fail_at(0);
    wb__alloc_fail_at(0);
    wb_clear_error();
    return setenv("WEBER_CACHE_DIR", inner, 1);
}

static int remove_folder(void **state)
{
    empty(NULL);
    rmdir(inner);
    for (int i = 0; i < 2; i++) {
        *strrchr(inner, '/') = 0;
        rmdir(inner);
    }
    return rmdir(folder);
}

TEST(test_comes_back)
{
    unsigned char large[100000];
    for (size_t i = 0; i < sizeof large; i++) large[i] = (unsigned char)(i * 7);
    expect_none("opencl", key);
    put("opencl", key, "binary", 6);
    expect("opencl", key, "binary", 6);
    expect_none("cuda", key);
    expect_none("opencl", "another text");
    put("cuda", key, large, sizeof large);
    put("opencl", "another text", "", 0);
    expect("cuda", key, large, sizeof large);
    expect("opencl", "another text", "", 0);
    put("opencl", key, "newer", 5);
    expect("opencl", key, "newer", 5);
    assert_int_equal(files(NULL), 3);
}

/* Entries whose kind and key have the same letters together are different. */
TEST(test_kinds_are_apart)
{
    put("ab", "c", "1", 1);
    put("a", "bc", "2", 1);
    expect("ab", "c", "1", 1);
    expect("a", "bc", "2", 1);
}

TEST(test_places)
{
    char path[128];
    setenv("WEBER_CACHE_DIR", "", 1);
    put("opencl", key, "binary", 6);
    expect_none("opencl", key);
    unsetenv("WEBER_CACHE_DIR");
    setenv("XDG_CACHE_HOME", folder, 1);
    put("opencl", key, "xdg", 3);
    expect("opencl", key, "xdg", 3);
    snprintf(path, sizeof path, "%s/weber/kernels", folder);
    setenv("WEBER_CACHE_DIR", path, 1);
    expect("opencl", key, "xdg", 3);
    unsetenv("WEBER_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", folder, 1);
    expect_none("opencl", key);
    put("opencl", key, "home", 4);
    expect("opencl", key, "home", 4);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s/weber %s/.cache", folder, folder);
    assert_int_equal(system(command), 0);
}

/* A file with any one byte changed, of any shorter length, or one byte longer is not an entry. */
TEST(test_damage)
{
    put("opencl", key, "binary", 6);
    assert_int_equal(files(NULL), 1);
    char path[sizeof only];
    memcpy(path, only, sizeof path);
    int64_t n = 0;
    char *good = wb__file_read(path, &n);
    assert_non_null(good);
    char *bad = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        memcpy(bad, good, (size_t)n);
        bad[i] ^= 1;
        assert_int_equal(wb__file_write(path, bad, n), 0);
        expect_none("opencl", key);
        assert_int_equal(wb__file_write(path, good, i), 0);
        expect_none("opencl", key);
    }
    memcpy(bad, good, (size_t)n);
    bad[n] = 0;
    assert_int_equal(wb__file_write(path, bad, n + 1), 0);
    expect_none("opencl", key);
    memset(bad + 8, 0xff, 32);                  /* lengths larger than any file */
    assert_int_equal(wb__file_write(path, bad, n), 0);
    expect_none("opencl", key);
    put("opencl", key, "mended", 6);
    expect("opencl", key, "mended", 6);
    unlink(path);
    assert_int_equal(mkdir(path, 0777), 0);     /* a folder instead of the file */
    expect_none("opencl", key);
    put("opencl", key, "binary", 6);
    expect_none("opencl", key);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);    /* a pipe that nobody writes to */
    expect_none("opencl", key);
    unlink(path);
    free(bad);
    wb__free(good);
}

static int warnings;
static char warning[1000];

static void note_warning(wb_log_level level, const char *text, void *ctx)
{
    if (level == WB_LOG_WARN) warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}

/* New folders are private; one that another user owns, or can write into, is not used, which is
 * reported once in the process. */
TEST(test_only_private_folders)
{
    char path[128];
    struct stat s;
    const mode_t usual = umask(0);
    snprintf(path, sizeof path, "%s/new/one", folder);
    setenv("WEBER_CACHE_DIR", path, 1);
    put("opencl", key, "binary", 6);
    umask(usual);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_mode & 0777, 0700);
        if (!i) *strrchr(path, '/') = 0;
    }
    snprintf(path, sizeof path, "%s/new/one", folder);
    expect("opencl", key, "binary", 6);
    wb_set_log(note_warning, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(path, i == 0 ? 0777 : i == 1 ? 0770 : 0755), 0);
        if (i < 2) expect_none("opencl", key);
        else expect("opencl", key, "binary", 6);
        put("opencl", "another", "binary", 6);
    }
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, path));
    assert_non_null(strstr(warning, "WEBER_CACHE_DIR"));
    if (!geteuid() && !chown(path, 65534, (gid_t)-1)) {
        expect_none("opencl", key);
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
        expect("opencl", key, "binary", 6);
    }
    wb_set_log(NULL, NULL);
    char command[160];
    snprintf(command, sizeof command, "rm -r %s/new", folder);
    assert_int_equal(system(command), 0);
}

TEST(test_folder_that_cannot_be)
{
    char path[80];
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(wb__file_write(path, "x", 1), 0);
    setenv("WEBER_CACHE_DIR", path, 1);
    put("opencl", key, "binary", 6);
    expect_none("opencl", key);
    unlink(path);
    setenv("WEBER_CACHE_DIR", "/proc/none/of/this", 1);
    put("opencl", key, "binary", 6);
    expect_none("opencl", key);
}

/* If a call fails while a file is written, the old file or none is there, and no error. */
TEST(test_every_call_fails)
{
    int failures = 0;
    for (int n = 1;; n++) {
        wb__io_fail_at(n);
        put("opencl", key, "binary", 6);
        const bool reached = wb__io_count() >= n;
        wb__io_fail_at(0);
        if (!reached) break;
        failures++;
        size_t bytes = 0;
        void *got = wb__kernel_cache_read("opencl", key, strlen(key), &bytes);
        if (got) assert_memory_equal(got, "binary", 6);
        wb__free(got);
        assert_true(files(NULL) <= 1);
        empty(NULL);
    }
    assert_true(failures >= 5);
    failures = 0;
    for (int n = 1;; n++) {
        size_t bytes = 0;
        wb__alloc_fail_at(n);
        put("opencl", key, "binary", 6);
        void *got = wb__kernel_cache_read("opencl", key, strlen(key), &bytes);
        const bool reached = wb__alloc_count() >= n;
        wb__alloc_fail_at(0);
        assert_int_equal(wb_error_code(), WB_OK);
        if (got) assert_memory_equal(got, "binary", 6);
        wb__free(got);
        if (!reached) break;
        failures++;
        empty(NULL);
    }
    assert_true(failures >= 4);
}

enum { THREADS = 4, PROCESSES = 3, TURNS = 25, SIZE = 30000 };

/* Puts and gets a few keys.  Returns 1 if an entry that it gets is not whole. */
static int hammer(unsigned seed)
{
    unsigned char *data = malloc(SIZE);
    int wrong = 0;
    for (int turn = 0; turn < TURNS && !wrong; turn++) {
        char k[16];
        size_t bytes = 0;
        snprintf(k, sizeof k, "key %d", turn % 3);
        memset(data, (int)(seed + (unsigned)turn), SIZE);
        wb__kernel_cache_write("opencl", k, strlen(k), data, SIZE);
        unsigned char *got = wb__kernel_cache_read("opencl", k, strlen(k), &bytes);
        for (size_t i = 0; got && i < bytes; i++) wrong |= got[i] != got[0];
        wrong |= got && bytes != SIZE;
        wb__free(got);
    }
    free(data);
    return wrong;
}

static void *hammer_thread(void *seed)
{
    return (void *)(intptr_t)hammer((unsigned)(intptr_t)seed);
}

TEST(test_writers_at_once)
{
    pid_t process[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        process[i] = fork();
        assert_true(process[i] >= 0);
        if (!process[i]) _exit(hammer(50u * (unsigned)i));
    }
    pthread_t thread[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hammer_thread, (void *)(i + 7)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(process[i], &status, 0), process[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(files(NULL), 3);           /* no temporary files */
}

/* The least recently used entries are removed first. */
TEST(test_bounded)
{
    unsigned char data[10000] = {0};
    char k[16];
    wb__kernel_cache_set_limit(100000);
    for (int i = 0; i < 40; i++) {
        snprintf(k, sizeof k, "key %d", i);
        put("opencl", k, data, sizeof data);
        if (i < 3) {                            /* last used long ago */
            const struct timespec then[2] = {{.tv_sec = 1000000 + i}, {.tv_sec = 1000000 + i}};
            size_t bytes = 0;
            struct stat s;
            DIR *d = opendir(inner);
            assert_non_null(d);
            for (struct dirent *e; (e = readdir(d));)
                if (!fstatat(dirfd(d), e->d_name, &s, 0) && S_ISREG(s.st_mode) &&
                    s.st_mtime > 2000000)
                    assert_int_equal(utimensat(dirfd(d), e->d_name, then, 0), 0);
            closedir(d);
            if (i == 2) {                       /* key 0 is used again */
                void *got = wb__kernel_cache_read("opencl", "key 0", 5, &bytes);
                assert_non_null(got);
                wb__free(got);
            }
        }
        if (i == 9) {
            expect("opencl", "key 0", data, sizeof data);
            expect_none("opencl", "key 1");
        }
        int64_t held = 0;
        files(&held);
        assert_true(held <= 115000);            /* at most one file above the limit */
    }
    expect("opencl", "key 39", data, sizeof data);
}

int main(void)
{
    if (make_folder(NULL)) return 1;
    const int failed = run_cases_each(NULL, empty);
    const int left = remove_folder(NULL);
    return failed || left;
}
