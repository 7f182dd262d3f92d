// Two threads of a pool that compute for less than an interval and then wait for two or three, so that ticks and bursts
// fall in by chance: three quarters of it in one function, a quarter in another, by the same loop. At the end a line for
// each function: what it is to have of the threads' CPU time, ns.
//
//     compute FUNCTION CPU_NS CPU_NS_OF_THREADS
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
enum { BURSTS = 1000, THREADS = 2 };

static long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static inline __attribute__((always_inline)) void loop(long iterations) {
    for (long i = 0; i < iterations; i++) asm volatile("" ::: "memory");
}

static long iterations_in_100_us;
static long used[THREADS];

NOINLINE static void three_quarters(void) {
    loop(3 * iterations_in_100_us);
    asm volatile("");
}

NOINLINE static void a_quarter(void) {
    loop(iterations_in_100_us);
    asm volatile("");
}

NOINLINE static void waits(unsigned random) {
    struct timespec time = {0, 2000000 + random % 1000000};
    nanosleep(&time, 0);
}

NOINLINE static void *serves(void *cpu) {
    unsigned random = (long *)cpu - used + 1;
    for (int i = 0; i < BURSTS; i++) {
        three_quarters();
        a_quarter();
        random = random * 1664525 + 1013904223;
        waits(random >> 8);
    }
    *(long *)cpu = cpu_ns();
    return 0;
}

int main(void) {
    enum { ITERATIONS = 20000000 };
    long begin = cpu_ns();
    loop(ITERATIONS);
    iterations_in_100_us = ITERATIONS / ((cpu_ns() - begin) / 100000 + 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, serves, &used[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    long whole = used[0] + used[1];
    printf("compute three_quarters %ld %ld\n", whole * 3 / 4, whole);
    printf("compute a_quarter %ld %ld\n", whole / 4, whole);
    printf("compute waits 0 %ld\n", whole);
    puts("ready");
    return 0;
}
