// press: a small printing press in C++. Build: g++ -O2 -g -pthread -o press press.cpp
//
// Readers typeset pages, an inker copies them through a bounded queue, a binder writes the book.
//
// What a trace of it shows:
//  - `typeset<Roman>` and `typeset<Gothic>` compute (CPU); they are templates with the same body.
//  - `Queue<Page>::push` waits when the inker is slow (blocked: wait), `Queue<Page>::pop` when it is fast.
//  - Both kinds of readers fight for the type case in `TypeCase::borrow` (blocked: lock); a reader keeps it
//    while it sorts letters in `sort_letters`.
//  - `Binder::bind` writes each page and syncs every tenth (blocked: io).
//  - A torn page is thrown as an exception in `check_page` and caught in `read_pages`.
//
// The output is the same in every run.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#define NOINLINE __attribute__((noinline))

struct Page {
  int number;
  std::string text;
};

template <typename T> class Queue {
public:
  explicit Queue(size_t capacity) : capacity_(capacity) {}

  NOINLINE void push(T item) {
    std::unique_lock<std::mutex> hold(mutex_);
    room_.wait(hold, [&] { return items_.size() < capacity_; });
    items_.push_back(std::move(item));
    came_.notify_one();
  }

  NOINLINE bool pop(T &item) {
    std::unique_lock<std::mutex> hold(mutex_);
    came_.wait(hold, [&] { return !items_.empty() || closed_; });
    if (items_.empty())
      return false;
    item = std::move(items_.front());
    items_.pop_front();
    room_.notify_one();
    return true;
  }

  void close() {
    std::lock_guard<std::mutex> hold(mutex_);
    closed_ = true;
    came_.notify_all();
  }

private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_, came_;
  std::deque<T> items_;
  bool closed_ = false;
};

struct Roman {
  static constexpr uint32_t seed = 17;
};
struct Gothic {
  static constexpr uint32_t seed = 23;
};

class TypeCase {
public:
  TypeCase() : letters_(40000) {
    for (size_t i = 0; i < letters_.size(); ++i)
      letters_[i] = static_cast<uint32_t>(i * 2654435761u);
  }

  NOINLINE uint32_t borrow(uint32_t key) {
    std::lock_guard<std::mutex> hold(mutex_);
    return sort_letters(key);
  }

private:
  NOINLINE uint32_t sort_letters(uint32_t key) {
    std::vector<uint32_t> copy(letters_);
    std::sort(copy.begin(), copy.end());
    return copy[key % copy.size()];
  }

  std::mutex mutex_;
  std::vector<uint32_t> letters_;
};

template <typename Face> NOINLINE std::string typeset(int number, uint32_t letter) {
  uint32_t x = Face::seed + static_cast<uint32_t>(number);
  std::string text;
  for (int line = 0; line < 40; ++line) {
    for (int i = 0; i < 30000; ++i)
      x = x * 1664525u + 1013904223u;
    text += std::to_string(x ^ letter);
    text += '\n';
  }
  return text;
}

NOINLINE void check_page(int number) {
  if (number % 50 == 49)
    throw std::runtime_error("page " + std::to_string(number) + " is torn");
}

template <typename Face>
NOINLINE void read_pages(Queue<Page> &queue, TypeCase &letters, int first, int last, int &torn) {
  for (int number = first; number < last; ++number) {
    try {
      check_page(number);
      std::string text = typeset<Face>(number, letters.borrow(static_cast<uint32_t>(number)));
      queue.push(Page{number, std::move(text)});
    } catch (const std::runtime_error &) {
      ++torn;
    }
  }
}

class Binder {
public:
  Binder() : file_(std::tmpfile()) {
    if (!file_) {
      std::perror("press: cannot make a temporary file");
      std::exit(2);
    }
  }
  ~Binder() { std::fclose(file_); }

  NOINLINE void bind(const Page &page) {
    std::fwrite(page.text.data(), 1, page.text.size(), file_);
    std::fflush(file_);
    if (++pages_ % 10 == 0)
      ::fsync(::fileno(file_));
    for (char c : page.text)
      sum_ += static_cast<unsigned char>(c);
  }

  int pages() const { return pages_; }
  uint64_t sum() const { return sum_; }

private:
  std::FILE *file_;
  int pages_ = 0;
  uint64_t sum_ = 0;
};

int main(int argc, char **argv) {
  const int pages = argc > 1 ? std::atoi(argv[1]) : 200;
  Queue<Page> queue(8);
  TypeCase letters;
  int torn_roman = 0, torn_gothic = 0;
  std::thread roman([&] {
    pthread_setname_np(pthread_self(), "roman");
    read_pages<Roman>(queue, letters, 0, pages, torn_roman);
  });
  std::thread gothic([&] {
    pthread_setname_np(pthread_self(), "gothic");
    read_pages<Gothic>(queue, letters, pages, 2 * pages, torn_gothic);
  });
  auto binder = std::make_unique<Binder>();
  std::thread binding([&] {
    pthread_setname_np(pthread_self(), "binder");
    Page page;
    while (queue.pop(page))
      binder->bind(page);
  });
  roman.join();
  gothic.join();
  queue.close();
  binding.join();
  std::printf("bound %d pages, %d torn, sum %llu\n", binder->pages(), torn_roman + torn_gothic,
              static_cast<unsigned long long>(binder->sum()));
  return 0;
}
