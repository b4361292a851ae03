#include "base/table.h"

#include <limits.h>

static bool table_grow(wb__hash_table *t)
{
    if (t->capacity > INT_MAX / 2) return wb__fail(WB_ERROR_MEMORY, "out of memory"), false;
    wb__hash_table wider = {.n = t->n, .capacity = t->capacity ? 2 * t->capacity : 16};
    if (!(wider.slots = wb__alloc_zero((size_t)wider.capacity, sizeof *wider.slots))) return false;
    for (int i = 0; i < t->capacity; i++) {
        const wb__hashed s = t->slots[i];
        if (s.key) *wb__hash_probe(&wider, 0, wb__hash_start(s.key)) = s;
    }
    wb__free(t->slots);
    *t = wider;
    return true;
}

wb__hashed *wb__hash_add(wb__hash_table *t, uint64_t key)
{
    if (wb__unlikely(2 * ((int64_t)t->n + 1) > t->capacity) && !table_grow(t)) return NULL;
    wb__hashed *s = wb__hash_probe(t, 0, wb__hash_start(key));
    *s = (wb__hashed){.key = key};
    t->n++;
    return s;
}

wb__hashed *wb__hash_at(wb__hash_table *t, uint64_t key)
{
    wb__hashed *s = wb__hash_get(t, key);
    return s ? s : wb__hash_add(t, key);
}

void wb__hash_clear(wb__hash_table *t)
{
    if (t->n) memset(t->slots, 0, (size_t)t->capacity * sizeof *t->slots);
    t->n = 0;
}

void wb__hash_free(wb__hash_table *t)
{
    wb__free(t->slots);
    *t = (wb__hash_table){0};
}
