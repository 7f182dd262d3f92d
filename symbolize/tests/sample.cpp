// Code with inlined calls, templates, an anonymous namespace, a lambda and a cold part, for symbol tests.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace shapes {
struct Square {
    long side;
    inline __attribute__((always_inline)) long area() const {
        long sum = 0;
        for (long i = 0; i < side; i++)
            sum += (i ^ side) % 7;
        return sum;
    }
};

template <typename T> __attribute__((noinline)) long total(const std::vector<T> &all) {
    long sum = 0;
    for (const T &one : all)
        sum += one.area();
    return sum;
}
} // namespace shapes

namespace {
__attribute__((noinline)) int compare(const void *a, const void *b) {
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}
} // namespace

static inline __attribute__((always_inline)) void check(long value) {
    if (value < 0)
        throw std::runtime_error("negative: " + std::to_string(value));
}

extern "C" __attribute__((noinline)) long plain_c_name(long n) {
    check(n);
    std::vector<shapes::Square> squares;
    for (long i = 0; i < n; i++)
        squares.push_back({i});
    return shapes::total(squares);
}

int main(int argc, char **) {
    int numbers[] = {5, 3, 9, argc};
    const auto mix = [&numbers](int with) __attribute__((always_inline)) { numbers[0] ^= with % (numbers[1] + 1); };
    mix(argc);
    qsort(numbers, 4, sizeof(int), compare);
    try {
        std::printf("%ld %d\n", plain_c_name(argc * 100), numbers[0]);
    } catch (const std::exception &error) {
        std::puts(error.what());
    }
}
