#include "show.h"
#include <pthread.h>
#include <threads.h>

static void *lock_and_end(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}

static void *hold(void *lock) {
    pthread_mutex_lock(lock);
    usleep(30000);
    pthread_mutex_unlock(lock);
    return NULL;
}

static pthread_rwlock_t held = PTHREAD_RWLOCK_INITIALIZER;
static void *hold_write(void *unused) {
    pthread_rwlock_wrlock(&held);
    usleep(30000);
    pthread_rwlock_unlock(&held);
    return unused;
}

static pthread_mutex_t of_type(int type, int robust, int protocol) {
    pthread_mutexattr_t a;
    pthread_mutex_t m;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, type);
    if (robust) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (protocol) pthread_mutexattr_setprotocol(&a, protocol);
    pthread_mutex_init(&m, &a);
    return m;
}

static long counter;
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static void *count(void *unused) {
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&shared);
        counter++;
        pthread_mutex_unlock(&shared);
    }
    return unused;
}

int main(void) {
    pthread_t t;
    struct timespec past = {1, 0}, bad = {1, -5};

    pthread_mutex_t normal = of_type(PTHREAD_MUTEX_NORMAL, 0, 0);
    SHOW(pthread_mutex_lock(&normal));
    SHOW(pthread_mutex_trylock(&normal));
    SHOW(pthread_mutex_timedlock(&normal, &past));
    SHOW(pthread_mutex_timedlock(&normal, &bad));
    SHOW(pthread_mutex_clocklock(&normal, CLOCK_MONOTONIC, &past));
    SHOW(pthread_mutex_clocklock(&normal, 12, &past));
    SHOW(pthread_mutex_unlock(&normal));

    pthread_mutex_t recursive = of_type(PTHREAD_MUTEX_RECURSIVE, 0, 0);
    SHOW(pthread_mutex_lock(&recursive));
    SHOW(pthread_mutex_lock(&recursive));
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&recursive));
    SHOW(pthread_mutex_unlock(&recursive));

    pthread_mutex_t check = of_type(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    SHOW(pthread_mutex_unlock(&check));
    SHOW(pthread_mutex_lock(&check));
    SHOW(pthread_mutex_lock(&check));
    struct timespec soon = in_ms(CLOCK_REALTIME, 20);
    SHOW(pthread_mutex_timedlock(&check, &soon));
    SHOW(pthread_mutex_unlock(&check));

    pthread_mutex_t robust = of_type(PTHREAD_MUTEX_NORMAL, 1, 0);
    pthread_create(&t, NULL, lock_and_end, &robust);
    pthread_join(t, NULL);
    SHOW(pthread_mutex_lock(&robust));
    SHOW(pthread_mutex_consistent(&robust));
    SHOW(pthread_mutex_unlock(&robust));
    pthread_create(&t, NULL, lock_and_end, &robust);
    pthread_join(t, NULL);
    SHOW(pthread_mutex_lock(&robust));
    SHOW(pthread_mutex_unlock(&robust));
    SHOW(pthread_mutex_lock(&robust));

    pthread_mutex_t inherit = of_type(PTHREAD_MUTEX_ERRORCHECK, 0, PTHREAD_PRIO_INHERIT);
    SHOW(pthread_mutex_lock(&inherit));
    SHOW(pthread_mutex_lock(&inherit));
    SHOW(pthread_mutex_unlock(&inherit));
    pthread_create(&t, NULL, hold, &inherit);
    usleep(10000);
    SHOW(pthread_mutex_lock(&inherit));
    SHOW(pthread_mutex_unlock(&inherit));
    pthread_join(t, NULL);

    pthread_create(&t, NULL, hold, &normal);
    usleep(10000);
    SHOW(pthread_mutex_lock(&normal));
    SHOW(pthread_mutex_unlock(&normal));
    pthread_join(t, NULL);

    pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
    SHOW(pthread_rwlock_rdlock(&rw));
    SHOW(pthread_rwlock_tryrdlock(&rw));
    SHOW(pthread_rwlock_trywrlock(&rw));
    SHOW(pthread_rwlock_timedwrlock(&rw, &past));
    SHOW(pthread_rwlock_clockwrlock(&rw, CLOCK_MONOTONIC, &past));
    SHOW(pthread_rwlock_unlock(&rw));
    SHOW(pthread_rwlock_unlock(&rw));
    SHOW(pthread_rwlock_wrlock(&rw));
    SHOW(pthread_rwlock_wrlock(&rw));
    SHOW(pthread_rwlock_rdlock(&rw));
    SHOW(pthread_rwlock_timedrdlock(&rw, &past));
    SHOW(pthread_rwlock_clockrdlock(&rw, CLOCK_REALTIME, &past));
    SHOW(pthread_rwlock_unlock(&rw));
    SHOW(pthread_rwlock_timedrdlock(&rw, &bad));
    SHOW(pthread_rwlock_clockwrlock(&rw, 12, &past));
    SHOW(pthread_mutex_timedlock(&normal, &bad));
    SHOW(pthread_mutex_unlock(&normal));
    SHOW(pthread_mutex_clocklock(&normal, 12, &past));
    pthread_create(&t, NULL, hold_write, NULL);
    usleep(10000);
    SHOW(pthread_rwlock_rdlock(&held));
    SHOW(pthread_rwlock_unlock(&held));
    pthread_join(t, NULL);

    pthread_spinlock_t spin;
    pthread_spin_init(&spin, 0);
    SHOW(pthread_spin_lock(&spin));
    SHOW(pthread_spin_trylock(&spin));
    SHOW(pthread_spin_unlock(&spin));

    mtx_t m;
    mtx_init(&m, mtx_timed);
    SHOW(mtx_lock(&m));
    SHOW(mtx_trylock(&m) == thrd_busy);
    SHOW(mtx_timedlock(&m, &past) == thrd_timedout);
    SHOW(mtx_unlock(&m));

    pthread_t many[4];
    for (int i = 0; i < 4; i++) pthread_create(&many[i], NULL, count, NULL);
    for (int i = 0; i < 4; i++) pthread_join(many[i], NULL);
    SHOW(counter);
    return 0;
}
