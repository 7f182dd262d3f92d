// The same for C++: destructors that run while an exception flies, handlers, virtual and lambda calls.
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

typedef void (*look_fn)();
static look_fn look;

struct Looks {
    int value;
    ~Looks() { look(); }
};

__attribute__((noinline)) static void thrower(int depth) {
    Looks guard{depth};
    if (depth == 0) throw std::runtime_error("deep");
    thrower(depth - 1);
}

struct Base {
    virtual ~Base() = default;
    virtual void run(int depth) = 0;
};

struct Derived : Base {
    std::unique_ptr<Base> next;
    void run(int depth) override {
        std::function<void(int)> f = [&](int d) {
            if (d == 0) look();
            else (next ? next.get() : this)->run(d - 1);
        };
        f(depth);
    }
};

extern "C" void run_chains(look_fn callback) {
    look = callback;
    try {
        thrower(8);
    } catch (const std::exception &) {
        look();
    }
    Derived derived;
    derived.run(12);
    std::vector<int> numbers{3, 1, 2, 5, 4};
    std::sort(numbers.begin(), numbers.end(), [](int a, int b) {
        look();
        return a < b;
    });
}
