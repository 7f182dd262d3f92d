// Four threads work off jobs from a queue: each job measures its computing by the thread's CPU clock, a system call.
// Says how much of the CPU time that was.
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static std::mutex queue_lock, totals_lock;
static std::condition_variable arrived;
static std::deque<int> jobs;
static bool is_over;
static std::map<std::string, double> totals;
static double of_scores, of_all;

[[gnu::noinline]] static double score(int size, double &used) {
    double begin = cpu_seconds(), sum = 0;
    for (int i = 1; i < size; i++) sum += std::log(i) * std::sin(i);
    used += cpu_seconds() - begin;
    return sum;
}

[[gnu::noinline]] static std::string account(int job) {
    std::string name;
    for (int i = 0; i < 600; i++) {
        name += std::to_string(job * i % 977);
        if (name.size() > 64) name.erase(0, 32);
    }
    return name.substr(0, 3);
}

static void work() {
    double begin = cpu_seconds(), used = 0;
    for (;;) {
        int job;
        {
            std::unique_lock lock(queue_lock);
            arrived.wait(lock, [] { return !jobs.empty() || is_over; });
            if (jobs.empty()) break;
            job = jobs.front();
            jobs.pop_front();
        }
        std::string name = account(job);
        double value = score(4000 + job % 7 * 500, used);
        std::lock_guard lock(totals_lock);
        totals[name] += value;
    }
    double all = cpu_seconds() - begin;
    std::lock_guard lock(totals_lock);
    of_scores += used;
    of_all += all;
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(work);
    for (int job = 0; job < 9000; job++) {
        {
            std::lock_guard lock(queue_lock);
            jobs.push_back(job);
        }
        arrived.notify_one();
    }
    {
        std::lock_guard lock(queue_lock);
        is_over = true;
    }
    arrived.notify_all();
    for (auto &thread : threads) thread.join();
    printf("%.1f %% of %.2f s\n", 100 * of_scores / of_all, of_all);
}
