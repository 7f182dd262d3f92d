// kinds MS ROUNDS THREADS [KIND …]: each thread waits ROUNDS times in each kind of call, MS milliseconds and longer by
// construction: either the call has a timeout, or another thread sees the waiting one asleep, lets that time pass, and ends
// the wait. Threads wait at the same time, so that they wake together.
//
// Prints for each kind its name, the number of waits, and their sum in ns as CLOCK_MONOTONIC has it. A kind that this
// machine does not have prints "KIND missing". Each kind waits in a function of its own, w_KIND.
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netdb.h>
#include <netinet/in.h>
#include <nss.h>
#include <poll.h>
#include <pthread.h>
#include <resolv.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static long ms;
static int rounds, threads;

// What one waiting thread and the one that ends its waits share.
struct pair {
    int number, tid, round, failed;
    long sum_ns;
    int a[2];
    int file, other, id, epoll, pid;
    mqd_t queue;
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_cond_t cond;
    pthread_barrier_t barrier;
    pthread_once_t once;
    sem_t sem, go, done;
    mtx_t mtx;
    cnd_t cnd;
    pthread_t waiter, child;
    FILE *stream;
    atomic_int word, inside;
    char name[64];
    struct sockaddr_un address;
    struct aiocb request;
};

static __thread struct pair *mine;

static struct timespec after(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static struct timespec length(void) { return (struct timespec){ms / 1000, ms % 1000 * 1000000}; }

static struct timeval length_us(void) { return (struct timeval){ms / 1000, ms % 1000 * 1000}; }

static void let_pass(void) {
    struct timespec t = length();
    while (nanosleep(&t, &t) != 0) {
    }
}

static int is_asleep(int tid) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    char *end = strrchr(text, ')');
    return end != NULL && end[2] == 'S';
}

// How often the thread has gone to sleep.
static long switches_of(int tid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    int file = open(path, O_RDONLY);
    ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    char *found = strstr(text, "\nvoluntary_ctxt_switches:");
    return found != NULL ? atol(found + strlen("\nvoluntary_ctxt_switches:")) : -1;
}

static void nothing(struct pair *p) { (void)p; }
static int nothing_to_set_up(struct pair *p) { return (void)p, 0; }

#define WAITS(name) __attribute__((noinline)) static void w_##name(struct pair *p)
#define SET_UP(name) static int s_##name(struct pair *p)
#define BEGIN(name) static void b_##name(struct pair *p)
#define END(name) static void e_##name(struct pair *p)
#define FINISH(name) static void f_##name(struct pair *p)
// The call is not the last instruction: its caller stays on the stack.
#define CALL(...) do { long r_ = (long)(__VA_ARGS__); __asm__ volatile("" ::"r"(r_)); (void)p; } while (0)

// Sleeps.
WAITS(nanosleep) { struct timespec t = length(); CALL(nanosleep(&t, NULL)); }
WAITS(clock_nanosleep) { struct timespec t = length(); CALL(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL)); }
WAITS(sleep_until) { struct timespec t = after(CLOCK_MONOTONIC); CALL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)); }
WAITS(usleep) { CALL(usleep(ms * 1000)); }
WAITS(sleep) { CALL(sleep((ms + 999) / 1000)); }
WAITS(thrd_sleep) { struct timespec t = length(); CALL(thrd_sleep(&t, NULL)); }
WAITS(raw_nanosleep) { struct timespec t = length(); CALL(syscall(SYS_nanosleep, &t, NULL)); }

// Waits for events, until a timeout.
WAITS(poll_timeout) { CALL(poll(NULL, 0, ms)); }
WAITS(ppoll_timeout) { struct timespec t = length(); CALL(ppoll(NULL, 0, &t, NULL)); }
WAITS(select_timeout) { struct timeval t = length_us(); CALL(select(0, NULL, NULL, NULL, &t)); }
WAITS(pselect_timeout) { struct timespec t = length(); CALL(pselect(0, NULL, NULL, NULL, &t, NULL)); }
SET_UP(epoll) { return (p->epoll = epoll_create1(0)) < 0; }
WAITS(epoll_timeout) { struct epoll_event e; CALL(epoll_wait(p->epoll, &e, 1, ms)); }
WAITS(epoll_pwait_timeout) { struct epoll_event e; CALL(epoll_pwait(p->epoll, &e, 1, ms, NULL)); }
WAITS(epoll_pwait2_timeout) { struct epoll_event e; struct timespec t = length(); CALL(epoll_pwait2(p->epoll, &e, 1, &t, NULL)); }
WAITS(raw_epoll) { struct epoll_event e; CALL(syscall(SYS_epoll_pwait, p->epoll, &e, 1, (int)ms, NULL, 8L)); }

// Locks that are never let go of, until a timeout.
SET_UP(held) { return pthread_mutex_lock(&p->mutex) || pthread_rwlock_wrlock(&p->rwlock); }
WAITS(mutex_timedlock) { struct timespec t = after(CLOCK_REALTIME); CALL(pthread_mutex_timedlock(&p->mutex, &t)); }
WAITS(mutex_clocklock) { struct timespec t = after(CLOCK_MONOTONIC); CALL(pthread_mutex_clocklock(&p->mutex, CLOCK_MONOTONIC, &t)); }
WAITS(rwlock_timedrdlock) { struct timespec t = after(CLOCK_REALTIME); CALL(pthread_rwlock_timedrdlock(&p->rwlock, &t)); }
WAITS(rwlock_timedwrlock) { struct timespec t = after(CLOCK_REALTIME); CALL(pthread_rwlock_timedwrlock(&p->rwlock, &t)); }
WAITS(rwlock_clockrdlock) { struct timespec t = after(CLOCK_MONOTONIC); CALL(pthread_rwlock_clockrdlock(&p->rwlock, CLOCK_MONOTONIC, &t)); }
WAITS(rwlock_clockwrlock) { struct timespec t = after(CLOCK_MONOTONIC); CALL(pthread_rwlock_clockwrlock(&p->rwlock, CLOCK_MONOTONIC, &t)); }
WAITS(cond_timedwait) {
    struct timespec t = after(CLOCK_REALTIME);
    pthread_mutex_lock(&p->mutex);
    CALL(pthread_cond_timedwait(&p->cond, &p->mutex, &t));
    pthread_mutex_unlock(&p->mutex);
}
WAITS(cond_clockwait) {
    struct timespec t = after(CLOCK_MONOTONIC);
    pthread_mutex_lock(&p->mutex);
    CALL(pthread_cond_clockwait(&p->cond, &p->mutex, CLOCK_MONOTONIC, &t));
    pthread_mutex_unlock(&p->mutex);
}
WAITS(cnd_timedwait) {
    struct timespec t = after(CLOCK_REALTIME);
    mtx_lock(&p->mtx);
    CALL(cnd_timedwait(&p->cnd, &p->mtx, &t));
    mtx_unlock(&p->mtx);
}
WAITS(sem_timedwait) { struct timespec t = after(CLOCK_REALTIME); CALL(sem_timedwait(&p->sem, &t)); }
WAITS(sem_clockwait) { struct timespec t = after(CLOCK_MONOTONIC); CALL(sem_clockwait(&p->sem, CLOCK_MONOTONIC, &t)); }
WAITS(futex_timeout) { struct timespec t = length(); CALL(syscall(SYS_futex, &p->word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0)); }
static void *lasts(void *p) { return sem_wait(&((struct pair *)p)->sem), p; }
SET_UP(child_thread) { return pthread_create(&p->child, NULL, lasts, p); }
WAITS(timedjoin) { struct timespec t = after(CLOCK_REALTIME); CALL(pthread_timedjoin_np(p->child, NULL, &t)); }
WAITS(clockjoin) { struct timespec t = after(CLOCK_MONOTONIC); CALL(pthread_clockjoin_np(p->child, NULL, CLOCK_MONOTONIC, &t)); }

// Signals and queues, until a timeout.
static sigset_t usr1(void) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); return set; }
WAITS(sigtimedwait) { sigset_t set = usr1(); struct timespec t = length(); CALL(sigtimedwait(&set, NULL, &t)); }
SET_UP(queue) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    snprintf(p->name, sizeof p->name, "/kinds-%d-%d", getpid(), p->number);
    p->queue = mq_open(p->name, O_RDWR | O_CREAT, 0600, &attributes);
    mq_unlink(p->name);
    return p->queue == (mqd_t)-1;
}
SET_UP(full_queue) { return s_queue(p) || mq_send(p->queue, "x", 1, 0); }
WAITS(mq_timedreceive) { char b[8]; struct timespec t = after(CLOCK_REALTIME); CALL(mq_timedreceive(p->queue, b, 8, NULL, &t)); }
WAITS(mq_timedsend) { struct timespec t = after(CLOCK_REALTIME); CALL(mq_timedsend(p->queue, "y", 1, 0, &t)); }
SET_UP(semaphores) { return (p->id = semget(IPC_PRIVATE, 1, 0600)) < 0; }
static struct sembuf minus = {0, -1, 0}, plus = {0, 1, 0};
WAITS(semtimedop) { struct timespec t = length(); CALL(semtimedop(p->id, &minus, 1, &t)); }
static void remove_semaphores(struct pair *p) { semctl(p->id, 0, IPC_RMID); }
SET_UP(socket) { return socketpair(AF_UNIX, SOCK_STREAM, 0, p->a); }
SET_UP(timeout_socket) {
    struct timeval t = length_us();
    return s_socket(p) || setsockopt(p->a[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
}
WAITS(recv_timeout) { char c; CALL(recv(p->a[0], &c, 1, 0)); }
SET_UP(timer) { return (p->file = timerfd_create(CLOCK_MONOTONIC, 0)) < 0; }
WAITS(timerfd) {
    long n;
    struct itimerspec t = {.it_value = length()};
    timerfd_settime(p->file, 0, &t, NULL);
    CALL(read(p->file, &n, 8));
}

// Pipes, sockets and other descriptors.
SET_UP(pipe) { return pipe(p->a); }
WAITS(read) { char c; CALL(read(p->a[0], &c, 1)); }
WAITS(readv) { char c; struct iovec v = {&c, 1}; CALL(readv(p->a[0], &v, 1)); }
WAITS(raw_read) { char c; CALL(syscall(SYS_read, p->a[0], &c, 1L)); }
WAITS(poll) { char c; struct pollfd f = {p->a[0], POLLIN, 0}; CALL(poll(&f, 1, -1)); CALL(read(p->a[0], &c, 1)); }
WAITS(raw_poll) { char c; struct pollfd f = {p->a[0], POLLIN, 0}; CALL(syscall(SYS_poll, &f, 1L, -1L)); CALL(read(p->a[0], &c, 1)); }
WAITS(select) { char c; fd_set s; FD_ZERO(&s); FD_SET(p->a[0], &s); CALL(select(p->a[0] + 1, &s, NULL, NULL, NULL)); CALL(read(p->a[0], &c, 1)); }
SET_UP(epoll_pipe) {
    struct epoll_event e = {.events = EPOLLIN};
    return pipe(p->a) || s_epoll(p) || epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->a[0], &e);
}
WAITS(epoll_wait) { char c; struct epoll_event e; CALL(epoll_wait(p->epoll, &e, 1, -1)); CALL(read(p->a[0], &c, 1)); }
SET_UP(two_pipes) { int b[2]; if (pipe(p->a) || pipe(b)) return 1; p->file = b[0], p->other = b[1]; return 0; }
WAITS(splice) { char c; CALL(splice(p->a[0], NULL, p->other, NULL, 1, 0)); CALL(read(p->file, &c, 1)); }
WAITS(tee) { char c; CALL(tee(p->a[0], p->other, 1, 0)); CALL(read(p->file, &c, 1)); CALL(read(p->a[0], &c, 1)); }
WAITS(recv) { char c; CALL(recv(p->a[0], &c, 1, 0)); }
WAITS(recvfrom) { char c; CALL(recvfrom(p->a[0], &c, 1, 0, NULL, NULL)); }
WAITS(recvmsg) { char c; struct iovec v = {&c, 1}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; CALL(recvmsg(p->a[0], &m, 0)); }
WAITS(recvmmsg) { char c; struct iovec v = {&c, 1}; struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}; CALL(recvmmsg(p->a[0], &m, 1, 0, NULL)); }
END(write) { CALL(write(p->a[1], "x", 1)); }
static char page[65536];
SET_UP(full_pipe) { if (pipe(p->a) || fcntl(p->a[1], F_SETPIPE_SZ, 4096) < 0) return 1; return write(p->a[1], page, 4096) != 4096; }
WAITS(write) { CALL(write(p->a[1], page, 4096)); }
WAITS(writev) { struct iovec v = {page, 4096}; CALL(writev(p->a[1], &v, 1)); }
END(drain) { CALL(read(p->a[0], page, 4096)); }
SET_UP(datagrams) { return socketpair(AF_UNIX, SOCK_DGRAM, 0, p->a); }
BEGIN(fill) {
    while (send(p->a[1], "x", 1, MSG_DONTWAIT) == 1) {
    }
}
WAITS(send) { CALL(send(p->a[1], "x", 1, 0)); }
WAITS(sendto) { CALL(sendto(p->a[1], "x", 1, 0, NULL, 0)); }
WAITS(sendmsg) { struct iovec v = {"x", 1}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; CALL(sendmsg(p->a[1], &m, 0)); }
END(empty) {
    char c;
    while (recv(p->a[0], &c, 1, MSG_DONTWAIT) == 1) {
    }
}
SET_UP(listening) {
    p->address.sun_family = AF_UNIX;
    snprintf(p->address.sun_path + 1, 60, "kinds-%d-%d", getpid(), p->number);
    p->file = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(p->file, (void *)&p->address, sizeof p->address) || listen(p->file, 0);
}
static void close_listener(struct pair *p) { close(p->file); }
static int connected(struct pair *p) {
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(connect(file, (void *)&p->address, sizeof p->address));
    return file;
}
WAITS(accept) { CALL(p->other = accept(p->file, NULL, NULL)); close(p->other); }
WAITS(accept4) { CALL(p->other = accept4(p->file, NULL, NULL, SOCK_CLOEXEC)); close(p->other); }
END(connect) { close(connected(p)); }
SET_UP(full_backlog) { return s_listening(p) || connected(p) < 0; }
WAITS(connect) { int file = socket(AF_UNIX, SOCK_STREAM, 0); CALL(connect(file, (void *)&p->address, sizeof p->address)); }
END(accept) { CALL(accept(p->file, NULL, NULL)); }
SET_UP(event) { p->a[0] = p->a[1] = eventfd(0, 0); return p->a[0] < 0; }
WAITS(eventfd) { long n; CALL(read(p->a[0], &n, 8)); }
END(eventfd) { long one = 1; CALL(write(p->a[1], &one, 8)); }
WAITS(signalfd) { struct signalfd_siginfo i; sigset_t set = usr1(); int f = signalfd(-1, &set, 0); CALL(read(f, &i, sizeof i)); close(f); }
SET_UP(fifo) { snprintf(p->name, sizeof p->name, "/tmp/kinds-%d-%d", getpid(), p->number); return mkfifo(p->name, 0600); }
SET_UP(in_stream) { return pipe(p->a) || !(p->stream = fdopen(p->a[0], "r")); }
WAITS(fgets) { char line[9]; CALL(fgets(line, sizeof line, p->stream)); }
WAITS(getline) { char *line = NULL; size_t bytes = 0; CALL(getline(&line, &bytes, p->stream)); free(line); }
WAITS(getc) { CALL(getc(p->stream)); }
WAITS(getc_unlocked) { CALL(getc_unlocked(p->stream)); }
WAITS(fread) { char c; CALL(fread(&c, 1, 1, p->stream)); }
WAITS(fscanf) { char word[9]; CALL(fscanf(p->stream, "%8s", word)); }
END(line) { CALL(write(p->a[1], "x\n", 2)); }
// A thread that starts another before each of its waits.
static void *ends_at_once(void *unused) { return unused; }
WAITS(fgets_behind_calls) { pthread_t t; char line[9]; pthread_create(&t, NULL, ends_at_once, NULL); CALL(fgets(line, sizeof line, p->stream)); pthread_join(t, NULL); }
SET_UP(out_stream) { return s_full_pipe(p) || !(p->stream = fdopen(p->a[1], "w")); }
WAITS(fwrite) { CALL(fwrite(page, 1, 4096, p->stream) && fflush(p->stream)); }
WAITS(fprintf) { CALL(fprintf(p->stream, "%4096s", "") && fflush(p->stream)); }
WAITS(fputs_fclose) { FILE *f = fdopen(dup(p->a[1]), "w"); CALL(fprintf(f, "%4096s", "")); CALL(fclose(f)); }
WAITS(dprintf) { CALL(dprintf(p->a[1], "%4096s", "")); }
WAITS(fopen_fifo) { CALL(p->stream = fopen(p->name, "r")); fclose(p->stream); }
WAITS(freopen_fifo) { CALL(p->stream = freopen(p->name, "r", fopen("/dev/null", "r"))); fclose(p->stream); }
// A name server that says after a while that there is no such name.
SET_UP(resolver) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    p->file = socket(AF_INET, SOCK_DGRAM, 0);
    return __nss_configure_lookup("hosts", "dns") || bind(p->file, (void *)&a, sizeof a);
}
static void ask(struct pair *p) {
    socklen_t bytes = sizeof _res.nsaddr_list[0];
    res_init();
    _res.nscount = 1;
    _res.retrans = 60;
    getsockname(p->file, (void *)&_res.nsaddr_list[0], &bytes);
}
WAITS(getaddrinfo) { struct addrinfo *found, hints = {.ai_family = AF_INET}; ask(p); CALL(getaddrinfo("kinds.test.", NULL, &hints, &found)); }
WAITS(gethostbyname_r) { struct hostent e, *found; char room[999]; int error; ask(p); CALL(gethostbyname_r("kinds.test.", &e, room, sizeof room, &found, &error)); }
WAITS(getnameinfo) { char name[99]; struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001)}; ask(p); CALL(getnameinfo((void *)&a, sizeof a, name, sizeof name, NULL, 0, NI_NAMEREQD)); }
END(resolver) {
    unsigned char query[512];
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    ssize_t n = recvfrom(p->file, query, sizeof query, 0, (void *)&a, &bytes);
    // The waiter may have slept before it asked.
    let_pass();
    query[2] = 0x81, query[3] = 0x83;
    CALL(sendto(p->file, query, n, 0, (void *)&a, bytes));
}
WAITS(open_fifo) { CALL(p->file = open(p->name, O_RDONLY)); close(p->file); }
END(open_fifo) { p->other = open(p->name, O_WRONLY); close(p->other); }
static void remove_name(struct pair *p) { unlink(p->name); }
SET_UP(aio) { return pipe(p->a); }
// Begun in the other thread: on the way into the library it may wait for the other pairs.
BEGIN(aio) {
    p->request = (struct aiocb){.aio_fildes = p->a[0], .aio_buf = p->name, .aio_nbytes = 1};
    aio_read(&p->request);
}
WAITS(aio_suspend) { const struct aiocb *list[] = {&p->request}; CALL(aio_suspend(list, 1, NULL)); }
FINISH(aio) { aio_return(&p->request); }

// Files' locks.
SET_UP(two_files) {
    snprintf(p->name, sizeof p->name, "/tmp/kinds-%d-%d", getpid(), p->number);
    p->file = open(p->name, O_RDWR | O_CREAT, 0600);
    p->other = open(p->name, O_RDWR);
    unlink(p->name);
    return p->file < 0 || p->other < 0;
}
BEGIN(flock) { flock(p->other, LOCK_EX); }
WAITS(flock) { CALL(flock(p->file, LOCK_EX)); }
END(flock) { flock(p->other, LOCK_UN); }
FINISH(flock) { flock(p->file, LOCK_UN); }
static struct flock all(short type) { return (struct flock){.l_type = type}; }
BEGIN(ofd) { struct flock l = all(F_WRLCK); fcntl(p->other, F_OFD_SETLK, &l); }
WAITS(fcntl) { struct flock l = all(F_WRLCK); CALL(fcntl(p->file, F_SETLKW, &l)); }
WAITS(fcntl_ofd) { struct flock l = all(F_WRLCK); CALL(fcntl(p->file, F_OFD_SETLKW, &l)); }
WAITS(lockf) { CALL(lockf(p->file, F_LOCK, 0)); }
END(ofd) { struct flock l = all(F_UNLCK); fcntl(p->other, F_OFD_SETLK, &l); }
FINISH(ofd) { struct flock l = all(F_UNLCK); fcntl(p->file, F_OFD_SETLK, &l); }
FINISH(posix) { struct flock l = all(F_UNLCK); fcntl(p->file, F_SETLK, &l); }

// System V and POSIX queues, semaphores.
struct message { long type; char text[8]; };
SET_UP(messages) { return (p->id = msgget(IPC_PRIVATE, 0600)) < 0; }
SET_UP(full_messages) {
    struct message m = {1, ""};
    if (s_messages(p))
        return 1;
    while (msgsnd(p->id, &m, 8, IPC_NOWAIT) == 0) {
    }
    return 0;
}
static void remove_messages(struct pair *p) { msgctl(p->id, IPC_RMID, NULL); }
WAITS(msgrcv) { struct message m; CALL(msgrcv(p->id, &m, 8, 0, 0)); }
END(msgrcv) { struct message m = {1, ""}; msgsnd(p->id, &m, 8, 0); }
WAITS(msgsnd) { struct message m = {1, ""}; CALL(msgsnd(p->id, &m, 8, 0)); }
END(msgsnd) { struct message m; msgrcv(p->id, &m, 8, 0, 0); }
WAITS(semop) { CALL(semop(p->id, &minus, 1)); }
END(semop) { semop(p->id, &plus, 1); }
WAITS(mq_receive) { char b[8]; CALL(mq_receive(p->queue, b, 8, NULL)); }
END(mq_receive) { mq_send(p->queue, "x", 1, 0); }
WAITS(mq_send) { CALL(mq_send(p->queue, "x", 1, 0)); }
END(mq_send) { char b[8]; mq_receive(p->queue, b, 8, NULL); }

// Children. Each ends when the pipe is closed that it reads.
BEGIN(child) {
    char c;
    if (pipe(p->a))
        p->failed = 1;
    p->pid = fork();
    if (p->pid == 0) {
        close(p->a[1]);
        _exit(read(p->a[0], &c, 1) != 0);
    }
    close(p->a[0]);
}
WAITS(waitpid) { CALL(waitpid(p->pid, NULL, 0)); }
WAITS(wait4) { CALL(wait4(p->pid, NULL, 0, NULL)); }
WAITS(waitid) { siginfo_t i; CALL(waitid(P_PID, p->pid, &i, WEXITED)); }
WAITS(raw_wait4) { CALL(syscall(SYS_wait4, p->pid, NULL, 0, NULL)); }
END(child) { CALL(write(p->a[1], "x", 1)); close(p->a[1]); }

// Threads.
BEGIN(mutex) { pthread_mutex_lock(&p->mutex); }
WAITS(mutex_lock) { CALL(pthread_mutex_lock(&p->mutex)); }
END(mutex) { pthread_mutex_unlock(&p->mutex); }
BEGIN(mtx) { mtx_lock(&p->mtx); }
WAITS(mtx_lock) { CALL(mtx_lock(&p->mtx)); }
END(mtx) { mtx_unlock(&p->mtx); }
BEGIN(rwlock) { pthread_rwlock_wrlock(&p->rwlock); }
WAITS(rwlock_rdlock) { CALL(pthread_rwlock_rdlock(&p->rwlock)); }
WAITS(rwlock_wrlock) { CALL(pthread_rwlock_wrlock(&p->rwlock)); }
END(rwlock) { pthread_rwlock_unlock(&p->rwlock); }
WAITS(cond_wait) { pthread_mutex_lock(&p->mutex); CALL(pthread_cond_wait(&p->cond, &p->mutex)); pthread_mutex_unlock(&p->mutex); }
END(cond) { pthread_mutex_lock(&p->mutex); pthread_cond_signal(&p->cond); pthread_mutex_unlock(&p->mutex); }
WAITS(cnd_wait) { mtx_lock(&p->mtx); CALL(cnd_wait(&p->cnd, &p->mtx)); mtx_unlock(&p->mtx); }
END(cnd) { mtx_lock(&p->mtx); cnd_signal(&p->cnd); mtx_unlock(&p->mtx); }
WAITS(sem_wait) { CALL(sem_wait(&p->sem)); }
END(sem) { sem_post(&p->sem); }
WAITS(barrier_wait) { CALL(pthread_barrier_wait(&p->barrier)); }
END(barrier) { pthread_barrier_wait(&p->barrier); }
BEGIN(thread) { pthread_create(&p->child, NULL, lasts, p); }
WAITS(join) { CALL(pthread_join(p->child, NULL)); }
WAITS(futex) { CALL(syscall(SYS_futex, &p->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0)); }
END(futex) { syscall(SYS_futex, &p->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
static void takes_long(void) { sem_wait(&mine->sem); }
static void *does_it_once(void *p) { mine = p; pthread_once(&mine->once, takes_long); return p; }
BEGIN(once) {
    memset(&p->once, 0, sizeof p->once);
    pthread_create(&p->child, NULL, does_it_once, p);
    while (*(volatile int *)&p->once == 0)
        usleep(100);
}
WAITS(once) { CALL(pthread_once(&p->once, takes_long)); }
FINISH(once) { pthread_join(p->child, NULL); }

// Signals.
static void caught(int signal) { (void)signal; }
WAITS(sigwait) { sigset_t set = usr1(); int n; CALL(sigwait(&set, &n)); }
WAITS(sigwaitinfo) { sigset_t set = usr1(); CALL(sigwaitinfo(&set, NULL)); }
WAITS(sigsuspend) { sigset_t set; sigfillset(&set); sigdelset(&set, SIGUSR1); CALL(sigsuspend(&set)); }
// A wait inside another, which does not sleep.
static int null;
static void writes(int signal) { (void)signal; if (write(null, "x", 1) < 0) abort(); }
WAITS(pause) { CALL(pause()); }
WAITS(interrupted_poll) { CALL(poll(NULL, 0, -1)); }
END(signal) { pthread_kill(p->waiter, SIGUSR1); }
END(signal2) { pthread_kill(p->waiter, SIGUSR2); }
END(signal_that_writes) { pthread_kill(p->waiter, SIGWINCH); }

struct kind {
    const char *name;
    int (*set_up)(struct pair *);
    void (*begin)(struct pair *), (*wait)(struct pair *), (*end)(struct pair *), (*finish)(struct pair *), (*remove)(struct pair *);
};

#define KIND(set_up, name) {#name, set_up, NULL, w_##name, NULL, NULL, nothing}
#define WOKEN(set_up, begin, name, end, finish) {#name, set_up, begin, w_##name, end, finish, nothing}
#define NONE nothing_to_set_up

static const struct kind kinds[] = {
    KIND(NONE, nanosleep), KIND(NONE, clock_nanosleep), KIND(NONE, sleep_until), KIND(NONE, usleep), KIND(NONE, sleep),
    KIND(NONE, thrd_sleep), KIND(NONE, raw_nanosleep),
    KIND(NONE, poll_timeout), KIND(NONE, ppoll_timeout), KIND(NONE, select_timeout), KIND(NONE, pselect_timeout),
    KIND(s_epoll, epoll_timeout), KIND(s_epoll, epoll_pwait_timeout), KIND(s_epoll, epoll_pwait2_timeout), KIND(s_epoll, raw_epoll),
    KIND(s_held, mutex_timedlock), KIND(s_held, mutex_clocklock),
    KIND(s_held, rwlock_timedrdlock), KIND(s_held, rwlock_timedwrlock), KIND(s_held, rwlock_clockrdlock), KIND(s_held, rwlock_clockwrlock),
    KIND(NONE, cond_timedwait), KIND(NONE, cond_clockwait), KIND(NONE, cnd_timedwait),
    KIND(NONE, sem_timedwait), KIND(NONE, sem_clockwait), KIND(NONE, futex_timeout),
    KIND(s_child_thread, timedjoin), KIND(s_child_thread, clockjoin),
    KIND(NONE, sigtimedwait), KIND(s_queue, mq_timedreceive), KIND(s_full_queue, mq_timedsend),
    {"semtimedop", s_semaphores, NULL, w_semtimedop, NULL, NULL, remove_semaphores},
    KIND(s_timeout_socket, recv_timeout), KIND(s_timer, timerfd),
    WOKEN(s_pipe, nothing, read, e_write, nothing), WOKEN(s_pipe, nothing, readv, e_write, nothing),
    WOKEN(s_pipe, nothing, raw_read, e_write, nothing), WOKEN(s_pipe, nothing, poll, e_write, nothing),
    WOKEN(s_pipe, nothing, raw_poll, e_write, nothing), WOKEN(s_pipe, nothing, select, e_write, nothing),
    WOKEN(s_epoll_pipe, nothing, epoll_wait, e_write, nothing),
    WOKEN(s_two_pipes, nothing, splice, e_write, nothing), WOKEN(s_two_pipes, nothing, tee, e_write, nothing),
    WOKEN(s_socket, nothing, recv, e_write, nothing), WOKEN(s_socket, nothing, recvfrom, e_write, nothing),
    WOKEN(s_socket, nothing, recvmsg, e_write, nothing), WOKEN(s_socket, nothing, recvmmsg, e_write, nothing),
    WOKEN(s_full_pipe, nothing, write, e_drain, nothing), WOKEN(s_full_pipe, nothing, writev, e_drain, nothing),
    WOKEN(s_datagrams, b_fill, send, e_empty, nothing), WOKEN(s_datagrams, b_fill, sendto, e_empty, nothing),
    WOKEN(s_datagrams, b_fill, sendmsg, e_empty, nothing),
    {"accept", s_listening, nothing, w_accept, e_connect, nothing, close_listener},
    {"accept4", s_listening, nothing, w_accept4, e_connect, nothing, close_listener},
    {"connect", s_full_backlog, nothing, w_connect, e_accept, nothing, close_listener},
    WOKEN(s_event, nothing, eventfd, e_eventfd, nothing), WOKEN(NONE, nothing, signalfd, e_signal, nothing),
    {"open_fifo", s_fifo, nothing, w_open_fifo, e_open_fifo, nothing, remove_name},
    {"fopen_fifo", s_fifo, nothing, w_fopen_fifo, e_open_fifo, nothing, remove_name},
    {"freopen_fifo", s_fifo, nothing, w_freopen_fifo, e_open_fifo, nothing, remove_name},
    WOKEN(s_resolver, nothing, getaddrinfo, e_resolver, nothing), WOKEN(s_resolver, nothing, gethostbyname_r, e_resolver, nothing),
    WOKEN(s_resolver, nothing, getnameinfo, e_resolver, nothing),
    WOKEN(s_in_stream, nothing, fgets, e_line, nothing), WOKEN(s_in_stream, nothing, getline, e_line, nothing),
    WOKEN(s_in_stream, nothing, getc, e_write, nothing), WOKEN(s_in_stream, nothing, getc_unlocked, e_write, nothing),
    WOKEN(s_in_stream, nothing, fread, e_write, nothing), WOKEN(s_in_stream, nothing, fscanf, e_line, nothing),
    WOKEN(s_in_stream, nothing, fgets_behind_calls, e_line, nothing),
    WOKEN(s_out_stream, nothing, fwrite, e_drain, nothing), WOKEN(s_out_stream, nothing, fprintf, e_drain, nothing),
    WOKEN(s_full_pipe, nothing, fputs_fclose, e_drain, nothing), WOKEN(s_full_pipe, nothing, dprintf, e_drain, nothing),
    WOKEN(s_aio, b_aio, aio_suspend, e_write, f_aio),
    WOKEN(s_two_files, b_flock, flock, e_flock, f_flock), WOKEN(s_two_files, b_ofd, fcntl, e_ofd, f_posix),
    WOKEN(s_two_files, b_ofd, fcntl_ofd, e_ofd, f_ofd), WOKEN(s_two_files, b_ofd, lockf, e_ofd, f_posix),
    {"msgrcv", s_messages, nothing, w_msgrcv, e_msgrcv, nothing, remove_messages},
    {"msgsnd", s_full_messages, nothing, w_msgsnd, e_msgsnd, nothing, remove_messages},
    {"semop", s_semaphores, nothing, w_semop, e_semop, nothing, remove_semaphores},
    WOKEN(s_queue, nothing, mq_receive, e_mq_receive, nothing), WOKEN(s_full_queue, nothing, mq_send, e_mq_send, nothing),
    WOKEN(NONE, b_child, waitpid, e_child, nothing), WOKEN(NONE, b_child, wait4, e_child, nothing),
    WOKEN(NONE, b_child, waitid, e_child, nothing), WOKEN(NONE, b_child, raw_wait4, e_child, nothing),
    WOKEN(NONE, b_mutex, mutex_lock, e_mutex, e_mutex), WOKEN(NONE, b_mtx, mtx_lock, e_mtx, e_mtx),
    WOKEN(NONE, b_rwlock, rwlock_rdlock, e_rwlock, e_rwlock), WOKEN(NONE, b_rwlock, rwlock_wrlock, e_rwlock, e_rwlock),
    WOKEN(NONE, nothing, cond_wait, e_cond, nothing), WOKEN(NONE, nothing, cnd_wait, e_cnd, nothing),
    WOKEN(NONE, nothing, sem_wait, e_sem, nothing), WOKEN(NONE, nothing, barrier_wait, e_barrier, nothing),
    WOKEN(NONE, b_thread, join, e_sem, nothing), WOKEN(NONE, nothing, futex, e_futex, nothing),
    WOKEN(NONE, b_once, once, e_sem, f_once),
    WOKEN(NONE, nothing, sigwait, e_signal, nothing), WOKEN(NONE, nothing, sigwaitinfo, e_signal, nothing),
    WOKEN(NONE, nothing, sigsuspend, e_signal, nothing), WOKEN(NONE, nothing, pause, e_signal2, nothing),
    WOKEN(NONE, nothing, interrupted_poll, e_signal_that_writes, nothing),
};

static pthread_barrier_t together;
static const struct kind *kind;

static void *waits(void *argument) {
    struct pair *p = argument;
    sigset_t set = usr1();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    p->tid = gettid();
    pthread_barrier_wait(&together);
    for (p->round = 0; p->round < rounds; p->round++) {
        struct timespec begin, end;
        if (kind->end != NULL)
            sem_wait(&p->go);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        atomic_store(&p->inside, p->round + 1);
        kind->wait(p);
        clock_gettime(CLOCK_MONOTONIC, &end);
        p->sum_ns += (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
        if (kind->end != NULL) {
            kind->finish(p);
            sem_post(&p->done);
        }
    }
    return NULL;
}

static void *ends(void *argument) {
    struct pair *p = argument;
    pthread_barrier_wait(&together);
    for (int i = 0; i < rounds && kind->end != NULL; i++) {
        kind->begin(p);
        sem_post(&p->go);
        // It may sleep for a moment on its way into the call: what counts is a sleep that lasts.
        long switches;
        do {
            while (atomic_load(&p->inside) != i + 1 || !is_asleep(p->tid))
                usleep(200);
            switches = switches_of(p->tid);
            let_pass();
        } while (switches_of(p->tid) != switches);
        kind->end(p);
        sem_wait(&p->done);
    }
    return NULL;
}

static void run(void) {
    struct pair *pairs = calloc(threads, sizeof *pairs);
    pthread_t waker[threads];
    int failed = 0;
    for (int i = 0; i < threads && !failed; i++) {
        struct pair *p = &pairs[i];
        p->number = i;
        pthread_mutex_init(&p->mutex, NULL);
        pthread_rwlock_init(&p->rwlock, NULL);
        pthread_cond_init(&p->cond, NULL);
        pthread_barrier_init(&p->barrier, NULL, 2);
        mtx_init(&p->mtx, mtx_plain);
        cnd_init(&p->cnd);
        sem_init(&p->sem, 0, 0);
        sem_init(&p->go, 0, 0);
        sem_init(&p->done, 0, 0);
        failed = kind->set_up(p);
    }
    if (failed) {
        printf("%s missing\n", kind->name);
        return;
    }
    pthread_barrier_init(&together, NULL, 2 * threads);
    for (int i = 0; i < threads; i++) {
        pthread_create(&pairs[i].waiter, NULL, waits, &pairs[i]);
        pthread_create(&waker[i], NULL, ends, &pairs[i]);
    }
    long sum_ns = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(pairs[i].waiter, NULL);
        pthread_join(waker[i], NULL);
        kind->remove(&pairs[i]);
        sum_ns += pairs[i].sum_ns;
    }
    printf("%s %d %ld\n", kind->name, rounds * threads, sum_ns);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    ms = atol(argv[1]);
    rounds = atoi(argv[2]);
    threads = atoi(argv[3]);
    // Who starts the tests may have blocked some: `perf record` blocks SIGWINCH.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGUSR1, caught);
    signal(SIGUSR2, caught);
    signal(SIGWINCH, writes);
    null = open("/dev/null", O_WRONLY);
    for (kind = kinds; kind < kinds + sizeof kinds / sizeof *kinds; kind++) {
        int is_wanted = argc == 4 && (ms >= 1000 || strcmp(kind->name, "sleep") != 0) && strcmp(kind->name, "once") != 0;
        for (int i = 4; i < argc; i++)
            is_wanted |= strcmp(argv[i], kind->name) == 0;
        if (is_wanted)
            run();
    }
}
