/* The journal of a thread: the values that numbers of the host, such as an optimiser's counts, had
 * before a write that may still be cancelled.
 *
 * A write to a variable is sure when it is neither pending nor waits for a guard that the host
 * reads late (guard.c).  An entry belongs to one write.  When that write is cancelled, the number
 * gets back its old value; when it is sure, the entry goes.  If the number has changed again since,
 * by a write that is not cancelled yet, the old value goes to the entry of that write instead. */
#include "engine/journal.h"

#include "engine/evaluate.h"

#include <string.h>

int wb__journal(wb_tensor *write, void *block, void *number, size_t bytes)
{
    wb__thread *t = wb__this_thread();
    wb__journal_list *j = &t->journal;
    if (!write || !(write->flags & (WB__PENDING | WB__UNCONFIRMED))) return 0;
    if (!wb__reserve(&j->entry, &j->capacity, j->n + 1, sizeof *j->entry))
        return write->flags & WB__PENDING ? WB_ERROR_MEMORY : wb__guard_confirm();
    wb__journal_entry *e = &j->entry[j->n++];
    *e = (wb__journal_entry){wb__ref(write), wb__ref(block), number, bytes, 0};
    memcpy(&e->was, number, bytes);
    return 0;
}

/* Undoes the change that entry i notes. */
static void journal_undo_entry(const wb__journal_list *j, int i)
{
    const wb__journal_entry *e = &j->entry[i];
    for (int k = i + 1; k < j->n; k++)
        if (j->entry[k].write && j->entry[k].number == e->number) {
            j->entry[k].was = e->was;
            return;
        }
    memcpy(e->number, &e->was, e->bytes);
}

/* Drops the references of an entry, and sets its write to NULL.  A function of the program that
 * frees memory of its own may run. */
static void journal_drop_entry(wb__journal_entry *e)
{
    wb_tensor *write = e->write;
    void *block = e->block;
    e->write = NULL;
    wb__unref(write);
    wb__unref(block);
}

void wb__journal_settle(wb__thread *t)
{
    wb__journal_list j = t->journal;
    if (wb__likely(!j.n)) return;
    t->journal = (wb__journal_list){0};
    for (int i = j.n - 1; i >= 0; i--) {
        const unsigned flags = j.entry[i].write->flags;
        if (flags & (WB__PENDING | WB__UNCONFIRMED)) continue;
        if (flags & WB__CANCELLED) journal_undo_entry(&j, i);
        journal_drop_entry(&j.entry[i]);
    }
    int n = 0;
    for (int i = 0; i < j.n; i++)
        if (j.entry[i].write) j.entry[n++] = j.entry[i];
    j.n = n;
    wb__journal_list later = t->journal;
    if (later.n && wb__reserve(&j.entry, &j.capacity, j.n + later.n, sizeof *j.entry)) {
        memcpy(j.entry + j.n, later.entry, (size_t)later.n * sizeof *j.entry);
        j.n += later.n;
    }
    wb__free(later.entry);
    t->journal = j;
}

void wb__journal_forget(wb__thread *t)
{
    for (int i = t->journal.n - 1; i >= 0; i--) journal_drop_entry(&t->journal.entry[i]);
    wb__free(t->journal.entry);
    t->journal = (wb__journal_list){0};
}

bool wb__journal_waits(const wb__thread *t, const void *block)
{
    for (int i = t->journal.n - 1; i >= 0; i--) {
        const wb__journal_entry *e = &t->journal.entry[i];
        if (e->block == block && e->write->flags & WB__PENDING) return true;
    }
    return false;
}
