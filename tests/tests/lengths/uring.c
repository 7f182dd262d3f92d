// uring MS ROUNDS THREADS: as kinds.c, in the calls of liburing that wait for a completion. The ring is given timeouts
// to wait for.
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long ms;
static int rounds, threads;

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

// A completion after MS milliseconds; submitted by the caller.
static void prepare(struct io_uring *ring, struct __kernel_timespec *time) {
    time->tv_sec = ms / 1000;
    time->tv_nsec = ms % 1000 * 1000000;
    io_uring_prep_timeout(io_uring_get_sqe(ring), time, 0, 0);
}

__attribute__((noinline)) static int w_wait_cqe(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    return io_uring_wait_cqe(ring, &cqe);
}
__attribute__((noinline)) static int w_wait_cqes(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    return io_uring_wait_cqes(ring, &cqe, 1, NULL, NULL);
}
__attribute__((noinline)) static int w_submit_and_wait(struct io_uring *ring) {
    return io_uring_submit_and_wait(ring, 1);
}
// Nothing completes: these end by their own time.
__attribute__((noinline)) static int w_wait_cqe_timeout(struct io_uring *ring) {
    struct __kernel_timespec time = {ms / 1000, ms % 1000 * 1000000};
    struct io_uring_cqe *cqe;
    int result = io_uring_wait_cqe_timeout(ring, &cqe, &time);
    return result == -ETIME ? 0 : result < 0 ? result : -1;
}
__attribute__((noinline)) static int w_submit_and_wait_timeout(struct io_uring *ring) {
    struct __kernel_timespec time = {ms / 1000, ms % 1000 * 1000000};
    struct io_uring_cqe *cqe;
    int result = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &time, NULL);
    return result == -ETIME ? 0 : result < 0 ? result : -1;
}
__attribute__((noinline)) static int w_io_uring_enter(struct io_uring *ring) {
    return io_uring_enter(ring->ring_fd, 0, 1, IORING_ENTER_GETEVENTS, NULL);
}

static const struct kind {
    const char *name;
    int (*wait)(struct io_uring *ring);
    // Whether a completion is prepared, and whether it is submitted before the wait.
    int prepared, submitted;
} kinds[] = {
    {"wait_cqe", w_wait_cqe, 1, 1},
    {"wait_cqes", w_wait_cqes, 1, 1},
    {"submit_and_wait", w_submit_and_wait, 1, 0},
    {"wait_cqe_timeout", w_wait_cqe_timeout, 0, 0},
    {"submit_and_wait_timeout", w_submit_and_wait_timeout, 0, 0},
    {"io_uring_enter", w_io_uring_enter, 1, 1},
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)

static long sums[16][KINDS];

static void *run(void *argument) {
    long *sum = argument;
    struct io_uring ring;
    if (io_uring_queue_init(8, &ring, 0)) exit(3);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < KINDS; i++) {
            struct __kernel_timespec time;
            if (kinds[i].prepared) prepare(&ring, &time);
            if (kinds[i].submitted) io_uring_submit(&ring);
            long begin = now_ns();
            int result = kinds[i].wait(&ring);
            sum[i] += now_ns() - begin;
            if (result < 0) {
                fprintf(stderr, "%s: %d\n", kinds[i].name, result);
                exit(4);
            }
            struct io_uring_cqe *cqe;
            while (io_uring_peek_cqe(&ring, &cqe) == 0) io_uring_cqe_seen(&ring, cqe);
        }
    io_uring_queue_exit(&ring);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    ms = atol(arguments[1]);
    rounds = atoi(arguments[2]);
    threads = atoi(arguments[3]);
    struct io_uring ring;
    if (io_uring_queue_init(8, &ring, 0)) {
        // A kernel without it, or a sandbox that refuses it.
        puts("io_uring missing");
        return 0;
    }
    io_uring_queue_exit(&ring);
    pthread_t all[16];
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, run, sums[i]);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < KINDS; i++) {
        long sum = 0;
        for (int t = 0; t < threads; t++) sum += sums[t][i];
        printf("%s %d %ld\n", kinds[i].name, rounds * threads, sum);
    }
    return 0;
}
