/* Children that share memory: with a thread pointer that is not libc's, and with their parent's. */
#include "show.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE 4096

static char stack[64 * 1024] __attribute__((aligned(16)));
static char path[PAGE];
static int spare[2];

/* Nothing of libc that fails or uses a thread-local of its own: there is none. */
static int plain_calls(void *unused) {
    char byte = 'x';
    if (chdir("/") || poll(NULL, 0, 0) || write(spare[1], &byte, 1) != 1 || read(spare[0], &byte, 1) != 1)
        _exit(1);
    sched_yield();
    close(spare[0]);
    getpid();
    _exit(3);
}

static int run_program(void *unused) {
    char *arguments[] = {path, "child", NULL};
    close(spare[0]);
    execv(path, arguments);
    _exit(9);
}

static int end_at_once(void *unused) {
    close(spare[0]);
    _exit(4);
}

static void wait_for(const char *what, pid_t child) {
    int status = 0;
    pid_t got = waitpid(child, &status, 0);
    printf("%s: %d, %s %d\n", what, got == child, WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static void with_pointer(const char *what, void *pointer) {
    pid_t child = clone(plain_calls, stack + sizeof stack,
                        CLONE_FS | CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, NULL, NULL, pointer);
    wait_for(what, child);
}

static void with_own(const char *what, int (*function)(void *)) {
    wait_for(what, clone(function, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}

/* The same past libc. */
static void raw(const char *what, int (*function)(void *)) {
#ifdef __x86_64__
    long child;
    void **top = (void **)(stack + sizeof stack) - 3;
    *top = (void *)function;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "pop %%rax\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "call *%%rax\n\t"
                     "1:"
                     : "=a"(child)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(top), "d"(0)
                     : "rcx", "r11", "r10", "r8", "r9", "memory");
    wait_for(what, child);
#else
    with_own(what, function);
#endif
}

int main(int argc, char **argv) {
    if (argc > 1) {
        puts(argv[1]);
        return 7;
    }
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    pipe(spare);

    static char zeros[4 * PAGE] __attribute__((aligned(64)));
    with_pointer("in the middle of zeros", zeros + 2 * PAGE);
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, PAGE, PROT_NONE);
    with_pointer("nothing below", pages + PAGE);
    unsigned long *words = (unsigned long *)(pages + PAGE);
    for (int fill = 0x41; fill < 0x100; fill += 0x45) {
        memset(words, fill, 24);
        with_pointer("filled", words);
    }
    words[0] = 12345, words[1] = words[2] = 0;
    with_pointer("first word", words);
    words[0] = 0, words[2] = (unsigned long)words;
    with_pointer("third word", words);

    with_own("its parent's, and a program", run_program);
    with_own("its parent's, and an end", end_at_once);
    raw("its parent's, and a program, raw", run_program);
    raw("its parent's, and an end, raw", end_at_once);
    SHOW(clone(end_at_once, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_SIGHAND | CLONE_FS | CLONE_NEWNS, NULL));
    char byte = 'y';
    SHOW(write(spare[1], &byte, 1));
    SHOW(read(spare[0], &byte, 1));
    SHOW(mremap(pages, 2 * PAGE, PAGE, 0) == pages);
    return 0;
}
