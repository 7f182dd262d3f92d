// Threads that wait for each other's locks: as many as the argument says, each of which holds one mutex and
// wants the next one's. Beside them one that waits for a mutex that a sleeping thread holds: no deadlock.
// Never ends. Prints "member TID" for each of the first, "bystander TID" for the last.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int members;
static pthread_mutex_t locks[8], slow = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_hold_one;

__attribute__((noinline)) static void wants_the_next(int i) {
    pthread_mutex_lock(&locks[(i + 1) % members]);
    asm volatile("");
}

static void *member(void *number) {
    int i = (int)(long)number;
    printf("member %d\n", gettid());
    pthread_mutex_lock(&locks[i]);
    pthread_barrier_wait(&all_hold_one);
    wants_the_next(i);
    return NULL;
}

static void *bystander(void *unused) {
    pthread_barrier_wait(&all_hold_one);
    printf("bystander %d\n", gettid());
    fflush(stdout);
    pthread_mutex_lock(&slow);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    members = count > 1 ? atoi(arguments[1]) : 2;
    pthread_barrier_init(&all_hold_one, NULL, members + 1);
    pthread_mutex_lock(&slow);
    for (long i = 0; i < members; i++) {
        pthread_mutex_init(&locks[i], NULL);
        pthread_create(&thread, NULL, member, (void *)i);
    }
    pthread_create(&thread, NULL, bystander, NULL);
    for (;;)
        pause();
}
