import java.util.*; import java.util.concurrent.*;
public class A { static int deep(int n) { return 1 + deep(n + 1); } static volatile String none; static class Box { int v; Box next; }
  static int storms(int rounds) { int seen = 0; Box b = new Box();
    for (int i = 0; i < rounds; i++) { try { deep(0); } catch (StackOverflowError e) { seen++; }
      for (int j = 0; j < 400; j++) try { seen += b.next.v; } catch (NullPointerException e) { seen++; }
      try { seen += none.length(); } catch (NullPointerException e) { seen++; } try { int[] a = new int[1]; a[i + 2] = 1; } catch (ArrayIndexOutOfBoundsException e) { seen++; } }
    return seen; }
  public static void main(String[] a) throws Exception { System.out.println(storms(60));
    ExecutorService pool = Executors.newFixedThreadPool(6); List<Future<Integer>> all = new ArrayList<>(); Object lock = new Object();
    for (int i = 0; i < 12; i++) all.add(pool.submit(() -> { int n = storms(20); synchronized (lock) { lock.wait(5); } Thread.sleep(3); return n; }));
    int sum = 0; for (Future<Integer> f : all) sum += f.get(); pool.shutdown(); System.out.println(sum);
    Process p = new ProcessBuilder("echo", "child").start(); System.out.println(new String(p.getInputStream().readAllBytes()).trim() + p.waitFor()); System.gc(); } }
