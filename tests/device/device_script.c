/* Executes a list of words: "using:CUDA" "get:verbose" "at:CUDA:1" ... . See process.h. */
#include "process.h"

#include "backend/collective.h"
#include "base/mistakes.h"
#include "weber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void to_output(wb_log_level level, const char *text, void *context)
{
    (void)context;
    printf("log %d: %s\n", (int)level, text);
}

/* The message of the error without the name of its page. */
static const char *message(void)
{
    static char text[8192];
    wb__error_plain(text, sizeof text);
    return text;
}

static void print_device(const wb_device *d)
{
    if (d) puts(wb_device_describe(d));
    else printf("error: %s\n", message());
}

static void print_status(int status)
{
    if (status) printf("error: %s\n", message());
    else puts("ok");
}

static void print_memory(const wb_device *d)
{
    wb_device_memory m;
    if (!d || wb_device_memory_of(d, &m)) printf("error: %s\n", message());
    else printf("used %lld peak %lld total %lld\n", (long long)m.used, (long long)m.peak,
                (long long)m.total);
}

/* Moves a tensor with wb_gpu and prints its device. */
static void move(void)
{
    wb_tensor *x = wb_from((float[]){1, 2, 3}, WB_F32, 1, (int64_t[]){3});
    wb_tensor *y = wb_gpu(x);
    if (!y) printf("error: %s\n", message());
    else printf("%s %s %g\n", x == y ? "stays on" : "goes to",
                wb_device_describe(wb_device_of(y)), (double)wb_at(wb_cpu(y), 2));
}

static void functional(const char *backend, const char *part)
{
    wb_clear_error();
    bool works = wb_functional(backend, *part ? part : NULL);
    printf("%s%s%s\n", works ? "yes" : "no", *wb_error() ? ": " : "", message());
}

/* The process becomes a rank of ranks that nothing connects. */
static void become_rank(int rank, int local_rank)
{
    static wb__communicator c;
    c = (wb__communicator){.rank = rank, .size = rank + 1, .local_rank = local_rank,
                           .local_size = local_rank + 1};
    wb__world_set(&c, NULL, 0);
}

static bool of_backends(const char *verb, const char *a, const char *b)
{
    if (!strcmp(verb, "using")) print_status(wb_using(a));
    else if (!strcmp(verb, "loaded")) puts(wb_loaded(a) ? "yes" : "no");
    else if (!strcmp(verb, "functional")) functional(a, b);
    else if (!strcmp(verb, "why")) printf("why: %s\n", wb_why_not(a));
    else if (!strcmp(verb, "show")) wb_show_devices(a);
    else if (!strcmp(verb, "count")) printf("%d\n", wb_devices(a).n);
    else if (!strcmp(verb, "at")) print_device(wb_device_at(a, atoi(b)));
    else if (!strcmp(verb, "memory")) print_memory(wb_device_at(a, atoi(b)));
    else if (!strcmp(verb, "rank")) become_rank(atoi(a), atoi(b));
    else if (!strcmp(verb, "wait")) print_status(wb_synchronize(wb_device_at(a, atoi(b))));
    else return false;
    return true;
}

static bool of_choice(const char *verb, const char *a)
{
    if (!strcmp(verb, "get")) print_device(wb_get_device(.verbose = !strcmp(a, "verbose")));
    else if (!strcmp(verb, "gpu")) print_device(wb_gpu_device(.force = !strcmp(a, "force")));
    else if (!strcmp(verb, "cpu")) print_device(wb_cpu_device());
    else if (!strcmp(verb, "reset")) wb_reset_gpu_device();
    else if (!strcmp(verb, "move")) move();
    else if (!strcmp(verb, "preference")) puts(wb_gpu_backend() ? wb_gpu_backend() : "none");
    else if (!strcmp(verb, "set")) print_status(wb_set_gpu_backend(a));
    else if (!strcmp(verb, "unset")) print_status(wb_set_gpu_backend(NULL));
    else if (!strcmp(verb, "shutdown")) wb_shutdown();
    else if (!strcmp(verb, "nobody")) return geteuid() != 0 || setuid(65534) == 0;
    else if (!strcmp(verb, "log")) wb_set_log(to_output, NULL);
    else return false;
    return true;
}

int device_script(int n, char **words)
{
    for (int i = 0; i < n; i++) {
        char verb[256], *a, *b;
        snprintf(verb, sizeof verb, "%s", words[i]);
        if ((a = strchr(verb, ':'))) *a++ = 0;
        if (a && (b = strchr(a, ':'))) *b++ = 0;
        else b = "";
        if (!a) a = "";
        if (!of_backends(verb, a, b) && !of_choice(verb, a)) return 2;
        fflush(stdout);
    }
    wb_shutdown();
    if (wb_memory_used()) printf("%lld bytes are still held\n", (long long)wb_memory_used());
    return wb_memory_used() ? 3 : 0;
}
