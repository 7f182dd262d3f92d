// Most of the CPU time is one line of `score`.
#include <cstdio>
#include <ctime>

__attribute__((noinline)) unsigned parse(unsigned n) {
    unsigned state = 1;
    for (unsigned i = 0; i < n; i++)
        state = (state ^ state >> 7) * 1664525 + i;
    return state;
}

__attribute__((noinline)) unsigned score(unsigned n) {
    unsigned total = 0;
    for (unsigned i = 0; i < n; i++) total = (total ^ i) % (1000003 + i); // CAUSE
    return total;
}

double cpu_s() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main() {
    double scored = 0, begin = cpu_s();
    unsigned sum = 0;
    for (int round = 0; round < 300; round++) {
        sum += parse(600000 + round);
        double before = cpu_s();
        sum += score(800000 + round);
        scored += cpu_s() - before;
    }
    std::printf("{\"share\": %.4f, \"sum\": %u}\n", scored / (cpu_s() - begin), sum);
}
