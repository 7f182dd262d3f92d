/* Threads with frames of stale_interpreter.c's interpreter, whose memory another thread unmaps, protects and cuts meanwhile.

   stale_frames HANDLER MILLISECONDS: HANDLER says what the program does about SIGSEGV:
     default  nothing
     own      a handler on an alternate stack that lets its own loads fail, as a JVM's null checks
     plain    the same on the thread's own stack, by signal(2)
     once     the same with SA_RESETHAND, installed again by each fault
     raw      the same, installed past libc
     blocked  all signals are blocked in threads that run frames
     crash    nothing, and crashes at the end */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

void stale_thread(uint64_t *state, uint64_t self);
void stale_code(char *at, char *texts, const char *name);
void stale_run(uint64_t *state, char *innermost, char *outermost, void (*call)(void));

enum { THREADS = 4, PAGE = 4096, FRAME = 128 };
static const char *mode;
static volatile int stop;
static long checks, recovered;

/* Of each thread: code and frames that stay, and a page with both that comes and goes. Odd pages are a file's. */
static char kept_code[2048], kept_frames[THREADS][3 * FRAME];
static char *pages[THREADS];
static int file;

/* A load that a handler of the program's lets fail. */
extern char checked_load_at[], checked_load_failed[];
int checked_load(const int *at);
__asm__(".text\nchecked_load:\nchecked_load_at: movl (%rdi), %eax\nret\nchecked_load_failed: movl $-1, %eax\nret\n");

static void install(void);

static void on_fault(int signal, siginfo_t *info, void *context)
{
    ucontext_t *found = context;
    (void)info;
    if (found->uc_mcontext.gregs[REG_RIP] != (greg_t)checked_load_at) {
        static const char text[] = "a fault that is not the program's\n";
        write(2, text, sizeof text - 1);
        _exit(3);
    }
    found->uc_mcontext.gregs[REG_RIP] = (greg_t)checked_load_failed;
    __atomic_add_fetch(&recovered, 1, __ATOMIC_RELAXED);
    if (!strcmp(mode, "once"))
        install();
}

static void on_fault_plain(int signal)
{
    /* The context is the third argument, whatever the handler asks for. */
    void *context;
    __asm__ volatile("movq %%rdx, %0" : "=r"(context));
    on_fault(signal, 0, context);
}

struct kernel_action { void *handler; unsigned long flags; void *restorer; unsigned long mask; };
void restorer(void);
__asm__(".text\nrestorer: movl $15, %eax\nsyscall\n");

static void install(void)
{
    int signals[] = {SIGSEGV, SIGBUS};
    for (int i = 0; i < 2; i++) {
        struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, seen;
        if (!strcmp(mode, "own") || !strcmp(mode, "once")) {
            if (*mode == 'o' && mode[1] == 'n')
                action.sa_flags |= SA_RESETHAND | SA_NODEFER;
            sigaction(signals[i], &action, 0);
            sigaction(signals[i], 0, &seen);
            if (seen.sa_sigaction != on_fault)
                _exit(4);
        } else if (!strcmp(mode, "plain")) {
            signal(signals[i], on_fault_plain);
            if (signal(signals[i], on_fault_plain) != on_fault_plain)
                _exit(4);
        } else if (!strcmp(mode, "raw")) {
            struct kernel_action raw = {on_fault, 0x04000000 | SA_SIGINFO | SA_ONSTACK, restorer, 0};
            syscall(SYS_rt_sigaction, signals[i], &raw, 0, 8);
        } else {
            sigaction(signals[i], 0, &seen);
            if (seen.sa_handler != SIG_DFL)
                _exit(4);
        }
    }
}

static void work(void)
{
    int own = !strcmp(mode, "own") || !strcmp(mode, "plain") || !strcmp(mode, "once") || !strcmp(mode, "raw");
    for (int i = 0; i < 200; i++) {
        void *volatile memory = malloc(64 + i);
        free(memory);
        if (own && i % 50 == 0) {
            /* One thread at a time, because each fault may install the handler anew. */
            static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&mutex);
            if (checked_load((int *)8) != -1)
                _exit(5);
            checks++;
            pthread_mutex_unlock(&mutex);
        }
    }
    for (volatile int i = 0; i < 20000; i++) {}
}

static void *run(void *number)
{
    long i = (long)number;
    static uint64_t states[THREADS][64];
    char *frames = kept_frames[i];
    if (!strcmp(mode, "blocked")) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, 0);
    }
    stale_thread(states[i], (uint64_t)pthread_self());
    for (long round = 0; !stop; round++) {
        char *second = frames + FRAME;
        uint64_t code = (uint64_t)kept_code;
        if (round % 3 == 1)
            code = (uint64_t)pages[i];
        if (round % 3 == 2)
            second = pages[i] + 2048;
        for (int f = 0; f < 3; f++)
            *(uint64_t *)(frames + f * FRAME) = f == 1 ? code : (uint64_t)kept_code;
        *(uint64_t *)(frames + 8) = (uint64_t)second;
        *(uint64_t *)(frames + FRAME + 8) = (uint64_t)(frames + 2 * FRAME);
        stale_run(states[i], frames, frames + 2 * FRAME, work);
    }
    return 0;
}

static void fill(int i)
{
    stale_code(pages[i], pages[i] + 1024, "comes_and_goes");
    *(uint64_t *)(pages[i] + 2048) = (uint64_t)kept_code;
    *(uint64_t *)(pages[i] + 2048 + 8) = (uint64_t)(kept_frames[i] + 2 * FRAME);
}

static void *come_and_go(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    for (long round = 0; !stop; round++) {
        int comes = round & 1;
        ftruncate(file, comes ? THREADS * PAGE : 0);
        for (int i = 0; i < THREADS; i++) {
            if (i % 2 == 0 && comes)
                mmap(pages[i], PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            else if (i % 2 == 0 && round & 2)
                munmap(pages[i], PAGE);
            else if (i % 2 == 0)
                mprotect(pages[i], PAGE, PROT_NONE);
            if (comes)
                fill(i);
        }
        struct timespec short_time = {0, 20000};
        nanosleep(&short_time, 0);
    }
    return unused;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    mode = arguments[1];
    int milliseconds = atoi(arguments[2]);
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    if (!strcmp(mode, "own"))
        sigaltstack(&alternate, 0);
    install();
    file = memfd_create("pages", 0);
    ftruncate(file, THREADS * PAGE);
    char *all = mmap(0, THREADS * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    stale_code(kept_code, kept_code + 1024, "stays");
    for (int i = 0; i < THREADS; i++) {
        pages[i] = all + i * PAGE;
        fill(i);
    }
    pthread_t threads[THREADS], other;
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, run, (void *)i);
    pthread_create(&other, 0, come_and_go, 0);
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, 0);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    pthread_join(other, 0);
    if (recovered != checks) {
        fprintf(stderr, "%ld checks, %ld recovered\n", checks, recovered);
        return 6;
    }
    printf("ok %ld\n", checks);
    fflush(stdout);
    if (!strcmp(mode, "crash"))
        *(volatile int *)8 = 1;
    return 0;
}
