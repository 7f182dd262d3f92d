/* Blocks the recorder's signal and computes, then does what would show one that pends. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, urgent;
static void on_alarm(int signal) { (void)signal; alarms++; }
static void on_urgent(int signal) { (void)signal; urgent++; }

static void computes(double seconds) {
    struct timespec t;
    double end = 0, now;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = t.tv_sec + t.tv_nsec / 1e9;
        if (!end) end = now + seconds;
    } while (now < end);
}

static int blocks(int signal) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, signal);
}

/* Begins with what its creator blocks. */
static void *works(void *nothing) {
    if (!blocks(SIGURG)) puts("a thread begins with SIGURG open");
    computes(0.1);
    return nothing;
}

int main(void) {
    sigset_t two, old, none, pending;
    sigemptyset(&none);
    sigemptyset(&two);
    sigaddset(&two, SIGURG);
    sigaddset(&two, SIGUSR1);
    sigprocmask(SIG_BLOCK, &two, &old);
    printf("before %d %d, now %d %d\n", sigismember(&old, SIGURG), sigismember(&old, SIGUSR1), blocks(SIGURG), blocks(SIGUSR1));
    computes(0.05);
    sigpending(&pending);
    printf("pending %d\n", sigismember(&pending, SIGURG));

    struct timespec at_once = {0, 0};
    int got = sigtimedwait(&two, NULL, &at_once);
    printf("fetched %d, %s\n", got, strerror(errno));
    int file = signalfd(-1, &two, SFD_NONBLOCK);
    struct signalfd_siginfo read_there;
    computes(0.01);
    got = read(file, &read_there, sizeof read_there);
    printf("read %d, %s\n", got, strerror(errno));

    signal(SIGALRM, on_alarm);
    int without_alarm = 0;
    for (int i = 0; i < 30; i++) {
        struct itimerval soon = {{0, 0}, {0, 6000}};
        int before = alarms;
        setitimer(ITIMER_REAL, &soon, NULL);
        computes(0.002);
        if (i % 2) {
            struct timespec second = {1, 0};
            ppoll(NULL, 0, &second, &none);
        } else if (alarms == before) {
            sigset_t all_but_urgent = none;
            sigsuspend(&all_but_urgent);
        }
        without_alarm += alarms == before;
    }
    printf("%d ended without an alarm\n", without_alarm);

    /* One that really comes pends until it is fetched, whoever sent it, and whichever thread it found. */
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, works, NULL);
    computes(0.02);
    for (int i = 0; i < 2; i++) {
        if (i) raise(SIGURG);
        else kill(getpid(), SIGURG);
        computes(0.05);
        sigpending(&pending);
        printf("pending %d\n", sigismember(&pending, SIGURG));
        struct timespec second = {1, 0};
        printf("fetched %d\n", sigtimedwait(&two, NULL, &second));
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);

    sigprocmask(SIG_UNBLOCK, &two, &old);
    printf("before %d %d, now %d %d\n", sigismember(&old, SIGURG), sigismember(&old, SIGUSR1), blocks(SIGURG), blocks(SIGUSR1));
    sigprocmask(SIG_BLOCK, &two, NULL);
    signal(SIGURG, on_urgent);
    printf("still %d\n", blocks(SIGURG));
    computes(0.01);
    raise(SIGURG);
    printf("handled %d\n", urgent);
    sigprocmask(SIG_UNBLOCK, &two, NULL);
    printf("handled %d\n", urgent);
    for (int i = 0; i < 100; i++) {
        computes(0.001);
        raise(SIGURG);
    }
    printf("handled %d\n", urgent);
    return 0;
}
