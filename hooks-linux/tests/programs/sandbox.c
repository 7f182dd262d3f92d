// Enters a sandbox in the way that the arguments say, and works in it. Prints the same whether it is recorded or not.
//   sandbox HOW ACTION WHAT
//     HOW     prctl, seccomp, raw-prctl, tsync: which call installs the filter
//     ACTION  process, thread, trap, errno: what a call meets that is not allowed; log: it is allowed
//     WHAT    few    allows read, write, exit, exit_group, rt_sigreturn
//             mute   the same without rt_sigreturn
//             clock  the same as few with clock_gettime
//             most   allows all but what programs hardly call
//             strict strict mode
//             refused  a program that the kernel refuses, then most
//             split  allows clock_gettime for the clock of a thread alone, and gettid at no place of a library
//             exec   most, then starts itself
#include "show.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#define FIELD(f) offsetof(struct seccomp_data, f)
#define LENGTH(a) (sizeof(a) / sizeof *(a))

static int few[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_rt_sigreturn};
static int with_clock[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_clock_gettime};
static int mute[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group};
// What the agent calls and this program does not.
static int unusual[] = {SYS_getpid,     SYS_gettid,  SYS_getppid,         SYS_geteuid,  SYS_process_vm_readv,
                        SYS_getrusage,  SYS_tgkill,  SYS_rt_sigtimedwait, SYS_readlinkat, SYS_sigaltstack,
                        SYS_membarrier, SYS_fcntl,   SYS_sched_yield,     SYS_getsockname, SYS_getpeername,
                        SYS_getsockopt, SYS_rt_tgsigqueueinfo};

static struct sock_filter program[64];
static int length;

static void add(int code, int k, int yes, int no) {
    program[length++] = (struct sock_filter){code, yes, no, k};
}

static void build(const int *numbers, int count, unsigned of_these, unsigned of_others) {
    length = 0;
    add(BPF_LD | BPF_W | BPF_ABS, FIELD(arch), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    add(BPF_LD | BPF_W | BPF_ABS, FIELD(nr), 0, 0);
    for (int i = 0; i < count; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1);
        add(BPF_RET | BPF_K, of_these, 0, 0);
    }
    add(BPF_RET | BPF_K, of_others, 0, 0);
}

static unsigned action_of(const char *name) {
    if (!strcmp(name, "process")) return SECCOMP_RET_KILL_PROCESS;
    if (!strcmp(name, "thread")) return SECCOMP_RET_KILL_THREAD;
    if (!strcmp(name, "trap")) return SECCOMP_RET_TRAP;
    if (!strcmp(name, "log")) return SECCOMP_RET_LOG;
    return SECCOMP_RET_ERRNO | ENOSYS;
}

static long install(const char *how) {
    struct sock_fprog filter = {length, program};
    if (!strcmp(how, "prctl")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    if (!strcmp(how, "raw-prctl")) return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
    int flags = !strcmp(how, "tsync") ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(9);
}

static volatile unsigned long sink;

// Allocates, reads, writes and computes, long enough to be interrupted.
static void work(const int *ends) {
    char byte = 1;
    for (int round = 0; round < 15; round++) {
        void *blocks[16];
        for (int i = 0; i < 16; i++) blocks[i] = malloc(64 + i);
        for (int i = 0; i < 16; i++) free(blocks[i]);
        for (int i = 0; i < 30000; i++) sink += i;
        if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) say("short\n");
    }
}

static int own_pipe[2];
// Threads that have allocated and gone through every call that they will make.
static atomic_int warm;
// 1: the filter is there. Where it allows little, threads cannot end.
static volatile int entered, stays;

static void *computes(void *ends) {
    work(ends);
    warm++;
    while (!entered || stays) work(ends);
    work(ends);
    return NULL;
}

static void *short_thread(void *argument) {
    (void)argument;
    int ends[2] = {own_pipe[0], own_pipe[1]};
    work(ends);
    return NULL;
}

static void finish(int status) {
    say("done\n");
    syscall(SYS_exit_group, status);
}

// What a program does that is not about to give up everything.
static void live(void) {
    pthread_t thread;
    fflush(stdout);
    printf("create %d\n", pthread_create(&thread, NULL, short_thread, NULL));
    pthread_join(thread, NULL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(own_pipe);
        printf("child\n");
        fflush(stdout);
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("status %d\n", WEXITSTATUS(status));
    struct timespec moment = {0, 2000000};
    printf("sleep %d\n", nanosleep(&moment, NULL));
    fflush(stdout);
    work(own_pipe);
}

int main(int count, char **arguments) {
    if (pipe(own_pipe) != 0) return 9;
    if (count == 2) {
        printf("started again\n");
        live();
        return 5;
    }
    if (count < 4) return 8;
    const char *how = arguments[1], *what = arguments[3];
    unsigned action = action_of(arguments[2]);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("begins\n");
    fflush(stdout);
    work(own_pipe);
    if (!strcmp(what, "strict")) {
        long result = !strcmp(how, "prctl") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
                                            : syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
        if (result != 0) return 7;
        work(own_pipe);
        say("done\n");
        syscall(SYS_exit, 6);
    }
    if (!strcmp(what, "refused")) {
        build(few, LENGTH(few), SECCOMP_RET_ALLOW, action);
        program[length - 1].code = 0xffff;
        long result = install(how);
        printf("refused %ld %d\n", result, errno);
        struct sock_fprog nowhere = {5, (struct sock_filter *)8};
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere);
        printf("nowhere %ld %d\n", result, errno);
        result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL);
        printf("null %ld %d\n", result, errno);
        live();
        what = "most";
    }
    int is_few = 1;
    if (!strcmp(what, "few")) {
        build(few, LENGTH(few), SECCOMP_RET_ALLOW, action);
    } else if (!strcmp(what, "mute")) {
        build(mute, LENGTH(mute), SECCOMP_RET_ALLOW, action);
    } else if (!strcmp(what, "clock")) {
        build(with_clock, LENGTH(with_clock), SECCOMP_RET_ALLOW, action);
    } else if (!strcmp(what, "split")) {
        is_few = 0;
        // The clock of a thread only; other clocks of the kernel are refused.
        build(unusual, LENGTH(unusual), action, SECCOMP_RET_ALLOW);
        length--;
        add(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 3);
        add(BPF_LD | BPF_W | BPF_ABS, FIELD(args[0]), 0, 0);
        add(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_THREAD_CPUTIME_ID, 1, 0);
        add(BPF_RET | BPF_K, action, 0, 0);
        add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    } else {
        is_few = 0;
        build(unusual, LENGTH(unusual), action, SECCOMP_RET_ALLOW);
    }
    pthread_t threads[4];
    int ends[4][2];
    int several = !strcmp(how, "tsync");
    stays = is_few;
    if (several) {
        for (int i = 0; i < 4; i++) {
            if (pipe(ends[i]) != 0) return 9;
            pthread_create(&threads[i], NULL, computes, ends[i]);
        }
        while (warm < 4) work(own_pipe);
    }
    long result = install(how);
    if (result != 0) return 7;
    entered = 1;
    work(own_pipe);
    if (is_few) finish(4);
    if (several)
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    live();
    if (!strcmp(what, "exec")) {
        execl("/proc/self/exe", "sandbox", "again", NULL);
        return 10;
    }
    say("done\n");
    return 4;
}
