/* Tables of tensors from files. */
#include "io/table.h"

#include "base/map.h"
#include "base/text.h"
#include "engine/tensor.h"

#include <stdlib.h>
#include <string.h>

const char wb__all_variables[] = "*";

wb__entry *wb__table_add(wb__table *t, const char *name)
{
    if (!wb__reserve(&t->entries, &t->capacity, t->n + 1, sizeof *t->entries)) return NULL;
    wb__entry *e = &t->entries[t->n];
    *e = (wb__entry){.name = wb__strdup(name)};
    if (!e->name) return NULL;
    t->n++;
    return e;
}

int wb__table_add_note(wb__table *t, const char *key, const char *value)
{
    if (!wb__reserve(&t->notes, &t->note_capacity, t->n_notes + 1, sizeof *t->notes))
        return WB_ERROR_MEMORY;
    wb__note note = {wb__strdup(key), wb__strdup(value)};
    if (!note.key || !note.value) {
        wb__free(note.key);
        wb__free(note.value);
        return WB_ERROR_MEMORY;
    }
    t->notes[t->n_notes++] = note;
    return 0;
}

static int io_table_by_name(const void *a, const void *b)
{
    return strcmp(((const wb__entry *)a)->name, ((const wb__entry *)b)->name);
}

void wb__table_sort(wb__table *t)
{
    if (t->n) qsort(t->entries, (size_t)t->n, sizeof *t->entries, io_table_by_name);
}

void wb__entry_drop(wb__entry *e)
{
    wb__free(e->name);
    if (e->owned) wb__free((void *)(uintptr_t)e->data);
}

void wb__table_free(wb__table *t)
{
    for (int i = 0; i < t->n; i++) wb__entry_drop(&t->entries[i]);
    for (int i = 0; i < t->n_notes; i++) {
        wb__free(t->notes[i].key);
        wb__free(t->notes[i].value);
    }
    wb__free(t->entries);
    wb__free(t->notes);
    wb__unmap(t->mapping);
    *t = (wb__table){0};
}

wb__entry *wb__table_find(const wb__table *t, const char *name)
{
    wb__entry key = {.name = (char *)(uintptr_t)name};
    return t->n ? bsearch(&key, t->entries, (size_t)t->n, sizeof key, io_table_by_name) : NULL;
}

int64_t wb__table_bytes(const wb__table *t)
{
    int64_t sum = 0;
    for (int i = 0; i < t->n; i++) sum += WB__MIN(t->entries[i].bytes, INT64_MAX - sum);
    return sum;
}

const char *wb__table_note(const wb__table *t, const char *key)
{
    for (int i = 0; i < t->n_notes; i++)
        if (!strcmp(t->notes[i].key, key)) return t->notes[i].value;
    return NULL;
}

typedef enum { HELD, DTYPE_LACKS, MANY_AXES, TOO_LARGE } obstacle;

/* Returns the reason why Weber cannot hold an entry. */
static obstacle obstacle_of(const wb__entry *e)
{
    int64_t size = 1;
    if (e->axes > WB_MAX_DIMS) return MANY_AXES;
    if (!e->dtype) return e->axes < 0 ? TOO_LARGE : DTYPE_LACKS;
    for (int i = 0; i < e->ndim; i++)
        if (e->dims[i] > WB__MAX_DIM ||
            __builtin_mul_overflow(size, WB__MAX(e->dims[i], 1), &size) || size > WB__MAX_SIZE)
            return TOO_LARGE;
    return HELD;
}

static void io_table_list_entry(wb__text *list, const wb__entry *e, obstacle o)
{
    wb__text_add(list, "\n  \"%.200s\": %s", e->name, e->type);
    if (o == MANY_AXES) wb__text_add(list, " with %d axes", e->axes);
    for (int i = 0; e->dtype && i < e->ndim; i++)
        wb__text_add(list, "%s%lld%s", i ? ", " : " [", (long long)e->dims[i],
                     i == e->ndim - 1 ? "]" : "");
}

int wb__table_check(const char *path, const wb__table *t)
{
    enum { MOST_LISTED = 50 };
    wb__text list = {0};
    static const char *const causes[] = {
        [DTYPE_LACKS] = "whose dtypes Weber lacks",
        [MANY_AXES] = "with more than 8 axes, the most that Weber has: reshape them in the program "
                      "that wrote the file",
        [TOO_LARGE] = "that are too large: a tensor has fewer than 2^40 elements, and fewer than "
                      "2^32 along an axis"};
    int n = 0;
    unsigned kinds = 0;
    for (int i = 0; i < t->n; i++) {
        const obstacle o = obstacle_of(&t->entries[i]);
        if (o == HELD) continue;
        if (n++ < MOST_LISTED) io_table_list_entry(&list, &t->entries[i], o);
        kinds |= 1u << o;
    }
    if (n > MOST_LISTED) wb__text_add(&list, "\n  and %d more", n - MOST_LISTED);
    if (!n) return 0;
    char *text = wb__text_take(&list);
    const bool one = !(kinds & (kinds - 1));
    if (text) wb__fail(kinds & 1u << DTYPE_LACKS ? WB_ERROR_DTYPE : WB_ERROR_SHAPE,
                       "%s: has tensors %s:%s", path,
                       one ? causes[__builtin_ctz(kinds)]
                           : "whose dtypes Weber lacks, with more than 8 axes or too large", text);
    wb__free(text);
    return wb_error_code();
}

/* ---- widening -------------------------------------------------------------------------------- */

int wb__narrow_bytes(wb__narrow_int narrow)
{
    return narrow == WB__NARROW_U32 ? 4 : narrow ? 2 : 0;
}

wb_dtype wb__narrow_dtype(wb__narrow_int narrow)
{
    return narrow == WB__NARROW_U32 ? WB_I64 : narrow ? WB_I32 : WB_DTYPE_DEFAULT;
}

void wb__widen_ints(void *to, const void *from, int64_t n, wb__narrow_int narrow)
{
    for (int64_t i = 0; i < n; i++) {
        int16_t s;
        uint16_t u;
        uint32_t v;
        if (narrow == WB__NARROW_U32)
            ((int64_t *)to)[i] = (memcpy(&v, (const char *)from + 4 * i, 4), v);
        else if (narrow == WB__NARROW_I16)
            ((int32_t *)to)[i] = (memcpy(&s, (const char *)from + 2 * i, 2), s);
        else ((int32_t *)to)[i] = (memcpy(&u, (const char *)from + 2 * i, 2), u);
    }
}
