/* Two functions that compute for known parts of the CPU time, and one that makes calls which work in the kernel. */
#define _GNU_SOURCE
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

int main(void) {
    for (int i = 0; i < 250; i++) {
        short_part();
        long_part();
    }
    // Apart from them: on a busy machine a thread goes on after a wait with a tick of the kernel (contended.c).
    for (int i = 0; i < 250; i++) waits();
    // A child has a clock of its own, and so has what it becomes.
    if (!fork()) {
        for (int i = 0; i < 50; i++) short_part();
        execlp("sh", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done", NULL);
    }
    wait(NULL);
    return 0;
}
