/* A handler for a signal of ours that runs on the stack that was interrupted, and one inside of it that takes the alternate
 * stack and writes over all of it. */
#include "show.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

enum { SIZE = 64 << 10 };
static char *alternate;
static volatile int outer, inner, on_alternate, inner_on_alternate, nested_urgent, deep, comes_at_once;
static sigjmp_buf back;

static int is_on_alternate(void) {
    char here;
    return alternate && &here >= alternate && &here < alternate + SIZE;
}

static void on_inner(int s) {
    volatile char used[12 << 10];
    memset((char *)used, s, sizeof used);
    inner += used[5] == s;
    inner_on_alternate += is_on_alternate();
}

static void on_outer(int s, siginfo_t *info, void *context) {
    outer += info->si_signo == s && context;
    on_alternate += is_on_alternate();
    raise(SIGUSR1);
    if (comes_at_once && deep++ == 0) {
        raise(s);
        nested_urgent++;
        deep = 0;
    }
    for (volatile int i = 0; i < 3000; i++) {}
    raise(SIGUSR1);
}

static void jump(int s) { raise(SIGUSR1), siglongjmp(back, s); }

/* All kinds of registers hold something while the signal comes. */
static long compute(int times) {
    double a = 1, b = 0.5, c = 0.25;
    float v[16];
    long wrong = 0;
    for (int i = 0; i < 16; i++) v[i] = i;
    for (int i = 0; i < times; i++) {
        double x = a * i, y = b * i, z = c * i;
        raise(SIGURG);
        wrong += x != a * i || y != b * i || z != c * i;
        for (int k = 0; k < 16; k++) v[k] += 1;
    }
    for (int k = 0; k < 16; k++) wrong += v[k] != k + times;
    return wrong;
}

static void *run(void *flags) {
    if (flags) {
        alternate = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t stack = {.ss_sp = alternate, .ss_size = SIZE, .ss_flags = (long)flags == 2 ? (int)SS_AUTODISARM : 0};
        SHOW(sigaltstack(&stack, NULL));
    }
    for (int nodefer = 0; nodefer < 2; nodefer++) {
        outer = inner = on_alternate = inner_on_alternate = nested_urgent = 0;
        struct sigaction action = {.sa_sigaction = on_outer, .sa_flags = SA_SIGINFO | (nodefer ? SA_NODEFER : 0)};
        sigaction(SIGURG, &action, NULL);
        comes_at_once = nodefer;
        SHOW(compute(300));
        SHOW(outer);
        SHOW(on_alternate);
        SHOW(inner);
        SHOW(nested_urgent);
        if (flags) SHOW(inner_on_alternate);
    }
    volatile int jumps = 0;
    signal(SIGURG, jump);
    inner = inner_on_alternate = 0;
    while (jumps < 300) {
        if (sigsetjmp(back, 1) == 0) raise(SIGURG);
        jumps++;
    }
    SHOW(inner);
    if (flags) SHOW(inner_on_alternate);
    stack_t stack;
    SHOW(sigaltstack(NULL, &stack));
    SHOW(stack.ss_flags);
    if (flags) SHOW(stack.ss_sp == alternate && stack.ss_size == SIZE);
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_inner, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (long flags = 0; flags < 3; flags++) {
        pthread_t thread;
        alternate = NULL;
        pthread_create(&thread, NULL, run, (void *)flags);
        pthread_join(thread, NULL);
    }
    stack_t stack;
    SHOW(sigaltstack((stack_t *)8, NULL));
    SHOW(sigaltstack(NULL, (stack_t *)8));
    SHOW(sigaltstack(NULL, &stack));
    SHOW(stack.ss_flags);
    return 0;
}
