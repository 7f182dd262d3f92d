// A program to attach to that does little: a thread that blocks all signals, and a main thread that sleeps,
// until SIGTERM comes.
//
//   quiet [seccomp|traced|leaderless]

#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void on_signal(int signal) { ended = signal; }

static void *second(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    for (;;) poll(0, 0, 50);
    return unused;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    signal(SIGTERM, on_signal);
    signal(SIGTRAP, SIG_IGN);
    pthread_t thread;
    pthread_create(&thread, 0, second, 0);
    if (!strcmp(mode, "seccomp")) {
        struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
        struct sock_fprog program = {1, &allow};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    }
    if (!strcmp(mode, "traced")) {
        // Its child traces it.
        int ready[2];
        char byte;
        if (pipe(ready)) return 2;
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        if (fork() == 0) {
            ptrace(PTRACE_SEIZE, getppid(), 0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            if (write(ready[1], "", 1) != 1) _exit(1);
            for (;;) {
                int status;
                pid_t tid = waitpid(-1, &status, __WALL);
                if (tid < 0 || !WIFSTOPPED(status)) _exit(0);
                ptrace(PTRACE_CONT, tid, 0, status >> 16 ? 0 : WSTOPSIG(status));
            }
        }
        if (read(ready[0], &byte, 1) != 1) return 2;
    }
    for (int round = 0; !ended; round++) {
        free(malloc(100 + round % 7));
        poll(0, 0, 30);
        char *name = strdup("something to keep");
        if (name) free(name);
        // After a round that has bound what is bound lazily.
        if (round == 1) {
            puts("running");
            fflush(stdout);
            if (!strcmp(mode, "leaderless")) pthread_exit(0);
        }
    }
    puts("ended by a signal");
    return 3;
}
