/* Prepared forms: the values of a leaf, such as the weights of a layer, in the order in which a
 * kernel reads them.
 *
 * Without a form, a kernel reorders the weights in each run.  Forms belong to the storage of the
 * values, so that all plans and threads share them, and wb__storage_written drops them.  The run
 * that is number FORMS_FEWEST to read the values since they were written makes a form: weights that
 * are trained change at every optimiser step and never have one.  Forms change no bits of a result.
 * Borrowed memory has no forms, since the program may write it without the library.  Nor has memory
 * that was lent, until the library writes it: lent memory is given back at any time, from any
 * thread, while other threads may read its forms. */
#include "base/mutex.h"
#include "engine/request.h"

/* Values of wb__storage.reads: from the first on a form is made; lent storage has the second. */
enum { FORMS_FEWEST = 3, FORMS_LENT = 1 << 30 };

struct wb__form {
    wb__form *next;
    uint64_t key;                       /* form_key of the kernel */
    size_t bytes;
    int64_t offset;                     /* byte offset of the leaf in the storage */
    void *memory;
};

static wb__mutex forms_lock = WB__MUTEX_INIT;
static _Atomic int64_t forms_total, forms_limit = INT64_MAX; /* bytes of all forms; their limit */
static _Atomic uint64_t forms_runs;

void wb_set_prepared_weights(int64_t bytes) { forms_limit = WB__MAX(bytes, 0); }

int64_t wb__forms_bytes(void) { return forms_total; }
uint64_t wb__form_run(void) { return ++forms_runs; }

void wb__forms_drop(wb__storage *s)
{
    if (wb__likely(!atomic_load_explicit(&s->reads, memory_order_relaxed))) return;
    atomic_store_explicit(&s->reads, 0, memory_order_relaxed);
    for (wb__form *f = atomic_exchange(&s->forms, NULL), *next; f; f = next) {
        next = f->next;
        s->device->backend->release(s->device, f->memory, f->bytes);
        forms_total -= (int64_t)f->bytes;
        wb__free(f);
    }
}

void wb__forms_lend(wb__storage *s) { atomic_fetch_or(&s->reads, FORMS_LENT); }

/* Returns the form of the kernel, or NULL. */
static void *forms_find(wb__storage *s, const wb__kernel *k, int64_t offset)
{
    const wb__form *f = atomic_load_explicit(&s->forms, memory_order_acquire);
    while (f && (f->key != k->form_key || f->bytes != k->form_bytes || f->offset != offset))
        f = f->next;
    return f ? f->memory : NULL;
}

/* Makes the form of the kernel; the caller holds the lock.  Returns NULL, and sets no error, if
 * there is no memory or the limit is reached: the kernel then runs without the form. */
static void *forms_make(wb__storage *s, const wb__kernel *k, int64_t offset)
{
    if ((int64_t)k->form_bytes > forms_limit - forms_total) return NULL;
    const wb__backend *b = s->device->backend;
    wb__form *f = wb__alloc(sizeof *f);
    void *memory = f ? b->allocate(s->device, k->form_bytes) : NULL;
    if (!memory || b->prepare_form(s->device, k, (const char *)s->data + offset, memory)) {
        if (memory) b->release(s->device, memory, k->form_bytes);
        wb__free(f);
        wb_clear_error();
        return NULL;
    }
    *f = (wb__form){.next = s->forms, .key = k->form_key, .bytes = k->form_bytes, .offset = offset,
                    .memory = memory};
    forms_total += (int64_t)f->bytes;
    atomic_store_explicit(&s->forms, f, memory_order_release);
    return memory;
}

void *wb__form_of(const wb__plan *p, int i, const wb_tensor *leaf, uint64_t run)
{
    const wb__kernel *k = p->kernels[p->forms[i].kernel];
    wb__storage *s = leaf ? leaf->storage : NULL;
    if (!s || s->borrowed || atomic_load(&s->reads) >= FORMS_LENT) return NULL;
    if (atomic_exchange_explicit(&s->read_by, run, memory_order_relaxed) != run &&
        atomic_load_explicit(&s->reads, memory_order_relaxed) < FORMS_FEWEST)
        atomic_fetch_add_explicit(&s->reads, 1, memory_order_relaxed);  /* once in each run */
    const int64_t offset = leaf->op == WB__OP_variable ? 0 : leaf->offset;
    void *form = forms_find(s, k, offset);
    if (form || atomic_load_explicit(&s->reads, memory_order_relaxed) < FORMS_FEWEST) return form;
    wb__mutex_lock(&forms_lock);
    form = forms_find(s, k, offset);    /* another thread may have made it */
    if (!form) form = forms_make(s, k, offset);
    wb__mutex_unlock(&forms_lock);
    return form;
}
