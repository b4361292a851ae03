/* The generator of fused kernels.  Private to fused*.c.
 *
 *   fused.c         splits programs into kernels of one loop structure each
 *   fused_loops.c   reduces spaces to few dimensions, and views accordingly
 *   fused_values.c  instructions as text
 *   fused_text.c    the text, the argument struct, the launch
 *   fused_reduction_text.c   reductions as text
 *   fused_vectors.c   several elements per item
 *   fused_products.c  kernels with matrix products
 *   fused_windows.c   padded views
 *   fused_rows.c    kernels without reductions, and with reductions along columns
 *   fused_reductions.c   kernels that reduce rows, or everything
 *
 * A kernel's text depends on the program, on the kind of device, on the kind of kernel (chosen by
 * sizes), on the number of dimensions after merging, on which strides are 0 or 1, and on whether
 * offsets need 64 bits.  Sizes, other strides, offsets and numbers of the plan are fields of the
 * argument struct. */
#ifndef WB__GPU_FUSED_H
#define WB__GPU_FUSED_H

#include "backend/gpu/gpu.h"
#include "base/text.h"

enum {
    WB__GROUP_ITEMS = 256,                      /* items of a group; wb__fuse.items may be more */
    WB__FUSE_COUNTERS = 1024,       /* counters of a kernel with tickets (last group combines) */
    WB__CHUNK = 16,             /* bytes of a vector of a product's operand; unit of kept rows */
    WB__FUSE_ONCE = 16 * WB_MAX_DIMS,   /* characters that wb__fuse_once_condition writes */
    WB__NO_BUFFER = -2  /* buffer index of a view without memory, which numbers a draw's elements */
};

/* The instructions, views and space of a segment, or of a piece of a segment. */
typedef struct {
    int n_instr, n_views, n_windows;
    wb__instr *instr;
    wb__view *views;
    wb__window *windows;            /* windows of the padded views */
    wb__space space;
    int64_t points;                 /* number of points of all segments of the step */
} wb__fuse_program;

typedef enum { WB__OUTER, WB__ROWS, WB__COLS } wb__loop;

/* How the dimensions of the space are assigned to loops. */
typedef enum {
    WB__ANY_ORDER,          /* all are columns, in any order */
    WB__IN_ORDER,           /* all are rows */
    WB__BY_ROW,             /* outer dimensions are rows too */
    WB__BY_GROUP            /* outer dimensions, rows and columns have a loop each */
} wb__walk;

/* Which vectors a kernel may have: along the innermost loop; or of columns, beside WB__BY_GROUP. */
typedef enum { WB__NO_VECTORS, WB__VECTORS, WB__VECTORS_OF_COLUMNS } wb__fuse_vectors;

/* Where a kernel that loops over rows, with a vector of columns per item, uses an operand: in the
 * loop; before the loop, since the operand does not vary along the rows; or behind the loop, since
 * the operand stores or combines results of reductions, of which an item then has one column. */
typedef enum { WB__IN_LOOP, WB__BEFORE_LOOP, WB__BEHIND_LOOP } wb__fuse_place;

/* How the next loop gets an operand's elements: loads them, also keeps them in local memory for
 * later loops, or finds them there.  An item keeps its own elements, so no barrier is necessary. */
typedef enum { WB__LOAD_ONLY, WB__LOAD_AND_KEEP, WB__LOAD_KEPT } wb__fuse_kept;

/* An operand with strides.  It is a view, or the index from which an iota computes its values. */
typedef struct {
    const wb__view *view;                       /* NULL: an iota */
    bool used;                                  /* an instruction that the kernel needs reads it */
    bool padded, outside;           /* padded: elements outside `window` are 0; outside: all are */
    wb__window window;              /* along the space's dimensions after merging */
    int id, pattern;    /* suffixes of the pointer p<id> and the strides s<pattern>_<dimension> */
    unsigned struct_strides;                /* bit d set: the stride along d is a struct field */
    bool in_struct;                     /* the iota's scale and shift, or the window, are fields */
    bool vector;                /* an item has k->vector elements; strides are in vectors */
    wb__fuse_place place;                       /* where the kernel uses the operand */
    wb__fuse_kept kept;                         /* whether the next loop loads or finds it */
    int64_t kept_at;            /* offset in the launch's local memory, in chunks (WB__CHUNK) */
    int64_t stride[WB_MAX_DIMS];        /* along each dimension of the merged space */
} wb__fuse_operand;

typedef struct {
    const wb__gpu_target *target;
    wb__gpu_work *work;
    const wb__fuse_program *program;
    const char *impl;                   /* name of the implementation in the printed plan */

    /* Arrays with one entry per instruction.  needed: this kernel needs the instruction; level: a
     * wb__level; emitted: a WB__EMITTED constant; operand: index in `operands`, -1: none. */
    bool *needed;
    uint8_t *level, *emitted;
    int *operand;
    wb__fuse_operand *operands;
    int n_operands;

    /* The space after merging dimensions. */
    int n_dims, first[4];  /* the dimensions of wb__loop g are first[g] to first[g + 1] - 1 */
    int64_t dim[WB_MAX_DIMS], points[3];        /* points: of each loop */
    bool wide;                                  /* element offsets need 64 bits */
    unsigned struct_dims;               /* bit d set: the size of dimension d is a struct field */
    unsigned inner;  /* bit d set: the index of dimension d changes in the inner loop */
    int vector;                 /* adjacent elements that an item processes; 1: no vectors */
    int longest;                /* limit of `vector`; 0: none */
    bool columns;               /* vectors consist of columns, and the kernel loops over rows */
    wb__fuse_place place;       /* code is emitted for operands of this place */
    int64_t elements;           /* size of the last dimension if its last vector is cut off; or 0 */
    unsigned vector_types;      /* bit set: dtypes of which the text declares vector types */

    wb__text fields, body;      /* text of the argument struct's fields, and of the kernel */
    uint32_t *words;                            /* contents of the argument struct */
    int n_words, words_capacity;
    wb__gpu_number *numbers;
    wb__gpu_origin *origins;
    int n_numbers, n_origins;
    int *buffers, n_buffers;        /* index in the plan of each buffer argument */
    int n_ids, n_patterns;          /* number of ids and of patterns of the operands */
    int workspace_word;             /* index in `words` of the workspace's offset; -1: none */
    int items;                      /* items of a group */
    int resident;       /* groups that must fit into a processor with their registers; 0: any */
    int64_t local;                  /* bytes of local memory for elements that are kept */
    bool f64, failed, tickets;      /* tickets: the text has counters */
    bool used[WB__OP_COUNT][4];     /* whether the text needs the function of an op and register */
    bool once;                  /* stores that do not vary along a dimension are done once */
    int indent;                     /* indent of the next line of `body`, in steps of 4 spaces */
} wb__fuse;

/* fused_text.c */
/* Sets k to an empty kernel.  Returns 0, or an error, after which there is nothing to free. */
int wb__fuse_start(wb__fuse *k, const wb__gpu_target *t, wb__gpu_work *work,
                   const wb__fuse_program *program);
/* Add to the body a line, a line with the "{" of a block, and the "}" of a block. */
void wb__fuse_line(wb__fuse *k, const char *format, ...) WB__PRINTF(2, 3);
void wb__fuse_open(wb__fuse *k, const char *format, ...) WB__PRINTF(2, 3);
void wb__fuse_close(wb__fuse *k);
/* Add to the argument struct a field with the value v, of one word, and of two words. */
void wb__fuse_uint(wb__fuse *k, int64_t v, const char *format, ...) WB__PRINTF(3, 4);
void wb__fuse_pair(wb__fuse *k, int64_t v, const char *format, ...) WB__PRINTF(3, 4);
/* Adds the launch to k->work, and frees the contents of k.  After each successful start, either
 * this function or wb__fuse_free must be called. */
int wb__fuse_finish(wb__fuse *k, int64_t groups_x, int64_t groups_y, int64_t groups_z);
/* Sets `name` to the name of the struct field for number n of the plan, which is added if new. */
void wb__fuse_number_field(wb__fuse *k, int n, wb__gpu_number_type put, char name[24]);
/* Returns the argument of a buffer of the plan, or of WB__GPU_WORKSPACE, which is added if new. */
int wb__fuse_buffer_argument(wb__fuse *k, int buffer);
void wb__fuse_free(wb__fuse *k);
extern const char *const wb__fuse_kinds[4];     /* names of register kinds: "f32", ... */
extern const wb_dtype wb__fuse_whole[4];  /* the dtype that a register holds without conversion */

/* fused_loops.c */
/* Merges dimensions where all views allow it, and makes vectors if they suit the operands. */
void wb__fuse_make_loops(wb__fuse *k, wb__walk walk, wb__fuse_vectors vectors);
/* Emits the indices of the dimensions [from, to).  `count` is the variable that numbers the points
 * of these dimensions. */
void wb__fuse_emit_indices(wb__fuse *k, const char *count, int from, int to);
/* Emits each operand's pointer or, for a draw or an iota, its first element index.  Both include
 * the offset along the dimensions outside the inner loop.  Operands behind the loop have pointers
 * only there (k->place). */
void wb__fuse_emit_bases(wb__fuse *k);
/* Emits, in the inner loop, variables for operand offsets that change in this loop.  Only operands
 * of the instructions in `needed` are considered. */
void wb__fuse_emit_offsets(wb__fuse *k, const bool *needed);
/* Writes the expression of an operand's offset in the inner loop.  It is relative to the pointer or
 * first index that wb__fuse_emit_bases emits. */
void wb__fuse_write_offset(const wb__fuse *k, const wb__fuse_operand *p, char text[48]);
/* Writes the expression that loads an element or vector of an operand whose offset is `at`.  If the
 * operand's elements are to be kept, the expression also stores them in local memory. */
enum { WB__FUSE_FROM = 112 };
void wb__fuse_write_load(const wb__fuse_operand *p, const char *at, char text[WB__FUSE_FROM]);
/* Adds to `to` the offset of an operand along dimension d at the index that is an expression. */
void wb__fuse_add_offset(wb__fuse *k, wb__fuse_operand *p, int d, const char *index, wb__text *to);
/* Adds to the struct the number d, as d<suffix>, with the factor and shift f<suffix> and h<suffix>
 * that divide() in the prelude needs to divide by d. */
void wb__fuse_add_divisor(wb__fuse *k, int64_t d, const char *suffix);
/* Returns the type of an element's offset in the text. */
const char *wb__fuse_index_type(const wb__fuse *k);
/* fused_windows.c.  wb__fuse_emit_window emits the variables of a load of the padded operand p:
 * in<id>, whether the element is inside the window, and at<id>, the offset from the pointer of an
 * element inside.  The other functions return whether the window lets dimensions d and d + 1 merge,
 * return whether it suits vectors of n elements, and exchange two dimensions. */
void wb__fuse_emit_window(wb__fuse *k, wb__fuse_operand *p);
bool wb__fuse_window_merges(const wb__fuse *k, const wb__fuse_operand *p, int d);
bool wb__fuse_window_suits(const wb__fuse *k, const wb__fuse_operand *p, int n);
void wb__fuse_window_swap(wb__window *w, int a, int b);

/* fused_vectors.c.  wb__fuse_make_vectors chooses the length of vectors, and divides the last
 * dimension by it.  may_cut: the last vector of a line may be cut off.  The other functions emit,
 * for the vectors of needed instructions, the loads, the loop over the elements of a vector, in
 * which values are emitted, and the stores. */
void wb__fuse_make_vectors(wb__fuse *k, bool may_cut);
void wb__fuse_load_vectors(wb__fuse *k, const bool *needed);
void wb__fuse_open_lanes(wb__fuse *k);
void wb__fuse_store_vectors(wb__fuse *k, const bool *needed);

/* fused_values.c */
enum { WB__EMITTED_NOT, WB__EMITTED_PER_ROW, WB__EMITTED_FULL };
/* Sets level[i] to the wb__level of instruction i. */
void wb__fuse_find_levels(const wb__fuse_program *p, uint8_t *level);
/* Sets k->level: WB__LEVEL_FULL for instructions with one value per element of a vector. */
void wb__fuse_find_lane_levels(wb__fuse *k);
/* Adds to `needed` the instructions that the needed ones depend on, directly or not.  The operands
 * of reductions along columns are added only if past_reductions is true. */
void wb__fuse_mark_needed(const wb__fuse_program *p, bool *needed, bool past_reductions);
/* wb__fuse_emit_values emits the values of the needed instructions that are not emitted yet and
 * whose wb__level is at most `level`; reductions and stores have functions of their own.
 * wb__fuse_forget_values, for the end of a loop, marks WB__EMITTED_FULL values as not emitted. */
void wb__fuse_emit_values(wb__fuse *k, const bool *needed, int level);
void wb__fuse_forget_values(wb__fuse *k);
void wb__fuse_emit_value(wb__fuse *k, int i, const char *text);
void wb__fuse_emit_store(wb__fuse *k, int i);
/* Writes to `text`, and returns, "if (...) " with the condition that an element is the first of
 * those that store the same number in the operand.  "" if k->once is false, or if no two elements
 * store the same number. */
const char *wb__fuse_once_condition(const wb__fuse *k, const wb__fuse_operand *p,
                                    char text[WB__FUSE_ONCE]);
void wb__fuse_emit_functions(const wb__fuse *k, wb__text *to);

/* fused_reduction_text.c: a reduction.  instr: index of its instruction; n: suffix of an item's
 * variables; slot: suffix of the group's arrays; from, acc, out: register types of the operand, the
 * accumulator and the result.  top: the sum is of exp(x - m), where m, instruction `top`, is the
 * maximum of x; the loop that finds m also adds.  -1: it is another reduction.  lanes: adjacent
 * columns of an item, whose variables are arrays; 1: an item has one. */
typedef struct {
    int instr, n, slot, top, lanes;
    wb__reg from, acc, out;
    uint16_t op;
} wb__reduction;
wb__reduction wb__reduction_of(const wb__fuse_program *p, int instr, int n, int slot);
void wb__reduction_declare(wb__fuse *k, const wb__reduction *f);
void wb__reduction_emit_add(wb__fuse *k, const wb__reduction *f, const char *index);
/* Emits code that rescales an item's sum of exponentials to the emitted maximum of the row. */
void wb__reduction_emit_scale(wb__fuse *k, const wb__reduction *f);
/* Emits code that combines an item's result with a partial result in the workspace.  `at`: the
 * index of the partial result. */
void wb__reduction_emit_merge(wb__fuse *k, const wb__reduction *f, const char *at);
/* Emits the arrays of n reductions in local memory, for groups of `items`, and returns the size of
 * these arrays in bytes.  k NULL: only returns the size. */
int64_t wb__reduction_arrays(wb__fuse *k, const wb__reduction *f, int n, int items);
/* Emits code that writes an item's results of n reductions to these arrays. */
void wb__reduction_emit_local(wb__fuse *k, const wb__reduction *f, int n);
/* Emits a barrier and a tree reduction of the items' results in local memory.  A distance h starts
 * at `from` and is halved down to `least`.  For each h, an item with an index less than h combines
 * its result with that of the item h further on.  The index (`item`), `from` and `least` are
 * expressions.  If an item has several lanes, l first combines the results l, l + the group's
 * items, and so on, which are of one column: item i has written its lanes from i * lanes on. */
void wb__reduction_emit_tree(wb__fuse *k, const wb__reduction *f, int n, const char *item,
                             const char *from, const char *least);
/* Emits the result of the reduction as the value of its instruction.  `at`: index of the result in
 * local memory; NULL: the result is in the item's own variables. */
void wb__reduction_emit_value(wb__fuse *k, const wb__reduction *f, const char *at);

/* fused.c: splits the space of p, along the dimensions in the bit set `dims`, into pieces that one
 * kernel can index.  Calls `make` for each piece in order.  `first`: the index of the piece's first
 * point in the whole space. */
typedef int wb__piece_function(const wb__gpu_target *t, const wb__fuse_program *p, int64_t first,
                               void *context);
int wb__fused_pieces(const wb__gpu_target *t, const wb__fuse_program *p, unsigned dims,
                     wb__piece_function *make, void *context);

/* fused_rows.c: these functions add the kernels of the stores marked in `stores`.  wb__fused_each
 * is for stores that depend on no reductions, wb__fused_rows for stores of which some depend on
 * reductions along columns. */
int wb__fused_each(const wb__gpu_target *t, const wb__fuse_program *p, const bool *stores,
                   wb__gpu_work *work);
int wb__fused_rows(const wb__gpu_target *t, const wb__fuse_program *p, const bool *stores,
                   wb__gpu_work *work);
/* fused_products.c: whether a needed instruction, or any if needed is NULL, is a product. */
bool wb__fuse_has_products(const wb__fuse_program *p, const bool *needed);
/* Fills and finishes the kernel of these stores, which have products, after wb__fuse_make_loops. */
int wb__fused_products(wb__fuse *k, const bool *stores);
/* fused_reductions.c: adds the kernels of all reductions of one kind, WB__REDUCE_ROWS or
 * WB__REDUCE_ALL.  Partial results are in the workspace from byte `at` on.  stores: NULL, or the
 * stores that the kernel does beside reductions of rows, since it visits each element once; all
 * become false if one kernel does not suffice for the reductions. */
int wb__fused_reductions(const wb__gpu_target *t, const wb__fuse_program *p, wb__instr_kind kind,
                         size_t at, bool *stores, wb__gpu_work *work);


/* Returns the exponent of the least power of two that is at least n, or `most` if that is less. */
int wb__fuse_log(int64_t n, int most);
/* Whether a view varies along the columns. */
bool wb__fuse_varies(const wb__fuse_program *p, const wb__view *v);

#endif
