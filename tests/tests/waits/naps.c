/* Sleeps as often as it is told to on each of four threads, for a millisecond, and allocates and computes in between. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static _Thread_local void *volatile kept;
static int naps;

static void computes(int us) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 2000; i++) sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
}

static void *work(void *argument) {
    for (int i = 0; i < naps; i++) {
        for (int k = 0; k < 300; k++) { kept = malloc(64); free(kept); }
        usleep(1000);
        computes(100);
    }
    return argument;
}

int main(int count, char **arguments) {
    pthread_t threads[4];
    naps = count > 1 ? atoi(arguments[1]) : 1;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
