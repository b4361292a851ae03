/* Buffers of each thread for texts that public functions return: errors and descriptions.  They are
 * allocated, because a library that is loaded late (by an interpreter, for example) gets only
 * little static thread-local memory.  Each thread gets one block from calloc at the first use.  The
 * block does not come from alloc.c, since it must hold the message that memory is out. */
#include "base/base.h"
#include "base/mutex.h"

#include <stdlib.h>

typedef struct { char text[WB__TEXT_ERROR][WB__THREAD_TEXT_BYTES], error[WB__ERROR_BYTES]; } texts;

static _Thread_local texts *thread_text_mine;
static wb__os_key thread_text_key;
static wb__once thread_text_once = WB__ONCE_INIT;

/* Frees the buffers of a thread that ends.  If the destructor of another key asks for a text later,
 * a new block is created, and the system calls this destructor again. */
static void thread_text_end(void *block)
{
    thread_text_mine = NULL;
    free(block);
}

static void thread_text_make_key(void) { wb__os_key_make(&thread_text_key, thread_text_end); }

static char *buffer_of_kind(texts *r, wb__thread_text_kind which)
{
    return which == WB__TEXT_ERROR ? r->error : r->text[which];
}

char *wb__thread_text(wb__thread_text_kind which)
{
    static texts spare;                 /* shared by threads for which the allocation failed */
    if (wb__unlikely(!thread_text_mine)) {
        wb__once_run(&thread_text_once, thread_text_make_key);
        texts *block = calloc(1, sizeof *block);
        if (!block) return buffer_of_kind(&spare, which);
        thread_text_mine = block;
        wb__os_key_set(thread_text_key, block);
    }
    return buffer_of_kind(thread_text_mine, which);
}
