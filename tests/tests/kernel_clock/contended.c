/* Two functions that compute for known parts of the CPU time, with a short wait after each round, beside two children that compute on
   the same processor: after each wait the thread waits for these, and goes on with a tick of the kernel. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void computes(double seconds) {
    double end = used() + seconds;
    volatile unsigned sum = 0;
    while (used() < end)
        for (int i = 0; i < 50000; i++) sum += i;
}

__attribute__((noinline)) void short_part(void) { computes(0.001); __asm__(""); }
__attribute__((noinline)) void long_part(void) { computes(0.003); __asm__(""); }

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pid_t rivals[2];
    for (int i = 0; i < 2; i++) {
        rivals[i] = fork();
        if (!rivals[i])
            for (;;) computes(1);
    }
    for (int i = 0; i < 500; i++) {
        short_part();
        usleep(300);
        long_part();
    }
    for (int i = 0; i < 2; i++) kill(rivals[i], SIGKILL);
    return 0;
}
