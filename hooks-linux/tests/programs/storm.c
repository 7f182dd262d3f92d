/* Threads in every kind of call that a signal could interrupt or cut short, for a second.
 * Prints for each how often that happened; without a disturbance all are 0. */
#include "show.h"
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

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
};

int main(void) {
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
    int count = sizeof jobs / sizeof *jobs;
    for (int i = 0; i < count; i++) pthread_create(&jobs[i].thread, NULL, start, &jobs[i]);
    double begin = now();
    while (now() - begin < 1.5) work();
    stop = 1;
    usleep(50000);
    for (int i = 0; i < count; i++) {
        struct job *j = &jobs[i];
        printf("%s interrupted %ld cut %ld early %ld %s\n", j->name, j->interrupted, j->cut, j->early,
               j->rounds > 10 ? "often" : "seldom");
    }
    fflush(stdout);
    semctl(sems, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    _exit(0);
}
