#include "io/text/trie.h"

#include "base/text.h"

#include <string.h>

static bool trie_add_node(wb__trie *t)
{
    if (t->n_nodes == WB__TRIE_NODES)
        return wb__fail(WB_ERROR_UNSUPPORTED, "tokenizer: tokens with more than 2^24 different "
                        "beginnings"), false;
    if (!wb__reserve(&t->values, &t->capacity, t->n_nodes + 1, sizeof *t->values)) return false;
    t->values[t->n_nodes++] = -1;
    return true;
}

int32_t *wb__trie_at(wb__trie *t, const char *key, size_t n)
{
    uint32_t node = 0;
    if (!t->n_nodes && !trie_add_node(t)) return NULL;
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)key[i];
        uint32_t child = wb__trie_step(t, node, byte);
        if (!child) {
            wb__hashed *edge =
                trie_add_node(t) ? wb__hash_add(&t->edges, wb__trie_key(node, byte)) : NULL;
            if (!edge) return NULL;
            edge->number = child = (uint32_t)t->n_nodes - 1;
        }
        node = child;
    }
    return &t->values[node];
}

void wb__trie_free(wb__trie *t)
{
    wb__hash_free(&t->edges);
    wb__free(t->values);
    *t = (wb__trie){0};
}

uint32_t wb__trie_letter(const wb__trie *t, uint32_t node, uint32_t c)
{
    char bytes[4];
    if (c < 0x80) return wb__trie_step(t, node, (uint8_t)c);
    const int n = wb__utf8_put(c, bytes);
    for (int i = 0; i < n; i++)
        if (!(node = wb__trie_step(t, node, (uint8_t)bytes[i]))) return 0;
    return node;
}

uint32_t wb__trie_text(const wb__trie *t, uint32_t node, const char *text)
{
    for (; *text; text++)
        if (!(node = wb__trie_step(t, node, (uint8_t)*text))) return 0;
    return node;
}

int32_t wb__trie_value(const wb__trie *t, const char *text)
{
    const uint32_t node = t->n_nodes ? wb__trie_text(t, 0, text) : 0;
    return node ? t->values[node] : -1;
}
