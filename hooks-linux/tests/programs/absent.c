// Functions with hooks that no loaded library has are not there: neither to weak references nor to dlsym.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int io_uring_submit_and_wait(void *, unsigned) __attribute__((weak));
extern int __io_uring_get_cqe(void *, void *, unsigned, unsigned, void *) __attribute__((weak));

int main(void) {
  printf("weak: %d %d\n", io_uring_submit_and_wait != NULL, __io_uring_get_cqe != NULL);
  const char *names[] = {"io_uring_enter",     "io_uring_enter2",
                         "io_uring_wait_cqes", "io_uring_submit_and_wait_timeout",
                         "malloc",             "pthread_cond_wait"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    printf("%s: %d %d\n", names[i], dlsym(RTLD_DEFAULT, names[i]) != NULL, dlsym(RTLD_NEXT, names[i]) != NULL);
  }
  return 0;
}
