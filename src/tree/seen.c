/* A map from addresses to addresses: what was met before on a walk. */
#include "tree/tree.h"

#include <string.h>

static unsigned slot_of(const wb__seen *s, const void *key)
{
    uint64_t h = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
    unsigned i = (unsigned)(h >> 40) & (unsigned)(s->room - 1);
    while (s->keys[i] && s->keys[i] != key) i = (i + 1) & (unsigned)(s->room - 1);
    return i;
}

static bool grow(wb__seen *s)
{
    wb__seen wider = {.room = s->room ? 2 * s->room : 32};
    void *block = wb__alloc_zero((size_t)wider.room, 2 * sizeof(void *));
    if (!block) return false;
    wider.keys = block;
    wider.values = (void **)block + wider.room;
    for (int i = 0; i < s->room; i++) {
        if (!s->keys[i]) continue;
        unsigned to = slot_of(&wider, s->keys[i]);
        wider.keys[to] = s->keys[i];
        wider.values[to] = s->values[i];
    }
    wider.n = s->n;
    wb__free(s->keys);
    *s = wider;
    return true;
}

void **wb__seen_at(wb__seen *s, const void *key)
{
    if (2 * (s->n + 1) > s->room && !grow(s)) return NULL;
    unsigned i = slot_of(s, key);
    if (!s->keys[i]) {
        s->keys[i] = key;
        s->n++;
    }
    return &s->values[i];
}

void wb__seen_drop(wb__seen *s)
{
    wb__free(s->keys);
    *s = (wb__seen){0};
}
