/* Programs of different shapes for comparing sampled with exact times. One argument: the shape. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define PLAIN NOINLINE __attribute__((no_instrument_function))

static volatile uint64_t sink;

/* About `rounds` × 1.3 ns of arithmetic. */
PLAIN static void work(unsigned rounds) {
  uint64_t x = sink | 1;
  for (unsigned i = 0; i < rounds; i++)
    x = x * 6364136223846793005u + 1442695040888963407u;
  sink = x;
}

/* recursion: a tree with work at its leaves and on the way back */
NOINLINE void leaf(unsigned n) { work(300 + n % 7 * 100); }
NOINLINE void descend(unsigned depth) {
  if (depth == 0) {
    leaf(depth);
    return;
  }
  descend(depth - 1);
  descend(depth - 1);
  work(150);
}
NOINLINE void chain(unsigned depth) {
  if (depth == 0) {
    work(400000);
    return;
  }
  chain(depth - 1);
  work(3000);
}
NOINLINE void recursion(void) {
  for (int i = 0; i < 60; i++) {
    descend(14);
    chain(100);
  }
}

/* short: functions far shorter than any interval, in loops */
NOINLINE void tiny(void) { work(60); }
NOINLINE void small(void) { work(250); }
NOINLINE void medium(void) { work(1500); }
NOINLINE void twice_tiny(void) {
  tiny();
  tiny();
}
NOINLINE void loop_of_short(void) {
  for (int i = 0; i < 900000; i++) {
    twice_tiny();
    small();
    if (i % 4 == 0)
      medium();
  }
}

/* mixed: durations around the interval, with allocations */
NOINLINE void us_50(void) { work(25000); }
NOINLINE void us_300(void) { work(150000); }
NOINLINE void ms_2(void) { work(1000000); }
NOINLINE void ms_10(void) { work(5000000); }
NOINLINE void allocates(void) {
  for (int i = 0; i < 400; i++) {
    char *p = malloc(64 + (size_t)i);
    if (p) {
      p[0] = 1;
      sink += (uint64_t)p[0];
      free(p);
    }
    work(100);
  }
}
NOINLINE void mixed(void) {
  for (int i = 0; i < 300; i++) {
    us_50();
    us_300();
    allocates();
    us_300();
    ms_2();
    if (i % 5 == 0)
      ms_10();
  }
}

/* phases: computing, reading and writing, sleeping, waiting for a lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
NOINLINE void compute(void) { work(4000000); }
NOINLINE void write_and_read(void) {
  static char block[1 << 16];
  char path[] = "/tmp/stackbeat-truth-XXXXXX";
  int fd = mkstemp(path);
  if (fd < 0)
    abort();
  unlink(path);
  for (int i = 0; i < 200; i++)
    if (write(fd, block, sizeof block) < 0)
      abort();
  fsync(fd);
  lseek(fd, 0, SEEK_SET);
  while (read(fd, block, sizeof block) > 0)
    work(2000);
  close(fd);
}
NOINLINE void sleeps(void) {
  struct timespec t = {0, 7000000};
  nanosleep(&t, NULL);
}
NOINLINE void takes_lock(void) {
  pthread_mutex_lock(&lock);
  work(200000);
  pthread_mutex_unlock(&lock);
}
NOINLINE void *holds_lock(void *unused) {
  for (int i = 0; i < 80; i++) {
    pthread_mutex_lock(&lock);
    work(1500000);
    pthread_mutex_unlock(&lock);
    usleep(300);
  }
  return unused;
}
NOINLINE void phases(void) {
  pthread_t other;
  pthread_create(&other, NULL, holds_lock, NULL);
  for (int i = 0; i < 40; i++) {
    compute();
    write_and_read();
    sleeps();
    takes_lock();
  }
  pthread_join(other, NULL);
}

int main(int argc, char **argv) {
  const char *shape = argc > 1 ? argv[1] : "";
  if (!strcmp(shape, "recursion"))
    recursion();
  else if (!strcmp(shape, "short"))
    loop_of_short();
  else if (!strcmp(shape, "mixed"))
    mixed();
  else if (!strcmp(shape, "phases"))
    phases();
  else {
    fprintf(stderr, "usage: %s recursion|short|mixed|phases\n", argv[0]);
    return 2;
  }
  return 0;
}
