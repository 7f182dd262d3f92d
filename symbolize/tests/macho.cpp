// Without headers: it is compiled for Apple's systems, whose SDK is not there.

namespace shop {

static volatile int sum;

__attribute__((always_inline)) static inline int taxed(int price) {
  sum += price;
  return price + price / 5;
}

struct Order {
  int items;
  __attribute__((noinline)) int total(int price) const {
    int all = 0;
    for (int i = 0; i < items; i++)
      all += taxed(price + i);
    return all;
  }
};

__attribute__((noinline)) static int hidden(int n) {
  sum -= n;
  return sum + n;
}

} // namespace shop

extern "C" __attribute__((noinline)) int plain(int n) { return shop::hidden(n) * 3; }

extern "C" int run(int n) {
  shop::Order order{n};
  return order.total(n) + plain(n) + shop::taxed(n);
}
