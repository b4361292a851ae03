/* Small files that describe much: parts that are named again and again, views that are larger than
 * their storage, views in turn of two storages, members that claim the same bytes.  What a reader
 * takes is at most a small multiple of the file and what wb_set_unpack_limit allows. */
#include "folder.h"
#include "python.h"

#include "every_block.h"

#include "weber.h"

static bool has_python;

typedef struct { wb_tree *tree; int64_t held, file; } reading;

/* Reads a file of the folder, and counts the memory that this takes at once, and its bytes. */
static reading read_file(const char *name)
{
    reading r = {.tree = NULL};
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    r.file = ftell(f);
    fclose(f);
    wb_clear_error();
    const int64_t before = atomic_load(&live);
    atomic_store(&peak, before);
    r.tree = wb_load_tensors(in_folder(name));
    r.held = atomic_load(&peak) - before;
    return r;
}

/* The file is refused with these facts, and takes little memory. */
static void is_refused(const char *name, const char *const *facts)
{
    const reading r = read_file(name);
    if (r.tree) fail_msg("%s was read", name);
    if (!failed_with(WB_ERROR_FORMAT, facts)) fail_msg("%s: %s", name, wb_error());
    if (r.held > 64 * r.file + (4 << 20))
        fail_msg("%s: %lld bytes for a file of %lld", name, (long long)r.held, (long long)r.file);
}

TEST_IN_SCOPE(parts_that_are_named_again)
{
    static const char *const kinds[] = {"tuples", "marked", "lists", "dicts"};
    static const int depths[] = {15, 17, 21, 40, 60};
    char name[64];
    if (!has_python) skip();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            snprintf(name, sizeof name, "%s-%d.pt", kinds[i], depths[k]);
            is_refused(name, FACTS("same parts so often"));
        }
    is_refused("names.pt", FACTS("same parts so often"));
    is_refused("wide.pt", FACTS("same parts so often"));
}

TEST_IN_SCOPE(tensors_count)
{
    if (!has_python) skip();
    wb_set_unpack_limit(1 << 20);
    MADE(read_file("repeated.pt").tree);
    wb_set_unpack_limit(0);
    is_refused("repeated-much.pt", FACTS("wb_set_unpack_limit"));
    wb_set_unpack_limit(1 << 20);
    is_refused("repeated-much.pt", FACTS("wb_set_unpack_limit"));
    wb_set_unpack_limit(128 << 20);
    wb_tree *t = read_file("repeated-much.pt").tree;
    MADE(t);
    assert_true(wb_at(wb_get(t, "99999"), 3) == 4);
    wb_set_unpack_limit((int64_t)4 << 30);
}

TEST_IN_SCOPE(views_that_are_larger_than_their_storage)
{
    if (!has_python) skip();
    wb_set_unpack_limit(1 << 20);
    wb_tree *t = read_file("expanded.pt").tree;
    MADE(t);
    assert_string_equal(wb_describe(wb_get(t, "x")), "[1000,100] f32");
    assert_true(wb_item(wb_min(wb_get(t, "x"))) == 1 && wb_item(wb_max(wb_get(t, "x"))) == 1);
    wb_set_unpack_limit(100000);
    is_refused("expanded.pt", FACTS("wb_set_unpack_limit"));
    /* 20 of 1 MB: refused before the first is made */
    wb_set_unpack_limit(19 << 20);
    is_refused("expanded-much.pt", FACTS("wb_set_unpack_limit"));
    wb_set_unpack_limit(20 << 20);
    MADE(t = read_file("expanded-much.pt").tree);
    assert_true(wb_at(wb_get(t, "x19"), 999, 249) == 4);
    wb_set_unpack_limit((int64_t)4 << 30);
}

TEST_IN_SCOPE(pickles_take_little)
{
    static const char *const names[] = {"lists.pt", "constants.pt", "numbers.pt"};
    if (!has_python) skip();
    for (int i = 0; i < 3; i++) {
        const reading r = read_file(names[i]);
        if (r.held > 96 * r.file + (1 << 20))
            fail_msg("%s: %lld bytes for a file of %lld", names[i], (long long)r.held,
                     (long long)r.file);
    }
    wb_clear_error();
}

/* A storage is read once: the blocks of 1 MiB that the reading allocates are two. */
TEST_IN_SCOPE(views_in_turn)
{
    if (!has_python) skip();
    const int64_t before = atomic_load(&allocated);
    const reading r = read_file("views.pt");
    const int64_t took = atomic_load(&allocated) - before;
    MADE(r.tree);
    assert_true(wb_at(wb_get(r.tree, "998"), 0) == 3 && wb_at(wb_get(r.tree, "999"), 0) == 6);
    if (took > 4 * r.file)
        fail_msg("%lld bytes were allocated for a file of %lld", (long long)took,
                 (long long)r.file);
}

TEST_IN_SCOPE(members_that_claim_the_same_bytes)
{
    if (!has_python) skip();
    is_refused("claims.npz", FACTS("claims bytes"));
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    has_python = python_has("zlib");
    wb_mean(wb_add(wb_ones(2, 2), wb_ones(2, 2)));      /* memory that the library keeps */
    return has_python && python_script("io/unfold_files.py write", folder) != 0;
}

int main(void)
{
    if (!begin_counting()) {
        printf("SKIP: the blocks of this C library cannot be counted\n");
        return 77;
    }
    return run_cases(make, remove_folder);
}
