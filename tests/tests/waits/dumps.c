// Does what dumps are written for, by its argument: a thread waits for a lock, an event-loop iteration takes
// long, or a fault in spite of a handler for it. The first two go on until something comes in.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void *wants_lock(void *unused) {
    pthread_mutex_lock(&held);
    return unused;
}

__attribute__((noinline)) static void slow_iteration(void) {
    // Not by poll: that would begin the next iteration.
    for (int ready = 0; ready == 0; ioctl(0, FIONREAD, &ready))
        for (volatile int i = 0; i < 1000000; i++) {}
}

static void on_fault(int signal_number) {
    if (write(1, "handled\n", 8) < 0) _exit(1);
    signal(signal_number, SIG_DFL);
}

int main(int count, char **arguments) {
    pthread_t thread;
    pthread_mutex_lock(&held);
    pthread_create(&thread, 0, wants_lock, 0);
    puts("ready");
    fflush(stdout);
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "iteration") == 0) {
        for (int i = 0; i < 10; i++) poll(0, 0, 1);
        slow_iteration();
    } else if (strcmp(what, "crash") == 0) {
        signal(SIGSEGV, on_fault);
        // What was said so far is read first.
        if (getchar() == EOF) *(volatile int *)0 = 1;
    }
    while (getchar() != EOF) {}
    return 0;
}
