// `lookup` waits for a lock that `refresh` holds while it sleeps.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <thread>

std::mutex cache;
std::mutex turns;
std::condition_variable changed;
int held = 0, looked_up = 0;

void count(int &turn) {
    std::lock_guard<std::mutex> guard(turns);
    turn++;
    changed.notify_all();
}

void wait_for(int &turn, int n) {
    std::unique_lock<std::mutex> guard(turns);
    changed.wait(guard, [&] { return turn >= n; });
}

__attribute__((noinline)) int refresh() {
    cache.lock();
    count(held);
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // HOLDER
    cache.unlock();
    return looked_up;
}

__attribute__((noinline)) double lookup() {
    auto begin = std::chrono::steady_clock::now();
    cache.lock(); // CAUSE
    std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    cache.unlock();
    return waited.count();
}

int main() {
    std::thread refresher([] {
        pthread_setname_np(pthread_self(), "refresher");
        for (int i = 0; i < 100; i++) {
            refresh();
            wait_for(looked_up, i + 1);
        }
    });
    double waited = 0;
    for (int i = 0; i < 100; i++) {
        wait_for(held, i + 1);
        waited += lookup();
        count(looked_up);
    }
    refresher.join();
    std::printf("{\"wait_s\": %.6f}\n", waited);
}
