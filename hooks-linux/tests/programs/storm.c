/* Threads in every kind of call that a signal could interrupt or cut short, for a second and longer.
 * Prints for each how often that happened; without a disturbance all are 0. */
#include "show.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static volatile int stop;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static void work(void) {
    volatile int x = 0;
    for (int i = 0; i < 20000; i++) x += i;
}

struct job {
    const char *name;
    void (*run)(struct job *);
    long rounds, interrupted, cut, early;
    pthread_t thread;
};

#define TIMED(name, seconds, call)                                                                 \
    static void name(struct job *j) {                                                              \
        while (!stop) {                                                                            \
            double begin = now();                                                                  \
            errno = 0;                                                                             \
            long r = (call);                                                                       \
            if (r == -1 && errno == EINTR) j->interrupted++;                                       \
            if (now() - begin < (seconds) * 0.98) j->early++;                                      \
            j->rounds++;                                                                           \
            work();                                                                                \
        }                                                                                          \
    }

static const struct timespec ms5 = {0, 5000000};
static sem_t never;
static uint32_t word;
static int sems, queue, epoll_fd, silent[2];

TIMED(in_poll, 0.005, poll(NULL, 0, 5))
TIMED(in_ppoll, 0.005, ppoll(NULL, 0, &ms5, NULL))
TIMED(in_select, 0.005, ({ struct timeval t = {0, 5000}; select(0, NULL, NULL, NULL, &t); }))
TIMED(in_pselect, 0.005, pselect(0, NULL, NULL, NULL, &ms5, NULL))
TIMED(in_epoll, 0.005, ({ struct epoll_event e; epoll_wait(epoll_fd, &e, 1, 5); }))
TIMED(in_nanosleep, 0.005, nanosleep(&ms5, NULL))
TIMED(in_clock_nanosleep, 0.005, -!!clock_nanosleep(CLOCK_MONOTONIC, 0, &ms5, NULL))
TIMED(in_usleep, 0.005, usleep(5000))
TIMED(in_sem, 0.004, ({ struct timespec t = in_ms(CLOCK_REALTIME, 5); sem_timedwait(&never, &t); }))
TIMED(in_futex, 0.005, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &ms5, NULL, 0))
TIMED(in_syscall_poll, 0.005, syscall(SYS_ppoll, NULL, 0, &(struct timespec){0, 5000000}, NULL, 8))
TIMED(in_semop, 0.005, semtimedop(sems, &(struct sembuf){0, -1, 0}, 1, &ms5))
TIMED(in_sigtimedwait, 0.005, ({ sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); sigtimedwait(&s, NULL, &ms5); }))
TIMED(in_recv_timeout, 0.004, ({ char c; recv(silent[0], &c, 1, 0); }))

static aio_context_t aio;
static mqd_t mails;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t nobody_signals = PTHREAD_COND_INITIALIZER;
static int wait_for_condition(void) {
    struct timespec t = in_ms(CLOCK_REALTIME, 5);
    pthread_mutex_lock(&mutex);
    int r = pthread_cond_timedwait(&nobody_signals, &mutex, &t);
    pthread_mutex_unlock(&mutex);
    return -(r == EINTR);
}
TIMED(in_epoll_pwait, 0.005, ({ struct epoll_event e; epoll_pwait(epoll_fd, &e, 1, 5, NULL); }))
TIMED(in_io_getevents, 0.005, ({ struct io_event e; syscall(SYS_io_getevents, aio, 1L, 1L, &e, &ms5); }))
TIMED(in_mq_receive, 0.004, ({ char m[8]; struct timespec t = in_ms(CLOCK_REALTIME, 5); mq_timedreceive(mails, m, 8, NULL, &t); }))
TIMED(in_recvmsg_timeout, 0.004, ({ char c; struct iovec v = {&c, 1}; recvmsg(silent[0], &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, 0); }))
TIMED(in_readv_timeout, 0.004, ({ char c; struct iovec v = {&c, 1}; readv(silent[0], &v, 1); }))
TIMED(in_condition, 0.004, wait_for_condition())
TIMED(in_sleep_until, 0.004, ({ struct timespec t = in_ms(CLOCK_MONOTONIC, 5); -!!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL); }))

static int pipe_fds[2], sockets[2], small[2];
enum { LARGE = 300000 };
static char data[LARGE], sink[LARGE];

#define COUNTED(name, wanted, call)                                                                \
    static void name(struct job *j) {                                                              \
        while (!stop) {                                                                            \
            errno = 0;                                                                             \
            long r = (call);                                                                       \
            if (stop) break;                                                                       \
            if (r == -1 && errno == EINTR) j->interrupted++;                                       \
            else if (r != (wanted)) j->cut++;                                                      \
            j->rounds++;                                                                           \
        }                                                                                          \
    }
COUNTED(in_write, LARGE, write(pipe_fds[1], data, LARGE))
COUNTED(in_send, LARGE, send(sockets[1], data, LARGE, 0))
COUNTED(in_recv_all, 100000, recv(sockets[0], sink, 100000, MSG_WAITALL))
COUNTED(in_read_small, 1, ({ char c; read(small[0], &c, 1); }))
COUNTED(in_write_small, 1, ({ usleep(300); write(small[1], "x", 1); }))
static struct { long kind; char text[8]; } message = {1, "text"};
COUNTED(in_msgrcv, 8, ({ struct { long kind; char text[8]; } m; msgrcv(queue, &m, 8, 0, 0); }))
COUNTED(in_msgsnd, 0, ({ usleep(300); msgsnd(queue, &message, 8, 0); }))
static int other_pipe[2], other_sockets[2], third[2], event, posted_sems, locked, locked_too, file, zeros;
static sem_t posted;
static sigset_t usr1, real_time;
static pthread_t in_sigwaitinfo_thread, in_signalfd_thread;
static int signals;
static struct iovec two[2] = {{data, LARGE / 2}, {data, LARGE / 2}};
COUNTED(in_writev, LARGE, writev(other_pipe[1], two, 2))
COUNTED(in_sendmsg, LARGE, sendmsg(other_sockets[1], &(struct msghdr){.msg_iov = two, .msg_iovlen = 2}, 0))
COUNTED(in_sendfile, LARGE, ({ off_t from = 0; sendfile(third[1], file, &from, LARGE); }))
COUNTED(in_zeros, LARGE, ({ static char room[LARGE]; read(zeros, room, LARGE); }))
COUNTED(in_getrandom, 65536, ({ static char room[65536]; getrandom(room, sizeof room, 0); }))
COUNTED(in_fallocate, 0, ({ int r = fallocate(locked_too, 0, 0, 1 << 20); ftruncate(locked_too, 0) ? 1 : r; }))
COUNTED(in_sem_wait, 0, sem_wait(&posted))
COUNTED(in_semop_wait, 0, semop(posted_sems, &(struct sembuf){0, -1, 0}, 1))
COUNTED(in_eventfd, 8, ({ uint64_t n; read(event, &n, 8); }))
COUNTED(in_sigwaitinfo, SIGUSR1, (in_sigwaitinfo_thread = pthread_self(), sigwaitinfo(&usr1, NULL)))
COUNTED(in_signalfd, sizeof(struct signalfd_siginfo), ({ struct signalfd_siginfo i; in_signalfd_thread = pthread_self(); read(signals, &i, sizeof i); }))
COUNTED(in_flock, 0, ({ int r = flock(locked, LOCK_EX); usleep(500); flock(locked, LOCK_UN); r; }))
COUNTED(in_flock_too, 0, ({ int r = flock(locked_too, LOCK_EX); usleep(500); flock(locked_too, LOCK_UN); r; }))
static int lock_range(int fd, int kind) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, F_OFD_SETLKW, &lock);
}
COUNTED(in_fcntl, 0, ({ int r = lock_range(locked, F_WRLCK); usleep(500); lock_range(locked, F_UNLCK); r; }))
COUNTED(in_fcntl_too, 0, ({ int r = lock_range(locked_too, F_WRLCK); usleep(500); lock_range(locked_too, F_UNLCK); r; }))
static void in_wait(struct job *j) {
    while (!stop) {
        pid_t child = fork();
        if (child == 0) {
            usleep(2000);
            _exit(0);
        }
        if (waitpid(child, NULL, 0) != child) {
            j->interrupted++;
            while (waitpid(child, NULL, 0) != child && errno == EINTR) {}
        }
        j->rounds++;
    }
}
/* Ends the waits of others. */
static void in_posts(struct job *j) {
    while (!stop) {
        usleep(300);
        sem_post(&posted);
        semop(posted_sems, &(struct sembuf){0, 1, 0}, 1);
        if (write(event, &(uint64_t){1}, 8) != 8) j->cut++;
        if (in_sigwaitinfo_thread) pthread_kill(in_sigwaitinfo_thread, SIGUSR1);
        if (in_signalfd_thread) pthread_kill(in_signalfd_thread, SIGRTMIN);
        j->rounds++;
    }
}
#define DRAIN(name, call)                                                                          \
    static void name(struct job *j) {                                                              \
        static char piece[65536];                                                                  \
        while (!stop) {                                                                            \
            long r = (call);                                                                       \
            if (r == -1 && errno == EINTR) j->interrupted++;                                       \
            j->rounds++;                                                                           \
        }                                                                                          \
    }
DRAIN(in_other_read, readv(other_pipe[0], &(struct iovec){piece, sizeof piece}, 1))
DRAIN(in_third_read, read(third[0], piece, sizeof piece))
DRAIN(in_recvmsg, recvmsg(other_sockets[0], &(struct msghdr){.msg_iov = &(struct iovec){piece, sizeof piece}, .msg_iovlen = 1}, 0))

/* Reads of a pipe return what there is: only EINTR would be a disturbance. */
static void in_read(struct job *j) {
    static char piece[8192];
    while (!stop) {
        long r = read(pipe_fds[0], piece, sizeof piece);
        if (r == -1 && errno == EINTR) j->interrupted++;
        j->rounds++;
        work();
    }
}

static int listener;
static struct sockaddr_in address;
static void in_accept(struct job *j) {
    while (!stop) {
        int s = accept(listener, NULL, NULL);
        if (s == -1 && errno == EINTR) j->interrupted++;
        char c;
        if (s >= 0) {
            if (read(s, &c, 1) == -1 && errno == EINTR) j->interrupted++;
            close(s);
        }
        j->rounds++;
    }
}
static void in_connect(struct job *j) {
    while (!stop) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&address, sizeof address) == -1) j->interrupted++;
        usleep(200);
        close(s);
        j->rounds++;
    }
}

static void *start(void *job) {
    struct job *j = job;
    j->run(j);
    return NULL;
}

#define JOB(name) {#name, name, 0, 0, 0, 0, 0}
static struct job jobs[] = {
    JOB(in_poll), JOB(in_ppoll), JOB(in_select), JOB(in_pselect), JOB(in_epoll), JOB(in_nanosleep),
    JOB(in_clock_nanosleep), JOB(in_usleep), JOB(in_sem), JOB(in_futex), JOB(in_syscall_poll),
    JOB(in_semop), JOB(in_sigtimedwait), JOB(in_recv_timeout), JOB(in_write), JOB(in_read),
    JOB(in_send), JOB(in_recv_all), JOB(in_write_small), JOB(in_read_small), JOB(in_msgsnd),
    JOB(in_msgrcv), JOB(in_accept), JOB(in_connect),
    JOB(in_epoll_pwait), JOB(in_io_getevents), JOB(in_mq_receive), JOB(in_recvmsg_timeout),
    JOB(in_readv_timeout), JOB(in_condition), JOB(in_sleep_until), JOB(in_writev), JOB(in_other_read),
    JOB(in_sendmsg), JOB(in_recvmsg), JOB(in_sendfile), JOB(in_third_read), JOB(in_zeros),
    JOB(in_getrandom), JOB(in_fallocate), JOB(in_sem_wait), JOB(in_semop_wait), JOB(in_eventfd),
    JOB(in_sigwaitinfo), JOB(in_signalfd), JOB(in_flock), JOB(in_flock_too), JOB(in_fcntl),
    JOB(in_fcntl_too), JOB(in_wait), JOB(in_posts),
};
enum { JOBS = sizeof jobs / sizeof *jobs };

static int all_came_often(void) {
    for (int i = 0; i < JOBS; i++) if (jobs[i].rounds <= 10) return 0;
    return 1;
}

int main(void) {
#ifdef BLOCKS_FIRST
    /* Its threads inherit that, and are interrupted by the second signal. */
    sigset_t first;
    sigemptyset(&first);
    sigaddset(&first, SIGURG);
    pthread_sigmask(SIG_BLOCK, &first, NULL);
#endif
    sem_init(&never, 0, 0);
    sems = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    epoll_fd = epoll_create1(0);
    if (pipe(pipe_fds) || pipe(small) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, silent))
        return 1;
    struct timeval t = {0, 5000};
    setsockopt(silent[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    bind(listener, (void *)&address, bytes);
    getsockname(listener, (void *)&address, &bytes);
    listen(listener, 16);
    if (pipe(other_pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, third) ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, other_sockets))
        return 1;
    syscall(SYS_io_setup, 8, &aio);
    char name[64];
    snprintf(name, sizeof name, "/stackbeat-storm-%d", getpid());
    mails = mq_open(name, O_CREAT | O_RDWR, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8});
    mq_unlink(name);
    zeros = open("/dev/zero", O_RDONLY);
    file = memfd_create("content", 0);
    if (ftruncate(file, LARGE)) return 1;
    int both = memfd_create("lock", 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", both);
    locked_too = open(name, O_RDWR);
    locked = open(name, O_RDWR);
    sem_init(&posted, 0, 0);
    posted_sems = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
    event = eventfd(0, 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigemptyset(&real_time);
    sigaddset(&real_time, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    pthread_sigmask(SIG_BLOCK, &real_time, NULL);
    signals = signalfd(-1, &real_time, 0);
    for (int i = 0; i < JOBS; i++) pthread_create(&jobs[i].thread, NULL, start, &jobs[i]);
    double begin = now();
    while (now() - begin < 1.5 || (!all_came_often() && now() - begin < 60)) work();
    stop = 1;
    usleep(50000);
    for (int i = 0; i < JOBS; i++) {
        struct job *j = &jobs[i];
        printf("%s interrupted %ld cut %ld early %ld %s\n", j->name, j->interrupted, j->cut, j->early,
               j->rounds > 10 ? "often" : "seldom");
    }
    fflush(stdout);
    semctl(sems, 0, IPC_RMID);
    semctl(posted_sems, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    _exit(0);
}
