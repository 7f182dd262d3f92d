// Native methods of Program.java that stay in the state in which Java code runs.
#include <stdint.h>
#include <time.h>
#include <unistd.h>

void Java_Program_stick(void *env, void *class, int32_t ms) {
    for (int32_t i = 0; i < ms; i++) usleep(1000);
}

static int64_t cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

void Java_Program_burn(void *env, void *class, int32_t ms) {
    for (int64_t end = cpu_ms() + ms; cpu_ms() < end;)
        for (volatile int i = 0; i < 100000; i++);
}
