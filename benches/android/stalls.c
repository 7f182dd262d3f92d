/* How long writes into a mapping are held up while the kernel writes the mapping's file to the disk: a thread for each kind of
 * mapping writes records of 64 bytes, as the agent does, and times each.
 *
 *   stalls FOLDER SECONDS SYNC_MS BUSY
 *
 * FOLDER is on the disk. SYNC_MS: how often the file is written out, beside what the kernel does by itself; 0: never. BUSY: how many
 * MiB another thread writes to a file there and syncs, all the time. Prints a line for each kind: NAME WRITES and how many took
 * longer than 100 us, 1 ms, 10 ms, and the longest in us. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 16 << 20, RECORD = 64, PAUSE_NS = 50000, AT_ONCE = 8 };

struct kind {
  const char *name;
  int file;
  char *memory;
  long writes, over_100us, over_1ms, over_10ms, longest_ns;
};

static atomic_int is_over;

static long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Some records, then a pause, around the mapping as around sub-buffers. */
static void *write_records(void *argument) {
  struct kind *kind = argument;
  char record[RECORD];
  memset(record, 7, sizeof record);
  for (size_t at = 0; !is_over;) {
    for (int i = 0; i < AT_ONCE; i++, at = (at + RECORD) % BYTES) {
      long begin = now_ns();
      memcpy(kind->memory + at, record, RECORD);
      long took = now_ns() - begin;
      kind->writes++;
      kind->over_100us += took > 100000;
      kind->over_1ms += took > 1000000;
      kind->over_10ms += took > 10000000;
      if (took > kind->longest_ns) kind->longest_ns = took;
    }
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, 0);
  }
  return 0;
}

struct sync { int file; long ms; };

static void *sync_file(void *argument) {
  struct sync *sync = argument;
  while (!is_over) {
    usleep(sync->ms * 1000);
    fdatasync(sync->file);
  }
  return 0;
}

struct busy { char path[4096]; long mib; };

static void *write_others(void *argument) {
  struct busy *busy = argument;
  char *block = calloc(1, 1 << 20);
  int file = open(busy->path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  while (!is_over) {
    for (long i = 0; i < busy->mib && !is_over; i++)
      if (pwrite(file, block, 1 << 20, i << 20) < 0) abort();
    fsync(file);
  }
  return 0;
}

static void map(struct kind *kind) {
  if (kind->file < 0 || posix_fallocate(kind->file, 0, BYTES)) {
    perror(kind->name);
    exit(1);
  }
  kind->memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, kind->file, 0);
  if (kind->memory == MAP_FAILED) abort();
  /* What is timed are no first touches. */
  for (size_t i = 0; i < BYTES; i += 4096) kind->memory[i] = 1;
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  char path[4096];
  snprintf(path, sizeof path, "%s/mapping", arguments[1]);
  struct kind kinds[] = {
      {.name = "file", .file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)},
      {.name = "anonymous", .file = memfd_create("mapping", MFD_CLOEXEC)},
  };
  enum { KINDS = sizeof kinds / sizeof *kinds };
  pthread_t threads[KINDS + 2];
  int started = 0;
  for (int i = 0; i < KINDS; i++) map(&kinds[i]);
  struct sync sync = {kinds[0].file, atol(arguments[3])};
  struct busy busy = {.mib = atol(arguments[4])};
  snprintf(busy.path, sizeof busy.path, "%s/busy", arguments[1]);
  for (int i = 0; i < KINDS; i++) pthread_create(&threads[started++], 0, write_records, &kinds[i]);
  if (sync.ms) pthread_create(&threads[started++], 0, sync_file, &sync);
  if (busy.mib) pthread_create(&threads[started++], 0, write_others, &busy);
  sleep(atoi(arguments[2]));
  is_over = 1;
  for (int i = 0; i < started; i++) pthread_join(threads[i], 0);
  for (int i = 0; i < KINDS; i++) {
    struct kind *kind = &kinds[i];
    printf("%s %ld %ld %ld %ld %ld\n", kind->name, kind->writes, kind->over_100us, kind->over_1ms, kind->over_10ms,
           kind->longest_ns / 1000);
  }
  return 0;
}
