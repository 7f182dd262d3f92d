// One thread in each kind of call that blocks, each below a function of its own, until standard input ends.
// Says its pid, the names of these functions, and `ready` once every thread is on its way.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t of_condition = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static int ends[2], pair[2];
static mqd_t queue, full;
static char lock_file[32];
static pid_t child;
static pthread_t sleeper;

#define LONG 1000000

#if defined(__x86_64__)
// A system call that no library sees.
static long raw(long number, long a, long b, long c, long d) {
    long result;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = 0;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
}
#endif

#define EACH(X) \
    X(in_read, read(ends[0], &(char){0}, 1)) \
    X(in_recv, recv(pair[0], &(char){0}, 1, 0)) \
    X(in_poll, poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, LONG)) \
    X(in_select, select(0, 0, 0, 0, &(struct timeval){LONG, 0})) \
    X(in_epoll, epoll_wait(epoll_create1(0), &(struct epoll_event){0}, 1, LONG)) \
    X(in_nanosleep, nanosleep(&(struct timespec){LONG, 0}, 0)) \
    X(in_mutex, pthread_mutex_lock(&held)) \
    X(in_rwlock, pthread_rwlock_wrlock(&rwlock)) \
    X(in_condition, (pthread_mutex_lock(&of_condition), pthread_cond_wait(&condition, &of_condition))) \
    X(in_semaphore, sem_wait(&semaphore)) \
    X(in_barrier, pthread_barrier_wait(&barrier)) \
    X(in_futex, syscall(SYS_futex, &(int){0}, 0, 0, 0, 0, 0)) \
    X(in_join, pthread_join(sleeper, 0)) \
    X(in_wait, waitpid(child, 0, 0)) \
    X(in_sigwait, sigwait(&usr1, &(int){0})) \
    X(in_signalfd, read(signalfd(-1, &usr1, 0), &(char[128]){0}, 128)) \
    X(in_eventfd, read(eventfd(0, 0), &(long){0}, 8)) \
    X(in_pause, pause()) \
    X(in_flock, flock(open(lock_file, O_RDWR), LOCK_EX)) \
    X(in_setlk, fcntl(open(lock_file, O_RDWR), F_OFD_SETLKW, &(struct flock){.l_type = F_WRLCK})) \
    X(in_receive, mq_receive(queue, (char[8]){0}, 8, 0)) \
    X(in_send, mq_send(full, (char[8]){0}, 8, 0)) \
    RAW(X)

#if defined(__x86_64__)
#define RAW(X) \
    X(raw_read, raw(SYS_read, ends[0], (long)&(char){0}, 1, 0)) \
    X(raw_nanosleep, raw(SYS_nanosleep, (long)&(struct timespec){LONG, 0}, 0, 0, 0)) \
    X(raw_setlk, raw(SYS_fcntl, open(lock_file, O_RDWR), F_OFD_SETLKW, (long)&(struct flock){.l_type = F_WRLCK}, 0)) \
    X(raw_futex, raw(SYS_futex, (long)&(int){0}, 0, 0, 0)) \
    X(raw_poll, raw(SYS_poll, 0, 0, -1, 0)) \
    X(raw_sigwait, raw(SYS_rt_sigtimedwait, (long)&usr1, 0, 0, 8)) \
    X(raw_receive, raw(SYS_mq_timedreceive, queue, (long)&(char[8]){0}, 8, 0))
#else
#define RAW(X)
#endif

#define FUNCTION(NAME, CALL) \
    __attribute__((noinline)) static void *NAME(void *unused) { \
        sigset_t usr1; \
        sigemptyset(&usr1); \
        sigaddset(&usr1, SIGUSR1); \
        for (;;) { \
            if ((long)(CALL) == 0x5eed) return unused; \
            asm volatile(""); \
        } \
    }
EACH(FUNCTION)

__attribute__((noinline)) static void *sleeps(void *unused) {
    sleep(LONG);
    return unused;
}

// A page that nobody provides; 0 where the kernel does not have such pages.
static volatile char *missing_page(void) {
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return 0;
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {{(long)page, 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
    return ioctl(faults, UFFDIO_REGISTER, &range) ? 0 : page;
}

__attribute__((noinline)) static void *raw_page_fault(void *page) {
    return *(volatile char *)page ? page : 0;
}

__attribute__((noinline)) static void in_getchar(void) {
    while (getchar() != EOF) {}
}

int main(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, 0, 1000);
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
    char name[64];
    int file = memfd_create("lock", 0);
    snprintf(lock_file, sizeof lock_file, "/proc/self/fd/%d", file);
    flock(file, LOCK_EX);
    if (fcntl(file, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK})) return 1;
    snprintf(name, sizeof name, "/stackbeat-waits-%d", getpid());
    queue = mq_open(name, O_CREAT | O_RDWR, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8});
    mq_unlink(name);
    full = mq_open(name, O_CREAT | O_RDWR, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8});
    mq_unlink(name);
    mq_send(full, name, 8, 0);
    pthread_mutex_lock(&held);
    pthread_rwlock_rdlock(&rwlock);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    printf("pid %d\n", getpid());
    pthread_t thread;
    pthread_create(&sleeper, 0, sleeps, 0);
#define START(NAME, CALL) pthread_create(&thread, 0, NAME, 0); puts(#NAME);
    EACH(START)
    void *page = (void *)missing_page();
    if (page) {
        pthread_create(&thread, 0, raw_page_fault, page);
        puts("raw_page_fault");
    }
    puts("in_getchar\nready");
    fflush(stdout);
    in_getchar();
    kill(child, SIGKILL);
    _exit(0);
}
