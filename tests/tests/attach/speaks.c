// A program to attach to that says something about itself all the time, from before anybody listens on, until
// SIGTERM comes. In the end it says how often it was heard at first, and then not, and then again.

#include "stackbeat.h"
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t ended;

static void on_signal(int signal) { ended = signal; }

int main(void) {
    int changes = 0, was_heard = stackbeat_is_active();
    signal(SIGTERM, on_signal);
    stackbeat_mark("before");
    stackbeat_capture();
    printf("running\n");
    fflush(stdout);
    for (int64_t turn = 0; !ended; turn++) {
        struct timespec pause = {0, 5000000};
        stackbeat_scope_begin("turn");
        nanosleep(&pause, 0);
        stackbeat_capture();
        stackbeat_scope_end();
        stackbeat_counter("turns", turn);
        changes += stackbeat_is_active() != was_heard;
        was_heard = stackbeat_is_active();
    }
    printf("%d changes\n", changes);
    return 0;
}
