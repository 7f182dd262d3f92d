// A program to attach to whose threads block all signals and compute until it is their turn, in the first call that
// they make: each calls one that opens the mask or fetches signals. Prints how many of these met a signal that
// nobody sent, and ends with 3.

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 9 };
static volatile int turn = -1, awaited, ended[THREADS];
static int met[3];
static sigset_t all, none;

static void on_signal(int signal) { (void)signal; }

static void *computes(void *argument) {
    long number = (long)argument;
    siginfo_t info;
    struct timespec moment = {0, 50000000};
    while (turn < number) {
    }
    switch (number % 3) {
    case 0: met[0] += ppoll(0, 0, &moment, &none) != 0; break;
    case 1: met[1] += sigtimedwait(&all, &info, &moment) != -1; break;
    case 2:
        // Main's signal ends it, which is SIGUSR1.
        awaited = 1;
        sigsuspend(&none);
        met[2] += awaited;
    }
    ended[number] = 1;
    return argument;
}

static int is_attached(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "/stackbeat.") != 0;
    if (maps) fclose(maps);
    return found;
}

int main(void) {
    pthread_t threads[THREADS];
    sigset_t before;
    sigfillset(&all);
    sigemptyset(&none);
    signal(SIGUSR1, on_signal);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, computes, (void *)i);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    printf("running\n");
    fflush(stdout);
    while (!is_attached()) usleep(10000);
    // Time in which each of them is looked at, and would be sent a signal.
    usleep(2500000);
    for (turn = 0; turn < THREADS; turn++) {
        while (!ended[turn]) {
            usleep(150000);
            if (turn % 3 == 2 && awaited) {
                awaited = 0;
                pthread_kill(threads[turn], SIGUSR1);
            }
        }
        pthread_join(threads[turn], 0);
    }
    printf("ppoll %d sigtimedwait %d sigsuspend %d\n", met[0], met[1], met[2]);
    return 3;
}
