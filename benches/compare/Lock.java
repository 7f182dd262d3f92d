import java.util.concurrent.Semaphore;

/** `lookup` waits for a monitor that `refresh` holds while it sleeps. */
public class Lock {
    static class Cache {}

    static final Cache cache = new Cache();
    static final Semaphore held = new Semaphore(0), turn = new Semaphore(0);

    static void refresh() throws InterruptedException {
        synchronized (cache) {
            held.release();
            Thread.sleep(20); // HOLDER
        }
    }

    static long lookup() {
        long begin = System.nanoTime();
        synchronized (cache) { return System.nanoTime() - begin; } // CAUSE
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread refresher = new Thread(() -> {
            try {
                for (int i = 0; i < 100; i++) {
                    refresh();
                    turn.acquire();
                }
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        }, "refresher");
        refresher.start();
        long waited = 0;
        for (int i = 0; i < 100; i++) {
            held.acquire();
            waited += lookup();
            turn.release();
        }
        refresher.join();
        System.out.printf("{\"wait_s\": %.6f}%n", waited / 1e9);
    }
}
