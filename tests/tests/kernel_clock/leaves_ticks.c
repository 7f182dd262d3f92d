// Threads of all kinds in a process that computes for long: each begins at ticks and is to have a timer in the end. All of them
// say how much CPU time they have used, ns.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L

static long raw(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
}

static long now(clockid_t clock) {
    struct timespec at;
    raw(SYS_clock_gettime, clock, (long)&at);
    return at.tv_sec * 1000 * MS + at.tv_nsec;
}

static volatile unsigned long sink;

// Passes no hook.
__attribute__((noinline)) static void compute(long ns) {
    long until = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    do
        for (int i = 0; i < 100000; i++)
            sink = sink * 31 + i;
    while (now(CLOCK_THREAD_CPUTIME_ID) < until);
}

static long interrupted;

__attribute__((noinline)) static void *computes(void *ns) {
    compute((long)ns);
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

__attribute__((noinline)) static void *allocates(void *ns) {
    while (now(CLOCK_THREAD_CPUTIME_ID) < (long)ns)
        for (int i = 0; i < 20000; i++)
            free(malloc(64 + i % 1000));
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

__attribute__((noinline)) static void *sleeps_first(void *ns) {
    usleep(2500 * 1000);
    compute((long)ns);
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

// In a way that no hook sees.
__attribute__((noinline)) static void *sleeps_unseen_first(void *ns) {
    struct timespec time = {2, 500 * MS};
    if (raw(SYS_nanosleep, (long)&time, 0) != 0)
        interrupted++;
    compute((long)ns);
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

__attribute__((noinline)) static void *blocks_signals(void *ns) {
    sigset_t most;
    sigfillset(&most);
    // Where the signal of timers is blocked, this one stands in for it.
    sigdelset(&most, SIGWINCH);
    pthread_sigmask(SIG_SETMASK, &most, NULL);
    compute((long)ns);
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

__attribute__((noinline)) static void *naps(void *ns) {
    long until = now(CLOCK_MONOTONIC) + (long)ns;
    while (now(CLOCK_MONOTONIC) < until)
        if (usleep(3000) != 0)
            interrupted++;
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

// leaves_ticks [blocks]: with a thread that blocks the signal of timers, or without.
int main(int count, char **arguments) {
    struct {
        const char *name;
        void *(*run)(void *);
        long ns;
        pthread_t thread;
    } all[] = {
        {"computes", computes, 3000 * MS},
        {"allocates", allocates, 2000 * MS},
        {"sleeps_first", sleeps_first, 500 * MS},
        {"sleeps_unseen_first", sleeps_unseen_first, 500 * MS},
        {"naps", naps, 3500 * MS},
        {"blocks_signals", blocks_signals, 2000 * MS},
    };
    (void)arguments;
    int threads = sizeof all / sizeof *all - (count < 2);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i].thread, NULL, all[i].run, (void *)all[i].ns);
    for (int i = 0; i < threads; i++) {
        void *used;
        pthread_join(all[i].thread, &used);
        printf("%s %ld\n", all[i].name, (long)used);
    }
    printf("interrupted %ld\n", interrupted);
    return interrupted != 0;
}
