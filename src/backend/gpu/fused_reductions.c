/* Kernels that reduce rows or everything.  To reduce everything, all points are rows of one column.
 * A group processes a tile of adjacent columns; several of its items share a column, each with some
 * of the rows.  Where columns are adjacent in memory, an item has a vector of them: it loads and
 * adds several columns of a row at once, and then writes its sums to local memory, from where each
 * column is combined as if items had had one column each.
 *
 * If there are too few columns to occupy the device, the rows are cut into chunks.
 * The results of the chunks are stored in the workspace.  The group that is the last to store them
 * combines them in a fixed order, whichever group it is: each group of a tile takes a ticket.
 * Where devices have no tickets, a second kernel combines them. */
#include "backend/gpu/fused.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_CHUNKS = 4096,
    AT_ONCE = 4,                /* rows whose elements an item loads before it adds the first */
    ELEMENTS_AT_ONCE = 16,      /* the same limit for vectors of columns, in elements */
    SHORT_PROGRAM = 32,         /* most instructions of a program that loads AT_ONCE rows */
    MOST_LOCAL = 16384          /* bytes of local memory for vectors of columns; thus limits the
                                   registers for sums as well: 16 of f32 with their errors */
};

typedef struct {
    const wb__fuse_program *program;
    wb__reduction *reductions;
    int n;                          /* number of reductions */
    const bool *stores;             /* stores that the kernel does beside the reductions; or NULL */
    bool all;                       /* the reductions are of everything, not of rows */
    bool ticket;                    /* the group that is the last to end combines the chunks */
    int64_t outers, rows, cols;     /* points of each loop; rows of vectors, if there are vectors */
    int64_t chunks, chunk;          /* chunks of the rows; rows of one chunk */
    int64_t pieces, start;  /* REDUCE_ALL: number of pieces; index of this piece's first point */
    int64_t before;                 /* chunks of all earlier pieces */
    int log;                        /* log2 of the columns in a tile */
    int lanes;                      /* columns of an item; 1: no vectors of columns */
    size_t at;                      /* workspace offset of the partial results */
} reductions;

/* ---- the shape of a launch ------------------------------------------------------------------- */

/* Returns along which innermost dimension most loads are contiguous in memory: > 0: that of the
 * columns; < 0: that of the rows; 0: neither prevails. */
static int reductions_neighbours(const wb__fuse *k)
{
    const int col = k->first[WB__COLS + 1] - 1, row = k->first[WB__ROWS + 1] - 1;
    int along_cols = 0, along_rows = 0;
    for (int i = 0; i < k->program->n_instr; i++) {
        if (!k->needed[i] || k->program->instr[i].kind != WB__LOAD) continue;
        const wb__fuse_operand *p = &k->operands[k->operand[i]];
        along_cols += k->first[WB__COLS] <= col && p->stride[col] == 1;
        along_rows += k->first[WB__ROWS] <= row && p->stride[row] == 1;
    }
    return along_cols - along_rows;
}

/* A tile has up to 32 columns, or 8 vectors of columns, which are up to 128 bytes; more if the
 * space has fewer rows than the group has items for them. */
static void reductions_choose_tile(reductions *f, const wb__fuse *k)
{
    const bool cpu = k->target->in_turn;
    const int vector = wb__fuse_log(f->lanes, 8), side = vector ? 1 : reductions_neighbours(k);
    f->log = f->all || side < 0 ? 0 : wb__fuse_log(f->cols, cpu ? 8 : WB__MAX(5, 3 + vector));
    const int tall = wb__fuse_log(f->rows, 8) - vector;  /* at most one item per row */
    if (side >= 0 && f->log < 8 - tall)
        f->log = WB__MIN(WB__MIN(8 - tall, 8), wb__fuse_log(f->cols, 8));
    const int64_t lanes = WB__GROUP_ITEMS >> f->log, groups = wb__quotient_up(f->cols, 1 << f->log);
    const int64_t wanted = (cpu ? 32 : 1024) / (groups * f->outers + 1);
    const int64_t least = lanes * (cpu ? 64 : 16), most = f->rows / least;
    /* a CPU rereads a chunk's cache lines for each column of a tile; a short chunk stays cached */
    f->chunks = WB__MAX(cpu && f->log ? WB__MIN(most, MAX_CHUNKS) : WB__MIN(wanted, most), 1);
    f->chunk = WB__MAX(wb__quotient_up(f->rows, f->chunks), 1);
    f->chunks = WB__MAX(wb__quotient_up(f->rows, f->chunk), 1);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Emits pointers to the partial results of all reductions. */
static void reductions_emit_partials(reductions *f, wb__fuse *k)
{
    const int b = wb__fuse_buffer_argument(k, WB__GPU_WORKSPACE);
    const int64_t most = f->pieces > 1 ? f->pieces * MAX_CHUNKS : f->chunks;
    const int64_t n = most * f->outers * f->cols;
    size_t at = f->at;
    for (int i = 0; i < f->n; i++) {
        const wb__reduction *one = &f->reductions[i];
        const char *kind = wb__fuse_kinds[one->acc];
        wb__fuse_pair(k, (int64_t)at, "q%d", i);
        wb__fuse_line(k, "GLOBAL %s *q%d = (GLOBAL %s *)PTR(u8, PTR(u8, b%d, a.workspace, "
                      "a.workspaceh), a.q%d, a.q%dh);", kind, i, kind, b, i, i);
        at = wb__aligned(at + (size_t)n * wb__dtype_size(wb__fuse_whole[one->acc]));
        if (one->op != WB__OP_argmax) continue;
        wb__fuse_pair(k, (int64_t)at, "z%d_", i);
        wb__fuse_line(k, "GLOBAL uint *z%d_ = (GLOBAL uint *)PTR(u8, PTR(u8, b%d, a.workspace, "
                      "a.workspaceh), a.z%d_, a.z%d_h);", i, b, i, i);
        at = wb__aligned(at + (size_t)n * 4);
    }
    k->work->workspace = WB__MAX(k->work->workspace, at);
}

/* Emits the item's index l in the group, and its position in the tile, without vectors: column x
 * and row y. */
static void reductions_emit_items(reductions *f, wb__fuse *k)
{
    wb__reduction_arrays(k, f->reductions, f->n, k->items);
    wb__fuse_uint(k, 1 << f->log, "across");
    wb__fuse_uint(k, f->log, "log");
    wb__fuse_uint(k, f->cols, "cols");
    wb__fuse_uint(k, f->rows, "rows");
    wb__fuse_line(k, "const uint l = LID(0), x = l & (a.across - 1), y = l >> a.log;");
    wb__fuse_line(k, "const uint lanes = %du >> a.log;", WB__GROUP_ITEMS);
    if (f->ticket) wb__fuse_line(k, "LOCAL uint ticket;");
}

/* Marks the stores beside the reductions as needed. */
static void reductions_need_stores(const reductions *f, wb__fuse *k)
{
    for (int i = 0; i < f->program->n_instr && f->stores; i++) k->needed[i] |= f->stores[i];
}

typedef void row_function(const reductions *f, wb__fuse *k);

/* Emits the loop over those rows r in [from, to) that the item processes.  `row` emits the code for
 * one row.  With at_once > 1 the loop has a first part for at_once rows per turn. */
static void reductions_over_rows(const reductions *f, wb__fuse *k, int at_once, row_function *row)
{
    if (k->target->in_turn) {  /* each item gets contiguous rows */
        wb__fuse_line(k, "const uint piece = (to - from + lanes - 1) / lanes;");
        wb__fuse_line(k, "const uint start = y * piece < to - from ? from + y * piece : to;");
        wb__fuse_line(k, "const uint end = to - start < piece ? to : start + piece;");
        wb__fuse_open(k, "for (uint r = start; r < end; r++)");
        row(f, k);
        wb__fuse_close(k);
        return;
    }
    wb__fuse_line(k, "uint next = from + y;");
    if (at_once > 1) {
        wb__fuse_open(k, "for (; next < to && to - next > %d * lanes; next += %d * lanes)",
                      at_once - 1, at_once);
        wb__fuse_open(k, "UNROLL for (uint step = 0; step < %du; step++)", at_once);
        wb__fuse_line(k, "const uint r = next + step * lanes;");
        row(f, k);
        wb__fuse_close(k);
        wb__fuse_close(k);
    }
    wb__fuse_open(k, "for (; next < to; next += lanes)");
    wb__fuse_line(k, "const uint r = next;");
    row(f, k);
    wb__fuse_close(k);
}

/* Emits the code that adds the elements of row r of the space. */
static void reductions_add_row(const reductions *f, wb__fuse *k)
{
    char index[40] = "r";
    wb__fuse_emit_indices(k, "r", k->first[WB__ROWS], k->first[WB__ROWS + 1]);
    wb__fuse_emit_offsets(k, k->needed);
    if (k->vector > 1) {
        if (!k->columns) snprintf(index, sizeof index, "(r * %du + lane)", k->vector);
        wb__fuse_load_vectors(k, k->needed);
        wb__fuse_open_lanes(k);
    } else if (f->pieces > 1) {
        snprintf(index, sizeof index, "(r + a.start)");
    }
    wb__fuse_emit_values(k, k->needed, WB__LEVEL_FULL);
    for (int i = 0; i < f->n; i++) wb__reduction_emit_add(k, &f->reductions[i], index);
    for (int i = 0; i < k->program->n_instr && f->stores; i++)
        if (f->stores[i]) wb__fuse_emit_store(k, i);
    if (k->vector > 1) {
        wb__fuse_close(k);
        wb__fuse_store_vectors(k, k->needed);
    }
    wb__fuse_forget_values(k);
}

/* Emits the code that adds the partial results of chunk r. */
static void reductions_add_chunk(const reductions *f, wb__fuse *k)
{
    char at[48];
    snprintf(at, sizeof at, "r * a.line + %sc", f->outers > 1 ? "o * a.cols + " : "");
    for (int i = 0; i < f->n; i++) wb__reduction_emit_merge(k, &f->reductions[i], at);
}

/* Combines the results of the group's items.  From here on an item has one column. */
static void reductions_combine_items(reductions *f, wb__fuse *k)
{
    wb__reduction_emit_tree(k, f->reductions, f->n, "l", "128", "a.across");
    for (int i = 0; i < f->n; i++) f->reductions[i].lanes = 1;
}

/* Stores the results of column c.  Its index has the dimensions from `from` on. */
static void reductions_store_results(reductions *f, wb__fuse *k, int from)
{
    reductions_combine_items(f, k);
    wb__fuse_open(k, "if (y == 0 && c < a.cols)");
    wb__fuse_emit_indices(k, "c", from, k->n_dims);
    k->place = WB__BEHIND_LOOP;
    wb__fuse_emit_bases(k);
    for (int i = 0; i < f->n; i++) {
        const wb__reduction *one = &f->reductions[i];
        const wb__fuse_operand *p = &k->operands[k->operand[one->instr]];
        wb__reduction_emit_value(k, one, "l");
        wb__fuse_line(k, "p%d[0] = TO_%s_%s(v%d);", p->id, wb__gpu_types[p->view->dtype].name,
                      wb__fuse_kinds[one->out], one->instr);
    }
    wb__fuse_close(k);
}

static void reductions_store_partials(reductions *f, wb__fuse *k)
{
    reductions_combine_items(f, k);
    wb__fuse_open(k, "if (y == 0 && c < a.cols)");
    wb__fuse_uint(k, f->outers * f->cols, "line");
    if (f->pieces > 1) wb__fuse_uint(k, f->before, "before");
    wb__fuse_line(k, "const uint at = %s * a.line + %sc;",
                  f->pieces > 1 ? "(a.before + GRP(1))" : "GRP(1)",
                  f->outers > 1 ? "o * a.cols + " : "");
    for (int i = 0; i < f->n; i++) {
        const wb__reduction *one = &f->reductions[i];
        wb__fuse_line(k, "q%d[at] = t%d_%s[l];", i, one->slot, wb__fuse_kinds[one->acc]);
        if (one->op == WB__OP_argmax) wb__fuse_line(k, "z%d_[at] = z%d[l];", i, one->slot);
    }
    wb__fuse_close(k);
}

/* Emits code by which the last group of a tile that stores its partial results combines those of
 * all chunks.  The last ticket sets the counter of the tile back to 0, for the next launch. */
static void reductions_emit_combine(reductions *f, wb__fuse *k)
{
    k->tickets = true;
    wb__fuse_uint(k, f->chunks, "chunks");
    wb__fuse_line(k, "FENCE;");
    wb__fuse_line(k, "BARRIER;");
    wb__fuse_line(k, "if (l == 0) ticket = TICKET(counters + GRP(0), a.chunks - 1);");
    wb__fuse_line(k, "BARRIER;");
    wb__fuse_open(k, "if (ticket == a.chunks - 1)");
    wb__fuse_line(k, "FENCE;");
    for (int i = 0; i < f->n; i++) wb__reduction_declare(k, &f->reductions[i]);
    wb__fuse_line(k, "const uint from = 0, to = c < a.cols ? a.chunks : 0;");
    reductions_over_rows(f, k, AT_ONCE, reductions_add_chunk);
    wb__reduction_emit_local(k, f->reductions, f->n);
    reductions_store_results(f, k, k->first[WB__COLS]);
    wb__fuse_close(k);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The longest vectors of columns for which the group's results fit into local memory. */
static int reductions_longest(const reductions *f, const wb__gpu_target *t)
{
    const int64_t bytes = wb__reduction_arrays(NULL, f->reductions, f->n, WB__GROUP_ITEMS);
    const int64_t most = WB__MIN((int64_t)t->local_bytes - 16, MOST_LOCAL); /* 16: the ticket */
    int n = 1;
    while (n < 64 && 2 * n * bytes <= most) n *= 2;
    return n;
}

/* Begins the kernel that reads the operands, after it has chosen the kernel's tile, its chunks of
 * rows and its vectors: a first pass over the program finds the loops, the second begins. */
static int reductions_begin_kernel(reductions *f, wb__fuse *k, const wb__gpu_target *t,
                                   wb__gpu_work *work)
{
    int e = wb__fuse_start(k, t, work, f->program);
    if (e) return e;
    for (int i = 0; i < f->n; i++) k->needed[f->reductions[i].instr] = true;
    reductions_need_stores(f, k);
    wb__fuse_mark_needed(f->program, k->needed, true);
    const wb__walk walk = f->all ? WB__IN_ORDER : WB__BY_GROUP;
    k->longest = reductions_longest(f, t);
    wb__fuse_make_loops(k, walk, f->all ? WB__NO_VECTORS : WB__VECTORS_OF_COLUMNS);
    f->outers = k->points[WB__OUTER], f->rows = k->points[WB__ROWS];
    f->lanes = k->columns ? k->vector : 1;
    f->cols = k->points[WB__COLS] * f->lanes;
    reductions_choose_tile(f, k);
    const int64_t tiles = wb__quotient_up(f->cols, 1 << f->log);
    const bool cut = f->chunks > 1 || f->pieces > 1;
    /* rows of one column each, whose elements may be adjacent */
    const bool adjacent = !f->log && f->pieces <= 1 && k->first[WB__COLS] == k->n_dims
        && k->first[WB__ROWS] < k->n_dims;
    f->ticket = cut && f->pieces <= 1 && t->tickets && tiles * f->outers <= WB__FUSE_COUNTERS;
    wb__fuse_free(k);
    e = wb__fuse_start(k, t, work, f->program);
    if (e) return e;
    const bool writes = !cut || f->ticket;      /* this kernel writes the results */
    for (int i = 0; i < f->n; i++)
        k->needed[writes ? f->reductions[i].instr
                         : f->program->instr[f->reductions[i].instr].a] = true;
    reductions_need_stores(f, k);
    wb__fuse_mark_needed(f->program, k->needed, true);
    k->longest = f->lanes > 1 ? f->lanes : 0;
    wb__fuse_make_loops(k, walk, f->lanes > 1 ? WB__VECTORS_OF_COLUMNS : adjacent ? WB__VECTORS
                                                                             : WB__NO_VECTORS);
    for (int i = 0; i < f->n; i++) f->reductions[i].lanes = f->lanes;
    f->rows = k->points[WB__ROWS];              /* of vectors, if the kernel has any */
    f->chunk = WB__MAX(wb__quotient_up(f->rows, f->chunks), 1);
    f->chunks = WB__MAX(wb__quotient_up(f->rows, f->chunk), 1);
    return 0;
}

/* Emits the range [from, to) of the item's rows, and the pointers of its column c or, with vectors,
 * of the vector of columns that begins with c.  A vector beside the last column is not read. */
static void reductions_place_item(const reductions *f, wb__fuse *k)
{
    const char *c = f->lanes > 1 ? "first" : "c";
    if (f->lanes > 1) {
        wb__fuse_line(k, "const uint first = tile * a.across + (l * %du & (a.across - 1));",
                      f->lanes);
        wb__fuse_line(k, "const uint y = l * %du >> a.log, lanes = %du >> a.log;", f->lanes,
                      WB__GROUP_ITEMS * f->lanes);
    }
    wb__fuse_line(k, "const uint from = GRP(1) * a.chunk, left = a.rows - from;");
    wb__fuse_line(k, "const uint to = %s >= a.cols ? from : left < a.chunk ? a.rows "
                  ": from + a.chunk;", c);
    if (f->lanes > 1)
        wb__fuse_line(k, "const uint v = first < a.cols ? first / %du : 0;", f->lanes);
    wb__fuse_emit_indices(k, f->lanes > 1 ? "v" : "c", k->first[WB__COLS], k->n_dims);
    wb__fuse_emit_bases(k);
    k->place = WB__BEFORE_LOOP;
    if (k->columns) wb__fuse_load_vectors(k, k->needed);
    k->place = WB__IN_LOOP;
}

/* Returns how many rows an item loads before it adds the first. */
static int reductions_rows_at_once(const reductions *f, const wb__fuse *k)
{
    int instructions = 0;
    for (int i = 0; i < f->program->n_instr; i++) instructions += k->needed[i];
    if (instructions > SHORT_PROGRAM) return 1;
    if (k->columns) return WB__MIN(ELEMENTS_AT_ONCE / k->vector, AT_ONCE);
    return k->vector > 1 ? 1 : AT_ONCE;
}

static int reductions_first_kernel(reductions *f, const wb__gpu_target *t, wb__gpu_work *work)
{
    wb__fuse k;
    const int e = reductions_begin_kernel(f, &k, t, work);
    if (e) return e;
    const int64_t tiles = wb__quotient_up(f->cols, 1 << f->log);
    const bool cut = f->chunks > 1 || f->pieces > 1;
    k.impl = f->all ? "a group a stretch of elements" : "a group some rows of some columns";
    for (int d = k.first[WB__ROWS]; d < k.first[WB__ROWS + 1]; d++) k.inner |= 1u << d;
    reductions_emit_items(f, &k);
    wb__fuse_uint(&k, f->chunk, "chunk");
    if (f->outers > 1) {
        wb__fuse_uint(&k, tiles, "tiles");
        wb__fuse_line(&k, "const uint o = GRP(0) / a.tiles;");
        wb__fuse_line(&k, "const uint tile = GRP(0) - o * a.tiles;");
    } else {
        wb__fuse_line(&k, "const uint tile = GRP(0);");
    }
    wb__fuse_line(&k, "const uint c = tile * a.across + x;");
    wb__fuse_emit_indices(&k, "o", k.first[WB__OUTER], k.first[WB__ROWS]);
    if (cut) reductions_emit_partials(f, &k);
    if (f->pieces > 1) wb__fuse_uint(&k, f->start, "start");
    wb__fuse_open(&k, "%s", "");    /* a block, since its variables have the names of the others */
    reductions_place_item(f, &k);
    for (int i = 0; i < f->n; i++) wb__reduction_declare(&k, &f->reductions[i]);
    reductions_over_rows(f, &k, reductions_rows_at_once(f, &k), reductions_add_row);
    wb__reduction_emit_local(&k, f->reductions, f->n);
    wb__fuse_close(&k);
    if (cut) reductions_store_partials(f, &k);
    else reductions_store_results(f, &k, k.first[WB__COLS]);
    if (f->ticket) reductions_emit_combine(f, &k);
    return wb__fuse_finish(&k, tiles * f->outers, f->chunks, 1);
}

/* Adds the kernel that combines the results of the chunks.  A row of this kernel is a chunk; a
 * column is one of the results that each chunk has. */
static int reductions_second_kernel(reductions *f, const wb__gpu_target *t, wb__gpu_work *work)
{
    wb__fuse k;
    wb__fuse_program flat = *f->program;
    const int outer = flat.space.ndim - flat.space.row_dims - flat.space.col_dims;
    for (int d = 0; d < flat.space.ndim; d++)
        if (f->all || (d >= outer && d < outer + flat.space.row_dims)) flat.space.dims[d] = 1;
    const int e = wb__fuse_start(&k, t, work, &flat);
    if (e) return e;
    for (int i = 0; i < f->n; i++) k.needed[f->reductions[i].instr] = true;
    wb__fuse_make_loops(&k, WB__IN_ORDER, WB__NO_VECTORS);
    reductions_emit_partials(f, &k);
    reductions g = *f;
    g.ticket = false;
    g.rows = f->chunks, g.cols = f->outers * f->cols, g.outers = 1;
    const int tall = wb__fuse_log(g.rows, 8);
    g.log = WB__MAX(wb__fuse_log(g.cols, t->in_turn ? 8 : 5), WB__MIN(8 - tall, 8));
    k.impl = f->all ? "a group a stretch of elements" : "a group some rows of some columns";
    reductions_emit_items(&g, &k);
    wb__fuse_line(&k, "const uint c = GRP(0) * a.across + x, from = 0;");
    wb__fuse_line(&k, "const uint to = c < a.cols ? a.rows : 0;");
    for (int i = 0; i < f->n; i++) wb__reduction_declare(&k, &f->reductions[i]);
    wb__fuse_uint(&k, g.cols, "line");
    reductions_over_rows(&g, &k, AT_ONCE, reductions_add_chunk);
    wb__reduction_emit_local(&k, g.reductions, g.n);
    reductions_store_results(&g, &k, 0);
    return wb__fuse_finish(&k, wb__quotient_up(g.cols, 1 << g.log), 1, 1);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

typedef struct {
    reductions *f;
    wb__gpu_work *work;
} reductions_piece_arguments;

/* Adds the kernels for the rows of one piece of the space, which has all rows of its columns. */
static int reductions_rows_of(const wb__gpu_target *t, const wb__fuse_program *p, int64_t first,
                              void *context)
{
    const reductions_piece_arguments *m = context;
    reductions f = *m->f;
    (void)first;
    f.program = p;
    const int e = reductions_first_kernel(&f, t, m->work);
    return e || f.chunks == 1 || f.ticket ? e : reductions_second_kernel(&f, t, m->work);
}

static int reductions_count_piece(const wb__gpu_target *t, const wb__fuse_program *p, int64_t first,
                                  void *context)
{
    const reductions_piece_arguments *m = context;
    (void)t, (void)p, (void)first;
    m->f->pieces++;
    return 0;
}

static int reductions_all_of_piece(const wb__gpu_target *t, const wb__fuse_program *p,
                                   int64_t first, void *context)
{
    const reductions_piece_arguments *m = context;
    reductions *f = m->f;
    const wb__fuse_program *whole = f->program;
    f->program = p;
    f->start = first;
    const int e = reductions_first_kernel(f, t, m->work);
    f->program = whole;
    f->before += f->chunks;
    return e;
}

/* Adds the kernels of the reductions in f; of REDUCE_ALL, one kernel combines all pieces'
 * chunks. */
static int reductions_add_kernels(reductions *f, const wb__gpu_target *t, wb__gpu_work *work)
{
    const wb__space *s = &f->program->space;
    const unsigned rows = ((1u << s->row_dims) - 1) << (s->ndim - s->row_dims - s->col_dims);
    reductions_piece_arguments m = {f, work};
    f->pieces = f->before = 0;
    if (!f->all) return wb__fused_pieces(t, f->program, ~rows, reductions_rows_of, &m);
    int e = wb__fused_pieces(t, f->program, ~0u, reductions_count_piece, &m);
    if (!e) e = wb__fused_pieces(t, f->program, ~0u, reductions_all_of_piece, &m);
    f->chunks = f->before;
    return e || f->chunks == 1 || f->ticket ? e : reductions_second_kernel(f, t, work);
}

int wb__fused_reductions(const wb__gpu_target *t, const wb__fuse_program *p, wb__instr_kind kind,
                         size_t at, bool *stores, wb__gpu_work *work)
{
    reductions f = {.program = p, .all = kind == WB__REDUCE_ALL, .at = at};
    int e = 0;
    f.reductions = wb__alloc_zero((size_t)p->n_instr, sizeof *f.reductions);
    if (!f.reductions) return WB_ERROR_MEMORY;
    int total = 0;
    for (int i = 0; i < p->n_instr; i++) total += p->instr[i].kind == kind;
    for (int i = 0; i < p->n_instr && !e;) {
        f.n = 0;  /* as many of the next reductions as fit in local memory */
        for (; i < p->n_instr; i++) {
            if (p->instr[i].kind != kind) continue;
            f.reductions[f.n] = wb__reduction_of(p, i, f.n, f.n);
            if (f.n && wb__reduction_arrays(NULL, f.reductions, f.n + 1, WB__GROUP_ITEMS)
                           > (int64_t)t->local_bytes)
                break;
            f.n++;
        }
        f.stores = stores && f.n == total ? stores : NULL;
        if (stores && !f.stores) memset(stores, 0, (size_t)p->n_instr * sizeof *stores);
        if (f.n) e = reductions_add_kernels(&f, t, work);
    }
    wb__free(f.reductions);
    return e;
}
