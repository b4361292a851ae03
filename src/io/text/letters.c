#include "io/text/letters.h"

#include "base/text.h"

#include <string.h>

bool wb__letters_room(wb__letters *l, int n)
{
    if (n > WB__LETTERS_MOST - l->n)
        return wb__fail(WB_ERROR_ARGUMENT, "tokenizer: a text of more than 2^26 bytes"), false;
    return wb__reserve(&l->at, &l->capacity, l->n + n, sizeof *l->at);
}

bool wb__letters_copy(wb__letters *l, const wb__letter *from, int n)
{
    if (!wb__letters_room(l, n)) return false;
    if (n) memcpy(l->at + l->n, from, (size_t)n * sizeof *from);
    l->n += n;
    return true;
}

bool wb__letters_text(wb__letters *l, const char *text)
{
    const int first = l->n;
    if (!wb__letters_read(l, text, strlen(text))) return false;
    for (int i = first; i < l->n; i++) l->at[i].begin = l->at[i].end = 0;
    return true;
}

int wb__utf8_broken(const char *at, size_t most, bool *open)
{
    const uint8_t *b = (const uint8_t *)at;
    const int whole = b[0] < 0xc2 || b[0] > 0xf4 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    const uint8_t low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    int n = 1;
    while (n < whole && (size_t)n < most && b[n] >= (n == 1 ? low : 0x80) &&
           b[n] <= (n == 1 ? high : 0xbf))
        n++;
    *open = n < whole && (size_t)n == most;
    return n;
}

bool wb__letters_read(wb__letters *l, const char *text, size_t n)
{
    if (!wb__letters_room(l, (int)WB__MIN(n, (size_t)WB__LETTERS_MOST + 1))) return false;
    for (size_t i = 0; i < n;) {
        uint32_t c = (uint8_t)text[i];
        int length = 1;
        if (c >= 0x80) {
            bool open;
            length = wb__utf8(text + i, n - i);
            c = length ? wb__utf8_get(text + i, length) : WB__REPLACEMENT;
            if (!length) length = wb__utf8_broken(text + i, n - i, &open);
        }
        l->at[l->n++] = (wb__letter){c, (uint32_t)i, (uint32_t)i + (uint32_t)length};
        i += (size_t)length;
    }
    return true;
}
