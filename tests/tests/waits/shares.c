// Threads that compute and threads that wait, each in functions of their own, which measure themselves by raw
// system calls: a clock that is read through libc would be a hook. Waits last until the main thread ends them,
// a second or more. At the end a line for each function:
//
//     compute FUNCTION CPU_NS CPU_NS_OF_THREAD
//     wait FUNCTION WALL_NS WALL_NS_OF_THREAD
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long raw(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = 0;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c, d, 0);
#endif
}

static int64_t clock_ns(int clock) {
    struct timespec now;
    raw(SYS_clock_gettime, clock, (long)&now, 0, 0);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int64_t cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
static int64_t wall_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

// Computes until the thread has used so much CPU time more. Gives how much it was.
static inline __attribute__((always_inline)) int64_t compute(int64_t ns) {
    int64_t begin = cpu_ns(), now;
    do {
        for (int i = 0; i < 200000; i++) asm volatile("" ::: "memory");
        now = cpu_ns();
    } while (now - begin < ns);
    return now - begin;
}

#define MS 1000000L

NOINLINE static int64_t no_hook_at_all(void) { return compute(600 * MS); }
NOINLINE static int64_t long_between_hooks(void) { return compute(30 * MS); }
NOINLINE static int64_t short_between_hooks(void) { return compute(10 * MS); }
NOINLINE static int64_t quiet_beside_hooks(void) { return compute(5 * MS); }
NOINLINE static int64_t passes_hooks(void) {
    int64_t begin = cpu_ns(), now;
    do {
        for (int i = 0; i < 5000; i++) free(malloc(40 + i % 200));
        now = cpu_ns();
    } while (now - begin < 5 * MS);
    return now - begin;
}

struct part {
    const char *name;
    int64_t (*run)(void);
    int64_t ns;
};

struct computing {
    struct part parts[3];
    int rounds;
    int64_t all_ns;
    pthread_t thread;
} computing[] = {
    {{{"no_hook_at_all", no_hook_at_all}}, 1},
    {{{"long_between_hooks", long_between_hooks}, {"short_between_hooks", short_between_hooks}}, 15},
    {{{"quiet_beside_hooks", quiet_beside_hooks}, {"passes_hooks", passes_hooks}}, 40},
};

static void *computes(void *argument) {
    struct computing *c = argument;
    int64_t begin = cpu_ns();
    for (int round = 0; round < c->rounds; round++) {
        for (struct part *part = c->parts; part->run; part++) {
            part->ns += part->run();
            free(malloc(100));
        }
    }
    c->all_ns = cpu_ns() - begin;
    return NULL;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, of_condition = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t write_held = PTHREAD_RWLOCK_INITIALIZER, read_held = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static pthread_t sleeper;
static pid_t child;
static uint32_t word, raw_word;
static volatile int is_over;
static int pipes[8][2], full[2], pairs[2][2], datagrams[2], event, sems, messages, file;
static mqd_t queue;
static sigset_t usr1;
static char byte, block[1 << 16];

static struct pollfd readable(int fd) { return (struct pollfd){fd, POLLIN, 0}; }

static int in_epoll_of(int fd) {
    int set = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN}, got;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted);
    return epoll_wait(set, &got, 1, -1);
}

static void wait_for_condition(void) {
    pthread_mutex_lock(&of_condition);
    while (!is_over) pthread_cond_wait(&condition, &of_condition);
    pthread_mutex_unlock(&of_condition);
}

static int select_from(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}

static int lock_file(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLKW, &lock);
}

// Each is below a function of its own, and ended by `end_waits`.
#define EACH(X) \
    X(in_read, read(pipes[0][0], &byte, 1)) \
    X(in_readv, readv(pipes[1][0], &(struct iovec){&byte, 1}, 1)) \
    X(in_write, write(full[1], block, sizeof block)) \
    X(in_recv, recv(pairs[0][0], &byte, 1, 0)) \
    X(in_recvmsg, recvmsg(pairs[1][0], &(struct msghdr){.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1}, 0)) \
    X(in_send, send(datagrams[0], block, 1000, 0)) \
    X(in_poll, poll(&(struct pollfd[]){readable(pipes[2][0])}[0], 1, -1)) \
    X(in_ppoll, ppoll(&(struct pollfd[]){readable(pipes[2][0])}[0], 1, NULL, NULL)) \
    X(in_select, select_from(pipes[2][0])) \
    X(in_epoll, in_epoll_of(pipes[2][0])) \
    X(in_nanosleep, nanosleep(&(struct timespec){1, 200 * MS}, NULL)) \
    X(in_clock_nanosleep, clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){1, 200 * MS}, NULL)) \
    X(in_mutex, (pthread_mutex_lock(&held), pthread_mutex_unlock(&held))) \
    X(in_read_lock, (pthread_rwlock_rdlock(&write_held), pthread_rwlock_unlock(&write_held))) \
    X(in_write_lock, (pthread_rwlock_wrlock(&read_held), pthread_rwlock_unlock(&read_held))) \
    X(in_condition, wait_for_condition()) \
    X(in_semaphore, sem_wait(&semaphore)) \
    X(in_barrier, pthread_barrier_wait(&barrier)) \
    X(in_futex, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0)) \
    X(in_join, pthread_join(sleeper, NULL)) \
    X(in_wait, waitpid(child, NULL, 0)) \
    X(in_sigwait, sigwait(&usr1, &(int){0})) \
    X(in_signalfd, read(signalfd(-1, &usr1, 0), block, 128)) \
    X(in_eventfd, read(event, &(uint64_t){0}, 8)) \
    X(in_semop, semop(sems, &(struct sembuf){0, -1, 0}, 1)) \
    X(in_msgrcv, msgrcv(messages, &(long[2]){0}, 8, 0, 0)) \
    X(in_receive, mq_receive(queue, (char[8]){0}, 8, NULL)) \
    X(in_file_lock, lock_file()) \
    X(raw_read, raw(SYS_read, pipes[3][0], (long)&byte, 1, 0)) \
    X(raw_nanosleep, raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&(struct timespec){1, 200 * MS}, 0)) \
    X(raw_futex, raw(SYS_futex, (long)&raw_word, FUTEX_WAIT_PRIVATE, 0, 0)) \
    X(raw_poll, raw(SYS_ppoll, (long)&(struct pollfd[]){readable(pipes[2][0])}, 1, 0, 0))

struct waiting {
    const char *name;
    void (*run)(void);
    int64_t ns, all_ns;
    pthread_t thread;
};

#define FUNCTION(NAME, CALL) \
    NOINLINE static void NAME(void) { \
        (void)!(CALL, 0); \
        asm volatile(""); \
    }
EACH(FUNCTION)

#define ENTRY(NAME, CALL) {#NAME, NAME},
static struct waiting waiting[] = {EACH(ENTRY)};
enum { WAITING = sizeof waiting / sizeof *waiting, COMPUTING = sizeof computing / sizeof *computing };

NOINLINE static void around_a_wait(void) { compute(15 * MS); }

static int started;

static void *waits(void *argument) {
    struct waiting *w = argument;
    int64_t begin = wall_ns();
    around_a_wait();
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    int64_t before = wall_ns();
    w->run();
    w->ns = wall_ns() - before;
    around_a_wait();
    w->all_ns = wall_ns() - begin;
    return NULL;
}

static void *sleeps(void *unused) {
    nanosleep(&(struct timespec){1, 400 * MS}, NULL);
    return unused;
}

static void prepare(void) {
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    for (int i = 0; i < 8; i++) if (pipe(pipes[i])) abort();
    if (pipe2(full, O_NONBLOCK)) abort();
    while (write(full[1], block, sizeof block) > 0) {}
    fcntl(full[1], F_SETFL, 0);
    for (int i = 0; i < 2; i++) if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i])) abort();
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams)) abort();
    while (send(datagrams[0], block, 1000, MSG_DONTWAIT) > 0) {}
    event = eventfd(0, 0);
    sems = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    messages = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    char name[64];
    snprintf(name, sizeof name, "/stackbeat-shares-%d", getpid());
    queue = mq_open(name, O_CREAT | O_RDWR, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8});
    mq_unlink(name);
    // Locked through another open file than the one that waits.
    int holder = memfd_create("lock", 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", holder);
    file = open(name, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fcntl(holder, F_OFD_SETLK, &lock);
    pipes[7][0] = holder;
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_mutex_lock(&held);
    pthread_rwlock_wrlock(&write_held);
    pthread_rwlock_rdlock(&read_held);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    pthread_create(&sleeper, NULL, sleeps, NULL);
}

static void wake(uint32_t *futex) {
    *futex = 1;
    syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void end_waits(void) {
    is_over = 1;
    for (int i = 0; i < 4; i++) if (write(pipes[i][1], "", 1) != 1) abort();
    while (waiting[2].ns == 0) {
        if (read(full[0], block, 4096) < 0) usleep(1000);
    }
    for (int i = 0; i < 2; i++) send(pairs[i][1], "", 1, 0);
    while (recv(datagrams[1], block, 1000, MSG_DONTWAIT) > 0) {}
    pthread_mutex_unlock(&held);
    pthread_rwlock_unlock(&write_held);
    pthread_rwlock_unlock(&read_held);
    pthread_mutex_lock(&of_condition);
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&of_condition);
    sem_post(&semaphore);
    pthread_barrier_wait(&barrier);
    wake(&word);
    wake(&raw_word);
    kill(child, SIGKILL);
    for (int i = 0; i < WAITING; i++) {
        int by_signal = waiting[i].run == in_sigwait || waiting[i].run == in_signalfd;
        if (by_signal) pthread_kill(waiting[i].thread, SIGUSR1);
    }
    if (write(event, &(uint64_t){1}, 8) != 8) abort();
    semop(sems, &(struct sembuf){0, 1, 0}, 1);
    msgsnd(messages, &(long[2]){1}, 8, 0);
    mq_send(queue, "message", 8, 0);
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(pipes[7][0], F_OFD_SETLK, &none);
}

int main(void) {
    prepare();
    for (int i = 0; i < COMPUTING; i++) pthread_create(&computing[i].thread, NULL, computes, &computing[i]);
    for (int i = 0; i < WAITING; i++) pthread_create(&waiting[i].thread, NULL, waits, &waiting[i]);
    // On a busy machine some come late.
    while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < WAITING) usleep(10000);
    usleep(1500000);
    end_waits();
    for (int i = 0; i < WAITING; i++) {
        pthread_join(waiting[i].thread, NULL);
        printf("wait %s %ld %ld\n", waiting[i].name, (long)waiting[i].ns, (long)waiting[i].all_ns);
    }
    for (int i = 0; i < COMPUTING; i++) {
        struct computing *c = &computing[i];
        pthread_join(c->thread, NULL);
        for (struct part *part = c->parts; part->run; part++)
            printf("compute %s %ld %ld\n", part->name, (long)part->ns, (long)c->all_ns);
    }
    semctl(sems, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, NULL);
    puts("ready");
    return 0;
}
