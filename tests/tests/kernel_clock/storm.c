/* Makes system calls by instructions of its own, which no hook sees, with some computing between them, for so many
 * milliseconds of CPU time in four threads. Says how many calls there were, and how many a signal has ended or cut. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long call(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double end;
static long calls, interrupted, cut;

static void *works(void *kind) {
    volatile unsigned sum = 0;
    long made = 0, ended = 0, short_ones = 0, word = 0;
    char bytes[4096] = {0};
    int pipes[2];
    if (pipe(pipes)) abort();
    while (now() < end) {
        for (int i = 0; i < 3000; i++) sum += i;
        struct timespec nap = {0, 20000};
        struct pollfd silent = {pipes[0], POLLIN, 0};
        long result = 0;
        switch ((long)kind) {
        case 0: result = call(SYS_nanosleep, (long)&nap, 0, 0, 0); break;
        case 1: result = call(SYS_poll, (long)&silent, 1, 1, 0); break;
        case 2: result = call(SYS_futex, (long)&word, 0 /* FUTEX_WAIT */, 0, (long)&nap); break;
        case 3:
            result = call(SYS_write, pipes[1], (long)bytes, sizeof bytes, 0);
            short_ones += result >= 0 && result < (long)sizeof bytes;
            result = call(SYS_read, pipes[0], (long)bytes, sizeof bytes, 0);
            short_ones += result >= 0 && result < (long)sizeof bytes;
            made++;
        }
        made++;
        ended += result == -EINTR;
    }
    __atomic_add_fetch(&calls, made, __ATOMIC_RELAXED);
    __atomic_add_fetch(&interrupted, ended, __ATOMIC_RELAXED);
    __atomic_add_fetch(&cut, short_ones, __ATOMIC_RELAXED);
    return NULL;
}

int main(int count, char **arguments) {
    end = now() + (count > 1 ? atoi(arguments[1]) : 1000) / 1e3;
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, works, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    fprintf(stderr, "%ld calls\n", calls);
    printf("%ld interrupted, %ld cut\n", interrupted, cut);
    return calls < 1000;
}
