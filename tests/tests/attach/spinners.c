// A program to attach to whose four threads compute on one processor and call nothing, until SIGTERM comes.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile long sums[4];

static void on_signal(int signal) { _exit(signal - SIGTERM); }

static void *spin(void *number) {
    for (;;) sums[(long)number]++;
    return number;
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    signal(SIGTERM, on_signal);
    pthread_t thread;
    for (long i = 1; i < 4; i++) pthread_create(&thread, 0, spin, (void *)i);
    printf("running\n");
    fflush(stdout);
    return !spin(0);
}
