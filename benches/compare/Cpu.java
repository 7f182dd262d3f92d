import java.lang.management.ManagementFactory;

/** Most of the CPU time is one line of `score`. */
public class Cpu {
    static int parse(int n) {
        int state = 1;
        for (int i = 0; i < n; i++)
            state = (state ^ state >>> 7) * 1664525 + i;
        return state;
    }

    static int score(int n) {
        int total = 0;
        for (int i = 0; i < n; i++) total = (total ^ i) % (1000003 + i); // CAUSE
        return total;
    }

    public static void main(String[] arguments) {
        var threads = ManagementFactory.getThreadMXBean();
        long scored = 0;
        int sum = 0;
        for (int round = 0; round < 600; round++) {
            sum += parse(600000 + round);
            long before = threads.getCurrentThreadCpuTime();
            sum += score(800000 + round);
            scored += threads.getCurrentThreadCpuTime() - before;
        }
        // Compilers and collectors are threads that profilers see, too.
        long all = ProcessHandle.current().info().totalCpuDuration().get().toNanos();
        System.out.printf("{\"share\": %.4f, \"sum\": %d}%n", (double) scored / all, sum);
    }
}
