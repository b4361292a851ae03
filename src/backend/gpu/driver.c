/* What backends share below the kernels: functions of vendors' libraries, and programs.  A text is
 * compiled once a device; programs that no kernel uses any more are kept too, so many of them, the
 * latest used. */
#include "backend/gpu/gpu.h"

#include <dlfcn.h>
#include <string.h>

enum { MOST_IDLE = 128 };

const char *wb__gpu_find_functions(void *library, const wb__gpu_function *list, size_t n, void *to)
{
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, list[i].name);
        memcpy((char *)to + list[i].at, &found, sizeof found);
        if (!found && !missing) missing = list[i].name;
    }
    return missing;
}

static uint64_t hash_of(const char *text, int flags)
{
    uint64_t h = 0xcbf29ce484222325u + (uint64_t)flags;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h ^ h >> 29;
}

static void drop(wb__gpu_programs *all, wb__gpu_program *p)
{
    wb__gpu_program **at = &all->program[p->hash % WB__GPU_BUCKETS];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    all->by->drop(p->made);
    wb__free(p);
}

static void drop_oldest(wb__gpu_programs *all)
{
    wb__gpu_program *oldest = NULL;
    for (int b = 0; b < WB__GPU_BUCKETS; b++)
        for (wb__gpu_program *p = all->program[b]; p; p = p->next)
            if (!p->users && (!oldest || p->last < oldest->last)) oldest = p;
    if (all->by->wait) all->by->wait(all->device);
    if (oldest) drop(all, oldest);
    all->idle -= oldest != NULL;
}

static wb__gpu_program *add(wb__gpu_programs *all, const char *text, int flags, uint64_t hash)
{
    const size_t bytes = strlen(text) + 1;
    wb__gpu_program *p = wb__alloc(sizeof *p + bytes);
    if (!p) return NULL;
    *p = (wb__gpu_program){.hash = hash, .users = 1, .flags = flags};
    memcpy(p->text, text, bytes);
    p->made = all->by->make(all->device, text, flags);
    if (!p->made) {
        wb__free(p);
        return NULL;
    }
    p->next = all->program[hash % WB__GPU_BUCKETS];
    return all->program[hash % WB__GPU_BUCKETS] = p;
}

wb__gpu_program *wb__gpu_program_get(wb__gpu_programs *all, const char *text, int flags)
{
    const uint64_t hash = hash_of(text, flags);
    pthread_mutex_lock(&all->lock);
    wb__gpu_program *p = all->program[hash % WB__GPU_BUCKETS];
    while (p && !(p->hash == hash && p->flags == flags && !strcmp(p->text, text))) p = p->next;
    if (!p) p = add(all, text, flags, hash);
    else if (!p->users++) all->idle--;
    pthread_mutex_unlock(&all->lock);
    return p;
}

void wb__gpu_program_put(wb__gpu_programs *all, wb__gpu_program *p)
{
    if (!p) return;
    pthread_mutex_lock(&all->lock);
    p->last = ++all->clock;
    if (!--p->users && ++all->idle > MOST_IDLE) drop_oldest(all);
    pthread_mutex_unlock(&all->lock);
}

void wb__gpu_programs_free(wb__gpu_programs *all)
{
    for (int b = 0; b < WB__GPU_BUCKETS; b++)
        while (all->program[b]) drop(all, all->program[b]);
    all->idle = 0;
}
