/* Exact times per function for programs compiled with -finstrument-functions.
 *
 * Every entry and exit of an instrumented function reads the cycle counter; a shadow stack of each
 * thread turns that into total and self time. The counter is not read by any call that stackbeat
 * hooks, so that measuring one does not disturb the other. At exit the table goes to the file that
 * TRUTH names, a line each:
 *
 *     function  total_ns  self_ns  calls
 *
 * total: within the function, recursion counted once. self: without instrumented callees.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define PLAIN __attribute__((no_instrument_function))
#define FUNCTIONS 256
#define DEPTH 4096

struct function {
  void *address;
  uint64_t total, self, calls;
};
struct open {
  unsigned function;
  uint64_t begin, callees;
};
struct thread {
  struct function functions[FUNCTIONS];
  unsigned active[FUNCTIONS];
  struct open open[DEPTH];
  unsigned depth;
  struct thread *next;
};

static __thread struct thread *mine;
static struct thread *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t first_cycles, first_ns;

PLAIN static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

PLAIN static struct thread *self(void) {
  if (!mine) {
    mine = calloc(1, sizeof *mine);
    if (!mine)
      abort();
    pthread_mutex_lock(&all_lock);
    mine->next = all;
    all = mine;
    if (!first_ns) {
      first_ns = now_ns();
      first_cycles = __rdtsc();
    }
    pthread_mutex_unlock(&all_lock);
  }
  return mine;
}

PLAIN static unsigned slot(struct thread *t, void *address) {
  unsigned i = (unsigned)((uintptr_t)address >> 4) % FUNCTIONS;
  while (t->functions[i].address && t->functions[i].address != address)
    i = (i + 1) % FUNCTIONS;
  t->functions[i].address = address;
  return i;
}

PLAIN void __cyg_profile_func_enter(void *function, void *site) {
  (void)site;
  struct thread *t = self();
  unsigned f = slot(t, function);
  t->active[f]++;
  if (t->depth >= DEPTH)
    abort();
  struct open *o = &t->open[t->depth++];
  o->function = f;
  o->callees = 0;
  o->begin = __rdtsc();
}

PLAIN void __cyg_profile_func_exit(void *function, void *site) {
  uint64_t end = __rdtsc();
  (void)function;
  (void)site;
  struct thread *t = mine;
  struct open *o = &t->open[--t->depth];
  struct function *f = &t->functions[o->function];
  uint64_t length = end - o->begin;
  f->self += length - o->callees;
  f->calls++;
  if (--t->active[o->function] == 0)
    f->total += length;
  if (t->depth)
    t->open[t->depth - 1].callees += length;
}

PLAIN __attribute__((destructor)) static void write_truth(void) {
  const char *path = getenv("TRUTH");
  FILE *out = path ? fopen(path, "w") : NULL;
  if (!out)
    return;
  double ns_a_cycle = (double)(now_ns() - first_ns) / (double)(__rdtsc() - first_cycles);
  for (struct thread *t = all; t; t = t->next)
    for (unsigned i = 0; i < FUNCTIONS; i++) {
      struct function *f = &t->functions[i];
      Dl_info info;
      if (!f->calls || !dladdr(f->address, &info) || !info.dli_sname)
        continue;
      fprintf(out, "%s %.0f %.0f %llu\n", info.dli_sname, (double)f->total * ns_a_cycle,
              (double)f->self * ns_a_cycle, (unsigned long long)f->calls);
    }
  fclose(out);
}
