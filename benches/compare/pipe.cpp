// `receive` waits for a pipe into which `feed` of another thread writes late.
#include <chrono>
#include <cstdio>
#include <pthread.h>
#include <thread>
#include <unistd.h>

int ends[2];

__attribute__((noinline)) double receive() {
    auto begin = std::chrono::steady_clock::now();
    char byte;
    bool is_read = read(ends[0], &byte, 1) == 1; // CAUSE
    std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    return is_read ? waited.count() : 0;
}

__attribute__((noinline)) bool feed() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    bool is_written = write(ends[1], "x", 1) == 1; // WAKER
    return is_written;
}

int main() {
    if (pipe(ends))
        return 1;
    std::thread feeder([] {
        pthread_setname_np(pthread_self(), "feeder");
        for (int i = 0; i < 100; i++)
            feed();
    });
    double waited = 0;
    for (int i = 0; i < 100; i++)
        waited += receive();
    feeder.join();
    std::printf("{\"wait_s\": %.6f}\n", waited);
}
