/* Sizes of memory: what may be used of it, classes of blocks that are kept for reuse, and how a number
 * of bytes is told. */
#include "backend/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "100M", "1.5GiB", "2GB", "50%": K, M, G, T and KiB ... are powers of 1,024, KB ... of 1,000. */
int wb__gpu_memory_limit(const char *tag, int64_t total, int64_t *limit)
{
    const char *text = getenv("WEBER_MEMORY_LIMIT");
    *limit = total;
    if (!text || !*text) return 0;
    char *end = NULL;
    double value = strtod(text, &end);
    const bool number = end != text;
    static const char letters[] = "KMGT";
    const char *letter = *end ? strchr(letters, *end & ~0x20) : NULL;
    if (*end == '%' && !end[1]) {
        value *= (double)total / 100;
        end++;
    } else if (letter) {
        end++;
        const double unit = !strcasecmp(end, "B") ? 1000 : 1024;
        for (long i = 0; i <= letter - letters; i++) value *= unit;
        if (!strcasecmp(end, "iB")) end += 2;
        else if (!strcasecmp(end, "B")) end++;
    } else if (!strcasecmp(end, "B")) {
        end++;
    }
    if (!number || *end || !(value >= 0))
        return wb__fail(WB_ERROR_ARGUMENT, "%s: WEBER_MEMORY_LIMIT: \"%s\" is not a size such as"
                        " 100M, 1.5GiB or 50%%", tag, text);
    if (value < (double)total) *limit = (int64_t)value;
    return 0;
}

const char *wb__gpu_size_text(int64_t bytes, char room[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t u = 0;
    while (value >= 1024 && u + 1 < WB__COUNT(units)) value /= 1024, u++;
    snprintf(room, 32, u ? "%.1f %s" : "%.0f %s", value, units[u]);
    return room;
}

enum { LEAST = 8, OCTAVES = 40, A_CLASS = WB__GPU_SIZE_CLASSES / OCTAVES };

int wb__gpu_size_class(size_t size, size_t *bytes)
{
    int octave = 0;
    while (octave < OCTAVES && ((size_t)2 << (LEAST + octave)) < size) octave++;
    if (octave == OCTAVES) return -1;
    const size_t base = (size_t)1 << (LEAST + octave), step = base / A_CLASS;
    size_t k = size <= base ? 0 : (size - base + step - 1) / step;
    *bytes = base + k * step;
    if (k == A_CLASS) octave++, k = 0;
    return octave == OCTAVES ? -1 : octave * A_CLASS + (int)k;
}
