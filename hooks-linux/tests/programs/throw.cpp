// Exceptions through hooks, thread-local destructors, operator new.
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

struct Noisy {
    std::string name;
    std::unique_ptr<int[]> memory{new int[100]};
    ~Noisy() { std::printf("end of %s\n", name.c_str()); }
};
thread_local Noisy noisy{"thread local"};

static void thrower(int) { throw std::runtime_error("out of a system call"); }

int main() {
    try {
        std::vector<char> v;
        v.reserve(size_t(-1) / 4);
    } catch (const std::bad_alloc &e) {
        std::printf("%s\n", e.what());
    } catch (const std::length_error &e) {
        std::printf("length\n");
    }
    try {
        volatile size_t huge = size_t(-1) / 4;
        char *p = new char[huge];
        std::printf("%p\n", p);
    } catch (const std::bad_alloc &e) {
        std::printf("%s\n", e.what());
    }
    std::thread([] {
        try {
            Noisy local{"local"};
            noisy.name += "!";
            throw std::string("thrown");
        } catch (const std::string &s) {
            std::printf("%s\n", s.c_str());
        }
    }).join();
    auto f = std::async(std::launch::async, []() -> int { throw std::runtime_error("from async"); });
    try {
        f.get();
    } catch (const std::exception &e) {
        std::printf("%s\n", e.what());
    }
    // The exception unwinds from the handler through the hooked call.
    std::signal(SIGALRM, thrower);
    for (int i = 0; i < 2; i++) {
        try {
            ualarm(10000, 0);
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGALRM);
            pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
            if (i == 0) pause();
            else usleep(3000000);
            std::printf("not reached\n");
        } catch (const std::exception &e) {
            std::printf("%s\n", e.what());
        }
    }
    std::fflush(stdout);
    return 0;
}
