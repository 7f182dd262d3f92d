// Threads that allocate, lock and sleep.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static std::mutex lock;
static long total;

static void work(int factor) {
    std::map<int, std::string> texts;
    for (int i = 0; i < 20000; i++) {
        void *volatile memory = std::malloc(50);
        std::free(memory);
        texts[i * factor % 1000] = std::to_string(i) + " and a text that needs memory of its own";
        if (i % 100 == 0) {
            std::lock_guard<std::mutex> guard(lock);
            total += i;
        }
        if (i % 5000 == 0) usleep(1000);
    }
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 1; i < 5; i++) threads.emplace_back(work, i);
    for (auto &thread : threads) thread.join();
    std::printf("%ld\n", total);
    return 0;
}
