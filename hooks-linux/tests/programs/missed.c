/* Looks at a flag that a handler sets, and then waits. A signal that comes in between is missed by such a program; it must not
 * be missed because the call is a hook. */
#include "show.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

enum { ROUNDS = 1000, SPAN_NS = 20000, TIMEOUT_US = 20000 };

static volatile sig_atomic_t came, gave_up;
static int sockets[2], epoll, semaphores, queue;
static struct { atomic_int started, done, missed; } *shared;

static sigjmp_buf back;

static void on_signal(int s) { *(s == SIGALRM ? &gave_up : &came) = 1; }

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void spin(long ns) {
    for (long end = now_ns() + ns; now_ns() < end;) {}
}

static void call(int which) {
    long message[2];
    sigset_t nothing;
    sigemptyset(&nothing);
    struct epoll_event event;
    struct timespec second = {1, 0};
    fd_set set;
    switch (which) {
    case 0: poll(&(struct pollfd){sockets[0], POLLIN, 0}, 1, -1); break;
    case 1: FD_ZERO(&set); FD_SET(sockets[0], &set); select(sockets[0] + 1, &set, 0, 0, 0); break;
    case 2: epoll_wait(epoll, &event, 1, -1); break;
    case 3: nanosleep(&second, 0); break;
    case 4: pause(); break;
    case 5: sigsuspend(&nothing); break;
    case 6: ppoll(&(struct pollfd){sockets[0], POLLIN, 0}, 1, &second, &nothing); break;
    case 7: semop(semaphores, &(struct sembuf){0, -1, 0}, 1); break;
    case 8: msgrcv(queue, message, sizeof message - sizeof(long), 0, 0); break;
    case 9: sleep(1); break;
    }
}
enum { CALLS = 10 };

static void wait_for(atomic_int *word, int value) {
    while (atomic_load(word) < value) sched_yield();
}

/* Waits ROUNDS times for a signal of its parent's, which comes at a moment around that at which it begins to wait. */
static void waiting(int which) {
    epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[0], &(struct epoll_event){.events = EPOLLIN});
    for (int i = 1; i <= ROUNDS; i++) {
        came = gave_up = 0;
        struct itimerval timeout = {.it_value = {0, TIMEOUT_US}};
        setitimer(ITIMER_REAL, &timeout, 0);
        atomic_store(&shared->started, i);
        spin(SPAN_NS / 2);
        if (!came) {
            call(which);
            shared->missed += gave_up && came;
        }
        while (!came) sched_yield();
        timeout.it_value.tv_usec = 0;
        setitimer(ITIMER_REAL, &timeout, 0);
        atomic_store(&shared->done, i);
    }
}

/* The hook of poll asks the kernel whether it can read what it is given, by a call that nobody else makes: a filter turns that
 * into a signal, whose handler so runs in the hook, before the call, in any case. The filter is installed past libc, so that
 * the hook does not know of it. */
static volatile int is_armed;
static void in_hook(int s, siginfo_t *info, void *context) {
    (void)s, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -EINVAL;
    if (is_armed) {
        is_armed = 0;
        raise(SIGUSR2);
    }
}

static long raw(long number, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}

static void trap_questions(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x7fffffff, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    struct sigaction action = {.sa_sigaction = in_hook, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
    if (raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0) != 0) _exit(2);
}

static void jump(int s) {
    (void)s;
    siglongjmp(back, 1);
}

static int timers(void) {
    char line[256];
    int count = 0;
    FILE *file = fopen("/proc/self/timers", "r");
    while (fgets(line, sizeof line, file)) count += strncmp(line, "ID:", 3) == 0;
    fclose(file);
    return count;
}

/* A handler leaves the call soon after it has begun: what was to end it must not end another one. */
static void leave_calls(void) {
    volatile int jumps = 0, interrupted = 0;
    struct timespec time = {0, 2000000};
    signal(SIGALRM, jump);
    srand(1);
    for (volatile int i = 0; i < 2 * ROUNDS; i++) {
        if (sigsetjmp(back, 1)) {
            jumps++;
            if (i % 10 == 0) interrupted += nanosleep(&time, 0) != 0;
            continue;
        }
        is_armed = 1;
        struct itimerval soon = {.it_value = {0, 1 + rand() % 100}};
        setitimer(ITIMER_REAL, &soon, 0);
        poll(&(struct pollfd){sockets[0], POLLIN, 0}, 1, 20);
        memset(&soon, 0, sizeof soon);
        setitimer(ITIMER_REAL, &soon, 0);
    }
    nanosleep(&time, 0);
    printf("handlers %d, jumps %d, interrupted %d, timers %d\n", came, jumps > ROUNDS, interrupted, timers());
}

int main(int count, char **arguments) {
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR2, &action, 0);
    sigaction(SIGALRM, &action, 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    if (count > 1) {
        trap_questions();
        if (strcmp(arguments[1], "jump") == 0) {
            leave_calls();
            return 0;
        }
        struct pollfd file = {sockets[0], POLLIN, 0};
        is_armed = 1;
        errno = 0;
        int result = poll(&file, 1, 2000);
        printf("came %d: %d %s\n", came, result, strerrorname_np(errno));
        write(sockets[1], "x", 1);
        is_armed = 1;
        result = poll(&file, 1, 2000);
        printf("ready: %d\n", result);
        return 0;
    }
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    srand(1);
    for (int which = 0; which < CALLS; which++) {
        shared->started = shared->done = 0;
        int pid = fork();
        if (pid == 0) {
            waiting(which);
            _exit(0);
        }
        for (int i = 1; i <= ROUNDS; i++) {
            wait_for(&shared->started, i);
            spin(rand() % SPAN_NS);
            kill(pid, SIGUSR2);
            wait_for(&shared->done, i);
        }
        waitpid(pid, 0, 0);
    }
    semctl(semaphores, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, 0);
    printf("%d\n", shared->missed);
    return 0;
}
