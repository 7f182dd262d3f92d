/* Threads that allocate all the time are stopped at random by another one, by a signal whose handler waits, as a debugger or a garbage
 * collector does; up to all of them at once. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };
static pthread_t threads[THREADS];
static atomic_int stopped[THREADS], may_go[THREADS], over;
static _Thread_local int own;
static atomic_ullong rounds;

static void stop(int signal) {
    atomic_store(&stopped[own], 1);
    while (!atomic_load(&may_go[own])) sched_yield();
    atomic_store(&stopped[own], 0);
    (void)signal;
}

static void *allocates(void *argument) {
    own = (int)(intptr_t)argument;
    unsigned seed = own;
    void *kept[64] = {0};
    while (!atomic_load(&over)) {
        int i = rand_r(&seed) % 64;
        free(kept[i]);
        kept[i] = malloc(rand_r(&seed) % 5000 + 1);
        if (kept[i]) memset(kept[i], own, 1);
        atomic_fetch_add(&rounds, 1);
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return NULL;
}

int main(int count, char **arguments) {
    int suspensions = count > 1 ? atoi(arguments[1]) : 1000;
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, allocates, (void *)i);
    unsigned seed = 7;
    for (int n = 0; n < suspensions;) {
        int at_once = rand_r(&seed) % THREADS + 1;
        for (int i = 0; i < at_once; i++) {
            atomic_store(&may_go[i], 0);
            pthread_kill(threads[i], SIGUSR1);
        }
        for (int i = 0; i < at_once; i++) while (!atomic_load(&stopped[i])) sched_yield();
        /* Now and then for longer than the session's passes are apart. */
        if (rand_r(&seed) % 300 == 0) usleep(1500000);
        for (int i = 0; i < at_once; i++) atomic_store(&may_go[i], 1);
        for (int i = 0; i < at_once; i++) while (atomic_load(&stopped[i])) sched_yield();
        n += at_once;
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("stopped\n");
    return atomic_load(&rounds) > 1000 ? 0 : 1;
}
