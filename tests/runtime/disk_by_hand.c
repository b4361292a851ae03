/* The kernel cache of the runtime tests, in memory: what is kept, found and spoiled.  See
 * by_hand.h. */
#include "by_hand.h"

#include "backend/kernel_cache.h"

#include <pthread.h>

enum { TEST_CACHE = 32 };
static struct {
    char *key;
    void *data;
    size_t key_bytes, bytes;
} test_disk[TEST_CACHE];
int test_kept, test_hits;
bool test_spoiled;
/* Devices look for kernels in threads of their own. */
static pthread_mutex_t test_disk_lock = PTHREAD_MUTEX_INITIALIZER;

/* A copy of the image of KEY, or NULL.  The caller holds the lock. */
static void *test_disk_find(const char *key, size_t key_bytes, size_t *bytes)
{
    for (int i = 0; i < test_kept; i++) {
        if (test_disk[i].key_bytes != key_bytes || memcmp(test_disk[i].key, key, key_bytes))
            continue;
        void *data = wb__alloc(test_disk[i].bytes);
        if (!data) {
            wb_clear_error();
            return NULL;
        }
        *bytes = test_disk[i].bytes;
        memcpy(data, test_disk[i].data, *bytes);
        if (test_spoiled) memset(data, 'x', *bytes);
        test_hits++;
        return data;
    }
    return NULL;
}

void *__wrap_wb__kernel_cache_read(const char *kind, const char *key, size_t key_bytes,
                                   size_t *bytes);
void *__wrap_wb__kernel_cache_read(const char *kind, const char *key, size_t key_bytes,
                                   size_t *bytes)
{
    (void)kind;
    pthread_mutex_lock(&test_disk_lock);
    void *data = test_disk_find(key, key_bytes, bytes);
    pthread_mutex_unlock(&test_disk_lock);
    return data;
}

void __wrap_wb__kernel_cache_write(const char *kind, const char *key, size_t key_bytes,
                                   const void *data, size_t bytes);
void __wrap_wb__kernel_cache_write(const char *kind, const char *key, size_t key_bytes,
                                   const void *data, size_t bytes)
{
    (void)kind;
    pthread_mutex_lock(&test_disk_lock);
    if (test_kept < TEST_CACHE) {
        char *k = malloc(key_bytes), *d = malloc(bytes);
        if (!k || !d) abort();
        memcpy(k, key, key_bytes);
        memcpy(d, data, bytes);
        test_disk[test_kept].key = k;
        test_disk[test_kept].key_bytes = key_bytes;
        test_disk[test_kept].data = d;
        test_disk[test_kept++].bytes = bytes;
    }
    pthread_mutex_unlock(&test_disk_lock);
}

void test_disk_empty(void)
{
    while (test_kept) {
        free(test_disk[--test_kept].key);
        free(test_disk[test_kept].data);
    }
}
