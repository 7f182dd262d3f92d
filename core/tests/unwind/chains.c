// Call chains of every shape that compilers make, each ending in `look`: a callback of the test,
// which walks the stack twice and compares.
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

typedef void (*look_fn)(void);
static look_fn look;
static volatile unsigned long sink;

__attribute__((noinline)) static void plain(int depth) {
    if (depth == 0) look();
    else plain(depth - 1);
    sink++;
}

__attribute__((noinline)) static void with_alloca(int n) {
    char *p = alloca(n * 17 + 1);
    memset(p, n, n * 17 + 1);
    if (n == 0) look();
    else with_alloca(n - 1);
    sink += p[n * 17];
}

__attribute__((noinline)) static void with_vla(int n) {
    volatile char a[n * 33 + 1];
    a[n * 33] = (char)n;
    if (n == 0) plain(2);
    else with_vla(n - 1);
    sink += a[n * 33];
}

__attribute__((noinline)) static void large_frame(int n) {
    volatile char a[70000];
    a[n] = 1;
    if (n == 0) look();
    else large_frame(n - 1);
    sink += a[n];
}

__attribute__((noinline)) static void realigned(int n) {
    __attribute__((aligned(64))) volatile char a[64 + 1];
    a[n] = 1;
    if (n == 0) look();
    else realigned(n - 1);
    sink += a[n];
}

__attribute__((noinline)) static void realigned_with_alloca(int n) {
    __attribute__((aligned(128))) volatile char a[128];
    char *p = alloca(n * 40 + 8);
    memset(p, 1, n * 40 + 8);
    a[n] = p[0];
    if (n == 0) look();
    else realigned_with_alloca(n - 1);
    sink += a[n] + p[1];
}

__attribute__((noinline)) static long many_registers(long a, long b, long c, long d, long e, long f, long g,
                                                     long h) {
    long x = a * b, y = c * d, z = e * f, w = g * h;
    if (a == 0) look();
    else sink += many_registers(a - 1, b + x, c + y, d + z, e + w, f, g, h);
    return x + y * 3 + z * 5 + w * 7 + a + b + c + d;
}

static int compare(const void *a, const void *b) {
    if (sink++ % 3 == 0) look();
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) static void through_libc(void) {
    int a[] = {5, 3, 9, 1, 7, 2, 8};
    qsort(a, 7, sizeof a[0], compare);
    int key = 7;
    bsearch(&key, a, 7, sizeof a[0], compare);
    sink += a[0];
}

__attribute__((noinline, noreturn)) static void no_return(jmp_buf *back) {
    look();
    longjmp(*back, 1);
}

// The call is the function's last instruction: its return address belongs to the next function.
__attribute__((noinline)) static void last_call(jmp_buf *back) { no_return(back); }

__attribute__((noinline)) static void ends_in_call(void) {
    jmp_buf back;
    if (setjmp(back) == 0) last_call(&back);
}

static void on_signal(int signal) {
    (void)signal;
    plain(2);
}

__attribute__((noinline)) static void in_signal(int flags) {
    static char memory[1 << 16];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, old_stack;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags}, old;
    sigaltstack(&stack, &old_stack);
    sigaction(SIGUSR2, &action, &old);
    raise(SIGUSR2);
    sigaction(SIGUSR2, &old, 0);
    sigaltstack(&old_stack, 0);
    sink++;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    look();
    // Go on behind the trap.
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

// Interrupted at a given instruction, not in a call.
__attribute__((noinline)) static void in_trap(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
    sigaction(SIGILL, &action, &old);
    __asm__ volatile("ud2");
    sigaction(SIGILL, &old, 0);
    sink++;
}

static ucontext_t main_context, other_context;

static void coroutine(void) {
    plain(5);
    swapcontext(&other_context, &main_context);
}

__attribute__((noinline)) static void in_coroutine(void) {
    size_t size = 1 << 16;
    void *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = memory;
    other_context.uc_stack.ss_size = size;
    other_context.uc_link = &main_context;
    makecontext(&other_context, coroutine, 0);
    swapcontext(&main_context, &other_context);
    munmap(memory, size);
    sink++;
}

void run_chains(look_fn callback) {
    look = callback;
    for (int i = 0; i < 100; i += 9) plain(i);
    with_alloca(20);
    with_vla(20);
    large_frame(5);
    realigned(6);
    realigned_with_alloca(6);
    sink += many_registers(12, 2, 3, 4, 5, 6, 7, 8);
    through_libc();
    ends_in_call();
    in_signal(0);
    in_signal(SA_ONSTACK);
    in_trap();
    in_coroutine();
}
