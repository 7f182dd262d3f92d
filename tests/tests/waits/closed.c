// A child that nobody without the rights of a debugger may look into, by the argument: it is another user's than
// its parent was, or not dumpable. Its threads compute, and wait in a call and in a system call of their own, until
// something comes in.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int hooked[2], raw[2];
static volatile unsigned long iterations;

__attribute__((noinline)) static void *computes(void *unused) {
    for (;;) iterations++;
    return unused;
}

__attribute__((noinline)) static void *in_read(void *unused) {
    char byte;
    if (read(hooked[0], &byte, 1) != 0) _exit(1);
    return unused;
}

__attribute__((noinline)) static void *raw_read(void *unused) {
    char byte;
    if (syscall(SYS_read, raw[0], &byte, 1) != 0) _exit(1);
    return unused;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "user") == 0) {
        if (setuid(65534) != 0) return 1;
    } else if (prctl(PR_SET_DUMPABLE, 0) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[3];
        if (pipe(hooked) != 0 || pipe(raw) != 0) _exit(1);
        pthread_create(&threads[0], 0, computes, 0);
        pthread_create(&threads[1], 0, in_read, 0);
        pthread_create(&threads[2], 0, raw_read, 0);
        puts("ready");
        fflush(stdout);
        char byte;
        while (read(0, &byte, 1) > 0) {}
        close(hooked[1]);
        close(raw[1]);
        pthread_join(threads[1], 0);
        pthread_join(threads[2], 0);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
