// Starts children that take 3 ms until they run their program, in the way that the first argument names
// and as many as the second one says. Prints "waiter TID", and "ender PID" for each of them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char *end[] = {"children", "end", NULL};
static char fifo[64];

static void pause_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

__attribute__((noinline)) static pid_t by_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        pause_us(3000);
        execv("/proc/self/exe", end);
        _exit(1);
    }
    return child;
}

// The child has a child on the same memory before it runs its program.
__attribute__((noinline)) static pid_t by_nested_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        int status;
        pid_t inner = vfork();
        if (inner == 0)
            _exit(3);
        if (inner < 0 || waitpid(inner, &status, 0) != inner || WEXITSTATUS(status) != 3)
            _exit(1);
        pause_us(3000);
        execv("/proc/self/exe", end);
        _exit(1);
    }
    return child;
}

// The child opens a pipe by its name, which lasts until somebody opens the other end.
static void *opens(void *unused) {
    pause_us(3000);
    int file = open(fifo, O_WRONLY);
    if (file < 0)
        fail("fifo");
    close(file);
    return unused;
}
__attribute__((noinline)) static pid_t by_spawn(void) {
    posix_spawn_file_actions_t actions;
    pthread_t opener;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 9, fifo, O_RDONLY, 0);
    pthread_create(&opener, NULL, opens, NULL);
    if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, end, environ) != 0)
        fail("posix_spawn");
    pthread_join(opener, NULL);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

__attribute__((noinline)) static pid_t waits_for_it(const char *kind) {
    pid_t child = strcmp(kind, "vfork") == 0    ? by_vfork()
                  : strcmp(kind, "nested") == 0 ? by_nested_vfork()
                                                : by_spawn();
    asm volatile("");
    return child;
}

int main(int count, char **arguments) {
    if (count == 2)
        return 7;
    snprintf(fifo, sizeof fifo, "/dev/shm/stackbeat-test-%d", getpid());
    if (mkfifo(fifo, 0600) != 0)
        fail("mkfifo");
    printf("waiter %d\n", getpid());
    fflush(stdout);
    for (int i = atoi(arguments[2]); i > 0; i--) {
        int status;
        pid_t child = waits_for_it(arguments[1]);
        if (child <= 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
            fail("child");
        printf("ender %d\n", child);
    }
    unlink(fifo);
    return 0;
}
