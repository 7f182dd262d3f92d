/* A runtime of managed code, as small as one can be, that tells stackbeat of itself by stackbeat_runtime.h: it makes machine
   code, interprets, inlines, moves methods and uses their memory again. It is a library of its own, beside the agent.

   In each round a thread makes new methods, whose names say whose they are, at which depth, and in which round, and runs
   them in a chain:

     native -> compiled d0 -> native -> compiled d1 (with d1i inlined) -> interpreter: d2, d3 -> native -> compiled d4 -> native leaf

   So of any stack it can be told from the names alone whether a frame is another method's.

   toy_runtime MODE MILLISECONDS (of CPU time; `blocked`: of time): `end`: ends by itself; `kill`: kills itself in the middle;
   `late`: waits for an agent; `blocked`: each thread waits at the end of its first chain, those with odd numbers in a hooked
   call, the others past all hooks, until all are killed; of each kind every other one has frame pointers. */
#define _GNU_SOURCE
#include "stackbeat_runtime.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, SLOTS = 64, SLOT_BYTES = 256, DEPTHS = 5, ROUNDS = 200 };

static const struct stackbeat_runtime *agent;
static volatile int stop;
static int blocks;

/* Interpreted frames, and calls of the interpreter, of a thread. What is published is complete. */
struct frame {
    struct frame *outer;
    uint32_t *method; /* its number, in memory that comes and goes */
    uint32_t position;
};
struct call {
    struct call *outer;
    struct frame *innermost;
    uint64_t anchor;
};
struct thread {
    int number;
    long round;
    struct call *innermost;
    void *slots[DEPTHS];
    uint64_t codes[DEPTHS];
};
static __thread struct thread *self __attribute__((tls_model("initial-exec")));

/* Places for code, of which a thread takes any. */
static char *slots;
static int is_taken[SLOTS];

static char *take_slot(unsigned *seed)
{
    for (;;) {
        int slot = rand_r(seed) % SLOTS;
        if (!__atomic_exchange_n(&is_taken[slot], 1, __ATOMIC_ACQUIRE))
            return slots + slot * SLOT_BYTES;
    }
}

static void give_slot(char *at)
{
    __atomic_store_n(&is_taken[(at - slots) / SLOT_BYTES], 0, __ATOMIC_RELEASE);
}

static uint32_t add_method(struct thread *thread, const char *depth)
{
    char name[64];
    struct stackbeat_line lines[] = {{0, 10}, {20, 11}};
    int bytes = snprintf(name, sizeof name, "t%d.g%ld.%s", thread->number, thread->round % ROUNDS, depth);
    struct stackbeat_method method = {
        .name = name, .name_bytes = bytes, .file = "toy.src", .file_bytes = 7, .first_line = 9, .lines = lines, .line_count = 2};
    return agent ? agent->add_method(&method) : 0;
}

typedef void (*code_function)(struct thread *);

static char *put(char *at, const void *bytes, int count)
{
    memcpy(at, bytes, count);
    return at + count;
}

/* Code that calls one function and then another one, with or without a frame pointer. The second call is one of the method
   that is inlined, if there is one. */
static code_function compile(struct thread *thread, int depth, void (*first)(struct thread *), void (*second)(struct thread *),
                             const char *name, const char *inlined)
{
    unsigned seed = thread->round * 31 + thread->number * 7 + depth;
    char *start = take_slot(&seed), *at = start;
    int has_fp = blocks ? thread->number / 2 % 2 : rand_r(&seed) % 2;
    struct stackbeat_unwind_row unwind[8];
    int rows = 0;
#define ROW(...) (unwind[rows++] = (struct stackbeat_unwind_row){(uint32_t)(at - start), __VA_ARGS__})
    ROW(STACKBEAT_FROM_SP, 8, 0);
    if (has_fp) {
        at = put(at, "\x55", 1); /* push rbp */
        ROW(STACKBEAT_FROM_SP, 16, -16);
        at = put(at, "\x48\x89\xe5", 3); /* mov rbp, rsp */
        ROW(STACKBEAT_FROM_FP, 16, -16);
        at = put(at, "\x53\x50", 2); /* push rbx; push rax */
    } else {
        at = put(at, "\x53", 1); /* push rbx */
        ROW(STACKBEAT_FROM_SP, 16, 0);
        at = put(at, "\x48\x83\xec\x10", 4); /* sub rsp, 16 */
        ROW(STACKBEAT_FROM_SP, 32, 0);
    }
    at = put(at, "\x48\x89\xfb", 3); /* mov rbx, rdi */
    uint32_t second_at = 0;
    for (int i = 0; i < 2; i++) {
        void *target = i ? (void *)second : (void *)first;
        if (i)
            second_at = at - start;
        at = put(at, "\x48\x89\xdf\x48\xb8", 5); /* mov rdi, rbx; mov rax, target */
        at = put(at, &target, 8);
        at = put(at, "\xff\xd0", 2); /* call rax */
    }
    if (has_fp) {
        at = put(at, "\x58\x5b", 2); /* pop rax; pop rbx */
        at = put(at, "\x5d", 1);     /* pop rbp */
        ROW(STACKBEAT_FROM_SP, 8, 0);
    } else {
        at = put(at, "\x48\x83\xc4\x10", 4); /* add rsp, 16 */
        ROW(STACKBEAT_FROM_SP, 16, 0);
        at = put(at, "\x5b", 1); /* pop rbx */
        ROW(STACKBEAT_FROM_SP, 8, 0);
    }
    at = put(at, "\xc3", 1); /* ret */
    struct stackbeat_frame frames[] = {{add_method(thread, name), 5}, {inlined ? add_method(thread, inlined) : 0, 25}};
    struct stackbeat_code_row code[] = {{0, 0, 1}, {second_at, 0, inlined ? 2 : 1}};
    struct stackbeat_code piece = {.start = (uint64_t)start, .bytes = at - start,
                                   .unwind = unwind, .unwind_count = rows,
                                   .rows = code, .row_count = 2,
                                   .frames = frames, .frame_count = 2};
    thread->slots[depth] = start;
    thread->codes[depth] = agent ? agent->add_code(&piece) : 0;
    if (agent && !thread->codes[depth])
        abort();
    return (code_function)start;
}

__attribute__((noinline)) static void toy_spin(struct thread *thread)
{
    for (volatile int i = 0; i < 3000; i++) {}
    void *volatile memory = malloc(100);
    free(memory);
    (void)thread;
}

static long futex(int *word, int operation, int value);

__attribute__((noinline)) static void toy_leaf(struct thread *thread)
{
    static int never;
    if (blocks && thread->number % 2) {
        struct timespec time = {60, 0};
        nanosleep(&time, 0);
    }
    while (blocks)
        futex(&never, FUTEX_WAIT, 0);
    if (thread->round % 5 == 0) {
        struct timespec time = {0, 1500000};
        nanosleep(&time, 0);
    }
    for (int i = 0; i < 20; i++)
        toy_spin(thread);
    __asm__ volatile("");
}

__attribute__((noinline)) static void toy_native(struct thread *thread);

/* Runs d2 and, in it, d3, without a native frame between them. */
__attribute__((noinline, section("toy_interpreter"))) static void toy_interpret(struct thread *thread)
{
    /* Numbers lie in memory that other rounds and other threads use, too. */
    uint32_t *numbers[2] = {malloc(sizeof(uint32_t)), malloc(sizeof(uint32_t))};
    *numbers[0] = add_method(thread, "d2");
    *numbers[1] = add_method(thread, "d3");
    struct frame frames[2] = {{0, numbers[0], 3}, {&frames[0], numbers[1], 22}};
    struct call call = {thread->innermost, &frames[0], 0};
    call.anchor = (uint64_t)&call;
    __atomic_store_n(&thread->innermost, &call, __ATOMIC_RELEASE);
    toy_spin(thread);
    __atomic_store_n(&call.innermost, &frames[1], __ATOMIC_RELEASE);
    toy_native(thread);
    __atomic_store_n(&call.innermost, &frames[0], __ATOMIC_RELEASE);
    __atomic_store_n(&thread->innermost, call.outer, __ATOMIC_RELEASE);
    free(numbers[0]);
    free(numbers[1]);
}
extern char __start_toy_interpreter[], __stop_toy_interpreter[];

static void toy_native(struct thread *thread)
{
    code_function code = thread->innermost ? compile(thread, 4, toy_spin, toy_leaf, "d4", 0)
                                           : compile(thread, 1, toy_spin, toy_interpret, "d1", "d1i");
    code(thread);
    __asm__ volatile("");
}

static void remove_code(struct thread *thread, int depth)
{
    if (!thread->slots[depth])
        return;
    if (agent)
        agent->remove_code(thread->codes[depth]);
    memset(thread->slots[depth], 0xcc, SLOT_BYTES);
    give_slot(thread->slots[depth]);
    thread->slots[depth] = 0;
}

/* The source's function: interpreted frames of the calling thread. */
static void find(void *argument, void *search)
{
    struct thread *thread = self;
    struct call *at;
    (void)argument;
    if (!thread)
        return;
    for (at = __atomic_load_n(&thread->innermost, __ATOMIC_ACQUIRE); at;) {
        struct call call;
        if (!agent->read(search, (uint64_t)at, &call, sizeof call) || !agent->begin_run(search, call.anchor))
            return;
        for (struct frame *f = call.innermost; f;) {
            struct frame frame;
            uint32_t number;
            if (!agent->read(search, (uint64_t)f, &frame, sizeof frame) ||
                !agent->read(search, (uint64_t)frame.method, &number, sizeof number) ||
                !agent->add_frame(search, number, frame.position))
                return;
            f = frame.outer;
        }
        at = call.outer;
    }
}

static void *run(void *number)
{
    struct thread thread = {.number = (int)(long)number};
    self = &thread;
    for (; !stop; thread.round++) {
        compile(&thread, 0, toy_spin, toy_native, "d0", 0)(&thread);
        for (int depth = 0; depth < DEPTHS; depth++)
            remove_code(&thread, depth);
    }
    self = 0;
    return 0;
}

/* A monitor whose object has a number. It waits and wakes past all hooks. */
enum { MONITOR = 4242 };
static int monitor_word = 1;
static int holder, enters;

__attribute__((noinline)) static long futex(int *word, int operation, int value)
{
    long result;
    register long fourth __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_futex), "D"(word), "S"(operation), "d"(value), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}

static void *enter_monitor(void *unused)
{
    struct stackbeat_wait wait;
    __atomic_store_n(&enters, 1, __ATOMIC_RELEASE);
    if (agent)
        agent->begin_wait(&wait, STACKBEAT_MONITOR_ENTER, MONITOR, holder);
    while (__atomic_load_n(&monitor_word, __ATOMIC_ACQUIRE))
        futex(&monitor_word, FUTEX_WAIT, 1);
    if (agent)
        agent->end_wait(&wait, 0);
    return unused;
}

static void leave_monitor(void)
{
    struct stackbeat_wake wake;
    if (agent)
        agent->begin_wake(&wake, MONITOR, 1);
    __atomic_store_n(&monitor_word, 0, __ATOMIC_RELEASE);
    futex(&monitor_word, FUTEX_WAKE, 1);
    if (agent)
        agent->end_wake(&wake, STACKBEAT_MONITOR_EXIT, MONITOR);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int toy_main(int count, char **arguments)
{
    pthread_t threads[THREADS], other;
    if (count != 3)
        return 2;
    agent = stackbeat_find_runtime();
    /* The agent comes when the program runs. */
    if (!strcmp(arguments[1], "late")) {
        printf("waiting, %s\n", agent ? "with an agent" : "without one");
        fflush(stdout);
        for (struct timespec moment = {0, 5000000}; !agent; agent = stackbeat_find_runtime())
            nanosleep(&moment, 0);
    }
    slots = mmap(0, SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (agent) {
        struct stackbeat_source source = {(uint64_t)__start_toy_interpreter, (uint64_t)__stop_toy_interpreter, find, 0};
        if (!agent->add_source(&source))
            return 3;
    }
    blocks = !strcmp(arguments[1], "blocked");
    holder = gettid();
    pthread_create(&other, 0, enter_monitor, 0);
    while (!__atomic_load_n(&enters, __ATOMIC_ACQUIRE))
        sched_yield();
    struct timespec time = {0, 30000000};
    nanosleep(&time, 0);
    leave_monitor();
    pthread_join(other, 0);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, run, (void *)i);
    /* On a busy machine the threads run for a part of the time only. Those that block do not compute. */
    clockid_t clock = blocks ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
    double end = seconds(clock) + atoi(arguments[2]) / 1e3;
    for (time = (struct timespec){0, 5000000}; seconds(clock) < end;)
        nanosleep(&time, 0);
    if (blocks || !strcmp(arguments[1], "kill"))
        kill(getpid(), SIGKILL);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("done, %s\n", agent ? "with an agent" : "alone");
    return 0;
}
