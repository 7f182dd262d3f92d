// A program to attach to whose main thread starts children that end, while other threads wait in calls that a
// signal ends with EINTR although it has no handler. Says how often that happened, once SIGTERM has come.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int interrupted, ended;

static void *ends(void *signals) {
    int signal;
    sigset_t all;
    // Signals to the process are the other threads'.
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    sigwait(signals, &signal);
    ended = 1;
    return 0;
}

static void check(int result) {
    if (result < 0 && errno == EINTR) __atomic_fetch_add(&interrupted, 1, __ATOMIC_SEQ_CST);
}

static void *waits_for_events(void *unused) {
    struct epoll_event event;
    int events = epoll_create1(0);
    while (!ended) check(epoll_wait(events, &event, 1, 200));
    return unused;
}

static void *waits_for_a_signal(void *unused) {
    sigset_t one;
    struct timespec time = {0, 200000000};
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    while (!ended) check(sigtimedwait(&one, 0, &time));
    return unused;
}

static void *waits_for_a_semaphore(void *unused) {
    struct timespec time = {0, 200000000};
    struct sembuf take = {0, -1, 0};
    int set = semget(IPC_PRIVATE, 1, 0600);
    if (set < 0) return unused;
    while (!ended) check(semtimedop(set, &take, 1, &time));
    semctl(set, 0, IPC_RMID);
    return unused;
}

int main(void) {
    sigset_t end;
    pthread_t threads[4];
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, 0);
    pthread_create(&threads[0], 0, ends, &end);
    pthread_create(&threads[1], 0, waits_for_events, 0);
    pthread_create(&threads[2], 0, waits_for_a_signal, 0);
    pthread_create(&threads[3], 0, waits_for_a_semaphore, 0);
    for (int round = 0; !ended; round++) {
        pid_t child = fork();
        if (child == 0) {
            usleep(1000);
            _exit(0);
        }
        if (child < 0 || waitpid(child, 0, 0) != child) return 1;
        if (round == 3) {
            puts("running");
            fflush(stdout);
        }
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("%d interrupted\n", interrupted);
    return 0;
}
