/* Does little while the file in the first argument is there, then much while that in the second is; with
 * `work N` a fixed amount of work; with `churn S` allocates for S seconds of CPU time and says how often;
 * with `deep S` a thread captures at expensive places, and the main thread, which is then called `flat`, at cheap ones. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile long sum;
static const char *until;

static void compute(long rounds) {
    for (long i = 0; i < rounds; i++)
        sum += i;
}

static void *allocate(void *unused) {
    while (access(until, F_OK) == 0)
        for (int i = 0; i < 200; i++) {
            void *block = malloc(100);
            compute(1000);
            free(block);
        }
    return unused;
}

/* Not what a compiler may leave out. */
static __thread void *volatile block;

static void pair(int bytes) {
    block = malloc(bytes);
    free(block);
}

/* Allocates now and then. */
static void use_some(void) {
    volatile long own = 0;
    for (int i = 0; i < 300; i++) {
        for (int j = 0; j < 400; j++)
            own += j;
        pair(10);
    }
}

static void churn(double seconds) {
    long blocks = 0;
    while (clock() < seconds * CLOCKS_PER_SEC)
        for (int i = 0; i < 10000; i++, blocks++)
            pair(i % 200 + 1);
    printf("%ld\n", blocks);
}

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double seconds;

/* A path that no walk has seen before. */
#define PATH(name) \
    static __attribute__((noinline)) int name(int depth, unsigned *seed)
PATH(left);
PATH(right);

static int descend(int depth, unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    if (depth == 0) {
        use_some();
        return 0;
    }
    return *seed >> 16 & 1 ? left(depth - 1, seed) : right(depth - 1, seed);
}

PATH(left) { return descend(depth, seed) + 1; }
PATH(right) { return descend(depth, seed) + 2; }

static void *deep(void *unused) {
    unsigned seed = 1;
    pthread_setname_np(pthread_self(), "deep");
    while (now(CLOCK_THREAD_CPUTIME_ID) < seconds)
        sum += descend(220, &seed);
    return unused;
}

static void flat(void) {
    pthread_setname_np(pthread_self(), "flat");
    while (now(CLOCK_THREAD_CPUTIME_ID) < seconds)
        use_some();
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    if (strcmp(arguments[1], "work") == 0) {
        compute(atol(arguments[2]));
        return 0;
    }
    if (strcmp(arguments[1], "churn") == 0) {
        churn(atof(arguments[2]));
        return 0;
    }
    if (strcmp(arguments[1], "deep") == 0) {
        seconds = atof(arguments[2]);
        pthread_t thread;
        pthread_create(&thread, NULL, deep, NULL);
        flat();
        pthread_join(thread, NULL);
        return 0;
    }
    while (access(arguments[1], F_OK) == 0) {
        compute(10000);
        free(malloc(1));
        usleep(3000);
    }
    until = arguments[2];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocate, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
