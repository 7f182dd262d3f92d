/* The least that the counts and samples of a recording can cost: loaded before a program, it counts each call of
   malloc, calloc, realloc and free with its bytes in the thread's own cache line, and a timer of the process' CPU
   time (1 ms asked for; the kernel gives one a tick) ends in a handler that counts. No stack, no clock, no trace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

struct counts {
    unsigned long allocations, bytes, releases, samples;
};
static __thread struct counts counts __attribute__((tls_model("initial-exec"), aligned(64)));

/* The program's own allocator, looked up at the first call. */
#define NEXT(name) \
    ({ \
        static __typeof__(&name) next; \
        if (__builtin_expect(!next, 0)) \
            next = (__typeof__(&name))look_up(#name); \
        next; \
    })

__attribute__((cold, noinline)) static void *look_up(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

void *malloc(size_t size) {
    counts.allocations++;
    counts.bytes += size;
    return NEXT(malloc)(size);
}

void *calloc(size_t n, size_t size) {
    counts.allocations++;
    counts.bytes += n * size;
    return NEXT(calloc)(n, size);
}

void *realloc(void *old, size_t size) {
    counts.allocations++;
    counts.bytes += size;
    return NEXT(realloc)(old, size);
}

void free(void *old) {
    counts.releases++;
    NEXT(free)(old);
}

static void sample(int signal) {
    (void)signal;
    counts.samples++;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_handler = sample, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX - 3};
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    timer_t timer;
    sigaction(event.sigev_signo, &action, NULL);
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0)
        timer_settime(timer, 0, &each, NULL);
}
