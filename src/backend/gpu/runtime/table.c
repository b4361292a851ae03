/* Tables: lists of kernel arguments in device memory.  A graph launches a table instead of kernels
 * whose arguments are passed by value.
 *
 * A graph contains the arguments of its kernels.  Numbers that change from run to run, such as a
 * learning rate or a position in the random stream, must therefore be in device memory.  A fused
 * kernel with such numbers becomes a table of one row; the many segments of an optimiser's update
 * become one table of many rows.  Each group of items finds its row by its group index:
 *
 *     row     at: addresses of the buffers | a: the argument struct | first: its first group
 *     block   rows of table 0 | rows of table 1 | ... | list of the places of numbers
 *
 * Before the graph runs, a small kernel gets the numbers by value and writes them into the rows.
 * A fused kernel's text is compiled with WB_TABLE, which turns the kernel into a function that the
 * table's kernel calls. */
#include "backend/gpu/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ----------------------------------------------------------------------------------- */

static size_t struct_at(const wb__gpu_launch *l) { return 8 * (size_t)l->n_buffers; }

static size_t gpu_table_first_at(const wb__gpu_launch *l) { return struct_at(l) + l->args_bytes; }

static size_t gpu_table_row_bytes(const wb__gpu_launch *l)
{
    return (gpu_table_first_at(l) + 4 + 7) / 8 * 8;
}

/* Returns a text, to be freed, with the kernel of a launch and the table's kernel that calls it. */
static char *gpu_table_text(const wb__gpu_launch *l)
{
    enum { PLACE = 40 };
    char *buffers = wb__alloc_zero((size_t)l->n_buffers + 1, PLACE), *end = buffers;
    if (!buffers) return NULL;
    for (int i = 0; i < l->n_buffers; i++)
        end += snprintf(end, PLACE, "(u8 *)rows[low].at[%d], ", i);
    char *text = wb__printf(
        "%s\n"
        "typedef struct { u64 at[%d]; %s a; uint first; } wb_row;\n"
        "typedef char wb_row_is_as_written[sizeof(wb_row) == %zu ? 1 : -1];\n"
        "extern \"C\" __launch_bounds__(%u) __global__ void wb_table(const wb_row *rows, uint n)\n"
        "{\n"
        "    uint low = 0, high = n - 1;\n"
        "    if (!n) return;\n"
        "    while (low < high) {\n"
        "        uint middle = (low + high + 1) >> 1;\n"
        "        if (rows[middle].first <= blockIdx.x) low = middle; else high = middle - 1;\n"
        "    }\n"
        "    %s(%srows[low].a, blockIdx.x - rows[low].first);\n"
        "}\n", l->text, l->n_buffers, l->args_type, gpu_table_row_bytes(l),
        l->items[0] * l->items[1] * l->items[2], l->entry, buffers);
    wb__free(buffers);
    return text;
}

/* The kernel that writes words into the rows.  `list` has pairs: the index of a word in `block`,
 * and the index of its value.  `words` has the values from index `word` on. */
static const char gpu_table_writer_text[] =
    "typedef struct { uint n, from, word, unused; uint words[%d]; } wb_put_args;\n"
    "KERNEL wb_put(OUT(uint, block, 0), IN(uint, list, 1), ARGS(wb_put_args, 2))\n"
    "{\n"
    "    uint i = GID(0);\n"
    "    if (i >= a.n) return;\n"
    "    i += a.from;\n"
    "    block[list[2 * i]] = a.words[list[2 * i + 1] - a.word];\n"
    "}\n";

enum { PUT_ITEMS = 128, PUT_HEAD = 16 };

/* The number of words that one launch of wb_put gets.  It is even, and one of three values, so that
 * few kernels are compiled. */
static uint32_t words_at_once(const wb__gpu_tables *t)
{
    const int n = 2 * t->words.n_numbers;
    return n <= 16 ? 16 : n <= 128 ? 128 : 864;
}

/* ---- choosing launches ----------------------------------------------------------------------- */

static bool uses_workspace(const wb__gpu_launch *l)
{
    for (int i = 0; i < l->n_buffers; i++)
        if (l->buffer[i] == WB__GPU_WORKSPACE) return true;
    return false;
}

/* Sets single[i] to true if launch i is that of a fused kernel without workspace, and the only one
 * of its segment: such a launch is independent of all others. */
static void find_single(const wb__gpu_kernel *k, bool *single)
{
    for (int i = 0; i < k->n; i++) {
        const wb__gpu_launch *l = k->launches[i].launch;
        single[i] = l->args_type && l->args_bytes && !uses_workspace(l) &&
                    (!i || k->launches[i - 1].launch->segment != l->segment) &&
                    (i + 1 == k->n || k->launches[i + 1].launch->segment != l->segment);
    }
}

/* Whether two launches differ only in buffers and arguments, so that one table can have both. */
static bool are_alike(const wb__gpu_launch *a, const wb__gpu_launch *b)
{
    return a->n_buffers == b->n_buffers && a->args_bytes == b->args_bytes && a->f64 == b->f64 &&
           !memcmp(a->items, b->items, sizeof a->items) && a->groups[1] == b->groups[1] &&
           a->groups[2] == b->groups[2] && a->local == b->local && !strcmp(a->entry, b->entry) &&
           !strcmp(a->text, b->text);
}

/* Lists in `rows` the launches that form a table with launch `first`, and marks them as taken.
 * Returns their number; 0: launch `first` needs no table. */
static int gpu_table_list_rows(const wb__gpu_kernel *k, int first, const bool *single, bool *taken,
                               int *rows)
{
    const wb__gpu_launch *l = k->launches[first].launch;
    uint64_t groups = l->groups[0];
    int n = 0;
    rows[n++] = first;
    for (int i = first + 1; i < k->n && single[first]; i++) {
        const wb__gpu_launch *other = k->launches[i].launch;
        if (taken[i] || !single[i] || !are_alike(l, other)) continue;
        if (groups + other->groups[0] > INT32_MAX) continue;
        groups += other->groups[0];
        rows[n++] = i;
    }
    if (n == 1 && !l->n_numbers) return 0;
    for (int i = 0; i < n; i++) taken[rows[i]] = true;
    return n;
}

/* ---- creating -------------------------------------------------------------------------------- */

/* Launches the table's kernel once, without rows.  Drivers load a kernel at its first launch, and
 * loading is not allowed during recording. */
static int load_table_kernel(wb__gpu_device *d, const wb__gpu_table *t, const wb__gpu_launch *l)
{
    uint64_t rows = 0;
    uint32_t n = 0;
    void *arguments[] = {&rows, &n};
    wb__mutex_lock(&d->lock);
    static const uint32_t one[3] = {1, 1, 1};
    const int code = d->driver->launch(d, WB__GPU_COMPUTE, t->function, one, l->items, l->local,
                                       arguments, NULL);
    if (!code) wb__gpu_count_command(d, NULL);
    wb__mutex_unlock(&d->lock);
    return code ? wb__gpu_fail(d->driver, d, code, "a table without rows") : 0;
}

static int gpu_table_add(wb__gpu_device *d, wb__gpu_tables *t, const wb__gpu_kernel *k,
                         const int *rows, int n)
{
    const wb__gpu_launch *l = k->launches[rows[0]].launch;
    if (!wb__reserve(&t->table, &t->capacity, t->n + 1, sizeof *t->table)) return WB_ERROR_MEMORY;
    wb__gpu_table *table = &t->table[t->n];
    *table = (wb__gpu_table){.kernel = k, .n = n, .at = t->bytes,
                             .row_bytes = gpu_table_row_bytes(l)};
    table->row_launch = wb__alloc((size_t)n * sizeof *table->row_launch);
    if (!table->row_launch) return WB_ERROR_MEMORY;
    t->n++;
    memcpy(table->row_launch, rows, (size_t)n * sizeof *rows);
    t->bytes += (size_t)n * table->row_bytes;
    for (int i = 0; i < n; i++) table->groups += k->launches[rows[i]].launch->groups[0];
    char *text = gpu_table_text(l);
    if (!text) return WB_ERROR_MEMORY;
    const int flags = WB__GPU_TABLE | (l->f64 ? WB__GPU_F64 : 0) |
                      (k->base.in_branch ? WB__GPU_APART : 0);
    table->program = wb__gpu_program_get(d, text, flags);
    wb__free(text);
    if (!table->program) return wb_error_code();
    const int status =
        wb__gpu_function_of(d, table->program, "wb_table", l->items, l->local, &table->function);
    return status ? status : load_table_kernel(d, table, l);
}

static int tables_of(wb__gpu_device *d, wb__gpu_tables *t, const wb__gpu_kernel *k)
{
    const size_t n = (size_t)k->n + 1;
    bool *taken = wb__alloc_zero(2 * n, sizeof *taken), *single = taken + n;
    int *rows = wb__alloc_zero(n, sizeof *rows), status = taken && rows ? 0 : WB_ERROR_MEMORY;
    if (!status) find_single(k, single);
    for (int i = 0; i < k->n && !status; i++) {
        const wb__gpu_launch *l = k->launches[i].launch;
        if (taken[i]) continue;
        if (l->n_numbers && !l->args_type) status = WB_ERROR_UNSUPPORTED;
        const int found = status ? 0 : gpu_table_list_rows(k, i, single, taken, rows);
        if (found) status = gpu_table_add(d, t, k, rows, found);
    }
    wb__free(taken);
    wb__free(rows);
    return status;
}

/* Returns the index, in t->words.numbers, of a number of the plan.  Adds the number if it is new.
 * -1: out of memory. */
static int gpu_table_word_of(wb__gpu_tables *t, const wb__gpu_number *n)
{
    wb__gpu_launch *w = &t->words;
    for (int i = 0; i < w->n_numbers; i++)
        if (w->numbers[i].number == n->number && w->numbers[i].type == n->type) return i;
    wb__gpu_number *more = wb__realloc(w->numbers, (size_t)(w->n_numbers + 1) * sizeof *more);
    if (!more) return -1;
    w->numbers = more;
    more[w->n_numbers] = (wb__gpu_number){.number = n->number, .type = n->type,
                                          .at = 8 * (uint32_t)w->n_numbers};
    return w->n_numbers++;
}

static int gpu_table_by_word(const void *a, const void *b)
{
    const wb__gpu_table_word *x = a, *y = b;
    return (x->word > y->word) - (x->word < y->word);
}

/* Lists in t->target the words of the tables that are numbers of the plan. */
static int list_targets(wb__gpu_tables *t)
{
    int capacity = 0;
    for (int i = 0; i < t->n; i++)
        for (int r = 0; r < t->table[i].n; r++)
            capacity +=
                2 * t->table[i].kernel->launches[t->table[i].row_launch[r]].launch->n_numbers;
    t->target = wb__alloc_zero((size_t)capacity + 1, sizeof *t->target);
    if (!t->target) return WB_ERROR_MEMORY;
    for (int i = 0; i < t->n; i++) {
        const wb__gpu_table *table = &t->table[i];
        for (int r = 0; r < table->n; r++) {
            const wb__gpu_launch *l = table->kernel->launches[table->row_launch[r]].launch;
            const size_t at = table->at + (size_t)r * table->row_bytes + struct_at(l);
            for (int k = 0; k < l->n_numbers; k++) {
                const wb__gpu_number *n = &l->numbers[k];
                const bool two = wb__gpu_two_words(n->type);
                const int word = gpu_table_word_of(t, n);
                if (word < 0) return WB_ERROR_MEMORY;
                for (uint32_t half = 0; half <= two; half++)
                    t->target[t->n_targets++] = (wb__gpu_table_word){
                        (uint32_t)(at + n->at) / 4 + half, 2 * (uint32_t)word + half};
            }
        }
    }
    qsort(t->target, (size_t)t->n_targets, sizeof *t->target, gpu_table_by_word);
    return 0;
}

/* Compiles the kernel that writes the words, and allocates its arguments. */
static int make_writer(wb__gpu_device *d, wb__gpu_tables *t)
{
    const uint32_t most = words_at_once(t);
    t->words.args_bytes = 8 * (size_t)t->words.n_numbers;
    t->words.workspace_at = -1;
    /* zeros, the input of wb__gpu_fill_args, and behind them its output, the current values */
    t->words.args = wb__alloc_zero(2 * t->words.args_bytes, 1);
    t->args = wb__alloc_zero(PUT_HEAD + 4 * most, 1);
    char *text = wb__printf(gpu_table_writer_text, (int)most);
    if (!t->words.args || !t->args || !text) {
        wb__free(text);
        return WB_ERROR_MEMORY;
    }
    t->program = wb__gpu_program_get(d, text, WB__GPU_PLAIN);
    wb__free(text);
    if (!t->program) return wb_error_code();
    static const uint32_t items[3] = {PUT_ITEMS, 1, 1};
    return wb__gpu_function_of(d, t->program, "wb_put", items, 0, &t->function);
}

int wb__gpu_tables_make(wb__gpu_device *d, const wb__sequence *s, wb__gpu_tables *t)
{
    int status = 0;
    *t = (wb__gpu_tables){0};
    for (int i = 0; i < s->n_kernels && !status; i++)
        status = tables_of(d, t, (const wb__gpu_kernel *)s->kernels[i]);
    if (!status) status = list_targets(t);
    t->list_at = t->bytes;
    t->bytes += (size_t)t->n_targets * sizeof *t->target;
    if (!status && t->bytes / 4 > UINT32_MAX) status = WB_ERROR_UNSUPPORTED;
    if (!status && t->n_targets) status = make_writer(d, t);
    if (status) wb__gpu_tables_free(d, t);
    return status;
}

void wb__gpu_tables_free(wb__gpu_device *d, wb__gpu_tables *t)
{
    for (int i = 0; i < t->n; i++) {
        wb__gpu_program_release(d, t->table[i].program);
        wb__free(t->table[i].row_launch);
    }
    wb__gpu_program_release(d, t->program);
    wb__free(t->table);
    wb__free(t->target);
    wb__free(t->words.numbers);
    wb__free(t->words.args);
    wb__free(t->args);
    *t = (wb__gpu_tables){0};
}

/* ---- filling, writing and launching ---------------------------------------------------------- */

void wb__gpu_tables_fill(const wb__gpu_tables *t, const wb__gpu_addresses *at, unsigned char *block)
{
    for (int i = 0; i < t->n; i++) {
        const wb__gpu_table *table = &t->table[i];
        const size_t workspace_at =
            at->workspace_at + (table->kernel->base.in_branch ? at->branch_at : 0);
        uint32_t first = 0;
        for (int r = 0; r < table->n; r++) {
            const wb__gpu_launch *l = table->kernel->launches[table->row_launch[r]].launch;
            unsigned char *row = block + table->at + (size_t)r * table->row_bytes;
            for (int b = 0; b < l->n_buffers; b++) {
                const bool workspace = l->buffer[b] == WB__GPU_WORKSPACE;
                const uint64_t p = workspace ? at->workspace : at->address[l->buffer[b]];
                memcpy(row + 8 * b, &p, sizeof p);
            }
            wb__gpu_fill_args(l, at->numbers, NULL, workspace_at, row + struct_at(l));
            memcpy(row + gpu_table_first_at(l), &first, sizeof first);
            first += l->groups[0];
        }
    }
    if (t->n_targets)
        memcpy(block + t->list_at, t->target, (size_t)t->n_targets * sizeof *t->target);
}

int wb__gpu_tables_write(wb__gpu_device *d, wb__gpu_tables *t, uint64_t block,
                        const wb__number *numbers)
{
    unsigned char *words = t->words.args + t->words.args_bytes;
    uint64_t list = block + t->list_at;
    void *arguments[] = {&block, &list, t->args};
    const uint32_t most = words_at_once(t), all = 2 * (uint32_t)t->words.n_numbers;
    if (!t->n_targets) return 0;
    wb__gpu_fill_args(&t->words, numbers, NULL, 0, words);
    for (uint32_t word = 0, from = 0, end; word < all; word += most, from = end) {
        for (end = from; end < (uint32_t)t->n_targets && t->target[end].word < word + most;) end++;
        const uint32_t head[4] = {end - from, from, word, 0};
        memcpy(t->args, head, sizeof head);
        memcpy(t->args + PUT_HEAD, words + 4 * word, 4 * WB__MIN(most, all - word));
        const uint32_t groups[3] = {(head[0] + PUT_ITEMS - 1) / PUT_ITEMS, 1, 1};
        static const uint32_t items[3] = {PUT_ITEMS, 1, 1};
        const int code = d->driver->launch(d, WB__GPU_COMPUTE, t->function, groups, items, 0,
                                           arguments, NULL);
        if (code) return wb__gpu_fail(d->driver, d, code, "%u numbers of a graph", all / 2);
    }
    return 0;
}

int wb__gpu_table_launch(wb__gpu_device *d, const wb__gpu_table *t, uint64_t block, wb__gpu_queue q)
{
    const wb__gpu_launch *l = t->kernel->launches[t->row_launch[0]].launch;
    uint64_t rows = block + t->at;
    uint32_t n = (uint32_t)t->n;
    void *arguments[] = {&rows, &n};
    const uint32_t groups[3] = {t->groups, l->groups[1], l->groups[2]};
    const int code =
        d->driver->launch(d, q, t->function, groups, l->items, l->local, arguments, NULL);
    return code ? wb__gpu_fail(d->driver, d, code, "%s (%s): a table of %d rows", t->kernel->what,
                               t->kernel->base.impl, t->n) : 0;
}
