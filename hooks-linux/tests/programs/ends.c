/* Threads that end at any instruction: cancelled asynchronously, and by a handler that calls pthread_exit. */
#include "show.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_int starts;

static void nothing(int number) { (void)number; }
static void ends(int number) { (void)number; pthread_exit((void *)3); }

static void *raises(void *unused) {
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) raise(SIGFPE);
}
static void *computes(void *unused) {
    (void)unused;
    starts++;
    for (;;) __asm__ volatile("");
}

int main(void) {
    long cancelled = 0, ended = 0;
    signal(SIGFPE, nothing);
    signal(SIGUSR2, ends);
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, raises, NULL);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
        pthread_create(&thread, NULL, computes, NULL);
        while (starts <= i) usleep(100);
        usleep(500);
        pthread_kill(thread, SIGUSR2);
        pthread_join(thread, &result);
        ended += result == (void *)3;
    }
    SHOW(cancelled);
    SHOW(ended);
    return 0;
}
