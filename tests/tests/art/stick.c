// Native methods of Program.java. Those that stay in the state in which Java code runs:
#include <stdint.h>
#include <time.h>
#include <unistd.h>

void Java_Program_stick(void *env, void *class, int32_t ms) {
    for (int32_t i = 0; i < ms; i++) usleep(1000);
}

static int64_t now_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void compute(clockid_t clock, int32_t ms) {
    for (int64_t end = now_ms(clock) + ms; now_ms(clock) < end;)
        for (volatile int i = 0; i < 100000; i++);
}

void Java_Program_burn(void *env, void *class, int32_t ms) { compute(CLOCK_THREAD_CPUTIME_ID, ms); }

void Java_Program_late(void *env, void *class, int32_t ms) { compute(CLOCK_MONOTONIC, ms); }

// In the usual state of native methods:
int32_t Java_Program_plain(void *env, void *class, int32_t n) { return n + 1; }

void Java_Program_nap(void *env, void *class, int32_t ms) { usleep(1000 * ms); }
