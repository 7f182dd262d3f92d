// A small server: parses, renders, stores. What it does more of is said by its arguments:
//   shop ROUNDS [parse|alloc|sleep|lock]
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;
static pthread_mutex_t stock = PTHREAD_MUTEX_INITIALIZER;
static volatile int holding;

static __attribute__((noinline)) void spin(uint64_t n) {
  uint64_t x = sink | 1;
  for (uint64_t i = 0; i < n; i++) x = x * 6364136223846793005u + 1442695040888963407u;
  sink = x;
}

static __attribute__((noinline)) void parse(int more) { spin(more ? 700000 : 300000); }

static __attribute__((noinline)) void render(int more) {
  spin(100000);
  for (int i = 0; i < (more ? 15000 : 10000); i++) {
    char *text = malloc(200 + i % 100);
    text[0] = (char)i;
    sink += (uint64_t)text[0];
    free(text);
  }
}

static void nap(long ms) {
  struct timespec t = {0, ms * 1000000};
  nanosleep(&t, NULL);
}

static __attribute__((noinline)) void flush(void) { nap(3); }

static __attribute__((noinline)) void count_stock(void) {
  pthread_mutex_lock(&stock);
  holding = 1;
  nap(3);
  pthread_mutex_unlock(&stock);
}

static void *accountant(void *unused) {
  (void)unused;
  count_stock();
  return NULL;
}

static __attribute__((noinline)) void take(int wait) {
  pthread_t thread;
  if (wait) {
    holding = 0;
    pthread_create(&thread, NULL, accountant, NULL);
    while (!holding) nap(0);
  }
  pthread_mutex_lock(&stock);
  sink++;
  pthread_mutex_unlock(&stock);
  if (wait) pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  const char *more = argc > 2 ? argv[2] : "";
  for (int i = 0; i < rounds; i++) {
    parse(!strcmp(more, "parse"));
    render(!strcmp(more, "alloc"));
    take(!strcmp(more, "lock"));
    if (!strcmp(more, "sleep")) flush();
  }
  printf("%d\n", rounds);
  return 0;
}
