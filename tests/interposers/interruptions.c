/* Preloaded, counts what a program's blocking calls gave: how many there were, how many ended with EINTR, and how
 * many transfers over descriptors that block were cut short. The counts lie in the file that INTERRUPTIONS names, shared
 * by all processes that inherit it, in rows of a name and three numbers; they survive however a process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 64 };
struct row {
    char name[40];
    _Atomic long calls, interrupted, cut;
};
static struct row *rows, nowhere[ROWS];

static struct row *row(int index, const char *name) {
    struct row *all = rows ? rows : nowhere;
    if (!all[index].name[0]) strcpy(all[index].name, name);
    return &all[index];
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("INTERRUPTIONS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof nowhere, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) rows = shared;
    close(file);
}

static int blocks(int fd) {
    int saved = errno;
    long flags = syscall(SYS_fcntl, fd, F_GETFL);
    errno = saved;
    return flags >= 0 && !(flags & O_NONBLOCK);
}

static long total(const struct iovec *parts, long count) {
    long bytes = 0;
    for (long i = 0; i < count; i++) bytes += parts[i].iov_len;
    return bytes;
}

/* CUT counts for results that are no error. */
#define COUNTED(INDEX, TYPE, NAME, PARAMETERS, ARGUMENTS, CUT)                                     \
    TYPE NAME PARAMETERS {                                                                         \
        static TYPE(*_Atomic original) PARAMETERS;                                                 \
        if (!original) original = (TYPE(*) PARAMETERS)dlsym(RTLD_NEXT, #NAME);                     \
        TYPE result = original ARGUMENTS;                                                          \
        struct row *counted = row(INDEX, #NAME);                                                   \
        counted->calls++;                                                                          \
        if (result == -1) {                                                                        \
            if (errno == EINTR) counted->interrupted++;                                            \
        } else if (CUT) {                                                                          \
            counted->cut++;                                                                        \
        }                                                                                          \
        return result;                                                                             \
    }

COUNTED(0, ssize_t, read, (int fd, void *at, size_t n), (fd, at, n), 0)
COUNTED(1, ssize_t, write, (int fd, const void *at, size_t n), (fd, at, n), (size_t)result < n && blocks(fd))
COUNTED(2, ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), 0)
COUNTED(3, ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), result < total(v, n) && blocks(fd))
COUNTED(4, ssize_t, recv, (int fd, void *at, size_t n, int f), (fd, at, n, f), (f & MSG_WAITALL) && result && (size_t)result < n && blocks(fd))
COUNTED(5, ssize_t, send, (int fd, const void *at, size_t n, int f), (fd, at, n, f), !(f & MSG_DONTWAIT) && (size_t)result < n && blocks(fd))
COUNTED(6, ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), 0)
COUNTED(7, ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), !(f & MSG_DONTWAIT) && result < total(m->msg_iov, m->msg_iovlen) && blocks(fd))
COUNTED(8, int, accept, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), 0)
COUNTED(9, int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), 0)
COUNTED(10, int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), 0)
COUNTED(11, int, poll, (struct pollfd *p, nfds_t n, int t), (p, n, t), 0)
COUNTED(12, int, ppoll, (struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *s), (p, n, t, s), 0)
COUNTED(13, int, select, (int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t), (n, r, w, e, t), 0)
COUNTED(14, int, pselect, (int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *s), (n, r, w, e, t, s), 0)
COUNTED(15, int, epoll_wait, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t), 0)
COUNTED(16, int, epoll_pwait, (int fd, struct epoll_event *e, int n, int t, const sigset_t *s), (fd, e, n, t, s), 0)
COUNTED(17, int, nanosleep, (const struct timespec *t, struct timespec *rest), (t, rest), 0)
COUNTED(18, int, usleep, (useconds_t us), (us), 0)
COUNTED(19, int, sem_wait, (sem_t *s), (s), 0)
COUNTED(20, int, sem_timedwait, (sem_t *s, const struct timespec *t), (s, t), 0)
COUNTED(21, int, sem_clockwait, (sem_t *s, clockid_t c, const struct timespec *t), (s, c, t), 0)
COUNTED(22, pid_t, waitpid, (pid_t pid, int *status, int f), (pid, status, f), 0)
COUNTED(23, pid_t, wait4, (pid_t pid, int *status, int f, struct rusage *u), (pid, status, f, u), 0)
COUNTED(24, int, sigtimedwait, (const sigset_t *s, siginfo_t *i, const struct timespec *t), (s, i, t), 0)
COUNTED(25, int, sigwaitinfo, (const sigset_t *s, siginfo_t *i), (s, i), 0)
COUNTED(26, ssize_t, pread64, (int fd, void *at, size_t n, off64_t o), (fd, at, n, o), 0)
COUNTED(27, ssize_t, pwrite64, (int fd, const void *at, size_t n, off64_t o), (fd, at, n, o), (size_t)result < n)
COUNTED(28, ssize_t, sendfile, (int out, int in, off_t *o, size_t n), (out, in, o, n), 0)
COUNTED(29, ssize_t, sendfile64, (int out, int in, off64_t *o, size_t n), (out, in, o, n), 0)
COUNTED(30, ssize_t, getrandom, (void *at, size_t n, unsigned f), (at, n, f), (size_t)result < n)
COUNTED(31, ssize_t, recvfrom, (int fd, void *at, size_t n, int f, struct sockaddr *a, socklen_t *b), (fd, at, n, f, a, b), 0)
COUNTED(32, ssize_t, sendto, (int fd, const void *at, size_t n, int f, const struct sockaddr *a, socklen_t b), (fd, at, n, f, a, b), !(f & MSG_DONTWAIT) && (size_t)result < n && blocks(fd))
COUNTED(33, int, semop, (int s, struct sembuf *o, size_t n), (s, o, n), 0)
COUNTED(34, int, flock, (int fd, int o), (fd, o), 0)
