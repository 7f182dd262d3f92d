/* The program of real-1.beat: two threads at one lock, allocations, and a file. Its amounts are known. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, LOAVES = 1000, LOAF_BYTES = 128, LINES = 20 };

static pthread_mutex_t oven = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static volatile unsigned long kneaded;

static void sleep_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* Computes for so long, measured by the thread's CPU time. */
__attribute__((noinline)) static void knead_dough(long ms) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    long end = now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
    do {
        for (int i = 0; i < 10000; i++) kneaded += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < end);
}

/* Holds the lock for 10 ms of sleep while the other thread asks for it. */
__attribute__((noinline)) static void heat_oven(void) {
    pthread_mutex_lock(&oven);
    pthread_barrier_wait(&both);
    sleep_ms(10);
    pthread_mutex_unlock(&oven);
    pthread_barrier_wait(&both);
}

__attribute__((noinline)) static void wait_for_oven(void) {
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&oven);
    pthread_mutex_unlock(&oven);
    pthread_barrier_wait(&both);
}

__attribute__((noinline)) static void shape_loaves(void) {
    static void *loaves[LOAVES];
    for (int i = 0; i < LOAVES; i++) loaves[i] = malloc(LOAF_BYTES);
    for (int i = 0; i < LOAVES; i++) free(loaves[i]);
}

__attribute__((noinline)) static void write_receipts(const char *path) {
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (int i = 0; i < LINES; i++) {
        if (write(file, "one loaf of bread\n", 18) != 18) exit(1);
        fsync(file);
    }
    close(file);
    unlink(path);
}

static void *baker(void *path) {
    pthread_setname_np(pthread_self(), "baker");
    for (int round = 0; round < ROUNDS; round++) heat_oven();
    write_receipts(path);
    return NULL;
}

static void *helper(void *unused) {
    pthread_setname_np(pthread_self(), "helper");
    for (int round = 0; round < ROUNDS; round++) wait_for_oven();
    knead_dough(30);
    shape_loaves();
    return unused;
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, baker, count > 1 ? arguments[1] : "receipts");
    pthread_create(&threads[1], NULL, helper, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
