/* The hash table of the library, from numbers to numbers or addresses, and its hash of bytes. */
#ifndef WB__HASH_TABLE_H
#define WB__HASH_TABLE_H

#include "base/base.h"

#include <string.h>

/* A slot with key 0 is free.  An address is its own key.  For other things the key is a hash: then
 * `number` is the thing's number, and several slots may have one key. */
typedef struct {
    uint64_t key;
    union { void *pointer; int64_t number; };
} wb__hashed;

/* Open addressing with linear probing; at most half of the slots are used.  A table with all fields
 * zero is empty.  The address of a slot is valid until a slot is added. */
typedef struct {
    wb__hashed *slots;
    int n, capacity;                    /* capacity: a power of two */
} wb__hash_table;

/* Adds a slot with value 0 for a key and returns it; wb__hash_at returns the key's slot if the
 * table has one.  NULL: out of memory, with the error set. */
wb__hashed *wb__hash_add(wb__hash_table *t, uint64_t key);
wb__hashed *wb__hash_at(wb__hash_table *t, uint64_t key);
void wb__hash_clear(wb__hash_table *t);                 /* removes all slots, keeps the memory */
void wb__hash_free(wb__hash_table *t);

/* Returns the hash by which the search for a key begins. */
static inline uint64_t wb__hash_start(uint64_t key) { return key * 0xD6E8FEB86659FD93u >> 32; }

/* Returns the first slot from slot `i` on that has the key or is free. */
static inline wb__hashed *wb__hash_probe(const wb__hash_table *t, uint64_t key, uint64_t i)
{
    wb__hashed *s;
    do s = &t->slots[i++ & ((uint64_t)t->capacity - 1)];
    while (s->key && s->key != key);
    return s;
}

/* Returns the slot of a key, and wb__hash_next the next one with that key; NULL: there is none. */
static inline wb__hashed *wb__hash_get(const wb__hash_table *t, uint64_t key)
{
    wb__hashed *s = t->n ? wb__hash_probe(t, key, wb__hash_start(key)) : NULL;
    return s && s->key ? s : NULL;
}

static inline wb__hashed *wb__hash_next(const wb__hash_table *t, const wb__hashed *s)
{
    wb__hashed *next = wb__hash_probe(t, s->key, (uint64_t)(s - t->slots) + 1);
    return next->key ? next : NULL;
}

/* Returns h with n bytes added to the hash. */
static inline uint64_t wb__hash(uint64_t h, const void *bytes, size_t n)
{
    const char *at = bytes;
    h = wb__mix(h, n);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, WB__MIN(8, n - i));
        h = wb__mix(h, word);
    }
    return wb__mix(h, 0);   /* mixed once more, so that the high bits of the last word count too */
}

/* ---- addresses ------------------------------------------------------------------------------- */

typedef wb__hash_table wb__pointer_map;

/* Returns the address of a key's value; a new key gets the value NULL.  NULL: out of memory. */
static inline void **wb__pointer_map_at(wb__pointer_map *m, const void *key)
{
    wb__hashed *s = wb__hash_at(m, (uintptr_t)key);
    return s ? &s->pointer : NULL;
}

/* Returns the number that wb__pointer_map_put stored for a key; -1: the key is not in the map. */
static inline int wb__pointer_map_get(const wb__pointer_map *m, const void *key)
{
    const wb__hashed *s = wb__hash_get(m, (uintptr_t)key);
    return s ? (int)s->number : -1;
}

static inline void wb__pointer_map_free(wb__pointer_map *m) { wb__hash_free(m); }

static inline bool wb__pointer_map_put(wb__pointer_map *m, const void *key, int number)
{
    wb__hashed *s = wb__hash_at(m, (uintptr_t)key);
    if (s) s->number = number;
    return s != NULL;
}

#endif
