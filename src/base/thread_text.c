/* Texts of a thread that calls give back: errors, descriptions.  They are not thread-local variables,
 * since a library that is opened late, as by an interpreter, gets little room for those; one block a thread is
 * taken from the system when the first is wanted, outside of the allocator, whose failure is told with it. */
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct { char text[WB__TEXT_ERROR][WB__THREAD_TEXT_BYTES], error[WB__ERROR_BYTES]; } texts;

static _Thread_local texts *mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What other destructors say after this one makes a block anew, which the system then comes for. */
static void thread_end(void *block)
{
    mine = NULL;
    free(block);
}

static void make_key(void) { pthread_key_create(&key, thread_end); }

static char *find(texts *r, wb__thread_text_kind which)
{
    return which == WB__TEXT_ERROR ? r->error : r->text[which];
}

char *wb__thread_text(wb__thread_text_kind which)
{
    static texts spare;                 /* if even this fails: shared */
    if (wb__unlikely(!mine)) {
        pthread_once(&once, make_key);
        texts *block = calloc(1, sizeof *block);
        if (!block) return find(&spare, which);
        mine = block;
        pthread_setspecific(key, block);
    }
    return find(mine, which);
}
