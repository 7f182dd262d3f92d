/* Works on four threads, which allocate and wait, and ends in the way that is asked for. Says how often it has slept. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static _Thread_local void *volatile kept;

__attribute__((noinline)) void computes(int ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (int i = 0; i < 20000; i++) sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

static void *work(void *argument) {
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 500; k++) { kept = malloc(64); free(kept); }
        usleep(5000);
        computes(5);
    }
    return argument;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile int waits;

__attribute__((noinline)) void *waits_for_ever(void *argument) {
    waits = 1;
    pthread_mutex_lock(&held);
    return argument;
}

static void all_work(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "return";
    all_work();
    if (!strcmp(how, "exit")) exit(3);
    if (!strcmp(how, "_exit")) _exit(4);
    if (!strcmp(how, "waiting")) {
        pthread_t thread;
        pthread_mutex_lock(&held);
        pthread_create(&thread, NULL, waits_for_ever, NULL);
        while (!waits) usleep(1000);
        usleep(700000);
        exit(8);
    }
    if (!strcmp(how, "killed")) raise(SIGKILL);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exec")) execl(arguments[0], arguments[0], "exit", NULL);
    if (!strcmp(how, "fork")) {
        /* Threads that work while it forks, and children that work and end. */
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        int sum = 0;
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (child == 0) { computes(10); exit(i); }
            int status;
            waitpid(child, &status, 0);
            sum += WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
        }
        pthread_join(thread, NULL);
        printf("children %d\n", sum);
    }
    if (!strcmp(how, "descriptors")) {
        /* None is there but the standard ones, and closing all harms nothing. */
        int open = 0;
        for (int fd = 3; fd < 1024; fd++) open += close(fd) == 0;
        all_work();
        printf("descriptors %d\n", open);
    }
    if (!strcmp(how, "idle")) { printf("idle\n"); fflush(stdout); pause(); }
    if (!strcmp(how, "forever")) for (;;) all_work();
    return 5;
}
