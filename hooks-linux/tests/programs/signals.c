/* The program's own view of a signal of ours, and of every other one. */
#include "show.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <fcntl.h>

#ifndef OURS
#define OURS SIGURG
#endif

static volatile int plain, rich, value, blocked_inside;

static void on_plain(int s) {
    sigset_t now;
    plain += s;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    blocked_inside = sigismember(&now, OURS) * 2 + sigismember(&now, SIGUSR2);
}

static void on_rich(int s, siginfo_t *info, void *context) {
    rich += s + (context != NULL);
    value = info->si_value.sival_int;
}

static sigjmp_buf back;
static void jump(int s) { siglongjmp(back, s); }

static void show_action(int signal_number) {
    struct sigaction a;
    SHOW(sigaction(signal_number, NULL, &a));
    printf("handler %s flags %x usr2 %d\n",
           a.sa_handler == SIG_DFL   ? "default"
           : a.sa_handler == SIG_IGN ? "ignored"
           : a.sa_handler == on_plain ? "plain"
           : (void *)a.sa_sigaction == (void *)on_rich ? "rich" : "strange",
           (unsigned)(a.sa_flags & ~0x04000000), sigismember(&a.sa_mask, SIGUSR2));
}

int main(void) {
    /* Who blocks the first of ours is interrupted by the second. */
    sigset_t first, before;
    sigemptyset(&first);
    sigaddset(&first, SIGURG);
    if (OURS != SIGURG) {
        SHOW(sigprocmask(SIG_BLOCK, &first, &before));
        SHOW(sigismember(&before, SIGURG));
        SHOW(pthread_sigmask(SIG_BLOCK, &first, &before));
        SHOW(sigismember(&before, SIGURG));
    }
    show_action(OURS);
    SHOW(raise(OURS));

    struct sigaction a = {.sa_handler = on_plain};
    sigaddset(&a.sa_mask, SIGUSR2);
    SHOW(sigaction(OURS, &a, NULL));
    show_action(OURS);
    SHOW(raise(OURS));
    SHOW(plain);
    SHOW(blocked_inside);
    SHOW(kill(getpid(), OURS));
    SHOW(plain);

    struct sigaction b = {.sa_sigaction = on_rich, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    struct sigaction old;
    SHOW(sigaction(OURS, &b, &old));
    SHOW(old.sa_handler == on_plain);
    SHOW(sigqueue(getpid(), OURS, (union sigval){.sival_int = 31}));
    SHOW(rich);
    SHOW(value);
    show_action(OURS);
    SHOW(raise(OURS));
    SHOW(rich);

    SHOW(signal(OURS, on_plain) == SIG_DFL);
    show_action(OURS);
    SHOW(siginterrupt(OURS, 1));
    show_action(OURS);
    SHOW(signal(OURS, SIG_IGN) == on_plain);
    SHOW(raise(OURS));
    SHOW(sigignore(OURS));
    SHOW(sigset(OURS, on_plain) == SIG_IGN);
    SHOW(raise(OURS));
    SHOW(plain);
    SHOW(sigaction(65, &a, NULL));
    SHOW(sigaction(SIGKILL, &a, NULL));

    /* One without SA_RESTART interrupts a read; with it the read goes on. */
    int p[2];
    char c;
    if (pipe(p)) return 1;
    for (int restart = 0; restart < 2; restart++) {
        a.sa_flags = restart ? SA_RESTART : 0;
        sigaction(OURS, &a, NULL);
        pid_t child = fork();
        if (child == 0) {
            wait_until_asleep(getppid());
            kill(getppid(), OURS);
            usleep(100000);
            if (write(p[1], "x", 1) != 1) _exit(1);
            _exit(0);
        }
        SHOW(read(p[0], &c, 1));
        if (!restart) SHOW(read(p[0], &c, 1));
        SHOW(waitpid(child, NULL, 0) == child);
    }

    /* Blocked, pending, fetched. */
    sigset_t urg, pending;
    sigemptyset(&urg);
    sigaddset(&urg, OURS);
    int which = 0;
    SHOW(pthread_sigmask(SIG_BLOCK, &urg, NULL));
    SHOW(raise(OURS));
    SHOW(sigpending(&pending));
    SHOW(sigismember(&pending, OURS));
    SHOW(sigwait(&urg, &which));
    SHOW(which == OURS);
    SHOW(pthread_sigmask(SIG_UNBLOCK, &urg, NULL));

    /* Many times: one of ours may pend already, and the kernel keeps one of a kind. */
    int raised = 0;
    for (int i = 0; i < 2000; i++) {
        pthread_sigmask(SIG_BLOCK, &urg, NULL);
        for (volatile int work = 0; work < 20000; work++) {}
        raise(OURS);
        raised += sigwait(&urg, &which) == 0 && which == OURS;
        pthread_sigmask(SIG_UNBLOCK, &urg, NULL);
    }
    SHOW(raised);

    /* A thread that blocks OURS while it works meets none in a call that opens the mask or fetches. */
    sigset_t nothing;
    sigemptyset(&nothing);
    pthread_sigmask(SIG_BLOCK, &urg, NULL);
    int interrupted = 0, fetched = 0;
    for (int i = 0; i < 100; i++) {
        for (volatile int work = 0; work < 300000; work++) {}
        struct timespec none = {0, 0}, short_time = {0, 100000};
        interrupted += ppoll(NULL, 0, &short_time, &nothing) == -1;
        for (volatile int work = 0; work < 300000; work++) {}
        fetched += sigtimedwait(&urg, NULL, &none) == OURS;
    }
    SHOW(interrupted);
    SHOW(fetched);
    pthread_sigmask(SIG_UNBLOCK, &urg, NULL);

    /* A handler that leaves a hooked call by a jump. */
    signal(SIGALRM, jump);
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            ualarm(10000, 0);
            if (i == 0) (void)!read(p[0], &c, 1);
            else if (i == 1) pause();
            else sleep(5);
            printf("not reached\n");
        } else {
            printf("jumped out %d\n", i);
        }
        free(malloc(100));
    }

    stack_t alt = {.ss_sp = malloc(65536), .ss_size = 65536};
    SHOW(sigaltstack(&alt, NULL));
    struct sigaction on_alt = {.sa_handler = on_plain, .sa_flags = SA_ONSTACK};
    SHOW(sigaction(SIGUSR1, &on_alt, NULL));
    SHOW(raise(SIGUSR1));

    return 0;
}
