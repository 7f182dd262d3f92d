/* Nanoseconds a call, best of several rounds: one line "name ns" each. */
#include "show.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <poll.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/syscall.h>

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#define COST(name, rounds, code)                                                                   \
    do {                                                                                           \
        double best = 1e18;                                                                        \
        for (int try = 0; try < 15; try++) {                                                       \
            double begin = now_ns();                                                               \
            for (int i = 0; i < (rounds); i++) { code; }                                           \
            double each = (now_ns() - begin) / (rounds);                                           \
            if (each < best) best = each;                                                          \
        }                                                                                          \
        printf("%s %.2f\n", name, best);                                                           \
    } while (0)

int main(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    int zero = open("/dev/zero", O_RDWR);
    char c;
    uint32_t word = 0;
    struct timespec t;
    void *volatile p;
    COST("malloc+free", 100000, { p = malloc(32); free(p); });
    COST("lock+unlock", 100000, { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); });
    COST("rdlock+unlock", 100000, { pthread_rwlock_rdlock(&rw); pthread_rwlock_unlock(&rw); });
    COST("post+wait", 100000, { sem_post(&semaphore); sem_wait(&semaphore); });
    COST("clock_gettime", 100000, clock_gettime(CLOCK_MONOTONIC, &t));
    COST("read", 20000, if (read(zero, &c, 1) != 1) abort());
    COST("write", 20000, if (write(zero, &c, 1) != 1) abort());
    COST("futex-wake", 20000, syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    COST("poll", 20000, poll(NULL, 0, 0));
    COST("syscall", 20000, syscall(SYS_getppid));
    return 0;
}
