/* Finds the name that a user may have meant. */
#include "cli/cli.h"

#include <string.h>

/* Returns how many characters must be inserted, removed or replaced to turn a into b. */
static int nearest_distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    int row[MOST + 1];
    const int n = (int)strlen(b);
    if (n > MOST) return MOST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (; *a; a++) {
        int diagonal = row[0]++;
        for (int j = 1; j <= n; j++) {
            const int replaced = diagonal + (*a != b[j - 1]);
            diagonal = row[j];
            row[j] = WB__MIN(replaced, WB__MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

const char *wb__cli_nearest(const char *name, const char *const *known, int most)
{
    const char *nearest = NULL;
    for (; *known; known++) {
        const int d = nearest_distance(name, *known);
        if (d > most) continue;
        nearest = *known;
        most = d - 1;
    }
    return nearest;
}
