/* Sequences of different lengths as one batch, slices along an axis, and classes of labels.  The
 * tensors are composed of operations; the classes are found on the host. */
#include "data/dataset.h"

#include "weber/indexing.h"

#include <stdlib.h>
#include <string.h>

wb_tensor *wb_rpad_constant(wb_tensor *x, int axis, int64_t n, double value)
{
    if (!wb__operand("rpad_constant", x)) return NULL;
    const int a = wb__axis("rpad_constant", x, axis);
    if (a < 0) return NULL;
    const int64_t size = x->dims[a];
    return size >= n ? x : wb_pad(x, a, 0, n - size, .value = value);
}

wb_tensor *wb_batch_sequence(int n, wb_tensor *const *x, double pad, wb_tensor **lengths)
{
    if (lengths) *lengths = NULL;
    if (n < 1 || !x)
        return wb__fail_null(WB_ERROR_ARGUMENT, "batch_sequence: %d sequences", n);
    int64_t longest = 0, count = n;
    int32_t *length = wb__alloc((size_t)n * sizeof *length);
    wb_tensor **padded = length ? wb__alloc((size_t)n * sizeof *padded) : NULL;
    wb_tensor *batch = NULL;
    bool ok = padded;
    for (int i = 0; ok && i < n; i++) {
        const bool is_sequence = wb__operand("batch_sequence", x[i]) &&
                                 wb__axis("batch_sequence", x[i], 0) == 0;
        const int64_t size = is_sequence ? x[i]->dims[0] : -1;
        ok = size >= 0 && size <= INT32_MAX;
        if (size > INT32_MAX)
            wb__fail(WB_ERROR_SHAPE, "batch_sequence: sequence %d has %lld elements; there are at "
                     "most %d, since lengths are i32", i, (long long)size, INT32_MAX);
        length[i] = (int32_t)size;
        longest = WB__MAX(longest, size);
    }
    for (int i = 0; ok && i < n; i++)
        ok = (padded[i] = wb_rpad_constant(x[i], 0, longest, pad)) != NULL;
    if (ok) batch = wb_stack_array(0, n, padded);
    if (batch && lengths && !(*lengths = wb_from(length, WB_I32, 1, &count))) batch = NULL;
    wb__free(padded);
    wb__free(length);
    return batch;
}

wb_tensor *wb_rescale(wb_tensor *x, int axis, double eps)
{
    if (!wb__operand("rescale", x)) return NULL;
    if (!(eps >= 0)) return wb__fail_null(WB_ERROR_ARGUMENT, "rescale: eps is %g", eps);
    wb_tensor *least = wb_min(x, .axes = {axis}, .keep = true);
    wb_tensor *most = wb_max(x, .axes = {axis}, .keep = true);
    return wb_div(wb_sub(x, least), wb_add(wb_sub(most, least), eps));
}

int wb_chunk(wb_tensor *x, int axis, int n, wb_tensor **parts)
{
    if (!wb__operand("chunk", x) || WB__NULL(parts)) return -1;
    axis = wb__axis("chunk", x, axis);
    if (axis < 0) return -1;
    const int64_t size = x->dims[axis];
    if (n < 1 || !size)
        return wb__fail(WB_ERROR_ARGUMENT, "chunk: %d parts of an axis of size %lld", n,
                        (long long)size), -1;
    const int64_t each = (size + n - 1) / n;
    int made = 0;
    for (int64_t at = 0; at < size; at += each) {
        parts[made] = wb_slice(x, axis, at, WB__MIN(at + each, size));
        if (!parts[made++]) return -1;
    }
    return made;
}

int wb_unstack(wb_tensor *x, int axis, int most, wb_tensor **parts)
{
    if (!wb__operand("unstack", x) || WB__NULL(parts)) return -1;
    axis = wb__axis("unstack", x, axis);
    if (axis < 0) return -1;
    const int64_t size = x->dims[axis];
    if (size > most)
        return wb__fail(WB_ERROR_ARGUMENT, "unstack: an axis of size %lld, and place for %d slices",
                        (long long)size, most), -1;
    for (int64_t i = 0; i < size; i++) {
        wb_tensor *slice = wb_slice(x, axis, i, i + 1);
        parts[i] = slice ? wb_squeeze(slice, axis) : NULL;
        if (!parts[i]) return -1;
    }
    return (int)size;
}

/* A label and its class, its index in the program's list.  Equal labels are sorted by class. */
typedef struct { const char *word; int64_t class; } word_label;
typedef struct { double number; int64_t class; } number_label;

static int sequences_by_word(const void *a, const void *b)
{
    const word_label *p = a, *q = b;
    const int order = strcmp(p->word, q->word);
    return order ? order : p->class < q->class ? -1 : p->class > q->class;
}

static int sequences_by_number(const void *a, const void *b)
{
    const number_label *p = a, *q = b;
    if (p->number != q->number) return p->number < q->number ? -1 : 1;
    return p->class < q->class ? -1 : p->class > q->class;
}

/* Returns a block of the n labels, sorted.  NULL with the error set. */
static word_label *sequences_sort_words(int64_t n, const char *const *labels)
{
    word_label *sorted = wb__alloc_zero((size_t)n, sizeof *sorted);
    for (int64_t k = 0; sorted && k < n; k++) sorted[k] = (word_label){labels[k], k};
    if (sorted) qsort(sorted, (size_t)n, sizeof *sorted, sequences_by_word);
    return sorted;
}

/* Returns the first class of a word in the list; -1 if the word is not there. */
static int64_t sequences_word_class(const char *word, int64_t n, const word_label *labels)
{
    int64_t low = 0;
    for (int64_t high = n; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(labels[middle].word, word) < 0) low = middle + 1;
        else high = middle;
    }
    return low < n && !strcmp(labels[low].word, word) ? labels[low].class : -1;
}

/* Returns a sorted block of the labels that are not NaN, since a NaN is equal to no number, and
 * sets *n to their number.  NULL with the error set. */
static number_label *sequences_sort_numbers(int64_t *n, const double *labels)
{
    int64_t kept = 0;
    number_label *sorted = wb__alloc_zero((size_t)*n, sizeof *sorted);
    for (int64_t k = 0; sorted && k < *n; k++)
        if (labels[k] == labels[k]) sorted[kept++] = (number_label){labels[k], k};
    if (sorted) qsort(sorted, (size_t)kept, sizeof *sorted, sequences_by_number);
    *n = kept;
    return sorted;
}

static int64_t sequences_number_class(double x, int64_t n, const number_label *labels)
{
    int64_t low = 0;
    for (int64_t high = n; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        if (labels[middle].number < x) low = middle + 1;
        else high = middle;
    }
    return low < n && labels[low].number == x ? labels[low].class : -1;
}

static wb_tensor *sequences_find_words(int64_t n, const char *const *words, int64_t n_labels,
                                       const word_label *labels, int64_t other)
{
    int32_t *class = wb__alloc((size_t)n * sizeof *class + 1);
    for (int64_t i = 0; class && i < n; i++) {
        int64_t k = words[i] ? sequences_word_class(words[i], n_labels, labels) : -1;
        if (words[i] && k < 0) k = other;
        class[i] = (int32_t)k;
        if (k >= 0) continue;
        wb__free(class);
        return wb__fail_null(WB_ERROR_ARGUMENT, "word_classes: word %lld, \"%s\", is none of the "
                             "%lld labels", (long long)i, words[i] ? words[i] : "(NULL)",
                             (long long)n_labels);
    }
    wb_tensor *found = class ? wb_from(class, WB_I32, 1, &n) : NULL;
    wb__free(class);
    return found;
}

wb_tensor *wb_word_classes(int64_t n, const char *const *words, int64_t n_labels,
                           const char *const *labels, const char *other)
{
    if (n < 0 || n_labels < 1 || n_labels > INT32_MAX || (n && !words) || !labels)
        return wb__fail_null(WB_ERROR_ARGUMENT, "word_classes: %lld words, %lld labels",
                             (long long)n, (long long)n_labels);
    for (int64_t k = 0; k < n_labels; k++)
        if (!labels[k])
            return wb__fail_null(WB_ERROR_ARGUMENT, "word_classes: label %lld is NULL",
                                 (long long)k);
    word_label *sorted = sequences_sort_words(n_labels, labels);
    if (!sorted) return NULL;
    wb_tensor *found = NULL;
    const int64_t class = other ? sequences_word_class(other, n_labels, sorted) : -1;
    if (other && class < 0)
        wb__fail(WB_ERROR_ARGUMENT, "word_classes: the other label, \"%s\", is none of the labels",
                 other);
    else found = sequences_find_words(n, words, n_labels, sorted, class);
    wb__free(sorted);
    return found;
}

/* Sets class[i] to the class of number x[i], for n numbers.  Returns 0 or an error code. */
static int sequences_find_numbers(int64_t n, const double *x, int64_t n_labels,
                                  const double *labels, int64_t other, int32_t *class)
{
    int64_t kept = n_labels;
    int status = 0;
    number_label *sorted = sequences_sort_numbers(&kept, labels);
    if (!sorted) return WB_ERROR_MEMORY;
    for (int64_t i = 0; !status && i < n; i++) {
        int64_t k = sequences_number_class(x[i], kept, sorted);
        if (k < 0) k = other;
        if (k < 0)
            status = wb__fail(WB_ERROR_ARGUMENT, "number_classes: element %lld, %g, is none of the "
                              "%lld labels", (long long)i, x[i], (long long)n_labels);
        class[i] = (int32_t)k;
    }
    wb__free(sorted);
    return status;
}

wb_tensor *wb_number_classes(wb_tensor *x, int64_t n_labels, const double *labels, int64_t other)
{
    WB__PUBLIC(wb_number_classes, NULL);
    if (WB__NULL(x) || WB__NULL(labels)) return NULL;
    if (n_labels < 1 || n_labels > INT32_MAX || other < -1 || other >= n_labels)
        return wb__fail_null(WB_ERROR_ARGUMENT, "number_classes: %lld labels, other %lld",
                             (long long)n_labels, (long long)other);
    const int64_t n = wb_size(x);
    const void *data = n < 0 ? NULL : wb_data(x);
    double *value = data ? wb__alloc((size_t)n * sizeof *value + 1) : NULL;
    int32_t *class = value ? wb__alloc((size_t)n * sizeof *class + 1) : NULL;
    wb_tensor *found = NULL;
    if (class) {
        wb__convert(value, WB_F64, data, wb_dtype_of(x), n);
        if (!sequences_find_numbers(n, value, n_labels, labels, other, class))
            found = wb_from(class, WB_I32, wb_ndim(x), wb_dims(x));
    }
    wb__free(class);
    wb__free(value);
    return found;
}
