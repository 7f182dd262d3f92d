#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <vector>
namespace ctx = boost::context;
static long broken; static std::mutex lock;
struct Stacks { size_t bytes;
  ctx::stack_context allocate() { char *low = (char *)malloc(bytes + 8192); memset(low, 0xa5, 4096); ctx::stack_context s; s.size = bytes; s.sp = low + 4096 + bytes; return s; }
  void deallocate(ctx::stack_context &s) noexcept { unsigned char *low = (unsigned char *)s.sp - s.size - 4096; for (int i = 0; i < 4096; i++) if (low[i] != 0xa5) { broken++; break; } free(low); } };
int main() { for (size_t bytes : {3072, 4096, 8192, 16384}) { std::vector<ctx::fiber> all; long sum = broken = 0;
    for (int i = 0; i < 200; i++) all.emplace_back(std::allocator_arg, Stacks{bytes}, [&sum, i](ctx::fiber &&back) { char c = 1; int ends[2];
      for (int j = 0; j < 20; j++) { void *m = malloc(100 + j); std::unique_lock<std::mutex> held(lock); sum += i ^ j; held.unlock(); if (pipe(ends) == 0) { write(ends[1], &c, 1); read(ends[0], &c, 1); close(ends[0]); close(ends[1]); }
        if (i % 40 == 0) usleep(300); for (volatile int k = 0; k < 3000; k++) {} free(m); back = std::move(back).resume(); } return std::move(back); });
    for (int round = 0; round < 21; round++) for (auto &f : all) if (f) f = std::move(f).resume();
    all.clear(); printf("%zu: %ld, %ld stacks overrun\n", bytes, sum, broken); } }
