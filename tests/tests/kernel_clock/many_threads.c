// So many threads at once: when all are there, each computes for 0.9 ms in one function and for 2.7 ms in another, by its
// own clock.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_barrier_t all_are_there;
static int rounds = 1;

static long cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

// In steps of some 50 µs, so that looking at the clock takes no time that counts.
#define PART(name)                                                                    \
    __attribute__((noinline)) static void name(long us) {                             \
        volatile double value = 1;                                                    \
        for (long end = cpu_us() + us; cpu_us() < end;)                               \
            for (int i = 0; i < 20000; i++) value = value * 1.0000001;                \
    }

PART(short_part)
PART(long_part)

static void *work(void *unused) {
    pthread_barrier_wait(&all_are_there);
    for (int i = 0; i < rounds; i++) {
        short_part(900);
        long_part(2700);
    }
    return unused;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1000;
    if (count > 2) rounds = atoi(arguments[2]);
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all_are_there, 0, threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], &small, work, 0)) return 1;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    printf("%ld\n", t.tv_sec * 1000000000L + t.tv_nsec);
    return 0;
}
