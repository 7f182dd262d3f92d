// Allocates, waits and computes on three threads, in frames that mod.rs looks for. Prints where they are.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Each thread's own: one for all would be freed twice now and then.
static __thread void *volatile kept;
volatile long sink;

__attribute__((noinline)) long computes(long a) {
  for (int i = 0; i < 40000; i++) sink += i ^ a;
  return sink;
}

__attribute__((noinline)) void inner(long a) {
  for (int i = 0; i < 5; i++) {
    kept = malloc(100 + a % 7);
    free(kept);
  }
  sink++;
}

__attribute__((noinline)) void outer(long a) {
  inner(a);
  sink += computes(a);
}

static void *work(void *argument) {
  for (int i = 0; i < 200; i++) {
    outer(i);
    if (i % 10 == 0) {
      pthread_mutex_lock(&lock);
      usleep(500);
      pthread_mutex_unlock(&lock);
    }
  }
  return argument;
}

int main(void) {
  printf("%lx %lx %lx\n", (long)inner, (long)outer, (long)computes);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  return 3;
}
