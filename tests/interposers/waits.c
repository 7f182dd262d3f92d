// Counts a program's waits independently of the recorder: preloaded behind the agent, it measures each call by CLOCK_MONOTONIC
// and, at the end of the process (exit or _exit), appends those that lasted for WAITS_MIN_NS and longer to the file WAITS_OUT, one
// "PID TID BEGIN_NS END_NS CALL" a line, after "PID COUNT SUM_NS". Lines stop at LINES waits; COUNT goes on.
// scripts/count-waits.py compiles it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINES 65536
static struct wait {
    long begin, end;
    const char *call;
    int tid;
} waits[LINES];
static atomic_long count, sum_ns;
static long least_ns = 1100000;
static pid_t pid;

static long now(void) {
    // Past the agent's hook, which might take a sample inside of the call that is measured.
    struct timespec t;
    long result = 228;
    __asm__ volatile("syscall" : "+a"(result) : "D"(CLOCK_MONOTONIC), "S"(&t) : "rcx", "r11", "memory");
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static long voluntary_switches(void) {
    int error = errno;
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    errno = error;
    return usage.ru_nvcsw;
}

static void measured(long begin, const char *call) {
    int error = errno;
    long end = now(), ns = end - begin;
    // A child by vfork writes into the memory of its parent.
    if (ns >= least_ns && getpid() == pid) {
        long index = atomic_fetch_add(&count, 1);
        atomic_fetch_add(&sum_ns, ns);
        if (index < LINES)
            waits[index] = (struct wait){begin, end, call, gettid()};
    }
    errno = error;
}

#define WRAP(result, name, arguments, ...)                                       \
    result name arguments {                                                     \
        static result(*next) arguments;                                         \
        if (next == NULL)                                                       \
            next = (result(*) arguments)(void *)dlsym(RTLD_NEXT, #name);                \
        long begin = now();                                                     \
        result got = next(__VA_ARGS__);                                         \
        measured(begin, #name);                                                 \
        return got;                                                             \
    }
// Where several versions exist, the default one of glibc 2.3.2.
#define WRAP_COND(name, arguments, ...)                                         \
    int name arguments {                                                        \
        static int(*next) arguments;                                            \
        if (next == NULL)                                                       \
            next = (int(*) arguments)dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2");   \
        long begin = now();                                                     \
        int got = next(__VA_ARGS__);                                            \
        measured(begin, #name);                                                 \
        return got;                                                             \
    }

WRAP(int, nanosleep, (const struct timespec *a, struct timespec *b), a, b)
WRAP(int, clock_nanosleep, (clockid_t a, int b, const struct timespec *c, struct timespec *d), a, b, c, d)
WRAP(int, usleep, (useconds_t a), a)
WRAP(unsigned, sleep, (unsigned a), a)
WRAP(int, poll, (struct pollfd * a, nfds_t b, int c), a, b, c)
WRAP(int, ppoll, (struct pollfd * a, nfds_t b, const struct timespec *c, const sigset_t *d), a, b, c, d)
WRAP(int, select, (int a, fd_set *b, fd_set *c, fd_set *d, struct timeval *e), a, b, c, d, e)
WRAP(int, pselect, (int a, fd_set *b, fd_set *c, fd_set *d, const struct timespec *e, const sigset_t *f), a, b, c, d, e, f)
WRAP(int, epoll_wait, (int a, struct epoll_event *b, int c, int d), a, b, c, d)
WRAP(int, epoll_pwait, (int a, struct epoll_event *b, int c, int d, const sigset_t *e), a, b, c, d, e)
WRAP(ssize_t, read, (int a, void *b, size_t c), a, b, c)
WRAP(ssize_t, write, (int a, const void *b, size_t c), a, b, c)
WRAP(ssize_t, readv, (int a, const struct iovec *b, int c), a, b, c)
WRAP(ssize_t, writev, (int a, const struct iovec *b, int c), a, b, c)
WRAP(ssize_t, recv, (int a, void *b, size_t c, int d), a, b, c, d)
WRAP(ssize_t, recvfrom, (int a, void *b, size_t c, int d, struct sockaddr *e, socklen_t *f), a, b, c, d, e, f)
WRAP(ssize_t, recvmsg, (int a, struct msghdr *b, int c), a, b, c)
WRAP(ssize_t, send, (int a, const void *b, size_t c, int d), a, b, c, d)
WRAP(ssize_t, sendmsg, (int a, const struct msghdr *b, int c), a, b, c)
WRAP(int, accept, (int a, struct sockaddr *b, socklen_t *c), a, b, c)
WRAP(int, accept4, (int a, struct sockaddr *b, socklen_t *c, int d), a, b, c, d)
WRAP(int, connect, (int a, const struct sockaddr *b, socklen_t c), a, b, c)
WRAP(int, fsync, (int a), a)
WRAP(int, fdatasync, (int a), a)
WRAP(pid_t, waitpid, (pid_t a, int *b, int c), a, b, c)
WRAP(pid_t, wait4, (pid_t a, int *b, int c, struct rusage *d), a, b, c, d)
WRAP(int, pthread_join, (pthread_t a, void **b), a, b)
WRAP(int, pthread_mutex_lock, (pthread_mutex_t * a), a)
WRAP(int, sem_wait, (sem_t * a), a)
WRAP(int, sem_timedwait, (sem_t * a, const struct timespec *b), a, b)
WRAP(int, sem_clockwait, (sem_t * a, clockid_t b, const struct timespec *c), a, b, c)
WRAP(int, pthread_barrier_wait, (pthread_barrier_t * a), a)
WRAP(int, pthread_cond_clockwait, (pthread_cond_t * a, pthread_mutex_t *b, clockid_t c, const struct timespec *d), a, b, c, d)
WRAP_COND(pthread_cond_wait, (pthread_cond_t * a, pthread_mutex_t *b), a, b)
WRAP_COND(pthread_cond_timedwait, (pthread_cond_t * a, pthread_mutex_t *b, const struct timespec *c), a, b, c)
long raw(long n, long a, long b, long c, long d, long e, long f) __asm__("syscall");
long raw(long n, long a, long b, long c, long d, long e, long f) {
    static long (*next)(long, long, long, long, long, long, long);
    if (next == NULL)
        next = (long (*)(long, long, long, long, long, long, long))dlsym(RTLD_NEXT, "syscall");
    // Most of these do not wait, and are long only because the thread lost its processor.
    long switches = voluntary_switches(), begin = now();
    long got = next(n, a, b, c, d, e, f);
    if (voluntary_switches() != switches)
        measured(begin, "syscall");
    return got;
}

__attribute__((constructor)) static void begins(void) {
    pid = getpid();
    const char *text = getenv("WAITS_MIN_NS");
    if (text != NULL)
        least_ns = atol(text);
}

static void forked(void) {
    count = sum_ns = 0;
    pid = getpid();
}

__attribute__((constructor)) static void follows(void) { pthread_atfork(NULL, NULL, forked); }

__attribute__((destructor)) static void ends(void) {
    const char *path = getenv("WAITS_OUT");
    if (path == NULL)
        return;
    // In one piece, so that processes which end at the same time do not mix theirs.
    long n = atomic_load(&count), lines = n < LINES ? n : LINES;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return;
    fprintf(out, "%d %ld %ld\n", getpid(), n, atomic_load(&sum_ns));
    for (long i = 0; i < lines; i++)
        if (waits[i].call != NULL)
            fprintf(out, "%d %d %ld %ld %s\n", getpid(), waits[i].tid, waits[i].begin, waits[i].end, waits[i].call);
    fclose(out);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0 && write(file, text, length) == (ssize_t)length)
        close(file);
    free(text);
}

void _exit(int status) {
    static void (*next)(int);
    next = (void (*)(int))dlsym(RTLD_NEXT, "_exit");
    ends();
    next(status);
    __builtin_unreachable();
}
void _Exit(int status) { _exit(status); }
