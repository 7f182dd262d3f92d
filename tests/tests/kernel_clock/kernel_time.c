// Computes, and spends time in the kernel in between: by system calls that follow each other closely, by page faults,
// or by system calls that no hook sees. Says how much CPU time each function has used, by the thread's own clock.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define PART __attribute__((noinline)) static

PART long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static volatile double value = 1;

PART void computes(int rounds) {
    for (int i = 0; i < rounds; i++) value = value * 1.0000001;
}

PART void touches(volatile char *pages, long bytes) {
    for (long i = 0; i < bytes; i += 4096) pages[i] = 1;
}

// A bare instruction: no hook sees it.
PART void asks(void) {
    static char bytes[8192];
    for (int i = 0; i < 4; i++) {
        long result;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_getrandom), "D"(bytes), "S"(sizeof bytes), "d"(0)
                         : "rcx", "r11", "memory");
    }
}

int main(int count, char **arguments) {
    int faults = count > 1 && !strcmp(arguments[1], "faults");
    int unseen = count > 1 && !strcmp(arguments[1], "unseen");
    long of_computes = 0, in_kernel = 0, bytes = 1 << 20;
    while (now() < 700000000L) {
        volatile char *pages = MAP_FAILED;
        if (faults) {
            pages = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise((void *)pages, bytes, MADV_NOHUGEPAGE);
        }
        long begin = now();
        if (faults) touches(pages, bytes);
        if (unseen) asks();
        long middle = now();
        computes(faults || unseen ? 60000 : 8000);
        of_computes += now() - middle;
        in_kernel += middle - begin;
        if (faults) munmap((void *)pages, bytes);
    }
    printf("computes %ld\nin kernel %ld\nall %ld\n", of_computes, in_kernel, now());
    return 0;
}
