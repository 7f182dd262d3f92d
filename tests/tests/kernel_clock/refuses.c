/* Computes where the kernel's clock cannot be had, each way in a child of its own. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void on_urgent(int signal) { (void)signal; }

static void computes(double seconds) {
    struct timespec t;
    double end = 0, now;
    do {
        for (volatile int i = 0; i < 20000; i++);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = t.tv_sec + t.tv_nsec / 1e9;
        if (!end) end = now + seconds;
    } while (now < end);
}

__attribute__((noinline)) void ignores(void) {
    signal(SIGURG, SIG_IGN);
    computes(0.5);
}

__attribute__((noinline)) void handles(void) {
    signal(SIGURG, on_urgent);
    computes(0.5);
}

/* As Go's runtime does. */
__attribute__((noinline)) void replaces(void) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } found;
    syscall(SYS_rt_sigaction, SIGUSR1, NULL, &found, 8);
    signal(SIGUSR1, on_urgent);
    syscall(SYS_rt_sigaction, SIGUSR1, NULL, &found, 8);
    syscall(SYS_rt_sigaction, SIGURG, &found, NULL, 8);
    computes(0.6);
}

/* After signals have come. */
__attribute__((noinline)) void replaces_later(void) {
    computes(0.2);
    replaces();
    computes(1.0);
}

__attribute__((noinline)) void begins_blocked(void) {
    computes(0.5);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        begins_blocked();
        return 0;
    }
    void (*ways[])(void) = {ignores, handles, replaces, replaces_later};
    for (int i = 0; i < 4; i++) {
        if (!fork()) {
            ways[i]();
            return 0;
        }
        int status;
        wait(&status);
        printf("%d\n", status);
        fflush(stdout);
    }
    if (!fork()) {
        unsigned long urgent = 1ul << (SIGURG - 1);
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &urgent, NULL, 8);
        execl(argv[0], argv[0], "blocked", NULL);
    }
    int status;
    wait(&status);
    printf("%d\n", status);
        fflush(stdout);
    return 0;
}
