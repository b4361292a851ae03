/* A hash map from addresses to addresses, or to small integers. */
#ifndef WB__POINTER_MAP_H
#define WB__POINTER_MAP_H

#include "base/base.h"

/* A map with all fields zero is empty. */
typedef struct {
    const void **keys;
    void **values;
    int n, capacity;                    /* capacity: a power of two */
} wb__pointer_map;

/* Returns the address of a key's value; a new key is added with value NULL.  The address is valid
 * until the next key is added.  NULL: out of memory, with the error set. */
void **wb__pointer_map_at(wb__pointer_map *m, const void *key);
void wb__pointer_map_clear(wb__pointer_map *m);         /* keeps its memory */
void wb__pointer_map_free(wb__pointer_map *m);

/* Returns the index of the entry that has the key, or of the free entry where the key would be
 * added.  The map uses open addressing with linear probing. */
static inline int wb__pointer_map_index(const wb__pointer_map *m, const void *key)
{
    const uint64_t h = ((uint64_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
    int i = (int)(h >> 33) & (m->capacity - 1);
    while (m->keys[i] && m->keys[i] != key) i = (i + 1) & (m->capacity - 1);
    return i;
}

/* Returns the value that wb__pointer_map_put stored for a key; -1: the key is not in the map. */
static inline int wb__pointer_map_get(const wb__pointer_map *m, const void *key)
{
    if (!m->n) return -1;
    const int i = wb__pointer_map_index(m, key);
    return m->keys[i] ? (int)(intptr_t)m->values[i] : -1;
}

static inline bool wb__pointer_map_put(wb__pointer_map *m, const void *key, int number)
{
    void **value = wb__pointer_map_at(m, key);
    if (value) *value = (void *)(intptr_t)number;
    return value != NULL;
}

#endif
