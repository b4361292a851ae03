/* The hash map of pointer_map.h.  At most half of the capacity is used. */
#include "base/pointer_map.h"

#include <string.h>

static bool grow(wb__pointer_map *m)
{
    wb__pointer_map wider = {.n = m->n, .capacity = m->capacity ? 2 * m->capacity : 16};
    const size_t n = (size_t)wider.capacity;
    void *block = wb__alloc_zero(n, sizeof *wider.keys + sizeof *wider.values);
    if (!block) return false;
    wider.values = block;
    wider.keys = (const void **)(wider.values + n);
    for (int i = 0; i < m->capacity; i++) {
        if (!m->keys[i]) continue;
        const int to = wb__pointer_map_index(&wider, m->keys[i]);
        wider.keys[to] = m->keys[i];
        wider.values[to] = m->values[i];
    }
    wb__free(m->values);
    *m = wider;
    return true;
}

void **wb__pointer_map_at(wb__pointer_map *m, const void *key)
{
    if (wb__unlikely(2 * (m->n + 1) > m->capacity) && !grow(m)) return NULL;
    const int i = wb__pointer_map_index(m, key);
    if (!m->keys[i]) {
        m->keys[i] = key;
        m->values[i] = NULL;
        m->n++;
    }
    return &m->values[i];
}

void wb__pointer_map_clear(wb__pointer_map *m)
{
    if (m->n) memset(m->keys, 0, (size_t)m->capacity * sizeof *m->keys);
    m->n = 0;
}

void wb__pointer_map_free(wb__pointer_map *m)
{
    wb__free(m->values);
    *m = (wb__pointer_map){0};
}
