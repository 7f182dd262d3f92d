/* Prints what a call returned and what it left in errno. 77 stands for "left alone". */
#ifndef SHOW_H
#define SHOW_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call)                                                                                 \
    do {                                                                                           \
        errno = 77;                                                                                \
        long result_ = (long)(call);                                                               \
        int error_ = errno;                                                                        \
        printf("%s = %ld, errno %d\n", #call, result_, error_);                                    \
        fflush(stdout);                                                                            \
    } while (0)

/* For calls whose value differs from run to run. */
#define SHOW_TRUE(call)                                                                            \
    do {                                                                                           \
        errno = 77;                                                                                \
        int result_ = !!(call);                                                                    \
        int error_ = errno;                                                                        \
        printf("%s: %d, errno %d\n", #call, result_, error_);                                      \
        fflush(stdout);                                                                            \
    } while (0)

/* Until another process sleeps in a call. */
static inline void wait_until_asleep(int pid) {
    char path[64], text[256];
    for (int asleep = 0; asleep < 3;) {
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *f = fopen(path, "r");
        size_t got = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f) fclose(f);
        text[got] = 0;
        char *state = strrchr(text, ')');
        asleep = state && state[2] == 'S' ? asleep + 1 : 0;
        usleep(10000);
    }
}

static inline struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}
#endif
