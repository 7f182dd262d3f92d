/* N threads that wait for a condition, M that compute; says "ready" and lives until its input ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end = PTHREAD_COND_INITIALIZER;
static volatile long sum;

static void *wait(void *unused) {
    pthread_mutex_lock(&lock);
    for (;;)
        pthread_cond_wait(&end, &lock);
    return unused;
}

static void *compute(void *unused) {
    for (;;)
        sum++;
    return unused;
}

int main(int count, char **arguments) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int kind = 1; kind <= 2 && kind < count; kind++)
        for (int i = atoi(arguments[kind]); i > 0; i--)
            if (pthread_create(&thread, &small, kind == 1 ? wait : compute, NULL))
                return 1;
    puts("ready");
    fflush(stdout);
    getchar();
    _Exit(0);
}
