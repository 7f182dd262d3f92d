// uring syscall|liburing [MS]: computes for so long, and then waits for completions of io_uring after time in the kernel, and prints how many rounds had fewer
// than they waited for. Each round submits reads that are done while they are submitted, and a timeout.
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { READS = 63, BYTES = 1 << 20, ROUNDS = 120 };

static void prepare(struct io_uring *ring, int zero, char *buffer, struct __kernel_timespec *time) {
    for (int i = 0; i < READS; i++) io_uring_prep_read(io_uring_get_sqe(ring), zero, buffer, BYTES, 0);
    *time = (struct __kernel_timespec){0, 5000000};
    io_uring_prep_timeout(io_uring_get_sqe(ring), time, 0, 0);
}

static int ready(struct io_uring *ring) {
    int ready = io_uring_cq_ready(ring);
    // The others come later.
    for (int left = READS + 1; left > 0;) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(ring, &cqe) == 0) io_uring_cqe_seen(ring, cqe), left--;
    }
    return ready;
}

static void enter(struct io_uring *ring) {
    // Hands them to the kernel, as io_uring_submit does.
    unsigned count = io_uring_sq_ready(ring);
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++)
        ring->sq.array[i & *ring->sq.kring_mask] = i & *ring->sq.kring_mask;
    ring->sq.sqe_head = ring->sq.sqe_tail;
    __atomic_store_n(ring->sq.ktail, ring->sq.sqe_tail, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, ring->ring_fd, count, READS + 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

static void compute(long ms) {
    struct timespec now;
    do {
        for (volatile int i = 0; i < 100000; i++) {}
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

int main(int count, char **arguments) {
    struct io_uring ring;
    if (count < 2) return 2;
    if (count > 2) compute(atol(arguments[2]));
    if (io_uring_queue_init(READS + 1, &ring, 0)) {
        puts("no io_uring");
        return 0;
    }
    int zero = open("/dev/zero", O_RDONLY), fewer = 0;
    char *buffer = malloc(BYTES);
    struct __kernel_timespec time;
    for (int round = 0; round < ROUNDS; round++) {
        prepare(&ring, zero, buffer, &time);
        if (strcmp(arguments[1], "syscall") == 0)
            enter(&ring);
        else
            io_uring_submit_and_wait(&ring, READS + 1);
        fewer += ready(&ring) < READS + 1;
    }
    printf("%d\n", fewer);
    return 0;
}
