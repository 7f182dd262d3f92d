/* A program that puts its own SIGURG handler in place by a raw system call: the agent must notice that
 * its signals are lost, and not wait for them before each call. */
#include "show.h"
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

static volatile int own;
static void handler(int s) { own += s == SIGURG; }

int main(void) {
    /* What the kernel wants: handler, flags, restorer, mask. The restorer is libc's. */
    uint64_t action[8] = {0};
    struct sigaction ordinary = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &ordinary, NULL);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, action, 8));
    SHOW(syscall(SYS_rt_sigaction, SIGURG, action, NULL, 8));
    raise(SIGURG);
    SHOW(own > 0);
    /* The quickest of ten: others may want the processor, too. */
    double quickest = 1e9;
    for (int round = 0; round < 10; round++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < 50; i++) {
            for (volatile int work = 0; work < 100000; work++) {}
            usleep(10);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9;
        if (took < quickest) quickest = took;
    }
    SHOW(quickest < 0.3);
    return 0;
}
