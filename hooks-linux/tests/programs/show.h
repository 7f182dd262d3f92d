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

static inline struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}
#endif
