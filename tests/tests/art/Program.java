import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

// What the tests of Android's hooks record. Each mode says what it did: `WHAT THREAD BEGIN NANOSECONDS`, a line
// for each wait, or a stack.
public class Program {
    static final Object lock = new Object();
    static volatile int held, taken;
    static final StringBuilder said = new StringBuilder();

    static synchronized void say(String what, long from) {
        said.append(what).append(' ').append(Thread.currentThread().getName()).append(' ');
        said.append(from).append(' ').append(System.nanoTime() - from).append('\n');
    }

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static Thread start(String name, Runnable what) {
        Thread thread = new Thread(what, name);
        thread.start();
        return thread;
    }

    static void join(Thread... threads) throws InterruptedException {
        for (Thread thread : threads) thread.join();
    }

    /** One thread holds a lock that the other one waits for. */
    static void locks(int rounds) throws InterruptedException {
        Thread holder = start("holder", () -> {
            for (int i = 1; i <= rounds; i++) {
                synchronized (lock) {
                    held = i;
                    sleep(4 + i % 4);
                }
                while (taken < i) Thread.yield();
            }
        });
        Thread contender = start("contender", () -> {
            for (int i = 1; i <= rounds; i++) {
                while (held < i) Thread.yield();
                long begin = System.nanoTime();
                synchronized (lock) {
                    say("enter", begin);
                }
                taken = i;
            }
        });
        join(holder, contender);
    }

    /** One thread waits for what another one says. */
    static void waits(int rounds) throws InterruptedException {
        Thread waiter = start("waiter", () -> {
            for (int i = 1; i <= rounds; i++) {
                synchronized (lock) {
                    long begin = System.nanoTime();
                    held = i;
                    while (taken < i) {
                        try {
                            lock.wait();
                        } catch (InterruptedException e) {
                            throw new IllegalStateException(e);
                        }
                    }
                    say("wait", begin);
                }
            }
        });
        Thread notifier = start("notifier", () -> {
            for (int i = 1; i <= rounds; i++) {
                while (held < i) Thread.yield();
                sleep(4);
                synchronized (lock) {
                    taken = i;
                    if (i % 2 == 0) lock.notify();
                    else lock.notifyAll();
                }
            }
        });
        join(waiter, notifier);
    }

    /** One thread parks until another one lets it go on. */
    static void parks(int rounds) throws InterruptedException {
        Thread parker = start("parker", () -> {
            for (int i = 1; i <= rounds; i++) {
                held = i;
                long begin = System.nanoTime();
                while (taken < i) LockSupport.park();
                say("park", begin);
            }
        });
        Thread unparker = start("unparker", () -> {
            for (int i = 1; i <= rounds; i++) {
                while (held < i) Thread.yield();
                sleep(4);
                taken = i;
                LockSupport.unpark(parker);
            }
        });
        join(parker, unparker);
    }

    /** Stacks of several depths, in which the thread parks for a moment. */
    static void marked(int depth) {
        if (depth > 0) {
            if (depth % 2 == 0) marked(depth - 1);
            else new Other().marked(depth - 1);
            return;
        }
        mark();
    }

    /** Parks for a moment, and says its own stack. */
    static void mark() {
        LockSupport.parkNanos(4000000);
        StackTraceElement[] stack = new Throwable().getStackTrace();
        StringBuilder line = new StringBuilder("stack");
        for (int i = stack.length - 1; i >= 0; i--) {
            StackTraceElement frame = stack[i];
            line.append(' ').append(frame.getClassName()).append('.').append(frame.getMethodName());
            line.append(':').append(frame.getLineNumber());
        }
        synchronized (Program.class) {
            said.append(line).append('\n');
        }
    }

    static class Other {
        void marked(int depth) {
            try {
                Program.marked(depth);
            } finally {
                held++;
            }
        }
    }

    static void stacks(int rounds) throws InterruptedException {
        join(start("marker", () -> {
            for (int i = 0; i < rounds; i++) marked(i % 24);
        }));
    }

    static volatile Object sink;

    static void allocate(int count) throws InterruptedException {
        join(start("allocator", () -> {
            for (int i = 0; i < count; i++) sink = new int[i % 7];
        }));
        say("allocated", System.nanoTime());
    }

    /** A thread that computes, in a method that calls nothing. */
    static int compute(int n) {
        int sum = 1;
        for (int i = 0; i < n; i++) sum = sum * 31 + i;
        return sum;
    }

    static void computes(int ms) throws InterruptedException {
        join(start("computer", () -> {
            long end = System.nanoTime() + ms * 1000000L;
            while (System.nanoTime() < end) sink = new int[compute(20000) & 7];
        }));
    }

    /** A thread that passes no hook: it calls nothing, and makes no object. */
    static void spin() {
        int x = 1;
        for (int i = 0; !stop; i++) x = x * 31 + i;
        shared = x;
    }

    static void spins(int ms) throws InterruptedException {
        Thread spinner = start("spinner", () -> spin());
        sleep(ms);
        stop = true;
        join(spinner);
    }

    /** Does not return for so long, and comes to no safepoint: whoever suspends all threads waits for it. */
    @dalvik.annotation.optimization.FastNative
    static native void stick(int ms);

    /** The same, and computes meanwhile. */
    @dalvik.annotation.optimization.FastNative
    static native void burn(int ms);

    /** The same, for so long by the clock. */
    @dalvik.annotation.optimization.FastNative
    static native void late(int ms);

    static void burns(int ms, String library) throws InterruptedException {
        System.load(library);
        join(start("burning", () -> burn(ms)));
    }

    /** Below a method of a class that has many. */
    static void stickInLarge(int ms) {
        try {
            Class.forName("Large").getMethod("stays", int.class).invoke(null, ms);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static void sticks(int ms, String library, boolean inLarge) throws InterruptedException {
        System.load(library);
        Thread sticking = start("sticking", inLarge ? () -> stickInLarge(ms) : () -> stick(ms));
        while (sticking.isAlive()) LockSupport.parkNanos(1000000);
    }

    /**
     * One thread comes to no safepoint for so long. Others compute meanwhile, the main one, too, and pass no hook.
     */
    static void beside(int ms, String library) throws InterruptedException {
        System.load(library);
        Thread[] spinners = new Thread[4];
        for (int i = 0; i < spinners.length; i++) spinners[i] = start("spinner-" + i, () -> spin());
        Thread late = start("late", () -> {
            long begin = System.nanoTime();
            late(ms);
            say("late", begin);
            stop = true;
        });
        spin();
        join(spinners);
        join(late);
    }

    /** Native methods in the usual state: one that returns at once, and one that takes as long as it is told. */
    static native int plain(int n);

    static native void nap(int ms);

    static void natives(int count, String library) throws InterruptedException {
        System.load(library);
        join(start("caller", () -> {
            long first = System.nanoTime();
            for (int i = 0; i < count; i++) shared = plain(i);
            say("plain", first);
            for (int i = 0; i < 100; i++) {
                long begin = System.nanoTime();
                nap(3);
                say("native", begin);
            }
        }));
    }

    static void collects(int rounds) throws InterruptedException {
        join(start("collector", () -> {
            for (int i = 0; i < rounds; i++) {
                long begin = System.nanoTime();
                Runtime.getRuntime().gc();
                say("gc", begin);
                sleep(3);
            }
        }));
    }

    /** One thread collects all the time. Another one wants more memory than there is before it has done so. */
    static void starves(int rounds) throws InterruptedException {
        Object[] live = new Object[50000];
        for (int i = 0; i < live.length; i++) live[i] = new int[i % 16];
        Thread collector = start("collector", () -> {
            for (held = 1; !stop; held++) Runtime.getRuntime().gc();
        });
        Thread allocator = start("allocator", () -> {
            while (held < 2) Thread.yield();
            for (int i = 0; i < rounds; i++) {
                long begin = System.nanoTime();
                sink = new byte[1 << 20];
                if (System.nanoTime() - begin > 100000) say("made", begin);
            }
            stop = true;
        });
        join(collector, allocator);
        sink = live;
    }

    static void classes(int count, String path) throws InterruptedException {
        join(start("loader", () -> {
            for (int i = 0; i < count; i++) {
                shared = compute(5000 * (1 + i % 7));
                long begin = System.nanoTime();
                try {
                    load(path);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
                say("loaded", begin);
            }
        }));
    }

    static final int[] none = {};

    /** Throws through some frames. The handler marks its stack. */
    static void thrown(int depth, int handler, int kind) {
        if (depth == 0) {
            switch (kind) {
                case 0: throw new IllegalStateException("expected");
                case 1: shared = 1 / (kind - 1); break;
                case 2: shared = none[kind]; break;
                case 3: shared = ((String) null).length(); break;
                default: overflow();
            }
        } else if (depth == handler) {
            try {
                thrown(depth - 1, 0, kind);
            } catch (RuntimeException | StackOverflowError e) {
                sink = e;
                mark();
            }
        } else {
            try {
                thrown(depth - 1, handler, kind);
            } finally {
                held++;
            }
        }
    }

    static void exceptions(int rounds) throws InterruptedException {
        join(start("marker", () -> {
            for (int i = 0; i < rounds; i++) thrown(20, 1 + i % 20, i % 5);
        }));
    }

    /** Calls itself so often, and marks its stack. */
    static void down(int n) {
        if (n == 0) mark();
        else down(n - 1);
        held++;
    }

    static void fall(int n) {
        taken = n;
        fall(n + 1);
    }

    static void depths(int rounds) throws InterruptedException {
        join(start("marker", () -> {
            for (int i = 0; i < rounds; i++) {
                try {
                    fall(0);
                } catch (StackOverflowError e) {
                    sink = e;
                }
                down(i % 4 == 0 ? 300 : taken * (1 + i % 8) / 10);
            }
        }));
    }

    // What is done all the time in the stress run.
    static int deep(int n) {
        if (n == 0) {
            sink = new byte[100];
            return 0;
        }
        return 1 + deep(n - 1);
    }

    static void throwing(int n) {
        if (n == 0) throw new IllegalStateException("expected");
        try {
            throwing(n - 1);
        } finally {
            sink = new Object();
        }
    }

    static void overflow() {
        overflow();
    }

    static final ClassLoader loader = Program.class.getClassLoader();

    static void load(String path) throws Exception {
        // Each loader has classes of its own, and is unloaded with them.
        ClassLoader own = new dalvik.system.PathClassLoader(path, Object.class.getClassLoader());
        Runnable loaded = (Runnable) own.loadClass("Program$Loaded").getDeclaredConstructor().newInstance();
        loaded.run();
    }

    public static class Loaded implements Runnable {
        @Override public void run() {
            LockSupport.parkNanos(100000);
        }
    }

    static volatile boolean stop;
    static int shared;

    static boolean overflows = true;

    static void stress(int ms, String path) throws Exception {
        List<Thread> threads = new ArrayList<>();
        Throwable[] wrong = new Throwable[1];
        List<Runnable> kinds = new ArrayList<>();
        kinds.add(() -> {
            synchronized (lock) {
                shared++;
                Thread.yield();
            }
        });
        kinds.add(() -> {
            synchronized (lock) {
                try {
                    lock.wait(1);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                lock.notifyAll();
            }
        });
        kinds.add(() -> sink = new byte[20000]);
        kinds.add(() -> deep(400));
        kinds.add(() -> {
            try {
                throwing(30);
            } catch (IllegalStateException e) {
                sink = e;
            }
        });
        kinds.add(() -> LockSupport.parkNanos(100000));
        kinds.add(() -> {
            Thread short_ = start("short", () -> deep(20));
            try {
                short_.join();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        kinds.add(() -> {
            try {
                load(path);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        kinds.add(() -> {
            Runtime.getRuntime().gc();
            sleep(20);
        });
        long[] counts = new long[kinds.size()];
        for (int i = 0; i < kinds.size(); i++) {
            int kind = i;
            threads.add(start("stress-" + i, () -> {
                try {
                    while (!stop) {
                        kinds.get(kind).run();
                        counts[kind]++;
                    }
                } catch (Throwable e) {
                    wrong[0] = e;
                }
            }));
        }
        for (int i = 0; i < 3; i++) {
            sleep(ms / 3);
            try {
                if (overflows) overflow();
            } catch (StackOverflowError e) {
                sink = e;
            }
        }
        stop = true;
        for (Thread thread : threads) thread.join();
        if (wrong[0] != null) throw new IllegalStateException(wrong[0]);
        if (shared != counts[0]) throw new IllegalStateException("a lock did not hold");
        for (int i = 0; i < counts.length; i++) {
            said.append("did ").append(i).append(' ').append(counts[i]).append('\n');
        }
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        // A lock word with a hash has no room for an owner: the lock is a monitor from the start, and nobody spins for it.
        System.identityHashCode(lock);
        switch (args[0]) {
            case "locks": locks(count); break;
            case "waits": waits(count); break;
            case "parks": parks(count); break;
            case "stacks": stacks(count); break;
            case "allocate": allocate(count); break;
            case "computes": computes(count); break;
            case "spins": spins(count); break;
            case "burns": burns(count, args[2]); break;
            case "sticks": sticks(count, args[2], false); break;
            case "large": sticks(count, args[2], true); break;
            case "beside": beside(count, args[2]); break;
            case "natives": natives(count, args[2]); break;
            case "collects": collects(count); break;
            case "starves": starves(count); break;
            case "classes": classes(count, args[2]); break;
            case "exceptions": exceptions(count); break;
            case "depths": depths(count); break;
            case "stress": stress(count, args[2]); break;
            default: throw new IllegalArgumentException(args[0]);
        }
        System.out.print(said);
    }
}
