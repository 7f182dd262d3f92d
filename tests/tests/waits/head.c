// One thread waits, another ends the wait, as many times as the second argument says and in the way that
// the first one names. The second thread first sees the first one asleep, and lets 2 ms pass: so who ended each
// wait, and that it was longer than 1 ms, is known by construction.
//
// With a third argument the second thread is that of a child.
//
// Prints "waiter TID" and "waker TID", and "ender TID" for each thread or child whose end was waited for.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Whether a thread sleeps in the kernel.
static int is_asleep(int tid) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[2] == 'S';
}

static void nothing(void) {}

struct kind {
    const char *name;
    void (*hold)(void); // the waker, before the wait
    void (*wait)(void); // the waiter
    void (*end)(void);  // the waker
    void (*prepare)(void); // once, before anything else; may be missing
};

// What both sides see, also when one is a child.
static struct {
    atomic_int round_begun, round_done, is_entering, waiter_tid;
} *shared;

