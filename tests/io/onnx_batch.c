/* Random programs of slices, reversals, joins and margins along the batch, whose bounds depend on
 * the batch in all kinds of ways, as files of ONNX: a file that is written gives what the program
 * gives, with every size of the batch that the program takes; a batch of 1 if no bound is of
 * another kind for it alone. */
#include "test.h"

#include "process.h"
#include "weber.h"

enum { PROGRAMS = 1500, WRITTEN_LEAST = 250, STEPS = 7 };

static uint64_t program;                /* the number of the program */
static bool limited;                    /* it has min(batch, c) or max(n - c, 0) */

static int below(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

/* A bound of a slice of n rows; linear in the batch for the first few kinds */
static int64_t bound(int64_t batch, int64_t n, int kind, int c)
{
    switch (kind) {
    case 0: return c;
    case 1: return n - c;
    case 2: return batch - c;
    case 3: return 2 * batch;
    case 4: return batch / (c + 2);
    case 5: return batch % (c % 3 + 2);
    default: break;
    }
    limited = true;
    return kind == 6 ? (batch < c + 2 ? batch : c + 2) : n > c ? n - c : 0;
}

/* A step on a and b; NULL: these sizes are not possible. */
static wb_tensor *step(uint64_t *state, int64_t batch, wb_tensor *a, wb_tensor *b)
{
    const int op = below(state, 8), kind = below(state, 8), other = below(state, 8);
    const int c = below(state, 4), d = below(state, 4), ends = below(state, 3);
    const int64_t n = wb_dim(a, 0), first = ends == 0 ? 0 : bound(batch, n, kind, c);
    const int64_t last = ends == 1 ? n : bound(batch, n, other, d);
    switch (op) {
    case 0: case 1: return wb_slice(a, 0, first, last);
    case 2: return wb_slice(a, 0, first, last, ends == 2 ? -1 - c : 1 + c);
    case 3: return wb_flip(a, 0);
    case 4: return wb_concat(0, a, b);
    case 5: return wb_pad(a, 0, first, d);
    case 6: return wb_roll(a, 0, c);
    default: return wb_add(a, wb_expand(wb_sum(b, .axes = {0}, .keep = true), n, 2));
    }
}

static wb_tensor *call_program(wb_tensor *x)
{
    uint64_t state = program * 0x9e3779b97f4a7c15u;
    wb_tensor *made[STEPS + 1] = {x};
    const int n = 2 + below(&state, STEPS - 1);
    limited = false;
    for (int i = 0; i < n; i++) {
        wb_tensor *a = made[below(&state, i + 1)], *b = made[below(&state, i + 1)];
        if (!(made[i + 1] = step(&state, wb_dim(x, 0), a, b))) return NULL;
    }
    return made[n];
}

/* Compares the program and its file with a batch of n rows. */
static void compare(wb_layer *l, wb_layer *read, int64_t n)
{
    wb_tensor *x = wb_reshape(wb_arange(2 * n, WB_F32), n, 2), *y = wb_call(l, x);
    const float *p = y ? wb_data(y) : NULL;
    wb_clear_error();                   /* the program does not take this batch */
    if (!y || (n == 1 && limited)) return;
    wb_tensor *z = wb_call(read, x);
    const float *q = z ? wb_data(z) : NULL;
    if (!p || !q || wb_dim(y, 0) != wb_dim(z, 0) ||
        memcmp(p, q, (size_t)wb_size(y) * sizeof *p) != 0)
        fail_msg("program %d with a batch of %d: %s, and %s as read", (int)program, (int)n,
                 wb_describe(y), z ? wb_describe(z) : wb_error());
}

TEST(programs)
{
    static const int64_t batches[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 40};
    const char *folder = process_folder();
    char path[900];
    int written = 0;
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    for (program = 1; program <= PROGRAMS; program++) IN_SCOPE {
        wb_layer *l = wb_Chain(call_program);
        const int status = wb_save(path, l, .inputs = {wb_ones(1 + (int64_t)program % 9, 2)});
        wb_clear_error();
        wb_layer *read = status ? NULL : wb_load(path);
        if (!status && !read) fail_msg("program %d: %s", (int)program, wb_error());
        for (size_t i = 0; read && i < sizeof batches / sizeof *batches; i++)
            compare(l, read, batches[i]);
        written += !status;
    }
    assert_in_range(written, WRITTEN_LEAST, PROGRAMS);
    process_remove(folder);
}
