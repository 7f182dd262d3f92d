/* How many bytes of stack each call takes: it runs on a stack of its own that was painted before. Prints a name and the
 * number for each, the most of several runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 256 << 10, PAINT = 0x5a, RUNS = 12 };
static char *stack;
static ucontext_t outside, inside;
static void (*to_measure)(void);

static void enter(void) { to_measure(); }

static long once(void (*f)(void)) {
    memset(stack, PAINT, STACK);
    to_measure = f;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, enter, 0);
    swapcontext(&outside, &inside);
    long low = 0;
    while (low < STACK && stack[low] == PAINT) low++;
    return STACK - low;
}

/* What only the first call does (finding the original, loading what it needs) is not measured. */
static long most(void (*f)(void), void (*before)(void)) {
    long most = 0;
    for (int i = 0; i < RUNS; i++) {
        if (before) before();
        long used = once(f);
        if (i > 1 && used > most) most = used;
    }
    return most;
}

static int pipes[2], pair[2], events, epolls, file;
static char buffer[64];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, condition_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static pthread_barrier_t barrier;
static volatile int word;
static const struct timespec moment = {0, 200000};

static struct timespec soon(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += 300000;
    if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
    return t;
}

/* A thread that does the other half of what is measured. */
static void *(*half)(void *);
static pthread_t other;
static void start_other(void) {
    pthread_create(&other, NULL, half, NULL);
    usleep(2000);
}
static void *waits_for_mutex(void *p) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); return p; }
static void *waits_for_rwlock(void *p) { pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock); return p; }
static void *waits_for_condition(void *p) {
    pthread_mutex_lock(&condition_mutex);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec++;
    pthread_cond_timedwait(&condition, &condition_mutex, &t);
    pthread_mutex_unlock(&condition_mutex);
    return p;
}
static void *waits_for_semaphore(void *p) { sem_wait(&semaphore); return p; }
static void *waits_for_pipe(void *p) { char c; (void)!read(pipes[0], &c, 1); return p; }
static void *waits_in_poll(void *p) {
    struct pollfd fds[] = {{pair[0], POLLIN, 0}, {pipes[0], POLLIN, 0}};
    poll(fds, 2, 1000);
    char c;
    (void)!read(pipes[0], &c, 1);
    return p;
}
static void *waits_in_epoll(void *p) {
    struct epoll_event event;
    epoll_wait(epolls, &event, 1, 1000);
    char c;
    (void)!read(pipes[0], &c, 1);
    return p;
}
static void *holds_mutex(void *p) { pthread_mutex_lock(&mutex); usleep(4000); pthread_mutex_unlock(&mutex); return p; }
static void *writes_late(void *p) { usleep(4000); (void)!write(pipes[1], "x", 1); return p; }
static void *sleeps(void *p) { usleep(3000); return p; }
static void *at_barrier(void *p) { pthread_barrier_wait(&barrier); return p; }
static void *wakes_late(void *p) {
    usleep(4000);
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
    return p;
}
static void start_holder(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    half = holds_mutex;
    start_other();
    pthread_detach(other);
}
static void lock_and_start(void) { pthread_mutex_lock(&mutex); start_other(); }
static void wrlock_and_start(void) { pthread_rwlock_wrlock(&rwlock); start_other(); }
static void clear_and_start(void) { word = 0; start_other(); }
static void nothing(int s) { (void)s; }

#define CALL(name, ...) static void name(void) { __VA_ARGS__; }
CALL(a_malloc, free(malloc(100)))
CALL(a_calloc, free(calloc(10, 10)))
CALL(a_realloc, free(realloc(malloc(10), 1000)))
CALL(a_memalign, void *p; if (!posix_memalign(&p, 64, 100)) free(p))
CALL(a_mmap, munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096))
CALL(a_mutex, pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex))
CALL(a_contended_mutex, pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); pthread_join(other, NULL))
CALL(a_contended_lock, pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex))
CALL(an_awaited_mutex, pthread_mutex_unlock(&mutex); pthread_join(other, NULL))
CALL(a_rwlock, pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock))
CALL(an_awaited_rwlock, pthread_rwlock_unlock(&rwlock); pthread_join(other, NULL))
CALL(a_timed_condition, struct timespec t = soon(CLOCK_REALTIME); pthread_mutex_lock(&mutex);
     pthread_cond_timedwait(&condition, &mutex, &t); pthread_mutex_unlock(&mutex))
CALL(an_awaited_condition, pthread_mutex_lock(&condition_mutex); pthread_cond_signal(&condition);
     pthread_mutex_unlock(&condition_mutex); pthread_join(other, NULL))
CALL(a_timed_semaphore, struct timespec t = soon(CLOCK_REALTIME); sem_timedwait(&semaphore, &t))
CALL(an_awaited_semaphore, sem_post(&semaphore); pthread_join(other, NULL))
CALL(a_barrier, pthread_barrier_wait(&barrier); pthread_join(other, NULL))
CALL(a_join, pthread_join(other, NULL))
CALL(a_thread, pthread_t t; pthread_create(&t, NULL, half, NULL); pthread_join(t, NULL))
CALL(a_futex, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &moment, 0, 0))
CALL(a_raw_sleep, syscall(SYS_nanosleep, &moment, NULL))
CALL(a_raw_poll, struct pollfd p = {pair[0], POLLIN, 0}; syscall(SYS_poll, &p, 1, 1))
CALL(a_raw_read, (void)!write(pipes[1], "x", 1); syscall(SYS_read, pipes[0], buffer, 1))
CALL(a_woken_futex, syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0); pthread_join(other, NULL))
CALL(a_pipe, (void)!write(pipes[1], "x", 1); (void)!read(pipes[0], buffer, 1))
CALL(an_awaited_pipe, (void)!write(pipes[1], "x", 1); pthread_join(other, NULL))
CALL(a_waiting_read, (void)!read(pipes[0], buffer, 1); pthread_join(other, NULL))
CALL(a_vector, struct iovec v = {buffer, 1}; (void)!writev(pipes[1], &v, 1); (void)!readv(pipes[0], &v, 1))
CALL(a_file, close(open("/dev/null", O_RDONLY)))
static FILE *stream;
static void open_stream(void) { if (stream) fclose(stream); setvbuf(stream = fopen("/dev/zero", "r+"), NULL, _IONBF, 0); }
static void use_stream(void) { open_stream(); getc(stream); putc(1, stream); }
CALL(a_first_getc, getc(stream))
CALL(a_getc, getc(stream))
CALL(a_first_putc, putc(1, stream))
CALL(a_putc, putc(1, stream))
CALL(an_fclose, fclose(stream); stream = NULL)
CALL(an_fopen, FILE *f = fopen("/dev/null", "r"); fclose(f))
static int unused;
static void open_unused(void) { close(unused); unused = open("/dev/zero", O_RDWR); }
CALL(a_first_read, (void)!read(unused, buffer, 1))
CALL(a_first_write, (void)!write(unused, buffer, 1))
CALL(a_stat, struct stat s; stat("/dev/null", &s))
CALL(a_pread, (void)!pread(file, buffer, 10, 0))
CALL(a_flock, flock(file, LOCK_EX); flock(file, LOCK_UN))
CALL(an_fcntl, fcntl(file, F_GETFL))
CALL(a_dup, close(dup(file)))
CALL(a_socket, send(pair[1], "x", 1, 0); recv(pair[0], buffer, 1, 0))
CALL(a_message, struct iovec v = {buffer, 1}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
     sendmsg(pair[1], &m, 0); recvmsg(pair[0], &m, 0))
CALL(a_connection, int s = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = 1};
     a.sin_addr.s_addr = htonl(INADDR_LOOPBACK); connect(s, (struct sockaddr *)&a, sizeof a); close(s))
CALL(a_poll, struct pollfd p = {pair[0], POLLIN, 0}; poll(&p, 1, 1))
CALL(a_ppoll, struct pollfd p[] = {{pair[0], POLLIN, 0}, {pipes[0], POLLIN, 0}}; ppoll(p, 2, &moment, NULL))
CALL(a_select, fd_set s; FD_ZERO(&s); FD_SET(pair[0], &s); struct timeval t = {0, 300}; select(pair[0] + 1, &s, 0, 0, &t))
CALL(an_epoll, struct epoll_event e; epoll_wait(epolls, &e, 1, 1))
CALL(an_epoll_ctl, struct epoll_event e = {EPOLLIN, {.fd = events}}; epoll_ctl(epolls, EPOLL_CTL_ADD, events, &e);
     epoll_ctl(epolls, EPOLL_CTL_DEL, events, &e))
CALL(an_eventfd, uint64_t n = 1; (void)!write(events, &n, 8); (void)!read(events, &n, 8))
CALL(a_sleep, nanosleep(&moment, NULL))
CALL(a_usleep, usleep(200))
CALL(a_clock_sleep, clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL))
CALL(a_yield, syscall(SYS_sched_yield))
CALL(a_fork, pid_t p = fork(); if (!p) _exit(0); waitpid(p, NULL, 0))
CALL(a_spawn, char *argv[] = {"true", NULL}; pid_t p; posix_spawn(&p, "/bin/true", NULL, NULL, argv, argv + 1); waitpid(p, NULL, 0))
CALL(a_failed_exec, char *argv[] = {"none", NULL}; execve("/none", argv, argv + 1))
CALL(a_failed_list, execl("/none", "none", "a", "b", NULL))
CALL(an_action, struct sigaction a; sigaction(SIGURG, NULL, &a); sigaction(SIGUSR1, NULL, &a))
CALL(a_mask, sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); sigprocmask(SIG_BLOCK, &s, NULL); sigprocmask(SIG_UNBLOCK, &s, NULL))
CALL(a_full_mask, sigset_t s, old; sigfillset(&s); for (int i = 0; i < 2000; i++) { pthread_sigmask(SIG_SETMASK, &s, &old); pthread_sigmask(SIG_SETMASK, &old, NULL); })
CALL(a_raise, raise(SIGUSR1))
CALL(a_kill, kill(getpid(), SIGUSR1))
CALL(a_timed_signal, sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); sigtimedwait(&s, NULL, &moment))
CALL(an_altstack, stack_t s; sigaltstack(NULL, &s))
CALL(a_library, void *l = dlopen("libm.so.6", RTLD_NOW); dlsym(l, "sin"); dlclose(l))
CALL(computing, for (volatile int i = 0; i < 10000000;) i++)

static struct {
    const char *name;
    void (*call)(void), (*before)(void);
    void *(*half)(void *);
} calls[] = {
#define ROW(name, ...) {#name, name, __VA_ARGS__}
    ROW(a_malloc), ROW(a_calloc), ROW(a_realloc), ROW(a_memalign), ROW(a_mmap), ROW(a_mutex),
    ROW(a_contended_mutex, start_other, holds_mutex), ROW(an_awaited_mutex, lock_and_start, waits_for_mutex),
    ROW(a_contended_lock, start_holder), ROW(a_raw_sleep), ROW(a_raw_poll), ROW(a_raw_read),
    ROW(a_rwlock), ROW(an_awaited_rwlock, wrlock_and_start, waits_for_rwlock), ROW(a_timed_condition),
    ROW(an_awaited_condition, start_other, waits_for_condition), ROW(a_timed_semaphore),
    ROW(an_awaited_semaphore, start_other, waits_for_semaphore), ROW(a_barrier, start_other, at_barrier),
    ROW(a_join, start_other, sleeps), ROW(a_thread, NULL, sleeps), ROW(a_futex, clear_and_start, sleeps),
    ROW(a_woken_futex, clear_and_start, wakes_late), ROW(a_pipe), ROW(an_awaited_pipe, start_other, waits_for_pipe),
    ROW(a_waiting_read, start_other, writes_late), ROW(a_vector), ROW(a_file), ROW(a_first_getc, open_stream), ROW(a_getc, use_stream), ROW(a_first_putc, open_stream),
    ROW(a_putc, use_stream), ROW(an_fclose, use_stream), ROW(an_fopen), ROW(a_first_read, open_unused), ROW(a_first_write, open_unused), ROW(a_stat), ROW(a_pread), ROW(a_flock),
    ROW(an_fcntl), ROW(a_dup), ROW(a_socket), ROW(a_message), ROW(a_connection), ROW(a_poll), ROW(a_ppoll),
    ROW(a_select), ROW(an_epoll), ROW(an_epoll_ctl), ROW(an_eventfd), ROW(a_sleep), ROW(a_usleep), ROW(a_clock_sleep),
    ROW(a_yield), ROW(a_fork), ROW(a_spawn), ROW(a_failed_exec), ROW(a_failed_list), ROW(an_action), ROW(a_mask), ROW(a_full_mask),
    ROW(a_raise), ROW(a_kill), ROW(a_timed_signal), ROW(an_altstack), ROW(a_library), ROW(computing),
    {"a_pipe_in_poll", an_awaited_pipe, start_other, waits_in_poll},
    {"a_pipe_in_epoll", an_awaited_pipe, start_other, waits_in_epoll},
};

int main(void) {
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)!pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    events = eventfd(0, 0);
    epolls = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = pipes[0]}};
    epoll_ctl(epolls, EPOLL_CTL_ADD, pipes[0], &event);
    file = open("/proc/self/exe", O_RDONLY);
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    signal(SIGUSR1, nothing);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        half = calls[i].half;
        printf("%s %ld\n", calls[i].name, most(calls[i].call, calls[i].before));
    }
    return 0;
}
