/* Computes where no signal of the recorder's may come: on an alternate stack that has room for one frame only, and under a
 * filter that kills whoever returns from a handler. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;
static void on_signal(int signal) { (void)signal; handled++; }

static void computes(double seconds) {
    struct timespec t;
    double end = 0, now;
    do {
        for (volatile int i = 0; i < 20000; i++);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = t.tv_sec + t.tv_nsec / 1e9;
        if (!end) end = now + seconds;
    } while (now < end);
}

static void *on_small_stack(void *nothing) {
    long page = sysconf(_SC_PAGESIZE), bytes = sysconf(_SC_MINSIGSTKSZ) + 1024;
    long pages = (bytes + page - 1) / page * page;
    char *low = mmap(NULL, page + pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(low, page, PROT_NONE);
    stack_t small = {.ss_sp = low + page, .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
    computes(0.02);
    for (int i = 0; i < 10; i++) {
        sigaltstack(&small, NULL);
        for (char *at = small.ss_sp; at < low + page + 512; at++) *at = 77;
        computes(0.02);
        raise(SIGUSR1);
        int painted = 1;
        for (char *at = small.ss_sp; at < low + page + 512; at++) painted &= *at == 77;
        if (!painted) puts("something came below the program's own frame");
        sigaltstack(&none, NULL);
        computes(0.01);
    }
    return nothing;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, on_small_stack, NULL);
    pthread_join(thread, NULL);
    printf("handled %d\n", handled);
    fflush(stdout);

    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    computes(0.02);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    computes(0.1);
    puts("computed under a filter");
    return 0;
}
