/* Signals that end a process stay pending as long as they are blocked, whatever captures do meanwhile. */
#include "show.h"
#include <signal.h>

int main(void) {
    static const int numbers[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, SIGTERM, SIGURG};
    sigset_t all, pending;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) kill(getpid(), numbers[i]);
    for (int i = 0; i < 20000; i++) free(malloc(i % 300));
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct timespec at_once = {0, 0};
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, numbers[i]);
        sigpending(&pending);
        SHOW(sigismember(&pending, numbers[i]));
        SHOW(sigtimedwait(&one, NULL, &at_once) == numbers[i]);
    }
    return 0;
}
