/* A child by `clone` that shares memory and thread-locals, and runs at the same time: both are in hooks at once. */
#include "show.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static char stack[256 << 10];
static volatile int stop;

static int child(void *pipe_) {
    const int *p = pipe_;
    char c = 1;
    for (int i = 0; i < 20000; i++) {
        if (write(p[1], &c, 1) != 1 || read(p[0], &c, 1) != 1) return 1;
    }
    stop = 1;
    return 0;
}

int main(void) {
    int p[2], q[2], status = 0;
    char c = 1;
    long wrong = 0;
    if (pipe(p) || pipe(q)) return 1;
    int pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_FS | SIGCHLD, p);
    SHOW(pid > 0);
    while (!stop) wrong += write(q[1], &c, 1) != 1 || read(q[0], &c, 1) != 1;
    SHOW(wrong);
    SHOW(waitpid(pid, &status, 0) == pid);
    SHOW(status);
    return 0;
}
