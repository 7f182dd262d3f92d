/* Handlers that leave little of their alternate stack, which has painted memory below. */
#include "show.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>

/* The kernel's frame with AVX-512, and what the handler's calls take. */
enum { FRAME = 3632, LEFT = 1600, ROOM = 256 << 10, PAINT = 0x5a, HANDLERS = 150 };
static volatile int handled;
static size_t size;

static void on_signal(int s) {
    (void)s;
    handled++;
    volatile char *big = __builtin_alloca(size - FRAME - LEFT);
    big[0] = 1;
    for (volatile int i = 0; i < 500000; i++) {}
    free(malloc(9));
}

int main(void) {
    size = 8192;
    if (getauxval(AT_MINSIGSTKSZ) + 4096 > size) size = getauxval(AT_MINSIGSTKSZ) + 4096;
    char *memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, PAINT, ROOM);
    stack_t stack = {.ss_sp = memory + ROOM / 2, .ss_size = size};
    SHOW(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART}, old;
    sigaddset(&action.sa_mask, SIGWINCH);
    SHOW(sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < HANDLERS) {}
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    SHOW(sigaction(SIGALRM, NULL, &old));
    SHOW(sigismember(&old.sa_mask, SIGURG));
    SHOW(sigismember(&old.sa_mask, SIGWINCH));
    SHOW(sigismember(&old.sa_mask, SIGUSR1));
    long overrun = 0;
    while (overrun < ROOM / 2 && memory[ROOM / 2 - 1 - overrun] != PAINT) overrun++;
    SHOW(overrun);
    return 0;
}
