// Nearly all bytes are allocated in one line of `make_rows`.
#include <cstdio>
#include <memory>
#include <vector>

using Row = std::unique_ptr<char[]>;

__attribute__((noinline)) std::vector<Row> index(int n) {
    std::vector<Row> rows;
    for (int i = 0; i < n; i++)
        rows.push_back(std::make_unique<char[]>(700));
    return rows;
}

__attribute__((noinline)) size_t make_rows(std::vector<Row> &rows) {
    size_t bytes = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        bytes += 4000 + i % 100;
        rows[i].reset(new char[4000 + i % 100]()); // CAUSE
    }
    return bytes;
}

int main() {
    size_t bytes = 0, calls = 0;
    for (int round = 0; round < 100; round++) {
        index(200);
        std::vector<Row> rows(6000);
        bytes += make_rows(rows);
        calls += rows.size();
    }
    std::printf("{\"bytes\": %zu, \"calls\": %zu}\n", bytes, calls);
}
