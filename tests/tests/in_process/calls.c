/* Begins and ends a session by itself, twice, and works before, in between and after. */
#include "stackbeat.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static _Thread_local void *volatile kept;

static void work(int ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 20000; i++) sink += i;
        kept = malloc(100);
        free(kept);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}
__attribute__((noinline)) void before(void) { work(200); sink++; }
__attribute__((noinline)) void during(void) { work(400); usleep(20000); sink++; }
__attribute__((noinline)) void between(void) { work(200); sink++; }

static void *thread(void *argument) { during(); return argument; }

int main(int count, char **arguments) {
    if (count < 4) return 2;
    before();
    for (int i = 0; i < 2; i++) {
        if (stackbeat_session_start(arguments[1], arguments[2 + i])) return 3;
        if (stackbeat_session_start(arguments[1], "/none") == 0) return 4;
        pthread_t other;
        pthread_create(&other, NULL, thread, NULL);
        during();
        pthread_join(other, NULL);
        if (stackbeat_session_stop()) return 5;
        if (stackbeat_session_stop() == 0) return 6;
        between();
    }
    puts("done");
    return 0;
}
