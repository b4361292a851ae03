/* Tile programs on the CPU against an interpreter that computes one element at a time.  Programs,
 * spaces and views are random; their elements are small integers, so that results must be equal.
 *
 *   cpu_tile [seed [count]] */
#include "reference.h"

#include "tests/gpu/fused_random.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile/tile.h"

static uint64_t seed = 1;
static int count = 1500;

/* ---- comparing ------------------------------------------------------------------------------- */

static void *aligned(size_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, 64, bytes ? bytes : 64) ? NULL : p;
}

static void run_kernel(const wb__fused *f, void **buffers, const wb__number *numbers)
{
    wb__cpu_kernel *k = NULL;
    const int e = wb__cpu_fused(f, &k);
    if (e) print_message("prepare: %d %s\n", e, wb_error());
    assert_int_equal(e, 0);
    void *workspace = aligned(k->base.workspace);
    memset(workspace, 0x7f, k->base.workspace);
    assert_int_equal(k->launch(k, buffers, workspace, numbers), 0);
    k->destroy(k);
    free(workspace);
}

static void one_program(uint64_t number)
{
    static program p;
    drawn = number * 0x2545f4914f6cdd1du + 77;
    draw_program(&p);
    void *want[MOST_BUFFERS], *got[MOST_BUFFERS];
    fill(&p, want);
    for (int b = 0; b < p.n_buffers; b++) {
        got[b] = malloc((size_t)p.bytes[b]);
        memcpy(got[b], want[b], (size_t)p.bytes[b]);
    }
    for (int s = 0; s < p.f.n_segments; s++) interpret(&p.f, s, want, p.numbers);
    run_kernel(&p.f, got, p.numbers);
    for (int i = 0; i < p.f.n_segments * p.f.n_views; i++) {
        const wb__view *v = &p.views[i];
        const int64_t size = (int64_t)wb__dtype_size(v->dtype);
        for (int64_t j = 0; j < p.bytes[v->buffer] / size; j++) {
            double a, b;
            wb__convert(&a, WB_F64, (char *)want[v->buffer] + j * size, v->dtype, 1);
            wb__convert(&b, WB_F64, (char *)got[v->buffer] + j * size, v->dtype, 1);
            if (a == b || (isnan(a) && isnan(b))) continue;
            print_message("program %llu, view %d, element %lld: %g, not %g\n",
                          (unsigned long long)number, i, (long long)j, b, a);
            print_program(&p);
            fail();
        }
    }
    for (int b = 0; b < p.n_buffers; b++) free(want[b]), free(got[b]);
}

TEST(random_programs)
{
    for (int i = 0; i < count; i++) one_program(seed + (uint64_t)i);
}

TEST(more_threads)
{
    for (int n = 1; n <= 3; n++) {
        wb__set_threads(n);
        for (int i = 0; i < count / 3; i++) one_program(seed + 100000 + (uint64_t)i);
    }
}

TEST(each_isa)
{
    static const char *isa[] = {"portable", "avx2", "avx512"};
    for (int n = 0; n < 3; n++) {
        setenv("WEBER_ISA", isa[n], 1);
        if (strcmp(wb__tile_table_here()->isa, isa[n])) continue;   /* not on this processor */
        for (int i = 0; i < count / 3; i++) one_program(seed + 200000 + (uint64_t)i);
    }
    unsetenv("WEBER_ISA");
}

int main(int argc, char **argv)
{
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    count = argc > 2 ? atoi(argv[2]) : count / fewer();
    return run_all_cases();
}
