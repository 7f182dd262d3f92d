// Computes in two methods for as long each, beside a thread that allocates; at times a null reference is caught
// and garbage collected. Prints what must be the same in each run, and ends with status 7.
using System;
using System.Runtime.CompilerServices;
using System.Threading;

class Shop {
  [MethodImpl(MethodImplOptions.NoInlining)]
  public double Price(int rounds) {
    double price = 0;
    for (int i = 1; i < rounds; i++) price += Math.Sqrt(i) / (i + 1);
    return price;
  }
}

static class Program {
  [MethodImpl(MethodImplOptions.NoInlining)]
  static long Remainders(int rounds) {
    long sum = 0;
    for (int i = 0; i < rounds; i++) sum += i * 7L % 13;
    return sum;
  }

  [MethodImpl(MethodImplOptions.NoInlining)]
  static int Caught(object nothing) {
    try { return nothing.GetHashCode(); } catch (NullReferenceException) { return 1; }
  }

  static int Main(string[] arguments) {
    var end = DateTime.UtcNow.AddMilliseconds(double.Parse(arguments[0]));
    var shop = new Shop();
    long allocated = 0;
    var other = new Thread(() => {
      while (DateTime.UtcNow < end) { allocated += new byte[10000].Length; Thread.Sleep(1); }
    });
    other.Start();
    int caught = 0, rounds = 0;
    bool right = true;
    for (; DateTime.UtcNow < end; rounds++) {
      right &= Remainders(20000) == 119991 && Math.Abs(shop.Price(20000) - 279.532939) < 0.001;
      if (rounds % 50 == 0) { caught += Caught(null); GC.Collect(0); }
    }
    other.Join();
    Console.WriteLine("right: " + right + ", caught: " + (caught == (rounds + 49) / 50) + ", allocated: " + (allocated > 0));
    return 7;
  }
}
