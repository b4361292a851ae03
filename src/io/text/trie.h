/* A map from texts to numbers as a tree of bytes: finds the longest key at a position. */
#ifndef WB__TRIE_H
#define WB__TRIE_H

#include "base/table.h"
#include "io/text/letters.h"

/* All edges are in one hash table: the key is a node << 8 | a byte, plus 1, and the number is the
 * node that follows.  No edge leads to the root, node 0. */
typedef struct {
    wb__hash_table edges;
    int32_t *values;                    /* value of the key that ends at each node; -1: none does */
    int n_nodes, capacity;
} wb__trie;

enum { WB__TRIE_NODES = 1 << 24 };      /* the most nodes */

/* Returns the address of the value of a key of n bytes, -1 if the key is new.  Valid until the next
 * call.  NULL, with the error set: out of memory, or too many nodes. */
int32_t *wb__trie_at(wb__trie *t, const char *key, size_t n);
void wb__trie_free(wb__trie *t);

static inline uint64_t wb__trie_key(uint32_t node, uint8_t byte)
{
    return ((uint64_t)node << 8 | byte) + 1;
}

/* Returns the node that a byte leads to from `node`; 0 if none. */
static inline uint32_t wb__trie_step(const wb__trie *t, uint32_t node, uint8_t byte)
{
    const wb__hashed *edge = wb__hash_get(&t->edges, wb__trie_key(node, byte));
    return edge ? (uint32_t)edge->number : 0;
}

/* Returns the node that a character leads to from `node`; 0 if none. */
uint32_t wb__trie_letter(const wb__trie *t, uint32_t node, uint32_t c);
/* Returns the node that a text leads to from `node`; 0 if none, or from the root for "". */
uint32_t wb__trie_text(const wb__trie *t, uint32_t node, const char *text);
/* Returns the value of a key; -1 if the text is no key. */
int32_t wb__trie_value(const wb__trie *t, const char *text);

#endif
