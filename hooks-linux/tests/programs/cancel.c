/* Cancellation points stay cancellation points, and cleanup handlers run. */
#include "show.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

static sem_t never, free_one, started;
static int p[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void cleanup(void *what) { printf("cleanup %s\n", (char *)what); fflush(stdout); }
static void unlock(void *unused) { (void)unused; pthread_mutex_unlock(&lock); }

#define WORKER(name, code)                                                                         \
    static void *name(void *unused) {                                                              \
        pthread_cleanup_push(cleanup, #name);                                                      \
        sem_post(&started);                                                                        \
        code;                                                                                      \
        printf(#name " went on\n");                                                                \
        pthread_cleanup_pop(0);                                                                    \
        return unused;                                                                             \
    }

static char c;
WORKER(in_sem_wait, sem_wait(&never))
WORKER(in_read, (void)!read(p[0], &c, 1))
WORKER(in_poll, poll(NULL, 0, -1))
WORKER(in_pause, pause())
WORKER(in_sleep, sleep(100))
WORKER(in_condition, {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(unlock, NULL);
    pthread_cond_wait(&condition, &lock);
    pthread_cleanup_pop(1);
})
WORKER(in_timed, {
    struct timespec t = in_ms(CLOCK_REALTIME, 100000);
    sem_timedwait(&never, &t);
})
/* Pending before the call, and the call would not wait. */
WORKER(pending_sem, { usleep(1); pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self()); pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL); sem_wait(&free_one); })
WORKER(pending_open, { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self()); pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL); (void)!open("/dev/null", O_RDONLY); })
WORKER(pending_lock, { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self()); pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); printf("a lock is no cancellation point\n"); })
WORKER(async_loop, { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL); for (;;) __asm__ volatile("pause"); })
WORKER(by_exit, pthread_exit((void *)7))

static void run(void *(*worker)(void *), int cancel) {
    pthread_t t;
    void *result = NULL;
    pthread_create(&t, NULL, worker, NULL);
    sem_wait(&started);
    usleep(10000);
    if (cancel) pthread_cancel(t);
    pthread_join(t, &result);
    printf("result %ld\n", (long)result);
}

static pthread_key_t key;
static int rounds_in_all;
static void key_end(void *value) {
    static __thread int rounds;
    free(malloc(10));
    __atomic_add_fetch(&rounds_in_all, 1, __ATOMIC_SEQ_CST);
    if (++rounds < 3) pthread_setspecific(key, value);
}
static void *with_key(void *unused) {
    pthread_setspecific(key, (void *)5);
    return unused;
}

int main(void) {
    sem_init(&never, 0, 0);
    sem_init(&free_one, 0, 1);
    sem_init(&started, 0, 0);
    if (pipe(p)) return 1;
    run(in_sem_wait, 1);
    run(in_read, 1);
    run(in_poll, 1);
    run(in_pause, 1);
    run(in_sleep, 1);
    run(in_condition, 1);
    run(in_timed, 1);
    run(pending_sem, 0);
    run(pending_open, 0);
    run(pending_lock, 0);
    run(async_loop, 1);
    run(by_exit, 0);
    int left;
    sem_getvalue(&free_one, &left);
    SHOW(left);
    pthread_key_create(&key, key_end);
    pthread_t t;
    pthread_create(&t, NULL, with_key, NULL);
    pthread_join(t, NULL);
    /* Threads by the hundred, none of whose starts is lost. */
    pthread_t many[300];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    long sum = 0;
    for (long i = 0; i < 300; i++) pthread_create(&many[i], &small, with_key, (void *)i);
    for (int i = 0; i < 300; i++) { void *r; pthread_join(many[i], &r); sum += (long)r; }
    SHOW(sum);
    SHOW(rounds_in_all);
    return 0;
}
