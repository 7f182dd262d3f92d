// CALLS calls of one kind, shared out among THREADS threads that start together: prints the CPU time that one took, ns.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "stackbeat.h"

static const char *const kinds[] = {"malloc", "mutex", "counter", "scope", NULL};
enum { MALLOC, MUTEX, COUNTER, SCOPE };

static long calls_each;
static int kind;
static pthread_barrier_t all_there;

static void *work(void *nothing) {
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  pthread_barrier_wait(&all_there);
  for (long i = 0; i < calls_each; i += 2) {
    if (kind == MUTEX) {
      pthread_mutex_lock(&own);
      pthread_mutex_unlock(&own);
    } else if (kind == COUNTER) {
      stackbeat_counter("counter", i);
      stackbeat_counter("counter", i + 1);
    } else if (kind == SCOPE) {
      stackbeat_scope_begin("scope");
      stackbeat_scope_end();
    } else {
      void *volatile block = malloc(64);
      free(block);
    }
  }
  return nothing;
}

static double cpu_ns(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: calls malloc|mutex|counter|scope THREADS CALLS\n");
    return 2;
  }
  while (kinds[kind] && strcmp(arguments[1], kinds[kind]) != 0) kind++;
  int threads = atoi(arguments[2]);
  calls_each = atol(arguments[3]) / threads;
  pthread_t *all = calloc(threads, sizeof *all);
  pthread_barrier_init(&all_there, NULL, threads);
  double before = cpu_ns();
  for (int i = 0; i < threads; i++) {
    if (pthread_create(&all[i], NULL, work, NULL) != 0) {
      perror("pthread_create");
      return 1;
    }
  }
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  printf("%.3f\n", (cpu_ns() - before) / ((double)calls_each * threads));
  return 0;
}
