/* Two functions that compute for known parts of the CPU time, and one that makes calls which work in the kernel.
   With an argument the first two have a short wait between them in each round, beside two children that compute on the same
   processor: after each wait the thread waits for these, and goes on with a tick of the kernel. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
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
__attribute__((noinline)) void waits(void) { usleep(300); __asm__(""); }

static int beside_rivals(void) {
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
        waits();
        long_part();
    }
    for (int i = 0; i < 2; i++) kill(rivals[i], SIGKILL);
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) return beside_rivals();
    for (int i = 0; i < 250; i++) {
        short_part();
        long_part();
    }
    // Apart from them: see beside_rivals.
    for (int i = 0; i < 250; i++) waits();
    // A child has a clock of its own, and so has what it becomes.
    if (!fork()) {
        for (int i = 0; i < 50; i++) short_part();
        execlp("sh", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done", NULL);
    }
    wait(NULL);
    return 0;
}
