/* The texts of fused kernels, with their argument structs. */
#include "backend/gpu/fused.h"

#include <stdio.h>
#include <string.h>

const char *const wb__fuse_kinds[4] = {"f32", "f64", "i32", "i64"};
const wb_dtype wb__fuse_whole[4] = {WB_F32, WB_F64, WB_I32, WB_I64};

static void fused_text_indent(wb__fuse *k) { wb__text_add(&k->body, "%*s", 4 * k->indent, ""); }

void wb__fuse_line(wb__fuse *k, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fused_text_indent(k);
    wb__text_list(&k->body, format, list);
    wb__text_add(&k->body, "\n");
    va_end(list);
}

void wb__fuse_open(wb__fuse *k, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fused_text_indent(k);
    wb__text_list(&k->body, format, list);
    wb__text_add(&k->body, " {\n");
    va_end(list);
    k->indent++;
}

void wb__fuse_close(wb__fuse *k)
{
    k->indent--;
    wb__fuse_line(k, "}");
}

/* ---- the argument struct --------------------------------------------------------------------- */

static int fused_text_add_words(wb__fuse *k, int n)
{
    if (!wb__reserve(&k->words, &k->words_capacity, k->n_words + n, sizeof *k->words)) {
        k->failed = true;
        return 0;
    }
    k->n_words += n;
    return k->n_words - n;
}

/* Adds a field of this type to the text of the argument struct. */
static void add_field(wb__fuse *k, const char *type, const char *format, va_list list)
{
    wb__text_add(&k->fields, "    %s ", type);
    wb__text_list(&k->fields, format, list);
    wb__text_add(&k->fields, ";\n");
}

void wb__fuse_uint(wb__fuse *k, int64_t v, const char *format, ...)
{
    const int at = fused_text_add_words(k, 1);
    if (k->failed) return;
    k->words[at] = (uint32_t)v;
    va_list list;
    va_start(list, format);
    add_field(k, "uint", format, list);
    va_end(list);
}

void wb__fuse_pair(wb__fuse *k, int64_t v, const char *format, ...)
{
    const int at = fused_text_add_words(k, 2);
    if (k->failed) return;
    k->words[at] = (uint32_t)v;
    k->words[at + 1] = (uint32_t)((uint64_t)v >> 32);
    va_list list;
    for (int high = 0; high < 2; high++) {
        va_start(list, format);
        wb__text_add(&k->fields, "    uint ");
        wb__text_list(&k->fields, format, list);
        wb__text_add(&k->fields, high ? "h;\n" : ";\n");
        va_end(list);
    }
}

void wb__fuse_number_field(wb__fuse *k, int n, wb__gpu_number_type type, char name[24])
{
    static const char *const types[] = {
        [WB__GPU_NUMBER_F32] = "float", [WB__GPU_NUMBER_ODD] = "float",
        [WB__GPU_NUMBER_F64] = "uint", [WB__GPU_NUMBER_I32] = "int",
        [WB__GPU_NUMBER_I64] = "uint", [WB__GPU_NUMBER_U64] = "uint"};
    int i = 0;
    while (i < k->n_numbers && (k->numbers[i].number != n || k->numbers[i].type != type)) i++;
    snprintf(name, 24, "n%d", i);
    if (i < k->n_numbers) return;
    const bool two = wb__gpu_two_words(type);
    const int at = fused_text_add_words(k, two ? 2 : 1);
    wb__gpu_number *more = wb__realloc(k->numbers, (size_t)(i + 1) * sizeof *more);
    if (!more) k->failed = true;
    else k->numbers = more;
    if (k->failed) return;
    memset(k->words + at, 0, two ? 8 : 4);
    more[k->n_numbers++] = (wb__gpu_number){.number = n, .at = (uint32_t)at * 4, .type = type};
    wb__text_add(&k->fields, "    %s n%d;\n", types[type], i);
    if (two) wb__text_add(&k->fields, "    uint n%dh;\n", i);
}

int wb__fuse_buffer_argument(wb__fuse *k, int buffer)
{
    for (int i = 0; i < k->n_buffers; i++)
        if (k->buffers[i] == buffer) return i;
    if (buffer == WB__GPU_WORKSPACE) {
        k->workspace_word = k->n_words;
        wb__fuse_pair(k, 0, "workspace");
    }
    k->buffers[k->n_buffers] = buffer;
    return k->n_buffers++;
}

/* ---- a kernel's beginning and end ------------------------------------------------------------ */

void wb__fuse_free(wb__fuse *k)
{
    void *const all[] = {k->needed, k->level, k->emitted, k->operand, k->operands, k->buffers,
                         k->words, k->numbers, k->origins, k->fields.text, k->body.text};
    for (size_t i = 0; i < WB__COUNT(all); i++) wb__free(all[i]);
}

int wb__fuse_start(wb__fuse *k, const wb__gpu_target *t, wb__gpu_work *work,
                   const wb__fuse_program *program)
{
    const size_t n = (size_t)program->n_instr + 1, operands = n + (size_t)program->n_views;
    *k = (wb__fuse){.target = t, .work = work, .program = program, .workspace_word = -1,
                    .indent = 1, .items = WB__GROUP_ITEMS};
    k->needed = wb__alloc_zero(n, sizeof *k->needed);
    k->level = wb__alloc_zero(n, sizeof *k->level);
    k->emitted = wb__alloc_zero(n, sizeof *k->emitted);
    k->operand = wb__alloc_zero(n, sizeof *k->operand);
    k->operands = wb__alloc_zero(operands, sizeof *k->operands);
    k->buffers = wb__alloc_zero(operands + 1, sizeof *k->buffers);
    if (k->needed && k->level && k->emitted && k->operand && k->operands && k->buffers) return 0;
    wb__fuse_free(k);
    return WB_ERROR_MEMORY;
}

static char *fused_text_whole(const wb__fuse *k)
{
    wb__text text = {0};
    wb__text_add(&text, "/* %s */\n", k->impl);
    wb__text_add(&text, "typedef struct {\n%.*s} fused_args;\n", (int)k->fields.length,
                 k->fields.text);
    wb__fuse_emit_functions(k, &text);
    for (int t = 0; t < WB_DTYPE_COUNT; t++) {
        bool known = !(k->vector_types >> t & 1);
        for (int i = 0; i < t && !known; i++)
            known = k->vector_types >> i & 1
                && !strcmp(wb__gpu_types[i].stored, wb__gpu_types[t].stored);
        if (known) continue;
        const int n = k->vector > 1 ? k->vector : WB__CHUNK / (int)wb__dtype_size((wb_dtype)t);
        wb__text_add(&text, "VECTOR(%s, %d)\n", wb__gpu_types[t].stored, n);
    }
    if (k->tickets) wb__text_add(&text, "COUNTERS(counters, %d)\n", WB__FUSE_COUNTERS);
    if (k->resident) wb__text_add(&text, "KERNEL_OF(%d, %d) fused(", k->items, k->resident);
    else wb__text_add(&text, "KERNEL fused(");
    for (int i = 0; i < k->n_buffers; i++) wb__text_add(&text, "BUF(b%d, %d), ", i, i);
    wb__text_add(&text, "ARGS(fused_args, %d)%s)\n{\n%.*s}\n", k->n_buffers,
                 k->local ? " LAUNCH_LOCAL_ARG(kept)" : "", (int)k->body.length, k->body.text);
    if (!text.failed) return text.text;
    wb__free(text.text);
    return NULL;
}

/* Returns the operation of the first f64 value that the program computes, for a message. */
static const char *first_f64(const wb__fuse_program *program)
{
    for (int i = 0; i < program->n_instr; i++) {
        const wb__instr *in = &program->instr[i];
        if (in->reg != WB__REG_F64) continue;
        if (in->kind == WB__ELEMENTWISE_OP) return wb__ops[in->op].name;
        if (in->kind == WB__CAST) return "astype";
    }
    return "an operation on f64";
}

int wb__fuse_finish(wb__fuse *k, int64_t groups_x, int64_t groups_y, int64_t groups_z)
{
    const size_t bytes = (size_t)k->n_words * 4;
    const size_t all = bytes + (size_t)k->n_buffers * k->target->buffer_bytes;
    const bool failed = k->failed || k->fields.failed || k->body.failed;
    int e = failed ? WB_ERROR_MEMORY : 0;
    if (!e && k->f64 && !k->target->f64) e = wb__gpu_no_f64(first_f64(k->program));
    const int most = k->target->max_buffers;
    if (!e && most && k->n_buffers > most)
        e = wb__fail(WB_ERROR_UNSUPPORTED, "a fused kernel has %d buffers; this device binds %d",
                     k->n_buffers, most);
    if (!e && all > k->target->max_args_bytes)
        e = wb__fail(WB_ERROR_UNSUPPORTED,
                     "a fused kernel of %d instructions on %d views takes %zu bytes of arguments; "
                     "this device allows %zu", k->program->n_instr, k->n_ids, all,
                     k->target->max_args_bytes);
    wb__gpu_launch *l = e ? NULL : wb__gpu_add_launch(k->work, fused_text_whole(k), "fused",
                                                      k->n_buffers, bytes, k->n_numbers);
    if (!e && !l) e = WB_ERROR_MEMORY;
    if (l) {
        l->f64 = k->f64;
        l->args_type = "fused_args";
        memcpy(l->buffer, k->buffers, (size_t)k->n_buffers * sizeof *l->buffer);
        memcpy(l->args, k->words, bytes);
        if (k->n_numbers) memcpy(l->numbers, k->numbers, (size_t)k->n_numbers * sizeof *l->numbers);
        l->origins = k->origins;
        l->n_origins = k->n_origins;
        k->origins = NULL;
        if (k->workspace_word >= 0) l->workspace_at = 4 * k->workspace_word;
        l->groups[0] = (uint32_t)groups_x;
        l->groups[1] = (uint32_t)groups_y;
        l->groups[2] = (uint32_t)groups_z;
        l->items[0] = (uint32_t)k->items;
        l->local = (size_t)k->local;
        k->work->impl = k->impl;
    }
    wb__fuse_free(k);
    return e;
}
