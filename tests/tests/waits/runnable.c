// Four threads that compute on one CPU, and one that sleeps by raw system calls for less than an interval each
// time. At the end of each a line by the kernel's own counts: its tid, whether it computed, the time that it had
// a CPU, the time that it was ready for one, ns.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void tell(const char *what) {
    char path[64], counts[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", syscall(SYS_gettid));
    FILE *file = fopen(path, "r");
    long run = 0, ready = 0;
    if (file && fgets(counts, sizeof counts, file)) sscanf(counts, "%ld %ld", &run, &ready);
    printf("%ld %s %ld %ld\n", syscall(SYS_gettid), what, run, ready);
}

__attribute__((noinline)) static void *takes_turns(void *unused) {
    while (cpu_ms() < 300)
        for (int i = 0; i < 20000; i++) asm volatile("");
    tell("computes");
    return unused;
}

__attribute__((noinline)) static void *naps(void *unused) {
    struct timespec nap = {0, 700000};
    for (int i = 0; i < 400; i++) {
#if defined(__x86_64__)
        long result;
        asm volatile("syscall" : "=a"(result) : "a"(SYS_nanosleep), "D"(&nap), "S"(0) : "rcx", "r11", "memory");
#else
        nanosleep(&nap, 0);
#endif
        for (int j = 0; j < 100000; j++) asm volatile("");
    }
    tell("naps");
    return unused;
}

int main(void) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    pthread_t threads[4], napper;
    pthread_create(&napper, 0, naps, 0);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, takes_turns, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    pthread_join(napper, 0);
    puts("ready");
    return 0;
}
