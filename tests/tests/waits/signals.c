#include <sys/signalfd.h>
#include <threads.h>

static pid_t target;
static int ends[2], signals, poll_set;
static sigset_t set;
static pthread_t waiting;

static void make_signals(void) {
    target = getpid();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    // For all threads: who waits opens it.
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
static void process_end(void) {
    if (kill(target, SIGUSR1) != 0)
        fail("kill");
}
static void queue_end(void) {
    union sigval value = {.sival_int = 7};
    if (sigqueue(target, SIGUSR1, value) != 0)
        fail("sigqueue");
}
static void thread_end(void) {
    if (tgkill(target, shared->waiter_tid, SIGUSR1) != 0)
        fail("tgkill");
}
static void raw_end(void) {
    if (syscall(SYS_tgkill, target, shared->waiter_tid, SIGUSR1) != 0)
        fail("tgkill");
}
static void pthread_end(void) {
    if (pthread_kill(waiting, SIGUSR1) != 0)
        fail("pthread_kill");
}

static void sigwait_wait(void) {
    int signal;
    waiting = pthread_self();
    if (sigwait(&set, &signal) != 0 || signal != SIGUSR1)
        fail("sigwait");
}
static void sigwaitinfo_wait(void) {
    siginfo_t info;
    if (sigwaitinfo(&set, &info) != SIGUSR1 || info.si_code != SI_QUEUE)
        fail("sigwaitinfo");
}
static void sigtimedwait_wait(void) {
    struct timespec minute = {60, 0};
    if (sigtimedwait(&set, NULL, &minute) != SIGUSR1)
        fail("sigtimedwait");
}

// Waits that a handler ends.
static void handler(int signal) { (void)signal; }
static void handles(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    make_signals();
    if (sigaction(SIGUSR1, &action, NULL) != 0 || pipe(ends) != 0)
        fail("sigaction");
}
static void make_handler(void) { handles(handler, 0); }
static void open_mask(void) {
    waiting = pthread_self();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
static void wants_interruption(const char *what, int result) {
    if (result != -1 || errno != EINTR)
        fail(what);
}
static void pause_wait(void) {
    open_mask();
    wants_interruption("pause", pause());
}
static void sigsuspend_wait(void) {
    sigset_t none;
    sigemptyset(&none);
    wants_interruption("sigsuspend", sigsuspend(&none));
}
static void sleep_wait(void) {
    struct timespec minute = {60, 0};
    open_mask();
    wants_interruption("nanosleep", nanosleep(&minute, NULL));
}
static void clock_sleep_wait(void) {
    struct timespec minute = {60, 0};
    open_mask();
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &minute, NULL) != EINTR)
        fail("clock_nanosleep");
}
static void whole_sleep_wait(void) {
    open_mask();
    if (sleep(60) == 0)
        fail("sleep");
}
// Less than a whole second is left.
static void last_sleep_wait(void) {
    open_mask();
    errno = 0;
    if (sleep(1) != 0 || errno != EINTR)
        fail("sleep");
}
static void thrd_sleep_wait(void) {
    struct timespec minute = {60, 0};
    open_mask();
    if (thrd_sleep(&minute, NULL) != -1)
        fail("thrd_sleep");
}
static void read_wait(void) {
    char byte;
    open_mask();
    wants_interruption("read", read(ends[0], &byte, 1));
}
static void poll_wait(void) {
    struct pollfd file = {ends[0], POLLIN, 0};
    open_mask();
    wants_interruption("poll", poll(&file, 1, 60000));
}

// The handler writes into a pipe from which its own thread reads.
static void writes(int signal) {
    (void)signal;
    if (write(ends[1], "x", 1) != 1)
        _exit(1);
}
static void make_self_pipe(void) { handles(writes, SA_RESTART); }
static void self_pipe_wait(void) {
    char byte;
    open_mask();
    if (read(ends[0], &byte, 1) != 1)
        fail("read");
}

static void make_signalfd(void) {
    make_signals();
    signals = signalfd(-1, &set, 0);
    struct epoll_event wanted = {EPOLLIN, {.u64 = 5}};
    poll_set = epoll_create1(0);
    if (signals < 0 || pipe(ends) != 0 || epoll_ctl(poll_set, EPOLL_CTL_ADD, signals, &wanted) != 0)
        fail("signalfd");
}
static void signalfd_wait(void) {
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) != sizeof info || info.ssi_signo != SIGUSR1)
        fail("signalfd");
}
static void poll_signalfd_wait(void) {
    struct pollfd files[2] = {{ends[0], POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(files, 2, -1) != 1)
        fail("poll");
    signalfd_wait();
}
static void epoll_signalfd_wait(void) {
    struct epoll_event got;
    if (epoll_wait(poll_set, &got, 1, -1) != 1 || got.data.u64 != 5)
        fail("epoll_wait");
    signalfd_wait();
}

static const struct kind kinds[] = {
    {"sigwait", nothing, sigwait_wait, process_end, make_signals},
    {"sigwait-thread", nothing, sigwait_wait, thread_end, make_signals},
    {"sigwait-pthread", nothing, sigwait_wait, pthread_end, make_signals},
    {"sigwait-raw", nothing, sigwait_wait, raw_end, make_signals},
    {"sigwaitinfo", nothing, sigwaitinfo_wait, queue_end, make_signals},
    {"sigtimedwait", nothing, sigtimedwait_wait, process_end, make_signals},
    {"pause", nothing, pause_wait, process_end, make_handler},
    {"sigsuspend", nothing, sigsuspend_wait, thread_end, make_handler},
    {"sleep", nothing, sleep_wait, thread_end, make_handler},
    {"sleep-pthread", nothing, sleep_wait, pthread_end, make_handler},
    {"clock-sleep", nothing, clock_sleep_wait, process_end, make_handler},
    {"sleep-whole", nothing, whole_sleep_wait, thread_end, make_handler},
    {"sleep-last", nothing, last_sleep_wait, thread_end, make_handler},
    {"thrd-sleep", nothing, thrd_sleep_wait, thread_end, make_handler},
    {"read", nothing, read_wait, process_end, make_handler},
    {"poll", nothing, poll_wait, thread_end, make_handler},
    {"self-pipe", nothing, self_pipe_wait, process_end, make_self_pipe},
    {"signalfd", nothing, signalfd_wait, process_end, make_signalfd},
    {"poll-signalfd", nothing, poll_signalfd_wait, process_end, make_signalfd},
    {"epoll-signalfd", nothing, epoll_signalfd_wait, process_end, make_signalfd},
};

