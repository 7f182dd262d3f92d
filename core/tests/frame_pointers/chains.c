// Calls of all shapes, compiled with signed return addresses and frame pointers. Loaded by mod.rs beside it.
#include <execinfo.h>

typedef void look_fn(void *frame, void **addresses, int count);

volatile long sink;
static look_fn *look;

// Where a walk begins, and what libgcc says of the same place.
__attribute__((noinline)) static void here(void) {
  void *addresses[256];
  int count = backtrace(addresses, 256);
  look(__builtin_frame_address(0), addresses, count);
  sink++;
}

__attribute__((noinline)) static long deep(int depth, long a, long b) {
  long local[8] = {a, b};
  sink += local[a & 7];
  if (depth == 0) {
    here();
    return a;
  }
  return deep(depth - 1, b ^ local[0], a + depth) + 1;
}

void run_chains(look_fn *callback) {
  static const int depths[] = {0, 3, 40, 41, 3};
  look = callback;
  for (unsigned i = 0; i < sizeof depths / sizeof *depths; i++) deep(depths[i], i, 2);
}

// What an interruption may meet: a leaf without a frame, one with a loop, tail calls, a switch, recursion, a function
// that makes its frame only where it is needed.
__attribute__((noinline)) static long leaf(long a) { return a * 7 + 3; }

__attribute__((noinline)) static long leaf_loop(long a) {
  long sum = 0;
  for (long i = 0; i < (a & 15); i++) sum += i ^ a;
  return sum;
}

__attribute__((noinline)) static long tail(long a) { return a & 1 ? leaf(a) : leaf_loop(a); }

__attribute__((noinline)) static long maybe_frame(long a) {
  if (a & 4) return a;
  sink += leaf(a);
  return leaf_loop(a) + tail(a + 1);
}

__attribute__((noinline)) static long choose(long a) {
  switch (a & 7) {
    case 0: return leaf(a) + 1;
    case 1: return leaf_loop(a) + leaf(a);
    case 2: return tail(a) + 3;
    case 3: return maybe_frame(a) ^ 5;
    case 4: sink += a; return maybe_frame(a + 4) + leaf(sink);
    case 5: return tail(tail(a));
    default: return maybe_frame(leaf(a)) - 1;
  }
}

__attribute__((noinline)) static long recurse(int depth, long a) {
  if (depth == 0) return choose(a);
  return recurse(depth - 1, a + depth) + choose(depth);
}

void run_work(volatile int *stop) {
  for (long i = 0; !*stop; i++) sink += recurse(i & 7, i);
}
