/* Tables of tensors from files. */
#include "io/table.h"

#include "base/map.h"
#include "base/text.h"

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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const wb__entry *)a)->name, ((const wb__entry *)b)->name);
}

void wb__table_sort(wb__table *t)
{
    if (t->n) qsort(t->entries, (size_t)t->n, sizeof *t->entries, by_name);
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
    return t->n ? bsearch(&key, t->entries, (size_t)t->n, sizeof key, by_name) : NULL;
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

/* Returns 1 if Weber cannot hold the entry, and if it is `listed`, adds a line for it. */
static int list_unknown(wb__text *list, const wb__entry *e, bool listed)
{
    if (e->dtype) return 0;
    if (listed) wb__text_add(list, "\n  \"%.200s\": ", e->name);
    if (listed && e->axes > WB_MAX_DIMS) wb__text_add(list, "%s with %d axes", e->type, e->axes);
    else if (listed) wb__text_add(list, "%s", e->type);
    return 1;
}

int wb__table_check(const char *path, const wb__table *t)
{
    enum { MOST_LISTED = 50 };
    wb__text list = {0};
    int n = 0, many = 0;
    for (int i = 0; i < t->n; i++) {
        n += list_unknown(&list, &t->entries[i], n < MOST_LISTED);
        many += !t->entries[i].dtype && t->entries[i].axes > WB_MAX_DIMS;
    }
    if (n > MOST_LISTED) wb__text_add(&list, "\n  and %d more", n - MOST_LISTED);
    if (!n) return 0;
    const char *cause = !many ? "whose dtypes Weber lacks"
                        : many < n ? "whose dtypes Weber lacks, or with more than 8 axes"
                                   : "with more than 8 axes, the most that Weber has: reshape "
                                     "them in the program that wrote the file";
    char *text = wb__text_take(&list);
    if (text) wb__fail(many == n ? WB_ERROR_SHAPE : WB_ERROR_DTYPE, "%s: has tensors %s:%s", path,
                       cause, text);
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
