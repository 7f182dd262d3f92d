// Threads that compute without passing a hook, one that waits where no hook sees it, and many that are soon over.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { COMPUTING = 2, BRIEF = 300 };
static const uint64_t MOST_NS = 1200000000;

// A system call that no hook sees.
static long bare(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    bare(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&now, 0, 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static volatile uint64_t sink;

__attribute__((noinline)) static void spin(uint64_t ns) {
    uint64_t until = cpu_ns() + ns;
    while (cpu_ns() < until)
        for (int i = 0; i < 50000; i++) sink += i;
}

__attribute__((noinline)) static void short_part(void) { spin(3000000); sink++; }
__attribute__((noinline)) static void long_part(void) { spin(9000000); sink++; }

static uint64_t in_short[COMPUTING], in_long[COMPUTING];

static void *compute(void *which) {
    int i = (int)(intptr_t)which;
    while (cpu_ns() < MOST_NS) {
        uint64_t begin = cpu_ns();
        short_part();
        uint64_t middle = cpu_ns();
        long_part();
        in_short[i] += middle - begin;
        in_long[i] += cpu_ns() - middle;
    }
    return NULL;
}

static int poller;
static volatile int is_over;
static int cut;

// A call that a stop would end with EINTR.
__attribute__((noinline)) static void waits_unseen(void) {
    struct epoll_event event;
    long result = bare(SYS_epoll_wait, poller, (long)&event, 1, 700);
    if (result != 0) cut++;
    sink++;
}

static void *idle(void *unused) {
    while (!is_over) waits_unseen();
    return unused;
}

static void *brief(void *unused) {
    for (int i = 0; i < 200000; i++) sink += i;
    return unused;
}

int main(int count, char **arguments) {
    (void)arguments;
    // Where only parents may trace (Yama), and the recorder is not the one that does.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    int computing = count > 1 ? 0 : COMPUTING;
    pthread_t threads[COMPUTING], waiting;
    poller = epoll_create1(0);
    pthread_create(&waiting, NULL, idle, NULL);
    for (int i = 0; i < computing; i++) pthread_create(&threads[i], NULL, compute, (void *)(intptr_t)i);
    if (computing) {
        for (int i = 0; i < BRIEF; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, brief, NULL);
            pthread_join(thread, NULL);
        }
    } else {
        sleep(4);
    }
    for (int i = 0; i < computing; i++) pthread_join(threads[i], NULL);
    is_over = 1;
    pthread_join(waiting, NULL);
    uint64_t parts[2] = {0, 0};
    for (int i = 0; i < computing; i++) {
        parts[0] += in_short[i];
        parts[1] += in_long[i];
    }
    printf("%llu %llu %d\n", (unsigned long long)parts[0], (unsigned long long)parts[1], cut);
    return 0;
}
