// A program to attach to: threads that compute, allocate, start threads and load libraries, and threads that
// sit in calls which a stop could end early. Prints one line when all of it came out right.
//
//   resident SECONDS        or until SIGTERM comes

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static atomic_int stop, wrong;
static atomic_long rounds[16];

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: errno %d\n", what, errno);
        wrong++;
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static unsigned compute_here(unsigned n) {
    volatile unsigned h = 1;
    for (unsigned i = 0; i < n; i++) h = h * 31 + i;
    return h;
}

static void *computes(void *unused) {
    unsigned first = compute_here(100000);
    for (; !stop; rounds[0]++) check(compute_here(100000) == first, "compute");
    return unused;
}

static void *allocates(void *unused) {
    for (; !stop; rounds[1]++) {
        char *blocks[50];
        for (int i = 0; i < 50; i++) memset(blocks[i] = malloc(20 + i * 97), i, 20 + i * 97);
        for (int i = 0; i < 50; i++) {
            check(blocks[i][19 + i * 97] == i, "block");
            free(blocks[i]);
        }
    }
    return unused;
}

static void *floats(void *unused) {
    // Keeps values in vector registers at all times.
    double sum = 0, want = 0;
    for (int i = 0; i < 1000; i++) want += i * 0.5;
    for (; !stop; rounds[2]++) {
        sum = 0;
        for (int i = 0; i < 1000; i++) sum += i * 0.5;
        check(sum == want, "sum");
    }
    return unused;
}

static void *nothing(void *argument) { return argument; }

static void *starts_threads(void *unused) {
    for (; !stop; rounds[3]++) {
        pthread_t thread;
        void *result = 0;
        check(pthread_create(&thread, 0, nothing, &stop) == 0, "create");
        check(pthread_join(thread, &result) == 0 && result == &stop, "join");
        usleep(500);
    }
    return unused;
}

static void *loads(void *unused) {
    for (; !stop; rounds[4]++) {
        void *library = dlopen("libutil.so.1", RTLD_NOW);
        void *other = dlopen("libm.so.6", RTLD_LAZY);
        double (*cosine)(double) = other ? (double (*)(double))dlsym(other, "cos") : 0;
        check(cosine && cosine(0) == 1, "cos");
        if (library) dlclose(library);
        if (other) dlclose(other);
        usleep(1000);
    }
    return unused;
}

// Each of these waits for 20 ms and must neither be interrupted nor come back early.
static void *polls(void *unused) {
    for (; !stop; rounds[5]++) {
        double begin = now();
        check(poll(0, 0, 20) == 0 && now() - begin >= 0.0199, "poll");
    }
    return unused;
}

static void *epolls(void *unused) {
    int fd = epoll_create1(0);
    struct epoll_event event;
    for (; !stop; rounds[6]++) {
        double begin = now();
        check(epoll_wait(fd, &event, 1, 20) == 0 && now() - begin >= 0.0199, "epoll_wait");
    }
    return unused;
}

static void *selects(void *unused) {
    for (; !stop; rounds[7]++) {
        struct timeval time = {0, 20000};
        double begin = now();
        check(select(0, 0, 0, 0, &time) == 0 && now() - begin >= 0.0199, "select");
    }
    return unused;
}

static void *sleeps(void *unused) {
    for (; !stop; rounds[8]++) {
        struct timespec time = {0, 20000000}, rest = {0, 0};
        double begin = now();
        check(nanosleep(&time, &rest) == 0 && now() - begin >= 0.0199, "nanosleep");
    }
    return unused;
}

static sem_t never;

static void *waits(void *unused) {
    for (; !stop; rounds[9]++) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        time.tv_nsec += 20000000;
        time.tv_sec += time.tv_nsec / 1000000000;
        time.tv_nsec %= 1000000000;
        check(sem_timedwait(&never, &time) == -1 && errno == ETIMEDOUT, "sem_timedwait");
    }
    return unused;
}

static int ends[2];

static void *reads(void *unused) {
    char buffer[100];
    for (;;) {
        ssize_t got = read(ends[0], buffer, sizeof buffer);
        if (got == 0) return unused;
        check(got == sizeof buffer, "read");
        rounds[10]++;
    }
}

static void *receives(void *unused) {
    int sockets[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    struct timeval time = {0, 20000};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    char byte;
    for (; !stop; rounds[11]++)
        check(recv(sockets[0], &byte, 1, 0) == -1 && errno == EAGAIN, "recv");
    return unused;
}

static void *waits_for_signal(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    for (; !stop; rounds[12]++) {
        struct timespec time = {0, 20000000};
        check(sigtimedwait(&set, 0, &time) == -1 && errno == EAGAIN, "sigtimedwait");
    }
    return unused;
}

static void *(*const jobs[])(void *) = {computes, allocates, floats, starts_threads, loads,
                                        polls,    epolls,    selects, sleeps,         waits,
                                        reads,    receives,  waits_for_signal};
#define JOBS (sizeof jobs / sizeof *jobs)

static atomic_int told;

static void on_signal(int signal) { told = signal; }

int main(int count, char **arguments) {
    double end = now() + (count > 1 ? atof(arguments[1]) : 1);
    pthread_t threads[JOBS];
    sem_init(&never, 0, 0);
    if (pipe(ends)) return 2;
    for (size_t i = 0; i < JOBS; i++) pthread_create(&threads[i], 0, jobs[i], 0);
    puts("running");
    fflush(stdout);
    char block[100] = "";
    signal(SIGTERM, on_signal);
    while (now() < end && !told) {
        check(write(ends[1], block, sizeof block) == sizeof block, "write");
        usleep(20000);
    }
    stop = 1;
    close(ends[1]);
    for (size_t i = 0; i < JOBS; i++) pthread_join(threads[i], 0);
    for (size_t i = 0; i < JOBS; i++) check(rounds[i] > 0, "a thread that did nothing");
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
