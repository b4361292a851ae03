/* Matrix products and convolutions as launches of kernels/product.k.
 *
 * A convolution is a product; the places of its elements are computed instead of copying patches
 * (kernels/conv.k).  The choice of kernel, blocks and splits of the sum depends only on the step
 * and on the device, so results do not depend on what else runs, except the tile where two suit: it
 * is timed (runtime/tiles.c), unless the step must be deterministic. */
#include "backend/gpu/library.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(wb__wide) == 8, "two words");
_Static_assert(sizeof(wb__product_args) % 4 == 0 && sizeof(wb__product_args) <= 512, "no holes");
_Static_assert(sizeof(wb__matmul_args) == sizeof(wb__product_args) + 16, "no holes");
_Static_assert(sizeof(wb__conv_args) == sizeof(wb__product_args) + 64 + 13 * 4 &&
                   sizeof(wb__conv_args) <= 1024,
               "no holes");

/* A product as the kernels see it. */
typedef struct {
    union {
        wb__product_args p;                     /* the common fields of both structs */
        wb__matmul_args matmul;
        wb__conv_args conv;
    } args;
    size_t args_bytes;
    const char *family;             /* the text of kernels/ that defines how operands are read */
    char defines[80];                       /* the first lines of the text */
    const char *between, *behind;           /* the texts after product.k, or NULL */
    const wb__view *a, *b, *c, *bias;       /* bias: NULL if there is none */
    const char *activation;                 /* the expression of the epilogue; NULL: none */
    wb_dtype dtype;
    /* c is z matrices of m x n; the sum over k is `steps` sums of at most `inner` products */
    int64_t z, m, n, k, steps, inner;
    bool shared_b, wide;        /* shared_b: all z products have the same B; wide: 64-bit offsets */
    bool cuts;                              /* k may be divided into other `steps` and `inner` */
    bool image;                         /* A is an image, and the inner indices are its channels */
    bool weights;                           /* B is the weights of a convolution of several taps */
    int64_t packed;             /* workspace of the ordered weights, in elements of sums' size */
} gpu_product;

/* ---- matrix products ------------------------------------------------------------------------- */

static int gpu_product_set_matmul(const wb__step *s, gpu_product *p)
{
    const wb__view *a = &s->views[0], *b = &s->views[1], *c = &s->views[2];
    const wb__view *v[3] = {a, b, c};
    const int last = c->ndim - 1;
    wb__matmul_args *args = &p->args.matmul;
    int64_t dim[WB_MAX_DIMS] = {0}, stride[WB_MAX_DIMS][3] = {{0}};
    int n = 0;
    p->family = wb__gpu_text_matmul;
    p->args_bytes = sizeof *args;
    p->a = a, p->b = b, p->c = c;
    p->m = c->dims[last - 1], p->n = c->dims[last];
    p->k = p->inner = a->dims[a->ndim - 1];
    p->steps = 1;
    p->z = 1;
    p->cuts = p->shared_b = true;
    for (int i = 0; i < c->ndim - 2; i++) {
        bool merges = n > 0;
        p->z *= c->dims[i];
        if (c->dims[i] == 1) continue;
        for (int j = 0; merges && j < 3; j++)
            merges = stride[n - 1][j] == v[j]->strides[i] * c->dims[i];
        if (merges) dim[n - 1] *= c->dims[i];
        else dim[n++] = c->dims[i];
        for (int j = 0; j < 3; j++) stride[n - 1][j] = v[j]->strides[i];
        p->shared_b &= b->strides[i] == 0;
    }
    for (int i = 0; i < n; i++) {           /* the inner dimension is the last */
        const int to = WB__ARGS_BATCH - n + i;
        args->batch[to] = wb__wide_of(dim[i]);
        args->a_z[to] = wb__wide_of(stride[i][0]);
        args->b_z[to] = wb__wide_of(stride[i][1]);
        args->c_z[to] = wb__wide_of(stride[i][2]);
    }
    const int64_t *a_s = a->strides + a->ndim - 2, *b_s = b->strides + b->ndim - 2;
    args->a_row = wb__wide_of(a_s[0]);
    args->a_step = wb__wide_of(a_s[1]);
    args->b_step = wb__wide_of(b_s[0]);
    args->b_column = wb__wide_of(b_s[1]);
    args->c_row = wb__wide_of(c->strides[last - 1]);
    args->c_column = wb__wide_of(c->strides[last]);
    args->a_along = a_s[1] != 1 && a_s[0] == 1;
    args->b_along = b_s[0] != 1;
    return 0;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static bool gpu_product_contiguous(const wb__view *v)
{
    int64_t size = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->dims[i] != 1 && v->strides[i] != size) return false;
        size *= v->dims[i];
    }
    return true;
}

/* Sets the fields of wb__conv_args that are not in WB__PRODUCT_ARGS. */
static void set_image(const wb__step *s, wb__conv_args *args)
{
    const wb__view *x = &s->views[0], *w = &s->views[1], *y = &s->views[2];
    for (int i = 0; i < 4; i++) {
        args->x_s[i] = wb__wide_of(x->strides[i]);
        args->y_s[i] = wb__wide_of(y->strides[i]);
    }
    args->h = (int)x->dims[2], args->w = (int)x->dims[3];
    args->oh = (int)y->dims[2], args->ow = (int)y->dims[3];
    args->kw = (int)w->dims[3], args->taps = (int)(w->dims[2] * w->dims[3]);
    args->channels = (int)w->dims[1];
    for (int i = 0; i < 2; i++) {
        args->stride[i] = (int)s->conv.stride[i];
        args->dilation[i] = (int)s->conv.dilation[i];
        args->pad[i] = (int)s->conv.pad[2 * i];
    }
}

static int gpu_product_set_conv(const wb__step *s, gpu_product *p)
{
    static const char *const names[] = {[WB__CONV_FORWARD] = "FORWARD",
                                        [WB__CONV_GRAD_INPUT] = "GRAD_INPUT",
                                        [WB__CONV_GRAD_WEIGHT] = "GRAD_WEIGHT"};
    const wb__view *x = &s->views[0], *w = &s->views[1], *y = &s->views[2];
    if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4 || !gpu_product_contiguous(w))
        return wb__fail(WB_ERROR_INTERNAL,
                        "conv: operands must have 4 dimensions, weights be dense");
    const int64_t groups = s->conv.groups, cg = w->dims[1], kg = w->dims[0] / WB__MAX(groups, 1);
    const int64_t taps = w->dims[2] * w->dims[3], *xs = x->strides, *ys = y->strides;
    wb__conv_args *args = &p->args.conv;
    /* strides in A, B and C (kernels/args.k): a_step and b_step along inner indices, b_column
     * and c_column along columns, group[0], [1] and [2] from a group of channels to the next */
    int64_t a_step, b_step, b_column, c_column, group[3];
    p->family = wb__gpu_text_conv;
    const int n = snprintf(p->defines, sizeof p->defines, "#define CONV_%s\n", names[s->variant]);
    if (s->variant == WB__CONV_GRAD_INPUT)
        snprintf(p->defines + n, sizeof p->defines - (size_t)n,
                 "#define STRIDE_H %d\n#define STRIDE_W %d\n", (int)s->conv.stride[0],
                 (int)s->conv.stride[1]);
    p->args_bytes = sizeof *args;
    p->z = groups;
    switch (s->variant) {
    case WB__CONV_FORWARD:
        p->a = x, p->b = w, p->c = y;
        p->m = y->dims[0] * y->dims[2] * y->dims[3], p->n = kg, p->steps = taps, p->inner = cg;
        a_step = xs[1], b_step = taps, b_column = cg * taps, c_column = ys[1];
        group[0] = cg * xs[1], group[1] = kg * cg * taps, group[2] = kg * ys[1];
        args->a_along = xs[1] != 1;
        break;
    case WB__CONV_GRAD_INPUT:
        p->a = y, p->b = w, p->c = x;
        p->m = x->dims[0] * x->dims[2] * x->dims[3], p->n = cg, p->steps = taps, p->inner = kg;
        a_step = ys[1], b_step = cg * taps, b_column = taps, c_column = xs[1];
        group[0] = kg * ys[1], group[1] = kg * cg * taps, group[2] = cg * xs[1];
        args->a_along = ys[1] != 1;
        break;
    default:
        p->a = x, p->b = y, p->c = w;
        p->m = taps * cg, p->n = kg, p->steps = y->dims[0] * y->dims[2], p->inner = y->dims[3];
        a_step = s->conv.stride[1] * xs[3], b_step = ys[3], b_column = ys[1], c_column = cg * taps;
        group[0] = cg * xs[1], group[1] = kg * ys[1], group[2] = kg * cg * taps;
        args->a_along = xs[1] == 1;
    }
    p->k = p->steps * p->inner;
    args->b_along = b_column <= b_step;
    p->image = s->variant != WB__CONV_GRAD_WEIGHT;
    p->weights = p->image && taps > 1;
    args->a_step = wb__wide_of(a_step);
    args->b_step = wb__wide_of(b_step);
    args->b_column = wb__wide_of(b_column);
    args->c_column = wb__wide_of(c_column);
    args->batch[WB__ARGS_BATCH - 1] = wb__wide_of(groups);
    args->a_z[WB__ARGS_BATCH - 1] = wb__wide_of(group[0]);
    args->b_z[WB__ARGS_BATCH - 1] = wb__wide_of(group[1]);
    args->c_z[WB__ARGS_BATCH - 1] = wb__wide_of(group[2]);
    args->bias_z = wb__wide_of(p->n);
    set_image(s, args);
    return 0;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Splits the sum into about `parts` partial sums, each over whole steps. */
static void gpu_product_split_steps(gpu_product *p, int64_t parts)
{
    wb__product_args *args = &p->args.p;
    if (p->cuts && parts > 1) {
        p->inner = wb__quotient_up(p->k, parts);
        p->steps = wb__quotient_up(p->k, WB__MAX(p->inner, 1));
    }
    const int64_t piece = WB__MAX(wb__quotient_up(p->steps, parts), 1);
    args->piece = wb__wide_of(piece);
    args->splits = wb__wide_of(WB__MAX(wb__quotient_up(p->steps, piece), 1));
}

/* Returns the number of parts into which to split a sum.  With one part, the launch has `groups`
 * groups or items; with more parts, about `enough`.  Each of several parts has at least `least`
 * terms, and all partial sums together have at most 2^24 elements. */
static int64_t gpu_product_parts_for(const gpu_product *p, int64_t groups, int64_t enough,
                                     int64_t least)
{
    int64_t parts = WB__MIN(wb__quotient_up(enough, WB__MAX(groups, 1)), p->k / least);
    parts = WB__MIN(parts, (16 << 20) / WB__MAX(p->z * p->m * p->n, 1));
    return WB__MAX(parts, 1);
}

static int64_t gpu_product_narrow(wb__wide w) { return (int64_t)((uint64_t)w.high << 32 | w.low); }

static int gpu_product_launch(gpu_product *p, wb__gpu_work *work, const char *defines,
                              wb__gpu_plan plan)
{
    const char *act = p->activation;
    char *head = wb__printf("%s%s%s%s%s", p->defines, defines, act ? "#define ACTIVATION " : "",
                            act ? act : "", act ? "\n" : "");
    if (!head) return WB_ERROR_MEMORY;
    p->args.p.total = wb__wide_of(plan.total);
    plan.args = &p->args;
    plan.args_bytes = p->args_bytes;
    plan.workspace_at = (int)offsetof(wb__product_args, work_at);
    plan.origins[0].view = p->a;
    plan.origins[0].at = offsetof(wb__product_args, a_at);
    plan.origins[1].view = p->b;
    plan.origins[1].at = offsetof(wb__product_args, b_at);
    plan.origins[2].view = p->c;
    plan.origins[2].at = offsetof(wb__product_args, c_at);
    plan.origins[3].view = p->bias;
    plan.origins[3].at = offsetof(wb__product_args, bias_at);
    plan.f64 = p->dtype == WB_F64;
    char *rest = p->behind ? wb__printf("%s%s%s", wb__gpu_text_product, p->between, p->behind)
                           : NULL;
    char *text = p->behind && !rest ? NULL
                                    : wb__gpu_source((int)p->dtype, p->wide, head, p->family,
                                                     rest ? rest : wb__gpu_text_product);
    wb__free(rest);
    wb__free(head);
    return wb__gpu_launch_of(work, text, &plan);
}

/* Sets the size of the workspace, in which partial sums come after `before` elements.  If the sum
 * is split, adds the kernel that adds the partial sums. */
static int gpu_product_add_finish(gpu_product *p, wb__gpu_work *work, const char *defines,
                                  int64_t before)
{
    const int64_t splits = gpu_product_narrow(p->args.p.splits), size = p->dtype == WB_F64 ? 8 : 4;
    const int64_t total = p->z * p->m * p->n;
    work->workspace = (size_t)((before + (splits > 1 ? splits * total : 0)) * size);
    if (splits == 1) return 0;
    return gpu_product_launch(p, work, defines,
                              (wb__gpu_plan){.entry = "product_finish", .n_buffers = 3,
                                             .buffers = {p->bias ? p->bias->buffer : p->c->buffer,
                                                     p->c->buffer, WB__GPU_WORKSPACE},
                                             .total = total, .items = 256});
}

static int gpu_product_run(gpu_product *p, wb__gpu_work *work, const char *entry,
                           const char *defines, int64_t total, int64_t items)
{
    const bool splits = gpu_product_narrow(p->args.p.splits) > 1 || p->packed;
    const int e = gpu_product_launch(
        p, work, defines,
        (wb__gpu_plan){.entry = entry,
                       .n_buffers = 5,
                       .buffers = {p->a->buffer, p->b->buffer,
                                   p->bias ? p->bias->buffer : p->c->buffer, p->c->buffer,
                                   splits ? WB__GPU_WORKSPACE : p->c->buffer},
                       .total = total,
                       .items = items});
    return e ? e : gpu_product_add_finish(p, work, defines, p->packed);
}

/* Adds the launch that copies the weights of a convolution to the workspace in the order of inner
 * indices, where the elements of a vector are adjacent. */
static int gpu_product_add_order(gpu_product *p, wb__gpu_work *work, const char *defines)
{
    wb__product_args *args = &p->args.p;
    const int64_t total = p->z * p->k * p->n, size = (int64_t)wb__dtype_size(p->dtype);
    const int64_t of_sums = p->dtype == WB_F64 ? 8 : 4;
    const int e = gpu_product_launch(p, work, defines,
                                     (wb__gpu_plan){.entry = "product_order", .n_buffers = 2,
                                                    .buffers = {p->b->buffer, WB__GPU_WORKSPACE},
                                                    .total = total, .items = 256});
    p->packed = wb__quotient_up(total * size, 64) * (64 / of_sums);
    args->partial_at = wb__wide_of(p->packed);
    args->b_step = wb__wide_of(args->b_along ? p->n : 1);
    args->b_column = wb__wide_of(args->b_along ? 1 : p->k);
    return e;
}

/* Adds the launch of product_simple, whose items compute one element each. */
static int gpu_product_add_simple(gpu_product *p, const wb__gpu_target *t, wb__gpu_work *work)
{
    const int64_t elements = p->z * p->m * p->n;
    gpu_product_split_steps(p, t->in_turn ? gpu_product_parts_for(p, elements, 2048, 512)
                             : gpu_product_parts_for(p, elements, 32 * 1024, 64));
    p->args.p.inner = wb__wide_of(p->inner);
    p->args.p.steps = wb__wide_of(p->steps);
    work->impl = "product, an element an item";
    return gpu_product_run(p, work, "product_simple", "#define SIMPLE\n",
                           elements * gpu_product_narrow(p->args.p.splits), 256);
}

/* Returns the items of a wave that multiplies fragments of the dtype; 0: no wave does. */
static int gpu_product_lanes_of(const gpu_product *p, const wb__gpu_target *t)
{
    return p->dtype == WB_BF16 ? t->fragments_bf16 : p->dtype == WB_F16 ? t->fragments_f16 : 0;
}

/* Adds the launches of product_tile, and before them that of product_order if it repays. */
static int gpu_product_add_tile(gpu_product *p, const wb__gpu_target *t, wb__gpu_work *work)
{
    enum { WANT = 264, TILES = 4 };
    const wb_dtype d = p->dtype;
    const bool f64 = d == WB_F64;
    const int lanes = gpu_product_lanes_of(p, t);
    /* Intel's waves are narrow and have few registers: waves of 8 items get half as many rows. */
    const bool narrow_waves = lanes && lanes < 32;
    const int down = lanes == 8 ? 4 : 2;
    const int64_t large = wb__quotient_up(p->m, 128) * wb__quotient_up(p->n, 128) * p->z;
    const bool fits = lanes ? t->local_bytes >= 48 << 10 && !narrow_waves : !f64;
    const bool both = fits && p->m >= 128 && p->n >= 128;
    const int64_t first = both && large >= 128 ? 128 : 64, other = both && first == 64 ? 128 : 64;
    const int64_t side = t->tile ? other : first;
    const int64_t deep = lanes ? 32 : side == 128 || f64 ? 8 : 16;
    const int64_t items = lanes ? 2 * down * lanes : 256;
    const int64_t groups = wb__quotient_up(p->m, side) * wb__quotient_up(p->n, side) * p->z;
    const int64_t parts = gpu_product_parts_for(p, groups, WANT, 128);
    const int64_t piece = wb__quotient_up(wb__quotient_up(p->k, deep), parts) * deep;
    const int64_t splits = wb__quotient_up(p->k, piece);
    /* the copy repays if several tiles read it, and has vectors */
    const int64_t adjacent = p->args.p.b_along ? p->n : p->k;
    const bool orders = p->weights && p->m >= TILES * side &&
                        adjacent % (lanes ? 8 : f64 ? 2 : 4) == 0;
    const int64_t share = side * deep / items;  /* elements of A that an item loads in a step */
    const bool by_row = p->image && p->args.p.a_along && items % side == 0 && p->inner % share == 0;
    char defines[240];
    p->args.p.piece = wb__wide_of(piece);
    p->args.p.splits = wb__wide_of(splits);
    p->behind = wb__gpu_text_tile;
    p->between = lanes ? wb__gpu_text_fragments : "";
    int n = snprintf(defines, sizeof defines, "#define BM %d\n#define BN BM\n#define BK %d\n"
                     "#define ITEMS %d\n%s%s%s", (int)side, (int)deep, (int)items,
                     by_row ? "#define BY_ROW\n" : "",
                     p->image && p->inner % deep == 0 ? "#define WHOLE_STEPS\n" : "",
                     orders ? "#define PACKED\n" : "");
    if (lanes)
        snprintf(defines + n, sizeof defines - (size_t)n, "#define V 8\n#define FRAGMENTS %d\n"
                 "#define A_ALONG %u\n#define B_ALONG %u\n%s", lanes, p->args.p.a_along,
                 p->args.p.b_along, down == 4 ? "#define DOWN 4\n" : "");
    else
        snprintf(defines + n, sizeof defines - (size_t)n, "%s#define V %d\n#define KVEC %s\n",
                 f64 || d == WB_F32 ? "#define VEC KVEC\n"
                                    : "#define WIDENED\n#define VEC ushort4\n",
                 f64 ? 2 : 4, f64 ? "double2" : "float4");
    work->impl = side == 128 ? "product, tiles of 128" : "product, tiles of 64";
    work->tiles = both ? 2 : 1;
    const int e = orders ? gpu_product_add_order(p, work, defines) : 0;
    return e ? e
             : gpu_product_run(p, work, "product_tile", defines, groups * splits * items, items);
}

/* Sets the most rows and columns of an item of product_panel, `tall` and `broad` or less.  Smaller
 * items keep more processors busy, so there are up to ITEMS of them while each has ENOUGH products.
 * Returns the number of items. */
static int64_t panel_items(gpu_product *p, int64_t rows, int64_t columns, int64_t tall,
                           int64_t broad)
{
    enum { ITEMS = 32, ENOUGH = 1 << 17 };
    const int64_t splits = gpu_product_narrow(p->args.p.splits);
    tall = wb__quotient_up(wb__quotient_up(p->m, wb__quotient_up(p->m, tall)), rows) * rows;
    broad = WB__MIN(broad, wb__quotient_up(p->n, columns) * columns);
    for (;;) {
        const int64_t items = wb__quotient_up(p->m, tall) * wb__quotient_up(p->n, broad) *
                              p->z * splits;
        const bool enough = tall * broad * (p->k / splits) > ENOUGH;
        if (items >= ITEMS || !enough || (broad == columns && tall == rows)) {
            p->args.p.item_rows = (uint32_t)tall;
            p->args.p.item_columns = (uint32_t)broad;
            return items;
        }
        if (broad > columns) broad = wb__quotient_up(broad / 2, columns) * columns;
        else tall -= rows;
    }
}

/* Whether product_panel is faster than product_block.  product_panel copies A once for all columns
 * of an item, which few columns repay only if the runs of A are long and contiguous. */
static bool copies_repay(const gpu_product *p)
{
    return p->family == wb__gpu_text_matmul || p->n > 32 ||
           (p->inner >= 16 && gpu_product_narrow(p->args.p.a_step) == 1);
}

/* Adds the launches of product_pack and of product_block or product_panel. */
static int gpu_product_add_block(gpu_product *p, const wb__gpu_target *t, wb__gpu_work *work)
{
    enum { ROWS = 6, TALL = 24, WANT = 16, LOCAL_BYTES = 40 << 10 };
    const int64_t size = p->dtype == WB_F64 ? 8 : 4, deep = 512 / size, broad = 1024 / size;
    const bool panel = copies_repay(p) && t->local_bytes >= LOCAL_BYTES;
    const int64_t most = (panel ? 64 : 128) / size;
    const int64_t columns = WB__MIN(most, p->n > 16 ? 32 : p->n > 8 ? 16 : 8);
    const int64_t panels = wb__quotient_up(p->n, columns),
                  groups = wb__quotient_up(p->m, ROWS) * panels * p->z;
    const int64_t each = panels * p->k * columns, packs = p->shared_b ? 1 : p->z;
    const int64_t packed = (packs * each + 15) / 16 * 16;
    wb__product_args *args = &p->args.p;
    char defines[160];
    gpu_product_split_steps(p, gpu_product_parts_for(p, groups, WANT, 512));
    args->inner = wb__wide_of(p->inner);
    args->steps = wb__wide_of(p->steps);
    args->packed_z = wb__wide_of(p->shared_b ? 0 : each);
    args->partial_at = wb__wide_of(packed);
    p->wide |= packed >= WB__GPU_NARROW;
    snprintf(defines, sizeof defines,
             "#define %s\n#define ROWS %d\n#define COLUMNS %d\n#define DEEP %d\n"
             "#define TALL %d\n#define BROAD %d\n",
             panel ? "PANEL" : "BLOCK", ROWS, (int)columns, (int)deep, TALL, (int)broad);
    work->impl = panel ? "product, blocks by rows, A copied" : "product, blocks by rows";
    int e = gpu_product_launch(
        p, work, defines,
        (wb__gpu_plan){.entry = "product_pack", .n_buffers = 2,
                       .buffers = {p->b->buffer, WB__GPU_WORKSPACE},
                       .total = packs * panels * wb__quotient_up(p->k, deep), .items = 1});
    if (!e)
        e = gpu_product_launch(
            p, work, defines,
            (wb__gpu_plan){.entry = panel ? "product_panel" : "product_block",
                           .n_buffers = 4,
                           .buffers = {p->a->buffer, p->bias ? p->bias->buffer : p->c->buffer,
                                       p->c->buffer, WB__GPU_WORKSPACE},
                           .total = panel ? panel_items(p, ROWS, columns, TALL, broad)
                                          : groups * gpu_product_narrow(args->splits),
                           .items = 1});
    return e ? e : gpu_product_add_finish(p, work, defines, packed);
}

int wb__gpu_step_product(const wb__gpu_target *t, const wb__step *s, wb__gpu_work *work)
{
    const char *name = s->kind == WB__STEP_MATMUL ? "matmul" : "conv";
    gpu_product p = {.dtype = s->views[0].dtype, .bias = s->n_views > 3 ? &s->views[3] : NULL};
    if (wb__step_is_special(s))
        return wb__fail(WB_ERROR_INTERNAL, "%s: no kernel has epilogue %d with sums %d", name,
                        s->aux_kind, s->sums_of);
    if (!wb__dtype_float(p.dtype))
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: products of %s are not computed", name,
                        wb_dtype_name(p.dtype));
    if (p.dtype == WB_F64 && !t->f64) return wb__gpu_no_f64(name);
    const int e = s->kind == WB__STEP_MATMUL ? gpu_product_set_matmul(s, &p)
                                             : gpu_product_set_conv(s, &p);
    const int64_t elements = p.z * p.m * p.n;
    if (e || !elements) return e;
    wb__product_args *args = &p.args.p;
    args->m = wb__wide_of(p.m);
    args->n = wb__wide_of(p.n);
    args->k = wb__wide_of(p.k);
    args->steps = wb__wide_of(p.steps);
    args->inner = wb__wide_of(p.inner);
    args->a_at = wb__wide_of(p.a->offset);
    args->b_at = wb__wide_of(p.b->offset);
    args->c_at = wb__wide_of(p.c->offset);
    args->bias_at = wb__wide_of(p.bias ? p.bias->offset : 0);
    args->has_bias = p.bias != NULL;
    p.activation = s->epilogue ? wb__ops[s->epilogue].expression : NULL;
    p.wide = wb__gpu_needs_wide(s->views, s->n_views, WB__MAX(elements, 16 << 20));
    const bool tiny = p.k == 0 || elements * p.k < 4096;
    if (t->in_turn)
        return tiny || p.m < 4 || p.n < 4 ? gpu_product_add_simple(&p, t, work)
                                          : gpu_product_add_block(&p, t, work);
    /* fragments are so much faster that most of a tile may be outside of the result */
    const int64_t least = gpu_product_lanes_of(&p, t) ? 4 : 16;
    if (tiny || p.m < least || p.n < least) return gpu_product_add_simple(&p, t, work);
    return gpu_product_add_tile(&p, t, work);
}
