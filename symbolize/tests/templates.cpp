// Functions whose names are long: templates of the standard library, closures, operators, conversions.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#define KEPT __attribute__((noinline, used))

namespace shop {
struct Item {
    std::string name;
    int price;
    KEPT bool operator<(const Item &other) const { return price < other.price; }
    KEPT explicit operator std::string() const { return name; }
    KEPT int operator()(int by) const { return price * by; }
    KEPT const Item *operator->() const { return this; }
    KEPT Item &operator<<(int more) {
        price += more;
        return *this;
    }
};

template <typename T, typename Table = std::map<std::string, T>> struct Basket {
    Table table;
    KEPT void add(const std::string &name, std::vector<T> more) {
        for (auto &one : more)
            table[name] = one;
    }
    KEPT std::unique_ptr<T> take(const std::string &name) { return std::make_unique<T>(table[name]); }
};

KEPT int sum(const std::unordered_map<std::string, std::vector<int>> &all) {
    int total = 0;
    for (auto &[name, numbers] : all)
        for (int number : numbers)
            total += number;
    return total;
}

KEPT int largest(std::priority_queue<int> queue, std::set<std::string, std::greater<>> names) {
    return queue.top() + static_cast<int>(names.size());
}

KEPT std::function<int(int)> adder(int by) {
    return [by](int to) { return by + to; };
}
} // namespace shop

namespace {
KEPT int hidden(std::deque<std::pair<int, std::string>> &all) { return static_cast<int>(all.size()); }
} // namespace

int main(int argc, char **argv) {
    shop::Basket<int> numbers;
    numbers.add(argv[0], {1, 2, argc});
    shop::Basket<shop::Item, std::unordered_map<std::string, shop::Item>> items;
    items.add("a", {{"b", argc}, {"c", 2}});
    shop::Item item = *items.take("a");
    std::vector<shop::Item> all(3, item << 3);
    std::sort(all.begin(), all.end());
    std::deque<std::pair<int, std::string>> pairs(argc);
    std::ostringstream out;
    out << std::string(item) << item(argc) << item->price << hidden(pairs) << shop::adder(argc)(3)
        << shop::sum({{"x", {1, argc}}}) << shop::largest({}, {"a"});
    std::regex expression("[a-z]+");
    std::printf("%s %d %d\n", out.str().c_str(), *numbers.take("q"), std::regex_search(out.str(), expression));
}
